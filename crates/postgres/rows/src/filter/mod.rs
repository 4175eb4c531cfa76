//! Conditions that rows are chosen by, tested on their bytes before anything is made of them: a row is given if all of them are true, as
//! behind WHERE in SQL. A comparison with NULL is not true.

mod operand;
mod parse;

use crate::cells::Held;
use crate::outside::Outside;
use crate::relation::Relation;
use crate::value::Types;
use leadline_errors::Result;

use operand::Operand;
pub(crate) use parse::{parse, Condition};
use parse::{Operator, Test};

/// What is known of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Wanted,
    NotWanted,
    /// A value that a condition needs cannot be read, and no other condition is known not to be true.
    Undecided,
}

/// Conditions on the attributes of one relation.
#[derive(Debug)]
pub(crate) struct Filter(Vec<Bound>);

#[derive(Debug)]
struct Bound {
    /// Which attribute.
    attribute: usize,
    /// Its value in rows that are older than it.
    missing: Option<Vec<u8>>,
    test: Checked,
}

#[derive(Debug)]
enum Checked {
    IsNull(bool),
    Compare(Operator, Operand),
}

impl Filter {
    /// # Errors
    /// When the relation has no such column, or its type cannot be compared with the value.
    pub(crate) fn new(conditions: &[Condition], relation: &Relation) -> Result<Filter> {
        let bound = |condition: &Condition| {
            let found = relation.attributes.iter().position(|(a, _)| a.is_stored() && a.attname == condition.column);
            let attribute = found.ok_or_else(|| relation.no_such_column(&condition.column))?;
            let (about, types) = (&relation.attributes[attribute].0, &relation.types);
            let test = match &condition.test {
                Test::IsNull(wanted) => Checked::IsNull(*wanted),
                Test::Compare(operator, literal) => {
                    let type_name = types.by_oid.get(&about.atttypid).map_or("", |t| t.name.as_str());
                    let operand = Operand::new(&condition.column, types.compared(about.atttypid), type_name, literal)?;
                    Checked::Compare(*operator, operand)
                }
            };
            Ok(Bound { attribute, missing: about.missing.clone(), test })
        };
        Ok(Filter(conditions.iter().map(bound).collect::<Result<_>>()?))
    }

    /// `held`: what the row has of an attribute.
    pub(crate) fn verdict<'v>(
        &self,
        held: impl Fn(usize) -> Held<'v>,
        types: &Types,
        outside: &mut Outside,
    ) -> Result<Verdict> {
        let mut verdict = Verdict::Wanted;
        for Bound { attribute, missing, test } in &self.0 {
            let held = match held(*attribute) {
                Held::Missing => missing.as_deref().map_or(Held::Null, Held::Plain),
                held => held,
            };
            let is_true = match test {
                Checked::IsNull(wanted) => Some((held == Held::Null) == *wanted),
                Checked::Compare(operator, operand) => {
                    let bytes = match held {
                        Held::Plain(bytes) => Some(bytes),
                        Held::Far(value) => outside.look(value)?,
                        Held::Null | Held::Missing => return Ok(Verdict::NotWanted),
                    };
                    bytes.and_then(|bytes| operand.compare(bytes, types)).map(|order| operator.holds(order))
                }
            };
            match is_true {
                Some(true) => {}
                Some(false) => return Ok(Verdict::NotWanted),
                None => verdict = Verdict::Undecided,
            }
        }
        Ok(verdict)
    }
}

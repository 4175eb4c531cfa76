//! What stands beside the columns of a relation: where a row is, and what is known of it.

use crate::cell::Place;
use crate::relation::Column;
use crate::value::number::unsigned;
use crate::value::Text;

/// Which columns these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing: the rows are to be loaded into a table.
    Nothing,
    /// Where a row is.
    Place,
    /// And its status: there are rows of which it is not known.
    Status,
    /// Which partition of a partitioned table, and where a row is in it.
    PlaceInPartition,
    /// The partition and its status as well.
    StatusInPartition,
    /// The partition and all of it.
    AllInPartition,
    /// Which version of a row it is, and what became of it.
    Version,
    /// All of it, where rows are given that no snapshot sees.
    All,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    Partition,
    Ctid,
    File,
    Block,
    Lp,
    Xmin,
    Xmax,
    Status,
}

impl Fact {
    /// As in a name of a column.
    fn name(self) -> &'static str {
        match self {
            Fact::Partition => "partition",
            Fact::Ctid => "ctid",
            Fact::File => "file",
            Fact::Block => "block",
            Fact::Lp => "lp",
            Fact::Xmin => "xmin",
            Fact::Xmax => "xmax",
            Fact::Status => "status",
        }
    }

    /// Its type, as an oid of PostgreSQL.
    pub(crate) fn oid(self) -> u32 {
        match self {
            Fact::Ctid => 27,
            Fact::Partition | Fact::File | Fact::Status => 25,
            Fact::Lp => 23,
            Fact::Block | Fact::Xmin | Fact::Xmax => 26,
        }
    }
}

impl Beside {
    pub(crate) fn facts(self) -> &'static [Fact] {
        use Fact::{Block, Ctid, File, Lp, Partition, Status, Xmax, Xmin};
        match self {
            Beside::Nothing => &[],
            Beside::Place => &[Ctid],
            Beside::Status => &[Ctid, Status],
            Beside::PlaceInPartition => &[Partition, Ctid],
            Beside::StatusInPartition => &[Partition, Ctid, Status],
            Beside::AllInPartition => &[Partition, Ctid, File, Block, Lp, Xmin, Xmax, Status],
            Beside::Version => &[Ctid, Xmin, Xmax, Status],
            Beside::All => &[Ctid, File, Block, Lp, Xmin, Xmax, Status],
        }
    }

    /// More, where the status is needed.
    pub(crate) fn for_status(self, is_needed: bool) -> Beside {
        match self {
            Beside::Place if is_needed => Beside::Status,
            Beside::PlaceInPartition if is_needed => Beside::StatusInPartition,
            _ => self,
        }
    }

    /// Names that no column of the relation has: where one has such a name, it is preceded by an underscore.
    pub(crate) fn names(self, columns: &[Column]) -> Vec<String> {
        let free = |fact: &Fact| {
            let mut name = fact.name().to_owned();
            while columns.iter().any(|column| column.name == name) {
                name.insert(0, '_');
            }
            name
        };
        self.facts().iter().map(free).collect()
    }
}

/// As a value of type tid.
pub(crate) fn ctid(place: &Place, out: &mut Text) {
    tid_start(place, out);
    tid_end(place, out);
}

/// What the rows of a page have in common.
pub(crate) fn tid_start(place: &Place, out: &mut Text) {
    out.push_str("(");
    let _ = unsigned(place.block.into(), 1, out);
    out.push_str(",");
}

pub(crate) fn tid_end(place: &Place, out: &mut Text) {
    let _ = unsigned(place.lp.into(), 1, out);
    out.push_str(")");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_column_has_is_not_given_twice() {
        let column = |name: &str| Column {
            name: name.into(),
            type_name: "text".into(),
            oid: 25,
            base: 25,
            atttypmod: -1,
            is_known: true,
        };
        let columns = ["status", "_status", "n"].map(column);
        assert_eq!(Beside::Place.names(&columns), ["ctid"]);
        assert_eq!(Beside::Status.names(&columns), ["ctid", "__status"]);
        assert_eq!(Beside::Status.names(&[]), ["ctid", "status"]);
        assert_eq!(Beside::Place.for_status(true), Beside::Status);
        assert_eq!(Beside::All.for_status(true), Beside::All);
        assert_eq!(Beside::PlaceInPartition.for_status(true).names(&[]), ["partition", "ctid", "status"]);
    }
}

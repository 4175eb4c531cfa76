//! Values that are not in a page as they are: packed, stored in a toast table, or younger than their row.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::cell::{Place, Value};
use crate::losses::Losses;
use crate::relation::Relation;
use crate::toast::{Fetched, Toast};
use crate::value::{self, Text};
use crate::varlena::{self, External, Varlena};
use crate::xact::Xacts;
use leadline_errors::Result;

/// A buffer that held a value longer than this is not kept.
const KEPT: usize = 4 << 20;

/// Fetches such values, one at a time, with file handles of its own.
pub(crate) struct Outside {
    relation: Arc<Relation>,
    /// Of each column the value that rows have which are older than it.
    missing: Vec<Option<Vec<u8>>>,
    toast: HashMap<u32, Option<Toast>>,
    value: Vec<u8>,
    text: String,
    /// Values that are not all there, or cannot be unpacked.
    pub lost: u64,
    /// Values of rows that no snapshot sees, which are not all there any more.
    pub vacuumed: u64,
    /// Those that are lost.
    pub losses: Losses,
}

impl Outside {
    pub(crate) fn new(relation: &Arc<Relation>) -> Outside {
        let mut missing = vec![None; relation.columns.len()];
        for (attribute, column) in &relation.attributes {
            if let Some(place) = column.and_then(|column| missing.get_mut(column)) {
                place.clone_from(&attribute.missing);
            }
        }
        Outside {
            missing,
            relation: Arc::clone(relation),
            toast: HashMap::new(),
            value: Vec::new(),
            text: String::new(),
            lost: 0,
            vacuumed: 0,
            losses: Losses::default(),
        }
    }

    pub(crate) fn missing(&self, column: usize) -> Value<'_> {
        self.missing.get(column).and_then(Option::as_deref).map_or(Value::Null, Value::Bytes)
    }

    /// Toast table and block of pages with a wrong checksum that values were taken from.
    pub(crate) fn wrong_checksums(&self) -> BTreeSet<(u32, u32)> {
        let of = |(relid, toast): (&u32, &Option<Toast>)| {
            toast.iter().flat_map(|toast| &toast.wrong_checksums).map(|block| (*relid, *block)).collect::<Vec<_>>()
        };
        self.toast.iter().flat_map(of).collect()
    }

    /// `place` and `column` say whose value it is.
    pub(crate) fn value<'v>(&'v mut self, value: Varlena<'v>, place: &Place, column: usize) -> Result<Value<'v>> {
        if self.value.capacity() > KEPT {
            self.value = Vec::new();
        }
        match value {
            Varlena::Plain(bytes) => Ok(Value::Bytes(bytes)),
            Varlena::Compressed(size, method, packed) => {
                let Some(bytes) = varlena::unpack(size, method, packed) else {
                    self.lost += 1;
                    self.losses.value(place, column, "it cannot be decompressed");
                    let mut text = Text::new();
                    text.push_str("<cannot be decompressed> ");
                    value::hex(packed, &mut text);
                    self.text = text.into_string();
                    return Ok(Value::Lost(&self.text));
                };
                self.value = bytes;
                Ok(Value::Bytes(&self.value))
            }
            Varlena::External(external) => self.fetch(&external, place, column),
        }
    }

    /// The bytes of a value that is only looked at; None when it is lost, which is not counted.
    pub(crate) fn look<'v>(&'v mut self, value: Varlena<'v>) -> Result<Option<&'v [u8]>> {
        match value {
            Varlena::Plain(bytes) => Ok(Some(bytes)),
            Varlena::Compressed(size, method, packed) => {
                let Some(bytes) = varlena::unpack(size, method, packed) else { return Ok(None) };
                self.value = bytes;
                Ok(Some(&self.value))
            }
            Varlena::External(external) => {
                let is_whole = self.fetched(&external)? == Fetched::Whole;
                Ok(is_whole.then_some(&self.value[..]))
            }
        }
    }

    /// Brings a value of a toast table.
    fn fetched(&mut self, external: &External) -> Result<Fetched> {
        let relid = external.va_toastrelid;
        if !self.toast.contains_key(&relid) {
            let (found, dir) = (self.relation.toast(relid)?, &self.relation.dir);
            let toast = found.map(|(heap, places)| Toast::new(heap, places, Xacts::new(dir), dir.checksums));
            self.toast.insert(relid, toast);
        }
        match self.toast.get_mut(&relid) {
            Some(Some(toast)) => toast.fetch(external, &mut self.value),
            _ => Ok(Fetched::Missing),
        }
    }

    fn fetch(&mut self, external: &External, place: &Place, column: usize) -> Result<Value<'_>> {
        let (relid, fetched) = (external.va_toastrelid, self.fetched(external)?);
        if fetched == Fetched::Whole {
            return Ok(Value::Bytes(&self.value));
        }
        let value = format!("value {} of toast table {relid}", external.va_valueid);
        if place.status.is_shown() {
            self.lost += 1;
            let what = match fetched {
                Fetched::Missing => "is missing",
                Fetched::Ambiguous => "has two pieces with the same number",
                _ => "cannot be decompressed",
            };
            self.text = format!("<{value} {what}>");
            self.losses.value(place, column, &format!("{value} {what}"));
        } else {
            // Vacuum takes them first, and may leave the row to a later one.
            self.vacuumed += 1;
            self.text = format!("<{value} was vacuumed away>");
        }
        Ok(Value::Lost(&self.text))
    }
}

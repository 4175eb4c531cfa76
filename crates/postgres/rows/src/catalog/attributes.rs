//! The columns of relations, and that of `pg_attribute` itself, which is known beforehand.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{number, Catalog, Seen, PG_ATTRIBUTE};
use crate::tuple::Storage;
use crate::value;
use leadline_errors::Result;

const LAYOUT: &str = include_str!("../../data/pg_attribute.csv");

/// A column of a relation, dropped ones included.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Attribute {
    pub attname: String,
    pub atttypid: u32,
    pub attnum: i16,
    pub atttypmod: i32,
    pub storage: Storage,
    pub attisdropped: bool,
    /// s: computed when its row is written; v: each time it is read, and null in every row; 0: neither.
    pub attgenerated: u8,
    /// The value of rows that are older than the column.
    pub missing: Option<Vec<u8>>,
    /// p or l: the method values are to be packed with; 0: the one that is the default when they are written.
    pub attcompression: u8,
    /// No row has a null in it.
    pub attnotnull: bool,
}

impl Attribute {
    /// Whether rows keep values of it.
    pub fn is_stored(&self) -> bool {
        !self.attisdropped && self.attgenerated != b'v'
    }
}

impl Catalog {
    /// The columns of some relations, in order.
    ///
    /// # Errors
    /// When the catalog cannot be read or has not all of them.
    pub fn attributes(&mut self, relids: &HashSet<u32>) -> Result<HashMap<u32, Vec<Attribute>>> {
        let mut columns = vec![
            "attrelid",
            "attname",
            "atttypid",
            "attnum",
            "attlen",
            "attalign",
            "attisdropped",
            "atthasmissing",
            "attmissingval",
            "atttypmod",
            "attgenerated",
            "attnotnull",
        ];
        if self.dir.major >= 14 {
            columns.push("attcompression");
        }
        let layout = own_layout(self.dir.major);
        let rows = self.scan(PG_ATTRIBUTE, &layout, &columns, Seen::Visible, |relid| relids.contains(&relid))?;
        // Of one column there are two rows where the status of the older one is not known: the later one counts.
        let mut found: HashMap<u32, BTreeMap<i16, Attribute>> = HashMap::new();
        for row in rows.iter().filter(|row| (number(&row[3]) as i16) > 0) {
            let storage = Storage { attlen: number(&row[4]) as i16, attalign: number(&row[5]) as u8 };
            let missing = row[8].as_deref().filter(|_| number(&row[7]) != 0);
            let attribute = Attribute {
                attname: self.name(&row[1]),
                atttypid: number(&row[2]),
                attnum: number(&row[3]) as i16,
                atttypmod: number(&row[9]) as i32,
                storage,
                attisdropped: number(&row[6]) != 0,
                attgenerated: number(&row[10]) as u8,
                missing: missing.and_then(|b| value::first_element(b, storage)).flatten(),
                attcompression: row.get(12).map_or(0, number) as u8,
                attnotnull: number(&row[11]) as u8 != 0,
            };
            found.entry(number(&row[0])).or_default().insert(attribute.attnum, attribute);
        }
        Ok(relids.iter().map(|relid| (*relid, self.whole(*relid, found.remove(relid).unwrap_or_default()))).collect())
    }
}

pub(super) fn has_all(layout: &[Attribute], columns: &[&str]) -> bool {
    columns.iter().all(|column| layout.iter().any(|a| a.attname == *column && !a.attisdropped))
}

/// The columns of `pg_attribute` itself.
pub(super) fn own_layout(major: u32) -> Vec<Attribute> {
    let row = |line: &str| {
        let mut fields = line.split(',');
        let mut next = || fields.next().unwrap_or_default();
        let (since, until) = (next().parse().ok()?, next().parse().ok()?);
        let attnum = next().parse().ok()?;
        let attname = next().to_owned();
        let atttypid = next().parse().ok()?;
        let storage = Storage { attlen: next().parse().ok()?, attalign: *next().as_bytes().first()? };
        let row = Attribute {
            attname,
            atttypid,
            attnum,
            atttypmod: -1,
            storage,
            attisdropped: false,
            attgenerated: 0,
            missing: None,
            attcompression: 0,
            attnotnull: false,
        };
        (since..=until).contains(&major).then_some(row)
    };
    let mut layout: Vec<Attribute> = LAYOUT.lines().skip(1).filter_map(row).collect();
    layout.sort_by_key(|a| a.attnum);
    layout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_has_every_column_of_every_major_once() {
        for (major, columns) in [(13, 25), (14, 26), (15, 26), (16, 26), (17, 26), (18, 25)] {
            let layout = own_layout(major);
            assert_eq!(layout.len(), columns, "{major}");
            assert!(layout.iter().enumerate().all(|(i, a)| usize::try_from(a.attnum) == Ok(i + 1)), "{major}");
        }
        assert!(own_layout(12).is_empty());
    }
}

//! Invalidation messages: what other sessions must forget. Source: `storage/sinval.h`, 16 bytes each.

use leadline_bytes::{Bytes, Result};

use super::fields::{Reading, Value};

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// `catcache`, `catalog`, `relcache`, `smgr`, `relmap`, `snapshot`, `relsync`, or `unknown`.
    pub kind: &'static str,
    /// Database; 0 for all.
    pub db: u32,
    /// What it is about: the number of the catalog cache, the catalog, the relation, the file; 0 for all relations.
    pub object: u32,
}

const SIZE: usize = 16;

fn parse(bytes: &mut Bytes<'_>) -> Result<Message> {
    let m: [u8; SIZE] = bytes.array("SharedInvalidationMessage")?;
    let word = |at: usize| u32::from_le_bytes([m[at], m[at + 1], m[at + 2], m[at + 3]]);
    Ok(match m[0] as i8 {
        // The word after the database is a hash of the key: it names no object.
        id @ 0.. => Message { kind: "catcache", db: word(4), object: id as u32 },
        -1 => Message { kind: "catalog", db: word(4), object: word(8) },
        -2 => Message { kind: "relcache", db: word(4), object: word(8) },
        -3 => Message { kind: "smgr", db: word(8), object: word(12) },
        -4 => Message { kind: "relmap", db: word(4), object: 0 },
        -5 => Message { kind: "snapshot", db: word(4), object: word(8) },
        -6 => Message { kind: "relsync", db: word(4), object: word(8) },
        _ => Message { kind: "unknown", db: 0, object: 0 },
    })
}

/// So many messages at the beginning of some bytes; fewer when there are fewer.
pub(super) fn parse_all(bytes: &mut Bytes<'_>, count: usize) -> Vec<Message> {
    let count = count.min(bytes.left() / SIZE);
    (0..count).filter_map(|_| parse(bytes).ok()).collect()
}

/// Messages as a field.
pub(super) fn describe(to: &mut Reading<'_>, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    to.align(4);
    to.list("msgs", count, |bytes| {
        let Message { kind, db, object } = parse(bytes)?;
        let fields = vec![
            ("kind", Value::Text(kind.into())),
            ("db", Value::Int(db.into())),
            ("object", Value::Int(object.into())),
        ];
        Ok(Value::Fields(fields))
    })
}

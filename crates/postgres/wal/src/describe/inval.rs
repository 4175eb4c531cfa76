//! Invalidation messages: what other sessions must forget. Source: `storage/sinval.h`, 16 bytes each.

use leadline_bytes::{Bytes, Endian, Result};

use super::fields::{Reading, Value};
use super::main_data::MainData;
use crate::kept::List;
use crate::record::Record;

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

pub(super) const SIZE: usize = 16;

impl Message {
    /// Bytes of one.
    pub const SIZE: usize = SIZE;

    /// The messages that some bytes are, such as those that were read again of a long record.
    pub fn all(bytes: &[u8]) -> Vec<Message> {
        bytes.chunks_exact(SIZE).filter_map(|m| parse(&mut Bytes::new(m, Endian::Little)).ok()).collect()
    }
}

pub(super) fn parse(bytes: &mut Bytes<'_>) -> Result<Message> {
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

/// The messages of a record whose main data has their number after so many bytes.
pub(super) fn after(record: &Record<'_>, bytes: i32) -> List<Message> {
    let mut main = MainData::new(record);
    let count = main.pass("nmsgs", bytes, 1).and_then(|()| main.i32("nmsgs"));
    count.and_then(|count| messages(&mut main, count)).unwrap_or_else(|_| List::none())
}

/// So many messages; fewer when there are fewer.
pub(super) fn messages(main: &mut MainData<'_, '_>, count: i32) -> Result<List<Message>> {
    let most = main.left() / SIZE;
    main.list("msgs", count.max(0).min(most.try_into().unwrap_or(i32::MAX)), SIZE, parse)
}

/// One message as a field.
pub(super) fn value(Message { kind, db, object }: &Message) -> Value {
    Value::Fields(vec![
        ("kind", Value::Text((*kind).into())),
        ("db", Value::Int((*db).into())),
        ("object", Value::Int((*object).into())),
    ])
}

/// Messages as a field.
pub(super) fn describe(to: &mut Reading<'_>, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    to.align(4);
    to.list("msgs", count, |bytes| parse(bytes).map(|message| value(&message)))
}

//! Rows as commands print them: records, changes of a page, invalidation messages; as text for people, or each as a JSON object.
//!
//! WAL has millions of records. To print them costs more than to read them, so this allocates nothing for each of them and
//! leaves the formatting machinery out of what every row has.

mod json;
mod stream;
mod text;
mod write;

pub use stream::{Part, Stream, What};

use std::collections::BTreeMap;

use crate::describe::Message;
use crate::history::Change;
use crate::record::{Block, Record};
use crate::rmgr;
use crate::version::image_info;
use leadline_datadir::Lsn;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One or more lines of at most 80 columns.
    Text,
    /// Objects, one a line, with commas between them.
    Json,
}

/// What is known of all records alike.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    lsn: Lsn,
    end: Lsn,
    prev: Lsn,
    xid: u32,
    type_id: u16,
}

impl Head {
    /// That of a record.
    pub fn of(record: &Record<'_>) -> Head {
        let Record { start, end, prev, xid, .. } = *record;
        Head { lsn: start, end, prev, xid, type_id: rmgr::type_id(record.rmid, record.info) }
    }
}

/// Some invalidation messages of a record, which may have more of them than fit into memory.
#[derive(Debug)]
pub struct Sent<'a> {
    /// The record.
    pub head: Head,
    /// The transaction that it ends, if any, and when.
    pub ended: Option<(u32, i64)>,
    /// These messages.
    pub messages: &'a [Message],
    /// How many of its messages were printed before.
    pub before: usize,
    /// How many it has.
    pub count: usize,
}

/// Collects printed rows.
#[derive(Debug)]
pub struct Printer {
    form: Form,
    major: u8,
    /// Resource manager and kind of each `type_id` met so far.
    names: BTreeMap<u16, (String, String)>,
    out: String,
    line: String,
}

impl Printer {
    /// For records of a server of this major.
    pub fn new(form: Form, major: u8) -> Printer {
        Printer { form, major, names: BTreeMap::new(), out: String::new(), line: String::new() }
    }

    /// Bytes of the rows that were not taken.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Makes room for as many bytes, so that they are not moved as they become more.
    fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes);
    }

    /// The rows since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// Adds a record.
    pub fn record(&mut self, record: &Record<'_>) {
        let (row, names) = self.row(rmgr::type_id(record.rmid, record.info));
        match row {
            Row::Text(mut row) => row.record(record, names),
            Row::Json(mut row) => row.record(record, names),
        }
    }

    /// Adds a change.
    pub fn change(&mut self, change: &Change) {
        let (row, names) = self.row(change.type_id);
        match row {
            Row::Text(mut row) => row.change(change, names),
            Row::Json(mut row) => row.change(change, names),
        }
    }

    /// Adds messages.
    pub fn sent(&mut self, sent: &Sent<'_>) {
        let (row, names) = self.row(sent.head.type_id);
        match row {
            Row::Text(mut row) => row.sent(sent, names),
            Row::Json(mut row) => row.sent(sent, names),
        }
    }

    fn row(&mut self, type_id: u16) -> (Row<'_>, (&str, &str)) {
        let Printer { form, major, names, out, line } = self;
        let (rmgr, kind) = names.entry(type_id).or_insert_with(|| rmgr::type_names(*major, type_id));
        let row = match form {
            Form::Text => Row::Text(text::Row { out, line }),
            Form::Json => Row::Json(json::Row::new(out)),
        };
        (row, (rmgr, kind))
    }
}

enum Row<'a> {
    Text(text::Row<'a>),
    Json(json::Row<'a>),
}

/// The name of a fork; none of those that no server has.
fn fork(block: &Block) -> Option<&'static str> {
    ["main", "fsm", "vm", "init"].get(usize::from(block.fork)).copied()
}

/// What compressed the image of a block; empty for nothing.
fn compression(block: &Block) -> &'static str {
    match block.image_info & image_info::COMPRESSED {
        image_info::PGLZ => "pglz",
        image_info::LZ4 => "lz4",
        image_info::ZSTD => "zstd",
        _ => "",
    }
}

#[cfg(test)]
mod tests;

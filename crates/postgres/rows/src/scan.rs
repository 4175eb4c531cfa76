//! The rows of one relation, read block by block, every value as text.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::beside::Beside;
use crate::cell::{Place, Value};
use crate::cut_off::CutOff;
use crate::decode::{Decoder, RowSink, Unread};
use crate::encoding::Encoding;
use crate::relation::{Column, Relation};
use crate::value::Printer;
use leadline_errors::Result;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Row {
    pub place: Place,
    pub values: Vec<Option<String>>,
}

/// The rows of a relation, from its first block to its last.
pub struct RowScan {
    /// What could not be read so far.
    pub unread: Unread,
    pub(crate) relation: Arc<Relation>,
    pub(crate) dead: bool,
    pub(crate) beside: Beside,
    pub(crate) block: u32,
    decoder: Decoder,
    texts: Texts,
}

impl RowScan {
    /// `path` is a data directory, then `relation` is `[schema.]name` in `database`; or the file of a relation.
    ///
    /// # Errors
    /// When there is no such thing, it is not clear which one is meant, or it cannot be read.
    pub fn open(path: &Path, relation: Option<&str>, database: Option<&str>, dead: bool) -> Result<RowScan> {
        Ok(RowScan::new(Relation::open(path, relation, database)?, dead))
    }

    /// The same, of some columns, in the order given.
    ///
    /// # Errors
    /// As `open`, and when there is no such column.
    pub fn open_columns(
        path: &Path,
        relation: Option<&str>,
        database: Option<&str>,
        dead: bool,
        columns: &[String],
    ) -> Result<RowScan> {
        let mut relation = Relation::open(path, relation, database)?;
        relation.keep(columns)?;
        Ok(RowScan::new(relation, dead))
    }

    pub(crate) fn new(relation: Relation, dead: bool) -> RowScan {
        let relation = Arc::new(relation);
        let texts = Texts::new(&relation);
        RowScan {
            unread: Unread::default().and_end_of(&relation.heap),
            decoder: Decoder::new(&relation, dead),
            relation,
            dead,
            beside: if dead { Beside::All } else { Beside::Place },
            block: 0,
            texts,
        }
    }

    /// schema.name
    pub fn relation(&self) -> &str {
        &self.relation.name
    }

    /// No CHECKPOINT writes what a running server has of it in memory; only when it stops is all of it in the files.
    pub fn is_unlogged(&self) -> bool {
        self.relation.is_unlogged
    }

    /// The encoding of its texts where that is not UTF-8.
    pub fn other_encoding(&self) -> Option<&Encoding> {
        self.relation.types.encoding.as_deref()
    }

    /// Names of the generated columns that are computed when they are read (18 and later): no row keeps a value of them.
    pub fn virtual_columns(&self) -> &[String] {
        &self.relation.virtual_columns
    }

    /// Without the dropped ones and the virtual ones.
    pub fn columns(&self) -> &[Column] {
        &self.relation.columns
    }

    /// What stands beside the columns: more from the first row on whose status is not known.
    pub fn beside(&self) -> Beside {
        self.beside
    }

    /// Names of these.
    pub fn beside_names(&self) -> Vec<String> {
        self.beside.names(&self.relation.columns)
    }

    /// What is wrong with the catalogs that it was found and is read through, one line each.
    pub fn catalog_damage(&self) -> Vec<String> {
        self.relation.damage().lines()
    }

    /// Blocks that it had at its end and has not any more, of a server that ended in order.
    pub fn cut_off(&self) -> CutOff {
        self.relation.cut_off
    }

    /// Whether the server ended in order: all that it had in memory is in the files.
    pub fn is_final(&self) -> bool {
        self.relation.dir.transactions.is_some_and(|about| about.is_final)
    }

    /// Values that are none of their type, printed as their bytes, and labels of enums that the catalog has not.
    pub fn invalid_values(&self) -> u64 {
        self.relation.types.invalid.load(Relaxed)
    }

    /// Blocks read and blocks there are.
    pub fn progress(&self) -> (u32, u32) {
        (self.block, self.relation.heap.blocks)
    }

    /// The file that a block is in.
    pub fn file_of(&self, block: u32) -> PathBuf {
        self.relation.heap.file_of(block)
    }

    /// The rows of the next blocks, as many blocks as give about this many rows or bytes; None at the end.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn next_rows(&mut self, about_rows: usize) -> Result<Option<Vec<Row>>> {
        /// Text that is collected before it is handed over.
        const BYTES: usize = 4 << 20;
        let blocks = self.relation.heap.blocks;
        if self.block >= blocks {
            return Ok(None);
        }
        self.texts.bytes = 0;
        while self.texts.rows.len() < about_rows && self.texts.bytes < BYTES && self.block < blocks {
            self.decoder.blocks(self.block..self.block + 1, &mut self.texts)?;
            self.block += 1;
        }
        self.unread = self.decoder.unread().and_end_of(&self.relation.heap);
        self.beside = self.beside.for_status(self.unread.unknown > 0);
        Ok(Some(std::mem::take(&mut self.texts.rows)))
    }
}

/// Rows as text.
pub(crate) struct Texts {
    relation: Arc<Relation>,
    printers: Vec<Printer>,
    pub rows: Vec<Row>,
    bytes: usize,
}

impl Texts {
    pub(crate) fn new(relation: &Arc<Relation>) -> Texts {
        let printers = relation.columns.iter().map(|c| relation.types.printer(c.oid)).collect();
        Texts { relation: Arc::clone(relation), printers, rows: Vec::new(), bytes: 0 }
    }

    pub(crate) fn text(&self, column: usize, bytes: &[u8]) -> String {
        self.relation.types.text(self.printers[column], bytes)
    }
}

impl RowSink for Texts {
    fn begin(&mut self, place: &Place) {
        self.rows.push(Row { place: *place, values: Vec::with_capacity(self.printers.len()) });
    }

    fn value(&mut self, column: usize, value: Value<'_>) {
        let text = match value {
            Value::Null => None,
            Value::Lost(text) => Some(text.to_owned()),
            Value::Bytes(bytes) => Some(self.text(column, bytes)),
        };
        self.bytes += text.as_ref().map_or(0, String::len);
        if let Some(row) = self.rows.last_mut() {
            row.values.push(text);
        }
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

//! The rows of one relation, read block by block, every value as text.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::beside::Beside;
use crate::cell::{Place, Value};
use crate::cut_off::CutOff;
use crate::decode::{Decoder, RowSink, Unread};
use crate::encoding::Encoding;
use crate::filter::{parse, Filter};
use crate::relation::{Column, Opened, Relation};
use crate::value::Printer;
use leadline_errors::Result;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Row {
    pub place: Place,
    pub values: Vec<Option<String>>,
}

/// Which rows of a relation, and what of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Only these columns, in this order.
    pub columns: Option<&'a [String]>,
    /// Only rows of which this is true: conditions as SQL writes them, joined by AND.
    pub conditions: Option<&'a str>,
    /// Only so many, the first ones.
    pub limit: Option<u64>,
    /// Rows that no snapshot sees too.
    pub dead: bool,
}

/// The rows of a relation, from its first block to its last.
pub struct RowScan {
    /// What could not be read so far.
    pub unread: Unread,
    pub(crate) relation: Arc<Relation>,
    /// What has the rows: the relation, or its partitions.
    parts: Vec<Arc<Relation>>,
    /// Conditions on the rows of each; none where all are given.
    filters: Vec<Option<Arc<Filter>>>,
    is_partitioned: bool,
    /// Partitions whose rows are on another server.
    foreign: Vec<String>,
    /// Partitions whose files are gone.
    lost: Vec<String>,
    /// Partitions of which the catalog has not all columns.
    undefined: Vec<String>,
    /// Which of them is being read.
    part: usize,
    /// Blocks of those before it.
    first: u32,
    /// What could not be read of those.
    before: Unread,
    pub(crate) dead: bool,
    pub(crate) beside: Beside,
    /// Blocks read, of all parts.
    pub(crate) block: u32,
    /// All of it was exported.
    pub(crate) is_done: bool,
    /// How many rows it gives at most.
    pub(crate) limit: Option<u64>,
    decoder: Decoder,
    texts: Texts,
}

impl RowScan {
    /// `path` is a data directory, then `relation` is `[schema.]name` in `database`; or the file of a relation.
    ///
    /// # Errors
    /// When there is no such thing, it is not clear which one is meant, or it cannot be read.
    pub fn open(path: &Path, relation: Option<&str>, database: Option<&str>, dead: bool) -> Result<RowScan> {
        Ok(RowScan::new(Opened::open(path, relation, database)?, dead))
    }

    /// The same, of some rows and columns.
    ///
    /// # Errors
    /// As `open`, and when there is no such column, or the conditions cannot be read or not be tested.
    pub fn open_some(
        path: &Path,
        relation: Option<&str>,
        database: Option<&str>,
        wanted: &Wanted<'_>,
    ) -> Result<RowScan> {
        let conditions = wanted.conditions.map(parse).transpose()?;
        let mut opened = Opened::open(path, relation, database)?;
        let filter = |relation: &Relation| {
            let made = conditions.as_ref().map(|conditions| Filter::new(conditions, relation).map(Arc::new));
            made.transpose()
        };
        // What is wrong with the conditions is said without any partition, too.
        let own = filter(&opened.relation)?;
        let filters = match &opened.partitions {
            Some(partitions) => partitions.iter().map(filter).collect::<Result<_>>()?,
            None => vec![own],
        };
        wanted.columns.map_or(Ok(()), |columns| opened.keep(columns))?;
        let mut scan = RowScan::new(opened, wanted.dead);
        (scan.filters, scan.limit) = (filters, wanted.limit);
        scan.decoder = scan.decoder.choosing(scan.filters.first().cloned().flatten(), wanted.limit);
        Ok(scan)
    }

    pub(crate) fn new(opened: Opened, dead: bool) -> RowScan {
        let Opened { relation, partitions, foreign, lost, undefined } = opened;
        let relation = Arc::new(relation);
        let texts = Texts::new(&relation);
        let beside = match (dead, &partitions) {
            (false, None) => Beside::Place,
            (true, None) => Beside::All,
            (false, Some(_)) => Beside::PlaceInPartition,
            (true, Some(_)) => Beside::AllInPartition,
        };
        let is_partitioned = partitions.is_some();
        let own = || vec![Arc::clone(&relation)];
        let parts: Vec<Arc<Relation>> =
            partitions.map_or_else(own, |partitions| partitions.into_iter().map(Arc::new).collect());
        let mut scan = RowScan {
            unread: Unread::default(),
            decoder: Decoder::new(parts.first().unwrap_or(&relation), dead),
            relation,
            parts,
            filters: Vec::new(),
            is_partitioned,
            foreign,
            lost,
            undefined,
            part: 0,
            first: 0,
            before: Unread::default(),
            dead,
            beside,
            block: 0,
            is_done: false,
            limit: None,
            texts,
        };
        scan.tell();
        scan
    }

    /// What has the rows: the relation, or its partitions.
    pub(crate) fn parts(&self) -> &[Arc<Relation>] {
        &self.parts
    }

    /// Which rows of a part are given.
    pub(crate) fn filter(&self, part: usize) -> Option<Arc<Filter>> {
        self.filters.get(part).cloned().flatten()
    }

    /// That of the rows that came last.
    pub(crate) fn current(&self) -> &Relation {
        self.parts.get(self.part).unwrap_or(&self.relation)
    }

    /// What could not be read of a part, with what is known of it from the first.
    pub(crate) fn told_of(&self, part: &Relation, unread: Unread) -> Unread {
        let unread = unread.and_end_of(&part.heap);
        if self.is_partitioned {
            unread.of_partition(&part.name)
        } else {
            unread
        }
    }

    fn tell(&mut self) {
        let now = self.told_of(self.current(), self.decoder.unread());
        self.unread.clone_from(&self.before);
        self.unread.add(&now);
    }

    /// Goes on to the next partition; false when there is none.
    fn next_part(&mut self) -> bool {
        let Some(next) = self.parts.get(self.part + 1) else { return false };
        let decoder = Decoder::new(next, self.dead).choosing(self.filter(self.part + 1), self.decoder.left());
        self.first = self.first.saturating_add(self.current().heap.blocks);
        self.before.clone_from(&self.unread);
        self.decoder = decoder;
        self.part += 1;
        self.tell();
        true
    }

    /// schema.name
    pub fn relation(&self) -> &str {
        &self.relation.name
    }

    /// No CHECKPOINT writes what a running server has of it in memory; only when it stops is all of it in the files.
    pub fn is_unlogged(&self) -> bool {
        self.parts.iter().any(|part| part.is_unlogged)
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
        let all = self.parts.iter().map(|part| part.cut_off).filter(|cut_off| cut_off.blocks > 0);
        all.reduce(|all, one| CutOff { blocks: all.blocks.saturating_add(one.blocks), by: all.by }).unwrap_or_default()
    }

    /// Names of the partitions of a partitioned table that are foreign tables: another server has their rows.
    pub fn foreign_partitions(&self) -> &[String] {
        &self.foreign
    }

    /// Names of the partitions whose files are gone.
    pub fn lost_partitions(&self) -> &[String] {
        &self.lost
    }

    /// Names of the partitions of which the catalog has not all columns.
    pub fn undefined_partitions(&self) -> &[String] {
        &self.undefined
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
        (self.block, self.parts.iter().fold(0, |all, part| all.saturating_add(part.heap.blocks)))
    }

    /// The file that a block is in, of the rows that came last.
    pub fn file_of(&self, block: u32) -> PathBuf {
        self.current().heap.file_of(block)
    }

    /// The rows of the next blocks, as many blocks as give about this many rows or bytes, all of one partition; None at the end.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn next_rows(&mut self, about_rows: usize) -> Result<Option<Vec<Row>>> {
        /// Text that is collected before it is handed over.
        const BYTES: usize = 4 << 20;
        if self.is_done || self.decoder.end().is_some() {
            return Ok(None);
        }
        while self.block - self.first >= self.current().heap.blocks {
            if !self.next_part() {
                return Ok(None);
            }
        }
        let blocks = self.first.saturating_add(self.current().heap.blocks);
        self.texts.bytes = 0;
        let more = |texts: &Texts| texts.rows.len() < about_rows && texts.bytes < BYTES;
        while more(&self.texts) && self.block < blocks && self.decoder.end().is_none() {
            let at = self.block - self.first;
            self.decoder.blocks(at..at + 1, &mut self.texts)?;
            self.block += 1;
        }
        self.tell();
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

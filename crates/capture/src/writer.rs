//! One stored table of a capture: batches in, whole Parquet segments out.
//!
//! Rows are encoded in memory and reach the disk when their segment is finished: written under a `.tmp` name, then
//! renamed. So a killed process leaves whole segments and at most one file that readers do not look at.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::errors::ParquetError;

use crate::error::{Error, StorageOp};
use crate::rename::rename_new;
use crate::segment::Segment;
use crate::spec::{spec, Kind, TableSpec};

/// How segments are written.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Force each segment to disk before it gets its name: also whole after a power cut, at the price of the sync.
    pub fsync: bool,
    /// zstd for tables that have more than integers. What comes in small segments every few seconds is better without:
    /// to set up the compression of a column costs more than to write it.
    pub compress: bool,
    /// A segment grows until its file has this many bytes: each time rows are rolled, its file is replaced in one step by one with the
    /// rows before and the new ones, but not more often than `MOST_ROLLS`. A long recording then has few files. 0: each roll makes a
    /// segment of its own.
    pub grow_to: usize,
}

impl WriterOptions {
    /// What a growing segment may cost: the bytes before are written again each time.
    const GROWN: usize = 2 << 20;

    /// Each roll adds a row group, whose description is written again with each later one: the CPU for that grows with the square of
    /// their number.
    const MOST_ROLLS: u32 = 40;

    /// With segments that grow, or without.
    pub fn growing(self, growing: bool) -> Self {
        WriterOptions { grow_to: if growing { Self::GROWN } else { 0 }, ..self }
    }
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions { fsync: false, compress: true, grow_to: 0 }
    }
}

/// What a writer has put on disk so far. Rows of an unfinished segment are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Rows in finished segments.
    pub rows: u64,
    /// Size of the finished segments, bytes.
    pub bytes: u64,
    /// Finished segments.
    pub segments: u64,
}

/// Writes the rows of one stored table into a capture folder.
///
/// Dropping a writer drops the rows of its unfinished segment: call [`TableWriter::close`].
pub struct TableWriter {
    spec: &'static TableSpec,
    schema: SchemaRef,
    folder: PathBuf,
    options: WriterOptions,
    /// No segment from this number on existed when last looked at.
    next_number: u32,
    segment: Segment,
    /// Rows in `segment` that are not on disk yet.
    rows: u64,
    /// The file of a segment that still grows: its number and size.
    growing: Option<(u32, u64)>,
    /// How often that one was rolled.
    rolls: u32,
    /// The last file's bytes, kept for their memory.
    file: Vec<u8>,
    stats: Stats,
}

impl TableWriter {
    /// Opens a table of a capture for writing; makes its folder. Segments that exist stay, numbers go on after them.
    ///
    /// # Errors
    /// [`Error::UnknownTable`] for a name that is not a stored table; [`Error::Storage`].
    pub fn create(capture_dir: &Path, table: &str, options: WriterOptions) -> Result<TableWriter, Error> {
        let spec = match spec(table) {
            Some(found) if found.kind == Kind::Table => found,
            other => return Err(Error::UnknownTable { table: table.to_owned(), is_view: other.is_some() }),
        };
        let folder = capture_dir.join(spec.name);
        fs::create_dir_all(&folder).map_err(|e| storage(&folder, StorageOp::CreateFolder, e))?;
        let next_number = highest_number(&folder)? + 1;
        let segment = Segment::new(spec, options.compress).map_err(|e| encode_error(spec, &e))?;
        Ok(TableWriter {
            spec,
            schema: spec.schema(),
            folder,
            options,
            next_number,
            segment,
            rows: 0,
            growing: None,
            rolls: 0,
            file: Vec::new(),
            stats: Stats::default(),
        })
    }

    /// The table this writes.
    pub fn spec(&self) -> &'static TableSpec {
        self.spec
    }

    /// Adds rows to the present segment; opens one when there is none.
    ///
    /// # Errors
    /// [`Error::Schema`] unless the batch has exactly the columns of the table (the segment stays as it was);
    /// [`Error::Encode`] (the present segment is lost).
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.check_schema(batch)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if let Err(e) = self.segment.write(batch) {
            self.forget();
            return Err(encode_error(self.spec, &e));
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// What is in memory is lost, what is on disk stays.
    fn forget(&mut self) {
        self.segment.clear();
        (self.rows, self.rolls, self.growing) = (0, 0, None);
    }

    /// Puts the rows on disk, in a segment that may grow: when this returns, its rows are in a file under its final name. No rows, no file.
    ///
    /// # Errors
    /// [`Error::Storage`] or [`Error::Encode`]: the rows of this segment are lost, earlier segments are untouched, no
    /// half file is left, and the writer can be used again.
    pub fn roll(&mut self) -> Result<(), Error> {
        if self.rows == 0 {
            return Ok(());
        }
        self.put(self.options.grow_to > 0)
    }

    /// As `roll`, and the segment grows no more.
    ///
    /// # Errors
    /// As [`TableWriter::roll`].
    pub fn end_segment(&mut self) -> Result<(), Error> {
        if self.rows == 0 && self.growing.is_none() {
            return Ok(());
        }
        self.put(false)
    }

    fn put(&mut self, grows: bool) -> Result<(), Error> {
        let mut file = std::mem::take(&mut self.file);
        file.clear();
        let made = if grows { self.segment.snapshot(&mut file) } else { self.segment.finish(&mut file) };
        let made = made.map_err(|e| encode_error(self.spec, &e));
        let outcome = made.and_then(|()| self.store(&file));
        let bytes = file.len() as u64;
        self.rolls += 1;
        let is_full = file.len() >= self.options.grow_to || self.rolls >= WriterOptions::MOST_ROLLS;
        self.file = file;
        let number = match outcome {
            Ok(number) => number,
            Err(e) => {
                self.forget();
                return Err(e);
            }
        };
        self.stats.rows += std::mem::take(&mut self.rows);
        match self.growing.take() {
            Some((_, before)) => self.stats.bytes = self.stats.bytes - before + bytes,
            None => (self.stats.bytes, self.stats.segments) = (self.stats.bytes + bytes, self.stats.segments + 1),
        }
        if grows && !is_full {
            self.growing = Some((number, bytes));
        } else {
            self.segment.clear();
            self.rolls = 0;
        }
        Ok(())
    }

    /// What is on disk.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Finishes the present segment and gives the final figures.
    ///
    /// # Errors
    /// As [`TableWriter::roll`].
    pub fn close(mut self) -> Result<Stats, Error> {
        self.end_segment()?;
        Ok(self.stats)
    }

    /// Puts a whole segment on disk: in place of the one that grows, else under the next free number. Gives its number.
    fn store(&mut self, content: &[u8]) -> Result<u32, Error> {
        // A name of its own until it is whole: another writer of this table may be at the same number, also in this process.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let unique = format!("{}-{}.parquet.tmp", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let temporary = self.folder.join(unique);
        let outcome = self.write_file(&temporary, content).and_then(|()| match self.growing {
            Some((number, _)) => {
                let path = self.segment_path(number);
                fs::rename(&temporary, &path).map_err(|e| storage(&path, StorageOp::Rename, e)).map(|()| number)
            }
            None => self.name_it(&temporary),
        });
        if outcome.is_err() {
            // The first error is the one to tell; a file that cannot be removed has a name no reader looks at.
            let _ = fs::remove_file(&temporary);
        }
        outcome
    }

    fn write_file(&self, temporary: &Path, content: &[u8]) -> Result<(), Error> {
        let mut file = File::create(temporary).map_err(|e| storage(temporary, StorageOp::Create, e))?;
        file.write_all(content).map_err(|e| storage(temporary, StorageOp::Write, e))?;
        if self.options.fsync {
            file.sync_all().map_err(|e| storage(temporary, StorageOp::Sync, e))?;
        }
        Ok(())
    }

    /// Gives a whole file the next number that no other writer of the table took.
    fn name_it(&mut self, temporary: &Path) -> Result<u32, Error> {
        let number = loop {
            let number = self.next_number;
            let path = self.segment_path(number);
            self.next_number += 1;
            match rename_new(temporary, &path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {} // its rows are evidence as well
                outcome => {
                    outcome.map_err(|e| storage(&path, StorageOp::Rename, e))?;
                    break number;
                }
            }
        };
        if self.options.fsync {
            let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
            folder.map_err(|e| storage(&self.folder, StorageOp::Sync, e))?;
        }
        Ok(number)
    }

    fn segment_path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number:06}.parquet"))
    }

    fn check_schema(&self, batch: &RecordBatch) -> Result<(), Error> {
        let found = batch.schema_ref();
        if std::sync::Arc::ptr_eq(found, &self.schema) || found.fields() == self.schema.fields() {
            return Ok(());
        }
        let (want, have) = (self.schema.fields(), found.fields());
        let differs = want.iter().zip(have).find(|(w, h)| w != h);
        let detail = match differs {
            Some((w, h)) => format!("expected column {w}, got {h}"),
            None => format!("expected {} columns, got {}", want.len(), have.len()),
        };
        Err(Error::Schema { table: self.spec.name, detail })
    }
}

fn encode_error(spec: &'static TableSpec, e: &ParquetError) -> Error {
    Error::Encode { table: spec.name, detail: e.to_string() }
}

/// The highest segment number in a folder; 0 when there is none.
fn highest_number(folder: &Path) -> Result<u32, Error> {
    let mut highest = 0;
    for entry in fs::read_dir(folder).map_err(|e| storage(folder, StorageOp::List, e))? {
        let name = entry.map_err(|e| storage(folder, StorageOp::List, e))?.file_name();
        let number = name.to_str().and_then(|n| n.strip_suffix(".parquet")).and_then(|n| n.parse().ok());
        highest = highest.max(number.unwrap_or(0));
    }
    Ok(highest)
}

fn storage(path: &Path, op: StorageOp, source: io::Error) -> Error {
    Error::Storage { path: path.to_owned(), op, source }
}

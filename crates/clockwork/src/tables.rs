//! The open tables of one writer of a capture.

use arrow_array::{ArrayRef, RecordBatch};
use leadline_capture::{BatchBuilder, Error, Stats, TableWriter, Value, WriterOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Values of one row in the order of the columns.
pub type Row<'a> = Vec<Value<'a>>;

#[derive(Debug, Clone, PartialEq)]
enum Owned {
    Int(Option<i64>),
    Text(String),
    Truth(bool),
}

impl Owned {
    fn value(&self) -> Value<'_> {
        match self {
            Owned::Int(v) => v.map_or(Value::Null, Value::Int),
            Owned::Text(v) => Value::Text(v),
            Owned::Truth(v) => Value::Bool(*v),
        }
    }
}

/// A row that holds its own texts, put together value by value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnedRow(Vec<Owned>);

impl OwnedRow {
    /// The next value is an integer.
    pub fn int(&mut self, value: impl Into<i64>) -> &mut Self {
        self.maybe(Some(value.into()))
    }

    /// The next value is an integer, or null.
    pub fn maybe(&mut self, value: Option<i64>) -> &mut Self {
        self.0.push(Owned::Int(value));
        self
    }

    /// The next value is a text.
    pub fn text(&mut self, value: impl Into<String>) -> &mut Self {
        self.0.push(Owned::Text(value.into()));
        self
    }

    /// The next value is true or false.
    pub fn truth(&mut self, value: bool) -> &mut Self {
        self.0.push(Owned::Truth(value));
        self
    }

    /// The row in the order of the columns.
    pub fn row(&self) -> Row<'_> {
        self.0.iter().map(Owned::value).collect()
    }
}

/// Rows wait for so many others before they are encoded: every batch has a cost of its own, for each column.
const BATCH_ROWS: usize = 4096;

/// A table that has rows.
struct Open {
    writer: TableWriter,
    /// Rows of the present segment that are not in the writer yet.
    waiting: BatchBuilder,
}

impl Open {
    fn encode_waiting(&mut self) -> Result<(), Error> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let batch = self.waiting.finish()?;
        self.writer.write(&batch)
    }
}

/// Tables, each opened when its first row comes.
pub struct OpenTables {
    capture_dir: PathBuf,
    tables: BTreeMap<&'static str, Open>,
    growing: bool,
}

impl OpenTables {
    /// Of a capture folder.
    pub fn new(capture_dir: &Path) -> Self {
        OpenTables { capture_dir: capture_dir.to_owned(), tables: BTreeMap::new(), growing: false }
    }

    /// Whether a segment grows from roll to roll, so that a long recording has few files. Not where a reader takes them away.
    pub fn growing(self, growing: bool) -> Self {
        OpenTables { growing, ..self }
    }

    fn open(&mut self, table: &'static str) -> Result<&mut Open, Error> {
        if !self.tables.contains_key(table) {
            let options = WriterOptions { compress: false, ..WriterOptions::default() }.growing(self.growing);
            let writer = TableWriter::create(&self.capture_dir, table, options)?;
            let waiting = BatchBuilder::new(writer.spec());
            self.tables.insert(table, Open { writer, waiting });
        }
        self.tables.get_mut(table).ok_or(Error::UnknownTable { table: table.into(), is_view: false })
    }

    /// Writes a batch given as columns.
    pub fn write_columns(&mut self, table: &'static str, columns: Vec<ArrayRef>) -> Result<(), Error> {
        let open = self.open(table)?;
        open.encode_waiting()?;
        let batch = RecordBatch::try_new(open.writer.spec().schema(), columns)
            .map_err(|e| Error::Schema { table, detail: e.to_string() })?;
        open.writer.write(&batch)
    }

    /// Writes rows; no rows, no table.
    pub fn write_rows<'a>(
        &mut self,
        table: &'static str,
        rows: impl IntoIterator<Item = Row<'a>>,
    ) -> Result<(), Error> {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let open = self.open(table)?;
        for row in rows {
            open.waiting.append(&row)?;
            if open.waiting.len() >= BATCH_ROWS {
                open.encode_waiting()?;
            }
        }
        Ok(())
    }

    /// Puts the rows of every table on disk.
    pub fn roll(&mut self) -> Result<(), Error> {
        self.tables.values_mut().try_for_each(|open| {
            open.encode_waiting()?;
            open.writer.roll()
        })
    }

    /// The same, at the end: no segment grows any more.
    pub fn end(&mut self) -> Result<(), Error> {
        self.tables.values_mut().try_for_each(|open| {
            open.encode_waiting()?;
            open.writer.end_segment()
        })
    }

    /// Rows, bytes and segments on disk, by table.
    pub fn stats(&self) -> BTreeMap<&'static str, Stats> {
        self.tables.iter().map(|(name, open)| (*name, open.writer.stats())).collect()
    }
}

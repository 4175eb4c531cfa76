//! The open tables of one writer of a capture.

use arrow_array::{ArrayRef, RecordBatch};
use leadline_capture::{spec, BatchBuilder, Error, Stats, TableWriter, Value, WriterOptions};
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

/// Tables, each opened when its first row comes.
pub struct OpenTables {
    capture_dir: PathBuf,
    writers: BTreeMap<&'static str, TableWriter>,
}

impl OpenTables {
    /// Of a capture folder.
    pub fn new(capture_dir: &Path) -> Self {
        OpenTables { capture_dir: capture_dir.to_owned(), writers: BTreeMap::new() }
    }

    fn writer(&mut self, table: &'static str) -> Result<&mut TableWriter, Error> {
        if !self.writers.contains_key(table) {
            let options = WriterOptions { compress: false, ..WriterOptions::default() };
            self.writers.insert(table, TableWriter::create(&self.capture_dir, table, options)?);
        }
        self.writers.get_mut(table).ok_or(Error::UnknownTable { table: table.into(), is_view: false })
    }

    /// Writes a batch given as columns.
    pub fn write_columns(&mut self, table: &'static str, columns: Vec<ArrayRef>) -> Result<(), Error> {
        let writer = self.writer(table)?;
        let batch = RecordBatch::try_new(writer.spec().schema(), columns)
            .map_err(|e| Error::Schema { table, detail: e.to_string() })?;
        writer.write(&batch)
    }

    /// Writes rows; no rows, no table.
    pub fn write_rows<'a>(
        &mut self,
        table: &'static str,
        rows: impl IntoIterator<Item = Row<'a>>,
    ) -> Result<(), Error> {
        let spec = spec(table).ok_or(Error::UnknownTable { table: table.into(), is_view: false })?;
        let mut builder = BatchBuilder::new(spec);
        for row in rows {
            builder.append(&row)?;
        }
        if builder.is_empty() {
            return Ok(());
        }
        let batch = builder.finish()?;
        self.writer(table)?.write(&batch)
    }

    /// Finishes the present segment of every table.
    pub fn roll(&mut self) -> Result<(), Error> {
        self.writers.values_mut().try_for_each(TableWriter::roll)
    }

    /// Rows, bytes and segments on disk, by table.
    pub fn stats(&self) -> BTreeMap<&'static str, Stats> {
        self.writers.iter().map(|(name, writer)| (*name, writer.stats())).collect()
    }
}

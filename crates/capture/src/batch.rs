//! Rows of a rare table to an Arrow batch, one value at a time, checked against the table's columns.
//!
//! For tables of thousands of rows. The hot tables fill Arrow buffers of their own.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, StringBuilder, UInt32Builder};
use arrow_array::{ArrayRef, RecordBatch};

use crate::error::Error;
use crate::spec::{ColumnSpec, ColumnType, TableSpec};

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value; only where the column is nullable.
    Null,
    /// For `int32`, `int64` and `uint32` columns, within their range, and for `float64` columns.
    Int(i64),
    /// For `float64` columns.
    Float(f64),
    /// For `string` columns.
    Text(&'a str),
    /// For `bool` columns.
    Bool(bool),
}

enum Column {
    Int32(Int32Builder),
    Int64(Int64Builder),
    UInt32(UInt32Builder),
    Float64(Float64Builder),
    String(StringBuilder),
    Bool(BooleanBuilder),
}

/// Collects rows of one table. A row that does not fit leaves no trace.
pub struct BatchBuilder {
    spec: &'static TableSpec,
    columns: Vec<Column>,
    rows: usize,
}

impl BatchBuilder {
    /// An empty batch of this table.
    pub fn new(spec: &'static TableSpec) -> BatchBuilder {
        let columns = spec.columns.iter().map(|c| Column::new(c.column_type)).collect();
        BatchBuilder { spec, columns, rows: 0 }
    }

    /// Rows collected so far.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row was collected.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row: the values in the order of the columns.
    ///
    /// # Errors
    /// [`Error::Row`] with `row` = [`BatchBuilder::len`] when a value does not fit or there are too many or too few.
    pub fn append(&mut self, row: &[Value<'_>]) -> Result<(), Error> {
        if row.len() != self.columns.len() {
            let detail = format!("{} values are wanted, {} were given", self.columns.len(), row.len());
            return Err(self.row_error("", detail));
        }
        // All checks come before the first append: the columns must never differ in length.
        for (column, value) in self.spec.columns.iter().zip(row) {
            check(column, value).map_err(|detail| self.row_error(column.name, detail))?;
        }
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.append(value);
        }
        self.rows += 1;
        Ok(())
    }

    /// The rows collected, as a batch; the builder is empty again.
    ///
    /// # Errors
    /// [`Error::Schema`] should Arrow refuse the columns.
    pub fn finish(&mut self) -> Result<RecordBatch, Error> {
        let arrays = self.columns.iter_mut().map(Column::finish).collect();
        self.rows = 0;
        RecordBatch::try_new(self.spec.schema(), arrays)
            .map_err(|e| Error::Schema { table: self.spec.name, detail: e.to_string() })
    }

    fn row_error(&self, column: &'static str, detail: String) -> Error {
        Error::Row { table: self.spec.name, column, row: self.rows, detail }
    }
}

/// Why a value does not fit a column.
fn check(column: &ColumnSpec, value: &Value<'_>) -> Result<(), String> {
    let wanted = column.column_type;
    let fits = match (wanted, value) {
        (_, Value::Null) if column.nullable => true,
        (_, Value::Null) => return Err("no value, but the column is not nullable".into()),
        (ColumnType::Int32, Value::Int(v)) if i32::try_from(*v).is_err() => {
            return Err(format!("{v} is outside of int32"))
        }
        (ColumnType::UInt32, Value::Int(v)) if u32::try_from(*v).is_err() => {
            return Err(format!("{v} is outside of uint32"))
        }
        (ColumnType::Int32 | ColumnType::Int64 | ColumnType::UInt32, Value::Int(_)) => true,
        (ColumnType::Float64, Value::Int(_) | Value::Float(_)) => true,
        (ColumnType::String, Value::Text(_)) | (ColumnType::Bool, Value::Bool(_)) => true,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let found = match value {
        Value::Null => "nothing",
        Value::Int(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Text(_) => "a string",
        Value::Bool(_) => "a bool",
    };
    Err(format!("{wanted} is wanted, {found} was given"))
}

impl Column {
    fn new(column_type: ColumnType) -> Column {
        match column_type {
            ColumnType::Int32 => Column::Int32(Int32Builder::new()),
            ColumnType::Int64 => Column::Int64(Int64Builder::new()),
            ColumnType::UInt32 => Column::UInt32(UInt32Builder::new()),
            ColumnType::Float64 => Column::Float64(Float64Builder::new()),
            ColumnType::String => Column::String(StringBuilder::new()),
            ColumnType::Bool => Column::Bool(BooleanBuilder::new()),
        }
    }

    /// Appends a value that [`check`] has let through.
    fn append(&mut self, value: &Value<'_>) {
        match (self, value) {
            (Column::Int32(b), Value::Int(v)) => b.append_value(*v as i32),
            (Column::Int64(b), Value::Int(v)) => b.append_value(*v),
            (Column::UInt32(b), Value::Int(v)) => b.append_value(*v as u32),
            (Column::Float64(b), Value::Int(v)) => b.append_value(*v as f64),
            (Column::Float64(b), Value::Float(v)) => b.append_value(*v),
            (Column::String(b), Value::Text(v)) => b.append_value(v),
            (Column::Bool(b), Value::Bool(v)) => b.append_value(*v),
            (Column::Int32(b), _) => b.append_null(),
            (Column::Int64(b), _) => b.append_null(),
            (Column::UInt32(b), _) => b.append_null(),
            (Column::Float64(b), _) => b.append_null(),
            (Column::String(b), _) => b.append_null(),
            (Column::Bool(b), _) => b.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Column::Int32(b) => Arc::new(b.finish()),
            Column::Int64(b) => Arc::new(b.finish()),
            Column::UInt32(b) => Arc::new(b.finish()),
            Column::Float64(b) => Arc::new(b.finish()),
            Column::String(b) => Arc::new(b.finish()),
            Column::Bool(b) => Arc::new(b.finish()),
        }
    }
}

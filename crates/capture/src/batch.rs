//! Rows of a rare table to an Arrow batch, one value at a time, checked against the table's columns.
//!
//! For tables of thousands of rows. The hot tables fill Arrow buffers of their own.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, Float64Builder, Int32Builder};
use arrow_array::builder::{Int64Builder, StringBuilder, UInt32Builder, UInt64Builder};
use arrow_array::{ArrayRef, ListArray, RecordBatch};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};

use crate::error::Error;
use crate::spec::{ColumnType, TableSpec};

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value; only where the column is nullable.
    Null,
    /// For integer columns, within their range, and for `float64` columns.
    Int(i64),
    /// For `uint64` columns.
    UInt(u64),
    /// For `float64` columns.
    Float(f64),
    /// For `string` columns.
    Text(&'a str),
    /// For `binary` columns.
    Bytes(&'a [u8]),
    /// For `bool` columns.
    Bool(bool),
    /// For `list<...>` columns: values of the list's type, none of them null.
    List(&'a [Value<'a>]),
}

enum Column {
    Int32(Int32Builder),
    Int64(Int64Builder),
    UInt32(UInt32Builder),
    UInt64(UInt64Builder),
    Float64(Float64Builder),
    String(StringBuilder),
    Binary(BinaryBuilder),
    Bool(BooleanBuilder),
    List(Box<ListColumn>),
}

/// The values of all lists one behind the other, the length of each, and whether it is there.
struct ListColumn {
    item: Column,
    item_type: DataType,
    lengths: Vec<usize>,
    present: Vec<bool>,
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
            let detail = format!("expected {} values, got {}", self.columns.len(), row.len());
            return Err(self.row_error("", detail));
        }
        // All checks come before the first append: the columns must never differ in length.
        for (column, value) in self.spec.columns.iter().zip(row) {
            check(column.column_type, column.nullable, value).map_err(|detail| self.row_error(column.name, detail))?;
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
fn check(wanted: ColumnType, nullable: bool, value: &Value<'_>) -> Result<(), String> {
    let fits = match (wanted, value) {
        (_, Value::Null) if nullable => true,
        (_, Value::Null) => return Err("null value in a column that is not nullable".into()),
        (ColumnType::List(item), Value::List(values)) => {
            return values.iter().try_for_each(|value| check(*item, false, value));
        }
        (ColumnType::Int32, Value::Int(v)) if i32::try_from(*v).is_err() => {
            return Err(format!("{v} is out of range for int32"))
        }
        (ColumnType::UInt32, Value::Int(v)) if u32::try_from(*v).is_err() => {
            return Err(format!("{v} is out of range for uint32"))
        }
        (ColumnType::Int32 | ColumnType::UInt32 | ColumnType::Int64, Value::UInt(v)) => {
            return Err(format!("{v} is out of range for {wanted}"))
        }
        (ColumnType::UInt64, Value::Int(v)) if *v < 0 => return Err(format!("{v} is out of range for uint64")),
        (ColumnType::UInt64, Value::Int(_) | Value::UInt(_)) => true,
        (ColumnType::Int32 | ColumnType::Int64 | ColumnType::UInt32, Value::Int(_)) => true,
        (ColumnType::Float64, Value::Int(_) | Value::Float(_)) => true,
        (ColumnType::String, Value::Text(_)) | (ColumnType::Bool, Value::Bool(_)) => true,
        (ColumnType::Binary, Value::Bytes(_)) => true,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let found = match value {
        Value::Null => "nothing",
        Value::Int(_) | Value::UInt(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Text(_) => "a string",
        Value::Bytes(_) => "bytes",
        Value::Bool(_) => "a bool",
        Value::List(_) => "a list",
    };
    Err(format!("expected {wanted}, got {found}"))
}

impl Column {
    fn new(column_type: ColumnType) -> Column {
        match column_type {
            ColumnType::Int32 => Column::Int32(Int32Builder::new()),
            ColumnType::Int64 => Column::Int64(Int64Builder::new()),
            ColumnType::UInt32 => Column::UInt32(UInt32Builder::new()),
            ColumnType::UInt64 => Column::UInt64(UInt64Builder::new()),
            ColumnType::Float64 => Column::Float64(Float64Builder::new()),
            ColumnType::String => Column::String(StringBuilder::new()),
            ColumnType::Binary => Column::Binary(BinaryBuilder::new()),
            ColumnType::Bool => Column::Bool(BooleanBuilder::new()),
            ColumnType::List(item) => Column::List(Box::new(ListColumn {
                item: Column::new(*item),
                item_type: item.data_type(),
                lengths: Vec::new(),
                present: Vec::new(),
            })),
        }
    }

    /// Appends a value that [`check`] has let through.
    fn append(&mut self, value: &Value<'_>) {
        match (self, value) {
            (Column::Int32(b), Value::Int(v)) => b.append_value(*v as i32),
            (Column::Int64(b), Value::Int(v)) => b.append_value(*v),
            (Column::UInt32(b), Value::Int(v)) => b.append_value(*v as u32),
            (Column::UInt64(b), Value::Int(v)) => b.append_value(*v as u64),
            (Column::UInt64(b), Value::UInt(v)) => b.append_value(*v),
            (Column::Float64(b), Value::Int(v)) => b.append_value(*v as f64),
            (Column::Float64(b), Value::Float(v)) => b.append_value(*v),
            (Column::String(b), Value::Text(v)) => b.append_value(v),
            (Column::Binary(b), Value::Bytes(v)) => b.append_value(v),
            (Column::Bool(b), Value::Bool(v)) => b.append_value(*v),
            (Column::List(list), Value::List(values)) => {
                list.lengths.push(values.len());
                list.present.push(true);
                values.iter().for_each(|value| list.item.append(value));
            }
            (Column::Int32(b), _) => b.append_null(),
            (Column::Int64(b), _) => b.append_null(),
            (Column::UInt32(b), _) => b.append_null(),
            (Column::Float64(b), _) => b.append_null(),
            (Column::String(b), _) => b.append_null(),
            (Column::UInt64(b), _) => b.append_null(),
            (Column::Binary(b), _) => b.append_null(),
            (Column::Bool(b), _) => b.append_null(),
            (Column::List(list), _) => {
                list.lengths.push(0);
                list.present.push(false);
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Column::Int32(b) => Arc::new(b.finish()),
            Column::Int64(b) => Arc::new(b.finish()),
            Column::UInt32(b) => Arc::new(b.finish()),
            Column::Float64(b) => Arc::new(b.finish()),
            Column::String(b) => Arc::new(b.finish()),
            Column::UInt64(b) => Arc::new(b.finish()),
            Column::Binary(b) => Arc::new(b.finish()),
            Column::Bool(b) => Arc::new(b.finish()),
            Column::List(list) => {
                let offsets = OffsetBuffer::from_lengths(list.lengths.drain(..));
                let present = NullBuffer::from_iter(list.present.drain(..));
                let item = Arc::new(Field::new_list_field(list.item_type.clone(), false));
                Arc::new(ListArray::new(item, offsets, list.item.finish(), Some(present)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;
    use crate::spec::{ColumnSpec, Kind};
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

    const fn column(name: &'static str, column_type: ColumnType, nullable: bool) -> ColumnSpec {
        ColumnSpec { name, column_type, unit: "", nullable }
    }

    static WIDE: TableSpec = TableSpec::new(
        "wide",
        Kind::Table,
        &[
            column("address", ColumnType::UInt64, true),
            column("packet", ColumnType::Binary, true),
            column("frames", ColumnType::List(&ColumnType::UInt64), true),
            column("names", ColumnType::List(&ColumnType::String), false),
        ],
    );

    #[test]
    fn wide_integers_bytes_and_lists_come_back_as_written() {
        let mut builder = BatchBuilder::new(&WIDE);
        let frames = [Value::UInt(u64::MAX), Value::Int(7)];
        let names = [Value::Text("a"), Value::Text("")];
        builder
            .append(&[Value::UInt(1 << 63), Value::Bytes(&[0, 255]), Value::List(&frames), Value::List(&names)])
            .unwrap();
        builder.append(&[Value::Int(3), Value::Bytes(&[]), Value::List(&[]), Value::List(&[])]).unwrap();
        builder.append(&[Value::Null, Value::Null, Value::Null, Value::List(&names[..1])]).unwrap();
        let batch = builder.finish().unwrap();
        let mut segment = Segment::new(&WIDE, true).unwrap();
        segment.write(&batch).unwrap();
        let mut file = Vec::new();
        segment.finish(&mut file).unwrap();
        let read: Vec<RecordBatch> =
            ParquetRecordBatchReader::try_new(Bytes::from(file), 1024).unwrap().map(Result::unwrap).collect();
        assert_eq!(read.len(), 1);
        for (written, found) in batch.columns().iter().zip(read[0].columns()) {
            assert_eq!(written.as_ref(), found.as_ref());
        }
    }

    #[test]
    fn what_does_not_fit_the_wide_types_is_refused() {
        let mut builder = BatchBuilder::new(&WIDE);
        let none = Value::List(&[]);
        let negative = [Value::Int(-1)];
        let gap = [Value::Null];
        for (row, why) in [
            ([Value::Int(-1), Value::Null, none, none], "-1 is out of range for uint64"),
            ([Value::Null, Value::Text("x"), none, none], "expected binary, got a string"),
            ([Value::Null, Value::Null, Value::List(&negative), none], "-1 is out of range for uint64"),
            ([Value::Null, Value::Null, none, Value::List(&gap)], "null value in a column that is not nullable"),
            ([Value::Null, Value::Null, none, Value::Text("x")], "expected list<string>, got a string"),
        ] {
            let error = builder.append(&row).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(builder.is_empty());
    }
}

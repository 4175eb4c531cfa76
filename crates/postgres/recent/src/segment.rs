//! Columns of one segment of a stored table.

use bytes::Bytes;
use leadline_capture::{spec, ColumnType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::path::Path;

const AT_ONCE: usize = 8192;

/// The values of a column.
pub enum Column {
    /// Of every integer type.
    Ints(Vec<Option<i64>>),
    /// Of strings.
    Texts(Vec<String>),
}

impl Column {
    /// Integers; a null is 0. Of a column of strings: none.
    pub fn ints(self) -> Vec<i64> {
        self.nullable().into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Integers or nulls. Of a column of strings: none.
    pub fn nullable(self) -> Vec<Option<i64>> {
        match self {
            Column::Ints(values) => values,
            Column::Texts(_) => Vec::new(),
        }
    }

    /// Strings. Of a column of integers: none.
    pub fn texts(self) -> Vec<String> {
        match self {
            Column::Texts(values) => values,
            Column::Ints(_) => Vec::new(),
        }
    }
}

/// So many columns of a file, by name, all with the same number of values.
pub fn columns<const N: usize>(path: &Path, table: &str, names: [&str; N]) -> Result<[Column; N]> {
    let content = std::fs::read(path).map_err(|e| ParquetError::External(Box::new(e)))?;
    let reader = SerializedFileReader::new(Bytes::from(content))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let mut found = Vec::with_capacity(N);
    let mut rows = None;
    for name in names {
        let at = schema.columns().iter().position(|c| c.name() == name);
        let at = at.ok_or_else(|| ParquetError::General(format!("{table} has no column {name}")))?;
        let nullable = schema.column(at).max_def_level() > 0;
        let column_type = spec(table).and_then(|t| t.columns.iter().find(|c| c.name == name)).map(|c| c.column_type);
        let mut column = match column_type {
            Some(ColumnType::String) => Column::Texts(Vec::new()),
            _ => Column::Ints(Vec::new()),
        };
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            add(&mut column, group.get_column_reader(at)?, nullable, column_type == Some(ColumnType::UInt32))?;
        }
        let count = match &column {
            Column::Ints(values) => values.len(),
            Column::Texts(values) => values.len(),
        };
        if *rows.get_or_insert(count) != count {
            return Err(ParquetError::General(format!("column {name} of {table} has {count} values")));
        }
        found.push(column);
    }
    found.try_into().map_err(|_| ParquetError::General("columns are missing".into()))
}

fn add(column: &mut Column, reader: ColumnReader, nullable: bool, unsigned: bool) -> Result<()> {
    match (column, reader) {
        (Column::Ints(out), ColumnReader::Int32ColumnReader(r)) => {
            let wide = |v: i32| Some(if unsigned { i64::from(v as u32) } else { i64::from(v) });
            values(r, nullable, |v| out.push(v.and_then(wide)))
        }
        (Column::Ints(out), ColumnReader::Int64ColumnReader(r)) => values(r, nullable, |v| out.push(v)),
        (Column::Texts(out), ColumnReader::ByteArrayColumnReader(r)) => values(r, nullable, |v| {
            out.push(v.map(|bytes| String::from_utf8_lossy(bytes.data()).into_owned()).unwrap_or_default());
        }),
        _ => Err(ParquetError::General("a column has another type".into())),
    }
}

/// Gives each value of a column of one row group to `each`.
fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    nullable: bool,
    mut each: impl FnMut(Option<T::T>),
) -> Result<()> {
    let (mut found, mut levels) = (Vec::new(), Vec::new());
    loop {
        found.clear();
        levels.clear();
        let (records, ..) = reader.read_records(AT_ONCE, nullable.then_some(&mut levels), None, &mut found)?;
        if records == 0 {
            return Ok(());
        }
        let mut present = found.drain(..);
        if nullable {
            levels.iter().for_each(|&level| each(if level > 0 { present.next() } else { None }));
        } else {
            present.for_each(|value| each(Some(value)));
        }
    }
}

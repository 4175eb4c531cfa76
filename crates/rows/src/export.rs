//! Rows into a file: CSV, or Parquet with the types that Parquet has.
//!
//! Truth values, whole numbers, floats and oids get a column type of their own; everything else, such as numeric and times
//! (which have an infinity), is the server's text.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, UInt32Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::error::{Error, Kind, Result};
use crate::scan::{Row, RowScan};

/// Rows of a batch, and of a row group of Parquet.
const ROWS: usize = 8192;

/// The columns beside those of the relation, and their types as oids of PostgreSQL.
pub fn provenance(dead: bool) -> &'static [(&'static str, u32)] {
    const ALL: [(&str, u32); 7] =
        [("ctid", 27), ("file", 25), ("block", 26), ("lp", 23), ("xmin", 26), ("xmax", 26), ("status", 25)];
    if dead {
        &ALL
    } else {
        &ALL[..1]
    }
}

/// The values of those columns, as text.
pub fn provenance_values(scan: &RowScan, row: &Row, dead: bool) -> Vec<String> {
    let p = row.place;
    let mut values = vec![format!("({},{})", p.block, p.lp)];
    if dead {
        values.push(scan.file_of(p.block).display().to_string());
        values.extend([p.block, p.lp.into(), p.xmin, p.xmax].map(|n| n.to_string()));
        values.push(p.status.as_str().into());
    }
    values
}

/// Writes all rows that are left; how many. `go_on` is called after each batch and may end it.
///
/// # Errors
/// When a file cannot be read or written. What was written until then is removed.
pub fn export(scan: &mut RowScan, out: &Path, dead: bool, go_on: &mut dyn FnMut(&RowScan) -> bool) -> Result<u64> {
    let kind = out.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    if kind != "csv" && kind != "parquet" {
        return Err(Error::new(Kind::Usage, "the name of the output says its format: .csv or .parquet").at(out));
    }
    // What is there under the name is replaced when all is written, not before.
    let mut partial = out.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let file = File::create(partial).map_err(|e| Error::writing(partial, &e))?;
    let written =
        if kind == "csv" { csv(scan, file, partial, dead, go_on) } else { parquet(scan, file, partial, dead, go_on) };
    let written = written.and_then(|rows| {
        std::fs::rename(partial, out).map_err(|e| Error::writing(out, &e))?;
        Ok(rows)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(partial); // the error that counts is the first
    }
    written
}

fn stopped(out: &Path) -> Error {
    Error::new(Kind::Usage, "the export was stopped").at(out)
}

fn csv(scan: &mut RowScan, file: File, out: &Path, dead: bool, go_on: &mut dyn FnMut(&RowScan) -> bool) -> Result<u64> {
    let failed = |e: std::io::Error| Error::writing(out, &e);
    let mut file = BufWriter::with_capacity(1 << 18, file);
    let mut line = String::new();
    for name in provenance(dead).iter().map(|c| c.0).chain(scan.columns.iter().map(|c| c.name.as_str())) {
        field(name, &mut line);
    }
    end(&mut line);
    let mut count = 0;
    loop {
        file.write_all(line.as_bytes()).map_err(failed)?;
        line.clear();
        let Some(rows) = scan.next_rows(ROWS)? else { break };
        for row in &rows {
            for value in provenance_values(scan, row, dead) {
                field(&value, &mut line);
            }
            for value in &row.values {
                match value {
                    Some(text) => field(text, &mut line),
                    None => line.push(','),
                }
            }
            end(&mut line);
        }
        count += rows.len() as u64;
        if !go_on(scan) {
            return Err(stopped(out));
        }
    }
    file.flush().map_err(failed)?;
    Ok(count)
}

/// A value and a comma. Text without a character is `""`, null is nothing, as in the server's own CSV.
fn field(text: &str, line: &mut String) {
    if text.is_empty() || text.contains(['"', ',', '\n', '\r']) {
        line.push('"');
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(text);
    }
    line.push(',');
}

/// The last comma of a line becomes its end.
fn end(line: &mut String) {
    if line.ends_with(',') {
        line.pop();
        line.push('\n');
    }
}

fn parquet(
    scan: &mut RowScan,
    file: File,
    out: &Path,
    dead: bool,
    go_on: &mut dyn FnMut(&RowScan) -> bool,
) -> Result<u64> {
    let failed = |e: ParquetError| match &e {
        // A full disk, as writing CSV says it.
        ParquetError::External(source) => match source.downcast_ref() {
            Some(io) => Error::writing(out, io),
            None => Error::new(Kind::Storage, "the rows cannot be written").detail(e.to_string()).at(out),
        },
        _ => Error::new(Kind::Storage, "the rows cannot be written").detail(e.to_string()).at(out),
    };
    let extra = provenance(dead);
    let types: Vec<u32> = extra.iter().map(|c| c.1).chain(scan.columns.iter().map(|c| c.base)).collect();
    let names = extra.iter().map(|c| c.0).chain(scan.columns.iter().map(|c| c.name.as_str()));
    let fields: Vec<Field> = names.zip(&types).map(|(name, oid)| Field::new(name, arrow(*oid), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let level = ZstdLevel::try_new(1).map_err(failed)?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(failed)?;
    let mut count = 0;
    while let Some(rows) = scan.next_rows(ROWS)? {
        let first: Vec<Vec<String>> = rows.iter().map(|row| provenance_values(scan, row, dead)).collect();
        let column = |(i, oid): (usize, &u32)| {
            let text = |n: usize| match i.checked_sub(extra.len()) {
                None => Some(first[n][i].as_str()),
                Some(i) => rows[n].values[i].as_deref(),
            };
            array(*oid, (0..rows.len()).map(text))
        };
        let columns: Vec<ArrayRef> = types.iter().enumerate().map(column).collect();
        let batch = RecordBatch::try_new(schema.clone(), columns).map_err(|e| failed(e.into()))?;
        writer.write(&batch).map_err(failed)?;
        if writer.in_progress_size() > 32 << 20 {
            writer.flush().map_err(failed)?;
        }
        count += rows.len() as u64;
        if !go_on(scan) {
            return Err(stopped(out));
        }
    }
    writer.close().map_err(failed)?;
    Ok(count)
}

fn arrow(oid: u32) -> DataType {
    match oid {
        16 => DataType::Boolean,
        20 => DataType::Int64,
        21 => DataType::Int16,
        23 => DataType::Int32,
        26 | 28 => DataType::UInt32,
        700 => DataType::Float32,
        701 => DataType::Float64,
        _ => DataType::Utf8,
    }
}

fn array<'a>(oid: u32, values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    match oid {
        16 => {
            let mut builder = BooleanBuilder::new();
            values.for_each(|v| builder.append_option(v.map(|v| v == "t")));
            Arc::new(builder.finish())
        }
        20 => numbers::<Int64Type>(values),
        21 => numbers::<Int16Type>(values),
        23 => numbers::<Int32Type>(values),
        26 | 28 => numbers::<UInt32Type>(values),
        700 => numbers::<Float32Type>(values),
        701 => numbers::<Float64Type>(values),
        _ => {
            let mut builder = StringBuilder::new();
            values.for_each(|v| builder.append_option(v));
            Arc::new(builder.finish())
        }
    }
}

fn numbers<'a, T: ArrowPrimitiveType>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef
where
    T::Native: FromStr,
{
    let mut builder = PrimitiveBuilder::<T>::new();
    values.for_each(|v| builder.append_option(v.and_then(|v| v.parse().ok())));
    Arc::new(builder.finish())
}

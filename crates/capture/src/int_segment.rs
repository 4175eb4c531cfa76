//! A segment of a table that has only integers, none of them null: the tables with thousands of rows a second.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use parquet::arrow::ArrowSchemaConverter;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData};
use parquet::schema::types::SchemaDescPtr;

use crate::int_column::{IntColumn, Scratch};
use crate::spec::{ColumnType, TableSpec};

/// Rows of a page: enough for long runs, few enough for a column to stay in the processor's cache.
const PAGE_ROWS: usize = 16_384;

/// Rows of one page are put in the order of this column, then of time: what one session did is like what it did before,
/// so values repeat. The order of rows in a segment means nothing.
const CLUSTER_BY: &str = "session_id";

/// The segment being made. `clear` makes it ready for the next one with the memory of this one.
pub(crate) struct IntSegment {
    schema: SchemaDescPtr,
    types: Vec<ColumnType>,
    columns: Vec<IntColumn>,
    cluster_by: Option<usize>,
    /// Rows waiting for a page to be full, by column.
    waiting: Vec<Vec<i64>>,
    order: Vec<u32>,
    page: Vec<i64>,
    scratch: Scratch,
    rows: usize,
}

impl IntSegment {
    /// Whether a table can be written this way.
    pub(crate) fn suits(spec: &TableSpec) -> bool {
        use ColumnType::{Int32, Int64, UInt32};
        spec.columns.iter().all(|c| !c.nullable && matches!(c.column_type, Int32 | Int64 | UInt32))
    }

    pub(crate) fn new(spec: &TableSpec) -> Result<IntSegment> {
        let schema = Arc::new(ArrowSchemaConverter::new().convert(&spec.schema())?);
        let types: Vec<ColumnType> = spec.columns.iter().map(|c| c.column_type).collect();
        let column = |(at, t): (usize, &ColumnType)| IntColumn::new(schema.column(at), *t == ColumnType::Int64);
        Ok(IntSegment {
            columns: types.iter().enumerate().map(column).collect(),
            cluster_by: spec.columns.iter().position(|c| c.name == CLUSTER_BY && std::env::var("NC").is_err()),
            waiting: vec![Vec::new(); types.len()],
            order: Vec::new(),
            page: Vec::new(),
            scratch: Scratch::new()?,
            rows: 0,
            schema,
            types,
        })
    }

    pub(crate) fn clear(&mut self) {
        self.columns.iter_mut().for_each(IntColumn::clear);
        self.waiting.iter_mut().for_each(Vec::clear);
        self.rows = 0;
    }

    /// Adds rows. The caller has checked that the batch has the table's schema.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut at = 0;
        while at < batch.num_rows() {
            let room = PAGE_ROWS - self.waiting.first().map_or(0, Vec::len);
            let count = room.min(batch.num_rows() - at);
            let part = batch.slice(at, count);
            for ((waiting, column_type), array) in self.waiting.iter_mut().zip(&self.types).zip(part.columns()) {
                widen(array.as_ref(), *column_type, waiting)?;
            }
            at += count;
            if count == room {
                self.put_pages()?;
            }
        }
        self.rows += batch.num_rows();
        Ok(())
    }

    /// Makes a page of each column from the waiting rows.
    fn put_pages(&mut self) -> Result<()> {
        let clustered = self.cluster_by.is_some_and(|column| order_by(&self.waiting[column], &mut self.order));
        for (column, waiting) in self.columns.iter_mut().zip(&mut self.waiting) {
            if clustered {
                self.page.clear();
                self.page.extend(self.order.iter().map(|row| waiting[*row as usize]));
                column.put_page(&self.page, &mut self.scratch)?;
            } else {
                column.put_page(waiting, &mut self.scratch)?;
            }
            waiting.clear();
        }
        Ok(())
    }

    /// Appends the whole Parquet file to `file`, which is empty.
    pub(crate) fn finish(&mut self, file: &mut Vec<u8>) -> Result<()> {
        if self.waiting.first().is_some_and(|waiting| !waiting.is_empty()) {
            self.put_pages()?;
        }
        file.extend_from_slice(b"PAR1");
        let mut chunks = Vec::with_capacity(self.columns.len());
        for column in &mut self.columns {
            chunks.push(column.finish(&mut self.scratch, file)?);
        }
        let row_group = RowGroupMetaData::builder(self.schema.clone())
            .set_num_rows(self.rows as i64)
            .set_total_byte_size(chunks.iter().map(|c| c.uncompressed_size()).sum())
            .set_column_metadata(chunks)
            .build()?;
        let by = Some(crate::segment::CREATED_BY.to_owned());
        let about = FileMetaData::new(1, self.rows as i64, by, None, self.schema.clone(), None);
        let metadata = ParquetMetaDataBuilder::new(about).add_row_group(row_group).build();
        ParquetMetaDataWriter::new(file, &metadata).finish()
    }
}

/// Appends the values of an array, as 64-bit integers. 32 bits without sign keep their bits when narrowed again.
fn widen(array: &dyn Array, column_type: ColumnType, out: &mut Vec<i64>) -> Result<()> {
    let not_this = || ParquetError::General(format!("an array of {}", array.data_type()));
    match column_type {
        ColumnType::Int64 => {
            out.extend_from_slice(array.as_primitive_opt::<Int64Type>().ok_or_else(not_this)?.values())
        }
        ColumnType::Int32 => {
            let values = array.as_primitive_opt::<Int32Type>().ok_or_else(not_this)?.values();
            out.extend(values.iter().map(|v| i64::from(*v)));
        }
        ColumnType::UInt32 => {
            let values = array.as_primitive_opt::<UInt32Type>().ok_or_else(not_this)?.values();
            out.extend(values.iter().map(|v| i64::from(*v as i32)));
        }
        _ => return Err(not_this()),
    }
    Ok(())
}

/// Puts into `order` the row numbers by value, equal values in the order they came. False when there is no need, or when
/// the values are spread too far to count them.
fn order_by(values: &[i64], order: &mut Vec<u32>) -> bool {
    let (Some(&least), Some(&most)) = (values.iter().min(), values.iter().max()) else { return false };
    let spread = most.abs_diff(least);
    if spread == 0 || spread > 4 * PAGE_ROWS as u64 {
        return false;
    }
    let slot = |value: i64| value.abs_diff(least) as usize;
    let mut next = vec![0u32; spread as usize + 2];
    for value in values {
        next[slot(*value) + 1] += 1;
    }
    for at in 1..next.len() {
        next[at] += next[at - 1];
    }
    order.clear();
    order.resize(values.len(), 0);
    for (row, value) in values.iter().enumerate() {
        let place = &mut next[slot(*value)];
        order[*place as usize] = row as u32;
        *place += 1;
    }
    true
}

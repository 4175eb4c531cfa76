//! A segment of a table that has only integers, none of them null: the tables with thousands of rows a second.

use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use parquet::arrow::ArrowSchemaConverter;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::writer::TrackedWrite;
use parquet::schema::types::SchemaDescPtr;

use crate::int_column::{Chunk, IntColumn, Scratch};
use crate::row_group::Bounds;
use crate::spec::{ColumnType, TableSpec, CREATED_BY};
use leadline_parquet::Int;

/// Most rows of a page: so few that a column stays in the processor's cache while it is encoded.
pub(crate) const PAGE_ROWS: usize = 16_384;

/// Fewer rows than this wait for more, since every page has a cost of its own.
const WORTH_A_PAGE: usize = 2048;

/// The segment being made. `clear` makes it ready for the next one with the memory of this one.
pub(crate) struct IntSegment {
    schema: SchemaDescPtr,
    columns: Vec<Column>,
    /// Rows in `waiting`.
    waiting_rows: usize,
    scratch: Scratch,
    bounds: Bounds,
    /// Rows of the row group being made.
    rows: usize,
    /// The file so far: whole row groups.
    body: Vec<u8>,
    done: Vec<RowGroup>,
}

#[derive(Clone)]
struct RowGroup {
    metadata: RowGroupMetaData,
    columns: Vec<ColumnIndexMetaData>,
    offsets: Vec<OffsetIndexMetaData>,
}

struct Column {
    column_type: ColumnType,
    chunk: IntColumn,
    /// Values too few for a page so far.
    waiting: Vec<i64>,
}

impl IntSegment {
    /// Whether a table can be written this way.
    pub(crate) fn suits(spec: &TableSpec) -> bool {
        use ColumnType::{Int32, Int64, UInt32};
        spec.columns.iter().all(|c| !c.nullable && matches!(c.column_type, Int32 | Int64 | UInt32))
    }

    pub(crate) fn new(spec: &TableSpec) -> Result<IntSegment> {
        let schema = Arc::new(ArrowSchemaConverter::new().convert(&spec.schema())?);
        let mut columns = Vec::with_capacity(spec.columns.len());
        for (at, column) in spec.columns.iter().enumerate() {
            let column_type = column.column_type;
            let chunk = IntColumn::new(schema.column(at), column_type == ColumnType::Int64);
            columns.push(Column { column_type, chunk, waiting: Vec::new() });
        }
        let (bounds, scratch) = (Bounds::new(spec), Scratch::default());
        Ok(IntSegment {
            schema,
            columns,
            waiting_rows: 0,
            scratch,
            bounds,
            rows: 0,
            body: Vec::new(),
            done: Vec::new(),
        })
    }

    pub(crate) fn clear(&mut self) {
        self.clear_group();
        self.bounds.clear();
        self.body.clear();
        self.done.clear();
    }

    fn clear_group(&mut self) {
        for column in &mut self.columns {
            column.chunk.clear();
            column.waiting.clear();
        }
        (self.waiting_rows, self.rows) = (0, 0);
    }

    /// Adds rows. The caller has checked that the batch has the table's schema.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        if self.bounds.ends_before(batch) {
            self.end_group()?;
        }
        if rows < WORTH_A_PAGE {
            for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
                column.keep(array.as_ref())?;
            }
            self.waiting_rows += rows;
            if self.waiting_rows >= PAGE_ROWS {
                self.put_waiting()?;
            }
        } else {
            self.put_waiting()?; // rows stay in their order
            for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
                column.put_pages(array.as_ref(), &mut self.scratch)?;
            }
        }
        self.rows += rows;
        Ok(())
    }

    fn put_waiting(&mut self) -> Result<()> {
        if self.waiting_rows == 0 {
            return Ok(());
        }
        for column in &mut self.columns {
            column.chunk.put_page(&column.waiting, &mut self.scratch)?;
            column.waiting.clear();
        }
        self.waiting_rows = 0;
        Ok(())
    }

    /// Closes the row group being made, if it has rows.
    fn end_group(&mut self) -> Result<()> {
        self.put_waiting()?;
        if self.rows == 0 {
            return Ok(());
        }
        if self.body.is_empty() {
            self.body.extend_from_slice(b"PAR1");
        }
        let (mut chunks, mut columns, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        for column in &mut self.columns {
            let chunk: Chunk = column.chunk.finish(&mut self.scratch, &mut self.body)?;
            chunks.push(chunk.metadata);
            columns.push(chunk.columns);
            offsets.push(chunk.offsets);
        }
        let metadata = RowGroupMetaData::builder(self.schema.clone())
            .set_num_rows(self.rows as i64)
            .set_total_byte_size(chunks.iter().map(|c| c.uncompressed_size()).sum())
            .set_column_metadata(chunks)
            .build()?;
        self.done.push(RowGroup { metadata, columns, offsets });
        self.clear_group();
        Ok(())
    }

    /// Appends the whole Parquet file of the rows so far to `file`, which is empty. More rows may follow.
    pub(crate) fn snapshot(&mut self, file: &mut Vec<u8>) -> Result<()> {
        self.end_group()?;
        self.bounds.clear();
        let (mut groups, mut columns, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        for group in self.done.iter().cloned() {
            groups.push(group.metadata);
            columns.push(group.columns);
            offsets.push(group.offsets);
        }
        let by = Some(CREATED_BY.to_owned());
        let rows = groups.iter().map(RowGroupMetaData::num_rows).sum();
        let about = FileMetaData::new(1, rows, by, None, self.schema.clone(), None);
        let metadata = ParquetMetaDataBuilder::new(about)
            .set_row_groups(groups)
            .set_column_index(Some(columns))
            .set_offset_index(Some(offsets))
            .build();
        let mut out = TrackedWrite::new(file);
        out.write_all(&self.body)?;
        ParquetMetaDataWriter::new_with_tracked(out, &metadata).finish()
    }
}

impl Column {
    fn keep(&mut self, array: &dyn Array) -> Result<()> {
        match self.column_type {
            ColumnType::Int64 => self.waiting.extend_from_slice(values::<Int64Type>(array)?),
            ColumnType::UInt32 => self.waiting.extend(values::<UInt32Type>(array)?.iter().map(|v| v.wide())),
            _ => self.waiting.extend(values::<Int32Type>(array)?.iter().map(|v| v.wide())),
        }
        Ok(())
    }

    fn put_pages(&mut self, array: &dyn Array, scratch: &mut Scratch) -> Result<()> {
        match self.column_type {
            ColumnType::Int64 => self.put_pages_of(values::<Int64Type>(array)?, scratch),
            ColumnType::UInt32 => self.put_pages_of(values::<UInt32Type>(array)?, scratch),
            _ => self.put_pages_of(values::<Int32Type>(array)?, scratch),
        }
    }

    fn put_pages_of<T: Int>(&mut self, values: &[T], scratch: &mut Scratch) -> Result<()> {
        values.chunks(PAGE_ROWS).try_for_each(|page| self.chunk.put_page(page, scratch))
    }
}

fn values<T: ArrowPrimitiveType>(array: &dyn Array) -> Result<&[T::Native]> {
    let typed = array.as_primitive_opt::<T>();
    let typed = typed.ok_or_else(|| ParquetError::General(format!("an array of {}", array.data_type())))?;
    Ok(typed.values())
}

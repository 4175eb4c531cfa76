//! Batches of one table to the bytes of one Parquet file, by the way that suits the table.
//!
//! The choices were measured with `cargo run --release -p leadline-capture --example write_speed`; the figures are in
//! this crate's README.

use std::io::Write;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::Result;
use parquet::file::metadata::{FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::TrackedWrite;
use parquet::schema::types::ColumnPath;

use crate::int_segment::{IntSegment, PAGE_ROWS};
use crate::row_group::Bounds;
use crate::spec::{ColumnType, TableSpec, CREATED_BY};

/// The segment being made; empty again after `finish` and after `clear`.
pub(crate) enum Segment {
    /// Integers without nulls: the tables with many rows.
    Ints(Box<IntSegment>),
    /// All others, by the general writer.
    Any(Box<AnySegment>),
}

impl Segment {
    pub(crate) fn new(spec: &'static TableSpec, compress: bool) -> Result<Segment> {
        Ok(if IntSegment::suits(spec) {
            Segment::Ints(Box::new(IntSegment::new(spec)?))
        } else {
            Segment::Any(Box::new(AnySegment {
                schema: spec.schema(),
                properties: properties(spec, compress),
                encoder: None,
                bounds: Bounds::new(spec),
            }))
        })
    }

    /// Adds rows. The caller has checked that the batch has the table's schema.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Segment::Ints(ints) => ints.write(batch),
            Segment::Any(any) => any.write(batch),
        }
    }

    /// Puts a whole Parquet file of the rows so far into `file`, which is empty; more rows may follow. Until the segment is finished,
    /// the general writer gives no page index.
    pub(crate) fn snapshot(&mut self, file: &mut Vec<u8>) -> Result<()> {
        match self {
            Segment::Ints(ints) => ints.snapshot(file),
            Segment::Any(any) => any.snapshot(file),
        }
    }

    /// Puts the whole Parquet file into `file`, which is empty.
    pub(crate) fn finish(&mut self, file: &mut Vec<u8>) -> Result<()> {
        match self {
            Segment::Ints(ints) => {
                let outcome = ints.snapshot(file);
                ints.clear();
                outcome
            }
            Segment::Any(any) => any.finish(file),
        }
    }

    /// Forgets the rows.
    pub(crate) fn clear(&mut self) {
        match self {
            Segment::Ints(ints) => ints.clear(),
            Segment::Any(any) => {
                any.encoder = None;
                any.bounds.clear();
            }
        }
    }
}

pub(crate) struct AnySegment {
    schema: SchemaRef,
    properties: WriterProperties,
    encoder: Option<ArrowWriter<Vec<u8>>>,
    bounds: Bounds,
}

impl AnySegment {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            None => self.encoder.insert(self.open()?),
        };
        if self.bounds.ends_before(batch) {
            encoder.flush()?;
        }
        encoder.write(batch)
    }

    fn open(&self) -> Result<ArrowWriter<Vec<u8>>> {
        // Without Arrow's own copy of the schema: the Parquet types say all of it, int32 against uint32 too.
        let options = ArrowWriterOptions::new().with_properties(self.properties.clone()).with_skip_arrow_metadata(true);
        ArrowWriter::try_new_with_options(Vec::new(), self.schema.clone(), options)
    }

    fn snapshot(&mut self, file: &mut Vec<u8>) -> Result<()> {
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            None => self.encoder.insert(self.open()?),
        };
        encoder.flush()?;
        encoder.sync()?;
        self.bounds.clear();
        let groups = encoder.flushed_row_groups().to_vec();
        let rows = groups.iter().map(RowGroupMetaData::num_rows).sum();
        let schema = Arc::new(ArrowSchemaConverter::new().convert(&self.schema)?);
        let about = FileMetaData::new(1, rows, Some(CREATED_BY.to_owned()), None, schema, None);
        let metadata = ParquetMetaDataBuilder::new(about).set_row_groups(groups).build();
        let mut out = TrackedWrite::new(file);
        out.write_all(encoder.inner())?;
        ParquetMetaDataWriter::new_with_tracked(out, &metadata).finish()
    }

    fn finish(&mut self, file: &mut Vec<u8>) -> Result<()> {
        let encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => self.open()?,
        };
        self.bounds.clear();
        *file = encoder.into_inner()?;
        Ok(())
    }
}

/// Plain values; a dictionary for strings, which repeat; pages of so many rows that the page index is worth its bytes.
fn properties(spec: &TableSpec, compress: bool) -> WriterProperties {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(CREATED_BY.into())
        .set_compression(if compress { zstd } else { Compression::UNCOMPRESSED })
        .set_encoding(Encoding::PLAIN)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_size_limit(1 << 20)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(8192)
        .set_max_row_group_row_count(Some(1 << 22));
    for column in spec.columns {
        if column.column_type == ColumnType::String {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(column.name), true);
        }
    }
    properties.build()
}

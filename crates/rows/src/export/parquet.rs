//! Rows as Parquet: each thread encodes whole row groups, which are only put one behind the other in the file.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ArrayRef;
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::arrow_writer::{compute_leaves, ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::columns::{Builder, Kind};
use super::in_order::{in_order, Maker, Outlet, Plan};
use super::{ctid, provenance, Exported, GoOn, Job, Written};
use crate::decode::{Place, Sink, Unread, Value};
use crate::error::{Error, Kind as Trouble, Result};
use crate::relation::Relation;

/// Bytes of the relation whose rows become a row group, unless they take too much memory.
const RANGE: usize = 32 << 20;
/// Rows and bytes that are collected before they are encoded.
const ROWS: usize = 8192;
const BYTES: usize = 4 << 20;
/// Encoded bytes that all threads together may have in the row groups they are at.
const GROUPS: usize = 64 << 20;

pub(super) fn write(job: &Job<'_>, go_on: GoOn<'_>) -> Written {
    let columns = job.scan.columns();
    let mut kinds: Vec<Kind> = columns.iter().map(Kind::of).collect();
    loop {
        let (unfit, written) = attempt(job, &kinds, go_on)?;
        if unfit.is_empty() {
            let became_text = |(i, kind): &(usize, &Kind)| **kind != Kind::of(&columns[*i]);
            let as_text = kinds.iter().enumerate().filter(became_text).map(|(i, _)| columns[i].name.clone()).collect();
            let (rows, unread) = written;
            return Ok((Exported { rows, as_text }, unread));
        }
        // The type of a column is said before its first value. So that this happens once, not once for each such column, the
        // others are looked through now; those of a running server may change until then, and it happens again.
        for column in unfit.into_iter().chain(find_unfit(job, &kinds, go_on)?) {
            kinds[column] = Kind::Text;
        }
    }
}

fn range(job: &Job<'_>) -> u32 {
    (RANGE / job.scan.relation.heap.block_size) as u32
}

/// Writes the file; which columns have values that do not fit, then the file is not whole.
fn attempt(job: &Job<'_>, kinds: &[Kind], go_on: GoOn<'_>) -> Result<(BTreeSet<usize>, (u64, Unread))> {
    let relation = &job.scan.relation;
    let failed = |e: ParquetError| failed(&e, job.out);
    let extra = provenance(job.scan.dead);
    let fields = extra.iter().map(|c| Kind::of_oid(c.1).field(c.0));
    let fields: Vec<_> =
        fields.chain(relation.columns.iter().zip(kinds).map(|(c, kind)| kind.field(&c.name))).collect();
    let all: Vec<Kind> = extra.iter().map(|c| Kind::of_oid(c.1)).chain(kinds.iter().copied()).collect();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let writer = ArrowWriter::try_new(job.create()?, Arc::clone(&schema), None).map_err(failed)?;
    let (mut file, _) = writer.into_serialized_writer().map_err(failed)?;
    let make = |outlet| {
        let printers = extra.iter().map(|_| None);
        let printers = printers.chain(relation.columns.iter().map(|c| Some(relation.types.printer(c.oid))));
        Ok(Groups {
            relation: Arc::clone(relation),
            schema: Arc::clone(&schema),
            factory: None,
            dead: job.scan.dead,
            out: job.out,
            extra: extra.len(),
            builders: all.iter().zip(printers).map(|(kind, printer)| Builder::new(*kind, printer)).collect(),
            rows: 0,
            bytes: 0,
            group: None,
            most: (GROUPS / job.threads).clamp(4 << 20, 16 << 20),
            outlet,
        })
    };
    let plan = Plan { relation, dead: job.scan.dead, range: range(job), threads: job.threads };
    let mut unfit = BTreeSet::new();
    let mut rows = 0;
    let unread = in_order(&plan, make, |made, block| {
        match made {
            Some(Made::Group(chunks, count)) => {
                rows += count;
                let mut group = file.next_row_group().map_err(failed)?;
                for chunk in chunks {
                    chunk.append_to_row_group(&mut group).map_err(failed)?;
                }
                group.close().map_err(failed)?;
            }
            Some(Made::Unfit(columns)) => {
                unfit = columns;
                return Err(job.stopped());
            }
            None => {}
        }
        if go_on(block, relation.heap.blocks) {
            Ok(())
        } else {
            Err(job.stopped())
        }
    });
    if !unfit.is_empty() {
        return Ok((unfit, (0, Unread::default())));
    }
    let unread = unread?;
    file.close().map_err(failed)?;
    Ok((unfit, (rows, unread)))
}

fn failed(e: &ParquetError, out: &Path) -> Error {
    if let ParquetError::External(source) = e {
        if let Some(source) = source.downcast_ref::<std::io::Error>() {
            return Error::writing(out, source);
        }
    }
    Error::new(Trouble::Storage, "the rows cannot be written").detail(e.to_string()).at(out)
}

/// How the columns are encoded, by the first values of each.
///
/// Strings that mostly differ are not looked up in a dictionary that would become too large anyway.
fn factory(schema: &SchemaRef, arrays: &[ArrayRef]) -> std::result::Result<ArrowRowGroupWriterFactory, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for (field, array) in schema.fields().iter().zip(arrays) {
        let path = ColumnPath::from(vec![field.name().clone()]);
        let repeats = repeats(array);
        builder = builder.set_column_dictionary_enabled(path.clone(), repeats);
        if matches!(field.data_type(), DataType::Utf8 | DataType::FixedSizeBinary(_)) && !repeats {
            // The least and the greatest of such values let no reader pass over anything, and each is compared for them.
            builder = builder.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
        }
        builder = match field.data_type() {
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::UInt32 | DataType::UInt64 => {
                builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
            }
            _ if repeats || packs_well(array) => builder,
            _ => builder.set_column_compression(path, Compression::UNCOMPRESSED),
        };
    }
    // What makes encoders is to be had from a writer only.
    let writer = ArrowWriter::try_new(std::io::sink(), Arc::clone(schema), Some(builder.build()))?;
    Ok(writer.into_serialized_writer()?.1)
}

/// Whether the first values of a column lose a fourth of their bytes when they are compressed.
fn packs_well(array: &ArrayRef) -> bool {
    const LOOKED_AT: usize = 1 << 16;
    let data = array.to_data();
    // Of strings and bytes the offsets come first.
    let Some(bytes) = data.buffers().last().map(|b| &b[..b.len().min(LOOKED_AT)]) else { return true };
    lz4_flex::block::compress(bytes).len() * 4 <= bytes.len() * 3
}

/// Whether most of the first strings of a column occur more than once.
fn repeats(array: &ArrayRef) -> bool {
    const LOOKED_AT: usize = 2048;
    let Some(strings) = array.as_string_opt::<i32>() else { return false };
    let first = strings.iter().flatten().take(LOOKED_AT);
    let mut seen = HashSet::new();
    let (mut all, mut different) = (0, 0);
    for text in first {
        all += 1;
        different += usize::from(seen.insert(text));
    }
    2 * different <= all
}

enum Made {
    /// A row group and its rows.
    Group(Vec<ArrowColumnChunk>, u64),
    /// Columns with values that do not fit.
    Unfit(BTreeSet<usize>),
}

/// Makes row groups.
struct Groups<'p> {
    relation: Arc<Relation>,
    schema: SchemaRef,
    /// Made when the first values are there, which say how they are encoded best.
    factory: Option<ArrowRowGroupWriterFactory>,
    dead: bool,
    out: &'p Path,
    /// Columns before those of the relation.
    extra: usize,
    builders: Vec<Builder>,
    /// Rows and bytes in the builders.
    rows: usize,
    bytes: usize,
    /// The row group that is being encoded, and its rows.
    group: Option<(Vec<ArrowColumnWriter>, u64)>,
    /// Encoded bytes of a row group.
    most: usize,
    outlet: Outlet<Made>,
}

impl Groups<'_> {
    /// Encodes what is in the builders.
    fn encode(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let unfit: BTreeSet<usize> =
            self.builders.iter().enumerate().filter(|(_, b)| b.unfit).map(|(i, _)| i - self.extra).collect();
        if !unfit.is_empty() {
            self.outlet.put(Made::Unfit(unfit))?;
        }
        let failed = |e: ParquetError| failed(&e, self.out);
        let arrays: Vec<ArrayRef> = self.builders.iter_mut().map(Builder::finish).collect();
        let factory = match &mut self.factory {
            Some(factory) => factory,
            None => self.factory.insert(factory(&self.schema, &arrays).map_err(failed)?),
        };
        let (writers, rows) = match &mut self.group {
            Some(group) => group,
            None => self.group.insert((factory.create_column_writers(0).map_err(failed)?, 0)),
        };
        for ((array, field), writer) in arrays.iter().zip(self.schema.fields()).zip(writers.iter_mut()) {
            // No column is nested: each has one leaf.
            for leaf in compute_leaves(field, array).map_err(failed)? {
                writer.write(&leaf).map_err(failed)?;
            }
        }
        *rows += self.rows as u64;
        (self.rows, self.bytes) = (0, 0);
        let size: usize = writers.iter().map(ArrowColumnWriter::memory_size).sum();
        if size >= self.most {
            if let Some(made) = self.close()? {
                self.outlet.put(made)?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Option<Made>> {
        let Some((writers, rows)) = self.group.take() else { return Ok(None) };
        let chunks = writers.into_iter().map(ArrowColumnWriter::close).collect::<std::result::Result<_, _>>();
        Ok(Some(Made::Group(chunks.map_err(|e| failed(&e, self.out))?, rows)))
    }
}

impl Sink for Groups<'_> {
    fn begin(&mut self, place: &Place) {
        let dead = self.dead;
        let builders = &mut self.builders;
        builders[0].text(|out| ctid(place, out));
        if dead {
            let file = self.relation.heap.file_of(place.block);
            builders[1].text(|out| out.push_str(&file.to_string_lossy()));
            builders[2].uint32(place.block);
            builders[3].int32(place.lp.into());
            builders[4].uint32(place.xmin);
            builders[5].uint32(place.xmax);
            builders[6].text(|out| out.push_str(place.status.as_str()));
        }
    }

    #[inline]
    fn value(&mut self, column: usize, value: Value<'_>) {
        self.bytes += self.builders[self.extra + column].value(&self.relation.types, value);
    }

    fn end(&mut self) -> Result<()> {
        self.rows += 1;
        if self.rows >= ROWS || self.bytes >= BYTES {
            self.encode()?;
        }
        Ok(())
    }
}

impl Maker for Groups<'_> {
    type Made = Made;

    fn finish(&mut self) -> Result<Option<Made>> {
        self.encode()?;
        self.close()
    }
}

/// The columns of the whole relation with values that do not fit.
fn find_unfit(job: &Job<'_>, kinds: &[Kind], go_on: GoOn<'_>) -> Result<BTreeSet<usize>> {
    let relation = &job.scan.relation;
    let plan = Plan { relation, dead: job.scan.dead, range: range(job), threads: job.threads };
    let mut all = BTreeSet::new();
    let make = |_| Ok(Fits { kinds: kinds.to_vec(), unfit: BTreeSet::new() });
    in_order(&plan, make, |found: Option<BTreeSet<usize>>, block| {
        all.extend(found.into_iter().flatten());
        if go_on(block, relation.heap.blocks) {
            Ok(())
        } else {
            Err(job.stopped())
        }
    })?;
    Ok(all)
}

/// Looks whether values fit, and keeps none.
struct Fits {
    kinds: Vec<Kind>,
    unfit: BTreeSet<usize>,
}

impl Sink for Fits {
    fn begin(&mut self, _: &Place) {}

    fn value(&mut self, column: usize, value: Value<'_>) {
        if !self.kinds[column].fits(value) {
            self.unfit.insert(column);
            self.kinds[column] = Kind::Text;
        }
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Maker for Fits {
    type Made = BTreeSet<usize>;

    fn finish(&mut self) -> Result<Option<BTreeSet<usize>>> {
        Ok(Some(std::mem::take(&mut self.unfit)))
    }
}

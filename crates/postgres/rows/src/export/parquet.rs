//! Rows as Parquet: each thread encodes whole row groups, which are only put one behind the other in the file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::Schema;
use parquet::arrow::ArrowSchemaConverter;
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData};
use parquet::schema::types::SchemaDescPtr;

use super::chunk::{self, Chunk, Scratch};
use super::columns::Kind;
use super::in_order::{Maker, Outlet, Read};
use super::packed::Spare;
use super::{writing, Exported, GoOn, Job, Written};
use crate::beside::Fact;
use crate::cell::{Place, Value};
use crate::cells::Rows;
use crate::decode::{RowSink, Sink};
use crate::relation::Relation;
use leadline_errors::{Error, Kind as Trouble, Result};

/// Who wrote a file.
const CREATED_BY: &str = concat!("leadline ", env!("CARGO_PKG_VERSION"));
/// Bytes of the relation whose rows become a row group, unless they take too much memory.
const RANGE: usize = 32 << 20;
/// Encoded bytes that all threads together may have in the row groups they are at.
const GROUPS: usize = 24 << 20;

pub(super) fn write(job: &Job<'_>, go_on: GoOn<'_>) -> Written {
    let columns = job.scan.columns();
    let mut kinds: Vec<Kind> = columns.iter().map(Kind::of).collect();
    loop {
        let (unfit, written) = attempt(job, &kinds, go_on)?;
        if unfit.is_empty() {
            let became_text = |(i, kind): &(usize, &Kind)| **kind != Kind::of(&columns[*i]);
            let as_text = kinds.iter().enumerate().filter(became_text).map(|(i, _)| columns[i].name.clone()).collect();
            let (rows, read) = written;
            return Ok((Exported { rows, as_text }, read));
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
fn attempt(job: &Job<'_>, kinds: &[Kind], go_on: GoOn<'_>) -> Result<(BTreeSet<usize>, (u64, Read))> {
    let relation = &job.scan.relation;
    // What an attempt before this one counted, of the same values.
    relation.types.forget_faults();
    let failed = |e: ParquetError| failed(&e, job.out);
    let facts = job.beside.facts();
    let extra = || facts.iter().map(|fact| Kind::of_extra(fact.oid()));
    let fields = job.beside.names(&relation.columns);
    let fields = extra().zip(&fields).map(|(kind, name)| kind.field(name));
    let fields: Vec<_> =
        fields.chain(relation.columns.iter().zip(kinds).map(|(c, kind)| kind.field(&c.name))).collect();
    let all: Vec<Kind> = extra().chain(kinds.iter().copied()).collect();
    let schema = Arc::new(ArrowSchemaConverter::new().convert(&Schema::new(fields)).map_err(failed)?);
    let spares: Vec<Spare> = all.iter().map(|_| Spare::default()).collect();
    let mut file = Output::begin(job, &schema, &spares)?;
    let make = |relation: &Arc<Relation>, outlet| {
        let printers = relation.columns.iter().map(|c| Some(relation.types.printer(c.oid)));
        let printers = facts.iter().map(|_| None).chain(printers);
        let chunk =
            |((i, kind), printer): ((usize, &Kind), _)| Chunk::new(*kind, printer, schema.column(i), spares[i].clone());
        Ok(Groups {
            relation: Arc::clone(relation),
            facts,
            out: job.out,
            columns: all.iter().enumerate().zip(printers).map(chunk).collect(),
            scratch: Scratch::default(),
            rows: 0,
            most: (GROUPS / job.threads).clamp(4 << 20, 12 << 20),
            outlet,
        })
    };
    let mut unfit = BTreeSet::new();
    let mut rows = 0;
    let take = |made| match made {
        Made::Group(chunks, count) => {
            rows += count;
            file.put(chunks, count)
        }
        Made::Unfit(columns) => {
            unfit = columns;
            Err(job.stopped())
        }
    };
    let read = job.read(range(job), make, take, go_on);
    if !unfit.is_empty() {
        return Ok((unfit, (0, Read::default())));
    }
    let read = read?;
    file.end(rows)?;
    Ok((unfit, (rows, read)))
}

fn failed(e: &ParquetError, out: &Path) -> Error {
    if let ParquetError::External(source) = e {
        if let Some(source) = source.downcast_ref::<std::io::Error>() {
            return writing(out, source);
        }
    }
    Error::new(Trouble::Storage, "cannot write the rows").detail(e.to_string()).at(out)
}

const MAGIC: &[u8; 4] = b"PAR1";

/// The file that row groups are put into.
struct Output<'p> {
    file: File,
    out: &'p Path,
    schema: SchemaDescPtr,
    spares: &'p [Spare],
    groups: Vec<RowGroupMetaData>,
    /// Bytes written.
    at: i64,
}

impl Output<'_> {
    fn begin<'p>(job: &Job<'p>, schema: &SchemaDescPtr, spares: &'p [Spare]) -> Result<Output<'p>> {
        let (file, schema) = (job.create()?, Arc::clone(schema));
        let mut output = Output { file, out: job.out, schema, spares, groups: Vec::new(), at: 0 };
        output.write(MAGIC)?;
        Ok(output)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| writing(self.out, &e))?;
        self.at += bytes.len() as i64;
        Ok(())
    }

    fn put(&mut self, chunks: Vec<chunk::Made>, rows: u64) -> Result<()> {
        let out = self.out;
        let failed = |e: ParquetError| failed(&e, out);
        let (start, mut columns) = (self.at, Vec::with_capacity(chunks.len()));
        for (chunk::Made { dictionary, pages, about }, spare) in chunks.into_iter().zip(self.spares) {
            let (dictionary_at, data_at) = (about.dictionary_page_offset(), about.data_page_offset());
            let placed = about
                .into_builder()
                .set_dictionary_page_offset(dictionary_at.map(|at| self.at + at))
                .set_data_page_offset(self.at + data_at);
            columns.push(placed.build().map_err(failed)?);
            self.write(&dictionary)?;
            self.write(&pages)?;
            spare.give(pages);
        }
        let group = RowGroupMetaData::builder(Arc::clone(&self.schema))
            .set_num_rows(rows as i64)
            .set_total_byte_size(columns.iter().map(|c| c.uncompressed_size()).sum())
            .set_file_offset(start)
            .set_column_metadata(columns);
        self.groups.push(group.build().map_err(failed)?);
        Ok(())
    }

    fn end(mut self, rows: u64) -> Result<()> {
        let by = Some(CREATED_BY.to_owned());
        let about = FileMetaData::new(1, rows as i64, by, None, Arc::clone(&self.schema), None);
        let metadata = ParquetMetaDataBuilder::new(about).set_row_groups(std::mem::take(&mut self.groups)).build();
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish().map_err(|e| failed(&e, self.out))?;
        self.write(&footer)
    }
}

enum Made {
    /// A row group and its rows.
    Group(Vec<chunk::Made>, u64),
    /// Columns with values that do not fit.
    Unfit(BTreeSet<usize>),
}

/// Makes row groups.
struct Groups<'p> {
    relation: Arc<Relation>,
    /// What the columns before those of the relation hold.
    facts: &'static [Fact],
    out: &'p Path,
    columns: Vec<Chunk>,
    scratch: Scratch,
    /// Rows of the group that is being made.
    rows: u64,
    /// Bytes of a row group.
    most: usize,
    outlet: Outlet<Made>,
}

impl Groups<'_> {
    fn place(&mut self, place: &Place) {
        // What has no sign is stored with the same bits.
        let unsigned = |number: u32| i64::from(number as i32);
        for (fact, column) in self.facts.iter().zip(&mut self.columns) {
            match fact {
                Fact::Partition => column.text(self.relation.name.as_bytes()),
                Fact::Ctid => column.tid(place),
                Fact::File => column.text(self.relation.heap.file_of(place.block).to_string_lossy().as_bytes()),
                Fact::Block => column.int(unsigned(place.block)),
                Fact::Lp => column.int(place.lp.into()),
                Fact::Xmin => column.int(unsigned(place.xmin)),
                Fact::Xmax => column.int(unsigned(place.xmax)),
                Fact::Status => column.text(place.status.as_str().as_bytes()),
            }
        }
    }

    fn close(&mut self) -> Result<Option<Made>> {
        let unfit: BTreeSet<usize> =
            self.columns.iter().enumerate().filter(|(_, c)| c.unfit).map(|(i, _)| i - self.facts.len()).collect();
        if !unfit.is_empty() {
            return Ok(Some(Made::Unfit(unfit)));
        }
        if self.rows == 0 {
            return Ok(None);
        }
        let scratch = &mut self.scratch;
        let chunks: parquet::errors::Result<Vec<_>> = self.columns.iter_mut().map(|c| c.finish(scratch)).collect();
        Ok(Some(Made::Group(chunks.map_err(|e| failed(&e, self.out))?, std::mem::take(&mut self.rows))))
    }
}

impl Sink for Groups<'_> {
    fn rows(&mut self, rows: &mut Rows<'_>) -> Result<()> {
        let count = rows.places().len();
        // Values that are much longer than a page are taken one row at a time, so that many of them are not held at once.
        let step = if rows.has_far() { 1 } else { count.max(1) };
        for first in (0..count).step_by(step) {
            let range = first..(first + step).min(count);
            for place in &rows.places()[range.clone()] {
                self.place(place);
            }
            let relation = &self.relation;
            let (types, scratch) = (&relation.types, &mut self.scratch);
            for (i, column) in self.columns[self.facts.len()..].iter_mut().enumerate() {
                column.add(types, rows.column(i, range.clone()))?;
            }
            for column in &mut self.columns {
                column.end_page_if_full(scratch).map_err(|e| failed(&e, self.out))?;
            }
            self.rows += range.len() as u64;
            let bytes: usize = self.columns.iter().map(Chunk::memory).sum();
            if bytes >= self.most || self.columns.iter().any(|c| c.unfit) {
                if let Some(made) = self.close()? {
                    self.outlet.put(made)?;
                }
            }
        }
        Ok(())
    }
}

impl Maker for Groups<'_> {
    type Made = Made;

    fn finish(&mut self) -> Result<Option<Made>> {
        self.close()
    }
}

/// The columns of the whole relation with values that do not fit.
fn find_unfit(job: &Job<'_>, kinds: &[Kind], go_on: GoOn<'_>) -> Result<BTreeSet<usize>> {
    let mut all = BTreeSet::new();
    let make = |_: &Arc<Relation>, _| Ok(Fits { kinds: kinds.to_vec(), unfit: BTreeSet::new() });
    let take = |found: BTreeSet<usize>| {
        all.extend(found);
        Ok(())
    };
    job.read(range(job), make, take, go_on)?;
    Ok(all)
}

/// Looks whether values fit, and keeps none.
struct Fits {
    kinds: Vec<Kind>,
    unfit: BTreeSet<usize>,
}

impl RowSink for Fits {
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

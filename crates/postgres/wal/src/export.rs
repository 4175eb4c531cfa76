//! Records and block references as the tables `wal_record_raw`, `wal_block_raw` and `wal_record_type` of a capture.
//!
//! Each chunk of the WAL becomes one Parquet segment of each table; segments get their numbers in the order of the WAL.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::Schema;
use leadline_capture::{spec, BatchBuilder, Stats, TableWriter, Value, WriterOptions};

use crate::parallel::{run, Work};
use crate::reader::{Ending, Reader};
use crate::record::Record;
use crate::rmgr;
use crate::wal::{Range, Wal};
use leadline_errors::Result;

/// Wal that becomes one segment of each table.
const CHUNK: u64 = 32 << 20;

/// Rows that wait for the encoder: few enough to stay in the processor's cache.
const BATCH: usize = 16_384;

const RECORDS: &str = "wal_record_raw";
const BLOCKS: &str = "wal_block_raw";
const TYPES: &str = "wal_record_type";

/// What was written.
#[derive(Debug, Default)]
pub struct Exported {
    /// How the reading ended.
    pub ending: Ending,
    /// Figures of each table.
    pub tables: Vec<(&'static str, Stats)>,
}

/// Writes the records of a range that `keep` wants into a capture folder that exists.
///
/// # Errors
/// What went wrong first; segments written until then stay.
pub fn export(
    log: &Arc<Wal>,
    range: Range,
    threads: usize,
    capture: &Path,
    keep: Option<&(dyn Fn(&Record<'_>) -> bool + Sync)>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Exported> {
    let worker = || Worker { capture, keep, records: Records::default(), blocks: Blocks::default() };
    let mut types = vec![false; rmgr::TYPES];
    let mut stats = [Stats::default(); 2];
    let merge = |part: Part| {
        for (sum, writer) in stats.iter_mut().zip(part.writers) {
            let written = writer.close()?;
            sum.rows += written.rows;
            sum.bytes += written.bytes;
            sum.segments += written.segments;
        }
        for (seen, new) in types.iter_mut().zip(part.types) {
            *seen |= new;
        }
        Ok(())
    };
    let ending = run(log, range, threads, CHUNK, worker, merge, go_on)?;
    let kinds = write_types(capture, log.major, &types)?;
    Ok(Exported { ending, tables: vec![(RECORDS, stats[0]), (BLOCKS, stats[1]), (TYPES, kinds)] })
}

fn write_types(capture: &Path, major: u8, seen: &[bool]) -> std::result::Result<Stats, leadline_capture::Error> {
    let mut writer = TableWriter::create(capture, TYPES, WriterOptions::default())?;
    let mut rows = BatchBuilder::new(writer.spec());
    for (type_id, _) in (0u16..).zip(seen).filter(|(_, seen)| **seen) {
        let (rmgr, record_type) = rmgr::type_names(major, type_id);
        rows.append(&[Value::Int(type_id.into()), Value::Text(&rmgr), Value::Text(&record_type)])?;
    }
    writer.write(&rows.finish()?)?;
    writer.close()
}

/// The rows of one chunk, encoded, and the kinds of records in it.
struct Part {
    writers: [TableWriter; 2],
    types: Vec<bool>,
}

struct Worker<'a> {
    capture: &'a Path,
    keep: Option<&'a (dyn Fn(&Record<'_>) -> bool + Sync)>,
    records: Records,
    blocks: Blocks,
}

impl Work for Worker<'_> {
    type Part = Part;

    fn read(&mut self, reader: &mut Reader) -> Result<Part> {
        let open = |table| TableWriter::create(self.capture, table, WriterOptions::default());
        let (mut records, mut blocks) = (open(RECORDS)?, open(BLOCKS)?);
        let mut types = vec![false; rmgr::TYPES];
        let put = |writer: &mut TableWriter, batch: Batch| batch.and_then(|b| writer.write(&b));
        while reader.advance()? {
            let record = reader.record();
            if !self.keep.is_none_or(|keep| keep(&record)) {
                continue;
            }
            types[usize::from(rmgr::type_id(record.rmid, record.info)) % rmgr::TYPES] = true;
            self.records.push(&record);
            self.blocks.push(&record);
            if self.records.start_lsn.len() >= BATCH {
                put(&mut records, self.records.take())?;
            }
            if self.blocks.start_lsn.len() >= BATCH {
                put(&mut blocks, self.blocks.take())?;
            }
        }
        put(&mut records, self.records.take())?;
        put(&mut blocks, self.blocks.take())?;
        Ok(Part { writers: [records, blocks], types })
    }
}

type Batch = std::result::Result<RecordBatch, leadline_capture::Error>;

/// A table as columns that are filled row by row: the columns, their Arrow arrays, and how a row is pushed.
macro_rules! columns {
    ($table:ident of $name:ident { $($column:ident: $native:ty => $array:ident),+ $(,)? }) => {
        #[derive(Default)]
        struct $table {
            $($column: Vec<$native>),+
        }

        impl $table {
            /// The rows so far as a batch; empty again after it.
            fn take(&mut self) -> Batch {
                let arrays: Vec<ArrayRef> =
                    vec![$(Arc::new($array::from(std::mem::replace(&mut self.$column, Vec::with_capacity(BATCH + 64)))) as ArrayRef),+];
                let schema = spec($name).map_or_else(|| Arc::new(Schema::empty()), |s| s.schema());
                RecordBatch::try_new(schema, arrays)
                    .map_err(|e| leadline_capture::Error::Schema { table: $name, detail: e.to_string() })
            }
        }
    };
}

columns!(Records of RECORDS {
    start_lsn: i64 => Int64Array, end_lsn: i64 => Int64Array, prev_lsn: i64 => Int64Array, xid: u32 => UInt32Array,
    top_xid: u32 => UInt32Array, origin: i32 => Int32Array, type_id: i32 => Int32Array, record_length: i32 => Int32Array,
    main_data_length: i32 => Int32Array, fpi_length: i32 => Int32Array, blocks: i32 => Int32Array,
});

columns!(Blocks of BLOCKS {
    start_lsn: i64 => Int64Array, block_id: i32 => Int32Array, xid: u32 => UInt32Array, type_id: i32 => Int32Array,
    spcnode: u32 => UInt32Array, dbnode: u32 => UInt32Array, relfilenode: u32 => UInt32Array, fork: i32 => Int32Array,
    block: i64 => Int64Array, flags: i32 => Int32Array, data_length: i32 => Int32Array, fpi_length: i32 => Int32Array,
    fpi_info: i32 => Int32Array, hole_offset: i32 => Int32Array, hole_length: i32 => Int32Array,
});

impl Records {
    fn push(&mut self, r: &Record<'_>) {
        self.start_lsn.push(r.start.0 as i64);
        self.end_lsn.push(r.end.0 as i64);
        self.prev_lsn.push(r.prev.0 as i64);
        self.xid.push(r.xid);
        self.top_xid.push(r.top_xid);
        self.origin.push(r.origin.into());
        self.type_id.push(rmgr::type_id(r.rmid, r.info).into());
        self.record_length.push(r.length() as i32);
        self.main_data_length.push(r.main_length() as i32);
        self.fpi_length.push(r.image_bytes() as i32);
        self.blocks.push(r.blocks.len() as i32);
    }
}

impl Blocks {
    fn push(&mut self, r: &Record<'_>) {
        let type_id = rmgr::type_id(r.rmid, r.info).into();
        for b in r.blocks {
            self.start_lsn.push(r.start.0 as i64);
            self.block_id.push(b.id.into());
            self.xid.push(r.xid);
            self.type_id.push(type_id);
            self.spcnode.push(b.relation.spc);
            self.dbnode.push(b.relation.db);
            self.relfilenode.push(b.relation.rel);
            self.fork.push(b.fork.into());
            self.block.push(b.block.into());
            self.flags.push(i32::from(b.has_image) | i32::from(b.has_data) << 1 | i32::from(b.will_init) << 2);
            self.data_length.push(b.data_length.into());
            self.fpi_length.push(b.image_length.into());
            self.fpi_info.push(b.image_info.into());
            self.hole_offset.push(b.hole_offset.into());
            self.hole_length.push(b.hole_length.into());
        }
    }
}

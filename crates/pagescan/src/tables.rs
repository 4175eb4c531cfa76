//! Rows of the tables `page`, `heap_tuple`, `index_item` and `page_file`, on their way to Parquet.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, UInt32Array};
use leadline_capture::{BatchBuilder, TableWriter, Value, WriterOptions};
use leadline_page::postgres::brin::BrinTuple;
use leadline_page::postgres::heap::TupleHeader;
use leadline_page::postgres::index_tuple::IndexTuple;
use leadline_page::postgres::line_pointer::{line_pointers, LP_NORMAL};
use leadline_page::postgres::spgist::SpgistTuple;
use leadline_page::postgres::{Header, Items, Kind, Verdict};
use leadline_page::Tid;

use crate::files::RelationFile;
use leadline_errors::Error;

/// Rows that make a batch: with those of one more page not more than a page of the Parquet file takes.
const BATCH: usize = 16_000;
/// Room for a batch, so that it does not grow row by row.
const ROOM: usize = 16_384;
/// Rows of a segment: some ten megabytes while it is made.
const SEGMENT: usize = 1 << 20;

/// Columns of one table being filled: each `Vec` is one column, in the order of the table's file.
struct Columns {
    file_id: Vec<i32>,
    block: Vec<i64>,
    lp: Vec<i32>,
    lp_off: Vec<i32>,
    lp_flags: Vec<i32>,
    lp_len: Vec<i32>,
    tid_block: Vec<i64>,
    tid_posid: Vec<i32>,
    /// `t_info`, or `t_infomask2`.
    info: Vec<i32>,
    /// Of items of an index only.
    spgist_bits: Vec<u32>,
    // Of tuples of a table only.
    xmin: Vec<u32>,
    xmax: Vec<u32>,
    field3: Vec<u32>,
    infomask: Vec<i32>,
    hoff: Vec<i32>,
}

impl Columns {
    fn new(heap: bool) -> Columns {
        let only_heap = if heap { ROOM } else { 0 };
        Columns {
            file_id: Vec::with_capacity(ROOM),
            block: Vec::with_capacity(ROOM),
            lp: Vec::with_capacity(ROOM),
            lp_off: Vec::with_capacity(ROOM),
            lp_flags: Vec::with_capacity(ROOM),
            lp_len: Vec::with_capacity(ROOM),
            tid_block: Vec::with_capacity(ROOM),
            tid_posid: Vec::with_capacity(ROOM),
            info: Vec::with_capacity(ROOM),
            spgist_bits: Vec::with_capacity(ROOM - only_heap),
            xmin: Vec::with_capacity(only_heap),
            xmax: Vec::with_capacity(only_heap),
            field3: Vec::with_capacity(only_heap),
            infomask: Vec::with_capacity(only_heap),
            hoff: Vec::with_capacity(only_heap),
        }
    }
}

/// One stored table and its rows that are not written yet.
struct Table {
    writer: TableWriter,
    columns: Columns,
    heap: bool,
    in_segment: usize,
}

impl Table {
    fn create(folder: &Path, name: &str, heap: bool) -> Result<Table, Error> {
        let writer = TableWriter::create(folder, name, WriterOptions::default())?;
        Ok(Table { writer, columns: Columns::new(heap), heap, in_segment: 0 })
    }

    fn flush(&mut self) -> Result<(), Error> {
        let rows = self.columns.lp.len();
        if rows == 0 {
            return Ok(());
        }
        let c = std::mem::replace(&mut self.columns, Columns::new(self.heap));
        let i32s = |v: Vec<i32>| Arc::new(Int32Array::from(v)) as ArrayRef;
        let i64s = |v: Vec<i64>| Arc::new(Int64Array::from(v)) as ArrayRef;
        let u32s = |v: Vec<u32>| Arc::new(UInt32Array::from(v)) as ArrayRef;
        let mut arrays =
            vec![i32s(c.file_id), i64s(c.block), i32s(c.lp), i32s(c.lp_off), i32s(c.lp_flags), i32s(c.lp_len)];
        if self.heap {
            arrays.extend([u32s(c.xmin), u32s(c.xmax), u32s(c.field3), i64s(c.tid_block), i32s(c.tid_posid)]);
            arrays.extend([i32s(c.info), i32s(c.infomask), i32s(c.hoff)]);
        } else {
            arrays.extend([i64s(c.tid_block), i32s(c.tid_posid), i32s(c.info), u32s(c.spgist_bits)]);
        }
        let spec = self.writer.spec();
        let batch = RecordBatch::try_new(spec.schema(), arrays)
            .map_err(|e| leadline_capture::Error::Schema { table: spec.name, detail: e.to_string() })?;
        self.writer.write(&batch)?;
        self.in_segment += rows;
        if self.in_segment >= SEGMENT {
            self.in_segment = 0;
            self.writer.roll()?;
        }
        Ok(())
    }
}

/// The tables that one task writes, into a folder of its own.
pub(crate) struct Tables {
    heap: Table,
    index: Table,
    pages: TableWriter,
    page_rows: BatchBuilder,
}

impl Tables {
    pub(crate) fn create(folder: &Path) -> Result<Tables, Error> {
        let pages = TableWriter::create(folder, "page", WriterOptions::default())?;
        let page_rows = BatchBuilder::new(pages.spec());
        let heap = Table::create(folder, "heap_tuple", true)?;
        Ok(Tables { heap, index: Table::create(folder, "index_item", false)?, pages, page_rows })
    }

    /// The files, one row each; `file_id` counts from 0.
    pub(crate) fn write_files(folder: &Path, files: &[RelationFile]) -> Result<(), Error> {
        let mut writer = TableWriter::create(folder, "page_file", WriterOptions::default())?;
        let mut rows = BatchBuilder::new(writer.spec());
        for (number, file) in (0..).zip(files) {
            rows.append(&[
                Value::Int(number),
                Value::Text(&file.path.to_string_lossy()),
                Value::Int(file.relation.spc.into()),
                Value::Int(file.relation.db.into()),
                Value::Int(file.relation.rel.into()),
                Value::Text(file.fork.as_str()),
                Value::Int(file.segment.into()),
                Value::Int(file.bytes as i64),
                Value::Int(file.layout.block_size.into()),
                file.layout.checksums.map_or(Value::Null, Value::Bool),
            ])?;
        }
        writer.write(&rows.finish()?)?;
        writer.close()?;
        Ok(())
    }

    /// The rows of one page.
    pub(crate) fn page(&mut self, file_id: i32, block: u32, page: &[u8], verdict: &Verdict) -> Result<(), Error> {
        let Some(header) = Header::parse(page) else { return Ok(()) };
        let mut by_flags = [0i64; 4];
        match verdict.kind.items() {
            Items::Heap => {
                heap_rows(&mut self.heap.columns, &mut by_flags, file_id, block, page, &header);
                if self.heap.columns.lp.len() >= BATCH {
                    self.heap.flush()?;
                }
            }
            items @ (Items::Index | Items::Spgist | Items::Brin) => {
                let (c, leaf) = (&mut self.index.columns, verdict.kind == Kind::SpgistLeaf);
                match items {
                    Items::Spgist => {
                        let head = |item: &[u8]| SpgistTuple::parse(item, leaf).map(|t| (t.item, t.bits));
                        index_rows(c, &mut by_flags, file_id, block, page, &header, head);
                    }
                    Items::Brin => index_rows(c, &mut by_flags, file_id, block, page, &header, brin_head),
                    _ => {
                        let head = |item: &[u8]| IndexTuple::parse(item).map(|t| (t, 0));
                        index_rows(c, &mut by_flags, file_id, block, page, &header, head);
                    }
                }
                if self.index.columns.lp.len() >= BATCH {
                    self.index.flush()?;
                }
            }
            Items::None | Items::Unknown => {}
        }
        let number = |n: u16| Value::Int(n.into());
        self.page_rows.append(&[
            Value::Int(file_id.into()),
            Value::Int(block.into()),
            Value::Text(verdict.kind.as_str()),
            Value::Int(header.pd_lsn as i64),
            number(header.pd_checksum),
            number(header.pd_flags),
            number(header.pd_lower),
            number(header.pd_upper),
            number(header.pd_special),
            Value::Int(header.pd_prune_xid.into()),
            Value::Int(by_flags[0]),
            Value::Int(by_flags[1]),
            Value::Int(by_flags[2]),
            Value::Int(by_flags[3]),
        ])?;
        if self.page_rows.len() >= BATCH {
            self.flush_pages()?;
        }
        Ok(())
    }

    fn flush_pages(&mut self) -> Result<(), Error> {
        let batch = self.page_rows.finish()?;
        self.pages.write(&batch)?;
        Ok(self.pages.roll()?)
    }

    /// Writes what is left; the rows of each table.
    pub(crate) fn close(mut self) -> Result<Vec<(&'static str, u64)>, Error> {
        self.heap.flush()?;
        self.index.flush()?;
        self.flush_pages()?;
        let mut rows = Vec::new();
        for writer in [self.heap.writer, self.index.writer, self.pages] {
            let name = writer.spec().name;
            rows.push((name, writer.close()?.rows));
        }
        Ok(rows)
    }
}

fn heap_rows(c: &mut Columns, by_flags: &mut [i64; 4], file_id: i32, block: u32, page: &[u8], header: &Header) {
    for (number, lp) in line_pointers(page, header) {
        by_flags[usize::from(lp.flags())] += 1;
        let tuple = (lp.flags() == LP_NORMAL).then(|| lp.item(page).and_then(TupleHeader::parse)).flatten();
        let tuple = tuple.unwrap_or_default(); // t_hoff 0 says that there is none
        c.lp.push(number as i32);
        c.lp_off.push(lp.off() as i32);
        c.lp_flags.push(lp.flags().into());
        c.lp_len.push(lp.len() as i32);
        c.xmin.push(tuple.t_xmin);
        c.xmax.push(tuple.t_xmax);
        c.field3.push(tuple.t_field3);
        c.tid_block.push(tuple.t_ctid.block.into());
        c.tid_posid.push(tuple.t_ctid.posid.into());
        c.info.push(tuple.t_infomask2.into());
        c.infomask.push(tuple.t_infomask.into());
        c.hoff.push(tuple.t_hoff.into());
    }
    c.file_id.resize(c.lp.len(), file_id);
    c.block.resize(c.lp.len(), block.into());
}

/// A summary is of a range of blocks: the first of them stands where other items have their row.
fn brin_head(item: &[u8]) -> Option<(IndexTuple, u32)> {
    let BrinTuple { bt_blkno, bt_info } = BrinTuple::parse(item)?;
    Some((IndexTuple { t_tid: Tid { block: bt_blkno, posid: 0 }, t_info: bt_info.into() }, 0))
}

/// `head` reads what an access method has at the start of its items: TID, 16 bits, and the first word of SP-GiST.
fn index_rows(
    c: &mut Columns,
    by_flags: &mut [i64; 4],
    file_id: i32,
    block: u32,
    page: &[u8],
    header: &Header,
    head: impl Fn(&[u8]) -> Option<(IndexTuple, u32)>,
) {
    for (number, lp) in line_pointers(page, header) {
        by_flags[usize::from(lp.flags())] += 1;
        let (tuple, spgist_bits) = lp.item(page).and_then(&head).unwrap_or_default();
        c.lp.push(number as i32);
        c.lp_off.push(lp.off() as i32);
        c.lp_flags.push(lp.flags().into());
        c.lp_len.push(lp.len() as i32);
        c.tid_block.push(tuple.t_tid.block.into());
        c.tid_posid.push(tuple.t_tid.posid.into());
        c.info.push(tuple.t_info.into());
        c.spgist_bits.push(spgist_bits);
    }
    c.file_id.resize(c.lp.len(), file_id);
    c.block.resize(c.lp.len(), block.into());
}

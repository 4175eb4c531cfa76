//! Resource managers Heap and Heap2. Source: `access/heapam_xlog.h` of each major.

use leadline_bytes::{Bytes, Result};

use super::fields::{bits, Reading, Value};
use super::inval::{self, Message};
use super::opcode;
use crate::kept::List;
use crate::record::Record;

/// The highest bit of the opcode: the page is made anew.
const INIT_PAGE: u8 = 0x80;

const INSERT: u8 = 0x00;
const DELETE: u8 = 0x10;
const UPDATE: u8 = 0x20;
const TRUNCATE: u8 = 0x30;
const HOT_UPDATE: u8 = 0x40;
const CONFIRM: u8 = 0x50;
const LOCK: u8 = 0x60;
const INPLACE: u8 = 0x70;

/// Size of `xl_heap_inplace` up to its messages, since 18; before, the record has the line pointer only.
const INPLACE_WITH_MESSAGES: usize = 20;

const INFOBITS: [(u8, &str); 5] =
    [(0x01, "IS_MULTI"), (0x02, "LOCK_ONLY"), (0x04, "EXCL_LOCK"), (0x08, "KEYSHR_LOCK"), (0x10, "KEYS_UPDATED")];

fn infobits(to: &mut Reading<'_>, name: &'static str) -> Result<()> {
    let value = to.byte(name)?;
    to.put(name, bits(value, &INFOBITS));
    Ok(())
}

pub(super) fn describe(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    match opcode(record) & !INIT_PAGE {
        INSERT => {
            to.u16("off")?;
            to.u8("flags")?;
        }
        DELETE => {
            to.u32("xmax")?;
            to.u16("off")?;
            infobits(to, "infobits")?;
            to.u8("flags")?;
        }
        UPDATE | HOT_UPDATE => {
            to.u32("old_xmax")?;
            to.u16("old_off")?;
            infobits(to, "old_infobits")?;
            to.u8("flags")?;
            to.u32("new_xmax")?;
            to.u16("new_off")?;
        }
        TRUNCATE => {
            to.u32("dbId")?;
            let relids = to.count("nrelids")?;
            let flags = to.byte("flags")?;
            to.put("flags", bits(flags, &[(1, "CASCADE"), (2, "RESTART_SEQS")]));
            to.words("relids", relids)?;
        }
        CONFIRM => {
            to.u16("off")?;
        }
        LOCK => lock(record, to)?,
        INPLACE => {
            to.u16("off")?;
            if record.main_data().len() >= INPLACE_WITH_MESSAGES {
                to.u32("dbId")?;
                to.u32("tsId")?;
                to.flag("relcacheInitFileInval")?;
                let count = to.count("nmsgs")?;
                inval::describe(to, count)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The messages an update in place sends at once, since it cannot be rolled back.
pub(super) fn inplace_messages(record: &Record<'_>) -> List<Message> {
    if opcode(record) & !INIT_PAGE != INPLACE || record.main_data().len() < INPLACE_WITH_MESSAGES {
        return List::none();
    }
    inval::after(record, 16)
}

fn lock(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    to.u32(if record.major >= 16 { "xmax" } else { "locking_xid" })?;
    to.u16("off")?;
    infobits(to, "infobits")?;
    to.u8("flags")?;
    Ok(())
}

/// Heap2: what an opcode means changed in 14 and in 17.
pub(super) fn describe2<'a>(record: &Record<'a>, to: &mut Reading<'a>) -> Result<()> {
    match (opcode(record) & !INIT_PAGE, record.major) {
        (0x00, _) => {
            for name in ["mapped_xid", "mapped_db", "mapped_rel"] {
                to.u32(name)?;
            }
            to.i64("offset")?;
            to.u32("num_mappings")?;
            to.lsn("start_lsn")
        }
        (0x10..=0x30, 17..) => prune(record, to),
        (0x10, _) => prune_before_17(record, to),
        (0x20, 13) | (0x30, 14..) => freeze_page(record, to),
        (0x20, _) => {
            let count = to.short_count("nunused")?;
            to.put("nunused", Value::Int(count as i64));
            turn_to_block(record, to).map_or(Ok(()), |()| to.offsets("unused", count))
        }
        (0x30, _) => {
            to.relation("node")?;
            to.u32("latestRemovedXid").map(|_| ())
        }
        (0x40, _) => {
            to.u32(if record.major >= 16 { "snapshotConflictHorizon" } else { "cutoff_xid" })?;
            to.u8("flags").map(|_| ())
        }
        (0x50, _) => {
            to.u8("flags")?;
            let count = to.short_count("ntuples")?;
            to.put("ntuples", Value::Int(count as i64));
            if opcode(record) & INIT_PAGE == 0 {
                to.offsets("offsets", count)?;
            }
            Ok(())
        }
        (0x60, _) => {
            to.u32("xmax")?;
            to.u16("off")?;
            infobits(to, "infobits")?;
            to.u8("flags").map(|_| ())
        }
        (0x70, _) => {
            for name in ["top_xid", "cmin", "cmax", "combo"] {
                to.u32(name)?;
            }
            to.relation("rel")?;
            tid(to)
        }
        _ => Ok(()),
    }
}

fn tid(to: &mut Reading<'_>) -> Result<()> {
    let (high, low, off) = (to.short_count("tid")?, to.short_count("tid")?, to.short_count("tid")?);
    to.put("tid", Value::Text(format!("{}/{off}", high << 16 | low).into()));
    Ok(())
}

/// Goes on in the data of block 0; none when an image stands for it.
fn turn_to_block<'a>(record: &Record<'a>, to: &mut Reading<'a>) -> Option<()> {
    let block = record.blocks.iter().find(|b| b.id == 0 && b.has_data)?;
    to.turn_to(record.data_of(block));
    Some(())
}

/// CLEAN of 13, PRUNE of 14 to 16: the last of three lists goes to the end of the data.
fn prune_before_17<'a>(record: &Record<'a>, to: &mut Reading<'a>) -> Result<()> {
    to.u32(if record.major >= 16 { "snapshotConflictHorizon" } else { "latestRemovedXid" })?;
    let (redirected, dead) = (to.short_count("nredirected")?, to.short_count("ndead")?);
    to.put("nredirected", Value::Int(redirected as i64));
    to.put("ndead", Value::Int(dead as i64));
    if record.major >= 16 {
        to.flag("isCatalogRel")?;
    }
    if turn_to_block(record, to).is_none() {
        return Ok(());
    }
    redirects(to, redirected)?;
    to.offsets("dead", dead)?;
    let unused = to.rest().len() / 2;
    to.put("nunused", Value::Int(unused as i64));
    to.offsets("unused", unused)
}

fn redirects(to: &mut Reading<'_>, count: usize) -> Result<()> {
    to.list("redirected", count, |bytes| {
        let (from, onto) = (bytes.u16("redirected")?, bytes.u16("redirected")?);
        Ok(Value::List(vec![Value::Int(from.into()), Value::Int(onto.into())]))
    })
}

/// One freeze plan since 16, with how many rows it is for.
fn freeze_plan(bytes: &mut Bytes<'_>) -> Result<(usize, Value)> {
    let xmax = bytes.u32("xmax")?;
    let (infomask2, infomask) = (bytes.u16("t_infomask2")?, bytes.u16("t_infomask")?);
    let frzflags = bytes.u8("frzflags")?;
    bytes.u8("padding")?;
    let count = bytes.u16("ntuples")?;
    let number = |n: u32| Value::Int(n.into());
    let fields = vec![
        ("xmax", number(xmax)),
        ("t_infomask2", number(infomask2.into())),
        ("t_infomask", number(infomask.into())),
        ("frzflags", number(frzflags.into())),
        ("ntuples", number(count.into())),
    ];
    Ok((count.into(), Value::Fields(fields)))
}

fn freeze_page<'a>(record: &Record<'a>, to: &mut Reading<'a>) -> Result<()> {
    if record.major < 16 {
        to.u32("cutoff_xid")?;
        let count = to.short_count("ntuples")?;
        to.put("ntuples", Value::Int(count as i64));
        if turn_to_block(record, to).is_none() {
            return Ok(());
        }
        return to.list("tuples", count, |bytes| {
            let xmax = bytes.u32("xmax")?;
            let (off, infomask2, infomask) =
                (bytes.u16("offset")?, bytes.u16("t_infomask2")?, bytes.u16("t_infomask")?);
            let frzflags = bytes.u8("frzflags")?;
            bytes.u8("padding")?;
            let number = |n: u32| Value::Int(n.into());
            Ok(Value::Fields(vec![
                ("xmax", number(xmax)),
                ("off", number(off.into())),
                ("t_infomask2", number(infomask2.into())),
                ("t_infomask", number(infomask.into())),
                ("frzflags", number(frzflags.into())),
            ]))
        });
    }
    to.u32("snapshotConflictHorizon")?;
    let plans = to.short_count("nplans")?;
    to.put("nplans", Value::Int(plans as i64));
    to.flag("isCatalogRel")?;
    if turn_to_block(record, to).is_none() {
        return Ok(());
    }
    let tuples = freeze_plans(to, plans)?;
    to.offsets("frozen", tuples)
}

/// The plans; gives how many rows they are for.
fn freeze_plans(to: &mut Reading<'_>, count: usize) -> Result<usize> {
    let mut tuples = 0;
    to.list("plans", count, |bytes| {
        let (rows, plan) = freeze_plan(bytes)?;
        tuples += rows;
        Ok(plan)
    })?;
    Ok(tuples)
}

/// PRUNE_* since 17: flags say which parts there are. No server sets the byte called `reason`: the opcode says it.
fn prune<'a>(record: &Record<'a>, to: &mut Reading<'a>) -> Result<()> {
    to.byte("reason")?;
    let flags = to.byte("flags")?;
    if flags & 0x08 != 0 {
        to.u32_unaligned("snapshotConflictHorizon")?;
    }
    to.put("isCatalogRel", Value::Bool(flags & 0x02 != 0));
    if turn_to_block(record, to).is_none() {
        return Ok(());
    }
    let mut frozen = 0;
    if flags & 0x10 != 0 {
        let plans = to.short_count("nplans")?;
        to.skip("padding", 2)?;
        to.put("nplans", Value::Int(plans as i64));
        frozen = freeze_plans(to, plans)?;
    }
    if flags & 0x20 != 0 {
        let count = to.short_count("nredirected")?;
        to.put("nredirected", Value::Int(count as i64));
        redirects(to, count)?;
    }
    for (bit, count_name, name) in [(0x40, "ndead", "dead"), (0x80, "nunused", "unused")] {
        if flags & bit != 0 {
            let count = to.short_count(count_name)?;
            to.put(count_name, Value::Int(count as i64));
            to.offsets(name, count)?;
        }
    }
    if frozen > 0 {
        to.offsets("frozen", frozen)?;
    }
    Ok(())
}

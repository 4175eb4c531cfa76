//! Resource manager Btree. Source: `access/nbtxlog.h` of each major.

use leadline_bytes::Result;

use super::fields::{Reading, Value};
use super::opcode;
use crate::record::Record;

pub(super) fn describe<'a>(record: &Record<'a>, to: &mut Reading<'a>) -> Result<()> {
    let major = record.major;
    match opcode(record) {
        0x00 | 0x10 | 0x20 | 0x50 => {
            to.u16("off")?;
        }
        0x30 | 0x40 => {
            to.u32("level")?;
            to.u16("firstrightoff")?;
            to.u16("newitemoff")?;
            to.u16("postingoff")?;
        }
        0x60 => {
            let count = to.short_count("nintervals")?;
            to.put("nintervals", Value::Int(count as i64));
            if let Some(block) = record.blocks.iter().find(|b| b.id == 0 && b.has_data) {
                to.turn_to(record.data_of(block));
                to.list("intervals", count, |bytes| {
                    let (base, items) = (bytes.u16("baseoff")?, bytes.u16("nitems")?);
                    Ok(Value::Fields(vec![("baseoff", Value::Int(base.into())), ("nitems", Value::Int(items.into()))]))
                })?;
            }
        }
        0x70 if major < 14 => {
            to.u32("latestRemovedXid")?;
            let deleted = to.count("ndeleted")?;
            to.put("ndeleted", Value::Int(deleted as i64));
            removed(record, to, deleted, 0)?;
        }
        0x70 => {
            to.u32(if major >= 16 { "snapshotConflictHorizon" } else { "latestRemovedXid" })?;
            let (deleted, updated) = counts(to)?;
            if major >= 16 {
                to.flag("isCatalogRel")?;
            }
            removed(record, to, deleted, updated)?;
        }
        0xC0 => {
            let (deleted, updated) = counts(to)?;
            removed(record, to, deleted, updated)?;
        }
        0x80 | 0x90 => {
            to.u32("left")?;
            to.u32("right")?;
            if major >= 14 {
                to.u32("level")?;
                to.u64("safexid")?;
            }
            to.u32("leafleft")?;
            to.u32("leafright")?;
            to.u32("leaftopparent")?;
            if major < 14 {
                to.u32("btpo_xact")?;
            }
        }
        0xA0 => {
            to.u32("rootblk")?;
            to.u32("level")?;
        }
        0xB0 => {
            to.u16("poffset")?;
            for name in ["leaf", "left", "right", "topparent"] {
                to.u32(name)?;
            }
        }
        0xD0 => {
            to.relation("rel")?;
            to.u32("block")?;
            match major {
                13 => to.u32("latestRemovedXid").map(|_| ())?,
                14 | 15 => to.u64("latestRemovedFullXid").map(|_| ())?,
                _ => {
                    to.u64("snapshotConflictHorizon")?;
                    to.flag("isCatalogRel")?;
                }
            }
        }
        0xE0 => meta(record, to)?,
        _ => {}
    }
    Ok(())
}

fn counts(to: &mut Reading<'_>) -> Result<(usize, usize)> {
    let (deleted, updated) = (to.short_count("ndeleted")?, to.short_count("nupdated")?);
    to.put("ndeleted", Value::Int(deleted as i64));
    to.put("nupdated", Value::Int(updated as i64));
    Ok((deleted, updated))
}

/// Items removed whole, and posting lists that lose some of their rows. 13 keeps those of DELETE in the main data.
fn removed<'a>(record: &Record<'a>, to: &mut Reading<'a>, deleted: usize, updated: usize) -> Result<()> {
    match record.blocks.iter().find(|b| b.id == 0) {
        Some(block) if block.has_data => to.turn_to(record.data_of(block)),
        _ => return Ok(()),
    }
    to.offsets("deleted", deleted)?;
    if updated == 0 {
        return Ok(());
    }
    to.offsets("updated", updated)?;
    to.list("ptids", updated, |bytes| {
        let count = bytes.u16("ndeletedtids")?;
        let places: Result<Vec<Value>> = (0..count).map(|_| Ok(Value::Int(bytes.u16("ptid")?.into()))).collect();
        Ok(Value::List(places?))
    })
}

/// META_CLEANUP writes the meta page anew from the data of block 0.
fn meta<'a>(record: &Record<'a>, to: &mut Reading<'a>) -> Result<()> {
    let Some(block) = record.blocks.iter().find(|b| b.id == 0 && b.has_data) else { return Ok(()) };
    to.turn_to(record.data_of(block));
    for name in ["version", "root", "level", "fastroot", "fastlevel"] {
        to.u32(name)?;
    }
    to.u32(if record.major >= 14 { "last_cleanup_num_delpages" } else { "oldest_btpo_xact" })?;
    Ok(())
}

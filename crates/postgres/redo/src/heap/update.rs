//! `XLOG_HEAP_UPDATE` and `XLOG_HEAP_HOT_UPDATE`: the old version of a row marked, the new one put on its own or the same page.

use std::ops::Range;

use leadline_wal::Record;

use super::{add_row, set_prunable, RowHeader, HOT_UPDATE, INIT_PAGE, KIND};
use crate::fields::Fields;
use crate::misfit::{Misfit, Result};
use crate::page::{flags, Page};
use crate::tuple::{Tid, Tuple, HEADER};
use crate::Change;

/// Flags of the record.
pub(super) const OLD_ALL_VISIBLE_CLEARED: u8 = 0x01;
pub(super) const NEW_ALL_VISIBLE_CLEARED: u8 = 0x02;
const PREFIX_FROM_OLD: u8 = 0x20;
const SUFFIX_FROM_OLD: u8 = 0x40;

/// Block ids.
const NEW: u8 = 0;
const OLD: u8 = 1;

/// The block of the old version: its own, or that of the new one.
pub(super) fn old_block(record: &Record<'_>) -> u8 {
    if record.block(OLD).is_some() {
        OLD
    } else {
        NEW
    }
}

/// `xl_heap_update`, each field wide enough that it is kept in a register: the compiler puts small ones together in memory, and a
/// processor waits for what it reads there right after it wrote parts of it.
struct Update {
    old_xmax: u32,
    old_number: u32,
    old_infobits: u32,
    flags: u32,
    new_xmax: u32,
    new_number: u32,
}

impl Update {
    #[inline]
    fn read(mut main: Fields<'_>) -> Result<Update> {
        let bytes = main.array::<14>("xl_heap_update")?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        Ok(Update {
            old_xmax: word(0),
            old_number: half(4),
            old_infobits: bytes[6].into(),
            flags: bytes[7].into(),
            new_xmax: word(8),
            new_number: half(12),
        })
    }

    fn old_number(&self) -> u16 {
        self.old_number as u16
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & u32::from(flag) != 0
    }
}

pub(super) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let update = Update::read(change.main())?;
    let old_block = old_block(change.record);
    let Some(new_block) = change.record.block(NEW) else {
        return Err(Misfit::new("block of the new row", "block 0 of the record", "none"));
    };
    let new = Tid { block: new_block.block, number: update.new_number as u16 };
    let mut old_row = if change.block.id == old_block { Some(mark_old(change, page, &update, new)?) } else { None };
    if change.block.id == NEW {
        if change.opcode() & INIT_PAGE != 0 {
            page.init(0)?;
            old_row = None;
        }
        put_new(change, page, &update, new, old_row)?;
    }
    Ok(())
}

/// Gives where the old version is.
fn mark_old(change: &Change<'_, '_>, page: &mut Page<'_>, update: &Update, new: Tid) -> Result<Range<usize>> {
    let range = page.item_range(update.old_number())?;
    let mut row = Tuple::new(&mut page.bytes_mut()[range.clone()])?;
    row.set_hot_updated(change.opcode() & KIND == HOT_UPDATE);
    row.set_xmax_bits(update.old_infobits as u8);
    row.set_xmax(update.old_xmax);
    row.set_first_cid();
    row.set_ctid(new);
    set_prunable(page, change.record.xid);
    if update.has(OLD_ALL_VISIBLE_CLEARED) {
        page.set_flag(flags::ALL_VISIBLE, false);
    }
    Ok(range)
}

/// `old`: where the old version is, when it is on the same page.
fn put_new(
    change: &Change<'_, '_>,
    page: &mut Page<'_>,
    update: &Update,
    new: Tid,
    old: Option<Range<usize>>,
) -> Result<()> {
    let mut data = change.data();
    let mut shared = |bit, what| if update.has(bit) { data.u16(what) } else { Ok(0) };
    let prefix: usize = shared(PREFIX_FROM_OLD, "length of the common prefix")?.into();
    let suffix: usize = shared(SUFFIX_FROM_OLD, "length of the common suffix")?.into();
    let header = RowHeader::read(&mut data)?;
    let from_record = data.rest();
    if prefix == 0 && suffix == 0 {
        let range = add_row(page, HEADER + from_record.len(), new.number)?;
        page.bytes_mut()[range.start + HEADER..range.end].copy_from_slice(from_record);
        header.write(&mut page.bytes_mut()[range], change.record.xid, update.new_xmax, new)?;
    } else {
        let Some(old) = old else {
            return Err(Misfit::new("block of the old row", "that of the new row", "another"));
        };
        let old_columns = old.start + Tuple::new(&mut page.bytes_mut()[old.clone()])?.hoff();
        // The bitmap of nulls comes from the record, then the prefix, then what is new, then the suffix.
        let bitmap = if prefix > 0 { usize::from(header.hoff).saturating_sub(HEADER) } else { 0 };
        let Some((bitmap, columns)) = from_record.split_at_checked(bitmap) else {
            return Err(Misfit::new("t_hoff", format_args!("at most {}", HEADER + from_record.len()), header.hoff));
        };
        if old_columns + prefix > old.end || suffix > old.len() {
            let expected = format_args!("parts of {} bytes", old.len()).to_string();
            return Err(Misfit::new("common parts", expected, format_args!("{prefix} and {suffix}").to_string()));
        }
        let range = add_row(page, HEADER + from_record.len() + prefix + suffix, new.number)?;
        let bytes = page.bytes_mut();
        let mut at = range.start + HEADER;
        bytes[at..at + bitmap.len()].copy_from_slice(bitmap);
        at += bitmap.len();
        bytes.copy_within(old_columns..old_columns + prefix, at);
        at += prefix;
        bytes[at..at + columns.len()].copy_from_slice(columns);
        at += columns.len();
        bytes.copy_within(old.end - suffix..old.end, at);
        header.write(&mut bytes[range], change.record.xid, update.new_xmax, new)?;
    }
    if update.has(NEW_ALL_VISIBLE_CLEARED) {
        page.set_flag(flags::ALL_VISIBLE, false);
    }
    Ok(())
}

//! Line pointers redirected, made dead and made free, and rows frozen.
//!
//! 13: CLEAN, FREEZE_PAGE, CLEANUP_INFO. 14 to 16: PRUNE, VACUUM, FREEZE_PAGE. Since 17 one form for all (f83d709760), whose flags
//! say which parts it has.

use leadline_wal::Record;

use crate::fields::{offsets, Fields};
use crate::misfit::{Misfit, Result};
use crate::page::{redirect, Page, DEAD, UNUSED};
use crate::tuple::Tuple;
use crate::Change;

/// Opcodes before 17.
const CLEAN_OR_PRUNE: u8 = 0x10;
const FREEZE_PAGE_13: u8 = 0x20;
const VACUUM_14: u8 = 0x20;
const FREEZE_PAGE_14: u8 = 0x30;

/// Flags since 17.
mod has {
    pub(super) const CLEANUP_LOCK: u8 = 0x04;
    pub(super) const CONFLICT_HORIZON: u8 = 0x08;
    pub(super) const FREEZE_PLANS: u8 = 0x10;
    pub(super) const REDIRECTIONS: u8 = 0x20;
    pub(super) const DEAD_ITEMS: u8 = 0x40;
    pub(super) const UNUSED_ITEMS: u8 = 0x80;
}

/// Flags of a plan to freeze rows.
const FREEZE_XVAC: u8 = 0x02;
const INVALID_XVAC: u8 = 0x04;
/// `FrozenTransactionId`.
const FROZEN: u32 = 2;

pub(super) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    match (change.opcode() & super::KIND, change.major()) {
        (_, 17..) => prune_and_freeze(change, page),
        (CLEAN_OR_PRUNE, _) => prune_before_17(change, page),
        (FREEZE_PAGE_13, ..14) | (FREEZE_PAGE_14, 14..) => freeze_page(change, page),
        (VACUUM_14, 14..) => vacuum(change, page),
        // `CLEANUP_INFO` of 13 names no block.
        (other, _) => {
            Err(Misfit::new("record of Heap2", "one that names a block", format_args!("{other:#04x}").to_string()))
        }
    }
}

/// Whether the record takes something off its page: then the server writes down its free space.
pub(super) fn frees_space(record: &Record<'_>) -> bool {
    match (record.info & super::KIND, record.major) {
        (_, 17..) => {
            let flags = record.main_data().get(1).copied().unwrap_or(0);
            flags & (has::REDIRECTIONS | has::DEAD_ITEMS | has::UNUSED_ITEMS) != 0
        }
        (CLEAN_OR_PRUNE, _) | (VACUUM_14, 14..) => true,
        _ => false,
    }
}

/// `heap_page_prune_execute` without what comes after.
fn set_line_pointers(
    page: &mut Page<'_>,
    redirected: impl Iterator<Item = u16>,
    dead: impl Iterator<Item = u16>,
    unused: impl Iterator<Item = u16>,
) -> Result<()> {
    let mut redirected = redirected;
    while let (Some(from), Some(to)) = (redirected.next(), redirected.next()) {
        page.set_line_pointer(from, redirect(to))?;
    }
    for number in dead {
        page.set_line_pointer(number, DEAD)?;
    }
    for number in unused {
        page.set_line_pointer(number, UNUSED)?;
    }
    Ok(())
}

/// CLEAN and PRUNE: what follows the dead ones is free.
fn prune_before_17(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.u32("snapshotConflictHorizon")?;
    let (redirected, dead): (usize, usize) = (main.u16("nredirected")?.into(), main.u16("ndead")?.into());
    let mut data = change.data();
    let redirected = offsets(&mut data, "redirected", 2 * redirected)?;
    let dead = offsets(&mut data, "dead", dead)?;
    let unused = data.left() / 2;
    let unused = offsets(&mut data, "unused", unused)?;
    set_line_pointers(page, redirected, dead, unused)?;
    page.repair_fragmentation(change.major())
}

/// VACUUM's second pass: dead line pointers become free, no row moves.
fn vacuum(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let count = change.main().u16("nunused")?;
    let unused = offsets(&mut change.data(), "unused", count.into())?;
    set_line_pointers(page, std::iter::empty(), std::iter::empty(), unused)?;
    page.truncate_line_pointers()
}

/// What freezing makes of some rows.
#[derive(Debug, Clone, Copy)]
struct Plan {
    xmax: u32,
    infomask2: u16,
    infomask: u16,
    flags: u8,
}

impl Plan {
    /// `heap_execute_freeze_tuple`.
    fn freeze(&self, page: &mut Page<'_>, number: u16) -> Result<()> {
        let mut row = Tuple::new(page.item_mut(number)?)?;
        row.set_xmax(self.xmax);
        if self.flags & FREEZE_XVAC != 0 {
            row.set_xvac(FROZEN);
        }
        if self.flags & INVALID_XVAC != 0 {
            row.set_xvac(0);
        }
        row.set_infomask(self.infomask);
        row.set_infomask2(self.infomask2);
        Ok(())
    }
}

fn freeze_page(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.u32("snapshotConflictHorizon")?;
    let count: usize = main.u16("nplans")?.into();
    let mut data = change.data();
    if change.major() >= 16 {
        let plans = data.part("plans", count * PLAN)?;
        return freeze(page, plans, &mut data);
    }
    // Before, each row had a plan of its own.
    for _ in 0..count {
        let xmax = data.u32("xmax")?;
        let number = data.u16("offset")?;
        let (infomask2, infomask) = (data.u16("t_infomask2")?, data.u16("t_infomask")?);
        let flags = data.u8("frzflags")?;
        data.u8("padding")?;
        Plan { xmax, infomask2, infomask, flags }.freeze(page, number)?;
    }
    Ok(())
}

/// Bytes of a plan since 16.
const PLAN: usize = 12;

/// The plans since 16, and the numbers of the rows they are for.
fn freeze(page: &mut Page<'_>, mut plans: Fields<'_>, numbers: &mut Fields<'_>) -> Result<()> {
    while plans.left() > 0 {
        let xmax = plans.u32("xmax")?;
        let (infomask2, infomask) = (plans.u16("t_infomask2")?, plans.u16("t_infomask")?);
        let flags = plans.u8("frzflags")?;
        plans.u8("padding")?;
        let plan = Plan { xmax, infomask2, infomask, flags };
        let count = plans.u16("ntuples")?;
        for number in offsets(numbers, "frozen", count.into())? {
            plan.freeze(page, number)?;
        }
    }
    Ok(())
}

/// PRUNE_ON_ACCESS, PRUNE_VACUUM_SCAN and PRUNE_VACUUM_CLEANUP of 17 and later.
fn prune_and_freeze(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    main.u8("reason")?;
    let flags = main.u8("flags")?;
    if flags & has::CONFLICT_HORIZON != 0 {
        main.u32("snapshotConflictHorizon")?;
    }
    let mut data = change.data();
    let mut plans = None;
    if flags & has::FREEZE_PLANS != 0 {
        let count: usize = data.u16("nplans")?.into();
        data.u16("padding")?;
        plans = Some(data.part("plans", count * PLAN)?);
    }
    let mut items = |bit, what, each: usize| {
        let count: usize = if flags & bit != 0 { data.u16(what)?.into() } else { 0 };
        offsets(&mut data, what, each * count)
    };
    let redirected = items(has::REDIRECTIONS, "redirected", 2)?;
    let dead = items(has::DEAD_ITEMS, "dead", 1)?;
    let unused = items(has::UNUSED_ITEMS, "unused", 1)?;
    if redirected.len() + dead.len() + unused.len() > 0 {
        set_line_pointers(page, redirected, dead, unused)?;
        if flags & has::CLEANUP_LOCK != 0 {
            page.repair_fragmentation(change.major())?;
        } else {
            page.truncate_line_pointers()?;
        }
    }
    if let Some(plans) = plans {
        freeze(page, plans, &mut data)?;
    }
    Ok(())
}

//! What VACUUM does to the pages of an SP-GiST index.
//!
//! Source: `spgRedoVacuumLeaf`, `spgRedoVacuumRoot` and `spgRedoVacuumRedirect` in `access/spgist/spgxlog.c`.

use super::tuple::{self, DeadTuple};
use super::{at, count, unknown_block, State};
use crate::fields;
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::Page;
use crate::Change;

fn check_block(change: &Change<'_, '_>) -> Result<()> {
    match change.block.id {
        0 => Ok(()),
        _ => Err(unknown_block(change)),
    }
}

/// `XLOG_SPGIST_VACUUM_LEAF`: dead chains keep a dead tuple, others become placeholders; tuples move to the head of their chain.
pub(super) fn leaf(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    check_block(change)?;
    let mut main = change.main();
    let mut next_count = || main.u16("spgxlogVacuumLeaf").map(usize::from);
    let (dead, placeholder, moved, chained) = (next_count()?, next_count()?, next_count()?, next_count()?);
    State::parse(&mut main)?;
    let mut numbers = |count| fields::offsets(&mut main, "spgxlogVacuumLeaf.offsets", count);
    let to_dead = numbers(dead)?.collect::<Vec<_>>();
    let to_placeholder = numbers(placeholder)?.collect::<Vec<_>>();
    let move_from = numbers(moved)?.collect::<Vec<_>>();
    let move_to = numbers(moved)?;
    let chain_from = numbers(chained)?;
    let chain_to = numbers(chained)?;

    let major = change.major();
    tuple::delete(major, page, &to_dead, DeadTuple::Dead, DeadTuple::Dead)?;
    tuple::delete(major, page, &to_placeholder, DeadTuple::Placeholder, DeadTuple::Placeholder)?;
    for (from, to) in move_from.iter().zip(move_to) {
        let (source, target) = (page.line_pointer(*from)?, page.line_pointer(to)?);
        page.set_line_pointer(*from, target)?;
        page.set_line_pointer(to, source)?;
    }
    tuple::delete(major, page, &move_from, DeadTuple::Placeholder, DeadTuple::Placeholder)?;
    for (from, to) in chain_from.zip(chain_to) {
        tuple::set_next(major, itup::item_mut(page, from)?, to);
    }
    Ok(())
}

/// `XLOG_SPGIST_VACUUM_ROOT`: of a root that is a leaf, tuples go away altogether.
pub(super) fn root(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    check_block(change)?;
    let mut main = change.main();
    let count = main.u16("nDelete")?;
    State::parse(&mut main)?;
    let numbers = fields::offsets(&mut main, "offsets", count.into())?.collect::<Vec<_>>();
    page.delete_index_items(change.major(), &numbers)
}

/// `XLOG_SPGIST_VACUUM_REDIRECT`: tuples that led elsewhere become placeholders, and placeholders at the page's end go away.
pub(super) fn redirects(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    check_block(change)?;
    let mut main = change.main();
    let to_placeholder = main.u16("nToPlaceholder")?;
    let first_gone = main.u16("firstPlaceholder")?;
    main.u32("snapshotConflictHorizon")?;
    if change.major() >= 16 {
        main.u16("isCatalogRel")?;
    }
    for number in fields::offsets(&mut main, "offsets", to_placeholder.into())? {
        tuple::clear_redirect(itup::item_mut(page, number)?)?;
    }
    count(page, at::REDIRECTIONS, (to_placeholder as i16).wrapping_neg())?;
    count(page, at::PLACEHOLDERS, to_placeholder as i16)?;
    if first_gone == 0 {
        return Ok(());
    }
    let gone = (first_gone..=page.max_offset()).collect::<Vec<_>>();
    let Ok(fewer) = i16::try_from(gone.len()) else {
        return Err(Misfit::new("placeholders", "no more than a page has", gone.len()));
    };
    count(page, at::PLACEHOLDERS, -fewer)?;
    page.delete_index_items(change.major(), &gone)
}

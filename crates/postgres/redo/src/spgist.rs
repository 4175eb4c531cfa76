//! Redo of SP-GiST indexes, whose tuples are in the record's main data and not with the blocks they go to.
//!
//! Owns: the records of inserts. Tuples are in [`tuple`], the records of VACUUM in [`vacuum`].
//!
//! Source: `access/spgist/spgxlog.c`, `access/spgxlog.h`, `access/spgist_private.h`, the same in 13 to 18 but for one field of
//! a record that redo skips.

mod tuple;
mod vacuum;

use crate::fields::{self, Fields};
use crate::index_tuple as itup;
use crate::misfit::{Misfit, Result};
use crate::page::{Page, Place};
use crate::{Change, Effect};
use tuple::DeadTuple;

/// Bytes of `SpGistPageOpaqueData`.
const OPAQUE: usize = 8;
/// `SPGIST_PAGE_ID`.
const PAGE_ID: u16 = 0xFF82;

/// Bits of the page's flags.
mod flag {
    pub(super) const LEAF: u16 = 1 << 2;
    pub(super) const NULLS: u16 = 1 << 3;
}

/// Offsets in `SpGistPageOpaqueData`.
mod at {
    pub(super) const FLAGS: usize = 0;
    pub(super) const REDIRECTIONS: usize = 2;
    pub(super) const PLACEHOLDERS: usize = 4;
    pub(super) const PAGE_ID: usize = 6;
}

/// Values of `xl_info`.
mod op {
    pub(super) const ADD_LEAF: u8 = 0x10;
    pub(super) const MOVE_LEAFS: u8 = 0x20;
    pub(super) const ADD_NODE: u8 = 0x30;
    pub(super) const SPLIT_TUPLE: u8 = 0x40;
    pub(super) const PICKSPLIT: u8 = 0x50;
    pub(super) const VACUUM_LEAF: u8 = 0x60;
    pub(super) const VACUUM_ROOT: u8 = 0x70;
    pub(super) const VACUUM_REDIRECT: u8 = 0x80;
}

/// Takes a page over a record.
pub(crate) fn redo(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<Effect> {
    match change.opcode() {
        op::ADD_LEAF => add_leaf(change, page),
        op::MOVE_LEAFS => move_leafs(change, page),
        op::ADD_NODE => add_node(change, page),
        op::SPLIT_TUPLE => split_tuple(change, page),
        op::PICKSPLIT => pick_split(change, page),
        op::VACUUM_LEAF => vacuum::leaf(change, page),
        op::VACUUM_ROOT => vacuum::root(change, page),
        op::VACUUM_REDIRECT => vacuum::redirects(change, page),
        opcode => Err(Misfit::new("record of SP-GiST", "a kind it has", format_args!("{opcode:#04x}").to_string())),
    }?;
    Ok(Effect::Changed)
}

#[cold]
fn unknown_block(change: &Change<'_, '_>) -> Misfit {
    let (opcode, id) = (change.opcode(), change.block.id);
    let found = format_args!("opcode {opcode:#04x}, block {id}").to_string();
    Misfit::new("block of an SP-GiST record", "one its kind has", found)
}

fn block_number(change: &Change<'_, '_>, id: u8) -> Result<u32> {
    let block = change.record.block(id);
    let lacks = || Misfit::new("blocks of an SP-GiST record", format_args!("one with id {id}"), "none");
    block.map(|block| block.block).ok_or_else(lacks)
}

fn opaque<'p>(page: &'p mut Page<'_>) -> Result<&'p mut [u8]> {
    page.special_area("SpGistPageOpaqueData", OPAQUE)
}

/// `SpGistInitPage`.
fn init(page: &mut Page<'_>, flags: u16) -> Result<()> {
    page.init(OPAQUE)?;
    let opaque = opaque(page)?;
    opaque[at::FLAGS..at::FLAGS + 2].copy_from_slice(&flags.to_le_bytes());
    opaque[at::PAGE_ID..].copy_from_slice(&PAGE_ID.to_le_bytes());
    Ok(())
}

/// Counts up or down one of the special area's counters.
fn count(page: &mut Page<'_>, at: usize, by: i16) -> Result<()> {
    let opaque = opaque(page)?;
    let counter = u16::from_le_bytes([opaque[at], opaque[at + 1]]);
    opaque[at..at + 2].copy_from_slice(&counter.wrapping_add_signed(by).to_le_bytes());
    Ok(())
}

fn nulls(stores_nulls: bool) -> u16 {
    if stores_nulls {
        flag::NULLS
    } else {
        0
    }
}

/// Another tuple at a number whose tuple goes away.
fn replace(page: &mut Page<'_>, number: u16, tuple: &[u8]) -> Result<()> {
    page.delete_index_item(number)?;
    page.add_item(tuple, Place::Insert(number))?;
    Ok(())
}

/// `addOrReplaceTuple`: at a number that is free, or has a placeholder.
fn add(page: &mut Page<'_>, number: u16, tuple: &[u8]) -> Result<()> {
    if number <= page.max_offset() {
        if tuple::state(itup::item(page, number)?) != tuple::PLACEHOLDER {
            return Err(Misfit::new("SP-GiST tuple to replace", "a placeholder", number));
        }
        count(page, at::PLACEHOLDERS, -1)?;
        page.delete_index_item(number)?;
    }
    page.add_item(tuple, Place::Insert(number))?;
    Ok(())
}

/// `spgxlogState`: who left the tuples that lead elsewhere.
#[derive(Clone, Copy)]
struct State {
    xid: u32,
    is_build: bool,
}

impl State {
    fn parse(from: &mut Fields<'_>) -> Result<State> {
        from.align(4);
        let state = State { xid: from.u32("stateSrc.redirectXid")?, is_build: from.u8("stateSrc.isBuild")? != 0 };
        from.align(4);
        Ok(state)
    }

    /// What stands for a tuple that moved: while an index is built nobody can be on the way to it.
    fn redirect(self, block: u32, number: u16) -> DeadTuple {
        if self.is_build {
            DeadTuple::Placeholder
        } else {
            DeadTuple::Redirect { block, number, xid: self.xid }
        }
    }
}

/// Which node of which inner tuple leads to what was added.
#[derive(Clone, Copy)]
struct Downlink {
    number: u16,
    node: u16,
}

impl Downlink {
    fn parse(from: &mut Fields<'_>) -> Result<Downlink> {
        Ok(Downlink { number: from.u16("offnumParent")?, node: from.u16("nodeI")? })
    }

    fn set(self, page: &mut Page<'_>, block: u32, number: u16) -> Result<()> {
        tuple::set_node(itup::item_mut(page, self.number)?, self.node, &itup::item_pointer(block, number))
    }
}

fn add_leaf(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let is_new = main.u8("newPage")? != 0;
    let stores_nulls = main.u8("storesNulls")? != 0;
    let (leaf, head) = (main.u16("offnumLeaf")?, main.u16("offnumHeadLeaf")?);
    let parent = Downlink::parse(&mut main)?;
    if change.block.id == 1 {
        return parent.set(page, block_number(change, 0)?, leaf);
    }
    let tuple = tuple::next_leaf(&mut main)?;
    if is_new {
        init(page, flag::LEAF | nulls(stores_nulls))?;
    }
    if leaf == head {
        return replace(page, leaf, tuple);
    }
    add(page, leaf, tuple)?;
    if head != 0 {
        tuple::set_next(change.major(), itup::item_mut(page, head)?, leaf);
    }
    Ok(())
}

fn move_leafs(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let moves = usize::from(main.u16("nMoves")?);
    let is_new = main.u8("newPage")? != 0;
    let replaces_dead = main.u8("replaceDead")? != 0;
    let stores_nulls = main.u8("storesNulls")? != 0;
    main.align(2);
    let parent = Downlink::parse(&mut main)?;
    let state = State::parse(&mut main)?;
    let from = fields::offsets(&mut main, "toDelete", moves)?.collect::<Vec<_>>();
    let count = if replaces_dead { 1 } else { moves + 1 };
    let to = fields::offsets(&mut main, "toInsert", count)?;
    let last = to.clone().last().unwrap_or_default();
    let target = block_number(change, 1)?;
    match change.block.id {
        0 => tuple::delete(change.major(), page, &from, state.redirect(target, last), DeadTuple::Placeholder),
        1 => {
            if is_new {
                init(page, flag::LEAF | nulls(stores_nulls))?;
            }
            for number in to {
                add(page, number, tuple::next_leaf(&mut main)?)?;
            }
            Ok(())
        }
        2 => parent.set(page, target, last),
        _ => Err(unknown_block(change)),
    }
}

fn add_node(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let (old, new) = (main.u16("offnum")?, main.u16("offnumNew")?);
    let is_new = main.u8("newPage")? != 0;
    let parent_block = main.u8("parentBlk")?;
    let parent = Downlink::parse(&mut main)?;
    let state = State::parse(&mut main)?;
    let tuple = tuple::next_inner(&mut main)?;
    if change.record.block(1).is_none() {
        return replace(page, old, tuple);
    }
    let target = block_number(change, 1)?;
    match change.block.id {
        0 => {
            let dead = state.redirect(target, new);
            replace(page, old, &dead.tuple())?;
            count(page, dead.counter(), 1)?;
        }
        1 => {
            if is_new {
                init(page, 0)?;
            }
            add(page, new, tuple)?;
        }
        2 => {}
        _ => return Err(unknown_block(change)),
    }
    // The parent is on one of the two pages, or on a third.
    if parent_block == change.block.id {
        parent.set(page, target, new)?;
    }
    Ok(())
}

fn split_tuple(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let mut main = change.main();
    let (prefix_number, postfix_number) = (main.u16("offnumPrefix")?, main.u16("offnumPostfix")?);
    let is_new = main.u8("newPage")? != 0;
    let same_page = main.u8("postfixBlkSame")? != 0;
    let prefix = tuple::next_inner(&mut main)?;
    let postfix = tuple::next_inner(&mut main)?;
    match change.block.id {
        0 => {
            replace(page, prefix_number, prefix)?;
            if same_page {
                add(page, postfix_number, postfix)?;
            }
            Ok(())
        }
        1 => {
            if is_new {
                init(page, 0)?;
            }
            add(page, postfix_number, postfix)
        }
        _ => Err(unknown_block(change)),
    }
}

/// `spgxlogPickSplit`.
struct PickSplit<'a> {
    delete: Vec<u16>,
    init_source: bool,
    init_target: bool,
    inner: u16,
    init_inner: bool,
    nulls: u16,
    inner_is_parent: bool,
    parent: Downlink,
    state: State,
    inner_tuple: &'a [u8],
    /// Where each leaf tuple goes: its number, and whether to the target page instead of the source.
    places: Vec<(u16, bool)>,
    leaf_tuples: Fields<'a>,
}

impl<'a> PickSplit<'a> {
    fn parse(change: &Change<'_, 'a>) -> Result<PickSplit<'a>> {
        let mut main = change.main();
        main.u16("isRootSplit")?; // a flag and a byte of padding
        let (deletes, inserts) = (main.u16("nDelete")?, main.u16("nInsert")?);
        let (init_source, init_target) = (main.u8("initSrc")? != 0, main.u8("initDest")? != 0);
        let inner = main.u16("offnumInner")?;
        let (init_inner, stores_nulls) = (main.u8("initInner")? != 0, main.u8("storesNulls")? != 0);
        let inner_is_parent = main.u8("innerIsParent")? != 0;
        main.align(2);
        let parent = Downlink::parse(&mut main)?;
        let state = State::parse(&mut main)?;
        let delete = fields::offsets(&mut main, "toDelete", deletes.into())?.collect();
        let numbers = fields::offsets(&mut main, "toInsert", inserts.into())?;
        let pages = main.take("leafPageSelect", inserts.into())?;
        let places = numbers.zip(pages.iter().map(|page| *page != 0)).collect();
        Ok(PickSplit {
            delete,
            init_source,
            init_target,
            inner,
            init_inner,
            nulls: nulls(stores_nulls),
            inner_is_parent,
            parent,
            state,
            inner_tuple: tuple::next_inner(&mut main)?,
            places,
            leaf_tuples: main,
        })
    }

    /// Adds the leaf tuples that go to the source or the target.
    fn add_leafs(&self, page: &mut Page<'_>, to_target: bool) -> Result<()> {
        let mut tuples = self.leaf_tuples;
        for (number, is_for_target) in &self.places {
            let tuple = tuple::next_leaf(&mut tuples)?;
            if *is_for_target == to_target {
                add(page, *number, tuple)?;
            }
        }
        Ok(())
    }
}

fn pick_split(change: &Change<'_, '_>, page: &mut Page<'_>) -> Result<()> {
    let split = PickSplit::parse(change)?;
    let inner_block = block_number(change, 2)?;
    match change.block.id {
        0 => {
            if split.init_source {
                init(page, flag::LEAF | split.nulls)?;
            } else {
                let first = split.state.redirect(inner_block, split.inner);
                tuple::delete(change.major(), page, &split.delete, first, DeadTuple::Placeholder)?;
            }
            split.add_leafs(page, false)
        }
        1 => {
            if split.init_target {
                init(page, flag::LEAF | split.nulls)?;
            }
            split.add_leafs(page, true)
        }
        2 => {
            if split.init_inner {
                init(page, split.nulls)?;
            }
            add(page, split.inner, split.inner_tuple)?;
            if split.inner_is_parent {
                split.parent.set(page, inner_block, split.inner)?;
            }
            Ok(())
        }
        3 => split.parent.set(page, inner_block, split.inner),
        _ => Err(unknown_block(change)),
    }
}

//! Items moved together to the end of their page, in the order that the server of each major puts them.
//!
//! Source: `compactify_tuples`, `PageRepairFragmentation` and `PageTruncateLinePointerArray` in `storage/page/bufpage.c`. Since 14
//! items go into the reverse order of their line pointers (19c60ad69a); in 13 they keep the order they had on the page. Since 15
//! (`PageRepairFragmentation`) and in the second pass of VACUUM since 14, unused line pointers at the end go away.

use std::cell::RefCell;

use super::{aligned, flags, LinePointer, Page, HEADER, LINE_POINTER, LP_UNUSED};
use crate::misfit::{Misfit, Result};

/// An item to move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Of its line pointer.
    pub number: u32,
    pub pointer: LinePointer,
}

impl Item {
    fn offset(&self) -> usize {
        self.pointer.off()
    }

    /// With the padding behind it.
    fn length(&self) -> usize {
        aligned(self.pointer.len())
    }

    fn end(&self) -> usize {
        self.offset() + self.length()
    }
}

thread_local! {
    // Memory alone: to allocate it for each of millions of pages would take as long as to move what is on them.
    static ITEMS: RefCell<Vec<Item>> = const { RefCell::new(Vec::new()) };
    static BEFORE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Page<'_> {
    /// Items and how long they are together, checked: moved, they fit between `pd_lower` and the index's area.
    fn check_total(&self, items: &[Item]) -> Result<()> {
        let total: usize = items.iter().map(Item::length).sum();
        let room = self.special().saturating_sub(self.lower());
        if total > room {
            return Err(Misfit::new("items of the page", format_args!("at most {room} bytes"), total));
        }
        Ok(())
    }

    /// Moves the items to the end of the page. All must be those of line pointers, lie behind `pd_upper` and begin before the index's area.
    pub(super) fn compact(&mut self, major: u8, items: &mut [Item]) -> Result<()> {
        self.check_total(items)?;
        if items.iter().any(|item| item.end() > self.size()) {
            return Err(Misfit::new("item", "bytes inside the page", "more"));
        }
        if major < 14 {
            items.sort_by_key(|item| std::cmp::Reverse(item.offset()));
        }
        let mut upper = self.special();
        // Those at the end of the page already stay.
        let mut rest = &items[..];
        while let [item, after @ ..] = rest {
            if item.end() != upper {
                break;
            }
            upper -= item.length();
            rest = after;
        }
        if rest.is_sorted_by(|a, b| a.offset() > b.offset()) {
            // From the last on the page to the first: none is overwritten before it moves.
            for_runs(rest, |items, from, length| {
                upper -= length;
                self.bytes.copy_within(from..from + length, upper);
                self.move_pointers(items, from, upper);
            });
        } else {
            BEFORE.with_borrow_mut(|before| {
                let base = rest.iter().map(Item::offset).min().unwrap_or(upper);
                let end = rest.iter().map(Item::end).max().unwrap_or(upper);
                before.clear();
                before.extend_from_slice(&self.bytes[base..end]);
                for_runs(rest, |items, from, length| {
                    upper -= length;
                    self.bytes[upper..upper + length].copy_from_slice(&before[from - base..from - base + length]);
                    self.move_pointers(items, from, upper);
                });
            });
        }
        self.set_upper(upper);
        Ok(())
    }

    /// Changes `lp_off` of items that move together, from one offset to another.
    #[inline]
    fn move_pointers(&mut self, items: &[Item], from: usize, to: usize) {
        for item in items {
            let at = HEADER + LINE_POINTER * (item.number as usize - 1);
            let offset = item.offset() - from + to;
            self.put_line_pointer(at, LinePointer(item.pointer.0 & !0x7fff | offset as u32 & 0x7fff));
        }
    }

    /// Changes `lp_off` alone.
    pub(super) fn move_pointer(&mut self, number: u16, to: usize) -> Result<()> {
        let lp = self.line_pointer(number)?;
        self.set_line_pointer(number, LinePointer(lp.0 & !0x7fff | to as u32 & 0x7fff))
    }

    /// `PageRepairFragmentation`, for heap pages: the room between items goes to the middle of the page.
    ///
    /// # Errors
    /// The page's pointers are wrong.
    pub fn repair_fragmentation(&mut self, major: u8) -> Result<()> {
        ITEMS.with_borrow_mut(|items| self.repair(major, items))
    }

    fn repair(&mut self, major: u8, items: &mut Vec<Item>) -> Result<()> {
        self.check_for_moves()?;
        items.clear();
        let (upper, special, last) = (self.upper(), self.special(), self.max_offset());
        items.resize(usize::from(last), Item { number: 0, pointer: LinePointer(0) });
        let (mut unused, mut last_used, mut found) = (0, 0, 0);
        let (pointers, _) = self.bytes[HEADER..].as_chunks_mut::<LINE_POINTER>();
        // Which of them are in use is like the toss of a coin: the processor would guess wrong, so nothing here depends on a guess.
        for (number, bytes) in (1..=u32::from(last)).zip(pointers) {
            let pointer = LinePointer(u32::from_le_bytes(*bytes));
            let is_used = pointer.flags() != LP_UNUSED;
            *bytes = (if is_used { pointer.0 } else { 0 }).to_le_bytes();
            unused += u16::from(!is_used);
            last_used = if is_used { number as u16 } else { last_used };
            // As many as there are line pointers.
            items[found] = Item { number, pointer };
            found += usize::from(is_used & !pointer.is_empty());
        }
        items.truncate(found);
        if let Some(item) = items.iter().find(|item| item.offset() < upper || item.offset() >= special) {
            return Err(Misfit::new("item", format_args!("in {upper}..{special}"), item.offset()));
        }
        if items.is_empty() {
            self.set_upper(special);
        } else {
            self.compact(major, items)?;
        }
        if major >= 15 && last_used != last {
            unused -= last - last_used;
            self.set_lower(HEADER + LINE_POINTER * usize::from(last_used));
        }
        self.set_flag(flags::HAS_FREE_LINES, unused > 0);
        Ok(())
    }

    /// `PageTruncateLinePointerArray`: unused line pointers at the end go away, all but the first.
    ///
    /// # Errors
    /// The page's header is wrong.
    pub fn truncate_line_pointers(&mut self) -> Result<()> {
        let mut left = self.max_offset();
        while left > 1 && self.line_pointer(left)?.flags() == LP_UNUSED {
            left -= 1;
        }
        let mut is_any_unused = false;
        // The server does not look at the last one it found in use, and at the first it does.
        for number in 1..=left {
            if self.line_pointer(number)?.flags() == LP_UNUSED {
                is_any_unused = true;
                break;
            }
        }
        if left < self.max_offset() {
            self.set_lower(HEADER + LINE_POINTER * usize::from(left));
        }
        self.set_flag(flags::HAS_FREE_LINES, is_any_unused);
        Ok(())
    }
}

/// Goes through items that lie one before the other without a gap, as one: gives where they begin, and how long they are together.
#[inline]
fn for_runs(items: &[Item], mut each: impl FnMut(&[Item], usize, usize)) {
    for run in items.chunk_by(|a, b| b.end() == a.offset()) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let from = last.offset();
        each(run, from, first.end() - from);
    }
}

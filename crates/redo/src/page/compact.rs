//! Items moved together to the end of their page, in the order that the server of each major puts them.
//!
//! Source: `compactify_tuples`, `PageRepairFragmentation` and `PageTruncateLinePointerArray` in `storage/page/bufpage.c`. Since 14
//! items go into the reverse order of their line pointers (19c60ad69a); in 13 they keep the order they had on the page. Since 15
//! (`PageRepairFragmentation`) and in the second pass of VACUUM since 14, unused line pointers at the end go away.

use super::{aligned, flags, LinePointer, Page, HEADER, LINE_POINTER, LP_UNUSED, UNUSED};
use crate::misfit::{Misfit, Result};

/// An item to move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Of its line pointer.
    pub number: u16,
    pub offset: u16,
    /// With the padding behind it.
    pub length: u16,
}

impl Page<'_> {
    /// Items and how long they are together, checked: moved, they fit between `pd_lower` and the index's area.
    fn check_total(&self, items: &[Item]) -> Result<()> {
        let total: usize = items.iter().map(|item| usize::from(item.length)).sum();
        let room = self.special().saturating_sub(self.lower());
        if total > room {
            return Err(Misfit::new("items of the page", format_args!("at most {room} bytes"), total));
        }
        Ok(())
    }

    /// Moves the items to the end of the page. All must lie behind `pd_upper` and begin before the index's area.
    pub(super) fn compact(&mut self, major: u8, items: &mut [Item]) -> Result<()> {
        self.check_total(items)?;
        if items.iter().any(|item| usize::from(item.offset + item.length) > self.size()) {
            return Err(Misfit::new("item", "bytes inside the page", "more"));
        }
        if major < 14 {
            items.sort_by_key(|item| std::cmp::Reverse(item.offset));
        }
        let is_sorted = items.is_sorted_by(|a, b| a.offset > b.offset);
        let mut upper = self.special();
        // Those at the end of the page already stay.
        let mut rest = &items[..];
        while let [item, after @ ..] = rest {
            if usize::from(item.offset + item.length) != upper {
                break;
            }
            upper -= usize::from(item.length);
            rest = after;
        }
        if is_sorted {
            // From the last on the page to the first: none is overwritten before it moves.
            for item in rest {
                let from = usize::from(item.offset);
                upper -= usize::from(item.length);
                self.bytes.copy_within(from..from + usize::from(item.length), upper);
                self.move_pointer(item.number, upper)?;
            }
        } else {
            let before = self.bytes.to_vec();
            for item in rest {
                let from = usize::from(item.offset);
                upper -= usize::from(item.length);
                let moved = &before[from..from + usize::from(item.length)];
                self.bytes[upper..upper + moved.len()].copy_from_slice(moved);
                self.move_pointer(item.number, upper)?;
            }
        }
        self.set_upper(upper);
        Ok(())
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
        self.check_for_moves()?;
        let (upper, special, last) = (self.upper(), self.special(), self.max_offset());
        let mut items = Vec::with_capacity(last.into());
        let (mut unused, mut last_used) = (0, 0);
        for number in 1..=last {
            let lp = self.line_pointer(number)?;
            if lp.flags() == LP_UNUSED {
                self.set_line_pointer(number, UNUSED)?;
                unused += 1;
                continue;
            }
            last_used = number;
            if lp.is_empty() {
                continue;
            }
            if lp.off() < upper || lp.off() >= special {
                return Err(Misfit::new("item", format_args!("in {upper}..{special}"), lp.off()));
            }
            items.push(Item { number, offset: lp.off() as u16, length: aligned(lp.len()) as u16 });
        }
        if items.is_empty() {
            self.set_upper(special);
        } else {
            self.compact(major, &mut items)?;
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

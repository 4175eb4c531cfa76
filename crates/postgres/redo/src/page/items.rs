//! Items put on a page, replaced and taken off it.
//!
//! Source: `PageAddItemExtended`, `PageIndexTupleDelete`, `PageIndexMultiDelete`, `PageIndexTupleDeleteNoCompact` and
//! `PageIndexTupleOverwrite` in `storage/page/bufpage.c`, the same in 13 to 18 but for the order of compaction.

use std::ops::Range;

use super::compact::Item;
use super::{aligned, flags, normal, LinePointer, Page, HEADER, LINE_POINTER, LP_UNUSED, UNUSED};
use crate::misfit::{Misfit, Result};

/// Where an item goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind the last line pointer, or into a free one where the page says there may be some.
    Free,
    /// At this number; what is there and behind it moves up one. The way of indexes.
    Insert(u16),
    /// At this number, which must be free or the next. The way of heaps (`PAI_OVERWRITE`).
    Overwrite(u16),
}

impl Page<'_> {
    /// `PageAddItemExtended`: gives the number of the item's line pointer.
    ///
    /// # Errors
    /// There is no room for it, or not at this number.
    pub fn add_item(&mut self, item: &[u8], place: Place) -> Result<u16> {
        let (range, number) = self.add_space(item.len(), place)?;
        self.bytes[range].copy_from_slice(item);
        Ok(number)
    }

    /// Likewise an item whose bytes the caller writes into the range it gets: they are what was there before.
    ///
    /// # Errors
    /// As [`Page::add_item`].
    pub fn add_space(&mut self, length: usize, place: Place) -> Result<(Range<usize>, u16)> {
        self.check_pointers()?;
        let limit = self.max_offset() + 1;
        let number = match place {
            Place::Insert(number) => number,
            Place::Overwrite(number) => {
                if number < limit {
                    let lp = self.line_pointer(number)?;
                    if lp.flags() != LP_UNUSED || !lp.is_empty() {
                        return Err(Misfit::new("place of a new item", "a free line pointer", number));
                    }
                }
                number
            }
            Place::Free => self.free_number(limit)?,
        };
        if number == 0 || number > limit {
            return Err(Misfit::new("offset number of a new item", format_args!("1 to {limit}"), number));
        }
        let moves = matches!(place, Place::Insert(_)) && number < limit;
        let lower = if number == limit || moves { self.lower() + LINE_POINTER } else { self.lower() };
        let upper = self.upper().checked_sub(aligned(length)).filter(|upper| lower <= *upper);
        let Some(upper) = upper else {
            let room = self.upper() - self.lower();
            return Err(Misfit::new("new item", format_args!("at most {room} bytes"), length));
        };
        let at = HEADER + LINE_POINTER * (usize::from(number) - 1);
        if moves {
            self.bytes.copy_within(at..lower - LINE_POINTER, at + LINE_POINTER);
        }
        self.bytes[at..at + LINE_POINTER].copy_from_slice(&normal(upper, length).0.to_le_bytes());
        self.set_lower(lower);
        self.set_upper(upper);
        Ok((upper..upper + length, number))
    }

    /// The first free line pointer, or the next one.
    fn free_number(&mut self, limit: u16) -> Result<u16> {
        if self.flags() & flags::HAS_FREE_LINES == 0 {
            return Ok(limit);
        }
        for number in 1..limit {
            let lp = self.line_pointer(number)?;
            if lp.flags() == LP_UNUSED && lp.is_empty() {
                return Ok(number);
            }
        }
        self.set_flag(flags::HAS_FREE_LINES, false);
        Ok(limit)
    }

    /// The bytes of an item of an index page: aligned and between `pd_upper` and the index's area.
    fn index_item(&self, number: u16) -> Result<(LinePointer, Range<usize>)> {
        let lp = self.line_pointer(number)?;
        let range = lp.off()..lp.off() + lp.len();
        if range.start < self.upper() || range.end > self.special() || range.start != aligned(range.start) {
            let expected = format_args!("inside {}..{}", self.upper(), self.special()).to_string();
            return Err(Misfit::new("index item", expected, format_args!("{range:?}").to_string()));
        }
        Ok((lp, range))
    }

    /// Moves what is before `until` towards the end of the page (or away from it), and the line pointers with it.
    fn shift(&mut self, until: usize, by: isize) -> Result<()> {
        let upper = self.upper();
        let Some(to) =
            upper.checked_add_signed(by).filter(|to| *to >= self.lower() && to + (until - upper) <= self.size())
        else {
            return Err(Misfit::new("moved items", "room for them on the page", by));
        };
        self.bytes.copy_within(upper..until, to);
        self.set_upper(to);
        for number in 1..=self.max_offset() {
            let lp = self.line_pointer(number)?;
            if !lp.is_empty() && lp.off() <= until {
                self.move_pointer(number, lp.off().wrapping_add_signed(by))?;
            }
        }
        Ok(())
    }

    /// `PageIndexTupleDelete`: an item and its line pointer go away.
    ///
    /// # Errors
    /// There is no such item.
    pub fn delete_index_item(&mut self, number: u16) -> Result<()> {
        self.check_for_moves()?;
        let (_, range) = self.index_item(number)?;
        let at = HEADER + LINE_POINTER * (usize::from(number) - 1);
        let lower = self.lower();
        self.bytes.copy_within(at + LINE_POINTER..lower, at);
        self.set_lower(lower - LINE_POINTER);
        self.shift(range.start, aligned(range.len()) as isize)
    }

    /// `PageIndexMultiDelete`: items and their line pointers go away. Their numbers must ascend.
    ///
    /// # Errors
    /// One of them is not there, or they do not ascend.
    pub fn delete_index_items(&mut self, major: u8, numbers: &[u16]) -> Result<()> {
        // The server goes another way for few; what is left in the middle of the page differs.
        if numbers.len() <= 2 {
            return numbers.iter().rev().try_for_each(|number| self.delete_index_item(*number));
        }
        self.check_for_moves()?;
        let mut gone = numbers.iter().peekable();
        let mut kept = Vec::with_capacity(self.max_offset().into());
        let mut items = Vec::with_capacity(self.max_offset().into());
        for number in 1..=self.max_offset() {
            let (pointer, _) = self.index_item(number)?;
            if gone.next_if(|next| **next == number).is_some() {
                continue;
            }
            kept.push(pointer);
            items.push(Item { number: kept.len() as u32, pointer });
        }
        if let Some(number) = gone.next() {
            return Err(Misfit::new("deleted items", "ascending numbers of items on the page", number));
        }
        for (number, lp) in (1..).zip(&kept) {
            self.set_line_pointer(number, *lp)?;
        }
        // Before the line pointers become fewer, the server checks that the items fit; the result is the same after.
        self.set_lower(HEADER + LINE_POINTER * kept.len());
        if items.is_empty() {
            self.set_upper(self.special());
            return Ok(());
        }
        self.compact(major, &mut items)
    }

    /// `PageIndexTupleDeleteNoCompact`: an item goes away, its line pointer only when it is the last.
    ///
    /// # Errors
    /// There is no such item.
    pub fn delete_index_item_in_place(&mut self, number: u16) -> Result<()> {
        self.check_for_moves()?;
        let (_, range) = self.index_item(number)?;
        if number < self.max_offset() {
            self.set_line_pointer(number, UNUSED)?;
        } else {
            self.set_lower(self.lower() - LINE_POINTER);
        }
        self.shift(range.start, aligned(range.len()) as isize)
    }

    /// `PageIndexTupleOverwrite`: another item in the place of one, with its line pointer's flags.
    ///
    /// # Errors
    /// There is no such item, or no room for the other.
    pub fn overwrite_index_item(&mut self, number: u16, item: &[u8]) -> Result<()> {
        self.check_for_moves()?;
        let (_, range) = self.index_item(number)?;
        let (old, new) = (aligned(range.len()), aligned(item.len()));
        if new > old + (self.upper() - self.lower()) {
            return Err(Misfit::new("changed item", "room for it on the page", item.len()));
        }
        let by = old as isize - new as isize;
        if by != 0 {
            self.shift(range.start, by)?;
        }
        let at = range.start.wrapping_add_signed(by);
        let lp = self.line_pointer(number)?;
        let moved = LinePointer(lp.0 & 0x18000 | at as u32 & 0x7fff | (item.len() as u32) << 17);
        self.set_line_pointer(number, moved)?;
        self.put("changed item", at, item)
    }

    /// `PageGetHeapFreeSpace`: room for one more row and its line pointer.
    pub fn heap_free_space(&self) -> usize {
        let room = self.upper().saturating_sub(self.lower());
        if room < LINE_POINTER {
            return 0;
        }
        let most = max_heap_rows(self.size());
        let last = self.max_offset();
        let is_unused = |number| self.line_pointer(number).is_ok_and(|lp| lp.flags() == LP_UNUSED);
        let has_free = || self.flags() & flags::HAS_FREE_LINES != 0 && (1..=last).any(is_unused);
        if usize::from(last) >= most && !has_free() {
            return 0;
        }
        room - LINE_POINTER
    }
}

/// `MaxHeapTuplesPerPage`: rows without columns.
pub fn max_heap_rows(page_size: usize) -> usize {
    (page_size - HEADER) / (aligned(23) + LINE_POINTER)
}

//! Multixacts: which transactions hold a lock together. Source: `access/transam/multixact.c`.

use std::path::Path;

use leadline_errors::{Error, Kind, Result};

use crate::control::{u32_at, u64_at, Checkpoint};
use crate::slru::Slru;
use crate::xids;

/// Offsets on a page, 4 bytes each.
const OFFSETS_PER_PAGE: u32 = 2048;
/// Members on a page: 409 groups of 4 flag bytes and 4 transactions.
const MEMBERS_PER_PAGE: u32 = 1636;
const GROUP: u32 = 4;
const GROUP_BYTES: u32 = 20;
/// The first that is valid.
const FIRST: u32 = 1;

/// Both folders of multixacts.
#[derive(Debug)]
pub(crate) struct Multixacts {
    pub offsets: Slru,
    pub members: Slru,
    /// The newest page of offsets.
    latest: u64,
    /// A page made before the log told to.
    early: Option<u64>,
}

impl Multixacts {
    pub(crate) fn new(root: &Path, _major: u8, next: u32) -> Multixacts {
        let offsets = Slru::new(root, "pg_multixact/offsets", OFFSETS_PER_PAGE);
        let latest = offsets.page_of(next);
        Multixacts { offsets, members: Slru::new(root, "pg_multixact/members", MEMBERS_PER_PAGE), latest, early: None }
    }

    /// Takes a record in; gives the transactions it names.
    pub(crate) fn take(&mut self, op: u8, main: &[u8], now: &mut Checkpoint, major: u8) -> Result<Vec<u32>> {
        let page = || if major >= 17 { u64_at(main, 0) } else { u32_at(main, 0).into() };
        match op {
            0x00 => {
                self.latest = page();
                if self.early.take() != Some(page()) {
                    self.offsets.zero(page());
                }
            }
            0x10 => self.members.zero(page()),
            0x20 => return self.create(main, now, major),
            0x30 => self.truncate(main, now)?,
            _ => {}
        }
        Ok(Vec::new())
    }

    /// `RecordNewMultiXact`.
    fn create(&mut self, main: &[u8], now: &mut Checkpoint, major: u8) -> Result<Vec<u32>> {
        let (multi, first, count) = (u32_at(main, 0), u32_at(main, 4), u32_at(main, 8));
        let listed = main.get(12..).unwrap_or_default().chunks_exact(8);
        if listed.len() < count as usize {
            return Err(Error::new(Kind::Invalid, "the record of a multixact is too short"));
        }
        let next = multi.wrapping_add(1).max(FIRST);
        let (page, next_page) = (self.offsets.page_of(multi), self.offsets.page_of(next));
        let end = first.wrapping_add(count);
        // Since December 2025 the minors of 14 and later write where the next one begins, too, and make its page early if need be.
        let writes_end = major >= 14;
        if writes_end && next_page != page && self.latest == page {
            self.offsets.zero(next_page);
            (self.latest, self.early) = (next_page, Some(next_page));
        }
        self.set_offset(multi, first)?;
        if writes_end {
            self.set_offset(next, end.max(1))?;
        }
        let mut xids = Vec::with_capacity(count as usize);
        for (n, member) in listed.take(count as usize).enumerate() {
            let (xid, status) = (u32_at(member, 0), u32_at(member, 4));
            self.set_member(first.wrapping_add(n as u32), xid, status as u8)?;
            xids.push(xid);
        }
        let after = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
        if after(next, now.next_multi) {
            now.next_multi = next;
        }
        if after(end, now.next_multi_offset) {
            now.next_multi_offset = end;
        }
        // The latest is enough: it is what the server looks at.
        Ok(xids.into_iter().reduce(|a, b| if xids::precedes(a, b) { b } else { a }).into_iter().collect())
    }

    fn set_offset(&mut self, multi: u32, offset: u32) -> Result<()> {
        let page = self.offsets.page_of(multi);
        let at = (multi % OFFSETS_PER_PAGE) as usize * 4;
        self.offsets.page(page)?[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        Ok(())
    }

    fn set_member(&mut self, member: u32, xid: u32, status: u8) -> Result<()> {
        let page = self.members.page_of(member);
        let (group, within) = (member / GROUP % (MEMBERS_PER_PAGE / GROUP), member % GROUP);
        let flags = (group * GROUP_BYTES + within) as usize;
        let at = (group * GROUP_BYTES + GROUP + 4 * within) as usize;
        let bytes = self.members.page(page)?;
        bytes[flags] = status;
        bytes[at..at + 4].copy_from_slice(&xid.to_le_bytes());
        Ok(())
    }

    /// `multixact_redo`, `XLOG_MULTIXACT_TRUNCATE_ID`.
    fn truncate(&mut self, main: &[u8], now: &mut Checkpoint) -> Result<()> {
        let (db, end_offsets) = (u32_at(main, 0), u32_at(main, 8));
        let (start_members, end_members) = (u32_at(main, 12), u32_at(main, 16));
        if (end_offsets.wrapping_sub(now.oldest_multi) as i32) > 0 {
            (now.oldest_multi, now.oldest_multi_db) = (end_offsets, db);
        }
        let file = |members: &Slru, number| Slru::file_of(members.page_of(number));
        let last = file(&self.members, u32::MAX);
        let (mut at, end) = (file(&self.members, start_members), file(&self.members, end_members));
        while at != end {
            self.members.remove(at);
            at = if at >= last { 0 } else { at + 1 };
        }
        let oldest = if end_offsets == FIRST { u32::MAX } else { end_offsets.wrapping_sub(1) };
        self.offsets.truncate(self.offsets.page_of(oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_the_end_of_the_last_multixact_are_written() {
        let root = std::env::temp_dir().join("leadline-no-such-folder");
        let mut of = Multixacts::new(&root, 18, 2047);
        let mut now = Checkpoint { next_multi: 2047, next_multi_offset: 1634, ..Checkpoint::default() };
        let words = [2047u32, 1634, 3, 700, 1, 701, 4, 699, 0];
        let main: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(of.take(0x20, &main, &mut now, 18).unwrap(), [701]);
        assert_eq!((now.next_multi, now.next_multi_offset), (2048, 1637));
        let offset = |of: &mut Multixacts, page: u64, at: usize| u32_at(&of.offsets.page(page).unwrap()[..], at * 4);
        assert_eq!((offset(&mut of, 0, 2047), offset(&mut of, 1, 0)), (1634, 1637));
        // The next page was made early: the record that makes it does nothing.
        of.take(0x00, &1u64.to_le_bytes(), &mut now, 18).unwrap();
        assert_eq!(offset(&mut of, 1, 0), 1637);
        let (last, first) = (*of.members.page(0).unwrap(), *of.members.page(1).unwrap());
        assert_eq!((last[408 * 20 + 2], u32_at(&last, 408 * 20 + 12)), (1, 700));
        assert_eq!((last[408 * 20 + 3], u32_at(&last, 408 * 20 + 16)), (4, 701));
        assert_eq!((first[0], u32_at(&first, 4)), (0, 699));
        // What 13 writes of the same record.
        let mut of = Multixacts::new(&root, 13, 2046);
        of.take(0x20, &main, &mut now, 13).unwrap();
        assert_eq!((offset(&mut of, 0, 2047), offset(&mut of, 1, 0)), (1634, 0));
    }
}

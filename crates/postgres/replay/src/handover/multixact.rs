//! Multixacts: which transactions hold a lock together. Source: `access/transam/multixact.c`.

use std::path::Path;

use leadline_bytes::Bytes;
use leadline_errors::Result;

use crate::files::control::Checkpoint;
use crate::handover::slru::{page_number, Slru};
use crate::read::xids;

/// Offsets on a page, 4 bytes each.
const OFFSETS_PER_PAGE: u32 = 2048;
/// Members on a page: 409 groups of 4 flag bytes and 4 transactions.
const MEMBERS_PER_PAGE: u32 = 1636;
const GROUP: u32 = 4;
const GROUP_BYTES: u32 = 20;
/// The first that is valid.
const FIRST: u32 = 1;

/// What a record changes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    ZeroOffsets(u64),
    ZeroMembers(u64),
    Create(Created),
    Truncate(Truncation),
    None,
}

/// `xl_multixact_create`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Created {
    mid: u32,
    moff: u32,
    /// Transactions and what each holds.
    members: Vec<(u32, u32)>,
}

/// `xl_multixact_truncate`; what it says of the first offsets is not needed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Truncation {
    oldest_multi_db: u32,
    end_trunc_off: u32,
    start_trunc_memb: u32,
    end_trunc_memb: u32,
}

impl Change {
    /// From the main data of a record.
    pub(crate) fn parse(op: u8, mut main: Bytes<'_>, major: u8) -> leadline_bytes::Result<Change> {
        Ok(match op {
            0x00 => Change::ZeroOffsets(page_number(major, &mut main)?),
            0x10 => Change::ZeroMembers(page_number(major, &mut main)?),
            0x20 => {
                let (mid, moff, count) = (main.u32("mid")?, main.u32("moff")?, main.u32("nmembers")?);
                let mut members = main.part("members", (count as usize).saturating_mul(8))?;
                let mut member = || Ok((members.u32("xid")?, members.u32("status")?));
                let members = (0..count).map(|_| member()).collect::<leadline_bytes::Result<_>>()?;
                Change::Create(Created { mid, moff, members })
            }
            0x30 => {
                let oldest_multi_db = main.u32("oldestMultiDB")?;
                main.u32("startTruncOff")?;
                Change::Truncate(Truncation {
                    oldest_multi_db,
                    end_trunc_off: main.u32("endTruncOff")?,
                    start_trunc_memb: main.u32("startTruncMemb")?,
                    end_trunc_memb: main.u32("endTruncMemb")?,
                })
            }
            _ => Change::None,
        })
    }
}

/// Both folders of multixacts.
#[derive(Debug)]
pub(crate) struct Multixacts {
    pub offsets: Slru,
    pub members: Slru,
    /// The newest page of offsets.
    latest: u64,
    /// A page made before the WAL told to.
    early: Option<u64>,
}

impl Multixacts {
    pub(crate) fn new(root: &Path, _major: u8, next: u32) -> Multixacts {
        let offsets = Slru::new(root, "pg_multixact/offsets", OFFSETS_PER_PAGE);
        let latest = offsets.page_of(next);
        Multixacts { offsets, members: Slru::new(root, "pg_multixact/members", MEMBERS_PER_PAGE), latest, early: None }
    }

    /// Takes a record in; gives the latest of the transactions it names, which is the one that the server looks at.
    pub(crate) fn take(&mut self, change: &Change, now: &mut Checkpoint, major: u8) -> Result<Option<u32>> {
        match change {
            Change::ZeroOffsets(page) => {
                self.latest = *page;
                if self.early.take() != Some(*page) {
                    self.offsets.zero(*page);
                }
            }
            Change::ZeroMembers(page) => self.members.zero(*page),
            Change::Create(created) => return self.create(created, now, major),
            Change::Truncate(truncation) => self.truncate(truncation, now)?,
            Change::None => {}
        }
        Ok(None)
    }

    /// `RecordNewMultiXact`.
    fn create(&mut self, created: &Created, now: &mut Checkpoint, major: u8) -> Result<Option<u32>> {
        let (multi, first) = (created.mid, created.moff);
        let next = multi.wrapping_add(1).max(FIRST);
        let (page, next_page) = (self.offsets.page_of(multi), self.offsets.page_of(next));
        let end = first.wrapping_add(created.members.len() as u32);
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
        for (n, (xid, status)) in created.members.iter().enumerate() {
            self.set_member(first.wrapping_add(n as u32), *xid, *status as u8)?;
        }
        let after = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
        if after(next, now.next_multi) {
            now.next_multi = next;
        }
        if after(end, now.next_multi_offset) {
            now.next_multi_offset = end;
        }
        let xids = created.members.iter().map(|(xid, _)| *xid);
        Ok(xids.reduce(|a, b| if xids::precedes(a, b) { b } else { a }))
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
    fn truncate(&mut self, truncation: &Truncation, now: &mut Checkpoint) -> Result<()> {
        let Truncation { oldest_multi_db, end_trunc_off, start_trunc_memb, end_trunc_memb } = *truncation;
        if (end_trunc_off.wrapping_sub(now.oldest_multi) as i32) > 0 {
            (now.oldest_multi, now.oldest_multi_db) = (end_trunc_off, oldest_multi_db);
        }
        let file = |members: &Slru, number| Slru::file_of(members.page_of(number));
        let last = file(&self.members, u32::MAX);
        let (mut at, end) = (file(&self.members, start_trunc_memb), file(&self.members, end_trunc_memb));
        while at != end {
            self.members.remove(at);
            at = if at >= last { 0 } else { at + 1 };
        }
        let oldest = if end_trunc_off == FIRST { u32::MAX } else { end_trunc_off.wrapping_sub(1) };
        self.offsets.truncate(self.offsets.page_of(oldest))
    }
}

#[cfg(test)]
mod tests {
    use leadline_bytes::Endian;

    use super::*;
    use crate::files::control::u32_at;

    fn change(op: u8, main: &[u8], major: u8) -> Change {
        Change::parse(op, Bytes::new(main, Endian::Little), major).unwrap()
    }

    #[test]
    fn a_record_with_fewer_members_than_it_says_is_not_taken() {
        let main: Vec<u8> = [7u32, 1, 2, 700, 1].iter().flat_map(|w| w.to_le_bytes()).collect();
        let short = Change::parse(0x20, Bytes::new(&main, Endian::Little), 18).unwrap_err();
        assert_eq!((short.what, short.wanted, short.left), ("members", 16, 8));
    }

    #[test]
    fn members_and_the_end_of_the_last_multixact_are_written() {
        let root = std::env::temp_dir().join("leadline-no-such-folder");
        let mut of = Multixacts::new(&root, 18, 2047);
        let mut now = Checkpoint { next_multi: 2047, next_multi_offset: 1634, ..Checkpoint::default() };
        let words = [2047u32, 1634, 3, 700, 1, 701, 4, 699, 0];
        let main: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(of.take(&change(0x20, &main, 18), &mut now, 18).unwrap(), Some(701));
        assert_eq!((now.next_multi, now.next_multi_offset), (2048, 1637));
        let offset = |of: &mut Multixacts, page: u64, at: usize| u32_at(&of.offsets.page(page).unwrap()[..], at * 4);
        assert_eq!((offset(&mut of, 0, 2047), offset(&mut of, 1, 0)), (1634, 1637));
        // The next page was made early: the record that makes it does nothing.
        of.take(&change(0x00, &1u64.to_le_bytes(), 18), &mut now, 18).unwrap();
        assert_eq!(offset(&mut of, 1, 0), 1637);
        let (last, first) = (*of.members.page(0).unwrap(), *of.members.page(1).unwrap());
        assert_eq!((last[408 * 20 + 2], u32_at(&last, 408 * 20 + 12)), (1, 700));
        assert_eq!((last[408 * 20 + 3], u32_at(&last, 408 * 20 + 16)), (4, 701));
        assert_eq!((first[0], u32_at(&first, 4)), (0, 699));
        // What 13 writes of the same record.
        let mut of = Multixacts::new(&root, 13, 2046);
        of.take(&change(0x20, &main, 13), &mut now, 13).unwrap();
        assert_eq!((offset(&mut of, 0, 2047), offset(&mut of, 1, 0)), (1634, 0));
    }
}

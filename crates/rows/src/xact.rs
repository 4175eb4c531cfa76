//! What became of transactions, and what that makes of a row.
//!
//! Source: src/backend/access/transam/{clog,multixact}.c, src/backend/access/heap/heapam_visibility.c.

use std::collections::HashMap;

use leadline_page::postgres::heap::TupleHeader;

use leadline_datadir::DataDir;

/// Pages of a file of pg_xact and pg_multixact.
const PAGES: u32 = 32;
/// Files of them that are kept in memory.
const KEPT: usize = 16;

/// What a row is to a snapshot taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Visible.
    Live,
    /// Visible, to every transaction there will be.
    Frozen,
    /// Deleted or updated by a transaction that committed.
    Dead,
    /// Of a transaction that did not commit.
    Aborted,
    /// Of a transaction that had not ended; of a server that was stopped by force, it never will commit.
    InProgress,
}

impl Status {
    /// As in the column `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Live => "live",
            Status::Frozen => "frozen",
            Status::Dead => "dead",
            Status::Aborted => "aborted",
            Status::InProgress => "in-progress",
        }
    }

    /// Whether a fresh snapshot sees it.
    pub fn is_visible(self) -> bool {
        matches!(self, Status::Live | Status::Frozen)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InProgress,
    Committed,
    Aborted,
}

/// The transaction logs of a data directory.
#[derive(Debug)]
pub struct Xacts {
    dir: DataDir,
    files: HashMap<(&'static str, u32), Option<Vec<u8>>>,
}

const XMIN_COMMITTED: u16 = 0x0100;
const XMIN_INVALID: u16 = 0x0200;
const XMAX_COMMITTED: u16 = 0x0400;
const XMAX_INVALID: u16 = 0x0800;
const XMAX_IS_MULTI: u16 = 0x1000;

impl Xacts {
    /// Reads nothing yet.
    pub fn new(dir: &DataDir) -> Xacts {
        Xacts { dir: dir.clone(), files: HashMap::new() }
    }

    /// What a row with this header is.
    pub fn status(&mut self, t: &TupleHeader) -> Status {
        let frozen = t.t_infomask & (XMIN_COMMITTED | XMIN_INVALID) == XMIN_COMMITTED | XMIN_INVALID;
        match self.inserted(t) {
            State::Aborted => return Status::Aborted,
            State::InProgress => return Status::InProgress,
            State::Committed => {}
        }
        if self.is_deleted(t) {
            return Status::Dead;
        }
        if frozen || t.t_xmin <= 2 {
            Status::Frozen
        } else {
            Status::Live
        }
    }

    /// Whether a transaction that had not ended, as far as pg_xact tells, could make it visible: it may have committed since pg_xact was
    /// written, or its deletion may not have.
    pub fn may_be_visible(&mut self, t: &TupleHeader) -> bool {
        self.inserted(t) != State::Aborted && !self.is_deleted(t)
    }

    fn inserted(&mut self, t: &TupleHeader) -> State {
        match t.t_infomask & (XMIN_COMMITTED | XMIN_INVALID) {
            0 => self.state(t.t_xmin),
            XMIN_INVALID => State::Aborted,
            _ => State::Committed,
        }
    }

    fn is_deleted(&mut self, t: &TupleHeader) -> bool {
        let mask = t.t_infomask;
        let only_locked = mask & 0x0080 != 0 || mask & (XMAX_IS_MULTI | 0x0050) == 0x0040;
        if mask & XMAX_INVALID != 0 || only_locked || t.t_xmax == 0 {
            return false;
        }
        if mask & XMAX_IS_MULTI != 0 {
            return self.updater(t.t_xmax).is_some_and(|xid| self.state(xid) == State::Committed);
        }
        mask & XMAX_COMMITTED != 0 || self.state(t.t_xmax) == State::Committed
    }

    /// Two bits for each transaction.
    fn state(&mut self, xid: u32) -> State {
        if xid <= 2 {
            return if xid == 0 { State::Aborted } else { State::Committed };
        }
        let per_page = self.dir.block_size as u32 * 4;
        let byte = self.byte("pg_xact", xid / per_page, (xid % per_page / 4) as usize);
        match byte.map(|b| b >> (xid % 4 * 2) & 3) {
            Some(1) => State::Committed,
            Some(2) => State::Aborted,
            // 3: of a subtransaction whose parent had not ended.
            Some(_) => State::InProgress,
            // No file: never begun, or so old that the server removed it, which it does when no row asks any more.
            None if xid.wrapping_sub(self.dir.next_xid) as i32 >= 0 => State::InProgress,
            None => State::Committed,
        }
    }

    /// The member of a multixact that did not only lock.
    fn updater(&mut self, multi: u32) -> Option<u32> {
        let start = self.member_offset(multi)?;
        let mut end = self.member_offset(multi.wrapping_add(1).max(1)).filter(|o| *o != 0);
        if end.is_none_or(|end| end.wrapping_sub(start) > 1 << 16) {
            end = Some(self.dir.next_multi_offset);
        }
        let count = end?.wrapping_sub(start).min(1 << 16);
        // Four members are together: their flags, then their transactions.
        let groups = self.dir.block_size as u32 / 20;
        for i in 0..count {
            let member = start.wrapping_add(i);
            let (page, group) = (member / 4 / groups, member / 4 % groups);
            let at = (group * 20) as usize;
            let status = self.byte("pg_multixact/members", page, at + (member % 4) as usize)?;
            if status >= 4 {
                return self.u32("pg_multixact/members", page, at + 4 + 4 * (member % 4) as usize);
            }
        }
        None
    }

    fn member_offset(&mut self, multi: u32) -> Option<u32> {
        let per_page = self.dir.block_size as u32 / 4;
        self.u32("pg_multixact/offsets", multi / per_page, (multi % per_page * 4) as usize)
    }

    fn u32(&mut self, folder: &'static str, page: u32, at: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = self.byte(folder, page, at + i)?;
        }
        Some(u32::from_le_bytes(bytes))
    }

    fn byte(&mut self, folder: &'static str, page: u32, at: usize) -> Option<u8> {
        if self.files.len() > KEPT {
            self.files.clear();
        }
        let key = (folder, page / PAGES);
        let root = &self.dir.root;
        let most = u64::from(PAGES) * self.dir.block_size as u64;
        let file = self.files.entry(key).or_insert_with(|| {
            let path = root.join(folder).join(format!("{:04X}", key.1));
            std::fs::metadata(&path).ok().filter(|about| about.len() <= most)?;
            std::fs::read(path).ok()
        });
        file.as_ref()?.get((page % PAGES) as usize * self.dir.block_size + at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn hint_bits_come_first_then_pg_xact() {
        let root: PathBuf = std::env::temp_dir().join(format!("leadline-xact-{}", std::process::id()));
        std::fs::create_dir_all(root.join("pg_xact")).unwrap();
        // Transactions 10, 11 and 12: committed, aborted, in progress.
        let mut page = vec![0; 64];
        page[2] = 0b0001 << 4 | 0b10 << 6;
        std::fs::write(root.join("pg_xact/0000"), page).unwrap();
        let (major, block_size, segment_blocks) = (16, 8192, 131_072);
        let dir =
            DataDir { root, major, block_size, segment_blocks, checksums: false, next_xid: 13, next_multi_offset: 0 };
        let mut xacts = Xacts::new(&dir);
        use Status::{Aborted, Dead, InProgress, Live};
        let rows = [
            (10, 0, XMIN_COMMITTED, Live, true),
            (11, 0, XMIN_INVALID, Aborted, false),
            (11, 0, 0, Aborted, false),
            (10, 10, 0, Dead, false),
            (10, 11, 0, Live, true),
            (10, 12, 0, Live, true),
            (10, 10, XMAX_COMMITTED, Dead, false),
            (10, 10, 0x0080, Live, true),
            (12, 0, 0, InProgress, true),
            (12, 10, 0, InProgress, false),
        ];
        for (t_xmin, t_xmax, t_infomask, status, may_be_visible) in rows {
            let header = TupleHeader { t_xmin, t_xmax, t_infomask, ..TupleHeader::default() };
            assert_eq!(xacts.status(&header), status, "{header:?}");
            assert_eq!(xacts.may_be_visible(&header), may_be_visible, "{header:?}");
        }
        std::fs::remove_dir_all(&dir.root).unwrap();
    }
}

//! What became of the transactions of a row version, as its hint bits and pg_xact say.

use leadline_datadir::{DataDir, Transactions};
use leadline_page::postgres::heap::infomask::{
    LOCK_MASK, MOVED, XMAX_COMMITTED, XMAX_EXCL_LOCK, XMAX_INVALID, XMAX_IS_MULTI, XMAX_LOCK_ONLY, XMIN_FROZEN,
    XMIN_INVALID,
};
use leadline_page::postgres::heap::TupleHeader;
use leadline_rows::xact::{Logged, Xacts};

/// The first transaction that is an ordinary one.
pub(crate) const FIRST_NORMAL: u32 = 3;

/// Whether a transaction or multixact comes before another one, as numbers that begin again have an order.
pub(crate) fn precedes(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// What xmax did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// Nothing, or no more than locking, or it was rolled back.
    No,
    /// It deleted or updated.
    By(u32, Logged),
    Unknown,
}

impl Deleted {
    /// It surely did not delete.
    pub(crate) fn is_not(self) -> bool {
        matches!(self, Deleted::No | Deleted::By(_, Logged::Aborted))
    }
}

/// Transaction logs, asked only for what they have.
pub(crate) struct Ends {
    xacts: Xacts,
    /// The oldest ones that there can be, and the next ones.
    pub oldest: u32,
    pub next: u32,
    pub oldest_multi: u32,
    pub next_multi: u32,
    /// Nobody knows these numbers.
    pub is_unknown: bool,
}

/// Whether xmax has only locked (htup_details.h, `HEAP_XMAX_IS_LOCKED_ONLY`).
pub(crate) fn only_locked(mask: u16) -> bool {
    mask & XMAX_LOCK_ONLY != 0 || mask & (XMAX_IS_MULTI | LOCK_MASK) == XMAX_EXCL_LOCK
}

/// A multixact of before 9.3, whose members are gone (htup_details.h, `HEAP_LOCKED_UPGRADED`).
pub(crate) fn is_of_an_upgrade(mask: u16) -> bool {
    mask & XMAX_IS_MULTI != 0 && mask & XMAX_LOCK_ONLY != 0 && mask & LOCK_MASK == 0
}

impl Ends {
    pub(crate) fn new(dir: &DataDir, before: Option<Transactions>, after: Option<Transactions>) -> Ends {
        let is_unknown = before.is_none() || after.is_none();
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        Ends {
            xacts: Xacts::new(dir),
            oldest: before.oldest_xid,
            next: after.next_xid,
            oldest_multi: before.oldest_multi,
            next_multi: after.next_multi,
            is_unknown,
        }
    }

    /// What pg_xact says.
    pub(crate) fn logged(&mut self, xid: u32) -> Logged {
        if xid >= FIRST_NORMAL && (self.is_unknown || precedes(xid, self.oldest) || !precedes(xid, self.next)) {
            return Logged::Unknown;
        }
        self.xacts.logged(xid)
    }

    /// What became of who wrote it.
    pub(crate) fn inserted(&mut self, t: &TupleHeader) -> Logged {
        match t.t_infomask & XMIN_FROZEN {
            _ if t.t_infomask & MOVED != 0 => Logged::Unknown,
            XMIN_INVALID => Logged::Aborted,
            0 => self.logged(t.t_xmin),
            _ => Logged::Committed,
        }
    }

    /// What became of who deleted or updated it.
    pub(crate) fn deleted(&mut self, t: &TupleHeader) -> Deleted {
        let mask = t.t_infomask;
        if mask & MOVED != 0 {
            return Deleted::Unknown;
        }
        if mask & XMAX_INVALID != 0 || only_locked(mask) {
            return Deleted::No;
        }
        match self.updater(t) {
            Some(0) => Deleted::No,
            Some(xid) if mask & (XMAX_COMMITTED | XMAX_IS_MULTI) == XMAX_COMMITTED => {
                Deleted::By(xid, Logged::Committed)
            }
            Some(xid) => Deleted::By(xid, self.logged(xid)),
            None => Deleted::Unknown,
        }
    }

    /// Who updated it or tried to, also when it was rolled back; 0: nobody; None: not known.
    pub(crate) fn updater(&mut self, t: &TupleHeader) -> Option<u32> {
        let mask = t.t_infomask;
        if mask & XMAX_IS_MULTI == 0 {
            return Some(t.t_xmax);
        }
        if mask & XMAX_INVALID != 0 {
            return None;
        }
        if only_locked(mask) {
            return Some(0);
        }
        self.members(t.t_xmax).ok().map(|updater| updater.unwrap_or(0))
    }

    /// The member of a multixact that updated, or why that is not known.
    pub(crate) fn members(&mut self, multi: u32) -> Result<Option<u32>, String> {
        self.xacts.updater(multi)
    }
}

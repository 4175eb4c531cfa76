//! What became of transactions, and what that makes of a row.
//!
//! Where pg_xact or pg_multixact do not tell, the answer is that it is not known: neither is a row taken for visible nor for deleted
//! then. Hint bits decide what they can before these files are asked.
//!
//! Source: src/backend/access/transam/{clog,multixact}.c, src/backend/access/heap/heapam_visibility.c.

use std::collections::{BTreeSet, HashMap};

use leadline_datadir::{DataDir, Transactions};
use leadline_page::postgres::heap::infomask::{
    XMAX_COMMITTED, XMAX_INVALID, XMAX_IS_MULTI, XMAX_LOCK_ONLY, XMIN_FROZEN, XMIN_INVALID,
};
use leadline_page::postgres::heap::TupleHeader;

use crate::slru::Slru;

/// So many transactions in a row do not all end by crashes: a page of pg_xact without a bit is lost.
const CRASHED_IN_A_ROW: i32 = 256;
/// Bytes of a transaction in pg_commit_ts.
const COMMIT_TIME: u32 = 10;
/// The first transaction of a cluster; initdb committed it.
const FIRST_NORMAL: u32 = 3;
/// Members of a multixact: more is damage.
const MOST_MEMBERS: u32 = 1 << 16;
/// Multixacts whose updater is remembered.
const KNOWN_MULTIS: usize = 1 << 12;
/// Reasons that are remembered.
const MOST_REASONS: usize = 20;

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
    /// Neither its hint bits nor the transaction logs tell whether its transaction, or one that deleted it, committed.
    Unknown,
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
            Status::Unknown => "unknown",
        }
    }

    /// Whether a fresh snapshot sees it.
    pub fn is_visible(self) -> bool {
        matches!(self, Status::Live | Status::Frozen)
    }

    /// Whether a fresh snapshot sees it, or may see it as far as anybody can tell.
    pub fn is_shown(self) -> bool {
        self.is_visible() || self == Status::Unknown
    }
}

/// A time of the past that rows are wanted of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Until when transactions count.
    pub until: Until,
    /// Numbers of transactions have begun again: that of a frozen row may be one of the last time around.
    pub wrapped: bool,
}

/// See [`Moment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When this transaction and all with lower numbers had ended.
    Xid(u32),
    /// Microseconds since 2000-01-01 UTC. Transactions before `oldest` have no time in pg_commit_ts: they had ended.
    #[allow(missing_docs)]
    Time { at: i64, oldest: u32 },
}

/// What pg_xact says of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    /// It committed.
    Committed,
    /// It was rolled back.
    Aborted,
    /// Neither: it runs, or ran when its server crashed, or is prepared, or is part of one that is.
    Open,
    /// There is no page for it.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InProgress,
    Committed,
    Aborted,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deleted {
    No,
    Yes,
    Unknown,
}

impl Deleted {
    fn by(state: State) -> Deleted {
        match state {
            State::Committed => Deleted::Yes,
            State::Aborted | State::InProgress => Deleted::No,
            State::Unknown => Deleted::Unknown,
        }
    }
}

/// The transaction logs of a data directory.
#[derive(Debug)]
pub struct Xacts {
    about: Option<Transactions>,
    log: Slru,
    offsets: Slru,
    members: Slru,
    times: Slru,
    moment: Option<Moment>,
    /// Of multixacts asked for lately, whether they deleted.
    multis: HashMap<u32, Deleted>,
    reasons: BTreeSet<String>,
}

impl Xacts {
    /// Reads nothing yet.
    pub fn new(dir: &DataDir) -> Xacts {
        Xacts::at(dir, None)
    }

    /// The same of an earlier time: what ended later had not ended.
    pub fn at(dir: &DataDir, moment: Option<Moment>) -> Xacts {
        Xacts {
            about: dir.transactions,
            log: Slru::new(dir, "pg_xact"),
            offsets: Slru::new(dir, "pg_multixact/offsets"),
            members: Slru::new(dir, "pg_multixact/members"),
            times: Slru::new(dir, "pg_commit_ts"),
            moment,
            multis: HashMap::new(),
            reasons: BTreeSet::new(),
        }
    }

    /// What pg_xact says of a transaction, no more than that.
    pub fn logged(&mut self, xid: u32) -> Logged {
        match xid {
            0 => return Logged::Aborted,
            1 | 2 => return Logged::Committed,
            _ => {}
        }
        let per_page = self.log.block_size as u32 * 4;
        match self.log.byte(xid / per_page, (xid % per_page / 4) as usize).map(|b| b >> (xid % 4 * 2) & 3) {
            Some(1) => Logged::Committed,
            Some(2) => Logged::Aborted,
            Some(_) if !self.is_wiped(xid / per_page) => Logged::Open,
            _ => Logged::Unknown,
        }
    }

    /// What a row with this header is.
    pub fn status(&mut self, t: &TupleHeader) -> Status {
        let mask = t.t_infomask;
        if self.moment.is_none()
            && mask & XMIN_FROZEN == 0
            && mask & (XMAX_COMMITTED | XMAX_INVALID | XMAX_IS_MULTI | XMAX_LOCK_ONLY) == XMAX_COMMITTED
        {
            return Status::Dead; // who deleted it saw it
        }
        let inserted = match self.inserted(t) {
            State::Aborted => return Status::Aborted,
            State::InProgress => return Status::InProgress,
            state => state,
        };
        match (inserted, self.deleted(t)) {
            // Who deleted it saw it.
            (_, Deleted::Yes) => Status::Dead,
            (State::Unknown, _) | (_, Deleted::Unknown) => Status::Unknown,
            _ if mask & XMIN_FROZEN == XMIN_FROZEN || t.t_xmin <= 2 => Status::Frozen,
            _ => Status::Live,
        }
    }

    /// Whether a transaction that had not ended, as far as pg_xact tells, could make it visible: it may have committed since pg_xact was
    /// written, or its deletion may not have.
    pub fn may_be_visible(&mut self, t: &TupleHeader) -> bool {
        self.inserted(t) != State::Aborted && self.deleted(t) != Deleted::Yes
    }

    /// Whether it names a transaction or multixact that there cannot be yet.
    pub fn is_of_the_future(&self, t: &TupleHeader) -> bool {
        let Some(about) = self.about else { return false };
        let by_xmin = t.t_infomask & XMIN_FROZEN != XMIN_FROZEN && about.is_impossible(t.t_xmin);
        let has_xmax = t.t_infomask & XMAX_INVALID == 0 && t.t_xmax != 0;
        let by_xmax = match t.t_infomask & XMAX_IS_MULTI {
            0 => about.is_impossible(t.t_xmax),
            _ => about.is_impossible_multi(t.t_xmax),
        };
        by_xmin || has_xmax && by_xmax
    }

    /// Why the status of rows was not known so far.
    pub fn reasons(&self) -> &BTreeSet<String> {
        &self.reasons
    }

    fn inserted(&mut self, t: &TupleHeader) -> State {
        match t.t_infomask & XMIN_FROZEN {
            0 => self.state(t.t_xmin),
            XMIN_INVALID => State::Aborted,
            hints => match self.by_then(t.t_xmin) {
                State::InProgress if hints == XMIN_FROZEN && self.moment.is_some_and(|moment| moment.wrapped) => {
                    self.reason(|| "frozen rows whose transactions may be older than they seem".into());
                    State::Unknown
                }
                state => state,
            },
        }
    }

    /// A transaction that committed in the end.
    fn by_then(&mut self, xid: u32) -> State {
        let later = match self.moment.map(|moment| moment.until) {
            None => return State::Committed,
            Some(_) if xid < FIRST_NORMAL => false,
            Some(Until::Xid(last)) => xid.wrapping_sub(last) as i32 > 0,
            Some(Until::Time { oldest, .. }) if (xid.wrapping_sub(oldest) as i32) < 0 => false,
            Some(Until::Time { at, .. }) => match self.committed_at(xid) {
                Some(time) => time > at,
                None => {
                    self.reason(|| "transactions whose time of commit is not in pg_commit_ts".into());
                    return State::Unknown;
                }
            },
        };
        if later {
            State::InProgress
        } else {
            State::Committed
        }
    }

    /// Ten bytes for each transaction: a time and where it came from.
    fn committed_at(&mut self, xid: u32) -> Option<i64> {
        let per_page = self.times.block_size as u32 / COMMIT_TIME;
        let (page, at) = (xid / per_page, (xid % per_page * COMMIT_TIME) as usize);
        let (low, high) = (self.times.u32(page, at)?, self.times.u32(page, at + 4)?);
        let time = u64::from(high) << 32 | u64::from(low);
        (time != 0).then_some(time as i64)
    }

    fn deleted(&mut self, t: &TupleHeader) -> Deleted {
        let mask = t.t_infomask;
        let only_locked = mask & XMAX_LOCK_ONLY != 0 || mask & (XMAX_IS_MULTI | 0x0050) == 0x0040;
        if mask & XMAX_INVALID != 0 || only_locked || t.t_xmax == 0 {
            return Deleted::No;
        }
        if mask & XMAX_IS_MULTI != 0 {
            return self.deleted_by_multi(t.t_xmax);
        }
        if mask & XMAX_COMMITTED != 0 {
            return Deleted::by(self.by_then(t.t_xmax));
        }
        Deleted::by(self.state(t.t_xmax))
    }

    /// Two bits for each transaction.
    fn state(&mut self, xid: u32) -> State {
        if xid < FIRST_NORMAL {
            return if xid == 0 { State::Aborted } else { State::Committed };
        }
        let per_page = self.log.block_size as u32 * 4;
        let page = xid / per_page;
        let is_impossible = self.about.is_some_and(|about| about.is_impossible(xid));
        let may_have_begun = !is_impossible && self.about.is_some_and(|about| about.is_future(xid));
        match self.log.byte(page, (xid % per_page / 4) as usize).map(|b| b >> (xid % 4 * 2) & 3) {
            Some(1) => self.by_then(xid),
            Some(2) => State::Aborted,
            _ if may_have_begun => State::InProgress,
            Some(_) if is_impossible => {
                self.reason(|| "transactions later than the next one that pg_control names".into());
                State::Unknown
            }
            // 3: of a subtransaction whose parent had not ended.
            Some(_) if !self.is_wiped(page) => State::InProgress,
            _ => {
                let why = self.log.why(page);
                self.reason(|| why);
                State::Unknown
            }
        }
    }

    /// Whether a page of pg_xact says nothing of transactions that had ended.
    pub(crate) fn is_wiped(&mut self, page: u32) -> bool {
        if !self.log.is_blank(page) {
            return false;
        }
        let Some(about) = self.about else { return true };
        let first = page.wrapping_mul(self.log.block_size as u32 * 4);
        let ended = about.oldest_active_xid.wrapping_sub(first) as i32;
        ended >= CRASHED_IN_A_ROW || first == 0 && ended > FIRST_NORMAL as i32
    }

    fn deleted_by_multi(&mut self, multi: u32) -> Deleted {
        if let Some(known) = self.multis.get(&multi) {
            return *known;
        }
        let deleted = match self.updater(multi) {
            Ok(updater) => updater.map_or(Deleted::No, |xid| Deleted::by(self.state(xid))),
            Err(why) => {
                self.reason(|| why);
                Deleted::Unknown
            }
        };
        if self.multis.len() >= KNOWN_MULTIS {
            self.multis.clear();
        }
        self.multis.insert(multi, deleted);
        deleted
    }

    /// The member of a multixact that did not only lock.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn updater(&mut self, multi: u32) -> Result<Option<u32>, String> {
        if let Some(about) = self.about {
            let is_future = multi.wrapping_sub(about.next_multi) as i32 >= 0;
            if is_future && !about.is_impossible_multi(multi) {
                return Ok(None); // it began after the checkpoint: its members had not ended, as far as the files tell
            }
            if is_future || (multi.wrapping_sub(about.oldest_multi) as i32) < 0 {
                return Err("multixacts that do not exist according to pg_control".into());
            }
        }
        let start = self.member_offset(multi)?;
        // Number 0 is left out when they begin again.
        let next = multi.wrapping_add(1).max(1);
        let end = match self.about {
            Some(about) if next == about.next_multi => about.next_multi_offset,
            _ => self.member_offset(next)?,
        };
        let count = end.wrapping_sub(start);
        if count == 0 || count > MOST_MEMBERS {
            return Err("entries of pg_multixact/offsets that do not fit each other".into());
        }
        // Four members are together: their flags, then their transactions.
        let groups = self.members.block_size as u32 / 20;
        for i in 0..count {
            let member = start.wrapping_add(i);
            let (page, group) = (member / 4 / groups, member / 4 % groups);
            let at = (group * 20) as usize;
            let status = self.members.byte(page, at + (member % 4) as usize);
            let xid = self.members.u32(page, at + 4 + 4 * (member % 4) as usize);
            let (Some(status), Some(xid)) = (status, xid) else { return Err(self.members.why(page)) };
            if xid == 0 && self.members.is_blank(page) {
                return Err(self.members.why(page));
            }
            match status {
                // Where the numbers of members begin again, the first one is left out.
                _ if member == 0 => {}
                _ if xid < FIRST_NORMAL => return Err("members of multixacts that are no transactions".into()),
                0..=3 => {}
                4 | 5 => return Ok(Some(xid)),
                _ => return Err("members of multixacts with an impossible lock mode".into()),
            }
        }
        Ok(None)
    }

    fn member_offset(&mut self, multi: u32) -> Result<u32, String> {
        let per_page = self.offsets.block_size as u32 / 4;
        let page = multi / per_page;
        match self.offsets.u32(page, (multi % per_page * 4) as usize) {
            Some(0) if !self.offsets.is_blank(page) => Err("entries of pg_multixact/offsets that are zero".into()),
            None | Some(0) => Err(self.offsets.why(page)),
            Some(offset) => Ok(offset),
        }
    }

    #[cold]
    fn reason(&mut self, why: impl FnOnce() -> String) {
        if self.reasons.len() < MOST_REASONS {
            self.reasons.insert(why());
        }
    }
}

#[cfg(test)]
mod tests {
    use leadline_page::postgres::heap::infomask::XMIN_COMMITTED;

    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A data directory with nothing but transaction logs, removed at the end.
    struct Made(DataDir);

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.root);
        }
    }

    impl Made {
        fn new(name: &str, about: Option<Transactions>) -> Made {
            let root: PathBuf = std::env::temp_dir().join(format!("leadline-xact-{}-{name}", std::process::id()));
            for folder in ["pg_xact", "pg_multixact/offsets", "pg_multixact/members"] {
                fs::create_dir_all(root.join(folder)).unwrap();
            }
            let (major, block_size, segment_blocks) = (16, 8192, 131_072);
            Made(DataDir {
                root,
                major,
                block_size,
                segment_blocks,
                checksums: false,
                transactions: about,
                control_lost: None,
            })
        }

        fn file(&self, name: &str, bytes: &[u8]) {
            fs::write(self.0.root.join(name), bytes).unwrap();
        }

        fn status(&self, t_xmin: u32, t_xmax: u32, t_infomask: u16) -> (Status, Vec<String>) {
            let mut xacts = Xacts::new(&self.0);
            let status = xacts.status(&TupleHeader { t_xmin, t_xmax, t_infomask, ..TupleHeader::default() });
            (status, xacts.reasons().iter().cloned().collect())
        }
    }

    fn about(next_xid: u32, is_final: bool) -> Option<Transactions> {
        let (oldest_xid, next_multi, next_multi_offset) = (3, 3, 5);
        let (oldest_active_xid, oldest_multi) = (next_xid, 1);
        Some(Transactions {
            oldest_xid,
            next_xid,
            oldest_active_xid,
            oldest_multi,
            next_multi,
            next_multi_offset,
            is_final,
        })
    }

    /// A page of pg_xact in which transaction 3 committed, and some others have these two bits.
    fn log(others: &[(usize, u8)]) -> Vec<u8> {
        let mut page = vec![0; 8192];
        for (xid, bits) in [(3, 1)].iter().chain(others) {
            page[xid / 4] |= bits << (xid % 4 * 2);
        }
        page
    }

    #[test]
    fn a_transaction_after_the_moment_had_not_ended() {
        let made = Made::new("moment", about(13, false));
        made.file("pg_xact/0000", &log(&[(10, 1), (11, 1), (12, 1)]));
        let mut times = vec![0; 8192];
        for (xid, time) in [(10, 100i64), (11, 90)] {
            times[xid * 10..xid * 10 + 8].copy_from_slice(&time.to_le_bytes());
        }
        fs::create_dir_all(made.0.root.join("pg_commit_ts")).unwrap();
        made.file("pg_commit_ts/0000", &times);
        let xid = |last, wrapped| Moment { until: Until::Xid(last), wrapped };
        let time = |at| Moment { until: Until::Time { at, oldest: 10 }, wrapped: false };
        let hinted = XMIN_COMMITTED | XMAX_COMMITTED;
        for (moment, t_xmin, t_xmax, t_infomask, status) in [
            (xid(10, false), 10, 11, 0, Live),
            (xid(10, false), 10, 11, hinted, Live),
            (xid(11, false), 10, 11, hinted, Dead),
            (xid(10, false), 11, 0, 0, InProgress),
            (xid(10, false), 11, 0, XMIN_FROZEN, InProgress),
            (xid(10, true), 11, 0, XMIN_FROZEN, Unknown),
            (xid(10, true), 10, 0, XMIN_FROZEN, Frozen),
            (time(95), 11, 0, 0, Live),
            (time(95), 10, 0, 0, InProgress),
            (time(95), 11, 10, hinted, Live),
            (time(100), 11, 10, hinted, Dead),
            (time(95), 9, 0, XMIN_COMMITTED, Live),
            (time(95), 12, 0, 0, Unknown),
        ] {
            let header = TupleHeader { t_xmin, t_xmax, t_infomask, ..TupleHeader::default() };
            assert_eq!(Xacts::at(&made.0, Some(moment)).status(&header), status, "{moment:?} {header:?}");
        }
    }

    use Status::{Aborted, Dead, Frozen, InProgress, Live, Unknown};

    #[test]
    fn hint_bits_come_first_then_pg_xact() {
        let made = Made::new("hints", about(13, false));
        made.file("pg_xact/0000", &log(&[(10, 1), (11, 2)])); // 12 had not ended
        let mut xacts = Xacts::new(&made.0);
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
            (40_000, 0, 0, InProgress, true), // begun since the checkpoint, as far as the files tell
            (1 << 28, 0, 0, InProgress, true),
        ];
        for (t_xmin, t_xmax, t_infomask, status, may_be_visible) in rows {
            let header = TupleHeader { t_xmin, t_xmax, t_infomask, ..TupleHeader::default() };
            assert_eq!(xacts.status(&header), status, "{header:?}");
            assert_eq!(xacts.may_be_visible(&header), may_be_visible, "{header:?}");
        }
        assert!(xacts.reasons().is_empty());
        // Nor does a server begin so many between two checkpoints: it is one that is long gone.
        assert_eq!(made.status(13 + (1 << 28), 0, 0), (Unknown, vec!["pg_xact/0100 is missing".into()]));
    }

    #[test]
    fn what_the_hint_bits_do_not_say_is_not_known_without_pg_xact() {
        let rows = [
            (10, 0, 0, Unknown),
            (10, 11, XMAX_INVALID, Unknown),
            (10, 11, XMIN_COMMITTED, Unknown),
            (10, 11, XMIN_COMMITTED | XMAX_INVALID, Live),
            (10, 11, XMIN_FROZEN | 0x0080, Frozen),
            (10, 11, XMIN_COMMITTED | XMAX_COMMITTED, Dead),
            (10, 11, XMAX_COMMITTED, Dead),
            (10, 0, XMIN_INVALID, Aborted),
            (2, 0, 0, Frozen),
        ];
        for is_final in [false, true] {
            let made = Made::new(&format!("lost-{is_final}"), about(13, is_final));
            for (content, why) in [
                (None, "pg_xact/0000 is missing"),
                (Some(vec![]), "pg_xact/0000 is too short"),
                (Some(vec![0x40, 1]), "pg_xact/0000 is too short"),
                (Some(vec![0; 8192]), "page 0 of pg_xact/0000 contains only zeros"),
            ] {
                if let Some(content) = content {
                    made.file("pg_xact/0000", &content);
                }
                for (xmin, xmax, mask, status) in rows {
                    let reasons = if status == Unknown { vec![why.to_owned()] } else { vec![] };
                    assert_eq!(made.status(xmin, xmax, mask), (status, reasons), "{why} {xmin} {xmax} {mask:x}");
                }
            }
        }
    }

    #[test]
    fn a_page_without_a_bit_is_lost_when_many_transactions_of_it_had_ended() {
        let made = Made::new("wiped", about(32_768 + 300, true));
        made.file("pg_xact/0000", &[log(&[]), vec![0; 8192]].concat());
        assert_eq!(made.status(32_768 + 7, 0, 0).1, ["page 1 of pg_xact/0000 contains only zeros"]);
        let few = Made::new("crashed", about(32_768 + 30, true));
        few.file("pg_xact/0000", &[log(&[]), vec![0; 8192]].concat());
        assert_eq!(few.status(32_768 + 7, 0, 0), (InProgress, vec![]));
    }

    #[test]
    fn after_the_end_of_a_server_there_are_no_later_transactions() {
        let made = Made::new("future", about(13, true));
        made.file("pg_xact/0000", &log(&[(20, 1)]));
        let later = "transactions later than the next one that pg_control names";
        assert_eq!(made.status(14, 0, 0), (Unknown, vec![later.to_owned()]));
        assert_eq!(made.status(20, 0, 0), (Live, vec![]));
        assert_eq!(made.status(14, 0, XMIN_COMMITTED), (Live, vec![]));
        assert_eq!(made.status(40_000, 0, 0).1, ["pg_xact/0000 is too short"]);
        let xacts = Xacts::new(&made.0);
        for (t_xmin, t_xmax, t_infomask, is_future) in [
            (14, 0, XMIN_COMMITTED, true),
            (12, 14, XMIN_COMMITTED, true),
            (12, 14, XMAX_INVALID, false),
            (14, 0, XMIN_FROZEN, false),
            (12, 2, XMAX_IS_MULTI, false),
            (12, 3, XMAX_IS_MULTI, true),
        ] {
            let header = TupleHeader { t_xmin, t_xmax, t_infomask, ..TupleHeader::default() };
            assert_eq!(xacts.is_of_the_future(&header), is_future, "{header:?}");
        }
    }

    /// Multixact 1 has members 1 and 2: 10 locked, and 10 updated or 11 did not. Multixact 2 has 3 and 4: both locked.
    fn multixacts(made: &Made, updater: u32) {
        made.file("pg_xact/0000", &log(&[(10, 1), (11, 2)]));
        let words = |words: &[u32]| -> Vec<u8> {
            let mut page: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            page.resize(8192, 0);
            page
        };
        made.file("pg_multixact/offsets/0000", &words(&[0, 1, 3, 5]));
        made.file("pg_multixact/members/0000", &words(&[0x0105_0100, 0, 10, updater, 10, 0, 11]));
    }

    #[test]
    fn a_multixact_deleted_when_its_updater_committed() {
        const HEADER: u16 = XMIN_COMMITTED | XMAX_IS_MULTI;
        let made = Made::new("multi", about(13, true));
        multixacts(&made, 10);
        assert_eq!(made.status(10, 1, HEADER), (Dead, vec![]));
        assert_eq!(made.status(10, 2, HEADER), (Live, vec![]));
        assert_eq!(made.status(10, 2, HEADER | 0x0080), (Live, vec![]));
        assert_eq!(made.status(10, 9, HEADER).1, ["multixacts that do not exist according to pg_control"]);
        multixacts(&made, 11);
        assert_eq!(made.status(10, 1, HEADER), (Live, vec![]));
        for (name, content, why) in [
            ("members", None, "pg_multixact/members/0000 is missing"),
            ("members", Some(vec![0; 8192]), "page 0 of pg_multixact/members/0000 contains only zeros"),
            ("members", Some(vec![0; 9]), "pg_multixact/members/0000 is too short"),
            ("members", Some(vec![9; 8192]), "members of multixacts with an impossible lock mode"),
            ("offsets", None, "pg_multixact/offsets/0000 is missing"),
            ("offsets", Some(vec![0; 8192]), "page 0 of pg_multixact/offsets/0000 contains only zeros"),
            ("offsets", Some(vec![9; 8192]), "entries of pg_multixact/offsets that do not fit each other"),
            ("offsets", Some([[0, 0, 0, 1], [0; 4]].concat()), "entries of pg_multixact/offsets that are zero"),
        ] {
            multixacts(&made, 10);
            let path = format!("pg_multixact/{name}/0000");
            match content {
                Some(content) => made.file(&path, &content),
                None => fs::remove_file(made.0.root.join(&path)).unwrap(),
            }
            assert_eq!(made.status(10, 1, HEADER), (Unknown, vec![why.to_owned()]));
            assert_eq!(made.status(10, 1, HEADER | 0x0080), (Live, vec![]));
        }
        // Of a server that runs or crashed, a later one may be there that had not ended at the checkpoint.
        let running = Made::new("later", about(13, false));
        multixacts(&running, 10);
        assert_eq!(running.status(10, 7, HEADER), (Live, vec![]));
    }
}

//! What the log tells that is not in pages of relations, put together in its order.
//!
//! Nothing is written here: that begins when all of the log was read and nothing in it is to be refused.

use std::collections::BTreeMap;
use std::path::Path;

use leadline_errors::{Error, Kind, Result};
use leadline_wal::rmgr::{id, xlog};
use leadline_wal::Record;

use crate::control::{u32_at, u64_at, Checkpoint, ControlFile, Parameters};
use crate::folders::FolderChange;
use crate::lifetime::Lifetimes;
use crate::multixact::Multixacts;
use crate::origins::Origins;
use crate::slru::{self, Slru};
use crate::xact::{self, Ended};
use crate::xids;

/// Transactions on a page of `pg_xact`, two bits each.
const XACTS_PER_PAGE: u32 = 32768;
/// On a page of `pg_commit_ts`, 10 bytes each.
const TIMES_PER_PAGE: u32 = 819;
const COMMITTED: u8 = 1;
const ABORTED: u8 = 2;

/// Two bits of a page of `pg_xact`.
#[inline]
fn put_status(page: &mut [u8; slru::PAGE], xid: u32, status: u8) {
    let within = xid % XACTS_PER_PAGE;
    let byte = &mut page[(within / 4) as usize];
    let shift = within % 4 * 2;
    *byte = *byte & !(3 << shift) | status << shift;
}

/// A part of the log that ends with a copy of whole files, before which all pages must be written.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// Where the record of that copy begins; none for the last part.
    pub until: Option<u64>,
    /// Folder to copy from and to.
    pub copy: Option<((u32, u32), (u32, u32))>,
    pub lifetimes: Lifetimes,
    pub folders: Vec<FolderChange>,
    /// Relation maps by tablespace and database.
    pub relmaps: BTreeMap<(u32, u32), Vec<u8>>,
}

/// All that.
#[derive(Debug)]
pub(crate) struct State {
    major: u8,
    /// What the checkpoint at the end says.
    pub checkpoint: Checkpoint,
    pub parameters: Option<Parameters>,
    tracks_commit_timestamps: bool,
    pub xacts: Slru,
    pub commit_ts: Slru,
    pub multixacts: Multixacts,
    pub origins: Origins,
    /// Prepared transactions: what their file holds, none when they ended.
    pub prepared: BTreeMap<u64, Option<Vec<u8>>>,
    /// Files of `pg_logical/mappings`: name, offset, bytes.
    pub mappings: Vec<(String, u64, Vec<u8>)>,
    /// Never empty.
    pub stages: Vec<Stage>,
    /// The checkpoint that the control file names was read, and where it ends.
    pub checkpoint_seen: bool,
    checkpoint_at: u64,
    pub checkpoints: u64,
    pub commits: u64,
    pub aborts: u64,
    /// The first record of an extension's resource manager.
    pub custom: Option<(u8, u64)>,
}

impl State {
    pub(crate) fn new(root: &Path, major: u8, control: &ControlFile) -> Result<State> {
        let checkpoint = control.checkpoint();
        let mut state = State {
            major,
            checkpoint: Checkpoint { wal_level: control.wal_level(), ..checkpoint },
            parameters: None,
            tracks_commit_timestamps: false,
            xacts: Slru::new(root, "pg_xact", XACTS_PER_PAGE),
            commit_ts: Slru::new(root, "pg_commit_ts", TIMES_PER_PAGE),
            multixacts: Multixacts::new(root, major, checkpoint.next_multi),
            origins: Origins::open(root)?,
            prepared: BTreeMap::new(),
            mappings: Vec::new(),
            stages: vec![Stage::default()],
            checkpoint_seen: false,
            checkpoint_at: control.checkpoint_at(),
            checkpoints: 0,
            commits: 0,
            aborts: 0,
            custom: None,
        };
        if control.tracks_commit_timestamps() {
            state.start_commit_timestamps();
        }
        Ok(state)
    }

    /// The part of the log that is read now.
    pub(crate) fn stage(&mut self) -> &mut Stage {
        if self.stages.is_empty() {
            self.stages.push(Stage::default());
        }
        let last = self.stages.len() - 1;
        &mut self.stages[last]
    }

    /// A transaction's number was seen.
    pub(crate) fn saw_xid(&mut self, xid: u32) {
        self.checkpoint.next_xid = xids::past(self.checkpoint.next_xid, xid);
    }

    /// Takes a record in.
    pub(crate) fn take(&mut self, record: &Record<'_>, block_size: u32) -> Result<()> {
        if record.xid != 0 {
            self.saw_xid(record.xid);
        }
        let short = |e: leadline_bytes::Truncated| short(record, &e);
        let main = record.main_data();
        let op = record.info & 0xF0;
        match record.rmid {
            id::XLOG => self.take_xlog(record, op, main)?,
            id::XACT => match xact::ended(record) {
                Some(ended) => self.take_end(record, &ended.map_err(short)?)?,
                None if op & xact::OPMASK == xact::PREPARE => self.take_prepare(record).map_err(short)?,
                None => {}
            },
            id::SMGR => self.take_smgr(record, op, main, block_size)?,
            id::CLOG => match op {
                0x00 => self.xacts.zero(page_number(self.major, main)),
                _ => self.xacts.truncate(page_number(self.major, main))?,
            },
            id::DBASE => self.take_database(record, op, main)?,
            id::TBLSPC => {
                let space = u32_at(main, 0);
                let path = || main.get(4..).unwrap_or_default();
                let change = match op {
                    0x00 => FolderChange::CreateSpace { space, path: until_zero(path()).to_vec() },
                    _ => FolderChange::DropSpace { space },
                };
                self.stage().folders.push(change);
            }
            id::MULTIXACT => {
                let highest = self.multixacts.take(op, main, &mut self.checkpoint, self.major)?;
                highest.into_iter().for_each(|xid| self.saw_xid(xid));
            }
            id::RELMAP => {
                let (db, space, bytes) = (u32_at(main, 0), u32_at(main, 4), main.get(12..).unwrap_or_default());
                if bytes.len() != u32_at(main, 8) as usize {
                    return Err(invalid(record, "a relation map has a wrong length"));
                }
                self.stage().relmaps.insert((space, db), bytes.to_vec());
            }
            id::COMMIT_TS => self.take_commit_ts(op, main)?,
            id::REPLORIGIN => match op {
                0x00 => self.origins.advance(u16_at(main, 8), u64_at(main, 0), main.get(10).is_some_and(|b| *b != 0)),
                _ => self.origins.drop(u16_at(main, 0)),
            },
            id::HEAP2 if op == 0x00 => self.take_rewrite(record, main)?,
            rmid if rmid >= leadline_wal::rmgr::CUSTOM => {
                self.custom.get_or_insert((rmid, record.start.0));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_xlog(&mut self, record: &Record<'_>, op: u8, main: &[u8]) -> Result<()> {
        match op {
            xlog::CHECKPOINT_SHUTDOWN | xlog::CHECKPOINT_ONLINE => {
                let Some(seen) = Checkpoint::parse(main) else {
                    return Err(invalid(record, "the record of a checkpoint is too short"));
                };
                self.checkpoints += 1;
                self.checkpoint_seen |= record.start.0 == self.checkpoint_at;
                self.take_checkpoint(&seen, op == xlog::CHECKPOINT_SHUTDOWN);
            }
            xlog::NEXTOID => self.checkpoint.next_oid = u32_at(main, 0),
            xlog::PARAMETER_CHANGE => {
                let Some(parameters) = Parameters::parse(main) else {
                    return Err(invalid(record, "the record of changed settings is too short"));
                };
                match (parameters.track_commit_timestamp, self.tracks_commit_timestamps) {
                    (true, false) => self.start_commit_timestamps(),
                    (false, true) => self.stop_commit_timestamps(),
                    _ => {}
                }
                self.checkpoint.wal_level = u32_at(main, 20);
                self.parameters = Some(parameters);
            }
            xlog::FPW_CHANGE => self.checkpoint.full_page_writes = main.first().is_some_and(|b| *b != 0),
            // Time, this and the previous timeline.
            xlog::END_OF_RECOVERY => {
                self.checkpoint.timeline = u32_at(main, 8);
                self.checkpoint.prev_timeline = u32_at(main, 12);
            }
            _ => {}
        }
        Ok(())
    }

    /// `xlog_redo`: a shutdown checkpoint says how things are, one of a running server how far they are at least.
    fn take_checkpoint(&mut self, seen: &Checkpoint, is_shutdown: bool) {
        let now = &mut self.checkpoint;
        let after = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
        if is_shutdown {
            now.next_xid = seen.next_xid;
            now.next_oid = seen.next_oid;
            (now.next_multi, now.next_multi_offset) = (seen.next_multi, seen.next_multi_offset);
            (now.oldest_xid, now.oldest_xid_db) = (seen.oldest_xid, seen.oldest_xid_db);
            (now.timeline, now.prev_timeline) = (seen.timeline, seen.prev_timeline);
        } else {
            now.next_xid = now.next_xid.max(seen.next_xid);
            if after(seen.next_multi, now.next_multi) {
                now.next_multi = seen.next_multi;
            }
            if after(seen.next_multi_offset, now.next_multi_offset) {
                now.next_multi_offset = seen.next_multi_offset;
            }
            if after(seen.oldest_xid, now.oldest_xid) {
                (now.oldest_xid, now.oldest_xid_db) = (seen.oldest_xid, seen.oldest_xid_db);
            }
        }
        if after(seen.oldest_multi, now.oldest_multi) {
            (now.oldest_multi, now.oldest_multi_db) = (seen.oldest_multi, seen.oldest_multi_db);
        }
    }

    fn take_end(&mut self, record: &Record<'_>, ended: &Ended<'_>) -> Result<()> {
        let xid = ended.xid;
        self.saw_xid(xid);
        let status = if ended.is_commit { COMMITTED } else { ABORTED };
        self.set_status(xid, status)?;
        for xid in ended.subxacts() {
            self.saw_xid(xid);
            self.set_status(xid, status)?;
        }
        if ended.is_commit {
            self.commits += 1;
            if self.tracks_commit_timestamps {
                let time = ended.origin.map_or(ended.time, |(_, time)| time);
                self.set_commit_times(std::iter::once(xid).chain(ended.subxacts()), time, record.origin)?;
            }
        } else {
            self.aborts += 1;
        }
        if let Some((lsn, _)) = ended.origin {
            self.origins.advance(record.origin, lsn, false);
        }
        if ended.was_prepared {
            let full = xids::full(self.checkpoint.next_xid, xid);
            self.prepared.insert(full, None);
        }
        for relation in ended.dropped() {
            self.stage().lifetimes.drop_relation(relation, record.start.0);
        }
        Ok(())
    }

    fn take_prepare(&mut self, record: &Record<'_>) -> leadline_bytes::Result<()> {
        let prepared = xact::prepared(record)?;
        self.saw_xid(prepared.xid);
        prepared.subxacts().for_each(|xid| self.saw_xid(xid));
        if record.origin != 0 {
            self.origins.advance(record.origin, prepared.origin_lsn, false);
        }
        let full = xids::full(self.checkpoint.next_xid, prepared.xid);
        self.prepared.insert(full, Some(record.main_data().to_vec()));
        Ok(())
    }

    fn set_status(&mut self, xid: u32, status: u8) -> Result<()> {
        let page = self.xacts.page_of(xid);
        put_status(self.xacts.page(page)?, xid, status);
        Ok(())
    }

    /// Takes in commits that say no more than when: a page is looked for once for all that follow each other on it.
    pub(crate) fn take_commits(&mut self, commits: &[(u32, i64)]) -> Result<()> {
        self.commits += commits.len() as u64;
        let page_of = |xid: u32| xid / XACTS_PER_PAGE;
        for of_page in commits.chunk_by(|a, b| page_of(a.0) == page_of(b.0)) {
            let page = self.xacts.page(u64::from(page_of(of_page[0].0)))?;
            of_page.iter().for_each(|(xid, _)| put_status(page, *xid, COMMITTED));
        }
        if self.tracks_commit_timestamps {
            commits.iter().try_for_each(|(xid, time)| self.set_commit_times(std::iter::once(*xid), *time, 0))?;
        }
        Ok(())
    }

    fn set_commit_times(&mut self, xids: impl Iterator<Item = u32>, time: i64, origin: u16) -> Result<()> {
        let mut newest = 0;
        for xid in xids {
            let page = self.commit_ts.page_of(xid);
            let at = (xid % TIMES_PER_PAGE) as usize * 10;
            let entry = &mut self.commit_ts.page(page)?[at..at + 10];
            entry[..8].copy_from_slice(&time.to_le_bytes());
            entry[8..].copy_from_slice(&origin.to_le_bytes());
            newest = xid;
        }
        if xids::precedes(self.checkpoint.newest_commit_ts_xid, newest) {
            self.checkpoint.newest_commit_ts_xid = newest;
        }
        Ok(())
    }

    /// `ActivateCommitTs`.
    fn start_commit_timestamps(&mut self) {
        self.tracks_commit_timestamps = true;
        let next = self.checkpoint.next_xid as u32;
        if self.checkpoint.oldest_commit_ts_xid == 0 {
            self.checkpoint.oldest_commit_ts_xid = next;
            self.checkpoint.newest_commit_ts_xid = next;
        }
        let page = self.commit_ts.page_of(next);
        if !self.commit_ts.has(page) {
            self.commit_ts.zero(page);
        }
    }

    /// `DeactivateCommitTs`: what was recorded is gone.
    fn stop_commit_timestamps(&mut self) {
        self.tracks_commit_timestamps = false;
        self.checkpoint.oldest_commit_ts_xid = 0;
        self.checkpoint.newest_commit_ts_xid = 0;
        self.commit_ts.empty();
    }

    fn take_commit_ts(&mut self, op: u8, main: &[u8]) -> Result<()> {
        let page = page_number(self.major, main);
        match op {
            0x00 => self.commit_ts.zero(page),
            0x10 => {
                let oldest = u32_at(main, if self.major >= 17 { 8 } else { 4 });
                if self.checkpoint.oldest_commit_ts_xid != 0
                    && xids::precedes(self.checkpoint.oldest_commit_ts_xid, oldest)
                {
                    self.checkpoint.oldest_commit_ts_xid = oldest;
                }
                self.commit_ts.truncate(page)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn take_smgr(&mut self, record: &Record<'_>, op: u8, main: &[u8], block_size: u32) -> Result<()> {
        let stage = self.stage();
        if op == 0x10 {
            let relation =
                leadline_datadir::RelFile { spc: u32_at(main, 0), db: u32_at(main, 4), rel: u32_at(main, 8) };
            stage.lifetimes.touch(relation, u32_at(main, 12).min(3) as u8, 0);
            return Ok(());
        }
        let Some(truncation) = leadline_redo::rule::truncation(record) else {
            return Err(invalid(record, "the record of a truncation is too short"));
        };
        stage.lifetimes.truncate(&truncation, block_size, record.start.0);
        Ok(())
    }

    fn take_database(&mut self, record: &Record<'_>, op: u8, main: &[u8]) -> Result<()> {
        let pair = |at: usize| (u32_at(main, at + 4), u32_at(main, at));
        let dropped = dropped_databases(record)?;
        if !dropped.is_empty() {
            let stage = self.stage();
            for (space, database) in dropped {
                stage.lifetimes.drop_database(space, database, record.start.0);
                stage.relmaps.remove(&(space, database));
                stage.folders.push(FolderChange::DropDatabase { space, database });
            }
        } else if self.major >= 15 && op == 0x10 {
            let (space, database) = pair(0);
            self.stage().folders.push(FolderChange::CreateDatabase { space, database });
        } else {
            let copy = (pair(8), pair(0));
            let stage = self.stage();
            (stage.copy, stage.until) = (Some(copy), Some(record.start.0));
            self.stages.push(Stage::default());
        }
        Ok(())
    }

    /// `heap_xlog_logical_rewrite`: where rows of a rewritten catalog went, for logical decoding.
    fn take_rewrite(&mut self, record: &Record<'_>, main: &[u8]) -> Result<()> {
        const HEADER: usize = 40;
        let (xid, db, rel) = (u32_at(main, 0), u32_at(main, 4), u32_at(main, 8));
        let (offset, start) = (u64_at(main, 16), u64_at(main, 32));
        let Some(bytes) = main.get(HEADER..) else {
            return Err(invalid(record, "the record of a rewritten catalog is too short"));
        };
        let name = format!("map-{db:x}-{rel:x}-{:X}_{:X}-{xid:x}-{:x}", start >> 32, start as u32, record.xid);
        self.mappings.push((name, offset, bytes.to_vec()));
        Ok(())
    }
}

/// The folders of the database that a record drops: tablespaces and its number.
pub(crate) fn dropped_databases(record: &Record<'_>) -> Result<Vec<(u32, u32)>> {
    let (op, main) = (record.info & 0xF0, record.main_data());
    if op != if record.major >= 15 { 0x20 } else { 0x10 } {
        return Ok(Vec::new());
    }
    let (database, count) = (u32_at(main, 0), u32_at(main, 4) as usize);
    let spaces = main.get(8..).unwrap_or_default();
    if spaces.len() / 4 < count {
        return Err(invalid(record, "the record of a dropped database is too short"));
    }
    Ok(spaces.chunks_exact(4).take(count).map(|space| (u32_at(space, 0), database)).collect())
}

/// The tablespace and number of the database that a record makes by a copy of another one's files.
pub(crate) fn copied_database(record: &Record<'_>) -> Option<(u32, u32)> {
    let main = record.main_data();
    let is_copy = record.rmid == id::DBASE && record.info & 0xF0 == 0x00;
    is_copy.then(|| (u32_at(main, 4), u32_at(main, 0)))
}

/// The number of an SLRU page: of 64 bits since 17.
fn page_number(major: u8, main: &[u8]) -> u64 {
    if major >= 17 {
        u64_at(main, 0)
    } else {
        u32_at(main, 0).into()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

#[cold]
fn short(record: &Record<'_>, e: &leadline_bytes::Truncated) -> Error {
    invalid(record, "a record is too short").detail(e.to_string())
}

#[cold]
pub(crate) fn invalid(record: &Record<'_>, message: &str) -> Error {
    Error::new(Kind::Invalid, message).at(format!("LSN {}", record.start))
}

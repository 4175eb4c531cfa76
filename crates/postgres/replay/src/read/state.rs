//! What the WAL tells that is not in pages of relations, put together in its order.
//!
//! Nothing is written here: that begins when all of the WAL was read and nothing in it is to be refused.

use std::collections::BTreeMap;
use std::path::Path;

use leadline_bytes::{Bytes, Endian};
use leadline_datadir::RelFile;
use leadline_errors::{Error, Kind, Result};
use leadline_wal::rmgr::{id, xlog};
use leadline_wal::Record;

use crate::files::control::{Checkpoint, ControlFile, Parameters};
use crate::files::directories::FolderChange;
use crate::files::truncations::ForkChanges;
use crate::handover::multixact::{self, Multixacts};
use crate::handover::origins::Origins;
use crate::handover::slru::{self, page_number, Slru};
use crate::read::xact::{self, Ended};
use crate::read::xids;

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

/// A part of the WAL that ends with a copy of whole files, before which all pages must be written.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// Where the record of that copy begins; none for the last part.
    pub until: Option<u64>,
    /// Folder to copy from and to.
    pub copy: Option<((u32, u32), (u32, u32))>,
    pub fork_changes: ForkChanges,
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

    /// The part of the WAL that is read now.
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
        let mut main = fields(record);
        let op = record.info & 0xF0;
        match record.rmid {
            id::XLOG => self.take_xlog(record, op)?,
            id::XACT => match xact::ended(record) {
                Some(ended) => self.take_end(record, &ended.map_err(short)?)?,
                None if op & xact::OPMASK == xact::PREPARE => self.take_prepare(record).map_err(short)?,
                None => {}
            },
            id::SMGR => self.take_smgr(record, op, block_size)?,
            id::CLOG => {
                let page = page_number(self.major, &mut main).map_err(short)?;
                match op {
                    0x00 => self.xacts.zero(page),
                    _ => self.xacts.truncate(page)?,
                }
            }
            id::DBASE => self.take_database(record, op)?,
            id::TBLSPC => {
                let space = main.u32("ts_id").map_err(short)?;
                let change = match op {
                    0x00 => FolderChange::CreateSpace { space, path: until_zero(main.rest()).to_vec() },
                    _ => FolderChange::DropSpace { space },
                };
                self.stage().folders.push(change);
            }
            id::MULTIXACT => {
                let change = multixact::Change::parse(op, main, self.major).map_err(short)?;
                if let Some(xid) = self.multixacts.take(&change, &mut self.checkpoint, self.major)? {
                    self.saw_xid(xid);
                }
            }
            id::RELMAP => {
                let mut update = || Ok((main.u32("dbid")?, main.u32("tsid")?, main.u32("nbytes")?));
                let (db, space, length) = update().map_err(short)?;
                if main.left() != length as usize {
                    return Err(invalid(record, "a relation map has a wrong length"));
                }
                self.stage().relmaps.insert((space, db), main.rest().to_vec());
            }
            id::COMMIT_TS => self.take_commit_ts(record, op)?,
            id::REPLORIGIN if op == 0x00 => {
                let mut set = || Ok((main.u64("remote_lsn")?, main.u16("node_id")?, main.u8("force")?));
                let (lsn, origin, force) = set().map_err(short)?;
                self.origins.advance(origin, lsn, force != 0);
            }
            id::REPLORIGIN => self.origins.drop(main.u16("node_id").map_err(short)?),
            id::HEAP2 if op == 0x00 => self.take_rewrite(record).map_err(short)?,
            rmid if rmid >= leadline_wal::rmgr::CUSTOM => {
                self.custom.get_or_insert((rmid, record.start.0));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_xlog(&mut self, record: &Record<'_>, op: u8) -> Result<()> {
        let main = record.main_data();
        let short = |e: leadline_bytes::Truncated| short(record, &e);
        match op {
            xlog::CHECKPOINT_SHUTDOWN | xlog::CHECKPOINT_ONLINE => {
                let Some(seen) = Checkpoint::parse(main) else {
                    return Err(invalid(record, "the record of a checkpoint is too short"));
                };
                self.checkpoints += 1;
                self.checkpoint_seen |= record.start.0 == self.checkpoint_at;
                self.take_checkpoint(&seen, op == xlog::CHECKPOINT_SHUTDOWN);
            }
            xlog::NEXTOID => self.checkpoint.next_oid = fields(record).u32("nextOid").map_err(short)?,
            xlog::PARAMETER_CHANGE => {
                let Some(parameters) = Parameters::parse(main) else {
                    return Err(invalid(record, "the record of changed settings is too short"));
                };
                match (parameters.track_commit_timestamp, self.tracks_commit_timestamps) {
                    (true, false) => self.start_commit_timestamps(),
                    (false, true) => self.stop_commit_timestamps(),
                    _ => {}
                }
                self.checkpoint.wal_level = parameters.wal_level;
                self.parameters = Some(parameters);
            }
            xlog::FPW_CHANGE => self.checkpoint.full_page_writes = main.first().is_some_and(|b| *b != 0),
            xlog::END_OF_RECOVERY => {
                let mut main = fields(record);
                let mut end = || {
                    main.i64("end_time")?;
                    Ok((main.u32("ThisTimeLineID")?, main.u32("PrevTimeLineID")?))
                };
                (self.checkpoint.timeline, self.checkpoint.prev_timeline) = end().map_err(short)?;
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
            self.stage().fork_changes.drop_relation(relation, record.start.0);
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

    fn take_commit_ts(&mut self, record: &Record<'_>, op: u8) -> Result<()> {
        let short = |e: leadline_bytes::Truncated| short(record, &e);
        let mut main = fields(record);
        let page = page_number(self.major, &mut main).map_err(short)?;
        match op {
            0x00 => self.commit_ts.zero(page),
            0x10 => {
                let oldest = main.u32("oldestXid").map_err(short)?;
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

    fn take_smgr(&mut self, record: &Record<'_>, op: u8, block_size: u32) -> Result<()> {
        let stage = self.stage();
        if op == 0x10 {
            let mut main = fields(record);
            let mut create = || {
                let relation =
                    RelFile { spc: main.u32("spcNode")?, db: main.u32("dbNode")?, rel: main.u32("relNode")? };
                Ok((relation, main.u32("forkNum")?))
            };
            let (relation, fork) = create().map_err(|e| short(record, &e))?;
            stage.fork_changes.touch(relation, fork.min(3) as u8, 0);
            return Ok(());
        }
        let Some(truncation) = leadline_redo::rule::truncation(record) else {
            return Err(invalid(record, "the record of a truncation is too short"));
        };
        stage.fork_changes.truncate(&truncation, block_size, record.start.0);
        Ok(())
    }

    fn take_database(&mut self, record: &Record<'_>, op: u8) -> Result<()> {
        let dropped = dropped_databases(record)?;
        if !dropped.is_empty() {
            let stage = self.stage();
            for (space, database) in dropped {
                stage.fork_changes.drop_database(space, database, record.start.0);
                stage.relmaps.remove(&(space, database));
                stage.folders.push(FolderChange::DropDatabase { space, database });
            }
        } else if self.major >= 15 && op == 0x10 {
            let mut main = fields(record);
            let (space, database) = database(&mut main).map_err(|e| short(record, &e))?;
            self.stage().folders.push(FolderChange::CreateDatabase { space, database });
        } else {
            let mut main = fields(record);
            let mut copy = || Ok((database(&mut main)?, database(&mut main)?));
            let (to, from) = copy().map_err(|e| short(record, &e))?;
            let copy = (from, to);
            let stage = self.stage();
            (stage.copy, stage.until) = (Some(copy), Some(record.start.0));
            self.stages.push(Stage::default());
        }
        Ok(())
    }

    /// `heap_xlog_logical_rewrite`: where rows of a rewritten catalog went, for logical decoding.
    fn take_rewrite(&mut self, record: &Record<'_>) -> leadline_bytes::Result<()> {
        let mut main = fields(record);
        let (xid, db, rel) = (main.u32("mapped_xid")?, main.u32("mapped_db")?, main.u32("mapped_rel")?);
        main.align(8);
        let offset = main.u64("offset")?;
        main.u32("num_mappings")?;
        main.align(8);
        let start = main.u64("start_lsn")?;
        let name = format!("map-{db:x}-{rel:x}-{:X}_{:X}-{xid:x}-{:x}", start >> 32, start as u32, record.xid);
        self.mappings.push((name, offset, main.rest().to_vec()));
        Ok(())
    }
}

/// The folders of the database that a record drops: tablespaces and its number.
pub(crate) fn dropped_databases(record: &Record<'_>) -> Result<Vec<(u32, u32)>> {
    if record.info & 0xF0 != if record.major >= 15 { 0x20 } else { 0x10 } {
        return Ok(Vec::new());
    }
    let mut main = fields(record);
    let mut spaces = || {
        let (database, count) = (main.u32("db_id")?, main.u32("ntablespaces")?);
        (0..count).map(|_| Ok((main.u32("tablespace_ids")?, database))).collect::<leadline_bytes::Result<_>>()
    };
    spaces().map_err(|e| short(record, &e))
}

/// The tablespace and number of the database that a record makes by a copy of another one's files.
pub(crate) fn copied_database(record: &Record<'_>) -> Option<(u32, u32)> {
    let is_copy = record.rmid == id::DBASE && record.info & 0xF0 == 0x00;
    is_copy.then(|| database(&mut fields(record)).ok()).flatten()
}

/// The main data of a record, to be read field by field.
fn fields<'a>(record: &Record<'a>) -> Bytes<'a> {
    Bytes::new(record.main_data(), Endian::Little)
}

/// Tablespace and number of a database, which records have the other way round.
fn database(main: &mut Bytes<'_>) -> leadline_bytes::Result<(u32, u32)> {
    let number = main.u32("db_id")?;
    Ok((main.u32("tablespace_id")?, number))
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

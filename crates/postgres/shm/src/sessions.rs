//! One pass over all sessions: who is there, in which state, waiting for what.
//!
//! Cost is what shapes this file. What a pass compares for each session lies in one array (`Hot`), a status entry is read
//! only when its changecount moved, a text only when the entry changed and the server computes no query id, and a session
//! that shows what it showed in the pass before only gets its run longer ([`Run`]).

use crate::attach::Anchors;
use crate::layout::Layout;
use crate::memory::{Memory, Read};
use crate::process::ServerProcess;
use crate::statement;
use crate::status::{self, Activity, Entry, Identity};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Look for new sessions in the empty slots of a large server at most this often.
const NEW_SESSIONS_EVERY_NS: i64 = 50_000_000;
/// Fewer slots than this are looked at in every pass.
const FEW_SLOTS: usize = 512;

/// An old session's description is compared again at most this often.
const DESCRIBE_EVERY_NS: i64 = 100_000_000;
/// The first changes of a session are all looked at: start-up sets role and database, a worker gets its leader.
const START_UP_CHANGES: u32 = 4;

/// Raw texts whose statement is remembered; texts with literals in them are all different, so it is emptied when full.
const TEXTS: usize = 4096;
/// Of a text this much is fetched ahead.
const TEXT_LINES: u64 = 2;

const STATE_IDLE: i32 = 3;

/// What one session showed over passes that followed each other: a row of session_run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // columns of session_run
pub struct Run {
    /// The first of the passes, counted from 0.
    pub tick: i64,
    /// How many.
    pub ticks: i32,
    pub session_id: i32,
    pub wait_event_info: u32,
    pub backend_xid: u32,
    pub backend_xmin: u32,
    pub statement_id: i64,
    pub activity: Activity,
}

/// A session seen for the first time, or whose description changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // columns of session
pub struct SessionSeen {
    pub session_id: i32,
    pub identity: Identity,
    pub leader_pid: i32,
    /// Pid on this host; another than `identity.pid` for a server in a container.
    pub host_pid: i32,
}

/// A session of the present, for those who look at its process.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Listed {
    pub session_id: i32,
    /// As the server knows it.
    pub pid: i32,
    /// On this host.
    pub host_pid: i32,
    /// Of the status entry, when last read.
    pub changecount: u32,
    /// In the last pass.
    pub wait_event_info: u32,
}

/// A statement seen for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // columns of statement
pub struct StatementSeen {
    pub statement_id: i64,
    pub from_server: bool,
    pub datid: u32,
    pub query: String,
    pub truncated: bool,
}

/// Everything one pass saw. The counts are those of the pass; the lists grow until their owner takes what is in them.
#[derive(Debug, Default)]
pub struct Pass {
    /// Sessions that could be sampled.
    pub sampled: u32,
    /// Runs that ended with the pass before this one.
    pub runs: Vec<Run>,
    /// New or changed sessions.
    pub sessions: Vec<SessionSeen>,
    /// New statements.
    pub statements: Vec<StatementSeen>,
    /// Entries read again because the server was changing them.
    pub retried: u32,
    /// Entries that kept changing; their previous value stands in the sample.
    pub torn: u32,
    /// The server's next transaction id.
    pub next_xid: u64,
}

/// What every pass compares of a session. One cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Hot {
    entry: u64,
    proc: u64,
    /// Where its xid and xmin are; 0 when it has none now: only processes that work for a database, and are not idle.
    xact: (u64, u64),
    changecount: u32,
    wait_event_info: u32,
    backend_xid: u32,
    backend_xmin: u32,
    /// The run that goes on: first pass and number of passes, 0 for none.
    tick: i64,
    ticks: i32,
}

/// What stands behind it, needed when something changed. At the same index; what is needed most comes first.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct Cold {
    activity: Activity,
    statement_id: i64,
    session_id: i32,
    slot: u32,
    /// Where the server keeps its text.
    text_at: u64,
    described_at: i64,
    backend_start: i64,
    pid: i32,
    changes: u32,
    /// Works for a database, so may have an xid or xmin.
    has_xact: bool,
    identity: Identity,
    leader_pid: i32,
    host_pid: i32,
}

/// What stays true when the server starts again: ids that were given, and the statements that were told.
#[derive(Debug)]
pub struct Known {
    next_session_id: i32,
    statements: HashSet<i64, BuildHasherDefault<AsIs>>,
    server_ids: ByHash<i64, i64>,
    text_keys: ByHash<u64, i64>,
}

impl Default for Known {
    fn default() -> Self {
        Known {
            next_session_id: 1,
            statements: HashSet::default(),
            server_ids: HashMap::default(),
            text_keys: HashMap::default(),
        }
    }
}

/// For keys that are hashes already.
#[derive(Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.0 = self.0.rotate_left(8) ^ u64::from(b));
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
    fn write_i64(&mut self, key: i64) {
        self.0 = key as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<AsIs>>;

/// Follows the sessions of one server.
#[derive(Debug)]
pub struct Sessions {
    layout: Layout,
    anchors: Anchors,
    process: ServerProcess,
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    /// Slots of the status array with a session in them.
    occupied: Vec<bool>,
    looked_for_new: i64,
    next_session_id: i32,
    by_pid: HashMap<i32, i32>,
    statements: HashSet<i64, BuildHasherDefault<AsIs>>,
    /// Server query id by text hash, to name samples taken before the server had computed the id.
    server_ids: ByHash<i64, i64>,
    /// Key by hash of the raw text: the same prepared text is normalised once.
    text_keys: ByHash<u64, i64>,
    text: Vec<u8>,
    /// The present pass.
    tick: i64,
    now: i64,
}

impl Sessions {
    /// Goes on from what was known of the server before it was started again.
    pub fn knowing(self, known: Known) -> Self {
        let Known { next_session_id, statements, server_ids, text_keys } = known;
        Sessions { next_session_id, statements, server_ids, text_keys, ..self }
    }

    /// For a server attached to.
    pub fn new(layout: &Layout, anchors: &Anchors, process: &ServerProcess) -> Self {
        Sessions {
            process: process.clone(),
            layout: layout.clone(),
            anchors: anchors.clone(),
            hot: Vec::new(),
            cold: Vec::new(),
            occupied: vec![false; anchors.backend_status_slots as usize],
            looked_for_new: i64::MIN,
            next_session_id: 1,
            by_pid: HashMap::new(),
            statements: HashSet::default(),
            server_ids: HashMap::default(),
            text_keys: HashMap::default(),
            text: Vec::new(),
            tick: 0,
            now: 0,
        }
    }

    /// For those who follow the server when it has started again.
    pub fn into_known(self) -> Known {
        Known {
            next_session_id: self.next_session_id,
            statements: self.statements,
            server_ids: self.server_ids,
            text_keys: self.text_keys,
        }
    }

    /// What the next pass will read, for memory that pays per read: of a small server both arrays, of a large one the entries
    /// of its sessions.
    pub fn ranges(&self) -> Vec<(u64, usize)> {
        let (a, proc_size, be_size) = (&self.anchors, self.layout.proc_size as usize, self.layout.be_size as usize);
        if self.occupied.len() <= FEW_SLOTS {
            return vec![
                (a.all_procs, a.all_proc_count as usize * proc_size),
                (a.backend_status, a.backend_status_slots as usize * be_size),
            ];
        }
        self.hot.iter().flat_map(|h| [(h.proc, proc_size), (h.entry, be_size)]).collect()
    }

    /// Session id of a process now in the samples.
    pub fn id_of_pid(&self, pid: i32) -> Option<i32> {
        self.by_pid.get(&pid).copied()
    }

    /// Where the PGPROCs of all sessions are, and their session ids.
    pub fn procs(&self) -> impl Iterator<Item = (u64, i32)> + '_ {
        self.hot.iter().zip(&self.cold).map(|(h, c)| (h.proc, c.session_id))
    }

    /// What all sessions wait for, and where their PGPROCs are, as the last pass saw them.
    pub fn waits(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.hot.iter().map(|h| (h.wait_event_info, h.proc))
    }

    /// All sessions.
    pub fn list(&self) -> impl Iterator<Item = Listed> + '_ {
        self.hot.iter().zip(&self.cold).map(|(h, c)| Listed {
            session_id: c.session_id,
            pid: c.pid,
            host_pid: c.host_pid,
            changecount: h.changecount,
            wait_event_info: h.wait_event_info,
        })
    }

    /// Looks at all sessions once. `tick`: one more than in the pass before. `now`: CLOCK_MONOTONIC, ns.
    pub fn pass<M: Memory>(&mut self, mem: &M, tick: i64, now: i64, out: &mut Pass) {
        (self.tick, self.now) = (tick, now);
        (out.retried, out.torn, out.sampled) = (0, 0, 0);
        out.next_xid = self.anchors.next_xid.and_then(|a| mem.u64(a).ok()).unwrap_or(0);
        self.prefetch(mem);
        if self.occupied.len() <= FEW_SLOTS {
            self.look_for_new(mem, out);
        } else if now.saturating_sub(self.looked_for_new) >= NEW_SESSIONS_EVERY_NS {
            self.looked_for_new = now;
            self.look_for_new_among_many(mem, out);
        }
        self.prefetch_texts(mem);
        let mut at = 0;
        while at < self.hot.len() {
            match self.sample(mem, at, out) {
                Ok(true) => out.sampled += 1,
                Ok(false) => {
                    self.leave(at, out);
                    continue; // another stands here now
                }
                Err(_) => {
                    out.torn += 1;
                    self.end_run(at, out);
                }
            }
            at += 1;
        }
    }

    /// Ends every run, so that what was seen until now can be handed over; the next pass begins new ones.
    pub fn end_runs(&mut self, out: &mut Pass) {
        for at in 0..self.hot.len() {
            self.end_run(at, out);
        }
    }

    fn end_run(&mut self, at: usize, out: &mut Pass) {
        let (h, c) = (&mut self.hot[at], &self.cold[at]);
        if h.ticks > 0 {
            out.runs.push(Run {
                tick: h.tick,
                ticks: h.ticks,
                session_id: c.session_id,
                wait_event_info: h.wait_event_info,
                backend_xid: h.backend_xid,
                backend_xmin: h.backend_xmin,
                statement_id: c.statement_id,
                activity: c.activity,
            });
            h.ticks = 0;
        }
    }

    /// The server keeps writing these lines, so most are in another CPU's cache: fetched all at once they cost a fraction
    /// of one after the other.
    fn prefetch<M: Memory>(&self, mem: &M) {
        let l = &self.layout;
        for h in &self.hot {
            mem.prefetch(h.entry);
            mem.prefetch(h.proc + l.proc_wait_event_info);
            if h.xact.0 != 0 {
                mem.prefetch(h.xact.0);
            }
            mem.prefetch(h.entry + l.be_state);
            if let Some(offset) = l.be_query_id {
                mem.prefetch(h.entry + offset);
            }
        }
        if self.occupied.len() <= FEW_SLOTS {
            let free = (0u64..).zip(&self.occupied).filter(|(_, occupied)| !**occupied);
            free.for_each(|(slot, _)| mem.prefetch(self.entry(slot)));
        }
    }

    /// The same for the texts of those whose entry changed, when the server computes no query ids.
    fn prefetch_texts<M: Memory>(&self, mem: &M) {
        for (h, c) in self.hot.iter().zip(&self.cold) {
            if mem.u32(h.entry + self.layout.be_changecount) != Ok(h.changecount)
                && c.activity.query_id == 0
                && c.text_at != 0
            {
                (0..TEXT_LINES).for_each(|line| mem.prefetch(c.text_at + line * 64));
            }
        }
    }

    /// The status entry of a slot.
    fn entry(&self, slot: u64) -> u64 {
        self.anchors.backend_status + slot * self.layout.be_size
    }

    fn look_for_new<M: Memory>(&mut self, mem: &M, out: &mut Pass) {
        for slot in 0..self.occupied.len() {
            if !self.occupied[slot]
                && mem.u32(self.entry(slot as u64) + self.layout.be_procpid).is_ok_and(|pid| pid != 0)
            {
                self.admit(mem, slot, out);
            }
        }
    }

    /// The same with one read for all.
    fn look_for_new_among_many<M: Memory>(&mut self, mem: &M, out: &mut Pass) {
        let (first, size) = (self.entry(0) + self.layout.be_procpid, self.layout.be_size);
        let Ok(pids) = mem.u32_column(first, size, self.anchors.backend_status_slots) else { return };
        for (slot, pid) in pids.into_iter().enumerate() {
            if pid != 0 && !self.occupied[slot] {
                self.admit(mem, slot, out);
            }
        }
    }

    /// Takes in a session, when its entry can be read whole and a living PGPROC belongs to it. One that is not taken in is
    /// met again in the next look.
    fn admit<M: Memory>(&mut self, mem: &M, slot: usize, out: &mut Pass) {
        let (layout, entry) = (&self.layout, self.entry(slot as u64));
        let read = |m: &M| Ok((status::read_identity(m, layout, entry)?, status::read_activity(m, layout, entry)?));
        let (identity, activity, changecount) = match status::read_whole(mem, layout, entry, read) {
            Ok(Entry::Whole((identity, activity), changecount, retried)) => {
                out.retried += retried;
                (identity, activity, changecount)
            }
            Ok(Entry::Torn) => {
                out.torn += 1;
                return;
            }
            Err(_) => return,
        };
        if identity.pid <= 0 || layout.backend_type(identity.backend_type_code).is_none() {
            return;
        }
        let Some(proc) = self.find_proc(mem, slot, identity.pid) else { return };
        let Some(host_pid) = self.process.host_pid(identity.pid) else { return };
        let session_id = self.next_session_id;
        self.next_session_id += 1;
        self.by_pid.insert(identity.pid, session_id);
        let leader_pid = self.leader(mem, proc, identity.pid);
        out.sessions.push(SessionSeen { session_id, identity: identity.clone(), leader_pid, host_pid });
        self.occupied[slot] = true;
        self.hot.push(Hot {
            entry,
            proc,
            xact: (0, 0),
            changecount: changecount | 1, // odd: the first sample reads the activity again
            wait_event_info: 0,
            backend_xid: 0,
            backend_xmin: 0,
            tick: 0,
            ticks: 0,
        });
        self.cold.push(Cold {
            statement_id: 0,
            session_id,
            slot: slot as u32,
            text_at: mem.u64(entry + self.layout.be_activity).unwrap_or(0),
            described_at: i64::MIN,
            backend_start: identity.backend_start,
            pid: identity.pid,
            changes: 0,
            has_xact: activity.state != 0 || identity.datid != 0,
            activity,
            identity,
            leader_pid,
            host_pid,
        });
    }

    /// The PGPROC of a process: freed slots keep a dead pid up to 16, the owner of the latch tells the living.
    fn find_proc<M: Memory>(&self, mem: &M, index: usize, pid: i32) -> Option<u64> {
        let owned = |proc: u64| {
            mem.u32(proc + self.layout.proc_pid) == Ok(pid as u32)
                && mem.u32(proc + self.layout.proc_latch_owner_pid()) == Ok(pid as u32)
        };
        let at = |i: u64| self.anchors.all_procs + i * self.layout.proc_size;
        if self.anchors.status_index_is_proc_index {
            return Some(at(index as u64)).filter(|&p| owned(p));
        }
        let pids = mem.u32_column(
            self.anchors.all_procs + self.layout.proc_pid,
            self.layout.proc_size,
            self.anchors.all_proc_count,
        );
        let same = pids.ok()?.into_iter().zip(0u64..).filter(|(found, _)| *found == pid as u32);
        same.map(|(_, i)| at(i)).find(|&p| owned(p))
    }

    fn leader<M: Memory>(&self, mem: &M, proc: u64, pid: i32) -> i32 {
        let leader = mem.u64(proc + self.layout.proc_lock_group_leader).unwrap_or(0);
        if leader == 0 || leader == proc || !self.is_proc(leader) {
            return 0;
        }
        match mem.u32(leader + self.layout.proc_pid) {
            Ok(leader_pid) if leader_pid as i32 != pid => leader_pid as i32,
            _ => 0,
        }
    }

    /// Is this the address of a PGPROC?
    pub fn is_proc(&self, addr: u64) -> bool {
        is_proc(&self.layout, &self.anchors, addr)
    }

    /// Samples one session; false when it is gone.
    #[inline]
    fn sample<M: Memory>(&mut self, mem: &M, at: usize, out: &mut Pass) -> Read<bool> {
        let h = &self.hot[at];
        let wait_event_info = mem.u32(h.proc + self.layout.proc_wait_event_info)?;
        let changecount = mem.u32(h.entry + self.layout.be_changecount)?;
        let (xid, xmin) = self.read_xact(mem, h.xact)?;
        let same = changecount == h.changecount
            && (wait_event_info, xid, xmin) == (h.wait_event_info, h.backend_xid, h.backend_xmin);
        if same && h.ticks > 0 {
            self.hot[at].ticks += 1;
            return Ok(true);
        }
        self.end_run(at, out);
        if changecount != self.hot[at].changecount && !self.read_entry(mem, at, out)? {
            return Ok(false);
        }
        // idle or not may have changed with the entry
        let (xid, xmin) = self.read_xact(mem, self.hot[at].xact)?;
        let h = &mut self.hot[at];
        (h.wait_event_info, h.backend_xid, h.backend_xmin) = (wait_event_info, xid, xmin);
        (h.tick, h.ticks) = (self.tick, 1);
        Ok(true)
    }

    #[inline]
    fn read_xact<M: Memory>(&self, mem: &M, (xid, xmin): (u64, u64)) -> Read<(u32, u32)> {
        if xid == 0 {
            return Ok((0, 0));
        }
        Ok((mem.u32(xid)?, mem.u32(xmin)?))
    }

    /// Where the xid and xmin of a process are.
    fn xact_at(&self, proc: u64) -> (u64, u64) {
        let l = &self.layout;
        match (l.proc_xid, l.proc_xmin, self.anchors.all_pgxact, l.xact_size, l.xact_xid, l.xact_xmin) {
            (Some(xid), Some(xmin), ..) => (proc + xid, proc + xmin),
            (_, _, Some(array), Some(size), Some(xid), Some(xmin)) => {
                let at = array + (proc - self.anchors.all_procs) / l.proc_size * size;
                (at + xid, at + xmin)
            }
            _ => (0, 0),
        }
    }

    /// Reads an entry that changed; false when it is another session's now.
    fn read_entry<M: Memory>(&mut self, mem: &M, at: usize, out: &mut Pass) -> Read<bool> {
        let (layout, entry) = (&self.layout, self.hot[at].entry);
        let read = |m: &M| {
            let (pid, start) = (m.u32(entry + layout.be_procpid)?, m.u64(entry + layout.be_proc_start)?);
            Ok((pid as i32, start, status::read_activity(m, layout, entry)?))
        };
        match status::read_whole(mem, layout, entry, read)? {
            Entry::Torn => out.torn += 1,
            Entry::Whole((pid, start, activity), changecount, retried) => {
                out.retried += retried;
                let c = &mut self.cold[at];
                let start = (start as i64).saturating_add(status::UNIX_EPOCH_OFFSET_US);
                if (pid, start) != (c.pid, c.backend_start) {
                    if pid != 0 {
                        // its place in the samples is at the end: it is met again in this pass
                        let slot = c.slot as usize;
                        self.admit(mem, slot, out);
                    }
                    return Ok(false);
                }
                // a new text always comes with a new start; without one this is the same statement in another state
                let same_text = activity.query_start == c.activity.query_start && c.statement_id != 0;
                c.activity = activity;
                self.hot[at].changecount = changecount;
                self.changed(mem, at, same_text, out)?;
                let in_xact = self.cold[at].has_xact && activity.state != STATE_IDLE;
                self.hot[at].xact = if in_xact { self.xact_at(self.hot[at].proc) } else { (0, 0) };
            }
        }
        Ok(true)
    }

    /// Forgets a session; the last one takes its place.
    fn leave(&mut self, at: usize, out: &mut Pass) {
        self.end_run(at, out);
        self.hot.swap_remove(at);
        let gone = self.cold.swap_remove(at);
        if self.by_pid.get(&gone.identity.pid) == Some(&gone.session_id) {
            self.by_pid.remove(&gone.identity.pid);
        }
        // unless its successor in the slot was taken in already
        let slot = gone.slot;
        self.occupied[slot as usize] = self.cold.iter().any(|c| c.slot == slot);
    }

    /// The entry changed: which statement is it now, and is the session still described as it is?
    fn changed<M: Memory>(&mut self, mem: &M, at: usize, same_text: bool, out: &mut Pass) -> Read<()> {
        let (query_id, state) = (self.cold[at].activity.query_id, self.cold[at].activity.state);
        if query_id != 0 {
            self.cold[at].statement_id = query_id;
            if !self.statements.contains(&query_id) {
                self.first_seen(mem, at, Some(query_id), out)?;
            }
        } else if state != 0 && !same_text {
            // an idle session shows its last statement: few samples meet a quick one at work
            self.read_text(mem, at)?;
            let key = if self.text.is_empty() { 0 } else { self.text_key() };
            let statement_id =
                if self.server_ids.is_empty() { key } else { *self.server_ids.get(&key).unwrap_or(&key) };
            self.cold[at].statement_id = statement_id;
            if key != 0 && !self.statements.contains(&statement_id) {
                self.first_seen(mem, at, None, out)?;
            }
        }
        let c = &mut self.cold[at];
        c.changes = c.changes.saturating_add(1);
        if c.changes <= START_UP_CHANGES || self.now.saturating_sub(c.described_at) >= DESCRIBE_EVERY_NS {
            c.described_at = self.now;
            self.describe_again(mem, at, out)?;
        }
        Ok(())
    }

    /// The key of the text just read.
    fn text_key(&mut self) -> i64 {
        let hash = statement::raw_hash(&self.text);
        if let Some(&key) = self.text_keys.get(&hash) {
            return key;
        }
        if self.text_keys.len() >= TEXTS {
            self.text_keys.clear();
        }
        let key = statement::fingerprint(&self.text);
        self.text_keys.insert(hash, key);
        key
    }

    fn read_text<M: Memory>(&mut self, mem: &M, at: usize) -> Read<()> {
        self.text.clear();
        match self.cold[at].text_at {
            0 => Ok(()),
            text => mem.c_string(text, self.anchors.activity_size as usize, &mut self.text),
        }
    }

    fn first_seen<M: Memory>(&mut self, mem: &M, at: usize, query_id: Option<i64>, out: &mut Pass) -> Read<()> {
        self.read_text(mem, at)?;
        // the text may already be the next statement's: then the server shows another count
        let h = &self.hot[at];
        if mem.u32(h.entry + self.layout.be_changecount)? != h.changecount || self.text.is_empty() {
            return Ok(());
        }
        let normalised = statement::normalise(&self.text);
        let statement_id = query_id.unwrap_or(normalised.fingerprint);
        if query_id.is_some() {
            self.server_ids.insert(normalised.fingerprint, statement_id);
        }
        self.statements.insert(statement_id);
        out.statements.push(StatementSeen {
            statement_id,
            from_server: query_id.is_some(),
            datid: self.cold[at].identity.datid,
            query: normalised.text,
            truncated: self.text.len() + 1 >= self.anchors.activity_size as usize,
        });
        Ok(())
    }

    /// The application name may change any time, role and database are set during start-up, a worker gets its leader late.
    fn describe_again<M: Memory>(&mut self, mem: &M, at: usize, out: &mut Pass) -> Read<()> {
        let (entry, proc) = (self.hot[at].entry, self.hot[at].proc);
        let (datid, role) = (mem.u32(entry + self.layout.be_databaseid)?, mem.u32(entry + self.layout.be_userid)?);
        let name_at = mem.u64(entry + self.layout.be_appname)?;
        self.text.clear();
        if name_at != 0 {
            mem.c_string(name_at, status::NAMEDATALEN, &mut self.text)?;
        }
        let known = &self.cold[at];
        let leader_pid = self.leader(mem, proc, known.identity.pid);
        if self.text == known.identity.application_name.as_bytes()
            && (datid, role) == (known.identity.datid, known.identity.usesysid)
            && leader_pid == known.leader_pid
        {
            return Ok(());
        }
        let layout = &self.layout;
        let read = status::read_whole(mem, layout, entry, |m| status::read_identity(m, layout, entry))?;
        let Entry::Whole(identity, ..) = read else { return Ok(()) };
        let c = &mut self.cold[at];
        if identity.pid == c.identity.pid && (identity != c.identity || leader_pid != c.leader_pid) {
            c.has_xact = c.activity.state != 0 || identity.datid != 0;
            c.identity = identity;
            c.leader_pid = leader_pid;
            out.sessions.push(SessionSeen {
                session_id: c.session_id,
                identity: c.identity.clone(),
                leader_pid,
                host_pid: c.host_pid,
            });
        }
        Ok(())
    }
}

/// Is this the address of a PGPROC of a process?
pub fn is_proc(layout: &Layout, anchors: &Anchors, addr: u64) -> bool {
    is_entry(addr, anchors.all_procs, layout.proc_size, anchors.all_proc_count)
}

/// Is this the address of a PGPROC of a prepared transaction?
pub fn is_prepared(layout: &Layout, anchors: &Anchors, addr: u64) -> bool {
    is_entry(addr, anchors.prepared_procs, layout.proc_size, anchors.prepared_proc_count)
}

fn is_entry(addr: u64, array: u64, size: u64, count: u32) -> bool {
    addr.checked_sub(array).is_some_and(|d| d % size == 0 && d / size < u64::from(count))
}

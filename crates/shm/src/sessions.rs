//! One pass over all sessions: who is there, in which state, waiting for what.
//!
//! Cost is what shapes this file. A status entry is read only when its changecount moved, a text only when the entry
//! changed and the server computes no query id, and empty slots are looked at a hundred times a second at most.

use crate::attach::Anchors;
use crate::layout::Layout;
use crate::memory::{Memory, Read};
use crate::process::ServerProcess;
use crate::statement;
use crate::status::{self, Activity, Entry, Identity};
use std::collections::{HashMap, HashSet};

/// Look for new sessions in the empty slots of a large server at most this often.
const NEW_SESSIONS_EVERY_NS: i64 = 50_000_000;
/// Fewer slots than this are looked at in every pass.
const FEW_SLOTS: usize = 512;

/// An old session's description is compared again at most this often.
const DESCRIBE_EVERY_NS: i64 = 100_000_000;
/// The first changes of a session are all looked at: start-up sets role and database, a worker gets its leader.
const START_UP_CHANGES: u32 = 4;

/// Raw texts whose key is remembered; texts with literals in them are all different, so it is emptied when full.
const TEXT_KEYS: usize = 4096;

const STATE_IDLE: i32 = 3;

/// What one session showed in one pass: a row of session_tick.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // columns of session_tick
pub struct Sample {
    pub session_id: i32,
    pub activity: Activity,
    pub wait_event_info: u32,
    pub statement_id: i64,
    pub backend_xid: u32,
    pub backend_xmin: u32,
    /// Where its PGPROC is; 0 when it has none.
    pub proc: u64,
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

/// Everything one pass saw. Kept and reused between passes.
#[derive(Debug, Default)]
pub struct Pass {
    /// All sessions.
    pub samples: Vec<Sample>,
    /// New or changed sessions.
    pub sessions: Vec<SessionSeen>,
    /// New statements.
    pub statements: Vec<StatementSeen>,
    /// Entries read again, and entries given up as torn.
    pub retried: u32,
    /// Entries that kept changing; their previous value stands in the sample.
    pub torn: u32,
    /// The server's next transaction id.
    pub next_xid: u64,
}

/// A slot of the status array with a session in it.
#[derive(Debug, Clone)]
struct Live {
    entry: u64,
    proc: u64,
    session_id: i32,
    changecount: u32,
    activity: Activity,
    statement_id: i64,
    identity: Identity,
    leader_pid: i32,
    host_pid: i32,
    /// Only processes that work for a database have an xid or xmin.
    has_xact: bool,
    changes: u32,
    described_at: i64,
}

/// Follows the sessions of one server.
#[derive(Debug)]
pub struct Sessions {
    layout: Layout,
    anchors: Anchors,
    process: ServerProcess,
    slots: Vec<Option<Box<Live>>>,
    /// Indexes of occupied slots.
    live: Vec<u32>,
    looked_for_new: i64,
    next_session_id: i32,
    by_pid: HashMap<i32, i32>,
    statements: HashSet<i64>,
    /// Server query id by text hash, to name samples taken before the server had computed the id.
    server_ids: HashMap<i64, i64>,
    /// Key by hash of the raw text: the same prepared text is normalised once.
    text_keys: HashMap<u64, i64>,
    text: Vec<u8>,
    now: i64,
}

impl Sessions {
    /// For a server attached to.
    pub fn new(layout: &Layout, anchors: &Anchors, process: &ServerProcess) -> Self {
        Sessions {
            process: process.clone(),
            layout: layout.clone(),
            anchors: anchors.clone(),
            slots: vec![None; anchors.backend_status_slots as usize],
            live: Vec::new(),
            looked_for_new: i64::MIN,
            next_session_id: 1,
            by_pid: HashMap::new(),
            statements: HashSet::new(),
            server_ids: HashMap::new(),
            text_keys: HashMap::new(),
            text: Vec::new(),
            now: 0,
        }
    }

    /// What the next pass will read, for memory that pays per read: of a small server both arrays, of a large one the entries
    /// of its sessions.
    pub fn ranges(&self) -> Vec<(u64, usize)> {
        let (a, proc_size, be_size) = (&self.anchors, self.layout.proc_size as usize, self.layout.be_size as usize);
        if self.slots.len() <= FEW_SLOTS {
            return vec![
                (a.all_procs, a.all_proc_count as usize * proc_size),
                (a.backend_status, a.backend_status_slots as usize * be_size),
            ];
        }
        let live = self.live.iter().filter_map(|&i| self.slots.get(i as usize)?.as_ref());
        live.flat_map(|l| [(l.proc, proc_size), (l.entry, be_size)]).collect()
    }

    /// Session id of a process now in the samples.
    pub fn id_of_pid(&self, pid: i32) -> Option<i32> {
        self.by_pid.get(&pid).copied()
    }

    /// All sessions.
    pub fn list(&self) -> impl Iterator<Item = Listed> + '_ {
        self.live.iter().filter_map(|&i| self.slots.get(i as usize)?.as_ref()).map(|l| Listed {
            session_id: l.session_id,
            pid: l.identity.pid,
            host_pid: l.host_pid,
            changecount: l.changecount,
        })
    }

    /// Looks at all sessions once. `now`: CLOCK_MONOTONIC, ns.
    pub fn pass<M: Memory>(&mut self, mem: &M, now: i64, out: &mut Pass) {
        self.now = now;
        out.samples.clear();
        out.sessions.clear();
        out.statements.clear();
        (out.retried, out.torn) = (0, 0);
        out.next_xid = self.anchors.next_xid.and_then(|a| mem.u64(a).ok()).unwrap_or(0);
        if self.slots.len() <= FEW_SLOTS || now.saturating_sub(self.looked_for_new) >= NEW_SESSIONS_EVERY_NS {
            self.looked_for_new = now;
            self.look_for_new(mem, out);
        }
        self.prefetch(mem);
        let mut live = std::mem::take(&mut self.live);
        live.retain(|&index| match self.sample(mem, index as usize, out) {
            Ok(alive) => alive,
            Err(_) => {
                out.torn += 1;
                true
            }
        });
        self.live = live;
    }

    /// The server keeps writing these lines, so most are in another CPU's cache: fetched all at once they cost a fraction
    /// of one after the other.
    fn prefetch<M: Memory>(&self, mem: &M) {
        for live in self.live.iter().filter_map(|&i| self.slots.get(i as usize)?.as_ref()) {
            mem.prefetch(live.proc + self.layout.proc_wait_event_info);
            mem.prefetch(live.entry);
            mem.prefetch(live.entry + self.layout.be_state);
            if let Some(offset) = self.layout.be_query_id {
                mem.prefetch(live.entry + offset);
            }
            if live.has_xact {
                mem.prefetch(live.proc + self.layout.proc_xid.unwrap_or(0));
            }
        }
    }

    fn look_for_new<M: Memory>(&mut self, mem: &M, out: &mut Pass) {
        let (array, size) = (self.anchors.backend_status, self.layout.be_size);
        let Ok(pids) = mem.u32_column(array + 4, size, self.anchors.backend_status_slots) else { return };
        for (index, pid) in pids.into_iter().enumerate() {
            if pid == 0 || self.slots[index].is_some() {
                continue;
            }
            let entry = array + index as u64 * size;
            if let Ok(true) = self.admit(mem, index, entry, out) {
                self.live.push(index as u32);
            }
        }
    }

    /// Takes a session into its slot, when its entry is whole and a living PGPROC belongs to it.
    fn admit<M: Memory>(&mut self, mem: &M, index: usize, entry: u64, out: &mut Pass) -> Read<bool> {
        let layout = &self.layout;
        let read = |m: &M| Ok((status::read_identity(m, layout, entry)?, status::read_activity(m, layout, entry)?));
        let Entry::Whole((identity, activity), changecount, retried) = status::read_whole(mem, entry, read)? else {
            out.torn += 1;
            return Ok(false);
        };
        out.retried += retried;
        if identity.pid <= 0 || layout.backend_type(identity.backend_type_code).is_none() {
            return Ok(false);
        }
        let Some(proc) = self.find_proc(mem, index, identity.pid) else { return Ok(false) };
        let Some(host_pid) = self.process.host_pid(identity.pid) else { return Ok(false) };
        let session_id = self.next_session_id;
        self.next_session_id += 1;
        self.by_pid.insert(identity.pid, session_id);
        let leader_pid = self.leader(mem, proc, identity.pid);
        out.sessions.push(SessionSeen { session_id, identity: identity.clone(), leader_pid, host_pid });
        let has_xact = activity.state != 0 || identity.datid != 0;
        // an odd changecount makes the first sample read the activity again
        let live = Live {
            entry,
            proc,
            session_id,
            changecount: changecount | 1,
            activity,
            statement_id: 0,
            identity,
            leader_pid,
            host_pid,
            has_xact,
            changes: 0,
            described_at: i64::MIN,
        };
        self.slots[index] = Some(Box::new(live));
        Ok(true)
    }

    /// The PGPROC of a process: freed slots keep a dead pid up to 16, the owner of the latch tells the living.
    fn find_proc<M: Memory>(&self, mem: &M, index: usize, pid: i32) -> Option<u64> {
        let owned = |proc: u64| {
            mem.u32(proc + self.layout.proc_pid) == Ok(pid as u32)
                && mem.u32(proc + self.layout.proc_latch_owner_pid) == Ok(pid as u32)
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

    /// Samples one occupied slot; false when its session is gone.
    fn sample<M: Memory>(&mut self, mem: &M, index: usize, out: &mut Pass) -> Read<bool> {
        let Some(live) = self.slots.get_mut(index).and_then(Option::as_mut) else { return Ok(false) };
        let wait_event_info = mem.u32(live.proc + self.layout.proc_wait_event_info)?;
        let changecount = mem.u32(live.entry)?;
        if changecount != live.changecount {
            let (layout, entry) = (&self.layout, live.entry);
            let read =
                |m: &M| Ok((m.u32(entry + 4)? as i32, m.u64(entry + 16)?, status::read_activity(m, layout, entry)?));
            match status::read_whole(mem, entry, read)? {
                Entry::Torn => out.torn += 1,
                Entry::Whole((pid, start, activity), changecount, retried) => {
                    out.retried += retried;
                    let same = pid == live.identity.pid
                        && (start as i64).saturating_add(status::UNIX_EPOCH_OFFSET_US) == live.identity.backend_start;
                    if !same {
                        self.leave(index);
                        let entry = self.anchors.backend_status + index as u64 * self.layout.be_size;
                        if pid == 0 || !self.admit(mem, index, entry, out)? {
                            return Ok(false);
                        }
                        return self.sample(mem, index, out);
                    }
                    live.changecount = changecount;
                    // a new text always comes with a new start; without one this is the same statement in another state
                    let same_text = activity.query_start == live.activity.query_start && live.statement_id != 0;
                    live.activity = activity;
                    self.changed(mem, index, same_text, out)?;
                }
            }
        }
        let Some(live) = self.slots.get(index).and_then(Option::as_ref) else { return Ok(false) };
        let (mut xid, mut xmin) = (0, 0);
        if live.has_xact && live.activity.state != STATE_IDLE {
            (xid, xmin) = self.read_xact(mem, live.proc)?;
        }
        out.samples.push(Sample {
            session_id: live.session_id,
            activity: live.activity,
            wait_event_info,
            statement_id: live.statement_id,
            backend_xid: xid,
            backend_xmin: xmin,
            proc: live.proc,
        });
        Ok(true)
    }

    fn read_xact<M: Memory>(&self, mem: &M, proc: u64) -> Read<(u32, u32)> {
        let l = &self.layout;
        match (l.proc_xid, l.proc_xmin, self.anchors.all_pgxact, l.xact_size, l.xact_xid, l.xact_xmin) {
            (Some(xid), Some(xmin), ..) => Ok((mem.u32(proc + xid)?, mem.u32(proc + xmin)?)),
            (_, _, Some(array), Some(size), Some(xid), Some(xmin)) => {
                let at = array + (proc - self.anchors.all_procs) / l.proc_size * size;
                Ok((mem.u32(at + xid)?, mem.u32(at + xmin)?))
            }
            _ => Ok((0, 0)),
        }
    }

    fn leave(&mut self, index: usize) {
        if let Some(live) = self.slots[index].take() {
            if self.by_pid.get(&live.identity.pid) == Some(&live.session_id) {
                self.by_pid.remove(&live.identity.pid);
            }
        }
    }

    /// The entry changed: which statement is it now, and is the session still described as it is?
    fn changed<M: Memory>(&mut self, mem: &M, index: usize, same_text: bool, out: &mut Pass) -> Read<()> {
        let Some(mut live) = self.slots[index].take() else { return Ok(()) };
        let query_id = live.activity.query_id;
        if query_id != 0 {
            live.statement_id = query_id;
            if !self.statements.contains(&query_id) {
                self.first_seen(mem, &live, Some(query_id), out)?;
            }
        } else if live.activity.state != STATE_IDLE && live.activity.state != 0 && !same_text {
            self.read_text(mem, live.entry)?;
            let key = self.text_key();
            live.statement_id = self.server_ids.get(&key).copied().unwrap_or(key);
            if key != 0 && !self.statements.contains(&live.statement_id) {
                self.first_seen(mem, &live, None, out)?;
            }
        }
        live.changes = live.changes.saturating_add(1);
        if live.changes <= START_UP_CHANGES || self.now.saturating_sub(live.described_at) >= DESCRIBE_EVERY_NS {
            live.described_at = self.now;
            self.describe_again(mem, &mut live, out)?;
        }
        self.slots[index] = Some(live);
        Ok(())
    }

    /// The key of the text just read.
    fn text_key(&mut self) -> i64 {
        let hash = statement::raw_hash(&self.text);
        if let Some(&key) = self.text_keys.get(&hash) {
            return key;
        }
        if self.text_keys.len() >= TEXT_KEYS {
            self.text_keys.clear();
        }
        let key = statement::fingerprint(&self.text);
        self.text_keys.insert(hash, key);
        key
    }

    fn read_text<M: Memory>(&mut self, mem: &M, entry: u64) -> Read<()> {
        self.text.clear();
        let at = mem.u64(entry + self.layout.be_activity)?;
        if at != 0 {
            mem.c_string(at, self.anchors.activity_size as usize, &mut self.text)?;
        }
        Ok(())
    }

    fn first_seen<M: Memory>(&mut self, mem: &M, live: &Live, query_id: Option<i64>, out: &mut Pass) -> Read<()> {
        self.read_text(mem, live.entry)?;
        // the text may already be the next statement's: then the server shows another count
        if mem.u32(live.entry)? != live.changecount || self.text.is_empty() {
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
            datid: live.identity.datid,
            query: normalised.text,
            truncated: self.text.len() + 1 >= self.anchors.activity_size as usize,
        });
        Ok(())
    }

    /// The application name may change any time, role and database are set during start-up, a worker gets its leader late.
    fn describe_again<M: Memory>(&mut self, mem: &M, live: &mut Live, out: &mut Pass) -> Read<()> {
        let (datid, role) = (mem.u32(live.entry + 48)?, mem.u32(live.entry + 52)?);
        let mut name = std::mem::take(&mut self.text);
        name.clear();
        let name_at = mem.u64(live.entry + self.layout.be_appname)?;
        let read = if name_at == 0 { Ok(()) } else { mem.c_string(name_at, 64, &mut name) };
        let same_name = name == live.identity.application_name.as_bytes();
        let new_name = if same_name { None } else { Some(String::from_utf8_lossy(&name).into_owned()) };
        self.text = name;
        read?;
        let leader_pid = self.leader(mem, live.proc, live.identity.pid);
        if new_name.is_none()
            && datid == live.identity.datid
            && role == live.identity.usesysid
            && leader_pid == live.leader_pid
        {
            return Ok(());
        }
        let layout = &self.layout;
        let entry = live.entry;
        if let Entry::Whole(identity, ..) = status::read_whole(mem, entry, |m| status::read_identity(m, layout, entry))?
        {
            if identity.pid == live.identity.pid && (identity != live.identity || leader_pid != live.leader_pid) {
                live.has_xact = live.activity.state != 0 || identity.datid != 0;
                live.identity = identity;
                live.leader_pid = leader_pid;
                out.sessions.push(SessionSeen {
                    session_id: live.session_id,
                    identity: live.identity.clone(),
                    leader_pid,
                    host_pid: live.host_pid,
                });
            }
        }
        Ok(())
    }
}

/// Is this the address of a PGPROC of the array?
pub fn is_proc(layout: &Layout, anchors: &Anchors, addr: u64) -> bool {
    addr.checked_sub(anchors.all_procs)
        .is_some_and(|d| d % layout.proc_size == 0 && d / layout.proc_size < u64::from(anchors.all_proc_count))
}

//! How far a server has come along the WAL: what it has made, what its walsenders have sent and heard, what it has received and replayed.
//!
//! The structs lie where the index of shared memory says. What is found there is a claim until it was compared with what the server
//! says over SQL: the reader of [`Pipeline`] does that before and while it relies on it.

use crate::attach::{Anchors, Attached};
use crate::layout::Layout;
use crate::memory::{Fault, Memory, Read};
use crate::status::{read_identity, read_whole, unix_us, Entry};
use leadline_errors::{Error, Kind, Result};

/// PGShmemMagic.
const MAGIC: u32 = 679_834_894;
/// Entries of the index in a server; extensions add some.
const MOST_ENTRIES: usize = 10_000;
/// HASHELEMENT before the entry of a hash table.
const ELEMENT: u64 = 16;
/// Bytes of a name in the index.
const NAME: usize = 48;
/// RECOVERY_STATE_DONE.
const RECOVERY_DONE: u32 = 2;
/// Page headers of the WAL: of the first page of a segment, and of the others.
const LONG_HEADER: u64 = 40;
const SHORT_HEADER: u64 = 24;

/// The states of a walreceiver as pg_stat_wal_receiver names them.
const RECEIVER_STATES: [&str; 6] = ["stopped", "starting", "streaming", "waiting", "restarting", "stopping"];
/// Those of a walsender, as pg_stat_replication does.
const SENDER_STATES: [&str; 5] = ["startup", "backup", "catchup", "streaming", "stopping"];

/// One reading of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // columns of replication_position
pub struct Position {
    pub in_recovery: bool,
    pub insert: Option<u64>,
    pub flush: Option<u64>,
    pub write: Option<u64>,
    pub upstream: Option<u64>,
    pub replay: Option<u64>,
    /// End of the record that is being applied at this moment; None: none is.
    pub applying: Option<u64>,
    pub timeline: Option<u32>,
    pub is_paused: Option<bool>,
    pub receiver: Option<&'static str>,
    /// Unix microseconds.
    pub last_commit: Option<i64>,
    /// What the startup process waits for.
    pub startup_wait: Option<u32>,
}

/// One walsender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)] // columns of walsender
pub struct Sender {
    pub pid: i32,
    pub application_name: String,
    pub client_addr: String,
    pub is_logical: bool,
    pub state: &'static str,
    pub sent: Option<u64>,
    pub write: Option<u64>,
    pub flush: Option<u64>,
    pub replay: Option<u64>,
    /// Microseconds: write, flush, replay.
    pub lags: [Option<i64>; 3],
    /// It counts, or may count, as a synchronous standby.
    pub is_candidate: bool,
}

/// Where everything is in one server.
#[derive(Debug, Clone)]
pub struct Pipeline {
    layout: Layout,
    anchors: Anchors,
    wal: WalSize,
    insert: u64,
    flush: u64,
    recovery_state: u64,
    replay: u64,
    timeline: u64,
    applying: u64,
    last_commit: u64,
    paused: u64,
    receiver_pid: u64,
    receiver_state: u64,
    received: u64,
    written: u64,
    upstream: u64,
    senders: u64,
    sender_size: u64,
    sender: SenderFields,
    /// PGPROC of the startup process; None when none ran at the attach.
    startup: Option<(i32, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct SenderFields {
    pid: u64,
    state: u64,
    sent: u64,
    write: u64,
    flush: u64,
    replay: u64,
    lags: u64,
    priority: u64,
}

#[derive(Debug, Clone, Copy)]
struct WalSize {
    segment: u64,
    page: u64,
}

impl WalSize {
    /// The place in the WAL of a byte of its contents: XLogBytePosToRecPtr.
    fn place(self, byte: u64) -> Option<u64> {
        let usable_page = self.page.checked_sub(SHORT_HEADER)?;
        let usable_segment =
            (self.segment / self.page).checked_mul(usable_page)?.checked_sub(LONG_HEADER - SHORT_HEADER)?;
        let (segments, mut left) = (byte.checked_div(usable_segment)?, byte.checked_rem(usable_segment)?);
        let first = self.page - LONG_HEADER;
        let offset = if left < first {
            left + LONG_HEADER
        } else {
            left -= first;
            self.page + left / usable_page * self.page + left % usable_page + SHORT_HEADER
        };
        segments.checked_mul(self.segment)?.checked_add(offset)
    }
}

fn unknown(what: &str) -> Error {
    Error::new(Kind::Layout, "the server's positions in the WAL cannot be read from its memory").detail(what)
}

impl Pipeline {
    /// Finds everything in a server that was attached to.
    ///
    /// # Errors
    /// Of kind Layout: ask over SQL.
    pub fn find(server: &Attached) -> Result<Pipeline> {
        let anchors = &server.anchors;
        let size = match anchors.wal_segment_bytes {
            Some(segment) if segment.is_power_of_two() && anchors.wal_page_bytes.is_power_of_two() => {
                WalSize { segment: segment.into(), page: anchors.wal_page_bytes.into() }
            }
            _ => return Err(unknown("the size of its WAL segments is not known")),
        };
        let segment = server.process.segment.start..server.process.segment.end;
        let structs = read_index(&server.memory, &server.layout, segment.clone())
            .map_err(|fault| unknown(&format!("the index of its shared memory is damaged at {:#x}", fault.addr)))?;
        let at = |name: &str| {
            let found = structs.iter().find(|(known, place)| known == name && segment.contains(place));
            found.map(|(_, place)| *place).ok_or_else(|| unknown(&format!("its shared memory has no {name}")))
        };
        let receiver = at("Wal Receiver Ctl")?;
        if anchors.wal_receiver.is_some_and(|known| known != receiver) {
            return Err(unknown("the index of its shared memory disagrees with the variable WalRcv"));
        }
        let (control, senders) = (at("XLOG Ctl")?, at("Wal Sender Ctl")?);
        let recovery = if server.layout.major >= 15 { at("XLOG Recovery Ctl")? } else { control };
        let found = Pipeline::at(&server.layout, anchors, size, [control, recovery, receiver, senders])
            .ok_or_else(|| unknown("this major version is not known"))?;
        let startup = found.find_startup(&server.memory);
        Ok(Pipeline { startup, ..found })
    }

    fn at(l: &Layout, anchors: &Anchors, wal: WalSize, structs: [u64; 4]) -> Option<Pipeline> {
        let [control, recovery, receiver, senders] = structs;
        Some(Pipeline {
            layout: l.clone(),
            anchors: anchors.clone(),
            wal,
            insert: control + l.wal_insert_byte?,
            flush: control + l.wal_flush?,
            recovery_state: control + l.wal_recovery_state?,
            replay: recovery + l.recovery_replayed?,
            timeline: recovery + l.recovery_timeline?,
            applying: recovery + l.recovery_applying?,
            last_commit: recovery + l.recovery_last_commit?,
            paused: recovery + l.recovery_pause?,
            receiver_pid: receiver + l.receiver_pid?,
            receiver_state: receiver + l.receiver_state?,
            received: receiver + l.receiver_flushed?,
            written: receiver + l.receiver_written?,
            upstream: receiver + l.receiver_upstream?,
            senders: senders + l.senders?,
            sender_size: l.sender_size?,
            sender: SenderFields {
                pid: l.sender_pid?,
                state: l.sender_state?,
                sent: l.sender_sent?,
                write: l.sender_write?,
                flush: l.sender_flush?,
                replay: l.sender_replay?,
                lags: l.sender_lags?,
                priority: l.sender_priority?,
            },
            startup: None,
        })
    }

    /// Where the server is now.
    ///
    /// # Errors
    /// An address that cannot be read any more.
    pub fn position<M: Memory>(&self, mem: &M) -> Read<Position> {
        let lsn = |at: u64| mem.u64(at).map(|lsn| (lsn != 0).then_some(lsn));
        if mem.u32(self.recovery_state)? == RECOVERY_DONE {
            let insert = self.wal.place(mem.u64(self.insert)?);
            return Ok(Position { insert, flush: lsn(self.flush)?, ..Position::default() });
        }
        // The startup process sets `applying` before it applies a record and `replay` after it. Read in this order, a `replay` that is
        // smaller proves that the record was being applied meanwhile. What was received is read after it: it is never less.
        let applying = lsn(self.applying)?;
        let replay = lsn(self.replay)?;
        let receives = mem.u32(self.receiver_pid)? != 0;
        let of_receiver = |at: u64| if receives { lsn(at) } else { Ok(None) };
        let startup_wait = match self.startup {
            Some((pid, proc)) if mem.u32(proc + self.layout.proc_pid)? == pid as u32 => {
                Some(mem.u32(proc + self.layout.proc_wait_event_info)?)
            }
            _ => None,
        };
        Ok(Position {
            in_recovery: true,
            insert: None,
            flush: lsn(self.received)?,
            write: of_receiver(self.written)?,
            upstream: of_receiver(self.upstream)?,
            replay,
            applying: applying.filter(|end| replay.is_some_and(|replay| replay < *end)),
            timeline: Some(mem.u32(self.timeline)?),
            is_paused: Some(mem.u8(self.paused)? != 0),
            receiver: if receives {
                RECEIVER_STATES.get(mem.u32(self.receiver_state)? as usize).copied()
            } else {
                None
            },
            last_commit: Some(unix_us(mem.u64(self.last_commit)?)).filter(|us| *us != 0),
            startup_wait,
        })
    }

    /// The walsenders. One that ends meanwhile is left out. `known`: those of a reading not long ago; to find out who one is takes longer
    /// than to read all the rest.
    ///
    /// # Errors
    /// An address that cannot be read any more.
    pub fn senders<M: Memory>(&self, mem: &M, known: &[Sender]) -> Read<Vec<Sender>> {
        let pids = mem.u32_column(self.senders + self.sender.pid, self.sender_size, self.anchors.max_wal_senders)?;
        let mut found = Vec::new();
        for (slot, pid) in (0u64..).zip(pids).filter(|(_, pid)| *pid != 0) {
            let at = self.senders + slot * self.sender_size;
            let lsn = |field: u64| mem.u64(at + field).map(|lsn| (lsn != 0).then_some(lsn));
            let lag = |field: u64| mem.u64(at + field).map(|us| Some(us as i64).filter(|us| *us >= 0));
            let lags = self.sender.lags;
            let mut sender = Sender {
                pid: pid as i32,
                state: SENDER_STATES.get(mem.u32(at + self.sender.state)? as usize).copied().unwrap_or(""),
                sent: lsn(self.sender.sent)?,
                write: lsn(self.sender.write)?,
                flush: lsn(self.sender.flush)?,
                replay: lsn(self.sender.replay)?,
                lags: [lag(lags)?, lag(lags + 8)?, lag(lags + 16)?],
                is_candidate: mem.u32(at + self.sender.priority)? != 0,
                ..Sender::default()
            };
            if mem.u32(at + self.sender.pid)? != pid {
                continue;
            }
            if let Some(before) = known.iter().find(|before| before.pid == sender.pid) {
                sender.is_logical = before.is_logical;
                sender.application_name.clone_from(&before.application_name);
                sender.client_addr.clone_from(&before.client_addr);
                found.push(sender);
            } else if self.identify(mem, &mut sender)? {
                found.push(sender);
            }
        }
        Ok(found)
    }

    /// Who it is, from its entry among the sessions; false: it has none any more.
    fn identify<M: Memory>(&self, mem: &M, sender: &mut Sender) -> Read<bool> {
        let Some(entry) = self.entry_of(mem, sender.pid as u32)? else { return Ok(false) };
        let Entry::Whole(identity, ..) =
            read_whole(mem, &self.layout, entry, |m| read_identity(m, &self.layout, entry))?
        else {
            return Ok(false);
        };
        // a walsender of a database decodes; one that sends the WAL as it is has none
        sender.is_logical = identity.datid != 0;
        sender.application_name = identity.application_name;
        sender.client_addr = identity.client_addr;
        Ok(identity.pid == sender.pid)
    }

    fn entry_of<M: Memory>(&self, mem: &M, pid: u32) -> Read<Option<u64>> {
        let l = &self.layout;
        let first = self.anchors.backend_status;
        let pids = mem.u32_column(first + l.be_procpid, l.be_size, self.anchors.backend_status_slots)?;
        Ok((0u64..).zip(pids).find(|(_, known)| *known == pid).map(|(slot, _)| first + slot * l.be_size))
    }

    /// Pid and PGPROC of the startup process.
    fn find_startup<M: Memory>(&self, mem: &M) -> Option<(i32, u64)> {
        let (l, a) = (&self.layout, &self.anchors);
        let types = mem.u32_column(a.backend_status + l.be_backend_type, l.be_size, a.backend_status_slots).ok()?;
        let pids = mem.u32_column(a.backend_status + l.be_procpid, l.be_size, a.backend_status_slots).ok()?;
        let is_startup = |(kind, pid): &(u32, u32)| *pid != 0 && l.backend_type(*kind) == Some("startup");
        let (_, pid) = types.into_iter().zip(pids).find(is_startup)?;
        let procs = mem.u32_column(a.all_procs + l.proc_pid, l.proc_size, a.all_proc_count).ok()?;
        let (at, _) = (0u64..).zip(procs).find(|(_, known)| *known == pid)?;
        Some((pid as i32, a.all_procs + at * l.proc_size))
    }
}

/// The structs of shared memory by name: ShmemIndex, a hash table of dynahash.c.
fn read_index<M: Memory>(mem: &M, l: &Layout, segment: std::ops::Range<u64>) -> Read<Vec<(String, u64)>> {
    let fault = |addr: u64| Fault { addr };
    if mem.u32(segment.start)? != MAGIC {
        return Err(fault(segment.start));
    }
    let header = mem.u64(segment.start + l.shmem_index)?;
    let segments = mem.u64(header + l.hash_segments)?;
    let buckets = mem.u64(header + l.hash_segment_size)?;
    let directory = header + l.hash_size; // of a table in shared memory, it lies behind the header
    if segments.saturating_mul(buckets) > MOST_ENTRIES as u64 {
        return Err(fault(header));
    }
    let mut found = Vec::new();
    let mut steps = 0;
    for segment in 0..segments {
        let of_segment = mem.u64(directory + segment * 8)?;
        for bucket in 0..buckets {
            let mut element = mem.u64(of_segment + bucket * 8)?;
            while element != 0 {
                steps += 1;
                if steps > MOST_ENTRIES {
                    return Err(fault(element));
                }
                let entry = element.checked_add(ELEMENT).ok_or(fault(element))?;
                let mut name = Vec::new();
                mem.c_string(entry, NAME, &mut name)?;
                found.push((String::from_utf8_lossy(&name).into_owned(), mem.u64(entry + NAME as u64)?));
                element = mem.u64(element)?;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::FakeMemory;

    const SEGMENT: u64 = 0x10_0000;
    const STRUCT: u64 = 0x20_0000;

    /// A server whose index has one bucket with an entry for each struct, `looped`: the last one leads to the first.
    fn server(major: u32, looped: bool) -> (FakeMemory, Layout, std::ops::Range<u64>) {
        let l = Layout::of(major).unwrap();
        let mut mem = FakeMemory { pieces: vec![(SEGMENT, vec![0; 0x4000]), (STRUCT, vec![0; 0x10000])] };
        let header = SEGMENT + 0x100;
        mem.put_u32(SEGMENT, MAGIC);
        mem.put_u64(SEGMENT + l.shmem_index, header);
        mem.put_u64(header + l.hash_segments, 1);
        mem.put_u64(header + l.hash_segment_size, 4);
        mem.put_u64(header + l.hash_size, SEGMENT + 0x1000);
        let names = ["XLOG Ctl", "XLOG Recovery Ctl", "Wal Receiver Ctl", "Wal Sender Ctl"];
        for (n, name) in (0u64..).zip(names) {
            let element = SEGMENT + 0x2000 + n * 0x100;
            let next = if n < 3 { element + 0x100 } else { 0 };
            mem.put_u64(element, if looped && n == 3 { SEGMENT + 0x2000 } else { next });
            mem.put(element + ELEMENT, name.as_bytes());
            mem.put_u64(element + ELEMENT + NAME as u64, STRUCT + n * 0x4000);
        }
        mem.put_u64(SEGMENT + 0x1000 + 8, SEGMENT + 0x2000); // the second bucket
        (mem, l, SEGMENT..SEGMENT + 0x4000)
    }

    fn pipeline(l: &Layout) -> Pipeline {
        let wal = WalSize { segment: 16 << 20, page: 8192 };
        let structs = [0u64, 1, 2, 3].map(|n| STRUCT + n * 0x4000);
        Pipeline::at(l, &Anchors { max_wal_senders: 4, ..Anchors::default() }, wal, structs).unwrap()
    }

    #[test]
    fn the_index_leads_to_the_structs() {
        let (mem, l, segment) = server(16, false);
        let found = read_index(&mem, &l, segment).unwrap();
        assert_eq!(found.len(), 4);
        assert_eq!(found[2], ("Wal Receiver Ctl".into(), STRUCT + 0x8000));
    }

    #[test]
    fn a_damaged_index_ends_in_a_fault() {
        let (mem, l, segment) = server(16, true);
        assert!(read_index(&mem, &l, segment.clone()).is_err(), "a loop");
        let (mut mem, ..) = server(16, false);
        mem.put_u64(SEGMENT + 0x100 + l.hash_segments, u64::MAX);
        assert!(read_index(&mem, &l, segment.clone()).is_err(), "a count");
        let (mut mem, ..) = server(16, false);
        mem.put_u64(SEGMENT + 0x1000 + 8, u64::MAX - 7);
        assert!(read_index(&mem, &l, segment.clone()).is_err(), "a pointer");
        mem.put_u32(SEGMENT, 1);
        assert!(read_index(&mem, &l, segment).is_err(), "no server");
    }

    #[test]
    fn a_record_is_being_applied_only_until_it_was() {
        for major in 13..=18 {
            let (mut mem, l, _) = server(major, false);
            let p = pipeline(&l);
            mem.put_u64(p.replay, 0x1000);
            mem.put_u64(p.applying, 0x1080);
            mem.put_u64(p.received, 0x2000);
            mem.put_u64(p.written, 0x3000);
            let seen = p.position(&mem).unwrap();
            assert!(seen.in_recovery);
            assert_eq!((seen.replay, seen.applying, seen.flush), (Some(0x1000), Some(0x1080), Some(0x2000)), "{major}");
            assert_eq!((seen.write, seen.receiver), (None, None), "without a walreceiver");
            mem.put_u64(p.replay, 0x1080);
            mem.put_u32(p.receiver_pid, 7);
            mem.put_u32(p.receiver_state, 2);
            let seen = p.position(&mem).unwrap();
            assert_eq!((seen.applying, seen.write, seen.receiver), (None, Some(0x3000), Some("streaming")), "{major}");
            mem.put_u32(p.recovery_state, RECOVERY_DONE);
            mem.put_u64(p.insert, 100);
            let seen = p.position(&mem).unwrap();
            assert_eq!((seen.in_recovery, seen.replay, seen.insert), (false, None, Some(140)), "{major}");
        }
    }

    /// By hand: 8,152 bytes on the first page of a segment, 8,168 on each other one.
    #[test]
    fn bytes_of_the_wal_have_a_place() {
        let size = WalSize { segment: 16 << 20, page: 8192 };
        let usable = 2048 * 8168 - 16;
        assert_eq!(size.place(0), Some(40));
        assert_eq!(size.place(8151), Some(8191));
        assert_eq!(size.place(8152), Some(8192 + 24));
        assert_eq!(size.place(8152 + 8168), Some(2 * 8192 + 24));
        assert_eq!(size.place(usable - 1), Some((16 << 20) - 1));
        assert_eq!(size.place(3 * usable), Some(3 * (16 << 20) + 40));
        assert_eq!(size.place(u64::MAX), None);
    }

    #[test]
    fn a_walsender_without_a_session_is_left_out() {
        let (mut mem, l, _) = server(18, false);
        let mut p = pipeline(&l);
        mem.put_u32(p.senders + p.sender_size + p.sender.pid, 77);
        p.anchors.backend_status = STRUCT;
        assert_eq!(p.senders(&mem, &[]).unwrap(), []);
        let before = Sender { pid: 77, application_name: "b".into(), is_logical: true, ..Sender::default() };
        let [found] = &p.senders(&mem, &[before]).unwrap()[..] else { panic!("one that was known is not looked up") };
        assert_eq!((found.pid, found.application_name.as_str(), found.is_logical), (77, "b", true));
    }
}

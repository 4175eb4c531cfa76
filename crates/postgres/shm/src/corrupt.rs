//! A made-up server whose memory is damaged at random: nothing panics, loops or reads outside.

use crate::attach::Anchors;
use crate::buffers::{Buffers, Wanted};
use crate::layout::Layout;
use crate::memory::{FakeMemory, MappedSegment, Memory};
use crate::process::ServerProcess;
use crate::sessions::{Pass, Sessions};
use crate::{locks, lwlocks, procfs};
use leadline_testdata::Random;

const PROCS: u32 = 16;
const PROC_ARRAY: u64 = 0x7000_0010_0000;
const STATUS: u64 = 0x7000_0020_0000;
const TEXTS: u64 = 0x7000_0030_0000;
const LOCKS: u64 = 0x7000_0040_0000;
const BUFFERS: u64 = 0x7000_0050_0000;
const BLOCKS: u64 = 0x7000_0060_0000;
const LWLOCKS: u64 = 0x7000_0070_0000;
const PIECES: [u64; 7] = [PROC_ARRAY, STATUS, TEXTS, LOCKS, BUFFERS, BLOCKS, LWLOCKS];

fn process() -> ServerProcess {
    let segment = procfs::read_maps(std::process::id() as i32).unwrap().remove(0);
    ServerProcess { pid: 1, start_ticks: 0, segment, other_namespace: false }
}

fn server(major: u32) -> (FakeMemory, Layout, Anchors) {
    let layout = Layout::of(major).unwrap();
    let sizes = [
        u64::from(PROCS) * layout.proc_size,
        u64::from(PROCS) * layout.be_size,
        64 * 1024,
        64 * 1024,
        64 * layout.buf_size,
        64 * 8192,
        u64::from(layout.main_lwlocks) * layout.lw_padded_size,
    ];
    let mut mem =
        FakeMemory { pieces: PIECES.iter().zip(sizes).map(|(&at, size)| (at, vec![0; size as usize])).collect() };
    for i in 0..u64::from(PROCS) {
        let (proc, entry) = (PROC_ARRAY + i * layout.proc_size, STATUS + i * layout.be_size);
        let pid = 100 + i as u32;
        mem.put_u32(proc + layout.proc_pid, pid);
        mem.put_u32(proc + layout.proc_latch_owner_pid(), pid);
        mem.put_u32(proc + layout.proc_wait_event_info, 0x0300_0005);
        mem.put_u64(proc + layout.proc_wait_lock, LOCKS);
        mem.put_u32(proc + layout.proc_wait_lock_mode, 5);
        mem.put_u32(entry + layout.be_procpid, pid);
        mem.put_u32(entry + layout.be_backend_type, if major >= 17 { 1 } else { 3 });
        mem.put_u64(entry + layout.be_proc_start, 1_000 + i);
        mem.put_u32(entry + layout.be_state, if major >= 18 { 3 } else { 2 });
        mem.put_u64(entry + layout.be_appname, TEXTS + i * 64);
        mem.put_u64(entry + layout.be_activity, TEXTS + 4096 + i * 1024);
        mem.put(TEXTS + 4096 + i * 1024, b"select * from t where id = 4711");
    }
    mem.put(LOCKS, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 4, 1]);
    mem.put_u64(LOCKS + layout.lock_proc_locks + layout.list_next, LOCKS + layout.lock_proc_locks);
    mem.put_u64(LOCKS + layout.lock_wait_procs + layout.list_next, LOCKS + layout.lock_wait_procs);
    for i in 0..64 {
        let at = BUFFERS + i * layout.buf_size;
        mem.put_u32(at + layout.buf_state, 1 << 25);
        mem.put_u32(at + layout.buf_content_lock + layout.lw_waiters, if i % 7 == 0 { 3 } else { u32::MAX });
        mem.put_u32(at + layout.buf_content_lock + layout.lw_waiters_tail, 3);
    }
    let anchors = Anchors {
        all_procs: PROC_ARRAY,
        all_proc_count: PROCS,
        prepared_procs: PROC_ARRAY + u64::from(PROCS) * layout.proc_size,
        prepared_proc_count: 1,
        all_pgxact: (major < 14).then_some(LOCKS),
        backend_status: STATUS,
        backend_status_slots: PROCS,
        status_index_is_proc_index: major >= 17,
        buffer_descriptors: BUFFERS,
        buffer_blocks: BLOCKS,
        buffers: 64,
        block_size: 8192,
        segment_blocks: 131_072,
        main_lwlocks: LWLOCKS,
        next_xid: Some(LOCKS + 4096),
        buffer_usage: None,
        wal_usage: None,
        wal_receiver: None,
        max_wal_senders: 8,
        wal_segment_bytes: Some(16 << 20),
        wal_page_bytes: 8192,
        held_locks: None,
        activity_size: 1024,
    };
    (mem, layout, anchors)
}

/// Overwrites some words: with noise, with extremes, or with addresses inside the server, which makes rings and overlaps.
fn damage(mem: &mut FakeMemory, random: &mut Random) {
    for _ in 0..1 + random.below(8) {
        let piece = random.below(PIECES.len() as u64) as usize;
        let bytes = &mut mem.pieces[piece].1;
        let at = random.below(bytes.len() as u64 / 4 - 1) as usize * 4;
        let value = match random.below(4) {
            0 => random.next(),
            1 => [0, u64::MAX, u64::MAX - 7, i64::MAX as u64, 1 << 31][random.below(5) as usize],
            _ => PIECES[random.below(PIECES.len() as u64) as usize] + random.below(4096) * 8,
        };
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

fn look(mem: &FakeMemory, layout: &Layout, anchors: &Anchors, sessions: &mut Sessions, tick: i64) -> Pass {
    let mut pass = Pass::default();
    sessions.pass(mem, tick, tick * 1_000_000_000, &mut pass);
    let waiters: Vec<u64> = sessions.waits().map(|(_, proc)| proc).collect();
    for edge in locks::read_edges(mem, layout, anchors, &waiters, &mut 0) {
        edge.tag.object();
    }
    lwlocks::contended(mem, layout, anchors, &mut 0);
    let mut buffers = Buffers::new(layout, anchors);
    let wanted = Wanted { content: 1, pin: 1, io: 1 };
    buffers.scan_all(mem, wanted, &mut 0);
    buffers.scan_hot(mem, wanted, &mut 0);
    pass
}

#[test]
fn an_undamaged_server_shows_all_its_sessions() {
    for major in 13..=18 {
        let (mem, layout, anchors) = server(major);
        let pass = look(&mem, &layout, &anchors, &mut Sessions::new(&layout, &anchors, &process()), 0);
        assert_eq!((pass.sampled, pass.sessions.len(), pass.torn), (PROCS, PROCS as usize, 0), "{major}");
        assert_eq!(pass.statements.len(), 1);
        assert_eq!(pass.statements[0].query, "select * from t where id = $1");
    }
}

#[test]
fn a_freed_slot_with_a_stale_pid_is_no_session() {
    for major in 13..=16 {
        let (mut mem, layout, anchors) = server(major);
        mem.put_u32(PROC_ARRAY + 3 * layout.proc_size + layout.proc_latch_owner_pid(), 0);
        let pass = look(&mem, &layout, &anchors, &mut Sessions::new(&layout, &anchors, &process()), 0);
        assert_eq!(pass.sampled, PROCS - 1, "{major}");
    }
}

#[test]
fn a_slot_taken_over_by_a_new_process_is_a_new_session() {
    let (mut mem, layout, anchors) = server(16);
    let mut sessions = Sessions::new(&layout, &anchors, &process());
    let before = look(&mem, &layout, &anchors, &mut sessions, 0);
    let (proc, entry) = (PROC_ARRAY + 3 * layout.proc_size, STATUS + 3 * layout.be_size);
    mem.put_u32(proc + layout.proc_pid, 999);
    mem.put_u32(proc + layout.proc_latch_owner_pid(), 999);
    mem.put_u32(entry + layout.be_changecount, 2);
    mem.put_u32(entry + layout.be_procpid, 999);
    let after = look(&mem, &layout, &anchors, &mut sessions, 1);
    assert_eq!(after.sessions.len(), 1);
    assert_eq!(after.sessions[0].identity.pid, 999);
    assert_eq!((before.sampled, after.sampled), (PROCS, PROCS), "the new one is sampled at once");
    assert!(before.sessions.iter().all(|s| s.session_id != after.sessions[0].session_id));
    assert_eq!((after.runs.len(), after.runs[0].ticks), (1, 1), "that of the old one ended");
    assert_eq!((sessions.id_of_pid(103), sessions.id_of_pid(999)), (None, Some(after.sessions[0].session_id)));
}

#[test]
fn a_session_that_shows_the_same_again_is_one_run() {
    for major in 13..=18 {
        let (mut mem, layout, anchors) = server(major);
        let mut sessions = Sessions::new(&layout, &anchors, &process());
        let mut pass = Pass::default();
        let wait = PROC_ARRAY + 3 * layout.proc_size + layout.proc_wait_event_info;
        let entry = STATUS + 4 * layout.be_size;
        for tick in 0..7 {
            match tick {
                3 => mem.put_u32(wait, 0x0100_0009),
                5 => {
                    mem.put_u32(wait, 0);
                    mem.put_u64(entry + layout.be_state_start, 77);
                    mem.put_u32(entry + layout.be_changecount, 2);
                }
                _ => {}
            }
            sessions.pass(&mem, tick, tick * 1_000_000, &mut pass);
        }
        sessions.end_runs(&mut pass);
        let of = |pid: i32| {
            let id = pass.sessions.iter().find(|s| s.identity.pid == pid).unwrap().session_id;
            let runs = pass.runs.iter().filter(|r| r.session_id == id);
            runs.map(|r| (r.tick, r.ticks, r.wait_event_info & 0xff)).collect::<Vec<_>>()
        };
        let first = of(103)[0].2;
        assert_eq!(of(103), [(0, 3, first), (3, 2, 9), (5, 2, 0)], "{major}");
        assert_eq!(of(104).iter().map(|r| (r.0, r.1)).collect::<Vec<_>>(), [(0, 5), (5, 2)], "{major}");
        assert_eq!(of(105).iter().map(|r| (r.0, r.1)).collect::<Vec<_>>(), [(0, 7)], "{major}");
        assert_eq!(pass.runs.iter().map(|r| r.ticks).sum::<i32>(), 7 * PROCS as i32);
        pass.runs.clear();
        sessions.end_runs(&mut pass);
        assert!(pass.runs.is_empty(), "handed over once");
    }
}

#[test]
fn damage_of_any_kind_ends_in_a_pass() {
    let mut random = Random(0x1eed_11e5);
    for _ in 0..3_000 {
        let major = 13 + random.below(6) as u32;
        let (mut mem, layout, anchors) = server(major);
        let mut sessions = Sessions::new(&layout, &anchors, &process());
        for pass in 0..4 {
            look(&mem, &layout, &anchors, &mut sessions, pass);
            damage(&mut mem, &mut random);
        }
    }
}

#[test]
fn a_mapped_segment_faults_outside_its_bounds() {
    let len = 64 * 1024;
    // SAFETY: a fresh anonymous mapping of this test, unmapped with the process.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    let start = at as u64;
    // SAFETY: inside the mapping.
    unsafe { at.cast::<u32>().add(1).write_volatile(0xfeed) };
    let own = std::process::id() as i32;
    let line = procfs::read_maps(own).unwrap().into_iter().find(|m| m.start <= start && start < m.end).unwrap();
    let segment = match MappedSegment::open(own, line.start, line.end) {
        Ok(segment) => segment,
        Err(e) => {
            eprintln!("SKIPPED: map_files needs CAP_CHECKPOINT_RESTORE: {e}");
            return;
        }
    };
    assert_eq!(segment.u32(start + 4), Ok(0xfeed));
    for bad in [line.start - 1, line.end - 3, line.end, 0, u64::MAX, u64::MAX - 3, start + 5] {
        assert!(segment.u32(bad).is_err(), "{bad:#x}");
    }
    assert!(segment.u64(line.end - 8).is_ok() && segment.u64(line.end - 4).is_err());
    let mut buffer = vec![0; 128];
    assert!(segment.read(line.end - 64, &mut buffer).is_err());
    assert!(segment.read(line.end - 128, &mut buffer).is_ok());
}

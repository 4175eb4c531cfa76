//! Finds the anchors of a running server and proves the layout against it. Nothing is sampled before every check passed.

use crate::elf::{self, Binary};
use crate::held_locks::HeldLocks;
use crate::layout::Layout;
use crate::memory::{CopiedMemory, MappedSegment, Memory, ProcessMemory, SharedMemory};
use crate::process::{no_rights, ServerProcess};
use crate::procfs;
use crate::wait_events::WaitEvents;
use leadline_datadir::{read_control, DEFAULT_BLOCK_SIZE, DEFAULT_SEGMENT_BLOCKS};
use leadline_errors::{Error, Kind, Result};
use std::collections::HashMap;
use std::path::Path;

/// One check of the layout and what it saw.
#[derive(Debug, Clone)]
pub struct Check {
    /// Short name, stable.
    pub name: &'static str,
    /// None: it could not be made, which is not a failure.
    pub passed: Option<bool>,
    /// What was compared.
    pub detail: String,
}

/// Addresses in the server that everything else starts from.
#[derive(Debug, Clone, Default)]
pub struct Anchors {
    /// PGPROC array.
    pub all_procs: u64,
    /// Its length, without the entries of prepared transactions.
    pub all_proc_count: u32,
    /// Entries of prepared transactions: they hold locks and have no process.
    pub prepared_procs: u64,
    /// max_prepared_transactions.
    pub prepared_proc_count: u32,
    /// PGXACT array (13 and older).
    pub all_pgxact: Option<u64>,
    /// PgBackendStatus array.
    pub backend_status: u64,
    /// Its length.
    pub backend_status_slots: u32,
    /// Slots and processes have the same index (17 and later).
    pub status_index_is_proc_index: bool,
    /// BufferDesc array.
    pub buffer_descriptors: u64,
    /// Page images.
    pub buffer_blocks: u64,
    /// Number of buffers.
    pub buffers: u32,
    /// Bytes of a page.
    pub block_size: u32,
    /// Pages in a file before the next one begins.
    pub segment_blocks: u32,
    /// MainLWLockArray.
    pub main_lwlocks: u64,
    /// Where nextXid is.
    pub next_xid: Option<u64>,
    /// `pgBufferUsage` in each process.
    pub buffer_usage: Option<u64>,
    /// `pgWalUsage` in each process.
    pub wal_usage: Option<u64>,
    /// What the variable WalRcv leads to.
    pub wal_receiver: Option<u64>,
    /// max_wal_senders.
    pub max_wal_senders: u32,
    /// wal_segment_size.
    pub wal_segment_bytes: Option<u32>,
    /// Bytes of a page of the WAL.
    pub wal_page_bytes: u32,
    /// The held-lock list in each process.
    pub held_locks: Option<HeldLocks>,
    /// track_activity_query_size.
    pub activity_size: u32,
}

/// A server whose layout was proved.
#[derive(Debug)]
pub struct Attached {
    /// The postmaster.
    pub process: ServerProcess,
    /// "PostgreSQL 15.18 ..." from the binary.
    pub version_text: String,
    /// 150018.
    pub version_num: u32,
    /// Offsets of the major.
    pub layout: Layout,
    /// Names of its wait events.
    pub wait_events: WaitEvents,
    /// Addresses.
    pub anchors: Anchors,
    /// The shared segment.
    pub memory: SharedMemory,
    /// Why the segment is not mapped, when it is not.
    pub not_mapped_why: String,
    /// What was checked.
    pub checks: Vec<Check>,
    /// MaxBackends: connections and workers together.
    pub max_backends: u32,
    /// max_connections; None when the binary does not export it.
    pub max_connections: Option<u32>,
}

/// A child of the postmaster that has entered shared memory.
struct Child {
    pid: i32,
    /// Its pid as the server knows it.
    inner_pid: i32,
    my_proc: u64,
    my_be_entry: Option<u64>,
}

struct Checks(Vec<Check>);

impl Checks {
    fn note(&mut self, name: &'static str, passed: bool, detail: String) {
        self.0.push(Check { name, passed: Some(passed), detail });
    }
    fn skip(&mut self, name: &'static str, detail: &str) {
        self.0.push(Check { name, passed: None, detail: detail.into() });
    }
}

/// Bytes of a page, pages in a file, bytes of a page of the WAL: those of an ordinary build when pg_control cannot be read.
fn page_sizes(pid: i32, checks: &mut Checks) -> (u32, u32, u32) {
    match read_control(Path::new(&format!("/proc/{pid}/cwd"))) {
        Ok((control, _)) => {
            checks.note("block size", true, format!("{} bytes, in pg_control", control.blcksz));
            (control.blcksz, control.relseg_size, control.xlog_blcksz)
        }
        Err(why) => {
            checks.skip("block size", &format!("assuming {DEFAULT_BLOCK_SIZE} bytes; {why}"));
            (DEFAULT_BLOCK_SIZE, DEFAULT_SEGMENT_BLOCKS, DEFAULT_BLOCK_SIZE)
        }
    }
}

/// Attaches to the postmaster `pid`. `allow_map` false forces `process_vm_readv` (for tests and comparison).
pub fn attach(pid: i32, allow_map: bool) -> Result<Attached> {
    let (_, start_ticks) = procfs::parent_and_start(pid).ok_or_else(|| {
        Error::new(Kind::NotFound, format!("no process with pid {pid}"))
            .hint("the pid is the first line of postmaster.pid")
    })?;
    let maps = procfs::read_maps(pid).map_err(|_| no_rights(pid, "the memory map"))?;
    let binary = Binary::of_process(pid)?;
    let not_postgres = |why: &str| {
        Error::new(Kind::NotFound, format!("process {pid} is not a PostgreSQL server"))
            .detail(why)
            .hint("give the postmaster's pid: the first line of postmaster.pid in the data directory")
    };
    let base = load_base(pid, &binary, &maps).ok_or_else(|| not_postgres("its binary is not mapped"))?;
    let version_text =
        binary.version_text().ok_or_else(|| not_postgres("its binary contains no PostgreSQL version"))?;
    let (major, version_num) = elf::parse_version(&version_text).ok_or_else(|| not_postgres(&version_text))?;
    let layout = Layout::of(major)?;

    let postmaster = ProcessMemory { pid };
    let symbol = |name: &str| {
        binary.symbol(name).map(|a| base + a).ok_or_else(|| {
            Error::new(Kind::Unsupported, format!("the server's binary does not export {name}"))
                .detail(version_text.clone())
                .hint("the build exports no symbols; give a DSN to sample over SQL instead")
        })
    };
    let proc_global = postmaster.u64(symbol("ProcGlobal")?).map_err(|_| no_rights(pid, "the memory"))?;
    let read_shared = |what: &'static str, addr: u64| {
        postmaster
            .u64(addr)
            .map_err(|_| Error::new(Kind::Layout, format!("cannot read {what}")).detail(format!("address {addr:#x}")))
    };
    let all_procs = read_shared("ProcGlobal->allProcs", proc_global + layout.hdr_all_procs)?;
    let segment =
        maps.iter().find(|m| m.start <= all_procs && all_procs < m.end && m.perms.contains('s')).cloned().ok_or_else(
            || {
                Error::new(Kind::Layout, "ProcGlobal->allProcs does not point into shared memory")
                    .detail(format!("{all_procs:#x}"))
            },
        )?;
    let range = segment.start..segment.end;

    let mut checks = Checks(Vec::new());
    let children = find_children(pid, &binary, base, &layout, &range)?;
    let max_backends = postmaster.u32(symbol("MaxBackends")?).unwrap_or(0);
    let all_proc_count = postmaster.u32(proc_global + layout.hdr_all_proc_count).unwrap_or(0);

    check_processes(
        &mut checks,
        &postmaster,
        &layout,
        &binary,
        base,
        all_procs,
        all_proc_count,
        max_backends,
        &range,
        &children,
    );
    let prepared_procs = read_shared("PreparedXactProcs", symbol("PreparedXactProcs")?)?;
    let prepared_proc_count = postmaster.u32(symbol("max_prepared_xacts")?).unwrap_or(0);
    let prepared_end = prepared_procs.saturating_add(u64::from(prepared_proc_count) * layout.proc_size);
    checks.note(
        "PGPROC array of prepared transactions",
        prepared_procs == all_procs + u64::from(all_proc_count) * layout.proc_size && prepared_end <= range.end,
        format!("max_prepared_transactions {prepared_proc_count}, right after the other entries"),
    );
    let status_index_is_proc_index = major >= 17;
    let backend_status =
        find_backend_status(&mut checks, &postmaster, &layout, &binary, base, max_backends, &range, &children)?;
    let buffers = postmaster.u32(symbol("NBuffers")?).unwrap_or(0);
    let buffer_descriptors = read_shared("BufferDescriptors", symbol("BufferDescriptors")?)?;
    let main_lwlocks = read_shared("MainLWLockArray", symbol("MainLWLockArray")?)?;
    let buffer_blocks = read_shared("BufferBlocks", symbol("BufferBlocks")?)?;
    check_buffers(&mut checks, &postmaster, &layout, buffer_descriptors, buffers, &range);
    check_main_lwlocks(&mut checks, &postmaster, &layout, main_lwlocks);

    if let Some(failed) = checks.0.iter().find(|c| c.passed == Some(false)) {
        return Err(Error::new(
            Kind::Layout,
            format!("the layout of the server's shared memory differs from PostgreSQL {major}"),
        )
        .detail(format!("check {}: {}", failed.name, failed.detail))
        .hint("this may be a modified build (fork); nothing was read from it; give a DSN to sample over SQL instead"));
    }

    let held_locks =
        HeldLocks::find(&binary, base).filter(|h| children.iter().all(|c| h.plausible(c.pid, &layout, range.clone())));
    match held_locks {
        Some(_) => checks.note("held_lwlocks list", true, format!("plausible in {} processes", children.len())),
        None => checks.skip("held_lwlocks list", "not found in this build: holders of LWLocks are not named"),
    }
    let transam = ["TransamVariables", "ShmemVariableCache"].iter().find_map(|n| binary.symbol(n));
    let next_xid = transam
        .and_then(|a| postmaster.u64(base + a).ok())
        .filter(|a| range.contains(a))
        .map(|a| a + layout.transam_next_xid);

    let mut wait_events = WaitEvents::of(major, layout.tranche_first_user);
    if let (Ok(array), Ok(count)) = (symbol("NamedLWLockTrancheArray"), symbol("NamedLWLockTrancheRequests")) {
        if let (Ok(array), Ok(count)) = (postmaster.u64(array), postmaster.u32(count)) {
            wait_events.add_named_tranches(&postmaster, &layout, array, count);
        }
    }
    let (memory, not_mapped_why) = open_memory(pid, &segment, allow_map);
    let (block_size, segment_blocks, wal_page_bytes) = page_sizes(pid, &mut checks);
    let number = |name: &str| binary.symbol(name).and_then(|a| postmaster.u32(base + a).ok());
    let anchors = Anchors {
        all_procs,
        all_proc_count,
        prepared_procs,
        prepared_proc_count,
        all_pgxact: layout
            .hdr_all_pgxact
            .and_then(|at| postmaster.u64(proc_global + at).ok())
            .filter(|a| range.contains(a)),
        backend_status,
        backend_status_slots: max_backends + layout.auxiliary_slots,
        status_index_is_proc_index,
        buffer_descriptors,
        buffer_blocks,
        buffers,
        block_size,
        segment_blocks,
        main_lwlocks,
        next_xid,
        buffer_usage: binary.symbol("pgBufferUsage").map(|a| base + a),
        wal_usage: binary.symbol("pgWalUsage").map(|a| base + a),
        wal_receiver: binary.symbol("WalRcv").and_then(|a| postmaster.u64(base + a).ok()),
        // MAX_BACKENDS is the greatest value of the setting
        max_wal_senders: number("max_wal_senders").filter(|&n| n <= 0x3_ffff).unwrap_or(0),
        wal_segment_bytes: number("wal_segment_size"),
        wal_page_bytes,
        held_locks,
        activity_size: binary
            .symbol("pgstat_track_activity_query_size")
            .and_then(|a| postmaster.u32(base + a).ok())
            .filter(|&n| (100..=1_048_576).contains(&n))
            .unwrap_or(1024),
    };
    let max_connections =
        binary.symbol("MaxConnections").and_then(|a| postmaster.u32(base + a).ok()).filter(|&n| n <= max_backends);
    let process = ServerProcess { pid, start_ticks, segment, other_namespace: procfs::inner_pid(pid) != pid };
    Ok(Attached {
        process,
        version_text,
        version_num,
        layout,
        wait_events,
        anchors,
        memory,
        not_mapped_why,
        checks: checks.0,
        max_backends,
        max_connections,
    })
}

/// Run-time minus link-time address of the binary. The exe link and the maps agree on the inode, also when the file was deleted.
fn load_base(pid: i32, binary: &Binary, maps: &[procfs::Mapping]) -> Option<u64> {
    if !binary.pie {
        return Some(0);
    }
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?.ino();
    let by_inode = maps.iter().filter(|m| m.inode == inode && m.offset == 0).map(|m| m.start).min();
    // overlay file systems show another inode in the maps than stat does
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?.to_string_lossy().into_owned();
    let by_path = || maps.iter().filter(|m| m.path == path && m.offset == 0).map(|m| m.start).min();
    Some(by_inode.or_else(by_path)?.wrapping_sub(binary.lowest & !0xfff))
}

fn find_children(
    pid: i32,
    binary: &Binary,
    base: u64,
    layout: &Layout,
    segment: &std::ops::Range<u64>,
) -> Result<Vec<Child>> {
    let my_proc_at = binary
        .symbol("MyProc")
        .ok_or_else(|| Error::new(Kind::Unsupported, "the server's binary does not export MyProc"))?;
    let mut children: Vec<Child> = Vec::new();
    for child in procfs::children(pid) {
        let Ok(my_proc) = (ProcessMemory { pid: child }).u64(base + my_proc_at) else { continue };
        if segment.contains(&my_proc) {
            children.push(Child { pid: child, inner_pid: procfs::inner_pid(child), my_proc, my_be_entry: None });
        }
    }
    if children.is_empty() {
        return Err(Error::new(Kind::NotFound, format!("process {pid} has no child processes in shared memory"))
            .detail("it is not a postmaster, or the server is still starting")
            .hint("give the postmaster's pid: the first line of postmaster.pid in the data directory"));
    }
    match binary.symbol("MyBEEntry") {
        Some(at) => {
            for child in &mut children {
                child.my_be_entry =
                    (ProcessMemory { pid: child.pid }).u64(base + at).ok().filter(|a| segment.contains(a));
            }
        }
        None => find_be_entries_by_pid(binary, base, layout, segment, &mut children),
    }
    Ok(children)
}

/// 13 and older keep MyBEEntry to themselves: it is the one pointer among the private variables that, in every process,
/// leads to a shared entry with this process's pid at st_procpid and a known backend type after it.
fn find_be_entries_by_pid(
    binary: &Binary,
    base: u64,
    layout: &Layout,
    segment: &std::ops::Range<u64>,
    children: &mut [Child],
) {
    let mut votes: HashMap<u64, Vec<(i32, u64)>> = HashMap::new();
    for child in children.iter() {
        let memory = ProcessMemory { pid: child.pid };
        for &(from, size) in &binary.writable {
            let mut bytes = vec![0u8; size.min(16 << 20) as usize];
            if memory.read(base + from, &mut bytes).is_err() {
                continue;
            }
            for (i, word) in bytes.chunks_exact(8).enumerate() {
                let pointer = u64::from_le_bytes(word.try_into().expect("8 bytes"));
                if segment.contains(&pointer)
                    && pointer % 8 == 0
                    && memory.u32(pointer + layout.be_procpid) == Ok(child.inner_pid as u32)
                    && memory.u32(pointer + layout.be_backend_type).is_ok_and(|t| layout.backend_type(t).is_some())
                    && memory.u64(pointer + layout.be_proc_start).is_ok_and(|start| start > 0 && start < 1 << 60)
                {
                    votes.entry(from + i as u64 * 8).or_default().push((child.pid, pointer));
                }
            }
        }
    }
    let best = votes.into_iter().max_by_key(|(at, found)| (found.len(), std::cmp::Reverse(*at)));
    for (pid, pointer) in best.map(|b| b.1).unwrap_or_default() {
        if let Some(child) = children.iter_mut().find(|c| c.pid == pid) {
            child.my_be_entry = Some(pointer);
        }
    }
}

/// How many processes do not find their pid at an address that should hold it. One that is about to start or end has 0 there, which says
/// nothing if others find theirs; one that has ended since says nothing either.
fn wrong_owners<'a>(postmaster: &ProcessMemory, places: impl Iterator<Item = (&'a Child, u64)>) -> usize {
    let (mut right, mut zero, mut wrong) = (0, 0, 0);
    for (child, address) in places {
        match postmaster.u32(address) {
            Ok(pid) if pid == child.inner_pid as u32 => right += 1,
            _ if procfs::parent_and_start(child.pid).is_none() => {}
            Ok(0) => zero += 1,
            _ => wrong += 1,
        }
    }
    wrong + if right == 0 { zero } else { 0 }
}

#[allow(clippy::too_many_arguments)] // the facts a check compares
fn check_processes(
    checks: &mut Checks,
    postmaster: &ProcessMemory,
    layout: &Layout,
    binary: &Binary,
    base: u64,
    all_procs: u64,
    count: u32,
    max_backends: u32,
    segment: &std::ops::Range<u64>,
    children: &[Child],
) {
    let end = all_procs.saturating_add(u64::from(count) * layout.proc_size);
    checks.note(
        "PGPROC array length",
        max_backends > 0 && count >= max_backends && count < max_backends + 100_000 && segment.contains(&(end - 1)),
        format!("allProcCount {count}, MaxBackends {max_backends}"),
    );
    let off_stride = children
        .iter()
        .filter(|c| c.my_proc < all_procs || !(c.my_proc - all_procs).is_multiple_of(layout.proc_size))
        .count();
    checks.note(
        "PGPROC stride",
        off_stride == 0,
        format!("{} bytes; {off_stride} of {} processes off it", layout.proc_size, children.len()),
    );
    let wrong_pid = wrong_owners(postmaster, children.iter().map(|c| (c, c.my_proc + layout.proc_pid)));
    checks.note(
        "PGPROC.pid",
        wrong_pid == 0,
        format!("offset {}; wrong in {wrong_pid} of {}", layout.proc_pid, children.len()),
    );
    let wrong_owner = wrong_owners(postmaster, children.iter().map(|c| (c, c.my_proc + layout.proc_latch_owner_pid())));
    checks.note(
        "PGPROC.procLatch.owner_pid",
        wrong_owner == 0,
        format!("wrong in {wrong_owner} of {}", children.len()),
    );
    match binary.symbol("my_wait_event_info") {
        Some(at) => {
            let distances: Vec<u64> = children
                .iter()
                .filter_map(|c| (ProcessMemory { pid: c.pid }).u64(base + at).ok().map(|p| p.wrapping_sub(c.my_proc)))
                .filter(|d| *d < layout.proc_size) // not yet set in a starting process: points to a private variable
                .collect();
            let good = !distances.is_empty() && distances.iter().all(|&d| d == layout.proc_wait_event_info);
            checks.note(
                "my_wait_event_info - MyProc",
                good,
                format!("{distances:?}, expected {}", layout.proc_wait_event_info),
            );
        }
        None => {
            let classes = children
                .iter()
                .filter_map(|c| postmaster.u32(c.my_proc + layout.proc_wait_event_info).ok())
                .filter(|w| *w == 0 || matches!(w >> 24, 1 | 3..=10) && w & 0xffff < 0x400)
                .count();
            checks.note(
                "wait_event_info values",
                classes == children.len(),
                format!("a wait code in {classes} of {}", children.len()),
            );
        }
    }
}

#[allow(clippy::too_many_arguments)] // the facts a check compares
fn find_backend_status(
    checks: &mut Checks,
    postmaster: &ProcessMemory,
    layout: &Layout,
    binary: &Binary,
    base: u64,
    max_backends: u32,
    segment: &std::ops::Range<u64>,
    children: &[Child],
) -> Result<u64> {
    let mut bases: HashMap<u64, usize> = HashMap::new();
    let mut entries = 0;
    for child in children {
        let Some(entry) = child.my_be_entry else { continue };
        let private = ProcessMemory { pid: child.pid };
        let number = |name: &str| binary.symbol(name).and_then(|a| private.u32(base + a).ok()).map(|v| v as i32);
        let index = if layout.major >= 17 {
            number("MyProcNumber")
        } else {
            // the startup process of a standby is of both kinds: its entry is from before it got a backend's number
            number("MyAuxProcType")
                .filter(|&t| u32::try_from(t).is_ok_and(|t| t < layout.auxiliary_slots))
                .map(|t| max_backends as i32 + t)
                .or_else(|| number("MyBackendId").filter(|&id| id > 0).map(|id| id - 1))
        };
        if let Some(index) = index.and_then(|i| u64::try_from(i).ok()) {
            *bases.entry(entry.wrapping_sub(index * layout.be_size)).or_default() += 1;
            entries += 1;
        }
    }
    let Some((&found, &votes)) = bases.iter().max_by_key(|(_, votes)| **votes) else {
        return Err(Error::new(Kind::Layout, "cannot find the array of session states")
            .detail("no process shows where its entry is")
            .hint("give a DSN to sample over SQL instead"));
    };
    checks.note(
        "PgBackendStatus stride",
        votes == entries && segment.contains(&found),
        format!("{votes} of {entries} processes agree on the array at {} bytes an entry", layout.be_size),
    );
    let wrong = wrong_owners(
        postmaster,
        children.iter().filter_map(|c| c.my_be_entry.map(|entry| (c, entry + layout.be_procpid))),
    );
    checks.note("PgBackendStatus.st_procpid", wrong == 0, format!("wrong in {wrong} of {entries}"));
    let states = children
        .iter()
        .filter_map(|c| c.my_be_entry)
        .filter(|e| postmaster.u32(e + layout.be_state).is_ok_and(|s| layout.state_code(s) >= 0))
        .count();
    checks.note(
        "PgBackendStatus.st_state",
        states == children.iter().filter(|c| c.my_be_entry.is_some()).count(),
        format!("a state in {states}"),
    );
    Ok(found)
}

fn check_buffers(
    checks: &mut Checks,
    mem: &impl Memory,
    layout: &Layout,
    descriptors: u64,
    buffers: u32,
    segment: &std::ops::Range<u64>,
) {
    let end = descriptors.saturating_add(u64::from(buffers) * layout.buf_size);
    checks.note(
        "BufferDescriptors inside the segment",
        buffers > 0 && segment.contains(&descriptors) && end <= segment.end,
        format!("{buffers} buffers"),
    );
    let n = u64::from(buffers);
    let probes: Vec<u64> = (0..64.min(n)).chain((n / 2)..(n / 2 + 64).min(n)).chain(n.saturating_sub(64)..n).collect();
    let wrong_id = probes
        .iter()
        .filter(|&&i| mem.u32(descriptors + i * layout.buf_size + layout.buf_buf_id) != Ok(i as u32))
        .count();
    checks.note("BufferDesc.buf_id == index", wrong_id == 0, format!("wrong in {wrong_id} of {}", probes.len()));
    let tranche = |i: u64| {
        mem.u32(descriptors + i * layout.buf_size + layout.buf_content_lock + layout.lw_tranche).map(|t| t & 0xffff)
    };
    let wrong_tranche = probes.iter().filter(|&&i| tranche(i) != Ok(layout.tranche_buffer_content)).count();
    checks.note(
        "BufferDesc.content_lock tranche",
        wrong_tranche == 0,
        format!("{} expected; wrong in {wrong_tranche} of {}", layout.tranche_buffer_content, probes.len()),
    );
}

fn check_main_lwlocks(checks: &mut Checks, mem: &impl Memory, layout: &Layout, array: u64) {
    let tranche =
        |i: u32| mem.u32(array + u64::from(i) * layout.lw_padded_size + layout.lw_tranche).map(|t| t & 0xffff);
    let wrong = (1..layout.buffer_mapping_first).filter(|&i| tranche(i) != Ok(i)).count();
    let mapping = tranche(layout.buffer_mapping_first);
    let manager = tranche(layout.lock_manager_first);
    let partitions_differ =
        mapping.is_ok() && manager.is_ok() && mapping != manager && tranche(layout.lock_manager_first - 1) == mapping;
    // some individual locks were retired and leave a hole whose tranche is 0
    checks.note(
        "MainLWLockArray tranches",
        wrong <= 6 && partitions_differ,
        format!(
            "{wrong} of {} individual locks off; BufferMapping {mapping:?}, LockManager {manager:?}",
            layout.buffer_mapping_first
        ),
    );
}

fn open_memory(pid: i32, segment: &procfs::Mapping, allow_map: bool) -> (SharedMemory, String) {
    if !allow_map {
        return (SharedMemory::Copied(CopiedMemory::new(pid)), "mapping was not requested".into());
    }
    match MappedSegment::open(pid, segment.start, segment.end) {
        Ok(mapped) => (SharedMemory::Mapped(mapped), String::new()),
        Err(e) => {
            // The directory of the links is its owner's; to follow one needs a capability of its own.
            let missing = match e.raw_os_error() {
                Some(libc::EACCES) => "CAP_DAC_READ_SEARCH",
                _ => "CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE",
            };
            let why = format!("cannot map the segment ({e}): {missing} is missing; each pass copies it instead");
            (SharedMemory::Copied(CopiedMemory::new(pid)), why)
        }
    }
}

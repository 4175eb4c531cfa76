//! The BPF programs: compiled in, loaded, attached, and told when the window ends.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::io::Read;

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{BtfTracePoint, Iter, PerfEvent, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use leadline_clockwork::monotonic_ns;
use leadline_errors::{Error, Kind, Result};

use crate::governor::Detail;
use crate::signals::HeldBack;
use crate::threads::TidHasher;
use crate::{files, syscalls, uring};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// Program and the tracepoint it is for.
const TRACEPOINTS: [(&str, &str); 15] = [
    ("forked", "sched_process_fork"),
    ("executed", "sched_process_exec"),
    ("renamed", "task_rename"),
    ("switched", "sched_switch"),
    ("waking", "sched_waking"),
    ("call_ends", "sys_exit"),
    ("call_begins", "sys_enter"),
    ("bio_queued", "block_bio_queue"),
    ("request_issued", "block_rq_issue"),
    ("request_done", "block_rq_complete"),
    ("softirq_ends", "softirq_exit"),
    ("softirq_begins", "softirq_entry"),
    ("interrupt_handler_ends", "irq_handler_exit"),
    ("interrupt_handler_begins", "irq_handler_entry"),
    ("each_task", ""),
];

/// Likewise, of io_uring. Kernels before 6.3 do not have all of them, and some are built without io_uring: then there is nothing to see.
const OF_URING: [(&str, &str); 3] = [
    ("uring_completed", "io_uring_complete"),
    ("uring_queued", "io_uring_queue_async_work"),
    ("uring_submitted", "io_uring_submit_req"),
];

/// Likewise, of TCP: loaded when asked for.
const OF_TCP: (&str, &str) = ("retransmitted", "tcp_retransmit_skb");

/// Kinds of interrupts: soft ones as /proc/softirqs names them, and those of devices.
const INTERRUPTS: [&str; 11] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU", "device"];

/// The section of the variable `window`, and places in it.
const WINDOW: &str = ".data.window";
const UNTIL: usize = 0;
const SINCE: usize = 1;
const LEFT_OUT: usize = 2;
const UNFINISHED: usize = 3;

/// Bytes of the smallest ring that there is.
pub const SMALLEST_RING: u32 = 4096;

/// The inode of the first PID namespace (include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What is left out at `LEFT_OUT`.
const NO_STACKS: u64 = 1;
const NO_EVENTS: u64 = 2;

/// How much is handed over, and how.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes of the ring between kernel and reader; a power of two.
    pub ring_bytes: u32,
    /// Sleeps at least this long have the functions of the kernel they slept in.
    pub stack_from_ns: u64,
    /// A stack for so many ns of sleep in the calls of a thread; 0: none.
    pub sample_asleep_ns: u64,
    /// Stacks of what runs, per second and CPU; 0: none.
    pub sample_cpu_hz: u32,
    /// Of a process, call and errno, the failures that have their stack; after that each 2^n-th. 0: none.
    pub first_failures: u32,
    /// Each call and each stay off the CPU; without, calls are summed in the kernel once a second.
    pub events: bool,
    /// From where to where the kernel has the functions of its scheduler and its locks; nowhere when it does not say.
    pub scheduler: (u64, u64),
    /// Segments of TCP that are sent again, of the whole host.
    pub retransmits: bool,
    /// CPU time that the reader may take, as a share of one core; above it, less is recorded.
    pub budget: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ring_bytes: 32 << 20,
            stack_from_ns: 100_000,
            sample_asleep_ns: 100_000_000,
            sample_cpu_hz: 99,
            first_failures: 16,
            events: true,
            scheduler: (0, 0),
            retransmits: false,
            budget: 0.3,
        }
    }
}

/// Numbers of threads in the trace.
type Numbers = HashSet<u32, BuildHasherDefault<TidHasher>>;

/// The loaded programs. They are gone from the kernel when this is dropped.
pub struct Programs {
    ebpf: Ebpf,
    /// Calls, stays, stacks, requests.
    ring: RingBuf<MapData>,
    /// Names, ends and sums of threads.
    vital: RingBuf<MapData>,
    /// How much fits into each.
    ring_bytes: usize,
    vital_bytes: usize,
    named: Numbers,
    newest: u32,
    sample_cpu_hz: u32,
    sees_uring: bool,
    retransmits: bool,
}

impl Programs {
    /// Loads the programs.
    ///
    /// # Errors
    /// Kind rights or unsupported: the kernel refuses.
    pub fn load(options: Options) -> Result<Programs> {
        let _signals = HeldBack::all(); // with one due, the kernel gives up checking a program (EAGAIN)
        let btf = Btf::from_sys_fs().map_err(|e| {
            Error::new(Kind::Unsupported, "the kernel does not describe its types")
                .detail(format!("/sys/kernel/btf/vmlinux: {e}"))
                .hint("boot a kernel with CONFIG_DEBUG_INFO_BTF")
        })?;
        let has_prev_state = u32::from(at_least(5, 18));
        let sample_cpu_ns = 1_000_000_000 / u64::from(options.sample_cpu_hz.max(1));
        let (with_file, that_open) = (syscalls::bits(files::CALLS_WITH_FILE), syscalls::bits(files::CALLS_THAT_OPEN));
        let that_keep = syscalls::bits(files::CALLS_THAT_KEEP);
        let (uring_with_file, uring_with_place) = (uring::with_file(), uring::with_place());
        let arguments = syscalls::arguments();
        let scheduler_bytes = options.scheduler.1.saturating_sub(options.scheduler.0);
        let (stacks_up_to, namespace_inode) = (u64::from(options.ring_bytes) / 2, namespace_inode());
        let vital_bytes = (options.ring_bytes / 4).max(SMALLEST_RING);
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&btf))
            .allow_unsupported_maps()
            .override_global("has_prev_state", &has_prev_state, true)
            .override_global("stack_from_ns", &options.stack_from_ns, true)
            .override_global("sample_asleep_ns", &options.sample_asleep_ns, true)
            .override_global("sample_cpu_ns", &sample_cpu_ns, true)
            .override_global("arguments", &arguments, true)
            .override_global("calls_with_file", &with_file, true)
            .override_global("calls_that_open", &that_open, true)
            .override_global("calls_that_keep", &that_keep, true)
            .override_global("operations_with_file", &uring_with_file, true)
            .override_global("operations_with_place", &uring_with_place, true)
            .override_global("scheduler_from", &options.scheduler.0, true)
            .override_global("scheduler_bytes", &scheduler_bytes, true)
            .override_global("first_failures", &options.first_failures, true)
            .override_global("stacks_up_to", &stacks_up_to, true)
            .override_global("namespace_inode", &namespace_inode, true)
            .map_max_entries("vital", vital_bytes)
            .map_max_entries("ring", options.ring_bytes);
        let mut ebpf = loader.load(OBJECT).map_err(|e| refused(&e))?;
        for (name, tracepoint) in TRACEPOINTS {
            if tracepoint.is_empty() {
                let program: &mut Iter = program_of(&mut ebpf, name)?;
                program.load("task", &btf).map_err(|e| refused(&e))?;
            } else {
                let program: &mut BtfTracePoint = program_of(&mut ebpf, name)?;
                program.load(tracepoint, &btf).map_err(|e| refused(&e))?;
            }
        }
        let mut sees_uring = true;
        for (name, tracepoint) in OF_URING {
            let program: &mut BtfTracePoint = program_of(&mut ebpf, name)?;
            sees_uring = sees_uring && program.load(tracepoint, &btf).is_ok();
        }
        if options.retransmits {
            let program: &mut BtfTracePoint = program_of(&mut ebpf, OF_TCP.0)?;
            program.load(OF_TCP.1, &btf).map_err(|e| refused(&e))?;
        }
        let program: &mut PerfEvent = program_of(&mut ebpf, "on_cpu")?;
        program.load().map_err(|e| refused(&e))?;
        let ring = ebpf.take_map("ring").ok_or_else(|| missing("ring"))?;
        let ring = RingBuf::try_from(ring).map_err(|e| refused(&e))?;
        let vital = ebpf.take_map("vital").ok_or_else(|| missing("vital"))?;
        let vital = RingBuf::try_from(vital).map_err(|e| refused(&e))?;
        let (sample_cpu_hz, retransmits) = (options.sample_cpu_hz, options.retransmits);
        let mut programs = Programs {
            ebpf,
            ring,
            vital,
            ring_bytes: options.ring_bytes as usize,
            vital_bytes: vital_bytes as usize,
            named: Numbers::default(),
            newest: 0,
            sample_cpu_hz,
            sees_uring,
            retransmits,
        };
        if !options.events {
            programs.set_window(LEFT_OUT, NO_EVENTS)?;
        }
        Ok(programs)
    }

    /// Attaches the programs. Nothing is traced until [`Programs::trace`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach(&mut self, cpus: &[u32]) -> Result<()> {
        let of_uring = OF_URING.iter().filter(|_| self.sees_uring);
        let of_tcp = [&OF_TCP].into_iter().filter(|_| self.retransmits);
        let others = of_uring.chain(of_tcp);
        for (name, _) in TRACEPOINTS.iter().filter(|(_, tracepoint)| !tracepoint.is_empty()).chain(others) {
            let program: &mut BtfTracePoint = program_of(&mut self.ebpf, name)?;
            program.attach().map_err(|e| refused(&e))?;
        }
        if self.sample_cpu_hz > 0 {
            let program: &mut PerfEvent = program_of(&mut self.ebpf, "on_cpu")?;
            for cpu in cpus {
                let scope = PerfEventScope::AllProcessesOneCpu { cpu: *cpu };
                let often = SamplePolicy::Frequency(self.sample_cpu_hz.into());
                let clock = PerfEventConfig::Software(SoftwareEvent::CpuClock);
                program.attach(clock, scope, often, false).map_err(|e| refused(&e))?;
            }
        }
        Ok(())
    }

    /// Traces these processes, their threads, and whatever they start from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn trace(&mut self, tgids: &[u32]) -> Result<()> {
        self.set_window(SINCE, monotonic_ns() as u64)?;
        let map = self.ebpf.map_mut("targets").ok_or_else(|| missing("targets"))?;
        let mut targets: HashMap<_, u32, u32> = HashMap::try_from(map).map_err(|e| refused(&e))?;
        for tgid in tgids {
            targets.insert(tgid, 1, 0).map_err(|e| refused(&e))?;
        }
        // Twice: a thread that one of them made while the first pass went on may have been passed over.
        self.each_task()?;
        self.each_task()
    }

    /// Ends the window at `ts`, ns on CLOCK_MONOTONIC: each thread hands over its sums, nothing later is traced. How many had no room for
    /// them: they do it when this is called again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn end(&mut self, ts: u64) -> Result<u64> {
        self.set_window(UNTIL, ts)?;
        self.set_window(UNFINISHED, 0)?;
        // Waits until every program that may not have seen it is through: all CPUs have then left what RCU protects.
        // SAFETY: a system call without pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
        self.each_task()?;
        Ok(self.window()?[UNFINISHED])
    }

    /// Records less from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn record(&mut self, detail: Detail) -> Result<()> {
        let left_out = match detail {
            Detail::All => 0,
            Detail::Events => NO_STACKS,
            Detail::Sums => NO_STACKS | NO_EVENTS,
        };
        self.set_window(LEFT_OUT, left_out)
    }

    fn window(&self) -> Result<[u64; 4]> {
        let map = self.ebpf.map(WINDOW).ok_or_else(|| missing(WINDOW))?;
        let window: Array<_, [u64; 4]> = Array::try_from(map).map_err(|e| refused(&e))?;
        window.get(&0, 0).map_err(|e| refused(&e))
    }

    fn set_window(&mut self, which: usize, to: u64) -> Result<()> {
        let mut values = self.window()?;
        values[which] = to;
        let map = self.ebpf.map_mut(WINDOW).ok_or_else(|| missing(WINDOW))?;
        let mut window: Array<_, [u64; 4]> = Array::try_from(map).map_err(|e| refused(&e))?;
        window.set(0, values, 0).map_err(|e| refused(&e))
    }

    /// Calls `each` with each record that is there: of a thread first who it is, and its end before the last of its events.
    ///
    /// With what comes meanwhile, no more than `rings` times what the ring holds is read: where it comes faster than it is read, this ends
    /// nevertheless. Once is enough for all that was there at the beginning.
    pub fn drain(&mut self, rings: usize, mut each: impl FnMut(&[u8])) {
        let bytes = self.vital_bytes;
        self.newest = self.newest.max(drain_vital(&mut self.vital, bytes, &mut self.named, &mut each));
        let mut left = self.ring_bytes.saturating_mul(rings);
        while left > 0 {
            let Some(record) = self.ring.next() else { break };
            left = left.saturating_sub(in_ring(&record));
            // Who a thread is was handed over before its first event, though perhaps after the other ring was looked at.
            let thread = thread_of(&record);
            if thread != 0 && !self.named.contains(&thread) {
                self.newest =
                    self.newest.max(drain_vital(&mut self.vital, bytes, &mut self.named, &mut each)).max(thread);
                self.named.insert(thread);
            }
            each(&record);
        }
    }

    /// The last number of a thread that was read.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// These threads have ended: no record of them comes any more.
    pub fn forget(&mut self, ended: &[u32]) {
        for number in ended {
            self.named.remove(number);
        }
    }

    /// Calls and stays, stacks, requests of block devices, sums of threads that ended, and segments sent again, for which there was no room
    /// so far.
    pub fn lost(&self) -> [u64; 5] {
        let map = self.ebpf.map("lost").and_then(|map| Array::<_, u64>::try_from(map).ok());
        [0, 1, 2, 3, 4].map(|what| map.as_ref().and_then(|map| map.get(&what, 0).ok()).unwrap_or(0))
    }

    /// Interrupts of the host so far: CPU, kind, how many, ns. Kinds without one are left out.
    pub fn interrupts(&self) -> Vec<(u32, &'static str, u64, u64)> {
        let map = self.ebpf.map("interrupt_sums").and_then(|map| PerCpuArray::<_, [u64; 2]>::try_from(map).ok());
        let sums = |kind: u32| map.as_ref().and_then(|map| map.get(&kind, 0).ok());
        let mut found = Vec::new();
        for (kind, name) in (0..).zip(INTERRUPTS) {
            let each_cpu = sums(kind);
            let with_cpu = each_cpu.iter().flat_map(|sums| (0..).zip(sums.iter()));
            found.extend(with_cpu.filter(|(_, sum)| sum[0] > 0).map(|(cpu, sum)| (cpu, name, sum[0], sum[1])));
        }
        found
    }

    fn each_task(&mut self) -> Result<()> {
        let program: &mut Iter = program_of(&mut self.ebpf, "each_task")?;
        let id = program.attach().map_err(|e| refused(&e))?;
        let link = program.take_link(id).map_err(|e| refused(&e))?;
        let mut nothing = Vec::new();
        let mut file = link.into_file().map_err(|e| refused(&e))?;
        file.read_to_end(&mut nothing).map_err(|e| refused(&e))?;
        Ok(())
    }
}

/// What a record takes in a ring: its head of 8 bytes, too, and up to the next 8.
fn in_ring(record: &[u8]) -> usize {
    8 + record.len().next_multiple_of(8)
}

/// Reads the ring of names, ends and sums, of so many bytes; the highest number of a thread in it.
fn drain_vital(vital: &mut RingBuf<MapData>, bytes: usize, named: &mut Numbers, mut each: impl FnMut(&[u8])) -> u32 {
    let (mut newest, mut left) = (0, bytes);
    while left > 0 {
        let Some(record) = vital.next() else { break };
        left = left.saturating_sub(in_ring(&record));
        let thread = thread_of(&record);
        newest = newest.max(thread);
        named.insert(thread);
        each(&record);
    }
    newest
}

/// The number of the thread of a record (bpf/records.h).
fn thread_of(record: &[u8]) -> u32 {
    record.get(12..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// The inode of our PID namespace; 0 when it is the first one.
fn namespace_inode() -> u32 {
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::metadata("/proc/self/ns/pid").map_or(FIRST_PID_NAMESPACE, |found| found.ino());
    if inode == FIRST_PID_NAMESPACE {
        0
    } else {
        inode as u32
    }
}

fn program_of<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name).ok_or_else(|| missing(name))?.try_into().map_err(|e| refused(&e))
}

fn missing(name: &str) -> Error {
    Error::new(Kind::Unsupported, format!("the BPF programs lack {name}"))
}

/// The kernel, or the loader, says no.
fn refused(e: &(dyn std::error::Error + 'static)) -> Error {
    let mut causes = vec![e.to_string()];
    let (mut cause, mut denied) = (Some(e), false);
    while let Some(e) = cause {
        let code = e.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        denied |= matches!(code, Some(libc::EPERM | libc::EACCES));
        cause = e.source();
        let text = cause.map(ToString::to_string).unwrap_or_default();
        if !causes.iter().any(|before| before.contains(&text)) {
            causes.push(text);
        }
    }
    let kind = if denied { Kind::Rights } else { Kind::Unsupported };
    let hint = if denied {
        "run as root, or: setcap cap_bpf,cap_perfmon+ep on the Python that runs leadline"
    } else {
        "a kernel from 5.14 on x86-64 with BTF is needed"
    };
    Error::new(kind, "the kernel does not take the BPF programs").detail(causes.join(": ")).hint(hint)
}

/// Whether the kernel is of this version or a later one.
fn at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
}

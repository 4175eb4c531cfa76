//! A trace without BPF: events of perf, which the kernel writes one by one into rings, and which are added up here (accounting.rs).
//!
//! Switches, wakings and forks are told of all threads of the host, by one event for each CPU. System calls are told of the traced
//! threads alone, by events of each thread for each CPU, which their children inherit; so are the functions in which they sleep. Each
//! kind of record has a ring of its own for each CPU, so that stacks take no room from what the sums are made of.
//!
//! There are kernels (6.18) on which tracepoints in the idle task tell nothing for seconds. So who comes to a CPU is also told by
//! PERF_RECORD_SWITCH. A waking by an interrupt on such a CPU is not told: that sleep lasts until the switch.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use leadline_clockwork::monotonic_ns;
use leadline_errors::{Error, Kind, Result};
use perf_event_open_sys::bindings::{self, perf_event_attr};
use perf_event_open_sys::ioctls;

use crate::accounting::{Accounting, Event, Sampled, What};
use crate::governor::Detail;
use crate::proc_threads::{counters, look, threads_of, Addresses};
use crate::programs::Options;
use crate::record::Record;
use crate::ring::{attributes, half, open_event, records, time_at_end, word, Ring};
use crate::tracepoints::Tracepoints;

/// Frames of the kernel that are kept of a sleep and of a sample.
const SLEEP_FRAMES: u16 = 24;
const SAMPLE_FRAMES: u16 = 32;
const USER_STACK: u32 = 16384;
/// Registers of a sample, in the order in which they come: bp, sp, ip (asm/perf_regs.h).
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
const SAMPLES_RING: usize = 512 << 10;
const SMALLEST_RING: usize = 4096;
/// CPUs among which the bytes of the rings are divided; more CPUs take more.
const SHARING: usize = 8;
/// Addresses of a chain from here on are marks.
const MARKS: u64 = u64::MAX - 4094;
/// Looks for threads that were made while others were opened.
const PASSES: usize = 4;

/// Events that come as TIME|RAW, or as no samples; those of sleeps; those of what runs.
#[derive(Clone, Copy)]
enum Form {
    Events,
    Sleeps,
    Samples,
}

struct Cpu {
    number: u32,
    events: Ring,
    sleeps: Ring,
    samples: Option<Ring>,
    /// The last time in `events`.
    last_ts: u64,
    /// Those that write into the rings, but for the events of threads.
    others: [OwnedFd; 2],
}

/// A trace by perf events.
pub struct PerfTrace {
    tracepoints: Tracepoints,
    cpus: Vec<Cpu>,
    of_threads: Vec<OwnedFd>,
    accounting: Accounting,
    pending: Vec<Event>,
    copy: Vec<u8>,
    addresses: Addresses,
    /// From where to where the kernel keeps the functions of its scheduler, which are in every sleep; nowhere when it does not say.
    scheduler: (u64, u64),
    /// When the last drain began: what is older than this is in the rings.
    drained: u64,
    until: Option<u64>,
    /// Events, and stacks, for which there was no room.
    pub lost: [u64; 2],
}

impl PerfTrace {
    /// Opens what is told of all threads. addresses: of functions of the kernel, for the sleeps that began before.
    ///
    /// # Errors
    /// Kinds rights and unsupported: the kernel refuses.
    pub fn open(options: Options, cpus: &[u32], addresses: Addresses) -> Result<PerfTrace> {
        if !in_the_hosts_namespace() {
            return Err(Error::new(
                Kind::Unsupported,
                "perf events of other processes cannot be told apart in a container",
            )
            .detail("this process has another number on the host")
            .hint("run leadline on the host, or with the host's pid namespace"));
        }
        let tracepoints = Tracepoints::read()?;
        let bytes = (options.ring_bytes as usize / cpus.len().clamp(1, SHARING)).max(SMALLEST_RING);
        let bytes = 1 << bytes.ilog2();
        let cpus = cpus.iter().map(|cpu| Cpu::open(*cpu, &tracepoints, options, bytes)).collect::<io::Result<Vec<_>>>();
        let address = |name| addresses.get(name).unwrap_or(0);
        Ok(PerfTrace {
            tracepoints,
            cpus: cpus.map_err(|e| refused(&e))?,
            of_threads: Vec::new(),
            accounting: Accounting::new(options.stack_from_ns, 1_000_000_000 / u64::from(options.sample_cpu_hz.max(1))),
            pending: Vec::new(),
            copy: Vec::new(),
            scheduler: (address("__sched_text_start"), address("__sched_text_end")),
            addresses,
            drained: 0,
            until: None,
            lost: [0; 2],
        })
    }

    /// Traces these processes, their threads, and whatever they start from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn trace(&mut self, pids: &[u32]) -> Result<()> {
        for cpu in &mut self.cpus {
            cpu.begin().map_err(|e| refused(&e))?;
        }
        more_descriptors();
        let mut opened = std::collections::HashSet::new();
        // Again: a thread that was made meanwhile may have inherited a part of the events, or none. Those it has twice do no harm.
        for _ in 0..PASSES {
            let all = pids.iter().flat_map(|pid| threads_of(*pid).into_iter().map(|tid| (*pid, tid)));
            let new: Vec<(u32, u32)> = all.filter(|(_, tid)| opened.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for (pid, tid) in new {
                self.open_thread(tid).map_err(|e| refused(&e))?;
                let ts = monotonic_ns() as u64;
                if let Some(found) = look(pid, tid, &self.addresses) {
                    self.pending.push(Event { ts, cpu: 0, tid, what: What::Found(Box::new(found)) });
                }
            }
        }
        Ok(())
    }

    fn open_thread(&mut self, tid: u32) -> io::Result<()> {
        for cpu in &self.cpus {
            let kinds = [
                (Form::Events, self.tracepoints.enter, &cpu.events),
                (Form::Events, self.tracepoints.exit, &cpu.events),
                (Form::Sleeps, self.tracepoints.switch, &cpu.sleeps),
            ];
            for (form, tracepoint, ring) in kinds {
                let mut attr = form.attributes(tracepoint);
                attr.set_inherit(1);
                let event = match open_event(&mut attr, tid as i32, cpu.number) {
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()), // it has ended
                    opened => opened?,
                };
                if let Form::Sleeps = form {
                    // SAFETY: a descriptor of ours, and a text that ends with a zero.
                    check(unsafe {
                        ioctls::SET_FILTER(event.as_raw_fd(), c"prev_state > 0 && prev_state < 256".as_ptr().cast_mut())
                    })?;
                }
                send_to(&event, ring)?;
                self.of_threads.push(event);
            }
        }
        Ok(())
    }

    /// Calls `each` with each record that the events up to the begin of the last drain give: those are all here, and in order.
    pub fn drain(&mut self, mut each: impl FnMut(Record<'_>)) {
        let begins = monotonic_ns() as u64;
        let through = self.until.unwrap_or(self.drained);
        self.read();
        self.drained = begins;
        self.pending.sort_by_key(|event| event.ts); // nearly in order already
        let ready = self.pending.partition_point(|event| event.ts <= through);
        for event in self.pending.drain(..ready) {
            self.accounting.event(event, &mut each);
        }
        if let Some(until) = self.until.take() {
            self.pending.clear();
            self.accounting.end(until, counters, each);
        }
    }

    /// Ends the window at `ts`: the next drain hands over all sums.
    pub fn end(&mut self, ts: u64) {
        self.read();
        // A ring that was full tells what it lost when it is written to the next time: something has to run on each CPU.
        run_on_each(&self.cpus);
        self.until = Some(ts);
    }

    /// Leaves out stacks of what runs: events of calls are needed for the sums.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn record(&mut self, detail: Detail) -> Result<()> {
        for samples in self.cpus.iter().filter(|_| detail > Detail::All).filter_map(|cpu| cpu.samples.as_ref()) {
            // SAFETY: a descriptor of ours.
            check(unsafe { ioctls::DISABLE(samples.fd(), 0) }).map_err(|e| refused(&e))?;
        }
        Ok(())
    }

    fn read(&mut self) {
        for cpu in &mut self.cpus {
            cpu.events.read(&mut self.copy);
            self.lost[0] += self.tracepoints.parse(&self.copy, cpu.number, &mut cpu.last_ts, &mut self.pending);
            cpu.sleeps.read(&mut self.copy);
            self.lost[1] += sleeps(&self.copy, cpu.number, self.scheduler, &mut self.pending);
            if let Some(samples) = &mut cpu.samples {
                samples.read(&mut self.copy);
                self.lost[1] += sampled(&self.copy, cpu.number, &mut self.pending);
            }
        }
    }
}

impl Cpu {
    fn open(number: u32, tracepoints: &Tracepoints, options: Options, bytes: usize) -> io::Result<Cpu> {
        let mut attr = Form::Events.attributes(tracepoints.switch);
        attr.set_disabled(1);
        let events = ring(&mut attr, number, bytes)?;
        let mut attr = Form::Events.attributes(tracepoints.waking);
        attr.set_disabled(1);
        let waking = open_event(&mut attr, -1, number)?;
        send_to(&waking, &events)?;
        let dummy = u64::from(bindings::PERF_COUNT_SW_DUMMY);
        // Says of whom it tells; there are no samples of it.
        let with_tid = bindings::PERF_SAMPLE_TID | bindings::PERF_SAMPLE_TIME;
        let mut attr = attributes(bindings::PERF_TYPE_SOFTWARE, dummy, with_tid);
        attr.set_disabled(1);
        attr.set_context_switch(1);
        attr.set_task(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        let tasks = open_event(&mut attr, -1, number)?;
        send_to(&tasks, &events)?;
        let mut attr = attributes(bindings::PERF_TYPE_SOFTWARE, dummy, Form::Sleeps.sample_type());
        let sleeps = ring(&mut attr, number, (bytes / 4).max(SMALLEST_RING))?;
        let samples = match options.sample_cpu_hz {
            0 => None,
            hz => {
                let clock = u64::from(bindings::PERF_COUNT_SW_CPU_CLOCK);
                let mut attr = attributes(bindings::PERF_TYPE_SOFTWARE, clock, Form::Samples.sample_type());
                attr.set_disabled(1);
                attr.set_freq(1);
                attr.__bindgen_anon_1.sample_freq = hz.into();
                attr.set_exclude_idle(1);
                attr.set_exclude_callchain_user(1);
                attr.sample_max_stack = SAMPLE_FRAMES;
                attr.sample_regs_user = REGISTERS;
                attr.sample_stack_user = USER_STACK;
                Some(ring(&mut attr, number, SAMPLES_RING)?)
            }
        };
        Ok(Cpu { number, events, sleeps, samples, last_ts: 0, others: [waking, tasks] })
    }
}

impl Cpu {
    /// Lets the events begin.
    fn begin(&mut self) -> io::Result<()> {
        self.last_ts = monotonic_ns() as u64;
        let rings = [Some(&self.events), self.samples.as_ref()].into_iter().flatten().map(Ring::fd);
        for event in rings.chain(self.others.iter().map(AsRawFd::as_raw_fd)) {
            // SAFETY: a descriptor of ours.
            check(unsafe { ioctls::ENABLE(event, 0) })?;
        }
        Ok(())
    }
}

impl Form {
    fn sample_type(self) -> u32 {
        match self {
            Form::Events => bindings::PERF_SAMPLE_TIME | bindings::PERF_SAMPLE_RAW,
            Form::Sleeps => bindings::PERF_SAMPLE_TID | bindings::PERF_SAMPLE_TIME | bindings::PERF_SAMPLE_CALLCHAIN,
            Form::Samples => {
                let stacks = bindings::PERF_SAMPLE_REGS_USER | bindings::PERF_SAMPLE_STACK_USER;
                Form::Sleeps.sample_type() | stacks
            }
        }
    }

    /// Of each event of a tracepoint.
    fn attributes(self, tracepoint: u16) -> perf_event_attr {
        let mut attr = attributes(bindings::PERF_TYPE_TRACEPOINT, tracepoint.into(), self.sample_type());
        attr.__bindgen_anon_1.sample_period = 1;
        if let Form::Sleeps = self {
            attr.set_exclude_callchain_user(1);
            attr.sample_max_stack = SLEEP_FRAMES;
        }
        attr
    }
}

impl Tracepoints {
    /// Reads records of the form TIME|RAW; returns how many the kernel says were lost. last_ts: the last time that was seen.
    fn parse(&self, bytes: &[u8], cpu: u32, last_ts: &mut u64, events: &mut Vec<Event>) -> u64 {
        let mut lost = 0;
        for (kind, misc, record) in records(bytes) {
            let sample = kind == bindings::PERF_RECORD_SAMPLE;
            let ts = if sample { word(record, 0) } else { time_at_end(record) };
            match kind {
                bindings::PERF_RECORD_SAMPLE => {
                    let raw = record.get(12..).unwrap_or_default();
                    if let Some((tid, what)) = self.sample(raw) {
                        events.push(Event { ts, cpu, tid, what });
                    }
                }
                bindings::PERF_RECORD_FORK => {
                    let (pid, tid, parent) = (half(record, 0), half(record, 8), half(record, 12));
                    events.push(Event { ts, cpu, tid, what: What::Forked { pid, parent } });
                }
                bindings::PERF_RECORD_COMM => {
                    let mut comm = [0; 16];
                    comm.iter_mut()
                        .zip(record.get(8..).unwrap_or_default().iter().take_while(|b| **b != 0))
                        .for_each(|(to, b)| *to = *b);
                    let (pid, tid) = (half(record, 0), half(record, 4));
                    let exec = misc & bindings::PERF_RECORD_MISC_COMM_EXEC != 0;
                    events.push(Event { ts, cpu, tid, what: What::Renamed { pid, comm, exec } });
                }
                bindings::PERF_RECORD_SWITCH_CPU_WIDE if misc & bindings::PERF_RECORD_MISC_SWITCH_OUT == 0 => {
                    let tid = half(record, record.len().saturating_sub(12));
                    events.push(Event { ts, cpu, tid, what: What::Came { before: half(record, 4) } });
                }
                bindings::PERF_RECORD_LOST => {
                    lost += word(record, 8);
                    let ts = ts.max(*last_ts);
                    events.push(Event { ts: *last_ts, cpu, tid: 0, what: What::GapBegins });
                    events.push(Event { ts, cpu, tid: 0, what: What::GapEnds });
                }
                _ => {}
            }
            *last_ts = ts.max(*last_ts);
        }
        lost
    }

    fn sample(&self, raw: &[u8]) -> Option<(u32, What)> {
        let kind = raw.first_chunk().map(|b| u16::from_ne_bytes(*b))?;
        let tid = half(raw, self.common_pid);
        if kind == self.enter {
            let args = std::array::from_fn(|i| word(raw, self.args + 8 * i));
            Some((tid, What::Entered { nr: word(raw, self.enter_nr), args }))
        } else if kind == self.exit {
            Some((tid, What::Returned { nr: word(raw, self.exit_nr), ret: word(raw, self.ret) as i64 }))
        } else if kind == self.switch {
            let next = half(raw, self.next_pid);
            Some((half(raw, self.prev_pid), What::Switched { state: word(raw, self.prev_state), next }))
        } else if kind == self.waking {
            Some((half(raw, self.woken_pid), What::Woken { waker: tid }))
        } else {
            None
        }
    }
}

/// Reads records of the form TID|TIME|CALLCHAIN; returns how many were lost.
fn sleeps(bytes: &[u8], cpu: u32, (begin, end): (u64, u64), events: &mut Vec<Event>) -> u64 {
    let mut lost = 0;
    for (kind, _, record) in records(bytes) {
        if kind == bindings::PERF_RECORD_SAMPLE {
            // What stands before the scheduler is the tracepoint itself, when others look at it too.
            let mut inside = end <= begin;
            let frames = chain(record, |address| {
                let scheduler = (begin..end).contains(&address);
                inside |= scheduler;
                inside && !scheduler
            });
            events.push(Event { ts: word(record, 8), cpu, tid: half(record, 4), what: What::Chain { frames } });
        } else if kind == bindings::PERF_RECORD_LOST {
            lost += word(record, 8);
        }
    }
    lost
}

/// Reads records of the form TID|TIME|CALLCHAIN|REGS_USER|STACK_USER; returns how many were lost.
fn sampled(bytes: &[u8], cpu: u32, events: &mut Vec<Event>) -> u64 {
    let mut lost = 0;
    for (kind, _, record) in records(bytes) {
        if kind == bindings::PERF_RECORD_LOST {
            lost += word(record, 8);
        }
        if kind != bindings::PERF_RECORD_SAMPLE {
            continue;
        }
        let (pid, tid, ts) = (half(record, 0), half(record, 4), word(record, 8));
        let kernel = chain(record, |_| true);
        let after = usize::try_from(word(record, 16)).unwrap_or(0).saturating_mul(8).saturating_add(24);
        // Without registers (a thread of the kernel) the three words are not there.
        let (bp, sp, ip, stack) = match word(record, after) {
            0 => (0, 0, 0, after.saturating_add(8)),
            _ => {
                (word(record, after + 8), word(record, after + 16), word(record, after + 24), after.saturating_add(32))
            }
        };
        let size = usize::try_from(word(record, stack)).unwrap_or(0);
        let copied = record.get(stack.saturating_add(8)..).and_then(|b| b.get(..size)).unwrap_or_default();
        let used = usize::try_from(word(record, stack.saturating_add(8).saturating_add(size))).unwrap_or(0);
        let user = copied.get(..used).unwrap_or_default().to_vec();
        events.push(Event { ts, cpu, tid, what: What::Sampled(Box::new(Sampled { pid, kernel, ip, sp, bp, user })) });
    }
    lost
}

/// The addresses of a chain that `wanted` wants, without the marks between kernel and user.
fn chain(record: &[u8], mut wanted: impl FnMut(u64) -> bool) -> Vec<u8> {
    let n = usize::try_from(word(record, 16)).unwrap_or(0);
    let addresses = record.get(24..).unwrap_or_default().chunks_exact(8).take(n);
    let kept = addresses.filter(|bytes| {
        let address = word(bytes, 0);
        address < MARKS && wanted(address)
    });
    kept.flatten().copied().collect()
}

/// Opens an event and its ring. Where as much memory may not be locked, the ring is smaller.
fn ring(attr: &mut perf_event_attr, cpu: u32, mut bytes: usize) -> io::Result<Ring> {
    loop {
        match Ring::map(open_event(attr, -1, cpu)?, bytes) {
            Err(e) if e.raw_os_error() == Some(libc::EPERM) && bytes > SMALLEST_RING => bytes /= 2,
            mapped => return mapped,
        }
    }
}

fn send_to(event: &OwnedFd, ring: &Ring) -> io::Result<()> {
    // SAFETY: two descriptors of ours.
    check(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), ring.fd()) })
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets this thread run on each CPU for a moment.
fn run_on_each(cpus: &[Cpu]) {
    // SAFETY: an all-zero set is valid; the calls read and write sets of the size that they are told.
    unsafe {
        let (size, mut before) = (size_of::<libc::cpu_set_t>(), std::mem::zeroed::<libc::cpu_set_t>());
        if libc::sched_getaffinity(0, size, &raw mut before) != 0 {
            return;
        }
        for cpu in cpus.iter().filter(|cpu| (cpu.number as usize) < 8 * size) {
            let mut one = std::mem::zeroed::<libc::cpu_set_t>();
            libc::CPU_SET(cpu.number as usize, &mut one);
            if libc::sched_setaffinity(0, size, &raw const one) == 0 {
                libc::sched_yield();
            }
        }
        libc::sched_setaffinity(0, size, &raw const before);
    }
}

/// As many open files as this process may have: each thread takes three for each CPU.
fn more_descriptors() {
    // SAFETY: the structure is valid and filled before it is used.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Whether the numbers of processes are those of the host: tracepoints say no others.
fn in_the_hosts_namespace() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_none_or(|numbers| numbers.split_ascii_whitespace().count() == 1)
}

fn refused(error: &io::Error) -> Error {
    let (kind, hint) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => (
            Kind::Rights,
            "run as root, or: setcap cap_perfmon,cap_dac_read_search+ep on the Python that runs leadline",
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            (Kind::Usage, "trace fewer processes, or allow more open files: ulimit -Hn 1048576")
        }
        _ => (Kind::Unsupported, "a kernel with CONFIG_PERF_EVENTS and CONFIG_FTRACE_SYSCALLS is needed"),
    };
    Error::new(kind, "the kernel does not give perf events").detail(format!("perf_event_open: {error}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u32, body: &[u8]) -> Vec<u8> {
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend((misc as u16).to_ne_bytes());
        out.extend((body.len() as u16 + 8).to_ne_bytes());
        out.extend(body);
        out
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn places() -> Tracepoints {
        Tracepoints {
            switch: 1,
            waking: 2,
            enter: 3,
            exit: 4,
            common_pid: 4,
            prev_pid: 24,
            prev_state: 32,
            next_pid: 56,
            woken_pid: 24,
            enter_nr: 8,
            args: 16,
            exit_nr: 8,
            ret: 16,
        }
    }

    /// A sample of a tracepoint: time, size, type and thread, fields.
    fn sample(ts: u64, kind: u64, fields: &[u64]) -> Vec<u8> {
        let mut raw = words(&[kind | 7 << 32]);
        raw.extend(words(fields));
        let mut body = words(&[ts]);
        body.extend((raw.len() as u32 + 4).to_ne_bytes());
        body.extend(raw);
        body.extend([0; 4]);
        record(bindings::PERF_RECORD_SAMPLE, 0, &body)
    }

    fn stream() -> Vec<u8> {
        let mut bytes = sample(10, 3, &[64, 1, 2, 3, 4, 5, 6]);
        bytes.extend(sample(20, 4, &[64, -2i64 as u64]));
        bytes.extend(sample(30, 2, &[0, 0, 8, 0]));
        bytes.extend(record(bindings::PERF_RECORD_LOST, 0, &words(&[1, 12, 90])));
        bytes.extend(sample(100, 1, &[0, 0, 8, 2, 0, 0, 9]));
        bytes.extend(record(bindings::PERF_RECORD_FORK, 0, &words(&[21 | 20 << 32, 22 | 20 << 32, 109, 110])));
        bytes.extend(record(bindings::PERF_RECORD_COMM, 0x2000, &words(&[20 | 20 << 32, 0x736c, 0, 120])));
        let (out, came) = (bindings::PERF_RECORD_MISC_SWITCH_OUT, words(&[5 | 6 << 32, 7 | 8 << 32, 130]));
        bytes.extend(record(bindings::PERF_RECORD_SWITCH_CPU_WIDE, out, &came));
        bytes.extend(record(bindings::PERF_RECORD_SWITCH_CPU_WIDE, 0, &came));
        bytes
    }

    #[test]
    fn events_are_read_and_a_loss_is_a_gap_since_the_last_one() {
        let (mut events, mut last_ts) = (Vec::new(), 0);
        assert_eq!(places().parse(&stream(), 1, &mut last_ts, &mut events), 12);
        let mut comm = [0; 16];
        comm[..2].copy_from_slice(b"ls");
        let expected = [
            (10, 7, What::Entered { nr: 64, args: [1, 2, 3, 4, 5, 6] }),
            (20, 7, What::Returned { nr: 64, ret: -2 }),
            (30, 8, What::Woken { waker: 7 }),
            (30, 0, What::GapBegins),
            (90, 0, What::GapEnds),
            (100, 8, What::Switched { state: 2, next: 9 }),
            (110, 22, What::Forked { pid: 21, parent: 20 }),
            (120, 20, What::Renamed { pid: 20, comm, exec: true }),
            (130, 8, What::Came { before: 6 }),
        ];
        assert_eq!(events, expected.map(|(ts, tid, what)| Event { ts, cpu: 1, tid, what }));
        assert_eq!(last_ts, 130);
    }

    #[test]
    fn chains_and_stacks_are_read_without_marks_and_as_long_as_they_say() {
        let frames = [7 | 8 << 32, 50, 5, -128i64 as u64, 0x050, 0x150, 0x250, 0x350];
        let sleep = record(bindings::PERF_RECORD_SAMPLE, 0, &words(&frames));
        let mut events = Vec::new();
        assert_eq!(sleeps(&sleep, 0, (0x100, 0x200), &mut events), 0);
        assert_eq!(events, [Event { ts: 50, cpu: 0, tid: 8, what: What::Chain { frames: words(&[0x250, 0x350]) } }]);
        let mut body = words(&frames);
        body.extend(words(&[2, 0xb, 0x5, 0x1, 16, 41, 42, 8]));
        let sample = record(bindings::PERF_RECORD_SAMPLE, 0, &body);
        events.clear();
        assert_eq!(sampled(&sample, 0, &mut events), 0);
        let kernel = words(&[0x050, 0x150, 0x250, 0x350]);
        let expected = Sampled { pid: 7, kernel, ip: 1, sp: 5, bp: 0xb, user: words(&[41]) };
        assert_eq!(events, [Event { ts: 50, cpu: 0, tid: 8, what: What::Sampled(Box::new(expected)) }]);
    }

    #[test]
    fn records_of_any_bytes_are_read_without_a_fault() {
        let mut whole = stream();
        whole.extend(record(bindings::PERF_RECORD_SAMPLE, 0, &words(&[1, 2, u64::MAX, 3, u64::MAX - 8, 5])));
        for len in 0..whole.len() {
            for flip in [0u8, 0xff] {
                let mut bytes = whole[..len].to_vec();
                bytes.iter_mut().skip(8).step_by(7).for_each(|b| *b ^= flip);
                let (mut events, mut last_ts) = (Vec::new(), 0);
                places().parse(&bytes, 0, &mut last_ts, &mut events);
                sleeps(&bytes, 0, (0, 0), &mut events);
                sampled(&bytes, 0, &mut events);
            }
        }
    }
}

//! One trace as the work of a tick: what the programs handed over since the last tick, into the tables.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array};
use leadline_capture::Value;
use leadline_clockwork::{monotonic_ns, thread_cpu_ns, OpenTables, Tick};
use leadline_errors::Error;

use crate::aio::Aios;
use crate::block::BlockIos;
use crate::calibration::{calibrate, PerWaking};
use crate::cpus::online_cpus;
use crate::files::Files;
use crate::governor::{Detail, Governor};
use crate::kernel_stacks::KernelStacks;
use crate::programs::Options;
use crate::record::{Call, CallSum, End, Head, OffCpu, Record, SleptIn};
use crate::retransmits::Retransmits;
use crate::source::{Lost, Source, Tier};
use crate::stacks::Stacks;
use crate::syscalls;
use crate::threads::{ThreadRow, Threads};
use crate::uring::UringOps;

/// Records taken into memory before they are written as columns.
const AT_ONCE: usize = 1 << 16;
/// How many times what the ring holds is read at a tick: then the governor looks, and whether to stop.
const AT_A_TICK: usize = 8;

/// What is counted while the trace goes on.
#[derive(Debug, Default)]
pub struct Counts {
    /// Records read.
    pub records: AtomicU64,
    /// Records for which the ring had no room, as far as is known yet.
    pub lost: AtomicU64,
    /// Stacks for which it had none: they give way first.
    pub lost_stacks: AtomicU64,
    /// Requests of block devices and operations of io_uring likewise.
    pub lost_block_ios: AtomicU64,
    /// Times it began to record less.
    pub steps: AtomicU64,
    /// Threads that ended, whose sums were lost likewise.
    pub lost_threads: AtomicU64,
    /// Segments of TCP that were sent again, likewise.
    pub lost_retransmits: AtomicU64,
}

/// Traces threads.
pub struct KernelProbe {
    source: Source,
    pids: Vec<u32>,
    per_waking: PerWaking,
    named: bool,
    threads: Threads,
    kernel_stacks: KernelStacks,
    stacks: Option<Stacks>,
    block_ios: BlockIos,
    uring_ops: UringOps,
    aios: Aios,
    files: Files,
    retransmits: Retransmits,
    /// Calls and stays until they are written; kept for their memory.
    calls: Vec<Row<Call>>,
    stays: Vec<Row<(OffCpu, i32, i32)>>,
    counts: Arc<Counts>,
    records: u64,
    lost_before: Lost,
    governor: Governor,
}

impl KernelProbe {
    /// Attaches, and measures what a waking does to the figures; the processes `pids` are traced from [`KernelProbe::begin`] on, with
    /// all that they start.
    ///
    /// # Errors
    /// Kinds rights and unsupported.
    pub fn open(pids: &[u32], tier: Tier, options: Options) -> Result<KernelProbe, Error> {
        let kernel_stacks = KernelStacks::new();
        let options = Options { scheduler: kernel_stacks.scheduler(), ..options };
        let with_stacks = options.sample_cpu_hz > 0 || options.sample_asleep_ns > 0 || options.first_failures > 0;
        let cpus = online_cpus();
        let mut source = Source::open(tier, options, &cpus)?;
        let per_waking = calibrate(&mut source)?;
        let stacks = if with_stacks { Some(Stacks::open(&cpus)?) } else { None };
        Ok(KernelProbe {
            source,
            per_waking,
            pids: pids.to_vec(),
            named: false,
            threads: Threads::default(),
            kernel_stacks,
            stacks,
            block_ios: BlockIos::default(),
            uring_ops: UringOps::default(),
            aios: Aios::default(),
            files: Files::default(),
            retransmits: Retransmits::default(),
            calls: Vec::new(),
            stays: Vec::new(),
            counts: Arc::default(),
            records: 0,
            lost_before: Lost::default(),
            governor: Governor::new(
                options.budget,
                if options.events { Detail::All } else { Detail::Sums },
                tier.least(),
            ),
        })
    }

    /// Begins to trace: what the processes do from now on is handed over at the ticks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin(&mut self) -> Result<(), Error> {
        if let Some(stacks) = &mut self.stacks {
            stacks.begin(&self.pids);
        }
        // Requests of the whole host come as soon as the programs are attached, and fill the ring while it is calibrated.
        self.source.drain(1, |_| {});
        self.lost_before = self.source.lost();
        self.threads.begin(self.source.newest());
        self.source.trace(&self.pids)
    }

    /// How far the scheduler's own counters may differ from the trace.
    pub fn per_waking(&self) -> PerWaking {
        self.per_waking
    }

    /// What is counted, also while the probe works elsewhere.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Records less when it takes too much.
    fn govern(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        let lost = self.counts.lost.load(Relaxed) + self.counts.lost_stacks.load(Relaxed);
        let Some(step) = self.governor.look(monotonic_ns(), thread_cpu_ns(), lost) else { return Ok(()) };
        self.source.record(step.detail)?;
        let row = vec![
            Value::Int(step.ts),
            Value::Text(step.detail.name()),
            Value::Float(step.cpu_share),
            Value::Int(step.lost as i64),
        ];
        tables.write_rows("kernel_detail", [row])?;
        self.counts.steps.fetch_add(1, Relaxed);
        Ok(())
    }

    fn drain(&mut self, rings: usize, tables: &mut OpenTables) -> Result<(), Error> {
        let (mut ends, mut sums) = (Vec::new(), Vec::new());
        let mut outcome = Ok(());
        // Stacks from before are all in the ring now.
        let until = monotonic_ns() as u64;
        let (threads, records) = (&mut self.threads, &mut self.records);
        let (calls, stays) = (&mut self.calls, &mut self.stays);
        let (kernel_stacks, stacks, block_ios) = (&mut self.kernel_stacks, &mut self.stacks, &mut self.block_ios);
        let (files, uring_ops, retransmits) = (&mut self.files, &mut self.uring_ops, &mut self.retransmits);
        let aios = &mut self.aios;
        self.source.drain(rings, |record| {
            *records += 1;
            match record {
                Record::Named(head, named) => threads.named(head, &named),
                Record::Call(head, call) => calls.push(Row::new(threads.of(head), head, call.duration_ns, call)),
                Record::CallSum(head, sum) => sums.push((threads.of(head), head, sum)),
                Record::OffCpu(head, stay, slept_in) => {
                    let stack = match slept_in {
                        SleptIn::Functions(frames) => Some(kernel_stacks.id(frames)),
                        SleptIn::AsBefore => None,
                    };
                    let (thread_id, stack_id) = threads.of_stay(head, stack);
                    let cpu = if stay.open { -1 } else { head.cpu as i32 };
                    stays.push(Row::new(thread_id, head, stay.duration_ns, (stay, stack_id, cpu)));
                }
                Record::End(head, end) => {
                    ends.push((threads.of(head), head, end));
                    if end.exited {
                        threads.ended(head);
                    }
                }
                Record::Stack(head, stack, frames, bytes) => {
                    if let Some(stacks) = stacks.as_mut() {
                        stacks.push(head, threads.of(head), stack, kernel_stacks.id(frames), bytes);
                    }
                }
                Record::OpenFile(head, file, names) => files.push(head, &file, names),
                Record::Retransmit(head, segment) => retransmits.push(head, segment),
                Record::Aio(head, aio) => aios.push(head, aio, threads.id(head)),
                Record::UringOp(head, op) => uring_ops.push(head, op, threads.id(head)),
                Record::BlockIo(head, io) => block_ios.push(head, io, threads.id(head)),
            }
            if outcome.is_ok() && calls.len() >= AT_ONCE {
                outcome = write_calls(tables, calls);
            }
            if outcome.is_ok() && stays.len() >= AT_ONCE {
                outcome = write_stays(tables, stays);
            }
        });
        outcome?;
        write_calls(tables, calls)?;
        write_stays(tables, stays)?;
        tables.write_rows("thread", self.threads.new.iter().map(thread_row))?;
        self.threads.new.clear();
        tables.write_rows("waker", self.threads.wakers.iter().map(waker_row))?;
        self.threads.wakers.clear();
        self.source.forget(&self.threads.forget());
        sums.sort_by_key(|(_, head, _)| head.ts);
        tables.write_rows("syscall_sum", sums.iter().map(|(id, head, sum)| sum_row(*id, *head, sum)))?;
        ends.sort_by_key(|(_, head, _)| head.ts);
        tables.write_rows("thread_time", ends.iter().map(|(id, head, end)| end_row(*id, *head, end)))?;
        self.kernel_stacks.write(tables)?;
        self.block_ios.write(tables)?;
        self.uring_ops.write(tables)?;
        self.aios.write(tables)?;
        self.files.write(tables)?;
        self.retransmits.write(tables)?;
        if let Some(stacks) = &mut self.stacks {
            stacks.write(tables, until)?;
        }
        self.counts.records.store(self.records, Relaxed);
        let lost = self.source.lost().since(self.lost_before);
        self.counts.lost.store(lost.events, Relaxed);
        self.counts.lost_threads.store(lost.threads, Relaxed);
        self.counts.lost_block_ios.store(lost.block_ios, Relaxed);
        self.counts.lost_retransmits.store(lost.retransmits, Relaxed);
        self.counts.lost_stacks.store(lost.stacks + self.stacks.as_ref().map_or(0, |s| s.lost()), Relaxed);
        Ok(())
    }
}

impl KernelProbe {
    fn read(&mut self, rings: usize, tables: &mut OpenTables) -> Result<(), Error> {
        if !self.named {
            self.named = true;
            tables.write_rows(
                "syscall_name",
                syscalls::all().map(|(nr, name)| vec![Value::Int(nr.into()), Value::Text(name)]),
            )?;
        }
        self.drain(rings, tables)?;
        self.govern(tables)
    }
}

impl Tick for KernelProbe {
    fn tick(&mut self, _ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        self.read(AT_A_TICK, tables)
    }

    fn last(&mut self, _ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        self.read(1, tables)?;
        let end = monotonic_ns();
        let mut unfinished = u64::MAX;
        loop {
            let left = self.source.end(end as u64)?;
            self.drain(1, tables)?;
            if left == 0 || left >= unfinished {
                self.counts.lost_threads.fetch_add(left, Relaxed);
                break;
            }
            unfinished = left;
        }
        let interrupts = self.source.interrupts();
        tables.write_rows(
            "interrupt_sum",
            interrupts.iter().map(|(cpu, kind, count, time_ns)| {
                let [cpu, count, time_ns] = [u64::from(*cpu), *count, *time_ns].map(|n| Value::Int(n as i64));
                vec![Value::Int(end), cpu, Value::Text(kind), count, time_ns]
            }),
        )?;
        match &mut self.stacks {
            Some(stacks) => stacks.write_functions(tables),
            None => Ok(()),
        }
    }
}

fn ints(values: impl Iterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

fn longs(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// A call or a stay until it is written: when it ended, whose it was, what it was.
struct Row<T> {
    ts: u64,
    thread_id: i32,
    of: T,
}

impl<T> Row<T> {
    fn new(thread_id: i32, head: Head, duration_ns: u64, of: T) -> Row<T> {
        Row { ts: head.ts + duration_ns, thread_id, of }
    }
}

/// The places of the rows in the order of time: rows are too large to be moved about.
fn by_time<T>(rows: &[Row<T>]) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = rows.iter().map(|row| row.ts).zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, place)| place).collect()
}

fn write_calls(tables: &mut OpenTables, calls: &mut Vec<Row<Call>>) -> Result<(), Error> {
    if calls.is_empty() {
        return Ok(());
    }
    let order = by_time(calls);
    let rows = || order.iter().map(|place| &calls[*place as usize]);
    let of = |f: fn(&Call) -> u64| longs(rows().map(|row| f(&row.of) as i64));
    let arg = |i: usize| longs(rows().map(|row| row.of.args[i] as i64));
    let columns = vec![
        longs(rows().map(|row| row.ts as i64)),
        of(|c| c.duration_ns),
        ints(rows().map(|row| row.thread_id)),
        ints(rows().map(|row| row.of.nr.into())),
        longs(rows().map(|row| row.of.ret)),
        of(|c| c.sleep_ns),
        of(|c| c.runq_ns),
        of(|c| c.unknown_ns),
        ints(rows().map(|row| row.of.sleeps as i32)),
        arg(0),
        arg(1),
        arg(2),
        arg(3),
        arg(4),
        arg(5),
        ints(rows().map(|row| row.of.partial.into())),
        ints(rows().map(|row| row.of.file_id as i32)),
    ];
    calls.clear();
    tables.write_columns("syscall", columns)?;
    Ok(())
}

fn write_stays(tables: &mut OpenTables, stays: &mut Vec<Row<(OffCpu, i32, i32)>>) -> Result<(), Error> {
    if stays.is_empty() {
        return Ok(());
    }
    let order = by_time(stays);
    let rows = || order.iter().map(|place| &stays[*place as usize]);
    let of = |f: fn(&OffCpu) -> u64| longs(rows().map(|row| f(&row.of.0) as i64));
    let columns = vec![
        longs(rows().map(|row| row.ts as i64)),
        of(|s| s.duration_ns),
        of(|s| s.sleep_ns),
        ints(rows().map(|row| row.thread_id)),
        ints(rows().map(|row| row.of.0.state as i32)),
        ints(rows().map(|row| row.of.0.nr)),
        ints(rows().map(|row| row.of.1)),
        ints(rows().map(|row| row.of.0.waker_tid as i32)),
        ints(rows().map(|row| row.of.0.before_tid as i32)),
        ints(rows().map(|row| row.of.2)),
    ];
    stays.clear();
    tables.write_columns("off_cpu", columns)?;
    Ok(())
}

fn thread_row(t: &ThreadRow) -> Vec<Value<'_>> {
    vec![
        Value::Int(t.thread_id.into()),
        Value::Int(t.ts),
        Value::Int(t.tid.into()),
        Value::Int(t.pid.into()),
        Value::Int(t.parent_tid.into()),
        Value::Int(t.start_ns),
        Value::Text(&t.comm),
    ]
}

fn waker_row(t: &ThreadRow) -> Vec<Value<'_>> {
    vec![
        Value::Int(t.ts),
        Value::Int(t.tid.into()),
        Value::Int(t.pid.into()),
        Value::Int(t.start_ns),
        Value::Text(&t.comm),
    ]
}

fn sum_row(thread_id: i32, head: Head, sum: &CallSum) -> Vec<Value<'static>> {
    let ints = [sum.calls, sum.duration_ns, sum.sleep_ns, sum.runq_ns, sum.unknown_ns, sum.longest_ns, sum.sleeps];
    let mut row = vec![
        Value::Int(head.ts as i64),
        Value::Int(sum.since as i64),
        Value::Int(thread_id.into()),
        Value::Int(sum.nr.into()),
        if sum.error > 0 { Value::Int(sum.error.into()) } else { Value::Null },
    ];
    row.extend(ints.iter().map(|n| Value::Int(*n as i64)));
    row
}

/// As chrt names it.
fn policy_name(policy: u32) -> Value<'static> {
    let names = ["other", "fifo", "rr", "batch", "", "idle", "deadline", "ext"];
    match names.get(policy as usize) {
        Some(name) if !name.is_empty() => Value::Text(name),
        _ => Value::Null,
    }
}

fn end_row(thread_id: i32, head: Head, end: &End) -> Vec<Value<'static>> {
    let t = &end.totals;
    let parts = [
        t.user_ns,
        t.system_ns,
        t.runq_preempt_ns,
        t.runq_wake_ns,
        t.sleep_ns,
        t.sleep_d_ns,
        t.stopped_ns,
        t.unknown_ns,
    ];
    let counts = [t.calls, t.failed_calls, t.sleeps, t.preemptions, t.migrations];
    let kernels = [t.stat_run_ns, t.stat_runq_ns, t.stat_slices];
    let int = |n: &u64| Value::Int(*n as i64);
    let if_counted = |n: &u64| if end.counted { int(n) } else { Value::Null };
    let mut row = vec![
        Value::Int(head.ts as i64),
        Value::Int(thread_id.into()),
        Value::Int(head.ts.saturating_sub(t.since) as i64),
    ];
    row.extend(parts.iter().chain(&counts).map(int));
    row.extend([t.minor_faults, t.major_faults].iter().map(if_counted));
    row.push(int(&t.lost));
    row.extend(kernels.iter().map(if_counted));
    row.push(Value::Bool(end.exited));
    row.push(t.interrupt_ns.as_ref().map_or(Value::Null, int));
    match &t.scheduled {
        Some(s) => row.extend([int(&s.node_moves), policy_name(s.policy), Value::Int(s.priority.into())]),
        None => row.extend([Value::Null, Value::Null, Value::Null]),
    }
    row
}

//! What bpf/trace.bpf.c does in the kernel, done from a stream of events in the order of time: each system call, each stay off the CPU, and
//! the sums of both. The time between two events of a thread goes to exactly one sum, so the sums close.
//!
//! Events that were lost are a gap on one CPU. All that is not seen to run on another CPU may have run there in the gap: such a thread is
//! [`State::Unsure`] until its next event, and that time is nobody's.

use crate::record::{Call, End, Head, Named, OffCpu, Origin, Record, SleptIn, Stack, Totals, Why};
use crate::syscalls::arguments;
use crate::threads::ByTid;

/// Something that happened, when and on which CPU. tid: whom it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Event {
    pub ts: u64,
    pub cpu: u32,
    pub tid: u32,
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum What {
    /// The thread is there when the trace begins.
    Found(Box<Found>),
    /// The thread was made.
    Forked { pid: u32, parent: u32 },
    /// It has another name; exec: and program.
    Renamed { pid: u32, comm: [u8; 16], exec: bool },
    /// It left the CPU to `next`. state: as sched_switch prints it.
    Switched { state: u64, next: u32 },
    /// It came to the CPU after `before`: told once more after the switch, which the idle task does not always tell.
    Came { before: u32 },
    /// `waker` woke it.
    Woken { waker: u32 },
    /// It began a system call.
    Entered { nr: u64, args: [u64; 6] },
    /// It ended one.
    Returned { nr: u64, ret: i64 },
    /// The functions of the kernel in which it goes to sleep, innermost first.
    Chain { frames: Vec<u8> },
    /// It is on the CPU here.
    Sampled(Box<Sampled>),
    /// From now on events of the CPU are missing,
    GapBegins,
    /// ... up to now.
    GapEnds,
}

/// A thread as /proc shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Found {
    pub pid: u32,
    pub parent: u32,
    pub start_ns: u64,
    pub comm: [u8; 16],
    /// Bits of the kernel's task state when it sleeps; None: it runs, or waits for a CPU.
    pub asleep: Option<u32>,
    /// The system call it is in, with arguments; `Some(None)`: it is in none; None: not known.
    pub call: Option<Option<(u16, [u64; 6])>>,
    /// The functions of the kernel in which it sleeps, innermost first.
    pub chain: Vec<u8>,
    pub counters: Counters,
}

/// What the kernel itself has counted of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Counters {
    pub run_ns: u64,
    pub runq_ns: u64,
    pub slices: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
}

/// What runs on a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sampled {
    pub pid: u32,
    pub kernel: Vec<u8>,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    pub user: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Sleeping,
    Woken,
    Preempted,
    /// Events were missed.
    Unsure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    User,
    Call,
    /// In a call or not.
    Unsure,
}

struct Thread {
    pid: u32,
    comm: [u8; 16],
    state: State,
    mode: Mode,
    cpu: Option<u32>,
    since: u64,
    number: u32,
    /// None: it was not seen to leave the CPU.
    off_since: Option<u64>,
    slept_ns: u64,
    task_state: u32,
    waker_tid: u32,
    chain: Vec<u8>,
    /// When it came into the trace.
    counters: Counters,
    /// Of the call that it is in, or may be in.
    call: Call,
    call_since: u64,
    totals: Totals,
}

/// Bits of a task's state, as in the kernel's sched.h.
const UNINTERRUPTIBLE: u32 = 0x2;
const STOPPED_TRACED: u32 = 0xc;
const NOLOAD: u32 = 0x400;
/// Bits of sched_switch: it has ended (as a zombie, or for good), it idles, it was preempted.
const PRINTED_DEAD: u64 = 0x30;
const PRINTED_IDLE: u64 = 0x80;
const PRINTED_PREEMPTED: u64 = 0x100;
/// Errors that nobody outside the kernel sees.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
const NR_RT_SIGRETURN: u16 = 15;
const NO_CALL: Call = Call {
    duration_ns: 0,
    ret: 0,
    args: [0; 6],
    sleep_ns: 0,
    runq_ns: 0,
    unknown_ns: 0,
    sleeps: 0,
    nr: 0,
    partial: false,
    file_id: 0,
};

impl Thread {
    fn new(number: u32, pid: u32, comm: [u8; 16], state: State, mode: Mode, ts: u64) -> Thread {
        Thread {
            pid,
            comm,
            state,
            mode,
            cpu: None,
            since: ts,
            number,
            off_since: (state != State::Unsure).then_some(ts),
            slept_ns: 0,
            task_state: 0,
            waker_tid: 0,
            chain: Vec::new(),
            counters: Counters::default(),
            call: NO_CALL,
            call_since: ts,
            totals: Totals { since: ts, ..Totals::default() },
        }
    }

    fn head(&self, tid: u32, cpu: u32, ts: u64) -> Head {
        Head { cpu, tid, thread: self.number, ts }
    }

    /// The time since the last event goes to one sum.
    fn account(&mut self, now: u64) {
        let d = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        let (sum, call) = (&mut self.totals, &mut self.call);
        match self.state {
            State::Running if self.mode == Mode::Call => sum.system_ns += d,
            State::Running if self.mode == Mode::User => sum.user_ns += d,
            State::Running | State::Unsure => {
                sum.unknown_ns += d;
                call.unknown_ns += d;
            }
            State::Sleeping => {
                if self.task_state & STOPPED_TRACED != 0 {
                    sum.stopped_ns += d;
                } else if self.task_state & (UNINTERRUPTIBLE | NOLOAD) == UNINTERRUPTIBLE {
                    sum.sleep_d_ns += d;
                } else {
                    sum.sleep_ns += d;
                }
                call.sleep_ns += d;
            }
            State::Woken => {
                sum.runq_wake_ns += d;
                call.runq_ns += d;
            }
            State::Preempted => {
                sum.runq_preempt_ns += d;
                call.runq_ns += d;
            }
        }
    }

    /// An event says that it is on a CPU. When that is against what is known, another one was missed, and the time is nobody's.
    fn is_running(&mut self, cpu: u32, now: u64) {
        if self.state != State::Running {
            self.state = State::Unsure;
        }
        self.account(now);
        self.state = State::Running;
        self.cpu = Some(cpu);
    }

    /// What it did is not known from `now` on, nor whether its call goes on.
    fn lose(&mut self, now: u64) {
        self.account(now);
        if self.mode != Mode::Unsure {
            self.call = NO_CALL;
            self.call_since = self.since;
        }
        self.state = State::Unsure;
        self.mode = Mode::Unsure;
        self.off_since = None;
        self.chain.clear();
    }

    fn nr(&self) -> i32 {
        if self.mode == Mode::Call {
            self.call.nr.into()
        } else {
            -1
        }
    }
}

/// The threads that are traced.
pub struct Accounting {
    threads: ByTid<Thread>,
    last_number: u32,
    /// CPUs of which events are missing now.
    gaps: Vec<u32>,
    stack_from_ns: u64,
    sample_ns: u64,
    /// How many each call has: what its other registers hold has nothing to do with it.
    arguments: Box<[u8; 1024]>,
}

impl Accounting {
    /// stack_from_ns: sleeps this long have their functions; sample_ns: what a sample of a CPU stands for.
    pub fn new(stack_from_ns: u64, sample_ns: u64) -> Accounting {
        Accounting {
            threads: ByTid::default(),
            last_number: 0,
            gaps: Vec::new(),
            stack_from_ns,
            sample_ns,
            arguments: Box::new(arguments()),
        }
    }

    /// Takes in the next event, which gives a few records, or none.
    pub fn event(&mut self, event: Event, mut each: impl FnMut(Record<'_>)) {
        let Event { ts, cpu, tid, what } = event;
        match what {
            What::Found(found) => self.found(tid, ts, *found, &mut each),
            What::Forked { pid, parent } => self.forked(tid, pid, parent, ts, cpu, &mut each),
            What::Renamed { pid, comm, exec } => self.renamed(tid, pid, comm, exec, ts, cpu, &mut each),
            What::Switched { state, next } => {
                self.leaves(tid, state, ts, cpu, &mut each);
                self.comes(next, tid, ts, cpu, &mut each);
            }
            What::Came { before } => {
                let known = |t: &Thread| t.state == State::Running && t.cpu == Some(cpu);
                if self.threads.get(&tid).is_some_and(|t| !known(t)) {
                    self.comes(tid, before, ts, cpu, &mut each);
                }
            }
            What::GapBegins => {
                self.gaps.push(cpu);
                let elsewhere = |t: &Thread| t.state == State::Running && t.cpu != Some(cpu);
                self.threads.values_mut().filter(|t| !elsewhere(t)).for_each(|t| t.lose(ts));
            }
            What::GapEnds => {
                if let Some(at) = self.gaps.iter().position(|gap| *gap == cpu) {
                    self.gaps.swap_remove(at);
                }
            }
            What::Woken { waker } => {
                let Some(t) = self.threads.get_mut(&tid).filter(|t| matches!(t.state, State::Sleeping | State::Unsure))
                else {
                    return;
                };
                t.account(ts);
                t.slept_ns = t.off_since.map_or(0, |since| t.since - since);
                t.waker_tid = waker;
                t.state = State::Woken;
                if !self.gaps.is_empty() {
                    t.lose(ts);
                }
            }
            What::Entered { nr, args } => {
                let Some(t) = self.threads.get_mut(&tid) else { return };
                if t.mode == Mode::Call && (u64::from(t.call.nr), t.call.args) == (nr, args) && !t.call.partial {
                    return; // told twice: by an event of the thread itself, and by one of its parent
                }
                match t.mode {
                    Mode::Unsure if t.state == State::Running => {
                        // Since it came to the CPU it was in no call.
                        t.mode = Mode::User;
                        t.is_running(cpu, ts);
                    }
                    Mode::Call => {
                        t.state = State::Unsure; // the end of that call was missed
                        t.is_running(cpu, ts);
                    }
                    _ => t.is_running(cpu, ts),
                }
                t.mode = Mode::Call;
                t.call = Call { args, nr: nr as u16, ..NO_CALL };
                t.call_since = t.since;
            }
            What::Returned { nr, ret } => self.returned(tid, nr, ret, ts, cpu, &mut each),
            What::Chain { frames } => {
                if let Some(t) = self.threads.get_mut(&tid) {
                    t.chain = frames;
                }
            }
            What::Sampled(s) => {
                let Some(t) = self.threads.get(&tid) else { return };
                let head = t.head(tid, cpu, ts);
                let (pid, nr, weight) = (s.pid, t.nr(), self.sample_ns);
                let stack = Stack {
                    why: Why::OnCpu,
                    tgid: pid,
                    nr,
                    error: 0,
                    weight,
                    ip: s.ip,
                    sp: s.sp,
                    bp: s.bp,
                    waker_tid: 0,
                };
                each(Record::Stack(head, stack, &s.kernel, &s.user));
            }
        }
    }

    fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    fn found(&mut self, tid: u32, ts: u64, found: Found, each: &mut impl FnMut(Record<'_>)) {
        if self.threads.contains_key(&tid) {
            return; // its maker was traced already
        }
        let state = if found.asleep.is_some() { State::Sleeping } else { State::Unsure };
        let mode = match found.call {
            Some(Some(_)) => Mode::Call,
            Some(None) => Mode::User,
            None => Mode::Unsure,
        };
        let mut t = Thread::new(self.next_number(), found.pid, found.comm, state, mode, ts);
        t.task_state = found.asleep.unwrap_or(0);
        (t.counters, t.chain) = (found.counters, found.chain);
        let (nr, args) = found.call.flatten().unwrap_or_default();
        t.call = Call { nr, args, partial: true, ..NO_CALL };
        let named = Named {
            origin: Origin::Begin,
            tgid: found.pid,
            other_tid: found.parent,
            start_ns: found.start_ns,
            comm: text(&found.comm),
        };
        each(Record::Named(t.head(tid, 0, ts), named));
        self.threads.insert(tid, t);
    }

    fn forked(&mut self, tid: u32, pid: u32, parent: u32, ts: u64, cpu: u32, each: &mut impl FnMut(Record<'_>)) {
        let Some(comm) = self.threads.get(&parent).map(|t| t.comm) else { return };
        // The end of another that had the number was missed.
        self.ends(tid, None, ts, cpu, each);
        let mut t = Thread::new(self.next_number(), pid, comm, State::Woken, Mode::User, ts);
        let named = Named { origin: Origin::Fork, tgid: pid, other_tid: parent, start_ns: ts, comm: text(&comm) };
        each(Record::Named(t.head(tid, cpu, ts), named));
        if !self.gaps.is_empty() {
            t.lose(ts);
        }
        self.threads.insert(tid, t);
    }

    #[allow(clippy::too_many_arguments)]
    fn renamed(
        &mut self,
        tid: u32,
        pid: u32,
        comm: [u8; 16],
        exec: bool,
        ts: u64,
        cpu: u32,
        each: &mut impl FnMut(Record<'_>),
    ) {
        if exec && tid == pid && !self.threads.contains_key(&tid) {
            // Not the first thread did it: all others are gone, and it has the number of the first one now.
            let last = self.threads.iter().find(|(_, t)| t.pid == pid).map(|(tid, _)| *tid);
            let Some(t) = last.and_then(|last| self.threads.remove(&last)) else { return };
            self.threads.insert(tid, t);
        }
        let Some(t) = self.threads.get_mut(&tid) else { return };
        t.comm = comm;
        let origin = if exec { Origin::Exec } else { Origin::Renamed };
        let named = Named { origin, tgid: pid, other_tid: 0, start_ns: 0, comm: text(&comm) };
        each(Record::Named(t.head(tid, cpu, ts), named));
    }

    fn leaves(&mut self, tid: u32, printed: u64, ts: u64, cpu: u32, each: &mut impl FnMut(Record<'_>)) {
        let Some(t) = self.threads.get_mut(&tid) else { return };
        t.is_running(cpu, ts);
        if printed & PRINTED_DEAD != 0 {
            self.ends(tid, None, ts, cpu, each);
            return;
        }
        (t.off_since, t.slept_ns, t.waker_tid) = (Some(t.since), 0, 0);
        if printed & PRINTED_PREEMPTED != 0 || printed == 0 {
            t.totals.preemptions += 1;
            t.task_state = 0;
            t.state = State::Preempted;
        } else {
            t.totals.sleeps += 1;
            t.call.sleeps += 1;
            let idle = if printed & PRINTED_IDLE != 0 { UNINTERRUPTIBLE | NOLOAD } else { 0 };
            t.task_state = (printed as u32 & 0x4f) | idle;
            t.state = State::Sleeping;
        }
        if !self.gaps.is_empty() {
            t.lose(ts);
        }
    }

    fn comes(&mut self, tid: u32, before_tid: u32, ts: u64, cpu: u32, each: &mut impl FnMut(Record<'_>)) {
        let Some(t) = self.threads.get_mut(&tid) else { return };
        if t.state == State::Running {
            t.state = State::Unsure; // that it left its CPU was missed
        }
        t.account(ts);
        if t.state == State::Sleeping {
            t.slept_ns = t.off_since.map_or(0, |since| t.since - since); // the waking was told before it was quite asleep
        }
        if t.cpu.is_some_and(|left| left != cpu) {
            t.totals.migrations += 1;
        }
        (t.state, t.cpu) = (State::Running, Some(cpu));
        if let Some(since) = t.off_since.take() {
            stay(t, tid, since, before_tid, false, cpu, self.stack_from_ns, each);
        }
        t.chain.clear();
    }

    fn returned(&mut self, tid: u32, nr: u64, ret: i64, ts: u64, cpu: u32, each: &mut impl FnMut(Record<'_>)) {
        let Some(t) = self.threads.get_mut(&tid) else { return };
        match t.mode {
            Mode::User => return, // a child's return from its own making, or told twice
            Mode::Call => t.is_running(cpu, ts),
            Mode::Unsure => {
                t.mode = Mode::Call; // since it came to the CPU
                t.is_running(cpu, ts);
                t.call.partial = true;
            }
        }
        t.mode = Mode::User;
        if t.call.partial && u64::from(t.call.nr) != nr {
            // What was known of it came from before. The return of a signal says no number.
            let Ok(nr) = u16::try_from(nr) else { return };
            t.call = Call { nr, args: [0; 6], ..t.call };
        }
        t.totals.calls += 1;
        let failed = (-4095..0).contains(&ret) && !RESTARTS.contains(&ret) && t.call.nr != NR_RT_SIGRETURN;
        t.totals.failed_calls += u64::from(failed);
        let arguments = self.arguments.get(usize::from(t.call.nr)).map_or(6, |count| usize::from(*count));
        let args = std::array::from_fn(|i| if i < arguments { t.call.args[i] } else { 0 });
        let call = Call { duration_ns: t.since - t.call_since, ret, args, ..t.call };
        each(Record::Call(t.head(tid, cpu, t.call_since), call));
    }

    /// The window ends for all threads; `counters` says what the kernel has counted of one.
    pub fn end(&mut self, ts: u64, counters: impl Fn(u32) -> Option<Counters>, mut each: impl FnMut(Record<'_>)) {
        let mut all: Vec<u32> = self.threads.keys().copied().collect();
        all.sort_unstable();
        for tid in all {
            if let Some(t) = self.threads.get_mut(&tid) {
                if let (State::Sleeping | State::Woken | State::Preempted, Some(since)) = (t.state, t.off_since) {
                    t.account(ts);
                    if t.state == State::Sleeping {
                        t.slept_ns = t.since - since;
                    }
                    stay(t, tid, since, 0, true, t.cpu.unwrap_or(0), self.stack_from_ns, &mut each);
                }
            }
            self.ends(tid, counters(tid), ts, 0, &mut each);
        }
    }

    /// counters: what the kernel has counted of it, when only the window ends; None: the thread has ended.
    fn ends(&mut self, tid: u32, counters: Option<Counters>, ts: u64, cpu: u32, each: &mut impl FnMut(Record<'_>)) {
        let Some(mut t) = self.threads.remove(&tid) else { return };
        t.account(ts);
        let head = t.head(tid, cpu, t.since);
        if let Some(now) = counters {
            let totals = &mut t.totals;
            totals.stat_run_ns = now.run_ns.saturating_sub(t.counters.run_ns);
            totals.stat_runq_ns = now.runq_ns.saturating_sub(t.counters.runq_ns);
            totals.stat_slices = now.slices.saturating_sub(t.counters.slices);
            totals.minor_faults = now.minor_faults.saturating_sub(t.counters.minor_faults);
            totals.major_faults = now.major_faults.saturating_sub(t.counters.major_faults);
        }
        let (exited, counted) = (counters.is_none(), counters.is_some());
        each(Record::End(head, End { tgid: t.pid, exited, counted, totals: t.totals }));
    }
}

/// A name of a thread.
fn text(comm: &[u8; 16]) -> String {
    String::from_utf8_lossy(comm.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

/// A stay off the CPU, up to now; open: it goes on.
#[allow(clippy::too_many_arguments)]
fn stay(
    t: &mut Thread,
    tid: u32,
    since: u64,
    before_tid: u32,
    open: bool,
    cpu: u32,
    stack_from_ns: u64,
    each: &mut impl FnMut(Record<'_>),
) {
    let stay = OffCpu {
        duration_ns: t.since - since,
        sleep_ns: t.slept_ns,
        state: t.task_state,
        waker_tid: t.waker_tid,
        nr: t.nr(),
        before_tid,
        open,
    };
    let head = t.head(tid, cpu, since);
    let long = t.task_state != 0 && t.slept_ns >= stack_from_ns;
    each(Record::OffCpu(head, stay, SleptIn::Functions(if long { &t.chain } else { &[] })));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TID: u32 = 7;

    fn at(ts: u64, cpu: u32, what: What) -> Event {
        Event { ts, cpu, tid: TID, what }
    }

    fn entered(nr: u64) -> What {
        What::Entered { nr, args: [nr, 0, 0, 0, 0, 0] }
    }

    fn returned(nr: u64, ret: i64) -> What {
        What::Returned { nr, ret }
    }

    fn asleep_in(nr: u16) -> What {
        What::Found(Box::new(Found { pid: TID, asleep: Some(1), call: Some(Some((nr, [5; 6]))), ..Found::default() }))
    }

    fn comes(ts: u64, cpu: u32) -> Event {
        Event { ts, cpu, tid: 99, what: What::Switched { state: 1, next: TID } }
    }

    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        calls: Vec<(u64, Call)>,
        stays: Vec<(u64, OffCpu, usize)>,
        ends: Vec<(u64, bool, Totals)>,
    }

    /// What a stream gives, when the window ends at `until`; every sum is looked at.
    fn play(events: impl IntoIterator<Item = Event>, until: u64) -> Seen {
        let (mut seen, mut accounting) = (Seen::default(), Accounting::new(10, 1));
        let mut note = |record: Record<'_>| match record {
            Record::Call(head, call) => {
                let parts = call.sleep_ns + call.runq_ns + call.unknown_ns;
                assert!(parts <= call.duration_ns, "{call:?}");
                seen.calls.push((head.ts, call));
            }
            Record::OffCpu(head, stay, SleptIn::Functions(frames)) => seen.stays.push((head.ts, stay, frames.len())),
            Record::End(head, end) => {
                let t = &end.totals;
                let parts =
                    [t.user_ns, t.system_ns, t.runq_preempt_ns, t.runq_wake_ns, t.sleep_ns, t.sleep_d_ns, t.stopped_ns];
                assert_eq!(parts.iter().sum::<u64>() + t.unknown_ns, head.ts - t.since, "the sums close: {t:?}");
                seen.ends.push((head.ts, end.exited, *t));
            }
            _ => {}
        };
        for event in events {
            accounting.event(event, &mut note);
        }
        accounting.end(until, |_| Some(Counters::default()), &mut note);
        seen
    }

    #[test]
    fn a_call_is_split_into_sleep_run_queue_and_cpu() {
        let seen = play(
            [
                at(100, 0, asleep_in(0)),
                at(150, 1, What::Woken { waker: 3 }),
                comes(160, 1),
                at(170, 1, returned(0, 1)),
                at(200, 1, entered(64)),
                at(210, 1, What::Chain { frames: vec![1; 16] }),
                at(211, 1, What::Switched { state: 2, next: 0 }),
                at(240, 0, What::Woken { waker: 3 }),
                comes(245, 0),
                at(250, 0, What::Switched { state: 0x100, next: 5 }),
                comes(255, 0),
                at(260, 0, returned(64, -2)),
                at(261, 0, returned(64, -2)),
            ],
            300,
        );
        let read = Call {
            duration_ns: 70,
            ret: 1,
            args: [5, 5, 5, 0, 0, 0],
            sleep_ns: 50,
            runq_ns: 10,
            partial: true,
            ..NO_CALL
        };
        let semget = Call {
            duration_ns: 60,
            ret: -2,
            args: [64, 0, 0, 0, 0, 0],
            sleep_ns: 29,
            runq_ns: 10,
            sleeps: 1,
            nr: 64,
            ..NO_CALL
        };
        assert_eq!(seen.calls, [(100, read), (200, semget)]);
        let stays: Vec<_> =
            seen.stays.iter().map(|(ts, s, len)| (*ts, s.duration_ns, s.sleep_ns, s.nr, *len)).collect();
        assert_eq!(stays, [(100, 60, 50, 0, 0), (211, 34, 29, 64, 16), (250, 5, 0, 64, 0)]);
        let [(300, false, t)] = seen.ends[..] else { panic!("{:?}", seen.ends) };
        assert_eq!((t.user_ns, t.system_ns, t.sleep_ns, t.sleep_d_ns), (70, 31, 50, 29));
        assert_eq!((t.runq_wake_ns, t.runq_preempt_ns, t.unknown_ns), (15, 5, 0));
        assert_eq!((t.calls, t.failed_calls, t.sleeps, t.preemptions, t.migrations), (2, 1, 1, 1, 1));
    }

    #[test]
    fn a_switch_by_the_idle_task_that_is_not_told_is_known_from_what_follows() {
        let came = |ts| at(ts, 0, What::Came { before: 0 });
        let events =
            [at(100, 0, asleep_in(0)), came(150), at(160, 0, returned(0, 1)), came(170), at(180, 0, entered(3))];
        let seen = play(events, 200);
        let t = seen.ends[0].2;
        assert_eq!((t.sleep_ns, t.system_ns, t.user_ns, t.unknown_ns), (50, 30, 20, 0));
        assert_eq!(seen.stays.iter().map(|(_, s, _)| (s.duration_ns, s.sleep_ns)).collect::<Vec<_>>(), [(50, 50)]);
    }

    #[test]
    fn what_was_lost_is_unknown_until_the_next_event_and_its_call_is_forgotten() {
        let seen = play(
            [
                at(100, 0, asleep_in(0)),
                at(110, 0, What::Woken { waker: 3 }),
                comes(110, 0),
                at(120, 0, returned(0, 1)),
                at(130, 0, entered(1)),
                at(140, 0, What::GapBegins),
                at(180, 0, What::GapEnds),
                at(200, 0, returned(2, 0)),
                at(210, 0, entered(3)),
                at(215, 0, returned(3, 0)),
            ],
            220,
        );
        let after = Call { duration_ns: 60, unknown_ns: 60, nr: 2, partial: true, ..NO_CALL };
        assert_eq!(seen.calls[1], (140, after));
        let t = seen.ends[0].2;
        assert_eq!((t.unknown_ns, t.user_ns, t.system_ns, t.calls), (60, 25, 25, 3));
    }

    #[test]
    fn a_gap_does_not_touch_who_runs_elsewhere_until_it_leaves() {
        let until_the_gap = || {
            vec![
                at(100, 0, asleep_in(0)),
                at(110, 0, What::Woken { waker: 3 }),
                comes(110, 0),
                at(120, 0, returned(0, 1)),
                at(130, 1, What::GapBegins),
            ]
        };
        let mut stays = until_the_gap();
        stays.extend([at(180, 1, What::GapEnds), at(200, 0, entered(3))]);
        assert_eq!(play(stays, 220).ends[0].2.unknown_ns, 0);
        let mut leaves = until_the_gap();
        leaves.extend([at(150, 0, What::Switched { state: 1, next: 0 }), at(180, 1, What::GapEnds)]);
        leaves.extend([at(190, 0, What::Woken { waker: 3 }), comes(195, 0), at(200, 0, entered(3))]);
        let seen = play(leaves, 220);
        assert_eq!((seen.ends[0].2.unknown_ns, seen.ends[0].2.runq_wake_ns), (40, 5));
        // How long it slept in all is not known, so no stay is told.
        assert_eq!(seen.stays.len(), 1);
    }

    #[test]
    fn who_sleeps_through_a_gap_may_have_been_awake() {
        let events = [at(100, 0, asleep_in(0)), at(140, 1, What::GapBegins), at(150, 1, What::GapEnds)];
        let t = play(events, 1000).ends[0].2;
        assert_eq!((t.sleep_ns, t.unknown_ns), (40, 860));
    }

    #[test]
    fn an_event_that_comes_late_changes_no_time_twice() {
        let events = [
            at(100, 0, asleep_in(0)),
            at(160, 1, What::Woken { waker: 3 }),
            comes(170, 1),
            at(165, 1, returned(0, 1)), // of before, as it seems
            at(168, 1, What::Switched { state: 1, next: 0 }),
        ];
        assert_eq!(play(events, 200).ends[0].2.sleep_ns, 60 + 30);
    }

    #[test]
    fn a_switch_that_was_missed_is_unknown() {
        let events = [at(100, 0, asleep_in(0)), at(150, 0, entered(3)), at(160, 0, returned(3, 0))];
        let seen = play(events, 200);
        assert_eq!((seen.ends[0].2.unknown_ns, seen.ends[0].2.system_ns), (50, 10));
    }

    #[test]
    fn a_child_lives_from_its_making_to_its_last_switch_and_an_exec_may_give_it_another_number() {
        let mut named = Vec::new();
        let mut accounting = Accounting::new(10, 1);
        let child = |ts, tid, what| Event { ts, cpu: 0, tid, what };
        let events = [
            at(100, 0, asleep_in(0)),
            child(120, 8, What::Forked { pid: 8, parent: TID }),
            child(121, 9, What::Forked { pid: 8, parent: 8 }),
            child(122, 50, What::Forked { pid: 50, parent: 49 }), // of nobody that is traced
            child(130, 0, What::Switched { state: 0, next: 8 }),
            child(140, 8, What::Switched { state: 0x10, next: 9 }),
            child(150, 8, What::Renamed { pid: 8, comm: *b"ls\0\0\0\0\0\0\0\0\0\0\0\0\0\0", exec: true }),
            child(160, 8, What::Switched { state: 0x20, next: 0 }),
        ];
        for event in events {
            accounting.event(event, |record| match record {
                Record::Named(head, n) => named.push((head.tid, n.origin, n.other_tid)),
                Record::End(head, end) => named.push((head.tid, Origin::Begin, end.totals.unknown_ns as u32)),
                _ => {}
            });
        }
        let expected = [
            (TID, Origin::Begin, 0),
            (8, Origin::Fork, TID),
            (9, Origin::Fork, 8),
            (8, Origin::Begin, 0), // its end
            (8, Origin::Exec, 0),
            (8, Origin::Begin, 0),
        ];
        assert_eq!(named, expected);
    }
}

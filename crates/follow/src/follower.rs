//! The loop: waits for stops of the followed threads, and lets them run on.
//!
//! A thread stops where the filter says so (PTRACE_EVENT_SECCOMP), runs to the end of that call, and runs on freely. A process with another
//! filter stops at each call, because that filter may refuse one before ours stops it.

use crate::calls;
use crate::deaths;
use crate::facts;
use crate::outcome;
use crate::refused;
use crate::speech;
use crate::state::{Begun, Running, State};
use crate::tracee::{self, Stop};
use crate::tree::{Process, Signal};
use libc::{PTRACE_CONT, PTRACE_LISTEN, PTRACE_SYSCALL};
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// If the follower is killed, calls that stop would fail; the command is then killed too.
pub(crate) const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_EXITKILL;

struct Thread {
    pid: i32,
    begun: Option<Begun>,
    /// The call that ended last, or was kept from happening.
    last: Option<i64>,
}

pub(crate) struct Follower {
    pub(crate) state: State,
    threads: HashMap<i32, Thread>,
}

impl Follower {
    /// `every`: a filter that was there before ours may refuse calls.
    pub(crate) fn new(main: i32, every: bool) -> Follower {
        let mut follower = Follower { state: State::new(), threads: HashMap::new() };
        follower.know(main);
        follower.state.tree.outputs = [1, 2].map(|fd| facts::descriptor(main, fd).unwrap_or_default()).to_vec();
        if let Some(running) = follower.state.running.get_mut(&main) {
            running.every = every;
        }
        follower
    }

    /// Processes that have not ended.
    pub(crate) fn left(&self) -> usize {
        self.state.running.len()
    }

    /// Follows until every process has ended; with `until`, at most for this long after that process has.
    pub(crate) fn follow(&mut self, until: Option<(i32, Duration)>) {
        let mut end: Option<Instant> = None;
        loop {
            if let Some((_, linger)) = until.filter(|(main, _)| end.is_none() && !self.state.running.contains_key(main))
            {
                end = Some(Instant::now() + linger);
            }
            let mut status = 0;
            // SAFETY: all zeros is a valid rusage.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            let how = libc::__WALL | if end.is_some() { libc::WNOHANG } else { 0 };
            // SAFETY: both are places for what is told.
            match unsafe { libc::wait4(-1, &mut status, how, &mut usage) } {
                0 => {
                    let left = end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()));
                    if left.is_zero() {
                        return;
                    }
                    wait_for_child(left);
                }
                tid if tid > 0 => self.stopped(tid, status, &usage),
                _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => return,
            }
        }
    }

    fn stopped(&mut self, tid: i32, status: i32, usage: &libc::rusage) {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return self.ended(tid, status, usage);
        }
        if !libc::WIFSTOPPED(status) {
            return;
        }
        self.state.tree.stops += 1;
        self.know(tid);
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_SECCOMP => self.begins(tid, true),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                if let Some(new) = tracee::event_message(tid) {
                    self.know(new);
                }
                self.resume(tid, 0);
            }
            libc::PTRACE_EVENT_EXEC => self.executes(tid),
            libc::PTRACE_EVENT_STOP => {
                if [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
                    tracee::resume(PTRACE_LISTEN, tid, 0);
                } else {
                    self.resume(tid, 0);
                }
            }
            0 if signal == libc::SIGTRAP | 0x80 => match tracee::stop(tid) {
                Stop::Exit { result } => self.returns(tid, result),
                _ => self.begins(tid, false),
            },
            0 => self.signalled(tid, signal),
            _ => self.resume(tid, 0),
        }
    }

    fn resume(&self, tid: i32, signal: i32) {
        let thread = self.threads.get(&tid);
        let every = thread.and_then(|thread| self.state.running.get(&thread.pid)).is_some_and(|running| running.every);
        let within = thread.is_some_and(|thread| thread.begun.is_some());
        tracee::resume(if every || within { PTRACE_SYSCALL } else { PTRACE_CONT }, tid, signal);
    }

    fn begins(&mut self, tid: i32, by_filter: bool) {
        let (nr, args) = match tracee::stop(tid) {
            Stop::Filtered { nr, args } | Stop::Entry { nr, args } => (nr, args),
            _ => return self.resume(tid, 0),
        };
        self.state.filtered |= by_filter;
        let pid = self.threads.get(&tid).map_or(tid, |thread| thread.pid);
        let program = refused::program_of(pid, nr, &args);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.begun = Some(Begun { nr, args, reached: by_filter, program });
        }
        self.resume(tid, 0);
    }

    fn returns(&mut self, tid: i32, result: i64) {
        let thread = self.threads.get_mut(&tid);
        let thread = thread.and_then(|thread| {
            let begun = thread.begun.take()?;
            thread.last = Some(begun.nr);
            Some((thread.pid, begun))
        });
        if let Some((pid, begun)) = thread {
            outcome::judge(&mut self.state, pid, &begun, result);
        }
        self.resume(tid, 0);
    }

    /// All threads but one are gone; that one has the id of the process now.
    fn executes(&mut self, tid: i32) {
        let former = tracee::event_message(tid).unwrap_or(tid);
        let begun = self.threads.get_mut(&former).and_then(|thread| thread.begun.take());
        let program = begun.and_then(|begun| begun.program).unwrap_or_default();
        self.threads.retain(|other, thread| thread.pid != tid || *other == tid);
        self.threads.insert(tid, Thread { pid: tid, begun: None, last: None });
        if let Some(running) = self.state.running.get_mut(&tid) {
            running.every |= !self.state.filtered;
        }
        outcome::executed(&mut self.state, tid, program);
        // The return of the call: nothing is known of it that would be of use.
        self.resume(tid, 0);
    }

    fn signalled(&mut self, tid: i32, number: i32) {
        let pid = self.threads.get(&tid).map_or(tid, |thread| thread.pid);
        let at = self.state.running.get(&pid).and_then(|running| running.at);
        let info = tracee::signal_info(tid);
        let stack = info.filter(|info| number == libc::SIGSEGV && info.si_code > 0).and_then(|info| {
            // SAFETY: a fault, which the kernel reports with its address.
            deaths::stack_full(tid, unsafe { info.si_addr() } as u64)
        });
        if let (Some(process), Some(info)) = (at.and_then(|at| self.state.tree.processes.get_mut(at)), info) {
            process.stack = stack;
            // SAFETY: a code of 0 or less is of a signal that a process sent, which has the sender's id.
            let sender = (info.si_code <= 0).then(|| unsafe { info.si_pid() });
            process.signal = Some(Signal { number, code: info.si_code, sender });
        }
        self.resume(tid, number);
    }

    fn ended(&mut self, tid: i32, status: i32, usage: &libc::rusage) {
        let Some(thread) = self.threads.remove(&tid) else { return };
        if tid != thread.pid {
            return;
        }
        speech::ended(&mut self.state, tid);
        let now = self.state.now_ns();
        let Some(gone) = self.state.running.remove(&tid) else { return };
        let Some(process) = gone.at.and_then(|at| self.state.tree.processes.get_mut(at)) else { return };
        let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        let sent = process.signal.as_ref().is_some_and(|last| last.sender.is_some() && Some(last.number) == signal);
        if signal == Some(libc::SIGSYS) && !sent {
            process.forbidden = thread.begun.map(|begun| begun.nr).or(thread.last).map(calls::name_of);
        }
        if signal == Some(libc::SIGKILL) && !process.killed_by_own {
            process.out_of_memory = self.state.out_of_memory.killed(gone.group.as_deref());
        }
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        process.cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
        process.cpu_limit_s = gone.cpu_limit_s;
        process.status = Some(status);
        process.ended_ns = Some(now);
    }

    /// Makes a thread known that is seen for the first time: by its creator, or because it stopped before that was told.
    fn know(&mut self, tid: i32) {
        if self.threads.contains_key(&tid) {
            return;
        }
        let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<i32>().ok());
        let pid = field("Tgid:").unwrap_or(tid);
        self.threads.insert(tid, Thread { pid, begun: None, last: None });
        if self.state.running.contains_key(&pid) {
            return;
        }
        let parent = field("PPid:").and_then(|parent| self.state.running.get(&parent));
        let (place, every, cpu_limit_s) =
            parent.map_or((None, false, own_cpu_limit()), |parent| (parent.at, parent.every, parent.cpu_limit_s));
        let program = place.and_then(|at| self.state.tree.processes.get(at)).map(|process| process.program.clone());
        let at = self.state.tree.add_process(Process {
            pid,
            parent: place,
            program: program.unwrap_or_default(),
            started_ns: self.state.now_ns(),
            ..Process::default()
        });
        let group = self.state.out_of_memory.group_of(pid);
        self.state.running.insert(pid, Running::new(at, every, cpu_limit_s, group));
    }
}

/// What the command inherits.
fn own_cpu_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the limit.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_CPU, &mut limit) } == 0;
    (known && limit.rlim_max != libc::RLIM_INFINITY).then_some(limit.rlim_max)
}

/// Waits until a child stops or ends, or for this long. SIGCHLD is blocked, so that none is missed.
fn wait_for_child(left: Duration) {
    let time = libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos().into() };
    // SAFETY: the set is filled before it is used; no information is asked for.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigtimedwait(&set, std::ptr::null_mut(), &time);
    }
}

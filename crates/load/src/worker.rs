//! A thread that runs its clients: it starts what is due, and waits for whatever comes first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;

use leadline_clockwork::become_realtime;
use leadline_net::clock::{exact_timers, now_ns};
use leadline_net::tcp_info::TcpInfo;

use crate::client::{Client, Shared, Step};
use crate::dues::Dues;
use crate::mix::Mix;
use crate::own::Own;
use crate::poll::Poll;
use crate::schedule::Phase;
use crate::tallies::{Tallies, Tally};
use crate::tally::{Part, Second};

const SECOND: i64 = 1_000_000_000;
/// Answers taken from the kernel at once.
const EVENTS: usize = 64;

/// What a thread tells while it works.
pub(crate) enum Told {
    Second(Box<Second>),
    Part(Part),
    /// At its end.
    End(Ended),
}

/// The end of a thread.
pub(crate) struct Ended {
    /// Clients that ended before the run did.
    pub(crate) gone: u64,
    /// Transactions under way that nobody waited for any more, and how old the oldest of them was.
    pub(crate) unfinished: u64,
    pub(crate) oldest_ns: i64,
    /// Due and not begun.
    pub(crate) not_begun: u64,
    pub(crate) first_late_ns: i64,
}

/// What a thread is to do.
pub(crate) struct Work<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) phases: &'a [Phase],
    pub(crate) begins_ns: i64,
    /// After the end, answers are waited for so long.
    pub(crate) drain_ns: i64,
    pub(crate) dues: Dues,
    pub(crate) mix: Mix,
    /// Of each client.
    pub(crate) transactions: Option<u64>,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) tell: Sender<(usize, Told)>,
    pub(crate) number: usize,
}

struct Worker<'a> {
    work: Work<'a>,
    clients: Vec<Client>,
    /// Written to the kernel: whether room in the socket is waited for.
    wants: Vec<bool>,
    poll: Poll,
    free: VecDeque<usize>,
    sleepers: BinaryHeap<Reverse<(i64, usize)>>,
    busy: usize,
    gone: u64,
    /// Clients that have done all their transactions.
    finished: usize,
    tallies: Tallies,
    own: Own,
    phase_ends_ns: i64,
    ends_ns: i64,
    open: bool,
}

/// Runs the clients to the end.
pub(crate) fn work(work: Work<'_>, clients: Vec<Client>) -> io::Result<()> {
    let open = work.shared.open;
    if open {
        // A closed loop has no moments to meet, and a timer that is not exact costs less.
        exact_timers();
        // Else a server on the same CPUs decides when its own load is made.
        work.shared.realtime.fetch_and(become_realtime(), Relaxed);
    }
    let scripts = &work.shared.scripts;
    let lengths: Vec<usize> = scripts.iter().map(|script| script.commands.len()).collect();
    let count = clients.len();
    let mut worker = Worker {
        clients,
        wants: vec![false; count],
        poll: Poll::new()?,
        free: (0..count).collect(),
        sleepers: BinaryHeap::new(),
        busy: 0,
        gone: 0,
        finished: 0,
        tallies: Tallies::new(work.phases.len(), lengths, work.begins_ns),
        own: Own::new(),
        phase_ends_ns: work.begins_ns + work.phases.first().map_or(0, |phase| phase.for_ns),
        ends_ns: work.shared.ends_ns.load(Relaxed),
        open,
        work,
    };
    for number in 0..count {
        worker.watch(number, libc::EPOLL_CTL_ADD, false)?;
    }
    worker.run()
}

impl Worker<'_> {
    fn run(&mut self) -> io::Result<()> {
        leadline_net::clock::wait_until(self.work.begins_ns);
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let mut stopped = false;
        loop {
            let mut now = now_ns();
            if !stopped && (now >= self.ends_ns || self.work.stop.load(Relaxed)) {
                stopped = true;
                self.ends_ns = self.ends_ns.min(now);
            }
            self.end_warm_up();
            self.pass_seconds(now);
            self.settle(now);
            while let Some(Reverse((at, number))) = self.sleepers.peek().copied() {
                if at > now {
                    break;
                }
                self.sleepers.pop();
                let tally = self.tallies.of(self.clients[number].phase);
                let step = self.clients[number].wake(self.work.shared, tally, now);
                self.stepped(number, step, now)?;
            }
            if !stopped {
                now = self.start_due(now)?;
            } else if self.busy == 0 || now > self.ends_ns + self.work.drain_ns || self.work.stop.load(Relaxed) {
                break;
            }
            if self.gone as usize + self.finished == self.clients.len() {
                break;
            }
            let until = self.next_moment(stopped);
            // Where only answers are waited for, the seconds and the end are seen with the answers or with a tick.
            let no_moment = !self.open && !stopped && until > now && self.sleepers.is_empty();
            let ready = self.poll.wait(&mut events, (!no_moment).then_some(until - now))?;
            if ready == 0 {
                continue;
            }
            for event in &events[..ready] {
                let now = now_ns();
                self.pass_seconds(now); // the thread may have waited for a CPU
                let Some(number) = self.poll.client_of(event) else { continue };
                let what = event.events as i32;
                let mut step = Step::Wait;
                if what & libc::EPOLLOUT != 0 {
                    let tally = self.tallies.of(self.clients[number].phase);
                    step = self.clients[number].writable(tally);
                }
                if step == Step::Wait && what & !libc::EPOLLOUT != 0 {
                    let tally = self.tallies.of(self.clients[number].phase);
                    step = self.clients[number].readable(self.work.shared, tally, now);
                }
                self.stepped(number, step, now)?;
                if !self.open && !stopped && now < self.ends_ns && self.free.back() == Some(&number) {
                    self.free.pop_back();
                    self.begin(number, now, now, self.tallies.phase, None)?; // a closed loop goes on at once
                }
            }
        }
        self.finish();
        Ok(())
    }

    /// Begins transactions that are due, as far as there are free clients. The time afterwards.
    fn start_due(&mut self, mut now: i64) -> io::Result<i64> {
        if !self.open {
            // Each free client once: a script without statements never waits.
            for _ in 0..self.free.len() {
                if let Some(number) = self.free.pop_front() {
                    self.begin(number, now, now, self.tallies.phase, None)?;
                }
            }
            return Ok(now);
        }
        while let Some(due) = self.work.dues.due() {
            if due > now || self.free.is_empty() {
                break;
            }
            let phase = self.work.dues.phase();
            let asked = self.work.dues.take();
            let second = &mut self.tallies.of(phase).second;
            if self.work.shared.latency_limit_ns.is_some_and(|limit| now - due > limit) {
                second.due += 1;
                second.skipped += 1;
                continue;
            }
            if let Some(number) = self.free.pop_front() {
                second.lag.record(now - due);
                if self.clients[number].free_ns <= due {
                    second.schedule_error.record(now - due);
                }
                self.begin(number, due, now, phase, asked)?;
                now = now_ns();
                if now >= self.second_ends_ns() {
                    break;
                }
            }
        }
        Ok(now)
    }

    /// asked: of which terminal, and for which script.
    fn begin(
        &mut self,
        number: usize,
        due: i64,
        now: i64,
        phase: usize,
        asked: Option<(usize, usize)>,
    ) -> io::Result<()> {
        let script = asked.map_or_else(|| self.work.mix.draw(), |(_, script)| script);
        self.clients[number].terminal = asked.map(|(terminal, _)| terminal);
        self.busy += 1;
        self.tallies.begun(phase);
        let tally = self.tallies.of(phase);
        tally.second.due += 1;
        self.clients[number].phase = phase;
        let step = self.clients[number].begin(script, due, now, self.work.shared, tally);
        self.stepped(number, step, now)
    }

    /// What follows from what a client did.
    fn stepped(&mut self, number: usize, step: Step, now: i64) -> io::Result<()> {
        match step {
            Step::Wait => {
                let wants = self.clients[number].wants_to_write();
                if wants != self.wants[number] {
                    self.watch(number, libc::EPOLL_CTL_MOD, wants)?;
                }
            }
            Step::Sleep(until) => self.sleepers.push(Reverse((until, number))),
            Step::Ended { well } => {
                self.busy -= 1;
                self.tallies.ended(self.clients[number].phase);
                self.tallies.now.second.ended += u64::from(well);
                self.clients[number].free_ns = now;
                self.answered(number, now);
                if self.work.transactions.is_some_and(|most| self.clients[number].transactions >= most) {
                    self.finished += 1;
                } else {
                    self.free.push_back(number);
                }
            }
            Step::Gone => {
                // A client without a transaction may lose its connection, too.
                match self.free.iter().position(|free| *free == number) {
                    Some(at) => drop(self.free.remove(at)),
                    None => {
                        self.busy -= 1;
                        self.tallies.ended(self.clients[number].phase);
                        self.answered(number, now);
                    }
                }
                self.sleepers.retain(|Reverse((_, sleeper))| *sleeper != number);
                self.watch(number, libc::EPOLL_CTL_DEL, false)?;
                self.gone += 1;
            }
        }
        Ok(())
    }

    fn answered(&mut self, number: usize, now: i64) {
        if let Some(terminal) = self.clients[number].terminal.take() {
            self.work.dues.answered(terminal, now);
        }
    }

    fn watch(&mut self, number: usize, what: i32, wants_to_write: bool) -> io::Result<()> {
        self.wants[number] = wants_to_write;
        self.poll.watch(what, self.clients[number].fd(), number, wants_to_write)
    }

    /// When there is something to do, if no answer comes before.
    fn next_moment(&mut self, stopped: bool) -> i64 {
        let mut until = match stopped {
            true => self.ends_ns + self.work.drain_ns,
            false => self.ends_ns.min(self.second_ends_ns()),
        };
        if let Some(Reverse((at, _))) = self.sleepers.peek() {
            until = until.min(*at);
        }
        if !stopped && !self.free.is_empty() {
            until = match self.open {
                true => until.min(self.work.dues.due().unwrap_or(until)),
                false => 0,
            };
        }
        until
    }

    /// If the warm-up is to end before its time: all that follows is so much earlier.
    fn end_warm_up(&mut self) {
        let steady = self.work.shared.steady_ns.load(Relaxed);
        if self.tallies.phase > 0 || steady >= self.phase_ends_ns {
            return;
        }
        let ends = steady.max(self.tallies.now.second.begins_ns + 1);
        let saved = self.phase_ends_ns - ends;
        self.phase_ends_ns = ends;
        self.ends_ns -= saved;
        self.work.shared.ends_ns.store(self.ends_ns, Relaxed);
        self.work.dues.end_first_phase(ends);
    }

    /// When the second that runs ends, or the phase before it.
    fn second_ends_ns(&self) -> i64 {
        self.phase_ends_ns.min(self.tallies.now.second.begins_ns + SECOND)
    }

    /// What comes now counts in the second that runs.
    fn pass_seconds(&mut self, now: i64) {
        while now >= self.second_ends_ns() && self.tallies.phase < self.work.phases.len() {
            self.next_second();
        }
    }

    /// Hands over the second that has passed.
    fn next_second(&mut self) {
        let ends = self.second_ends_ns();
        if ends == self.phase_ends_ns {
            let second = self.tallies.next_phase(ends);
            self.hand_over(second, ends);
            self.phase_ends_ns =
                ends + self.work.phases.get(self.tallies.phase).map_or(i64::MAX / 4, |phase| phase.for_ns);
        } else {
            let second = self.tallies.next_second(ends);
            self.hand_over(second, ends);
        }
    }

    /// Hands over phases that have passed once no transaction of them is left; the last one at the end of the run.
    fn settle(&mut self, now: i64) {
        if self.tallies.phase >= self.work.phases.len() {
            return;
        }
        self.work.dues.due();
        for Tally { mut second, part } in self.tallies.settled(self.work.dues.phase()) {
            second.waited_ns = Some(0); // that of the threads is in the seconds that ran meanwhile
            self.tell_second(second, now);
            self.tell(Told::Part(part));
        }
    }

    fn hand_over(&mut self, mut second: Second, ends: i64) {
        (second.cpu_ns, second.waited_ns) = self.own.since();
        let infos: Vec<TcpInfo> = self.clients.iter().filter_map(|client| TcpInfo::of(client.fd())).collect();
        if !infos.is_empty() {
            let sum: f64 = infos.iter().map(|info| f64::from(info.rtt_us)).sum();
            second.rtt_us = Some(sum / infos.len() as f64);
            second.min_rtt_us = infos.iter().map(|info| info.min_rtt_us).min();
            second.retransmits = Some(infos.iter().map(|info| u64::from(info.retransmits)).sum());
        }
        self.tell_second(second, ends);
    }

    fn tell_second(&self, mut second: Second, ends: i64) {
        if !self.open {
            second.latency = second.service.clone(); // due when they began
        }
        second.ends_ns = ends;
        self.tell(Told::Second(Box::new(second)));
    }

    fn tell(&self, told: Told) {
        let _ = self.work.tell.send((self.work.number, told)); // nobody listens any more when the run is given up
    }

    fn finish(&mut self) {
        let now = now_ns();
        let tallies = std::mem::replace(&mut self.tallies, Tallies::new(0, Vec::new(), now));
        for Tally { second, part } in tallies.rest() {
            self.hand_over(second, now);
            self.tell(Told::Part(part));
        }
        let mut ended = Ended { gone: self.gone, unfinished: 0, oldest_ns: 0, not_begun: 0, first_late_ns: 0 };
        for client in &mut self.clients {
            if let Some(began) = client.under_way() {
                ended.unfinished += 1;
                ended.oldest_ns = ended.oldest_ns.max(now - began);
            }
            client.close();
        }
        let enough = self.finished > 0 && self.finished + self.gone as usize == self.clients.len();
        if let Some(due) = self.work.dues.due().filter(|due| self.open && !enough && *due < self.ends_ns) {
            ended.first_late_ns = now - due;
            ended.not_begun = self.work.dues.left(self.ends_ns);
        }
        self.tell(Told::End(ended));
    }
}

//! The thread of the proxy: accepts, connects, and lets each pair progress when epoll or the clock says so.

use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::address::{connect_outcome, set_option, start_connect, tcp_socket, Address};
use crate::clock::now_ns;
use crate::delay::pair::{take_in, End, Next, Pair};
use crate::delay::pipe::Pipe;
use crate::delay::{socket, Plan, Report, Upstream};
use crate::fault::Fault;

/// Shortly before something is due, the thread watches the clock and does not sleep: as long before as wakings come late here, within
/// these bounds.
const SPIN_NS: (i64, i64) = (60_000, 500_000);
/// How much earlier than the usual waking comes late.
const SPARE_NS: i64 = 20_000;
/// A server that does not answer a connection attempt within this time is a failure.
const CONNECT_NS: i64 = 10_000_000_000;
const STOP: u64 = 0;
const LISTENER: u64 = 1;
const TIMER: u64 = 2;
/// Numbers of connections begin here; twice the number, and one more for the server's end, is what epoll knows them by.
const FIRST: u64 = 2;
const EVENTS: usize = 64;

/// A client that waits for the connection to the server.
struct Waiting {
    client: End,
    /// What it sends meanwhile.
    pipe: Pipe,
    /// None until the handshake over a long line would have reached the server.
    server: Option<OwnedFd>,
    /// Which of the addresses is tried.
    tried: usize,
    /// When to begin, or to give up.
    next_ns: i64,
}

pub(super) struct Worker {
    listener: TcpListener,
    addresses: Vec<Address>,
    plan: Plan,
    stop: OwnedFd,
    upstream: Upstream,
    epoll: OwnedFd,
    timer: OwnedFd,
    waiting: HashMap<u64, Waiting>,
    pairs: HashMap<u64, Pair>,
    number: u64,
    spin: Spin,
    report: Report,
}

/// How long before its time the thread has to wake up.
struct Spin {
    ns: i64,
    /// The moment for which the timer is set.
    wake_ns: i64,
}

impl Spin {
    /// The timer has woken us: a late waking counts at once, punctual ones little by little.
    fn woken(&mut self, now: i64) {
        let needed = (now - self.wake_ns + SPARE_NS).clamp(SPIN_NS.0, SPIN_NS.1);
        self.ns = if needed > self.ns { needed } else { self.ns - (self.ns - needed) / 16 };
    }
}

impl Worker {
    pub(super) fn new(
        listener: TcpListener,
        addresses: Vec<Address>,
        plan: Plan,
        stop: OwnedFd,
        upstream: Upstream,
    ) -> io::Result<Worker> {
        // SAFETY: both calls take numbers; what they give is checked before it is owned.
        let (epoll, timer) = unsafe {
            let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?,
            )
        };
        // Connections that are accepted have the option from the listener: also what came before they were looked at has its time.
        let kernel_stamps = socket::stamp_arrivals(&listener);
        let report = Report { kernel_stamps, write_cost_ns: socket::cost_of_a_write(), ..Report::default() };
        let (waiting, pairs) = (HashMap::new(), HashMap::new());
        let spin = Spin { ns: SPIN_NS.0, wake_ns: 0 };
        let number = FIRST;
        let worker =
            Worker { listener, addresses, plan, stop, upstream, epoll, timer, waiting, pairs, number, spin, report };
        worker.watch(worker.stop.as_raw_fd(), STOP, libc::EPOLLIN as u32)?;
        worker.watch(worker.listener.as_raw_fd(), LISTENER, libc::EPOLLIN as u32)?;
        worker.watch(worker.timer.as_raw_fd(), TIMER, (libc::EPOLLIN | libc::EPOLLET) as u32)?;
        Ok(worker)
    }

    pub(super) fn run(mut self) -> Report {
        let mut next = i64::MAX;
        loop {
            let wait = self.wait_ms(next);
            if !self.events(wait) {
                return self.report;
            }
            next = self.progress();
        }
    }

    /// How long epoll may sleep: not at all when something is due soon, else until the timer, which is set here.
    fn wait_ms(&mut self, next: i64) -> i32 {
        if next == i64::MAX {
            return -1;
        }
        let wake = next - self.spin.ns;
        if wake <= now_ns() {
            return 0;
        }
        self.spin.wake_ns = wake;
        let at = libc::timespec { tv_sec: wake / 1_000_000_000, tv_nsec: wake % 1_000_000_000 };
        let spec = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        let absolute = libc::TFD_TIMER_ABSTIME;
        // SAFETY: the pointer is to a structure of ours, the other may be null.
        unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), absolute, &spec, std::ptr::null_mut()) };
        -1
    }

    /// Takes what epoll says; false when it is to stop.
    fn events(&mut self, wait_ms: i32) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        // SAFETY: the pointer and the length are those of an array of ours.
        let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, wait_ms) };
        for event in &events[..n.max(0) as usize] {
            let (what, flags) = (event.u64, event.events as i32);
            match what {
                STOP => return false,
                LISTENER => self.accept(),
                TIMER => self.spin.woken(now_ns()),
                _ => self.socket_event(what / 2, (what % 2) as usize, flags),
            }
        }
        true
    }

    fn socket_event(&mut self, number: u64, end: usize, flags: i32) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.ends[end].heard(flags);
        } else if let (Some(waiting), 0) = (self.waiting.get_mut(&number), end) {
            waiting.client.heard(flags);
        } else {
            self.connected(number);
        }
    }

    /// Lets all pairs progress; when the next thing is due.
    fn progress(&mut self) -> i64 {
        let mut next = i64::MAX;
        let mut over = Vec::new();
        for (number, pair) in &mut self.pairs {
            match pair.progress(&self.plan, self.report.write_cost_ns, &mut self.report.ways) {
                Next::At(due) => next = next.min(due),
                Next::Over => over.push(*number),
                Next::Broken => {
                    pair.ends.iter().for_each(|end| socket::reset_on_close(&end.fd));
                    self.report.broken += 1;
                    over.push(*number);
                }
            }
        }
        if !over.is_empty() {
            over.iter().for_each(|number| drop(self.pairs.remove(number)));
            self.tell_upstream();
        }
        if !self.waiting.is_empty() {
            next = next.min(self.progress_of_waiting());
        }
        next
    }

    /// Begins connections to the server, gives up old ones, and reads what their clients send already; when the next thing is due.
    fn progress_of_waiting(&mut self) -> i64 {
        let (now, mut due, mut gone, mut more) = (now_ns(), Vec::new(), Vec::new(), false);
        for (number, waiting) in &mut self.waiting {
            if !take_in(&mut waiting.pipe, &mut waiting.client, &self.plan, &mut self.report.ways[0]) {
                gone.push(*number);
            } else if waiting.next_ns <= now {
                due.push(*number);
            }
            more |=
                waiting.client.readable && waiting.pipe.end_due_ns.is_none() && waiting.pipe.room(&self.plan, now) > 0;
        }
        for number in gone {
            self.waiting.remove(&number);
            self.report.broken += 1;
        }
        for number in due {
            match self.waiting.get_mut(&number) {
                Some(waiting) if waiting.server.is_none() => {
                    waiting.next_ns = now + CONNECT_NS;
                    self.connect(number);
                }
                _ => self.failed(number, &io::ErrorKind::TimedOut.into()),
            }
        }
        let next = self.waiting.values().map(|w| w.next_ns).min().unwrap_or(i64::MAX);
        if more && !self.waiting.is_empty() {
            0
        } else {
            next
        }
    }

    /// Over a long line the client's acknowledgement of the handshake arrives at the server after one and a half round trips: only then it
    /// begins to serve. The client here has its connection a round trip too early.
    fn accept(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            let (now, way_ns) = (now_ns(), self.plan.one_way_ns);
            self.report.connections += 1;
            let _ = client.set_nonblocking(true); // every read and write says so again
            let _ = client.set_nodelay(true);
            self.number += 1;
            let number = self.number;
            let client = End::new(client.into());
            let watched = self.watch(client.fd.as_raw_fd(), 2 * number, BOTH);
            let pipe = Pipe::new(&self.plan, number * 2, 2 * way_ns);
            self.waiting.insert(number, Waiting { client, pipe, server: None, tried: 0, next_ns: now + 3 * way_ns });
            if let Err(e) = watched {
                self.failed(number, &e);
            }
        }
    }

    /// Begins to connect to the server, at the first address not tried that lets it.
    fn connect(&mut self, number: u64) {
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        while let Some(address) = self.waiting.get(&number).and_then(|waiting| self.addresses.get(waiting.tried)) {
            let begun = begin(address).and_then(|server| {
                self.watch(server.as_raw_fd(), 2 * number + 1, BOTH)?;
                Ok(server)
            });
            let Some(waiting) = self.waiting.get_mut(&number) else { return };
            match begun {
                Ok(server) => {
                    waiting.server = Some(server);
                    return;
                }
                Err(e) => error = e,
            }
            waiting.tried += 1;
        }
        self.give_up(number, &error);
    }

    /// Epoll says that the connection to the server is there, or has failed.
    fn connected(&mut self, number: u64) {
        let server = self.waiting.get(&number).and_then(|waiting| waiting.server.as_ref());
        match server.map(connect_outcome) {
            None => {}
            Some(Err(e)) => self.failed(number, &e),
            Some(Ok(())) => {
                let Some(Waiting { client, pipe, server: Some(server), .. }) = self.waiting.remove(&number) else {
                    return;
                };
                self.report.kernel_stamps &= socket::stamp_arrivals(&server);
                let _ = set_option(&server, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1); // a unix socket has no such option
                let back = Pipe::new(&self.plan, number * 2 + 1, 0);
                let mut pair = Pair { ends: [client, End::new(server)], pipes: [pipe, back] };
                pair.ends[1].writable = true;
                self.pairs.insert(number, pair);
                self.tell_upstream();
            }
        }
    }

    /// The connection to the server failed: the next address, or the client is reset too.
    fn failed(&mut self, number: u64, e: &io::Error) {
        let Some(waiting) = self.waiting.get_mut(&number) else { return };
        waiting.tried += 1;
        if e.kind() != io::ErrorKind::TimedOut
            && waiting.server.take().is_some()
            && waiting.tried < self.addresses.len()
        {
            self.connect(number);
            return;
        }
        self.give_up(number, e);
    }

    fn give_up(&mut self, number: u64, e: &io::Error) {
        self.note_failure(e);
        if let Some(waiting) = self.waiting.remove(&number) {
            socket::reset_on_close(&waiting.client.fd);
        }
    }

    fn note_failure(&mut self, e: &io::Error) {
        self.report.failed += 1;
        self.report.last_failure = Fault::io("connect", e).text;
    }

    fn tell_upstream(&self) {
        let addresses = self.pairs.values().filter_map(|pair| {
            let copy = pair.ends[1].fd.try_clone().ok()?;
            TcpStream::from(copy).local_addr().ok()
        });
        *self.upstream.lock() = addresses.collect();
    }

    fn watch(&self, fd: i32, what: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: what };
        // SAFETY: the pointer is to a structure of ours.
        let outcome = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if outcome == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

const BOTH: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;

fn begin(address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            Ok(stream.into())
        }
        Address::Tcp(address) => {
            let fd = tcp_socket(address)?;
            match start_connect(&fd, address) {
                Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
                _ => Ok(fd),
            }
        }
    }
}

/// # Safety
/// `fd` is what a call has just given, and belongs to nobody else.
unsafe fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_wakings_make_the_next_ones_earlier_and_punctual_ones_later_again() {
        let mut spin = Spin { ns: SPIN_NS.0, wake_ns: 1000 };
        spin.woken(1000 + 200_000);
        assert_eq!(spin.ns, 220_000);
        spin.woken(1000 + 9_000_000);
        assert_eq!(spin.ns, SPIN_NS.1);
        (0..200).for_each(|_| spin.woken(1000));
        assert!((SPIN_NS.0..SPIN_NS.0 + 16).contains(&spin.ns), "{}", spin.ns);
    }
}

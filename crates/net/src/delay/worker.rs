//! The thread of the proxy: accepts, connects, and lets each pair progress when epoll or the clock says so.

use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;

use crate::address::{connect_outcome, set_option, start_connect, tcp_socket, Address};
use crate::clock::now_ns;
use crate::delay::pair::{End, Next, Pair};
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
    client: OwnedFd,
    server: OwnedFd,
    /// Which of the addresses is tried.
    tried: usize,
    until_ns: i64,
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
        let report = Report { write_cost_ns: socket::cost_of_a_write(), ..Report::default() };
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
            let broken = libc::EPOLLERR | libc::EPOLLHUP;
            pair.ends[end].readable |= flags & (libc::EPOLLIN | libc::EPOLLRDHUP | broken) != 0;
            pair.ends[end].writable |= flags & (libc::EPOLLOUT | broken) != 0;
        } else if self.waiting.contains_key(&number) && end == 1 {
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
            let now = now_ns();
            let late: Vec<u64> =
                self.waiting.iter().filter(|(_, w)| w.until_ns <= now).map(|(number, _)| *number).collect();
            late.into_iter().for_each(|number| self.failed(number, &io::ErrorKind::TimedOut.into()));
            next = self.waiting.values().map(|w| w.until_ns).min().unwrap_or(i64::MAX).min(next);
        }
        next
    }

    fn accept(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            self.report.connections += 1;
            let _ = client.set_nonblocking(true); // every read and write says so again
            let _ = client.set_nodelay(true);
            self.number += 1;
            self.connect(self.number, client.into(), 0, now_ns() + CONNECT_NS);
        }
    }

    /// Begins to connect to the server, at the first address from `tried` on that lets it.
    fn connect(&mut self, number: u64, client: OwnedFd, mut tried: usize, until_ns: i64) {
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        while let Some(address) = self.addresses.get(tried) {
            match begin(address) {
                Ok(server) => {
                    self.waiting.insert(number, Waiting { client, server, tried, until_ns });
                    let fd = self.waiting[&number].server.as_raw_fd();
                    if let Err(e) = self.watch(fd, 2 * number + 1, BOTH) {
                        self.failed(number, &e);
                    }
                    return;
                }
                Err(e) => error = e,
            }
            tried += 1;
        }
        self.note_failure(&error);
        socket::reset_on_close(&client);
    }

    /// Epoll says that the connection to the server is there, or has failed.
    fn connected(&mut self, number: u64) {
        let outcome = self.waiting.get(&number).map(|waiting| connect_outcome(&waiting.server));
        match outcome {
            None => {}
            Some(Err(e)) => self.failed(number, &e),
            Some(Ok(())) => {
                let Some(Waiting { client, server, until_ns, .. }) = self.waiting.remove(&number) else { return };
                let stamps = socket::stamp_arrivals(&client) & socket::stamp_arrivals(&server);
                self.report.kernel_stamps = stamps;
                let _ = set_option(&server, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1); // a unix socket has no such option
                                                                                      // On a long line, the client's first bytes set out when the handshake is over, and the server's when it has heard of that.
                let (accepted_ns, way_ns) = (until_ns - CONNECT_NS, self.plan.one_way_ns);
                let mut pair = Pair {
                    ends: [End::new(client), End::new(server)],
                    pipes: [
                        Pipe::new(&self.plan, number * 2, accepted_ns + 2 * way_ns),
                        Pipe::new(&self.plan, number * 2 + 1, accepted_ns + 3 * way_ns),
                    ],
                };
                pair.ends[1].writable = true;
                if let Err(e) = self.watch(pair.ends[0].fd.as_raw_fd(), 2 * number, BOTH) {
                    self.note_failure(&e);
                    return;
                }
                self.pairs.insert(number, pair);
                self.tell_upstream();
            }
        }
    }

    /// The connection to the server failed: the next address, or the client is reset too.
    fn failed(&mut self, number: u64, e: &io::Error) {
        let Some(waiting) = self.waiting.remove(&number) else { return };
        if e.kind() != io::ErrorKind::TimedOut && waiting.tried + 1 < self.addresses.len() {
            self.connect(number, waiting.client, waiting.tried + 1, waiting.until_ns);
            return;
        }
        self.note_failure(e);
        socket::reset_on_close(&waiting.client);
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
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = addresses.collect();
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

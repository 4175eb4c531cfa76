//! `net delay`: a TCP proxy that passes on every byte half a round trip after it came, in each direction.
//!
//! Bytes are under way like on a long line: what comes is stamped and queued, and what is due is passed on, so that a delay costs no
//! throughput unless a rate, a window or the bound of the queue says so. The handshake of TCP between the client and the proxy cannot be
//! delayed from here: a connection is there at once. So what the client sends before it hears the server takes a round trip more, whenever
//! it is sent, and the server gets its connection when it would over the line.
//!
//! One thread serves all connections. It sleeps until shortly before something is due, then watches the clock.

mod pair;
mod pipe;
mod ring;
mod socket;
mod worker;

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use leadline_errors::{Error, Kind};
use serde_json::{json, Value};

use crate::address::{resolve, Place};
use crate::echo::listen;
use leadline_histogram::Times;
use parking_lot::Mutex;
use worker::Worker;

/// What to do to the bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Half the round trip, in ns.
    pub one_way_ns: i64,
    /// Each part is up to so much earlier or later, evenly distributed.
    pub jitter_ns: i64,
    /// Bits a second in each direction; None: no limit.
    pub rate_bit: Option<f64>,
    /// Bytes under way in each direction at most; None: no limit but that of the buffer.
    pub window: Option<usize>,
    /// Bytes kept in each direction at most.
    pub buffer: usize,
}

/// Bytes kept unless the plan says otherwise: 1.3 GB/s over a round trip of 100 ms.
const BUFFER: usize = 64 << 20;
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// Bytes of a packet on Ethernet: with a rate, no part is smaller.
const PACKET: f64 = 1500.0;

impl Plan {
    /// Only a delay.
    pub fn new(rtt: Duration) -> Plan {
        Plan { one_way_ns: rtt.as_nanos() as i64 / 2, jitter_ns: 0, rate_bit: None, window: None, buffer: BUFFER }
    }

    /// Bytes of a part at most: with a rate, what a millisecond takes.
    fn quantum(&self) -> usize {
        self.rate_bit.map_or(PIECE, |rate| (rate / 8000.0).clamp(PACKET, PIECE as f64) as usize)
    }
}

/// What was done.
#[derive(Default)]
struct Report {
    connections: u64,
    failed: u64,
    last_failure: String,
    broken: u64,
    /// To the server, to the client.
    ways: [Way; 2],
    kernel_stamps: bool,
    write_cost_ns: i64,
}

/// One direction of all connections.
#[derive(Default)]
struct Way {
    bytes: u64,
    parts: u64,
    held_back: u64,
    most_buffered: usize,
    added: Times,
}

impl Way {
    fn json(&self) -> Value {
        json!({
            "bytes": self.bytes, "parts": self.parts, "held_back": self.held_back, "most_buffered_bytes": self.most_buffered,
            "added": self.added.summary(),
        })
    }
}

/// Connections from the proxy to the server: our address of each.
type Upstream = Arc<Mutex<Vec<SocketAddr>>>;

/// A running proxy.
pub struct Delay {
    plan: Plan,
    address: SocketAddr,
    to: String,
    stop: OwnedFd,
    upstream: Upstream,
    worker: Option<JoinHandle<Report>>,
    report: Report,
}

impl Delay {
    /// Listens at HOST and PORT (0 for a free one), and passes on to a place.
    ///
    /// # Errors
    /// `usage`, or `connection` when it cannot listen, or the name of the place has no address.
    pub fn start(host: &str, port: u16, to: &Place, plan: Plan) -> Result<Delay, Error> {
        if plan.rate_bit.is_some_and(|rate| !(rate >= 1000.0 && rate.is_finite())) {
            return Err(Error::new(Kind::Usage, "a rate is at least 1000 bits a second"));
        }
        if plan.window == Some(0) || plan.buffer == 0 || plan.one_way_ns < 0 || plan.jitter_ns < 0 {
            return Err(Error::new(Kind::Usage, "delay, jitter, window and buffer are positive"));
        }
        let (addresses, _) = resolve(to, Duration::from_secs(5)).map_err(|fault| fault.error(&to.to_string()))?;
        let listener = listen(host, port)?;
        let failed = |e: std::io::Error| {
            Error::new(Kind::Connection, "the proxy cannot be set up")
                .detail(e.to_string())
                .at(format!("{host}:{port}"))
        };
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        // SAFETY: the call takes numbers; what it gives is checked before it is owned.
        let stop = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if stop < 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        // SAFETY: it was opened just now and belongs to nobody else.
        let stop = unsafe { OwnedFd::from_raw_fd(stop) };
        let upstream = Upstream::default();
        let told = stop.try_clone().map_err(failed)?;
        let worker = Worker::new(listener, addresses, plan.clone(), told, upstream.clone()).map_err(failed)?;
        let worker =
            thread::Builder::new().name("leadline-delay".into()).spawn(move || worker.run()).map_err(failed)?;
        let to = to.to_string();
        Ok(Delay { plan, address, to, stop, upstream, worker: Some(worker), report: Report::default() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Our addresses of the connections to the server that are open now.
    pub fn upstream(&self) -> Vec<SocketAddr> {
        self.upstream.lock().clone()
    }

    /// Closes all connections, and tells what was done.
    pub fn stop(&mut self) -> Result<Value, Error> {
        if let Some(worker) = self.worker.take() {
            let one = 1_u64;
            // SAFETY: eight bytes of ours; an eventfd takes them.
            unsafe { libc::write(self.stop.as_raw_fd(), (&raw const one).cast(), 8) };
            self.report = worker.join().map_err(|panic| Error::fault("delays bytes", &*panic))?;
        }
        Ok(self.summary())
    }

    fn summary(&self) -> Value {
        let r = &self.report;
        let median = |way: &Way| way.added.quantile(0.5);
        let both = median(&r.ways[0]).zip(median(&r.ways[1])).map(|(there, back)| there + back);
        json!({
            "address": self.address.to_string(),
            "to": self.to,
            "asked_rtt_ns": 2 * self.plan.one_way_ns,
            "asked_jitter_ns": self.plan.jitter_ns,
            "rate_bit": self.plan.rate_bit,
            "window_bytes": self.plan.window,
            "buffer_bytes": self.plan.buffer,
            "connections": r.connections,
            "failed_connections": r.failed,
            "last_failure": (r.failed > 0).then_some(&r.last_failure),
            "broken_connections": r.broken,
            "arrival_stamps": if r.kernel_stamps { "kernel" } else { "reading" },
            "write_cost_ns": r.write_cost_ns,
            "added_rtt_p50_ns": both,
            "to_server": r.ways[0].json(),
            "to_client": r.ways[1].json(),
        })
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

//! `net rtt`: requests to `net echo`, one connection per thread, and the full round trip of each.
//!
//! Each request has three times: when it was intended, when it was sent, and when its reply was whole. `rtt` is from sent to done.
//! With a rate, requests are intended at fixed moments, whatever became of those before, and `response` is from intended to done:
//! a server that stops for a second is then seen by all requests that were due in it, not by one. Without a rate, the next request
//! follows the reply before it at once, and there is only `rtt`. Requests of one connection never overlap.
//!
//! The first round trip of a connection is kept apart: it pays for caches, windows and the start of the other end's thread.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use leadline_errors::{Error, Kind};
use serde_json::{json, Value};

use crate::address::{connect, resolve, Address, Place, Socket};
use crate::clock::{exact_timers, now_ns, wait_until};
use crate::fault::{Fault, Outcome};
use crate::frame::{Header, HEADER, LONGEST};
use crate::piece::{Piece, PIECE};
use crate::tcp_info::TcpInfo;
use leadline_histogram::Times;

pub(crate) const SECOND: i64 = 1_000_000_000;
/// How long a read waits before it looks whether it shall stop.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bytes of payload of a request, beside the header.
    pub request: u32,
    /// Bytes of payload of a reply.
    pub response: u32,
    /// Connections at a time.
    pub connections: u32,
    /// Requests a second of all connections together; None: each follows the reply before it, or without waiting for it the request before.
    pub rate_hz: Option<f64>,
    /// How long to send.
    pub duration: Duration,
    /// Send at most as many on each connection.
    pub most: Option<u64>,
    /// How long to wait for a connection or a reply.
    pub timeout: Duration,
    /// Also a row with histogram for each connection and as much time.
    pub interval: Option<Duration>,
}

/// Counts and times of an interval, or of all of them.
#[derive(Clone, Default)]
struct Seen {
    requests: u64,
    replies: u64,
    rtt: Times,
    response: Times,
}

/// A row for the capture, from the thread that measures.
struct Second {
    connection: u32,
    from_ns: i64,
    to_ns: i64,
    seen: Seen,
    tcp: Option<TcpInfo>,
}

struct Client {
    connect_ns: i64,
    first_rtt_ns: Option<i64>,
    from_ns: i64,
    to_ns: i64,
    seen: Seen,
    late: Times,
    unsent: u64,
    tcp: Option<TcpInfo>,
    fault: Option<Fault>,
}

/// A connection, its address, and what it took to make it.
type Made = (TcpStream, Address, i64);

/// Connections to a server of `net echo`, and how long its name took.
///
/// # Errors
/// `usage` for sizes beyond those of a frame, `connection`.
pub(crate) fn connections(place: &Place, plan: &Plan) -> Result<(Vec<Made>, i64), Error> {
    if plan.request > LONGEST || plan.response > LONGEST {
        return Err(Error::new(Kind::Usage, format!("a payload has at most {LONGEST} bytes")));
    }
    let error = |fault: Fault| fault.error(&place.to_string());
    let (addresses, resolve_ns) = resolve(place, plan.timeout).map_err(error)?;
    let one = |_| match connect(&addresses, plan.timeout, None)? {
        (Socket::Tcp(stream), address, took) => Ok((stream, address, took)),
        (Socket::Unix(_), ..) => Err(Fault::new("connect", "unsupported", "this is measured over TCP")),
    };
    let made = (0..plan.connections).map(one).collect::<Outcome<Vec<_>>>().map_err(error)?;
    Ok((made, resolve_ns))
}

/// Measures, until the time is over or `stop` is set. `show` gets each row as it comes.
///
/// # Errors
/// `connection` when no connection was made, or no reply came at all. What fails later is in the outcome (`faults`).
pub fn run(place: &Place, plan: &Plan, stop: &AtomicBool, show: &mut dyn FnMut(&Value)) -> Result<Value, Error> {
    let error = |fault: Fault| fault.error(&place.to_string());
    let (mut sockets, resolve_ns) = connections(place, plan)?;
    let address = sockets.first().map(|(_, address, _)| address.clone());
    let ready = Barrier::new(sockets.len());
    let (tell, told) = mpsc::channel::<Second>();
    let (clients, seconds) = thread::scope(|scope| {
        let workers: Vec<_> = (0_u32..)
            .zip(sockets.drain(..))
            .map(|(number, (stream, _, connect_ns))| {
                let (tell, ready) = (tell.clone(), &ready);
                scope.spawn(move || client(stream, connect_ns, number, plan, stop, ready, &tell))
            })
            .collect();
        drop(tell);
        let seconds: Vec<Value> =
            told.into_iter().map(|second| second_json(&second)).inspect(|row| show(row)).collect();
        let clients: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        (clients, seconds)
    });
    let clients: Result<Vec<Client>, Error> =
        clients.into_iter().map(|c| c.map_err(|panic| Error::fault("measures a connection", &*panic))).collect();
    let clients = clients?;
    if let (true, Some(fault)) =
        (clients.iter().all(|c| c.first_rtt_ns.is_none()), clients.iter().find_map(|c| c.fault.clone()))
    {
        return Err(error(fault));
    }
    Ok(outcome(plan, address.as_ref(), resolve_ns, &clients, seconds))
}

fn outcome(plan: &Plan, address: Option<&Address>, resolve_ns: i64, clients: &[Client], seconds: Vec<Value>) -> Value {
    let mut all = Seen::default();
    let (mut late, mut connects) = (Times::new(), Times::new());
    for client in clients {
        all.requests += client.seen.requests;
        all.replies += client.seen.replies;
        all.rtt.add(&client.seen.rtt);
        all.response.add(&client.seen.response);
        late.add(&client.late);
        connects.record(client.connect_ns);
    }
    let span = clients.iter().map(|c| c.to_ns - c.from_ns).max().unwrap_or(0);
    let faults: Vec<Value> = (0..).zip(clients).filter_map(|(number, client)| fault_json(number, client)).collect();
    json!({
        "address": address.map(ToString::to_string),
        "request_bytes": plan.request,
        "response_bytes": plan.response,
        "header_bytes": HEADER,
        "connections": plan.connections,
        "rate_hz": plan.rate_hz,
        "tcp_nodelay": true,
        "seconds": span as f64 / SECOND as f64,
        "requests": all.requests,
        "replies": all.replies,
        "unsent": clients.iter().map(|c| c.unsent).sum::<u64>(),
        "resolve_ns": resolve_ns,
        "connect": connects.summary(),
        "first_rtt_ns": clients.iter().map(|c| c.first_rtt_ns).collect::<Vec<_>>(),
        "rtt": all.rtt.summary(),
        "response": plan.rate_hz.map(|_| all.response.summary()),
        "late": plan.rate_hz.map(|_| late.summary()),
        "tcp": clients.iter().map(|c| c.tcp.map(|tcp| tcp.json())).collect::<Vec<_>>(),
        "faults": faults,
        "rows": seconds,
    })
}

fn fault_json(number: u32, client: &Client) -> Option<Value> {
    let fault = client.fault.as_ref()?;
    let mut row = fault.json();
    row["connection"] = number.into();
    Some(row)
}

fn second_json(second: &Second) -> Value {
    use base64::prelude::{Engine, BASE64_STANDARD};
    let of = |times: &Times| {
        let mut row = times.summary();
        row["histogram"] = BASE64_STANDARD.encode(times.v2_compressed()).into();
        row["buckets"] = json!(times.buckets());
        row
    };
    json!({
        "connection": second.connection,
        "ts": second.to_ns,
        "duration_ns": second.to_ns - second.from_ns,
        "requests": second.seen.requests,
        "replies": second.seen.replies,
        "rtt": of(&second.seen.rtt),
        "response": of(&second.seen.response),
        "tcp": second.tcp.map(|tcp| tcp.json()),
    })
}

fn client(
    stream: TcpStream,
    connect_ns: i64,
    number: u32,
    plan: &Plan,
    stop: &AtomicBool,
    ready: &Barrier,
    tell: &Sender<Second>,
) -> Client {
    exact_timers();
    let mut client = Client {
        connect_ns,
        first_rtt_ns: None,
        from_ns: now_ns(),
        to_ns: now_ns(),
        seen: Seen::default(),
        late: Times::new(),
        unsent: 0,
        tcp: None,
        fault: None,
    };
    let mut line = Line::new(stream, (plan.request, plan.response), plan.timeout, stop);
    // The first one begins together with those of the others, and nothing else does before all of them had theirs.
    ready.wait();
    let first = line.round_trip();
    ready.wait();
    match first {
        Ok(first) => {
            client.first_rtt_ns = Some(first);
            if let Err(fault) = steady(&mut line, number, plan, &mut client, tell) {
                client.fault = Some(fault);
            }
        }
        Err(fault) => client.fault = Some(fault),
    }
    client.tcp = TcpInfo::of(line.stream.as_raw_fd());
    client
}

/// All requests after the first.
fn steady(line: &mut Line<'_>, number: u32, plan: &Plan, client: &mut Client, tell: &Sender<Second>) -> Outcome<()> {
    let begin = now_ns();
    let end = begin + plan.duration.as_nanos() as i64;
    let pace = plan.rate_hz.map(|rate| f64::from(plan.connections) / rate * SECOND as f64);
    let phase = f64::from(number) / f64::from(plan.connections);
    let intended = |request: u64| pace.map(|pace| begin + ((request as f64 + phase) * pace) as i64);
    let mut second = Second { connection: number, from_ns: begin, to_ns: begin, seen: Seen::default(), tcp: None };
    client.from_ns = begin;
    let interval = plan.interval.map_or(SECOND, |interval| interval.as_nanos() as i64);
    let mut outcome = Ok(());
    let mut request = 0;
    while plan.most.is_none_or(|most| request < most) && !line.stop.load(Relaxed) {
        let due = intended(request);
        if due.unwrap_or_else(now_ns) >= end {
            break;
        }
        if let Some(due) = due {
            wait_until(due);
        }
        let sent = now_ns();
        if sent >= end {
            break; // it was due before the end: counted below
        }
        request += 1;
        second.seen.requests += 1;
        match line.round_trip() {
            Ok(rtt) => {
                second.seen.replies += 1;
                second.seen.rtt.record(rtt);
                if let Some(due) = due {
                    second.seen.response.record(line.done_ns - due);
                    client.late.record(sent - due);
                }
            }
            Err(fault) => {
                outcome = Err(fault);
                break;
            }
        }
        if line.done_ns - second.from_ns >= interval {
            second.to_ns = line.done_ns;
            second = hand_over(second, line, plan, client, tell);
        }
    }
    second.to_ns = now_ns();
    client.to_ns = second.to_ns;
    hand_over(second, line, plan, client, tell);
    if !line.stop.load(Relaxed) {
        let due = pace.map_or(0, |pace| due_before(end - begin, pace, phase));
        client.unsent = plan.most.map_or(due, |most| due.min(most)).saturating_sub(request);
    }
    outcome
}

/// How many requests are due in this time.
fn due_before(span_ns: i64, pace: f64, phase: f64) -> u64 {
    (span_ns as f64 / pace - phase).ceil().max(0.0) as u64
}

/// Adds a second to the sum, and gives it to the thread that makes rows of it. Returns an empty one.
fn hand_over(second: Second, line: &Line<'_>, plan: &Plan, client: &mut Client, tell: &Sender<Second>) -> Second {
    client.seen.requests += second.seen.requests;
    client.seen.replies += second.seen.replies;
    client.seen.rtt.add(&second.seen.rtt);
    client.seen.response.add(&second.seen.response);
    let next = Second { seen: Seen::default(), from_ns: second.to_ns, tcp: None, ..second };
    if plan.interval.is_some() && second.seen.requests > 0 {
        let _ = tell.send(Second { tcp: TcpInfo::of(line.stream.as_raw_fd()), ..second });
    }
    next
}

/// One connection.
pub(crate) struct Line<'a> {
    stream: TcpStream,
    stop: &'a AtomicBool,
    timeout: Duration,
    /// The request as it is sent, header first, if `buffer` is too small for it. The payload means nothing, and memory that was just read is
    /// in the cache.
    out: Vec<u8>,
    buffer: Piece,
    response: u32,
    request: u32,
    seq: u64,
    done_ns: i64,
}

impl<'a> Line<'a> {
    /// sizes: payload of a request and of a reply.
    pub(crate) fn new(stream: TcpStream, sizes: (u32, u32), timeout: Duration, stop: &'a AtomicBool) -> Line<'a> {
        let (request, response) = sizes;
        let size = HEADER + request as usize;
        // A socket that refuses it would wait without end; the replies then show that it does not.
        let _ = stream.set_read_timeout(Some(LOOK.min(timeout)));
        let _ = stream.set_write_timeout(Some(timeout));
        Line {
            stream,
            stop,
            timeout,
            out: vec![0; if size > PIECE { size } else { 0 }],
            buffer: Piece::new(),
            response,
            request,
            seq: 0,
            done_ns: 0,
        }
    }

    /// Sends a request and reads its reply: the time between.
    pub(crate) fn round_trip(&mut self) -> Outcome<i64> {
        let header = Header { seq: self.seq, here: self.request, wanted: self.response };
        let size = HEADER + self.request as usize;
        let out = if self.out.is_empty() { &mut self.buffer[..size] } else { &mut self.out[..] };
        let head: &mut [u8; HEADER] = (&mut out[..HEADER]).try_into().expect("as many bytes");
        header.put(head);
        let sent = now_ns();
        self.stream.write_all(out).map_err(|e| Fault::io("request", &e))?;
        let until = sent + self.timeout.as_nanos() as i64;
        let mut filled = self.read(0, PIECE, until)?;
        while filled < HEADER {
            filled += self.read(filled, PIECE, until)?;
        }
        let head: &[u8; HEADER] = self.buffer[..HEADER].try_into().expect("as many bytes");
        let expected = Header { seq: self.seq, here: self.response, wanted: 0 };
        if Header::parse(head) != Some(expected) {
            return Err(Fault::protocol("reply", "the answer is not that of leadline net echo"));
        }
        let mut left = (HEADER + self.response as usize).checked_sub(filled);
        while let Some(missing @ 1..) = left {
            left = missing.checked_sub(self.read(0, missing, until)?);
        }
        if left.is_none() {
            return Err(Fault::protocol("reply", "there is more than the reply"));
        }
        self.done_ns = now_ns();
        self.seq += 1;
        Ok(self.done_ns - sent)
    }

    /// Reads into the buffer behind `at`, at most `most` bytes; at least one.
    fn read(&mut self, at: usize, most: usize, until: i64) -> Outcome<usize> {
        let to = self.buffer.len().min(at.saturating_add(most));
        loop {
            match self.stream.read(&mut self.buffer[at..to]) {
                Ok(0) => return Err(Fault::closed("reply")),
                Ok(n) => return Ok(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if now_ns() >= until {
                        let text = format!("no reply to request {} within {:?}", self.seq, self.timeout);
                        return Err(Fault::new("reply", "timeout", text));
                    }
                    if self.stop.load(Relaxed) {
                        return Err(Fault::new("reply", "interrupted", "interrupted while a reply was due"));
                    }
                }
                Err(e) => return Err(Fault::io("reply", &e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Echo;
    use std::net::TcpListener;

    fn plan() -> Plan {
        Plan {
            request: 0,
            response: 0,
            connections: 1,
            rate_hz: None,
            duration: Duration::from_secs(60),
            most: Some(1000),
            timeout: Duration::from_secs(20),
            interval: Some(Duration::from_secs(1)),
        }
    }

    fn measure(plan: &Plan) -> (Value, Value) {
        let mut server = Echo::start("127.0.0.1", 0).unwrap();
        let place = Place::new("127.0.0.1", server.address().port());
        let found = run(&place, plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
        server.stop();
        (found, server.counts())
    }

    #[test]
    fn a_thousand_requests_are_a_thousand_replies_of_their_sizes() {
        for (request, response) in [(0, 0), (250, 8192), (300_000, 7), (5, 200_000)] {
            let (found, server) = measure(&Plan { request, response, ..plan() });
            assert_eq!(
                (&found["requests"], &found["replies"], &found["rtt"]["count"]),
                (&1000.into(), &1000.into(), &1000.into())
            );
            assert_eq!(server["requests"], 1001, "with the first of the connection");
            assert_eq!(server["bytes_in"], 1001 * (20 + u64::from(request)));
            assert_eq!(server["bytes_out"], 1001 * (20 + u64::from(response)));
            assert!(found["first_rtt_ns"][0].as_i64() > Some(0) && found["connect"]["count"] == 1);
        }
    }

    #[test]
    fn the_rows_of_all_connections_add_up() {
        let (found, server) = measure(&Plan { connections: 3, most: Some(500), ..plan() });
        let rows = found["rows"].as_array().unwrap();
        let counted =
            |row: &Value| row["rtt"]["buckets"].as_array().unwrap().iter().map(|b| b[2].as_u64().unwrap()).sum::<u64>();
        assert_eq!(rows.iter().map(counted).sum::<u64>(), 1500);
        assert_eq!((server["requests"].as_u64(), server["connections"].as_u64()), (Some(1503), Some(3)));
    }

    #[test]
    fn a_rate_has_response_times_and_ends_with_as_many_as_were_wanted() {
        let (found, _) = measure(&Plan { rate_hz: Some(20_000.0), most: Some(200), connections: 2, ..plan() });
        assert_eq!((&found["response"]["count"], &found["late"]["count"]), (&400.into(), &400.into()));
        assert_eq!(found["unsent"], 0, "no more were wanted");
        assert!(found["response"]["max_ns"].as_u64() >= found["rtt"]["min_ns"].as_u64());
        assert_eq!([due_before(100, 10.0, 0.0), due_before(100, 10.0, 0.5), due_before(100, 30.0, 0.0)], [10, 10, 4]);
    }

    fn with_server(serve: impl FnOnce(TcpStream) + Send + 'static, timeout_ms: u64) -> Error {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::new("127.0.0.1", listener.local_addr().unwrap().port());
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let plan = Plan { timeout: Duration::from_millis(timeout_ms), ..plan() };
        let error = run(&place, &plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
        server.join().unwrap();
        error
    }

    #[test]
    fn garbage_silence_and_an_early_end_are_one_error_each() {
        let garbage = with_server(
            |mut stream| {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                let _ = stream.read_to_end(&mut Vec::new());
            },
            20_000,
        );
        assert_eq!(garbage.message, "the server does not speak this protocol");
        let silent = with_server(|mut stream| drop(stream.read_to_end(&mut Vec::new())), 150);
        assert_eq!(silent.message, "no answer in time");
        let closed = with_server(|mut stream| drop(stream.read(&mut [0; 64])), 20_000);
        assert_eq!((closed.kind, closed.message.as_str()), (Kind::Connection, "the server closed the connection"));
    }
}

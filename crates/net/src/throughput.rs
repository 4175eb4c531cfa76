//! `net rtt --throughput`: requests to `net echo` without waiting for the replies to those before.
//!
//! Each connection has a thread that writes and one that reads. A request counts when its reply is there: what is only in a buffer on the
//! way has not arrived. The other end reads no further while its replies are not taken, so that TCP itself limits what is under way.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::sync::Barrier;
use std::thread;

use leadline_errors::Error;
use serde_json::{json, Value};

use crate::address::Place;
use crate::clock::now_ns;
use crate::fault::{Fault, Outcome};
use crate::frame::{Header, HEADER};
use crate::piece::Piece;
use crate::rtt::{connections, Plan, LOOK, SECOND};
use crate::tcp_info::TcpInfo;

/// What one connection did.
#[derive(Default)]
struct Flow {
    sent: AtomicU64,
    /// No more are sent.
    ended: AtomicBool,
}

struct Read1 {
    from_ns: i64,
    to_ns: i64,
    replies: u64,
    tcp: Option<TcpInfo>,
    fault: Option<Fault>,
}

/// Measures, until the time is over or `stop` is set. `tell` gets each row as it comes.
///
/// # Errors
/// `connection` when no connection was made, or no reply came at all. What fails later is in the outcome (`faults`).
pub fn run(place: &Place, plan: &Plan, stop: &AtomicBool, tell: &mut dyn FnMut(&Value)) -> Result<Value, Error> {
    let error = |fault: Fault| fault.error(&place.to_string());
    let (made, _) = connections(place, plan)?;
    let sockets: Vec<TcpStream> = made.into_iter().map(|(stream, ..)| stream).collect();
    let flows: Vec<Flow> = sockets.iter().map(|_| Flow::default()).collect();
    let ready = Barrier::new(sockets.len() * 2);
    let (sender, receiver) = mpsc::channel();
    let (read, rows) = thread::scope(|scope| {
        let mut readers = Vec::new();
        for (number, (stream, flow)) in (0_u32..).zip(sockets.iter().zip(&flows)) {
            let (sender, ready) = (sender.clone(), &ready);
            scope.spawn(move || {
                ready.wait();
                // What breaks a connection is seen by its reader too.
                let _ = write(stream, flow, plan, stop);
                flow.ended.store(true, Relaxed);
            });
            readers.push(scope.spawn(move || {
                ready.wait();
                let read = read(stream, flow, number, plan, stop, &sender);
                let _ = stream.shutdown(Shutdown::Both); // a writer that waits goes on
                read
            }));
        }
        drop(sender);
        let mut rows: Vec<Value> = Vec::new();
        for row in receiver {
            tell(&row);
            rows.push(row);
        }
        let read: Vec<_> = readers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        (read, rows)
    });
    let read: Result<Vec<Read1>, Error> =
        read.into_iter().map(|r| r.map_err(|panic| Error::fault("measures a connection", &*panic))).collect();
    let read = read?;
    if let (true, Some(fault)) = (read.iter().all(|r| r.replies == 0), read.iter().find_map(|r| r.fault.clone())) {
        return Err(error(fault));
    }
    Ok(outcome(plan, &flows, &read, rows))
}

fn outcome(plan: &Plan, flows: &[Flow], read: &[Read1], rows: Vec<Value>) -> Value {
    let replies: u64 = read.iter().map(|r| r.replies).sum();
    let from = read.iter().map(|r| r.from_ns).min().unwrap_or(0);
    let to = read.iter().map(|r| r.to_ns).max().unwrap_or(0);
    let faults = (0_u32..).zip(read).filter_map(|(number, r)| {
        let mut row = r.fault.as_ref()?.json();
        row["connection"] = number.into();
        Some(row)
    });
    json!({
        "request_bytes": plan.request,
        "response_bytes": plan.response,
        "header_bytes": HEADER,
        "connections": plan.connections,
        "tcp_nodelay": true,
        "seconds": (to - from).max(0) as f64 / 1e9,
        "requests": flows.iter().map(|flow| flow.sent.load(Relaxed)).sum::<u64>(),
        "replies": replies,
        "to_server_bytes": replies * size(plan.request),
        "to_client_bytes": replies * size(plan.response),
        "tcp": read.iter().map(|r| r.tcp.map(|tcp| tcp.json())).collect::<Vec<_>>(),
        "faults": faults.collect::<Vec<_>>(),
        "rows": rows,
    })
}

fn size(payload: u32) -> u64 {
    HEADER as u64 + u64::from(payload)
}

/// Writes until the time is over, as many as are wanted, or the reader has closed the connection.
fn write(mut stream: &TcpStream, flow: &Flow, plan: &Plan, stop: &AtomicBool) -> io::Result<()> {
    let mut out = vec![0; size(plan.request) as usize];
    let end = now_ns() + plan.duration.as_nanos() as i64;
    let _ = stream.set_write_timeout(Some(LOOK.min(plan.timeout)));
    let mut seq = 0;
    while plan.most.is_none_or(|most| seq < most) && !stop.load(Relaxed) && now_ns() < end {
        let head: &mut [u8; HEADER] = (&mut out[..HEADER]).try_into().expect("as many bytes");
        Header { seq, here: plan.request, wanted: plan.response }.put(head);
        let mut left = &out[..];
        while !left.is_empty() {
            match stream.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => left = &left[n..],
                // The other end takes nothing: if that lasts, the reader sees that nothing moves, and closes.
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    if stop.load(Relaxed) {
                        return Ok(());
                    }
                }
                Err(e) => return Err(e),
            }
        }
        seq += 1;
        flow.sent.store(seq, Relaxed);
    }
    Ok(())
}

/// Takes replies until all that were asked for are there.
fn read(stream: &TcpStream, flow: &Flow, number: u32, plan: &Plan, stop: &AtomicBool, tell: &Sender<Value>) -> Read1 {
    let began = now_ns();
    let mut found = Read1 { from_ns: began, to_ns: began, replies: 0, tcp: None, fault: None };
    let _ = stream.set_read_timeout(Some(LOOK.min(plan.timeout)));
    let mut replies = Replies { seq: 0, response: plan.response, head: [0; HEADER], filled: 0, left: 0 };
    let mut buffer = Piece::new();
    let mut row = Row { number, from_ns: began, replies: 0 };
    let mut moved = began;
    loop {
        if flow.ended.load(Relaxed) && replies.seq == flow.sent.load(Relaxed) {
            break;
        }
        match { stream }.read(&mut buffer) {
            Ok(0) => {
                found.fault = Some(Fault::closed("reply"));
                break;
            }
            Ok(n) => {
                moved = now_ns();
                if let Err(fault) = replies.take(&buffer[..n]) {
                    found.fault = Some(fault);
                    break;
                }
                found.to_ns = moved;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let waited = now_ns() - moved;
                if stop.load(Relaxed) {
                    break;
                }
                if waited >= plan.timeout.as_nanos() as i64 {
                    let text = format!("no reply to request {} within {:?}", replies.seq, plan.timeout);
                    found.fault = Some(Fault::new("reply", "timeout", text));
                    break;
                }
            }
            Err(e) => {
                found.fault = Some(Fault::io("reply", &e));
                break;
            }
        }
        if now_ns() - row.from_ns >= plan.interval.map_or(SECOND, |interval| interval.as_nanos() as i64) {
            row.hand_over(replies.seq, stream, tell);
        }
    }
    found.replies = replies.seq;
    if replies.seq > row.replies {
        row.hand_over(replies.seq, stream, tell);
    }
    found.tcp = TcpInfo::of(stream.as_raw_fd());
    found
}

/// What was counted when the last row was made.
struct Row {
    number: u32,
    from_ns: i64,
    replies: u64,
}

impl Row {
    fn hand_over(&mut self, replies: u64, stream: &TcpStream, tell: &Sender<Value>) {
        let to_ns = now_ns();
        let _ = tell.send(json!({
            "connection": self.number,
            "ts": to_ns,
            "duration_ns": to_ns - self.from_ns,
            "replies": replies - self.replies,
            "tcp": TcpInfo::of(stream.as_raw_fd()).map(|tcp| tcp.json()),
        }));
        (self.from_ns, self.replies) = (to_ns, replies);
    }
}

/// Replies in the order of their requests, from bytes in any pieces.
struct Replies {
    seq: u64,
    response: u32,
    head: [u8; HEADER],
    filled: usize,
    /// Payload to come.
    left: u64,
}

impl Replies {
    fn take(&mut self, mut bytes: &[u8]) -> Outcome<()> {
        while !bytes.is_empty() {
            if self.filled < HEADER {
                let n = bytes.len().min(HEADER - self.filled);
                self.head[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
                (self.filled, bytes) = (self.filled + n, &bytes[n..]);
                if self.filled < HEADER {
                    return Ok(());
                }
                if Header::parse(&self.head) != Some(Header { seq: self.seq, here: self.response, wanted: 0 }) {
                    return Err(Fault::protocol("reply", "the answer is not that of leadline net echo"));
                }
                self.left = u64::from(self.response);
            }
            let n = self.left.min(bytes.len() as u64);
            self.left -= n;
            bytes = &bytes[n as usize..];
            if self.left == 0 {
                (self.seq, self.filled) = (self.seq + 1, 0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Echo;
    use leadline_errors::Kind;
    use std::net::TcpListener;
    use std::time::Duration;

    fn plan() -> Plan {
        Plan {
            request: 1000,
            response: 0,
            connections: 1,
            duration: Duration::from_secs(60),
            most: Some(500),
            timeout: Duration::from_secs(20),
            rate_hz: None,
            interval: Some(Duration::from_secs(1)),
        }
    }

    #[test]
    fn every_request_arrives_and_what_is_counted_is_what_the_server_counts() {
        for (request, response, connections) in [(0, 0, 1), (1000, 0, 3), (0, 200_000, 2), (300_000, 300_000, 1)] {
            let mut server = Echo::start("127.0.0.1", 0).unwrap();
            let place = Place::new("127.0.0.1", server.address().port());
            let mut told = 0;
            let most = Plan { request, response, connections, ..plan() };
            let found =
                run(&place, &most, &AtomicBool::new(false), &mut |row| told += row["replies"].as_u64().unwrap());
            let found = found.unwrap();
            server.stop();
            let counts = server.counts();
            let all = 500 * u64::from(connections);
            assert_eq!((&found["requests"], &found["replies"], told), (&all.into(), &all.into(), all));
            assert_eq!(
                (&counts["bytes_in"], &counts["bytes_out"]),
                (&found["to_server_bytes"], &found["to_client_bytes"])
            );
            assert_eq!(found["to_server_bytes"], all * (20 + u64::from(request)));
            assert_eq!(found["faults"], json!([]));
        }
    }

    #[test]
    fn it_ends_with_the_time_and_when_it_is_stopped() {
        let server = Echo::start("127.0.0.1", 0).unwrap();
        let place = Place::new("127.0.0.1", server.address().port());
        let short = Plan { most: None, duration: Duration::from_millis(50), ..plan() };
        let found = run(&place, &short, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert!(found["replies"].as_u64() > Some(0) && found["replies"] == found["requests"]);
        let stopped = run(&place, &Plan { most: None, ..plan() }, &AtomicBool::new(true), &mut |_| {}).unwrap();
        assert_eq!(stopped["requests"], 0);
    }

    #[test]
    fn garbage_silence_and_an_early_end_are_one_error_each() {
        let with_server = |serve: fn(TcpStream), timeout_ms| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let place = Place::new("127.0.0.1", listener.local_addr().unwrap().port());
            let server = thread::spawn(move || serve(listener.accept().unwrap().0));
            let plan = Plan { timeout: Duration::from_millis(timeout_ms), ..plan() };
            let error = run(&place, &plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
            server.join().unwrap();
            error
        };
        let garbage = with_server(
            |mut stream| {
                let _ = { &stream }.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                let _ = stream.read_to_end(&mut Vec::new());
            },
            20_000,
        );
        assert_eq!(garbage.message, "the server does not speak this protocol");
        let silent = with_server(|mut stream| drop(stream.read_to_end(&mut Vec::new())), 150);
        assert_eq!(silent.message, "no answer in time");
        let closed = with_server(|mut stream| drop(stream.read(&mut [0; 64])), 20_000);
        assert_eq!(closed.kind, Kind::Connection);
    }

    #[test]
    fn replies_in_any_pieces_are_as_many() {
        let mut bytes = Vec::new();
        for seq in 0..5 {
            let mut head = [0; HEADER];
            Header { seq, here: 7, wanted: 0 }.put(&mut head);
            bytes.extend_from_slice(&head);
            bytes.extend_from_slice(b"payload");
        }
        for piece in [1, 3, 27, 28, 1000] {
            let mut replies = Replies { seq: 0, response: 7, head: [0; HEADER], filled: 0, left: 0 };
            bytes.chunks(piece).for_each(|chunk| replies.take(chunk).unwrap());
            assert_eq!((replies.seq, replies.filled), (5, 0), "{piece}");
        }
        let mut other = Replies { seq: 1, response: 7, head: [0; HEADER], filled: 0, left: 0 };
        assert!(other.take(&bytes).is_err(), "another number");
    }
}

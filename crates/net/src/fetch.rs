//! `net fetch`: the rows of a query, a number of them with each round trip.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::Relaxed};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use leadline_sockdiag::Diag;
use serde_json::{json, Value};

use crate::clock::now_ns;
use crate::fault::Outcome;
use crate::postgres::Session;

/// How often the server's send queue is looked at.
const LOOK: Duration = Duration::from_micros(500);

/// The server's socket of a connection: its own address and that of its peer.
pub type ServerSocket = (SocketAddr, SocketAddr);

/// Reads a query to its end with `rows` rows for each Execute (0: all at once), in a transaction that is rolled back.
pub fn run(
    session: &mut Session,
    sql: &str,
    rows: u32,
    server: Option<ServerSocket>,
    stop: &AtomicBool,
) -> Outcome<Value> {
    let (over, peak, looks) = (AtomicBool::new(false), AtomicI64::new(0), AtomicU32::new(0));
    let begun = Barrier::new(2);
    let diag = server.and_then(|socket| Some((Diag::open().ok()?, socket)));
    thread::scope(|scope| {
        if let Some((mut diag, (local, remote))) = diag {
            let (over, peak, looks, begun) = (&over, &peak, &looks, &begun);
            scope.spawn(move || {
                let mut look = || {
                    if let Some(socket) = diag.one(local, remote) {
                        peak.fetch_max(socket.send_queue, Relaxed);
                        looks.fetch_add(1, Relaxed);
                    }
                };
                look();
                begun.wait();
                while !over.load(Relaxed) {
                    look();
                    thread::sleep(LOOK);
                }
            });
            begun.wait();
        }
        let found = read(session, sql, rows, stop);
        over.store(true, Relaxed);
        found
    })
    .map(|mut found| {
        let looks = looks.load(Relaxed);
        found["send_queue_looks"] = looks.into();
        found["peak_send_queue_bytes"] = (looks > 0).then(|| peak.load(Relaxed)).into();
        found
    })
}

fn read(session: &mut Session, sql: &str, rows: u32, stop: &AtomicBool) -> Outcome<Value> {
    let (began, before) = (now_ns(), (session.link.sent, session.link.received));
    session.open_portal(sql)?;
    let (mut count, mut row_bytes, mut executes) = (0_u64, 0_u64, 0_u64);
    let mut suspended = true;
    while suspended && !stop.load(Relaxed) {
        suspended = false;
        executes += 1;
        let fetched = session.fetch(rows, &mut |kind, length| {
            match kind {
                b'D' => {
                    count += 1;
                    row_bytes += length as u64 + 5;
                }
                b's' => suspended = true,
                _ => {}
            }
            !stop.load(Relaxed)
        });
        match fetched {
            Err(fault) if fault.cause == "interrupted" => suspended = true,
            other => {
                other?;
            }
        }
    }
    let took = now_ns() - began;
    if !stop.load(Relaxed) {
        session.query("ROLLBACK")?;
    }
    Ok(json!({
        "rows_per_fetch": rows,
        "time_ns": took,
        "rows": count,
        "row_bytes": row_bytes,
        "sent_bytes": session.link.sent - before.0,
        "received_bytes": session.link.received - before.1,
        "round_trips": executes + 1, // the first one begins the portal
        "complete": !suspended,
    }))
}

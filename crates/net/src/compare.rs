//! `net compare`: ICMP echo, the handshake of TCP, and a round trip of an application, in turns.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde_json::{json, Value};

use crate::address::{connect, resolve, Address, Place, Socket};
use crate::fault::{Fault, Outcome};
use crate::icmp::Pinger;
use crate::postgres::ask_for_tls;
use crate::rtt::Line;
use leadline_histogram::Times;

/// What answers at the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Application {
    /// `net echo`.
    Echo,
    /// PostgreSQL, asked whether it speaks TLS.
    Postgres,
    /// Not known.
    None,
}

/// One way to measure.
struct Way<'a> {
    name: &'static str,
    once: Box<dyn FnMut() -> Outcome<i64> + 'a>,
    first_ns: Option<i64>,
    rest: Times,
    failed: u64,
    fault: Option<Fault>,
}

/// Measures each way `count` times, in turns, so that all meet the same network.
///
/// # Errors
/// Where the name has no address. What one way cannot do is said in its row.
pub fn run(
    place: &Place,
    application: Application,
    count: u32,
    pause: Duration,
    timeout: Duration,
    stop: &AtomicBool,
) -> Outcome<Value> {
    let (addresses, _) = resolve(place, timeout)?;
    let mut ways = vec![icmp(&addresses, timeout), way("tcp handshake", || Ok(connect(&addresses, timeout, None)?.2))];
    match application {
        Application::Echo => ways.push(echo(&addresses, timeout, stop)),
        Application::Postgres => ways.push(way("postgres round trip", || Ok(ask_for_tls(place, timeout)?.0))),
        Application::None => {}
    }
    for _ in 0..count {
        if stop.load(Relaxed) {
            break;
        }
        for way in &mut ways {
            match (way.once)() {
                Ok(ns) if way.first_ns.is_none() => way.first_ns = Some(ns),
                Ok(ns) => way.rest.record(ns),
                Err(fault) => {
                    way.failed += 1;
                    way.fault.get_or_insert(fault);
                }
            }
            // What never worked will not: do not wait for it again and again.
            if way.first_ns.is_none() && way.failed > 0 {
                let fault = way.fault.clone().unwrap_or_else(|| Fault::closed("compare"));
                way.once = Box::new(move || Err(fault.clone()));
            }
        }
        thread::sleep(pause);
    }
    let rows: Vec<Value> = ways.iter().map(Way::json).collect();
    Ok(json!({ "address": addresses.first().map(ToString::to_string), "count": count, "rows": rows }))
}

fn way<'a>(name: &'static str, once: impl FnMut() -> Outcome<i64> + 'a) -> Way<'a> {
    Way { name, once: Box::new(once), first_ns: None, rest: Times::new(), failed: 0, fault: None }
}

fn icmp<'a>(addresses: &[Address], timeout: Duration) -> Way<'a> {
    let opened = match addresses.first() {
        Some(Address::Tcp(address)) => Pinger::open(address.ip()),
        _ => Err(Fault::new("icmp", "unsupported", "a unix socket is no host")),
    };
    match opened {
        Ok(mut pinger) => way("icmp echo", move || pinger.ping(timeout)),
        Err(fault) => way("icmp echo", move || Err(fault.clone())),
    }
}

/// On one connection, as an application does it.
fn echo<'a>(addresses: &[Address], timeout: Duration, stop: &'a AtomicBool) -> Way<'a> {
    let line = connect(addresses, timeout, None).and_then(|(socket, ..)| match socket {
        Socket::Tcp(stream) => Ok(Line::new(stream, (0, 0), timeout, stop)),
        Socket::Unix(_) => Err(Fault::new("connect", "unsupported", "round trips are measured over TCP")),
    });
    match line {
        Ok(mut line) => way("echo round trip", move || line.round_trip()),
        Err(fault) => way("echo round trip", move || Err(fault.clone())),
    }
}

impl Way<'_> {
    fn json(&self) -> Value {
        let mut row = self.rest.summary();
        row["way"] = self.name.into();
        row["first_ns"] = self.first_ns.into();
        row["failed"] = self.failed.into();
        row["fault"] = self.fault.as_ref().map(Fault::json).into();
        row
    }
}

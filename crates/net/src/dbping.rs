//! `net dbping`: each phase of a connection to a database, many times.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{json, Value};

use crate::address::{connect, resolve, Place};
use crate::fault::Outcome;
use crate::first_answer::{self, Answer};
use crate::mysql;
use crate::postgres::{ask_for_tls, Login, Session};
use leadline_histogram::Times;

/// How often.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Connections, one after the other.
    pub connects: u32,
    /// Round trips of each kind, on the last connection.
    pub pings: u32,
}

/// Times of a phase; the first one apart, since it pays for what was not there yet.
struct Phase {
    name: &'static str,
    first_ns: Option<i64>,
    rest: Times,
}

impl Phase {
    fn new(name: &'static str) -> Phase {
        Phase { name, first_ns: None, rest: Times::new() }
    }

    fn add(&mut self, ns: i64) {
        match self.first_ns {
            None => self.first_ns = Some(ns),
            Some(_) => self.rest.record(ns),
        }
    }

    fn json(&self) -> Value {
        let mut row = self.rest.summary();
        row["phase"] = self.name.into();
        row["first_ns"] = self.first_ns.into();
        row
    }
}

fn repeat(name: &'static str, times: u32, stop: &AtomicBool, mut once: impl FnMut() -> Outcome<i64>) -> Outcome<Phase> {
    let mut phase = Phase::new(name);
    for _ in 0..times {
        if stop.load(Relaxed) {
            break;
        }
        phase.add(once()?);
    }
    Ok(phase)
}

fn outcome(protocol: &str, phases: &[Phase], about: Value) -> Value {
    let phases: Vec<Value> = phases.iter().filter(|phase| phase.first_ns.is_some()).map(Phase::json).collect();
    json!({ "protocol": protocol, "phases": phases, "about": about })
}

/// A PostgreSQL server.
pub fn postgres(login: &Login, plan: Plan, stop: &AtomicBool) -> Outcome<Value> {
    let names = ["resolve", "connect", "tls", "login"];
    let mut phases: Vec<Phase> = names.into_iter().map(Phase::new).collect();
    let mut last = None;
    for _ in 0..plan.connects.max(1) {
        if stop.load(Relaxed) {
            break;
        }
        let (session, took) = Session::open(login)?;
        let times = [Some(took.resolve_ns), Some(took.connect_ns), took.tls_ns, Some(took.login_ns)];
        phases.iter_mut().zip(times).filter_map(|(phase, ns)| Some((phase, ns?))).for_each(|(phase, ns)| phase.add(ns));
        if let Some((before, _)) = last.replace((session, took)) {
            Session::close(before);
        }
    }
    let Some((mut session, took)) = last else { return Ok(outcome("postgres", &phases, Value::Null)) };
    phases.push(repeat("ping", plan.pings, stop, || session.ping())?);
    phases.push(repeat("prepare", 1, stop, || session.prepare())?);
    phases.push(repeat("execute", plan.pings, stop, || session.execute())?);
    session.close();
    Ok(outcome("postgres", &phases, took.json()))
}

/// A PostgreSQL server to which nobody logs in: the question for TLS is a round trip, of the process that the server starts for us.
pub fn postgres_without_login(place: &Place, plan: Plan, timeout: Duration, stop: &AtomicBool) -> Outcome<Value> {
    let mut phases = tcp_phases(place, plan, timeout, stop)?;
    let mut speaks_tls = false;
    let asked = repeat("ask for tls", plan.connects, stop, || {
        let (took, yes) = ask_for_tls(place, timeout)?;
        speaks_tls = yes;
        Ok(took)
    })?;
    phases.push(asked);
    Ok(outcome("postgres", &phases, json!({ "server_speaks_tls": speaks_tls })))
}

/// A SQL Server or an Oracle listener to which nobody logs in. name: of the phase in which it answers.
fn without_login(
    protocol: &str,
    name: &'static str,
    place: &Place,
    plan: Plan,
    timeout: Duration,
    stop: &AtomicBool,
    ask: fn(&Place, Duration) -> Outcome<Answer>,
) -> Outcome<Value> {
    let mut phases = tcp_phases(place, plan, timeout, stop)?;
    let mut about = Value::Null;
    let asked = repeat(name, plan.connects, stop, || {
        let (took, said) = ask(place, timeout)?;
        about = said;
        Ok(took)
    })?;
    phases.push(asked);
    Ok(outcome(protocol, &phases, about))
}

/// A SQL Server.
pub fn tds(place: &Place, plan: Plan, timeout: Duration, stop: &AtomicBool) -> Outcome<Value> {
    without_login("tds", "prelogin", place, plan, timeout, stop, first_answer::tds)
}

/// An Oracle listener.
pub fn oracle(place: &Place, plan: Plan, timeout: Duration, stop: &AtomicBool) -> Outcome<Value> {
    without_login("oracle", "listener", place, plan, timeout, stop, first_answer::oracle)
}

/// Any server: the look-up and the handshake of TCP.
pub fn tcp(place: &Place, plan: Plan, timeout: Duration, stop: &AtomicBool) -> Outcome<Value> {
    Ok(outcome("tcp", &tcp_phases(place, plan, timeout, stop)?, Value::Null))
}

fn tcp_phases(place: &Place, plan: Plan, timeout: Duration, stop: &AtomicBool) -> Outcome<Vec<Phase>> {
    let mut addresses = Vec::new();
    let resolved = repeat("resolve", plan.connects, stop, || {
        let (found, took) = resolve(place, timeout)?;
        addresses = found;
        Ok(took)
    })?;
    let connected = repeat("connect", plan.connects, stop, || Ok(connect(&addresses, timeout, None)?.2))?;
    Ok(vec![resolved, connected])
}

/// A MySQL or MariaDB server.
pub fn mysql(login: &Login, plan: Plan, stop: &AtomicBool) -> Outcome<Value> {
    let names = ["resolve", "connect", "greeting", "tls", "login"];
    let mut phases: Vec<Phase> = names.into_iter().map(Phase::new).collect();
    let mut last = None;
    for _ in 0..plan.connects.max(1) {
        if stop.load(Relaxed) {
            break;
        }
        let (session, took) = mysql::Session::open(login)?;
        let times =
            [Some(took.resolve_ns), Some(took.connect_ns), Some(took.greeting_ns), took.tls_ns, Some(took.login_ns)];
        phases.iter_mut().zip(times).filter_map(|(phase, ns)| Some((phase, ns?))).for_each(|(phase, ns)| phase.add(ns));
        if let Some((before, _)) = last.replace((session, took)) {
            mysql::Session::close(before);
        }
    }
    let Some((mut session, took)) = last else { return Ok(outcome("mysql", &phases, Value::Null)) };
    phases.push(repeat("ping", plan.pings, stop, || session.ping())?);
    phases.push(repeat("prepare", 1, stop, || session.prepare())?);
    phases.push(repeat("execute", plan.pings, stop, || session.execute())?);
    session.close();
    Ok(outcome("mysql", &phases, took.json()))
}

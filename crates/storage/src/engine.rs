//! The events of a simulated run: requests become parts, parts become operations of drives, and what has ended begins what waited for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};

use leadline_errors::{Error, Kind, Result};
use serde_json::{json, Value};

use crate::array::Array;
use crate::cache::Blocked;
use crate::drive::{Op, Waiting};
use crate::raid::Part;
use crate::results::{RequestKind, Results};
use crate::trace::{Replay, TraceRow};

mod clients;

pub(crate) use clients::Clients;

/// Between two looks at whether the run is to stop.
const LOOK_EVERY: u64 = 4096;

/// Whose request it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    Client(usize),
    /// A write that this client does not wait for.
    Background(usize),
    /// A write of the log of this object.
    Log(usize),
    Destage {
        group: usize,
    },
    Trace(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub owner: Owner,
    pub kind: RequestKind,
    pub since: u64,
    pub bytes: u64,
    /// Parts that have not ended.
    left: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Ended { waiting: Waiting, frees: Option<usize> },
    Free { drive: usize, lane: usize },
    Request(usize),
    Client(usize),
    Arrival,
    Trace(usize),
    Counting,
}

#[derive(Debug)]
struct Timed(u64, u64, Event);

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        self.1 == other.1
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// A slab: values by number, numbers used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: Vec<T>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab { values: Vec::new(), free: Vec::new() }
    }

    pub fn put(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.values[at] = value;
                at
            }
            None => {
                self.values.push(value);
                self.values.len() - 1
            }
        }
    }

    pub fn release(&mut self, at: usize) {
        self.free.push(at);
    }

    pub fn used(&self) -> usize {
        self.values.len() - self.free.len()
    }
}

impl<T> std::ops::Index<usize> for Slab<T> {
    type Output = T;
    fn index(&self, at: usize) -> &T {
        &self.values[at]
    }
}
impl<T> std::ops::IndexMut<usize> for Slab<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.values[at]
    }
}

#[derive(Debug)]
struct PartState {
    request: usize,
    left: usize,
    writes: Vec<Op>,
}

/// A trace on its way through.
pub(crate) struct Traced<'a> {
    pub rows: &'a [TraceRow],
    /// Group and first byte there of each row.
    pub places: Vec<(usize, u64)>,
    pub replay: Replay,
}

pub(crate) struct Run<'a> {
    pub array: Array,
    pub clients: Clients,
    pub traced: Option<Traced<'a>>,
    pub results: Results,
    pub now: u64,
    /// When counting began.
    counted_from: u64,
    events: BinaryHeap<Reverse<Timed>>,
    order: u64,
    pub handled: u64,
    requests: Slab<Request>,
    parts: Slab<PartState>,
    /// Requests that were issued and that ended, of all, not only of the counted.
    pub issued: u64,
    pub ended: u64,
}

impl<'a> Run<'a> {
    pub fn new(array: Array, clients: Clients, traced: Option<Traced<'a>>) -> Run<'a> {
        Run {
            array,
            clients,
            traced,
            results: Results::new(),
            now: 0,
            counted_from: 0,
            events: BinaryHeap::new(),
            order: 0,
            handled: 0,
            requests: Slab::new(),
            parts: Slab::new(),
            issued: 0,
            ended: 0,
        }
    }

    pub fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Timed(time.max(self.now), self.order, event)));
    }

    /// Until `end`, or until nothing more happens, or it is to stop.
    pub fn run(&mut self, end: u64, stop: &AtomicBool) -> Result<()> {
        let mut stopped = false;
        while !stopped && self.events.peek().is_some_and(|Reverse(Timed(time, ..))| *time <= end) {
            let Some(Reverse(Timed(time, _, event))) = self.events.pop() else { break };
            self.now = time;
            self.handled += 1;
            self.handle(event)?;
            stopped = self.handled.is_multiple_of(LOOK_EVERY) && stop.load(Ordering::Relaxed);
        }
        if self.traced.is_none() && !stopped {
            self.now = end;
        }
        self.array.drives.iter_mut().for_each(|drive| drive.pass(self.now));
        self.check()
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Ended { waiting, frees } => {
                let drive = waiting.op.drive;
                self.array.drives[drive].end(self.now, waiting.since.max(self.counted_from), &waiting.op);
                if let Some(lane) = frees {
                    self.array.drives[drive].free(self.now, lane);
                }
                self.part_has_ended(waiting.part);
                if let Some(lane) = frees {
                    self.begin(drive, lane);
                }
            }
            Event::Free { drive, lane } => {
                self.array.drives[drive].free(self.now, lane);
                self.begin(drive, lane);
            }
            Event::Request(request) => self.request_has_ended(request),
            Event::Client(client) => self.advance(client),
            Event::Arrival => self.arrive()?,
            Event::Trace(row) => self.issue_traced(row),
            Event::Counting => {
                self.counted_from = self.now;
                self.results = Results::new();
                self.array.drives.iter_mut().for_each(|drive| drive.restart(self.now));
            }
        }
        Ok(())
    }

    /// Issues a request to a range of a group. `thread`: who asks.
    pub fn submit(&mut self, group: usize, at: u64, bytes: u64, kind: RequestKind, owner: Owner, thread: usize) {
        self.issued += 1;
        let request = self.requests.put(Request { owner, kind, since: self.now, bytes, left: 0 });
        let write = kind != RequestKind::Read;
        if let Some(cache) = &mut self.array.groups[group].cache {
            let latency = cache.latency_ns;
            if !write && cache.has(at, bytes) {
                return self.at(self.now + latency, Event::Request(request));
            }
            if write && cache.holds(at, bytes) {
                if cache.blocked.is_empty() && cache.take(at, bytes) {
                    self.at(self.now + latency, Event::Request(request));
                } else {
                    cache.blocked.push_back(Blocked { request, at, bytes });
                }
                return self.destage(group);
            }
        }
        self.issue(group, at, bytes, write, request, thread);
    }

    fn destage(&mut self, group: usize) {
        while let Some((at, bytes)) = self.array.groups[group].cache.as_mut().and_then(|cache| cache.destage()) {
            let owner = Owner::Destage { group };
            let request =
                self.requests.put(Request { owner, kind: RequestKind::Write, since: self.now, bytes, left: 0 });
            self.issue(group, at, bytes, true, request, 0);
        }
    }

    fn issue(&mut self, group: usize, at: u64, bytes: u64, write: bool, request: usize, thread: usize) {
        let drives = &self.array.drives;
        let raid = &mut self.array.groups[group].raid;
        let parts = match write {
            true => raid.write(at, bytes),
            false => vec![raid.read(at, bytes, thread, &|drive| drives[drive].inside)],
        };
        self.requests[request].left = parts.len();
        for Part { reads, writes } in parts {
            let part = self.parts.put(PartState { request, left: 0, writes });
            self.operate(part, reads);
        }
    }

    /// Gives a phase of a part to the drives; an empty one is passed over.
    fn operate(&mut self, part: usize, ops: Vec<Op>) {
        let ops = if ops.is_empty() { std::mem::take(&mut self.parts[part].writes) } else { ops };
        self.parts[part].left = ops.len();
        for op in ops {
            let lane = self.array.drives[op.drive].put(self.now, Waiting { op, part, since: self.now });
            self.begin(op.drive, lane);
        }
    }

    fn begin(&mut self, drive: usize, lane: usize) {
        while let Some(begun) = self.array.drives[drive].begin(self.now, lane) {
            let together = begun.ends == begun.frees;
            self.at(begun.ends, Event::Ended { waiting: begun.waiting, frees: together.then_some(lane) });
            if !together {
                self.at(begun.frees, Event::Free { drive, lane });
            }
        }
    }

    fn part_has_ended(&mut self, part: usize) {
        let state = &mut self.parts[part];
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        if !state.writes.is_empty() {
            return self.operate(part, Vec::new());
        }
        let request = state.request;
        self.parts.release(part);
        self.requests[request].left -= 1;
        if self.requests[request].left == 0 {
            self.request_has_ended(request);
        }
    }

    fn request_has_ended(&mut self, request: usize) {
        let Request { owner, kind, since, bytes, .. } = self.requests[request];
        self.requests.release(request);
        if let Owner::Destage { group } = owner {
            let cache = self.array.groups[group].cache.as_mut().expect("only a cache destages");
            cache.destaged(bytes);
            let latency = cache.latency_ns;
            while let Some(blocked) = self.array.groups[group].cache.as_mut().and_then(|cache| cache.unblock()) {
                self.at(self.now + latency, Event::Request(blocked.request));
            }
            return self.destage(group);
        }
        self.ended += 1;
        // The log counts who waits for it, not its writes.
        if !matches!(owner, Owner::Log(_)) {
            self.results.request(kind, self.now - since, bytes);
        }
        match owner {
            Owner::Client(client) => self.advance(client),
            Owner::Background(client) => self.background_has_ended(client),
            Owner::Log(object) => self.log_has_ended(object),
            Owner::Trace(row) => self.traced_has_ended(row),
            Owner::Destage { .. } => {}
        }
    }

    /// What a law says of every run: requests in the drives times how long, and how long each was there, are the same.
    fn check(&self) -> Result<()> {
        let mut stay = vec![0.0; self.array.drives.len()];
        let mut add =
            |waiting: &Waiting| stay[waiting.op.drive] += (self.now - waiting.since.max(self.counted_from)) as f64;
        for Reverse(Timed(_, _, event)) in &self.events {
            if let Event::Ended { waiting, .. } = event {
                add(waiting);
            }
        }
        self.array.drives.iter().for_each(|drive| drive.queued().for_each(&mut add));
        for (drive, stay) in self.array.drives.iter().zip(stay) {
            let (one, other) = (drive.counts.inside_ns, drive.counts.stayed_ns + stay);
            if (one - other).abs() > 1e-6 * one.max(1e6) {
                return Err(Error::new(Kind::Fault, "internal error: the simulated queue of a drive does not add up")
                    .detail(format!("{one} ns of requests inside, {other} ns of stays"))
                    .hint("please report this as a bug, with the files"));
            }
        }
        Ok(())
    }

    pub fn requests_under_way(&self) -> usize {
        self.requests.used()
    }

    pub fn as_json(&self) -> Value {
        let seconds = (self.now - self.counted_from) as f64 / 1e9;
        let mut out = self.results.as_json(seconds);
        let drives: Vec<Value> = (0..self.array.drives.len()).map(|n| self.drive_json(n, seconds)).collect();
        out["drives"] = Value::Array(drives);
        out["events"] = json!(self.handled);
        out["under_way"] = json!(self.requests_under_way());
        out
    }

    fn drive_json(&self, n: usize, seconds: f64) -> Value {
        let (drive, (group, number)) = (&self.array.drives[n], &self.array.names[n]);
        let (counts, ns) = (&drive.counts, seconds * 1e9);
        let share = |value: f64, of: f64| if of > 0.0 { value / of } else { 0.0 };
        json!({
            "group": group,
            "drive": number,
            "reads_per_s": share(counts.reads as f64, seconds),
            "writes_per_s": share(counts.writes as f64, seconds),
            "mb_per_s": share(counts.bytes as f64 / 1e6, seconds),
            "utilisation": if ns > 0.0 { drive.utilisation(ns) } else { 0.0 },
            "queue": share(counts.inside_ns, ns),
            "most_queued": counts.most,
            "response_ms": share(counts.stayed_ns, counts.ended as f64) / 1e6,
        })
    }
}

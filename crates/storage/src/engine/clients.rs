//! Who makes the requests: clients that run transactions of steps, logs that write together what is committed together, and a trace.

use leadline_errors::{Error, Kind, Result};

use super::{Event, Owner, Run, Slab};
use crate::array::{Array, Extent};
use crate::layout::{Load, Pattern, Step, StepOp, KB};
use crate::random::Random;
use crate::results::RequestKind;

/// A log writes no more than this at a time.
const LONGEST_LOG_WRITE: u64 = 1 << 20;
/// More transactions of an open loop do not wait.
const MOST_WAITING: usize = 1_000_000;

#[derive(Debug)]
struct Client {
    step: usize,
    /// How often the step is still to be taken.
    left: u64,
    began: u64,
    /// Writes under way that it does not wait for.
    background: usize,
    /// It waits until one of these has ended.
    blocked: bool,
    /// A transaction of an open loop that has ended; its background writes have not.
    gone: bool,
    /// Which client it is of those that there are: of threads its number.
    number: usize,
    /// Next place in each object, in requests.
    cursors: Vec<u64>,
}

/// The end of an object to which commits are written.
#[derive(Debug, Default)]
struct Log {
    extent: usize,
    at: u64,
    /// Who waits for the write under way, and who for the next one; since when.
    writing: Vec<(usize, u64)>,
    waiting: Vec<(usize, u64)>,
    waiting_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Clients {
    load: Option<Load>,
    /// Object of each step, and extents of each object.
    object_of: Vec<usize>,
    extents: Vec<Vec<Extent>>,
    logs: Vec<Log>,
    clients: Slab<Client>,
    arrived: usize,
    random: Random,
}

impl Clients {
    pub fn none() -> Clients {
        let random = Random::new(0, 0);
        Clients {
            load: None,
            object_of: vec![],
            extents: vec![],
            logs: vec![],
            clients: Slab::new(),
            arrived: 0,
            random,
        }
    }

    pub fn new(load: &Load, array: &Array, layout: &str, seed: u64) -> Result<Clients> {
        let (mut names, mut object_of, mut extents): (Vec<&str>, Vec<usize>, Vec<Vec<Extent>>) =
            (vec![], vec![], vec![]);
        for step in &load.steps {
            let on = array.objects.get(&step.object).ok_or_else(|| {
                Error::new(
                    Kind::Invalid,
                    format!("load {} uses {}, which layout {layout} does not place", load.name, step.object),
                )
                .hint(format!("add it to [place] of the layout: {} = [\"lun\"]", step.object))
            })?;
            if on.iter().any(|extent| extent.bytes < step.kb * KB) {
                return Err(Error::new(
                    Kind::Invalid,
                    format!("{} is smaller than a request of load {}", step.object, load.name),
                )
                .detail(format!("a LUN of layout {layout} has less than {} kB of it", step.kb)));
            }
            let known = names.iter().position(|name| *name == step.object);
            object_of.push(known.unwrap_or_else(|| {
                names.push(&step.object);
                extents.push(on.clone());
                names.len() - 1
            }));
        }
        let logs = extents.iter().map(|_| Log::default()).collect();
        let random = Random::new(seed, 1);
        Ok(Clients { load: Some(load.clone()), object_of, extents, logs, clients: Slab::new(), arrived: 0, random })
    }

    fn add(&mut self, now: u64) -> usize {
        let number = self.arrived;
        self.arrived += 1;
        // Sequential readers of one LUN begin at different places of it.
        let spread = |extents: &Vec<Extent>| (number / extents.len()) as u64 * 0x9e37_79b9;
        let cursors = self.extents.iter().map(spread).collect();
        self.clients.put(Client {
            step: 0,
            left: 0,
            began: now,
            background: 0,
            blocked: false,
            gone: false,
            number,
            cursors,
        })
    }

    /// Where a step goes next.
    fn target(&mut self, client: usize, step: &Step, object: usize) -> (usize, u64, u64) {
        let bytes = step.kb * KB;
        let (extents, client) = (&self.extents[object], &mut self.clients[client]);
        let extent = match step.pattern {
            Pattern::Random => extents[self.random.below(extents.len() as u64) as usize],
            Pattern::Sequential => extents[client.number % extents.len()],
        };
        let slots = extent.bytes / bytes;
        let slot = match step.pattern {
            Pattern::Random => self.random.below(slots),
            Pattern::Sequential => {
                let cursor = &mut client.cursors[object];
                *cursor = cursor.wrapping_add(1);
                *cursor % slots
            }
        };
        (extent.group, extent.at + slot * bytes, bytes)
    }
}

impl Run<'_> {
    /// Begins the load.
    pub fn start(&mut self) {
        let Some(load) = &self.clients.load else { return };
        match load.rate_per_s {
            Some(_) => self.next_arrival(),
            None => {
                let (threads, think) = (load.threads, load.think_ms);
                for _ in 0..threads {
                    let client = self.clients.add(0);
                    // Not all at the same moment, where there are moments.
                    let at = (self.clients.random.share() * think * 1e6) as u64;
                    self.at(at, Event::Client(client));
                }
            }
        }
    }

    fn next_arrival(&mut self) {
        let rate = self.clients.load.as_ref().and_then(|load| load.rate_per_s).unwrap_or(1.0);
        let gap = self.clients.random.gap_ns(rate);
        self.at(self.now + gap, Event::Arrival);
    }

    pub fn arrive(&mut self) -> Result<()> {
        if self.clients.clients.used() >= MOST_WAITING {
            let load = self.clients.load.as_ref().map_or("", |load| load.name.as_str());
            return Err(Error::new(Kind::Invalid, format!("the layout does not carry load {load}"))
                .detail(format!("{MOST_WAITING} transactions wait after {:.0} s", self.now as f64 / 1e9))
                .hint("a lower rate_per_s, or threads instead of a rate"));
        }
        self.next_arrival();
        let client = self.clients.add(self.now);
        self.advance(client);
        Ok(())
    }

    /// A client does what is next, until it has to wait.
    pub fn advance(&mut self, client: usize) {
        loop {
            let clients = &mut self.clients;
            let load = clients.load.as_ref().expect("clients have a load");
            let state = &mut clients.clients[client];
            if state.left == 0 {
                if state.step == load.steps.len() {
                    if self.transaction_has_ended(client) {
                        return;
                    }
                    continue;
                }
                state.left = clients.random.count(load.steps[state.step].count);
                state.step += 1;
                continue;
            }
            let step = load.steps[state.step - 1].clone();
            let object = clients.object_of[state.step - 1];
            if step.background && state.background >= load.background_writes {
                state.blocked = true;
                return;
            }
            state.left -= 1;
            if step.op == StepOp::Commit {
                self.commit(client, object, step.kb * KB);
                return;
            }
            let owner = match step.background {
                true => {
                    state.background += 1;
                    Owner::Background(client)
                }
                false => Owner::Client(client),
            };
            let thread = state.number;
            let kind = if step.op == StepOp::Read { RequestKind::Read } else { RequestKind::Write };
            let (group, at, bytes) = self.clients.target(client, &step, object);
            self.submit(group, at, bytes, kind, owner, thread);
            if !step.background {
                return;
            }
        }
    }

    /// Whether the client has nothing to do now.
    fn transaction_has_ended(&mut self, client: usize) -> bool {
        let load = self.clients.load.as_ref().expect("clients have a load");
        let (rows, open, think) = (load.rows, load.rate_per_s.is_some(), (load.think_ms * 1e6) as u64);
        let state = &mut self.clients.clients[client];
        self.results.transaction(self.now - state.began, rows);
        (state.step, state.began) = (0, self.now + think);
        if open {
            state.gone = true;
            if state.background == 0 {
                self.clients.clients.release(client);
            }
        } else if think > 0 {
            self.at(self.now + think, Event::Client(client));
        }
        open || think > 0
    }

    pub fn background_has_ended(&mut self, client: usize) {
        let state = &mut self.clients.clients[client];
        state.background -= 1;
        if state.gone {
            if state.background == 0 {
                self.clients.clients.release(client);
            }
        } else if state.blocked {
            state.blocked = false;
            self.advance(client);
        }
    }

    fn commit(&mut self, client: usize, object: usize, bytes: u64) {
        let now = self.now;
        let log = &mut self.clients.logs[object];
        log.waiting.push((client, now));
        log.waiting_bytes += bytes;
        if log.writing.is_empty() {
            self.write_log(object);
        }
    }

    /// Writes what waits, all of it together.
    fn write_log(&mut self, object: usize) {
        let log = &mut self.clients.logs[object];
        let extents = &self.clients.extents[object];
        log.writing = std::mem::take(&mut log.waiting);
        let bytes = std::mem::take(&mut log.waiting_bytes).min(LONGEST_LOG_WRITE);
        let mut extent = extents[log.extent];
        let bytes = bytes.min(extent.bytes);
        if log.at + bytes > extent.bytes {
            (log.extent, log.at) = ((log.extent + 1) % extents.len(), 0);
            extent = extents[log.extent];
        }
        let at = extent.at + log.at;
        log.at += bytes;
        let bytes = bytes.min(extent.bytes);
        self.submit(extent.group, at, bytes, RequestKind::Commit, Owner::Log(object), 0);
    }

    pub fn log_has_ended(&mut self, object: usize) {
        let done = std::mem::take(&mut self.clients.logs[object].writing);
        if !self.clients.logs[object].waiting.is_empty() {
            self.write_log(object);
        }
        for (client, since) in done {
            self.results.request(RequestKind::Commit, self.now - since, 0);
            self.advance(client);
        }
    }

    /// Plans the rows of a trace that can be planned now.
    pub fn plan_traced(&mut self, thread: usize) {
        let mut due = Vec::new();
        if let Some(traced) = &mut self.traced {
            traced.replay.due(thread, &mut due);
        }
        for (time, row) in due {
            self.at(time, Event::Trace(row));
        }
    }

    pub fn issue_traced(&mut self, row: usize) {
        let Some(traced) = &self.traced else { return };
        let (of, (group, at)) = (&traced.rows[row], traced.places[row]);
        let kind = if of.write { RequestKind::Write } else { RequestKind::Read };
        let (bytes, thread) = (of.bytes, traced.replay.thread_of(row));
        self.submit(group, at, bytes, kind, Owner::Trace(row), thread);
    }

    pub fn traced_has_ended(&mut self, row: usize) {
        let now = self.now;
        let Some(traced) = &mut self.traced else { return };
        traced.replay.ended(row, now);
        let thread = traced.replay.thread_of(row);
        self.plan_traced(thread);
    }
}

//! Drives: how long one takes for a request, and which of the waiting ones it takes next.

use std::collections::VecDeque;

use leadline_errors::Result;

use crate::layout::{DriveSpec, Order, KB};
use crate::seek::Seek;

/// A request that waited so long is taken next, whatever the order.
const STARVED_NS: u64 = 1_000_000_000;
/// Of the buffer of a disk: reads that are followed, and how fast it is read.
const SEGMENTS: usize = 16;
const INTERFACE_BYTES_PER_NS: f64 = 0.6;

/// One read or write of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op {
    pub drive: usize,
    /// First byte.
    pub at: u64,
    pub bytes: u64,
    pub write: bool,
}

/// An operation in the queue of a drive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub op: Op,
    /// Of what it is a part.
    pub part: usize,
    pub since: u64,
}

/// Sequential reads that the buffer of a disk follows.
#[derive(Debug, Clone, Copy)]
struct Stream {
    next: u64,
    /// What is in the buffer reaches up to here.
    buffered: f64,
}

#[derive(Debug)]
pub(crate) struct Hdd {
    turn_ns: f64,
    track_bytes: f64,
    tracks: f64,
    bytes_per_ns: f64,
    seek: Seek,
    read_ahead: f64,
    track: f64,
    streams: VecDeque<Stream>,
    /// The last of `streams` is still read on, since this moment.
    reads_on_since: Option<u64>,
}

impl Hdd {
    fn place(&self, at: u64) -> (f64, f64) {
        let turns = at as f64 / self.track_bytes;
        let track = turns.floor();
        // The next track begins later by the time that the arm takes to it.
        (track, (turns + track * self.seek.first_ns() / self.turn_ns).fract())
    }

    /// Seek and rotation from now on.
    fn reach_ns(&self, now: u64, at: u64) -> f64 {
        let (track, angle) = self.place(at);
        let seek = self.seek.ns((track - self.track).abs() / self.tracks);
        let there = ((now as f64 + seek) / self.turn_ns).fract();
        seek + (angle - there).rem_euclid(1.0) * self.turn_ns
    }

    fn transfer_ns(&self, at: u64, bytes: u64) -> f64 {
        let (first, last) = (at as f64 / self.track_bytes, (at + bytes) as f64 / self.track_bytes);
        bytes as f64 / self.bytes_per_ns + (last.floor() - first.floor()) * self.seek.first_ns()
    }

    /// The head leaves the stream that it was reading on.
    fn leave(&mut self, now: u64) {
        if let (Some(since), Some(stream)) = (self.reads_on_since.take(), self.streams.back_mut()) {
            let read = stream.buffered + now.saturating_sub(since) as f64 * self.bytes_per_ns;
            stream.buffered = read.min(stream.next as f64 + self.read_ahead);
        }
    }

    fn service_ns(&mut self, now: u64, op: &Op) -> f64 {
        let end = op.at + op.bytes;
        if !op.write && self.read_ahead > 0.0 {
            if let Some(found) = self.streams.iter().position(|stream| stream.next == op.at) {
                let reads_on = found + 1 == self.streams.len() && self.reads_on_since.is_some();
                if !reads_on {
                    let stream = self.streams.remove(found).expect("it was found");
                    if end as f64 <= stream.buffered {
                        // The head stays where it is: what it reads on is no longer followed if it is another stream.
                        self.leave(now);
                        self.streams.push_back(Stream { next: end, ..stream });
                        return op.bytes as f64 / INTERFACE_BYTES_PER_NS;
                    }
                } else {
                    let since = self.reads_on_since.expect("checked");
                    let stream = self.streams.back_mut().expect("it was found");
                    let most = stream.next as f64 + self.read_ahead;
                    stream.buffered =
                        (stream.buffered + now.saturating_sub(since) as f64 * self.bytes_per_ns).min(most);
                    let missing = ((end as f64 - stream.buffered) / self.bytes_per_ns).max(0.0);
                    stream.next = end;
                    stream.buffered = stream.buffered.max(end as f64);
                    let ns = missing + op.bytes as f64 / INTERFACE_BYTES_PER_NS;
                    self.reads_on_since = Some(now + missing as u64);
                    return ns;
                }
            }
        }
        self.leave(now);
        let ns = self.reach_ns(now, op.at) + self.transfer_ns(op.at, op.bytes);
        self.track = self.place(end).0;
        if !op.write && self.read_ahead > 0.0 {
            if self.streams.len() == SEGMENTS {
                self.streams.pop_front();
            }
            self.streams.push_back(Stream { next: end, buffered: end as f64 });
            self.reads_on_since = Some(now + ns as u64);
        }
        ns
    }
}

/// A limit of requests a second.
#[derive(Debug)]
struct Gate {
    every_ns: f64,
    how: Pace,
}

#[derive(Debug)]
enum Pace {
    /// What was not used of `burst_ns` may pass at once. `next`: when the next request would pass that came at even distances.
    Even { burst_ns: f64, next: f64 },
    /// What may pass in a slice passes at its begin, and what the slice before it has left; what comes then waits for the next slice. After
    /// a slice without a request, a new one begins with the next request.
    Slices { slice_ns: f64, begin: f64, passed: f64, last: f64 },
}

impl Gate {
    fn of(per_s: f64, burst_ms: f64, slice_ms: f64) -> Gate {
        let how = match slice_ms > 0.0 {
            true => Pace::Slices { slice_ns: slice_ms * 1e6, begin: 0.0, passed: 0.0, last: 0.0 },
            false => Pace::Even { burst_ns: burst_ms * 1e6, next: 0.0 },
        };
        Gate { every_ns: 1e9 / per_s, how }
    }

    /// When the next request passes, which is not before `now`.
    fn opens(&mut self, now: u64) -> u64 {
        let now = now as f64;
        let at = match &mut self.how {
            Pace::Even { burst_ns, next } => {
                let due = next.max(now - *burst_ns);
                *next = due + self.every_ns;
                due
            }
            Pace::Slices { slice_ns, begin, passed, last } => {
                let most = *slice_ns / self.every_ns;
                if now > *last + *slice_ns {
                    (*begin, *passed) = (now, 0.0);
                }
                let over = ((now - *begin) / *slice_ns).floor().max(0.0);
                (*begin, *passed) = (*begin + over * *slice_ns, (*passed - over * most).max(-most));
                *passed += 1.0;
                // The last one of a slice may be a part of one; as many slices later as there are before it.
                let later = ((*passed - 1e-9) / most).ceil().max(1.0) - 1.0;
                *last = (*begin + later * *slice_ns).max(now);
                *last
            }
        };
        at.max(now) as u64
    }
}

#[derive(Debug)]
enum Model {
    Hdd(Box<Hdd>),
    Ssd { read_ns: f64, write_ns: f64, bytes_per_ns: f64 },
    Limited { latency_ns: u64 },
}

/// Requests of one kind that wait for the same: all of a drive, or its reads and its writes.
#[derive(Debug)]
struct Lane {
    queue: VecDeque<Waiting>,
    /// How many more it takes now.
    free: usize,
    gate: Option<Gate>,
    /// Time of all its places at work; of a limit, what the requests that passed have used of it.
    busy_ns: f64,
}

/// What was counted of a drive from the end of the warm-up on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub reads: u64,
    pub writes: u64,
    pub bytes: u64,
    /// Requests in the drive, times how long; and the same, added up request by request.
    pub inside_ns: f64,
    pub stayed_ns: f64,
    pub ended: u64,
    pub most: usize,
}

#[derive(Debug)]
pub(crate) struct Drive {
    model: Model,
    order: Order,
    depth: usize,
    lanes: Vec<Lane>,
    pub counts: Counts,
    /// Queued and in service.
    pub inside: usize,
    changed: u64,
    parallel: usize,
}

/// A request that a drive begins: when it ends, and when the drive can take another one in its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub waiting: Waiting,
    pub ends: u64,
    pub frees: u64,
}

impl Drive {
    pub fn new(spec: &DriveSpec) -> Result<Drive> {
        let (mut order, mut depth, mut parallel, mut gates) = (Order::Fifo, 1, 1, vec![None]);
        let model = match spec {
            DriveSpec::Hdd { capacity_gb: _, rpm, seek_ms, transfer_mb_s, queue_depth, order: by, read_ahead_kb } => {
                (order, depth) = (*by, *queue_depth);
                let (turn_ns, bytes_per_ns) = (60e9 / rpm, transfer_mb_s / 1e3);
                let track_bytes = turn_ns * bytes_per_ns;
                Model::Hdd(Box::new(Hdd {
                    turn_ns,
                    track_bytes,
                    tracks: (spec.capacity() as f64 / track_bytes).max(1.0),
                    bytes_per_ns,
                    seek: Seek::of(*seek_ms)?,
                    read_ahead: (read_ahead_kb * KB) as f64,
                    track: 0.0,
                    streams: VecDeque::new(),
                    reads_on_since: None,
                }))
            }
            DriveSpec::Ssd { read_us, write_us, parallel: at_once, transfer_mb_s, .. } => {
                parallel = *at_once;
                Model::Ssd { read_ns: read_us * 1e3, write_ns: write_us * 1e3, bytes_per_ns: transfer_mb_s / 1e3 }
            }
            DriveSpec::Limited {
                requests_per_s, reads_per_s, writes_per_s, latency_ms, burst_ms, slice_ms, ..
            } => {
                let limits = [requests_per_s, reads_per_s, writes_per_s];
                gates =
                    limits.into_iter().flatten().map(|per_s| Some(Gate::of(*per_s, *burst_ms, *slice_ms))).collect();
                Model::Limited { latency_ns: (latency_ms * 1e6) as u64 }
            }
        };
        let lanes =
            gates.into_iter().map(|gate| Lane { queue: VecDeque::new(), free: parallel, gate, busy_ns: 0.0 }).collect();
        Ok(Drive { model, order, depth, lanes, counts: Counts::default(), inside: 0, changed: 0, parallel })
    }

    /// Adds what was inside and at work since the last change.
    pub fn pass(&mut self, now: u64) {
        let ns = (now - self.changed) as f64;
        self.counts.inside_ns += ns * self.inside as f64;
        for lane in self.lanes.iter_mut().filter(|lane| lane.gate.is_none()) {
            lane.busy_ns += ns * (self.parallel - lane.free) as f64;
        }
        self.changed = now;
    }

    /// Forgets what was counted.
    pub fn restart(&mut self, now: u64) {
        self.pass(now);
        self.counts = Counts { most: self.inside, ..Counts::default() };
        self.lanes.iter_mut().for_each(|lane| lane.busy_ns = 0.0);
    }

    /// Into the queue. The lane that may begin something now.
    pub fn put(&mut self, now: u64, waiting: Waiting) -> usize {
        self.pass(now);
        self.inside += 1;
        self.counts.most = self.counts.most.max(self.inside);
        let lane = usize::from(self.lanes.len() > 1 && waiting.op.write);
        self.lanes[lane].queue.push_back(waiting);
        lane
    }

    /// An operation has ended that came at `since`, of the time that is counted.
    pub fn end(&mut self, now: u64, since: u64, op: &Op) {
        self.pass(now);
        self.inside -= 1;
        self.counts.ended += 1;
        self.counts.stayed_ns += (now - since) as f64;
        self.counts.bytes += op.bytes;
        *if op.write { &mut self.counts.writes } else { &mut self.counts.reads } += 1;
    }

    /// The drive can take another one in the place of one that it has begun.
    pub fn free(&mut self, now: u64, lane: usize) {
        self.pass(now);
        self.lanes[lane].free += 1;
    }

    /// What it begins now, if it can. To be asked until it begins nothing.
    pub fn begin(&mut self, now: u64, lane: usize) -> Option<Begun> {
        let at = self.next(now, lane)?;
        self.pass(now);
        let lane_ = &mut self.lanes[lane];
        let waiting = lane_.queue.remove(at).expect("it was chosen among them");
        lane_.free -= 1;
        let (ends, frees) = match &mut self.model {
            Model::Hdd(hdd) => {
                let ends = now + hdd.service_ns(now, &waiting.op).round().max(1.0) as u64;
                (ends, ends)
            }
            Model::Ssd { read_ns, write_ns, bytes_per_ns } => {
                let ns = if waiting.op.write { *write_ns } else { *read_ns } + waiting.op.bytes as f64 / *bytes_per_ns;
                (now + ns as u64, now + ns as u64)
            }
            Model::Limited { latency_ns } => {
                let gate = lane_.gate.as_mut().expect("each lane of a limited drive has one");
                let passes = gate.opens(now);
                (passes + *latency_ns, passes)
            }
        };
        lane_.busy_ns += lane_.gate.as_ref().map_or(0.0, |gate| gate.every_ns);
        Some(Begun { waiting, ends, frees })
    }

    /// Which of the waiting ones is next.
    fn next(&self, now: u64, lane: usize) -> Option<usize> {
        let lane = &self.lanes[lane];
        let oldest = lane.queue.front().filter(|_| lane.free > 0)?;
        let Model::Hdd(hdd) = &self.model else { return Some(0) };
        if self.order == Order::Fifo || self.depth == 1 || now - oldest.since > STARVED_NS {
            return Some(0);
        }
        let ahead = |waiting: &Waiting| {
            let track = hdd.place(waiting.op.at).0;
            // Behind the arm: after all that lie ahead of it.
            if track < hdd.track {
                track + hdd.tracks
            } else {
                track
            }
        };
        let cost = |waiting: &Waiting| match self.order {
            Order::Elevator => ahead(waiting),
            _ => hdd.reach_ns(now, waiting.op.at),
        };
        let chosen = lane.queue.iter().take(self.depth).enumerate().min_by(|a, b| cost(a.1).total_cmp(&cost(b.1)));
        chosen.map(|(at, _)| at)
    }

    /// What waits in it and was not begun.
    pub fn queued(&self) -> impl Iterator<Item = &Waiting> {
        self.lanes.iter().flat_map(|lane| &lane.queue)
    }

    /// How much of `ns` its places were at work; of reads and writes with a limit each, the nearer to its limit. After a
    /// quiet time a limit lets more pass than it does on average, which counts as all of it.
    pub fn utilisation(&self, ns: f64) -> f64 {
        let of = |lane: &Lane| (lane.busy_ns / ns / self.parallel as f64).min(1.0);
        self.lanes.iter().map(of).fold(0.0, f64::max)
    }
}

//! Packets in, connections and round trips out.

use std::collections::{HashMap, HashSet};

use crate::connection::{Connection, Known};
use crate::copies::{Copies, Is, Known as Before};
use crate::durations::Durations;
use crate::filter::Filter;
use crate::fragments::{Fragment, Fragments, Put};
use crate::headers::{content, joined};
use crate::packet::{flag, Content, End, Link, Packet, Segment};
use crate::sizes::Sizes;
use crate::talk::trip::Trip;
use crate::talk::Side;
use leadline_errors::Result;

const SECOND: i64 = 1_000_000_000;
/// A closed connection stays for its last packets; a SYN without an answer for its repetitions.
const KEEP_CLOSED_NS: i64 = 5 * SECOND;
const KEEP_UNANSWERED_NS: i64 = 60 * SECOND;
/// Connections that are followed at a time.
const MOST_CONNECTIONS: usize = 200_000;
/// Intervals that wait to be told.
const MOST_INTERVALS: usize = 100_000;
/// Connections that are told unless fewer are asked for; each takes some kB.
const MOST_LISTED: usize = 20_000;
/// Connections beside these among which the longest are found.
const MORE_LISTED: usize = 4096;

/// What to look at.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Ports of servers; none for all.
    pub ports: Vec<u16>,
    /// Networks of which one end has to be: an address and how many of its 128 bits count; none for all.
    pub hosts: Vec<([u8; 16], u8)>,
    /// Packets of files that are wanted; none for all.
    pub filter: Option<Filter>,
    /// Length of an interval in ns.
    pub interval_ns: i64,
    /// Rows are taken away as they come: nothing may be dropped. Without, only the longest connections are kept.
    pub keep_rows: bool,
    /// So many of them; none for a bounded number.
    pub listed: Option<usize>,
}

/// What was seen, and what was passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counts {
    pub packets: u64,
    pub wire_bytes: u64,
    pub tcp_packets: u64,
    pub other_ports: u64,
    pub other_hosts: u64,
    pub not_tcp: u64,
    /// Packets that the filter does not want.
    pub filtered: u64,
    /// Parts of IP packets; of these, those whose packet is not whole; and packets that were put together.
    pub fragments: u64,
    pub fragments_alone: u64,
    pub joined: u64,
    pub cut_headers: u64,
    pub bad_headers: u64,
    /// Packets of a link type that is not read.
    pub unknown_link: u64,
    /// Packets that were seen before, at another interface; of these, those that had other addresses there.
    pub copies: u64,
    pub translated: u64,
    /// Packets that came behind later ones.
    pub out_of_time: u64,
    pub connections: u64,
    /// Segments that were not captured whole, and places where messages were lost by that.
    pub cut_segments: u64,
    pub cut_messages: u64,
    /// Connections whose transactions are not told: too many of their messages were lost.
    pub uncounted: u64,
    /// Connections given up because there were too many.
    pub evicted: u64,
    /// Connections that are counted but have no row.
    pub not_listed: u64,
}

/// Sizes of one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// When it began.
    pub ts: i64,
    /// By direction, as [`crate::sizes::WAYS`].
    pub ways: [Sizes; 3],
}

/// Follows connections.
pub struct Analyser {
    options: Options,
    connections: HashMap<(End, End), Connection>,
    copies: Copies,
    fragments: Fragments,
    /// Ends of connections whose addresses are translated on this host, and the number of the connection that is followed instead.
    twins: HashMap<(End, End), i64>,
    /// Connections by the port of an end that may be the server.
    ports_seen: HashMap<u16, u32>,
    /// Ends that are servers.
    pub servers: HashSet<End>,
    interval: Option<Interval>,
    swept: i64,
    next_id: i64,
    /// Counts of everything.
    pub counts: Counts,
    /// First and last packet.
    pub span: Option<(i64, i64)>,
    /// Sizes of the whole.
    pub total: [Sizes; 3],
    /// From the last byte of a request to the first of its answer; from the first byte of a request to the last of its answer; from an
    /// answer to the next request.
    pub answer: Durations,
    #[allow(missing_docs)]
    pub whole: Durations,
    #[allow(missing_docs)]
    pub gap: Durations,
    /// Rows that wait.
    pub trips: Vec<(i64, Trip)>,
    #[allow(missing_docs)]
    pub intervals: Vec<Interval>,
    #[allow(missing_docs)]
    pub closed: Vec<Connection>,
}

impl Analyser {
    /// With nothing seen.
    pub fn new(options: Options) -> Analyser {
        Analyser {
            options: Options { interval_ns: options.interval_ns.max(1), ..options },
            connections: HashMap::new(),
            copies: Copies::default(),
            fragments: Fragments::default(),
            twins: HashMap::new(),
            ports_seen: HashMap::new(),
            servers: HashSet::new(),
            interval: None,
            swept: i64::MIN,
            next_id: 1,
            counts: Counts::default(),
            span: None,
            total: Default::default(),
            answer: Durations::default(),
            whole: Durations::default(),
            gap: Durations::default(),
            trips: Vec::new(),
            intervals: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// Length of an interval.
    pub fn interval_ns(&self) -> i64 {
        self.options.interval_ns
    }

    /// Takes one packet if the filter wants it.
    ///
    /// # Errors
    /// As [`Filter::wants`].
    pub fn take_if_wanted(&mut self, packet: &Packet<'_>) -> Result<()> {
        let wanted = self.options.filter.as_ref().map_or(Ok(true), |filter| filter.wants(packet))?;
        if wanted {
            self.take(packet);
        } else {
            self.counts.packets += 1;
            self.counts.filtered += 1;
        }
        Ok(())
    }

    /// Takes one packet.
    pub fn take(&mut self, packet: &Packet<'_>) {
        let (ts, wire) = (packet.ts, packet.wire_len);
        self.counts.packets += 1;
        self.counts.wire_bytes += u64::from(wire);
        self.counts.out_of_time += u64::from(self.span.is_some_and(|(_, to)| ts < to));
        self.counts.unknown_link += u64::from(packet.link == Link::Unknown);
        self.span = Some(self.span.map_or((ts, ts), |(from, to)| (from.min(ts), to.max(ts))));
        self.content(ts, wire, content(packet), packet.link == Link::Unknown);
    }

    fn content(&mut self, ts: i64, wire: u32, content: Content<'_>, is_unknown: bool) {
        match content {
            Content::Tcp(segment) => self.tcp(ts, wire, &segment),
            Content::Fragment(part) => self.fragment(ts, wire, &part),
            Content::Other => {
                self.counts.not_tcp += u64::from(!is_unknown);
                if self.options.ports.is_empty() && self.options.hosts.is_empty() {
                    self.size(ts, 2, wire, 0);
                }
            }
            Content::Cut => self.counts.cut_headers += 1,
            Content::Bad => self.counts.bad_headers += 1,
        }
    }

    /// A packet that is whole now counts as one, with the bytes of all parts.
    fn fragment(&mut self, ts: i64, wire: u32, part: &Fragment<'_>) {
        self.counts.fragments += 1;
        match self.fragments.put(ts, wire, part) {
            Put::Waits => {}
            Put::Copy => self.counts.copies += 1,
            Put::Whole(packet, wire) => {
                self.counts.joined += 1;
                // Parts of a packet in a tunnel that came in parts itself: each time the packet is shorter.
                self.content(ts, wire, joined(&packet, part.of.place, part.depth), false);
            }
            Put::Bad => {
                self.counts.fragments_alone += 1;
                self.size(ts, 2, wire, 0);
            }
        }
        self.give_up_fragments();
    }

    fn give_up_fragments(&mut self) {
        for alone in std::mem::take(&mut self.fragments.given_up) {
            self.counts.fragments_alone += alone.parts;
            self.size(alone.ts, 2, alone.wire, 0);
        }
    }

    fn is_of(&self, addr: &[u8; 16]) -> bool {
        let bits =
            |addr: &[u8; 16], count: u8| u128::from_be_bytes(*addr).checked_shr(128 - u32::from(count)).unwrap_or(0);
        self.options.hosts.iter().any(|(network, count)| bits(network, *count) == bits(addr, *count))
    }

    fn is_wanted(&self, port: u16) -> bool {
        self.options.ports.contains(&port)
    }

    fn tcp(&mut self, ts: i64, wire: u32, s: &Segment<'_>) {
        if !self.options.ports.is_empty() && !self.is_wanted(s.from.port) && !self.is_wanted(s.to.port) {
            self.counts.other_ports += 1;
            return;
        }
        if !self.options.hosts.is_empty() && !self.is_of(&s.from.addr) && !self.is_of(&s.to.addr) {
            self.counts.other_hosts += 1;
            return;
        }
        let key = if s.from <= s.to { (s.from, s.to) } else { (s.to, s.from) };
        if self.is_copy(ts, s, &key) {
            return;
        }
        self.counts.tcp_packets += 1;
        if self.connections.len() >= MOST_CONNECTIONS && !self.connections.contains_key(&key) {
            self.evict(ts);
        }
        let is_other = self.connections.get(&key).map(|c| c.is_other(s));
        if is_other == Some(true) {
            if let Some(old) = self.connections.remove(&key) {
                self.end_connection(old);
            }
        }
        if is_other != Some(false) {
            let (client, server, known) = self.ends(s);
            let from_start = s.flags & flag::SYN != 0;
            self.connections.insert(key, Connection::new(self.next_id, client, server, known, ts, from_start));
            self.copies.belongs_to(s, self.next_id);
            self.next_id += 1;
            self.counts.connections += 1;
        }
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let side = if connection.client == s.from { Side::Client } else { Side::Server };
        let id = connection.id;
        let (trips, keep) = (&mut self.trips, self.options.keep_rows);
        let (answer, whole, gap) = (&mut self.answer, &mut self.whole, &mut self.gap);
        connection.take(ts, wire, s, side, &mut |trip| {
            tally(answer, whole, gap, &trip);
            if keep {
                trips.push((id, trip));
            }
        });
        self.size(ts, if side == Side::Client { 0 } else { 1 }, wire, s.payload_len);
    }

    /// Whether the packet was seen before, at another place of its way. It is counted then, and no more.
    fn is_copy(&mut self, ts: i64, s: &Segment<'_>, key: &(End, End)) -> bool {
        // Of a twin also the first sight: an answer comes under the server's address, and then under the one that the client knows.
        if !self.twins.is_empty() {
            if s.flags & (flag::SYN | flag::ACK) == flag::SYN {
                self.twins.remove(key);
            } else if self.twins.contains_key(key) {
                self.counts.copies += 1;
                self.counts.translated += 1;
                return true;
            }
        }
        let connection = self.connections.get_mut(key);
        let side = connection.as_ref().map(|c| if c.client == s.from { Side::Client } else { Side::Server });
        let before = match (&connection, side) {
            (Some(connection), Some(side)) => connection.before(side),
            _ => Before { connection: 0, others: 0, last_id: None },
        };
        let is = match (self.copies.look(ts, s, before), &connection, side) {
            (Is::New, Some(connection), Some(side)) if connection.is_part(ts, s, side) => Is::Copy,
            (is, ..) => is,
        };
        self.counts.copies += u64::from(is != Is::New);
        match (is, connection, side) {
            (Is::Copy, Some(connection), Some(side)) => connection.copied(side),
            (Is::Translated(first), ..) => {
                self.counts.translated += 1;
                if let Some(own) = self.connections.remove(key) {
                    self.end_connection(own); // its packets are those of the other from now on
                }
                if self.twins.len() < MOST_CONNECTIONS {
                    self.twins.insert(*key, first);
                }
            }
            _ => {}
        }
        is != Is::New
    }

    /// Which end is the client.
    fn ends(&mut self, s: &Segment<'_>) -> (End, End, Known) {
        let forward = (s.from, s.to);
        let back = (s.to, s.from);
        let ((client, server), known) = if s.flags & flag::SYN != 0 {
            (if s.flags & flag::ACK == 0 { forward } else { back }, Known::Syn)
        } else if self.is_wanted(s.to.port) != self.is_wanted(s.from.port) {
            (if self.is_wanted(s.to.port) { forward } else { back }, Known::Port)
        } else {
            // The port that more connections share is the server's; else the lower one, which was not given out by chance.
            let seen = |port| self.ports_seen.get(&port).copied().unwrap_or(0);
            let (to, from) = (seen(s.to.port), seen(s.from.port));
            let is_forward = if to == from { s.to.port <= s.from.port } else { to > from };
            (if is_forward { forward } else { back }, Known::Guess)
        };
        if self.servers.len() < MOST_CONNECTIONS {
            self.servers.insert(server);
        }
        if self.ports_seen.len() < MOST_CONNECTIONS {
            *self.ports_seen.entry(server.port).or_default() += 1;
        }
        (client, server, known)
    }

    fn size(&mut self, ts: i64, way: usize, wire: u32, payload: u32) {
        let begin = ts - ts.rem_euclid(self.options.interval_ns);
        let present = self.interval.get_or_insert(Interval { ts: begin, ways: Default::default() });
        if begin > present.ts {
            let done = std::mem::replace(present, Interval { ts: begin, ways: Default::default() });
            self.end_interval(done);
            self.sweep(ts);
        }
        if let Some(present) = &mut self.interval {
            present.ways[way].add(wire, payload);
        }
    }

    fn end_interval(&mut self, done: Interval) {
        for (total, way) in self.total.iter_mut().zip(&done.ways) {
            total.join(way);
        }
        if self.options.keep_rows || self.intervals.len() < MOST_INTERVALS {
            self.intervals.push(done);
        }
    }

    /// Takes connections out that ended some time ago.
    fn sweep(&mut self, ts: i64) {
        if ts < self.swept.saturating_add(SECOND) {
            return;
        }
        self.swept = ts;
        if !self.twins.is_empty() {
            let followed: HashSet<i64> = self.connections.values().map(|c| c.id).collect();
            self.twins.retain(|_, first| followed.contains(first));
        }
        self.take_out(|c| {
            let idle = ts - c.to;
            (c.is_closed() && idle > KEEP_CLOSED_NS) || (c.end_name() == "no answer" && idle > KEEP_UNANSWERED_NS)
        });
    }

    /// Makes room: half of the connections go, those that were silent longest.
    fn evict(&mut self, ts: i64) {
        self.swept = i64::MIN;
        self.sweep(ts);
        if self.connections.len() < MOST_CONNECTIONS {
            return;
        }
        let mut last: Vec<i64> = self.connections.values().map(|c| c.to).collect();
        let middle = last.len() / 2;
        let (_, limit, _) = last.select_nth_unstable(middle);
        let limit = *limit;
        self.counts.evicted += self.take_out(|c| c.to <= limit);
    }

    fn take_out(&mut self, mut is_over: impl FnMut(&Connection) -> bool) -> u64 {
        let over: Vec<_> = self.connections.iter().filter(|(_, c)| is_over(c)).map(|(key, c)| (c.id, *key)).collect();
        let mut over = over;
        over.sort_unstable_by_key(|(id, _)| *id);
        for (_, key) in &over {
            if let Some(connection) = self.connections.remove(key) {
                self.end_connection(connection);
            }
        }
        over.len() as u64
    }

    fn end_connection(&mut self, mut connection: Connection) {
        let id = connection.id;
        let (trips, keep) = (&mut self.trips, self.options.keep_rows);
        let (answer, whole, gap) = (&mut self.answer, &mut self.whole, &mut self.gap);
        connection.finish(&mut |trip| {
            tally(answer, whole, gap, &trip);
            if keep {
                trips.push((id, trip));
            }
        });
        self.close(connection);
    }

    fn close(&mut self, connection: Connection) {
        self.counts.cut_segments += connection.streams.iter().map(|stream| stream.sent.cut).sum::<u64>();
        self.counts.cut_messages += connection.cut_messages;
        self.counts.uncounted += u64::from(connection.talk.is_read() && !connection.is_counted());
        self.closed.push(connection);
        let listed = self.options.listed.unwrap_or(MOST_LISTED);
        if !self.options.keep_rows && self.closed.len() >= listed + MORE_LISTED {
            self.keep_longest(listed);
        }
    }

    fn keep_longest(&mut self, listed: usize) {
        if self.closed.len() > listed {
            self.closed.select_nth_unstable_by_key(listed, |c| (std::cmp::Reverse(c.trips.answered), c.id));
            self.counts.not_listed += (self.closed.len() - listed) as u64;
            self.closed.truncate(listed);
        }
    }

    /// The end of the capture: what is open is told as it is.
    pub fn finish(&mut self) {
        self.fragments.finish();
        self.give_up_fragments();
        self.take_out(|_| true);
        if !self.options.keep_rows {
            self.keep_longest(self.options.listed.unwrap_or(MOST_LISTED));
            self.closed.sort_unstable_by_key(|c| c.id);
        }
        if let Some(last) = self.interval.take() {
            self.end_interval(last);
        }
    }
}

fn tally(answer: &mut Durations, whole: &mut Durations, gap: &mut Durations, trip: &Trip) {
    let (Some(first), Some(last), false) = (trip.first, trip.last, trip.purpose.is_setup()) else { return };
    answer.add(first - trip.request_last);
    whole.add(last - trip.ts);
    if let Some(ns) = trip.client_gap {
        gap.add(ns);
    }
}

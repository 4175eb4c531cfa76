//! The same packet seen twice, told from data that was sent again.

#[allow(dead_code)]
mod made;

use leadline_wire::analyser::Analyser;
use made::{analysed_for, ether, stamped, tcp, File, ACK, SYN};

const MS: i64 = 1_000_000;
const CLIENT: (u8, u16) = (1, 40_000);
const SERVER: (u8, u16) = (2, 5432);

/// One connection seen at several places: when, from which end, the number in the IP header, the time stamp, where, sequence, data.
struct Seen {
    file: File,
    numbers: bool,
    stamps: bool,
    server: (u8, u16),
}

impl Seen {
    fn new(numbers: bool, stamps: bool) -> Seen {
        let mut file = File::pcapng(1);
        file.interface();
        let mut seen = Seen { file, numbers, stamps, server: SERVER };
        seen.at(0, 0, true, 1, 99, SYN, b"");
        seen.at(0, 0, false, 1, 499, SYN | ACK, b"");
        seen
    }

    #[allow(clippy::too_many_arguments)]
    fn at(&mut self, place: u32, ts: i64, from_client: bool, id: u16, seq: u32, flags: u8, data: &[u8]) {
        let (from, to, ack) = if from_client { (CLIENT, self.server, 500) } else { (self.server, CLIENT, 100) };
        let mut packet = tcp(from, to, seq, ack, flags, data);
        if self.stamps {
            packet = stamped(packet, 0, (ts / MS) as u32);
        }
        packet[4..6].copy_from_slice(&(if self.numbers { id } else { 0 }).to_be_bytes());
        self.file.packet_at(place, ts, &ether(&[], &packet));
    }

    fn data(&mut self, place: u32, ts: i64, from_client: bool, id: u16, seq: u32, data: &[u8]) {
        self.at(place, ts, from_client, id, seq, ACK, data);
    }

    /// Copies and segments sent again, of both ends.
    fn counts(&self) -> (u64, u64) {
        let seen = analysed_for(&self.file.bytes[..], &[]);
        let of = |of: fn(&leadline_wire::connection::Connection) -> u64| seen.closed.iter().map(of).sum::<u64>();
        assert_eq!(of(|c| c.copies[0] + c.copies[1]), seen.counts.copies - seen.counts.translated);
        (seen.counts.copies, of(|c| c.streams[0].sent.retransmits + c.streams[1].sent.retransmits))
    }
}

const HOW: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

#[test]
fn the_same_packet_at_another_interface_is_a_copy() {
    for (numbers, stamps) in HOW {
        let mut seen = Seen::new(numbers, stamps);
        for (n, place) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let id = 2 + n as u16;
            seen.data(place, MS * (1 + n) + 10_000 * i64::from(place), true, id, 100 + 3 * n as u32, b"abc");
            // The answer was on its way before the copy came.
            seen.data(place, MS * (1 + n) + 5_000 + 10_000 * i64::from(place), false, id, 500 + 3 * n as u32, b"def");
        }
        assert_eq!(seen.counts(), (4, 0), "numbers {numbers}, stamps {stamps}");
    }
}

#[test]
fn the_same_packet_at_a_port_that_mirrors_both_ways_is_a_copy() {
    for (numbers, stamps) in HOW {
        let mut seen = Seen::new(numbers, stamps);
        for ts in [MS, MS + 300_000] {
            seen.data(0, ts, true, 2, 100, b"abc");
        }
        assert_eq!(seen.counts(), (1, 0), "numbers {numbers}, stamps {stamps}");
    }
}

#[test]
fn what_is_sent_again_is_no_copy() {
    for (numbers, stamps) in HOW {
        for (after, answers) in [(200 * MS, false), (3 * MS, false), (MS / 2, true)] {
            let mut seen = Seen::new(numbers, stamps);
            seen.data(0, MS, true, 2, 100, b"abc");
            if answers {
                seen.data(0, MS + after / 2, false, 2, 500, b"");
            }
            seen.data(0, MS + after, true, 3, 100, b"abc");
            assert_eq!(seen.counts(), (0, 1), "numbers {numbers}, stamps {stamps}, after {after} ns");
        }
    }
}

/// Some senders, and programs that make packets, give each the same number.
#[test]
fn a_number_that_every_packet_has_tells_nothing() {
    let mut seen = Seen::new(true, false);
    seen.data(0, MS, true, 1, 100, b"abc");
    seen.data(0, MS * 2, false, 1, 500, b"");
    seen.data(0, MS * 30, true, 1, 100, b"abc");
    assert_eq!(seen.counts(), (0, 1));
}

#[test]
fn copies_are_not_in_sizes_and_times() {
    let mut once = Seen::new(true, true);
    let mut twice = Seen::new(true, true);
    for (seen, places) in [(&mut once, 0..1), (&mut twice, 0..2)] {
        for n in 0..10u16 {
            for place in places.clone() {
                let ts = MS * i64::from(1 + n) + 20_000 * i64::from(place);
                seen.data(place, ts, true, 2 + n, 100 + 3 * u32::from(n), b"abc");
                seen.data(place, ts + 10_000, false, 2 + n, 500 + 3 * u32::from(n), b"def");
            }
        }
    }
    let (once, twice) = (analysed_for(&once.file.bytes[..], &[]), analysed_for(&twice.file.bytes[..], &[]));
    assert_eq!((once.total, once.counts.tcp_packets, once.counts.copies), (twice.total, twice.counts.tcp_packets, 0));
    assert_eq!((twice.counts.copies, twice.counts.packets), (20, 42));
    let trips = |seen: &Analyser| (seen.answer.total(), seen.answer.sum(), seen.gap.sum());
    assert_eq!(trips(&once), trips(&twice));
}

/// At the container one segment of 30 bytes, at the card three packets of it, with the next numbers; and the other way round.
#[test]
fn a_segment_that_is_cut_or_joined_on_its_way_is_a_copy() {
    let data = [7u8; 30];
    let mut seen = Seen::new(true, true);
    seen.data(0, MS, true, 20, 100, &data);
    for n in 0..3u16 {
        seen.data(1, MS + 10_000, true, 20 + n, 100 + 10 * u32::from(n), &data[..10]);
    }
    for n in 0..3u16 {
        seen.data(0, 2 * MS, true, 23 + n, 130 + 10 * u32::from(n), &data[..10]);
    }
    seen.data(1, 2 * MS + 10_000, true, 23, 130, &data);
    assert_eq!(seen.counts(), (4, 0));
    // Lost and sent again, alone, it has a number of its own.
    seen.data(0, 2 * MS + 600_000, true, 26, 130, &data[..10]);
    assert_eq!(seen.counts(), (4, 1));
}

/// A service address that is translated into that of the server: both are seen on the host that does it. An answer is seen under the
/// server's address first.
#[test]
fn a_connection_under_a_translated_address_is_followed_once() {
    for from_start in [true, false] {
        for numbers in [true, false] {
            let mut seen = Seen::new(numbers, true);
            seen.file = File::pcapng(1);
            seen.file.interface();
            let mut each = |ts: i64, from_client: bool, id: u16, seq: u32, flags: u8, data: &[u8]| {
                let mut servers = [(0, (9, 6432)), (1, SERVER)];
                if !from_client {
                    servers.reverse();
                }
                for (n, (place, server)) in servers.into_iter().enumerate() {
                    seen.server = server;
                    seen.at(place, ts + 20_000 * n as i64, from_client, id, seq, flags, data);
                }
            };
            if from_start {
                each(0, true, 1, 99, SYN, b"");
                each(MS / 2, false, 0, 499, SYN | ACK, b"");
            }
            for n in 0..5u16 {
                let ts = MS * i64::from(1 + n);
                each(ts, true, 2 + n, 100 + 3 * u32::from(n), ACK, b"abc");
                each(ts + 100_000, false, 2 + n, 500 + 3 * u32::from(n), ACK, b"def");
            }
            let found = analysed_for(&seen.file.bytes[..], &[]);
            let c = &found.closed[0];
            let packets = if from_start { 12 } else { 10 };
            assert_eq!((found.closed.len(), found.counts.translated, found.counts.tcp_packets), (1, packets, packets));
            assert_eq!((c.server.port, c.trips.answered, c.streams[0].sent.retransmits), (6432, 5, 0));
            assert_eq!((c.streams[0].sent.payload_bytes, c.streams[1].sent.payload_bytes), (15, 15));
        }
    }
}

/// Ports are used again: what was a twin before is a connection of its own now.
#[test]
fn a_new_connection_on_the_ports_of_a_twin_is_followed() {
    let mut seen = Seen::new(true, true);
    seen.file = File::pcapng(1);
    seen.file.interface();
    for (place, server) in [(0, (9, 6432)), (1, SERVER)] {
        seen.server = server;
        seen.at(place, 1000 * i64::from(place), true, 1, 99, SYN, b"");
    }
    seen.server = SERVER;
    seen.at(1, MS * 3000, true, 1, 7099, SYN, b"");
    seen.at(1, MS * 3001, true, 2, 7100, ACK, b"abc");
    let found = analysed_for(&seen.file.bytes[..], &[]);
    assert_eq!(found.closed.iter().map(|c| c.server.port).collect::<Vec<_>>(), [6432, 5432]);
}

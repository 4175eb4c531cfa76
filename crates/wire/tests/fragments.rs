//! TCP in IP packets that came in parts.

#[allow(dead_code)]
mod made;

use leadline_wire::analyser::{Analyser, Counts, Options};
use leadline_wire::packet::{Link, Packet};
use made::{ether, pg, tcp, tcp6, ACK, FIN, SYN};

const MS: i64 = 1_000_000;

/// The packet in parts of so many bytes of data; of IPv6 with the header of a fragment in front.
fn parts(packet: &[u8], id: u16, size: usize) -> Vec<Vec<u8>> {
    let is_six = packet[0] >> 4 == 6;
    // The made packets of IPv6 have a header of options, which belongs to what is cut.
    let (head, data) = packet.split_at(if is_six { 40 } else { 20 });
    let count = data.len().div_ceil(size);
    let one = |(number, piece): (usize, &[u8])| {
        let (at, more) = ((number * size / 8) as u16, u16::from(number + 1 < count));
        let mut part = head.to_vec();
        if is_six {
            part[4..6].copy_from_slice(&(piece.len() as u16 + 8).to_be_bytes());
            part[6] = 44;
            part.extend([head[6], 0]);
            part.extend((at << 3 | more).to_be_bytes());
            part.extend([0, 1]);
            part.extend(id.to_be_bytes());
        } else {
            part[2..4].copy_from_slice(&(piece.len() as u16 + 20).to_be_bytes());
            part[4..6].copy_from_slice(&id.to_be_bytes());
            part[6..8].copy_from_slice(&(more << 13 | at).to_be_bytes());
        }
        part.extend(piece);
        part
    };
    data.chunks(size).enumerate().map(one).collect()
}

/// A connection with a login and `asks` queries, each answer of 600 bytes; packet by packet.
fn conversation(six: bool, asks: usize) -> Vec<Vec<u8>> {
    let make = if six { tcp6 } else { tcp };
    let (client, server) = ((1, 40_000), (2, 5432));
    let mut seqs = [1000u32, 5000];
    let mut all = vec![make(client, server, 999, 0, SYN, &[]), make(server, client, 4999, 1000, SYN | ACK, &[])];
    let mut say = |from_client: bool, flags: u8, data: &[u8]| {
        let (from, to, me) = if from_client { (client, server, 0) } else { (server, client, 1) };
        all.push(make(from, to, seqs[me], seqs[1 - me], flags, data));
        seqs[me] += data.len() as u32;
    };
    say(true, ACK, &[]);
    say(true, ACK, &pg::startup("app", "shop"));
    say(false, ACK, &[pg::auth(0), pg::ready(b'I')].concat());
    for _ in 0..asks {
        say(true, ACK, &pg::query(&"select ".repeat(30)));
        say(false, ACK, &pg::answer(20, b'I'));
    }
    say(true, FIN | ACK, &[]);
    all
}

/// What there is in IP packets, one each millisecond.
fn read(packets: &[Vec<u8>], captured: usize) -> (Counts, u64, u64, bool) {
    let mut analyser = Analyser::new(Options { interval_ns: 1_000 * MS, keep_rows: true, ..Options::default() });
    for (ts, packet) in (1_000_000..).zip(packets) {
        let frame = ether(&[], packet);
        let data = &frame[..frame.len().min(captured)];
        let wire_len = frame.len() as u32;
        analyser.take(&Packet { ts: ts * MS, wire_len, link: Link::Ethernet, place: 0, data });
    }
    analyser.finish();
    let (trips, transactions, counted) =
        analyser.closed.iter().fold((0, 0, true), |(trips, transactions, counted), c| {
            (trips + c.trips.answered, transactions + c.trips.transactions, counted && c.is_counted())
        });
    (analyser.counts, trips, transactions, counted)
}

#[test]
fn parts_in_any_order_and_twice_are_the_packet() {
    for six in [false, true] {
        let whole = conversation(six, 20);
        let plain = read(&whole, usize::MAX);
        assert_eq!((plain.1, plain.2, plain.3), (20, 20, true));
        for (size, how) in
            [(576, "in order"), (64, "backwards"), (64, "twice"), (8, "again at the end"), (64, "no part")]
        {
            let (mut cut, mut doubled) = (Vec::new(), 0);
            for (id, packet) in (1..).zip(&whole) {
                let head = if six { 40 } else { 20 };
                let is_cut = how != "no part" && packet.len() - head > size;
                let mut some = if is_cut { parts(packet, id, size) } else { vec![packet.clone()] };
                let once = some.len() as u64;
                match how {
                    "backwards" => some.reverse(),
                    "twice" if is_cut => some = some.into_iter().flat_map(|part| [part.clone(), part]).collect(),
                    "again at the end" if is_cut => some.push(some[0].clone()),
                    _ => {}
                }
                doubled += some.len() as u64 - once;
                cut.extend(some);
            }
            let (counts, trips, transactions, counted) = read(&cut, usize::MAX);
            assert_eq!((trips, transactions, counted), (20, 20, true), "{how} {six}");
            assert_eq!((counts.fragments_alone, counts.connections), (0, 1), "{how} {six}");
            assert_eq!(counts.tcp_packets, plain.0.tcp_packets, "{how} {six}");
            assert_eq!((counts.joined > 0, counts.fragments > 0), (how != "no part", how != "no part"));
            assert_eq!(counts.copies, doubled, "{how} {six}");
        }
    }
}

/// A tunnel whose packets are longer than the way allows (VXLAN, IP in IP): they come in parts, and what is inside may come in parts too.
#[test]
fn packets_in_tunnels_in_parts_are_read() {
    let inner = conversation(false, 20);
    for (what, protocol, head) in [
        ("IP in IP", 4, vec![]),
        ("GRE", 47, vec![0, 0, 8, 0]),
        ("VXLAN", 17, [&[0xC0, 0, 0x12, 0xB5, 0, 0, 0, 0][..], &[8, 0, 0, 0, 0, 0, 7, 0], &[2; 12], &[8, 0]].concat()),
    ] {
        let mut cut = Vec::new();
        for (id, packet) in (1..).zip(&inner) {
            let own = if packet.len() > 256 { parts(packet, id, 256) } else { vec![packet.clone()] };
            for (number, part) in (0..).zip(own) {
                let mut outer = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 168, 0, 1, 192, 168, 0, 2];
                outer.extend([&head[..], &part].concat());
                cut.extend(parts(&outer, 1000 * (number + 1) + id, 64));
            }
        }
        let (counts, trips, transactions, counted) = read(&cut, usize::MAX);
        assert_eq!((trips, transactions, counted), (20, 20, true), "{what}");
        assert_eq!((counts.fragments_alone, counts.tcp_packets), (0, inner.len() as u64), "{what}");
    }
}

#[test]
fn a_part_that_is_missing_is_counted_and_its_connection_has_no_n() {
    for six in [false, true] {
        let whole = conversation(six, 20);
        let mut cut = Vec::new();
        for (id, packet) in (1..).zip(&whole) {
            let mut some = parts(packet, id, 256);
            if some.len() > 2 && id % 7 == 0 {
                some.remove(1);
            }
            cut.extend(some);
        }
        let (counts, _, _, counted) = read(&cut, usize::MAX);
        assert!(counts.fragments_alone > 0 && counts.uncounted == 1 && !counted, "{counts:?}");
    }
}

#[test]
fn parts_that_overlap_leave_gaps_or_go_beyond_the_end_make_nothing() {
    let packet = tcp((1, 9), (2, 5432), 1, 1, ACK, &[7; 100]);
    let good = parts(&packet, 1, 40);
    let field = |part: &[u8], value: u16| {
        let mut part = part.to_vec();
        part[6..8].copy_from_slice(&value.to_be_bytes());
        part
    };
    for (what, all) in [
        ("overlap", vec![good[0].clone(), field(&good[1], 0x2000 | 4), good[2].clone()]),
        ("a gap", vec![good[0].clone(), field(&good[1], 0x2000 | 6), good[2].clone()]),
        ("two ends", vec![good[0].clone(), good[2].clone(), field(&good[1], 5)]),
        ("behind the end", vec![good[2].clone(), field(&good[1], 0x2000 | 40)]),
        ("beyond 64 kB", vec![field(&good[1], 0x1FFF)]),
        ("no multiple of 8", parts(&packet, 1, 36)),
    ] {
        let (counts, ..) = read(&all, usize::MAX);
        assert_eq!((counts.joined, counts.tcp_packets), (0, 0), "{what}");
        assert_eq!(counts.fragments_alone, all.len() as u64, "{what}");
    }
}

#[test]
fn what_was_not_captured_of_a_part_is_not_invented() {
    let mut cut = Vec::new();
    for (id, packet) in (1..).zip(conversation(false, 5)) {
        cut.extend(parts(&packet, id, 256));
    }
    let (counts, ..) = read(&cut, 100);
    assert!(counts.cut_segments > 0 && counts.fragments_alone == 0, "{counts:?}");
}

/// Parts of 100,000 packets that are never whole, and of packets of which the number is used again.
#[test]
fn parts_that_never_become_whole_take_bounded_memory_and_numbers_are_used_again() {
    let packet = tcp((1, 9), (2, 5432), 1, 1, ACK, &[7; 100]);
    let mut lonely: Vec<_> = (0..100_000u32).map(|n| parts(&packet, n as u16, 64).swap_remove(0)).collect();
    lonely.iter_mut().zip(0u32..).for_each(|(part, n)| part[12] = (n >> 16) as u8);
    let (counts, ..) = read(&lonely, usize::MAX);
    assert_eq!((counts.fragments_alone, counts.joined), (100_000, 0));
    let again: Vec<_> = (0..5).flat_map(|_| [parts(&packet, 7, 64), vec![packet.clone(); 200]].concat()).collect();
    assert_eq!(read(&again, usize::MAX).0.joined, 5);
}

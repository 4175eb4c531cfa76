//! Connections: order, repetition, gaps, how they begin and end.

#[allow(dead_code)]
mod made;

use leadline_wire::connection::Connection;
use made::{analysed, analysed_for, File, Line, ACK, FIN, RST, SYN};

fn only(line: &Line) -> Connection {
    let mut analyser = analysed(line);
    assert_eq!(analyser.closed.len(), 1);
    analyser.closed.remove(0)
}

fn line() -> Line {
    Line::new(File::pcapng(1), 7000)
}

#[test]
fn the_client_is_the_one_that_sends_the_syn() {
    let mut l = line();
    (l.client, l.server) = ((1, 80), (2, 40_000)); // the ports say otherwise
    l.handshake();
    l.client(b"a");
    let c = only(&l);
    assert_eq!((c.client.port, c.server.port, c.known.name()), (80, 40_000, "handshake"));
    assert_eq!((c.handshake_ns, c.end_name()), (Some(200_000), "open"));
}

#[test]
fn without_a_syn_the_chosen_port_then_the_shared_one_then_the_lower_one_is_the_server() {
    type End = (u8, u16);
    let ends = |ports: &[u16], lines: &[(End, End)]| {
        let mut file = File::pcap(1);
        for (from, to) in lines {
            let frame = made::ether(&[], &made::tcp(*from, *to, 1, 1, ACK, b"x"));
            file.packet(0, &frame, 999);
        }
        let seen = analysed_for(&file.bytes[..], ports);
        seen.closed.iter().map(|c| (c.server.port, c.known.name())).collect::<Vec<_>>()
    };
    assert_eq!(ends(&[50_000], &[((1, 50_000), (2, 9))]), [(50_000, "port")]);
    assert_eq!(ends(&[], &[((1, 50_000), (2, 9))]), [(9, "guess")]);
    let shared = [((1, 5432), (2, 40_001)), ((3, 5000), (1, 5432)), ((1, 5432), (2, 5001))];
    assert_eq!(ends(&[], &shared), [(5432, "guess"); 3]);
}

#[test]
fn what_comes_again_out_of_order_or_never_is_counted_and_the_bytes_stay_in_order() {
    let mut l = line();
    l.handshake();
    l.client(b"request");
    l.ts += 300_000_000;
    l.again(true, b"request");
    let [c, s] = l.seqs;
    l.raw(false, s.wrapping_add(3), c, ACK, b"def");
    l.raw(false, s, c, ACK, b"abc"); // fills the hole at once
    l.raw(false, s.wrapping_add(10), c, ACK, b"klm"); // four bytes are missing
    l.raw(true, c, s.wrapping_add(13), ACK, b""); // but the client has them
    l.raw(true, c.wrapping_sub(1), s.wrapping_add(13), ACK, b"t"); // keep-alive
    l.raw(false, s.wrapping_add(10), c, ACK, b"klmnop"); // half of it is new
    let c = only(&l);
    let [up, down] = [c.streams[0].sent, c.streams[1].sent];
    assert_eq!((up.retransmits, up.keepalives, up.gaps), (1, 1, 0));
    assert_eq!((down.out_of_order, down.gaps, down.gap_bytes, down.retransmits), (1, 1, 4, 1));
    assert_eq!(c.trips.answered, 1);
}

#[test]
fn sequence_numbers_go_around() {
    let mut l = line();
    l.seqs = [u32::MAX - 2, u32::MAX];
    l.handshake();
    for _ in 0..3 {
        l.client(b"abc");
        l.server(b"de");
    }
    let c = only(&l);
    assert_eq!((c.trips.answered, c.streams[0].sent.retransmits, c.streams[1].sent.gaps), (3, 0, 0));
}

#[test]
fn each_end_of_a_connection_has_its_name() {
    let ended = |make: fn(&mut Line)| {
        let mut l = line();
        make(&mut l);
        only(&l).end_name()
    };
    assert_eq!(ended(|l| l.raw(true, 1, 0, SYN, b"")), "no answer");
    assert_eq!(ended(|l| (l.raw(true, 1, 0, SYN, b""), l.raw(false, 0, 2, RST | ACK, b"")).1), "refused");
    assert_eq!(ended(|l| (l.handshake(), l.close()).1), "closed");
    assert_eq!(ended(|l| (l.handshake(), l.raw(true, 0, 0, RST, b"")).1), "reset by client");
    assert_eq!(ended(|l| (l.handshake(), l.raw(false, 5001, 0, FIN | ACK, b"")).1), "half closed by server");
}

#[test]
fn a_new_syn_on_the_same_ports_is_another_connection() {
    let mut l = line();
    l.handshake();
    l.close();
    l.seqs = [77, 99];
    l.handshake();
    l.client(b"a");
    let seen = analysed(&l);
    assert_eq!(seen.closed.iter().map(|c| (c.id, c.end_name())).collect::<Vec<_>>(), [(1, "closed"), (2, "open")]);
}

#[test]
fn a_syn_that_is_sent_again_makes_no_time_of_a_handshake() {
    let mut l = line();
    l.raw(true, l.seqs[0], 0, SYN, b"");
    l.ts += 1_000_000_000;
    l.handshake();
    let c = only(&l);
    assert_eq!((c.handshake_ns, c.streams[0].sent.retransmits), (None, 1));
    assert_eq!(c.again_ns(), 1_000_000_000 + 2 * l.step_ns); // to the answer
}

#[test]
fn data_that_is_sent_again_costs_the_time_from_its_first_sending_to_its_acknowledgement() {
    let mut l = line();
    l.handshake();
    l.client(b"request");
    l.server(b"answer"); // the server's side: the request has come, its answer gets lost
    l.ts += 250_000_000;
    l.again(false, b"answer");
    l.ack(true);
    let c = only(&l);
    assert_eq!((c.again_ns(), c.streams[1].sent.retransmits), (250_000_000 + 2 * l.step_ns, 1));
}

/// The first copy never came to the place of the capture: what is behind it came, and waited.
#[test]
fn data_lost_in_front_of_the_capture_has_waited_since_the_data_behind_it_came() {
    for (after_ms, late) in [(250, 1), (2, 0)] {
        let mut l = line();
        l.handshake();
        let [c, s] = l.seqs;
        l.raw(true, c.wrapping_add(3), s, ACK, b"def");
        l.ts += after_ms * 1_000_000 - l.step_ns;
        l.raw(true, c, s, ACK, b"abc");
        l.raw(false, s, c.wrapping_add(6), ACK, b"");
        let c = only(&l);
        let sent = c.streams[0].sent;
        assert_eq!((sent.out_of_order, sent.late, sent.retransmits), (1, late, 0));
        assert_eq!(c.again_ns(), late as i64 * (after_ms * 1_000_000 + l.step_ns));
    }
}

#[test]
fn a_fin_that_comes_again_alone_is_no_data_but_one_with_data_is() {
    let mut l = line();
    l.handshake();
    let [c, s] = l.seqs;
    l.raw(true, c, s, FIN | ACK, b"");
    l.ts += 300_000_000;
    l.raw(true, c, s, FIN | ACK, b"");
    l.raw(false, s, c, FIN | ACK, b"bye");
    l.ts += 300_000_000;
    l.raw(false, s, c, FIN | ACK, b"bye");
    let c = only(&l);
    assert_eq!((c.streams[0].sent.retransmits, c.streams[1].sent.retransmits), (0, 1));
}

/// Linux keeps alive without data.
#[test]
fn a_keep_alive_without_data_is_one() {
    let mut l = line();
    l.handshake();
    l.client(b"a");
    l.server(b"b");
    l.ts += 7_000_000_000;
    l.raw(true, l.seqs[0].wrapping_sub(1), l.seqs[1], ACK, b"");
    let c = only(&l);
    assert_eq!((c.streams[0].sent.keepalives, c.streams[0].sent.retransmits, c.again_ns()), (1, 0, 0));
}

#[test]
fn round_trips_are_counted_by_the_change_of_direction() {
    let mut l = line();
    l.handshake();
    l.server(b"welcome"); // nobody asked
    for _ in 0..3 {
        l.client(b"half ");
        l.client(b"a question");
        l.server(b"answer");
        l.ack(true);
        l.server(b"and more");
    }
    l.client(b"without answer");
    let seen = analysed(&l);
    let c = &seen.closed[0];
    assert_eq!((c.trips.answered, c.trips.unanswered, c.talk.unasked_bytes), (3, 1, 7));
    let (_, trip) = seen.trips[1];
    assert_eq!(
        (trip.request_bytes, trip.request_segments, trip.response_bytes, trip.response_segments),
        (15, 2, 14, 2)
    );
    let step = l.step_ns;
    assert_eq!(
        (trip.request_last - trip.ts, trip.first.unwrap() - trip.ts, trip.last.unwrap() - trip.ts),
        (step, 2 * step, 4 * step)
    );
    assert_eq!(trip.client_gap, Some(step));
    assert_eq!((seen.answer.total(), seen.answer.most()), (3, step as u64));
}

/// Write, write, read with Nagle on one side and delayed acknowledgements on the other.
#[test]
fn data_that_waits_for_a_delayed_acknowledgement_is_seen() {
    let mut l = line();
    l.handshake();
    for held in [true, false] {
        l.client(b"head");
        if held {
            l.ts += 40_000_000;
            l.ack(false);
        }
        l.client(b"body");
        l.server(b"answer");
        l.ts += 100_000_000;
        l.ack(true); // late, but nothing waits for it
        l.ts += 100_000_000;
    }
    let c = only(&l);
    assert_eq!(c.held(), (1, 40_100_000));
}

#[test]
fn intervals_have_the_sizes_of_each_direction() {
    let mut l = line();
    l.step_ns = 400_000_000;
    l.handshake();
    l.client(&[0; 46]); // 100 bytes on the wire
    l.client(&[0; 146]);
    l.server(&[0; 946]);
    let seen = analysed(&l);
    assert_eq!(seen.intervals.len(), 3);
    let [up, down, other] = seen.total;
    assert_eq!((up.packets, up.least, up.most, up.payload_bytes), (4, 54, 200, 192));
    assert_eq!((down.packets, down.mean(), down.deviation(), other.packets), (2, Some(527.0), Some(473.0), 0));
    assert_eq!(seen.counts.wire_bytes, 54 + 54 + 54 + 100 + 200 + 1000);
}

#[test]
fn packets_of_other_ports_are_passed_over_and_counted() {
    let mut l = line();
    l.handshake();
    let seen = analysed_for(&l.file.bytes[..], &[5432]);
    assert_eq!((seen.counts.other_ports, seen.counts.tcp_packets, seen.closed.len()), (3, 0, 0));
}

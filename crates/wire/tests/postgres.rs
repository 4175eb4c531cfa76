//! The protocol of PostgreSQL in packets: round trips, transactions, fetches, logins.

#[allow(dead_code)]
mod made;

use leadline_wire::analyser::{Analyser, Options};
use leadline_wire::file::PacketReader;
use leadline_wire::talk::trip::Trip;
use made::{login, pg, File, Line};

fn analysed(line: &Line) -> Analyser {
    let mut packets = PacketReader::new(&line.file.bytes[..]).unwrap();
    let mut analyser =
        Analyser::new(Options { ports: vec![], interval_ns: 1_000_000_000, keep_rows: true, ..Options::default() });
    while let Some(packet) = packets.next_packet().unwrap() {
        analyser.take(&packet);
    }
    analyser.finish();
    analyser
}

fn line() -> Line {
    Line::new(File::pcapng(1), 5432)
}

fn purposes(seen: &Analyser) -> Vec<&'static str> {
    seen.trips.iter().map(|(_, t)| t.purpose.name()).collect()
}

fn work(seen: &Analyser) -> Vec<Trip> {
    seen.trips.iter().map(|(_, t)| *t).filter(|t| !t.purpose.is_setup()).collect()
}

#[test]
fn a_transaction_of_four_statements_takes_four_round_trips() {
    let mut l = line();
    login(&mut l);
    for (text, status) in [("begin", b'T'), ("update", b'T'), ("select", b'T'), ("commit", b'I')] {
        l.client(&pg::query(text));
        l.server(&pg::answer(2, status));
    }
    l.client(&pg::message(b'X', b""));
    l.close();
    let seen = analysed(&l);
    let c = &seen.closed[0];
    assert_eq!((c.talk.protocol(), c.trips.answered, c.trips.setup), ("postgresql", 4, 1));
    assert_eq!((c.trips.transactions, c.trips.statements, c.trips.rows), (1, 4, 8));
    assert_eq!((c.talk.about.user.as_str(), c.talk.about.database.as_str()), ("app", "shop"));
    assert_eq!(c.connect_ns(), Some(400_000));
    let at_end: Vec<_> = work(&seen).iter().map(|t| (t.transactions, t.in_transaction)).collect();
    assert_eq!(at_end, [(0, true), (0, true), (0, true), (1, false)]);
}

#[test]
fn a_pipeline_is_one_round_trip() {
    let mut l = line();
    login(&mut l);
    let one =
        [pg::message(b'P', b"\0select\0\0\0"), pg::message(b'B', &[0; 8]), pg::execute(0), pg::message(b'S', b"")]
            .concat();
    let answer = [pg::message(b'1', b""), pg::message(b'2', b""), pg::answer(1, b'I')].concat();
    l.client(&one);
    l.client(&one);
    l.server(&answer); // the third is sent before the second is answered
    l.client(&one);
    l.server(&[answer.clone(), answer].concat());
    let seen = analysed(&l);
    let [trip] = work(&seen)[..] else { panic!("{:?}", work(&seen)) };
    assert_eq!((trip.statements, trip.transactions, trip.pipelined, trip.purpose.name()), (3, 3, 2, "extended query"));
}

#[test]
fn statements_without_a_sync_wait_for_the_rest() {
    let mut l = line();
    login(&mut l);
    l.client(&[pg::message(b'P', b"\0select\0\0\0"), pg::message(b'B', &[0; 8])].concat());
    l.client(&[pg::execute(0), pg::message(b'S', b"")].concat());
    l.server(&pg::answer(1, b'I'));
    // With Flush the server answers, and the client goes on with another round trip.
    l.client(&[pg::message(b'P', b"\0select\0\0\0"), pg::message(b'H', b"")].concat());
    l.server(&pg::message(b'1', b""));
    l.client(&[pg::message(b'B', &[0; 8]), pg::execute(0), pg::message(b'S', b"")].concat());
    l.server(&pg::answer(1, b'I'));
    let found: Vec<_> = work(&analysed(&l)).iter().map(|t| (t.statements, t.purpose.name())).collect();
    assert_eq!(found, [(1, "extended query"), (0, "prepare"), (1, "extended query")]);
}

#[test]
fn parts_of_a_result_are_counted_as_fetches() {
    let mut l = line();
    login(&mut l);
    for part in 0..5 {
        l.client(&[pg::execute(50), pg::message(b'S', b"")].concat());
        let end = if part < 4 { pg::message(b's', b"") } else { pg::message(b'C', b"SELECT 250\0") };
        l.server(&[pg::row(10).repeat(50), end, pg::ready(b'T')].concat());
    }
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.trips.fetches, c.trips.suspended, c.trips.rows, c.trips.answered), (5, 4, 250, 5));
}

#[test]
fn copy_in_takes_two_round_trips() {
    let mut l = line();
    login(&mut l);
    l.client(&pg::query("copy t from stdin"));
    l.server(&pg::message(b'G', &[0, 0, 0]));
    for _ in 0..20 {
        l.client(&pg::message(b'd', &[b'x'; 1000]));
    }
    l.client(&pg::message(b'c', b""));
    l.server(&[pg::message(b'C', b"COPY 20\0"), pg::ready(b'I')].concat());
    let found: Vec<_> =
        work(&analysed(&l)).iter().map(|t| (t.request_segments, t.transactions, t.purpose.name())).collect();
    assert_eq!(found, [(1, 0, "copy in"), (21, 1, "copy in")]);
}

#[test]
fn messages_may_be_cut_anywhere() {
    let answer = pg::answer(30, b'I');
    let request = [pg::execute(7), pg::message(b'S', b"")].concat();
    for size in [1, 2, 3, 4, 5, 6, 7, 11, 64] {
        let mut l = line();
        login(&mut l);
        request.chunks(size).for_each(|piece| l.client(piece));
        answer.chunks(size).for_each(|piece| l.server(piece));
        let c = analysed(&l).closed.remove(0);
        let found = (c.trips.answered, c.trips.fetches, c.trips.rows, c.trips.transactions, c.talk.about.lost_places);
        assert_eq!(found, (1, 1, 30, 1, 0), "pieces of {size}");
    }
}

#[test]
fn a_connection_is_understood_from_its_middle() {
    let mut l = line();
    l.client(&pg::query("select"));
    l.server(&pg::answer(3, b'I'));
    l.client(&pg::query("select"));
    l.server(&pg::answer(3, b'I'));
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.talk.protocol(), c.trips.answered, c.trips.rows, c.trips.transactions), ("postgresql", 2, 6, 2));
    assert_eq!(c.talk.about.auth.name(), "unseen");
}

#[test]
fn bytes_that_are_missing_are_passed_over_where_a_message_says_how_many() {
    let mut l = line();
    login(&mut l);
    l.captured = 54 + 40; // the row is longer than what is captured
    l.client(&pg::query("select"));
    l.server(&pg::row(300));
    l.captured = usize::MAX;
    l.server(&[pg::message(b'C', b"SELECT\0"), pg::ready(b'I')].concat());
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.trips.rows, c.trips.transactions, c.talk.about.lost_places, c.streams[1].sent.cut), (1, 1, 0, 1));
}

#[test]
fn where_the_place_is_lost_it_is_found_again_with_the_next_request() {
    let mut l = line();
    login(&mut l);
    l.client(&pg::query("select"));
    l.captured = 54 + 3; // not even the first head
    l.server(&pg::answer(3, b'I'));
    l.captured = usize::MAX;
    for _ in 0..2 {
        l.client(&pg::query("select"));
        l.server(&pg::answer(3, b'I'));
    }
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.trips.answered, c.trips.rows, c.talk.about.lost_places), (3, 6, 1));
}

const SECRET: &[u8] = b"swordfish\0";

fn asked(code: u32, answer: &[u8], outcome: &[u8]) -> leadline_wire::connection::Connection {
    let mut l = line();
    l.handshake();
    l.client(&pg::ssl_request());
    l.server(b"N");
    l.client(&pg::startup("app", "shop"));
    l.server(&pg::auth(code));
    l.client(&pg::message(b'p', answer));
    l.server(outcome);
    analysed(&l).closed.remove(0)
}

#[test]
fn a_password_in_clear_text_is_noticed_and_not_kept() {
    let welcome = [pg::auth(0), pg::ready(b'I')].concat();
    let c = asked(3, SECRET, &welcome);
    let about = &c.talk.about;
    assert_eq!(
        (about.auth.name(), about.password_readable, about.let_in, about.tls.name()),
        ("cleartext", true, Some(true), "refused")
    );
    assert!(!format!("{about:?}").contains("swordfish"));
    assert_eq!(c.trips.setup, 3);
    let c = asked(5, b"md5abc\0", &welcome);
    assert_eq!((c.talk.about.auth.name(), c.talk.about.password_readable), ("md5", false));
    let refused = pg::message(b'E', b"SFATAL\0C28P01\0Mpassword authentication failed\0\0");
    let c = asked(5, b"md5abc\0", &refused);
    assert_eq!((c.talk.about.let_in, c.talk.about.sqlstate.as_str()), (Some(false), "28P01"));
}

#[test]
fn an_error_in_a_query_is_no_refused_login() {
    let mut l = line();
    login(&mut l);
    l.client(&pg::query("select"));
    l.server(&[pg::message(b'E', b"SERROR\0C42601\0\0"), pg::ready(b'I')].concat());
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.trips.errors, c.talk.about.let_in, c.talk.about.sqlstate.as_str()), (1, Some(true), ""));
}

#[test]
fn scram_takes_three_round_trips_and_no_password_can_be_read() {
    let mut l = line();
    l.handshake();
    l.client(&pg::startup("app", "shop"));
    l.server(&pg::message(b'R', &[&10u32.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat()));
    l.client(&pg::message(b'p', b"SCRAM-SHA-256\0\0\0\0\x05n,,n="));
    l.server(&pg::message(b'R', &[&11u32.to_be_bytes()[..], b"r=,s=,i=4096"].concat()));
    l.client(&pg::message(b'p', b"c=biws,r=,p="));
    l.server(&[pg::message(b'R', &12u32.to_be_bytes()), pg::auth(0), pg::ready(b'I')].concat());
    let seen = analysed(&l);
    assert_eq!(purposes(&seen), ["start-up", "authentication", "authentication"]);
    let about = &seen.closed[0].talk.about;
    assert_eq!((about.auth.name(), about.password_readable, about.let_in), ("scram-sha-256", false, Some(true)));
}

#[test]
fn behind_tls_only_sizes_and_times_are_seen() {
    let mut l = line();
    l.handshake();
    l.client(&pg::ssl_request());
    l.server(b"S");
    l.client(&[0x16, 3, 1, 0, 4, 1, 2, 3, 4]);
    l.server(&[0x16, 3, 3, 0, 4, 1, 2, 3, 4]);
    l.client(&[0x17, 3, 3, 0, 2, 1, 2]);
    l.server(&[0x17, 3, 3, 0, 2, 1, 2]);
    let seen = analysed(&l);
    let c = &seen.closed[0];
    let about = &c.talk.about;
    assert_eq!(
        (c.talk.protocol(), c.talk.is_read(), about.tls.name(), about.auth.name()),
        ("postgresql", false, "accepted", "unseen")
    );
    assert_eq!(purposes(&seen), ["encryption request", "unknown", "unknown"]);
    // TLS at once, as with sslnegotiation=direct.
    let mut l = line();
    l.handshake();
    l.client(&[0x16, 3, 1, 0, 4, 1, 2, 3, 4]);
    l.server(&[0x16, 3, 3, 0, 4, 1, 2, 3, 4]);
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.talk.protocol(), c.talk.about.tls.name()), ("tls", "accepted"));
}

#[test]
fn refused_gss_is_told_and_the_login_goes_on() {
    let mut l = line();
    l.handshake();
    l.client(&pg::first(80_877_104, b""));
    l.server(b"N");
    l.client(&pg::startup("app", ""));
    l.server(&[pg::auth(0), pg::ready(b'I')].concat());
    let c = analysed(&l).closed.remove(0);
    let about = &c.talk.about;
    assert_eq!((about.gss.name(), about.tls.name(), about.auth.name()), ("refused", "not asked", "not asked"));
}

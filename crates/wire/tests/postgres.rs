//! The protocol of PostgreSQL in packets: round trips, transactions, fetches, logins.

#[allow(dead_code)]
mod made;

use leadline_wire::analyser::Analyser;
use leadline_wire::talk::trip::Trip;
use made::{analysed, login, pg, File, Line};

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

/// Parse, Bind, Describe, Execute and Sync, as a driver sends them before it knows that the statement is a COPY.
fn copy_by_extended_protocol() -> Vec<u8> {
    [
        pg::message(b'P', b"\0copy\0\0\0"),
        pg::message(b'B', &[0; 8]),
        pg::message(b'D', b"P\0"),
        pg::execute(0),
        pg::message(b'S', b""),
    ]
    .concat()
}

fn copy_begins() -> Vec<u8> {
    [pg::message(b'1', b""), pg::message(b'2', b""), pg::message(b'n', b""), pg::message(b'G', &[0, 0, 0])].concat()
}

fn copied() -> Vec<u8> {
    [pg::message(b'C', b"COPY 1\0"), pg::ready(b'I')].concat()
}

#[test]
fn a_sync_that_the_server_ignores_during_copy_in_is_waited_for_by_nobody() {
    let mut l = line();
    login(&mut l);
    for _ in 0..4 {
        l.client(&copy_by_extended_protocol());
        l.server(&copy_begins());
        l.client(&pg::message(b'd', b"1\n"));
        l.client(&pg::message(b'd', b"2\n"));
        l.client(&[pg::message(b'H', b""), pg::message(b'S', b"")].concat()); // ignored too
        l.client(&[pg::message(b'c', b""), pg::message(b'S', b"")].concat());
        l.server(&copied());
        for _ in 0..25 {
            l.client(&pg::query("select"));
            l.server(&pg::answer(1, b'I'));
        }
    }
    let seen = analysed(&l);
    let c = &seen.closed[0];
    assert_eq!((c.trips.answered, c.trips.transactions, c.trips.unanswered, c.trips.pipelined), (108, 104, 0, 0));
    assert_eq!(work(&seen).iter().filter(|t| t.purpose.name() == "copy in").count(), 8);
}

#[test]
fn a_copy_whose_data_was_sent_at_once_has_one_ready_or_two() {
    let all = [copy_by_extended_protocol(), pg::message(b'd', b"1\n"), pg::message(b'c', b""), pg::message(b'S', b"")];
    let refused = [pg::message(b'E', b"SERROR\0C42P01\0\0"), pg::ready(b'I'), pg::ready(b'I')].concat();
    let failed_midway = [copy_begins(), pg::message(b'E', b"SERROR\0C22P04\0\0"), pg::ready(b'I')].concat();
    for answer in [[copy_begins(), copied()].concat(), refused, failed_midway] {
        let mut l = line();
        login(&mut l);
        for _ in 0..3 {
            l.client(&all.concat());
            l.server(&answer);
            l.client(&pg::query("select"));
            l.server(&pg::answer(1, b'I'));
        }
        let c = analysed(&l).closed.remove(0);
        assert_eq!((c.trips.transactions, c.trips.unanswered, c.talk.about.lost_places), (6, 0, 0));
    }
}

#[test]
fn a_copy_that_fails_while_the_client_sends_ends_with_its_next_sync() {
    let mut l = line();
    login(&mut l);
    for _ in 0..3 {
        l.client(&copy_by_extended_protocol());
        l.server(&copy_begins());
        l.client(&pg::message(b'd', b"no number\n"));
        l.server(&pg::message(b'E', b"SERROR\0C22P02\0\0"));
        l.client(&[pg::message(b'f', b"stopped\0"), pg::message(b'S', b"")].concat());
        l.server(&pg::ready(b'I'));
        l.client(&pg::query("select"));
        l.server(&pg::answer(1, b'I'));
    }
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.trips.transactions, c.trips.unanswered, c.trips.errors), (6, 0, 3));
    assert_eq!(c.trips.answered, 9);
}

#[test]
fn a_client_that_sends_data_before_the_server_takes_them_waits_once() {
    let begins = pg::message(b'G', &[0, 0, 0]);
    let (data, end) = (pg::message(b'd', b"1\n"), pg::message(b'c', b""));
    let sync = pg::message(b'S', b"");
    // What comes of the client before the server answers, and what comes later; as asyncpg and pgx do it.
    let simple = pg::query("copy t from stdin");
    let extended = copy_by_extended_protocol();
    let ways = [
        ([simple.clone(), data.clone(), end.clone()].concat(), vec![]),
        ([simple, data.clone()].concat(), [data.clone(), end.clone()].concat()),
        ([extended.clone(), data.clone(), end.clone(), sync.clone()].concat(), vec![]),
        ([extended, data.clone()].concat(), [data, end, sync].concat()),
    ];
    for (before, after) in ways {
        let mut l = line();
        login(&mut l);
        for _ in 0..3 {
            l.client(&before);
            l.server(&begins);
            if !after.is_empty() {
                l.client(&after);
            }
            l.server(&copied());
            l.client(&pg::query("select"));
            l.server(&pg::answer(1, b'I'));
        }
        let c = analysed(&l).closed.remove(0);
        assert_eq!((c.trips.answered, c.trips.transactions, c.trips.unanswered), (6, 6, 0));
    }
}

#[test]
fn what_follows_the_end_of_a_copy_is_no_request() {
    let mut l = line();
    login(&mut l);
    for _ in 0..3 {
        l.client(&pg::query("copy t from stdin"));
        l.server(&pg::message(b'G', &[0, 0, 0]));
        l.client(&[pg::message(b'd', b"1\n"), pg::message(b'c', b"")].concat());
        l.server(&copied());
        l.client(&pg::message(b'f', b"\0")); // as postgres.js sends it
        l.client(&pg::query("select"));
        l.server(&pg::answer(1, b'I'));
    }
    let seen = analysed(&l);
    assert_eq!((seen.closed[0].trips.answered, seen.closed[0].trips.unanswered), (9, 0));
    assert_eq!(work(&seen)[2].purpose.name(), "simple query");
}

#[test]
fn replication_has_no_round_trips_and_no_negative_times() {
    let mut l = line();
    let status = pg::message(b'd', &[&b"r"[..], &[0; 33]].concat());
    let wal = pg::message(b'd', &[&b"w"[..], &[0; 60]].concat());
    login(&mut l);
    l.client(&pg::query("START_REPLICATION 0/0"));
    l.server(&pg::message(b'W', &[0, 0, 0]));
    for _ in 0..20 {
        l.server(&wal);
        l.client(&status);
        l.server(&wal);
    }
    l.client(&pg::message(b'c', b""));
    l.server(&[pg::message(b'c', b""), pg::message(b'C', b"START_STREAMING\0"), pg::ready(b'I')].concat());
    l.client(&pg::query("IDENTIFY_SYSTEM"));
    l.server(&pg::answer(1, b'I'));
    let seen = analysed(&l);
    let found: Vec<_> = work(&seen).iter().map(|t| (t.purpose.name(), t.is_in_order())).collect();
    assert_eq!(found, [("replication", true), ("simple query", true)]);
    assert_eq!(seen.closed[0].trips.unanswered, 0);
    // Seen from its middle.
    let mut l = line();
    for _ in 0..20 {
        l.client(&status);
        l.server(&wal);
    }
    let seen = analysed(&l);
    assert_eq!((work(&seen).len(), seen.closed[0].talk.protocol()), (0, "postgresql"));
}

#[test]
fn what_is_asked_after_the_answer_began_makes_no_time_negative() {
    let mut l = line();
    login(&mut l);
    let one = [pg::message(b'B', &[0; 8]), pg::execute(0), pg::message(b'S', b"")].concat();
    l.client(&one);
    l.client(&one);
    for _ in 0..50 {
        l.server(&[pg::message(b'2', b""), pg::answer(1, b'I')].concat());
        l.client(&one);
    }
    l.server(&[pg::message(b'2', b""), pg::answer(1, b'I')].concat().repeat(2));
    let seen = analysed(&l);
    let [trip] = work(&seen)[..] else { panic!("{:?}", work(&seen)) };
    let step = l.step_ns;
    assert!(trip.is_in_order());
    assert_eq!((trip.request_last - trip.ts, trip.first.unwrap() - trip.request_last), (step, step));
    assert_eq!((seen.answer.total(), seen.answer.most(), trip.transactions), (1, step as u64, 52));
}

#[test]
fn only_a_portal_that_is_run_again_is_read_in_parts() {
    let bound = |name: &[u8]| pg::message(b'B', &[name, &[0; 8]].concat());
    let run = |name: &[u8], rows: i32| pg::message(b'E', &[name, &[0], &rows.to_be_bytes()[..]].concat());
    let mut l = line();
    login(&mut l);
    // One row of each of many queries, as fetchval() of asyncpg asks for it.
    for _ in 0..30 {
        l.client(&[bound(b""), run(b"", 1), pg::message(b'S', b"")].concat());
        l.server(&[pg::message(b'2', b""), pg::row(10), pg::message(b's', b""), pg::ready(b'I')].concat());
    }
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.trips.fetches, c.trips.continued, c.trips.suspended, c.trips.transactions), (30, 0, 30, 30));
    // Two results side by side, one of them bound in a round trip of its own.
    l.client(&[bound(b"a"), pg::message(b'S', b"")].concat());
    l.server(&[pg::message(b'2', b""), pg::ready(b'T')].concat());
    l.client(&[bound(b"b"), run(b"b", 5), pg::message(b'S', b"")].concat());
    l.server(&[pg::message(b'2', b""), pg::row(10), pg::message(b's', b""), pg::ready(b'T')].concat());
    for name in [b"a", b"b", b"a", b"b"] {
        l.client(&[run(name, 5), pg::message(b'S', b"")].concat());
        l.server(&[pg::row(10), pg::message(b's', b""), pg::ready(b'T')].concat());
    }
    let c = analysed(&l).closed.remove(0);
    assert_eq!((c.trips.fetches - 30, c.trips.continued), (5, 3));
}

#[test]
fn fetch_statements_are_counted_by_the_answer() {
    let mut l = line();
    login(&mut l);
    for tag in ["DECLARE CURSOR", "FETCH 100", "FETCH 0", "MOVE 5", "CLOSE CURSOR"] {
        l.client(&pg::query("?"));
        l.server(&[pg::message(b'C', format!("{tag}\0").as_bytes()), pg::ready(b'T')].concat());
    }
    let found: Vec<_> = work(&analysed(&l)).iter().map(|t| (t.cursors, t.cursor_fetches)).collect();
    assert_eq!(found, [(1, 0), (0, 1), (0, 1), (0, 0), (0, 0)]);
}

/// What a client proves itself with, by SASL; the server offers `offered`.
fn by_sasl(offered: &str, chosen: &str, data: &[u8]) -> (String, bool) {
    let mut l = line();
    l.handshake();
    l.client(&pg::startup("app", "shop"));
    l.server(&pg::message(b'R', &[&10u32.to_be_bytes()[..], offered.as_bytes(), b"\0\0"].concat()));
    let first = [chosen.as_bytes(), &[0], &(data.len() as i32).to_be_bytes(), data].concat();
    l.client(&pg::message(b'p', &first));
    l.server(&[pg::auth(0), pg::ready(b'I')].concat());
    let about = analysed(&l).closed.remove(0).talk.about.clone();
    assert!(!format!("{about:?}").contains("swordfish"));
    (about.auth.name().to_owned(), about.password_readable)
}

#[test]
fn a_sasl_mechanism_has_its_name_and_a_bearer_token_is_readable() {
    let token = b"n,,\x01host=db\x01auth=Bearer swordfish\x01\x01";
    assert_eq!(by_sasl("OAUTHBEARER", "OAUTHBEARER", token), ("oauthbearer".into(), true));
    assert_eq!(by_sasl("OAUTHBEARER", "OAUTHBEARER", b"n,,\x01auth=\x01\x01"), ("oauthbearer".into(), false));
    assert_eq!(by_sasl("XOAUTH2", "XOAUTH2", b"user=a\x01auth=Bearer swordfish\x01\x01"), ("xoauth2".into(), true));
    assert_eq!(by_sasl("PLAIN", "PLAIN", b"\0app\0swordfish"), ("plain".into(), true));
    let both = "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256";
    assert_eq!(by_sasl(both, "SCRAM-SHA-256", b"n,,n=,r=swordfish"), ("scram-sha-256".into(), false));
    assert_eq!(by_sasl(both, "SCRAM-SHA-256-PLUS", b"p=tls,,n=,r=x"), ("scram-sha-256-plus".into(), false));
    assert_eq!(by_sasl("SCRAM-SHA-512", "SCRAM-SHA-512", b"n,,n=,r=x"), ("scram-sha-512".into(), false));
}

#[test]
fn each_request_for_a_proof_has_its_name() {
    let welcome = [pg::auth(0), pg::ready(b'I')].concat();
    let names = [(2, "kerberos v5"), (3, "cleartext"), (5, "md5"), (6, "scm credential"), (7, "gss"), (9, "sspi")];
    for (code, name) in names {
        assert_eq!(asked(code, b"proof\0", &welcome).talk.about.auth.name(), name);
    }
}

#[test]
fn a_refusal_and_a_cancel_are_seen() {
    let mut l = line();
    l.handshake();
    l.client(&pg::startup("app", "shop"));
    l.server(&pg::message(b'E', b"SFATAL\0C28000\0Mno entry\0\0"));
    let about = analysed(&l).closed.remove(0).talk.about.clone();
    assert_eq!((about.auth.name(), about.let_in, about.sqlstate.as_str()), ("unseen", Some(false), "28000"));
    // As a server says it that cannot start a process.
    let mut l = line();
    l.handshake();
    l.client(&pg::startup("app", "shop"));
    l.server(b"Ecould not fork new process for connection: no memory\n\0");
    assert_eq!(analysed(&l).closed.remove(0).talk.about.let_in, Some(false));
    for key in [8, 36] {
        let mut l = line();
        l.handshake();
        l.client(&pg::first(80_877_102, &vec![7; key]));
        l.close();
        let c = analysed(&l).closed.remove(0);
        assert_eq!((c.talk.about.auth.name(), c.talk.about.let_in, c.trips.unanswered), ("cancel key", None, 0));
    }
}

/// What a client says first that speaks TLS at once; `protocols`: by ALPN.
fn client_hello(protocols: &[&str]) -> Vec<u8> {
    let names: Vec<u8> = protocols.iter().flat_map(|name| [&[name.len() as u8], name.as_bytes()].concat()).collect();
    let two = |bytes: Vec<u8>| [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
    let alpn = if names.is_empty() { vec![] } else { [&[0, 16][..], &two(two(names))].concat() };
    let extensions = [&[0, 23, 0, 0][..], &alpn, &[0, 45, 0, 2, 1, 1]].concat();
    let fields =
        [&[3, 3][..], &[7; 32], &[32], &[9; 32], &two(vec![0x13, 1, 0x13, 2]), &[1, 0], &two(extensions)].concat();
    let body = [&[1, 0][..], &(fields.len() as u16).to_be_bytes(), &fields].concat();
    [&[0x16, 3, 1][..], &two(body)].concat()
}

#[test]
fn tls_without_a_request_is_of_postgresql_where_the_client_says_so() {
    let spoken = |hello: &[u8], answer: &[u8]| {
        let mut l = line();
        l.handshake();
        l.client(hello);
        if !answer.is_empty() {
            l.server(answer);
        }
        let c = analysed(&l).closed.remove(0);
        (c.talk.protocol(), c.talk.about.tls.name())
    };
    let server_hello = [0x16, 3, 3, 0, 4, 2, 2, 3, 4];
    assert_eq!(spoken(&client_hello(&["h2", "postgresql"]), &server_hello), ("postgresql", "accepted"));
    assert_eq!(spoken(&client_hello(&["h2"]), &server_hello), ("tls", "accepted"));
    assert_eq!(spoken(&client_hello(&[]), &server_hello), ("tls", "accepted"));
    assert_eq!(spoken(&client_hello(&["postgresql"]), &[0x15, 3, 3, 0, 2, 2, 40]), ("postgresql", "refused"));
    assert_eq!(spoken(&client_hello(&["postgresql"]), &[]), ("postgresql", "asked"));
    assert_eq!(spoken(&client_hello(&["postgresql"])[..80], &server_hello), ("tls", "accepted"));
    assert_eq!(spoken(&pg::ssl_request(), &[]), ("postgresql", "asked"));
}

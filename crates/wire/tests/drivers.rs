//! What drivers of PostgreSQL and MySQL really send: `testdata/wire` says what each program did.

#[allow(dead_code)]
mod made;

use std::fs::File;
use std::path::Path;

use leadline_wire::analyser::Analyser;
use leadline_wire::connection::Connection;
use leadline_wire::talk::about::Auth;
use made::analysed_for;

fn seen(name: &str) -> Analyser {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../testdata/wire/{name}.pcap"));
    let seen = analysed_for(File::open(path).unwrap(), &[]);
    assert!(seen.trips.iter().all(|(_, trip)| trip.is_in_order()), "{name}");
    seen
}

fn spoken(name: &str) -> Connection {
    let mut seen = seen(name);
    assert_eq!(seen.closed.len(), 1, "{name}");
    seen.closed.remove(0)
}

#[test]
fn each_copy_of_a_driver_is_one_transaction_and_no_request_is_lost() {
    // Transactions, errors and parts of results as the programs make them; round trips as the messages show them.
    let drivers = [
        ("pg8000", 10, 35, 0, 0),
        ("tokio-postgres", 10, 22, 0, 0),
        ("pgx", 10, 13, 0, 0),
        ("psycopg3-fail", 15, 25, 10, 0),
        ("asyncpg", 17, 32, 0, 8),
        ("npgsql", 30, 45, 4, 0),
        ("postgres.js", 11, 38, 0, 20),
    ];
    for (driver, transactions, answered, errors, continued) in drivers {
        let c = spoken(driver);
        let t = c.trips;
        let found = (t.transactions, t.answered, t.errors, t.continued);
        assert_eq!(found, (transactions, answered, errors, continued), "{driver}");
        assert_eq!((t.unanswered, c.talk.about.lost_places), (0, 0), "{driver}");
    }
    let t = spoken("psycopg3-cursor").trips;
    assert_eq!((t.transactions, t.cursors, t.cursor_fetches, t.rows), (1, 1, 21, 1000));
}

/// Logins by each method and what follows, also compressed. Statements as the programs send them; the client of MySQL 9.7 sends two more,
/// of which the server refuses one.
#[test]
fn each_statement_of_drivers_of_mysql_is_counted_whatever_its_login_and_compression() {
    for (name, method, let_in, statements, errors) in [
        ("mysql2", "caching_sha2_password", true, 46, 0),
        ("mariadb.js-zlib", "caching_sha2_password", true, 46, 0),
        ("mysql-connector-zlib", "caching_sha2_password", true, 26, 0),
        ("mysql-fast", "caching_sha2_password", true, 25, 1),
        ("mysql-full-key", "caching_sha2_password", true, 25, 1),
        ("mysql-zstd", "caching_sha2_password", true, 25, 1),
        ("mysql-sha256", "sha256_password", true, 25, 1),
        ("mysql-wrong", "caching_sha2_password", false, 0, 0),
    ] {
        let c = spoken(name);
        let (t, about) = (c.trips, &c.talk.about);
        assert_eq!((c.talk.protocol(), t.statements, t.errors), ("mysql", statements, errors), "{name}");
        assert_eq!((about.let_in, about.password_readable, about.lost_places), (Some(let_in), false, 0), "{name}");
        assert!(matches!(&about.auth, Auth::By(by) if by == method), "{name}: {:?}", about.auth);
    }
}

#[test]
fn tls_from_the_first_byte_and_a_cancel_request_are_known() {
    let c = spoken("direct-tls");
    assert_eq!((c.talk.protocol(), c.talk.is_read()), ("postgresql", false));
    assert!(c.trips.answered >= 3, "{:?}", c.trips);
    // A query, the request to cancel it over a connection of its own, and a user that does not exist.
    let all = seen("cancel").closed;
    let told: Vec<_> = all.iter().map(|c| (c.trips.answered, c.trips.errors, c.talk.about.let_in)).collect();
    assert_eq!(told, [(1, 1, Some(true)), (0, 0, None), (0, 0, Some(false))]);
    assert!(matches!(&all[1].talk.about.auth, Auth::By(by) if by == "cancel key"));
}

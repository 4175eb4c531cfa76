//! What drivers of PostgreSQL really send with COPY and with parts of results: `testdata/wire` has five of each.

use std::fs::File;
use std::path::Path;

use leadline_wire::analyser::{Analyser, Options};
use leadline_wire::connection::Connection;
use leadline_wire::file::PacketReader;

fn spoken(driver: &str) -> Connection {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../testdata/wire/{driver}.pcap"));
    let mut packets = PacketReader::new(File::open(path).unwrap()).unwrap();
    let mut analyser = Analyser::new(Options { interval_ns: 1_000_000_000, keep_rows: true, ..Options::default() });
    while let Some(packet) = packets.next_packet().unwrap() {
        analyser.take(&packet);
    }
    analyser.finish();
    assert_eq!(analyser.closed.len(), 1);
    assert!(analyser.trips.iter().all(|(_, trip)| trip.is_in_order()));
    analyser.closed.remove(0)
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
        ("postgres.js", 11, 38, 0, 20),
    ];
    for (driver, transactions, answered, errors, continued) in drivers {
        let c = spoken(driver);
        let t = c.trips;
        let found = (t.transactions, t.answered, t.errors, t.continued);
        assert_eq!(found, (transactions, answered, errors, continued), "{driver}");
        assert_eq!((t.unanswered, c.talk.about.lost_places), (0, 0), "{driver}");
    }
}

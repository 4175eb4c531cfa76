//! The proxy passes on every byte, in order, no earlier than asked; what it says of itself is what went through it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use leadline_net::address::Place;
use leadline_net::delay::{Delay, Plan};
use leadline_net::echo::Echo;
use leadline_net::frame::{Header, HEADER};
use leadline_net::rtt;

fn ask(requests: u64, connections: u32) -> rtt::Plan {
    rtt::Plan {
        request: 100,
        response: 3000,
        connections,
        rate_hz: None,
        duration: Duration::from_secs(60),
        most: Some(requests),
        timeout: Duration::from_secs(20),
        interval: None,
    }
}

fn to(address: std::net::SocketAddr) -> Place {
    Place::new(&address.ip().to_string(), address.port())
}

#[test]
fn no_round_trip_is_shorter_than_the_delay_and_none_is_lost() {
    let server = Echo::start("127.0.0.1", 0).unwrap();
    let mut proxy = Delay::start("127.0.0.1", 0, &to(server.address()), Plan::new(Duration::from_millis(2))).unwrap();
    let found = rtt::run(&to(proxy.address()), &ask(100, 2), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(found["replies"], 200);
    // Less what a write takes in each direction, for which the proxy begins earlier.
    assert!(found["rtt"]["min_ns"].as_u64() >= Some(1_900_000), "{}", found["rtt"]);
    let told = proxy.stop().unwrap();
    assert_eq!((&told["connections"], &told["failed_connections"]), (&2.into(), &0.into()));
    assert_eq!((&told["to_server"]["bytes"], &told["to_client"]["bytes"]), (&(202 * 120).into(), &(202 * 3020).into()));
    assert!(told["to_server"]["added"]["min_ns"].as_u64() >= Some(900_000), "{told}");
    assert!(told["added_rtt_p50_ns"].as_u64() >= Some(1_900_000), "{told}");
}

/// Bytes of which each tells its place.
fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i % 251) as u8 ^ (i >> 16) as u8).collect()
}

#[test]
fn bytes_come_in_order_and_more_than_one_part_is_under_way() {
    for plan in [
        Plan::new(Duration::ZERO),
        Plan::new(Duration::from_millis(10)),
        Plan { jitter_ns: 2_000_000, ..Plan::new(Duration::from_millis(4)) },
        Plan { window: Some(300_000), buffer: 100_000, ..Plan::new(Duration::from_millis(1)) },
        Plan { rate_bit: Some(2e9), ..Plan::new(Duration::from_millis(1)) },
    ] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut proxy = Delay::start("127.0.0.1", 0, &to(server.local_addr().unwrap()), plan.clone()).unwrap();
        let sent = pattern(8 << 20);
        let expected = sent.clone();
        let far = thread::spawn(move || {
            let mut stream = server.accept().unwrap().0;
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap(); // the end of the stream comes through
            stream.write_all(&got[..1000]).unwrap();
            got
        });
        let mut near = TcpStream::connect(proxy.address()).unwrap();
        near.write_all(&sent).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        near.read_to_end(&mut back).unwrap(); // the other direction is still open
        assert!(far.join().unwrap() == expected, "{plan:?}");
        assert_eq!(back, expected[..1000]);
        let told = proxy.stop().unwrap();
        assert_eq!(told["to_server"]["bytes"], 8 << 20);
        assert_eq!(told["broken_connections"], 0, "{plan:?}");
        assert!(told["to_server"]["most_buffered_bytes"].as_u64() <= Some(plan.buffer as u64), "the buffer is bounded");
        if plan.one_way_ns == 5_000_000 {
            let parts = told["to_server"]["parts"].as_u64().unwrap();
            assert!(told["to_server"]["most_buffered_bytes"].as_u64() > Some(1 << 20), "{told}");
            assert!(parts > 8, "{told}");
        }
    }
}

/// No more than a window in each round trip: 32 windows take 31 round trips and half of one at the least.
#[test]
fn a_window_limits_the_throughput() {
    const WINDOW: usize = 64 << 10;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let plan = Plan { window: Some(WINDOW), ..Plan::new(Duration::from_millis(20)) };
    let proxy = Delay::start("127.0.0.1", 0, &to(server.local_addr().unwrap()), plan).unwrap();
    let mut near = TcpStream::connect(proxy.address()).unwrap();
    let mut far = server.accept().unwrap().0;
    let began = Instant::now();
    let sender = thread::spawn(move || near.write_all(&pattern(32 * WINDOW)).unwrap());
    assert_eq!(std::io::copy(&mut far, &mut std::io::sink()).unwrap(), 32 * WINDOW as u64);
    sender.join().unwrap();
    // Less what a write takes, for which the proxy begins earlier each time.
    assert!(began.elapsed() > Duration::from_millis(31 * 20 + 10 - 20), "{:?}", began.elapsed());
}

#[test]
fn a_receiver_that_reads_nothing_holds_the_sender_back_at_the_bound() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let plan = Plan { buffer: 1 << 20, ..Plan::new(Duration::from_micros(100)) };
    let mut proxy = Delay::start("127.0.0.1", 0, &to(server.local_addr().unwrap()), plan).unwrap();
    let mut near = TcpStream::connect(proxy.address()).unwrap();
    let _far = server.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    let piece = vec![7; 1 << 20];
    let mut sent = 0;
    let mut blocked_since = None;
    // It is full when nothing has been taken for a while; that it never ends is what the limit is for.
    while blocked_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
        match near.write(&piece) {
            Ok(n) => (sent, blocked_since) = (sent + n, None),
            Err(_) => _ = blocked_since.get_or_insert_with(Instant::now),
        }
        assert!(sent < 256 << 20, "nothing holds the sender back");
    }
    let told = proxy.stop().unwrap();
    assert!(told["to_server"]["most_buffered_bytes"].as_u64() <= Some(1 << 20), "{told}");
}

#[test]
fn without_a_server_the_client_is_reset_and_the_failure_counted() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut proxy = Delay::start("127.0.0.1", 0, &to(nobody), Plan::new(Duration::ZERO)).unwrap();
    for _ in 0..3 {
        let mut near = TcpStream::connect(proxy.address()).unwrap();
        assert!(near.read(&mut [0]).is_err(), "it is reset, and does not end in order");
    }
    let told = proxy.stop().unwrap();
    assert_eq!((&told["connections"], &told["failed_connections"]), (&3.into(), &3.into()));
    assert!(told["last_failure"].as_str().unwrap().contains("refused"));
}

/// Connecting takes a round trip, and so does the first answer. A server that speaks first is heard after two.
#[test]
fn a_connection_takes_the_round_trip_of_its_handshake_too() {
    const RTT: Duration = Duration::from_millis(40);
    let spare = Duration::from_millis(1); // what a write takes, for which the proxy begins earlier
    let server = Echo::start("127.0.0.1", 0).unwrap();
    let proxy = Delay::start("127.0.0.1", 0, &to(server.address()), Plan::new(RTT)).unwrap();
    let began = Instant::now();
    rtt::run(&to(proxy.address()), &ask(1, 1), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(began.elapsed() >= 3 * RTT - spare, "with the second answer");

    // A client that works before it asks is answered as late as one that asks at once.
    let mut near = TcpStream::connect(proxy.address()).unwrap();
    let mut head = [0; HEADER];
    for (seq, trips) in [(0, 2), (1, 1)] {
        thread::sleep(RTT + RTT / 2); // its work
        Header { seq, here: 0, wanted: 0 }.put(&mut head);
        let asked = Instant::now();
        near.write_all(&head).unwrap();
        near.read_exact(&mut head).unwrap();
        assert!(asked.elapsed() >= trips * RTT - spare, "request {seq}");
    }

    // The server gets the connection a round trip and a half after the client began, and its first bytes take half of one.
    let greets = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Delay::start("127.0.0.1", 0, &to(greets.local_addr().unwrap()), Plan::new(RTT)).unwrap();
    let began = Instant::now();
    let mut near = TcpStream::connect(proxy.address()).unwrap();
    let (mut far, _) = greets.accept().unwrap();
    assert!(began.elapsed() >= RTT + RTT / 2 - spare);
    thread::sleep(RTT); // its work
    far.write_all(b"hello").unwrap();
    near.read_exact(&mut [0; 5]).unwrap();
    assert!(began.elapsed() >= 3 * RTT - spare);
}

/// What a client sends before it hears anything keeps its distances, though it waits for the server's connection together.
#[test]
fn bytes_that_come_before_the_server_keep_their_distances() {
    const RTT: Duration = Duration::from_millis(80);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Delay::start("127.0.0.1", 0, &to(server.local_addr().unwrap()), Plan::new(RTT)).unwrap();
    let mut near = TcpStream::connect(proxy.address()).unwrap();
    let sent = [0, 1].map(|byte| {
        let at = Instant::now();
        near.write_all(&[byte]).unwrap();
        thread::sleep(RTT / 2); // its work
        at
    });
    let (mut far, _) = server.accept().unwrap();
    for at in sent {
        far.read_exact(&mut [0]).unwrap();
        assert!(at.elapsed() >= RTT + RTT / 2 - Duration::from_millis(1));
    }
}

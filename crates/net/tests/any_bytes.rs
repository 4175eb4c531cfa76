//! Whatever a server answers: a client ends in time, with an outcome or a fault, and never panics.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leadline_net::address::Place;
use leadline_net::postgres::{Login, Session, SslMode};
use leadline_net::{mysql, rtt};
use leadline_testdata::{noise, Random};

const ROUNDS: u64 = 300;

/// A beginning of a real conversation and noise behind it, or noise alone.
fn said(random: &mut Random, beginnings: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    if random.below(4) > 0 {
        let beginning = beginnings[random.index(beginnings.len())];
        out.extend_from_slice(&beginning[..random.index(beginning.len() + 1)]);
    }
    let length = random.index(400);
    out.extend(noise(random, length));
    out
}

/// Calls the client against servers that say such bytes and close; how many of the calls succeeded.
fn against(beginnings: &[&[u8]], client: impl Fn(Place) -> bool) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new("127.0.0.1", listener.local_addr().unwrap().port());
    let (tell, told) = mpsc::channel::<Vec<u8>>();
    let server = thread::spawn(move || {
        for bytes in told {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let mut random = Random(0xbad);
    let fine = (0..ROUNDS).filter(|_| {
        tell.send(said(&mut random, beginnings)).unwrap();
        client(place.clone())
    });
    let fine = fine.count();
    drop(tell);
    server.join().unwrap();
    fine
}

fn login(place: Place) -> Login {
    Login {
        place,
        user: "app".into(),
        database: "shop".into(),
        password: Some("secret".into()),
        ssl: SslMode::Prefer,
        root: None,
        timeout: Duration::from_secs(10),
        receive_buffer: None,
    }
}

#[test]
fn postgres() {
    let ok = b"NR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    let scram = b"NR\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0R\0\0\0\x10\0\0\0\x0br=x,s=eA==,i=4";
    let fine = against(&[ok, scram, b"NR\0\0\0\x0c\0\0\0\x05salt", b"S"], |place| match Session::open(&login(place)) {
        Ok((mut session, _)) => {
            let _ = (session.ping(), session.prepare(), session.execute());
            true
        }
        Err(_) => false,
    });
    assert!(fine > 0 && fine < ROUNDS as usize / 2, "{fine} logins: some beginnings are whole");
}

#[test]
fn mysql_server() {
    let greeting = [
        b"\x4a\0\0\0\x0a8.0.36\0\x01\0\0\0".as_slice(),
        b"12345678\0\0\x82\x2d\x02\0\x08\0\x15",
        &[0; 10],
        b"abcdefghijkl\0mysql_native_password\0\x07\0\0\x02\0\0\0\x02\0\0\0",
    ]
    .concat();
    let fine = against(&[&greeting], |place| match mysql::Session::open(&login(place)) {
        Ok((mut session, _)) => {
            let _ = (session.ping(), session.prepare(), session.execute());
            true
        }
        Err(_) => false,
    });
    assert!(fine < ROUNDS as usize / 2, "{fine} logins");
}

#[test]
fn echo() {
    let plan = rtt::Plan {
        request: 10,
        response: 10,
        connections: 1,
        rate_hz: None,
        duration: Duration::from_secs(10),
        most: Some(3),
        timeout: Duration::from_secs(10),
        interval: Some(Duration::from_secs(1)),
    };
    let reply = [b"LLE1".as_slice(), &[0; 8], &[10, 0, 0, 0], &[0; 14]].concat();
    // All is there at once, and a client that gets more than the reply says so.
    let fine = against(&[&reply], |place| rtt::run(&place, &plan, &AtomicBool::new(false), &mut |_| {}).is_ok());
    assert!(fine < ROUNDS as usize / 4, "{fine}");
}

//! The protocol of MySQL in packets: logins by each method, compression, files of the client.

#[allow(dead_code)]
mod made;

use leadline_wire::connection::Connection;
use made::{analysed, File, Line};
use std::io::Write;

const PROTOCOL_41: u32 = 0x200;
const SECURE: u32 = 0x8000;
const PLUGIN: u32 = 0x8_0000;
const COMPRESS: u32 = 0x20;
const ZSTD: u32 = 0x400_0000;
const MODERN: u32 = PROTOCOL_41 | SECURE | PLUGIN;
const SECRET: &[u8] = b"swordfish\0";

fn only(line: &Line) -> Connection {
    analysed(line).closed.remove(0)
}

fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = (body.len() as u32).to_le_bytes();
    [&[a, b, c, number][..], body].concat()
}

/// The server can do everything.
fn greeting(plugin: &str) -> Vec<u8> {
    let fixed = [&b"\x0a8.0.30\0"[..], &[1, 0, 0, 0], b"abcdefgh\0", &[0xFF, 0xFF, 45, 2, 0, 0xFF, 0xFF, 21], &[0; 10]];
    packet(0, &[&fixed.concat()[..], b"abcdefghijkl\0", plugin.as_bytes(), b"\0"].concat())
}

fn login(flags: u32, proof: &[u8], plugin: &str) -> Vec<u8> {
    let mut body = [&flags.to_le_bytes()[..], &[0; 28], b"app\0"].concat();
    if flags & SECURE != 0 {
        body.push(proof.len() as u8);
    }
    body.extend(proof);
    if flags & PLUGIN != 0 {
        body.extend([plugin.as_bytes(), b"\0"].concat());
    }
    packet(1, &body)
}

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

fn line() -> Line {
    let mut l = Line::new(File::pcapng(1), 3306);
    l.handshake();
    l
}

/// What is said in turn, the server first; then the server is content. The name of the method, and whether the password was readable.
fn proven(said: &[Vec<u8>]) -> (String, bool) {
    let mut l = line();
    said.iter().enumerate().for_each(|(n, bytes)| l.say(n % 2 == 1, bytes));
    l.server(&packet(said.len() as u8, OK));
    for _ in 0..3 {
        l.client(&packet(0, b"\x03select"));
        l.server(&packet(1, OK));
    }
    let c = only(&l);
    assert_eq!((c.talk.protocol(), c.trips.statements, c.talk.about.let_in), ("mysql", 3, Some(true)));
    assert!(!format!("{:?}", c.talk.about).contains("swordfish"));
    (c.talk.about.auth.name().to_owned(), c.talk.about.password_readable)
}

fn by(name: &str, readable: bool) -> (String, bool) {
    (name.to_owned(), readable)
}

#[test]
fn a_login_without_a_plugin_is_by_the_only_method_that_there_was() {
    let native = by("mysql_native_password", false);
    assert_eq!(proven(&[greeting(""), login(PROTOCOL_41 | SECURE, &[7; 20], "")]), native);
    assert_eq!(proven(&[greeting("mysql_native_password"), login(MODERN, &[7; 20], "mysql_native_password")]), native);
    // A client since 4.1 without the newer hash, and one before 4.1.
    let old = by("mysql_old_password", false);
    assert_eq!(proven(&[greeting(""), login(PROTOCOL_41, b"abcdefgh\0", "")]), old);
    assert_eq!(proven(&[greeting(""), packet(1, b"\x05\x20\0\0\0app\0abcdefgh")]), old);
    assert_eq!(
        proven(&[
            greeting(""),
            login(PROTOCOL_41 | SECURE, &[7; 20], ""),
            packet(2, &[0xFE]),
            packet(3, b"abcdefgh\0")
        ]),
        old
    );
}

#[test]
fn who_sends_nothing_was_asked_for_nothing() {
    let nothing = by("not asked", false);
    assert_eq!(proven(&[greeting(""), login(PROTOCOL_41 | SECURE, b"", "")]), nothing);
    assert_eq!(proven(&[greeting(""), login(PROTOCOL_41, b"\0", "")]), nothing);
    assert_eq!(proven(&[greeting(""), packet(1, b"\x05\x20\0\0\0app\0")]), nothing);
    assert_eq!(proven(&[greeting("caching_sha2_password"), login(MODERN, b"\0", "caching_sha2_password")]), nothing);
}

#[test]
fn methods_that_send_a_password_are_readable() {
    let switch = |name: &str| packet(2, &[b"\xFE", name.as_bytes(), b"\0"].concat());
    let first = || [greeting("x"), login(MODERN, &[7; 20], "mysql_native_password")];
    let switched = |name: &str, proof: &[u8]| {
        let [a, b] = first();
        proven(&[a, b, switch(name), packet(3, proof)])
    };
    assert_eq!(switched("mysql_clear_password", SECRET), by("mysql_clear_password", true));
    assert_eq!(switched("dialog", SECRET), by("dialog", true));
    assert_eq!(switched("client_ed25519", &[7; 64]), by("client_ed25519", false));
    assert_eq!(switched("auth_gssapi_client", &[7; 64]), by("auth_gssapi_client", false));
    assert_eq!(switched("sha256_password", SECRET), by("sha256_password", true));
    assert_eq!(switched("sha256_password", &[7; 256]), by("sha256_password", false));
    assert_eq!(
        proven(&[greeting("x"), login(MODERN, SECRET, "mysql_clear_password")]),
        by("mysql_clear_password", true)
    );
}

#[test]
fn caching_sha2_sends_the_password_only_without_the_key_of_the_server() {
    let begin = || [greeting("caching_sha2_password"), login(MODERN, &[7; 32], "caching_sha2_password")];
    let name = "caching_sha2_password";
    let [a, b] = begin();
    let l = {
        let mut l = line();
        l.server(&a);
        l.client(&b);
        l.server(&[packet(2, &[1, 3]), packet(3, OK)].concat()); // known already
        only(&l)
    };
    assert_eq!((l.talk.about.auth.name(), l.talk.about.password_readable), (name, false));
    let more = |said: &[Vec<u8>]| proven(&[&begin()[..], &[packet(2, &[1, 4])], said].concat());
    assert_eq!(more(&[packet(3, SECRET)]), by(name, true));
    assert_eq!(more(&[packet(3, &[2]), packet(4, b"\x01key"), packet(5, &[7; 256])]), by(name, false));
}

#[test]
fn a_server_that_refuses_before_its_greeting_is_seen() {
    let mut l = line();
    l.server(&packet(0, b"\xFF\x10\x04Too many connections"));
    let c = only(&l);
    assert_eq!((c.talk.protocol(), c.talk.about.let_in, c.talk.about.auth.name()), ("mysql", Some(false), "unseen"));
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::ZlibEncoder::new(vec![], flate2::Compression::default());
    packed.write_all(plain).unwrap();
    packed.finish().unwrap()
}

fn frame(number: u8, packed: &[u8], plain: usize) -> Vec<u8> {
    let [a, b, c, _] = (packed.len() as u32).to_le_bytes();
    let [d, e, f, _] = (plain as u32).to_le_bytes();
    [&[a, b, c, number, d, e, f][..], packed].concat()
}

/// Statements through a compressed connection, in segments of `size`.
fn compressed(flags: u32, pack: impl Fn(&[u8]) -> Vec<u8>, size: usize) -> Connection {
    let mut l = line();
    l.server(&greeting("mysql_native_password"));
    l.client(&login(MODERN | flags, &[7; 20], "mysql_native_password"));
    l.server(&packet(2, OK));
    let long = [b"\x03select ".to_vec(), vec![b'x'; 90_000]].concat();
    for _ in 0..5 {
        // A short packet is not packed, a long one in two frames.
        l.client(&frame(0, &packet(0, b"\x03go"), 0));
        l.server(&frame(1, &packet(1, OK), 0));
        let plain = packet(0, &long);
        let (one, two) = plain.split_at(50_000);
        let request = [frame(0, &pack(one), one.len()), frame(1, &pack(two), two.len())].concat();
        request.chunks(size).for_each(|piece| l.client(piece));
        let answer = packet(1, OK);
        l.server(&frame(2, &pack(&answer), answer.len()));
    }
    only(&l)
}

#[test]
fn statements_of_a_compressed_connection_are_counted() {
    let zstd = |plain: &[u8]| zstd::bulk::compress(plain, 3).unwrap();
    for size in [7, 11, 64, 100_000] {
        for c in
            [compressed(COMPRESS, zlib, size), compressed(ZSTD, zstd, size), compressed(COMPRESS | ZSTD, zlib, size)]
        {
            let t = c.trips;
            assert_eq!((t.statements, t.answered, t.transactions), (10, 10, 10), "pieces of {size}");
            assert_eq!(c.talk.about.lost_places, 0);
        }
    }
}

#[test]
fn a_compressed_frame_that_lies_is_a_lost_place() {
    let mut l = line();
    l.server(&greeting("mysql_native_password"));
    l.client(&login(MODERN | COMPRESS, &[7; 20], "mysql_native_password"));
    l.server(&packet(2, OK));
    let go = packet(0, b"\x03go");
    let lies = [frame(0, &zlib(&go), 500), frame(0, &zlib(&[0; 1000]), 9), frame(0, b"no zlib", 9), frame(0, &[], 9)];
    for lie in &lies {
        l.client(lie);
        l.server(&frame(1, &packet(1, OK), 0));
        l.client(&frame(0, &zlib(&go), go.len()));
        l.server(&frame(1, &packet(1, OK), 0));
    }
    let c = only(&l);
    // The first has a statement, but not all that it says.
    assert_eq!((c.trips.statements, c.talk.about.lost_places), (1 + lies.len() as u64, lies.len() as u64));
}

#[test]
fn a_file_that_the_server_asks_for_is_no_statement() {
    let mut l = line();
    l.server(&greeting("mysql_native_password"));
    l.client(&login(MODERN, &[7; 20], "mysql_native_password"));
    l.server(&packet(2, OK));
    l.client(&packet(0, b"\x03load data local"));
    l.server(&packet(1, b"\xFB/tmp/file"));
    l.client(&[packet(2, b"\x03\x03\x03"), packet(3, b"\x16..."), packet(4, b"")].concat());
    l.server(&packet(5, OK));
    l.client(&packet(0, b"\x03select"));
    l.server(&packet(1, OK));
    let seen = analysed(&l);
    let purposes: Vec<_> =
        seen.trips.iter().map(|(_, t)| t.purpose.name()).filter(|name| *name != "start-up").collect();
    assert_eq!(purposes, ["simple query", "copy in", "simple query"]);
    assert_eq!((seen.closed[0].trips.statements, seen.closed[0].trips.transactions), (2, 2));
}

#[test]
fn a_user_that_is_changed_proves_who_it_is_again() {
    let mut l = line();
    l.server(&greeting("mysql_native_password"));
    l.client(&login(MODERN, &[7; 20], "mysql_native_password"));
    l.server(&packet(2, OK));
    for _ in 0..2 {
        l.client(&packet(0, b"\x11other\0"));
        l.server(&packet(1, b"\xFEmysql_native_password\0abcdefghijklmnopqrst\0"));
        l.client(&packet(2, b"\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03"));
        l.server(&packet(3, OK));
        l.client(&packet(0, b"\x03select"));
        l.server(&packet(1, OK));
    }
    assert_eq!(only(&l).trips.statements, 2);
}

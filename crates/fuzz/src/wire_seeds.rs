//! Files of packets and conversations to begin with.

use leadline_testdata::{noise, Random};

use crate::packets::GREETING;
use crate::wire_made::{login, pg, File, Line};

/// Each format whole, and each kind of link with noise behind the header.
pub fn files(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = vec![spoken(File::pcap(1)), spoken(File::pcapng(1)), vec![], b"no packets".to_vec()];
    for link in [0, 1, 101, 113, 276] {
        for file in [File::pcap(u32::from(link)), File::pcapng(link)] {
            all.push([file.bytes, noise(random, 200)].concat());
        }
    }
    all.push(File::pcap(9999).bytes);
    all
}

fn spoken(file: File) -> Vec<u8> {
    let mut line = Line::new(file, 5432);
    login(&mut line);
    for status in [b'T', b'I'] {
        line.client(&asked());
        line.server(&pg::answer(5, status));
        line.again(false, &pg::answer(5, status));
    }
    line.client(b"\x03\0\0\0\x03go");
    line.close();
    line.file.bytes
}

fn asked() -> Vec<u8> {
    [pg::query("select"), pg::execute(9), pg::message(b'S', b"")].concat()
}

/// What both ends say, with each beginning; some of it again, cut, or behind a hole.
pub fn conversations() -> Vec<Vec<u8>> {
    let postgres = [
        (0, asked()),
        (1, pg::answer(5, b'T')),
        (0x71, pg::answer(2, b'T')),
        (0x80, asked()),
        (1, pg::answer(1, b'I')),
    ];
    let starts = [
        (0, pg::ssl_request()),
        (1, b"S".to_vec()),
        (0, vec![0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]),
        (1, vec![0x17, 3, 3, 0, 2, 7, 7]),
    ];
    let logins = [
        (0, pg::startup("app", "shop")),
        (1, pg::auth(3)),
        (0, pg::message(b'p', b"secret\0")),
        (1, pg::auth(0)),
        (1, pg::ready(b'I')),
    ];
    let commands =
        [(0, GREETING.to_vec()), (0, b"\x07\0\0\0\x03select".to_vec()), (1, b"\x07\0\0\x01\0\0\0\x02\0\0\0".to_vec())];
    let cut = [(0x0E, asked()), (0x0F, pg::answer(9, b'I'))];
    let copies = [
        (0, [asked(), pg::message(b'd', b"r")].concat()),
        (1, pg::message(b'G', &[0; 3])),
        (0, [pg::message(b'c', b""), pg::message(b'S', b"")].concat()),
        (1, [pg::message(b'W', &[0; 3]), pg::message(b'd', b"w"), pg::ready(b'I')].concat()),
    ];
    let sasl = [
        (0, pg::startup("app", "shop")),
        (1, pg::message(b'R', b"\0\0\0\x0aOAUTHBEARER\0\0")),
        (0, pg::message(b'p', b"OAUTHBEARER\0\0\0\0\x0en,,\x01auth=B x\x01\x01")),
    ];
    // Compressed by zlib: what both can do, the end of the login, and a frame that is not packed and one that is.
    let squeezed = [
        (0, b"\x26\0\0\x01\x20\x82\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0app\0\x01\x07".to_vec()),
        (1, b"\x07\0\0\x02\0\0\0\x02\0\0\0".to_vec()),
        (0, b"\x07\0\0\0\0\0\0\x03\0\0\0\x03go".to_vec()),
        (1, b"\x0c\0\0\x01\x04\0\0\x78\x9c\x63\x60\x60\x60\x60\0\0\0\x04\0\x01".to_vec()),
    ];
    let talks: [&[(u8, Vec<u8>)]; 8] = [&postgres, &starts, &logins, &commands, &cut, &copies, &sasl, &squeezed];
    let talk = |start: u8, said: &[(u8, Vec<u8>)]| {
        let packets =
            said.iter().flat_map(|(how, piece)| [&[*how, piece.len() as u8], &piece[..piece.len().min(255)]].concat());
        [start].into_iter().chain(packets).collect()
    };
    talks.iter().flat_map(|said| (0..4).map(move |start| talk(start, said))).collect()
}

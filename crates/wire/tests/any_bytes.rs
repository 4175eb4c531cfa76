//! Random and damaged files and conversations: no panic, no more packets or bytes than there are, memory by the input.

#[allow(dead_code)]
mod made;

use leadline_noise::{noise, Random};
use leadline_wire::analyser::{Analyser, Options};
use leadline_wire::file::PacketReader;
use made::{login, pg, File, Line};

/// Packets that were read; none when it is no file of packets.
fn read(bytes: &[u8]) -> Option<u64> {
    let mut reader = PacketReader::new(bytes).ok()?;
    let mut analyser = Analyser::new(Options { ports: vec![], interval_ns: 1_000_000_000, keep_rows: false });
    while let Ok(Some(packet)) = reader.next_packet() {
        assert!(packet.data.len() <= bytes.len() && packet.wire_len as usize >= packet.data.len());
        analyser.take(&packet);
    }
    analyser.finish();
    let counts = reader.counts();
    assert!(counts.bytes <= bytes.len() as u64 && counts.packets <= bytes.len() as u64 / 16);
    assert_eq!(analyser.counts.packets, counts.packets);
    assert!(analyser.counts.connections <= counts.packets);
    for c in &analyser.closed {
        let [up, down] = [c.streams[0].sent, c.streams[1].sent];
        assert!(up.packets + down.packets <= counts.packets);
        assert!(c.trips.answered <= up.segments + up.gaps && c.talk.about.user.len() <= 3 * 63);
    }
    Some(counts.packets)
}

fn conversation(file: File) -> Vec<u8> {
    let mut l = Line::new(file, 5432);
    login(&mut l);
    for status in [b'T', b'I'] {
        l.client(&[pg::query("select"), pg::execute(9), pg::message(b'S', b"")].concat());
        l.server(&pg::answer(5, status));
        l.server(&pg::answer(5, status));
    }
    l.client(b"\x03\0\0\0\x03go");
    l.close();
    l.file.bytes
}

fn damaged(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5) as usize],
            _ => {
                let piece = noise(random, 8);
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

#[test]
fn damaged_files_end_with_what_is_whole() {
    let mut random = Random(11);
    let mut partly = 0;
    for whole in [conversation(File::pcap(1)), conversation(File::pcapng(1))] {
        let packets = read(&whole).unwrap();
        for _ in 0..20_000 {
            let bytes = damaged(&mut random, &whole);
            partly += u32::from(read(&bytes).is_some_and(|n| 0 < n && n < packets));
        }
    }
    assert!(partly > 1000, "{partly}");
}

#[test]
fn noise_behind_a_header_and_noise_alone_is_no_panic() {
    let mut random = Random(12);
    for n in 0..20_000 {
        let length = random.below(400) as usize;
        let rest = noise(&mut random, length);
        let mut bytes = match n % 3 {
            0 => vec![],
            1 => File::pcap([0, 1, 101, 113, 276][n % 5]).bytes,
            _ => File::pcapng(1).bytes,
        };
        bytes.extend(rest);
        read(&bytes);
    }
}

/// Whatever both ends say to each other, in pieces of any length.
#[test]
fn noise_as_a_conversation_is_no_panic() {
    let mut random = Random(13);
    let greeting = b"\x4a\0\0\0\x0a5.7.0\0abcdefgh\0\xff\xf7\x21\x02\0\xff\x81\x15\0\0\0\0\0\0\0\0\0\0abcdefghijkl\0caching_sha2_password\0";
    for n in 0..6000 {
        let mut l = Line::new(File::pcap(1), 5432);
        match n % 4 {
            0 => login(&mut l),
            1 => {
                l.handshake();
                l.server(greeting);
            }
            2 => l.handshake(),
            _ => {}
        }
        for _ in 0..random.below(12) {
            let length = random.below(60) as usize;
            let mut piece = noise(&mut random, length);
            if let (Some(kind), 0) = (piece.first_mut(), random.below(3)) {
                *kind = b"QPBESXpRZTDGs"[random.below(13) as usize];
            }
            if random.below(2) == 0 && piece.len() > 4 {
                piece[1..4].fill(0);
            }
            l.captured = if random.below(5) == 0 { 60 } else { usize::MAX };
            l.say(random.below(2) == 0, &piece);
            l.seqs[0] = l.seqs[0].wrapping_add(if random.below(9) == 0 { 7 } else { 0 });
        }
        assert!(read(&l.file.bytes).is_some());
    }
}

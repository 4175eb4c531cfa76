//! Packets: files of them, and what two ends say to each other.

use leadline_errors::Kind;
use leadline_wire::analyser::{Analyser, Options};
use leadline_wire::file::PacketReader;

use crate::choice;
use crate::wire_made::{login, File, Line};

/// A file of packets, followed to its end.
pub fn packets(data: &[u8]) -> &'static str {
    match read(data) {
        Ok((_, true)) => "ended early",
        Ok((analyser, false)) if analyser.counts.connections > 0 => "connections",
        Ok(_) => "packets",
        Err(e) => {
            assert!(!e.message.is_empty());
            e.kind.as_str()
        }
    }
}

/// A connection whose ends say these bytes. The first byte: how it begins. Then of each packet: a byte for side, repetition and loss, one
/// for its length, and its data.
pub fn conversation(data: &[u8]) -> &'static str {
    let (start, mut rest) = choice(data);
    let mut line = Line::new(File::pcap(1), 5432);
    match start % 4 {
        0 => login(&mut line),
        1 => {
            line.handshake();
            line.server(GREETING);
        }
        2 => line.handshake(),
        _ => {}
    }
    while !rest.is_empty() {
        let (how, more) = choice(rest);
        let (length, more) = choice(more);
        let (piece, more) = more.split_at(length.min(more.len()));
        rest = more;
        let from_client = how & 1 == 0;
        line.captured = if how & 0x0E == 0x0E { 60 } else { usize::MAX };
        if how & 0x70 == 0x70 {
            line.again(from_client, piece);
        } else {
            line.say(from_client, piece);
        }
        if how & 0x80 != 0 {
            let me = usize::from(!from_client);
            line.seqs[me] = line.seqs[me].wrapping_add(length as u32); // of which nothing was captured
        }
    }
    let (analyser, _) = read(&line.file.bytes).expect("a file of packets as it should be");
    analyser.closed.first().map_or("nothing said", |c| c.talk.protocol())
}

/// As MySQL begins a connection.
pub const GREETING: &[u8] =
    b"\x4a\0\0\0\x0a5.7.0\0abcdefgh\0\xff\xf7\x21\x02\0\xff\x81\x15\0\0\0\0\0\0\0\0\0\0abcdefghijkl\0caching_sha2_password\0";

/// No more packets, bytes and connections than there are; whether the file was cut off.
fn read(bytes: &[u8]) -> leadline_errors::Result<(Analyser, bool)> {
    let mut reader = PacketReader::new(bytes)?;
    let mut analyser =
        Analyser::new(Options { ports: vec![], interval_ns: 1_000_000_000, keep_rows: true, ..Options::default() });
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) => {
                assert!(packet.data.len() <= bytes.len() && packet.wire_len as usize >= packet.data.len());
                analyser.take(&packet);
            }
            Ok(None) => break,
            Err(e) => {
                assert!(e.kind == Kind::Unsupported || e.kind == Kind::Invalid);
                return Err(e);
            }
        }
    }
    analyser.finish();
    let counts = reader.counts();
    assert!(counts.bytes <= bytes.len() as u64 && counts.packets <= bytes.len() as u64 / 16);
    assert_eq!(analyser.counts.packets, counts.packets);
    assert!(analyser.counts.connections <= counts.packets);
    for c in &analyser.closed {
        let [up, down] = [c.streams[0].sent, c.streams[1].sent];
        assert!(up.packets + down.packets <= counts.packets);
        let times =
            [c.trips.answer_ns, c.trips.transfer_ns, c.trips.client_ns, c.held().1, c.connect_ns().unwrap_or(0)];
        assert!(times.iter().all(|ns| *ns >= 0), "{times:?}");
        assert!(c.trips.continued <= c.trips.fetches);
        assert!(c.trips.answered <= up.segments + up.gaps && c.talk.about.user.len() <= 3 * 63);
    }
    for (_, trip) in &analyser.trips {
        assert!(trip.is_in_order(), "{trip:?}");
    }
    Ok((analyser, counts.ended_early.is_some()))
}

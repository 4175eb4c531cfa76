//! Files of packets and headers: every form, damage, and what is missing.

#[allow(dead_code)]
mod made;

use leadline_wire::file::PacketReader;
use leadline_wire::packet::{Content, Packet};
use made::{ether, tcp, tcp6, File, ACK};

const NS: i64 = 1_700_000_000_123_456_789;

fn packets(bytes: &[u8]) -> (Vec<(i64, u32, usize)>, Option<String>) {
    let mut reader = PacketReader::new(bytes).unwrap();
    let mut seen = Vec::new();
    while let Some(p) = reader.next_packet().unwrap() {
        seen.push((p.ts, p.wire_len, p.data.len()));
    }
    (seen, reader.counts().ended_early)
}

fn frame() -> Vec<u8> {
    ether(&[], &tcp((1, 40_000), (2, 5432), 1, 1, ACK, b"hello"))
}

#[test]
fn pcap_in_both_byte_orders_and_both_units() {
    for (magic, big, unit) in
        [(0xA1B2_C3D4u32, false, 1000), (0xA1B2_C3D4, true, 1000), (0xA1B2_3C4D, false, 1), (0xA1B2_3C4D, true, 1)]
    {
        let word = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let half = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut bytes = word(magic).to_vec();
        bytes.extend([half(2), half(4)].concat());
        [0, 0, 262_144, 1].into_iter().for_each(|v| bytes.extend(word(v)));
        let data = frame();
        let time = [(NS / 1_000_000_000) as u32, (NS % 1_000_000_000 / unit) as u32];
        time.into_iter().chain([20, data.len() as u32]).for_each(|v| bytes.extend(word(v)));
        bytes.extend(&data[..20]);
        assert_eq!(packets(&bytes), (vec![(NS / unit * unit, data.len() as u32, 20)], None), "{magic:x} big {big}");
    }
}

#[test]
fn pcapng_has_interfaces_units_simple_packets_and_blocks_that_are_passed_over() {
    let mut file = File::pcapng(1);
    file.packet(NS, &frame(), 30);
    file.block(0xBAD, &[1, 2, 3, 4]);
    // An interface with units of 2^-20 s that begin 10 s later, and one packet of it.
    file.block(
        1,
        &[&[101, 0, 0, 0, 0, 0, 0, 0][..], &[9, 0, 1, 0, 0x94, 0, 0, 0], &[14, 0, 8, 0], &10u64.to_le_bytes(), &[0; 4]]
            .concat(),
    );
    let ts = 3u64 << 20 | 1 << 19;
    let head: Vec<u8> = [1, (ts >> 32) as u32, ts as u32, 4, 9].into_iter().flat_map(u32::to_le_bytes).collect();
    file.block(6, &[&head[..], &[0x45, 0, 0, 0]].concat());
    file.block(3, &[&6u32.to_le_bytes()[..], &[1; 6]].concat());
    file.block(5, &[&[0u8; 12][..], &[5, 0, 8, 0], &7u64.to_le_bytes(), &[0; 4]].concat());
    let mut reader = PacketReader::new(&file.bytes[..]).unwrap();
    let mut seen = Vec::new();
    while let Some(p) = reader.next_packet().unwrap() {
        seen.push((p.ts, p.wire_len, p.data.len()));
    }
    assert_eq!(seen, [(NS, frame().len() as u32, 30), (13_500_000_000, 9, 4), (13_500_000_000, 6, 6)]);
    let counts = reader.counts();
    assert_eq!((counts.packets, counts.skipped_blocks, counts.without_time, counts.dropped), (3, 1, 1, 7));
    assert_eq!(counts.bytes, file.bytes.len() as u64);
}

#[test]
fn a_big_endian_section_follows_a_little_endian_one() {
    let mut bytes = File::pcapng(1).bytes;
    let word = |v: u32| v.to_be_bytes();
    let block = |kind: u32, body: &[u8]| {
        [&word(kind)[..], &word(12 + body.len() as u32), body, &word(12 + body.len() as u32)].concat()
    };
    bytes.extend(block(0x0A0D_0D0A, &[&word(0x1A2B_3C4D)[..], &[0, 1, 0, 0], &[0xFF; 8]].concat()));
    bytes.extend(block(1, &[0, 101, 0, 0, 0, 0, 0, 0]));
    bytes.extend(block(6, &[word(0), word(0), word(5), word(4), word(4), [0x45, 0, 0, 0]].concat()));
    assert_eq!(packets(&bytes), (vec![(5000, 4, 4)], None));
}

#[test]
fn an_unknown_link_type_is_one_error_that_names_it() {
    let error = PacketReader::new(&File::pcap(195).bytes[..]).err().unwrap();
    assert_eq!((error.kind.as_str(), error.message.as_str()), ("unsupported", "packets of link type 195 are not read"));
    let mut file = File::pcapng(195);
    file.packet(NS, &frame(), 30);
    let mut reader = PacketReader::new(&file.bytes[..]).unwrap();
    assert_eq!(reader.next_packet().unwrap().map(|p| p.link), Some(leadline_wire::packet::Link::Unknown));
    assert_eq!(reader.next_packet().unwrap_err().message, error.message);
}

#[test]
fn packets_of_an_unknown_link_type_do_not_end_the_reading() {
    let mut file = File::pcapng(195);
    file.interface();
    file.packet_at(0, NS, &frame());
    file.packet_at(1, NS, &frame());
    file.packet_at(0, NS, &frame());
    assert_eq!(packets(&file.bytes), (vec![(NS, frame().len() as u32, frame().len()); 3], None));
}

#[test]
fn packets_of_an_interface_that_is_not_described_are_passed_over() {
    let mut file = File::pcapng(1);
    file.packet_at(0, NS, &frame());
    file.packet_at(82, NS, &frame());
    file.packet_at(0, NS, &frame());
    let mut reader = PacketReader::new(&file.bytes[..]).unwrap();
    while reader.next_packet().unwrap().is_some() {}
    assert_eq!((reader.counts().packets, reader.counts().skipped_blocks), (2, 1));
}

#[test]
fn what_is_no_file_of_packets_is_one_error() {
    for (bytes, message) in [
        (&b""[..], "this is not a file of packets"),
        (&b"SELECT 1"[..], "this is not a file of packets"),
        (
            &File::pcap(1).bytes[..20],
            "the header of the file is not whole: network at offset 20 needs 4 bytes, but 0 are left",
        ),
    ] {
        assert_eq!(PacketReader::new(bytes).err().unwrap().message, message);
    }
}

#[test]
fn damage_behind_the_first_packets_ends_the_file_early_and_is_told() {
    for mut file in [File::pcap(1), File::pcapng(1)] {
        file.packet(NS, &frame(), 999);
        let whole = file.bytes.len();
        file.packet(NS, &frame(), 999);
        let (seen, early) = packets(&file.bytes[..whole + 21]);
        assert_eq!(
            (seen.len(), early.unwrap()),
            (1, format!("the last packet is not whole: 21 bytes are left at offset {whole}"))
        );
        file.bytes.truncate(whole);
        file.bytes.extend([0x7F; 40]);
        let (seen, early) = packets(&file.bytes);
        assert_eq!(seen.len(), 1);
        assert!(early.unwrap().starts_with(&format!("damaged at offset {whole}: a ")));
    }
}

#[test]
fn packets_longer_than_the_buffer_are_read() {
    let mut file = File::pcap(1);
    file.packet(0, &vec![7; 500_000], 500_000);
    file.packet(1000, &frame(), 999);
    assert_eq!(packets(&file.bytes).0, [(0, 500_000, 500_000), (1000, frame().len() as u32, frame().len())]);
}

fn content(link: u32, data: &[u8]) -> String {
    let packet = Packet {
        ts: 0,
        wire_len: data.len() as u32,
        link: leadline_wire::packet::Link::of(link).unwrap(),
        place: 0,
        data,
    };
    match leadline_wire::headers::content(&packet) {
        Content::Tcp(s) => {
            format!(
                "{}:{} {}:{} {}+{}",
                s.from.addr_text(),
                s.from.port,
                s.to.addr_text(),
                s.to.port,
                s.payload.len(),
                s.payload_len
            )
        }
        Content::Fragment(part) => format!("part {}+{} more {}", part.at, part.length, part.more),
        other => format!("{other:?}"),
    }
}

#[test]
fn each_link_type_leads_to_the_same_segment() {
    let (four, six) = (tcp((1, 9), (2, 5432), 1, 1, ACK, b"abc"), tcp6((1, 9), (2, 5432), 1, 1, ACK, b"abc"));
    let (is_four, is_six) = ("10.0.0.1:9 10.0.0.2:5432 3+3", "2001:db8::1:9 2001:db8::2:5432 3+3");
    assert_eq!(content(1, &ether(&[], &four)), is_four);
    assert_eq!(content(1, &ether(&[0x8100], &six)), is_six);
    assert_eq!(content(1, &ether(&[0x88A8, 0x8100], &four)), is_four);
    assert_eq!(content(113, &[&[0; 14][..], &[8, 0], &four].concat()), is_four);
    assert_eq!(content(276, &[&[0x86, 0xDD][..], &[0; 18], &six].concat()), is_six);
    assert_eq!(content(101, &six), is_six);
    assert_eq!(content(0, &[&[2, 0, 0, 0][..], &four].concat()), is_four);
    assert_eq!(content(108, &[&[0, 0, 0, 30][..], &six].concat()), is_six);
}

#[test]
fn padding_is_no_data_and_what_was_not_captured_is_counted() {
    let mut padded = ether(&[], &tcp((1, 9), (2, 5432), 1, 1, ACK, b""));
    padded.extend([0; 6]);
    assert_eq!(content(1, &padded), "10.0.0.1:9 10.0.0.2:5432 0+0");
    let cut = ether(&[], &tcp((1, 9), (2, 5432), 1, 1, ACK, &[7; 100]));
    assert_eq!(content(1, &cut[..64]), "10.0.0.1:9 10.0.0.2:5432 10+100");
    assert_eq!(content(1, &cut[..50]), "Cut");
    assert_eq!(content(1, &[]), "Cut");
}

#[test]
fn fragments_other_protocols_and_contradictions_are_told_apart() {
    let whole = tcp((1, 9), (2, 5432), 1, 1, ACK, b"abc");
    let change = |at: usize, to: u8| {
        let mut bytes = whole.clone();
        bytes[at] = to;
        content(101, &bytes)
    };
    assert_eq!(change(6, 0x20), "part 0+23 more true");
    assert_eq!(change(7, 1), "part 8+23 more false");
    assert_eq!(change(9, 17), "Other");
    assert_eq!(change(0, 0x44), "Bad"); // a header of 16 bytes
    assert_eq!(change(3, 30), "Bad"); // shorter than the headers
    assert_eq!(change(32, 0x40), "Bad"); // a TCP header of 16 bytes
    assert_eq!(change(0, 0x95), "Other");
    let mut six = tcp6((1, 9), (2, 5432), 1, 1, ACK, b"abc");
    six[6] = 44;
    six[40..48].copy_from_slice(&[6, 0, 0, 9, 0, 0, 0, 1]);
    assert_eq!(content(101, &six), "part 8+23 more true");
    six[40..48].copy_from_slice(&[6, 0, 0, 0, 0, 0, 0, 1]); // all in one part is whole
    assert_eq!(content(101, &six), "2001:db8::1:9 2001:db8::2:5432 3+3");
    six[40] = 58;
    assert_eq!(content(101, &six), "Other");
}

/// A segment that the card cuts into packets has no length in its header when it is captured.
#[test]
fn a_length_of_zero_means_all_that_was_captured() {
    let mut bytes = tcp((1, 9), (2, 5432), 1, 1, ACK, &[7; 70_000 % 65_536]);
    bytes[2..4].fill(0);
    assert_eq!(content(101, &bytes), "10.0.0.1:9 10.0.0.2:5432 4464+4464");
}

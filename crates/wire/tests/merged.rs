//! Several files, files that are compressed, and files that are not in the order of time.

#[allow(dead_code)]
mod made;

use std::fs::File as Opened;
use std::io::Write;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};
use leadline_wire::analyser::Options;
use leadline_wire::file::{FileCounts, Source};
use leadline_wire::{read_files, Analyser, Go};
use made::{ether, login, pg, tcp, File, Line, ACK};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("leadline-merged-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        Opened::create(&path).unwrap().write_all(bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(paths: &[&Path]) -> Result<(Analyser, FileCounts), Error> {
    let open = |path: &&Path| Source { name: path.display().to_string(), file: Opened::open(path).unwrap() };
    let options = Options { interval_ns: 1_000_000_000, ..Options::default() };
    read_files(paths.iter().map(open).collect(), options, None, &mut |_| Go::On)
}

/// A login and queries; packet by packet in a file.
fn talk(file: File) -> Line {
    let mut l = Line::new(file, 5432);
    login(&mut l);
    for _ in 0..20 {
        l.client(&pg::query("select"));
        l.server(&pg::answer(2, b'I'));
    }
    l
}

fn figures(seen: &Analyser) -> (u64, u64, u64, u64, u128) {
    let c = &seen.closed[0];
    (seen.counts.packets, seen.closed.len() as u64, c.trips.answered, c.trips.transactions, seen.answer.sum())
}

const PCAP_HEADER: usize = 24;

/// The packets of a pcap file, each with its header.
fn cut(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut all) = (&bytes[PCAP_HEADER..], Vec::new());
    while !rest.is_empty() {
        let length = 16 + u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        all.push(&rest[..length]);
        rest = &rest[length..];
    }
    all
}

#[test]
fn compressed_files_are_read_and_damage_in_them_ends_them_early() {
    let folder = Folder::new("packed");
    let line = talk(File::pcap(1));
    let bytes = &line.file.bytes;
    let plain = folder.put("plain", bytes);
    let wanted = figures(&read(&[&plain]).unwrap().0);
    let (one, two) = bytes.split_at(bytes.len() / 2);
    let gzip = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let lz4 = |bytes: &[u8]| {
        let mut packed = lz4_flex::frame::FrameEncoder::new(Vec::new());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    for (name, packed) in [
        ("gzip", gzip(bytes)),
        ("two members of gzip", [gzip(one), gzip(two)].concat()),
        ("zstd", zstd(bytes)),
        ("two frames of zstd", [zstd(one), zstd(two)].concat()),
        ("lz4", lz4(bytes)),
    ] {
        let path = folder.put("packed", &packed);
        assert_eq!(figures(&read(&[&path]).unwrap().0), wanted, "{name}");
    }
    let path = folder.put("half", &gzip(bytes)[..gzip(bytes).len() - 20]);
    let (seen, counts) = read(&[&path]).unwrap();
    assert!(seen.counts.packets > 0 && seen.counts.packets <= wanted.0);
    assert!(counts.ended_early.unwrap().contains("cannot be unpacked"));
    for (magic, name) in [(&b"\xFD7zXZ\0\0\0"[..], "xz"), (b"BZh91AY", "bzip2")] {
        let error = read(&[&folder.put("other", magic)]).err().unwrap();
        assert_eq!(
            (error.kind, error.hint),
            (Kind::Unsupported, format!("{name} -dc FILE | leadline net packets --pcap -"))
        );
    }
}

#[test]
fn a_file_out_of_the_order_of_time_is_sorted() {
    let folder = Folder::new("order");
    let line = talk(File::pcap(1));
    let bytes = &line.file.bytes;
    let wanted = figures(&read(&[&folder.put("plain", bytes)]).unwrap().0);
    let packets = cut(bytes);
    let head = &bytes[..PCAP_HEADER];
    let (one, two) = packets.split_at(packets.len() / 2);
    let swapped = [two, one].concat();
    let backwards: Vec<&[u8]> = packets.iter().rev().copied().collect();
    let shuffled: Vec<&[u8]> = (0..packets.len()).map(|n| packets[n * 7 % packets.len()]).collect();
    assert!(!packets.len().is_multiple_of(7));
    for order in [swapped, backwards, shuffled] {
        let (seen, counts) = read(&[&folder.put("other", &[head, &order.concat()].concat())]).unwrap();
        assert_eq!((figures(&seen), counts.sorted, seen.counts.out_of_time), (wanted, 1, 0));
        assert_eq!(counts.packets, wanted.0);
    }
}

/// Two sections with other interfaces, the later one first, as if one file were put behind the other.
#[test]
fn sections_of_pcapng_are_sorted_with_their_interfaces() {
    let folder = Folder::new("sections");
    let frame = ether(&[], &tcp((1, 9), (2, 5432), 1, 1, ACK, b"x"));
    let (mut late, mut early) = (File::pcapng(1), File::pcapng(101));
    late.packet_at(0, 5_000_000_000, &frame);
    late.interface();
    late.packet_at(1, 6_000_000_000, &frame);
    early.packet_at(0, 1_000_000_000, &frame[14..]);
    early.packet_at(0, 2_000_000_000, &frame[14..]);
    let path = folder.put("both", &[&late.bytes[..], &early.bytes].concat());
    let (seen, counts) = read(&[&path]).unwrap();
    assert_eq!((seen.counts.packets, seen.counts.tcp_packets, counts.sorted), (4, 4, 1));
    assert_eq!(seen.span, Some((1_000_000_000, 6_000_000_000)));
    assert_eq!(seen.intervals.len(), 4);
}

#[test]
fn several_files_are_read_by_the_time_of_their_packets() {
    let folder = Folder::new("several");
    let line = talk(File::pcap(1));
    let bytes = &line.file.bytes;
    let wanted = figures(&read(&[&folder.put("plain", bytes)]).unwrap().0);
    let packets = cut(bytes);
    let (one, two) = packets.split_at(packets.len() / 2);
    let every = |rest: usize| packets.iter().skip(rest).step_by(2).copied().collect::<Vec<_>>();
    let file = |name: &str, packets: &[&[u8]]| folder.put(name, &[&bytes[..PCAP_HEADER], &packets.concat()].concat());
    for (a, b) in [(one.to_vec(), two.to_vec()), (two.to_vec(), one.to_vec()), (every(0), every(1))] {
        let (seen, counts) = read(&[&file("a", &a), &file("b", &b)]).unwrap();
        assert_eq!((figures(&seen), counts.packets, counts.bytes), (wanted, wanted.0, bytes.len() as u64 + 24));
    }
    let broken = folder.put("broken", b"no packets");
    let error = read(&[&file("a", one), &broken]).err().unwrap();
    assert_eq!((error.message.as_str(), error.place), ("this is not a file of packets", broken.display().to_string()));
    let early = folder.put("early", &bytes[..bytes.len() - 3]);
    let (_, counts) = read(&[&file("a", one), &early]).unwrap();
    assert!(counts.ended_early.unwrap().starts_with(&format!("{}: the last packet is not whole", early.display())));
}

#[test]
fn only_the_hosts_that_are_named() {
    let folder = Folder::new("hosts");
    let mut file = File::pcap(1);
    for (n, client) in [1, 3, 5].into_iter().enumerate() {
        file.packet(n as i64, &ether(&[], &tcp((client, 40_000), (2, 5432), 1, 1, ACK, b"x")), 999);
    }
    let path = folder.put("three", &file.bytes);
    let mapped = |last: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, last];
    for (hosts, wanted) in [
        (vec![(mapped(3), 128)], (1, 2)),
        (vec![(mapped(3), 128), (mapped(1), 128)], (2, 1)),
        (vec![(mapped(0), 96 + 30)], (3, 0)),
        (vec![(mapped(4), 96 + 31)], (1, 2)),
        (vec![([0; 16], 0)], (3, 0)),
    ] {
        let source = Source { name: "three".into(), file: Opened::open(&path).unwrap() };
        let options = Options { hosts: hosts.clone(), interval_ns: 1, ..Options::default() };
        let (seen, _) = read_files(vec![source], options, None, &mut |_| Go::On).unwrap();
        assert_eq!((seen.counts.tcp_packets, seen.counts.other_hosts), wanted, "{hosts:?}");
    }
}

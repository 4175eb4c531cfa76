//! The container: records over pages and segments, names of segments, where a log ends, and what is damage.

mod made;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use leadline_testdata::Random;
use leadline_wal::{Error, Kind, Lsn, Reader, Wal};
use made::{block_body, name, Folder, Writer, MAGIC_18, PAGE, SEGMENT};

type Seen = Vec<(u64, u64, u32, usize)>;

fn read(path: &Path) -> Result<(Seen, Option<(Lsn, String)>), Error> {
    let log = Arc::new(Wal::open(path, None, None, None)?);
    let range = log.range(None, None)?;
    let mut reader = Reader::new(log, range);
    let mut seen = Vec::new();
    while let Some(record) = reader.next_record()? {
        seen.push((record.start.0, record.end.0, record.xid, record.main_length()));
    }
    Ok((seen, reader.ending().early.clone()))
}

/// Records of every length around the edges of pages, over three segments.
fn long_log(random: &mut Random) -> (Writer, Seen) {
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    let mut seen = Seen::new();
    for xid in 0..900 {
        let length = match xid % 9 {
            0 => 0,
            1 => 20_000 + random.below(9) as usize,
            _ => random.below(5000) as usize,
        };
        let data: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let start = writer.main(xid, 10, 0, &data);
        seen.push((start, writer.at, xid, length));
    }
    (writer, seen)
}

#[test]
fn records_go_on_over_pages_and_segments() {
    let folder = Folder::new("long");
    let (writer, written) = long_log(&mut Random(1));
    assert!(writer.store(&folder.0).len() > 2);
    let (seen, early) = read(&folder.0).unwrap();
    assert_eq!(seen, written);
    assert_eq!(early.unwrap().0, Lsn(writer.at), "the log ends behind its last record");
}

#[test]
fn compressed_and_partial_segments_are_read_alike() {
    let folder = Folder::new("packed");
    let (writer, written) = long_log(&mut Random(2));
    let paths = writer.store(&folder.0);
    let pack = |path: &Path, suffix: &str, bytes: Vec<u8>| {
        std::fs::write(format!("{}{suffix}", path.display()), bytes).unwrap();
        std::fs::remove_file(path).unwrap();
    };
    for (n, path) in paths.iter().enumerate() {
        let plain = std::fs::read(path).unwrap();
        match n {
            0 => {
                let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                gz.write_all(&plain).unwrap();
                pack(path, ".gz", gz.finish().unwrap());
            }
            1 => {
                let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
                lz4.write_all(&plain).unwrap();
                pack(path, ".lz4", lz4.finish().unwrap());
            }
            n if n + 1 == paths.len() => {
                let end = (writer.at % SEGMENT) as usize;
                pack(path, ".partial.zst", zstd::bulk::compress(&plain[..end], 1).unwrap());
            }
            _ => {}
        }
    }
    assert_eq!(read(&folder.0).unwrap().0, written);
}

#[test]
fn what_was_received_until_now_is_read_as_far_as_it_goes() {
    let folder = Folder::new("received");
    let (writer, written) = long_log(&mut Random(7));
    let paths = writer.store(&folder.0);
    let (last, before) = paths.split_last().unwrap();
    before.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let plain = std::fs::read(last).unwrap();
    std::fs::remove_file(last).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    let blocks = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
    let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(blocks, Vec::new());
    lz4.write_all(&plain).unwrap();
    let packed = [
        ("gz", gz.finish().unwrap()),
        ("lz4", lz4.finish().unwrap()),
        ("zst", zstd::bulk::compress(&plain, 1).unwrap()),
    ];
    let wanted: Seen = written.into_iter().filter(|r| r.0 >= SEGMENT * (paths.len() as u64)).collect();
    for (suffix, bytes) in packed {
        // As pg_receivewal leaves it: in the middle of what it compresses.
        let received = format!("{}.{suffix}.partial", last.display());
        let cut = bytes.len() / 2;
        std::fs::write(&received, &bytes[..cut]).unwrap();
        let (seen, early) = read(&folder.0).unwrap();
        assert!(seen.len() > 5 && seen[..] == wanted[..seen.len()], "{suffix}: {} records", seen.len());
        assert!(seen.len() < wanted.len() && early.is_some(), "{suffix}");
        std::fs::remove_file(&received).unwrap();
        // One that should be whole is damaged when it is cut.
        let whole = format!("{}.{suffix}", last.display());
        std::fs::write(&whole, &bytes[..cut]).unwrap();
        assert_eq!(read(&folder.0).unwrap_err().message, "the compressed segment is damaged", "{suffix}");
        std::fs::remove_file(&whole).unwrap();
    }
}

#[test]
fn a_record_of_many_segments_is_whole_in_the_one_it_begins_in() {
    let folder = Folder::new("large");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    writer.main(1, 10, 0, b"small");
    let large = writer.main(2, 10, 0, &vec![5; 5 * SEGMENT as usize / 2]);
    writer.main(3, 10, 0, b"after");
    let paths = writer.store(&folder.0);
    assert_eq!(paths.len(), 3);
    let (seen, early) = read(&paths[0]).unwrap();
    assert_eq!((seen.len(), seen[1].0, seen[1].3, early), (2, large, 5 * SEGMENT as usize / 2, None));
    assert_eq!(read(&paths[1]).unwrap(), (vec![], None));
}

/// The reader has read ahead when the server writes on, over the end of the segment.
#[test]
fn a_log_that_is_written_meanwhile_is_not_damaged() {
    let folder = Folder::new("written");
    let (writer, written) = long_log(&mut Random(8));
    let paths = writer.store(&folder.0);
    let whole = std::fs::read(&paths[0]).unwrap();
    // Not written yet: what begins from here on, and all other segments.
    let stop = written.iter().position(|r| r.0 > 2 * SEGMENT - 100_000).unwrap();
    let mut until_now = whole.clone();
    until_now[(written[stop].0 - SEGMENT) as usize..].fill(0);
    let later: Vec<Vec<u8>> = paths[1..].iter().map(|path| std::fs::read(path).unwrap()).collect();
    std::fs::write(&paths[0], &until_now).unwrap();
    paths[1..].iter().for_each(|path| std::fs::write(path, vec![0; SEGMENT as usize]).unwrap());
    let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
    let mut reader = Reader::new(log.clone(), log.range(None, None).unwrap());
    for _ in 0..stop {
        reader.next_record().unwrap().unwrap();
    }
    std::fs::write(&paths[0], whole).unwrap();
    paths[1..].iter().zip(later).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    for (start, ..) in &written[stop..] {
        assert_eq!(reader.next_record().unwrap().map(|r| r.start.0), Some(*start));
    }
}

#[test]
fn one_segment_gives_the_records_that_begin_in_it() {
    let folder = Folder::new("one");
    let (writer, written) = long_log(&mut Random(3));
    let paths = writer.store(&folder.0);
    let (seen, early) = read(&paths[1]).unwrap();
    let wanted: Seen = written.into_iter().filter(|r| r.0 / SEGMENT == 2).collect();
    assert_eq!((seen, early), (wanted, None));
}

#[test]
fn a_switch_leaves_the_rest_of_its_segment_empty() {
    let folder = Folder::new("switch");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    writer.main(1, 10, 0, b"a");
    let switch = writer.main(0, 0, 0x40, b"");
    let after = writer.main(2, 10, 0, b"b");
    writer.store(&folder.0);
    let (seen, _) = read(&folder.0).unwrap();
    assert_eq!(seen[1], (switch, 2 * SEGMENT, 0, 0));
    assert_eq!(seen[2].0, after);
    assert_eq!(after, 2 * SEGMENT + 40);
}

#[test]
fn the_newest_timeline_is_followed_and_the_abandoned_end_left_out() {
    let folder = Folder::new("timelines");
    let mut old = Writer::new(MAGIC_18, 1, 1);
    for xid in 0..300 {
        old.main(xid, 10, 0, &[7; 9000]);
    }
    let paths = old.store(&folder.0);
    assert!(paths.len() > 2);
    // Timeline 2 goes on in the second segment: it has the records of timeline 1 up to the switch.
    let mut new = Writer::new(MAGIC_18, 1, 1);
    let mut xid = 0;
    while new.at < SEGMENT * 2 + 5 * PAGE {
        new.main(xid, 10, 0, &[7; 9000]);
        xid += 1;
    }
    new.tli = 2;
    let first_new = new.main(9999, 10, 0, &[8; 20_000]);
    let bytes = &new.bytes[SEGMENT as usize..];
    let mut whole = bytes.to_vec();
    whole.resize(SEGMENT as usize, 0);
    std::fs::write(folder.0.join(name(2, 2)), whole).unwrap();
    let (seen, early) = read(&folder.0).unwrap();
    assert_eq!(seen.last().unwrap().0, first_new);
    assert_eq!(early.unwrap().0, Lsn(new.at));
    let log = Wal::open(&folder.0, Some(1), None, None).unwrap();
    assert_eq!((log.timeline, log.segments()), (1, paths.len()));
}

#[test]
fn a_record_given_up_after_a_crash_is_left_out() {
    let folder = Folder::new("overwritten");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    writer.main(1, 10, 0, &[1; 6000]);
    let prev = writer.prev;
    let lost = writer.main(2, 10, 0, &[2; 9000]);
    // The page on which it should go on begins with another record instead.
    let page = (lost / PAGE + 1) * PAGE;
    writer.bytes.truncate((page - SEGMENT) as usize);
    (writer.at, writer.prev) = (page, prev);
    let instead = writer.main(3, 0, 0xD0, &[3; 16]);
    writer.bytes[(page - SEGMENT) as usize + 2] |= 8;
    writer.store(&folder.0);
    let (seen, _) = read(&folder.0).unwrap();
    assert_eq!(seen.iter().map(|r| r.0).collect::<Vec<_>>(), [SEGMENT + 40, instead]);
}

/// A server that was killed leaves pages of the record it was writing: they are no log that goes on.
#[test]
fn a_long_record_that_was_never_finished_is_the_end() {
    let folder = Folder::new("torn");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    writer.main(1, 10, 0, b"whole");
    let torn = writer.main(2, 10, 0, &vec![5; SEGMENT as usize + 60_000]);
    let end = writer.at;
    for kept in [1, 2, 100, SEGMENT / PAGE, SEGMENT / PAGE + 3] {
        let paths = writer.store(&folder.0);
        for (n, path) in (1..).zip(&paths) {
            let mut bytes = std::fs::read(path).unwrap();
            let from = (SEGMENT + kept * PAGE).saturating_sub(n * SEGMENT).min(SEGMENT);
            bytes[from as usize..].fill(0);
            std::fs::write(path, bytes).unwrap();
        }
        let (seen, early) = read(&folder.0).unwrap();
        let (at, why) = early.unwrap();
        assert_eq!((seen.len(), at), (1, Lsn(torn)), "{kept} pages");
        assert!(why.starts_with("the record is incomplete"), "{why}");
    }
    // All of its pages are there, and not all of its bytes: the sum tells.
    let paths = writer.store(&folder.0);
    let mut bytes = std::fs::read(&paths[1]).unwrap();
    bytes[(end % SEGMENT) as usize - 100] ^= 1;
    std::fs::write(&paths[1], &bytes).unwrap();
    assert_eq!(read(&folder.0).unwrap().1.unwrap().0, Lsn(torn));
    // With a record behind it, it is damage.
    writer.main(3, 10, 0, &[1; 9000]);
    let paths = writer.store(&folder.0);
    let mut bytes = std::fs::read(&paths[1]).unwrap();
    bytes[(end % SEGMENT) as usize - 100] ^= 1;
    std::fs::write(&paths[1], &bytes).unwrap();
    assert!(read(&folder.0).unwrap_err().message.starts_with("the WAL is damaged: the record has a wrong CRC"));
}

#[test]
fn a_segment_of_another_server_is_refused() {
    let folder = Folder::new("servers");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    for xid in 0..300 {
        writer.sysid = if writer.at < SEGMENT * 2 - 60_000 { 7 } else { 8 };
        writer.main(xid, 10, 0, &[7; 9000]);
    }
    writer.store(&folder.0);
    let error = read(&folder.0).unwrap_err();
    assert_eq!((error.message.as_str(), error.kind), ("a segment is from another server", Kind::Invalid));
    assert!(error.place.contains(&name(1, 2)), "{error}");
}

#[test]
fn a_range_begins_in_the_middle() {
    let folder = Folder::new("range");
    let (writer, written) = long_log(&mut Random(4));
    writer.store(&folder.0);
    let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
    for pick in [1, 10, 444, 899] {
        let range = log.range(Some(Lsn(written[pick].0)), Some(Lsn(written[pick].0 + 1))).unwrap();
        let mut reader = Reader::new(log.clone(), range);
        assert_eq!(reader.next_record().unwrap().map(|r| r.xid), Some(pick as u32));
        assert!(reader.next_record().unwrap().is_none());
    }
}

#[test]
fn what_is_no_log_is_refused_in_one_message() {
    let folder = Folder::new("refused");
    let at = |file: &str| folder.0.join(file);
    let kind = |path: &Path| read(path).unwrap_err().kind;
    assert_eq!(kind(&folder.0), Kind::NotFound);
    assert_eq!(kind(&at("nothing")), Kind::NotFound);
    std::fs::write(at("notes.txt"), "hello").unwrap();
    assert_eq!(kind(&at("notes.txt")), Kind::Invalid);
    let segment = at(&name(1, 1));
    for (bytes, kind, word) in [
        (vec![0; SEGMENT as usize], Kind::Invalid, "zeros"),
        (vec![b'x'; SEGMENT as usize], Kind::Unsupported, "0xD118 (PostgreSQL 18)"),
        (vec![1, 2, 3], Kind::Invalid, "the file has 3"),
        ([vec![0x21, 0xD1], vec![1; 100]].concat(), Kind::Unsupported, "which is PostgreSQL 19"),
    ] {
        std::fs::write(&segment, bytes).unwrap();
        let error = read(&segment).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.place.contains(&name(1, 1)), "{error}");
    }
}

/// Segments of old log, or of nothing, under the names of segments to come.
#[test]
fn a_hole_among_segments_made_in_advance_is_no_gap() {
    let folder = Folder::new("advance");
    let (writer, written) = long_log(&mut Random(6));
    let paths = writer.store(&folder.0);
    let next = paths.len() as u64 + 1;
    std::fs::copy(&paths[0], folder.0.join(name(1, next + 1))).unwrap();
    std::fs::copy(&paths[1], folder.0.join(name(1, next + 4))).unwrap();
    std::fs::write(folder.0.join(name(1, next + 6)), vec![0; SEGMENT as usize]).unwrap();
    assert_eq!(read(&folder.0).unwrap().0, written);
    // Behind a gap in the log itself the hint names a segment that can be read.
    std::fs::rename(&paths[1], folder.0.join("aside")).unwrap();
    std::fs::rename(&paths[2], folder.0.join("too")).unwrap();
    std::fs::copy(&paths[0], &paths[2]).unwrap();
    let error = read(&folder.0).unwrap_err();
    assert!(error.message.contains("gap at 0/200000") && error.hint.contains("from 0/400000 on"), "{error}");
    std::fs::rename(folder.0.join("too"), &paths[2]).unwrap();
    // What cannot be told to be one of them is a part of the log.
    std::fs::rename(folder.0.join("aside"), &paths[1]).unwrap();
    std::fs::write(folder.0.join(name(1, next + 6)), vec![7; SEGMENT as usize]).unwrap();
    let error = read(&folder.0).unwrap_err();
    assert!(error.message.contains(&format!("gap at {}", Lsn(next * SEGMENT))), "{error}");
}

#[test]
fn a_segment_that_the_server_takes_away_is_no_missing_file() {
    let folder = Folder::new("taken");
    let (writer, _) = long_log(&mut Random(7));
    let paths = writer.store(&folder.0);
    let open = || Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
    let failed = |mut reader: Reader| loop {
        match reader.next_record() {
            Ok(Some(_)) => {}
            other => break other.map(|_| ()).unwrap_err(),
        }
    };
    let log = open();
    std::fs::rename(&paths[1], folder.0.join(name(1, 99))).unwrap();
    let range = log.range(None, None).unwrap();
    let error = failed(Reader::new(log, range));
    assert_eq!((error.kind, error.message.as_str()), (Kind::Gone, "the WAL moved on while being read"));
    assert!(error.place.ends_with(&name(1, 2)), "{error}");
    // Renamed while it is open, and written anew: what is read of it is not damage of this log either.
    std::fs::rename(folder.0.join(name(1, 99)), &paths[1]).unwrap();
    let log = open();
    let range = log.range(None, None).unwrap();
    let mut reader = Reader::new(log, range);
    reader.next_record().unwrap();
    let bytes = std::fs::read(&paths[0]).unwrap();
    std::fs::rename(&paths[0], folder.0.join(name(1, 99))).unwrap();
    std::fs::write(folder.0.join(name(1, 99)), vec![0; bytes.len()]).unwrap();
    assert_eq!(failed(reader).kind, Kind::Gone);
}

#[test]
fn a_hole_in_the_log_is_told_apart_from_its_end() {
    let folder = Folder::new("holes");
    let (writer, written) = long_log(&mut Random(5));
    let paths = writer.store(&folder.0);
    std::fs::rename(&paths[1], folder.0.join("aside")).unwrap();
    let error = read(&folder.0).unwrap_err();
    assert!(error.message.contains("gap at 0/200000"), "{error}");
    std::fs::rename(folder.0.join("aside"), &paths[1]).unwrap();
    // A flipped bit in the middle is damage; the same in the very last record is where the log ends.
    let flip = |at: u64| {
        let path = &paths[(at / SEGMENT - 1) as usize];
        let mut bytes = std::fs::read(path).unwrap();
        bytes[(at % SEGMENT) as usize] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    };
    let (middle, last) = (written[400].0 + 30, written[899].0 + 24);
    flip(middle);
    let error = read(&folder.0).unwrap_err();
    assert!(error.message.starts_with("the WAL is damaged"), "{error}");
    assert!(error.place.contains(&format!("LSN {}", Lsn(written[400].0))), "{error}");
    flip(middle);
    // Pages that were lost in a copy, also more than one.
    let path = &paths[paths.len() - 1];
    let bytes = std::fs::read(path).unwrap();
    for lost in [1, 3] {
        let mut copy = bytes.clone();
        copy[2 * PAGE as usize..(2 + lost) * PAGE as usize].fill(0);
        std::fs::write(path, copy).unwrap();
        let error = read(&folder.0).unwrap_err();
        assert!(error.message.starts_with("the WAL is damaged"), "{lost} pages: {error}");
    }
    std::fs::write(path, bytes).unwrap();
    flip(last);
    let (seen, early) = read(&folder.0).unwrap();
    assert_eq!((seen.len(), early.unwrap().0), (899, Lsn(written[899].0)));
    // A segment that was cut is an error, not an end.
    let bytes = std::fs::read(&paths[1]).unwrap();
    std::fs::write(&paths[1], &bytes[..bytes.len() / 2]).unwrap();
    assert!(read(&folder.0).unwrap_err().message.contains("truncated"));
}

/// Whatever the bytes are, reading ends, gives no record that was not written, and does not panic.
#[test]
fn mutated_segments_never_panic_or_loop() {
    let folder = Folder::new("mutated");
    let mut random = Random(6);
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    for xid in 0..200 {
        let data = vec![xid as u8; random.below(900) as usize];
        writer.put(xid, 10, 0, &block_body(1663, 5, 16384, xid, &data, b"abc"));
    }
    let path = writer.store(&folder.0).remove(0);
    let whole = std::fs::read(&path).unwrap();
    let written = read(&path).unwrap().0;
    let used = (writer.at - SEGMENT) as usize;
    for round in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(6) {
            let at = random.below(used as u64) as usize;
            match random.below(4) {
                0 => bytes[at] = random.next() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes[at..(at + 16).min(used)].fill(0xFF),
                _ => bytes.copy_within(at..(at + 64).min(used), random.below(used as u64 - 64) as usize),
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok((seen, _)) = read(&path) {
            assert_eq!(seen[..], written[..seen.len()], "round {round}");
        }
    }
}

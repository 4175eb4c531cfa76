//! Long records, of which not all is kept: what is said of them is what is said when they are held whole, or is said to be left out.

mod made;

use std::path::Path;
use std::sync::Arc;

use leadline_testdata::Random;
use leadline_wal::describe::{describe, messages, outcome, time_of, Fields, Message, Value};
use leadline_wal::kept::{Kept, List, KEPT};
use leadline_wal::Again;
use leadline_wal::{history, stats, Error, Filter, Lsn, Reader, Record, Wal};
use made::{block_body, Folder, Writer, MAGIC_18, SEGMENT};

const MAGICS: [(u8, u16); 6] = [(13, 0xD106), (14, 0xD10D), (15, 0xD110), (16, 0xD113), (17, 0xD116), (18, 0xD118)];

/// So little that records of a few pages are long.
const LITTLE: Kept = Kept { front: 1500, main: 300, piece: 100 };

fn open(folder: &Path, kept: Kept) -> Arc<Wal> {
    Arc::new(Wal::open(folder, None, None, None).unwrap().keeping(kept))
}

/// Where and why a log ends early, or is damaged.
type End = Result<Option<(Lsn, String)>, Error>;

/// What `look` says of each record, and how the log ended.
fn read<T>(folder: &Path, kept: Kept, look: impl Fn(&Arc<Wal>, &Record<'_>) -> T) -> (Vec<T>, End) {
    let log = open(folder, kept);
    let mut reader = Reader::new(log.clone(), log.range(None, None).unwrap());
    let mut seen = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => seen.push(look(&log, &record)),
            Ok(None) => return (seen, Ok(reader.ending().early.clone())),
            Err(e) => return (seen, Err(e)),
        }
    }
}

/// Start, end, the start of the one before; transaction, lengths of the record and of its main data; data of its blocks.
type Outside = ([Lsn; 3], u32, [usize; 2], Vec<Vec<u8>>);

/// All that does not depend on what is kept.
fn outside(_: &Arc<Wal>, r: &Record<'_>) -> Outside {
    let data = r.blocks.iter().map(|b| r.data_of(b).to_vec()).collect();
    ([r.start, r.end, r.prev], r.xid, [r.length(), r.main_length()], data)
}

fn noise(random: &mut Random, length: u64) -> Vec<u8> {
    (0..length).map(|_| random.next() as u8).collect()
}

/// Records of lengths around what is kept, and of many pages, with and without a block.
fn mixed_log(random: &mut Random, page: u64) -> Writer {
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    writer.page = page;
    while writer.at < 2 * SEGMENT + SEGMENT / 2 {
        let length = match random.below(4) {
            0 => random.below(100),
            1 => 1100 + random.below(600),
            2 => random.below(5000),
            _ => 30_000 + random.below(60_000),
        };
        match random.below(3) {
            0 => {
                let body = block_body(1663, 5, 16384, 7, &noise(random, 1000), &noise(random, length % 200));
                writer.put(3, 10, 0, &body);
            }
            _ => {
                writer.main(2, 10, 0, &noise(random, length));
            }
        }
    }
    writer
}

#[test]
fn long_records_are_those_that_are_held_whole() {
    for page in [1024, 8192, 65536] {
        let folder = Folder::new(&format!("long-{page}"));
        let writer = mixed_log(&mut Random(page), page);
        let paths = writer.store(&folder.0);
        let (whole, end) = read(&folder.0, KEPT, outside);
        assert!(whole.len() > 100 && end.as_ref().unwrap().as_ref().unwrap().0 == Lsn(writer.at));
        assert_eq!(read(&folder.0, LITTLE, outside), (whole, end));
        let beginnings = |kept| {
            read(&folder.0, kept, |log, r| {
                let mut again = Vec::new();
                Again::of(log, r, 250.min(r.main_length())).read(usize::MAX, &mut again).unwrap();
                assert_eq!(r.left_out(), r.main_length() - r.main_data().len());
                (r.main_data().iter().take(LITTLE.main).copied().collect::<Vec<u8>>(), again)
            })
        };
        let whole = beginnings(KEPT);
        assert_eq!(beginnings(LITTLE), whole);
        // Of a compressed archive too.
        for path in paths {
            let packed = zstd::bulk::compress(&std::fs::read(&path).unwrap(), 1).unwrap();
            std::fs::write(format!("{}.zst", path.display()), packed).unwrap();
            std::fs::remove_file(path).unwrap();
        }
        assert_eq!(beginnings(LITTLE), whole);
    }
}

/// What reads on is told the same: records until then, the end or the damage, and where.
#[test]
fn damage_and_ends_are_those_of_records_that_are_held_whole() {
    let mut random = Random(5);
    let writer = mixed_log(&mut random, 8192);
    let intact = {
        let folder = Folder::new("long-intact");
        writer.store(&folder.0);
        read(&folder.0, KEPT, outside)
    };
    let (mut damaged, mut ended) = (0, 0);
    for n in 0..60 {
        let folder = Folder::new("long-damage");
        let mut paths = writer.store(&folder.0);
        // The last bytes of a record, what is not kept of a long one, are before its padding, and mostly on the page of its end.
        let ends_at = intact.0[random.below(intact.0.len() as u64) as usize].0[1].0 - 10;
        let (segment, at) = ((ends_at / SEGMENT - 1) as usize, (ends_at % SEGMENT) as usize);
        if at % 8192 < 40 {
            continue;
        }
        let path = &paths[segment];
        let mut bytes = std::fs::read(path).unwrap();
        match n % 3 {
            0 => bytes[at] ^= 1,
            1 => bytes[at..].fill(0),
            _ => bytes[at & !8191] ^= 4,
        }
        std::fs::write(path, bytes).unwrap();
        if n % 2 == 0 {
            paths.drain(segment + 1..).for_each(|later| std::fs::remove_file(later).unwrap());
        }
        if Wal::open(&folder.0, None, None, None).is_err() {
            continue;
        }
        let whole = read(&folder.0, KEPT, outside);
        assert_eq!(read(&folder.0, LITTLE, outside), whole);
        assert!(whole != intact, "byte {at} of segment {segment}");
        damaged += usize::from(whole.1.is_err());
        ended += usize::from(whole.1.is_ok());
    }
    assert!(damaged > 10 && ended > 10, "{damaged} damaged, {ended} ended");
}

/// So many things of a few bytes each.
fn list(random: &mut Random, count: u32, size: u64) -> Vec<u8> {
    [&count.to_le_bytes()[..], &noise(random, u64::from(count) * size)].concat()
}

/// COMMIT PREPARED with all parts there can be, of which lists have up to `most` things.
fn commit(random: &mut Random, major: u8, most: u64) -> Vec<u8> {
    let mut count = || random.below(most) as u32;
    let (subxacts, rels, stats, messages) = (count(), count(), count(), count());
    let optional = if major >= 15 { 1 << 8 } else { 0 };
    let mut main =
        [&7i64.to_le_bytes()[..], &(0b1011_1111u32 | optional).to_le_bytes(), &[5, 0, 0, 0, 9, 0, 0, 0]].concat();
    main.extend(list(random, subxacts, 4));
    main.extend(list(random, rels, 12));
    if optional != 0 {
        main.extend(list(random, stats, if major >= 18 { 16 } else { 12 }));
    }
    main.extend(list(random, messages, 16));
    main.extend(4711u32.to_le_bytes());
    main.extend(b"the name of a prepared transaction\0");
    main.extend([&0x1234u64.to_le_bytes()[..], &8i64.to_le_bytes()].concat());
    main
}

/// PREPARE, likewise.
fn prepare(random: &mut Random, major: u8, most: u64) -> Vec<u8> {
    let mut count = || random.below(most) as u32;
    let (subxacts, rels, aborted, stats, messages) = (count(), count(), count(), count(), count());
    let gid = b"the name of a prepared transaction\0";
    let stat_counts: &[u32] = if major >= 15 { &[stats, stats] } else { &[] };
    let mut main = Vec::new();
    [1, 2, 4711, 5].iter().for_each(|word: &u32| main.extend(word.to_le_bytes()));
    main.extend(7i64.to_le_bytes());
    [10, subxacts, rels, aborted].iter().chain(stat_counts).for_each(|word| main.extend(word.to_le_bytes()));
    main.extend(messages.to_le_bytes());
    main.extend([0, 0]);
    main.extend((gid.len() as u16).to_le_bytes());
    main.resize(main.len().next_multiple_of(8), 0);
    main.extend([&0x1234u64.to_le_bytes()[..], &8i64.to_le_bytes()].concat());
    let item = if major >= 18 { 16 } else { 12 };
    let mut part = |bytes: &[u8]| {
        main.resize(main.len().next_multiple_of(8), 0);
        main.extend(bytes);
    };
    part(gid);
    for (count, size) in [(subxacts, 4), (rels, 12), (aborted, 12)] {
        part(&noise(random, u64::from(count) * size));
    }
    stat_counts.iter().for_each(|count| part(&noise(random, u64::from(*count) * item)));
    part(&noise(random, u64::from(messages) * 16));
    part(&[0; 48]); // what the other managers keep of the transaction
    main
}

/// Beginnings of lists and how much was left out of them, against the whole: nothing is lost and nothing added.
fn compare(short: &Fields, whole: &Fields) -> usize {
    let mut left_out = match short.last() {
        Some(("left_out", Value::Fields(fields))) => fields.clone(),
        _ => Vec::new(),
    };
    for (name, value) in whole {
        let (shown, hidden) = (
            short.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            left_out.iter().position(|(n, _)| n == name).map(|at| left_out.remove(at).1),
        );
        match (shown, hidden, value) {
            (Some(Value::List(known)), Some(Value::Int(more)), Value::List(all)) => {
                assert_eq!((known[..] == all[..known.len()], known.len() + more as usize), (true, all.len()), "{name}");
                assert!(more > 0, "{name}");
            }
            (shown, hidden, _) => assert_eq!((shown, hidden), (Some(value), None), "{name}"),
        }
    }
    assert!(left_out.iter().all(|(name, _)| *name == "bytes"), "{left_out:?}");
    short.len() - whole.len()
}

#[test]
fn ends_of_transactions_say_what_is_kept_and_how_much_is_not() {
    let mut random = Random(8);
    for (major, magic) in MAGICS {
        let folder = Folder::new("long-ends");
        let mut writer = Writer::new(magic, 1, 1);
        for n in 0..60 {
            let most = [30, 300, 3000][n % 3];
            let (info, main) = if n % 2 == 0 {
                (0xB0, commit(&mut random, major, most))
            } else {
                (0x10, prepare(&mut random, major, most))
            };
            writer.main(0, 1, info, &main);
        }
        writer.store(&folder.0);
        // Each with its own description, messages and subtransactions read again.
        let said = |kept| {
            let (seen, end) = read(&folder.0, kept, |log, r| {
                let end = outcome(r).unwrap();
                let xids =
                    |bytes: &[u8]| bytes.chunks_exact(4).map(|x| u32::from_le_bytes(x.try_into().unwrap())).collect();
                let lists = (all(log, r, end.subxacts, 4, xids), all(log, r, messages(r), 16, Message::all));
                let wants = Filter { xid: Some(4711), ..Filter::default() };
                (describe(r), lists, (end.kind, end.xid, end.time, time_of(r)), wants.wants(r) || end.kind == "prepare")
            });
            assert!(end.unwrap().is_some());
            seen
        };
        let whole = said(KEPT);
        assert_eq!(whole.len(), 60);
        assert!(whole
            .iter()
            .all(|(fields, ..)| fields.iter().any(|(n, _)| *n == "origin_lsn") && fields[0].0 == "xact_time"));
        let mut shortened = 0;
        for n in 0..20 {
            let (main, piece) =
                if n == 0 { (300, 100) } else { (80 + random.below(9000) as usize, 60 + random.below(900) as usize) };
            let short = said(Kept { front: main + 50, main, piece });
            for (short, whole) in short.iter().zip(&whole) {
                shortened += compare(&short.0, &whole.0);
                let nothing = |value: &Value| matches!(value, Value::List(known) if known.is_empty());
                assert!(short.2 .0 != "prepare" || !short.0.iter().any(|(_, v)| nothing(v)), "{:?}", short.0);
                assert!((&short.1, &short.2, short.3) == (&whole.1, &whole.2, true), "kept {main} and {piece}");
            }
        }
        assert!(shortened > 300, "{shortened} of 1200");
    }
}

/// What is known of a list, and the rest read again.
fn all<T>(log: &Arc<Wal>, r: &Record<'_>, list: List<T>, size: usize, parse: impl Fn(&[u8]) -> Vec<T>) -> Vec<T> {
    let mut bytes = Vec::new();
    Again::of(log, r, list.rest_at).read(list.left_out * size, &mut bytes).unwrap();
    list.known.into_iter().chain(parse(&bytes)).collect()
}

#[test]
fn other_records_say_what_they_leave_out() {
    let folder = Folder::new("long-others");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    let head = [&[0; 8][..], &9000u64.to_le_bytes(), &9u64.to_le_bytes()].concat();
    writer.main(1, 21, 0, &[&head[..], &[b'p'; 8999], b"\0message!!"].concat());
    writer.main(1, 21, 0, &[&head[..], b"p\0", &[b'm'; 9000]].concat());
    writer.main(0, 8, 0x20, &[&[0; 12][..], &list(&mut Random(1), 1000, 16)].concat()); // invalidations of a standby
    writer.main(0, 8, 0, &list(&mut Random(1), 5, 12)); // locks
    writer.store(&folder.0);
    let (seen, _) = read(&folder.0, LITTLE, |_, r| (describe(r), messages(r).left_out));
    let left_out = |n: usize| seen[n].0.iter().find(|(name, _)| *name == "left_out").map(|(_, v)| v.clone());
    let int = |name, n| (name, Value::Int(n));
    assert_eq!(left_out(0), Some(Value::Fields(vec![int("bytes", 8733)])), "a part of the prefix");
    assert_eq!(left_out(1), None, "the message itself is never shown");
    assert_eq!(left_out(2), Some(Value::Fields(vec![int("msgs", 983), int("bytes", 15716)])));
    assert_eq!((seen[2].1, left_out(3)), (983, None));
    assert!(!seen.iter().any(|(fields, _)| fields.iter().any(|(name, _)| *name == "truncated")));
}

#[test]
fn history_knows_the_end_of_every_subtransaction() {
    let folder = Folder::new("long-history");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    let xids: Vec<u32> = (100..2100).collect();
    xids.iter().for_each(|xid| {
        writer.put(*xid, 10, 0, &block_body(1663, 5, 16384, 0, b"row", &[1, 0, 0]));
    });
    let words: Vec<u8> = xids.iter().flat_map(|xid| xid.to_le_bytes()).collect();
    let main = [&7i64.to_le_bytes()[..], &2u32.to_le_bytes(), &2000u32.to_le_bytes(), &words].concat();
    writer.main(99, 1, 0x80, &main);
    writer.store(&folder.0);
    let log = open(&folder.0, LITTLE);
    let filter = Filter { rel: Some(16384), block: Some(0), ..Filter::default() };
    let (changes, _) = history::history(&log, log.range(None, None).unwrap(), &filter, &mut |_| true).unwrap();
    assert_eq!(changes.len(), 2000);
    let open: Vec<u32> = changes.iter().filter(|c| c.outcome.map(|o| o.0) != Some("commit")).map(|c| c.xid).collect();
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn sums_do_not_depend_on_what_is_kept() {
    let folder = Folder::new("long-sums");
    mixed_log(&mut Random(3), 8192).store(&folder.0);
    let sums = |kept, threads| {
        let log = open(&folder.0, kept);
        let range = log.range(None, None).unwrap();
        stats::stats(&log, range, stats::By::Type, threads, &|_| true, false, &mut |_| true).unwrap().sums
    };
    assert!(sums(KEPT, 1) == sums(LITTLE, 1) && sums(KEPT, 1) == sums(LITTLE, 2));
}

#[test]
fn a_record_that_is_not_there_any_more_is_not_read_again() {
    let folder = Folder::new("long-changed");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    writer.main(1, 10, 0, &[7; 500_000]);
    let path = writer.store(&folder.0).remove(0);
    let log = open(&folder.0, LITTLE);
    let mut reader = Reader::new(log.clone(), log.range(None, None).unwrap());
    let record = reader.next_record().unwrap().unwrap();
    let mut other = Writer::new(MAGIC_18, 1, 1);
    other.main(1, 10, 0, &[7; 400_000]);
    for (change, why) in [(other.bytes, "another record continues there"), (vec![0; 40], "the page was never written")]
    {
        std::fs::write(&path, [&change[..], &vec![0; SEGMENT as usize - change.len()]].concat()).unwrap();
        let e = Again::of(&log, &record, 300).read(500_000, &mut Vec::new()).unwrap_err();
        assert_eq!(e.message, "the WAL changed while being read");
        assert!(e.detail.ends_with(why) && !e.place.is_empty(), "{e}");
    }
}

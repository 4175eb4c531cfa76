//! Records that are read from pages a reader has kept are those that it read.

mod made;

use std::sync::Arc;

use leadline_bytes::ReadBuffer;
use leadline_wal::{Decoder, Lsn, Range, Reader, Wal};
use made::{Folder, Writer, MAGIC_18, PAGE, SEGMENT};

#[test]
fn records_are_found_again_in_the_pages_they_are_on() {
    let folder = Folder::new("kept-pages");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    for n in 0..1500u32 {
        // Some on one page, some on several, some over the end of a segment.
        let data: Vec<u8> = (0..n * 37 % 900 + n % 50 / 49 * 30_000).map(|i| (i + n) as u8).collect();
        writer.main(n, 10, 0, &data);
        if n == 1400 {
            writer.main(0, 0, 0x40, b""); // the rest of the segment is empty
        }
    }
    assert!(writer.at > 3 * SEGMENT);
    writer.store(&folder.0);
    let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
    let whole = log.range(None, None).unwrap();
    let middle = Range { from: Lsn(whole.from.0 + 3 * PAGE + 100), to: Lsn(whole.to.0 - SEGMENT / 2) };
    for range in [whole, middle] {
        let mut reader = Reader::new(log.clone(), range);
        let mut wanted = Vec::new();
        while let Some((record, at)) = reader.next_kept().unwrap() {
            assert_eq!(at, None, "nobody asked to keep pages");
            let is_switch = (record.rmid, record.info) == (0, 0x40);
            // What follows a switch begins in the next segment, which only the reader knows.
            let end =
                if is_switch { Lsn((record.start.0 + record.length() as u64).next_multiple_of(8)) } else { record.end };
            wanted.push((record.start, end, record.xid, record.main_data().to_vec()));
        }
        assert!(reader.take_kept().is_none());
        for room in [PAGE, 5 * PAGE + 9, SEGMENT + PAGE, 4 * SEGMENT] {
            let mut reader = Reader::new(log.clone(), range);
            let base = reader.first_page().0;
            let mut memory = ReadBuffer::new(room as usize);
            memory.fill(0xA5);
            reader.keep(memory);
            let mut places = Vec::new();
            for wanted in &wanted {
                let (record, at) = reader.next_kept().unwrap().unwrap();
                assert_eq!((record.start, record.main_data()), (wanted.0, &wanted.3[..]));
                places.push(at);
            }
            assert!(reader.next_kept().unwrap().is_none());
            let pages = reader.take_kept().unwrap();
            let mut decoder = Decoder::default();
            for ((start, end, xid, data), at) in wanted.iter().zip(places) {
                // Behind the switch the next page is not the one that follows.
                let is_inside = end.0.next_multiple_of(PAGE) <= base + room && start.0 < 3 * SEGMENT;
                assert_eq!(at, is_inside.then(|| (start.0 - base) as usize), "{start} of {room}");
                let Some(at) = at else { continue };
                let again = pages.decode(&mut decoder, at, 18).unwrap();
                assert_eq!((again.start, again.end, again.xid, again.main_data()), (*start, *end, *xid, &data[..]));
            }
            assert!(pages.decode(&mut decoder, room as usize, 18).is_none());
        }
    }
}

//! Pages of Informix: one whole page as its bytes were printed, others made from what `oncheck -pP` printed of real ones.

use leadline_page::informix::{cksum, dissect, dissect_15, kind, words, HEADER, HEADER_15};
use leadline_page::{regions, Part, Value};

fn put(page: &mut [u8], at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// A page with the header and slots that oncheck printed of one; its rows are filled with their numbers.
fn printed(
    size: usize,
    address: (u32, u16),
    stamp: u32,
    flags: u16,
    free: (u16, u16),
    slots: &[(u16, u16)],
) -> Vec<u8> {
    let mut page = vec![0; size];
    page[..4].copy_from_slice(&address.0.to_le_bytes());
    put(&mut page, 4, address.1);
    put(&mut page, 8, slots.len() as u16);
    put(&mut page, 10, flags);
    put(&mut page, 12, free.0);
    put(&mut page, 14, free.1);
    page[size - 4..].copy_from_slice(&stamp.to_le_bytes());
    for (i, (ptr, len)) in slots.iter().enumerate() {
        let at = size - 8 - 4 * i;
        put(&mut page, at, *ptr);
        put(&mut page, at + 2, *len);
        if *ptr != 0 {
            page[usize::from(*ptr)..usize::from(ptr + len)].fill(i as u8 + 1);
        }
    }
    let sum = cksum(&page);
    put(&mut page, 6, sum);
    page
}

/// The page of which oncheck printed `4:202 379016 c843 13 1 DATA 1844 148`: 13 rows of 140 bytes.
fn data() -> Vec<u8> {
    let slots: Vec<(u16, u16)> = (0..13).map(|i| (24 + 140 * i, 140)).collect();
    printed(2048, (202, 4), 379_016, 1, (1844, 148), &slots)
}

fn part<'p>(parts: &'p [Part], name: &str, number: Option<u32>) -> &'p Part {
    parts.iter().find(|p| p.name == name && p.number == number).unwrap_or_else(|| panic!("no {name} {number:?}"))
}

fn classes(page: &[u8]) -> Vec<(&'static str, &'static str, Option<u32>)> {
    dissect(page, None).wrong.iter().map(|w| (w.class, w.what, w.item)).collect()
}

fn assert_tiled(parts: &[Part], size: usize) {
    let tiles = regions(parts, size);
    let mut at = 0;
    for tile in &tiles {
        assert!(tile.start == at && tile.end > at && !tile.field.is_empty(), "{tile:?}");
        at = tile.end;
    }
    assert_eq!(at, size);
}

#[test]
fn the_page_whose_bytes_were_printed() {
    let page = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/informix/page/chunk_free_list.page"))
        .unwrap();
    let found = dissect(&page, None);
    assert_eq!((found.kind, found.wrong.as_slice()), ("chunk free list", [].as_slice()));
    let fields =
        ["pg_offset", "pg_chunk", "pg_cksum", "pg_nslots", "pg_flags", "pg_frptr", "pg_frcnt", "pg_next", "pg_prev"];
    let header = fields.map(|f| part(&found.parts, "header", None).number_of(f).unwrap());
    assert_eq!(header, [2, 16, 0x3691, 1, 0x808, 32, 2008, 0, 0]);
    let extent = part(&found.parts, "extent", Some(1));
    assert_eq!((extent.start, extent.number_of("offset"), extent.number_of("size")), (24, Some(2438), Some(268)));
    let slot = part(&found.parts, "slot", Some(1));
    assert_eq!((slot.start, slot.number_of("sl_ptr"), slot.number_of("sl_len")), (2040, Some(24), Some(8)));
    assert_eq!(part(&found.parts, "timestamp", None).number_of("pg_stamp"), Some(0x8368b));
    assert_eq!(part(&found.parts, "free space", None).start, 32);
    assert_tiled(&found.parts, page.len());
}

/// Address, timestamp and checksum of pages that `oncheck -pP` and others printed, from three servers.
#[test]
fn the_checksum_is_of_the_address_and_the_timestamp() {
    for (offset, chunk, stamp, wanted) in [
        (202u32, 4u16, 379_016u32, 0xc843u16),
        (2256, 7, 287_175, 0x6914),
        (27000, 6, 68_995_002, 0xaad8),
        (11512, 15, 0x65e20, 0x72d1),
        (0, 1, 0x269b5, 0x69b6),
    ] {
        let page = printed(2048, (offset, chunk), stamp, 1, (24, 2020), &[]);
        assert_eq!(cksum(&page), wanted, "{chunk}:{offset}");
    }
}

#[test]
fn printed_headers_hold_both_identities_of_free_space() {
    assert_eq!(classes(&data()), []);
    // 7:2256 and 6:27000 of a dbspace of 16 kB; slot 4 of the first is empty.
    let slots = [(24, 136), (160, 40), (200, 1952), (2152, 0), (2152, 10)];
    assert_eq!(classes(&printed(16384, (2256, 7), 287_175, 0x802, (2162, 14198), &slots)), []);
    // A page with a hole: the free bytes count it, so only the second identity holds.
    let slots = [(24, 100), (0, 100), (224, 100)];
    assert_eq!(classes(&printed(2048, (9, 4), 7, 1, (324, 2048 - 24 - 200 - 12 - 4), &slots)), []);
    let wrong = printed(2048, (9, 4), 7, 1, (324, 1000), &slots);
    assert_eq!(classes(&wrong), [("header", "pg_frcnt", None)]);
}

#[test]
fn rows_are_found_through_their_slots() {
    let found = dissect(&data(), Some(140));
    assert_eq!(found.kind, "data");
    let row = part(&found.parts, "row", Some(13));
    assert_eq!((row.start, row.end, row.fields[0].words.as_str()), (24 + 12 * 140, 1844, ""));
    assert_eq!(row.fields[0].value, Value::Bytes(vec![13; 140]));
    let found = dissect(&data(), Some(155));
    assert_eq!(part(&found.parts, "row", Some(1)).fields[0].words, "140 bytes, not 155");
    assert_tiled(&found.parts, 2048);
    // The end of a page that an article on old rows prints: slot 2 was deleted and keeps its length.
    let slots = [(24, 155), (0, 151), (179, 155)];
    let found = dissect(&printed(2048, (5, 4), 1, 1, (334, 2048 - 334 - 16), &slots), Some(155));
    assert_eq!(part(&found.parts, "slot", Some(2)).fields[1].words, "nothing there");
    assert!(!found.parts.iter().any(|p| p.name == "row" && p.number == Some(2)) && found.wrong.is_empty());
}

#[test]
fn each_defect_is_named() {
    let mut page = data();
    page[2044] ^= 1; // only the end of the page was written
    assert_eq!(classes(&page), [("torn", "pg_cksum", None)]);
    let mut page = data();
    put(&mut page, 2040 - 4, 163); // slot 2 begins within row 1
    assert_eq!(classes(&page), [("overlap", "sl_ptr", Some(2))]);
    let mut page = data();
    put(&mut page, 2040 - 4, 2000); // and reaches into the slot table
    assert_eq!(classes(&page), [("slot", "sl_ptr", Some(2))]);
    put(&mut page, 2040 - 4, 23);
    assert_eq!(classes(&page), [("slot", "sl_ptr", Some(2))]);
    // A free space that begins within a row does not take the row's bytes.
    let mut page = data();
    put(&mut page, 12, 100);
    let free = |page: &[u8]| part(&dissect(page, None).parts, "free space", None).start;
    assert_eq!((free(&page), classes(&page)), (1844, vec![])); // the sum with the rows still holds
    put(&mut page, 12, 1900);
    assert_eq!(free(&page), 1900);
    let mut page = printed(2048, (2, 16), 5, 0x808, (32, 2008), &[(24, 8)]);
    put(&mut page, 8, 300);
    assert_eq!(classes(&page), [("header", "pg_nslots", None)]);
    assert_eq!(dissect(&page, None).parts.iter().filter(|p| p.name == "extent").count(), 252);
    let mut page = data();
    put(&mut page, 8, 600);
    assert_eq!(classes(&page)[0], ("header", "pg_nslots", None));
    assert_eq!(classes(&data()[..20]), [("truncated", "pg_prev", None)]);
}

#[test]
fn types_of_pages_in_words() {
    let seen = [0x801, 0x2801, 0x890, 0x2890, 0x870, 0x8890, 0x1800, 0x802, 0x80d, 0x8, 0x9, 0x100, 0];
    let kinds = [
        "data",
        "data",
        "B-tree leaf",
        "B-tree leaf",
        "B-tree root",
        "B-tree leaf",
        "reserved root",
        "tblspace",
        "blob chunk free list",
        "chunk free list",
        "remainder data",
        "logical log",
        "unknown",
    ];
    assert_eq!(seen.map(kind), kinds);
    assert_eq!(words(0x2801), "data, physical log, needs no physical log");
    assert_eq!(words(0x4003), "unknown type 0x3, unknown bits 0x4000");
}

#[test]
fn the_size_in_the_number_of_slots_is_no_part_of_it() {
    // 15:16, a free list in pages of 16 kB: the byte above the count is 56, which is 7 in the five highest bits.
    let mut page = printed(16384, (16, 15), 0x65587, 0x808, (32, 16344), &[(24, 8)]);
    put(&mut page, 8, 56 << 8 | 126);
    let found = dissect(&page, None);
    assert_eq!(found.parts.iter().filter(|p| p.name == "extent").count(), 126);
    let nslots = part(&found.parts, "header", None).field("pg_nslots").unwrap();
    assert_eq!(nslots.words, "126 in a page of 16384 bytes");
    assert!(found.wrong.is_empty());
    put(&mut page, 20, 16); // the next page of the list: no slot
    assert!(!dissect(&page, None).parts.iter().any(|p| p.name == "slot"));
}

#[test]
fn a_page_of_version_15_shows_its_ends_only() {
    let found = dissect_15(&data());
    assert!(found.wrong.is_empty() && found.kind.contains("not decoded"));
    let ends: Vec<_> = found.parts.iter().map(|p| (p.start, p.end)).collect();
    assert_eq!(ends, [(0, HEADER_15), (HEADER_15, 2040), (2040, 2048)]);
    assert_eq!(dissect(&[0; 2048], None).kind, "zeros");
}

#[test]
fn whatever_the_bytes_the_regions_tile_the_page() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut defects = 0;
    for round in 0..1000 {
        let mut page = data();
        match round % 4 {
            0 => page.iter_mut().for_each(|b| *b = next() as u8),
            1 => (0..6).for_each(|_| page[next() as usize % HEADER] = next() as u8),
            2 => (0..6).for_each(|_| page[2048 - 1 - next() as usize % 60] = next() as u8),
            _ => page.truncate(next() as usize % 2048),
        }
        let found = dissect(&page, Some(140));
        assert_tiled(&found.parts, page.len());
        assert!(found.wrong.iter().all(|w| w.offset <= page.len()));
        defects += usize::from(!found.wrong.is_empty());
        assert_tiled(&dissect_15(&page).parts, page.len());
    }
    assert!(defects > 700, "{defects}");
    for length in 0..64 {
        assert_tiled(&dissect(&vec![0xff; length], None).parts, length);
        assert_tiled(&dissect(&vec![0; length], None).parts, length);
    }
}

//! Records of indexes of which a comparison with the server's images says nothing: their marks are masked, or no load makes them.

mod made;

use leadline_redo::{Applied, Page};
use made::{empty_page, Made};

const BTREE: u8 = 11;
const HASH: u8 = 12;
const GIN: u8 = 13;
const GIST: u8 = 14;

/// Of B-tree, hash and GiST; GIN's has half as many bytes.
const SPECIAL: usize = 8192 - 16;

fn words(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn numbers(of: &[u32]) -> Vec<u8> {
    of.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// An index tuple of 16 bytes: a row of block 0, and a key.
fn tuple(row: u16, key: u8) -> Vec<u8> {
    [words(&[0, 0, row, 16]), vec![key; 8]].concat()
}

fn items(page: &mut [u8]) -> Vec<Vec<u8>> {
    let page = Page::new(page).unwrap();
    (1..=page.max_offset()).map(|number| page.item(number).unwrap().to_vec()).collect()
}

#[test]
fn the_buckets_of_a_split_are_marked_even_if_they_were_just_restored() {
    let mut page = empty_page(16);
    page[SPECIAL + 12] = 2; // a bucket
    let main = [numbers(&[5]), words(&[0x22, 0x12]), vec![0]].concat();
    let split = Made::new(18, HASH, 0x40, &main).image(0, 3, true, &page);
    let mut other = vec![0; 8192];
    assert_eq!(split.apply(0, &mut other), Ok(Applied::Restored));
    assert_eq!(other[SPECIAL..SPECIAL + 4], 5u32.to_le_bytes(), "the buckets there are since");
    assert_eq!(other[SPECIAL + 12..SPECIAL + 14], 0x22u16.to_le_bytes());

    let complete = Made::new(18, HASH, 0x60, &words(&[0x42, 0x02])).image(1, 3, true, &page);
    assert_eq!(complete.apply(1, &mut other), Ok(Applied::Restored));
    assert_eq!(other[SPECIAL + 12..SPECIAL + 14], 0x02u16.to_le_bytes());
}

#[test]
fn a_bitmap_page_that_is_full_is_followed_by_another() {
    let mut meta = empty_page(16);
    let at = |field: usize| 24 + field;
    meta[at(36)..at(40)].copy_from_slice(&7u32.to_le_bytes()); // hashm_ovflpoint
    meta[at(44)..at(48)].copy_from_slice(&1u32.to_le_bytes()); // hashm_nmaps
    meta[at(52 + 28)..at(52 + 32)].copy_from_slice(&32768u32.to_le_bytes()); // hashm_spares[7]
    let add = Made::new(18, HASH, 0x30, &[0, 16, 0])
        .block(0, 0, 900, true, &numbers(&[4]))
        .block(1, 0, 8, false, &[])
        .block(3, 0, 901, true, &[])
        .block(4, 0, 0, false, &numbers(&[32769]));
    let word = |page: &[u8], at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);

    assert_eq!(add.apply(4, &mut meta), Ok(Applied::Changed));
    assert_eq!(word(&meta, at(40)), 32769, "hashm_firstfree");
    assert_eq!((word(&meta, at(44)), word(&meta, at(444 + 4))), (2, 901), "hashm_nmaps and hashm_mapp[1]");
    assert_eq!(word(&meta, at(52 + 28)), 32770, "hashm_spares[7]: the overflow page and the bitmap page");

    let mut bitmap = vec![0xEE; 8192];
    assert_eq!(add.apply(3, &mut bitmap), Ok(Applied::Changed));
    assert!(bitmap[24..24 + 4096].iter().all(|byte| *byte == 0xFF));
    assert_eq!(Page::new(&mut bitmap).unwrap().lower(), 24 + 4096);
    assert_eq!(bitmap[SPECIAL + 12..], [4, 0, 0x80, 0xFF]);
}

#[test]
fn the_left_page_of_a_gist_split_takes_the_number_of_the_record_that_adds_the_downlink() {
    let mut page = empty_page(16);
    page[SPECIAL + 12] = 0x09; // a leaf, and FOLLOW_RIGHT
    let update = Made::new(18, GIST, 0x00, &words(&[0, 1])).image(1, 4, true, &page);
    let mut restored = vec![0; 8192];
    assert_eq!(update.apply(1, &mut restored), Ok(Applied::Restored));
    let nsn = |page: &[u8]| page[SPECIAL..SPECIAL + 8].to_vec();
    let end = [numbers(&[0]), numbers(&[update.end() as u32])].concat();
    assert_eq!((nsn(&restored), restored[SPECIAL + 12]), (end, 0x01));

    let update = Made::new(18, GIST, 0x00, &words(&[0, 1])).block(1, 0, 4, false, &[]);
    assert_eq!(update.apply(1, &mut page), Ok(Applied::Changed));
    assert_eq!((nsn(&page), page[SPECIAL + 12]), (nsn(&page), 0x01));
    assert_ne!(nsn(&page), [0; 8]);
}

#[test]
fn pages_of_a_gist_split_lead_to_the_next_one() {
    let main = [numbers(&[77, 0, 0x1234, 0]), vec![1, 0], words(&[2]), vec![1, 0, 0, 0]].concat();
    let content = [numbers(&[1]), tuple(1, 9)].concat();
    let pages = |first: u32| {
        let split = Made::new(18, GIST, 0x30, &main).block(1, 0, first, true, &content).block(2, 0, 6, true, &content);
        [1, 2].map(|id| {
            let mut page = vec![0xEE; 8192];
            assert_eq!(split.apply(id, &mut page), Ok(Applied::Changed));
            assert_eq!(items(&mut page), [tuple(1, 9)]);
            page[SPECIAL..].to_vec()
        })
    };
    let area = |link: u32, flags: u16| [numbers(&[0, 0x1234, link]), words(&[flags, 0xFF81])].concat();
    assert_eq!(pages(5), [area(6, 0x09), area(77, 0x01)], "the left one to the right one, which still has no downlink");
    assert_eq!(pages(0), [area(u32::MAX, 0), area(77, 0x01)], "the root has no neighbours and is no leaf");
}

#[test]
fn a_deleted_btree_page_keeps_its_transaction_where_its_major_does() {
    let mut page = vec![0xEE; 8192];
    let main = numbers(&[3, 5, 0, 0, 9, 1, 0, 0, 0]); // left, right, level, padding, safexid, leaf
    assert_eq!(Made::new(14, BTREE, 0x80, &main).block(0, 0, 4, true, &[]).apply(0, &mut page), Ok(Applied::Changed));
    assert_eq!(page[24..32], numbers(&[9, 1]));
    assert_eq!(page[SPECIAL..], [numbers(&[3, 5, 0]), words(&[0x105, 0])].concat());

    let main = numbers(&[3, 5, 0, 0, 0, 9]); // left, right, leaf, btpo_xact
    assert_eq!(Made::new(13, BTREE, 0x80, &main).block(0, 0, 4, true, &[]).apply(0, &mut page), Ok(Applied::Changed));
    assert_eq!(page[24..32], [0; 8]);
    assert_eq!(page[SPECIAL..], [numbers(&[3, 5, 9]), words(&[0x04, 0])].concat());
}

#[test]
fn rows_of_one_key_become_a_list_that_is_divided_and_thinned_out() {
    let mut page = empty_page(16);
    page[SPECIAL + 12] = 0x41; // a leaf with garbage
    for (number, row) in (1..).zip([1, 3, 4, 8]) {
        let key = if number == 4 { 7 } else { 5 };
        let insert = Made::new(18, BTREE, 0x00, &words(&[number])).block(0, 0, 1, false, &tuple(row, key));
        Page::new(&mut page).unwrap().set_lsn(0);
        assert_eq!(insert.apply(0, &mut page), Ok(Applied::Changed));
    }
    let list = |rows: &[u16]| {
        let size = (16 + 6 * rows.len()).next_multiple_of(8);
        let mut list = [words(&[0, 16, 0x2000 | rows.len() as u16, 0x2000 | size as u16]), vec![5; 8]].concat();
        rows.iter().for_each(|row| list.extend(words(&[0, 0, *row])));
        list.resize(size, 0);
        list
    };
    let mut step = |record: Made| {
        Page::new(&mut page).unwrap().set_lsn(0);
        assert_eq!(record.apply(0, &mut page), Ok(Applied::Changed));
        (items(&mut page), page[SPECIAL + 12])
    };

    let dedup = Made::new(18, BTREE, 0x60, &words(&[1])).block(0, 0, 1, false, &words(&[1, 3]));
    assert_eq!(step(dedup), (vec![list(&[1, 3, 4]), tuple(8, 7)], 0x01), "and the page has no garbage any more");

    let data = [words(&[1]), tuple(2, 5)].concat(); // before the second row of the list
    let divide = Made::new(18, BTREE, 0x50, &words(&[2])).block(0, 0, 1, false, &data);
    assert_eq!(step(divide).0, [list(&[1, 2, 3]), tuple(4, 5), tuple(8, 7)]);

    let data = words(&[2, 1, 1, 1]); // deleted: 2; updated: 1, which loses one row, the second
    let vacuum = Made::new(18, BTREE, 0xC0, &words(&[1, 1])).block(0, 0, 1, false, &data);
    assert_eq!(step(vacuum).0, [list(&[1, 3]), tuple(8, 7)]);

    let data = words(&[1, 1, 0]); // updated: 1, which loses the first row and is a list no more
    let vacuum = Made::new(18, BTREE, 0xC0, &words(&[0, 1])).block(0, 0, 1, false, &data);
    assert_eq!(step(vacuum).0, [tuple(3, 5), tuple(8, 7)]);

    let data = words(&[2, 1, 1, 0]);
    let vacuum = Made::new(18, BTREE, 0xC0, &words(&[1, 1])).block(0, 0, 1, false, &data);
    Page::new(&mut page).unwrap().set_lsn(0);
    assert_eq!(vacuum.apply(0, &mut page).unwrap_err().what, "B-tree item that loses rows");
}

#[test]
fn a_gin_leaf_from_before_9_4_is_compressed_before_it_changes() {
    let mut page = empty_page(8);
    page[32..50].copy_from_slice(&words(&[0, 0, 1, 0, 0, 2, 0, 1, 1]));
    page[8188..].copy_from_slice(&words(&[3, 0x03])); // three rows of a leaf of a data tree
    let data = [words(&[1]), vec![0, 4], words(&[1, 0, 0, 9])].concat(); // to segment 0 a row is added
    let vacuum = Made::new(18, GIN, 0x90, &[]).block(0, 0, 5, false, &data);
    assert_eq!(vacuum.apply(0, &mut page), Ok(Applied::Changed));
    // Rows (0,1), (0,2), (0,9), (1,1): the first, then 1, 7 and 2040 as differences.
    assert_eq!(page[32..44], [words(&[0, 0, 1, 4]), vec![1, 7, 0xF8, 15]].concat());
    assert_eq!(Page::new(&mut page).unwrap().lower(), 44);
    assert_eq!(page[8188..], words(&[0, 0x83]));
}

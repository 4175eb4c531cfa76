//! A check of redo tells what differs, and nothing that the server does not log.

mod made;

use leadline_redo::consistency::Consistency;
use leadline_redo::{Applied, Page};
use made::{heap_page, Made};

const HEAP: u8 = 10;
const CONFIRM: u8 = 0x50;
const DELETE: u8 = 0x10;

/// Differences after a page was begun, and a row of it deleted: the image of then has one byte changed.
fn differences(at: Option<usize>) -> Vec<String> {
    let begun = heap_page(&[b"row of a few words"]);
    let delete = Made::new(18, HEAP, DELETE, &[9, 0, 0, 0, 1, 0, 0, 0]);
    let mut image = begun.clone();
    assert_eq!(delete.clone().block(0, 0, 7, false, &[]).apply(0, &mut image), Ok(Applied::Changed));
    if let Some(at) = at {
        image[at] ^= 0x10;
    }
    let mut check = Consistency::new(delete.context());
    Made::new(18, HEAP, CONFIRM, &[1, 0]).image(0, 7, true, &begun).give_to(&mut check);
    delete.image(0, 7, false, &image).give_to(&mut check);
    check.end();
    let tally = check.tallies[&(u16::from(HEAP) << 4 | 1)];
    assert_eq!((tally.records, tally.compared, check.pages()), (1, 1, 1));
    assert_eq!(tally.differences as usize, check.differences.len());
    check.differences.iter().map(ToString::to_string).collect()
}

#[test]
fn a_byte_of_a_row_is_told() {
    let mut page = heap_page(&[b"row of a few words"]);
    let row = Page::new(&mut page).unwrap().item_range(1).unwrap().start;
    assert_eq!(differences(None), [""; 0]);
    let found = differences(Some(row + 30));
    assert_eq!(found.len(), 1);
    let (place, what) = found[0].split_once(": ").unwrap();
    assert_eq!(place, "record 0/18, relation 1663/5/16384, fork main, block 7, Block(0)");
    assert!(what.starts_with("Changed: 1 bytes differ, the first at 8174: "), "{what}");
    // xmax, the header's pd_upper; and the record fits no more.
    assert_eq!(differences(Some(row + 4)).len(), 1);
    assert_eq!(differences(Some(14)).len(), 1);
}

#[test]
fn hints_and_the_middle_of_the_page_are_not() {
    let mut page = heap_page(&[b"row of a few words"]);
    let row = Page::new(&mut page).unwrap().item_range(1).unwrap();
    // LSN, checksum, prune xid, the middle, cid, padding behind the row.
    for at in [3, 8, 20, 500, row.start + 8, row.end] {
        assert_eq!(differences(Some(at)), [""; 0], "byte {at}");
    }
}

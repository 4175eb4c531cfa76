//! Items put on index pages, replaced and taken off; what is left in the middle of the page is what the server leaves.

mod made;

use leadline_redo::page::{LinePointer, Place, UNUSED};
use leadline_redo::{free_space, Page};
use made::empty_page;

fn page_of(items: &[&[u8]]) -> Vec<u8> {
    let mut bytes = empty_page(16);
    let mut page = Page::new(&mut bytes).unwrap();
    for (number, item) in (1..).zip(items) {
        assert_eq!(page.add_item(item, Place::Insert(number)).unwrap(), number);
    }
    bytes
}

fn items(bytes: &mut [u8]) -> Vec<Vec<u8>> {
    let page = Page::new(bytes).unwrap();
    (1..=page.max_offset()).filter_map(|number| page.item(number).ok().map(<[u8]>::to_vec)).collect()
}

#[test]
fn an_item_between_others_moves_their_line_pointers() {
    let mut bytes = page_of(&[b"first", b"third"]);
    let mut page = Page::new(&mut bytes).unwrap();
    assert_eq!(page.add_item(b"second", Place::Insert(2)).unwrap(), 2);
    assert!(page.add_item(b"x", Place::Insert(5)).is_err() && page.add_item(b"x", Place::Insert(0)).is_err());
    assert_eq!(items(&mut bytes), [b"first".to_vec(), b"second".to_vec(), b"third".to_vec()]);
}

#[test]
fn a_free_line_pointer_is_used_where_the_page_tells_of_one() {
    let mut bytes = page_of(&[b"1", b"2", b"3"]);
    let mut page = Page::new(&mut bytes).unwrap();
    page.set_line_pointer(2, UNUSED).unwrap();
    assert_eq!(page.add_item(b"4", Place::Free).unwrap(), 4, "nobody said so");
    page.set_flag(leadline_redo::page::flags::HAS_FREE_LINES, true);
    assert_eq!(page.add_item(b"new", Place::Free).unwrap(), 2);
    assert_eq!(page.add_item(b"5", Place::Free).unwrap(), 5);
    assert_eq!(page.flags(), 0, "there was none: the page says so now");
}

#[test]
fn a_deleted_item_leaves_its_bytes_in_the_middle() {
    let mut bytes = page_of(&[&[1; 8], &[2; 16], &[3; 8]]);
    let mut page = Page::new(&mut bytes).unwrap();
    let upper = page.upper();
    page.delete_index_item(2).unwrap();
    assert_eq!((page.upper(), page.max_offset()), (upper + 16, 2));
    assert_eq!(items(&mut bytes), [vec![1; 8], vec![3; 8]]);
    // What moved is still where it was, and what it was moved onto is half there.
    assert_eq!((&bytes[upper..upper + 8], &bytes[upper + 8..upper + 16]), (&[3; 8][..], &[2; 8][..]));
}

#[test]
fn many_go_at_once_and_few_one_by_one() {
    let all: Vec<Vec<u8>> = (1..=9).map(|n| vec![n; 8 * usize::from(n)]).collect();
    let rows: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    for gone in [&[2u16][..], &[3, 9], &[1, 4, 5], &[1, 2, 3, 4, 5, 6, 7, 8, 9]] {
        for major in [13, 18] {
            let mut bytes = page_of(&rows);
            Page::new(&mut bytes).unwrap().delete_index_items(major, gone).unwrap();
            let left: Vec<Vec<u8>> =
                (1u16..).zip(&all).filter(|(n, _)| !gone.contains(n)).map(|(_, row)| row.clone()).collect();
            assert_eq!(items(&mut bytes), left, "{gone:?}");
            let room: usize = left.iter().map(Vec::len).sum();
            assert_eq!(Page::new(&mut bytes).unwrap().upper(), 8176 - room);
        }
    }
    let mut bytes = page_of(&rows);
    assert!(Page::new(&mut bytes).unwrap().delete_index_items(18, &[5, 3, 4]).is_err(), "they must ascend");
    assert!(Page::new(&mut bytes).unwrap().delete_index_items(18, &[1, 2, 10]).is_err());
}

#[test]
fn in_place_others_keep_their_numbers() {
    let mut bytes = page_of(&[&[1; 8], &[2; 16], &[3; 8]]);
    let mut page = Page::new(&mut bytes).unwrap();
    page.delete_index_item_in_place(2).unwrap();
    assert_eq!((page.max_offset(), page.line_pointer(2).unwrap(), page.item(3).unwrap()), (3, UNUSED, &[3; 8][..]));
    page.delete_index_item_in_place(3).unwrap();
    assert_eq!(page.max_offset(), 2, "the last goes away, free ones before it stay");
}

#[test]
fn a_changed_item_grows_and_shrinks_where_it_is() {
    let mut bytes = page_of(&[&[1; 8], &[2; 16], &[3; 8]]);
    let mut page = Page::new(&mut bytes).unwrap();
    let upper = page.upper();
    let dead = LinePointer(page.line_pointer(2).unwrap().0 | 0x18000);
    page.set_line_pointer(2, dead).unwrap();
    page.overwrite_index_item(2, &[4; 30]).unwrap();
    let lp = page.line_pointer(2).unwrap();
    assert_eq!((page.upper(), lp.flags(), lp.len()), (upper - 16, 3, 30), "its flags stay");
    page.overwrite_index_item(2, &[5; 3]).unwrap();
    assert_eq!((page.upper(), page.item(1).unwrap(), page.item(3).unwrap()), (upper + 8, &[1; 8][..], &[3; 8][..]));
    assert!(page.overwrite_index_item(2, &[5; 8192]).is_err() && page.overwrite_index_item(4, b"x").is_err());
}

#[test]
fn the_category_of_a_heap_page_is_the_servers() {
    // FSM_CAT_STEP is 32 bytes, and the last two are for nearly empty pages.
    let mut bytes = empty_page(0);
    assert_eq!(free_space::category(&mut bytes), Some(255));
    let mut page = Page::new(&mut bytes).unwrap();
    page.add_item(&[1; 4000], Place::Free).unwrap();
    let free = 8192 - 24 - 4 - 4000 - 4;
    assert_eq!((page.heap_free_space(), free_space::category(&mut bytes)), (free, Some((free / 32) as u8)));
    // As many line pointers as a page may have, and none free: no room for a row.
    let mut page = Page::new(&mut bytes).unwrap();
    page.set_lower(24 + 4 * 291);
    assert_eq!(page.heap_free_space(), 0);
    page.set_flag(leadline_redo::page::flags::HAS_FREE_LINES, true);
    assert!(page.heap_free_space() > 0, "unused line pointers are all zeros");
    assert_eq!(free_space::category(&mut [0; 100]), None);
}

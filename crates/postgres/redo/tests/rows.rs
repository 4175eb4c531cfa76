//! Records of Heap and Heap2 on pages of a few rows.

mod made;

use leadline_redo::page::{flags, DEAD, LP_DEAD, LP_NORMAL, LP_REDIRECT, LP_UNUSED};
use leadline_redo::{Applied, Page, Part};
use made::{columns, empty_page, heap_page, row, Made, RELATION};

const HEAP: u8 = 10;
const HEAP2: u8 = 9;

fn words(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn item(page: &mut [u8], number: u16) -> Vec<u8> {
    Page::new(page).unwrap().item(number).unwrap().to_vec()
}

fn line_pointers(page: &mut [u8]) -> Vec<u8> {
    let page = Page::new(page).unwrap();
    (1..=page.max_offset()).map(|number| page.line_pointer(number).unwrap().flags()).collect()
}

#[test]
fn the_first_row_makes_the_page_anew() {
    let insert = Made::new(18, HEAP, 0x80, &[1, 0, 0]).block(0, 0, 7, true, &row(b"abc"));
    let mut page = vec![0xAA; 8192];
    assert_eq!(insert.apply(0, &mut page), Ok(Applied::Changed));
    let view = Page::new(&mut page).unwrap();
    assert_eq!((view.lsn(), view.lower(), view.upper(), view.special()), (insert.end(), 28, 8160, 8192));
    let wanted = [
        &700u32.to_le_bytes()[..],  // xmin
        &[0; 8],                    // xmax, cid
        &[0, 0, 7, 0, 1, 0],        // ctid: itself
        &[2, 0, 0x02, 0x08, 24, 0], // infomask2, infomask, hoff, the byte of the bitmap
        b"abc",
    ];
    assert_eq!(item(&mut page, 1), wanted.concat());
    assert_eq!(page[8160 + 27..], [0; 5]);
}

#[test]
fn a_hot_update_takes_the_common_parts_from_the_old_row() {
    let mut page = heap_page(&[b"prefix-old-suffix"]);
    let main = [&9u32.to_le_bytes()[..], &[1, 0, 0x10, 0x60], &0u32.to_le_bytes(), &[2, 0]].concat();
    let data = [&words(&[7, 7])[..], &[2, 0x80, 0x02, 0x28, 24], &[0], b"NEWER"].concat();
    let update = Made::new(18, HEAP, 0x40, &main).block(0, 0, 7, false, &data);
    assert_eq!(update.apply(0, &mut page), Ok(Applied::Changed));
    assert_eq!(columns(&mut page, 2), b"prefix-NEWER-suffix");
    let old = item(&mut page, 1);
    assert_eq!(old[4..8], 9u32.to_le_bytes());
    assert_eq!(old[12..18], [0, 0, 7, 0, 2, 0], "it points to the new row");
    assert_eq!(u16::from_le_bytes([old[18], old[19]]), 2 | 0x4000 | 0x2000, "HOT_UPDATED and KEYS_UPDATED");
    assert_eq!(Page::new(&mut page).unwrap().prune_xid(), 700);
}

#[test]
fn an_update_across_pages_does_to_each_its_part() {
    let main = [&9u32.to_le_bytes()[..], &[1, 0, 0, 0x03], &0u32.to_le_bytes(), &[1, 0]].concat();
    let update = Made::new(15, HEAP, 0xA0, &main).block(0, 0, 8, true, &row(b"new")).block(1, 0, 7, false, &[]);
    let (mut new, mut old) = (vec![0; 8192], heap_page(&[b"old"]));
    Page::new(&mut old).unwrap().set_flag(flags::ALL_VISIBLE, true);
    assert_eq!((update.apply(0, &mut new), update.apply(1, &mut old)), (Ok(Applied::Changed), Ok(Applied::Changed)));
    assert_eq!(columns(&mut new, 1), b"new");
    assert_eq!(item(&mut old, 1)[12..18], [0, 0, 8, 0, 1, 0]);
    assert_eq!(Page::new(&mut old).unwrap().flags(), 0, "not all-visible any more");
    // Old and new page were all-visible: both lose their bits on the same page of the map.
    let parts: Vec<_> =
        update.targets().iter().map(|target| (target.page.fork, target.page.block, target.part)).collect();
    let clear = |heap_block| (2, 0, Part::ClearVisible { heap_block, bits: 3 });
    assert_eq!(parts, [(0, 8, Part::Block(0)), (0, 7, Part::Block(1)), clear(7), clear(8)]);
}

#[test]
fn a_deleted_row_keeps_no_old_marks() {
    let mut page = heap_page(&[b"x", b"y"]);
    let at = Page::new(&mut page).unwrap().item_range(1).unwrap().start;
    page[at + 20..at + 22].copy_from_slice(&(0xC000u16 | 0x1CD0 | 0x20).to_le_bytes());
    let main = [&9u32.to_le_bytes()[..], &[1, 0, 0x10, 0]].concat();
    assert_eq!(Made::new(18, HEAP, 0x10, &main).block(0, 0, 7, false, &[]).apply(0, &mut page), Ok(Applied::Changed));
    assert_eq!(page[at + 20..at + 22], [0, 0]);
    // Taken back: it never was. Moved: its new place is in another table.
    for (mark, xmin, xmax, ctid) in [(0x08, 0, 0, [0, 0, 7, 0, 2, 0]), (0x10, 0, 9, [255, 255, 255, 255, 0xFD, 0xFF])] {
        let main = [&9u32.to_le_bytes()[..], &[2, 0, 0, mark]].concat();
        Page::new(&mut page).unwrap().set_lsn(0);
        Made::new(18, HEAP, 0x10, &main).block(0, 0, 7, false, &[]).apply(0, &mut page).unwrap();
        let found = item(&mut page, 2);
        assert_eq!(
            (&found[..4], &found[4..8], &found[12..18]),
            (&u32::to_le_bytes(xmin)[..], &u32::to_le_bytes(xmax)[..], &ctid[..])
        );
    }
}

#[test]
fn only_a_locked_row_that_nobody_updated_points_to_itself() {
    for (infobits, ctid) in [(0x02 | 0x08, [0, 0, 7, 0, 1, 0]), (0x01, [0, 0, 7, 0, 5, 0])] {
        let mut page = heap_page(&[b"x"]);
        let at = Page::new(&mut page).unwrap().item_range(1).unwrap().start;
        page[at + 16] = 5;
        let main = [&9u32.to_le_bytes()[..], &[1, 0, infobits, 0]].concat();
        Made::new(18, HEAP, 0x60, &main).block(0, 0, 7, false, &[]).apply(0, &mut page).unwrap();
        assert_eq!(item(&mut page, 1)[12..18], ctid);
    }
}

#[test]
fn images_first_then_new_pages_then_the_lsn() {
    let insert = |page: &[u8], apply| Made::new(14, HEAP, 0, &[1, 0, 0]).image(0, 7, apply, page);
    let image = heap_page(&[b"image"]);
    let mut newer = empty_page(0);
    Page::new(&mut newer).unwrap().set_lsn(made::LATER);
    let mut page = newer.clone();
    assert_eq!(insert(&image, true).apply(0, &mut page), Ok(Applied::Restored));
    assert_eq!(
        (columns(&mut page, 1), Page::new(&mut page).unwrap().lsn()),
        (b"image".to_vec(), insert(&image, true).end())
    );
    // An image that verifies redo is none, and the page is newer.
    let mut page = newer.clone();
    assert_eq!(insert(&image, false).apply(0, &mut page), Ok(Applied::Older));
    assert_eq!(page, newer);
    assert_eq!(insert(&image, false).apply(0, &mut [0; 8192]), Ok(Applied::Missing));
    // An image of a page that was never filled leaves it so.
    let mut page = newer.clone();
    assert_eq!(insert(&[0; 8192], true).apply(0, &mut page), Ok(Applied::Restored));
    assert_eq!(page, [0; 8192]);
}

/// Three of five rows go. The room they had goes to the middle of the page, and the order of the rest depends on the major.
#[test]
fn pruned_rows_are_packed_as_each_major_packs_them() {
    let rows = [&b"one....."[..], b"two.....", b"three...", b"four....", b"five...."];
    for major in 13..=18 {
        // Row 1 and row 3 change places, so that the page's order is not that of the line pointers.
        let mut page = heap_page(&rows);
        let mut view = Page::new(&mut page).unwrap();
        let (one, three) = (view.line_pointer(1).unwrap(), view.line_pointer(3).unwrap());
        view.set_line_pointer(1, three).unwrap();
        view.set_line_pointer(3, one).unwrap();
        // 3 leads to 2, 4 is dead, 5 is free: the last goes away in newer majors.
        let prune = if major >= 17 {
            let data = words(&[1, 3, 2, 1, 4, 1, 5]);
            Made::new(major, HEAP2, 0x10, &[0, 0x04 | 0x20 | 0x40 | 0x80]).block(0, 0, 7, false, &data)
        } else {
            let main = [&[0; 4][..], &words(&[1, 1]), &[0, 0]].concat();
            Made::new(major, HEAP2, 0x10, &main).block(0, 0, 7, false, &words(&[3, 2, 4, 5]))
        };
        assert_eq!(prune.apply(0, &mut page), Ok(Applied::Changed), "{major}");
        let found = line_pointers(&mut page);
        let all = [LP_NORMAL, LP_NORMAL, LP_REDIRECT, LP_DEAD, LP_UNUSED];
        let wanted = if major >= 15 { &all[..4] } else { &all };
        assert_eq!(found, wanted, "{major}");
        assert_eq!(
            Page::new(&mut page).unwrap().flags(),
            if major >= 15 { 0 } else { flags::HAS_FREE_LINES },
            "{major}"
        );
        // On the page row 2 was behind row 1, and 13 leaves it so.
        let offsets = [1, 2].map(|number| Page::new(&mut page).unwrap().item_range(number).unwrap().start);
        assert_eq!(offsets[0] > offsets[1], major >= 14, "{major}: {offsets:?}");
        assert_eq!(Page::new(&mut page).unwrap().upper(), 8192 - 64, "{major}");
        assert_eq!(
            (columns(&mut page, 1), columns(&mut page, 2)),
            (b"three...".to_vec(), b"two.....".to_vec()),
            "{major}"
        );
    }
}

#[test]
fn vacuum_leaves_one_line_pointer() {
    let mut page = heap_page(&[b"1", b"2", b"3"]);
    let mut view = Page::new(&mut page).unwrap();
    for number in 1..=3 {
        view.set_line_pointer(number, DEAD).unwrap();
    }
    let vacuum = Made::new(16, HEAP2, 0x20, &[3, 0]).block(0, 0, 7, false, &words(&[1, 2, 3]));
    assert_eq!(vacuum.apply(0, &mut page), Ok(Applied::Changed));
    assert_eq!(line_pointers(&mut page), [LP_UNUSED]);
    assert_eq!(Page::new(&mut page).unwrap().flags(), flags::HAS_FREE_LINES);
}

#[test]
fn a_visible_page_takes_the_lsn_where_hints_are_logged() {
    let visible = Made::new(18, HEAP2, 0x40, &[0, 0, 0, 0, 3]).block(0, 2, 0, false, &[]).block(1, 0, 7, false, &[]);
    for (hints, lsn) in [(true, visible.end()), (false, 0)] {
        let mut page = heap_page(&[b"x"]);
        let context = leadline_redo::Context { hint_bits_are_logged: hints, ..visible.context() };
        assert_eq!(visible.apply_in(context, Part::Block(1), &mut page), Ok(Applied::Changed));
        let view = Page::new(&mut page).unwrap();
        assert_eq!((view.flags(), view.lsn()), (flags::ALL_VISIBLE, lsn));
    }
    let mut map = vec![0; 8192];
    assert_eq!(visible.apply(0, &mut map), Ok(Applied::Changed));
    assert_eq!((map[24], map[25], Page::new(&mut map).unwrap().upper()), (0, 0b1100_0000, 8192));
    // It was set: the page keeps its LSN.
    Page::new(&mut map).unwrap().set_lsn(5);
    assert_eq!(visible.apply(0, &mut map), Ok(Applied::Unchanged));
    assert_eq!(Page::new(&mut map).unwrap().lsn(), 5);
    let clear = Part::ClearVisible { heap_block: 7, bits: 2 };
    assert_eq!((visible.apply_part(clear, &mut map), map[25]), (Ok(Applied::Changed), 0b0100_0000));
    assert_eq!(Page::new(&mut map).unwrap().lsn(), 5, "a clear leaves it");
}

#[test]
fn a_record_that_names_the_map_clears_it_by_lsn() {
    let main = [&9u32.to_le_bytes()[..], &[1, 0, 0, 1]].concat();
    let delete = Made::new(18, HEAP, 0x10, &main).block(0, 0, 7, false, &[]).block(1, 2, 0, false, &[]);
    assert_eq!(delete.targets().len(), 2, "nothing is cleared a second time");
    let mut map = empty_page(0);
    map[25] = 0xFF;
    assert_eq!((delete.apply(1, &mut map), map[25]), (Ok(Applied::Changed), 0x3F));
    assert_eq!(Page::new(&mut map).unwrap().lsn(), delete.end());
    map[25] = 0xFF;
    assert_eq!((delete.apply(1, &mut map), map[25]), (Ok(Applied::Older), 0xFF));
}

#[test]
fn a_truncation_cuts_the_maps_too() {
    let numbers = [9u32, RELATION.spc, RELATION.db, RELATION.rel, 7];
    let main: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let truncate = Made::new(18, 2, 0x20, &main);
    let parts: Vec<_> =
        truncate.targets().iter().map(|target| (target.page.fork, target.page.block, target.part)).collect();
    let (vm, fsm) = (Part::TruncateVisible { heap_blocks: 9 }, Part::TruncateFreeSpace { heap_blocks: 9 });
    assert_eq!(parts, [(2, 0, vm), (1, 2, fsm)]);
    let mut map = empty_page(0);
    map[24..].fill(0xFF);
    assert_eq!(truncate.apply_part(vm, &mut map), Ok(Applied::Changed));
    assert_eq!((&map[24..27], map[27..].iter().all(|byte| *byte == 0)), (&[0xFF, 0xFF, 0x03][..], true));
}

#[test]
fn what_does_not_fit_is_said() {
    let said = |made: &Made, page: &mut [u8]| made.apply(0, page).map_err(|misfit| misfit.to_string());
    let mut page = heap_page(&[b"x"]);
    let insert = |number: u8| Made::new(18, HEAP, 0, &[number, 0, 0]).block(0, 0, 7, false, &row(b"y"));
    assert_eq!(said(&insert(1), &mut page), Err("place of a new item: expected a free line pointer, found 1".into()));
    assert_eq!(said(&insert(3), &mut page), Err("offset number of a new item: expected 1 to 2, found 3".into()));
    let inplace = Made::new(18, HEAP, 0x70, &[1, 0]).block(0, 0, 7, false, b"yy");
    assert_eq!(said(&inplace, &mut page), Err("length of the columns: expected 1, found 2".into()));
    let short = Made::new(18, HEAP, 0x10, &[9, 0, 0, 0, 1]).block(0, 0, 7, false, &[]);
    assert_eq!(said(&short, &mut page), Err("offnum: expected 2 bytes in the record, found 1".into()));
    let huge = Made::new(18, HEAP, 0, &[2, 0, 0]).block(0, 0, 7, false, &row(&[1; 8200]));
    assert_eq!(said(&huge, &mut page), Err("new item: expected at most 8132 bytes, found 8224".into()));
    // A page that is made anew has no old version to take columns from, even when the record says it is on the same page.
    let main = [&[0, 0, 0, 0, 1, 0, 0, 0x20][..], &[0, 0, 0, 0, 1, 0]].concat();
    let update = Made::new(18, HEAP, 0x20 | 0x80, &main).block(0, 0, 7, false, &[&[1, 0][..], &row(b"")].concat());
    assert_eq!(
        said(&update, &mut page.clone()),
        Err("block of the old row: expected that of the new row, found another".into())
    );
    page[12] = 3;
    let wrong = "page header: expected 24 <= pd_lower <= pd_upper <= pd_special, inside the page, found lower 3, upper 8160, special 8192";
    assert_eq!(said(&insert(2), &mut page), Err(wrong.into()));
    let misfit = insert(2).apply(0, &mut page).unwrap_err();
    assert_eq!((misfit.lsn.0, misfit.target.map(|target| target.part)), (24, Some(Part::Block(0))));
}

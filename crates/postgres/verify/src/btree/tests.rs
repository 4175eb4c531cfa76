//! Small trees of int4 keys, made by hand, and what is found when something in them is changed.

use leadline_page::postgres::Fork;
use leadline_rows::tuple::Storage;
use leadline_testdata::Random;

use super::about::About;
use super::found::AllFound;
use super::heap_index::Marks;
use super::keys::{Column, Keys};
use super::meta::Meta;
use super::page::Pass;
use super::{edges, links};
use crate::blocks::{Page, Settled};
use crate::order::Order;

const SIZE: usize = 8192;
const LEAF: u16 = 1;
const ROOT: u16 = 2;
const HALF_DEAD: u16 = 0x10;
const SPLIT: u16 = 0x80;

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Block, position, key; without a key there are no columns.
type Item = (u32, u16, Option<i32>);

/// A row of a leaf.
fn row(key: i32) -> Item {
    (0, key as u16, Some(key))
}

fn page(prev: u32, next: u32, level: u32, flags: u16, items: &[(Item, bool)]) -> Vec<u8> {
    let mut page = vec![0; SIZE];
    let mut end = SIZE - 16;
    for (i, ((block, posid, key), is_pivot)) in items.iter().enumerate() {
        let len = if key.is_some() { 16 } else { 8 };
        end -= len;
        let t_info = len as u16 | if *is_pivot { 0x2000 } else { 0 };
        let posid = if *is_pivot { u16::from(key.is_some()) } else { *posid };
        let halves = [(block >> 16) as u16, *block as u16, posid, t_info];
        let halves: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        put(&mut page, end, &halves);
        put(&mut page, end + 8, &key.map_or_else(Vec::new, |key| key.to_le_bytes().to_vec()));
        put(&mut page, 24 + 4 * i, &(end as u32 | 1 << 15 | (len as u32) << 17).to_le_bytes());
    }
    let header = [24 + 4 * items.len() as u16, end as u16, SIZE as u16 - 16, SIZE as u16 | 4];
    put(&mut page, 12, &header.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>());
    put(&mut page, SIZE - 16, &[prev, next, level].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>());
    put(&mut page, SIZE - 4, &flags.to_le_bytes());
    page
}

fn leaf(prev: u32, next: u32, flags: u16, high: Option<i32>, keys: &[i32]) -> Vec<u8> {
    let high = high.map(|key| ((0, 0, Some(key)), true));
    let items: Vec<_> = high.into_iter().chain(keys.iter().map(|key| (row(*key), false))).collect();
    page(prev, next, 0, LEAF | flags, &items)
}

fn inner(prev: u32, next: u32, level: u32, flags: u16, high: Option<i32>, links: &[(u32, Option<i32>)]) -> Vec<u8> {
    let high = high.map(|key| ((0, 0, Some(key)), true));
    let items: Vec<_> = high.into_iter().chain(links.iter().map(|(child, key)| ((*child, 0, *key), true))).collect();
    page(prev, next, level, flags, &items)
}

/// Block 0 stands for the meta page; block 3 is the root, above 1, 2 and 4.
fn tree() -> Vec<Vec<u8>> {
    vec![
        vec![0; SIZE],
        leaf(0, 2, 0, Some(10), &[1, 5, 9]),
        leaf(1, 4, 0, Some(20), &[10, 15]),
        inner(0, 0, 1, ROOT, None, &[(1, None), (2, Some(10)), (4, Some(20))]),
        leaf(2, 0, 0, None, &[20, 30]),
    ]
}

/// Block 7 is the root above 5 and 6, which are above two leaves each.
fn high_tree() -> Vec<Vec<u8>> {
    vec![
        vec![0; SIZE],
        leaf(0, 2, 0, Some(10), &[1]),
        leaf(1, 3, 0, Some(20), &[10]),
        leaf(2, 4, 0, Some(30), &[20]),
        leaf(3, 0, 0, None, &[30]),
        inner(0, 6, 1, 0, Some(20), &[(1, None), (2, Some(10))]),
        inner(5, 0, 1, 0, None, &[(3, None), (4, Some(30))]),
        inner(0, 0, 2, ROOT, None, &[(5, None), (6, Some(20))]),
    ]
}

fn about(blocks: u32) -> About {
    let column = Column { order: Some(Order::Int4), is_descending: false, nulls_first: false };
    let storages = vec![Storage { attlen: 4, attalign: b'i' }];
    About {
        keys: Keys { storages, columns: vec![column], has_tids: true },
        version: Some(4),
        allows_posting: Some(true),
        blocks,
        heap_blocks: Some(1),
        most_rows: 291,
        settled: Settled::All,
        keeps_rows: true,
        unique: None,
    }
}

fn checked(pages: &[Vec<u8>], root: u32, level: u32) -> AllFound {
    let about = about(pages.len() as u32);
    let marks = Marks::new(0, 1, 291);
    let mut pass = Pass::new(&about, Some(&marks));
    pass.edges = edges::Edges::new(1);
    let mut rows = vec![super::rows::Row::default()];
    for (block, bytes) in (1..).zip(&pages[1..]) {
        rows.push(pass.page(&Page::of(bytes, Fork::Main, block, false, Settled::All)));
    }
    pass.edges.end();
    let mut found = std::mem::take(&mut pass.found);
    edges::join(&[std::mem::take(&mut pass.edges)], &rows, &about.keys, &mut found);
    let meta =
        Meta { version: 4, root, level, fast_root: root, fast_level: level, allows_posting: true, is_settled: true };
    links::check(&about, Some(&meta), &rows, vec![std::mem::take(&mut pass.downlinks)], &mut found);
    found
}

fn found(pages: &[Vec<u8>], root: u32, level: u32) -> Vec<(&'static str, u32)> {
    checked(pages, root, level).all().map(|found| (found.class, found.block)).collect()
}

#[test]
fn a_sound_tree_is_sound() {
    assert_eq!(found(&tree(), 3, 1), []);
    assert_eq!(found(&high_tree(), 7, 2), []);
}

#[test]
fn keys_are_in_order_within_and_across_pages() {
    let mut pages = tree();
    pages[2] = leaf(1, 4, 0, Some(20), &[15, 11]);
    assert_eq!(found(&pages, 3, 1), [("order", 2)]);
    pages[2] = leaf(1, 4, 0, Some(20), &[10, 21]);
    assert_eq!(found(&pages, 3, 1), [("high_key", 2)]);
    pages[2] = leaf(1, 4, 0, Some(20), &[9, 15]);
    assert_eq!(found(&pages, 3, 1), [("twice", 2), ("order", 2)]);
    pages = tree();
    // The siblings are not next to each other in the file.
    pages[4] = leaf(2, 0, 0, None, &[19, 30]);
    assert_eq!(found(&pages, 3, 1), [("order", 4)]);
}

#[test]
fn siblings_agree() {
    let mut pages = tree();
    put(&mut pages[2], SIZE - 16, &4u32.to_le_bytes());
    assert_eq!(found(&pages, 3, 1), [("sibling", 1)]);
    pages = tree();
    put(&mut pages[1], SIZE - 12, &9u32.to_le_bytes());
    assert_eq!(found(&pages, 3, 1), [("sibling", 1)]);
}

#[test]
fn each_page_has_one_downlink() {
    let mut pages = tree();
    pages[3] = inner(0, 0, 1, ROOT, None, &[(1, None), (4, Some(20))]);
    assert_eq!(found(&pages, 3, 1), [("downlink", 2)]);
    pages[3] = inner(0, 0, 1, ROOT, None, &[(1, None), (2, Some(10))]);
    assert_eq!(found(&pages, 3, 1), [("downlink", 4)]);
    pages[3] = inner(0, 0, 1, ROOT, None, &[(1, None), (4, Some(10)), (2, Some(20))]);
    assert_eq!(found(&pages, 3, 1)[0].0, "downlink");
    pages[3] = inner(0, 0, 1, ROOT, None, &[(1, None), (2, Some(11)), (4, Some(20))]);
    assert_eq!(found(&pages, 3, 1), [("high_key", 1)]);
}

#[test]
fn the_first_downlink_of_a_page_continues_the_page_before() {
    let mut pages = high_tree();
    pages[2] = leaf(1, 3, 0, Some(19), &[10]);
    assert_eq!(found(&pages, 7, 2), [("high_key", 2)]);
    pages = high_tree();
    pages[6] = inner(5, 0, 1, 0, None, &[(4, None)]);
    assert_eq!(found(&pages, 7, 2), [("downlink", 3)]);
}

#[test]
fn an_interrupted_split_is_no_problem() {
    let mut pages = tree();
    pages[1] = leaf(0, 2, SPLIT, Some(10), &[1, 5, 9]);
    pages[3] = inner(0, 0, 1, ROOT, None, &[(1, None), (4, Some(20))]);
    assert_eq!(found(&pages, 3, 1), []);
    // But then there is no downlink yet.
    pages[3] = tree().swap_remove(3);
    assert_eq!(found(&pages, 3, 1), [("split", 2)]);
}

#[test]
fn an_interrupted_deletion_is_no_problem() {
    let mut pages = tree();
    let dead = |prev, next| page(prev, next, 0, LEAF | HALF_DEAD, &[((0, 0, None), true)]);
    pages[2] = dead(1, 4);
    pages[3] = inner(0, 0, 1, ROOT, None, &[(1, None), (4, Some(10))]);
    assert_eq!(found(&pages, 3, 1), []);
    pages[3] = tree().swap_remove(3);
    assert_eq!(found(&pages, 3, 1)[0], ("downlink", 3));
    // With an inner page above that has nothing else: block 8 is left of 6.
    let mut pages = high_tree();
    pages[2] = leaf(1, 9, 0, Some(20), &[10]);
    pages[3] = leaf(9, 4, 0, Some(30), &[25]);
    pages[5] = inner(0, 8, 1, 0, Some(20), &[(1, None), (2, Some(10))]);
    pages[6] = inner(8, 0, 1, 0, None, &[(3, None), (4, Some(30))]);
    pages.push(inner(5, 6, 1, 0, Some(25), &[(9, None)]));
    pages.push(dead(2, 3));
    assert_eq!(found(&pages, 7, 2), []);
}

#[test]
fn the_root_is_where_the_meta_page_says() {
    assert_eq!(found(&tree(), 3, 2), [("meta", 0), ("meta", 0)]);
    assert_eq!(found(&tree(), 1, 1)[0], ("meta", 0));
    let mut pages = tree();
    put(&mut pages[4], SIZE - 4, &(LEAF | ROOT).to_le_bytes());
    assert_eq!(found(&pages, 3, 1), [("root", 4)]);
}

#[test]
fn columns_and_row_numbers_are_as_their_place_wants() {
    let mut pages = tree();
    pages[2] = page(1, 4, 0, LEAF, &[((0, 0, Some(20)), true), ((0, 7, Some(12)), true)]);
    assert_eq!(found(&pages, 3, 1), [("columns", 2)]);
    pages[2] = page(1, 4, 0, LEAF, &[((0, 0, Some(20)), true), ((3, 7, Some(12)), false)]);
    assert_eq!(found(&pages, 3, 1), [("row_number", 2)]);
    pages[2] = page(1, 4, 0, LEAF, &[((0, 0, Some(20)), true), ((0, 0, Some(12)), false)]);
    assert_eq!(found(&pages, 3, 1), [("row_number", 2)]);
}

#[test]
fn any_bytes_are_a_tree_or_none() {
    let mut random = Random(7);
    let mut count = 0;
    for _ in 0..4000 {
        let (mut pages, root, level) = if random.below(2) == 0 { (tree(), 3, 1) } else { (high_tree(), 7, 2) };
        for _ in 0..=random.below(6) {
            let block = 1 + random.index(pages.len() - 1);
            let used: Vec<usize> = (0..SIZE).filter(|at| pages[block][*at] != 0 || *at > SIZE - 16).collect();
            let at = used[random.index(used.len())];
            pages[block][at] = if random.below(2) == 0 { random.below(9) as u8 } else { random.next() as u8 };
        }
        count += checked(&pages, root, level).all().count();
    }
    assert!(count > 1000, "{count}");
}

//! Pages made by hand, and bytes without a meaning.

use leadline_datadir::{DataDir, Transactions};
use leadline_page::postgres::Fork;
use leadline_rows::heap_file::HeapFile;
use leadline_testdata::{noise, plausible, put, Random};

use super::about::Thresholds;
use super::found::Found;
use super::items::Items;
use super::xacts::Ends;
use super::{chains, tuples, visible, xids};
use crate::blocks::{Blocks, Page, Settled};
use crate::maps::Bits;
use crate::problem::{Problem, Report};
use crate::{scalars, toast};

const SIZE: usize = 8192;
const COMMITTED: u16 = 0x0100;
const INVALID: u16 = 0x0800;
const UPDATED: u16 = 0x2000;
const HOT: u16 = 0x4000;
const HEAP_ONLY: u16 = 0x8000;

fn dir() -> DataDir {
    let about = Transactions {
        oldest_xid: 500,
        next_xid: 1000,
        oldest_active_xid: 1000,
        oldest_multi: 1,
        next_multi: 10,
        next_multi_offset: 20,
        is_final: true,
    };
    DataDir {
        root: "/nowhere".into(),
        major: 18,
        block_size: SIZE,
        segment_blocks: 131_072,
        checksums: false,
        transactions: Some(about),
        control_lost: None,
    }
}

/// A row version: xmin, xmax, the number that its t_ctid is of, t_infomask2 without the columns, t_infomask.
#[derive(Clone, Copy)]
struct Row(u32, u32, u16, u16, u16);

/// What a line pointer is of.
#[derive(Clone, Copy)]
enum Lp {
    Row(Row),
    Redirect(u32),
    Unused,
    Dead,
}

/// Block 7, with rows of one column of four bytes.
fn page(items: &[Lp]) -> Vec<u8> {
    let mut page = vec![0; SIZE];
    let mut upper = SIZE;
    for (i, item) in items.iter().enumerate() {
        let word = match item {
            Lp::Unused => 0,
            Lp::Dead => 3 << 15,
            Lp::Redirect(to) => to | 2 << 15,
            Lp::Row(Row(xmin, xmax, posid, mask2, mask)) => {
                upper -= 32;
                page[upper..upper + 4].copy_from_slice(&xmin.to_le_bytes());
                page[upper + 4..upper + 8].copy_from_slice(&xmax.to_le_bytes());
                put(&mut page, upper + 14, 7);
                put(&mut page, upper + 16, *posid);
                put(&mut page, upper + 18, mask2 | 1);
                put(&mut page, upper + 20, *mask);
                page[upper + 22] = 24;
                upper as u32 | 1 << 15 | 28 << 17
            }
        };
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&word.to_le_bytes());
    }
    put(&mut page, 12, 24 + 4 * items.len() as u16);
    put(&mut page, 14, upper as u16);
    put(&mut page, 16, SIZE as u16);
    put(&mut page, 18, SIZE as u16 | 4);
    page
}

/// What is found on a page; with its bits of the visibility map.
fn found_with(bytes: &[u8], bits: Bits) -> Vec<String> {
    let dir = dir();
    let mut problems = Vec::new();
    let mut take = |problem: Problem| {
        problems.push(format!("{}: {}", problem.class, problem.message));
        true
    };
    let mut report = Report::new(&mut take);
    let file = HeapFile::absent(&dir, "/nowhere/base/1/2".into());
    let mut found = Found::new(&mut report, Blocks::new(file, &dir, Settled::All));
    let mut ends = Ends::new(&dir, dir.transactions, dir.transactions);
    let mut items = Items::default();
    let page = Page::of(bytes, Fork::Main, 7, false, Settled::All);
    items.fill(&page, &mut ends);
    chains::check(&items, 7, &mut found);
    tuples::check(&items, 7, 1, true, &mut found);
    visible::check(&items, 7, page.header.pd_flags, bits, true, &mut found);
    let than = Thresholds { toast: 0, frozen_xid: 600, min_multi: 2 };
    xids::check(&items, 7, &than, true, &mut ends, &mut found);
    problems
}

fn found(items: &[Lp]) -> Vec<String> {
    found_with(&page(items), Bits::default())
}

/// The only problem there is.
fn one(items: &[Lp]) -> String {
    let all = found(items);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

const LIVE: Row = Row(700, 0, 1, 0, COMMITTED | INVALID);

/// A root that was HOT updated to line pointer 2, and its next version.
fn chain() -> [Row; 2] {
    [Row(700, 701, 2, HOT, COMMITTED | 0x0400), Row(701, 0, 2, HEAP_ONLY, COMMITTED | INVALID | UPDATED)]
}

#[test]
fn chains_as_a_server_leaves_them() {
    let [root, next] = chain();
    for items in [
        &[Lp::Row(LIVE)][..],
        &[Lp::Row(root), Lp::Row(next)],
        &[Lp::Redirect(2), Lp::Row(next), Lp::Unused, Lp::Dead],
        // The update was rolled back: its version is left, or gone and its place is taken by another row.
        &[
            Lp::Row(Row(700, 701, 2, HOT, COMMITTED | INVALID)),
            Lp::Row(Row(701, 0, 2, HEAP_ONLY, 0x0200 | INVALID | UPDATED)),
        ],
        &[Lp::Row(Row(700, 701, 2, HOT, COMMITTED | INVALID)), Lp::Unused],
        &[Lp::Row(Row(700, 701, 2, HOT, COMMITTED | INVALID)), Lp::Row(Row(705, 0, 2, 0, COMMITTED | INVALID))],
        // Nothing leads to it, and it never was committed.
        &[Lp::Row(Row(701, 0, 1, HEAP_ONLY, 0x0200 | INVALID | UPDATED))],
        // Frozen, and locked by nobody any more.
        &[Lp::Row(Row(3, 0, 1, 0, 0x0300 | INVALID))],
    ] {
        assert_eq!(found(items), Vec::<String>::new());
    }
}

#[test]
fn broken_chains() {
    let [root, next] = chain();
    let says = |items: &[Lp], what: &str| {
        let problem = one(items);
        assert!(problem.starts_with("hot_chain") && problem.contains(what), "{problem}");
    };
    says(&[Lp::Row(root), Lp::Unused], "but line pointer 2 has no row");
    says(&[Lp::Row(root), Lp::Row(Row(705, 0, 2, 0, COMMITTED | INVALID))], "the xmin of row 2 is 705");
    says(&[Lp::Row(LIVE), Lp::Row(next)], "no other row and no redirect");
    says(
        &[Lp::Redirect(3), Lp::Redirect(3), Lp::Row(Row(701, 0, 3, HEAP_ONLY, COMMITTED | INVALID | UPDATED))],
        "line pointer 1 of block 7 leads there too",
    );
    says(&[Lp::Row(Row(700, 701, 2, 0, COMMITTED | 0x0400)), Lp::Row(next)], "is not marked as HOT updated");
    says(&[Lp::Row(root), Lp::Row(Row(701, 0, 2, 0, COMMITTED | INVALID | UPDATED))], "is not heap only");
    says(&[Lp::Row(Row(700, 701, 1, HOT, COMMITTED | 0x0400))], "its t_ctid (7,1) is not another row");
}

#[test]
fn headers_and_transactions() {
    let says = |row: Row, what: &str| {
        let problem = one(&[Lp::Row(row)]);
        assert!(problem.contains(what), "{problem}");
    };
    says(Row(700, 5, 1, 0, COMMITTED | 0x1400 | 0x0080), "never said of a multixact");
    says(Row(700, 0, 1, 2, COMMITTED | INVALID), "the row has 3 columns");
    says(Row(1000, 0, 1, 0, COMMITTED | INVALID), "xmin 1000 is not before the next transaction 1000");
    says(Row(450, 0, 1, 0, COMMITTED | INVALID), "xmin 450 is before the oldest transaction 500");
    says(Row(550, 0, 1, 0, COMMITTED | INVALID), "xmin 550 is before the relfrozenxid 600");
    says(Row(700, 2000, 1, 0, COMMITTED | 0x00c0), "xmax 2000 is not before");
    says(Row(700, 10, 1, 0, COMMITTED | 0x10c0), "multixact 10 is not before the next one 10");
    says(Row(700, 1, 1, 0, COMMITTED | 0x10c0), "multixact 1 is before the relminmxid 2");
}

#[test]
fn pages_that_are_visible_to_all() {
    let (visible, frozen) = (Bits { visible: true, frozen: false }, Bits { visible: true, frozen: true });
    let marked = |items: &[Lp]| {
        let mut page = page(items);
        put(&mut page, 10, 4);
        page
    };
    assert_eq!(found_with(&marked(&[Lp::Row(LIVE)]), visible), Vec::<String>::new());
    assert_eq!(found_with(&marked(&[Lp::Row(Row(700, 0, 1, 0, 0x0300 | INVALID))]), frozen), Vec::<String>::new());
    assert!(found_with(&page(&[Lp::Row(LIVE)]), visible)[0].contains("PD_ALL_VISIBLE of the page is not set"));
    assert!(found_with(&marked(&[Lp::Row(LIVE)]), frozen)[0].contains("its xmin 700 is not"));
    let deleted = Row(700, 701, 1, 0, COMMITTED | 0x0400);
    for item in [Lp::Dead, Lp::Row(deleted), Lp::Row(Row(700, 0, 1, 0, 0x0200 | INVALID))] {
        let all = found_with(&marked(&[item]), visible);
        assert!(all.len() == 1 && all[0].contains("visible to all, but"), "{all:?}");
    }
}

#[test]
fn bytes_without_a_meaning_are_looked_at_too() {
    let mut random = Random(7);
    let dir = dir();
    for round in 0..2000 {
        let bytes = match round % 3 {
            0 => noise(&mut random, SIZE),
            1 => plausible(&mut random, SIZE, &[]),
            _ => {
                let [root, next] = chain();
                let mut page = page(&[Lp::Row(root), Lp::Row(next), Lp::Redirect(2), Lp::Dead, Lp::Row(LIVE)]);
                for _ in 0..1 + random.index(8) {
                    let at = if random.below(2) == 0 { random.index(48) } else { SIZE - 1 - random.index(100) };
                    page[at] = random.next() as u8;
                }
                page
            }
        };
        let bits = Bits { visible: round % 2 == 0, frozen: round % 5 == 0 };
        found_with(&bytes, bits);
        let mut take = |_| true;
        let mut report = Report::new(&mut take);
        let file = HeapFile::absent(&dir, "/nowhere/base/1/2".into());
        let mut found = Found::new(&mut report, Blocks::new(file, &dir, Settled::All));
        let mut items = Items::default();
        items.fill(&Page::of(&bytes, Fork::Main, 7, false, Settled::All), &mut Ends::new(&dir, None, None));
        toast::check_rows(&bytes, &items, 7, &mut found);
        for oid in [16, 19, 25, 650, 1042, 1043, 1082, 1083, 1114, 1266, 1560, 1562, 1700] {
            let len = random.index(20);
            scalars::wrong(oid, random.next() as i32, true, &bytes[..len]);
        }
    }
}

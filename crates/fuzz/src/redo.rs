//! Redo: a record of any kind on a page of any kind.

use leadline_page::postgres::DEFAULT_BLOCK_SIZE;
use leadline_redo::mask::mask;
use leadline_redo::{apply, free_space, targets, Applied, Context, Page};
use leadline_testdata::{noise, plausible, Random};
use leadline_wal::fuzzing;

use crate::page::sized;
use crate::wal::head;
use crate::{choice, number};

const PAGE: usize = DEFAULT_BLOCK_SIZE as usize;

/// Resource managers whose records change pages, with the size of their index's own area, and what is said when one did.
const RMGRS: [(u8, usize, &str); 12] = [
    (10, 0, "heap"),
    (9, 0, "heap2"),
    (11, 16, "btree"),
    (12, 16, "hash"),
    (13, 8, "gin"),
    (14, 16, "gist"),
    (15, 8, "sequence"),
    (16, 8, "spgist"),
    (17, 8, "brin"),
    (20, 0, "generic"),
    (2, 0, "storage"),
    (0, 0, "xlog"),
];

/// A record with up to five blocks on a page, of the size that the input says. Bytes: major, resource manager, info, blocks, which of
/// them; lengths of main data and of the block's data; both; the page.
pub fn redo(data: &[u8]) -> &'static str {
    let (how, rest) = choice(data);
    let (rmgr, rest) = choice(rest);
    let (info, rest) = choice(rest);
    let (blocks, rest) = choice(rest);
    let (chosen, rest) = choice(rest);
    let (main_length, rest) = number(rest);
    let (data_length, rest) = number(rest);
    let (main, rest) = rest.split_at(rest.len().min(main_length % 256));
    let (block_data, rest) = rest.split_at(rest.len().min(data_length % 2048));
    let mut page = sized(rest);

    let (rmid, _, name) = RMGRS[rmgr % RMGRS.len()];
    let (count, fork) = (blocks % 6, if chosen & 0x80 == 0 { 0 } else { 2 });
    let mut body = Vec::new();
    for id in 0..count {
        let is_chosen = id == chosen % count;
        let with_data = if is_chosen { block_data } else { &[] };
        let init = if blocks & 0x40 != 0 && is_chosen { 0x40 } else { 0 };
        let has_data = if with_data.is_empty() { 0 } else { 0x20 };
        body.extend([id as u8, init | has_data | if is_chosen { fork } else { 0 }]);
        body.extend((with_data.len() as u16).to_le_bytes());
        body.extend([0; 12]);
        body.extend((7 * id as u32).to_le_bytes());
    }
    if !main.is_empty() {
        body.extend([255, main.len() as u8]);
    }
    body.extend(if count > 0 { block_data } else { &[] });
    body.extend(main);
    let bytes = [&head(body.len(), rmid, info as u8), &body[..]].concat();
    let major = 13 + (how % 6) as u8;
    let context = Context { major, block_size: DEFAULT_BLOCK_SIZE, hint_bits_are_logged: how & 0x80 == 0 };

    let mut reached = "no page";
    fuzzing::record(&bytes, major, |record| {
        let mut all = Vec::new();
        targets(&context, record, |target| all.push(target));
        assert!(all.len() <= record.blocks.len() + 2, "{} pages", all.len());
        let size = page.len();
        for target in all {
            let before = page.clone();
            let outcome = apply(&context, record, &target, &mut page);
            assert_eq!(page.len(), size);
            if matches!(outcome, Ok(Applied::Older | Applied::Missing | Applied::Unchanged)) {
                assert!(page == before, "{outcome:?}, and the page is another");
            }
            reached = match outcome {
                _ if reached == name => name,
                Ok(Applied::Changed) => name,
                Ok(Applied::Restored) => "restored",
                Ok(Applied::Older) => "older",
                Ok(Applied::Unchanged) => "unchanged",
                Ok(Applied::Missing) => "missing",
                Err(misfit) => {
                    assert!(misfit.target == Some(target) && !misfit.to_string().is_empty());
                    "misfit"
                }
            };
            let _ = free_space::Recorded::of(record).holds(&mut page);
        }
    });
    assert_eq!(free_space::category(&mut page).is_some(), Page::new(&mut page).is_ok());
    let _ = mask(major, rmid, fork, 7, &mut page);
    reached
}

/// Each kind of record of each resource manager, with numbers that are mostly small, on pages that mostly make sense.
pub(crate) fn seeds(random: &mut Random) -> Vec<Vec<u8>> {
    // A truncation: blocks left, the relation, flags.
    let cut = |blocks: u8| [&[blocks, 0, 0, 0][..], &[0; 12], &[7, 0, 0, 0]].concat();
    let maps = |blocks| [&[5, 10, 0x20, 0, 0, 20, 0, 0, 0][..], &cut(blocks), &[3], &noise(random, PAGE)].concat();
    let mut all: Vec<_> = [0, 9, 200].map(maps).into();
    // A tuple goes away from the root of an SP-GiST index: how many, the state that was then, their numbers.
    for _ in 0..16 {
        let area = noise(random, 8);
        let page = plausible(random, PAGE, &area);
        let main = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        all.push([&[5, 7, 0x70, 1, 0, 14, 0, 0, 0][..], &main, &[3], &page].concat());
    }
    for (rmgr, (_, special, _)) in (0u8..).zip(RMGRS) {
        for opcode in 0..16u8 {
            for major in [0, 1, 4, 5] {
                let (main, data) = (small_numbers(random, 40), small_numbers(random, 100));
                let area = noise(random, special);
                let page = plausible(random, PAGE, &area);
                let init = if random.below(4) == 0 { 0x40 } else { 0 };
                let blocks = (1 + random.below(5) as u8) | init;
                let mut input = vec![major, rmgr, opcode << 4, blocks, random.below(5) as u8];
                input.extend((main.len() as u16).to_le_bytes());
                input.extend((data.len() as u16).to_le_bytes());
                input.extend([&main[..], &data, &[3], &page].concat());
                all.push(input);
            }
        }
    }
    all
}

/// Counts and numbers of line pointers: two bytes each, few of them large.
fn small_numbers(random: &mut Random, length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.index(length) / 2 {
        let number = match random.below(12) {
            0 => random.next() as u16,
            1 => 40,
            _ => random.below(6) as u16,
        };
        out.extend(number.to_le_bytes());
    }
    out
}

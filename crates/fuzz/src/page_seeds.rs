//! Inputs to begin with whose pages have items as each access method makes them.

use leadline_testdata::{noise, plausible, put, Random};

use crate::data_dir::{self, BLOCK, FIRST_FUNCTIONS};
use crate::page_values::ACCESS_METHODS;
use crate::types::column;

/// A page with these items, the first at its end.
fn page_of(items: &[Vec<u8>], special: &[u8]) -> Vec<u8> {
    let mut page = vec![0; BLOCK];
    let special_at = BLOCK - special.len();
    page[special_at..].copy_from_slice(special);
    let mut upper = special_at;
    for (i, item) in items.iter().enumerate() {
        upper = (upper - item.len()) / 8 * 8;
        page[upper..upper + item.len()].copy_from_slice(item);
        let lp = upper as u32 | 1 << 15 | (item.len() as u32) << 17;
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&lp.to_le_bytes());
    }
    for (at, n) in [(12, 24 + 4 * items.len()), (14, upper), (16, special_at), (18, BLOCK | 4)] {
        put(&mut page, at, n as u16);
    }
    page
}

/// A row as a table has it, with these columns and this data.
fn heap_tuple(natts: u16, data: &[u8]) -> Vec<u8> {
    let [low, high] = natts.to_le_bytes();
    [&[3; 4][..], &[0; 14], &[low, high, 0x02, 0x0b, 24, 0], data].concat()
}

/// Pages of each access method: an item that is as it should be, and items and pages of noise; with each first function where one counts.
pub(crate) fn typed_pages(random: &mut Random) -> Vec<Vec<u8>> {
    let index_tuple = |data: &[u8]| [&[0, 0, 0, 0, 1, 0, 8 + data.len() as u8, 0], data].concat();
    let spgist_leaf = |data: &[u8]| {
        let bits = (((16 + data.len()) as u32) << 2).to_le_bytes();
        [&bits[..], &[0; 2], &[0, 0, 0, 0, 1, 0], &[0; 4], data].concat()
    };
    // Two nodes below the prefix: a label, and none.
    let spgist_inner = |prefix: &[u8]| {
        let [low, high] = (prefix.len() as u16).to_le_bytes();
        let size = 8 + prefix.len() as u8 + 24;
        let nodes = [&[0; 6][..], &[16, 0, 97, 0, 0, 0, 0, 0, 0, 0], &[0; 6], &[8, 0x80]].concat();
        [&[2 << 3, 0, low, high, size, 0, 0, 0], prefix, &nodes].concat()
    };
    let brin = |data: &[u8]| [&[1, 0, 0, 0, 8, 0, 0, 0], data].concat();
    let flags =
        |before: usize, flags: u16, id: u16| [&vec![0; before][..], &flags.to_le_bytes(), &id.to_le_bytes()].concat();
    let spgist = |leaf: u8| vec![leaf, 0, 0, 0, 0, 0, 0x82, 0xff];
    let data: Vec<u8> = [7u32, 9 << 24 | 11, 0x6107, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    let of = |name: &str| -> Vec<(Vec<u8>, Vec<u8>)> {
        match name {
            "table" => vec![(vec![], heap_tuple(1, &data))],
            "btree" => [0, 1].map(|leaf| (flags(12, leaf, 0), index_tuple(&data))).to_vec(),
            "hash" => vec![(flags(12, 2, 0xff80), index_tuple(&data))],
            "gist" => vec![(flags(12, 1, 0xff81), index_tuple(&data))],
            "gin" => [0, 2].map(|leaf| (vec![0, 0, 0, 0, 0, 0, leaf, 0], index_tuple(&data))).to_vec(),
            "spgist" => {
                let inner = |prefix: &[u8]| (spgist(0), spgist_inner(prefix));
                vec![(spgist(4), spgist_leaf(&data)), (spgist(12), spgist_leaf(&[])), inner(&[0; 32]), inner(&[])]
            }
            _ => vec![(vec![0, 0, 0, 0, 0, 0, 0x93, 0xf0], brin(&data))],
        }
    };
    let mut all = Vec::new();
    for (am, (_, name)) in ACCESS_METHODS.into_iter().enumerate() {
        let has_classes = matches!(name, "spgist" | "brin");
        for class in 0..if has_classes { FIRST_FUNCTIONS.len() as u8 } else { 2 } {
            // As GIN has it, the number of a column stands before a key of several.
            for columns in
                [&[column(23)][..], &[column(25)], &[column(600), column(23)], &[44, column(603), column(869)]]
            {
                for (special, item) in of(name) {
                    let head = [class % 6, am as u8, class + 16, 0, columns.len() as u8 - 1];
                    let items = [item, noise(random, 48), noise(random, 24)];
                    let made = page_of(&items, &special);
                    let anything = plausible(random, BLOCK, &special);
                    all.extend([made, anything].map(|page| [&head[..], columns, &page].concat()));
                }
            }
        }
    }
    // Values that stand in a toast table, the log of transactions and the catalog are others.
    let outside = heap_tuple(1, &[&[1, 18][..], &[48, 1, 0, 0, 44, 1, 0, 0, 7, 0, 0, 0, 3, 64, 0, 0]].concat());
    for file in 0..20 {
        let edit = [file, random.next() as u8, random.below(4) as u8, 1];
        let head = [&[file % 6, 0, 0, 1][..], &edit, &[0, column(25)]].concat();
        all.push([&head[..], &page_of(std::slice::from_ref(&outside), &[])].concat());
        all.push(
            [&[file % 6, 5, 2, 1][..], &edit, &[0, column(25)], &page_of(&[spgist_leaf(&data)], &spgist(4))].concat(),
        );
    }
    // The toast table has a file that is not there: its number stands 72 bytes behind its name.
    let table = [&[0, column(25)][..], &page_of(&[outside], &[])].concat();
    let (files, ..) = data_dir::files_with_index(13, &table, 403, [0; 3]);
    let name = files[8].1.windows(8).position(|bytes| bytes == b"pg_toast").expect("a row of pg_class");
    let [low, high] = (name as u16 + 72).to_le_bytes();
    all.push([&[0, 0, 0, 1, 8, low, high, 99][..], &table].concat());
    all
}

/// Tables of each type's column and of several, whose pages have rows as they should be, noise in rows, and noise.
pub(crate) fn heap_pages(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for how in 0..4 {
        for column in 0..51u8 {
            let major = (u32::from(column) % 6) as u8;
            let items: Vec<_> = (0..5).map(|_| heap_tuple(1, &noise(random, 32))).collect();
            // 6 divides 126, 60 and 66: threads and whether dead rows are wanted change, the major does not.
            let head = [major + [0, 66, 132, 192][how], 0, column];
            all.push([&head[..], &page_of(&items, &[]), &plausible(random, BLOCK, &[])].concat());
        }
    }
    let outside = |id: u8| [&[1, 18][..], &[48, 1, 0, 0, 44, 1, 0, 0, id, 0, 0, 0, 3, 64, 0, 0]].concat();
    let items = [heap_tuple(1, &outside(7)), heap_tuple(1, &outside(9)), heap_tuple(1, &[5, b'x'])];
    all.push([&[0, 0, column(25)][..], &page_of(&items, &[])].concat());
    let columns = [3, column(23), column(25), column(1114), column(2950)];
    let row = [&[7, 0, 0, 0, 5, b'x', 0, 0][..], &[0xff; 7], &[0x7f], &[9; 16]].concat();
    let pages = [
        page_of(&[heap_tuple(4, &row), heap_tuple(2, &row), heap_tuple(4, &row[..20])], &[]),
        vec![0; BLOCK],
        vec![1; 9],
    ];
    all.push([&columns[..1], &columns, &pages.concat()].concat());
    all
}

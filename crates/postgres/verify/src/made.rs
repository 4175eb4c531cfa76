//! Relations made by hand, for tests.

use std::path::PathBuf;

use leadline_datadir::DataDir;
use leadline_rows::heap_file::HeapFile;

use crate::blocks::{Blocks, Settled};
use crate::problem::{Problem, Report};

const BLOCK: usize = 8192;

/// A file that is removed at the end of a test.
pub(crate) struct Made {
    path: PathBuf,
    blocks: u32,
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Made {
    pub(crate) fn new(name: &str, pages: &[Vec<u8>]) -> Made {
        let path = std::env::temp_dir().join(format!("leadline-verify-{}-{name}", std::process::id()));
        std::fs::write(&path, pages.concat()).unwrap();
        Made { path, blocks: pages.len() as u32 }
    }

    pub(crate) fn blocks(&self) -> Blocks {
        let dir = DataDir {
            root: std::env::temp_dir(),
            major: 16,
            block_size: BLOCK,
            segment_blocks: 131_072,
            checksums: false,
            transactions: None,
            control_lost: None,
        };
        let mut file = HeapFile::absent(&dir, self.path.clone());
        file.blocks = self.blocks;
        Blocks::new(file, &dir, Settled::All)
    }
}

/// A page with items and a special area.
pub(crate) fn page(items: &[Vec<u8>], special: &[u8]) -> Vec<u8> {
    let mut page = vec![0; BLOCK];
    let mut upper = BLOCK - special.len();
    page[upper..].copy_from_slice(special);
    let put = |page: &mut Vec<u8>, at: usize, value: u16| page[at..at + 2].copy_from_slice(&value.to_le_bytes());
    put(&mut page, 16, upper as u16);
    for (i, item) in items.iter().enumerate() {
        upper = (upper - item.len()) & !7;
        page[upper..upper + item.len()].copy_from_slice(item);
        let lp = upper as u32 | 1 << 15 | (item.len() as u32) << 17;
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&lp.to_le_bytes());
    }
    put(&mut page, 12, 24 + 4 * items.len() as u16);
    put(&mut page, 14, upper as u16);
    put(&mut page, 18, BLOCK as u16 | 4);
    page[4] = 9; // an LSN
    page
}

/// A page with bytes behind its header instead of items.
pub(crate) fn page_of(contents: &[u8], special: &[u8]) -> Vec<u8> {
    let mut page = page(&[], special);
    page[24..24 + contents.len()].copy_from_slice(contents);
    let lower = 24 + contents.len() as u16;
    page[12..14].copy_from_slice(&lower.to_le_bytes());
    page
}

/// An index tuple: block and number of its row pointer, and its key.
pub(crate) fn tuple(block: u32, posid: u16, key: &[u8]) -> Vec<u8> {
    let mut item = tid(block, posid).to_vec();
    item.extend((8 + key.len() as u16).to_le_bytes());
    item.extend(key);
    item
}

pub(crate) fn tid(block: u32, posid: u16) -> [u8; 6] {
    let [b0, b1, b2, b3] = block.to_le_bytes();
    let [p0, p1] = posid.to_le_bytes();
    [b2, b3, b0, b1, p0, p1]
}

/// Numbers one after the other.
pub(crate) fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// The classes and messages of what is found.
pub(crate) fn found(check: impl FnOnce(&mut Report<'_>)) -> Vec<String> {
    let mut all = Vec::new();
    let mut take = |p: Problem| {
        all.push(format!("{}: {}", p.class, p.message));
        true
    };
    let mut report = Report::new(&mut take);
    check(&mut report);
    all
}

/// Numbers without a pattern, the same in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// Changes some bytes of pages: anywhere, or in their items' first bytes and special areas.
    pub(crate) fn damage(&mut self, pages: &mut [Vec<u8>]) {
        for _ in 0..=self.below(12) {
            let block = self.below(pages.len() as u64) as usize;
            let page = &mut pages[block];
            let special = usize::from(u16::from_le_bytes([page[16], page[17]])).min(page.len() - 4);
            let at = match self.below(4) {
                0 => self.below(page.len() as u64) as usize,
                1 => special + self.below((page.len() - special) as u64) as usize,
                2 => 24 + self.below(80) as usize,
                _ => {
                    let upper = usize::from(u16::from_le_bytes([page[14], page[15]])).min(page.len() - 1);
                    upper + self.below((page.len() - upper) as u64) as usize
                }
            };
            page[at] = if self.below(2) == 0 { self.below(16) as u8 } else { self.below(256) as u8 };
        }
    }
}

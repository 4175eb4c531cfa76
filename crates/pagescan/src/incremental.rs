//! Files of incremental backups (17 and later): the blocks of a relation's file that changed since another backup, and their numbers.
//!
//! Source: src/backend/backup/basebackup_incremental.c, src/bin/pg_combinebackup/reconstruct.c. `INCREMENTAL.NAME` begins with three
//! numbers of four bytes: a magic number, how many blocks follow, and the length in blocks below which all others are in an earlier backup
//! (`truncation_block_length`). Then the number of each block, and from the next multiple of the page size on the pages in that order.
//! Where there are none, the file ends behind the three numbers.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use leadline_datadir::FileName;
use leadline_errors::Error;
use leadline_page::postgres::BLOCK_SIZES;
use leadline_page::Wrong;

use crate::error::cannot_read;
use crate::layout::{read_at, Layout};

const MAGIC: u32 = 0xd3ae_1f0d;
/// Bytes before the numbers of blocks.
const FIXED: usize = 12;
const PREFIX: &str = "INCREMENTAL.";

/// The path without what incremental backups put before a name; none when it is not of one.
pub(crate) fn plain_path(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    FileName::parse(name).map(|_| path.with_file_name(name))
}

/// That of the incremental file in place of a relation's.
pub(crate) fn incremental_path(path: &Path) -> Option<PathBuf> {
    Some(path.with_file_name(format!("{PREFIX}{}", path.file_name()?.to_str()?)))
}

/// Which blocks there are, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Their numbers within the relation's file, as they follow each other.
    pub(crate) blocks: Vec<u32>,
    /// Where the first one begins.
    pub(crate) start: u64,
    /// Below this number all blocks that are not here are in an earlier backup.
    pub(crate) least: u32,
}

impl Stored {
    /// Reads the numbers from the front of a stream, and on up to where the pages begin.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub(crate) fn read_from(input: &mut dyn Read, layout: Layout) -> io::Result<Result<Stored, Wrong>> {
        let mut head = Vec::new();
        input.take(FIXED as u64).read_to_end(&mut head)?;
        // No more than a file can have: what it says is not believed yet.
        let count = u32_at(&head, 4).min(layout.segment_blocks);
        if u32_at(&head, 0) == MAGIC {
            input.take(4 * u64::from(count)).read_to_end(&mut head)?;
        }
        let stored = Stored::parse(&head, layout);
        if let Ok(stored) = &stored {
            let padding = stored.start.saturating_sub(head.len() as u64);
            io::copy(&mut input.take(padding), &mut io::sink())?;
        }
        Ok(stored)
    }

    /// Reads the numbers; what is wrong with them is the second answer.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(path: &Path, file: &File, layout: Layout) -> Result<Result<Stored, Wrong>, Error> {
        let mut head = vec![0; FIXED];
        for _ in 0..2 {
            let read = read_at(file, &mut head, 0).map_err(|source| cannot_read(path, &source))?;
            head.truncate(read);
            // No more than a file can have: what it says is not believed yet.
            let count = u32_at(&head, 4).min(layout.segment_blocks) as usize;
            if read < FIXED || u32_at(&head, 0) != MAGIC || head.len() > FIXED || count == 0 {
                break;
            }
            head.resize(FIXED + 4 * count, 0);
        }
        Ok(Stored::parse(&head, layout))
    }

    /// From the bytes before the pages.
    fn parse(head: &[u8], layout: Layout) -> Result<Stored, Wrong> {
        if head.len() < FIXED {
            return Err(wrong("file", 0, format!("at least {FIXED} bytes"), format!("{} bytes", head.len())));
        }
        let [magic, count, least] = [0, 4, 8].map(|at| u32_at(head, at));
        let most = layout.segment_blocks;
        if magic != MAGIC {
            return Err(wrong("magic", 0, format!("{MAGIC:#x}"), format!("{magic:#x}")));
        }
        let up_to_most = || format!("up to {most}, the blocks of a file");
        if count > most {
            return Err(wrong("num_blocks", 4, up_to_most(), count.to_string()));
        }
        if least > most {
            return Err(wrong("truncation_block_length", 8, up_to_most(), least.to_string()));
        }
        let numbers = head[FIXED..].chunks_exact(4).map(|number| u32_at(number, 0));
        let blocks: Vec<u32> = numbers.take(count as usize).collect();
        if blocks.len() < count as usize {
            let (wanted, found) = (format!("{count} numbers of blocks"), blocks.len().to_string());
            return Err(wrong("relative_block_numbers", FIXED, wanted, found));
        }
        if let Some(at) = blocks.iter().position(|block| *block >= most) {
            let wanted = format!("below {most}, the blocks of a file");
            return Err(wrong("relative_block_numbers", FIXED + 4 * at, wanted, blocks[at].to_string()));
        }
        // A server writes them in order: else one is there twice, or was changed.
        if let Some(at) = blocks.windows(2).position(|two| two[0] >= two[1]) {
            let wanted = format!("more than {}, which is before it", blocks[at]);
            return Err(wrong("relative_block_numbers", FIXED + 4 * (at + 1), wanted, blocks[at + 1].to_string()));
        }
        Ok(Stored { start: start_of(count, layout.block_size), blocks, least })
    }

    /// Bytes of the file, as long as nothing is missing.
    fn bytes(&self, block_size: u32) -> u64 {
        self.start + self.blocks.len() as u64 * u64::from(block_size)
    }

    /// What is wrong with the length of the file.
    pub(crate) fn wrong_length(&self, block_size: u32, bytes: u64) -> Option<Wrong> {
        let whole = self.bytes(block_size);
        let wanted = format!("{whole} bytes, because it has {} blocks", self.blocks.len());
        let mut wrong = wrong("file", 0, wanted, format!("{bytes} bytes"));
        if bytes < whole {
            wrong.class = "short";
        }
        (bytes != whole).then_some(wrong)
    }

    /// Number of the block whose page begins at an offset of the file; none where no page begins.
    pub(crate) fn block_at(&self, offset: u64, block_size: u32) -> Option<u32> {
        let nth = offset.checked_sub(self.start)? / u64::from(block_size);
        self.blocks.get(usize::try_from(nth).ok()?).copied()
    }

    /// Where the page of a block begins; none when the block is not here.
    pub(crate) fn offset_of(&self, block: u32, block_size: u32) -> Option<u64> {
        let nth = self.blocks.binary_search(&block).ok()?;
        Some(self.start + nth as u64 * u64::from(block_size))
    }

    /// Blocks that the relation's file will have when the backups are combined.
    pub(crate) fn combined_blocks(&self) -> u32 {
        self.blocks.last().map_or(self.least, |last| self.least.max(last + 1))
    }

    /// Which blocks it has, for people.
    pub(crate) fn listed(&self) -> String {
        const SHOWN: usize = 10;
        let shown: Vec<_> = self.blocks.iter().take(SHOWN).map(ToString::to_string).collect();
        match self.blocks.len().saturating_sub(SHOWN) {
            0 if shown.is_empty() => "no blocks".into(),
            0 => format!("blocks {}", shown.join(", ")),
            more => format!("blocks {} and {more} more", shown.join(", ")),
        }
    }
}

/// The size of pages that the length of a file fits, by the first bytes of it; none when it has no pages or fits none.
pub(crate) fn block_size_of(start: &[u8], bytes: u64) -> Option<u32> {
    let count = u32_at(start, 4);
    let fits = |size: &u32| start_of(count, *size) + u64::from(count) * u64::from(*size) == bytes;
    (u32_at(start, 0) == MAGIC && count > 0).then(|| BLOCK_SIZES.into_iter().find(fits))?
}

fn start_of(count: u32, block_size: u32) -> u64 {
    let numbers = FIXED as u64 + 4 * u64::from(count);
    match count {
        0 => numbers,
        _ => numbers.next_multiple_of(block_size.into()),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn wrong(what: &'static str, offset: usize, wanted: String, found: String) -> Wrong {
    Wrong { class: "incremental", what, item: None, offset, wanted, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { block_size: 8192, segment_blocks: 131_072, checksums: None };

    fn bytes(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn parse(numbers: &[u32]) -> Result<Stored, Wrong> {
        Stored::parse(&bytes(numbers), LAYOUT)
    }

    #[test]
    fn blocks_are_found_by_their_numbers() {
        let stored = parse(&[MAGIC, 3, 9, 2, 5, 20]).expect("a sound header");
        assert_eq!((stored.block_at(0, 8192), stored.block_at(8192, 8192)), (None, Some(2)));
        assert_eq!((stored.block_at(3 * 8192, 8192), stored.block_at(4 * 8192, 8192)), (Some(20), None));
        assert_eq!((stored.offset_of(5, 8192), stored.offset_of(6, 8192)), (Some(2 * 8192), None));
        assert_eq!((stored.combined_blocks(), stored.wrong_length(8192, 4 * 8192)), (21, None));
        assert_eq!(stored.wrong_length(8192, 4 * 8192 - 1).map(|w| w.class), Some("short"));
        assert_eq!(stored.wrong_length(8192, 5 * 8192).map(|w| w.class), Some("incremental"));
        assert_eq!(stored.listed(), "blocks 2, 5, 20");
        let empty = parse(&[MAGIC, 0, 7]).expect("a sound header");
        assert_eq!(
            (empty.combined_blocks(), empty.wrong_length(8192, 12), empty.listed()),
            (7, None, "no blocks".into())
        );
    }

    #[test]
    fn a_header_that_cannot_be_is_named() {
        let what = |numbers: &[u32]| parse(numbers).expect_err("a header that cannot be").what;
        assert_eq!(what(&[MAGIC ^ 1, 0, 7]), "magic");
        assert_eq!(what(&[MAGIC, 0]), "file");
        assert_eq!(what(&[MAGIC, u32::MAX, 7]), "num_blocks");
        assert_eq!(what(&[MAGIC, 0, 131_073]), "truncation_block_length");
        assert_eq!(what(&[MAGIC, 3, 7, 1, 2]), "relative_block_numbers");
        assert_eq!(what(&[MAGIC, 2, 7, 2, 2]), "relative_block_numbers");
        assert_eq!(what(&[MAGIC, 1, 7, 131_072]), "relative_block_numbers");
    }

    #[test]
    fn the_page_size_is_that_which_fits() {
        let of = |numbers: &[u32], len| block_size_of(&bytes(numbers), len);
        assert_eq!(of(&[MAGIC, 2, 7, 0, 1], 3 * 8192), Some(8192));
        assert_eq!(of(&[MAGIC, 2, 7, 0, 1], 3 * 4096), Some(4096));
        assert_eq!(of(&[MAGIC, 2, 7, 0, 1], 3 * 4096 + 1), None);
        assert_eq!(of(&[MAGIC, 0, 7], 12), None);
    }

    #[test]
    fn names_are_those_of_relations() {
        let of = |path: &str| plain_path(Path::new(path));
        assert_eq!(of("/b/base/5/INCREMENTAL.1259_vm.2"), Some("/b/base/5/1259_vm.2".into()));
        assert_eq!((of("/b/base/5/1259"), of("/b/base/5/INCREMENTAL.x")), (None, None));
        assert_eq!(incremental_path(Path::new("/b/5/1259.1")), Some("/b/5/INCREMENTAL.1259.1".into()));
    }
}

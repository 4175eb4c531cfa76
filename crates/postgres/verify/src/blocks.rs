//! The blocks of a fork, and what of them can be compared with others.

use std::path::Path;

use leadline_bytes::ReadBuffer;
use leadline_datadir::{Condition, DataDir, Server};
use leadline_errors::Result;
use leadline_page::postgres::header::Header;
use leadline_page::postgres::{is_new, kind, Fork, Kind};
use leadline_pagescan::check_fast;
use leadline_rows::heap_file::HeapFile;

use crate::problem::{Problem, Sure};

/// Blocks that are read at a time.
const AT_ONCE: usize = 32;

/// Which pages are of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// All: the server ended in order.
    All,
    /// Those with an LSN before this one, the redo point of the last checkpoint.
    Before(u64),
    /// None: nobody knows.
    None,
}

impl Settled {
    /// Of a data directory as its files are now.
    pub fn of(root: &Path) -> Settled {
        let about = Condition::of(root);
        match (about.server, &about.control) {
            (Server::Stopped, Ok(control)) if control.wrong_crc.is_none() => Settled::All,
            // The files were copied one after the other: what had not changed when that began is of that time.
            (Server::Restoring, _) => label_start(root).map_or(Settled::None, Settled::Before),
            // Nobody knows when that began.
            (Server::Copied, _) => Settled::None,
            (_, Ok(control)) if control.wrong_crc.is_none() => Settled::Before(control.redo.0),
            _ => Settled::None,
        }
    }
}

/// The redo point at which a backup began, as its backup_label says.
fn label_start(root: &Path) -> Option<u64> {
    let label = std::fs::read_to_string(root.join("backup_label")).ok()?;
    let line = label.lines().find_map(|line| line.strip_prefix("START WAL LOCATION: "))?;
    let (high, low) = line.split(' ').next()?.split_once('/')?;
    let [high, low] = [high, low].map(|half| u32::from_str_radix(half, 16).ok());
    Some(u64::from(high?) << 32 | u64::from(low?))
}

/// One page as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Its number from the beginning of the fork.
    pub block: u32,
    /// All of it.
    pub bytes: &'a [u8],
    /// Its header.
    pub header: Header,
    /// What it is.
    pub kind: Kind,
    /// It is of the moment at which all settled pages are, and it is sound by itself: it can be compared with others. A page that is wrong by
    /// itself is reported where single pages are checked.
    pub is_settled: bool,
}

impl<'a> Page<'a> {
    /// Takes a page apart as far as needed to know whether it can be compared.
    pub fn of(bytes: &'a [u8], fork: Fork, block: u32, checksums: bool, settled: Settled) -> Page<'a> {
        let header = Header::parse(bytes).unwrap_or_default();
        let is_of_the_moment = match settled {
            Settled::All => true,
            // With wal_level minimal, relations that are made are not logged, and their pages have no LSN however late they change (rel.h,
            // `RelationNeedsWAL`). A built GiST index has 1 (gist.h, `GistBuildLSN`).
            Settled::Before(redo) => header.pd_lsn > 1 && header.pd_lsn < redo,
            Settled::None => false,
        };
        let is_new = is_new(bytes, &header);
        let is_sound = || is_new || check_fast(bytes, fork, checksums.then_some(block)).wrong.is_empty();
        // A page of zeros has no LSN: nobody knows whether it is new, or was not written yet.
        let is_settled = is_of_the_moment && (!is_new || settled == Settled::All) && is_sound();
        Page { block, bytes, header, kind: kind(bytes, &header, fork), is_settled }
    }

    /// What is behind `pd_special`.
    pub fn special(&self) -> &'a [u8] {
        self.header.special(self.bytes)
    }
}

/// The blocks of the main fork of a relation.
pub struct Blocks {
    file: HeapFile,
    checksums: bool,
    settled: Settled,
    buffer: ReadBuffer,
}

impl Blocks {
    /// Of an open file of a data directory.
    pub fn new(file: HeapFile, dir: &DataDir, settled: Settled) -> Blocks {
        let buffer = ReadBuffer::new(AT_ONCE * file.block_size);
        Blocks { file, checksums: dir.checksums, settled, buffer }
    }

    /// The same, with a handle and a buffer of its own: for another thread.
    pub fn again(&self) -> Blocks {
        let buffer = ReadBuffer::new(AT_ONCE * self.file.block_size);
        Blocks { file: self.file.again(), checksums: self.checksums, settled: self.settled, buffer }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.file.blocks
    }

    /// Bytes of each.
    pub fn block_size(&self) -> usize {
        self.file.block_size
    }

    /// Rows that a page of a table has at most: `MaxHeapTuplesPerPage` (src/include/access/htup_details.h).
    pub fn most_rows(&self) -> u16 {
        ((self.file.block_size - 24) / 28) as u16
    }

    /// Which of them are of one moment.
    pub fn settled(&self) -> Settled {
        self.settled
    }

    /// Calls `each` with the blocks of a range, in order. Blocks that the files do not have are left out. `each` says whether to go on.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn each(&mut self, range: std::ops::Range<u32>, mut each: impl FnMut(Page<'_>) -> Result<bool>) -> Result<()> {
        let size = self.file.block_size;
        let mut block = range.start;
        // The file may grow meanwhile: whoever asks counts on the blocks that there were.
        let end = range.end.min(self.file.blocks);
        while block < end {
            let wanted = AT_ONCE.min((end - block) as usize);
            let read = self.file.read(block, &mut self.buffer[..wanted * size])?;
            if read == 0 {
                block += 1;
                continue;
            }
            for (i, bytes) in self.buffer.chunks_exact(size).take(read).enumerate() {
                if !each(Page::of(bytes, Fork::Main, block + i as u32, self.checksums, self.settled))? {
                    return Ok(());
                }
            }
            block += read as u32;
        }
        Ok(())
    }

    /// Reads one block; None when the files do not have it.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn read(&mut self, block: u32) -> Result<Option<Page<'_>>> {
        let size = self.file.block_size;
        if block >= self.file.blocks || self.file.read(block, &mut self.buffer[..size])? == 0 {
            return Ok(None);
        }
        Ok(Some(Page::of(&self.buffer[..size], Fork::Main, block, self.checksums, self.settled)))
    }

    /// A problem of a block of this relation.
    pub fn problem(
        &self,
        class: &'static str,
        block: u32,
        item: Option<u16>,
        message: String,
        means: &'static str,
    ) -> Problem {
        let (path, block) = self.file.place(block);
        Problem { class, relation: String::new(), path, block, item, message, means, sure: Sure::Certain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_label_says_when_the_copy_began() {
        let root = std::env::temp_dir().join(format!("leadline-verify-label-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        assert_eq!(label_start(&root), None);
        std::fs::write(root.join("backup_label"), "START WAL LOCATION: A/2000028 (file 000000010000000A00000002)\n")
            .unwrap();
        assert_eq!(label_start(&root), Some(0xA_0200_0028));
        std::fs::remove_dir_all(&root).unwrap();
    }
}

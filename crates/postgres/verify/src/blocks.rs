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
            (_, Ok(control)) if control.wrong_crc.is_none() => Settled::Before(control.redo.0),
            _ => Settled::None,
        }
    }
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
            Settled::Before(redo) => header.pd_lsn < redo,
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
        while block < range.end.min(self.file.blocks) {
            let wanted = AT_ONCE.min((range.end - block) as usize);
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
        Problem { class, path, block, item, message, means, sure: Sure::Certain }
    }
}

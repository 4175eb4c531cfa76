//! The blocks of a relation's main fork over all of its files, and the tuples of a page.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use leadline_bytes::ReadBuffer;
use leadline_page::postgres::heap::{TupleHeader, HEAP_HASNULL, HEAP_NATTS_MASK, SIZE};
use leadline_page::postgres::line_pointer::{LinePointer, LP_NORMAL};
use leadline_page::postgres::{is_new, Header};

use crate::settle::{settle, Settled};
use leadline_datadir::{segment_path, DataDir, DATA_FILE};
use leadline_errors::{Error, Kind, Result};

/// The main fork of a relation, all of its files.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct HeapFile {
    pub path: PathBuf,
    pub block_size: usize,
    segment_blocks: u32,
    pub blocks: u32,
    /// The last file ends within a block.
    pub is_cut: bool,
    /// Blocks that a file in the middle should have and had not when it was opened: the file is gone, or ends too early.
    pub holes: Vec<Range<u32>>,
    open: Option<(u32, File)>,
}

impl HeapFile {
    /// `further`: the numbers of its files beside the first that are known to be there.
    pub(crate) fn open(dir: &DataDir, path: PathBuf, further: &BTreeSet<u32>) -> Result<HeapFile> {
        let mut file = HeapFile::absent(dir, path);
        let mut ahead = further.iter().copied().peekable();
        let mut next = Some(0);
        let mut missing = None;
        while let Some(segment) = next {
            while ahead.next_if(|number| *number <= segment).is_some() {}
            let path = file.segment(segment);
            let bytes = match fs::metadata(&path) {
                Ok(about) if about.is_file() => Some(about.len()),
                Ok(_) => {
                    return Err(Error::new(Kind::Invalid, "a file of the data directory is not a regular file")
                        .hint("run leadline page check to list what is wrong with the files")
                        .at(&path));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    missing.get_or_insert_with(|| Error::reading(&path, DATA_FILE, &e));
                    None
                }
                Err(e) => return Err(Error::reading(&path, DATA_FILE, &e)),
            };
            let is_full = bytes.is_some_and(|bytes| file.add(segment, bytes));
            // One that the server made since the folder was looked through is only behind a full one.
            next = if is_full { segment.checked_add(1) } else { ahead.peek().copied() };
        }
        match missing {
            Some(e) if file.blocks == 0 => Err(e),
            _ => Ok(file),
        }
    }

    /// Counts a file; whether it is full.
    fn add(&mut self, segment: u32, bytes: u64) -> bool {
        let (size, blocks) = (self.block_size as u64, u64::from(self.segment_blocks));
        let first = segment.saturating_mul(self.segment_blocks);
        let there = (bytes / size).min(blocks) as u32;
        // An empty file behind the others is what the server leaves when it cuts them.
        if bytes > 0 || segment == 0 {
            if self.blocks < first {
                self.holes.push(self.blocks..first);
            }
            self.blocks = first.saturating_add(there);
            self.is_cut = u64::from(there) < blocks && !bytes.is_multiple_of(size);
        }
        u64::from(there) == blocks
    }

    /// Where the blocks are that no file has, in words.
    pub(crate) fn why_missing(&self, hole: &Range<u32>) -> String {
        let (from, to) = (hole.start / self.segment_blocks, (hole.end - 1) / self.segment_blocks);
        let name = |segment| self.segment(segment).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_short = !hole.start.is_multiple_of(self.segment_blocks);
        match (is_short, from == to) {
            (true, true) => format!("{} is too short", name(from)),
            (true, false) => {
                format!("{} is too short, and the files after it up to {} are missing", name(from), name(to))
            }
            (false, true) => format!("{} is missing or empty", name(from)),
            (false, false) => format!("{} to {} are missing or empty", name(from), name(to)),
        }
    }

    /// One that is not there.
    pub fn absent(dir: &DataDir, path: PathBuf) -> HeapFile {
        let (block_size, segment_blocks) = (dir.block_size, dir.segment_blocks);
        HeapFile { path, block_size, segment_blocks, blocks: 0, is_cut: false, holes: Vec::new(), open: None }
    }

    /// Another fork of the same relation, by what stands behind `_` in the name of its file.
    ///
    /// # Errors
    /// When it has none.
    pub fn fork(&self, dir: &DataDir, suffix: &str) -> Result<HeapFile> {
        let mut name = self.path.as_os_str().to_owned();
        name.push("_");
        name.push(suffix);
        HeapFile::open(dir, PathBuf::from(name), &BTreeSet::new())
    }

    /// The same file, with a handle of its own.
    pub fn again(&self) -> HeapFile {
        HeapFile { path: self.path.clone(), holes: self.holes.clone(), open: None, ..*self }
    }

    /// The path of a segment.
    pub(crate) fn segment(&self, number: u32) -> PathBuf {
        segment_path(&self.path, number)
    }

    /// The path of the file that holds a block.
    pub(crate) fn file_of(&self, block: u32) -> PathBuf {
        self.segment(block / self.segment_blocks)
    }

    /// The file that holds a block, and the number of the block within it.
    pub fn place(&self, block: u32) -> (PathBuf, u32) {
        (self.file_of(block), block % self.segment_blocks)
    }

    /// The first block of the next file, or the end: where to go on when a file is shorter than it was.
    pub(crate) fn next_file(&self, block: u32) -> u32 {
        (block - block % self.segment_blocks).saturating_add(self.segment_blocks).min(self.blocks)
    }

    /// Reads whole blocks from `block` on, no further than its file goes; how many were read.
    ///
    /// # Errors
    /// When the file system says no.
    pub fn read(&mut self, block: u32, buffer: &mut [u8]) -> Result<usize> {
        if self.holes.iter().any(|hole| hole.contains(&block)) {
            return Ok(0);
        }
        let (segment, within) = (block / self.segment_blocks, block % self.segment_blocks);
        let path = self.segment(segment);
        let failed = |e| Error::reading(&path, DATA_FILE, &e);
        let file = match &self.open {
            Some((open, file)) if *open == segment => file,
            _ => &self.open.insert((segment, File::open(&path).map_err(failed)?)).1,
        };
        let left = (self.segment_blocks - within) as usize;
        let wanted = (buffer.len() / self.block_size).min(left) * self.block_size;
        let mut done = 0;
        while done < wanted {
            let at = u64::from(within) * self.block_size as u64 + done as u64;
            match file.read_at(&mut buffer[done..wanted], at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(done / self.block_size)
    }

    /// How many of some blocks files in the middle had not from the first.
    pub fn missing(&self, blocks: Range<u32>) -> u32 {
        let within = |hole: &Range<u32>| hole.end.min(blocks.end).saturating_sub(hole.start.max(blocks.start));
        self.holes.iter().map(within).sum()
    }

    /// Where what is missing should be, one line for each hole.
    pub fn holes_in_words(&self) -> Vec<String> {
        let words = |hole: &Range<u32>| {
            format!("blocks {} to {} are missing: {}", hole.start, hole.end - 1, self.why_missing(hole))
        };
        self.holes.iter().map(words).collect()
    }

    /// Calls `each` with block, line pointer and tuple of every tuple. `verify`: a page with a wrong checksum is read again, as a running
    /// server may be writing it, and told.
    pub(crate) fn each_tuple(&mut self, verify: bool, mut each: impl FnMut(u32, u16, &Tuple<'_>)) -> Result<Passed> {
        let mut buffer = ReadBuffer::new(32 * self.block_size);
        let mut passed = Passed { holes: self.holes.clone(), ..Passed::default() };
        let mut block = 0;
        while block < self.blocks {
            let read = self.read(block, &mut buffer)?;
            if read == 0 {
                let hole = self.holes.iter().find(|hole| hole.contains(&block)).map(|hole| hole.end);
                let Some(end) = hole else {
                    passed.was_cut = true;
                    return Ok(passed);
                };
                block = end;
                continue;
            }
            for (i, page) in buffer.chunks_exact_mut(self.block_size).take(read).enumerate() {
                let at = block + i as u32;
                if verify && settle(page, at, |page| matches!(self.read(at, page), Ok(1))) == Settled::Damaged {
                    passed.checksums.push(at);
                }
                let Some(items) = tuples(page) else {
                    passed.damaged.push(at);
                    continue;
                };
                if Header::parse(page).is_some_and(|header| is_new(page, &header)) {
                    passed.empty.push(at);
                }
                for (lp, bytes) in items {
                    match Tuple::parse(bytes) {
                        Some(tuple) => each(at, lp, &tuple),
                        None => passed.rows += 1,
                    }
                }
            }
            block += read as u32;
        }
        Ok(passed)
    }
}

/// What was met on the way through a relation beside its tuples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// A file became shorter meanwhile: not all were seen.
    pub was_cut: bool,
    /// Blocks that files in the middle have not.
    pub holes: Vec<Range<u32>>,
    /// Blocks that are no page of a table.
    pub damaged: Vec<u32>,
    /// Blocks with another checksum than their bytes.
    pub checksums: Vec<u32>,
    /// Blocks without anything in them: the server adds some before it needs them.
    pub empty: Vec<u32>,
    /// Tuples that cannot be.
    pub rows: u64,
}

/// Line pointer and bytes of each item of a page; None when it is no page. A new page has none.
pub fn tuples(page: &[u8]) -> Option<impl Iterator<Item = (u16, &[u8])>> {
    let header = Header::parse(page)?;
    let is_new = is_new(page, &header);
    if !is_new && header.wrong(page.len()).is_some() {
        return None;
    }
    let count = if is_new { 0 } else { header.line_pointers(page.len()) };
    let item = move |i: usize| {
        let lp = LinePointer(u32::from_le_bytes(*page.get(24 + 4 * i..)?.first_chunk()?));
        let bytes = lp.item(page).filter(|_| lp.flags() == LP_NORMAL)?;
        Some((i as u16 + 1, bytes))
    };
    Some((0..count).filter_map(item))
}

/// A row as it is stored.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Tuple<'a> {
    pub header: TupleHeader,
    pub bitmap: Option<&'a [u8]>,
    pub data: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// None when the header says what cannot be.
    pub fn parse(bytes: &'a [u8]) -> Option<Tuple<'a>> {
        let header = TupleHeader::parse(bytes)?;
        let hoff = usize::from(header.t_hoff);
        let data = bytes.get(hoff..)?;
        let bitmap = bytes.get(SIZE..hoff)?;
        let natts = usize::from(header.t_infomask2 & HEAP_NATTS_MASK);
        if header.t_infomask & HEAP_HASNULL == 0 {
            return Some(Tuple { header, bitmap: None, data });
        }
        (bitmap.len() >= natts.div_ceil(8)).then_some(Tuple { header, bitmap: Some(bitmap), data })
    }

    /// Attributes that it has.
    pub fn natts(&self) -> usize {
        usize::from(self.header.t_infomask2 & HEAP_NATTS_MASK)
    }
}

//! The blocks of a relation's main fork over all of its files, and the tuples of a page.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use leadline_bytes::ReadBuffer;
use leadline_page::postgres::heap::{TupleHeader, HEAP_HASNULL, HEAP_NATTS_MASK, SIZE};
use leadline_page::postgres::line_pointer::{LinePointer, LP_NORMAL};
use leadline_page::postgres::Header;

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
    open: Option<(u32, File)>,
}

impl HeapFile {
    pub(crate) fn open(dir: &DataDir, path: PathBuf) -> Result<HeapFile> {
        let (block_size, segment_blocks) = (dir.block_size, dir.segment_blocks);
        let mut file = HeapFile { path, block_size, segment_blocks, blocks: 0, is_cut: false, open: None };
        for segment in 0.. {
            let path = file.segment(segment);
            let bytes = match fs::metadata(&path) {
                Ok(about) if about.is_file() => about.len(),
                Ok(_) => {
                    return Err(Error::new(Kind::Invalid, "a file of the data directory is not a regular file")
                        .hint("run leadline page check to list what is wrong with the files")
                        .at(&path));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound && segment > 0 => break,
                Err(e) => return Err(Error::reading(&path, DATA_FILE, &e)),
            };
            let blocks = (bytes / file.block_size as u64).min(u64::from(file.segment_blocks)) as u32;
            file.blocks = segment.saturating_mul(file.segment_blocks).saturating_add(blocks);
            if blocks < file.segment_blocks {
                file.is_cut = bytes % file.block_size as u64 != 0;
                break;
            }
        }
        Ok(file)
    }

    /// One that is not there.
    pub fn absent(dir: &DataDir, path: PathBuf) -> HeapFile {
        let (block_size, segment_blocks) = (dir.block_size, dir.segment_blocks);
        HeapFile { path, block_size, segment_blocks, blocks: 0, is_cut: false, open: None }
    }

    /// The same file, with a handle of its own.
    pub fn again(&self) -> HeapFile {
        HeapFile { path: self.path.clone(), open: None, ..*self }
    }

    /// The path of a segment.
    pub(crate) fn segment(&self, number: u32) -> PathBuf {
        segment_path(&self.path, number)
    }

    /// The path of the file that holds a block.
    pub(crate) fn file_of(&self, block: u32) -> PathBuf {
        self.segment(block / self.segment_blocks)
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

    /// Calls `each` with block, line pointer and tuple of every tuple. Pages that are none of a table are passed over.
    /// False when a file became shorter meanwhile: then not all were seen.
    pub(crate) fn each_tuple(&mut self, mut each: impl FnMut(u32, u16, &Tuple<'_>)) -> Result<bool> {
        let mut buffer = ReadBuffer::new(32 * self.block_size);
        let mut block = 0;
        while block < self.blocks {
            let read = self.read(block, &mut buffer)?;
            if read == 0 {
                return Ok(false);
            }
            for (i, page) in buffer.chunks_exact(self.block_size).take(read).enumerate() {
                for (lp, bytes) in tuples(page).into_iter().flatten() {
                    if let Some(tuple) = Tuple::parse(bytes) {
                        each(block + i as u32, lp, &tuple);
                    }
                }
            }
            block += read as u32;
        }
        Ok(true)
    }
}

/// Line pointer and bytes of each item of a page; None when it is no page. A new page has none.
pub(crate) fn tuples(page: &[u8]) -> Option<impl Iterator<Item = (u16, &[u8])>> {
    let header = Header::parse(page)?;
    if header.pd_upper != 0 && header.wrong(page.len()).is_some() {
        return None;
    }
    let count = if header.pd_upper == 0 { 0 } else { header.line_pointers(page.len()) };
    let item = move |i: usize| {
        let lp = LinePointer(u32::from_le_bytes(*page.get(24 + 4 * i..)?.first_chunk()?));
        let bytes = lp.item(page).filter(|_| lp.flags() == LP_NORMAL)?;
        Some((i as u16 + 1, bytes))
    };
    Some((0..count).filter_map(item))
}

/// A row as it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuple<'a> {
    pub header: TupleHeader,
    pub bitmap: Option<&'a [u8]>,
    pub data: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// None when the header says what cannot be.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Tuple<'a>> {
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

    pub(crate) fn natts(&self) -> usize {
        usize::from(self.header.t_infomask2 & HEAP_NATTS_MASK)
    }
}

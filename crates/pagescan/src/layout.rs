//! How pages lie in a file, and how a page is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use leadline_datadir::{DEFAULT_BLOCK_SIZE, SEGMENT_BYTES};
use leadline_errors::{Error, Kind};
use leadline_page::postgres::{is_block_size, Control};

/// How pages lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a page.
    pub block_size: u32,
    /// Blocks in a file before the next one begins.
    pub segment_blocks: u32,
    /// Whether pages have checksums; None when no pg_control says it: then those are checked that are not 0.
    pub checksums: Option<bool>,
}

/// What pg_control says, or the size that somebody gave, or that of an ordinary build.
pub(crate) fn layout_of(control: Option<&Control>, block_size: Option<u32>) -> Result<Layout, Error> {
    let block_size = block_size.or(control.map(|c| c.blcksz)).unwrap_or(DEFAULT_BLOCK_SIZE);
    if !is_block_size(block_size) {
        let message = format!("the block size must be a power of two from 1024 to 32768, not {block_size}");
        return Err(Error::new(Kind::Usage, message));
    }
    let segment_blocks = control.map_or(SEGMENT_BYTES / block_size, |c| c.relseg_size);
    Ok(Layout { block_size, segment_blocks, checksums: control.map(|c| c.data_checksum_version != 0) })
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

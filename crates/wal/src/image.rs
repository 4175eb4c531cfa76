//! The page a stored image stands for.

use std::borrow::Cow;

use leadline_bytes::pglz;

use crate::record::{Block, Record};
use crate::version::image_info::{COMPRESSED, LZ4, PGLZ, ZSTD};
use leadline_datadir::BLOCK_SIZES;
use leadline_errors::{Error, Kind, Result};

/// The whole page of a block's image, its unused middle filled with zeros; none when the block has no image.
///
/// # Errors
/// [`Kind::Invalid`] when the image does not unpack to a page.
pub fn page(record: &Record<'_>, block: &Block) -> Result<Option<Vec<u8>>> {
    if !block.has_image {
        return Ok(None);
    }
    let (method, stored) = (block.image_info & COMPRESSED, record.image_of(block));
    let hole = usize::from(block.hole_length);
    let damaged = || {
        Error::new(Kind::Invalid, "cannot decompress a page image to a page")
            .detail(format!(
                "block {} of the record, {} bytes, bimg_info 0x{:02x}",
                block.id, block.image_length, block.image_info
            ))
            .at(format!("LSN {}", record.start))
    };
    // How large the page is shows when it is unpacked: to one of the sizes there are, and to no other.
    let whole = |size: usize| unpack(method, stored, size.checked_sub(hole)?).filter(|u| u.len() + hole == size);
    let stored = BLOCK_SIZES.into_iter().find_map(|size| whole(size as usize)).ok_or_else(damaged)?;
    let (before, after) = stored.split_at_checked(usize::from(block.hole_offset)).ok_or_else(damaged)?;
    let mut page = Vec::with_capacity(stored.len() + hole);
    page.extend_from_slice(before);
    page.resize(before.len() + hole, 0);
    page.extend_from_slice(after);
    Ok(Some(page))
}

fn unpack(method: u8, stored: &[u8], size: usize) -> Option<Cow<'_, [u8]>> {
    match method {
        0 => Some(Cow::Borrowed(stored)),
        PGLZ => pglz::decompress(stored, size).map(Cow::Owned),
        LZ4 => lz4_flex::block::decompress(stored, size).ok().map(Cow::Owned),
        ZSTD => zstd::bulk::decompress(stored, size).ok().map(Cow::Owned),
        _ => None,
    }
}

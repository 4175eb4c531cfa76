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
    let hole = usize::from(block.hole_length);
    // How large the page is shows when it is unpacked: to one of the sizes there are, and to no other.
    let of_size = |size: u32| unpacked(record, block, (size as usize).checked_sub(hole)?);
    let stored = BLOCK_SIZES.into_iter().find_map(of_size).ok_or_else(|| damaged(record, block))?;
    let mut page = vec![0; stored.len() + hole];
    lay_out(&stored, block, &mut page).ok_or_else(|| damaged(record, block))?;
    Ok(Some(page))
}

/// Makes `page`, whose size is known, what the image of a block stands for.
///
/// # Errors
/// [`Kind::Invalid`] when the image does not unpack to a page of this size.
pub fn restore(record: &Record<'_>, block: &Block, page: &mut [u8]) -> Result<()> {
    let wanted = page.len().checked_sub(block.hole_length.into());
    let stored = wanted.and_then(|size| unpacked(record, block, size));
    stored.and_then(|stored| lay_out(&stored, block, page)).ok_or_else(|| damaged(record, block))
}

/// The image without its unused middle, if it has that many bytes then.
fn unpacked<'a>(record: &Record<'a>, block: &Block, size: usize) -> Option<Cow<'a, [u8]>> {
    let stored = unpack(block.image_info & COMPRESSED, record.image_of(block), size)?;
    (stored.len() == size).then_some(stored)
}

/// Puts both parts around the unused middle. None when that would not be inside.
fn lay_out(stored: &[u8], block: &Block, page: &mut [u8]) -> Option<()> {
    let (before, after) = stored.split_at_checked(block.hole_offset.into())?;
    let (front, rest) = page.split_at_mut_checked(before.len())?;
    let (hole, back) = rest.split_at_mut_checked(block.hole_length.into())?;
    if back.len() != after.len() {
        return None;
    }
    front.copy_from_slice(before);
    hole.fill(0);
    back.copy_from_slice(after);
    Some(())
}

#[cold]
fn damaged(record: &Record<'_>, block: &Block) -> Error {
    Error::new(Kind::Invalid, "cannot decompress a page image to a page")
        .detail(format!(
            "block {} of the record, {} bytes, bimg_info 0x{:02x}",
            block.id, block.image_length, block.image_info
        ))
        .at(format!("LSN {}", record.start))
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

//! The fields of a record's data, in the order they are in.

use leadline_bytes::{Bytes, Endian};

/// A cursor over main data or a block's data. Its errors become a [`crate::Misfit`] by `?`.
pub(crate) type Fields<'a> = Bytes<'a>;

pub(crate) fn of(bytes: &[u8]) -> Fields<'_> {
    Bytes::new(bytes, Endian::Little)
}

/// So many offset numbers, as an iterator that does not allocate.
pub(crate) fn offsets<'a>(
    from: &mut Fields<'a>,
    what: &'static str,
    count: usize,
) -> crate::Result<impl ExactSizeIterator<Item = u16> + Clone + 'a> {
    let bytes = from.take(what, 2 * count)?;
    Ok(bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])))
}

//! Values of variable width: header, compression, and where a value is that is stored outside of its row.
//!
//! Source: src/include/varatt.h, src/include/access/toast_compression.h.

use std::borrow::Cow;

use leadline_bytes::pglz;

/// No value is longer: a length has 30 bits.
const MOST: usize = (1 << 30) - 1;

/// A value as it lies in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Varlena<'a> {
    /// Its bytes.
    Plain(&'a [u8]),
    /// Packed: length once unpacked, method (0 pglz, 1 lz4), and the packed bytes.
    Compressed(usize, u8, &'a [u8]),
    /// In the toast table.
    External(External),
}

/// `varatt_external`: a value in the toast table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct External {
    /// Bytes of the value, unpacked, with a header of 4.
    pub va_rawsize: u32,
    /// Bytes as stored: 30 bits, and 2 of the method.
    pub va_extinfo: u32,
    pub va_valueid: u32,
    pub va_toastrelid: u32,
}

impl Varlena<'_> {
    /// Bytes in its row, of one that is packed or stored outside.
    pub(crate) fn far_len(&self) -> usize {
        match self {
            Varlena::Plain(_) => 0,
            Varlena::Compressed(_, _, packed) => 8 + packed.len(),
            Varlena::External(_) => 18,
        }
    }
}

impl External {
    /// Bytes as stored in the toast table.
    pub fn stored(&self) -> usize {
        (self.va_extinfo & 0x3fff_ffff) as usize
    }

    /// Bytes of the value.
    pub fn unpacked(&self) -> usize {
        (self.va_rawsize as usize).saturating_sub(4)
    }

    /// Whether what is stored there is packed.
    pub fn is_compressed(&self) -> bool {
        self.stored() < self.unpacked()
    }
}

/// Whether a value that begins with this byte has no other header: its length, which counts this byte, is in the upper seven bits.
#[inline]
pub fn is_short(first: u8) -> bool {
    first & 1 == 1 && first != 1
}

/// The value that begins here and the bytes that it takes; None when they are not all there.
#[inline]
pub fn parse(bytes: &[u8]) -> Option<(Varlena<'_>, usize)> {
    let first = *bytes.first()?;
    if first == 1 {
        if *bytes.get(1)? != 18 {
            return None; // other tags exist only in memory
        }
        let at = |n: usize| bytes.get(n..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
        let external = External { va_rawsize: at(2)?, va_extinfo: at(6)?, va_valueid: at(10)?, va_toastrelid: at(14)? };
        return Some((Varlena::External(external), 18));
    }
    if is_short(first) {
        let len = usize::from(first >> 1);
        return Some((Varlena::Plain(bytes.get(1..len)?), len));
    }
    let len = (u32::from_le_bytes(*bytes.first_chunk()?) >> 2) as usize;
    let body = bytes.get(4..len)?;
    if first & 3 == 2 {
        let (size, method, packed) = compressed(body)?;
        return Some((Varlena::Compressed(size, method, packed), len));
    }
    Some((Varlena::Plain(body), len))
}

/// What follows the length of a packed value: size, method, packed bytes.
#[inline]
pub fn compressed(body: &[u8]) -> Option<(usize, u8, &[u8])> {
    let (info, packed) = body.split_first_chunk()?;
    let info = u32::from_le_bytes(*info);
    Some(((info & 0x3fff_ffff) as usize, (info >> 30) as u8, packed))
}

/// Unpacks; None when the bytes do not make a value of this size.
pub fn unpack(size: usize, method: u8, packed: &[u8]) -> Option<Vec<u8>> {
    // Neither method makes more of a byte than this: no room is taken that the bytes cannot fill.
    if size > MOST || size > packed.len().saturating_mul(280) {
        return None;
    }
    match method {
        0 => pglz::decompress(packed, size),
        1 => lz4_flex::block::decompress(packed, size).ok().filter(|out| out.len() == size),
        _ => None,
    }
}

/// A value inside another one: never outside of its row.
pub fn inner(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, usize)> {
    let (value, len) = parse(bytes)?;
    match value {
        Varlena::Plain(b) => Some((Cow::Borrowed(b), len)),
        Varlena::Compressed(size, method, packed) => Some((Cow::Owned(unpack(size, method, packed)?), len)),
        Varlena::External(_) => None,
    }
}

//! Memory for the bytes that are read or written at once.

use std::ops::{Deref, DerefMut};

/// Bytes that are read or written at once.
pub(crate) const PIECE: usize = 64 << 10;

/// It begins on a page: the kernel copies some kilobytes measurably faster to and from there than from 16 bytes behind.
pub(crate) struct Piece(Box<Aligned>);

#[repr(align(4096))]
struct Aligned([u8; PIECE]);

impl Piece {
    pub(crate) fn new() -> Piece {
        Piece(Box::new(Aligned([0; PIECE])))
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0 .0
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0 .0
    }
}

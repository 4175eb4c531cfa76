//! Where a row is, and what a cell of it is, on its way from the page to the output.

use crate::xact::Status;

/// Where a row is and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Place {
    pub block: u32,
    pub lp: u16,
    pub xmin: u32,
    pub xmax: u32,
    pub status: Status,
}

/// A value on its way to where it is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Bytes(&'a [u8]),
    /// Not there, or damaged: what is said instead of it.
    Lost(&'a str),
}

impl<'a> Value<'a> {
    #[inline]
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

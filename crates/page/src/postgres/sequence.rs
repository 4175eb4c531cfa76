//! The one page of a sequence: a heap page with one tuple and a magic number.
//!
//! Source: src/backend/commands/sequence.c; the tuple has three attributes from PostgreSQL 10 on.

use leadline_bytes::Endian;

use super::heap;
use super::line_pointer::LinePointer;
use crate::part::{FieldKind, Part, Wrong};
use crate::reader::Reader;

/// Bytes of the special area.
pub const SPECIAL: usize = 8;
/// `magic`.
pub const SEQ_MAGIC: u32 = 0x1717;
const ATTRIBUTES: u16 = 3;

pub(super) fn special(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u32("magic")?;
    r.bytes("padding", 4)?;
    Ok(())
}

/// The tuple as a part.
pub(super) fn item(page: &[u8], number: u32, lp: LinePointer) -> (Part, Option<Wrong>) {
    let (start, end) = (lp.off(), lp.off() + lp.len());
    let mut r = Reader::new(page, Endian::Little, "tuple", FieldKind::TupleHeader, start, end).numbered(number);
    let outcome = read_item(&mut r, start);
    r.bytes_to("t_data", FieldKind::Data, end);
    (r.finish(), outcome.err())
}

fn read_item(r: &mut Reader<'_>, start: usize) -> Result<(), Wrong> {
    let header = heap::read(r, start)?;
    if header.natts() == ATTRIBUTES && header.bitmap_len() == 0 {
        r.i64("last_value")?;
        r.i64("log_cnt")?;
        r.truth("is_called")?;
    }
    Ok(())
}

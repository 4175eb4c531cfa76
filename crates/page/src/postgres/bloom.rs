//! Pages of an index of contrib/bloom: meta page, and signatures of rows that lie behind each other without line pointers.
//!
//! Source: contrib/bloom/bloom.h.

use leadline_bytes::Endian;

use super::header::{Header, SIZE as HEADER};
use crate::part::{FieldKind, Part, Wrong};
use crate::reader::{Flag, Reader};

/// `bloom_page_id`.
pub const BLOOM_PAGE_ID: u16 = 0xff83;
/// `magickNumber`, as it is spelled there.
pub const BLOOM_MAGICK_NUMBER: u32 = 0xdbac_0ded;
#[allow(missing_docs)]
pub const BLOOM_META: u16 = 1;
/// Most columns of an index: `bitSize` has a place for each.
const INDEX_MAX_KEYS: usize = 32;

/// Bytes before the signature.
const TID: usize = 6;

const FLAGS: &[Flag] = &[(1, "BLOOM_META", "meta page"), (2, "BLOOM_DELETED", "deleted")];

pub(super) fn special(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u16("maxoff")?;
    let flags = r.u16("flags")?;
    r.flags(FLAGS, flags.into());
    r.bytes("padding", 2)?;
    r.u16("bloom_page_id")?;
    Ok(())
}

/// The meta page's fields.
pub(super) fn meta(page: &[u8], header: &Header) -> (Part, Option<Wrong>) {
    let end = usize::from(header.pd_lower);
    let mut r = Reader::new(page, Endian::Little, "contents", FieldKind::Meta, HEADER, end);
    let outcome = read_meta(&mut r);
    r.bytes_to("notFullPage", FieldKind::Meta, end);
    (r.finish(), outcome.err())
}

fn read_meta(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u32("magickNumber")?;
    r.u16("nStart")?;
    r.u16("nEnd")?;
    r.u32("vl_len_")?;
    r.words("length of the index options (varlena header)");
    r.i32("bloomLength")?;
    r.words("words of two bytes in a signature");
    r.u32s("bitSize", INDEX_MAX_KEYS)?;
    Ok(())
}

/// How many tuples there are, and the bytes that they share: those up to `pd_lower`.
fn room(page: &[u8], header: &Header) -> (u16, usize) {
    let maxoff = header.special(page).first_chunk().map_or(0, |b| u16::from_le_bytes(*b));
    (maxoff, usize::from(header.pd_lower).min(page.len()).saturating_sub(HEADER))
}

/// A number of tuples that cannot share the room, since all are of one size.
pub(super) fn bad_number(page: &[u8], header: &Header) -> Option<Wrong> {
    let (maxoff, room) = room(page, header);
    let tuple = room.checked_div(maxoff.into()).unwrap_or(0);
    let is_right = tuple * usize::from(maxoff) == room && (maxoff == 0 || tuple > TID);
    let wanted = format!("a number of tuples that share {room} bytes");
    let (offset, found) = (usize::from(header.pd_special), maxoff.to_string());
    (!is_right).then_some(Wrong { class: "special", what: "maxoff", item: None, offset, wanted, found })
}

/// The tuples.
pub(super) fn tuples(page: &[u8], header: &Header) -> (Vec<Part>, Option<Wrong>) {
    let (maxoff, room) = room(page, header);
    let (mut parts, mut wrong) = (Vec::new(), None);
    let Some(size) = room.checked_div(maxoff.into()).filter(|size| *size > 0) else { return (parts, wrong) };
    for number in 1..=maxoff {
        let at = HEADER + size * (usize::from(number) - 1);
        let r = Reader::new(page, Endian::Little, "item", FieldKind::Data, at, at + size);
        let mut r = r.numbered(number.into());
        wrong = wrong.or(r.tid("heapPtr").err());
        r.bytes_to("sign", FieldKind::Data, at + size);
        parts.push(r.finish());
    }
    (parts, wrong)
}

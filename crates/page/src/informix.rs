//! Pages of Informix: header, slot table, rows, timestamp.
//!
//! Informix publishes no layout. This follows what `oncheck` prints of pages and what others found; docs/formats/informix.md
//! says what was verified on bytes and what was not. Little-endian platforms; the header of 24 bytes in full. Of pages with
//! the header of 48 bytes (version 15) only the sizes are known, so these are not read further.
//!
//! ```text
//! 0  pg_offset u32 | 4 pg_chunk u16 | 6 pg_cksum u16 | 8 pg_nslots u16 | 10 pg_flags u16 | 12 pg_frptr u16 | 14 pg_frcnt u16
//! 16 pg_next u32 | 20 pg_prev u32 | 24 rows ... free ... | slot n ... slot 1, each sl_ptr u16, sl_len u16 | pg_stamp u32
//! ```

use leadline_bytes::Endian;

use crate::part::{FieldKind, Part, Wrong};
use crate::reader::{Flag, Reader};

/// The header of all versions before 15.
pub const HEADER: usize = 24;
/// The header of version 15, whose fields are not published.
pub const HEADER_15: usize = 48;
const STAMP: usize = 4;
const STAMP_15: usize = 8;
const SLOT: usize = 4;
const EXTENT: usize = 8;
/// The low bits of `pg_nslots`. The five above hold the size of the page in units of 2 kB, less one.
const COUNT: u16 = 0x07ff;
/// The low four bits of `pg_flags` are a number, the others are bits.
const TYPE: u16 = 0x000f;
const CHUNK_FREE_LIST: u16 = 8;
const RESERVED: u16 = 0x1000;
const BTREE: u16 = 0x00f0;

const FLAGS: &[Flag] = &[
    (0x0010, "10", "B-tree node"),
    (0x0020, "20", "B-tree root"),
    (0x0040, "40", "B-tree branch"),
    (0x0080, "80", "B-tree leaf"),
    (0x0100, "100", "logical log"),
    (0x0200, "200", "last page of the logical log"),
    (0x0400, "400", "sync page of the logical log"),
    (0x0800, "800", "physical log"),
    (0x1000, "1000", "reserved root page"),
    (0x2000, "2000", "needs no physical log"),
    (0x8000, "8000", "B-tree leaf with default flags"),
];

/// A page taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its type in words.
    pub kind: &'static str,
    /// Its parts, the header first.
    pub parts: Vec<Part>,
    /// What cannot be.
    pub wrong: Vec<Wrong>,
}

/// What the low four bits of `pg_flags` say.
fn numbered(flags: u16) -> &'static str {
    match flags & TYPE {
        1 => "data",
        2 => "tblspace",
        4 => "free list",
        CHUNK_FREE_LIST => "chunk free list",
        9 => "remainder data",
        0xb => "partition blob",
        0xc => "blobspace blob",
        0xd => "blob chunk free list",
        0xe => "blob chunk map",
        _ => "",
    }
}

/// The type of a page by its `pg_flags` (`pgflgs` of `onstat`), in a few words.
pub fn kind(flags: u16) -> &'static str {
    if flags & BTREE != 0 {
        return match (flags & 0x20 != 0, flags & 0x40 != 0, flags & 0x80 != 0) {
            (true, _, true) => "B-tree root and leaf",
            (true, _, false) => "B-tree root",
            (false, true, _) => "B-tree branch",
            (false, false, true) => "B-tree leaf",
            (false, false, false) => "B-tree node",
        };
    }
    match numbered(flags) {
        "" if flags & RESERVED != 0 => "reserved root",
        "" if flags & 0x0700 != 0 => "logical log",
        "" => "unknown",
        name => name,
    }
}

/// All that `pg_flags` says, in words.
pub fn words(flags: u16) -> String {
    let name = numbered(flags);
    let known = FLAGS.iter().fold(TYPE, |all, (mask, ..)| all | *mask as u16);
    let mut words: Vec<String> = Vec::new();
    if !name.is_empty() {
        words.push(name.into());
    } else if flags & TYPE != 0 {
        words.push(format!("unknown type {:#x}", flags & TYPE));
    }
    words.extend(FLAGS.iter().filter(|f| u32::from(flags) & f.0 != 0).map(|f| f.2.into()));
    if flags & !known != 0 {
        words.push(format!("unknown bits {:#x}", flags & !known));
    }
    words.join(", ")
}

/// `pg_cksum` as it should be: the halves of the address and of the timestamp, xored. It covers no other byte of the page,
/// so it tells a page of which only one end was written, and no other damage. 0 for what is too short to be a page.
pub fn cksum(page: &[u8]) -> u16 {
    let Some(start) = page.first_chunk::<HEADER>() else { return 0 };
    let Some(stamp) = page[HEADER..].last_chunk::<STAMP>() else { return 0 };
    let word = |b: &[u8]| b.chunks_exact(2).fold(0, |all, w| all ^ u16::from_le_bytes([w[0], w[1]]));
    word(&start[..6]) ^ word(stamp)
}

/// Takes a page apart. `page` is one whole page; its length is the page size. Never fails.
///
/// `row_size`: the length that rows of the table have; rows of another length are told in words, since they are no error.
pub fn dissect(page: &[u8], row_size: Option<u16>) -> Page {
    if !page.is_empty() && page.iter().all(|b| *b == 0) {
        let mut r = Reader::new(page, Endian::Little, "page", FieldKind::Unused, 0, page.len());
        r.bytes_to("zeros", FieldKind::Unused, page.len());
        return Page { kind: "zeros", parts: vec![r.finish()], wrong: Vec::new() };
    }
    let mut r = Reader::new(page, Endian::Little, "header", FieldKind::Header, 0, HEADER);
    let read = read_header(&mut r);
    let mut found = Page { kind: "unknown", parts: vec![r.finish()], wrong: Vec::new() };
    let header = match read {
        Ok(header) => header,
        Err(wrong) => {
            found.wrong.push(wrong);
            return found;
        }
    };
    found.kind = kind(header.flags);
    let end = page.len().saturating_sub(STAMP).max(HEADER);
    let slots = read_slots(page, &header, end, &mut found);
    let table = end - SLOT * slots.len();
    let bottom = if header.flags & TYPE == CHUNK_FREE_LIST && header.flags & BTREE == 0 {
        read_extents(page, &header, table, &mut found)
    } else {
        read_rows(page, &header, &slots, table, row_size, &mut found).max(header.frptr.into())
    };
    let mut r = Reader::new(page, Endian::Little, "free space", FieldKind::Free, bottom.min(table), table);
    r.bytes_to("free", FieldKind::Free, table);
    found.parts.push(r.finish());
    let mut r = Reader::new(page, Endian::Little, "timestamp", FieldKind::Special, end, page.len());
    if let Err(wrong) = r.u32("pg_stamp") {
        found.wrong.push(wrong);
    }
    found.parts.push(r.finish());
    check_stamp(page, &header, &mut found);
    check_room(page.len(), &header, &slots, &mut found);
    found
}

/// A page with the header of version 15: its three ends, and what is between them as it is.
pub fn dissect_15(page: &[u8]) -> Page {
    let part = |name, field, kind, start: usize, end: usize| {
        let mut r = Reader::new(page, Endian::Little, name, kind, start, end);
        r.bytes_to(field, kind, end);
        r.words("layout not published");
        r.finish()
    };
    let start = HEADER_15.min(page.len());
    let end = page.len().saturating_sub(STAMP_15).max(start);
    let parts = vec![
        part("header", "header", FieldKind::Header, 0, start),
        part("body", "body", FieldKind::Data, start, end),
        part("timestamp", "pg_stamp", FieldKind::Special, end, page.len()),
    ];
    Page { kind: "page format of version 15, not decoded", parts, wrong: Vec::new() }
}

struct Header {
    cksum: u16,
    nslots: u16,
    flags: u16,
    frptr: u16,
    frcnt: u16,
    prev: u32,
}

fn read_header(r: &mut Reader<'_>) -> Result<Header, Wrong> {
    r.u32("pg_offset")?;
    r.words("in pages of the system");
    r.u16("pg_chunk")?;
    let cksum = r.u16("pg_cksum")?;
    r.words("of the address and the timestamp only");
    let nslots = r.u16("pg_nslots")?;
    if nslots & !COUNT != 0 {
        r.words(format!("{} in a page of {} bytes", nslots & COUNT, ((usize::from(nslots) >> 11) + 1) * 2048));
    }
    let flags = r.u16("pg_flags")?;
    r.flags(FLAGS, u32::from(flags & !TYPE)).words(words(flags));
    let frptr = r.u16("pg_frptr")?;
    r.words("where the free space begins");
    let frcnt = r.u16("pg_frcnt")?;
    r.words("bytes free");
    r.u32("pg_next")?;
    let prev = r.u32("pg_prev")?;
    Ok(Header { cksum, nslots, flags, frptr, frcnt, prev })
}

/// One entry of the slot table.
struct Slot {
    at: usize,
    ptr: usize,
    len: usize,
}

/// The slot table, from the end of the page: no more entries than there is room for.
fn read_slots(page: &[u8], header: &Header, end: usize, found: &mut Page) -> Vec<Slot> {
    let mut wanted = usize::from(header.nslots & COUNT);
    if header.flags & TYPE == CHUNK_FREE_LIST && header.flags & BTREE == 0 {
        // pg_nslots counts extents there; the first such page of a chunk has one slot, those it is continued on have none.
        wanted = usize::from(header.prev == 0);
    }
    let room = (end - HEADER) / SLOT;
    if wanted > room {
        found.wrong.push(Wrong {
            class: "header",
            what: "pg_nslots",
            item: None,
            offset: 8,
            wanted: format!("at most {room} in a page of {} bytes", page.len()),
            found: wanted.to_string(),
        });
    }
    let mut slots = Vec::with_capacity(wanted.min(room));
    for number in 1..=wanted.min(room) {
        let at = end - SLOT * number;
        let r = Reader::new(page, Endian::Little, "slot", FieldKind::LinePointer, at, at + SLOT);
        let mut r = r.numbered(number as u32);
        let (Ok(ptr), Ok(len)) = (r.u16("sl_ptr"), r.u16("sl_len")) else { break };
        if ptr == 0 {
            r.words("nothing there");
        }
        found.parts.push(r.finish());
        slots.push(Slot { at, ptr: ptr.into(), len: len.into() });
    }
    slots
}

/// The rows that the slots point to; where the last of them ends.
fn read_rows(
    page: &[u8],
    header: &Header,
    slots: &[Slot],
    table: usize,
    row_size: Option<u16>,
    found: &mut Page,
) -> usize {
    let name = if header.flags & BTREE != 0 { "item" } else { "row" };
    let mut taken: Vec<(usize, usize, u32)> = Vec::with_capacity(slots.len());
    for (number, slot) in (1..).zip(slots) {
        if slot.ptr == 0 || slot.len == 0 {
            continue; // a row that was deleted
        }
        let to = slot.ptr + slot.len;
        if slot.ptr < HEADER || to > table {
            found.wrong.push(Wrong {
                class: "slot",
                what: "sl_ptr",
                item: Some(number),
                offset: slot.at,
                wanted: format!("bytes between {HEADER} and {table}"),
                found: format!("bytes {} to {to}", slot.ptr),
            });
            continue;
        }
        taken.push((slot.ptr, to, number));
        let mut r = Reader::new(page, Endian::Little, name, FieldKind::Data, slot.ptr, to).numbered(number);
        r.bytes_to("bytes", FieldKind::Data, to);
        if let Some(size) = row_size.filter(|size| usize::from(*size) != slot.len) {
            r.words(format!("{} bytes, not {size}", slot.len));
        }
        found.parts.push(r.finish());
    }
    taken.sort_unstable();
    let mut reached = (HEADER, 0);
    for (from, to, number) in taken {
        if from < reached.0 {
            found.wrong.push(Wrong {
                class: "overlap",
                what: "sl_ptr",
                item: Some(number),
                offset: from,
                wanted: format!("behind {}, where slot {} ends", reached.0, reached.1),
                found: from.to_string(),
            });
        }
        reached = reached.max((to, number));
    }
    reached.0
}

/// The extents of a chunk free list; where they end.
fn read_extents(page: &[u8], header: &Header, table: usize, found: &mut Page) -> usize {
    let wanted = usize::from(header.nslots & COUNT);
    let room = (table - HEADER) / EXTENT;
    if wanted > room {
        found.wrong.push(Wrong {
            class: "header",
            what: "pg_nslots",
            item: None,
            offset: 8,
            wanted: format!("at most {room} extents"),
            found: wanted.to_string(),
        });
    }
    let mut at = HEADER;
    for number in 1..=wanted.min(room) {
        let r = Reader::new(page, Endian::Little, "extent", FieldKind::Data, at, at + EXTENT);
        let mut r = r.numbered(number as u32);
        let (Ok(_), Ok(_)) = (r.u32("offset"), r.u32("size")) else { break };
        found.parts.push(r.finish());
        at += EXTENT;
    }
    at
}

fn check_stamp(page: &[u8], header: &Header, found: &mut Page) {
    let wanted = cksum(page);
    if page.len() >= HEADER + STAMP && wanted != header.cksum {
        found.wrong.push(Wrong {
            class: "torn",
            what: "pg_cksum",
            item: None,
            offset: 6,
            wanted: format!("{wanted:#06x}, from the address and the timestamp at the end"),
            found: format!("{:#06x}", header.cksum),
        });
    }
}

/// Free space: the page is header, rows, free bytes, slots and timestamp. The free bytes are counted from `pg_frptr`, or with
/// the holes between rows; a page that fits neither way is wrong. Only for the types of which such pages were seen.
fn check_room(size: usize, header: &Header, slots: &[Slot], found: &mut Page) {
    if header.flags & BTREE != 0 || !(matches!(header.flags & TYPE, 1 | 2 | 9) || header.flags & RESERVED != 0) {
        return;
    }
    let ends = usize::from(header.frcnt) + SLOT * slots.len() + STAMP;
    let rows: usize = slots.iter().filter(|s| s.ptr != 0).map(|s| s.len).sum();
    let (contiguous, with_holes) = (usize::from(header.frptr) + ends, HEADER + rows + ends);
    if contiguous != size && with_holes != size {
        found.wrong.push(Wrong {
            class: "header",
            what: "pg_frcnt",
            item: None,
            offset: 14,
            wanted: format!("what is left of {size} bytes"),
            found: format!("{}, which makes {contiguous} from pg_frptr and {with_holes} with the rows", header.frcnt),
        });
    }
}

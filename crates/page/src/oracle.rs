//! Data blocks of Oracle: cache header, tail, xor checksum, transactions, row directory, rows.
//!
//! Oracle publishes no layout. This follows what others found and was verified on one block of release 12.1 only, of a table
//! in a tablespace with automatic space management (testdata/oracle). Little-endian platforms; table blocks (type 6) in full,
//! of others the header.

use leadline_bytes::Endian;

use crate::part::{FieldKind, Part, Value, Wrong};
use crate::reader::{Flag, Reader};

const HEADER: usize = 20;
const TAIL: usize = 4;
const TRANSACTION_HEADER: usize = 24;
const INTERESTED: usize = 24;
const DIRECTORY_HEADER: usize = 14;
/// Automatic space management keeps eight bytes between the transactions and the row directory.
const GAPS: [usize; 2] = [8, 0];
const TRANS_DATA: u8 = 6;
const ENCRYPTED: u8 = 0x10;
const CHECKSUM_SET: u8 = 0x04;

const FLG: &[Flag] = &[
    (0x01, "KCBHFNEW", "new"),
    (0x02, "KCBHFDLC", "delayed cleanout"),
    (0x04, "KCBHFCKV", "checksum set"),
    (0x08, "KCBHFTMP", "temporary"),
    (0x10, "encrypted", "encrypted with its tablespace"),
];
const FB: &[Flag] = &[
    (0x01, "N", "last column continues in the next piece"),
    (0x02, "P", "first column continues from the piece before"),
    (0x04, "L", "last piece"),
    (0x08, "F", "first piece"),
    (0x10, "D", "deleted"),
    (0x20, "H", "head piece"),
    (0x40, "C", "of a cluster"),
    (0x80, "K", "cluster key"),
];

/// A block taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Its type in words.
    pub kind: &'static str,
    /// Whether its body is encrypted; the header and the tail never are.
    pub encrypted: bool,
    /// Its parts, the header first.
    pub parts: Vec<Part>,
    /// What cannot be.
    pub wrong: Vec<Wrong>,
}

/// The size of the blocks of a file that begins like one of Oracle; None for others.
pub fn block_size(start: &[u8]) -> Option<usize> {
    let &[_, format, 0, 0, ..] = start else { return None };
    let size = match format >> 4 {
        0x6 => 2048,
        0x8 => 4096,
        0xa => 8192,
        0xc => 16384,
        0xe => 32768,
        _ => return None,
    };
    (format & 0x0f == 2).then_some(size)
}

/// The xor of all 16-bit words: 0 for a whole block whose checksum is set.
pub fn xor(block: &[u8]) -> u16 {
    block.chunks_exact(2).fold(0, |all, b| all ^ u16::from_le_bytes([b[0], b[1]]))
}

/// Takes a block apart. `block` is one whole block; its length is the block size. Never fails.
pub fn dissect(block: &[u8]) -> Block {
    let mut r = Reader::new(block, Endian::Little, "header", FieldKind::Header, 0, HEADER);
    let read = header(&mut r);
    let mut found = Block { kind: "unknown", encrypted: false, parts: vec![r.finish()], wrong: Vec::new() };
    let header = match read {
        Ok(header) => header,
        Err(wrong) => {
            found.wrong.push(wrong);
            return found;
        }
    };
    found.kind = kind(header.kind);
    found.encrypted = header.flg & ENCRYPTED != 0;
    let end = block.len().saturating_sub(TAIL).max(HEADER);
    if found.encrypted {
        let mut r = Reader::new(block, Endian::Little, "body", FieldKind::Data, HEADER, end);
        r.bytes_to("encrypted", FieldKind::Data, end);
        found.parts.push(r.finish());
    } else if header.kind == TRANS_DATA {
        if let Err(wrong) = transactions(block, end, &mut found.parts) {
            found.wrong.push(wrong);
        }
    }
    check(block, &header, end, &mut found);
    found
}

struct Header {
    kind: u8,
    scn_base: u32,
    seq: u8,
    flg: u8,
}

fn kind(kind: u8) -> &'static str {
    match kind {
        0x01 => "undo segment header",
        0x02 => "undo block",
        0x06 => "trans data",
        0x0b => "data file header",
        0x10 => "segment header",
        0x20 => "first level bitmap",
        0x21 => "second level bitmap",
        0x23 => "segment header with bitmap",
        _ => "unknown",
    }
}

fn header(r: &mut Reader<'_>) -> Result<Header, Wrong> {
    let type_ = r.u8("type_kcbh")?;
    r.words(kind(type_));
    r.u8("frmt_kcbh")?;
    r.bytes("spare", 2)?;
    let rdba = r.u32("rdba_kcbh")?;
    r.words(format!("file {}, block {}", rdba >> 22, rdba & 0x003f_ffff));
    let scn_base = r.u32("bas_kcbh")?;
    r.u16("wrp_kcbh")?;
    let seq = r.u8("seq_kcbh")?;
    if seq == 0xff {
        r.words("marked corrupt");
    }
    let flg = r.u8("flg_kcbh")?;
    r.flags(FLG, flg.into());
    r.u16("chkval_kcbh")?;
    r.u16("spare3_kcbh")?;
    Ok(Header { kind: type_, scn_base, seq, flg })
}

fn check(block: &[u8], header: &Header, end: usize, found: &mut Block) {
    let mut r = Reader::new(block, Endian::Little, "tail", FieldKind::Special, end, block.len());
    let wanted = (header.scn_base & 0xffff) << 16 | u32::from(header.kind) << 8 | u32::from(header.seq);
    match r.u32("tailchk") {
        Ok(tail) if tail != wanted => found.wrong.push(Wrong {
            class: "torn",
            what: "tailchk",
            item: None,
            offset: end,
            wanted: format!("{wanted:#010x}, from the header"),
            found: format!("{tail:#010x}"),
        }),
        Ok(_) => {}
        Err(wrong) => found.wrong.push(wrong),
    }
    found.parts.push(r.finish());
    if header.flg & CHECKSUM_SET != 0 && xor(block) != 0 {
        found.wrong.push(Wrong {
            class: "checksum",
            what: "chkval_kcbh",
            item: None,
            offset: 16,
            wanted: "a xor of all words of 0".into(),
            found: format!("{:#06x}", xor(block)),
        });
    }
}

fn transactions(block: &[u8], end: usize, parts: &mut Vec<Part>) -> Result<(), Wrong> {
    let start = HEADER + TRANSACTION_HEADER;
    let mut r = Reader::new(block, Endian::Little, "transaction header", FieldKind::Header, HEADER, start);
    let itc = transaction_header(&mut r);
    parts.push(r.finish());
    let itc = itc?;
    let mut at = start;
    for number in 1..=u32::from(itc) {
        let to = (at + INTERESTED).min(end);
        let r = Reader::new(block, Endian::Little, "itl", FieldKind::TupleHeader, at, to);
        let mut r = r.numbered(number);
        let read = interested(&mut r);
        parts.push(r.finish());
        read?;
        at += INTERESTED;
    }
    rows(block, at, end, parts)
}

fn transaction_header(r: &mut Reader<'_>) -> Result<u16, Wrong> {
    let type_ = r.u8("ktbbhtyp")?;
    r.words(match type_ {
        1 => "data",
        2 => "index",
        _ => "",
    });
    r.bytes("padding", 3)?;
    r.u32("ktbbhsid")?;
    r.words("object");
    r.u32("ktbbhcsc base")?;
    r.u16("ktbbhcsc wrap")?;
    r.bytes("padding", 2)?;
    let itc = r.u16("ktbbhict")?;
    r.words("entries in the list of transactions");
    r.u16("ktbbhflg")?;
    r.u32("ktbbhfnx")?;
    Ok(itc)
}

/// One entry of the interested transaction list.
fn interested(r: &mut Reader<'_>) -> Result<(), Wrong> {
    r.u16("xid usn")?;
    r.u16("xid slot")?;
    r.u32("xid sqn")?;
    r.u32("uba dba")?;
    r.u16("uba seq")?;
    r.u8("uba rec")?;
    r.bytes("padding", 1)?;
    let flag = r.u16("ktbitflg")?;
    let state = match flag >> 12 {
        0 if flag == 0 => "unused",
        0 => "active",
        8.. => "committed",
        2 => "upper bound commit",
        _ => "",
    };
    r.words(format!("{state}, {} rows locked", flag & 0x0fff));
    r.u16("fsc or scn wrap")?;
    r.u32("scn base")?;
    Ok(())
}

/// The row directory and its rows. Where it begins depends on the tablespace; the one place where its sizes agree is taken.
fn rows(block: &[u8], at: usize, end: usize, parts: &mut Vec<Part>) -> Result<(), Wrong> {
    let Some((start, ntab, nrow)) = GAPS.iter().find_map(|gap| directory_at(block, at + gap, end)) else {
        return Err(Wrong {
            class: "header",
            what: "kdbhfsbo",
            item: None,
            offset: at.min(block.len()),
            wanted: "the length of a row directory, behind the transactions or 8 bytes further".into(),
            found: "other numbers at both places".into(),
        });
    };
    let mut r = Reader::new(block, Endian::Little, "row directory", FieldKind::LinePointer, at, end);
    r.bytes_to("padding", FieldKind::Padding, start);
    let directory = directory(&mut r, ntab, nrow);
    let behind = r.offset();
    let mut part = r.finish();
    part.end = behind;
    parts.push(part);
    for (number, offset) in (0..).zip(directory?) {
        let row = start.saturating_add(offset as usize);
        if row < behind || row >= end {
            continue; // a free entry: part of a chain of them
        }
        let r = Reader::new(block, Endian::Little, "row", FieldKind::TupleHeader, row, end);
        let mut r = r.numbered(number);
        let read = read_row(&mut r);
        let behind = r.offset();
        let mut part = r.finish();
        part.end = behind;
        parts.push(part);
        read?;
    }
    Ok(())
}

/// (offset, tables, rows) of a row directory at `at` when the length it claims is that of its entries.
fn directory_at(block: &[u8], at: usize, end: usize) -> Option<(usize, u8, u16)> {
    let b = block.get(at..end)?.first_chunk::<DIRECTORY_HEADER>()?;
    let (ntab, nrow) = (b[1], u16::from_le_bytes([b[2], b[3]]));
    let length = DIRECTORY_HEADER + 4 * usize::from(ntab) + 2 * usize::from(nrow);
    let fsbo = usize::from(u16::from_le_bytes([b[6], b[7]]));
    (fsbo == length && at + length <= end).then_some((at, ntab, nrow))
}

fn directory(r: &mut Reader<'_>, ntab: u8, nrow: u16) -> Result<Vec<u64>, Wrong> {
    r.u8("kdbhflag")?;
    r.u8("kdbhntab")?;
    r.u16("kdbhnrow")?;
    r.i16("kdbhfrre")?;
    r.i16("kdbhfsbo")?;
    r.i16("kdbhfseo")?;
    r.i16("kdbhavsp")?;
    r.words("bytes available");
    r.i16("kdbhtosp")?;
    for _ in 0..ntab {
        r.u16("kdbt offs")?;
        r.u16("kdbt nrow")?;
    }
    let bytes = r.bytes("kdbr", usize::from(nrow) * 2)?;
    let offsets: Vec<u64> = bytes.chunks_exact(2).map(|b| u64::from(u16::from_le_bytes([b[0], b[1]]))).collect();
    r.derived("offsets", Value::Numbers(offsets.clone()));
    Ok(offsets)
}

/// Flags, lock, columns; each column is a length and that many bytes.
fn read_row(r: &mut Reader<'_>) -> Result<(), Wrong> {
    const NULL: u8 = 0xff;
    const LONG: u8 = 0xfe;
    const CLUSTER_MEMBER: u8 = 0x40;
    const DELETED: u8 = 0x10;
    let fb = r.u8("fb")?;
    r.flags(FB, fb.into());
    r.u8("lb")?;
    r.words("entry of the list of transactions that locks it");
    if fb & DELETED != 0 {
        return Ok(());
    }
    let columns = r.u8("cc")?;
    r.words("columns");
    if fb & CLUSTER_MEMBER != 0 {
        r.u8("cki")?;
    }
    for _ in 0..columns {
        r.kind(FieldKind::TupleHeader);
        let len = match r.u8("length")? {
            NULL => {
                r.words("null");
                continue;
            }
            LONG => usize::from(r.u16("long length")?),
            len => usize::from(len),
        };
        r.kind(FieldKind::Data).bytes("column", len)?;
    }
    Ok(())
}

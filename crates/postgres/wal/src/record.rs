//! One record: its header, the blocks it refers to, and where their data, their images and the main data are.
//!
//! Source: `access/xlogrecord.h`, `DecodeXLogRecord` in `access/transam/xlogreader.c`.

use crate::version::{image_info, image_info_of};
use leadline_datadir::{is_block_size, Lsn, RelFile as Relation, DEFAULT_BLOCK_SIZE, LARGEST_BLOCK_SIZE};

/// Microseconds from 1970 to 2000, where the clock of the times in records begins.
pub const EPOCH_US: i64 = 946_684_800_000_000;

/// Size of `XLogRecord`.
pub const HEADER: usize = 24;

/// Where the fields of `XLogRecord` are that are read before a record is known to be sound: `xl_tot_len` is the first.
#[allow(missing_docs)]
pub mod field {
    pub const TOT_LEN: usize = 0;
    pub const PREV: usize = 8;
    pub const INFO: usize = 16;
    pub const RMID: usize = 17;
    pub const CRC: usize = 20;
}

/// Where a page says its size, `pd_pagesize_version`.
const PAGE_SIZE_AT: usize = 18;

/// Most blocks a record may refer to.
const MAX_BLOCKS: usize = 33;

/// No record has more before its main data: its header, a header of each block with all its parts and 64 kB twice, an origin, a
/// top-level transaction, and the length of the main data.
pub(crate) const BEFORE_MAIN: usize = HEADER + MAX_BLOCKS * (4 + 7 + 12 + 4 + 2 * u16::MAX as usize) + 3 + 5 + 5;

/// `fork_flags` of a block reference.
mod block_flags {
    pub(super) const FORK: u8 = 0x0F;
    pub(super) const HAS_IMAGE: u8 = 0x10;
    pub(super) const HAS_DATA: u8 = 0x20;
    pub(super) const WILL_INIT: u8 = 0x40;
    pub(super) const SAME_REL: u8 = 0x80;
}

/// Block ids that are something else.
mod block_id {
    pub(super) const MAX: u8 = 32;
    pub(super) const DATA_SHORT: u8 = 255;
    pub(super) const DATA_LONG: u8 = 254;
    pub(super) const ORIGIN: u8 = 253;
    pub(super) const TOPLEVEL_XID: u8 = 252;
}

/// A part of a long record's main data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where in the main data it begins.
    pub at: usize,
    pub bytes: Vec<u8>,
}

/// One block a record refers to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// Its number within the record.
    pub id: u8,
    /// 0 main, 1 free space map, 2 visibility map, 3 init.
    pub fork: u8,
    /// Replay makes the page anew.
    pub will_init: bool,
    /// There is a page image, maybe only to verify replay.
    pub has_image: bool,
    /// The record has data for this block.
    pub has_data: bool,
    /// Files of the relation.
    pub relation: Relation,
    /// Block number within the fork.
    pub block: u32,
    /// Bytes of data for this block.
    pub data_length: u16,
    /// Bytes of the image as stored.
    pub image_length: u16,
    /// Where the unused middle of the page begins.
    pub hole_offset: u16,
    /// How long it is.
    pub hole_length: u16,
    /// Bits of [`image_info`], the same for every major.
    pub image_info: u8,
    /// Where in the record the image begins; the data follows it.
    image_at: u32,
}

/// A record, with its bytes as long as the reader stands on it.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Where it begins.
    pub start: Lsn,
    /// Where the next one may begin.
    pub end: Lsn,
    /// Where the one before began (`xl_prev`).
    pub prev: Lsn,
    /// Transaction, 0 for none.
    pub xid: u32,
    /// Resource manager.
    pub rmid: u8,
    /// `xl_info`.
    pub info: u8,
    /// Major of the server that wrote it.
    pub major: u8,
    /// Replication origin, 0 for none.
    pub origin: u16,
    /// Top-level transaction where the record names it, else 0.
    pub top_xid: u32,
    /// Blocks, in the order of their ids.
    pub blocks: &'a [Block],
    /// All of it, or of a long one the front.
    bytes: &'a [u8],
    /// Of the whole (`xl_tot_len`).
    length: usize,
    main_at: usize,
    /// Of a long one, parts of the main data behind the front.
    pieces: &'a [Piece],
}

/// Whose page images are in the bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Images {
    All,
    /// That of one block, see [`Record::copy_for`].
    Of(Option<u8>),
}

/// Reads records that were kept: their bytes, those of [`Record::copy_for`], or the pages of the WAL they are on.
#[derive(Debug, Clone)]
pub struct Decoder {
    pub(crate) parts: Parts,
    /// A record put together from its pages.
    pub(crate) whole: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { parts: Parts::new(), whole: Vec::new() }
    }
}

impl Decoder {
    /// The record again, with the image of the block it was copied for and no other: [`Record::image_of`] those is empty.
    ///
    /// None when the bytes are not those of such a copy.
    #[inline]
    pub fn decode<'a>(
        &'a mut self,
        copy: &'a [u8],
        id: Option<u8>,
        start: Lsn,
        end: Lsn,
        major: u8,
    ) -> Option<Record<'a>> {
        self.parts.parse_headers(copy, copy.len(), major, Images::Of(id)).ok()?;
        Some(self.parts.record(copy, copy.len(), &[], start.0, end.0, major))
    }

    /// The record again from a copy of all its bytes ([`Record::bytes`]).
    ///
    /// None when the bytes are not those of a whole record.
    #[inline]
    pub fn decode_whole<'a>(&'a mut self, copy: &'a [u8], start: Lsn, end: Lsn, major: u8) -> Option<Record<'a>> {
        if copy.len() < HEADER {
            return None;
        }
        self.parts.parse(copy, major).ok()?;
        Some(self.parts.record(copy, copy.len(), &[], start.0, end.0, major))
    }
}

/// What is found in a record's headers; kept by the reader so that no record allocates.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    blocks: [Block; MAX_BLOCKS],
    count: usize,
    origin: u16,
    top_xid: u32,
    pub(crate) main_at: usize,
}

/// What is wrong in a record's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub what: &'static str,
    /// Offset in the record.
    pub at: usize,
    pub wanted: &'static str,
    pub found: u64,
}

impl<'a> Record<'a> {
    /// Bytes of the record with everything in it (`xl_tot_len`).
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// All bytes of the record; of one of which not all is kept, the front.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Adds the record's bytes to `into`, of page images only that of one block: what it takes to redo that block. A record may have
    /// 32 images, and is kept once for each of its blocks. Gives how many bytes those are; [`Decoder`] reads them.
    ///
    /// Of a record of which not all is kept there is no more than that.
    #[inline]
    pub fn copy_for(&self, id: Option<u8>, into: &mut Vec<u8>) -> usize {
        let before = into.len();
        let mut from = 0;
        for block in self.blocks {
            if block.image_length > 0 && id != Some(block.id) {
                let at = block.image_at as usize;
                into.extend_from_slice(self.bytes.get(from..at).unwrap_or_default());
                from = at + usize::from(block.image_length);
            }
        }
        into.extend_from_slice(self.bytes.get(from..).unwrap_or_default());
        into.len() - before
    }

    /// Bytes of page images as stored.
    #[inline]
    pub fn image_bytes(&self) -> usize {
        self.blocks.iter().map(|b| usize::from(b.image_length)).sum()
    }

    /// What the resource manager says of the record as a whole; of a long one the first bytes ([`crate::kept`]).
    #[inline]
    pub fn main_data(&self) -> &'a [u8] {
        self.bytes.get(self.main_at..).unwrap_or_default()
    }

    /// Bytes of the main data, kept or not.
    #[inline]
    pub fn main_length(&self) -> usize {
        self.length.saturating_sub(self.main_at)
    }

    /// Bytes of the main data that were not kept.
    pub fn left_out(&self) -> usize {
        let mut kept = self.main_data().len();
        let mut left_out = self.main_length() - kept;
        for Piece { at, bytes } in self.pieces {
            let end = at + bytes.len();
            left_out -= end.saturating_sub(kept.max(*at));
            kept = kept.max(end);
        }
        left_out
    }

    /// The main data from an offset on, as far as it is kept.
    pub(crate) fn main_from(&self, at: usize) -> &'a [u8] {
        // What a piece has was cut off in what is before it.
        let piece = self.pieces.iter().rev().find(|piece| piece.at <= at);
        let rest = piece.and_then(|piece| piece.bytes.get(at - piece.at..)).filter(|rest| !rest.is_empty());
        rest.or_else(|| self.main_data().get(at..)).unwrap_or_default()
    }

    /// The block of this id.
    #[inline]
    pub fn block(&self, id: u8) -> Option<&Block> {
        self.blocks.iter().find(|b| b.id == id)
    }

    /// What the record says of a block.
    #[inline]
    pub fn data_of(&self, block: &Block) -> &'a [u8] {
        let at = block.image_at as usize + usize::from(block.image_length);
        self.bytes.get(at..at + usize::from(block.data_length)).unwrap_or_default()
    }

    /// The image of a block as stored.
    pub fn image_of(&self, block: &Block) -> &'a [u8] {
        let at = block.image_at as usize;
        self.bytes.get(at..at + usize::from(block.image_length)).unwrap_or_default()
    }
}

impl Parts {
    pub(crate) fn new() -> Parts {
        Parts { blocks: [Block::default(); MAX_BLOCKS], count: 0, origin: 0, top_xid: 0, main_at: 0 }
    }

    /// The record made of these parts.
    #[inline(always)]
    pub(crate) fn record<'a>(
        &'a self,
        bytes: &'a [u8],
        length: usize,
        pieces: &'a [Piece],
        start: u64,
        end: u64,
        major: u8,
    ) -> Record<'a> {
        let word = |at| u32_at(bytes, at).unwrap_or(0);
        Record {
            start: Lsn(start),
            end: Lsn(end),
            prev: Lsn(u64::from(word(12)) << 32 | u64::from(word(8))),
            xid: word(4),
            rmid: bytes.get(17).copied().unwrap_or(0),
            info: bytes.get(16).copied().unwrap_or(0),
            major,
            origin: self.origin,
            top_xid: self.top_xid,
            blocks: &self.blocks[..self.count],
            bytes,
            length,
            main_at: self.main_at,
            pieces,
        }
    }

    /// Reads the headers after the record's own. `bytes` is the whole record.
    #[inline]
    pub(crate) fn parse(&mut self, bytes: &[u8], major: u8) -> Result<(), Wrong> {
        self.parse_headers(bytes, bytes.len(), major, Images::All)
    }

    /// Likewise of a record of `length` bytes of which there is at least all before the main data.
    #[inline(never)]
    pub(crate) fn parse_front(&mut self, bytes: &[u8], length: usize, major: u8) -> Result<(), Wrong> {
        self.parse_headers(bytes, length, major, Images::All)
    }

    #[inline(always)]
    fn parse_headers(&mut self, bytes: &[u8], length: usize, major: u8, images: Images) -> Result<(), Wrong> {
        (self.count, self.origin, self.top_xid) = (0, 0, 0);
        if self.parse_plain(bytes, length, major) {
            return Ok(());
        }
        self.parse_any(bytes, length, major, images)
    }

    /// Reads the headers of what most records are: one block without an image, and short main data. False when it is another, or wrong.
    #[inline(always)]
    fn parse_plain(&mut self, bytes: &[u8], length: usize, major: u8) -> bool {
        const MAIN: usize = HEADER + 20;
        let Some(head) = bytes.first_chunk::<{ MAIN + 2 }>() else { return false };
        let block = &mut self.blocks[0];
        let is_plain = head[HEADER] <= block_id::MAX
            && head[HEADER + 1] & (block_flags::HAS_IMAGE | block_flags::SAME_REL) == 0
            && head[MAIN] == block_id::DATA_SHORT
            && block.parse(head, HEADER, major, &mut None) == Ok(MAIN);
        let after = MAIN + 2 + usize::from(block.data_length);
        if !is_plain || length != after + usize::from(head[MAIN + 1]) {
            return false;
        }
        block.image_at = MAIN as u32 + 2;
        (self.count, self.main_at) = (1, after);
        true
    }

    #[inline(always)]
    fn parse_any(&mut self, bytes: &[u8], length: usize, major: u8, images: Images) -> Result<(), Wrong> {
        let mut at = HEADER;
        let mut relation = None;
        // Bytes after the headers that the headers have spoken of.
        let (mut announced, mut main_length) = (0usize, 0usize);
        while length.saturating_sub(at) > announced {
            let id = u8_at(bytes, at).ok_or(cut("header", at))?;
            match id {
                block_id::DATA_SHORT => {
                    main_length = u8_at(bytes, at + 1).ok_or(cut("main data header", at))?.into();
                    at += 2;
                    announced += main_length;
                    break; // always the last header
                }
                block_id::DATA_LONG => {
                    main_length = u32_at(bytes, at + 1).ok_or(cut("main data header", at))? as usize;
                    at += 5;
                    announced = announced.saturating_add(main_length);
                    break;
                }
                block_id::ORIGIN => {
                    self.origin = u16_at(bytes, at + 1).ok_or(cut("replication origin", at))?;
                    at += 3;
                }
                block_id::TOPLEVEL_XID if major >= 14 => {
                    self.top_xid = u32_at(bytes, at + 1).ok_or(cut("top-level transaction", at))?;
                    at += 5;
                }
                0..=block_id::MAX => {
                    if self.count > 0 && self.blocks[self.count - 1].id >= id {
                        return Err(Wrong {
                            what: "block id",
                            at,
                            wanted: "more than the previous one",
                            found: id.into(),
                        });
                    }
                    let block = &mut self.blocks[self.count];
                    at = block.parse(bytes, at, major, &mut relation)?;
                    if let Images::Of(kept) = images {
                        if kept != Some(block.id) {
                            block.image_length = 0;
                        }
                    }
                    announced += usize::from(block.data_length) + usize::from(block.image_length);
                    self.count += 1;
                }
                _ => return Err(Wrong { what: "block id", at, wanted: "0 to 32, or 252 to 255", found: id.into() }),
            }
        }
        if length - at.min(length) != announced {
            return Err(Wrong {
                what: "length of the parts",
                at,
                wanted: "at most the rest of the record",
                found: announced as u64,
            });
        }
        for block in &mut self.blocks[..self.count] {
            block.image_at = at as u32;
            if block.has_image
                && block.image_length > 0
                && block.image_info & (image_info::HAS_HOLE | image_info::COMPRESSED) == image_info::HAS_HOLE
            {
                block.find_hole(bytes.get(at..).unwrap_or_default())?;
            }
            at += usize::from(block.image_length) + usize::from(block.data_length);
        }
        self.main_at = at;
        debug_assert_eq!(length - at, main_length);
        Ok(())
    }
}

impl Block {
    /// Reads one block header that begins at `at`; gives where it ends.
    #[inline(always)]
    fn parse(&mut self, bytes: &[u8], at: usize, major: u8, relation: &mut Option<Relation>) -> Result<usize, Wrong> {
        let cut = cut("block header", at);
        let head: &[u8; 4] = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or(cut)?;
        let flags = head[1];
        *self = Block {
            id: head[0],
            fork: flags & block_flags::FORK,
            will_init: flags & block_flags::WILL_INIT != 0,
            has_image: flags & block_flags::HAS_IMAGE != 0,
            has_data: flags & block_flags::HAS_DATA != 0,
            data_length: u16::from_le_bytes([head[2], head[3]]),
            ..Block::default()
        };
        let mut next = at + 4;
        if self.fork > 3 {
            return Err(Wrong { what: "fork", at: at + 1, wanted: "0 to 3", found: self.fork.into() });
        }
        if self.has_data != (self.data_length > 0) {
            return Err(Wrong {
                what: "data length",
                at: at + 2,
                wanted: "0 without HAS_DATA, else more",
                found: self.data_length.into(),
            });
        }
        if self.has_image {
            next = self.parse_image(bytes, next, major)?;
        }
        if flags & block_flags::SAME_REL == 0 {
            let word = |n: usize| u32_at(bytes, next + 4 * n).ok_or(cut);
            *relation = Some(Relation { spc: word(0)?, db: word(1)?, rel: word(2)? });
            next += 12;
        }
        let none_before = Wrong { what: "SAME_REL", at: at + 1, wanted: "a relation before it", found: flags.into() };
        self.relation = relation.ok_or(none_before)?;
        self.block = u32_at(bytes, next).ok_or(cut)?;
        Ok(next + 4)
    }

    fn parse_image(&mut self, bytes: &[u8], at: usize, major: u8) -> Result<usize, Wrong> {
        let cut = cut("image header", at);
        let head: &[u8; 5] = bytes.get(at..at + 5).and_then(|b| b.try_into().ok()).ok_or(cut)?;
        let mut next = at + 5;
        self.image_length = u16::from_le_bytes([head[0], head[1]]);
        self.hole_offset = u16::from_le_bytes([head[2], head[3]]);
        self.image_info = image_info_of(major, head[4]);
        let has_hole = self.image_info & image_info::HAS_HOLE != 0;
        let compressed = self.image_info & image_info::COMPRESSED != 0;
        if has_hole && compressed {
            self.hole_length = u16_at(bytes, next).ok_or(cut)?;
            next += 2;
        }
        let largest = LARGEST_BLOCK_SIZE as usize;
        let (length, hole) = (usize::from(self.image_length), usize::from(self.hole_length));
        let fits = match (has_hole, compressed) {
            (true, false) => self.hole_offset > 0, // more is known with the image, see `find_hole`
            (true, true) => self.hole_offset > 0 && hole > 0 && length + hole < largest,
            (false, true) => length < largest && self.hole_offset == 0,
            (false, false) => is_block_size(self.image_length.into()) && self.hole_offset == 0,
        };
        if !fits || usize::from(self.hole_offset) + hole > largest {
            return Err(self.wrong_image(at));
        }
        Ok(next)
    }

    /// How long the hole of an image is that was not compressed: what the image lacks of a page. The WAL does not say how large
    /// pages are, but what has a hole has a page's header (`pd_pagesize_version`).
    #[inline]
    fn find_hole(&mut self, image: &[u8]) -> Result<(), Wrong> {
        let (length, offset) = (usize::from(self.image_length), usize::from(self.hole_offset));
        let said = u16_at(&image[..length.min(offset).min(image.len())], PAGE_SIZE_AT)
            .map_or(0, |word| u32::from(word & 0xFF00));
        let size = if is_block_size(said) { said } else { DEFAULT_BLOCK_SIZE } as usize;
        // `offset` is also where the bytes after the hole begin in the image.
        if length >= size || offset > length {
            return Err(self.wrong_image(self.image_at as usize));
        }
        self.hole_length = (size - length) as u16;
        Ok(())
    }

    fn wrong_image(&self, at: usize) -> Wrong {
        let wanted = "a length and a hole that add up to a page";
        Wrong { what: "page image", at, wanted, found: self.image_length.into() }
    }
}

fn cut(what: &'static str, at: usize) -> Wrong {
    Wrong { what, at, wanted: "a complete image inside the record", found: 0 }
}

#[inline]
fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(parsed: impl FnOnce(&mut Parts) -> bool) -> Option<(Vec<Block>, usize)> {
        let mut parts = Parts::new();
        parsed(&mut parts).then(|| (parts.blocks[..parts.count].to_vec(), parts.main_at))
    }

    #[test]
    fn a_plain_record_is_read_as_any() {
        let mut record = vec![0; HEADER];
        let block = [&[3, block_flags::HAS_DATA | 1, 6, 0][..], &[7; 12], &[9; 4]].concat();
        for part in [&block[..], &[block_id::DATA_SHORT, 5], &[1; 6], &[2; 5]] {
            record.extend_from_slice(part);
        }
        assert!(parts(|parts| parts.parse_plain(&record, record.len(), 18)).is_some());
        // Whatever one of its bytes is, and however long it is: what is taken for plain is read as it would be otherwise.
        let mut plain = 0;
        for at in HEADER..record.len() {
            for value in 0..=u8::MAX {
                let mut changed = record.clone();
                changed[at] = value;
                for length in [changed.len() - 1, changed.len(), changed.len() + 1] {
                    changed.resize(length, 0);
                    if let Some(found) = parts(|parts| parts.parse_plain(&changed, length, 18)) {
                        let wanted = parts(|parts| parts.parse_any(&changed, length, 18, Images::All).is_ok());
                        assert_eq!(Some(found), wanted, "byte {at} is {value}, length {length}");
                        plain += 1;
                    }
                }
            }
        }
        assert!(plain > 5000, "{plain}");
    }
}

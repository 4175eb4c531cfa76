//! Files that pgBackRest stores by blocks (`repo-block`, 2.46 and later): each backup of a chain has the blocks that changed since the one
//! before, packed in super blocks, and the newest has a map of where all of them are.
//!
//! Source: src/command/backup/blockMap.c and src/command/restore/blockDelta.c of pgBackRest. The map is a series of numbers of variable
//! length, 7 bits in each byte. It names a backup, the first time with the bundle and offset of its super blocks, then these one behind the
//! other with their blocks. A checksum follows for each block, which is passed over: the digest of the file says more.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read};

/// Bytes of unpacked super blocks that are kept: blocks of several backups alternate in a file.
const KEPT: usize = 32 << 20;
/// Bytes of one; pgBackRest makes them of a few megabytes.
const LARGEST: u64 = 64 << 20;

/// Where a block of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) of: SuperBlock,
    /// Which one of the super block it is.
    pub(crate) number: u64,
}

/// Some blocks that are packed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SuperBlock {
    /// The backup that has it, by its number in the list of references.
    pub(crate) reference: u64,
    /// The bundle; 0 where it is in a file of its own.
    pub(crate) bundle: u64,
    pub(crate) offset: u64,
    /// How many bytes are stored.
    pub(crate) stored: u64,
    /// How many these are of the file.
    pub(crate) bytes: u64,
}

/// How a file is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    /// Bytes of a block.
    pub(crate) block: u64,
    /// Bytes of a checksum in the map.
    pub(crate) checksum: u64,
    /// Bytes of the map as it is stored.
    pub(crate) map: u64,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the map of its blocks is damaged: {what}"))
}

/// The rest of a map.
struct Rest<'m>(&'m [u8]);

impl Rest<'_> {
    fn number(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or_else(|| damaged("it is cut off"))?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damaged("a number does not end"))
    }

    fn pass_over(&mut self, bytes: u64) -> io::Result<()> {
        let rest = usize::try_from(bytes).ok().and_then(|bytes| self.0.get(bytes..));
        self.0 = rest.ok_or_else(|| damaged("it is cut off"))?;
        Ok(())
    }
}

/// A number with a sign, which the lowest bit tells.
fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Where the blocks of a file are that has `bytes`, in their order.
pub(crate) fn read_map(map: &[u8], division: Division, bytes: u64) -> io::Result<Vec<Block>> {
    let wanted = bytes.div_ceil(division.block.max(1));
    // More than a checksum for each is not there, whatever the length of the file is said to be.
    let mut blocks = Vec::with_capacity(usize::try_from(wanted).unwrap_or(0).min(map.len()));
    let too_large = || damaged("a place is outside of any file");
    let mut rest = Rest(map);
    if rest.number()? & 1 != 0 {
        return Err(damaged("it is of a version that is not known"));
    }
    // What was said last of each backup, and the number of the next block there.
    let mut known: BTreeMap<u64, (SuperBlock, u64)> = BTreeMap::new();
    let mut size_before = 0_u64;
    loop {
        let begun = rest.number()?;
        let (is_last_reference, reference) = (begun & 1 != 0, begun >> 3);
        // The end of a super block that was begun: whether it is the last of this backup here.
        let mut continued = None;
        let (mut now, mut next) = match known.get(&reference) {
            None => {
                let bundle = if begun & 2 != 0 { rest.number()? } else { 0 };
                let offset = if begun & 4 != 0 { rest.number()? } else { 0 };
                (SuperBlock { reference, bundle, offset, stored: 0, bytes: division.block }, 0)
            }
            Some(&before) if begun & 2 != 0 => {
                continued = Some(begun & 4 != 0);
                before
            }
            Some(&(before, next)) => {
                let skipped = if begun & 4 != 0 { rest.number()? } else { 0 };
                let offset = before.offset.checked_add(before.stored).and_then(|at| at.checked_add(skipped));
                (SuperBlock { offset: offset.ok_or_else(too_large)?, ..before }, next)
            }
        };
        let mut is_first = true;
        loop {
            let (is_last, has_count) = match continued.take() {
                Some(is_last) => (is_last, true),
                None => {
                    let code = rest.number()?;
                    let size = code >> 3;
                    let size = match size_before {
                        0 => Some(size),
                        before => before.checked_add_signed(signed(size)),
                    };
                    if code & 2 != 0 {
                        let blocks = rest.number()?;
                        let odd = if blocks & 1 != 0 { rest.number()? } else { 0 };
                        let bytes = (blocks >> 1).checked_mul(division.block).and_then(|of| of.checked_add(odd));
                        now.bytes = bytes.ok_or_else(too_large)?;
                    }
                    if !is_first {
                        now.offset = now.offset.checked_add(size_before).ok_or_else(too_large)?;
                    }
                    now.stored = size.ok_or_else(|| damaged("a length is negative"))?;
                    next = 0;
                    (code & 1 != 0, code & 4 != 0)
                }
            };
            (size_before, is_first) = (now.stored, false);
            let count = if has_count {
                let code = rest.number()?;
                let skipped = if code & 1 != 0 { rest.number()? } else { 0 };
                next = skipped.checked_add(next).ok_or_else(too_large)?;
                (code >> 1) + 1
            } else {
                now.bytes.div_ceil(division.block.max(1))
            };
            if count > wanted - blocks.len() as u64 {
                return Err(damaged("it has more blocks than the file"));
            }
            rest.pass_over(count.saturating_mul(division.checksum))?;
            blocks.extend((next..next.saturating_add(count)).map(|number| Block { of: now, number }));
            next = next.saturating_add(count);
            if is_last {
                break;
            }
        }
        known.insert(reference, (now, next));
        if is_last_reference {
            break;
        }
    }
    match (blocks.len() as u64 == wanted, rest.0.is_empty()) {
        (true, true) => Ok(blocks),
        (false, _) => Err(damaged("it has fewer blocks than the file")),
        (_, false) => Err(damaged("more follows behind its end")),
    }
}

/// Gives the stream of a super block, unpacked.
pub(crate) type Open<'o> = dyn Fn(&SuperBlock) -> io::Result<Box<dyn Read + 'o>> + 'o;

/// The bytes of a file from its front on.
pub(crate) struct Assembled<'o> {
    open: Box<Open<'o>>,
    blocks: Vec<Block>,
    block_size: u64,
    /// The block that is given, and how many of its bytes were.
    at: usize,
    taken: usize,
    /// The last used in front.
    kept: VecDeque<(SuperBlock, Vec<u8>)>,
}

impl<'o> Assembled<'o> {
    pub(crate) fn new(blocks: Vec<Block>, block_size: u64, open: Box<Open<'o>>) -> Assembled<'o> {
        Assembled { open, blocks, block_size, at: 0, taken: 0, kept: VecDeque::new() }
    }

    /// Puts a super block in front.
    fn find(&mut self, wanted: SuperBlock) -> io::Result<()> {
        if let Some(found) = self.kept.iter().position(|(of, _)| *of == wanted) {
            self.kept.swap(0, found);
            return Ok(());
        }
        if wanted.bytes > LARGEST {
            return Err(damaged("a super block is too large"));
        }
        let mut bytes = Vec::new();
        (self.open)(&wanted)?.take(wanted.bytes.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != wanted.bytes {
            let detail = format!("a super block has {} bytes, not {}", bytes.len(), wanted.bytes);
            return Err(io::Error::new(ErrorKind::InvalidData, detail));
        }
        self.kept.push_front((wanted, bytes));
        while self.kept.len() > 1 && self.kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > KEPT {
            self.kept.pop_back();
        }
        Ok(())
    }
}

impl Read for Assembled<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(&Block { of, number }) = self.blocks.get(self.at) {
            self.find(of)?;
            let bytes = self.kept.front().map_or(&[][..], |(_, bytes)| bytes);
            let from = number.checked_mul(self.block_size).and_then(|from| usize::try_from(from).ok());
            let block = from.and_then(|from| bytes.get(from..)).filter(|block| !block.is_empty());
            let block = block.ok_or_else(|| damaged("a block is outside of its super block"))?;
            let block = block.get(..block.len().min(self.block_size as usize)).unwrap_or_default();
            let rest = block.get(self.taken..).unwrap_or_default();
            if rest.is_empty() {
                (self.at, self.taken) = (self.at + 1, 0);
                continue;
            }
            let read = rest.len().min(into.len());
            into[..read].copy_from_slice(&rest[..read]);
            self.taken += read;
            return Ok(read);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIVISION: Division = Division { block: 4, checksum: 1, map: 0 };

    /// Blocks 0, 2 and 3 of an earlier backup, in a bundle; block 1 of a later one.
    #[rustfmt::skip]
    const MAP: &[u8] = &[
        0, // version
        0b0000_0110, 7, 100, // backup 0, with bundle 7 and offset 100
        (9 << 3) & 0x7f | 0b111, 0b1000, // 9 bytes stored, of 4 blocks; a count follows; the last here
        0, 0xee, // one block from number 0 on, its checksum
        0b0000_1000, // backup 1, without bundle and offset
        0b0001_1101, 0, 0xee, // 9 + signed(3) = 7 bytes stored, one block, the last here
        0b0000_0111, // backup 0 again, continued, the last super block here, the last backup
        0b0000_0011, 1, 0xee, 0xee, // two blocks, and one number is passed over
    ];

    #[test]
    fn a_map_tells_where_each_block_is() {
        let old = SuperBlock { reference: 0, bundle: 7, offset: 100, stored: 9, bytes: 16 };
        let new = SuperBlock { reference: 1, bundle: 0, offset: 0, stored: 7, bytes: 4 };
        let wanted = [(old, 0), (new, 0), (old, 2), (old, 3)].map(|(of, number)| Block { of, number });
        assert_eq!(read_map(MAP, DIVISION, 16).unwrap(), wanted);
    }

    #[test]
    fn every_cut_and_other_lengths_are_errors() {
        for cut in 0..MAP.len() {
            assert!(read_map(&MAP[..cut], DIVISION, 16).is_err(), "{cut} bytes of it");
        }
        let said = |bytes| read_map(MAP, DIVISION, bytes).map_err(|e| e.to_string());
        assert!(said(12).is_err_and(|e| e.ends_with("it has more blocks than the file")));
        assert!(said(17).is_err_and(|e| e.ends_with("it has fewer blocks than the file")));
        let longer = [MAP, &[0]].concat();
        assert!(read_map(&longer, DIVISION, 16).is_err_and(|e| e.to_string().ends_with("more follows behind its end")));
    }

    #[test]
    fn blocks_are_put_in_the_order_of_the_file() {
        let (old, new) = (
            SuperBlock { reference: 0, bundle: 0, offset: 0, stored: 1, bytes: 10 },
            SuperBlock { reference: 1, bundle: 0, offset: 0, stored: 1, bytes: 4 },
        );
        let blocks = [(old, 0), (new, 0), (old, 2)].map(|(of, number)| Block { of, number }).to_vec();
        let open = |of: &SuperBlock| -> io::Result<Box<dyn Read>> {
            Ok(Box::new(if of.reference == 0 { &b"aaaabbbbcc"[..] } else { &b"BBBB"[..] }))
        };
        let mut text = String::new();
        Assembled::new(blocks.clone(), 4, Box::new(open)).read_to_string(&mut text).unwrap();
        assert_eq!(text, "aaaaBBBBcc");
        let short = |_: &SuperBlock| -> io::Result<Box<dyn Read>> { Ok(Box::new(&b"aa"[..])) };
        let read = Assembled::new(blocks, 4, Box::new(short)).read_to_string(&mut text);
        assert_eq!(read.map_err(|e| e.to_string()), Err("a super block has 2 bytes, not 10".into()));
    }
}

//! The visibility map, read beside its table. The free space map is a hint that no server trusts, and is not compared.
//!
//! Source: src/backend/access/heap/visibilitymap.c: two bits for each block, behind a page header.

use leadline_bytes::ReadBuffer;
use leadline_errors::{Kind, Result};
use leadline_page::postgres::header::SIZE as HEADER;
use leadline_page::postgres::{Fork, Kind as PageKind};
use leadline_rows::heap_file::HeapFile;

use crate::blocks::{Page, Settled};
use crate::heap::found::{At, Found};
use crate::target::Target;

/// What the map says of a block. Nothing where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    pub visible: bool,
    pub frozen: bool,
}

impl Bits {
    fn of(byte: u8, number: usize) -> Bits {
        let bits = byte >> (2 * (number % 4));
        Bits { visible: bits & 1 != 0, frozen: bits & 2 != 0 }
    }
}

/// The map of one table, of which one page is kept.
pub(crate) struct VisibilityMap {
    file: Option<HeapFile>,
    checksums: bool,
    settled: Settled,
    buffer: ReadBuffer,
    /// The page in the buffer, and whether it can be compared.
    at: Option<(u32, bool)>,
    /// Pages that could not be compared.
    pub unsettled: u64,
}

impl VisibilityMap {
    /// Of a table; it need not have one.
    ///
    /// # Errors
    /// When the file system says no.
    pub(crate) fn of(target: &Target<'_>, settled: Settled) -> Result<VisibilityMap> {
        let dir = &target.catalog().dir;
        let file = match target.catalog().heap(target.class.oid)?.fork(dir, Fork::Vm.as_str()) {
            Ok(file) => Some(file),
            Err(e) if matches!(e.kind, Kind::NotFound) => None,
            Err(e) => return Err(e),
        };
        let buffer = ReadBuffer::new(dir.block_size);
        Ok(VisibilityMap { file, checksums: dir.checksums, settled, buffer, at: None, unsettled: 0 })
    }

    /// Blocks of the table that a page of the map is of.
    fn per_page(&self) -> u32 {
        4 * (self.buffer.len() - HEADER) as u32
    }

    /// The bits of a block of the table.
    ///
    /// # Errors
    /// When the file system says no.
    pub(crate) fn bits(&mut self, block: u32) -> Result<Bits> {
        let (page, within) = (block / self.per_page(), (block % self.per_page()) as usize);
        if !self.read(page)? {
            return Ok(Bits::default());
        }
        Ok(Bits::of(self.buffer[HEADER + within / 4], within))
    }

    /// The same, read once more.
    ///
    /// # Errors
    /// When the file system says no.
    pub(crate) fn bits_again(&mut self, block: u32) -> Result<Bits> {
        self.at = None;
        self.bits(block)
    }

    /// Puts a page into the buffer; whether it can be compared.
    fn read(&mut self, page: u32) -> Result<bool> {
        if let Some((_, is_settled)) = self.at.filter(|(at, _)| *at == page) {
            return Ok(is_settled);
        }
        let Some(file) = &mut self.file else { return Ok(false) };
        self.at = None;
        let is_there = page < file.blocks && file.read(page, &mut self.buffer)? > 0;
        let mut is_settled = false;
        if is_there {
            let found = Page::of(&self.buffer, Fork::Vm, page, self.checksums, self.settled);
            is_settled = found.is_settled && found.kind != PageKind::New;
            self.unsettled += u64::from(!found.is_settled);
        }
        self.at = Some((page, is_settled));
        Ok(is_settled)
    }

    /// Whether it says something of blocks that the table, of so many, has not: truncation clears these bits first.
    ///
    /// # Errors
    /// When the file system says no.
    pub(crate) fn check_end(&mut self, blocks: u32, found: &mut Found<'_, '_>) -> Result<()> {
        let pages = self.file.as_ref().map_or(0, |file| file.blocks);
        let first = blocks / self.per_page();
        // More pages than a map of the largest table has are none of a map.
        for page in first..pages.min(u32::MAX / self.per_page() + 1) {
            if !self.read(page)? {
                continue;
            }
            let from = if page == first { (blocks % self.per_page()) as usize } else { 0 };
            let is_set = |within: &usize| Bits::of(self.buffer[HEADER + within / 4], *within) != Bits::default();
            if let Some(within) = (from..self.per_page() as usize).find(is_set) {
                let block = u64::from(page) * u64::from(self.per_page()) + within as u64;
                let message =
                    format!("the visibility map says something of block {block}, but the table has {blocks} blocks");
                let means = "rows that are put there later are taken for visible to all";
                found.likely("visibility_map", At { block: blocks.saturating_sub(1), item: 0 }, message, means);
                return Ok(());
            }
        }
        Ok(())
    }
}

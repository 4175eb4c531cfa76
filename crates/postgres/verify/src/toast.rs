//! Values in the TOAST table: their pointers, and whether all their chunks are there.
//!
//! Of deleted rows nothing is concluded, nor while the server runs or after a crash: VACUUM may have taken chunks whose rows are gone from
//! a page that was not written yet.
//!
//! Source: src/backend/access/common/{toast_internals,detoast}.c, contrib/amcheck/verify_heapam.c (`check_toasted_attribute`).

use std::sync::Arc;

use leadline_errors::{Kind, Result};
use leadline_page::postgres::heap::TupleHeader;
use leadline_page::postgres::Kind as PageKind;
use leadline_rows::heap_file::tuples;
use leadline_rows::toast::{Fetched, Toast};
use leadline_rows::toast_places::{Builder, Places};
use leadline_rows::tuple::{deform, Storage, Stored};
use leadline_rows::varlena::{External, Varlena};
use leadline_rows::xact::{Logged, Xacts};

use crate::heap::about::About;
use crate::heap::found::{At, Found};
use crate::heap::items::{Items, Version};
use crate::target::Target;

/// Most bytes that a value has, with a header of 4.
const MOST: u32 = 0x3fff_ffff;
const LOST: &str = "reading the value fails";
const CLASS: &str = "toast";
/// chunk_id, chunk_seq, chunk_data
const CHUNK: [Storage; 3] = [
    Storage { attlen: 4, attalign: b'i' },
    Storage { attlen: 4, attalign: b'i' },
    Storage { attlen: -1, attalign: b'i' },
];

/// Bytes of a chunk but the last one of its value (src/include/access/heaptoast.h, `TOAST_MAX_CHUNK_SIZE`).
pub(crate) fn chunk_size(block_size: usize) -> usize {
    let tuple = (block_size - (24 + 4 * 4usize).next_multiple_of(8)) / 4 / 8 * 8;
    tuple - 24 - 4 - 4 - 4
}

/// The TOAST table of one table, opened when the first value in it is asked for.
pub(crate) struct Chunks<'a> {
    target: Target<'a>,
    relid: u32,
    opened: Option<Option<Opened>>,
}

struct Opened {
    toast: Toast,
    /// All of its pages could be read.
    is_whole: bool,
}

impl<'a> Chunks<'a> {
    pub(crate) fn of(target: Target<'a>, about: &About) -> Chunks<'a> {
        let relid = about.thresholds.get(&target.class.oid).map_or(0, |than| than.toast);
        Chunks { target, relid, opened: None }
    }

    /// What cannot be in a pointer.
    pub(crate) fn wrong_pointer(&self, external: &External, name: &str, major: u32) -> Option<String> {
        let (raw, stored, method) = (external.va_rawsize, external.stored(), external.va_extinfo >> 30);
        if external.va_toastrelid != self.relid {
            let relid = external.va_toastrelid;
            return Some(format!("{name} is in TOAST table {relid}, but that of the table is {}", self.relid));
        }
        if !(4..=MOST).contains(&raw) || stored > external.unpacked() {
            return Some(format!("{name} has {} bytes, of which {stored} are stored", external.unpacked()));
        }
        let is_known = match method {
            0 => true,
            1 => major >= 14 && external.is_compressed(),
            _ => false,
        };
        (!is_known).then(|| format!("{name} is compressed by a method {method} that is not known"))
    }

    /// Puts a value of a live row together; whether it is whole. What is wrong is told.
    ///
    /// # Errors
    /// When the file system says no.
    pub(crate) fn fetch(
        &mut self,
        external: &External,
        name: &str,
        at: At,
        out: &mut Vec<u8>,
        found: &mut Found<'_, '_>,
    ) -> Result<bool> {
        if self.opened.is_none() {
            self.opened = Some(self.open(found)?);
        }
        let size = chunk_size(self.target.catalog().dir.block_size);
        let Some(Some(opened)) = &mut self.opened else { return Ok(false) };
        let id = external.va_valueid;
        let fetched = opened.toast.fetch(external, out)?;
        let wanted = external.stored().div_ceil(size);
        let what = match fetched {
            Fetched::Whole => opened
                .deleted(wanted)
                .map(|seq| format!("chunk {seq} of TOAST value {id} is deleted or rolled back, but the row is not")),
            Fetched::Missing if !opened.is_whole => {
                found.skipped("TOAST values in a table with damaged pages", 1);
                return Ok(false);
            }
            Fetched::Missing => Some(opened.missing(id, wanted, external.stored(), size)),
            Fetched::Damaged => Some(format!("TOAST value {id} cannot be unpacked to {} bytes", external.unpacked())),
            Fetched::Ambiguous => {
                Some(format!("two visible chunks of TOAST value {id} have the same number, and differ"))
            }
        };
        if let Some(what) = what {
            found.certain(CLASS, at, format!("{name}: {what}"), LOST);
        }
        Ok(fetched == Fetched::Whole)
    }

    fn open(&self, found: &mut Found<'_, '_>) -> Result<Option<Opened>> {
        let Some(target) = self.target.other(self.relid) else { return Ok(None) };
        let opened = target.blocks().and_then(|mut blocks| {
            let heap = target.catalog().heap(self.relid)?;
            let mut is_whole = heap.holes.is_empty();
            let places = places(&mut blocks, &mut is_whole)?;
            let xacts = Xacts::new(&target.catalog().dir);
            Ok(Opened { toast: Toast::new(heap, Arc::new(places), xacts, false), is_whole })
        });
        match opened {
            Err(e) if matches!(e.kind, Kind::NotFound) => {
                found.skipped("TOAST tables without a file", 1);
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }
}

/// Where the values are; `is_whole` becomes false when pages could not be read.
fn places(blocks: &mut crate::blocks::Blocks, is_whole: &mut bool) -> Result<Places> {
    let mut builder = Builder::new();
    let count = blocks.count();
    blocks.each(0..count, |page| {
        *is_whole &= page.is_settled && matches!(page.kind, PageKind::Heap | PageKind::New);
        for (_, item) in tuples(page.bytes).into_iter().flatten() {
            let data =
                TupleHeader::parse(item).and_then(|header| item.get(usize::from(header.t_hoff)..)?.first_chunk());
            if let Some(id) = data {
                builder.push(u32::from_le_bytes(*id), page.block)?;
            }
        }
        Ok(true)
    })?;
    Ok(builder.finish())
}

impl Opened {
    /// The number of a chunk of the last value that no snapshot sees, of so many.
    fn deleted(&self, wanted: usize) -> Option<u32> {
        let mut seen: Vec<u32> = self.toast.chunks().filter(|(_, gone, _)| !gone).map(|(seq, ..)| seq).collect();
        seen.sort_unstable();
        seen.dedup();
        (0..wanted as u32).find(|seq| seen.get(*seq as usize) != Some(seq))
    }

    /// What is missing of the last value.
    fn missing(&self, id: u32, wanted: usize, stored: usize, size: usize) -> String {
        let mut chunks: Vec<(u32, usize)> = self.toast.chunks().map(|(seq, _, len)| (seq, len)).collect();
        chunks.sort_unstable();
        chunks.dedup_by_key(|(seq, _)| *seq);
        if chunks.is_empty() {
            return format!("TOAST value {id} is missing");
        }
        for seq in 0..wanted {
            let right = if seq + 1 == wanted { stored - seq * size } else { size };
            match chunks.get(seq) {
                Some((found, len)) if *found as usize == seq && *len == right => {}
                Some((found, len)) if *found as usize == seq => {
                    return format!("chunk {seq} of TOAST value {id} has {len} bytes instead of {right}");
                }
                _ => return format!("chunk {seq} of TOAST value {id} is missing, of {wanted}"),
            }
        }
        format!("TOAST value {id} has {} chunks instead of {wanted}", chunks.len())
    }
}

/// The rows of a TOAST table themselves.
pub(crate) fn check_rows(bytes: &[u8], items: &Items, block: u32, found: &mut Found<'_, '_>) {
    let most = chunk_size(bytes.len());
    for (item, tuple) in tuples(bytes).into_iter().flatten() {
        let Some(version) = items.version(item).filter(|version| version.inserted == Logged::Committed) else {
            continue;
        };
        if let Some(what) = wrong_row(tuple, version, most) {
            found.certain("toast_chunk", At { block, item }, what, "reading the value that the chunk is of fails");
        }
    }
}

fn wrong_row(item: &[u8], version: &Version, most: usize) -> Option<String> {
    let data = item.get(usize::from(version.header.t_hoff)..)?;
    if version.header.natts() != 3 || version.header.t_infomask & 1 != 0 {
        return Some("a row of a TOAST table without its three values".into());
    }
    let mut out = Vec::new();
    // One that is not all there is told of with the values of other tables.
    deform(data, None, 3, &CHUNK, &mut out)?;
    let [Stored::Fixed(_), Stored::Fixed(seq), Stored::Varlena(value)] = out[..] else { return None };
    let seq = seq.first_chunk().map_or(0, |b| i32::from_le_bytes(*b));
    if seq < 0 {
        return Some(format!("a chunk with the number {seq}"));
    }
    match value {
        Varlena::Plain(bytes) if bytes.is_empty() || bytes.len() > most => {
            Some(format!("a chunk of {} bytes; chunks have 1 to {most}", bytes.len()))
        }
        Varlena::Plain(_) => None,
        _ => Some("a chunk that is compressed or stored elsewhere".into()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn chunks_are_as_long_as_the_server_makes_them() {
        // pg_control of each of these sizes says so.
        assert_eq!([4096, 8192, 16384, 32768].map(super::chunk_size), [972, 1996, 4044, 8140]);
    }
}

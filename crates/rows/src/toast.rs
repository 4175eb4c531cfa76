//! Values stored outside of their rows, put together from the toast table's own pages.
//!
//! The table is gone through once, when the first such value is asked for, and where its pieces are is remembered: about
//! 16 bytes for each piece of 2 kB.

use crate::error::Result;
use crate::heap_file::{tuples, HeapFile, Tuple};
use crate::tuple::{deform, Storage, Stored};
use crate::varlena::{self, External, Varlena};
use crate::xact::Xacts;

/// chunk_id, chunk_seq, chunk_data
const CHUNK: [Storage; 3] = [
    Storage { attlen: 4, attalign: b'i' },
    Storage { attlen: 4, attalign: b'i' },
    Storage { attlen: -1, attalign: b'i' },
];

#[derive(Debug)]
pub(crate) struct Toast {
    heap: HeapFile,
    /// (chunk_id, chunk_seq, not visible, block, lp), in order.
    places: Vec<(u32, u32, bool, u32, u16)>,
    page: Vec<u8>,
    block: Option<u32>,
}

fn chunk<'a>(tuple: &Tuple<'a>, out: &mut Vec<Stored<'a>>) -> Option<(u32, u32, &'a [u8])> {
    deform(tuple.data, tuple.bitmap, tuple.natts(), &CHUNK, out)?;
    match out[..] {
        [Stored::Fixed(id), Stored::Fixed(seq), Stored::Varlena(Varlena::Plain(data))] => {
            let number = |b: &[u8]| b.first_chunk().map(|b| u32::from_le_bytes(*b));
            Some((number(id)?, number(seq)?, data))
        }
        _ => None,
    }
}

impl Toast {
    pub(crate) fn open(mut heap: HeapFile, xacts: &mut Xacts) -> Result<Toast> {
        let mut places = Vec::new();
        heap.each_tuple(|block, lp, tuple| {
            if let Some((id, seq, _)) = chunk(tuple, &mut Vec::new()) {
                places.push((id, seq, !xacts.status(&tuple.header).is_visible(), block, lp));
            }
        })?;
        places.sort_unstable();
        let page = vec![0; heap.block_size];
        Ok(Toast { heap, places, page, block: None })
    }

    /// The value's bytes, unpacked; None when they are not all there.
    pub(crate) fn fetch(&mut self, external: &External) -> Result<Option<Vec<u8>>> {
        let id = external.va_valueid;
        let mut stored = Vec::new();
        let mut at = self.places.partition_point(|p| p.0 < id);
        let mut seq = 0;
        while let Some(&(found, n, _, block, lp)) = self.places.get(at).filter(|p| p.0 == id) {
            at += 1;
            if n != seq || found != id || stored.len() >= external.stored() {
                continue; // the piece of a row that is gone, beside one that is there
            }
            if self.block != Some(block) {
                self.block = None;
                if self.heap.read(block, &mut self.page)? == 0 {
                    return Ok(None);
                }
                self.block = Some(block);
            }
            let items = tuples(&self.page).unwrap_or_default();
            let tuple = items.iter().find(|i| i.0 == lp).and_then(|i| Tuple::parse(i.1));
            let Some((_, _, data)) = tuple.and_then(|t| chunk(&t, &mut Vec::new())) else { return Ok(None) };
            stored.extend_from_slice(data);
            seq += 1;
        }
        if stored.len() != external.stored() {
            return Ok(None);
        }
        if !external.is_compressed() {
            return Ok(Some(stored));
        }
        Ok(varlena::compressed(&stored).and_then(|(size, method, packed)| varlena::unpack(size, method, packed)))
    }
}

//! `pg_filenode.map`: the files of the few relations that cannot be looked up in `pg_class`.
//!
//! ```text
//! 0 magic u32 | 4 num_mappings i32 | 8 mappings, each mapoid u32, mapfilenumber u32 | crc u32 | to 15: padding of 4
//! ```
//!
//! Source: src/backend/utils/cache/relmapper.c. 62 places to 15, 64 from 16 on; the file's length tells which.

use leadline_bytes::Endian;

use crate::part::{FieldKind, Part, Wrong};
use crate::reader::Reader;

const MAGIC: u32 = 0x0059_2717;
const PLACE: usize = 8;
/// Before the places.
const HEAD: usize = 8;

/// The file taken apart: its parts, what cannot be, and the checksum as it should be. Never fails.
pub fn describe_relmap(bytes: &[u8]) -> (Vec<Part>, Vec<Wrong>, u32) {
    let mut wrong = Vec::new();
    let mut say = |what, offset: usize, wanted: String, found: String| {
        let offset = offset.min(bytes.len());
        wrong.push(Wrong { class: "relmap", what, item: None, offset, wanted, found });
    };
    let places = match bytes.len() {
        512 => 62,
        524 => 64,
        other => {
            say("file", 0, "512 bytes (to 15) or 524".into(), format!("{other} bytes"));
            (other.saturating_sub(HEAD) / PLACE).min(64)
        }
    };
    let part = |name, start| Reader::new(bytes, Endian::Little, name, FieldKind::Header, start, bytes.len());
    let mut head = part("RelMapFile", 0);
    let (magic, count) = (head.u32("magic"), head.i32("num_mappings"));
    let mut parts = Vec::new();
    match magic {
        Ok(MAGIC) => {}
        Ok(other) => say("magic", 0, format!("{MAGIC:#x}"), format!("{other:#x}")),
        Err(e) => say(e.what, e.offset, e.wanted, e.found),
    }
    let count = match count {
        Ok(n) => usize::try_from(n).ok().filter(|n| *n <= places).unwrap_or_else(|| {
            say("num_mappings", 4, format!("0 to {places}"), n.to_string());
            0
        }),
        Err(_) => 0,
    };
    for i in 0..count {
        let at = HEAD + PLACE * i;
        let mut r =
            Reader::new(bytes, Endian::Little, "mapping", FieldKind::Data, at, at + PLACE).numbered(i as u32 + 1);
        let _ = r.u32("mapoid").and_then(|_| r.u32("mapfilenumber")); // there are as many as the file has room for
        parts.push(r.finish());
    }
    let crc_at = HEAD + PLACE * places;
    let mut tail = part("end of file", HEAD + PLACE * count);
    tail.bytes_to("unused places", FieldKind::Unused, crc_at);
    let computed = crc32c::crc32c(bytes.get(..crc_at).unwrap_or_default());
    match tail.u32("crc") {
        Ok(crc) if crc == computed => {}
        Ok(crc) => say("crc", crc_at, format!("{computed:#010x}"), format!("{crc:#010x}")),
        Err(e) => say(e.what, e.offset, e.wanted, e.found),
    }
    tail.bytes_to("padding", FieldKind::Padding, bytes.len());
    parts.insert(0, Part { end: head.offset(), ..head.finish() });
    parts.push(tail.finish());
    (parts, wrong, computed)
}

/// (oid of a relation, number of its file) of each mapping.
///
/// # Errors
/// The first thing that cannot be.
pub fn relmap(bytes: &[u8]) -> Result<Vec<(u32, u32)>, Wrong> {
    let (parts, wrong, _) = describe_relmap(bytes);
    if let Some(wrong) = wrong.into_iter().next() {
        return Err(wrong);
    }
    let number = |part: &Part, name| part.number_of(name).and_then(|n| u32::try_from(n).ok());
    let mappings = parts.iter().filter(|p| p.name == "mapping");
    Ok(mappings.filter_map(|p| Some((number(p, "mapoid")?, number(p, "mapfilenumber")?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(len: usize) -> Vec<u8> {
        let mut map = vec![0; len];
        for (at, n) in [MAGIC, 2, 1259, 1259, 1249, 16400].into_iter().enumerate() {
            map[4 * at..4 * at + 4].copy_from_slice(&n.to_le_bytes());
        }
        let crc_at = if len == 512 { 504 } else { 520 };
        let crc = crc32c::crc32c(&map[..crc_at]);
        map[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        map
    }

    #[test]
    fn both_lengths_are_read_and_a_changed_byte_is_refused() {
        for len in [512, 524] {
            assert_eq!(relmap(&map(len)), Ok(vec![(1259, 1259), (1249, 16400)]));
            let (parts, _, _) = describe_relmap(&map(len));
            assert_eq!(crate::regions(&parts, len).iter().map(|r| r.end - r.start).sum::<usize>(), len);
            let mut broken = map(len);
            broken[20] ^= 1;
            assert_eq!(relmap(&broken).unwrap_err().what, "crc");
            for short in 0..len {
                let wrong = describe_relmap(&map(len)[..short]).1;
                assert!(!wrong.is_empty() && wrong.iter().all(|w| w.offset <= short), "{short}: {wrong:?}");
            }
        }
    }
}

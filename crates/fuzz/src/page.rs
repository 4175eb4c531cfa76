//! Pages, blocks of Oracle, pages of Informix, and other files of a data directory.

use leadline_page::postgres::{check, checksum, describe_clog, describe_control, describe_relmap};
use leadline_page::postgres::{dissect_block, relmap as mappings, Control, Fork};
use leadline_page::{informix as chunks, oracle as blocks, regions, Part, Value, Wrong};

use crate::{choice, number};

/// A page may take this many bytes of values for each of its own: a bit becomes a byte, six bytes of a row's place eight.
const GROWTH: usize = 64;

/// A page of the size that the first byte says, filled with the rest. A short rest goes half to the page's beginning and
/// half to its end, where the things are that are looked at.
pub(crate) fn sized(data: &[u8]) -> Vec<u8> {
    let (choice, rest) = choice(data);
    let size = match choice % 8 {
        n @ 0..=5 => 1024 << n,
        _ => return rest.to_vec(),
    };
    let mut page = vec![0; size];
    let rest = &rest[..rest.len().min(size)];
    let (front, back) = if rest.len() < size { rest.split_at(rest.len() / 2) } else { (rest, &[][..]) };
    page[..front.len()].copy_from_slice(front);
    page[size - back.len()..].copy_from_slice(back);
    page
}

/// Every byte in exactly one region, what is wrong inside of the page, and no more said than there is.
fn assert_sound(parts: &[Part], wrong: &[Wrong], size: usize) {
    let mut at = 0;
    for tile in regions(parts, size) {
        assert_eq!(tile.start, at, "a gap or an overlap: {tile:?}");
        assert!(tile.end > tile.start && !tile.field.is_empty(), "{tile:?}");
        at = tile.end;
    }
    assert_eq!(at, size);
    for wrong in wrong {
        assert!(wrong.offset <= size, "{wrong}");
    }
    let mut bytes = 0;
    for field in parts.iter().flat_map(|p| &p.fields) {
        assert!(field.start + field.len <= size, "{field:?}");
        bytes += 1 + field.words.len();
        bytes += match &field.value {
            Value::Bytes(b) => b.len(),
            Value::Bits(b) => b.len(),
            Value::Tids(t) => 8 * t.len(),
            Value::Numbers(n) => 8 * n.len(),
            _ => 8,
        };
        assert!(field.len == 0 || !field.value.to_string().is_empty() || bytes > 0);
    }
    // Items may overlap (which is then said), so each of a page's line pointers may show the whole page.
    let items = 1 + size / 4;
    assert!(bytes <= GROWTH * (size + 64) * items, "{bytes} bytes of values from {size}");
}

/// A page of PostgreSQL: any bytes, any size, every fork.
pub fn page(data: &[u8]) -> &'static str {
    let (fork, rest) = choice(data);
    let block = (fork / 4) as u32;
    let fork = [Fork::Main, Fork::Main, Fork::Fsm, Fork::Vm][fork % 4];
    let page = sized(rest);
    let found = dissect_block(&page, fork, block);
    assert_sound(&found.parts, &found.wrong, page.len());
    // Both ways of looking say the same.
    let verdict = check(&page, fork, None);
    assert_eq!(verdict.kind, found.kind);
    assert!(verdict.wrong.iter().all(|w| found.wrong.contains(w)));
    assert!(verdict.items as usize <= page.len() / 4);
    // Each line pointer is said to be wrong for itself, for its tuple, or for an overlap.
    assert!(verdict.wrong.len() <= 2 + 2 * verdict.items as usize, "{} wrong", verdict.wrong.len());
    let sum = checksum(&page, block);
    assert_ne!(sum, 0, "0 stands for no checksum");
    let with_sum = check(&page, fork, Some(block));
    let stored = page.get(8..10).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let disagrees = with_sum.wrong.iter().any(|w| w.what == "pd_checksum");
    assert!(!disagrees || stored != Some(sum), "a right checksum is called wrong");
    found.kind.as_str()
}

/// A block of Oracle.
pub fn oracle(data: &[u8]) -> &'static str {
    let block = sized(data);
    let found = blocks::dissect(&block);
    assert_sound(&found.parts, &found.wrong, block.len());
    if let Some(size) = blocks::block_size(&block) {
        assert!(size.is_power_of_two() && (2048..=32768).contains(&size));
    }
    let _ = blocks::xor(&block);
    found.kind
}

/// A page of Informix; the first byte also says whether it is one of version 15, and whether the length of rows is known.
pub fn informix(data: &[u8]) -> &'static str {
    let (how, rest) = choice(data);
    let (row_size, rest) = number(rest);
    let page = sized(rest);
    let found = match how % 4 {
        0 => chunks::dissect_15(&page),
        1 => chunks::dissect(&page, Some(row_size as u16)),
        _ => chunks::dissect(&page, None),
    };
    assert_sound(&found.parts, &found.wrong, page.len());
    let _ = chunks::cksum(&page);
    assert!(!chunks::kind(row_size as u16).is_empty());
    let _ = chunks::words(row_size as u16);
    found.kind
}

/// The control file of a data directory.
pub fn control(data: &[u8]) -> &'static str {
    let _ = Control::is_older(data);
    let (parts, wrong, _) = describe_control(data);
    assert_sound(&parts, &wrong, data.len());
    match Control::parse(data) {
        Ok(control) => {
            assert!(data.len() >= 256, "of {} bytes", data.len());
            let field = parts.iter().find_map(|p| p.number_of("blcksz"));
            assert!(field.is_none_or(|n| n == u64::from(control.blcksz)), "two readers, two sizes");
            if wrong.is_empty() {
                return "whole";
            }
            assert!(control.blcksz.is_power_of_two() && (1024..=32768).contains(&control.blcksz));
            assert!(control.relseg_size > 0 && control.pg_control_version >= 1201);
            "control"
        }
        Err(wrong) => {
            assert!(wrong.offset <= data.len(), "{wrong}, in {} bytes", data.len());
            if data.len() < 256 {
                "short"
            } else {
                wrong.what
            }
        }
    }
}

/// A map of a catalog's files.
pub fn relmap(data: &[u8]) -> &'static str {
    let (parts, wrong, _) = describe_relmap(data);
    assert_sound(&parts, &wrong, data.len());
    match mappings(data) {
        Ok(found) => {
            assert!(wrong.is_empty() && found.len() <= 64);
            "map"
        }
        Err(wrong) => wrong.what,
    }
}

/// A page of the log of transactions; the first four bytes say which.
pub fn clog(data: &[u8]) -> &'static str {
    let (number, page) = data.split_at(data.len().min(4));
    let number = number.first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
    let parts = describe_clog(page, number);
    assert_sound(&parts, &[], page.len());
    let counted: u64 =
        ["in_progress", "committed", "aborted", "sub_committed"].iter().filter_map(|n| parts[0].number_of(n)).sum();
    assert_eq!(counted, 4 * page.len() as u64);
    if parts[0].field("runs_not_listed").is_some() {
        "many runs"
    } else {
        "all runs"
    }
}

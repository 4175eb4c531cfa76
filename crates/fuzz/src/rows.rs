//! Rows: values of every type, tuples, and whole data directories.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use leadline_rows::tuple::{align, deform, value_at, Storage, Stored};
use leadline_rows::value::{Kind, Text, Type, Types, LONGEST};
use leadline_rows::varlena::{self, Varlena};
use leadline_rows::{Encoding, RowScan};

use crate::choice;
use crate::data_dir;
use crate::folder::Folder;
use crate::types::{storage, SCALARS, UNKNOWN};

/// Types that the input makes.
const OWN: u32 = 20_000;

/// Encodings of each shape: UTF-8, of one byte, of two and three, of four, of any bytes, of none that is known.
static ENCODINGS: LazyLock<Vec<Option<Arc<Encoding>>>> =
    LazyLock::new(|| [6, 8, 1, 4, 0, 99].into_iter().map(|number| Encoding::of(number, 13).map(Arc::new)).collect());

/// A value of a type: that of the first byte, or one made of others. Four bytes each say what the made ones are of; they may be
/// of themselves, which no server has and a damaged catalog may.
pub fn value(data: &[u8]) -> &'static str {
    let (which, rest) = choice(data);
    let (made, mut rest) = choice(rest);
    let made = made % 9;
    let varlena = Storage { attlen: -1, attalign: b'i' };
    let encoding = ENCODINGS[which / SCALARS.len() % ENCODINGS.len()].clone();
    let mut types = Types { encoding, ..Types::default() };
    let mut add = |oid, storage, kind| {
        Arc::make_mut(&mut types.by_oid).insert(oid, Type { name: oid.to_string(), storage, kind })
    };
    for oid in SCALARS {
        add(oid, storage(oid), Kind::Scalar);
    }
    add(UNKNOWN, Storage { attlen: -2, attalign: b'c' }, Kind::Scalar);
    let any = |b: u8| match usize::from(b) {
        n if n < SCALARS.len() => SCALARS[n],
        n => OWN + (n % 10) as u32,
    };
    for i in 0..made {
        let (Some([kind, a, b, c]), after) = (rest.first_chunk(), rest.get(4..).unwrap_or_default()) else { break };
        rest = after;
        let of = any(*a);
        let field = |b: u8| (any(b), if b.is_multiple_of(2) { varlena } else { Storage { attlen: 4, attalign: b'i' } });
        let kind = match kind % 6 {
            0 => Kind::Array(of),
            1 => Kind::Enum(HashMap::from([(1, "label".into()), (u32::from(*b), "a \"b\"".into())])),
            2 => Kind::Domain(of),
            3 => Kind::Composite(vec![field(*a), field(*b), field(*c)]),
            4 => Kind::Range(of),
            _ => Kind::Multirange(of),
        };
        add(OWN + i as u32, varlena, kind);
    }
    let oid = if made > 0 { OWN + (which % made) as u32 } else { SCALARS[which % SCALARS.len()] };
    let mut out = Text::new();
    write!(out, "before").expect("memory takes all");
    types.print(types.printer(oid), rest, &mut out);
    let out = String::from_utf8(out.as_bytes().to_vec()).expect("text is UTF-8");
    let text = out.strip_prefix("before").expect("what was there before");
    assert!(text.len() <= LONGEST.max(2 + 2 * rest.len()), "{} bytes of text from {}", text.len(), rest.len());
    let known = types.is_known(oid);
    let _ = types.base(oid);
    assert!(known || made > 0, "{oid} is not known");
    match (oid, text) {
        (_, text) if oid != 17 && text.starts_with("\\x") => "hex",
        (OWN.., _) => "made",
        _ => "text",
    }
}

/// A tuple of any attributes, and the values of variable width that it begins with.
pub fn tuple(data: &[u8]) -> &'static str {
    let (how, rest) = choice(data);
    let (natts, rest) = choice(rest);
    let (storages, rest) = rest.split_at(rest.len().min(2 * (how % 8)));
    let storage = |b: &[u8]| Storage { attlen: i16::from(b[0] as i8), attalign: b"csid"[usize::from(b[1] % 4)] };
    let storages: Vec<Storage> = storages.chunks_exact(2).map(storage).collect();
    let (bitmap, body) = rest.split_at(rest.len().min(how / 8 % 4));
    let mut values = Vec::new();
    let whole = deform(body, (!bitmap.is_empty()).then_some(bitmap), natts, &storages, &mut values).is_some();
    assert!(values.len() <= storages.len() && (!whole || values.len() == storages.len()));
    let stored = |value: &Stored<'_>| match value {
        Stored::Fixed(b) => b.len(),
        Stored::Varlena(Varlena::Plain(b) | Varlena::Compressed(_, _, b)) => 1 + b.len(),
        Stored::Varlena(Varlena::External(_)) => 18,
        Stored::Null | Stored::Missing => 0,
    };
    assert!(values.iter().map(stored).sum::<usize>() <= body.len(), "values overlap");
    for storage in &storages {
        if let Some((_, end)) = value_at(body, 0, *storage) {
            assert!(end <= body.len() && (end > 0 || storage.attlen == 0), "a value of nothing: {storage:?}");
        }
        assert!((align(3, storage.attalign) - 3) < 8);
    }
    let mut reached = if whole { "whole" } else { "cut" };
    for value in &values {
        let Stored::Varlena(value) = value else { continue };
        match value {
            Varlena::Compressed(size, method, packed) => {
                reached = "not to unpack";
                if let Some(out) = varlena::unpack(*size, *method, packed) {
                    assert_eq!(out.len(), *size);
                    reached = if *method == 0 { "pglz" } else { "lz4" };
                }
            }
            Varlena::External(external) => {
                assert!(external.stored() < 1 << 30);
                reached = if external.is_compressed() { "outside, packed" } else { "outside" };
            }
            Varlena::Plain(_) => {}
        }
    }
    if let Some((inner, len)) = varlena::inner(body) {
        assert!(len <= body.len() && inner.len() <= 280 * body.len());
    }
    reached
}

/// A data directory, some bytes of which are others: the catalog, the map of its files, the log of transactions, a table and
/// its toast table. The input says which bytes, and what the table's columns and rows are.
pub fn rows(data: &[u8]) -> &'static str {
    let (major, rest) = choice(data);
    let (edits, rest) = choice(rest);
    let (edits, table) = rest.split_at(rest.len().min(4 * (edits % 16)));
    let mut files = data_dir::files(13 + major as u32 % 6, table);
    data_dir::damage(&mut files, edits);
    let folder = Folder::with(files.iter().map(|(name, bytes)| (*name, &bytes[..])));
    let dead = major >= 128;
    let mut scan = match RowScan::open(&folder.0, Some("t"), Some("d"), dead) {
        Ok(scan) => scan,
        Err(e) => {
            assert!(!e.message.is_empty() && !e.kind.as_str().is_empty(), "{e}");
            return e.kind.as_str();
        }
    };
    let (mut count, mut before) = (0, 0);
    loop {
        match scan.next_rows(1000) {
            Ok(Some(rows)) => {
                for row in &rows {
                    assert_eq!(row.values.len(), scan.columns().len());
                    assert!(row.values.iter().flatten().all(|v| v.len() <= LONGEST + 64));
                    assert!(dead || row.place.status.is_visible());
                }
                count += rows.len();
            }
            Ok(None) => break,
            Err(e) => {
                assert!(!e.message.is_empty() && !e.place.is_empty(), "{e}");
                return "unreadable";
            }
        }
        let (block, blocks) = scan.progress();
        assert!(block > before && block <= blocks, "no progress at block {block}");
        before = block;
    }
    // A line pointer takes four bytes.
    let most = data_dir::BLOCK / 4 * scan.progress().1 as usize;
    assert!(count + scan.unread.rows as usize <= most, "{count} rows");
    match (count, scan.unread.pages + scan.unread.rows + scan.unread.values) {
        (0, 0) => "no rows",
        (_, 0) => "rows",
        _ => "unread",
    }
}

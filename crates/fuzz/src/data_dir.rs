//! A data directory in memory, as small as one can be that rows are read from.
//!
//! One database (`d`) with one table (`t`) and its toast table, and with indexes where they are asked for. Catalogs have only the
//! columns that are asked for, since all but `pg_attribute` are read through `pg_attribute`; that one is laid out as in its major.

use std::sync::OnceLock;

use crate::types::{storage, SCALARS, UNKNOWN};
use crate::{choice, number};

/// Bytes of a page: the least there can be.
pub(crate) const BLOCK: usize = 1024;
const LAYOUT: &str = include_str!("../../postgres/rows/data/pg_attribute.csv");
const TABLE: u32 = 16_384;
const TOAST: u32 = 16_387;
const COMPOSITE: u32 = 16_390;
/// A btree, a hash index and a GIN index.
const INDEXES: [Index; 3] = [
    Index { name: "b", oid: 16_410, am: 403, natts: 1, classes: [1978, 0, 0] },
    Index { name: "h", oid: 16_411, am: 405, natts: 1, classes: [1978, 0, 0] },
    Index { name: "g", oid: 16_412, am: 2742, natts: 1, classes: [1978, 0, 0] },
];
/// The first support functions that are known of SP-GiST and of BRIN, and one that is not: here also oids of a class and its family.
pub(crate) const FIRST_FUNCTIONS: [u32; 12] =
    [4018, 4023, 4027, 3469, 3795, 5010, 5012, 3383, 4105, 4591, 4616, UNKNOWN];
/// `anyrange`, and what bloom and minmax_multi keep of a column.
const OF_CLASSES: [u32; 3] = [3831, 4600, 4601];

/// An index of the first columns of the table. classes: theirs.
struct Index {
    name: &'static str,
    oid: u32,
    am: u32,
    natts: usize,
    classes: [u32; 3],
}

/// A column of the table: type, length, alignment, bits of [`attribute`].
type OwnColumn = (u32, i16, u8, u8);
/// A column: name, type, length, alignment.
type Column = (&'static str, u32, i16, u8);

const OID: (u32, i16, u8) = (26, 4, b'i');

const fn oid(name: &'static str) -> Column {
    (name, OID.0, OID.1, OID.2)
}
const fn name(name: &'static str) -> Column {
    (name, 19, 64, b'c')
}
const fn byte(name: &'static str) -> Column {
    (name, 18, 1, b'c')
}

const DATABASES: &[Column] =
    &[oid("oid"), name("datname"), byte("datistemplate"), oid("dattablespace"), oid("encoding"), oid("datconnlimit")];
const CLASSES: &[Column] = &[
    oid("oid"),
    name("relname"),
    oid("relnamespace"),
    oid("relam"),
    oid("relfilenode"),
    oid("reltablespace"),
    byte("relpersistence"),
    byte("relkind"),
    ("relnatts", 21, 2, b's'),
    oid("relpages"),
];
const SCHEMAS: &[Column] = &[oid("oid"), name("nspname")];
const TYPES: &[Column] = &[
    oid("oid"),
    name("typname"),
    ("typlen", 21, 2, b's'),
    byte("typtype"),
    byte("typcategory"),
    oid("typrelid"),
    oid("typelem"),
    byte("typalign"),
    oid("typbasetype"),
];
const ENUMS: &[Column] = &[oid("oid"), oid("enumtypid"), name("enumlabel")];
const RANGES: &[Column] = &[oid("rngtypid"), oid("rngsubtype"), oid("rngmultitypid")];
/// The vectors have three elements behind 20 bytes, as stored without the length of all: here they have one width.
const INDEX: &[Column] = &[
    oid("indexrelid"),
    oid("indrelid"),
    ("indnatts", 21, 2, b's'),
    ("indnkeyatts", 21, 2, b's'),
    ("indclass", 30, 32, b'i'),
    ("indcollation", 30, 32, b'i'),
];
const OPCLASSES: &[Column] = &[oid("oid"), oid("opcfamily"), oid("opcintype")];
const PROCS: &[Column] =
    &[oid("amprocfamily"), oid("amproclefttype"), oid("amprocrighttype"), ("amprocnum", 21, 2, b's'), oid("amproc")];
const COLLATIONS: &[Column] = &[oid("oid"), name("collname"), byte("collisdeterministic")];

/// Types that are made of others: oid, typtype, typcategory, typrelid, typelem, typbasetype.
const MADE: [(u32, u8, u8, u32, u32, u32); 7] = [
    (1009, b'b', b'A', 0, 25, 0),
    (1231, b'b', b'A', 0, 1700, 0),
    (3904, b'r', b'R', 0, 0, 0),
    (4451, b'm', b'R', 0, 0, 0),
    (16_400, b'c', b'C', COMPOSITE, 0, 0),
    (16_401, b'd', b'S', 0, 0, 25),
    (16_402, b'e', b'E', 0, 0, 0),
];

/// Name and content of each file.
pub(crate) type Files = Vec<(&'static str, Vec<u8>)>;

/// The files of a data directory. `table` says what columns the table has and what rows.
pub(crate) fn files(major: u32, table: &[u8]) -> Files {
    let (columns, rows) = own_columns(table);
    made(major, &columns, heap(own_rows(rows), columns.len() as u16), &[])
}

/// The same where the table's pages are any bytes: all that follows its columns.
pub(crate) fn files_with_pages(major: u32, table: &[u8]) -> Files {
    let (columns, pages) = own_columns(table);
    made(major, &columns, pages.to_vec(), &[])
}

/// A table of those columns without rows, and an index on them; the file of the index, and what follows the columns.
pub(crate) fn files_with_index(major: u32, table: &[u8], am: u32, classes: [u32; 3]) -> (Files, &'static str, &[u8]) {
    let (columns, rest) = own_columns(table);
    let index = Index { name: "i", oid: 16_413, am, natts: columns.len(), classes };
    let name = "base/5/16413";
    let mut files = made(major, &columns, Vec::new(), &[index]);
    files.push((name, Vec::new()));
    (files, name, rest)
}

/// The file of the table.
pub(crate) const TABLE_FILE: &str = "base/5/16384";

/// The same with indexes; the first four bytes of each row are of its header: `t_infomask`, attributes, which of them are there.
pub(crate) fn files_with_indexes(major: u32, table: &[u8]) -> Files {
    let (columns, rows) = own_columns(table);
    let rows = own_rows(rows).into_iter().filter_map(|row| {
        let (head, data) = row.split_first_chunk::<4>()?;
        let mask = u16::from_le_bytes([head[0], head[1]]);
        Some((Header { mask, natts: u16::from(head[2]), bitmap: head[3] }, data.to_vec()))
    });
    let mut files = made(major, &columns, pages(rows), &INDEXES);
    files.extend(index_pages());
    files
}

/// Puts other bytes into files, or cuts them: of each four bytes the first says which file, then where, then what.
pub(crate) fn damage(files: &mut Files, edits: &[u8]) {
    let count = files.len();
    for edit in edits.chunks_exact(4) {
        let (_, file) = &mut files[usize::from(edit[0]) % count];
        let (at, _) = number(&edit[1..]);
        if edit[0] >= 200 {
            file.truncate(at);
        } else if !file.is_empty() {
            let at = at % file.len();
            file[at] = edit[3];
        }
    }
}

fn made(major: u32, columns: &[OwnColumn], table: Vec<u8>, indexes: &[Index]) -> Files {
    let own: Vec<Column> = columns.iter().map(|c| ("c", c.0, c.1, c.2)).collect();
    let composite = [("a", 23, 4, b'i'), ("b", 25, -1, b'i'), ("c", 1009, -1, b'i')];
    let mut described: Vec<(u32, &[Column])> = vec![
        (1262, DATABASES),
        (1259, CLASSES),
        (2615, SCHEMAS),
        (1247, TYPES),
        (3501, ENUMS),
        (3541, RANGES),
        (TABLE, &own),
        (COMPOSITE, &composite),
    ];
    if !indexes.is_empty() {
        described.extend(indexes.iter().map(|index| (index.oid, &own[..own.len().min(index.natts)])));
        described.extend([(2610, INDEX), (2616, OPCLASSES), (2603, PROCS), (3456, COLLATIONS)]);
    }
    let bits = |relid: u32, i: usize| if relid == TABLE { columns[i].3 } else { 0 };
    let attributes = described.iter().flat_map(|(relid, columns)| {
        columns.iter().enumerate().map(|(i, column)| attribute(major, *relid, i as u32 + 1, column, bits(*relid, i)))
    });
    let natts =
        |oid: u32| described.iter().find(|(relid, _)| *relid == oid).map_or(0, |(_, columns)| columns.len() as u8);
    let relation = |oid: u32, name: &str, file: u32, kind: u8, am: u32| {
        let natts = [natts(oid), 0];
        row(CLASSES, &[&le(oid), name.as_bytes(), &le(11), &le(am), &le(file), &le(0), b"p", &[kind], &natts, &le(0)])
    };
    let class = |oid, name, file, kind| relation(oid, name, file, kind, 2);
    let mut classes = vec![
        class(1259, "pg_class", 0, b'r'),
        class(1247, "pg_type", 1247, b'r'),
        class(1249, "pg_attribute", 0, b'r'),
        class(2615, "pg_namespace", 2615, b'r'),
        class(3501, "pg_enum", 3501, b'r'),
        class(3541, "pg_range", 3541, b'r'),
        class(TABLE, "t", TABLE, b'r'),
        class(TOAST, "pg_toast_16384", TOAST, b't'),
        class(COMPOSITE, "pair", 0, b'c'),
    ];
    if !indexes.is_empty() {
        let names = ["pg_index", "pg_opclass", "pg_amproc", "pg_collation"];
        classes.extend([2610, 2616, 2603, 3456].into_iter().zip(names).map(|(oid, name)| class(oid, name, oid, b'r')));
        classes.extend(indexes.iter().map(|index| relation(index.oid, index.name, index.oid, b'i', index.am)));
    }
    let scalar = |oid: &u32| (*oid, b'b', b'X', 0, 0, 0);
    let types =
        SCALARS.iter().chain(&OF_CLASSES).map(scalar).chain(MADE).map(|(oid, typtype, category, relid, elem, base)| {
            let storage = storage(oid);
            let (name, align) = (oid.to_string(), [storage.attalign]);
            let len = (storage.attlen as u16).to_le_bytes();
            let (words, kinds) = ([relid, elem, base].map(le), [[typtype], [category]]);
            let fields: [&[u8]; 9] =
                [&le(oid), name.as_bytes(), &len, &kinds[0], &kinds[1], &words[0], &words[1], &align, &words[2]];
            row(TYPES, &fields)
        });
    let heaps: [(&str, Vec<u8>); 9] = [
        ("global/1262", heap([row(DATABASES, &[&le(5), b"d", &[0], &le(1663), &le(6), &le(u32::MAX)])], 6)),
        ("base/5/1249", heap(attributes, 20)),
        ("base/5/1259", heap(classes, 10)),
        ("base/5/1247", heap(types, 9)),
        ("base/5/2615", heap([row(SCHEMAS, &[&le(11), b"public"])], 2)),
        ("base/5/3501", heap([row(ENUMS, &[&le(16_403), &le(16_402), b"label"])], 3)),
        ("base/5/3541", heap([row(RANGES, &[&le(3904), &le(23), &le(4451)])], 3)),
        (TABLE_FILE, table),
        ("base/5/16387", heap(chunks(), 3)),
    ];
    let mut all = vec![
        ("PG_VERSION", format!("{major}\n").into_bytes()),
        ("global/pg_control", control(major)),
        ("global/pg_filenode.map", map(major, &[(1262, 1262)])),
        ("base/5/pg_filenode.map", map(major, &[(1259, 1259), (1249, 1249)])),
        ("pg_xact/0000", vec![0x66; 256]),
        ("pg_multixact/offsets/0000", vec![1; 256]),
    ];
    all.extend(heaps);
    if !indexes.is_empty() {
        all.extend(index_catalogs(indexes));
    }
    all
}

/// The catalogs that say what the indexes are.
fn index_catalogs(indexes: &[Index]) -> [(&'static str, Vec<u8>); 4] {
    let vector = |oids: [u32; 3]| [&[0; 20][..], &oids.map(le).concat()].concat();
    let index = |index: &Index| {
        let natts = [index.natts as u8, 0];
        row(INDEX, &[&le(index.oid), &le(TABLE), &natts, &natts, &vector(index.classes), &vector([100; 3])])
    };
    let class = |oid: u32, family: u32| row(OPCLASSES, &[&le(oid), &le(family), &le(23)]);
    let function =
        |family: u32, number: u8, oid: u32| row(PROCS, &[&le(family), &le(23), &le(23), &[number, 0], &le(oid)]);
    let classes = FIRST_FUNCTIONS.iter().map(|oid| class(*oid, *oid)).chain([class(1978, 1976)]);
    let functions = FIRST_FUNCTIONS.iter().map(|oid| function(*oid, 1, *oid)).chain([function(1976, 4, 5051)]);
    [
        ("base/5/2610", heap(indexes.iter().map(index), 6)),
        ("base/5/2616", heap(classes, 3)),
        ("base/5/2603", heap(functions, 5)),
        ("base/5/3456", heap([row(COLLATIONS, &[&le(100), b"default", &[1]])], 3)),
    ]
}

/// The pages of [`INDEXES`], each as the server writes it now.
fn index_pages() -> [(&'static str, Vec<u8>); 3] {
    let meta = |special: usize, words: &[(usize, u32)]| {
        let mut page = vec![0; BLOCK];
        for (at, n) in [(12, 88), (14, BLOCK - special), (16, BLOCK - special), (18, BLOCK | 4)] {
            page[at..at + 2].copy_from_slice(&(n as u16).to_le_bytes());
        }
        for (at, word) in words {
            page[*at..at + 4].copy_from_slice(&le(*word));
        }
        page
    };
    let (gin_meta, gin_leaf) = (meta(8, &[(BLOCK - 4, 8 << 16), (72, 2)]), meta(8, &[(BLOCK - 4, 0x83 << 16)]));
    [
        ("base/5/16410", meta(16, &[(24, 0x0005_3162), (28, 4), (64, 1)])),
        ("base/5/16411", meta(16, &[(24, 0x0644_0640), (28, 4)])),
        ("base/5/16412", [gin_meta, gin_leaf].concat()),
    ]
}

fn le(n: u32) -> [u8; 4] {
    n.to_le_bytes()
}

/// The columns that the input chooses, and what follows them.
fn own_columns(table: &[u8]) -> (Vec<OwnColumn>, &[u8]) {
    let (count, rest) = choice(table);
    let (chosen, rest) = rest.split_at(rest.len().min(1 + count % 6));
    let column = |b: &u8| {
        let types = SCALARS.len() + MADE.len();
        let n = usize::from(*b) % types;
        let oid = SCALARS.get(n).copied().unwrap_or_else(|| MADE[n - SCALARS.len()].0);
        let storage = storage(oid);
        (oid, storage.attlen, storage.attalign, b / types as u8)
    };
    (chosen.iter().map(column).collect(), rest)
}

/// The data of each row: a length, then bytes as they are.
fn own_rows(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    while let Some((len, after)) = rest.split_first() {
        let (row, after) = after.split_at(after.len().min((*len).into()));
        rows.push(row.to_vec());
        rest = after;
    }
    rows
}

/// A row's data: each value where its alignment puts it, filled up with zeros to its length.
fn row(columns: &[Column], values: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for ((_, _, len, align), value) in columns.iter().zip(values) {
        out.resize(leadline_rows::tuple::align(out.len(), *align), 0);
        let end = out.len() + *len as usize;
        out.extend_from_slice(value);
        out.resize(end, 0);
    }
    out
}

/// The columns of pg_attribute that are never null.
fn own_layout(major: u32) -> &'static [Column] {
    static LAYOUTS: OnceLock<Vec<Vec<Column>>> = OnceLock::new();
    let of = |major: i32| {
        let mut columns: Vec<(i32, Column)> = Vec::new();
        for line in LAYOUT.lines().skip(1) {
            let f: Vec<&'static str> = line.split(',').collect();
            let number = |i: usize| f[i].parse::<i32>().expect("a number of pg_attribute.csv");
            if (number(0)..=number(1)).contains(&major) && number(2) <= 20 {
                columns.push((number(2), (f[3], number(4) as u32, number(5) as i16, f[6].as_bytes()[0])));
            }
        }
        columns.sort_by_key(|c| c.0);
        columns.into_iter().map(|c| c.1).collect()
    };
    &LAYOUTS.get_or_init(|| (13..=18).map(of).collect())[major as usize - 13]
}

/// A row of pg_attribute, without the last columns, which are null here. `bits`: 1 for a dropped column, 2 and 4 for one that asks for
/// pglz or lz4.
fn attribute(major: u32, relid: u32, attnum: u32, (name, typid, len, align): &Column, bits: u8) -> Vec<u8> {
    let columns = own_layout(major);
    let names = format!("{name}{attnum}");
    let name = if *name == "c" { names.as_bytes() } else { name.as_bytes() };
    let values: Vec<Vec<u8>> = columns
        .iter()
        .map(|column| match column.0 {
            "attrelid" => le(relid).to_vec(),
            "attname" => name.to_vec(),
            "atttypid" => le(*typid).to_vec(),
            "attnum" => (attnum as u16).to_le_bytes().to_vec(),
            "attlen" => (*len as u16).to_le_bytes().to_vec(),
            "attalign" => vec![*align],
            "attisdropped" => vec![bits & 1],
            "attcompression" => vec![[0, b'p', b'l', 0][usize::from(bits >> 1 & 3)]],
            _ => vec![],
        })
        .collect();
    row(columns, &values.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// What a row's header says.
struct Header {
    mask: u16,
    natts: u16,
    bitmap: u8,
}

/// Pages with these rows, all frozen.
pub(crate) fn heap(rows: impl IntoIterator<Item = Vec<u8>>, natts: u16) -> Vec<u8> {
    pages(rows.into_iter().map(|data| (Header { mask: 0x0b00, natts, bitmap: 0 }, data)))
}

/// Pages with these rows.
fn pages(rows: impl IntoIterator<Item = (Header, Vec<u8>)>) -> Vec<u8> {
    let mut pages = Vec::new();
    let mut page = vec![0; BLOCK];
    let (mut lower, mut upper) = (24, BLOCK);
    let mut close = |page: &mut Vec<u8>, lower: usize, upper: usize| {
        for (at, n) in [(12, lower), (14, upper), (16, BLOCK), (18, BLOCK | 4)] {
            page[at..at + 2].copy_from_slice(&(n as u16).to_le_bytes());
        }
        pages.append(page);
    };
    for (header, data) in rows {
        let len = 24 + data.len();
        let room = len.next_multiple_of(8);
        if upper < lower + 4 + room {
            close(&mut page, lower, upper);
            (page, lower, upper) = (vec![0; BLOCK], 24, BLOCK);
        }
        upper -= room;
        page[lower..lower + 4].copy_from_slice(&(upper as u32 | 1 << 15 | (len as u32) << 17).to_le_bytes());
        lower += 4;
        let tuple = &mut page[upper..upper + len];
        tuple[0] = 3;
        tuple[18..20].copy_from_slice(&header.natts.to_le_bytes());
        tuple[20..22].copy_from_slice(&header.mask.to_le_bytes());
        (tuple[22], tuple[23]) = (24, header.bitmap);
        tuple[24..].copy_from_slice(&data);
    }
    close(&mut page, lower, upper);
    pages
}

/// A value of two pieces, and one of a piece that is packed.
fn chunks() -> Vec<Vec<u8>> {
    let chunk = |id: u32, seq: u32, data: &[u8]| {
        let len = (data.len() as u32 + 4) << 2;
        [&le(id)[..], &le(seq), &le(len), data].concat()
    };
    let packed = [&le(300)[..], &[2, b'x', 0x0f, 1, 255, 0x0f, 1, 8]].concat();
    vec![chunk(7, 0, &[b'a'; 200]), chunk(7, 1, &[b'b'; 100]), chunk(8, 0, &packed)]
}

fn control(major: u32) -> Vec<u8> {
    let mut file = vec![0; 296];
    let version = match major {
        ..=16 => 1300,
        17 => 1700,
        _ => 1800,
    };
    for (at, value) in [(8, version), (64, 800), (80, 4), (216, BLOCK as u32), (220, 131_072)] {
        file[at..at + 4].copy_from_slice(&le(value));
    }
    file
}

/// Maps of both lengths, with none, some and all places taken.
pub(crate) fn maps() -> Vec<Vec<u8>> {
    let mappings: Vec<_> = (0..62).map(|n| (1200 + n, 16_000 + n)).collect();
    [0, 2, 62].iter().flat_map(|n| [13, 18].map(|major| map(major, &mappings[..*n]))).collect()
}

fn map(major: u32, mappings: &[(u32, u32)]) -> Vec<u8> {
    let places = if major < 16 { 62 } else { 64 };
    let mut map = vec![0; 8 + 8 * places];
    map[..4].copy_from_slice(&le(0x0059_2717));
    map[4..8].copy_from_slice(&le(mappings.len() as u32));
    for (i, (oid, file)) in mappings.iter().enumerate() {
        map[8 + 8 * i..12 + 8 * i].copy_from_slice(&le(*oid));
        map[12 + 8 * i..16 + 8 * i].copy_from_slice(&le(*file));
    }
    let sum = crc32c::crc32c(&map);
    map.extend(le(sum));
    map.resize(if major < 16 { 512 } else { 524 }, 0);
    map
}

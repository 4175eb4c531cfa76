//! Inputs to begin with, for each target: from testdata, and made so that every branch is near.

use std::path::Path;

use leadline_page::postgres::DEFAULT_BLOCK_SIZE;
use leadline_testdata::{noise, plausible, put, Random};

use crate::types::{column, SCALARS};
use crate::{backups, data_dir, page_seeds, wire_seeds as wire, TARGETS};

/// The seeds of a target, the same at every call.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    assert!(TARGETS.iter().any(|(name, _)| *name == target), "there is no target {target}");
    let mut random = Random(1);
    match target {
        "page" => pages(&mut random),
        "oracle" => files("oracle", "block").iter().map(|block| [&[3], &block[..]].concat()).collect(),
        "control" => controls(),
        "wal_segment" => segments(&mut random),
        "wal_record" => records(&mut random),
        "wal_image" => images(),
        "statement" => STATEMENTS.iter().map(|s| s.as_bytes().to_vec()).collect(),
        "informix" => chunks(&mut random),
        "value" => values(&mut random),
        "tuple" => tuples(&mut random),
        "rows" => tables(&mut random),
        "page_values" => page_seeds::typed_pages(&mut random),
        "rows_parquet" => page_seeds::heap_pages(&mut random),
        "pending" => old_forms(&mut random),
        "redo" => crate::redo::seeds(&mut random),
        "elf" => vec![elf(&[]), elf(&[b'n'; 64 << 10]), b"\x7fELF".to_vec()],
        "relmap" => data_dir::maps(),
        "clog" => (0..16).map(|n| [&[n, 0, 0, 0], &noise(&mut random, 1024)[..]].concat()).collect(),
        "packets" => wire::files(&mut random),
        "conversation" => wire::conversations(),
        "tar" => backups::tars(&mut random),
        "manifest" => backups::manifests(&mut random),
        "conditions" => chosen(&mut random),
        _ => (0..16).map(|_| noise(&mut random, 64)).collect(),
    }
}

/// A variant of an input: some bytes are others, or the input is cut, or a piece of it is there twice.
pub fn mutate(random: &mut Random, input: &[u8]) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=random.below(4) {
        if out.is_empty() {
            return noise(random, 40);
        }
        let at = random.below(out.len() as u64) as usize;
        match random.below(8) {
            0 => out.truncate(at),
            1 => {
                let piece = out[at..].iter().take(64).copied().collect::<Vec<_>>();
                out.splice(at..at, piece);
            }
            2 => out[at] = [0, 0xFF, 0x7F, 0x80][random.below(4) as usize],
            // Headers are where it matters.
            3 => {
                let at = random.below(out.len().min(40) as u64) as usize;
                out[at] = random.next() as u8;
            }
            _ => out[at] ^= 1 << random.below(8),
        }
    }
    out
}

/// Files of testdata with this ending.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder);
    let mut paths = Vec::new();
    for version in std::fs::read_dir(folder).expect("testdata") {
        for file in std::fs::read_dir(version.expect("testdata").path()).expect("testdata") {
            let path = file.expect("testdata").path();
            if path.extension().is_some_and(|e| e == ending) {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("testdata")).collect()
}

fn pages(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = files("postgres", "page").iter().map(|page| [&[0, 3], &page[..]].concat()).collect();
    for (n, special) in specials().iter().enumerate() {
        let choice = [0, 3, 5][n % 3];
        all.push([&[0, choice as u8], &plausible(random, 1024 << choice, special)[..]].concat());
    }
    for fork in 0..4 {
        all.push([&[fork, 0], &noise(random, 1024)[..]].concat());
        all.push(vec![fork, 0]);
    }
    all
}

/// A special area for each kind of page, by its last bytes.
fn specials() -> Vec<Vec<u8>> {
    let mut all = vec![vec![]];
    for flags in [0u16, 1, 2, 4, 8, 0x104, 0x80, 0x83, 0x10, 0x11] {
        for id in [0u16, 0xff80, 0xff81] {
            let mut b = vec![0; 12];
            b.extend(flags.to_le_bytes());
            b.extend(id.to_le_bytes());
            all.push(b);
        }
        all.push([vec![0, 0, 0, 0, 9, 0], flags.to_le_bytes().to_vec()].concat()); // gin
        all.push([flags.to_le_bytes().to_vec(), vec![0, 0, 0, 0, 0x82, 0xff]].concat());
        // spgist
    }
    all.extend([0x91u8, 0x92, 0x93].map(|t| vec![0, 0, 0, 0, 0, 0, t, 0xf0]));
    all.push(vec![0x17, 0x17, 0, 0, 0, 0, 0, 0]);
    all
}

fn controls() -> Vec<Vec<u8>> {
    let file = |version: u32| {
        let mut file = vec![0; 512];
        for (at, value) in [(8, version), (216, DEFAULT_BLOCK_SIZE), (220, 131_072), (252, 1)] {
            file[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let crc_at = if version == 1800 { 292 } else { 288 };
        let crc = crc32c::crc32c(&file[..crc_at]);
        file[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        file
    };
    [1100, 1300, 1700, 1800, 1903].map(file).to_vec()
}

/// Every resource manager and operation, in the log of every major.
fn segments(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = vec![vec![0, 5, 0], vec![1, 5, 0], vec![18, 0, 255], vec![17, 3, 254, 0, 0]];
    for major in 0..6 {
        for suffix in [0, 4, 8, 12] {
            all.push([vec![suffix, major, 0], noise(random, 80)].concat());
        }
        for rmid in (0..22u8).chain([128]) {
            let mut input = vec![18, major, 0];
            for opcode in 0..16u8 {
                let length = 20 + random.below(60) as usize;
                let body = noise(random, length);
                input.extend([rmid, opcode << 4, opcode, body.len() as u8]);
                input.extend(body);
            }
            all.push(input);
        }
    }
    all
}

/// `random` decides what the records say; the operations are all there are.
fn records(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for how in 0..12 {
        for rmid in (0..22u8).chain([128]) {
            for opcode in 0..16u8 {
                let length = random.below(60) as u8;
                let body = noise(random, 120);
                all.push([vec![how, rmid, opcode << 4, length, 0], body].concat());
            }
        }
    }
    all
}

/// A page of zeros in each way of storing it.
fn images() -> Vec<Vec<u8>> {
    // A literal, then references to the byte before: 273 bytes each.
    let mut pglz = Vec::new();
    let references = [[0x0F, 1, 255].as_slice()].repeat(30);
    let items: Vec<&[u8]> = [&[0][..]].into_iter().chain(references).chain([&[0][..]]).collect();
    for (n, group) in items.chunks(8).enumerate() {
        let mut control = 0xFF;
        if n == 0 {
            control = 0xFE;
        } else if n == 3 {
            control = 0x7F;
        }
        pglz.push(control);
        pglz.extend(group.concat());
    }
    let mut lz4 = vec![0x1F, 0, 1, 0];
    lz4.extend([255; 32]);
    lz4.extend([7, 0x50, 0, 0, 0, 0, 0]); // all but the last five bytes
    let zstd = [&[0x28, 0xB5, 0x2F, 0xFD, 0x60][..], &[0x00, 0x1F], &[0x03, 0x00, 0x01], &[0]].concat();
    let mut all = vec![[&[0, 0, 0x20], &pglz[..]].concat()];
    for (how, stored) in [(1, pglz), (2, lz4), (3, zstd)] {
        all.push([&[how, 0, 0], &stored[..]].concat());
        all.push([&[how, 0, 1], &stored[..]].concat());
    }
    all
}

const STATEMENTS: [&str; 12] = [
    "",
    "SELECT abalance FROM pgbench_accounts WHERE aid = 4711;",
    "insert into t1 (a) values ('it''s', -2.5e-3), (1, 'b'), (E'\\'', $1)",
    "select * from t where a in (1, 2,3) and b = $2 and c = $65535",
    "select a-1, col2 from \"T 1\" -- why\n where x=E'\\'x' /* a /* b */ */ ;",
    "select $$body 'x'$$, $f$ y $f$, $f$ $$ $f$",
    "alter role r password 'secret'",
    "select 'cut by the serv",
    "select /* cut",
    "values (1), (2), ('a', b), (4)",
    "select U&'d\\0061t\\+000061', x'1f', b'01', n'a', .5, 1.e+9, a[1]-2, -3",
    "  \n select\t1  ",
];

/// Pages of Informix of each type, with slots that mostly make sense.
fn chunks(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for flags in (0..16u16).chain([0x10, 0x20, 0x40, 0x80, 0x90, 0x1000, 0x8080]) {
        let mut page: Vec<u8> = (0..2048).map(|_| random.next() as u8).collect();
        let slots = random.below(9) as u16;
        let rows = 24 + 40 * slots;
        for (at, n) in [(8, slots), (10, flags), (12, rows), (14, 2044 - 4 * slots - rows)] {
            put(&mut page, at, n);
        }
        for slot in 0..slots {
            put(&mut page, usize::from(2040 - 4 * slot), 24 + 40 * slot);
            put(&mut page, usize::from(2042 - 4 * slot), 40);
        }
        let sum = leadline_page::informix::cksum(&page) ^ u16::from_le_bytes([page[6], page[7]]);
        put(&mut page, 6, sum);
        for how in 0..3 {
            all.push([&[how, 40, 0, 1], &page[..]].concat());
        }
    }
    all.push(vec![2, 0, 0, 1]);
    all
}

/// A value of each type, and of types made of others.
fn values(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let i32s = |all: &[i32]| all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    for which in 0..SCALARS.len() as u8 {
        for length in [0, 1, 2, 4, 8, 12, 20, 64] {
            all.push([&[which, 0], &noise(random, length)[..]].concat());
        }
        all.push([&[which, 0, 1], &[0; 40][..]].concat());
    }
    // Arrays, ranges, multiranges and composites of int4, and of each other.
    let array = i32s(&[1, 0, 23, 2, 1, 7, 8]);
    let jsonb = i32s(&[0x4000_0002, 0x1000_000c, 3, 0x0000_8000, 0x002a, 0x6100]);
    for (kind, body) in [
        (0u8, array.clone()),
        (0, i32s(&[2, 0, 23, 2, 1, 1, 5, 1, 2])),
        (0, i32s(&[1, 28, 25, 2, 1, 3, 0x6107])),
        (2, array),
        (3, [i32s(&[0, 0, 0, 0x0003_0000]), vec![0, 8, 24, 0], i32s(&[0, 1, 2, 3])].concat()),
        (4, [i32s(&[3904, 1, 5]), vec![2]].concat()),
        (5, [i32s(&[4451, 2, 8]), vec![2, 6, 0, 0], i32s(&[1, 2, 3, 4])].concat()),
        (1, i32s(&[1])),
        (0, jsonb),
    ] {
        for of in [7u8, 8, 36, 44, 45, 46] {
            all.push([&[0, 1, kind, of, of, of], &body[..]].concat());
            all.push([&[0, 3, kind, of, of, of, 3, 44, 45, of, kind, 45, 46, 44], &body[..]].concat());
        }
    }
    all
}

/// Tuples with values plain, packed both ways, and outside.
fn tuples(random: &mut Random) -> Vec<Vec<u8>> {
    let packed = |method: u32, size: u32, bytes: &[u8]| {
        let len = ((bytes.len() as u32 + 8) << 2 | 2).to_le_bytes();
        [&len[..], &(method << 30 | size).to_le_bytes(), bytes].concat()
    };
    let external = |rawsize: u32, stored: u32| {
        [&[1, 18][..], &rawsize.to_le_bytes(), &stored.to_le_bytes(), &[7, 0, 0, 0, 3, 64, 0, 0]].concat()
    };
    let bodies = [
        [7, b'a', b'b', 0, 4, 0, 0, 0].to_vec(),
        packed(0, 41, &[2, b'x', 0x0f, 1, 19, 0x03, 1]),
        packed(1, 40, &[0x1f, b'x', 1, 0, 15, 0x50, 1, 2, 3, 4, 5]),
        external(304, 300),
        external(1000, 300),
        noise(random, 60),
    ];
    let mut all = Vec::new();
    for body in bodies {
        for how in [1, 2, 3, 10, 11] {
            let storages = [0xff, 2, 4, 2, 0xfe, 0];
            let bitmap = if how > 8 { &[0b101][..] } else { &[] };
            all.push([&[how, 3], &storages[..2 * usize::from(how % 8)], bitmap, &body].concat());
        }
    }
    all
}

/// Tables of each type's columns; rows as they come. One with values outside, and damage of each file.
fn tables(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let outside = |id: u8, rawsize: u32, stored: u32| {
        [&[1, 18][..], &rawsize.to_le_bytes(), &stored.to_le_bytes(), &[id, 0, 0, 0, 3, 64, 0, 0]].concat()
    };
    for major in 0..6 {
        for column in 0..51u8 {
            let rows: Vec<Vec<u8>> = (0..3).map(|_| noise(random, 32)).collect();
            let rows = rows.iter().flat_map(|row| [&[32], &row[..]].concat()).collect::<Vec<_>>();
            all.push([&[major + 126 / 6 * 6, 0, 0, column], &rows[..]].concat());
        }
        // text is the ninth
        let rows = [outside(7, 304, 300), outside(8, 304, 12), outside(9, 304, 300)];
        let rows = rows.iter().flat_map(|row| [&[18], &row[..]].concat()).collect::<Vec<_>>();
        all.push([&[major, 0, 0, 8], &rows[..]].concat());
        for file in 0..15 {
            all.push([&[major, 1, file, random.next() as u8, random.below(4) as u8, 1, 0, 8], &rows[..]].concat());
            all.push([&[major, 1, 195 + file, 0, 0, 0, 0, 8], &rows[..]].concat());
        }
    }
    all
}

/// A table of each type, with a value for its column; and texts that are stored outside, which are not all there.
fn chosen(random: &mut Random) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for value in 0..7 {
        let tables = tables(random).into_iter().step_by(1 + usize::from(value % 3)).filter(|table| table[1] == 0);
        all.extend(tables.map(|table| [&[value, table[0]], &table[2..]].concat()));
    }
    all
}

/// Tables of int4, text and int4, of which columns may be dropped or ask for a method, with rows of each age; indexes of an old version.
/// Damage of each file, in a part of them with a look at all.
fn old_forms(random: &mut Random) -> Vec<Vec<u8>> {
    const COUNTED: u8 = 0x40;
    let packed =
        |method: u32| [&(11u32 << 2 | 2).to_le_bytes()[..], &(method << 30 | 100).to_le_bytes(), &[1, 2, 3]].concat();
    let row = |mask: u16, natts: u8, bitmap: u8, data: &[u8]| {
        [&[4 + data.len() as u8][..], &mask.to_le_bytes(), &[natts, bitmap], data].concat()
    };
    let id = [7, 0, 0, 0];
    let rows = [
        row(0x0b02, 3, 0, &[&id[..], &[5, b'x', 0, 0], &id].concat()),
        row(0x0b02, 2, 0, &[&id[..], &[5, b'x']].concat()),
        row(0x0b03, 3, 0b101, &[id, id].concat()),
        row(0x0b02, 2, 0, &[&id[..], &packed(0)].concat()),
        row(0x0b02, 2, 0, &[&id[..], &packed(1)].concat()),
        row(0x4b02, 1, 0, &id),
        row(0x1102, 1, 0, &id),
        row(0x0902, 1, 0, &id),
        row(0x0002, 1, 0, &id),
    ]
    .concat();
    // int4 and text are the sixth and the ninth of the types; 51 of them, then bits of a column.
    let (int4, text) = (column(23), column(25));
    let mut all = Vec::new();
    for major in 0..6 {
        for bits in 0..5 {
            let table = [&[2, int4, text + 51 * bits, int4], &rows[..]].concat();
            for how in [major, (major + 6) | 0x80, major | COUNTED] {
                all.push([&[how, 0], &table[..]].concat());
            }
        }
        let table = [&[2, int4, text, int4], &rows[..]].concat();
        for (file, at, byte) in [(19, 28u16, 3), (19, 64, 0), (20, 28, 3), (21, 72, 1), (21, 2046, 3), (13, 15, 0xff)] {
            let [low, high] = at.to_le_bytes();
            all.push([&[major | COUNTED, 1, file, low, high, byte], &table[..]].concat());
        }
        for file in 0..22 {
            all.push([&[major, 1, file, random.next() as u8, random.below(4) as u8, 1], &table[..]].concat());
        }
        // The vector of an index's classes is too short to have an element: its attlen stands 68 or 72 bytes behind its name.
        let (_, attributes) = &data_dir::files_with_indexes(13 + u32::from(major), &table)[7];
        let name = attributes.windows(8).position(|bytes| bytes == b"indclass").expect("a column of pg_index");
        let [low, high] = (name as u16 + if major < 3 { 72 } else { 68 }).to_le_bytes();
        all.push([&[major, 1, 7, low, high, 12], &table[..]].concat());
    }
    all
}

/// A small program with what is looked for in a server: two symbol tables, a version, the function whose code is read.
/// `long` is a name; with one there are many symbols, which are all called some end of it.
fn elf(long: &[u8]) -> Vec<u8> {
    let names = [b"\0LWLockHeldByMe\0ProcGlobal\0", long, b"\0"].concat();
    let more = long.len() as u64 / 24;
    let version = b"PostgreSQL 18.4 on x86_64-pc-linux-gnu\0";
    let code = [0x8b, 0x05, 0xf2, 0x0f, 0, 0, 0x48, 0x8d, 0x15, 0xfb, 0x0f, 0, 0, 0xc3];
    let (phoff, symbols) = (64u64, 64 + 2 * 56u64);
    let table = (3 + more) * 24;
    let strings = symbols + table;
    let text = strings + names.len() as u64;
    // Headers of sections are read where 8 divides their place.
    let shoff = (text + (code.len() + version.len()) as u64).next_multiple_of(8);
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 62, 0, 1, 0, 0, 0];
    let words = |out: &mut Vec<u8>, all: &[(u64, usize)]| {
        all.iter().for_each(|(n, width)| out.extend(&n.to_le_bytes()[..*width]));
    };
    let counts = [(0, 4), (64, 2), (56, 2), (2, 2), (64, 2), (4, 2), (2, 2)];
    words(&mut out, &[(0, 8), (phoff, 8), (shoff, 8)]);
    words(&mut out, &counts);
    for (flags, offset, address, size) in [(5, 0, 0, shoff), (6, 0, 0x1000, 0x2000)] {
        let filesz = if flags == 5 { shoff } else { 0 };
        words(
            &mut out,
            &[(1, 4), (flags, 4), (offset, 8), (address, 8), (address, 8), (filesz, 8), (size, 8), (0x1000, 8)],
        );
    }
    for (name, value, size) in [(0, 0, 0), (1, text, code.len() as u64), (16, 0x1100, 8)] {
        words(&mut out, &[(name, 4), (0x12, 1), (0, 1), (u64::from(name > 0), 2), (value, 8), (size, 8)]);
    }
    for name in 28..28 + more {
        words(&mut out, &[(name, 4), (0x12, 1), (0, 1), (1, 2), (0x1100, 8), (8, 8)]);
    }
    out.extend(&names);
    out.extend(code);
    out.extend(version);
    out.resize(shoff as usize, 0);
    for (kind, offset, size, link, entry) in [
        (0, 0, 0, 0, 0),
        (2, symbols, table, 2, 24),
        (3, strings, names.len() as u64, 0, 0),
        (11, symbols, table, 2, 24),
    ] {
        words(
            &mut out,
            &[(0, 4), (kind, 4), (0, 8), (0, 8), (offset, 8), (size, 8), (link, 4), (0, 4), (1, 8), (entry, 8)],
        );
    }
    out
}

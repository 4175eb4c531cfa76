//! Inputs to begin with, for each target: from testdata, and made so that every branch is near.

use std::path::Path;

use crate::{Random, TARGETS};

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

/// Bytes of a style: mostly zeros, ones, small numbers or anything.
pub fn noise(random: &mut Random, length: usize) -> Vec<u8> {
    let style = random.below(4);
    let mut out: Vec<u8> = (0..length)
        .map(|_| match style {
            0 => 0,
            1 => 0xFF,
            2 => random.below(4) as u8,
            _ => random.next() as u8,
        })
        .collect();
    for _ in 0..random.below(8) {
        if !out.is_empty() {
            let at = random.below(out.len() as u64) as usize;
            out[at] = random.next() as u8;
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

fn put(page: &mut [u8], at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// A page of random bytes with a header and line pointers that mostly make sense, so that the items are reached.
fn plausible(random: &mut Random, size: usize, special: &[u8]) -> Vec<u8> {
    let mut page: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
    let below = |random: &mut Random, limit: usize| random.below(limit as u64) as usize;
    let items = below(random, 12);
    let lower = 24 + 4 * items;
    let special_at = size - special.len();
    let upper = (lower + below(random, special_at - lower)).next_multiple_of(8).min(special_at);
    page[..24].fill(0);
    put(&mut page, 12, lower as u16);
    put(&mut page, 14, upper as u16);
    put(&mut page, 16, special_at as u16);
    put(&mut page, 18, size as u16 | 4);
    page[special_at..].copy_from_slice(special);
    for i in 0..items {
        let off = upper + below(random, special_at - upper + 1) / 8 * 8;
        let len = below(random, special_at.saturating_sub(off) + 9);
        let flags = if random.below(4) == 0 { random.below(4) as u32 } else { 1 };
        let lp = (off & 0x7fff) as u32 | flags << 15 | (len as u32 & 0x7fff) << 17;
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&lp.to_le_bytes());
    }
    page
}

fn controls() -> Vec<Vec<u8>> {
    let mut file = vec![0; 296];
    for (at, value) in [(8, 1800u32), (216, 8192), (220, 131_072), (252, 1)] {
        file[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let mut older = file.clone();
    older[8..12].copy_from_slice(&1100u32.to_le_bytes());
    vec![file, older]
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

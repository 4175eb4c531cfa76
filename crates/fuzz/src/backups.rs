//! Backups: an archive, and the list that pgBackRest has of one.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Component, Path};

use leadline_backup::Backup;
use leadline_testdata::{noise, Random};

use crate::folder::Folder;
use crate::{choice, number};

const BLOCK: usize = 512;
/// Where a header has what it says.
const SUM: std::ops::Range<usize> = 148..156;
const TYPE: usize = 156;
const MAGIC: std::ops::Range<usize> = 257..262;

/// An archive. The first byte says whether the sums of its headers are made right, which hardly a changed header would survive otherwise.
pub fn tar(data: &[u8]) -> &'static str {
    let (how, archive) = choice(data);
    let mut archive = archive.to_vec();
    if how % 2 == 0 {
        for header in archive.chunks_exact_mut(BLOCK).filter(|block| &block[MAGIC] == b"ustar") {
            make_right(header);
        }
    }
    let folder = Folder::with([("base.tar", &archive[..])]);
    opened(&folder.0.join("base.tar"))
}

/// A manifest of pgBackRest, whose length comes first, and what a file and a bundle of its backup are.
pub fn manifest(data: &[u8]) -> &'static str {
    let (length, rest) = number(data);
    let (manifest, bytes) = rest.split_at(rest.len().min(length));
    let folder = Folder::with([
        ("main/F/backup.manifest", manifest),
        ("main/F/bundle/1", bytes),
        ("main/F/pg_data/base/1/1", bytes),
        ("main/F/pg_data/base/1/1.pgbi", bytes),
        ("main/F/pg_data/base/1/1.gz", bytes),
        ("main/F/pg_data/base/1/1.lz4", bytes),
        ("main/F/pg_data/base/1/1.zst", bytes),
    ]);
    opened(&folder.0.join("main/F"))
}

/// What must hold of any backup; how far it can be read.
fn opened(path: &Path) -> &'static str {
    let backup = match leadline_backup::open(path, None, &|| true) {
        Ok(Some(backup)) => backup,
        Ok(None) => return "no backup",
        Err(e) => {
            assert!(!e.message.is_empty() && !e.place.is_empty(), "{e}");
            return e.kind.as_str();
        }
    };
    for unread in backup.unread() {
        assert!(!unread.why.is_empty(), "{unread:?}");
    }
    for member in backup.members() {
        let leads_away = |part: Component<'_>| !matches!(part, Component::Normal(_));
        assert!(!member.name.components().any(leads_away), "{member:?}");
    }
    let damaged = read(backup.as_ref());
    match (backup.members().len(), damaged, backup.unread().len()) {
        (0, _, 0) => "no files",
        (_, 0, 0) => "whole",
        (_, 0, _) => "unread",
        _ => "damaged",
    }
}

/// Reads all members, each of which is in one part; how many cannot be read to their end.
fn read(backup: &dyn Backup) -> usize {
    let (mut seen, mut damaged) = (BTreeSet::new(), 0);
    for part in 0..backup.parts() {
        let mut visit = |at: usize, input: &mut dyn Read| {
            let wanted = backup.members()[at].bytes;
            assert!(seen.insert(at), "member {at} is in two parts");
            let (mut buffer, mut have) = ([0; 4096], 0);
            loop {
                match input.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(more) => have += more as u64,
                    Err(e) => {
                        assert!(!e.to_string().is_empty());
                        damaged += 1;
                        return Ok(true);
                    }
                }
                assert!(have <= wanted, "{have} bytes of {wanted}");
            }
            assert_eq!(have, wanted, "member {at} ends early, and does not say so");
            Ok(true)
        };
        backup.read(part, &|_| true, &mut visit).expect("what is visited goes on, and the files are there");
    }
    assert_eq!(seen.len(), backup.members().len(), "members that are in no part");
    damaged
}

fn make_right(header: &mut [u8]) {
    header[SUM].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A header and what follows it.
fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; BLOCK];
    header[..name.len().min(100)].copy_from_slice(&name.as_bytes()[..name.len().min(100)]);
    header[100..108].copy_from_slice(b"0000600\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[TYPE] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    make_right(&mut header);
    header.extend(content);
    header.resize(header.len().next_multiple_of(BLOCK), 0);
    header
}

/// Archives with each kind of member.
pub(crate) fn tars(random: &mut Random) -> Vec<Vec<u8>> {
    let page = noise(random, 700);
    let end = vec![0; 2 * BLOCK];
    let large = {
        let mut large = entry("base/5/9", b'0', &page);
        large[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 188]); // 700, in base 256
        make_right(&mut large[..BLOCK]);
        large
    };
    let pax = |record: &str| {
        let length = record.len() + 3;
        entry("PaxHeader", b'x', format!("{length:02} {record}").as_bytes())
    };
    let members: [Vec<Vec<u8>>; 9] = [
        vec![entry("PG_VERSION", b'0', b"18\n"), entry("base", b'5', b""), entry("base/5/1259", b'0', &page)],
        vec![pax("path=base/5/16384\n"), entry("short", b'0', &page), entry("next", 0, b"")],
        vec![pax("size=512\n"), entry("base/5/1", b'0', &page)],
        vec![pax("GNU.sparse.major=1\n"), entry("base/5/2", b'0', &page)],
        vec![entry("././@LongLink", b'L', b"base/5/a_name_in_a_member_of_its_own\0"), entry("cut", b'0', b"x")],
        vec![entry("pg_tblspc/16400", b'2', b""), entry("base/5/link", b'1', b""), entry("pipe", b'6', b"")],
        vec![entry("../out", b'0', b"x"), entry("base/../../out", b'0', b"x"), entry("/base/5/3", b'0', &page)],
        vec![entry("sparse", b'S', &page), entry("global", b'g', b"18 comment=nothing\n")],
        vec![large, entry("base/5/INCREMENTAL.7", b'0', &page)],
    ];
    let mut all: Vec<Vec<u8>> = members.iter().map(|parts| [&[0][..], &parts.concat(), &end].concat()).collect();
    all.push([&[0][..], &members.concat().concat(), &end].concat());
    all.push([&[1][..], &members[0].concat()].concat());
    all.push([&[1][..], &members[0].concat(), &end, &page].concat());
    all
}

/// Manifests of each compression, whose files are alone and in a bundle.
pub(crate) fn manifests(random: &mut Random) -> Vec<Vec<u8>> {
    const ABC: &str = "a9993e364706816aba3e25717850c26c9cd0d89d";
    let with = |head: &str, files: &str, bytes: &[u8]| {
        let text = format!(
            "[backrest]\nbackrest-format=5\n\n[backup]\nbackup-label=\"F\"\n{head}\n\n[target:file]\n{files}\n"
        );
        [&(text.len() as u16).to_le_bytes()[..], text.as_bytes(), bytes].concat()
    };
    let method = |method: &str, more: &str| format!("{more}\n[backup:option]\noption-compress-type=\"{method}\"");
    let bundled = format!(r#"pg_data/PG_VERSION={{"bni":1,"checksum":"{ABC}","size":3}}"#);
    let files = [
        bundled.clone(),
        r#"pg_data/base/1/1={"size":3,"repo-size":3}"#.into(),
        r#"pg_data/base/1/1={"bni":1,"bno":2,"size":2,"reference":0}"#.into(),
        r#"pg_data/base/1/1={"bi":1,"bim":20,"size":8192}"#.into(),
        r#"pg_data/../x={"size":1}"#.into(),
        r#"pg_data/base/1/2={"size":0}"#.into(),
        r#"pg_tblspc/16400/PG_18/1/1={"size":3,"reference":"F"}"#.into(),
        "pg_data/base/1/3={\"bni\":1}\n\n[target:file:default]\nsize=1".into(),
    ];
    let mut all = Vec::new();
    for compression in ["none", "gz", "lz4", "zst", "bz2", "lzma"] {
        for more in ["backup-bundle-raw=true", "backup-reference=\"F,G\"\nbackup-lsn-stop=\"0/3000100\"", ""] {
            all.push(with(&method(compression, more), &files.join("\n"), b"abc"));
        }
    }
    // Stored blocks, as gzip and zlib have them.
    let gzip =
        [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 3, 0, 0xfc, 0xff][..], b"abc", &[0xc2, 0x41, 0x24, 0x35, 3, 0, 0, 0]];
    let gzip = gzip.concat();
    let file = format!(r#"pg_data/base/1/1={{"checksum":"{ABC}","size":3,"repo-size":{}}}"#, gzip.len());
    all.push(with(&method("gz", ""), &file, &gzip));
    all.push(with(&method("none", ""), &bundled, b"abc"));
    all.push(with(&method("none", ""), &[&bundled[..], &files[4]].join("\n"), b"abc"));
    // A file by blocks: a super block of 4 bytes, and the map of the one block.
    let by_blocks = [&b"abcd"[..], &[0, 0b11, 1, 4 << 3 | 0b11, 1, 4], &[0xee; 6]].concat();
    let file = format!(r#"pg_data/base/1/1={{"bi":1,"bim":12,"bni":1,"size":4,"repo-size":{}}}"#, by_blocks.len());
    all.push(with(&method("none", "backup-reference=\"F,G\""), &file, &by_blocks));
    all.push(with(&method("none", "[cipher]\ncipher-pass=\"key\""), &bundled, &noise(random, 64)));
    all.push(with(&method("none", ""), "pg_data/base/1/1={\"size\":-1}", b""));
    let mut old = with(&method("none", ""), &bundled, b"abc");
    if let Some(at) = old.windows(8).position(|bytes| bytes == b"format=5") {
        old[at + 7] = b'4';
    }
    all.push(old);
    all
}

//! Members of a tar archive, from its front: ustar, its pax extensions, and those of GNU tar.
//!
//! Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header"; src/common/tar.c of PostgreSQL; the manual of GNU tar, "Basic Tar
//! Format". Nothing is believed before it was checked, and nothing is kept of an archive but one header and the name that follows it.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

/// Everything begins at a multiple of this.
const BLOCK: usize = 512;
/// Names and other things that are said of a member in members of their own are shorter.
const LONGEST_EXTENSION: u64 = 1 << 20;

/// Where the fields of a header are.
const NAME: Range<usize> = 0..100;
const SIZE: Range<usize> = 124..136;
const SUM: Range<usize> = 148..156;
const TYPE: usize = 156;
const MAGIC: Range<usize> = 257..263;
const PREFIX: Range<usize> = 345..500;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    File,
    Folder,
    /// A hard or a symbolic link.
    Link,
    /// A file of which the holes were left out.
    Sparse,
    /// A device, a pipe, or what nobody knows.
    Other,
}

/// A member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As it is in the archive.
    pub(crate) name: Vec<u8>,
    pub(crate) bytes: u64,
    pub(crate) what: What,
}

/// Bytes that can be passed over.
pub(crate) trait Input: Read {
    /// Passes over so many bytes.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

/// A stream, which can be passed over by reading it only.
pub(crate) struct Streamed<R>(pub(crate) R);

impl<R: Read> Read for Streamed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl<R: Read> Input for Streamed<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match io::copy(&mut self.0.by_ref().take(bytes), &mut io::sink())? {
            skipped if skipped == bytes => Ok(()),
            _ => Err(cut_off()),
        }
    }
}

/// An archive, member by member; between two calls of [`next`](Tar::next) it gives the bytes of the member.
pub(crate) struct Tar<I> {
    input: I,
    /// Bytes of the archive that were read or passed over.
    at: u64,
    /// Bytes of the member that were not read.
    left: u64,
    /// Those between its end and the next header.
    padding: u64,
    /// Whether it may end without the mark of the end.
    unmarked: bool,
}

/// What headers before a member say of it.
#[derive(Default)]
struct Said {
    name: Option<Vec<u8>>,
    bytes: Option<u64>,
    sparse: bool,
}

impl<I: Input> Tar<I> {
    pub(crate) fn new(input: I) -> Tar<I> {
        Tar { input, at: 0, left: 0, padding: 0, unmarked: false }
    }

    /// One that may end behind any member.
    pub(crate) fn unmarked(input: I) -> Tar<I> {
        Tar { unmarked: true, ..Tar::new(input) }
    }

    /// Where in the archive it is; after [`next`](Tar::next), where the bytes of the member begin.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// The next member; none at the end that the archive marks.
    ///
    /// # Errors
    /// When the archive is cut off or what should be a header is none.
    pub(crate) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut said = Said::default();
        loop {
            let rest = std::mem::take(&mut self.left) + std::mem::take(&mut self.padding);
            self.input.skip(rest)?;
            self.at += rest;
            let Some(header) = self.header()? else { return Ok(None) };
            let bytes = number(&header[SIZE]).ok_or_else(|| damaged(self.at, "a size that is no number"))?;
            let bytes = said.bytes.filter(|_| !is_extension(header[TYPE])).unwrap_or(bytes);
            if bytes > i64::MAX as u64 {
                return Err(damaged(self.at, "an impossible size"));
            }
            self.left = bytes;
            self.padding = bytes.next_multiple_of(BLOCK as u64) - bytes;
            match header[TYPE] {
                b'x' => said.pax(&self.extension()?).ok_or_else(|| damaged(self.at, "a pax header that is none"))?,
                b'L' => said.name = Some(until_nul(&self.extension()?).to_vec()),
                // What is said of all members of an archive, and long names of links: nothing that is needed.
                b'g' | b'K' | b'V' => {}
                kind => {
                    let name = said.name.take().unwrap_or_else(|| name_in(&header));
                    let what = match kind {
                        _ if said.sparse => What::Sparse,
                        b'0' | 0 | b'7' if name.ends_with(b"/") => What::Folder,
                        b'0' | 0 | b'7' => What::File,
                        b'1' | b'2' => What::Link,
                        b'5' => What::Folder,
                        b'S' => {
                            self.sparse_map(&header)?;
                            What::Sparse
                        }
                        _ => What::Other,
                    };
                    return Ok(Some(Entry { name, bytes, what }));
                }
            }
        }
    }

    /// A header; none at the mark of the end: two blocks of zeros. One of them is enough where nothing follows.
    fn header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut header = [0; BLOCK];
        for zeros in 0..2 {
            match self.read_full(&mut header)? {
                BLOCK => {}
                0 if zeros == 1 || self.unmarked => return Ok(None),
                _ => return Err(cut_off()),
            }
            if header.iter().any(|byte| *byte != 0) {
                if zeros == 1 {
                    return Err(damaged(self.at, "a block of zeros between members"));
                }
                let sum = number(&header[SUM]).filter(|sum| sums(&header).contains(sum));
                return match sum {
                    Some(_) => Ok(Some(header)),
                    None => Err(damaged(self.at, "a header whose checksum does not match")),
                };
            }
        }
        Ok(None)
    }

    fn read_full(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.at += done as u64;
        Ok(done)
    }

    /// All bytes of a member that says something of the next one.
    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.left > LONGEST_EXTENSION {
            return Err(damaged(self.at, &format!("an extended header of {} bytes", self.left)));
        }
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Passes over the blocks that GNU tar has of a sparse file behind the header.
    fn sparse_map(&mut self, header: &[u8; BLOCK]) -> io::Result<()> {
        let mut more = header[482] != 0;
        while more {
            let mut block = [0; BLOCK];
            if self.read_full(&mut block)? < BLOCK {
                return Err(cut_off());
            }
            more = block[504] != 0;
        }
        Ok(())
    }

    /// After the last member: whether something else follows within the first bytes behind it.
    pub(crate) fn has_more(&mut self) -> io::Result<bool> {
        const LOOKED_AT: usize = 1 << 16;
        let mut rest = vec![0; LOOKED_AT];
        let read = self.read_full(&mut rest)?;
        Ok(rest.get(..read).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)))
    }
}

impl<I: Input> Read for Tar<I> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let Some(into) = into.get_mut(..most).filter(|into| !into.is_empty()) else { return Ok(0) };
        let read = self.input.read(into)?;
        if read == 0 {
            return Err(cut_off());
        }
        self.left -= read as u64;
        self.at += read as u64;
        Ok(read)
    }
}

impl Said {
    /// Records of "LENGTH KEY=VALUE\n".
    fn pax(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let digits = bytes.iter().position(|byte| *byte == b' ')?;
            let length: usize = std::str::from_utf8(bytes.get(..digits)?).ok()?.parse().ok()?;
            let record = bytes.get(digits + 1..length)?.strip_suffix(b"\n")?;
            bytes = bytes.get(length..)?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (record.get(..equals)?, record.get(equals + 1..)?);
            match key {
                // The name of a sparse file is in a key of its own, whatever their order.
                b"path" if !self.sparse => self.name = Some(value.to_vec()),
                b"size" => self.bytes = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                b"GNU.sparse.name" => self.name = Some(value.to_vec()),
                _ => {}
            }
            self.sparse |= key.starts_with(b"GNU.sparse.");
        }
        Some(())
    }
}

/// Members that say something of the next one.
fn is_extension(kind: u8) -> bool {
    matches!(kind, b'x' | b'g' | b'L' | b'K' | b'V')
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn name_in(header: &[u8; BLOCK]) -> Vec<u8> {
    let (name, prefix) = (until_nul(&header[NAME]), until_nul(&header[PREFIX]));
    // GNU tar has other things at the place of the prefix, and another magic.
    if header[MAGIC] != *b"ustar\0" || prefix.is_empty() {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

/// Octal digits with spaces or zeros around them, or the number itself, as GNU tar and PostgreSQL have sizes from 8 GB on.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first == 0x80 {
        let (high, low) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
        return low.first_chunk().filter(|_| high.iter().all(|byte| *byte == 0)).map(|low| u64::from_be_bytes(*low));
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    let is_octal = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    match text {
        "" => Some(0),
        _ if is_octal => u64::from_str_radix(text, 8).ok(),
        _ => None,
    }
}

/// The sum of a header's bytes, its own field taken as spaces; and as old programs took it, of signed bytes.
fn sums(header: &[u8; BLOCK]) -> [u64; 2] {
    let byte = |at: usize| if SUM.contains(&at) { b' ' } else { header[at] };
    let signed: i64 = (0..BLOCK).map(|at| i64::from(byte(at) as i8)).sum();
    [(0..BLOCK).map(|at| u64::from(byte(at))).sum(), signed as u64]
}

fn cut_off() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the archive is cut off")
}

fn damaged(at: u64, what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the archive is damaged: {what} before offset {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of ustar, and its bytes padded.
    fn member(name: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
        let mut header = [0; BLOCK];
        header[..name.len()].copy_from_slice(name);
        header[SIZE.start..SIZE.end - 1].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[TYPE] = kind;
        header[MAGIC].copy_from_slice(b"ustar\0");
        let mut bytes = summed(header).to_vec();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    fn summed(mut header: [u8; BLOCK]) -> [u8; BLOCK] {
        let sum = sums(&header)[0];
        header[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header
    }

    fn end() -> Vec<u8> {
        vec![0; 2 * BLOCK]
    }

    /// Names, kinds and contents; or what is wrong.
    fn listed(archive: &[u8]) -> Result<Vec<(String, What, Vec<u8>)>, String> {
        let mut tar = Tar::new(Streamed(archive));
        let mut found = Vec::new();
        while let Some(entry) = tar.next().map_err(|e| e.to_string())? {
            let mut content = Vec::new();
            tar.read_to_end(&mut content).map_err(|e| e.to_string())?;
            assert_eq!(content.len() as u64, entry.bytes);
            found.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.what, content));
        }
        Ok(found)
    }

    #[test]
    fn members_are_named_and_read() {
        let archive =
            [member(b"a/", b'5', b""), member(b"a/b", b'0', b"text"), member(b"c", 0, &[7; 513]), end()].concat();
        let found = listed(&archive).expect("a whole archive");
        assert_eq!(found[0], ("a/".into(), What::Folder, Vec::new()));
        assert_eq!(found[1], ("a/b".into(), What::File, b"text".to_vec()));
        assert_eq!((found[2].1, found[2].2.len()), (What::File, 513));
    }

    #[test]
    fn long_names_sizes_and_sparse_files_are_told_by_headers_before_them() {
        let pax = member(b"x", b'x', b"14 path=p/1.2\n10 size=3\n");
        let gnu = member(b"././@LongLink", b'L', b"long/name\0");
        let sparse = member(b"x", b'x', b"23 GNU.sparse.name=s/1\n12 path=GNU\n");
        let one = |name: &[u8]| member(name, b'0', b"abc");
        let archive = [pax, one(b"p"), gnu, one(b"l"), sparse, one(b"s"), one(b"last"), end()].concat();
        let found = listed(&archive).expect("a whole archive");
        let found: Vec<_> = found.iter().map(|(name, what, _)| (name.as_str(), *what)).collect();
        let file = What::File;
        assert_eq!(found, [("p/1.2", file), ("long/name", file), ("s/1", What::Sparse), ("last", file)]);
    }

    #[test]
    fn sizes_beyond_eight_gigabytes_are_numbers() {
        let mut field = [0; 12];
        field[0] = 0x80;
        field[4..].copy_from_slice(&(9_u64 << 30).to_be_bytes());
        assert_eq!(
            (number(&field), number(b"00000000017\0"), number(b"     17 ")),
            (Some(9 << 30), Some(15), Some(15))
        );
        assert_eq!((number(b"8"), number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")), (None, None));
    }

    #[test]
    fn every_cut_is_seen() {
        let archive =
            [member(b"a", b'0', b"text"), member(b"x", b'x', b"10 path=b\n"), member(b"c", b'0', b"")].concat();
        for cut in 0..archive.len() {
            assert!(listed(&archive[..cut]).is_err(), "{cut} bytes of it");
        }
        assert!(
            listed(&[&archive, &vec![0; BLOCK][..]].concat()).is_ok(),
            "one block of zeros is an end where nothing follows"
        );
    }

    #[test]
    fn what_is_no_header_is_an_error() {
        let mut archive = [member(b"a", b'0', b"text"), end()].concat();
        archive[3] ^= 1;
        assert!(listed(&archive).is_err_and(|e| e.contains("checksum")));
        let bomb = [member(b"x", b'x', &vec![b' '; LONGEST_EXTENSION as usize + 1]), end()].concat();
        assert!(listed(&bomb).is_err_and(|e| e.contains("an extended header of 1048577 bytes")));
        assert!(listed(&[member(b"x", b'x', b"99 path=b\n"), end()].concat()).is_err_and(|e| e.contains("pax")));
    }

    #[test]
    fn what_follows_the_end_is_noticed() {
        let archive = [member(b"a", b'0', b"text"), end(), vec![0; 10 * BLOCK]].concat();
        let after = |archive: &[u8]| {
            let mut tar = Tar::new(Streamed(archive));
            while tar.next().expect("a whole archive").is_some() {}
            tar.has_more().expect("from memory")
        };
        assert!(!after(&archive) && after(&[&archive[..], &member(b"b", b'0', b"")].concat()));
    }
}

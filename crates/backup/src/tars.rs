//! Backups as tar archives: a folder of those that `pg_basebackup -Ft` makes, or one archive.
//!
//! An archive is gone through twice: once for the list of its members and for pg_control, which `pg_basebackup` puts last, and once for their
//! bytes. What is not compressed is passed over by its sizes and then read at many places at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, BufReader, ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};
use leadline_unpack::{Packing, HEAD, SUPPORTED};

use crate::exactly::Exactly;
use crate::increment::{Head, PAGE};
use crate::place::plain;
use crate::store::{self, is_file, At, Opened};
use crate::tar::{Entry, Input, Streamed, Tar, What};
use crate::{Backup, Failed, GoOn, Member, Unread, Visit, Wants};

/// No cluster has so many files; what an archive claims is not believed without end.
const MOST_MEMBERS: usize = 10_000_000;
/// Bytes of a part of an archive that can be read from the middle.
const PART: u64 = 64 << 20;
/// A file that says how others are to be read is shorter.
const SMALL: u64 = 1 << 16;
/// What a file is called of which there are only some blocks.
const INCREMENTAL: &str = "INCREMENTAL.";
const MAGIC_AT: usize = 257;
const SUFFIXES: [&str; 8] = [".tar", ".tar.gz", ".tgz", ".tar.lz4", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.br"];

/// One archive, and what it is of the cluster.
struct Archive {
    path: PathBuf,
    packing: Packing,
    /// Where its members are in the data directory.
    below: PathBuf,
}

/// Members of one archive.
struct Part {
    archive: usize,
    members: Range<usize>,
}

/// One or more archives.
pub(crate) struct Tars {
    archives: Vec<Archive>,
    members: Vec<Member>,
    /// Where the bytes of each member begin in its archive.
    starts: Vec<u64>,
    parts: Vec<Part>,
    unread: Vec<Unread>,
    small: BTreeMap<PathBuf, Vec<u8>>,
    stop_lsn: Option<String>,
    increments: BTreeSet<PathBuf>,
    /// Bytes that are in the archive of members that are increments, by their number.
    stored: BTreeMap<usize, u64>,
    /// Bytes of a page in increments.
    page: u32,
    /// Whether a list beside the archives says what is in them: they may then end without the mark of the end.
    listed: bool,
    /// Names of what is there and no file.
    others: BTreeSet<PathBuf>,
}

impl Tars {
    pub(crate) fn open(path: &Path, go_on: &GoOn) -> Result<Option<Tars>, Error> {
        let archives = match store::is_folder(path) {
            true => archives_in(path)?,
            false if is_tar(path) => vec![path.to_owned()],
            false => Vec::new(),
        };
        if archives.is_empty() {
            return Ok(None);
        }
        let mut tars = Tars::new(BTreeSet::new(), false);
        tars.stop_lsn = stop_lsn_in(&path.join("backup_manifest"));
        tars.add(archives, go_on)?;
        Ok(Some(tars))
    }

    /// Archives that are added later. `increments` are the files of which they have only the blocks that changed, as WAL-G stores them.
    pub(crate) fn new(increments: BTreeSet<PathBuf>, listed: bool) -> Tars {
        Tars {
            archives: Vec::new(),
            members: Vec::new(),
            starts: Vec::new(),
            parts: Vec::new(),
            unread: Vec::new(),
            small: BTreeMap::new(),
            stored: BTreeMap::new(),
            page: PAGE,
            stop_lsn: None,
            increments,
            listed,
            others: BTreeSet::new(),
        }
    }

    pub(crate) fn add(&mut self, archives: Vec<PathBuf>, go_on: &GoOn) -> Result<(), Error> {
        archives.into_iter().try_for_each(|archive| self.list(archive, go_on))
    }

    /// Says of files that a list beside the archives has, and these have not, that they are lost.
    pub(crate) fn must_have(&mut self, names: impl Iterator<Item = PathBuf>) {
        let plain = |name: &Path| {
            let file = name.file_name()?.to_str()?.strip_prefix(INCREMENTAL)?;
            Some(name.with_file_name(file))
        };
        let own = |(number, member): (usize, &Member)| match self.stored.contains_key(&number) {
            true => plain(&member.name).unwrap_or_default(),
            false => member.name.clone(),
        };
        let there: BTreeSet<_> = self.members.iter().enumerate().map(own).collect();
        let lost = names.filter(|name| !there.contains(name) && !self.others.contains(name));
        let why = "it is in the list of the backup, and in none of its archives";
        self.unread.extend(lost.map(|name| Unread { name, why: why.into() }));
    }

    /// Adds an archive with all its members.
    fn list(&mut self, path: PathBuf, go_on: &GoOn) -> Result<(), Error> {
        let failed = |e: io::Error| Error::reading(&path, "the archive", &e);
        let file = store::open(&path).map_err(failed)?;
        let mut head = [0; HEAD];
        let have = file.read_at(&mut head, 0).map_err(failed)?;
        let packing = Packing::of_bytes(head.get(..have).unwrap_or_default(), Packing::Plain);
        if let Packing::Other(program) = packing {
            return Err(Error::new(Kind::Unsupported, "this archive is compressed in a way that cannot be read")
                .detail(format!("by {program}; supported: {SUPPORTED}"))
                .hint("decompress it first")
                .at(path));
        }
        if packing == Packing::Plain && is_named_packed(&path) {
            let name = path.file_name().map_or_else(|| path.clone(), PathBuf::from);
            let why =
                "it is not compressed as its name says: it is encrypted, damaged, or compressed by brotli or lzma"
                    .into();
            self.unread.push(Unread { name, why });
            return Ok(());
        }
        let below = below(&path);
        let number = self.archives.len();
        let first = self.members.len();
        let archive = Archive { path: path.clone(), packing, below };
        if let Err(e) = self.members_of(&archive, file, go_on) {
            if !go_on() {
                return Err(Error::new(Kind::Gone, "interrupted"));
            }
            let name = path.file_name().map_or_else(|| path.clone(), PathBuf::from);
            let have = self.members.len() - first;
            let why = format!("{e}; {have} files were found before that, and what follows is not read");
            self.unread.push(Unread { name, why });
        }
        self.archives.push(archive);
        self.divide(number, first);
        Ok(())
    }

    fn members_of(&mut self, archive: &Archive, file: Opened, go_on: &GoOn) -> io::Result<()> {
        let mut tar = self.tar(archive.input(file)?);
        while let Some(Entry { name, bytes, what }) = tar.next()? {
            if !go_on() {
                return Err(ErrorKind::Interrupted.into());
            }
            if self.members.len() >= MOST_MEMBERS {
                return Err(io::Error::other(format!("the archive has more than {MOST_MEMBERS} files")));
            }
            let start = tar.position();
            let Some(inside) = plain(&name) else {
                let name = PathBuf::from(String::from_utf8_lossy(&name).into_owned());
                self.unread.push(Unread { name, why: "its name leads out of the archive (..)".into() });
                continue;
            };
            let name = archive.below.join(inside);
            if self.listed && what != What::File {
                self.others.insert(name.clone());
            }
            match what {
                What::File => {
                    if is_small(&name) && bytes <= SMALL {
                        let mut content = Vec::new();
                        tar.read_to_end(&mut content)?;
                        self.small.insert(name.clone(), content);
                    }
                    let (name, shown) = self.as_member(name, bytes, &mut tar)?;
                    self.members.push(Member { name, bytes: shown });
                    self.starts.push(start);
                }
                What::Folder => {}
                // Tablespaces are links, and their files are in archives of their own.
                What::Link if name.parent() == Some(Path::new("pg_tblspc")) => {}
                What::Link => self.unread.push(Unread { name, why: "it is a link in the archive".into() }),
                What::Sparse => {
                    let why = "the archive has it as a sparse file; make the archive without --sparse".into();
                    self.unread.push(Unread { name, why });
                }
                What::Other => self.unread.push(Unread { name, why: "it is no regular file in the archive".into() }),
            }
        }
        if tar.has_more()? {
            let name = archive.path.file_name().map(PathBuf::from).unwrap_or_default();
            self.unread.push(Unread { name, why: "more follows behind the end of the archive".into() });
        }
        Ok(())
    }

    /// How a file is named and how long it is. One of changed blocks is one of PostgreSQL's incremental backups.
    fn as_member(&mut self, name: PathBuf, bytes: u64, tar: &mut dyn Read) -> io::Result<(PathBuf, u64)> {
        let Some(file) = name.file_name().filter(|_| self.increments.contains(&name)) else { return Ok((name, bytes)) };
        let mut incremental = OsString::from(INCREMENTAL);
        incremental.push(file);
        let name = name.with_file_name(incremental);
        let shown = match Head::read(tar, bytes) {
            Ok(head) => {
                self.page = head.page.unwrap_or(self.page);
                head.as_postgres(self.page).len() as u64 + head.pages
            }
            // Who reads it is told.
            Err(e) if e.kind() == ErrorKind::InvalidData => bytes,
            Err(e) => return Err(e),
        };
        self.stored.insert(self.members.len(), bytes);
        Ok((name, shown))
    }

    fn tar<I: Input>(&self, input: I) -> Tar<I> {
        match self.listed {
            true => Tar::unmarked(input),
            false => Tar::new(input),
        }
    }

    /// Gives a member to who reads it.
    fn give(&self, number: usize, input: &mut dyn Read, visit: &mut Visit) -> Result<bool, Error> {
        let Some(bytes) = self.stored.get(&number) else { return visit(number, input) };
        match Head::read(input, *bytes) {
            Ok(head) => visit(number, &mut io::Cursor::new(head.as_postgres(self.page)).chain(input)),
            Err(e) => visit(number, &mut Failed(Some(e))),
        }
    }

    /// Parts of the members from `first` on.
    fn divide(&mut self, archive: usize, first: usize) {
        let all = first..self.members.len();
        if self.archives.get(archive).is_none_or(|archive| archive.packing != Packing::Plain) {
            self.parts.push(Part { archive, members: all });
            return;
        }
        let (mut from, mut bytes) = (first, 0_u64);
        for number in all.clone() {
            bytes = self.members.get(number).map_or(0, |member| member.bytes).saturating_add(bytes);
            if bytes >= PART || number + 1 == all.end {
                self.parts.push(Part { archive, members: from..number + 1 });
                (from, bytes) = (number + 1, 0);
            }
        }
    }

    fn member(&self, number: usize) -> (u64, u64) {
        let bytes = self.members.get(number).map_or(0, |member| member.bytes);
        (self.starts.get(number).copied().unwrap_or(0), self.stored.get(&number).copied().unwrap_or(bytes))
    }

    /// Members of an archive that can be read from the middle.
    fn read_plain(&self, file: &Opened, part: &Part, wanted: &Wants, visit: &mut Visit) -> Result<(), Error> {
        for number in part.members.clone().filter(|number| wanted(*number)) {
            let (at, bytes) = self.member(number);
            let input = At { file, at };
            if !self.give(number, &mut Exactly::next(input, bytes), visit)? {
                break;
            }
        }
        Ok(())
    }

    /// Members of one that has to be read from its front. From where that fails on, each of them says so.
    fn read_packed(
        &self,
        archive: &Archive,
        file: Opened,
        part: &Part,
        wanted: &Wants,
        visit: &mut Visit,
    ) -> Result<(), Error> {
        let opened = archive.input(file).map(|input| self.tar(input));
        let (mut tar, mut broken) = match opened {
            Ok(tar) => (Some(tar), None),
            Err(e) => (None, Some(e.to_string())),
        };
        for number in part.members.clone().filter(|number| wanted(*number)) {
            let (start, bytes) = self.member(number);
            if let Some(open) = &mut tar {
                if let Err(e) = find(open, start) {
                    (tar, broken) = (None, Some(e.to_string()));
                }
            }
            let goes_on = match &mut tar {
                Some(tar) => self.give(number, &mut Exactly::next(tar, bytes), visit)?,
                None => visit(number, &mut Broken(broken.as_deref().unwrap_or_default()))?,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

/// Goes on to the member whose bytes begin at `start`.
fn find<I: Input>(tar: &mut Tar<I>, start: u64) -> io::Result<()> {
    loop {
        match tar.next()? {
            Some(_) if tar.position() == start => return Ok(()),
            Some(_) if tar.position() < start => {}
            _ => return Err(io::Error::other("the archive changed while it was read")),
        }
    }
}

/// What cannot be read, and why.
struct Broken<'b>(&'b str);

impl Read for Broken<'_> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other(self.0))
    }
}

impl Backup for Tars {
    fn kind(&self) -> &'static str {
        "tar archive"
    }

    fn members(&self) -> &[Member] {
        &self.members
    }

    fn unread(&self) -> &[Unread] {
        &self.unread
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn read(&self, part: usize, wanted: &Wants, visit: &mut Visit) -> Result<(), Error> {
        let Some(part) = self.parts.get(part) else { return Ok(()) };
        let Some(archive) = self.archives.get(part.archive) else { return Ok(()) };
        let file = store::open(&archive.path).map_err(|e| Error::reading(&archive.path, "the archive", &e))?;
        match archive.packing {
            Packing::Plain => self.read_plain(&file, part, wanted, visit),
            _ => self.read_packed(archive, file, part, wanted, visit),
        }
    }

    fn small(&self, name: &Path) -> Option<Vec<u8>> {
        self.small.get(name).cloned()
    }

    fn stop_lsn(&self) -> Option<String> {
        self.stop_lsn.clone()
    }
}

impl Archive {
    fn input(&self, file: Opened) -> io::Result<Box<dyn Input + Send>> {
        Ok(match self.packing {
            Packing::Plain => Box::new(Seeking { bytes: file.bytes()?, file, at: 0 }),
            packing => Box::new(Streamed(packing.stream(BufReader::with_capacity(1 << 17, At { file, at: 0 }))?)),
        })
    }
}

impl Input for Box<dyn Input + Send> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        (**self).skip(bytes)
    }
}

impl<I: Input> Input for &mut Tar<I> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        Streamed(self).skip(bytes)
    }
}

/// A file that is passed over without reading it.
struct Seeking {
    file: Opened,
    at: u64,
    bytes: u64,
}

impl Read for Seeking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Input for Seeking {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.at = self.at.saturating_add(bytes);
        if self.at > self.bytes {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the archive is cut off"));
        }
        Ok(())
    }
}

/// What says how other files are to be read.
fn is_small(name: &Path) -> bool {
    name.ends_with("global/pg_control")
        || name
            .file_name()
            .is_some_and(|name| ["PG_VERSION", "backup_label", "pg_filenode.map"].iter().any(|small| name == *small))
}

/// Where the members of an archive are in the data directory, by its name: 16400.tar has those of a tablespace, and 16400_0001.tar more of them.
fn below(path: &Path) -> PathBuf {
    match stem(path).map(whole_name) {
        Some("pg_wal") => "pg_wal".into(),
        Some(stem) if is_number(stem) => Path::new("pg_tblspc").join(stem),
        _ => PathBuf::new(),
    }
}

/// The name of the first archive of several: data of data_0001.
pub(crate) fn whole_name(stem: &str) -> &str {
    stem.rsplit_once('_').filter(|(_, number)| is_number(number)).map_or(stem, |(name, _)| name)
}

pub(crate) fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name of an archive without what says that it is one.
fn stem(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix))
}

/// Whether its name says that it is compressed.
fn is_named_packed(path: &Path) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    !name.ends_with(".tar") && (SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) || name.ends_with(".tar.lzma"))
}

/// The archives of a folder, if base.tar is one of them; those of tablespaces and of the WAL are others.
fn archives_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = store::entries(folder).map_err(|e| Error::reading(folder, "the folder", &e))?;
    let paths = listed.into_iter().map(|entry| entry.path).filter(|path| is_file(path));
    let archives: Vec<_> = paths.filter(|path| stem(path) == Some("base") || below(path) != Path::new("")).collect();
    let is_backup = archives.iter().any(|path| stem(path) == Some("base"));
    Ok(if is_backup { archives } else { Vec::new() })
}

/// Whether a folder has the archives that `pg_basebackup -Ft` makes.
pub(crate) fn is_folder_of_archives(folder: &Path) -> bool {
    archives_in(folder).is_ok_and(|archives| !archives.is_empty())
}

/// Whether a name is that of a tar archive, compressed or not.
pub fn is_tar_name(path: &Path) -> bool {
    let lower = path.to_string_lossy().to_lowercase();
    SUFFIXES.iter().any(|suffix| lower.ends_with(suffix))
}

/// By its bytes, also those that it unpacks to. A pipe is not opened.
fn is_tar(path: &Path) -> bool {
    is_file(path)
        && (is_tar_name(path) || store::open(path).is_ok_and(|file| starts_with_header(file).unwrap_or(false)))
}

fn starts_with_header(file: Opened) -> io::Result<bool> {
    let mut start = [0; MAGIC_AT + 5];
    let have = file.read_at(&mut start, 0)?;
    let packing = Packing::of_bytes(start.get(..have).unwrap_or_default(), Packing::Plain);
    if packing == Packing::Plain {
        return Ok(start.ends_with(b"ustar"));
    }
    packing.stream(BufReader::new(At { file, at: 0 }))?.read_exact(&mut start)?;
    Ok(start.ends_with(b"ustar"))
}

/// The end of the WAL that a backup needs, from the list that `pg_basebackup` puts beside the archives.
fn stop_lsn_in(path: &Path) -> Option<String> {
    const TAIL: u64 = 4096;
    const KEY: &str = "\"End-LSN\": \"";
    let file = Some(path).filter(|path| is_file(path)).and_then(|path| store::open(path).ok())?;
    let bytes = file.bytes().ok()?;
    let mut tail = Vec::new();
    let at = bytes.saturating_sub(TAIL);
    At { file: &file, at }.take(TAIL).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail).into_owned();
    let from = tail.rfind(KEY)? + KEY.len();
    Some(tail.get(from..)?.split('"').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_named_after_what_is_in_it() {
        let of = |name: &str| below(Path::new(name)).display().to_string();
        assert_eq!((of("/b/base.tar"), of("/b/16400.tar.gz")), (String::new(), "pg_tblspc/16400".into()));
        assert_eq!((of("/b/pg_wal.tar.zst"), of("/b/x16400.tar")), ("pg_wal".into(), String::new()));
        assert_eq!((of("/b/16400_0001.tar.gz"), of("/b/data_0012.tar")), ("pg_tblspc/16400".into(), String::new()));
    }
}

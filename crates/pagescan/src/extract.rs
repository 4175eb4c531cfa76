//! Files of a backup put into a folder, under the names that they have in a data directory, so that they can be read as those of one.
//!
//! Only those that are asked for. Those of an incremental backup (17 and later), or of a delta backup of WAL-G, are put together from it and
//! the backups that it is based on, as `pg_combinebackup` does: a block is taken from the newest backup that has it, and one that none has is
//! zeros. What a backup keeps as a file of its own with the same bytes is not copied: a link leads to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{symlink, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use leadline_backup::{copied, is_file, is_stored, Backup, GoOn, Passphrase, Unread};
use leadline_datadir::Lsn;
use leadline_errors::{Error, Kind};
use leadline_page::postgres::{Control, ControlState};
use parking_lot::Mutex;

use crate::incremental::{incremental_path, plain_path, Stored};
use crate::layout::{layout_of, Layout};

const CONTROL: &str = "global/pg_control";
const LABEL: &str = "backup_label";
/// Bytes that are copied at once: some pages, of whatever size.
const PIECE: usize = 1 << 20;
const CANNOT_COMBINE: &str = "the backups cannot be combined";

/// A file that can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extractable {
    /// In the data directory.
    pub name: PathBuf,
    /// How many bytes it takes at most when it is put into a folder; none where a link is enough.
    pub bytes: u64,
}

/// A backup, and those that it is based on, the newest first.
pub struct Extract {
    backups: Vec<OneBackup>,
    layout: Layout,
}

/// One of them.
struct OneBackup {
    path: PathBuf,
    backup: Box<dyn Backup>,
    /// The number of each member by its name in the data directory. Of several of one name the last counts, as for `tar -x`.
    numbers: BTreeMap<PathBuf, usize>,
    /// Where the data directory is in it.
    root: PathBuf,
}

/// Where a backup begins: its own backup_label says it, and so does the backup that is based on it.
#[derive(Debug, Clone, Copy)]
struct Point {
    lsn: Lsn,
    /// Not said by WAL-G.
    timeline: Option<u32>,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.lsn)?;
        self.timeline.map_or(Ok(()), |timeline| write!(f, " on timeline {timeline}"))
    }
}

/// What is not there yet of a file of which blocks changed.
struct Partly {
    /// Which blocks are there of those that the newest backup may have left to the earlier ones.
    have: Vec<bool>,
}

impl Extract {
    /// The backup at `path`; None where it is a data directory that is read in place, or nothing that is known. `bases`: of an incremental
    /// backup those that it is based on, the oldest first; None: only what is in it itself is wanted.
    ///
    /// # Errors
    /// When a backup cannot be read, the backups do not follow each other, or `go_on` said no.
    pub fn open(
        path: &Path,
        bases: Option<&[PathBuf]>,
        key: Option<&Passphrase>,
        go_on: &GoOn,
    ) -> Result<Option<Extract>, Error> {
        let Some(newest) = OneBackup::open(path, key, go_on)? else {
            return match bases {
                None | Some([]) => Ok(None),
                Some(_) => Err(not_incremental(path)),
            };
        };
        let is_alone = bases.is_none();
        let (bases, is_incremental) = (bases.unwrap_or_default(), newest.is_incremental());
        let is_copy = is_file(&path.join("PG_VERSION"));
        if !is_incremental && !bases.is_empty() {
            return Err(not_incremental(path));
        }
        if is_copy && !is_incremental && !is_stored(path) {
            return Ok(None);
        }
        let mut backups = vec![newest];
        let mut given = bases.iter().rev();
        while let Some(oldest) = backups.last().filter(|oldest| !is_alone && oldest.is_incremental()) {
            let named = given.next().cloned();
            let said = oldest.backup.based_on().filter(|_| bases.is_empty());
            let Some(base) = named.clone().or(said) else { return Err(oldest.lacks_base()) };
            let found = OneBackup::open(&base, key, go_on)?.ok_or_else(|| match named {
                Some(_) => Error::new(Kind::Invalid, "this is no backup").at(&base),
                None => oldest.lacks(
                    Kind::NotFound,
                    "the backup that this one is based on is not there",
                    base.display().to_string(),
                ),
            })?;
            found.must_precede(oldest)?;
            backups.push(found);
        }
        if let Some(more) = given.next() {
            return Err(Error::new(Kind::Usage, CANNOT_COMBINE)
                .detail("it is older than the full backup that the others are based on")
                .hint("name the full backup first, then the incremental ones that follow it, each once")
                .at(more));
        }
        let control = backups.first().and_then(|newest| newest.small(CONTROL)).and_then(|b| Control::parse(&b).ok());
        Ok(Some(Extract { layout: layout_of(control.as_ref(), None)?, backups }))
    }

    /// What it is, for people.
    pub fn kind(&self) -> &'static str {
        self.backups.first().map_or("", |newest| newest.backup.kind())
    }

    /// The files of the cluster.
    pub fn files(&self) -> Vec<Extractable> {
        let Some(newest) = self.backups.first() else { return Vec::new() };
        let file = |(name, number): (&PathBuf, &usize)| {
            let is_link = plain_path(name).is_none() && newest.backup.stored_as(*number).is_some();
            let name = plain_path(name).unwrap_or_else(|| name.clone());
            Extractable { bytes: if is_link { 0 } else { self.at_most(&name) }, name }
        };
        let unchanged = newest.backup.unchanged().iter().filter(|name| newest.find(name).is_none());
        let unchanged = unchanged.map(|name| Extractable { name: name.clone(), bytes: self.at_most(name) });
        newest.numbers.iter().map(file).chain(unchanged).collect()
    }

    /// Bytes of a file: no more than there are of it up to the backup that has the whole of it.
    fn at_most(&self, name: &Path) -> u64 {
        let mut bytes = 0;
        for of in &self.backups {
            let Some(number) = of.find(name) else { continue };
            bytes += of.bytes(number);
            if !of.is_increment(number) {
                break;
            }
        }
        bytes
    }

    /// The bytes of a small file (PG_VERSION, pg_control, backup_label, pg_filenode.map), where there is one.
    pub fn small(&self, name: &str) -> Option<Vec<u8>> {
        self.backups.first()?.small(name)
    }

    /// What cannot be had, and why.
    pub fn unread(&self) -> Vec<Unread> {
        self.backups.iter().flat_map(|of| of.backup.unread().iter().cloned()).collect()
    }

    /// Puts files into a folder; what could not be read of them. Bytes before those are there.
    ///
    /// # Errors
    /// When the folder cannot be written to, or `go_on` said no.
    pub fn extract(&self, into: &Path, names: &BTreeSet<PathBuf>, go_on: &GoOn) -> Result<Vec<Unread>, Error> {
        let work = Work {
            into,
            layout: self.layout,
            go_on,
            stop: AtomicBool::new(false),
            left: Mutex::new(names.iter().map(|name| (name.clone(), None)).collect()),
            lost: Mutex::default(),
        };
        for of in &self.backups {
            let mut wanted = BTreeMap::new();
            work.left.lock().retain(|name, _| {
                let (number, is_unchanged) = (of.find(name), of.backup.unchanged().contains(name));
                if let Some(number) = number {
                    wanted.insert(number, name.clone());
                } else if !is_unchanged {
                    let why = format!("{} does not have it, or its blocks that did not change", of.path.display());
                    work.lost.lock().push(Unread { name: name.clone(), why });
                }
                number.is_some() || is_unchanged
            });
            work.read(of, &wanted)?;
        }
        let left = work.left.lock().drain().map(|(name, _)| name).collect::<BTreeSet<_>>();
        let why = "an earlier backup has it, or its blocks that did not change";
        work.lost.lock().extend(left.into_iter().map(|name| Unread { name, why: why.into() }));
        if let Some(newest) =
            self.backups.first().filter(|_| self.backups.len() > 1 && names.contains(Path::new(LABEL)))
        {
            // What there is now is not incremental any more, as for pg_combinebackup.
            let path = into.join(LABEL);
            let label = newest.label();
            let kept: String = label.split_inclusive('\n').filter(|line| !line.starts_with("INCREMENTAL ")).collect();
            // It may be a link to that of the backup.
            let made = fs::remove_file(&path).and_then(|()| fs::write(&path, kept));
            made.map_err(|e| cannot_write(&path, &e))?;
        }
        let mut lost = work.lost.into_inner();
        lost.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lost)
    }
}

impl OneBackup {
    /// That of a path; a copied data directory is one, too.
    fn open(path: &Path, key: Option<&Passphrase>, go_on: &GoOn) -> Result<Option<OneBackup>, Error> {
        let is_copy = is_file(&path.join("PG_VERSION"));
        let backup = match is_copy {
            true => Some(copied(path)?),
            false => leadline_backup::open(path, key, go_on)?,
        };
        let Some(backup) = backup else { return Ok(None) };
        let controls = backup.members().iter().filter(|of| of.name.ends_with(CONTROL));
        let root = |name: &Path| name.ancestors().nth(2).map(Path::to_owned).unwrap_or_default();
        let roots: BTreeSet<PathBuf> = controls.map(|of| root(&of.name)).collect();
        let root = match roots.first() {
            None => PathBuf::new(),
            Some(first) if first.as_os_str().is_empty() || roots.len() == 1 => first.clone(),
            Some(_) => {
                let all: Vec<_> = roots.iter().map(|root| root.display().to_string()).collect();
                return Err(Error::new(Kind::Usage, "it has several data directories")
                    .detail(all.join(", "))
                    .hint("extract the one that is meant")
                    .at(path));
            }
        };
        let members = backup.members().iter().enumerate();
        let inside = |name: &Path| name.strip_prefix(&root).ok().map(Path::to_owned);
        let numbers = members.filter_map(|(number, of)| Some((inside(&of.name)?, number))).collect();
        Ok(Some(OneBackup { path: path.to_owned(), backup, numbers, root }))
    }

    fn bytes(&self, number: usize) -> u64 {
        self.backup.members().get(number).map_or(0, |member| member.bytes)
    }

    /// The member that has a file of the cluster, or the blocks of it that changed.
    fn find(&self, name: &Path) -> Option<usize> {
        self.numbers.get(name).or_else(|| self.numbers.get(&incremental_path(name)?)).copied()
    }

    fn is_increment(&self, number: usize) -> bool {
        self.backup.members().get(number).is_some_and(|of| plain_path(&of.name).is_some())
    }

    fn small(&self, name: &str) -> Option<Vec<u8>> {
        self.backup.small(&self.root.join(name))
    }

    fn label(&self) -> String {
        String::from_utf8_lossy(&self.small(LABEL).unwrap_or_default()).into_owned()
    }

    fn is_incremental(&self) -> bool {
        self.from().is_some() || self.backup.based_on().is_some()
    }

    /// Where the backup begins that an incremental one is based on.
    fn from(&self) -> Option<Point> {
        let said = || Some(Point { lsn: self.backup.changes_since()?.parse().ok()?, timeline: None });
        point(&self.label(), "INCREMENTAL FROM LSN: ", "INCREMENTAL FROM TLI: ").or_else(said)
    }

    fn lacks_base(&self) -> Error {
        let since = self.from().map_or_else(String::new, |from| format!(" since {}", from.lsn));
        let detail = format!("it has only what changed{since}");
        self.lacks(Kind::Unsupported, "this is an incremental backup", detail)
    }

    fn lacks(&self, kind: Kind, message: &'static str, detail: String) -> Error {
        Error::new(kind, message)
            .detail(detail)
            .hint("name the backups that it is based on, the full one first: --based-on FULL --based-on INCREMENTAL")
            .at(&self.path)
    }

    /// Whether this is the backup that a later one is based on.
    fn must_precede(&self, later: &OneBackup) -> Result<(), Error> {
        let Some(wanted) = later.from() else {
            return Err(Error::new(Kind::Unsupported, "this backup has only what changed since another one")
                .detail("it does not say where that one begins")
                .hint("restore it with its own tool")
                .at(&later.path));
        };
        let refused = |detail: String| {
            Err(Error::new(Kind::Usage, CANNOT_COMBINE)
                .detail(detail)
                .hint("name the full backup first, then the incremental ones that follow it, each once")
                .at(&self.path))
        };
        let identifier =
            |of: &OneBackup| ControlState::parse(&of.small(CONTROL)?).ok().map(|state| state.system_identifier);
        match (identifier(self), identifier(later)) {
            (Some(own), Some(other)) if own != other => {
                return refused(format!("it is of system {own}, {} of system {other}", later.path.display()));
            }
            _ => {}
        }
        match point(&self.label(), "START WAL LOCATION: ", "START TIMELINE: ") {
            None => refused("it has no backup_label that says where it begins".into()),
            Some(found) if found.lsn == wanted.lsn && wanted.timeline.is_none_or(|of| found.timeline == Some(of)) => {
                Ok(())
            }
            Some(found) => refused(format!(
                "it begins at {found}, but {} is based on the one that begins at {wanted}",
                later.path.display(),
            )),
        }
    }
}

fn cannot_write(path: &Path, e: &io::Error) -> Error {
    Error::new(Kind::Storage, "cannot write a file of the backup")
        .detail(e.to_string())
        .hint("set TMPDIR to a folder with more space")
        .at(path)
}

fn not_incremental(path: &Path) -> Error {
    Error::new(Kind::Usage, "this is not an incremental backup: it is based on no other").at(path)
}

fn point(label: &str, lsn: &str, timeline: &str) -> Option<Point> {
    let value = |key: &str| label.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next());
    Some(Point { lsn: value(lsn)?.parse().ok()?, timeline: value(timeline).and_then(|number| number.parse().ok()) })
}

/// What threads share that read one backup.
struct Work<'w> {
    into: &'w Path,
    layout: Layout,
    go_on: &'w GoOn<'w>,
    /// One of them failed.
    stop: AtomicBool,
    /// Files that are not whole yet; none of those of which nothing is there.
    left: Mutex<HashMap<PathBuf, Option<Partly>>>,
    lost: Mutex<Vec<Unread>>,
}

/// Why a copy ended early.
enum Ended {
    Reading(io::Error),
    Writing(io::Error),
    Asked,
}

impl Work<'_> {
    /// Reads the wanted members of a backup, by their numbers.
    fn read(&self, of: &OneBackup, wanted: &BTreeMap<usize, PathBuf>) -> Result<(), Error> {
        let (next, left) = (AtomicUsize::new(0), AtomicUsize::new(wanted.len()));
        let work = || -> Result<(), Error> {
            while left.load(Relaxed) > 0 && !self.stop.load(Relaxed) {
                let part = next.fetch_add(1, Relaxed);
                if part >= of.backup.parts() {
                    break;
                }
                of.backup.read(part, &|number| wanted.contains_key(&number), &mut |number, input| {
                    if let Some(name) = wanted.get(&number) {
                        self.member(of, number, name, input)?;
                        left.fetch_sub(1, Relaxed);
                    }
                    Ok(left.load(Relaxed) > 0 && !self.stop.load(Relaxed))
                })?;
            }
            Ok(())
        };
        let stopping = || {
            let done = work();
            self.stop.fetch_or(done.is_err(), Relaxed);
            done
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(of.backup.parts());
        thread::scope(|scope| {
            // This thread works, too: only the first one of a process is told of Ctrl-C.
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(stopping)).collect();
            let own = stopping();
            let join = |other: thread::ScopedJoinHandle<'_, Result<(), Error>>| {
                other.join().unwrap_or_else(|panic| Err(Error::fault("reads a backup", panic.as_ref())))
            };
            others.into_iter().map(join).fold(own, Result::and)
        })
    }

    fn member(&self, of: &OneBackup, number: usize, name: &Path, input: &mut dyn Read) -> Result<(), Error> {
        let path = self.into.join(name);
        let partly = self.left.lock().remove(name).flatten();
        let done = match (partly, of.is_increment(number)) {
            (None, false) => match of.backup.stored_as(number) {
                Some(stored) => self.link(stored, &path).map_err(Ended::Writing),
                None => self.whole(&path, input),
            },
            (None, true) => self.newest(&path, name, input),
            (Some(partly), true) => self.older(&path, name, partly, input),
            (Some(partly), false) => self.full(&path, &partly, input),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Ended::Reading(e)) => {
                self.lost.lock().push(Unread { name: name.to_owned(), why: e.to_string() });
                Ok(())
            }
            Err(Ended::Writing(e)) => Err(cannot_write(&path, &e)),
            Err(Ended::Asked) => Err(Error::new(Kind::Gone, "interrupted")),
        }
    }

    fn create(&self, path: &Path) -> Result<File, Ended> {
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| File::create(path));
        made.map_err(Ended::Writing)
    }

    fn link(&self, stored: &Path, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        symlink(std::path::absolute(stored)?, path)
    }

    /// A file that the backup has as it is.
    fn whole(&self, path: &Path, input: &mut dyn Read) -> Result<(), Ended> {
        let file = self.create(path)?;
        let mut at = 0;
        self.pieces(input, |bytes| {
            file.write_all_at(bytes, at).map_err(Ended::Writing)?;
            at += bytes.len() as u64;
            Ok(())
        })
    }

    /// The blocks of a file that changed last.
    fn newest(&self, path: &Path, name: &Path, input: &mut dyn Read) -> Result<(), Ended> {
        let file = self.create(path)?;
        let stored = self.stored(input)?;
        let bytes = u64::from(stored.combined_blocks()) * u64::from(self.layout.block_size);
        file.set_len(bytes).map_err(Ended::Writing)?;
        let mut partly = Partly { have: vec![false; stored.least as usize] };
        let done = self.blocks(&file, &stored, input, |block| {
            partly.have.get_mut(block as usize).is_none_or(|have| !std::mem::replace(have, true))
        });
        self.leave(name, partly);
        done
    }

    /// Those that changed before.
    fn older(&self, path: &Path, name: &Path, mut partly: Partly, input: &mut dyn Read) -> Result<(), Ended> {
        let file = File::options().write(true).open(path).map_err(Ended::Writing)?;
        let stored = self.stored(input)?;
        let done = self.blocks(&file, &stored, input, |block| {
            partly.have.get_mut(block as usize).is_some_and(|have| !std::mem::replace(have, true))
        });
        // The file ended there: what still earlier backups have behind that was cut off, and is zeros.
        partly.have.iter_mut().skip(stored.least as usize).for_each(|have| *have = true);
        self.leave(name, partly);
        done
    }

    /// To the backups before this one.
    fn leave(&self, name: &Path, partly: Partly) {
        if partly.have.contains(&false) {
            self.left.lock().insert(name.to_owned(), Some(partly));
        }
    }

    /// Those that did not change.
    fn full(&self, path: &Path, partly: &Partly, input: &mut dyn Read) -> Result<(), Ended> {
        let file = File::options().write(true).open(path).map_err(Ended::Writing)?;
        let mut block = 0;
        self.pages(input, |page| {
            if partly.have.get(block) == Some(&false) {
                file.write_all_at(page, (block * page.len()) as u64).map_err(Ended::Writing)?;
            }
            block += 1;
            Ok(())
        })
    }

    fn stored(&self, input: &mut dyn Read) -> Result<Stored, Ended> {
        let read = Stored::read_from(input, self.layout).map_err(Ended::Reading)?;
        read.map_err(|wrong| {
            let what =
                format!("its list of blocks is damaged: {} is {}, not {}", wrong.what, wrong.found, wrong.wanted);
            Ended::Reading(io::Error::new(ErrorKind::InvalidData, what))
        })
    }

    /// Writes the pages that follow a list of blocks, of those that are wanted.
    fn blocks(
        &self,
        file: &File,
        stored: &Stored,
        input: &mut dyn Read,
        mut is_wanted: impl FnMut(u32) -> bool,
    ) -> Result<(), Ended> {
        let mut numbers = stored.blocks.iter();
        self.pages(input, |page| match numbers.next() {
            Some(block) if is_wanted(*block) => {
                file.write_all_at(page, u64::from(*block) * page.len() as u64).map_err(Ended::Writing)
            }
            _ => Ok(()),
        })?;
        match numbers.len() {
            0 => Ok(()),
            left => {
                let what = format!("it is cut off: {left} of its {} blocks are missing", stored.blocks.len());
                Err(Ended::Reading(io::Error::new(ErrorKind::UnexpectedEof, what)))
            }
        }
    }

    /// Gives the whole pages of a stream.
    fn pages(&self, input: &mut dyn Read, mut take: impl FnMut(&[u8]) -> Result<(), Ended>) -> Result<(), Ended> {
        let size = self.layout.block_size as usize;
        self.pieces(input, |bytes| bytes.chunks_exact(size).try_for_each(&mut take))
    }

    /// Gives a stream in pieces of some pages, the last of which may be shorter.
    fn pieces(&self, input: &mut dyn Read, mut take: impl FnMut(&[u8]) -> Result<(), Ended>) -> Result<(), Ended> {
        let mut piece = Vec::with_capacity(PIECE);
        loop {
            if !(self.go_on)() {
                return Err(Ended::Asked);
            }
            // What came before the end of a stream that fails is taken, too.
            piece.clear();
            let read = input.take(PIECE as u64).read_to_end(&mut piece);
            if !piece.is_empty() {
                take(&piece)?;
            }
            match read {
                Err(e) => return Err(Ended::Reading(e)),
                Ok(0) => return Ok(()),
                Ok(_) => {}
            }
        }
    }
}

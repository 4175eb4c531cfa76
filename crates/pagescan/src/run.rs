//! One pass over many files by several threads: pieces of a quarter of a megabyte, handed out in order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use leadline_backup::{GoOn, Passphrase};
use leadline_bytes::ReadBuffer;
use leadline_errors::Error;
use leadline_page::postgres::{Header, Kind, Verdict};
use leadline_page::Wrong;
use parking_lot::Mutex;

use crate::backups::{ended_by, is_written_again, BackupFiles};
use crate::error::cannot_read;
use crate::files::RelationFile;
use crate::hole::{hole_at, is_sparse};
use crate::incremental::Stored;
use crate::layout::read_at;
use crate::passed::PassedOver;
use crate::plan::{Plan, Stretch, Task, Work};
use crate::reread::{check_fast, look_again, LOOKS};
use crate::segments::{gap_before, too_long};
use crate::tables::Tables;

/// Bytes read at a time. Small enough to stay in the processor's cache between reading and checking.
const PIECE: u64 = 1 << 18;
/// Problems waiting to be taken; the threads wait when nobody takes them, so that memory stays bounded.
const WAITING: usize = 1024;

/// Something wrong in one page of one file.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Block within the file.
    pub block: u32,
    /// Kind of page.
    pub kind: &'static str,
    /// What is wrong; its offset counts from the beginning of the page.
    pub wrong: Wrong,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Status {
    /// Threads still work.
    pub running: bool,
    /// Bytes looked at.
    pub bytes: u64,
    /// Bytes there are.
    pub total_bytes: u64,
    /// Problems found.
    pub problems: u64,
}

/// What was seen, in sum.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Files looked at.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Whole pages.
    pub pages: u64,
    /// Line pointers.
    pub items: u64,
    /// Pages whose checksum was compared.
    pub checksums: u64,
    /// Pages of each kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Problems of each class.
    pub classes: BTreeMap<&'static str, u64>,
    /// Rows written of each table.
    pub rows: BTreeMap<&'static str, u64>,
    /// Files that were gone when their turn came: a running server dropped them.
    pub vanished: u64,
    /// Links of tablespaces that lead nowhere: what is there was not looked at.
    pub absent: Vec<PathBuf>,
    /// Files that were not looked at.
    pub passed: PassedOver,
    /// Files of an incremental backup among those that were: they have some blocks of their relation's file.
    pub incremental: u64,
    /// Pieces that were shorter than their file had been: a running server cut it off, or something else did.
    pub shrunk: u64,
    /// Backups whose files were read in place, and what each is.
    pub backups: Vec<(PathBuf, &'static str)>,
    /// Pages of backups with a wrong checksum that were changed while the backup was taken: the WAL has the whole of each.
    pub written_again: u64,
    /// Files of backups whose bytes have the digest that the list of the backup has, also those without pages.
    pub digests: u64,
}

impl Summary {
    fn add(&mut self, other: &Summary) {
        self.bytes += other.bytes;
        self.pages += other.pages;
        self.items += other.items;
        self.checksums += other.checksums;
        self.vanished += other.vanished;
        self.shrunk += other.shrunk;
        self.written_again += other.written_again;
        self.digests += other.digests;
        let maps =
            [(&mut self.kinds, &other.kinds), (&mut self.classes, &other.classes), (&mut self.rows, &other.rows)];
        for (mine, theirs) in maps {
            theirs.iter().for_each(|(name, n)| *mine.entry(name).or_default() += n);
        }
    }
}

/// What the threads share.
pub(crate) struct Shared {
    plan: Arc<Plan>,
    work: Work,
    next: Mutex<Next>,
    next_part: AtomicUsize,
    stop: AtomicBool,
    running: AtomicUsize,
    bytes: AtomicU64,
    problems: AtomicU64,
    summary: Mutex<Summary>,
    error: Mutex<Option<Error>>,
}

/// The next piece to be handed out, of a stretch by its number.
struct Next {
    stretch: usize,
    offset: u64,
}

/// How to look at pages.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The size of pages, where somebody knows it better than the files.
    pub block_size: Option<u32>,
    /// How many threads; at least one.
    pub threads: usize,
    /// That of encrypted backups.
    pub key: Option<Passphrase>,
}

/// A pass over files, in threads of its own.
pub struct Run {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    problems: Receiver<Problem>,
}

impl Run {
    /// Starts to look at all pages of `paths`. `go_on` is asked while backups are listed, which may take long.
    ///
    /// # Errors
    /// When a path has no pages; what fails later is told by [`Run::finish`].
    pub fn start(paths: &[PathBuf], options: Options, go_on: &GoOn) -> Result<Run, Error> {
        let plan = Plan::of(paths, options.block_size, options.key.as_ref(), go_on)?;
        let work = plan.all();
        Ok(Run::over(Arc::new(plan), work, None, options.threads))
    }

    /// Starts to look at the pages of one task, in one thread, and writes their rows into a folder. The table of files is not written.
    ///
    /// # Errors
    /// When it is a task of another plan.
    pub fn of_task(plan: Arc<Plan>, task: &Task, folder: PathBuf) -> Result<Run, Error> {
        let work = plan.work_of(task)?;
        Ok(Run::over(plan, work, Some(folder), 1))
    }

    fn over(plan: Arc<Plan>, work: Work, folder: Option<PathBuf>, threads: usize) -> Run {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            next: Mutex::new(Next { stretch: 0, offset: work.stretches.first().map_or(0, |stretch| stretch.from) }),
            stop: AtomicBool::new(false),
            running: AtomicUsize::new(threads),
            bytes: AtomicU64::new(0),
            problems: AtomicU64::new(0),
            summary: Mutex::new(Summary {
                files: plan.files() as u64,
                incremental: plan.incremental() as u64,
                absent: plan.absent.clone(),
                passed: plan.passed.clone(),
                backups: plan.backups(),
                ..Summary::default()
            }),
            error: Mutex::new(None),
            next_part: AtomicUsize::new(0),
            plan,
            work,
        });
        let (sender, problems) = sync_channel(WAITING);
        let start = |_| {
            let (shared, sender, folder) = (Arc::clone(&shared), sender.clone(), folder.clone());
            std::thread::spawn(move || {
                let mut worker = Worker {
                    shared: &shared,
                    sender,
                    summary: Summary::default(),
                    buffer: ReadBuffer::new(PIECE as usize),
                };
                if let Err(e) = worker.work(folder) {
                    shared.stop.store(true, Relaxed);
                    shared.error.lock().get_or_insert(e);
                }
                shared.summary.lock().add(&worker.summary);
                shared.running.fetch_sub(1, Relaxed);
            })
        };
        let threads = (0..threads).map(start).collect();
        Run { shared, threads, problems }
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        Status {
            running: self.shared.running.load(Relaxed) > 0,
            bytes: self.shared.bytes.load(Relaxed),
            total_bytes: self.shared.work.bytes,
            problems: self.shared.problems.load(Relaxed),
        }
    }

    /// Problems found since the last call, `most` of them at most; waits up to `wait` for the first. None: there will be
    /// no more.
    pub fn take(&self, most: usize, wait: Duration) -> Option<Vec<Problem>> {
        match self.problems.recv_timeout(wait) {
            Ok(first) => Some(std::iter::once(first).chain(self.problems.try_iter()).take(most.max(1)).collect()),
            Err(RecvTimeoutError::Timeout) => Some(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Tells the threads to stop soon.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }

    /// Waits for the threads, and gives what was seen in sum. Problems nobody took are dropped.
    ///
    /// # Errors
    /// The first that ended a thread.
    pub fn finish(mut self) -> Result<Summary, Error> {
        let threads = std::mem::take(&mut self.threads);
        while self.take(WAITING, Duration::from_millis(50)).is_some() {}
        let panics: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().err()).collect();
        if let Some(panic) = panics.first() {
            return Err(Error::fault("looked at pages", &**panic));
        }
        match self.shared.error.lock().take() {
            Some(e) => Err(e),
            None => Ok(self.shared.summary.lock().clone()),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A file being read.
struct Open {
    file: File,
    /// Parts of it may be holes.
    sparse: bool,
    /// Which blocks it has, where it does not have all, or why that is not known.
    stored: Option<Result<Stored, Wrong>>,
}

/// Where pages were read.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// In a file, which can be read again.
    File(&'a File),
    /// In a backup, with the changes that were made while it was taken.
    Backup(Option<&'a RangeInclusive<u64>>),
}

/// Reads until the buffer is full or the stream ends: how many bytes, and what ended it early.
fn read_full(input: &mut dyn Read, into: &mut [u8]) -> (usize, Option<std::io::Error>) {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return (done, Some(e)),
        }
    }
    (done, None)
}

/// One thread.
struct Worker<'s> {
    shared: &'s Arc<Shared>,
    sender: SyncSender<Problem>,
    summary: Summary,
    buffer: ReadBuffer,
}

impl<'s> Worker<'s> {
    fn work(&mut self, folder: Option<PathBuf>) -> Result<(), Error> {
        let mut tables = folder.map(|folder| Tables::create(&folder)).transpose()?;
        let mut open: Option<(usize, Open)> = None;
        while let Some((at, offset)) = self.next_piece() {
            let shared = self.shared;
            let Stretch { file: number, to, .. } = shared.work.stretches[at];
            let about = &shared.plan.files[number];
            let opened = match open.take() {
                Some((n, opened)) if n == number => opened,
                _ => match File::open(&about.path) {
                    Ok(file) => {
                        let stored = about.stored(&file)?;
                        // Who writes tables has a row for each page, also of a hole.
                        let sparse = tables.is_none() && stored.is_none() && is_sparse(&file);
                        Open { file, sparse, stored }
                    }
                    Err(e) if e.kind() == ErrorKind::NotFound => {
                        self.summary.vanished += u64::from(offset == 0);
                        shared.bytes.fetch_add(PIECE.min(to - offset), Relaxed);
                        continue;
                    }
                    Err(source) => return Err(cannot_read(&about.path, &source)),
                },
            };
            if offset == 0 {
                if let Some((path, wrong)) = gap_before(about) {
                    self.report(&path, 0, "unknown", wrong);
                }
                if let Some(wrong) = too_long(about) {
                    self.report(&about.path, 0, "unknown", wrong);
                }
            }
            let stored = match &opened.stored {
                None => None,
                Some(Ok(stored)) => {
                    if let Some(wrong) =
                        stored.wrong_length(about.layout.block_size, about.bytes).filter(|_| offset == 0)
                    {
                        self.report(&about.path, 0, "file", wrong);
                    }
                    Some(stored)
                }
                // Which blocks its pages are is not known.
                Some(Err(wrong)) => {
                    if offset == 0 {
                        self.report(&about.path, 0, "file", wrong.clone());
                    }
                    shared.bytes.fetch_add(PIECE.min(to - offset), Relaxed);
                    open = Some((number, opened));
                    continue;
                }
            };
            if !opened.sparse || !self.hole(at, about, &opened.file, offset..to) {
                self.piece(number, &opened.file, stored, offset..to, tables.as_mut())?;
            }
            open = Some((number, opened));
        }
        while let Some((of, part)) = self.next_part() {
            if part == 0 {
                of.wrong.iter().for_each(|(path, wrong)| self.report(path, 0, "file", wrong.clone()));
            }
            of.backup.read(part, &|_| true, &mut |member, input| {
                let read_whole = match of.files.get(member).copied().flatten() {
                    Some(number) => self.member(number, input, of.meanwhile.as_ref(), tables.as_mut())?,
                    None => of.backup.has_digests() && self.other_member(of, member, input),
                };
                self.summary.digests += u64::from(of.backup.has_digests() && read_whole);
                Ok(!self.shared.stop.load(Relaxed))
            })?;
        }
        if let Some(tables) = tables {
            let rows = tables.close()?;
            rows.into_iter().for_each(|(name, n)| *self.summary.rows.entry(name).or_default() += n);
        }
        Ok(())
    }

    fn next_piece(&self) -> Option<(usize, u64)> {
        let mut next = self.shared.next.lock();
        loop {
            if self.shared.stop.load(Relaxed) {
                return None;
            }
            let stretches = &self.shared.work.stretches;
            if next.offset < stretches.get(next.stretch)?.to {
                let piece = (next.stretch, next.offset);
                next.offset += PIECE;
                return Some(piece);
            }
            let stretch = next.stretch + 1;
            *next = Next { stretch, offset: stretches.get(stretch).map_or(0, |stretch| stretch.from) };
        }
    }

    /// The next part of a backup.
    fn next_part(&self) -> Option<(&'s BackupFiles, usize)> {
        let shared: &'s Shared = self.shared;
        if shared.stop.load(Relaxed) {
            return None;
        }
        let (backup, part) = *shared.work.parts.get(shared.next_part.fetch_add(1, Relaxed))?;
        Some((shared.plan.backups.get(backup)?, part))
    }

    /// A file of a backup that has no pages: whether its bytes are those that they should be.
    fn other_member(&mut self, of: &BackupFiles, member: usize, input: &mut dyn Read) -> bool {
        let Err(e) = std::io::copy(input, &mut std::io::sink()) else { return true };
        let path = of.backup.members().get(member).map_or_else(|| of.path.clone(), |about| of.path.join(&about.name));
        self.report(&path, 0, "file", ended_by("file", &e));
        false
    }

    /// A file of a backup, from its front; whether all of it was read.
    fn member(
        &mut self,
        number: usize,
        input: &mut dyn Read,
        meanwhile: Option<&RangeInclusive<u64>>,
        mut tables: Option<&mut Tables>,
    ) -> Result<bool, Error> {
        let shared = self.shared;
        let about = &shared.plan.files[number];
        if let Some(wrong) = too_long(about) {
            self.report(&about.path, 0, "unknown", wrong);
        }
        let stored = match about.incremental.then(|| Stored::read_from(input, about.layout)) {
            None => None,
            Some(Ok(Ok(stored))) => {
                if let Some(wrong) = stored.wrong_length(about.layout.block_size, about.bytes) {
                    self.report(&about.path, 0, "file", wrong);
                }
                Some(stored)
            }
            Some(Ok(Err(wrong))) => {
                self.report(&about.path, 0, "file", wrong);
                return Ok(false);
            }
            Some(Err(e)) => {
                self.report(&about.path, 0, "file", ended_by("file", &e));
                return Ok(false);
            }
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut offset = stored.as_ref().map_or(0, |stored| stored.start);
        let mut is_whole = false;
        while !shared.stop.load(Relaxed) {
            let (read, failed) = read_full(input, buffer.get_mut(..PIECE as usize).unwrap_or_default());
            let bytes = buffer.get_mut(..read).unwrap_or_default();
            let source = Source::Backup(meanwhile);
            self.pages(number, about, bytes, offset, stored.as_ref(), source, tables.as_deref_mut())?;
            if let Some(e) = failed {
                let size = u64::from(about.layout.block_size);
                let at = offset + read as u64;
                let block = stored.as_ref().map_or(Some((at / size) as u32), |s| s.block_at(at, size as u32));
                match ended_by("page", &e) {
                    // All bytes are there, and some of them are others.
                    wrong if wrong.what == "file" => self.report(&about.path, 0, "file", wrong),
                    wrong => self.report(&about.path, block.unwrap_or(0), "unknown", wrong),
                }
                break;
            }
            if read < PIECE as usize {
                is_whole = true;
                self.cut_page(about, stored.as_ref(), offset, read);
                break;
            }
            offset += read as u64;
        }
        self.buffer = buffer;
        Ok(is_whole)
    }

    /// Whether a piece of a stretch is in a hole of its file; then that is counted as new pages up to where it ends, and not read.
    fn hole(
        &mut self,
        stretch: usize,
        about: &RelationFile,
        file: &File,
        Range { start: offset, end: to }: Range<u64>,
    ) -> bool {
        let size = u64::from(about.layout.block_size);
        let end = (offset + PIECE).min(to);
        // A page that is cut off is not passed over.
        let Some(data) = hole_at(file, offset, to).filter(|data| *data >= end && end.is_multiple_of(size)) else {
            return false;
        };
        let (mut bytes, until) = (end - offset, data / PIECE * PIECE);
        let mut next = self.shared.next.lock();
        if next.stretch == stretch && next.offset < until {
            bytes += until - next.offset;
            next.offset = until;
        }
        drop(next);
        self.summary.pages += bytes / size;
        *self.summary.kinds.entry(Kind::New.as_str()).or_default() += bytes / size;
        self.shared.bytes.fetch_add(bytes, Relaxed);
        true
    }

    fn piece(
        &mut self,
        number: usize,
        file: &File,
        stored: Option<&Stored>,
        Range { start: offset, end: to }: Range<u64>,
        tables: Option<&mut Tables>,
    ) -> Result<(), Error> {
        let shared = self.shared;
        let about = &shared.plan.files[number];
        let size = about.layout.block_size as usize;
        // A file may have been looked at while its last page was being added: all of that page is asked for.
        let there = PIECE.min(to - offset) as usize;
        let wanted = there.next_multiple_of(size);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut read = 0;
        for _ in 0..LOOKS {
            let more = read_at(file, buffer.get_mut(read..wanted).unwrap_or_default(), offset + read as u64);
            read += more.map_err(|source| cannot_read(&about.path, &source))?;
            if read % size == 0 {
                break; // else the page behind is being added, or its end is missing
            }
        }
        let pages = buffer.get_mut(..read).unwrap_or_default();
        self.pages(number, about, pages, offset, stored, Source::File(file), tables)?;
        self.summary.shrunk += u64::from(read < there);
        self.cut_page(about, stored, offset, read);
        self.shared.bytes.fetch_add((there - read.min(there)) as u64, Relaxed);
        self.buffer = buffer;
        Ok(())
    }

    /// Whole pages, and what was read of one behind them.
    #[allow(clippy::too_many_arguments)]
    fn pages(
        &mut self,
        number: usize,
        about: &RelationFile,
        bytes: &mut [u8],
        offset: u64,
        stored: Option<&Stored>,
        source: Source,
        mut tables: Option<&mut Tables>,
    ) -> Result<(), Error> {
        let size = about.layout.block_size as usize;
        let block_at = |at: u64| match stored {
            Some(stored) => stored.block_at(at, about.layout.block_size),
            None => Some((at / size as u64) as u32),
        };
        let read = bytes.len();
        for (at, page) in (offset..).step_by(size).zip(bytes.chunks_exact_mut(size)) {
            let Some(block) = block_at(at) else { continue };
            let fork_block = about.fork_block(block);
            let mut verdict = look(page, about, fork_block);
            if !verdict.wrong.is_empty() {
                let is_sound = |v: &Verdict| v.wrong.is_empty();
                match source {
                    Source::File(file) => {
                        let read = |page: &mut [u8]| matches!(read_at(file, page, at), Ok(n) if n == page.len());
                        let changed;
                        (verdict, changed) = look_again(page, verdict, |p| look(p, about, fork_block), is_sound, read);
                        if changed {
                            verdict.wrong.iter_mut().filter(|w| w.class == "checksum").for_each(|w| w.class = "torn");
                        }
                    }
                    Source::Backup(meanwhile) => {
                        let is_torn = verdict.wrong.iter().any(|wrong| matches!(wrong.class, "checksum" | "torn"));
                        if is_torn && is_written_again(meanwhile, page) {
                            verdict.wrong.clear();
                            self.summary.written_again += 1;
                        }
                    }
                }
                for wrong in std::mem::take(&mut verdict.wrong) {
                    self.report(&about.path, block, verdict.kind.as_str(), wrong);
                }
            }
            self.summary.pages += 1;
            let compared = verdict.kind != Kind::New && checksum_block(page, about, fork_block).is_some();
            self.summary.checksums += u64::from(compared);
            self.summary.items += u64::from(verdict.items);
            *self.summary.kinds.entry(verdict.kind.as_str()).or_default() += 1;
            if let Some(tables) = tables.as_deref_mut() {
                tables.page(self.shared.plan.ids[number], fork_block, page, &verdict)?;
            }
        }
        self.summary.bytes += read as u64;
        self.shared.bytes.fetch_add(read as u64, Relaxed);
        Ok(())
    }

    /// A page that the end of what was read cuts off, unless the file is one whose length tells more.
    fn cut_page(&mut self, about: &RelationFile, stored: Option<&Stored>, offset: u64, read: usize) {
        let size = about.layout.block_size as usize;
        let whole = read / size * size;
        if whole < read && stored.is_none() {
            let found = format!("{} bytes", read - whole);
            let wanted = format!("{size} bytes");
            let wrong =
                Wrong { class: "short", what: "page at the end of the file", item: None, offset: 0, wanted, found };
            self.report(&about.path, ((offset + whole as u64) / size as u64) as u32, "unknown", wrong);
        }
    }

    fn report(&mut self, path: &Path, block: u32, kind: &'static str, wrong: Wrong) {
        *self.summary.classes.entry(wrong.class).or_default() += 1;
        self.shared.problems.fetch_add(1, Relaxed);
        // Nobody listens any more: the sums still count it.
        let _ = self.sender.send(Problem { path: path.to_owned(), block, kind, wrong });
    }
}

/// Whether and how the checksum of a page is to be compared: `None` when not.
fn checksum_block(page: &[u8], about: &RelationFile, fork_block: u32) -> Option<u32> {
    let stored = Header::parse(page).map_or(0, |h| h.pd_checksum);
    about.layout.checksums.unwrap_or(stored != 0).then_some(fork_block)
}

fn look(page: &[u8], about: &RelationFile, fork_block: u32) -> Verdict {
    check_fast(page, about.fork, checksum_block(page, about, fork_block))
}

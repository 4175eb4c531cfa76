//! Pages taken forward: each from its last image, or from the file, over its records to the end, and written once.
//!
//! Threads take partitions. No page is in two of them and no page is read to make another, so that neither the number of threads nor
//! the order in which partitions are done changes a byte.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::Mutex;

use leadline_datadir::{BlockId, RelFile};
use leadline_errors::{Error, Kind, Result};
use leadline_page::postgres::checksum;
use leadline_redo::{apply as redo, free_space, Applied, Context, Misfit, Page, Part, Target};
use leadline_wal::rmgr::id;
use leadline_wal::{Decoder, Lsn};

use crate::account::{Phase, Times};
use crate::by_page::{ByPage, Place};
use crate::dealt::Dealt;
use crate::files::{failed, read_page, reading, Cluster};
use crate::lifetime::Lifetimes;
use crate::pieces::{Entry, ForkId, Placed};

const MAIN: u8 = 0;
const FREE_SPACE: u8 = 1;
const VISIBILITY: u8 = 2;
/// Pages written at once.
const RUN: usize = 64;
/// Records that are asked for before it is their turn: as many as can come from memory at once.
const AHEAD: usize = 16;
/// Bytes that a thread writes to a file before the disk is given them.
const SYNC_AFTER: usize = 16 << 20;
/// Files a thread keeps open.
const OPEN_FILES: usize = 200;
/// Major from which on pages that the visibility map is extended by are zeros in the file.
const EXTENDS_WITH_ZEROS: u8 = 16;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages that the log names and keeps.
    pub pages: u64,
    /// Of these, pages written.
    pub written: u64,
    /// Of these, pages read from their file first.
    pub read: u64,
    /// Changes of pages that were applied.
    pub applied: u64,
    /// Of these, those that put a page image in place.
    pub restored: u64,
    /// That were not, because a later image or a new page made them useless.
    pub superseded: u64,
    /// Because the log removes the page later.
    pub removed: u64,
    /// Because the page had them already.
    pub older: u64,
}

impl Work {
    /// What was done since it was `before`.
    fn since(&self, before: &Work) -> Work {
        Work {
            pages: self.pages - before.pages,
            written: self.written - before.written,
            read: self.read - before.read,
            applied: self.applied - before.applied,
            restored: self.restored - before.restored,
            superseded: self.superseded - before.superseded,
            removed: self.removed - before.removed,
            older: self.older - before.older,
        }
    }

    pub(crate) fn add(&mut self, other: &Work) {
        self.pages += other.pages;
        self.written += other.written;
        self.read += other.read;
        self.applied += other.applied;
        self.restored += other.restored;
        self.superseded += other.superseded;
        self.removed += other.removed;
        self.older += other.older;
    }
}

/// Room on a heap page, for the free space map.
type Room = (RelFile, u32, u8, bool);

/// What all threads share.
struct Shared<'a> {
    cluster: &'a Cluster,
    context: &'a Context,
    lifetimes: &'a Lifetimes,
    forks: &'a [ForkId],
    partitions: Vec<Mutex<Vec<Placed>>>,
    next: AtomicUsize,
    stop: AtomicBool,
    done: AtomicU64,
}

/// Applies all that was dealt out. `go_on` gets the records done. Gives what was done to each fork.
pub(crate) fn apply(
    cluster: &Cluster,
    context: &Context,
    lifetimes: &Lifetimes,
    dealt: Dealt,
    threads: usize,
    times: &Times,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<HashMap<ForkId, Work>> {
    let mut partitions = dealt.partitions;
    // The largest first, so that no thread is left alone with one at the end.
    let weight = |placed: &Vec<Placed>| placed.iter().map(|p| p.entries.len()).sum::<usize>();
    partitions.sort_by_cached_key(|placed| std::cmp::Reverse(weight(placed)));
    let shared = Shared {
        cluster,
        context,
        lifetimes,
        forks: &dealt.forks,
        partitions: partitions.into_iter().map(Mutex::new).collect(),
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
    };
    let (send, receive) = mpsc::channel();
    let (sync, to_sync) = mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (shared, send, sync) = (&shared, send.clone(), sync.clone());
            scope.spawn(move || {
                let _clock = times.begin(Phase::Pages);
                let mut worker = Worker::new(shared, sync);
                let outcome = worker.run();
                if outcome.is_err() {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                let _ = send.send(outcome.map(|()| (worker.by_fork, worker.rooms)));
            });
        }
        drop(sync);
        let of_all = &shared;
        scope.spawn(move || {
            let _ = send.send(sync_early(of_all, to_sync).map(|()| (HashMap::new(), Vec::new())));
        });
        let (mut work, mut rooms, mut failed) = (HashMap::<ForkId, Work>::new(), Vec::new(), None::<Error>);
        loop {
            if !go_on(shared.done.load(Ordering::Relaxed)) {
                shared.stop.store(true, Ordering::Relaxed);
                failed.get_or_insert_with(interrupted);
            }
            match receive.recv_timeout(std::time::Duration::from_millis(100)) {
                Ok(Ok((of, found))) => {
                    for (fork, of) in of {
                        work.entry(shared.forks[fork as usize]).or_default().add(&of);
                    }
                    rooms.extend(found);
                }
                Ok(Err(e)) => failed = Some(e),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        failed.map_or(Ok((work, rooms)), Err)
    });
    let (work, rooms) = outcome?;
    note_room(cluster, rooms)?;
    Ok(work)
}

/// Gives the disk something to do while pages are still made. An error ends the work: it is told only once.
fn sync_early(shared: &Shared<'_>, files: Receiver<(File, PathBuf)>) -> Result<()> {
    for (file, path) in files {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        if let Err(e) = file.sync_data() {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(failed("sync", &path, &e));
        }
    }
    Ok(())
}

pub(crate) fn interrupted() -> Error {
    Error::new(Kind::Usage, "interrupted")
        .hint("run the command again, or start the server: its own recovery still works")
}

/// A file, how long it was, and the bytes that were written there since the disk was given some to do.
///
/// What is behind its end does not count: the disk is given that at last and in one piece, so that the file system finds room in one piece.
struct Open {
    file: File,
    length: u64,
    unsynced: usize,
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    decoder: Decoder,
    files: HashMap<(u32, u32), Option<Open>>,
    sync: Sender<(File, PathBuf)>,
    /// Pages in a row that wait to be written: fork, first block, bytes.
    run: (u32, u32, Vec<u8>),
    page: Vec<u8>,
    work: Work,
    by_fork: HashMap<u32, Work>,
    rooms: Vec<Room>,
    by_page: ByPage,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, sync: Sender<(File, PathBuf)>) -> Worker<'a> {
        Worker {
            shared,
            sync,
            decoder: Decoder::default(),
            files: HashMap::new(),
            run: (0, 0, Vec::new()),
            page: vec![0; shared.cluster.block_size],
            work: Work::default(),
            by_fork: HashMap::new(),
            rooms: Vec::new(),
            by_page: ByPage::default(),
        }
    }

    fn run(&mut self) -> Result<()> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(partition) = self.shared.partitions.get(number) else { break };
            let placed = partition.lock().map(|mut p| std::mem::take(&mut *p)).unwrap_or_default();
            self.partition(&placed)?;
            let entries: usize = placed.iter().map(|p| p.entries.len()).sum();
            self.shared.done.fetch_add(entries as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn partition(&mut self, placed: &[Placed]) -> Result<()> {
        let mut by_page = std::mem::take(&mut self.by_page);
        by_page.sort(placed);
        let mut ahead = Ahead { placed, places: by_page.places(), touched: 0 };
        for number in 0..by_page.len() {
            let (fork, block, range) = by_page.page(number);
            let before = self.work;
            self.one_page(fork, block, range, &mut ahead)?;
            let done = self.work.since(&before);
            self.by_fork.entry(fork).or_default().add(&done);
        }
        self.by_page = by_page;
        self.write_run()
    }

    /// Takes one page over its records.
    fn one_page(&mut self, fork: u32, block: u32, mut range: Range<usize>, ahead: &mut Ahead<'_>) -> Result<()> {
        let placed = ahead.placed;
        let (relation, fork_number) = self.shared.forks[fork as usize];
        let cut = self.shared.lifetimes.last_cut(relation, fork_number, block);
        if cut > 0 {
            let start = |place: &Place| place.of(placed).records.start(place.entry(placed));
            let removed = ahead.places[range.clone()].partition_point(|place| start(place).0 < cut);
            self.work.removed += removed as u64;
            range.start += removed;
        }
        if range.is_empty() {
            return Ok(());
        }
        self.work.pages += 1;
        let all = range.clone();
        let starts = |place: &Place| place.entry(placed).starts_page;
        let superseded = ahead.places[range.clone()].iter().rposition(starts);
        self.work.superseded += superseded.unwrap_or(0) as u64;
        range.start += superseded.unwrap_or(0);
        let is_made = superseded.is_some();
        let mut is_in_file = true;
        if !is_made {
            is_in_file = self.read(fork, block)?;
        }
        let mut changed = is_made;
        for at in range {
            ahead.touch(at);
            let place = ahead.places[at];
            let (of, entry) = (place.of(placed), place.entry(placed));
            let outcome = self.one_record(of, entry, is_in_file || changed)?;
            match outcome {
                Applied::Changed | Applied::Restored => {
                    changed = true;
                    self.work.applied += 1;
                    self.work.restored += u64::from(outcome == Applied::Restored);
                }
                Applied::Older => self.work.older += 1,
                Applied::Unchanged => {}
                Applied::Missing => return Err(self.missing(of, entry, fork, block)),
            }
        }
        if fork_number == MAIN && (is_in_file || changed) {
            self.note_room(placed, &ahead.places[all], relation, block, changed);
        }
        if !changed {
            return Ok(());
        }
        self.put(fork, block)
    }

    #[inline]
    fn one_record(&mut self, of: &Placed, entry: &Entry, is_there: bool) -> Result<Applied> {
        let context = self.shared.context;
        let (relation, fork) = self.shared.forks[entry.fork as usize];
        let Worker { decoder, page, .. } = self;
        let record = of.records.decode(decoder, entry, context.major);
        let Some((record, part)) = record.and_then(|record| Some((record, entry.part(&record)?))) else {
            return Err(invalid(of, entry));
        };
        let target = Target { page: BlockId { relation, fork: fork.into(), block: entry.block }, part };
        match part {
            Part::TruncateVisible { .. } | Part::TruncateFreeSpace { .. } if !is_there => {
                return Ok(Applied::Unchanged)
            }
            Part::ClearVisible { .. } if !is_there && context.major < EXTENDS_WITH_ZEROS => {
                // The server extends the map by an empty page.
                if let Ok(mut page) = Page::new(page) {
                    page.init(0).map_err(|misfit| wrong(&misfit, record.start, &target))?;
                }
                return Ok(Applied::Changed);
            }
            _ => {}
        }
        redo(context, &record, &target, page).map_err(|misfit| wrong(&misfit, record.start, &target))
    }

    /// Notes how much room the page has now, when it is one of a heap. Of an image alone nobody knows that, so the last other record
    /// tells, even when a later image or a newer page has made it useless: the map may be older than the page.
    fn note_room(&mut self, placed: &[Placed], places: &[Place], relation: RelFile, block: u32, changed: bool) {
        let major = self.shared.context.major;
        let Worker { decoder, page, rooms, .. } = self;
        for place in places.iter().rev() {
            let record = place.of(placed).records.decode(decoder, place.entry(placed), major);
            match record {
                Some(record) if record.rmid == id::XLOG => {}
                Some(record) if matches!(record.rmid, id::HEAP | id::HEAP2) => {
                    let is_new = changed && free_space::is_recorded(&record, page);
                    rooms.extend(free_space::category(page).map(|category| (relation, block, category, is_new)));
                    return;
                }
                _ => return,
            }
        }
    }

    /// Reads the page; false when the file does not have it.
    fn read(&mut self, fork: u32, block: u32) -> Result<bool> {
        let segment = block / self.shared.cluster.segment_blocks;
        let within = block % self.shared.cluster.segment_blocks;
        let (relation, number) = self.shared.forks[fork as usize];
        let cluster = self.shared.cluster;
        let path = || cluster.file(relation, number, segment);
        let at = u64::from(within) * cluster.block_size as u64;
        let mut page = std::mem::take(&mut self.page);
        let found = match self.file(fork, segment, false)? {
            Some(open) => read_page(&open.file, &path(), at, &mut page),
            None => {
                // Not what the page before has left there.
                page.fill(0);
                Ok(false)
            }
        };
        self.page = page;
        if !found? {
            return Ok(false);
        }
        self.work.read += 1;
        if cluster.checksums && self.page.iter().any(|b| *b != 0) {
            let stored = u16::from_le_bytes([self.page[8], self.page[9]]);
            let computed = checksum(&self.page, block);
            if stored != computed {
                // The server takes a damaged page of a map for an empty one.
                if matches!(number, FREE_SPACE | VISIBILITY) {
                    self.page.fill(0);
                    return Ok(true);
                }
                return Err(Error::new(Kind::Invalid, format!("block {block} of a file has a wrong checksum"))
                    .detail(format!("its checksum is {stored}, computed {computed}; the WAL has no image of the page to restore it from"))
                    .hint("the server's own recovery would stop here too; restore the file from a backup")
                    .at(path()));
            }
        }
        Ok(true)
    }

    /// The open file of a segment; none when there is none and it is not to be made.
    fn file(&mut self, fork: u32, segment: u32, make: bool) -> Result<Option<&mut Open>> {
        let key = (fork, segment);
        if self.files.len() >= OPEN_FILES && !self.files.contains_key(&key) {
            self.files.clear();
        }
        if make && self.files.get(&key).is_some_and(Option::is_none) {
            self.files.remove(&key);
        }
        let Shared { cluster, forks, .. } = self.shared;
        let open = match self.files.entry(key) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let (relation, number) = forks[fork as usize];
                let path = cluster.file(relation, number, segment);
                let opened = if make {
                    Some(cluster.open_or_create(&path)?)
                } else {
                    match OpenOptions::new().read(true).write(true).open(&path) {
                        Ok(file) => Some(file),
                        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                        Err(e) => return Err(reading(&path, &e)),
                    }
                };
                let length = opened.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |about| about.len());
                place.insert(opened.map(|file| Open { file, length, unsynced: 0 }))
            }
        };
        Ok(open.as_mut())
    }

    /// Adds the page to those that wait to be written.
    fn put(&mut self, fork: u32, block: u32) -> Result<()> {
        let cluster = self.shared.cluster;
        let size = cluster.block_size;
        set_checksum(cluster, &mut self.page, block);
        let pages = (self.run.2.len() / size) as u32;
        let follows = pages > 0
            && (pages as usize) < RUN
            && self.run.0 == fork
            && self.run.1 + pages == block
            && !block.is_multiple_of(cluster.segment_blocks);
        if !follows {
            self.write_run()?;
            (self.run.0, self.run.1) = (fork, block);
        }
        self.run.2.extend_from_slice(&self.page);
        self.work.written += 1;
        Ok(())
    }

    fn write_run(&mut self) -> Result<()> {
        let (fork, block, bytes) = (self.run.0, self.run.1, std::mem::take(&mut self.run.2));
        if bytes.is_empty() {
            return Ok(());
        }
        let cluster = self.shared.cluster;
        let segment = block / cluster.segment_blocks;
        let at = u64::from(block % cluster.segment_blocks) * cluster.block_size as u64;
        let (relation, number) = self.shared.forks[fork as usize];
        let mut full = None;
        if let Some(Open { file, length, unsynced }) = self.file(fork, segment, true)? {
            file.write_all_at(&bytes, at).map_err(|e| failed("write", &cluster.file(relation, number, segment), &e))?;
            *unsynced += if at < *length { bytes.len() } else { 0 };
            if *unsynced >= SYNC_AFTER {
                *unsynced = 0;
                full = file.try_clone().ok();
            }
        }
        if let Some(file) = full {
            let _ = self.sync.send((file, cluster.file(relation, number, segment)));
        }
        self.run.2 = bytes;
        self.run.2.clear();
        Ok(())
    }

    #[cold]
    fn missing(&self, of: &Placed, entry: &Entry, fork: u32, block: u32) -> Error {
        let (relation, number) = self.shared.forks[fork as usize];
        let path = self.shared.cluster.first_file(relation, number);
        Error::new(Kind::Invalid, format!("the WAL changes block {block}, which does not exist"))
            .detail("neither the file nor the WAL has the page, and the WAL does not remove the file later")
            .hint("the server's own recovery would stop here too; restore from a backup")
            .at(format!("{}, LSN {}", path.display(), of.records.start(entry)))
    }
}

/// Records that are asked for before it is their turn.
struct Ahead<'a> {
    placed: &'a [Placed],
    places: &'a [Place],
    /// So many have been.
    touched: usize,
}

impl Ahead<'_> {
    /// Asks for those that come soon after this one.
    #[inline]
    fn touch(&mut self, at: usize) {
        if self.touched > at + AHEAD / 2 {
            return;
        }
        let to = (at + AHEAD).min(self.places.len());
        for place in &self.places[self.touched.clamp(at, to)..to] {
            place.of(self.placed).records.touch(place.entry(self.placed));
        }
        self.touched = to;
    }
}

#[cold]
fn invalid(of: &Placed, entry: &Entry) -> Error {
    Error::new(Kind::Invalid, "a record has an invalid format").at(format!("LSN {}", of.records.start(entry)))
}

#[cold]
pub(crate) fn wrong(misfit: &Misfit, lsn: Lsn, target: &Target) -> Error {
    let BlockId { relation, fork, block } = target.page;
    Error::new(Kind::Invalid, "a record does not fit its page")
        .detail(misfit.to_string())
        .hint(
            "the files or the WAL are damaged, or leadline is wrong: start the server, whose own recovery still works",
        )
        .at(format!("relation {relation} fork {fork} block {block}, LSN {lsn}"))
}

/// A page that is all zeros has none.
fn set_checksum(cluster: &Cluster, page: &mut [u8], block: u32) {
    // `PageIsNew`: pd_upper is 0.
    if cluster.checksums && page[14..16] != [0, 0] {
        let sum = checksum(page, block);
        page[8..10].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Writes the room of heap pages into the free space maps: the lowest level, as the server's recovery does.
///
/// A map that has no page for it yet is made longer only where the server would, too.
fn note_room(cluster: &Cluster, mut rooms: Vec<Room>) -> Result<()> {
    rooms.sort_unstable();
    let size = cluster.block_size as u32;
    let leaf = |room: &Room| (room.0, free_space::leaf_of(size, room.1).0);
    for of_page in rooms.chunk_by(|a, b| leaf(a) == leaf(b)) {
        let (relation, block) = leaf(&of_page[0]);
        let has = cluster.blocks(relation, FREE_SPACE)?.unwrap_or(0);
        if block >= has && !of_page.iter().any(|room| room.3) {
            continue;
        }
        let path = cluster.file(relation, FREE_SPACE, block / cluster.segment_blocks);
        let file = cluster.open_or_create(&path)?;
        let at = u64::from(block % cluster.segment_blocks) * cluster.block_size as u64;
        let mut page = vec![0; cluster.block_size];
        let is_damaged = read_page(&file, &path, at, &mut page)?
            && cluster.checksums
            && page.iter().any(|b| *b != 0)
            && page[8..10] != checksum(&page, block).to_le_bytes();
        if is_damaged {
            page.fill(0);
        }
        let mut changed = is_damaged;
        for room in of_page {
            let (_, slot) = free_space::leaf_of(size, room.1);
            match free_space::set(&mut page, slot, room.2) {
                Ok(is_new) => changed |= is_new,
                Err(_) => {
                    // No page of a free space map: nothing relies on it.
                    page.fill(0);
                    changed |= free_space::set(&mut page, slot, room.2).unwrap_or(false);
                }
            }
        }
        if changed {
            set_checksum(cluster, &mut page, block);
            file.write_all_at(&page, at).map_err(|e| failed("write", &path, &e))?;
        }
    }
    Ok(())
}

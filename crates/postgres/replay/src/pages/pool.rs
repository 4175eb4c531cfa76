//! Pages in memory that are rolled forward while the WAL is read.
//!
//! The records of a chunk wait in the queues of their partitions until some chunks have come, so that a page is taken up once for many
//! records; then a partition's pages are taken over all that wait. So the WAL is applied while the processor's cache still has it, its
//! memory is used again, and a record costs no more for being one of a long log. No file is changed before all of the WAL was read.
//!
//! A page belongs to the pool from the first time on that its records are due, or never: when the pool is full, the records of other pages
//! are kept for later. So are those of pages that come new with the last records, since there is nothing more to come for them.
//!
//! In WAL of page images, as after a checkpoint, a page waits for its next records in the form of its image: an image takes less memory
//! than its page, and new memory is what costs most. If no more come, the page is made when it is written.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use leadline_errors::Result;
use leadline_redo::Context;
use parking_lot::{Mutex, RwLock};

use crate::files::cluster::Cluster;
use crate::files::free_space::Room;
use crate::files::truncations::Truncations;
use crate::pages::counts::Work;
use crate::pages::page_replay::{PageReplay, PageState, Prefetcher, Truncation};
use crate::partition::by_page::{some, ByPage, KeyHasher, PageKey, Place};
use crate::partition::partitioned::{Forks, PartitionedRefs};
use crate::partition::record_refs::{ChunkRefs, ForkId, Memory, RecordRef, Records, PARTITIONS};

/// Bytes of a page's state, of its place in a table, and of what the allocator adds.
const PAGE_EXTRA: usize = 192;
/// Chunks of the WAL that wait at most: see [`Turns`].
const WAITING: usize = 16;
/// Chunks of the WAL that wait at first.
const WAITING_AT_FIRST: usize = 2;
/// Records for which it is worth while to take up a page.
const ENOUGH: usize = 32;
/// Records of a page that wait at most, its image among them.
const FEW: usize = 8;

/// See above.
pub(crate) struct Pool {
    block_size: usize,
    /// Pages there may be, and those there are. Once it is full it stays so: a page whose records were kept must not come later.
    most: usize,
    pages: AtomicUsize,
    /// Has the images that wait. Of what is for pages they may take as many bytes as this.
    memory: Arc<Memory>,
    most_waiting: usize,
    turns: Mutex<Turns>,
    partitions: Vec<Partition>,
    forks: RwLock<Forks>,
    truncations: Arc<RwLock<Truncations>>,
    /// Partitions whose turn it is, each up to a chunk.
    due: Mutex<VecDeque<(usize, u64)>>,
    /// Of records kept for later: their bytes, and how often they were handed over.
    kept: AtomicUsize,
    most_kept: usize,
    handed_over: AtomicUsize,
    is_given_up: AtomicBool,
    /// What was done, by the forks' numbers.
    work: Mutex<HashMap<u32, Work>>,
}

/// When a partition is due: with every so manyth chunk, which is how many wait. Of fewer chunks a page is taken up more often. More take
/// memory that has to be made first, and are no longer in the processor's cache when they are due. So there are more where it helps.
struct Turns {
    of: usize,
    most: usize,
    next: usize,
    /// Pages that were taken up since the first turn, and their records.
    pages: usize,
    records: usize,
}

impl Turns {
    fn new(most: usize) -> Turns {
        Turns { of: WAITING_AT_FIRST.min(most), most, next: 0, pages: 0, records: 0 }
    }

    /// The partitions that are due with the next chunk.
    fn next(&mut self) -> impl Iterator<Item = usize> {
        let due = (self.next..PARTITIONS).step_by(self.of);
        self.next += 1;
        if self.next == self.of {
            let is_enough = self.records >= ENOUGH * self.pages;
            let of = if is_enough { self.of } else { self.most.min(2 * self.of) };
            *self = Turns { of, ..Turns::new(self.most) };
        }
        due
    }

    fn took_up(&mut self, pages: usize, records: usize) {
        self.pages += pages;
        self.records += records;
    }
}

#[derive(Default)]
struct Partition {
    /// Pieces of chunks, in the order of the WAL.
    queue: Mutex<Vec<ChunkRefs>>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    places: HashMap<PageKey, At, BuildHasherDefault<KeyHasher>>,
    pages: Vec<(PageKey, PageState)>,
    /// Images of pages, with the few records that came after each. Empty once they are a page.
    waiting: Vec<Vec<ChunkRefs>>,
    /// Records of pages that are not here.
    kept: Vec<ChunkRefs>,
}

/// Where a page is.
#[derive(Debug, Clone, Copy)]
enum At {
    Page(usize),
    Waiting(usize),
}

/// What a thread has to roll pages forward.
pub(crate) struct PageWorker<'a> {
    pool: &'a Pool,
    replay: PageReplay<'a>,
    by_page: ByPage,
    /// Of each page that is due: its fork, and where the WAL removes it last.
    known: Vec<(ForkId, u64)>,
    work: HashMap<u32, Work>,
}

impl Pool {
    /// `memory`: bytes that all of it may take. A half is for pages, an eighth for records that wait, the rest for those that are kept.
    pub(crate) fn new(
        block_size: usize,
        chunk: usize,
        memory: usize,
        of_log: Arc<Memory>,
        truncations: Arc<RwLock<Truncations>>,
    ) -> Pool {
        Pool {
            block_size,
            most: memory / 2 / (block_size + PAGE_EXTRA),
            pages: AtomicUsize::new(0),
            memory: of_log,
            most_waiting: memory / 4,
            turns: Mutex::new(Turns::new((memory / 8 / chunk.max(1)).clamp(1, WAITING))),
            most_kept: memory / 8 * 3,
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            forks: RwLock::default(),
            truncations,
            due: Mutex::default(),
            kept: AtomicUsize::new(0),
            handed_over: AtomicUsize::new(0),
            is_given_up: AtomicBool::new(false),
            work: Mutex::default(),
        }
    }

    /// Adds the next chunk: its forks, records and pieces. One chunk after the other.
    pub(crate) fn add(&self, of_chunk: &[ForkId], records: Records, pieces: Vec<(u32, Vec<RecordRef>)>) {
        let of = self.forks.write().numbers(of_chunk);
        let (base, records) = (records.base(), Arc::new(records));
        for (partition, mut entries) in pieces {
            entries.iter_mut().for_each(|entry| entry.fork = of[entry.fork as usize]);
            self.partitions[partition as usize].queue.lock().push(ChunkRefs { entries, records: Arc::clone(&records) });
        }
        let due = self.turns.lock().next();
        self.due.lock().extend(due.map(|partition| (partition, base)));
    }

    /// All that waits is due: no more chunks come, and no more pages.
    pub(crate) fn end(&self) {
        self.pages.store(self.most, Ordering::Relaxed);
        self.due.lock().extend((0..PARTITIONS).map(|partition| (partition, u64::MAX)));
    }

    /// Nothing more is done, since all of it is to be done in another way.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// More records were kept for later than there is memory for.
    pub(crate) fn has_too_many(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > self.most_kept
    }

    /// Those records, which the pool has no more.
    pub(crate) fn hand_over(&self) -> PartitionedRefs {
        self.handed_over.fetch_add(1, Ordering::Relaxed);
        self.kept.store(0, Ordering::Relaxed);
        let kept = self.partitions.iter().map(|of| std::mem::take(&mut of.held.lock().kept)).collect();
        PartitionedRefs::of(kept, &self.forks())
    }

    /// Likewise, with the images that wait: no more records come.
    pub(crate) fn hand_over_all(&self) -> PartitionedRefs {
        for of in &self.partitions {
            let Held { waiting, kept, .. } = &mut *of.held.lock();
            kept.extend(std::mem::take(waiting).into_iter().flatten());
        }
        self.hand_over()
    }

    /// All forks by number.
    fn forks(&self) -> Vec<ForkId> {
        self.forks.read().ids.clone()
    }

    /// For one thread.
    pub(crate) fn worker<'a>(&'a self, cluster: &'a Cluster, context: Context) -> PageWorker<'a> {
        let replay = PageReplay::new(cluster, context, Truncation::ToCome);
        PageWorker { pool: self, replay, by_page: ByPage::default(), known: Vec::new(), work: HashMap::new() }
    }

    /// Makes room for a page; false when it is full, from then on.
    fn admit(&self) -> bool {
        let most = self.most.saturating_sub(self.memory.held() / (self.block_size + PAGE_EXTRA));
        if self.pages.load(Ordering::Relaxed) < most && self.pages.fetch_add(1, Ordering::Relaxed) < most {
            return true;
        }
        self.pages.store(self.most, Ordering::Relaxed);
        false
    }

    /// Whether a page can wait as its image, of which these are the records.
    fn may_wait(&self, placed: &[ChunkRefs], places: &[Place]) -> bool {
        places.iter().any(|place| place.entry(placed).starts_page)
            && places.iter().all(|place| place.of(placed).records.is_images())
            && self.pages.load(Ordering::Relaxed) < self.most
            && self.memory.held() < self.most_waiting
    }

    /// The pages in the order of their files, once all of the WAL was read.
    ///
    /// # Errors
    /// That of the first page that cannot be made.
    pub(crate) fn finish(self) -> Result<Pages> {
        let forks = self.forks();
        let truncations = self.truncations.read();
        let (mut pages, mut rooms) = (Vec::new(), Vec::new());
        let mut work: HashMap<ForkId, Work> = HashMap::new();
        for (fork, done) in self.work.into_inner() {
            work.entry(forks[fork as usize]).or_default().add(&done);
        }
        for partition in self.partitions {
            let held = partition.held.into_inner();
            for (key, mut page) in held.pages {
                let (of, block) = (forks[(key >> 32) as usize], key as u32);
                page.cut(truncations.last(of.0, of.1, block));
                if page.is_named {
                    let done = work.entry(of).or_default();
                    done.pages += 1;
                    done.written += u64::from(page.is_changed);
                    pages.push((of, block, page));
                }
            }
        }
        pages.sort_unstable_by_key(|(of, block, _)| (*of, *block));
        for (of, block, page) in &mut pages {
            page.check()?;
            rooms.extend(page.room(*of, *block));
        }
        pages.retain(|(_, _, page)| page.is_changed);
        Ok(Pages { pages, rooms, work })
    }
}

/// What a pool has in the end.
pub(crate) struct Pages {
    /// Those to be written.
    pub pages: Vec<(ForkId, u32, PageState)>,
    pub rooms: Vec<Room>,
    pub work: HashMap<ForkId, Work>,
}

impl PageWorker<'_> {
    /// Takes forward what is due, with the other threads.
    pub(crate) fn work(&mut self) {
        while !self.pool.is_given_up.load(Ordering::Relaxed) {
            let next = self.pool.due.lock().pop_front();
            let Some((partition, up_to)) = next else { break };
            self.partition(&self.pool.partitions[partition], up_to);
        }
    }

    fn partition(&mut self, partition: &Partition, up_to: u64) {
        // Whoever has the pages takes the records: so these stay in their order.
        let mut held = partition.held.lock();
        let placed = {
            let mut queue = partition.queue.lock();
            let later = queue.partition_point(|placed| placed.records.base() <= up_to);
            let later = queue.split_off(later);
            std::mem::replace(&mut *queue, later)
        };
        if placed.is_empty() {
            return;
        }
        let pool = self.pool;
        let PageWorker { replay, by_page, known, work, .. } = self;
        by_page.sort(&placed);
        pool.turns.lock().took_up(by_page.len(), by_page.places().len());
        pool.look_up(by_page, known);
        let mut kept: Vec<Place> = Vec::new();
        let mut prefetcher = Prefetcher::new(&placed, by_page.places());
        for (number, (of, cut)) in known.iter().enumerate() {
            let (key, range) = by_page.keyed(number);
            let of_page = &by_page.places()[range.clone()];
            let Some((at, waited)) = held.page(pool, key, &placed, of_page, &mut kept) else { continue };
            let (fork, block) = ((key >> 32) as u32, key as u32);
            let (before, page) = (replay.work, &mut held.pages[at].1);
            if !waited.is_empty() {
                let places = Place::all(&waited);
                replay.take(page, *of, block, *cut, 0..places.len(), &mut Prefetcher::new(&waited, &places));
            }
            replay.take(page, *of, block, *cut, range, &mut prefetcher);
            work.entry(fork).or_default().add(&replay.work.since(&before));
        }
        kept.sort_unstable();
        some(&kept, &placed).for_each(|placed| pool.keep(placed, &mut held.kept));
    }
}

impl Held {
    /// Where the page is, and its records that waited. None when it is not to be rolled forward now: the new records wait, too, or they are
    /// added to those that are to be kept.
    fn page(
        &mut self,
        pool: &Pool,
        key: PageKey,
        placed: &[ChunkRefs],
        places: &[Place],
        kept: &mut Vec<Place>,
    ) -> Option<(usize, Vec<ChunkRefs>)> {
        let waits = match self.places.get(&key) {
            Some(At::Page(at)) => return Some((*at, Vec::new())),
            Some(At::Waiting(at)) => Some(*at),
            None => None,
        };
        let waited = waits.map_or(0, |at| self.waiting[at].iter().map(|of| of.entries.len()).sum());
        if waited + places.len() <= FEW && pool.may_wait(placed, places) {
            let at = waits.unwrap_or(self.waiting.len());
            if waits.is_none() {
                self.places.insert(key, At::Waiting(at));
                self.waiting.push(Vec::new());
            }
            self.waiting[at].extend(some(places, placed).inspect(|of| of.records.hold()));
            return None;
        }
        let waited = waits.map_or_else(Vec::new, |at| std::mem::take(&mut self.waiting[at]));
        if !pool.admit() {
            waited.into_iter().for_each(|of| pool.keep(of, &mut self.kept));
            kept.extend_from_slice(places);
            return None;
        }
        self.places.insert(key, At::Page(self.pages.len()));
        self.pages.push((key, PageState::new(pool.block_size)));
        Some((self.pages.len() - 1, waited))
    }
}

impl Pool {
    /// Looks up what is known of all pages at once, so that those who add the next chunk never wait until a partition is done.
    fn look_up(&self, by_page: &ByPage, known: &mut Vec<(ForkId, u64)>) {
        let forks = self.forks.read();
        let truncations = self.truncations.read();
        known.clear();
        known.extend((0..by_page.len()).map(|number| {
            let (fork, block, _) = by_page.page(number);
            let of = forks.ids[fork as usize];
            (of, truncations.last(of.0, of.1, block))
        }));
    }

    /// Keeps records of a page that is not here.
    fn keep(&self, placed: ChunkRefs, into: &mut Vec<ChunkRefs>) {
        let mut bytes = placed.entries.len() * std::mem::size_of::<RecordRef>();
        // The first to keep a record of a chunk keeps all of it in memory.
        if placed.records.is_first_to_keep(self.handed_over.load(Ordering::Relaxed)) {
            bytes += placed.records.bytes();
        }
        self.kept.fetch_add(bytes, Ordering::Relaxed);
        into.push(placed);
    }
}

impl Drop for PageWorker<'_> {
    fn drop(&mut self) {
        let mut all = self.pool.work.lock();
        for (fork, done) in self.work.drain() {
            all.entry(fork).or_default().add(&done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many chunks wait in each of some rounds, in which with every chunk a page is taken up for so many records.
    fn rounds(most: usize, records: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut turns = Turns::new(most);
        let mut round = || {
            let waiting = turns.of;
            let mut due = Vec::new();
            for _ in 0..waiting {
                due.extend(turns.next());
                turns.took_up(1, records(waiting));
            }
            due.sort_unstable();
            assert!(due.into_iter().eq(0..PARTITIONS), "each partition is due once");
            waiting
        };
        (0..6).map(|_| round()).collect()
    }

    #[test]
    fn more_chunks_wait_until_pages_are_taken_up_for_enough_records() {
        assert_eq!(rounds(16, |_| ENOUGH), [2, 2, 2, 2, 2, 2]);
        assert_eq!(rounds(16, |waiting| if waiting < 4 { 1 } else { 9 * ENOUGH }), [2, 4, 4, 4, 4, 4]);
        assert_eq!(rounds(16, |_| ENOUGH - 1), [2, 4, 8, 16, 16, 16]);
        assert_eq!(rounds(5, |_| 1), [2, 4, 5, 5, 5, 5]);
        assert_eq!(rounds(1, |_| 1), [1, 1, 1, 1, 1, 1]);
    }
}

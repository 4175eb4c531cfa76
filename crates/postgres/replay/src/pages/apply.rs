//! Pages made and written: those of the pool, which are at their end already, and those whose records were kept.
//!
//! Threads take parts of the pool's pages, or partitions of records. No page is in two of them and no page is read to make another, so that
//! neither the number of threads nor the order in which they are done changes a byte.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use leadline_errors::{Error, Kind, Result};
use leadline_redo::Context;
use parking_lot::Mutex;

use crate::account::{Phase, Times};
use crate::files::cluster::{failed, Cluster};
use crate::files::free_space::Room;
use crate::files::truncations::{ForkChanges, Truncations};
use crate::files::writer::Writer;
use crate::pages::counts::Work;
use crate::pages::page_replay::{PageReplay, PageState, Prefetcher, Truncation};
use crate::partition::by_page::ByPage;
use crate::partition::partitioned::PartitionedRefs;
use crate::partition::record_refs::{ChunkRefs, ForkId};

/// Pages of the pool that a thread takes at once.
const PART: usize = 1024;

/// How to work.
pub(crate) struct ApplyPool<'a> {
    pub cluster: &'a Cluster,
    pub context: Context,
    pub threads: usize,
    pub times: &'a Times,
}

/// What all threads of one job share.
struct Shared {
    next: AtomicUsize,
    stop: AtomicBool,
    done: AtomicU64,
}

impl Shared {
    /// The number of the next part of the work; none when it is to end.
    fn next(&self) -> Option<usize> {
        (!self.stop.load(Ordering::Relaxed)).then(|| self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl ApplyPool<'_> {
    /// Writes pages of a pool. `go_on` gets how many are written.
    pub(crate) fn write(&self, pages: &[(ForkId, u32, PageState)], go_on: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let work = |shared: &Shared, sync| {
            let mut writer = Writer::new(self.cluster, sync);
            while let Some(part) = shared.next().and_then(|number| pages.chunks(PART).nth(number)) {
                for (of, block, page) in part {
                    writer.put(*of, *block, &page.bytes)?;
                }
                writer.flush()?;
                shared.done.fetch_add(part.len() as u64, Ordering::Relaxed);
            }
            Ok(())
        };
        self.on_threads(work, go_on).map(drop)
    }

    /// Applies all that was partitioned. `go_on` gets the records done. Gives what was done to each fork, and the room on heap pages.
    pub(crate) fn apply(
        &self,
        fork_changes: &ForkChanges,
        refs: PartitionedRefs,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(HashMap<ForkId, Work>, Vec<Room>)> {
        let mut partitions = refs.partitions;
        // The largest first, so that no thread is left alone with one at the end.
        let weight = |placed: &Vec<ChunkRefs>| placed.iter().map(|p| p.entries.len()).sum::<usize>();
        partitions.sort_by_cached_key(|placed| std::cmp::Reverse(weight(placed)));
        let partitions: Vec<_> = partitions.into_iter().map(Mutex::new).collect();
        let (forks, truncations) = (&refs.forks.ids[..], &*fork_changes.truncations());
        let work = |shared: &Shared, sync| {
            let mut applier = Applier::new(self, forks, truncations, sync);
            while let Some(partition) = shared.next().and_then(|number| partitions.get(number)) {
                let placed = std::mem::take(&mut *partition.lock());
                applier.partition(&placed)?;
                let entries: usize = placed.iter().map(|p| p.entries.len()).sum();
                shared.done.fetch_add(entries as u64, Ordering::Relaxed);
            }
            Ok((applier.by_fork, applier.rooms))
        };
        let (mut all, mut rooms) = (HashMap::<ForkId, Work>::new(), Vec::new());
        for (by_fork, found) in self.on_threads(work, go_on)? {
            for (of, done) in by_fork {
                all.entry(of).or_default().add(&done);
            }
            rooms.extend(found);
        }
        Ok((all, rooms))
    }

    /// Does work on all threads, and gives what each says.
    fn on_threads<T: Send>(
        &self,
        work: impl Fn(&Shared, Sender<(File, PathBuf)>) -> Result<T> + Sync,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<T>> {
        let shared = Shared { next: AtomicUsize::new(0), stop: AtomicBool::new(false), done: AtomicU64::new(0) };
        let (send, receive) = mpsc::channel();
        let (sync, to_sync) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                let (shared, send, sync, work) = (&shared, send.clone(), sync.clone(), &work);
                scope.spawn(move || {
                    let _clock = self.times.begin(Phase::Pages);
                    let outcome = work(shared, sync);
                    if outcome.is_err() {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                    let _ = send.send(outcome.map(Some));
                });
            }
            drop(sync);
            let of_all = &shared;
            scope.spawn(move || {
                let _ = send.send(sync_early(of_all, to_sync).map(|()| None));
            });
            let (mut all, mut failed) = (Vec::new(), None::<Error>);
            loop {
                if !go_on(shared.done.load(Ordering::Relaxed)) {
                    shared.stop.store(true, Ordering::Relaxed);
                    failed.get_or_insert_with(interrupted);
                }
                match receive.recv_timeout(Duration::from_millis(100)) {
                    Ok(Ok(of_one)) => all.extend(of_one),
                    Ok(Err(e)) => failed = Some(e),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            failed.map_or(Ok(all), Err)
        })
    }
}

/// Gives the disk something to do while pages are still made. An error ends the work: it is told only once.
fn sync_early(shared: &Shared, files: Receiver<(File, PathBuf)>) -> Result<()> {
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

/// What a thread has to take the pages of partitions forward, one after the other.
struct Applier<'a> {
    forks: &'a [ForkId],
    truncations: &'a Truncations,
    replay: PageReplay<'a>,
    writer: Writer<'a>,
    page: PageState,
    by_fork: HashMap<ForkId, Work>,
    rooms: Vec<Room>,
    by_page: ByPage,
}

impl<'a> Applier<'a> {
    fn new(
        of: &ApplyPool<'a>,
        forks: &'a [ForkId],
        truncations: &'a Truncations,
        sync: Sender<(File, PathBuf)>,
    ) -> Applier<'a> {
        Applier {
            forks,
            truncations,
            replay: PageReplay::new(of.cluster, of.context, Truncation::Done),
            writer: Writer::new(of.cluster, sync),
            page: PageState::new(of.cluster.block_size),
            by_fork: HashMap::new(),
            rooms: Vec::new(),
            by_page: ByPage::default(),
        }
    }

    fn partition(&mut self, placed: &[ChunkRefs]) -> Result<()> {
        let Applier { replay, writer, page, by_page, .. } = self;
        by_page.sort(placed);
        let mut prefetcher = Prefetcher::new(placed, by_page.places());
        for number in 0..by_page.len() {
            let (fork, block, range) = by_page.page(number);
            let of = self.forks[fork as usize];
            let before = replay.work;
            page.reset();
            replay.take(page, of, block, self.truncations.last(of.0, of.1, block), range, &mut prefetcher);
            page.check()?;
            self.rooms.extend(page.room(of, block));
            replay.work.pages += u64::from(page.is_named);
            if page.is_changed {
                replay.work.written += 1;
                writer.put(of, block, &page.bytes)?;
            }
            self.by_fork.entry(of).or_default().add(&replay.work.since(&before));
        }
        writer.flush()
    }
}

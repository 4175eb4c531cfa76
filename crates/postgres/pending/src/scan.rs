//! Counts what is old in many relations, in pieces of a quarter of a megabyte handed out to threads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use leadline_bytes::ReadBuffer;
use leadline_errors::{Error, Kind};
use leadline_page::postgres::heap::TupleHeader;
use leadline_page::postgres::{checksum, is_new, Header};
use leadline_rows::heap_file::HeapFile;
use leadline_rows::xact::{Status, Xacts};
use parking_lot::Mutex;

use crate::index::{btree_meta, gin_page, hash_meta, GinPage};
use crate::reason::Reason;
use crate::relations::{Relation, What};
use crate::tally::Tally;

/// Small enough to stay in the processor's cache between reading and looking.
const PIECE: usize = 1 << 18;
/// A page that cannot be is read again so often: a running server may be writing it.
pub(crate) const LOOKS: usize = 5;
/// A server that must wait in the middle of a page, as for a full disk queue, takes longer: then the page stays unread.
const A_MOMENT: Duration = Duration::from_millis(5);
/// When so many pages stayed unread, it is not a server writing them: no more are read again.
const HOPELESS: u32 = 16;
const BTREE_VERSION: u32 = 4;
const GIN_VERSION: u32 = 2;
const HASH_VERSION: u32 = 4;

/// Which rows count: those that are or may be visible to somebody.
#[derive(Debug)]
pub(crate) struct Living {
    xacts: Xacts,
    oldest_running: Option<u32>,
}

impl Living {
    /// With `oldest_running`, a transaction before it that neither committed nor aborted was ended by a crash.
    pub(crate) fn new(relation: &Relation, oldest_running: Option<u32>) -> Living {
        Living { xacts: Xacts::new(&relation.dir), oldest_running }
    }

    /// Why a row counts; None when it is dead or was never committed.
    #[inline]
    pub(crate) fn counts(&mut self, header: &TupleHeader) -> Option<Counts> {
        const COMMITTED_AND_NOT_DELETED: u16 = 0x0900;
        if header.t_infomask & 0x0b00 == COMMITTED_AND_NOT_DELETED {
            return Some(Counts::Visible);
        }
        self.counts_by_status(*header)
    }

    #[cold]
    fn counts_by_status(&mut self, header: TupleHeader) -> Option<Counts> {
        match self.xacts.status(&header) {
            Status::Live | Status::Frozen => Some(Counts::Visible),
            Status::Dead | Status::Aborted => None,
            Status::InProgress => {
                let crashed = self.oldest_running.is_some_and(|oldest| (header.t_xmin.wrapping_sub(oldest) as i32) < 0);
                (!crashed).then_some(Counts::InProgress)
            }
            Status::Unknown => Some(Counts::Unknown),
        }
    }

    /// Why the status of rows was not known.
    fn reasons(&self) -> &BTreeSet<String> {
        self.xacts.reasons()
    }
}

/// Why a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    Visible,
    /// Its transaction had not ended: it may be visible later.
    InProgress,
    /// It may be visible: nothing tells.
    Unknown,
}

/// How to look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// A transaction before it that neither committed nor aborted was ended by a crash.
    pub oldest_running: Option<u32>,
    /// Compare checksums, where pages have any: a page that was read while it was being written is then seen to be torn.
    pub verify: bool,
    /// As many threads; 0 is taken as 1.
    pub threads: usize,
}

struct Shared<'r> {
    relations: &'r [Relation],
    how: Look,
    next: Mutex<(usize, u32)>,
    done: AtomicU64,
    stop: AtomicBool,
    running: AtomicUsize,
    tallies: Mutex<Vec<Tally>>,
    error: Mutex<Option<Error>>,
}

/// What is old in each relation. `go_on` gets bytes looked at and bytes there are, and false from it ends the scan early: None.
///
/// # Errors
/// When a file cannot be read; one that is gone is told by [`Tally::vanished`].
pub fn scan(
    relations: &[Relation],
    how: Look,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Option<Vec<Tally>>, Error> {
    let total: u64 = relations.iter().map(|r| u64::from(blocks_of(r)) * r.file.block_size as u64).sum();
    let threads = how.threads.max(1);
    let shared = Shared {
        relations,
        how,
        next: Mutex::new((0, 0)),
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        running: AtomicUsize::new(threads),
        tallies: Mutex::new(vec![Tally::default(); relations.len()]),
        error: Mutex::new(None),
    };
    std::thread::scope(|scope| {
        let main = std::thread::current();
        for _ in 0..threads {
            let (shared, main) = (&shared, main.clone());
            scope.spawn(move || {
                if let Err(e) = work(shared) {
                    shared.stop.store(true, Relaxed);
                    shared.error.lock().get_or_insert(e);
                }
                shared.running.fetch_sub(1, Relaxed);
                main.unpark();
            });
        }
        while shared.running.load(Relaxed) > 0 {
            if !go_on(shared.done.load(Relaxed), total) {
                shared.stop.store(true, Relaxed);
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    });
    let error = shared.error.lock().take();
    match error {
        Some(e) => Err(e),
        None if shared.stop.load(Relaxed) => Ok(None),
        None => Ok(Some(shared.tallies.into_inner())),
    }
}

/// Blocks to look at: of most indexes the first one tells.
fn blocks_of(relation: &Relation) -> u32 {
    match relation.what {
        What::Table(_) | What::Gin => relation.file.blocks,
        What::Btree(_) | What::Hash => relation.file.blocks.min(1),
    }
}

fn next_piece(shared: &Shared<'_>) -> Option<(usize, u32)> {
    let mut next = shared.next.lock();
    loop {
        let relation = shared.relations.get(next.0)?;
        if shared.stop.load(Relaxed) {
            return None;
        }
        if next.1 < blocks_of(relation) {
            let piece = *next;
            next.1 = next.1.saturating_add(blocks_of_piece(relation));
            return Some(piece);
        }
        *next = (next.0 + 1, 0);
    }
}

fn blocks_of_piece(relation: &Relation) -> u32 {
    (PIECE / relation.file.block_size) as u32
}

fn work(shared: &Shared<'_>) -> Result<(), Error> {
    let mut buffer = ReadBuffer::new(PIECE);
    let mut hopeless = 0;
    let mut open: Option<(usize, HeapFile, Living, Tally)> = None;
    while let Some((number, block)) = next_piece(shared) {
        let relation = &shared.relations[number];
        if open.as_ref().is_none_or(|o| o.0 != number) {
            hand_over(shared, open.take());
            open = Some((
                number,
                relation.file.again(),
                Living::new(relation, shared.how.oldest_running),
                Tally::default(),
            ));
        }
        let Some((_, file, living, tally)) = &mut open else { continue };
        let blocks = blocks_of_piece(relation).min(blocks_of(relation) - block);
        let wanted = blocks as usize * file.block_size;
        match file.read(block, &mut buffer[..wanted]) {
            Ok(read) => {
                for (i, page) in buffer.chunks_exact(relation.file.block_size).take(read).enumerate() {
                    let block = block + i as u32;
                    let verify = shared.how.verify && relation.dir.checksums;
                    let mut found = look_at(relation, living, page, block, verify);
                    for _ in 1..LOOKS {
                        if !found.is_doubtful() || hopeless > HOPELESS {
                            break;
                        }
                        found = look_again(relation, living, file, block, verify)?;
                    }
                    hopeless += u32::from(found.is_doubtful());
                    tally.add(&found);
                }
                // What a file in the middle never had is told of the relation.
                let missing = file.missing(block + read as u32..block + blocks);
                tally.gone_pages += u64::from(blocks) - read as u64 - u64::from(missing);
            }
            Err(e) if e.kind == Kind::NotFound => {
                tally.vanished = true;
                tally.gone_pages += u64::from(blocks);
            }
            Err(e) => return Err(e),
        }
        shared.done.fetch_add(wanted as u64, Relaxed);
    }
    hand_over(shared, open);
    Ok(())
}

fn hand_over(shared: &Shared<'_>, open: Option<(usize, HeapFile, Living, Tally)>) {
    if let Some((number, _, living, mut tally)) = open {
        tally.reasons.clone_from(living.reasons());
        shared.tallies.lock()[number].add(&tally);
    }
}

/// Reads a page that cannot be once more, a moment later. It is gone where the file ends before it by now.
fn look_again(
    relation: &Relation,
    living: &mut Living,
    file: &mut HeapFile,
    block: u32,
    verify: bool,
) -> Result<Tally, Error> {
    std::thread::sleep(A_MOMENT);
    let mut page = vec![0; file.block_size];
    Ok(match file.read(block, &mut page)? {
        0 => Tally { gone_pages: 1, ..Tally::default() },
        _ => look_at(relation, living, &page, block, verify),
    })
}

/// What is old in one page; nothing but that it is unread, when its checksum is not its own.
fn look_at(relation: &Relation, living: &mut Living, page: &[u8], block: u32, verify: bool) -> Tally {
    if verify && !is_whole(page, block) {
        return Tally { pages: 1, unread_pages: 1, ..Tally::default() };
    }
    look(relation, living, page)
}

fn is_whole(page: &[u8], block: u32) -> bool {
    Header::parse(page).is_some_and(|h| is_new(page, &h) || h.pd_checksum == checksum(page, block))
}

/// What is old in one page.
fn look(relation: &Relation, living: &mut Living, page: &[u8]) -> Tally {
    let mut tally = Tally::default();
    match &relation.what {
        What::Table(form) => {
            let (mut in_progress, mut unknown) = (0, 0);
            let (mut reasons, mut rows, mut dropped_bytes, mut packed_bytes) = (0, 0, 0, 0);
            let looked = {
                let counts = |header: &TupleHeader| match living.counts(header) {
                    Some(Counts::Visible) => true,
                    Some(Counts::InProgress) => {
                        in_progress += 1;
                        true
                    }
                    Some(Counts::Unknown) => {
                        unknown += 1;
                        true
                    }
                    None => false,
                };
                let looked = form.old_rows(page, counts, |row| {
                    // Most rows are old for what the one before is.
                    if row.reasons != reasons {
                        tally.count(reasons, rows);
                        (reasons, rows) = (row.reasons, 0);
                    }
                    rows += 1;
                    dropped_bytes += row.dropped_bytes;
                    packed_bytes += row.packed_bytes;
                });
                tally.count(reasons, rows);
                looked
            };
            tally.counts[Reason::Dropped as usize].bytes = dropped_bytes;
            tally.counts[Reason::Compression as usize].bytes = packed_bytes;
            (tally.in_progress, tally.unknown) = (in_progress, unknown);
            tally.unread_pages = u64::from(looked.unread);
            tally.unread_rows = looked.unread_rows;
            tally.end_page();
        }
        What::Btree(can_dedup) => match btree_meta(page) {
            Some((version, _)) if version < BTREE_VERSION => whole(&mut tally, relation, Reason::BtreeVersion),
            Some((_, false)) if *can_dedup => whole(&mut tally, relation, Reason::BtreeDedup),
            found => index_page(&mut tally, found.is_some()),
        },
        What::Hash => match hash_meta(page) {
            Some(version) if version < HASH_VERSION => whole(&mut tally, relation, Reason::Hash),
            found => index_page(&mut tally, found.is_some()),
        },
        What::Gin => {
            let found = gin_page(page);
            index_page(&mut tally, found.is_some());
            let is_old = match found {
                Some(GinPage::Meta(version)) => version < GIN_VERSION,
                Some(GinPage::Posting(is_packed)) => !is_packed,
                _ => false,
            };
            if is_old {
                let count = &mut tally.counts[Reason::Gin as usize];
                (count.pages, count.bytes) = (1, page.len() as u64);
                tally.any = *count;
            }
        }
    }
    tally
}

fn index_page(tally: &mut Tally, is_one: bool) {
    tally.pages = 1;
    tally.unread_pages = u64::from(!is_one);
}

/// All pages of an index are old.
fn whole(tally: &mut Tally, relation: &Relation, reason: Reason) {
    tally.pages = 1;
    let count = &mut tally.counts[reason as usize];
    count.pages = relation.file.blocks.into();
    count.bytes = count.pages * relation.file.block_size as u64;
    tally.any = *count;
}

//! A page rolled forward: from an image, or from its file, over records in the order of the WAL.
//!
//! A page can be rolled forward in several steps. An error is kept with it: a later record may make the page anew, or remove it, and then
//! nothing was wrong, as for the server's own recovery.

use std::ops::Range;

use leadline_datadir::BlockId;
use leadline_errors::{Error, Kind, Result};
use leadline_page::postgres::checksum;
use leadline_redo::free_space::{self, Recorded};
use leadline_redo::{apply as redo, Applied, Context, Misfit, Page, Part, Target};
use leadline_wal::rmgr::id;
use leadline_wal::{Decoder, Lsn};

use crate::files::cluster::{read_page, Cluster};
use crate::files::free_space::Room;
use crate::files::open_files::OpenFiles;
use crate::pages::counts::Work;
use crate::partition::by_page::Place;
use crate::partition::record_refs::{ChunkRefs, ForkId, RecordRef};

const MAIN: u8 = 0;
const FREE_SPACE: u8 = 1;
const VISIBILITY: u8 = 2;
/// Records that are asked for before it is their turn: as many as can come from memory at once.
const PREFETCHED: usize = 16;
/// Major from which on pages that the visibility map is extended by are zeros in the file.
const EXTENDS_WITH_ZEROS: u8 = 16;

/// A page on its way.
#[derive(Debug)]
pub(crate) struct PageState {
    pub bytes: Box<[u8]>,
    /// It was read from its file, or made.
    is_known: bool,
    /// The file has it, or a record made it.
    is_there: bool,
    pub is_changed: bool,
    /// A record that counts names it.
    pub is_named: bool,
    /// Where the record begins that removed it last, of those that are known so far.
    cut: u64,
    failed: Option<Box<Error>>,
    /// When its room is written down, by the last record that tells; none when it is no page of a heap.
    room: Option<Recorded>,
}

impl PageState {
    pub(crate) fn new(size: usize) -> PageState {
        PageState {
            bytes: vec![0; size].into_boxed_slice(),
            is_known: false,
            is_there: false,
            is_changed: false,
            is_named: false,
            cut: 0,
            failed: None,
            room: None,
        }
    }

    /// Makes it another page, with the same memory.
    pub(crate) fn reset(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        *self = PageState { bytes, ..PageState::new(0) };
    }

    /// Takes note of where the WAL removes it.
    pub(crate) fn cut(&mut self, cut: u64) {
        if cut > self.cut {
            self.reset();
            self.cut = cut;
        }
    }

    /// The error that is left.
    ///
    /// # Errors
    /// That one.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), |e| Err(*e))
    }

    /// How much room it has now, when it is one of a heap.
    pub(crate) fn room(&mut self, of: ForkId, block: u32) -> Option<Room> {
        let recorded = self.room.filter(|_| of.1 == MAIN && (self.is_there || self.is_changed))?;
        let is_new = self.is_changed && recorded.holds(&mut self.bytes);
        Some((of.0, block, free_space::category(&mut self.bytes)?, is_new))
    }
}

/// When files are truncated that the WAL truncates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truncation {
    /// Later: what the WAL removes is not read.
    ToCome,
    /// It is done: what is there now was written since.
    Done,
}

/// What rolls pages forward, with memory that is used again.
pub(crate) struct PageReplay<'a> {
    cluster: &'a Cluster,
    context: Context,
    truncation: Truncation,
    decoder: Decoder,
    files: OpenFiles<'a>,
    pub work: Work,
}

impl<'a> PageReplay<'a> {
    pub(crate) fn new(cluster: &'a Cluster, context: Context, truncation: Truncation) -> PageReplay<'a> {
        let files = OpenFiles::new(cluster);
        PageReplay { cluster, context, truncation, decoder: Decoder::default(), files, work: Work::default() }
    }

    /// Takes a page over its next records, which are `range` of those of `prefetcher`. `cut`: where the WAL removes it last.
    pub(crate) fn take(
        &mut self,
        page: &mut PageState,
        of: ForkId,
        block: u32,
        cut: u64,
        mut range: Range<usize>,
        prefetcher: &mut Prefetcher<'_>,
    ) {
        page.cut(cut);
        let placed = prefetcher.placed;
        if cut > 0 {
            let start = |place: &Place| place.of(placed).records.start(place.entry(placed));
            let removed = prefetcher.places[range.clone()].partition_point(|place| start(place).0 < cut);
            self.work.removed += removed as u64;
            range.start += removed;
        }
        if range.is_empty() {
            return;
        }
        page.is_named = true;
        let superseded = prefetcher.places[range.clone()].iter().rposition(|place| place.entry(placed).starts_page);
        let skipped = range.start..range.start + superseded.unwrap_or(0);
        if superseded.is_some() {
            self.work.superseded += skipped.len() as u64;
            (page.is_known, page.is_there, page.is_changed, page.failed) = (true, true, true, None);
        } else if page.failed.is_some() {
            return;
        }
        let outcome = self.over_records(page, of, block, skipped.end..range.end, prefetcher).map(|tells| {
            if !tells && of.1 == MAIN {
                self.note_skipped(page, placed, &prefetcher.places[skipped]);
            }
        });
        page.failed = outcome.err().map(Box::new);
    }

    /// Gives whether one of the records tells how the page's room is written down.
    fn over_records(
        &mut self,
        page: &mut PageState,
        of: ForkId,
        block: u32,
        range: Range<usize>,
        prefetcher: &mut Prefetcher<'_>,
    ) -> Result<bool> {
        if !page.is_known {
            page.is_there = self.read(page, of, block)?;
            page.is_known = true;
        }
        let (placed, mut tells) = (prefetcher.placed, false);
        for at in range {
            prefetcher.touch(at);
            let place = prefetcher.places[at];
            let (records, entry) = (place.of(placed), place.entry(placed));
            let outcome = self.one_record(page, of, records, entry, &mut tells)?;
            match outcome {
                Applied::Changed | Applied::Restored => {
                    page.is_changed = true;
                    self.work.applied += 1;
                    self.work.restored += u64::from(outcome == Applied::Restored);
                }
                Applied::Older => self.work.older += 1,
                Applied::Unchanged => {}
                Applied::Missing => return Err(self.missing(records, entry, of, block)),
            }
        }
        Ok(tells)
    }

    #[inline]
    fn one_record(
        &mut self,
        page: &mut PageState,
        of: ForkId,
        placed: &ChunkRefs,
        entry: &RecordRef,
        tells: &mut bool,
    ) -> Result<Applied> {
        let PageReplay { decoder, context, .. } = self;
        // Left where it is: to move a record that was just made takes as long as to make it.
        let decoded = placed.records.decode(decoder, entry, context.major);
        let Some(record) = &decoded else { return Err(invalid(placed, entry)) };
        let Some(part) = entry.part(record) else { return Err(invalid(placed, entry)) };
        let target = Target { page: BlockId { relation: of.0, fork: of.1.into(), block: entry.block }, part };
        // Of an image alone nobody knows what the page is.
        if of.1 == MAIN && record.rmid != id::XLOG {
            page.room = matches!(record.rmid, id::HEAP | id::HEAP2).then(|| Recorded::of(record));
            *tells = true;
        }
        let is_there = page.is_there || page.is_changed;
        match part {
            Part::TruncateVisible { .. } | Part::TruncateFreeSpace { .. } if !is_there => {
                return Ok(Applied::Unchanged)
            }
            Part::ClearVisible { .. } if !is_there && context.major < EXTENDS_WITH_ZEROS => {
                // The server extends the map by an empty page.
                if let Ok(mut page) = Page::new(&mut page.bytes) {
                    page.init(0).map_err(|misfit| wrong(&misfit, record.start, &target))?;
                }
                return Ok(Applied::Changed);
            }
            _ => {}
        }
        redo(context, record, &target, &mut page.bytes).map_err(|misfit| wrong(&misfit, record.start, &target))
    }

    /// The last other record before an image tells whether the page is one of a heap, even though the image has made it useless: the map
    /// may be older than the page.
    #[cold]
    fn note_skipped(&mut self, page: &mut PageState, placed: &[ChunkRefs], skipped: &[Place]) {
        for place in skipped.iter().rev() {
            let record = place.of(placed).records.decode(&mut self.decoder, place.entry(placed), self.context.major);
            match record {
                Some(record) if record.rmid == id::XLOG => {}
                Some(record) => {
                    page.room = matches!(record.rmid, id::HEAP | id::HEAP2).then(|| Recorded::of(&record));
                    return;
                }
                None => return,
            }
        }
    }

    /// Reads the page; false when the file does not have it.
    fn read(&mut self, page: &mut PageState, of: ForkId, block: u32) -> Result<bool> {
        // Not what was there before.
        page.bytes.fill(0);
        if self.truncation == Truncation::ToCome && page.cut > 0 {
            return Ok(false);
        }
        let (path, at) = self.files.place(of, block);
        let Some(open) = self.files.of_block(of, block, false)? else { return Ok(false) };
        if !read_page(&open.file, &path, at, &mut page.bytes)? {
            return Ok(false);
        }
        self.work.read += 1;
        if self.cluster.checksums && page.bytes.iter().any(|b| *b != 0) {
            let stored = u16::from_le_bytes([page.bytes[8], page.bytes[9]]);
            let computed = checksum(&page.bytes, block);
            if stored != computed {
                // The server takes a damaged page of a map for an empty one.
                if matches!(of.1, FREE_SPACE | VISIBILITY) {
                    page.bytes.fill(0);
                    return Ok(true);
                }
                return Err(Error::new(Kind::Invalid, format!("block {block} of a file has a wrong checksum"))
                    .detail(format!("its checksum is {stored}, computed {computed}; the WAL has no image of the page to restore it from"))
                    .hint("the server's own recovery would stop here too; restore the file from a backup")
                    .at(path));
            }
        }
        Ok(true)
    }

    #[cold]
    fn missing(&self, placed: &ChunkRefs, entry: &RecordRef, of: ForkId, block: u32) -> Error {
        let path = self.cluster.first_file(of.0, of.1);
        Error::new(Kind::Invalid, format!("the WAL changes block {block}, which does not exist"))
            .detail("neither the file nor the WAL has the page, and the WAL does not remove the file later")
            .hint("the server's own recovery would stop here too; restore from a backup")
            .at(format!("{}, LSN {}", path.display(), placed.records.start(entry)))
    }
}

/// Records that are asked for before it is their turn.
pub(crate) struct Prefetcher<'a> {
    placed: &'a [ChunkRefs],
    places: &'a [Place],
    /// So many have been.
    touched: usize,
}

impl<'a> Prefetcher<'a> {
    pub(crate) fn new(placed: &'a [ChunkRefs], places: &'a [Place]) -> Prefetcher<'a> {
        Prefetcher { placed, places, touched: 0 }
    }

    /// Asks for those that come soon after this one.
    #[inline]
    fn touch(&mut self, at: usize) {
        if self.touched > at + PREFETCHED / 2 {
            return;
        }
        let to = (at + PREFETCHED).min(self.places.len());
        for place in &self.places[self.touched.clamp(at, to)..to] {
            place.of(self.placed).records.touch(place.entry(self.placed));
        }
        self.touched = to;
    }
}

#[cold]
fn invalid(of: &ChunkRefs, entry: &RecordRef) -> Error {
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

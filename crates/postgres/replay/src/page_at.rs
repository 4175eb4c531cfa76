//! One page as it was at some moment that the WAL covers: from its last image before, over the records up to there.

use std::path::Path;
use std::sync::Arc;

use leadline_datadir::{BlockId, DataDir, RelFile};
use leadline_errors::{Error, Kind, Result};
use leadline_redo::{apply, rule, targets, Applied, Context, Part, Target};
use leadline_wal::parallel::{self, Work};
use leadline_wal::rmgr::id;
use leadline_wal::{Decoder, Ending, Lsn, Reader, Record, Wal};

use crate::files::control::ControlFile;
use crate::files::truncations::ForkChanges;
use crate::preflight::KEEP_ALL;
use crate::read::state;

/// Bytes of the WAL that a thread reads at a time.
const CHUNK: u64 = 8 << 20;

/// The page, and what it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageAt {
    /// Its bytes. The checksum is that of the image.
    pub bytes: Vec<u8>,
    /// The record that made it anew.
    pub image: Lsn,
    /// The last record that changed it.
    pub last: Lsn,
    /// Records applied.
    pub applied: u64,
}

/// A record of a page, kept.
pub(crate) struct Kept {
    pub start: Lsn,
    end: Lsn,
    pub part: Part,
    bytes: Vec<u8>,
}

impl Kept {
    pub(crate) fn of(record: &Record<'_>, part: Part) -> Kept {
        let image = if let Part::Block(id) = part { Some(id) } else { None };
        let mut bytes = Vec::new();
        record.copy_for(image, &mut bytes);
        Kept { start: record.start, end: record.end, part, bytes }
    }

    /// Takes the page over the record.
    pub(crate) fn apply(
        &self,
        decoder: &mut Decoder,
        context: &Context,
        page: BlockId,
        bytes: &mut [u8],
    ) -> Result<Applied> {
        let image = if let Part::Block(id) = self.part { Some(id) } else { None };
        let Some(record) = decoder.decode(&self.bytes, image, self.start, self.end, context.major) else {
            return Err(Error::new(Kind::Invalid, "a record has an invalid format").at(format!("LSN {}", self.start)));
        };
        let target = Target { page, part: self.part };
        apply(context, &record, &target, bytes)
            .map_err(|misfit| crate::pages::page_replay::wrong(&misfit, self.start, &target))
    }
}

/// What a record removes files or parts of files by; none when it does not.
pub(crate) fn fork_changes(record: &Record<'_>, block_size: u32) -> Result<Option<ForkChanges>> {
    let mut fork_changes = ForkChanges::default();
    match record.rmid {
        id::XACT => match crate::read::xact::ended(record) {
            Some(Ok(ended)) if ended.drops_files() => {
                ended.dropped().for_each(|dropped| fork_changes.drop_relation(dropped, record.start.0));
            }
            _ => return Ok(None),
        },
        id::SMGR => match rule::truncation(record).filter(|_| record.info & 0xF0 == 0x20) {
            Some(truncation) => fork_changes.truncate(&truncation, block_size, record.start.0),
            None => return Ok(None),
        },
        id::DBASE => {
            for (space, database) in state::dropped_databases(record)? {
                fork_changes.drop_database(space, database, record.start.0);
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(fork_changes))
}

/// What happened to a page in one part of the WAL: since it was made anew or removed there last.
#[derive(Default)]
struct Story {
    /// What came before does not matter.
    is_new: bool,
    /// It was removed, by the record that begins here.
    removed: Option<Lsn>,
    kept: Vec<Kept>,
}

struct Worker<'a> {
    context: &'a Context,
    page: BlockId,
}

impl Work for Worker<'_> {
    type Part = Story;

    fn read(&mut self, reader: &mut Reader) -> Result<Story> {
        let mut story = Story::default();
        while let Some(record) = reader.next_record()? {
            let BlockId { relation, fork, block } = self.page;
            let changes = fork_changes(&record, self.context.block_size)?;
            if changes.is_some_and(|changes| changes.truncations().last(relation, fork as u8, block) != 0) {
                story = Story { is_new: true, removed: Some(record.start), kept: Vec::new() };
            }
            let (context, page) = (self.context, self.page);
            targets(context, &record, |target| {
                if target.page == page {
                    story.add(&record, &target);
                }
            });
        }
        Ok(story)
    }
}

impl Story {
    fn add(&mut self, record: &Record<'_>, target: &Target) {
        let block = if let Part::Block(id) = target.part { record.block(id) } else { None };
        if block.is_some_and(rule::starts_page) {
            *self = Story { is_new: true, removed: None, kept: Vec::new() };
        }
        self.kept.push(Kept::of(record, target.part));
    }
}

/// The page as all records that begin before `lsn` leave it. `root`: the data directory whose WAL it is.
///
/// # Errors
/// [`Kind::NotFound`] when the WAL has no image of the page before, or the page was removed; and those of reading.
pub fn page_at(
    root: &Path,
    page: BlockId,
    lsn: Lsn,
    threads: usize,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<PageAt> {
    let dir = DataDir::open(root)?;
    let control = ControlFile::open(root)?;
    let context = Context {
        major: dir.major as u8,
        block_size: dir.block_size as u32,
        hint_bits_are_logged: dir.checksums || control.wal_log_hints(),
    };
    let log = Arc::new(Wal::open(root, None, None, None)?.keeping(KEEP_ALL));
    let has = log.bounds();
    let range = log.range(None, Some(lsn.min(has.to)))?;
    let mut story = Story::default();
    let merge = |part: Story| {
        if part.is_new {
            story = part;
        } else {
            story.kept.extend(part.kept);
        }
        Ok(())
    };
    let ending = parallel::run(&log, range, threads, CHUNK, || Worker { context: &context, page }, merge, go_on)?;
    check_reaches(&log, &ending, lsn)?;
    let missing = |message: String| {
        let RelFile { spc, db, rel } = page.relation;
        Err(Error::new(Kind::NotFound, message)
            .detail(format!("the WAL from {} on was read", range.from))
            .at(format!("relation {spc}/{db}/{rel}, block {}", page.block)))
    };
    if let Some(removed) = story.removed.filter(|_| story.kept.is_empty()) {
        return missing(format!("the page did not exist at {lsn}: it was removed at {removed}"));
    }
    if !story.is_new || story.kept.is_empty() {
        return missing(format!("the WAL has no image of the page before {lsn}"));
    }
    let made = story.make(&context, page, dir.block_size)?;
    if made.applied == 0 {
        return missing(format!("the page did not exist at {lsn}"));
    }
    Ok(made)
}

/// The WAL must go on up to where a page is wanted: it would be an older one without a word otherwise.
pub(crate) fn check_reaches(log: &Wal, ending: &Ending, lsn: Lsn) -> Result<()> {
    let has = log.bounds().to;
    let (end, why) = ending.early.clone().unwrap_or((has, "the last segment ends here".to_owned()));
    // The end of WAL may be told before or behind the header of a page.
    const HEADER: u64 = 40;
    if end.0 + HEADER < lsn.0 {
        return Err(Error::new(Kind::NotFound, format!("the WAL does not reach {lsn}"))
            .detail(format!("it ends at {end}: {why}"))
            .at(log.path.as_path()));
    }
    Ok(())
}

impl Story {
    fn make(&self, context: &Context, page: BlockId, size: usize) -> Result<PageAt> {
        let mut made = PageAt { bytes: vec![0; size], image: self.kept[0].start, last: Lsn(0), applied: 0 };
        let mut decoder = Decoder::default();
        for kept in &self.kept {
            if let Applied::Changed | Applied::Restored = kept.apply(&mut decoder, context, page, &mut made.bytes)? {
                made.applied += 1;
                made.last = kept.start;
            }
        }
        Ok(made)
    }
}

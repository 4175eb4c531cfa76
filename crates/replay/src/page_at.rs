//! One page as it was at some moment that the log covers: from its last image before, over the records up to there.

use std::path::Path;
use std::sync::Arc;

use leadline_datadir::{BlockId, DataDir, RelFile};
use leadline_errors::{Error, Kind, Result};
use leadline_redo::{apply, rule, targets, Applied, Context, Part, Target};
use leadline_wal::parallel::{self, Work};
use leadline_wal::rmgr::id;
use leadline_wal::{Decoder, Log, Lsn, Reader, Record};

use crate::control::ControlFile;
use crate::lifetime::Lifetimes;
use crate::look::KEEP_ALL;
use crate::state;

/// Bytes of the log that a thread reads at a time.
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

/// A record of the page, kept.
struct Kept {
    start: Lsn,
    end: Lsn,
    part: Part,
    bytes: Vec<u8>,
}

/// What happened to a page in one part of the log: since it was made anew or removed there last.
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
            if self.removes(&record)? {
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

impl Worker<'_> {
    /// Whether the record drops or cuts off the page.
    fn removes(&self, record: &Record<'_>) -> Result<bool> {
        let BlockId { relation, fork, block } = self.page;
        let mut lifetimes = Lifetimes::default();
        match record.rmid {
            id::XACT => match crate::xact::ended(record) {
                Some(Ok(ended)) if ended.drops_files() => {
                    ended.dropped().for_each(|dropped| lifetimes.drop_relation(dropped, record.start.0));
                }
                _ => return Ok(false),
            },
            id::SMGR => match rule::truncation(record).filter(|_| record.info & 0xF0 == 0x20) {
                Some(truncation) => lifetimes.truncate(&truncation, self.context.block_size, record.start.0),
                None => return Ok(false),
            },
            id::DBASE => {
                for (space, database) in state::dropped_databases(record)? {
                    lifetimes.drop_database(space, database, record.start.0);
                }
            }
            _ => return Ok(false),
        }
        Ok(lifetimes.last_cut(relation, fork as u8, block) != 0)
    }
}

impl Story {
    fn add(&mut self, record: &Record<'_>, target: &Target) {
        let image = if let Part::Block(id) = target.part { Some(id) } else { None };
        if image.and_then(|id| record.block(id)).is_some_and(rule::starts_page) {
            *self = Story { is_new: true, removed: None, kept: Vec::new() };
        }
        let mut bytes = Vec::new();
        record.copy_for(image, &mut bytes);
        self.kept.push(Kept { start: record.start, end: record.end, part: target.part, bytes });
    }
}

/// The page as all records that begin before `lsn` leave it. `root`: the data directory whose log it is.
///
/// # Errors
/// [`Kind::NotFound`] when the log has no image of the page before, or the page was removed; and those of reading.
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
    let log = Arc::new(Log::open(root, None, None, None)?.keeping(KEEP_ALL));
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
    parallel::run(&log, range, threads, CHUNK, || Worker { context: &context, page }, merge, go_on)?;
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

impl Story {
    fn make(&self, context: &Context, page: BlockId, size: usize) -> Result<PageAt> {
        let mut made = PageAt { bytes: vec![0; size], image: self.kept[0].start, last: Lsn(0), applied: 0 };
        let mut decoder = Decoder::default();
        for kept in &self.kept {
            let image = if let Part::Block(id) = kept.part { Some(id) } else { None };
            let target = Target { page, part: kept.part };
            let record = decoder.decode(&kept.bytes, image, kept.start, kept.end, context.major);
            let outcome = record.map(|record| apply(context, &record, &target, &mut made.bytes));
            match outcome {
                Some(Ok(Applied::Changed | Applied::Restored)) => {
                    made.applied += 1;
                    made.last = kept.start;
                }
                Some(Ok(_)) => {}
                Some(Err(misfit)) => return Err(crate::apply::wrong(&misfit, kept.start, &target)),
                None => {
                    return Err(
                        Error::new(Kind::Invalid, "a record has an invalid format").at(format!("LSN {}", kept.start))
                    );
                }
            }
        }
        Ok(made)
    }
}

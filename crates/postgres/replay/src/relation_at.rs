//! One relation file as it was at some moment: from a backup of it, over the records up to there. Nothing else is touched.
//!
//! Threads read the WAL; records are applied in its order, to a copy of the file. An online backup has pages of different moments:
//! the rule of the LSN takes each from where it is, as in the server's own recovery of a backup. What the backup has that is newer
//! than the moment cannot be undone, and is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leadline_datadir::{of_path, BlockId, Condition, DataDir, RelFile, Server};
use leadline_errors::{Error, Kind, Result};
use leadline_page::postgres::{checksum, header, Header};
use leadline_redo::{rule, targets, Applied, Context, Page, Part};
use leadline_wal::parallel::{self, Work};
use leadline_wal::{Decoder, Lsn, Range, Reader, Record, Wal};

use crate::files::control::ControlFile;
use crate::files::fork_files::ForkFiles;
use crate::page_at::{check_reaches, fork_changes, Kept};
use crate::preflight::KEEP_ALL;
use crate::read::state;

/// Bytes of the WAL that a thread reads at a time.
const CHUNK: u64 = 8 << 20;
/// Pages kept in memory before they are written.
const KEPT_PAGES: usize = 4096;
/// Major from which on pages that the visibility map is extended by are zeros in the file.
const EXTENDS_WITH_ZEROS: u8 = 16;
/// Numbers of forks.
const FREE_SPACE: u8 = 1;
const VISIBILITY: u8 = 2;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The first file of a fork, in a data directory that is a backup.
    pub file: &'a Path,
    /// The WAL: an archive, a data directory or its `pg_wal`.
    pub wal: &'a Path,
    /// Only this block.
    pub block: Option<u32>,
    /// All records that begin before it are applied.
    pub to: Lsn,
    /// Where to write; more files with a number behind it when one is not enough.
    pub output: &'a Path,
    /// Threads that read the WAL.
    pub threads: usize,
}

/// What was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelationAt {
    /// Where reading began: the redo point of the backup.
    pub from: Lsn,
    /// Blocks of the fork; of a wish for one block, 1.
    pub blocks: u32,
    /// Changes of pages that were applied.
    pub applied: u64,
    /// That were not, because the backup had them already.
    pub older: u64,
    /// The last record applied; 0 when none was.
    pub last: Lsn,
}

/// What the WAL does to the fork, in its order.
enum Event {
    Change {
        block: u32,
        /// The page is made anew.
        starts: bool,
        kept: Kept,
    },
    /// So many blocks are left; none when the relation is removed.
    Cut { at: Lsn, left: Option<u32> },
    /// The database is made by a copy of files, which the WAL does not have.
    Copied { at: Lsn },
}

struct Worker<'a> {
    context: &'a Context,
    relation: RelFile,
    fork: u8,
    block: Option<u32>,
}

/// Events of one chunk, and where its last record ends.
struct Story {
    events: Vec<Event>,
    end: Lsn,
}

impl Work for Worker<'_> {
    type Part = Story;

    fn read(&mut self, reader: &mut Reader) -> Result<Story> {
        let mut story = Story { events: Vec::new(), end: Lsn(0) };
        while let Some(record) = reader.next_record()? {
            story.end = record.end;
            self.take(&record, &mut story.events)?;
        }
        Ok(story)
    }
}

impl Worker<'_> {
    fn take(&self, record: &Record<'_>, events: &mut Vec<Event>) -> Result<()> {
        let at = record.start;
        if let Some(changes) = fork_changes(record, self.context.block_size)? {
            if changes.is_dropped(self.relation) {
                events.push(Event::Cut { at, left: None });
            } else if let Some(left) = changes.left(self.relation, self.fork) {
                events.push(Event::Cut { at, left: Some(left) });
            }
        }
        if state::copied_database(record) == Some((self.relation.spc, self.relation.db)) {
            events.push(Event::Copied { at });
        }
        targets(self.context, record, |target| {
            let BlockId { relation, fork, block } = target.page;
            let is_wanted = self.block.is_none_or(|wanted| wanted == block);
            if relation != self.relation || fork != u32::from(self.fork) || !is_wanted {
                return;
            }
            let named = if let Part::Block(id) = target.part { record.block(id) } else { None };
            let starts = named.is_some_and(rule::starts_page);
            events.push(Event::Change { block, starts, kept: Kept::of(record, target.part) });
        });
        Ok(())
    }
}

/// Why a page of the backup is of no use.
#[derive(Clone, Copy)]
enum Unusable {
    Newer(Lsn),
    Checksum { stored: u16, computed: u16 },
}

/// The file on its way.
struct RelationReplay<'a> {
    context: &'a Context,
    relation: RelFile,
    fork: u8,
    checksums: bool,
    to: Lsn,
    /// What pages are read from, and written to unless only one is wanted.
    files: ForkFiles,
    block: Option<u32>,
    pages: BTreeMap<u32, Vec<u8>>,
    blocks: u32,
    unusable: BTreeMap<u32, Unusable>,
    /// Pages that records need but that are not there, and the first such record.
    missing: BTreeMap<u32, Lsn>,
    dropped: Option<Lsn>,
    decoder: Decoder,
    made: RelationAt,
}

/// Makes the file. What was written is removed when it fails.
///
/// # Errors
/// [`Kind::NotFound`] when the WAL does not reach from the backup to the moment, or the relation was removed; [`Kind::Usage`] when the
/// backup is newer than the moment; and those of reading and writing.
pub fn relation_at(wish: &Wish<'_>, go_on: &mut dyn FnMut(u64) -> bool) -> Result<RelationAt> {
    let dir = DataDir::around(wish.file)?;
    if let Server::Running { pid, .. } = Condition::of(&dir.root).server {
        return Err(Error::new(Kind::Usage, "the server of this file is running")
            .detail(format!("pid {pid}"))
            .hint("give the file of a backup")
            .at(wish.file));
    }
    let (relation, name) = of_path(&std::path::absolute(wish.file).unwrap_or_else(|_| wish.file.to_owned()));
    let fork = name.fork as u8;
    if relation.rel == 0 || relation.spc == 0 || name.segment != 0 || fork == FREE_SPACE {
        return Err(Error::new(Kind::Usage, "this is not the first file of a table or index")
            .detail("such a file is base/5/16384 in a backup, or base/5/16384_vm; free space maps are not in the WAL")
            .at(wish.file));
    }
    let control = ControlFile::open(&dir.root)?;
    let from = begin(&dir.root, &control, wish.to)?;
    let log = Arc::new(Wal::open(wish.wal, None, Some(from), Some(wish.to))?.keeping(KEEP_ALL));
    check_log(&control, &log, wish)?;
    let context = Context {
        major: dir.major as u8,
        block_size: dir.block_size as u32,
        hint_bits_are_logged: dir.checksums || control.wal_log_hints(),
    };
    let base = ForkFiles::new(wish.file, dir.block_size, dir.segment_blocks);
    let output = ForkFiles::new(wish.output, dir.block_size, dir.segment_blocks);
    let replay = RelationReplay {
        context: &context,
        relation,
        fork,
        checksums: dir.checksums,
        to: wish.to,
        blocks: base.blocks()?,
        files: if wish.block.is_some() { base.clone() } else { output.clone() },
        block: wish.block,
        pages: BTreeMap::new(),
        unusable: BTreeMap::new(),
        missing: BTreeMap::new(),
        dropped: None,
        decoder: Decoder::default(),
        made: RelationAt { from, ..RelationAt::default() },
    };
    let outcome = replay.run(&base, &log, wish, go_on);
    if outcome.is_err() {
        output.remove();
    }
    outcome
}

/// Where the WAL of the backup begins.
fn begin(root: &Path, control: &ControlFile, to: Lsn) -> Result<Lsn> {
    let label = root.join("backup_label");
    let from = match fs::read_to_string(&label) {
        Ok(text) => start_of_label(&text).ok_or_else(|| {
            Error::new(Kind::Invalid, "cannot decode backup_label").detail("it has no START WAL LOCATION").at(&label)
        })?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Lsn(control.checkpoint().redo),
        Err(e) => return Err(Error::reading(&label, "the backup label", &e)),
    };
    if to <= from {
        return Err(Error::new(Kind::Usage, format!("the backup is not older than {to}"))
            .detail(format!("its WAL begins at {from}"))
            .hint("give a backup from before, or a later LSN")
            .at(root));
    }
    Ok(from)
}

/// `START WAL LOCATION: 0/2000028 (file 000000010000000000000002)`.
fn start_of_label(text: &str) -> Option<Lsn> {
    let line = text.lines().find_map(|line| line.strip_prefix("START WAL LOCATION: "))?;
    line.split_whitespace().next()?.parse().ok()
}

fn check_log(control: &ControlFile, log: &Wal, wish: &Wish<'_>) -> Result<()> {
    if log.system_id != control.system_id() {
        return Err(Error::new(Kind::Usage, "the WAL is from another server than the file")
            .detail(format!("system identifiers {} and {}", log.system_id, control.system_id()))
            .at(wish.wal));
    }
    // `WAL_LEVEL_MINIMAL`
    if control.wal_level() == 0 {
        return Err(Error::new(Kind::Unsupported, "the WAL does not have all changes")
            .detail("the server ran with wal_level minimal, in which tables are filled without WAL")
            .at(&control.path));
    }
    Ok(())
}

impl RelationReplay<'_> {
    fn run(
        mut self,
        base: &ForkFiles,
        log: &Arc<Wal>,
        wish: &Wish<'_>,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<RelationAt> {
        self.look_at(base)?;
        let range = log.range(Some(self.made.from), Some(wish.to.min(log.bounds().to)))?;
        let end = self.over(log, range, wish, go_on)?;
        self.finish(wish, end)
    }

    /// Reads the backup's pages, for what is wrong with them, and copies them.
    fn look_at(&mut self, base: &ForkFiles) -> Result<()> {
        if let Some(block) = self.block {
            let mut page = vec![0; base.block_size];
            if base.read(block, &mut page)? {
                self.judge(block, &page);
            }
            return Ok(());
        }
        let copy = self.files.clone();
        copy.create()?;
        base.for_each(|block, page| {
            self.judge(block, page);
            // Zeros are holes.
            if page.iter().any(|byte| *byte != 0) {
                copy.write(block, page)?;
            }
            Ok(())
        })?;
        copy.set_blocks(self.blocks)
    }

    fn judge(&mut self, block: u32, page: &[u8]) {
        if page.iter().all(|byte| *byte == 0) {
            return;
        }
        let Some(header) = Header::parse(page) else { return };
        let (stored, computed) = (header.pd_checksum, checksum(page, block));
        if self.checksums && stored != computed {
            self.unusable.insert(block, Unusable::Checksum { stored, computed });
            return;
        }
        let lsn = Lsn(header.pd_lsn);
        if lsn > self.to {
            self.unusable.insert(block, Unusable::Newer(lsn));
        }
    }

    /// Applies the WAL; gives where its last record ends.
    fn over(
        &mut self,
        log: &Arc<Wal>,
        range: Range,
        wish: &Wish<'_>,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Lsn> {
        let (context, relation, fork, block) = (self.context, self.relation, self.fork, self.block);
        let mut end = range.from;
        let mut stopped = false;
        let merge = |story: Story| {
            end = end.max(story.end);
            story.events.iter().try_for_each(|event| self.take(event))
        };
        let worker = || Worker { context, relation, fork, block };
        let ending = parallel::run(log, range, wish.threads, CHUNK, worker, merge, &mut |done| {
            stopped |= !go_on(done);
            !stopped
        })?;
        if stopped {
            return Err(Error::new(Kind::Usage, "interrupted"));
        }
        check_reaches(log, &ending, wish.to)?;
        Ok(end)
    }

    fn take(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Change { block, starts, kept } => self.change(*block, *starts, kept),
            Event::Cut { at, left } => {
                let left_blocks = left.unwrap_or(0);
                if left.is_none() {
                    self.dropped = Some(*at);
                }
                self.pages.retain(|block, _| *block < left_blocks);
                self.unusable.retain(|block, _| *block < left_blocks);
                self.missing.retain(|block, _| *block < left_blocks);
                self.blocks = self.blocks.min(left_blocks);
                if self.block.is_none() {
                    self.files.truncate(left_blocks)?;
                }
                Ok(())
            }
            Event::Copied { at } => Err(Error::new(Kind::Unsupported, "the WAL does not have all changes")
                .detail(format!("the database is a copy of another one's files, made at {at}"))
                .hint("give a backup from after that")
                .at(self.files.first())),
        }
    }

    fn change(&mut self, block: u32, starts: bool, kept: &Kept) -> Result<()> {
        let is_changed = self.pages.contains_key(&block);
        let (is_there, mut page) = self.page(block, starts)?;
        if starts {
            self.unusable.remove(&block);
            self.missing.remove(&block);
        }
        let major = self.context.major;
        let id = BlockId { relation: self.relation, fork: self.fork.into(), block };
        let outcome = match kept.part {
            Part::TruncateVisible { .. } | Part::TruncateFreeSpace { .. } if !is_there => Applied::Unchanged,
            Part::ClearVisible { .. } if !is_there && major < EXTENDS_WITH_ZEROS => {
                // The server extends the map by an empty page.
                if let Ok(mut page) = Page::new(&mut page) {
                    page.init(0).map_err(|misfit| self.misfit(block, kept.start, &misfit))?;
                }
                Applied::Changed
            }
            _ => kept.apply(&mut self.decoder, self.context, id, &mut page)?,
        };
        if is_changed || matches!(outcome, Applied::Changed | Applied::Restored) {
            self.pages.insert(block, page);
        }
        match outcome {
            Applied::Changed | Applied::Restored => {
                self.made.applied += 1;
                self.made.last = kept.start;
                self.dropped = None;
                self.blocks = self.blocks.max(block.saturating_add(1));
            }
            Applied::Older => self.made.older += 1,
            Applied::Unchanged if self.fork == VISIBILITY && !matches!(kept.part, Part::TruncateVisible { .. }) => {
                self.blocks = self.blocks.max(block.saturating_add(1));
            }
            Applied::Unchanged => {}
            Applied::Missing => {
                self.missing.entry(block).or_insert(kept.start);
            }
        }
        if self.pages.len() > KEPT_PAGES && self.block.is_none() {
            self.flush()?;
        }
        Ok(())
    }

    #[cold]
    fn misfit(&self, block: u32, lsn: Lsn, misfit: &leadline_redo::Misfit) -> Error {
        Error::new(Kind::Invalid, "a record does not fit its page")
            .detail(misfit.to_string())
            .at(PathBuf::from(format!("{}, block {block}, LSN {lsn}", self.files.first().display())))
    }

    /// The page as it is now, and whether there is one. What is made anew need not be read.
    fn page(&mut self, block: u32, starts: bool) -> Result<(bool, Vec<u8>)> {
        if let Some(page) = self.pages.remove(&block) {
            return Ok((true, page));
        }
        let mut page = vec![0; self.files.block_size];
        if starts || block >= self.blocks {
            return Ok((false, page));
        }
        if let Some(Unusable::Checksum { stored, computed }) = self.unusable.get(&block).copied() {
            // The server takes a damaged page of a map for an empty one.
            if self.fork == VISIBILITY {
                self.unusable.remove(&block);
                return Ok((true, page));
            }
            return Err(self.damaged(block, stored, computed));
        }
        let is_there = self.files.read(block, &mut page)?;
        Ok((is_there, page))
    }

    #[cold]
    fn damaged(&self, block: u32, stored: u16, computed: u16) -> Error {
        Error::new(Kind::Invalid, format!("block {block} of the file has a wrong checksum"))
            .detail(format!(
                "its checksum is {stored}, computed {computed}; the WAL has no image of the page to restore it from"
            ))
            .at(self.files.first())
    }

    fn flush(&mut self) -> Result<()> {
        for (block, mut page) in std::mem::take(&mut self.pages) {
            self.set_checksum(block, &mut page);
            self.files.write(block, &page)?;
        }
        Ok(())
    }

    fn set_checksum(&self, block: u32, page: &mut [u8]) {
        // `PageIsNew`: pd_upper is 0.
        if self.checksums && Header::parse(page).is_some_and(|header| header.pd_upper != 0) {
            let sum = checksum(page, block);
            page[header::at::CHECKSUM..][..2].copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// Refuses what is not of the moment, and writes the rest.
    fn finish(mut self, wish: &Wish<'_>, end: Lsn) -> Result<RelationAt> {
        let place = |block: u32| PathBuf::from(format!("{}, block {block}", wish.file.display()));
        if let Some(at) = self.dropped {
            return Err(Error::new(Kind::NotFound, format!("the relation did not exist at {}", wish.to))
                .detail(format!("it was removed at {at}"))
                .at(wish.file));
        }
        for (block, why) in &self.unusable {
            match *why {
                Unusable::Newer(lsn) if lsn > end => {
                    return Err(Error::new(Kind::Usage, "the backup is newer than the moment")
                        .detail(format!("the page was changed at {lsn}, the records before {} end at {end}", wish.to))
                        .hint("give an older backup, or a later LSN")
                        .at(place(*block)));
                }
                Unusable::Newer(_) => {}
                // The server makes it an empty one when it reads it.
                Unusable::Checksum { .. } if self.fork == VISIBILITY => {}
                Unusable::Checksum { stored, computed } => return Err(self.damaged(*block, stored, computed)),
            }
        }
        if let Some((block, lsn)) = self.missing.first_key_value() {
            return Err(Error::new(Kind::Invalid, format!("the WAL changes block {block}, which does not exist"))
                .detail("neither the backup nor the WAL has the page")
                .at(PathBuf::from(format!("{}, LSN {lsn}", wish.file.display()))));
        }
        let Some(block) = self.block else {
            self.flush()?;
            self.files.set_blocks(self.blocks)?;
            self.made.blocks = self.blocks;
            return Ok(self.made);
        };
        if block >= self.blocks {
            return Err(Error::new(Kind::NotFound, format!("the page did not exist at {}", wish.to)).at(place(block)));
        }
        let (_, mut page) = self.page(block, false)?;
        self.set_checksum(block, &mut page);
        let output = ForkFiles::new(wish.output, self.files.block_size, u32::MAX);
        output.create()?;
        output.write(0, &page)?;
        output.set_blocks(1)?;
        self.made.blocks = 1;
        Ok(self.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_backup_is_in_its_label() {
        let text = "START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\nCHECKPOINT LOCATION: 0/2000060\n";
        assert_eq!(start_of_label(text), Some(Lsn(0x200_0028)));
        assert_eq!(start_of_label("CHECKPOINT LOCATION: 0/2000060\n"), None);
        assert_eq!(start_of_label("START WAL LOCATION: x\n"), None);
    }
}

//! Redo checked against the server without a server: WAL written with `wal_consistency_checking` has an image of every page after
//! every record.
//!
//! Each page is taken from record to record, beginning with the first image or the first record that makes it anew, and compared
//! with the image under the server's masks. Pages of the visibility map are compared too, of which those masks leave nothing: an
//! image may lack bits that a session has cleared but not yet logged, so bits that only redo has must be cleared by a later record.

use std::collections::{BTreeMap, HashMap};

use leadline_datadir::{BlockId, RelFile};
use leadline_page::postgres::Fork;
use leadline_wal::rmgr::{id, type_id};
use leadline_wal::{image, Lsn, Reader, Record};

use crate::mask::mask;
use crate::target::fork;
use crate::{apply, rule, targets, visibility, Applied, Context, Misfit, Part, Target};

/// What was done with the records of one kind ([`type_id`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records.
    pub records: u64,
    /// Pages compared with an image.
    pub compared: u64,
    /// Pages that were restored from an image or were not known yet: nothing could be compared.
    pub begun: u64,
    /// Pages that the record does not name and that changed.
    pub unnamed: u64,
    /// Pages that differ, and records that did not fit.
    pub differences: u64,
}

/// One page that is not as the server had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where the record begins.
    pub lsn: Lsn,
    /// Its kind.
    pub type_id: u16,
    /// The page, and why it changes.
    pub target: Target,
    /// What is different, in words.
    pub what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Target { page, part } = self.target;
        let fork = Fork::name_of(page.fork).unwrap_or("unknown");
        write!(
            f,
            "record {}, relation {}, fork {fork}, block {}, {part:?}: {}",
            self.lsn, page.relation, page.block, self.what
        )
    }
}

/// Bits of a page of the visibility map that an image lacked and no record has cleared since.
#[derive(Debug)]
struct Early {
    bits: Box<[u8]>,
    /// The record with the last such image.
    lsn: Lsn,
    type_id: u16,
    target: Target,
}

/// Pages on their way through WAL.
#[derive(Debug)]
pub struct Consistency {
    context: Context,
    pages: HashMap<BlockId, Box<[u8]>>,
    early: HashMap<BlockId, Early>,
    /// By kind of record.
    pub tallies: BTreeMap<u16, Tally>,
    /// The first of them, at most [`Consistency::KEPT`].
    pub differences: Vec<Difference>,
}

impl Consistency {
    /// Differences that are kept.
    pub const KEPT: usize = 100;

    /// Before the first record.
    pub fn new(context: Context) -> Consistency {
        Consistency {
            context,
            pages: HashMap::new(),
            early: HashMap::new(),
            tallies: BTreeMap::new(),
            differences: Vec::new(),
        }
    }

    /// Pages known so far.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Takes all records there are, and the end.
    ///
    /// # Errors
    /// Those of [`Reader::next_record`].
    pub fn read(&mut self, reader: &mut Reader) -> leadline_wal::Result<()> {
        while let Some(record) = reader.next_record()? {
            self.take(&record);
        }
        self.end();
        Ok(())
    }

    /// Applies the next record to its pages and compares them.
    pub fn take(&mut self, record: &Record<'_>) {
        let kind = type_id(record.rmid, record.info);
        self.tallies.entry(kind).or_default().records += 1;
        self.forget_files(record);
        let mut all = Vec::new();
        targets(&self.context, record, |target| all.push(target));
        for target in all {
            match target.part {
                Part::Block(_) => self.named(record, kind, target),
                _ => self.unnamed(record, kind, target),
            }
            self.forget_cleared(target.page);
        }
    }

    /// At the end of the WAL, where no session was at work any more: what should have been cleared and was not is a difference.
    pub fn end(&mut self) {
        for Early { lsn, type_id, target, .. } in std::mem::take(&mut self.early).into_values() {
            self.differ(lsn, type_id, target, "bits of the visibility map stay that the server has cleared".to_owned());
        }
    }

    fn forget_cleared(&mut self, page: BlockId) {
        let (Some(early), Some(ours)) = (self.early.get_mut(&page), self.pages.get(&page)) else { return };
        early.bits.iter_mut().zip(ours.iter()).for_each(|(early, ours)| *early &= ours);
        if early.bits.iter().all(|bits| *bits == 0) {
            self.early.remove(&page);
        }
    }

    fn named(&mut self, record: &Record<'_>, kind: u16, target: Target) {
        let Part::Block(block_id) = target.part else { return };
        let Some(block) = record.block(block_id) else { return };
        let size = self.context.block_size as usize;
        let known = self.pages.get_mut(&target.page);
        let is_begun = known.is_some() || rule::starts_page(block);
        let theirs = match image::page(record, block) {
            Ok(theirs) => theirs.filter(|page| page.len() == size),
            Err(e) => return self.differ(record.start, kind, target, e.to_string()),
        };
        if !is_begun {
            self.tally(kind).begun += 1;
            if let Some(theirs) = theirs {
                self.pages.insert(target.page, theirs.into());
            }
            return;
        }
        let page = self.pages.entry(target.page).or_insert_with(|| vec![0; size].into());
        let outcome = apply(&self.context, record, &target, page);
        let ours = page.clone();
        let tally = self.tallies.entry(kind).or_default();
        let what = match (outcome, theirs) {
            (Ok(Applied::Restored), _) => {
                tally.begun += 1;
                return;
            }
            (Ok(_), None) => return,
            (Ok(_), Some(theirs)) if target.page.fork as u8 == fork::VISIBILITY => {
                tally.compared += 1;
                let Some(what) = self.compare_map(record, kind, target, &ours, &theirs) else { return };
                self.pages.insert(target.page, theirs.into());
                what
            }
            (Ok(applied), Some(theirs)) => {
                tally.compared += 1;
                let Some(what) = self.compare(record, &target, ours, &theirs) else { return };
                self.pages.insert(target.page, theirs.into());
                format!("{applied:?}: {what}")
            }
            (Err(misfit), theirs) => {
                // Goes on from the image, so that one fault is reported once.
                match theirs {
                    Some(theirs) => self.pages.insert(target.page, theirs.into()),
                    None => self.pages.remove(&target.page),
                };
                misfit.to_string()
            }
        };
        self.differ(record.start, kind, target, what);
    }

    /// Where the first bytes differ under the mask; none when the pages are equal.
    fn compare(&self, record: &Record<'_>, target: &Target, mut ours: Box<[u8]>, theirs: &[u8]) -> Option<String> {
        let mut theirs = theirs.to_vec();
        let page = target.page;
        let masked = |bytes: &mut [u8]| -> Result<(), Misfit> {
            mask(self.context.major, record.rmid, page.fork as u8, page.block, bytes)
        };
        if let Err(misfit) = masked(&mut theirs).and_then(|()| masked(&mut ours)) {
            return Some(format!("cannot be masked: {misfit}"));
        }
        let at: Vec<usize> = (0..theirs.len()).filter(|at| ours[*at] != theirs[*at]).collect();
        let first = *at.first()?;
        let shown = first..(first + 8).min(ours.len());
        Some(format!(
            "{} bytes differ, the first at {first}: {:02x?}, the server {:02x?}",
            at.len(),
            &ours[shown.clone()],
            &theirs[shown]
        ))
    }

    /// Bits that only the server has are a difference at once.
    fn compare_map(
        &mut self,
        record: &Record<'_>,
        type_id: u16,
        target: Target,
        ours: &[u8],
        theirs: &[u8],
    ) -> Option<String> {
        const LSN_AND_CHECKSUM: usize = 10;
        let pairs = || ours.iter().zip(theirs).enumerate().skip(LSN_AND_CHECKSUM);
        if let Some((at, (ours, theirs))) = pairs().find(|(_, (ours, theirs))| **theirs & !**ours != 0) {
            return Some(format!("byte {at} is {ours:#04x}, the server has {theirs:#04x}"));
        }
        if pairs().any(|(_, (ours, theirs))| ours != theirs) {
            let none = || Early { bits: vec![0; ours.len()].into(), lsn: record.start, type_id, target };
            let early = self.early.entry(target.page).or_insert_with(none);
            pairs().for_each(|(at, (ours, theirs))| early.bits[at] |= ours & !theirs);
            (early.lsn, early.type_id, early.target) = (record.start, type_id, target);
        }
        None
    }

    fn unnamed(&mut self, record: &Record<'_>, kind: u16, target: Target) {
        let Some(page) = self.pages.get_mut(&target.page) else { return };
        match apply(&self.context, record, &target, page) {
            Ok(Applied::Changed) => self.tally(kind).unnamed += 1,
            Ok(_) => {}
            Err(misfit) => self.differ(record.start, kind, target, misfit.to_string()),
        }
    }

    fn tally(&mut self, kind: u16) -> &mut Tally {
        self.tallies.entry(kind).or_default()
    }

    fn differ(&mut self, lsn: Lsn, kind: u16, target: Target, what: String) {
        self.tally(kind).differences += 1;
        if self.differences.len() < Self::KEPT {
            self.differences.push(Difference { lsn, type_id: kind, target, what });
        }
    }

    /// Pages of files that begin anew or are cut are not known any more.
    fn forget_files(&mut self, record: &Record<'_>) {
        const CREATE: u8 = 0x10;
        const TRUNCATE: u8 = 0x20;
        if record.rmid != id::SMGR {
            return;
        }
        match record.info & 0xF0 {
            CREATE => {
                let word = |at: usize| {
                    record.main_data().get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
                };
                let (Some(spc), Some(db), Some(rel), Some(fork)) = (word(0), word(4), word(8), word(12)) else {
                    return;
                };
                let relation = RelFile { spc, db, rel };
                self.pages.retain(|page, _| page.relation != relation || page.fork != fork);
            }
            TRUNCATE => {
                let Some(cut) = rule::truncation(record) else { return };
                let size = self.context.block_size;
                let maps_left = cut.blocks.div_ceil(visibility::blocks_per_page(size));
                self.pages.retain(|page, _| {
                    let left = match page.fork as u8 {
                        fork::MAIN if cut.has_main() => cut.blocks,
                        fork::VISIBILITY if cut.has_visibility_map() => maps_left,
                        // Nothing is known of what is left of it.
                        fork::FREE_SPACE if cut.has_free_space_map() => 0,
                        _ => return true,
                    };
                    page.relation != cut.relation || page.block < left
                });
            }
            _ => {}
        }
    }
}

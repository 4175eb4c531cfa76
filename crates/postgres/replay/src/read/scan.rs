//! The WAL read once, by several threads, from the redo point to its end: what is not in pages goes to [`State`] in the WAL's order, the
//! same threads roll pages forward in the [`Pool`], and records of pages that do not fit there are kept, or put into a file.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use leadline_datadir::BlockId;
use leadline_errors::Result;
use leadline_redo::{rule, targets, Context, Part};
use leadline_wal::parallel::{self, Work};
use leadline_wal::rmgr::{self, id, type_id, xlog, TYPES};
use leadline_wal::{Decoder, Ending, Lsn, Pages, Range, Reader, Record, Wal};

use crate::account::{Clock, Phase, Times};
use crate::files::cluster::Cluster;
use crate::pages::pool::{PageWorker, Pool};
use crate::partition::partitioned::PartitionedRefs;
use crate::partition::record_refs::{hash, CapacityHints, ForkId, Memory, Partitioner, RecordRef, Records};
use crate::partition::spill::Spill;
use crate::read::state::State;
use crate::read::xids;

/// Bytes of the WAL that a thread reads at a time.
const CHUNK: u64 = 8 << 20;

/// Forks of which a chunk remembers where they are: a power of two.
const LAST: usize = 32;

/// Visibility map.
const MAP_FORK: u8 = 2;

/// Records and bytes of a kind, and what of its images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sum {
    pub records: u64,
    pub bytes: u64,
    pub images: u64,
    pub image_bytes: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, other: &Sum) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.images += other.images;
        self.image_bytes += other.image_bytes;
    }
}

/// What one chunk has.
pub(crate) struct ChunkPart {
    /// What is not in pages, in order.
    notes: Vec<Note>,
    /// The bytes of records in `notes`.
    bytes: Vec<u8>,
    forks: Vec<ForkId>,
    /// Where it begins, when it has a record.
    begin: Option<u64>,
    records: Option<Records>,
    pieces: Vec<(u32, Vec<RecordRef>)>,
    /// By kind of record.
    sums: Vec<Sum>,
    /// Bytes that its records and pieces take when they are partitioned.
    weight: usize,
    refs: u64,
}

enum Note {
    Record {
        start: Lsn,
        end: Lsn,
        at: usize,
        length: usize,
    },
    /// Forks that were read or written since the last note of this kind, and how long they must be.
    Touched(Vec<(ForkId, u32)>),
    /// The latest transaction among records that are no note.
    Xid(u32),
    /// Transactions whose commit says no more than when.
    Commits(Vec<(u32, i64)>),
}

/// A fork within a chunk.
struct Local {
    id: ForkId,
    hash: u64,
    is_touched: bool,
    length: u32,
}

struct Worker<'a> {
    context: Context,
    /// Records are partitioned.
    deals: &'a AtomicBool,
    /// And what else they tell is noted: the first time.
    notes: bool,
    /// How much room each partition needed in the last chunk.
    rooms: CapacityHints,
    memory: Arc<Memory>,
    /// To roll pages forward between chunks.
    page_worker: Option<PageWorker<'a>>,
    _clock: Clock,
}

impl Work for Worker<'_> {
    type Part = ChunkPart;

    fn read(&mut self, reader: &mut Reader) -> Result<ChunkPart> {
        let deals = self.deals.load(Ordering::Relaxed);
        let (range, base) = (reader.range(), reader.first_page());
        if deals {
            reader.keep(self.memory.take(((range.to.0 - base.0) as usize).max(CHUNK as usize)));
        }
        let mut chunk = Chunk::new(base.0, &self.rooms);
        while let Some((record, at)) = reader.next_kept()? {
            chunk.part.begin.get_or_insert(record.start.0);
            chunk.take(&self.context, &record, at, deals, self.notes);
        }
        if chunk.part.refs > 0 {
            chunk.part.weight += (reader.position().0 - base.0) as usize;
        }
        let part = chunk.into_part(reader.take_kept(), &self.memory);
        self.rooms.learn(&part.pieces);
        Ok(part)
    }

    fn after(&mut self) -> Result<()> {
        self.page_worker.iter_mut().for_each(PageWorker::work);
        Ok(())
    }
}

struct Chunk<'a> {
    dealer: Partitioner<'a>,
    locals: Vec<Local>,
    by_id: HashMap<ForkId, u32>,
    /// Forks found last, each where its number leads.
    last: [u32; LAST],
    xid: u32,
    commits: Vec<(u32, i64)>,
    part: ChunkPart,
}

impl<'a> Chunk<'a> {
    fn new(base: u64, rooms: &'a CapacityHints) -> Chunk<'a> {
        let part = ChunkPart {
            begin: None,
            records: None,
            notes: Vec::new(),
            bytes: Vec::new(),
            forks: Vec::new(),
            pieces: Vec::new(),
            sums: vec![Sum::default(); TYPES],
            weight: 0,
            refs: 0,
        };
        Chunk {
            dealer: Partitioner::new(base, rooms),
            locals: Vec::new(),
            by_id: HashMap::new(),
            last: [0; LAST],
            xid: 0,
            commits: Vec::new(),
            part,
        }
    }

    #[inline]
    fn take(&mut self, context: &Context, record: &Record<'_>, at: Option<usize>, deals: bool, notes: bool) {
        if notes {
            self.note(record);
        }
        let is_paged = !record.blocks.is_empty() || record.rmid == id::SMGR;
        if !is_paged {
            return;
        }
        self.dealer.next_record(at);
        targets(context, record, |target| {
            let BlockId { relation, fork, block } = target.page;
            let fork = fork as u8;
            let local = self.find((relation, fork));
            let of = &mut self.locals[local as usize];
            let starts = match target.part {
                Part::Block(id) => {
                    let starts = record.block(id).is_some_and(rule::starts_page);
                    of.is_touched = true;
                    if starts || fork == MAP_FORK {
                        of.length = of.length.max(block.saturating_add(1));
                    }
                    starts
                }
                Part::ClearVisible { .. } => {
                    of.is_touched = true;
                    of.length = of.length.max(block.saturating_add(1));
                    false
                }
                _ => false,
            };
            self.part.refs += 1;
            self.part.weight += std::mem::size_of::<RecordRef>();
            if deals {
                self.dealer.put(record, &target, local, of.hash, starts);
            }
        });
    }

    #[inline]
    fn find(&mut self, id: ForkId) -> u32 {
        let slot = (id.0.rel as usize * 4 + usize::from(id.1)) % LAST;
        let last = self.last[slot];
        if self.locals.get(last as usize).is_some_and(|local| local.id == id) {
            return last;
        }
        let (locals, next) = (&mut self.locals, self.by_id.len() as u32);
        self.last[slot] = *self.by_id.entry(id).or_insert_with(|| {
            locals.push(Local { id, hash: hash(id.0, id.1), is_touched: false, length: 0 });
            next
        });
        self.last[slot]
    }

    fn note(&mut self, record: &Record<'_>) {
        let sum = &mut self.part.sums[usize::from(type_id(record.rmid, record.info))];
        sum.records += 1;
        sum.bytes += record.length() as u64;
        for block in record.blocks.iter().filter(|block| block.has_image) {
            sum.images += 1;
            sum.image_bytes += u64::from(block.image_length);
        }
        if record.xid != 0 && (self.xid == 0 || xids::precedes(self.xid, record.xid)) {
            self.xid = record.xid;
        }
        if !is_noted(record) {
            return;
        }
        if let Some(time) = crate::read::xact::plain_commit(record) {
            self.commits.push((record.xid, time));
            return;
        }
        if changes_files(record) {
            self.flush_touched();
        }
        self.flush_transactions();
        let at = self.part.bytes.len();
        let length = record.copy_for(None, &mut self.part.bytes);
        self.part.notes.push(Note::Record { start: record.start, end: record.end, at, length });
    }

    fn flush_touched(&mut self) {
        let touched = self.locals.iter_mut().filter(|local| local.is_touched);
        let found: Vec<(ForkId, u32)> = touched
            .map(|local| {
                local.is_touched = false;
                (local.id, std::mem::take(&mut local.length))
            })
            .collect();
        if !found.is_empty() {
            self.part.notes.push(Note::Touched(found));
        }
    }

    fn flush_transactions(&mut self) {
        if self.xid != 0 {
            self.part.notes.push(Note::Xid(std::mem::take(&mut self.xid)));
        }
        if !self.commits.is_empty() {
            self.part.notes.push(Note::Commits(std::mem::take(&mut self.commits)));
        }
    }

    fn into_part(mut self, pages: Option<Pages>, memory: &Arc<Memory>) -> ChunkPart {
        self.flush_touched();
        self.flush_transactions();
        let sum = |of: fn(&Sum) -> u64| self.part.sums.iter().map(of).sum::<u64>();
        let is_images = sum(|kind| kind.image_bytes) > sum(|kind| kind.bytes) / 2;
        let (pieces, records) = self.dealer.finish(pages, memory, is_images);
        (self.part.pieces, self.part.records) = (pieces, Some(records));
        self.part.forks = self.locals.iter().map(|local| local.id).collect();
        self.part
    }
}

/// Whether a record tells something that is not in pages.
#[inline]
fn is_noted(record: &Record<'_>) -> bool {
    let op = record.info & rmgr::OPCODE_MASK;
    match record.rmid {
        id::XLOG => matches!(
            op,
            xlog::CHECKPOINT_SHUTDOWN
                | xlog::CHECKPOINT_ONLINE
                | xlog::NEXTOID
                | xlog::PARAMETER_CHANGE
                | xlog::FPW_CHANGE
                | xlog::END_OF_RECOVERY
        ),
        id::HEAP2 => op == 0x00,
        id::STANDBY | id::LOGICALMSG => false,
        id::XACT => op & 0x70 <= 0x40,
        id::SMGR | id::CLOG | id::DBASE | id::TBLSPC | id::MULTIXACT | id::RELMAP | id::COMMIT_TS | id::REPLORIGIN => {
            true
        }
        rmid => rmid >= rmgr::CUSTOM,
    }
}

/// Whether it may remove or cut files, so that what was touched before is another matter than what is touched after.
fn changes_files(record: &Record<'_>) -> bool {
    match record.rmid {
        id::SMGR | id::DBASE => true,
        id::XACT => crate::read::xact::ended(record).is_some_and(|ended| ended.is_ok_and(|ended| ended.drops_files())),
        _ => false,
    }
}

/// What all of the WAL has.
pub(crate) struct Scanned {
    pub ending: Ending,
    pub sums: BTreeMap<u16, Sum>,
    pub refs: u64,
    /// Pages at their end.
    pub pool: Option<Pool>,
    /// The records of others.
    pub records: Found,
    /// Where each chunk begins, and the bytes its records take when they are partitioned.
    pub weights: Vec<(u64, usize)>,
}

/// Where the records of pages are.
pub(crate) enum Found {
    /// All in memory.
    PartitionedRefs(PartitionedRefs),
    /// In a file; the forks are in memory.
    Spilled(Spill, Vec<ForkId>),
    /// Only in the WAL.
    InLog,
}

/// How to read.
pub(crate) struct How<'a> {
    pub context: Context,
    pub threads: usize,
    /// Bytes that pages, and records kept for later, may take.
    pub memory: usize,
    /// Where records go that do not fit.
    pub cluster: &'a Cluster,
    pub times: Times,
    /// For pages of the WAL.
    pub pages: Arc<Memory>,
}

impl How<'_> {
    fn worker<'a>(&'a self, deals: &'a AtomicBool, pool: Option<&'a Pool>, notes: bool) -> Worker<'a> {
        Worker {
            context: self.context,
            deals,
            notes,
            rooms: CapacityHints::default(),
            memory: Arc::clone(&self.pages),
            page_worker: pool.map(|pool| pool.worker(self.cluster, self.context)),
            _clock: self.times.begin(Phase::Read),
        }
    }
}

/// Reads the WAL for the first time.
pub(crate) fn first(
    log: &Arc<Wal>,
    range: Range,
    how: &How<'_>,
    state: &mut State,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Scanned> {
    let deals = AtomicBool::new(how.memory > 0);
    let truncations = state.stage().fork_changes.shared_truncations();
    let pool = Pool::new(how.cluster.block_size, CHUNK as usize, how.memory, Arc::clone(&how.pages), truncations);
    let worker = || how.worker(&deals, Some(&pool), true);
    let mut spill: Option<Spill> = None;
    let mut sums: BTreeMap<u16, Sum> = BTreeMap::new();
    let (mut refs, mut weights) = (0, Vec::new());
    let mut decoder = Decoder::default();
    let major = how.context.major;
    let merge = |mut part: ChunkPart| {
        for (kind, sum) in part.sums.iter().enumerate().filter(|(_, sum)| sum.records > 0) {
            sums.entry(kind as u16).or_default().add(sum);
        }
        refs += part.refs;
        weights.extend(part.begin.map(|begin| (begin, part.weight)));
        for note in &part.notes {
            match note {
                Note::Xid(xid) => state.saw_xid(*xid),
                Note::Commits(commits) => state.take_commits(commits)?,
                Note::Touched(forks) => {
                    for ((relation, fork), length) in forks {
                        state.stage().fork_changes.touch(*relation, *fork, *length);
                    }
                }
                Note::Record { start, end, at, length } => {
                    let bytes = &part.bytes[*at..at + length];
                    if let Some(record) = decoder.decode(bytes, None, *start, *end, major) {
                        state.take(&record, how.context.block_size)?;
                    }
                }
            }
        }
        if let Some(records) = part.records.take().filter(|_| deals.load(Ordering::Relaxed)) {
            pool.add(&part.forks, records, part.pieces);
            let is_kept = !pool.has_too_many() || spill_all(&mut pool.hand_over(), &mut spill, how);
            // Parts of WAL are read again one after the other.
            if !is_kept || state.stages.len() > 1 {
                deals.store(false, Ordering::Relaxed);
                pool.give_up();
            }
        }
        Ok(())
    };
    let ending = parallel::run(log, range, how.threads, CHUNK, worker, merge, go_on)?;
    if !deals.load(Ordering::Relaxed) {
        return Ok(Scanned { ending, sums, refs, pool: None, records: Found::InLog, weights });
    }
    pool.end();
    std::thread::scope(|scope| {
        for _ in 0..how.threads {
            scope.spawn(|| worker().after());
        }
    });
    let mut rest = pool.hand_over_all();
    let is_kept = spill.is_none() || spill_all(&mut rest, &mut spill, how);
    let (pool, records) = match spill {
        _ if !is_kept => (None, Found::InLog),
        Some(spill) => (Some(pool), Found::Spilled(spill, rest.forks.ids)),
        None => (Some(pool), Found::PartitionedRefs(rest)),
    };
    Ok(Scanned { ending, sums, refs, pool, records, weights })
}

/// Puts records into the temporary file. False when it cannot be written, as on a full disk: the WAL is read again then.
fn spill_all(refs: &mut PartitionedRefs, spill: &mut Option<Spill>, how: &How<'_>) -> bool {
    let file = match spill.take().map_or_else(|| Spill::create(how.cluster), Ok) {
        Ok(file) => spill.insert(file),
        Err(_) => return false,
    };
    file.add(&mut refs.partitions, how.context.major, how.threads).is_ok()
}

/// Reads a part of the WAL once more, only to deal out its records.
pub(crate) fn again(
    log: &Arc<Wal>,
    range: Range,
    how: &How<'_>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<PartitionedRefs> {
    let deals = AtomicBool::new(true);
    let worker = || how.worker(&deals, None, false);
    let mut refs = PartitionedRefs::new();
    let merge = |part: ChunkPart| {
        if let Some(records) = part.records {
            refs.add(&part.forks, records, part.pieces);
        }
        Ok(())
    };
    parallel::run(log, range, how.threads, CHUNK, worker, merge, go_on)?;
    Ok(refs)
}

//! The log read once, by several threads, from the redo point to its end: what is not in pages goes to [`State`] in the log's order,
//! records of pages are dealt out to partitions as long as memory lasts.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use leadline_datadir::BlockId;
use leadline_errors::Result;
use leadline_redo::{rule, targets, Context, Part};
use leadline_wal::parallel::{self, Work};
use leadline_wal::rmgr::{self, id, type_id, TYPES};
use leadline_wal::{Decoder, Ending, Log, Lsn, Range, Reader, Record};

use crate::pieces::{hash, Dealer, ForkId, Piece, Placed, Rooms, PARTITIONS};
use crate::state::State;
use crate::xids;

/// Bytes of the log that a thread reads at a time.
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

/// What one chunk has.
pub(crate) struct ChunkPart {
    base: u64,
    /// What is not in pages, in order.
    notes: Vec<Note>,
    /// The bytes of records in `notes`.
    bytes: Vec<u8>,
    forks: Vec<ForkId>,
    pieces: Vec<(u32, Piece)>,
    /// By kind of record.
    sums: Vec<Sum>,
    /// Bytes that its pieces take.
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
    /// Records are dealt out.
    deals: &'a AtomicBool,
    /// And what else they tell is noted: the first time.
    notes: bool,
    /// How much room each partition needed in the last chunk.
    rooms: Rooms,
}

impl Work for Worker<'_> {
    type Part = ChunkPart;

    fn read(&mut self, reader: &mut Reader) -> Result<ChunkPart> {
        let mut chunk: Option<Chunk> = None;
        let deals = self.deals.load(Ordering::Relaxed);
        while let Some(record) = reader.next_record()? {
            chunk.get_or_insert_with(|| Chunk::new(record.start.0, &self.rooms)).take(
                &self.context,
                &record,
                deals,
                self.notes,
            );
        }
        let part = chunk.unwrap_or_else(|| Chunk::new(0, &self.rooms)).into_part();
        self.rooms.learn(&part.pieces);
        Ok(part)
    }
}

struct Chunk<'a> {
    dealer: Dealer<'a>,
    locals: Vec<Local>,
    by_id: HashMap<ForkId, u32>,
    /// Forks found last, each where its number leads.
    last: [u32; LAST],
    xid: u32,
    part: ChunkPart,
}

impl<'a> Chunk<'a> {
    fn new(base: u64, rooms: &'a Rooms) -> Chunk<'a> {
        let part = ChunkPart {
            base,
            notes: Vec::new(),
            bytes: Vec::new(),
            forks: Vec::new(),
            pieces: Vec::new(),
            sums: vec![Sum::default(); TYPES],
            weight: 0,
            refs: 0,
        };
        Chunk {
            dealer: Dealer::new(base, rooms),
            locals: Vec::new(),
            by_id: HashMap::new(),
            last: [0; LAST],
            xid: 0,
            part,
        }
    }

    #[inline]
    fn take(&mut self, context: &Context, record: &Record<'_>, deals: bool, notes: bool) {
        if notes {
            self.note(record);
        }
        let is_paged = !record.blocks.is_empty() || record.rmid == id::SMGR;
        if !is_paged {
            return;
        }
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
            self.part.weight += if deals {
                self.dealer.put(record, &target, local, of.hash, starts)
            } else {
                std::mem::size_of::<crate::pieces::Entry>() + record.length().min(9000)
            };
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
        if changes_files(record) {
            self.flush_touched();
        }
        self.flush_xid();
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

    fn flush_xid(&mut self) {
        if self.xid != 0 {
            self.part.notes.push(Note::Xid(std::mem::take(&mut self.xid)));
        }
    }

    fn into_part(mut self) -> ChunkPart {
        self.flush_touched();
        self.flush_xid();
        self.part.pieces = self.dealer.into_pieces();
        self.part.forks = self.locals.iter().map(|local| local.id).collect();
        self.part
    }
}

/// Whether a record tells something that is not in pages.
#[inline]
fn is_noted(record: &Record<'_>) -> bool {
    let op = record.info & rmgr::OPCODE_MASK;
    match record.rmid {
        id::XLOG => matches!(op, 0x00 | 0x10 | 0x30 | 0x60 | 0x80 | 0x90),
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
        id::XACT => crate::xact::ended(record).is_some_and(|ended| ended.is_ok_and(|ended| ended.drops_files())),
        _ => false,
    }
}

/// What all of the log has.
pub(crate) struct Scanned {
    pub ending: Ending,
    pub sums: BTreeMap<u16, Sum>,
    pub refs: u64,
    /// All records of pages, when memory was enough.
    pub dealt: Option<Dealt>,
    /// Where each chunk begins, and the bytes its records take when they are dealt out.
    pub weights: Vec<(u64, usize)>,
}

/// Records by partition.
#[derive(Debug, Default)]
pub(crate) struct Dealt {
    pub partitions: Vec<Vec<Placed>>,
    pub forks: Vec<ForkId>,
    numbers: HashMap<ForkId, u32>,
    bytes: usize,
}

impl Dealt {
    fn new() -> Dealt {
        Dealt { partitions: (0..PARTITIONS).map(|_| Vec::new()).collect(), ..Dealt::default() }
    }

    fn add(&mut self, part: &mut ChunkPart) {
        let Dealt { partitions, forks, numbers, bytes } = self;
        let of = part.forks.iter().map(|id| {
            *numbers.entry(*id).or_insert_with(|| {
                forks.push(*id);
                forks.len() as u32 - 1
            })
        });
        let of = Arc::new(of.collect::<Vec<u32>>());
        for (partition, piece) in part.pieces.drain(..) {
            *bytes += piece.bytes.capacity() + piece.entries.capacity() * std::mem::size_of::<crate::pieces::Entry>();
            partitions[partition as usize].push(Placed { piece, base: part.base, forks: Arc::clone(&of) });
        }
    }
}

/// How to read.
pub(crate) struct How {
    pub context: Context,
    pub threads: usize,
    /// Bytes that dealt out records may take.
    pub memory: usize,
}

/// Reads the log for the first time.
pub(crate) fn first(
    log: &Arc<Log>,
    range: Range,
    how: &How,
    state: &mut State,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Scanned> {
    let deals = AtomicBool::new(how.memory > 0);
    let worker = || Worker { context: how.context, deals: &deals, notes: true, rooms: Rooms::default() };
    let mut dealt = (how.memory > 0).then(Dealt::new);
    let mut sums: BTreeMap<u16, Sum> = BTreeMap::new();
    let (mut refs, mut weights) = (0, Vec::new());
    let mut decoder = Decoder::default();
    let major = how.context.major;
    let merge = |mut part: ChunkPart| {
        for (kind, sum) in part.sums.iter().enumerate().filter(|(_, sum)| sum.records > 0) {
            let of = sums.entry(kind as u16).or_default();
            of.records += sum.records;
            of.bytes += sum.bytes;
            of.images += sum.images;
            of.image_bytes += sum.image_bytes;
        }
        refs += part.refs;
        if part.base != 0 {
            weights.push((part.base, part.weight));
        }
        for note in &part.notes {
            match note {
                Note::Xid(xid) => state.saw_xid(*xid),
                Note::Touched(forks) => {
                    for ((relation, fork), length) in forks {
                        state.stage().lifetimes.touch(*relation, *fork, *length);
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
        if let Some(all) = &mut dealt {
            all.add(&mut part);
            // Parts of a log are read again one after the other.
            if all.bytes > how.memory || state.stages.len() > 1 {
                deals.store(false, Ordering::Relaxed);
                dealt = None;
            }
        }
        Ok(())
    };
    let ending = parallel::run(log, range, how.threads, CHUNK, worker, merge, go_on)?;
    Ok(Scanned { ending, sums, refs, dealt, weights })
}

/// Reads a part of the log once more, only to deal out its records.
pub(crate) fn again(log: &Arc<Log>, range: Range, how: &How, go_on: &mut dyn FnMut(u64) -> bool) -> Result<Dealt> {
    let deals = AtomicBool::new(true);
    let worker = || Worker { context: how.context, deals: &deals, notes: false, rooms: Rooms::default() };
    let mut dealt = Dealt::new();
    let merge = |mut part: ChunkPart| {
        dealt.add(&mut part);
        Ok(())
    };
    parallel::run(log, range, how.threads, CHUNK, worker, merge, go_on)?;
    Ok(dealt)
}

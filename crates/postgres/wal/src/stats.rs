//! Sums over all records of a range: how many, how many bytes, how many of them page images, and how many bytes of
//! images a later image of the same page in the range made useless.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::describe;
use crate::parallel::{run, Work};
use crate::reader::{Ending, Reader};
use crate::record::{Block, Record};
use crate::rmgr;
use crate::wal::{Range, Wal};
use leadline_datadir::RelFile as Relation;
use leadline_errors::Result;

/// What is summed up together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Resource manager and kind of record.
    Type,
    /// Resource manager.
    Rmgr,
    /// Relation: a record belongs to that of its first block, an image to its own.
    Relation,
    /// Database, likewise.
    Database,
    /// Hour, by the last time the WAL told before the record.
    Hour,
}

/// Names one sum: [`rmgr::type_id`], resource manager, the parts of a relation, or hours since 1970; none for records
/// without block or before the first time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub Option<[u32; 3]>);

/// One sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Records.
    pub records: u64,
    /// Their bytes without page images.
    pub record_bytes: u64,
    /// Page images.
    pub images: u64,
    /// Bytes of page images as stored.
    pub fpi_bytes: u64,
    /// Of these, bytes of images that a later image of the same page in the range makes useless.
    pub superseded_fpi_bytes: u64,
}

/// All sums of a range.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Sums by key, in the order of keys.
    pub sums: Vec<(Key, Sum)>,
    /// How the reading ended.
    pub ending: Ending,
    /// Pages forgotten because too many had images: superseded bytes are then a lower bound.
    pub pages_forgotten: u64,
}

/// Most pages whose last image is remembered: 48 bytes each.
const PAGES: usize = 3 << 20;

/// Wal a worker takes at once.
const CHUNK: u64 = 16 << 20;

/// Sums up the records of a range that `keep` wants.
///
/// # Errors
/// Those of [`Reader::next_record`].
pub fn stats(
    log: &Arc<Wal>,
    range: Range,
    by: By,
    threads: usize,
    keep: &(dyn Fn(&Record<'_>) -> bool + Sync),
    filtered: bool,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Stats> {
    let mut whole = Whole::default();
    let worker = || Worker { by, keep: filtered.then_some(keep), chunk: Chunk::new() };
    let merge = |chunk: Chunk| {
        whole.add(by, chunk);
        Ok(())
    };
    let ending = run(log, range, threads, CHUNK, worker, merge, go_on)?;
    let mut sums: Vec<(Key, Sum)> = whole.sums.into_iter().filter(|(_, s)| *s != Sum::default()).collect();
    sums.sort_by_key(|(key, _)| *key);
    Ok(Stats { sums, ending, pages_forgotten: whole.pages_forgotten })
}

/// A page of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Page {
    relation: Relation,
    block: u32,
    fork: u8,
}

/// A page image, in the order of the WAL.
struct Image {
    page: Page,
    sum: u32,
    bytes: u16,
}

/// A quick hash for keys made of a few words; nobody can gain from making them collide.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64((*b).into()));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Words<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// What one worker finds in one chunk.
struct Chunk {
    /// Sums by number; numbers of keys by key.
    sums: Vec<(Key, Sum)>,
    numbers: Words<Key, u32>,
    /// By [`rmgr::type_id`], for the default grouping: number + 1.
    types: Vec<u32>,
    last: Option<(Key, u32)>,
    images: Vec<Image>,
    /// The last time the WAL told in this chunk.
    hour: Option<u32>,
}

impl Chunk {
    fn new() -> Chunk {
        let types = vec![0; rmgr::TYPES];
        Chunk { sums: Vec::new(), numbers: Words::default(), types, last: None, images: Vec::new(), hour: None }
    }

    #[inline]
    fn number(&mut self, key: Key) -> usize {
        match self.last {
            Some((last, number)) if last == key => return number as usize,
            _ => {}
        }
        let sums = &mut self.sums;
        let number = *self.numbers.entry(key).or_insert_with(|| {
            sums.push((key, Sum::default()));
            sums.len() as u32 - 1
        });
        self.last = Some((key, number));
        number as usize
    }

    #[inline]
    fn number_of_type(&mut self, type_id: u16) -> usize {
        let slot = &mut self.types[usize::from(type_id) % rmgr::TYPES];
        if *slot == 0 {
            self.sums.push((Key(Some([type_id.into(), 0, 0])), Sum::default()));
            *slot = self.sums.len() as u32;
        }
        *slot as usize - 1
    }
}

/// What all chunks have in common, in the order of the WAL.
#[derive(Default)]
struct Whole {
    sums: HashMap<Key, Sum>,
    /// Of each page its last image: whose sum it is in, and its bytes.
    last_images: Words<Page, (Key, u16)>,
    pages_forgotten: u64,
    hour: Option<u32>,
}

impl Whole {
    /// Adds the chunk that follows those added before.
    fn add(&mut self, by: By, mut chunk: Chunk) {
        // Records before the first time of a chunk are of the hour that the chunk before it ended with.
        let inherited = Key(self.hour.map(|h| [h, 0, 0]));
        for (key, _) in &mut chunk.sums {
            if by == By::Hour && key.0.is_none() {
                *key = inherited;
            }
        }
        for (key, sum) in &chunk.sums {
            let into = self.sums.entry(*key).or_default();
            into.records += sum.records;
            into.record_bytes += sum.record_bytes;
            into.images += sum.images;
            into.fpi_bytes += sum.fpi_bytes;
        }
        for image in &chunk.images {
            let key = chunk.sums[image.sum as usize].0;
            if let Some((key, bytes)) = self.last_images.insert(image.page, (key, image.bytes)) {
                self.sums.entry(key).or_default().superseded_fpi_bytes += u64::from(bytes);
            } else if self.last_images.len() > PAGES {
                self.pages_forgotten += self.last_images.len() as u64;
                self.last_images.clear();
            }
        }
        self.hour = chunk.hour.or(self.hour);
    }
}

struct Worker<'a> {
    by: By,
    keep: Option<&'a (dyn Fn(&Record<'_>) -> bool + Sync)>,
    chunk: Chunk,
}

impl Work for Worker<'_> {
    type Part = Chunk;

    fn read(&mut self, reader: &mut Reader) -> Result<Chunk> {
        while reader.advance()? {
            // Who only sums up has no record in memory: one that is lent to others must be.
            if self.keep.is_none_or(|keep| keep(&reader.record())) {
                self.add(reader.record());
            }
        }
        Ok(std::mem::replace(&mut self.chunk, Chunk::new()))
    }
}

impl Worker<'_> {
    #[inline]
    fn add(&mut self, record: Record<'_>) {
        let number = match self.by {
            By::Type => self.chunk.number_of_type(rmgr::type_id(record.rmid, record.info)),
            By::Rmgr => self.chunk.number(Key(Some([record.rmid.into(), 0, 0]))),
            By::Hour => {
                let lent = record;
                if let Some(time) = describe::time_of(&lent) {
                    self.chunk.hour = u32::try_from(time.div_euclid(3_600_000_000)).ok();
                }
                self.chunk.number(Key(self.chunk.hour.map(|h| [h, 0, 0])))
            }
            By::Relation | By::Database => self.chunk.number(Key(record.blocks.first().map(|b| self.owner(b)))),
        };
        let mut image_bytes = 0;
        for block in record.blocks {
            if block.has_image {
                image_bytes += u64::from(block.image_length);
                self.add_image(number, block);
            }
        }
        let sum = &mut self.chunk.sums[number].1;
        sum.records += 1;
        sum.record_bytes += record.length() as u64 - image_bytes;
    }

    fn add_image(&mut self, of_record: usize, block: &Block) {
        let number = match self.by {
            By::Relation | By::Database => self.chunk.number(Key(Some(self.owner(block)))),
            _ => of_record,
        };
        let sum = &mut self.chunk.sums[number].1;
        sum.images += 1;
        sum.fpi_bytes += u64::from(block.image_length);
        let page = Page { relation: block.relation, block: block.block, fork: block.fork };
        self.chunk.images.push(Image { page, sum: number as u32, bytes: block.image_length });
    }

    fn owner(&self, block: &Block) -> [u32; 3] {
        let Relation { spc, db, rel } = block.relation;
        if self.by == By::Database {
            [db, 0, 0]
        } else {
            [spc, db, rel]
        }
    }
}

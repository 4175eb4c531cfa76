//! From "waits for a buffer" to which page of which relation.
//!
//! No pointer leads from a waiting session to its buffer. But the buffer's content lock has a wait list, so the
//! descriptors are scanned for lists that are not empty. That costs 64 bytes of memory traffic per buffer: it is done
//! only when someone waits, within a budget, and buffers found contended lately are looked at first.

use crate::attach::Anchors;
use crate::layout::{Layout, LARGEST_TAG};
use crate::lwlocks::{read_waiters, Waiter};
use crate::memory::{Memory, Read};
use crate::page_kind::{page_kind, right_sibling, LEAF, RIGHT_EDGE_LEAF, RIGHT_MOST_LEAF};
use leadline_datadir::{database_folder, segment_path, BlockId, RelFile};
use leadline_page::postgres::btree;
use std::fs;
use std::path::PathBuf;

/// buf_internals.h, BufferDesc.state up to 18.
const BM_TAG_VALID: u32 = 1 << 25;
const BM_IO_IN_PROGRESS: u32 = 1 << 26;
const BM_PIN_COUNT_WAITER: u32 = 1 << 29;

/// Descriptors copied at once.
const CHUNK: u32 = 1024;
/// Buffers remembered as contended.
const HOT: usize = 64;
/// Relations remembered for their contended leaf pages.
const LEAFY: usize = 4;
/// So many pages from the right-most leaf a leaf still belongs to the right edge.
const EDGE_PAGES: u32 = 64;

/// What kind of wait a buffer causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    /// Content lock.
    Content,
    /// Others' pins.
    Pin,
    /// Another session's read or write of it.
    Io,
}

impl WaitKind {
    /// The word of buffer_wait.wait_kind.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitKind::Content => "content",
            WaitKind::Pin => "pin",
            WaitKind::Io => "io",
        }
    }
}

/// A contended buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferWait {
    /// Buffer number.
    pub buf_id: u32,
    /// Its page.
    pub tag: BlockId,
    /// What the page says it is.
    pub page_kind: &'static str,
    /// Why it is waited for.
    pub kind: WaitKind,
    /// Address of its content lock.
    pub lock: u64,
    /// Who waits for the content lock; empty for the other kinds, whose waiters leave no list.
    pub waiters: Vec<Waiter>,
    /// Of a btree leaf: the block to its right.
    right: Option<u32>,
}

/// Which waits there are to explain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Sessions waiting for a content lock.
    pub content: u32,
    /// For a pin.
    pub pin: u32,
    /// For I/O of another session.
    pub io: u32,
}

impl Wanted {
    /// Sessions waiting for any of them.
    pub fn total(&self) -> u32 {
        self.content + self.pin + self.io
    }
}

/// Looks for contended buffers of one server.
#[derive(Debug)]
pub struct Buffers {
    layout: Layout,
    anchors: Anchors,
    hot: Vec<u32>,
    /// Relations whose leaf pages were contended lately: their pages are picked in the same pass.
    leafy: Vec<BlockId>,
    chunk: Vec<u8>,
}

/// Which buffers hold the pages of some relations.
#[derive(Debug)]
struct Pages {
    /// At most a few: each descriptor is compared with all of them.
    relations: Vec<BlockId>,
    /// Position in `relations` in the high half, block in the low one; buffer.
    held: Vec<(u64, u32)>,
}

impl Pages {
    fn of(relations: Vec<BlockId>) -> Self {
        Pages { relations, held: Vec::new() }
    }

    /// Takes the buffer when it holds a page of one of the relations.
    fn take(&mut self, layout: &Layout, buf_id: u32, descriptor: &[u8]) {
        if self.relations.is_empty() {
            return;
        }
        let tag = parse_tag(layout, descriptor.get(layout.buf_tag as usize..).unwrap_or_default());
        if let Some(key) = self.key(&tag) {
            self.held.push((key, buf_id));
        }
    }

    fn key(&self, tag: &BlockId) -> Option<u64> {
        let at = self.relations.iter().position(|r| *r == relation(tag))?;
        Some((at as u64) << 32 | u64::from(tag.block))
    }

    /// To be called between the last `take` and the first question.
    fn sort(&mut self) {
        self.held.sort_unstable();
    }

    /// Greatest block of the tag's relation that is in a buffer; 0 when none is.
    fn last_block(&self, tag: &BlockId) -> u32 {
        let Some(key) = self.key(&BlockId { block: u32::MAX, ..*tag }) else { return 0 };
        let after = self.held.partition_point(|(k, _)| *k <= key);
        let last = after.checked_sub(1).and_then(|at| self.held.get(at)).filter(|(k, _)| k >> 32 == key >> 32);
        last.map_or(0, |(k, _)| *k as u32)
    }

    fn buffer(&self, tag: &BlockId) -> Option<u32> {
        let key = self.key(tag)?;
        let at = self.held.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        self.held.get(at).map(|(_, id)| *id)
    }
}

/// The tag without its block.
fn relation(tag: &BlockId) -> BlockId {
    BlockId { block: 0, ..*tag }
}

/// Puts what was seen last first, once.
fn remember<T: PartialEq>(list: &mut Vec<T>, seen: T, most: usize) {
    list.retain(|known| *known != seen);
    list.insert(0, seen);
    list.truncate(most);
}

impl Buffers {
    /// For a server attached to.
    pub fn new(layout: &Layout, anchors: &Anchors) -> Self {
        Buffers {
            layout: layout.clone(),
            anchors: anchors.clone(),
            hot: Vec::new(),
            leafy: Vec::new(),
            chunk: Vec::new(),
        }
    }

    /// Looks at the buffers found contended lately; how many it looked at comes with the answer.
    pub fn scan_hot<M: Memory>(&mut self, mem: &M, wanted: Wanted, torn: &mut u32) -> (Vec<BufferWait>, u64) {
        let hot = self.hot.clone();
        let mut found: Vec<BufferWait> = hot.iter().filter_map(|&id| self.inspect(mem, id, wanted, torn)).collect();
        self.find_right_edges(mem, &mut found, Pages::of(Vec::new()), torn);
        (found, hot.len() as u64)
    }

    /// Looks at every descriptor and remembers the contended ones.
    pub fn scan_all<M: Memory>(&mut self, mem: &M, wanted: Wanted, torn: &mut u32) -> Vec<BufferWait> {
        let mut pages = Pages::of(self.leafy.clone());
        let mut candidates = Vec::new();
        self.each(mem, torn, |buffers, id, descriptor| {
            pages.take(&buffers.layout, id, descriptor);
            if buffers.is_candidate(descriptor, wanted) {
                candidates.push(id);
            }
        });
        let mut found: Vec<BufferWait> =
            candidates.iter().filter_map(|&id| self.inspect(mem, id, wanted, torn)).collect();
        self.find_right_edges(mem, &mut found, pages, torn);
        for wait in &found {
            remember(&mut self.hot, wait.buf_id, HOT);
            if [LEAF, RIGHT_EDGE_LEAF, RIGHT_MOST_LEAF].contains(&wait.page_kind) {
                remember(&mut self.leafy, relation(&wait.tag), LEAFY);
            }
        }
        found
    }

    /// Every descriptor: number of the buffer and bytes.
    fn each<M: Memory>(&mut self, mem: &M, torn: &mut u32, mut look: impl FnMut(&Self, u32, &[u8])) {
        let size = self.layout.buf_size as usize;
        let mut chunk = std::mem::take(&mut self.chunk);
        for first in (0..self.anchors.buffers).step_by(CHUNK as usize) {
            let count = CHUNK.min(self.anchors.buffers - first);
            chunk.resize(count as usize * size, 0);
            if mem.read(self.anchors.buffer_descriptors + u64::from(first) * size as u64, &mut chunk).is_err() {
                *torn += 1;
                continue;
            }
            chunk.chunks_exact(size).zip(first..).for_each(|(bytes, id)| look(self, id, bytes));
        }
        self.chunk = chunk;
    }

    /// Sessions pile up on the right-most leaf of an index with growing keys. While the holder of its lock is off the CPU,
    /// others split on to the right, so by the time of the look the leaf has right siblings. A leaf at most
    /// [`EDGE_PAGES`] and an eighth of the index left of the right-most one is the right edge as well.
    ///
    /// pages: of some relations, found on the way; those of others are looked for in a pass of their own.
    fn find_right_edges<M: Memory>(&mut self, mem: &M, found: &mut [BufferWait], mut pages: Pages, torn: &mut u32) {
        let mut of_leaves = Vec::new();
        for wait in found.iter().filter(|w| w.page_kind == LEAF) {
            remember(&mut of_leaves, relation(&wait.tag), usize::MAX);
        }
        if of_leaves.is_empty() {
            return;
        }
        if of_leaves.iter().any(|relation| !pages.relations.contains(relation)) {
            pages = Pages::of(of_leaves);
            self.each(mem, torn, |buffers, id, descriptor| pages.take(&buffers.layout, id, descriptor));
        }
        pages.sort();
        for wait in found.iter_mut().filter(|w| w.page_kind == LEAF) {
            let steps = EDGE_PAGES.min(pages.last_block(&wait.tag) / 8);
            let mut right = wait.right;
            for _ in 0..steps.max(1) {
                let Some(id) = right.and_then(|block| pages.buffer(&BlockId { block, ..wait.tag })) else { break };
                right = self.read_right_sibling(mem, id);
                if right.is_none() {
                    wait.page_kind = RIGHT_EDGE_LEAF;
                    break;
                }
            }
        }
    }

    fn is_candidate(&self, descriptor: &[u8], wanted: Wanted) -> bool {
        let word = |at: u64| {
            descriptor.get(at as usize..at as usize + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        let state = word(self.layout.buf_state);
        word(self.layout.buf_content_lock + self.layout.lw_waiters) < self.anchors.all_proc_count
            || (wanted.pin > 0 && state & BM_PIN_COUNT_WAITER != 0)
            || (wanted.io > 0 && state & BM_IO_IN_PROGRESS != 0)
    }

    fn inspect<M: Memory>(&self, mem: &M, buf_id: u32, wanted: Wanted, torn: &mut u32) -> Option<BufferWait> {
        let found = self.read_wait(mem, buf_id, wanted);
        if found.is_err() {
            *torn += 1;
        }
        found.unwrap_or(None)
    }

    /// One buffer: Ok(None) when it is not contended, Err when it changed while it was read.
    fn read_wait<M: Memory>(&self, mem: &M, buf_id: u32, wanted: Wanted) -> Read<Option<BufferWait>> {
        let fault = crate::memory::Fault { addr: u64::from(buf_id) };
        if buf_id >= self.anchors.buffers {
            return Err(fault);
        }
        let descriptor = self.anchors.buffer_descriptors + u64::from(buf_id) * self.layout.buf_size;
        let lock = descriptor + self.layout.buf_content_lock;
        let (tag, state) = self.read_tag(mem, descriptor)?;
        let waiters = read_waiters(mem, &self.layout, &self.anchors, lock)?.ok_or(fault)?;
        let kind = match waiters.is_empty() {
            false => WaitKind::Content,
            true if wanted.pin > 0 && state & BM_PIN_COUNT_WAITER != 0 => WaitKind::Pin,
            true if wanted.io > 0 && state & BM_IO_IN_PROGRESS != 0 => WaitKind::Io,
            true => return Ok(None),
        };
        if state & BM_TAG_VALID == 0 {
            return Err(fault);
        }
        let (page_kind, right) = self.read_page_kind(mem, buf_id, &tag);
        if self.read_tag(mem, descriptor)?.0 != tag {
            return Err(fault);
        }
        Ok(Some(BufferWait { buf_id, tag, page_kind, kind, lock, waiters, right }))
    }

    fn read_tag<M: Memory>(&self, mem: &M, descriptor: u64) -> Read<(BlockId, u32)> {
        let mut tag = [0; LARGEST_TAG];
        let tag = tag.get_mut(..self.layout.buf_tag_size as usize).unwrap_or_default();
        mem.read(descriptor + self.layout.buf_tag, tag)?;
        Ok((parse_tag(&self.layout, tag), mem.u32(descriptor + self.layout.buf_state)?))
    }

    fn read_page_kind<M: Memory>(&self, mem: &M, buf_id: u32, tag: &BlockId) -> (&'static str, Option<u32>) {
        let size = self.anchors.block_size;
        let at = self.anchors.buffer_blocks + u64::from(buf_id) * u64::from(size);
        let mut page = vec![0u8; size as usize];
        match mem.read(at, &mut page) {
            Ok(()) => (page_kind(tag.fork, &page), right_sibling(&page)),
            Err(_) => ("unknown", None),
        }
    }

    /// Of a page known to be of a btree: only its special area tells, at the end of the page.
    fn read_right_sibling<M: Memory>(&self, mem: &M, buf_id: u32) -> Option<u32> {
        let end = self.anchors.buffer_blocks + (u64::from(buf_id) + 1) * u64::from(self.anchors.block_size);
        let mut special = [0; btree::SPECIAL];
        mem.read(end - special.len() as u64, &mut special).ok()?;
        btree::Opaque::parse(&special).map(|opaque| opaque.btpo_next).filter(|&next| next != 0)
    }
}

/// The page that a BufferTag names.
fn parse_tag(layout: &Layout, b: &[u8]) -> BlockId {
    let word = |at: u64| b.get(at as usize..).and_then(|b| b.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w));
    let relation =
        RelFile { spc: word(layout.buf_tag_spc), db: word(layout.buf_tag_db), rel: word(layout.buf_tag_rel) };
    BlockId { relation, fork: word(layout.buf_tag_fork), block: word(layout.buf_tag_block) }
}

/// Length of a relation's main fork in blocks, from its files as the postmaster sees them; None when they cannot be read.
pub fn relation_blocks(postmaster: i32, major: u32, anchors: &Anchors, tag: &BlockId) -> Option<u64> {
    let (block_size, segment_blocks) = (u64::from(anchors.block_size), u64::from(anchors.segment_blocks));
    let root = PathBuf::from(format!("/proc/{postmaster}/cwd"));
    let relation = tag.relation;
    let folder = database_folder(&root, major, relation.spc, relation.db).ok()??;
    let first = folder.join(relation.rel.to_string());
    let segment = u64::from(tag.block) / segment_blocks;
    let bytes = |segment: u64| fs::metadata(segment_path(&first, u32::try_from(segment).ok()?)).ok().map(|m| m.len());
    let length = bytes(segment)? / block_size;
    let more = bytes(segment + 1).map_or(0, |bytes| bytes / block_size);
    Some(segment * segment_blocks + length + more)
}

/// A heap page among the last of a table that has many: where new rows go.
pub fn is_heap_tail(blocks: u64, block: u32) -> bool {
    const BULK_EXTENSION: u64 = 64; // 16 and later extend by up to so many blocks at once
    blocks > 4 * BULK_EXTENSION && u64::from(block) + BULK_EXTENSION >= blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::FakeMemory;

    fn server(major: u32, buffers: u32) -> (FakeMemory, Layout, Anchors) {
        server_with(major, buffers, 8192)
    }

    fn server_with(major: u32, buffers: u32, block_size: u32) -> (FakeMemory, Layout, Anchors) {
        let layout = Layout::of(major).unwrap();
        let (all_procs, descriptors, blocks) = (0x10_0000u64, 0x40_0000u64, 0x100_0000u64);
        let mut mem = FakeMemory {
            pieces: vec![
                (all_procs, vec![0; 8 * layout.proc_size as usize]),
                (descriptors, vec![0; buffers as usize * layout.buf_size as usize]),
                (blocks, vec![0; buffers as usize * block_size as usize]),
            ],
        };
        let anchors = Anchors {
            all_procs,
            all_proc_count: 8,
            buffer_descriptors: descriptors,
            buffer_blocks: blocks,
            buffers,
            block_size,
            ..Anchors::default()
        };
        for i in 0..u64::from(buffers) {
            let at = descriptors + i * layout.buf_size;
            for (word, value) in [1663, 5, 16384, 0, i as u32].into_iter().enumerate() {
                mem.put_u32(at + word as u64 * 4, value);
            }
            mem.put_u32(at + layout.buf_state, BM_TAG_VALID);
            mem.put_u32(at + layout.buf_content_lock + layout.lw_waiters, u32::MAX);
        }
        (mem, layout, anchors)
    }

    fn wait(mem: &mut FakeMemory, layout: &Layout, anchors: &Anchors, buffer: u64, proc: u32) {
        let list = anchors.buffer_descriptors + buffer * layout.buf_size + layout.buf_content_lock + layout.lw_waiters;
        mem.put_u32(list, proc);
        mem.put_u32(list + 4, proc);
    }

    #[test]
    fn a_contended_buffer_is_named_and_remembered() {
        for major in [13, 15, 17, 18] {
            let (mut mem, layout, anchors) = server(major, 3000);
            wait(&mut mem, &layout, &anchors, 2500, 3);
            let mut buffers = Buffers::new(&layout, &anchors);
            let (wanted, mut torn) = (Wanted { content: 1, ..Wanted::default() }, 0);
            assert_eq!(buffers.scan_hot(&mem, wanted, &mut torn), (vec![], 0));
            let found = buffers.scan_all(&mem, wanted, &mut torn);
            assert_eq!((found.len(), found[0].buf_id, found[0].tag.block, torn), (1, 2500, 2500, 0), "{major}");
            assert_eq!(found[0].waiters.len(), 1);
            assert_eq!(buffers.scan_hot(&mem, wanted, &mut torn), (found, 1));
        }
    }

    /// Makes the page of a buffer a btree leaf with this right sibling.
    fn leaf(mem: &mut FakeMemory, anchors: &Anchors, buffer: u64, right: u32) {
        let page = anchors.buffer_blocks + buffer * u64::from(anchors.block_size);
        let special = anchors.block_size as u16 - 16;
        let header = [40, special, special, anchors.block_size as u16 | 4]; // pd_lower, pd_upper, pd_special, pd_pagesize_version
        mem.put(page + 12, &header.map(u16::to_le_bytes).concat());
        mem.put_u32(page + u64::from(special) + 4, right);
        mem.put(page + u64::from(special) + 12, &[1, 0]);
    }

    #[test]
    fn a_leaf_that_was_right_most_a_split_ago_is_the_right_edge() {
        for block_size in [8192, 32_768] {
            let (mut mem, layout, anchors) = server_with(16, 10, block_size);
            for (buffer, right) in [(2, 7), (3, 5), (5, 2), (7, 0)] {
                leaf(&mut mem, &anchors, buffer, right);
            }
            wait(&mut mem, &layout, &anchors, 2, 1);
            wait(&mut mem, &layout, &anchors, 3, 4);
            let wanted = Wanted { content: 2, ..Wanted::default() };
            let found = Buffers::new(&layout, &anchors).scan_all(&mem, wanted, &mut 0);
            let kinds: Vec<_> = found.iter().map(|w| (w.buf_id, w.page_kind)).collect();
            assert_eq!(kinds, [(2, RIGHT_EDGE_LEAF), (3, LEAF)], "{block_size}");
        }
    }

    /// Each read is a syscall where memory cannot be mapped.
    #[derive(Debug)]
    struct Counted(FakeMemory, std::cell::Cell<u32>);

    impl Memory for Counted {
        fn read(&self, addr: u64, buf: &mut [u8]) -> Read<()> {
            self.1.set(self.1.get() + 1);
            self.0.read(addr, buf)
        }
    }

    #[test]
    fn a_large_index_takes_no_more_reads_than_a_small_one() {
        let reads = |buffers: u32| {
            let (mut mem, layout, anchors) = server(16, buffers);
            leaf(&mut mem, &anchors, 2, 7);
            leaf(&mut mem, &anchors, 7, 0);
            wait(&mut mem, &layout, &anchors, 2, 1);
            let mem = Counted(mem, 0.into());
            let wanted = Wanted { content: 1, ..Wanted::default() };
            let found = Buffers::new(&layout, &anchors).scan_all(&mem, wanted, &mut 0);
            assert_eq!(found[0].page_kind, RIGHT_EDGE_LEAF);
            mem.1.get()
        };
        assert_eq!(reads(10), reads(CHUNK));
        assert_eq!(reads(2 * CHUNK), reads(CHUNK) + 2, "one more to find the waits, one more to find the neighbours");
    }

    #[test]
    fn the_neighbours_of_a_leaf_that_is_contended_again_are_found_on_the_way() {
        let (mut mem, layout, anchors) = server(16, 4 * CHUNK);
        leaf(&mut mem, &anchors, 2, 7);
        leaf(&mut mem, &anchors, 7, 0);
        wait(&mut mem, &layout, &anchors, 2, 1);
        let mem = Counted(mem, 0.into());
        let mut buffers = Buffers::new(&layout, &anchors);
        let mut look = || {
            let before = mem.1.get();
            let found = buffers.scan_all(&mem, Wanted { content: 1, ..Wanted::default() }, &mut 0);
            (found, mem.1.get() - before)
        };
        let (first, second) = (look(), look());
        assert_eq!((first.0.len(), first.0[0].page_kind), (1, RIGHT_EDGE_LEAF));
        assert_eq!((second.0, second.1), (first.0, first.1 - 4), "four reads of descriptors less");
    }

    #[test]
    fn pins_and_io_are_reported_only_when_someone_waits_for_them() {
        let (mut mem, layout, anchors) = server(16, 10);
        mem.put_u32(
            anchors.buffer_descriptors + 4 * layout.buf_size + layout.buf_state,
            BM_TAG_VALID | BM_PIN_COUNT_WAITER,
        );
        let mut buffers = Buffers::new(&layout, &anchors);
        assert_eq!(buffers.scan_all(&mem, Wanted { content: 1, ..Wanted::default() }, &mut 0), vec![]);
        let found = buffers.scan_all(&mem, Wanted { pin: 1, ..Wanted::default() }, &mut 0);
        assert_eq!((found[0].buf_id, found[0].kind), (4, WaitKind::Pin));
    }

    #[test]
    fn an_invalid_tag_or_unreadable_array_is_torn() {
        let (mut mem, layout, mut anchors) = server(16, 10);
        wait(&mut mem, &layout, &anchors, 1, 3);
        mem.put_u32(anchors.buffer_descriptors + layout.buf_size + layout.buf_state, 0);
        let wanted = Wanted { content: 1, ..Wanted::default() };
        let mut torn = 0;
        assert_eq!(Buffers::new(&layout, &anchors).scan_all(&mem, wanted, &mut torn), vec![]);
        assert_eq!(torn, 1);
        anchors.buffers = 100_000;
        Buffers::new(&layout, &anchors).scan_all(&mem, wanted, &mut torn);
        assert!(torn > 1);
    }

    #[test]
    fn the_tail_of_a_heap_needs_a_heap_worth_the_name() {
        assert!(is_heap_tail(1000, 999) && is_heap_tail(1000, 940));
        assert!(!is_heap_tail(1000, 900) && !is_heap_tail(10, 9));
    }
}

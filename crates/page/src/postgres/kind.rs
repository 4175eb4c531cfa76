//! What kind of page a block is, from its own bytes and the fork its file belongs to.
//!
//! Special areas of one size are told apart by their last two bytes, which each access method keeps for that.

use super::header::Header;
use super::{bloom, brin, btree, gin, gist, hash, sequence, spgist};

/// The file of a relation that a page is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Fork {
    #[default]
    Main,
    /// Free space map, `_fsm`.
    Fsm,
    /// Visibility map, `_vm`.
    Vm,
    /// What an unlogged relation begins with after a crash, `_init`.
    Init,
}

impl Fork {
    /// Its name as PostgreSQL writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Fork::Main => "main",
            Fork::Fsm => "fsm",
            Fork::Vm => "vm",
            Fork::Init => "init",
        }
    }

    /// The name of a fork by its number in a buffer tag or a log record.
    pub fn name_of(number: u32) -> Option<&'static str> {
        Fork::of_number(number).map(Fork::as_str)
    }

    /// The fork of a number in a buffer tag or a log record.
    pub fn of_number(number: u32) -> Option<Fork> {
        let forks = [Fork::Main, Fork::Fsm, Fork::Vm, Fork::Init];
        forks.get(usize::try_from(number).ok()?).copied()
    }

    /// What stands behind the number in the name of its file, `_` before it; of the main fork nothing does.
    pub fn of_suffix(suffix: &str) -> Option<Fork> {
        [Fork::Fsm, Fork::Vm, Fork::Init].into_iter().find(|fork| fork.as_str() == suffix)
    }
}

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    /// Only zeros: the file was extended, the page not used yet.
    New,
    Heap,
    Sequence,
    VisibilityMap,
    FreeSpaceMap,
    BtreeMeta,
    BtreeLeaf,
    BtreeInner,
    BtreeDeleted,
    /// Deleted before 14: still has its high key.
    BtreeDeletedOld,
    HashMeta,
    HashBucket,
    HashOverflow,
    HashBitmap,
    HashUnused,
    GinMeta,
    GinEntryLeaf,
    GinEntryInner,
    GinDataLeaf,
    GinDataInner,
    GinPending,
    GinDeleted,
    GistLeaf,
    GistInner,
    GistDeleted,
    SpgistMeta,
    SpgistLeaf,
    SpgistInner,
    BrinMeta,
    BrinRevmap,
    BrinRegular,
    /// An index of contrib/bloom.
    Bloom,
    BloomMeta,
    Unknown,
}

/// What the line pointers of a page point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Items {
    /// There are no line pointers.
    None,
    Heap,
    Index,
    Spgist,
    Brin,
    Unknown,
}

impl Kind {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        use Kind as K;
        match self {
            K::New => "new",
            K::Heap => "heap",
            K::Sequence => "sequence",
            K::VisibilityMap => "visibility map",
            K::FreeSpaceMap => "free space map",
            K::BtreeMeta => "btree meta",
            K::BtreeLeaf => "btree leaf",
            K::BtreeInner => "btree inner",
            K::BtreeDeleted | K::BtreeDeletedOld => "btree deleted",
            K::HashMeta => "hash meta",
            K::HashBucket => "hash bucket",
            K::HashOverflow => "hash overflow",
            K::HashBitmap => "hash bitmap",
            K::HashUnused => "hash unused",
            K::GinMeta => "gin meta",
            K::GinEntryLeaf => "gin entry leaf",
            K::GinEntryInner => "gin entry inner",
            K::GinDataLeaf => "gin posting tree leaf",
            K::GinDataInner => "gin posting tree inner",
            K::GinPending => "gin pending list",
            K::GinDeleted => "gin deleted",
            K::GistLeaf => "gist leaf",
            K::GistInner => "gist inner",
            K::GistDeleted => "gist deleted",
            K::SpgistMeta => "spgist meta",
            K::SpgistLeaf => "spgist leaf",
            K::SpgistInner => "spgist inner",
            K::BrinMeta => "brin meta",
            K::BrinRevmap => "brin map",
            K::BrinRegular => "brin summaries",
            K::Bloom => "bloom",
            K::BloomMeta => "bloom meta",
            K::Unknown => "unknown",
        }
    }

    /// What its line pointers point to.
    pub fn items(self) -> Items {
        use Kind as K;
        match self {
            K::Heap | K::Sequence => Items::Heap,
            K::BtreeLeaf | K::BtreeInner | K::BtreeDeletedOld => Items::Index,
            K::HashBucket | K::HashOverflow => Items::Index,
            K::GinEntryLeaf | K::GinEntryInner | K::GinPending | K::GistLeaf | K::GistInner => Items::Index,
            K::SpgistLeaf | K::SpgistInner => Items::Spgist,
            K::BrinRegular => Items::Brin,
            K::Unknown => Items::Unknown,
            _ => Items::None,
        }
    }
}

/// Offsets of flags in special areas of 16 and 8 bytes. Sources: src/include/access/nbtree.h, hash.h, gist.h and
/// spgist_private.h, contrib/bloom/bloom.h.
mod at {
    /// `btpo_flags`, `hasho_flag` and the `flags` of GiST: all behind three words of four bytes.
    pub(super) const FLAGS_OF_SIXTEEN: usize = 12;
    pub(super) const SPGIST_FLAGS: usize = 0;
    pub(super) const BLOOM_FLAGS: usize = 2;
}

/// The kind of a page whose header is `header`.
#[inline]
pub fn kind(page: &[u8], header: &Header, fork: Fork) -> Kind {
    if header.pd_upper == 0 {
        return if is_new(page, header) { Kind::New } else { Kind::Unknown };
    }
    match fork {
        Fork::Fsm => return Kind::FreeSpaceMap,
        Fork::Vm => return Kind::VisibilityMap,
        Fork::Main | Fork::Init => {}
    }
    if header.page_size() != page.len() || usize::from(header.pd_special) > page.len() {
        return Kind::Unknown;
    }
    let special = header.special(page);
    match special {
        [] => Kind::Heap,
        [.., low, high] if special.len() == 8 => of_eight(special, u16::from_le_bytes([*low, *high])),
        [.., low, high] if special.len() == 16 => of_sixteen(special, u16::from_le_bytes([*low, *high])),
        _ => Kind::Unknown,
    }
}

/// Whether nothing was ever put into a page: there are only zeros in it. A page whose header alone is zeros is a damaged one.
#[inline]
pub fn is_new(page: &[u8], header: &Header) -> bool {
    header.pd_upper == 0 && zeros(page)
}

/// Whether there are only zeros; 64 bytes at a time, which the compiler makes a few instructions.
#[inline(always)]
fn zeros(page: &[u8]) -> bool {
    page.chunks(64).all(|bytes| bytes.iter().fold(0, |any, b| any | b) == 0)
}

fn u16_at(special: &[u8], at: usize) -> u16 {
    special.get(at..).and_then(|s| s.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

fn of_eight(special: &[u8], last: u16) -> Kind {
    if special.first_chunk() == Some(&sequence::SEQ_MAGIC.to_le_bytes()) && last == 0 {
        return Kind::Sequence;
    }
    match last {
        spgist::SPGIST_PAGE_ID => match u16_at(special, at::SPGIST_FLAGS) {
            flags if flags & spgist::SPGIST_META != 0 => Kind::SpgistMeta,
            flags if flags & spgist::SPGIST_LEAF != 0 => Kind::SpgistLeaf,
            _ => Kind::SpgistInner,
        },
        brin::BRIN_PAGETYPE_META => Kind::BrinMeta,
        brin::BRIN_PAGETYPE_REVMAP => Kind::BrinRevmap,
        brin::BRIN_PAGETYPE_REGULAR => Kind::BrinRegular,
        bloom::BLOOM_PAGE_ID if u16_at(special, at::BLOOM_FLAGS) & bloom::BLOOM_META != 0 => Kind::BloomMeta,
        bloom::BLOOM_PAGE_ID => Kind::Bloom,
        flags if flags > 0x1ff => Kind::Unknown,
        flags if flags & gin::GIN_META != 0 => Kind::GinMeta,
        flags if flags & gin::GIN_DELETED != 0 => Kind::GinDeleted,
        flags if flags & gin::GIN_LIST != 0 => Kind::GinPending,
        flags => match (flags & gin::GIN_DATA != 0, flags & gin::GIN_LEAF != 0) {
            (true, true) => Kind::GinDataLeaf,
            (true, false) => Kind::GinDataInner,
            (false, true) => Kind::GinEntryLeaf,
            (false, false) => Kind::GinEntryInner,
        },
    }
}

fn of_sixteen(special: &[u8], last: u16) -> Kind {
    const MAX_BT_CYCLE_ID: u16 = 0xff7f;
    match (last, u16_at(special, at::FLAGS_OF_SIXTEEN)) {
        (hash::HASHO_PAGE_ID, flag) => match flag & 0x0f {
            1 => Kind::HashOverflow,
            2 => Kind::HashBucket,
            4 => Kind::HashBitmap,
            8 => Kind::HashMeta,
            0 => Kind::HashUnused,
            _ => Kind::Unknown,
        },
        (gist::GIST_PAGE_ID, flags) if flags & gist::F_DELETED != 0 => Kind::GistDeleted,
        (gist::GIST_PAGE_ID, flags) if flags & gist::F_LEAF != 0 => Kind::GistLeaf,
        (gist::GIST_PAGE_ID, _) => Kind::GistInner,
        (0..=MAX_BT_CYCLE_ID, flags) => match flags {
            f if f & btree::BTP_META != 0 => Kind::BtreeMeta,
            f if f & btree::BTP_DELETED != 0 && f & btree::BTP_HAS_FULLXID != 0 => Kind::BtreeDeleted,
            f if f & btree::BTP_DELETED != 0 => Kind::BtreeDeletedOld,
            f if f & btree::BTP_LEAF != 0 => Kind::BtreeLeaf,
            _ => Kind::BtreeInner,
        },
        _ => Kind::Unknown,
    }
}

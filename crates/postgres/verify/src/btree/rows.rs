//! What is kept of each page of a btree: a few dozen bytes.

use leadline_page::postgres::btree::Opaque;

#[allow(missing_docs)]
pub(crate) const BTP_ROOT: u16 = 0x0002;
#[allow(missing_docs)]
pub(crate) const BTP_HALF_DEAD: u16 = 0x0010;
#[allow(missing_docs)]
pub(crate) const BTP_INCOMPLETE_SPLIT: u16 = 0x0080;

/// What a page is to the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// It changed after the checkpoint, is damaged, or is not in the files: nothing is concluded.
    #[default]
    Unknown,
    New,
    /// No page of a tree, which is told already.
    Other,
    Deleted,
    HalfDead,
    Live,
}

/// One page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Row {
    pub prev: u32,
    pub next: u32,
    /// A number for its high key; 0: it has none.
    pub high_key: u32,
    pub flags: u16,
    /// Items behind the high key.
    pub items: u16,
    pub level: u8,
    pub state: State,
}

impl Row {
    pub(crate) fn of(state: State, opaque: &Opaque) -> Row {
        Row {
            prev: opaque.btpo_prev,
            next: opaque.btpo_next,
            high_key: 0,
            flags: opaque.btpo_flags,
            items: 0,
            level: u8::try_from(opaque.btpo_level).unwrap_or(u8::MAX),
            state,
        }
    }

    /// In the chain of its siblings.
    pub(crate) fn is_linked(&self) -> bool {
        matches!(self.state, State::Live | State::HalfDead)
    }

    pub(crate) fn is_split(&self) -> bool {
        self.flags & BTP_INCOMPLETE_SPLIT != 0
    }
}

/// A tuple of an inner page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Downlink {
    pub child: u32,
    pub parent: u32,
    /// Which of the parent's downlinks it is, from 0.
    pub order: u16,
    /// A number for its key; 0: it has none.
    pub separator: u32,
}

/// The downlink to a page, as it is kept of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Up {
    /// 0: there is none.
    pub parent: u32,
    pub separator: u32,
    pub order: u16,
}

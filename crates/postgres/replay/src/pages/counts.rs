//! What is counted of pages: for the report, in all and by fork.

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages that the WAL names and keeps.
    pub pages: u64,
    /// Of these, pages written.
    pub written: u64,
    /// Of these, pages read from their file first.
    pub read: u64,
    /// Changes of pages that were applied.
    pub applied: u64,
    /// Of these, those that put a page image in place.
    pub restored: u64,
    /// That were not, because a later image or a new page made them useless.
    pub superseded: u64,
    /// Because the WAL removes the page later.
    pub removed: u64,
    /// Because the page had them already.
    pub older: u64,
}

impl Work {
    /// What was done since it was `before`.
    pub(crate) fn since(&self, before: &Work) -> Work {
        Work {
            pages: self.pages - before.pages,
            written: self.written - before.written,
            read: self.read - before.read,
            applied: self.applied - before.applied,
            restored: self.restored - before.restored,
            superseded: self.superseded - before.superseded,
            removed: self.removed - before.removed,
            older: self.older - before.older,
        }
    }

    pub(crate) fn add(&mut self, other: &Work) {
        self.pages += other.pages;
        self.written += other.written;
        self.read += other.read;
        self.applied += other.applied;
        self.restored += other.restored;
        self.superseded += other.superseded;
        self.removed += other.removed;
        self.older += other.older;
    }
}

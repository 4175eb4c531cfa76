//! Why a row or an index is old.

/// One reason; its number is its bit in a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The row has fewer attributes than its relation: columns were added since.
    Short,
    /// The row holds a value of a column that was dropped.
    Dropped,
    /// A value is packed with another method than the one its column asks for.
    Compression,
    /// The row was moved by VACUUM FULL of 8.4 or before.
    Moved,
    /// The row has an oid in its header, which 12 ended.
    Oid,
    /// The row was share-locked by a multixact of 9.2 or before.
    Multixact,
    /// A btree of before 12.
    BtreeVersion,
    /// A btree of before 13, whose type and collation would allow equal keys to be stored once.
    BtreeDedup,
    /// A GIN index of before 9.4: posting lists are not packed.
    Gin,
    /// A hash index of before 10, which must be made anew.
    Hash,
}

impl Reason {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Reason; 10] = [
        Reason::Short,
        Reason::Dropped,
        Reason::Compression,
        Reason::Moved,
        Reason::Oid,
        Reason::Multixact,
        Reason::BtreeVersion,
        Reason::BtreeDedup,
        Reason::Gin,
        Reason::Hash,
    ];

    /// As in the column `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Short => "short",
            Reason::Dropped => "dropped",
            Reason::Compression => "compression",
            Reason::Moved => "moved",
            Reason::Oid => "oid",
            Reason::Multixact => "multixact",
            Reason::BtreeVersion => "btree-version",
            Reason::BtreeDedup => "btree-dedup",
            Reason::Gin => "gin",
            Reason::Hash => "hash",
        }
    }

    /// Its bit in a mask of reasons.
    pub fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Whether it is of rows; else it is of a whole index.
    pub fn is_of_rows(self) -> bool {
        (self as u16) < Reason::BtreeVersion as u16
    }
}

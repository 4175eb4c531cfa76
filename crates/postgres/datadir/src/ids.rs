//! What names the files of a relation and a block in them.

/// The files of a relation: PostgreSQL's `RelFileLocator` (`RelFileNode` before 16).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelFile {
    /// Tablespace.
    pub spc: u32,
    /// Database; 0 for shared relations.
    pub db: u32,
    /// File number.
    pub rel: u32,
}

impl std::fmt::Display for RelFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.spc, self.db, self.rel)
    }
}

/// One block: PostgreSQL's `BufferTag`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// The files it is in.
    pub relation: RelFile,
    /// 0 main, 1 free space map, 2 visibility map, 3 init; the name is `Fork::name_of`.
    pub fork: u32,
    /// Number within the fork.
    pub block: u32,
}

//! When files come, are truncated and go.
//!
//! A page that the WAL removes later need not be made: of each page only the records after its last cut count. How long a file is in
//! the end, and whether it is there, follows from what the WAL does to it in its order; the pages themselves are made in any order.
//!
//! Source: `storage/smgr/md.c`, `catalog/storage.c`, `XLogReadBufferExtended` in `access/transam/xlogutils.c`.

use std::collections::HashMap;
use std::sync::Arc;

use leadline_datadir::RelFile;
use leadline_errors::Result;
use leadline_redo::rule::Truncation;
use leadline_redo::{free_space, visibility};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::files::cluster::{sync_folder, Cluster};

const MAIN: u8 = 0;
const FREE_SPACE: u8 = 1;
const VISIBILITY: u8 = 2;

/// What a part of the WAL does to one fork.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fork {
    /// It is read or written, so that the server makes its file.
    pub is_touched: bool,
    /// Blocks it must have at least.
    pub length: u32,
    /// The fewest blocks it was truncated to, since it was dropped last.
    cut: Option<u32>,
}

/// Truncations of one relation.
#[derive(Debug, Default)]
struct OfRelation {
    /// Where the record begins that dropped it last; 0 for none.
    dropped: u64,
    /// The same of truncations, with the fork and the blocks left.
    truncated: Vec<(u64, u8, u32)>,
}

/// Where a part of the WAL removes pages.
#[derive(Debug, Default)]
pub(crate) struct Truncations {
    relations: HashMap<RelFile, OfRelation>,
    /// Tablespace and database, and where the record begins that dropped it last.
    databases: HashMap<(u32, u32), u64>,
}

impl Truncations {
    /// Where the record begins that removed this block last; 0 when none did. Records before it do not matter to the page.
    pub(crate) fn last(&self, relation: RelFile, fork: u8, block: u32) -> u64 {
        let database = self.databases.get(&(relation.spc, relation.db)).copied().unwrap_or(0);
        let Some(truncations) = self.relations.get(&relation) else { return database };
        let truncated = truncations.truncated.iter().filter(|(_, of, blocks)| *of == fork && block >= *blocks);
        truncated.map(|(lsn, _, _)| *lsn).max().unwrap_or(0).max(truncations.dropped).max(database)
    }
}

/// What a part of the WAL does to all files.
#[derive(Debug, Default)]
pub(crate) struct ForkChanges {
    forks: HashMap<(RelFile, u8), Fork>,
    /// Read by those who roll pages forward while the WAL is still read.
    truncations: Arc<RwLock<Truncations>>,
}

impl ForkChanges {
    /// Where pages are removed, as far as it is known at any time.
    pub(crate) fn shared_truncations(&self) -> Arc<RwLock<Truncations>> {
        Arc::clone(&self.truncations)
    }

    /// The same as of now.
    pub(crate) fn truncations(&self) -> RwLockReadGuard<'_, Truncations> {
        self.truncations.read()
    }

    fn change_truncations(&self) -> RwLockWriteGuard<'_, Truncations> {
        self.truncations.write()
    }

    /// A fork is read or written, and has at least so many blocks from now on.
    pub(crate) fn touch(&mut self, relation: RelFile, fork: u8, length: u32) {
        let found = self.forks.entry((relation, fork)).or_default();
        found.is_touched = true;
        found.length = found.length.max(length);
    }

    pub(crate) fn drop_relation(&mut self, relation: RelFile, lsn: u64) {
        self.change_truncations().relations.insert(relation, OfRelation { dropped: lsn, truncated: Vec::new() });
        for fork in 0..4 {
            self.forks.remove(&(relation, fork));
        }
    }

    pub(crate) fn drop_database(&mut self, space: u32, database: u32, lsn: u64) {
        let is_of_it = |relation: &RelFile| (relation.spc, relation.db) == (space, database);
        self.forks.retain(|(relation, _), _| !is_of_it(relation));
        let mut truncations = self.change_truncations();
        truncations.databases.insert((space, database), lsn);
        truncations.relations.retain(|relation, _| !is_of_it(relation));
    }

    pub(crate) fn truncate(&mut self, truncation: &Truncation, block_size: u32, lsn: u64) {
        let (relation, blocks) = (truncation.relation, truncation.blocks);
        let maps = [
            (MAIN, truncation.has_main(), blocks),
            (VISIBILITY, truncation.has_visibility_map(), visibility_blocks(block_size, blocks)),
            (FREE_SPACE, truncation.has_free_space_map(), free_space_blocks(block_size, blocks)),
        ];
        self.touch(relation, MAIN, 0);
        for (fork, _, blocks) in maps.into_iter().filter(|(_, is_cut, _)| *is_cut) {
            self.change_truncations().relations.entry(relation).or_default().truncated.push((lsn, fork, blocks));
            let found = self.forks.entry((relation, fork)).or_default();
            found.length = found.length.min(blocks);
            found.cut = Some(found.cut.map_or(blocks, |cut| cut.min(blocks)));
        }
    }

    /// How many blocks are left of a fork that was truncated; none when it was not.
    pub(crate) fn left(&self, relation: RelFile, fork: u8) -> Option<u32> {
        self.forks.get(&(relation, fork)).and_then(|of| of.cut)
    }

    /// The relation was removed, alone or with its database.
    pub(crate) fn is_dropped(&self, relation: RelFile) -> bool {
        let truncations = self.truncations();
        truncations.databases.contains_key(&(relation.spc, relation.db))
            || truncations.relations.get(&relation).is_some_and(|truncations| truncations.dropped != 0)
    }

    /// Removes and truncates what is on disk, before pages are written.
    pub(crate) fn truncate_files(&self, cluster: &Cluster) -> Result<()> {
        let mut folders = std::collections::BTreeSet::new();
        for (relation, truncations) in &self.truncations().relations {
            if truncations.dropped != 0 && cluster.remove_relation(*relation)? {
                folders.insert(cluster.folder(relation.spc, relation.db));
            }
        }
        for ((relation, fork), of) in &self.forks {
            if let Some(cut) = of.cut {
                cluster.truncate(*relation, *fork, cut)?;
            }
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }

    /// Forks that have a file in the end, and how many blocks at least.
    pub(crate) fn forks(&self) -> impl Iterator<Item = (RelFile, u8, u32)> + '_ {
        let touched = self.forks.iter().filter(|(_, of)| of.is_touched);
        touched.map(|((relation, fork), of)| (*relation, *fork, of.length))
    }

    /// Relations whose files the WAL removes.
    pub(crate) fn dropped(&self) -> usize {
        self.truncations().relations.values().filter(|truncations| truncations.dropped != 0).count()
    }
}

/// Blocks of the visibility map that a truncation leaves.
fn visibility_blocks(block_size: u32, heap_blocks: u32) -> u32 {
    let is_begun = !heap_blocks.is_multiple_of(visibility::blocks_per_page(block_size));
    visibility::page_of(block_size, heap_blocks) + u32::from(is_begun)
}

/// The same of the free space map.
fn free_space_blocks(block_size: u32, heap_blocks: u32) -> u32 {
    let (leaf, slot) = free_space::leaf_of(block_size, heap_blocks);
    leaf + u32::from(slot > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: RelFile = RelFile { spc: 1663, db: 5, rel: 7 };

    fn cut(blocks: u32) -> Truncation {
        Truncation { blocks, relation: OF, flags: 7 }
    }

    fn length(fork_changes: &ForkChanges, fork: u8) -> Option<u32> {
        fork_changes.forks().find(|found| found.1 == fork).map(|found| found.2)
    }

    #[test]
    fn a_length_is_the_fold_of_what_made_the_fork_longer_and_shorter() {
        let mut of = ForkChanges::default();
        of.touch(OF, 0, 20);
        of.truncate(&cut(10), 8192, 100);
        of.touch(OF, 0, 30);
        of.truncate(&cut(15), 8192, 200);
        assert_eq!(length(&of, 0), Some(15));
        assert_eq!([9, 10, 14, 15].map(|block| of.truncations().last(OF, 0, block)), [0, 100, 100, 200]);
        assert_eq!(of.forks[&(OF, 0)].cut, Some(10));
        of.drop_relation(OF, 300);
        assert_eq!(
            (length(&of, 0), of.truncations().last(OF, 0, 0), of.truncations().last(OF, 2, 0)),
            (None, 300, 300)
        );
        of.touch(OF, 0, 1);
        assert_eq!((length(&of, 0), of.forks[&(OF, 0)].cut), (Some(1), None));
        of.drop_database(1663, 5, 400);
        assert_eq!((length(&of, 0), of.truncations().last(OF, 0, 9)), (None, 400));
    }

    #[test]
    fn maps_are_cut_with_the_table_and_only_made_when_they_are_used() {
        let mut of = ForkChanges::default();
        of.truncate(&cut(0), 8192, 100);
        assert_eq!((length(&of, 0), length(&of, 2)), (Some(0), None));
        assert_eq!((of.truncations().last(OF, 2, 0), of.truncations().last(OF, 3, 0)), (100, 0));
    }
}

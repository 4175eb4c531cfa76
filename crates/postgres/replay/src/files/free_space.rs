//! How much room heap pages have in the end, written into the free space maps.

use std::os::unix::fs::FileExt;

use leadline_datadir::RelFile;
use leadline_errors::Result;
use leadline_page::postgres::checksum;
use leadline_redo::free_space;

use crate::files::cluster::{failed, read_page, Cluster};
use crate::files::writer::set_checksum;

const FREE_SPACE: u8 = 1;

/// Room on a heap page: its relation and block, the category, and whether the server would make the map longer for it.
pub(crate) type Room = (RelFile, u32, u8, bool);

/// Writes the room of heap pages into the free space maps: the lowest level, as the server's recovery does. All at once: whether a map is made
/// longer depends on all pages that have their room there.
///
/// A map that has no page for it yet is made longer only where the server would, too.
pub(crate) fn note(cluster: &Cluster, mut rooms: Vec<Room>) -> Result<()> {
    // Of a page that was written several times the last counts.
    rooms.sort_by_key(|room| (room.0, room.1));
    let size = cluster.block_size as u32;
    let leaf = |room: &Room| (room.0, free_space::leaf_of(size, room.1).0);
    for of_page in rooms.chunk_by(|a, b| leaf(a) == leaf(b)) {
        let (relation, block) = leaf(&of_page[0]);
        let has = cluster.blocks(relation, FREE_SPACE)?.unwrap_or(0);
        if block >= has && !of_page.iter().any(|room| room.3) {
            continue;
        }
        let path = cluster.file(relation, FREE_SPACE, block / cluster.segment_blocks);
        let file = cluster.open_or_create(&path)?;
        let at = u64::from(block % cluster.segment_blocks) * cluster.block_size as u64;
        let mut page = vec![0; cluster.block_size];
        let is_damaged = read_page(&file, &path, at, &mut page)?
            && cluster.checksums
            && page.iter().any(|b| *b != 0)
            && page[8..10] != checksum(&page, block).to_le_bytes();
        if is_damaged {
            page.fill(0);
        }
        let mut changed = is_damaged;
        for room in of_page {
            let (_, slot) = free_space::leaf_of(size, room.1);
            match free_space::set(&mut page, slot, room.2) {
                Ok(is_new) => changed |= is_new,
                Err(_) => {
                    // No page of a free space map: nothing relies on it.
                    page.fill(0);
                    changed |= free_space::set(&mut page, slot, room.2).unwrap_or(false);
                }
            }
        }
        if changed {
            set_checksum(cluster, &mut page, block);
            file.write_all_at(&page, at).map_err(|e| failed("write", &path, &e))?;
        }
    }
    Ok(())
}

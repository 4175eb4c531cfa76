//! What is written once all pages are: relation maps, transaction status, prepared transactions, origins; and what makes it last.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use leadline_datadir::RelFile;
use leadline_errors::{Error, Result};

use crate::files::{failed, sync_folder, Cluster};
use crate::state::State;

/// Relation maps by tablespace and database.
pub(crate) fn relmaps(cluster: &Cluster, maps: &BTreeMap<(u32, u32), Vec<u8>>) -> Result<()> {
    for ((space, database), bytes) in maps {
        let folder = if *database == 0 { cluster.root.join("global") } else { cluster.folder(*space, *database) };
        cluster.make_folder(&folder)?;
        cluster.replace(&folder.join("pg_filenode.map"), bytes)?;
    }
    Ok(())
}

/// Makes every file last that the log refers to, also pages that had its changes already: the crashed server may never have
/// synced them.
pub(crate) fn sync(
    cluster: &Cluster,
    forks: &[(RelFile, u8, u32)],
    threads: usize,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None::<Error>));
    let work = || {
        while let Some((relation, fork, _)) = forks.get(next.fetch_add(1, Ordering::Relaxed)) {
            // The free space map of a table is written beside the log.
            let map = if *fork == 0 { cluster.sync_fork(*relation, 1) } else { Ok(()) };
            if let Err(e) = map.and_then(|()| cluster.sync_fork(*relation, *fork)) {
                next.store(forks.len(), Ordering::Relaxed);
                if let Ok(mut first) = failure.lock() {
                    first.get_or_insert(e);
                }
            }
        }
    };
    if !go_on(0) {
        return Err(crate::apply::interrupted());
    }
    std::thread::scope(|scope| {
        (0..threads.clamp(1, 8)).for_each(|_| drop(scope.spawn(work)));
    });
    if let Some(e) = failure.into_inner().unwrap_or(None) {
        return Err(e);
    }
    let mut folders: Vec<_> = forks.iter().map(|(relation, _, _)| cluster.folder(relation.spc, relation.db)).collect();
    folders.sort_unstable();
    folders.dedup();
    folders.iter().try_for_each(|folder| sync_folder(folder))
}

/// Transaction status and all else that is not in relations.
pub(crate) fn status(cluster: &Cluster, state: &State) -> Result<()> {
    for slru in [&state.xacts, &state.commit_ts, &state.multixacts.offsets, &state.multixacts.members] {
        slru.store(cluster)?;
    }
    prepared(cluster, state)?;
    state.origins.store(cluster)?;
    cluster.remove_temporary_folder();
    mappings(cluster, state)
}

/// Files of prepared transactions: of those that have not ended.
fn prepared(cluster: &Cluster, state: &State) -> Result<()> {
    let folder = cluster.root.join("pg_twophase");
    for (xid, content) in &state.prepared {
        let name = if cluster.major >= 17 { format!("{xid:016X}") } else { format!("{:08X}", *xid as u32) };
        let path = folder.join(name);
        match content {
            Some(content) => {
                let mut bytes = content.clone();
                bytes.extend(crc32c::crc32c(content).to_le_bytes());
                cluster.replace(&path, &bytes)?;
            }
            None => drop(cluster.remove_file(&path)?),
        }
    }
    sync_folder(&folder)
}

/// Where rows of rewritten catalogs went.
fn mappings(cluster: &Cluster, state: &State) -> Result<()> {
    let folder = cluster.root.join("pg_logical/mappings");
    for (name, offset, bytes) in &state.mappings {
        let path = folder.join(name);
        let file = cluster.open_or_create(&path)?;
        let written =
            file.set_len(*offset).and_then(|()| file.write_all_at(bytes, *offset)).and_then(|()| file.sync_all());
        written.map_err(|e| failed("write", &path, &e))?;
    }
    if state.mappings.is_empty() {
        return Ok(());
    }
    sync_folder(&folder)
}

//! What is written once all pages are: relation maps, transaction status, prepared transactions, origins; and what makes it last.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use leadline_errors::Result;

use crate::files::cluster::{failed, sync_folder, Cluster};
use crate::read::state::State;

/// Relation maps by tablespace and database.
pub(crate) fn relmaps(cluster: &Cluster, maps: &BTreeMap<(u32, u32), Vec<u8>>) -> Result<()> {
    for ((space, database), bytes) in maps {
        let folder = if *database == 0 { cluster.root.join("global") } else { cluster.folder(*space, *database) };
        cluster.make_folder(&folder)?;
        cluster.replace(&folder.join("pg_filenode.map"), bytes)?;
    }
    Ok(())
}

/// How often the caller looks up: for its progress, and for whether to go on.
const LOOK: Duration = Duration::from_millis(100);
/// Threads that sync: they wait for the disk, which does more at once.
const SYNC_THREADS: usize = 8;

/// Makes every file of the data directory last, and every name. The crashed server may never have synced what it wrote, or who copied
/// the directory what he copied: after a crash the server does the same before it begins (`SyncDataDirectory`).
pub(crate) fn sync(cluster: &Cluster, go_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
    let paths = cluster.all_files()?;
    let next = AtomicUsize::new(0);
    let stop = || next.store(paths.len(), Ordering::Relaxed);
    let work = || -> Result<()> {
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            sync_if_readable(path)?;
        }
        Ok(())
    };
    let total = paths.len() as u64;
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..SYNC_THREADS {
            let (send, work) = (send.clone(), &work);
            scope.spawn(move || send.send(work()));
        }
        drop(send);
        let mut outcome = Ok(());
        loop {
            if !go_on((next.load(Ordering::Relaxed) as u64).min(total), total) {
                outcome = outcome.and(Err(crate::pages::apply::interrupted()));
            }
            match receive.recv_timeout(LOOK) {
                Ok(of_one) => outcome = outcome.and(of_one),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break outcome,
            }
            if outcome.is_err() {
                stop();
            }
        }
    })
}

/// As the server: what its user may not open was not written by it.
fn sync_if_readable(path: &Path) -> Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_all().map_err(|e| failed("sync", path, &e)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(()),
        Err(e) => Err(failed("open", path, &e)),
    }
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

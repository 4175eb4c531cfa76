//! What a crash leaves and no WAL restores: unlogged relations and statistics. The server empties and removes them after a crash, but not
//! after it was shut down in order, which is how the directory is handed over.
//!
//! Source: `storage/file/reinit.c`, and `pgstat_discard_stats` (`pgstat_reset_all` up to 14).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use leadline_errors::Result;

use crate::files::cluster::{failed, reading, Cluster};

const INIT: &str = "_init";

/// Empties unlogged relations: each is made its init fork, and its other forks go. What was copied is made to last with all else.
pub(crate) fn reset(cluster: &Cluster) -> Result<()> {
    for folder in database_folders(cluster)? {
        reset_folder(cluster, &folder)?;
    }
    Ok(())
}

/// The folders of databases: shared catalogs, which have one of their own, are never unlogged.
fn database_folders(cluster: &Cluster) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut spaces = vec![cluster.root.join("base")];
    for (_, space) in entries(&cluster.root.join("pg_tblspc"))? {
        spaces.push(space.join(&cluster.version_folder));
    }
    for space in spaces {
        found.extend(entries(&space)?.into_iter().filter(|(name, _)| is_number(name)).map(|(_, path)| path));
    }
    Ok(found)
}

fn reset_folder(cluster: &Cluster, folder: &Path) -> Result<()> {
    let files = entries(folder)?;
    let unlogged: BTreeSet<&str> = files
        .iter()
        .filter_map(|(name, _)| parts(name))
        .filter(|(_, fork)| *fork == INIT)
        .map(|(rel, _)| rel)
        .collect();
    if unlogged.is_empty() {
        return Ok(());
    }
    for (name, path) in &files {
        if parts(name).is_some_and(|(rel, fork)| fork != INIT && unlogged.contains(rel)) {
            cluster.remove_file(path)?;
        }
    }
    for (name, path) in &files {
        if parts(name).is_some_and(|(_, fork)| fork == INIT) {
            let target = folder.join(name.replace(INIT, ""));
            let bytes = fs::read(path).map_err(|e| reading(path, &e))?;
            let file = cluster.open_or_create(&target)?;
            io::Write::write_all(&mut &file, &bytes).map_err(|e| failed("write", &target, &e))?;
        }
    }
    Ok(())
}

/// Removes the statistics that an earlier, orderly shutdown left.
pub(crate) fn discard_statistics(cluster: &Cluster) -> Result<()> {
    for folder in ["pg_stat", "pg_stat_tmp"] {
        for (name, path) in entries(&cluster.root.join(folder))? {
            let stem = name.strip_suffix(".stat").or_else(|| name.strip_suffix(".tmp"));
            let is_statistics =
                |stem: &str| matches!(stem, "global" | "pgstat") || stem.strip_prefix("db_").is_some_and(is_number);
            if stem.is_some_and(is_statistics) {
                cluster.remove_file(&path)?;
            }
        }
    }
    Ok(())
}

/// The number of a relation and the suffix of the fork of a file; none when the file is something else.
fn parts(name: &str) -> Option<(&str, &str)> {
    let end = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    let (relation, rest) = name.split_at(end);
    let (fork, segment) = rest.split_once('.').map_or((rest, None), |(fork, segment)| (fork, Some(segment)));
    let is_file = !relation.is_empty() && segment.is_none_or(is_number) && crate::files::cluster::FORKS.contains(&fork);
    is_file.then_some((relation, fork))
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

/// Names and paths in a folder; none when there is no folder.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let found = match fs::read_dir(folder) {
        Ok(found) => found,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(e) => return Err(reading(folder, &e)),
    };
    let mut all = Vec::new();
    for entry in found {
        let entry = entry.map_err(|e| reading(folder, &e))?;
        all.extend(entry.file_name().into_string().ok().map(|name| (name, entry.path())));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_relations_by_their_names() {
        assert_eq!(parts("16384"), Some(("16384", "")));
        assert_eq!(parts("16384_init.2"), Some(("16384", "_init")));
        assert_eq!(parts("16384_vm"), Some(("16384", "_vm")));
        for other in ["t3_16384", "PG_VERSION", "16384_other", "16384.x", "pg_filenode.map", ""] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}

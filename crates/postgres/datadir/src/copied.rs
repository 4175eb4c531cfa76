//! Copies of a data directory: what their postmaster.pid tells of the one that they were made from, when it is on this host.
//!
//! Files of a server that ran when they were copied are not of one moment, and the log does not make them whole. Files of a server
//! that was killed are: they only have a postmaster.pid, too.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leadline_page::postgres::ControlState;

use crate::control::read_bytes;
use crate::name::FileName;
use crate::postmaster::{find_server, PidFile};

/// Files that are not copied, or made anew by each server.
const OWN: [&str; 6] = ["pg_stat_tmp", "pg_dynshmem", "pg_notify", "pg_subtrans", "pg_serial", "pg_snapshots"];

/// A data directory that another one was copied from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Its root.
    pub root: PathBuf,
    /// The process of its server, where one runs.
    pub server: Option<u32>,
    /// That server ran when the copy was made.
    pub ran: bool,
}

/// What stands against it that a copy is what the server had left when it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// Its server runs again.
    Runs(u32),
    /// A file of the original that was written since, or that the copy does not have.
    Differs(PathBuf),
    /// A folder that both have: a link that was copied as such.
    Shared(PathBuf),
}

impl Original {
    /// That of a data directory, as its postmaster.pid names it: another folder of the same server. None also when it is gone.
    pub fn of(root: &Path, pid_file: Option<&PidFile>, control: &ControlState) -> Option<Original> {
        let pid_file = pid_file?;
        let other = Path::new(&pid_file.data_dir);
        // A folder that is not here may be this one, as a container calls it.
        if place(other).is_none() || place(other) == place(root) {
            return None;
        }
        let bytes = read_bytes(&other.join("global/pg_control")).ok()?;
        let is_of_same = ControlState::parse(&bytes).is_ok_and(|c| c.system_identifier == control.system_identifier);
        let text = read_bytes(&other.join("postmaster.pid")).unwrap_or_default();
        let own = PidFile::parse(&String::from_utf8_lossy(&text));
        let server = find_server(other, own.as_ref());
        let is_same_run = own.is_some_and(|own| (own.pid, own.started) == (pid_file.pid, pid_file.started));
        is_of_same.then(|| Original { root: other.to_owned(), server, ran: server.is_some() && is_same_run })
    }

    /// Whether a copy has all that the server had written when it ended; else what is against it.
    ///
    /// A file was copied whole when it has the time of the original's last change, or was made after that.
    ///
    /// # Errors
    /// The first doubt.
    pub fn is_left_behind(&self, copy: &Path) -> Result<(), Doubt> {
        if let Some(pid) = self.server {
            return Err(Doubt::Runs(pid));
        }
        for name in names(&self.root) {
            let is_data =
                name == "base" || name == "global" || name.starts_with("pg_") && !OWN.contains(&name.as_str());
            if is_data && self.root.join(&name).is_dir() {
                compare(&self.root.join(&name), &copy.join(&name), 0)?;
            }
        }
        Ok(())
    }
}

fn compare(original: &Path, copy: &Path, depth: u32) -> Result<(), Doubt> {
    /// pg_tblspc/N/PG_15_202209061/N/N, and no folder deeper.
    const DEEPEST: u32 = 6;
    let differs = || Doubt::Differs(original.to_owned());
    let about = fs::metadata(original).map_err(|_| differs())?;
    let copied = fs::metadata(copy).map_err(|_| differs())?;
    if about.is_dir() {
        if place(original) == place(copy) {
            return Err(Doubt::Shared(copy.to_owned()));
        }
        if !copied.is_dir() || depth > DEEPEST {
            return Err(differs());
        }
        for name in names(original).iter().filter(|name| !is_scratch(name)) {
            compare(&original.join(name), &copy.join(name), depth + 1)?;
        }
        return Ok(());
    }
    let is_whole = copied.is_file() && about.len() == copied.len() && was_copied_after(&about, &copied);
    is_whole.then_some(()).ok_or_else(differs)
}

/// Whether a file was copied after the last change of the original.
fn was_copied_after(original: &Metadata, copy: &Metadata) -> bool {
    let changed = |about: &Metadata| (about.mtime(), about.mtime_nsec());
    let made = copy.created().ok().zip(original.modified().ok());
    changed(original) == changed(copy) || made.is_some_and(|(made, changed)| made > changed)
}

/// Files that a server makes when it needs them, and copies leave out.
fn is_scratch(name: &str) -> bool {
    let is_temporary = || FileName::parse(name).is_none() && FileName::parse_any(name).is_some();
    name.starts_with("pg_internal.init") || name.starts_with("pgsql_tmp") || is_temporary()
}

fn names(folder: &Path) -> Vec<String> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = listed.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn place(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("leadline-copied-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("base/5")).unwrap();
            fs::create_dir_all(path.join("pg_wal")).unwrap();
            for file in ["base/5/1259", "pg_wal/000000010000000000000001", "base/5/pg_internal.init"] {
                fs::write(path.join(file), file).unwrap();
            }
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_copy_is_whole_when_no_file_of_the_original_changed_since() {
        let (original, copy) = (Folder::new("from"), Folder::new("to"));
        let from = Original { root: original.0.clone(), server: None, ran: false };
        let file = |folder: &Folder, name: &str| folder.0.join(name);
        let at = |path: &Path, time| fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        let changed = fs::metadata(file(&original, "base/5/1259")).unwrap().modified().unwrap();
        let later = changed + std::time::Duration::from_secs(3600);
        assert_eq!(from.is_left_behind(&copy.0), Ok(()), "made after the original's last change");
        fs::remove_file(file(&copy, "base/5/pg_internal.init")).unwrap();
        assert_eq!(from.is_left_behind(&copy.0), Ok(()), "each server makes that anew");
        at(&file(&original, "base/5/1259"), later);
        assert_eq!(from.is_left_behind(&copy.0), Err(Doubt::Differs(file(&original, "base/5/1259"))));
        at(&file(&copy, "base/5/1259"), later);
        assert_eq!(from.is_left_behind(&copy.0), Ok(()), "with the times of the original, as cp -a makes it");
        fs::write(file(&copy, "base/5/1259"), "shorter").unwrap();
        at(&file(&copy, "base/5/1259"), later);
        assert_eq!(from.is_left_behind(&copy.0), Err(Doubt::Differs(file(&original, "base/5/1259"))));
        fs::remove_dir_all(file(&copy, "base")).unwrap();
        std::os::unix::fs::symlink(file(&original, "base"), file(&copy, "base")).unwrap();
        assert_eq!(from.is_left_behind(&copy.0), Err(Doubt::Shared(file(&copy, "base"))));
        let runs = Original { server: Some(7), ..from };
        assert_eq!(runs.is_left_behind(&copy.0), Err(Doubt::Runs(7)));
    }
}

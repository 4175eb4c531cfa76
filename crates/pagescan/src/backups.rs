//! Files of pages in backups: which there are, how their pages lie, and which of them replay of the WAL would write again.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use leadline_backup::{Backup, Differs, GoOn, Passphrase};
use leadline_datadir::{of_path, FileName, Lsn};
use leadline_errors::{Error, Kind};
use leadline_page::postgres::Header;
use leadline_page::Wrong;

use crate::files::{find, named, Found, Said};
use crate::incremental::plain_path;
use crate::layout::{layout_of, Layout};
use crate::passed;

const CONTROL: &str = "global/pg_control";

/// A backup, and what of it is looked at.
pub(crate) struct BackupFiles {
    /// As it was named.
    pub(crate) path: PathBuf,
    pub(crate) backup: Box<dyn Backup>,
    /// The number of each member among all files; none of those that are not looked at.
    pub(crate) files: Vec<Option<usize>>,
    /// What is wrong with it as a whole.
    pub(crate) wrong: Vec<(PathBuf, Wrong)>,
    /// Changes of pages that were made while it was taken, which the WAL has as whole pages.
    pub(crate) meanwhile: Option<RangeInclusive<u64>>,
}

/// The files to look at: as [`find`] has them, and behind these those of the paths that are backups.
///
/// # Errors
/// When a path cannot be read or has no files of relations, or `go_on` said no.
pub(crate) fn find_all(
    paths: &[PathBuf],
    block_size: Option<u32>,
    key: Option<&Passphrase>,
    go_on: &GoOn,
) -> Result<(Found, Vec<BackupFiles>), Error> {
    let (mut plain, mut backups) = (Vec::new(), Vec::new());
    for path in paths {
        match leadline_backup::open(path, key, go_on)? {
            Some(backup) => backups.push((path, backup)),
            None => plain.push(path.clone()),
        }
    }
    let mut found = find(&plain, block_size)?;
    let backups = backups.into_iter().map(|(path, backup)| BackupFiles::of(path, backup, block_size, &mut found));
    let backups = backups.collect::<Result<_, _>>()?;
    Ok((found, backups))
}

impl BackupFiles {
    /// Adds the files of pages in a backup to `found`.
    fn of(
        path: &Path,
        backup: Box<dyn Backup>,
        block_size: Option<u32>,
        found: &mut Found,
    ) -> Result<BackupFiles, Error> {
        let mut wrong: Vec<_> =
            backup.unread().iter().map(|unread| (path.join(&unread.name), unreadable("file", &unread.why))).collect();
        let (roots, doubts) = roots(backup.as_ref(), path, block_size)?;
        wrong.extend(doubts);
        let before = found.files.len();
        let mut files = Vec::new();
        for member in backup.members() {
            let layout = roots.iter().find(|(root, _)| member.name.starts_with(root)).map(|(_, layout)| *layout);
            let layout = match layout {
                Some(layout) => layout,
                None => layout_of(None, block_size)?,
            };
            let full = path.join(&member.name);
            let number = is_of_relation(&member.name).then_some(found.files.len());
            match number {
                Some(_) => found.files.push(named(&full, member.bytes, layout)),
                None => passed::count_member(&mut found.passed, &full, &member.name),
            }
            files.push(number);
        }
        if found.files.len() == before && wrong.is_empty() {
            let message = format!("this {} has no files of relations", backup.kind());
            return Err(Error::new(Kind::Invalid, message).at(path));
        }
        let meanwhile = meanwhile(backup.as_ref());
        Ok(BackupFiles { path: path.to_owned(), backup, files, wrong, meanwhile })
    }
}

/// A part of a backup that cannot be read.
pub(crate) fn unreadable(what: &'static str, why: &str) -> Wrong {
    let (wanted, found) = ("bytes that can be read".into(), why.into());
    Wrong { class: "unreadable", what, item: None, offset: 0, wanted, found }
}

/// What ended a stream of a backup early: bytes that cannot be read, or that are others than its list has the digest of.
pub(crate) fn ended_by(what: &'static str, e: &io::Error) -> Wrong {
    match e.get_ref().and_then(|inner| inner.downcast_ref::<Differs>()) {
        None => unreadable(what, &e.to_string()),
        Some(Differs { wanted, found }) => {
            let (wanted, found) = (format!("the SHA-1 of the manifest, {wanted}"), found.clone());
            Wrong { class: "digest", what: "file", item: None, offset: 0, wanted, found }
        }
    }
}

/// Whether a page that is wrong is one that was changed while the backup was taken: the WAL has the whole of it.
pub(crate) fn is_written_again(meanwhile: Option<&RangeInclusive<u64>>, page: &[u8]) -> bool {
    meanwhile.is_some_and(|range| Header::parse(page).is_some_and(|header| range.contains(&header.pd_lsn)))
}

/// A file of a relation that is not temporary, by its name and its folder.
fn is_of_relation(name: &Path) -> bool {
    let plain = plain_path(name);
    let name = plain.as_deref().unwrap_or(name);
    let is_name = name.file_name().and_then(|name| FileName::parse(name.to_str()?)).is_some();
    is_name && of_path(name).0.spc != 0 && passed::kind(name).is_none()
}

/// The data directories in a backup, those within others first, and what their control files say; and what is wrong with these.
type Roots = (Vec<(PathBuf, Layout)>, Vec<(PathBuf, Wrong)>);

fn roots(backup: &dyn Backup, path: &Path, block_size: Option<u32>) -> Result<Roots, Error> {
    let (mut roots, mut wrong) = (Vec::new(), Vec::new());
    let names = backup.members().iter().map(|member| &member.name);
    for name in names.filter(|name| name.ends_with(CONTROL)) {
        let root = name.ancestors().nth(2).unwrap_or(Path::new("")).to_owned();
        let bytes = backup.small(name).unwrap_or_default();
        let version = backup.small(&root.join("PG_VERSION")).unwrap_or_default();
        let said = Said::of_bytes(&bytes, || String::from_utf8_lossy(&version).trim().to_owned());
        wrong.extend(said.wrong(&bytes).map(|wrong| (path.join(name), wrong)));
        roots.push((root, said.layout(block_size, || None)?));
    }
    roots.sort_by_key(|(root, _)| std::cmp::Reverse(root.components().count()));
    let is_lost = roots.is_empty() && backup.small(Path::new("PG_VERSION")).is_some();
    let lost = || {
        let (wanted, found) = ("a control file".into(), "none in the backup".into());
        (path.join(CONTROL), Wrong { class: "control", what: "file", item: None, offset: 0, wanted, found })
    };
    wrong.extend(is_lost.then(lost));
    Ok((roots, wrong))
}

/// From the checkpoint that the backup begins at, up to its end if that is known.
fn meanwhile(backup: &dyn Backup) -> Option<RangeInclusive<u64>> {
    let label = backup.small(Path::new("backup_label"))?;
    let label = String::from_utf8_lossy(&label).into_owned();
    let line = label.lines().find_map(|line| line.strip_prefix("START WAL LOCATION: "))?;
    let Lsn(start) = line.split_whitespace().next()?.parse().ok()?;
    let end = backup.stop_lsn().and_then(|lsn| lsn.parse().ok()).map_or(u64::MAX, |Lsn(end)| end);
    Some(start..=end)
}

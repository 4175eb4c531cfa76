//! Files of a cluster where a backup keeps them, read in place and never extracted.
//!
//! [`open`] says what kind of backup a path is. A [`Backup`] lists its files under the names that they have in the cluster, and streams their
//! bytes. What it has and cannot give is listed too ([`Unread`]): nobody takes a backup for sound of which a part was not read.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod archive;
mod barman;
mod blocks;
mod catalogue;
mod cipher;
mod exactly;
mod folder;
mod increment;
mod ini;
mod pgbackrest;
mod place;
#[expect(clippy::disallowed_methods, reason = "what asks the operating system")]
mod store;
mod tar;
mod tars;
mod walg;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use leadline_errors::Error;

pub use archive::ArchivedWal;
pub use catalogue::{backups_in, list_of};
pub use cipher::Passphrase;
pub use exactly::Differs;
pub use store::{is_file, is_stored, mount, ListObjects, ReadObject};
pub use tars::is_tar_name;

/// A file of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// From the data directory on, such as base/5/1259, or pg_tblspc/16400/PG_15_202209061/5/16401.
    pub name: PathBuf,
    /// How long it is.
    pub bytes: u64,
}

/// What a backup has and cannot give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// A file of the cluster, or one of the backup.
    pub name: PathBuf,
    /// Why.
    pub why: String,
}

/// Is given the number of a member, and its bytes; false when no more are wanted.
pub type Visit<'v> = dyn FnMut(usize, &mut dyn Read) -> Result<bool, Error> + 'v;

/// Whether the bytes of a member are wanted, by its number.
pub type Wants<'w> = dyn Fn(usize) -> bool + 'w;

/// Where files of a cluster come from.
pub trait Backup: Send + Sync {
    /// What it is, for people.
    fn kind(&self) -> &'static str;

    /// Its files.
    fn members(&self) -> &[Member];

    /// What cannot be given.
    fn unread(&self) -> &[Unread];

    /// Parts that can be read side by side; each member is in one of them.
    fn parts(&self) -> usize;

    /// Streams those members of a part that are wanted, one after the other. Bytes that cannot be read are an error of that member's stream,
    /// which gives exactly as many bytes as the member has or ends with an error.
    ///
    /// # Errors
    /// What `visit` returns.
    fn read(&self, part: usize, wanted: &Wants, visit: &mut Visit) -> Result<(), Error>;

    /// The bytes of a small file that says how others are to be read (pg_control, PG_VERSION, backup_label), where there is one.
    fn small(&self, name: &Path) -> Option<Vec<u8>>;

    /// What the backup's own list says of where the WAL ends that it needs, as text of an LSN.
    fn stop_lsn(&self) -> Option<String>;

    /// The file of a member, where it is kept as a file of its own with the same bytes.
    fn stored_as(&self, _number: usize) -> Option<&Path> {
        None
    }

    /// The backup that this one has only the changes since, where its own list says so.
    fn based_on(&self) -> Option<PathBuf> {
        None
    }

    /// Where that one begins, as text of an LSN, where its own list says so.
    fn changes_since(&self) -> Option<String> {
        None
    }

    /// Files of the cluster that it has nothing of, as they did not change since the backup that it is based on.
    fn unchanged(&self) -> &BTreeSet<PathBuf> {
        static NONE: BTreeSet<PathBuf> = BTreeSet::new();
        &NONE
    }

    /// Whether its own list has a digest of each file, which the streams compare: it is then worth to read also files without pages.
    fn has_digests(&self) -> bool {
        false
    }
}

/// The files of a copied data directory, and of the tablespaces that its links lead to.
///
/// # Errors
/// When a folder cannot be listed.
pub fn copied(root: &Path) -> Result<Box<dyn Backup>, Error> {
    let listed = store::entries(&root.join("pg_tblspc")).unwrap_or_default();
    let linked = listed.into_iter().map(|entry| entry.path).filter(|path| store::is_link(path));
    let spaces = linked.filter_map(|path| Some((path.clone(), Path::new("pg_tblspc").join(path.file_name()?))));
    let (there, gone): (Vec<_>, Vec<_>) = spaces.partition(|(path, _)| store::is_folder(path));
    let folders: Vec<_> = std::iter::once((root.to_owned(), PathBuf::new())).chain(there).collect();
    let lost = |(_, name)| Unread { name, why: "a tablespace is missing: its link leads nowhere".into() };
    Ok(Box::new(folder::Folder::of(&folders)?.without(gone.into_iter().map(lost))))
}

/// What could not be opened.
pub(crate) struct Failed(pub(crate) Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.take().unwrap_or_else(|| ErrorKind::NotFound.into()))
    }
}

/// Whether the work is to go on, asked now and then.
pub type GoOn<'g> = dyn Fn() -> bool + Sync + 'g;

/// The backup that a path is; none when it is none. `key` is that of an encrypted repository.
///
/// # Errors
/// When it is one and cannot be read, or `go_on` said no.
pub fn open(path: &Path, key: Option<&Passphrase>, go_on: &GoOn) -> Result<Option<Box<dyn Backup>>, Error> {
    // Both tools have a file named backup.info; of pgBackRest it says nothing of a single backup.
    if let Some(backup) = barman::Barman::open(path, go_on)? {
        return Ok(Some(Box::new(backup)));
    }
    if let Some(backup) = pgbackrest::Repository::open(path, key)? {
        return Ok(Some(Box::new(backup)));
    }
    if let Some(backup) = walg::WalG::open(path, go_on)? {
        return Ok(Some(Box::new(backup)));
    }
    if store::is_stored(path) && store::is_file(&path.join("PG_VERSION")) {
        return copied(path).map(Some); // elsewhere it is read as a data directory
    }
    Ok(tars::Tars::open(path, go_on)?.map(|tars| Box::new(tars) as Box<dyn Backup>))
}

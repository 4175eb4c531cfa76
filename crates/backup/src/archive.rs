//! Archives of WAL that cannot be read in place: in an object store, or encrypted by pgBackRest (`archive/STANZA/18-1`, with a folder for each
//! 4 GB of WAL).
//!
//! Source: src/command/archive/get/file.c and src/info/infoArchive.c of pgBackRest. The passphrase of the files is in `archive.info` of the
//! stanza, which the user's own one opens. Files are compressed before they are encrypted, and keep the names that say how.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};

use crate::cipher::{Decrypted, Passphrase};
use crate::pgbackrest::{key_of, pass_in};
use crate::store::{self, At, What};
use crate::{GoOn, Member};

const INFO: &str = "archive.info";
/// From a file to the folder of its stanza.
const DEEPEST: usize = 3;
/// Bytes that are decrypted at once.
const PIECE: u64 = 1 << 20;

/// An archive, or a part of it, whose files have to be copied to be read.
pub struct ArchivedWal {
    folder: PathBuf,
    pass: Option<Passphrase>,
    files: Vec<Member>,
}

impl ArchivedWal {
    /// The archive at a path: its folder, one of the folders in it, or that of a file; None when it can be read in place.
    ///
    /// # Errors
    /// When it is one and there is no key that opens it, or a folder cannot be listed.
    pub fn open(path: &Path, key: Option<&Passphrase>) -> Result<Option<ArchivedWal>, Error> {
        let is_stored = store::is_stored(path);
        let full = match is_stored {
            true => path.to_owned(),
            false => std::path::absolute(path).map_err(|e| Error::reading(path, "the WAL", &e))?,
        };
        let info = full.ancestors().take(DEEPEST + 1).map(|folder| folder.join(INFO)).find(|info| store::is_file(info));
        let info = info.filter(|_| store::exists(&full));
        let pass = info.map(|info| passphrase(&info, key, path)).transpose()?.flatten();
        if pass.is_none() && !is_stored {
            return Ok(None);
        }
        let mut files = Vec::new();
        let folder = match store::is_folder(&full) {
            true => full.clone(),
            false => full.parent().unwrap_or(&full).to_owned(),
        };
        list(&folder, Path::new(""), &mut files)?;
        Ok(Some(ArchivedWal { folder, pass, files }))
    }

    /// Its files, below the folder, with the bytes that they have in the archive: no fewer than when they are copied.
    pub fn files(&self) -> &[Member] {
        &self.files
    }

    /// Copies some of them to a folder, decrypted, under the same names and compressed as they are.
    ///
    /// # Errors
    /// When one cannot be read, decrypted or written, or `go_on` said no.
    pub fn copy(&self, into: &Path, wanted: impl Fn(&Path) -> bool, go_on: &GoOn) -> Result<(), Error> {
        for file in self.files.iter().filter(|file| wanted(&file.name)) {
            let (from, to) = (self.folder.join(&file.name), into.join(&file.name));
            let reading = |e: &io::Error| match e.kind() {
                ErrorKind::InvalidData => {
                    Error::new(Kind::Invalid, "an encrypted file is damaged").detail(e.to_string()).at(&from)
                }
                _ => Error::reading(&from, "the WAL", e),
            };
            let writing = |e: io::Error| {
                Error::new(Kind::Storage, "cannot write a file of the archive")
                    .detail(e.to_string())
                    .hint("set TMPDIR to a folder with more space")
                    .at(&to)
            };
            let stored = store::open(&from).map_err(|e| reading(&e))?;
            let stored = At { file: stored, at: 0 };
            let mut plain: Box<dyn Read> = match &self.pass {
                Some(pass) => Box::new(Decrypted::new(stored, pass.clone(), false)),
                None => Box::new(stored),
            };
            to.parent().map_or(Ok(()), fs::create_dir_all).map_err(writing)?;
            let mut made = File::create(&to).map_err(writing)?;
            let mut piece = Vec::new();
            loop {
                if !go_on() {
                    return Err(Error::new(Kind::Gone, "interrupted"));
                }
                piece.clear();
                plain.by_ref().take(PIECE).read_to_end(&mut piece).map_err(|e| reading(&e))?;
                if piece.is_empty() {
                    break;
                }
                made.write_all(&piece).map_err(writing)?;
            }
        }
        Ok(())
    }
}

/// What opens the files of an archive; None where they are not encrypted.
fn passphrase(info: &Path, key: Option<&Passphrase>, path: &Path) -> Result<Option<Passphrase>, Error> {
    let Some(key) = key_of(info, key, "archive", path)? else { return Ok(None) };
    let pass = pass_in(info, key)?.ok_or_else(|| {
        Error::new(Kind::Invalid, "the list of an archive cannot be read").detail("it has no passphrase").at(info)
    });
    pass.map(Some)
}

/// The files of a folder, and of the folders in it.
fn list(folder: &Path, below: &Path, files: &mut Vec<Member>) -> Result<(), Error> {
    for entry in store::entries(folder).map_err(|e| Error::reading(folder, "the folder", &e))? {
        let name = below.join(&entry.name);
        match entry.what {
            What::Folder if below.components().count() < DEEPEST => list(&entry.path, &name, files)?,
            What::File(bytes) => files.push(Member { name, bytes }),
            What::Folder | What::Other => {}
        }
    }
    Ok(())
}

//! Archives of WAL that pgBackRest encrypted: `archive/STANZA/18-1`, with a folder for each 4 GB of WAL.
//!
//! Source: src/command/archive/get/file.c and src/info/infoArchive.c of pgBackRest. The passphrase of the files is in `archive.info` of the
//! stanza, which the user's own one opens. Files are compressed before they are encrypted, and keep the names that say how.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};

use crate::cipher::{Decrypted, Passphrase};
use crate::pgbackrest::{is_encrypted, pass_in};
use crate::place::At;
use crate::{GoOn, Member};

const INFO: &str = "archive.info";
/// From a file to the folder of its stanza.
const DEEPEST: usize = 3;
/// Bytes that are decrypted at once.
const PIECE: u64 = 1 << 20;

/// An archive, or a part of it, that is encrypted.
pub struct EncryptedWal {
    folder: PathBuf,
    pass: Passphrase,
    files: Vec<Member>,
}

impl EncryptedWal {
    /// The archive at a path: its folder, one of the folders in it, or that of a file; None when it is no encrypted one.
    ///
    /// # Errors
    /// When it is one and there is no key that opens it, or a folder cannot be listed.
    pub fn open(path: &Path, key: Option<&Passphrase>) -> Result<Option<EncryptedWal>, Error> {
        let full = std::path::absolute(path).map_err(|e| Error::reading(path, "the WAL", &e))?;
        let info = full.ancestors().take(DEEPEST + 1).map(|folder| folder.join(INFO)).find(|info| info.is_file());
        let Some(info) = info.filter(|_| full.exists()) else { return Ok(None) };
        if !is_encrypted(&info)? {
            return Ok(None);
        }
        let Some(key) = key else {
            return Err(Error::new(Kind::Rights, "this archive is encrypted, and no key is given")
                .hint("set PGBACKREST_REPO1_CIPHER_PASS, or give --key-file FILE")
                .at(path));
        };
        let pass = pass_in(&info, key)?.ok_or_else(|| {
            Error::new(Kind::Invalid, "the list of an archive cannot be read").detail("it has no passphrase").at(&info)
        })?;
        let mut files = Vec::new();
        let folder = match full.is_dir() {
            true => full.clone(),
            false => full.parent().unwrap_or(&full).to_owned(),
        };
        list(&folder, Path::new(""), &mut files)?;
        Ok(Some(EncryptedWal { folder, pass, files }))
    }

    /// Its files, below the folder, with the bytes that they have in the archive: no fewer than when they are decrypted.
    pub fn files(&self) -> &[Member] {
        &self.files
    }

    /// Writes some of them to a folder, under the same names and compressed as they are.
    ///
    /// # Errors
    /// When one cannot be read, decrypted or written, or `go_on` said no.
    pub fn decrypt(&self, into: &Path, wanted: impl Fn(&Path) -> bool, go_on: &GoOn) -> Result<(), Error> {
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
            let stored = File::open(&from).map_err(|e| reading(&e))?;
            let mut plain = Decrypted::new(At { file: stored, at: 0 }, self.pass.clone(), false);
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

/// The files of a folder, and of the folders in it.
fn list(folder: &Path, below: &Path, files: &mut Vec<Member>) -> Result<(), Error> {
    let listed = fs::read_dir(folder).map_err(|e| Error::reading(folder, "the folder", &e))?;
    let mut entries: Vec<_> = listed.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && below.components().count() < DEEPEST {
            list(&path, &name, files)?;
        } else {
            files.extend(member(&path, name));
        }
    }
    Ok(())
}

fn member(path: &Path, name: PathBuf) -> Option<Member> {
    let about = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Member { name, bytes: about.len() })
}

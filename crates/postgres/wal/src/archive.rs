//! Files of an archive of WAL. They are in one folder as the server names them, or in a folder for each 4 GB, which has the first 16 digits
//! of their names, as pgBackRest and barman keep them. Their names may tell what compressed them, and of pgBackRest their SHA-1.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Result};
use leadline_unpack::Packing;

const SUFFIXES: [(&str, Packing); 4] =
    [(".gz", Packing::Gzip), (".lz4", Packing::Lz4), (".zst", Packing::Zstd), (".bz2", Packing::Bzip2)];
/// Hexadecimal digits of a SHA-1.
const DIGEST: usize = 40;
/// Those of the name of a folder.
const FOLDER: usize = 16;

/// The name that the server gave a file, and what the name says that compressed it.
pub(crate) fn own_name(name: &str) -> (&str, Packing) {
    let packed = SUFFIXES.iter().find_map(|(suffix, packing)| Some((name.strip_suffix(suffix)?, *packing)));
    let (name, packing) = packed.unwrap_or((name, Packing::Plain));
    let is_digest = |text: &str| text.len() == DIGEST && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let without = name.rsplit_once('-').filter(|(_, digest)| is_digest(digest)).map(|(name, _)| name);
    (without.unwrap_or(name), packing)
}

fn is_folder_name(name: &OsStr) -> bool {
    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'A'..=b'F');
    name.to_str().is_some_and(|name| name.len() == FOLDER && name.bytes().all(is_digit))
}

/// All files of an archive.
///
/// # Errors
/// When a folder cannot be listed.
pub fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(listed) = folders.pop() {
        let failed = |e| Error::reading(&listed, "the folder", &e);
        for entry in fs::read_dir(&listed).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_below = listed == folder && path.file_name().is_some_and(is_folder_name) && path.is_dir();
            let kind = if is_below { &mut folders } else { &mut found };
            kind.push(path);
        }
    }
    Ok(found)
}

/// The folder of the archive that a file is in.
pub(crate) fn folder_of(file: &Path) -> &Path {
    let parent = file.parent().unwrap_or(Path::new(""));
    let above = parent.file_name().filter(|name| is_folder_name(name)).and_then(|_| parent.parent());
    let folder = above.unwrap_or(parent);
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}

/// A file of an archive by the name that the server gave it; none when it is not there.
///
/// # Errors
/// When a folder cannot be listed.
pub fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    let below = name.get(..FOLDER).map(|start| folder.join(start)).filter(|below| below.is_dir());
    for folder in std::iter::once(folder.to_owned()).chain(below) {
        let suffixes = std::iter::once("").chain(SUFFIXES.map(|(suffix, _)| suffix));
        let named = suffixes.map(|suffix| folder.join(format!("{name}{suffix}"))).find(|path| path.is_file());
        if named.is_some() {
            return Ok(named);
        }
        let failed = |e| Error::reading(&folder, "the archive", &e);
        let mut found: Option<PathBuf> = None;
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_it = path.file_name().and_then(OsStr::to_str).is_some_and(|other| own_name(other).0 == name);
            if is_it && path.is_file() && found.as_ref().is_none_or(|other| path < *other) {
                found = Some(path);
            }
        }
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_what_archives_add() {
        let digest = "a9993e364706816aba3e25717850c26c9cd0d89d";
        let with = |end: &str| format!("0000000100000000000000AB-{digest}{end}");
        assert_eq!(own_name(&with(".zst")), ("0000000100000000000000AB", Packing::Zstd));
        assert_eq!(own_name(&with("")), ("0000000100000000000000AB", Packing::Plain));
        assert_eq!(own_name("00000002.history.gz"), ("00000002.history", Packing::Gzip));
        let short = format!("0000000100000000000000AB-{}", &digest[1..]);
        assert_eq!(own_name(&short), (short.as_str(), Packing::Plain));
    }

    #[test]
    fn the_folder_of_an_archive() {
        let of = |path| folder_of(Path::new(path));
        assert_eq!(of("/a/15-1/0000000100000000/x"), Path::new("/a/15-1"));
        assert_eq!((of("/a/15-1/x"), of("x")), (Path::new("/a/15-1"), Path::new(".")));
    }
}

//! `global/pg_control`, read; what its bytes mean is in `leadline_page::postgres::control`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind, Result};
use leadline_page::postgres::Control;

/// A server writes 8 kB; more is not read.
const LONGEST: u64 = 32 << 10;
/// Folders between the root of a data directory and a file of a relation in a tablespace.
const DEEPEST: usize = 5;

/// The bytes of a control file and where they are from.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct ControlBytes {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// A small file that must be a regular one: to open a pipe is to wait for somebody who writes.
///
/// # Errors
/// When it is something else or cannot be read.
pub fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The control file of the data directory at `root`.
///
/// # Errors
/// When it cannot be read, or says of its pages what cannot be. Its checksum is not compared: [`crate::Condition`] does.
pub fn read_control(root: &Path) -> Result<(Control, ControlBytes)> {
    let path = root.join("global/pg_control");
    let bytes = read_bytes(&path).map_err(|e| Error::reading(&path, "the control file", &e))?;
    match Control::parse(&bytes) {
        Ok(control) => Ok((control, ControlBytes { path, bytes })),
        Err(wrong) => Err(Error::new(Kind::Invalid, "cannot decode pg_control").detail(wrong.to_string()).at(&path)),
    }
}

/// The root of the data directory that a file is in: by its path as given, which may lead through the link of a tablespace, else by
/// where it really is.
pub fn root_above(path: &Path) -> Option<PathBuf> {
    let given = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let full = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut folders = [&given, &full].into_iter().flat_map(|path| path.ancestors().skip(1).take(DEEPEST));
    let root = folders.find(|folder| folder.join("global/pg_control").is_file());
    root.map(Path::to_owned)
}

/// The control file of the data directory that a file is in; none when it is in none, or in one of before 12, whose control file
/// says what its pages are like at other places.
///
/// # Errors
/// When there is one that cannot be read or makes no sense.
pub fn above(path: &Path) -> Result<Option<Control>> {
    let Some(root) = root_above(path) else { return Ok(None) };
    let path = root.join("global/pg_control");
    let bytes = read_bytes(&path).map_err(|e| Error::reading(&path, "the control file", &e))?;
    if Control::is_older(&bytes) {
        return Ok(None);
    }
    read_control(&root).map(|(control, _)| Some(control))
}

//! The file that an export is written into until it is whole.
//!
//! Its name is that of the output with `.partial` behind it, so that what a killed run left is taken over by the next. A lock, which
//! ends with its process, tells it from the file of a run that still writes.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use leadline_pagescan::try_lock;

use leadline_errors::{Error, Kind, Result};

/// Opens the file and locks it.
///
/// # Errors
/// When another run writes it, or something else has its name.
pub(super) fn take(path: &Path) -> Result<File> {
    let failed = |e| super::writing(path, &e);
    loop {
        // Asked before it is opened: to open a pipe is to wait for somebody who reads.
        match fs::symlink_metadata(path) {
            Ok(about) if !about.is_file() => {
                return Err(Error::new(Kind::Storage, "cannot write the rows")
                    .detail("rows are written under this temporary name first, but it exists and is not a regular file")
                    .hint("remove it, or choose another name with -o")
                    .at(path));
            }
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(failed)?;
        if !try_lock(&file) {
            return Err(Error::new(Kind::Usage, "another leadline process is writing this file")
                .hint("wait until it ends, or choose another name with -o")
                .at(path));
        }
        // Where there are no locks, there is none. The one who had it may have given the file its final name meanwhile.
        let same = |about: fs::Metadata| Some((about.dev(), about.ino()));
        let mine = same(file.metadata().map_err(failed)?);
        if fs::symlink_metadata(path).ok().and_then(same) == mine {
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_taken_over_and_what_another_writes_is_not() {
        let folder = std::env::temp_dir().join(format!("leadline-part-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("rows.csv.partial");
        fs::write(&path, "left by a killed run").unwrap();
        let mine = take(&path).unwrap();
        assert_eq!(take(&path).unwrap_err().message, "another leadline process is writing this file");
        drop(mine);
        take(&path).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(take(&path).unwrap_err().detail.contains("not a regular file"));
        fs::remove_dir_all(&folder).unwrap();
    }
}

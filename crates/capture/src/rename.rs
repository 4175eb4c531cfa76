//! New names in one step, so that no reader sees half of a change.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Renames unless the new name is taken, then [`io::ErrorKind::AlreadyExists`]. File systems that cannot do this in one step (some over the
/// network) link and unlink, or at worst look first.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rename(from, to, libc::RENAME_NOREPLACE) {
        Err(error) if is_unsupported(&error) => {}
        outcome => return outcome,
    }
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
        Err(_) if to.exists() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Lets two files change their names. When there is no second file, or the file system cannot do it, the first one replaces the second.
///
/// For a file that is replaced again and again: nothing is deleted. ext4 does not use an inode again for some minutes after it was deleted,
/// and looks at each of these whenever a file is created in the same group.
///
/// # Errors
/// As of rename(2); the second file is then as it was.
pub fn exchange(from: &Path, to: &Path) -> io::Result<()> {
    match rename(from, to, libc::RENAME_EXCHANGE) {
        Err(error) if is_unsupported(&error) || error.kind() == io::ErrorKind::NotFound => fs::rename(from, to),
        outcome => outcome,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}

fn rename(from: &Path, to: &Path, flags: libc::c_uint) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let (old, new) = (name(from)?, name(to)?);
    // SAFETY: both are strings that end with a zero and live through the call.
    let renamed = unsafe { libc::renameat2(libc::AT_FDCWD, old.as_ptr(), libc::AT_FDCWD, new.as_ptr(), flags) };
    if renamed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_change_their_names_or_one_takes_the_free_name() {
        let folder = std::env::temp_dir().join(format!("leadline-exchange-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (new, place) = (folder.join("new"), folder.join("place"));
        fs::write(&new, "1").unwrap();
        exchange(&new, &place).unwrap();
        assert_eq!((fs::read_to_string(&place).unwrap().as_str(), new.exists()), ("1", false));
        fs::write(&new, "2").unwrap();
        exchange(&new, &place).unwrap();
        assert_eq!([&place, &new].map(|path| fs::read_to_string(path).unwrap()), ["2", "1"]);
        fs::remove_file(&new).unwrap();
        assert_eq!(exchange(&new, &place).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_to_string(&place).unwrap(), "2");
        fs::remove_dir_all(&folder).unwrap();
    }
}

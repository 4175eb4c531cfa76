//! Tar archives, as `pg_basebackup -Ft` and backup tools make them: nothing here reads what is in one, and who gives one is told so.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use leadline_errors::{Error, Kind};

/// Where the header of a tar archive says that it is one.
const MAGIC_AT: u64 = 257;
const MAGIC: &[u8] = b"ustar";
const SUFFIXES: [&str; 7] = [".tar", ".tar.gz", ".tgz", ".tar.lz4", ".tar.zst", ".tar.bz2", ".tar.xz"];

/// That a path is a tar archive, or a folder of those that `pg_basebackup -Ft` makes; None for what is neither.
pub fn is_in_tar(path: &Path) -> Option<Error> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !path.is_dir() {
        return is_tar(path).then(|| {
            Error::new(Kind::Unsupported, "this is a tar archive, and files are not read inside of one")
                .hint(format!("extract it first: mkdir FOLDER && tar -xf {} -C FOLDER", name(path)))
                .at(path)
        });
    }
    let files = fs::read_dir(path).ok()?.flatten().map(|entry| entry.path());
    let archive = files
        .filter(|file| ["base.tar", "pg_wal.tar"].iter().any(|of| name(file).starts_with(of)) && is_tar(file))
        .min()?;
    Some(
        Error::new(Kind::Unsupported, "this folder has a backup as tar archives, and files are not read inside of them")
            .detail(format!("for example {}", name(&archive)))
            .hint("extract them first: base.tar into an empty folder, pg_wal.tar into its pg_wal, each other one into the folder of its tablespace")
            .at(path),
    )
}

/// By its bytes, or by its name where these are compressed. A pipe is not opened.
fn is_tar(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let lower = path.to_string_lossy().to_lowercase();
    let mut magic = [0; MAGIC.len()];
    SUFFIXES.iter().any(|suffix| lower.ends_with(suffix))
        || File::open(path).and_then(|file| file.read_exact_at(&mut magic, MAGIC_AT)).is_ok() && magic == *MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_known_by_its_bytes_or_its_name() {
        let folder = std::env::temp_dir().join(format!("leadline-tar-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut bytes = vec![0; 1024];
        bytes[257..262].copy_from_slice(MAGIC);
        let made = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes).unwrap();
            is_in_tar(&folder.join(name)).is_some()
        };
        assert!(made("backup", &bytes) && made("x.TAR.gz", b"") && made("x.tgz", b"1"));
        assert!(!made("16384", &bytes[..260]) && !made("tar", &[0; 1024]));
        assert!(is_in_tar(&folder).is_none() && is_in_tar(&folder.join("none.tar")).is_none());
        fs::write(folder.join("base.tar.zst"), b"").unwrap();
        assert!(is_in_tar(&folder).is_some());
        fs::remove_dir_all(&folder).unwrap();
    }
}

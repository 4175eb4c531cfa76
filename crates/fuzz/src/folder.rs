//! A folder for what is only read from files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Gone when dropped.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    /// With these files; a name may have folders in it.
    pub fn with<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // In memory where there is such a place: millions of files are written.
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Folder(above.join(format!("leadline-fuzz-{}-{number}", std::process::id())));
        for (name, bytes) in files {
            let path = folder.0.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder around each file")).expect("a folder");
            std::fs::write(path, bytes).expect("a file");
        }
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

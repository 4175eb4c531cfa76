//! Where backups lie: in files of this host, or in an object store, whose objects are shown as the files of folders.
//!
//! Who mounts a store ([`mount`]) lists its objects and reads ranges of them; this crate opens no connection. All of this crate asks here for
//! files and folders, and nothing else asks the operating system: what is in a store is not on its disks.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

/// Bytes that are asked for at once: a request takes as long as some megabytes do.
const BLOCK: u64 = 4 << 20;
/// Blocks that are kept: those of the files that threads are reading.
const MOST_BLOCKS: usize = 16;

/// What is in a folder, which is named from the root on: each name, and how long a file is; none of a folder.
pub type ListObjects = dyn Fn(&str) -> io::Result<Vec<(String, Option<u64>)>> + Send + Sync;
/// Gives some bytes of an object: its name from the root on, from where on, and how many.
pub type ReadObject = dyn Fn(&str, u64, u64) -> io::Result<Vec<u8>> + Send + Sync;

static MOUNTED: RwLock<Vec<Arc<Store>>> = RwLock::new(Vec::new());

/// Objects below a root, by their paths.
struct Store {
    root: PathBuf,
    list: Box<ListObjects>,
    read: Box<ReadObject>,
    folders: Mutex<HashMap<PathBuf, Arc<Folder>>>,
    kept: Mutex<VecDeque<Block>>,
}

type Folder = BTreeMap<OsString, What>;
/// Some bytes of an object: its path, and where they begin.
type Block = (PathBuf, u64, Arc<[u8]>);

/// Shows objects as files below a root, such as s3://BUCKET, from now on. What a folder has is asked for once.
pub fn mount(root: &Path, list: Box<ListObjects>, read: Box<ReadObject>) {
    let store = Store { root: root.to_owned(), list, read, folders: Mutex::default(), kept: Mutex::default() };
    let mut mounted = MOUNTED.write();
    mounted.retain(|other| other.root != root);
    mounted.push(Arc::new(store));
}

/// The store that has a path.
fn of(path: &Path) -> Option<Arc<Store>> {
    MOUNTED.read().iter().find(|store| path.starts_with(&store.root)).cloned()
}

/// What there is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A file with so many bytes.
    File(u64),
    /// A folder.
    Folder,
    /// Neither.
    Other,
}

/// What is in a folder.
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) name: OsString,
    /// What it is itself: a link is neither file nor folder.
    pub(crate) what: What,
}

impl Store {
    fn name(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// A folder without anything in it is none.
    fn folder(&self, path: &Path) -> io::Result<Arc<Folder>> {
        if let Some(known) = self.folders.lock().get(path) {
            return Ok(Arc::clone(known));
        }
        let mut found = Folder::new();
        for (name, bytes) in (self.list)(&self.name(path))? {
            let what = bytes.map_or(What::Folder, What::File);
            found
                .entry(name.into())
                .and_modify(|kept| *kept = if bytes.is_some() { what } else { *kept })
                .or_insert(what);
        }
        if found.is_empty() {
            return Err(ErrorKind::NotFound.into());
        }
        let found = Arc::new(found);
        self.folders.lock().insert(path.to_owned(), Arc::clone(&found));
        Ok(found)
    }

    fn what(&self, path: &Path) -> io::Result<What> {
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) if path != self.root => {
                self.folder(folder)?.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
            }
            _ => Ok(What::Folder),
        }
    }

    /// The block of an object that begins at `from`.
    fn block(&self, path: &Path, from: u64, bytes: u64) -> io::Result<Arc<[u8]>> {
        if let Some((.., block)) = self.kept.lock().iter().find(|(of, at, _)| of == path && *at == from) {
            return Ok(Arc::clone(block));
        }
        let wanted = BLOCK.min(bytes.saturating_sub(from));
        let read = (self.read)(&self.name(path), from, wanted)?;
        if read.len() as u64 != wanted {
            let told = format!("{} came of {wanted} bytes of {} from {from} on", read.len(), path.display());
            return Err(io::Error::new(ErrorKind::UnexpectedEof, told));
        }
        let block: Arc<[u8]> = read.into();
        let mut kept = self.kept.lock();
        if kept.len() == MOST_BLOCKS {
            kept.pop_front();
        }
        kept.push_back((path.to_owned(), from, Arc::clone(&block)));
        Ok(block)
    }
}

/// What can be read at any place.
pub(crate) enum Opened {
    /// A file of this host.
    File(File),
    /// An object.
    Object(Object),
}

/// An object of a store.
pub(crate) struct Object {
    store: Arc<Store>,
    path: PathBuf,
    bytes: u64,
}

impl Opened {
    /// Fewer bytes than asked for come at the end, and elsewhere.
    pub(crate) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let object = match self {
            Opened::File(file) => return file.read_at(into, at),
            Opened::Object(object) => object,
        };
        if at >= object.bytes || into.is_empty() {
            return Ok(0);
        }
        let from = at / BLOCK * BLOCK;
        let block = object.store.block(&object.path, from, object.bytes)?;
        let start = usize::try_from(at - from).unwrap_or(usize::MAX);
        let have = block.get(start..).unwrap_or_default();
        let count = have.len().min(into.len());
        for (to, byte) in into.iter_mut().zip(have) {
            *to = *byte;
        }
        Ok(count)
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        match self {
            Opened::File(file) => Ok(file.metadata()?.len()),
            Opened::Object(object) => Ok(object.bytes),
        }
    }
}

/// A file, its own or another's, from an offset on.
pub(crate) struct At<F> {
    pub(crate) file: F,
    pub(crate) at: u64,
}

impl<F: Borrow<Opened>> Read for At<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.borrow().read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Opens a file or an object to read it.
pub(crate) fn open(path: &Path) -> io::Result<Opened> {
    let Some(store) = of(path) else { return File::open(path).map(Opened::File) };
    match store.what(path)? {
        What::File(bytes) => Ok(Opened::Object(Object { path: path.to_owned(), bytes, store })),
        What::Folder | What::Other => Err(ErrorKind::IsADirectory.into()),
    }
}

/// All of a file that is not longer than `most`.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut content = Vec::new();
    At { file, at: 0 }.take(most).read_to_end(&mut content)?;
    Ok(content)
}

/// What there is at a path, or where a link at it leads.
pub(crate) fn what(path: &Path) -> Option<What> {
    if let Some(store) = of(path) {
        return store.what(path).ok();
    }
    let about = fs::metadata(path).ok()?;
    Some(what_of(&about))
}

fn what_of(about: &fs::Metadata) -> What {
    match (about.is_file(), about.is_dir()) {
        (true, _) => What::File(about.len()),
        (_, true) => What::Folder,
        _ => What::Other,
    }
}

/// Whether it is a file.
pub fn is_file(path: &Path) -> bool {
    matches!(what(path), Some(What::File(_)))
}

pub(crate) fn is_folder(path: &Path) -> bool {
    what(path) == Some(What::Folder)
}

pub(crate) fn exists(path: &Path) -> bool {
    what(path).is_some()
}

pub(crate) fn is_link(path: &Path) -> bool {
    of(path).is_none() && path.is_symlink()
}

/// Whether it is in a store, and no file of this host has its bytes.
pub fn is_stored(path: &Path) -> bool {
    of(path).is_some()
}

/// What is in a folder, in the order of the names.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    if let Some(store) = of(folder) {
        let listed = store.folder(folder)?;
        let entry =
            |(name, what): (&OsString, &What)| Entry { path: folder.join(name), name: name.clone(), what: *what };
        return Ok(listed.iter().map(entry).collect());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let Ok(about) = entry.metadata() else { continue };
        found.push(Entry { path: entry.path(), name: entry.file_name(), what: what_of(&about) });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A store of one object of 9 MB, whose bytes tell where they are, in a folder beside an empty one.
    fn mounted(root: &str, asked: &Arc<AtomicU64>) -> PathBuf {
        let list = |folder: &str| match folder {
            "" => Ok(vec![("a".into(), None), ("gone".into(), None)]),
            "a" => Ok(vec![("long".into(), Some(9 << 20)), ("cut".into(), Some(10))]),
            "denied" => Err(io::Error::other("you may not")),
            _ => Ok(Vec::new()),
        };
        let asked = Arc::clone(asked);
        let read = move |name: &str, at: u64, bytes: u64| {
            asked.fetch_add(1, Ordering::Relaxed);
            let bytes = if name == "a/cut" { bytes - 1 } else { bytes };
            Ok((at..at + bytes).map(|at| (at >> 16) as u8).collect())
        };
        mount(Path::new(root), Box::new(list), Box::new(read));
        PathBuf::from(root)
    }

    #[test]
    fn an_object_is_read_by_blocks_and_each_once() {
        let asked = Arc::new(AtomicU64::new(0));
        let path = mounted("s3://read", &asked).join("a/long");
        let object = open(&path).expect("it is listed");
        assert_eq!(object.bytes().expect("as listed"), 9 << 20);
        let mut some = [0; 100];
        for at in [0, BLOCK - 50, BLOCK - 1, BLOCK, (9 << 20) - 30, (9 << 20) - 1] {
            let count = object.read_at(&mut some, at).expect("it can be read");
            let until_block = BLOCK - at % BLOCK;
            assert_eq!(count as u64, until_block.min((9 << 20) - at).min(100), "at {at}");
            assert!(some.iter().take(count).all(|byte| *byte == (at >> 16) as u8), "at {at}");
        }
        assert_eq!((object.read_at(&mut some, 9 << 20).expect("the end"), asked.load(Ordering::Relaxed)), (0, 3));
    }

    #[test]
    fn folders_are_those_that_have_something() {
        let root = mounted("s3://folders", &Arc::default());
        let names: Vec<_> =
            entries(&root).expect("the root").into_iter().map(|entry| (entry.name, entry.what)).collect();
        assert_eq!(names, [("a".into(), What::Folder), ("gone".into(), What::Folder)]);
        assert!(is_folder(&root) && is_folder(&root.join("a")) && is_file(&root.join("a/long")));
        assert!(!is_file(&root.join("a")) && !exists(&root.join("b")) && !exists(&root.join("a/long/x")));
        assert_eq!(entries(&root.join("gone")).err().map(|e| e.kind()), Some(ErrorKind::NotFound));
        assert!(is_stored(&root.join("b")) && !is_stored(Path::new("/tmp")) && !is_link(&root.join("a")));
    }

    #[test]
    fn what_cannot_be_had_is_an_error_and_not_another_content() {
        let root = mounted("s3://errors", &Arc::default());
        let cut = open(&root.join("a/cut")).expect("it is listed").read_at(&mut [0; 10], 0);
        assert_eq!(cut.map_err(|e| e.kind()), Err(ErrorKind::UnexpectedEof));
        let denied = open(&root.join("denied/x")).err().map(|e| e.to_string());
        assert_eq!(denied.as_deref(), Some("you may not"));
        assert_eq!(open(&root.join("a")).err().map(|e| e.kind()), Some(ErrorKind::IsADirectory));
    }
}

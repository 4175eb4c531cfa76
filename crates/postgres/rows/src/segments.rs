//! Which files a relation has beside its first one: all of a folder, looked up once.
//!
//! The server takes the first file that is missing or short for the end of a relation. Here what is behind it counts too.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use leadline_datadir::FileName;
use leadline_page::postgres::Fork;
use parking_lot::Mutex;

/// Of each folder the numbers of the further files of main forks, by the number of the relation's file.
#[derive(Debug, Default)]
pub(crate) struct Segments(Mutex<HashMap<PathBuf, HashMap<u32, BTreeSet<u32>>>>);

impl Segments {
    /// The further files of a relation with this first file.
    pub(crate) fn of(&self, first: &Path) -> BTreeSet<u32> {
        let (Some(folder), Some(name)) = (first.parent(), first.file_name().and_then(|n| n.to_str())) else {
            return BTreeSet::new();
        };
        let mut known = self.0.lock();
        let files = known.entry(folder.to_owned()).or_insert_with_key(|folder| further(folder));
        name.parse().ok().and_then(|filenode: u32| files.get(&filenode).cloned()).unwrap_or_default()
    }
}

fn further(folder: &Path) -> HashMap<u32, BTreeSet<u32>> {
    let mut found: HashMap<u32, BTreeSet<u32>> = HashMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_str().and_then(FileName::parse);
        if let Some(name) = name.filter(|name| name.fork == Fork::Main && name.segment > 0) {
            found.entry(name.filenode).or_default().insert(name.segment);
        }
    }
    found
}

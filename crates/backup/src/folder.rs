//! Folders in which a backup tool copied the files of a cluster, one by one.

use std::ops::Range;
use std::path::{Path, PathBuf};

use leadline_errors::Error;

use crate::exactly::Exactly;
use crate::place::parts_of;
use crate::store::{self, At, What};
use crate::{Backup, Failed, Member, Unread, Visit, Wants};

const SMALL: u64 = 1 << 16;
/// No cluster has folders within folders so often.
const DEEPEST: u32 = 16;

/// Copied files.
pub(crate) struct Folder {
    members: Vec<Member>,
    paths: Vec<PathBuf>,
    unread: Vec<Unread>,
    parts: Vec<Range<usize>>,
}

impl Folder {
    /// All files below some folders; beside each folder, where it is in the data directory.
    pub(crate) fn of(folders: &[(PathBuf, PathBuf)]) -> Result<Folder, Error> {
        let mut found = Folder { members: Vec::new(), paths: Vec::new(), unread: Vec::new(), parts: Vec::new() };
        for (folder, below) in folders {
            found.walk(folder, below, 0)?;
        }
        found.parts = parts_of(&found.members);
        Ok(found)
    }

    /// The same, with more that cannot be given.
    pub(crate) fn without(mut self, unread: impl Iterator<Item = Unread>) -> Folder {
        self.unread.extend(unread);
        self
    }

    fn walk(&mut self, folder: &Path, below: &Path, depth: u32) -> Result<(), Error> {
        for entry in store::entries(folder).map_err(|e| Error::reading(folder, "the folder", &e))? {
            let name = below.join(&entry.name);
            if entry.what == What::Folder && depth < DEEPEST {
                self.walk(&entry.path, &name, depth + 1)?;
            } else if let What::File(bytes) = entry.what {
                self.members.push(Member { name, bytes });
                self.paths.push(entry.path);
            } else if name.parent() != Some(Path::new("pg_tblspc")) {
                self.unread.push(Unread { name, why: "it is no regular file".into() });
            }
        }
        Ok(())
    }

    fn path(&self, number: usize) -> &Path {
        self.paths.get(number).map_or(Path::new(""), PathBuf::as_path)
    }
}

impl Backup for Folder {
    fn kind(&self) -> &'static str {
        "folder"
    }

    fn members(&self) -> &[Member] {
        &self.members
    }

    fn unread(&self) -> &[Unread] {
        &self.unread
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn read(&self, part: usize, wanted: &Wants, visit: &mut Visit) -> Result<(), Error> {
        for number in self.parts.get(part).cloned().unwrap_or_default().filter(|number| wanted(*number)) {
            let bytes = self.members.get(number).map_or(0, |member| member.bytes);
            let goes_on = match store::open(self.path(number)) {
                Ok(file) => visit(number, &mut Exactly::next(At { file: &file, at: 0 }, bytes))?,
                Err(e) => visit(number, &mut Failed(Some(e)))?,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn small(&self, name: &Path) -> Option<Vec<u8>> {
        let number = self.members.iter().position(|member| member.name == name && member.bytes <= SMALL)?;
        store::read(self.path(number), SMALL).ok()
    }

    fn stored_as(&self, number: usize) -> Option<&Path> {
        self.paths.get(number).map(PathBuf::as_path).filter(|path| !store::is_stored(path))
    }

    fn stop_lsn(&self) -> Option<String> {
        None
    }
}

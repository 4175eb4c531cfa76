//! The files of one fork, wherever they are: the first one's path, and those that go on with a number behind it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use leadline_datadir::segment_path;
use leadline_errors::{Error, Kind, Result};

use crate::files::cluster::{read_page, reading};

/// Pages read at once.
const RUN: u32 = 64;

/// See above.
#[derive(Debug, Clone)]
pub(crate) struct ForkFiles {
    first: PathBuf,
    pub block_size: usize,
    segment_blocks: u32,
}

#[cold]
fn writing(path: &Path, e: &io::Error) -> Error {
    let kind = if e.kind() == io::ErrorKind::PermissionDenied { Kind::Rights } else { Kind::Storage };
    Error::new(kind, "cannot write the relation file").detail(e.to_string()).at(path)
}

impl ForkFiles {
    pub(crate) fn new(first: &Path, block_size: usize, segment_blocks: u32) -> ForkFiles {
        ForkFiles { first: first.to_owned(), block_size, segment_blocks }
    }

    pub(crate) fn first(&self) -> &Path {
        &self.first
    }

    /// The file of a block, and where in it.
    fn place(&self, block: u32) -> (PathBuf, u64) {
        let within = u64::from(block % self.segment_blocks) * self.block_size as u64;
        (segment_path(&self.first, block / self.segment_blocks), within)
    }

    /// How many there are; a file that is not full is the last one.
    pub(crate) fn blocks(&self) -> Result<u32> {
        for segment in 0.. {
            let path = segment_path(&self.first, segment);
            let length = match fs::metadata(&path) {
                Ok(about) => about.len(),
                Err(e) if e.kind() == io::ErrorKind::NotFound && segment > 0 => 0,
                Err(e) => return Err(reading(&path, &e)),
            };
            let blocks = (length / self.block_size as u64).min(self.segment_blocks.into()) as u32;
            if blocks < self.segment_blocks {
                return Ok(segment.saturating_mul(self.segment_blocks).saturating_add(blocks));
            }
        }
        Ok(u32::MAX)
    }

    /// Fills `page`; false when there is no such block.
    pub(crate) fn read(&self, block: u32, page: &mut [u8]) -> Result<bool> {
        let (path, at) = self.place(block);
        match File::open(&path) {
            Ok(file) => read_page(&file, &path, at, page),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(reading(&path, &e)),
        }
    }

    /// Every block in its order.
    pub(crate) fn for_each(&self, mut take: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        let blocks = self.blocks()?;
        let mut bytes = vec![0; RUN as usize * self.block_size];
        let mut block = 0;
        while block < blocks {
            let in_file = self.segment_blocks - block % self.segment_blocks;
            let count = RUN.min(blocks - block).min(in_file);
            let (path, at) = self.place(block);
            let part = &mut bytes[..count as usize * self.block_size];
            let file = File::open(&path).map_err(|e| reading(&path, &e))?;
            file.read_exact_at(part, at).map_err(|e| reading(&path, &e))?;
            for (n, page) in part.chunks_exact(self.block_size).enumerate() {
                take(block + n as u32, page)?;
            }
            block += count;
        }
        Ok(())
    }

    /// The first file, new and empty.
    pub(crate) fn create(&self) -> Result<()> {
        File::create(&self.first).map(drop).map_err(|e| writing(&self.first, &e))
    }

    /// Files before that of the block are made full, so that none is missing between them.
    pub(crate) fn write(&self, block: u32, page: &[u8]) -> Result<()> {
        let (path, at) = self.place(block);
        let mut file = OpenOptions::new().write(true).open(&path);
        if file.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            self.set_blocks(block - block % self.segment_blocks)?;
            file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        }
        file.and_then(|file| file.write_all_at(page, at)).map_err(|e| writing(&path, &e))
    }

    /// Truncations them to so many blocks if there are more. Files behind the last one are removed.
    pub(crate) fn truncate(&self, blocks: u32) -> Result<()> {
        for segment in 0.. {
            let path = segment_path(&self.first, segment);
            let Ok(about) = fs::metadata(&path) else { break };
            let here = blocks.saturating_sub(segment.saturating_mul(self.segment_blocks)).min(self.segment_blocks);
            let length = u64::from(here) * self.block_size as u64;
            let done = if here == 0 && segment > 0 {
                fs::remove_file(&path)
            } else if about.len() > length {
                OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(length))
            } else {
                Ok(())
            };
            done.map_err(|e| writing(&path, &e))?;
        }
        Ok(())
    }

    /// Makes them exactly so long: new blocks are zeros.
    pub(crate) fn set_blocks(&self, blocks: u32) -> Result<()> {
        self.truncate(blocks)?;
        for segment in 0..=blocks.saturating_sub(1) / self.segment_blocks {
            let path = segment_path(&self.first, segment);
            let here = blocks.saturating_sub(segment * self.segment_blocks).min(self.segment_blocks);
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let length = u64::from(here) * self.block_size as u64;
            file.and_then(|file| file.set_len(length)).map_err(|e| writing(&path, &e))?;
        }
        Ok(())
    }

    /// Removes them, as far as they are there.
    pub(crate) fn remove(&self) {
        for segment in 0.. {
            if fs::remove_file(segment_path(&self.first, segment)).is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_on_in_the_next_one() {
        let folder = std::env::temp_dir().join(format!("leadline-fork-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let files = ForkFiles::new(&folder.join("7"), 512, 2);
        files.create().unwrap();
        assert_eq!(files.blocks().unwrap(), 0);
        files.write(4, &[4; 512]).unwrap();
        assert_eq!(files.blocks().unwrap(), 5);
        let mut seen = Vec::new();
        files
            .for_each(|block, page| {
                seen.push((block, page[0], page[511]));
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 4, 4)]);
        let mut page = [9; 512];
        assert!(files.read(4, &mut page).unwrap() && page == [4; 512]);
        assert!(!files.read(6, &mut page).unwrap());
        files.truncate(3).unwrap();
        assert_eq!((files.blocks().unwrap(), folder.join("7.2").exists()), (3, false));
        files.set_blocks(0).unwrap();
        assert_eq!((files.blocks().unwrap(), folder.join("7.1").exists()), (0, false));
        files.remove();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }
}

//! Where the values of a toast table begin: an entry of 8 bytes for each value and stretch of neighbouring blocks it is in.
//!
//! Memory is bounded whatever the table's size: `HELD` entries are in memory, more are sorted and put into a file without a
//! name in the folder for temporary files. Of each `STEP` entries there, one number stays in memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use leadline_errors::{Error, Kind, Result};

/// Entries in memory before they are put into a file: 32 MB.
const HELD: usize = 4 << 20;
/// Entries read at a time.
const STEP: usize = 512;
const ENTRY: usize = 8;

/// `chunk_id`, and the first of neighbouring blocks with pieces of it.
type Place = (u32, u32);

/// A sorted part of the entries, in a file.
#[derive(Debug)]
struct Part {
    file: File,
    /// `chunk_id` of every `STEP`th entry.
    fences: Vec<u32>,
    last: u32,
    entries: usize,
}

/// All entries, once the table has been gone through.
#[derive(Debug)]
pub struct Places {
    parts: Vec<Part>,
    held: Vec<Place>,
}

/// Takes the pieces in the order of their blocks.
pub struct Builder {
    places: Places,
    most: usize,
    block: u32,
    /// Values with a piece in this block and in the one before it.
    here: Vec<u32>,
    before: Vec<u32>,
}

fn no_room(e: &io::Error) -> Error {
    Error::new(Kind::Storage, "cannot store the positions of the TOAST values")
        .detail(e.to_string())
        .hint("it needs 8 bytes per value in the folder for temporary files; set TMPDIR to use another folder")
        .at(std::env::temp_dir())
}

/// A file that nobody else can open and that is gone with this process.
fn nameless() -> io::Result<File> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = format!("leadline-toast-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path: PathBuf = std::env::temp_dir().join(name);
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return fs::remove_file(&path).map(|()| file),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// Nothing yet.
    pub fn new() -> Builder {
        Builder::with_most(HELD)
    }

    fn with_most(most: usize) -> Builder {
        let places = Places { parts: Vec::new(), held: Vec::new() };
        Builder { places, most, block: 0, here: Vec::new(), before: Vec::new() }
    }

    /// A piece of a value is in this block, which is none before that of the last piece.
    ///
    /// # Errors
    /// When there is no room for temporary files.
    pub fn push(&mut self, id: u32, block: u32) -> Result<()> {
        if block != self.block {
            std::mem::swap(&mut self.here, &mut self.before);
            self.here.clear();
            if block != self.block.wrapping_add(1) {
                self.before.clear();
            }
            self.block = block;
        }
        // The pieces of a value mostly follow one another.
        if self.here.last() == Some(&id) || self.here.contains(&id) {
            return Ok(());
        }
        self.here.push(id);
        if self.before.contains(&id) {
            return Ok(());
        }
        if self.places.held.len() >= self.most {
            self.places.put_away().map_err(|e| no_room(&e))?;
        }
        if self.places.held.len() == self.places.held.capacity() {
            // Not doubled beyond what is allowed.
            let more = self.places.held.len().clamp(64, 1 << 19).min(self.most - self.places.held.len());
            self.places.held.reserve_exact(more);
        }
        self.places.held.push((id, block));
        Ok(())
    }

    /// All of them.
    pub fn finish(mut self) -> Places {
        self.places.held.sort_unstable();
        self.places
    }
}

impl Places {
    fn put_away(&mut self) -> io::Result<()> {
        self.held.sort_unstable();
        let mut file = BufWriter::new(nameless()?);
        for (id, block) in &self.held {
            file.write_all(&id.to_le_bytes())?;
            file.write_all(&block.to_le_bytes())?;
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let fences = self.held.iter().step_by(STEP).map(|p| p.0).collect();
        let last = self.held.last().map_or(0, |p| p.0);
        self.parts.push(Part { file, fences, last, entries: self.held.len() });
        self.held.clear();
        Ok(())
    }

    /// The first block of each stretch with pieces of a value.
    ///
    /// # Errors
    /// When a temporary file cannot be read.
    pub fn find(&self, id: u32, out: &mut Vec<u32>) -> Result<()> {
        out.clear();
        for part in &self.parts {
            part.find(id, out).map_err(|e| no_room(&e))?;
        }
        let from = self.held.partition_point(|p| p.0 < id);
        out.extend(self.held[from..].iter().take_while(|p| p.0 == id).map(|p| p.1));
        out.sort_unstable();
        Ok(())
    }

    /// Bytes in memory.
    #[cfg(test)]
    fn memory(&self) -> usize {
        let fences: usize = self.parts.iter().map(|p| p.fences.capacity() * size_of::<u32>()).sum();
        fences + self.held.capacity() * size_of::<Place>()
    }
}

impl Part {
    fn find(&self, id: u32, out: &mut Vec<u32>) -> io::Result<()> {
        if id > self.last || self.fences.first().is_none_or(|first| id < *first) {
            return Ok(());
        }
        // The first of them may be before the fence of its own number.
        let mut at = self.fences.partition_point(|fence| *fence < id).saturating_sub(1) * STEP;
        let mut bytes = [0; STEP * ENTRY];
        while at < self.entries {
            let count = STEP.min(self.entries - at);
            self.file.read_exact_at(&mut bytes[..count * ENTRY], (at * ENTRY) as u64)?;
            for entry in bytes[..count * ENTRY].chunks_exact(ENTRY) {
                let [a, b, c, d, rest @ ..] = entry else { continue };
                let found = u32::from_le_bytes([*a, *b, *c, *d]);
                if found > id {
                    return Ok(());
                }
                if let (true, Some(block)) = (found == id, rest.first_chunk()) {
                    out.push(u32::from_le_bytes(*block));
                }
            }
            at += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_an_entry_for_each_stretch_of_neighbouring_blocks() {
        let mut builder = Builder::new();
        for (id, block) in [(7, 0), (7, 0), (9, 0), (7, 1), (7, 2), (9, 2), (5, 4), (7, 4)] {
            builder.push(id, block).unwrap();
        }
        let places = builder.finish();
        assert_eq!(places.held, [(5, 4), (7, 0), (7, 4), (9, 0), (9, 2)]);
        let mut blocks = Vec::new();
        places.find(7, &mut blocks).unwrap();
        assert_eq!(blocks, [0, 4]);
        places.find(8, &mut blocks).unwrap();
        assert!(blocks.is_empty());
    }

    #[test]
    fn what_is_in_memory_does_not_grow_with_the_table() {
        const MOST: usize = 1000;
        // Numbers without order, each a value in two places far apart.
        let id = |i: u32| i.wrapping_mul(0x9e37_79b1) >> 8;
        for count in [1_000, 10_000, 100_000] {
            let mut builder = Builder::with_most(MOST);
            for block in 0..2 * count {
                builder.push(id(block % count), block).unwrap();
            }
            let places = builder.finish();
            assert!(places.memory() <= MOST * ENTRY + 2 * count as usize * 4 / STEP + 8 * places.parts.len());
            let mut blocks = Vec::new();
            for block in (0..count).step_by(97) {
                places.find(id(block), &mut blocks).unwrap();
                assert!(blocks.contains(&block) && blocks.contains(&(block + count)), "{block} of {count}: {blocks:?}");
            }
            places.find(u32::MAX, &mut blocks).unwrap();
            assert!(blocks.is_empty());
        }
    }
}

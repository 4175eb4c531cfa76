//! Names of code that a program makes while it runs: from the file that it writes for perf (/tmp/perf-PID.map), and from the dump that it
//! maps to be found (jit-PID.dump). Both formats: tools/perf/Documentation/jit-interface.txt and jitdump-specification.txt of the kernel.
//!
//! Others may write these files, as /tmp belongs to all: only those of the process's own user, or of root, are read.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that are read at most.
const LARGEST: u64 = 1 << 30;
/// Of a name.
const LONGEST_NAME: usize = 4096;
const MAGIC: u32 = 0x4a69_5444;
const LOADED: u32 = 0;
const MOVED: u32 = 1;

/// A process that may make code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maker {
    /// Its number here.
    pub pid: u32,
    /// As its own PID namespace numbers it.
    inner_pid: u32,
    uid: Option<u32>,
    /// Of its maps and dumps, while it lives.
    root: PathBuf,
}

impl Maker {
    /// A process that still lives, or has just ended.
    pub fn of(pid: u32) -> Maker {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let inner =
            status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last()?.parse().ok());
        let uid = std::fs::metadata(format!("/proc/{pid}")).ok().map(|about| about.uid());
        let root = std::fs::read_link(format!("/proc/{pid}/root")).unwrap_or_else(|_| "/".into());
        Maker { pid, inner_pid: inner.unwrap_or(pid), uid, root }
    }

    /// The functions it has made, as far as it told: those of the dumps that it mapped, and of its map for perf.
    pub fn functions(&self, dumps: &[PathBuf]) -> Made {
        let mut made = Made::default();
        let name = format!("tmp/perf-{}.map", self.inner_pid);
        let places = [PathBuf::from(format!("/proc/{}/root", self.pid)).join(&name), self.root.join(&name)];
        if let Some(file) = places.iter().find_map(|path| self.open(path)) {
            made.read_map(BufReader::new(file.take(LARGEST)));
        }
        for dump in dumps.iter().filter_map(|path| self.open(path)) {
            made.read_dump(BufReader::new(dump.take(LARGEST)));
        }
        made
    }

    fn open(&self, path: &Path) -> Option<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        let about = file.metadata().ok()?;
        (about.is_file() && (about.uid() == 0 || Some(about.uid()) == self.uid)).then_some(file)
    }
}

/// Whether a file is such a dump, by its name.
pub fn is_dump(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let number = name.strip_prefix("jit-").and_then(|rest| rest.strip_suffix(".dump"));
    number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

/// Functions by where they begin: end, name. What was made later takes the place of what was there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Made(BTreeMap<u64, (u64, String)>);

impl Made {
    /// The function that an address is in.
    pub fn name(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(name.as_str())
    }

    fn put(&mut self, start: u64, size: u64, name: &str) {
        let end = start.saturating_add(size);
        if size == 0 || name.is_empty() {
            return;
        }
        while let Some((&before, _)) = self.0.range(..end).next_back().filter(|(_, (its_end, _))| *its_end > start) {
            self.0.remove(&before);
        }
        self.0.insert(start, (end, name.to_owned()));
    }

    /// Lines: begin and size in hexadecimal, name.
    fn read_map(&mut self, mut file: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match file.by_ref().take(LONGEST_NAME as u64).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            let mut fields = text.trim_end().splitn(3, ' ');
            let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            let (Some(start), Some(size)) = (fields.next().and_then(number), fields.next().and_then(number)) else {
                continue;
            };
            self.put(start, size, fields.next().unwrap_or_default().trim());
        }
    }

    /// A head, then records with their size; those of other kinds than these two are passed over. None: it ends, or is damaged.
    fn read_dump(&mut self, mut file: impl BufRead) -> Option<()> {
        let head: [u8; 16] = bytes(&mut file)?;
        let half = |from: &[u8], at: usize| Some(u32::from_le_bytes(*from.get(at..)?.first_chunk()?));
        if half(&head, 0)? != MAGIC {
            return None;
        }
        skip(&mut file, u64::from(half(&head, 8)?).checked_sub(16)?)?;
        loop {
            let record: [u8; 16] = bytes(&mut file)?;
            let (kind, size) = (half(&record, 0)?, u64::from(half(&record, 4)?).checked_sub(16)?);
            let mut rest = file.by_ref().take(size);
            let word = |from: &[u8; 40], at: usize| Some(u64::from_le_bytes(*from.get(at..)?.first_chunk()?));
            if kind == LOADED {
                let load: [u8; 40] = bytes(&mut rest)?; // pid, tid, vma, code_addr, code_size, code_index
                let mut name = Vec::new();
                rest.by_ref().take(LONGEST_NAME as u64).read_until(0, &mut name).ok()?;
                let name = String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(&name)).into_owned();
                self.put(word(&load, 16)?, word(&load, 24)?, &name);
            } else if kind == MOVED {
                let moved: [u8; 40] = bytes(&mut rest)?; // pid, tid, vma, old_code_addr, new_code_addr, code_size; index
                if let Some((_, name)) = self.0.remove(&word(&moved, 16)?) {
                    self.put(word(&moved, 24)?, word(&moved, 32)?, &name);
                }
            }
            let left = rest.limit();
            skip(&mut file, left)?;
        }
    }
}

fn bytes<const N: usize>(file: &mut impl Read) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn skip(file: &mut impl Read, size: u64) -> Option<()> {
    let skipped = std::io::copy(&mut file.take(size), &mut std::io::sink()).ok()?;
    (skipped == size).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(records: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut out: Vec<u8> = [MAGIC, 1, 40, 62, 0, 7].iter().flat_map(|v| v.to_le_bytes()).collect();
        out.extend([0; 16]);
        for (kind, body) in records {
            out.extend([*kind, body.len() as u32 + 16].iter().flat_map(|v| v.to_le_bytes()));
            out.extend(100u64.to_le_bytes());
            out.extend(body);
        }
        out
    }

    fn load(start: u64, size: u64, name: &str) -> (u32, Vec<u8>) {
        let mut body: Vec<u8> = [7u32, 7].iter().flat_map(|v| v.to_le_bytes()).collect();
        body.extend([start, start, size, 1].iter().flat_map(|v| v.to_le_bytes()));
        body.extend(name.as_bytes());
        body.push(0);
        body.extend(vec![0x90; size as usize]);
        (LOADED, body)
    }

    fn moved(from: u64, to: u64, size: u64) -> (u32, Vec<u8>) {
        let mut body: Vec<u8> = [7u32, 7].iter().flat_map(|v| v.to_le_bytes()).collect();
        body.extend([from, from, to, size, 1].iter().flat_map(|v| v.to_le_bytes()));
        (MOVED, body)
    }

    #[test]
    fn a_map_gives_each_address_its_function_and_the_last_one_wins() {
        let mut made = Made::default();
        made.read_map(&b"1000 20 py::a:/x y.py\n0x1020 10 b\nnonsense\n1010 8 c\n2000 0 empty\n\xff\n3000 8 d"[..]);
        let names = [0xfff, 0x1000, 0x1010, 0x1017, 0x1018, 0x1020, 0x2000, 0x3007].map(|at| made.name(at));
        assert_eq!(names, [None, None, Some("c"), Some("c"), None, Some("b"), None, Some("d")]);
    }

    #[test]
    fn a_dump_has_what_was_loaded_and_moved() {
        let records = [load(0x1000, 0x20, "one"), (3, vec![1; 9]), load(0x2000, 8, "two"), moved(0x1000, 0x5000, 0x20)];
        let mut made = Made::default();
        made.read_dump(&dump(&records)[..]);
        let names = [0x1000, 0x2007, 0x5000, 0x501f, 0x5020].map(|at| made.name(at));
        assert_eq!(names, [None, Some("two"), Some("one"), Some("one"), None]);
    }

    #[test]
    fn damaged_dumps_end_where_they_are_damaged() {
        let whole = dump(&[load(0x1000, 0x20, "one"), moved(0x1000, 0x5000, 0x20)]);
        for len in 0..whole.len() {
            let mut made = Made::default();
            assert_eq!(made.read_dump(&whole[..len]), None);
            for flipped in [0xff, 0] {
                let mut other = whole.clone();
                other[len] = flipped;
                Made::default().read_dump(&other[..]);
            }
        }
    }

    #[test]
    fn dumps_are_known_by_their_names() {
        let known = ["/tmp/jit-7.dump", "/root/.debug/jit/x/jit-4711.dump", "/tmp/jit-x.dump", "/tmp/jit-7.dump.so"];
        assert_eq!(known.map(is_dump), [true, true, false, false]);
    }

    #[test]
    fn a_map_that_another_user_wrote_is_not_read() {
        let folder = std::env::temp_dir().join(format!("leadline-jit-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("tmp")).expect("a folder");
        std::fs::write(folder.join("tmp/perf-99999999.map"), "1000 20 a\n").expect("a file");
        let owner = std::fs::metadata(&folder).expect("there").uid();
        let maker = |uid| Maker { pid: 99_999_999, inner_pid: 99_999_999, uid, root: folder.clone() };
        assert_eq!(maker(Some(owner)).functions(&[]).name(0x1000), Some("a"));
        let other = maker(Some(owner + 1)).functions(&[]);
        assert_eq!(other.name(0x1000), (owner == 0).then_some("a"), "what root has written is read for all");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}

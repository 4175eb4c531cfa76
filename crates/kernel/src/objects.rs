//! The files that processes map: their unwind tables, read once, and who they are.

use std::collections::HashMap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use object::elf::PF_X;
use object::read::{ObjectSection as _, ReadCache};
use object::{Object as _, ObjectSegment as _, SegmentFlags};

use crate::jit::{is_dump, Maker};
use crate::sideband::Mapped;
use crate::starts::Starts;

/// What an offset has within its page.
const PAGE: u64 = 4095;

/// Bytes of a section, shared by all processes that map the file.
#[derive(Debug, Clone, Default)]
pub struct Bytes(Arc<[u8]>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A file that was mapped.
#[derive(Debug)]
pub struct MappedFile {
    /// Number in the capture, from 1.
    pub id: i32,
    /// Path in the view of the process that mapped it first.
    pub path: String,
    /// GNU build id, in hexadecimal; empty when it has none or could not be read.
    pub build_id: String,
    /// Where it could be read; None when it could not.
    pub found: Option<PathBuf>,
    /// File offsets and address of each executable segment, from the page on in which it begins, as it is mapped.
    segments: Vec<(Range<u64>, u64)>,
    sections: Sections,
    /// It is no file, but what this process has made while it ran.
    pub maker: Option<Maker>,
}

/// Unwind tables with the addresses that the file gives them.
#[derive(Debug, Default)]
struct Sections {
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
    eh_frame: Option<(Range<u64>, Bytes)>,
    eh_frame_hdr: Option<(Range<u64>, Bytes)>,
    debug_frame: Option<Bytes>,
}

impl MappedFile {
    /// The address, as the file numbers them, of a byte of the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let (file, address) = self.segments.iter().find(|(file, _)| file.contains(&offset))?;
        Some(address.wrapping_add(offset - file.start))
    }

    /// Where its functions begin.
    pub fn starts(&self) -> Starts {
        self.sections.eh_frame.as_ref().map_or_else(Starts::default, |(at, bytes)| Starts::read(at.start, bytes))
    }

    /// What the unwinder needs.
    pub fn unwind_info(&self) -> ExplicitModuleSectionInfo<Bytes> {
        let s = &self.sections;
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: s.text.clone(),
            got_svma: s.got.clone(),
            eh_frame_svma: s.eh_frame.as_ref().map(|(at, _)| at.clone()),
            eh_frame: s.eh_frame.as_ref().map(|(_, bytes)| bytes.clone()),
            eh_frame_hdr_svma: s.eh_frame_hdr.as_ref().map(|(at, _)| at.clone()),
            eh_frame_hdr: s.eh_frame_hdr.as_ref().map(|(_, bytes)| bytes.clone()),
            debug_frame: s.debug_frame.clone(),
            ..ExplicitModuleSectionInfo::default()
        }
    }
}

/// Device (major, minor) and inode, and the name: a file that has taken the number of a deleted one is another file.
type Identity = ((u32, u32, u64), String);

/// All files that were mapped so far.
#[derive(Debug, Default)]
pub struct Objects {
    by_file: HashMap<Identity, Arc<MappedFile>>,
    made: Vec<Arc<MappedFile>>,
    /// By process: what it has made, and the dumps that it mapped.
    makers: HashMap<u32, Arc<MappedFile>>,
    dumps: HashMap<u32, Vec<PathBuf>>,
    /// Files not yet written down.
    pub new: Vec<Arc<MappedFile>>,
}

impl Objects {
    /// The file of a mapping of process `pid`.
    pub fn of(&mut self, pid: u32, mapped: &Mapped) -> Arc<MappedFile> {
        let key = (mapped.file, mapped.path.clone());
        if let Some(known) = self.by_file.get(&key) {
            return known.clone();
        }
        let mut file = self.another(mapped.path.clone());
        if let Some((path, open)) = open(pid, mapped) {
            read(&open, &mut file);
            file.found = Some(path);
        }
        let file = Arc::new(file);
        if let Some(path) = file.found.as_ref().filter(|_| is_dump(&file.path)) {
            self.dumps.entry(pid).or_default().push(path.clone());
        }
        self.by_file.insert(key, file.clone());
        self.new.push(file.clone());
        file
    }

    /// What a process has made while it ran: code that is in no file.
    pub fn made_by(&mut self, pid: u32) -> Arc<MappedFile> {
        if let Some(known) = self.makers.get(&pid) {
            return known.clone();
        }
        let mut file = self.another(format!("[made by {pid}]"));
        file.maker = Some(Maker::of(pid));
        let file = Arc::new(file);
        self.makers.insert(pid, file.clone());
        self.made.push(file.clone());
        self.new.push(file.clone());
        file
    }

    /// The process has ended, or has another program: what it makes from now on is something else.
    pub fn forget(&mut self, pid: u32) {
        self.makers.remove(&pid);
    }

    /// The dumps of a process that tell what it has made.
    pub fn dumps(&self, pid: u32) -> &[PathBuf] {
        self.dumps.get(&pid).map_or(&[], Vec::as_slice)
    }

    fn another(&self, path: String) -> MappedFile {
        MappedFile {
            id: (self.by_file.len() + self.made.len()) as i32 + 1,
            path,
            build_id: String::new(),
            found: None,
            segments: Vec::new(),
            sections: Sections::default(),
            maker: None,
        }
    }

    /// Every file, and what processes have made.
    pub fn all(&self) -> impl Iterator<Item = &Arc<MappedFile>> {
        self.by_file.values().chain(&self.made)
    }
}

/// Opens the file itself, and not another one that has taken its name since.
fn open(pid: u32, mapped: &Mapped) -> Option<(PathBuf, File)> {
    let end = mapped.start + mapped.len;
    let places = [
        PathBuf::from(format!("/proc/{pid}/root{}", mapped.path)),
        PathBuf::from(&mapped.path),
        PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{end:x}", mapped.start)),
    ];
    places.into_iter().find_map(|path| {
        let open = File::open(&path).ok()?;
        let about = open.metadata().ok()?;
        (about.is_file() && about.ino() == mapped.file.2).then_some((lasting(path, &mapped.path), open))
    })
}

/// The path by which the file can be read again when the process is gone.
fn lasting(path: PathBuf, name: &str) -> PathBuf {
    let same = |a: &Path, b: &Path| -> Option<bool> {
        let (a, b) = (a.metadata().ok()?, b.metadata().ok()?);
        Some((a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    let plain = PathBuf::from(name);
    if same(&path, &plain) == Some(true) {
        plain
    } else {
        path
    }
}

/// Reads what is there; a file that is not ELF, or is damaged, has less.
fn read(open: &File, file: &mut MappedFile) {
    let cache = ReadCache::new(open);
    let Ok(elf) = object::File::parse(&cache) else { return };
    if let Ok(Some(id)) = elf.build_id() {
        file.build_id = id.iter().map(|b| format!("{b:02x}")).collect();
    }
    for segment in elf.segments() {
        let executable = matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
        if executable {
            let (offset, bytes) = segment.file_range();
            let end = offset.saturating_add(bytes);
            file.segments.push((offset & !PAGE..end, segment.address().wrapping_sub(offset & PAGE)));
        }
    }
    let range = |name: &str| {
        let section = elf.section_by_name(name)?;
        Some(section.address()..section.address().saturating_add(section.size()))
    };
    let bytes = |name: &str| {
        let data = elf.section_by_name(name)?.uncompressed_data().ok()?;
        (!data.is_empty()).then(|| Bytes(data.into_owned().into()))
    };
    let both = |name: &str| Some((range(name)?, bytes(name)?));
    file.sections = Sections {
        text: range(".text"),
        got: range(".got"),
        eh_frame: both(".eh_frame"),
        eh_frame_hdr: both(".eh_frame_hdr"),
        debug_frame: bytes(".debug_frame"),
    };
}

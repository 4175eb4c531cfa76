//! WAL on disk: which files belong to it, in which order, and what its first page says.

use std::fs;
use std::path::{Path, PathBuf};

use crate::archive::{files_in, find, folder_of};
use crate::kept::{Kept, KEPT};
use crate::page::{PageHeader, SegmentHeader, LONG, LONG_HEADER};
use crate::segment::SegmentFile;
use crate::timeline::history_name;
use crate::unpack::small_text;
use crate::version::{known, magic};
use leadline_datadir::{is_in_tar, is_log_block_size, Lsn};
use leadline_errors::{Error, Kind, Result};
use leadline_unpack::Packing;

/// One log: segments without a gap, of one server.
#[derive(Debug, Clone)]
pub struct Wal {
    /// The folder or file it was opened from.
    pub path: PathBuf,
    /// Major version of the server.
    pub major: u8,
    /// The server's own number (`pg_control_system()`).
    pub system_id: u64,
    /// Timeline of the last segment.
    pub timeline: u32,
    /// Bytes of a segment.
    pub segment_size: u64,
    /// Bytes of a page of the WAL.
    pub page_size: u64,
    /// The number of the first segment.
    first: u64,
    files: Vec<SegmentFile>,
    /// Segments looked at, of which those after it are there only to end the last record.
    wanted: usize,
    pub(crate) kept: Kept,
}

/// The records that are asked for: those that begin in `from..to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Records that begin before it are left out.
    pub from: Lsn,
    /// And those that begin here or later.
    pub to: Lsn,
}

impl Wal {
    /// Opens the log in a folder (segments, an archive, or a data directory), or one segment.
    ///
    /// `timeline`: the newest unless given. Segments before `from` and after `to` may be missing.
    pub fn open(path: &Path, timeline: Option<u32>, from: Option<Lsn>, to: Option<Lsn>) -> Result<Wal> {
        let about = fs::metadata(path).map_err(|e| Error::reading(path, "the WAL", &e))?;
        if !about.is_dir() {
            return Wal::open_file(path);
        }
        let below = path.join("pg_wal");
        if below.is_symlink() && !below.exists() {
            let to = fs::read_link(&below).unwrap_or_default();
            return Err(Error::new(Kind::NotFound, "pg_wal is a link that leads nowhere")
                .detail(format!("it leads to {}", to.display()))
                .hint("restore that folder, or give the folder that has the WAL")
                .at(below));
        }
        let folder = if below.is_dir() { below } else { path.to_owned() };
        let mut files = list(&folder)?;
        if files.is_empty() {
            is_in_tar(&folder).map_or(Ok(()), Err)?;
            return Err(Error::new(Kind::NotFound, "no WAL in this folder")
                .detail("no file is named like a WAL segment, such as 000000010000000000000001")
                .hint("give a data directory, its pg_wal, an archive folder or one segment")
                .at(folder.display().to_string()));
        }
        let newest = files.iter().map(|f| f.tli).max().unwrap_or(1);
        let timeline = timeline.unwrap_or(newest);
        if !files.iter().any(|f| f.tli == timeline) {
            return Err(Error::new(Kind::NotFound, format!("no WAL of timeline {timeline} in this folder"))
                .at(folder.display().to_string()));
        }
        let parents = history(&folder, timeline)?;
        files.retain(|f| f.tli == timeline || parents.as_ref().map_or(f.tli < timeline, |p| p.contains(&f.tli)));
        // The oldest file of the newest timeline: later ones may be there in advance, with nothing in them.
        let oldest = files.iter().filter(|f| f.tli == timeline).min_by_key(|f| f.path.clone());
        let (header, _) = first_page(oldest.unwrap_or(&files[0]))?;
        chain(path, files, header.seg_size.into(), from, to)
    }

    /// Opens these segments and no others: of one WAL, without a gap. `path`: where they are from, for people.
    pub fn of_segments(path: &Path, segments: &[PathBuf]) -> Result<Wal> {
        let files: Vec<SegmentFile> = segments.iter().filter_map(|path| SegmentFile::from_path(path)).collect();
        let Some(first) = files.first() else { return Err(not_a_segment(path)) };
        let (header, _) = first_page(first)?;
        chain(path, files, header.seg_size.into(), None, None)
    }

    fn open_file(path: &Path) -> Result<Wal> {
        let Some(file) = SegmentFile::from_path(path) else {
            return Err(not_a_segment(path));
        };
        let (header, _) = first_page(&file)?;
        let seg_size = u64::from(header.seg_size);
        let number = number_of(&file, seg_size)?;
        // The segments after it, as many as there are without a gap, hold the end of the last record.
        let mut after: Vec<(u64, SegmentFile)> = list(folder_of(path))
            .unwrap_or_default()
            .into_iter()
            .filter(|f| f.tli == file.tli)
            .filter_map(|f| Some((f.number(seg_size).filter(|n| *n > number)?, f)))
            .collect();
        after.sort_by_cached_key(|(n, f)| (*n, preference(f)));
        after.dedup_by_key(|(n, _)| *n);
        let whole = after.into_iter().zip(number + 1..).take_while(|((n, _), next)| n == next).map(|((_, f), _)| f);
        let files = std::iter::once(file.clone()).chain(whole).collect();
        let mut log = chain(path, files, seg_size, None, None)?;
        log.wanted = 1;
        Ok(log)
    }

    /// Keeps other parts of long records than [`KEPT`]: for tests, whose records are short.
    #[doc(hidden)]
    pub fn keeping(self, kept: Kept) -> Wal {
        Wal { kept, ..self }
    }

    /// Where the WAL begins and where its last segment ends.
    pub fn bounds(&self) -> Range {
        let end = self.first + self.wanted as u64;
        Range { from: Lsn(self.first * self.segment_size), to: Lsn(end * self.segment_size) }
    }

    /// Narrows a wish to what the WAL has. Asking for nothing of it is an error.
    pub fn range(&self, from: Option<Lsn>, to: Option<Lsn>) -> Result<Range> {
        let has = self.bounds();
        let range = Range { from: from.unwrap_or(has.from).max(has.from), to: to.unwrap_or(has.to).min(has.to) };
        if let (Some(from), Some(to)) = (from, to) {
            if from >= to {
                return Err(Error::new(Kind::Usage, format!("the WAL range from {from} to {to} is empty")));
            }
        }
        if range.from >= range.to || from.is_some_and(|f| f < has.from) {
            let (from, to) = (from.unwrap_or(has.from), to.unwrap_or(has.to));
            return Err(Error::new(Kind::NotFound, format!("the WAL from {from} to {to} is missing"))
                .detail(format!("these segments contain {} to {}", has.from, has.to))
                .at(self.path.display().to_string()));
        }
        Ok(range)
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.wanted
    }

    /// Size of the files in bytes, as stored.
    pub fn stored_bytes(&self) -> u64 {
        let sizes = self.files[..self.wanted].iter().map(|f| fs::metadata(&f.path).map_or(0, |m| m.len()));
        sizes.sum()
    }

    /// Whether every segment can be read from the middle.
    pub(crate) fn is_plain(&self) -> bool {
        self.files.iter().all(SegmentFile::is_plain)
    }

    /// The file that holds a position.
    pub(crate) fn file_at(&self, lsn: u64) -> Option<&SegmentFile> {
        let at = (lsn / self.segment_size).checked_sub(self.first)?;
        self.files.get(usize::try_from(at).ok()?)
    }

    /// File, offset and LSN for people.
    pub(crate) fn place(&self, lsn: u64) -> String {
        match self.file_at(lsn) {
            Some(file) => file.place(lsn % self.segment_size, Lsn(lsn)),
            None => format!("{}, LSN {}", self.path.display(), Lsn(lsn)),
        }
    }
}

/// Whole and plain files are read before others of the same segment.
fn preference(file: &SegmentFile) -> (bool, Packing, PathBuf) {
    (file.partial, file.named, file.path.clone())
}

/// Orders segments, takes the newest timeline of each, and stops where an abandoned timeline goes on alone.
fn chain(path: &Path, mut files: Vec<SegmentFile>, seg_size: u64, from: Option<Lsn>, to: Option<Lsn>) -> Result<Wal> {
    let mut numbered = Vec::with_capacity(files.len());
    for file in files.drain(..) {
        numbered.push((number_of(&file, seg_size)?, file));
    }
    numbered.sort_by_cached_key(|(number, file)| (*number, std::cmp::Reverse(file.tli), preference(file)));
    numbered.dedup_by_key(|(number, _)| *number);
    let wanted = from.map_or(0, |lsn| lsn.0 / seg_size);
    if numbered.iter().any(|(number, _)| *number >= wanted) {
        numbered.retain(|(number, _)| *number >= wanted);
    }
    let Some((first, tli)) = numbered.first().map(|(number, file)| (*number, file.tli)) else {
        return Err(Error::new(Kind::NotFound, "no WAL in this folder").at(path.display().to_string()));
    };
    let (mut timeline, mut chosen) = (tli, Vec::<SegmentFile>::new());
    let mut rest = numbered.into_iter();
    while let Some((number, file)) = rest.next() {
        if file.tli < timeline {
            break;
        }
        if number != first + chosen.len() as u64 {
            // Behind the end of the WAL there are segments in advance, with old log or nothing in them, and not all numbers of them.
            let behind = std::iter::once((number, file)).chain(rest.by_ref().filter(|(_, f)| f.tli >= timeline));
            let behind = behind.filter(|(number, _)| to.is_none_or(|to| number * seg_size < to.0));
            let Some((number, file)) = first_written(behind, seg_size)? else { break };
            let missing = Lsn((first + chosen.len() as u64) * seg_size);
            return Err(Error::new(Kind::NotFound, format!("the WAL has a gap at {missing}"))
                .detail(format!("next existing segment: {}", file.path.display()))
                .hint(format!("the WAL before {missing} can be read, and that from {} on", Lsn(number * seg_size)))
                .at(path.display().to_string()));
        }
        timeline = file.tli;
        chosen.push(file);
    }
    let head = &chosen[0];
    let (header, page) = first_page(head)?;
    if u64::from(header.seg_size) != seg_size || page.pageaddr != first * seg_size {
        return Err(Error::new(Kind::Invalid, "the contents of the segment do not match its name")
            .detail(format!("its first page has LSN {}, expected {}", Lsn(page.pageaddr), Lsn(first * seg_size)))
            .hint("the server may have recycled this segment without writing it yet")
            .at(head.place(0, Lsn(first * seg_size))));
    }
    Ok(Wal {
        path: path.to_owned(),
        major: magic(page.magic).and_then(|m| m.major).unwrap_or(0),
        system_id: header.sysid,
        timeline,
        segment_size: seg_size,
        page_size: header.xlog_blcksz.into(),
        first,
        wanted: chosen.len(),
        files: chosen,
        kept: KEPT,
    })
}

/// The first segment that is not one the server made in advance: its first page is that of its name, or damaged.
fn first_written(files: impl Iterator<Item = (u64, SegmentFile)>, seg_size: u64) -> Result<Option<(u64, SegmentFile)>> {
    for (number, file) in files {
        let mut head = [0; LONG];
        let have = match file.open() {
            Err(e) if e.kind == Kind::Gone => continue,
            opened => opened.and_then(|mut reader| reader.read_at(0, &mut head)),
        };
        // What cannot be read may be anything.
        let page = have.ok().and_then(|have| PageHeader::parse(&head[..have]));
        let is_in_advance = page.is_some_and(|page| {
            head.iter().all(|b| *b == 0) || magic(page.magic).is_some() && page.pageaddr < number * seg_size
        });
        if !is_in_advance {
            return Ok(Some((number, file)));
        }
    }
    Ok(None)
}

fn number_of(file: &SegmentFile, seg_size: u64) -> Result<u64> {
    file.number(seg_size).ok_or_else(|| {
        Error::new(Kind::Invalid, "the segment name does not match the segment size")
            .detail(format!("segments of {seg_size} bytes are numbered 0 to {:X}", 0x1_0000_0000 / seg_size - 1))
            .at(file.path.display().to_string())
    })
}

/// Files of a folder that are segments by their names.
fn list(folder: &Path) -> Result<Vec<SegmentFile>> {
    Ok(files_in(folder)?.iter().filter_map(|path| SegmentFile::from_path(path)).collect())
}

/// Timeline, number and path of the whole segments of an archive, in the order of their names.
///
/// # Errors
/// When a folder cannot be listed.
pub fn segments_in(folder: &Path, segment_size: u64) -> Result<Vec<(u32, u64, PathBuf)>> {
    let whole = list(folder)?.into_iter().filter(|file| !file.partial);
    let mut found: Vec<_> = whole.filter_map(|file| Some((file.tli, file.number(segment_size)?, file.path))).collect();
    found.sort();
    Ok(found)
}

/// The timelines a timeline came from, when its history file is there.
fn history(folder: &Path, timeline: u32) -> Result<Option<Vec<u32>>> {
    let Some(path) = find(folder, &history_name(timeline))? else { return Ok(None) };
    let text = small_text(&path)?;
    Ok(Some(text.lines().filter_map(|l| l.split_whitespace().next()?.parse().ok()).collect()))
}

/// Reads and checks the first page of a segment.
fn first_page(file: &SegmentFile) -> Result<(SegmentHeader, PageHeader)> {
    let mut head = [0; LONG];
    let have = file.open()?.read_at(0, &mut head)?;
    let place = format!("{} offset 0", file.path.display());
    let Some(page) = PageHeader::parse(&head[..have]) else {
        return Err(Error::new(Kind::Invalid, "the segment is truncated")
            .detail(format!("the header of its first page has {LONG} bytes, but the file has {have}"))
            .at(place));
    };
    if head.iter().all(|b| *b == 0) {
        return Err(Error::new(Kind::Invalid, "the segment contains only zeros")
            .detail("it was never written")
            .at(place));
    }
    let named = magic(page.magic);
    if named.and_then(|m| m.major).is_none() {
        let found = format!("the page has magic 0x{:04X}", page.magic);
        let detail = match named {
            Some(m) => format!("{found}, which is PostgreSQL {}; supported: {}", m.version, known()),
            None => format!("{found}; supported: {}", known()),
        };
        return Err(Error::new(Kind::Unsupported, "the WAL is not from a supported PostgreSQL version")
            .detail(detail)
            .at(place));
    }
    let header = SegmentHeader::parse(&head[..have])
        .map_err(|e| Error::new(Kind::Invalid, "the segment is truncated").detail(e.to_string()).at(place.clone()))?;
    let sizes_fit = header.seg_size.is_power_of_two()
        && (1 << 20..=1 << 30).contains(&header.seg_size)
        && is_log_block_size(header.xlog_blcksz);
    if page.info & LONG_HEADER == 0 || !sizes_fit {
        return Err(Error::new(Kind::Invalid, "the first page of the segment is damaged")
            .detail(format!(
                "xlp_info 0x{:04X}, xlp_seg_size {}, xlp_xlog_blcksz {}",
                page.info, header.seg_size, header.xlog_blcksz
            ))
            .at(place));
    }
    Ok((header, page))
}

fn not_a_segment(path: &Path) -> Error {
    if let Some(tar) = is_in_tar(path) {
        return tar;
    }
    Error::new(Kind::Invalid, "the file name is not that of a WAL segment")
        .detail("a segment name has 24 hexadecimal digits, optionally with .partial, .gz, .lz4 or .zst, such as 000000010000000000000001.gz")
        .hint("the name gives the position of the segment in the WAL: rename the file to its original name")
        .at(path.display().to_string())
}

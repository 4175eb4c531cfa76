//! The end of recovery: a shutdown checkpoint after the last record, and a control file that names it.
//!
//! The directory is then what a server leaves that was shut down in order: the next start finds nothing to redo and goes on. The control
//! file is written last, as one sector. Until then the old checkpoint stands, and the server's own recovery does all of it again.
//!
//! Source: `CreateCheckPoint`, `CreateOverwriteContrecordRecord` in `access/transam/xlog.c`; `access/xlog_internal.h`.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use leadline_errors::{Error, Kind, Result};
use leadline_wal::page::{
    PageHeader, SegmentHeader, FIRST_IS_CONTRECORD, FIRST_IS_OVERWRITE_CONTRECORD, LONG, LONG_HEADER, SHORT,
};
use leadline_wal::record::{field, EPOCH_US, HEADER};
use leadline_wal::rmgr::id;
use leadline_wal::rmgr::xlog::{CHECKPOINT_SHUTDOWN, OVERWRITE_CONTRECORD};
use leadline_wal::timeline::segment_name;
use leadline_wal::version::MAGICS;
use leadline_wal::{Lsn, Range, Reader, Wal};

use crate::files::cluster::{failed, read_page, sync_folder, Cluster};
use crate::files::control::{u32_at, u64_at, Checkpoint, ControlFile};

/// `XLR_BLOCK_ID_DATA_SHORT`.
const DATA_SHORT: u8 = 255;

/// Where the WAL ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// Where the next record goes.
    pub at: u64,
    /// Where the last record begins.
    pub last: u64,
    /// The record that begins at the end and is not whole, and the first page without its continuation.
    pub incomplete: Option<(u64, u64)>,
}

/// Pages at the end of WAL, changed in memory.
pub(crate) struct Tail<'a> {
    cluster: &'a Cluster,
    timeline: u32,
    system_id: u64,
    segment: u64,
    page: u64,
    magic: u16,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl<'a> Tail<'a> {
    pub(crate) fn new(cluster: &'a Cluster, log: &Wal) -> Tail<'a> {
        Tail {
            cluster,
            timeline: log.timeline,
            system_id: log.system_id,
            segment: log.segment_size,
            page: log.page_size,
            magic: MAGICS.iter().find(|m| m.major == Some(log.major)).map_or(0, |m| m.magic),
            pages: BTreeMap::new(),
        }
    }

    fn path(&self, at: u64) -> PathBuf {
        let name = segment_name(self.timeline, at / self.segment, self.segment);
        self.cluster.root.join("pg_wal").join(name)
    }

    fn header_size(&self, page: u64) -> u64 {
        let size = if page.is_multiple_of(self.segment) { LONG } else { SHORT };
        size as u64
    }

    /// The page as it is in the file, or as changed.
    fn load(&mut self, page: u64) -> Result<&mut Vec<u8>> {
        if !self.pages.contains_key(&page) {
            let mut bytes = vec![0; self.page as usize];
            let path = self.path(page);
            match std::fs::File::open(&path) {
                Ok(file) => read_page(&file, &path, page % self.segment, &mut bytes).map(|_| ())?,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::reading(&path, "the WAL", &e)),
            }
            self.pages.insert(page, bytes);
        }
        Ok(self.pages.entry(page).or_default())
    }

    /// A page with nothing but its header.
    fn begin_page(&mut self, page: u64, info: u16, rem_len: u32) {
        let is_long = page.is_multiple_of(self.segment);
        let info = info | if is_long { LONG_HEADER } else { 0 };
        let header = PageHeader { magic: self.magic, info, tli: self.timeline, pageaddr: page, rem_len };
        let mut bytes = header.to_bytes().to_vec();
        if is_long {
            let (seg_size, xlog_blcksz) = (self.segment as u32, self.page as u32);
            bytes.extend(SegmentHeader { sysid: self.system_id, seg_size, xlog_blcksz }.to_bytes());
        }
        bytes.resize(self.page as usize, 0);
        self.pages.insert(page, bytes);
    }

    /// Where the WAL ends, from where reading stopped. A record that began there and was never finished has its own rule.
    pub(crate) fn find_end(&mut self, stopped: u64, last: u64) -> Result<End> {
        let page = stopped - stopped % self.page;
        // A page with nothing on it yet.
        let at = if stopped == page + self.header_size(page) { page } else { stopped };
        let end = End { at, last, incomplete: None };
        if at.is_multiple_of(8) && at != page {
            let within = (at - page) as usize;
            let left = self.page as usize - within;
            let here = self.load(page)?.get(within..).unwrap_or_default().to_vec();
            let length = u32_at(&here, field::TOT_LEN) as usize;
            let is_header_sound = here.len() < HEADER
                || u64_at(&here, field::PREV) == last && leadline_wal::rmgr::is_valid(here[field::RMID]);
            if length >= HEADER && length > left && is_header_sound {
                let missing = self.missing_page(page, length - left)?;
                return Ok(End { incomplete: Some((at, missing)), at: missing, ..end });
            }
        }
        Ok(end)
    }

    /// The first page after `page` that does not continue a record of which so many bytes are missing there; the last page of the
    /// record when all of them do.
    fn missing_page(&mut self, mut page: u64, mut left: usize) -> Result<u64> {
        loop {
            page += self.page;
            let (magic, timeline) = (self.magic, self.timeline);
            let header = PageHeader::parse(self.load(page)?).unwrap_or_default();
            let continues = header.magic == magic
                && header.info & FIRST_IS_CONTRECORD != 0
                && header.tli <= timeline
                && header.pageaddr == page
                && header.rem_len as usize == left;
            let room = (self.page - self.header_size(page)) as usize;
            if !continues || left <= room {
                return Ok(page);
            }
            left -= room;
        }
    }

    /// Adds a record; gives where it begins and ends.
    fn append(&mut self, at: u64, prev: u64, info: u8, main: &[u8], first_page: u16) -> Result<(u64, u64)> {
        let mut at = at;
        if at.is_multiple_of(self.page) {
            self.begin_page(at, first_page, 0);
            at += self.header_size(at);
        }
        let start = at;
        let length = HEADER + 2 + main.len();
        let mut record = Vec::with_capacity(length);
        record.extend((length as u32).to_le_bytes());
        record.extend([0; 4]); // no transaction
        record.extend(prev.to_le_bytes());
        record.extend([info, id::XLOG, 0, 0]);
        let mut body = vec![DATA_SHORT, main.len() as u8];
        body.extend(main);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&body), &record);
        record.extend(crc.to_le_bytes());
        record.extend(body);
        let mut rest = &record[..];
        while !rest.is_empty() {
            if at.is_multiple_of(self.page) {
                self.begin_page(at, FIRST_IS_CONTRECORD, rest.len() as u32);
                at += self.header_size(at);
            }
            let (page, within) = (at - at % self.page, (at % self.page) as usize);
            let here = rest.len().min(self.page as usize - within);
            let bytes = self.load(page)?;
            bytes[within..within + here].copy_from_slice(&rest[..here]);
            // What older log has left behind the record.
            bytes[within + here..].fill(0);
            rest = &rest[here..];
            at += here as u64;
        }
        Ok((start, at.next_multiple_of(8)))
    }

    /// Writes the changed pages and makes them last.
    fn store(&self, from: u64) -> Result<()> {
        for (page, bytes) in self.pages.range(from - from % self.page..) {
            let path = self.path(*page);
            let is_new = !path.exists();
            let file = self.cluster.open_or_create(&path)?;
            let written = if is_new { file.set_len(self.segment) } else { Ok(()) };
            let written = written.and_then(|()| file.write_all_at(bytes, page % self.segment));
            written.and_then(|()| file.sync_all()).map_err(|e| failed("write", &path, &e))?;
        }
        sync_folder(&self.cluster.root.join("pg_wal"))
    }
}

/// Appends the checkpoint; gives it as it was written, with its place in `redo`.
pub(crate) fn append_checkpoint(tail: &mut Tail<'_>, end: &End, checkpoint: &Checkpoint) -> Result<Checkpoint> {
    let (mut at, mut last) = (end.at, end.last);
    if let Some((record, missing)) = end.incomplete {
        // Standbys may have the first part of the record: they are told that it was given up.
        let mut main = record.to_le_bytes().to_vec();
        main.extend((checkpoint.time * 1_000_000 - EPOCH_US).to_le_bytes());
        tail.pages.retain(|page, _| *page < missing);
        (last, at) = tail.append(missing, last, OVERWRITE_CONTRECORD, &main, FIRST_IS_OVERWRITE_CONTRECORD)?;
    }
    let begins = if at.is_multiple_of(tail.page) { at + tail.header_size(at) } else { at };
    let checkpoint = Checkpoint { redo: begins, oldest_active_xid: 0, ..*checkpoint };
    let major = tail.cluster.major;
    let (start, _) = tail.append(at, last, CHECKPOINT_SHUTDOWN, &checkpoint.to_bytes(major), 0)?;
    debug_assert_eq!(start, begins);
    tail.store(end.at)?;
    Ok(checkpoint)
}

/// Reads the appended record as the server will.
pub(crate) fn check_appended(cluster: &Cluster, timeline: u32, checkpoint: &Checkpoint) -> Result<()> {
    let at = Lsn(checkpoint.redo);
    let log = std::sync::Arc::new(Wal::open(&cluster.root, Some(timeline), Some(at), None)?);
    let mut reader = Reader::new(log, Range { from: at, to: Lsn(at.0 + 1) });
    let found = reader.next_record()?.map(|record| (record.start, Checkpoint::parse(record.main_data())));
    if found != Some((at, Checkpoint::parse(&checkpoint.to_bytes(cluster.major)))) {
        return Err(Error::new(Kind::Fault, "the checkpoint that was added to the WAL cannot be read")
            .hint("please report this as a bug; start the server: its own recovery still works")
            .at(format!("LSN {at}")));
    }
    Ok(())
}

/// Writes the control file, in place as the server does: what matters of it is in one sector.
pub(crate) fn store_control(control: &ControlFile) -> Result<()> {
    let path = &control.path;
    let file = std::fs::OpenOptions::new().write(true).open(path).map_err(|e| failed("open", path, &e))?;
    let written = file.write_all_at(&control.to_bytes(), 0).and_then(|()| file.sync_all());
    written.map_err(|e| failed("write", path, &e))
}

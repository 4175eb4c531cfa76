//! Records one after the other: pages checked, records put together over pages and segments, CRC and back link verified.
//!
//! WAL has no mark at its end. It ends where no valid record follows; when a valid page of the WAL follows all the same,
//! that is damage and an error. A record is held in memory while the reader stands on it, of a long one what [`crate::kept`] says;
//! nothing else grows.

mod again;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::assembled::Assembled;
use crate::crc::crc_of;
use crate::describe;
use crate::page::{
    PageHeader, SegmentHeader, ALL_FLAGS, FIRST_IS_CONTRECORD, FIRST_IS_OVERWRITE_CONTRECORD, LONG_HEADER,
};
use crate::pages::Pages;
use crate::record::{field, u32_at, u64_at, Parts, Piece, Record, Wrong, HEADER};
use crate::rmgr;
use crate::segment::{moved_on, SegmentReader};
use crate::wal::{Range, Wal};
use leadline_bytes::ReadBuffer;
use leadline_datadir::Lsn;

pub use again::Again;
use leadline_errors::{Error, Kind, Result};

/// Bytes read at once: enough to make a call cheap, few enough to stay in the cache of one core until their records are printed
/// (64 kB against 256 kB: bench/runs/2026-11-27-10).
const WINDOW: usize = 64 << 10;

/// How the reading ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ending {
    /// Where the WAL ends before the range does, and why no record follows; none when the range was read to its end.
    pub early: Option<(Lsn, String)>,
    /// Where the first record began, 0 when there was none.
    pub first: Lsn,
    /// Where it says the one before it began.
    pub before: Lsn,
    /// Where the last record began.
    pub last: Lsn,
}

/// Reads the records of WAL that begin in a range.
pub struct Reader {
    log: Arc<Wal>,
    range: Range,
    /// Where the next record begins, once `found`.
    next: u64,
    found: bool,
    ending: Ending,
    source: Option<(usize, SegmentReader)>,
    window: Window,
    /// Position of the window's first byte, and bytes that are valid in it.
    window_at: u64,
    window_len: usize,
    /// The page whose header was checked last; 1 for none.
    page: u64,
    header: PageHeader,
    tli: u32,
    assembled: Assembled,
    /// Of the record in `assembled`, when that is the front of a long one.
    pieces: Vec<Piece>,
    parts: Parts,
    /// Where the record is in the window: offset and length; none when it is in `assembled`.
    in_window: Option<(usize, usize)>,
    /// The last good record at the time when a place after it was read once more.
    looked_again: Option<Lsn>,
    /// The pages that were kept, once others were read.
    left: Option<Pages>,
    /// Where not even the first record is, look at few of the pages behind it: see [`Reader::of_chunk`].
    hasty: bool,
}

/// Bytes of the WAL, from `window_at` on.
enum Window {
    /// What is read next takes their place.
    Passing(ReadBuffer),
    /// What is read next is put behind them, as long as it is the next page.
    Kept(ReadBuffer),
}

impl Deref for Window {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Window::Passing(bytes) => bytes,
            Window::Kept(bytes) => bytes,
        }
    }
}

impl DerefMut for Window {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Window::Passing(bytes) => bytes,
            Window::Kept(bytes) => bytes,
        }
    }
}

/// What is wrong at the place where a record should be.
struct Broken {
    lsn: u64,
    /// The first page that only WAL which goes on has, when the record has pages of its own behind that of `lsn`.
    after: Option<u64>,
    what: String,
    detail: String,
}

/// Why there is no record.
enum Stop {
    Broken(Broken),
    /// The record was given up after a crash; a new one begins at this page.
    Overwritten(u64),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Error(e)
    }
}

impl Reader {
    /// A reader of the records that begin in the range.
    pub fn new(log: Arc<Wal>, range: Range) -> Reader {
        Reader {
            range,
            next: range.from.0,
            found: false,
            ending: Ending::default(),
            source: None,
            window: Window::Passing(ReadBuffer::default()),
            window_at: 1,
            window_len: 0,
            page: 1,
            header: PageHeader::default(),
            tli: 0,
            assembled: Assembled::default(),
            pieces: Vec::new(),
            parts: Parts::new(),
            in_window: None,
            looked_again: None,
            left: None,
            hasty: false,
            log,
        }
    }

    /// A reader of a part of WAL: it may lie behind the end, and many parts that looked at all their pages would read for nothing
    /// what older log has left. Who puts parts together looks once.
    pub(crate) fn of_chunk(log: Arc<Wal>, range: Range) -> Reader {
        Reader { hasty: true, ..Reader::new(log, range) }
    }

    /// The records it reads.
    pub fn range(&self) -> Range {
        self.range
    }

    /// Where the page begins that the first record can be on.
    pub fn first_page(&self) -> Lsn {
        Lsn(self.range.from.0 & !(self.log.page_size - 1))
    }

    /// Reads pages into this memory as long as they fit and follow each other, and keeps them there. To be called first.
    pub fn keep(&mut self, memory: ReadBuffer) {
        self.window = Window::Kept(memory);
        (self.window_at, self.window_len, self.page) = (self.first_page().0, 0, 1);
    }

    /// The pages that were kept.
    pub fn take_kept(&mut self) -> Option<Pages> {
        self.stop_keeping();
        self.left.take()
    }

    fn stop_keeping(&mut self) {
        if matches!(self.window, Window::Passing(_)) {
            return;
        }
        let window = std::mem::replace(&mut self.window, Window::Passing(ReadBuffer::default()));
        if let Window::Kept(bytes) = window {
            self.left = Some(Pages::new(&self.log, Lsn(self.window_at), bytes));
        }
        (self.window_at, self.window_len, self.page) = (1, 0, 1);
    }

    /// How far it has read, and where it met an end.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Where the next record will be looked for.
    pub fn position(&self) -> Lsn {
        Lsn(self.next)
    }

    /// The next record, none at the end.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for damage: what follows the place is a valid part of this WAL.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        Ok(if self.advance()? { Some(self.record()) } else { None })
    }

    /// Likewise, with its offset in the pages that are kept when all of it is there: see [`Reader::keep`].
    ///
    /// # Errors
    /// See [`Reader::next_record`].
    #[inline]
    pub fn next_kept(&mut self) -> Result<Option<(Record<'_>, Option<usize>)>> {
        if !self.advance()? {
            return Ok(None);
        }
        let is_kept = matches!(self.window, Window::Kept(_));
        Ok(Some((self.record(), is_kept.then(|| (self.ending.last.0 - self.window_at) as usize))))
    }

    /// The record the reader stands on.
    ///
    /// Made where it is used: to hand a whole record over through memory costs as much as to sum it up.
    #[inline(always)]
    pub(crate) fn record(&self) -> Record<'_> {
        let (bytes, length, pieces) = match self.in_window {
            Some((at, len)) => (&self.window[at..at + len], len, &[][..]),
            None => (&self.assembled.front[..], self.assembled.length, &self.pieces[..]),
        };
        self.parts.record(bytes, length, pieces, self.ending.last.0, self.next, self.log.major)
    }

    /// The WAL it reads.
    pub(crate) fn log(&self) -> &Arc<Wal> {
        &self.log
    }

    /// Goes on to the next record; false at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        loop {
            if self.ending.early.is_some() {
                return Ok(false);
            }
            match self.step() {
                Ok(None) => return Ok(false),
                Ok(Some((start, end))) if start < self.range.from.0 => self.next = end,
                Ok(Some((start, end))) => {
                    self.next = end;
                    if self.ending.first.0 == 0 {
                        (self.ending.first, self.ending.before) = (Lsn(start), self.record().prev);
                    }
                    return Ok(true);
                }
                Err(Stop::Overwritten(page)) => self.next = page,
                Err(Stop::Error(e)) => return Err(e),
                Err(Stop::Broken(broken)) => {
                    if let Some(file) = self.log.file_at(broken.lsn).filter(|file| file.is_gone()) {
                        return Err(moved_on(&file.path));
                    }
                    let page_of = broken.lsn & !(self.log.page_size - 1);
                    if self.goes_on(broken.after.unwrap_or(page_of + self.log.page_size))? {
                        // What goes on after it may be newer than what was read of this place: a server writes meanwhile.
                        if self.looked_again != Some(self.ending.last) {
                            self.looked_again = Some(self.ending.last);
                            self.forget();
                            continue;
                        }
                        return Err(Error::new(Kind::Invalid, format!("the WAL is damaged: {}", broken.what))
                            .detail(format!("{}; valid WAL continues after it", broken.detail))
                            .hint(format!(
                                "the WAL before {} can be read, and that from a later LSN on",
                                Lsn(broken.lsn)
                            ))
                            .at(self.log.place(broken.lsn)));
                    }
                    let reason = match broken.detail.is_empty() {
                        true => broken.what,
                        false => format!("{} ({})", broken.what, broken.detail),
                    };
                    self.ending.early = Some((Lsn(broken.lsn), reason));
                }
            }
        }
    }

    /// Puts the record at `next` together and checks it; gives where it begins and ends, none behind the range.
    #[inline]
    fn step(&mut self) -> std::result::Result<Option<(u64, u64)>, Stop> {
        if !self.found {
            self.find_first()?;
        }
        if self.next >= self.range.to.0 {
            return Ok(None);
        }
        let page = self.next & !(self.log.page_size - 1);
        if page != self.page {
            self.enter(page)?;
        }
        if self.next == page {
            if self.header.info & FIRST_IS_CONTRECORD != 0 {
                return Err(broken(page, "no record starts at the page", "the page continues another record".into()));
            }
            self.next += self.header.size() as u64;
        }
        let start = self.next;
        if start >= self.range.to.0 {
            return Ok(None);
        }
        let at = (start - self.window_at) as usize;
        let page_left = (page + self.log.page_size - start) as usize;
        // Records begin at multiples of 8, so the length is always on this page.
        let Some(length) = u32_at(&self.window[..self.window_len], at + field::TOT_LEN).map(|l| l as usize) else {
            return Err(broken(start, "the segment is truncated", String::new()));
        };
        if length < HEADER {
            let what = if length == 0 { "no record follows" } else { "the record length is invalid" };
            return Err(broken(start, what, format!("xl_tot_len is {length}, expected at least {HEADER}")));
        }
        if page_left >= HEADER {
            self.check_header(at, start)?;
        }
        let (end, switch) = if length <= page_left {
            let Some(bytes) = self.window[..self.window_len].get(at..at + length) else {
                return Err(broken(start, "the segment is truncated", format!("the record has {length} bytes")));
            };
            let computed = crc_of(bytes);
            if u32_at(bytes, field::CRC) != Some(computed) {
                return Err(self.wrong_crc(start, bytes, computed));
            }
            let parsed = self.parts.parse(bytes, self.log.major);
            parsed.map_err(|wrong| Stop::Error(wrong_record(&self.log, start, &wrong)))?;
            self.in_window = Some((at, length));
            ((start + length as u64 + 7) & !7, is_switch(bytes))
        } else {
            self.in_window = None;
            let end = self.assemble(start, length, page_left)?;
            self.check_assembled(start, end)?;
            (end, is_switch(&self.assembled.front))
        };
        self.ending.last = Lsn(start);
        if switch {
            let size = self.log.segment_size;
            return Ok(Some((start, end.div_ceil(size) * size)));
        }
        Ok(Some((start, end)))
    }

    /// The position of the first record at or after the start of the first page of the range.
    fn find_first(&mut self) -> std::result::Result<(), Stop> {
        let mut page = self.range.from.0 & !(self.log.page_size - 1);
        loop {
            self.enter(page)?;
            let rest = if self.header.info & FIRST_IS_CONTRECORD != 0 { self.header.rem_len as u64 } else { 0 };
            let begins = self.header.size() as u64 + rest;
            if begins < self.log.page_size {
                self.next = (page + begins + 7) & !7;
                self.found = true;
                return Ok(());
            }
            page += self.log.page_size;
            if page >= self.range.to.0 {
                (self.next, self.found) = (page, true);
                return Ok(());
            }
        }
    }

    /// Collects a record that goes on over pages; gives where the next one may begin.
    fn assemble(&mut self, start: u64, length: usize, page_left: usize) -> std::result::Result<u64, Stop> {
        let at = (start - self.window_at) as usize;
        let most = self.log.kept.front;
        self.assembled.clear();
        let first = self.window[..self.window_len].get(at..at + page_left);
        let first = first.ok_or_else(|| broken(start, "the segment is truncated", String::new()))?;
        self.assembled.add(first, most);
        let mut page = start & !(self.log.page_size - 1);
        let mut checked = page_left >= HEADER;
        loop {
            page += self.log.page_size;
            self.enter(page).map_err(|stop| match stop {
                Stop::Broken(b) => {
                    let detail = if b.detail.is_empty() { String::new() } else { format!(", {}", b.detail) };
                    let detail = format!("from LSN {} on: {}{detail}", Lsn(page), b.what);
                    broken_before(page, start, "the record is incomplete", detail)
                }
                other => other,
            })?;
            if self.header.info & FIRST_IS_OVERWRITE_CONTRECORD != 0 {
                return Err(Stop::Overwritten(page));
            }
            let rest = length - self.assembled.length;
            if self.header.info & FIRST_IS_CONTRECORD == 0 || self.header.rem_len as usize != rest {
                let detail =
                    format!("{rest} bytes are missing, but the page at LSN {} has {}", Lsn(page), self.header.rem_len);
                return Err(broken(start, "the record is incomplete", detail));
            }
            let head = self.header.size();
            let here = rest.min(self.log.page_size as usize - head);
            let at = (page - self.window_at) as usize + head;
            let part = self.window[..self.window_len].get(at..at + here);
            let after = page + self.log.page_size;
            let cut = || broken_before(after, start, "the record is incomplete", "the segment is truncated".into());
            let part = part.ok_or_else(cut)?;
            self.assembled.add(part, most);
            if !checked {
                // The header itself was cut by the end of a page: only now can it be looked at.
                let head = self.assembled.front.get(..HEADER).and_then(|h| h.try_into().ok());
                let head: &[u8; HEADER] =
                    head.ok_or_else(|| broken(start, "the record is incomplete", String::new()))?;
                self.check_header_bytes(head, start)?;
                checked = true;
            }
            if here == rest {
                return Ok((page + (head + here) as u64 + 7) & !7);
            }
        }
    }

    #[inline]
    fn check_header(&self, at: usize, start: u64) -> std::result::Result<(), Stop> {
        match self.window[..self.window_len].get(at..at + HEADER).and_then(|h| h.try_into().ok()) {
            Some(head) => self.check_header_bytes(head, start),
            None => Err(broken(start, "the segment is truncated", String::new())),
        }
    }

    #[inline]
    fn check_header_bytes(&self, h: &[u8; HEADER], start: u64) -> std::result::Result<(), Stop> {
        let prev = u64_at(h, field::PREV).unwrap_or(0);
        let last = self.ending.last.0;
        if if last != 0 { prev != last } else { prev >= start } {
            let wanted = if last != 0 { format!("expected {}", Lsn(last)) } else { "expected a lower LSN".into() };
            return Err(broken(start, "no valid record follows", format!("xl_prev is {}, {wanted}", Lsn(prev))));
        }
        let rmid = h[field::RMID];
        if !rmgr::is_valid(rmid) {
            return Err(broken(start, "no valid record follows", format!("xl_rmid is {rmid}")));
        }
        Ok(())
    }

    /// CRC and parts of a record that was put together; what is not kept of a long one goes.
    #[inline(never)]
    fn check_assembled(&mut self, start: u64, end: u64) -> std::result::Result<(), Stop> {
        let computed = self.assembled.crc();
        let Assembled { front, length, .. } = &self.assembled;
        if u32_at(front, field::CRC) != Some(computed) {
            return Err(self.wrong_crc(start, front, computed));
        }
        let parsed = self.parts.parse_front(front, *length, self.log.major);
        parsed.map_err(|wrong| Stop::Error(wrong_record(&self.log, start, &wrong)))?;
        self.pieces.clear();
        if *length - self.parts.main_at > self.log.kept.main {
            self.shorten(start, end)?;
        }
        Ok(())
    }

    /// Drops what is not kept of the main data, and reads those pieces once more that say what else there is.
    fn shorten(&mut self, start: u64, end: u64) -> Result<()> {
        let kept = self.log.kept;
        self.assembled.front.truncate(self.parts.main_at + kept.main);
        loop {
            let Assembled { front, length, .. } = &self.assembled;
            let record = self.parts.record(front, *length, &self.pieces, start, end, self.log.major);
            let Some(at) = describe::missing(&record) else { return Ok(()) };
            if self.pieces.last().is_some_and(|piece| piece.at >= at) {
                return Ok(()); // what is there is not what its counts say
            }
            let mut bytes = Vec::new();
            Again::of(&self.log, &record, at).read(kept.piece, &mut bytes)?;
            self.pieces.push(Piece { at, bytes });
        }
    }

    #[cold]
    fn wrong_crc(&self, start: u64, bytes: &[u8], computed: u32) -> Stop {
        let stored = u32_at(bytes, field::CRC).unwrap_or(0);
        let detail = format!("xl_crc is 0x{stored:08x}, computed 0x{computed:08x}");
        let after = self.page + self.log.page_size; // `page` is the record's last one
        broken_before(after, start, "the record has a wrong CRC", detail)
    }

    /// The bytes that the page of a position has of a record that was read before, of which `left` are still to come.
    pub(crate) fn part_of_record(&mut self, at: u64, left: usize) -> Result<&[u8]> {
        let page = at & !(self.log.page_size - 1);
        let changed = |why: String| {
            Error::new(Kind::Invalid, "the WAL changed while being read")
                .detail(format!("a long record was gone when it was read again: {why}"))
                .hint("a running server recycles its segments: read a copy or an archive")
        };
        if page != self.page {
            self.enter(page).map_err(|stop| match stop {
                Stop::Broken(b) => changed(b.what).at(self.log.place(page)),
                Stop::Overwritten(_) => changed("a new record starts there".to_owned()).at(self.log.place(page)),
                Stop::Error(e) => e,
            })?;
        }
        let begins = page + self.header.size() as u64;
        let goes_on = self.header.info & FIRST_IS_CONTRECORD != 0 && self.header.rem_len as usize == left;
        let to = (at - self.window_at + left as u64).min(page + self.log.page_size - self.window_at) as usize;
        let part = self.window[..self.window_len].get((at - self.window_at) as usize..to);
        match part {
            Some(part) if at > begins || goes_on => Ok(part),
            _ => Err(changed("another record continues there".to_owned()).at(self.log.place(at))),
        }
    }

    /// Reads and checks the header of a page.
    fn enter(&mut self, page: u64) -> std::result::Result<(), Stop> {
        self.load(page)?;
        let at = (page - self.window_at) as usize;
        let Some(header) = PageHeader::parse(&self.window[at..self.window_len]) else {
            return Err(broken(page, "the WAL ends", String::new()));
        };
        if let Err((what, detail)) = self.check_page(page, &header) {
            return Err(broken(page, what, detail));
        }
        if page.is_multiple_of(self.log.segment_size) {
            let sysid = SegmentHeader::parse(&self.window[at..self.window_len]).map_or(0, |h| h.sysid);
            if sysid != self.log.system_id {
                let detail = format!("xlp_sysid is {sysid}, expected {}", self.log.system_id);
                return Err(Stop::Error(
                    Error::new(Kind::Invalid, "a segment is from another server")
                        .detail(detail)
                        .hint("keep the WAL of each server in its own folder")
                        .at(self.log.place(page)),
                ));
            }
        }
        (self.page, self.header) = (page, header);
        self.tli = header.tli;
        Ok(())
    }

    /// What is wrong with the header of a page.
    fn check_page(&self, page: u64, header: &PageHeader) -> std::result::Result<(), (&'static str, String)> {
        let found = crate::version::magic(header.magic).and_then(|m| m.major);
        if found != Some(self.log.major) {
            let what =
                if header.magic == 0 { "the page was never written" } else { "the page does not belong to this WAL" };
            return Err((what, format!("xlp_magic 0x{:04X}", header.magic)));
        }
        if header.pageaddr != page {
            return Err(("the page contains older WAL", format!("xlp_pageaddr is {}", Lsn(header.pageaddr))));
        }
        let first = page.is_multiple_of(self.log.segment_size);
        if header.info & !ALL_FLAGS != 0 || first != (header.info & LONG_HEADER != 0) {
            return Err(("the page header is damaged", format!("xlp_info 0x{:04X}", header.info)));
        }
        if header.tli < self.tli || header.tli > self.log.timeline {
            let detail = format!("xlp_tli is {}, expected {} to {}", header.tli, self.tli, self.log.timeline);
            return Err(("the page is from another timeline", detail));
        }
        Ok(())
    }

    /// Makes the window hold this page, or as much of it as the file has.
    fn load(&mut self, page: u64) -> Result<()> {
        let end = self.window_at + self.window_len as u64;
        if page >= self.window_at && page + self.log.page_size <= end {
            return Ok(());
        }
        let room = self.window.len() - self.window_len;
        if page != end || (room as u64) < self.log.page_size {
            self.stop_keeping();
        }
        self.page = 1; // the page checked last may not be in the window any more
        let segment = (page / self.log.segment_size) as usize;
        if self.source.as_ref().is_none_or(|(open, _)| *open != segment) {
            let Some(file) = self.log.file_at(page) else {
                self.stop_keeping();
                (self.window_at, self.window_len) = (page, 0);
                return Ok(());
            };
            self.source = Some((segment, file.open()?));
        }
        let offset = page % self.log.segment_size;
        let mut wanted = (WINDOW as u64).min(self.log.segment_size - offset) as usize;
        let at = match &mut self.window {
            Window::Kept(_) => {
                wanted = wanted.min(room);
                self.window_len
            }
            Window::Passing(window) => {
                if window.is_empty() {
                    *window = ReadBuffer::new(WINDOW);
                }
                (self.window_at, self.window_len) = (page, 0);
                0
            }
        };
        let mut read = 0;
        if let Some((_, source)) = &mut self.source {
            read = source.read_at(offset, &mut self.window[at..at + wanted])?;
        }
        self.window_len = at + read;
        let file = self.log.file_at(page);
        if read < wanted && file.is_some_and(|f| !f.partial) {
            let size = offset + read as u64;
            return Err(Error::new(Kind::Invalid, "the segment is truncated")
                .detail(format!("it has {size} bytes, expected {}", self.log.segment_size))
                .hint("copy it again; a partly received segment must be named .partial")
                .at(self.log.place(page + read as u64)));
        }
        Ok(())
    }

    /// Reads from the files again what was read ahead.
    fn forget(&mut self) {
        self.stop_keeping();
        (self.window_at, self.window_len, self.page) = (1, 0, 1);
    }

    /// Whether this page or one behind it, in its segment or at the beginning of the next, is a valid one of this WAL.
    fn goes_on(&mut self, mut page: u64) -> Result<bool> {
        let next_segment = (page / self.log.segment_size + 1) * self.log.segment_size;
        let last = next_segment.min(self.log.bounds().to.0 - self.log.page_size);
        let hasty = self.hasty && self.ending.last.0 == 0;
        let step = if hasty { next_segment - page } else { self.log.page_size };
        while page <= last {
            self.load(page)?;
            let at = (page - self.window_at) as usize;
            let Some(header) = PageHeader::parse(self.window[..self.window_len].get(at..).unwrap_or_default()) else {
                return Ok(false);
            };
            if self.check_page(page, &header).is_ok() {
                return Ok(true);
            }
            page += step;
        }
        Ok(false)
    }
}

/// Whether the rest of the segment is empty after the record.
#[inline(always)]
fn is_switch(record: &[u8]) -> bool {
    record[field::RMID] == rmgr::id::XLOG && record[field::INFO] & rmgr::OPCODE_MASK == rmgr::XLOG_SWITCH
}

fn wrong_record(log: &Wal, start: u64, wrong: &Wrong) -> Error {
    let Wrong { what, at, wanted, found } = wrong;
    Error::new(Kind::Invalid, format!("a record has an invalid format: {what}"))
        .detail(format!("at byte {at} of the record: expected {wanted}, found {found}; its CRC is correct"))
        .hint("a modified server may write such records")
        .at(log.place(start))
}

fn broken(lsn: u64, what: impl Into<String>, detail: String) -> Stop {
    Stop::Broken(Broken { lsn, after: None, what: what.into(), detail })
}

fn broken_before(after: u64, lsn: u64, what: impl Into<String>, detail: String) -> Stop {
    Stop::Broken(Broken { lsn, after: Some(after), what: what.into(), detail })
}

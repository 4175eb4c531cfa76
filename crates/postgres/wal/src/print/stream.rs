//! WAL printed from its beginning to its end, a part at a time.

use std::sync::Arc;

use super::{Form, Head, Printer, Sent};
use crate::describe::{messages, outcome, Message};
use crate::filter::Filter;
use crate::kept::KEPT;
use crate::reader::{Again, Reader};
use crate::record::Record;
use crate::wal::{Range, Wal};
use leadline_errors::Result;

/// So much log at most between two looks at whether the user wants to stop.
const STRETCH: u64 = 8 << 20;
/// So much text at once: it is written from the processor's cache, and its memory is used again rather than asked for anew.
const LOT: usize = 128 << 10;

/// What is printed of WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Each record.
    Records,
    /// The records that send invalidation messages, with these.
    Invalidations,
}

/// Some rows, or none of a stretch in which nothing is wanted.
#[derive(Debug)]
pub struct Part {
    /// Records that were printed to their end.
    pub records: usize,
    /// The rows: lines, or objects with commas between them.
    pub text: String,
}

/// Those records of WAL that are wanted.
pub struct Stream {
    log: Arc<Wal>,
    filter: Filter,
    reader: Reader,
    printer: Printer,
    rest: Option<Rest>,
}

/// Messages of a record that has more of them than one row.
struct Rest {
    again: Again,
    head: Head,
    ended: Option<(u32, i64)>,
    before: usize,
    count: usize,
}

impl Stream {
    /// Nothing is read yet.
    pub fn new(log: &Arc<Wal>, range: Range, filter: Filter) -> Stream {
        let printer = Printer::new(Form::Text, log.major);
        Stream { log: log.clone(), filter, reader: Reader::new(log.clone(), range), printer, rest: None }
    }

    /// What has read the records so far.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The next rows, of at most `limit` records; none at the end.
    ///
    /// # Errors
    /// Those of [`Reader::next_record`], behind the rows of what there is before.
    pub fn next(&mut self, what: What, form: Form, limit: usize) -> Result<Option<Part>> {
        self.printer.form = form;
        self.printer.reserve(LOT + LOT / 8);
        let until = self.reader.position().0.saturating_add(STRETCH);
        let mut records = 0;
        while records < limit && self.reader.position().0 < until && self.printer.len() < LOT {
            if self.rest.is_some() {
                records += usize::from(self.print_rest()?);
                continue;
            }
            match self.reader.next_record() {
                Ok(Some(record)) if !self.filter.wants(&record) => {}
                Ok(Some(record)) if what == What::Records => {
                    self.printer.record(&record);
                    records += 1;
                }
                Ok(Some(record)) => {
                    self.rest = print_messages(&mut self.printer, &self.log, &record, &mut records);
                }
                // What there is comes first; the end, or what is wrong, is met again by the next call.
                Ok(None) | Err(_) if !self.printer.is_empty() => break,
                Ok(None) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        Ok(Some(Part { records, text: self.printer.take() }))
    }

    /// Prints the next messages of a record; whether those were the last.
    fn print_rest(&mut self) -> Result<bool> {
        let Some(mut rest) = self.rest.take() else { return Ok(false) };
        let (wanted, mut bytes) = ((rest.count - rest.before).min(KEPT.main / Message::SIZE), Vec::new());
        rest.again.read(wanted * Message::SIZE, &mut bytes)?;
        let messages = Message::all(&bytes);
        let Rest { head, ended, before, count, .. } = rest;
        self.printer.sent(&Sent { head, ended, messages: &messages, before, count });
        rest.before += wanted;
        let is_last = rest.before >= count;
        self.rest = (!is_last).then_some(rest);
        Ok(is_last)
    }
}

/// Prints the messages of a record, if it has any, and gives what is still to be printed of it.
fn print_messages(printer: &mut Printer, log: &Arc<Wal>, record: &Record<'_>, records: &mut usize) -> Option<Rest> {
    let sent = messages(record);
    if sent.is_empty() {
        return None;
    }
    let head = Head::of(record);
    let ended = outcome(record).map(|outcome| (outcome.xid, outcome.time));
    let (before, count) = (sent.known.len(), sent.known.len() + sent.left_out);
    printer.sent(&Sent { head, ended, messages: &sent.known, before: 0, count });
    if sent.left_out == 0 {
        *records += 1;
        return None;
    }
    Some(Rest { again: Again::of(log, record, sent.rest_at), head, ended, before, count })
}

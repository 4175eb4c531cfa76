//! `WalLog`: PostgreSQL's log on disk.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use leadline_wal::describe::{self, time_text, Message, Value};
use leadline_wal::export::export;
use leadline_wal::history::{history, Change};
use leadline_wal::kept::{List, KEPT};
use leadline_wal::stats::{stats, By, Key};
use leadline_wal::times::at_time;
use leadline_wal::version::image_info;
use leadline_wal::Again;
use leadline_wal::{image, rmgr, Block, Ending, Filter, Kind, Log, Lsn, Range, Reader, Record};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::error::Error;
use crate::table_writer::tables_dict;

/// A log on disk: the segments of a folder, or one of them, and the records of it that are wanted.
#[pyclass(frozen, module = "leadline._core.wal")]
pub(crate) struct WalLog {
    log: Arc<Log>,
    range: Range,
    /// The end that was asked for; the log may have less.
    end: Option<Lsn>,
    filter: Filter,
    reader: Mutex<Reader>,
    /// Messages that the last row of `invalidations` does not have: their bytes.
    more: Mutex<Option<(Again, usize)>>,
}

fn usage(message: String) -> Error {
    leadline_errors::Error::new(Kind::Usage, message).into()
}

fn lsn(text: Option<String>) -> Result<Option<Lsn>, Error> {
    let parse = |t: String| t.parse().map_err(|()| usage(format!("{t} is not an LSN, such as 16/B374D848")));
    text.map(parse).transpose()
}

fn rmid(name: &str) -> Result<u8, Error> {
    let known = || rmgr::RMGRS.iter().position(|r| r.eq_ignore_ascii_case(name)).map(|at| at as u8);
    let number = |text: &str| text.parse().ok().filter(|n| *n >= rmgr::CUSTOM);
    let custom = || name.to_ascii_lowercase().strip_prefix("custom").and_then(number);
    let unknown = || {
        let those = format!("known: {}, and custom128 to custom255 for extensions", rmgr::RMGRS.join(", "));
        usage(format!("no resource manager named {name}; {those}"))
    };
    known().or_else(custom).ok_or_else(unknown)
}

#[pymethods]
impl WalLog {
    #[new]
    #[allow(clippy::too_many_arguments)] // named in Python
    #[pyo3(signature = (path, *, timeline=None, start=None, end=None, spc=None, db=None, rel=None, fork=None, block=None, xid=None, rmgr=None, since=None, until=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        timeline: Option<u32>,
        start: Option<String>,
        end: Option<String>,
        spc: Option<u32>,
        db: Option<u32>,
        rel: Option<u32>,
        fork: Option<u8>,
        block: Option<u32>,
        xid: Option<u32>,
        rmgr: Option<String>,
        since: Option<i64>,
        until: Option<i64>,
    ) -> Result<WalLog, Error> {
        let rmid = rmgr.as_deref().map(rmid).transpose()?;
        let filter = Filter { xid, rmid, spc, db, rel, fork, block };
        let (start, end) = (lsn(start)?, lsn(end)?);
        py.detach(|| {
            let log = Arc::new(Log::open(&path, timeline, start, end)?);
            let mut range = log.range(start, end)?;
            // Unix microseconds: from the first record that tells such a time, to the first one of the other.
            let at = |time: Option<i64>, otherwise| time.map_or(Ok(otherwise), |time| at_time(&log, range, time));
            range = Range { from: at(since, range.from)?, to: at(until, range.to)? };
            let range = Range { to: range.to.max(range.from), ..range };
            let reader = Mutex::new(Reader::new(log.clone(), range));
            Ok(WalLog { log, range, end, filter, reader, more: Mutex::new(None) })
        })
    }

    /// What the log is.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        out.set_item("major", self.log.major)?;
        out.set_item("system_id", self.log.system_id.to_string())?;
        out.set_item("timeline", self.log.timeline)?;
        out.set_item("segment_size", self.log.segment_size)?;
        out.set_item("segments", self.log.segments())?;
        out.set_item("from_lsn", self.range.from.to_string())?;
        out.set_item("to_lsn", self.range.to.to_string())?;
        out.set_item("bytes", self.range.to.0 - self.range.from.0)?;
        Ok(out)
    }

    /// Where the log ended, as far as `records` or `invalidations` have read.
    fn ending<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let reader = self.lock();
        let (ending, all) = (reader.ending().clone(), reader.position() >= self.range.to);
        drop(reader);
        ending_dict(py, &if all { self.whole_ending(ending) } else { ending })
    }

    /// The next records, at most `limit` of them and at most a few megabytes of log; none at the end.
    fn records<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        self.collect(py, limit, |record| self.filter.wants(record), record_dict)
    }

    /// The next records that send invalidation messages, likewise.
    fn invalidations<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        let wants = |record: &Record<'_>| self.filter.wants(record) && !describe::messages(record).is_empty();
        self.collect(py, limit, wants, |py, record| {
            let messages = describe::messages(record);
            if messages.left_out > 0 {
                let bytes = messages.left_out * Message::SIZE;
                *self.more() = Some((Again::of(&self.log, record, messages.rest_at), bytes));
            }
            invalidation_dict(py, record, messages)
        })
    }

    /// The messages that follow those of the last row of `invalidations`, of a record too long for one row; None after the last.
    fn more_messages<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        py.check_signals()?;
        let mut more = self.more();
        let Some((again, left)) = more.as_mut() else { return Ok(None) };
        let (wanted, mut bytes) = ((*left).min(KEPT.main), Vec::new());
        let read = again.read(wanted, &mut bytes);
        *left -= wanted;
        if *left == 0 || read.is_err() {
            *more = None;
        }
        read.map_err(Error::from)?;
        message_list(py, &Message::all(&bytes)).map(Some)
    }

    /// The whole page of the image that a record has of a block, None when it has none.
    fn page_image<'py>(&self, py: Python<'py>, at: String, block_id: u8) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let from = lsn(Some(at))?.unwrap_or_default();
        let mut reader = Reader::new(self.log.clone(), Range { from, to: Lsn(from.0 + 1) });
        let page = py.detach(|| match reader.next_record()? {
            Some(record) => record.block(block_id).map_or(Ok(None), |block| image::page(&record, block)),
            None => Ok(None),
        });
        Ok(page.map_err(Error::from)?.map(|page| PyBytes::new(py, &page)))
    }

    /// Every change of the blocks that the filter names.
    fn history(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<History> {
        let mut look = Look { callback: progress, failed: None };
        let found = py.detach(|| history(&self.log, self.range, &self.filter, &mut |done| look.go_on(done)));
        let (changes, ending) = look.outcome(found)?;
        let changes = Mutex::new(changes.into_iter());
        Ok(History { major: self.log.major, changes, ending: self.whole_ending(ending) })
    }

    /// Sums over the records. `by`: type, rmgr, relation, database, hour.
    fn stats<'py>(
        &self,
        py: Python<'py>,
        by: &str,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let kind = match by {
            "type" => By::Type,
            "rmgr" => By::Rmgr,
            "relation" => By::Relation,
            "database" => By::Database,
            "hour" => By::Hour,
            _ => return Err(usage(format!("{by} is not one of: type, rmgr, relation, database, hour")).into()),
        };
        let mut look = Look { callback: progress, failed: None };
        let filtered = !self.filter.is_empty();
        let wants = |record: &Record<'_>| self.filter.wants(record);
        let found =
            py.detach(|| stats(&self.log, self.range, kind, threads, &wants, filtered, &mut |done| look.go_on(done)));
        let found = look.outcome(found)?;
        let rows = PyList::empty(py);
        for (key, sum) in &found.sums {
            let row = PyDict::new(py);
            self.put_key(&row, kind, key)?;
            row.set_item("records", sum.records)?;
            row.set_item("record_bytes", sum.record_bytes)?;
            row.set_item("fpi", sum.images)?;
            row.set_item("fpi_bytes", sum.fpi_bytes)?;
            row.set_item("superseded_fpi_bytes", sum.superseded_fpi_bytes)?;
            rows.append(row)?;
        }
        let out = PyDict::new(py);
        out.set_item("rows", rows)?;
        out.set_item("ending", ending_dict(py, &self.whole_ending(found.ending))?)?;
        out.set_item("pages_forgotten", found.pages_forgotten)?;
        Ok(out)
    }

    /// Writes the records into a capture folder as `wal_record_raw`, `wal_block_raw` and `wal_record_type`.
    fn export<'py>(
        &self,
        py: Python<'py>,
        capture_dir: PathBuf,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut look = Look { callback: progress, failed: None };
        let wants = |record: &Record<'_>| self.filter.wants(record);
        let keep: Option<&(dyn Fn(&Record<'_>) -> bool + Sync)> =
            if self.filter.is_empty() { None } else { Some(&wants) };
        let found =
            py.detach(|| export(&self.log, self.range, threads, &capture_dir, keep, &mut |done| look.go_on(done)));
        let found = look.outcome(found)?;
        let out = PyDict::new(py);
        out.set_item("tables", tables_dict(py, found.tables)?)?;
        out.set_item("ending", ending_dict(py, &self.whole_ending(found.ending))?)?;
        Ok(out)
    }
}

/// The changes of some blocks: how each ended is known only when all of the log was read, so they are all there. As dictionaries they
/// take many times the memory, and are made a few at a time.
#[pyclass(frozen, module = "leadline._core.wal")]
pub(crate) struct History {
    major: u8,
    changes: Mutex<std::vec::IntoIter<Change>>,
    ending: Ending,
}

#[pymethods]
impl History {
    fn ending<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ending_dict(py, &self.ending)
    }

    /// The next changes, at most `limit` of them; none at the end.
    fn changes<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        py.check_signals()?;
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = PyList::empty(py);
        for change in changes.by_ref().take(limit) {
            rows.append(change_dict(py, self.major, &change)?)?;
        }
        Ok((!rows.is_empty()).then_some(rows))
    }
}

impl WalLog {
    /// How it ended, when all of it was read: also before what was asked for, because there are no more segments.
    fn whole_ending(&self, mut ending: Ending) -> Ending {
        if ending.early.is_none() && self.end.is_some_and(|end| end > self.range.to) {
            ending.early = Some((self.range.to, "no further segment was given".to_owned()));
        }
        ending
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn more(&self) -> std::sync::MutexGuard<'_, Option<(Again, usize)>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records of the next stretch of the log, made into dictionaries; an empty list is not the end. None follows one that has more
    /// messages than its row, and few where there is much in each: a row takes many times the memory of what it says.
    fn collect<'py>(
        &self,
        py: Python<'py>,
        limit: usize,
        wants: impl Fn(&Record<'_>) -> bool,
        make: impl Fn(Python<'py>, &Record<'_>) -> PyResult<Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        /// So much log at most between two looks at whether the user wants to stop.
        const STRETCH: u64 = 8 << 20;
        py.check_signals()?;
        let rows = PyList::empty(py);
        let mut reader = self.lock();
        *self.more() = None;
        let until = reader.position().0.saturating_add(STRETCH);
        let mut said = 0;
        while rows.len() < limit && reader.position().0 < until && said < KEPT.main && self.more().is_none() {
            match reader.next_record() {
                Ok(Some(record)) if wants(&record) => {
                    said += record.main_data().len();
                    rows.append(make(py, &record)?)?;
                }
                Ok(Some(_)) => {}
                Ok(None) if rows.is_empty() => return Ok(None),
                Err(e) if rows.is_empty() => return Err(Error::from(e).into()),
                // What there is comes first; the end, or what is wrong, is met again by the next call.
                Ok(None) | Err(_) => break,
            }
        }
        Ok(Some(rows))
    }

    fn put_key(&self, row: &Bound<'_, PyDict>, by: By, key: &Key) -> PyResult<()> {
        let [a, b, c] = key.0.unwrap_or_default();
        let known = |n: u32| key.0.map(|_| n);
        match by {
            By::Type => {
                let (rmgr, record_type) = rmgr::type_names(self.log.major, a as u16);
                row.set_item("rmgr", rmgr)?;
                row.set_item("record_type", record_type)
            }
            By::Rmgr => row.set_item("rmgr", rmgr::rmgr_name(a as u8)),
            By::Relation => {
                row.set_item("spcnode", known(a))?;
                row.set_item("dbnode", known(b))?;
                row.set_item("relfilenode", known(c))
            }
            By::Database => row.set_item("dbnode", known(a)),
            By::Hour => row.set_item("hour", known(a).map(|h| time_text(i64::from(h) * 3_600_000_000))),
        }
    }
}

/// The caller's progress, and its wish to stop (Ctrl-C, or an error of its own).
struct Look {
    callback: Option<Py<PyAny>>,
    failed: Option<PyErr>,
}

impl Look {
    fn go_on(&mut self, done: u64) -> bool {
        let call = |py: Python<'_>| -> PyResult<()> {
            py.check_signals()?;
            self.callback.as_ref().map_or(Ok(()), |c| c.call1(py, (done,)).map(|_| ()))
        };
        if let Err(e) = Python::attach(call) {
            self.failed.get_or_insert(e);
        }
        self.failed.is_none()
    }

    fn outcome<T, E: Into<Error>>(self, found: Result<T, E>) -> PyResult<T> {
        match self.failed {
            Some(failed) => Err(failed),
            None => found.map_err(|e| e.into().into()),
        }
    }
}

fn ending_dict<'py>(py: Python<'py>, ending: &Ending) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let known = |lsn: Lsn| (lsn.0 != 0).then(|| lsn.to_string());
    out.set_item("first_lsn", known(ending.first))?;
    out.set_item("last_lsn", known(ending.last))?;
    out.set_item("end_lsn", ending.early.as_ref().map(|e| e.0.to_string()))?;
    out.set_item("why", ending.early.as_ref().map(|e| e.1.clone()))?;
    Ok(out)
}

fn block_dict<'py>(py: Python<'py>, b: &Block) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("block_id", b.id)?;
    out.set_item("spcnode", b.relation.spc)?;
    out.set_item("dbnode", b.relation.db)?;
    out.set_item("relfilenode", b.relation.rel)?;
    out.set_item("fork", ["main", "fsm", "vm", "init"].get(usize::from(b.fork)).copied())?;
    out.set_item("block", b.block)?;
    out.set_item("will_init", b.will_init)?;
    out.set_item("has_image", b.has_image)?;
    out.set_item("data_length", b.data_length)?;
    out.set_item("fpi_length", b.image_length)?;
    out.set_item("fpi_apply", b.image_info & image_info::APPLY != 0)?;
    let compression = match b.image_info & image_info::COMPRESSED {
        image_info::PGLZ => "pglz",
        image_info::LZ4 => "lz4",
        image_info::ZSTD => "zstd",
        _ => "",
    };
    out.set_item("fpi_compression", compression)?;
    out.set_item("hole_offset", b.hole_offset)?;
    out.set_item("hole_length", b.hole_length)?;
    Ok(out)
}

fn change_dict<'py>(py: Python<'py>, major: u8, change: &Change) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let (rmgr, record_type) = rmgr::type_names(major, change.type_id);
    out.set_item("lsn", change.lsn.to_string())?;
    out.set_item("end_lsn", change.end.to_string())?;
    out.set_item("xid", change.xid)?;
    out.set_item("rmgr", rmgr)?;
    out.set_item("record_type", record_type)?;
    out.set_item("block", change.block.map(|b| block_dict(py, &b)).transpose()?)?;
    out.set_item("description", fields_dict(py, &change.description)?)?;
    out.set_item("log_time", change.log_time.map(time_text))?;
    out.set_item("outcome", change.outcome.map(|o| o.0))?;
    out.set_item("outcome_time", change.outcome.map(|o| time_text(o.1)))?;
    Ok(out)
}

fn record_head<'py>(py: Python<'py>, r: &Record<'_>) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("lsn", r.start.to_string())?;
    out.set_item("end_lsn", r.end.to_string())?;
    out.set_item("prev_lsn", r.prev.to_string())?;
    out.set_item("xid", r.xid)?;
    out.set_item("rmgr", rmgr::rmgr_name(r.rmid))?;
    out.set_item("record_type", rmgr::record_type(r.major, r.rmid, r.info))?;
    Ok(out)
}

fn record_dict<'py>(py: Python<'py>, r: &Record<'_>) -> PyResult<Bound<'py, PyDict>> {
    let out = record_head(py, r)?;
    out.set_item("top_xid", r.top_xid)?;
    out.set_item("origin", r.origin)?;
    out.set_item("record_length", r.length())?;
    out.set_item("main_data_length", r.main_length())?;
    out.set_item("fpi_length", r.image_bytes())?;
    let blocks = r.blocks.iter().map(|b| block_dict(py, b)).collect::<PyResult<Vec<_>>>()?;
    out.set_item("blocks", blocks)?;
    out.set_item("description", fields_dict(py, &describe::describe(r))?)?;
    Ok(out)
}

fn invalidation_dict<'py>(py: Python<'py>, r: &Record<'_>, sent: List<Message>) -> PyResult<Bound<'py, PyDict>> {
    let out = record_head(py, r)?;
    let ended = describe::outcome(r);
    if let Some(ended) = &ended {
        out.set_item("xid", ended.xid)?;
    }
    out.set_item("time", ended.map(|o| time_text(o.time)))?;
    out.set_item("messages", message_list(py, &sent.known)?)?;
    out.set_item("message_count", sent.known.len() + sent.left_out)?;
    Ok(out)
}

fn message_list<'py>(py: Python<'py>, messages: &[Message]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for m in messages {
        let message = PyDict::new(py);
        message.set_item("kind", m.kind)?;
        message.set_item("db", m.db)?;
        message.set_item("object", m.object)?;
        list.append(message)?;
    }
    Ok(list)
}

fn fields_dict<'py>(py: Python<'py>, fields: &[(&'static str, Value)]) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, value) in fields {
        out.set_item(*name, python_value(py, value)?)?;
    }
    Ok(out)
}

fn python_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Int(n) => n.into_pyobject(py)?.into_any(),
        Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Value::Text(t) => t.into_pyobject(py)?.into_any(),
        Value::Fields(fields) => fields_dict(py, fields)?.into_any(),
        Value::List(values) => {
            let values = values.iter().map(|v| python_value(py, v)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, values)?.into_any()
        }
    })
}

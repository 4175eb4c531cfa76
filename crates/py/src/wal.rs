//! `WalLog`: PostgreSQL's log on disk.

use std::path::PathBuf;
use std::sync::Arc;

use leadline_wal::describe::time_text;
use leadline_wal::export::export;
use leadline_wal::history::{history, Change};
use leadline_wal::print::{Form, Part, Printer, Stream, What};
use leadline_wal::sampled::records_between;
use leadline_wal::stats::{stats, By, Key};
use leadline_wal::times::at_time;
use leadline_wal::{image, rmgr, Ending, Filter, Kind, Lsn, Range, Reader, Record, Wal};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::dict::joined;
use crate::error::Error;
use crate::table_writer::tables_dict;

/// A log on disk: the segments of a folder, or one of them, and the records of it that are wanted.
#[pyclass(frozen, module = "leadline._core.wal")]
pub(crate) struct WalLog {
    log: Arc<Wal>,
    range: Range,
    /// The end that was asked for; the log may have less.
    end: Option<Lsn>,
    filter: Filter,
    stream: Mutex<Stream>,
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
            let log = Arc::new(Wal::open(&path, timeline, start, end)?);
            let mut range = log.range(start, end)?;
            // Unix microseconds: from the first record that tells such a time, to the first one of the other.
            let at = |time: Option<i64>, otherwise| time.map_or(Ok(otherwise), |time| at_time(&log, range, time));
            range = Range { from: at(since, range.from)?, to: at(until, range.to)? };
            let range = Range { to: range.to.max(range.from), ..range };
            let stream = Mutex::new(Stream::new(&log, range, filter));
            Ok(WalLog { log, range, end, filter, stream })
        })
    }

    /// What the log is.
    fn describe(&self) -> Described {
        Described {
            major: self.log.major,
            system_id: self.log.system_id.to_string(),
            timeline: self.log.timeline,
            segment_size: self.log.segment_size,
            segments: self.log.segments(),
            from_lsn: self.range.from.to_string(),
            to_lsn: self.range.to.to_string(),
            bytes: self.range.to.0 - self.range.from.0,
        }
    }

    /// Where the log ended, as far as it was printed.
    fn ending(&self) -> Ended {
        let stream = self.stream.lock();
        let (ending, all) = (stream.reader().ending().clone(), stream.reader().position() >= self.range.to);
        drop(stream);
        Ended::of(&if all { self.whole_ending(ending) } else { ending })
    }

    /// The next records as they are printed, at most `limit` of them, and how many; none at the end.
    fn records<'py>(&self, py: Python<'py>, json: bool, limit: usize) -> PyResult<Option<Rows<'py>>> {
        self.print(py, What::Records, json, limit)
    }

    /// The next records that send invalidation messages, likewise. One with very many is printed in several rows.
    fn invalidations<'py>(&self, py: Python<'py>, json: bool, limit: usize) -> PyResult<Option<Rows<'py>>> {
        self.print(py, What::Invalidations, json, limit)
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
    ) -> PyResult<Sums<'py>> {
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
        let row = |(key, sum): &(Key, leadline_wal::stats::Sum)| {
            let key = self.key_dict(py, kind, key)?;
            let sum = Sum {
                records: sum.records,
                record_bytes: sum.record_bytes,
                fpi: sum.images,
                fpi_bytes: sum.fpi_bytes,
                superseded_fpi_bytes: sum.superseded_fpi_bytes,
            };
            joined(py, [key, sum.into_pyobject(py)?])
        };
        let rows = found.sums.iter().map(row).collect::<PyResult<_>>()?;
        let ending = Ended::of(&self.whole_ending(found.ending));
        Ok(Sums { rows, ending, pages_forgotten: found.pages_forgotten })
    }

    /// The records that a server was seen to replay. `places`: what was replayed before each, and where it ends.
    fn records_between<'py>(&self, py: Python<'py>, places: Vec<(u64, u64)>) -> PyResult<Bound<'py, PyDict>> {
        let mut go_on = || Python::attach(|py| py.check_signals().is_ok());
        let found = py.detach(|| records_between(&self.log, &places, &mut go_on)).map_err(Error::from)?;
        py.check_signals()?;
        let rows = PyList::empty(py);
        for r in &found.records {
            let (rmgr, record_type) = rmgr::type_names(self.log.major, rmgr::type_id(r.rmid, r.info));
            let of_block = r.block.map(|b| (b.relation.spc, b.relation.db, b.relation.rel, b.fork, b.block));
            rows.append((r.end.0, r.start.0, rmgr, record_type, r.length, r.image_bytes, r.blocks, of_block))?;
        }
        let out = PyDict::new(py);
        out.set_item("records", rows)?;
        out.set_item("wrong", found.wrong)?;
        out.set_item("gone", found.gone)?;
        Ok(out)
    }

    /// Writes the records into a capture folder as `wal_record_raw`, `wal_block_raw` and `wal_record_type`.
    fn export<'py>(
        &self,
        py: Python<'py>,
        capture_dir: PathBuf,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Exported<'py>> {
        let mut look = Look { callback: progress, failed: None };
        let wants = |record: &Record<'_>| self.filter.wants(record);
        let keep: Option<&(dyn Fn(&Record<'_>) -> bool + Sync)> =
            if self.filter.is_empty() { None } else { Some(&wants) };
        let found =
            py.detach(|| export(&self.log, self.range, threads, &capture_dir, keep, &mut |done| look.go_on(done)));
        let found = look.outcome(found)?;
        let tables = tables_dict(py, found.tables)?;
        Ok(Exported { tables, ending: Ended::of(&self.whole_ending(found.ending)) })
    }
}

/// The changes of some blocks: how each ended is known only when all of the log was read, so they are all there.
#[pyclass(frozen, module = "leadline._core.wal")]
pub(crate) struct History {
    major: u8,
    changes: Mutex<std::vec::IntoIter<Change>>,
    ending: Ending,
}

#[pymethods]
impl History {
    fn ending(&self) -> Ended {
        Ended::of(&self.ending)
    }

    /// The next changes as they are printed, at most `limit` of them, and how many; none at the end.
    fn changes<'py>(&self, py: Python<'py>, json: bool, limit: usize) -> PyResult<Option<Rows<'py>>> {
        /// Changes printed between two looks at whether the user wants to stop.
        const BATCH: usize = 10_000;
        py.check_signals()?;
        let mut changes = self.changes.lock();
        let mut printer = Printer::new(form(json), self.major);
        let mut count = 0;
        for change in changes.by_ref().take(limit.min(BATCH)) {
            printer.change(&change);
            count += 1;
        }
        Ok((count > 0).then(|| (count, PyBytes::new(py, printer.take().as_bytes()))))
    }
}

/// How many rows, and the rows.
type Rows<'py> = (usize, Bound<'py, PyBytes>);

fn form(json: bool) -> Form {
    if json {
        Form::Json
    } else {
        Form::Text
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

    fn print<'py>(&self, py: Python<'py>, what: What, json: bool, limit: usize) -> PyResult<Option<Rows<'py>>> {
        py.check_signals()?;
        let part = py.detach(|| self.stream.lock().next(what, form(json), limit)).map_err(Error::from)?;
        Ok(part.map(|Part { records, text }| (records, PyBytes::new(py, text.as_bytes()))))
    }

    /// What names a sum, by the columns that tables have.
    fn key_dict<'py>(&self, py: Python<'py>, by: By, key: &Key) -> PyResult<Bound<'py, PyDict>> {
        let [a, b, c] = key.0.unwrap_or_default();
        let known = |n: u32| key.0.map(|_| n);
        match by {
            By::Type => {
                let (rmgr, record_type) = rmgr::type_names(self.log.major, a as u16);
                ByType { rmgr, record_type }.into_pyobject(py)
            }
            By::Rmgr => ByRmgr { rmgr: rmgr::rmgr_name(a as u8) }.into_pyobject(py),
            By::Relation => ByRelation { spcnode: known(a), dbnode: known(b), relfilenode: known(c) }.into_pyobject(py),
            By::Database => ByDatabase { dbnode: known(a) }.into_pyobject(py),
            By::Hour => {
                let hour = known(a).map(|h| time_text(i64::from(h) * 3_600_000_000));
                ByHour { hour }.into_pyobject(py)
            }
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

/// What the WAL is.
#[derive(IntoPyObject)]
struct Described {
    major: u8,
    system_id: String,
    timeline: u32,
    segment_size: u64,
    segments: usize,
    from_lsn: String,
    to_lsn: String,
    bytes: u64,
}

/// Where it ended, and why.
#[derive(IntoPyObject)]
struct Ended {
    first_lsn: Option<String>,
    last_lsn: Option<String>,
    end_lsn: Option<String>,
    why: Option<String>,
}

impl Ended {
    fn of(ending: &Ending) -> Ended {
        let known = |lsn: Lsn| (lsn.0 != 0).then(|| lsn.to_string());
        Ended {
            first_lsn: known(ending.first),
            last_lsn: known(ending.last),
            end_lsn: ending.early.as_ref().map(|e| e.0.to_string()),
            why: ending.early.as_ref().map(|e| e.1.clone()),
        }
    }
}

#[derive(IntoPyObject)]
struct Exported<'py> {
    tables: Bound<'py, PyDict>,
    ending: Ended,
}

#[derive(IntoPyObject)]
struct Sums<'py> {
    rows: Vec<Bound<'py, PyDict>>,
    ending: Ended,
    pages_forgotten: u64,
}

#[derive(IntoPyObject)]
struct Sum {
    records: u64,
    record_bytes: u64,
    fpi: u64,
    fpi_bytes: u64,
    superseded_fpi_bytes: u64,
}

#[derive(IntoPyObject)]
struct ByType {
    rmgr: String,
    record_type: String,
}

#[derive(IntoPyObject)]
struct ByRmgr {
    rmgr: String,
}

#[derive(IntoPyObject)]
struct ByRelation {
    spcnode: Option<u32>,
    dbnode: Option<u32>,
    relfilenode: Option<u32>,
}

#[derive(IntoPyObject)]
struct ByDatabase {
    dbnode: Option<u32>,
}

#[derive(IntoPyObject)]
struct ByHour {
    hour: Option<String>,
}

//! Packets of files and interfaces by `leadline_wire`.

use crate::beat::Runner;
use crate::error::Error;
use crate::table_writer::tables_dict;
use leadline_capture::{spec, Value};
use leadline_clockwork::OpenTables;
use leadline_errors::{Error as Said, Kind};
use leadline_wire::analyser::{Analyser, Interval, Options};
use leadline_wire::file::Source;
use leadline_wire::filter::{Filter, Instruction, Program};
use leadline_wire::histogram::Histogram;
use leadline_wire::live::{Live, Sniffer as Work, Wanted};
use leadline_wire::packet::Link;
use leadline_wire::sizes::{Sizes, WAYS};
use leadline_wire::tables::{connection_row, CONNECTIONS};
use leadline_wire::Go;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// How often the ring is emptied.
const DRAINS_HZ: f64 = 50.0;

/// Link types as libpcap numbers them, and how packets of them begin.
const LINKS: [(u32, Link); 4] = [(1, Link::Ethernet), (113, Link::Cooked), (276, Link::Cooked2), (12, Link::Raw)];

/// An instruction of the packet filter: code, where to jump if so and if not, and its constant.
type Step = (u16, u8, u8, u32);
/// What an expression is for a link type: its program, or why it has none.
type Compiled = (u32, Vec<Step>, String);

fn program(steps: Vec<Step>) -> Result<Program, Error> {
    let all = steps.into_iter().map(|(code, jt, jf, k)| Instruction { code, jt, jf, k });
    Program::new(all.collect()).map_err(Error)
}

fn filter_of(compiled: Option<Vec<Compiled>>) -> Result<Option<Filter>, Error> {
    let Some(compiled) = compiled else { return Ok(None) };
    let mut all = Vec::new();
    for (number, steps, why) in compiled {
        let Some((_, link)) = LINKS.iter().find(|(known, _)| *known == number) else { continue };
        all.push((*link, if why.is_empty() { Ok(program(steps)?) } else { Err(why) }));
    }
    Ok(Some(Filter(all)))
}

fn interval_ns(interval_s: f64) -> i64 {
    (interval_s.clamp(0.001, 86_400.0) * 1e9) as i64
}

/// Follows the packets of a file.
#[pyfunction]
#[pyo3(signature = (path, *, ports, interval_s=1.0, capture_dir=None))]
pub(crate) fn read_file<'py>(
    py: Python<'py>,
    path: PathBuf,
    ports: Vec<u16>,
    interval_s: f64,
    capture_dir: Option<PathBuf>,
) -> PyResult<Bound<'py, PyDict>> {
    let file = File::open(&path).map_err(|e| Error(Said::reading(&path, "the packets", &e)))?;
    let source = Source { name: path.display().to_string(), file };
    let options = Options { ports, interval_ns: interval_ns(interval_s), ..Options::default() };
    read(py, vec![source], options, capture_dir, None)
}

/// Follows the packets of several files or pipes that are open.
#[pyfunction]
#[pyo3(signature = (sources, *, ports, hosts=vec![], interval_s=1.0, capture_dir=None, stop=None, listed=None, filter=None))]
#[allow(clippy::too_many_arguments)] // named in Python
pub(crate) fn read_files<'py>(
    py: Python<'py>,
    sources: Vec<(String, RawFd)>,
    ports: Vec<u16>,
    hosts: Vec<([u8; 16], u8)>,
    interval_s: f64,
    capture_dir: Option<PathBuf>,
    stop: Option<Py<PyAny>>,
    listed: Option<usize>,
    filter: Option<Vec<Compiled>>,
) -> PyResult<Bound<'py, PyDict>> {
    let own = |(name, fd): (String, RawFd)| {
        // SAFETY: only copied here; a descriptor that is not open makes an error.
        let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
        file.map(|file| Source { name, file: file.into() })
    };
    let sources = sources.into_iter().map(own).collect::<std::io::Result<Vec<_>>>()?;
    let (filter, interval_ns) = (filter_of(filter)?, interval_ns(interval_s));
    let options = Options { ports, hosts, filter, interval_ns, keep_rows: false, listed };
    read(py, sources, options, capture_dir, stop)
}

fn read<'py>(
    py: Python<'py>,
    sources: Vec<Source>,
    options: Options,
    capture_dir: Option<PathBuf>,
    stop: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut tables = capture_dir.as_deref().map(OpenTables::new);
    let mut go = |_| {
        Python::attach(|py| {
            let asked = py.check_signals().and_then(|()| match &stop {
                Some(stop) => stop.call0(py)?.extract::<bool>(py),
                None => Ok(false),
            });
            match asked {
                Ok(stop) => [Go::On, Go::ToTheEnd][usize::from(stop)],
                Err(e) => {
                    e.restore(py);
                    Go::Away
                }
            }
        })
    };
    let read = py.detach(|| leadline_wire::read_files(sources, options, tables.as_mut(), &mut go));
    let (analyser, file) = read.map_err(|e| PyErr::take(py).unwrap_or_else(|| Error(e).into()))?;
    let out = summary(py, &analyser)?;
    let told = PyDict::new(py);
    told.set_item("packets", file.packets)?;
    told.set_item("bytes", file.bytes)?;
    told.set_item("skipped_blocks", file.skipped_blocks)?;
    told.set_item("without_time", file.without_time)?;
    told.set_item("dropped", file.dropped)?;
    told.set_item("sorted", file.sorted)?;
    told.set_item("unknown_link", file.unknown_link)?;
    told.set_item("ended_early", file.ended_early)?;
    out.set_item("file", told)?;
    let written = tables.map(|tables| tables.stats()).unwrap_or_default();
    out.set_item("tables", tables_dict(py, written)?)?;
    Ok(out)
}

fn summary<'py>(py: Python<'py>, seen: &Analyser) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let counts = PyDict::new(py);
    let c = seen.counts;
    counts.set_item("packets", c.packets)?;
    counts.set_item("wire_bytes", c.wire_bytes)?;
    counts.set_item("tcp_packets", c.tcp_packets)?;
    counts.set_item("other_ports", c.other_ports)?;
    counts.set_item("other_hosts", c.other_hosts)?;
    counts.set_item("out_of_time", c.out_of_time)?;
    counts.set_item("not_tcp", c.not_tcp)?;
    counts.set_item("filtered", c.filtered)?;
    counts.set_item("fragments", c.fragments)?;
    counts.set_item("fragments_alone", c.fragments_alone)?;
    counts.set_item("joined", c.joined)?;
    counts.set_item("cut_headers", c.cut_headers)?;
    counts.set_item("bad_headers", c.bad_headers)?;
    counts.set_item("unknown_link", c.unknown_link)?;
    counts.set_item("copies", c.copies)?;
    counts.set_item("translated", c.translated)?;
    counts.set_item("connections", c.connections)?;
    counts.set_item("cut_segments", c.cut_segments)?;
    counts.set_item("cut_messages", c.cut_messages)?;
    counts.set_item("uncounted", c.uncounted)?;
    counts.set_item("evicted", c.evicted)?;
    counts.set_item("not_listed", c.not_listed)?;
    out.set_item("counts", counts)?;
    out.set_item("ts_from", seen.span.map(|(from, _)| from))?;
    out.set_item("ts_to", seen.span.map(|(_, to)| to))?;
    out.set_item("interval_ns", seen.interval_ns())?;
    out.set_item("sizes", ways(py, &seen.total)?)?;
    let intervals = seen.intervals.iter().map(|interval| interval_dict(py, interval));
    out.set_item("intervals", intervals.collect::<PyResult<Vec<_>>>()?)?;
    out.set_item("answer", times(py, &seen.answer)?)?;
    out.set_item("whole", times(py, &seen.whole)?)?;
    out.set_item("gap", times(py, &seen.gap)?)?;
    let columns = spec(CONNECTIONS).map_or(&[][..], |spec| spec.columns);
    let list = PyList::empty(py);
    out.set_item("servers", seen.servers.len())?;
    for connection in &seen.closed {
        let row = connection_row(connection);
        let dict = PyDict::new(py);
        for (column, value) in columns.iter().zip(row.row()) {
            match value {
                Value::Int(v) => dict.set_item(column.name, v)?,
                Value::Text(v) => dict.set_item(column.name, v)?,
                Value::Bool(v) => dict.set_item(column.name, v)?,
                _ => dict.set_item(column.name, py.None())?,
            }
        }
        list.append(dict)?;
    }
    out.set_item("connections", list)?;
    Ok(out)
}

fn interval_dict<'py>(py: Python<'py>, interval: &Interval) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("ts", interval.ts)?;
    dict.set_item("sizes", ways(py, &interval.ways)?)?;
    Ok(dict)
}

fn ways<'py>(py: Python<'py>, all: &[Sizes; 3]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let some = WAYS.iter().zip(all).filter(|(_, sizes)| sizes.packets > 0);
    some.map(|(way, sizes)| {
        let dict = PyDict::new(py);
        dict.set_item("direction", way)?;
        dict.set_item("packets", sizes.packets)?;
        dict.set_item("wire_bytes", sizes.wire_bytes)?;
        dict.set_item("payload_bytes", sizes.payload_bytes)?;
        dict.set_item("min_bytes", sizes.least)?;
        dict.set_item("max_bytes", sizes.most)?;
        dict.set_item("mean_bytes", sizes.mean())?;
        dict.set_item("stddev_bytes", sizes.deviation())?;
        Ok(dict)
    })
    .collect()
}

fn times<'py>(py: Python<'py>, times: &Histogram) -> PyResult<Option<Bound<'py, PyDict>>> {
    if times.total() == 0 {
        return Ok(None);
    }
    let dict = PyDict::new(py);
    dict.set_item("count", times.total())?;
    dict.set_item("mean_ns", times.sum() as f64 / times.total() as f64)?;
    for (name, share) in [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p999_ns", 0.999), ("p9999_ns", 0.9999)]
    {
        dict.set_item(name, times.quantile(share))?;
    }
    dict.set_item("max_ns", times.most())?;
    Ok(Some(dict))
}

/// Captures packets of an interface.
#[pyclass(module = "leadline._core.wire")]
pub(crate) struct Sniffer {
    runner: Runner,
    work: Option<Work>,
    live: Arc<Mutex<Live>>,
}

#[pymethods]
impl Sniffer {
    #[new]
    #[pyo3(signature = (capture_dir, interface, ports, *, hosts=vec![], interval_s=1.0, snaplen=262_144, ring_bytes=33_554_432, flush_interval_s=5.0, growing_segments=true, listed=None, filter=None))]
    #[allow(clippy::too_many_arguments)] // named in Python
    fn new(
        py: Python<'_>,
        capture_dir: Option<PathBuf>,
        interface: String,
        ports: Vec<u16>,
        hosts: Vec<([u8; 16], u8)>,
        interval_s: f64,
        snaplen: u32,
        ring_bytes: usize,
        flush_interval_s: f64,
        growing_segments: bool,
        listed: Option<usize>,
        filter: Option<Vec<Step>>,
    ) -> Result<Self, Error> {
        let (keep_rows, interval_ns) = (capture_dir.is_some(), interval_ns(interval_s));
        let options = Options { ports: ports.clone(), hosts, filter: None, interval_ns, keep_rows, listed };
        let filter = filter.map(program).transpose()?;
        let wanted = Wanted { interface, ports, filter, snaplen, ring_bytes };
        let work = py.detach(|| Work::open(&wanted, options))?;
        let live = work.live();
        let capture_dir = capture_dir.unwrap_or_default(); // nothing is written without one
        let runner = Runner { capture_dir, rate_hz: DRAINS_HZ, flush_interval_s, growing_segments, beat: None };
        Ok(Sniffer { runner, work: Some(work), live })
    }

    fn start(&mut self) -> Result<(), Error> {
        let Some(work) = self.work.take() else { return Err(Error::closed("the capture of packets")) };
        self.runner.start("leadline-wire", work)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = self.runner.status(py)?;
        let (packets, lost) = py.detach(|| {
            let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            (live.analyser.counts.packets, live.lost)
        });
        out.set_item("packets", packets)?;
        out.set_item("lost", lost)?;
        Ok(out)
    }

    fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = self.runner.stop(py)?;
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, loss) = (live.analyser.counts, PyDict::new(py));
        loss.set_item("packets", counts.packets)?;
        loss.set_item("packets_lost", live.lost)?;
        loss.set_item("packets_unreadable", live.unreadable)?;
        loss.set_item("packets_copied", counts.copies)?;
        loss.set_item("fragments_alone", counts.fragments_alone)?;
        loss.set_item("connections_given_up", counts.evicted)?;
        out.set_item("loss", loss)?;
        out.set_item("packets", counts.packets)?;
        out.set_item("lost", live.lost)?;
        Ok(out)
    }

    /// What was seen, as read_file gives it; after stop.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let live =
            self.live.lock().map_err(|_| Error(Said::new(Kind::Fault, "internal error: the capture panicked")))?;
        let out = summary(py, &live.analyser)?;
        out.set_item("lost", live.lost)?;
        Ok(out)
    }
}

//! Packets of files and interfaces by `leadline_wire`.

use crate::dict::joined;
use crate::error::Error;
use crate::probes::Runner;
use crate::table_writer::tables_dict;
use leadline_capture::{spec, Value};
use leadline_clockwork::OpenTables;
use leadline_errors::Error as Said;
use leadline_wire::analyser::{Analyser, Options};
use leadline_wire::durations::Durations;
use leadline_wire::file::Source;
use leadline_wire::filter::{Filter, Instruction, Program};
use leadline_wire::live::{Live, Sniffer as Work, Wanted};
use leadline_wire::packet::Link;
use leadline_wire::sizes::WAYS;
use leadline_wire::tables::{connection_row, CONNECTIONS};
use leadline_wire::Go;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use pyo3::IntoPyObjectExt;
use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

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
    let file = FileCounts {
        packets: file.packets,
        bytes: file.bytes,
        skipped_blocks: file.skipped_blocks,
        without_time: file.without_time,
        dropped: file.dropped,
        sorted: file.sorted,
        unknown_link: file.unknown_link,
        ended_early: file.ended_early,
    };
    let written = tables.map(|tables| tables.stats()).unwrap_or_default();
    let of_files = OfFiles { file, tables: tables_dict(py, written)? };
    joined(py, [Summary::of(py, &analyser)?.into_pyobject(py)?, of_files.into_pyobject(py)?])
}

/// What was in files beside packets.
#[derive(IntoPyObject)]
struct FileCounts {
    packets: u64,
    bytes: u64,
    skipped_blocks: u64,
    without_time: u64,
    dropped: u64,
    sorted: u64,
    unknown_link: Option<u32>,
    ended_early: Option<String>,
}

#[derive(IntoPyObject)]
struct OfFiles<'py> {
    file: FileCounts,
    tables: Bound<'py, PyDict>,
}

/// What was seen.
#[derive(IntoPyObject)]
struct Summary<'py> {
    counts: Counts,
    ts_from: Option<i64>,
    ts_to: Option<i64>,
    interval_ns: i64,
    sizes: Vec<Sizes>,
    intervals: Vec<Interval>,
    answer: Option<Times>,
    whole: Option<Times>,
    gap: Option<Times>,
    servers: usize,
    connections: Vec<Bound<'py, PyDict>>,
}

impl<'py> Summary<'py> {
    fn of(py: Python<'py>, seen: &Analyser) -> PyResult<Summary<'py>> {
        let columns = spec(CONNECTIONS).map_or(&[][..], |spec| spec.columns);
        let connection = |connection| {
            let row = connection_row(connection);
            let cell = |value: &Value<'_>| match value {
                Value::Int(v) => v.into_bound_py_any(py),
                Value::Text(v) => v.into_bound_py_any(py),
                Value::Bool(v) => v.into_bound_py_any(py),
                _ => Ok(py.None().into_bound(py)),
            };
            let cells = row.row().into_iter().map(|value| cell(&value)).collect::<PyResult<Vec<_>>>()?;
            columns.iter().map(|column| column.name).zip(cells).into_py_dict(py)
        };
        Ok(Summary {
            counts: Counts::of(&seen.counts),
            ts_from: seen.span.map(|(from, _)| from),
            ts_to: seen.span.map(|(_, to)| to),
            interval_ns: seen.interval_ns(),
            sizes: Sizes::of_ways(&seen.total),
            intervals: seen.intervals.iter().map(|i| Interval { ts: i.ts, sizes: Sizes::of_ways(&i.ways) }).collect(),
            answer: Times::of(&seen.answer),
            whole: Times::of(&seen.whole),
            gap: Times::of(&seen.gap),
            servers: seen.servers.len(),
            connections: seen.closed.iter().map(connection).collect::<PyResult<_>>()?,
        })
    }
}

#[derive(IntoPyObject)]
struct Counts {
    packets: u64,
    wire_bytes: u64,
    tcp_packets: u64,
    other_ports: u64,
    other_hosts: u64,
    out_of_time: u64,
    not_tcp: u64,
    filtered: u64,
    fragments: u64,
    fragments_alone: u64,
    joined: u64,
    cut_headers: u64,
    bad_headers: u64,
    unknown_link: u64,
    copies: u64,
    translated: u64,
    connections: u64,
    cut_segments: u64,
    cut_messages: u64,
    uncounted: u64,
    evicted: u64,
    not_listed: u64,
}

impl Counts {
    fn of(c: &leadline_wire::analyser::Counts) -> Counts {
        Counts {
            packets: c.packets,
            wire_bytes: c.wire_bytes,
            tcp_packets: c.tcp_packets,
            other_ports: c.other_ports,
            other_hosts: c.other_hosts,
            out_of_time: c.out_of_time,
            not_tcp: c.not_tcp,
            filtered: c.filtered,
            fragments: c.fragments,
            fragments_alone: c.fragments_alone,
            joined: c.joined,
            cut_headers: c.cut_headers,
            bad_headers: c.bad_headers,
            unknown_link: c.unknown_link,
            copies: c.copies,
            translated: c.translated,
            connections: c.connections,
            cut_segments: c.cut_segments,
            cut_messages: c.cut_messages,
            uncounted: c.uncounted,
            evicted: c.evicted,
            not_listed: c.not_listed,
        }
    }
}

#[derive(IntoPyObject)]
struct Interval {
    ts: i64,
    sizes: Vec<Sizes>,
}

/// Packets of one direction.
#[derive(IntoPyObject)]
struct Sizes {
    direction: &'static str,
    packets: u64,
    wire_bytes: u64,
    payload_bytes: u64,
    min_bytes: u32,
    max_bytes: u32,
    mean_bytes: Option<f64>,
    stddev_bytes: Option<f64>,
}

impl Sizes {
    /// Of the directions that have packets.
    fn of_ways(all: &[leadline_wire::sizes::Sizes; 3]) -> Vec<Sizes> {
        let some = WAYS.into_iter().zip(all).filter(|(_, sizes)| sizes.packets > 0);
        some.map(|(direction, sizes)| Sizes {
            direction,
            packets: sizes.packets,
            wire_bytes: sizes.wire_bytes,
            payload_bytes: sizes.payload_bytes,
            min_bytes: sizes.least,
            max_bytes: sizes.most,
            mean_bytes: sizes.mean(),
            stddev_bytes: sizes.deviation(),
        })
        .collect()
    }
}

#[derive(IntoPyObject)]
struct Times {
    count: u64,
    mean_ns: f64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    p9999_ns: u64,
    max_ns: u64,
}

impl Times {
    /// None of none.
    fn of(times: &Durations) -> Option<Times> {
        (times.total() > 0).then(|| Times {
            count: times.total(),
            mean_ns: times.sum() as f64 / times.total() as f64,
            p50_ns: times.quantile(0.5),
            p90_ns: times.quantile(0.9),
            p99_ns: times.quantile(0.99),
            p999_ns: times.quantile(0.999),
            p9999_ns: times.quantile(0.9999),
            max_ns: times.most(),
        })
    }
}

/// Captures packets of an interface.
#[pyclass(frozen, module = "leadline._core.wire")]
pub(crate) struct Sniffer {
    runner: Runner,
    work: Mutex<Option<Work>>,
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
        let runner =
            Runner { capture_dir, rate_hz: DRAINS_HZ, flush_interval_s, growing_segments, ticker: OnceLock::new() };
        Ok(Sniffer { runner, work: Mutex::new(Some(work)), live })
    }

    fn start(&self) -> Result<(), Error> {
        let Some(work) = self.work.lock().take() else { return Err(Error::closed("the capture of packets")) };
        self.runner.start("leadline-wire", work)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let caught = py.detach(|| Caught::of(&self.live.lock()));
        joined(py, [self.runner.status()?.into_pyobject(py)?, caught.into_pyobject(py)?])
    }

    fn stop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let live = self.live.clone();
        let end = self.runner.stop(py, |_| {
            let live = live.lock();
            let counts = live.analyser.counts;
            Loss {
                packets: counts.packets,
                packets_lost: live.lost,
                packets_unreadable: live.unreadable,
                packets_copied: counts.copies,
                fragments_alone: counts.fragments_alone,
                connections_given_up: counts.evicted,
            }
        })?;
        let caught = Caught::of(&self.live.lock());
        joined(py, [end, caught.into_pyobject(py)?])
    }

    /// What was seen, as read_file gives it; after stop.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.runner.check_for_panic()?;
        let live = self.live.lock();
        let lost = LiveLoss { lost: live.lost };
        joined(py, [Summary::of(py, &live.analyser)?.into_pyobject(py)?, lost.into_pyobject(py)?])
    }
}

#[derive(IntoPyObject)]
struct Caught {
    packets: u64,
    lost: u64,
}

impl Caught {
    fn of(live: &Live) -> Caught {
        Caught { packets: live.analyser.counts.packets, lost: live.lost }
    }
}

#[derive(IntoPyObject)]
struct Loss {
    packets: u64,
    packets_lost: u64,
    packets_unreadable: u64,
    packets_copied: u64,
    fragments_alone: u64,
    connections_given_up: u64,
}

#[derive(IntoPyObject)]
struct LiveLoss {
    lost: u64,
}

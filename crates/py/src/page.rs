//! `page_read` and `PageRun`: pages of files, one taken apart or all of them looked at.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leadline_datadir::read_control;
use leadline_page::postgres::{check, checksum, dissect_block, Header};
use leadline_page::{oracle, regions, Field, Part, Value, Wrong};
use leadline_pagescan::{Engine, Other, Passed, Problem, RelationFile, Run};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::dict::joined;
use crate::error::Error;

/// What a data directory's pg_control says of its pages: bytes of a block, and of a block of the log.
#[pyfunction]
pub(crate) fn block_sizes(data_dir: PathBuf) -> PyResult<(u32, u32)> {
    let (control, _) = read_control(&data_dir).map_err(Error::from)?;
    Ok((control.blcksz, control.xlog_blcksz))
}

/// One page of a file, taken apart.
#[pyfunction]
#[pyo3(signature = (path, block, block_size=None))]
pub(crate) fn page_read(py: Python<'_>, path: PathBuf, block: u32, block_size: Option<u32>) -> PyResult<PageRead<'_>> {
    if let Some(other) = Other::of(&path) {
        return other_read(py, &path, other, block, block_size);
    }
    let read = || -> Result<_, leadline_errors::Error> {
        let (about, file) = RelationFile::open(&path, block_size)?;
        let page = about.read_block(&file, block)?;
        let found = match about.engine {
            Engine::Postgres => postgres(&about, &page, block),
            Engine::Oracle => oracle_block(&page),
        };
        Ok((about, page, found))
    };
    let (about, page, found) = py.detach(read).map_err(Error::from)?;
    let TakenApart { parts, problems, regions } = TakenApart::of(py, &found.parts, &found.wrong, page.len())?;
    Ok(PageRead {
        path: about.path.display().to_string(),
        block,
        fork: about.fork.as_str(),
        fork_block: about.fork_block(block),
        block_size: about.layout.block_size,
        engine: if about.engine == Engine::Oracle { "oracle" } else { "postgres" },
        kind: found.kind,
        checksums: about.layout.checksums,
        computed_checksum: Some(found.checksum.into()),
        parts,
        problems,
        regions,
        raw: page,
    })
}

#[derive(IntoPyObject)]
pub(crate) struct PageRead<'py> {
    path: String,
    block: u32,
    fork: &'static str,
    fork_block: u32,
    block_size: u32,
    engine: &'static str,
    kind: String,
    checksums: Option<bool>,
    computed_checksum: Option<u32>,
    parts: Vec<PartDict<'py>>,
    problems: Vec<WrongDict>,
    regions: Vec<Tile>,
    raw: Vec<u8>,
}

/// A file that is none of a relation, in the same shape.
fn other_read<'py>(
    py: Python<'py>,
    path: &Path,
    other: Other,
    block: u32,
    block_size: Option<u32>,
) -> PyResult<PageRead<'py>> {
    let page = py.detach(|| other.read(path, block, block_size)).map_err(Error::from)?;
    let TakenApart { parts, problems, regions } = TakenApart::of(py, &page.parts, &page.wrong, page.raw.len())?;
    Ok(PageRead {
        path: path.display().to_string(),
        block,
        fork: "",
        fork_block: block,
        block_size: page.raw.len() as u32,
        engine: "postgres",
        kind: page.kind.to_owned(),
        checksums: Some(page.checksum.is_some()),
        computed_checksum: page.checksum,
        parts,
        problems,
        regions,
        raw: page.raw,
    })
}

/// Start, end, part and its number, field, and sort of bytes.
type Tile = (usize, usize, &'static str, Option<u32>, &'static str, &'static str);

/// What pages of all engines have in common: parts, problems and the regions that tile the page.
#[derive(IntoPyObject)]
pub(crate) struct TakenApart<'py> {
    parts: Vec<PartDict<'py>>,
    problems: Vec<WrongDict>,
    regions: Vec<Tile>,
}

impl<'py> TakenApart<'py> {
    pub(crate) fn of(py: Python<'py>, parts: &[Part], wrong: &[Wrong], len: usize) -> PyResult<TakenApart<'py>> {
        let tiles = regions(parts, len);
        let tiles = tiles.iter().map(|r| (r.start, r.end, r.part, r.number, r.field, r.kind.as_str()));
        Ok(TakenApart {
            parts: parts.iter().map(|part| PartDict::of(py, part)).collect::<PyResult<_>>()?,
            problems: wrong.iter().map(WrongDict::of).collect(),
            regions: tiles.collect(),
        })
    }
}

/// A page of either engine, taken apart.
struct Found {
    kind: String,
    parts: Vec<Part>,
    wrong: Vec<Wrong>,
    /// As it should be.
    checksum: u16,
}

fn postgres(about: &RelationFile, page: &[u8], block: u32) -> Found {
    let fork_block = about.fork_block(block);
    let mut found = dissect_block(page, about.fork, fork_block);
    let stored = Header::parse(page).map_or(0, |h| h.pd_checksum);
    if about.layout.checksums.unwrap_or(stored != 0) {
        let others = check(page, about.fork, Some(fork_block)).wrong;
        found.wrong.extend(others.into_iter().filter(|w| w.what == "pd_checksum"));
    }
    let checksum = checksum(page, fork_block);
    Found { kind: found.kind.as_str().into(), parts: found.parts, wrong: found.wrong, checksum }
}

fn oracle_block(page: &[u8]) -> Found {
    let found = oracle::dissect(page);
    let kind = if found.encrypted { format!("{}, encrypted", found.kind) } else { found.kind.into() };
    let stored = page.get(16..18).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
    Found { kind, parts: found.parts, wrong: found.wrong, checksum: oracle::xor(page) ^ stored }
}

#[derive(IntoPyObject)]
struct PartDict<'py> {
    part: &'static str,
    number: Option<u32>,
    offset: usize,
    length: usize,
    fields: Bound<'py, PyDict>,
}

impl<'py> PartDict<'py> {
    fn of(py: Python<'py>, part: &Part) -> PyResult<PartDict<'py>> {
        let fields = PyDict::new(py);
        for field in &part.fields {
            let (mut name, mut n) = (field.name.to_owned(), 2);
            while fields.contains(&name)? {
                name = format!("{} {n}", field.name); // such as the nodes of an SP-GiST tuple
                n += 1;
            }
            fields.set_item(name, field_dict(py, field)?)?;
        }
        let (offset, length) = (part.start, part.end - part.start);
        Ok(PartDict { part: part.name, number: part.number, offset, length, fields })
    }
}

#[derive(IntoPyObject)]
struct FieldDict {
    value: FieldValue,
    offset: usize,
    length: usize,
}

#[derive(IntoPyObject)]
enum FieldValue {
    Number(u64),
    Signed(i64),
    Real(f64),
    Truth(bool),
    Texts(Vec<String>),
    Numbers(Vec<u64>),
    Text(String),
}

/// Flags and words are there only of a field that has some.
fn field_dict<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyDict>> {
    let value = match &field.value {
        Value::Number(n) => FieldValue::Number(*n),
        Value::Signed(n) => FieldValue::Signed(*n),
        Value::Real(n) => FieldValue::Real(*n),
        Value::Truth(b) => FieldValue::Truth(*b),
        Value::Tids(tids) => FieldValue::Texts(tids.iter().map(ToString::to_string).collect()),
        Value::Numbers(numbers) => FieldValue::Numbers(numbers.clone()),
        value => FieldValue::Text(value.to_string()),
    };
    let out = FieldDict { value, offset: field.start, length: field.len }.into_pyobject(py)?;
    if !field.flags.is_empty() {
        out.set_item("flags", &field.flags)?;
    }
    if !field.words.is_empty() {
        out.set_item("words", &field.words)?;
    }
    Ok(out)
}

#[derive(IntoPyObject)]
struct WrongDict {
    class: &'static str,
    what: &'static str,
    item: Option<u32>,
    offset: usize,
    wanted: String,
    found: String,
    message: String,
}

impl WrongDict {
    fn of(wrong: &Wrong) -> WrongDict {
        let message = wrong.to_string();
        let Wrong { class, what, item, offset, wanted, found } = wrong.clone();
        WrongDict { class, what, item, offset, wanted, found, message }
    }
}

/// Where something is wrong.
#[derive(IntoPyObject)]
struct PageOf {
    path: String,
    block: u32,
    kind: &'static str,
}

fn problem_dict<'py>(py: Python<'py>, problem: &Problem) -> PyResult<Bound<'py, PyDict>> {
    let page = PageOf { path: problem.path.display().to_string(), block: problem.block, kind: problem.kind };
    joined(py, [WrongDict::of(&problem.wrong).into_pyobject(py)?, page.into_pyobject(py)?])
}

/// All pages of files and data directories, looked at by threads of its own.
#[pyclass(frozen, module = "leadline._core.pages")]
pub(crate) struct PageRun {
    /// None once it was finished. Locked only while the GIL is released.
    run: Mutex<Option<Run>>,
}

impl PageRun {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Run) -> T + Send) -> Result<T, Error> {
        py.detach(|| {
            let run = self.run.lock();
            run.as_ref().map(work).ok_or(Error::closed("the run over pages"))
        })
    }
}

#[pymethods]
impl PageRun {
    #[new]
    #[pyo3(signature = (paths, *, block_size=None, capture_dir=None, threads=0))]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        block_size: Option<u32>,
        capture_dir: Option<PathBuf>,
        threads: usize,
    ) -> PyResult<PageRun> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let start = || Run::start(&paths, block_size, capture_dir, threads);
        let run = py.detach(start).map_err(Error::from)?;
        Ok(PageRun { run: Mutex::new(Some(run)) })
    }

    fn status(&self, py: Python<'_>) -> Result<Status, Error> {
        let leadline_pagescan::Status { running, bytes, total_bytes, problems } = self.with(py, Run::status)?;
        Ok(Status { running, bytes, total_bytes, problems })
    }

    fn take<'py>(&self, py: Python<'py>, most: usize, wait_s: f64) -> PyResult<Option<Vec<Bound<'py, PyDict>>>> {
        let wait = Duration::try_from_secs_f64(wait_s).unwrap_or_default();
        let Some(problems) = self.with(py, |run| run.take(most, wait))? else { return Ok(None) };
        problems.iter().map(|p| problem_dict(py, p)).collect::<PyResult<_>>().map(Some)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.with(py, Run::stop)?)
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Finished<'py>> {
        let finished = py.detach(|| {
            let run = self.run.lock().take();
            run.map(Run::finish).ok_or(Error::closed("the run over pages"))
        })?;
        let summary = finished.map_err(Error::from)?;
        let not_checked = |(kind, Passed { files, first })| NotChecked { kind, files, first: shown(first) };
        Ok(Finished {
            files: summary.files,
            bytes: summary.bytes,
            pages: summary.pages,
            items: summary.items,
            checksums: summary.checksums,
            kinds: summary.kinds.into_py_dict(py)?,
            classes: summary.classes.into_py_dict(py)?,
            rows: summary.rows.into_py_dict(py)?,
            vanished: summary.vanished,
            shrunk: summary.shrunk,
            absent: summary.absent.into_iter().map(shown).collect(),
            not_checked: summary.passed.into_iter().map(not_checked).collect(),
            incremental: summary.incremental,
        })
    }
}

fn shown(path: PathBuf) -> String {
    path.display().to_string()
}

#[derive(IntoPyObject)]
struct Status {
    running: bool,
    bytes: u64,
    total_bytes: u64,
    problems: u64,
}

#[derive(IntoPyObject)]
struct Finished<'py> {
    files: u64,
    bytes: u64,
    pages: u64,
    items: u64,
    checksums: u64,
    kinds: Bound<'py, PyDict>,
    classes: Bound<'py, PyDict>,
    rows: Bound<'py, PyDict>,
    vanished: u64,
    shrunk: u64,
    absent: Vec<String>,
    not_checked: Vec<NotChecked>,
    incremental: u64,
}

#[derive(IntoPyObject)]
struct NotChecked {
    kind: &'static str,
    files: u64,
    first: String,
}

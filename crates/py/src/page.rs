//! `page_read` and `PageRun`: pages of files, one taken apart or all of them looked at.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leadline_datadir::read_control;
use leadline_page::postgres::{check, checksum, dissect_block, Header};
use leadline_page::{oracle, regions, Field, Part, Value, Wrong};
use leadline_pagescan::{Engine, Other, Passed, Problem, RelationFile, Run};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

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
pub(crate) fn page_read(
    py: Python<'_>,
    path: PathBuf,
    block: u32,
    block_size: Option<u32>,
) -> PyResult<Bound<'_, PyDict>> {
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
    let out = PyDict::new(py);
    out.set_item("path", about.path.display().to_string())?;
    out.set_item("block", block)?;
    out.set_item("fork", about.fork.as_str())?;
    out.set_item("fork_block", about.fork_block(block))?;
    out.set_item("block_size", about.layout.block_size)?;
    out.set_item("engine", if about.engine == Engine::Oracle { "oracle" } else { "postgres" })?;
    out.set_item("kind", found.kind)?;
    out.set_item("checksums", about.layout.checksums)?;
    out.set_item("computed_checksum", found.checksum)?;
    set_taken_apart(&out, &found.parts, &found.wrong, page.len())?;
    out.set_item("raw", PyBytes::new(py, &page))?;
    Ok(out)
}

/// A file that is none of a relation, in the same shape.
fn other_read<'py>(
    py: Python<'py>,
    path: &Path,
    other: Other,
    block: u32,
    block_size: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let page = py.detach(|| other.read(path, block, block_size)).map_err(Error::from)?;
    let out = PyDict::new(py);
    out.set_item("path", path.display().to_string())?;
    out.set_item("block", block)?;
    out.set_item("fork", "")?;
    out.set_item("fork_block", block)?;
    out.set_item("block_size", page.raw.len())?;
    out.set_item("engine", "postgres")?;
    out.set_item("kind", page.kind)?;
    out.set_item("checksums", page.checksum.is_some())?;
    out.set_item("computed_checksum", page.checksum)?;
    set_taken_apart(&out, &page.parts, &page.wrong, page.raw.len())?;
    out.set_item("raw", PyBytes::new(py, &page.raw))?;
    Ok(out)
}

/// Sets what pages of all engines have in common: parts, problems and the regions that tile the page.
pub(crate) fn set_taken_apart(out: &Bound<'_, PyDict>, parts: &[Part], wrong: &[Wrong], len: usize) -> PyResult<()> {
    let py = out.py();
    let dicts = parts.iter().map(|part| part_dict(py, part)).collect::<PyResult<Vec<_>>>()?;
    out.set_item("parts", PyList::new(py, dicts)?)?;
    let problems = wrong.iter().map(|wrong| wrong_dict(py, wrong)).collect::<PyResult<Vec<_>>>()?;
    out.set_item("problems", PyList::new(py, problems)?)?;
    let tiles: Vec<_> =
        regions(parts, len).iter().map(|r| (r.start, r.end, r.part, r.number, r.field, r.kind.as_str())).collect();
    out.set_item("regions", tiles)
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

fn part_dict<'py>(py: Python<'py>, part: &Part) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for field in &part.fields {
        let (mut name, mut n) = (field.name.to_owned(), 2);
        while fields.contains(&name)? {
            name = format!("{} {n}", field.name); // such as the nodes of an SP-GiST tuple
            n += 1;
        }
        fields.set_item(name, field_dict(py, field)?)?;
    }
    let out = PyDict::new(py);
    out.set_item("part", part.name)?;
    out.set_item("number", part.number)?;
    out.set_item("offset", part.start)?;
    out.set_item("length", part.end - part.start)?;
    out.set_item("fields", fields)?;
    Ok(out)
}

fn field_dict<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    match &field.value {
        Value::Number(n) => out.set_item("value", n)?,
        Value::Signed(n) => out.set_item("value", n)?,
        Value::Real(n) => out.set_item("value", n)?,
        Value::Truth(b) => out.set_item("value", b)?,
        Value::Tids(tids) => {
            out.set_item("value", tids.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        }
        Value::Numbers(numbers) => out.set_item("value", numbers)?,
        value => out.set_item("value", value.to_string())?,
    }
    out.set_item("offset", field.start)?;
    out.set_item("length", field.len)?;
    if !field.flags.is_empty() {
        out.set_item("flags", &field.flags)?;
    }
    if !field.words.is_empty() {
        out.set_item("words", &field.words)?;
    }
    Ok(out)
}

fn wrong_dict<'py>(py: Python<'py>, wrong: &Wrong) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("class", wrong.class)?;
    out.set_item("what", wrong.what)?;
    out.set_item("item", wrong.item)?;
    out.set_item("offset", wrong.offset)?;
    out.set_item("wanted", &wrong.wanted)?;
    out.set_item("found", &wrong.found)?;
    out.set_item("message", wrong.to_string())?;
    Ok(out)
}

fn problem_dict<'py>(py: Python<'py>, problem: &Problem) -> PyResult<Bound<'py, PyDict>> {
    let out = wrong_dict(py, &problem.wrong)?;
    out.set_item("path", problem.path.display().to_string())?;
    out.set_item("block", problem.block)?;
    out.set_item("kind", problem.kind)?;
    Ok(out)
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
            let run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.with(py, Run::status)?;
        let out = PyDict::new(py);
        out.set_item("running", status.running)?;
        out.set_item("bytes", status.bytes)?;
        out.set_item("total_bytes", status.total_bytes)?;
        out.set_item("problems", status.problems)?;
        Ok(out)
    }

    fn take<'py>(&self, py: Python<'py>, most: usize, wait_s: f64) -> PyResult<Option<Bound<'py, PyList>>> {
        let wait = Duration::try_from_secs_f64(wait_s).unwrap_or_default();
        let Some(problems) = self.with(py, |run| run.take(most, wait))? else { return Ok(None) };
        let problems = problems.iter().map(|p| problem_dict(py, p)).collect::<PyResult<Vec<_>>>()?;
        Ok(Some(PyList::new(py, problems)?))
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.with(py, Run::stop)?)
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let finished = py.detach(|| {
            let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).take();
            run.map(Run::finish).ok_or(Error::closed("the run over pages"))
        })?;
        let summary = finished.map_err(Error::from)?;
        let out = PyDict::new(py);
        out.set_item("files", summary.files)?;
        out.set_item("bytes", summary.bytes)?;
        out.set_item("pages", summary.pages)?;
        out.set_item("items", summary.items)?;
        out.set_item("checksums", summary.checksums)?;
        out.set_item("kinds", summary.kinds)?;
        out.set_item("classes", summary.classes)?;
        out.set_item("rows", summary.rows)?;
        out.set_item("vanished", summary.vanished)?;
        out.set_item("shrunk", summary.shrunk)?;
        let absent: Vec<_> = summary.absent.iter().map(|path| path.display().to_string()).collect();
        out.set_item("absent", absent)?;
        let not_checked = PyList::empty(py);
        for (kind, Passed { files, first }) in summary.passed {
            let of_kind = PyDict::new(py);
            of_kind.set_item("kind", kind)?;
            of_kind.set_item("files", files)?;
            of_kind.set_item("first", first.display().to_string())?;
            not_checked.append(of_kind)?;
        }
        out.set_item("not_checked", not_checked)?;
        Ok(out)
    }
}

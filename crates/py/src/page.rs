//! `page_read` and `PageRun`: pages of files, one taken apart or all of them looked at.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leadline_datadir::read_control;
use leadline_page::{regions, Field, Part, Value, Wrong};
use leadline_pagescan::formats::Informix;
use leadline_pagescan::{read_as, read_page, OnePage, Options, Passed, Passphrase, Problem, Run, Task};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::dict::joined;
use crate::error::Error;
use crate::interrupts::interruptible;
use crate::page_plan::{shown, NotChecked, PagePlan, TaskDict};

/// What a data directory's pg_control says of its pages: bytes of a block, and of a block of the log.
#[pyfunction]
pub(crate) fn block_sizes(data_dir: PathBuf) -> PyResult<(u32, u32)> {
    let (control, _) = read_control(&data_dir).map_err(Error::from)?;
    Ok((control.blcksz, control.xlog_blcksz))
}

/// The folders of all backups of a repository.
#[pyfunction]
pub(crate) fn backups_in(path: PathBuf) -> PyResult<Vec<String>> {
    let found = leadline_pagescan::backups_in(&path).map_err(Error::from)?;
    Ok(found.into_iter().map(shown).collect())
}

/// The file that says what is in a backup.
#[pyfunction]
pub(crate) fn backup_list(path: PathBuf) -> String {
    shown(leadline_pagescan::list_of(&path))
}

/// One page of a file, taken apart. Its name or first bytes tell its format, or else `engine` does.
#[pyfunction]
#[pyo3(signature = (path, block, block_size=None, *, engine=None, version_15=false, row_size=None))]
pub(crate) fn page_read<'py>(
    py: Python<'py>,
    path: PathBuf,
    block: u32,
    block_size: Option<u32>,
    engine: Option<&str>,
    version_15: bool,
    row_size: Option<u16>,
) -> PyResult<PageRead<'py>> {
    let page = py.detach(|| match engine {
        None => read_page(&path, block, block_size),
        Some("informix") => read_as(&Informix { version_15, row_size }, &path, block, block_size),
        Some(other) => Err(unknown_engine(other)),
    });
    let OnePage { path, engine, block, fork, fork_block, block_size, checksums, raw, found } =
        page.map_err(Error::from)?;
    let tiles = regions(&found.parts, raw.len());
    let tiles = tiles.iter().map(|r| (r.start, r.end, r.part, r.number, r.field, r.kind.as_str()));
    Ok(PageRead {
        path: path.display().to_string(),
        block,
        fork: fork.map_or("", |fork| fork.as_str()),
        fork_block,
        block_size,
        engine,
        kind: found.kind,
        checksums,
        computed_checksum: found.checksum,
        parts: found.parts.iter().map(|part| PartDict::of(py, part)).collect::<PyResult<_>>()?,
        problems: found.wrong.iter().map(WrongDict::of).collect(),
        regions: tiles.collect(),
        raw,
    })
}

fn unknown_engine(name: &str) -> leadline_errors::Error {
    leadline_errors::Error::new(leadline_errors::Kind::Usage, format!("no pages of {name} are known"))
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

/// Start, end, part and its number, field, and sort of bytes.
type Tile = (usize, usize, &'static str, Option<u32>, &'static str, &'static str);

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
    #[pyo3(signature = (paths, *, block_size=None, threads=0, key=None))]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        block_size: Option<u32>,
        threads: usize,
        key: Option<String>,
    ) -> PyResult<PageRun> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let options = Options { block_size, threads, key: key.map(Passphrase::new) };
        let run = interruptible(py, |go_on| Run::start(&paths, options, go_on))?;
        Ok(PageRun { run: Mutex::new(Some(run)) })
    }

    #[staticmethod]
    fn of_task(plan: &PagePlan, task: TaskDict, folder: PathBuf) -> PyResult<PageRun> {
        let run = Run::of_task(Arc::clone(&plan.plan), &Task::from(task), folder).map_err(Error::from)?;
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
            backups: summary.backups.into_iter().map(|(path, kind)| (shown(path), kind)).collect(),
            written_again: summary.written_again,
            digests: summary.digests,
        })
    }
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
    backups: Vec<(String, &'static str)>,
    written_again: u64,
    digests: u64,
}

//! `RelationRun`: relations checked across their pages.

use std::path::PathBuf;
use std::time::Duration;

use leadline_verify::{Level, Problem, Run, Summary};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::dict::joined;
use crate::error::Error;

/// All relations of a data directory, or the one that a file is of, checked by a thread of its own.
#[pyclass(frozen, module = "leadline._core.pages")]
pub(crate) struct RelationRun {
    /// None once it was finished. Locked only while the GIL is released.
    run: Mutex<Option<Run>>,
}

#[derive(IntoPyObject)]
struct ProblemDict {
    class: &'static str,
    path: String,
    block: u32,
    kind: &'static str,
    what: &'static str,
    item: Option<u16>,
    message: String,
}

#[derive(IntoPyObject)]
struct Meaning {
    relation: String,
    means: &'static str,
    sure: &'static str,
}

fn problem_dict<'py>(py: Python<'py>, problem: Problem) -> PyResult<Bound<'py, PyDict>> {
    let Problem { class, relation, path, block, item, message, means, sure } = problem;
    let found =
        ProblemDict { class, path: path.display().to_string(), block, kind: "relation", what: class, item, message };
    joined(py, [found.into_pyobject(py)?, Meaning { relation, means, sure: sure.as_str() }.into_pyobject(py)?])
}

impl RelationRun {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Run) -> T + Send) -> Result<T, Error> {
        py.detach(|| {
            let run = self.run.lock();
            run.as_ref().map(work).ok_or(Error::closed("the check of relations"))
        })
    }
}

#[pymethods]
impl RelationRun {
    #[new]
    #[pyo3(signature = (path, *, values=false))]
    fn new(path: PathBuf, values: bool) -> PyResult<RelationRun> {
        let level = if values { Level::Values } else { Level::Structure };
        let run = Run::start(path, level).map_err(Error::from)?;
        Ok(RelationRun { run: Mutex::new(Some(run)) })
    }

    fn status(&self, py: Python<'_>) -> Result<(u64, u64), Error> {
        self.with(py, Run::status)
    }

    fn take<'py>(&self, py: Python<'py>, most: usize, wait_s: f64) -> PyResult<Option<Vec<Bound<'py, PyDict>>>> {
        let wait = Duration::try_from_secs_f64(wait_s).unwrap_or_default();
        let Some(problems) = self.with(py, |run| run.take(most, wait))? else { return Ok(None) };
        problems.into_iter().map(|p| problem_dict(py, p)).collect::<PyResult<_>>().map(Some)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.with(py, Run::stop)?)
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Finished<'py>> {
        let finished = py.detach(|| {
            let run = self.run.lock().take();
            run.map(Run::finish).ok_or(Error::closed("the check of relations"))
        })?;
        let Summary { relations, classes, skipped } = finished.map_err(Error::from)?;
        Ok(Finished { relations, classes: classes.into_py_dict(py)?, skipped: skipped.into_py_dict(py)? })
    }
}

#[derive(IntoPyObject)]
struct Finished<'py> {
    relations: u64,
    classes: Bound<'py, PyDict>,
    skipped: Bound<'py, PyDict>,
}

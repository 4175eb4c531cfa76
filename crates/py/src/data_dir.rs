//! `condition`: how well a data directory is.

use std::path::PathBuf;

use leadline_datadir::{Condition, Server};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// How well the data directory at `path` is, or the one that the file `path` is in; None when it is in none.
#[pyfunction]
pub(crate) fn condition(py: Python<'_>, path: PathBuf) -> PyResult<Option<Bound<'_, PyDict>>> {
    let look = || if path.is_dir() { Some(Condition::of(&path)) } else { Condition::around(&path) };
    let Some(found) = py.detach(look) else { return Ok(None) };
    let remarks = PyList::empty(py);
    for remark in found.remarks() {
        let item = PyDict::new(py);
        item.set_item("name", remark.name)?;
        item.set_item("is_error", remark.is_error)?;
        item.set_item("message", remark.message)?;
        item.set_item("hint", remark.hint)?;
        remarks.append(item)?;
    }
    let pid = if let Server::Running { pid, .. } = found.server { Some(pid) } else { None };
    let out = PyDict::new(py);
    out.set_item("root", found.root.display().to_string())?;
    out.set_item("server", found.server.as_str())?;
    out.set_item("pid", pid)?;
    out.set_item("behind_since", found.behind_since().map(|lsn| lsn.to_string()))?;
    out.set_item("has_backup_label", found.has_backup_label)?;
    out.set_item("has_standby_signal", found.has_standby_signal)?;
    out.set_item("has_recovery_signal", found.has_recovery_signal)?;
    out.set_item("remarks", remarks)?;
    Ok(Some(out))
}

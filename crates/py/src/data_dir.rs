//! `condition`: how well a data directory is.

use std::path::PathBuf;

use leadline_datadir::{Condition, Server};
use pyo3::prelude::*;

/// How well the data directory at `path` is, or the one that the file `path` is in; None when it is in none.
#[pyfunction]
pub(crate) fn condition(py: Python<'_>, path: PathBuf) -> Option<State> {
    let look = || if path.is_dir() { Some(Condition::of(&path)) } else { Condition::around(&path) };
    let found = py.detach(look)?;
    let remark = |remark: leadline_datadir::Remark| {
        let leadline_datadir::Remark { name, is_error, message, hint } = remark;
        Remark { name, is_error, message, hint }
    };
    Some(State {
        root: found.root.display().to_string(),
        server: found.server.as_str(),
        pid: if let Server::Running { pid, .. } = found.server { Some(pid) } else { None },
        behind_since: found.behind_since().map(|lsn| lsn.to_string()),
        has_backup_label: found.has_backup_label,
        has_standby_signal: found.has_standby_signal,
        has_recovery_signal: found.has_recovery_signal,
        remarks: found.remarks().into_iter().map(remark).collect(),
    })
}

#[derive(IntoPyObject)]
pub(crate) struct State {
    root: String,
    server: &'static str,
    pid: Option<u32>,
    behind_since: Option<String>,
    has_backup_label: bool,
    has_standby_signal: bool,
    has_recovery_signal: bool,
    remarks: Vec<Remark>,
}

#[derive(IntoPyObject)]
struct Remark {
    name: &'static str,
    is_error: bool,
    message: String,
    hint: String,
}

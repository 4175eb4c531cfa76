//! `BackupFiles`: the files of a backup, put where they can be read as those of a data directory; `ArchivedWal`: those of an archive.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;

use leadline_pagescan::{ArchivedWal as Archive, Extract, Extractable, Passphrase, Unread};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::error::Error;
use crate::interrupts::interruptible;
use crate::page_plan::shown;

/// Objects of a store are files below this path from now on.
#[pyfunction]
pub(crate) fn mount(root: PathBuf, list: Py<PyAny>, read: Py<PyAny>) {
    let failed = |e: PyErr| io::Error::other(Python::attach(|py| e.value(py).to_string()));
    let list = move |folder: &str| Python::attach(|py| list.call1(py, (folder,))?.extract(py)).map_err(failed);
    let read = move |name: &str, at: u64, bytes: u64| -> io::Result<Vec<u8>> {
        let asked = Python::attach(|py| {
            let came = read.call1(py, (name, at, bytes))?;
            Ok(came.extract::<PyBackedBytes>(py)?.to_vec())
        });
        asked.map_err(failed)
    };
    leadline_pagescan::mount(&root, Box::new(list), Box::new(read));
}

#[pyclass(frozen, module = "leadline._core.backups")]
pub(crate) struct BackupFiles {
    files: Extract,
}

#[pymethods]
impl BackupFiles {
    /// The backup at a path; None where it is a data directory that is read in place, or nothing that is known.
    #[staticmethod]
    #[pyo3(signature = (path, bases, key=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        bases: Option<Vec<PathBuf>>,
        key: Option<String>,
    ) -> PyResult<Option<BackupFiles>> {
        let key = key.map(Passphrase::new);
        let found = interruptible(py, |go_on| Extract::open(&path, bases.as_deref(), key.as_ref(), go_on))?;
        Ok(found.map(|files| BackupFiles { files }))
    }

    fn kind(&self) -> &'static str {
        self.files.kind()
    }

    /// Names in the data directory, and how many bytes each takes at most when it is extracted.
    fn files(&self) -> HashMap<String, u64> {
        self.files.files().into_iter().map(|Extractable { name, bytes }| (shown(name), bytes)).collect()
    }

    fn small(&self, name: &str) -> Option<Cow<'static, [u8]>> {
        self.files.small(name).map(Cow::from)
    }

    fn unread(&self) -> Vec<(String, String)> {
        told(self.files.unread())
    }

    /// What could not be read of these files.
    fn extract(&self, py: Python<'_>, into: PathBuf, names: BTreeSet<PathBuf>) -> PyResult<Vec<(String, String)>> {
        interruptible(py, |go_on| self.files.extract(&into, &names, go_on)).map(told)
    }
}

fn told(unread: Vec<Unread>) -> Vec<(String, String)> {
    unread.into_iter().map(|Unread { name, why }| (shown(name), why)).collect()
}

#[pyclass(frozen, module = "leadline._core.backups")]
pub(crate) struct ArchivedWal {
    archive: Archive,
}

#[pymethods]
impl ArchivedWal {
    /// The archive of WAL at a path; None when it can be read in place.
    #[staticmethod]
    #[pyo3(signature = (path, key=None))]
    fn open(py: Python<'_>, path: PathBuf, key: Option<String>) -> Result<Option<ArchivedWal>, Error> {
        let key = key.map(Passphrase::new);
        let found = py.detach(|| Archive::open(&path, key.as_ref()))?;
        Ok(found.map(|archive| ArchivedWal { archive }))
    }

    /// Names below the folder, and how many bytes each takes at most when it is copied.
    fn files(&self) -> HashMap<String, u64> {
        self.archive.files().iter().map(|file| (shown(file.name.clone()), file.bytes)).collect()
    }

    fn copy(&self, py: Python<'_>, into: PathBuf, names: BTreeSet<PathBuf>) -> PyResult<()> {
        interruptible(py, |go_on| self.archive.copy(&into, |name| names.contains(name), go_on))
    }
}

//! `PagePlan`: tasks of a scan of pages, as dictionaries that other processes can be given.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use leadline_pagescan::{FileTask, Layout, PartTask, Passed, Passphrase, Plan, Task};
use pyo3::prelude::*;

use crate::error::Error;
use crate::interrupts::interruptible;

/// What one task reads.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) enum TaskDict {
    #[pyo3(transparent)]
    Files(FilesDict),
    #[pyo3(transparent)]
    Part(BackupPart),
}

#[derive(FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct FilesDict {
    files: Vec<FileDict>,
}

#[derive(FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
struct FileDict {
    file_id: i32,
    path: OsString,
    bytes: u64,
    from: u64,
    to: u64,
    block_size: u32,
    segment_blocks: u32,
    checksums: Option<bool>,
}

#[derive(FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct BackupPart {
    backup: OsString,
    first_file_id: i32,
    part: usize,
    bytes: u64,
    block_size: Option<u32>,
}

impl TaskDict {
    fn of(task: Task, block_size: Option<u32>) -> TaskDict {
        match task {
            Task::Files(files) => TaskDict::Files(FilesDict { files: files.into_iter().map(FileDict::of).collect() }),
            Task::Part(PartTask { path, first_file_id, part, bytes }) => {
                TaskDict::Part(BackupPart { backup: path.into(), first_file_id, part, bytes, block_size })
            }
        }
    }

    pub(crate) fn block_size(&self) -> Option<u32> {
        match self {
            TaskDict::Files(_) => None,
            TaskDict::Part(part) => part.block_size,
        }
    }
}

impl From<TaskDict> for Task {
    fn from(dict: TaskDict) -> Task {
        match dict {
            TaskDict::Files(FilesDict { files }) => Task::Files(files.into_iter().map(FileTask::from).collect()),
            TaskDict::Part(BackupPart { backup, first_file_id, part, bytes, .. }) => {
                Task::Part(PartTask { path: backup.into(), first_file_id, part, bytes })
            }
        }
    }
}

impl FileDict {
    fn of(task: FileTask) -> FileDict {
        let FileTask { file_id, path, bytes, range, layout } = task;
        let Layout { block_size, segment_blocks, checksums } = layout;
        let (from, to) = (range.start, range.end);
        FileDict { file_id, path: path.into(), bytes, from, to, block_size, segment_blocks, checksums }
    }
}

impl From<FileDict> for FileTask {
    fn from(dict: FileDict) -> FileTask {
        let FileDict { file_id, path, bytes, from, to, block_size, segment_blocks, checksums } = dict;
        let layout = Layout { block_size, segment_blocks, checksums };
        FileTask { file_id, path: path.into(), bytes, range: from..to, layout }
    }
}

/// What there is to read in paths, or by one task.
#[pyclass(frozen, module = "leadline._core.pages")]
pub(crate) struct PagePlan {
    pub(crate) plan: Arc<Plan>,
    block_size: Option<u32>,
}

#[pymethods]
impl PagePlan {
    #[new]
    #[pyo3(signature = (paths, *, block_size=None, key=None))]
    fn new(py: Python<'_>, paths: Vec<PathBuf>, block_size: Option<u32>, key: Option<String>) -> PyResult<PagePlan> {
        let key = key.map(Passphrase::new);
        let plan = interruptible(py, |go_on| Plan::of(&paths, block_size, key.as_ref(), go_on))?;
        Ok(PagePlan { plan: Arc::new(plan), block_size })
    }

    #[staticmethod]
    #[pyo3(signature = (task, *, key=None))]
    fn of_task(py: Python<'_>, task: TaskDict, key: Option<String>) -> PyResult<PagePlan> {
        let (key, block_size) = (key.map(Passphrase::new), task.block_size());
        let task = Task::from(task);
        let plan = interruptible(py, |go_on| Plan::of_task(&task, block_size, key.as_ref(), go_on))?;
        Ok(PagePlan { plan: Arc::new(plan), block_size })
    }

    fn tasks(&self) -> Vec<TaskDict> {
        self.plan.tasks().into_iter().map(|task| TaskDict::of(task, self.block_size)).collect()
    }

    fn about(&self) -> About {
        let not_checked =
            |(kind, Passed { files, first }): (&'static str, Passed)| NotChecked { kind, files, first: shown(first) };
        About {
            files: self.plan.files(),
            incremental: self.plan.incremental(),
            absent: self.plan.absent().iter().cloned().map(shown).collect(),
            not_checked: self.plan.passed().clone().into_iter().map(not_checked).collect(),
            backups: self.plan.backups().into_iter().map(|(path, kind)| (shown(path), kind)).collect(),
        }
    }

    fn write_files(&self, py: Python<'_>, capture_dir: PathBuf) -> PyResult<()> {
        Ok(py.detach(|| self.plan.write_files(&capture_dir)).map_err(Error::from)?)
    }
}

#[derive(IntoPyObject)]
struct About {
    files: usize,
    incremental: usize,
    absent: Vec<String>,
    not_checked: Vec<NotChecked>,
    backups: Vec<(String, &'static str)>,
}

/// Files of one kind that were passed over.
#[derive(IntoPyObject)]
pub(crate) struct NotChecked {
    pub(crate) kind: &'static str,
    pub(crate) files: u64,
    pub(crate) first: String,
}

pub(crate) fn shown(path: PathBuf) -> String {
    path.display().to_string()
}

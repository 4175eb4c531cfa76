//! What there is to read, and tasks of it: stretches of files and parts of backups that can be read one by one, also by other processes.
//!
//! A task says all that is needed to read it again, so whoever runs it does not list the files once more. Tables written from the same task
//! are the same bytes each time, as one thread reads it from its front.

use std::ops::Range;
use std::path::{Path, PathBuf};

use leadline_backup::{GoOn, Passphrase};
use leadline_errors::{Error, Kind};

use crate::backups::{find_all, BackupFiles};
use crate::files::{named, Found, RelationFile};
use crate::layout::{layout_of, Layout};
use crate::passed::PassedOver;
use crate::tables::Tables;

/// Bytes of pages that a task reads: a tenth of a second of work, so that to hand it out costs little beside it.
const TASK: u64 = 64 << 20;

/// Files, and backups that have files.
#[derive(Default)]
pub struct Plan {
    pub(crate) files: Vec<RelationFile>,
    /// What stands for each of them in the tables.
    pub(crate) ids: Vec<i32>,
    /// Where the last of the files are.
    pub(crate) backups: Vec<BackupFiles>,
    /// Those before that are files of their own.
    pub(crate) plain: usize,
    pub(crate) absent: Vec<PathBuf>,
    pub(crate) passed: PassedOver,
}

/// Some bytes of a file, by its number in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) file: usize,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What is read of a plan.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) stretches: Vec<Stretch>,
    /// Parts of backups, by the number of the backup in the plan.
    pub(crate) parts: Vec<(usize, usize)>,
    /// How many bytes that is.
    pub(crate) bytes: u64,
}

/// Some bytes of a file, with all that is to be known of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTask {
    /// What stands for it in the tables.
    pub file_id: i32,
    /// The file.
    pub path: PathBuf,
    /// How long it was.
    pub bytes: u64,
    /// What is read of it.
    pub range: Range<u64>,
    /// How its pages lie.
    pub layout: Layout,
}

/// A part of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartTask {
    /// The backup.
    pub path: PathBuf,
    /// What stands for its first file in the tables; the others follow.
    pub first_file_id: i32,
    /// Which part.
    pub part: usize,
    /// How many bytes of pages it has.
    pub bytes: u64,
}

/// What one task reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Of files.
    Files(Vec<FileTask>),
    /// Of a backup.
    Part(PartTask),
}

impl Plan {
    /// What there is to read in `paths`. `go_on` is asked while backups are listed, which may take long.
    ///
    /// # Errors
    /// When a path cannot be read or has no pages.
    pub fn of(
        paths: &[PathBuf],
        block_size: Option<u32>,
        key: Option<&Passphrase>,
        go_on: &GoOn,
    ) -> Result<Plan, Error> {
        let (Found { files, absent, passed }, backups) = find_all(paths, block_size, key, go_on)?;
        let plain = files.len() - backups.iter().flat_map(|of| &of.files).flatten().count();
        let ids = (0..).take(files.len()).collect();
        Ok(Plan { files, ids, backups, plain, absent, passed })
    }

    /// The plan of one task alone, as who runs it elsewhere needs it.
    ///
    /// # Errors
    /// When its backup cannot be read, or pages cannot be of the size that it says.
    pub fn of_task(
        task: &Task,
        block_size: Option<u32>,
        key: Option<&Passphrase>,
        go_on: &GoOn,
    ) -> Result<Plan, Error> {
        match task {
            Task::Files(stretches) => {
                let mut plan = Plan { plain: stretches.len(), ..Plan::default() };
                for FileTask { file_id, path, bytes, layout, .. } in stretches {
                    layout_of(None, Some(layout.block_size))?; // what comes from outside may be any number
                    plan.files.push(named(path, *bytes, *layout));
                    plan.ids.push(*file_id);
                }
                Ok(plan)
            }
            Task::Part(PartTask { path, first_file_id, .. }) => {
                let mut plan = Plan::of(std::slice::from_ref(path), block_size, key, go_on)?;
                if plan.backups.is_empty() {
                    return Err(Error::new(Kind::NotFound, "this is no backup any more").at(path));
                }
                plan.ids = (*first_file_id..).take(plan.files.len()).collect();
                Ok(plan)
            }
        }
    }

    /// The files, one row each, of the table `page_file`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_files(&self, capture_dir: &Path) -> Result<(), Error> {
        Tables::write_files(capture_dir, &self.files)
    }

    /// How many files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// How many of them are of incremental backups.
    pub fn incremental(&self) -> usize {
        self.files.iter().filter(|file| file.incremental).count()
    }

    /// Links of tablespaces that lead nowhere.
    pub fn absent(&self) -> &[PathBuf] {
        &self.absent
    }

    /// Files that are not looked at.
    pub fn passed(&self) -> &PassedOver {
        &self.passed
    }

    /// Backups, and what each is.
    pub fn backups(&self) -> Vec<(PathBuf, &'static str)> {
        self.backups.iter().map(|of| (of.path.clone(), of.backup.kind())).collect()
    }

    /// All of it.
    pub(crate) fn all(&self) -> Work {
        let files = self.files.iter().take(self.plain).enumerate();
        let stretches = files.map(|(file, about)| Stretch { file, from: 0, to: about.bytes }).collect();
        let backups = self.backups.iter().enumerate();
        // What is wrong with a backup is told with its first part, also of one that has none.
        let parts = backups.flat_map(|(backup, of)| (0..of.backup.parts().max(1)).map(move |part| (backup, part)));
        let bytes = self.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        Work { stretches, parts: parts.collect(), bytes }
    }

    /// Tasks that together are all of it, in the order of the files. Large files are cut, small ones share a task.
    pub fn tasks(&self) -> Vec<Task> {
        let (mut tasks, mut waiting, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (about, id) in self.files.iter().zip(&self.ids).take(self.plain) {
            let mut from = 0;
            while from < about.bytes {
                let to = about.bytes.min(from + TASK);
                if bytes + (to - from) > TASK {
                    tasks.push(Task::Files(std::mem::take(&mut waiting)));
                    bytes = 0;
                }
                bytes += to - from;
                let (path, layout) = (about.path.clone(), about.layout);
                waiting.push(FileTask { file_id: *id, path, bytes: about.bytes, range: from..to, layout });
                from = to;
            }
        }
        if !waiting.is_empty() {
            tasks.push(Task::Files(waiting));
        }
        for of in &self.backups {
            let first = of.files.iter().flatten().next();
            let first_file_id = first.and_then(|number| self.ids.get(*number)).copied().unwrap_or(0);
            let parts = of.backup.parts().max(1);
            let files = of.files.iter().flatten().filter_map(|number| self.files.get(*number));
            let total = files.map(|file| file.bytes).fold(0, u64::saturating_add);
            // What a part has is not known; in sum they have all.
            let bytes = total / parts as u64;
            let part = |part| Task::Part(PartTask { path: of.path.clone(), first_file_id, part, bytes });
            tasks.extend((0..parts).map(part));
        }
        tasks
    }

    /// What a task reads of this plan.
    ///
    /// # Errors
    /// When it is a task of another plan.
    pub(crate) fn work_of(&self, task: &Task) -> Result<Work, Error> {
        let another = || Error::new(Kind::Usage, "this is a task of other files");
        match task {
            Task::Files(tasks) => {
                let stretch = |task: &FileTask| {
                    let file = self.ids.iter().position(|id| *id == task.file_id).filter(|file| *file < self.plain)?;
                    let Range { start: from, end: to } = task.range;
                    Some(Stretch { file, from, to: to.min(task.bytes) })
                };
                let stretches: Vec<_> = tasks.iter().map(stretch).collect::<Option<_>>().ok_or_else(another)?;
                let bytes = stretches.iter().map(|of| of.to.saturating_sub(of.from)).fold(0, u64::saturating_add);
                Ok(Work { stretches, bytes, ..Work::default() })
            }
            Task::Part(PartTask { path, first_file_id, part, bytes }) => {
                let is_it = |of: &BackupFiles| {
                    let first = of.files.iter().flatten().next();
                    let id = first.map_or(Some(0), |number| self.ids.get(*number).copied());
                    of.path == *path && (first.is_none() || id == Some(*first_file_id))
                };
                let backup = self.backups.iter().position(is_it).ok_or_else(another)?;
                Ok(Work { parts: vec![(backup, *part)], bytes: *bytes, ..Work::default() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_datadir::DEFAULT_BLOCK_SIZE;

    fn plan(sizes: &[u64]) -> Plan {
        let layout = Layout { block_size: DEFAULT_BLOCK_SIZE, segment_blocks: 131_072, checksums: Some(true) };
        let file = |(number, bytes): (usize, &u64)| named(Path::new(&format!("/d/base/5/{number}")), *bytes, layout);
        let files: Vec<_> = sizes.iter().enumerate().map(file).collect();
        Plan { ids: (0..).take(files.len()).collect(), plain: files.len(), files, ..Plan::default() }
    }

    /// File, from, to of each stretch of each task.
    fn cut(sizes: &[u64]) -> Vec<Vec<(i32, u64, u64)>> {
        let of = |task: Task| match task {
            Task::Files(files) => files.iter().map(|f| (f.file_id, f.range.start, f.range.end)).collect(),
            Task::Part(_) => Vec::new(),
        };
        plan(sizes).tasks().into_iter().map(of).collect()
    }

    #[test]
    fn large_files_are_cut_and_small_ones_share_a_task() {
        let third = TASK / 4 + 8192;
        let wanted = vec![
            vec![(0, 0, TASK)],
            vec![(0, TASK, TASK + 8192), (2, 0, third), (3, 0, third)],
            vec![(4, 0, TASK)],
            vec![(5, 0, 100)],
        ];
        assert_eq!(cut(&[TASK + 8192, 0, third, third, TASK, 100]), wanted);
        assert_eq!(cut(&[0]), Vec::<Vec<_>>::new());
    }

    #[test]
    fn a_task_is_read_by_its_own_plan_and_by_that_of_all() {
        let all = plan(&[TASK, 8192]);
        let task = all.tasks().pop().expect("two tasks");
        let own = Plan::of_task(&task, None, None, &|| true).expect("its own plan");
        assert_eq!(all.work_of(&task).unwrap().stretches, [Stretch { file: 1, from: 0, to: 8192 }]);
        assert_eq!(own.work_of(&task).unwrap().stretches, [Stretch { file: 0, from: 0, to: 8192 }]);
        assert_eq!(own.ids, [1]);
        assert!(plan(&[8192]).work_of(&task).is_err(), "of other files");
    }
}

//! A check that runs in a thread of its own, and is asked for what it has found.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leadline_errors::{Error, Kind, Result};

use crate::check::{check, Summary};
use crate::problem::{Level, Problem};
use crate::progress::Progress;

/// Problems that wait to be taken; the check waits if there are more.
const WAITING: usize = 1024;

/// A check that runs.
pub struct Run {
    problems: Receiver<Problem>,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    thread: JoinHandle<Result<Summary>>,
}

impl Run {
    /// Begins to check all relations of a data directory, or the one that a file is of.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(path: PathBuf, level: Level) -> Result<Run> {
        let (found, problems) = sync_channel(WAITING);
        let (stop, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(Progress::default()));
        let (is_stopped, its_progress) = (Arc::clone(&stop), Arc::clone(&progress));
        let work = move || {
            let mut take = |problem| !is_stopped.load(Relaxed) && found.send(problem).is_ok();
            check(&path, level, &its_progress, &mut take)
        };
        let thread = std::thread::Builder::new()
            .name("relations".into())
            .spawn(work)
            .map_err(|e| Error::new(Kind::Storage, "cannot start a thread").detail(e.to_string()))?;
        Ok(Run { problems, stop, progress, thread })
    }

    /// How far it is: relations that are done, and all.
    pub fn status(&self) -> (u64, u64) {
        (self.progress.relations.load(Relaxed), self.progress.total_relations.load(Relaxed))
    }

    /// Up to `most` problems; waits for the first, but not longer than `wait`. None: no more will come.
    pub fn take(&self, most: usize, wait: Duration) -> Option<Vec<Problem>> {
        let deadline = Instant::now() + wait;
        let mut found = Vec::new();
        while found.len() < most {
            let left =
                if found.is_empty() { deadline.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            match self.problems.recv_timeout(left) {
                Ok(problem) => found.push(problem),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) if found.is_empty() => return None,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Some(found)
    }

    /// It ends soon: with the relation that it is at, or its next problem.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What ended it early.
    pub fn finish(self) -> Result<Summary> {
        drop(self.problems);
        let broken = |_| Err(Error::new(Kind::Invalid, "the check of relations ended by a fault of leadline"));
        self.thread.join().unwrap_or_else(broken)
    }
}

//! One tick of the host probe: everything that is due, into the tables.

use crate::cgroups::Cgroups;
use crate::counters::Counters;
use crate::devices::Devices;
use crate::exits::Exits;
use crate::processes::Processes;
use crate::taskstats::Accounting;
use leadline_capture::Value;
use leadline_clockwork::{thread_cpu_ns, ClockReading, OpenTables, OwnedRow, Tick, SECOND};
use leadline_errors::Error;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// Control groups may cost 0.03 % of a core: with more than a few they are read less often than once a second.
const CGROUP_SHARE: i64 = 3000;
/// Counters that a host has by the hundred: a row only when the value is another one than before.
const SPARSE: [&str; 2] = ["interrupt.", "softirq."];

/// Which of the ways to look were open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// Kernel accounting by netlink: delays and switches of processes with several threads.
    pub taskstats: bool,
    /// The kernel tells what each process used that ended.
    pub exits: bool,
    /// kernel.task_delayacct is on: waits for block I/O are counted.
    pub delays: bool,
    /// The kernel counts /proc/pressure.
    pub pressure: bool,
    /// Bytes read and written of processes of other users may be read.
    pub io_of_others: bool,
}

/// What was missed, counted while the probe runs.
#[derive(Debug, Default)]
pub struct Losses {
    /// Times that messages about ended processes were lost.
    pub exit_overruns: AtomicU64,
    /// Control groups beyond those looked at.
    pub cgroups_left_out: AtomicU64,
}

/// Looks at the host.
#[derive(Debug)]
pub struct HostProbe {
    access: Access,
    counters: Counters,
    processes: Processes,
    devices: Devices,
    cgroups: Cgroups,
    losses: Arc<Losses>,
    sparse: HashMap<String, i64>,
    counters_due: i64,
    cgroups_due: i64,
}

impl HostProbe {
    /// Opens every way to look that our rights allow. `taskstats`: false does without that interface.
    pub fn open(taskstats: bool) -> Self {
        let delays = std::fs::read_to_string("/proc/sys/kernel/task_delayacct").map_or(true, |text| text.trim() != "0");
        let accounting = taskstats.then(|| Accounting::open().ok()).flatten();
        let exits = taskstats.then(|| Exits::open().ok()).flatten();
        let access = Access {
            taskstats: accounting.is_some(),
            exits: exits.is_some(),
            delays,
            pressure: counts(Path::new("/proc/pressure/cpu")),
            io_of_others: std::fs::read("/proc/1/io").is_ok(),
        };
        HostProbe {
            access,
            counters: Counters::open(),
            processes: Processes::new(accounting, exits, delays, ClockReading::now().boottime_ns),
            devices: Devices::open(),
            cgroups: Cgroups::open(Path::new("/sys/fs/cgroup")),
            losses: Arc::default(),
            sparse: HashMap::new(),
            counters_due: 0,
            cgroups_due: 0,
        }
    }

    /// Which ways to look were open.
    pub fn access(&self) -> Access {
        self.access
    }

    /// What was missed so far, also while the probe runs elsewhere.
    pub fn losses(&self) -> Arc<Losses> {
        self.losses.clone()
    }

    fn read_counters(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        let mut rows: Vec<(String, i64)> = Vec::with_capacity(256);
        let sparse = &mut self.sparse;
        self.counters.read(|metric, value| {
            if SPARSE.iter().any(|prefix| metric.starts_with(prefix)) {
                match sparse.get_mut(metric) {
                    Some(last) if *last == value => return,
                    Some(last) => *last = value,
                    None => _ = sparse.insert(metric.to_owned(), value),
                }
            }
            rows.push((metric.to_owned(), value));
        });
        tables.write_rows(
            "host_stat",
            rows.iter().map(|(metric, value)| vec![Value::Int(ts), Value::Text(metric), Value::Int(*value)]),
        )?;
        Ok(())
    }
}

/// Whether a file of counters has any: with CONFIG_PSI_DEFAULT_DISABLED those of /proc/pressure are there, and cannot be read.
fn counts(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|text| !text.is_empty())
}

impl Tick for HostProbe {
    fn tick(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        if ts >= self.counters_due {
            self.counters_due = ts + SECOND - SECOND / 20; // ticks are not all equally late
            self.read_counters(ts, tables)?;
        }
        let mut write = |table, rows: &[OwnedRow]| tables.write_rows(table, rows.iter().map(OwnedRow::row));
        let found = self.processes.read(ts);
        write("process", &found.described)?;
        write("process_delta", &found.deltas)?;
        write("process_exit", &found.exits)?;
        let found = self.devices.read(ts);
        write("device_delta", &found.disks)?;
        write("net_delta", &found.nets)?;
        if ts >= self.cgroups_due {
            let before = thread_cpu_ns();
            write("cgroup_delta", &self.cgroups.read(ts))?;
            let cost_ns = thread_cpu_ns() - before;
            self.cgroups_due = ts + (SECOND - SECOND / 20).max(cost_ns * CGROUP_SHARE);
        }
        self.losses.exit_overruns.store(self.processes.overruns(), Relaxed);
        self.losses.cgroups_left_out.store(self.cgroups.left_out, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_and_cannot_be_read_counts_nothing() {
        assert!(counts(Path::new("/proc/stat")));
        assert!(!counts(Path::new("/proc/self/task")), "a directory stands for a file that is not supported");
        assert!(!counts(Path::new("/proc/nosuchfile")));
    }
}

//! Control groups: what each used, its limits, and how often it was held back. Rows of `cgroup_delta`.
//!
//! Version 2 has all of it below /sys/fs/cgroup; of version 1 the trees of cpu, cpuacct and memory are put together by path.

use crate::procfile::pairs;
use leadline_clockwork::OwnedRow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Groups looked at in one reading; those beyond are counted as left out.
const MOST: usize = 1000;
/// Deeper trees are not looked into.
const DEPTH: usize = 12;

/// Counters, in the order of the columns from cpu_ns on.
const COUNTERS: usize = 9;
/// Gauges, in the order of the columns after the counters.
const GAUGES: usize = 4;

#[derive(Debug, Clone, Default, PartialEq)]
struct Reading {
    counters: [Option<i64>; COUNTERS],
    gauges: [Option<i64>; GAUGES],
}

/// Follows the control groups of the host.
#[derive(Debug)]
pub struct Cgroups {
    roots: Vec<(Version, PathBuf)>,
    last: BTreeMap<String, Reading>,
    last_ts: Option<i64>,
    /// Groups of the last reading that were left out.
    pub left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Version {
    Two,
    Cpu,
    CpuAcct,
    Memory,
}

impl Cgroups {
    /// Finds the trees that are mounted at the usual places below `base` (/sys/fs/cgroup).
    pub fn open(base: &Path) -> Self {
        let mut roots = Vec::new();
        if base.join("cgroup.controllers").exists() {
            roots.push((Version::Two, base.to_owned()));
        } else {
            let v1 = [(Version::Cpu, "cpu"), (Version::CpuAcct, "cpuacct"), (Version::Memory, "memory")];
            roots.extend(v1.map(|(version, name)| (version, base.join(name))).into_iter().filter(|(_, p)| p.is_dir()));
        }
        Cgroups { roots, last: BTreeMap::new(), last_ts: None, left_out: 0 }
    }

    /// Reads all groups. A group gives a row when something was counted or a gauge moved; the first reading gives none.
    pub fn read(&mut self, ts: i64) -> Vec<OwnedRow> {
        let mut now: BTreeMap<String, Reading> = BTreeMap::new();
        let mut left = MOST;
        self.left_out = 0;
        for (version, root) in &self.roots {
            let mut folders = vec![(root.clone(), String::from("/"), 0)];
            left = left.max(1);
            while let Some((folder, path, depth)) = folders.pop() {
                if left == 0 {
                    self.left_out += 1;
                    continue;
                }
                left -= 1;
                version.read(&folder, now.entry(path.clone()).or_default());
                if depth < DEPTH {
                    let inner = fs::read_dir(&folder).into_iter().flatten().flatten();
                    for entry in inner.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
                        let name = entry.file_name().to_string_lossy().into_owned();
                        folders.push((entry.path(), format!("{}/{name}", path.trim_end_matches('/')), depth + 1));
                    }
                }
            }
        }
        let dt_ns = self.last_ts.map_or(0, |last| ts - last);
        let rows =
            now.iter().filter_map(|(path, reading)| row(ts, dt_ns, path, reading, self.last.get(path)?)).collect();
        (self.last, self.last_ts) = (now, Some(ts));
        rows
    }
}

fn row(ts: i64, dt_ns: i64, path: &str, now: &Reading, before: &Reading) -> Option<OwnedRow> {
    if now == before {
        return None;
    }
    let mut row = OwnedRow::default();
    row.int(ts).int(dt_ns).text(path);
    for (now, before) in now.counters.iter().zip(&before.counters) {
        row.maybe(now.zip(*before).map(|(now, before)| (now - before).max(0)));
    }
    now.gauges.iter().for_each(|v| _ = row.maybe(*v));
    Some(row)
}

impl Version {
    /// Adds what the files of one group say.
    fn read(self, folder: &Path, to: &mut Reading) {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| text(name).and_then(|t| limit(t.trim()));
        let (c, g) = (&mut to.counters, &mut to.gauges);
        match self {
            Version::Two => {
                let cpu = text("cpu.stat").unwrap_or_default();
                for (name, value) in pairs(&cpu) {
                    match name {
                        "usage_usec" => c[0] = Some(value.saturating_mul(1000)),
                        "nr_periods" => c[1] = Some(value),
                        "nr_throttled" => c[2] = Some(value),
                        "throttled_usec" => c[3] = Some(value.saturating_mul(1000)),
                        _ => {}
                    }
                }
                for (place, file) in [(4, "cpu.pressure"), (5, "io.pressure"), (6, "memory.pressure")] {
                    c[place] = text(file).and_then(|t| pressure_some(&t));
                }
                let events = text("memory.events").unwrap_or_default();
                let events: BTreeMap<&str, i64> = pairs(&events).collect();
                c[7] = events.get("max").zip(events.get("high")).map(|(max, high)| max + high);
                c[8] = events.get("oom_kill").copied();
                *g = [number("memory.current"), number("memory.max"), quota(text("cpu.max")), number("pids.current")];
            }
            Version::Cpu => {
                let cpu = text("cpu.stat").unwrap_or_default();
                for (name, value) in pairs(&cpu) {
                    match name {
                        "nr_periods" => c[1] = Some(value),
                        "nr_throttled" => c[2] = Some(value),
                        "throttled_time" => c[3] = Some(value),
                        _ => {}
                    }
                }
                let period = text("cpu.cfs_period_us").unwrap_or_default();
                g[2] = quota(text("cpu.cfs_quota_us").map(|quota| format!("{} {period}", quota.trim())));
            }
            Version::CpuAcct => c[0] = number("cpuacct.usage"),
            Version::Memory => {
                c[7] = number("memory.failcnt");
                let oom = text("memory.oom_control").unwrap_or_default();
                c[8] = pairs(&oom).find(|(name, _)| *name == "oom_kill").map(|(_, kills)| kills);
                (g[0], g[1]) = (number("memory.usage_in_bytes"), number("memory.limit_in_bytes"));
            }
        }
    }
}

/// A number; None for "max" and for the largest that version 1 writes for no limit.
fn limit(text: &str) -> Option<i64> {
    text.parse().ok().filter(|v| *v < i64::MAX / 4096 * 4096 && *v >= 0)
}

/// "quota period", in thousandths of a CPU; None without a quota.
fn quota(text: Option<String>) -> Option<i64> {
    let text = text?;
    let mut fields = text.split_ascii_whitespace().map(|f| f.parse::<i64>().ok());
    let (quota, period) = (fields.next()??, fields.next()??);
    (quota > 0 && period > 0).then(|| quota.saturating_mul(1000) / period)
}

fn pressure_some(text: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.starts_with("some"))?;
    Some(line.rsplit_once("total=")?.1.trim().parse::<i64>().ok()?.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_capture::{spec, Value};

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let path = std::env::temp_dir().join(format!("leadline-cgroups-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Tree(path)
        }

        fn put(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn of<'a>(row: &'a OwnedRow, column: &str) -> Value<'a> {
        let at = spec("cgroup_delta").unwrap().columns.iter().position(|c| c.name == column).unwrap();
        row.row()[at]
    }

    #[test]
    fn a_throttled_group_of_version_2_is_seen_and_a_quiet_one_is_not() {
        let tree = Tree::new("two");
        tree.put("cgroup.controllers", "cpu memory");
        tree.put("quiet/cpu.stat", "usage_usec 5\n");
        tree.put("a/b/cpu.stat", "usage_usec 1000\nnr_periods 10\nnr_throttled 1\nthrottled_usec 100\n");
        tree.put("a/b/cpu.max", "50000 100000\n");
        tree.put("a/b/memory.max", "max\n");
        let mut groups = Cgroups::open(&tree.0);
        assert!(groups.read(1).is_empty());
        tree.put("a/b/cpu.stat", "usage_usec 3000\nnr_periods 20\nnr_throttled 6\nthrottled_usec 400\n");
        tree.put("a/b/memory.events", "low 0\nhigh 1\nmax 2\noom 0\noom_kill 0\n");
        let rows = groups.read(8);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].row().len(), spec("cgroup_delta").unwrap().columns.len());
        assert_eq!(of(&rows[0], "cgroup"), Value::Text("/a/b"));
        assert_eq!(of(&rows[0], "dt_ns"), Value::Int(7));
        assert_eq!(of(&rows[0], "cpu_ns"), Value::Int(2_000_000));
        assert_eq!(of(&rows[0], "throttled_periods"), Value::Int(5));
        assert_eq!(of(&rows[0], "throttled_ns"), Value::Int(300_000));
        assert_eq!(of(&rows[0], "cpu_max_milli"), Value::Int(500));
        assert_eq!(of(&rows[0], "memory_max_bytes"), Value::Null);
        assert_eq!(of(&rows[0], "memory_limit_hits"), Value::Null, "the first number of a counter is no difference");
    }

    #[test]
    fn the_trees_of_version_1_are_put_together() {
        let tree = Tree::new("one");
        for (file, text) in [
            ("cpu/x/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
            ("cpu/x/cpu.cfs_quota_us", "-1\n"),
            ("cpu/x/cpu.cfs_period_us", "100000\n"),
            ("cpuacct/x/cpuacct.usage", "7\n"),
            ("memory/x/memory.usage_in_bytes", "4096\n"),
            ("memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/x/memory.failcnt", "3\n"),
            ("memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ] {
            tree.put(file, text);
        }
        let mut groups = Cgroups::open(&tree.0);
        groups.read(1);
        tree.put("memory/x/memory.failcnt", "9\n");
        let rows = groups.read(2);
        assert_eq!((rows.len(), of(&rows[0], "memory_limit_hits")), (1, Value::Int(6)));
        assert_eq!((of(&rows[0], "cpu_ns"), of(&rows[0], "memory_bytes")), (Value::Int(0), Value::Int(4096)));
        assert_eq!((of(&rows[0], "memory_max_bytes"), of(&rows[0], "cpu_max_milli")), (Value::Null, Value::Null));
    }
}

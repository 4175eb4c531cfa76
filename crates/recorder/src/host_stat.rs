//! Kernel counters of the host, once a second: rows of host_stat.

use crate::procfile::ProcFile;

/// Counters taken from /proc/vmstat, as far as the kernel has them.
const VMSTAT: &[&str] = &[
    "pgscan_direct",
    "pgscan_kswapd",
    "pgsteal_direct",
    "pgsteal_kswapd",
    "allocstall_dma",
    "allocstall_dma32",
    "allocstall_normal",
    "allocstall_movable",
    "zone_reclaim_success",
    "zone_reclaim_failed",
    "pswpin",
    "pswpout",
    "pgmajfault",
    "oom_kill",
    "compact_stall",
    "thp_fault_alloc",
    "thp_split_page",
    "nr_dirty",
    "nr_writeback",
    "numa_miss",
    "numa_foreign",
];
/// Sizes taken from /proc/meminfo.
const MEMINFO: &[&str] = &[
    "MemAvailable",
    "MemFree",
    "Cached",
    "Dirty",
    "Writeback",
    "SwapFree",
    "PageTables",
    "AnonHugePages",
    "ShmemHugePages",
];
/// The fields of the first line of /proc/stat in clock ticks.
const CPU: &[&str] = &["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
const CLOCK_TICK_NS: i64 = 10_000_000;

/// The files, kept open.
#[derive(Debug)]
pub struct HostStat {
    vmstat: Option<ProcFile>,
    stat: Option<ProcFile>,
    meminfo: Option<ProcFile>,
    pressure: Vec<(&'static str, ProcFile)>,
    buffer: Vec<u8>,
}

impl HostStat {
    /// Opens what the kernel offers.
    pub fn open() -> Self {
        let open = |path: &str| ProcFile::open(path).ok();
        let pressure =
            ["cpu", "io", "memory"].into_iter().filter_map(|r| Some((r, open(&format!("/proc/pressure/{r}"))?)));
        HostStat {
            vmstat: open("/proc/vmstat"),
            stat: open("/proc/stat"),
            meminfo: open("/proc/meminfo"),
            pressure: pressure.collect(),
            buffer: vec![0; 64 * 1024],
        }
    }

    /// All metrics now: (name, value).
    pub fn read(&mut self) -> Vec<(String, i64)> {
        let mut found = Vec::with_capacity(48);
        let buffer = &mut self.buffer;
        if let Some(text) = self.vmstat.as_ref().and_then(|f| f.read(buffer).ok()) {
            for (name, value) in pairs(text) {
                if VMSTAT.contains(&name) {
                    found.push((format!("vmstat.{name}"), value));
                }
            }
        }
        if let Some(text) = self.meminfo.as_ref().and_then(|f| f.read(buffer).ok()) {
            for (name, kib) in pairs(text) {
                let name = name.trim_end_matches(':');
                if MEMINFO.contains(&name) {
                    found.push((format!("meminfo.{name}_bytes"), kib.saturating_mul(1024)));
                }
            }
        }
        if let Some(text) = self.stat.as_ref().and_then(|f| f.read(buffer).ok()) {
            let ticks = text.lines().next().unwrap_or("").split_ascii_whitespace().skip(1);
            for (name, value) in CPU.iter().zip(ticks) {
                if let Ok(ticks) = value.parse::<i64>() {
                    found.push((format!("stat.cpu_{name}_ns"), ticks.saturating_mul(CLOCK_TICK_NS)));
                }
            }
            for (name, value) in pairs(text) {
                if matches!(name, "ctxt" | "procs_running" | "procs_blocked" | "processes") {
                    found.push((format!("stat.{name}"), value));
                }
            }
        }
        for (resource, file) in &self.pressure {
            if let Ok(text) = file.read(buffer) {
                for line in text.lines() {
                    let total = line.rsplit_once("total=").and_then(|(_, us)| us.parse::<i64>().ok());
                    if let (Some(kind), Some(us)) = (line.split(' ').next(), total) {
                        found.push((format!("pressure.{resource}_{kind}_ns"), us.saturating_mul(1000)));
                    }
                }
            }
        }
        found
    }
}

/// "name value ..." lines.
fn pairs(text: &str) -> impl Iterator<Item = (&str, i64)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        Some((fields.next()?, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_gives_the_essential_ones() {
        let found = HostStat::open().read();
        for name in ["vmstat.pgscan_direct", "vmstat.pswpin", "stat.cpu_idle_ns", "stat.ctxt", "meminfo.Dirty_bytes"] {
            assert!(found.iter().any(|(n, _)| n == name), "{name} is missing of {found:?}");
        }
        let mut names: Vec<_> = found.iter().map(|f| &f.0).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), found.len(), "each metric once");
    }
}

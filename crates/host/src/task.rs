//! What the files of one process say.

use crate::procfile::{stat_fields, CLOCK_TICK_NS};
use leadline_clockwork::ProcFile;
use std::borrow::Cow;

/// What /proc/PID/stat says. Times and faults are of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stat {
    pub comm: String,
    pub state: char,
    pub ppid: i32,
    pub minflt: i64,
    pub majflt: i64,
    pub user_ns: i64,
    pub system_ns: i64,
    pub threads: i64,
    /// On CLOCK_BOOTTIME, in whole ticks: with the pid it names one process for good.
    pub start_ns: i64,
    pub rss_pages: i64,
    pub blkio_ns: i64,
    pub is_kernel: bool,
}

/// PF_KTHREAD of the kernel's task flags.
const KERNEL_THREAD: i64 = 0x0020_0000;

impl Stat {
    /// From the text of the file.
    pub fn parse(text: &str) -> Option<Stat> {
        let comm = text.get(text.find('(')? + 1..text.rfind(')')?)?;
        let mut fields = stat_fields(text)?;
        let state = fields.next()?.chars().next()?;
        let rest: Vec<i64> = fields.map(|f| f.parse().unwrap_or(0)).collect();
        let number = |n: usize| rest.get(n - 4).copied(); // proc(5) counts from 1; ours begin at the fourth
        let ticks = |n: usize| Some(number(n)?.saturating_mul(CLOCK_TICK_NS));
        Some(Stat {
            comm: comm.to_owned(),
            state,
            ppid: i32::try_from(number(4)?).ok()?,
            minflt: number(10)?,
            majflt: number(12)?,
            user_ns: ticks(14)?,
            system_ns: ticks(15)?,
            threads: number(20)?,
            start_ns: ticks(22)?,
            rss_pages: number(24)?,
            blkio_ns: ticks(42).unwrap_or(0),
            is_kernel: number(9)? & KERNEL_THREAD != 0,
        })
    }
}

/// Reads files of processes into one buffer.
#[derive(Debug)]
pub struct TaskFiles {
    path: String,
    buffer: Vec<u8>,
}

impl Default for TaskFiles {
    fn default() -> Self {
        TaskFiles { path: String::new(), buffer: vec![0; 16 << 10] }
    }
}

impl TaskFiles {
    /// The text of /proc/PID/NAME now, by the file in `kept` unless its process has ended; None when it is gone or may not be read. Bytes that
    /// are not UTF-8 are replaced.
    pub fn read(&mut self, pid: i32, name: &str, kept: Option<&ProcFile>) -> Option<Cow<'_, str>> {
        let len = kept.and_then(|file| Some(file.read_bytes(&mut self.buffer).ok()?.len()));
        let len = match len {
            Some(len) => len,
            None => self.open(pid, name)?.read_bytes(&mut self.buffer).ok()?.len(),
        };
        Some(String::from_utf8_lossy(self.buffer.get(..len)?))
    }

    /// A file of a process, to be kept.
    pub fn open(&mut self, pid: i32, name: &str) -> Option<ProcFile> {
        use std::fmt::Write;
        self.path.clear();
        write!(self.path, "/proc/{pid}/{name}").ok()?;
        ProcFile::open(&self.path).ok()
    }

    /// What /proc/PID/stat says.
    pub fn stat(&mut self, pid: i32, kept: Option<&ProcFile>) -> Option<Stat> {
        Stat::parse(&self.read(pid, "stat", kept)?)
    }

    /// The control group: of version 2, unless only version 1 has the process somewhere else than at its root.
    pub fn cgroup(&mut self, pid: i32) -> Option<String> {
        cgroup_of(&self.read(pid, "cgroup", None)?)
    }
}

fn cgroup_of(text: &str) -> Option<String> {
    let mut found: Option<&str> = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let counts = controllers.is_empty() || controllers.split(',').any(|c| matches!(c, "memory" | "cpu"));
        if counts && found.is_none_or(|before| before == "/") {
            found = Some(path);
        }
    }
    found.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_blanks_and_parentheses() {
        let text = "42 (a) b) S 7 1 1 0 -1 2129984 10 0 3 0 5 6 0 0 20 0 2 0 900 4096 12 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 4 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.comm.as_str(), stat.state, stat.ppid, stat.threads), ("a) b", 'S', 7, 2));
        assert_eq!((stat.minflt, stat.majflt, stat.user_ns, stat.system_ns), (10, 3, 50_000_000, 60_000_000));
        assert_eq!((stat.start_ns, stat.rss_pages, stat.is_kernel), (9_000_000_000, 12, true));
        for broken in ["", "42", "42 (a", "42 )a( S 1", "42 (a) S 7 1"] {
            assert_eq!(Stat::parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn our_own_files_are_read() {
        let mut files = TaskFiles::default();
        let own = files.stat(std::process::id() as i32, None).unwrap();
        assert!(own.threads >= 1 && own.rss_pages > 0 && own.start_ns > 0 && !own.is_kernel);
        assert!(files.cgroup(std::process::id() as i32).is_some());
        assert_eq!(files.stat(i32::MAX, None), None);
    }

    #[test]
    fn a_kept_file_is_read_again_and_another_one_for_another_process() {
        let mut files = TaskFiles::default();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let kept = files.open(child.id() as i32, "stat").unwrap();
        let first = files.stat(i32::MAX, Some(&kept)).unwrap();
        assert_eq!(files.stat(child.id() as i32, Some(&kept)).unwrap().start_ns, first.start_ns);
        // The file of a process that has ended, and a pid that another one has.
        child.kill().unwrap();
        child.wait().unwrap();
        let own = files.stat(std::process::id() as i32, Some(&kept)).unwrap();
        assert_ne!(own.comm, first.comm);
        assert_eq!(files.stat(i32::MAX, Some(&kept)), None);
    }

    #[test]
    fn the_control_group_is_the_one_that_limits() {
        assert_eq!(cgroup_of("0::/a/b\n").as_deref(), Some("/a/b"));
        assert_eq!(cgroup_of("8:pids:/x\n4:memory:/m\n1:cpu:/\n0::/\n").as_deref(), Some("/m"));
        assert_eq!(cgroup_of("nonsense"), None);
    }
}

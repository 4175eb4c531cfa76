//! Which server runs on a data directory: `postmaster.pid`, and what /proc says of the process.
//!
//! Source: src/include/utils/pidfile.h.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the server noted of itself when it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PidFile {
    /// The postmaster, as it knows itself: in a container another process than on the host. Negative in single-user mode.
    pub pid: i64,
    /// Its data directory as it was called.
    pub data_dir: String,
    /// Seconds since 1970; 0 when it is not there yet.
    pub started: i64,
    /// 0 until it listens.
    pub port: u16,
}

impl PidFile {
    /// From the file's text; none when it does not begin with a process number.
    pub fn parse(text: &str) -> Option<PidFile> {
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next()?.parse().ok().filter(|pid| *pid != 0)?;
        let data_dir = lines.next().unwrap_or_default().to_owned();
        let started = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0);
        let port = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0);
        Some(PidFile { pid, data_dir, started, port })
    }
}

/// The process that serves a data directory, among those to be seen here: the one the file names, else any server program whose
/// working directory it is (of a server in a container the file names a number of the container's).
pub fn find_server(root: &Path, noted: Option<&PidFile>) -> Option<u32> {
    let about = fs::metadata(root).ok()?;
    let here = (about.dev(), about.ino());
    let noted = noted.and_then(|file| u32::try_from(file.pid.unsigned_abs()).ok());
    if let Some(pid) = noted.filter(|pid| is_server(*pid)) {
        match working_directory(pid) {
            Some(found) if found == here => return Some(pid),
            Some(_) => {}
            // No right to see it: a server that has the number and runs as who owns the files, as it must, is taken for this one.
            None if owner(pid) == Some(about.uid()) => return Some(pid),
            None => {}
        }
    }
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let family: Vec<u32> = pids.filter(|pid| is_server(*pid) && working_directory(*pid) == Some(here)).collect();
    family.iter().copied().find(|pid| parent(*pid).is_none_or(|parent| !family.contains(&parent)))
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Whether a process is a server program. One that has ended and is still listed (a container may never collect it) is not.
fn is_server(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((comm, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')) else { return false };
    matches!(comm, "postgres" | "postmaster") && !rest.trim_start().starts_with(['Z', 'X'])
}

fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|about| about.uid())
}

fn working_directory(pid: u32) -> Option<(u64, u64)> {
    let about = fs::metadata(format!("/proc/{pid}/cwd")).ok()?;
    Some((about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_as_far_as_it_is_written() {
        let whole = PidFile::parse("4711\n/data\n1700000000\n5432\n/tmp\nlocalhost\n  1 2\nready\n").unwrap();
        assert_eq!(
            (whole.pid, whole.data_dir.as_str(), whole.started, whole.port),
            (4711, "/data", 1_700_000_000, 5432)
        );
        let early = PidFile::parse("4711\n/data\n").unwrap();
        assert_eq!((early.started, early.port), (0, 0));
        assert_eq!(PidFile::parse("-12\n").map(|f| f.pid), Some(-12));
        for other in ["", "x\n", "0\n", "99999999999999999999\n"] {
            assert_eq!(PidFile::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_server_that_has_ended_and_is_still_listed_does_not_run() {
        let program = std::env::temp_dir().join(format!("leadline-{}", std::process::id())).join("postgres");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::copy("/bin/true", &program).unwrap();
        let mut child = std::process::Command::new(&program).spawn().unwrap();
        let state = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !state().contains("(postgres) Z") {
            assert!(std::time::Instant::now() < deadline, "{}", state());
            std::thread::yield_now();
        }
        let noted = PidFile { pid: i64::from(child.id()), data_dir: String::new(), started: 0, port: 0 };
        assert_eq!(find_server(&std::env::temp_dir(), Some(&noted)), None);
        child.wait().unwrap();
        fs::remove_dir_all(program.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_process_that_is_no_server_is_not_taken_for_one() {
        let own = PidFile { pid: i64::from(std::process::id()), data_dir: String::new(), started: 0, port: 0 };
        let here = std::env::current_dir().unwrap();
        assert_eq!(find_server(&here, Some(&own)), None);
    }
}

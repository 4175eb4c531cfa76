//! The postmaster as a process: rights to read it, and whether it is still the same server.

use crate::procfs;
use leadline_errors::{Error, Kind};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The error for memory or files of the server we may not read, with the command that would allow it.
pub fn no_rights(pid: i32, what: &str) -> Error {
    // SAFETY: neither has preconditions.
    let (own, own_group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let (server, group) = procfs::owner(pid)
        .map_or_else(|_| ("unknown".into(), "unknown".into()), |(uid, gid)| (uid.to_string(), gid.to_string()));
    // The kernel compares both.
    let other_group = own.to_string() == server && own_group.to_string() != group;
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").map(|s| s.trim().to_owned());
    let scope_text = scope.as_deref().map(|s| format!(", kernel.yama.ptrace_scope = {s}")).unwrap_or_default();
    let groups = if other_group { format!(", own gid {own_group}, server's gid {group}") } else { String::new() };
    let hint = if other_group {
        "run as root (sudo leadline ...) or with the server's group (sudo -u '#UID' -g '#GID' leadline ...)"
    } else if scope.as_deref().is_ok_and(|s| s != "0") && own.to_string() == server {
        "run as root (sudo leadline ...), or allow it: sudo sysctl kernel.yama.ptrace_scope=0"
    } else {
        "run as root (sudo leadline ...) or as the server's user (sudo -u '#UID' leadline ...), or give a DSN to sample over SQL"
    };
    Error::new(Kind::Rights, format!("cannot read {what} of process {pid}"))
        .detail(format!("own uid {own}, server's uid {server}{groups}{scope_text}; CAP_SYS_PTRACE is missing"))
        .hint(hint.replace("UID", &server).replace("GID", &group))
}

/// The postmaster and its shared segment, as found at attach.
#[derive(Debug, Clone)]
pub struct ServerProcess {
    /// Pid of the postmaster.
    pub pid: i32,
    /// Its start in clock ticks since boot, against pid reuse.
    pub start_ticks: u64,
    /// The mapping of the shared segment.
    pub segment: procfs::Mapping,
    /// The server runs in a pid namespace of its own (a container): the pids it knows are not those of this host.
    pub other_namespace: bool,
}

impl ServerProcess {
    /// The pid on this host of a process the server knows by `pid`; None when it has ended.
    pub fn host_pid(&self, pid: i32) -> Option<i32> {
        if !self.other_namespace {
            return Some(pid);
        }
        procfs::children(self.pid).into_iter().find(|&child| procfs::inner_pid(child) == pid)
    }

    /// Is the same server still using the same segment? After a crash of a backend the postmaster stays but makes a new one.
    pub fn still_there(&self) -> Result<(), Error> {
        let gone = |message: &str| {
            Error::new(Kind::Gone, message)
                .hint("what was captured before is kept; start another capture for the new server")
        };
        if procfs::parent_and_start(self.pid).is_none_or(|(_, start)| start != self.start_ticks) {
            return Err(gone("the server ended during the capture").detail(format!("postmaster {} is gone", self.pid)));
        }
        // the link of the mapping costs a hundredth of the whole map, but needs the right to map it
        let link = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, self.segment.start, self.segment.end);
        if fs::metadata(link).is_ok_and(|m| m.ino() == self.segment.inode) {
            return Ok(());
        }
        let Ok(maps) = procfs::read_maps(self.pid) else {
            return Err(
                gone("the server ended during the capture").detail(format!("postmaster {} has no memory", self.pid))
            );
        };
        let same = maps
            .iter()
            .any(|m| m.start == self.segment.start && m.end == self.segment.end && m.inode == self.segment.inode);
        if !same {
            return Err(gone("the server re-created its shared memory during the capture")
                .detail("a backend crashed, or the server was restarted"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_or_changed_is_noticed() {
        let pid = std::process::id() as i32;
        let (_, start_ticks) = procfs::parent_and_start(pid).unwrap();
        let segment = procfs::read_maps(pid).unwrap().remove(0);
        let same = ServerProcess { pid, start_ticks, segment: segment.clone(), other_namespace: false };
        assert!(same.still_there().is_ok());
        assert_eq!(ServerProcess { start_ticks: 1, ..same.clone() }.still_there().unwrap_err().kind, Kind::Gone);
        let moved = procfs::Mapping { inode: segment.inode + 1, ..segment };
        assert_eq!(ServerProcess { segment: moved, ..same }.still_there().unwrap_err().kind, Kind::Gone);
    }
}

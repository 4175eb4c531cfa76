//! What each process used that has ended, as the kernel tells at its end (taskstats). Short processes that no sample saw are counted here.
//!
//! Source: include/uapi/linux/taskstats.h; it needs version 12 of the structure (Linux 5.19), which says when a whole process ended.

use crate::taskstats::{
    attribute, Accounting, TaskStats, HEADERS, TASKSTATS_TYPE_AGGR_PID, TASKSTATS_TYPE_AGGR_TGID, TASKSTATS_TYPE_STATS,
};
use std::io;

/// The structure says since this version which message is the last one of a process.
const VERSION: u16 = 12;
/// ac_flag: the last task of its thread group.
const AGROUP: u8 = 0x20;
const MESSAGE: usize = 4096;

/// A process that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The process.
    pub pid: i32,
    /// Its parent; 1 (or a subreaper) when the parent ended before it.
    pub ppid: i32,
    /// Its command name.
    pub comm: String,
    /// From its start, or of its last thread, to its end.
    pub lifetime_ns: i64,
    /// Over its life. Faults and bytes are those of its last thread: all of them for a process that had one. Its CPU time lacks what it used
    /// since the scheduler last looked, less than a tick: a process that ends within its first tick may have none.
    pub totals: TaskStats,
}

impl Exit {
    /// From the attributes of a message; None for a thread of a process that goes on, and for what is not understood.
    fn parse(message: &[u8]) -> Option<Exit> {
        let task = attribute(attribute(message, TASKSTATS_TYPE_AGGR_PID)?, TASKSTATS_TYPE_STATS)?;
        let word = |at: usize| Some(u32::from_le_bytes(task.get(at..at + 4)?.try_into().ok()?));
        let version = word(0)? as u16;
        if version < VERSION || task.get(8)? & AGROUP == 0 {
            return None;
        }
        let mut totals = TaskStats::parse(task)?;
        // all threads together, when there were several
        let process = attribute(message, TASKSTATS_TYPE_AGGR_TGID).and_then(|all| attribute(all, TASKSTATS_TYPE_STATS));
        if let Some(all) = process.and_then(TaskStats::parse) {
            totals = TaskStats {
                cpu_delay_total: all.cpu_delay_total,
                cpu_run_virtual_total: all.cpu_run_virtual_total,
                blkio_delay_total: all.blkio_delay_total,
                nvcsw: all.nvcsw,
                nivcsw: all.nivcsw,
                ..totals
            };
        }
        let comm = task.get(80..112)?.split(|b| *b == 0).next().unwrap_or_default();
        let lifetime_us = i64::from_le_bytes(task.get(144..152)?.try_into().ok()?);
        Some(Exit {
            pid: word(368)? as i32, // ac_tgid
            ppid: word(132)? as i32,
            comm: String::from_utf8_lossy(comm).into_owned(),
            lifetime_ns: lifetime_us.saturating_mul(1000),
            totals,
        })
    }
}

/// Follows the ends of all processes of the host.
#[derive(Debug)]
pub struct Exits {
    _socket: Accounting,
    fd: i32,
    buffer: Vec<u8>,
    /// Times that messages were lost because they came faster than they were read.
    pub overruns: u64,
}

impl Exits {
    /// Begins to follow; fails without CAP_NET_ADMIN, in a container, and with a kernel that has no taskstats.
    pub fn open() -> io::Result<Exits> {
        let mut socket = Accounting::open()?;
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
        let fd = socket.follow_exits(&cpus)?;
        Ok(Exits { _socket: socket, fd, buffer: vec![0; MESSAGE], overruns: 0 })
    }

    /// Gives each process that ended since the last call.
    pub fn read(&mut self, mut each: impl FnMut(Exit)) {
        loop {
            let to = self.buffer.as_mut_ptr();
            // SAFETY: receives into a live buffer of the length given.
            let received = unsafe { libc::recv(self.fd, to.cast(), self.buffer.len(), libc::MSG_DONTWAIT) };
            if received < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::ENOBUFS) => self.overruns += 1,
                    Some(libc::EINTR) => {}
                    _ => return,
                }
                continue;
            }
            if received == 0 {
                return;
            }
            let message = self.buffer.get(HEADERS..received as usize);
            if let Some(exit) = message.and_then(Exit::parse) {
                each(exit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    #[allow(clippy::zombie_processes)] // wait4, unlike wait, also tells what it used
    fn a_short_process_is_told_with_its_parent() {
        let mut exits = match Exits::open() {
            Ok(exits) => exits,
            Err(e) => {
                eprintln!("SKIPPED: taskstats needs CAP_NET_ADMIN: {e}");
                return;
            }
        };
        let child =
            Command::new("sh").args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]).spawn().unwrap();
        let pid = child.id() as i32;
        // SAFETY: both are plain numbers.
        let (mut status, mut usage): (i32, libc::rusage) = unsafe { std::mem::zeroed() };
        // SAFETY: wait4 writes into live variables of the types that it wants.
        let ended = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        assert_eq!(ended, pid);
        let mut found = None;
        exits.read(|exit| {
            if exit.pid == pid {
                found = Some(exit);
            }
        });
        let found = found.expect("the message is there when the parent has been told");
        assert_eq!((found.comm.as_str(), found.ppid), ("sh", std::process::id() as i32));
        let ns = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1000;
        let used = ns(usage.ru_utime) + ns(usage.ru_stime);
        let said = found.totals.cpu_run_virtual_total;
        // getrusage tells microseconds; the message comes before the end, and without the time since the last tick
        assert!((used / 2..=used + 2000).contains(&said), "{said} of {used} ns");
        assert!(found.lifetime_ns >= found.totals.cpu_run_virtual_total);
    }

    #[test]
    fn any_bytes_are_no_exit_or_one() {
        for message in [&[][..], &[4, 0, 4, 0], &[255; 64], &[8, 0, 4, 0, 255, 255, 3, 0]] {
            assert_eq!(Exit::parse(message), None);
        }
        let mut task = vec![0u8; 4 + 400];
        task[..4].copy_from_slice(&[0x94, 0x01, 3, 0]); // 404 bytes of statistics
        let mut message = vec![0x98, 0x01, 4, 0];
        message.extend(task);
        assert_eq!(Exit::parse(&message), None, "of a version that does not say when a process ends");
        message[8] = 16;
        message[8 + 8] = AGROUP;
        assert_eq!(Exit::parse(&message).map(|e| e.pid), Some(0));
        message.truncate(200);
        assert_eq!(Exit::parse(&message), None);
    }
}

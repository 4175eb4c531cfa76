//! Kernel accounting of many tasks with one message: the taskstats interface of generic netlink.
//!
//! An answer carries what four /proc files of the task hold. It needs CAP_NET_ADMIN and the host's own pid namespace;
//! without, /proc is read.
//!
//! Source: include/uapi/linux/taskstats.h, genetlink.h, netlink.h of the kernel.

use std::io;

const NETLINK_GENERIC: i32 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const TASKSTATS_CMD_GET: u8 = 1;
const TASKSTATS_CMD_ATTR_PID: u16 = 1;
const TASKSTATS_CMD_ATTR_TGID: u16 = 2;
pub(crate) const TASKSTATS_TYPE_STATS: u16 = 3;
pub(crate) const TASKSTATS_TYPE_AGGR_PID: u16 = 4;
pub(crate) const TASKSTATS_TYPE_AGGR_TGID: u16 = 5;
pub(crate) const HEADERS: usize = 16 + 4; // nlmsghdr, genlmsghdr
/// Tasks asked for with one message: their answers must fit into the socket's receive buffer.
const AT_ONCE: usize = 32;
/// Room for one answer.
const ANSWER: usize = 2048;

/// Totals of a task since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // fields of struct taskstats
pub struct TaskStats {
    /// Run queue time.
    pub cpu_delay_total: i64,
    /// Time on a CPU.
    pub cpu_run_virtual_total: i64,
    pub blkio_delay_total: i64,
    pub ac_minflt: i64,
    pub ac_majflt: i64,
    pub read_char: i64,
    pub write_char: i64,
    pub read_bytes: i64,
    pub write_bytes: i64,
    pub nvcsw: i64,
    pub nivcsw: i64,
}

impl TaskStats {
    /// From the bytes of a struct taskstats; the offsets are part of the kernel's stable interface.
    pub(crate) fn parse(bytes: &[u8]) -> Option<TaskStats> {
        let word = |at: usize| Some(i64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(TaskStats {
            cpu_delay_total: word(24)?,
            cpu_run_virtual_total: word(72)?,
            blkio_delay_total: word(40)?,
            ac_minflt: word(168)?,
            ac_majflt: word(176)?,
            read_char: word(216)?,
            write_char: word(224)?,
            read_bytes: word(248)?,
            write_bytes: word(256)?,
            nvcsw: word(272)?,
            nivcsw: word(280)?,
        })
    }
}

/// An open socket to the accounting.
#[derive(Debug)]
pub struct Accounting {
    fd: i32,
    family: u16,
    sequence: u32,
    requests: Vec<u8>,
    answers: Vec<u8>,
}

impl Accounting {
    /// Opens it; fails without the right, which only the first request shows.
    pub fn open() -> io::Result<Self> {
        // SAFETY: plain socket call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, NETLINK_GENERIC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let answers = vec![0; AT_ONCE * ANSWER];
        let mut accounting = Accounting { fd, family: 0, sequence: 0, requests: Vec::new(), answers };
        // the kernel answers at once; a limit keeps a surprise from stopping the recording
        let limit = libc::timeval { tv_sec: 0, tv_usec: 200_000 };
        // SAFETY: `limit` is a valid timeval of the length given.
        unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const limit).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        let mut id = None;
        let first = accounting.request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0");
        accounting.ask(first, 1, |_, answer| {
            id = attribute(answer, CTRL_ATTR_FAMILY_ID).and_then(|a| a.get(..2)?.try_into().ok());
        })?;
        accounting.family = u16::from_le_bytes(id.ok_or(io::ErrorKind::Unsupported)?);
        let own = accounting.read(&[std::process::id() as i32])?;
        own[0].map(|_| accounting).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    /// The totals of some tasks, named by their pids on this host; None for one that has ended.
    pub fn read(&mut self, pids: &[i32]) -> io::Result<Vec<Option<TaskStats>>> {
        self.read_as(TASKSTATS_CMD_ATTR_PID, TASKSTATS_TYPE_AGGR_PID, pids)
    }

    /// The totals of whole processes: of all their threads, also of those that ended. Of [`TaskStats`] they have CPU time, delays and
    /// switches; faults and bytes are 0.
    pub fn read_processes(&mut self, pids: &[i32]) -> io::Result<Vec<Option<TaskStats>>> {
        self.read_as(TASKSTATS_CMD_ATTR_TGID, TASKSTATS_TYPE_AGGR_TGID, pids)
    }

    fn read_as(&mut self, named_by: u16, answered_as: u16, pids: &[i32]) -> io::Result<Vec<Option<TaskStats>>> {
        let mut found = vec![None; pids.len()];
        for (pids, found) in pids.chunks(AT_ONCE).zip(found.chunks_mut(AT_ONCE)) {
            let first = self.sequence.wrapping_add(1);
            for pid in pids {
                self.request(self.family, TASKSTATS_CMD_GET, named_by, &pid.to_le_bytes());
            }
            self.ask(first, pids.len(), |index, answer| {
                let stats =
                    attribute(answer, answered_as).and_then(|aggregate| attribute(aggregate, TASKSTATS_TYPE_STATS));
                found[index] = stats.and_then(TaskStats::parse);
            })?;
        }
        Ok(found)
    }

    /// Asks for a message about each task that ends on any of these CPUs ("0-7"); they come on this socket, so it answers nothing else from
    /// then on.
    pub(crate) fn follow_exits(&mut self, cpus: &str) -> io::Result<i32> {
        const TASKSTATS_CMD_ATTR_REGISTER_CPUMASK: u16 = 3;
        let room: libc::c_int = 8 << 20;
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            // SAFETY: `room` is a valid int of the length given. Where the right is missing, the smaller room stays.
            unsafe {
                libc::setsockopt(
                    self.fd,
                    libc::SOL_SOCKET,
                    option,
                    (&raw const room).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
        }
        let mask = format!("{}\0", cpus.trim());
        self.request(self.family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, mask.as_bytes());
        let requests = std::mem::take(&mut self.requests);
        // SAFETY: sends from a live buffer of the length given.
        let sent = unsafe { libc::send(self.fd, requests.as_ptr().cast(), requests.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(self.fd)
    }

    /// Adds a request with one attribute to those to send; gives its number.
    fn request(&mut self, family: u16, command: u8, attribute: u16, value: &[u8]) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        let attribute_len = 4 + value.len();
        let total = HEADERS + attribute_len.next_multiple_of(4);
        let message = &mut self.requests;
        let end = message.len() + total;
        message.extend_from_slice(&(total as u32).to_le_bytes());
        message.extend_from_slice(&family.to_le_bytes());
        message.extend_from_slice(&NLM_F_REQUEST.to_le_bytes());
        message.extend_from_slice(&self.sequence.to_le_bytes());
        message.extend_from_slice(&[0; 4]); // port id: the kernel fills it in
        message.extend_from_slice(&[command, 1, 0, 0]);
        message.extend_from_slice(&(attribute_len as u16).to_le_bytes());
        message.extend_from_slice(&attribute.to_le_bytes());
        message.extend_from_slice(value);
        message.resize(end, 0);
        self.sequence
    }

    /// Sends the requests, numbered from `first` on, and gives the attributes of each answer that is no error, with its
    /// index among the requests. One call sends all, and one call receives all: each message alone would cost two.
    fn ask(&mut self, first: u32, count: usize, mut each: impl FnMut(usize, &[u8])) -> io::Result<()> {
        let requests = std::mem::take(&mut self.requests);
        // SAFETY: sends from a live buffer of the length given.
        let sent = unsafe { libc::send(self.fd, requests.as_ptr().cast(), requests.len(), 0) };
        self.requests = requests;
        self.requests.clear();
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answered = 0;
        while answered < count {
            let mut parts: Vec<libc::iovec> = self
                .answers
                .chunks_exact_mut(ANSWER)
                .take(count - answered)
                .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() })
                .collect();
            let mut messages: Vec<libc::mmsghdr> = parts
                .iter_mut()
                .map(|part| {
                    // SAFETY: an all-zero mmsghdr is valid: no name, no control data.
                    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
                    message
                })
                .collect();
            let (to, wait) = (messages.as_mut_ptr(), libc::MSG_WAITFORONE as _);
            // SAFETY: every message points at one live buffer of the length given.
            let received = unsafe { libc::recvmmsg(self.fd, to, messages.len() as u32, wait, std::ptr::null_mut()) };
            if received <= 0 {
                return Err(io::Error::last_os_error());
            }
            for (message, part) in messages.iter().zip(self.answers.chunks_exact(ANSWER)).take(received as usize) {
                let Some(answer) = part.get(..message.msg_len as usize) else { continue };
                let word = |at: usize| Some(u32::from_le_bytes(answer.get(at..at + 4)?.try_into().ok()?));
                let (Some(kind), Some(sequence)) = (word(4), word(8)) else { continue };
                let index = sequence.wrapping_sub(first) as usize;
                if index >= count {
                    continue; // a late answer to a request that timed out
                }
                answered += 1;
                if kind as u16 != NLMSG_ERROR {
                    each(index, answer.get(HEADERS..).unwrap_or_default());
                }
            }
        }
        Ok(())
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        // SAFETY: fd is ours.
        unsafe { libc::close(self.fd) };
    }
}

/// The value of the first attribute of a kind in a list of {u16 length, u16 kind, value, padding to 4}.
pub(crate) fn attribute(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let head = list.get(..4)?;
        let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let kind = u16::from_le_bytes([head[2], head[3]]) & 0x3fff; // the two high bits are flags
        let value = list.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        list = list.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfile::field;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn attributes_are_found_and_bad_lists_end() {
        let list = [5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 2, 0, 1, 2, 3, 4];
        assert_eq!(attribute(&list, 1), Some(&[9u8][..]));
        assert_eq!(attribute(&list, 2), Some(&[1u8, 2, 3, 4][..]));
        assert_eq!(attribute(&list, 3), None);
        assert_eq!(attribute(&[0, 0, 1, 0, 0, 0, 0, 0], 3), None, "a length of zero");
        assert_eq!(attribute(&[255, 255, 1, 0], 1), None);
    }

    #[test]
    fn it_says_what_proc_says() {
        let mut accounting = match Accounting::open() {
            Ok(accounting) => accounting,
            Err(e) => {
                eprintln!("SKIPPED: taskstats needs CAP_NET_ADMIN: {e}");
                return;
            }
        };
        // a child that waits: its counters stand still
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        input.write_all(&[b'x'; 8192]).unwrap();
        output.read_exact(&mut [0; 8192]).unwrap();
        let proc_file = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
        let before = field(&proc_file("status"), "voluntary_ctxt_switches").unwrap();
        let stats = accounting.read(&[child.id() as i32, i32::MAX]).unwrap();
        assert_eq!(stats[1], None, "there is no such process");
        let stats = stats[0].unwrap();
        let after = field(&proc_file("status"), "voluntary_ctxt_switches").unwrap();
        let (io, schedstat) = (proc_file("io"), proc_file("schedstat"));
        drop(input);
        child.wait().unwrap();
        assert!((before..=after).contains(&stats.nvcsw), "{before} {} {after}", stats.nvcsw);
        assert!(stats.write_char >= 8192);
        assert_eq!(stats.read_char, field(&io, "rchar").unwrap() / 1024 * 1024, "the kernel gives whole KiB");
        let of_proc: Vec<i64> = schedstat.split_ascii_whitespace().map(|f| f.parse().unwrap()).collect();
        assert_eq!((stats.cpu_run_virtual_total, stats.cpu_delay_total), (of_proc[0], of_proc[1]));
        let many: Vec<i32> = std::iter::repeat_n(std::process::id() as i32, 3 * AT_ONCE + 1).collect();
        assert!(accounting.read(&many).unwrap().iter().all(Option::is_some));
    }
}

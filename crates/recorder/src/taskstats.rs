//! Kernel accounting of one task with one message: the taskstats interface of generic netlink.
//!
//! One request costs what opening a /proc file does and carries what four of them hold. It needs CAP_NET_ADMIN and the
//! host's own pid namespace; without, [`crate::deltas`] reads /proc.
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
const TASKSTATS_TYPE_STATS: u16 = 3;
const TASKSTATS_TYPE_AGGR_PID: u16 = 4;
const HEADERS: usize = 16 + 4; // nlmsghdr, genlmsghdr

/// Totals of a task since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // fields of struct taskstats
pub struct TaskStats {
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
    fn parse(bytes: &[u8]) -> Option<TaskStats> {
        let word = |at: usize| Some(i64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(TaskStats {
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
    buffer: Vec<u8>,
}

impl Accounting {
    /// Opens it; fails without the right, which only the first request shows.
    pub fn open() -> io::Result<Self> {
        // SAFETY: plain socket call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, NETLINK_GENERIC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut accounting = Accounting { fd, family: 0, sequence: 0, buffer: vec![0; 4096] };
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
        let answer = accounting.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0")?;
        let id = attribute(&answer, CTRL_ATTR_FAMILY_ID).and_then(|a| a.get(..2));
        let id = id.ok_or(io::ErrorKind::Unsupported)?;
        accounting.family = u16::from_le_bytes([id[0], id[1]]);
        accounting.read(std::process::id() as i32)?;
        Ok(accounting)
    }

    /// The totals of one task, named by its pid on this host.
    pub fn read(&mut self, pid: i32) -> io::Result<TaskStats> {
        let answer = self.ask(self.family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_PID, &pid.to_le_bytes())?;
        let stats = attribute(&answer, TASKSTATS_TYPE_AGGR_PID)
            .and_then(|aggregate| attribute(aggregate, TASKSTATS_TYPE_STATS));
        stats.and_then(TaskStats::parse).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Sends one request with one attribute and gives the attributes of the answer.
    fn ask(&mut self, family: u16, command: u8, attribute: u16, value: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let attribute_len = 4 + value.len();
        let total = HEADERS + attribute_len.next_multiple_of(4);
        let mut message = Vec::with_capacity(total);
        message.extend_from_slice(&(total as u32).to_le_bytes());
        message.extend_from_slice(&family.to_le_bytes());
        message.extend_from_slice(&NLM_F_REQUEST.to_le_bytes());
        message.extend_from_slice(&self.sequence.to_le_bytes());
        message.extend_from_slice(&[0; 4]); // port id: the kernel fills it in
        message.extend_from_slice(&[command, 1, 0, 0]);
        message.extend_from_slice(&(attribute_len as u16).to_le_bytes());
        message.extend_from_slice(&attribute.to_le_bytes());
        message.extend_from_slice(value);
        message.resize(total, 0);
        // SAFETY: sends from and receives into live buffers of the lengths given.
        let received = unsafe {
            if libc::send(self.fd, message.as_ptr().cast(), message.len(), 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            libc::recv(self.fd, self.buffer.as_mut_ptr().cast(), self.buffer.len(), 0)
        };
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let answer = &self.buffer[..received as usize];
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let kind = u16::from_le_bytes(answer.get(4..6).ok_or_else(invalid)?.try_into().map_err(|_| invalid())?);
        let sequence = u32::from_le_bytes(answer.get(8..12).ok_or_else(invalid)?.try_into().map_err(|_| invalid())?);
        if kind == NLMSG_ERROR {
            let code = answer.get(16..20).ok_or_else(invalid)?;
            return Err(io::Error::from_raw_os_error(-i32::from_le_bytes([code[0], code[1], code[2], code[3]])));
        }
        if sequence != self.sequence {
            return Err(invalid()); // a late answer to a request that timed out
        }
        Ok(answer.get(HEADERS..).ok_or_else(invalid)?.to_vec())
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        // SAFETY: fd is ours.
        unsafe { libc::close(self.fd) };
    }
}

/// The value of the first attribute of a kind in a list of {u16 length, u16 kind, value, padding to 4}.
fn attribute(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
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
        let stats = accounting.read(child.id() as i32).unwrap();
        let after = field(&proc_file("status"), "voluntary_ctxt_switches").unwrap();
        let io = proc_file("io");
        drop(input);
        child.wait().unwrap();
        assert!((before..=after).contains(&stats.nvcsw), "{before} {} {after}", stats.nvcsw);
        assert!(stats.write_char >= 8192);
        assert_eq!(stats.read_char, field(&io, "rchar").unwrap() / 1024 * 1024, "the kernel gives whole KiB");
        assert!(accounting.read(i32::MAX).is_err());
    }
}

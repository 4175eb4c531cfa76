//! Which files processes map, as perf tells it: needed to read stacks of processes that may be gone when we look.
//!
//! One ring for each CPU, of a software event that never counts: what is wanted is what the kernel says beside it. It tells of
//! all processes of the host.

use std::io;

use leadline_errors::{Error, Kind, Result};
use perf_event_open_sys::bindings;

use crate::ring::{attributes, open_event, records, time_at_end, word, Ring};

/// Something that changed what a process maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It mapped a file, executable.
    Mapped(Mapped),
    /// It was made by `parent`, with the same mappings.
    Forked {
        /// Process that forked.
        parent: u32,
    },
    /// It was given another program: nothing of before is mapped.
    Executed,
    /// It is gone.
    Exited,
}

/// An executable mapping of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Device and inode.
    pub file: (u32, u32, u64),
    /// Path in the process's own view of the file system.
    pub path: String,
}

/// A change, when it happened (ns on CLOCK_MONOTONIC) and of which process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Event {
    pub ts: u64,
    pub pid: u32,
    pub change: Change,
}

/// Bytes of a ring.
const RING: usize = 512 << 10;

/// The rings.
pub struct Sideband {
    rings: Vec<Ring>,
    copy: Vec<u8>,
    /// Events for which a ring had no room.
    pub lost: u64,
}

impl Sideband {
    /// Opens a ring for each CPU that is online.
    ///
    /// # Errors
    /// Kind rights or unsupported: the kernel refuses.
    pub fn open(cpus: &[u32]) -> Result<Sideband> {
        let rings = cpus.iter().map(|cpu| open(*cpu)).collect::<Result<_>>()?;
        Ok(Sideband { rings, copy: Vec::new(), lost: 0 })
    }

    /// Appends what happened since the last time.
    pub fn drain(&mut self, events: &mut Vec<Event>) {
        for ring in &mut self.rings {
            ring.read(&mut self.copy);
            self.lost += parse(&self.copy, events);
        }
    }
}

fn open(cpu: u32) -> Result<Ring> {
    let dummy = u64::from(bindings::PERF_COUNT_SW_DUMMY);
    let sample_type = bindings::PERF_SAMPLE_TID | bindings::PERF_SAMPLE_TIME;
    let mut attr = attributes(bindings::PERF_TYPE_SOFTWARE, dummy, sample_type);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    let event = open_event(&mut attr, -1, cpu).map_err(|e| refused("perf_event_open", &e))?;
    Ring::map(event, RING).map_err(|e| refused("mmap of a perf event", &e))
}

fn refused(call: &str, error: &io::Error) -> Error {
    let denied = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    let kind = if denied { Kind::Rights } else { Kind::Unsupported };
    Error::new(kind, "the kernel does not say which files processes map")
        .detail(format!("{call}: {error}"))
        .hint("run as root, or: setcap cap_perfmon+ep on the Python that runs leadline")
}

/// The bytes that end each record because of sample_id_all: pid, tid, time.
const TRAILER: usize = 16;

/// Reads records; returns how many the kernel says were lost.
fn parse(bytes: &[u8], events: &mut Vec<Event>) -> u64 {
    let mut lost = 0;
    for (kind, misc, record) in records(bytes) {
        if kind == bindings::PERF_RECORD_LOST {
            lost += word(record, 8);
        } else if let Some((pid, change)) = change(kind, misc, record) {
            events.push(Event { ts: time_at_end(record), pid, change });
        }
    }
    lost
}

fn change(kind: u32, misc: u32, record: &[u8]) -> Option<(u32, Change)> {
    let half = |at: usize| record.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b));
    let pid = half(0)?;
    match kind {
        bindings::PERF_RECORD_MMAP2 => {
            let name = record.get(64..record.len().checked_sub(TRAILER)?)?;
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            let mapped = Mapped {
                start: word(record, 8),
                len: word(record, 16),
                offset: word(record, 24),
                file: (half(32)?, half(36)?, word(record, 40)),
                path: String::from_utf8_lossy(&name[..end]).into_owned(),
            };
            Some((pid, Change::Mapped(mapped)))
        }
        // A thread has the process of its maker.
        bindings::PERF_RECORD_FORK if pid != half(4)? => Some((pid, Change::Forked { parent: half(4)? })),
        bindings::PERF_RECORD_COMM if misc & bindings::PERF_RECORD_MISC_COMM_EXEC != 0 => Some((pid, Change::Executed)),
        bindings::PERF_RECORD_EXIT if pid == half(8)? => Some((pid, Change::Exited)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, words: &[u64], name: &[u8], ts: u64) -> Vec<u8> {
        let mut body: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        body.extend(name);
        body.extend([0; 8]);
        body.extend(ts.to_ne_bytes());
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend(misc.to_ne_bytes());
        out.extend((body.len() as u16 + 8).to_ne_bytes());
        out.extend(body);
        out
    }

    fn pair(low: u64, high: u64) -> u64 {
        low | high << 32
    }

    #[test]
    fn mappings_forks_and_execs_are_read_and_losses_counted() {
        let mut bytes = record(
            bindings::PERF_RECORD_MMAP2,
            0,
            &[pair(7, 8), 0x1000, 0x2000, 0x3000, pair(254, 1), 99, 0, pair(5, 2)],
            b"/bin/sh\0",
            50,
        );
        bytes.extend(record(bindings::PERF_RECORD_FORK, 0, &[pair(9, 7), pair(9, 7), 60], b"", 61));
        bytes.extend(record(bindings::PERF_RECORD_FORK, 0, &[pair(9, 9), pair(10, 9), 60], b"", 62)); // a thread
        bytes.extend(record(bindings::PERF_RECORD_LOST, 0, &[1, 12], b"", 63));
        bytes.extend(record(bindings::PERF_RECORD_COMM, 0x2000, &[pair(9, 9)], b"ls\0\0\0\0\0\0", 64));
        bytes.extend(record(bindings::PERF_RECORD_EXIT, 0, &[pair(9, 7), pair(9, 7), 70], b"", 71));
        let mut events = Vec::new();
        assert_eq!(parse(&bytes, &mut events), 12);
        let mapped = Mapped { start: 0x1000, len: 0x2000, offset: 0x3000, file: (254, 1, 99), path: "/bin/sh".into() };
        let expected = [
            (50, 7, Change::Mapped(mapped)),
            (61, 9, Change::Forked { parent: 7 }),
            (64, 9, Change::Executed),
            (71, 9, Change::Exited),
        ];
        assert_eq!(events, expected.map(|(ts, pid, change)| Event { ts, pid, change }));
    }

    #[test]
    fn records_that_are_cut_are_not_read() {
        let whole = record(bindings::PERF_RECORD_MMAP2, 0, &[7, 1, 2, 3, 4, 5, 6, 7], b"/bin/sh\0", 50);
        for len in 0..whole.len() {
            let mut events = Vec::new();
            assert_eq!(parse(&whole[..len], &mut events), 0);
            assert_eq!(events, []);
            // A record that says that it is shorter than its kind.
            let mut short = whole[..len].to_vec();
            if let Some(size) = short.get_mut(6..8) {
                size.copy_from_slice(&(len as u16).to_ne_bytes());
            }
            parse(&short, &mut events);
        }
    }
}

//! Rings that perf events of the kernel write into, and the records in them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::{self, perf_event_attr, perf_event_mmap_page};

const PAGE: usize = 4096;

/// An event's ring.
pub struct Ring {
    event: OwnedFd,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is used through &mut.
unsafe impl Send for Ring {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for Ring {}

/// An event's attributes with what all of ours have: times of CLOCK_MONOTONIC, also in records that are no samples.
pub fn attributes(kind: u32, config: u64, sample_type: u32) -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: kind,
        size: size_of::<perf_event_attr>() as u32,
        config,
        sample_type: u64::from(sample_type),
        clockid: libc::CLOCK_MONOTONIC,
        ..perf_event_attr::default()
    };
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr
}

/// Opens an event of a thread (-1: of all) on a CPU.
pub fn open_event(attr: &mut perf_event_attr, tid: i32, cpu: u32) -> io::Result<OwnedFd> {
    let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the structure lives through the call and says its own size.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attr, tid, cpu as i32, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel just gave to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Ring {
    /// Maps the ring of an event. bytes: a power of two, a page or more.
    pub fn map(event: OwnedFd, bytes: usize) -> io::Result<Ring> {
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, event.as_raw_fd());
        // SAFETY: a new mapping at a place that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE + bytes, protection, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { event, base: base.cast(), bytes })
    }

    /// The event, to which others can send their records.
    pub fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Moves what is there into `copy`, in place of what that had.
    pub fn read(&mut self, copy: &mut Vec<u8>) {
        let page = self.base.cast::<perf_event_mmap_page>();
        // SAFETY: the first page of the mapping, which the kernel keeps as this structure; both fields are written whole.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head).load(Ordering::Acquire),
                AtomicU64::from_ptr(&raw mut (*page).data_tail).load(Ordering::Relaxed),
            )
        };
        let bytes = (head.wrapping_sub(tail) as usize).min(self.bytes);
        let from = tail as usize % self.bytes;
        let first = bytes.min(self.bytes - from);
        copy.clear();
        // SAFETY: both parts lie in the data pages; the kernel does not write them again before data_tail has moved.
        unsafe {
            let data = self.base.add(PAGE);
            copy.extend_from_slice(std::slice::from_raw_parts(data.add(from), first));
            copy.extend_from_slice(std::slice::from_raw_parts(data, bytes - first));
            AtomicU64::from_ptr(&raw mut (*page).data_tail).store(head, Ordering::Release);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, which nothing else uses.
        unsafe { libc::munmap(self.base.cast(), PAGE + self.bytes) };
    }
}

/// A record: kind, further bits, and what follows the header.
pub type Raw<'a> = (u32, u32, &'a [u8]);

/// The whole records in bytes.
pub fn records(mut bytes: &[u8]) -> impl Iterator<Item = Raw<'_>> {
    std::iter::from_fn(move || {
        let [a, b, c, d, e, f, g, h] = *bytes.first_chunk::<8>()?;
        let size = usize::from(u16::from_ne_bytes([g, h]));
        let record = bytes.get(8..size)?;
        bytes = bytes.get(size..)?;
        Some((u32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([e, f]).into(), record))
    })
}

/// The 8 bytes at a place; 0 when the record is shorter.
pub fn word(record: &[u8], at: usize) -> u64 {
    record.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
}

/// The 4 bytes at a place likewise.
pub fn half(record: &[u8], at: usize) -> u32 {
    record.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// The time that ends every record but samples.
pub fn time_at_end(record: &[u8]) -> u64 {
    record.len().checked_sub(8).map_or(0, |at| word(record, at))
}

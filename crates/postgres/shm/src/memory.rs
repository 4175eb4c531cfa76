//! Bytes at addresses of another process. Three kinds: a read-only mapping of the shared segment (plain loads, no
//! syscalls), `process_vm_readv`, and made-up memory for tests.
//!
//! What is read changes under us: the server writes while we look. Nothing read here is trusted as an address, length or
//! count before it has been checked against the segment; a wild address is a [`Fault`], never a crash.

use std::ffi::CString;
use std::io;

/// An address that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The address.
    pub addr: u64,
}

/// Result of a read.
pub type Read<T> = std::result::Result<T, Fault>;

/// Something bytes can be read from by the server's addresses.
pub trait Memory {
    /// Fills `buf` from `addr` on, or faults and leaves `buf` in any state.
    fn read(&self, addr: u64, buf: &mut [u8]) -> Read<()>;

    /// One little-endian u32.
    fn u32(&self, addr: u64) -> Read<u32> {
        let mut bytes = [0; 4];
        self.read(addr, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// One little-endian u64.
    fn u64(&self, addr: u64) -> Read<u64> {
        let mut bytes = [0; 8];
        self.read(addr, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// One byte.
    fn u8(&self, addr: u64) -> Read<u8> {
        let mut bytes = [0; 1];
        self.read(addr, &mut bytes)?;
        Ok(bytes[0])
    }

    /// A NUL-terminated string of at most `max` bytes, appended to `out` without the NUL.
    fn c_string(&self, addr: u64, max: usize, out: &mut Vec<u8>) -> Read<()> {
        let (start, mut done) = (out.len(), 0);
        while done < max {
            // up to the next line of the cache, so that a string at the end of a segment does not fault
            let at = addr.checked_add(done as u64).ok_or(Fault { addr })?;
            let len = (64 - (at % 64) as usize).min(max - done);
            out.resize(start + done + len, 0);
            let line = &mut out[start + done..];
            self.read(at, line)?;
            if let Some(end) = memchr::memchr(0, line) {
                out.truncate(start + done + end);
                return Ok(());
            }
            done += len;
        }
        Ok(())
    }

    /// The u32 at `addr`, `addr + stride`, ...; one syscall a thousand where each read is a syscall.
    fn u32_column(&self, addr: u64, stride: u64, count: u32) -> Read<Vec<u32>> {
        (0..u64::from(count)).map(|i| self.u32(addr + i * stride)).collect()
    }

    /// Says that the line at this address will be read soon. Only a mapping gains from it.
    #[inline]
    fn prefetch(&self, _addr: u64) {}

    /// Called once before each pass, with the ranges the pass reads everywhere; memory that pays per read copies them now.
    fn prepare(&mut self, _ranges: &[(u64, usize)]) {}
}

/// The shared segment mapped read-only into this process through `/proc/PID/map_files`.
///
/// Needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. The mapping outlives the server; whether the server still uses this
/// segment is the business of [`crate::process::ServerProcess::still_there`].
#[derive(Debug)]
pub struct MappedSegment {
    start: u64,
    len: usize,
    at: *const u8,
}

// SAFETY: the mapping is read-only and lives as long as the value; nothing in it is thread-bound.
unsafe impl Send for MappedSegment {}
// SAFETY: as above; all access is by reading.
unsafe impl Sync for MappedSegment {}

impl MappedSegment {
    /// Maps `start..end` of process `pid`, which must be one line of its maps.
    pub fn open(pid: i32, start: u64, end: u64) -> io::Result<Self> {
        let path = CString::new(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))?;
        let len = usize::try_from(end - start).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: plain open of a NUL-terminated path.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh read-only mapping of `len` bytes; the result is checked. The fd may be closed afterwards.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        let error = io::Error::last_os_error();
        // SAFETY: fd is ours.
        unsafe { libc::close(fd) };
        if at == libc::MAP_FAILED {
            return Err(error);
        }
        Ok(MappedSegment { start, len, at: at.cast() })
    }

    #[inline]
    fn locate(&self, addr: u64, len: usize) -> Read<*const u8> {
        let offset = addr.wrapping_sub(self.start);
        if addr < self.start || offset > self.len as u64 || (self.len as u64 - offset) < len as u64 {
            return Err(Fault { addr });
        }
        // SAFETY: offset..offset + len lies inside the mapping.
        Ok(unsafe { self.at.add(offset as usize) })
    }
}

impl Drop for MappedSegment {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, not used after this.
        unsafe { libc::munmap(self.at as *mut _, self.len) };
    }
}

impl Memory for MappedSegment {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Read<()> {
        let from = self.locate(addr, buf.len())?;
        // SAFETY: in bounds; bytes have no invalid values. Another process may write meanwhile: callers expect torn reads.
        unsafe { std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len()) };
        Ok(())
    }

    #[inline]
    fn prefetch(&self, addr: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(at) = self.locate(addr, 1) {
            // SAFETY: a prefetch reads nothing and never faults; the address is inside the mapping anyway.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast()) };
        }
    }

    #[inline]
    fn u32(&self, addr: u64) -> Read<u32> {
        let from = self.locate(addr, 4)?;
        if !addr.is_multiple_of(4) {
            return Err(Fault { addr });
        }
        // SAFETY: in bounds and aligned (the segment starts on a page).
        Ok(u32::from_le(unsafe { from.cast::<u32>().read_volatile() }))
    }

    #[inline]
    fn u64(&self, addr: u64) -> Read<u64> {
        let from = self.locate(addr, 8)?;
        if !addr.is_multiple_of(8) {
            return Err(Fault { addr });
        }
        // SAFETY: in bounds and aligned (the segment starts on a page).
        Ok(u64::from_le(unsafe { from.cast::<u64>().read_volatile() }))
    }
}

/// The memory of one process through `process_vm_readv`: private and shared. One syscall a read.
#[derive(Debug, Clone)]
pub struct ProcessMemory {
    /// The process read from.
    pub pid: i32,
}

impl ProcessMemory {
    /// Reads several ranges with one syscall into `buf`, one after the other. All or nothing.
    pub fn read_ranges(&self, ranges: &[(u64, usize)], buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        for chunk in ranges.chunks(libc::UIO_MAXIOV as usize) {
            let len: usize = chunk.iter().map(|r| r.1).sum();
            let remote: Vec<libc::iovec> =
                chunk.iter().map(|&(addr, len)| libc::iovec { iov_base: addr as *mut _, iov_len: len }).collect();
            let target = buf.get_mut(done..done + len).ok_or(io::ErrorKind::InvalidInput)?;
            let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: len };
            // SAFETY: `local` is a live buffer of `len` bytes; remote addresses are checked by the kernel.
            let n = unsafe { libc::process_vm_readv(self.pid, &local, 1, remote.as_ptr(), remote.len() as u64, 0) };
            if n < 0 {
                return Err(io::Error::last_os_error());
            }
            if n as usize != len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += len;
        }
        Ok(())
    }
}

impl Memory for ProcessMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Read<()> {
        self.read_ranges(&[(addr, buf.len())], buf).map_err(|_| Fault { addr })
    }
}

/// `process_vm_readv` with a copy of the ranges a pass reads, made by one call, so that a pass costs few syscalls.
#[derive(Debug)]
pub struct CopiedMemory {
    process: ProcessMemory,
    /// (address, length, place in `bytes`), ascending.
    ranges: Vec<(u64, usize, usize)>,
    bytes: Vec<u8>,
}

impl CopiedMemory {
    /// Reads from `pid`.
    pub fn new(pid: i32) -> Self {
        CopiedMemory { process: ProcessMemory { pid }, ranges: Vec::new(), bytes: Vec::new() }
    }

    fn copied(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let after = self.ranges.partition_point(|r| r.0 <= addr);
        let &(start, size, place) = self.ranges.get(after.checked_sub(1)?)?;
        let offset = usize::try_from(addr - start).ok()?;
        if offset.checked_add(len)? > size {
            return None;
        }
        self.bytes.get(place + offset..place + offset + len)
    }
}

impl Memory for CopiedMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Read<()> {
        match self.copied(addr, buf.len()) {
            Some(found) => {
                buf.copy_from_slice(found);
                Ok(())
            }
            None => self.process.read(addr, buf),
        }
    }

    fn u32_column(&self, addr: u64, stride: u64, count: u32) -> Read<Vec<u32>> {
        let ranges: Vec<(u64, usize)> = (0..u64::from(count)).map(|i| (addr + i * stride, 4)).collect();
        let mut bytes = vec![0; ranges.len() * 4];
        self.process.read_ranges(&ranges, &mut bytes).map_err(|_| Fault { addr })?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    fn prepare(&mut self, ranges: &[(u64, usize)]) {
        self.ranges.clear();
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable();
        self.bytes.resize(sorted.iter().map(|r| r.1).sum(), 0);
        if self.process.read_ranges(&sorted, &mut self.bytes).is_err() {
            return; // reads fall through to the process and fault there
        }
        let mut place = 0;
        for (addr, len) in sorted {
            self.ranges.push((addr, len, place));
            place += len;
        }
    }
}

/// Either way to the shared segment, chosen at attach.
#[derive(Debug)]
pub enum SharedMemory {
    /// Mapped: no syscalls.
    Mapped(MappedSegment),
    /// Copied before each pass.
    Copied(CopiedMemory),
}

impl SharedMemory {
    /// Each read is a syscall unless it was prepared.
    pub fn pays_per_read(&self) -> bool {
        matches!(self, SharedMemory::Copied(_))
    }
}

impl Memory for SharedMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Read<()> {
        match self {
            SharedMemory::Mapped(m) => m.read(addr, buf),
            SharedMemory::Copied(m) => m.read(addr, buf),
        }
    }
    #[inline]
    fn u32(&self, addr: u64) -> Read<u32> {
        match self {
            SharedMemory::Mapped(m) => m.u32(addr),
            SharedMemory::Copied(m) => m.u32(addr),
        }
    }
    #[inline]
    fn u64(&self, addr: u64) -> Read<u64> {
        match self {
            SharedMemory::Mapped(m) => m.u64(addr),
            SharedMemory::Copied(m) => m.u64(addr),
        }
    }
    fn u32_column(&self, addr: u64, stride: u64, count: u32) -> Read<Vec<u32>> {
        match self {
            SharedMemory::Mapped(m) => m.u32_column(addr, stride, count),
            SharedMemory::Copied(m) => m.u32_column(addr, stride, count),
        }
    }
    #[inline]
    fn prefetch(&self, addr: u64) {
        if let SharedMemory::Mapped(m) = self {
            m.prefetch(addr);
        }
    }
    fn prepare(&mut self, ranges: &[(u64, usize)]) {
        if let SharedMemory::Copied(m) = self {
            m.prepare(ranges);
        }
    }
}

/// Made-up memory: pieces at addresses. For tests and fuzzing.
#[derive(Debug, Default, Clone)]
pub struct FakeMemory {
    /// (address, bytes); reads across two pieces fault.
    pub pieces: Vec<(u64, Vec<u8>)>,
}

impl FakeMemory {
    /// Writes `bytes` at `addr`, which must lie in one piece.
    pub fn put(&mut self, addr: u64, bytes: &[u8]) {
        for (start, piece) in &mut self.pieces {
            if addr >= *start && addr + bytes.len() as u64 <= *start + piece.len() as u64 {
                let at = (addr - *start) as usize;
                piece[at..at + bytes.len()].copy_from_slice(bytes);
                return;
            }
        }
        panic!("no piece of fake memory at {addr:#x}");
    }

    /// Writes a u32.
    pub fn put_u32(&mut self, addr: u64, value: u32) {
        self.put(addr, &value.to_le_bytes());
    }

    /// Writes a u64.
    pub fn put_u64(&mut self, addr: u64, value: u64) {
        self.put(addr, &value.to_le_bytes());
    }
}

impl Memory for FakeMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Read<()> {
        for (start, piece) in &self.pieces {
            if let Some(offset) = addr.checked_sub(*start).and_then(|o| usize::try_from(o).ok()) {
                if let Some(found) = offset.checked_add(buf.len()).and_then(|end| piece.get(offset..end)) {
                    buf.copy_from_slice(found);
                    return Ok(());
                }
            }
        }
        Err(Fault { addr })
    }
}

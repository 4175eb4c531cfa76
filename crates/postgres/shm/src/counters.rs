//! Running counters in each backend's private memory: buffer and WAL use, also in the middle of a statement.

use crate::attach::Anchors;
use crate::memory::ProcessMemory;
use std::io;

/// pgBufferUsage and pgWalUsage (instrument.h), totals since the backend started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // fields of BufferUsage and WalUsage
pub struct Usage {
    pub shared_blks_hit: i64,
    pub shared_blks_read: i64,
    pub shared_blks_dirtied: i64,
    pub shared_blks_written: i64,
    pub local_blks_read: i64,
    pub local_blks_written: i64,
    pub temp_blks_read: i64,
    pub temp_blks_written: i64,
    pub wal_records: i64,
    pub wal_fpi: i64,
    pub wal_bytes: i64,
}

/// Reads both structures of one backend with one syscall.
pub fn read_usage(pid: i32, anchors: &Anchors) -> io::Result<Usage> {
    let (Some(buffers), Some(wal)) = (anchors.buffer_usage, anchors.wal_usage) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mut bytes = [0u8; 80 + 24];
    ProcessMemory { pid }.read_ranges(&[(buffers, 80), (wal, 24)], &mut bytes)?;
    let mut words = bytes.chunks_exact(8).map(|w| i64::from_le_bytes(w.try_into().expect("8 bytes")));
    let mut word = || words.next().unwrap_or(0);
    let (shared_blks_hit, shared_blks_read, shared_blks_dirtied, shared_blks_written) =
        (word(), word(), word(), word());
    let (_local_hit, local_blks_read, _local_dirtied, local_blks_written) = (word(), word(), word(), word());
    Ok(Usage {
        shared_blks_hit,
        shared_blks_read,
        shared_blks_dirtied,
        shared_blks_written,
        local_blks_read,
        local_blks_written,
        temp_blks_read: word(),
        temp_blks_written: word(),
        wal_records: word(),
        wal_fpi: word(),
        wal_bytes: word(),
    })
}

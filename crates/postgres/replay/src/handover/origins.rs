//! Progress of replication origins: `pg_logical/replorigin_checkpoint`. Source: `replication/logical/origin.c`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind, Result};

use crate::files::cluster::{reading, Cluster};
use crate::files::control::{u32_at, u64_at};

/// `REPLICATION_STATE_MAGIC`.
const MAGIC: u32 = 0x1257_DADE;
/// `ReplicationStateOnDisk`: number, padding, LSN.
const ENTRY: usize = 16;

/// How far each origin is.
#[derive(Debug)]
pub(crate) struct Origins {
    path: PathBuf,
    lsns: BTreeMap<u16, u64>,
    pub is_changed: bool,
}

impl Origins {
    pub(crate) fn open(root: &Path) -> Result<Origins> {
        let path = root.join("pg_logical/replorigin_checkpoint");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(reading(&path, &e)),
        };
        let mut lsns = BTreeMap::new();
        if !bytes.is_empty() {
            let entries = bytes.get(4..bytes.len().saturating_sub(4)).unwrap_or_default();
            let crc = crc32c::crc32c(&bytes[..bytes.len().saturating_sub(4)]);
            let is_whole = u32_at(&bytes, bytes.len().saturating_sub(4)) == crc && entries.len() % ENTRY == 0;
            if u32_at(&bytes, 0) != MAGIC || !is_whole {
                return Err(Error::new(Kind::Invalid, "the progress of replication origins is damaged")
                    .detail(format!("{} bytes, computed checksum 0x{crc:08x}", bytes.len()))
                    .at(&path));
            }
            lsns.extend(entries.chunks_exact(ENTRY).map(|e| (u16::from_le_bytes([e[0], e[1]]), u64_at(e, 8))));
        }
        Ok(Origins { path, lsns, is_changed: false })
    }

    /// `replorigin_advance`.
    pub(crate) fn advance(&mut self, origin: u16, lsn: u64, may_go_back: bool) {
        // 0 is none, the highest says only that a change did not begin here.
        if origin == 0 || origin == u16::MAX {
            return;
        }
        self.is_changed = true;
        let known = self.lsns.entry(origin).or_insert(lsn);
        if may_go_back || *known < lsn {
            *known = lsn;
        }
    }

    pub(crate) fn drop(&mut self, origin: u16) {
        self.is_changed |= self.lsns.remove(&origin).is_some();
    }

    pub(crate) fn store(&self, cluster: &Cluster) -> Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        for (origin, lsn) in &self.lsns {
            bytes.extend(origin.to_le_bytes());
            bytes.extend([0; 6]);
            bytes.extend(lsn.to_le_bytes());
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        cluster.replace(&self.path, &bytes)
    }
}

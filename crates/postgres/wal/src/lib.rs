//! PostgreSQL's write-ahead log of majors 13 to 18, read without a server.
//!
//! Owns: finding the segments of WAL ([`Wal`]), its records one after the other ([`Reader`], [`Record`]), their names
//! ([`rmgr`]), what they say ([`describe`]), page images ([`image`]), and two things made of all records: [`stats`] and
//! [`export`]. Does not own: names of relations, replay, the command line.
//!
//! The truth is in the server's headers: `access/xlogrecord.h`, `access/xlog_internal.h`, `access/rmgrlist.h` and the
//! `*_xlog.h` of each resource manager. What differs between majors is a row of a table ([`version`], [`rmgr`]), never a copy.

#![deny(unsafe_code)]

pub mod archive;
mod assembled;
mod crc;
pub mod describe;
pub mod export;
pub mod filter;
pub mod history;
pub mod image;
pub mod kept;
#[cfg(test)]
#[path = "../tests/made/mod.rs"]
mod made;
pub mod page;
mod pages;
pub mod parallel;
pub mod print;
pub mod reader;
pub mod record;
pub mod rmgr;
pub mod sampled;
mod segment;
pub mod stats;
pub mod timeline;
pub mod times;
mod unpack;
pub mod version;
pub mod wal;

pub use filter::Filter;
pub use leadline_datadir::{Lsn, RelFile as Relation};
pub use leadline_errors::{Error, Kind, Result};
pub use pages::Pages;
pub use reader::{Again, Ending, Reader};
pub use record::{Block, Decoder, Record};
pub use timeline::Lineage;
pub use unpack::{is_compressed, small_text};
pub use wal::{Range, Wal};

/// A decoder that has no public name of its own, for crates/fuzz.
#[doc(hidden)]
pub mod fuzzing {
    /// Reads a whole record, and hands it out when its headers can be.
    pub fn record(bytes: &[u8], major: u8, read: impl FnOnce(&crate::Record<'_>)) {
        let mut parts = crate::record::Parts::new();
        if bytes.len() >= crate::record::HEADER && parts.parse(bytes, major).is_ok() {
            read(&parts.record(bytes, bytes.len(), &[], 24, 24 + bytes.len() as u64, major));
        }
    }
}

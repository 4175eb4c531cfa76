//! `global/pg_control`: what a data directory's pages are like. Only the few fields that matter for that.
//!
//! Source: src/include/catalog/pg_control.h. The fields used are at the same offsets from 12 to 18.

use crate::part::Wrong;

/// What a data directory says of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Control {
    pub pg_control_version: u32,
    pub blcksz: u32,
    /// Blocks in a file before the next one begins.
    pub relseg_size: u32,
    /// 0: pages have no checksums.
    pub data_checksum_version: u32,
}

const BLCKSZ: usize = 216;

impl Control {
    /// Whether it is that of a server before 12 (and after 8.3), whose fields are at other places.
    pub fn is_older(bytes: &[u8]) -> bool {
        let version = bytes.get(8..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| u32::from_le_bytes(*b));
        (833..1201).contains(&version)
    }

    /// From the file's content.
    ///
    /// # Errors
    /// When it is too short, or block and segment sizes are none that PostgreSQL has.
    pub fn parse(bytes: &[u8]) -> Result<Control, Wrong> {
        let wrong = |what, offset, wanted: &str, found: String| Wrong {
            class: "control",
            what,
            item: None,
            offset,
            wanted: wanted.into(),
            found,
        };
        let u32_at = |what, at: usize| match bytes.get(at..).and_then(|b| b.first_chunk::<4>()) {
            Some(b) => Ok(u32::from_le_bytes(*b)),
            // The place named is one the file has: its end.
            None => {
                let found = format!("a file of {}", bytes.len());
                Err(wrong(what, at.min(bytes.len()), "a file that is longer", found))
            }
        };
        let control = Control {
            pg_control_version: u32_at("pg_control_version", 8)?,
            blcksz: u32_at("blcksz", BLCKSZ)?,
            relseg_size: u32_at("relseg_size", BLCKSZ + 4)?,
            data_checksum_version: u32_at("data_checksum_version", BLCKSZ + 36)?,
        };
        if !(1201..10_000).contains(&control.pg_control_version) {
            let found = control.pg_control_version.to_string();
            return Err(wrong("pg_control_version", 8, "1201 (PostgreSQL 12) or later", found));
        }
        if !control.blcksz.is_power_of_two() || !(1024..=32768).contains(&control.blcksz) {
            return Err(wrong("blcksz", BLCKSZ, "a power of two from 1024 to 32768", control.blcksz.to_string()));
        }
        if control.relseg_size == 0 {
            return Err(wrong("relseg_size", BLCKSZ + 4, "at least 1", "0".into()));
        }
        Ok(control)
    }
}

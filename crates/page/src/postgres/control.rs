//! `global/pg_control`: the state of a data directory, and what its pages are like.
//!
//! ```text
//! ControlFileData: 0 what the server is and does | 40 checkPointCopy | 128 recovery, settings, sizes | nonce | crc
//! ```
//!
//! Source: src/include/catalog/pg_control.h. [`Control`] reads only what says what pages are like, which is at the same
//! offsets from 12 to 18; [`describe_control`] reads all of the versions of 13 to 18.

use leadline_bytes::Endian;

use super::{is_block_size, is_log_block_size, DEFAULT_BLOCK_SIZE};
use crate::part::{FieldKind, Part, Wrong};
use crate::reader::{Flag, Reader};

/// What a data directory says of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Control {
    pub pg_control_version: u32,
    pub blcksz: u32,
    /// Blocks in a file before the next one begins.
    pub relseg_size: u32,
    /// Bytes of a page of the log; the usual number if the file has none that makes sense, as pages can be read without.
    pub xlog_blcksz: u32,
    /// 0: pages have no checksums.
    pub data_checksum_version: u32,
}

const VERSION: usize = 8;
const BLCKSZ: usize = 216;
const RELSEG_SIZE: usize = 220;
const XLOG_BLCKSZ: usize = 224;
const DATA_CHECKSUM_VERSION: usize = 252;

impl Control {
    /// Whether it is that of a server before 12 (and after 8.3), whose fields are at other places.
    pub fn is_older(bytes: &[u8]) -> bool {
        let version = bytes.get(VERSION..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| u32::from_le_bytes(*b));
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
                Err(wrong(what, at.min(bytes.len()), "a longer file", found))
            }
        };
        let control = Control {
            pg_control_version: u32_at("pg_control_version", VERSION)?,
            blcksz: u32_at("blcksz", BLCKSZ)?,
            relseg_size: u32_at("relseg_size", RELSEG_SIZE)?,
            xlog_blcksz: log_block_size(u32_at("xlog_blcksz", XLOG_BLCKSZ)?),
            data_checksum_version: u32_at("data_checksum_version", DATA_CHECKSUM_VERSION)?,
        };
        if !(1201..10_000).contains(&control.pg_control_version) {
            let found = control.pg_control_version.to_string();
            return Err(wrong("pg_control_version", VERSION, "1201 (PostgreSQL 12) or later", found));
        }
        if !is_block_size(control.blcksz) {
            return Err(wrong("blcksz", BLCKSZ, "a power of two from 1024 to 32768", control.blcksz.to_string()));
        }
        if control.relseg_size == 0 {
            return Err(wrong("relseg_size", RELSEG_SIZE, "at least 1", "0".into()));
        }
        Ok(control)
    }
}

/// Bytes of a page of the log by what the file says.
pub(super) fn log_block_size(said: u32) -> u32 {
    if is_log_block_size(said) {
        said
    } else {
        DEFAULT_BLOCK_SIZE
    }
}

/// How a field is stored.
#[derive(Debug, Clone, Copy)]
enum How {
    U32,
    U64,
    I32,
    Truth,
    Real,
    /// Eight bytes, little-endian, unlike that of a page.
    Lsn,
    /// Seconds since 1970.
    Time,
    /// A transaction's number of 64 bits.
    FullXid,
    /// A number that has words.
    Of(&'static [Flag]),
    Bytes(usize),
    Padding(usize),
}

const STATE: &[Flag] = &[
    (0, "DB_STARTUP", "starting up"),
    (1, "DB_SHUTDOWNED", "shut down"),
    (2, "DB_SHUTDOWNED_IN_RECOVERY", "shut down in recovery"),
    (3, "DB_SHUTDOWNING", "shutting down"),
    (4, "DB_IN_CRASH_RECOVERY", "in crash recovery"),
    (5, "DB_IN_ARCHIVE_RECOVERY", "in archive recovery"),
    (6, "DB_IN_PRODUCTION", "in production, or crashed"),
];
const WAL_LEVEL: &[Flag] =
    &[(0, "WAL_LEVEL_MINIMAL", "minimal"), (1, "WAL_LEVEL_REPLICA", "replica"), (2, "WAL_LEVEL_LOGICAL", "logical")];
const CHECKSUMS: &[Flag] = &[(0, "", "pages have no checksums"), (1, "", "pages have checksums")];

/// First and last version of a field, its name, and how it is stored.
type Row = (u32, u32, &'static str, How);

const BEFORE: &[Row] = &[
    (0, 1800, "system_identifier", How::U64),
    (0, 1800, "pg_control_version", How::U32),
    (0, 1800, "catalog_version_no", How::U32),
    (0, 1800, "state", How::Of(STATE)),
    (0, 1800, "padding", How::Padding(4)),
    (0, 1800, "time", How::Time),
    (0, 1800, "checkPoint", How::Lsn),
];

const CHECKPOINT: &[Row] = &[
    (0, 1800, "redo", How::Lsn),
    (0, 1800, "ThisTimeLineID", How::U32),
    (0, 1800, "PrevTimeLineID", How::U32),
    (0, 1800, "fullPageWrites", How::Truth),
    (0, 1800, "padding", How::Padding(3)),
    (0, 1300, "padding", How::Padding(4)),
    (1700, 1800, "wal_level", How::Of(WAL_LEVEL)),
    (0, 1800, "nextXid", How::FullXid),
    (0, 1800, "nextOid", How::U32),
    (0, 1800, "nextMulti", How::U32),
    (0, 1800, "nextMultiOffset", How::U32),
    (0, 1800, "oldestXid", How::U32),
    (0, 1800, "oldestXidDB", How::U32),
    (0, 1800, "oldestMulti", How::U32),
    (0, 1800, "oldestMultiDB", How::U32),
    (0, 1800, "padding", How::Padding(4)),
    (0, 1800, "time", How::Time),
    (0, 1800, "oldestCommitTsXid", How::U32),
    (0, 1800, "newestCommitTsXid", How::U32),
    (0, 1800, "oldestActiveXid", How::U32),
    (0, 1800, "padding", How::Padding(4)),
];

const AFTER: &[Row] = &[
    (0, 1800, "unloggedLSN", How::Lsn),
    (0, 1800, "minRecoveryPoint", How::Lsn),
    (0, 1800, "minRecoveryPointTLI", How::U32),
    (0, 1800, "padding", How::Padding(4)),
    (0, 1800, "backupStartPoint", How::Lsn),
    (0, 1800, "backupEndPoint", How::Lsn),
    (0, 1800, "backupEndRequired", How::Truth),
    (0, 1800, "padding", How::Padding(3)),
    (0, 1800, "wal_level", How::Of(WAL_LEVEL)),
    (0, 1800, "wal_log_hints", How::Truth),
    (0, 1800, "padding", How::Padding(3)),
    (0, 1800, "MaxConnections", How::I32),
    (0, 1800, "max_worker_processes", How::I32),
    (0, 1800, "max_wal_senders", How::I32),
    (0, 1800, "max_prepared_xacts", How::I32),
    (0, 1800, "max_locks_per_xact", How::I32),
    (0, 1800, "track_commit_timestamp", How::Truth),
    (0, 1800, "padding", How::Padding(3)),
    (0, 1800, "maxAlign", How::U32),
    (0, 1800, "floatFormat", How::Real),
    (0, 1800, "blcksz", How::U32),
    (0, 1800, "relseg_size", How::U32),
    (0, 1800, "xlog_blcksz", How::U32),
    (0, 1800, "xlog_seg_size", How::U32),
    (0, 1800, "nameDataLen", How::U32),
    (0, 1800, "indexMaxKeys", How::U32),
    (0, 1800, "toast_max_chunk_size", How::U32),
    (0, 1800, "loblksize", How::U32),
    (0, 1800, "float8ByVal", How::Truth),
    (0, 1800, "padding", How::Padding(3)),
    (0, 1800, "data_checksum_version", How::Of(CHECKSUMS)),
    (1800, 1800, "default_char_signedness", How::Truth),
    (0, 1800, "mock_authentication_nonce", How::Bytes(32)),
    (1800, 1800, "padding", How::Padding(3)),
];

/// The versions whose fields are known: 13 to 16, 17, 18.
const VERSIONS: [u32; 3] = [1300, 1700, 1800];

/// The control file taken apart: its parts, what cannot be, and the checksum as it should be (0 when there is none).
///
/// Never fails. Of a version that is not known only its beginning is read, which is the same in all.
pub fn describe_control(bytes: &[u8]) -> (Vec<Part>, Vec<Wrong>, u32) {
    let part = |name, start, kind| Reader::new(bytes, Endian::Little, name, kind, start, bytes.len());
    let mut wrong = Vec::new();
    let version = bytes.get(VERSION..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
    let mut before = part("ControlFileData", 0, FieldKind::Header);
    if !VERSIONS.contains(&version) {
        wrong.extend(fields(&mut before, BEFORE, 0).err());
        if wrong.is_empty() {
            let (wanted, found) = ("1300 (13 to 16), 1700 (17) or 1800 (18)".into(), version.to_string());
            wrong.push(Wrong { class: "control", what: "pg_control_version", item: None, offset: 8, wanted, found });
        }
        return (vec![ended(before)], wrong, 0);
    }
    let outcome = fields(&mut before, BEFORE, version);
    let mut copy = part("checkPointCopy", before.offset(), FieldKind::Meta);
    let outcome = outcome.and_then(|()| fields(&mut copy, CHECKPOINT, version));
    let mut after = part("ControlFileData", copy.offset(), FieldKind::Header);
    let outcome = outcome.and_then(|()| fields(&mut after, AFTER, version));
    let crc = crc32c::crc32c(bytes.get(..after.offset()).unwrap_or_default());
    let offset = after.offset();
    match outcome.and_then(|()| after.u32("crc")) {
        Ok(stored) if stored == crc => {}
        Ok(stored) => {
            let (wanted, found) = (format!("{crc:#010x}"), format!("{stored:#010x}"));
            wrong.push(Wrong { class: "checksum", what: "crc", item: None, offset, wanted, found });
        }
        Err(truncated) => wrong.push(truncated),
    }
    let mut end = part("end of file", after.offset(), FieldKind::Free);
    end.bytes_to("rest", FieldKind::Free, bytes.len());
    // One structure with another one in its middle.
    let (mut file, after) = (ended(before), ended(after));
    file.end = after.end;
    file.fields.extend(after.fields);
    (vec![file, ended(copy), ended(end)], wrong, crc)
}

/// A part ends where its fields do.
fn ended(reader: Reader<'_>) -> Part {
    let end = reader.offset();
    Part { end, ..reader.finish() }
}

fn fields(r: &mut Reader<'_>, rows: &[Row], version: u32) -> Result<(), Wrong> {
    for (since, until, name, how) in rows {
        if !(*since..=*until).contains(&version) {
            continue;
        }
        match how {
            How::U32 => drop(r.u32(name)?),
            How::U64 => drop(r.u64(name)?),
            How::I32 => drop(r.i32(name)?),
            How::Truth => drop(r.truth(name)?),
            How::Real => drop(r.f64(name)?),
            How::Lsn => drop(r.lsn64(name)?),
            How::Bytes(len) => drop(r.bytes(name, *len)?),
            How::Padding(len) => {
                let end = r.offset() + len;
                r.bytes_to(name, FieldKind::Padding, end);
            }
            How::Time => {
                let seconds = r.i64(name)?;
                r.words(utc(seconds));
            }
            How::FullXid => {
                let xid = r.u64(name)?;
                r.words(format!("epoch {}, xid {}", xid >> 32, xid & 0xffff_ffff));
            }
            How::Of(words) => {
                let number = r.u32(name)?;
                let found = words.iter().find(|w| w.0 == number);
                r.words(found.map_or_else(|| "not known".into(), |w| w.2.to_owned()));
            }
        }
    }
    Ok(())
}

/// Seconds since 1970 as date and time; nothing for what no server writes.
fn utc(seconds: i64) -> String {
    let (mut day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    if !(0..4_000_000).contains(&day) {
        return String::new();
    }
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a version, with its checksum.
    fn file(version: u32) -> Vec<u8> {
        let mut file = vec![0; 8192];
        for (at, value) in [(8, version), (16, 6), (24, 951_782_400), (172, 1), (216, 8192), (220, 131_072)] {
            file[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let crc_at = if version == 1800 { 292 } else { 288 };
        let crc = crc32c::crc32c(&file[..crc_at]);
        file[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        file
    }

    #[test]
    fn fields_are_where_the_short_reader_looks_and_a_changed_byte_is_found() {
        for version in VERSIONS {
            let mut bytes = file(version);
            let (parts, wrong, _) = describe_control(&bytes);
            assert_eq!(wrong, [], "{version}");
            let place = |part: usize, name: &str| parts[part].field(name).map(|f| f.start);
            assert_eq!(
                (place(1, "redo"), place(1, "nextXid"), place(1, "nextMultiOffset")),
                (Some(40), Some(64), Some(80))
            );
            assert_eq!(
                (place(0, "blcksz"), place(0, "data_checksum_version")),
                (Some(BLCKSZ), Some(DATA_CHECKSUM_VERSION))
            );
            assert_eq!(place(0, "unloggedLSN"), Some(128));
            assert_eq!(place(1, "wal_level"), (version >= 1700).then_some(60));
            assert_eq!(parts[0].field("time").map(|f| f.words.as_str()), Some("2000-02-29 00:00:00 UTC"));
            assert_eq!(crate::regions(&parts, bytes.len()).iter().filter(|r| r.field == "unused").count(), 0);
            bytes[100] ^= 1;
            assert_eq!(describe_control(&bytes).1[0].what, "crc");
            for len in 0..400 {
                let (parts, wrong, _) = describe_control(&bytes[..len]);
                assert!(!wrong.is_empty() && wrong[0].offset <= len && parts.iter().all(|p| p.end <= len), "{len}");
            }
        }
        let (parts, wrong, _) = describe_control(&file(1903));
        assert_eq!((parts.len(), wrong[0].what), (1, "pg_control_version"));
    }

    #[test]
    fn times_no_server_writes_have_no_words() {
        assert_eq!(utc(1_709_164_799 + 86_400), "2024-02-29 23:59:59 UTC");
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!((utc(-1), utc(i64::MAX)), (String::new(), String::new()));
    }
}

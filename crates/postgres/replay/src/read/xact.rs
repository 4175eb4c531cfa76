//! What the end of a transaction tells: its numbers, the files it removes, its origin. Only what replay needs, read in place.
//!
//! Source: `ParseCommitRecord`, `ParseAbortRecord` in `access/rmgrdesc/xactdesc.c`; `xl_xact_prepare` in `access/xact.h`.

use leadline_bytes::{Bytes, Endian, Result};
use leadline_datadir::RelFile;
use leadline_wal::rmgr::id;
use leadline_wal::Record;

pub(crate) const COMMIT: u8 = 0x00;
pub(crate) const PREPARE: u8 = 0x10;
pub(crate) const ABORT: u8 = 0x20;
pub(crate) const COMMIT_PREPARED: u8 = 0x30;
pub(crate) const ABORT_PREPARED: u8 = 0x40;
/// Of `xl_info`.
pub(crate) const OPMASK: u8 = 0x70;
const HAS_INFO: u8 = 0x80;

/// Bits of `xinfo`: which parts follow, in this order.
const DBINFO: u32 = 1 << 0;
const SUBXACTS: u32 = 1 << 1;
const RELFILES: u32 = 1 << 2;
const INVALS: u32 = 1 << 3;
const TWOPHASE: u32 = 1 << 4;
const ORIGIN: u32 = 1 << 5;
const GID: u32 = 1 << 7;
const DROPPED_STATS: u32 = 1 << 8;

/// How a transaction ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended<'a> {
    pub is_commit: bool,
    /// It was prepared before.
    pub was_prepared: bool,
    pub xid: u32,
    /// Numbers of four bytes.
    subxacts: &'a [u8],
    /// Of twelve.
    rels: &'a [u8],
    /// Microseconds since 2000, as the server counts.
    pub time: i64,
    /// How far the transaction's origin is: LSN and time.
    pub origin: Option<(u64, i64)>,
}

impl Ended<'_> {
    pub(crate) fn subxacts(&self) -> impl Iterator<Item = u32> + '_ {
        self.subxacts.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Relations whose files are removed.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = RelFile> + '_ {
        let word = |b: &[u8], at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        self.rels.chunks_exact(12).map(move |b| RelFile { spc: word(b, 0), db: word(b, 4), rel: word(b, 8) })
    }

    pub(crate) fn drops_files(&self) -> bool {
        !self.rels.is_empty()
    }
}

/// The end of a transaction that a record tells; none for other records of this resource manager.
pub(crate) fn ended<'a>(record: &Record<'a>) -> Option<Result<Ended<'a>>> {
    match record.info & OPMASK {
        COMMIT | COMMIT_PREPARED | ABORT | ABORT_PREPARED => Some(read(record)),
        _ => None,
    }
}

/// When a transaction committed, from a record that says nothing else.
#[inline]
pub(crate) fn plain_commit(record: &Record<'_>) -> Option<i64> {
    let is_plain = record.rmid == id::XACT && record.info & (OPMASK | HAS_INFO) == COMMIT;
    if !is_plain || record.xid == 0 || record.origin != 0 {
        return None;
    }
    Some(i64::from_le_bytes(*record.main_data().first_chunk()?))
}

fn read<'a>(record: &Record<'a>) -> Result<Ended<'a>> {
    let mut from = Bytes::new(record.main_data(), Endian::Little);
    let op = record.info & OPMASK;
    let mut ended = Ended {
        is_commit: matches!(op, COMMIT | COMMIT_PREPARED),
        was_prepared: matches!(op, COMMIT_PREPARED | ABORT_PREPARED),
        xid: record.xid,
        subxacts: &[],
        rels: &[],
        time: from.i64("xact_time")?,
        origin: None,
    };
    if record.info & HAS_INFO == 0 {
        return Ok(ended);
    }
    let xinfo = from.u32("xinfo")?;
    let has = |bit| xinfo & bit != 0;
    if has(DBINFO) {
        from.take("dbinfo", 8)?;
    }
    if has(SUBXACTS) {
        ended.subxacts = list(&mut from, "subxacts", 4)?;
    }
    if has(RELFILES) {
        ended.rels = list(&mut from, "rels", 12)?;
    }
    if has(DROPPED_STATS) {
        list(&mut from, "dropped stats", if record.major >= 18 { 16 } else { 12 })?;
    }
    if has(INVALS) {
        list(&mut from, "invalidation messages", 16)?;
    }
    if has(TWOPHASE) {
        ended.xid = from.u32("twophase_xid")?;
        if has(GID) {
            let end = from.rest().iter().position(|b| *b == 0).unwrap_or(from.left());
            from.take("gid", (end + 1).min(from.left()))?;
        }
    }
    if has(ORIGIN) {
        ended.origin = Some((from.u64("origin_lsn")?, from.i64("origin_timestamp")?));
    }
    Ok(ended)
}

fn list<'a>(from: &mut Bytes<'a>, what: &'static str, size: usize) -> Result<&'a [u8]> {
    let count = from.u32(what)? as usize;
    from.take(what, count.saturating_mul(size))
}

/// What `XLOG_XACT_PREPARE` tells; its main data is what the file of the prepared transaction holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared<'a> {
    pub xid: u32,
    subxacts: &'a [u8],
    pub origin_lsn: u64,
}

impl Prepared<'_> {
    pub(crate) fn subxacts(&self) -> impl Iterator<Item = u32> + '_ {
        self.subxacts.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}

pub(crate) fn prepared<'a>(record: &Record<'a>) -> Result<Prepared<'a>> {
    let mut from = Bytes::new(record.main_data(), Endian::Little);
    from.take("magic, total_len", 8)?;
    let xid = from.u32("xid")?;
    from.take("database, prepared_at, owner", 16)?;
    let subxacts = from.u32("nsubxacts")? as usize;
    // ncommitrels, nabortrels, ninvalmsgs; since 15 also ncommitstats, nabortstats.
    from.take("counts", if record.major >= 15 { 20 } else { 12 })?;
    from.take("initfileinval", 1)?;
    from.align(2);
    let gid = from.u16("gidlen")?;
    from.align(8);
    let origin_lsn = from.u64("origin_lsn")?;
    from.take("origin_timestamp", 8)?;
    from.take("gid", gid.into())?;
    from.align(8);
    let subxacts = from.take("subxacts", subxacts.saturating_mul(4))?;
    Ok(Prepared { xid, subxacts, origin_lsn })
}

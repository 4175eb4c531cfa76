//! Resource manager Transaction: how transactions end. Source: `access/xact.h`, `access/rmgrdesc/xactdesc.c`.

use leadline_bytes::{Bytes, Result};

use super::fields::{time_text, unix_us, Reading, Value};
use super::inval::{self, Message};
use super::main_data::MainData;
use crate::kept::List;
use crate::record::Record;
use leadline_datadir::Lsn;
use leadline_datadir::RelFile as Relation;

/// Of `xl_info`: the highest bit says that `xinfo` follows.
const OPMASK: u8 = 0x70;
const HAS_INFO: u8 = 0x80;

const COMMIT: u8 = 0x00;
const PREPARE: u8 = 0x10;
const ABORT: u8 = 0x20;
const COMMIT_PREPARED: u8 = 0x30;
const ABORT_PREPARED: u8 = 0x40;
const ASSIGNMENT: u8 = 0x50;
const INVALIDATIONS: u8 = 0x60;

/// Bits of `xinfo`: which parts follow, in this order.
mod xinfo {
    pub(super) const DBINFO: u32 = 1 << 0;
    pub(super) const SUBXACTS: u32 = 1 << 1;
    pub(super) const RELFILELOCATORS: u32 = 1 << 2;
    pub(super) const INVALS: u32 = 1 << 3;
    pub(super) const TWOPHASE: u32 = 1 << 4;
    pub(super) const ORIGIN: u32 = 1 << 5;
    pub(super) const GID: u32 = 1 << 7;
    pub(super) const DROPPED_STATS: u32 = 1 << 8;
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// `commit`, `abort` or `prepare`.
    pub kind: &'static str,
    /// The transaction: of a prepared one its own, not that of the session that ended it.
    pub xid: u32,
    /// Its subtransactions, which end with it.
    pub subxacts: List<u32>,
    /// When, in Unix microseconds.
    pub time: i64,
    /// Database, where the record names it, else 0.
    pub db: u32,
    /// Relations whose files are removed.
    pub dropped: List<Relation>,
    messages: List<Message>,
    xinfo: u32,
    dropped_stats: i32,
    gid: Option<String>,
    origin: Option<(u64, i64)>,
}

/// The outcome a record tells; none for records that end nothing and for ones cut short.
pub(super) fn outcome(record: &Record<'_>) -> Option<Outcome> {
    read(record, &mut MainData::new(record))?.ok()
}

/// Reads what ends a transaction; none for other records.
fn read(record: &Record<'_>, main: &mut MainData<'_, '_>) -> Option<Result<Outcome>> {
    match record.info & OPMASK {
        COMMIT | COMMIT_PREPARED => Some(end(record, "commit", main)),
        ABORT | ABORT_PREPARED => Some(end(record, "abort", main)),
        PREPARE => Some(prepare(record, main)),
        _ => None,
    }
}

/// Where the piece of a long record begins without which it cannot be read to its end, or has a list of which nothing is known.
pub(super) fn missing(record: &Record<'_>) -> Option<usize> {
    let mut main = MainData::new(record);
    match read(record, &mut main)? {
        Ok(o) => o.subxacts.unknown().or_else(|| o.dropped.unknown()).or_else(|| o.messages.unknown()),
        Err(_) => (main.left() > 0).then(|| main.place()),
    }
}

fn relation(bytes: &mut Bytes<'_>) -> Result<Relation> {
    Ok(Relation { spc: bytes.u32("spcOid")?, db: bytes.u32("dbOid")?, rel: bytes.u32("relNumber")? })
}

/// Commit and abort have the same parts; an abort has no messages.
fn end(record: &Record<'_>, kind: &'static str, bytes: &mut MainData<'_, '_>) -> Result<Outcome> {
    let mut out = Outcome { xid: record.xid, ..nothing(kind, unix_us(bytes.i64("xact_time")?)) };
    if record.info & HAS_INFO != 0 {
        out.xinfo = bytes.u32("xinfo")?;
    }
    let has = |bit| out.xinfo & bit != 0;
    if has(xinfo::DBINFO) {
        out.db = bytes.u32("dbId")?;
        bytes.u32("tsId")?;
    }
    if has(xinfo::SUBXACTS) {
        let count = bytes.i32("nsubxacts")?;
        out.subxacts = bytes.list("subxacts", count, 4, |b| b.u32("subxacts"))?;
    }
    if has(xinfo::RELFILELOCATORS) {
        let count = bytes.i32("nrels")?;
        out.dropped = bytes.list("rels", count, 12, relation)?;
    }
    if has(xinfo::DROPPED_STATS) {
        let count = bytes.i32("nitems")?;
        // Since 18 the object has 64 bits.
        let size = if record.major >= 18 { 16 } else { 12 };
        bytes.pass("xl_xact_stats_item", count, size)?;
        out.dropped_stats = count;
    }
    if has(xinfo::INVALS) {
        let count = bytes.i32("nmsgs")?;
        out.messages = inval::messages(bytes, count)?;
    }
    if has(xinfo::TWOPHASE) {
        out.xid = bytes.u32("twophase_xid")?;
        if has(xinfo::GID) {
            out.gid = Some(String::from_utf8_lossy(bytes.text("gid")?).into_owned());
        }
    }
    if has(xinfo::ORIGIN) {
        out.origin = Some((bytes.u64("origin_lsn")?, bytes.i64("origin_timestamp")?));
    }
    Ok(out)
}

fn nothing(kind: &'static str, time: i64) -> Outcome {
    Outcome {
        kind,
        xid: 0,
        subxacts: List::none(),
        time,
        db: 0,
        dropped: List::none(),
        messages: List::none(),
        xinfo: 0,
        dropped_stats: 0,
        gid: None,
        origin: None,
    }
}

/// `xl_xact_prepare`, which is what the file of the prepared transaction holds.
fn prepare(record: &Record<'_>, bytes: &mut MainData<'_, '_>) -> Result<Outcome> {
    bytes.u32("magic")?;
    bytes.u32("total_len")?;
    let xid = bytes.u32("xid")?;
    let db = bytes.u32("database")?;
    let mut out = Outcome { xid, db, ..nothing("prepare", unix_us(bytes.i64("prepared_at")?)) };
    bytes.u32("owner")?;
    let subxacts = bytes.i32("nsubxacts")?;
    let (commit_rels, abort_rels) = (bytes.i32("ncommitrels")?, bytes.i32("nabortrels")?);
    let stats = if record.major >= 15 { (bytes.i32("ncommitstats")?, bytes.i32("nabortstats")?) } else { (0, 0) };
    let messages = bytes.i32("ninvalmsgs")?;
    bytes.pass("initfileinval", 1, 1)?;
    bytes.align(2);
    let gid_length: usize = bytes.u16("gidlen")?.into();
    bytes.align(8);
    out.origin = Some((bytes.u64("origin_lsn")?, bytes.i64("origin_timestamp")?)).filter(|(lsn, _)| *lsn != 0);
    let name = bytes.take("gid", gid_length)?;
    out.gid = Some(String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned());
    bytes.align(8);
    out.subxacts = bytes.list("subxacts", subxacts, 4, |b| b.u32("subxacts"))?;
    bytes.align(8);
    out.dropped = bytes.list("commitrels", commit_rels, 12, relation)?;
    let item = if record.major >= 18 { 16 } else { 12 };
    for (what, count, size) in
        [("abortrels", abort_rels, 12), ("commitstats", stats.0, item), ("abortstats", stats.1, item)]
    {
        bytes.align(8);
        bytes.pass(what, count, size)?;
    }
    bytes.align(8);
    out.messages = bytes.list("invalmsgs", messages, inval::SIZE, inval::parse)?;
    Ok(out)
}

/// Messages of a commit, or of a command inside a transaction (14). Those of PREPARE are told again when it commits.
pub(super) fn messages(record: &Record<'_>) -> List<Message> {
    match record.info & OPMASK {
        COMMIT | COMMIT_PREPARED => outcome(record).map_or_else(List::none, |o| o.messages),
        INVALIDATIONS => inval::after(record, 0),
        _ => List::none(),
    }
}

pub(super) fn describe(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    if let Some(outcome) = read(record, &mut MainData::new(record)) {
        put(to, outcome?);
        return Ok(());
    }
    match record.info & OPMASK {
        ASSIGNMENT => {
            to.u32("xtop")?;
            let count = to.count("nsubxacts")?;
            to.words("subxacts", count)?;
        }
        INVALIDATIONS => {
            let count = to.count("nmsgs")?;
            inval::describe(to, count)?;
        }
        _ => {}
    }
    Ok(())
}

fn put(to: &mut Reading<'_>, o: Outcome) {
    to.put("xact_time", Value::Text(time_text(o.time).into()));
    if o.xinfo & xinfo::TWOPHASE != 0 || o.kind == "prepare" {
        to.put("twophase_xid", Value::Int(o.xid.into()));
    }
    if let Some(gid) = o.gid {
        to.put("gid", Value::Text(gid.into()));
    }
    if o.db != 0 {
        to.put("dbId", Value::Int(o.db.into()));
    }
    to.put_list("subxacts", &o.subxacts, |xid| Value::Int((*xid).into()));
    to.put_list("rels", &o.dropped, |relation| Value::Text(relation.to_string().into()));
    if o.dropped_stats > 0 {
        to.put("dropped_stats", Value::Int(o.dropped_stats.into()));
    }
    to.put_list("msgs", &o.messages, inval::value);
    if let Some((lsn, time)) = o.origin {
        to.put("origin_lsn", Value::Text(Lsn(lsn).to_string().into()));
        to.put("origin_timestamp", Value::Text(time_text(unix_us(time)).into()));
    }
}

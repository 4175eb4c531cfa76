//! Resource manager Transaction: how transactions end. Source: `access/xact.h`, `access/rmgrdesc/xactdesc.c`.

use leadline_bytes::{Bytes, Endian, Result};

use super::fields::{time_text, unix_us, Fields, Reading, Value};
use super::inval::{self, Message};
use crate::lsn::Lsn;
use crate::record::{Record, Relation};

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
    pub subxacts: Vec<u32>,
    /// When, in Unix microseconds.
    pub time: i64,
    /// Database, where the record names it, else 0.
    pub db: u32,
    /// Relations whose files are removed.
    pub dropped: Vec<Relation>,
    messages: Vec<Message>,
    xinfo: u32,
    dropped_stats: usize,
    gid: Option<String>,
    origin: Option<(u64, i64)>,
}

/// The outcome a record tells; none for records that end nothing and for ones cut short.
pub(super) fn outcome(record: &Record<'_>) -> Option<Outcome> {
    let mut bytes = Bytes::new(record.main_data(), Endian::Little);
    match record.info & OPMASK {
        COMMIT | COMMIT_PREPARED => end(record, "commit", &mut bytes).ok(),
        ABORT | ABORT_PREPARED => end(record, "abort", &mut bytes).ok(),
        PREPARE => prepare(record, &mut bytes).ok(),
        _ => None,
    }
}

/// So many things, of which there can be no more than bytes.
fn many<'a, T>(bytes: &mut Bytes<'a>, count: i32, one: impl Fn(&mut Bytes<'a>) -> Result<T>) -> Result<Vec<T>> {
    (0..count.max(0)).map(|_| one(bytes)).collect()
}

fn relation(bytes: &mut Bytes<'_>) -> Result<Relation> {
    Ok(Relation { spc: bytes.u32("spcOid")?, db: bytes.u32("dbOid")?, rel: bytes.u32("relNumber")? })
}

/// Commit and abort have the same parts; an abort has no messages.
fn end(record: &Record<'_>, kind: &'static str, bytes: &mut Bytes<'_>) -> Result<Outcome> {
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
        out.subxacts = many(bytes, count, |b| b.u32("subxacts"))?;
    }
    if has(xinfo::RELFILELOCATORS) {
        let count = bytes.i32("nrels")?;
        out.dropped = many(bytes, count, relation)?;
    }
    if has(xinfo::DROPPED_STATS) {
        let count = bytes.i32("nitems")?;
        // Since 18 the object has 64 bits.
        let size = if record.major >= 18 { 16 } else { 12 };
        out.dropped_stats = many(bytes, count, |b| b.take("xl_xact_stats_item", size).map(|_| ()))?.len();
    }
    if has(xinfo::INVALS) {
        let count = bytes.i32("nmsgs")?.max(0) as usize;
        out.messages = inval::parse_all(bytes, count);
    }
    if has(xinfo::TWOPHASE) {
        out.xid = bytes.u32("twophase_xid")?;
        if has(xinfo::GID) {
            out.gid = Some(gid(bytes)?);
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
        subxacts: Vec::new(),
        time,
        db: 0,
        dropped: Vec::new(),
        messages: Vec::new(),
        xinfo: 0,
        dropped_stats: 0,
        gid: None,
        origin: None,
    }
}

fn gid(bytes: &mut Bytes<'_>) -> Result<String> {
    let rest = bytes.rest();
    let length = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
    let text = String::from_utf8_lossy(bytes.take("gid", length)?).into_owned();
    let _ = bytes.u8("gid");
    Ok(text)
}

/// `xl_xact_prepare`, which is what the file of the prepared transaction holds.
fn prepare(record: &Record<'_>, bytes: &mut Bytes<'_>) -> Result<Outcome> {
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
    bytes.u8("initfileinval")?;
    bytes.align(2);
    let gid_length: usize = bytes.u16("gidlen")?.into();
    bytes.align(8);
    out.origin = Some((bytes.u64("origin_lsn")?, bytes.i64("origin_timestamp")?)).filter(|(lsn, _)| *lsn != 0);
    let mut part = |what, length: i64| {
        let found = bytes.part(what, usize::try_from(length).unwrap_or(0))?;
        bytes.align(8);
        Ok(found)
    };
    let name = part("gid", gid_length as i64)?.rest();
    out.gid = Some(String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned());
    out.subxacts = many(&mut part("subxacts", i64::from(subxacts) * 4)?, subxacts, |b| b.u32("subxacts"))?;
    out.dropped = many(&mut part("commitrels", i64::from(commit_rels) * 12)?, commit_rels, relation)?;
    part("abortrels", i64::from(abort_rels) * 12)?;
    let item = if record.major >= 18 { 16 } else { 12 };
    part("commitstats", i64::from(stats.0) * item)?;
    part("abortstats", i64::from(stats.1) * item)?;
    out.messages = inval::parse_all(&mut part("invalmsgs", i64::from(messages) * 16)?, messages.max(0) as usize);
    Ok(out)
}

/// Messages of a commit, or of a command inside a transaction (14). Those of PREPARE are told again when it commits.
pub(super) fn messages(record: &Record<'_>) -> Vec<Message> {
    match record.info & OPMASK {
        COMMIT | COMMIT_PREPARED => outcome(record).map(|o| o.messages).unwrap_or_default(),
        INVALIDATIONS => {
            let mut bytes = Bytes::new(record.main_data(), Endian::Little);
            let count = bytes.i32("nmsgs").unwrap_or(0).max(0) as usize;
            inval::parse_all(&mut bytes, count)
        }
        _ => Vec::new(),
    }
}

pub(super) fn describe(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    let mut bytes = Bytes::new(record.main_data(), Endian::Little);
    match record.info & OPMASK {
        COMMIT | COMMIT_PREPARED => put(to, end(record, "commit", &mut bytes)?),
        ABORT | ABORT_PREPARED => put(to, end(record, "abort", &mut bytes)?),
        PREPARE => put(to, prepare(record, &mut bytes)?),
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
    to.put("xact_time", Value::Text(time_text(o.time)));
    if o.xinfo & xinfo::TWOPHASE != 0 || o.kind == "prepare" {
        to.put("twophase_xid", Value::Int(o.xid.into()));
    }
    if let Some(gid) = o.gid {
        to.put("gid", Value::Text(gid));
    }
    if o.db != 0 {
        to.put("dbId", Value::Int(o.db.into()));
    }
    if !o.subxacts.is_empty() {
        to.put("subxacts", Value::List(o.subxacts.iter().map(|x| Value::Int((*x).into())).collect()));
    }
    if !o.dropped.is_empty() {
        to.put("rels", Value::List(o.dropped.iter().map(|r| Value::Text(r.to_string())).collect()));
    }
    if o.dropped_stats > 0 {
        to.put("dropped_stats", Value::Int(o.dropped_stats as i64));
    }
    if !o.messages.is_empty() {
        let one = |m: &Message| -> Fields {
            vec![
                ("kind", Value::Text(m.kind.into())),
                ("db", Value::Int(m.db.into())),
                ("object", Value::Int(m.object.into())),
            ]
        };
        to.put("msgs", Value::List(o.messages.iter().map(|m| Value::Fields(one(m))).collect()));
    }
    if let Some((lsn, time)) = o.origin {
        to.put("origin_lsn", Value::Text(Lsn(lsn).to_string()));
        to.put("origin_timestamp", Value::Text(time_text(unix_us(time))));
    }
}

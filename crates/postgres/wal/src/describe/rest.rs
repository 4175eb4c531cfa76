//! Resource managers with a few plain records: Storage, CLOG, Database, Tablespace, MultiXact, RelMap, Standby, CommitTs,
//! ReplicationOrigin, LogicalMessage. Source: the header of each, named at its function.

use leadline_bytes::{Bytes, Endian, Result};

use super::fields::{Reading, Value};
use super::inval::{self, Message};
use super::opcode;
use crate::kept::List;
use crate::record::Record;
use crate::rmgr::id;
use leadline_datadir::RelFile as Relation;

pub(super) fn describe(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    match record.rmid {
        id::SMGR => storage(record, to),
        id::CLOG => clog(record, to),
        id::DBASE => database(record, to),
        id::TBLSPC => tablespace(record, to),
        id::MULTIXACT => multixact(record, to),
        id::RELMAP => {
            to.u32("dbid")?;
            to.u32("tsid")?;
            to.i32("nbytes").map(|_| ())
        }
        id::STANDBY => standby(record, to),
        id::COMMIT_TS => commit_ts(record, to),
        id::REPLORIGIN => origin(record, to),
        id::LOGICALMSG => message(to),
        _ => Ok(()),
    }
}

/// The page of a status file: 64 bits since 17.
fn pageno(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    if record.major >= 17 {
        to.i64("pageno").map(|_| ())
    } else {
        to.i32("pageno").map(|_| ())
    }
}

/// Of [`id::SMGR`].
const TRUNCATE: u8 = 0x20;

/// `catalog/storage_xlog.h`
fn storage(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    match opcode(record) {
        0x10 => {
            to.relation("rel")?;
            let fork = to.count("forkNum")?;
            to.put("fork", Value::Text(["main", "fsm", "vm", "init"].get(fork).copied().unwrap_or("?").into()));
        }
        TRUNCATE => {
            to.u32("blkno")?;
            to.relation("rel")?;
            to.i32("flags")?;
        }
        _ => {}
    }
    Ok(())
}

/// Which relation becomes how many blocks long, when the record cuts off its main fork.
pub(super) fn truncation(record: &Record<'_>) -> Option<(Relation, u32)> {
    const HEAP: i32 = 1;
    let mut bytes = Bytes::new(record.main_data(), Endian::Little);
    let blocks = bytes.u32("blkno").ok()?;
    let mut word = |what| bytes.u32(what).ok();
    let relation = Relation { spc: word("spcOid")?, db: word("dbOid")?, rel: word("relNumber")? };
    let flags = bytes.i32("flags").ok()?;
    (opcode(record) == TRUNCATE && flags & HEAP != 0).then_some((relation, blocks))
}

/// `access/clog.h`
fn clog(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    pageno(record, to)?;
    if opcode(record) == 0x10 {
        to.u32("oldestXact")?;
        to.u32("oldestXactDb")?;
    }
    Ok(())
}

/// `access/commit_ts.h`
fn commit_ts(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    match opcode(record) {
        0x00 => pageno(record, to),
        0x10 => {
            pageno(record, to)?;
            to.u32("oldestXid").map(|_| ())
        }
        _ => Ok(()),
    }
}

/// `commands/dbcommands_xlog.h`: opcodes moved in 15.
fn database(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    match (opcode(record), record.major) {
        (0x00, _) => {
            for name in ["db_id", "tablespace_id", "src_db_id", "src_tablespace_id"] {
                to.u32(name)?;
            }
        }
        (0x10, 15..) => {
            to.u32("db_id")?;
            to.u32("tablespace_id")?;
        }
        (0x10, _) | (0x20, 15..) => {
            to.u32("db_id")?;
            let count = to.count("ntablespaces")?;
            to.words("tablespace_ids", count)?;
        }
        _ => {}
    }
    Ok(())
}

/// `commands/tablespace.h`
fn tablespace(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    to.u32("ts_id")?;
    if opcode(record) == 0x00 {
        to.text("ts_path")?;
    }
    Ok(())
}

/// `access/multixact.h`
fn multixact(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    match opcode(record) {
        0x00 | 0x10 => pageno(record, to)?,
        0x20 => {
            to.u32("mid")?;
            to.u32("moff")?;
            let count = to.count("nmembers")?;
            const STATUS: [&str; 6] = ["keysh", "sh", "fornokeyupd", "forupd", "nokeyupd", "upd"];
            to.list("members", count, |bytes| {
                let (xid, status) = (bytes.u32("xid")?, bytes.u32("status")?);
                let status = STATUS.get(status as usize).copied().unwrap_or("unk");
                Ok(Value::Fields(vec![("xid", Value::Int(xid.into())), ("status", Value::Text(status.into()))]))
            })?;
        }
        0x30 => {
            for name in ["oldestMultiDB", "startTruncOff", "endTruncOff", "startTruncMemb", "endTruncMemb"] {
                to.u32(name)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// `storage/standbydefs.h`
fn standby(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    match opcode(record) {
        0x00 => {
            let count = to.count("nlocks")?;
            to.list("locks", count, |bytes| {
                let fields = [("xid", bytes.u32("xid")?), ("db", bytes.u32("dbOid")?), ("rel", bytes.u32("relOid")?)];
                Ok(Value::Fields(fields.map(|(name, n)| (name, Value::Int(n.into()))).to_vec()))
            })?;
        }
        0x10 => {
            let (xacts, subxacts) = (to.count("xcnt")?, to.count("subxcnt")?);
            to.flag("subxid_overflow")?;
            for name in ["nextXid", "oldestRunningXid", "latestCompletedXid"] {
                to.u32(name)?;
            }
            to.words("xids", xacts)?;
            to.words("subxids", subxacts)?;
        }
        0x20 => {
            to.u32("dbId")?;
            to.u32("tsId")?;
            to.flag("relcacheInitFileInval")?;
            let count = to.count("nmsgs")?;
            inval::describe(to, count)?;
        }
        _ => {}
    }
    Ok(())
}

/// Messages of a session that has no transaction to send them with.
pub(super) fn standby_messages(record: &Record<'_>) -> List<Message> {
    if opcode(record) != 0x20 {
        return List::none();
    }
    inval::after(record, 12)
}

/// `replication/origin.h`
fn origin(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    if opcode(record) == 0x00 {
        to.lsn("remote_lsn")?;
        to.u16("node_id")?;
        to.flag("force")?;
    } else {
        to.u16("node_id")?;
    }
    Ok(())
}

/// `replication/message.h`. The message itself is the user's and is not shown.
fn message(to: &mut Reading<'_>) -> Result<()> {
    to.u32("dbId")?;
    to.flag("transactional")?;
    to.u64("prefix_size")?;
    to.u64("message_size")?;
    to.text("prefix")
}

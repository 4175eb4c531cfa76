//! Resource manager XLOG: checkpoints, switches, settings. Source: `catalog/pg_control.h`, `access/xlog_internal.h`.

use leadline_bytes::Result;

use super::fields::{Reading, Value};
use super::opcode;
use crate::record::Record;
pub(super) use crate::rmgr::xlog::*;

/// Checkpoints and the end of recovery name `wal_level` from here on; it fits a gap, so that nothing moved.
const WAL_LEVEL_SINCE: u8 = 17;

/// Where `CheckPoint.time` is: the same in 13 to 18.
pub(super) const CHECKPOINT_TIME_AT: usize = 64;

pub(super) fn describe(record: &Record<'_>, to: &mut Reading<'_>) -> Result<()> {
    let major = record.major;
    match opcode(record) {
        CHECKPOINT_SHUTDOWN | CHECKPOINT_ONLINE => checkpoint(major, to)?,
        NEXTOID => {
            to.u32("nextOid")?;
        }
        BACKUP_END => to.lsn("startpoint")?,
        PARAMETER_CHANGE => {
            let names = [
                "max_connections",
                "max_worker_processes",
                "max_wal_senders",
                "max_prepared_xacts",
                "max_locks_per_xact",
            ];
            for name in names {
                to.i32(name)?;
            }
            wal_level(to)?;
            to.flag("wal_log_hints")?;
            to.flag("track_commit_timestamp")?;
        }
        RESTORE_POINT => {
            to.time("rp_time")?;
            to.text("rp_name")?;
        }
        FPW_CHANGE => {
            to.flag("full_page_writes")?;
        }
        END_OF_RECOVERY => {
            to.time("end_time")?;
            to.u32("ThisTimeLineID")?;
            to.u32("PrevTimeLineID")?;
            if major >= WAL_LEVEL_SINCE {
                wal_level(to)?;
            }
        }
        OVERWRITE_CONTRECORD => {
            to.lsn("overwritten_lsn")?;
            to.time("overwrite_time")?;
        }
        CHECKPOINT_REDO => wal_level(to)?,
        _ => {}
    }
    Ok(())
}

fn checkpoint(major: u8, to: &mut Reading<'_>) -> Result<()> {
    to.lsn("redo")?;
    to.u32("ThisTimeLineID")?;
    to.u32("PrevTimeLineID")?;
    to.flag("fullPageWrites")?;
    if major >= WAL_LEVEL_SINCE {
        wal_level(to)?;
    }
    to.u64("nextXid")?;
    for name in ["nextOid", "nextMulti", "nextMultiOffset", "oldestXid", "oldestXidDB", "oldestMulti", "oldestMultiDB"]
    {
        to.u32(name)?;
    }
    to.unix_time("time")?;
    for name in ["oldestCommitTsXid", "newestCommitTsXid", "oldestActiveXid"] {
        to.u32(name)?;
    }
    Ok(())
}

fn wal_level(to: &mut Reading<'_>) -> Result<()> {
    let level = to.count("wal_level")?;
    let name = ["minimal", "replica", "logical"].get(level).copied().unwrap_or("?");
    to.put("wal_level", Value::Text(name.into()));
    Ok(())
}

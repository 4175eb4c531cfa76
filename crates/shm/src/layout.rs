//! Where the fields are, per major version: data/layout.csv as one struct of offsets.
//!
//! The offsets are only a claim until [`crate::attach`] has checked them against the running server.

use leadline_errors::{Error, Kind, Result};

const LAYOUT_CSV: &str = include_str!("../data/layout.csv");

/// The majors the table has columns for. 12 is best effort.
pub const MAJORS: std::ops::RangeInclusive<u32> = 12..=18;

/// Offsets in bytes of the fields leadline reads; None where the version has no such field.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // the names are the server's own
pub struct Layout {
    pub major: u32,
    pub proc_size: u64,
    pub proc_latch_owner_pid: u64,
    pub proc_pid: u64,
    pub proc_xid: Option<u64>,
    pub proc_xmin: Option<u64>,
    pub proc_lw_wait_mode: u64,
    pub proc_lw_wait_link: u64,
    pub proc_wait_lock: u64,
    pub proc_wait_lock_mode: u64,
    pub proc_wait_start: Option<u64>,
    pub proc_wait_event_info: u64,
    pub proc_lock_group_leader: u64,
    pub xact_size: Option<u64>,
    pub xact_xid: Option<u64>,
    pub xact_xmin: Option<u64>,
    pub hdr_all_procs: u64,
    pub hdr_all_proc_count: u64,
    pub hdr_all_pgxact: u64,
    pub lw_tranche: u64,
    pub lw_waiters: u64,
    pub lw_padded_size: u64,
    pub buf_size: u64,
    pub buf_buf_id: u64,
    pub buf_state: u64,
    pub buf_content_lock: u64,
    pub be_size: u64,
    pub be_state: u64,
    pub be_appname: u64,
    pub be_activity: u64,
    pub be_query_id: Option<u64>,
    pub be_plan_id: Option<u64>,
    pub be_client_addr: u64,
    pub be_ssl: u64,
    pub lock_proc_locks: u64,
    pub lock_wait_procs: u64,
    pub proclock_hold_mask: u64,
    pub proclock_lock_link: u64,
    pub proclock_group_leader: u64,
    pub buffer_mapping_first: u32,
    pub lock_manager_first: u32,
    pub main_lwlocks: u32,
    pub tranche_buffer_content: u32,
    pub tranche_first_user: u32,
}

/// Rows of a table with a `struct,field,12,13,...` head: the cell of one major.
fn cell(row_struct: &str, row_field: &str, major: u32) -> Option<u64> {
    let mut lines = LAYOUT_CSV.lines().filter(|l| !l.starts_with('#'));
    let column = lines.next()?.split(',').position(|c| c == major.to_string())?;
    let line = lines.find(|l| {
        let mut f = l.split(',');
        f.next() == Some(row_struct) && f.next() == Some(row_field)
    })?;
    line.split(',').nth(column)?.parse().ok()
}

impl Layout {
    /// The layout of a major version.
    pub fn of(major: u32) -> Result<Layout> {
        if !MAJORS.contains(&major) {
            return Err(Error::new(
                Kind::Unsupported,
                format!("leadline has no shared-memory layout for PostgreSQL {major}"),
            )
            .detail(format!("known majors: {} to {}", MAJORS.start(), MAJORS.end()))
            .hint("give a DSN: leadline then samples over SQL"));
        }
        let need = |s: &str, f: &str| {
            cell(s, f, major)
                .ok_or_else(|| Error::new(Kind::Layout, format!("layout table lacks {s}.{f} for PostgreSQL {major}")))
        };
        let have = |s: &str, f: &str| cell(s, f, major);
        // Latch {is_set, [maybe_sleeping 14+], is_shared, owner_pid}: storage/latch.h
        let latch_owner = if major >= 14 { 12 } else { 8 };
        Ok(Layout {
            major,
            proc_size: need("PGPROC", "(sizeof)")?,
            proc_latch_owner_pid: need("PGPROC", "procLatch")? + latch_owner,
            proc_pid: need("PGPROC", "pid")?,
            proc_xid: have("PGPROC", "xid"),
            proc_xmin: have("PGPROC", "xmin"),
            proc_lw_wait_mode: need("PGPROC", "lwWaitMode")?,
            proc_lw_wait_link: need("PGPROC", "lwWaitLink")?,
            proc_wait_lock: need("PGPROC", "waitLock")?,
            proc_wait_lock_mode: need("PGPROC", "waitLockMode")?,
            proc_wait_start: have("PGPROC", "waitStart"),
            proc_wait_event_info: need("PGPROC", "wait_event_info")?,
            proc_lock_group_leader: need("PGPROC", "lockGroupLeader")?,
            xact_size: have("PGXACT", "(sizeof)"),
            xact_xid: have("PGXACT", "xid"),
            xact_xmin: have("PGXACT", "xmin"),
            hdr_all_procs: need("PROC_HDR", "allProcs")?,
            hdr_all_proc_count: need("PROC_HDR", "allProcCount")?,
            hdr_all_pgxact: 8, // second pointer of PROC_HDR up to 13
            lw_tranche: need("LWLock", "tranche")?,
            lw_waiters: need("LWLock", "waiters")?,
            lw_padded_size: need("LWLockPadded", "(sizeof)")?,
            buf_size: need("BufferDescPadded", "(sizeof)")?,
            buf_buf_id: need("BufferDesc", "buf_id")?,
            buf_state: need("BufferDesc", "state")?,
            buf_content_lock: need("BufferDesc", "content_lock")?,
            be_size: need("PgBackendStatus", "(sizeof)")?,
            be_state: need("PgBackendStatus", "st_state")?,
            be_appname: need("PgBackendStatus", "st_appname")?,
            be_activity: need("PgBackendStatus", "st_activity_raw")?,
            be_query_id: have("PgBackendStatus", "st_query_id"),
            be_plan_id: have("PgBackendStatus", "st_plan_id"),
            be_client_addr: need("PgBackendStatus", "st_clientaddr")?,
            be_ssl: need("PgBackendStatus", "st_ssl")?,
            lock_proc_locks: need("LOCK", "procLocks")?,
            lock_wait_procs: need("LOCK", "waitProcs")?,
            proclock_hold_mask: need("PROCLOCK", "holdMask")?,
            proclock_lock_link: need("PROCLOCK", "lockLink")?,
            proclock_group_leader: need("PROCLOCK", "groupLeader")?,
            buffer_mapping_first: need("const", "BUFFER_MAPPING_OFFSET")? as u32,
            lock_manager_first: need("const", "LOCK_MANAGER_OFFSET")? as u32,
            main_lwlocks: need("const", "NUM_FIXED")? as u32,
            tranche_buffer_content: need("const", "BUFFER_CONTENT")? as u32,
            tranche_first_user: need("const", "FIRST_USER")? as u32,
        })
    }

    /// The backend types of the version in the order of the server's enum (miscadmin.h), as pg_stat_activity names them.
    /// None for a value outside it; "" where the server itself shows another name (background workers).
    pub fn backend_type(&self, code: u32) -> Option<&'static str> {
        const UP_TO_15: &[&str] = &[
            "not initialized",
            "autovacuum launcher",
            "autovacuum worker",
            "client backend",
            "",
            "background writer",
            "checkpointer",
            "startup",
            "walreceiver",
            "walsender",
            "walwriter",
            "archiver",
            "stats collector",
            "logger",
        ];
        const FROM_16: &[&str] = &[
            "not initialized",
            "archiver",
            "autovacuum launcher",
            "autovacuum worker",
            "client backend",
            "",
            "background writer",
            "checkpointer",
            "logger",
            "standalone backend",
            "startup",
            "walreceiver",
            "walsender",
            "walwriter",
        ];
        const FROM_17: &[&str] = &[
            "not initialized",
            "client backend",
            "autovacuum launcher",
            "autovacuum worker",
            "",
            "walsender",
            "slotsync worker",
            "standalone backend",
            "archiver",
            "background writer",
            "checkpointer",
            "startup",
            "walreceiver",
            "walsummarizer",
            "walwriter",
            "logger",
        ];
        const FROM_18: &[&str] = &[
            "not initialized",
            "client backend",
            "dead-end client backend",
            "autovacuum launcher",
            "autovacuum worker",
            "",
            "walsender",
            "slotsync worker",
            "standalone backend",
            "archiver",
            "background writer",
            "checkpointer",
            "io worker",
            "startup",
            "walreceiver",
            "walsummarizer",
            "walwriter",
            "logger",
        ];
        let names = match self.major {
            ..=15 => UP_TO_15,
            16 => FROM_16,
            17 => FROM_17,
            _ => FROM_18,
        };
        names.get(code as usize).copied()
    }

    /// leadline's state code (session_run.state) of the server's BackendState, which got STARTING in 18.
    pub fn state_code(&self, raw: u32) -> i32 {
        match (self.major >= 18, raw) {
            (_, 0) => 0,
            (true, 2) | (false, 1) => 3, // STATE_IDLE
            (true, 3) | (false, 2) => 2, // STATE_RUNNING
            (true, 1 | 4..=7) => raw as i32,
            (false, 3..=6) => raw as i32 + 1,
            _ => -1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_major_has_a_whole_layout() {
        for major in MAJORS {
            let l = Layout::of(major).unwrap();
            assert!(l.proc_wait_event_info < l.proc_size, "{major}");
            assert!(l.buf_content_lock + 16 <= l.buf_size, "{major}");
            assert_eq!(l.be_query_id.is_some(), major >= 14);
            assert_eq!(l.be_plan_id.is_some(), major >= 18);
            assert_eq!(l.proc_xmin.is_some(), major >= 14);
            assert_eq!(l.xact_xmin.is_some(), major < 14);
        }
    }

    #[test]
    fn unknown_majors_are_refused_with_a_way_out() {
        for major in [9, 11, 19, 99] {
            let e = Layout::of(major).unwrap_err();
            assert_eq!(e.kind, Kind::Unsupported);
            assert!(e.hint.contains("SQL"));
        }
    }
}

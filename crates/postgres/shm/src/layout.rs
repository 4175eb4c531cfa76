//! Where the fields are, per major version: data/layout.csv as one struct of offsets, which build.rs makes.
//!
//! The offsets are only a claim until [`crate::attach`] has checked them against the running server.

use leadline_errors::{Error, Kind, Result};

include!(concat!(env!("OUT_DIR"), "/layout.rs"));

/// Room for a LOCKTAG or a BufferTag of any version.
pub(crate) const LARGEST_TAG: usize = 32;

impl Layout {
    /// The layout of a major version.
    pub fn of(major: u32) -> Result<Layout> {
        LAYOUTS.into_iter().find(|layout| layout.major == major).ok_or_else(|| {
            Error::new(Kind::Unsupported, format!("the shared-memory layout of PostgreSQL {major} is unknown"))
                .detail(format!("known major versions: {} to {}", MAJORS.start(), MAJORS.end()))
                .hint("give a DSN to sample over SQL instead")
        })
    }

    /// The tranche of the locks on the content of buffers.
    pub fn buffer_content_tranche(&self) -> u32 {
        self.tranche_buffer_content
    }

    /// Where the owner of a PGPROC's latch is.
    pub(crate) fn proc_latch_owner_pid(&self) -> u64 {
        self.proc_latch + self.latch_owner_pid
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
            assert!(l.buf_tag_size.max(l.locktag_size) <= LARGEST_TAG as u64, "{major}");
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

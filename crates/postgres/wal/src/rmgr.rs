//! The names of resource managers and of their records, as `pg_waldump` and `pg_walinspect` print them.
//!
//! Sources: `access/rmgrlist.h` and the `*_identify` functions of `access/rmgrdesc/*.c` of each major.

/// The first number that extensions may register.
pub const CUSTOM: u8 = 128;

/// `xl_info` bits that are the resource manager's own; the low ones belong to the WAL.
pub const OPCODE_MASK: u8 = 0xF0;

/// Built-in resource managers by number; the same from 9.6 to 18.
pub static RMGRS: [&str; 22] = [
    "XLOG",
    "Transaction",
    "Storage",
    "CLOG",
    "Database",
    "Tablespace",
    "MultiXact",
    "RelMap",
    "Standby",
    "Heap2",
    "Heap",
    "Btree",
    "Hash",
    "Gin",
    "Gist",
    "Sequence",
    "SPGist",
    "BRIN",
    "CommitTs",
    "ReplicationOrigin",
    "Generic",
    "LogicalMessage",
];

/// The numbers of [`RMGRS`] that are looked at one by one.
#[allow(missing_docs)]
pub mod id {
    pub const XLOG: u8 = 0;
    pub const XACT: u8 = 1;
    pub const SMGR: u8 = 2;
    pub const CLOG: u8 = 3;
    pub const DBASE: u8 = 4;
    pub const TBLSPC: u8 = 5;
    pub const MULTIXACT: u8 = 6;
    pub const RELMAP: u8 = 7;
    pub const STANDBY: u8 = 8;
    pub const HEAP2: u8 = 9;
    pub const HEAP: u8 = 10;
    pub const BTREE: u8 = 11;
    pub const SEQ: u8 = 15;
    pub const COMMIT_TS: u8 = 18;
    pub const REPLORIGIN: u8 = 19;
    pub const GENERIC: u8 = 20;
    pub const LOGICALMSG: u8 = 21;
}

/// Opcodes of [`id::XLOG`].
#[allow(missing_docs)]
pub mod xlog {
    pub const CHECKPOINT_SHUTDOWN: u8 = 0x00;
    pub const CHECKPOINT_ONLINE: u8 = 0x10;
    pub const NEXTOID: u8 = 0x30;
    pub const BACKUP_END: u8 = 0x50;
    pub const PARAMETER_CHANGE: u8 = 0x60;
    pub const RESTORE_POINT: u8 = 0x70;
    pub const FPW_CHANGE: u8 = 0x80;
    pub const END_OF_RECOVERY: u8 = 0x90;
    pub const OVERWRITE_CONTRECORD: u8 = 0xD0;
    pub const CHECKPOINT_REDO: u8 = 0xE0;
}

/// `XLOG_SWITCH` of [`id::XLOG`]: the rest of its segment is empty.
pub const XLOG_SWITCH: u8 = 0x40;

/// One kind of record: resource manager, opcode, name, first and last major.
pub struct Opcode {
    /// Resource manager.
    pub rmid: u8,
    /// `xl_info & OPCODE_MASK`.
    pub info: u8,
    /// Name.
    pub name: &'static str,
    /// First major of 13 to 18 with this meaning.
    pub since: u8,
    /// Last one.
    pub until: u8,
}

const fn op(rmid: u8, info: u8, name: &'static str) -> Opcode {
    ops(rmid, info, name, 13, 18)
}

const fn ops(rmid: u8, info: u8, name: &'static str, since: u8, until: u8) -> Opcode {
    Opcode { rmid, info, name, since, until }
}

/// Every record of majors 13 to 18.
#[rustfmt::skip]
pub static OPCODES: &[Opcode] = &[
    op(0, 0x00, "CHECKPOINT_SHUTDOWN"), op(0, 0x10, "CHECKPOINT_ONLINE"), op(0, 0x20, "NOOP"), op(0, 0x30, "NEXTOID"),
    op(0, 0x40, "SWITCH"), op(0, 0x50, "BACKUP_END"), op(0, 0x60, "PARAMETER_CHANGE"), op(0, 0x70, "RESTORE_POINT"),
    op(0, 0x80, "FPW_CHANGE"), op(0, 0x90, "END_OF_RECOVERY"), op(0, 0xA0, "FPI_FOR_HINT"), op(0, 0xB0, "FPI"),
    op(0, 0xD0, "OVERWRITE_CONTRECORD"), ops(0, 0xE0, "CHECKPOINT_REDO", 17, 18),
    op(1, 0x00, "COMMIT"), op(1, 0x10, "PREPARE"), op(1, 0x20, "ABORT"), op(1, 0x30, "COMMIT_PREPARED"),
    op(1, 0x40, "ABORT_PREPARED"), op(1, 0x50, "ASSIGNMENT"), ops(1, 0x60, "INVALIDATION", 14, 18),
    op(2, 0x10, "CREATE"), op(2, 0x20, "TRUNCATE"),
    op(3, 0x00, "ZEROPAGE"), op(3, 0x10, "TRUNCATE"),
    ops(4, 0x00, "CREATE", 13, 14), ops(4, 0x00, "CREATE_FILE_COPY", 15, 18), ops(4, 0x10, "DROP", 13, 14),
    ops(4, 0x10, "CREATE_WAL_LOG", 15, 18), ops(4, 0x20, "DROP", 15, 18),
    op(5, 0x00, "CREATE"), op(5, 0x10, "DROP"),
    op(6, 0x00, "ZERO_OFF_PAGE"), op(6, 0x10, "ZERO_MEM_PAGE"), op(6, 0x20, "CREATE_ID"), op(6, 0x30, "TRUNCATE_ID"),
    op(7, 0x00, "UPDATE"),
    op(8, 0x00, "LOCK"), op(8, 0x10, "RUNNING_XACTS"), op(8, 0x20, "INVALIDATIONS"),
    op(9, 0x00, "REWRITE"),
    ops(9, 0x10, "CLEAN", 13, 13), ops(9, 0x10, "PRUNE", 14, 16), ops(9, 0x10, "PRUNE_ON_ACCESS", 17, 18),
    ops(9, 0x20, "FREEZE_PAGE", 13, 13), ops(9, 0x20, "VACUUM", 14, 16), ops(9, 0x20, "PRUNE_VACUUM_SCAN", 17, 18),
    ops(9, 0x30, "CLEANUP_INFO", 13, 13), ops(9, 0x30, "FREEZE_PAGE", 14, 16), ops(9, 0x30, "PRUNE_VACUUM_CLEANUP", 17, 18),
    op(9, 0x40, "VISIBLE"), op(9, 0x50, "MULTI_INSERT"), op(9, 0x60, "LOCK_UPDATED"), op(9, 0x70, "NEW_CID"),
    op(9, 0xD0, "MULTI_INSERT+INIT"),
    op(10, 0x00, "INSERT"), op(10, 0x10, "DELETE"), op(10, 0x20, "UPDATE"), op(10, 0x30, "TRUNCATE"),
    op(10, 0x40, "HOT_UPDATE"), op(10, 0x50, "HEAP_CONFIRM"), op(10, 0x60, "LOCK"), op(10, 0x70, "INPLACE"),
    op(10, 0x80, "INSERT+INIT"), op(10, 0xA0, "UPDATE+INIT"), op(10, 0xC0, "HOT_UPDATE+INIT"),
    op(11, 0x00, "INSERT_LEAF"), op(11, 0x10, "INSERT_UPPER"), op(11, 0x20, "INSERT_META"), op(11, 0x30, "SPLIT_L"),
    op(11, 0x40, "SPLIT_R"), op(11, 0x50, "INSERT_POST"), op(11, 0x60, "DEDUP"), op(11, 0x70, "DELETE"),
    op(11, 0x80, "UNLINK_PAGE"), op(11, 0x90, "UNLINK_PAGE_META"), op(11, 0xA0, "NEWROOT"),
    op(11, 0xB0, "MARK_PAGE_HALFDEAD"), op(11, 0xC0, "VACUUM"), op(11, 0xD0, "REUSE_PAGE"), op(11, 0xE0, "META_CLEANUP"),
    op(12, 0x00, "INIT_META_PAGE"), op(12, 0x10, "INIT_BITMAP_PAGE"), op(12, 0x20, "INSERT"), op(12, 0x30, "ADD_OVFL_PAGE"),
    op(12, 0x40, "SPLIT_ALLOCATE_PAGE"), op(12, 0x50, "SPLIT_PAGE"), op(12, 0x60, "SPLIT_COMPLETE"),
    op(12, 0x70, "MOVE_PAGE_CONTENTS"), op(12, 0x80, "SQUEEZE_PAGE"), op(12, 0x90, "DELETE"), op(12, 0xA0, "SPLIT_CLEANUP"),
    op(12, 0xB0, "UPDATE_META_PAGE"), op(12, 0xC0, "VACUUM_ONE_PAGE"),
    op(13, 0x10, "CREATE_PTREE"), op(13, 0x20, "INSERT"), op(13, 0x30, "SPLIT"), op(13, 0x40, "VACUUM_PAGE"),
    op(13, 0x50, "DELETE_PAGE"), op(13, 0x60, "UPDATE_META_PAGE"), op(13, 0x70, "INSERT_LISTPAGE"),
    op(13, 0x80, "DELETE_LISTPAGE"), op(13, 0x90, "VACUUM_DATA_LEAF_PAGE"),
    op(14, 0x00, "PAGE_UPDATE"), op(14, 0x10, "DELETE"), op(14, 0x20, "PAGE_REUSE"), op(14, 0x30, "PAGE_SPLIT"),
    op(14, 0x60, "PAGE_DELETE"), op(14, 0x70, "ASSIGN_LSN"),
    op(15, 0x00, "LOG"),
    op(16, 0x10, "ADD_LEAF"), op(16, 0x20, "MOVE_LEAFS"), op(16, 0x30, "ADD_NODE"), op(16, 0x40, "SPLIT_TUPLE"),
    op(16, 0x50, "PICKSPLIT"), op(16, 0x60, "VACUUM_LEAF"), op(16, 0x70, "VACUUM_ROOT"), op(16, 0x80, "VACUUM_REDIRECT"),
    op(17, 0x00, "CREATE_INDEX"), op(17, 0x10, "INSERT"), op(17, 0x20, "UPDATE"), op(17, 0x30, "SAMEPAGE_UPDATE"),
    op(17, 0x40, "REVMAP_EXTEND"), op(17, 0x50, "DESUMMARIZE"), op(17, 0x90, "INSERT+INIT"), op(17, 0xA0, "UPDATE+INIT"),
    op(18, 0x00, "ZEROPAGE"), op(18, 0x10, "TRUNCATE"), ops(18, 0x20, "SETTS", 13, 13),
    op(19, 0x00, "SET"), op(19, 0x10, "DROP"),
    op(21, 0x00, "MESSAGE"),
];

/// Whether a server can have such a resource manager.
#[inline]
pub fn is_valid(rmid: u8) -> bool {
    usize::from(rmid) < RMGRS.len() || rmid >= CUSTOM
}

/// The name of a resource manager: `customNNN` for an extension's.
pub fn rmgr_name(rmid: u8) -> String {
    RMGRS.get(usize::from(rmid)).map_or_else(|| format!("custom{rmid:03}"), |name| (*name).to_owned())
}

/// The name of a kind of record; `UNKNOWN (hex)` when the major has none, as the server's own tools print.
pub fn record_type(major: u8, rmid: u8, info: u8) -> String {
    // A commit says in its highest bit that it has more parts; the bit is no part of the kind.
    let kind = if rmid == id::XACT { info & 0x70 } else { info & OPCODE_MASK };
    if rmid == id::GENERIC {
        return "Generic".to_owned();
    }
    let fits = |o: &&Opcode| (o.rmid, o.info) == (rmid, kind) && (o.since..=o.until).contains(&major);
    OPCODES.iter().find(fits).map_or_else(|| format!("UNKNOWN ({:x})", info & OPCODE_MASK), |o| o.name.to_owned())
}

/// Records of one kind share this number; another number is another kind.
#[inline]
pub fn type_id(rmid: u8, info: u8) -> u16 {
    let kind = if rmid == id::XACT { info & 0x70 } else { info & OPCODE_MASK };
    u16::from(rmid) << 4 | u16::from(kind >> 4)
}

/// How many [`type_id`]s there can be.
pub const TYPES: usize = 256 * 16;

/// The names of a [`type_id`].
pub fn type_names(major: u8, type_id: u16) -> (String, String) {
    let (rmid, info) = ((type_id >> 4) as u8, ((type_id & 0xF) << 4) as u8);
    (rmgr_name(rmid), record_type(major, rmid, info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_major_has_two_names_for_an_opcode() {
        for (n, a) in OPCODES.iter().enumerate() {
            assert!(a.since <= a.until && usize::from(a.rmid) < RMGRS.len(), "{}", a.name);
            for b in &OPCODES[n + 1..] {
                let same = (a.rmid, a.info) == (b.rmid, b.info);
                assert!(!same || a.until < b.since || b.until < a.since, "{} {}", a.name, b.name);
            }
        }
    }

    #[test]
    fn names_follow_the_major() {
        let heap2 = |major| [0x10, 0x20, 0x30].map(|info| record_type(major, id::HEAP2, info));
        assert_eq!(heap2(13), ["CLEAN", "FREEZE_PAGE", "CLEANUP_INFO"]);
        assert_eq!(heap2(16), ["PRUNE", "VACUUM", "FREEZE_PAGE"]);
        assert_eq!(heap2(17), ["PRUNE_ON_ACCESS", "PRUNE_VACUUM_SCAN", "PRUNE_VACUUM_CLEANUP"]);
        assert_eq!(record_type(18, id::XACT, 0x80), "COMMIT");
        assert_eq!(record_type(13, id::XACT, 0x60), "UNKNOWN (60)");
        assert_eq!((rmgr_name(200), record_type(18, 200, 0x35)), ("custom200".into(), "UNKNOWN (30)".into()));
        assert_eq!(type_names(18, type_id(id::XACT, 0xA1)), ("Transaction".into(), "ABORT".into()));
    }
}

"""What pg_waldump prints of a record, made from what leadline decoded of it: equal texts mean equal records.

Each row of ROWS is a kind of record in the words of one or more majors. Managers without fields in leadline (hash, gin, gist,
spgist, brin, generic) have no row: of them everything up to the name of the record is compared.

Sources: `pg_waldump.c`, `access/rmgrdesc/*.c` and `XLogRecGetBlockRefInfo` of each major.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BLOCK_SIZE = 8192
Fields = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """text: of the fields; with_data: follows when block 0 has data, which an image may stand for."""

    rmgr: str
    kinds: str
    text: str
    with_data: str = ""
    since: int = 15
    until: int = 18


INFOBITS = "off: {off}, infobits: {infobits:list}, flags: 0x{flags:02X}"
CHECKPOINT = (
    "redo {redo}; tli {ThisTimeLineID}; prev tli {PrevTimeLineID}; fpw {fullPageWrites:true}; %sxid 0:{nextXid}; oid {nextOid};"
    " multi {nextMulti}; offset {nextMultiOffset}; oldest xid {oldestXid} in DB {oldestXidDB}; oldest multi {oldestMulti} in DB"
    " {oldestMultiDB}; oldest/newest commit timestamp xid: {oldestCommitTsXid}/{newestCommitTsXid};"
    " oldest running xid {oldestActiveXid}; {online}"
)
REMOVED = ", deleted: {deleted:list}, updated: {updated_rows:list}"

ROWS = [
    Row("XLOG", "CHECKPOINT_SHUTDOWN CHECKPOINT_ONLINE", CHECKPOINT % "", until=16),
    Row("XLOG", "CHECKPOINT_SHUTDOWN CHECKPOINT_ONLINE", CHECKPOINT % "wal_level {wal_level}; ", since=17),
    Row("XLOG", "CHECKPOINT_REDO", "wal_level {wal_level}"),
    Row("XLOG", "NOOP SWITCH FPI FPI_FOR_HINT", ""),
    Row("XLOG", "NEXTOID", "{nextOid}"),
    Row("XLOG", "BACKUP_END", "{startpoint}"),
    Row(
        "XLOG",
        "PARAMETER_CHANGE",
        "max_connections={max_connections} max_worker_processes={max_worker_processes} max_wal_senders={max_wal_senders}"
        " max_prepared_xacts={max_prepared_xacts} max_locks_per_xact={max_locks_per_xact} wal_level={wal_level}"
        " wal_log_hints={wal_log_hints:on} track_commit_timestamp={track_commit_timestamp:on}",
    ),
    Row("XLOG", "RESTORE_POINT", "{rp_name}"),
    Row("XLOG", "FPW_CHANGE", "{full_page_writes:true}"),
    Row("Transaction", "COMMIT ABORT COMMIT_PREPARED ABORT_PREPARED", "{twophase}{xact_time:time}{rels}{subxacts}{inval}{origin}"),
    Row("Transaction", "PREPARE", "gid {gid}: {xact_time:time}{rels}{subxacts}{inval}{origin}"),
    Row("Transaction", "ASSIGNMENT", "xtop {xtop}: subxacts:{xids}"),
    Row("Transaction", "INVALIDATION", "{inval}"),
    Row("Storage", "CREATE", "{path}"),
    Row("Storage", "TRUNCATE", "{path} to {blkno} blocks flags {flags}"),
    Row("CLOG", "ZEROPAGE", "page {pageno}"),
    Row("CLOG", "TRUNCATE", "page {pageno}; oldestXact {oldestXact}"),
    Row("CommitTs", "ZEROPAGE", "{pageno}"),
    Row("CommitTs", "TRUNCATE", "pageno {pageno}, oldestXid {oldestXid}"),
    Row("Database", "CREATE_FILE_COPY", "copy dir {src_tablespace_id}/{src_db_id} to {tablespace_id}/{db_id}"),
    Row("Database", "CREATE_WAL_LOG", "create dir {tablespace_id}/{db_id}"),
    Row("Database", "DROP", "dir{folders}"),
    Row("Tablespace", "CREATE", '{ts_id} "{ts_path}"'),
    Row("Tablespace", "DROP", "{ts_id}"),
    Row("MultiXact", "ZERO_OFF_PAGE ZERO_MEM_PAGE", "{pageno}"),
    Row("MultiXact", "CREATE_ID", "{mid} offset {moff} nmembers {nmembers}: {members}"),
    Row("RelMap", "UPDATE", "database {dbid} tablespace {tsid} size {nbytes}"),
    Row("Standby", "LOCK", "{locks}"),
    Row(
        "Standby",
        "RUNNING_XACTS",
        "nextXid {nextXid} latestCompletedXid {latestCompletedXid} oldestRunningXid {oldestRunningXid}{running}",
    ),
    Row("Standby", "INVALIDATIONS", "{init_file}{inval}"),
    Row("Sequence", "LOG", "rel {rel}"),
    Row("ReplicationOrigin", "SET", "set {node_id}; lsn {remote_lsn}; force: {force:d}"),
    Row("ReplicationOrigin", "DROP", "drop {node_id}"),
    Row("LogicalMessage", "MESSAGE", '{transactional:transactional}, prefix "{prefix}"; payload ({message_size} bytes): '),
    # Heap of 15
    Row("Heap", "INSERT INSERT+INIT", "off {off} flags 0x{flags:02X}", until=15),
    Row("Heap", "DELETE", "off {off} flags 0x{flags:02X} {infobits:words}", until=15),
    Row(
        "Heap",
        "UPDATE UPDATE+INIT HOT_UPDATE HOT_UPDATE+INIT",
        "off {old_off} xmax {old_xmax} flags 0x{flags:02X} {old_infobits:words}; new off {new_off} xmax {new_xmax}",
        until=15,
    ),
    Row("Heap", "TRUNCATE", "{flags:lower}nrelids {nrelids} relids{relid_words}", until=15),
    Row("Heap", "HEAP_CONFIRM INPLACE", "off {off}", until=15),
    Row("Heap", "LOCK", "off {off}: xid {locking_xid}: flags 0x{flags:02X} {infobits:words}", until=15),
    Row("Heap2", "PRUNE", "latestRemovedXid {latestRemovedXid} nredirected {nredirected} ndead {ndead}", until=15),
    Row("Heap2", "VACUUM", "nunused {nunused}", until=15),
    Row("Heap2", "FREEZE_PAGE", "cutoff xid {cutoff_xid} ntuples {ntuples}", until=15),
    Row("Heap2", "VISIBLE", "cutoff xid {cutoff_xid} flags 0x{flags:02X}", until=15),
    Row("Heap2", "MULTI_INSERT MULTI_INSERT+INIT", "{ntuples} tuples flags 0x{flags:02X}", until=15),
    Row("Heap2", "LOCK_UPDATED", "off {off}: xmax {xmax}: flags 0x{flags:02X} {infobits:words}", until=15),
    Row("Heap2", "NEW_CID", "rel {rel}; tid {tid}; cmin: {cmin}, cmax: {cmax}, combo: {combo}", until=15),
    # Heap since 16
    Row("Heap", "INSERT INSERT+INIT", "off: {off}, flags: 0x{flags:02X}", since=16),
    Row("Heap", "DELETE LOCK", "xmax: {xmax}, " + INFOBITS, since=16),
    Row(
        "Heap",
        "UPDATE UPDATE+INIT HOT_UPDATE HOT_UPDATE+INIT",
        "old_xmax: {old_xmax}, old_off: {old_off}, old_infobits: {old_infobits:list}, flags: 0x{flags:02X},"
        " new_xmax: {new_xmax}, new_off: {new_off}",
        since=16,
    ),
    Row("Heap", "TRUNCATE", "flags: {flags:list}, nrelids: {nrelids}, relids: {relids:list}", since=16),
    Row("Heap", "HEAP_CONFIRM", "off: {off}", since=16),
    Row("Heap", "INPLACE", "off: {off}", since=16, until=17),
    Row("Heap", "INPLACE", "off: {off}{init_file}{inval}", since=18),
    Row("Heap2", "REWRITE", ""),
    Row(
        "Heap2",
        "PRUNE",
        "snapshotConflictHorizon: {snapshotConflictHorizon}, nredirected: {nredirected}, ndead: {ndead}",
        ", nunused: {nunused}, redirected: {redirected:arrows}, dead: {dead:list}, unused: {unused:list}",
        since=16,
    ),
    Row("Heap2", "VACUUM", "nunused: {nunused}", ", unused: {unused:list}", since=16),
    Row(
        "Heap2",
        "FREEZE_PAGE",
        "snapshotConflictHorizon: {snapshotConflictHorizon}, nplans: {nplans}",
        ", plans: {plan_rows:list}",
        since=16,
    ),
    Row(
        "Heap2",
        "PRUNE_ON_ACCESS PRUNE_VACUUM_SCAN PRUNE_VACUUM_CLEANUP",
        "{horizon}, isCatalogRel: {isCatalogRel:letter}",
        ", nplans: {nplans}, nredirected: {nredirected}, ndead: {ndead}, nunused: {nunused}{pruned}",
        since=17,
    ),
    Row("Heap2", "VISIBLE", "snapshotConflictHorizon: {snapshotConflictHorizon}, flags: 0x{flags:02X}", since=16),
    Row("Heap2", "MULTI_INSERT", "ntuples: {ntuples}, flags: 0x{flags:02X}", ", offsets: {offsets:list}", since=16),
    Row("Heap2", "MULTI_INSERT+INIT", "ntuples: {ntuples}, flags: 0x{flags:02X}", since=16),
    Row("Heap2", "LOCK_UPDATED", "xmax: {xmax}, " + INFOBITS, since=16),
    Row("Heap2", "NEW_CID", "rel: {rel}, tid: {tid}, cmin: {cmin}, cmax: {cmax}, combo: {combo}", since=16),
    # Btree of 15
    Row("Btree", "INSERT_LEAF INSERT_UPPER INSERT_META INSERT_POST", "off {off}", until=15),
    Row(
        "Btree",
        "SPLIT_L SPLIT_R",
        "level {level}, firstrightoff {firstrightoff}, newitemoff {newitemoff}, postingoff {postingoff}",
        until=15,
    ),
    Row("Btree", "DEDUP", "nintervals {nintervals}", until=15),
    Row("Btree", "VACUUM", "ndeleted {ndeleted}; nupdated {nupdated}", until=15),
    Row("Btree", "DELETE", "latestRemovedXid {latestRemovedXid}; ndeleted {ndeleted}; nupdated {nupdated}", until=15),
    Row("Btree", "MARK_PAGE_HALFDEAD", "topparent {topparent}; leaf {leaf}; left {left}; right {right}", until=15),
    Row(
        "Btree",
        "UNLINK_PAGE UNLINK_PAGE_META",
        "left {left}; right {right}; level {level}; safexid {safexid:xid}; leafleft {leafleft}; leafright {leafright};"
        " leaftopparent {leaftopparent}",
        until=15,
    ),
    Row("Btree", "NEWROOT", "lev {level}", until=15),
    Row("Btree", "REUSE_PAGE", "rel {rel}; latestRemovedXid {latestRemovedFullXid:xid}", until=15),
    Row("Btree", "META_CLEANUP", "last_cleanup_num_delpages {last_cleanup_num_delpages}", until=15),
    # Btree since 16
    Row("Btree", "INSERT_LEAF INSERT_UPPER INSERT_META INSERT_POST", "off: {off}", since=16),
    Row(
        "Btree",
        "SPLIT_L SPLIT_R",
        "level: {level}, firstrightoff: {firstrightoff}, newitemoff: {newitemoff}, postingoff: {postingoff}",
        since=16,
    ),
    Row("Btree", "DEDUP", "nintervals: {nintervals}", since=16),
    Row("Btree", "VACUUM", "ndeleted: {ndeleted}, nupdated: {nupdated}", REMOVED, since=16),
    Row(
        "Btree",
        "DELETE",
        "snapshotConflictHorizon: {snapshotConflictHorizon}, ndeleted: {ndeleted}, nupdated: {nupdated}",
        REMOVED,
        since=16,
        until=16,
    ),
    Row(
        "Btree",
        "DELETE",
        "snapshotConflictHorizon: {snapshotConflictHorizon}, ndeleted: {ndeleted}, nupdated: {nupdated},"
        " isCatalogRel: {isCatalogRel:letter}",
        REMOVED,
        since=17,
    ),
    Row("Btree", "MARK_PAGE_HALFDEAD", "topparent: {topparent}, leaf: {leaf}, left: {left}, right: {right}", since=16),
    Row(
        "Btree",
        "UNLINK_PAGE UNLINK_PAGE_META",
        "left: {left}, right: {right}, level: {level}, safexid: {safexid:xid}, leafleft: {leafleft}, leafright: {leafright},"
        " leaftopparent: {leaftopparent}",
        since=16,
    ),
    Row("Btree", "NEWROOT", "level: {level}", since=16),
    Row("Btree", "REUSE_PAGE", "rel: {rel}, snapshotConflictHorizon: {snapshotConflictHorizon:xid}", since=16, until=16),
    Row(
        "Btree",
        "REUSE_PAGE",
        "rel: {rel}, snapshotConflictHorizon: {snapshotConflictHorizon:xid}, isCatalogRel: {isCatalogRel:letter}",
        since=17,
    ),
    Row("Btree", "META_CLEANUP", "last_cleanup_num_delpages: {last_cleanup_num_delpages}", since=16),
]
BY_RMGR = {name: [row for row in ROWS if row.rmgr == name] for name in {row.rmgr for row in ROWS}}


def waldump_text(record: Fields, major: int) -> tuple[str, bool]:
    """The lines of `pg_waldump --bkp-details`, in UTC; and whether the description is among them."""
    length, images, said = record["record_length"], record["fpi_length"], description(record, major)
    text = (
        f"rmgr: {record['rmgr']:<11} len (rec/tot): {length - images:6}/{length:6}, tx: {record['xid']:10}, lsn: {padded(record['lsn'])},"
        f" prev {padded(record['prev_lsn'])}, desc: {record['record_type']} {said or ''}\n"
    )
    return text + "".join(f"\t{block_text(block)}\n" for block in record["blocks"]), said is not None


def padded(lsn: str) -> str:
    high, low = lsn.split("/")
    return f"{high}/{low:0>8}"


def block_text(block: Fields) -> str:
    place = "rel {spcnode}/{dbnode}/{relfilenode} fork {fork} blk {block}".format(**block)
    text = f"blkref #{block['block_id']}: {place}"
    if block["has_image"]:
        verify = "" if block["fpi_apply"] else " for WAL verification"
        text += f" (FPW{verify}); hole: offset: {block['hole_offset']}, length: {block['hole_length']}"
    if method := block["fpi_compression"]:
        saved = BLOCK_SIZE - block["hole_length"] - block["fpi_length"]
        text += f", compression saved: {saved}, method: {method}"
    return text


def description(record: Fields, major: int) -> str | None:
    """None for the managers that have no fields here."""
    if record["rmgr"] not in BY_RMGR:
        return None
    row = _row(record["rmgr"], record["record_type"], major)
    has_data = any(block["block_id"] == 0 and block["data_length"] for block in record["blocks"])
    text = row.text + (row.with_data if has_data else "")
    return _Words().format(text, **_words(record, major))


@functools.cache
def _row(rmgr: str, record_type: str, major: int) -> Row:
    """The only one that fits."""
    [row] = [row for row in BY_RMGR[rmgr] if record_type in row.kinds.split() and row.since <= major <= row.until]
    return row


class _Words(string.Formatter):
    def format_field(self, value: Any, spec: str) -> Any:
        return SPECS[spec](value) if spec in SPECS else super().format_field(value, spec)


SPECS: dict[str, Callable[[Any], str]] = {
    "list": lambda values: "[" + ", ".join(map(str, values)) + "]",
    "words": lambda values: "".join(f"{value} " for value in values),
    "lower": lambda values: "".join(f"{value.lower()} " for value in values),
    "arrows": lambda pairs: "[" + ", ".join(f"{a}->{b}" for a, b in pairs) + "]",
    "time": lambda text: text.replace("T", " ").replace("Z", " UTC"),
    "xid": lambda number: f"{number >> 32}:{number & 0xFFFFFFFF}",
    "letter": lambda value: "T" if value else "F",
    "true": lambda value: "true" if value else "false",
    "on": lambda value: "on" if value else "off",
    "transactional": lambda value: "transactional" if value else "non-transactional",
}


def _words(record: Fields, major: int) -> Fields:
    """The fields, and the words that are made from more than one of them."""
    said: Fields = record["description"]
    none = dict.fromkeys(("nplans", "nredirected", "ndead", "nunused"), 0) | dict.fromkeys(("deleted", "redirected", "dead", "unused"), ())
    words = none | said
    words["online"] = "online" if record["record_type"].endswith("ONLINE") else "shutdown"
    words["twophase"] = f"{said['twophase_xid']}: " if "twophase_xid" in said else ""
    words["rels"] = _listed("; rels:", map(path, said.get("rels", ())))
    words["xids"] = _listed("", said.get("subxacts", ()))
    words["subxacts"] = _listed("; subxacts:", said.get("subxacts", ()))
    words["inval"] = _listed("; inval msgs:", map(message, said.get("msgs", ())))
    if said.get("relcacheInitFileInval"):
        words["init_file"] = "; relcache init file inval dbid {dbId} tsid {tsId}".format(**said)
    else:
        words["init_file"] = ""
    words["origin"] = ""
    if "origin_lsn" in said:
        words["origin"] = f"; origin: node {record['origin']}, lsn {said['origin_lsn']}, at {SPECS['time'](said['origin_timestamp'])}"
    if record["rmgr"] == "Storage":
        words["path"] = path(said["rel"], said.get("fork", "main"))
    words["folders"] = _listed("", (f"{tablespace}/{said['db_id']}" for tablespace in said.get("tablespace_ids", ())))
    words["nmembers"] = len(said.get("members", ()))
    words["members"] = "".join(f"{member['xid']} ({member['status']}) " for member in said.get("members", ()))
    words["locks"] = "".join("xid {xid} db {db} rel {rel} ".format(**lock) for lock in said.get("locks", ()))
    words["nrelids"], words["relid_words"] = len(said.get("relids", ())), _listed("", said.get("relids", ()))
    words["running"] = _running(said, major)
    words["horizon"] = f"snapshotConflictHorizon: {said['snapshotConflictHorizon']}" if "snapshotConflictHorizon" in said else ""
    words["plan_rows"] = _plans(said)
    words["updated_rows"] = [
        f"{{ off: {off}, nptids: {len(places)}, ptids: {SPECS['list'](places)} }}"
        for off, places in zip(said.get("updated", ()), said.get("ptids", ()))
    ]
    parts = {"plans": words["plan_rows"], "redirected": [f"{a}->{b}" for a, b in words["redirected"]]}
    parts |= {"dead": words["dead"], "unused": words["unused"]}
    words["pruned"] = "".join(f", {name}: {SPECS['list'](values)}" for name, values in parts.items() if values)
    return words


def _listed(before: str, values: Any) -> str:
    text = "".join(f" {value}" for value in values)
    return before + text if text else ""


def _running(said: Fields, major: int) -> str:
    text = f"; {len(said['xids'])} xacts:{_listed('', said['xids'])}" if said.get("xids") else ""
    if said.get("subxid_overflow"):
        text += "; subxid ovf" if major == 15 else "; subxid overflowed"
    if said.get("subxids") and major > 15:
        text += f"; {len(said['subxids'])} subxacts:{_listed('', said['subxids'])}"
    return text


def _plans(said: Fields) -> list[str]:
    """Each plan with those of the frozen rows that are its own."""
    left, rows = list(said.get("frozen", ())), []
    for plan in said.get("plans", ()):
        own, left = left[: plan["ntuples"]], left[plan["ntuples"] :]
        words = "{{ xmax: {xmax}, infomask: {t_infomask}, infomask2: {t_infomask2}, ntuples: {ntuples}".format(**plan)
        rows.append(f"{words}, offsets: {SPECS['list'](own)} }}")
    return rows


def message(said: Fields) -> str:
    if said["kind"] == "relmap":
        return f"relmap db {said['db']}"
    return "smgr" if said["kind"] == "smgr" else f"{said['kind']} {said['object']}"


def path(relation: str, fork: str = "main") -> str:
    tablespace, database, file = relation.split("/")
    folder = {"1663": f"base/{database}", "1664": "global"}.get(tablespace, f"pg_tblspc/{tablespace}/VERSION/{database}")
    return f"{folder}/{file}" + ("" if fork == "main" else f"_{fork}")


# What leadline does not say: of the ends of transactions all but this, of messages their text, of tablespaces the name of their folder.
LEFT_OUT = re.compile(
    r"; rels\(abort\):[^;\n]*|; (?:commit |abort )?dropped stats:[^;\n]*|; relcache init file inval dbid \d+ tsid \d+"
    r"|; apply_feedback|; sync"
)
FOLDER = re.compile(r"(?<=/)PG_\d+_\d+(?=/)")
PAYLOAD = re.compile(r"(?<= bytes\): )[0-9A-F ]+")


def comparable(rmgr: str, text: str) -> str:
    """The server's words for a record without what leadline does not say."""
    if rmgr == "Transaction":
        text = LEFT_OUT.sub("", text).replace("; rels(commit):", "; rels:")
    if rmgr == "LogicalMessage":
        text = PAYLOAD.sub("", text)
    return FOLDER.sub("VERSION", text)

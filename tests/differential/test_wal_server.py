"""Real logs of every major: what leadline reads is what the server and pg_waldump say of them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import CopiedServer, Server, no_oracle, running
from leadline._core.wal import WalLog
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.engines.postgres.server.binaries import host_dirs, wheel_dirs
from servers import MAJORS, Fetched
from wal_load import SETTINGS, TABLES, LoggedServer, images, insert_lsn, run_load
from wal_rows import records
from wal_rows import rows as rows_of
from waldump_text import BY_RMGR, comparable, description, waldump_text

INSPECTED = [15, 16, 17, 18]


@pytest.fixture(scope="module")
def logged() -> Iterator[Callable[[int], LoggedServer]]:
    """logged(major): the server of a major after the load, made once."""
    made: dict[int, LoggedServer] = {}
    with ExitStack() as stack:

        def get(major: int) -> LoggedServer:
            if major not in made:
                made[major] = run_load(stack.enter_context(running(major, **SETTINGS)))
                if major >= 15:
                    made[major].sql("create extension pg_walinspect")
            return made[major]

        yield get


@pytest.fixture(scope="module")
def exported(logged: Callable[[int], LoggedServer], tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    made: dict[int, Path] = {}

    def get(major: int) -> Path:
        if major not in made:
            log, out = logged(major), tmp_path_factory.mktemp("wal") / f"pg{major}.leadline"
            assert run(["wal", "export", str(log.folder), "--from", log.start, "--to", log.end, "-o", str(out)]) == 0
            made[major] = out
        return made[major]

    return get


def rows(capture: Path, query: str) -> list[tuple[Any, ...]]:
    opened = open_capture(capture, whole=True)
    try:
        return opened.db.execute(query).fetchall()
    finally:
        opened.close()


def read_all(log: LoggedServer, **wanted: Any) -> list[dict[str, Any]]:
    return records(str(log.folder), **{"start": log.start, "end": log.end, **wanted})


# -- against pg_walinspect ---------------------------------------------------------------------------------------------


@pytest.mark.live
@pytest.mark.parametrize("major", INSPECTED)
def test_records_are_those_of_the_server(major: int, logged: Callable[[int], LoggedServer], exported: Callable[[int], Path]) -> None:
    log = logged(major)
    wanted = log.sql(
        "select (start_lsn - '0/0')::bigint, (end_lsn - '0/0')::bigint, (prev_lsn - '0/0')::bigint, xid::text::bigint, resource_manager,"
        "  record_type, record_length, main_data_length, fpi_length"
        f" from pg_get_wal_records_info('{log.start}', '{log.end}') order by 1"
    )
    found = rows(
        exported(major),
        "select start_lsn, end_lsn, prev_lsn, xid, rmgr, record_type, record_length, main_data_length, fpi_length"
        " from wal_record order by 1",
    )
    assert len(wanted) > 10_000
    assert found == wanted


@pytest.mark.live
@pytest.mark.parametrize("major", [16, 17, 18])
def test_blocks_are_those_of_the_server(major: int, logged: Callable[[int], LoggedServer], exported: Callable[[int], Path]) -> None:
    log = logged(major)
    wanted = log.sql(
        "select (start_lsn - '0/0')::bigint, block_id::int, reltablespace::bigint, reldatabase::bigint, relfilenode::bigint,"
        "  (array['main','fsm','vm','init'])[relforknumber + 1], relblocknumber, xid::text::bigint, resource_manager, record_type,"
        "  coalesce(block_data_length, 0), coalesce(block_fpi_length, 0), coalesce('APPLY' = any(block_fpi_info), false),"
        "  coalesce(lower(substr((select i from unnest(block_fpi_info) i where i like 'COMPRESS%'), 10)), '')"
        f" from pg_get_wal_block_info('{log.start}', '{log.end}', false) order by 1, 2"
    )
    found = rows(
        exported(major),
        "select start_lsn, block_id, spcnode, dbnode, relfilenode, fork, block, xid, rmgr, record_type,"
        " data_length, fpi_length, fpi_apply, fpi_compression from wal_block order by 1, 2",
    )
    assert len(wanted) > 10_000
    assert found == wanted


@pytest.mark.live
def test_block_references_of_15_are_those_of_the_server(logged: Callable[[int], LoggedServer]) -> None:
    """15 has no pg_get_wal_block_info; it prints the blocks as text."""
    log = logged(15)
    wanted = log.sql(f"select start_lsn::text, coalesce(block_ref, '') from pg_get_wal_records_info('{log.start}', '{log.end}')")
    image = r"(?: \(FPW(?: for WAL verification)?\); hole: offset: (\d+), length: (\d+))?"
    pattern = re.compile(r"blkref #(\d+): rel (\d+)/(\d+)/(\d+) (?:fork (\w+) )?blk (\d+)" + image)
    found = {row["lsn"]: row["blocks"] for row in read_all(log)}
    for lsn, text in wanted:
        said = [
            (int(m[1]), int(m[2]), int(m[3]), int(m[4]), m[5] or "main", int(m[6]), int(m[7] or 0), int(m[8] or 0))
            for m in pattern.finditer(text)
        ]
        names = ("block_id", "spcnode", "dbnode", "relfilenode", "fork", "block", "hole_offset", "hole_length")
        assert [tuple(b[n] for n in names) for b in found[lsn]] == said, (lsn, text)


@pytest.mark.live
@pytest.mark.parametrize("major", [16, 17, 18])
def test_page_images_unpack_to_the_pages_of_the_server(major: int, logged: Callable[[int], LoggedServer]) -> None:
    log = logged(major)
    wanted = log.sql(
        "select start_lsn::text, block_id::int, block_fpi_data, array_to_string(block_fpi_info, ',')"
        f" from pg_get_wal_block_info('{log.start}', '{log.end}') where block_fpi_length > 0"
    )
    reader = WalLog(str(log.folder), start=log.start, end=log.end)
    methods = set()
    for lsn, block, page, info in wanted:
        assert reader.page_image(lsn, block) == bytes(page), (lsn, block, info)
        methods |= set(re.findall(r"COMPRESS_(\w+)", info))
    assert "PGLZ" in methods


# -- what records say, against the server's own words ------------------------------------------------------------------


@pytest.mark.live
@pytest.mark.parametrize("major", INSPECTED)
def test_descriptions_are_those_that_the_server_prints(major: int, logged: Callable[[int], LoggedServer]) -> None:
    """Every field of the managers that leadline decodes, in the server's words; 17 has no pg_waldump here."""
    log = logged(major)
    with log.server.connect(options="-c timezone=UTC") as connection:
        wanted = connection.execute(
            f"select start_lsn::text, resource_manager, coalesce(description, '') from pg_get_wal_records_info('{log.start}', '{log.end}')"
        ).fetchall()
    found = {row["lsn"]: row for row in read_all(log)}
    compared = set()
    for lsn, rmgr, text in wanted:
        said = description(found[lsn], major)
        # The server cuts the zeros at the end of a time.
        text = re.sub(r"(\d\d:\d\d:\d\d)\.?(\d*)\+00", lambda m: f"{m[1]}.{m[2]:0<6} UTC", text)
        assert (said is None) == (rmgr not in BY_RMGR)
        if said is not None:
            assert said == comparable(rmgr, text), found[lsn]
            compared.add(rmgr)
    assert compared == {rmgr for _, rmgr, _ in wanted} & set(BY_RMGR)
    assert compared >= {"Heap", "Heap2", "Btree", "Sequence", "Transaction", "XLOG", "Storage"}


@pytest.mark.live
@pytest.mark.parametrize("major", MAJORS)
def test_every_record_of_every_major_has_a_name_and_whole_fields(major: int, logged: Callable[[int], LoggedServer]) -> None:
    found = read_all(logged(major))
    assert not [row for row in found if "UNKNOWN" in row["record_type"] or "truncated" in row["description"]]
    assert not [row for row in found if "?" in row["description"].values()]
    kinds = {f"{row['rmgr']}/{row['record_type']}" for row in found}
    managers = {row["rmgr"] for row in found}
    assert managers >= {
        "XLOG", "Transaction", "Storage", "Database", "Tablespace", "MultiXact", "RelMap", "Standby", "Heap", "Heap2", "Btree", "Hash",
        "Gin", "Gist", "SPGist", "BRIN", "Generic", "Sequence", "LogicalMessage", "ReplicationOrigin",
    }  # fmt: skip
    assert kinds >= {
        "Transaction/PREPARE", "Transaction/COMMIT_PREPARED", "Transaction/ABORT_PREPARED", "Transaction/ABORT", "Heap/LOCK",
        "Heap/HEAP_CONFIRM", "Heap/TRUNCATE", "Heap2/MULTI_INSERT+INIT", "Heap2/VISIBLE", "Heap2/LOCK_UPDATED", "Heap2/REWRITE",
        "Btree/DEDUP", "Btree/VACUUM", "Btree/NEWROOT", "Btree/MARK_PAGE_HALFDEAD", "Btree/UNLINK_PAGE", "Btree/REUSE_PAGE",
        "XLOG/BACKUP_END", "XLOG/SWITCH",
    }  # fmt: skip


@pytest.mark.live
@pytest.mark.parametrize("major", MAJORS)
def test_transactions_end_when_the_server_says(major: int, logged: Callable[[int], LoggedServer]) -> None:
    """pg_xact_commit_timestamp of every committed transaction, subtransactions and prepared ones included."""
    log = logged(major)
    times: dict[int, str] = {}
    prepared = set()
    for row in read_all(log, rmgr="Transaction"):
        said = row["description"]
        if row["record_type"] in ("COMMIT", "COMMIT_PREPARED"):
            xid = said.get("twophase_xid", row["xid"])
            # What was replayed from elsewhere was committed when it was there.
            times |= dict.fromkeys([*said.get("subxacts", []), xid], said.get("origin_timestamp", said["xact_time"]))
        if row["record_type"] == "PREPARE":
            prepared.add(said["gid"])
    assert prepared == {"gid one", "gid two", "gid three"}
    times.pop(0, None)
    listed = ",".join(f"('{xid}'::xid)" for xid in times)
    known = log.sql(
        "select xid::text::bigint, to_char(pg_xact_commit_timestamp(xid) at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
        f" from (values {listed}) as v(xid) where pg_xact_commit_timestamp(xid) is not null"
    )
    assert len(known) > 70
    assert {xid: times[xid] for xid, _ in known} == dict(known)


@pytest.mark.live
@pytest.mark.parametrize("major", [13, 18])
def test_the_end_of_a_prepared_transaction_is_one_of_its_records(major: int, logged: Callable[[int], LoggedServer]) -> None:
    """COMMIT PREPARED and ROLLBACK PREPARED run in a session of another transaction, or none."""
    log = logged(major)
    xids = {row["description"]["gid"]: row["xid"] for row in read_all(log, rmgr="Transaction") if row["record_type"] == "PREPARE"}
    ends = {gid: [row["record_type"] for row in read_all(log, xid=xid)][-2:] for gid, xid in xids.items()}
    assert ends == {
        "gid one": ["PREPARE", "COMMIT_PREPARED"], "gid two": ["PREPARE", "ABORT_PREPARED"], "gid three": ["PREPARE", "COMMIT_PREPARED"],
    }  # fmt: skip
    reader = WalLog(str(log.folder), start=log.start, end=log.end, xid=xids["gid three"])
    assert [row["record_type"] for row in rows_of(reader.invalidations)][-1] == "COMMIT_PREPARED"


# -- against EXPLAIN (WAL), which 13 and 14 have too -------------------------------------------------------------------


@pytest.mark.live
@pytest.mark.parametrize("major", MAJORS)
def test_a_statement_logs_what_explain_counts(major: int, logged: Callable[[int], LoggedServer]) -> None:
    log = logged(major)
    statements = (
        "insert into heap select g, 'e', 1 from generate_series({0}, {0} + 300) g",
        "update heap set v = 'f' where id between {0} and {0} + 300",
    )
    with log.server.connect() as connection:
        for first in (700_000, 710_000):  # the first round reads the catalogs, which may log as well
            for statement in statements:
                connection.execute("begin")
                start = connection.execute("select pg_current_wal_insert_lsn()").fetchall()[0][0]
                explained = connection.execute(f"explain (analyze, wal, format json, timing off) {statement.format(first)}").fetchall()
                end = connection.execute("select pg_current_wal_insert_lsn()").fetchall()[0][0]
                connection.execute("commit")
                if first > 700_000:
                    plan = explained[0][0][0]["Plan"]
                    found = records(str(log.folder), start=start, end=end)
                    found = [row for row in found if row["rmgr"] != "Standby"]  # from the background writer
                    images = sum(1 for row in found for block in row["blocks"] if block["has_image"])
                    counted = (len(found), images, sum(row["record_length"] for row in found))
                    assert counted == (plan["WAL Records"], plan["WAL FPI"], plan["WAL Bytes"])


# -- against pg_waldump ------------------------------------------------------------------------------------------------


def waldump(major: int) -> str:
    for found in [*host_dirs(), *wheel_dirs()]:
        if found.major == major and (found.bin_dir / "pg_waldump").is_file():
            return str(found.bin_dir / "pg_waldump")
    no_oracle(f"there is no pg_waldump of {major} here")


def assert_records_are_printed(log: LoggedServer, start: str) -> None:
    """Record by record, all that pg_waldump prints: lengths, places, blocks with their images, and what the record says."""
    line = [waldump(log.major), "--bkp-details", "-p", str(log.folder), "-s", start, "-e", log.end]
    text = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60, env={"TZ": "UTC"}).stdout
    printed = re.split(r"^(?=rmgr: )", text, flags=re.MULTILINE)[1:]
    found = read_all(log, start=start)
    assert len(found) == len(printed)
    for record, wanted in zip(found, printed):
        made, whole = waldump_text(record, log.major)
        wanted = comparable(record["rmgr"], wanted)
        if not whole:  # its own fields are not known here: the blocks, and the first line as far as the name
            name = made.splitlines()[0]
            if wanted.startswith(name):
                wanted = name + wanted[wanted.index("\n") :]
        assert made == wanted


@pytest.mark.live
@pytest.mark.parametrize("major", [15, 16, 18])
def test_records_are_those_that_pg_waldump_prints(major: int, logged: Callable[[int], LoggedServer]) -> None:
    """From the first record that initdb made."""
    assert_records_are_printed(logged(major), "0/1000028")


@pytest.mark.live
def test_compressed_images_are_those_that_pg_waldump_prints() -> None:
    """The fetched servers were built with pglz alone; the host's has lz4 and zstd too."""
    for found in host_dirs():
        if found.major >= 15 and (found.bin_dir / "pg_waldump").is_file():
            break
    else:
        no_oracle("there is no server of this host with pg_waldump")
    with CopiedServer(found.bin_dir, settings=SETTINGS) as private:
        server = Server(private, Fetched(found.major, found.version, "host", str(found.bin_dir)))
        start = insert_lsn(server)
        with server.connect() as connection:
            connection.execute(TABLES)
            images(server, connection)
        log = LoggedServer(server, start, insert_lsn(server))
        server.sql("select pg_switch_wal()")
        assert_records_are_printed(log, start)
        methods = {block["fpi_compression"] for record in read_all(log) for block in record["blocks"] if block["has_image"]}
    assert methods == {"", "pglz", "lz4", "zstd"}


@pytest.mark.live
@pytest.mark.parametrize("major", [15, 16, 18])
def test_stats_are_those_of_pg_waldump(major: int, logged: Callable[[int], LoggedServer], capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(major)
    line = [waldump(major), "--stats=record", "-p", str(log.folder), "-s", log.start, "-e", log.end]
    text = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60).stdout
    wanted = {}
    for name, *numbers in re.findall(r"^(\S+/\S+)\s+(\d+) \([^)]*\)\s+(\d+) \([^)]*\)\s+(\d+) \(", text, re.MULTILINE):
        if int(numbers[0]):
            wanted[name] = tuple(map(int, numbers))
    capsys.readouterr()
    assert run(["wal", "stats", str(log.folder), "--from", log.start, "--to", log.end, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(wanted) > 50
    assert {f"{r['rmgr']}/{r['record_type']}": (r["records"], r["record_bytes"], r["fpi_bytes"]) for r in found} == wanted


# -- sums --------------------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_sums_are_those_of_the_tables(
    logged: Callable[[int], LoggedServer], exported: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Superseded images, and sums by relation and database, against the same questions in SQL."""
    log, capture = logged(18), exported(18)
    superseded = rows(
        capture,
        "select rmgr, record_type, sum(fpi_length) from (select *, lead(start_lsn) over (partition by spcnode, dbnode, relfilenode, fork,"
        " block order by start_lsn) as next from wal_block where has_image) where next is not null group by 1, 2",
    )
    by_relation = rows(
        capture,
        "with owner as (select start_lsn, arg_min(spcnode, block_id) as s, arg_min(dbnode, block_id) as d,"
        " arg_min(relfilenode, block_id) as f from wal_block group by 1)"
        " select s, d, f, count(*) from wal_record left join owner using (start_lsn) group by 1, 2, 3",
    )
    threads = [stats_of(log, "type", threads, capsys) for threads in ("1", "2", "3")]
    assert threads[0] == threads[1] == threads[2]
    found = {(r["rmgr"], r["record_type"]): r["superseded_fpi_bytes"] for r in threads[0] if r["superseded_fpi_bytes"]}
    assert found == {(rmgr, kind): total for rmgr, kind, total in superseded}
    assert sum(found.values()) > 100_000
    relations = stats_of(log, "relation", "2", capsys)
    assert {(r["spcnode"], r["dbnode"], r["relfilenode"]): r["records"] for r in relations if r["records"]} == {
        tuple(key): count for *key, count in by_relation
    }
    hours = stats_of(log, "hour", "2", capsys)
    assert sum(r["records"] for r in hours) == sum(r["records"] for r in threads[0])


def stats_of(log: LoggedServer, by: str, threads: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    line = ["wal", "stats", str(log.folder), "--from", log.start, "--to", log.end, "--by", by, "--threads", threads, "--json"]
    assert run(line) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found

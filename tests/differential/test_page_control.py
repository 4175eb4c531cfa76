"""pg_control, pg_filenode.map and pg_xact of each major, taken apart, against what the server says of them."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, no_oracle
from leadline._core.pages import page_read
from leadline.cli import run
from leadline.engines.postgres.server.binaries import host_dirs, wheel_dirs
from servers import MAJORS

# Field of the file: (function, its column). Part checkPointCopy where it says so.
ASKED: dict[tuple[str, str], tuple[str, str]] = {
    ("ControlFileData", "system_identifier"): ("pg_control_system()", "system_identifier"),
    ("ControlFileData", "pg_control_version"): ("pg_control_system()", "pg_control_version"),
    ("ControlFileData", "catalog_version_no"): ("pg_control_system()", "catalog_version_no"),
    ("ControlFileData", "time"): ("pg_control_system()", "extract(epoch from pg_control_last_modified)::bigint"),
    ("ControlFileData", "checkPoint"): ("pg_control_checkpoint()", "checkpoint_lsn::text"),
    ("checkPointCopy", "redo"): ("pg_control_checkpoint()", "redo_lsn::text"),
    ("checkPointCopy", "ThisTimeLineID"): ("pg_control_checkpoint()", "timeline_id"),
    ("checkPointCopy", "PrevTimeLineID"): ("pg_control_checkpoint()", "prev_timeline_id"),
    ("checkPointCopy", "fullPageWrites"): ("pg_control_checkpoint()", "full_page_writes"),
    ("checkPointCopy", "nextOid"): ("pg_control_checkpoint()", "next_oid::bigint"),
    ("checkPointCopy", "nextMulti"): ("pg_control_checkpoint()", "next_multixact_id::text::bigint"),
    ("checkPointCopy", "nextMultiOffset"): ("pg_control_checkpoint()", "next_multi_offset::text::bigint"),
    ("checkPointCopy", "oldestXid"): ("pg_control_checkpoint()", "oldest_xid::text::bigint"),
    ("checkPointCopy", "oldestXidDB"): ("pg_control_checkpoint()", "oldest_xid_dbid::bigint"),
    ("checkPointCopy", "oldestMulti"): ("pg_control_checkpoint()", "oldest_multi_xid::text::bigint"),
    ("checkPointCopy", "oldestMultiDB"): ("pg_control_checkpoint()", "oldest_multi_dbid::bigint"),
    ("checkPointCopy", "time"): ("pg_control_checkpoint()", "extract(epoch from checkpoint_time)::bigint"),
    ("checkPointCopy", "oldestCommitTsXid"): ("pg_control_checkpoint()", "oldest_commit_ts_xid::text::bigint"),
    ("checkPointCopy", "newestCommitTsXid"): ("pg_control_checkpoint()", "newest_commit_ts_xid::text::bigint"),
    ("checkPointCopy", "oldestActiveXid"): ("pg_control_checkpoint()", "oldest_active_xid::text::bigint"),
    ("ControlFileData", "minRecoveryPoint"): ("pg_control_recovery()", "min_recovery_end_lsn::text"),
    ("ControlFileData", "minRecoveryPointTLI"): ("pg_control_recovery()", "min_recovery_end_timeline"),
    ("ControlFileData", "backupStartPoint"): ("pg_control_recovery()", "backup_start_lsn::text"),
    ("ControlFileData", "backupEndPoint"): ("pg_control_recovery()", "backup_end_lsn::text"),
    ("ControlFileData", "backupEndRequired"): ("pg_control_recovery()", "end_of_backup_record_required"),
    ("ControlFileData", "maxAlign"): ("pg_control_init()", "max_data_alignment"),
    ("ControlFileData", "blcksz"): ("pg_control_init()", "database_block_size"),
    ("ControlFileData", "relseg_size"): ("pg_control_init()", "blocks_per_segment"),
    ("ControlFileData", "xlog_blcksz"): ("pg_control_init()", "wal_block_size"),
    ("ControlFileData", "xlog_seg_size"): ("pg_control_init()", "bytes_per_wal_segment"),
    ("ControlFileData", "nameDataLen"): ("pg_control_init()", "max_identifier_length"),
    ("ControlFileData", "indexMaxKeys"): ("pg_control_init()", "max_index_columns"),
    ("ControlFileData", "toast_max_chunk_size"): ("pg_control_init()", "max_toast_chunk_size"),
    ("ControlFileData", "loblksize"): ("pg_control_init()", "large_object_chunk_size"),
    ("ControlFileData", "float8ByVal"): ("pg_control_init()", "float8_pass_by_value"),
    ("ControlFileData", "data_checksum_version"): ("pg_control_init()", "data_page_checksum_version"),
    ("ControlFileData", "MaxConnections"): ("pg_settings where name = 'max_connections'", "setting::int"),
    ("ControlFileData", "max_worker_processes"): ("pg_settings where name = 'max_worker_processes'", "setting::int"),
    ("ControlFileData", "max_wal_senders"): ("pg_settings where name = 'max_wal_senders'", "setting::int"),
    ("ControlFileData", "max_prepared_xacts"): ("pg_settings where name = 'max_prepared_transactions'", "setting::int"),
    ("ControlFileData", "max_locks_per_xact"): ("pg_settings where name = 'max_locks_per_transaction'", "setting::int"),
    ("ControlFileData", "track_commit_timestamp"): ("pg_settings where name = 'track_commit_timestamp'", "setting::bool"),
    ("ControlFileData", "wal_log_hints"): ("pg_settings where name = 'wal_log_hints'", "setting::bool"),
}
# Fields no SQL function tells; pg_controldata and the checksum vouch for them.
NOT_ASKED = {"state", "unloggedLSN", "wal_level", "floatFormat", "mock_authentication_nonce", "crc", "nextXid", "default_char_signedness"}


def shown(path: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What page show --json prints; the regions tile the file."""
    assert run(["page", "show", path, "--json"]) == 0
    page: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert run(["page", "hex", path, "--json"]) == 0
    at = 0
    for region in json.loads(capsys.readouterr().out):
        assert region["start"] == at and region["field"], region
        at = region["end"]
    assert at == page["block_size"]
    return page


def fields(page: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(part["part"], name): field for part in page["parts"] for name, field in part["fields"].items()}


def test_every_field_of_pg_control_is_what_the_server_says(pg: Server, capsys: pytest.CaptureFixture[str]) -> None:
    pg.sql("checkpoint")
    page = shown(f"{pg.private.data_dir}/global/pg_control", capsys)
    assert (page["kind"], page["problems"]) == ("control file", [])
    found = fields(page)
    for place, (function, column) in ASKED.items():
        [[value]] = pg.sql(f"select {column} from {function}")
        assert found[place]["value"] == value, place
    [[next_xid]] = pg.sql("select next_xid from pg_control_checkpoint()")
    epoch, xid = next_xid.split(":")
    assert found["checkPointCopy", "nextXid"]["words"] == f"epoch {epoch}, xid {xid}"
    [[wal_level]] = pg.sql("show wal_level")
    assert found["ControlFileData", "wal_level"]["words"] == wal_level
    assert found["ControlFileData", "state"]["words"].startswith("in production")
    assert found["ControlFileData", "floatFormat"]["value"] == 1234567.0
    if pg.major >= 17:
        assert found["checkPointCopy", "wal_level"]["words"] == wal_level
    if pg.major >= 18:
        [[signed]] = pg.sql("select default_char_signedness from pg_control_init()")
        assert found["ControlFileData", "default_char_signedness"]["value"] == signed
    named = {name for part, name in found if part != "end of file" and not name.startswith("padding")}
    assert named == {name for _, name in ASKED} | NOT_ASKED - ({"default_char_signedness"} if pg.major < 18 else set())


def test_pg_controldata_says_the_same(servers: Callable[[int], Server]) -> None:
    """With those of the host and of the wheel, since servers for tests come without one."""
    programs = [(int(found.version.split(".")[0]), found.bin_dir / "pg_controldata") for found in [*host_dirs(), *wheel_dirs()]]
    versions = {major: program for major, program in programs if major in MAJORS and program.is_file()}
    if not versions:
        no_oracle("no pg_controldata is installed (package postgresql)")
    for major, program in versions.items():
        pg = servers(major)
        pg.sql("checkpoint")
        environment = {"LC_ALL": "C"}
        told = subprocess.run([program, pg.private.data_dir], capture_output=True, text=True, check=True, env=environment).stdout
        said = {name: value.strip() for name, _, value in (line.partition(":") for line in told.splitlines())}
        found = fields(page_read(f"{pg.private.data_dir}/global/pg_control", 0))
        nonce = found["ControlFileData", "mock_authentication_nonce"]["value"]
        assert said["Mock authentication nonce"] == nonce
        assert said["Fake LSN counter for unlogged rels"] == found["ControlFileData", "unloggedLSN"]["value"]
        assert found["ControlFileData", "state"]["words"].startswith(said["Database cluster state"])


def test_the_map_has_the_files_of_the_mapped_catalogs(pg: Server, capsys: pytest.CaptureFixture[str]) -> None:
    [[database]] = pg.sql("select oid from pg_database where datname = current_database()")
    for folder, shared in ((f"base/{database}", "not relisshared"), ("global", "relisshared")):
        page = shown(f"{pg.private.data_dir}/{folder}/pg_filenode.map", capsys)
        assert (page["kind"], page["problems"]) == ("filenode map", [])
        mappings = [part["fields"] for part in page["parts"] if part["part"] == "mapping"]
        found = {m["mapoid"]["value"]: m["mapfilenumber"]["value"] for m in mappings}
        mapped = f"relfilenode = 0 and {shared} and relkind in ('r', 'i', 't')"
        told = pg.sql(f"select oid::bigint, pg_relation_filenode(oid)::bigint from pg_class where {mapped}")
        assert found == dict(told) and len(found) == page["parts"][0]["fields"]["num_mappings"]["value"] > 10


@pytest.mark.parametrize("major", [13, 18])
def test_a_page_of_pg_xact_says_what_became_of_each_transaction(
    fresh_server: Callable[..., Server], capsys: pytest.CaptureFixture[str], major: int
) -> None:
    pg = fresh_server(major)  # a page with more runs than are listed would not tell of each transaction
    ask = "select (pg_current_xact_id()::text::bigint & 4294967295)"
    with pg.connect(autocommit=False) as connection, pg.connect(autocommit=False) as still_open:
        connection.execute("create table if not exists of_clog (n int)")
        connection.commit()
        ended: list[int] = []
        for n in range(23):
            row = connection.execute(ask).fetchone()
            assert row
            ended.append(row[0])
            connection.execute("savepoint s")
            connection.execute("insert into of_clog values (1)")
            (connection.rollback if n % 3 == 0 else connection.commit)()
        row = still_open.execute(ask).fetchone()
        assert row
        pg.sql("checkpoint")
        path = f"{pg.private.data_dir}/pg_xact/{row[0] // 4 // 8192 // 32:04X}:{row[0] // 4 // 8192 % 32}"
        page = shown(path, capsys)
        assert page["kind"] == "transaction log"
        runs = [part["fields"] for part in page["parts"] if part["part"] == "run"]
        status = {x: run["status"]["words"] for run in runs for x in range(run["first_xid"]["value"], run["last_xid"]["value"] + 1)}
        assert len(status) == 32768
        asked = "select x, pg_xact_status(x::text::xid8) from generate_series(%s::bigint, %s::bigint) x"
        told = dict(pg.sql(asked, [ended[0], row[0]]))
        assert set(told.values()) == {"committed", "aborted", "in progress"}
        assert {x: status[x].split(",")[0] for x in told} == told
        counts = page["parts"][0]["fields"]
        assert sum(counts[name]["value"] for name in ("in_progress", "committed", "aborted", "sub_committed")) == 32768
        assert counts["aborted"]["value"] == sum(s == "aborted" for s in status.values()) >= 8


def test_a_changed_byte_of_pg_control_and_of_the_map_is_found(
    servers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = Path(servers(18).private.data_dir)
    for name, at, field in (("pg_control", 80, "nextMultiOffset"), ("pg_filenode.map", 12, "mapfilenumber")):
        original = data_dir / "global" / name
        copy = tmp_path / name
        content = bytearray(original.read_bytes())
        content[at] ^= 1
        copy.write_bytes(content)
        page = shown(str(copy), capsys)
        assert [p["what"] for p in page["problems"]] == ["crc"], name
        assert run(["page", "show", str(copy)]) == 0
        text = capsys.readouterr().out
        assert "is wrong, computed" in text and max(map(len, text.splitlines())) <= 130
        assert run(["page", "diff", f"{copy}:0", f"{original}:0"]) == 0
        assert field in capsys.readouterr().out


def test_a_control_file_of_another_version_is_read_no_further_than_it_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(8192)
    struct.pack_into("<QII", content, 0, 7, 1903, 202607011)
    (tmp_path / "pg_control").write_bytes(content)
    page = shown(str(tmp_path / "pg_control"), capsys)
    assert page["problems"][0]["what"] == "pg_control_version"
    assert fields(page)["ControlFileData", "catalog_version_no"]["value"] == 202607011
    assert ("checkPointCopy", "redo") not in fields(page)


@pytest.mark.parametrize(
    ("name", "content", "block", "says"),
    [
        ("pg_control", b"", 0, "0 bytes"),
        ("pg_control", b"x" * 8192, 1, "no block 1"),
        ("pg_xact/0000", b"\0" * 8192, 1, "no block 1"),
        ("pg_xact/0000", b"\0" * 100, 0, "100 of 8192 bytes"),
    ],
)
def test_a_page_that_is_not_there_is_one_error(
    name: str, content: bytes, block: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    assert run(["page", "show", f"{path}:{block}", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "invalid" and says in error["detail"]

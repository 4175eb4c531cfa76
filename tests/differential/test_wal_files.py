"""leadline wal on files: what a user can give it that is no log, the forms of a log, and the history of a page."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle, running
from leadline._core.wal import WalLog
from leadline.cli import run
from leadline.engines.postgres.server.user import server_user
from leadline.errors import LeadlineError
from leadline.files.wal import parse_relation
from wal_load import SETTINGS, insert_lsn
from wal_rows import rows

SEGMENT = 16 << 20


class Log:
    """One segment of a real log, and what was done to the table in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {}

    @property
    def segment(self) -> Path:
        return self.folder / self.facts["segment"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    made = Log(tmp_path_factory.mktemp("archive"))
    with running(17, **SETTINGS) as server:
        server.sql("create table watched (id int, v text)")
        server.sql("checkpoint")
        server.sql("select pg_switch_wal()")
        facts = made.facts
        facts["start"] = insert_lsn(server)
        facts["changes"] = []
        with server.connect() as connection:
            for statement in ("insert into watched values (1, 'a')", "update watched set v = 'b'", "delete from watched"):
                for ending in ("commit", "rollback") if "update" in statement else ("commit",):
                    connection.execute("begin")
                    connection.execute(statement)
                    xid = connection.execute("select txid_current()").fetchall()[0][0]
                    connection.execute(ending)
                    facts["changes"].append((xid, "abort" if ending == "rollback" else "commit"))
            connection.execute("begin; alter table watched add column w int")
            facts["altered"] = connection.execute("select txid_current()").fetchall()[0][0]
            connection.execute("commit")
            facts["oid"] = connection.execute("select 'watched'::regclass::oid::int").fetchall()[0][0]
            facts["db"] = connection.execute("select oid::int from pg_database where datname = current_database()").fetchall()[0][0]
            facts["times"] = dict(
                connection.execute(
                    "select xid::text::int, to_char(pg_xact_commit_timestamp(xid) at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
                    f" from (values {','.join(f'({x}::text::xid)' for x, e in facts['changes'] if e == 'commit')}) as v(xid)"
                ).fetchall()
            )
        server.sql("create table shorter as select g as id from generate_series(1, 1000) g")
        server.sql("delete from shorter where id > 1")
        server.sql("vacuum shorter")
        server.sql("insert into shorter select generate_series(1, 1000)")
        facts["shorter"] = server.sql("select pg_relation_filepath('shorter')")[0][0]
        facts["path"] = server.sql("select pg_relation_filepath('watched')")[0][0]
        facts["end"] = insert_lsn(server)
        facts["segment"] = server.sql("select pg_walfile_name(pg_current_wal_insert_lsn())")[0][0]
        server.sql("select pg_switch_wal()")
        shutil.copy(server.private.data_dir / "pg_wal" / facts["segment"], made.folder)
        yield made


def json_of(capsys: pytest.CaptureFixture[str], *line: Any, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["wal", *map(str, line), "--json"]) == code
    return json.loads(capsys.readouterr().out)


# -- history and invalidations -----------------------------------------------------------------------------------------


@pytest.mark.live
def test_history_of_a_page_has_every_change_with_its_end(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    relation = "/".join(log.facts["path"].split("/")[1:])  # base/DATABASE/FILE
    every = json_of(capsys, "history", log.folder, relation, 0)
    history = WalLog(str(log.folder), rel=int(relation.split("/")[1]), fork=0, block=0).history(None)
    one_by_one = [row for _ in every for row in rows(history.changes, 1)]
    assert one_by_one == every and history.changes(True, 1) is None
    changes = [c for c in every if c["xid"]]
    assert [(c["xid"], c["outcome"]) for c in changes] == log.facts["changes"]
    kinds = [c["record_type"] for c in changes]
    assert kinds[0].startswith("INSERT") and kinds[1:] == ["HOT_UPDATE", "HOT_UPDATE", "DELETE"]
    assert [c["description"].get("new_off") for c in changes] == [None, 2, 3, None]
    times = {c["xid"]: c["outcome_time"] for c in changes if c["outcome"] == "commit"}
    assert times == log.facts["times"]
    assert json_of(capsys, "history", log.folder, relation, 4711) == []
    assert run(["wal", "history", str(log.folder), relation, "0"]) == 0
    assert f"xid {changes[0]['xid']} commit" in capsys.readouterr().out


@pytest.mark.live
def test_history_of_a_page_that_was_cut_off(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """A table of several pages becomes one page long, and longer again."""
    relation = log.facts["shorter"].removeprefix("base/")
    changes = json_of(capsys, "history", log.folder, relation, 1)
    at = next(n for n, change in enumerate(changes) if change["record_type"] == "TRUNCATE")
    assert (changes[at]["rmgr"], changes[at]["block"], changes[at]["description"]["blkno"]) == ("Storage", None, 1)
    assert "DELETE" in {change["record_type"] for change in changes[:at]}
    assert changes[at + 1]["block"]["will_init"]
    for other in ([relation, 0], [relation, 1, "--fork", "vm"], [log.facts["path"].removeprefix("base/"), 1]):
        assert "TRUNCATE" not in {change["record_type"] for change in json_of(capsys, "history", log.folder, *other)}
    assert run(["wal", "history", str(log.folder), relation, "1"]) == 0
    assert "    truncated, blkno 1, rel" in capsys.readouterr().out


@pytest.mark.live
def test_inval_names_the_transaction_that_altered_a_table(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json_of(capsys, "inval", log.folder, "--xid", log.facts["altered"])
    commit = next(row for row in rows if row["record_type"] == "COMMIT")
    assert {"kind": "relcache", "db": log.facts["db"], "object": log.facts["oid"]} in commit["messages"]
    assert commit["time"]
    assert json_of(capsys, "inval", log.folder, "--xid", log.facts["changes"][0][0]) == []


@pytest.mark.live
def test_filters_and_limits(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    every = json_of(capsys, "show", log.folder)
    xid = log.facts["changes"][0][0]
    assert json_of(capsys, "show", log.folder, "--xid", xid) == [r for r in every if r["xid"] == xid]
    assert json_of(capsys, "show", log.folder, "--rmgr", "heap") == [r for r in every if r["rmgr"] == "Heap"]
    assert json_of(capsys, "show", log.folder, "--limit", 3) == every[:3]
    third = every[2]["lsn"]
    assert json_of(capsys, "show", log.folder, "--from", third) == every[2:]
    assert json_of(capsys, "show", log.folder, "--to", third) == every[:2]
    one = json_of(capsys, "show", log.folder, "--relation", log.facts["path"].split("/")[-1], "--block", 0, "--fork", "main")
    assert {b["relfilenode"] for r in one for b in r["blocks"]} >= {int(log.facts["path"].split("/")[-1])}
    assert parse_relation(log.facts["path"]) == (1663, *map(int, log.facts["path"].split("/")[1:]))
    assert parse_relation("global/1260") == (1664, 0, 1260)
    assert parse_relation("pg_tblspc/16390/PG_17_202406281/5/16402") == (16390, 5, 16402)
    assert run(["wal", "show", str(log.folder)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


@pytest.mark.live
def test_an_end_behind_the_last_segment_is_not_reached(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The segment ends with a switch, so all of it is read: what was asked for beyond it is not there."""
    end = f"{int(log.segment.name[16:], 16) + 1 << 24:X}"
    told = f"the WAL ends at 0/{end}: no further segment was given\n"
    for verb, path in (("show", log.folder), ("stats", log.folder), ("inval", log.segment), ("history", log.folder)):
        which = ["1/2/3", "0"] if verb == "history" else []
        for wish, wanted in (([], ""), (["--to", f"0/{end}"], ""), (["--to", "FF/0"], told)):
            capsys.readouterr()
            assert run(["wal", verb, str(path), *which, *wish]) == 0
            assert capsys.readouterr().err.removeprefix("no changes to this page found in the WAL\n") == wanted, (verb, wish)
    assert run(["wal", "show", str(log.folder), "--limit", "1", "--to", "FF/0"]) == 0
    assert capsys.readouterr().err == "stopped at --limit 1: there may be more\n"
    assert json_of(capsys, "export", log.folder, "-o", tmp_path / "out", "--to", "FF/0")["notes"] == [told.rstrip()]


# -- forms of a log ----------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_compressed_segments_partial_ones_and_data_directories(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = json_of(capsys, "stats", log.folder)
    assert json_of(capsys, "stats", log.segment) == wanted
    packed = tmp_path / "packed"
    packed.mkdir()
    with gzip.open(packed / f"{log.segment.name}.gz", "wb", 1) as out:
        out.write(log.segment.read_bytes())
    assert json_of(capsys, "stats", packed) == wanted
    below = tmp_path / "data" / "pg_wal"
    below.mkdir(parents=True)
    (below / f"{log.segment.name}.partial").write_bytes(log.segment.read_bytes()[: SEGMENT // 2])
    assert json_of(capsys, "stats", tmp_path / "data") == wanted


@pytest.mark.live
def test_an_export_is_a_capture(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "log"
    made = json_of(capsys, "export", log.folder, "-o", out)
    assert made["status"] == "complete"
    capture = tmp_path / "log.leadline"
    assert made["capture"] == str(capture)
    assert json.loads((capture / "manifest.json").read_text())["target"]["detail"]["major"] == 17
    sums = {(r["rmgr"], r["record_type"]): r["records"] for r in json_of(capsys, "stats", log.folder)}
    assert run(["sql", str(capture), "select rmgr, record_type, count(*) as n from wal_record group by all", "--json"]) == 0
    assert {(r["rmgr"], r["record_type"]): r["n"] for r in json.loads(capsys.readouterr().out)} == sums
    assert made["tables"]["wal_record_raw"]["rows"] == sum(sums.values())
    assert json_of(capsys, "export", log.folder, "-o", out, code=2)["error"]["message"] == "the output already exists"
    assert json_of(capsys, "export", log.folder, "-o", out, "--force")["status"] == "complete"
    (tmp_path / "folder").mkdir()
    inside = Path(json_of(capsys, "export", log.folder, "-o", tmp_path / "folder")["capture"])
    assert inside.parent == tmp_path / "folder" and (inside / "manifest.json").exists()


@pytest.mark.live
def test_a_folder_whose_name_is_no_utf_8(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "odd\udcff"
    shutil.copytree(log.folder, folder)
    made = json_of(capsys, "export", folder, "-o", tmp_path / "out")
    manifest = json.loads((tmp_path / "out.leadline" / "manifest.json").read_text())
    assert made["target"]["detail"]["data_dir"] == manifest["target"]["detail"]["data_dir"] == str(tmp_path / "odd?")
    assert json_of(capsys, "stats", folder) == json_of(capsys, "stats", log.folder)


@pytest.mark.live
def test_an_export_that_meets_damage_is_marked_failed(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    content = bytearray(log.segment.read_bytes())
    second = json_of(capsys, "show", log.folder, "--limit", 2)[1]["lsn"]
    content[int(second.split("/")[1], 16) % SEGMENT + 26] ^= 1
    (folder / log.segment.name).write_bytes(content)
    assert run(["wal", "show", str(folder), "--json"]) == 2
    first, told = capsys.readouterr().out.splitlines()
    assert len(json.loads(first)) == 1 and "error" in json.loads(told)  # a list that ends, then why
    error = json_of(capsys, "export", folder, "-o", tmp_path / "out", code=2)["error"]
    assert error["kind"] == "invalid" and second in error["where"] and "xl_crc" in error["detail"]
    manifest = json.loads((tmp_path / "out.leadline" / "manifest.json").read_text())
    assert (manifest["status"], manifest["error"]["message"]) == ("failed", error["message"])


# -- what is no log ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "kind", "word"),
    [
        (b"", "invalid", "truncated"),
        (b"\0" * 8192, "invalid", "zeros"),
        (b"PK\x03\x04" * 4096, "unsupported", "0xD118 (PostgreSQL 18)"),
        (b"\x21\xd1" + b"\1" * 8190, "unsupported", "which is PostgreSQL 19"),
    ],
)
@pytest.mark.parametrize("verb", ["show", "stats", "inval"])
def test_a_file_that_is_no_segment(
    verb: str, content: bytes, kind: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "000000010000000000000001"
    path.write_bytes(content)
    error = json_of(capsys, verb, path, code=2)["error"]
    assert error["kind"] == kind
    assert word in error["message"] + error["detail"]
    assert str(path) in error["where"]


def test_other_things_that_are_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path, kind in ((tmp_path, "not_found"), (tmp_path / "none", "not_found"), (tmp_path / "notes.txt", "invalid")):
        error = json_of(capsys, "stats", path, code=2)["error"]
        assert (error["kind"], bool(error["message"])) == (kind, True)


def test_a_pg_wal_that_leads_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pg_wal").symlink_to(tmp_path / "gone")
    error = json_of(capsys, "stats", tmp_path, code=2)["error"]
    assert error["message"] == "pg_wal is a link that leads nowhere" and str(tmp_path / "gone") in error["detail"]


@pytest.mark.live
def test_wishes_that_make_no_sense(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    senseless = ["--from nonsense", "--from 0/9 --to 0/8", "--rmgr None", "--rmgr custom127", "--relation name", "--timeline 0"]
    senseless += [f"--timeline {2**32}", *(f"{option} \udcff" for option in ("--from", "--to", "--rmgr", "--relation"))]  # no UTF-8
    for wish in map(str.split, senseless):
        assert json_of(capsys, "show", log.folder, *wish, code=2)["error"]["kind"] == "usage", wish
    assert json_of(capsys, "show", log.folder, "--rmgr", "Custom128") == []
    assert json_of(capsys, "show", log.folder, "--from", "FF/0", code=2)["error"]["kind"] == "not_found"
    assert json_of(capsys, "show", log.folder, "--timeline", "9", code=2)["error"]["kind"] == "not_found"


@pytest.mark.live
def test_a_segment_that_was_cut(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / log.segment.name).write_bytes(log.segment.read_bytes()[:8192])
    error = json_of(capsys, "stats", tmp_path, code=2)["error"]
    assert error["message"] == "the segment is truncated"
    assert "it has 8192 bytes" in error["detail"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.live
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_log_that_may_not_be_read(log: Log, open_folder: Path) -> None:
    path = Path(shutil.copy(log.segment, open_folder))
    path.chmod(0o000)
    os.seteuid(server_user().uid)  # root may read everything
    try:
        with pytest.raises(LeadlineError) as raised:
            WalLog(str(path))
    finally:
        os.seteuid(0)
    assert (raised.value.kind, raised.value.where) == ("rights", str(path))
    assert raised.value.hint.startswith("run as the owner")


# -- compressed, whatever the name -------------------------------------------------------------------------------------


def packed_by(kind: str, content: bytes) -> bytes:
    """The bytes as a program of this kind makes them."""
    if kind == "gzip":
        return gzip.compress(content, 1)
    done = subprocess.run([kind, "-c"], input=content, capture_output=True, check=False)
    return done.stdout


@pytest.mark.live
@pytest.mark.parametrize("kind", ["gzip", "lz4", "zstd"])
@pytest.mark.parametrize("end", ["", ".gz", ".lz4", ".zst", ".partial"])
def test_a_compressed_segment_is_known_by_its_first_bytes(
    log: Log, kind: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind != "gzip" and shutil.which(kind) is None:
        no_oracle(f"{kind} is not installed")
    wanted = json_of(capsys, "stats", log.folder)
    path = tmp_path / f"{log.segment.name}{end}"
    path.write_bytes(packed_by(kind, log.segment.read_bytes()))
    assert json_of(capsys, "stats", tmp_path) == wanted
    assert json_of(capsys, "show", path, "--limit", 1) == json_of(capsys, "show", log.segment, "--limit", 1)


@pytest.mark.live
def test_a_plain_segment_with_a_name_of_a_compressed_one(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{log.segment.name}.gz").write_bytes(log.segment.read_bytes())
    assert json_of(capsys, "stats", tmp_path) == json_of(capsys, "stats", log.folder)


@pytest.mark.live
@pytest.mark.parametrize(("head", "program"), [(b"\xfd7zXZ\0", "xz"), (b"LZIP\1", "lzip"), (b"\x02\x21\x4c\x18", "lz4")])
def test_a_segment_that_another_program_compressed(
    log: Log, head: bytes, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / log.segment.name
    path.write_bytes(head + bytes(range(256)))
    error = json_of(capsys, "stats", tmp_path, code=2)["error"]
    assert (error["kind"], error["hint"]) == ("unsupported", "decompress it first")
    assert program in error["detail"] and str(path) in error["where"]


@pytest.mark.live
def test_a_compressed_segment_that_was_cut(log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = gzip.compress(log.segment.read_bytes(), 1)
    path = tmp_path / log.segment.name
    path.write_bytes(content[:20_000])  # what is behind the switch of a segment is not read
    assert json_of(capsys, "stats", tmp_path, code=2)["error"]["message"] == "the compressed segment is damaged"
    path.rename(tmp_path / f"{path.name}.partial")
    assert json_of(capsys, "stats", tmp_path)
    (tmp_path / f"{path.name}.partial").write_bytes(content[:5])
    assert json_of(capsys, "stats", tmp_path, code=2)["error"]["kind"] == "invalid"

"""What `page check`, `rows` and `alter pending` say of a data directory that is not well, and that they say nothing of one that is."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MAJORS, Server, copy_folder, running
from leadline.cli import run
from leadline.figures import count

CONTROL = "global/pg_control"


class Stopped:
    """A cluster that was shut down: `base` is left as it is, each test has a copy."""

    def __init__(self, base: Path, facts: dict[str, Any]) -> None:
        self.base, self.facts = base, facts

    def file(self, root: Path, relation: str) -> Path:
        return root / self.facts["paths"][relation]



@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    """Of 18, with checksums: a table with an index, and one with values in a toast table."""
    with running(18, autovacuum=False) as server:
        server.sql("create table plain (n int primary key, word text)")
        server.sql("insert into plain select i, md5(i::text) from generate_series(1, 3000) i")
        server.sql("alter table plain add later int")
        server.sql("create table wide (n int, big text)")
        server.sql("alter table wide alter big set storage external")
        server.sql("insert into wide select i, repeat(md5(i::text), 200) from generate_series(1, 20) i")
        server.sql("create unlogged table loose as select 1 as n")
        server.sql("vacuum analyze plain, wide")
        relations = ("plain", "plain_pkey", "wide", "loose")
        paths = {name: server.sql(f"select pg_relation_filepath('{name}')")[0][0] for name in relations}
        paths["toast"] = server.sql("select pg_relation_filepath(reltoastrelid) from pg_class where relname = 'wide'")[0][0]
        base = tmp_path_factory.mktemp("stopped") / "data"
        pid = server.private.pid
        stop_server(server)
        assert not Path(f"/proc/{pid}").exists()
        base.mkdir(mode=0o700)
        copy_folder(server.private.data_dir, base)
        yield Stopped(base, {"paths": paths})


def stop_server(server: Server, mode: signal.Signals = signal.SIGINT) -> None:
    """As pg_ctl stop does: fast with SIGINT, by force with SIGQUIT."""
    process = server.private._process
    assert process is not None
    process.send_signal(mode)
    process.wait(60)


@pytest.fixture
def root(stopped: Stopped, tmp_path: Path) -> Path:
    copied = tmp_path / "data"
    copied.mkdir(mode=0o700)
    copy_folder(stopped.base, copied)
    return copied


def asked(capsys: pytest.CaptureFixture[str], *line: object, code: int = 0) -> tuple[Any, str]:
    """What is on stdout as JSON, and on stderr."""
    found = run([*map(str, line), "--json"])
    printed = capsys.readouterr()
    assert found == code, (found, printed.out[-2000:], printed.err)
    return json.loads(printed.out), printed.err


def flip(path: Path, at: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


# -- clean -------------------------------------------------------------------------------------------------------------


def test_nothing_is_said_of_a_server_that_was_shut_down(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, errors = asked(capsys, "page", "check", root)
    assert (found["problems"], found["summary"]["notes"], errors) == ([], [], "")
    for line in (["rows", root, "plain", "--database", "postgres"], ["rows", root, "loose", "--database", "postgres"]):
        assert asked(capsys, *line)[1] == ""
    assert asked(capsys, "alter", "pending", root)[1] == ""
    assert asked(capsys, "wal", "stats", root)[1].startswith("the WAL ends at ")


@pytest.mark.parametrize("major", MAJORS)
def test_clean_clusters_of_all_majors(major: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Running: that it is, and nothing else. Stopped: nothing. Crashed: that its log is not in the files."""
    with running(major, autovacuum=False) as server:
        root = server.private.data_dir
        server.sql("create table kept as select i as n from generate_series(1, 1000) i")
        server.sql("create unlogged table loose as select 1 as n")
        server.sql("checkpoint")
        server.sql("vacuum full kept")
        server.sql("create table newer as select 1 as n")
        server.sql("drop table if exists loose")
        found, errors = asked(capsys, "page", "check", root)
        assert (found["problems"], [note["name"] for note in found["summary"]["notes"]]) == ([], ["running"])
        assert errors.startswith("note: the server is running") and "CHECKPOINT" in errors and errors.count("note") == 1
        assert asked(capsys, "rows", root, "kept", "--database", "postgres")[1].startswith("note: the server is running")
        server.sql("checkpoint")
        server.sql("insert into kept select generate_series(1, 100)")
        stop_server(server, signal.SIGQUIT)
        found, errors = asked(capsys, "page", "check", root)
        assert (found["problems"], [note["name"] for note in found["summary"]["notes"]]) == ([], ["crashed"])
        rows, errors = asked(capsys, "rows", root, "kept", "--database", "postgres")
        assert len(rows) == 1000 and errors.startswith("note: the server was not shut down")
        assert "note: the server was not shut down" in asked(capsys, "alter", "pending", root)[1]


# -- the control file --------------------------------------------------------------------------------------------------


def test_a_byte_of_pg_control_that_was_flipped_is_an_error_and_pages_are_still_checked(
    root: Path, stopped: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(stopped.file(root, "plain"), 8192 + 5000)
    whole = (root / CONTROL).read_bytes()
    checked = asked(capsys, "page", "check", root, code=1)[0]["summary"]["checksums"]
    # The first 296 bytes and their checksum are all there is; what is behind is padding.
    for at in [*range(0, 296, 7), 252, 292]:
        (root / CONTROL).write_bytes(whole)
        flip(root / CONTROL, at, 1 << at % 8)
        found, errors = asked(capsys, "page", "check", root, code=1)
        classes = found["summary"]["classes"]
        assert classes["checksum"] == 1 and found["summary"]["checksums"] == checked, (at, found)
        assert classes.keys() & {"control", "control-crc"} and errors.startswith("error: pg_control"), (at, errors)
        assert {p["path"] for p in found["problems"]} >= {str(root / CONTROL), str(stopped.file(root, "plain"))}
    (root / CONTROL).write_bytes(whole)
    content = bytearray(whole)
    content[252:256] = bytes(4)  # data_checksum_version
    (root / CONTROL).write_bytes(content)
    found, errors = asked(capsys, "page", "check", root, code=1)
    assert found["summary"]["classes"] == {"checksum": 1, "control-crc": 1}
    assert asked(capsys, "rows", root, "wide", "--database", "postgres")[1].startswith("error: pg_control is damaged")
    assert "error: pg_control is damaged" in asked(capsys, "wal", "stats", root)[1]


def test_a_version_that_is_not_that_of_pg_control_is_an_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "PG_VERSION").write_text("17\n")
    found, errors = asked(capsys, "page", "check", root, code=1)
    assert found["summary"]["classes"]["version"] == 1
    assert errors.startswith("error: PG_VERSION says 17, but pg_control is from 18")
    assert "error: PG_VERSION says 17" in asked(capsys, "wal", "stats", root)[1]


# -- files and catalogs ------------------------------------------------------------------------------------------------


def fifo(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


PUT: dict[str, Callable[[Path], None]] = {"missing": lambda path: None, "a fifo": fifo, "a folder": Path.mkdir, "a loop": loop}


@pytest.mark.parametrize("put", PUT)
def test_a_file_that_is_missing_or_odd_is_no_empty_table(
    put: str, root: Path, stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stopped.file(root, "plain")
    path.unlink()
    PUT[put](path)
    [problem] = asked(capsys, "page", "check", root, code=1)[0]["problems"]
    expected = "missing" if put == "missing" else "odd"
    assert (problem["class"], problem["path"], problem["relation"]) == (expected, str(path), "postgres.public.plain")
    for line in ([], ["--table", "plain"]):
        listed, errors = asked(capsys, "alter", "pending", root, *line, code=1)
        assert listed == [] and "note: not looked at: public.plain: " in errors
    error = asked(capsys, "rows", root, "plain", "--database", "postgres", "-o", tmp_path / "out.csv", code=2)[0]["error"]
    assert error["where"] == str(path) and not (tmp_path / "out.csv").exists()


def test_files_of_no_relation_are_counted(root: Path, stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stopped.file(root, "plain").parent
    for name in ("999999", "999999.1", "999999_fsm", "t3_888888"):
        (folder / name).write_bytes(bytes(8192))
    (root / "base" / "777777").mkdir()
    (root / "base" / "777777" / "1259").write_bytes(bytes(16384))
    found = asked(capsys, "page", "check", root, code=1)[0]["problems"]
    orphans = {Path(p["path"]).relative_to(root / "base").as_posix(): p["bytes"] for p in found if p["class"] == "orphan"}
    database = folder.name
    assert orphans == {"777777": 16384, f"{database}/999999": 3 * 8192, f"{database}/t3_888888": 8192}


def test_a_file_shorter_than_the_catalog_counted(root: Path, stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plain", "plain_pkey"):
        os.truncate(stopped.file(root, name), 8192)
    found = asked(capsys, "page", "check", root, code=1)[0]["problems"]
    short = {p["relation"]: p["found"] for p in found if p["class"] == "short"}
    assert short == {"postgres.public.plain": "1 blocks", "postgres.public.plain_pkey": "1 blocks"}


# -- copies ------------------------------------------------------------------------------------------------------------


def test_a_backup_and_a_copy_say_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with running(17, autovacuum=False) as server, tempfile.TemporaryDirectory() as name:
        server.sql("create table kept as select i as n from generate_series(1, 1000) i")
        server.sql("checkpoint")
        server.sql("insert into kept select generate_series(1, 100)")
        copied = Path(name) / "data"
        shutil.copytree(server.private.data_dir, copied, ignore=shutil.ignore_patterns("*.sock*"))
        assert asked(capsys, "rows", copied, "kept", "--database", "postgres")[1].startswith("note: the files were copied while")
        found, _ = asked(capsys, "page", "check", copied)
        assert [note["name"] for note in found["summary"]["notes"]] == ["copied"]
        (copied / "postmaster.pid").unlink()
        (copied / "backup_label").write_text("START WAL LOCATION: 0/2000028\n")
        for line in (["rows", copied, "kept", "--database", "postgres"], ["alter", "pending", copied], ["page", "check", copied]):
            assert "note: a backup that was not restored (backup_label)" in asked(capsys, *line)[1]


# -- rows that cannot be read ------------------------------------------------------------------------------------------


def test_rows_and_values_that_cannot_be_read_are_listed(
    root: Path, stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(stopped.file(root, "plain"), 8192 - 70 + 22, 0xFF)  # somewhere in the last rows; which of them, the list says
    toast = stopped.file(root, "toast")
    content = bytearray(toast.read_bytes())
    content[: 8192] = bytes(8192)  # the pieces of the first values
    toast.write_bytes(content)
    found, errors = asked(capsys, "rows", root, "wide", "--database", "postgres", code=1)
    lost = [row for row in found if "unreadable" in row]
    assert lost and {row["column"] for row in lost} == {"big"} and lost[0]["ctid"] == "(0,1)"
    assert all(row["unreadable"].startswith("value ") and row["unreadable"].endswith(" is missing") for row in lost)
    assert len(found) == 20 + len(lost)
    assert f"warning: {count(len(lost), 'value')} could not be read\nunreadable: (0,1) big: value " in errors
    for suffix in (".csv", ".parquet"):
        out = tmp_path / f"wide{suffix}"
        made, errors = asked(capsys, "rows", root, "wide", "--database", "postgres", "-o", out, "--force", code=1)
        assert [(loss["ctid"], loss["column"]) for loss in made["unreadable"]] == [(row["ctid"], "big") for row in lost]
        with (tmp_path / "wide.unreadable.csv").open(newline="") as file:
            assert [row["ctid"] for row in csv.DictReader(file)] == [row["ctid"] for row in lost]
    # When all can be read, there is no such list any more.
    asked(capsys, "rows", stopped.base, "wide", "--database", "postgres", "-o", tmp_path / "wide.csv", "--force")
    assert not (tmp_path / "wide.unreadable.csv").exists()


def test_rows_that_do_not_fit_their_columns_are_listed(root: Path, stopped: Stopped, capsys: pytest.CaptureFixture[str]) -> None:
    path = stopped.file(root, "plain")
    page = path.read_bytes()[:8192]
    lp = int.from_bytes(page[24:28], "little")  # of the first row: where its bytes are
    at = lp & 0x7FFF
    content = bytearray(path.read_bytes())
    content[at + 22] = 255  # t_hoff
    path.write_bytes(content)
    for more in ([], ["--dead"]):
        found, errors = asked(capsys, "rows", root, "plain", "--database", "postgres", *more, code=1)
        assert found[-1] == {"ctid": "(0,1)", "block": 0, "column": None, "unreadable": "its header has impossible values"}
        assert "warning: 1 row could not be read\nunreadable: (0,1): its header has impossible values\n" in errors
        assert len(found) == 3000


def test_values_that_were_vacuumed_under_dead_rows_are_no_damage(capsys: pytest.CaptureFixture[str]) -> None:
    with running(18, autovacuum=False) as server:
        server.sql("create table wide (n int, big text)")
        server.sql("alter table wide alter big set storage external")
        server.sql("insert into wide select i, repeat(md5(i::text), 200) from generate_series(1, 20) i")
        server.sql("delete from wide where n <= 5")
        [[toast]] = server.sql("select reltoastrelid::regclass::text from pg_class where relname = 'wide'")
        server.sql(f"vacuum {toast}")
        server.sql("checkpoint")
        line = ["rows", server.private.data_dir, "wide", "--database", "postgres", "--dead"]
        found, errors = asked(capsys, *line)
        dead = [row for row in found if row["status"] == "dead"]
        assert len(found) == 20 and len(dead) == 5 and all(row["big"].endswith("was vacuumed away>") for row in dead)
        assert "note: 5 TOAST values of dead rows have already been removed by VACUUM" in errors and "warning" not in errors

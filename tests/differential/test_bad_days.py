"""Files of a server on a bad day: a run that was killed, names that need quotes, a log that moves on, files with holes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, running
from leadline.cli import run
from leadline.files import wal

TERABYTE = 1 << 40
# Runs the command line that follows the number of a signal, and sends itself that signal when the command first draws its progress.
SIGNALLED = """
import os, sys
from leadline.__main__ import main
from leadline.progress import TerminalLine
number = int(sys.argv.pop(1))
TerminalLine.share = lambda *_: os.kill(os.getpid(), number)
main()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(18, autovacuum=False, wal_keep_size="1GB") as server:
        server.sql("create table plain as select i as n, md5(i::text) as word from generate_series(1, 20000) i")
        server.sql('create schema "S x"')
        server.sql('create table "S x"."T""q" as select 1 as n')
        server.sql('alter table "S x"."T""q" add column later int')
        server.sql("checkpoint")
        yield server


@pytest.fixture
def data_dir(server: Server, tmp_path: Path) -> Path:
    copied = tmp_path / "data"
    shutil.copytree(server.private.data_dir, copied, ignore=shutil.ignore_patterns("postmaster.*", "*.sock*"))
    return copied


def answer(capsys: pytest.CaptureFixture[str], *line: object, code: int = 0) -> Any:
    assert run([*map(str, line), "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ['"S x"."T""q"', 'S x.T"q', '"T""q"', 'postgres."S x"."T""q"', 'postgres.S x.T"q'])
def test_every_command_takes_the_same_names(name: str, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir = server.private.data_dir
    assert answer(capsys, "rows", data_dir, name, "--database", "postgres") == [{"ctid": "(0,1)", "n": "1", "later": None}]
    assert [row["relation"] for row in answer(capsys, "alter", "pending", data_dir, "--table", name)] == ['S x.T"q']
    if name != '"T""q"':  # which is not in the search path of a server
        [planned] = answer(capsys, "alter", "resolve", server.dsn, "--table", name, "--dry-run")
        assert planned["relation"] == 'S x.T"q'


def export_signalled(number: signal.Signals, data_dir: Path, out: Path) -> int:
    line = [sys.executable, "-c", SIGNALLED, str(int(number)), "rows", str(data_dir), "plain", "--database", "postgres", "-o", str(out)]
    return subprocess.run(line, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_export_that_is_ended_leaves_nothing(number: signal.Signals, suffix: str, data_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert export_signalled(number, data_dir, out / f"rows{suffix}") == 130
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_a_killed_export_left_is_taken_over(suffix: str, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    part = out / f"rows{suffix}.partial"
    assert export_signalled(signal.SIGKILL, data_dir, out / f"rows{suffix}") == -signal.SIGKILL
    assert [path.name for path in out.iterdir()] == [part.name]
    line = ["rows", data_dir, "plain", "--database", "postgres", "-o", out / f"rows{suffix}"]
    with part.open("ab") as held:  # as by a run that still writes it
        held.write(b"of another run")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        error = answer(capsys, *line, code=2)["error"]
        assert (error["message"], error["where"]) == ("another leadline process is writing this file", str(part))
        assert part.read_bytes().endswith(b"of another run")
    assert answer(capsys, *line)["rows"] == 20000
    assert [path.name for path in out.iterdir()] == [f"rows{suffix}"]
    import duckdb

    assert duckdb.connect().execute(f"select count(*), max(n::int) from '{out / f'rows{suffix}'}'").fetchone() == (20000, 20000)


# -- holes -------------------------------------------------------------------------------------------------------------


def test_pages_that_were_never_written_take_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "16384"
    with path.open("wb") as file:
        file.truncate(3 * TERABYTE)
        file.seek(2 * TERABYTE + 8192)
        file.write(b"no page" * 1000)
    found = answer(capsys, "page", "check", path, "--block-size", "8192", code=1)
    assert {(p["block"], p["path"]) for p in found["problems"]} == {(2 * TERABYTE // 8192 + 1, str(path))}
    summary = found["summary"]
    assert (summary["pages"], summary["kinds"]["new"]) == (3 * TERABYTE // 8192, 3 * TERABYTE // 8192 - 1)
    assert summary["bytes"] <= 1 << 20
    os.truncate(path, TERABYTE + 100)  # what is cut off behind a hole is told all the same
    found = answer(capsys, "page", "check", path, "--block-size", "8192", code=1)
    assert [(p["class"], p["block"]) for p in found["problems"]] == [("short", TERABYTE // 8192)]
    assert found["summary"]["pages"] == TERABYTE // 8192


def test_a_file_longer_than_a_segment_is_a_problem(server: Server, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [[path]] = server.sql("select pg_relation_filepath('plain')")
    os.truncate(data_dir / path, 2 << 30)
    found = answer(capsys, "page", "check", data_dir / path, code=1)
    assert [(p["class"], p["path"]) for p in found["problems"]] == [("segment", str(data_dir / path))]


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four segments of log and what a server makes in advance."""
    for i in range(4):
        server.sql(f"create table logged_{i} as select g from generate_series(1, 500) g")
        server.sql("select pg_switch_wal()")
    server.sql("checkpoint")
    folder = tmp_path_factory.mktemp("archive")
    for path in (server.private.data_dir / "pg_wal").iterdir():
        if path.is_file() and len(path.name) == 24:
            shutil.copy(path, folder)
    return folder


@pytest.mark.parametrize("line", [["stats"], ["history", "1663/5/1259", "0"]], ids=["stats", "history"])
def test_a_segment_that_is_taken_for_new_log_has_it_begun_again(
    line: list[str], archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "log"
    shutil.copytree(archive, folder)
    opened, first = wal.Wish.open, sorted(folder.iterdir())

    def open_and_take_away(wish: wal.Wish) -> Any:
        log = opened(wish)
        if take and len(list(folder.iterdir())) > len(first) - takes:
            sorted(folder.iterdir())[0].unlink()
        return log

    take, takes = True, 2
    monkeypatch.setattr(wal.Wish, "open", open_and_take_away)
    moved = answer(capsys, "wal", line[0], folder, *line[1:])
    take = False
    assert moved == answer(capsys, "wal", line[0], folder, *line[1:])
    assert len(list(folder.iterdir())) == len(first) - 2
    take, takes = True, len(first)
    monkeypatch.setattr(wal, "LOOKS", 1)
    assert answer(capsys, "wal", line[0], folder, *line[1:], code=2)["error"]["message"] == "the WAL moved on while being read"


def test_records_are_chosen_by_time(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = answer(capsys, "wal", "show", archive)
    ends = [(i, row["description"]["xact_time"]) for i, row in enumerate(every) if "xact_time" in row["description"]]
    assert len(ends) >= 4
    for at, time in (ends[0], ends[len(ends) // 2], ends[-1]):
        # The first that tells this time: a commit of before may be the same.
        assert every[at:] == answer(capsys, "wal", "show", archive, "--from-time", time)
        assert every[:at] == answer(capsys, "wal", "show", archive, "--to-time", time)
    (a, begin), (b, end) = ends[1], ends[-2]
    found = answer(capsys, "wal", "show", archive, "--from-time", begin, "--to-time", end.replace("Z", "+00:00"))
    assert found == every[a:b]
    assert answer(capsys, "wal", "show", archive, "--from-time", "2999-01-01") == []
    assert sum(row["records"] for row in answer(capsys, "wal", "stats", archive, "--to-time", begin)) == a
    assert answer(capsys, "wal", "show", archive, "--from-time", "noon", code=2)["error"]["kind"] == "usage"


def test_relations_are_named_where_a_data_directory_is_at_hand(
    server: Server, data_dir: Path, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(path: Path) -> dict[int, Any]:
        return {row["relfilenode"]: row for row in answer(capsys, "wal", "stats", path, "--by", "relation")}

    [[filenode]] = server.sql("select pg_relation_filenode('public.logged_2')::int")
    assert rows(data_dir)[filenode]["relation"] == "public.logged_2"
    assert "relation" not in rows(archive)[filenode]
    assert run(["wal", "stats", str(data_dir), "--by", "relation"]) == 0
    assert "\npublic.logged_2 " in capsys.readouterr().out
    (data_dir / "base" / "5" / "1259").unlink()
    assert run(["wal", "stats", str(data_dir), "--by", "relation"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("note: relation names of database postgres are not available: ") and f"/{filenode} " in printed.out


def test_tables_fit_a_narrow_terminal(archive: Path) -> None:
    for columns in (40, 60, 200):
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        line = [sys.executable, "-m", "leadline", "wal", "stats", str(archive), "--limit", "5"]
        with subprocess.Popen(line, stdout=terminal, stderr=subprocess.PIPE) as process:
            os.close(terminal)
            output = b""
            while part := _read(master):
                output += part
            assert process.wait(60) == 0
        os.close(master)
        widest = max(map(len, output.decode().splitlines()))
        assert widest <= min(columns, 80) and widest > min(columns, 70) - 10, output.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # nobody has its other end any more
        return b""

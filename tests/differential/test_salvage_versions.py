"""leadline salvage of rows as they were, and of dead versions of them: what SELECT gave at that time."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, running
from leadline.cli import run
from recovery import crash
from servers import MAJORS


@dataclass
class Then:
    """After a transaction: its number, when it committed, and the rows of both tables."""

    xid: int
    time: str
    rows: list[list[str]]


@dataclass
class Kept:
    """A cluster whose server was killed. rolled_back: the transaction of a row that never was."""

    data_dir: Path
    times: list[Then]
    rolled_back: int


def lines(server: Server) -> list[list[str]]:
    return [sorted("\t".join(map(str, row)) for row in server.sql(f"select * from {table}")) for table in ("changing", "frozen")]


def committed(server: Server, *statements: str) -> Then:
    with server.connect() as connection, connection.transaction():
        for statement in statements:
            connection.execute(statement.encode())
        row = connection.execute("select pg_current_xact_id()::text").fetchone()
    xid = int(row[0]) if row else 0
    ((time,),) = server.sql(f"select to_json(pg_xact_commit_timestamp('{xid}'::xid))#>>'{{}}'")
    return Then(xid, time, lines(server))


def rolled_back(server: Server) -> int:
    with server.connect() as connection:
        connection.execute("begin")
        connection.execute("insert into changing values (9, 'never')")
        row = connection.execute("select pg_current_xact_id()::text").fetchone()
        connection.execute("rollback")
    return int(row[0]) if row else 0


@pytest.fixture(scope="module", params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    at = tmp_path_factory.mktemp("versions") / "data"
    with running(request.param, track_commit_timestamp="on") as server:
        server.sql("create table changing (n int, word text) with (autovacuum_enabled = off)")
        server.sql("create table frozen (n int) with (autovacuum_enabled = off)")
        times = [committed(server, "insert into changing values (1, 'a'), (2, 'b'), (3, 'c')")]
        times.append(committed(server, "update changing set word = 'B' where n = 2", "insert into frozen values (1)"))
        never = rolled_back(server)
        with server.connect() as other, other.transaction():
            other.execute("select from changing where n = 1 for key share")
            times.append(committed(server, "update changing set word = 'A' where n = 1"))
        times.append(committed(server, "delete from changing where n = 3", "insert into frozen values (2)"))
        server.sql("vacuum freeze frozen")
        server.sql("checkpoint")
        shutil.copytree(crash(server), at)
    yield Kept(at, times, never)
    shutil.rmtree(at.parent)


def salvaged(data_dir: Path, out: Path, *words: str) -> tuple[dict[str, Any], list[list[str]]]:
    assert run(["salvage", str(data_dir), "-o", str(out), *words]) in (0, 1)
    (database,) = json.loads((out / "manifest.json").read_text())["databases"]
    tables = {table["table"]: table for table in database["tables"]}
    files = [out / "postgres" / tables[name]["file"] for name in ("public.changing", "public.frozen")]
    return database, [sorted(file.read_text().splitlines()) for file in files]


def test_rows_are_as_select_gave_them_then(kept: Kept, tmp_path: Path) -> None:
    assert len({json.dumps(then.rows) for then in kept.times}) == len(kept.times) == 4
    for number, then in enumerate(kept.times):
        for word in (str(then.xid), then.time):
            database, rows = salvaged(kept.data_dir, tmp_path / f"saved {number} {word.isdigit()}", "--as-of", word)
            assert rows == then.rows, word
            assert [lost["what"] for lost in database["lost"]] == ["rows as of an earlier time"]


def test_dead_versions_are_in_files_of_their_own(kept: Kept, tmp_path: Path) -> None:
    database, rows = salvaged(kept.data_dir, tmp_path / "saved", "--dead")
    assert rows == kept.times[-1].rows
    tables = {table["table"]: (table["dead"], table["dead_file"]) for table in database["tables"]}
    assert tables == {"public.changing": (4, "dead/public.changing.csv"), "public.frozen": (0, "")}
    with (tmp_path / "saved" / "postgres" / "dead" / "public.changing.csv").open(newline="") as file:
        dead = [(row["n"], row["word"], row["status"], int(row["xmin"]), int(row["xmax"])) for row in csv.DictReader(file)]
    first, second, _, last = (then.xid for then in kept.times)
    assert [row for row in dead if row[0] != "1"] == [
        ("2", "b", "dead", first, second),
        ("3", "c", "dead", first, last),
        ("9", "never", "aborted", kept.rolled_back, 0),
    ]
    # Its xmax is a multixact: another transaction held a lock on it.
    assert [row[:4] for row in dead if row[0] == "1"] == [("1", "a", "dead", first)]
    assert list((tmp_path / "saved" / "postgres" / "dead").iterdir()) == [tmp_path / "saved" / "postgres" / "dead" / "public.changing.csv"]


def test_a_moment_that_is_not_known_is_refused(kept: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["salvage", str(kept.data_dir), "-o", str(tmp_path / "saved"), "--as-of"]
    for moment, message in (
        ("soon", "--as-of soon: not a transaction and not a time"),
        ("2", "--as-of 2: transactions are numbered from 3 to 4294967295"),
        ("2001-01-01", "--as-of 2001-01-01: times of commits are kept since "),
    ):
        assert run([*words, moment]) == 2
        assert f"error: {message}" in capsys.readouterr().err
    without = tmp_path / "without"
    shutil.copytree(kept.data_dir, without)
    shutil.rmtree(without / "pg_commit_ts")
    assert run(["salvage", str(without), "-o", str(tmp_path / "saved"), "--as-of", kept.times[0].time]) == 2
    assert "error: the files have no times of commits\n" in capsys.readouterr().err
    assert not (tmp_path / "saved").exists()

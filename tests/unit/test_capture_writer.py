"""leadline._core.capture.TableWriter: rows from Python into a capture, read back as every user reads them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leadline._core.capture import TableWriter, clock
from leadline.capture.manifest import Clock, Manifest, Target, write_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError
from leadline.tables import Column, Table, all_tables

STORED = [table for table in all_tables().values() if table.kind == "table"]
LIMITS = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_manifest(tmp_path, Manifest(Target("host"), status="complete", clock=Clock(0, 1)))
    return tmp_path


@pytest.fixture
def opened(folder: Path) -> Iterator[list[Capture]]:
    captures: list[Capture] = []
    yield captures
    for capture in captures:
        capture.close()


def some_value(column: Column, source: random.Random) -> object:
    if column.nullable and source.random() < 0.3:
        return None
    if column.type.startswith("list<"):
        return [some_of(column.type[len("list<") : -1], source) for _ in range(source.randint(0, 5))]
    return some_of(column.type, source)


def some_of(type_: str, source: random.Random) -> object:
    if type_ in LIMITS:
        low, high = LIMITS[type_]
        return source.choice([low, high, 0, source.randint(low, high)])
    if type_ == "float64":
        return source.choice([source.uniform(-1e9, 1e9), 0.5, -0.0])
    if type_ == "bool":
        return source.random() < 0.5
    if type_ == "binary":
        return source.choice([b"", b"\0\xff", source.randbytes(300)])
    return source.choice(["", "select $1", "ünïcode 行", "a'b\"c\n", "x" * 500])


def rows_of(table: Table) -> list[tuple[object, ...]]:
    source = random.Random(table.name)
    return [tuple(some_value(column, source) for column in table.columns) for _ in range(3000)]


@pytest.fixture(scope="module")
def every_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Capture, dict[str, Any]]]:
    """A capture with rows of every table, opened; by table the rows, and what the writer said in the end."""
    folder, written = tmp_path_factory.mktemp("every") / "table.leadline", {}
    folder.mkdir()
    write_manifest(folder, Manifest(Target("host"), status="complete", clock=Clock(0, 1)))
    for table in STORED:
        rows, writer = rows_of(table), TableWriter(str(folder), table.name)
        writer.append(rows[:5])
        writer.append([])
        writer.flush()
        writer.append(rows[5:])
        written[table.name] = rows, writer.close()
    with closing(open_capture(folder, whole=True)) as capture:
        yield capture, written


@pytest.mark.parametrize("table", STORED, ids=lambda table: table.name)
def test_every_table_comes_back_as_written(table, every_table):
    capture = every_table[0]
    rows, done = every_table[1][table.name]
    segments = sorted((capture.path / table.name).iterdir())
    assert [segment.name for segment in segments] == ["000001.parquet"]  # it grew
    assert done == {"rows": 3000, "bytes": sum(segment.stat().st_size for segment in segments), "segments": 1}
    columns = ", ".join(f'"{column.name}"' for column in table.columns)  # not what is computed from them
    found = capture.db.execute(f'select {columns} from "{table.name}"').fetchall()
    assert sorted(map(repr, found)) == sorted(map(repr, rows))


def test_rows_of_a_long_sampled_table_come_back_in_duckdb(folder, opened):
    """Many pages, values that repeat, climb and jump: each way the writer has of storing integers."""
    source = random.Random(1)
    now, rows = 10**12, []
    started = [0] * 50
    for tick in range(900):
        now += 10**6 + source.randrange(50_000)
        for session in range(50):
            if source.random() < (0.9 if tick > 450 else 0.05):
                started[session] = now // 1000 - source.randrange(10_000)
            wait = source.choice([0, 0x0100003C, 0x0A000015, 2**32 - 1])
            query = -session * 10**15
            rows.append((tick, 1, session, 2, wait, query, 0, query, started[session], started[session], now, tick * 2**20, 0))
    writer = TableWriter(str(folder), "session_run")
    writer.append(rows)
    assert writer.close()["bytes"] < 25 * len(rows)
    opened.append(open_capture(folder, whole=True))
    columns = ", ".join(c.name for c in all_tables()["session_run"].columns)
    assert opened[0].db.execute(f"select {columns} from session_run order by tick, session_id").fetchall() == rows


def test_a_run_is_a_row_for_each_pass_that_was_made(folder, opened):
    """Session 1 shows one thing in four passes, session 2 another in the last; pass 2 is not there: its time stays unknown."""
    with_tables = {"tick": [(k, 1000 + 10 * k, 10, 0, 5, 0, 2, 0, 0, 0) for k in (0, 1, 3)]}
    with_tables["session_run"] = [(0, 4, 1, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0), (3, 1, 2, 3, 8, 0, 0, 0, 0, 0, 0, 0, 0)]
    for name, rows in with_tables.items():
        writer = TableWriter(str(folder), name)
        writer.append(rows)
        writer.close()
    opened.append(open_capture(folder, whole=True))
    found = opened[0].db.execute("select ts, session_id, state, wait_event_info from session_tick order by all").fetchall()
    assert found == [(1000, 1, 2, 7), (1010, 1, 2, 7), (1030, 1, 2, 7), (1030, 2, 3, 8)]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((1, "vmstat.pgfault"), ("row 1 does not fit host_stat", "expected 3 values, got 2")),
        ((1, "vmstat.pgfault", 1, 1), ("row 1 does not fit host_stat", "expected 3 values, got 4")),
        ([1, "vmstat.pgfault", 1], ("row 1 does not fit host_stat", "expected a tuple, got list")),
        ((1, 2, 3), ("row 1 does not fit host_stat.metric", "expected string, got an integer")),
        ((1, "vmstat.pgfault", None), ("row 1 does not fit host_stat.value", "not nullable")),
        ((1, "vmstat.pgfault", 1.0), ("row 1 does not fit host_stat.value", "expected int64, got a float")),
        ((1, "vmstat.pgfault", True), ("row 1 does not fit host_stat.value", "expected int64, got a bool")),
        ((2**63, "vmstat.pgfault", 1), ("row 1 does not fit host_stat.ts", "out of range for int64")),
        ((1, "\ud800", 1), ("row 1 does not fit host_stat.metric", "surrogates")),
        ((1, b"x", 1), ("row 1 does not fit host_stat.metric", "expected string, got bytes")),
        ((1, {1}, 1), ("row 1 does not fit host_stat.metric", "a set cannot be stored in a table")),
    ],
)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_written(row, says, folder):
    good = (1, "vmstat.pgscan_direct", 2)
    writer = TableWriter(str(folder), "host_stat")
    writer.append([good])
    with pytest.raises(LeadlineError) as caught:
        writer.append([good, row])
    error = caught.value
    assert error.kind == "invalid" and error.message == says[0] and says[1] in error.detail
    assert error.where.startswith("host_stat") and "row 1" in error.where
    assert writer.close()["rows"] == 1


def test_integers_must_fit_their_column(folder):
    writer = TableWriter(str(folder), "wait_event")
    for wrong in (-1, 2**32):
        with pytest.raises(LeadlineError, match=r"row 0 does not fit wait_event.wait_event_info"):
            writer.append([(wrong, "LWLock", "WALWrite")])


@pytest.mark.parametrize(("table", "kind"), [("no_such_table", "not_found"), ("session_sample", "invalid")])
def test_only_stored_tables_are_written(table, kind, folder):
    with pytest.raises(LeadlineError) as caught:
        TableWriter(str(folder), table)
    assert caught.value.kind == kind and "leadline tables" in caught.value.hint


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LeadlineError) as caught:
        TableWriter(str(tmp_path / "file"), "setting")
    error = caught.value
    assert error.kind == "storage" and error.where == str(tmp_path / "file" / "setting")
    assert "Not a directory" in error.detail


def test_a_closed_writer_says_so_and_closes_again(folder):
    writer = TableWriter(str(folder), "host_stat")
    writer.append([(1, "a", 1)])
    assert writer.close() == writer.close()
    for call in (lambda: writer.append([]), writer.flush):
        with pytest.raises(LeadlineError) as caught:
            call()
        assert caught.value.kind == "usage"


def test_threads_share_a_writer(folder, opened):
    writer = TableWriter(str(folder), "host_stat")

    def work(thread: int) -> None:
        for number in range(200):
            writer.append([(number, f"thread {thread}", number)])
            if number % 20 == 0:
                writer.flush()

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.close()["rows"] == 800
    opened.append(open_capture(folder, whole=True))
    assert opened[0].scalar("select count(distinct (ts, metric)) from host_stat") == 800


def test_unfinished_segments_are_not_read(folder, opened):
    """What a killed recorder leaves: a file under its temporary name."""
    writer = TableWriter(str(folder), "host_stat")
    writer.append([(1, "a", 1)])
    writer.close()
    (folder / "host_stat" / "000002.parquet.tmp").write_bytes(b"PAR1 half")
    opened.append(open_capture(folder, whole=True))
    assert opened[0].scalar("select count(*) from host_stat") == 1


def test_clock_reads_both_clocks_together():
    before = time.monotonic_ns(), time.time_ns()
    monotonic, wall = clock()
    after = time.monotonic_ns(), time.time_ns()
    assert before[0] <= monotonic <= after[0] and before[1] <= wall <= after[1]

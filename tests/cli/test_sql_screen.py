"""`leadline sql` on a terminal: one screenful, local times, and how much is left out. Into a pipe it prints everything."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import on_terminal
from example_capture import example
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import Capture, open_capture
from leadline.cli.demo import HOT_PAGES
from leadline.cli.sql_screen import local_times, one_screen

NUMBERS = "select range as n, range * 2 as twice from range(1000)"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example(tmp_path_factory.mktemp("screen")).write()


@pytest.fixture
def capture(path: Path) -> Iterator[Capture]:
    opened = open_capture(path, whole=True)
    yield opened
    opened.close()


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone whose local time is never that of UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def screen(capture: Capture, query: str, columns: int = 80, lines: int = 24) -> tuple[list[str], str]:
    text, note = one_screen(capture, query, os.terminal_size((columns, lines)))
    return text.splitlines(), note


@pytest.mark.parametrize("lines", [8, 24, 60])
def test_a_table_fills_the_screen_and_no_more(capture: Capture, lines: int) -> None:
    text, note = screen(capture, NUMBERS, lines=lines)
    assert len(text) == lines - 3  # the note, the command and the prompt are on the screen too
    assert [line.split() for line in text[2:]] == [[str(n), str(2 * n)] for n in range(lines - 5)]
    assert note == f"{1000 - (lines - 5)} of 1,000 rows not shown; --table prints all of them"


@pytest.mark.parametrize(("rows", "left_out"), [(18, 0), (19, 0), (20, 1), (21, 2)])
def test_what_fits_has_no_note(capture: Capture, rows: int, left_out: int) -> None:
    text, note = screen(capture, NUMBERS.replace("1000", str(rows)))
    assert len(text) == 2 + rows - left_out
    assert note == (f"{left_out} of {rows} rows not shown; --table prints all of them" if left_out else "")


def test_no_rows_are_said_to_be_none(capture: Capture) -> None:
    assert screen(capture, "select 1 as n where false") == (["n", "-"], "no rows")


def test_rows_that_do_not_fit_side_by_side_are_printed_one_value_per_line(capture: Capture) -> None:
    wide = "select " + ", ".join(f"range + 1000000000 as column_{n}" for n in range(8)) + " from range(5)"
    grid, note = screen(capture, wide, columns=120)
    assert grid[0].split() == [f"column_{n}" for n in range(8)] and len(grid) == 7 and note == ""
    records, note = screen(capture, wide, columns=80)
    assert [line.split()[0] for line in records[1:9]] == [f"column_{n}" for n in range(8)]
    assert len(records) == 18 and note == "3 of 5 rows not shown; --table prints all of them"
    assert all(len(line) <= 80 for line in records)


def test_other_statements_than_select_are_counted_too(capture: Capture) -> None:
    assert screen(capture, "explain select 1")[1] == ""
    columns = len(capture.rows("describe session_sample"))
    for query in ("describe session_sample", f"with n as ({NUMBERS}) from n limit {columns}", f"{NUMBERS} limit {columns}"):
        text, note = screen(capture, query, lines=10)
        assert len(text) == 7 and note == f"{columns - 5} of {columns} rows not shown; --table prints all of them"


def test_a_comment_at_the_end_does_not_swallow_the_count(capture: Capture) -> None:
    assert screen(capture, f"{NUMBERS};  -- all of them")[1] == "981 of 1,000 rows not shown; --table prints all of them"


@pytest.mark.usefixtures("zone")
def test_the_local_time_stands_beside_ts(capture: Capture) -> None:
    row = capture.rows("select ts, ts + c.wall_offset_ns as wall from tick cross join capture c order by ts limit 1")[0]
    hour, minute = divmod(row["wall"] // 60_000_000_000 + 330, 60)  # Kolkata is 5:30 ahead of UTC
    text, _ = screen(capture, "select ts, missed from tick order by ts")
    assert text[0].split() == ["ts", "ts", "(local)", "missed"]
    assert text[2].split()[1].startswith(f"{hour % 24:02d}:{minute:02d}:")


def test_a_number_that_is_no_time_of_the_capture_gets_no_local_time(capture: Capture) -> None:
    assert screen(capture, "select 5 as ts, 'x' as ts_from, null::bigint as ts_to")[0][0].split() == ["ts", "ts_from", "ts_to"]
    assert "(local)" not in screen(capture, "select max(ts) - min(ts) as ts from tick")[0][0]


@pytest.mark.usefixtures("zone")
def test_times_of_more_than_one_day_have_the_date() -> None:
    evening = 18 * 3_600_000_000_000  # 23:30 in Kolkata on 1970-01-01
    assert local_times([0, None], evening) == ["23:30:00.000", None]
    assert local_times([0, 1_800_001_000_000], evening) == ["1970-01-01 23:30:00.000", "1970-01-02 00:00:00.001"]


def test_what_the_demo_suggests_is_a_grid_of_the_hottest_pages(capture: Capture) -> None:
    text, _ = screen(capture, HOT_PAGES)
    assert text[0].split() == ["object", "block", "page_kind", "waiters", "wait_s"]
    costs = [float(line.split()[-1]) for line in text[2:]]
    assert costs and costs[0] > 0 and costs == sorted(costs, reverse=True)


def test_only_a_terminal_gets_the_first_rows_only(path: Path) -> None:
    seen = on_terminal(["sql", str(path), NUMBERS], 12, 80)
    assert seen.splitlines()[-1] == "993 of 1,000 rows not shown; --table prints all of them"
    assert len(seen.splitlines()) == 10
    piped = subprocess.run([sys.executable, "-m", "leadline", "sql", path, NUMBERS], capture_output=True, text=True, check=True)
    assert len(piped.stdout.splitlines()) == 1002 and piped.stderr == ""
    assert on_terminal(["sql", str(path), NUMBERS, "--table"], 12, 80) == piped.stdout


def test_a_capture_without_a_window_has_no_local_times(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    path = cap.write()
    (path / "manifest.json").write_text((path / "manifest.json").read_text().replace('"wall_offset_ns"', '"no_offset"'))
    opened = open_capture(path, whole=True)
    try:
        assert "(local)" not in screen(opened, "select 1 as ts")[0][0]
    finally:
        opened.close()

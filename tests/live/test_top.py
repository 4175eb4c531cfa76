"""leadline top: the moving window over a capture, the numbers of a frame, the screen and its keys, and live servers."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, wait_until
from example_capture import LONG, example
from findings_synthetic import TS_FROM, SyntheticCapture
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.top import chart, engine, folder, grids, model, names, text
from leadline.top import detail as detail_page
from leadline.top.app import TopApp
from leadline.top.engine import Request
from leadline.top.grid import Bar, Column, Grid, Row, cell, lines, widths
from leadline.top.live import LiveCapture
from leadline.top.model import Frame, Recording
from leadline.top.terminal import Forgiving, forgiving_terminal
from leadline.views import lock_tree, spenders, where
from leadline.views.wait_classes import wait_class
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import ContentSwitcher, Input, Static

CLI = [sys.executable, "-m", "leadline"]
SECOND = 1_000_000_000
RECORDING = Recording("16.14", "postmaster 4711", 2, "shm", 100, 61, 1.4, 0.034)


def live_of(path: Path) -> LiveCapture:
    """A live capture that has taken in the whole of a synthetic one."""
    live = LiveCapture(path, read_manifest(path))
    live.set_names(path)
    live.ingest(path)
    return live


def rounded(value: Any) -> Any:
    """A value with its floats at nine digits: sums depend on the order of their parts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else round(value, 9) if isinstance(value, float) else value


def at(second: float) -> int:
    return TS_FROM + round(second * SECOND)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCapture]:
    opened = live_of(example(tmp_path_factory.mktemp("top")).write())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def frame(live: LiveCapture) -> Frame:
    """Seconds 10 to 40 of the example: the lock chain stands at its end."""
    live.look_at(at(10), at(40))
    return model.frame(live, RECORDING)


# -- the moving window -------------------------------------------------------------------------------------------------


def test_the_whole_window_says_what_the_capture_says(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    kept = shutil.copytree(path, tmp_path / "copy.leadline")
    live, capture = live_of(path), open_capture(kept)
    live.look_at(at(0), at(60))
    for ask in (
        where.by_class, where.cpu_split, where.outside, spenders.sessions, spenders.statements, spenders.objects, spenders.hot_blocks,
        lock_tree.lock_trees,
    ):  # fmt: skip
        assert rounded(ask(live)) == rounded(ask(capture)) != [], ask.__name__
    seen = model.load(live)
    assert (seen.db_time_s, seen.aas) == (pytest.approx(where.window(capture).db_time_s), pytest.approx(where.window(capture).aas))


def test_segments_are_read_once_and_removed(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    live = live_of(path)
    assert sorted({p.parent.name for p in path.glob("*/*.parquet")}) == ["database", "relation", "role"]
    assert not [p for table in ("tick", "session_run", "session", "host_stat", "lock_wait") for p in path.glob(f"{table}/*.parquet")]
    before = live.scalar("select count(*) from kept.session_sample")
    assert live.ingest(path) == 0
    assert live.scalar("select count(*) from kept.session_sample") == before > 0


def test_the_window_moves(live: LiveCapture) -> None:
    live.look_at(at(0), at(5))
    assert model.load(live).observed_s == pytest.approx(5)
    assert not lock_tree.lock_trees(live)
    live.look_at(at(20), at(30))
    seen = {c.wait_class: c.seconds for c in model.load(live).classes}
    assert seen["Lock"] == pytest.approx(30)  # three victims
    assert [t.pid for t in lock_tree.lock_trees(live)] == [7001]
    assert live.extent() == (at(0), at(60))


def test_samples_wait_for_their_tick(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=2)
    cap.sample(cap.add_session(), "active", None, 0, 2)
    path = cap.write()
    later = path.with_name("later")
    later.mkdir()
    (path / "tick").rename(later / "tick")
    live = LiveCapture(path, read_manifest(path))
    live.ingest(path)
    assert live.extent() is None
    live.ingest(later)
    assert live.extent() == (at(0), at(2))
    live.look_at(at(0), at(2))
    assert model.load(live).db_time_s == pytest.approx(2)


def test_names_that_come_later_are_given_to_what_was_sampled(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    live = LiveCapture(path, read_manifest(path))
    named = path.with_name("names")
    named.mkdir()
    for table in ("database", "role", "relation"):
        (path / table).rename(named / table)
    live.ingest(path)
    live.look_at(at(0), at(60))
    assert live.unknown_relations() == {(16384, 16401), (16384, 16402), (16384, 16403)}
    assert live.rows("select distinct datname, usename from session_sample where datid = 16384") == [{"datname": None, "usename": None}]
    live.set_names(named)
    assert live.rows("select distinct datname, usename from session_sample where datid = 16384") == [
        {"datname": "shop", "usename": "postgres"}
    ]
    assert live.unknown_relations() == set()


def test_old_samples_are_forgotten_but_a_held_window_stays(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=40)
    cap.sample(cap.add_session(), "active", None, 0, 40)
    gone = cap.add_session(pid=99)
    cap.sample(gone, "active", None, 0, 3)
    live = live_of(cap.write())
    live.trim(at(30), spared=(at(10), at(12)))
    live.look_at(at(0), at(40))
    assert model.load(live).observed_s == pytest.approx(12)
    assert live.scalar("select min(ts) from tick") == at(10)
    assert live.rows("select pid from session order by pid") == [{"pid": 4001}]
    live.trim(at(30))
    assert live.extent() == (at(30), at(40))


def test_a_damaged_segment_is_one_error(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    (path / "tick" / "000002.parquet").write_bytes(b"not parquet")
    live = LiveCapture(path, read_manifest(path))
    with pytest.raises(LeadlineError) as caught:
        live.ingest(path)
    assert caught.value.kind == "storage"
    assert live.extent() is None


# -- the numbers of a frame --------------------------------------------------------------------------------------------


def test_the_load_adds_up(frame: Frame) -> None:
    of = frame.load
    assert (of.window_s, of.observed_s, of.ticks, of.missed) == (30, pytest.approx(30), 3000, 0)
    assert of.aas == pytest.approx(of.db_time_s / 30)
    assert sum(c.seconds for c in of.classes) == pytest.approx(of.db_time_s)
    assert all(sum(e.seconds for e in c.events) == pytest.approx(c.seconds) for c in of.classes)
    assert of.lock_waiters == 3 and of.idle_in_xact >= 1
    assert sum(sum(step.values()) for step in frame.timeline.steps if step) * frame.timeline.step_s == pytest.approx(of.db_time_s)


def test_the_timeline_has_round_steps_and_leaves_gaps(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=10)
    session = cap.add_session()
    cap.sample(session, "active", None, 0, 10)
    cap.sample(session, "active", "IO:DataFileRead", 2, 4)
    live = live_of(cap.write())
    live.db.execute(f"delete from kept.tick where ts >= {at(6)} and ts < {at(8)}")
    live.db.execute(f"delete from kept.session_sample where ts >= {at(6)} and ts < {at(8)}")
    live.look_at(at(0), at(10))
    line = model.timeline(live, 10)
    assert (line.step_s, len(line.steps)) == (1.0, 10)
    assert line.steps[6:8] == [None, None]
    assert [list(step) for step in line.steps if step] == [["CPU"]] * 2 + [["IO"]] * 2 + [["CPU"]] * 4
    assert line.peak == pytest.approx(1)
    for columns in (1, 7, 33, 74, 500):
        live.look_at(at(0.37), at(5.99))
        found = model.timeline(live, columns).steps
        assert len(found) <= columns and None not in found


def test_sessions_at_the_end_of_the_window(frame: Frame) -> None:
    found = {s.pid: s for s in frame.sessions or []}
    assert found[7002].blocked_by == (7001,) and found[7003].blocked_by == (7002,)
    assert found[7001].blocked_by == () and found[7001].state == "idle in transaction" and not found[7001].hidden_when_quiet
    assert found[7001].xact_age_s == pytest.approx(36, abs=0.1)
    assert found[7003].age_s == pytest.approx(25, abs=0.1)  # in this statement
    assert found[7003].busy_s == pytest.approx(25) and found[7001].busy_s == 0
    assert found[7002].statement.startswith("update accounts") and found[7002].usename == "postgres"
    quiet = {s.backend_type or s.application_name for s in frame.sessions or [] if s.hidden_when_quiet}
    assert "checkpointer" in quiet
    busy = [s.busy_s for s in frame.sessions or []]
    assert busy == sorted(busy, reverse=True)


def test_who_waits_now_and_who_has_waited(live: LiveCapture) -> None:
    live.look_at(at(10), at(40))
    assert model.waiting_now(live) == {7002, 7003, 7004}
    live.look_at(at(30), at(60))
    assert model.waiting_now(live) == frozenset() and lock_tree.lock_trees(live)
    over = model.frame(live, RECORDING, parts=frozenset({"locks"}))
    assert all(row.dim for row in grids.locks(over).rows)


def test_a_session_in_full(live: LiveCapture) -> None:
    live.look_at(at(10), at(40))
    session = next(s.session_id for s in model.sessions(live) if s.pid == 7002)
    found = model.session_detail(live, session)
    assert found.statement.startswith("update accounts set balance")
    assert [(w.event, pytest.approx(w.seconds)) for w in found.waits] == [("transactionid", 28)]
    assert [(s.what, pytest.approx(s.lasted_s), pytest.approx(s.ago_s)) for s in found.last] == [("Lock:transactionid", 28, 28)]
    assert found.blocks == (7003, 7004)
    writer = next(s.session_id for s in model.sessions(live) if s.application_name == "ingest" and s.pid != 7002)
    used = model.session_detail(live, writer)
    assert used.used["wal_bytes"] == pytest.approx(3_000_000) and used.used["cpu_run_ns"] == pytest.approx(200_000_000)
    assert used.used["majflt"] is None and used.used_s == pytest.approx(30)
    assert {s.what for s in used.last} == {"CPU", "LWLock:BufferContent", "IO:WALSync"} and len(used.last) == 12
    assert model.session_detail(live, 4242).session is None


def test_the_json_of_a_frame_can_be_written(frame: Frame) -> None:
    from leadline.output import to_json

    numbers = json.loads(to_json(frame.as_dict()))
    assert numbers["load"]["aas"] == pytest.approx(frame.load.aas)
    assert numbers["trees"][0]["pid"] == 7001 and numbers["trees"][0]["waiters"][0]["waiters"]
    assert numbers["waiting_now"] == [7002, 7003, 7004]
    assert numbers["recording"]["error"] is None and numbers["blocks"][0]["object"] == "public.orders_pkey"
    error = LeadlineError("gone", "the server went away")
    failed = dataclasses.replace(frame, recording=dataclasses.replace(RECORDING, error=error))
    assert failed.as_dict()["recording"]["error"]["kind"] == "gone"


# -- cells -------------------------------------------------------------------------------------------------------------


def test_columns_fit_every_width() -> None:
    for columns in (grids.OVERVIEW, grids.SESSIONS, grids.LOCKS, grids.BLOCKS, grids.STATEMENTS):
        for width in range(1, 250):
            shown = widths(columns, width)
            assert shown and sum(w for _, w in shown) + len(shown) - 1 <= width, (width, shown)
            assert all(w > 0 for _, w in shown)
        assert len(widths(columns, 200)) == len(columns)


def test_cells_have_their_width_whatever_is_in_them() -> None:
    for content in ("", "short", "x" * 50, "日本語のテキスト", Bar(0.5, "#ffffff"), Bar(0, "#ffffff"), Bar(7, "#ffffff")):
        for width in (1, 2, 7, 20):
            assert cell_len(cell(content, width).plain) == width
    assert cell("abcdef", 4).plain == "abc…" and cell("7", 3, right=True).plain == "  7"
    assert cell(Bar(0.5, "#ffffff"), 5).plain == "██▌  "
    assert cell(Bar(0.0001, "#ffffff"), 5).plain == "▏    "


def test_a_grid_as_text() -> None:
    grid = Grid([Column("n", 3, right=True), Column("name", 4, share=1, most=6)], [Row("1", ["1", "alpha"]), Row("2", ["2", "beta"])])
    assert [line.plain for line in lines(grid, 20)] == ["  n name", "  1 alpha", "  2 beta"]
    assert [line.plain for line in lines(grid, 20, most=1)][-1] == "and 1 more"
    assert [line.plain for line in lines(Grid(grid.columns, empty="nothing here"), 20)] == ["nothing here"]
    assert [row.key for row in grid.filtered("ALPH")] == ["1"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (0.004, "0.00"),
        (0.25, "0.25"),
        (7.31, "7.3"),
        (9.97, "10"),
        (82.4, "82"),
        (724, "12m04"),
        (11220, "3h07"),
        (439200, "5d02"),
    ],
)
def test_ages(value: float | None, shown: str) -> None:
    assert grids.duration(value) == shown


def test_the_bar_marks_the_cpus_and_fills_its_width(frame: Frame) -> None:
    for width in (4, 20, 77):
        assert cell_len(chart.load_bar(frame.load, 2, width).plain) == width
        assert chart.load_bar(frame.load, 2, width).plain.count("│") == 1
    idle = dataclasses.replace(frame.load, classes=[], db_time_s=0.0)
    assert chart.load_bar(idle, 4, 40).plain.replace(" ", "") == "│"
    assert "no session is active" in chart.legend(idle, 80).plain
    for width in (10, 40, 80, 200):
        assert cell_len(chart.legend(frame.load, width).plain) <= width


def colours_of(row: Text) -> list[str]:
    """The colours of the parts of a line, from left to right."""
    styles = [span.style for span in row.spans if isinstance(span.style, Style)]
    return [style.color.name for style in styles if style.color]


def test_the_chart_has_the_height_of_the_sums() -> None:
    line = model.Timeline(1.0, [{"CPU": 1.0}, {"CPU": 1.0, "IO": 3.0}, None, {}])
    rows = [row.plain for row in chart.stacked(line, 1, 10, 4)]
    assert all(len(row) == 10 for row in rows)
    assert rows[0].split() == ["4.00", "█"] and rows[3][6:] == "██· "
    assert [row[:6] for row in rows] == [" 4.00 ", "      ", "1 CPU ", "      "] and rows[2][8:] == "╌╌"
    full = chart.stacked(line, None, 10, 4)
    assert [row.plain[7] for row in full] == ["█", "█", "█", "█"] and [row.plain[6] for row in full] == [" ", " ", " ", "█"]
    assert colours_of(full[0])[-1:] == [wait_class("IO").dark] and colours_of(full[3])[-2:] == [wait_class("CPU").dark] * 2
    tiny = chart.stacked(model.Timeline(1.0, [{"CPU": 0.01}]), 64, 20, 3)
    assert "CPU" not in tiny[0].plain + tiny[2].plain  # a line far above the peak is left out


# -- plain text --------------------------------------------------------------------------------------------------------


def test_the_plain_frame_fits_and_says_it_all(frame: Frame) -> None:
    for width in (80, 120):
        out = [line.plain for line in text.text_frame(frame, width, colours=False)]
        assert max(cell_len(line) for line in out) <= width
    page = "\n".join(out)
    assert "PostgreSQL 16.14 · postmaster 4711" in page
    assert "shared memory 100 Hz · no tick missed · own CPU 3.4 %" in page
    assert re.search(r"^Lock .* \d+\.\d%", page, re.M) and re.search(r"^  tuple +50\.0", page, re.M)
    assert re.search(r"^7001 batch +◆ .*3 behind it", page, re.M) and re.search(r"└ 7002 web +● ", page)
    assert re.search(r"public\.orders_pkey +117 .*right-most leaf +content", page)
    assert re.search(r"^ +7002 .*active +Lock:transactionid < 7001", page, re.M)
    assert "insert into orders (customer_id" in page


def test_missed_ticks_notes_and_what_is_not_measured_are_said(frame: Frame) -> None:
    recording = dataclasses.replace(RECORDING, tier="sql", rate_hz=10, own_cpu=None, notes=("names stay numbers: why",))
    poor = dataclasses.replace(
        frame,
        recording=recording,
        load=dataclasses.replace(frame.load, missed=7, ticks=93),
        blocks=[],
        unavailable={"blocks": "needs memory"},
    )
    page = "\n".join(line.plain for line in text.text_frame(poor, 80))
    assert "SQL 10 Hz · 7 of 100 ticks missed · own CPU not yet known" in page
    assert "note: names stay numbers: why" in page and "not measured: needs memory" in page


# -- the screen --------------------------------------------------------------------------------------------------------


class Replay:
    """An engine over a synthetic capture that stands still."""

    def __init__(self, live: LiveCapture, until_s: float = 40) -> None:
        self.live, self.until_s = live, until_s
        self.requests: list[Request] = []
        self.taken_in = 0
        self.error: LeadlineError | None = None
        self.breaks: Exception | None = None

    def take_in(self) -> None:
        self.taken_in += 1
        if self.breaks is not None:
            raise self.breaks

    def frame(self, request: Request) -> Frame:
        self.requests.append(request)
        seen = frame_of(self.live, dataclasses.replace(request, until_ns=request.until_ns or at(self.until_s)))
        return dataclasses.replace(seen, recording=dataclasses.replace(RECORDING, error=self.error))


_frames: dict[tuple[int, Request], tuple[LiveCapture, Frame]] = {}


def frame_of(live: LiveCapture, request: Request) -> Frame:
    """What stands still is the same each time that the screen asks."""
    key = (id(live), request)
    if key not in _frames:
        assert request.until_ns is not None
        live.look_at(request.until_ns - round(request.window_s * SECOND), request.until_ns)
        _frames[key] = live, model.frame(live, RECORDING, request.columns, request.parts, request.detail)
    return _frames[key][1]


Drive = Callable[[TopApp, Pilot[None], Replay], Coroutine[Any, Any, None]]


def on_screen(live: LiveCapture, drive: Drive, size: tuple[int, int] = (100, 30), replay: Replay | None = None) -> None:
    """Runs the app without a terminal and lets `drive` press keys, from the moment the first frame is there."""
    replay = replay or Replay(live)

    async def go() -> None:
        app = TopApp(replay, refresh_s=0.5)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.now_shown is not None)
            await drive(app, pilot, replay)

    asyncio.run(go())


async def until(pilot: Pilot[None], condition: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the screen did not get there"
        await pilot.pause(0.02)


async def shows(pilot: Pilot[None], app: TopApp, *words: str) -> str:
    """Waits until all the words are on the screen: its parts are drawn one after another. Returns the screen."""
    await until(pilot, lambda: all(word in screen(app) for word in words))
    return screen(app)


def screen(app: TopApp) -> str:
    """What is on the screen, line by line."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip)[:width] for strip in strips[:height])


def test_the_overview_comes_first(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        shown = await shows(
            pilot, app,
            "transactionid", "PostgreSQL 16.14 · postmaster 4711", "data up to -1.4 s", "own CPU 3.4 %", "AAS 11", "on 2 CPUs",
            "■ CPU", "2 CPU", "waiting for a CPU", "3 locks 3", "q quit", "p pause", "w window", "/ filter",
        )  # fmt: skip
        assert re.search(r"Lock +78\.0 ", shown)
        assert "s sort" not in shown

    on_screen(live, drive)


def test_keys_open_the_tables(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("2")
        await shows(pilot, app, "Lock:transactionid < 7001", "i idle", "⏎ detail")
        await pilot.press("3")
        await shows(pilot, app, "3 behind it", "idle in transaction")
        await pilot.press("4")
        await shows(pilot, app, "public.orders_pkey", "right-most leaf")
        await pilot.press("5")
        await shows(pilot, app, "insert into orders")
        await pilot.press("tab")
        await until(pilot, lambda: app.open_tab == "overview")
        await pilot.press("shift+tab")
        await until(pilot, lambda: app.open_tab == "statements")
        await pilot.click("#tabs", offset=(15, 0))
        await until(pilot, lambda: app.open_tab == "sessions")
        await until(pilot, lambda: replay.requests[-1] == app.request)
        assert app.request.parts == {"sessions"}  # no more is worked out than the screen shows

    on_screen(live, drive)


def test_idle_sessions_are_hidden_until_asked_for_and_can_be_sorted(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("2")
        await shows(pilot, app, "idle not shown")
        shown = app.table("sessions").row_count
        assert "psql" not in screen(app)
        await pilot.press("i")
        await until(pilot, lambda: app.table("sessions").row_count > shown and "idle not shown" not in screen(app))
        await pilot.press("s", "s", "s")
        assert app.sort == "pid"
        await until(pilot, lambda: first_cells(app) == sorted(first_cells(app)))
        await pilot.press("i")
        await until(pilot, lambda: app.table("sessions").row_count == shown)

    def first_cells(app: TopApp) -> list[int]:
        table = app.table("sessions")
        return [int(table.get_row_at(n)[0].plain) for n in range(table.row_count)]

    on_screen(live, drive)


def test_enter_opens_a_session_and_escape_leaves_it(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("2")
        await until(pilot, lambda: app.table("sessions").row_count > 3)
        table = app.table("sessions")
        place = next(n for n in range(table.row_count) if table.get_row_at(n)[0].plain.strip() == "7002")
        await pilot.press(*["down"] * place, "enter")
        await shows(pilot, app, "update accounts set balance = balance - $1 where id = $2")
        await shows(pilot, app, "pid 7002", "blocked by    pid 7001", "pid 7003, pid 7004", "esc back")
        await pilot.press("escape")
        await until(pilot, lambda: app.open_tab == "sessions")
        assert app.request.detail is None
        await until(pilot, lambda: replay.requests[-1].detail is None)
        await pilot.press("3")
        await until(pilot, lambda: app.table("locks").row_count == 4)
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: "pid 7003" in screen(app) or "pid 7004" in screen(app))

    on_screen(live, drive, size=(100, 40))


def test_the_detail_page_says_what_is_missing(live: LiveCapture) -> None:
    live.look_at(at(10), at(40))
    root = next(s.session_id for s in model.sessions(live) if s.pid == 7001)
    page = "\n".join(line.plain for line in detail_page.lines(model.frame(live, RECORDING, detail=root), 80))
    assert "state         idle in transaction" in page and "none: it was not active" in page and "not yet read" in page
    gone = "\n".join(line.plain for line in detail_page.lines(model.frame(live, RECORDING, detail=4242), 80))
    assert "has ended" in gone
    report = next(s.session_id for s in model.sessions(live) if s.statement.startswith("select o.id"))
    page = "\n".join(line.plain for line in detail_page.lines(model.frame(live, RECORDING, detail=report), 80))
    assert LONG in page and "on CPU           30.0 %" in page and "not readable: " in page


def test_the_cursor_stays_on_its_session(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("2")
        await until(pilot, lambda: app.table("sessions").row_count > 5)
        table = app.table("sessions")
        await pilot.press("down", "down", "down")
        pid = table.get_row_at(table.cursor_row)[0].plain
        await pilot.press("s", "s", "s")
        await pilot.pause()
        assert table.get_row_at(table.cursor_row)[0].plain == pid
        frames = len(replay.requests)
        await until(pilot, lambda: len(replay.requests) > frames + 1)
        assert table.get_row_at(table.cursor_row)[0].plain == pid

    on_screen(live, drive)


def test_the_filter(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("2")
        await until(pilot, lambda: app.table("sessions").row_count > 3)
        await pilot.press("slash", *"BATCH", "enter")
        await until(pilot, lambda: app.table("sessions").row_count == 1)
        await shows(pilot, app, "7001", "/BATCH")
        assert not app.query_one("#filter", Input).display
        await pilot.press("p")  # keys are keys again
        await shows(pilot, app, "PAUSED")
        await pilot.press("slash", "q", "x", "enter")
        await shows(pilot, app, "nothing contains 'qx'")
        await pilot.press("escape")
        await until(pilot, lambda: app.table("sessions").row_count > 3)
        await pilot.press("slash", "z", "escape")
        assert app.filter_text == "" and app.table("sessions").has_focus

    on_screen(live, drive)


def test_pause_holds_the_window_and_tables_can_still_be_opened(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("p")
        assert app.request.until_ns == at(40)
        await shows(pilot, app, "PAUSED", "held")
        replay.until_s = 60  # time goes on
        taken = replay.taken_in
        await until(pilot, lambda: replay.taken_in > taken + 2)  # what is recorded is still taken in
        await pilot.press("3")
        await shows(pilot, app, "3 behind it")
        assert app.now_shown is not None and app.now_shown.load.ts_to == at(40)
        frames = len(replay.requests)
        taken = replay.taken_in
        await until(pilot, lambda: replay.taken_in > taken + 1)
        assert len(replay.requests) == frames
        await pilot.press("p")
        await until(pilot, lambda: app.now_shown is not None and app.now_shown.load.ts_to == at(60))

    on_screen(live, drive)


def test_the_window_can_be_changed(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        seen = [app.request.window_s]
        for _ in range(4):
            await pilot.press("w")
            seen.append(app.request.window_s)
        assert seen == [30, 60, 300, 10, 30]
        await pilot.press("w")
        await until(pilot, lambda: app.now_shown is not None and app.now_shown.load.window_s == 60)
        await shows(pilot, app, "60 s")

    on_screen(live, drive)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (80, 24), (140, 40), (250, 70), (1, 1)])
def test_every_size_works(live: LiveCapture, size: tuple[int, int]) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        for key in "12345":
            await pilot.press(key)
            await pilot.pause()
        await pilot.press("2")
        await until(pilot, lambda: app._has("sessions", app.now_shown) if app.now_shown else False)
        await pilot.press("enter")
        await pilot.resize_terminal(80, 24)
        await pilot.press("escape", "1")
        await shows(pilot, app, "transactionid")

    on_screen(live, drive, size=size)


def test_a_server_that_went_away_is_said_and_the_screen_stays(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        replay.error = LeadlineError("gone", "the server ended", detail="postmaster 4711 is gone")
        await shows(pilot, app, "the server ended (postmaster 4711 is gone)", "no more data")
        await pilot.press("2")
        await shows(pilot, app, "Lock:transactionid < 7001")
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    on_screen(live, drive)


def test_an_error_of_the_view_itself_is_not_silent(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        replay.breaks = ZeroDivisionError("oops")
        await shows(pilot, app, "programming error")
        assert app.failure is not None and "oops" in app.failure.detail
        await pilot.press("2")
        assert app.query_one(ContentSwitcher).current == "sessions"

    on_screen(live, drive)


def test_nothing_active_says_so(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=40)
    cap.sample(cap.add_session(), "idle", "Client:ClientRead", 0, 40)

    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await shows(pilot, app, "no session was active in the window")
        for key, words in (
            ("2", "no session does anything just now"),
            ("3", "nobody waited for a lock"),
            ("4", "no buffer was waited for"),
        ):
            await pilot.press(key)
            await shows(pilot, app, words)
        assert app.query_one("#empty", Static).display

    on_screen(live_of(cap.write()), drive)


# -- around the screen -------------------------------------------------------------------------------------------------


def test_the_temporary_folder_goes_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), folder.temporary_folder(tmp_path) as made:
        assert made.stat().st_mode & 0o777 == 0o700
        (made / "x").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_view_left_is_removed_and_a_running_one_is_not(tmp_path: Path) -> None:
    with folder.temporary_folder(tmp_path) as running:
        left = tmp_path / "leadline-top-left"
        left.mkdir()
        (left / folder.LOCK).touch()
        other = tmp_path / "leadline-top-other"
        other.mkdir()  # without a lock: it may just be being made
        with folder.temporary_folder(tmp_path):
            assert running.exists() and not left.exists() and other.exists()


def test_the_folder_is_in_memory_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "SHARED_MEMORY", tmp_path)
    assert folder.parent() == tmp_path
    monkeypatch.setattr(folder, "ROOM_BYTES", 1 << 60)
    assert folder.parent() == Path(tempfile.gettempdir())
    monkeypatch.setattr(folder, "SHARED_MEMORY", tmp_path / "absent")
    assert folder.parent() == Path(tempfile.gettempdir())
    with pytest.raises(LeadlineError) as caught, folder.temporary_folder(tmp_path / "absent"):
        pass
    assert caught.value.kind == "storage"


def test_names_are_read_again_for_numbers_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "UNKNOWN_AFTER_S", 0.01)
    asked: list[set[int]] = []

    def read(databases: set[int]) -> names.Rows:
        asked.append(databases)
        if len(asked) == 2:
            raise LeadlineError("connection", "too many clients")
        return {"role": [(10, f"reading {len(asked)}")], "setting": []}

    reader = names.Names(tmp_path, read)
    reader.start()
    wait_until(reader.first.is_set, what="the first reading")
    first = wait_until(reader.take, what="the first names")
    assert sorted(p.parent.name for p in first.glob("*/*.parquet")) == ["role"]
    reader.ask({(5, 100)})
    wait_until(lambda: reader.failed == "too many clients", what="the failed reading")
    reader.ask({(5, 100)})  # asked before: no new reading for it
    reader.ask({(6, 100)})
    wait_until(reader.take, what="the third reading")
    assert reader.failed == "" and asked == [set(), {5}, {5, 6}]
    wait_until(lambda: not reader._wake.is_set(), what="the reader's rest")
    reader.ask({(5, 100), (6, 100)})
    assert not reader._wake.is_set()
    reader.close()


def test_very_many_sessions_shorten_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap = SyntheticCapture(tmp_path, seconds=60)
    cap.sample(cap.add_session(), "active", None, 0, 60)
    made = engine.Engine.__new__(engine.Engine)
    made.live, made._held, made.keep_s = live_of(cap.write()), None, engine.KEEP_S
    made._trim()
    assert made.keep_s == engine.KEEP_S and made.live.extent() == (at(0), at(60))
    monkeypatch.setattr(engine, "MOST_SAMPLES", 4000)
    made._trim()
    assert made.keep_s == pytest.approx(30) and made.live.extent() == (at(20), at(60))


@pytest.mark.parametrize(
    ("arguments", "kind", "hint"),
    [
        (["--rate", "200"], "usage", "leadline take goes higher"),
        (["--refresh", "100ms"], "usage", "--refresh"),
        (["--window", "1h"], "usage", "leadline take records longer"),
        (["--json"], "usage", "--once"),
        ([], "usage", "--once prints one frame"),
        (["--once", "999999999"], "not_found", ""),
    ],
)
def test_what_cannot_be_is_one_error(arguments: list[str], kind: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = [] if "999999999" in arguments else [str(os.getpid())]
    assert run(["top", *target, *arguments]) == 2
    said = capsys.readouterr()
    if "--json" in arguments:
        assert json.loads(said.out)["error"]["kind"] == kind
    else:
        assert said.err.startswith("error: ") and hint in said.err and "Traceback" not in said.err


# -- live servers ------------------------------------------------------------------------------------------------------


def left_over() -> set[Path]:
    return {p for place in (Path("/dev/shm"), Path(tempfile.gettempdir())) for p in place.glob("leadline-top-*")}


@contextmanager
def lock_wait(server: Server) -> Iterator[tuple[int, int]]:
    """A transaction that holds a row and asks nothing, and a session that waits for the row: (root, victim) pids."""
    server.sql("drop table if exists seat")
    server.sql("create table seat(id int primary key, taken int)")
    server.sql("insert into seat values (1, 0)")
    with server.connect(application_name="holder", autocommit=False) as root, server.connect(application_name="waiter") as victim:
        root.execute("update seat set taken = 1 where id = 1")

        def wait() -> None:
            victim.execute("update seat set taken = 2 where id = 1")

        waiting = threading.Thread(target=wait)
        waiting.start()
        pids = root.info.backend_pid, victim.info.backend_pid
        wait_until(lambda: server.sql(f"select pg_blocking_pids({pids[1]})") == [([pids[0]],)], what="the lock wait")
        try:
            yield pids
        finally:
            root.rollback()
            waiting.join(10)


@pytest.mark.parametrize("tier", ["shm", "sql"])
def test_one_frame_of_a_live_server_names_the_planted_lock_wait(servers: Callable[[int], Server], tier: str) -> None:
    server = servers(16)
    before = left_over()
    target = str(server.pid) if tier == "shm" else server.dsn
    with lock_wait(server) as (root, victim):
        done = subprocess.run(
            [*CLI, "top", target, "--once", "--json", "--window", "3s", "--rate", "50", "--tier", tier],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    assert numbers["recording"]["tier"] == tier and numbers["recording"]["server"].startswith("16.")
    (tree,) = [tree for tree in numbers["trees"] if tree["pid"] == root]
    assert tree["state"] == "idle in transaction" and [w["pid"] for w in tree["waiters"]] == [victim]
    assert numbers["waiting_now"] == [victim]
    sessions = {s["pid"]: s for s in numbers["sessions"]}
    assert sessions[victim]["blocked_by"] == [root] and sessions[victim]["event"] == "transactionid"
    assert sessions[victim]["datname"] == "postgres" and sessions[victim]["statement"].startswith("update seat")
    locked = next(c["seconds"] for c in numbers["load"]["classes"] if c["wait_class"] == "Lock")
    assert locked == pytest.approx(numbers["load"]["observed_s"], rel=0.15)
    assert left_over() == before


def test_one_plain_frame_fits_80_columns(servers: Callable[[int], Server]) -> None:
    arguments = ["--pid", str(servers(16).pid), "--once", "--window", "1500ms"]
    done = subprocess.run([*CLI, "top", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert max(map(cell_len, done.stdout.splitlines())) <= 80 and "\x1b" not in done.stdout
    assert "shared memory 20 Hz" in done.stdout and "Lock tree\nnobody waited for a lock in the window" in done.stdout


class Terminal:
    """`leadline top` in a pseudo terminal of 100 x 30."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="30")
            os.execv(sys.executable, [*CLI, "top", *arguments])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.said = ""
        self.code: int | None = None

    def read(self) -> str:
        """Everything written until now, without escape sequences."""
        while select.select([self.fd], [], [], 0)[0]:
            try:
                self.said += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                break
        return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|[()=>][^\x1b]?|\][^\x07]*\x07)", "", self.said)

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.read(), 40, f"{words!r} on the screen")

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def hang_up(self) -> None:
        os.close(self.fd)
        self.fd = -1

    def ended(self) -> int:
        def reap() -> bool:
            if self.fd >= 0:
                self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            return pid != 0

        wait_until(reap, 30, "the end of top")
        assert self.code is not None
        return self.code


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    opened = Terminal(*arguments)
    try:
        yield opened
    finally:
        if opened.code is None:
            os.kill(opened.pid, signal.SIGKILL)
            os.waitpid(opened.pid, 0)
        if opened.fd >= 0:
            os.close(opened.fd)


def test_the_screen_on_a_terminal(servers: Callable[[int], Server]) -> None:
    server = servers(16)
    before = left_over()
    with lock_wait(server) as (root, _), terminal(str(server.pid), "--refresh", "1s") as screen:
        screen.wait_for("Lock:transactionid")
        (made,) = left_over() - before
        screen.press("3")
        screen.wait_for(f"{root} holder")
        screen.wait_for("1 behind it")
        # segments do not pile up: what was read is gone
        seen = [len(list(made.glob("*/*/*.parquet"))) for _ in range(40) if time.sleep(0.1) is None]
        assert min(seen) <= 1 and max(seen) <= 40
        screen.press("q")
        assert screen.ended() == 0
    assert left_over() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_and_leave_nothing(servers: Callable[[int], Server], number: signal.Signals) -> None:
    before = left_over()
    with terminal(str(servers(16).pid)) as screen:
        screen.wait_for("data up to")
        assert left_over() - before
        os.kill(screen.pid, number)
        assert screen.ended() == 0
    assert left_over() == before


def test_a_terminal_that_is_closed_ends_it_and_leaves_nothing(servers: Callable[[int], Server]) -> None:
    before = left_over()
    with terminal(str(servers(16).pid), "--refresh", "500ms") as screen:
        screen.wait_for("data up to")
        screen.press("2")
        screen.hang_up()
        assert screen.ended() == 0
    assert left_over() == before


def test_writing_to_a_closed_terminal_is_no_error() -> None:
    master, end = pty.openpty()
    with forgiving_terminal(), open(end, "w", closefd=False) as stream:
        assert sys.__stderr__ is not None and sys.__stderr__.fileno() == 2
        out = Forgiving(stream)
        os.close(master)
        assert out.write("text") == 4
        out.flush()
        with pytest.raises(OSError):
            stream.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), end)  # so that closing it can write
    assert not isinstance(sys.__stderr__, Forgiving)


def test_a_signal_ends_one_frame_too(servers: Callable[[int], Server]) -> None:
    before = left_over()
    with subprocess.Popen(
        [*CLI, "top", str(servers(16).pid), "--once", "--window", "60s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as top:
        wait_until(lambda: left_over() - before, what="the temporary folder")
        wait_until(lambda: list((left_over() - before).pop().glob("live.leadline/tick/*")), what="the first ticks")
        top.terminate()
        assert top.wait(20) == 130
        assert top.stderr is not None and b"Traceback" not in top.stderr.read()
    assert left_over() == before


def test_a_server_that_stops_leaves_the_screen_and_exit_code_2(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(16)
    before = left_over()
    with terminal(str(server.pid), "--refresh", "1s") as screen:
        screen.wait_for("data up to")
        os.kill(server.pid, signal.SIGINT)  # fast shutdown
        screen.wait_for("What was seen until then stays")
        screen.press("2")
        screen.wait_for("no session does anything just now")
        screen.press("q")
        assert screen.ended() == 2
        assert "error: " in screen.read()
    assert left_over() == before


def test_names_of_new_relations_come_by_themselves(servers: Callable[[int], Server], tmp_path: Path) -> None:
    """Over SQL: of the connected database and of another one that is asked for."""
    server = servers(16)
    server.sql("drop database if exists elsewhere")
    server.sql("create database elsewhere")
    with server.connect(dbname="elsewhere") as conn:
        conn.execute("create table there(a int)")
        (oid,) = conn.execute("select oid from pg_database where datname = 'elsewhere'").fetchone() or (0,)
    read = names.reader(None, server.dsn)  # type: ignore[arg-type]
    assert "there" not in {row[5] for row in read(set())["relation"]}
    assert "there" in {row[5] for row in read({int(oid)})["relation"]}
    with pytest.raises((LeadlineError, psycopg.Error)):
        names.over_sql("host=/nowhere dbname=x", set())

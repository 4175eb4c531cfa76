"""`leadline top`: the screen, driven by keys, without a terminal and without a server."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from example_capture import LONG, example
from findings_synthetic import SyntheticCapture
from leadline.engines.live import Deed
from leadline.engines.postgres.act import refusal
from leadline.errors import LeadlineError
from leadline.top import detail as detail_page
from leadline.top import model
from leadline.top.app import TopApp
from leadline.top.engine import Request
from leadline.top.live import LiveCapture
from leadline.top.model import Frame, SessionNow
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input, Static
from top_parts import RECORDING, SECOND, at, live_of, until


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCapture]:
    opened = live_of(example(tmp_path_factory.mktemp("top")).write())
    yield opened
    opened.close()


class Replay:
    """An engine over a synthetic capture that stands still."""

    def __init__(self, live: LiveCapture, until_s: float = 40) -> None:
        self.live, self.until_s = live, until_s
        self.requests: list[Request] = []
        self.taken_in = 0
        self.calls: list[str] = []  # of what the recorder is asked
        self.ahead_s = 0.2
        self.tabs: tuple[str, ...] = model.TABS
        self.deeds: list[tuple[str, int]] = []
        self.error: LeadlineError | None = None
        self.breaks: Exception | None = None

    def write_soon(self) -> None:
        self.calls.append("write_soon")

    def take_in(self) -> None:
        self.calls.append("take_in")
        self.taken_in += 1
        if self.breaks is not None:
            raise self.breaks

    def refusal(self, deed: Deed, session: SessionNow) -> str:
        return refusal(deed, session)

    def carry_out(self, deed: Deed, session: SessionNow) -> str:
        self.deeds.append((deed.name, session.pid))
        return f"pid {session.pid} was {deed.done}"

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


def on_screen(
    live: LiveCapture, drive: Drive, size: tuple[int, int] = (100, 30), replay: Replay | None = None, read_only: bool = False
) -> None:
    """Runs the app without a terminal and lets `drive` press keys, from the moment the first frame is there."""
    replay = replay or Replay(live)

    async def go() -> None:
        app = TopApp(replay, refresh_s=0.5, read_only=read_only)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.now_shown is not None)
            await drive(app, pilot, replay)

    asyncio.run(go())


async def shows(pilot: Pilot[None], app: TopApp, *words: str) -> str:
    """Waits until all the words are on the screen: its parts are drawn one after another. Returns the screen."""
    await until(pilot, lambda: all(word in screen(app) for word in words))
    return screen(app)


def screen(app: TopApp) -> str:
    """What is on the screen, line by line."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip)[:width] for strip in strips[:height])


def test_a_frame_shows_what_the_recorder_was_asked_for_and_no_frame_is_made_without(live: LiveCapture) -> None:
    """Segments cost CPU: one round of them for each frame, asked for in time."""

    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await until(pilot, lambda: replay.taken_in > 3)
        app.stop_refreshing()
        calls = replay.calls[: replay.calls.index("take_in", 5)]
        assert calls == ["take_in", "write_soon"] * (len(calls) // 2) and len(calls) >= 6
        assert len([request for request in replay.requests if request.columns == app.request.columns]) <= replay.taken_in + 1

    on_screen(live, drive)


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


def test_other_numbers_lay_out_nothing(live: LiveCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number on the tab of locks, notes and the head change at nearly each refresh of a busy server."""
    layouts: list[object] = []
    layout = Screen._refresh_layout

    def laying_out(self: Screen[object], *arguments: Any, **options: Any) -> None:
        layouts.append(arguments)
        layout(self, *arguments, **options)

    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("2")
        await shows(pilot, app, "idle not shown", "3 locks 3")
        await pilot.press("p")  # no frame comes in between
        await shows(pilot, app, "PAUSED")
        monkeypatch.setattr(Screen, "_refresh_layout", laying_out)
        seen = app.now_shown
        assert seen is not None and seen.sessions is not None
        for waiters in (4, 5):
            load = dataclasses.replace(seen.load, lock_waiters=waiters, active=waiters)
            app.now_shown = dataclasses.replace(seen, load=load, sessions=seen.sessions[waiters:])
            app._show()
            await until(pilot, lambda waiters=waiters: f"3 locks {waiters}" in screen(app))
            await pilot.pause()  # until it is drawn
        assert layouts == []

    on_screen(live, drive, size=(140, 40))


def test_a_session_is_told_something_only_after_a_question(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("C")  # not in the overview
        await pilot.press("2")
        await shows(pilot, app, "Lock:transactionid < 7001", "C cancel", "K terminate")
        await pilot.press("C")
        await shows(pilot, app, "Cancel the statement of pid", "y/n", "y yes")
        await pilot.press("n")
        await until(pilot, lambda: "Cancel the statement of" not in screen(app))
        await pilot.press("K")
        shown = await shows(pilot, app, "Terminate the session of pid")
        asked = int(re.findall(r"session of pid (\d+)", shown)[0])
        assert replay.deeds == []
        await pilot.press("down", "y")
        await shows(pilot, app, f"pid {asked} was asked to end")
        assert replay.deeds == [("terminate", asked)]
        await pilot.press("y")
        await pilot.press("escape")
        await until(pilot, lambda: "was asked to end" not in screen(app))
        assert len(replay.deeds) == 1

    on_screen(live, drive)


def test_what_clients_call_themselves_is_no_command_to_the_terminal(tmp_path: Path) -> None:
    """In the list, on the page of the session, and in the question, which has one line."""
    evil = "\x1b]52;c;QQ==\x07\x9b2J\nx\u202ey"
    cap = SyntheticCapture(tmp_path, seconds=40)
    cap.add("statement", statement_id=9, id_source="text", query=f"select 1 /* {evil} */")
    cap.sample(cap.add_session(application_name=evil), "active", "Lock:tuple", 0, 40, statement_id=9)

    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        def is_harmless() -> bool:
            return all(line.isprintable() for line in screen(app).split("\n"))

        await pilot.press("2")
        await shows(pilot, app, "]52;c;QQ==")
        assert is_harmless()
        await pilot.press("C")
        await shows(pilot, app, "Cancel the statement of pid")
        assert is_harmless() and app.query_one("#question", Static).size.height == 1
        await pilot.press("n", "enter")
        await shows(pilot, app, "Statement", "waits for")
        assert is_harmless()

    on_screen(live_of(cap.write()), drive, size=(140, 40))


def test_read_only_has_no_such_keys(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("2")
        shown = await shows(pilot, app, "Lock:transactionid < 7001", "s sort")
        assert "cancel" not in shown
        await pilot.press("C", "y", "K", "y")
        assert replay.deeds == [] and app.asked is None

    on_screen(live, drive, read_only=True)


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
        return [int(str(row.cells[0])) for row in table.rows]

    on_screen(live, drive)


def test_enter_opens_a_session_and_escape_leaves_it(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await pilot.press("2")
        await until(pilot, lambda: app.table("sessions").row_count > 3)
        table = app.table("sessions")
        place = next(n for n, row in enumerate(table.rows) if row.cells[0] == "7002")
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
        session = table.key_at_cursor()
        await pilot.press("s", "s", "s")
        await pilot.pause()
        assert table.key_at_cursor() == session
        frames = len(replay.requests)
        await until(pilot, lambda: len(replay.requests) > frames + 1)
        assert table.key_at_cursor() == session

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


def test_a_frame_that_comes_while_the_screen_is_taken_down_is_dropped(live: LiveCapture) -> None:
    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await app.query_one("#head").remove()
        asked = len(replay.requests)
        await until(pilot, lambda: len(replay.requests) > asked + 1)
        assert app.is_running

    on_screen(live, drive)


def test_nothing_active_says_so(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=40)
    cap.sample(cap.add_session(), "idle", "Client:ClientRead", 0, 40)

    async def drive(app: TopApp, pilot: Pilot[None], replay: Replay) -> None:
        await shows(pilot, app, "no session was active in the window")
        for key, words in (
            ("2", "no session does anything just now"),
            ("3", "no session waited for a lock"),
            ("4", "no buffer was waited for"),
        ):
            await pilot.press(key)
            await shows(pilot, app, words)
        assert app.table("blocks").has_focus and app.table("blocks").row_count == 0

    on_screen(live_of(cap.write()), drive)

"""The screen: what the engine's frames say, laid out for the terminal at hand, and the keys."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import ContentSwitcher, Footer, Input, Static

from leadline.engines.live import CANCEL, TERMINATE, Deed
from leadline.errors import LeadlineError
from leadline.figures import fit, one_line
from leadline.top import chart, detail, grids, text
from leadline.top.chart import LINE, MUTED
from leadline.top.driver import QuietDriver
from leadline.top.engine import WINDOWS_S, Request
from leadline.top.lines import Lines
from leadline.top.model import STANDBYS, TABS, Frame, SessionNow
from leadline.top.table import LiveTable

DETAIL = "detail"
NAMES = {name: name for name in (*TABS, STANDBYS)} | {"blocks": "hot blocks"}
CHART_IN_EVERY_TAB = 34  # rows of the terminal from which on the chart is not only in the overview
ROOMY = 20  # rows from which on the server's own counters have a line
LOW = 12  # rows of the terminal below which the head has one line and the bar no legend
JOIN_S = 5.0


class Frames(Protocol):
    """What the screen needs of an Engine."""

    @property
    def ahead_s(self) -> float: ...
    @property
    def tabs(self) -> tuple[str, ...]: ...
    def write_soon(self) -> None: ...
    def take_in(self) -> None: ...
    def frame(self, request: Request) -> Frame: ...
    def refusal(self, deed: Deed, session: SessionNow) -> str: ...
    def carry_out(self, deed: Deed, session: SessionNow) -> str: ...


class TopApp(App[None]):
    """Asks `engine` for a frame every refresh_s seconds, in a thread of its own, so that keys never wait for a query."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: #12161b; color: #e3e8ee; layers: base; }
    Static, Lines { height: auto; background: #12161b; }
    #head, #load, #chart, #tabs, #note, #problem { padding: 0 1; }
    #head, #load, #chart, #tabs, #note { text-wrap: nowrap; text-overflow: clip; }
    #problem { background: #58151c; color: #ffffff; display: none; }
    #question { background: #5a4300; color: #ffffff; display: none; padding: 0 1; }
    #tabs { background: #1f262e; }
    #note { color: #8b97a4; }
    ContentSwitcher { height: 1fr; }
    LiveTable, #detail {
        scrollbar-color: #3a4550; scrollbar-color-hover: #52606e; scrollbar-color-active: #52606e;
        scrollbar-background: #12161b; scrollbar-background-hover: #12161b; scrollbar-background-active: #12161b;
    }
    #detail { padding: 0 1; scrollbar-size-vertical: 1; background: #12161b; }
    #filter { display: none; border: none; height: 1; padding: 0 1; background: #252c35; }
    #filter:focus { border: none; }
    Footer { background: #1f262e; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("p", "pause", "pause"),
        Binding("w", "window", "window"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("i", "idle", "idle"),
        Binding("s", "sort", "sort"),
        Binding("C", "ask('cancel')", "cancel"),
        Binding("K", "ask('terminate')", "terminate"),
        Binding("y", "answer(True)", "yes"),
        Binding("n", "answer(False)", "no"),
        Binding("escape", "leave", "back"),
        *(Binding(str(number), f"tab('{name}')", show=False) for number, name in enumerate((*TABS, STANDBYS), 1)),
    ]

    class Arrived(Message):
        """A new frame, from the thread that makes them."""

        def __init__(self, frame: Frame) -> None:
            super().__init__()
            self.frame = frame

    class Failed(Message):
        """The thread ended by an error: the screen keeps what it has."""

    def __init__(self, engine: Frames, window_s: float = 30.0, refresh_s: float = 2.0, read_only: bool = False) -> None:
        super().__init__(driver_class=QuietDriver)
        self.animation_level = "none"
        self.engine, self.refresh_s = engine, refresh_s
        self.windows = sorted({*WINDOWS_S, window_s})
        self.request = Request(parts=frozenset({"overview"}), window_s=window_s)
        self.now_shown: Frame | None = None
        self.failure: LeadlineError | None = None
        self.open_tab, self.filter_text, self.sort, self.with_idle = TABS[0], "", grids.SORTS[0], False
        self.read_only = read_only
        self._stands: dict[str, Text | str] = {}  # what parts of the screen show
        self.asked: tuple[Deed, SessionNow] | None = None  # a question that stands on the screen
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self._end_wanted = False
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._refresh_forever, name="leadline-frames", daemon=True)

    # -- the thread that makes frames ----------------------------------------------------------------------------------

    def _refresh_forever(self) -> None:
        due = time.monotonic()
        shown: Request | None = None
        ended = False  # the server is gone: nothing new will come
        is_coming = False  # the recorder writes what it has seen
        try:
            while not self._stop.is_set():
                now = time.monotonic()
                is_new = now >= due
                if is_new:
                    self.engine.take_in()
                    due = max(due + self.refresh_s, time.monotonic() + self.refresh_s / 2)
                    is_coming = False
                ask_at = due - self.engine.ahead_s
                if not is_coming and now >= ask_at:
                    self.engine.write_soon()
                    is_coming = True
                request = self.request
                if request != shown or (is_new and request.until_ns is None and not ended):
                    made = self.engine.frame(request)
                    self.post_message(self.Arrived(made))
                    shown, ended = request, made.recording.error is not None
                self._wake.wait(max((due if is_coming else ask_at) - time.monotonic(), 0.0))
                self._wake.clear()
        except LeadlineError as e:
            self.failure = e
        except Exception as e:  # a screen that silently stands still would be taken for a quiet server
            self.failure = LeadlineError("invalid", "the view ended by a programming error", detail=repr(e), hint="please report it")
        if self.failure is not None:
            self.post_message(self.Failed())

    def stop_refreshing(self) -> None:
        """Ends the thread; after this the engine belongs to the caller again."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)

    def end_soon(self) -> None:
        """For signal handlers: leaves the screen in order, also when it is only about to come up."""
        self._end_wanted = True
        if self._running_loop is not None:
            self._running_loop.call_soon_threadsafe(self.exit)

    def _ask(self, **changes: object) -> None:
        """Changes what is wanted; the next frame comes at once."""
        self.request = replace(self.request, **changes)  # type: ignore[arg-type]
        self._wake.set()

    # -- layout --------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Lines(id="head")
        yield Lines(id="load")
        yield Lines(id="chart")
        yield Lines(id="tabs")
        yield Static(id="problem")
        yield Static(id="question")
        with ContentSwitcher(initial=TABS[0]):
            for name in self.engine.tabs:
                yield LiveTable(id=name)
            with VerticalScroll(id=DETAIL):
                yield Static(id="page")
        yield Lines(id="note")
        yield Input(id="filter", placeholder="part of any cell; enter keeps it, escape clears it", compact=True)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._running_loop = asyncio.get_running_loop()
        if self._end_wanted:
            self.exit()
        self._show_head()
        self._show_tabs()
        self.table(TABS[0]).focus()
        self._ask(columns=self._chart_width())
        self._thread.start()

    def on_unmount(self) -> None:
        self.stop_refreshing()

    def on_resize(self) -> None:
        self._ask(columns=self._chart_width())
        self._show()

    def table(self, name: str) -> LiveTable:
        return self.query_one(f"#{name}", LiveTable)

    def _chart_width(self) -> int:
        return max(self.size.width - 2 - chart.SCALE, 10)

    def _chart_height(self) -> int:
        """Rows of the chart: in the overview a third of the screen, elsewhere only when there is plenty."""
        rows = self.size.height
        if self.open_tab == "overview":
            return 0 if rows < 18 else min((rows - 9) // 3, 14)
        return 6 if rows >= CHART_IN_EVERY_TAB and self.open_tab != DETAIL else 0

    # -- showing -------------------------------------------------------------------------------------------------------

    def on_top_app_arrived(self, message: TopApp.Arrived) -> None:
        self.now_shown = message.frame
        self._show()

    def on_top_app_failed(self) -> None:
        self._show()

    def _show(self) -> None:
        if not (self.query("#head") and self.query("#page")):  # the first part to come and go, and the last
            return
        with self.batch_update():
            self._show_head()
            self._show_problem()
            self._show_load()
            self._show_tabs()
            self._show_content()

    def _put(self, name: str, content: Text | str) -> None:
        """Nothing where it stands there already: each update lays out the screen anew."""
        if self._stands.get(name) != content:
            self._stands[name] = content
            self.query_one(f"#{name}", Static).update(content)

    def _lines(self, name: str, lines: list[Text]) -> None:
        self.query_one(f"#{name}", Lines).show(lines)

    def _show_head(self) -> None:
        width = max(self.size.width - 2, 1)
        if self.now_shown is None:
            self._lines("head", [Text("attached, waiting for the first samples", MUTED)])
            return
        r, of = self.now_shown.recording, self.now_shown.load
        clock = f"{of.ended:%H:%M:%S}" if of.ended else ""
        who = fit(text.who(r), max(width - len(clock) - 1, 1))
        first = Text.assemble((who, "bold"), (clock.rjust(max(width - len(who), 0)), MUTED))
        age = text.age(r) if self.request.until_ns is None else "held"
        parts = [text.how(r, of), age, text.running_for(r)]
        while len(parts) > 1 and len(" · ".join(parts)) > width:
            parts.pop()
        second = Text(fit(" · ".join(parts), width), MUTED)
        counted = text.vitals(r.vitals)
        lines = [first, second, *([Text(fit(counted, width))] if counted and self.size.height >= ROOMY else [])]
        self._lines("head", lines if self.size.height >= LOW else [first])

    def _show_problem(self) -> None:
        error = self.failure or (self.now_shown.recording.error if self.now_shown else None)
        problem = self.query_one("#problem", Static)
        problem.display = error is not None
        if error is not None:
            detail_text = f" ({error.detail})" if error.detail else ""
            self._put("problem", Text(f"{error.message}{detail_text}. What was seen until then stays; q leaves."))

    def _show_load(self) -> None:
        frame = self.now_shown
        if frame is None:
            return
        width = max(self.size.width - 2, 1)
        cpus = frame.recording.cpu_count
        head = text.aas(frame.load, cpus) + " "
        bar = Text.assemble((head, "bold"), chart.load_bar(frame.load, cpus, width - len(head)))
        self._lines("load", [bar, chart.legend(frame.load, width)] if self.size.height >= LOW else [bar])
        height = self._chart_height()
        shown = self.query_one("#chart", Lines)
        shown.display = height > 0
        if height > 0:
            rows = chart.stacked(frame.timeline, cpus, width, height)
            if height >= 4:
                rows.append(chart.time_axis(frame.timeline, width))
            shown.show(rows)

    def _show_tabs(self) -> None:
        line = Text()
        waiters = self.now_shown.load.lock_waiters if self.now_shown else 0
        width = max(self.size.width - 2, 1)
        status = self._status()
        names = {name: f"{number} {NAMES[name]}" for number, name in enumerate(self.engine.tabs, 1)}
        if waiters:
            names["locks"] += f" {waiters}"
        roomy = sum(len(label) + 2 for label in names.values()) <= width
        for name, label in names.items():
            is_open = name == self.open_tab or (name == "sessions" and self.open_tab == DETAIL)
            shown = label if roomy or is_open else label[:3]
            style = f"bold #12161b on {LINE}" if is_open else "#c3ccd6"
            part = Text(f" {shown} ", style)
            if not is_open:
                part.apply_meta({"@click": f"app.tab('{name}')"})
            line.append_text(part)
        room = width - len(line)
        if room > 1:
            line.append(fit(status, room - 1).rjust(room), "bold #e3c04b" if self.request.until_ns is not None else MUTED)
        self._lines("tabs", [line])

    def _status(self) -> str:
        parts = [f"{self.request.window_s:g} s"]
        if self.filter_text:
            parts.insert(0, f"/{self.filter_text}")
        if self.request.until_ns is not None:
            parts.insert(0, "PAUSED")
        return " · ".join(parts)

    def _show_content(self) -> None:
        frame = self.now_shown
        if frame is None:
            return
        width = max(self.size.width - 3, 1)  # one cell for the scroll bar
        notes = [fit(note, width) for note in frame.recording.notes[:1]] if self.open_tab == "overview" else []
        if self.open_tab == DETAIL:
            if frame.detail is not None and frame.detail.session_id == self.request.detail:
                self._put("page", Text("\n").join(detail.lines(frame, width)))
        elif self._has(self.open_tab, frame):
            grid = grids.grid_of(self.open_tab, frame, idle=self.with_idle, sort=self.sort)
            rows = grid.filtered(self.filter_text)
            empty = f"nothing contains {self.filter_text!r}" if grid.rows else grid.empty
            self.table(self.open_tab).show(grid, rows, width, self.sort if self.open_tab == "sessions" else "", empty)
            notes += [grid.note] if grid.note else []
            notes += [text.counts(frame.load)] if self.open_tab == "overview" else []
        note = self.query_one("#note", Lines)
        note.display = bool(notes)
        note.show([Text(line, MUTED) for line in notes])

    @staticmethod
    def _has(tab: str, frame: Frame) -> bool:
        """Whether the frame was made with this tab in mind; a frame asked for before a key was pressed was not."""
        part = {"overview": frame.cpu, "sessions": frame.sessions, "locks": frame.trees, "blocks": frame.blocks, STANDBYS: frame.standbys}
        return part.get(tab, frame.statements) is not None

    # -- keys ----------------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Which keys mean something where: the footer shows only those."""
        if action == "answer":
            return self.asked is not None
        if action == "ask":
            return self.open_tab in ("sessions", DETAIL) and not self.read_only and self.asked is None
        if action == "tab":
            return parameters[0] in (*self.engine.tabs, DETAIL)
        if action in ("idle", "sort"):
            return self.open_tab == "sessions"
        if action == "leave":
            asks = any(box.display for box in self.query("#question"))
            return self.open_tab == DETAIL or bool(self.filter_text) or asks
        return True

    def action_tab(self, name: str) -> None:
        self.open_tab = name
        self.query_one(ContentSwitcher).current = name
        if name != DETAIL:
            self.table(name).focus()
        self._ask(parts=frozenset({name} - {DETAIL}), detail=None if name != DETAIL else self.request.detail)
        self.refresh_bindings()
        self._show()

    def action_next_tab(self, step: int) -> None:
        tabs = self.engine.tabs
        if self.open_tab in tabs:
            self.action_tab(tabs[(tabs.index(self.open_tab) + step) % len(tabs)])

    def action_pause(self) -> None:
        if self.request.until_ns is not None:
            self._ask(until_ns=None)
        elif self.now_shown is not None:
            self._ask(until_ns=self.now_shown.load.ts_to)
        self._show()

    def action_window(self) -> None:
        longer = [s for s in self.windows if s > self.request.window_s]
        self._ask(window_s=longer[0] if longer else self.windows[0])
        self._show()

    def action_idle(self) -> None:
        self.with_idle = not self.with_idle
        self._show()

    def action_sort(self) -> None:
        self.sort = grids.SORTS[(grids.SORTS.index(self.sort) + 1) % len(grids.SORTS)]
        self._show()

    def on_live_table_title_selected(self, event: LiveTable.TitleSelected) -> None:
        if self.open_tab == "sessions" and event.column.sort in grids.SORTS:
            self.sort = event.column.sort
            self._show()

    def on_live_table_row_selected(self, event: LiveTable.RowSelected) -> None:
        if self.open_tab == "sessions":
            self._open_session(int(event.key))
        elif self.open_tab == "locks":
            pid = int(event.key.rsplit("/", 1)[-1])
            session = self._session_of(pid)
            if session is not None:
                self._open_session(session)

    def _session_of(self, pid: int) -> int | None:
        found = self.now_shown.pids if self.now_shown else {}
        return found.get(pid)

    def _open_session(self, session_id: int) -> None:
        self._put("page", Text("…", MUTED))
        self.request = replace(self.request, detail=session_id)
        self.action_tab(DETAIL)
        self.query_one(f"#{DETAIL}").focus()

    def action_ask(self, name: str) -> None:
        """Asks before a session is told anything."""
        deed, session = (CANCEL if name == "cancel" else TERMINATE), self._chosen()
        if session is None:
            return
        if why := self.engine.refusal(deed, session):
            self._question(why)
            return
        self.asked = (deed, session)
        said = (session.usename, session.application_name, session.state, session.statement[:60])
        who = " · ".join(filter(None, map(one_line, said)))
        self._question(f"{deed.question} pid {session.pid}? y/n   {who}")

    def action_answer(self, yes: bool) -> None:
        asked, self.asked = self.asked, None
        self._question("")
        if yes and asked is not None:
            self.run_worker(lambda: self._carry_out(*asked), thread=True, exclusive=False)

    def _carry_out(self, deed: Deed, session: SessionNow) -> None:
        told = self.engine.carry_out(deed, session)
        self.call_from_thread(self._question, told)

    def _question(self, words: str) -> None:
        """A question, or what came of the answer; empty: nothing more to say."""
        box = self.query_one("#question", Static)
        box.display = bool(words)
        box.update(Text(words))
        self.refresh_bindings()

    def _chosen(self) -> SessionNow | None:
        """The session under the cursor, or the one whose page is open."""
        frame = self.now_shown
        if frame is None:
            return None
        if self.open_tab == DETAIL:
            return frame.detail.session if frame.detail is not None else None
        key = self.table("sessions").key_at_cursor()
        return next((s for s in frame.sessions or [] if str(s.session_id) == key), None)

    def action_leave(self) -> None:
        if self.query_one("#question", Static).display:
            self.action_answer(False)
            return
        if self.open_tab == DETAIL:
            self.action_tab("sessions")
        elif self.filter_text:
            self._set_filter("")

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.value = self.filter_text
        box.display = True
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.filter_text = event.value
        self._show()

    def on_input_submitted(self) -> None:
        self._set_filter(self.query_one("#filter", Input).value)

    def _set_filter(self, wanted: str) -> None:
        self.filter_text = wanted
        self.query_one("#filter", Input).display = False
        if self.open_tab in self.engine.tabs:
            self.table(self.open_tab).focus()
        self.refresh_bindings()
        self._show()

    def key_escape(self) -> None:
        if self.query_one("#filter", Input).display:
            self._set_filter("")

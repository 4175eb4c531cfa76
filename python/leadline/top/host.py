"""A host on a refreshing screen, or one frame of it: the sections that `leadline show` has of a host, over the newest seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import ScrollableContainer
from textual.widgets import Footer, Static

from leadline import _core
from leadline.capture.manifest import Manifest, ProbeState
from leadline.errors import LeadlineError
from leadline.figures import percent
from leadline.findings import Evaluation
from leadline.probes.host import HostProbe
from leadline.probes.take import this_host
from leadline.top.directory import temporary_directory
from leadline.top.driver import QuietDriver
from leadline.top.live import LiveCapture
from leadline.top.signals import on_signal
from leadline.top.terminal import forgiving_terminal
from leadline.views.grid import Grid
from leadline.views.sections import Context, Section
from leadline.views.sections.host import SECTIONS
from leadline.views.text import grid_lines

SHOWN = ("host_cpu", "host_pressure", "host_processes", "host_devices", "host_network", "host_short_processes")
SECOND_NS = 1_000_000_000
MARGIN_S = 10.0
TRIM_EVERY_S = 30.0


class HostFeed:
    """Records the host into a temporary directory and keeps the newest seconds of it. For one thread."""

    def __init__(self, directory: Path, rate_hz: float, window_s: float) -> None:
        self.directory, self.window_s = directory / "host.leadline", window_s
        self.directory.mkdir()
        self._probe = HostProbe(self.directory, rate_hz, required=True, flush_interval_s=max(0.5, 1 / rate_hz))
        manifest = Manifest(this_host())
        self._probe.describe(manifest)
        manifest.probes["self"] = ProbeState("off", "not recorded on a screen")
        self.live = LiveCapture(self.directory, manifest)
        self._trimmed = time.monotonic()

    def start(self) -> None:
        monotonic_ns, wall_ns = _core.capture.clock()
        self.live.manifest.clock.wall_offset_ns = wall_ns - monotonic_ns
        self._probe.start()

    def close(self) -> None:
        self._probe.stop()
        self.live.ingest(self.directory)

    def take_in(self) -> None:
        """Everything recorded since the last call. Raises LeadlineError when the probe has failed."""
        error = self._probe.status()["error"]
        if error is not None:
            raise LeadlineError(**error)
        self.live.ingest(self.directory)
        if time.monotonic() - self._trimmed >= TRIM_EVERY_S:
            self._trimmed = time.monotonic()
            self.live.trim(time.monotonic_ns() - round((self.window_s + MARGIN_S) * SECOND_NS))

    def context(self) -> Context | None:
        """The newest window; None before there are two readings."""
        self.live.look_at(0, 1 << 62)
        extent = self.live.rows("select min(ts) as first, max(ts) as last from host_stat")[0]
        if extent["last"] is None or extent["first"] == extent["last"]:
            return None
        self.live.look_at(max(extent["first"], extent["last"] - round(self.window_s * SECOND_NS)), extent["last"] + 1)
        return Context(self.live, Evaluation([], [], [], []))


def sections() -> list[Section]:
    by_key = {section.key: section for section in SECTIONS}
    return [by_key[key] for key in SHOWN]


def frame_lines(of: Context) -> Iterator[Text]:
    """One frame, line by line."""
    manifest = of.capture.manifest
    busy = of.capture.scalar(
        "select sum(grown) filter (metric not in ('stat.cpu_idle_ns', 'stat.cpu_iowait_ns')) / sum(grown)::double "
        "from host_rate where starts_with(metric, 'stat.cpu_')"
    )
    head = f"{manifest.host.name}, Linux {manifest.host.kernel}, {manifest.target.cpu_count} CPUs"
    yield Text(f"{head}; the last {of.window.window_s or 0:.0f} s: CPUs {percent(busy) if busy is not None else '?'} busy")
    for section in sections():
        if section.key == "host_cpu" or of.capture.unavailable(section.needs[0]) is not None:
            continue
        data = of.data(section)
        if isinstance(data, Grid) and (data.rows or section.key == "host_processes"):
            # The directory of a screen goes away with it: no command for later.
            yield from grid_lines(section.title, replace(data, rest=data.rest.partition(":")[0]))


def frame_json(of: Context) -> dict[str, Any]:
    """The numbers of one frame."""
    target = of.capture.manifest.target
    made: dict[str, Any] = {"host": target.name, "cpu_count": target.cpu_count, "window_s": of.window.window_s}
    return made | {section.key: of.data(section).as_dicts() for section in sections()}


def one_frame(rate_hz: float, window_s: float) -> tuple[list[Text], dict[str, Any]]:
    """Watches for window_s seconds. Raises LeadlineError; KeyboardInterrupt on a signal."""
    asked = threading.Event()
    with on_signal(asked.set), temporary_directory() as directory:
        feed = HostFeed(directory, rate_hz, window_s)
        feed.start()
        try:
            asked.wait(window_s)
            feed.take_in()
        finally:
            feed.close()
        if asked.is_set():
            raise KeyboardInterrupt
        of = feed.context()
        if of is None:
            raise LeadlineError("invalid", "the host was read less than twice", hint="a longer --window, or a higher --rate")
        return list(frame_lines(of)), frame_json(of)


class HostApp(App[None]):
    """The frame, made anew every refresh_s seconds in a thread of its own."""

    ENABLE_COMMAND_PALETTE = False
    # The frame is as wide as its lines: a narrow terminal scrolls sideways, and no line of a table is broken.
    CSS = "Screen { background: #12161b; color: #e3e8ee; } #frame { padding: 0 1; height: auto; width: auto; }"
    BINDINGS = [("q", "quit", "quit")]  # noqa: RUF012

    def __init__(self, feed: HostFeed, refresh_s: float) -> None:
        super().__init__(driver_class=QuietDriver)
        self.feed, self.refresh_s = feed, refresh_s
        self.failure: LeadlineError | None = None
        self._ended = threading.Event()

    def compose(self) -> ComposeResult:
        yield ScrollableContainer(Static("reading the host ...", id="frame"))
        yield Footer()

    def on_mount(self) -> None:
        self.run_worker(self._refresh, thread=True)

    def on_unmount(self) -> None:
        self._ended.set()

    def end_soon(self) -> None:
        self._ended.set()
        self.call_later(self.exit)

    def _refresh(self) -> None:
        while not self._ended.wait(self.refresh_s):
            try:
                self.feed.take_in()
                of = self.feed.context()
            except LeadlineError as e:
                self.failure = e
                self.end_soon()
                return
            if of is not None:
                self.call_later(self._show, Text("\n").join(frame_lines(of)))

    def _show(self, text: Text) -> None:
        for frame in self.query("#frame").results(Static):  # none while the screen goes away
            frame.update(text)


def watch(rate_hz: float, window_s: float, refresh_s: float) -> int:
    """Shows the host until the user quits. Gives 0, or raises the LeadlineError that ended the probe meanwhile."""
    app: HostApp | None = None

    def end() -> None:
        if app is not None:
            app.end_soon()

    with on_signal(end), temporary_directory() as directory:
        feed = HostFeed(directory, rate_hz, window_s)
        feed.start()
        try:
            app = HostApp(feed, refresh_s)
            with forgiving_terminal():
                app.run()
        finally:
            feed.close()
    if app.failure is not None:
        raise app.failure
    return 0

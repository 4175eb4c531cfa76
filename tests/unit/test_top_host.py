"""`leadline top --host`: the screen, without a terminal and without a probe."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from host_synthetic import HostCapture
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.findings import Evaluation
from leadline.top.host import HostApp
from leadline.views.sections import Context
from textual.containers import ScrollableContainer
from textual.pilot import Pilot
from textual.widgets import Static
from top_parts import until


class StandingStill:
    """A feed over one window that does not change."""

    def __init__(self, of: Context) -> None:
        self.of, self.taken_in = of, 0

    def take_in(self) -> None:
        self.taken_in += 1

    def context(self) -> Context:
        return self.of


@pytest.fixture
def feed(tmp_path: Path) -> StandingStill:
    made = HostCapture(tmp_path)
    made.quiet()
    for number in range(30):
        made.use(made.process(f"worker{number}"), cpu_run_ns=50_000_000, rss_bytes=1 << 20)
    return StandingStill(Context(open_capture(made.write()), Evaluation([], [], [], [])))


def shown(feed: Any, size: tuple[int, int], look: Any) -> None:
    """Runs `look` on the screen once it shows the host."""

    async def drive() -> None:
        app = HostApp(feed, 0.01)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "Processes" in str(app.query_one("#frame", Static).content))
            await pilot.pause()
            await look(app, pilot)

    work: Coroutine[Any, Any, None] = drive()
    asyncio.run(work)


def test_a_narrow_terminal_scrolls_and_breaks_no_line(feed: StandingStill) -> None:
    async def look(app: HostApp, _pilot: Pilot[None]) -> None:
        frame = app.query_one("#frame", Static)
        lines = str(frame.content).splitlines()
        assert frame.region.height == len(lines)
        assert app.query_one(ScrollableContainer).max_scroll_x > 0

    shown(feed, (50, 20), look)


def test_a_screen_names_no_folder_that_goes_away_with_it(feed: StandingStill) -> None:
    async def look(app: HostApp, _pilot: Pilot[None]) -> None:
        text = str(app.query_one("#frame", Static).content)
        assert " more" in text
        assert "leadline sql" not in text

    shown(feed, (120, 50), look)


def test_what_arrives_while_the_screen_goes_away_is_no_error(feed: StandingStill) -> None:
    async def look(app: HostApp, pilot: Pilot[None]) -> None:
        await app.query_one("#frame", Static).remove()
        before = feed.taken_in
        await until(pilot, lambda: feed.taken_in >= before + 3)

    shown(feed, (120, 50), look)


def test_an_error_of_the_probe_ends_the_screen_and_is_kept(feed: StandingStill, monkeypatch: pytest.MonkeyPatch) -> None:
    error = LeadlineError("io", "the host cannot be read")
    ended = []

    async def look(app: HostApp, pilot: Pilot[None]) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr(feed, "take_in", fail)
        await until(pilot, lambda: not app.is_running)
        ended.append(app.failure)

    shown(feed, (120, 50), look)
    assert ended == [error]

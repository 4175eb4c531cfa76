"""`leadline top --host`: the screen, without a terminal and without a probe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
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
from textual.widgets import Static


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


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


def shown(feed: Any, size: tuple[int, int], look: Any) -> None:
    """Runs `look` on the screen once it shows the host."""

    async def drive() -> None:
        app = HostApp(feed, 0.01)
        async with app.run_test(size=size) as pilot:
            await until(lambda: "Processes" in str(app.query_one("#frame", Static).content), "the host was not shown")
            await pilot.pause()
            await look(app)

    work: Coroutine[Any, Any, None] = drive()
    asyncio.run(work)


def test_a_narrow_terminal_scrolls_and_breaks_no_line(feed: StandingStill) -> None:
    async def look(app: HostApp) -> None:
        frame = app.query_one("#frame", Static)
        lines = str(frame.content).splitlines()
        assert frame.region.height == len(lines)
        assert app.query_one(ScrollableContainer).max_scroll_x > 0

    shown(feed, (50, 20), look)


def test_a_screen_names_no_folder_that_goes_away_with_it(feed: StandingStill) -> None:
    async def look(app: HostApp) -> None:
        text = str(app.query_one("#frame", Static).content)
        assert " more" in text
        assert "leadline sql" not in text

    shown(feed, (120, 50), look)


def test_what_arrives_while_the_screen_goes_away_is_no_error(feed: StandingStill) -> None:
    async def look(app: HostApp) -> None:
        await app.query_one("#frame", Static).remove()
        before = feed.taken_in
        await until(lambda: feed.taken_in >= before + 3, "the thread has ended")

    shown(feed, (120, 50), look)


def test_an_error_of_the_probe_ends_the_screen_and_is_kept(feed: StandingStill, monkeypatch: pytest.MonkeyPatch) -> None:
    error = LeadlineError("io", "the host cannot be read")
    ended = []

    async def look(app: HostApp) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr(feed, "take_in", fail)
        await until(lambda: not app.is_running, "the screen stays")
        ended.append(app.failure)

    shown(feed, (120, 50), look)
    assert ended == [error]

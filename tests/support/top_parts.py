"""What the tests of `leadline top` share: a live capture made from a synthetic one, and waiting for its screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from findings_synthetic import TS_FROM
from leadline.capture.manifest import read_manifest
from leadline.top.live import LiveCapture
from leadline.top.model import Recording
from textual.pilot import Pilot

CLI = [sys.executable, "-m", "leadline"]
SECOND = 1_000_000_000
RECORDING = Recording("16.14", "postmaster 4711", 2, "shm", 100, 61, 1.4, 0.034, product="PostgreSQL")


def live_of(path: Path) -> LiveCapture:
    """A live capture that has taken in the whole of a synthetic one."""
    live = LiveCapture(path, read_manifest(path))
    live.set_names(path)
    live.ingest(path)
    return live


def at(second: float) -> int:
    return TS_FROM + round(second * SECOND)


async def until(pilot: Pilot[None], condition: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the screen did not get there"
        await pilot.pause(0.02)

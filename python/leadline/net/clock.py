"""CLOCK_MONOTONIC, on which all times of `leadline net` are, and what reading it costs."""

from __future__ import annotations

import json
import time
from typing import Any

from leadline._core.net import clock_cost
from leadline.capture.manifest import Clock


def cost() -> dict[str, Any]:
    """Of one reading: p50_ns, p99_ns, and max_ns, which is the longest pause that the host forced on the thread."""
    measured: dict[str, Any] = json.loads(clock_cost())
    return measured


def cost_text(measured: dict[str, Any]) -> str:
    pause = measured["max_ns"] / 1000
    return f"reading the clock costs {measured['p50_ns']} ns (p99 {measured['p99_ns']} ns; longest pause between two {pause:.0f} us)"


def began() -> Clock:
    """The clock of a manifest for a window that begins now."""
    now = time.monotonic_ns()
    return Clock(now, None, time.time_ns() - now)

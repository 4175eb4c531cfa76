"""Times of the network for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KEYS = {"min": "min_ns", "p50": "p50_ns", "p90": "p90_ns", "p99": "p99_ns", "p99.9": "p99_9_ns", "p99.99": "p99_99_ns", "max": "max_ns"}


def us(ns: float | None) -> float | None:
    """Microseconds with the digits that the histogram has."""
    return None if ns is None else float(f"{ns / 1000:.4g}")


def microseconds(summary: dict[str, Any] | None, names: Sequence[str]) -> list[float | None]:
    """Percentiles of a histogram, named as in KEYS."""
    return [None if summary is None else us(summary[KEYS[name]]) for name in names]

"""Rows that leadline prints of the WAL, as dictionaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from leadline._core.wal import WalLog
from leadline.files.wal import parts


def rows(read: Callable[[bool, int], tuple[int, bytes] | None], limit: int | None = None) -> list[dict[str, Any]]:
    """What `WalLog.records`, `WalLog.invalidations` or `History.changes` print."""
    found: list[dict[str, Any]] = json.loads(b"[" + b",".join(parts(lambda left: read(True, left), limit, lambda _: None)) + b"]")
    return found


def records(path: str, **wanted: Any) -> list[dict[str, Any]]:
    """All records of a log that are wanted."""
    return rows(WalLog(path, **wanted).records)

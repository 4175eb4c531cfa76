"""What a running server of an engine must be able to do so that `take`, `top` and `doctor` work on it."""

from __future__ import annotations

from typing import Protocol


class Live(Protocol):
    """One for each engine that has running servers; see engines/postgres/live.py."""

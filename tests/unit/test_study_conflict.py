"""The reader of a standby whose snapshots replay takes away."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from leadline.study import conflict
from leadline.study.conflict import Reader


class Session:
    """Its query is cancelled, and while it rolls back, the session is ended, too."""

    closed = False

    def execute(self, query: str, _values: Any = None) -> None:
        if query == "rollback":
            self.closed = True
        if query.startswith("select") or query == "rollback":
            raise psycopg.errors.SerializationFailure("terminating connection due to conflict with recovery")

    def cancel(self) -> None: ...

    def close(self) -> None: ...


def test_a_snapshot_that_is_cancelled_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Session] = []

    def connected(_dsn: str) -> Session:
        begun.append(Session())
        if len(begun) == 4:
            reader.close()
        return begun[-1]

    reader: Any = None
    monkeypatch.setattr(conflict, "connected", connected)
    monkeypatch.setattr(conflict, "BETWEEN_S", 0.0)
    reader = Reader("", 1.0)
    reader.run()
    assert (reader.cancelled, reader.finished, reader.problem) == (4, 0, "")

"""Which records a standby was replaying when it was looked at: read from its own pg_wal, soon after they were replayed."""

from __future__ import annotations

import time
from typing import Any

from leadline.capture.store import Row
from leadline.errors import LeadlineError

_NO_BLOCK = (None, None, None, None, None)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


class ReplayRecords:
    """The rows of replay_record of one standby, and what became of the records: found, gone with their WAL, wrong (a record at this place
    ends elsewhere: memory was misread)."""

    def __init__(self, node: int) -> None:
        self._node = node
        self.found = self.wrong = self.gone = 0
        self.cpu_ns = 0
        self.why = ""

    def read(self, pid: int | None, places: list[tuple[int, int]]) -> list[Row]:
        """places: what was replayed before each record, and where it ends."""
        if pid is None or not places:
            return []
        from leadline import _core

        began = time.thread_time_ns()
        once = sorted(set(places))
        try:
            log = _core.wal.WalLog(f"/proc/{pid}/cwd/pg_wal", start=lsn_text(once[0][0]), end=lsn_text(once[-1][1]))
            between = log.records_between(once)
        except LeadlineError as e:
            self.gone += len(once)
            self.why = "; ".join(part for part in (e.message, e.detail) if part)
            return []
        finally:
            self.cpu_ns += time.thread_time_ns() - began
        self.found += len(between["records"])
        self.wrong += between["wrong"]
        self.gone += between["gone"]
        return [(self._node, *record[:7], *(record[7] or _NO_BLOCK)) for record in between["records"]]

    def told(self) -> dict[str, Any]:
        """For the manifest."""
        counts: dict[str, Any] = {"found": self.found, "wrong": self.wrong, "gone": self.gone, "cpu_s": round(self.cpu_ns / 1e9, 3)}
        return counts | ({"why": self.why} if self.why else {})

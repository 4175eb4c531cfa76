"""The events of one run, appended to a file of its own: one write each, and no failure that the run would notice."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from leadline.book.place import Place

LONGEST_EVENT = 1 << 20
UID_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u: not to be mistaken, and no words
UID_LENGTH = 12


def new_uid() -> str:
    """A name for a run; its first letters are as good as the whole while no other run has them."""
    return "".join(UID_LETTERS[byte & 31] for byte in os.urandom(UID_LENGTH))


class Spool:
    """Appends events of a run. Nothing here raises: what cannot be written is counted, and the last event tells."""

    def __init__(self, place: Place, uid: str) -> None:
        self.uid, self.lost, self.own_ns, self._n = uid, 0, 0, 0
        self._fd = -1
        began = time.perf_counter_ns()
        try:
            place.make()
            self._fd = os.open(place.spool_of(uid), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            self.lost += 1
        self.own_ns += time.perf_counter_ns() - began

    def event(self, kind: str, **body: Any) -> None:
        began = time.perf_counter_ns()
        self._n += 1
        head = {"n": self._n, "ts": time.time_ns() // 1000, "kind": kind}
        try:
            line = json.dumps(head | body, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"
            if len(line) > LONGEST_EVENT or self._fd < 0 or os.write(self._fd, line) != len(line):
                self.lost += 1
        except (OSError, ValueError, RecursionError):
            self.lost += 1
        self.own_ns += time.perf_counter_ns() - began

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

"""The events of one run, appended to a file of its own: one write each, and no failure that the run would notice."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from leadline.book.place import NotOurs

if TYPE_CHECKING:
    from leadline.book.place import Place

LONGEST_EVENT = 1 << 20
MOST_WAITING = 1 << 20  # bytes of events that wait for room
UID_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u: not to be mistaken, and no words
UID_LENGTH = 12


def new_uid() -> str:
    """A name for a run; its first letters are as good as the whole while no other run has them."""
    return "".join(UID_LETTERS[byte & 31] for byte in os.urandom(UID_LENGTH))


def as_json(value: Any) -> str:
    """In ASCII; what JSON does not know becomes its text. (To import json would take longer than all that is recorded of a command.)"""
    from _json import encode_basestring_ascii as quoted

    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if value - value == 0 else "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(str(k))}: {as_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_json, value)) + "]"
    return quoted(str(value))


class Spool:
    """Appends events of a run. Nothing here raises: what cannot be written waits for the next event, and what never can is counted."""

    def __init__(self, place: Place, uid: str) -> None:
        self.uid, self.lost, self.own_ns, self._n = uid, 0, 0, 0
        self.refused = ""  # why nothing is recorded, where that is for the user to mend
        self._place, self._waiting, self._fd = place, b"", -1

    def event(self, kind: str, **body: Any) -> None:
        began = time.perf_counter_ns()
        self._n += 1
        head = {"n": self._n, "ts": time.time_ns() // 1000, "kind": kind}
        try:
            line = as_json(head | body).encode() + b"\n"
            if len(line) > LONGEST_EVENT or len(self._waiting) + len(line) > MOST_WAITING:
                self.lost += 1
            else:
                self._waiting += line
        except (ValueError, RecursionError):
            self.lost += 1
        self._write()
        self.own_ns += time.perf_counter_ns() - began

    def _write(self) -> None:
        """As much as there is room for: a line may be whole only with the next event."""
        try:
            if self._fd < 0:
                self._place.make()
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._place.spool_name(self.uid), flags, 0o600)
            while self._waiting:
                self._waiting = self._waiting[os.write(self._fd, self._waiting) :]
        except NotOurs as e:
            self.refused = f"{e.filename}: {e.strerror} ({e.hint})"
        except OSError:
            return

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

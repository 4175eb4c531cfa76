"""Clients that connect anew: the time between one connection and the next is a part of what a transaction takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def between(lines: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    """Connections that follow another one of the same client: when each began, and ns since the last answer of the one before.

    Which one a client left for it is not in the packets: it is the one that was left last. A connection that its client has not left is
    none. A client that says goodbye leaves then; without that, with the last packet.
    """
    events: list[tuple[int, int, dict[str, Any]]] = []
    for line in lines:
        if line["from_start"]:
            events.append((line["began"], 1, line))
        if line["ended"] != "open":
            left = line["left_ns"] if line["left_ns"] is not None else line["ts_to"]
            events.append((max(left, line["began"]), 0, line))
    free: list[dict[str, Any]] = []
    found = []
    for at_ns, begins, line in sorted(events, key=lambda event: event[:2]):
        if not begins:
            free.append(line)
        elif free:
            found.append((line["began"], max(0, at_ns - free.pop()["end_ns"])))
    return found

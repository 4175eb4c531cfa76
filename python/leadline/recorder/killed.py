"""What is known of a recorder that was killed: whether it had recorded anything. A gap says so, even where no piece of it is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from leadline.recorder.moments import as_utc
from leadline.recorder.pieces import KILLED, read_piece
from leadline.recorder.state import State


def remember_killed(state: State, directory: Path) -> None:
    """At the begin of the next one. state: as the killed one has left it; then also with what the next piece is to tell of it."""
    first, last = (read_piece(directory / name) if name and (directory / name).is_dir() else None for name in (state.first, state.piece))
    if last is not None and last.ts_from is not None:
        state.waited, state.killed = [], {}  # it has told them
    if state.began and (not state.first or (first is not None and first.ts_from is None)):
        state.killed = {"count": state.killed.get("count", 0) + 1, "first": state.killed.get("first", state.began), "last": state.began}
    elif (last is None or last.ts_from is None or last.status != "interrupted") and KILLED not in state.waited:
        state.waited = [KILLED, *state.waited]  # it was killed between two pieces: neither of them says so


def why_waited(state: State) -> str:
    """Why the next piece has not begun before; empty if nothing kept it from that."""
    return "; ".join([*filter(None, [_never_recorded(state.killed)]), *map(str, state.waited)])


def said_of_killed(state: State, directory: Path) -> str:
    """What is to be told of recorders that recorded nothing, while none runs; empty if there is nothing."""
    told = replace(state)
    if state.doing != "ended":
        remember_killed(told, directory)
    return _never_recorded(told.killed)


def _never_recorded(killed: dict[str, int]) -> str:
    if not killed:
        return ""
    if killed["count"] == 1:
        return f"a recorder began at {as_utc(killed['first'])} and was killed before its first pass"
    when = f"from {as_utc(killed['first'])} to {as_utc(killed['last'])}"
    return f"{killed['count']} recorders, which began {when}, were killed before their first pass"

"""What is told of an event: a line of events.jsonl, and a run of the logbook, whose hooks tell others."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from leadline.book.place import find_place
from leadline.book.recorder import Recorder as Run
from leadline.recorder.incidents import Incident
from leadline.recorder.moments import as_utc, ns_of
from leadline.recorder.state import EVENTS

SAID = ("change", "at", "since", "id", "subject", "statement")  # of every event
SHOWN = 20  # events that the state has
LONGEST_EVENTS = 4 << 20  # bytes of events.jsonl, and as much of the file before it
KIND = "finding"  # of the run in the logbook that an event is


def tell(state: dict[str, Any], events: Sequence[Incident], directory: Path) -> None:
    """Each of them once. state: has the last ones."""
    if not events:
        return
    state["events"] = [*state.get("events", []), *map(as_line, events)][-SHOWN:]
    _write(directory / EVENTS, events)
    for event in events:
        into_the_book(event, directory)


def as_line(event: Incident) -> dict[str, Any]:
    """As events.jsonl has it."""
    line = asdict(event) | {"at": as_utc(event.at), "since": as_utc(event.since)}
    return {key: value for key, value in line.items() if value or key not in ("measured", "capture")}


def read_events(directory: Path) -> list[dict[str, Any]]:
    """The events of a directory that are still kept, as they were told, `at` and `since` in ns; without lines that a full disk cut."""
    found = []
    for name in (EVENTS + ".1", EVENTS):
        try:
            lines = (directory / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and all(isinstance(event.get(key), str) for key in SAID):
                    found.append(event | {"at": ns_of(event["at"]), "since": ns_of(event["since"])})
    return found


def _write(path: Path, events: Sequence[Incident]) -> None:
    """Appends lines; on a full disk, the state has the last ones."""
    try:
        if path.exists() and path.stat().st_size > LONGEST_EVENTS:
            path.replace(path.with_name(path.name + ".1"))
        with path.open("a", encoding="utf-8") as out:
            out.writelines(json.dumps(as_line(event), ensure_ascii=False) + "\n" for event in events)
            out.flush()
            os.fsync(out.fileno())
    except OSError:
        pass


def into_the_book(event: Incident, directory: Path) -> None:
    """A run that has ended: failed of what is new or worse, ok of what is over. Hooks of the logbook tell of it as of any run."""
    run = Run(find_place())
    if run.place is None:
        return
    labels = {"rule": event.id, "change": event.change, "severity": event.severity, "recorder": str(directory)}
    inputs = {"subject": event.subject, "cost_s": event.cost_s, "window_s": event.window_s, "since": as_utc(event.since)}
    inputs |= {"capture": event.capture} if event.capture else {}
    run.begin(KIND, f"{event.id} {event.change}", ["leadline", "record", "--status", str(directory)], labels=labels, inputs=inputs)
    detail = f"; detail: {event.capture}" if event.capture else ""
    run.summary(f"{event.subject}: {event.statement}{detail}")
    run.end(0 if event.change == "over" else 1, fine=event.change == "over")

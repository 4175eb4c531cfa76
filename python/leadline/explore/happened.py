"""Marks of a recorder's time that no piece has: what was unusual, what was found, detail captures, and runs of the logbook with labels."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.book.place import find_place
from leadline.book.query import Book
from leadline.capture.manifest import read_manifest
from leadline.errors import LeadlineError
from leadline.recorder.detail import PLACE
from leadline.recorder.events import KIND, read_events
from leadline.recorder.pieces import OPTION, Pieces
from leadline.recorder.unusual import ID as UNUSUAL

Mark = tuple[int, int, str]  # from, to: ns since 1970


@dataclass(frozen=True)
class Kind:
    """As leadline.explore.marks has them; why: why nothing is known."""

    name: str
    label: str
    short: str
    seen: str
    marks: list[Mark]
    why: str = ""


def happened(directory: Path, low: int, high: int) -> list[Kind]:
    """Between the two moments, in ns since 1970."""
    told = list(_told(directory))
    labelled, why = _labelled(low, high)
    return [
        Kind("unusual", "unusual", "odd", "time above what is usual for the hour, from its event to the one that says that it is over",
             [mark for rule, mark in told if rule == UNUSUAL]),
        Kind("found", "findings told", "found", "a finding from the event that it is new to the one that it is over",
             [mark for rule, mark in told if rule != UNUSUAL]),
        Kind("detail", "detail captures", "detail", "a capture with every probe, which the recorder took by itself or by hand",
             list(_details(directory))),
        Kind("labelled", "runs with labels", "runs", "a run of the logbook with a label, such as a deployment", labelled, why),
    ]  # fmt: skip


def _told(directory: Path) -> Iterator[tuple[str, Mark]]:
    """Each incident with its rule: from its begin to the last that was told of it."""
    found: dict[tuple[str, int, str], list[Mapping[str, Any]]] = {}
    for event in read_events(directory):
        subject = "" if event["id"] == UNUSUAL else event["subject"]  # what is unusual together is one, and may be named anew
        found.setdefault((event["id"], event["since"], subject), []).append(event)
    for (rule, since, _), events in found.items():
        first, last = events[0], events[-1]
        text = f"{first['subject']}: {first['statement']}" if rule == UNUSUAL else f"{rule} {first['subject']}: {first['statement']}"
        if first.get("capture"):
            text += f"; detail: {first['capture']}"
        if last["change"] != "over":
            text += "; it was not over yet"
        yield rule, (since, max(event["at"] for event in events), text)


def _details(directory: Path) -> Iterator[Mark]:
    place = directory / PLACE
    if not place.is_dir():
        return
    for piece in Pieces(place).read():
        if piece.ts_from is not None:
            why = read_manifest(piece.path).options.get(OPTION, {}).get("detail", "")
            yield piece.wall_from, piece.wall_to, f"{why}; leadline explore {shlex.quote(str(piece.path))}"


def _labelled(low: int, high: int) -> tuple[list[Mark], str]:
    """Or why they are not known."""
    place = find_place()
    if place is None or (place.dsn is None and not place.root.is_dir()):
        return [], "no logbook is read here"
    found = []
    try:
        book = Book(place)
        try:
            for run in book.labelled(low // 1000, high // 1000, but=KIND):
                labels = " ".join(f"{key}={value}" if value else key for key, value in run["labels"].items())
                ended = high if run["ended"] is None else run["ended"] * 1000
                found.append((run["started"] * 1000, max(ended, run["started"] * 1000), f"{run['name']}: {labels} ({run['status']})"))
        finally:
            book.close()
    except LeadlineError as e:
        return [], e.message
    return found, ""

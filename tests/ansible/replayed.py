"""Spools that the plugin wrote under ansible-core, put into a book as if the run had just been here."""

from __future__ import annotations

import json
from pathlib import Path

from leadline.book.place import Place

TESTDATA = Path(__file__).resolve().parents[2] / "testdata" / "ansible"
SPOOLS = ("shop-2.17.14.jsonl", "shop-2.21.5.jsonl")


def replay(place: Place, name: str, *, events: int | None = None) -> str:
    """The uid of the run. events: only so many of them, as if it had been killed then."""
    lines = (TESTDATA / name).read_bytes().splitlines(keepends=True)[:events]
    uid = str(json.loads(lines[0])["uid"])
    place.make()
    place.spool_of(uid).write_bytes(b"".join(lines))
    return uid

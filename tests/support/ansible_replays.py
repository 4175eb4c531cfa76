"""Spools that the plugin wrote under ansible-core, put into a book as if the run had just been here, and what is in them."""

from __future__ import annotations

import json
from pathlib import Path

from leadline.book.place import Place

TESTDATA = Path(__file__).resolve().parents[2] / "testdata" / "ansible"
SPOOLS = ("shop-2.17.14.jsonl", "shop-2.21.5.jsonl")
# What these runs have to hide.
SECRETS = ("t0ken-of-the-api", "gr0up-s3cret", "hidden-w0rd", "hidden-1tem", "hidden-0ther", "/srv/out/secret")
# The recap that Ansible printed.
HOSTS = {
    "db1": {"ok": 3, "changed": 2, "unreachable": 0, "failed": 0, "skipped": 1, "rescued": 0, "ignored": 0},
    "db2": {"ok": 1, "changed": 0, "unreachable": 0, "failed": 1, "skipped": 1, "rescued": 0, "ignored": 0},
    "gone1": {"ok": 0, "changed": 0, "unreachable": 1, "failed": 0, "skipped": 0, "rescued": 0, "ignored": 0},
    "web1": {"ok": 19, "changed": 13, "unreachable": 0, "failed": 0, "skipped": 0, "rescued": 1, "ignored": 2},
    "web2": {"ok": 17, "changed": 12, "unreachable": 0, "failed": 0, "skipped": 0, "rescued": 1, "ignored": 2},
}
# Number, name, action, line of the file, results by outcome, loop items.
TASKS = [
    (1, "Look at the host", "setup", 9, {"ok": 2}, 0),
    (2, "Write a file", "copy", 11, {"changed": 2}, 0),
    (3, "Call the API with ***", "command", 14, {"ok": 2}, 0),
    (4, "Three things", "command", 17, {"changed": 2}, 6),
    (5, "Two things, one of them bad", "command", 21, {"ignored": 2}, 4),
    (6, "Wait for a file that never comes", "command", 25, {"ignored": 2}, 0),
    (7, "Hidden", "command", 32, {"changed": 2}, 0),
    (8, "Hidden things", "command", 35, {"changed": 2}, 4),
    (9, "Ask the database", "command", 39, {"changed": 2}, 0),
    (10, "Only once", "command", 42, {"changed": 1}, 0),
    (11, "Break", "command", 47, {"rescued": 2}, 0),
    (12, "Mend", "command", 50, {"changed": 2}, 0),
    (13, "Clean up", "debug", 53, {"ok": 2}, 0),
    (14, "include_tasks", "include_tasks", 55, {"ok": 2}, 0),
    (15, "Include dynamic", "command", 1, {"changed": 2}, 0),
    (16, "Include static", "command", 1, {"changed": 2}, 0),
    (17, "include_role : app", "include_role", 59, {"ok": 2}, 0),
    (18, "app : Start the app", "command", 1, {"changed": 2}, 0),
    (19, "set_stats", "set_stats", 60, {"ok": 1}, 0),
    (20, "Tell the monitor", "command", 63, {"changed": 2}, 0),
    (21, "Show the password", "debug", 70, {"ok": 2}, 0),
    (22, "Never", "command", 72, {"skipped": 2}, 0),
    (23, "Break on db2", "command", 75, {"changed": 1, "failed": 1}, 0),
    (24, "Go on", "command", 77, {"changed": 1}, 0),
    (25, "Reach it", "ping", 86, {"unreachable": 1}, 0),
]


def replay(place: Place, name: str, *, events: int | None = None) -> str:
    """The uid of the run. events: only so many of them, as if it had been killed then."""
    lines = (TESTDATA / name).read_bytes().splitlines(keepends=True)[:events]
    uid = str(json.loads(lines[0])["uid"])
    place.make()
    place.spool_of(uid).write_bytes(b"".join(lines))
    return uid

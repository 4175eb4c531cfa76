"""A head of the book: one hash over the records of all runs that have ended, to be kept where the book's writers cannot change it.

Who may write to the book can change a record together with its evidence, and nothing within the book shows it. A head shows it: it is the
SHA-256 of a list that has a hash for each run. The lists stay beside the book, as files that are named by their head. Each lists only
what those before it have not, and names the one before. So a changed list no longer has its name, and a changed record not its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.book.evidence import Check
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.store import Store
from leadline.errors import LeadlineError

FIRST = "leadline book head 1"
NONE = "-"
AT_ONCE = 500  # runs of a query
ENDED = "status <> 'running'"
# Of a run, what never changes after its end; labels, pins and projects may.
COLUMNS = (
    "uid", "kind", "name", "status", "parent", "user_name", "host", "cwd", "argv_json", "inputs_json", "started", "ended", "rc", "signal",
    "summary", "version", "facts", "pid", "pid_start", "boot", "log_lost_bytes", "events_lost", "log_hash", "log_hashed",
)  # fmt: skip
TABLES = {
    "artifact": "path", "run_file": "path", "metric": "name", "experiment": "run", "experiment_leg": "part, n", "study_figure": "n, metric",
    "playbook": "run", "play": "n", "task": "n", "result": "n", "result_body": "n", "run_host": "host", "ansible_note": "n",
    "record": "host, key",
}  # fmt: skip


@dataclass
class Listed:
    """A list: the head of the one before, the audit then, and a hash for each run."""

    before: str = NONE
    audit: tuple[int, str] = (0, "")
    runs: dict[str, str] = field(default_factory=dict)

    def as_text(self, now_us: int) -> str:
        lines = [FIRST, f"before {self.before}", f"printed {now_us}", f"audit {self.audit[0]} {self.audit[1] or NONE}"]
        return "\n".join([*lines, *(f"run {uid} {digest}" for uid, digest in sorted(self.runs.items()))]) + "\n"


def print_head(book: Book) -> tuple[str, int]:
    """The head of the book as it is now, and how many runs it covers. Writes a list, if runs have ended since the last. Raises OSError."""
    place, now = book.place, time.time_ns() // 1000
    last = _last(place)
    known = _all(place, last) if last != NONE else Listed()
    runs = {uid: digest for uid, digest in _digests(book.store) if uid not in known.runs}
    audit = _audit(book.store)
    covered = len(known.runs) + len(runs)
    if last != NONE and not runs and audit == known.audit:
        return last, covered
    text = Listed(last, audit, runs).as_text(now)
    head = hashlib.sha256(text.encode()).hexdigest()
    directory = _directory(place)
    directory.mkdir(mode=0o700, exist_ok=True)
    _write(directory / head, text)
    _write(directory / "last", head + "\n")
    return head, covered


def against(book: Book, head: str) -> tuple[list[Check], int]:
    """What differs from when the head was printed, or cannot be told, and how many runs it covers. Raises LeadlineError for no head."""
    if not re.fullmatch(r"[0-9a-f]{64}", head):
        hint = "the 64 letters and digits that `leadline book verify --head` printed"
        raise LeadlineError("usage", f"{head[:80]!r} is no head of a book", hint=hint, where="--against")
    try:
        known = _all(book.place, head)
    except LeadlineError as e:
        return [Check("", "head", head[:16], "missing" if e.kind == "not_found" else "changed", e.detail or e.message)], 0
    now = dict(_digests(book.store))
    out = []
    for uid, digest in known.runs.items():
        if uid not in now:
            out.append(Check(uid, "record", "", "missing", "it was pruned, or removed, since the head was printed"))
        elif now[uid] != digest:
            out.append(Check(uid, "record", "", "changed", "it is not what it was when the head was printed"))
    number, digest = known.audit
    if number and _audit(book.store, number) != known.audit:
        out.append(Check("", "audit", f"row {number}", "changed", "it is not what it was when the head was printed"))
    return out, len(known.runs)


def _digests(store: Store) -> Iterator[tuple[str, str]]:
    """Of each run that has ended: its uid, and a hash over what the book holds of it."""
    after = 0
    while rows := store.rows(f"select id, {', '.join(COLUMNS)} from run where id > ? and {ENDED} order by id limit {AT_ONCE}", (after,)):
        first, after = rows[0]["id"], rows[-1]["id"]
        held: dict[int, list[Any]] = defaultdict(list)
        for table, order in TABLES.items():
            for row in store.rows(f"select * from {table} where run between ? and ? order by run, {order}", (first, after)):
                held[row["run"]].append([table, {name: value for name, value in row.items() if name != "run"}])
        for row in rows:
            body = [{name: row[name] for name in COLUMNS}, held[row["id"]]]
            yield row["uid"], hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _audit(store: Store, number: int | None = None) -> tuple[int, str]:
    """Number and hash of the newest row of the audit, or of the one with this number."""
    sql = "select n, hash from audit_head where one = 1" if number is None else "select n, hash from audit where n = ?"
    rows = store.rows(sql, () if number is None else (number,))
    return (int(rows[0]["n"]), str(rows[0]["hash"])) if rows else (0, "")


def _all(place: Place, head: str) -> Listed:
    """All that a head covers, with the lists before. Raises LeadlineError where one is not there, or not what it was."""
    out, at, seen = Listed(), head, set[str]()
    while at != NONE:
        one = _read(place, at)
        if not seen:
            out.audit = one.audit
        seen.add(at)
        out.runs = one.runs | out.runs
        at = one.before
    return out


def _read(place: Place, head: str) -> Listed:
    path = _directory(place) / head
    try:
        raw = path.read_bytes()
    except OSError:
        raise LeadlineError("not_found", "the list of this head is not beside the book", detail=f"no file {path}") from None
    changed = LeadlineError("invalid", "the list of this head is not what it was", detail=f"{path} was changed")
    if hashlib.sha256(raw).hexdigest() != head:
        raise changed
    lines = [line.split(" ") for line in raw.decode().splitlines()]
    if lines[0] != FIRST.split(" "):
        raise changed
    said = {words[0]: words[1:] for words in lines[1:4]}
    number, digest = said["audit"]
    return Listed(said["before"][0], (int(number), "" if digest == NONE else digest), {words[1]: words[2] for words in lines[4:]})


def _last(place: Place) -> str:
    """The newest list that is whole; without one, a new row of lists begins."""
    try:
        head = (_directory(place) / "last").read_text().strip()
        _all(place, head)
    except (OSError, LeadlineError, UnicodeDecodeError):
        return NONE
    return head


def _directory(place: Place) -> Path:
    return place.root / "heads"


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".tmp")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)
    fresh.replace(path)

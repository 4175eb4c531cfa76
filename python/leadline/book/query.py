"""What people ask the book: lists of runs, one run, what differs between two, and what to remove."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from leadline.book.ingest import ingest
from leadline.book.log import Log
from leadline.book.place import Place, find_place
from leadline.book.runs import words_of
from leadline.book.store import Db, Row, Store
from leadline.errors import LeadlineError

LAST = "last"
SHORT = 5
STATUSES = ("running", "ok", "failed", "cancelled", "lost")
SEARCH_S = 1.0
# Of what D of N runs have, the first 50 are found after 50 N / D runs; or D are found first. At a million runs that is equal at 0.7 %.
LOOKED_AT, MANY = 1000, 7


@dataclass(frozen=True)
class Filter:
    """Which runs. since, before: in microseconds since 1970; labels: key and value, or a key with any value (None).

    words: runs whose name, command or summary has, for each of its words, one that begins with it.
    """

    kind: str | None = None
    name: str | None = None
    status: str | None = None
    since: int | None = None
    before: int | None = None
    labels: tuple[tuple[str, str | None], ...] = ()
    parent: str | None = None
    words: str = ""

    def sql(self, db: Db) -> tuple[str, list[Any]]:
        """A condition on the rows of `run`, and its parameters."""
        parts, values = list[str](), list[Any]()
        for column in ("kind", "name", "status", "parent"):
            if (wanted := getattr(self, column)) is not None:
                parts.append(f"run.{column} = ?")
                values.append(wanted)
        if self.status not in (None, "ok"):
            parts.append("run.status <> 'ok'")  # SQLite takes an index of these only if it is told so
        for comparison, moment in (("run.started >= ?", self.since), ("run.started < ?", self.before)):
            if moment is not None:
                parts.append(comparison)
                values.append(moment)
        for key, value in self.labels:
            condition, more = with_label(db, key, value)
            parts.append(condition)
            values += more
        if words := words_of(self.words):
            condition, more = with_words(db, words)
            parts.append(condition)
            values += more
        elif self.words:
            parts.append("false")
        return " and ".join(parts) or "true", values


def with_label(db: Db, key: str, value: str | None) -> tuple[str, list[Any]]:
    """A condition on run.id, and its parameters."""
    values = [key] if value is None else [key, value]
    of_value = "" if value is None else " and l.value = ?"
    each = f"exists (select 1 from label l where l.run = run.id and l.key = ?{of_value} limit 1 offset 0)", values
    return each if _many_have(db, each) else (db.among(f"select l.run from label l where l.key = ?{of_value}"), values)


def with_words(db: Db, words: Sequence[str]) -> tuple[str, list[Any]]:
    """The same for the beginnings of words (of `words_of`)."""
    each = db.with_words(words, each=True)
    if _many_have(db, each):
        return each
    rarest = min(words, key=lambda word: (_of_the_newest(db, db.with_words([word], each=True)), -len(word))) if len(words) > 1 else words[0]
    condition, values = db.with_words([rarest])
    if rest := [word for word in words if word != rarest]:
        others, more = db.with_words(rest, each=True)
        return f"{condition} and {others}", [*values, *more]
    return condition, values


def _many_have(db: Db, each: tuple[str, list[Any]]) -> bool:
    """Whether so many of the newest runs meet a condition that the first page is soon found by looking at one after the other.

    Of what few have, all are found first, and then sorted.
    """
    return _of_the_newest(db, each) >= MANY


def _of_the_newest(db: Db, each: tuple[str, list[Any]]) -> int:
    """How many of the newest LOOKED_AT runs meet it."""
    newest = f"(select id from run order by started desc, id desc limit {LOOKED_AT}) run"
    return int(db.execute(f"select count(*) as n from {newest} where {each[0]}", each[1]).fetchone()["n"])


class Book:
    """The book as it is now: what was recorded so far has been taken in."""

    def __init__(self, place: Place | None = None) -> None:
        found = place or find_place()
        if found is None:
            raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="LEADLINE_BOOK=FOLDER leadline book ...")
        self.place = found
        self.store = Store(self.place)
        self.refresh()

    def refresh(self) -> int:
        """Takes in what was recorded since; how many events."""
        return ingest(self.place, self.store)

    def runs(self, wanted: Filter = Filter(), limit: int = 20, after: tuple[int, int] | None = None) -> list[Row]:
        """The newest first. after: `started` and `id` of the last run of the page before."""
        where, values = wanted.sql(self.store.db)
        if after is not None:
            where += " and (run.started, run.id) < (?, ?)"
            values += after
        rows = self.store.rows(f"select * from run where {where} order by started desc, id desc limit ?", [*values, limit])
        return [as_run(row) for row in rows]

    def find(self, text: str) -> Row:
        """`last`, or the first letters of an id. Raises LeadlineError."""
        if text == LAST:
            rows = self.store.rows("select * from run order by started desc, id desc limit 1")
        else:
            wanted = text.lower()
            rows = self.store.rows("select * from run where uid >= ? and uid < ? limit 2", (wanted, wanted + "~")) if wanted else []
        if len(rows) > 1:
            raise LeadlineError("usage", f"more than one run begins with {text}", hint="give more letters of the id")
        if not rows:
            raise LeadlineError("not_found", f"there is no run {text}" if text != LAST else "the book is empty", hint="leadline book list")
        return as_run(rows[0])

    def details(self, run: Row) -> Row:
        """The run with what belongs to it."""
        of = (run["id"],)
        rows = self.store.rows
        artifacts = rows("select kind, path, size, hash from artifact where run = ? order by n", of)
        facts = rows("select body from content where hash = ?", (run["facts_hash"],))
        return run | {
            "labels": {r["key"]: r["value"] for r in rows("select key, value from label where run = ? order by key", of)},
            "metrics": {r["name"]: r["value"] for r in rows("select name, value from metric where run = ? order by name", of)},
            "artifacts": artifacts,
            "files": rows("select path, size, modified, hash from run_file where run = ? order by path", of),
            "facts": json.loads(facts[0]["body"]) if facts else {},
            "children": [r["uid"] for r in rows("select uid from run where parent = ? order by started, id", (run["uid"],))],
        }

    def content(self, hash: str | None) -> str | None:
        """The text of a file that a run was given; None if it was not kept."""
        rows = self.store.rows("select body from content where hash = ?", (hash,))
        return str(rows[0]["body"]) if rows else None

    def label(self, run: Row, labels: Sequence[tuple[str, str | None]]) -> None:
        """None removes a label."""
        with self.store.writing() as db:
            for key, value in labels:
                if value is None:
                    db.execute("delete from label where run = ? and key = ?", (run["id"], key))
                else:
                    sql = "insert into label values (?, ?, ?) on conflict (run, key) do update set value = excluded.value"
                    db.execute(sql, (run["id"], key, value))

    def pin(self, run: Row, pinned: bool) -> None:
        with self.store.writing() as db:
            db.execute("update run set pinned = ? where id = ?", (int(pinned), run["id"]))

    def search(self, text: str, limit: int = 20, wanted: Filter = Filter()) -> tuple[list[Row], bool]:
        """Runs whose name, command or summary has the words, or whose output has the text, newest first; each with the `line` of the
        output that has it. And whether all output could be looked at in time."""
        found = {row["id"]: row | {"line": ""} for row in self.runs(replace(wanted, words=text), limit)}
        until, whole = time.monotonic() + SEARCH_S, True
        where, values = wanted.sql(self.store.db)
        sql = f"select * from run where {where} and (log_bytes > 0 or status = 'running') order by started desc, id desc"
        for row in self.store.rows(sql, values):
            line, seen_all = self._line_with(row["uid"], text.encode("utf-8", "surrogateescape"), until)
            whole = whole and seen_all
            if line is not None:
                found[row["id"]] = as_run(row) | {"line": line}
            if time.monotonic() > until:
                whole = False
                break
        newest = sorted(found.values(), key=lambda run: (run["started"], run["id"]), reverse=True)
        return newest[:limit], whole

    def _line_with(self, uid: str, text: bytes, until: float) -> tuple[str | None, bool]:
        """The first line of its output with the text, and whether all of it was looked at."""
        try:
            log = Log(self.place, uid)
        except OSError:
            return None, True
        try:
            lines, more = log.grep(text, most=1, budget_s=max(0.0, until - time.monotonic()))
        finally:
            log.close()
        return (printable(lines[0][1].decode("utf-8", "replace")), True) if lines else (None, more is None)

    def close(self) -> None:
        self.store.close()


def as_run(row: Row) -> Row:
    """A row of `run` as everybody sees it."""
    out = {name: value for name, value in row.items() if name not in ("argv_json", "inputs_json", "facts")}
    ended = row["ended"]
    return out | {
        "argv": json.loads(row["argv_json"]), "inputs": json.loads(row["inputs_json"]), "facts_hash": row["facts"],
        "pinned": bool(row["pinned"]), "duration_s": None if ended is None else max(0, ended - row["started"]) / 1e6,
    }  # fmt: skip


def printable(text: str) -> str:
    """Without what could steer a terminal."""
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)


def log_size(place: Place, uid: str) -> int:
    try:
        return os.stat(place.log_of(uid)).st_size
    except OSError:
        return 0

"""What people ask the book: lists of runs, one run, what differs between two, and what to remove."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from leadline.book.db import Db, Row
from leadline.book.facts import KEPT_TEXT
from leadline.book.ingest import ingest
from leadline.book.log import Log
from leadline.book.place import Place, find_place
from leadline.book.runs import put_labels, words_of
from leadline.book.store import Store
from leadline.errors import LeadlineError

LAST = "last"
SHORT = 5
STATUSES = ("running", "ok", "failed", "cancelled", "lost")
SEARCH_S = 1.0
DAY_US = 86_400_000_000
PAGE = 200
# Of what D of N runs have, the first 50 are found after 50 N / D runs; or D are found first. At a million runs that is equal at 0.7 %.
LOOKED_AT, MANY = 1000, 7
LABELLED = 2000  # of the newest runs with a label, so many are looked at for the rest of a filter
NO_TRIAL = "run.kind <> 'leg'"
Condition = tuple[str, Sequence[Any]]  # on the columns of `run`, and its parameters


@dataclass(frozen=True)
class Filter:
    """Which runs. since, before: in microseconds since 1970; labels: key and value, or a key with any value (None).

    words: runs whose name, command or summary has, for each of its words, one that begins with it. metric: runs that have this one.
    trials: also trials of experiments, which are many.
    """

    kind: str | None = None
    name: str | None = None
    status: str | None = None
    since: int | None = None
    before: int | None = None
    labels: tuple[tuple[str, str | None], ...] = ()
    parent: str | None = None
    words: str = ""
    project: str | None = None
    template: str | None = None
    host: str | None = None
    metric: str | None = None
    trials: bool = True

    def plain(self) -> Condition:
        """What does not need a plan of its own: all but labels and words."""
        parts, values = list[str](), list[Any]()
        for column in ("kind", "name", "status", "parent", "project", "template", "host"):
            if (wanted := getattr(self, column)) is not None:
                parts.append(f"run.{column} = ?")
                values.append(wanted)
        if self.status not in (None, "ok"):
            parts.append("run.status <> 'ok'")  # SQLite takes an index of these only if it is told so
        for comparison, moment in (("run.started >= ?", self.since), ("run.started < ?", self.before)):
            if moment is not None:
                parts.append(comparison)
                values.append(moment)
        if not self.trials:
            parts.append(NO_TRIAL)
        if self.metric is not None:
            parts.append("exists (select 1 from metric m where m.run = run.id and m.name = ? limit 1 offset 0)")
            values.append(self.metric)
        return " and ".join(parts) or "true", values


@dataclass(frozen=True)
class Within:
    """Which runs may be seen. each: conditions of which a run has to meet one, each served by an index of its own; any: the same as a
    filter of rows that are found by something else."""

    each: Sequence[Condition] = (("true", ()),)
    any: Condition = ("true", ())


def newest(store: Store, wanted: Filter, limit: int, after: tuple[int, int] | None = None, within: Within = Within()) -> list[Row]:
    """The newest runs that are wanted, of those within. after: `started` and `id` of the last run of the page before.

    What few runs have is found first: words by their own index; runs with a label in the order in which they began. Else the runs are
    walked in that order, once for each condition of `within`: with `or` between them, all would be sorted.
    """
    words = words_of(wanted.words)
    if (wanted.words and not words) or not within.each:
        return []
    conditions, rare = [wanted.plain(), *(_has_label(*label) for label in wanted.labels)], ""
    if words:
        common, rare, rest = _divided(store.db, words)
        conditions += [_has_words(store.db, some) for some in (common, rest) if some]
    asking = _Asking(store, conditions, limit, after, within)
    if rare:
        return asking.listed(store.db.runs_with_word(rare))
    if wanted.labels:
        found = asking.labelled(wanted)
        if found is not None:
            return found
    return asking.walked()


def each_newest(store: Store, wanted: Filter, within: Within = Within()) -> Iterator[Row]:
    """All of them, page by page."""
    after: tuple[int, int] | None = None
    while rows := newest(store, wanted, PAGE, after, within):
        yield from rows
        after = rows[-1]["started"], rows[-1]["id"]


def by_day(store: Store, days: int, now_us: int, within: Within = Within()) -> list[Row]:
    """How many runs began on each of the last days (UTC), and how they ended; the newest first. From counters, not from the runs."""
    condition, values = within.any
    rows = store.rows(
        f"select run.day, run.status, sum(run.n) as n from run_count run where run.day > ? and {condition} "
        "group by run.day, run.status having sum(run.n) > 0 order by run.day desc",
        [now_us // DAY_US - days, *values],
    )  # fmt: skip
    found: dict[int, Row] = {}
    for row in rows:
        date = datetime.fromtimestamp(row["day"] * 86400, UTC).strftime("%Y-%m-%d")
        day = found.setdefault(row["day"], {"day": date, "runs": 0, **dict.fromkeys(STATUSES, 0)})
        day["runs"] += int(row["n"])
        day[row["status"]] = day.get(row["status"], 0) + int(row["n"])
    return list(found.values())


def _label(key: str, value: str | None) -> Condition:
    """On a row of label."""
    return ("l.key = ?", [key]) if value is None else ("l.key = ? and l.value = ?", [key, value])


def _has_label(key: str, value: str | None) -> Condition:
    condition, values = _label(key, value)
    return f"exists (select 1 from label l where l.run = run.id and {condition} limit 1 offset 0)", values


def _has_words(db: Db, words: Sequence[str]) -> Condition:
    """For looking at one run after the other: `limit` keeps a planner from looking at the words of all runs first."""
    matches = " and ".join(db.word_match for _ in words)
    condition = f"exists (select 1 from run_words w where {db.word_run} = run.id and {matches} limit 1 offset 0)"
    return condition, [db.word_value(word) for word in words]


def _divided(db: Db, words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Words by how they are looked for: all, in one run after the other; or the rarest by the index, and the rest in what it gives.

    The newest LOOKED_AT runs are counted: if many of these have all the words, the first page is soon found by going on like that.
    """
    all_match, match = " and ".join(db.word_match for _ in words), db.word_match
    counts = [f"count(case when {all_match} then 1 end) as n", *(f"count(case when {match} then 1 end) as n{n}" for n in range(len(words)))]
    sample = f"(select id from run order by started desc, id desc limit {LOOKED_AT}) run"
    values = [db.word_value(word) for word in words]
    sql = f"select {', '.join(counts)} from {sample} cross join run_words w where {db.word_run} = run.id"
    found = db.execute(sql, [*values, *values]).fetchone()
    if found["n"] >= MANY:
        return list(words), "", []
    rarest = min(range(len(words)), key=lambda n: (found[f"n{n}"], -len(words[n])))
    return [], words[rarest], [word for word in words if word != words[rarest]]


class _Asking:
    """One question, in the forms that it can be asked in."""

    def __init__(self, store: Store, conditions: Sequence[Condition], limit: int, after: tuple[int, int] | None, within: Within) -> None:
        self._store, self._limit, self._after, self._within = store, limit, after, within
        self._wanted = _all_of(conditions)

    def walked(self) -> list[Row]:
        order = "order by run.started desc, run.id desc limit ?"
        where, values = _all_of([self._wanted, *self._behind("run.started, run.id")])
        asked = [(f"select run.* from run where {one} and {where} {order}", [*of, *values, self._limit]) for one, of in self._within.each]
        found = {row["id"]: row for answer in self._store.db.answers(asked) for row in answer}  # it may meet two conditions
        return sorted(found.values(), key=lambda row: (row["started"], row["id"]), reverse=True)[: self._limit]

    def listed(self, few: Condition) -> list[Row]:
        """few: what can be selected from, with the column `run`."""
        where, values = _all_of([self._wanted, *self._behind("run.started, run.id"), self._within.any])
        sql = f"select run.* from {few[0]} cross join run where run.id = few.run and {where} order by run.started desc, run.id desc limit ?"
        return self._store.rows(sql, [*few[1], *values, self._limit])

    def labelled(self, wanted: Filter) -> list[Row] | None:
        """None: the label has so many runs, of which so few are wanted, that another way is better."""
        moments = [(text, [at]) for text, at in (("l.started >= ?", wanted.since), ("l.started < ?", wanted.before)) if at is not None]
        labels = [_all_of([_label(*label), *moments, *self._behind("l.started, l.run")]) for label in wanted.labels]
        order = "order by l.started desc, l.run desc limit"
        ends = self._store.db.answers(
            [(f"select l.started, l.run from label l where {label} {order} 1 offset ?", [*of, LABELLED]) for label, of in labels]
        )  # fmt: skip
        rarest = next((n for n, end in enumerate(ends) if not end), 0)
        not_beyond: list[Condition] = [("(l.started, l.run) >= (?, ?)", [end["started"], end["run"]]) for end in ends[rarest]]
        where, values = _all_of([labels[rarest], *not_beyond, self._wanted, self._within.any])
        sql = f"select run.* from label l cross join run where run.id = l.run and {where} {order} ?"
        found = self._store.rows(sql, [*values, self._limit])
        return found if len(found) >= self._limit or not not_beyond else None

    def _behind(self, columns: str) -> list[Condition]:
        return [] if self._after is None else [(f"({columns}) < (?, ?)", list(self._after))]


def _all_of(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    return " and ".join(f"({text})" for text, _ in conditions) or "true", [value for _, values in conditions for value in values]


class Book:
    """The book as it is now: what was recorded so far has been taken in."""

    def __init__(self, place: Place | None = None) -> None:
        found = place or find_place()
        if found is None:
            raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="LEADLINE_BOOK=DIRECTORY leadline book ...")
        self.place = found
        self.store = Store(self.place)
        try:
            self.refresh()
        except self.store.db.errors as e:  # it can still be read: perhaps to make room
            detail = str(e).strip().partition("\n")[0]
            sys.stderr.write(f"warning: what was recorded since cannot be taken into the book, and waits beside it: {detail}\n")

    def refresh(self) -> int:
        """Takes in what was recorded since; how many events."""
        return ingest(self.place, self.store)

    def runs(self, wanted: Filter = Filter(), limit: int = 20, after: tuple[int, int] | None = None) -> list[Row]:
        """The newest first. after: `started` and `id` of the last run of the page before."""
        return [as_run(row) for row in newest(self.store, wanted, limit, after)]

    def find(self, text: str) -> Row:
        """`last` (which is no trial of an experiment), or the first letters of an id. Raises LeadlineError."""
        if text == LAST:
            rows = self.store.rows(f"select * from run where {NO_TRIAL} order by started desc, id desc limit 1")
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
        labels, metrics, artifacts, files, children, facts = self.store.db.answers([
            ("select key, value from label where run = ? order by key", of),
            ("select name, value from metric where run = ? order by name", of),
            ("select kind, path, size, hash from artifact where run = ? order by n", of),
            ("select path, size, modified, hash from run_file where run = ? order by path", of),
            ("select uid from run where parent = ? order by started, id", (run["uid"],)),
            ("select body from content where hash = ?", (run["facts_hash"],)),
        ])  # fmt: skip
        return run | {
            "labels": {row["key"]: row["value"] for row in labels},
            "metrics": {row["name"]: row["value"] for row in metrics},
            "artifacts": artifacts,
            "files": files,
            "facts": json.loads(facts[0]["body"]) if facts else {},
            "children": [row["uid"] for row in children],
        }

    def labelled(self, since: int, before: int, *, but: str) -> list[Row]:
        """The runs with labels that began between the two, in microseconds since 1970, each with its `labels`; the oldest first. Without
        trials of experiments, and without runs of the kind `but`."""
        rows = self.store.rows(
            "select run.uid, run.name, run.status, run.started, run.ended, label.key, label.value "
            "from run join label on label.run = run.id "
            f"where run.started >= ? and run.started < ? and {NO_TRIAL} and run.kind <> ? order by run.started, run.id, label.key",
            [since, before, but],
        )  # fmt: skip
        found: dict[str, Row] = {}
        for row in rows:
            run = found.setdefault(row["uid"], {name: row[name] for name in ("uid", "name", "status", "started", "ended")} | {"labels": {}})
            run["labels"][row["key"]] = row["value"]
        return list(found.values())

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
                    put_labels(db, run["id"], [(key, value)])

    def pin(self, run: Row, pinned: bool) -> None:
        with self.store.writing() as db:
            db.execute("update run set pinned = ? where id = ?", (int(pinned), run["id"]))

    def search(self, text: str, limit: int = 20, wanted: Filter = Filter()) -> tuple[list[Row], bool]:
        """Runs whose name, command or summary has the words, or whose output has the text, newest first; each with the `line` of the
        output that has it. And whether all output could be looked at in time."""
        found = {row["id"]: row | {"line": ""} for row in self.runs(replace(wanted, words=text), limit)}
        until, whole = time.monotonic() + SEARCH_S, True
        for row in each_newest(self.store, wanted):
            if time.monotonic() > until:
                whole = False
                break
            if not row["log_bytes"] and row["status"] != "running":
                continue
            line, seen_all = self._line_with(row["uid"], text.encode("utf-8", "surrogateescape"), until)
            whole = whole and seen_all
            if line is not None:
                found[row["id"]] = as_run(row) | {"line": line}
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


class OpenBook(Book):
    """The book of a store that is open already; what is new in it is taken in by whoever opened that."""

    def __init__(self, place: Place, store: Store) -> None:
        self.place, self.store = place, store


def as_run(row: Row) -> Row:
    """A row of `run` as everybody sees it."""
    out = {name: value for name, value in row.items() if name not in ("argv_json", "inputs_json", "facts")}
    ended = row["ended"]
    return out | {
        "argv": json.loads(row["argv_json"]), "inputs": json.loads(row["inputs_json"]), "facts_hash": row["facts"],
        "pinned": bool(row["pinned"]), "duration_s": None if ended is None else max(0, ended - row["started"]) / 1e6,
    }  # fmt: skip


def not_kept(path: str) -> LeadlineError:
    """Of a file that a run was given."""
    hint = f"the text of files up to {KEPT_TEXT >> 10} kB is"
    return LeadlineError("not_found", "the text of this file was not kept", hint=hint, where=path)


def printable(text: str) -> str:
    """Without what could steer a terminal."""
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)

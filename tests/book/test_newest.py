"""What is asked of a large book visits few rows: the work of SQLite is counted, for a book and for one ten times as large.

And runs are the same in each way to ask, for whoever may see them, page by page.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from books import Open
from leadline.book.ingest import find_lost
from leadline.book.place import Place
from leadline.book.query import Book, Condition, Filter, Within, by_day, newest
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.server.launch import launch_queue
from leadline.server.operation import Call, perform
from leadline.server.read import prometheus, runs
from leadline.server.rights import OWNER, Caller
from leadline.server.table import BY_NAME

DAY_US = 86_400_000_000
MEMBER = Caller("m", False, members={"lab": "viewer", "other": "viewer"}, grants={"t1": "viewer"})
SOME = Within(MEMBER.each_visible(), MEMBER.visible("run"))
OF_TEMPLATE = Within([("run.template = ?", ["t1"])], ("run.template = ?", ["t1"]))


def put_runs(store: Store, number: int) -> None:
    """Runs of this host, as recorded ones, with labels and words; in the order in which they began."""
    made, host = random.Random(5), os.uname().nodename
    with store.writing() as db:
        for n in range(1, number + 1):
            row = {
                "id": n, "uid": f"{n:012d}", "kind": made.choice(("command", "template")), "name": f"n{n % 7}", "user_name": "u",
                "host": host, "status": "failed" if n % 50 == 0 else "ok", "cwd": "/", "argv_json": '["a"]', "started": n * 1_000_000,
                "ended": n * 1_000_000 + 1, "rc": 0, "version": "1", "pid": 1, "boot": "", "project": ("main", "lab", "other")[n % 3],
                "template": "t1" if n % 4 == 0 else None,
            }  # fmt: skip
            db.execute(f"insert into run ({', '.join(row)}) values ({', '.join('?' * len(row))})", list(row.values()))
            db.execute("insert into label values (?, 'many', 'x', ?)", (n, row["started"]))
            if n <= number // 10:
                db.execute("insert into label values (?, 'old', 'y', ?)", (n, row["started"]))
            db.execute("insert into metric values (?, 'wall_s', 1)", (n,))
            columns = "uid, project, template, version, status, inputs_json, by_account, cause, asked"
            launch = f"insert into launch ({columns}) values (?, 'main', 't1', 1, 'done', '{{}}', 'u', 'by hand', ?)"
            db.execute(launch, (row["uid"], n))
            db.put_words([(n, f"common {'rare' if n % (number // 5) == 0 else 'w'}")])


def call(store: Store, caller: Caller = OWNER) -> Call:
    return Call(BY_NAME["run.list"], caller, store, Place("/nowhere"))


ASKED: dict[str, Callable[[Store], Any]] = {
    "newest": lambda store: newest(store, Filter(), 20),
    "newest of some": lambda store: newest(store, Filter(), 20, None, SOME),
    "by status of some": lambda store: newest(store, Filter(status="failed"), 5, None, SOME),
    "by a status that none has": lambda store: newest(store, Filter(status="lost"), 20, None, SOME),
    "by kind of some": lambda store: newest(store, Filter(kind="template"), 20, None, SOME),
    "by a kind that none has": lambda store: newest(store, Filter(kind="ansible"), 20, None, OF_TEMPLATE),
    "by a name that none has": lambda store: newest(store, Filter(name="x"), 20, None, SOME),
    "by name": lambda store: newest(store, Filter(name="n3"), 20),
    "by name of some": lambda store: newest(store, Filter(name="n3"), 20, None, SOME),
    "by a label that many have": lambda store: newest(store, Filter(labels=(("many", None),)), 20),
    "by a label that was long ago": lambda store: newest(store, Filter(labels=(("old", "y"),)), 20),
    "by a label of some": lambda store: newest(store, Filter(labels=(("old", "y"),)), 20, None, SOME),
    "words that many have": lambda store: newest(store, Filter(words="comm"), 20),
    "words that many have, of some": lambda store: newest(store, Filter(words="comm"), 20, None, SOME),
    "deep": lambda store: newest(store, Filter(), 20, (2_000_000_000, 2000)),
    "what one may see by id": lambda store: runs.find_run(call(store, MEMBER), "000000000001"),
    "one run": lambda store: runs.details(call(store, MEMBER), runs.find_run(call(store, MEMBER), "last")),
    "figures": lambda store: perform(BY_NAME["template.history"], MEMBER, store, Place("/nowhere"), {"metric": "wall_s", "limit": 20}),
    "names of figures": lambda store: perform(BY_NAME["template.metrics"], MEMBER, store, Place("/nowhere"), {"limit": 20}),
    "counts": lambda store: by_day(store, 30, DAY_US, SOME),
    "metrics": lambda store: prometheus._metrics(call(store, MEMBER), {}),
    "what is lost": lambda store: find_lost(Place("/nowhere"), store),
    "what is to be started": lambda store: launch_queue.dispatch(Place("/nowhere"), store),
    "what has no project": runs.assign,
}


def steps_of(store: Store, ask: Callable[[Store], Any]) -> int:
    """How many steps of its machine SQLite takes for it, in tens."""
    counted = itertools.count()
    connection = store.db._db  # type: ignore[attr-defined]
    connection.set_progress_handler(lambda: next(counted) and 0, 10)
    ask(store)
    connection.set_progress_handler(None, 0)
    return next(counted)


def test_ten_times_as_many_runs_are_no_more_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.book.query.LABELLED", 200)  # both books have more
    small, large = Store(Place(tmp_path / "small")), Store(Place(tmp_path / "large"))
    put_runs(small, 2500)
    put_runs(large, 25_000)
    more = {}
    for name, ask in ASKED.items():
        one, other = steps_of(small, ask), steps_of(large, ask)
        if other > 1.3 * one + 300:  # a tree of pages may have become one step higher
            more[name] = (one, other)
    assert more == {}


def test_counters_are_those_of_the_runs(place: Place, open_book: Open) -> None:
    """After each kind of change."""
    book = open_book()
    with book.store.writing() as db:
        for uid in ("a" * 12, "b" * 12, "c" * 12):
            sql = """insert into run (uid, kind, name, status, user_name, host, cwd, argv_json, started, version, pid, boot)
 values (?, 'command', 'n', 'running', 'u', 'h', '/', '[]', ?, '1', 1, '')"""
            db.execute(sql, (uid, DAY_US * 5 + 1))
    assert counted(book) == real(book) == [(5, "", "", "command", "running", 3)]
    with book.store.writing() as db:
        db.execute("update run set project = 'main', template = 't' where uid <> ?", ("c" * 12,))
        db.execute("update run set status = 'ok', pinned = 1 where uid = ?", ("a" * 12,))
        db.execute("update run set started = ? where uid = ?", (DAY_US * 6, "b" * 12))
    assert counted(book) == real(book)
    assert len(real(book)) == 3
    with book.store.writing() as db:
        db.execute("delete from run where uid = ?", ("a" * 12,))
        db.execute("update run set pinned = 1")
    assert counted(book) == real(book)
    found = by_day(book.store, 30, DAY_US * 6 + 5)
    assert [(day["day"], day["runs"], day["running"]) for day in found] == [("1970-01-07", 1, 1), ("1970-01-06", 1, 1)]
    assert by_day(book.store, 1, DAY_US * 6 + 5)[0]["day"] == "1970-01-07"


def counted(book: Book) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in book.store.rows("select * from run_count where n > 0 order by 1, 2, 3, 4, 5")]


def real(book: Book) -> list[tuple[Any, ...]]:
    sql = """select started / 86400000000 as day, coalesce(project, '') as project, coalesce(template, '') as template, kind, status,
 count(*) as n from run group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5"""
    return [tuple(row.values()) for row in book.store.rows(sql)]


WANTED = [
    Filter(), Filter(status="failed"), Filter(name="n1"), Filter(labels=(("a", None),)), Filter(labels=(("a", "1"),)),
    Filter(labels=(("a", "1"), ("b", "0"))), Filter(words="n1"), Filter(words="n1 do", labels=(("b", "1"),)),
    Filter(words="do", status="failed"), Filter(labels=(("a", "0"),), status="failed"), Filter(kind="nothing"), Filter(words="..."),
    Filter(metric="wall_s"), Filter(metric="none"),
]  # fmt: skip
SCOPES: tuple[Within, ...] = (Within(), SOME, Within((), ("false", ())))


@pytest.mark.parametrize(("many", "labelled"), [(0, 2000), (10**9, 2000), (7, 0), (7, 3)])
def test_each_way_gives_the_same_runs_page_by_page(
    place: Place, open_book: Open, many: int, labelled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.book.query.MANY", many)
    monkeypatch.setattr("leadline.book.query.LABELLED", labelled)
    made = random.Random(4)
    for n in range(40):
        recorder = Recorder(place)
        labels = {key: str(made.randrange(2)) for key in ("a", "b") if made.random() < 0.7}
        recorder.begin("command", f"n{n % 3}", ["do", "it"], labels=labels)
        recorder.end(made.choice((0, 1)))
    book = open_book()
    with book.store.writing() as db:
        for row in book.store.rows("select id from run"):
            values = (made.choice(("main", "lab", "other", None)), made.choice(("t1", "t2", None)), row["id"])
            db.execute("update run set project = ?, template = ? where id = ?", values)
    everything = book.store.rows("select * from run order by started desc, id desc")
    details = {row["id"]: book.details(run) for row, run in zip(everything, book.runs(limit=100))}
    for wanted, within in itertools.product(WANTED, SCOPES):
        expected = [row["id"] for row in everything if meets(details[row["id"]], wanted) and sees(row, within)]
        found, after = list[int](), None
        while rows := newest(book.store, wanted, 6, after, within):
            found += [row["id"] for row in rows]
            after = rows[-1]["started"], rows[-1]["id"]
        assert found == expected, (wanted, within)


def meets(run: dict[str, Any], wanted: Filter) -> bool:
    has = [run["name"], *run["argv"]]
    return (
        all(key in run["labels"] and value in (None, run["labels"][key]) for key, value in wanted.labels)
        and all(word in has for word in wanted.words.split())
        and wanted.name in (None, run["name"])
        and wanted.status in (None, run["status"])
        and wanted.kind in (None, run["kind"])
        and (wanted.metric is None or wanted.metric in run["metrics"])
    )


def sees(row: dict[str, Any], within: Within) -> bool:
    if within is SOME:
        return row["project"] in ("lab", "other") or (row["template"] == "t1" and row["project"] is not None)
    return bool(within.each)


def test_the_two_forms_of_a_right_are_the_same(place: Place, open_book: Open) -> None:
    book = open_book()
    for n, (project, template) in enumerate(itertools.product(("a", "b", None), ("t1", "t2", None))):
        with book.store.writing() as db:
            sql = """insert into run (uid, kind, name, status, user_name, host, cwd, argv_json, started, version, pid, boot,
 project, template) values (?, 'command', 'n', 'ok', 'u', 'h', '/', '[]', 1, '1', 1, '', ?, ?)"""
            db.execute(sql, (f"{n:012d}", project, template))
    for caller in (
        OWNER, Caller("x", True, only_project="a"), Caller("x", False, members={"a": "viewer"}), Caller("x", False),
        Caller("x", False, members={"a": "viewer"}, grants={"t1": "viewer"}), Caller("x", False, grants={"t1": "viewer", "t2": "runner"}),
        Caller("x", False, only_project="b", members={"a": "viewer"}, grants={"t1": "viewer"}),
    ):  # fmt: skip
        each: list[Condition] = caller.each_visible()  # type: ignore[assignment]
        by_each = {row["uid"] for text, values in each for row in book.store.rows(f"select uid from run where {text}", values)}
        where, values = caller.visible("run")
        by_any = {row["uid"] for row in book.store.rows(f"select uid from run where {where}", values)}
        by_role = {
            row["uid"] for row in book.store.rows("select * from run")
            if caller.sees_all or caller.role(row["project"], row["template"]) is not None
        }  # fmt: skip
        assert by_each == by_any == by_role, caller

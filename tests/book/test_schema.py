"""The schema of the store grows in numbered steps: from each earlier version to the newest, forward only; the same on both stores."""

from __future__ import annotations

import os
from typing import Any

import pytest
from books import Open
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.recorder import Recorder
from leadline.book.store import DIALECTS, Store, steps
from leadline.errors import LeadlineError

NUMBERS = [number for number, _ in steps("sqlite")]
OLD_RUN = """insert into run (uid, kind, name, status, user_name, host, cwd, argv_json, started, ended, version, pid, boot)
 values ('0123456789ab', 'command', 'old', 'ok', 'me', 'here', '/', '["old"]', 1, 2, '0.1', 1, '')"""


def schema(store: Store) -> list[dict[str, Any]]:
    """Tables, columns and indices."""
    if store.db.dialect == "sqlite":
        return store.rows("select type, name, sql from sqlite_master order by type, name")
    columns = "select table_name, column_name, data_type, is_nullable, column_default from information_schema.columns"
    return store.rows(f"{columns} where table_schema = 'leadline_book' order by 1, 2") + store.rows(
        "select indexname, indexdef from pg_indexes where schemaname = 'leadline_book' order by 1"
    )


def test_steps_are_numbered_one_after_the_other() -> None:
    assert list(range(1, len(NUMBERS) + 1)) == NUMBERS
    assert [number for number, _ in steps("postgresql")] == NUMBERS
    for dialect in DIALECTS:
        assert all(statement for _, statements in steps(dialect) for statement in statements)


@pytest.mark.parametrize("version", NUMBERS)
def test_a_store_of_each_version_becomes_the_newest(place: Place, version: int) -> None:
    old = Store(place, to=version)
    assert old.version == version
    with old.writing() as db:
        db.execute(OLD_RUN)
    old.close()
    store = Store(place)
    assert store.version == NUMBERS[-1]
    assert store.rows("select uid, name, started from run") == [{"uid": "0123456789ab", "name": "old", "started": 1}]
    grown = schema(store)
    store.close()
    book = Book(place)
    assert book.details(book.find("0123"))["argv"] == ["old"]
    recorder = Recorder(place)
    recorder.begin("command", "new", ["new"])
    recorder.end(0)
    book.refresh()
    assert [run["name"] for run in book.runs()] == ["new", "old"]
    book.close()
    assert grown == schema_of_a_new_one(place)


def schema_of_a_new_one(place: Place) -> list[dict[str, Any]]:
    if place.dsn is None:
        store = Store(Place(place.root / "new"))
    else:
        store = Store(place)
        store.db.execute("drop schema leadline_book cascade")
        store.close()
        store = Store(place)
    found = schema(store)
    store.close()
    return found


def test_two_who_open_a_new_store_at_once(place: Place) -> None:
    workers = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                Store(place)
                os._exit(0)
            finally:
                os._exit(1)
        workers.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in workers] == [0, 0, 0, 0]
    store = Store(place)
    assert store.version == NUMBERS[-1]
    store.close()


def test_a_step_that_fails_leaves_the_store_as_it_was(place: Place, open_book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema(open_book().store)
    broken = [*steps(open_book().store.db.dialect), (NUMBERS[-1] + 1, ["create table more (n bigint)", "create nonsense"])]
    monkeypatch.setattr("leadline.book.store.steps", lambda dialect: broken)
    with pytest.raises(LeadlineError, match="the book cannot be opened"):
        Store(place)
    monkeypatch.undo()
    monkeypatch.setenv("LEADLINE_BOOK", place.variable)
    store = Store(place)
    assert (store.version, schema(store)) == (NUMBERS[-1], before)
    store.close()


def test_a_store_only_grows(place: Place, open_book: Open) -> None:
    open_book()
    with pytest.raises(LeadlineError, match=f"the book has schema {NUMBERS[-1]}; only up to 1 was asked for"):
        Store(place, to=1)

"""What clients of several scenarios do, and clients that come another way than those of Ground."""

from __future__ import annotations

import threading
from random import choice
from typing import Any

import psycopg

from matrix.ground import Ground, Step


def pays(rows: int, pause_s: float = 0.05) -> Step:
    """Changes a row of the table account, of so many."""

    def pay(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("update account set v = v + 1 where id = %s", [choice(range(1, rows + 1))])
        stop.wait(pause_s)

    return pay


def looks(rows: int, pause_s: float = 0.05, prepare: bool | None = None) -> Step:
    """Looks a row of the table account up."""

    def look(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select v from account where id = %s", [choice(range(1, rows + 1))], prepare=prepare)
        stop.wait(pause_s)

    return look


def outsiders(g: Ground, dsn: str, step: Step, names: list[str]) -> None:
    """Clients that repeat a step, one of each application in the list, until the scenario ends."""
    ended = threading.Event()

    def work(name: str) -> None:
        with psycopg.connect(dsn, prepare_threshold=None, autocommit=True, gssencmode="disable", application_name=name) as db:
            while not ended.is_set():
                step(db, ended)

    threads = [threading.Thread(target=work, args=[name]) for name in names]
    g.stack.callback(lambda: [thread.join(20) for thread in threads])
    g.stack.callback(ended.set)
    for thread in threads:
        thread.start()

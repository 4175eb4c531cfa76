"""Loads without trouble: no rule may fire above low."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from random import choice
from typing import Any

import psycopg

from matrix.ground import Ground
from matrix.scenario import Truth, scenario


@scenario(clean=True, settings={"max_wal_size": "8GB"})
def clean_oltp(g: Ground) -> Iterator[Truth]:
    """Payments of four clients at a pace."""
    g.server.pgbench_init(5)

    def pay(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            db.execute("update pgbench_accounts set abalance = abalance + 1 where aid = %s", [choice(range(1, 400_001))])
            db.execute("insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, 1, 1, now())")
        stop.wait(0.05)

    g.repeat("pay", pay, 4)
    yield list


@scenario(clean=True)
def clean_read_only(g: Ground) -> Iterator[Truth]:
    """Look-ups by key of four clients at a pace."""
    g.table("account", 20000)

    def look(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select v from account where id = %s", [choice(range(1, 20_001))])
        stop.wait(0.02)

    g.repeat("web", look, 4)
    yield list


@scenario(clean=True)
def clean_idle(g: Ground) -> Iterator[Truth]:
    """A server that nobody uses."""
    yield list

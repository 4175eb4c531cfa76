"""Sessions that wait for locks. The truth is how long each statement took by the clock of its client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg

from matrix.ground import Ground, Stopwatch
from matrix.scenario import Expected, Truth, scenario

UPDATE = "update {} set v = v + 1 where id = {}"


def holds(g: Ground, name: str, *statements: str, **arguments: Any) -> psycopg.Connection[Any]:
    """A session that has run these in a transaction and left it open."""
    holder = g.connect(name, **arguments)
    for statement in ("begin", *statements):
        holder.execute(statement)
    return holder


@scenario()
def idle_holder_of_a_row(g: Ground) -> Iterator[Truth]:
    """A session leaves its transaction open after an update; three others want the row."""
    t = g.table("account")
    pid = holds(g, "web", UPDATE.format(t, 1)).info.backend_pid
    watch = Stopwatch()
    for number in range(3):
        g.blocked(f"victim{number}", UPDATE.format(t, 1), watch)
    yield lambda: [
        Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 3 sessions", "idle in transaction", "web", t), "high"),
        Expected("IDLE-IN-XACT", f"pid {pid}", watch.within(g.window), ("application web",), "high"),
    ]


@scenario(never=("IDLE-IN-XACT",))
def active_holder_of_a_row(g: Ground) -> Iterator[Truth]:
    """A transaction updates a row, then runs a long statement."""
    t = g.table("account")
    holder = holds(g, "batch", UPDATE.format(t, 1))
    g.start(holder, "select pg_sleep(60)")
    _, watch = g.blocked("victim", UPDATE.format(t, 1))
    pid = holder.info.backend_pid
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session", "batch"), "high")]


@scenario()
def holder_that_ends_in_the_window(g: Ground) -> Iterator[Truth]:
    """The blocking transaction commits before the capture ends: the cost is what was lost until then."""
    t = g.table("account")
    holder = holds(g, "web", UPDATE.format(t, 1))
    watch = Stopwatch()
    for number in range(2):
        g.blocked(f"victim{number}", UPDATE.format(t, 1), watch)
    g.later(1.7, lambda: holder.execute("commit"))
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {holder.info.backend_pid}", watch.within(g.window), ("blocked 2 sessions",), "high")]


@scenario()
def victims_that_come_in_the_window(g: Ground) -> Iterator[Truth]:
    """Sessions that begin to wait one after another, while the capture runs."""
    t = g.table("account")
    pid = holds(g, "web", UPDATE.format(t, 1)).info.backend_pid
    watch = Stopwatch()
    for number in range(4):
        victim = g.connect(f"victim{number}")
        g.later(0.4 * (number + 1), lambda victim=victim: g.start(victim, UPDATE.format(t, 1), watch))  # type: ignore[misc]
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 4 sessions",), "high")]


@scenario()
def chain_of_three(g: Ground) -> Iterator[Truth]:
    """A blocks B, and B, which holds another row, blocks C: all is lost to A."""
    t = g.table("account", 2)
    pid = holds(g, "first", UPDATE.format(t, 1)).info.backend_pid
    middle = holds(g, "middle", UPDATE.format(t, 2))
    watch = g.start(middle, UPDATE.format(t, 1))
    g.wait_for("application_name = 'middle' and wait_event_type = 'Lock'")
    g.blocked("last", UPDATE.format(t, 2), watch)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 2 sessions", "first"), "high")]


@scenario()
def two_chains_at_once(g: Ground) -> Iterator[Truth]:
    """Two holders, each with victims of its own: each has its own cost."""
    t = g.table("account", 2)
    expected = []
    for row, victims in ((1, 1), (2, 3)):
        pid = holds(g, f"holder{row}", UPDATE.format(t, row)).info.backend_pid
        watch = Stopwatch()
        for number in range(victims):
            g.blocked(f"victim{row}{number}", UPDATE.format(t, row), watch)
        expected.append((pid, watch, victims))
    yield lambda: [
        Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), (f"blocked {n} session",), "high") for pid, watch, n in expected
    ]


@scenario()
def two_holders_of_one_row(g: Ground) -> Iterator[Truth]:
    """Two sessions hold a row FOR SHARE: the one that wants to change it is blocked half by each."""
    t = g.table("account")
    pids = [holds(g, f"reader{n}", f"select * from {t} where id = 1 for share").info.backend_pid for n in range(2)]
    _, watch = g.blocked("writer", UPDATE.format(t, 1))
    total: list[tuple[int, int]] = []  # a multixact is waited for member by member
    total += g.sql("select pid, unnest(pg_blocking_pids(pid)) from pg_stat_activity where application_name = 'writer'")
    blockers = [blocker for _, blocker in total]
    assert set(blockers) <= set(pids), (blockers, pids)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {b}", watch.within(g.window) / len(blockers), ("blocked 1 session",)) for b in blockers]


@scenario()
def prepared_transaction_holds_a_row(g: Ground) -> Iterator[Truth]:
    """A transaction that was prepared and forgotten, with a quote in its name."""
    t = g.table("account")
    holds(g, "gone", UPDATE.format(t, 1), "prepare transaction 'it''s 17'")
    watch = Stopwatch()
    for number in range(2):
        g.blocked(f"victim{number}", UPDATE.format(t, 1), watch)
    yield lambda: [
        Expected("BLOCK-CHAIN", "prepared transaction postgres/it's 17", watch.within(g.window), ("blocked 2 sessions", t), "high")
    ]
    g.sql("rollback prepared 'it''s 17'")


@scenario()
def advisory_lock_of_an_idle_session(g: Ground) -> Iterator[Truth]:
    """A session holds an advisory lock outside any transaction, and does nothing."""
    holder = g.connect("cron")
    holder.execute("select pg_advisory_lock(4711)")
    _, watch = g.blocked("cron2", "select pg_advisory_lock(4711)")
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {holder.info.backend_pid}", watch.within(g.window), ("advisory",), "high")]


@scenario()
def advisory_lock_of_two_keys(g: Ground) -> Iterator[Truth]:
    """An advisory lock of two integers, held in a transaction; others want it shared."""
    pid = holds(g, "leader", "select pg_advisory_xact_lock(7, -9)").info.backend_pid
    watch = Stopwatch()
    for number in range(2):
        g.blocked(f"follower{number}", "select pg_advisory_lock_shared(7, -9)", watch)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("advisory", "leader"), "high")]


@scenario()
def table_locked_by_command(g: Ground) -> Iterator[Truth]:
    """LOCK TABLE in a transaction that is left open; others insert."""
    t = g.table("account")
    pid = holds(g, "admin", f"lock table {t} in share mode").info.backend_pid
    watch = Stopwatch()
    for number in range(3):
        g.blocked(f"victim{number}", f"insert into {t} values ({10 + number}, 0)", watch)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 3 sessions", t, "ShareLock"), "high")]


@scenario()
def child_rows_wait_for_their_parent(g: Ground) -> Iterator[Truth]:
    """The parent of a foreign key is being deleted: inserts of children wait."""
    g.table("parent", 3)
    g.sql("create table child (id int, parent int references parent)")
    pid = holds(g, "cleanup", "delete from parent where id = 2").info.backend_pid
    watch = Stopwatch()
    for number in range(2):
        g.blocked(f"insert{number}", "insert into child values (1, 2)", watch)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 2 sessions", "cleanup"), "high")]


@scenario()
def the_same_key_inserted_twice(g: Ground) -> Iterator[Truth]:
    """Inserts wait for a transaction that has inserted the same unique key and is left open."""
    t = g.table("account")
    pid = holds(g, "import", f"insert into {t} values (99, 0)").info.backend_pid
    watch = Stopwatch()
    g.blocked("insert", f"insert into {t} values (99, 0)", watch)
    g.blocked("upsert", f"insert into {t} values (99, 0) on conflict (id) do update set v = 1", watch)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 2 sessions", "import"), "high")]


@scenario()
def victims_in_two_databases(g: Ground) -> Iterator[Truth]:
    """A holder in each of two databases, with a victim in each: names come from the right database."""
    g.sql("create database shop")
    expected = []
    for database, table in (("postgres", "account"), ("shop", "basket")):
        arguments = {"dbname": database}
        with g.server.connect(**arguments) as db:
            db.execute(f"create table {table} (id int, v int)")
            db.execute(f"insert into {table} values (1, 0)")
        pid = holds(g, f"of_{database}", UPDATE.format(table, 1), **arguments).info.backend_pid
        _, watch = g.blocked(f"victim_{database}", UPDATE.format(table, 1), **arguments)
        expected.append((pid, watch, f"of_{database}"))
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), (name,), "high") for pid, watch, name in expected]


@scenario()
def names_that_need_quotes(g: Ground) -> Iterator[Truth]:
    """A table with a long name of two scripts, quotes and a per cent sign, in a schema that needs quotes, too."""
    name = '"Über %s ""Konten"" ' + "x" * 40 + '"'
    g.sql('create schema "My Schema"')
    g.sql(f'create table "My Schema".{name} (id int primary key, v int)')
    pid = holds(g, "Bücher & %d", f'lock table "My Schema".{name}').info.backend_pid
    _, watch = g.blocked("victim", f'select * from "My Schema".{name}')
    plain = "My Schema." + name[1:-1].replace('""', '"')
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), (plain, "AccessExclusiveLock"), "high")]


@scenario()
def hot_row(g: Ground) -> Iterator[Truth]:
    """Eight clients update one row, each in a transaction of some milliseconds."""
    t, watch = g.table("counter"), Stopwatch()

    def count(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            with watch.on():
                db.execute(UPDATE.format(t, 1))
            stop.wait(0.02)

    g.repeat("clicks", count, 8)
    yield lambda: [Expected("ROW-HOTSPOT", f"rows of table {t}", watch.within(g.window), severity="high")]


@scenario(beside=("IDLE-IN-XACT",))
def two_hot_rows(g: Ground) -> Iterator[Truth]:
    """Clients compete for a row in each of two tables."""
    watches = {}
    for name, clients in (("counter", 6), ("stock", 4)):
        t = g.table(name)
        watches[t] = watch = Stopwatch()

        def count(db: psycopg.Connection[Any], stop: threading.Event, t: str = t, watch: Stopwatch = watch) -> None:
            with db.transaction():
                with watch.on():
                    db.execute(UPDATE.format(t, 1))
                stop.wait(0.02)

        g.repeat(f"of_{name}", count, clients)
    yield lambda: [Expected("ROW-HOTSPOT", f"rows of table {t}", watch.within(g.window)) for t, watch in watches.items()]


@scenario()
def subtransaction_holds_a_row(g: Ground) -> Iterator[Truth]:
    """The row was changed in a subtransaction: who waits, waits for the transaction around it."""
    t = g.table("account")
    pid = holds(g, "orm", "savepoint a", UPDATE.format(t, 1), "release a").info.backend_pid
    _, watch = g.blocked("victim", UPDATE.format(t, 1))
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session", "orm"), "high")]


@scenario()
def lock_behind_a_slow_role(g: Ground) -> Iterator[Truth]:
    """Holder and victims are different roles with names that need quotes, on a table that neither owns."""
    t = g.table("account")
    for role in ("App Owner", "reader-1"):
        g.sql(f'create role "{role}" login')
        g.sql(f'grant all on {t} to "{role}"')
    pid = holds(g, "web", UPDATE.format(t, 1), user="App Owner").info.backend_pid
    _, watch = g.blocked("victim", f"delete from {t} where id = 1", user="reader-1")
    yield lambda: [
        Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session",), "high"),
        Expected("IDLE-IN-XACT", f"pid {pid}", watch.within(g.window), (), "high"),
    ]

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
    """Eight clients update one row, each in a transaction of 50 ms."""
    t, watch = g.table("counter"), Stopwatch()

    def count(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            with watch.on():
                db.execute(UPDATE.format(t, 1))
            stop.wait(0.05)

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
                stop.wait(0.05)

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


@scenario()
def many_victims_of_one_row(g: Ground) -> Iterator[Truth]:
    """Forty sessions queue for a row behind one that was left open."""
    t, watch = g.table("account"), Stopwatch()
    pid = holds(g, "web", UPDATE.format(t, 1)).info.backend_pid
    for number in range(40):
        g.start(g.connect(f"victim{number}"), UPDATE.format(t, 1), watch)
    g.wait_for("wait_event_type = 'Lock'", 40)


    def truth() -> list[Expected]:
        waited_s = watch.within(g.window)
        queued = {"seconds": waited_s * 39 / 40}  # the first waits for the transaction, the others for the row behind it
        return [
            Expected("BLOCK-CHAIN", f"pid {pid}", waited_s, ("blocked 40 sessions", t), "critical"),
            Expected("TOP-WAIT", "wait Lock:tuple", None, ("of database time, 40.0 sessions", "update public.account"), "info", queued),
        ]

    yield truth


@scenario(settings={"max_parallel_workers_per_gather": 2, "min_parallel_table_scan_size": 0, "parallel_setup_cost": 0})
def parallel_query_holds_the_table(g: Ground) -> Iterator[Truth]:
    """A parallel query reads a table that is to be altered: the leader is the root, and not its workers."""
    t = g.table("account", 20000)
    g.sql("create function slow(n int) returns int language plpgsql parallel safe as $$ begin perform pg_sleep(60); return n; end $$")
    leader = g.connect("report")
    leader.execute("set parallel_tuple_cost = 0")
    g.start(leader, f"select count(*) from {t} where slow(v) > 0")
    g.wait_for("backend_type = 'parallel worker' and wait_event = 'PgSleep'")
    _, watch = g.blocked("migration", f"alter table {t} add column note text")
    pid = leader.info.backend_pid
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session", "report", t), "high")]


@scenario()
def index_built_concurrently_waits_for_a_transaction(g: Ground) -> Iterator[Truth]:
    """CREATE INDEX CONCURRENTLY waits for a transaction that was left open after an update of the table."""
    t = g.table("account")
    pid = holds(g, "web", UPDATE.format(t, 1)).info.backend_pid
    _, watch = g.blocked("deploy", f"create index concurrently on {t} (v)")
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session", "virtualxid"), "high")]


@scenario()
def lock_of_an_object_that_is_no_table(g: Ground) -> Iterator[Truth]:
    """A schema is being commented on in a transaction that was left open; another session wants to do the same."""
    pid = holds(g, "first", "comment on schema public is 'mine'").info.backend_pid
    _, watch = g.blocked("second", "comment on schema public is 'my own'")
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session", "object"), "high")]


@scenario(never=("ROW-HOTSPOT",))
def victims_that_give_up_and_try_again(g: Ground) -> Iterator[Truth]:
    """Sessions with a lock_timeout wait for half a second, fail, and try again."""
    t, watch = g.table("account"), Stopwatch()
    pid = holds(g, "web", UPDATE.format(t, 1)).info.backend_pid

    def attempt(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("set lock_timeout = '500ms'")
        try:
            with watch.on():
                db.execute(UPDATE.format(t, 1))
        except psycopg.errors.LockNotAvailable:
            stop.wait(0.1)

    g.repeat("retry", attempt, 3)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 3 sessions",), "high")]


@scenario()
def workers_that_take_the_first_row_of_a_queue(g: Ground) -> Iterator[Truth]:
    """Eight workers want the first row of a queue, FOR UPDATE without SKIP LOCKED."""
    g.sql("create table jobs as select n as id, false as done from generate_series(1, 10000) n")
    g.sql("create index on jobs (id) where not done")
    watch = Stopwatch()

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            with watch.on():
                row = db.execute("select id from jobs where not done order by id limit 1 for update").fetchone()
            if row:
                db.execute("update jobs set done = true where id = %s", row)
            stop.wait(0.03)

    g.repeat("worker", work, 8)
    yield lambda: [Expected("ROW-HOTSPOT", "rows of table public.jobs", watch.within(g.window), severity="high")]


@scenario()
def holder_whose_client_reads_slowly(g: Ground) -> Iterator[Truth]:
    """Two troubles at once: a transaction changes a row, then sends a large result to a client that does not read it."""
    t = g.table("account")
    g.sql("create table wide as select n, repeat('x', 1000) as t from generate_series(1, 50000) n")
    holder = holds(g, "export", UPDATE.format(t, 1))
    assert holder.pgconn.exec_(b"copy (select * from wide) to stdout").status == psycopg.pq.ExecStatus.COPY_OUT
    g.wait_for("application_name = 'export' and wait_event = 'ClientWrite'")
    _, watch = g.blocked("victim", UPDATE.format(t, 1))
    pid = holder.info.backend_pid
    yield lambda: [
        Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session", "export"), "high"),
        Expected("SLOW-CLIENT", "application export from local", g.window.seconds, (f"pid {pid}",), "medium"),
    ]


def takes_turns(g: Ground, name: str, lock: str, clients: int, hold_s: float) -> Stopwatch:
    """Clients that each hold a lock for a moment, one after another; the watch has how long they waited for it."""
    watch = Stopwatch()

    def turn(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            with watch.on():
                db.execute(lock)
            stop.wait(hold_s)

    g.repeat(name, turn, clients)
    return watch


@scenario(never=("ROW-HOTSPOT", "BLOCK-CHAIN"))
def convoy_for_an_advisory_lock(g: Ground) -> Iterator[Truth]:
    """Six clients take turns for an advisory lock with a negative key."""
    watch = takes_turns(g, "cron", "select pg_advisory_xact_lock(-5)", 6, 0.05)
    subject = "advisory lock -5 in database postgres"
    yield lambda: [Expected("LOCK-CONVOY", subject, watch.within(g.window), ("application cron",), "high")]


@scenario(never=("ROW-HOTSPOT", "BLOCK-CHAIN"))
def convoy_for_a_table(g: Ground) -> Iterator[Truth]:
    """Five clients take turns for a table that each locks for itself."""
    watch = takes_turns(g, "batch", f"lock table {g.table('totals')} in exclusive mode", 5, 0.05)
    yield lambda: [Expected("LOCK-CONVOY", "table lock of public.totals", watch.within(g.window), ("application batch",), "high")]


@scenario(never=("BLOCK-CHAIN",))
def two_convoys_and_a_hot_row(g: Ground) -> Iterator[Truth]:
    """Three kinds of turns at once: an advisory lock of two keys, another of one, and a row."""
    t = g.table("counter")
    one = takes_turns(g, "sync", "select pg_advisory_xact_lock(11, 12)", 4, 0.05)
    two = takes_turns(g, "mail", "select pg_advisory_xact_lock(1234567890123)", 3, 0.07)
    row = takes_turns(g, "clicks", UPDATE.format(t, 1), 4, 0.05)
    yield lambda: [
        Expected("LOCK-CONVOY", "advisory lock (11, 12) in database postgres", one.within(g.window), ("application sync",), "medium"),
        Expected("LOCK-CONVOY", "advisory lock 1234567890123 in database postgres", two.within(g.window), ("application mail",), "medium"),
        Expected("ROW-HOTSPOT", f"rows of table {t}", row.within(g.window), (), "medium"),
    ]


@scenario(never=("LOCK-CONVOY", "IDLE-IN-XACT"))
def advisory_lock_stranded_in_a_pool(g: Ground) -> Iterator[Truth]:
    """A pooler has given a session that still holds an advisory lock to other clients: it runs their short transactions."""
    t = g.table("account")

    def serve(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select pg_advisory_lock(1000)")
        while not stop.is_set():
            db.execute(UPDATE.format(t, 1))
            stop.wait(0.02)

    (holder,) = g.begin("pooled", serve)
    g.wait_for("application_name = 'pooled' and query like 'update%'")
    watch = Stopwatch()
    for number in range(2):
        g.blocked(f"pod{number}", "select pg_advisory_lock(1000)", watch)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {holder.pid}", watch.within(g.window), ("blocked 2 sessions", "advisory"), "high")]


@scenario(window_s=12.0)  # on a busy host, looks at locks are up to a second apart: who holds one is known to half of that
def holders_that_follow_each_other(g: Ground) -> Iterator[Truth]:
    """A holds a lock for half of the window, then B, who waited for it, for the other half: each has what was lost behind it."""
    lock = "select pg_advisory_xact_lock(42)"  # whoever waits first has it first, which is not sure with a row
    first, second, last = holds(g, "first", lock), g.connect("second"), Stopwatch()
    second.execute("begin")
    own = g.start(second, lock)
    g.wait_for("application_name = 'second' and wait_event_type = 'Lock'")
    g.blocked("last", lock, last)
    g.later(6.0, lambda: first.execute("commit"))

    def truth() -> list[Expected]:
        [(begun, ended)] = own.spans
        before = Stopwatch([(begun, ended)]).within(g.window)
        return [
            Expected("BLOCK-CHAIN", f"pid {first.info.backend_pid}", 2 * before, ("blocked 2 sessions",), "high"),
            Expected("BLOCK-CHAIN", f"pid {second.info.backend_pid}", last.within(g.window) - before, ("blocked 1 session",), "medium"),
        ]

    yield truth


@scenario()
def chain_of_six(g: Ground) -> Iterator[Truth]:
    """Each of five sessions holds a row and waits for that of the one before."""
    t, watch = g.table("account", 6), Stopwatch()
    pid = holds(g, "first", UPDATE.format(t, 1)).info.backend_pid
    for n in range(2, 7):
        session = holds(g, f"link{n}", UPDATE.format(t, n))
        g.start(session, UPDATE.format(t, n - 1), watch)
        g.wait_for(f"application_name = 'link{n}' and wait_event_type = 'Lock'")
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 5 sessions", "up to 5 deep"), "critical")]


@scenario(tier="sql", window_s=4.0)
def holder_and_queue_seen_over_sql(g: Ground) -> Iterator[Truth]:
    """The same over SQL, ten times a second: a holder, DDL behind it, and a queue behind the DDL."""
    t, queue = g.table("account"), Stopwatch()
    pid = holds(g, "report", f"select * from {t}").info.backend_pid
    _, own = g.blocked("migration", f"alter table {t} add column note text")
    for number in range(3):
        g.blocked(f"reader{number}", f"select * from {t}", queue)
    yield lambda: [
        Expected("BLOCK-CHAIN", f"pid {pid}", own.within(g.window) + queue.within(g.window), ("report",), "high"),
        Expected("DDL-QUEUE", f"relation {t}", queue.within(g.window), (), "high"),
    ]


@scenario(never=("BLOCK-CHAIN",), beside=("SLRU",))
def convoy_for_the_queue_of_notify(g: Ground) -> Iterator[Truth]:
    """A trigger notifies of each row, and nobody listens: commits with many notifications wait for each other."""
    g.table("fact", 1)
    watch = Stopwatch()

    def insert(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.cursor() as cursor:
            cursor.execute("begin")
            cursor.execute("select count(pg_notify('fact', repeat('x', 7000) || i)) from generate_series(1, 300) i")
            with watch.on():
                cursor.execute("commit")

    g.repeat("store", insert, 6)
    yield lambda: [Expected("LOCK-CONVOY", "lock of NOTIFY", None, ("application store",))]

"""A hot standby: its replay, what it keeps on the primary, and how far it falls behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
from conftest import in_memory, wait_until
from host_changes import control_group, forget_pages, loop_disk, writes_limited
from standby import Standby

from matrix.ground import Ground
from matrix.scenario import Expected, Truth, scenario
from matrix.scenarios.wal import WAL_KEPT, fill_segments


def streams(g: Ground) -> None:
    wait_until(lambda: g.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the stream")


def stands_by(g: Ground, standby: Standby) -> psycopg.Connection[Any]:
    """From now on the standby is captured. Gives a session on it."""
    g.target = standby
    reader = psycopg.connect(standby.dsn, autocommit=True, application_name="report")
    g.stack.callback(reader.close)
    return reader


def replay_waits(standby: Standby, *events: str) -> None:
    query = "select 1 from pg_stat_activity where backend_type = 'startup' and wait_event = any (%s)"
    with psycopg.connect(standby.dsn, autocommit=True) as asker:
        wait_until(lambda: asker.execute(query, [list(events)]).fetchone(), what="a conflict of replay")


def makes_seen(g: Ground, reader: psycopg.Connection[Any], statement: str) -> None:
    """A table of the primary that the reader of the standby has, too."""
    g.sql(statement)
    wait_until(lambda: reader.execute("select to_regclass('seen')").fetchone() != (None,), what="the table on the standby")


@scenario()
def replay_waits_for_a_snapshot(g: Ground) -> Iterator[Truth]:
    """A session of the standby has left a transaction open that still sees what vacuum has removed on the primary."""
    with in_memory(), Standby(g.server.private) as standby:
        reader = stands_by(g, standby)
        makes_seen(g, reader, "create table seen as select generate_series(1, 1000) as id")
        wait_until(lambda: reader.execute("select count(*) from seen").fetchone() == (1000,), what="its rows")
        reader.execute("begin isolation level repeatable read; select count(*) from seen")
        g.sql("delete from seen where id < 900")
        g.sql("vacuum seen")
        replay_waits(standby, "RecoveryConflictSnapshot")
        pid = reader.info.backend_pid
        says = (f"pid {pid} (idle in transaction, application report) held the oldest snapshot",)
        yield lambda: [Expected("REPLAY-CONFLICT", "replay", g.window.seconds, says, "medium")]


@scenario(beside=("IDLE-IN-XACT",))
def replay_waits_for_a_lock(g: Ground) -> Iterator[Truth]:
    """A session of the standby has a table locked that is altered on the primary."""
    with in_memory(), Standby(g.server.private) as standby:
        reader = stands_by(g, standby)
        makes_seen(g, reader, "create table seen (id int)")
        reader.execute("begin; lock table seen in access share mode")
        g.start(g.connect("migration"), "alter table seen add column more int")
        replay_waits(standby, "relation")
        says = (f"pid {reader.info.backend_pid} (idle in transaction, application report) held the lock",)
        yield lambda: [Expected("REPLAY-CONFLICT", "replay", g.window.seconds, says, "medium")]


def keeps_an_old_snapshot(g: Ground, reader: psycopg.Connection[Any], seen: str) -> None:
    """A report on the standby has had its snapshot for 300 transactions. The query `seen` shows it on the primary."""
    g.target = g.server.private
    for setting in ("hot_standby_feedback = on", "wal_receiver_status_interval = 1"):
        reader.execute(f"alter system set {setting}")  # type: ignore[arg-type]
    reader.execute("select pg_reload_conf()")
    reader.execute("begin isolation level repeatable read; select count(*) from pg_class")
    wait_until(lambda: g.sql(seen)[0][0] is not None, what="the standby's feedback")
    with g.server.connect() as db:
        for _ in range(300):
            db.execute("select txid_current()")


@scenario(thresholds={"horizon_xids": 200})
def old_snapshot_of_a_standby(g: Ground) -> Iterator[Truth]:
    """hot_standby_feedback is on, and a report on the standby has an old snapshot: the primary keeps dead rows for it."""
    with in_memory(), Standby(g.server.private) as standby:
        age = "select max(age(backend_xmin))::float8 from pg_stat_replication"
        keeps_an_old_snapshot(g, stands_by(g, standby), age)
        yield lambda: [Expected("XMIN-HORIZON", "standby feedback of walreceiver", figures={"age_xids": g.sql(age)[0][0]})]


@scenario(thresholds={"horizon_xids": 200})
def old_snapshot_of_a_standby_with_a_slot(g: Ground) -> Iterator[Truth]:
    """The same of a standby that uses a slot: the slot has its horizon, and must not be dropped for that."""
    g.sql("select pg_create_physical_replication_slot('west', true)")
    with in_memory(), Standby(g.server.private) as standby:
        reader = stands_by(g, standby)
        reader.execute("alter system set primary_slot_name = 'west'")
        age = "select age(xmin)::float8 from pg_replication_slots"
        keeps_an_old_snapshot(g, reader, age)
        says = ("xmin, standby feedback of walreceiver",)
        yield lambda: [Expected("XMIN-HORIZON", "replication slot west", None, says, figures={"age_xids": g.sql(age)[0][0]})]


def beside_its_standby(g: Ground, standby: Standby) -> psycopg.Connection[Any]:
    """From now on the primary is captured, and its standby with it. Gives a session on the standby."""
    reader = stands_by(g, standby)
    g.target = g.server.private
    g.options["others"] = [standby.dsn]
    streams(g)
    return reader


def beside_its_primary(g: Ground, standby: Standby) -> psycopg.Connection[Any]:
    """From now on the standby is captured, and its primary with it. Gives a session on the standby."""
    reader = stands_by(g, standby)
    g.options["others"] = [g.server.private.dsn]
    streams(g)
    return reader


def process_of(reader: psycopg.Connection[Any], backend_type: str) -> int:
    query = "select pid from pg_stat_activity where backend_type = %s"
    return int(wait_until(lambda: reader.execute(query, [backend_type]).fetchone(), what=backend_type)[0])


def falls_behind(reader: psycopg.Connection[Any], megabytes: float) -> None:
    """Until so much WAL waits for replay."""
    waiting = "select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::float8"
    wait_until(lambda: reader.execute(waiting).fetchone()[0] >= megabytes * 1048576, what="a backlog")  # type: ignore[index]


def name_of(standby: Standby) -> str:
    return f"standby {standby.socket_dir}:{standby.port}"


def write(g: Ground, megabytes: int) -> None:
    g.sql("select pg_logical_emit_message(true, 'test', repeat('x', 1048576)) from generate_series(1, %s)", [megabytes])


@scenario()
def replay_that_somebody_has_paused(g: Ground) -> Iterator[Truth]:
    """Replay of a standby was paused, then forgotten. The primary goes on writing, and the standby receives it."""
    with in_memory(), Standby(g.server.private) as standby:
        asker = beside_its_standby(g, standby)
        asker.execute("select pg_wal_replay_pause()")
        wait_until(lambda: asker.execute("select pg_is_wal_replay_paused()").fetchone() == (True,), what="the pause")
        write(g, 5)
        waiting = "select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::float8"
        wait_until(lambda: asker.execute(waiting).fetchone()[0] >= 5 << 20, what="the WAL at the standby")  # type: ignore[index]

        def truth() -> list[Expected]:
            figures = {"lag_bytes": asker.execute(waiting).fetchone()[0], "paused_s": g.window.seconds}  # type: ignore[index]
            return [Expected("REPLAY-PAUSED", name_of(standby), None, ("also at the end",), figures=figures)]

        yield truth
        asker.execute("select pg_wal_replay_resume()")


@scenario(window_s=7.0, thresholds={"behind_min_s": 2}, beside=("IDLE-IN-XACT",))
def standby_that_falls_behind(g: Ground) -> Iterator[Truth]:
    """A reader of the standby has a table locked that is altered on the primary, which goes on writing."""
    with in_memory(), Standby(g.server.private) as standby:
        reader = beside_its_standby(g, standby)
        makes_seen(g, reader, "create table seen (id int)")
        reader.execute("begin; lock table seen in access share mode")
        since: list[int] = []

        def alter() -> None:
            since.append(time.monotonic_ns())
            g.sql("alter table seen add column more int")

        def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            db.execute("select pg_logical_emit_message(true, 'test', repeat('x', 200000))")
            stop.wait(0.1)

        g.later(0, alter)
        g.repeat("load", work)

        def truth() -> list[Expected]:
            figures = {"lag_s": (g.window.ts_to - since[0]) / 1e9, "growth_s_per_s": 1.0}
            says = ("are on its disk and not replayed",)
            return [Expected("STANDBY-BEHIND", name_of(standby), None, says, "medium", figures)]

        yield truth
        reader.execute("rollback")


@scenario(settings={**WAL_KEPT, "wal_keep_size": "1GB"}, thresholds={"slot_bytes": 50e6})
def slot_of_a_standby_that_nobody_reads(g: Ground) -> Iterator[Truth]:
    """A slot was made on a standby for a receiver that is gone. The primary has none."""
    with in_memory(), Standby(g.server.private) as standby:
        reader = stands_by(g, standby)
        streams(g)
        reader.execute("select pg_create_physical_replication_slot('member', true)")
        fill_segments(g, 5)
        at = g.sql("select pg_current_wal_flush_lsn()::text")[0][0]
        wait_until(lambda: reader.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", [at]).fetchone() == (True,), what="replay")
        kept = "select pg_wal_lsn_diff(pg_last_wal_replay_lsn(), restart_lsn)::float8 from pg_replication_slots"

        def truth() -> list[Expected]:
            figures = {"retained_bytes": reader.execute(kept).fetchone()[0]}  # type: ignore[index]
            return [Expected("SLOT-KEEPS-WAL", "replication slot member", None, ("on this standby; nobody",), "medium", figures)]

        yield truth


@scenario(window_s=8.0, beside=("IDLE-IN-XACT", "STANDBY-BEHIND"))
def lag_that_the_view_does_not_show(g: Ground) -> Iterator[Truth]:
    """Replay of a standby waits for a reader, and nothing more is written. The standby reports each 10 s only: replay_lag stands still."""
    with in_memory(), Standby(g.server.private) as standby:
        reader = beside_its_standby(g, standby)
        makes_seen(g, reader, "create table seen (id int)")
        reader.execute("begin; lock table seen in access share mode")
        since: list[int] = []
        shown: list[tuple[int, float | None]] = []

        def alter() -> None:
            g.sql("alter table seen add column more int")
            since.append(time.monotonic_ns())

        def look(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            [lag] = db.execute("select extract(epoch from replay_lag)::float8 from pg_stat_replication").fetchone() or (None,)
            shown.append((time.monotonic_ns(), lag))
            stop.wait(0.02)

        g.later(0, alter)
        g.repeat("look", look)

        def truth() -> list[Expected]:
            wrong_s = 0.0
            for (ts, lag), (after, _) in pairwise(shown):
                behind_s = (ts - since[0]) / 1e9
                if ts <= g.window.ts_to and behind_s >= 2 and 2 * (lag or 0) < behind_s:
                    wrong_s += (min(after, g.window.ts_to) - ts) / 1e9
            return [Expected("LAG-BLIND", name_of(standby), None, ("as replay_lag when the standby was",), figures={"wrong_s": wrong_s})]

        yield truth
        reader.execute("rollback")


@scenario(window_s=8.0, thresholds={"saturated_lag_s": 1}, busy=True, beside=("STANDBY-BEHIND",))
def replay_that_searches_a_large_cache(g: Ground) -> Iterator[Truth]:
    """Tables are truncated all the time. The standby has a far larger cache than the primary: replay searches all of it each time."""
    with in_memory(), Standby(g.server.private, shared_buffers="4GB") as standby:
        reader = beside_its_standby(g, standby)
        made: set[int] = set()
        replayed: list[tuple[float, float]] = []

        def read() -> None:
            row = reader.execute("select (pg_last_wal_replay_lsn() - '0/0')::float8").fetchone()
            replayed.append((time.monotonic(), row[0] if row else 0))

        def truncate(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            pid = db.info.backend_pid
            if pid not in made:
                db.execute(f"create table queue{pid} (id int)")  # type: ignore[arg-type]
                made.add(pid)
            db.execute(f"truncate queue{pid}")  # type: ignore[arg-type]

        g.repeat("jobs", truncate, 2)
        falls_behind(reader, 0.2)
        g.later(0.1, read)
        g.later(7.6, read)

        def truth() -> list[Expected]:
            [(first_s, first), (last_s, last)] = replayed
            figures = {"replayed_bytes_per_s": (last - first) / (last_s - first_s)}
            return [Expected("REPLAY-SATURATED", name_of(standby), None, ("Transaction COMMIT",), "medium", figures)]

        yield truth


@scenario(window_s=8.0, busy=True, beside=("STANDBY-BEHIND", "CGROUP-THROTTLED"), never=("REPLAY-SATURATED",))
def replay_at_a_cpu_quota(g: Ground) -> Iterator[Truth]:
    """The startup process of a standby may use a thirtieth of a CPU, and rows are inserted faster than that replays them."""
    with in_memory(), control_group("cpu", "3000", "cpu.cfs_quota_us", "cpu.max") as group, Standby(g.server.private) as standby:
        reader = beside_its_primary(g, standby)
        g.sql("create table entry (id int)")
        pid = process_of(reader, "startup")
        (group / "cgroup.procs").write_text(str(pid))

        def insert(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            db.execute("insert into entry select generate_series(1, 2000)")
            stop.wait(0.005)

        g.repeat("import", insert)
        falls_behind(reader, 10)
        queue = g.run_queue([pid])
        yield lambda: [Expected("REPLAY-CPU-STARVED", "replay", queue(), ("at the end this standby was",), "medium")]


NO_IMAGES = {"full_page_writes": False}


@scenario(
    settings=NO_IMAGES, window_s=8.0,
    beside=("STANDBY-BEHIND", "DURABILITY-OFF", "DEVICE-SATURATED", "REPLAY-CPU-STARVED", "REPLAY-EVICTS"),
)  # fmt: skip
def replay_on_a_disk_that_reads_slowly(g: Ground) -> Iterator[Truth]:
    """The startup process of a standby may read 60 times a second. Rows are updated all over a table of which its cache holds little."""
    g.sql("create table big (id int, pad text) with (fillfactor = 50)")
    g.sql("insert into big select n, repeat('x', 900) from generate_series(1, 24000) n")
    [[pages]] = g.sql("select pg_relation_size('big') / 8192")
    own = {"shared_buffers": "1MB"} | ({"recovery_prefetch": "off"} if g.major >= 15 else {})
    disk, device = g.stack.enter_context(loop_disk())
    with writes_limited(device, 60, "read") as group, Standby(g.server.private, disk / "data", **own) as standby:
        reader = beside_its_primary(g, standby)
        pid = process_of(reader, "startup")
        forget_pages(standby.data_dir / "base")
        (group / "cgroup.procs").write_text(str(pid))
        some = f"select array_agg(format('(%s,1)', (random() * {pages - 1})::int)::tid) from generate_series(1, 20)"

        def update(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            db.execute(f"update big set id = id + 1 where ctid = any (({some})::tid[])")  # type: ignore[arg-type]
            stop.wait(0.05)

        g.repeat("app", update)
        falls_behind(reader, 0.05)
        asleep = g.asleep([pid])
        says = ("s of it for public.big", *(["recovery_prefetch is off"] if g.major >= 15 else []))
        yield lambda: [Expected("REPLAY-IO-BOUND", name_of(standby), asleep(), says, "medium")]


@scenario(window_s=6.0, beside=("STANDBY-BEHIND", "DEVICE-SATURATED", "STORAGE-SLOW", "REPLAY-CPU-STARVED"))
def walreceiver_on_a_slow_disk(g: Ground) -> Iterator[Truth]:
    """The walreceiver of a standby may write 20 times a second, and has to flush each time. The primary writes all the time."""
    disk, device = g.stack.enter_context(loop_disk())
    own = {"fsync": "on", "wal_recycle": "off", "max_wal_size": "64MB", "min_wal_size": "32MB"}
    with writes_limited(device, 20) as group, Standby(g.server.private, disk / "data", **own) as standby:
        reader = beside_its_primary(g, standby)
        pid = process_of(reader, "walreceiver")
        (group / "cgroup.procs").write_text(str(pid))

        def write_some(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            db.execute("select pg_logical_emit_message(true, 'test', repeat('x', 2000))")

        g.repeat("load", write_some)
        streams(g)
        asleep = g.asleep([pid])
        yield lambda: [Expected("WALRECEIVER-FSYNC", "walreceiver", asleep(), ("could not be replayed yet",))]


def pays(g: Ground) -> None:
    """Payments one by one, with pauses: any standby follows that."""
    account = g.table("account", 1000)

    def pay(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute(f"update {account} set v = v + 1 where id = 1 + (random() * 999)::int")  # type: ignore[arg-type]
        stop.wait(0.02)

    g.repeat("pay", pay, 2)


@scenario(clean=True, window_s=6.0)
def clean_primary_with_a_standby(g: Ground) -> Iterator[Truth]:
    """A standby with a slot follows a primary with an ordinary load. The primary is captured, and the standby with it."""
    g.sql("select pg_create_physical_replication_slot('west', true)")
    with in_memory(), Standby(g.server.private, primary_slot_name="west") as standby:
        beside_its_standby(g, standby)
        pays(g)
        yield lambda: []


@scenario(clean=True, window_s=6.0)
def clean_standby_that_follows(g: Ground) -> Iterator[Truth]:
    """The same with the standby captured, whose reports are short, and its primary with it."""
    with in_memory(), Standby(g.server.private, hot_standby_feedback="on") as standby:
        reader = beside_its_primary(g, standby)
        pays(g)
        over = threading.Event()

        def read() -> None:
            while not over.wait(0.1):
                reader.execute("select sum(v) from account")

        wait_until(lambda: reader.execute("select to_regclass('account')").fetchone() != (None,), what="the table on the standby")
        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield lambda: []
        finally:
            over.set()
            thread.join(10)

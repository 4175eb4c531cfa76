"""A hot standby: its replay, what it keeps on the primary, and how far it falls behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
from conftest import in_memory, wait_until
from host_changes import control_group, loop_disk, writes_limited
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

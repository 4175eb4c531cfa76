"""WAL, synchronous standbys, slots, the archive, checkpoints, and settings that risk them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
from standby import receiver

from matrix.ground import Ground, Stopwatch
from matrix.scenario import Expected, Truth, scenario


def inserting(watch: Stopwatch, pause_s: float = 0.0) -> Any:
    """A step that inserts a row; the watch has what each takes."""

    def step(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with watch.on():
            db.execute("insert into entry values (1)")
        stop.wait(pause_s)

    return step


@scenario(settings={"fsync": False})
def fsync_is_off(g: Ground) -> Iterator[Truth]:
    """A server that does not sync what it has committed."""
    yield lambda: [Expected("DURABILITY-OFF", "setting fsync", severity="critical")]


@scenario(settings={"full_page_writes": False})
def full_page_writes_are_off(g: Ground) -> Iterator[Truth]:
    """A server whose pages a crash can tear."""
    yield lambda: [Expected("DURABILITY-OFF", "setting full_page_writes", severity="high")]


@scenario(settings={"synchronous_standby_names": "far"})
def synchronous_standby_is_slow(g: Ground) -> Iterator[Truth]:
    """A synchronous standby confirms 0.1 s late. Beside it is one that nobody waits for."""
    with receiver(g.server, "far", delay_s=0.1), receiver(g.server, "archive", delay_s=0.1):
        g.sql("create table entry (id int)")
        watch = Stopwatch()
        payers = g.repeat("pay", inserting(watch, 0.02), 4)
        says = ("(far)", "100 % for the network round trip, 0 % for its disk")
        yield lambda: [Expected("SYNCREP-BOUND", "synchronous replication", watch.within(g.window), says, "medium")]
        g.stop(payers)


@scenario(settings={"synchronous_standby_names": "slow"})
def synchronous_standby_with_a_slow_disk(g: Ground) -> Iterator[Truth]:
    """A synchronous standby confirms at once that it has written, and 0.1 s later that it has flushed."""
    with receiver(g.server, "slow", delay_s=0.1, writes_at_once=True):
        g.sql("create table entry (id int)")
        watch = Stopwatch()
        payers = g.repeat("pay", inserting(watch, 0.02), 1)
        says = ("(slow)", "slow took 1", "% for its disk")  # a hundred milliseconds and some
        yield lambda: [Expected("SYNCREP-BOUND", "synchronous replication", watch.within(g.window), says, "medium")]
        g.stop(payers)


@scenario(settings={"synchronous_standby_names": "ANY 2 (north, south, \"West 1\")"})
def synchronous_standby_is_gone(g: Ground) -> Iterator[Truth]:
    """Two of three standbys must confirm, and only one is there: commits wait for ever."""
    g.sql("set synchronous_commit = local; create table entry (id int)")
    with receiver(g.server, "south", delay_s=0):
        watch = Stopwatch()
        for number in range(3):
            g.start(g.connect(f"pay{number}"), "insert into entry values (1)", watch)
        g.wait_for("wait_event = 'SyncRep'", 3)
        says = ("missing: north, West 1", "needs 2 standbys, but 1 was connected")
        yield lambda: [Expected("SYNC-STANDBY-GONE", "synchronous standby north, West 1", watch.within(g.window), says, "critical")]


@scenario(settings={"synchronous_standby_names": "FIRST 1 (replica)"}, never=("SYNCREP-BOUND",))
def standby_under_another_name(g: Ground) -> Iterator[Truth]:
    """The only standby is connected, but its name is not in the list."""
    g.sql("set synchronous_commit = local; create table entry (id int)")
    with receiver(g.server, "walreceiver", delay_s=0):
        watch = g.start(g.connect("pay"), "insert into entry values (1)")
        g.wait_for("wait_event = 'SyncRep'")
        says = ("missing: replica", "not in the list: walreceiver")
        yield lambda: [Expected("SYNC-STANDBY-GONE", "synchronous standby replica", watch.within(g.window), says, "critical")]


WRITES = {"shared_buffers": "1MB", "bgwriter_lru_maxpages": 0, "track_io_timing": True}
THRASHING = ("READ-IO", "BUFFERMAPPING", "WAL-CONTENTION", "CKPT-REQUESTED", "TOP-WAIT", "HOT-BLOCK", "ROW-HOTSPOT")


@scenario(majors=(16, 17, 18), settings=WRITES, window_s=8.0, busy=True, beside=THRASHING)
def sessions_write_the_pages(g: Ground) -> Iterator[Truth]:
    """The background writer is off and the cache small: updates must write pages of others. pg_stat_io has their time."""
    t = g.table("big", 200_000)
    g.sql("checkpoint")

    def change(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute(f"update {t} set v = v + 1 where id = any (array(select (random() * 199999)::int from generate_series(1, 20)))")

    g.repeat("app", change, 4)
    timed = g.counter("select sum(write_time) / 1e3 from pg_stat_io where backend_type = 'client backend' and context = 'normal'")
    yield lambda: [Expected("BACKEND-WRITES", "pages written by sessions", timed(), ("bgwriter_lru_maxpages = 0",))]


WAL_KEPT = {"max_wal_size": "32MB", "min_wal_size": "32MB"}


def fill_segments(g: Ground, number: int) -> None:
    g.sql("create table w (a text)")
    for _ in range(number):
        g.sql("insert into w select repeat('x', 1000) from generate_series(1, 14000)")
        g.sql("select pg_switch_wal()")


@scenario(settings=WAL_KEPT, thresholds={"slot_bytes": 50e6}, beside=("CKPT-REQUESTED",))
def slot_that_nobody_reads(g: Ground) -> Iterator[Truth]:
    """A physical replication slot keeps WAL that has been forgotten."""
    g.sql("select pg_create_physical_replication_slot('forgotten', true)")
    fill_segments(g, 5)
    kept = "select pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float8 from pg_replication_slots"
    yield lambda: [Expected("SLOT-KEEPS-WAL", "replication slot forgotten", figures={"retained_bytes": g.sql(kept)[0][0]})]


@scenario(settings={**WAL_KEPT, "max_slot_wal_keep_size": "32MB"}, beside=("CKPT-REQUESTED",), never=("SLOT-KEEPS-WAL",))
def slot_that_has_lost_its_wal(g: Ground) -> Iterator[Truth]:
    """The limit of a slot was reached, and its WAL was removed. A second one lost its WAL while it was captured."""
    g.sql("select pg_create_physical_replication_slot('west', true)")
    fill_segments(g, 5)
    g.sql("checkpoint")
    g.sql("select pg_create_physical_replication_slot('east', true)")

    def lose() -> None:
        for _ in range(5):
            g.sql("insert into w select repeat('x', 1000) from generate_series(1, 14000)")
            g.sql("select pg_switch_wal()")
        g.sql("checkpoint")

    g.later(0.2, lose)

    def truth() -> list[Expected]:
        lost = dict(g.sql("select slot_name, wal_status from pg_replication_slots"))
        assert lost == {"west": "lost", "east": "lost"}
        says = ("Physical slot east lost WAL", "in this capture")
        return [
            Expected("SLOT-LOST", "replication slot east", None, says, "high"),
            Expected("SLOT-LOST", "replication slot west", None, (), "medium"),
        ]

    yield truth


@scenario(settings={"archive_mode": "on", "archive_command": "false", **WAL_KEPT}, thresholds={"archive_waiting": 3})
def archiver_that_fails(g: Ground) -> Iterator[Truth]:
    """archive_command fails each time; finished segments pile up."""
    fill_segments(g, 5)
    waiting = "select count(*)::float8 from pg_ls_archive_statusdir() where name like '%.ready'"
    yield lambda: [Expected("ARCHIVER-FAILS", "WAL archiving", figures={"waiting": g.sql(waiting)[0][0]})]


@scenario()
def checkpoint_by_command(g: Ground) -> Iterator[Truth]:
    """Somebody runs CHECKPOINT."""
    g.later(0.8, lambda: g.sql("checkpoint"))
    yield lambda: [Expected("CKPT-REQUESTED", "checkpoints", severity="info", figures={"requested": 1})]


@scenario(settings=WAL_KEPT, window_s=4.0, busy=True, beside=("RELATION-EXTEND", "WAL-CONTENTION", "TOP-WAIT"))
def checkpoints_by_wal_volume(g: Ground) -> Iterator[Truth]:
    """max_wal_size is so small that the load requests a checkpoint every moment."""
    g.sql("create table w (a text)")

    def write(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("insert into w select repeat('x', 1000) from generate_series(1, 5000)")

    g.repeat("load", write, 2)
    yield lambda: [Expected("CKPT-REQUESTED", "checkpoints", severity="low")]


@scenario(majors=(13, 14, 15, 16, 17, 18), settings={"wal_buffers": "64kB", "max_wal_size": "4GB", "fsync": False}, busy=True,
          beside=("DURABILITY-OFF", "TOP-WAIT", "AAS-SATURATED"))  # fmt: skip
def large_records_fight_for_wal_buffers(g: Ground) -> Iterator[Truth]:
    """Eight sessions write large WAL records that no commit waits for."""
    g.storm("select count(pg_logical_emit_message(false, '', repeat('x', 4000))) from generate_series(1, 500)", 8)
    g.wait_for("lower(wait_event) = 'walinsert'")
    yield lambda: [Expected("WAL-CONTENTION", "write-ahead log")]


@scenario(thresholds={"shared_buffers_gb": 0.125}, settings={"huge_pages": False, "shared_buffers": "128MB"})
def large_buffers_with_small_pages(g: Ground) -> Iterator[Truth]:
    """shared_buffers counts as large here, and huge pages are off."""
    figures = {"shared_buffers_bytes": 128 * 1024 * 1024}
    yield lambda: [Expected("HUGEPAGES-OFF", "huge_pages", None, ("0.1 GB",), figures=figures)]


@scenario(settings={"synchronous_standby_names": "gone"})
def row_held_by_a_commit_that_cannot_end(g: Ground) -> Iterator[Truth]:
    """Two troubles at once: a commit waits for a standby that is gone, and others wait for the row it changed."""
    g.sql("set synchronous_commit = local; create table entry (id int); insert into entry values (1)")
    payer = g.connect("pay")
    commit = g.start(payer, "update entry set id = 2")
    g.wait_for("wait_event = 'SyncRep'")
    watch = Stopwatch()
    for number in range(2):
        g.blocked(f"next{number}", "update entry set id = id + 1", watch)
    yield lambda: [
        Expected("SYNC-STANDBY-GONE", "synchronous standby gone", commit.within(g.window), ("missing: gone",), "critical"),
        Expected("BLOCK-CHAIN", f"pid {payer.info.backend_pid}", watch.within(g.window), ("blocked 2 sessions",), "high"),
    ]

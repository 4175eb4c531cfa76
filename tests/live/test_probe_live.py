"""The shared-memory probe against what the server itself says, on every major.

Oracles: pg_stat_activity, pg_blocking_pids, pg_wait_events, pg_locks, EXPLAIN (BUFFERS), pg_current_wal_insert_lsn.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, no_oracle, wait_until
from leadline import _core
from leadline.engines.postgres.server.private import PrivateServer
from leadline.errors import LeadlineError
from recording import Recording, recording

pytestmark = pytest.mark.live

EDGE = ("btree right-most leaf", "btree right-edge leaf")
# pg_locks builds these from an array that compilers may store without their ends
LOCK_TYPES = ("relation", "page", "tuple", "extend", "object", "frozenid")

ACTIVITY = """
select pid, (extract(epoch from backend_start) * 1000000)::bigint as backend_start, backend_type, coalesce(datid, 0)::bigint as datid,
       coalesce(usesysid, 0)::bigint as usesysid, coalesce(application_name, '') as application_name, state,
       wait_event_type, wait_event, (extract(epoch from xact_start) * 1000000)::bigint as xact_start,
       (extract(epoch from query_start) * 1000000)::bigint as query_start,
       (extract(epoch from state_change) * 1000000)::bigint as state_change,
       backend_xid::text::bigint as backend_xid, backend_xmin::text::bigint as backend_xmin,
       coalesce(host(client_addr), '') as client_addr
from pg_stat_activity where pid <> pg_backend_pid() and backend_type not in ('parallel worker')
"""


@contextmanager
def sessions(pg: Server, count: int, **arguments: Any) -> Iterator[list[psycopg.Connection[Any]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(pg.connect(**arguments)) for _ in range(count)]


@contextmanager
def blocked(pg: Server, connection: psycopg.Connection[Any], sql: str) -> Iterator[threading.Thread]:
    """Runs a statement that waits, in a thread; the block must release it."""
    thread = threading.Thread(target=swallow, args=(connection, sql), daemon=True)
    thread.start()
    yield thread
    connection.cancel_safe(timeout=5)
    thread.join(10)
    assert not thread.is_alive()


def swallow(connection: psycopg.Connection[Any], sql: str) -> None:
    with contextlib.suppress(psycopg.Error):  # cancelled at the end of the test
        connection.execute(sql)


def waiting(pg: Server, pid: int, kind: str) -> Callable[[], bool]:
    return lambda: bool(pg.sql("select 1 from pg_stat_activity where pid = %s and wait_event_type = %s", (pid, kind)))


def pid_of(connection: psycopg.Connection[Any]) -> int:
    return connection.info.backend_pid


@contextmanager
def still_life(pg: Server) -> Iterator[dict[str, int]]:
    """Sessions in all the states and waits that can be held still: role -> pid."""
    pg.sql("drop table if exists life; create table life (id int primary key, v int); insert into life select generate_series(1, 10), 0")
    with sessions(pg, 7) as (idle, in_xact, holder, waiter, sleeper, aborted, advisory):
        idle.execute("select 1")
        idle.execute("set application_name = 'renamed since'")
        in_xact.execute("begin isolation level repeatable read; select count(*) from life")
        holder.execute("begin; update life set v = 1 where id = 1; select pg_advisory_lock(4711)")
        aborted.execute("begin")
        with pytest.raises(psycopg.Error):
            aborted.execute("select 1 / 0")
        with (
            blocked(pg, waiter, "update life set v = 2 where id = 1"),
            blocked(pg, sleeper, "select pg_sleep(60)"),
            blocked(pg, advisory, "select pg_advisory_lock(4711)"),
        ):
            for connection, kind in ((waiter, "Lock"), (sleeper, "Timeout"), (advisory, "Lock")):
                wait_until(waiting(pg, pid_of(connection), kind), what=f"a {kind} wait")
            names = ("idle", "in_xact", "holder", "waiter", "sleeper", "aborted", "advisory")
            connections = (idle, in_xact, holder, waiter, sleeper, aborted, advisory)
            yield {name: pid_of(connection) for name, connection in zip(names, connections)}
            holder.execute("rollback")


def last_samples(record: Recording) -> dict[int, dict[str, Any]]:
    rows = record.capture.rows("select * from session_sample where ts = (select max(ts) from tick)")
    raw = record.capture.rows(
        "select session_id, query_start, state_change from session_tick where ts = (select max(ts) from tick)"
    )
    times = {row["session_id"]: row for row in raw}
    return {row["pid"]: {**row, **times[row["session_id"]]} for row in rows}


@pytest.mark.parametrize("allow_map", [True, False], ids=["mapped", "copied"])
def test_sessions_that_hold_still_are_as_pg_stat_activity_shows_them(pg: Server, tmp_path: Path, allow_map: bool) -> None:
    with still_life(pg) as pids:
        with recording(tmp_path / "c", pg.pid, allow_map=allow_map) as record:
            wait_until(lambda: record.recorder.status()["ticks"] >= 5, what="five passes")
            with pg.connect() as connection:
                cursor = connection.execute(ACTIVITY)
                names = [column.name for column in cursor.description or []]
                theirs = {row[0]: dict(zip(names, row)) for row in cursor.fetchall()}
        ours = last_samples(record)
    compared = 0
    for pid, expected in theirs.items():
        assert pid in ours, f"{expected['backend_type']} {pid} is missing"
        found = ours[pid]
        for name in ("backend_start", "backend_type", "datid", "usesysid", "application_name", "state"):
            assert found[name] == expected[name], (name, pid, expected["backend_type"])
        if pid not in pids.values():
            continue  # a background process may have moved between the two looks
        for name in ("wait_event_type", "wait_event", "xact_start", "backend_xid", "backend_xmin"):
            assert found[name] == expected[name], (name, pid, pids)
        for name in ("query_start", "state_change"):
            assert found[name] == expected[name], (name, pid)
        compared += 1
    assert compared == len(pids) == 7
    assert set(ours) - set(theirs) <= {pid for pid, row in ours.items() if row["application_name"] == "" or row["state"] == "active"}
    assert ours[pids["idle"]]["application_name"] == "renamed since"
    assert record.described["access"]["shared_memory"] == ("map_files" if allow_map else "process_vm_readv")
    assert [check["result"] for check in record.described["layout_checks"]].count("failed") == 0


def test_statements_are_named_by_their_normalised_text(pg: Server, tmp_path: Path) -> None:
    with still_life(pg) as pids, recording(tmp_path / "c", pg.pid) as record:
        wait_until(lambda: record.recorder.status()["ticks"] >= 5, what="five passes")
    texts = {
        row["pid"]: row["query"]
        for row in record.capture.rows("select distinct pid, query from session_sample join statement using (statement_id)")
    }
    assert texts[pids["waiter"]] == "update life set v = $1 where id = $2"
    assert texts[pids["sleeper"]] == "select pg_sleep($1)"
    assert "4711" not in " ".join(texts.values())


def test_every_wait_event_name_is_a_string_of_the_server(pg: Server, tmp_path: Path) -> None:
    with recording(tmp_path / "c", pg.pid) as record:
        wait_until(lambda: record.recorder.status()["ticks"] >= 2, what="a pass")
    binary = Path(f"/proc/{pg.pid}/exe").read_bytes()
    names = [row["wait_event"] for row in record.capture.rows("select wait_event from wait_event")]
    assert len(names) > 200
    assert not [name for name in names if name.encode() + b"\0" not in binary and name not in LOCK_TYPES]


def test_lock_blockers_are_those_of_pg_blocking_pids(pg: Server, tmp_path: Path) -> None:
    """A row lock chain of depth two, a DDL behind a reader with more readers queued behind it, an advisory lock."""
    pg.sql("drop table if exists chain; create table chain (id int primary key, v int); insert into chain select generate_series(1, 10), 0")
    pg.sql("create table if not exists queue (id int)")
    with sessions(pg, 8) as (root, middle, leaf, second_leaf, reader, ddl, queued, sharer):
        root.execute("begin; update chain set v = 1 where id = 1; select pg_advisory_lock_shared(7)")
        sharer.execute("select pg_advisory_lock_shared(7)")
        middle.execute("begin; update chain set v = 1 where id = 2")
        reader.execute("begin; lock table queue in access share mode")
        root_pid, reader_pid, deepest, last = pid_of(root), pid_of(reader), pid_of(second_leaf), pid_of(queued)
        with ExitStack() as stack:
            for connection, sql in (
                (middle, "update chain set v = 2 where id = 1"),
                (leaf, "update chain set v = 3 where id = 2"),
                (second_leaf, "update chain set v = 4 where id = 2"),
                (ddl, "alter table queue add column if not exists w int"),
                (queued, "select count(*) from queue"),
            ):
                stack.enter_context(blocked(pg, connection, sql))
                wait_until(waiting(pg, pid_of(connection), "Lock"), what=f"{sql} waits")
            with recording(tmp_path / "c", pg.pid, 50) as record:
                wait_until(lambda: record.recorder.status()["ticks"] >= 10, what="ten passes")
                waiters = [pid_of(c) for c in (middle, leaf, second_leaf, ddl, queued)]
                theirs = {pid: set(pg.sql("select pg_blocking_pids(%s)", (pid,))[0][0]) for pid in waiters}
                locks = {
                    row[0]: row[1:]
                    for row in pg.sql(
                        "select pid, locktype, mode, coalesce(relation, 0)::bigint, coalesce(page, -1), coalesce(tuple, -1),"
                        " coalesce(transactionid::text, '0')::bigint from pg_locks where not granted"
                    )
                }
            root.execute("rollback")
            reader.execute("rollback")
    rows = record.capture.rows("select * from lock_wait")
    for pid in waiters:
        # looks stand for all passes that saw the wait, but those since the last look, and never for more
        sampled = record.capture.scalar(f"select sum(weight_s) from session_sample where pid = {pid} and wait_class = 'Lock'")
        looks = record.capture.rows(f"select distinct ts, period_ns from lock_wait where pid = {pid}")
        assert sampled - 1.1 <= sum(look["period_ns"] for look in looks) / 1e9 <= sampled + 1e-6
        per_look: dict[int, set[int]] = {}
        for row in rows:
            if row["pid"] == pid:
                per_look.setdefault(row["ts"], set()).add(row["blocker_pid"])
                seen = (row["locktype"], row["mode"], row["relid"], row["page"], row["tuple"], row["transactionid"])
                assert seen == tuple(locks[pid]), pid
        assert per_look, f"{pid} was not seen waiting"
        assert all(blockers == theirs[pid] for blockers in per_look.values()), (pid, theirs[pid], per_look)
    roots = {row["pid"]: row["root_pid"] for row in record.capture.rows("select distinct pid, root_pid from lock_chain")}
    assert roots[deepest] == root_pid
    assert roots[last] == reader_pid
    if pg.major >= 14:
        assert all(row["wait_start"] > 0 for row in rows)


def test_blockers_of_rarer_kinds_are_those_of_pg_blocking_pids(pg: Server, tmp_path: Path) -> None:
    """A prepared transaction, a snapshot, sharers of a row, a savepoint, a new object; and one session that waits for most of them."""
    pg.sql("drop table if exists rare, kept; drop type if exists mood; create table rare (id int primary key, v int)")
    pg.sql("insert into rare select generate_series(1, 9), 0; create table kept (id int)")
    with sessions(pg, 13) as connections, ExitStack() as stack:
        prepared, snapshot, sharer, second_sharer, saver, inserter, creator, *waiters = connections
        prepared.execute("begin; update rare set v = 1 where id = 1; prepare transaction 'orphan'")
        stack.callback(pg.sql, "rollback prepared 'orphan'")
        snapshot.execute("begin isolation level repeatable read; select count(*) from rare")
        sharer.execute("begin; select * from rare where id = 3 for share")
        second_sharer.execute("begin; select * from rare where id = 3 for share")
        saver.execute("begin; savepoint a; update rare set v = 1 where id = 5; savepoint b; update rare set v = 2 where id = 6")
        inserter.execute("begin; insert into rare values (10, 0)")
        creator.execute("begin; create type mood as enum ('fine')")
        statements = (
            "update rare set v = 2 where id = 1",
            "create index concurrently on kept (id)",
            "update rare set v = 3 where id = 3",
            "update rare set v = 4 where id = 6",
            "create type mood as enum ('bad')",
            "drop table rare",
        )
        with ExitStack() as blocking:
            for connection, sql in zip(waiters, statements, strict=True):
                blocking.enter_context(blocked(pg, connection, sql))
                wait_until(waiting(pg, pid_of(connection), "Lock"), what=f"{sql} waits")
            with recording(tmp_path / "c", pg.pid, 50) as record:
                wait_until(lambda: record.recorder.status()["ticks"] >= 10, what="ten passes")
                pids = [pid_of(c) for c in waiters]
                theirs = {pid: set(pg.sql("select pg_blocking_pids(%s)", (pid,))[0][0]) for pid in pids}
            for connection in (snapshot, sharer, second_sharer, saver, inserter, creator):
                connection.execute("rollback")
    assert theirs[pids[0]] == {0}  # as the server says "a prepared transaction"
    assert len(theirs[pids[-1]]) >= 6
    seen: dict[int, dict[int, set[int]]] = {}
    for row in record.capture.rows("select * from lock_wait"):
        seen.setdefault(row["pid"], {}).setdefault(row["ts"], set()).add(row["blocker_pid"])
    assert set(seen) == set(theirs)
    for pid, looks in seen.items():
        assert all(blockers == theirs[pid] for blockers in looks.values()), (pid, theirs[pid], looks)


@contextmanager
def as_urgent_as_the_sampler(*pids: int) -> Iterator[None]:
    """These processes get the real-time priority that the sampler gives itself (0: this thread), if we have the right."""
    changed = []
    with contextlib.suppress(PermissionError):
        for pid in pids:
            before = pid, os.sched_getscheduler(pid), os.sched_getparam(pid)
            os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
            changed.append(before)
    try:
        yield
    finally:
        for pid, policy, parameter in changed:
            os.sched_setscheduler(pid, policy, parameter)


Seen = tuple[str | None, str | None, str | None]  # state, type of the wait event, wait event


def polled(connection: psycopg.Connection[Any], seconds: float) -> Counter[Seen]:
    """How often the sessions of pgbench had each state and wait event in pg_stat_activity."""
    found: Counter[Seen] = Counter()
    query = "select state, wait_event_type, wait_event from pg_stat_activity where application_name = 'pgbench'"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found.update(connection.execute(query).fetchall())
        threading.Event().wait(0.015)
    return found


def test_a_load_looks_as_it_does_to_pg_stat_activity(pg: Server, tmp_path: Path) -> None:
    """Shares of the states and of the wait events of 8 busy sessions, sampled at once from memory and over SQL.

    Bound: the difference of two shares is at most four standard errors of two independent samples, where neighbouring samples
    of a session count as one for each 20 ms. States and events are compared each for itself, since the view reads the fields
    of a row one after the other; and both among the samples that wait, since the one that asks needs a CPU itself and
    mostly gets it when fewer others want one, while the sampler does not wait for its turn. The share of samples that wait for
    nothing may therefore differ by 0.12 more.

    For the same reason, LWLocks are compared with a poll that does not wait for its turn either: they are waited for when their
    holder is off the CPU, and then it is rarely the turn of the one that asks. An ordinary poll sees half of these waits.
    """
    pg.pgbench_init(2)
    with pg.pgbench("-c", 8, "-j", 2, "-T", 60), pg.connect() as connection:
        ready = "select count(*) from pg_stat_activity where application_name = 'pgbench'"
        wait_until(lambda: connection.execute(ready).fetchone() == (8,), what="eight clients")
        with recording(tmp_path / "c", pg.pid, 100) as record:
            ordinary = polled(connection, 4)
            between = time.monotonic_ns()
            with as_urgent_as_the_sampler(0, pid_of(connection)):
                urgent = polled(connection, 4)

    def sampled(during: str) -> Counter[Seen]:
        what = "select state, wait_event_type, wait_event, count(*) as n from session_sample"
        rows = record.capture.rows(f"{what} where application_name = 'pgbench' and {during} group by all", [between])
        return Counter({(row["state"], row["wait_event_type"], row["wait_event"]): row["n"] for row in rows})

    polls = {"ordinary": (sampled("ts < ?"), ordinary), "urgent": (sampled("ts >= ?"), urgent)}
    seconds = (record.status["ts_to"] - record.status["ts_from"]) / 1e9 / len(polls)

    def is_alike(poll: str, key: Callable[[Seen], Any], slack: float = 0.0) -> None:
        """key: what is compared of a sample; None leaves the sample out."""
        ours, theirs = polls[poll]
        assert ours.total() > 2000 and theirs.total() > 500
        effective = min(8 * seconds / 0.02, theirs.total())
        counts: list[Counter[Any]] = [Counter(), Counter()]
        for counted, samples in zip(counts, (ours, theirs)):
            for seen, number in samples.items():
                if (value := key(seen)) is not None:
                    counted[value] += number
        for value in set(counts[0]) | set(counts[1]):
            p, q = (counted[value] / counted.total() for counted in counts)
            mean = (p + q) / 2
            bound = 4 * math.sqrt(mean * (1 - mean) * 2 / effective) + slack
            assert abs(p - q) <= bound, (value, round(p, 3), round(q, 3), round(bound, 3), dict(ours), dict(theirs))

    is_alike("ordinary", lambda seen: seen[0] if seen[1] not in (None, "LWLock") else None)
    is_alike("ordinary", lambda seen: seen[1:] if seen[1] not in (None, "LWLock") else None)
    is_alike("ordinary", lambda seen: seen[1] is None, slack=0.12)
    is_alike("urgent", lambda seen: seen[1:] if seen[1] == "LWLock" else "")
    assert any(seen[1] == "LWLock" for seen in polls["urgent"][0])
    assert record.status["missed"] + record.status["ticks"] >= 795
    events = record.capture.rows("select distinct wait_event_type, wait_event from session_sample where wait_event is not null")
    assert not [e for e in events if e["wait_event"].startswith("unknown")]
    if pg.major >= 17:
        known = set(pg.sql("select type, name from pg_wait_events"))
        assert {(e["wait_event_type"], e["wait_event"]) for e in events} <= known
        table = {(r["wait_event_type"], r["wait_event"]) for r in record.capture.rows("select * from wait_event")}
        assert not {e for e in table - known if e[0] != "Extension"}, "names the server does not know"


def test_the_block_a_load_fights_for_is_named(pg: Server, tmp_path: Path) -> None:
    """Inserts of ever-growing keys: the waits must be on the right edge of the key, the heap or the sequence of this table.

    At least two thirds of those on the index are on leaves (a split takes the page above, too), and a third at its edge: when the
    holder of a leaf was off the CPU for long, the others have split on, and by the time of the look the leaf lies deeper than the
    edge reaches. On a busy host both are common.
    """
    pg.sql("drop table if exists hot; create unlogged table hot (id bigserial primary key, v int)")
    storm = "do $$ begin for i in 1..2000000 loop insert into hot (v) values (i); end loop; end $$"
    with sessions(pg, 8) as storming, ExitStack() as stack:
        storm_pids = {pid_of(connection) for connection in storming}
        for connection in storming:
            connection.execute("set synchronous_commit = off")
            stack.enter_context(blocked(pg, connection, storm))
        with recording(tmp_path / "c", pg.pid, 200) as record:
            found = wait_until(lambda: record.recorder.status()["ticks"] >= 1600, 40, "1,600 passes")
            assert found
    names = ["hot", "hot_pkey", "hot_id_seq"]
    files = dict(pg.sql("select pg_relation_filenode(oid)::bigint, relname::text from pg_class where relname = any(%s)", (names,)))
    rows = record.capture.rows(
        "select relfilenode, fork, page_kind, sum(waiters)::bigint as waiters from buffer_wait where wait_kind = 'content' group by all"
    )
    total = sum(row["waiters"] for row in rows)
    assert total >= 20, rows
    named = [row for row in rows if row["relfilenode"] in files]
    assert sum(row["waiters"] for row in named) >= 0.9 * total, (rows, files)
    by_kind = Counter()
    for row in named:
        by_kind[(files[row["relfilenode"]], row["page_kind"])] += row["waiters"]
    of_index = Counter({kind: n for (name, kind), n in by_kind.items() if name == "hot_pkey"})
    edge = sum(of_index[kind] for kind in EDGE)
    assert edge >= max(1, of_index.total() / 3), by_kind
    assert edge + of_index["btree leaf"] >= 2 / 3 * of_index.total(), by_kind
    assert all(kind == "sequence" for (name, kind) in by_kind if name == "hot_id_seq"), by_kind
    of_heap = {"heap", "heap tail", "new", "visibility map", "free space map"}
    assert {kind for (name, kind) in by_kind if name == "hot"} <= of_heap, by_kind
    listed = record.capture.rows(
        """select b.waiters as counted, count(w.session_id) as listed, b.waiters_exclusive as exclusive,
                  count(*) filter (w.mode = 'exclusive') as listed_exclusive, list(s.pid) as pids
           from buffer_wait b left join buffer_waiter w using (ts, buf_id)
           left join (select distinct session_id, pid from session) s using (session_id)
           where wait_kind = 'content' group by b.ts, b.buf_id, b.waiters, b.waiters_exclusive"""
    )
    assert all((row["counted"], row["exclusive"]) == (row["listed"], row["listed_exclusive"]) for row in listed), listed
    assert {pid for row in listed for pid in row["pids"]} <= storm_pids, "sessions of the storm and no others"
    # holds last microseconds: whether one is caught in eight seconds is chance, but who is caught must be one of the storm
    holders = {row["holder_pid"] for row in record.capture.rows("select distinct holder_pid from buffer_wait where holder_pid <> 0")}
    others = {row["pid"] for row in record.capture.rows("select pid from session where backend_type <> 'client backend'")}
    assert holders <= storm_pids | others, (holders, storm_pids)


def test_counters_of_a_session_are_those_the_server_reports(pg: Server, tmp_path: Path) -> None:
    """A scan of a table of known size, and an update with WAL measured by its positions."""
    pg.sql("drop table if exists counted; create table counted (id int, pad text) with (autovacuum_enabled = off)")
    pg.sql("insert into counted select i, repeat('x', 500) from generate_series(1, 20000) i")
    pg.sql("vacuum counted")
    pages = pg.sql("select relpages from pg_class where relname = 'counted'")[0][0]
    assert pages > 1000
    with pg.connect(prepare_threshold=None) as connection:
        connection.execute("select count(*) from counted")
        with recording(tmp_path / "c", pg.pid, 50, delta_interval_s=0.2) as record:
            wait_until(lambda: record.recorder.status()["ticks"] >= 20, what="a first reading")
            for _ in range(23):
                connection.execute("set max_parallel_workers_per_gather = 0")
                connection.execute("select count(*) from counted")
            before = connection.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
            connection.execute("update counted set id = id + 1 where id <= 5000")
            after = connection.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
            ticks = record.recorder.status()["ticks"]
            wait_until(lambda: record.recorder.status()["ticks"] >= ticks + 30, what="a last reading")
        pid = pid_of(connection)
    used = record.capture.rows(
        "select sum(shared_blks_hit + shared_blks_read) as touched, sum(wal_bytes) as wal, sum(wal_records) as records,"
        f" sum(cpu_run_ns) as run, sum(voluntary_ctxt_switches) as switches, sum(status_changes) as changes"
        f" from session_delta where pid = {pid}"
    )[0]
    assert 23 * pages <= used["touched"] <= 23 * pages + 40_000, (used, pages)
    wal = int(after[0] - before[0])
    assert 0.9 * wal <= used["wal"] <= 1.1 * wal, (used, wal)
    assert used["records"] >= 5000
    assert used["run"] > 1_000_000
    assert used["switches"] > 0
    assert 2 * 48 <= used["changes"] <= 9 * 48, "two to nine reports for each of 48 statements"


def test_parallel_workers_name_their_leader(pg: Server, tmp_path: Path) -> None:
    pg.sql("drop table if exists wide; create table wide as select i, repeat('x', 200) as pad from generate_series(1, 200000) i")
    force = "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; set jit = off"
    long = "select count(*) from wide a, generate_series(1, 2000) g where md5(a.pad || g) = 'x'"
    with pg.connect() as connection:
        connection.execute(force)
        with blocked(pg, connection, long):
            workers = "select count(*) from pg_stat_activity where backend_type = 'parallel worker'"
            wait_until(lambda: pg.sql(workers)[0][0] > 0, 20, "a parallel worker")
            with recording(tmp_path / "c", pg.pid, 50) as record:
                wait_until(lambda: record.recorder.status()["ticks"] >= 10, what="ten passes")
        leader = pid_of(connection)
    found = record.capture.rows("select distinct backend_type, leader_pid from session_sample where backend_type = 'parallel worker'")
    assert found == [{"backend_type": "parallel worker", "leader_pid": leader}]


@pytest.mark.parametrize("allow_map", [True, False], ids=["mapped", "copied"])
def test_a_server_of_many_slots_is_read_by_its_sessions(
    fresh_server: Callable[..., Server], tmp_path: Path, allow_map: bool
) -> None:
    server = fresh_server(16, max_connections=2000)
    with sessions(server, 5) as connections, recording(tmp_path / "c", server.pid, allow_map=allow_map) as record:
        wait_until(lambda: record.recorder.status()["sessions"] >= 9, what="the sessions")
        with server.connect(application_name="late") as late:
            wait_until(lambda: record.recorder.status()["sessions"] >= 10, what="the late session")
            late_pid = pid_of(late)
            ticks = record.recorder.status()["ticks"]
            wait_until(lambda: record.recorder.status()["ticks"] > ticks + 5, what="more passes")
        pids = {pid_of(c) for c in connections}
    seen = {row["pid"]: row["application_name"] for row in record.capture.rows("select distinct pid, application_name from session_sample")}
    assert pids <= set(seen)
    assert seen[late_pid] == "late"


def test_it_works_when_no_connection_is_left(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(16, max_connections=10, superuser_reserved_connections=2, reserved_connections=0, max_wal_senders=0)
    with ExitStack() as stack:
        with pytest.raises(psycopg.OperationalError):
            for _ in range(11):
                stack.enter_context(server.connect())
        with recording(tmp_path / "c", server.pid) as record:
            wait_until(lambda: record.recorder.status()["ticks"] >= 5, what="five passes")
    assert record.described["max_connections"] == 10
    assert record.capture.scalar("select count(distinct pid) from session_sample where backend_type = 'client backend'") == 10


@pytest.mark.parametrize("major", [13, 18])
def test_a_stripped_and_deleted_server_is_read_as_well(major: int, servers: Callable[[int], Server], tmp_path: Path) -> None:
    """Packages of distributions carry no local symbols: MyBEEntry of 13 and the held-lock list are found another way."""
    if shutil.which("strip") is None:
        no_oracle("strip (binutils) is not installed")
    original = Path(servers(major).fetched.bin_dir).parent
    copy = tmp_path / "server"
    shutil.copytree(original / "bin", copy / "bin")
    for folder in ("lib", "share"):
        (copy / folder).symlink_to(original / folder)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    subprocess.run(["strip", "--strip-all", copy / "bin" / "postgres"], check=True)
    with PrivateServer(copy / "bin", settings={"shared_buffers": "16MB"}) as private:
        (copy / "bin" / "postgres").unlink()  # as after an upgrade of the package
        record = Recording(tmp_path / "c", private.pid, 100)
        checks = {check["check"]: check["result"] for check in record.described["layout_checks"]}
        record.recorder.start()
        wait_until(lambda: record.recorder.status()["ticks"] >= 5, what="five passes")
        record.finish()
    assert checks["PgBackendStatus.st_procpid"] == checks["PGPROC.pid"] == "passed"
    assert checks["held_lwlocks list"] == "passed"
    assert record.capture.scalar("select count(distinct pid) from session_sample") >= 5


def test_what_is_no_postmaster_is_refused(pg: Server, tmp_path: Path) -> None:
    with pg.connect() as connection:
        for pid, kind in ((pid_of(connection), "not_found"), (os.getpid(), "not_found"), (2**22 + 1, "not_found")):
            with pytest.raises(LeadlineError) as refused:
                _core.recorder.Recorder(str(tmp_path), pid, 100)
            assert refused.value.kind == kind, (pid, refused.value.as_text())
            assert refused.value.hint
    for rate in (0, -1, float("nan"), 1e9):
        with pytest.raises(LeadlineError) as refused:
            _core.recorder.Recorder(str(tmp_path), pg.pid, rate)
        assert refused.value.kind == "usage"


def test_a_server_that_ends_ends_the_recording_and_keeps_the_evidence(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(17)
    with recording(tmp_path / "c", server.pid) as record:
        wait_until(lambda: record.recorder.status()["ticks"] >= 300, what="three seconds")
        server.private.stop()
        wait_until(lambda: not record.recorder.status()["running"], what="the end of the recording")
    assert record.status["error"]["kind"] == "gone"
    written, lost = record.capture.scalar("select count(*) from tick"), record.status["loss"]["ticks_unverified"]
    assert written >= 150 and lost > 0 and written + lost == record.status["ticks"]


def test_a_crash_of_a_backend_is_a_new_server(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    """The postmaster stays and makes a new segment: what is mapped is then a memory nobody writes."""
    server = fresh_server(16)
    with server.connect() as connection, recording(tmp_path / "c", server.pid) as record:
        wait_until(lambda: record.recorder.status()["ticks"] >= 5, what="five passes")
        os.kill(pid_of(connection), signal.SIGKILL)
        wait_until(lambda: not record.recorder.status()["running"], what="the end of the recording")
    assert record.status["error"]["kind"] == "gone"
    assert "re-created" in record.status["error"]["message"]

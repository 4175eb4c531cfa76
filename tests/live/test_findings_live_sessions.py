"""The findings on sessions, clients and CPU against real servers: a quiet one gives none, planted troubles exactly their rows.

One capture holds four troubles at once, each of another application: a rule must find its own and no other.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import live
import psycopg
import pytest
from conftest import Server, wait_until
from leadline.findings import Evaluation, all_findings
from live import SERVER_RULES, by_rule, clients, read_in_parts

pytestmark = pytest.mark.live

SESSION_RULES = [d.id for d in all_findings() if int(d.file[:4]) < 20]


def captured(server: Server, folder: Path, for_s: float, only: list[str] = SESSION_RULES, **thresholds: float) -> Evaluation:
    return live.captured(server, folder, for_s, only, thresholds, pid=server.pid)


def prepare(server: Server) -> None:
    server.sql("drop table if exists account, wide")
    server.sql("create table account (id int primary key, v int)")
    server.sql("insert into account select n, 0 from generate_series(1, 20000) n")
    server.sql("create table wide as select n, repeat('x', 200) as t from generate_series(1, 50000) n")


# -- the troubles -----------------------------------------------------------------------------------------------------------


def leave_open(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    with db.transaction():
        db.execute("update account set v = v + 1 where id = 1")
        stop.wait(2.0)
    stop.wait(0.02)


def want_row(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    db.execute("update account set v = v + 1 where id = 1")
    stop.wait(0.02)


def fetch_few(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    with db.transaction():
        db.execute("declare few no scroll cursor for select * from account")
        while not stop.is_set() and db.execute("fetch forward 5 from few").fetchall():
            stop.wait(0.004)


def talk_much(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    with db.transaction():
        for n in range(20):
            db.execute("select v from account where id = %s", [100 + n])
            stop.wait(0.004)


def read_slowly(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    read_in_parts(db, stop, lambda: stop.wait(0.1))


def busy(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    db.execute("select count(*) from generate_series(1, 100000)")


# -- quiet ------------------------------------------------------------------------------------------------------------------


def test_a_quiet_server_has_no_findings(pg: Server, tmp_path: Path) -> None:
    def now_and_then(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select 1")
        stop.wait(0.2)

    with clients(pg, ("pool", now_and_then)), pg.connect(application_name="psql", autocommit=False) as person:
        person.execute("select 1")  # idle in a transaction that holds nothing
        result = captured(pg, tmp_path, 3, SESSION_RULES + SERVER_RULES)
    assert result.findings == []
    assert result.not_evaluated == []


def test_a_healthy_pgbench_has_no_client_findings(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    server.pgbench_init(2)
    with server.pgbench("-c", 2, "-T", 60):
        wait_until(lambda: server.sql("select 1 from pg_stat_activity where application_name = 'pgbench' and state = 'active'"))
        only = ["IDLE-IN-XACT", "XMIN-HORIZON", "CONN-STORM", "CONN-NEAR-LIMIT", "SLOW-CLIENT", "FETCH-SIZE"]
        assert captured(server, tmp_path, 4, only).findings == []


# -- planted ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("major", [13, 16, 18])
def test_four_troubles_at_once_each_give_their_row(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    server = servers(major)
    prepare(server)
    only = ["IDLE-IN-XACT", "FETCH-SIZE", "CHATTY-APP", "SLOW-CLIENT", "XMIN-HORIZON", "CONN-STORM", "CONN-NEAR-LIMIT"]
    troubles = [
        ("checkout", leave_open),
        ("pay", want_row),
        ("pay", want_row),
        ("etl", fetch_few),
        ("orm", talk_much),
        ("export", read_slowly),
    ]
    with clients(server, *troubles) as (checkout, _, _, etl, _, export):
        wait_until(lambda: server.sql("select 1 from pg_stat_activity where wait_event_type = 'Lock'"), what="a lock wait")
        wait_until(lambda: server.sql("select 1 from pg_stat_activity where wait_event = 'ClientWrite'"), what="a slow client")
        found = by_rule(captured(server, tmp_path, 6, only))
    assert set(found) == {"IDLE-IN-XACT", "FETCH-SIZE", "CHATTY-APP", "SLOW-CLIENT"}

    idle = found["IDLE-IN-XACT"]
    assert idle.subject == f"pid {checkout.pid}"
    assert "application checkout" in idle.statement and "2 sessions waited" in idle.statement and "update account" in idle.statement
    assert idle.cost_s == pytest.approx(2 * 6, rel=0.25)  # two victims, all of the window but the short moments in between

    fetch = found["FETCH-SIZE"]
    assert fetch.subject == "application etl from local"
    assert f"pid {etl.pid}" in fetch.statement and "fetch forward" in fetch.statement
    assert fetch.cost_s == pytest.approx(6, rel=0.25)
    assert fetch.evidence[0]["round_trips"] < 6 / 0.004

    assert found["CHATTY-APP"].subject == "application orm from local"
    assert "select v from account" in found["CHATTY-APP"].evidence[0]["after_statement"]
    assert found["CHATTY-APP"].cost_s == pytest.approx(6, rel=0.4)

    slow = found["SLOW-CLIENT"]
    assert slow.subject == "application export from local"
    assert f"pid {export.pid}" in slow.statement and "copy (select * from wide)" in slow.statement
    assert slow.cost_s == pytest.approx(6, rel=0.25)
    assert slow.share_of_db_time is not None and 0.1 < slow.share_of_db_time < 0.5


def test_the_round_trips_of_a_fetch_loop_are_counted(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    prepare(server)
    trips: list[int] = []

    def fetch(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            db.execute("declare few no scroll cursor for select * from account, account b")
            while not stop.is_set() and db.execute("fetch forward 5 from few").fetchall():
                trips.append(1)
                stop.wait(0.004)

    with clients(server, ("etl", fetch)):
        wait_until(lambda: len(trips) > 10, what="the first fetches")
        before = len(trips)
        result = captured(server, tmp_path, 5, ["FETCH-SIZE"])
        most = len(trips) - before
    (found,) = result.findings
    # The capture is shorter than the time between the two counts by its own set-up and end, some tenths of a second.
    assert 0.5 * most < found.evidence[0]["round_trips"] <= 1.05 * most


class Portal:
    """One statement run through a portal, some rows per Execute message: what a driver with a fetch size sends."""

    def __init__(self, server: Server, application_name: str, query: str) -> None:
        info = psycopg.conninfo.conninfo_to_dict(server.dsn)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(f"{info['host']}/.s.PGSQL.{info.get('port', 5432)}")
        who = {"user": info["user"], "database": info["dbname"], "application_name": application_name}
        body = struct.pack("!i", 196608) + b"".join(f"{k}\0{v}\0".encode() for k, v in who.items()) + b"\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self._until_ready()
        self._send((b"Q", b"begin\0"))
        self._until_ready()
        self._send((b"P", b"\0" + query.encode() + b"\0" + bytes(2)), (b"B", bytes(8)), (b"S", b""))
        self._until_ready()

    def execute(self, rows: int) -> int:
        """Asks for up to `rows` more rows and gives how many came."""
        self._send((b"E", b"\0" + struct.pack("!i", rows)), (b"S", b""))
        return self._until_ready().count(b"D")

    def _send(self, *messages: tuple[bytes, bytes]) -> None:
        self.socket.sendall(b"".join(kind + struct.pack("!i", len(body) + 4) + body for kind, body in messages))

    def _until_ready(self) -> list[bytes]:
        kinds: list[bytes] = []
        with self.socket.makefile("rb") as stream:
            while kinds[-1:] != [b"Z"]:
                kind = stream.read(1)
                stream.read(struct.unpack("!i", stream.read(4))[0] - 4)
                assert kind not in (b"", b"E"), "the server reports an error"
                kinds.append(kind)
        return kinds


@pytest.mark.parametrize("major", [13, 18])
def test_a_portal_read_in_small_parts_is_told_from_a_loop_of_queries(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    server = servers(major)
    prepare(server)
    portal = Portal(server, "java", "select * from account, account b")

    def read_on(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        assert portal.execute(5) == 5
        stop.wait(0.004)

    def write(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("update account set v = v + 1 where id between 5 and 50")
        stop.wait(0.002)

    with clients(server, ("beside", read_on), ("orm", talk_much), ("writer", write)) as running:
        wait_until(lambda: all(client.done for client in running))
        found = by_rule(captured(server, tmp_path, 6, ["FETCH-SIZE", "CHATTY-APP"]))
    portal.socket.close()
    assert found["FETCH-SIZE"].subject == "application java from local"
    assert "statement: select * from account, account b" in found["FETCH-SIZE"].statement
    assert found["CHATTY-APP"].subject == "application orm from local"


def test_a_portal_alone_on_a_slow_line_is_a_fetch_size(servers: Callable[[int], Server], tmp_path: Path) -> None:
    """Nothing else runs: no snapshot moves on, and with a round trip of 100 ms there are ten parts a second."""
    server = servers(16)
    prepare(server)
    portal = Portal(server, "java", "select * from account, account b")

    def read_on(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        assert portal.execute(5) == 5
        stop.wait(0.1)

    with clients(server, ("beside", read_on)) as running:
        wait_until(lambda: all(client.done for client in running))
        found = by_rule(captured(server, tmp_path, 6, ["FETCH-SIZE", "CHATTY-APP"]))
    portal.socket.close()
    assert set(found) == {"FETCH-SIZE"} and found["FETCH-SIZE"].subject == "application java from local"
    assert found["FETCH-SIZE"].cost_s == pytest.approx(6, rel=0.1)


def test_more_work_than_cpus(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    cpus = len(os.sched_getaffinity(0))
    with clients(server, *[("report", busy)] * (3 * cpus)) as running:
        wait_until(lambda: all(client.done for client in running), what="every client at work")
        found = by_rule(captured(server, tmp_path, 7, ["AAS-SATURATED", "CPU-STARVED", "TOP-WAIT"]))
    assert set(found) == {"AAS-SATURATED", "CPU-STARVED"}
    assert f" on {cpus} CPU" in found["AAS-SATURATED"].statement and "waiting to run" in found["AAS-SATURATED"].statement
    starved = found["CPU-STARVED"]
    assert starved.subject == "CPUs of the host"
    assert starved.evidence[0]["application_name"] == "report"
    # Of 3 n sessions on n CPUs at least two thirds of the time go to waiting.
    assert starved.share_of_db_time is not None and starved.share_of_db_time > 0.5


def test_a_wait_for_a_lock_held_outside_a_transaction(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)

    def want_lock(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select pg_advisory_lock(7)")
        db.execute("select pg_advisory_unlock(7)")

    with server.connect(application_name="holder") as holder:
        holder.execute("select pg_advisory_lock(7)")
        with clients(server, ("worker", want_lock), ("worker", want_lock)):
            wait_until(lambda: len(server.sql("select 1 from pg_stat_activity where wait_event_type = 'Lock'")) == 2)
            found = by_rule(captured(server, tmp_path, 3))
            holder.execute("select pg_advisory_unlock(7)")
    assert set(found) == {"TOP-WAIT"}
    assert found["TOP-WAIT"].subject == "wait Lock:advisory"
    assert "pg_advisory_lock" in found["TOP-WAIT"].statement


def test_the_holder_of_the_oldest_snapshot(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    with server.connect(application_name="report", autocommit=False) as old:
        old.execute("set transaction isolation level repeatable read")
        old.execute("select count(*) from pg_class")
        with server.connect() as other:
            for _ in range(300):
                other.execute("select txid_current()")
        found = by_rule(captured(server, tmp_path, 2, ["XMIN-HORIZON"], horizon_xids=200))
        assert found["XMIN-HORIZON"].subject == f"pid {old.info.backend_pid}"
        assert 300 <= found["XMIN-HORIZON"].evidence[0]["age_xids"] < 400


def test_a_prepared_transaction_that_is_forgotten(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    server.sql("drop table if exists queue")
    server.sql("create table queue as select g as id from generate_series(1, 20000) g")

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("delete from queue where id in (select id from queue limit 50)")
        stop.wait(0.02)

    def dead() -> int:
        [[number]] = server.sql("select n_dead_tup from pg_stat_user_tables where relname = 'queue'")
        return int(number)

    with server.connect(autocommit=False) as db:
        db.execute("select txid_current()")
        db.execute("prepare transaction 'forgotten'")
    try:
        server.sql("delete from queue where id <= 8000")
        wait_until(lambda: dead() >= 8000, what="the server's count of dead rows")
        server.sql("vacuum queue")
        assert dead() >= 8000  # vacuum could not remove them
        with clients(server, ("worker", work)):
            found = by_rule(captured(server, tmp_path / "a", 3, ["XMIN-HORIZON"], horizon_dead_age_s=0.1, horizon_dead_rows=8000))
        by_clock = by_rule(captured(server, tmp_path / "b", 1, ["XMIN-HORIZON"], horizon_age_s=0.1))
        assert by_rule(captured(server, tmp_path / "c", 1, ["XMIN-HORIZON"])) == {}  # too young for the default
    finally:
        server.sql("rollback prepared 'forgotten'")
    database = server.sql("select current_database()")[0][0]
    for finding in (found["XMIN-HORIZON"], by_clock["XMIN-HORIZON"]):
        assert (finding.subject, finding.severity) == (f"prepared transaction {database}/forgotten", "low")
    evidence = found["XMIN-HORIZON"].evidence[0]
    assert evidence["dead_rows"] >= 8000 and evidence["dead_rows_growth"] >= 50
    assert f"{evidence['dead_rows']} dead rows wait in" in found["XMIN-HORIZON"].statement


def test_sessions_near_the_limit(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(16, max_connections=20)
    crowd = [server.connect(application_name="web") for _ in range(15)]
    try:
        found = by_rule(captured(server, tmp_path, 2, ["CONN-NEAR-LIMIT"]))
    finally:
        for connection in crowd:
            connection.close()
    assert found["CONN-NEAR-LIMIT"].subject == "max_connections"
    assert "of the 17 slots for ordinary users (max_connections 20 less 3 reserved)" in found["CONN-NEAR-LIMIT"].statement
    assert "15 of application web" in found["CONN-NEAR-LIMIT"].statement


def test_sessions_that_come_and_go(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)

    def come_and_go(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with server.connect(application_name="php") as short:
            short.execute("select 1")
            stop.wait(0.1)

    with clients(server, *[("starter", come_and_go)] * 4) as running:
        wait_until(lambda: all(client.done for client in running))
        found = by_rule(captured(server, tmp_path, 4, ["CONN-STORM"]))
    assert found["CONN-STORM"].subject == "application php from local"

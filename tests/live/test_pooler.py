"""POOLER-WAIT and POOLER-QUEUE against PgBouncer, by the packets on both of its sides and by its console."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from conftest import fetched_or_skip
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer
from leadline.errors import LeadlineError
from leadline.findings import Evaluation, Finding, evaluate
from leadline.net.packets import connections
from leadline.probes.take import take
from leadline.probes.wire import record
from pooler import pooler

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")]

CLIENTS, REQUESTS, SERVER_MS = 6, 20, 20


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer(fetched_or_skip(17).bin_dir, settings={"fsync": False}, loopback=True) as private:
        yield private


def seen(server: PrivateServer, folder: Path, size: int) -> tuple[Evaluation, dict[int, int]]:
    """What the findings say, and transactions by port."""
    with pooler(server, size) as port:
        dsn = server.loopback_dsn.replace(f"port={server.port}", f"port={port}")
        there = [psycopg.connect(dsn, autocommit=True, prepare_threshold=None) for _ in range(CLIENTS)]

        def work(db: psycopg.Connection[tuple[object, ...]]) -> None:
            for _ in range(REQUESTS):
                db.execute(f"select pg_sleep({SERVER_MS / 1000})")
            db.close()

        threads = [threading.Thread(target=work, args=(db,)) for db in there]
        done = threading.Event()

        def all_work() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            done.set()

        whole = threading.Thread(target=all_work)
        whole.start()
        # For as long as the work takes with one connection, and then some.
        directory, _ = record("lo", [port, server.port], for_s=1.0 + 1.5 * CLIENTS * REQUESTS * SERVER_MS / 1000, out=folder / "c")
        whole.join(60)
        assert done.is_set()
    by_port: dict[int, int] = {}
    for row in connections(directory):
        by_port[row["server_port"]] = by_port.get(row["server_port"], 0) + (row["transactions"] or 0)
    with closing(open_capture(directory)) as capture:
        return evaluate(capture), by_port


def test_one_connection_for_six_clients_makes_them_wait(server: PrivateServer, tmp_path: Path) -> None:
    result, _ = seen(server, tmp_path, 1)
    [found] = [f for f in result.findings if f.id == "POOLER-WAIT"]
    assert "6 connections of clients shared 1 to the server" in found.statement
    # Each request waits for the five of the others, which take 20 ms or longer.
    assert found.cost_s is not None and found.cost_s > 0.8 * CLIENTS * REQUESTS * (CLIENTS - 1) * SERVER_MS / 1000


def test_as_many_connections_as_clients_do_not(server: PrivateServer, tmp_path: Path) -> None:
    result, transactions = seen(server, tmp_path, 2 * CLIENTS)
    assert sorted(transactions.values())[-2] >= CLIENTS * REQUESTS * 0.9  # both sides were seen
    assert "POOLER-WAIT" in result.clean


def queue(server: PrivateServer, folder: Path, size: int, statement: str, hold_s: float = 0) -> list[Finding]:
    """POOLER-QUEUE of six clients that run the statement over and over, and keep the transaction open so long."""
    with pooler(server, size, stats_users="stats") as port, ExitStack() as stack:
        dsn = server.loopback_dsn.replace(f"port={server.port}", f"port={port}")
        done = threading.Event()

        def work() -> None:
            with psycopg.connect(dsn, prepare_threshold=None, autocommit=not hold_s) as db:
                while not done.is_set():
                    db.execute(statement)
                    done.wait(hold_s)
                    db.rollback()

        threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
        stack.callback(lambda: [thread.join(20) for thread in threads])
        stack.callback(done.set)
        for thread in threads:
            thread.start()
        console = f"host=127.0.0.1 port={port} user=stats password=topsecret"
        path = take(dsn=server.dsn, for_s=3, out=folder / f"p{size}.leadline", probes=["sessions"], pooler=console)
    assert not any(b"topsecret" in file.read_bytes() for file in path.rglob("*") if file.is_file())
    with closing(open_capture(path)) as capture:
        state = capture.manifest.probe("pooler")
        assert (state.status, state.why) == ("ok", "")
        return evaluate(capture, ["POOLER-QUEUE"]).findings


def test_the_console_of_the_pooler_tells_the_queue(server: PrivateServer, tmp_path: Path) -> None:
    [finding] = queue(server, tmp_path, 2, "select pg_sleep(0.02)")
    assert finding.subject == "pool postgres/postgres" and finding.confidence == "high"
    assert finding.cost_s == pytest.approx(3 * (CLIENTS - 2), rel=0.15)
    assert (finding.evidence[0]["cause"], finding.evidence[0]["doing"], finding.evidence[0]["pool_size"]) == ("full", "busy", 2)
    [finding] = queue(server, tmp_path, 1, "select 1", hold_s=0.05)
    assert (finding.evidence[0]["cause"], finding.evidence[0]["doing"]) == ("full", "held")
    assert queue(server, tmp_path, CLIENTS, "select pg_sleep(0.02)") == []


def test_what_is_no_console_is_told(server: PrivateServer, tmp_path: Path) -> None:
    with pytest.raises(LeadlineError, match="no console of a pooler") as told:
        take(dsn=server.dsn, for_s=1, out=tmp_path / "c.leadline", pooler=f"{server.loopback_dsn} password=topsecret")
    assert told.value.kind == "usage" and "topsecret" not in str(told.value.as_dict()) and "dbname=pgbouncer" in told.value.hint
    with pytest.raises(LeadlineError) as told, pooler(server, 1) as port:
        take(dsn=server.dsn, for_s=1, out=tmp_path / "c.leadline", pooler=f"host=127.0.0.1 port={port} user=stranger")
    assert told.value.kind in ("connection", "rights", "usage")

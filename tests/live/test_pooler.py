"""POOLER-WAIT against PgBouncer: the packets on both of its sides, with too few connections to the server and with enough."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from conftest import fetched_or_skip, no_oracle, wait_until
from leadline.capture.reader import open_capture
from leadline.findings import Evaluation, evaluate
from leadline.net.packets import connections
from leadline.postgres.server import PrivateServer
from leadline.probes.wire import record

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")]

CLIENTS, REQUESTS, SERVER_MS = 6, 20, 20
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
NOBODY = {"user": "nobody", "group": "nogroup", "extra_groups": []}  # it refuses to run as root


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer(fetched_or_skip(17).bin_dir, settings={"fsync": False}, loopback=True) as private:
        yield private


@contextmanager
def pooler(server: PrivateServer, size: int) -> Iterator[int]:
    """The port of a PgBouncer with so many connections to the server."""
    if PGBOUNCER is None:
        no_oracle("PgBouncer is not installed: apt-get install pgbouncer")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    user = psycopg.conninfo.conninfo_to_dict(server.loopback_dsn)["user"]
    with tempfile.TemporaryDirectory(prefix="leadline-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "users").write_text(f'"{user}" ""\n')
        settings = {
            "listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "trust", "auth_file": folder / "users",
            "pool_mode": "transaction", "default_pool_size": size,
        }  # fmt: skip
        databases = ["[databases]", f"postgres = host=127.0.0.1 port={server.port}"]
        lines = [*databases, "[pgbouncer]", *(f"{k} = {v}" for k, v in settings.items())]
        file = folder / "pgbouncer.ini"
        file.write_text("\n".join(lines) + "\n")
        process = subprocess.Popen([PGBOUNCER, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **NOBODY)
        try:
            wait_until(lambda: listens(port) or process.poll() is not None, what="PgBouncer")
            assert process.poll() is None
            yield port
        finally:
            process.terminate()
            process.wait(10)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


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

"""TIMEOUT-REPEATED and CLIENT-GONE on real servers, side by side with statements that only look like theirs."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, fetched_or_skip, wait_until
from leadline.engines.postgres.server import PrivateServer
from live import captured, clients

pytestmark = pytest.mark.live


def too_long(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    with suppress(psycopg.errors.QueryCanceled):
        db.execute("select count(*) from generate_series(1, 1000000000)")
    stop.wait(0.02)


def same_length(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    db.execute("select pg_sleep(0.4)")


@pytest.mark.parametrize("major", [13, 18])
def test_limits_that_end_work_and_work_that_nobody_ends(tmp_path: Path, major: int) -> None:
    fetched = fetched_or_skip(major)
    with PrivateServer(fetched.bin_dir, settings={"statement_timeout": "600ms"}, loopback=True) as private:
        server = Server(private, fetched)
        web = psycopg.connect(private.loopback_dsn, application_name="web", autocommit=True)
        web.execute("set statement_timeout = 0")
        pid = web.info.backend_pid
        web.pgconn.send_query(b"select pg_sleep(600)")
        wait_until(lambda: server.sql("select 1 from pg_stat_activity where wait_event = 'PgSleep' and pid = %s", [pid]))
        with clients(server, ("report", too_long), ("ticker", same_length)) as running:
            wait_until(lambda: all(client.done > 0 for client in running), what="the load")
            with socket.socket(fileno=os.dup(web.pgconn.socket)) as connection:
                connection.shutdown(socket.SHUT_RDWR)
            found = {f.id: f for f in captured(server, tmp_path, 5.0, ["TIMEOUT-REPEATED", "CLIENT-GONE"]).findings}
        assert server.sql("select state from pg_stat_activity where pid = %s", [pid]) == [("active",)]
        server.sql("select pg_terminate_backend(%s)", [pid])
    gone, ended = found.pop("CLIENT-GONE"), found.pop("TIMEOUT-REPEATED")
    assert found == {}
    assert gone.subject == "clients of application web from 127.0.0.1" and gone.evidence[0]["pid"] == pid
    assert 3 < (gone.cost_s or 0) <= 5.3 and f"pg_cancel_backend({pid})" in gone.action
    assert ("client_connection_check_interval = '10s'" in gone.action) == (major >= 14)
    assert "which is statement_timeout (0.6 s)" in ended.statement and "application report" in ended.statement
    assert 2 < (ended.cost_s or 0) <= 5.3

"""Cancel and terminate from `leadline top`, and the server's own counters in its head, on live servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from conftest import Server, wait_until
from leadline.engines.live import CANCEL, TERMINATE
from leadline.engines.postgres.act import carry_out
from leadline.engines.postgres.target import resolve
from leadline.engines.postgres.vitals import VitalsReader
from leadline.top.model import SessionNow
from psycopg.conninfo import make_conninfo


def seen(pid: int, backend_start: int, backend_type: str = "client backend") -> SessionNow:
    return SessionNow(
        1, pid, "postgres", "postgres", "", "local", backend_type, None, "active", "Timeout", "PgSleep", 1.0, 1.0, None, True, 1.0, (),
        "select pg_sleep(60)", backend_start=backend_start,
    )  # fmt: skip


@contextmanager
def asleep(server: Server) -> Iterator[tuple[SessionNow, list[str]]]:
    """A session in a long statement, and how that ended."""
    ended: list[str] = []
    with server.connect() as connection:
        pid = connection.info.backend_pid
        start = server.sql(f"select (extract(epoch from backend_start) * 1000000)::int8 from pg_stat_activity where pid = {pid}")[0][0]

        def sleep() -> None:
            try:
                connection.execute("select pg_sleep(60)")
            except psycopg.Error as e:
                ended.append(type(e).__name__)

        thread = threading.Thread(target=sleep)
        thread.start()
        wait_until(lambda: server.sql(f"select 1 from pg_stat_activity where pid = {pid} and wait_event = 'PgSleep'"), what="the sleep")
        yield seen(pid, start), ended
        thread.join(30)


@pytest.mark.parametrize("major", [13, 18])
@pytest.mark.parametrize("way", ["sql", "signal"])
def test_a_session_is_cancelled_or_terminated_over_sql_or_by_signal(major: int, way: str, servers: Callable[[int], Server]) -> None:
    server = servers(major)
    target = resolve(pid=server.pid)
    for deed, error in ((CANCEL, "QueryCanceled"), (TERMINATE, "AdminShutdown")):
        with asleep(server) as (session, ended):
            told = carry_out(deed, target, server.dsn if way == "sql" else None, session)
        assert told == f"pid {session.pid} was {deed.done}"
        assert ended == [error]
        wait_until(lambda pid=session.pid: not Path(f"/proc/{pid}").exists(), what="its end")
        assert carry_out(deed, target, server.dsn if way == "sql" else None, session) == f"pid {session.pid} has ended"


def test_who_is_not_meant_or_may_not_be_told_is_left_alone(servers: Callable[[int], Server]) -> None:
    server = servers(18)
    target = resolve(pid=server.pid)
    checkpointer = server.sql("select pid from pg_stat_activity where backend_type = 'checkpointer'")[0][0]
    told = carry_out(TERMINATE, target, server.dsn, seen(checkpointer, 0, "checkpointer"))
    assert "process of the server (checkpointer)" in told
    server.sql("drop role if exists looker")
    server.sql("create role looker login")
    with asleep(server) as (session, ended):
        other = carry_out(CANCEL, target, server.dsn, seen(session.pid, session.backend_start - 5_000_000))
        assert other == f"pid {session.pid} has ended", "the pid belongs to another session now"
        told = carry_out(CANCEL, target, make_conninfo(server.dsn, user="looker"), session)
        assert "permission denied" in told and f"By hand: select pg_cancel_backend({session.pid});" in told
        assert ended == []
        carry_out(CANCEL, target, server.dsn, session)
    server.sql("drop role looker")


def test_the_servers_own_counters(servers: Callable[[int], Server]) -> None:
    server = servers(13)
    reader = VitalsReader(server.dsn)
    reader.start()
    try:
        def read() -> bool:
            server.sql("select 1")
            return reader.now is not None and reader.now.transactions > 0

        wait_until(read, what="two readings")
    finally:
        reader.close()
    assert reader.now is not None
    assert reader.now.max_connections > 0 and reader.now.sessions >= 1

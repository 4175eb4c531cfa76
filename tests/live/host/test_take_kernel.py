"""take --kernel: the threads of a real server beside its sessions, on one clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
from bpf import on_each_tier
from conftest import Server
from leadline.capture.reader import Capture, open_capture
from leadline.probes.options import UNASKED
from leadline.probes.take import take
from leadline.views.sections import all_sections
from leadline.views.threads import report, thread_list

WINDOW_S = 4.0


@contextmanager
def busy(server: Server) -> Iterator[int]:
    """One session that sleeps, and one that writes and commits; gives the pid of the second."""
    done = threading.Event()

    def write() -> None:
        with server.connect() as connection:
            while not done.is_set():
                connection.execute("insert into t select generate_series(1, 100)")

    def nap() -> None:
        with suppress(psycopg.errors.QueryCanceled):
            sleeper.execute(f"select pg_sleep({WINDOW_S + 60})")

    with server.connect() as sleeper, server.connect() as first:
        first.execute("drop table if exists t")
        first.execute("create table t (n int)")
        [pid] = first.execute("select pg_backend_pid()").fetchone()
        writer = threading.Thread(target=write)
        writer.start()
        asleep = threading.Thread(target=nap)
        asleep.start()
        try:
            yield pid
        finally:
            done.set()
            writer.join()
            sleeper.cancel()
            asleep.join()


def check_names_of_what_is_written(capture: Capture, server: Server) -> None:
    """What the session writes has its names: the log, and the file of the table."""
    written = capture.rows("select file, sum(ret)::bigint as bytes from call where is_write_call(call) and ret > 0 group by file")
    assert sum(row["bytes"] for row in written if "/pg_wal/0000" in (row["file"] or "")) > 100_000
    with server.connect() as connection:
        [relation] = connection.execute("select pg_relation_filepath('t')").fetchone()
    assert any((row["file"] or "").endswith(f"/{relation}") for row in written)


@on_each_tier
def test_wait_events_are_opened_in_the_kernel(tier: str, servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(18)
    with busy(server):
        path = take(dsn=server.dsn, for_s=WINDOW_S, out=tmp_path / "k.leadline", probes=[*UNASKED, "kernel"], kernel_tier=tier)
    with closing(open_capture(path)) as capture:
        assert capture.manifest.probe("kernel").status == ("ok" if tier == "bpf" else "partial")
        seen = capture.rows(
            """
            select event, doing, call, wait_function, sum(weight_s) as seconds from session_in_kernel where in_db_time
            group by all order by seconds desc
            """
        )
        # The session in pg_sleep is asleep in the kernel too, in the call that waits for its latch.
        [nap] = [row for row in seen if row["event"] == "PgSleep" and row["doing"] == "asleep"]
        assert nap["call"] in (None, "epoll_wait")  # None: the call goes on when the window ends
        assert nap["wait_function"]
        traced = capture.scalar(
            """
            select any_value(traced_ns) / 1e9 from thread_time
            join thread_name using (thread_id) join session_in_kernel s using (thread_id) where s.event = 'PgSleep'
            """
        )
        assert 0.9 * traced < nap["seconds"] <= WINDOW_S + 1
        if tier == "bpf":
            check_names_of_what_is_written(capture, server)
        threads = {t["comm"] for t in thread_list(capture)}
        assert "postgres" in threads
        for pid in {t["pid"] for t in thread_list(capture)}:
            found = report(capture, pid)
            assert found.closes_ns == 0
            for call in found.calls:
                assert call["sleep_ns"] + call["runq_ns"] + call["cpu_ns"] <= call["elapsed_ns"]
        titles = {section.key for section in all_sections() if section.needs == ("session_in_kernel",)}
        assert titles == {"sessions_in_kernel"}

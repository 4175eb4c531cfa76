"""A server that restarts while a capture is taken: the capture goes on, with a gap that is counted as one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bpf import needs_bpf
from conftest import Server, wait_until
from leadline.capture.reader import Capture, open_capture
from leadline.cli import run
from leadline.engines.postgres.postmaster import data_dir_of
from leadline.engines.postgres.probes.sql_tier import SqlRecorder
from leadline.engines.postgres.target import PostgresServer
from leadline.errors import LeadlineError
from leadline.host.proc import all_pids
from leadline.probes.options import Options
from leadline.probes.take import take_with
from leadline.progress import Silent

SECONDS_OF_WORK = 1.5


class Taking(threading.Thread):
    """`take` in a thread, for its time or until there is `enough`; the capture is then opened."""

    def __init__(self, folder: Path, server: Server, **options: Any) -> None:
        super().__init__()
        self.folder, self.server, self.options = folder, server, options
        self.error: LeadlineError | None = None
        self.enough = threading.Event()

    def run(self) -> None:
        options = Options(dsn=self.server.dsn, out=self.folder, **self.options)
        try:
            take_with(options, Silent(), until=self.enough.is_set)
        except LeadlineError as e:
            self.error = e

    def seen(self, table: str) -> bool:
        return any(self.folder.glob(f"{table}/*.parquet"))


def work(server: Server) -> None:
    """Sleeps for a known time in one statement."""
    with server.connect() as connection:
        connection.execute(f"select pg_sleep({SECONDS_OF_WORK})")


def crash(server: Server) -> None:
    """The postmaster stays, and starts all else again."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        pid = connection.info.backend_pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the backend")


def restart(server: Server) -> None:
    server.private.stop()
    server.private.start()


def restart_elsewhere(server: Server) -> None:
    server.private.stop()
    server.private.port += 1
    server.private.start()


def kill(server: Server) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.private.stop()
    wait_until(lambda: not any_child_left(server), what="the end of all its processes")
    server.private.start()


def any_child_left(server: Server) -> bool:
    data = str(server.private.data_dir)
    return any(data_dir_of(pid) == data for pid in all_pids())


HOW = {"crash": crash, "restart": restart, "restart_elsewhere": restart_elsewhere, "kill": kill}


def is_up(server: Server) -> bool:
    try:
        server.connect().close()
    except psycopg.OperationalError:
        return False
    return True


def has_passed(server: Server, taking: Taking, tier: str) -> bool:
    """At least one pass was made, of which nothing need be on disk yet."""
    if tier == "shm":
        return taking.folder.joinpath("session_run").exists()
    with server.connect() as connection:
        asked = "select count(*) from pg_stat_activity where application_name = 'leadline' and query like %s"
        row = connection.execute(asked, ["%pg_stat_get_activity(null) where pid <>%"]).fetchone()
    return row is not None and row[0] > 0


@contextmanager
def taken(server: Server, folder: Path, for_s: float | None = None, **options: Any) -> Iterator[Taking]:
    """for_s: how long; by default until the end of the block."""
    taking = Taking(folder, server, for_s=for_s or 60.0, **options)
    taking.start()
    yield taking
    if for_s is None:
        taking.enough.set()
    taking.join(90)
    assert not taking.is_alive()


@pytest.mark.parametrize(("major", "tier", "how"), [(13, "shm", "crash"), (18, "shm", "restart_elsewhere"), (18, "shm", "kill"),
                                                    (13, "sql", "restart"), (18, "sql", "crash")])  # fmt: skip
def test_a_capture_goes_on_when_the_server_is_back(
    major: int, tier: str, how: str, fresh_server: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = fresh_server(major)
    folder = tmp_path / "c.leadline"
    with taken(server, folder, tier=tier, rate_hz=10 if tier == "sql" else 100) as taking:
        wait_until(lambda: has_passed(server, taking, tier), what="the first pass")
        work(server)
        HOW[how](server)
        wait_until(lambda: is_up(server), what="the server")
        wait_until(lambda: taking.seen("server_gap"), what="the sampler attached again")
        work(server)
    assert taking.error is None
    capture = open_capture(folder)
    assert capture.manifest.status == "complete"
    cause = {"restart_elsewhere": "restart", "kill": "restart"}.get(how, how)
    gap = capture.rows("select cause, (ts_to - ts_from) / 1e9 as gap_s, pid_before = pid_after as same from server_gap")
    assert [(row["cause"], row["same"]) for row in gap] == [(cause, cause == "crash")]
    period_s = capture.scalar("select any_value(period_ns) / 1e9 from tick")
    # Of the first pass after it: on a slow machine, later ones miss some as well.
    missed_s = capture.scalar("select arg_min(missed * period_ns, ts) / 1e9 from tick where ts > (select ts_from from server_gap)")
    assert missed_s == pytest.approx(gap[0]["gap_s"], abs=max(0.3, 2 * period_s))
    asleep = capture.scalar("select sum(weight_s) from session_sample where wait_event = 'PgSleep' and state = 'active'")
    other_s = capture.scalar("select sum(missed) from tick") * period_s - missed_s  # passes that ran late on a slow machine
    whole_s = 2 * SECONDS_OF_WORK
    assert whole_s - 0.1 - 2 * period_s - other_s <= asleep <= whole_s + 0.1 + 2 * period_s
    assert capture.scalar("select count(*) from (select tick from tick group by tick having count(*) > 1)") == 0
    assert capture.scalar("select count(*) from statement") == capture.scalar("select count(distinct statement_id) from statement")
    twice = "select count(*) from (select session_id from session group by session_id having count(distinct (pid, backend_start)) > 1)"
    assert capture.scalar(twice) == 0
    in_gap = "select count(*) from session_sample s join server_gap g on s.ts > g.ts_from and s.ts < g.ts_to"
    assert capture.scalar(in_gap) == 0
    says_it(capture, cause, gap[0]["gap_s"], capsys)


def says_it(capture: Capture, cause: str, gap_s: float, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"crash": "the server crashed and started again by itself", "restart": "the server was restarted"}[cause]
    for command in ("show", "findings"):
        run([command, str(capture.path)])
        text = " ".join(capsys.readouterr().out.split())
        assert words in text and f"{gap_s:.1f} s were not seen" in text, command
    assert any(words in note for note in capture.manifest.notes)


@pytest.mark.parametrize("tier", ["shm", "sql"])
def test_a_server_that_ends_at_once_and_does_not_come_back_leaves_what_was_seen(
    tier: str, fresh_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = fresh_server(18)
    with taken(server, tmp_path / "c.leadline", for_s=3, tier=tier) as taking:
        wait_until(lambda: has_passed(server, taking, tier), what="the first pass")
        server.private.stop()
    assert taking.error is None
    capture = open_capture(tmp_path / "c.leadline")
    assert capture.manifest.status == "complete"
    assert capture.scalar("select count(*) from tick") > 0
    row = capture.rows("select cause, ts_to, pid_after, reason from server_gap")[0]
    assert (row["cause"], row["ts_to"], row["pid_after"]) == ("gone", None, None) and row["reason"]
    assert any("did not come back" in note for note in capture.manifest.notes)


def test_a_server_of_another_major_in_its_place_is_named_and_not_followed(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    """As after an upgrade: the same socket and port, other data. Wait events and statements of both would be mixed up."""
    old, new = fresh_server(17), fresh_server(18)
    new.private.stop()
    new.private.socket_dir = old.private.socket_dir
    folder = tmp_path / "c.leadline"
    with taken(old, folder, for_s=10, tier="shm") as taking:
        wait_until(lambda: has_passed(old, taking, "shm"), what="the first pass")
        work(old)
        old.private.stop()
        new.private.start()
        work(new)
    assert taking.error is None
    capture = open_capture(folder)
    assert (capture.manifest.status, capture.manifest.target.version_num // 10_000) == ("complete", 17)
    row = capture.rows("select cause, ts_to, pid_after, reason from server_gap")[0]
    said = f"PostgreSQL 18 runs in its place; postmaster {new.pid}, {new.private.data_dir}"
    assert row == {"cause": "replaced", "ts_to": None, "pid_after": None, "reason": said}
    assert any(f"another one took its place ({said})" in note for note in capture.manifest.notes)
    asleep = capture.scalar("select sum(weight_s) from session_sample where wait_event = 'PgSleep' and state = 'active'")
    assert asleep == pytest.approx(SECONDS_OF_WORK, abs=0.2)


def test_over_sql_another_major_ends_the_recording_and_what_is_known_stays(servers: Callable[[int], Server], tmp_path: Path) -> None:
    """Of a server on another host only its address is known."""
    before, after = servers(17), servers(18)
    recorder = SqlRecorder(str(tmp_path), PostgresServer("dsn", dsn=before.dsn), before.dsn, 1)
    try:
        with pytest.raises(LeadlineError, match="another major version") as caught:
            recorder.attach_again(PostgresServer("dsn", dsn=after.dsn), after.dsn)
        assert (caught.value.kind, recorder.describe()["server_version_num"] // 10_000) == ("unsupported", 17)
    finally:
        recorder.stop()


@needs_bpf
def test_a_trace_of_the_kernel_ends_with_the_processes_of_the_server(
    fresh_server: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = fresh_server(18)
    with taken(server, tmp_path / "c.leadline", tier="shm", probes=("sessions", "kernel")) as taking:
        wait_until(lambda: has_passed(server, taking, "shm"), what="the first pass")
        work(server)
        before = server.pid
        restart(server)
        wait_until(lambda: taking.seen("server_gap"), what="the sampler attached again")
        work(server)
    assert taking.error is None
    capture = open_capture(taking.folder)
    kernel = capture.manifest.probe("kernel")
    assert (capture.manifest.status, kernel.status) == ("complete", "partial")
    assert "its new processes are not traced" in kernel.why and "another capture" in kernel.hint
    traced = {row["pid"] for row in capture.rows("select distinct pid from thread_name join thread_time using (thread_id)")}
    assert before in traced and server.pid not in traced
    asleep = capture.scalar("select sum(weight_s) from session_sample where wait_event = 'PgSleep' and state = 'active'")
    assert asleep == pytest.approx(2 * SECONDS_OF_WORK, abs=0.2)
    run(["show", str(taking.folder)])
    assert "its new processes are not traced" in " ".join(capsys.readouterr().out.split())

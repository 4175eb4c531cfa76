"""A server with an archive and a base backup, marks in its log to recover to, and copies of the backup with recovery asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import CopiedServer, Server, copy_folder, wait_until
from leadline.engines.postgres.server.binaries import find_binaries
from leadline.engines.postgres.server.cluster import ClusterServer
from leadline.errors import LeadlineError
from recovery import ChecksummedServer, differences, loaded, recover, started
from recovery_load import SETTINGS, change, prepare, run

ARCHIVED: dict[str, Any] = {**SETTINGS, "archive_mode": True, "archive_command": "test ! -f ../archive/%f && cp %p ../archive/%f"}
# What the server's own pg_basebackup leaves out, or takes as empty folders.
LEFT_OUT = ("postmaster.pid", "postmaster.opts", "backup_label.old", "tablespace_map.old", "standby.signal")
EMPTIED = ("pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans", "pg_tblspc")

MORE = """
begin; insert into p values (9); prepare transaction 'p3';
create table later (id int primary key, v text);
insert into later select g, repeat('l', g % 300) from generate_series(1, 4000) g;
checkpoint;
update later set v = v || 'more' where id % 5 = 0;
update a set n = n + 1 where id % 4 = 0;
"""

ROWS = """
select (select array_agg(name order by name) from marks), (select count(*) from a), (select sum(n) from a), (select count(*) from u),
  (select array_agg(gid) from pg_prepared_xacts), (select count(*) from spaced), (select array_agg(datname order by 1) from pg_database),
  (select timeline_id from pg_control_checkpoint())
"""
RUNNING = {"archive_mode": False, "max_prepared_transactions": 20, "track_commit_timestamp": True, "max_locks_per_transaction": 256}

KILLED = """
import os, signal, sys
from leadline._core import replay
from leadline.files import recovery
def tell(phase, done, total):
    if phase == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
with recovery._owner_of(sys.argv[1]):
    replay.restore(sys.argv[1], archive=sys.argv[2], command=None, target="name", value="second", inclusive=True, timeline="1",
                   memory=1 << 30, threads=2, progress=tell)
"""


@dataclass
class Backup:
    """server: the primary. marks: settings for a recovery target, and its option."""

    server: Server
    archive: Path
    path: Path
    marks: dict[str, tuple[str, str]] = field(default_factory=dict)

    def restored(self, name: str, **settings: str) -> Path:
        """A copy of the backup with its own tablespaces, with recovery asked for."""
        target = self.server.private.base_dir / name
        target.mkdir(mode=0o700)
        copy_folder(self.path, target)
        self.server.private.user.own(target)
        lines = []
        for line in (self.path / "tablespace_map").read_text().splitlines():
            oid, _, path = line.partition(" ")
            space = target.parent / f"{name}-space-{oid}"
            space.mkdir(mode=0o700)
            copy_folder(Path(path), space)
            self.server.private.user.own(space)
            lines.append(f"{oid} {space}\n")
        (target / "tablespace_map").write_text("".join(lines))
        self.ask(target, **settings)
        return target

    def ask(self, data_dir: Path, **settings: str) -> None:
        """recovery.signal and settings."""
        signal = data_dir / "recovery.signal"
        signal.touch(mode=0o600)
        self.server.private.user.own(signal)
        usual = {"restore_command": f"cp {self.archive}/%f %p", "recovery_target_action": "promote", **settings}
        with (data_dir / "postgresql.auto.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in usual.items())

    def removed(self, name: str) -> None:
        for folder in [self.server.private.base_dir / name, *self.server.private.base_dir.glob(f"{name}-space-*")]:
            shutil.rmtree(folder)

    def mark(self, name: str) -> None:
        """A transaction, with a place, a time, a number and a restore point to stop at."""
        with self.server.connect() as connection:
            run(connection, f"insert into marks values ('before {name}')")
            now = "to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'"
            row = connection.execute(f"select pg_current_wal_insert_lsn()::text, {now}").fetchone()
            connection.execute("begin")
            connection.execute(f"insert into marks values ('{name}')".encode())
            xid = connection.execute("select txid_current()::text").fetchone()
            connection.execute("commit")
            connection.execute(f"select pg_create_restore_point('{name}')".encode())
            run(connection, f"insert into marks values ('after {name}')")
        assert row is not None and xid is not None
        for kind, value in (("lsn", row[0]), ("time", row[1]), ("xid", xid[0]), ("name", name)):
            self.marks[f"{name} {kind}"] = (kind, value)


@contextmanager
def backed_up(
    major: int, server_class: type[CopiedServer] = ChecksummedServer, taken_by: Callable[[Backup], None] | None = None, **settings: Any
) -> Iterator[Backup]:
    """A backup, taken while the server changes unless `taken_by` takes it, and all WAL after it, over several checkpoints."""
    with loaded(major, server_class, **{**ARCHIVED, **settings}) as server:
        archive = server.private.base_dir / "archive"
        archive.mkdir(mode=0o700)
        server.private.user.own(archive)
        prepare(server)
        with server.connect() as connection:
            connection.execute("create table marks (name text)")
        backup = Backup(server, archive, server.private.base_dir / "backup")
        (taken_by or take)(backup)
        with server.connect() as connection:
            connection.execute("checkpoint")
            if major >= 15:
                connection.execute("create database copied strategy file_copy")
            else:
                connection.execute("create database copied")
        with server.connect(dbname="copied") as connection:
            connection.execute("create table x as select generate_series(1, 1000) g")
        change(server)
        with server.connect() as connection:
            # The server cannot recover across a switch of timelines in whose segment a transaction was prepared that has not ended.
            connection.execute("rollback prepared 'p2'")
            connection.execute("checkpoint")
        backup.mark("first")
        with server.connect() as connection:
            run(connection, MORE)
        backup.mark("second")
        with server.connect() as connection:
            connection.execute("insert into later select g, 'end' from generate_series(5000, 6000) g")
        archive_all(backup)
        yield backup


def take(backup: Backup, of: Server | None = None) -> None:
    """Copies the files while rows are changed, as a tool does that uses the server's functions for backups. of: a standby to copy."""
    server, primary = of or backup.server, backup.server
    start, stop = ("pg_backup_start", "pg_backup_stop()") if server.major >= 15 else ("pg_start_backup", "pg_stop_backup(false)")
    exclusive = "" if server.major >= 15 else ", false"
    backup.path.mkdir(mode=0o700)
    spaces: list[str] = []
    with server.connect() as connection, primary.connect() as other:
        connection.execute(f"select {start}('test', true{exclusive})".encode())
        other.execute("update a set n = n + 7 where id % 6 = 0")
        other.execute("create table during as select g from generate_series(1, 2000) g")
        subprocess.run(["cp", "-a", f"{server.private.data_dir}/.", str(backup.path)], capture_output=True, timeout=60)
        for link in (server.private.data_dir / "pg_tblspc").iterdir():
            space = primary.private.base_dir / f"{backup.path.name}-space-{link.name}"
            space.mkdir(mode=0o700)
            copy_folder(link.readlink(), space)
            spaces.append(f"{link.name} {space}\n")
        other.execute("update a set n = n + 7 where id % 5 = 0")
        other.execute("drop table during")
        other.execute("select pg_switch_wal()")
        other.execute("checkpoint")
        other.execute("delete from a where id % 29 = 0")
        shutil.copy2(server.private.data_dir / "global/pg_control", backup.path / "global/pg_control")
        row = connection.execute(f"select labelfile from {stop}".encode()).fetchone()
    assert row is not None
    for name in LEFT_OUT:
        (backup.path / name).unlink(missing_ok=True)
    for name in EMPTIED:
        for path in (backup.path / name).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (backup.path / "pg_wal/archive_status").mkdir(mode=0o700)
    for name, text in (("backup_label", row[0]), ("tablespace_map", "".join(spaces))):
        (backup.path / name).write_text(text)
    own(backup)


def take_by_pg_basebackup(backup: Backup) -> None:
    """In its tar format, which leaves the folders of tablespaces to who unpacks it."""
    private = backup.server.private
    packed = private.base_dir / "packed"
    program = find_binaries().bin_dir / "pg_basebackup"
    command = [program, "-d", private.dsn, "-D", packed, "-F", "tar", "-X", "none", "-c", "fast"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    spaces = {path.stem: private.base_dir / f"backup-space-{path.stem}" for path in packed.glob("[0-9]*.tar")}
    for name, folder in {"base": backup.path, **spaces}.items():
        folder.mkdir(mode=0o700)
        subprocess.run(["tar", "-xf", packed / f"{name}.tar", "-C", folder], check=True, timeout=60)
    (backup.path / "tablespace_map").write_text("".join(f"{oid} {folder}\n" for oid, folder in spaces.items()))
    own(backup)


def own(backup: Backup) -> None:
    """Its files become those of the server's user."""
    for path in (backup.path, *backup.path.rglob("*")):
        if not path.is_symlink():
            backup.server.private.user.own(path)


def archive_all(backup: Backup) -> None:
    """Ends the segment and waits until it is archived."""
    with backup.server.connect() as connection:
        row = connection.execute("select pg_walfile_name(pg_current_wal_insert_lsn())").fetchone()
        connection.execute("select pg_switch_wal()")
    assert row is not None
    archived = "select last_archived_wal >= %s from pg_stat_archiver"
    wait_until(lambda: backup.server.sql(archived, [row[0]]) == [(True,)], what="an archived segment")


def restore(data_dir: Path, backup: Backup, *options: object) -> subprocess.CompletedProcess[str]:
    return recover(data_dir, "--archive", backup.archive, *options)


class RefusingServer(ClusterServer):
    said = ""

    def _failed(self, message: str) -> LeadlineError:
        self.said = self.log
        return super()._failed(message)


def refusal_of_server(server: Server, data_dir: Path) -> str:
    """All that the server says, when it does not start."""
    refusing = RefusingServer(server.private.bin_dir, data_dir, settings={"autovacuum": False, "archive_mode": False})
    with pytest.raises(LeadlineError, match="ended while starting"), refusing:
        pass
    return refusing.said


def plan_of(data_dir: Path, backup: Backup, *options: object) -> dict[str, Any]:
    done = restore(data_dir, backup, "--plan", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def promoted(backup: Backup, data_dir: Path) -> dict[str, str]:
    """The server started on it until it has promoted, and stopped: without a session, which would write what it finds out of rows.

    Gives the timeline that it is on, and the histories that it has.
    """
    with started(backup.server, data_dir, **RUNNING) as running:
        assert "archive recovery complete" in running.private.log
        newest = [line for line in running.private.log.splitlines() if "selected new timeline ID" in line]
    histories = {path.name: path.read_text() for path in sorted((data_dir / "pg_wal").glob("*.history"))}
    return {"timeline": newest[-1].rpartition(" ")[2], **histories}


def rows(backup: Backup, data_dir: Path) -> tuple[Any, ...]:
    with started(backup.server, data_dir, **RUNNING) as running:
        found: tuple[Any, ...] = running.sql(ROWS)[0]
        return found


def restored_equally(backup: Backup, settings: dict[str, str], *options: object) -> tuple[Any, ...]:
    """Recovers two copies, one by the server alone and one here first. Fails on any difference; gives what they have."""
    stock, ours = backup.restored("stock", **settings), backup.restored("ours", **settings)
    try:
        expected = promoted(backup, stock)
        done = restore(ours, backup, *options)
        assert done.returncode == 0, done.stderr
        assert "Recovered up to the checkpoint at" in done.stdout
        assert not (ours / "backup_label").exists()
        found = promoted(backup, ours)
        assert found == expected, (found, expected)
        assert differences(stock, ours) == []
        return rows(backup, ours)
    finally:
        backup.removed("stock")
        backup.removed("ours")


def switched(backup: Backup, after: str = "first", mark: str = "third") -> None:
    """The backup restored by leadline to a mark and promoted: one timeline more in the archive, with another mark; the old one is left."""
    path = backup.restored("second", recovery_target_name=after)
    done = restore(path, backup)
    assert "Recovered up to the checkpoint at" in done.stdout, done.stderr
    settings = {**RUNNING, "archive_mode": True, "archive_command": f"test ! -f {backup.archive}/%f && cp %p {backup.archive}/%f"}
    with started(backup.server, path, **settings) as running:
        there = running.sql("select name from marks where name like %s order by 1", [f"%{after}%"])
        assert there == [(f"before {after}",), (after,)]
        other = Backup(running, backup.archive, path)
        with running.connect() as connection:
            run(connection, f"create table until_{mark} as select g from generate_series(1, 3000) g;\ncheckpoint")
            connection.execute("insert into marks values ('other timeline')")
            run(connection, f"delete from until_{mark} where g % 3 = 0;\ncheckpoint")
        other.mark(mark)
        with running.connect() as connection:
            connection.execute(f"insert into until_{mark} select generate_series(1, 500)".encode())
        archive_all(other)
    backup.marks.update(other.marks)
    backup.removed("second")


def kill(data_dir: Path, backup: Backup, phase: str) -> None:
    """Has leadline killed when a phase begins."""
    command = [sys.executable, "-c", KILLED, str(data_dir), str(backup.archive), phase]
    assert subprocess.run(command, timeout=60).returncode == -9

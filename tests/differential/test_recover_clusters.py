"""leadline recover on clusters that are not as usual: other WAL segments, tables of several files, a server just promoted."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Iterable

import psycopg
import pytest
from conftest import LONG, Server, wait_until
from leadline.cli import run
from leadline.engines.postgres.server.binaries import host_dirs
from leadline.engines.postgres.server.cluster import ClusterServer
from recovery import (
    ChecksummedServer,
    LargeSegments,
    SmallSegments,
    copied,
    copy_of,
    crash,
    loaded,
    only_in_long_runs,
    recover,
    recovered_equally,
    started,
)
from recovery_load import SETTINGS, in_flight, mixed_load
from redo_index_load import index_load
from servers import MAJORS

PAGES_OF_A_FILE = 131_072  # of 8 kB in 1 GB


ALL_SEGMENTS = [(major, segments) for major in MAJORS for segments in (SmallSegments, LargeSegments)]


@pytest.mark.parametrize(("major", "segments"), ALL_SEGMENTS if LONG else [(18, SmallSegments), (14, LargeSegments)])
def test_other_sizes_of_wal_segments(major: int, segments: type[ChecksummedServer]) -> None:
    with loaded(major, segments, on_disk=True, **SETTINGS) as server:
        assert server.sql("show wal_segment_size") == [(f"{segments.segment_megabytes}MB",)]
        mixed_load(server)
        in_flight(server)
        recovered_equally(server, crash(server))


def make_long(server: Server, tables: list[str]) -> None:
    """As if each table had had rows on so many pages that its first file is nearly full: the file is made longer by a hole."""
    paths = [server.sql(f"select pg_relation_filepath('{name}')")[0][0] for name in tables]
    server.private.stop()
    for path in paths:
        os.truncate(server.private.data_dir / path, (PAGES_OF_A_FILE - 5) * 8192)
    server.private.start()


@only_in_long_runs
@pytest.mark.timeout(900)
@pytest.mark.parametrize("major", MAJORS)
def test_tables_of_several_files(major: int) -> None:
    """One goes on in a second file, one is cut back out of it, one is cut and goes on again."""
    with loaded(major, ChecksummedServer, on_disk=True, **SETTINGS) as server:
        tables = ["grown", "cut", "again"]
        with server.connect() as connection:
            for name in tables:
                connection.execute(f"create table {name} (id int, v text)".encode())
                connection.execute(f"alter table {name} alter v set storage plain".encode())
                connection.execute(f"insert into {name} select g, repeat('a', 100) from generate_series(1, 500) g".encode())
        make_long(server, tables)
        with server.connect() as connection:
            connection.execute("checkpoint")
            for name in tables:
                connection.execute(f"insert into {name} select g, repeat('b', 3900) from generate_series(1001, 1060) g".encode())
            connection.execute("update grown set v = 'c' where id % 3 = 0")
            for name in ("cut", "again"):
                connection.execute(f"delete from {name} where id > 1000".encode())
                connection.execute(f"vacuum {name}".encode())
            connection.execute("insert into again select g, repeat('d', 3900) from generate_series(2001, 2060) g")
            paths = [server.sql(f"select pg_relation_filepath('{name}')")[0][0] for name in tables]
            connection.execute("create table last (a int)")
        data_dir = crash(server)
        assert (data_dir / f"{paths[0]}.1").stat().st_size > 0
        assert (data_dir / f"{paths[1]}.1").stat().st_size == 0
        _, ours = recovered_equally(server, data_dir)
        with started(server, ours) as running:
            assert running.sql("select count(*), sum(id) from grown") == [(560, 187_080)]
            assert [running.sql(f"select count(*) from {name}") for name in tables[1:]] == [[(500,)], [(560,)]]


@only_in_long_runs
@pytest.mark.timeout(900)
def test_a_table_of_more_than_a_gigabyte() -> None:
    with loaded(18, ChecksummedServer, on_disk=True, **SETTINGS) as server:
        with server.connect() as connection:
            connection.execute("create table wide (v text)")
            connection.execute("alter table wide alter v set storage plain")
            connection.execute("checkpoint")
            with connection.cursor() as cursor, cursor.copy("copy wide from stdin") as copy:
                line = b"w" * 8000 + b"\n"
                for _ in range(1340):
                    copy.write(line * 100)
        data_dir = crash(server)
        _, ours = recovered_equally(server, data_dir)
        with started(server, ours) as running:
            assert running.sql("select count(*), pg_relation_size('wide') > 1073741824 from wide") == [(134_000, True)]


class Standby(ClusterServer):
    def _wait_until_ready(self) -> None:
        wait_until(lambda: "read-only connections" in self.log or "read only connections" in self.log, 60, "a standby")


@pytest.mark.parametrize("major", MAJORS if LONG else [16])
def test_a_server_that_crashed_right_after_it_was_promoted(major: int) -> None:
    """Its log begins on one timeline and ends on the next, and no checkpoint was made there."""
    with loaded(major, ChecksummedServer, on_disk=True, **SETTINGS) as server:
        mixed_load(server)
        data_dir = copy_of(crash(server), "promoted")
        (data_dir / "standby.signal").touch()
        settings = SETTINGS | {"max_connections": 30, "hot_standby": True, "fsync": False}
        with Standby(server.private.bin_dir, data_dir, settings=settings) as private:
            standby = Server(private, server.fetched)
            assert standby.sql("select pg_promote()") == [(True,)]
            with standby.connect() as connection:
                connection.execute("create table after_promotion as select g, repeat('p', 50) from generate_series(1, 3000) g")
                connection.execute("delete from a where id % 2 = 0")
                connection.execute("drop table many")
            crash(standby)
            control = (data_dir / "global/pg_control").read_bytes()
            assert struct.unpack_from("<I", control, 48) == (1,)  # the last checkpoint is of the old timeline
            assert {path.name[:8] for path in (data_dir / "pg_wal").glob("0*")} >= {"00000001", "00000002"}
            _, ours = recovered_equally(standby, data_dir)
            with started(server, ours, max_prepared_transactions=20) as running:
                assert running.sql("select count(*) from after_promotion") == [(3000,)]
                assert running.sql("select timeline_id from pg_control_checkpoint()") == [(2,)]


def mixed(server: Server) -> None:
    mixed_load(server)
    in_flight(server)


ALL_LOADS = [(major, load) for major in MAJORS for load in (mixed, index_load)]


@pytest.mark.parametrize(("major", "load"), ALL_LOADS if LONG else [(15, mixed), (18, index_load)])
def test_indexes_fit_their_tables_and_checksums_fit_their_pages(
    major: int, load: Callable[[Server], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with loaded(major, ChecksummedServer, on_disk=True, **SETTINGS) as server:
        load(server)
        with copied(crash(server), "checked") as ours:
            assert recover(ours).returncode == 0
            with started(server, ours, max_prepared_transactions=20) as running:
                looked = 0
                for (name,) in running.sql("select datname from pg_database where datallowconn"):
                    with running.connect(dbname=name) as connection:
                        looked += checked_indexes(connection, major)
                assert looked > 200
                if major >= 14:
                    checks = ["--heapallindexed", "--parent-check", "--rootdescend"]
                    of_host("pg_amcheck", MAJORS, "--all", f"--maintenance-db={running.private.dsn}", *checks)
            assert run(["page", "check", str(ours)]) == 0, capsys.readouterr().out
            # That of another major reads the same format of pg_control, but looks for its own folder in a tablespace.
            is_readable = major < 17 and not any((ours / "pg_tblspc").iterdir())
            of_host("pg_checksums", range(13, 17) if is_readable else [major], "--check", ours)


def of_host(name: str, majors: Iterable[int], *arguments: object) -> None:
    """Runs a program of the servers of this host. Those that tests fetch have none but the server."""
    for found in host_dirs():
        if found.major in majors and (found.bin_dir / name).is_file():
            done = subprocess.run([found.bin_dir / name, *map(str, arguments)], capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stdout + done.stderr
            print(f"{name} {found.version}: {done.stdout.strip()}")


def checked_indexes(connection: psycopg.Connection[None], major: int) -> int:
    """With amcheck, as pg_amcheck --heapallindexed does it; how many there are."""
    connection.execute("create extension if not exists amcheck")
    indexes = connection.execute(
        """
        select i.indexrelid, i.indrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indexrelid
        where relam = 403 and indisvalid and relkind = 'i' and relpersistence <> 't'
        """
    ).fetchall()
    for index, _ in indexes:
        connection.execute("select bt_index_parent_check(%s::oid::regclass, true)", [index])
    if major >= 14:
        tables = connection.execute("select oid from pg_class where relkind in ('r', 'm', 't') and relpersistence <> 't'").fetchall()
        for (table,) in tables:
            wrong = connection.execute("select * from verify_heapam(%s::oid::regclass)", [table]).fetchall()
            assert wrong == [], wrong
    return len(indexes)

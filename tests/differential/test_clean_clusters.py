"""Clusters that are well: every note that is printed is true, and none is missing. Running, stopped, standbys, pg_upgraded.

Oracle: what was done to the server, and what it answered to SQL before it stopped.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import MAJORS, CopiedServer, Server, no_oracle, running, wait_until
from leadline._core.datadir import condition
from leadline.cli import run
from leadline.engines.postgres.server.binaries import host_dirs
from standby import Standby

Said = Callable[[Path], tuple[int, list[str]]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """said(data directory): rows of the table `kept`, and the notes that each reader of tables printed, by their names. wal stats
    reads the log, which is never behind: it prints none."""

    def ask(root: Path, *line: str) -> tuple[Any, list[str]]:
        code = run([*line, "--json"])
        printed = capsys.readouterr()
        assert code == 0, printed
        found = condition(str(root))
        assert found is not None
        names = {remark["message"]: remark["name"] for remark in found["remarks"]}
        notes = [line.removeprefix("note: ") for line in printed.err.splitlines() if line.startswith(("note: ", "error: ", "warning: "))]
        return json.loads(printed.out), [names.get(note, note) for note in notes]

    def all_of(root: Path) -> tuple[int, list[str]]:
        checked, notes = ask(root, "page", "check", str(root))
        assert checked["problems"] == [] and [note["name"] for note in checked["summary"]["notes"]] == notes
        rows, of_rows = ask(root, "rows", str(root), "kept", "--database", "postgres")
        # Since 16 a server extends a file by several pages, and may never use some of them.
        assert [note for note in of_rows if "pages of only zeros before pages in use: never used" not in note] == notes
        assert ask(root, "alter", "pending", str(root))[1] == notes
        assert ask(root, "wal", "stats", str(root))[1] == []
        return len(rows), notes

    return all_of


@pytest.mark.parametrize("major", MAJORS)
def test_a_primary_and_its_standby_running_and_stopped(major: int, said: Said) -> None:
    with running(major, autovacuum=False) as primary:
        primary.sql("create table kept as select i as n from generate_series(1, 1000) i")
        with Standby(primary.private) as standby:
            primary.sql("insert into kept select generate_series(1, 10)")
            primary.sql("checkpoint")
            assert said(primary.private.data_dir) == (1010, ["running"])
            _wait_for(standby, primary)
            with psycopg.connect(standby.dsn, autocommit=True) as connection:
                connection.execute("checkpoint")
            assert said(standby.data_dir) == (1010, ["running"])
            # Of what it replays without a later checkpoint of its primary, it writes nothing when it stops.
            primary.sql("insert into kept select generate_series(1, 5)")
            _wait_for(standby, primary)
            assert _count(standby) == 1015
            standby.stop()
            assert said(standby.data_dir) == (1010, ["stopped-in-recovery"])
            # A primary that stops makes one, and sends it. Then all is written.
            standby.start()
            _wait_for(standby, primary)
            primary.private.stop()
            _wait_for_shutdown(standby, primary)
            assert _count(standby) == 1015
            standby.stop()
            assert said(standby.data_dir) == (1015, [])
            assert said(primary.private.data_dir) == (1015, [])


def _count(server: Any) -> int:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        return connection.execute("select count(*)::int from kept").fetchall()[0][0]


def _replayed(standby: Standby, at: str) -> bool:
    with psycopg.connect(standby.dsn, autocommit=True) as connection:
        return bool(connection.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", [at]).fetchall()[0][0])


def _wait_for(standby: Standby, primary: Server) -> None:
    """What was committed has been flushed. What was inserted after it, such as a hint bit's page image, may stay in memory for long."""
    [[at]] = primary.sql("select pg_current_wal_flush_lsn()::text")
    wait_until(lambda: _replayed(standby, at), what="replay")


def _wait_for_shutdown(standby: Standby, primary: Server) -> None:
    """The last record of a primary is its checkpoint: replay is beyond where that begins."""
    content = (primary.private.data_dir / "global" / "pg_control").read_bytes()
    checkpoint = int.from_bytes(content[32:40], "little") + 1
    wait_until(lambda: _replayed(standby, f"{checkpoint >> 32:X}/{checkpoint & 0xFFFFFFFF:X}"), what="replay of the last checkpoint")


# -- pg_upgrade --------------------------------------------------------------------------------------------------------


def test_an_upgraded_cluster_before_and_after_its_first_start(said: Said) -> None:
    for host in host_dirs():
        if (host.bin_dir / "pg_upgrade").is_file() and host.major in MAJORS:
            break
    else:
        no_oracle("there is no pg_upgrade here (package postgresql)")
    # Of one major to the same: the fetched servers lack programs that pg_upgrade needs of the old one.
    with CopiedServer(host.bin_dir) as old, CopiedServer(host.bin_dir) as new:
        with psycopg.connect(old.dsn, autocommit=True) as connection:
            connection.execute("create table kept as select i as n from generate_series(1, 1000) i")
        old.stop()
        new.stop()
        programs = str(host.bin_dir)
        line = [f"{programs}/pg_upgrade", "-b", programs, "-B", programs, "-d", old.data_dir, "-D", new.data_dir, "-U", "postgres"]
        done = subprocess.run(line, cwd=new.socket_dir, capture_output=True, text=True, timeout=120, **new.user.popen_arguments())
        assert done.returncode == 0, done.stdout + done.stderr
        assert said(new.data_dir) == (1000, [])
        new.start()
        new.stop()
        assert said(new.data_dir) == (1000, [])
        assert said(old.data_dir) == (1000, [])

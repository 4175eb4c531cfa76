"""leadline page check --level values on clusters that nothing is wrong with: it finds nothing, whatever state they are in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import LONG, running, wait_until
from recovery import ChecksummedServer, PlainServer, SmallSegments, copied, crash, loaded, started
from recovery_load import SETTINGS, in_flight, mixed_load
from redo_index_load import LOADS, index_load
from replicating import streaming
from servers import MAJORS


def checked(data_dir: Path) -> dict[str, Any]:
    """The summary. Problems of pages compared with each other, or of values, fail."""
    words = [sys.executable, "-m", "leadline", "page", "check", str(data_dir), "--level", "values", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert [problem for problem in found["problems"] if problem["kind"] == "relation"] == []
    assert found["summary"]["relations"] > 300
    return dict(found["summary"])


def waiting(summary: dict[str, Any]) -> int:
    """Pages that were not compared because they are newer than the checkpoint. An index and its table may both count one."""
    return sum(number for why, number in summary["not_compared"].items() if "after the last checkpoint" in why)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [ChecksummedServer, PlainServer, SmallSegments] if LONG else [ChecksummedServer])
@pytest.mark.parametrize("major", MAJORS)
def test_a_server_that_runs_is_killed_recovers_and_stops(major: int, kind: type[ChecksummedServer]) -> None:
    with loaded(major, kind, **SETTINGS) as server:
        mixed_load(server)
        server.sql("create database indexes")
        with server.connect(dbname="indexes") as db:
            for load in LOADS.values():
                for statement in load():
                    db.execute(statement.encode())
        before = checked(server.private.data_dir)
        assert waiting(before) > 0, "pages were changed since the last checkpoint, and relations made that no file has yet"
        server.sql("checkpoint")
        after = checked(server.private.data_dir)
        assert after["relations"] > before["relations"]
        in_flight(server)
        checked(server.private.data_dir)
        data_dir = crash(server)
        checked(data_dir)
        with copied(data_dir, "recovered") as ours:
            with started(server, ours, max_prepared_transactions=20) as again:
                checked(ours)
                again.sql("vacuum")
                again.sql("checkpoint")
                checked(ours)
            stopped = checked(ours)
            assert waiting(stopped) == 0 and stopped["relations"] >= after["relations"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("major", MAJORS)
def test_a_standby_that_replays_stops_and_is_promoted(major: int) -> None:
    with running(major, **SETTINGS) as server, streaming(server) as (primary, standby):
        index_load(primary)
        primary.sql("checkpoint")
        index_rows = primary.sql("select sum(pg_relation_size(oid)) from pg_class where relkind = 'i'")[0][0]
        assert index_rows > 5_000_000
        wait_until(lambda: primary.sql("select 1 from pg_stat_replication where replay_lsn = pg_current_wal_lsn()"), what="replay")
        checked(standby.data_dir)
        standby.stop()
        checked(standby.data_dir)
        standby.start()
        with psycopg.connect(standby.dsn, autocommit=True) as db:
            db.execute("select pg_promote()")
            db.execute("checkpoint")
        checked(standby.data_dir)
        standby.stop()
        assert waiting(checked(standby.data_dir)) == 0

"""The probe of replication on real servers: a standby whose replay is paused, one alone, one of another cluster, one without rights."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commands import output_of
from conftest import Server, wait_until
from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.probes.take import take
from replicating import MB, streaming, taken
from standby import Standby

pytestmark = pytest.mark.live


@pytest.fixture(params=[13, 18])
def pair(request: pytest.FixtureRequest, fresh_server: Callable[..., Server]) -> Iterator[tuple[Server, Standby]]:
    with streaming(fresh_server(request.param)) as both:
        yield both


def at_standby(standby: Standby, query: str) -> Any:
    with psycopg.connect(standby.dsn, autocommit=True) as db:
        row = db.execute(query.encode()).fetchone()
        return row and row[0]


def write(server: Server, megabytes: int) -> None:
    server.sql("select pg_logical_emit_message(true, 'test', repeat('x', 1048576)) from generate_series(1, %s)", [megabytes])


def rows(capture: Capture) -> list[dict[str, Any]]:
    return capture.rows("select * from replication_lag where is_standby order by ts")


@pytest.mark.parametrize("alone", [False, True])
def test_replay_that_is_paused(pair: tuple[Server, Standby], tmp_path: Path, alone: bool) -> None:
    server, standby = pair
    wrote: list[int] = []

    def pause() -> None:
        at_standby(standby, "select pg_wal_replay_pause()")
        wait_until(lambda: at_standby(standby, "select pg_is_wal_replay_paused()"), what="the pause")
        wrote.append(time.monotonic_ns())
        write(server, 5)
        received = "select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) >= 5 * 1048576"
        wait_until(lambda: at_standby(standby, received), what="the WAL at the standby")

    where = {"dsn": standby.dsn} if alone else {"dsn": server.dsn, "others": [standby.dsn]}
    path = taken(tmp_path / "x.leadline", pause, **where)
    with closing(open_capture(path)) as capture:
        found = rows(capture)
        first, last = found[0], found[-1]
        assert first["lag_bytes"] == 0 and first["lag_s"] < 0.5
        assert 5 * MB <= last["lag_bytes"] < 6 * MB and last["unreplayed_bytes"] == last["lag_bytes"] and last["is_paused"]
        assert last["lag_s"] == pytest.approx((last["ts"] - wrote[0]) / 1e9, abs=0.5)
        nodes = capture.rows("select node, name, round_trip_ns from replication_node order by node")
        assert len(nodes) == (1 if alone else 2) and all(node["round_trip_ns"] > 0 for node in nodes)
        senders = capture.scalar("select count(*) from walsender where state = 'streaming' and not is_logical")
        assert (senders == 0) == alone
        assert capture.manifest.probe("replication").status == "ok"
        [finding] = evaluate(capture, ["REPLAY-PAUSED"]).findings
    shown = json.loads(output_of("show", path, "--json"))
    [row] = shown["replication"]
    assert row["max_lag_bytes"] == last["lag_bytes"] and 0 < row["paused_part"] <= 1
    assert "Replication" in output_of("show", path)
    assert finding.subject == f"standby {row['standby']}" and "SELECT pg_wal_replay_resume();" in finding.action
    at_standby(standby, "SELECT pg_wal_replay_resume()")
    wait_until(lambda: not at_standby(standby, "SELECT pg_is_wal_replay_paused()"), what="the end of the pause")


@pytest.mark.parametrize("pair", [18], indirect=True)
def test_a_standby_whose_replay_waits_for_a_reader(pair: tuple[Server, Standby], tmp_path: Path) -> None:
    """A reader of the standby has a table locked that is altered on the primary, which goes on writing."""
    server, standby = pair
    server.sql("create table t (id int)")
    wait_until(lambda: at_standby(standby, "select to_regclass('t') is not null"), what="the table at the standby")
    stop = threading.Event()

    def work() -> None:
        server.sql("alter table t add column more int")
        while not stop.wait(0.2):
            write(server, 1)

    with psycopg.connect(standby.dsn) as reader:
        reader.execute("select count(*) from t")
        worker = threading.Thread(target=work)
        path = taken(tmp_path / "x.leadline", worker.start, dsn=server.dsn, others=[standby.dsn], for_s=7.0)
        stop.set()
        worker.join(60)
    with closing(open_capture(path)) as capture:
        [finding] = evaluate(capture, ["STANDBY-BEHIND"], {"behind_min_s": 2}).findings
        last = rows(capture)[-1]
    assert "most of the" in finding.statement and "are on its disk and not replayed" in finding.statement
    assert finding.evidence[0]["lag_bytes"] == last["lag_bytes"] and last["lag_s"] > 4
    assert 0.8 < finding.evidence[0]["growth_s_per_s"] < 1.3


def test_one_frame_of_top_with_a_standby(pair: tuple[Server, Standby]) -> None:
    """Replay is paused; the primary is the target, then the standby is."""
    server, standby = pair
    at_standby(standby, "select pg_wal_replay_pause()")
    wait_until(lambda: at_standby(standby, "select pg_is_wal_replay_paused()"), what="the pause")
    write(server, 5)
    received = "select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) >= 5 * 1048576"
    wait_until(lambda: at_standby(standby, received), what="the WAL at the standby")
    name = at_standby(standby, "select current_setting('port')")
    for target, other in ((server, standby), (standby, server)):
        frame = json.loads(output_of("top", target.dsn, "--with", other.dsn, "--once", "--window", "2s", "--json"))
        asked, heard = frame["standbys"]
        assert asked["is_asked"] and asked["name"].endswith(f":{name}") and asked["held_up"] == "replay is paused"
        assert 5 * MB <= asked["lag_bytes"] == asked["unreplayed_bytes"] < 6 * MB and asked["unsent_bytes"] is None
        assert asked["is_least"] and 1 < asked["behind_s"] < 3
        assert not heard["is_asked"] and heard["lag_bytes"] == asked["lag_bytes"] and heard["unsent_bytes"] == 0
    assert "replay is paused" in output_of("top", server.dsn, "--with", standby.dsn, "--once", "--window", "1s")
    at_standby(standby, "select pg_wal_replay_resume()")


def test_servers_that_are_no_pair(pair: tuple[Server, Standby], fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    other = fresh_server(15)
    with pytest.raises(LeadlineError, match="not of one cluster"):
        take(for_s=1.0, out=tmp_path / "x.leadline", dsn=pair[0].dsn, others=[other.dsn])
    with pytest.raises(LeadlineError, match="--with needs a connection to the target"):
        take(for_s=1.0, out=tmp_path / "y.leadline", pid=pair[0].pid, others=[other.dsn])
    path = take(for_s=0.5, out=tmp_path / "z.leadline", dsn=other.dsn, probes=["sessions"])
    with closing(open_capture(path)) as capture:
        assert "replication" not in capture.manifest.probes


def test_a_user_without_rights_and_a_standby_that_ends(pair: tuple[Server, Standby], tmp_path: Path) -> None:
    """Positions need no rights. What the walsenders do, does; and a standby that has gone leaves what it had said."""
    server, standby = pair
    server.sql("create role plain login")
    wait_until(lambda: at_standby(standby, "select 1 from pg_roles where rolname = 'plain'"), what="the role at the standby")
    dsns = [dsn.replace("user=postgres", "user=plain") for dsn in (server.dsn, standby.dsn)]
    assert all("user=plain" in dsn for dsn in dsns)

    def end() -> None:
        ours = "application_name = 'leadline' and state = 'idle' and query like '%write_lag%'"
        asked = f"select query_start from pg_stat_activity where {ours}"
        seen: set[Any] = set()  # readings: the first may be older than all that is known of the primary

        def is_read_often() -> bool:
            seen.add(at_standby(standby, asked))
            return len(seen - {None, False}) >= 3

        wait_until(is_read_often, what="three readings of the standby")
        standby.stop()

    path = taken(tmp_path / "x.leadline", end, dsn=dsns[0], others=dsns[1:], tier="sql")
    with closing(open_capture(path)) as capture:
        probe = capture.manifest.probe("replication")
        assert probe.status == "partial" and probe.hint == "GRANT pg_read_all_stats TO plain;"
        assert "does not show user plain" in probe.why and "could not be read" in probe.why
        last = rows(capture)[-1]
        assert last["ts"] < capture.scalar("select max(ts) from replication_position where node = 1")
        assert last["lag_bytes"] == 0

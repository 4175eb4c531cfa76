"""take --packets: the connections of a real server beside its sessions, on one clock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from conftest import Server, fetched_or_skip, wait_until
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.engines.postgres.server import PrivateServer
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.probes.take import take
from leadline.views.sections import Context, all_sections

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")]

NAP_S = 0.05


def is_recording(path: Path) -> bool:
    try:
        return read_manifest(path).clock.ts_from is not None
    except LeadlineError:
        return False


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    """Three applications: one of 23 naps on each of two connections, one on a unix socket, one that does nothing."""
    out = tmp_path_factory.mktemp("wire") / "c.leadline"
    with PrivateServer(fetched_or_skip(16).bin_dir, loopback=True) as server:

        def over(dsn: str, name: str) -> psycopg.Connection[tuple[object, ...]]:
            return psycopg.connect(dsn, application_name=name, autocommit=True, gssencmode="disable", sslmode="disable")

        sleepers = [over(server.loopback_dsn, "naps") for _ in range(2)]
        others = [over(server.dsn, "local"), over(server.loopback_dsn, "quiet")]

        def nap(db: psycopg.Connection[tuple[object, ...]]) -> None:
            for _ in range(23):
                with psycopg.ClientCursor(db) as cursor:  # a simple query each time
                    cursor.execute(f"select pg_sleep({NAP_S})")

        def work(db: psycopg.Connection[tuple[object, ...]]) -> None:
            wait_until(lambda: is_recording(out))
            nap(db)

        threads = [threading.Thread(target=work, args=[db]) for db in sleepers]
        for thread in threads:
            thread.start()
        take(pid=server.pid, for_s=4.0, out=out, probes=["sessions", "host", "wire"])
        for thread in threads:
            thread.join()
        for db in (*sleepers, *others):
            db.close()
    with closing(open_capture(out)) as opened:
        yield opened


def test_sessions_are_joined_to_their_connections(capture: Capture) -> None:
    assert capture.manifest.probe("wire").loss["packets_lost"] == 0
    rows = capture.rows(
        """
        select session.application_name, c.round_trips, c.transactions, c.answer_ns / 1e9 as answer_s, d.db_s
        from session_connection join session using (session_id) join wire_connection c using (connection_id)
        left join (select session_id, sum(weight_s) as db_s from db_time group by session_id) d using (session_id)
        """
    )
    # The quiet one sent no packet.
    assert [(row["application_name"], row["round_trips"], row["transactions"]) for row in rows] == 2 * [("naps", 23, 23)]
    for row in rows:
        assert row["answer_s"] > 23 * NAP_S
        assert row["db_s"] == pytest.approx(row["answer_s"], rel=0.05)  # both saw the naps, by different means


def test_the_section_sets_database_time_beside_the_wire(capture: Capture) -> None:
    [section] = [section for section in all_sections() if section.key == "sessions_on_wire"]
    grid = section.data(Context(capture, evaluate(capture)))
    [row] = grid.rows
    assert row[:4] == ("naps", 2, 46, 1.0)


def test_without_tcp_there_are_no_packets(servers: Callable[[int], Server], tmp_path: Path) -> None:
    """An error, or with --keep-going a probe that is off and says why."""
    server = servers(16)
    with pytest.raises(LeadlineError, match="does not listen on TCP"):
        take(pid=server.pid, for_s=0.3, out=tmp_path / "a", probes=["sessions", "wire"])
    assert not (tmp_path / "a").exists()
    out = take(pid=server.pid, for_s=0.3, out=tmp_path / "b", probes=["sessions", "host", "wire"], keep_going=True)
    state = read_manifest(out).probe("wire")
    assert state.status == "off" and "does not listen on TCP" in state.why

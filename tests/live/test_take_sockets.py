"""take: the TCP connections of a server beside its sessions, over a way whose round trip the kernel sees."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from conftest import Server, fetched_or_skip
from far_away import FAR, NEAR, WINDOW, FarAway, Reader
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.engines.postgres.server import PrivateServer
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.probes.take import take
from leadline.views.sections import Context, all_sections

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="a way with a delay needs root and /dev/net/tun"),
]

WAY_S = 0.025


@pytest.fixture
def server() -> Iterator[tuple[PrivateServer, FarAway]]:
    with FarAway(WAY_S) as far, PrivateServer(fetched_or_skip(16).bin_dir, loopback=True, address=NEAR) as made:
        with open(made.data_dir / "pg_hba.conf", "a", encoding="utf-8") as rules:
            rules.write(f"host all all {FAR}/32 trust\n")
        with psycopg.connect(made.dsn) as db:
            db.execute("select pg_reload_conf()")
        yield made, far


def captured(server: PrivateServer, out: Path, readers: list[Reader]) -> Capture:
    for reader in readers:
        reader.start()
    path = take(dsn=server.dsn, for_s=4.0, out=out)
    for reader in readers:
        reader.over.set()
        reader.socket.shutdown(socket.SHUT_RDWR)
        reader.join()
        reader.socket.close()
    return open_capture(path)


def test_a_small_window_over_a_long_way_is_named(server: tuple[PrivateServer, FarAway], tmp_path: Path) -> None:
    far = Reader(FAR, server[0].port, "far", window=WINDOW // 2)  # the kernel doubles it
    slow = Reader("127.0.0.1", server[0].port, "slow", pause_s=0.05)
    with closing(captured(server[0], tmp_path / "c", [far, slow])) as capture:
        evaluation = evaluate(capture)
        [found] = [f for f in evaluation.findings if f.id == "WINDOW-LIMITED"]
        assert found.subject == f"receive window of client {FAR} of {NEAR}:{server[0].port}"
        assert found.cost_s is not None and found.cost_s > 2.5
        by = {row["remote_addr"]: row for row in capture.rows(
            """
            select remote_addr, median(rtt) / 1e6 as rtt_s, sum(rwnd_limited) / sum(busy_time) as limited, sum(bytes_acked) as acked,
                   any_value(application_name) as application, any_value(d.pid) = any_value(session.pid) as same_pid
            from tcp_delta d join session_socket using (cookie) join session using (session_id) group by all
            """
        )}  # fmt: skip
        assert by[FAR]["application"] == "far" and by[FAR]["same_pid"]
        assert 2 * WAY_S <= by[FAR]["rtt_s"] < 4 * WAY_S
        assert by[FAR]["limited"] > 0.1  # the rest of the time its congestion window, grown no further, lets no more go
        # The one that reads slowly closes its window, too; a larger one would not help it.
        assert by["127.0.0.1"]["application"] == "slow" and by["127.0.0.1"]["limited"] > 0.8
        assert 0 < by[FAR]["acked"] <= far.bytes
        [section] = [section for section in all_sections() if section.key == "sockets"]
        grid = section.data(Context(capture, evaluation))
        assert {row[0]: row[1] for row in grid.rows} == {FAR: 1, "127.0.0.1": 1}
        # The rule that lets the far client in, and that it came without TLS from a network that this run does not trust.
        [weak] = [f for f in evaluation.findings if f.id == "HBA-WEAK"]
        assert weak.severity == "high" and weak.evidence[0]["address"] == FAR
        assert "NONTLS-REMOTE" in evaluation.clean
        [plain] = evaluate(capture, only=["NONTLS-REMOTE"], thresholds={"nontls_private": 1}).findings
        assert (plain.subject, plain.samples) == (f"client {FAR}", 1)


def test_data_that_is_lost_on_the_way_is_counted(server: tuple[PrivateServer, FarAway], tmp_path: Path) -> None:
    server[1].drop = range(100, 1_000_000, 30)
    with closing(captured(server[0], tmp_path / "c", [Reader(FAR, server[0].port, "far")])) as capture:
        evaluation = evaluate(capture)
        [found] = [f for f in evaluation.findings if f.id == "RETRANSMITS"]
        assert found.subject == f"client {FAR} of {NEAR}:{server[0].port}"
        assert "WINDOW-LIMITED" in evaluation.clean


def test_without_tcp_there_are_no_sockets(servers: Callable[[int], Server], tmp_path: Path) -> None:
    state = read_manifest(take(pid=servers(16).pid, for_s=0.3, out=tmp_path / "a")).probe("sockets")
    assert state.status == "off" and "does not listen on TCP" in state.why
    with pytest.raises(LeadlineError, match="does not listen on TCP"):
        take(pid=servers(16).pid, for_s=0.3, out=tmp_path / "b", probes=["sockets"])

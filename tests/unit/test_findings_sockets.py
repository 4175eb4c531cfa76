"""Findings over the TCP connections of a server: a window too small for the way, data that is lost, and neither of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.findings import Evaluation, evaluate

SECONDS, MSS = 10, 1448
COUNTERS = ("busy_time", "rwnd_limited", "sndbuf_limited", "total_retrans", "bytes_sent", "bytes_retrans", "bytes_acked", "bytes_received")
AT_REST = {"rtt": 500, "min_rtt": 500, "snd_wnd": 65536, "snd_mss": MSS} | dict.fromkeys(COUNTERS, 0)


class Sockets(SyntheticCapture):
    """A server whose connections are read once a second, for ten seconds."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path, seconds=SECONDS)
        self._cookie = 0

    def connection(self, client: str, from_s: int = 0, to_s: int = SECONDS, *, grown: dict[str, int] | None = None, **now: Any) -> int:
        """grown: what its counters grow by in a second."""
        self._cookie += 1
        for second in range(from_s, to_s + 1):
            # It was there for an hour, unless it began within the window.
            age = second - from_s + (3600 if from_s == 0 else 1)
            counters = {name: age * per_s for name, per_s in ({"bytes_acked": 1000, "bytes_sent": 1000} | (grown or {})).items()}
            self.add(
                "tcp_sample", ts=self.ts(second), cookie=self._cookie, local_addr="10.0.0.1", local_port=5432,
                remote_addr=client, remote_port=50_000 + self._cookie, state="ESTABLISHED",
                **(AT_REST | {"pid": 4000 + self._cookie} | counters | now),
            )  # fmt: skip
        return self._cookie



@pytest.fixture
def made(tmp_path: Path) -> Sockets:
    return Sockets(tmp_path)


def evaluated(made: Sockets, *only: str) -> Evaluation:
    with made.open() as capture:
        return evaluate(capture, only=only or ["WINDOW-LIMITED", "RETRANSMITS"])


def flow(rtt_ms: float, per_s: int, busy: float = 1, window: float = 0, buffer: float = 0) -> dict[str, Any]:
    """Columns of a connection that sends all the time."""
    counters = {"busy_time": busy, "rwnd_limited": window, "sndbuf_limited": buffer}
    grown = {name: int(share * 1e6) for name, share in counters.items()} | {"bytes_acked": per_s, "bytes_sent": per_s}
    return {"rtt": int(rtt_ms * 1000), "min_rtt": int(rtt_ms * 1000), "grown": grown}


def test_what_a_connection_did_between_two_readings(made: Sockets) -> None:
    made.connection("10.0.0.7", grown={"bytes_received": 23})
    new = made.connection("10.0.0.8", 4, 6, grown={"bytes_received": 42})
    with made.open() as capture:
        rows = capture.rows("select cookie, ts, dt_ns, bytes_received, pid from tcp_delta order by cookie, ts")
    old = [row for row in rows if row["cookie"] != new]
    assert len(old) == SECONDS
    assert {(row["dt_ns"], row["bytes_received"]) for row in old} == {(10**9, 23)}
    began = [(row["ts"], row["dt_ns"], row["bytes_received"], row["pid"]) for row in rows if row["cookie"] == new]
    assert began == [(made.ts(4), None, 42, 4002), (made.ts(5), 10**9, 42, 4002), (made.ts(6), 10**9, 42, 4002)]


def test_sessions_are_joined_by_process_and_port(made: Sockets) -> None:
    first = made.connection("10.0.0.7")
    second = made.connection("10.0.0.7", pid=None)
    made.connection("10.0.0.7")
    sessions = [
        made.add_session(4001, client_addr="10.0.0.7", client_port=50_001),
        made.add_session(4002, client_addr="10.0.0.7", client_port=50_002),
        made.add_session(5003, client_addr="10.0.0.7", client_port=50_003),  # another process than the one of this connection
        made.add_session(4009, client_port=-1),
    ]
    with made.open() as capture:
        rows = capture.rows("select session_id, cookie from session_socket order by session_id")
    assert [(row["session_id"], row["cookie"]) for row in rows] == [(sessions[0], first), (sessions[1], second)]


def test_a_window_too_small_for_the_way(made: Sockets) -> None:
    made.connection("10.0.0.7", **flow(50, 1_300_000, window=0.9))
    made.connection("10.0.0.7", **flow(50, 1_300_000, window=0.9))
    [found] = evaluated(made).findings
    assert (found.id, found.subject) == ("WINDOW-LIMITED", "receive window of client 10.0.0.7 of 10.0.0.1:5432")
    assert found.cost_s == pytest.approx(20)
    assert "no more than 1.2 MB/s went: the receive window is 64 kB, and a round trip takes 50.0 ms" in found.statement
    assert {row["cookie"] for row in found.evidence} == {1, 2}


def test_a_send_buffer_too_small_for_the_way(made: Sockets) -> None:
    made.connection("10.0.0.7", **flow(50, 300_000, buffer=0.8), send_queue=16_384)
    [found] = evaluated(made).findings
    assert found.subject == "send buffer of the server for client 10.0.0.7 of 10.0.0.1:5432"
    assert found.cost_s == pytest.approx(8)
    assert "at most 16 kB" in found.statement


@pytest.mark.parametrize(
    ("why", "columns"),
    [
        ("the client is slow to read", flow(50, 300_000, window=0.9)),
        ("data queues on the way", flow(50, 1_000_000, window=0.9) | {"min_rtt": 2000}),
        ("the window is closed whenever one looks", flow(0.05, 300_000, window=0.9) | {"snd_wnd": 0}),
        ("a short time at the start", flow(50, 1_300_000, busy=0.05, window=0.05)),
        ("seldom", flow(0.05, 100_000_000, buffer=0.1)),
    ],
)
def test_no_window_is_too_small(made: Sockets, why: str, columns: dict[str, Any]) -> None:
    made.connection("10.0.0.7", **columns)
    assert evaluated(made).clean == ["WINDOW-LIMITED", "RETRANSMITS"], why


def test_data_sent_again(made: Sockets) -> None:
    made.connection("10.0.0.7", grown={"bytes_sent": 100 * MSS, "bytes_retrans": 3 * MSS, "total_retrans": 3})
    made.connection("10.0.0.7")
    made.connection("10.0.0.8", grown={"bytes_sent": 1000 * MSS, "bytes_retrans": 3 * MSS, "total_retrans": 3})
    made.connection("10.0.0.9", grown={"bytes_sent": 10 * MSS, "bytes_retrans": MSS, "total_retrans": 1})  # ten are too few
    [found] = evaluated(made).findings
    assert (found.id, found.severity, found.subject) == ("RETRANSMITS", "medium", "client 10.0.0.7 of 10.0.0.1:5432")
    assert found.statement.startswith("30 segments, 3.0 % of the bytes sent, were retransmitted on 2 connections")
    assert [row["segments"] for row in found.evidence] == [30]

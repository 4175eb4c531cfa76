"""Findings over packets: each planted in a file of packets gives its row, an ordinary load none."""

from __future__ import annotations

import json
import struct
from contextlib import closing
from pathlib import Path

import pytest
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.findings import Evaluation, Finding, evaluate
from leadline.net.packets import read_into
from packets_made import ACK, IN_TRANSACTION, MS, OK, READY, Packets, message, startup


@pytest.fixture
def made(tmp_path: Path) -> Packets:
    return Packets(tmp_path / "made.pcap")


def evaluated(made: Packets) -> Evaluation:
    directory, _ = read_into(made.write(), [], out=made.path.with_suffix(".leadline"))
    with closing(open_capture(directory)) as capture:
        return evaluate(capture)


def only(made: Packets) -> Finding:
    [found] = evaluated(made).findings
    return found


def transactions(made: Packets, statements: int, way_ms: float) -> None:
    line = made.line()
    line.step_ns = int(way_ms * MS / 2)
    line.handshake().client(startup()).server(OK + READY)
    for _ in range(60):
        for ready in [IN_TRANSACTION] * (statements - 1) + [READY]:
            line.ask(ready, after_ms=0.2, server_ms=0.4)


def login(made: Packets, code: int) -> None:
    line = made.line().handshake().client(startup("pay"))
    line.server(message("R", struct.pack("!I", code))).client(message("p", b"secret\0")).server(OK + READY).close()


def pieces(made: Packets, delay_ms: float, number: int = 20) -> None:
    """Requests in two pieces; the second waits for the acknowledgement of the first."""
    line = made.line().login()
    for _ in range(number):
        line.client(b"Q\0\0\0").wait(delay_ms)
        line.raw(False, ACK)
        line.client(b"\x08go\0\0"[:5]).server(message("C", b"x\0") + READY)


def test_show_and_report_have_the_round_trips(made: Packets, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    transactions(made, 4, 1.0)
    directory, _ = read_into(made.write(), [], out=tmp_path / "c")
    assert run(["show", str(directory)]) == 0
    text = capsys.readouterr().out
    assert "simple query" in text and "10.0.0.1:40001" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "leadline " not in line)
    assert run(["show", str(directory), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    [row] = shown["wire_connections"]
    assert (row["round_trips"], row["transactions"], row["each"], row["rtt_ms"]) == (240, 60, 4, 1.0)
    assert run(["report", str(directory), "-o", str(tmp_path / "r.html")]) == 0


def test_ordinary_packets_have_no_finding(made: Packets) -> None:
    transactions(made, 3, 1.0)  # three round trips
    transactions(made, 9, 0.02)  # many, on a fast network
    pieces(made, 0.05)
    result = evaluated(made)
    assert result.findings == []
    assert {"WIRE-CLEARTEXT", "WIRE-MD5", "WIRE-CHATTY", "DELAYED-ACK"} <= set(result.clean)
    assert {"CHATTY-APP", "TCP-RETRANSMITS"} <= {name for name, _ in result.not_applicable}


def test_a_readable_password(made: Packets) -> None:
    login(made, 3)
    login(made, 3)
    found = only(made)
    assert (found.id, found.severity, found.subject) == ("WIRE-CLEARTEXT", "critical", "user pay at 10.0.0.2:5432")
    assert found.statement.startswith("2 connections sent the password") and "secret" not in str(found)


def test_a_hash_that_can_be_guessed(made: Packets) -> None:
    login(made, 5)
    found = only(made)
    assert (found.id, found.severity, found.samples) == ("WIRE-MD5", "medium", 1)


def test_many_round_trips_over_a_slow_network_are_counted(made: Packets) -> None:
    transactions(made, 8, 2.0)
    found = only(made)
    assert found.id == "WIRE-CHATTY" and found.cost_s == pytest.approx(60 * 8 * 0.002, rel=0.01)
    assert "60 transactions took 8.0 round trips each" in found.statement and found.cost_base == "round trips"


def test_requests_in_two_pieces_that_wait_for_delayed_acknowledgements(made: Packets) -> None:
    pieces(made, 40)
    found = only(made)
    assert found.id == "DELAYED-ACK" and found.cost_s == pytest.approx(20 * 0.040, rel=0.02)
    assert "20 times" in found.statement and "40 ms each" in found.statement

"""Packets that really get lost between two ends, over a round trip of 20 ms: the cost of WIRE-RETRANSMITS, and what waited."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from far_away import DEVICE, FAR, NEAR, FarAway, answer_each
from leadline.capture.manifest import Target, read_manifest
from leadline.capture.reader import open_capture
from leadline.findings import evaluate
from leadline.probes.overhead import OverheadProbe
from leadline.probes.recording import Recording
from leadline.probes.wire import WireProbe
from leadline.progress import Silent

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="a tun device and capturing packets need root")]

WAY_S, SIZE, ASKED = 0.01, 300, 300


def test_lost_requests_cost_what_their_clients_waited(tmp_path: Path) -> None:
    took_s: list[float] = []
    with FarAway(WAY_S, drop=range(20, 10_000, 10)), socket.create_server((NEAR, 0)) as listening:
        threading.Thread(target=answer_each, args=[listening, SIZE], daemon=True).start()
        port = listening.getsockname()[1]

        def ask() -> None:
            with socket.create_connection((FAR, port)) as line:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for _ in range(ASKED):
                    began = time.monotonic()
                    line.sendall(b"x" * SIZE)
                    assert line.recv(1) == b"y"
                    took_s.append(time.monotonic() - began)

        thread = threading.Thread(target=ask)
        probe = WireProbe(tmp_path, DEVICE.decode(), [port])
        recording = Recording(tmp_path, Target("network", "far"), [probe, OverheadProbe(tmp_path)], Silent(), {})
        recording.run(100.0, until=lambda: not thread.is_alive(), begun=thread.start)
        listening.shutdown(socket.SHUT_RDWR)
    assert probe.summary()["counts"]["translated"] > 2 * ASKED  # the device has each packet that is not lost there and back
    assert any("passed another interface before" in note for note in read_manifest(tmp_path).notes)
    with closing(open_capture(tmp_path, hold=True)) as capture:
        [row] = capture.rows("from wire_connection")
        waited_ns = capture.scalar("select sum(last_ns)::bigint from wire_roundtrip where retransmits > 0")
        [found] = [f for f in evaluate(capture).findings if f.id == "WIRE-RETRANSMITS"]
    assert 20 <= row["client_retransmits"] == found.samples and row["server_retransmits"] == 0
    # From the first sending of a lost request to its acknowledgement, which comes with the answer, passes all of its round trip.
    assert found.cost_s == pytest.approx(waited_ns / 1e9, rel=0.02)
    assert found.samples * 4 * WAY_S < found.cost_s < sum(took_s)
    assert found.subject == f"client {NEAR} of {FAR}:{port}"

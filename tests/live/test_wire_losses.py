"""Packets that really get lost, between two ends with a round trip of 20 ms: what WIRE-RETRANSMITS says beside what the client measured."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from far_away import DEVICE, FAR, NEAR, FarAway, answer_each
from leadline.capture.manifest import Target
from leadline.capture.reader import open_capture
from leadline.findings import evaluate
from leadline.probes.keeper import Keeper
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
        recording = Recording(tmp_path, Target("network", "far"), [probe, Keeper(tmp_path)], Silent(), {})
        recording.run(100.0, until=lambda: not thread.is_alive(), begun=thread.start)
        listening.shutdown(socket.SHUT_RDWR)
    assert probe.summary()["counts"]["translated"] > 2 * ASKED  # the device has each packet that is not lost there and back
    with closing(open_capture(tmp_path, hold=True)) as capture:
        [row] = capture.rows("from wire_connection")
        [found] = [f for f in evaluate(capture).findings if f.id == "WIRE-RETRANSMITS"]
    usual_s = sorted(took_s)[ASKED // 2]
    late = [each for each in took_s if each > 1.3 * usual_s]
    assert 20 <= row["client_retransmits"] == found.samples and row["server_retransmits"] == 0
    # All of a late request is the time from its first sending to its acknowledgement, which the answer brings.
    assert found.cost_s == pytest.approx(sum(late), rel=0.1)
    assert found.subject == f"client {NEAR} of {FAR}:{port}"

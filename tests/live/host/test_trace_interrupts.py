"""Interrupts in the time of a trace: a program sends packets to itself, each of which is a soft interrupt on its own CPU."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from bpf import needs_bpf
from conftest import background
from leadline.capture.reader import open_capture
from leadline.probes.trace import trace
from leadline.views.threads import report
from traced import Goes

pytestmark = needs_bpf

PACKETS = 20_000
PROGRAM = """
import socket, sys

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
sys.stdin.readline()
for i in range(int(sys.argv[1])):
    s.sendto(b"x", s.getsockname())
print("done", flush=True)
sys.stdin.readline()
"""


def received() -> int:
    """Soft interrupts for received packets on all CPUs since the host began."""
    line = next(line for line in Path("/proc/softirqs").read_text().splitlines() if line.lstrip().startswith("NET_RX:"))
    return sum(map(int, line.split()[1:]))


class Counts(Goes):
    """Counts also what comes while it works."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        super().__init__(program)
        self.received = 0

    def go(self) -> None:
        before = received()
        super().go()
        self.received = received() - before


def test_each_packet_is_an_interrupt_of_its_sender(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(PACKETS)]
    with background(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        goes, before = Counts(program), received()
        path, _ = trace(pids=[program.pid], for_s=0.3, out=tmp_path / "packets.leadline", progress=goes)
        most = received() - before
    with closing(open_capture(path)) as capture:
        rows = capture.rows("select kind, sum(count) as count, sum(time_ns) as ns from interrupt_sum group by kind")
        found = {row["kind"]: row for row in rows}
        assert PACKETS <= goes.received <= found["NET_RX"]["count"] <= most
        time = report(capture, program.pid).time
        # 200 ns is less than any kernel takes for a packet, and interrupts of others are in the sum of the host alone
        assert PACKETS * 200 < time["interrupt_ns"] <= sum(row["ns"] for row in found.values())
        assert time["interrupt_ns"] < time["user_ns"] + time["system_ns"]

"""Segments that are lost on a real way and sent again: each is found under the thread and the connection that it belongs to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from bpf import needs_bpf
from conftest import background
from far_away import FAR, NEAR, FarAway, answer_each
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.probes.trace import trace
from traced import Goes

pytestmark = [needs_bpf, pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a device of packets")]

ROUNDS, TALKERS = 12, 6
PROGRAM = """
import socket, sys, threading
address = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
def talk():
    with socket.create_connection(address) as s:
        for _ in range(int(sys.argv[3])):
            s.sendall(b"x" * 500)
            s.recv(1)
talkers = [threading.Thread(target=talk) for _ in range(int(sys.argv[4]))]
for one in talkers: one.start()
for one in talkers: one.join()
print("done", flush=True)
sys.stdin.readline()
"""


def sent_again() -> int:
    """By the kernel's own count, of all connections."""
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


def test_each_segment_belongs_to_the_thread_that_waits(tmp_path: Path) -> None:
    """Every second segment with data is lost."""
    with FarAway(0.001, drop=range(0, 1 << 40, 2)), socket.create_server((NEAR, 0)) as listening:
        threading.Thread(target=answer_each, args=(listening, 500), daemon=True).start()
        port = listening.getsockname()[1]
        command = [sys.executable, "-c", PROGRAM, FAR, port, ROUNDS, TALKERS]
        with background(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            before = sent_again()
            path, _ = trace(pids=[program.pid], for_s=0.2, out=tmp_path / "c.leadline", progress=Goes(program), retransmits=True)
            most = sent_again() - before
        listening.shutdown(socket.SHUT_RDWR)
    with closing(open_capture(path)) as capture:
        to_far = f"remote_addr = '{FAR}' and remote_port = {port}"
        seen = capture.scalar(f"select count(*) from tcp_retransmit where {to_far}")
        # Of 500 bytes, every second one is lost, also of those that are sent again: as many as there are requests.
        assert ROUNDS * TALKERS // 2 <= seen <= most
        rows = capture.rows(f"select pid, tid, file_id, bytes, local_addr, local_port, state from retransmit where {to_far}")
        assert len(rows) == seen
        assert {(row["pid"], row["bytes"], row["local_addr"], row["state"]) for row in rows} == {(program.pid, 500, NEAR, "ESTABLISHED")}
        assert 1 < len({row["tid"] for row in rows}) == len({row["file_id"] for row in rows}) <= TALKERS
        names = capture.rows("select distinct f.name, r.local_port from retransmit r join file_name f using (file_id)")
        assert names and all(row["name"] == f"tcp {NEAR}:{row['local_port']} to {FAR}:{port}" for row in names)
        [finding] = evaluate(capture, only=["PROGRAM-RETRANSMITS"]).findings
        assert finding.subject.endswith(f"to {FAR}") and f"{seen} segments of python" in finding.statement
        assert finding.cost_s is not None and finding.cost_s > 0.2
        slept = capture.scalar("select sum(sleep_ns) / 1e9 from (select distinct thread_id, slept_from, sleep_ns from retransmit)")
        assert finding.cost_s <= slept


def test_they_are_recorded_only_when_asked_for(tmp_path: Path) -> None:
    path, _ = trace(command=["true"], out=tmp_path / "c.leadline")
    with closing(open_capture(path)) as capture:
        assert capture.unavailable("retransmit") == "not asked for: --kernel-retransmits"
        [(rule, why)] = evaluate(capture, only=["PROGRAM-RETRANSMITS"]).not_evaluated
        assert rule == "PROGRAM-RETRANSMITS" and "not asked for" in why
    with pytest.raises(LeadlineError, match="the tier perf does not see retransmitted segments"):
        trace(command=["true"], out=tmp_path / "d.leadline", tier="perf", retransmits=True)

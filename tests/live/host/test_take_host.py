"""`leadline take --host`, several probes in one capture, and loads that are planted on this host: short, bounded, ended by pid."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from far_away import FAR, NEAR, FarAway, answer_each
from host_loads import direct_reads, load, memory_hog
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.findings import Finding, evaluate
from leadline.probes.host import HostProbe
from leadline.probes.take import take

ROOT = os.geteuid() == 0
pytestmark = pytest.mark.timeout(180)


def found(path: Path, rule: str) -> list[Finding]:
    capture = open_capture(path)
    try:
        result = evaluate(capture, only=[rule])
    finally:
        capture.close()
    assert not result.not_evaluated, result.not_evaluated
    return result.findings


def test_a_host_is_captured_without_a_server(tmp_path: Path) -> None:
    path = take(host=True, for_s=2.5, out=tmp_path / "c.leadline")
    manifest = read_manifest(path)
    assert (manifest.status, manifest.target.kind, set(manifest.probes)) == ("complete", "host", {"host", "self"})
    assert manifest.probe("host").rate_hz == 1.0 and manifest.probe("host").loss["ticks_taken"] >= 3
    assert manifest.target.cpu_count == os.cpu_count()
    capture = open_capture(path)
    me = capture.rows(f"select comm, pid from process where pid = {os.getpid()}")
    assert me, "this process is one of them"
    rows = capture.rows("select ts, realtime_ns, boottime_ns, uncertainty_ns from clock order by ts")
    assert len(rows) >= 3 and all(0 <= row["uncertainty_ns"] < 1_000_000_000 for row in rows)
    assert abs(rows[0]["realtime_ns"] - rows[0]["ts"] - manifest.clock.wall_offset_ns) < 100_000_000
    clock = manifest.clock
    assert capture.scalar("select count(distinct ts) from host_stat") >= 3
    assert capture.scalar(f"select count(*) from host_stat where ts < {clock.ts_from} or ts > {clock.ts_to}") == 0
    assert capture.scalar("select count(*) from (select metric, ts from host_stat group by all having count(*) > 1)") == 0
    capture.close()


def test_a_probe_that_is_slow_to_start_leaves_the_window_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = HostProbe.start

    def slowly(probe: HostProbe) -> None:
        time.sleep(0.4)
        start(probe)

    monkeypatch.setattr(HostProbe, "start", slowly)
    clock = read_manifest(take(host=True, for_s=0.3, out=tmp_path / "c.leadline")).clock
    assert clock.ts_to - clock.ts_from >= 300_000_000


def test_take_and_top_of_a_host_on_the_command_line(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "leadline"]
    taking = [*run, "take", "--host", "--for", "1500ms", "--json", "-o", "c.leadline"]
    done = subprocess.run(taking, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["target"]["kind"] == "host"
    for words in (["--host", "--pid", "1"], ["--host", "--rate", "11"], ["--host", "--probes", "sessions"], ["--probes", "cpu"]):
        refused = subprocess.run([*run, "take", *words], cwd=tmp_path, capture_output=True, text=True)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr and "hint:" in refused.stderr
    shown = subprocess.run([*run, "top", "--host", "--once", "--window", "2s"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0 and "CPUs" in shown.stdout and "Processes" in shown.stdout, shown.stderr
    numbers = subprocess.run([*run, "top", "--host", "--once", "--json", "--window", "2s"], cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(numbers.stdout)["host_processes"]


def test_two_probes_run_from_one_clock(servers: Any, tmp_path: Path) -> None:
    path = take(pid=servers(16).pid, for_s=2.0, rate_hz=50, out=tmp_path / "c.leadline")
    manifest = read_manifest(path)
    assert {name: manifest.probe(name).looked for name in ("sessions", "host", "self")} == dict.fromkeys(("sessions", "host", "self"), True)
    assert (manifest.probe("sessions").rate_hz, manifest.probe("host").rate_hz) == (50, 1)
    capture = open_capture(path)
    name = capture.scalar(f"select comm from process_use where pid = {servers(16).pid} limit 1") or "postgres"
    assert name == "postgres"
    assert capture.scalar("select count(distinct ts) from host_stat") >= 2
    assert capture.scalar("select count(*) from tick") > 0
    components = {row["component"] for row in capture.rows("select distinct component from self_cost")}
    assert components == {"process", "sampler", "writer"}, "two writers of one table, and each kept its rows"
    capture.close()


def test_probes_can_be_chosen(servers: Any, tmp_path: Path) -> None:
    alone = read_manifest(take(pid=servers(16).pid, for_s=0.7, probes=["sessions"], out=tmp_path / "a.leadline"))
    assert "host" not in alone.probes and "process" not in alone.tables and alone.tables["clock"]["rows"] >= 1
    host = read_manifest(take(pid=servers(16).pid, for_s=0.7, probes=["host"], out=tmp_path / "b.leadline"))
    assert "sessions" not in host.probes and host.status == "complete" and host.tables["process"]["rows"] > 0


@pytest.mark.parametrize("keep_going", [True, False])
def test_a_killed_server_leaves_the_host_probe_going(fresh_server: Any, tmp_path: Path, keep_going: bool) -> None:
    server = fresh_server(16)
    killer = threading.Timer(2.0, os.kill, (server.pid, signal.SIGKILL))
    killer.start()
    try:
        if keep_going:
            path = take(pid=server.pid, for_s=6.0, rate_hz=20, keep_going=True, stop_with_server=True, out=tmp_path / "c.leadline")
        else:
            with pytest.raises(LeadlineError) as failed:
                take(pid=server.pid, for_s=100.0, rate_hz=20, stop_with_server=True, out=tmp_path / "c.leadline")
            assert failed.value.kind == "gone"
            path = Path(failed.value.where)
    finally:
        killer.join()
    manifest = read_manifest(path)
    sessions = manifest.probe("sessions")
    assert sessions.status == "partial" and "ended early" in sessions.why
    assert manifest.probe("host").looked and "ended early" not in manifest.probe("host").why
    assert manifest.status == ("complete" if keep_going else "failed")
    capture = open_capture(path)
    last_tick = capture.scalar("select max(ts) from tick")
    last_reading = capture.scalar("select max(ts) from host_stat")
    if keep_going:
        assert last_reading - last_tick > 2e9, "the host was read to the end of the window"
        assert any("probe sessions ended" in note for note in manifest.notes)
    capture.close()


def test_a_fault_in_the_host_probe_leaves_the_sessions_going(servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table of processes cannot be written: a file lies in the place of the folder."""
    out = tmp_path / "c.leadline"

    class Broken(HostProbe):
        def start(self) -> None:
            (out / "process").write_text("not a folder")
            super().start()

    monkeypatch.setattr("leadline.probes.attaching.HostProbe", Broken)
    path = take(pid=servers(16).pid, for_s=2.5, rate_hz=20, out=out)
    manifest = read_manifest(path)
    assert manifest.status == "complete" and manifest.error is None
    assert manifest.probe("host").status in ("partial", "off") and "ended early" in manifest.probe("host").why
    assert manifest.probe("sessions").status == "ok"
    assert any("probe host ended" in note for note in manifest.notes)
    (out / "process").unlink()
    capture = open_capture(path)
    assert capture.scalar("select max(ts) - min(ts) from tick") > 2e9
    capture.close()


# -- planted loads ----------------------------------------------------------------------------------------------------------------


def test_spinning_threads_are_found(tmp_path: Path) -> None:
    count = 4 * (os.cpu_count() or 1)
    code = "import os\nfor _ in range(int(sys.argv[1]) - 1):\n    if os.fork() == 0: break\nwhile True: pass"
    with load(code, str(count), name="leadspin"):
        path = take(host=True, for_s=6.0, out=tmp_path / "c.leadline")
    (finding,) = found(path, "RUNQ-PRESSURE")
    assert "leadspin" in finding.statement and finding.cost_s is not None and finding.cost_s > 6


@pytest.mark.skipif(not ROOT, reason="the kernel tells root only of ended processes")
def test_short_processes_are_found(tmp_path: Path) -> None:
    code = "import os, time\nwhile True:\n    pid = os.posix_spawn('/bin/true', ['/bin/true'], {}); os.waitpid(pid, 0); time.sleep(0.001)"
    with load(code, name="leadchurn"):
        path = take(host=True, for_s=6.0, out=tmp_path / "c.leadline")
    findings = {f.subject: f for f in found(path, "PROCESS-CHURN")}
    finding = findings["short processes of leadchurn"]
    assert "true" in finding.statement and finding.cost_s is not None and finding.cost_s > 0


@pytest.mark.skipif(not ROOT, reason="bytes of others are read as root")
def test_direct_io_is_found_at_its_device(tmp_path: Path) -> None:
    with direct_reads(tmp_path, "leaddirect"):
        path = take(host=True, for_s=8.0, out=tmp_path / "c.leadline")
    (finding,) = found(path, "DEVICE-SATURATED")
    assert "leaddirect" in finding.statement and finding.cost_s is not None and finding.cost_s > 1


@pytest.mark.skipif(not ROOT, reason="only root may make a network and a device of packets")
def test_segments_that_are_lost_are_found(tmp_path: Path) -> None:
    """In a network of its own: the kernel counts segments by network, and other tests send some, too."""
    path = tmp_path / "c.leadline"
    code = "import sys; from pathlib import Path; from test_take_host import lose_segments; lose_segments(Path(sys.argv[1]))"
    modules = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run(["unshare", "--net", sys.executable, "-c", code, str(path)], check=True, env=os.environ | {"PYTHONPATH": modules})
    (finding,) = found(path, "TCP-RETRANSMITS")
    assert finding.severity == "high" and finding.cost_s is not None and finding.cost_s > 6
    counted = re.match(r"(\d+) of (\d+) segments .* (\d+) after a timeout", finding.statement)
    assert counted is not None, finding.statement
    again, sent, timeouts = map(int, counted.groups())
    assert 20 <= again < sent
    assert 0 < timeouts <= again


def lose_segments(path: Path) -> None:
    """A capture of a host, while every third segment with data is lost. Connections send on as soon as the last segment has come."""
    code = (
        "import socket, sys, threading\n"
        "def talk():\n"
        "    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:\n"
        "        while s.sendall(b'x' * 500) is None and s.recv(1): pass\n"
        "for _ in range(16): threading.Thread(target=talk).start()"
    )
    with FarAway(0.001, drop=range(0, 1 << 40, 3)), socket.create_server((NEAR, 0)) as listening:
        answering = threading.Thread(target=answer_each, args=(listening, 500), daemon=True)
        answering.start()
        with load(code, FAR, str(listening.getsockname()[1]), name="leadloss"):
            take(host=True, for_s=6.0, out=path)
        listening.shutdown(socket.SHUT_RDWR)
        answering.join()


def test_a_memory_hog_in_a_control_group_is_found(tmp_path: Path) -> None:
    with memory_hog(tmp_path, "leadhog") as group:
        path = take(host=True, for_s=8.0, out=tmp_path / "c.leadline")
        findings = {f.subject: f for f in found(path, "MEMORY-PRESSURE")}
        finding = findings[f"memory of control group /{group.name}"]
        assert "leadhog" in finding.statement
        if Path("/proc/pressure/memory").exists():
            assert finding.cost_s is not None and finding.cost_s > 0

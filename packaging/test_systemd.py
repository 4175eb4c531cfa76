"""The .deb on a Debian that systemd boots, with PostgreSQL as Debian packages it: the recorder's unit, as systemd runs it.

Run by `make test-dist`, as root. The Debian is a container of systemd-nspawn, which sees its own processes only.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import SUITE
from test_packages import package

INCLUDED = "python3,systemd,systemd-sysv,dbus,postgresql"
CAPABILITIES = ("CAP_CHECKPOINT_RESTORE", "CAP_SYS_NICE")
SERVER, UNIT, DIRECTORY = "postgresql@15-main", "leadline-record-shop", "/var/lib/leadline/shop"
PATIENCE_S = 60


@dataclass
class Machine:
    root: Path
    init: int = 0

    def boot(self) -> None:
        words = ["systemd-nspawn", f"--directory={self.root}", "--register=no", "--keep-unit", "--boot", "--quiet", "--console=read-only"]
        # A shell in it sees a boot_id of its own; a unit with ProtectKernelTunables sees that of the host.
        self.process = subprocess.Popen(
            [*words, "--capability=CAP_CHECKPOINT_RESTORE"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.until(lambda: children.read_text().split(), "an init process")
        self.init = int(children.read_text().split()[0])
        self.until(lambda: self.run("systemctl", "is-system-running").stdout.strip() == "running", "a machine that runs")

    def shut_down(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)

    def run(self, *words: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        inside = ["nsenter", "-t", str(self.init), "--all", "--", *words]
        return subprocess.run(inside, capture_output=True, text=True, timeout=timeout_s, check=False)

    def out(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def until(self, true: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}"
            time.sleep(0.1)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out("leadline", "record", "--status", DIRECTORY, "--json"))
        return found

    def pid(self) -> int:
        return int(self.out("systemctl", "show", "--property=MainPID", "--value", UNIT))

    def whole_pieces(self) -> list[str]:
        return [piece["name"] for piece in self.status()["pieces"] if piece["status"] == "complete"]

    def next_piece(self) -> dict[str, Any]:
        """The manifest of the next piece that becomes whole."""
        before = set(self.whole_pieces())
        self.until(lambda: set(self.whole_pieces()) - before, "another piece")
        name = min(set(self.whole_pieces()) - before)
        found: dict[str, Any] = json.loads((self.root / DIRECTORY.lstrip("/") / name / "manifest.json").read_text())
        return found


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("booted") / "root")
    command = ["mmdebstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(machine.root)]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    installed = machine.root / "leadline.deb"
    installed.write_bytes(package("deb").read_bytes())
    machine.boot()
    try:
        done = machine.run("dpkg", "--install", "/leadline.deb", timeout_s=300)
        assert done.returncode == 0, done.stdout + done.stderr
        yield machine
    finally:
        machine.shut_down()


@pytest.fixture(scope="module")
def recorded(machine: Machine) -> Machine:
    machine.out("leadline", "record", "host=/run/postgresql dbname=postgres", "--to", DIRECTORY, "--piece", "10s", "--install", "--yes")
    machine.until(machine.whole_pieces, "a piece")
    return machine


def test_systemd_runs_the_recorder_with_two_capabilities(recorded: Machine) -> None:
    about = dict(line.split(":\t", 1) for line in recorded.out("cat", f"/proc/{recorded.pid()}/status").splitlines() if ":\t" in line)
    assert about["CapEff"] == about["CapBnd"] == f"{1 << 40 | 1 << 23:016x}" and about["NoNewPrivs"] == "1"
    assert recorded.out("systemctl", "show", "--property=User", "--value", UNIT).strip() == "postgres"
    status = recorded.status()
    assert (status["doing"], status["process"]["pid"], status["gaps"]) == ("recording", recorded.pid(), [])
    probes = recorded.next_piece()["probes"]
    assert {name: probes[name]["status"] for name in ("sessions", "locks", "buffers", "deltas", "catalog")} == dict.fromkeys(
        ("sessions", "locks", "buffers", "deltas", "catalog"), "ok"
    )
    assert (probes["sessions"]["tier"], probes["sessions"]["access"]["shared_memory"]) == ("shm", "map_files")


def test_it_comes_back_after_a_kill_a_restart_of_the_server_and_a_boot(recorded: Machine) -> None:
    killed = recorded.pid()
    recorded.out("kill", "-9", str(killed))
    recorded.until(lambda: recorded.pid() not in (0, killed) and recorded.status()["doing"] == "recording", "another process")
    recorded.next_piece()
    recorded.out("systemctl", "restart", SERVER)
    recorded.until(lambda: recorded.status()["doing"] == "recording", "a recorder that records")
    recorded.next_piece()
    recorded.shut_down()
    recorded.boot()
    recorded.until(lambda: recorded.status()["doing"] == "recording", "a recorder that systemd started")
    recorded.next_piece()
    why = [gap["why"] for gap in recorded.status()["gaps"]]
    assert [one for one in why if "killed" in one] == ["the recorder was killed"]
    assert "no recorder ran" in why


@pytest.mark.parametrize(
    ("left_out", "how", "is_said"), [("CAP_CHECKPOINT_RESTORE", "process_vm_readv", True), ("CAP_SYS_NICE", "map_files", False)]
)
def test_without_a_capability_it_says_what_is_lost(recorded: Machine, left_out: str, how: str, is_said: bool) -> None:
    (kept,) = set(CAPABILITIES) - {left_out}
    drop_in = recorded.root / f"etc/systemd/system/{UNIT}.service.d/less.conf"
    drop_in.parent.mkdir(exist_ok=True)
    less = "".join(f"{name}=\n{name}={kept}\n" for name in ("CapabilityBoundingSet", "AmbientCapabilities"))
    drop_in.write_text(f"[Service]\n{less}")
    try:
        recorded.out("systemctl", "daemon-reload")
        recorded.out("systemctl", "restart", UNIT)
        sessions = recorded.next_piece()["probes"]["sessions"]
    finally:
        drop_in.unlink()
        recorded.out("systemctl", "daemon-reload")
        recorded.out("systemctl", "restart", UNIT)
    assert sessions["status"] == "ok"
    assert sessions["access"]["shared_memory"] == how
    assert ("CAP_CHECKPOINT_RESTORE is missing" in sessions["access"]["why"]) == is_said


def test_uninstalled_it_leaves_what_it_recorded(recorded: Machine) -> None:
    pieces = recorded.whole_pieces()
    recorded.out("leadline", "record", "--uninstall", DIRECTORY, "--yes")
    assert recorded.run("systemctl", "is-active", UNIT).stdout.strip() == "inactive"
    assert not (recorded.root / f"etc/systemd/system/{UNIT}.service").exists()
    assert recorded.status()["doing"] == "ended" and set(pieces) <= set(recorded.whole_pieces())

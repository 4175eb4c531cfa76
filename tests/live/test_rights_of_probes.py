"""docs/concepts/rights.md: each right that a probe needs is enough, and without it the probe says what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Server
from leadline.capture.manifest import Manifest, read_manifest
from setpriv import needs_root, setpriv

pytestmark = [pytest.mark.live, needs_root]
STRANGER = 4242


@pytest.fixture
def capture() -> Iterator[Path]:
    """Where another user may write one."""
    with tempfile.TemporaryDirectory(prefix="leadline-rights-") as directory:
        Path(directory).chmod(0o777)
        yield Path(directory) / "x.leadline"


def leadline(user: int, group: int, capabilities: str, *words: object) -> subprocess.CompletedProcess[str]:
    """With these capabilities, in short: "sys_ptrace bpf"."""
    command = [*setpriv(user, group, capabilities.split()), sys.executable, "-m", "leadline", *map(str, words)]
    environment = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "LEADLINE_BOOK": "off"}
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=120)


def of_stranger(capture: Path, capabilities: str, *words: object) -> Manifest:
    done = leadline(STRANGER, STRANGER, capabilities, *words, "-o", capture)
    assert done.returncode == 0, done.stderr
    return read_manifest(capture)


@pytest.mark.parametrize(
    ("who", "capabilities", "way", "missing", "names"),
    [
        ("owner", "", "process_vm_readv", "CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE is missing", True),
        ("owner", "checkpoint_restore", "map_files", "", True),
        ("stranger", "sys_ptrace", "process_vm_readv", "CAP_DAC_READ_SEARCH is missing", False),
        ("stranger", "sys_ptrace checkpoint_restore", "process_vm_readv", "CAP_DAC_READ_SEARCH is missing", False),
        ("stranger", "sys_ptrace sys_admin", "process_vm_readv", "CAP_DAC_READ_SEARCH is missing", False),
        ("stranger", "sys_ptrace dac_read_search", "process_vm_readv", "CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE is missing", True),
        ("stranger", "sys_ptrace checkpoint_restore dac_read_search", "map_files", "", True),
    ],
)
def test_how_the_memory_of_a_server_is_read(
    servers: Callable[[int], Server], capture: Path, who: str, capabilities: str, way: str, missing: str, names: bool
) -> None:
    server = servers(16)
    owner = Path(server.private.data_dir).stat()
    user, group = (owner.st_uid, owner.st_gid) if who == "owner" else (STRANGER, STRANGER)
    done = leadline(user, group, capabilities, "take", "--pid", server.pid, "--for", "300ms", "-o", capture)
    assert done.returncode == 0, done.stderr
    probes = read_manifest(capture).probes
    assert (probes["sessions"].tier, probes["sessions"].access["shared_memory"]) == ("shm", way)
    assert missing in probes["sessions"].access["why"]
    assert (probes["catalog"].status != "off") == names


def test_a_stranger_and_the_owner_in_another_group_are_told_what_is_missing(servers: Callable[[int], Server], capture: Path) -> None:
    server = servers(16)
    owner = Path(server.private.data_dir).stat()
    words = ("take", "--pid", server.pid, "--for", "300ms", "-o", capture)
    other_group = leadline(owner.st_uid, STRANGER, "", *words)
    assert other_group.returncode == 2
    assert f"own gid {STRANGER}, server's gid {owner.st_gid}" in other_group.stderr
    assert f"sudo -u '#{owner.st_uid}' -g '#{owner.st_gid}' leadline" in other_group.stderr
    stranger = leadline(STRANGER, STRANGER, "", *words)
    assert stranger.returncode == 2
    assert "CAP_SYS_PTRACE is missing" in stranger.stderr
    assert "gid" not in stranger.stderr


@pytest.mark.parametrize(("capabilities", "has"), [("", False), ("net_admin", True)])
def test_taskstats(capture: Path, capabilities: str, has: bool) -> None:
    host = of_stranger(capture, capabilities, "take", "--host", "--for", "1s").probes["host"]
    assert ("no permission for taskstats" in host.why) != has
    assert ("no permission for exit events" in host.why) != has


@pytest.mark.parametrize(
    ("capabilities", "tier", "status"),
    [("", "proc", "off"), ("bpf", "proc", "off"), ("perfmon", "proc", "off"), ("bpf perfmon", "bpf", "ok"), ("sys_admin", "bpf", "ok")],
)
def test_tracing(capture: Path, capabilities: str, tier: str, status: str) -> None:
    kernel = of_stranger(capture, capabilities, "trace", "-p", os.getpid(), "--for", "300ms").probes["kernel"]
    assert (kernel.tier, kernel.status) == (tier, status)


@pytest.mark.parametrize(("capabilities", "code"), [("", 2), ("net_raw", 0)])
def test_packets(capture: Path, capabilities: str, code: int) -> None:
    done = leadline(STRANGER, STRANGER, capabilities, "net", "packets", "-i", "lo", "--for", "300ms", "-o", capture)
    assert done.returncode == code, done.stderr
    assert ("CAP_NET_RAW" in done.stderr) == (code == 2)


@pytest.mark.parametrize(
    ("who", "needs"), [("owner", "needs CAP_CHECKPOINT_RESTORE:"), ("stranger", "needs CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH:")]
)
def test_doctor_names_what_would_map_the_memory(servers: Callable[[int], Server], who: str, needs: str) -> None:
    server = servers(16)
    owner = Path(server.private.data_dir).stat()
    user, group, capabilities = (owner.st_uid, owner.st_gid, "") if who == "owner" else (STRANGER, STRANGER, "sys_ptrace")
    done = leadline(user, group, capabilities, "doctor", server.pid, "--json")
    (access,) = [check for check in json.loads(done.stdout)["checks"] if (check["area"], check["name"]) == ("memory", "access")]
    assert access["command"].startswith(needs)


@pytest.mark.parametrize(
    ("capabilities", "found", "status"), [("", "CAP_SYS_NICE is missing", "limited"), ("sys_nice", "allowed", "ok")]
)
def test_doctor_says_whether_passes_are_on_time(capabilities: str, found: str, status: str) -> None:
    done = leadline(STRANGER, STRANGER, capabilities, "doctor", "--json")
    (check,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "real-time priority"]
    assert (check["found"], check["status"]) == (found, status)

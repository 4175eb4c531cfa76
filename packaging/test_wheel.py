"""The wheel of `make dist`, on a Debian that has Python and nothing else: installed without a compiler and without the network, and used.

Run by `make test-dist`, as root: a directory becomes the root of what is tried.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import PROJECT, Run
from leadline.engines.postgres.server import PrivateServer, find_binaries

MOST_BYTES = 9_000_000
OLDEST_GLIBC = (2, 28)
BIN = "/opt/leadline/bin"


@pytest.fixture(scope="session")
def installed(wheel: Path, empty: Run) -> Run:
    wheels = empty.root / "wheels"  # type: ignore[attr-defined]
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(wheels), str(wheel)]
    subprocess.run(download, check=True, timeout=300)
    for words in (
        ("python3", "-m", "venv", "/opt/leadline"),
        (f"{BIN}/pip", "install", "--quiet", "--no-index", "--find-links", "/wheels", f"/wheels/{wheel.name}"),
    ):
        done = empty(*words)
        assert done.returncode == 0, done.stderr
    return empty


def test_it_is_small_and_says_for_which_hosts_it_is(wheel: Path) -> None:
    assert wheel.name.endswith("-cp311-abi3-manylinux_2_28_x86_64.whl")
    assert wheel.stat().st_size <= MOST_BYTES


def test_the_library_asks_for_no_newer_glibc(wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(wheel, tmp_path, "zip")
    (library,) = (tmp_path / "leadline").glob("_core*.so")
    asked = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_(\d+\.\d+)", library.read_bytes())}
    assert (2, 2) <= max(asked) <= OLDEST_GLIBC


def test_there_is_no_compiler(empty: Run) -> None:
    for name in ("cc", "gcc", "rustc", "cargo", "make"):
        assert empty("sh", "-c", f"command -v {name}").returncode != 0, name


def test_it_says_its_version_and_helps(installed: Run) -> None:
    version = subprocess.run([sys.executable, "-m", "leadline", "--version"], check=True, capture_output=True, text=True).stdout
    assert installed("leadline", "--version").stdout == version
    assert "leadline take" in installed("leadline", "take", "--help").stdout


def test_it_reads_pages_and_watches_a_server_of_the_host(installed: Run) -> None:
    root = installed.root  # type: ignore[attr-defined]
    with PrivateServer(find_binaries(None).bin_dir) as server:
        done = installed("leadline", "take", "--pid", str(server.pid), "--for", "2s", "--output", "/root/x.leadline", "--json")
        assert done.returncode == 0, done.stderr
        shutil.copytree(server.data_dir / "global", root / "root/global")
    shown = json.loads(installed("leadline", "sql", "/root/x.leadline", "select count(*) as n from session_sample", "--json").stdout)
    assert shown[0]["n"] > 100
    assert installed("leadline", "show", "/root/x.leadline").returncode == 0
    checked = installed("leadline", "page", "check", "/root/global")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@dataclass(frozen=True)
class Contained:
    """A server that is the first process of its own process and mount namespace, as one in a container is. pid: its id on the host."""

    pid: int
    user: int
    group: int


@pytest.fixture(scope="module")
def contained() -> Iterator[Contained]:
    with PrivateServer(find_binaries(None).bin_dir) as server:
        owner = server.data_dir.stat()
        words = Path(f"/proc/{server.pid}/cmdline").read_text().rstrip("\0").split("\0")
        server.stop()
        become = ["setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups"]
        alone = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", *become, *words]
        with subprocess.Popen(alone, cwd="/", stderr=subprocess.DEVNULL) as process:
            state, until = server.data_dir / "postmaster.pid", time.monotonic() + 60
            while not (state.exists() and "ready" in state.read_text()):
                assert time.monotonic() < until and process.poll() is None, "the server does not start"
                time.sleep(0.05)
            (child,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
            try:
                yield Contained(child, owner.st_uid, owner.st_gid)
            finally:
                os.kill(child, signal.SIGINT)


@pytest.mark.parametrize(
    ("who", "capabilities", "code", "said"),
    [
        ("the server", "-all", 0, ""),
        ("root", "-all,+sys_ptrace", 0, ""),
        ("root", "-all", 2, "CAP_SYS_PTRACE is missing"),
        ("the server in another group", "-all", 2, "server's gid"),
    ],
)
def test_it_watches_a_server_in_another_container(
    installed: Run, contained: Contained, who: str, capabilities: str, code: int, said: str
) -> None:
    """With the rights that docs/guides/install.md names, in the process namespace of the server, which it sees as process 1 there."""
    root, output = installed.root, "/tmp/contained.leadline"  # type: ignore[attr-defined]
    user, group = {"the server": (contained.user, contained.group), "root": (0, 0)}.get(who, (contained.user, 4242))
    become = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", f"--bounding-set={capabilities}", "--inh-caps=-all"]
    joined = ["nsenter", f"--target={contained.pid}", "--pid", "unshare", "--mount", "sh", "-c"]
    inside = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    take = [f"{BIN}/leadline", "take", "--pid", "1", "--for", "1s", "-o", output]
    done = subprocess.run([*joined, inside, root, *become, *take], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    if not said:
        query = "select count(distinct pid) as sessions, count(*) as n from session_sample"
        (row,) = json.loads(installed("leadline", "sql", output, query, "--json").stdout)
        assert row["sessions"] >= 5 and row["n"] > 100
        shutil.rmtree(root / output[1:])


def test_it_watches_the_host(installed: Run) -> None:
    done = installed("leadline", "take", "--host", "--for", "2s", "--output", "/root/h.leadline")
    assert done.returncode == 0, done.stderr
    assert "host" in installed("leadline", "show", "/root/h.leadline").stdout.lower()


def test_what_an_extra_brings_is_named_when_it_is_missing(installed: Run) -> None:
    done = installed("leadline", "demo")
    assert done.returncode == 2
    assert "leadline[demo]" in done.stderr
    assert os.fspath(PROJECT) not in done.stderr

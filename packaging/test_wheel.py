"""The wheel of `make dist`, on a Debian that has Python and nothing else: installed without a compiler and without the network, and used.

Run by `make test-dist`, as root: a directory becomes the root of what is tried. It sees the processes of this host.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.engines.postgres.server import PrivateServer, find_binaries

PROJECT = Path(__file__).parents[1]
MOST_BYTES = 9_000_000
OLDEST_GLIBC = (2, 28)
SUITE = "bookworm"
BIN = "/opt/leadline/bin"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def wheel() -> Path:
    (found,) = (PROJECT / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a command in the empty Debian."""
    root = tmp_path_factory.mktemp("debian") / "root"
    command = ["mmdebstrap", "--variant=minbase", "--include=python3,python3-venv", SUITE, str(root)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)

    def run(*words: str, **arguments: Any) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": "/root", "LEADLINE_BOOK": "off"}
        command = ["/usr/sbin/chroot", str(root), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False, **arguments)

    run.root = root  # type: ignore[attr-defined]
    subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
    try:
        yield run
    finally:
        subprocess.run(["umount", str(root / "proc")], check=True)


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


def test_it_watches_the_host(installed: Run) -> None:
    done = installed("leadline", "take", "--host", "--for", "2s", "--output", "/root/h.leadline")
    assert done.returncode == 0, done.stderr
    assert "host" in installed("leadline", "show", "/root/h.leadline").stdout.lower()


def test_what_an_extra_brings_is_named_when_it_is_missing(installed: Run) -> None:
    done = installed("leadline", "demo")
    assert done.returncode == 2
    assert "leadline[demo]" in done.stderr
    assert os.fspath(PROJECT) not in done.stderr

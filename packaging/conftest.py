"""A Debian that has Python and nothing else, as the root of commands. They see the processes of this host, and no network is used."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1]
SUITE = "bookworm"
INCLUDED = "python3,python3-venv,systemd-standalone-sysusers"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def wheel() -> Path:
    (found,) = (PROJECT / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a command in it."""
    root = tmp_path_factory.mktemp("debian") / "root"
    command = ["mmdebstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(root)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)

    def run(*words: str, path: str = "/opt/leadline/bin", **arguments: Any) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{path}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LEADLINE_BOOK": "off"}
        command = ["/usr/sbin/chroot", str(root), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False, **arguments)

    run.root = root  # type: ignore[attr-defined]
    subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
    try:
        yield run
    finally:
        subprocess.run(["umount", str(root / "proc")], check=True)

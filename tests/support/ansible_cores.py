"""ansible-core of several versions, and Ara: each in a virtual environment of its own, installed once by pip and kept.

What a Python on this host can run is there; the versions are pinned.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from locked import locked

# version -> the oldest Python it runs with, and the first that it does not know
CORES = {
    "2.17.14": ((3, 10), (3, 13)), "2.18.19": ((3, 11), (3, 14)), "2.19.14": ((3, 11), (3, 14)),
    "2.20.10": ((3, 12), (3, 15)), "2.21.5": ((3, 12), (3, 15)),
}  # fmt: skip
ARA = "ara[server]==1.8.0"
PYTHONS = ((3, 10), (3, 11), (3, 12), (3, 13), (3, 14))
INSTALL_S = 240


class Unavailable(Exception):
    """It cannot be installed here; the text says why."""


@dataclass(frozen=True)
class Core:
    """One that can be run. bin_dir: has ansible-playbook, ansible and their python."""

    version: str
    bin_dir: Path

    @property
    def plugins_of_ara(self) -> Path:
        return next(self.bin_dir.parent.glob("lib/python*/site-packages/ara/plugins/callback"))


@cache
def pythons() -> dict[tuple[int, int], str]:
    """Those of this host, by version: the one that runs the tests, what PATH has, and what pyenv has."""
    found = {(sys.version_info[0], sys.version_info[1]): sys.executable}
    folders = os.environ.get("PATH", "").split(os.pathsep) + [str(path) for path in (Path.home() / ".pyenv/versions").glob("*/bin")]
    ask = "import ensurepip, sys; print(*sys.version_info[:2])"
    for version in PYTHONS:
        name = f"python{version[0]}.{version[1]}"
        for folder in folders:
            path = shutil.which(name, path=folder)
            said = path and subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
            if said and said.stdout.split() == [str(version[0]), str(version[1])]:
                found.setdefault(version, str(path))
                break
    return found


def runnable() -> list[str]:
    """Versions for which there is a Python here."""
    return [version for version, (least, limit) in CORES.items() if any(least <= python < limit for python in pythons())]


def core(version: str, *, with_ara: bool = False) -> Core:
    """As `installed`."""
    least, limit = CORES[version]
    fitting = [(path != sys.executable, python, path) for python, path in pythons().items() if least <= python < limit]
    if not fitting:
        raise Unavailable(f"ansible-core {version} needs Python {least[0]}.{least[1]}")
    _, python, path = min(fitting)
    name = f"core-{version}-py{python[0]}.{python[1]}{'-ara' if with_ara else ''}"
    return Core(version, installed(name, path, [f"ansible-core=={version}", *([ARA] if with_ara else [])]) / "bin")


def installed(name: str, python: str, wanted: list[str]) -> Path:
    """A virtual environment with these packages: from the cache, or made now. Raises Unavailable. Safe to call from several processes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leadline-test-ansible"
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache, name):
        at, done = cache / name, cache / name / "complete"
        if not done.exists():
            shutil.rmtree(at, ignore_errors=True)
            # By the pip of the tests, and only what is imported is compiled: together that takes a third of the time.
            _run([python, "-m", "venv", "--without-pip", str(at)])
            pip = [sys.executable, "-m", "pip", "--python", str(at / "bin" / "python"), "--disable-pip-version-check"]
            _run([*pip, "install", "--quiet", "--no-compile", *wanted])
            done.touch()
    return at


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired as e:
        raise Unavailable(f"{command[0]} took longer than {INSTALL_S} s") from e
    if done.returncode != 0:
        raise Unavailable((done.stderr.strip().splitlines() or ["pip failed"])[-1])

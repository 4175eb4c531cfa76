"""A genuine Db2 client for tests: the one that the package ibm-db brings, fetched once by pip and cached beside the servers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from locked import locked
from servers import Unavailable, cache_dir, check

VERSION = "3.2.6"
CHECKSUM = "sha256-pBusGRyI/DBEjRgr0i6j+Pz7zi4XNJFh1vRKYhGkhkA="


@dataclass(frozen=True)
class Client:
    """Where the package was unpacked to."""

    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / "clidriver" / "lib" / "libdb2.so.1"

    def db2trc(self, verb: str) -> str:
        """What the client's own control of its trace facility says, whether it does what it is told or not."""
        tool = self.folder / "clidriver" / "bin" / "db2trc"
        libraries = f"{self.library.parent}:{self.folder / 'ibm_db.libs'}"
        done = subprocess.run([tool, verb], capture_output=True, text=True, check=False, env={**os.environ, "LD_LIBRARY_PATH": libraries})
        return done.stdout + done.stderr


def client() -> Client:
    """The client, from the cache or fetched now. Raises Unavailable. Safe to call from several processes."""
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"ibm-db-{VERSION}"
    with locked(cache, "ibm-db"):
        if not target.exists():
            _fetch(cache, target)
    return Client(target)


def _fetch(cache: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as scratch:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        wanted = ["--python-version", "3.11", "--platform", "manylinux2014_x86_64", "-d", scratch, f"ibm-db=={VERSION}"]
        try:
            done = subprocess.run(pip + wanted, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired as e:
            raise Unavailable("pip did not end in 180 s") from e
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            raise Unavailable(f"pip gives no ibm-db {VERSION}: {done.stderr.strip().splitlines()[-1:]}")
        check(wheels[0], CHECKSUM)
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(Path(scratch) / "client")  # which keeps every file inside, and makes none executable
        (Path(scratch) / "client" / "clidriver" / "bin" / "db2trc").chmod(0o755)
        (Path(scratch) / "client").rename(target)

"""Crashed clusters, their copies, and servers on them; and the comparison of what two recoveries left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from conftest import CopiedServer, Server, copy_folder, fetched_or_skip, no_oracle, used, wait_until
from leadline.postgres.server.binaries import host_dirs
from leadline.postgres.server.private import PrivateServer

COMPARED = ("base", "global", "pg_tblspc", "pg_xact", "pg_multixact", "pg_commit_ts", "pg_twophase")


class ClusterServer(PrivateServer):
    """A server on a cluster that is there already, which is kept."""

    def _initdb(self) -> None:
        pass

    def _wait_until_ready(self) -> None:
        """Without a session: that would read catalogs, and write what it finds out of their rows."""
        wait_until(lambda: "ready to accept connections" in self.log or self.pid_is_gone(), 60, "a started server")
        assert not self.pid_is_gone(), self.log[-2000:]

    def pid_is_gone(self) -> bool:
        return self._process is None or self._process.poll() is not None


class ChecksummedServer(CopiedServer):
    """With data checksums, or without, whatever the major's default is."""

    _made: ClassVar[dict[Path, tempfile.TemporaryDirectory[str]]] = {}
    checksums = True

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        if command[0].endswith("initdb"):
            told = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
            without = ["--no-data-checksums"] if int(told.split()[2].split(".")[0]) >= 18 else []
            command = [*command, *(["--data-checksums"] if self.checksums else without)]
        return super()._spawn(command)


class PlainServer(ChecksummedServer):
    """Without."""

    _made: ClassVar[dict[Path, tempfile.TemporaryDirectory[str]]] = {}
    checksums = False


@contextmanager
def loaded(major: int, server_class: type[CopiedServer] = CopiedServer, **settings: Any) -> Iterator[Server]:
    """A server that will be crashed."""
    fetched = fetched_or_skip(major)
    if settings.get("wal_compression") in ("lz4", "zstd"):  # which not every build has
        built = [found for found in host_dirs() if found.major == major]
        if not built:
            no_oracle(f"no PostgreSQL {major} of this host, which may have {settings['wal_compression']}")
        fetched = replace(fetched, bin_dir=str(built[0].bin_dir), package="of the host")
    used[major] = fetched
    usual = {"shared_buffers": "64MB", "fsync": False, "max_connections": 30, "autovacuum": False}
    with server_class(fetched.bin_dir, settings={**usual, **settings}) as private:
        yield Server(private, fetched)


def crash(server: Server) -> Path:
    """An immediate shutdown: what is in memory is lost. Gives the data directory."""
    process = server.private._process
    assert process is not None
    process.send_signal(signal.SIGQUIT)
    process.wait(30)
    return server.private.data_dir


def copy_of(data_dir: Path, name: str) -> Path:
    """A copy beside it; a tablespace beside it is copied with it, and its link leads to the copy."""
    target = data_dir.parent / name
    target.mkdir(mode=0o700)
    copy_folder(data_dir, target)
    for link in (target / "pg_tblspc").iterdir():
        if link.is_symlink():
            space = target.parent / f"{name}-space-{link.name}"
            space.mkdir()
            copy_folder(link.readlink(), space)
            about = link.lstat()
            link.unlink()
            link.symlink_to(space)
            os.chown(link, about.st_uid, about.st_gid, follow_symlinks=False)
            os.chown(space, about.st_uid, about.st_gid)
            space.chmod(0o700)
    about = data_dir.stat()
    os.chown(target, about.st_uid, about.st_gid)
    return target


@contextmanager
def started(server: Server, data_dir: Path, **settings: Any) -> Iterator[Server]:
    """The server of the same major on a cluster, ended in order."""
    with ClusterServer(server.private.bin_dir, data_dir, settings={"autovacuum": False, **settings}) as private:
        yield Server(private, server.fetched)


def recover(data_dir: Path, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leadline", "recover", str(data_dir), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def files(data_dir: Path) -> dict[str, Path]:
    """Files that recovery is to leave as the server's does. Free space maps are another matter: the server, too, only guesses."""
    found = {}
    for top in COMPARED:
        for folder, _, names in os.walk(data_dir / top, followlinks=True):
            for name in names:
                path = Path(folder) / name
                if name not in ("pg_control", "pg_internal.init") and "_fsm" not in name and "pgsql_tmp" not in folder:
                    found[str(path.relative_to(data_dir))] = path
    return found


def differences(one: Path, other: Path) -> list[str]:
    """What is not equal, byte for byte."""
    a, b = files(one), files(other)
    found = [f"{name}: only in {one.name}" for name in sorted(a.keys() - b.keys())]
    found += [f"{name}: only in {other.name}" for name in sorted(b.keys() - a.keys())]
    for name in sorted(a.keys() & b.keys()):
        x, y = a[name].read_bytes(), b[name].read_bytes()
        if x != y:
            pages = [n // 8192 for n in range(0, max(len(x), len(y)), 8192) if x[n : n + 8192] != y[n : n + 8192]]
            found.append(f"{name}: {len(x)} and {len(y)} bytes, pages {pages[:8]}")
    return found


def fingerprint(data_dir: Path) -> dict[str, tuple[Any, ...]]:
    """Names, owners, modes, times and contents of all files."""
    found = {}
    for path in sorted(data_dir.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        time_ns = about.st_mtime_ns if content else 0
        found[str(path.relative_to(data_dir))] = (about.st_uid, about.st_gid, about.st_mode, time_ns, hash(content))
    return found

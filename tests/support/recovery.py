"""Crashed clusters, their copies, and servers on them; and the comparison of what two recoveries left."""

from __future__ import annotations

import json
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from conftest import LONG, CopiedServer, Server, fetched_or_skip, in_memory, no_oracle, used
from leadline.engines.postgres.server.binaries import host_dirs
from leadline.engines.postgres.server.cluster import ClusterServer
from leadline.files.copies import compared_files, copy_cluster, differences
from recovery_load import SETTINGS, in_flight, mixed_load

# Tells when it begins, since a program takes longer to start than a small recovery.
RECOVERY = """
import sys
from leadline._core import replay
from leadline.files import recovery
print("begun", flush=True)
with recovery._owner_of(sys.argv[1]):
    report = replay.run(sys.argv[1], memory=int(sys.argv[2]), threads=2)
print(report["rounds"], "rounds")
"""


def only_in_long_runs(test: Any) -> Any:
    """Decorates a test that is there with LEADLINE_LONG_TESTS=1 only."""
    return test if LONG else None


class ChecksummedServer(CopiedServer):
    """With data checksums, or without, whatever the major's default is."""

    checksums = True
    segment_megabytes = 16

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        if command[0].endswith("initdb"):
            told = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
            without = ["--no-data-checksums"] if int(told.split()[2].split(".")[0]) >= 18 else []
            command = [*command, *(["--data-checksums"] if self.checksums else without), f"--wal-segsize={self.segment_megabytes}"]
        return super()._spawn(command)


class PlainServer(ChecksummedServer):
    """Without."""

    checksums = False


class SmallSegments(ChecksummedServer):
    """With WAL segments of 1 MB."""

    segment_megabytes = 1


class LargeSegments(ChecksummedServer):
    """Of 64 MB."""

    segment_megabytes = 64


@contextmanager
def loaded(major: int, server_class: type[CopiedServer] = CopiedServer, on_disk: bool = False, **settings: Any) -> Iterator[Server]:
    """A server that will be crashed. on_disk: what a disk does matters, and not only the bytes that are left."""
    fetched = fetched_or_skip(major)
    if settings.get("wal_compression") in ("lz4", "zstd"):  # which not every build has
        built = [found for found in host_dirs() if found.major == major]
        if not built:
            no_oracle(f"no PostgreSQL {major} of this host, which may have {settings['wal_compression']}")
        fetched = replace(fetched, bin_dir=str(built[0].bin_dir), package="of the host")
    used[major] = fetched
    usual = {"shared_buffers": "64MB", "fsync": False, "max_connections": 30, "autovacuum": False}
    with ExitStack() as stack:
        with nullcontext() if on_disk else in_memory():
            private = stack.enter_context(server_class(fetched.bin_dir, settings={**usual, **settings}))
        yield Server(private, fetched)


def crash(server: Server) -> Path:
    """An immediate shutdown: what is in memory is lost. Gives the data directory."""
    process = server.private._process
    assert process is not None
    process.send_signal(signal.SIGQUIT)
    process.wait(30)
    return server.private.data_dir


def copy_of(data_dir: Path, name: str) -> Path:
    """A copy beside it, with its tablespaces."""
    target = data_dir.parent / name
    copy_cluster(data_dir, target)
    return target


@contextmanager
def copied(data_dir: Path, name: str = "copy", beside: Path | None = None) -> Iterator[Path]:
    """A copy for the time of a block. beside: where, unless beside the original."""
    path = (beside or data_dir).parent / name
    copy_cluster(data_dir, path)
    try:
        yield path
    finally:
        for folder in [path, *path.parent.glob(f"{name}-space-*")]:
            shutil.rmtree(folder)


@contextmanager
def crashed_cluster(major: int = 17, on_disk: bool = False) -> Iterator[tuple[Server, Path, Path]]:
    """A server, its crashed data directory, and what the server's own recovery makes of it."""
    with loaded(major, ChecksummedServer, on_disk, **SETTINGS) as server:
        mixed_load(server)
        in_flight(server)
        data_dir = crash(server)
        stock = copy_of(data_dir, "expected")
        settle(server, stock)
        yield server, data_dir, stock


@contextmanager
def started(server: Server, data_dir: Path, **settings: Any) -> Iterator[Server]:
    """The server of the same major on a cluster, ended in order."""
    with ClusterServer(server.private.bin_dir, data_dir, settings={"autovacuum": False, **settings}) as private:
        yield Server(private, server.fetched)


def recover(data_dir: Path, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leadline", "recover", str(data_dir), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def begun(data_dir: Path, memory: int, *before: str) -> subprocess.Popen[bytes]:
    """A recovery that has begun."""
    command = [*before, sys.executable, "-c", RECOVERY, str(data_dir), str(memory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n", process.communicate()
    return process


def settle(server: Server, data_dir: Path, **settings: Any) -> None:
    """What a start and an orderly end make of it."""
    with started(server, data_dir, **settings):
        pass


def recovered_equally(server: Server, data_dir: Path, **settings: Any) -> tuple[Path, Path]:
    """Recovers by the server, here, and here with less memory: two copies and the cluster itself. All were started and stopped once since.

    Fails on any difference. Gives the two copies.
    """
    stock, ours = copy_of(data_dir, "stock"), copy_of(data_dir, "ours")
    settle(server, stock, **settings)
    done = recover(ours)
    assert done.returncode == 0, done.stderr
    begun = time.monotonic()
    with started(server, ours, **settings) as running:
        assert "database system was shut down at" in running.private.log
        assert "redo" not in running.private.log
        print(f"server start after ours: {time.monotonic() - begun:.2f} s")
    assert differences(stock, ours) == []
    assert worse_free_space(stock, ours) == []
    # With less memory no chunk of the log waits for another: each page is held from its first record on, and taken up again and again.
    done = recover(data_dir, "--memory", "64MB")
    assert done.returncode == 0, done.stderr
    settle(server, data_dir, **settings)
    assert differences(stock, data_dir) == []
    assert worse_free_space(stock, data_dir) == []
    assert control_of(stock) == control_of(ours)
    return stock, ours


def strace() -> str:
    found = shutil.which("strace")
    return found or no_oracle("strace is not installed")


def control_of(data_dir: Path) -> bytes:
    """pg_control without its times, and without the place of the last checkpoint: the logs end in different ways."""
    content = bytearray((data_dir / "global/pg_control").read_bytes()[:288])
    for begin, end in [(24, 48), (104, 112)]:  # time, checkPoint and its redo; its time
        content[begin:end] = bytes(end - begin)
    return bytes(content)


def free_space(data_dir: Path) -> dict[str, tuple[list[int], list[int]]]:
    """Of each free space map of a table: what it says of each page of the table, and what is true, in the map's unit of 32 bytes."""
    found = {}
    for name, path in compared_files(data_dir).items():
        map_of = path.with_name(f"{path.name}_fsm")
        table = path.read_bytes() if map_of.exists() else b""
        if table[16:18] == struct.pack("<H", 8192):  # pd_special: it is no index
            pages = [map_of.read_bytes()[at : at + 8192] for at in range(0, map_of.stat().st_size, 8192)]
            blocks = range(len(table) // 8192)
            found[name] = [_noted(pages, block) for block in blocks], [_room(table[n * 8192 : n * 8192 + 8192]) for n in blocks]
    return found


def _noted(pages: list[bytes], block: int) -> int:
    """Of the lowest of three levels: block 2, and behind it one page for 4,069 pages of the table (fsm_internals.h)."""
    page = block // 4069 + 2
    return pages[page][28 + 4095 + block % 4069] if page < len(pages) and any(pages[page]) else 0


def _room(page: bytes) -> int:
    """PageGetHeapFreeSpace and fsm_space_avail_to_cat."""
    lower, upper = struct.unpack_from("<HH", page, 12)
    pointers = struct.unpack_from(f"<{max(0, lower - 24) // 4}I", page, 24)
    is_full = len(pointers) >= 291 and all(pointer >> 15 & 3 for pointer in pointers)
    room = max(0, upper - lower - 4) if not is_full else 0
    return 255 if room >= 8160 else min(254, room // 32)


def worse_free_space(stock: Path, ours: Path) -> list[str]:
    """Where our map is further from the truth than the server's, or promises room that there is not, which the server's does not."""
    of_server = free_space(stock)
    wrong = []
    for name, (noted, true) in free_space(ours).items():
        for block, (theirs, own, room) in enumerate(zip(of_server[name][0], noted, true, strict=True)):
            if abs(own - room) > abs(theirs - room) or own > room >= theirs:
                wrong.append(f"{name} block {block}: room {room}, the server's map says {theirs}, ours {own}")
    return wrong


def end_of_log(data_dir: Path) -> int:
    return position(json.loads(recover(data_dir, "--plan", "--json").stdout)["end_lsn"])


def position(lsn: str) -> int:
    high, low = lsn.split("/")
    return int(high, 16) << 32 | int(low, 16)


def records(data_dir: Path, first: str | None = None) -> list[dict[str, Any]]:
    """Those from an LSN on, or that crash recovery replays, as `leadline wal show` prints them."""
    first = first or json.loads(recover(data_dir, "--plan", "--json").stdout)["redo_lsn"]
    command = [sys.executable, "-m", "leadline", "wal", "show", str(data_dir), "--from", first, "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found: list[dict[str, Any]] = json.loads(shown.stdout)
    return found


def flip(path: Path, at: int, bits: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= bits
    path.write_bytes(content)


def cut_log(data_dir: Path, lsn: int) -> None:
    """Zeros from there on, as after a crash of the machine."""
    number, at = divmod(lsn, 16 << 20)
    for path in sorted((data_dir / "pg_wal").glob("0000*")):
        if int(path.name[8:16], 16) * 256 + int(path.name[16:], 16) >= number:
            content = path.read_bytes()
            path.write_bytes(content[:at] + bytes(len(content) - at))
            at = 0


def fingerprint(data_dir: Path) -> dict[str, tuple[Any, ...]]:
    """Names, owners, modes, times and contents of all files."""
    found = {}
    for path in sorted(data_dir.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        time_ns = about.st_mtime_ns if content else 0
        found[str(path.relative_to(data_dir))] = (about.st_uid, about.st_gid, about.st_mode, time_ns, hash(content))
    return found

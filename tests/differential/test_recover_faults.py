"""leadline recover under faults: killed anywhere, writes that fail, damaged files, and what it refuses.

Whatever happens to it, another run or the server's own recovery gives the same bytes as if it had never run; or both refuse.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, Server
from crc import crc32c
from leadline.errors import LeadlineError
from leadline.files.copies import differences
from recovery import (
    ChecksummedServer,
    PlainServer,
    begun,
    copied,
    crash,
    crashed_cluster,
    cut_log,
    fingerprint,
    flip,
    loaded,
    position,
    records,
    recover,
    settle,
    strace,
)
from recovery_load import SETTINGS, mixed_load

CHAINS, KILLS_IN_CHAIN = (100, 2) if LONG else (5, 4)
FLIPS = 60 if LONG else 3
CUTS = range(80) if LONG else (0, 7)
Crashed = tuple[Server, Path, Path]


@pytest.fixture(scope="module")
def crashed() -> Iterator[Crashed]:
    with crashed_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def replayed(crashed: Crashed) -> list[dict[str, Any]]:
    """The records that recovery replays."""
    return records(crashed[1])


MEMORIES = (1 << 20, 1 << 26, 1 << 30)
"""With a temporary file; with every page held from its first record on; and with records that wait in the log until its end."""


@pytest.fixture
def copy(crashed: Crashed) -> Iterator[Path]:
    with copied(crashed[1]) as path:
        yield path


@pytest.fixture(scope="module")
def usual_s(crashed: Crashed) -> dict[int, float]:
    """How long a recovery takes, by memory."""
    took = {}
    for memory in MEMORIES:
        with copied(crashed[1], "usual") as path:
            process = begun(path, memory)
            began = time.monotonic()
            process.communicate(timeout=120)
            took[memory] = time.monotonic() - began
    return took


def ends_equally(crashed: Crashed, copy: Path, by: str) -> None:
    server, _, expected = crashed
    if by == "leadline":
        done = recover(copy)
        assert done.returncode == 0, done.stderr
    settle(server, copy)
    assert differences(expected, copy) == []


@pytest.mark.parametrize("seed", range(CHAINS))
def test_killed_at_random_moments(crashed: Crashed, copy: Path, usual_s: dict[int, float], seed: int) -> None:
    """Several times one after the other, then recovered by another run or by the server."""
    rng = random.Random(seed)
    control = copy / "global/pg_control"
    before = control.read_bytes()
    killed, share = 0, 0.8
    while killed < KILLS_IN_CHAIN:
        memory = rng.choice(MEMORIES)
        process = begun(copy, memory)
        try:
            process.communicate(timeout=rng.uniform(0.01, share) * usual_s[memory])
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        assert process.returncode in (-9, 0)
        if process.returncode == -9:
            killed += 1
        else:  # Faster than usual. As if it had been killed right before its last write.
            control.write_bytes(before)
            share /= 2
            assert share > 0.001, "no run lasts until it is killed"
    print(f"killed {killed} times, at {share:g} of the usual time at most")
    ends_equally(crashed, copy, rng.choice(("leadline", "server")))


def injected(copy: Path, what: str, memory: int = 1 << 30) -> tuple[int, str]:
    """Recovers with a fault that strace puts into a system call. Exit code, and what is said to stderr."""
    process = begun(copy, memory, strace(), "-f", "-qqq", "-o", "/dev/null", "-e", f"inject={what}")
    _, told = process.communicate(timeout=120)
    return process.returncode, told.decode()


# A call that changes files, and the how manyth of a thread kills. In a list: one after the other on the same files.
CALLS = ["pwrite64:1", "pwrite64:20", "fsync:1", "fsync:15", "ftruncate:1", "rename:1", "rename:2", "unlink:1", "mkdir:1"]
CALLS_LONG = [f"pwrite64:{n}" for n in range(1, 120, 7)] + [f"fsync:{n}" for n in range(1, 90, 6)] + ["ftruncate:2", "unlink:3", "unlink:9"]


@pytest.mark.parametrize("by", ["leadline", "server"])
@pytest.mark.parametrize("calls", [[call] for call in (*CALLS, *CALLS_LONG)] if LONG else [CALLS], ids=lambda calls: "-".join(calls[:1]))
def test_killed_at_a_system_call(crashed: Crashed, copy: Path, calls: list[str], by: str) -> None:
    killed = 0
    for call in calls:
        name, number = call.split(":")
        # In passes more files are opened, made longer and written.
        code, _ = injected(copy, f"{name}:signal=SIGKILL:when={number}", memory=1 << 20)
        assert code in (-9, 0)
        killed += code == -9
    print(f"killed: {killed} of {len(calls)}")
    assert killed >= len(calls) * 2 // 3
    ends_equally(crashed, copy, by)


def test_without_room_for_a_temporary_file_the_log_is_read_several_times(crashed: Crashed, copy: Path) -> None:
    place = copy / "base/pgsql_tmp/pgsql_tmp_leadline"
    failure = "inject=unlink:error=ENOSPC"  # of this file only that of its records
    process = begun(copy, 1 << 20, strace(), "-f", "-qqq", "-o", "/dev/null", "-P", str(place), "-e", failure)
    said, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert int(said.split()[0]) > 1, said
    ends_equally(crashed, copy, "server")


FAILURES = ["pwrite64:error=ENOSPC:when=1+", "pwrite64:error=ENOSPC:when=25+", "fsync:error=EIO:when=3"]
FAILURES_LONG = [f"pwrite64:error=ENOSPC:when={n}+" for n in range(2, 100, 9)] + [
    "ftruncate:error=ENOSPC:when=1+",
    "rename:error=ENOSPC:when=1",
    "mkdir:error=ENOSPC:when=1",
    "pread64:error=EIO:when=30",
    "fsync:error=EIO:when=40",
    "unlink:error=EIO:when=1",
]


@pytest.mark.parametrize("failure", FAILURES + (FAILURES_LONG if LONG else []))
def test_a_full_or_broken_disk_leaves_the_server_its_recovery(crashed: Crashed, copy: Path, failure: str) -> None:
    code, told = injected(copy, failure)
    assert code == 1 and "LeadlineError" in told, (code, told)
    ends_equally(crashed, copy, "server")


@pytest.mark.parametrize("seed", range(FLIPS))
def test_a_flipped_bit_of_the_log(crashed: Crashed, copy: Path, replayed: list[dict[str, Any]], seed: int) -> None:
    """Refused with its place, and nothing is written; or it does not matter, as in what fills up a page."""
    rng = random.Random(seed)
    lsn = rng.randrange(position(replayed[0]["lsn"]), position(replayed[-1]["lsn"]))
    number, at = divmod(lsn, 16 << 20)
    flip(copy / "pg_wal" / f"00000001{number // 256:08X}{number % 256:08X}", at, 1 << rng.randrange(8))
    before = fingerprint(copy)
    with copied(copy, "flipped") as stock:
        done = recover(copy)
        if done.returncode == 0:
            settle(crashed[0], stock)
            settle(crashed[0], copy)
            assert differences(stock, copy) == []
            return
    assert done.returncode == 2, done.stdout
    assert re.search(r"at: .*LSN [0-9A-F]+/[0-9A-F]+|at: .*pg_wal", done.stderr), done.stderr
    assert fingerprint(copy) == before


def touched_pages(replayed: list[dict[str, Any]], forks: tuple[str, ...] = ("main", "vm")) -> dict[tuple[str, int], bool]:
    """Pages that the log names, by file and block; and whether its first record of a page has an image of it."""
    found: dict[tuple[str, int], bool] = {}
    for row in replayed:
        for block in row["blocks"]:
            if block["spcnode"] == 1663 and block["fork"] in forks:
                name = f"base/{block['dbnode']}/{block['relfilenode']}" + ("_vm" if block["fork"] == "vm" else "")
                found.setdefault((name, block["block"]), bool(block["fpi_apply"]))
    return found


def tear(page: bytearray, rng: random.Random) -> None:
    """One half is of another moment."""
    half = rng.choice((0, 4096))
    page[half : half + 4096] = rng.choice((bytes(4096), rng.randbytes(4096)))


def flip_one(page: bytearray, rng: random.Random) -> None:
    page[rng.randrange(8192)] ^= 1 << rng.randrange(8)


Damage = Callable[[bytearray, random.Random], None]


@pytest.mark.parametrize("damage", [tear, flip_one])
def test_damaged_pages_are_restored_from_their_images(
    crashed: Crashed, copy: Path, replayed: list[dict[str, Any]], damage: Damage
) -> None:
    """Every page that the log has an image of. Those of the visibility map are read as empty if they are damaged, by the server too."""
    rng = random.Random(7)
    damaged = 0
    for (name, block), has_image in touched_pages(replayed).items():
        path = copy / name
        if has_image and path.exists() and path.stat().st_size >= (block + 1) * 8192:
            with path.open("r+b") as file:
                file.seek(block * 8192)
                page = bytearray(file.read(8192))
                damage(page, rng)
                file.seek(block * 8192)
                file.write(page)
            damaged += 1
    assert damaged > 100
    ends_equally(crashed, copy, "leadline")


def test_a_damaged_page_without_an_image_is_refused_as_by_the_server() -> None:
    """full_page_writes is off."""
    with loaded(17, ChecksummedServer, **SETTINGS, full_page_writes=False) as server:
        with server.connect() as connection:
            connection.execute("create table t as select g, repeat('t', 100) as v from generate_series(1, 5000) g")
            connection.execute("checkpoint")
            connection.execute("update t set v = 'new' where g % 50 = 0")
            row = connection.execute("select pg_relation_filepath('t')").fetchone()
            assert row is not None
        data_dir = crash(server)
        flip(data_dir / row[0], 3 * 8192 + 5000)
        done = recover(data_dir)
        assert done.returncode == 2
        assert "block 3 of a file has a wrong checksum" in done.stderr and row[0] in done.stderr
        with pytest.raises(LeadlineError, match="the server ended while starting"):
            settle(server, data_dir)


@pytest.mark.parametrize("seed", CUTS)
def test_a_log_cut_at_random(crashed: Crashed, copy: Path, replayed: list[dict[str, Any]], seed: int) -> None:
    """Behind a record, or in the middle of one."""
    rng = random.Random(seed)
    starts = [position(row["lsn"]) for row in replayed]
    n = rng.randrange(len(starts) // 50, len(starts) - 1)
    lsn = starts[n] if seed % 2 else rng.randrange(starts[n], starts[n + 1])
    cut_log(copy, lsn)
    with copied(copy, "cut") as stock:
        done = recover(copy)
        if done.returncode:
            # The files are of a later time than the log: one that the log removes later is gone.
            assert "the WAL changes block" in done.stderr, done.stderr
            with pytest.raises(LeadlineError, match="the server ended while starting"):
                settle(crashed[0], stock)
            return
        try:
            settle(crashed[0], stock)
        except LeadlineError:
            # Or one is unlogged at that time, and has the files of a logged one. The server trips over them once, and then removes them.
            settle(crashed[0], stock)
        settle(crashed[0], copy)
        assert differences(stock, copy) == []


# -- refused, and left as it was ---------------------------------------------------------------------------------------


def put(data_dir: Path, at: int, value: bytes) -> None:
    """Changes a field of pg_control, and its checksum."""
    path = data_dir / "global/pg_control"
    content = bytearray(path.read_bytes())
    content[at : at + len(value)] = value
    content[288:292] = struct.pack("<I", crc32c(bytes(content[:288])))
    path.write_bytes(content)


def of_an_extension(data_dir: Path, replayed: list[dict[str, Any]]) -> None:
    """A record of the log becomes one of a resource manager of its own."""
    row = next(row for row in replayed[1:] if not row["blocks"] and row["rmgr"] == "Standby")
    lsn, length = position(row["lsn"]), row["record_length"]
    assert lsn % 8192 + length < 8192
    number, at = divmod(lsn, 16 << 20)
    path = data_dir / "pg_wal" / f"00000001{number // 256:08X}{number % 256:08X}"
    content = bytearray(path.read_bytes())
    content[at + 17] = 128
    content[at + 20 : at + 24] = struct.pack("<I", crc32c(bytes(content[at + 24 : at + length] + content[at : at + 20])))
    path.write_bytes(content)


REFUSALS: dict[str, tuple[Callable[[Path, list[dict[str, Any]]], None], str]] = {
    "system id": (lambda d, _: put(d, 0, struct.pack("<Q", 42)), "the WAL is from another server"),
    "segment size": (lambda d, _: put(d, 228, struct.pack("<I", 32 << 20)), "the WAL has segments of another size"),
    "block size": (lambda d, _: put(d, 216, struct.pack("<I", 16384)), "only data directories with pages of 8 kB"),
    "minRecoveryPoint": (lambda d, _: put(d, 136, struct.pack("<QI", 1 << 40, 1)), "the WAL ends before the data directory is consistent"),
    "custom resource manager": (of_an_extension, "the WAL has records of an extension"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_left_as_it_was(copy: Path, replayed: list[dict[str, Any]], name: str) -> None:
    change, message = REFUSALS[name]
    change(copy, replayed)
    before = fingerprint(copy)
    done = recover(copy)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr, done.stderr
    assert fingerprint(copy) == before


NOT_TOUCHED = ("base/1/1259", "pg_subtrans", "pg_logical", "pg_notify", "postmaster.opts", "postgresql.conf")
TOUCHED = ("pg_xact/0000", "global/pg_control", "base/1")


@pytest.mark.parametrize("name", NOT_TOUCHED + TOUCHED)
def test_what_the_server_could_not_use_is_named_before_anything_is_written(copy: Path, name: str) -> None:
    """Also what recovery does not need: the server would not start, or fail later."""
    path = copy / name
    mode, owner = path.stat().st_mode & 0o777, path.owner()
    path.chmod(0)
    try:
        for option in ((), ("--plan",)):
            error = json.loads(recover(copy, *option, "--json").stdout)["error"]
            assert (error["kind"], error["where"]) == ("rights", str(path)), error
            assert error["detail"] == f"it belongs to {owner}, mode 0000"
            assert error["hint"] == f"chmod u+rw{'x' if path.is_dir() else ''} {path}"
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, 0, 0)
            error = json.loads(recover(copy, "--json").stdout)["error"]
            assert error["where"] == str(path) and error["detail"].startswith("it belongs to root")
            assert error["hint"] == f"as root: chown {owner}:{path.parent.group()} {path}"
            subprocess.run(error["hint"].removeprefix("as root: "), shell=True, check=True)
    finally:
        path.chmod(mode)
    assert recover(copy, "--plan").returncode == 0


def test_all_files_of_another_owner_are_counted_and_one_command_mends_them(copy: Path) -> None:
    (copy / "pg_wal/lost+found").mkdir(mode=0)  # as where pg_wal is a file system: the server does not look into it
    if os.geteuid() == 0:
        names = ("base/1/1259", "pg_subtrans/0000", "pg_multixact/offsets")
        for name in names:
            os.chown(copy / name, 0, 0)
            (copy / name).chmod(0o700)
        error = json.loads(recover(copy, "--json").stdout)["error"]
        assert error["where"] == str(copy / names[0]) and error["detail"].endswith("; and 2 others")
        subprocess.run(error["hint"].removeprefix("as root: "), shell=True, check=True)
    assert recover(copy).returncode == 0


@pytest.mark.parametrize("names", [("pg_notify",), ("pg_replslot", "pg_twophase"), ("pg_subtrans", "pg_logical/snapshots")])
def test_folders_that_a_copy_left_out_are_named_before_anything_is_written(copy: Path, crashed: Crashed, names: tuple[str, ...]) -> None:
    """Those without which the server does not start. As the hint says, folders that were empty may be made."""
    for name in names:
        shutil.rmtree(copy / name)
    before = fingerprint(copy)
    error = json.loads(recover(copy, "--json").stdout)["error"]
    assert error["kind"] == "not_found" and all(name in error["detail"] for name in names)
    assert fingerprint(copy) == before
    with pytest.raises(LeadlineError):
        settle(crashed[0], copy)
    subprocess.run(error["hint"][error["hint"].index("mkdir") :], shell=True, check=True)
    about = copy.stat()
    for name in names:
        os.chown(copy / name, about.st_uid, about.st_gid)
    assert recover(copy).returncode == 0
    settle(crashed[0], copy)


def test_without_checksums_damage_is_not_hidden_either() -> None:
    """A page that the log has an image of is restored; a record that does not fit its page stops with its place."""
    with loaded(17, PlainServer, **SETTINGS, full_page_writes=False) as server:
        mixed_load(server)
        data_dir = crash(server)
        pages = [place for place, has_image in touched_pages(records(data_dir), ("main",)).items() if not has_image]
        found = 0
        for name, block in pages:
            path = data_dir / name
            if path.exists() and path.stat().st_size >= (block + 1) * 8192:
                with path.open("r+b") as file:
                    file.seek(block * 8192 + 24)
                    file.write(b"\xff" * 4000)  # line pointers to nowhere
                found += 1
        assert found
        done = recover(data_dir)
        assert done.returncode == 2, done.stdout
        assert "a record does not fit its page" in done.stderr
        assert re.search(r"relation .* block \d+, LSN [0-9A-F]+/", done.stderr), done.stderr

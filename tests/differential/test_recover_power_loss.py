"""leadline recover when the power fails: whatever the disk has then, another run or the server's own recovery gives the same bytes."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import LONG, Server, no_oracle
from leadline.files.copies import copy_cluster, differences
from power_loss import PAGE, Traced, Write, trace
from recovery import begun, copied, crashed_cluster, cut_log, only_in_long_runs, position, recover, settle, strace
from wal_rows import records

MOMENTS = 50 if LONG else 2
SEGMENT = 16 << 20
CONTROL = "global/pg_control"


@dataclass(frozen=True)
class Story:
    """base: what is on the disk when leadline begins: the last of the log is not, as after a crash of a server that had not yet synced it.

    traced: with little memory, and with enough. usual_s: how long a recovery takes.
    """

    server: Server
    crashed: Path
    expected: Path
    base: Path
    traced: list[Traced]
    usual_s: float


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with crashed_cluster(on_disk=True) as (server, crashed, expected):
        # What comes behind is of a transaction that has not ended, and of one whose end may be lost. They have removed no file.
        flushed = random.Random(1).choice(after_all_commits_but_one(crashed))
        with copied(crashed, "base") as base:
            cut_log(base, flushed)
            found = []
            for memory in ("1MB", "1GB"):
                with copied(crashed, "traced") as path:
                    traced = Traced(base)
                    put_back(traced, crashed, flushed)
                    trace(traced, strace(), path, tmp_path_factory.mktemp("calls") / "log", "--memory", memory, "--threads", 2)
                    found.append(traced)
            with copied(crashed, "usual") as path:
                process = begun(path, 1 << 20)
                started = time.monotonic()
                process.communicate(timeout=120)
            yield Story(server, crashed, expected, base, found, time.monotonic() - started)


def after_all_commits_but_one(data_dir: Path) -> list[int]:
    """Where the records begin between the last commit and the one before it."""
    places: list[list[int]] = [[]]
    for row in records(str(data_dir / "pg_wal")):
        places[-1].append(position(row["lsn"]))
        if (row["rmgr"], row["record_type"]) == ("Transaction", "COMMIT"):
            places.append([])
    return places[-2]


def put_back(traced: Traced, crashed: Path, flushed: int) -> None:
    """The last of the log, as the server has written and not synced it."""
    for path in sorted((crashed / "pg_wal").glob("0000*")):
        number = int(path.name[8:16], 16) * 256 + int(path.name[16:], 16)
        content = path.read_bytes()
        for at in range(max(0, flushed - number * SEGMENT) // PAGE * PAGE, len(content), PAGE):
            page = content[at : at + PAGE]
            file = traced.file(f"pg_wal/{path.name}")
            if any(page) and file is not None:
                traced.changes.append(Write(file, at, page))


def test_the_log_is_on_the_disk_before_what_it_changes(story: Story) -> None:
    """Else files would be of a time that no log reaches."""
    for traced in story.traced:
        assert any(traced.unsynced(1))
        assert not set(traced.unsynced(traced.first_beside("pg_wal/")))


def test_all_is_on_the_disk_before_the_control_file_says_so(story: Story) -> None:
    for traced in story.traced:
        begins = traced.first_of(CONTROL)
        assert not set(traced.unsynced(begins))
        assert not traced.never_synced(begins)
        assert not set(traced.unsynced(len(traced.changes)))


@pytest.mark.parametrize("seed", range(MOMENTS))
def test_the_power_fails_at_a_random_moment(story: Story, seed: int) -> None:
    rng = random.Random(seed)
    traced = story.traced[seed % 2]
    last = len(traced.changes)
    moment = rng.randrange(last) if seed % 3 else rng.randint(traced.first_of(CONTROL) - 40, last)
    print(f"after {moment} of {last} changes")
    with copied(story.base, "lost") as lost:
        traced.apply(moment, rng, lost)
        ends_equally(story, lost, rng)


def ends_equally(story: Story, lost: Path, rng: random.Random) -> None:
    (lost / "postmaster.pid").unlink(missing_ok=True)  # it names the folder that this is a copy of
    with expected_of(story, lost) as expected:
        by = rng.choice(("leadline", "server"))
        if by == "leadline":
            done = recover(lost)
            # Of the last of the log, a later part may be on the disk without an earlier one. The server ends there.
            if done.returncode:
                assert "the WAL is damaged" in done.stderr, done.stderr
                assert expected != story.expected, done.stderr
                by += " and the server"
        settle(story.server, lost)
        print(f"by {by}; the log is {'as it was' if expected == story.expected else 'shorter or longer'}")
        assert worse(expected, lost) == []


@contextmanager
def expected_of(story: Story, lost: Path) -> Iterator[Path]:
    """What the server makes of the files as they were before, with the log that is left."""
    if log_of(lost) == log_of(story.crashed):
        yield story.expected
        return
    with copied(story.base, "shorter") as path:
        shutil.rmtree(path / "pg_wal")
        shutil.copytree(lost / "pg_wal", path / "pg_wal")
        subprocess.run(["chown", "-R", "--reference", str(path), str(path / "pg_wal")], check=True)
        settle(story.server, path)
        yield path


def log_of(data_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (data_dir / "pg_wal").glob("0000*")}


def worse(expected: Path, found: Path) -> list[str]:
    """What is not equal, or of a visibility map has a bit more. One page of it may have lost bits when it was torn: it is read as empty."""
    wrong = []
    for line in differences(expected, found):
        name = line.split(":")[0]
        if name.endswith("_vm"):
            one, other = (path.read_bytes() for path in (expected / name, found / name))
            if len(one) == len(other) and all(b & ~a == 0 for at, (a, b) in enumerate(zip(one, other, strict=True)) if at % PAGE >= 24):
                continue
        wrong.append(line)
    return wrong


SHUT_DOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN: the file system ends as if the disk was gone."""
WITHOUT_FLUSH = struct.pack("I", 2)


@contextmanager
def mounted(image: Path, folder: Path, options: str) -> Iterator[None]:
    done = subprocess.run(["mount", "-o", f"loop,{options}", str(image), str(folder)], capture_output=True, text=True)
    if done.returncode:
        no_oracle(f"no file system of its own can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def write_back(files: list[Path], rng: random.Random, is_over: threading.Event) -> None:
    """What the kernel may do at any time: files go to the disk."""
    while not is_over.is_set():
        with suppress(OSError), rng.choice(files).open("rb") as file:
            os.fdatasync(file)


@only_in_long_runs
@pytest.mark.parametrize("seed", range(MOMENTS))
def test_a_file_system_ends_at_a_random_moment(story: Story, seed: int) -> None:
    """ext4 without its journal's last part, and with nothing of the page cache."""
    rng = random.Random(seed)
    image, folder = story.base.with_name("image"), story.base.with_name("disk")
    folder.mkdir(exist_ok=True)
    image.touch()
    os.truncate(image, 1 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    options = rng.choice(("data=ordered", "data=writeback,commit=1"))
    with mounted(image, folder, options):
        copy_cluster(story.base, folder / "data")
        os.sync()
        for path in (story.crashed / "pg_wal").glob("0000*"):
            with (folder / "data/pg_wal" / path.name).open("r+b") as file:
                file.write(path.read_bytes())
        is_over = threading.Event()
        changed = {change.file.name for change in story.traced[1].changes if isinstance(change, Write)}
        files = [folder / "data" / name for name in sorted(changed) if name.startswith("base/")]  # and none of the log
        writing = threading.Thread(target=write_back, args=(files, rng, is_over))
        process = begun(folder / "data", rng.choice((1 << 20, 1 << 30)))
        writing.start()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=rng.uniform(0.05, 1.5) * story.usual_s)
            assert process.returncode == 0
        shut_down = os.open(folder, os.O_RDONLY)
        fcntl.ioctl(shut_down, SHUT_DOWN, WITHOUT_FLUSH)
        os.close(shut_down)
        process.kill()
        process.communicate()
        is_over.set()
        writing.join()
    with mounted(image, folder, options), copied(folder / "data", "lost", story.base) as lost:
        ends_equally(story, lost, rng)
    image.unlink()

"""leadline wal page-at and wal apply against a recovery that ends at the same LSN: leadline's own, and the server's."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, Server, copy_folder
from crc import crc32c
from leadline._core import replay
from leadline._core.pages import page_read
from leadline.errors import LeadlineError
from recovery import ChecksummedServer, copied, copy_of, crash, cut_log, loaded, position, records, recover, started
from recovery_load import SETTINGS, TABLES, run

MOMENTS, PAGES, FILES = (25, 40, 6) if LONG else (2, 20, 4)
SERVERS = 10 if LONG else 1
BEFORE = """
create table a (id int primary key, v text, n int);
insert into a select g, repeat('x', g % 200), g from generate_series(1, 8000) g;
create index on a (n);
create table many (k int, v text);
insert into many select g % 50, repeat('m', g % 90) from generate_series(1, 5000) g;
create table parts (k int, v text) partition by list (k);
create table parts_1 partition of parts for values in (1);
create table parts_2 partition of parts for values in (2);
insert into parts select 1, 'p' || g from generate_series(1, 500) g;
create table shortened (a int, v text);
insert into shortened select g, repeat('s', 400) from generate_series(1, 4000) g;
create sequence s;
create table still as select g from generate_series(1, 1000) g;
create index still_g on still (g);
vacuum a;
"""
LOAD = """
delete from shortened where a > 500;
vacuum shortened;
insert into shortened select g, repeat('t', 300) from generate_series(1, 900) g;
create index many_v on many (v);
"""


@dataclass(frozen=True)
class Story:
    """A server; a copy of its data directory from when it was stopped in order; what it left when it crashed after a load; its records.

    still: the file of an index whose first page the load does not change.
    """

    server: Server
    backup: Path
    crashed: Path
    records: list[dict[str, Any]]
    still: str

    @contextmanager
    def with_log(self) -> Iterator[Path]:
        """The backup with all of the log. What the server left has lost files that it had at an earlier LSN."""
        with copied(self.backup, "until") as path:
            shutil.rmtree(path / "pg_wal")
            (path / "pg_wal").mkdir(mode=0o700)
            copy_folder(self.crashed / "pg_wal", path / "pg_wal")
            yield path

    def lsn(self, rng: random.Random) -> str:
        return str(self.records[rng.randrange(len(self.records) // 10, len(self.records))]["lsn"])

    def pages(self, until: str, rng: random.Random, count: int) -> list[tuple[str, int]]:
        """Pages that the log names before an LSN."""
        end = position(until)
        seen = {}
        for row in self.records:
            if position(row["lsn"]) < end:
                for block in row["blocks"]:
                    if block["spcnode"] == 1663 and block["fork"] in ("main", "vm"):
                        name = f"base/{block['dbnode']}/{block['relfilenode']}" + ("_vm" if block["fork"] == "vm" else "")
                        seen[name, block["block"]] = True
        return rng.sample(list(seen), min(count, len(seen)))

    def files(self, until: str, rng: random.Random, count: int) -> list[str]:
        """Files of the backup that the log changes before an LSN, each from the first on."""
        names = {name for name, _ in self.pages(until, rng, 1 << 30)}
        there = sorted(name for name in names if (self.backup / name).exists())
        of_tables = [name for name in there if int(Path(name).name.split("_")[0]) >= 16384]
        return rng.sample(of_tables, min(count - 1, len(of_tables))) + rng.sample(there, 1)


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    load = TABLES.replace("alter table cleared set tablespace space;\n", "").replace(" tablespace space", "")
    load = load.replace("create index many_k on many (k);\n", "")
    with loaded(17, ChecksummedServer, **SETTINGS | {"shared_buffers": "256MB"}) as server:
        with server.connect() as connection:
            run(connection, BEFORE)
        server.private.stop()
        backup = copy_of(server.private.data_dir, "backup")
        server.private.start()
        [[still]] = server.sql("select pg_relation_filepath('still_g')")
        with server.connect() as connection:
            run(connection, LOAD + load)
            connection.execute("create table last (a int)")
        crashed = crash(server)
        yield Story(server, backup, crashed, records(crashed), still)


def page_of(path: Path, block: int) -> bytes | None:
    """None where the file has no such page."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(block * 8192)
        return file.read(8192) or None


def page_at(data_dir: Path, name: str, block: int, lsn: str) -> tuple[bytes | None, str]:
    try:
        return replay.page_at(str(data_dir), name, block, lsn, threads=2)["bytes"], ""
    except LeadlineError as e:
        assert e.kind == "not_found", e
        return None, e.message


def applied(story: Story, name: str, lsn: str, output: Path, *options: object) -> tuple[bytes | None, str]:
    """What leadline wal apply makes; None and the error where there is none."""
    place = [str(story.backup / name), "--wal", str(story.crashed), "--to", lsn, "-o", str(output), "--force"]
    command = [sys.executable, "-m", "leadline", "wal", "apply", *place, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 2), done.stderr
    return (output.read_bytes(), "") if done.returncode == 0 else (None, done.stderr)


def without_checksum(page: bytes) -> bytes:
    return page[:8] + page[10:]


def is_empty(page: bytes | None) -> bool:
    """A page that was never written: the file is longer than what is in it."""
    return page is None or page == bytes(8192)


def compare(story: Story, recovered: Path, lsn: str, rng: random.Random, tmp_path: Path, pages: int, files: int) -> str:
    """Fails unless so many pages and files are those of the recovery. Gives how many pages there were, and how many not any more."""
    found = {True: 0, False: 0}
    without_image = 0
    for name, block in story.pages(lsn, rng, 1 << 30):
        if sum(found.values()) == pages:
            break
        page, why = page_at(story.crashed, name, block, lsn)
        wanted = page_of(recovered / name, block)
        if page is not None:
            assert wanted is not None and without_checksum(page) == without_checksum(wanted), (name, block, lsn)
        elif "no image of the page" in why:
            without_image += 1
            continue
        else:
            assert "did not exist" in why and is_empty(wanted), (name, block, lsn, why)
        found[page is not None] += 1
    same = 0
    for name in story.files(lsn, rng, files):
        made, why = applied(story, name, lsn, tmp_path / "file")
        if made is None:
            assert "the relation did not exist" in why, (name, lsn, why)
            assert not (recovered / name).exists()
        else:
            assert made == (recovered / name).read_bytes(), (name, lsn)
            block = rng.randrange(len(made) // 8192) if made else 0
            part, why = applied(story, name, lsn, tmp_path / "page", "--block", block)
            if made:
                assert part == made[block * 8192 : (block + 1) * 8192], (name, block, lsn, why)
            else:
                assert part is None, (name, lsn)
        same += 1
    assert sum(found.values()) == pages and found[True] >= pages // 4 and same == files
    return f"{lsn}: {found[True]} pages as they were, {found[False]} that were gone, {same} files; {without_image} pages without an image"


@pytest.mark.parametrize("seed", range(MOMENTS))
def test_pages_and_files_are_those_of_a_recovery_that_ends_there(story: Story, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    lsn = story.lsn(rng)
    with story.with_log() as recovered:
        shutil.copy2(story.crashed / "global/pg_control", recovered / "global/pg_control")
        cut_log(recovered, position(lsn))
        assert recover(recovered).returncode == 0
        print(compare(story, recovered, lsn, rng, tmp_path, PAGES, FILES))


@pytest.mark.parametrize("seed", range(100, 100 + SERVERS))
def test_pages_and_files_are_those_of_a_server_stopped_there(story: Story, seed: int, tmp_path: Path) -> None:
    """By recovery_target_lsn."""
    rng = random.Random(seed)
    lsn = story.lsn(rng)
    target = {"recovery_target_lsn": lsn, "recovery_target_inclusive": False, "recovery_target_action": "promote"}
    with story.with_log() as recovered:
        (recovered / "recovery.signal").touch()
        shutil.chown(recovered / "recovery.signal", recovered.stat().st_uid, recovered.stat().st_gid)
        with started(story.server, recovered, **target, restore_command="false", max_prepared_transactions=20) as server:
            assert "recovery stopping before WAL location" in server.private.log
        print(compare(story, recovered, lsn, rng, tmp_path, 40, FILES))


def test_what_cannot_be_made_is_refused(story: Story, tmp_path: Path) -> None:
    lsn = story.records[-1]["lsn"]
    [name] = story.files(lsn, random.Random(1), 1)
    output = tmp_path / "file"
    for until, message in [
        (story.records[0]["lsn"], "the backup is not older than"),
        (f"{(position(lsn) >> 32) + 1:X}/0", "the WAL does not reach"),
        ("what", "is not an LSN"),
    ]:
        made, told = applied(story, name, until, output)
        assert made is None and message in told, told
    made, told = applied(story, f"{name}_fsm", lsn, output)
    assert made is None and "free space maps are not in the WAL" in told, told
    with copied(story.backup, "odd") as backup:
        odd = replace(story, backup=backup)
        path = backup / story.still
        content = path.read_bytes()
        path.write_bytes(content[:100] + b"?" + content[101:])
        made, told = applied(odd, story.still, lsn, output)
        assert made is None and "block 0 of the file has a wrong checksum" in told, told
        path.write_bytes(struct.pack("<II", 9, 0) + content[8:])
        sum_ = struct.pack("<H", page_read(str(path), 0)["computed_checksum"])
        path.write_bytes(struct.pack("<II", 9, 0) + sum_ + content[10:])
        made, told = applied(odd, story.still, lsn, output)
        assert made is None and "the backup is newer than the moment" in told and "9/0" in told, told
        path.write_bytes(content)
        with started(story.server, backup, max_prepared_transactions=20):
            made, told = applied(odd, name, lsn, output)
            assert made is None and "the server of this file is running" in told, told
        control = backup / "global/pg_control"
        foreign = struct.pack("<Q", 7) + control.read_bytes()[8:288]
        control.write_bytes(foreign + struct.pack("<I", crc32c(foreign)) + bytes(8192 - 292))
        made, told = applied(odd, name, lsn, output)
        assert made is None and ("the WAL is from another server" in told), told
    assert not list(tmp_path.iterdir())

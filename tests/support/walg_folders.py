"""Folders of a real WAL-G, of a private server: a full backup and two delta backups, and the clusters that WAL-G restores of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from conftest import no_oracle
from quiet_tables import copied
from recovery import ChecksummedServer
from tar_backups import SETTINGS
from walg_changes import STEPS, TABLES

SMALL = {"WALG_TAR_SIZE_THRESHOLD": "1000000"}
VARIANTS = {
    "lz4": {},
    "zstd, by how often files change": {"WALG_COMPRESSION_METHOD": "zstd", "WALG_USE_RATING_COMPOSER": "true", **SMALL},
    "not compressed, by databases": {"WALG_COMPRESSION_METHOD": "none", "WALG_USE_DATABASE_COMPOSER": "true"},
    "by its list of changes": {"WALG_USE_WAL_DELTA": "true", **SMALL},
    "full each time, unchanged archives copied": {"WALG_DELTA_MAX_STEPS": "0", "WALG_USE_COPY_COMPOSER": "true"},
}


@dataclass(frozen=True)
class Folder:
    """backups, restored: the full one first. rows: after the last one. table, spaced: paths in the cluster. segments: those it archived."""

    path: Path
    backups: list[Path]
    restored: list[Path]
    rows: dict[str, str]
    table: str
    spaced: str
    segments: Path


def program() -> str:
    """wal-g is in no package: name it by LEADLINE_WALG, or have it on the PATH."""
    return os.environ.get("LEADLINE_WALG") or shutil.which("wal-g") or no_oracle("no wal-g on the PATH or in LEADLINE_WALG")


@contextmanager
def folder(bin_dir: Path, settings: dict[str, str], *full: str) -> Iterator[Folder]:
    """settings: of WAL-G. full: options of the full backup; "--remote": it comes by a connection of replication."""
    line = [program()]
    with ChecksummedServer(bin_dir, settings={**SETTINGS, "wal_keep_size": "1GB"}) as server:
        home, user = server.data_dir.parent / "walg", server._server_user()
        spaces, segments, store = server.data_dir.parent / "spaces", home / "segments", home / "store"
        for made in (home, spaces, segments, store):
            made.mkdir()
            user.own(made)
        given = {"PATH": os.environ["PATH"], "HOME": str(home), "WALG_FILE_PREFIX": str(store), "WALG_DELTA_MAX_STEPS": "5", **settings}
        given |= {"PGHOST": str(server.socket_dir), "PGPORT": str(server.port), "PGUSER": "postgres", "PGDATABASE": "postgres"}

        def do(*words: object) -> None:
            asked = [*line, *map(str, words)]
            done = subprocess.run(asked, env=given, cwd=home, capture_output=True, text=True, timeout=240, **user.popen_arguments())
            assert done.returncode == 0, done.stdout + done.stderr

        backups: list[Path] = []
        restored: list[Path] = []
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"create tablespace space location '{spaces}'")
            [space] = connection.execute("select oid from pg_tablespace where spcname = 'space'").fetchone() or (0,)

            def archive() -> None:
                [segment] = connection.execute("select pg_walfile_name(pg_switch_wal())").fetchone() or ("",)
                for path in sorted((server.data_dir / "pg_wal").glob("0*")):
                    if path.name <= segment and not (segments / path.name).exists() and len(path.name) == len(segment):
                        shutil.copy(path, segments)
                        do("wal-push", path)

            for number, statements in enumerate(STEPS):
                for statement in statements:
                    connection.execute(statement)
                archive()
                known = set(store.glob("basebackups_005/*/"))
                is_remote = number == 0 and "--remote" in full
                do("backup-push", *([] if is_remote else [server.data_dir]), *(word for word in full if number == 0 and not is_remote))
                [backup] = set(store.glob("basebackups_005/*/")) - known
                backups.append(backup)
                archive()
                restored.append(home / f"restored-{number}")
                spec = home / f"spec-{number}.json"
                where = {"loc": str(home / f"space-{number}"), "link": f"pg_tblspc/{space}"}
                spec.write_text(json.dumps({"base_prefix": str(restored[-1]), "tablespaces": [str(space)], str(space): where}))
                do("backup-fetch", restored[-1], backup.name, "--restore-spec", spec)
            rows = {name: copied(connection, name) for name in TABLES}
            paths = [connection.execute("select pg_relation_filepath(%s)", [name]).fetchone() for name in ("t", "grown")]
        yield Folder(store, backups, restored, rows, *(path[0] for path in paths if path), segments)

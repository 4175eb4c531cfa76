"""Catalogues of a real barman, of a private server: the second backup by each method, and what barman recovers of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from conftest import no_oracle, wait_until
from tar_backups import Source

METHODS = {
    "files": "backup_method = postgres",
    "archives": "backup_method = postgres\nbackup_compression = gzip\nbackup_compression_format = tar\ncompression = gzip",
    "copied": "backup_method = local-rsync\nreuse_backup = link",
}


@dataclass(frozen=True)
class Catalogue:
    """home: of barman, with all backups. backup: the newest. restored: the data directory that barman made of it, with its WAL."""

    home: Path
    backup: Path
    restored: Path

    @property
    def wals(self) -> Path:
        return self.backup.parent.parent / "wals"


@contextmanager
def catalogue(made: Source, method: str) -> Iterator[Catalogue]:
    """In the folder of the server, whose user runs barman. WAL comes from a pg_receivewal, which barman starts."""
    program = shutil.which("barman")
    if program is None or shutil.which("rsync") is None:
        no_oracle("no barman, or no rsync")
    server, home = made.server, made.server.data_dir.parent / f"barman-{method}"
    user = server._server_user()
    home.mkdir()
    user.own(home)
    user_name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True, **user.popen_arguments()).stdout.strip()
    where = f"host={server.socket_dir} port={server.port} user=postgres dbname=postgres"
    (home / "barman.conf").write_text(
        f"[barman]\nbarman_home = {home}\nbarman_user = {user_name}\nbarman_lock_directory = {home}\n"
        f"recovery_staging_path = {home}\nlog_file = {home}/barman.log\n"
        f"[main]\ndescription = of a test\nconninfo = {where}\nstreaming_conninfo = {where}\nstreaming_archiver = on\n"
        f"slot_name = barman_{method}\nimmediate_checkpoint = true\npath_prefix = {server.bin_dir}\n{METHODS[method]}\n"
    )
    line = [program, "-c", str(home / "barman.conf")]
    arguments = {"env": {"PATH": os.environ["PATH"], "HOME": str(home)}, "cwd": home, **user.popen_arguments()}

    def do(*words: str) -> str:
        done = subprocess.run([*line, *words], capture_output=True, text=True, timeout=120, **arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        do("receive-wal", "--create-slot", "main")
        receiver = subprocess.Popen(
            [*line, "receive-wal", "main"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, **arguments
        )
        stack.callback(receiver.wait, 60)
        stack.callback(os.killpg, receiver.pid, signal.SIGINT)  # also its pg_receivewal
        streaming, wals = home / "main" / "streaming", home / "main" / "wals"
        wait_until(lambda: any(streaming.glob("*.partial")), what="WAL at barman")

        def archived() -> None:
            """The WAL up to now is in the archive; barman leaves the last segment where it came."""
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                segments = []
                for _ in range(2):
                    connection.execute("select pg_logical_emit_message(true, 'test', 'a segment')")
                    segments += connection.execute("select pg_walfile_name(pg_switch_wal())").fetchone() or ()
            wait_until(lambda: (streaming / segments[1]).exists(), what="whole segments")
            do("archive-wal", "main")
            assert list(wals.rglob(segments[0]))

        archived()
        for _ in range(2):  # of the second one, rsync links what has not changed
            do("backup", "main")
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute("update t set v = v where n % 50 = 7")
            archived()
        backup = max((home / "main" / "base").iterdir())
        restored = home.with_name(f"{home.name}-restored")
        stack.callback(shutil.rmtree, restored)
        restored.mkdir(mode=0o700)
        user.own(restored)
        do("recover", "--tablespace", f"elsewhere:{home}/space", "main", backup.name, str(restored))
        yield Catalogue(home, backup, restored)

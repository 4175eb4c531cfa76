"""Clusters that pg_upgrade of this host made of those of an older major."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import Server, no_oracle
from leadline.engines.postgres.server.binaries import host_dirs
from leadline.engines.postgres.server.cluster import ClusterServer

# Servers that tests fetch come without two programs that pg_upgrade needs of the old major: pg_control of both is read by that of the host,
# and the WAL of the new cluster may begin at any segment that is far enough behind.
RESETWAL = """#!/bin/sh
[ "$1" = -V ] && exec {host}/pg_controldata -V
for last; do :; done
{host}/pg_controldata "$last"
echo "First log segment after reset:        000000010000000000000099"
"""


@contextmanager
def upgraded(old: Server) -> Iterator[tuple[Path, ClusterServer]]:
    """The upgraded copy of a cluster, and a server on it that was not started. The old one is stopped; its user must be `postgres`, its
    locale C.
    """
    newer = [found for found in host_dirs() if found.major > old.major and (found.bin_dir / "pg_upgrade").is_file()]
    host = newer[0] if newer else None
    if host is None:
        no_oracle("no pg_upgrade of a newer major on this host")
    old.private.stop()
    base, user = old.private.data_dir.parent, old.private._server_user()
    programs, new, work = base / "old programs", base / "new", base / "work"
    for folder in (programs, new, work):
        folder.mkdir()
    for name in ("postgres", "pg_ctl", "initdb"):
        _write(programs / name, f'#!/bin/sh\nexec {old.private.bin_dir}/{name} "$@"\n')
    (programs / "pg_controldata").symlink_to(Path(host.bin_dir) / "pg_controldata")
    _write(programs / "pg_resetwal", RESETWAL.format(host=host.bin_dir))
    for path in (programs, *programs.iterdir(), new, work):
        if not path.is_symlink():
            user.own(path)

    def run(*command: object) -> None:
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, timeout=300, **user.popen_arguments())
        logs = [log.read_text()[-800:] for log in new.glob("pg_upgrade_output.d/*/log/*.log")]
        assert done.returncode == 0, done.stdout + done.stderr + "\n".join(logs)

    run(host.bin_dir / "initdb", "-D", new, "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync")
    folders = ["-b", programs, "-B", host.bin_dir, "-d", old.private.data_dir, "-D", new]
    run(host.bin_dir / "pg_upgrade", *folders, "-U", "postgres", "-s", work)
    try:
        yield new, ClusterServer(host.bin_dir, new, settings={"autovacuum": False})
    finally:
        for folder in (programs, new, work):
            shutil.rmtree(folder)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)

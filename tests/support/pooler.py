"""A PgBouncer before a private server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from conftest import no_oracle, wait_until
from leadline.engines.postgres.server import PrivateServer

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
NOBODY = {"user": "nobody", "group": "nogroup", "extra_groups": []}  # it refuses to run as root


@contextmanager
def pooler(server: PrivateServer, size: int, **more: object) -> Iterator[int]:
    """The port of a PgBouncer with so many connections to the server. more: settings."""
    if PGBOUNCER is None:
        no_oracle("PgBouncer is not installed: apt-get install pgbouncer")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    user = psycopg.conninfo.conninfo_to_dict(server.loopback_dsn)["user"]
    with tempfile.TemporaryDirectory(prefix="leadline-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "users").write_text(f'"{user}" ""\n"stats" ""\n')
        settings = {
            "listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "trust", "auth_file": folder / "users",
            "pool_mode": "transaction", "default_pool_size": size,
        } | more  # fmt: skip
        databases = ["[databases]", f"postgres = host=127.0.0.1 port={server.port}"]
        lines = [*databases, "[pgbouncer]", *(f"{k} = {v}" for k, v in settings.items())]
        file = folder / "pgbouncer.ini"
        file.write_text("\n".join(lines) + "\n")
        process = subprocess.Popen([PGBOUNCER, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **NOBODY)
        try:
            wait_until(lambda: listens(port) or process.poll() is not None, what="PgBouncer")
            assert process.poll() is None
            yield port
        finally:
            process.terminate()
            process.wait(10)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True

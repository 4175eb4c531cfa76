"""A database with what users have, what is true of it, and how it comes back from what `leadline salvage` wrote."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from conftest import Server, find_client

SHOP = Path(__file__).with_name("salvage_shop.sql")
SINCE = "-- since "

DEFINITIONS = Path(__file__).with_name("salvage_definitions.sql")


def fill(server: Server) -> None:
    """Makes the database of salvage_shop.sql, without what this major does not have."""
    with server.connect() as connection:
        for statement in SHOP.read_text(encoding="utf-8").split("\n-- next\n"):
            since = int(statement.removeprefix(SINCE).split()[0]) if statement.startswith(SINCE) else 0
            if server.major >= since:
                connection.execute(statement.encode())


def definitions(server: Server) -> dict[str, str]:
    """What the server says of each object that a user made."""
    with server.connect() as connection:
        connection.execute("set search_path to ''")
        rows = connection.execute(DEFINITIONS.read_bytes()).fetchall()
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def rows_of(server: Server) -> dict[str, Any]:
    """The rows of each table, the values of each sequence and the large objects."""
    found: dict[str, Any] = {}
    with server.connect() as connection:
        connection.execute("set search_path to ''")
        tables = connection.execute("select oid::regclass::text from pg_class where oid >= 16384 and relkind in ('r', 'm')").fetchall()
        for (table,) in tables:
            with connection.cursor().copy(f"copy (select * from only {table}) to stdout".encode()) as copy:
                found[table] = sorted(b"".join(copy).splitlines())
        for (sequence,) in connection.execute("select oid::regclass::text from pg_class where oid >= 16384 and relkind = 'S'").fetchall():
            found[sequence] = connection.execute(f"select last_value, is_called from {sequence}".encode()).fetchone()
        for (oid,) in connection.execute("select oid::int from pg_largeobject_metadata").fetchall():
            content = connection.execute("select pg_catalog.lo_get(%s::pg_catalog.int4::pg_catalog.oid)", (oid,)).fetchone()
            found[f"large object {oid}"] = content
    return found


def restore(folder: Path, database: str, server: Server) -> None:
    """As the command says at its end."""
    psql = find_client("psql")
    for script, at in ((folder / "globals.sql", folder), ("restore.sql", folder / database)):
        command = [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", server.dsn, "-f", str(script)]
        done = subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr

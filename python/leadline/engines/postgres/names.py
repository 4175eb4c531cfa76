"""Names of relations, databases and roles for `top`: over a short SQL connection where there is a connection string, else from files."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from leadline.capture.store import Row
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog import queries
from leadline.engines.postgres.catalog.connection import Connection, connect
from leadline.engines.postgres.catalog.files import collect
from leadline.engines.postgres.catalog.sql import RELATION_LIMIT
from leadline.engines.postgres.target import PostgresServer
from leadline.errors import LeadlineError
from leadline.figures import one_line

MOST_DATABASES = 5
CONNECT_TIMEOUT_S = 3

Rows = dict[str, list[Row]]
Read = Callable[[set[int]], Rows]


def reader(target: PostgresServer, dsn: str | None) -> Read:
    """How names of this target are read: over SQL, else from files, which also serve while the server takes no connection."""

    def read(databases: set[int]) -> Rows:
        if dsn is None:
            return from_files(target)
        try:
            return over_sql(dsn, databases)
        except (LeadlineError, psycopg.Error) as e:
            if target.pid is None:
                raise e if isinstance(e, LeadlineError) else LeadlineError("connection", one_line(str(e))) from e
            return from_files(target)

    return read


def over_sql(dsn: str, wanted: set[int]) -> Rows:
    """Names of the connected database and of the wanted ones. Sizes are the planner's: nothing is opened for them."""
    with connect(dsn, timeout_s=CONNECT_TIMEOUT_S) as conn:
        rows: Rows = {
            "database": conn.execute(queries.DATABASES.replace("{sizes}", "false").encode()).fetchall(),
            "role": conn.execute(queries.ROLES.encode()).fetchall(),
            "relation": _relations(conn, shared=True),
        }
        connected = conn.info.dbname
    others = [row[1] for row in rows["database"] if row[0] in wanted and row[1] != connected]
    for name in others[:MOST_DATABASES]:
        try:
            with connect(dsn, dbname=name, timeout_s=CONNECT_TIMEOUT_S) as conn:
                rows["relation"] += _relations(conn, shared=False)
        except (LeadlineError, psycopg.Error):
            continue  # its relations stay numbers
    return rows


def _relations(conn: Connection, *, shared: bool) -> list[Row]:
    sql = queries.RELATIONS.replace("{size}", queries.SIZE_BY_PLANNER).replace("{limit}", str(RELATION_LIMIT))
    return conn.execute(sql.replace("{shared}", "" if shared else "and not c.relisshared").encode()).fetchall()


def from_files(target: PostgresServer) -> Rows:
    """Names of all databases from the files of a server on this host. Raises LeadlineError or OSError."""
    if target.pid is None:
        raise LeadlineError("unsupported", "the server's files are not on this host")
    return collect(postmaster.data_path(target.pid)).rows

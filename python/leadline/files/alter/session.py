"""The connection that `alter` changes rows through: nothing of it waits long, fires code of users or overlooks rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import make_conninfo

from leadline.engines.postgres.catalog.connection import Connection, connection_error, parse_dsn, safe_dsn
from leadline.errors import LeadlineError

APPLICATION_NAME = "leadline alter"
CONNECT_TIMEOUT_S = 10
SETTINGS = {
    "lock_timeout": "200ms",  # rows are never waited for; this is for the table, while somebody alters it
    "statement_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",  # should this process be stopped between two statements
    "idle_session_timeout": "0",  # files are looked at for long
    "transaction_timeout": "0",
    "default_transaction_isolation": "read committed",
    "synchronous_commit": "off",  # locks are not held while a disk or a replica is waited for; what is lost is found again
    "row_security": "off",  # an error where a policy would hide rows
    "enable_seqscan": "off",  # rows are fetched by their place
    "jit": "off",
    "client_min_messages": "error",
}
SINCE = {"idle_session_timeout": 140000, "transaction_timeout": 170000}


def open_session(dsn: str) -> Connection:
    """A connection in autocommit mode with the settings above. Raises LeadlineError."""
    name = parse_dsn(dsn).get("application_name", APPLICATION_NAME)
    try:
        own = {"application_name": name, "connect_timeout": CONNECT_TIMEOUT_S, "client_encoding": "utf8"}
        connection = psycopg.connect(make_conninfo(dsn, **own), autocommit=True)
    except psycopg.Error as e:
        raise connection_error(e, dsn) from None
    [pid] = connection.execute("select pg_catalog.pg_backend_pid()").fetchone() or (0,)
    if pid != connection.info.backend_pid:
        connection.close()
        raise LeadlineError(
            "unsupported",
            "the connection goes through a pooler",
            detail="settings that prevent triggers from firing would remain in a session that other clients reuse",
            hint="connect directly to the server, to its own port or socket",
            where=safe_dsn(dsn),
        )
    for name, value in SETTINGS.items():
        if connection.info.server_version >= SINCE.get(name, 0):
            connection.execute("select pg_catalog.set_config(%s, %s, false)", [name, value])
    return connection


def narrow_search_path(connection: Connection) -> str:
    """Has names mean the server's own functions, whatever others made in the schemas of the search path; says what that was."""
    [path] = connection.execute("show search_path").fetchone() or ("",)
    connection.execute("set search_path = pg_catalog")
    return str(path)


_ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")  # ended by an administrator, a crash, a timeout of the session


@contextmanager
def told() -> Iterator[None]:
    """What the server refuses, as the one error a user sees."""
    try:
        yield
    except psycopg.Error as e:
        said = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        again = "run the command again: committed work is kept and not repeated"
        if isinstance(e, psycopg.errors.InsufficientPrivilege):
            message = "this role cannot rewrite rows of the table"
            raise LeadlineError("rights", message, detail=said, hint="run as the owner of the table") from e
        if isinstance(e, psycopg.errors.LockNotAvailable):
            raise LeadlineError("query", "the table is locked", detail=said, hint="find the holder with leadline top; then " + again) from e
        if isinstance(e, psycopg.OperationalError) and (e.sqlstate is None or e.sqlstate[:2] == "08" or e.sqlstate in _ENDED):
            raise LeadlineError("gone", "lost the connection to the server", detail=said, hint=again) from e
        more = f": {e.diag.message_detail}" if e.diag.message_detail else ""
        raise LeadlineError("query", "the server rejected a statement", detail=said + more, hint=again) from e


def checkpoint(connection: Connection) -> str | None:
    """Has the server write its pages; why not, when it may not."""
    try:
        connection.execute("set statement_timeout = 0")
        connection.execute("checkpoint")
    except psycopg.errors.InsufficientPrivilege as e:
        return str(e).strip().splitlines()[0]
    finally:
        connection.execute("select pg_catalog.set_config('statement_timeout', %s, false)", [SETTINGS["statement_timeout"]])
    return None


def checkpoint_of(dsn: str) -> None:
    """The same on a connection of its own. Raises LeadlineError."""
    if dsn.isdigit() or ("=" not in dsn and "://" not in dsn and dsn.startswith(("/", "."))):
        hint = "leadline alter pending postgres:///DATABASE --checkpoint"
        raise LeadlineError("usage", "--checkpoint needs a connection string", hint=hint)
    with told(), open_session(dsn) as connection:
        why = checkpoint(connection)
    if why:
        raise LeadlineError(
            "rights", "this role cannot run CHECKPOINT", detail=why, hint="from 15 on: grant pg_checkpoint to ROLE", where=safe_dsn(dsn)
        )

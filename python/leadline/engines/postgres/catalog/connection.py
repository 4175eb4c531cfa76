"""Short read-only connections to a server, and what their failures mean to a user.

Passwords are never part of a message: `safe_dsn` is what may be shown or stored.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leadline.errors import LeadlineError
from leadline.figures import one_line

APPLICATION_NAME = "leadline"
SECRET_PARAMETERS = ("password", "sslpassword", "oauth_client_secret")
STATEMENT_TIMEOUT_MS = 5000
LOCK_TIMEOUT_MS = 100  # never stand long in a lock queue of the server under test
CONNECT_TIMEOUT_S = 5

Connection = psycopg.Connection[tuple[Any, ...]]


def parse_dsn(dsn: str) -> dict[str, Any]:
    """The parts of a connection string (URI or key=value). Raises LeadlineError('usage')."""
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        # libpq's own message quotes the string around the fault, which may be the password
        raise LeadlineError(
            "usage",
            "cannot parse the connection string",
            detail="expected postgresql://USER@HOST:PORT/DATABASE or pairs such as host=HOST port=5432 dbname=DATABASE",
            hint="quote values with blanks: password='two words'; percent-encode them in a URI",
        ) from None


def safe_dsn(dsn: str) -> str:
    """The connection string without its secrets, as key=value pairs."""
    return make_conninfo("", **{key: value for key, value in parse_dsn(dsn).items() if key not in SECRET_PARAMETERS})


def connect(
    dsn: str, *, dbname: str | None = None, timeout_s: int = CONNECT_TIMEOUT_S, own_names: bool = False, as_others: bool = False
) -> Connection:
    """Opens a connection in autocommit mode whose statements read only and end by themselves.

    Names mean what the system has under them, whatever others made in the schemas of the user's search path, with rights that are
    this user's when it is used. own_names: they mean what they mean to the user; statements then name the system's things in full.
    as_others: without limits and settings of ours, to see those that other sessions have.
    dbname: another database of the same server. Raises LeadlineError('usage', 'connection' or 'rights').
    """
    given = parse_dsn(dsn)
    parameters: dict[str, Any] = {}
    if dbname is not None:
        parameters["dbname"] = dbname
    if "application_name" not in given:
        parameters["application_name"] = APPLICATION_NAME
    parameters["client_encoding"] = "utf8"  # a database in SQL_ASCII would give its texts as bytes
    if "connect_timeout" not in given and "PGCONNECT_TIMEOUT" not in os.environ:
        parameters["connect_timeout"] = timeout_s
    limits = f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} -c default_transaction_read_only=on"
    if not own_names:
        limits += " -c search_path=pg_catalog"
    own_options = given.get("options", os.environ.get("PGOPTIONS", ""))
    try:
        if as_others:
            return psycopg.connect(dsn, autocommit=True, **parameters)
        return psycopg.connect(dsn, autocommit=True, options=f"{own_options} {limits}".strip(), **parameters)
    except psycopg.Error as e:
        if "unsupported startup parameter" not in str(e):
            raise connection_error(e, dsn) from None
    try:  # a pooler that takes no options: go without our limits
        return psycopg.connect(dsn, autocommit=True, **parameters)
    except psycopg.Error as e:
        raise connection_error(e, dsn) from None


_MEANINGS = (  # part of libpq's English message, kind, our message, hint
    (
        ("password authentication failed", "no password supplied"),
        "rights",
        "the server refused the password",
        "give it with PGPASSWORD, ~/.pgpass or in the connection string",
    ),
    (
        ("Peer authentication failed", "Ident authentication failed", "no pg_hba.conf entry", "pg_hba.conf rejects"),
        "rights",
        "the server does not let this user in",
        "set a user with user=NAME, or add a line for it to pg_hba.conf and run: select pg_reload_conf()",
    ),
    (
        ("does not exist",),
        "connection",
        "no such database or role on the server",
        "psql -l lists databases, \\du in psql lists roles",
    ),
    (
        ("too many clients", "remaining connection slots", "too many connections"),
        "connection",
        "the server has no free connection slot",
        "capture without a connection, on the server's host: leadline take --pid POSTMASTER_PID",
    ),
    (("starting up", "shutting down", "in recovery mode"), "connection", "the server is not ready for connections", "wait until it is up"),
    (
        ("translate host name", "resolve host", "Name or service not known"),
        "connection",
        "unknown host name",
        "check the host in the connection string",
    ),
    (
        ("timeout expired", "timed out", "connection timeout"),
        "connection",
        "the server did not answer in time",
        "check host, port and firewall",
    ),
)


def connection_error(error: psycopg.Error, dsn: str) -> LeadlineError:
    """The one error a user sees when no connection could be made."""
    text = one_line(str(error))
    for parts, kind, message, hint in _MEANINGS:
        if any(part in text for part in parts):
            return LeadlineError(kind, message, detail=text, hint=hint, where=safe_dsn(dsn))
    return LeadlineError(
        "connection",
        "the server cannot be reached",
        detail=text,
        hint="check host, port and socket directory; is the server running? ss -ltnx | grep -i -e 5432 -e PGSQL",
        where=safe_dsn(dsn),
    )

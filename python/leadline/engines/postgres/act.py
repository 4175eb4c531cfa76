"""Cancel a statement or terminate a session, as the server's function would, or with the signal behind it."""

from __future__ import annotations

import os
import signal

import psycopg

from leadline.engines.live import Deed, Session
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog.connection import connect
from leadline.engines.postgres.target import PostgresServer
from leadline.errors import LeadlineError
from leadline.figures import one_line

# The others would take the server's own work with them: a checkpointer that is asked to end shuts the server down.
MAY_END = ("client backend", "parallel worker", "autovacuum worker", "walsender")


# The server's function, and the signal that it sends.
_FUNCTIONS = {"cancel": ("pg_cancel_backend", signal.SIGINT), "terminate": ("pg_terminate_backend", signal.SIGTERM)}


def command(deed: Deed, pid: int) -> str:
    """What does the same by hand."""
    return f"select {_FUNCTIONS[deed.name][0]}({pid});"


def refusal(deed: Deed, session: Session) -> str:
    """Why this process is left alone; empty if it may be asked."""
    kind = session.backend_type
    if kind in MAY_END:
        return ""
    return f"pid {session.pid} is a process of the server ({kind or 'unknown'}): {deed.name} is for sessions only"


def carry_out(deed: Deed, target: PostgresServer, dsn: str | None, session: Session) -> str:
    """What came of it, in one sentence. Never raises: who may not do it is told so, with the command for somebody who may."""
    if why := refusal(deed, session):
        return why
    pid = session.pid
    try:
        told = _over_sql(deed, dsn, session) if dsn is not None else _by_signal(deed, target, pid)
    except (LeadlineError, psycopg.Error, OSError) as e:
        why = e.message if isinstance(e, LeadlineError) else one_line(str(e))
        return f"pid {pid}: not done: {why}. By hand: {command(deed, pid)}"
    return f"pid {pid} was {deed.done}" if told else f"pid {pid} has ended"


def _over_sql(deed: Deed, dsn: str, session: Session) -> bool:
    """Only if the pid is still the same session: another one may have got it since."""
    same = f"""
        select pg_catalog.{_FUNCTIONS[deed.name][0]}(pid) from pg_catalog.pg_stat_activity
        where pid = %s and coalesce(abs(extract(epoch from backend_start) * 1000000 - %s) < 1000, true)"""
    with connect(dsn) as connection:
        row = connection.execute(same.encode(), [session.pid, session.backend_start]).fetchone()
    return row is not None and bool(row[0])


def _by_signal(deed: Deed, target: PostgresServer, pid: int) -> bool:
    """Without a connection: the signal itself, which root and the server's user may send."""
    if target.pid is None:
        raise LeadlineError("rights", "there is no connection to the server")
    found = postmaster.children_by_inner_pid(target.pid).get(pid)
    if found is None:
        return False
    descriptor = os.pidfd_open(found)  # the process that is looked at is the one that is told
    try:
        if postmaster.postmaster_of(found) != target.pid:
            return False
        signal.pidfd_send_signal(descriptor, _FUNCTIONS[deed.name][1])
    finally:
        os.close(descriptor)
    return True

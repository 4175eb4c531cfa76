"""A primary and its standby that the user named: whether they are a pair, before a study changes anything."""

from __future__ import annotations

from typing import Any

import psycopg

from leadline.errors import LeadlineError

ABOUT = "select pg_is_in_recovery(), (select system_identifier from pg_control_system())"
SYNCHRONOUS = "select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')"


def check(primary: str, standby: str | None) -> None:
    """Raises LeadlineError for servers that are no pair, and for a primary that waits for no standby."""
    recovers, system = _asked(primary, ABOUT, "--primary")
    if recovers:
        raise LeadlineError("usage", "this server is a standby", hint="name its primary", where="--primary")
    if standby is not None:
        recovers, other = _asked(standby, ABOUT, "--standby")
        if not recovers or other != system:
            said = "is no standby" if not recovers else "is a standby of another cluster"
            raise LeadlineError("usage", f"this server {said}", hint="name a standby of the server of --primary", where="--standby")
    if not _asked(primary, SYNCHRONOUS, "--primary")[0]:
        hint = "set synchronous_standby_names there, and connect as a user with pg_read_all_stats"
        raise LeadlineError("usage", "no synchronous standby of this server is seen", hint=hint, where="--primary")


def _asked(dsn: str, query: str, where: str) -> Any:
    try:
        with psycopg.connect(dsn, autocommit=True, connect_timeout=10, application_name="leadline study") as connection:
            return connection.execute(query.encode()).fetchone()
    except psycopg.Error as e:
        raise LeadlineError("connection", "a server of the pair cannot be asked", detail=" ".join(str(e).split()), where=where) from e

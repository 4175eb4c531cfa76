"""Reads names, settings and counters over a short SQL connection.

Each query stands alone: one that fails for lack of rights or time becomes a note, and the rest is read all the same.
"""

from __future__ import annotations

import datetime
import decimal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.adapt import Loader

from leadline.engines.postgres.catalog import commands, queries
from leadline.engines.postgres.catalog.connection import Connection, connect
from leadline.engines.postgres.catalog.secrets import mask_setting
from leadline.errors import LeadlineError
from leadline.figures import one_line

RELATION_LIMIT = 50_000  # per database
DATABASE_LIMIT = 5  # databases beside the connected one whose relations are listed
Row = tuple[Any, ...]


@dataclass
class Collected:
    """Rows by table, in the order of the table's columns, and what could not be read."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, table: str, rows: Iterable[Row]) -> None:
        self.rows.setdefault(table, []).extend(rows)


def major_of(server_version_num: int) -> int:
    return server_version_num // 10_000


def collect_static(conn: Connection, dsn: str | None = None) -> Collected:
    """Settings, authentication rules, databases and roles: what hardly changes within a window.

    dsn: to read what other sessions have in place of what leadline sets for its own; else these settings are left out.
    """
    found = Collected()
    settings = _query(conn, queries.SETTINGS, "pg_settings", found) or []
    if any(row[0] in queries.OWN_SETTINGS and row[3] == "client" for row in settings):
        others = _settings_of_others(dsn, conn.info.dbname, found) if dsn is not None else {}
        settings = [others.get(row[0], row) for row in settings if row[0] not in queries.OWN_SETTINGS or row[0] in others]
    found.add("setting", [(r[0], mask_setting(r[0], r[1]), *r[2:4], mask_setting(r[0], r[4]), *r[5:]) for r in settings])
    found.add("hba_rule", _query(conn, queries.HBA_RULES, "pg_hba_file_rules", found) or [])
    databases = _query(conn, queries.DATABASES.replace("{sizes}", "true"), "database sizes", found)
    if databases is None:
        databases = _query(conn, queries.DATABASES.replace("{sizes}", "false"), "pg_database", found)
    found.add("database", databases or [])
    found.add("role", _query(conn, queries.ROLES, "pg_roles", found) or [])
    return found


def _settings_of_others(dsn: str, dbname: str, found: Collected) -> dict[str, Row]:
    """Those of OWN_SETTINGS that a session has which asks for nothing, by name; none where that cannot be read."""
    try:
        with connect(dsn, dbname=dbname, as_others=True) as conn:
            return {row[0]: row for row in _query(conn, queries.SETTINGS, "pg_settings", found) or [] if row[0] in queries.OWN_SETTINGS}
    except LeadlineError as e:
        found.notes.append(f"{', '.join(queries.OWN_SETTINGS)} not read: {e.message}")
        return {}


def collect_counters(conn: Connection, phase: str) -> Collected:
    """The statistics views as server_stat rows. phase: before or after."""
    found = Collected()
    views = queries.views_of(major_of(conn.info.server_version))
    extension = _query(conn, queries.STATEMENTS_FUNCTION, "pg_extension", found)
    if extension:
        schema, columns = extension[0]
        views.append(queries.StatView("pg_stat_statements", queries.statements(schema, columns), ("queryid",)))
        ts = time.monotonic_ns()
        counted = commands.counted(_query(conn, commands.query(schema), "texts of pg_stat_statements", found) or [])
        found.add("server_stat", [(ts, phase, commands.VIEW, name, "calls", calls) for name, calls in counted.items()])
    elif phase == "after":
        found.notes.append("pg_stat_statements is not installed in the connected database: no counters per statement")
    for view in views:
        found.add("server_stat", _stat_rows(conn, view, phase, found))
    return found


def collect_relations(conn: Connection, *, shared: bool = True) -> Collected:
    """Relations of the connected database, with those shared by all unless told otherwise."""
    found = Collected()
    name = f"relations of {conn.info.dbname}"
    for size in (queries.SIZE_ON_DISK, queries.SIZE_BY_PLANNER):
        sql = queries.RELATIONS.replace("{size}", size).replace("{limit}", str(RELATION_LIMIT))
        rows = _query(conn, sql.replace("{shared}", "" if shared else "and not c.relisshared"), name, found)
        if rows is not None:
            found.add("relation", rows)
            if len(rows) >= RELATION_LIMIT:
                found.notes.append(f"{name}: only the {RELATION_LIMIT} largest were listed")
            break
    return found


def collect_other_databases(dsn: str, connected: str, busy: Iterable[str]) -> Collected:
    """Relations of other databases that were used in the window, the busiest first, one short connection each."""
    found = Collected()
    wanted = [name for name in busy if name != connected]
    for name in wanted[:DATABASE_LIMIT]:
        try:
            with connect(dsn, dbname=name, timeout_s=2) as conn:
                part = collect_relations(conn, shared=False)
        except LeadlineError as e:
            found.notes.append(f"relations of database {name} were not read: {e.message} ({e.detail})")
            continue
        found.add("relation", part.rows.get("relation", []))
        found.notes += part.notes
    if len(wanted) > DATABASE_LIMIT:
        found.notes.append(f"relations of {len(wanted) - DATABASE_LIMIT} less busy databases were not read")
    return found


def not_looked_at(connected: str, busy: Iterable[str]) -> list[str]:
    """What a reader has to know about the tables of other databases."""
    others = [name for name in busy if name != connected]
    more = f" and {len(others) - DATABASE_LIMIT} more" if len(others) > DATABASE_LIMIT else ""
    note = f"table statistics are those of database {connected}: tables of {', '.join(others[:DATABASE_LIMIT])}{more} were not looked at"
    return [note] if others else []


def busy_databases(before: Iterable[Row], after: Iterable[Row]) -> list[str]:
    """Databases with sessions or transactions in the window, the busiest first, from two sets of server_stat rows."""
    start = {row[3]: row[5] for row in before if row[2] == "pg_stat_database" and row[4] == "xact_commit"}
    commits = {row[3]: row[5] - start.get(row[3], 0.0) for row in after if row[2] == "pg_stat_database" and row[4] == "xact_commit"}
    backends = {row[3]: row[5] for row in after if row[2] == "pg_stat_database" and row[4] == "numbackends"}
    used = [name for name in commits if not name.startswith("(") and (backends.get(name, 0) > 0 or commits[name] > 10)]
    return sorted(used, key=lambda name: (-commits[name], name))


def _query(conn: Connection, sql: str, what: str, found: Collected) -> list[Row] | None:
    """The rows; None with a note when the server does not give them."""
    try:
        return conn.execute(sql).fetchall()
    except psycopg.Error as e:
        if conn.closed:
            raise LeadlineError("gone", "the server closed the connection", detail=one_line(str(e))) from e
        found.notes.append(f"{what} not read: {one_line(str(e))}")
        return None


class _LsnLoader(Loader):
    """An LSN as its byte position."""

    def load(self, data: Any) -> int:
        high, _, low = bytes(data).partition(b"/")
        return (int(high, 16) << 32) + int(low, 16)


class _NumberLoader(Loader):
    """xid, xid8 and oid text as a number."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


class _IntervalLoader(Loader):
    """An interval is asked for in seconds (intervalstyle iso would differ); months and days never occur in lags."""

    def load(self, data: Any) -> float | None:
        text = bytes(data).decode()
        sign, text = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
        parts = text.split(":")
        if len(parts) != 3:
            return None
        return sign * (int(parts[0]) * 3600 + int(parts[1]) * 60 + float(parts[2]))


def _stat_rows(conn: Connection, view: queries.StatView, phase: str, found: Collected) -> list[Row]:
    rows: list[Row] = []
    with conn.cursor() as cursor:
        for type_name, loader in (("pg_lsn", _LsnLoader), ("xid", _NumberLoader), ("xid8", _NumberLoader), ("interval", _IntervalLoader)):
            cursor.adapters.register_loader(type_name, loader)
        ts = time.monotonic_ns()
        try:
            cursor.execute(view.sql.encode())
            fetched = cursor.fetchall()
        except psycopg.Error as e:
            if conn.closed:
                raise LeadlineError("gone", "the server closed the connection", detail=one_line(str(e))) from e
            found.notes.append(f"{view.view} not read: {one_line(str(e))}")
            return []
        names = [column.name for column in cursor.description or []]
    for values in fetched:
        row = dict(zip(names, values))
        key = "/".join(str(row[k]) if row[k] is not None else "" for k in view.key)
        rows += [
            (ts, phase, view.view, key, name, number)
            for name, value in row.items()
            if name not in view.key and (number := as_number(value)) is not None
        ]
    return rows


def as_number(value: Any) -> float | None:
    """A column value as server_stat stores it: booleans 0 and 1, times unix seconds; None for text and nulls."""
    if isinstance(value, (bool, int, float, decimal.Decimal)):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return None

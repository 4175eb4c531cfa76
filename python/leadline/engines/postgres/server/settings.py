"""Settings of a running server: changed by ALTER SYSTEM, proved in a new session, and put back as they were.

What was there before is one value for each name, of postgresql.auto.conf, or None: with it alone the server can be put back, also by
another process after a crash.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from leadline.errors import LeadlineError
from leadline.units import MB

AUTO = "postgresql.auto.conf"
RELOADED_WITHIN_S, RESTARTED_WITHIN_S = 20.0, 120.0
# Lists whose elements ALTER SYSTEM quotes by itself: each must be given alone.
QUOTED_LISTS = (
    "local_preload_libraries", "search_path", "session_preload_libraries", "shared_preload_libraries", "temp_tablespaces",
    "unix_socket_directories",
)  # fmt: skip
UNITS = {"B": 1, "kB": 1 << 10, "MB": MB, "GB": MB << 10, "TB": MB << 20}
TIMES = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": 8.64e7}
TRUE, FALSE = ("on", "true", "yes", "1"), ("off", "false", "no", "0")
Connect = Callable[[], "psycopg.Connection[Any]"]
Restart = Callable[[], None]


@dataclass(frozen=True)
class Known:
    """A setting, as pg_settings says. context: what a change of it takes."""

    name: str
    context: str
    kind: str
    unit: str
    value: str
    source: str
    shown: str
    pending_restart: bool


@dataclass(frozen=True)
class Effect:
    """shown: the value that a new session has, with its unit. note: why that is not what was asked for; empty if it is."""

    name: str
    asked: str
    shown: str
    note: str = ""


def known(connection: psycopg.Connection[Any], names: Iterable[str]) -> dict[str, Known]:
    """By name. Raises LeadlineError for a name that the server does not know."""
    wanted = {name.lower(): name for name in names}
    rows = connection.execute(
        "select name, context, vartype, coalesce(unit, ''), setting, source, current_setting(name), pending_restart "
        "from pg_settings where lower(name) = any(%s)", [list(wanted)],
    ).fetchall()  # fmt: skip
    found = {wanted[str(row[0]).lower()]: Known(*row) for row in rows}
    for name in wanted.values():
        if name not in found:
            every = [str(row[0]) for row in connection.execute("select name from pg_settings").fetchall()]
            near = difflib.get_close_matches(name, every, 3)
            hint = f"like it: {', '.join(near)}" if near else ""
            raise LeadlineError("usage", f"the server has no setting {name}", hint=hint, where=name)
    return found


def changeable(connection: psycopg.Connection[Any], names: Iterable[str]) -> None:
    """Raises LeadlineError for a name that the server does not know, or that nobody can change."""
    for name, one in known(connection, names).items():
        if one.context == "internal":
            raise LeadlineError("usage", f"{name} cannot be changed: it is fixed when the server is built or the cluster is made")


def before(connection: psycopg.Connection[Any], names: Sequence[str]) -> dict[str, str | None]:
    """What postgresql.auto.conf has for each name; None: nothing. Raises LeadlineError."""
    try:
        rows = connection.execute(
            "select lower(name), setting from pg_file_settings where sourcefile = current_setting('data_directory') || '/' || %s "
            "order by seqno", [AUTO],
        ).fetchall()  # fmt: skip
    except psycopg.Error as e:
        hint = "connect as a superuser: it must also run ALTER SYSTEM"
        raise LeadlineError("rights", "the settings of the server cannot be read", detail=_first_line(e), hint=hint) from e
    there = {str(name): str(value) for name, value in rows}
    return {name: there.get(name.lower()) for name in names}


def apply(connect: Connect, wanted: Mapping[str, str | None], restart: Restart | None = None) -> dict[str, Effect]:
    """Sets them (None: removes them from postgresql.auto.conf), reloads, restarts where one needs it, and says what a new session has.

    Raises LeadlineError('invalid') for a value that the server refuses, with nothing changed.
    """
    with connect() as connection:
        changeable(connection, wanted)
        have = before(connection, list(wanted))
        # ALTER SYSTEM has no empty list: '' becomes a list with an empty name in it, and a server does not start with such a library.
        asked = {name: None if value == "" and name.lower() in QUOTED_LISTS else value for name, value in wanted.items()}
        changed = {name: value for name, value in asked.items() if have[name] != value}
        _alter(connection, changed, have)
        at = connection.execute("select pg_conf_load_time()").fetchone()
        if changed:
            connection.execute("select pg_reload_conf()")
    if changed:
        _reloaded(connect, at)
    with connect() as connection:
        pending = [name for name, one in known(connection, wanted).items() if one.pending_restart]
    if pending and restart is None:
        raise LeadlineError("usage", f"{', '.join(pending)} needs a restart", hint="--restart COMMAND restarts this server")
    if pending and restart is not None:
        restart()
        wait_for_answer(connect)
    with connect() as connection:
        return {name: _effect(name, wanted[name], one) for name, one in known(connection, wanted).items()}


def restore(connect: Connect, was: Mapping[str, str | None], restart: Restart | None = None) -> dict[str, Effect]:
    """Puts back what `before` gave, and reads it back. Raises LeadlineError."""
    with connect() as connection:
        fixed = {name for name, one in known(connection, was).items() if one.context == "internal"}
    found = apply(connect, {name: value for name, value in was.items() if name not in fixed}, restart)
    with connect() as connection:
        now = before(connection, list(was))
    wrong = [name for name in was if now[name] != was[name]]
    if wrong:
        raise LeadlineError("fault", f"{', '.join(wrong)} could not be put back", hint=f"see {AUTO}")
    return found


def _alter(connection: psycopg.Connection[Any], changed: Mapping[str, str | None], have: Mapping[str, str | None]) -> None:
    done: list[str] = []
    try:
        for name, value in changed.items():
            connection.execute(_statement(name, value))
            done.append(name)
    except psycopg.Error as e:
        for name in done:
            connection.execute(_statement(name, have[name]))
        kind = "rights" if isinstance(e, psycopg.errors.InsufficientPrivilege) else "invalid"
        name = list(changed)[len(done)]
        raise LeadlineError(kind, f"the server refuses {name} = {changed[name]}", _first_line(e) + _known_values(connection, name)) from e


def _known_values(connection: psycopg.Connection[Any], name: str) -> str:
    """Of a setting with a list of values: a build may lack some."""
    row = connection.execute("select enumvals from pg_settings where lower(name) = lower(%s)", [name]).fetchone()
    return f"; this server has {', '.join(row[0])}" if row is not None and row[0] else ""


def _statement(name: str, value: str | None) -> sql.Composed:
    target = sql.SQL(".").join(sql.Identifier(part) for part in name.split("."))
    if value is None:
        return sql.SQL("alter system reset {}").format(target)
    values = elements(value) if name.lower() in QUOTED_LISTS else [value]
    return sql.SQL("alter system set {} = {}").format(target, sql.SQL(", ").join(sql.Literal(one) for one in values or [""]))


def elements(text: str) -> list[str]:
    """The elements of a list as the server writes it: separated by commas, those with odd signs in double quotes."""
    out, part, quoted = [], "", False
    for sign in text:
        if sign == '"':
            quoted = not quoted
            part += sign
        elif sign == "," and not quoted:
            out.append(part)
            part = ""
        else:
            part += sign
    stripped = [one.strip() for one in [*out, part]]
    return [one[1:-1].replace('""', '"') if len(one) > 1 and one[0] == one[-1] == '"' else one for one in stripped if one]


def _reloaded(connect: Connect, at: Any) -> None:
    deadline = time.monotonic() + RELOADED_WITHIN_S
    while True:
        with connect() as connection:
            if connection.execute("select pg_conf_load_time()").fetchone() != at:
                return
            if time.monotonic() > deadline:
                rows = connection.execute("select sourcefile, sourceline, error from pg_file_settings where error is not null").fetchall()
                detail = "; ".join(f"{file} line {line}: {error}" for file, line, error in rows)
                raise LeadlineError("invalid", "the server does not take its configuration", detail=detail, hint="its log says why")
        time.sleep(0.01)


def wait_for_answer(connect: Connect) -> None:
    deadline = time.monotonic() + RESTARTED_WITHIN_S
    while True:
        try:
            connect().close()
            return
        except (psycopg.Error, LeadlineError) as e:
            if time.monotonic() > deadline:
                hint = f"see its log; what was changed is in {AUTO}"
                raise LeadlineError("gone", "the server does not answer after its restart", detail=_first_line(e), hint=hint) from e
        time.sleep(0.05)


def _effect(name: str, asked: str | None, now: Known) -> Effect:
    note = ""
    if asked == "" and name.lower() in QUOTED_LISTS:
        note = f"asked for an empty list, which ALTER SYSTEM cannot give, and the server has {now.shown}" if now.value else ""
    elif asked is not None and now.source != "configuration file":
        note = f"it is set by {now.source}, which goes before ALTER SYSTEM"
    elif asked is not None and not _same(asked, now):
        note = f"asked for {asked}, and the server has {now.shown}"
    return Effect(name, asked or "", now.shown, note)


def _same(asked: str, now: Known) -> bool:
    text = asked.strip()
    if now.kind == "bool":
        return now.value == ("on" if text.lower() in TRUE else "off" if text.lower() in FALSE else now.value)
    if now.kind in ("integer", "real"):
        number = base_of(text, now.unit)
        return number is None or abs(number - float(now.value)) < (0.51 if now.kind == "integer" else 1e-6 * max(1.0, abs(number)))
    return text.lower() == now.value.lower() or now.kind == "string"


def base_of(text: str, unit: str) -> float | None:
    """A number with or without a unit, in the unit of the setting (8kB, ms, ...); None where that cannot be told."""
    number, suffix = text, ""
    for end in sorted({*UNITS, *TIMES}, key=len, reverse=True):
        if text.endswith(end):
            number, suffix = text[: -len(end)].strip(), end
            break
    try:
        value = float(int(number, 0)) if not any(sign in number for sign in ".eE") or number[:2].lower() == "0x" else float(number)
    except ValueError:
        return None
    if not suffix:
        return value
    scales = UNITS if suffix in UNITS and any(unit.endswith(one) for one in UNITS if one != "B" or unit == "B") else TIMES
    base = next((one for one in sorted(scales, key=len, reverse=True) if unit.endswith(one)), None)
    if base is None or suffix not in scales:
        return None
    times = int(unit[: -len(base)] or 1)
    return value * scales[suffix] / (scales[base] * times)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

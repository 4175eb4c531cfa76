"""The servers that a study runs on: private ones, or one that the user named; set up for a cell, and left as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from leadline.book.experiments.cells import Cell
from leadline.book.experiments.design import margin_of
from leadline.engines.postgres.server import Binaries, PrivateServer, find_binaries
from leadline.engines.postgres.server import settings as of_server
from leadline.engines.postgres.server.binaries import host_dirs
from leadline.engines.postgres.server.settings import Effect
from leadline.errors import LeadlineError
from leadline.replacing import write_durably
from leadline.study.design import LINKS, STANDBY, Factor, Study
from leadline.study.pair import Pair, Primary
from leadline.study.places import Directories, Layout, Spaces, check_spaces

DATABASE = "leadline_study"
SESSIONS_END_WITHIN_S = 30.0
Made = Callable[[str], None]  # called with the DSN of a new database


class Servers(ABC):
    """What private and named servers have in common: a database for each combination of the levels of schemas, and settings of a cell."""

    def __init__(self, study: Study, made: Made) -> None:
        self.study, self.made = study, made
        self.now: dict[str, Effect] = {}  # settings of the factors, as they are
        self.databases: dict[tuple[str, ...], str] = {}

    @property
    def has_database(self) -> bool:
        """Whether the study makes databases of its own: it does where it would change what is in one."""
        return bool(self.study.of_kind("schema") or self.study.prepare or self.in_databases)

    def set_up(self, cell: Cell) -> tuple[str, dict[str, Effect]]:
        """The DSN for the load of this cell, on a server with its settings. Raises LeadlineError."""
        wanted = {factor.target: factor.text_of(cell[at]) for at, factor in self.study.of_kind("setting")}
        if wanted != {name: effect.asked for name, effect in self.now.items()}:
            self.now = self.apply(wanted)
        return self._database(cell), self.now

    @abstractmethod
    def apply(self, wanted: Mapping[str, str]) -> dict[str, Effect]: ...

    @abstractmethod
    def dsn(self, database: str = "") -> str: ...

    application = "leadline study"

    def connect(self, database: str = "") -> psycopg.Connection[Any]:
        try:
            return psycopg.connect(self.dsn(database), autocommit=True, connect_timeout=10, application_name=self.application)
        except psycopg.Error as e:
            raise LeadlineError("connection", "cannot connect to the server of the study", detail=" ".join(str(e).split())) from e

    @abstractmethod
    def restart(self) -> None: ...

    @property
    def standby(self) -> str:
        """The DSN of the standby, where the study has a pair; else empty."""
        return ""

    def added_rtt_ms(self) -> float | None:
        """What the link of a pair has added since the cell was set up."""
        return None

    layout: Layout | None = None

    @property
    def in_databases(self) -> list[tuple[int, Factor]]:
        """Factors, beside schemas, of which each level has a database of its own."""
        return []

    def settle(self, dsn: str) -> None:
        """What was made in the database goes where its layout has it, before the load begins. Raises LeadlineError."""
        if self.layout is None or not self.layout.apart:
            return
        try:
            with psycopg.connect(dsn, autocommit=True, connect_timeout=10, application_name=self.application) as connection:
                self.layout.move(connection)
        except psycopg.Error as e:
            raise LeadlineError("query", "what the layout puts elsewhere cannot be moved", detail=" ".join(str(e).split())) from e

    def _database(self, cell: Cell) -> str:
        if not self.has_database:
            return self.dsn()
        schemas = self.study.of_kind("schema")
        key = tuple(cell[at] for at, _ in [*schemas, *self.in_databases])
        if key not in self.databases:
            name = self.databases[key] = self._name(len(self.databases))
            with self.connect() as connection:
                connection.execute(f'drop database if exists "{name}"')
                make = SQL("create database {} template template0 tablespace {}")
                space = self.layout.of_tables if self.layout is not None else "pg_default"
                connection.execute(make.format(Identifier(name), Identifier(space)))
            self.made(self.dsn(name))
            for (_, factor), label in zip(schemas, key):
                run_sql(self.dsn(name), [text] if (text := factor.text_of(label)).strip() else [], f"{factor.name}={label}")
        return self.dsn(self.databases[key])

    def _name(self, number: int) -> str:
        return f"{DATABASE}_{number}"

    @abstractmethod
    def close(self) -> None: ...


class PrivateServers(Servers):
    """One server for each version, of which one runs at a time; gone with the study, however that ends."""

    def __init__(self, study: Study, made: Made, tell: Callable[[str], None], pg_bin: str | None) -> None:
        super().__init__(study, made)
        self.tell, self.pg_bin = tell, pg_bin
        self.servers: dict[tuple[str, str], PrivateServer] = {}
        self.layouts: dict[str, Directories] = {}
        self.pairs: dict[tuple[str, str], Pair] = {}
        self._all: dict[tuple[str, str], dict[tuple[str, ...], str]] = {}
        self.version: tuple[str, str] = ("", "")  # and the layout

    def set_up(self, cell: Cell) -> tuple[str, dict[str, Effect]]:
        versions = self.study.of_kind("version")
        version = versions[0][1].text_of(cell[versions[0][0]]) if versions else str(self.study.server.get("version", ""))
        layouts = self.study.of_kind("layout")
        layout = layouts[0][1].text_of(cell[layouts[0][0]]) if layouts else ""
        if not self.servers or (version, layout) != self.version:
            self._use(version, layout)
        dsn, effects = super().set_up(cell)
        if self.version in self.pairs:
            pair = self.pairs[self.version]
            effects = effects | self._set_up_standby(pair, cell)
            of = {kind: factor.text_of(cell[at]) for kind in LINKS for at, factor in self.study.of_kind(kind)}
            limit = of.get("replay_cpu", self.study.server.get("replay_cpu"))
            share = margin_of(limit) if limit else None
            pair.set_up(of.get("round_trip", ""), share)
        return dsn, effects

    def _set_up_standby(self, pair: Pair, cell: Cell) -> dict[str, Effect]:
        """Its own settings. A restart ends what holds its replay, so they come first."""
        factors = self.study.of_kind(STANDBY)
        wanted = {factor.target: factor.text_of(cell[at]) for at, factor in factors}
        if wanted != {name: effect.asked for name, effect in pair.settings.items()}:
            pair.settings = _applied(pair.standby, pair.connect, wanted, pair.restart)
        return {factor.effect: pair.settings[factor.target] for _, factor in factors}

    @property
    def standby(self) -> str:
        return self.pairs[self.version].standby.dsn if self.version in self.pairs else ""

    def added_rtt_ms(self) -> float | None:
        return self.pairs[self.version].unlink() if self.version in self.pairs else None

    def _use(self, version: str, layout: str) -> None:
        if self.servers:
            if self.version in self.pairs:
                self.pairs[self.version].stop()
            self.servers[self.version].stop()
        key = (version, layout)
        self.databases = self._all.setdefault(key, {})
        self.now = {}
        self.layout = self.layouts.get(layout)
        if key in self.servers:
            self.version = key
            self.servers[key].start()
            if key in self.pairs:
                self.pairs[key].start()
            return
        directory, major = (version, None) if "/" in version else (self.pg_bin, int(version) if version else None)
        binaries = _binaries(directory or self.study.server.get("pg_bin"), major)
        settings = self.study.server.get("settings", {})
        if layout and layout not in self.layouts:
            self.layouts[layout] = self.layout = Directories(layout)
        directories = self.layouts[layout].directories if layout else {}
        if self.study.has_pair:
            server: PrivateServer = Primary(binaries.bin_dir, settings)
        else:
            server = PrivateServer(binaries.bin_dir, directories.get("tables"), settings, wal_dir=directories.get("wal"))
        self.tell(f"starting a private PostgreSQL {binaries.version} ({binaries.source}); it is removed with the study")
        server.__enter__()
        self.servers[key], self.version = server, key
        if layout:
            with self.connect() as connection:
                self.layouts[layout].create(connection)
        if isinstance(server, Primary):
            self.pairs[key] = Pair(server, self.study.server.get("standby_settings", {}), self.tell)

    def dsn(self, database: str = "") -> str:
        return self.servers[self.version].dsn.replace("dbname=postgres", f"dbname={database or 'postgres'}")

    def apply(self, wanted: Mapping[str, str]) -> dict[str, Effect]:
        return _applied(self.servers[self.version], self.connect, wanted, self.restart)

    def restart(self) -> None:
        self.servers[self.version].stop()
        self.servers[self.version].start()

    def close(self) -> None:
        for pair in self.pairs.values():
            pair.close()
        for server in self.servers.values():
            server.close()
        for layout in self.layouts.values():
            layout.remove()


def _applied(
    server: PrivateServer, connect: of_server.Connect, wanted: Mapping[str, str], restart: of_server.Restart
) -> dict[str, Effect]:  # fmt: skip
    """A value with which a private server does not start leaves it as it was. Raises LeadlineError."""
    auto = server.data_dir / of_server.AUTO
    was = auto.read_bytes()
    try:
        return of_server.apply(connect, wanted, restart)
    except LeadlineError as e:
        with suppress(LeadlineError):
            server.stop()
        auto.write_bytes(was)
        server.start()
        if e.kind != "gone":
            raise
        raise LeadlineError("invalid", "the server does not start with these settings", detail=e.detail, where=e.where) from e


def _binaries(directory: str | None, major: int | None) -> Binaries:
    """Those of the host before those of the wheel: they are what the answer is about, and are built with more. Raises LeadlineError."""
    of_host = [one for one in host_dirs() if major in (None, one.major)] if directory is None else []
    return max(of_host, key=lambda one: one.major) if of_host else find_binaries(directory, major)


class NamedServer(Servers):
    """A server that is not ours: what it had before is in a journal on the disk, and a guard puts it back if this process is killed."""

    def __init__(self, study: Study, made: Made, dsn: str, restart: str, directory: Path, uid: str) -> None:
        super().__init__(study, made)
        self._dsn, self._restart, self.directory, self._uid = dsn, restart, directory, uid
        self.application = f"leadline study {uid}"
        self._guard: subprocess.Popen[bytes] | None = None
        self.settings = [factor.target for _, factor in study.of_kind("setting")]

    @property
    def in_databases(self) -> list[tuple[int, Factor]]:
        return self.study.of_kind("layout")

    def set_up(self, cell: Cell) -> tuple[str, dict[str, Effect]]:
        for at, factor in self.in_databases:
            self.layout = Spaces(factor.text_of(cell[at]))
        return super().set_up(cell)

    @cached_property
    def identity(self) -> str:
        """The same for a server however its connection string is written."""
        try:
            with self.connect() as connection:
                row = connection.execute("select system_identifier from pg_control_system()").fetchone()
        except psycopg.Error as e:
            raise LeadlineError("rights", "the server does not say who it is", detail=str(e).strip(), hint="connect as a superuser") from e
        return str(row[0]) if row is not None else ""

    def open(self, locks: Sequence[int]) -> None:
        """Before anything is changed: the journal, if an earlier part of the study has not left one, and the guard, which has the locks."""
        journal = self.directory / "journal.json"
        self._left_by_others(journal)
        if not journal.exists():
            with self.connect() as connection:
                for _, factor in self.in_databases:
                    check_spaces(dict(factor.levels), connection)
                of_server.changeable(connection, self.settings)
                was = of_server.before(connection, self.settings)
            said = {"server": self.identity, "dsn": without_password(self._dsn)[0], "settings": was,
                    "restart": self._restart, "databases": self._prefix, "application": self.application,
                    "file": str(self._auto or ""), "text": self._auto.read_text() if self._auto is not None else ""}  # fmt: skip
            write_durably(journal, json.dumps(said).encode())
        command = [sys.executable, "-m", "leadline.study.guard", str(journal)]
        self._guard = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
            pass_fds=locks,
        )  # fmt: skip
        assert self._guard.stdin is not None and self._guard.stdout is not None
        self._guard.stdin.write(self._dsn.encode() + b"\n")
        self._guard.stdin.flush()
        if self._guard.stdout.readline() != b"ready\n":
            raise LeadlineError("fault", "the guard of the server's settings does not start, so nothing is changed")

    def _left_by_others(self, own: Path) -> None:
        """What another study has not put back would be taken for what was there before it. Raises LeadlineError."""
        for journal in sorted(self.directory.parent.glob("*/journal.json")):
            try:
                said = json.loads(journal.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if journal != own and said.get("server") == self.identity:
                hint = f"leadline study restore {journal.parent.name[:5]}"
                raise LeadlineError("usage", "an earlier study has not put this server back as it was", hint=hint)

    @property
    def _prefix(self) -> str:
        return f"{DATABASE}_{self._uid}_"

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number}"

    def dsn(self, database: str = "") -> str:
        return psycopg.conninfo.make_conninfo(self._dsn, **({"dbname": database} if database else {}))

    @cached_property
    def _auto(self) -> Path | None:
        """postgresql.auto.conf, if it is a file of this host that we may write; with the server down, nothing else could put it back."""
        with self.connect() as connection:
            row = connection.execute("select current_setting('data_directory')").fetchone()
        directory = Path(str(row[0]) if row is not None else "")
        try:
            with (directory / "global" / "pg_control").open("rb") as file:
                is_its = str(int.from_bytes(file.read(8), sys.byteorder)) == self.identity
            return directory / of_server.AUTO if is_its and os.access(directory / of_server.AUTO, os.W_OK) else None
        except OSError:
            return None

    def facts(self) -> dict[str, str]:
        """Its build, and all of its settings but those that the study changes."""
        with self.connect() as connection:
            rows = connection.execute("select name, setting, coalesce(unit, '') from pg_settings").fetchall()
            version = connection.execute("select version()").fetchone()
        changed = {name.lower() for name in self.settings}
        found = {f"setting.{name}": f"{value} {unit}".strip() for name, value, unit in rows if str(name).lower() not in changed}
        return found | {"server.version": str(version[0]) if version is not None else ""}

    def apply(self, wanted: Mapping[str, str]) -> dict[str, Effect]:
        """A value with which the server does not start leaves it as it was, where its files can be written from here."""
        auto = self._auto if self._restart else None
        was = auto.read_text() if auto is not None else ""
        try:
            return of_server.apply(self.connect, wanted, self.restart if self._restart else None)
        except LeadlineError as e:
            if e.kind != "gone" or auto is None:
                raise
            start_again(self.connect, auto, was, self._restart)
            raise LeadlineError("invalid", "the server does not start with these settings", detail=e.detail) from e

    def restart(self) -> None:
        restart_by(self._restart)

    def close(self) -> None:
        """Puts everything back, reads it back, and lets the guard go. Raises LeadlineError; the guard then tries once more."""
        guard = self._guard
        if guard is None:
            return
        try:
            put_back(self._dsn, self.directory / "journal.json")
            assert guard.stdin is not None
            guard.stdin.write(b"done\n")
        finally:
            guard.communicate()
            self._guard = None


def put_back(dsn: str, journal: Path) -> dict[str, Effect]:
    """What the journal says was there before: settings and databases. It is removed when all is as it was. Raises LeadlineError."""
    if not journal.exists():
        return {}
    said = json.loads(journal.read_text(encoding="utf-8"))

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(dsn, autocommit=True, connect_timeout=10, application_name="leadline study restore")

    try:
        if said["file"] and said["restart"] and not _answers(connect):
            start_again(connect, Path(said["file"]), said["text"], said["restart"])
        _end_sessions(connect, said["application"])
        found = of_server.restore(connect, said["settings"], (lambda: restart_by(said["restart"])) if said["restart"] else None)
        with connect() as connection:
            names = connection.execute("select datname from pg_database where starts_with(datname, %s)", [said["databases"]]).fetchall()
            for (name,) in names:
                connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
                connection.execute(f'drop database if exists "{name}"')
    except psycopg.Error as e:
        hint = "leadline study restore RUN puts back what the study has changed"
        raise LeadlineError("connection", "the server could not be put back as it was", detail=" ".join(str(e).split()), hint=hint) from e
    journal.unlink()
    return found


def _end_sessions(connect: Callable[[], psycopg.Connection[Any]], application: str) -> None:
    """Of a killed study: the server goes on with a CREATE DATABASE or ALTER SYSTEM whose client is gone, and would end it after us."""
    deadline = time.monotonic() + SESSIONS_END_WITHIN_S
    sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = %s and pid <> pg_backend_pid()"
    with connect() as connection:
        while (row := connection.execute(sql, [application]).fetchone()) is not None and row[0]:
            if time.monotonic() > deadline:
                raise LeadlineError("gone", "sessions of the study do not end, so its server cannot be put back yet")
            time.sleep(0.05)


def _answers(connect: Callable[[], psycopg.Connection[Any]]) -> bool:
    try:
        connect().close()
    except psycopg.Error:
        return False
    return True


def start_again(connect: Callable[[], psycopg.Connection[Any]], auto: Path, text: str, restart: str) -> None:
    """A server that does not start, with what its postgresql.auto.conf had before. Raises LeadlineError."""
    with auto.open("r+", encoding="utf-8") as file:  # not a new file: it would have another owner
        file.write(text)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    restart_by(restart)
    of_server.wait_for_answer(connect)


def restart_by(command: str) -> None:
    """Raises LeadlineError."""
    from leadline.book.experiments.design import words

    with tempfile.TemporaryFile() as said:  # no pipe: the server that it starts would hold it open
        done = subprocess.run(words(command, "restart"), stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False)
        said.seek(0)
        printed = said.read(1 << 16).decode(errors="replace")
    if done.returncode:
        detail = " ".join(printed.split())[-300:]
        raise LeadlineError("gone", f"the command that restarts the server ended with {done.returncode}", detail=detail, where=command)


def run_sql(dsn: str, statements: Sequence[str], what: str) -> None:
    """Raises LeadlineError."""
    try:
        with psycopg.connect(dsn, autocommit=True, connect_timeout=10, application_name="leadline study") as connection:
            for statement in statements:
                connection.execute(statement)
    except psycopg.Error as e:
        raise LeadlineError("query", f"{what} failed", detail=str(e).strip().partition("\n")[0]) from e


def without_password(dsn: str) -> tuple[str, str]:
    """A DSN for a command line, and the password that was in it. Raises LeadlineError."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error as e:
        raise LeadlineError("usage", "this is no connection string", detail=str(e).strip(), hint="--server postgres:///shop") from e
    password = str(given.pop("password", "") or "")
    return psycopg.conninfo.make_conninfo("", **given), password


def environment_of(dsn: str) -> dict[str, str]:
    """For psql, pgbench and the like in a command."""
    given = psycopg.conninfo.conninfo_to_dict(dsn)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE", "password": "PGPASSWORD"}
    return {variable: str(given[name]) for name, variable in names.items() if given.get(name)}

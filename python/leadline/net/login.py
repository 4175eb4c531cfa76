"""From a connection string to the login of our own client. What libpq takes from its environment counts here too.

A password comes from the connection string, PGPASSWORD or the password file, and goes to `_core.net.Login`; it is never printed.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from leadline._core.net import Login, dbping
from leadline.engines.postgres.catalog.connection import parse_dsn
from leadline.errors import LeadlineError
from leadline.net.service import parameters

SOCKET_DIRECTORIES = ("/var/run/postgresql", "/tmp")
NOT_SPOKEN = ("sslcert", "sslkey", "require_auth")  # parameters that would change what a login means


@dataclass(frozen=True)
class Server:
    """Where and as whom. host: a name, an address, or the path of a socket."""

    host: str
    port: int
    user: str
    database: str
    sslmode: str = "prefer"
    sslrootcert: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        where = self.host if self.host.startswith("/") else f"{self.host}:{self.port}"
        return f"{where}/{self.database} as {self.user}" if self.user else where

    def login(self, timeout_s: float, *, through: tuple[str, int] | None = None, receive_buffer: int | None = None) -> Login:
        """through: a proxy to connect to instead."""
        host, port = through or (self.host, self.port)
        return Login(
            host,
            port,
            user=self.user,
            database=self.database,
            password=self.password,
            sslmode=self.sslmode,
            sslrootcert=self.sslrootcert,
            timeout_s=timeout_s,
            receive_buffer=receive_buffer,
        )


def server_of(dsn: str) -> Server:
    """The PostgreSQL server of a connection string. Raises LeadlineError('usage')."""
    asked, environment = parse_dsn(dsn), _defaults()
    service = asked.get("service") or environment.get("service")
    of_service = parameters(str(service), asked.get("servicefile")) if service else {}
    given = {**environment, **of_service, **asked}
    for name in NOT_SPOKEN:
        if given.get(name):
            raise LeadlineError("usage", f"our own client does not know the connection parameter {name}", hint="remove it")
    if "," in str(given.get("host", "")) or "," in str(given.get("port", "")):
        raise LeadlineError("usage", "the connection string has several hosts", hint="name one host: it is the one to measure")
    port = int(given.get("port") or 5432)
    host = given.get("hostaddr") or given.get("host") or _default_host(port)
    user = str(given.get("user") or "")
    database = str(given.get("dbname") or user)
    sslmode = str(given.get("sslmode") or "prefer")
    root = _root(given) if sslmode.startswith("verify") else None
    if sslmode == "verify-full" and given.get("hostaddr"):
        raise LeadlineError("usage", "verify-full needs the name of the host, not hostaddr", hint="use host=NAME")
    password = given.get("password") or _from_passfile(given, str(given.get("host") or host), port, database, user)
    if host.startswith("/"):
        host = f"{host}/.s.PGSQL.{port}"
    return Server(host, port, user, database, sslmode, root, password)


def must_answer(dsn: str, timeout_s: float) -> None:
    """Raises LeadlineError if the server does not answer within the time. libpq itself waits for 2 s at least.

    Connection strings that only libpq understands are left to it.
    """
    try:
        server = server_of(dsn)
    except LeadlineError:
        return
    dbping(replace(server, user="").login(timeout_s), "postgres", connects=1, pings=1)


def _defaults() -> dict[str, Any]:
    from psycopg import pq

    found = {option.keyword.decode(): option.val for option in pq.Conninfo.get_defaults()}
    return {name: value.decode() for name, value in found.items() if value}


def _default_host(port: int) -> str:
    return next((directory for directory in SOCKET_DIRECTORIES if Path(f"{directory}/.s.PGSQL.{port}").exists()), "localhost")


def _root(given: dict[str, Any]) -> str:
    path = str(given.get("sslrootcert") or Path.home() / ".postgresql" / "root.crt")
    if not Path(path).is_file():
        hint = "give the file with sslrootcert=FILE"
        raise LeadlineError("usage", "there is no file with the authorities that verify needs", hint=hint, where=path)
    return path


def _from_passfile(given: dict[str, Any], host: str, port: int, database: str, user: str) -> str | None:
    """The password of the first line that fits, as libpq reads the file: not if others may read it."""
    path = Path(str(given.get("passfile") or os.environ.get("PGPASSFILE") or Path.home() / ".pgpass"))
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) or mode & (stat.S_IRWXG | stat.S_IRWXO):
            return None
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    wanted = ("localhost" if host.startswith("/") else host, str(port), database, user)
    for line in lines:
        parts = _fields(line)
        if len(parts) == 5 and not line.startswith("#") and all(have in ("*", want) for have, want in zip(parts, wanted)):
            return parts[4]
    return None


def _fields(line: str) -> list[str]:
    """Separated by colons; a backslash takes the next character as it is."""
    parts, quoted = [""], False
    for character in line:
        if not quoted and character in "\\:":
            quoted = character == "\\"
            if character == ":":
                parts.append("")
        else:
            parts[-1] += character
            quoted = False
    return parts


def mysql_server_of(text: str) -> Server:
    """Of mysql://USER:PASSWORD@HOST:PORT/DATABASE; the password also from MYSQL_PWD. Raises LeadlineError('usage')."""
    from urllib.parse import parse_qs, unquote, urlsplit

    try:
        parts = urlsplit(text)
        port = parts.port or 3306
    except ValueError:
        hint = "use mysql://USER@HOST:PORT/DATABASE, and MYSQL_PWD for the password"
        raise LeadlineError("usage", "cannot parse the connection string", hint=hint) from None
    options = parse_qs(parts.query)
    sslmode = (options.get("sslmode") or options.get("ssl-mode") or ["prefer"])[0].lower().replace("disabled", "disable")
    password = unquote(parts.password) if parts.password is not None else os.environ.get("MYSQL_PWD")
    database = unquote(parts.path.lstrip("/"))
    return Server(parts.hostname or "127.0.0.1", port, unquote(parts.username or ""), database, sslmode, None, password)

"""leadline net dbping: each phase of a connection to a database."""

from __future__ import annotations

import re
from typing import Any

import click

from leadline.cli import OUTCOME_INTERRUPTED
from leadline.cli.forms import form, printed
from leadline.cli.net.options import timeout
from leadline.units import seconds_of

PROTOCOLS = ("postgres", "mysql", "tds", "oracle", "tcp")
MEANINGS = {
    "resolve": "look-up of the name",
    "connect": "TCP handshake",
    "greeting": "then the greeting",
    "tls": "TLS handshake",
    "ask for tls": "by a new process",
    "prelogin": "question of version",
    "listener": "as tnsping asks",
    "login": "authentication, start",
    "ping": "one empty round trip",
    "prepare": "a statement",
    "execute": "it: SELECT 1",
}


@click.command(
    "dbping",
    short_help="Time each phase of a connection to a database.",
    epilog="""\b
Examples:
  leadline net dbping postgresql://app@db01/shop
  leadline net dbping db01:5432
  leadline net dbping mysql://app@db02/shop --protocol mysql
  leadline net dbping db03:1433 --protocol tds
  leadline net dbping db04:1521 --protocol oracle --json""",
)
@click.argument("target", metavar="DSN|HOST:PORT")
@click.option("--protocol", type=click.Choice(PROTOCOLS), help="What the server speaks.  [default: by DSN, else postgres]")
@click.option("--connects", type=click.IntRange(1, 100_000), default=20, show_default=True, metavar="N", help="Connections to make.")
@click.option("--count", type=click.IntRange(1, 10_000_000), default=1000, show_default=True, metavar="N", help="Round trips of each kind.")
@timeout
@form()
def command(target: str, protocol: str | None, connects: int, count: int, timeout: str, form: str | None) -> int:
    """Time each phase of a connection to a database: TCP, TLS, login, and round trips.

    An empty round trip is Sync in PostgreSQL and COM_PING in MySQL: it runs no statement. `execute` is one round trip too, with a
    prepared SELECT 1: what it takes more is the server's work. The first of each phase is shown apart, and is not in the percentiles.

    HOST:PORT without a DSN needs no login. Of PostgreSQL it measures the question for TLS, of SQL Server (tds) the answer to PRELOGIN,
    of Oracle that of the listener to the question of tnsping. Nobody logs in to these two.
    """
    import json

    from leadline._core.net import dbping
    from leadline.errors import LeadlineError
    from leadline.net.address import parse_address
    from leadline.net.login import Server, mysql_server_of, server_of

    protocol = protocol or ("mysql" if target.startswith("mysql://") else "postgres")
    if protocol == "mysql" and "://" in target:
        server = mysql_server_of(target)
    elif re.fullmatch(r"[^=/@\s]*:\d+", target):
        address = parse_address(target)
        server = Server(address.host, address.port, "", "")
    elif protocol == "postgres":
        server = server_of(target)
    else:
        raise LeadlineError("usage", f"{target!r} is not an address", hint=f"use HOST:PORT with --protocol {protocol}")
    if protocol == "mysql" and not server.user:
        raise LeadlineError("usage", "a login to MySQL needs a user", hint="use mysql://USER@HOST:PORT/DATABASE")
    text, interrupted = dbping(server.login(seconds_of(timeout)), protocol, connects=connects, pings=count)
    found = {"server": str(server), **json.loads(text), "interrupted": interrupted}
    if not printed(form, found["phases"], found):
        click.echo(_text(found))
    return OUTCOME_INTERRUPTED if interrupted else 0


def _text(found: dict[str, Any]) -> str:
    from leadline.net.text import microseconds, us
    from leadline.output import to_table

    about = found["about"] or {}
    lines = [f"{found['server']}, protocol {found['protocol']}"]
    if about.get("version") and "method" not in about:
        lines.append(f"version {about['version']}")
    if about.get("encryption"):
        lines.append(f"encryption {about['encryption']}")
    if "method" in about:
        lines.append(f"login by {about['method']}, {'with' if about['encrypted'] else 'without'} TLS")
    if "server_speaks_tls" in about:
        lines.append("the server speaks TLS" if about["server_speaks_tls"] else "the server does not speak TLS")
    plain = "method" in about and not about["encrypted"]
    meanings = MEANINGS | ({"tls": "TLS refused"} if plain else {})
    names = ["in us", "count", "first", "p50", "p99", "max"]
    rows = [[p["phase"], p["count"], us(p["first_ns"]), *microseconds(p, names[3:]), meanings[p["phase"]]] for p in found["phases"]]
    return "\n".join([*lines, "", to_table([*names, "what"], rows)])

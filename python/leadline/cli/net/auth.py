"""leadline net auth: which authentication was used, and whether a password was readable on the wire."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli.forms import form, printed
from leadline.cli.net.options import timeout, window
from leadline.cli.net.wire import filter_of, filter_option, hosts_of, hosts_option, interface, pcap, ports_of, ports_option
from leadline.figures import one_line
from leadline.units import seconds_of


@click.command(
    "auth",
    short_help="Show how clients logged in, and whether a password was readable.",
    epilog="""\b
Examples:
  leadline net auth -i eth0 --port 5432 --for 60s
  leadline net auth --pcap traffic.pcap
  leadline net auth postgresql://app@db1/shop
  leadline net auth postgresql://app@db1/shop --cost 50""",
)
@click.argument("dsn", required=False)
@interface
@pcap
@ports_option
@hosts_option
@filter_option
@click.option("--for", "duration", metavar="TIME", help="With -i: how long.  [default: 10s]")
@click.option("--cost", type=click.IntRange(2, 100_000), metavar="N", help="With DSN: log in N times with TLS and N times without.")
@timeout
@form()
def command(
    dsn: str | None,
    interface: str | None,
    pcaps: tuple[str, ...],
    ports: tuple[str, ...],
    hosts: tuple[str, ...],
    expression: str | None,
    duration: str | None,
    cost: int | None,
    timeout: str,
    form: str | None,
) -> None:
    """Show how clients logged in, and whether a password was readable on the wire.

    The verdict comes from the packets of logins. With DSN, the rules of pg_hba.conf that allow readable or weak passwords are listed.
    With --cost, logins with and without TLS are timed by turns. A password itself is never printed or stored.
    """
    from leadline.net import auth, auth_cost, packets

    if not any((dsn, interface, pcaps)) or (interface and pcaps):
        raise click.UsageError("name an interface with -i, a file with --pcap, or a server")
    if cost and not dsn:
        raise click.UsageError("--cost needs the connection string of a server")
    ends: dict[str, Any] = {"ports": ports_of(ports), "hosts": hosts_of(hosts)}
    only = filter_of(expression)
    found: dict[str, Any] = {}
    lines: list[str] = []
    if pcaps or interface:
        if pcaps:
            ways = auth.logins(packets.who_logged_in(pcaps, **ends, only=only))
        else:
            from leadline.probes import wire
            from leadline.progress import Silent, TerminalLine

            assert interface is not None
            progress, program = Silent() if form else TerminalLine(), None if only is None else only.for_kernel()
            seen = wire.watch(interface, **ends, program=program, for_s=window(duration or "10s"), progress=progress)
            ways = auth.logins(seen["connections"])
            if unseen := seen["counts"]["not_listed"]:
                lines.append(f"{unseen:,} of {seen['counts']['connections']:,} connections were too many to be looked at")
        found["logins"] = [vars(way) for way in ways]
        lines += auth.lines(ways)
    if dsn:
        weak = auth.rules(_rules(dsn, seconds_of(timeout)))
        found["rules"] = weak
        lines += ([""] if lines else []) + list(auth.rule_lines(weak))
        if cost:
            found["cost"] = _cost(dsn, cost, seconds_of(timeout))
            lines += ["", *auth_cost.lines(found["cost"])]
    if not printed(form, found.get("logins") or found.get("rules") or (), found):
        click.echo("\n".join(lines))


def _rules(dsn: str, timeout_s: float) -> list[tuple[Any, ...]]:
    import math

    import psycopg

    from leadline.engines.postgres.catalog.connection import connect
    from leadline.engines.postgres.catalog.queries import HBA_RULES
    from leadline.errors import LeadlineError
    from leadline.net.login import must_answer

    must_answer(dsn, timeout_s)
    with connect(dsn, timeout_s=math.ceil(timeout_s)) as conn:
        try:
            return conn.execute(HBA_RULES.encode()).fetchall()
        except psycopg.errors.InsufficientPrivilege as e:
            detail = one_line(str(e))
            raise LeadlineError("rights", "pg_hba_file_rules cannot be read", detail=detail, hint="connect as a superuser") from None


def _cost(dsn: str, pairs: int, timeout_s: float) -> dict[str, Any]:
    from leadline.net import auth_cost
    from leadline.net.login import server_of
    from leadline.progress import TerminalLine

    line = TerminalLine()
    found = auth_cost.measure(server_of(dsn), pairs, timeout_s, lambda n: line.share(n, 2 * pairs, f"{n} logins"))
    line.done()
    return found

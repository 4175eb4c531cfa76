"""leadline net compare: ICMP, the TCP handshake and a round trip, side by side."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli import OUTCOME_INTERRUPTED
from leadline.cli.forms import form, printed
from leadline.cli.net.options import timeout
from leadline.units import seconds_of


@click.command(
    "compare",
    short_help="Measure ICMP, TCP handshake and round trip in turns.",
    epilog="""\b
Examples:
  leadline net compare db01:4747
  leadline net compare db01:5432 --application postgres --count 1000
  leadline net compare db01:1521 --json""",
)
@click.argument("address", metavar="HOST:PORT")
@click.option("--application", type=click.Choice(["echo", "postgres", "none"]), help="What answers there.  [default: by the port]")
@click.option("--count", type=click.IntRange(2, 1_000_000), default=100, show_default=True, metavar="N", help="Times each is measured.")
@click.option("--interval", default="10ms", show_default=True, metavar="TIME", help="Pause after each turn.")
@timeout
@form()
def command(address: str, application: str | None, count: int, interval: str, timeout: str, form: str | None) -> int:
    """Measure ICMP echo, the TCP handshake and a round trip in turns, and show them together.

    ICMP and handshakes are answered by the kernel, and the network may treat them otherwise than the packets of a database. Only the last
    row is what an application sees. The first of each is shown apart, and is not in the percentiles.

    The round trip is that of `leadline net echo` at port 4747, and the question for TLS at port 5432 (PostgreSQL answers with a new
    process, on a new connection). At other ports --application says which. ICMP needs a right: its row says which one if it is missing.
    """
    import json

    from leadline._core.net import compare
    from leadline.net.address import ECHO_PORT, parse_address

    where = parse_address(address)
    application = application or {ECHO_PORT: "echo", 5432: "postgres"}.get(where.port, "none")
    pause_s, timeout_s = seconds_of(interval), seconds_of(timeout)
    text, interrupted = compare(where.host, where.port, application, count=count, pause_s=pause_s, timeout_s=timeout_s)
    found = {"application": application, **json.loads(text), "interrupted": interrupted}
    if not printed(form, found["rows"], found):
        click.echo(_text(found))
    return OUTCOME_INTERRUPTED if interrupted else 0


def _text(found: dict[str, Any]) -> str:
    from leadline.net.text import microseconds, us
    from leadline.output import to_table

    names = ["in us", "count", "failed", "first", "min", "p50", "p99", "max"]
    rows = [[r["way"], r["count"], r["failed"], us(r["first_ns"]), *microseconds(r, names[4:])] for r in found["rows"]]
    lines = [found["address"], to_table(names, rows)]
    lines += [f"{r['way']}: {r['fault']['text']} ({r['fault']['cause']})" for r in found["rows"] if r["fault"]]
    if found["application"] == "none":
        lines.append("no round trip was measured: --application says what answers there")
    return "\n".join(lines)

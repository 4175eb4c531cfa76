"""leadline net fetch: how many rows each round trip should bring."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli import OUTCOME_INTERRUPTED
from leadline.cli.forms import form, printed
from leadline.units import bits_of, bytes_of, seconds_of


@click.command(
    "fetch",
    epilog="""\b
Examples:
  leadline net fetch postgresql://app@db01/shop --query "select * from orders"
  leadline net fetch DSN --query "table orders" --rtt 1ms,20ms,100ms
  leadline net fetch DSN --query "table orders" --sizes 4kB,64kB,all --json""",
)
@click.argument("dsn", metavar="DSN")
@click.option("--query", required=True, metavar="SQL", help="The query to fetch, run in a transaction that is rolled back.")
@click.option(
    "--sizes",
    default="1,10,100,1000,10000,all",
    show_default=True,
    metavar="N,N",
    help="Rows of each fetch, or bytes with a B: 4kB,64kB.",
)
@click.option("--rtt", default="0", show_default=True, metavar="TIME,..", help="Round trips to add with `net delay`, one curve each.")
@click.option("--rate", metavar="RATE", help="Simulated bandwidth in each direction: 100mbit, 1gbit.")
@click.option("--window", metavar="BYTES", help="With --rtt: maximum bytes in flight in each direction.")
@click.option("--repeat", type=click.IntRange(1, 1000), default=3, show_default=True, metavar="N", help="Runs of each size.")
@click.option("--timeout", default="30s", show_default=True, metavar="TIME", help="How long to wait for each answer.")
@form()
def command(
    dsn: str, query: str, sizes: str, rtt: str, rate: str | None, window: str | None, repeat: int, timeout: str, form: str | None
) -> int:
    """Fetch a query with different fetch sizes, and recommend one.

    PostgreSQL only. Each fetch is one round trip (Execute with a limit of rows). The recommended size is the smallest whose time is
    within 5 % of the best. Sizes in bytes are converted by the mean size of a row, which is found first; no fetch is smaller than a row.

    If the server is on this host and is connected over TCP, the largest send queue of its socket is shown: what it had sent and the client,
    or the proxy, had not acknowledged.
    """
    from leadline.net import fetch
    from leadline.net.login import server_of
    from leadline.progress import TerminalLine

    plan = fetch.Plan(
        query,
        fetch.parse_sizes(sizes),
        [seconds_of(part) for part in rtt.split(",")],
        None if rate is None else bits_of(rate),
        None if window is None else bytes_of(window),
        repeat,
        seconds_of(timeout),
    )
    server = server_of(dsn)
    line = TerminalLine()
    found = fetch.measure(server, plan, line.share)
    line.done()
    points = [{"rtt_ns": curve["rtt_ns"], **point} for curve in found["curves"] for point in curve["points"]]
    if not printed(form, points, {"server": str(server), **found}):
        click.echo(_text(found))
    return OUTCOME_INTERRUPTED if found["interrupted"] else 0


def _text(found: dict[str, Any]) -> str:
    from leadline.figures import quantity as figures
    from leadline.output import to_table

    lines = [f"{found['rows']:,} rows, {figures(found['bytes'], 'B')}, {found['row_bytes']:.0f} bytes a row"]
    names = ["rows", "bytes", "round trips", "s", "best", "peak send queue"]
    for curve in found["curves"]:
        added = curve["added_rtt_p50_ns"]
        lines += ["", f"rtt {curve['rtt_ns'] / 1e6:g} ms added" + (f", measured {added / 1e6:.3f} ms" if added else "")]
        rows = [
            [
                point["rows_per_fetch"] or "all",
                figures(point["bytes_per_fetch"], "B"),
                point["round_trips"],
                f"{point['time_ns'] / 1e9:.4g}",
                f"x{point['time_ns'] / curve['best_ns']:.2f}",
                figures(point["peak_send_queue_bytes"], "B"),
            ]
            for point in curve["points"]
        ]
        lines.append(to_table(names, rows))
        if curve["recommended_rows"] is not None:
            lines.append(f"recommended: {curve['recommended_rows'] or 'all'} rows for each fetch, within 5 % of the best time")
        if curve["first_gain_rows"] is not None:
            lines.append(f"the first size that is faster than one row at a time: {curve['first_gain_rows'] or 'all'} rows")
        if curve["knee_rows"] is not None:
            lines.append(f"the curve bends at {curve['knee_rows'] or 'all'} rows")
    return "\n".join(lines)

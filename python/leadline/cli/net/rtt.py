"""leadline net rtt: round trips to `net echo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import OUTCOME_INTERRUPTED, force
from leadline.cli.forms import form, printed
from leadline.cli.net.options import sizes, timeout
from leadline.units import seconds_of

if TYPE_CHECKING:
    from leadline.net.rtt import Plan, Tell

HEADER = 20  # bytes of each message beside its payload
LEAST_INTERVAL_S, UNLIMITED_S = 0.01, 1e6


@click.command(
    "rtt",
    epilog="""\b
Examples:
  leadline net rtt db01:4747
  leadline net rtt db01:4747 --size 0,250,8192 --for 30s
  leadline net rtt db01:4747 --count 1000 --interval 1s
  leadline net rtt db01:4747 --throughput --size 64k --interval 1s
  leadline net rtt db01:4747 --size 250 --connections 16 --rate 20000
  leadline net rtt db01:4747 --size 250 -o network.leadline""",
)
@click.argument("address", metavar="HOST:PORT")
@click.option("--size", "request", metavar="N,N", help="Payload bytes of a request; each is measured.  [default: 0, with --throughput 64k]")
@click.option("--response", type=click.IntRange(0, 64 << 20), metavar="N", help="Payload bytes of a reply.  [default: as the request]")
@click.option("--connections", type=click.IntRange(1, 1000), default=1, show_default=True, metavar="N", help="Connections at a time.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="R", help="Send R requests a second over all connections.")
@click.option("--sync", is_flag=True, help="Send each request after the previous reply has arrived (the default).")
@click.option("--throughput", is_flag=True, help="Send without waiting for replies, to measure bytes per second.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Send N requests of each size on each connection.")
@click.option("--interval", metavar="TIME", help="Print a line for each interval while measuring.")
@click.option("--for", "duration", metavar="TIME", help="Time for each size.  [default: 10s, or without limit with --count]")
@timeout
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="CAPTURE", help="Write a capture with histograms by second.")
@force
@form()
def command(
    address: str,
    request: str | None,
    response: int | None,
    connections: int,
    rate: float | None,
    sync: bool,
    throughput: bool,
    count: int | None,
    interval: str | None,
    duration: str | None,
    timeout: str,
    output: Path | None,
    force: bool,
    form: str | None,
) -> int:
    """Measure round trips to a `leadline net echo`.

    A round trip (rtt) is from the sending of a request to the end of its reply. The first one of each connection is shown apart, and so is
    the time to connect. Each message has a header of 20 bytes besides its payload.

    With --rate, requests are due at fixed moments. `response` is from that moment to the end of the reply, so that a pause counts
    for every request that was due in it. Requests that were due and could not be sent are counted as unsent.

    With --throughput, requests follow each other at once, and one counts when its reply has come. --size 0 --response 64k measures the way
    from the server.
    """
    from leadline.net import rtt
    from leadline.net.address import parse_address

    if sync + throughput + (rate is not None) > 1:
        raise click.UsageError("--sync, --rate and --throughput exclude each other")
    if throughput and output is not None:
        raise click.UsageError("-o is for round trips: --throughput has no times to keep")
    if interval is not None and seconds_of(interval) < LEAST_INTERVAL_S:
        raise click.UsageError("--interval is at least 10ms")
    for_s = seconds_of(duration) if duration else 10.0 if count is None else UNLIMITED_S
    plan = rtt.Plan(
        sizes(request or ("64k" if throughput else "0")), response, connections, rate, for_s, seconds_of(timeout), count,
        seconds_of(interval) if interval else None, throughput,
    )  # fmt: skip
    where = parse_address(address)
    tell = None if form or interval is None else _tell(plan)
    found = rtt.measure(where, plan, tell) if output is None else rtt.capture(where, plan, output, overwrite=force, tell=tell)
    whole = rtt.as_json(found)
    if not printed(form, whole["runs"], whole):
        click.echo((_flow_text if throughput else _text)(found))
    return OUTCOME_INTERRUPTED if found["interrupted"] else 0


def _tell(plan: Plan) -> Tell:
    """Prints each interval as a line. The first of a size has the names above it."""
    from leadline.net.intervals import Interval, rate_text
    from leadline.net.text import us

    headed: set[int] = set()

    def tell(number: int, of: Interval) -> None:
        size = plan.sizes[number]
        if number not in headed:
            headed.add(number)
            names = f"{'to the server':>15}" if plan.flow else f"{'p50 us':>10}{'p99 us':>10}{'max us':>10}"
            click.echo(f"request of {size:,} bytes\n{'second':>10}{'replies':>12}{'a second':>14}{names}")
        begun = f"{of.to_s:10.2f}{of.replies:12,}{of.per_second:14,.1f}"
        if plan.flow:
            sent = rate_text(8 * of.per_second * (size + HEADER))
            click.echo(f"{begun}{sent:>15}")
        else:
            click.echo(begun + "".join(f"{us(ns) or '':>10}" for ns in (of.quantile(0.5), of.quantile(0.99), of.most_ns or None)))

    return tell


def _flow_text(found: dict[str, Any]) -> str:
    from leadline.net.intervals import rate_text
    from leadline.output import to_table

    rows = []
    for run in found["runs"]:
        seconds = run["seconds"] or 1.0
        rows.append(
            [run["request_bytes"], run["response_bytes"], run["replies"], round(run["replies"] / seconds, 1),
             rate_text(8 * run["to_server_bytes"] / seconds), rate_text(8 * run["to_client_bytes"] / seconds), _tcp(run)[2]]
        )  # fmt: skip
    names = ["request", "reply", "replies", "a second", "to the server", "to the client", "resent"]
    lines = [f"{found['address']}, {found['runs'][0]['connections']} connection(s), TCP_NODELAY on both ends", to_table(names, rows)]
    lines.append("With headers of 20 bytes, without those of TCP and IP. What arrived counts.")
    return "\n".join([*lines, *_ends(found)])


def _ends(found: dict[str, Any]) -> list[str]:
    """Connections that failed, and that it was interrupted."""
    lines = [
        f"connection {fault['connection']} failed: {fault['phase']}: {fault['text']} ({fault['cause']})"
        for run in found["runs"]
        for fault in run["faults"]
    ]
    return lines + (["interrupted: the last size was not measured for its whole time"] if found["interrupted"] else [])


def _text(found: dict[str, Any]) -> str:
    from leadline.net.clock import cost_text
    from leadline.net.text import microseconds, us
    from leadline.output import to_table

    runs = found["runs"]
    nodelay = "TCP_NODELAY on both ends" if all(run["tcp_nodelay"] for run in runs) else ""
    lines = [f"{found['address']}, {runs[0]['connections']} connection(s), {nodelay}", cost_text(found["clock"]), ""]
    names = ["request", "reply", "replies", "p50", "p90", "p99", "p99.9", "p99.99", "max"]
    rows: list[list[Any]] = []
    for key in ("rtt", "response"):
        rows = [
            [run["request_bytes"], run["response_bytes"], run["replies"], *microseconds(run[key], names[3:])] for run in runs if run[key]
        ]
        title = "rtt in us: there and back" if key == "rtt" else "response in us: from the moment the request was due"
        lines += [title, to_table(names, rows), ""] if rows else []
    once = [
        [run["request_bytes"], us(run["connect"]["p50_ns"]), us(run["connect"]["max_ns"]), *_first(run), run["unsent"], *_tcp(run)]
        for run in runs
    ]
    names = ["request", "connect", "max", "first rtt", "max", "unsent", "tcp rtt", "min", "resent"]
    lines += ["Once for each connection, in us; not among the above", to_table(names, once)]
    return "\n".join([*lines, *_ends(found)])


def _first(run: dict[str, Any]) -> list[float | None]:
    from statistics import median

    from leadline.net.text import us

    firsts = [ns for ns in run["first_rtt_ns"] if ns is not None]
    return [us(median(firsts)), us(max(firsts))] if firsts else [None, None]


def _tcp(run: dict[str, Any]) -> list[int | None]:
    """Of all connections: the longest smoothed round trip, the shortest one seen, retransmitted segments."""
    infos = [info for info in run["tcp"] if info]
    if not infos:
        return [None, None, None]
    return [max(i["rtt_us"] for i in infos), min(i["min_rtt_us"] for i in infos), sum(i["retransmits"] for i in infos)]

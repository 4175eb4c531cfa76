"""leadline net rtt: round trips to `net echo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leadline.cli import OUTCOME_INTERRUPTED, force
from leadline.cli.net.options import as_json, sizes, span, timeout


@click.command(
    "rtt",
    epilog="""\b
Examples:
  leadline net rtt db01:4747
  leadline net rtt db01:4747 --size 0,250,8192 --for 30s
  leadline net rtt db01:4747 --size 250 --connections 16 --rate 20000
  leadline net rtt db01:4747 --size 250 -o network.leadline""",
)
@click.argument("address", metavar="HOST:PORT")
@click.option("--size", "request", default="0", show_default=True, metavar="N,N", help="Payload bytes of a request; each is measured.")
@click.option("--response", type=click.IntRange(0, 64 << 20), metavar="N", help="Payload bytes of a reply.  [default: as the request]")
@click.option("--connections", type=click.IntRange(1, 1000), default=1, show_default=True, metavar="N", help="Connections at a time.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="R", help="Send R requests a second over all connections.")
@click.option("--sync", is_flag=True, help="Send each request when the reply before it has come (the default).")
@click.option("--for", "duration", default="10s", show_default=True, metavar="TIME", help="Time for each size.")
@timeout
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="CAPTURE", help="Write a capture with histograms by second.")
@force
@as_json
def command(
    address: str,
    request: str,
    response: int | None,
    connections: int,
    rate: float | None,
    sync: bool,
    duration: str,
    timeout: str,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> int:
    """Measure round trips to a `leadline net echo`.

    A round trip (rtt) is from the sending of a request to the end of its reply. The first one of each connection is shown apart, and so is
    the time to connect. Each message has a header of 20 bytes besides its payload.

    With --rate, requests are due at fixed moments. `response` is from that moment to the end of the reply, so that a pause counts
    for every request that was due in it. Requests that were due and could not be sent are counted as unsent.
    """
    from leadline.net import rtt
    from leadline.net.address import parse_address
    from leadline.output import to_json

    if sync and rate is not None:
        raise click.UsageError("--sync and --rate exclude each other")
    plan = rtt.Plan(sizes(request), response, connections, rate, span(duration), span(timeout))
    where = parse_address(address)
    found = rtt.measure(where, plan) if output is None else rtt.capture(where, plan, output, overwrite=force)
    click.echo(to_json(rtt.as_json(found)) if as_json else _text(found))
    return OUTCOME_INTERRUPTED if found["interrupted"] else 0


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
    for run in runs:
        for fault in run["faults"]:
            lines.append(f"connection {fault['connection']} failed: {fault['phase']}: {fault['text']} ({fault['cause']})")
    if found["interrupted"]:
        lines.append("interrupted: the last size was not measured for its whole time")
    return "\n".join(lines)


def _first(run: dict[str, Any]) -> list[float | None]:
    from statistics import median

    from leadline.net.text import us

    firsts = [ns for ns in run["first_rtt_ns"] if ns is not None]
    return [us(median(firsts)), us(max(firsts))] if firsts else [None, None]


def _tcp(run: dict[str, Any]) -> list[int | None]:
    """Of all connections: the longest smoothed round trip, the shortest one seen, segments sent again."""
    infos = [info for info in run["tcp"] if info]
    if not infos:
        return [None, None, None]
    return [max(i["rtt_us"] for i in infos), min(i["min_rtt_us"] for i in infos), sum(i["retransmits"] for i in infos)]

"""leadline net delay: a proxy that delays."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli.net.options import as_json, until_stopped
from leadline.units import bits_of, bytes_of, seconds_of


@click.command(
    "delay",
    short_help="Delay a TCP connection by a round trip.",
    epilog="""\b
Examples:
  leadline net delay --listen :6432 --to db01:5432 --rtt 20ms
  leadline net delay --listen :6432 --to db01:5432 --rtt 685us --jitter 50us
  leadline net delay --listen :6432 --to db01:5432 --rtt 0.1s --window 64k""",
)
@click.option("--listen", required=True, metavar="[HOST]:PORT", help="Where clients connect; port 0 for a free one.")
@click.option("--to", required=True, metavar="HOST:PORT|SOCKET", help="The server, or the path of its unix socket.")
@click.option("--rtt", required=True, metavar="TIME", help="Round trip to add, half of it in each direction: 0, 161us, 20ms.")
@click.option("--jitter", default="0", metavar="TIME", help="Vary the delay of each part by up to this much, without reordering.")
@click.option("--rate", metavar="RATE", help="Bandwidth in each direction: 100mbit, 1gbit.")
@click.option("--window", metavar="BYTES", help="Maximum bytes in flight in each direction, as a TCP window: 64k.")
@click.option("--buffer", default="64M", show_default=True, metavar="BYTES", help="Maximum bytes to buffer in each direction.")
@click.option("--for", "duration", metavar="TIME", help="End after this time.  [default: Ctrl-C]")
@as_json
def command(
    listen: str,
    to: str,
    rtt: str,
    jitter: str,
    rate: str | None,
    window: str | None,
    buffer: str,
    duration: str | None,
    as_json: bool,
) -> None:
    """Delay a TCP connection by a round trip, and report the delay that was really added.

    The proxy delays every byte, but does not limit the throughput, as a long line would. The kernel answers the TCP handshake at once;
    to make up for that, the first bytes of a connection wait one round trip longer. Only this host can connect, unless --listen names
    another address: the proxy has no login of its own.

    The report shows the delay of each part of the stream, from its arrival at the proxy until the other end has received it, as far as
    the proxy can tell; for parts above 4 kB, until they are written. Parts that the receiver was too slow to take are counted as held
    back, and are not in these delays.
    """
    import json

    from leadline._core.net import Delay
    from leadline.net.address import Address, parse_address
    from leadline.output import to_json

    near = parse_address(listen)
    far = Address(to, 0) if to.startswith("/") else parse_address(to)
    proxy = Delay(
        near.host,
        near.port,
        far.host,
        far.port,
        rtt_s=seconds_of(rtt),
        jitter_s=seconds_of(jitter),
        rate_bit=None if rate is None else bits_of(rate),
        window=None if window is None else bytes_of(window),
        buffer=bytes_of(buffer),
    )
    here = Address(*proxy.address())
    warned = () if here.is_loopback else ("warning: other hosts can connect through this proxy",)
    ready = f"listening on {here}, adding {rtt} on the way to {to}; stop with Ctrl-C"
    until_stopped(None if duration is None else seconds_of(duration), ready, *warned)
    told = json.loads(proxy.stop())
    click.echo(to_json(told) if as_json else _text(told))


def _text(told: dict[str, Any]) -> str:
    from leadline.figures import count
    from leadline.net.text import microseconds, us
    from leadline.output import to_table

    added = us(told["added_rtt_p50_ns"])
    lines = [f"asked rtt {us(told['asked_rtt_ns'])} us, added at the median {'-' if added is None else added} us"]
    names = ["in us", "parts", "held back", "min", "p50", "p99", "p99.9", "max"]
    ways = (("to server", told["to_server"]), ("to client", told["to_client"]))
    lines.append(to_table(names, [[name, way["parts"], way["held_back"], *microseconds(way["added"], names[3:])] for name, way in ways]))
    for name, way in ways:
        lines.append(f"{name}: {count(way['bytes'], 'byte')}, at most {count(way['most_buffered_bytes'], 'byte')} under way")
    failed = f", {told['failed_connections']} failed ({told['last_failure']})" if told["failed_connections"] else ""
    broken = f", {told['broken_connections']} reset" if told["broken_connections"] else ""
    lines.append(count(told["connections"], "connection") + failed + broken)
    if told["arrival_stamps"] == "reading" and told["connections"]:
        lines.append("the kernel gave no times of arrival: the delay counts from the reading")
    return "\n".join(lines)

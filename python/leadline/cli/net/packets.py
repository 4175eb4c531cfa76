"""leadline net packets: statistics of packets, connections and round trips, of an interface or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leadline.cli import force
from leadline.cli.forms import form, printed
from leadline.cli.net.options import window
from leadline.cli.net.wire import filter_of, filter_option, hosts_of, hosts_option, interface, pcap, ports_of, ports_option
from leadline.units import bytes_of, seconds_of


@click.command(
    "packets",
    epilog="""\b
Examples:
  leadline net packets -i lo --port 5432 --for 10s
  leadline net packets --pcap traffic.pcap --port 5432 --interval 1s
  leadline net packets -i eth0 --port 5432 --for 60s -o traffic
  leadline net packets --pcap a.pcap.gz --pcap b.pcap.gz --host 10.1.0.0/16
  leadline net packets -i any --filter 'port 5432 and not host 10.1.0.9'
  ssh db1 tcpdump -i any -w - port 5432 | leadline net packets --pcap -""",
)
@interface
@pcap
@ports_option
@hosts_option
@filter_option
@click.option("--for", "duration", metavar="TIME", help="With -i: how long.  [default: 10s]")
@click.option("--interval", metavar="TIME", help="Print the sizes of packets for each interval.  [default: one for the whole]")
@click.option("--ring", default="32M", show_default=True, metavar="BYTES", help="With -i: size of the kernel's packet buffer.")
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), metavar="DIR", help="Write a capture: intervals, connections and round trips."
)
@force
@form()
def command(
    interface: str | None, pcaps: tuple[str, ...], ports: tuple[str, ...], hosts: tuple[str, ...], expression: str | None,
    duration: str | None, interval: str | None, ring: str, out: Path | None, force: bool, form: str | None,
) -> None:
    """Show packets, connections and round trips.

    A round trip is a request and its answer. For PostgreSQL and MySQL, leadline finds it by the protocol's messages; for others, by the
    change of direction. Contents of packets are not stored. Capturing needs the capability CAP_NET_RAW; reading a file needs none.
    """
    from leadline.net import packets
    from leadline.probes import wire
    from leadline.progress import Silent, TerminalLine

    ends: dict[str, Any] = {"ports": ports_of(ports), "hosts": hosts_of(hosts)}
    only = filter_of(expression)
    interval_s = seconds_of(interval) if interval else 1.0
    if (interface is None) == (not pcaps):
        raise click.UsageError("name an interface with -i, or a file with --pcap")
    directory = None
    listed = None if form else packets.MOST_LISTED
    told: list[str] = []
    if pcaps:
        if duration:
            raise click.UsageError("--for is for an interface: a file is read to its end")
        if out is None:
            found = packets.read(pcaps, **ends, only=only, interval_s=interval_s, listed=listed)
        else:
            directory, found = packets.read_into(pcaps, **ends, only=only, interval_s=interval_s, out=out, overwrite=force)
        seen, name, lost = found, ", ".join(pcaps), found["file"]["dropped"]
        told += packets.warnings(found)
    else:
        assert interface is not None
        for_s = window(duration or "10s")
        more: dict[str, Any] = {**ends, "interval_s": interval_s, "ring_bytes": bytes_of(ring)}
        more["program"] = None if only is None else only.for_kernel()
        progress = Silent() if form else TerminalLine()
        if out is None:
            live = wire.watch(interface, for_s=for_s, progress=progress, listed=listed, **more)
        else:
            more["expression"] = expression
            directory, live = wire.record(interface, for_s=for_s, out=out, overwrite=force, progress=progress, **more)
        seen, name, lost = live, wire.name_of(interface, ends["ports"]), live["lost"]  # type: ignore[assignment]
        told += wire.nothing_seen(interface, live)
    rows = packets.connections(directory, listed or packets.MOST_AS_JSON) if directory is not None else seen["connections"]
    if printed(form, rows, {"source": name, "capture": directory and str(directory), "lost": lost} | seen | {"connections": rows}):
        return
    click.echo(f"{name}: ", nl=False)
    for line in packets.lines(seen, rows, intervals=interval is not None):
        click.echo(line)
    if lost:
        told.insert(0, f"{lost:,} packets were lost before they could be read")
    for warning in told:
        click.echo(f"warning: {warning}", err=True)
    if directory is not None:
        click.echo(f"next: leadline show {directory}", err=True)

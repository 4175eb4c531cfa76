"""leadline net packets: statistics of packets, connections and round trips, of an interface or a file."""

from __future__ import annotations

from pathlib import Path

import click

from leadline.cli import force
from leadline.cli.net.options import as_json, quantity, span
from leadline.cli.net.wire import interface, pcap, ports_of, ports_option


@click.command(
    "packets",
    epilog="""\b
Examples:
  leadline net packets -i lo --port 5432 --for 10s
  leadline net packets --pcap traffic.pcap --port 5432 --interval 1s
  leadline net packets -i eth0 --port 5432 --for 60s -o traffic""",
)
@interface
@pcap
@ports_option
@click.option("--for", "duration", metavar="TIME", help="With -i: how long.  [default: 10s]")
@click.option("--interval", metavar="TIME", help="Print the sizes of packets for each interval.  [default: one for the whole]")
@click.option("--ring", default="32M", show_default=True, metavar="BYTES", help="With -i: memory for packets that wait to be read.")
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), metavar="DIR", help="Write a capture: intervals, connections and round trips."
)
@force
@as_json
def command(
    interface: str | None, pcap: str | None, ports: tuple[str, ...], duration: str | None, interval: str | None, ring: str,
    out: Path | None, force: bool, as_json: bool,
) -> None:
    """Show packets, connections and round trips.

    A round trip is a request and its answer. Of PostgreSQL and MySQL it is found by messages, of others by the change of direction.
    Contents of packets are not stored. To capture needs the right CAP_NET_RAW; a file needs none.
    """
    from leadline.net import packets
    from leadline.output import to_json
    from leadline.probes import wire
    from leadline.progress import Silent, TerminalLine

    chosen = ports_of(ports)
    interval_s = span(interval) if interval else 1.0
    if (interface is None) == (pcap is None):
        raise click.UsageError("name an interface with -i, or a file with --pcap")
    directory = None
    lost = 0
    if pcap is not None:
        if out is None:
            found = packets.read(pcap, chosen, interval_s=interval_s)
        else:
            directory, found = packets.read_into(pcap, chosen, interval_s=interval_s, out=out, overwrite=force)
        seen, name = found, pcap
        warning = found["file"]["ended_early"]
        lost = found["file"]["dropped"]
    else:
        assert interface is not None
        for_s, more = span(duration or "10s"), {"interval_s": interval_s, "ring_bytes": int(quantity(ring))}
        progress = Silent() if as_json else TerminalLine()
        if out is None:
            live = wire.watch(interface, chosen, for_s=for_s, progress=progress, **more)
        else:
            directory, live = wire.record(interface, chosen, for_s=for_s, out=out, overwrite=force, progress=progress, **more)
        seen, name, warning, lost = live, wire.name_of(interface, chosen), None, live["lost"]  # type: ignore[assignment]
    listed = packets.connections(directory) if directory is not None else seen["connections"]
    if as_json:
        click.echo(to_json({"source": name, "capture": directory and str(directory), "lost": lost} | seen | {"connections": listed}))
        return
    click.echo(f"{name}: ", nl=False)
    for line in packets.lines(seen, listed, intervals=interval is not None):
        click.echo(line)
    if lost:
        click.echo(f"warning: {lost:,} packets were lost before they could be read", err=True)
    if warning:
        click.echo(f"warning: {warning}", err=True)
    if directory is not None:
        click.echo(f"next: leadline show {directory}", err=True)

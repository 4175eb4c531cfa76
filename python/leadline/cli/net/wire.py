"""Options of the subcommands that look at packets."""

from __future__ import annotations

import click

from leadline.errors import LeadlineError

interface = click.option("-i", "--interface", metavar="IF", help="Capture on this interface, such as lo or eth0; any for all.")
pcap = click.option("--pcap", metavar="FILE", type=click.Path(), help="Read a file of packets: pcap or pcapng.")
ports_option = click.option(
    "--port", "ports", multiple=True, metavar="PORT[,PORT...]", help="Ports of the server.  [default: all]"
)


def ports_of(texts: tuple[str, ...]) -> list[int]:
    """Ports as numbers. Raises LeadlineError('usage')."""
    ports = []
    for part in ",".join(texts).split(",") if texts else ():
        if not (part.strip().isascii() and part.strip().isdigit() and 0 < int(part) < 65536):
            raise LeadlineError("usage", f"{part!r} is not a port", hint="ports are 1 to 65535: --port 5432,6432")
        ports.append(int(part))
    return list(dict.fromkeys(ports))

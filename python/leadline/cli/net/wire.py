"""Options of the subcommands that look at packets."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import click

from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.probes.pcap_filter import Filter

interface = click.option("-i", "--interface", metavar="IF", help="Capture on this interface, such as lo or eth0; any for all.")
pcap = click.option(
    "--pcap", "pcaps", multiple=True, metavar="FILE", type=click.Path(),
    help="Read a file of packets: pcap or pcapng, also compressed by gzip, zstd or lz4; - for stdin. Several are read together.",
)  # fmt: skip
ports_option = click.option(
    "--port", "ports", multiple=True, metavar="PORT[,PORT...]", help="Ports of the server.  [default: all]"
)

hosts_option = click.option(
    "--host", "hosts", multiple=True, metavar="HOST[,HOST...]",
    help="Only packets from or to these: a name, an address, or a net such as 10.1.0.0/16.",
)  # fmt: skip
filter_option = click.option(
    "--filter", "expression", metavar="EXPRESSION",
    help="Only packets that match this filter, in tcpdump's syntax, such as 'tcp port 5432 and not host db2'. Needs libpcap.",
)  # fmt: skip


def filter_of(expression: str | None) -> Filter | None:
    """Raises LeadlineError."""
    from leadline.probes.pcap_filter import compiled

    return None if expression is None else compiled(expression)


def ports_of(texts: tuple[str, ...]) -> list[int]:
    """Ports as numbers. Raises LeadlineError('usage')."""
    ports = []
    for part in ",".join(texts).split(",") if texts else ():
        if not (part.strip().isascii() and part.strip().isdigit() and 0 < int(part) < 65536):
            raise LeadlineError("usage", f"{part!r} is not a port", hint="ports are 1 to 65535: --port 5432,6432")
        ports.append(int(part))
    return list(dict.fromkeys(ports))


def hosts_of(texts: tuple[str, ...]) -> list[tuple[bytes, int]]:
    """Addresses as IPv6 with the number of bits that count; IPv4 is mapped. Raises LeadlineError('usage')."""
    import socket

    nets: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
    for part in (part.strip() for text in texts for part in text.split(",")):
        try:
            nets.append(ipaddress.ip_network(part, strict=False))
        except ValueError:
            try:
                found = socket.getaddrinfo(part, None, type=socket.SOCK_STREAM) if part and "/" not in part else []
            except (OSError, UnicodeError):
                found = []
            if not found:
                hint = "name a host, an address, or a net: --host db1,10.1.0.0/16,2001:db8::/32"
                raise LeadlineError("usage", f"{part!r} is neither a known host nor an address", hint=hint) from None
            nets += [ipaddress.ip_network(str(address[0]).partition("%")[0]) for *_, address in found]
    mapped = bytes(10) + b"\xff\xff"
    return list(
        dict.fromkeys(
            (mapped + net.network_address.packed, 96 + net.prefixlen) if net.version == 4 else (net.network_address.packed, net.prefixlen)
            for net in nets
        )
    )

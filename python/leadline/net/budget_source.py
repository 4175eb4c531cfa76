"""Where the packets of a budget come from: a capture, a file of packets, or a running server whose packets are caught."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline._core.net import dbping
from leadline.errors import LeadlineError
from leadline.net.budget import Known
from leadline.progress import Progress

if TYPE_CHECKING:
    from leadline.probes.pcap_filter import Filter

HANDSHAKES, HANDSHAKE_S = 20, 5.0


@dataclass(frozen=True)
class Watched:
    """Packets of a server. address: of the server, where other servers may be in the packets too; else empty."""

    directory: Path
    address: str
    known: Known


def watch_server(dsn: str, for_s: float, into: Path, progress: Progress, only: Filter | None = None) -> Watched:
    """Catches the packets of a server on this host into a new capture below `into`. Raises LeadlineError.

    Clients that stay connected make no handshake while they are watched. A few made before say what the way from this host takes.
    """
    from leadline.net.login import server_of
    from leadline.probes.wire import record

    server = server_of(dsn)
    if server.host.startswith("/"):
        hint = "name the address that clients use: host=127.0.0.1"
        raise LeadlineError("usage", "the connections of a unix socket have no packets", hint=hint, where=server.host)
    found, _ = dbping(replace(server, user="").login(HANDSHAKE_S), "tcp", connects=HANDSHAKES + 1, pings=1)
    [handshake] = [phase for phase in json.loads(found)["phases"] if phase["phase"] == "connect"]
    own, address = _ends(server.host, server.port)
    interface = "lo" if own == address else "any"
    wanted: dict[str, Any] = {} if only is None else {"program": only.for_kernel(), "expression": only.expression}
    directory, seen = record(interface, [server.port], for_s=for_s, out=into / "packets.leadline", progress=progress, **wanted)
    if seen["whole"] is None:
        hint = "run it while clients work, on their host or that of the server"
        raise LeadlineError("not_found", "no round trips to the server passed this host", hint=hint, where=str(server))
    known = Known(handshake["p50_ns"] / 1e6, f"median of {HANDSHAKES} handshakes made before", own)
    return Watched(directory, "" if own == address else address, known)


def _ends(host: str, port: int) -> tuple[str, str]:
    """The address from which this host reaches the server, and the server's."""
    family, kind, protocol, _, (address, *rest) = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as one:
        one.connect((address, *rest))  # of a datagram socket: nothing is sent
        own, *_ = one.getsockname()
    return str(own), str(address)


def capture_of(path: str, ports: Sequence[int], into: Path, only: Filter | None = None) -> Path:
    """The directory of a capture as it is, or a file of packets read into a new capture below `into`. Raises LeadlineError."""
    if Path(path).is_dir():
        if only is not None:
            detail, hint = "its connections were counted when it was made", "filter what it is made of: take or net packets, with --filter"
            raise LeadlineError("usage", "a capture has no packets to filter", detail=detail, hint=hint, where=path)
        return Path(path)
    if not Path(path).exists():
        raise LeadlineError("not_found", "no such file or directory", hint="name a capture or a file of packets (pcap, pcapng)", where=path)
    from leadline.net.packets import read_into

    directory, _ = read_into(path, ports, only=only, out=into / "packets.leadline")
    return directory

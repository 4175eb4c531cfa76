"""The round-trip budget: t = a + N * RTT + bytes / bandwidth, with N counted in packets, and what other round trips would give.

N is the number of round trips for each transaction, t the time from one transaction to the next on a connection: requests, answers and
the client's own time between them. a is what is left of t: work of client and server, and their waiting for a CPU.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from leadline._core.net import dbping
from leadline.capture.reader import Capture
from leadline.errors import LeadlineError
from leadline.figures import count
from leadline.lab.paired import quantile
from leadline.output import to_table
from leadline.progress import Progress

RESAMPLES = 2000
LEVEL = 0.95
HANDSHAKES, HANDSHAKE_S = 20, 5.0
MOST_CELLS = 400  # with more, seconds of all connections together are drawn

# One row for each connection and second. The time of a round trip begins where the answer before it ended.
CELLS = """
with work as (
  select t.* exclude (transactions), case when c.transactions is not null then t.transactions end as transactions
  from wire_roundtrip t join wire_connection c using (connection_id)
  where t.purpose not in ('start-up', 'authentication', 'encryption request', 'cancel', 'terminate') and t.last_ns is not null
    and (? = '' or c.server_addr = ?)
)
select connection_id, ts // 1000000000 as second, count(*) as trips, sum(transactions)::bigint as transactions,
       sum(coalesce(client_gap_ns, 0) + last_ns) as cycle_ns, sum(request_bytes + response_bytes)::bigint as bytes
from work group by all order by all
"""
RTT = """
select median(handshake_ns) as handshake_ns, min(least_ack_ns) as least_ack_ns, count(handshake_ns) as handshakes from wire_connection
where round_trips > 0
"""


@dataclass(frozen=True)
class Estimate:
    """A value and its bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class WhatIf:
    """At another round-trip time."""

    rtt_ms: float
    transaction_ms: Estimate
    per_second: Estimate
    network_share: float


@dataclass(frozen=True)
class Budget:
    """unit: transaction, or round trip where transactions cannot be told. rtt_from: how the present round-trip time is known.

    unread_connections: left out, because their messages cannot be read while those of others can.
    """

    unit: str
    connections: int
    unread_connections: int
    transactions: int
    round_trips: int
    window_s: float
    rtt_ms: float
    rtt_from: str
    trips_each: Estimate
    bytes_each: float
    cycle_ms: Estimate
    rest_ms: Estimate
    per_second: float
    busy_connections: float
    what_if: list[WhatIf] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def budget(
    capture: Capture, rtts_ms: Sequence[float], *, base_rtt_ms: float | None = None, base_from: str = "given",
    bits_per_s: float | None = None, server: str = "", seed: int = 1,
) -> Budget:  # fmt: skip
    """The budget of the packets of a capture. Raises LeadlineError.

    base_rtt_ms, base_from: the present round-trip time when it is known better, and how. server: the address of the only one to look at.
    """
    cells = capture.rows(CELLS, (server, server))
    if not cells:
        hint = "leadline net packets shows what is there"
        raise LeadlineError("not_found", "no round trips in the packets", hint=hint, where=str(capture.path))
    rtt_ms, rtt_from = (base_rtt_ms, base_from) if base_rtt_ms is not None else present_rtt(capture)
    all_connections = _connections(cells)
    if any(c["transactions"] for c in cells):
        cells = [c for c in cells if c["transactions"] is not None]
    trips, transactions = sum(c["trips"] for c in cells), sum(c["transactions"] or 0 for c in cells)
    unit = "transaction" if transactions else "round trip"
    connections = _connections(cells)
    counted = "transactions" if transactions else "trips"
    numbers: list[tuple[int, ...]] = [(c["trips"], c[counted], c["cycle_ns"], c["bytes"]) for c in cells]
    if len(numbers) > MOST_CELLS:
        numbers = _by_second(cells, counted)
    window_s = capture.scalar("select (max(ts + last_ns) - min(ts)) / 1e9 from wire_roundtrip where last_ns is not null")
    whole = _sums(numbers)
    rng = random.Random(seed)
    drawn = [_sums(rng.choices(numbers, k=len(numbers))) for _ in range(RESAMPLES)]
    drawn = [d for d in drawn if d[1]]
    busy = whole[2] / 1e9 / window_s if window_s else 0.0

    def estimate(of: Any) -> Estimate:
        values = sorted(of(d) for d in drawn)
        tail = (1 - LEVEL) / 2
        return Estimate(of(whole), quantile(values, tail), quantile(values, 1 - tail))

    def rest(d: tuple[float, ...]) -> float:
        return max(0.0, d[2] / d[1] / 1e6 - d[0] / d[1] * rtt_ms)

    def cycle(d: tuple[float, ...], rtt: float) -> float:
        line_ms = 8000 * d[3] / d[1] / bits_per_s if bits_per_s else 0.0
        return rest(d) + d[0] / d[1] * rtt + line_ms

    what_if = [
        WhatIf(
            rtt,
            estimate(lambda d, rtt=rtt: cycle(d, rtt)),
            estimate(lambda d, rtt=rtt: 1000 * busy / cycle(d, rtt) if cycle(d, rtt) else 0.0),
            whole[0] / whole[1] * rtt / cycle(whole, rtt) if cycle(whole, rtt) else 0.0,
        )
        for rtt in rtts_ms
    ]
    return Budget(
        unit, connections, all_connections - connections, int(whole[1]), trips,
        window_s, rtt_ms, rtt_from, estimate(lambda d: d[0] / d[1]), whole[3] / whole[1],
        estimate(lambda d: d[2] / d[1] / 1e6), estimate(rest), whole[1] / window_s if window_s else 0.0, busy, what_if,
    )  # fmt: skip


def _connections(cells: Sequence[dict[str, Any]]) -> int:
    return len({c["connection_id"] for c in cells})


def _sums(cells: Sequence[tuple[int, ...]]) -> tuple[float, ...]:
    return tuple(float(sum(column)) for column in zip(*cells))


def _by_second(cells: Sequence[dict[str, Any]], counted: str) -> list[tuple[int, ...]]:
    seconds: dict[int, list[int]] = {}
    for c in cells:
        sums = seconds.setdefault(c["second"], [0, 0, 0, 0])
        for place, name in enumerate(("trips", counted, "cycle_ns", "bytes")):
            sums[place] += c[name]
    return [tuple(sums) for sums in seconds.values()]


def present_rtt(capture: Capture) -> tuple[float, str]:
    """The round-trip time in ms, and how it is known. Raises LeadlineError."""
    [row] = capture.rows(RTT)
    if row["handshake_ns"] is not None:
        return row["handshake_ns"] / 1e6, f"median of {row['handshakes']} handshakes"
    if row["least_ack_ns"] is not None:
        return row["least_ack_ns"] / 1e6, "shortest times to an acknowledgement: at most this"
    raise LeadlineError(
        "not_found", "the round-trip time is not in the packets", detail="neither a handshake nor an acknowledgement was seen",
        hint="say it: --base-rtt 0.1ms", where=str(capture.path),
    )  # fmt: skip


def lines(found: Budget) -> Iterator[str]:
    trips, cycle, rest = found.trips_each, found.cycle_ms, found.rest_ms
    seen = f"{count(found.transactions, found.unit)} in {found.window_s:.2f} s on {count(found.connections, 'connection')}"
    yield f"{seen}: {found.per_second:,.1f} a second"
    if found.unread_connections:
        yield f"{count(found.unread_connections, 'connection')} left out: the messages could not be read"
    if found.unit != "transaction":
        yield "transactions cannot be told: the budget is that of one round trip"
    yield f"round-trip time   {found.rtt_ms:.4g} ms ({found.rtt_from})"
    yield f"N                 {trips.value:.3f} round trips for each {found.unit} [{trips.low:.3f}, {trips.high:.3f}]"
    yield f"t                 {cycle.value:.4g} ms from one {found.unit} to the next [{cycle.low:.4g}, {cycle.high:.4g}]"
    yield f"a = t - N * RTT   {rest.value:.4g} ms [{rest.low:.4g}, {rest.high:.4g}]"
    yield f"data              {found.bytes_each:,.0f} bytes for each {found.unit}"
    if not found.what_if:
        return
    yield ""
    rows = []
    for at in found.what_if:
        t, rate = at.transaction_ms, at.per_second
        rows.append(
            [f"{at.rtt_ms:g}", f"{t.value:.4g}", f"{t.low:.4g} to {t.high:.4g}", f"{rate.value:,.1f}",
             f"{rate.low:,.1f} to {rate.high:,.1f}", f"{100 * at.network_share:.0f} %"]
        )  # fmt: skip
    yield to_table(["RTT, ms", "t, ms", "95 %", "a second", "95 %", "network"], rows)
    yield f"if {found.busy_connections:.2f} connections stay busy and the work of client and server stays the same"


def is_server(source: str) -> bool:
    """Whether it is the connection string of a server and not a path."""
    return ("://" in source or "=" in source) and not Path(source).exists()


@dataclass(frozen=True)
class Watched:
    """Packets of a server. address: of the server, where other servers may be in the packets too; else empty."""

    directory: Path
    address: str
    rtt_ms: float
    rtt_from: str


def watch_server(dsn: str, for_s: float, into: Path, progress: Progress) -> Watched:
    """Catches the packets of a server on this host into a new capture below `into`. Raises LeadlineError."""
    from leadline.net.login import server_of
    from leadline.probes.wire import record

    server = server_of(dsn)
    if server.host.startswith("/"):
        hint = "name the address that clients use: host=127.0.0.1"
        raise LeadlineError("usage", "the connections of a unix socket have no packets", hint=hint, where=server.host)
    found, _ = dbping(replace(server, user="").login(HANDSHAKE_S), "tcp", connects=HANDSHAKES + 1, pings=1)
    [handshake] = [phase for phase in json.loads(found)["phases"] if phase["phase"] == "connect"]
    address = _foreign(server.host, server.port)
    directory, seen = record("any" if address else "lo", [server.port], for_s=for_s, out=into / "packets.leadline", progress=progress)
    if seen["whole"] is None:
        hint = "run it while clients work, on their host or that of the server"
        raise LeadlineError("not_found", "no round trips to the server passed this host", hint=hint, where=str(server))
    return Watched(directory, address, handshake["p50_ns"] / 1e6, f"median of {HANDSHAKES} handshakes made before")


def _foreign(host: str, port: int) -> str:
    """The address of another host; empty for this one, whose address would also be the sender's."""
    family, kind, protocol, _, (address, *rest) = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as one:
        one.connect((address, *rest))  # of a datagram socket: nothing is sent
        own, *_ = one.getsockname()
    return "" if own == address else str(address)


def capture_of(path: str, ports: Sequence[int], into: Path) -> Path:
    """The folder of a capture as it is, or a file of packets read into a new capture below `into`."""
    if Path(path).is_dir():
        return Path(path)
    if not Path(path).exists():
        raise LeadlineError("not_found", "no such file or folder", hint="name a capture or a file of packets (pcap, pcapng)", where=path)
    from leadline.net.packets import read_into

    directory, _ = read_into(path, ports, out=into / "packets.leadline")
    return directory

"""The round-trip budget: t = a + (N + C) * RTT, counted in packets, for each client and port of a server.

N is the number of round trips for each transaction, C that of round trips to make connections, t the time from one transaction to the next
on a connection: requests, answers and the client's own time between them, and between two connections. a is what is left of t: the work
of client and server, and their waiting for a CPU.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from leadline.capture.reader import Capture
from leadline.errors import LeadlineError
from leadline.figures import count
from leadline.lab.paired import quantile
from leadline.net.budget_model import Estimate, Model, WhatIf
from leadline.net.budget_read import Path, Sums, paths_of
from leadline.net.packets import end_text

RESAMPLES = 1000
LEVEL = 0.95
FEWEST = 5  # transactions, and parts of the time: with fewer there is no interval
MOST_PATHS = 20
ACK_SLACK_MS = 0.1  # an acknowledgement that comes with an answer has waited for the server's work on it
SAME = 1e-6


@dataclass(frozen=True)
class Known:
    """A round-trip time that is known better than from the packets. client: only of this client; else of all."""

    rtt_ms: float
    how: str = "given"
    client: str | None = None


@dataclass(frozen=True)
class Budget:
    """Of one client and one port of a server.

    unit: transaction, or round trip where transactions cannot be told. rtt_from: how the present round-trip time is known.
    unread_connections: left out, because their messages cannot be read while those of others can.
    cut_connections: left out, because their packets were not captured whole. setup_trips_each: C.
    """

    client: str
    server: str
    unit: str
    connections: int
    unread_connections: int
    cut_connections: int
    transactions: int
    round_trips: int
    setup_round_trips: int
    window_s: float
    rtt_ms: float
    rtt_from: str
    least_answer_ms: float | None
    trips_each: Estimate
    setup_trips_each: float
    bytes_each: float
    cycle_ms: Estimate
    rest_ms: Estimate
    per_second: float
    busy_connections: float
    what_if: list[WhatIf] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Budgets:
    """Those that took most time first. more: of other clients and ports. without_rtt: of which the round-trip time is not known."""

    budgets: list[Budget]
    more: int
    without_rtt: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def budgets(
    capture: Capture, rtts_ms: Sequence[float], *, known: Known | None = None, bits_per_s: float | None = None, ports: Sequence[int] = (),
    server: str = "", client: str = "", with_present: bool = False, seed: int = 1,
) -> Budgets:  # fmt: skip
    """The budgets of the packets of a capture. Raises LeadlineError.

    ports, server, client: of what to look at; empty for any. with_present: also at the present round-trip time of each.
    """
    every = paths_of(capture, ports, server=server, client=client)
    paths = [path for path in every if path.connections]
    if not paths:
        raise _cut(capture) if every else _nothing(capture)
    placed = [(path, present_rtt(path, known)) for path in paths]
    found = [(path, rtt) for path, rtt in placed if rtt is not None]
    if not found:
        raise LeadlineError(
            "not_found", "the round-trip time is not in the packets", detail="neither a handshake nor an acknowledgement was seen",
            hint="say it: --base-rtt 0.1ms", where=str(capture.path),
        )  # fmt: skip
    made = []
    for path, rtt in found[:MOST_PATHS]:
        wanted = sorted({*rtts_ms, rtt[0]}) if with_present else rtts_ms
        made.append(_budget(path, *rtt, wanted, bits_per_s, random.Random(seed)))
    return Budgets(made, len(found) - len(made), len(placed) - len(found))


def _nothing(capture: Capture) -> LeadlineError:
    there = capture.rows("select distinct server_port from wire_connection where round_trips > 0 order by 1 limit 10")
    ports = ", ".join(str(row["server_port"]) for row in there)
    detail = f"ports with round trips: {ports}" if ports else ""
    hint = "leadline net packets shows what is there"
    return LeadlineError("not_found", "no round trips in the packets", detail=detail, hint=hint, where=str(capture.path))


def _cut(capture: Capture) -> LeadlineError:
    detail = "too many messages were lost: neither transactions nor round trips can be counted"
    hint = "capture whole packets: tcpdump -s 0, or leadline net packets -o"
    return LeadlineError("invalid", "the packets were not captured whole", detail=detail, hint=hint, where=str(capture.path))


def present_rtt(path: Path, known: Known | None) -> tuple[float, str, float] | None:
    """The round-trip time in ms, how it is known, and by how much it may be shorter. None if it is not known. Raises LeadlineError."""
    whole = path.whole
    # So long at most: each round trip contains the way.
    most_ms = whole.time_ns / 1e6 / (whole.trips + whole.setup_trips)
    if known is not None and known.client is None:
        if known.rtt_ms > most_ms * (1 + SAME):
            of = f"client {path.client} of {end_text(path.server, path.port)}"
            detail = f"{of}: a round trip and the work of both ends took {most_ms:.4g} ms together"
            hint = "name a shorter --base-rtt, or --client and --port if it is that of others"
            raise LeadlineError("usage", f"a round trip of {known.rtt_ms:g} ms contradicts the packets", detail=detail, hint=hint)
        return min(known.rtt_ms, most_ms), known.how, 0.0
    texts = {
        "handshakes": f"median of {count(path.handshakes, 'handshake')}", "acknowledgements": "shortest acknowledgements: at most this",
        "round trips": "mean of the round trips: at most this",
    }  # fmt: skip
    rtt = None if path.rtt_ns is None else (path.rtt_ns / 1e6, texts[path.rtt_from], 0.0 if path.rtt_from == "handshakes" else ACK_SLACK_MS)
    if known is not None and path.client in (known.client, path.server) and (rtt is None or known.rtt_ms < rtt[0]):
        rtt = (known.rtt_ms, known.how, 0.0)
    if rtt is not None and rtt[0] > most_ms:
        rtt = (most_ms, texts["round trips"], ACK_SLACK_MS)
    return rtt


def _budget(
    path: Path, rtt_ms: float, rtt_from: str, slack_ms: float, rtts_ms: Sequence[float], bits_per_s: float | None, rng: random.Random
) -> Budget:
    whole, blocks = path.whole, list(path.blocks.values())
    unit = "transaction" if whole.transactions else "round trip"
    window_s = (path.to_ns - path.from_ns) / 1e9

    def each(sums: Sums) -> int:
        return sums.transactions if whole.transactions else sums.trips

    busy = whole.time_ns / 1e9 / window_s if window_s else 0.0

    def model(sums: Sums) -> Model:
        n, trips = each(sums), sums.trips + sums.setup_trips
        floor_ns = path.floor_ns * sums.time_ns / whole.time_ns if whole.time_ns else 0.0
        line_ms = 8000 * sums.bytes / n / bits_per_s if bits_per_s else 0.0
        floor_ms = max(0.0, floor_ns / n / 1e6 - trips / n * rtt_ms)
        return Model(sums.time_ns / n / 1e6, trips / n, rtt_ms, floor_ms, slack_ms, busy, sums.bulk_trips / n, line_ms)

    drawn: list[tuple[Sums, Model]] = []
    if each(whole) >= FEWEST and len(blocks) >= FEWEST:
        for _ in range(RESAMPLES):
            sums = Sums.of(rng.choices(blocks, k=len(blocks)))
            if each(sums):
                drawn.append((sums, model(sums)))

    def estimate(of: Callable[[Sums, Model], float]) -> Estimate:
        return interval(of(whole, now), (of(*d) for d in drawn), (of(*d) for d in drawn))

    def interval(value: float, lows: Any, highs: Any) -> Estimate:
        if not drawn:
            return Estimate(value, None, None)
        tail = (1 - LEVEL) / 2
        return Estimate(value, min(value, quantile(sorted(lows), tail)), max(value, quantile(sorted(highs), 1 - tail)))

    def rate(time_ms: float) -> float:
        return 1000 * busy / time_ms if time_ms else 0.0

    def what_if(rtt: float) -> WhatIf:
        bounds = [m.bounds(rtt) for _, m in drawn]
        time_ms = interval(now.at(rtt), (low for low, _ in bounds), (high for _, high in bounds))
        per_second = interval(rate(now.at(rtt)), (rate(high) for _, high in bounds), (rate(low) for low, _ in bounds))
        return WhatIf(rtt, time_ms, per_second, now.network_share(rtt))

    now = model(whole)
    found = Budget(
        path.client, end_text(path.server, path.port), unit, path.connections, path.unread_connections, path.cut_connections, each(whole),
        whole.trips, whole.setup_trips, window_s, rtt_ms, rtt_from, None if path.least_answer_ns is None else path.least_answer_ns / 1e6,
        estimate(lambda s, _: s.trips / each(s)), whole.setup_trips / each(whole), whole.bytes / each(whole),
        estimate(lambda _, m: m.time_ms), estimate(lambda _, m: max(0.0, m.rest_ms)),
        each(whole) / window_s if window_s else 0.0, busy, [what_if(rtt) for rtt in rtts_ms],
    )  # fmt: skip
    must_agree(found, rate(now.at(rtt_ms) - now.line_ms), now)
    return found


def must_agree(found: Budget, predicted: float, now: Model) -> None:
    """Raises LeadlineError if the prediction at the present round-trip time is not what was measured: nothing of it may be printed then."""
    if abs(predicted - found.per_second) > SAME * found.per_second or now.rest_ms < -SAME * now.time_ms:
        detail = f"at {found.rtt_ms:g} ms it gives {predicted:g} a second, and {found.per_second:g} were counted; a = {now.rest_ms:g} ms"
        raise LeadlineError("fault", "the budget contradicts the packets that it was made from", detail=detail)

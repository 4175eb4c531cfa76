"""Round trips to `leadline net echo`: measured by size, printed, written as a capture."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leadline._core.net import rtt
from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import ProbeState, Target
from leadline.capture.store import Store
from leadline.net import clock
from leadline.net.address import Address
from leadline.net.intervals import Interval, Intervals

TCP = ("rtt_us", "min_rtt_us", "cwnd", "retransmits", "busy_us", "rwnd_limited_us", "sndbuf_limited_us", "notsent_bytes")
PERCENTILES = ("min_ns", "p50_ns", "p99_ns", "p99_9_ns", "p99_99_ns", "max_ns")


@dataclass(frozen=True)
class Plan:
    """sizes: payload bytes of a request, each measured for for_s. response: of the reply; None: as many as the request, or none of a flow.

    count: at most so many on each connection. interval_s: tell of each. flow: without waiting for replies.
    """

    sizes: Sequence[int]
    response: int | None = None
    connections: int = 1
    rate_hz: float | None = None
    for_s: float = 10.0
    timeout_s: float = 5.0
    count: int | None = None
    interval_s: float | None = None
    flow: bool = False


# Which run, from 0; its interval.
Tell = Callable[[int, Interval], None]


def measure(address: Address, plan: Plan, tell: Tell | None = None) -> dict[str, Any]:
    """Measures all sizes, one after the other. `interrupted`: by Ctrl-C, and what was measured until then is there.

    tell: gets the intervals as they come, in another thread.
    """
    found: dict[str, Any] = {"address": str(address), "clock": clock.cost(), "runs": [], "interrupted": False}
    for number, size in enumerate(plan.sizes):
        response = (0 if plan.flow else size) if plan.response is None else plan.response
        told: list[Interval] = []

        def interval(of: Interval, number: int = number, told: list[Interval] = told) -> None:
            told.append(of)
            if tell is not None:
                tell(number, of)

        intervals = Intervals(plan.connections, plan.interval_s or 1.0, interval)
        more: dict[str, Any] = {"connections": plan.connections, "for_s": plan.for_s, "timeout_s": plan.timeout_s, "requests": plan.count}
        more |= {"rate_hz": plan.rate_hz, "flow": plan.flow}
        if plan.interval_s:
            more |= {"interval_s": plan.interval_s, "show": intervals.row}
        text, found["interrupted"] = rtt(address.host, address.port, request=size, response=response, **more)
        intervals.end()
        found["runs"].append(json.loads(text) | {"intervals": [of.as_dict() for of in told]})
        if found["interrupted"]:
            break
    return found


def capture(address: Address, plan: Plan, directory: Path, *, overwrite: bool, tell: Tell | None = None) -> dict[str, Any]:
    """The same, also written as a capture."""
    with new_capture(directory, overwrite=overwrite, exactly=True):
        making = Making(directory, Target("net", f"round trips to {address}"), {**asdict(plan), "sizes": list(plan.sizes)})
        with making.from_files() as manifest:
            manifest.clock = clock.began()
            found = measure(address, plan, tell)
            store = Store(str(directory))
            for number, run in enumerate(found["runs"]):
                for row in run["rows"]:
                    store.add("net_rtt", [_row(number, run, row)])
                    store.add("net_rtt_bucket", _buckets(number, row))
            manifest.tables = store.close()
            manifest.clock.ts_to = time.monotonic_ns()
            faults = [fault for run in found["runs"] for fault in run["faults"]]
            loss = {"unsent_requests": sum(run["unsent"] for run in found["runs"]), "failed_connections": len(faults)}
            manifest.probes["net"] = state = ProbeState(tier="socket", loss=loss, detail={"clock": found["clock"]})
            if faults:
                state.status, state.why = "partial", faults[0]["text"]
    return found


def _row(number: int, run: dict[str, Any], row: dict[str, Any]) -> tuple[Any, ...]:
    head = (row["ts"], row["duration_ns"], number, row["connection"], run["request_bytes"], run["response_bytes"], run["rate_hz"])
    rtts = tuple(row["rtt"][name] for name in PERCENTILES)
    responses = tuple(row["response"][name] for name in ("p50_ns", "p99_ns", "max_ns"))
    tcp = tuple((row["tcp"] or {}).get(name) for name in TCP)
    return (*head, row["requests"], row["replies"], *rtts, *responses, base64.b64decode(row["rtt"]["histogram"]), *tcp)


def _buckets(number: int, row: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (row["ts"], number, row["connection"], kind, low, high, count)
        for kind in ("rtt", "response")
        for low, high, count in row[kind]["buckets"]
    ]


def as_json(found: dict[str, Any]) -> dict[str, Any]:
    """Without the rows of single seconds: those are for a capture."""
    return {**found, "runs": [{key: value for key, value in run.items() if key != "rows"} for run in found["runs"]]}

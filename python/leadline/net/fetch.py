"""A query fetched with different numbers of rows for each round trip: which number is enough.

Like an application with a fetch size, it reads a portal: each Execute with a limit of rows is one round trip.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from leadline._core.net import Delay, Fetcher
from leadline.errors import LeadlineError
from leadline.net.address import LOOPBACK
from leadline.net.login import Server
from leadline.units import bytes_of

ENOUGH = 1.05  # a size that takes so many times the best time is as good
ServerSocket = tuple[tuple[str, int], tuple[str, int]]  # its address and that of its peer


@dataclass(frozen=True)
class Size:
    """rows or bytes of each fetch; 0 rows: all at once."""

    rows: int | None = None
    bytes: int | None = None

    def rows_of(self, row_bytes: float) -> int:
        """At least one."""
        return self.rows if self.rows is not None else max(1, int((self.bytes or 0) / max(row_bytes, 1)))


def parse_sizes(text: str) -> list[Size]:
    """10,1000,all in rows; 4kB,64kB in bytes. Raises LeadlineError('usage')."""
    sizes = []
    for part in text.split(","):
        wanted = part.strip()
        if wanted == "all":
            sizes.append(Size(rows=0))
        elif re.fullmatch("[0-9]*[1-9][0-9]*", wanted):
            sizes.append(Size(rows=int(wanted)))
        elif re.fullmatch(r"[0-9.]+\s*[kKmM]?B", wanted):
            sizes.append(Size(bytes=bytes_of(wanted, least=1)))
        else:
            raise LeadlineError("usage", f"{part.strip()!r} is not a fetch size", hint="use rows (100, all) or bytes (4096B, 64kB)")
    return sizes


@dataclass(frozen=True)
class Plan:
    query: str
    sizes: Sequence[Size]
    rtts_s: Sequence[float] = (0.0,)
    rate_bit: float | None = None
    window: int | None = None
    repeat: int = 3
    timeout_s: float = 30.0


def measure(server: Server, plan: Plan, progress: Callable[[int, int, str], None]) -> dict[str, Any]:
    """One curve for each round trip, from the median of the repetitions, which take turns."""
    direct = Fetcher(server.login(plan.timeout_s))
    far = direct.addresses()
    first, interrupted = _run(direct, plan.query, 0, far and (far[1], far[0]))
    if not first["rows"]:
        raise LeadlineError("usage", "the query returned no rows", hint="fetch a query with enough rows for several round trips")
    row_bytes = first["row_bytes"] / first["rows"]
    found: dict[str, Any] = {"rows": first["rows"], "row_bytes": row_bytes, "bytes": first["row_bytes"], "curves": []}
    found["interrupted"] = interrupted
    total, done = len(plan.rtts_s) * plan.repeat * len(plan.sizes), 0
    for rtt_s in plan.rtts_s:
        runs: list[list[dict[str, Any]]] = [[] for _ in plan.sizes]
        with _way(server, plan, rtt_s, direct) as (fetcher, socket, proxy):
            for _ in range(plan.repeat):
                for size, results in zip(plan.sizes, runs):
                    if not found["interrupted"]:
                        result, found["interrupted"] = _run(fetcher, plan.query, size.rows_of(row_bytes), socket)
                        if result["complete"]:
                            results.append(result)
                    done += 1
                    progress(done, total, f"rtt {1000 * rtt_s:g} ms")
            told = None if proxy is None else json.loads(proxy.stop())
        points = [_point(size, results) for size, results in zip(plan.sizes, runs) if results]
        found["curves"].append({"rtt_ns": round(rtt_s * 1e9), "added_rtt_p50_ns": told and told["added_rtt_p50_ns"], **_judged(points)})
    return found


@contextmanager
def _way(server: Server, plan: Plan, rtt_s: float, direct: Fetcher) -> Iterator[tuple[Fetcher, ServerSocket | None, Delay | None]]:
    """A session, the server's socket of it (if both are known), and the proxy that delays it."""
    far = direct.addresses()
    if not rtt_s and plan.window is None and plan.rate_bit is None:
        yield direct, far and (far[1], far[0]), None
        return
    proxy = Delay(LOOPBACK, 0, server.host, server.port, rtt_s=rtt_s, rate_bit=plan.rate_bit, window=plan.window)
    fetcher = Fetcher(server.login(plan.timeout_s, through=proxy.address()))
    upstream = proxy.upstream()
    yield fetcher, (far[1], upstream[0]) if far and upstream else None, proxy


def _run(fetcher: Fetcher, query: str, rows: int, socket: ServerSocket | None) -> tuple[dict[str, Any], bool]:
    text, interrupted = fetcher.run(query, rows, server=socket)
    return json.loads(text), interrupted


def _point(size: Size, results: list[dict[str, Any]]) -> dict[str, Any]:
    queues = [r["peak_send_queue_bytes"] for r in results if r["peak_send_queue_bytes"] is not None]
    one = results[0]
    return {
        "asked_bytes": size.bytes,
        "rows_per_fetch": one["rows_per_fetch"],
        "bytes_per_fetch": one["row_bytes"] / max(one["round_trips"] - 1, 1),
        "round_trips": one["round_trips"],
        "received_bytes": one["received_bytes"],
        "time_ns": median(r["time_ns"] for r in results),
        "times_ns": [r["time_ns"] for r in results],
        "peak_send_queue_bytes": max(queues) if queues else None,
    }


def _judged(points: list[dict[str, Any]]) -> dict[str, Any]:
    """recommended: the smallest size whose time is within ENOUGH of the best. knee: where the curve bends most.

    first_gain: the first size that is faster than one row each time by more than ENOUGH; below it nothing is gained.
    """
    ordered = sorted(points, key=lambda p: -p["round_trips"])
    best = min((p["time_ns"] for p in ordered), default=0)
    recommended = next((p["rows_per_fetch"] for p in ordered if p["time_ns"] <= ENOUGH * best), None)
    one = next((p["time_ns"] for p in ordered if p["rows_per_fetch"] == 1), None)
    gain = next((p["rows_per_fetch"] for p in ordered if one is not None and ENOUGH * p["time_ns"] <= one), None)
    return {"points": points, "best_ns": best, "recommended_rows": recommended, "knee_rows": _knee(ordered), "first_gain_rows": gain}


def _knee(ordered: list[dict[str, Any]]) -> int | None:
    """The point that lies farthest below the line from the first to the last, both axes as logarithms; None if there is no bend."""
    if len(ordered) < 3:
        return None
    xs = [math.log(p["bytes_per_fetch"]) for p in ordered]
    ys = [math.log(p["time_ns"]) for p in ordered]
    if xs[0] == xs[-1]:
        return None
    slope = (ys[-1] - ys[0]) / (xs[-1] - xs[0])
    below = [ys[0] + slope * (x - xs[0]) - y for x, y in zip(xs, ys)]
    deepest = max(range(len(below)), key=lambda i: below[i])
    rows: int = ordered[deepest]["rows_per_fetch"]
    return rows if below[deepest] > math.log(ENOUGH) else None

"""What TLS costs a login: logins with and without it by turns, each pair's ratio, and what the ratios say."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from leadline._core.net import postgres_login
from leadline.errors import LeadlineError
from leadline.lab.paired import ENOUGH_PAIRS, pair_up, trial_order
from leadline.lab.signed_rank import median_interval, signed_rank_ratio
from leadline.net.login import Server
from leadline.output import to_table

PARTS = ("connect_ns", "tls_ns", "login_ns")


def measure(server: Server, pairs: int, timeout_s: float, progress: Callable[[int], None], seed: int | None = None) -> dict[str, Any]:
    """Pairs of a login without and one with TLS; the first of each kind is not counted. seed: of the order; drawn if not given.

    Raises LeadlineError.
    """
    seed = secrets.randbelow(10**9) if seed is None else seed
    if server.host.startswith("/"):
        hint = "name an address with host="
        raise LeadlineError("usage", "TLS is for TCP, and the connection string names a unix socket", hint=hint, where=server.host)
    encrypted = server.sslmode if server.sslmode.startswith("verify") else "require"
    logins = {False: replace(server, sslmode="disable").login(timeout_s), True: replace(server, sslmode=encrypted).login(timeout_s)}

    def once(tls: bool) -> dict[str, Any]:
        text, interrupted = postgres_login(logins[tls])
        told: dict[str, Any] = json.loads(text)
        if interrupted:
            raise KeyboardInterrupt
        if fault := told.get("fault"):
            hint = "the server must allow both, for this user from this host"
            way = "with" if tls else "without"
            raise LeadlineError("connection", f"cannot log in {way} TLS", detail=fault["text"], hint=hint, where=str(server))
        return told

    method, rng = once(False)["method"], random.Random(seed)
    once(True)
    trials = []
    for tls in trial_order(pairs, rng):
        told = once(tls)
        trials.append((tls, sum(told[part] or 0 for part in PARTS) / 1e6))
        progress(len(trials))
    ratio = signed_rank_ratio(pair_up(trials))
    interval = {"low": ratio.low, "high": ratio.high} if pairs >= ENOUGH_PAIRS else {"low": None, "high": None}
    times = {name: _times([ms for tls, ms in trials if tls == wanted]) for name, wanted in (("plain", False), ("tls", True))}
    return {"method": method, **times, "ratio": vars(ratio) | interval, "seed": seed}


def _times(values: list[float]) -> dict[str, Any]:
    low, high = median_interval(values) if len(values) >= ENOUGH_PAIRS else (None, None)
    return {"logins": len(values), "median_ms": median(values), "low_ms": low, "high_ms": high}


def lines(cost: dict[str, Any]) -> Iterator[str]:
    rows = []
    for name, way in (("without TLS", cost["plain"]), ("with TLS", cost["tls"])):
        interval = "" if way["low_ms"] is None else f"{way['low_ms']:.3g} to {way['high_ms']:.3g}"
        rows.append([name, way["logins"], f"{way['median_ms']:.3g}", interval])
    yield f"a login by {cost['method']}, from connect to the first prompt"
    yield to_table(["", "logins", "median, ms", "95 %"], rows)
    ratio = cost["ratio"]
    known = ratio["low"] is not None
    interval = f"95 % interval {ratio['low']:.3g} to {ratio['high']:.3g}" if known else f"no interval: {ENOUGH_PAIRS} pairs are the least"
    yield f"with TLS a login takes {ratio['estimate']:.3g} times as long, {interval}"

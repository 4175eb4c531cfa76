"""Budgets as text."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.figures import count
from leadline.net.budget import Budget, Budgets
from leadline.net.budget_model import Estimate
from leadline.output import to_table

MOST_SHOWN = 5
PROXY_TIMES, PROXY_MS = 10, 1.0  # an answer that never came sooner may have come through a proxy


def lines(found: Budgets) -> Iterator[str]:
    for number, budget in enumerate(found.budgets[:MOST_SHOWN]):
        if number:
            yield ""
        yield from _one(budget)
    left = len(found.budgets) - MOST_SHOWN + found.more if len(found.budgets) > MOST_SHOWN else found.more
    if left:
        yield ""
        yield f"{count(left, 'client')} more: --client ADDRESS or --port PORT shows one, --json {len(found.budgets)}"
    if found.without_rtt:
        yield f"{count(found.without_rtt, 'client')} left out: neither a handshake nor an acknowledgement was seen; say it with --base-rtt"


def _one(found: Budget) -> Iterator[str]:
    trips, cycle, rest = found.trips_each, found.cycle_ms, found.rest_ms
    yield f"client {found.client} of {found.server}"
    seen = f"{count(found.transactions, found.unit)} in {found.window_s:.2f} s on {count(found.connections, 'connection')}"
    yield f"{seen}: {found.per_second:,.1f} a second"
    if found.unread_connections:
        yield f"{count(found.unread_connections, 'connection')} left out: the messages could not be read"
    if found.cut_connections:
        yield f"{count(found.cut_connections, 'connection')} left out: the packets were not captured whole"
    if found.unit != "transaction":
        yield "transactions cannot be told: the budget is that of one round trip"
    yield f"round-trip time   {found.rtt_ms:.4g} ms ({found.rtt_from})"
    if found.least_answer_ms is not None and found.least_answer_ms > max(PROXY_MS, PROXY_TIMES * found.rtt_ms):
        yield f"                  no answer came sooner than {found.least_answer_ms:.4g} ms: behind a proxy, give --base-rtt"
    yield f"N                 {trips.value:.3f} round trips for each {found.unit}{_interval(trips, '.3f')}"
    setup = found.setup_trips_each
    if setup:
        yield f"C                 {setup:.3f} round trips for each {found.unit} to make connections"
    yield f"t                 {cycle.value:.4g} ms from one {found.unit} to the next{_interval(cycle, '.4g')}"
    yield f"{'a = t - (N+C) * RTT' if setup else 'a = t - N * RTT  '} {rest.value:.4g} ms{_interval(rest, '.4g')}"
    yield f"data              {found.bytes_each:,.0f} bytes for each {found.unit}"
    if not found.what_if:
        return
    yield ""
    rows = []
    for at in found.what_if:
        t, rate = at.transaction_ms, at.per_second
        rows.append(
            [f"{at.rtt_ms:g}", f"{t.value:.4g}", _range(t, ".4g"), f"{rate.value:,.1f}", _range(rate, ",.1f"),
             f"{100 * at.network_share:.0f} %"]
        )  # fmt: skip
    yield to_table(["RTT, ms", "t, ms", "95 %", "a second", "95 %", "network"], rows)
    yield f"if {found.busy_connections:.2f} connections stay busy and the work of client and server stays the same"
    if found.cycle_ms.low is None:
        yield "too few transactions for intervals"


def _interval(of: Estimate, form: str) -> str:
    if of.low is None or of.high is None or of.low == of.high:
        return ""  # each part of the time has the same, or there are too few
    return f" [{of.low:{form}}, {of.high:{form}}]"


def _range(of: Estimate, form: str) -> str:
    return "" if of.low is None or of.high is None else f"{of.low:{form}} to {of.high:{form}}"

"""The results of a load for people."""

from __future__ import annotations

from typing import Any

from leadline.figures import count
from leadline.output import to_table

QUANTILES = {"p50": "p50_ns", "p90": "p90_ns", "p99": "p99_ns", "p99.9": "p99_9_ns", "max": "max_ns"}
TIMES = {
    "latency": "from the moment it was due",
    "service": "from its begin",
    "lag": "due to begin",
    "schedule_error": "of it, the client's fault",
}
# A thread that has so much of a CPU, or waits so long for one, has no time left for being punctual.
BUSY, QUEUED = 0.7, 0.1
LATE_NS = 1_000_000
LEFT_S, LEFT_SHARE = 1.0, 0.01  # with less, transactions were only due when the time was just over


def ms(ns: float | None) -> float | None:
    """Milliseconds with the digits that the histogram has."""
    return None if ns is None else float(f"{ns / 1e6:.3g}")


def text(found: dict[str, Any]) -> str:
    phases = [phase for phase in found["phases"] if not phase["warm_up"]]
    void = [f"VOID: {found['void']}. The figures below count for nothing.", ""] if found["void"] else []
    lines = [*void, *_head(found, phases), "", *_transactions(phases), ""]
    if len(phases) == 1:
        lines += [*_times(phases[0]), ""]
    for phase in phases:
        lines += _scripts(phase, named=len(phases) > 1)
        if "consistency" not in found:
            lines += _statements(phase, named=len(phases) > 1)
        lines += _errors(phase, named=len(phases) > 1)
    lines += [_client(found, phases), *warnings(found)]
    if "capture" in found:
        lines.append(f"Written to {found['capture']}: see leadline show, or leadline report")
    return "\n".join(lines)


def _head(found: dict[str, Any], phases: list[dict[str, Any]]) -> list[str]:
    names = ", ".join(script["name"] for script in phases[0]["scripts"]) if phases else ""
    how = f"{found['clients']} clients in {found['threads']} threads, {found['mode']} mode, scale {found['scale']}"
    loop = "closed loop: a client begins when its transaction before has ended"
    if found["terminals"] is not None:
        times = "" if found["time_factor"] == 1 else f" {found['time_factor']:g} times as long as the specification has them"
        loop = f"{found['terminals']:,} terminals with keying and think times{times}, which wait for the clients"
    elif "consistency" in found:
        loop += "; no keying and think times"
    if phases and phases[0]["rate"] is not None:
        loop = "open loop: transactions are due whether or not those before have ended"
    if "purge" in found:
        of = found["purge"]
        end = f"; {of['left']:,} are left" if of["left"] else ""
        loop = f"{of['rows']:,} rows deleted in {of['seconds']:.1f} s: {of['rows_per_second'] or 0:,.0f} rows a second{end}"
    if "consistency" in found:
        names = f"{found['workload']}, {count(found['scale'], 'warehouse')}: no result of TPC-C, and not to be called tpmC"
        holds = ", ".join(f"{of['condition']} {'holds' if of['holds'] else 'BROKEN'}" for of in found["consistency"])
        loop = f"{loop}\nconsistency conditions: {holds or 'not checked'}"
    if found.get("tls"):
        how = f"{how}, {found['tls']}"
    if found["steady"] is not None:
        loop = f"{loop}\n{_warm_up(found)}"
    return [f"{found['server']}: {names}", how, loop]


def _warm_up(found: dict[str, Any]) -> str:
    seconds = next((phase["seconds"] for phase in found["phases"] if phase["warm_up"]), 0.0)
    end = "" if found["steady"] else ", after which the rate was not steady yet"
    return f"warm-up: {seconds:.0f} s discarded{end}"


def _transactions(phases: list[dict[str, Any]]) -> list[str]:
    several = len(phases) > 1
    names = ["rate", "seconds", "due/s", "done/s", "failed", "skipped", "retries"]
    names += ["p50 ms", "p99 ms", "max ms"] if several else ["done"]
    rows = []
    for phase in phases:
        row = [phase["rate"], round(phase["seconds"], 1), round(phase["offered_per_second"], 1), round(phase["per_second"], 1)]
        row += [phase["failed"], phase["skipped"], phase["retries"]]
        row += [ms(phase["latency"][QUANTILES[name]]) for name in ("p50", "p99", "max")] if several else [phase["done"]]
        rows.append(row)
    if not any(phase["rate"] for phase in phases):
        names, rows = names[1:], [row[1:] for row in rows]
    return ["Transactions", to_table(names, rows)]


def _times(phase: dict[str, Any]) -> list[str]:
    kinds = [kind for kind in TIMES if kind in phase and (kind != "latency" or "lag" in phase)]
    rows = [
        [kind.replace("_", " "), phase[kind]["count"], *(ms(phase[kind][name]) for name in QUANTILES.values()), TIMES[kind]]
        for kind in kinds
    ]
    return ["Times of transactions in ms", to_table(["time", "count", *QUANTILES, "what"], rows)]


def _scripts(phase: dict[str, Any], *, named: bool) -> list[str]:
    """Where there are several: the latency of each."""
    if len(phase["scripts"]) == 1:
        return []
    rows = []
    for of in phase["scripts"]:
        latency = of["latency"] or {"count": 0}
        per_second = round(latency["count"] / phase["seconds"], 1) if phase["seconds"] else 0.0
        rows.append([of["name"], latency["count"], of["failed"], per_second, *(ms(latency.get(name)) for name in QUANTILES.values())])
    title = f"Scripts at {phase['rate']:g}/s, latency in ms" if named and phase["rate"] else "Scripts, latency in ms"
    return [title, to_table(["script", "done", "failed", "done/s", *QUANTILES], rows), ""]


def _statements(phase: dict[str, Any], *, named: bool) -> list[str]:
    rows = []
    for script in phase["scripts"]:
        for of in script["statements"]:
            times = of["times"] or {"count": 0}
            quantiles = [ms(times.get(QUANTILES[name])) for name in ("p50", "p99", "max")]
            rows.append([of["line"], times["count"], *quantiles, of["failed"] + of["retried"], " ".join(of["text"].split())])
    title = f"Statements at {phase['rate']:g}/s, times in ms" if named and phase["rate"] else "Statements, times in ms"
    return [title, to_table(["line", "count", "p50", "p99", "max", "errors", "statement"], rows), ""]


def _errors(phase: dict[str, Any], *, named: bool) -> list[str]:
    if not phase["errors"]:
        return []
    rows = [[error["sqlstate"], error["count"], error["retried"], error["message"]] for error in phase["errors"]]
    title = f"Errors at {phase['rate']:g}/s" if named and phase["rate"] else "Errors"
    return [title, to_table(["sqlstate", "count", "retried", "message"], rows), ""]


def _client(found: dict[str, Any], phases: list[dict[str, Any]]) -> str:
    busiest = max((phase["busiest_thread"] for phase in phases), default=0.0)
    queued = [phase["longest_queue"] for phase in phases if phase["longest_queue"] is not None]
    wait = f", waited {100 * max(queued):.0f} % of the time for one" if queued else ""
    rtts = [phase["rtt_us"] for phase in phases if phase["rtt_us"] is not None]
    rtt = f"; TCP round trip {max(rtts):.0f} us" if rtts else ""
    priority = {None: "", True: "; real-time priority", False: "; no real-time priority"}[found["realtime_priority"]]
    return f"Client: its busiest thread used {100 * busiest:.0f} % of a CPU{wait}{rtt}{priority}"


def _priority_hint(found: dict[str, Any]) -> str:
    """Of an open loop that waits for a CPU like any other process."""
    return ", or as root, with a real-time priority" if found["realtime_priority"] is False else ""


def warnings(found: dict[str, Any]) -> list[str]:
    """What makes the figures say something else than they seem to."""
    phases = [phase for phase in found["phases"] if not phase["warm_up"]]
    lines = []
    busiest = max((phase["busiest_thread"] for phase in phases), default=0.0)
    queued = max((phase["longest_queue"] or 0.0 for phase in phases), default=0.0)
    error = max((phase["schedule_error"]["p99_ns"] or 0 for phase in phases if "schedule_error" in phase), default=0)
    if busiest > BUSY or queued > QUEUED or error > LATE_NS:
        lines.append(
            "WARNING: the client is a limit here: run it on a CPU or a host of its own, "
            f"or with more threads{_priority_hint(found)} (busy {100 * busiest:.0f} %, without a CPU {100 * queued:.0f} %)"
        )
    done, failed = (sum(phase[name] for phase in phases) for name in ("done", "failed"))
    if failed > done:
        share = failed / (done + failed)
        lines.append(f"WARNING: {100 * share:.0f} % of the transactions failed; the times above are of the others, see Errors")
    if found["not_begun"] and found["clients_gone"] == found["clients"]:
        lines.append(f"WARNING: {found['not_begun']:,} transactions would have been due after the last client had ended")
    elif found["not_begun"]:
        left, late, due = found["not_begun"], found["first_late_ns"] / 1e9, sum(phase["due"] for phase in phases)
        what = "transaction was" if left == 1 else "transactions were"
        said = f"{left:,} {what} due and not begun when the time was over, the first for {late:.3g} s"
        if late >= LEFT_S or left > due * LEFT_SHARE:
            lines.append(f"WARNING: {said}: the server does not keep this rate, and the times above are too short")
        else:
            lines.append(f"note: {said}")
    if found["unfinished"]:
        oldest = found["oldest_ns"] / 1e9
        lines.append(f"WARNING: {found['unfinished']:,} transactions did not end; the first was due {oldest:.1f} s before the load stopped")
    if found["clients_gone"]:
        lines.append(f"WARNING: {found['clients_gone']} of {found['clients']} clients ended early by an error; see Errors")
    if found["interrupted"]:
        lines.append("interrupted: the load did not run for its whole time")
    return lines


def second(row: dict[str, Any], begins_ns: int) -> str:
    """A line while it runs."""
    at = (row["ts"] - begins_ns) / 1e9
    per_second = row["done"] / (row["duration_ns"] / 1e9) if row["duration_ns"] else 0.0
    times = "".join(f"{ms(row['latency'][name]) or 0:>10}" for name in ("p50_ns", "p99_ns", "max_ns"))
    notes = "  warm-up" if row["warm_up"] else ""
    return f"{at:8.1f}{per_second:12,.1f}{row['failed']:8}{times}{notes}"


SECOND_HEAD = f"{'second':>8}{'done/s':>12}{'failed':>8}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}"

"""Forecasts and scores for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leadline.figures import percent
from leadline.output import to_table


def forecast(found: dict[str, Any], *, drives: bool) -> str:
    lines = []
    for load in dict.fromkeys(row["load"] for row in found["results"]):
        rows = [row for row in found["results"] if row["load"] == load]
        lines += [*_load(load, rows), ""]
        if drives:
            for row in rows:
                lines += [f"Drives of {row['layout']}, load {load}", _drives(row["drives"]), ""]
    return "\n".join([*lines, *_notes(found)])


def _load(load: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    has = {"transactions_per_s": "TPS", "rows_per_s": "rows/s"}
    figures = {name: head for name, head in has.items() if any(row[name] for row in rows)}
    kind = next(kind for kind in ("transaction", "read", "write", "commit") if rows[0]["latency_ms"][kind] or kind == "commit")
    names = ["layout", "requests/s", "from", "to", *figures.values(), "p50 ms", "p99 ms", "busiest"]
    table = []
    for row in rows:
        low, high = row["interval"]["requests_per_s"]
        of = row["latency_ms"][kind] or {"p50": None, "p99": None}
        cells = [row["layout"], *map(figure, (row["requests_per_s"], low, high)), *(figure(row[name]) for name in figures)]
        table.append([*cells, figure(of["p50"]), figure(of["p99"]), busiest(row["limit"])])
    return [f"Load {load}, latency of a {kind}", to_table(names, table)]


def figure(value: float | None) -> int | float | None:
    """Three figures or more."""
    return value if value is None else round(value) if abs(value) >= 100 else float(f"{value:.3g}")


def busiest(of: dict[str, Any]) -> str:
    return f"{of['group']} {100 * of['utilisation']:.0f}%"


def _drives(drives: Sequence[dict[str, Any]]) -> str:
    rows = [
        [f"{of['group']} {of['drive']}", *map(figure, (of["reads_per_s"], of["writes_per_s"], of["mb_per_s"])), percent(of["utilisation"]),
         *map(figure, (of["queue"], of["most_queued"], of["response_ms"]))]
        for of in drives
    ]  # fmt: skip
    return to_table(["drive", "reads/s", "writes/s", "MB/s", "busy", "queue", "most", "response ms"], rows)


def _notes(found: dict[str, Any]) -> list[str]:
    options, trace = found["options"], found["trace"]
    if trace is None:
        seeds = f"seeds {options['seed']} to {options['seed'] + options['seeds'] - 1}"
        lines = [f"Medians of runs of {options['for_s']:g} s, {seeds}; from, to: where the median lies"]
    else:
        how = "closed loop by thread" if options["closed"] else "open loop at its times"
        lines = [f"Trace of {trace['capture']}: {trace['requests']:,} requests, {how}"]
        if trace["left_out"]:
            lines.append("Left out: " + ", ".join(f"{count:,} {why}" for why, count in sorted(trace["left_out"].items())))
        if beyond := max(row["beyond_lun"] for row in found["results"]):
            lines.append(f"{beyond:,} requests lie beyond the end of their LUN and were put into it")
    lines.append("busiest: near 100% that drive is the limit; else the threads wait for latency")
    return lines


def score(rows: Sequence[dict[str, Any]], sealed: str) -> str:
    table = []
    for row in rows:
        error = "not measured" if row["error"] is None else f"{100 * row['error']:+.1f}%"
        name = (row["figure"] or "").replace("_per_s", "/s") + (" of drives" if row.get("of_drives") else "")
        values = (row["forecast"], row.get("low"), row.get("high"), row["measured"])
        table.append([row["layout"], row["load"], name, *map(figure, values), error])
    names = ["layout", "load", "figure", "forecast", "from", "to", "measured", "error"]
    lines = [to_table(names, table), ""]
    if latency := _latencies(rows):
        names = ["layout", "load", "of", "p50 forecast", "measured", "p99 forecast", "measured"]
        lines += ["Latency in ms", to_table(names, latency), ""]
    errors = sorted(abs(row["error"]) for row in rows if row["error"] is not None)
    if errors:
        lines.append(f"Error of {len(errors)} forecasts: largest {percent(errors[-1])}, middle {percent(errors[len(errors) // 2])}")
    return "\n".join([*lines, f"Forecast {sealed}"])


def _latencies(rows: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """Of the first kind that both have: a transaction, or else a read."""
    out = []
    for row in rows:
        of = row.get("latency_ms") or []
        found = {each["quantile"]: each for each in of if each["of"] == of[0]["of"]}
        if "p50" in found and "p99" in found:
            values = [figure(found[name][side]) for name in ("p50", "p99") for side in ("forecast", "measured")]
            out.append([row["layout"], row["load"], of[0]["of"], *values])
    return out

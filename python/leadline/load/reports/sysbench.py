"""The output of `sysbench ... run` (1.0 and 1.1): intervals of --report-interval, the summary, and the histogram of --histogram."""

from __future__ import annotations

import re
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.load.reports.report import BEGIN_NS, Report, number, text_of

_HEAD = re.compile(r"sysbench (\d+\.\d+\.\d+\S*)")
_N = r"(-?[\d.]+)"
_INTERVAL = re.compile(rf"\[ {_N}s \] thds: (\d+) (?:tps|eps): {_N}(.*)")
_PAIR = re.compile(r"\s+([a-zA-Z0-9][^:]*?):\s+(\S.*)")
_BUCKET = re.compile(rf"\s*{_N} \|\**\s+(\d+)\s*$")
_SECTION = re.compile(r"([A-Z][\w /()-]*):\s*$")
LIMIT_MS = 100_000.0  # its histogram ends there
PRINTED_NS = 500  # values are printed in whole microseconds
HALF = 0.009  # of the width of a bucket: 1,024 of them from 1 us to that


def read(file: Path) -> Report:
    """Raises LeadlineError for what is no such output, or one of a run that did not end."""
    lines = text_of(file).splitlines()
    head = next((found for line in lines[:1000] if (found := _HEAD.match(line))), None)
    if head is None:
        raise LeadlineError("invalid", "this is no output of sysbench", hint="sysbench ... run > FILE", where=str(file))
    report, section, in_histogram, before = Report(f"sysbench {head[1]}"), "options", False, 0.0
    histogram: list[tuple[float, int]] = []
    summary: dict[str, str] = {}
    for line in lines:
        if found := _INTERVAL.match(line):
            before = _interval(report, file, found, before)
        elif line.startswith("Latency histogram"):
            in_histogram = True
        elif in_histogram and (found := _BUCKET.match(line)):
            histogram.append((float(found[1]), int(found[2])))
        elif found := _SECTION.match(line):
            section, in_histogram = found[1], False
        elif found := _PAIR.match(line):
            summary[f"{section}.{found[1]}"] = found[2]
        elif found := re.match(r"(Number of threads|Target transaction rate): (\d+)", line):
            summary[f"options.{found[1]}"] = found[2]
    _summary(report, file, summary, has_intervals=bool(report.seconds))
    _histogram(report, file, histogram)
    return report


def _interval(report: Report, file: Path, found: re.Match[str], before: float) -> float:
    at = float(found[1])
    ts = BEGIN_NS + round(at * 1e9)
    values = {"thds": found[2], "tps": found[3]}
    for name, text in re.findall(r"([\w/]+(?: \(ms,[\d.]+%\))?): ([-\d./]+)", found[4]):
        values[name] = text
    for name, text in values.items():
        report.figure(ts, "interval", name, text, file, number(text))
    length = at - before
    if length > 0:
        latency = {}
        if (of := next((name for name in values if name.startswith("lat (ms,99%")), None)) is not None and float(values[of]) > 0:
            latency = {"latency_p99_ns": round(float(values[of]) * 1e6)}
        report.second(ts, length, float(found[3]) * length, (number(values.get("err/s", "0")) or 0.0) * length, **latency)
    return at


def _summary(report: Report, file: Path, summary: dict[str, str], *, has_intervals: bool) -> None:
    took = next((number(text.rstrip("s")) for name, text in summary.items() if name.endswith((".total time", ".time elapsed"))), None)
    if took is None:
        raise LeadlineError("invalid", "the output has no summary: the run did not end", where=str(file))
    report.ended = BEGIN_NS + round(took * 1e9)
    for name, text in summary.items():
        part, _, what = name.partition(".")
        report.figure(report.ended, part, what, text, file, number(re.split(r"[ s(]", text, maxsplit=1)[0]))
    events = next((number(text) for name, text in summary.items() if name.endswith(".total number of events")), None)
    if not has_intervals and events is not None:
        names = {"latency_max_ns": "max", "latency_p99_ns": "99th percentile"}
        times = {column: number(summary.get(f"Latency (ms).{name}", "")) for column, name in names.items()}
        report.second(report.ended, took, events, **{column: round(ms * 1e6) for column, ms in times.items() if ms})
    elif events is not None:
        length, seen = sum(row["duration_ns"] for row in report.seconds) / 1e9, sum(row["done"] for row in report.seconds)
        if took > length and events > seen:  # no interval ends with the load
            report.second(report.ended, took - length, events - seen)
        elif seen > max(events + 10, 1.02 * events):
            report.notes.append(f"the intervals have {seen:,} events, and the summary {events:,.0f}")
    for name, text in summary.items():
        quantile, most = number(text), number(summary.get("Latency (ms).max", ""))
        if name.startswith("Latency (ms).") and name.endswith("percentile") and quantile is not None and most is not None:
            what = name.partition(".")[2]
            if quantile >= LIMIT_MS or quantile > most * (1 + 2 * HALF) or (quantile == 0 and most > 0):
                report.notes.append(f"the {what} of sysbench ({text} ms) is no quantile of these times (the longest took {most:g} ms)")
    report.notes.append("times of sysbench begin with a transaction, not when it was due, unless it ran with --rate; it prints no dates")


def _histogram(report: Report, file: Path, histogram: list[tuple[float, int]]) -> None:
    """The value is the middle of a bucket, by the logarithm."""
    for value, count in histogram:
        report.figure(report.ended, "histogram", f"{value:.3f} ms", str(count), file, float(count))
        low, high = round(value * 1e6 * (1 - HALF) - PRINTED_NS), round(value * 1e6 * (1 + HALF) + PRINTED_NS)
        report.buckets.append({"ts": report.ended, "phase": 0, "kind": "latency", "low_ns": low, "high_ns": high, "count": count})
    if any(value >= LIMIT_MS for value, _ in histogram):
        report.notes.append(f"the histogram of sysbench ends at {LIMIT_MS:,.0f} ms: what took longer counts there")

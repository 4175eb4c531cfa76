"""The JSON of `fio --output-format=json` (json+ has histograms): a statement for each job and direction, each figure by its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError
from leadline.load.reports.report import BEGIN_NS, Report, text_of

DIRECTIONS = ("read", "write", "trim")
QUANTILES = {"50.000000": "p50_ns", "90.000000": "p90_ns", "99.000000": "p99_ns", "99.900000": "p99_9_ns"}
MOST_FIGURES, DEEPEST = 2_000_000, 20
HALF = 1 / 256  # of the width of a bucket of fio: its key is the middle


def read(file: Path) -> Report:
    """Raises LeadlineError. What fio says before and after the JSON (warnings of the same output) is counted, not read."""
    text = text_of(file)
    found, left = _json(text, file)
    jobs = found.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise LeadlineError("invalid", "this is no result of fio", hint="let fio write its result as json+", where=str(file))
    report = Report(str(found.get("fio version", "fio")).replace("fio-", "fio "), lines_not_read=left)
    at, runtime = found.get("timestamp_ms"), max((_runtime(job) for job in jobs), default=0.0)
    report.begun = int(at * 1e6 - runtime * 1e9) if isinstance(at, int | float) and at > runtime * 1e3 else BEGIN_NS
    report.ended = report.begun + round(runtime * 1e9)
    _figures(report, file, found)
    statements = [(job, name, job[name]) for job in jobs for name in DIRECTIONS if _count(job.get(name), "total_ios")]
    for job, name, of in statements:
        _statement(report, str(job.get("jobname", "job")), name, of, job)
    done = sum(_count(of, "total_ios") for _, _, of in statements)
    failed = sum(int(job.get("total_err") or 0) for job in jobs)
    if runtime > 0:
        latency = {}
        if len(statements) == 1:
            times = report.statements[0]
            latency = {f"latency_{name}": times[name] for name in (*QUANTILES.values(), "max_ns") if times.get(name) is not None}
        report.second(report.ended, runtime, done, failed, **latency)
    if not statements:
        report.notes.append("no job of fio did anything")
    if statements and not report.buckets:
        report.notes.append("no histograms: fio writes them where its result is json+")
    if len({_runtime(job) for job in jobs if _runtime(job)}) > 1:
        report.notes.append("the jobs of fio did not all run as long: a rate of all is over the longest")
    report.notes.append("a transaction is a request of fio; its latency counts from the submission")
    return report


def _json(text: str, file: Path) -> tuple[dict[str, Any], int]:
    """The object, and how many lines beside it are none of it. Names that stand twice are both kept."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, value in found:
            while name in out:
                name += "'"
            out[name] = value
        return out

    decoder, at = json.JSONDecoder(object_pairs_hook=pairs), 0
    while (begin := text.find("{", at)) >= 0:
        try:
            found, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            at = begin + 1 if at < 10_000 else len(text)
            continue
        if "jobs" in found or "fio version" in found:
            return found, sum(bool(line.strip()) for line in (text[:begin] + "\n" + text[end:]).splitlines())
        at = end
    hint = "let fio write its result as json+; a run that was killed leaves none"
    raise LeadlineError("invalid", "there is no JSON of fio in the file", hint=hint, where=str(file))


def _figures(report: Report, file: Path, found: dict[str, Any]) -> None:
    left: list[tuple[str, Any, int]] = [("", found, 0)]
    while left and len(report.reported) < MOST_FIGURES:
        path, value, depth = left.pop()
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        if inner is not None and depth < DEEPEST:
            left += [(f"{path}.{name}" if path else str(name), one, depth + 1) for name, one in reversed(list(inner))]
        elif inner is None:
            part, _, name = path.partition(".")
            number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 else None
            report.figure(report.ended, part, name or part, str(value), file, number)


def _statement(report: Report, job: str, name: str, of: dict[str, Any], whole: dict[str, Any]) -> None:
    """lat_ns counts from the submission, clat_ns from when the kernel has it; quantiles are of one of them, as fio was told."""
    key = next((key for key in ("lat_ns", "clat_ns") if isinstance(of.get(key), dict) and of[key].get("percentile")), None)
    times, kind = (of[key], key) if key else (of.get("lat_ns") or of.get("clat_ns") or {}, "lat_ns")
    size = (whole.get("job options") or {}).get("bs", "")
    text = " ".join(filter(None, (name, str(size), "" if kind == "lat_ns" else "(completion)")))
    row = {"ts": report.ended, "phase": 0, "script": job, "command": DIRECTIONS.index(name) + 1, "text": text,
           "count": _count(of, "total_ios"), "rows": 0, "failed": 0, "retried": 0, "mean_ns": times.get("mean")}  # fmt: skip
    percentile = times.get("percentile") or {}
    row |= {column: percentile[at] for at, column in QUANTILES.items() if isinstance(percentile.get(at), int)}
    row["max_ns"] = times.get("max") if isinstance(times.get("max"), int) else None
    report.statements.append(row)
    both = [of[key] for key in ("lat_ns", "clat_ns") if isinstance(of.get(key), dict)]
    bins: dict[str, Any] = next((times["bins"] for times in both if times.get("bins")), {})
    for middle, count in bins.items():
        if middle.isdecimal() and isinstance(count, int):
            ends = {"low_ns": round(int(middle) * (1 - HALF)), "high_ns": round(int(middle) * (1 + HALF)), "count": count}
            report.buckets.append({"ts": report.ended, "phase": 0, "kind": "latency"} | ends)
            report.buckets.append({"ts": report.ended, "phase": 0, "kind": "statement", "script": job, "command": row["command"]} | ends)


def _runtime(job: dict[str, Any]) -> float:
    """Seconds."""
    return max((_count(job.get(name), "runtime") for name in DIRECTIONS), default=0) / 1000


def _count(of: Any, name: str) -> int:
    value = of.get(name) if isinstance(of, dict) else None
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**62 else 0

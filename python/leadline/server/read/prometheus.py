"""Figures of the server for Prometheus: counts by kind and status of what the caller may see, and how the server itself is."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from leadline.server.operation import Call, Operation

MOST_KINDS = 12  # so that the number of series is bounded, whatever runs call themselves


@dataclass(frozen=True)
class Text:
    """A text to be sent as it is."""

    text: str
    media_type: str


def _metrics(call: Call, _inputs: dict[str, Any]) -> Text:
    counts = sorted(_counts(call), key=lambda row: (-row["n"], row["kind"], row["status"]))
    kinds = list(dict.fromkeys(row["kind"] for row in counts))[:MOST_KINDS]
    total: dict[tuple[str, str], int] = {}
    for row in counts:
        key = (row["kind"] if row["kind"] in kinds else "other", row["status"])
        total[key] = total.get(key, 0) + row["n"]
    lines = ["# HELP leadline_runs_total Runs of the logbook by kind and status.", "# TYPE leadline_runs_total counter"]
    lines += [f'leadline_runs_total{{kind="{_label(kind)}",status="{_label(status)}"}} {n}' for (kind, status), n in sorted(total.items())]
    launch_where, launch_values = call.caller.visible("l")
    waiting = call.rows(
        f"select status, count(*) as n, min(asked) as oldest from launch l where {launch_where} "
        "and status in ('waiting', 'approval', 'queued') group by status",
        *launch_values,
    )  # fmt: skip
    lines += ["# HELP leadline_launches Runs that were asked for and have not begun.", "# TYPE leadline_launches gauge"]
    found = {row["status"]: row for row in waiting}
    lines += [
        f'leadline_launches{{status="{status}"}} {found[status]["n"] if status in found else 0}'
        for status in ("waiting", "approval", "queued")
    ]
    queued = (call.now - found["queued"]["oldest"]) / 1e6 if "queued" in found else 0
    lines += ["# HELP leadline_queue_age_seconds How long the oldest queued run waits.", "# TYPE leadline_queue_age_seconds gauge"]
    lines += [f"leadline_queue_age_seconds {queued:.3f}"]
    lines += _of_the_book(call)
    return Text("\n".join(lines) + "\n", "text/plain; version=0.0.4; charset=utf-8")


def _of_the_book(call: Call) -> list[str]:
    """What it takes of the disk of this host, and what has not been taken in yet; for who may see all of it."""
    if not call.caller.sees_all:
        return []
    waiting = 0
    with suppress(OSError), os.scandir(call.place.spool) as files:
        for file in files:
            taken = call.one("select place from ingest_state where uid = ?", file.name.removesuffix(".jsonl"))
            waiting += max(0, file.stat().st_size - (taken["place"] if taken else 0))
    lines = ["# HELP leadline_spool_bytes Events that were recorded and are not in the store yet.", "# TYPE leadline_spool_bytes gauge"]
    lines += [f"leadline_spool_bytes {waiting}"]
    if used := call.store.db.bytes_used():
        lines += ["# HELP leadline_store_bytes Size of the store.", "# TYPE leadline_store_bytes gauge", f"leadline_store_bytes {used}"]
    return lines


def _counts(call: Call) -> list[dict[str, Any]]:
    where, values = call.caller.visible()
    total = "cast(sum(n) as bigint) as n"
    return call.rows(f"select kind, status, {total} from run_count where {where} group by kind, status having sum(n) > 0", *values)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


OPERATIONS = (Operation("user.metrics", "GET", "/metrics", "anyone", "", "Print metrics of the server for Prometheus.", _metrics),)

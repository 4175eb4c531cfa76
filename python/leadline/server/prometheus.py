"""Figures of the server for Prometheus: counts by kind and status of what the caller may see, and how the server itself is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leadline.server.operation import Call, Operation
from leadline.server.rights import marks

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
    return Text("\n".join(lines) + "\n", "text/plain; version=0.0.4; charset=utf-8")


def _counts(call: Call) -> list[dict[str, Any]]:
    """By kind and status. Projects and granted templates are counted apart, each by an index: a condition with `or` would read all runs,
    and so would groups in the order of the index on kind and status; hence the empty texts."""
    sql = "select kind || '' as kind, status || '' as status, count(*) as n from run where {} group by 1, 2"
    if call.caller.sees_all:
        return call.rows("select kind, status, count(*) as n from run group by kind, status")
    projects, templates = call.caller.scopes()
    found = call.rows(sql.format(f"project in ({marks(projects)})"), *projects) if projects else []
    if templates:
        condition, values = f"template in ({marks(templates)})", list[Any](templates)
        if projects:
            condition += f" and project not in ({marks(projects)})"
            values += projects
        if call.caller.only_project is not None:
            condition += " and project = ?"
            values.append(call.caller.only_project)
        found += call.rows(sql.format(condition), *values)
    return found


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


OPERATIONS = (Operation("user.metrics", "GET", "/metrics", "anyone", "", "Print figures of the server for Prometheus.", _metrics),)

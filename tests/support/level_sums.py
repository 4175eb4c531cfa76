"""What the levels of a recorder must have in common: sums of every dimension, counters and observed time, exactly."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from leadline.capture.reader import open_capture
from leadline.tables import Table, all_tables

Sums = dict[str, dict[tuple[Any, ...], list[float]]]  # by what, and by the values of its dimensions

NS = "sum(round(weight_s * 1e9)::bigint)::bigint"  # of samples: whole nanoseconds
DIMENSIONS = (
    "pid", "backend_type", "datname", "usename", "application_name", "client_addr", "state", "wait_class", "wait_event", "statement_id",
    "query_id", "in_db_time",
)  # fmt: skip
SAMPLES = f"select {', '.join(DIMENSIONS)}, {NS} as ns from session_sample group by all"
# Estimates are fractions of a sample: the sum of doubles depends on the order in the last of 15 digits.
TIME = f"""select {", ".join(DIMENSIONS[:-1])}, event, from_counter,
           sum(weight_s) as seconds, sum(cpu_run_s) as run_s, sum(cpu_queue_s) as queue_s,
           coalesce(sum(weight_s) filter (wait_class = 'CPU' and cpu_run_s is null), 0) as unknown_s from db_time group by all"""
PASSES = "select sum(period_ns)::bigint as observed, sum(coalesce(passes, 1))::bigint as passes from tick"


# A waiter with several blockers is one waiter; in a coarse capture its time is shared among its rows.
LOCKS = (
    "select pid, 'behind ' || root_pid as what, sum(wait_s) as seconds from lock_chain group by all",
    "select pid, 'database time: ' || coalesce(in_db_time::varchar, 'hidden') as what, sum(wait_s) as seconds from lock_look group by all",
    """select pid, object || ' ' || locktype || ' ' || mode as what, sum(s) as seconds from (
         select distinct ts, pid, object, locktype, mode, k.wait_s as s
         from lock_wait join lock_look k using (ts, session_id, pid) where looks is null
         union all select ts, pid, object, locktype, mode, part_s from lock_wait where looks is not null) group by all""",
)


def rows(path: Path, sql: str) -> list[dict[str, Any]]:
    with closing(open_capture(path)) as capture:
        return capture.rows(sql)


def add(found: dict[tuple[Any, ...], list[float]], rows: list[dict[str, Any]], values: int) -> None:
    for row in rows:
        sums = found.setdefault(tuple(row.values())[:-values], [0] * values)
        for n, value in enumerate(list(row.values())[-values:]):
            sums[n] += value or 0


def sums(paths: Iterable[Path]) -> dict[str, Any]:
    """Of captures of one level."""
    return total(map(sums_of, paths))


def sums_of(path: Path) -> Sums:
    """Of one capture, to be added to those of others."""
    found: Sums = {"samples": {}, "time": {}, "locks": {}, "counters": {}, "passes": {}}
    with closing(open_capture(path)) as capture:
        add(found["samples"], capture.rows(SAMPLES), 1)
        add(found["time"], capture.rows(TIME), 4)
        for query in LOCKS:
            add(found["locks"], capture.rows(query), 1)
        add(found["passes"], capture.rows(PASSES), 2)
        for table in all_tables().values():
            if summed := _summed(table):
                columns = ", ".join(f'sum("{name}")::bigint as "{name}"' for name in summed)
                add(found["counters"], capture.rows(f"select '{table.name}' as name, {columns} from {table.name}"), len(summed))
    return found


def total(parts: Iterable[Sums]) -> dict[str, Any]:
    """Numbers of sessions are those of each capture, so sessions are told apart by pid."""
    found: Sums = {}
    for part in parts:
        for what, of in part.items():
            for key, values in of.items():
                before = found.setdefault(what, {}).setdefault(key, [0] * len(values))
                found[what][key] = [a + b for a, b in zip(before, values, strict=True)]
    return {
        "samples": {key: value for key, value in found["samples"].items() if value[0]},
        **{what: _rounded(found.get(what, {})) for what in ("time", "locks")},
        "counters": found.get("counters", {}),
        "passes": found["passes"][()],
    }


def _rounded(found: dict[tuple[Any, ...], list[float]]) -> dict[tuple[Any, ...], list[float]]:
    return {key: [round(v, 9) + 0.0 for v in value] for key, value in found.items() if any(round(v, 9) for v in value)}


def _summed(table: Table) -> list[str]:
    """Columns of which the levels have the sum."""
    levels = table.levels
    if levels is None:
        return []
    return [c.name for c in table.columns if c.name != "ts" and c.name not in levels.key and not levels.is_last(c.name)]

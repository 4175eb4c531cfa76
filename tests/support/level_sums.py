"""What the levels of a recorder must have in common: sums of every dimension, counters and observed time, exactly."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from leadline.capture.reader import open_capture
from leadline.tables import Table, all_tables

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


def rows(path: Path, sql: str) -> list[dict[str, Any]]:
    with closing(open_capture(path)) as capture:
        return capture.rows(sql)


def add(found: dict[tuple[Any, ...], list[float]], rows: list[dict[str, Any]], values: int) -> None:
    for row in rows:
        sums = found.setdefault(tuple(row.values())[:-values], [0] * values)
        for n, value in enumerate(list(row.values())[-values:]):
            sums[n] += value or 0


def sums(paths: list[Path]) -> dict[str, Any]:
    """Of captures of one level. Numbers of sessions are those of each capture, so sessions are told apart by pid."""
    samples: dict[tuple[Any, ...], list[float]] = {}
    time: dict[tuple[Any, ...], list[float]] = {}
    counters: dict[tuple[Any, ...], list[float]] = {}
    passes = [0, 0]
    for path in paths:
        with closing(open_capture(path)) as capture:
            add(samples, capture.rows(SAMPLES), 1)
            add(time, capture.rows(TIME), 4)
            told = capture.rows(PASSES)[0]
            passes = [passes[0] + (told["observed"] or 0), passes[1] + (told["passes"] or 0)]
            for table in all_tables().values():
                if summed := _summed(table):
                    columns = ", ".join(f'sum("{name}")::bigint as "{name}"' for name in summed)
                    add(counters, capture.rows(f"select '{table.name}' as name, {columns} from {table.name}"), len(summed))
    return {
        "samples": {key: value for key, value in samples.items() if value[0]},
        "time": {key: [round(v, 9) + 0.0 for v in value] for key, value in time.items() if any(round(v, 9) for v in value)},
        "counters": counters,
        "passes": passes,
    }


def _summed(table: Table) -> list[str]:
    """Columns of which the levels have the sum."""
    levels = table.levels
    if levels is None:
        return []
    return [c.name for c in table.columns if c.name != "ts" and c.name not in levels.key and not levels.is_last(c.name)]

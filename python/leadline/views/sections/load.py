"""Sections of a capture of a load: what its transactions took, over time and by statement."""

from __future__ import annotations

from leadline.figures import count, seconds
from leadline.views.grid import Column, Curves, Grid
from leadline.views.sections import Context, Section, Tile

MOST = 20
NEEDS = ("load_second", "load_bucket")
_QUANTILES = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}  # as columns are called
_REACHED = ", ".join(
    f"min(high_ns) filter (kind = 'latency' and below >= {part} * whole) / 1e6 as {name}_ms" for name, part in _QUANTILES.items()
)
_OF_PHASE = f"""
    counted as (select phase, kind, high_ns, sum(count) as n from load_bucket where kind in ('latency', 'schedule_error') group by all),
    summed as (
      select phase, kind, high_ns, sum(n) over (partition by phase, kind order by high_ns) as below,
             sum(n) over (partition by phase, kind) as whole
      from counted),
    quantile as (
      select phase, {_REACHED}, max(high_ns) filter (kind = 'latency') / 1e6 as max_ms,
             min(high_ns) filter (kind = 'schedule_error' and below >= 0.99 * whole) / 1e6 as schedule_error_p99_ms
      from summed group by phase)
"""


def _transactions(of: Context) -> Grid:
    """A row for each rate that counts, and the picture of the latency along the load."""
    rows = of.capture.rows(
        f"""
        with phase as (
          select phase, any_value(rate_hz) as rate_hz, sum(duration_ns) filter (not after_the_end) / 1e9 as seconds,
                 sum(due)::bigint as due, sum(done)::bigint as done,
                 sum(ended) filter (not after_the_end)::bigint as ended, sum(failed)::bigint as failed, sum(skipped)::bigint as skipped
          from load_second where not warm_up group by phase having seconds is not null),
        {_OF_PHASE}
        select p.* exclude (ended), due / seconds as due_per_second, ended / seconds as done_per_second, q.* exclude (phase)
        from phase p left join quantile q using (phase) order by phase
        """
    )
    columns = (
        Column("rate_hz", "rate", "rate"),
        Column("seconds", "seconds", "seconds", minor=True),
        Column("due_per_second", "due/s", "rate"),
        Column("done_per_second", "done/s", "rate"),
        Column("done", "done", minor=True),
        Column("failed", "failed"),
        Column("skipped", "skipped", minor=True),
        Column("p50_ms", "p50, ms", "seconds"),
        Column("p99_ms", "p99, ms", "seconds"),
        Column("p99_9_ms", "p99.9, ms", "seconds", minor=True),
        Column("max_ms", "max, ms", "seconds"),
        Column("schedule_error_p99_ms", "schedule error p99, ms", "seconds", minor=True),
    )
    note = "Latency of a transaction: from the moment it was due to its end, or in a closed loop from its begin."
    void = of.capture.manifest.probe("load").detail.get("void")
    if void:
        note = f"VOID: {void}. These figures count for nothing. {note}"
    return of.grid(columns, rows, MOST, "load_second", note, "no transaction ended", picture=_over_time(of))


def _over_time(of: Context) -> Curves:
    rows = of.capture.rows(
        """
        select (ts - first(ts - duration_ns) over (order by ts)) / 1e9 as at_s, latency_p50_ns / 1e6 as p50, latency_p99_ns / 1e6 as p99,
               latency_max_ns / 1e6 as max
        from load_second order by ts
        """
    )
    values = [(row["at_s"], row[name], name) for name in ("p50", "p99", "max") for row in rows if row[name]]
    return Curves(values, "seconds from the start", "latency, ms", log_x=False)


def _tiles(of: Context, grid: Grid) -> list[Tile]:
    phases = grid.as_dicts()
    if not phases:
        return []
    best = max(phases, key=lambda phase: phase["done_per_second"] or 0)
    which = "the most of any rate" if len(phases) > 1 else "that ended well"
    tiles = [Tile("Transactions a second", f"{best['done_per_second'] or 0:,.0f}", which)]
    if best["p99_ms"] is not None:
        tiles.append(Tile("p99 of these", seconds(best["p99_ms"]), "from the moment they were due", " ms"))
    failed = sum(phase["failed"] for phase in phases)
    return [*tiles, Tile("Failed", f"{failed:,}", f"of {count(sum(p['failed'] + p['done'] for p in phases), 'transaction')}")]


def _statements(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select phase, rate_hz, script, line, count, rows, failed + retried as errors, mean_ns * count / 1e9 as seconds,
               p50_ns / 1e6 as p50_ms, p99_ns / 1e6 as p99_ms, max_ns / 1e6 as max_ms, regexp_replace(trim(text), '\\s+', ' ', 'g') as text
        from load_statement join (select phase, any_value(rate_hz) as rate_hz, bool_and(warm_up) as warm_up from load_second group by phase)
          using (phase)
        where not warm_up order by phase, seconds desc nulls last, script, command
        """
    )
    columns = (
        Column("rate_hz", "rate", "rate", minor=True),
        Column("line", "line", "text", minor=True),
        Column("count", "times"),
        Column("errors", "errors", minor=True),
        Column("seconds", "seconds", "seconds"),
        Column("p50_ms", "p50, ms", "seconds"),
        Column("p99_ms", "p99, ms", "seconds"),
        Column("max_ms", "max, ms", "seconds"),
        Column("text", "statement", "text"),
    )
    return of.grid(columns, rows, MOST, "load_statement", "From sending a statement to the end of its answer.", "no statement was sent")


def _errors(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select sqlstate, sum(count)::bigint as count, sum(retried)::bigint as retried, first(message) as message
        from load_error group by sqlstate order by count desc, sqlstate
        """
    )
    columns = (
        Column("sqlstate", "SQLSTATE", "text"),
        Column("count", "times"),
        Column("retried", "retried"),
        Column("message", "first message", "text"),
    )
    return of.grid(columns, rows, MOST, "load_error")


def _failed(of: Context) -> bool:
    return bool(of.capture.scalar("select count(*) from load_error"))


SECTIONS = (
    Section("load", "Transactions of the load", NEEDS, _transactions, tiles=_tiles),
    Section("load_statements", "Statements of the load", ("load_second", "load_statement"), _statements),
    Section("load_errors", "Errors of the load", ("load_error",), _errors, applies=_failed),
)

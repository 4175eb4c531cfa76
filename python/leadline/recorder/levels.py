"""A coarse capture made of a finer one: the samples of each span become one row for each session and set of values, with their weight.

The rows keep what the views of the finer capture say of them: how long the session showed the values, how much of that it waited for a
CPU, which statement it was. So every sum of session_sample and db_time is the same in both. A view that evaluates all samples at once
takes much memory, so sessions are taken some at a time: no session's time depends on another's.

Other tables become coarse as their `levels` say (docs/concepts/contracts.md), waits for locks as in lock_levels.py. What else describes
single passes, such as which buffer was waited for, cannot be added up and is left out; the manifest says so.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from leadline.capture.making import Making
from leadline.capture.manifest import Clock, Manifest, ProbeState, read_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.recorder import lock_levels
from leadline.recorder.rows import COUNTERS, write_rows
from leadline.tables import OWN_COLUMNS, Table, all_tables, duckdb_type
from leadline.views.where import coarse_words

SAMPLES_AT_ONCE = 100_000  # 300 bytes each in two tables
FIRST = {"tick": 0, "session_run": 1}  # others are made with what these have found
SESSION_TABLES = ("session_run", "session_delta")
# What the rows of a session have beside the columns of session_sample: codes, and whose description holds.
BESIDE = f""", s.state as state_code, s.wait_event_info as wait_code, s.query_id as query_code, s.plan_id as plan_code, t.tick as tick,
       coalesce(s.first_ts, t.ts) as first_seen, w.ts_from as described, coalesce(s.passes, 1) as passes,
       coalesce(s.weight_ns, t.period_ns) as weight_ns, s.xact_start as xact_at, s.query_start as query_at, s.state_change as state_at,
       s.backend_xid as xid, s.backend_xmin as xmin {OWN_COLUMNS}"""
SHOWN = ("session_id", "state_code", "wait_code", "query_code", "plan_code", "statement", "described", "unknown")
BESIDES = (
    "session_id, state_code, wait_code, query_code, plan_code, coalesce(statement_id, 0) as statement, described, tick, first_seen, "
    "xact_at, query_at, state_at, xid, xmin"
)


def coarsen(path: Path, out: Path, span_s: int) -> None:
    """Writes the coarse capture of a capture into the directory `out`, which exists. Raises LeadlineError."""
    span_ns = span_s * 10**9
    with closing(open_capture(path, whole=True)) as capture:
        making = Making(out, capture.manifest.target, {})
        making.manifest = manifest = _manifest(capture, span_s)
        making.reserve()
        try:
            making.write()
            _make_spans(capture.db, span_ns)
            lock_levels.begin(capture.db)
            for table in sorted(all_tables().values(), key=lambda table: FIRST.get(table.name, len(FIRST))):
                if table.kind == "table" and next((path / table.name).glob("*.parquet"), None) is not None:
                    _write_table(capture, table, span_ns, out, manifest)
            making.end(None)
        except duckdb.Error as e:
            raise LeadlineError("storage", "the coarse piece could not be made", str(e).strip().splitlines()[0], where=str(path)) from e


def _manifest(capture: Capture, span_s: int) -> Manifest:
    """That of the finer capture; of one that was interrupted, with the end of what it has."""
    found = read_manifest(capture.path)
    told = capture.rows("select ts_from, ts_to from capture")[0]
    found.clock = Clock(told["ts_from"], told["ts_to"], found.clock.wall_offset_ns, span_s)
    found.status, found.error, found.tables = "recording", None, {}
    found.notes = [note for note in found.notes if not note.startswith("coarse: ")]
    found.note(f"coarse: {coarse_words(span_s)}")
    return found


def _write_table(capture: Capture, table: Table, span_ns: int, out: Path, manifest: Manifest) -> None:
    db, name = capture.db, table.name
    if name == "tick":
        columns = ", ".join(f'"{c.name}"' for c in table.all_columns)
        write_rows(db, f"select {columns} from span order by tick", table, out, manifest)
    elif name == "session_run":
        _make_runs(capture, span_ns)
        write_rows(db, "from coarse_run order by tick, session_id", table, out, manifest)
    elif name == lock_levels.WAIT.name:
        write_rows(db, lock_levels.rows(db, span_ns), table, out, manifest)
    elif table.levels is not None:
        write_rows(db, _summed(table, span_ns), table, out, manifest)
    elif table.role != "sampled" or name == COUNTERS:
        order = ' order by "ts"' if any(c.name == "ts" for c in table.columns) else ""
        write_rows(db, f"from {table.rows_name}{order}", table, out, manifest)
    else:
        state = manifest.probes.setdefault(table.probe, ProbeState())
        why = f"it describes single passes, and the capture is coarse: {coarse_words(span_ns // 10**9)}"
        state.detail = state.detail | {"without": state.detail.get("without", {}) | {name: why}}


def _summed(table: Table, span_ns: int) -> str:
    """One row for each span and set of values of the key."""
    levels = table.levels
    assert levels is not None
    columns = []
    for column in table.columns:
        if column.name == "ts" or column.name in levels.key:
            value = "max(ts)" if column.name == "ts" else f'"{column.name}"'
        elif levels.is_last(column.name):
            value = f'arg_max("{column.name}", ts)'
        else:
            value = f'sum("{column.name}")::{duckdb_type(column.type)}'
        columns.append(f'{value} as "{column.name}"')
    keys = "".join(f', "{name}"' for name in levels.key)
    return f"select {', '.join(columns)} from {table.rows_name} group by ts // {span_ns}{keys} order by 1"


def _make_spans(db: duckdb.DuckDBPyConnection, span_ns: int) -> None:
    """Table span: the passes of the coarse capture, and last, the number of the last pass of each. A recorder that was killed may have
    left rows without their passes, which then have no time."""
    db.execute(f"""
        create temp table span as
        select row_number() over (order by ts // {span_ns}) - 1 as tick, max(ts) as ts, sum(period_ns)::bigint as period_ns,
               max(late_ns) as late_ns, max(pass_ns) as pass_ns, sum(missed)::int as missed, max(sessions) as sessions,
               sum(retried)::int as retried, sum(torn)::int as torn, arg_max(next_xid, ts) as next_xid,
               sum(coalesce(passes, 1))::bigint as passes, sum(coalesce(unknown_ns, missed * period_ns))::bigint as unknown_ns,
               ts // {span_ns} as number, max(tick) as last
        from tick group by ts // {span_ns}
    """)


def _make_runs(capture: Capture, span_ns: int) -> None:
    """Table coarse_run: the rows of session_run."""
    db, tables = capture.db, all_tables()
    columns = ", ".join(f'"{c.name}" {duckdb_type(c.type)}' for c in tables["session_run"].all_columns)
    db.execute(f"create temp table coarse_run ({columns})")
    sample, queue, time = (tables[name] for name in ("session_sample", "session_queue", "db_time"))
    for low, high in _parts_of_sessions(db):
        for name in SESSION_TABLES:  # in front of those of the whole capture, as are the views over them
            db.execute(f"create or replace temp view {name} as from memory.main.{name} where session_id between {low} and {high}")
        db.execute(f"create or replace temp table {sample.rows_name} as {sample.sql.replace(OWN_COLUMNS, BESIDE)}")
        db.execute(f"create or replace temp view {sample.name} as {sample.reading}")
        db.execute(f"create or replace temp view {queue.name} as {queue.sql}")
        db.execute(f"create or replace temp table {time.name} as {time.sql}")
        db.execute(f"insert into coarse_run by name {_runs(span_ns)}")
        lock_levels.look(db, low, high)


def _parts_of_sessions(db: duckdb.DuckDBPyConnection) -> list[tuple[int, int]]:
    """Sessions from and to, a part with about as many samples as are evaluated at once."""
    found: list[tuple[int, int]] = []
    total = 0
    for session, samples in db.execute("select session_id, sum(ticks) from memory.main.session_run group by 1 order by 1").fetchall():
        if not found or total + samples > SAMPLES_AT_ONCE:
            found.append((found[-1][1] + 1 if found else -(2**31), session))
            total = 0
        found[-1], total = (found[-1][0], session), total + samples
    if found:  # sessions without a sample, too, that were seen waiting
        found[-1] = found[-1][0], 2**31 - 1
    return found


def _runs(span_ns: int) -> str:
    """A row for each span, session, description and set of values, as the views have them."""
    shown = ", ".join(SHOWN)
    return f"""
        with part as (
          select {BESIDES}, passes, weight_ns, 0 as hidden_s, wait_class = 'CPU' and cpu_queue_s is null as unknown,
                 case when wait_class = 'CPU' then cpu_queue_s else weight_ns / 1e9 - weight_s end as queue_s
          from db_time where not from_counter
          union all by name
          select {BESIDES}, passes, weight_ns, 0 as hidden_s, false as unknown, 0 as queue_s
          from session_sample where not coalesce(in_db_time, false)
          union all by name  -- at the session's last sample of an interval
          select {BESIDES}, 0 as passes, 0 as weight_ns, weight_s as hidden_s, false as unknown, 0 as queue_s
          from db_time where from_counter
        )
        select any_value(s.tick) as tick, 1 as ticks, p.session_id, state_code as state,
               wait_code as wait_event_info, query_code as query_id, plan_code as plan_id, statement as statement_id,
               coalesce(max(xact_at) filter (p.tick = s.last), 0) as xact_start,
               coalesce(max(query_at) filter (p.tick = s.last), 0) as query_start,
               coalesce(max(state_at) filter (p.tick = s.last), 0) as state_change,
               coalesce(max(xid) filter (p.tick = s.last), 0) as backend_xid,
               coalesce(max(xmin) filter (p.tick = s.last), 0) as backend_xmin,
               min(first_seen) as first_ts, sum(p.passes)::bigint as passes, sum(weight_ns)::bigint as weight_ns,
               case when not unknown then sum(queue_s) end as queue_s, sum(hidden_s) as hidden_s
        from part p join (select tick, ts // {span_ns} as number from memory.main.tick) t on t.tick = p.tick join span s using (number)
        group by number, {shown}
    """

"""What one refresh shows, as numbers: asked of the tables and views of a capture, over the window they are limited to."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leadline.capture.reader import Capture
from leadline.engines.live import Vitals
from leadline.errors import LeadlineError
from leadline.host.proc import status_fields
from leadline.views import lock_tree, spenders, where
from leadline.views.lock_tree import LockTree
from leadline.views.spenders import HotBlock, Spender
from leadline.views.wait_classes import rank
from leadline.views.where import ClassTime, CpuSplit

TABS = ("overview", "sessions", "locks", "blocks", "statements")
MOST_SESSIONS, MOST_TREES, MOST_BLOCKS, MOST_STATEMENTS = 500, 5, 100, 100
STEPS_S = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0)
PASSES_PER_STEP = 2


@dataclass(frozen=True)
class Recording:
    """What is known beside the samples. Ages and lengths in seconds; own_cpu of one core, 0 to 1 and more; None: not yet known."""

    server: str
    target: str
    cpu_count: int | None
    tier: str
    rate_hz: float
    running_s: float
    data_age_s: float | None
    own_cpu: float | None
    notes: tuple[str, ...] = ()
    error: LeadlineError | None = None
    vitals: Vitals | None = None
    product: str = ""


@dataclass(frozen=True)
class Load:
    """Database time of the window: seconds by class and event, most first, and how many sessions there are at its end.

    ts_to: end of the window, ns on CLOCK_MONOTONIC. ended: the same on the wall clock, in local time. Counts are sessions.
    """

    ts_to: int
    ended: datetime | None
    window_s: float
    observed_s: float
    missed: int
    ticks: int
    db_time_s: float
    classes: list[ClassTime]
    sessions: int
    active: int
    idle_in_xact: int
    lock_waiters: int

    @property
    def aas(self) -> float:
        """Sessions active on average."""
        return self.db_time_s / self.observed_s if self.observed_s else 0.0


@dataclass(frozen=True)
class Timeline:
    """Sessions active on average by class in steps of step_s, oldest first; None for a step in which no pass was made."""

    step_s: float
    steps: list[dict[str, float] | None]

    @property
    def peak(self) -> float:
        return max((sum(step.values()) for step in self.steps if step), default=0.0)


@dataclass(frozen=True)
class SessionNow:
    """A session at the last pass. busy_s: database time within the window. age_s: in the statement, or else in the state.

    cpu, read_bytes, write_bytes: a second, over the last seconds; of storage, as the kernel counts them. memory_bytes: its own, without
    shared memory. backend_start: Unix microseconds, 0 where it is hidden.
    """

    session_id: int
    pid: int
    usename: str
    datname: str
    application_name: str
    client_addr: str
    backend_type: str
    leader_pid: int | None
    state: str
    wait_class: str
    event: str
    age_s: float | None
    xact_age_s: float | None
    xmin_age: int | None
    in_db_time: bool
    busy_s: float
    blocked_by: tuple[int, ...]
    statement: str
    cpu: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    memory_bytes: int | None = None
    backend_start: int = 0

    @property
    def hidden_when_quiet(self) -> bool:
        """Idle clients, and server processes that wait for work."""
        return self.state in ("idle", "starting", "disabled") or (not self.state and self.wait_class == "Activity")


@dataclass(frozen=True)
class Stretch:
    """A session did one thing from ago_s seconds before the end of the window for lasted_s."""

    what: str
    wait_class: str
    ago_s: float
    lasted_s: float


@dataclass(frozen=True)
class Detail:
    """One session: who, its statement in full, waits of the window, what it did last, and what it used a second.

    session: None when it has ended. used: by column of session_delta; None where it could not be read.
    """

    session_id: int
    session: SessionNow | None
    statement: str
    waits: list[where.EventTime]
    last: list[Stretch]
    used: dict[str, float | None]
    used_s: float
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Frame:
    """One refresh. Parts that were not asked for are None. roots: lock chains in all, of which
    trees has the costliest. waiting_now: pids. pids: session_id by pid, of the last pass.
    """

    recording: Recording
    load: Load
    timeline: Timeline
    cpu: CpuSplit | None = None
    sessions: list[SessionNow] | None = None
    trees: list[LockTree] | None = None
    roots: int = 0
    waiting_now: frozenset[int] = frozenset()
    blocks: list[HotBlock] | None = None
    statements: list[Spender] | None = None
    detail: Detail | None = None
    pids: dict[int, int] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        out = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name not in ("detail", "pids")}
        out["load"]["aas"] = self.load.aas
        return out | {"waiting_now": sorted(self.waiting_now)}


def _plain(value: Any) -> Any:
    """Dataclasses and errors, also inside lists and dictionaries, as dictionaries."""
    if isinstance(value, LeadlineError):
        return value.as_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def frame(
    capture: Capture, recording: Recording, columns: int = 60, parts: frozenset[str] = frozenset(TABS), detail: int | None = None
) -> Frame:
    """The frame of the capture's window. columns: steps of the timeline at most. parts: of TABS. detail: a session_id."""
    missing = {part: why for part, table in (("locks", "lock_wait"), ("blocks", "buffer_wait")) if (why := capture.unavailable(table))}
    return Frame(
        recording,
        load(capture),
        timeline(capture, columns),
        cpu=where.cpu_split(capture) if "overview" in parts else None,
        sessions=sessions(capture) if "sessions" in parts else None,
        trees=lock_tree.lock_trees(capture, MOST_TREES) if "locks" in parts else None,
        roots=lock_tree.count_roots(capture) if "locks" in parts else 0,
        waiting_now=waiting_now(capture) if "locks" in parts else frozenset(),
        blocks=spenders.hot_blocks(capture, MOST_BLOCKS) if "blocks" in parts else None,
        statements=spenders.statements(capture, MOST_STATEMENTS) if "statements" in parts else None,
        detail=session_detail(capture, detail) if detail is not None else None,
        pids=_pids(capture) if "locks" in parts else {},
        unavailable=missing,
    )


def _pids(capture: Capture) -> dict[int, int]:
    rows = capture.rows("select pid, session_id from session_sample where ts = (select max(ts) from session_sample) and pid is not null")
    return {row["pid"]: row["session_id"] for row in rows}


def load(capture: Capture) -> Load:
    of = capture.rows("select ts_to, window_s, wall_offset_ns from capture")[0]
    seen = capture.rows(
        "select count(*) as ticks, coalesce(sum(missed), 0)::bigint as missed, coalesce(sum(period_ns), 0) / 1e9 as observed_s from tick"
    )[0]
    rows = capture.rows(
        "select wait_class, coalesce(wait_event, 'CPU') as event, sum(weight_s) as s from session_sample where in_db_time "
        "group by all order by s desc, event"
    )
    classes: dict[str, ClassTime] = {}
    for row in rows:
        of_class = classes.setdefault(row["wait_class"], ClassTime(row["wait_class"]))
        of_class.seconds += row["s"]
        of_class.events.append(where.EventTime(row["wait_class"], row["event"], row["s"]))
    now = capture.rows(
        """
        select count(*) filter (backend_type = 'client backend') as sessions, count(*) filter (in_db_time) as active,
               count(*) filter (starts_with(state, 'idle in transaction')) as idle_in_xact,
               count(*) filter (wait_class = 'Lock') as lock_waiters
        from session_sample where ts = (select max(ts) from session_sample)
        """
    )[0]
    ended = (of["ts_to"] + of["wall_offset_ns"]) / 1e9 if of["wall_offset_ns"] is not None else None
    return Load(
        ts_to=of["ts_to"],
        ended=datetime.fromtimestamp(ended) if ended is not None else None,
        window_s=of["window_s"],
        observed_s=seen["observed_s"],
        missed=seen["missed"],
        ticks=seen["ticks"],
        db_time_s=sum(c.seconds for c in classes.values()),
        classes=sorted(classes.values(), key=lambda c: (-c.seconds, c.wait_class)),
        **now,
    )


def timeline(capture: Capture, columns: int) -> Timeline:
    """The window in round steps that begin at multiples of their length, so that a step keeps its height while it moves on."""
    of = capture.rows("select ts_from, ts_to, rate_hz from capture")[0]
    window_s = (of["ts_to"] - of["ts_from"]) / 1e9
    least = max(window_s / max(columns, 1), PASSES_PER_STEP / of["rate_hz"] if of["rate_hz"] else 0.0)
    step_s = next((s for s in STEPS_S if s >= least - 1e-9), least)
    step_ns = round(step_s * 1e9)
    period_ns = 1e9 / of["rate_hz"] if of["rate_hz"] else 0
    first, last = math.floor(of["ts_from"] / step_ns), math.floor((of["ts_to"] - period_ns) / step_ns)
    rows = capture.rows(
        """
        with pass as (select ts // $1 as step, sum(period_ns) / 1e9 as observed_s from tick group by all),
        spent as (select ts // $1 as step, wait_class, sum(weight_s) as s from session_sample where in_db_time group by all)
        select p.step, wait_class, s / observed_s as aas from pass p left join spent using (step)
        """,
        [step_ns],
    )
    steps: dict[int, dict[str, float]] = {}
    for row in rows:
        classes = steps.setdefault(row["step"], {})
        if row["wait_class"] is not None:
            classes[row["wait_class"]] = row["aas"]
    found = [steps.get(step) for step in range(first, last + 1)]
    ordered = [dict(sorted(step.items(), key=lambda item: rank(item[0]))) if step is not None else None for step in found]
    return Timeline(step_s, ordered[-columns:])


_SESSIONS = """
    with last as (select max(ts) as ts from session_sample),
    busy as (select session_id, sum(weight_s) filter (in_db_time) as busy_s from session_sample group by 1),
    text as (select statement_id, any_value(query) as query from statement group by 1),
    used as (
      select session_id, sum(cpu_run_ns) / sum(dt_ns)::double as cpu, sum(read_bytes) * 1e9 / sum(dt_ns) as read_bytes,
             sum(write_bytes) * 1e9 / sum(dt_ns) as write_bytes
      from session_delta d, last where d.ts > last.ts - 4000000000 group by 1),
    blocker as (
      select session_id, list(distinct blocker_pid order by blocker_pid) as pids from lock_wait l, last
      where l.ts + l.period_ns >= last.ts group by 1)
    select s.session_id, coalesce(s.pid, 0) as pid, coalesce(s.usename, '') as usename, coalesce(s.datname, '') as datname,
           coalesce(s.application_name, '') as application_name, coalesce(s.client_addr, '') as client_addr,
           coalesce(s.backend_type, '') as backend_type, s.leader_pid, coalesce(s.state, '') as state, s.wait_class,
           coalesce(s.wait_event, 'CPU') as event,
           case when s.state in ('active', 'fastpath function call') then s.query_age_s
                when s.state is not null then s.state_age_s end as age_s,
           s.xact_age_s, s.xmin_age, s.in_db_time, coalesce(b.busy_s, 0) as busy_s,
           case when s.wait_class = 'Lock' then coalesce(k.pids, []) else [] end as blocked_by, coalesce(t.query, '') as statement,
           u.cpu, u.read_bytes, u.write_bytes, coalesce(w.backend_start, 0) as backend_start
    from session_sample s join last using (ts)
    left join busy b using (session_id) left join text t using (statement_id) left join blocker k using (session_id)
    left join used u using (session_id)
    left join (select session_id, max(backend_start) as backend_start from session group by 1) w using (session_id)
"""


def sessions(capture: Capture, limit: int = MOST_SESSIONS) -> list[SessionNow]:
    """The sessions of the last pass: the busiest of the window first, then those in a transaction, then the rest."""
    rows = capture.rows(
        _SESSIONS + "order by busy_s desc, starts_with(coalesce(s.state, ''), 'idle in') desc, s.xact_age_s desc nulls last, pid limit $1",
        [limit],
    )
    return [_session(row) for row in rows]


def with_memory(found: list[SessionNow], host_pids: dict[int, int]) -> list[SessionNow]:
    """The sessions with what the kernel says of the memory of their processes now."""
    return [dataclasses.replace(s, memory_bytes=_memory(host_pids.get(s.pid, 0))) for s in found]


def _memory(pid: int) -> int | None:
    kilobytes = status_fields(pid).get("RssAnon") if pid else None
    return None if kilobytes is None else int(kilobytes.split()[0]) * 1024


def _session(row: dict[str, Any]) -> SessionNow:
    return SessionNow(**{**row, "blocked_by": tuple(row["blocked_by"])})


def waiting_now(capture: Capture) -> frozenset[int]:
    """Processes that waited for a lock when locks were last looked at, if that was at the end of the window."""
    rows = capture.rows(
        "select distinct pid from lock_wait where ts = (select max(ts) from lock_wait) and session_id in "
        "(select session_id from session_sample where ts = (select max(ts) from session_sample) and wait_class = 'Lock')"
    )
    return frozenset(row["pid"] for row in rows)


def session_detail(capture: Capture, session_id: int, most: int = 12) -> Detail:
    found = capture.rows(_SESSIONS + "where s.session_id = $1", [session_id])
    session = _session(found[0]) if found else None
    text = capture.rows(
        """
        select any_value(query) as query from statement
        where statement_id = (select arg_max(statement_id, ts) from session_sample where session_id = $1 and statement_id is not null)
        """,
        [session_id],
    )
    waits = capture.rows(
        "select wait_class, coalesce(wait_event, 'CPU') as event, sum(weight_s) as seconds from session_sample "
        "where session_id = $1 and in_db_time group by all order by seconds desc, event",
        [session_id],
    )
    last = capture.rows(
        """
        with sample as (
          select ts, weight_s, case when in_db_time or state is null then wait_class else state end as wait_class,
                 case when in_db_time or state is null then coalesce(wait_class || ':' || wait_event, 'CPU') else state end as what
          from session_sample where session_id = $1),
        turn as (select *, what is distinct from lag(what) over (order by ts) as begins from sample),
        run as (select *, count(*) filter (begins) over (order by ts) as number from turn)
        select any_value(what) as what, any_value(wait_class) as wait_class,
               ((select ts_to from capture) - min(ts)) / 1e9 as ago_s, sum(weight_s) as lasted_s
        from run group by number order by number desc limit $2
        """,
        [session_id, most],
    )
    used, used_s = _used(capture, session_id)
    behind = capture.rows(
        "select distinct pid from lock_wait where blocker_session_id = $1 and ts = (select max(ts) from lock_wait) and session_id in "
        "(select session_id from session_sample where ts = (select max(ts) from session_sample) and wait_class = 'Lock')",
        [session_id],
    )
    return Detail(
        session_id,
        session,
        (text[0]["query"] if text else None) or "",
        [where.EventTime(row["wait_class"], row["event"], row["seconds"]) for row in waits],
        [Stretch(**row) for row in last],
        used,
        used_s,
        tuple(sorted(row["pid"] for row in behind)),
    )


def _used(capture: Capture, session_id: int) -> tuple[dict[str, float | None], float]:
    """Each counter of session_delta per second over the window, and the seconds they cover."""
    from leadline.tables import all_tables

    names = [c.name for c in all_tables()["session_delta"].columns if c.nullable]
    sums = ", ".join(f"sum({name}) / (sum(dt_ns) filter ({name} is not null) / 1e9) as {name}" for name in names)
    row = capture.rows(f"select coalesce(sum(dt_ns), 0) / 1e9 as used_s, {sums} from session_delta where session_id = $1", [session_id])[0]
    seconds = row.pop("used_s")
    return row, seconds

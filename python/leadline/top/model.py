"""What one refresh shows, as numbers: the sums of a live capture's window, and what only some tables show from its views."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leadline.capture.reader import Capture
from leadline.engines.live import StandbyNow, Vitals
from leadline.errors import LeadlineError
from leadline.host.proc import private_bytes
from leadline.top.live import LiveCapture
from leadline.views import lock_tree, spenders, where
from leadline.views.lock_tree import LockTree
from leadline.views.spenders import HotBlock, Spender
from leadline.views.wait_classes import rank
from leadline.views.where import ClassTime, CpuSplit

if TYPE_CHECKING:
    from leadline._core.recorder import Look, SessionSeen

TABS = ("overview", "sessions", "locks", "blocks", "statements")
STANDBYS = "standbys"  # a tab where servers are watched that the target replicates with
MOST_SESSIONS, MOST_TREES, MOST_BLOCKS, MOST_STATEMENTS = 500, 5, 100, 100
STEPS_S = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0)
PASSES_PER_STEP = 2
SECOND_NS = 1_000_000_000
STATES = (
    *("", "starting", "active", "idle", "idle in transaction"),
    *("fastpath function call", "idle in transaction (aborted)", "disabled", "hidden"),
)
"""By the number that table session_run has."""


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
    standbys: list[StandbyNow] | None = None
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
    capture: LiveCapture, recording: Recording, columns: int = 60, parts: frozenset[str] = frozenset(TABS), detail: int | None = None
) -> Frame:
    """The frame of the capture's window. columns: steps of the timeline at most. parts: of TABS. detail: a session_id."""
    missing = {part: why for part, table in (("locks", "lock_wait"), ("blocks", "buffer_wait")) if (why := capture.unavailable(table))}
    step_s = _step_s(capture, columns)
    shows_locks, has_locks = "locks" in parts, "locks" in parts and capture.may_have("lock_wait")
    sums = capture.sums(round(step_s * 1e9), listed="sessions" in parts or detail is not None)
    return Frame(
        recording,
        _load(capture, sums),
        _timeline(capture, sums, step_s, columns),
        cpu=CpuSplit(*sums["cpu"], None, None) if "overview" in parts else None,
        sessions=_sessions(capture, sums) if "sessions" in parts else None,
        trees=lock_tree.lock_trees(capture, MOST_TREES) if has_locks else [] if shows_locks else None,
        roots=lock_tree.count_roots(capture) if has_locks else 0,
        waiting_now=waiting_now(capture) if has_locks else frozenset(),
        blocks=_blocks(capture) if "blocks" in parts else None,
        statements=_statements(capture, sums) if "statements" in parts else None,
        detail=session_detail(capture, detail) if detail is not None else None,
        pids=_pids(capture) if has_locks else {},
        unavailable=missing,
    )


def _blocks(capture: LiveCapture) -> list[HotBlock]:
    return spenders.hot_blocks(capture, MOST_BLOCKS) if capture.may_have("buffer_wait") else []


def _statements(capture: LiveCapture, sums: Look) -> list[Spender]:
    return spenders.statements(capture, MOST_STATEMENTS) if sums["events"] else []


def _pids(capture: Capture) -> dict[int, int]:
    rows = capture.rows("select pid, session_id from session_sample where ts = (select max(ts) from session_sample) and pid is not null")
    return {row["pid"]: row["session_id"] for row in rows}


def load(capture: LiveCapture) -> Load:
    return _load(capture, capture.sums(SECOND_NS))


def _load(capture: LiveCapture, sums: Look) -> Load:
    ts_from, ts_to = capture.window
    classes: dict[str, ClassTime] = {}
    for name, event, spent_s in sorted(sums["events"], key=lambda e: (-e[2], e[1])):
        of_class = classes.setdefault(name, ClassTime(name))
        of_class.seconds += spent_s
        of_class.events.append(where.EventTime(name, event, spent_s))
    offset_ns = capture.manifest.clock.wall_offset_ns
    sessions, active, idle_in_xact, lock_waiters = sums["counts"]
    return Load(
        ts_to=ts_to,
        ended=datetime.fromtimestamp((ts_to + offset_ns) / 1e9) if offset_ns is not None else None,
        window_s=(ts_to - ts_from) / 1e9,
        observed_s=sums["observed_s"],
        missed=sums["missed"],
        ticks=sums["ticks"],
        db_time_s=sum(c.seconds for c in classes.values()),
        classes=sorted(classes.values(), key=lambda c: (-c.seconds, c.wait_class)),
        sessions=sessions,
        active=active,
        idle_in_xact=idle_in_xact,
        lock_waiters=lock_waiters,
    )


def timeline(capture: LiveCapture, columns: int) -> Timeline:
    step_s = _step_s(capture, columns)
    return _timeline(capture, capture.sums(round(step_s * 1e9)), step_s, columns)


def _step_s(capture: LiveCapture, columns: int) -> float:
    ts_from, ts_to = capture.window
    rate_hz = capture.manifest.probe("sessions").rate_hz
    least = max((ts_to - ts_from) / 1e9 / max(columns, 1), PASSES_PER_STEP / rate_hz if rate_hz else 0.0)
    return next((s for s in STEPS_S if s >= least - 1e-9), least)


def _timeline(capture: LiveCapture, sums: Look, step_s: float, columns: int) -> Timeline:
    """The window in round steps that begin at multiples of their length, so that a step keeps its height while it moves on.

    At its ends, steps of which less than half lies in the window are left out: a few passes say little of a height.
    """
    ts_from, ts_to = capture.window
    step_ns = round(step_s * 1e9)
    first, last = math.floor(ts_from / step_ns + 0.5), math.floor(ts_to / step_ns + 0.5) - 1
    if last < first:  # a window as short as a step
        first = last = math.floor((ts_from + ts_to) / 2 / step_ns)
    steps = {
        number: {name: spent_s / observed_s for name, spent_s in sorted(classes, key=lambda of: rank(of[0]))}
        for number, observed_s, classes in sums["steps"]
    }
    return Timeline(step_s, [steps.get(number) for number in range(max(first, last - columns + 1), last + 1)])


def sessions(capture: LiveCapture, limit: int = MOST_SESSIONS) -> list[SessionNow]:
    """The sessions of the last pass: the busiest of the window first, then those in a transaction, then the rest."""
    return _sessions(capture, capture.sums(SECOND_NS, listed=True), limit)


def _sessions(capture: LiveCapture, sums: Look, limit: int = MOST_SESSIONS) -> list[SessionNow]:
    found = [_session(capture, seen) for seen in sums["sessions"]]
    return sorted(found, key=_by_use)[:limit]


def _by_use(s: SessionNow) -> tuple[float, bool, bool, float, int]:
    age_s = s.xact_age_s
    return (-s.busy_s, not s.state.startswith("idle in"), age_s is None, -(age_s or 0.0), s.pid)


def _session(capture: LiveCapture, seen: SessionSeen) -> SessionNow:
    return SessionNow(
        session_id=seen["session_id"],
        pid=seen["pid"],
        usename=capture.names["role"].get(seen["usesysid"], ""),
        datname=capture.names["database"].get(seen["datid"], ""),
        application_name=seen["application_name"],
        client_addr=seen["client_addr"],
        backend_type=seen["backend_type"],
        leader_pid=seen["leader_pid"] or None,
        state=STATES[seen["state"]],
        wait_class=seen["wait_class"],
        event=seen["event"],
        age_s=seen["age_s"],
        xact_age_s=seen["xact_age_s"],
        xmin_age=seen["xmin_age"],
        in_db_time=seen["in_db_time"],
        busy_s=seen["busy_s"],
        blocked_by=tuple(seen["blocked_by"]),
        statement=seen["statement"],
        cpu=seen["cpu"],
        read_bytes=seen["read_bytes"],
        write_bytes=seen["write_bytes"],
        backend_start=seen["backend_start"],
    )


def with_memory(found: list[SessionNow], host_pids: dict[int, int]) -> list[SessionNow]:
    """The sessions with what the kernel says of the memory of their processes now."""
    return [dataclasses.replace(s, memory_bytes=private_bytes(host_pids[s.pid])) if s.pid in host_pids else s for s in found]


def waiting_now(capture: Capture) -> frozenset[int]:
    """Processes that waited for a lock when locks were last looked at, if that was at the end of the window."""
    rows = capture.rows(
        "select distinct pid from lock_wait where ts = (select max(ts) from lock_wait) and session_id in "
        "(select session_id from session_sample where ts = (select max(ts) from session_sample) and wait_class = 'Lock')"
    )
    return frozenset(row["pid"] for row in rows)


def session_detail(capture: LiveCapture, session_id: int, most: int = 12) -> Detail:
    seen = capture.sums(SECOND_NS, listed=True)["sessions"]
    session = next((_session(capture, s) for s in seen if s["session_id"] == session_id), None)
    text = capture.rows(
        """
        select any_value(query) as query from statement
        where statement_id = (select arg_max(statement_id, ts) from session_sample where session_id = $1 and statement_id is not null)
        """,
        [session_id],
    )
    waits = capture.rows(
        "select wait_class, event, sum(weight_s) as seconds from db_time where session_id = $1 group by all order by seconds desc, event",
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

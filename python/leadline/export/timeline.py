"""What happened when in a capture, track by track: states and waits of sessions, lock waits, findings, calls and sleeps of threads,
and counters. Times in ns on the capture's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from leadline.capture.reader import Capture
from leadline.export.profile import statement_names
from leadline.export.window import Span
from leadline.figures import one_line
from leadline.findings import evaluate
from leadline.probes.polled import STATES

BATCH = 2_048


@dataclass(frozen=True)
class Event:
    """A slice of a track from `ts` to `end`, within the slices of its track around it; or, without an end, a moment.

    flow: a number that it shares with the event of another track which it leads to or comes from.
    """

    ts: int
    end: int | None
    name: str
    category: str
    args: dict[str, Any] = field(default_factory=dict)
    flow: int | None = None


@dataclass(frozen=True)
class Track:
    """Events in the order of their begin, those around others first. group: what it stands below. pid, tid: of a thread."""

    name: str
    group: str
    events: list[Event] | Iterator[Event]
    pid: int = 0
    tid: int = 0


@dataclass(frozen=True)
class Counter:
    """Values that each hold up to the next."""

    name: str
    unit: str
    values: list[tuple[int, float]]


# Each row: one wait of a session, or its time without one, within a stretch of one state and statement. A pass counts up to the next
# one; where passes were missed, what the session did is not known: up to its period.
_SESSIONS = """
create or replace table exported_session as
with pass as (
  select tick, ts, period_ns, sum((missed > 0)::int) over by_time as stretch, lead(ts) over by_time as next_ts,
         lead(missed) over by_time as next_missed
  from tick where {in_span} window by_time as (order by tick)
),
seen as (
  select tick, ts, stretch,
         case when next_missed = 0 then next_ts else least(ts + period_ns, coalesce(next_ts, ts + period_ns)) end as until
  from pass
),
stretch as (select stretch, min(tick) as first, max(tick) as last from seen group by stretch),
piece as (
  select r.session_id, greatest(r.tick, s.first) as first, least(r.tick + r.ticks - 1, s.last) as last, s.stretch, r.state,
         r.statement_id, r.wait_event_info
  from session_run r join stretch s on r.tick <= s.last and r.tick + r.ticks > s.first
),
marked as (
  select *, (lag(last) over w is distinct from first - 1 or lag(stretch) over w <> stretch or lag(state) over w <> state
             or lag(statement_id) over w <> statement_id)::int as is_new,
         greatest(is_new, (lag(wait_event_info) over w is distinct from wait_event_info)::int) as is_new_wait
  from piece window w as (partition by session_id order by first)
),
numbered as (
  select *, sum(is_new) over w as outer_no, sum(is_new_wait) over w as inner_no
  from marked window w as (partition by session_id order by first)
),
wait as (
  select session_id, outer_no, inner_no, any_value(state) as state, any_value(statement_id) as statement_id,
         any_value(wait_event_info) as wait_event_info, min(first) as first, max(last) as last, sum(last - first + 1)::bigint as samples
  from numbered group by all
)
select w.session_id, w.outer_no, w.state, w.statement_id, b.ts as ts, e.until as until, w.samples, v.wait_event_type, v.wait_event,
       max(e.until) over around as outer_until, sum(w.samples) over around as outer_samples,
       w.inner_no = min(w.inner_no) over around as is_first
from wait w join seen b on b.tick = w.first join seen e on e.tick = w.last left join wait_event v using (wait_event_info)
window around as (partition by w.session_id, w.outer_no)
"""


def session_tracks(capture: Capture, pid: int | None, span: Span) -> Iterator[Track]:
    """A track for each sampled session: slices of its states, with its statement; within them its waits; and whom it waited for."""
    if not _prepared(capture, pid, span):
        return
    names = statement_names(capture)
    moments = _lock_moments(capture, span)
    described = capture.rows(
        """select session_id, arg_max(pid, ts) as pid, arg_max(backend_type, ts) as kind, arg_max(application_name, ts) as application,
           arg_max(datname, ts) as database, arg_max(usename, ts) as usename
           from session left join database using (datid) left join role using (usesysid) group by 1"""
    )
    known = {row["session_id"]: row for row in described}
    rows = _streamed(capture, "from exported_session order by session_id, ts, is_first desc")
    for number, of_session in groupby(rows, key=itemgetter("session_id")):
        who = known.get(number, {"pid": "?"})
        about = [who.get(part) for part in ("kind", "database", "usename", "application")]
        name = one_line(" ".join([f"pid {who['pid']}", *filter(None, about)]))
        yield Track(name, "Sessions", _with_moments(_waits(of_session, names), moments.get(number, [])))


def _streamed(capture: Capture, sql: str) -> Iterator[dict[str, Any]]:
    """Rows as they are asked for; other queries may run meanwhile."""
    capture.prepare(sql)
    cursor = capture.db.cursor().execute(sql)
    names = [column[0] for column in cursor.description or []]
    while batch := cursor.fetchmany(BATCH):
        yield from (dict(zip(names, row)) for row in batch)


def count_session_events(capture: Capture, pid: int | None, span: Span) -> int:
    """How many events the tracks of the sessions have at most."""
    if not _prepared(capture, pid, span):
        return 0
    locks = sum(map(len, _lock_moments(capture, span).values()))
    return locks + int(capture.scalar("select count(*) + coalesce(sum(is_first::int), 0) from exported_session"))


def _prepared(capture: Capture, pid: int | None, span: Span) -> bool:
    if capture.unavailable("session_run") or capture.manifest.clock.span_s is not None:  # a coarse row is no stretch of time
        return False
    capture.rows(_SESSIONS.format(in_span=span.of("ts")))
    if pid is not None:
        capture.rows(f"delete from exported_session where session_id not in (select session_id from session where pid = {pid})")
    return True


def _waits(rows: Iterable[dict[str, Any]], names: dict[int, str]) -> Iterator[Event]:
    for row in rows:
        state = STATES[row["state"]] if 0 <= row["state"] < len(STATES) else ""
        statement = names.get(row["statement_id"])
        works = state in ("active", "fastpath function call")
        if row["is_first"]:
            args = {"state": state, "samples": int(row["outer_samples"])}
            if row["statement_id"]:
                args["statement_id"] = str(row["statement_id"])  # as text: viewers in JavaScript round numbers beyond 2^53
            name = statement if works and statement else state or "background"
            yield Event(row["ts"], row["outer_until"], name, state or "background", args)
        if row["wait_event"] or works:
            wait_class = row["wait_event_type"] or "CPU"
            name = f"{wait_class}:{row['wait_event']}" if row["wait_event"] else "CPU"
            yield Event(row["ts"], row["until"], name, wait_class, {"samples": row["samples"]})


def _lock_moments(capture: Capture, span: Span) -> dict[int, list[Event]]:
    """By session: where it began to wait for another one, and where another one began to wait for it."""
    found: dict[int, list[Event]] = {}
    if capture.unavailable("lock_wait") or capture.manifest.clock.span_s is not None:  # when it began is not known of a coarse capture
        return found
    rows = capture.rows(
        f"""with seen as (
          select *, (wait_start is distinct from lag(wait_start) over w or ts - lag(ts) over w > 1000000000)::int as is_new
          from lock_wait where {span.of("ts")}
          window w as (partition by session_id, blocker_session_id, object, mode order by ts)
        ), numbered as (
          select *, sum(is_new) over (partition by session_id, blocker_session_id, object, mode order by ts) as no from seen
        )
        select session_id, blocker_session_id, object, mode, no, any_value(pid) as pid, any_value(blocker_pid) as blocker_pid,
               min(ts) as ts, sum(period_ns)::bigint as waited_ns, any_value(blocker_kind) as blocker_kind,
               any_value(blocker_mode) as blocker_mode
        from numbered group by all order by ts, session_id, blocker_session_id"""
    )
    for number, row in enumerate(rows, 1):
        blocked, blocker, what = row["session_id"], row["blocker_session_id"], one_line(row["object"] or "a lock")
        args = {"waited_ns": row["waited_ns"], "mode": row["mode"], "blocker_mode": row["blocker_mode"], "blocker": row["blocker_kind"]}
        flow = number if blocker > 0 else None
        if flow:
            name = f"blocks pid {row['pid']}: {what}"
            found.setdefault(blocker, []).append(Event(row["ts"], None, name, "lock", {"waits_for": row["mode"]}, flow))
        name = f"waits for pid {row['blocker_pid']}: {what}"
        found.setdefault(blocked, []).append(Event(row["ts"], None, name, "lock", args, flow))
    return found


def _with_moments(events: Iterator[Event], moments: list[Event]) -> list[Event]:
    """In the order of their begin; a moment after the slices that begin with it, so that it lies in them."""
    return sorted([*events, *moments], key=lambda event: (event.ts, event.end is None))


def thread_tracks(capture: Capture, pid: int | None, span: Span) -> Iterator[Track]:
    """A track for each traced thread: its system calls, and in them or between them its stays off the CPU."""
    if capture.unavailable("syscall"):
        return
    of = "true" if pid is None else f"pid = {pid}"
    known = {row["thread_id"]: row for row in capture.rows(f"select thread_id, tid, pid, comm from thread_name where {of}")}
    rows = _streamed(
        capture,
        f"""select thread_id, ts - duration_ns as began, ts, call as name, ret, error, sleep_ns, runq_ns, null as waker, true as is_call
        from call where {of} and {span.of("ts - duration_ns", "ts")}
        union all
        select thread_id, ts - duration_ns, ts,
               case when state = 0 then 'preempted' else coalesce('asleep in ' || k.wait_function, 'asleep') end,
               null, null, sleep_ns, duration_ns - sleep_ns, nullif(waker_tid, 0), false
        from off_cpu o join thread_name using (thread_id) left join kernel_stack k using (stack_id)
        where {of} and {span.of("o.ts - o.duration_ns", "o.ts")}
        order by thread_id, began, ts desc, is_call desc""",
    )
    for number, of_thread in groupby(rows, key=itemgetter("thread_id")):
        thread = known.get(number, {"comm": "?", "pid": 0, "tid": number})
        events = (_call(row) if row["is_call"] else _stay(row) for row in of_thread)
        yield Track(one_line(thread["comm"]), "", events, thread["pid"], thread["tid"])


def count_thread_events(capture: Capture, pid: int | None, span: Span) -> int:
    if capture.unavailable("syscall"):
        return 0
    of = "true" if pid is None else f"thread_id in (select thread_id from thread where pid = {pid})"
    during = span.of("ts - duration_ns", "ts")
    return int(
        capture.scalar(
            f"select (select count(*) from syscall where {of} and {during}) + (select count(*) from off_cpu where {of} and {during})"
        )
    )


def _call(row: dict[str, Any]) -> Event:
    args = {"ret": row["ret"], "sleep_ns": row["sleep_ns"], "runq_ns": row["runq_ns"]}
    if row["error"]:
        args["error"] = row["error"]
    return Event(row["began"], row["ts"], row["name"], "call", args)


def _stay(row: dict[str, Any]) -> Event:
    args = {"sleep_ns": row["sleep_ns"], "runq_ns": row["runq_ns"]}
    if row["waker"]:
        args["woken_by"] = row["waker"]
    return Event(row["began"], row["ts"], row["name"], "off_cpu", args)


def finding_track(capture: Capture, span: Span) -> Track | None:
    """What the rules find, each where its evidence begins."""
    found = [f for f in evaluate(capture).findings if span.whole or (f.ts_from < span.ts_to and f.ts_to >= span.ts_from)]
    events = []
    for finding in sorted(found, key=lambda f: (f.ts_from or span.ts_from, f.id)):
        args = {"severity": finding.severity, "statement": finding.statement, "samples": finding.samples, "cost_s": finding.cost_s}
        args = {key: value for key, value in args.items() if value is not None}
        ts = max(finding.ts_from or span.ts_from, span.ts_from)
        events.append(Event(ts, None, one_line(f"{finding.id}: {finding.subject}"), "finding", args))
    return Track("Findings", "", events) if events else None


def counters(capture: Capture, span: Span) -> Iterator[Counter]:
    """Active sessions by pass, where their number changes; CPUs of the host that were busy, by second."""
    if capture.unavailable("session_sample") is None:
        rows = capture.rows(
            f"""with pass as (
              select t.ts, coalesce(n, 0) as n from tick t
              left join (select ts, count(*) as n from session_sample where in_db_time group by ts) using (ts) where {span.of("t.ts")}
            )
            select ts, n from pass qualify n is distinct from lag(n) over (order by ts) order by ts"""
        )
        if rows:
            yield Counter("Active sessions", "sessions", [(row["ts"], row["n"]) for row in rows])
    if capture.unavailable("host_rate") is None:
        rows = capture.rows(
            f"""select ts - dt_ns as ts, sum(per_second) / 1e9 as cpus from host_rate
            where metric in ('stat.cpu_user_ns', 'stat.cpu_nice_ns', 'stat.cpu_system_ns', 'stat.cpu_irq_ns', 'stat.cpu_softirq_ns')
            and {span.of("ts - dt_ns", "ts")} group by 1 order by 1"""
        )
        if rows:
            yield Counter("Host: busy CPUs", "CPUs", [(row["ts"], row["cpus"]) for row in rows])

"""Where the time of a capture went: the sums that the terminal view and the report both show.

Seconds are sums of sample weights. Averages (AAS: sessions active on average) divide by the time that was observed,
so that missed passes make a result less certain and never smaller. Shares are of database time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leadline.capture.manifest import CLIENT
from leadline.capture.reader import Capture
from leadline.views.wait_classes import rank


@dataclass(frozen=True)
class Window:
    """The window of a capture. Times in seconds; began is UTC, ts_from is ns on CLOCK_MONOTONIC.

    active_s: the part of database time in state active. The rest waited for a CPU while the server still called the session idle.
    """

    began: datetime | None
    ts_from: int
    window_s: float
    observed_s: float
    unknown_s: float
    ticks: int
    missed: int
    rate_hz: float
    tier: str
    cpu_count: int | None
    db_time_s: float
    active_s: float

    @property
    def aas(self) -> float:
        """Sessions active on average."""
        return self.db_time_s / self.observed_s if self.observed_s else 0.0

    def share(self, seconds: float) -> float:
        """Part of the database time, 0 to 1."""
        return seconds / self.db_time_s if self.db_time_s else 0.0


@dataclass(frozen=True)
class EventTime:
    wait_class: str
    event: str
    seconds: float


@dataclass
class ClassTime:
    wait_class: str
    seconds: float = 0.0
    events: list[EventTime] = field(default_factory=list)


@dataclass(frozen=True)
class CpuSplit:
    """Database time without a wait by what the kernel says about it, in seconds. queue_s: also of sessions that were woken and still
    looked idle or waiting. after_wake_s and after_preempt_s: its parts, where scheduling was traced.
    """

    run_s: float
    queue_s: float
    unknown_s: float
    after_wake_s: float | None
    after_preempt_s: float | None


@dataclass(frozen=True)
class Slice:
    """One class in one step of the time line; from_s and to_s from the start of the window."""

    from_s: float
    to_s: float
    wait_class: str
    aas: float


@dataclass(frozen=True)
class Outside:
    """Time of sessions that is not database time: idle clients, sleeping and working server processes."""

    what: str
    seconds: float
    events: str


def window(capture: Capture) -> Window:
    row = capture.rows("select * from capture")[0]
    tick = capture.rows(
        "select coalesce(sum(coalesce(passes, 1)), 0)::bigint as ticks, coalesce(sum(missed), 0) as missed, "
        "coalesce(sum(period_ns), 0) / 1e9 as observed_s, "
        "coalesce(sum(coalesce(unknown_ns, missed * period_ns)), 0) / 1e9 as unknown_s from tick"
    )[0]
    began = None
    if row["ts_from"] is not None and row["wall_offset_ns"] is not None:
        began = datetime.fromtimestamp((row["ts_from"] + row["wall_offset_ns"]) / 1e9, UTC)
    return Window(
        began=began,
        ts_from=row["ts_from"] or 0,
        window_s=row["window_s"] or 0.0,
        observed_s=tick["observed_s"],
        unknown_s=tick["unknown_s"],
        ticks=tick["ticks"],
        missed=int(tick["missed"]),
        rate_hz=row["rate_hz"] or 0.0,
        tier=row["tier"] or "",
        cpu_count=row["cpu_count"],
        db_time_s=capture.scalar("select coalesce(sum(weight_s), 0) from db_time"),
        active_s=capture.scalar("select coalesce(sum(weight_s), 0) from session_sample where in_db_time"),
    )


def by_class(capture: Capture) -> list[ClassTime]:
    """Database time by class and event, most first."""
    rows = capture.rows("select wait_class, event, sum(weight_s) as s from db_time group by all order by s desc, event")
    classes: dict[str, ClassTime] = {}
    for row in rows:
        of_class = classes.setdefault(row["wait_class"], ClassTime(row["wait_class"]))
        of_class.seconds += row["s"]
        of_class.events.append(EventTime(row["wait_class"], row["event"], row["s"]))
    return sorted(classes.values(), key=lambda c: (-c.seconds, c.wait_class))


def cpu_split(capture: Capture) -> CpuSplit:
    row = capture.rows(
        "select coalesce(sum(cpu_run_s), 0) as run_s, coalesce(sum(cpu_queue_s), 0) as queue_s, "
        "coalesce(sum(weight_s) filter (cpu_run_s is null), 0) as unknown_s from db_time where wait_class = 'CPU'"
    )[0]
    if capture.unavailable("thread_time") is not None:
        return CpuSplit(**row, after_wake_s=None, after_preempt_s=None)
    # The trace begins and ends a little later than the counters, so it gives the proportion.
    woken = capture.scalar(
        """
        select sum(runq_wake_ns) / nullif(sum(runq_wake_ns + runq_preempt_ns), 0)::double
        from thread_time t semi join thread_name n on n.thread_id = t.thread_id and n.tid in (select pid from db_time)
        """
    )
    if woken is None:
        return CpuSplit(**row, after_wake_s=None, after_preempt_s=None)
    return CpuSplit(**row, after_wake_s=row["queue_s"] * woken, after_preempt_s=row["queue_s"] * (1 - woken))


def time_step(window_s: float, period_s: float, most: int = 120) -> float:
    """A round number of seconds that gives at most `most` steps of at least ten passes each."""
    step, factors = 0.1, (2.0, 2.5, 2.0)
    turn = 0
    while step * most < window_s or step < 10 * period_s:
        step *= factors[turn % 3]
        turn += 1
    return round(step, 6)


@dataclass(frozen=True)
class Steps:
    """The window in steps of one length. A rest of less than half a step is a part of the last one: a few passes say little of a height."""

    length_s: float
    last: int
    end_s: float

    @classmethod
    def of(cls, window: Window) -> Steps:
        length = time_step(window.window_s, 1 / window.rate_hz if window.rate_hz else 0)
        return cls(length, max(math.floor(window.window_s / length + 0.5 + 1e-9), 1) - 1, max(window.window_s, length))

    def number_of(self, ts: str) -> str:
        """SQL: the step of a time, beside the view `capture` as c."""
        return f"least(floor(({ts} - c.ts_from) / 1e9 / {self.length_s!r}), {self.last})"

    def from_to(self, number: float) -> tuple[float, float]:
        begins = number * self.length_s
        return round(begins, 6), round(self.end_s if number == self.last else begins + self.length_s, 6)


def over_time(capture: Capture, of: Window) -> list[Slice]:
    """Sessions active on average by class along the window. A step in which no pass was made has no slice at all."""
    if not of.ticks:
        return []
    steps = Steps.of(of)
    rows = capture.rows(
        f"""
        with pass as (
          select {steps.number_of("t.ts")} as step, sum(t.period_ns) / 1e9 as observed_s
          from tick t cross join capture c group by all),
        spent as (
          select {steps.number_of("s.ts")} as step, s.wait_class, sum(s.weight_s) as seconds
          from db_time s cross join capture c group by all)
        select step, coalesce(wait_class, 'CPU') as wait_class, coalesce(seconds, 0) / observed_s as aas
        from pass left join spent using (step)
        """
    )
    slices = [Slice(*steps.from_to(row["step"]), row["wait_class"], row["aas"]) for row in rows]
    return sorted(slices, key=lambda s: (s.from_s, rank(s.wait_class)))


@dataclass(frozen=True)
class Lane:
    """One step of one session: what it mostly did (a wait class, or idle in transaction), and for which part of it."""

    pid: int
    application_name: str
    from_s: float
    to_s: float
    wait_class: str
    part: float


def lanes(capture: Capture, of: Window, most: int = 20) -> list[Lane]:
    """The busiest sessions along the window. Steps in which a session was idle, gone, or not looked at are left out."""
    if not of.ticks:
        return []
    steps = Steps.of(of)
    rows = capture.rows(
        f"""
        with sample as (
          select session_id, pid, case when backend_type = '{CLIENT}' then application else backend_type end as application_name,
                 ts, weight_s,
                 case when in_db_time then wait_class when starts_with(state, 'idle in transaction') then 'idle in transaction' end as kind
          from session_sample),
        busiest as (
          select session_id, sum(weight_s) as s from sample where kind is not null group by 1 order by s desc, session_id limit $1),
        pass as (
          select {steps.number_of("t.ts")} as step, sum(t.period_ns) / 1e9 as observed_s
          from tick t cross join capture c group by all),
        spent as (
          select s.session_id, any_value(s.pid) as pid, any_value(s.application_name) as application_name,
                 {steps.number_of("s.ts")} as step, kind, sum(s.weight_s) as seconds
          from sample s join busiest using (session_id) cross join capture c where kind is not null group by s.session_id, step, kind)
        select pid, any_value(application_name) as application_name, step, arg_max(kind, seconds) as wait_class,
               max(seconds) / any_value(observed_s) as part
        from spent join pass using (step) group by session_id, pid, step order by session_id, step
        """,
        [most],
    )
    return [
        Lane(row["pid"], row["application_name"] or "", *steps.from_to(row["step"]), row["wait_class"], min(row["part"], 1.0))
        for row in rows
    ]


def outside(capture: Capture) -> list[Outside]:
    """Session time that is not database time, most first: what it was, and the events it was spent in."""
    rows = capture.rows(
        """
        with spent as (
          select case when s.state = 'hidden' then 'hidden: may be database time'
                      when s.state is not null then s.state
                      when s.wait_class = 'Activity' then 'server processes, waiting for work'
                      else 'server processes, working' end as what,
                 case when s.state = 'hidden' then 'not known' else coalesce(s.wait_event, 'CPU') end as event,
                 sum(s.weight_s * (1 - coalesce(case s.wait_class when 'CPU' then q.idle_part when 'Client' then q.idle_wait_part end, 0)))
                   as s
          from session_sample s left join (select distinct session_id, idle_part, idle_wait_part from session_queue) q using (session_id)
          where not coalesce(in_db_time, false) group by all)
        select what, sum(s) as seconds, array_to_string(list(event order by s desc, event)[:3], ', ') as events
        from spent group by what order by seconds desc, what
        """
    )
    return [Outside(**row) for row in rows]


@dataclass(frozen=True)
class NotMeasured:
    """Something the capture cannot tell, why, and what would change it (empty when nothing would)."""

    what: str
    why: str
    hint: str = ""


def thinned(every_pass: int) -> str:
    """Why an answer does not rest on every sample."""
    return f"the capture is too large for memory, so one pass in {every_pass} was read and stands for the rest; leadline sql reads all"


def coarse_words(span_s: float) -> str:
    """What a coarse capture has, and what it cannot show."""
    span = {1: "second", 60: "minute"}.get(int(span_s), f"{span_s:g} s")
    return f"the passes of each {span} are one row with their sum; what changed within, and which row or buffer was waited for, is lost"


def not_measured(capture: Capture) -> list[NotMeasured]:
    """What the probes and the notes of the manifest say was not measured, and the passes that were missed."""
    found = []
    for name, probe in capture.manifest.probes.items():
        if probe.status != "ok":
            what = f"probe {name}" + (" in part" if probe.status == "partial" else "")
            found.append(NotMeasured(what, probe.why, probe.hint))
    found += [NotMeasured("note", note) for note in capture.manifest.notes]
    of = window(capture)
    if of.missed:
        why = f"{of.missed} of {of.ticks + of.missed} passes were due and not made"
        found.append(NotMeasured(f"{of.unknown_s:.2f} s of the window", why))
    if capture.every_pass > 1:
        found.append(NotMeasured("the samples of most passes", thinned(capture.every_pass)))
    seen = capture.rows("select coalesce(sum(waiting), 0) as waiting, coalesce(sum(attributed), 0) as attributed from buffer_scan")[0]
    if seen["waiting"] > seen["attributed"]:
        why = f"of {seen['waiting']} waits for a buffer seen, {seen['attributed']} could be tied to a block: "
        why += "most of the others had just been woken"
        found.append(NotMeasured("the block of some buffer waits", why))
    return found

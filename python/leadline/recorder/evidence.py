"""Takes in a piece while it is written: each pass once, as sums.

What counts as database time is what the view session_sample says, of any engine. That view has a row for each session and pass. The sums
here are over the stored runs instead, since those of one session that differ in nothing that matters need no rows of their own: the
same numbers for a hundredth of the work. The time that sessions spent in the run queue while they seemed to wait (view db_time) is not
taken from the waits: it is known only when a piece has ended, and a counter never falls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from leadline.capture.manifest import read_manifest
from leadline.capture.reader import memory_database
from leadline.capture.views import empty_table, manifest_view
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.probes.polled import STATES
from leadline.tables import all_tables, in_db_time

ABOUT = ("capture", "tick", "clock")  # the view of the manifest, and what it reads
MEMORY = "256MB"
AT_ONCE = 200_000  # rows of samples: a busy piece of ten minutes has millions, and this runs beside the server
BACKGROUND = ""  # the state of processes that are no sessions

# s: a run, w: its session, t: its first pass, c: the capture, as in session_sample. A session that is described anew meanwhile is taken
# pass by pass; of the others, runs that are alike are one. Taken in are runs that begin up to a pass and end by another.
SUMS = """
with pass as (select tick, ts, period_ns, next_xid from {tick} where tick > {after} and tick <= {until}),
run as (select tick, ticks, session_id, {used} from {session_run} where tick > {after} and tick <= {upto} and tick + ticks - 1 <= {until}),
who as (
  select *, case when row_number() over (partition by session_id order by ts) = 1 then 0 else ts end as ts_from from {session}
),
again as (select session_id from who group by session_id having count(*) > 1 and max(ts) > (select min(ts) from pass)),
part as (
  select min(tick) as tick, sum(ticks)::bigint as ticks, session_id, {used} from run where session_id not in (from again) group by all
  union all
  select unnest(range(tick, tick + ticks)) as tick, 1 as ticks, session_id, {used} from run where session_id in (from again)
),
named as (
  select p.*, e.wait_event, coalesce(e.wait_event_type, 'CPU') as wait_class
  from part p left join {wait_event} e using (wait_event_info)
)
select s.state, s.wait_class, coalesce(s.wait_event, 'CPU') as event, {in_db_time} as in_db_time, sum(s.ticks * t.period_ns)::bigint as ns
from named s join pass t on t.tick = s.tick cross join capture c
asof left join who w on w.session_id = s.session_id and t.ts >= w.ts_from
group by all
"""
# The waits that the server can have and that would count: those of an active session of which nothing else is known.
POSSIBLE = """
select s.wait_class, s.wait_event
from (select {active}, e.wait_event, e.wait_event_type as wait_class from {wait_event} e) s
left join {session} w on false left join {tick} t on false cross join capture c
where {in_db_time}
"""
ACTIVE = STATES.index("active")
PASSES = """
select count(*), coalesce(sum(missed), 0)::bigint, coalesce(sum(period_ns), 0)::bigint
from {tick} where tick > {after} and tick <= {until}
"""
CPU = """
select max(ts), coalesce(sum(cpu_run_ns), 0)::bigint, coalesce(sum(cpu_queue_ns), 0)::bigint, count(cpu_run_ns)
from {session_delta} where ts > {after_ts}
"""


@dataclass
class Increase:
    """What some passes add. Times in ns. waits: of active sessions, by class and event. cpu: by running and queued. begun: sessions that
    a pass has seen for the first time, without the workers of others and those that the first passes of a piece have found.
    """

    passes: int = 0
    missed: int = 0
    observed_ns: int = 0
    begun: int = 0
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    cpu: Counter[str] = field(default_factory=Counter)


# A session is described anew when something of it changes: the first time counts.
BEGUN = """
select max(ts), count(*) filter (where first_ts > {after_ts} and leader_pid = 0)
from (select max(ts) as ts, min(ts) as first_ts, arg_min(leader_pid, ts) as leader_pid from {session} group by session_id)
"""


class Piece:
    """One piece, and how far it was taken in. Raises LeadlineError for one that cannot be read. For one thread.

    A database is there only for as long as a call takes: it would keep 30 MB that it has freed, in a process that runs for months.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        self._tick, self._ts, self._session_ts = -1, -1, -1
        self._db: duckdb.DuckDBPyConnection

    @contextmanager
    def _database(self) -> Iterator[None]:
        with closing(memory_database()) as self._db:
            for setting in ("threads = 1", f"memory_limit = '{MEMORY}'", "temp_directory = ''"):
                self._db.execute(f"set {setting}")
            view, *read = (all_tables()[name] for name in ABOUT)
            for table in read:
                self._db.execute(f"create table {table.name} as {empty_table(table)}")
            self._db.execute(manifest_view(self.manifest))
            self._db.execute(f"create table {view.name} as {view.sql}")
            yield

    def possible(self) -> list[tuple[str, str]]:
        """The waits that a session can have, as far as the server has said: of what it tells only when it comes, nothing."""
        condition = in_db_time()
        known = {"state": f"{ACTIVE} as state", "wait_event_info": "e.wait_event_info"}
        active = ", ".join(known.get(name, f"null as {name}") for name in _used(condition))
        try:
            with self._database(), ExitStack() as files:
                found = {table: files.enter_context(self._segments(table)) for table in ("wait_event", "session", "tick")}
                waits = self._db.execute(POSSIBLE.format(**found, active=active, in_db_time=condition)).fetchall()
        except (duckdb.Error, OSError) as e:
            raise self._unreadable(e) from e
        return [(str(wait_class), str(event)) for wait_class, event in waits]

    def take_in(self, *, ended: bool) -> Increase:
        """What has come since the last call. ended: nothing more will come. Raises LeadlineError('storage')."""
        tables = ("tick", "session_run", "session", "wait_event", "session_delta")
        more = Increase()
        try:
            with self._database(), ExitStack() as files:
                # Passes first and names last: what a row refers to was written before it.
                found = {table: files.enter_context(self._segments(table)) for table in tables}
                tick = self._add_passes(more, found, ended=ended)
                ts = self._add_cpu(more, found)
                session_ts = self._add_begun(more, found)
        except (duckdb.Error, OSError) as e:
            raise self._unreadable(e) from e
        self._tick, self._ts, self._session_ts = tick, ts, session_ts
        return more

    def _unreadable(self, e: Exception) -> LeadlineError:
        return LeadlineError("storage", "a piece cannot be read", str(e).splitlines()[0], where=str(self.path))

    def _add_passes(self, more: Increase, found: dict[str, str], *, ended: bool) -> int:
        """Gives the last pass that was taken in."""
        last = f"select max(tick), max(sessions) from {found['tick']} where tick > {self._tick}"
        until, sessions = self._db.execute(last).fetchone() or (None, None)
        if until is None:
            return self._tick
        if not ended:  # the two tables come one after the other: as far as both are there
            runs = self._number(f"select max(tick + ticks - 1) from {found['session_run']} where tick > {self._tick}")
            until = min(until, self._tick if runs is None else runs)
        words = {**found, "until": until, "in_db_time": in_db_time(), "used": ", ".join(_used(in_db_time()))}
        row = self._db.execute(PASSES.format(**words, after=self._tick)).fetchone()
        more.passes, more.missed, more.observed_ns = row or (0, 0, 0)
        step = max(1, AT_ONCE // max(1, sessions))
        for after in range(self._tick, until, step):
            rows = self._db.execute(SUMS.format(**words, after=after, upto=after + step)).fetchall()
            for state, wait_class, event, active, ns in rows:
                if active:
                    more.waits[wait_class, event] += ns
                if 0 <= state < len(STATES) and STATES[state] != BACKGROUND:
                    more.states[STATES[state]] += ns
        return int(until)

    def _add_cpu(self, more: Increase, found: dict[str, str]) -> int:
        """Gives the last interval that was taken in."""
        ts, run_ns, queue_ns, known = self._db.execute(CPU.format(**found, after_ts=self._ts)).fetchone() or (None, 0, 0, 0)
        if known:
            more.cpu.update({"running": run_ns, "queued": queue_ns})
        return self._ts if ts is None else ts

    def _add_begun(self, more: Increase, found: dict[str, str]) -> int:
        """Gives the last time at which a session was described."""
        ts, begun = self._db.execute(BEGUN.format(**found, after_ts=self._session_ts)).fetchone() or (None, 0)
        more.begun = begun if self._session_ts >= 0 else 0
        return self._session_ts if ts is None else ts

    def _number(self, sql: str) -> int | None:
        row = self._db.execute(sql).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _segments(self, table: str) -> Iterator[str]:
        """The rows of a table as SQL. By open files: a segment that grows is replaced while it is read, and a query opens it twice."""
        with ExitStack() as stack:
            opened = []
            for path in sorted((self.path / table).glob("*.parquet")):
                with suppress(FileNotFoundError):
                    file = stack.enter_context(path.open("rb"))
                    if file.seek(0, 2):
                        opened.append(f"'/proc/self/fd/{file.fileno()}'")
            yield f"read_parquet([{', '.join(opened)}])" if opened else f"({empty_table(all_tables()[table])})"


def newest(piece: Path) -> tuple[str, int, int] | None:
    """Changes when passes were written."""
    segments = sorted((piece / "tick").glob("*.parquet"))
    try:
        stat = segments[-1].stat()
    except (IndexError, FileNotFoundError):
        return None
    return segments[-1].name, stat.st_ino, stat.st_size


def _used(condition: str) -> list[str]:
    """The columns of a run that matter: those of its wait and state, and those that the condition asks for."""
    stored = [column.name for column in all_tables()["session_run"].columns]
    asked = set(re.findall(r"\bs\.(\w+)", condition)) | {"state", "wait_event_info"}
    return [name for name in stored if name in asked - {"tick", "ticks", "session_id"}]

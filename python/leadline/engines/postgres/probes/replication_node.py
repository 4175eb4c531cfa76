"""One server whose replication is watched: its positions from its memory where it runs on this host, else over SQL.

Memory is read a hundred times a second by a thread of the compiled part. It is believed only as long as SQL agrees: what SQL says must lie
between a reading of memory before the question and one after the answer. This is asked before the first reading counts, and then every five
seconds.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from leadline.capture.store import Row, add_written
from leadline.engines.postgres.catalog.connection import Connection, connect, safe_dsn
from leadline.engines.postgres.target import resolve
from leadline.errors import LeadlineError
from leadline.figures import one_line

if TYPE_CHECKING:
    from leadline._core.capture import Written
    from leadline._core.recorder import PipelineMemory, PositionSeen, SenderPosition

SQL_HZ = 5.0
COMPARE_HZ = 0.2  # questions over SQL while memory is read: each costs as much CPU as 20 readings of memory
RETRY_S = 1.0
ANSWER_S = 2
ATTEMPTS = 5  # of the first comparison
DOUBTS = 2  # comparisons in a row that fail: a walreceiver that starts again sets its positions back


@dataclass(frozen=True)
class Pace:
    """How often memory is read, and what was seen is written: of memory, and of the rest. growing: few files; not where a reader takes
    them away. records: which ones were replayed is looked up in pg_wal."""

    memory_hz: float
    flush_s: float
    write_s: float
    growing: bool
    records: bool


CAPTURE = Pace(memory_hz=100, flush_s=5, write_s=60, growing=True, records=True)
SCREEN = Pace(memory_hz=20, flush_s=2, write_s=2, growing=False, records=False)

_LSN = "({} - '0/0'::pg_lsn)::bigint".format
_POSITION = f"""
select r.is, case when not r.is then {_LSN("pg_current_wal_insert_lsn()")} end,
       case when r.is then {_LSN("pg_last_wal_receive_lsn()")} else {_LSN("pg_current_wal_flush_lsn()")} end,
       {_LSN("w.written_lsn")}, {_LSN("w.latest_end_lsn")}, case when r.is then {_LSN("pg_last_wal_replay_lsn()")} end,
       case when r.is then pg_is_wal_replay_paused() end, w.status,
       case when r.is then (extract(epoch from pg_last_xact_replay_timestamp()) * 1e6)::bigint end
from (select pg_is_in_recovery() as is) r left join pg_stat_wal_receiver w on true
"""
_SENDERS = f"""
select s.pid, s.application_name, coalesce(host(s.client_addr), 'local'),
       exists (select from pg_replication_slots o where o.active_pid = s.pid and o.slot_type = 'logical'),
       coalesce(s.state, ''), {_LSN("s.sent_lsn")}, {_LSN("s.write_lsn")}, {_LSN("s.flush_lsn")}, {_LSN("s.replay_lsn")},
       (extract(epoch from s.write_lag) * 1e6)::bigint, (extract(epoch from s.flush_lag) * 1e6)::bigint,
       (extract(epoch from s.replay_lag) * 1e6)::bigint, coalesce(s.sync_state, '')
from pg_stat_replication s
"""
_ABOUT = """
select (select system_identifier::text from pg_control_system()), current_setting('server_version_num')::int,
       pg_has_role(current_user, 'pg_read_all_stats', 'member'), pg_is_in_recovery(), exists (select from pg_stat_replication),
       current_user::text
"""
# Names of what _POSITION and _SENDERS give, as memory has them.
_POSITION_NAMES = (
    "in_recovery", "insert_lsn", "flush_lsn", "write_lsn", "upstream_lsn", "replay_lsn", "is_paused", "receiver_status",
    "last_replayed_commit",
)  # fmt: skip
_ASCENDING = ("insert_lsn", "flush_lsn", "write_lsn", "replay_lsn")  # the others may go back: only what stood still can be compared
_SENDER_LSNS = ("sent_lsn", "write_lsn", "flush_lsn", "replay_lsn")


def disagreement(before: PositionSeen, told: Row, after: PositionSeen) -> str:
    """What SQL says and memory cannot have said meanwhile; empty: nothing."""
    said: dict[str, Any] = dict(zip(_POSITION_NAMES, told, strict=True))
    first: dict[str, Any] = {**before}
    last: dict[str, Any] = {**after}
    if first["in_recovery"] != last["in_recovery"]:
        return ""
    for name, value in said.items():
        low, high = first[name], last[name]
        if value is None:  # without a right, or not yet known to SQL
            continue
        if name in _ASCENDING and None not in (low, high):
            agrees = low <= value <= high
        else:
            agrees = low != high or low == value or (name == "last_replayed_commit" and abs(low - value) <= 1)  # 13 rounds
        if not agrees:
            return f"{name} is {value} over SQL, and {low} to {high} in memory"
    return ""


def disagreement_of_senders(before: list[SenderPosition], told: list[Row], after: list[SenderPosition]) -> str:
    """The same of walsenders that were there before and after."""
    first, last = ({sender["pid"]: sender for sender in senders} for senders in (before, after))
    for sender in told:
        pid, name, values = sender[0], sender[1], sender[5:9]
        if pid not in first or pid not in last:
            continue
        low: dict[str, Any] = {**first[pid]}
        high: dict[str, Any] = {**last[pid]}
        if low["application_name"] == high["application_name"] != name:
            return f"walsender {pid} is {name} over SQL, and {low['application_name']} in memory"
        for lsn, value in zip(_SENDER_LSNS, values, strict=True):
            if None not in (value, low[lsn], high[lsn]) and not low[lsn] <= value <= high[lsn]:
                return f"{lsn} of walsender {pid} is {value} over SQL, and {low[lsn]} to {high[lsn]} in memory"
    return ""


class Node:
    """One server. It is connected when made: raises LeadlineError."""

    def __init__(self, number: int, dsn: str, pace: Pace = CAPTURE) -> None:
        self.number, self._dsn, self._pace = number, dsn, pace
        self._conn: Connection | None = connect(dsn)
        info = self._conn.info
        self.name = f"{info.host}:{info.port}"
        try:
            with self._conn.cursor() as cursor:
                about: Any = cursor.execute(_ABOUT).fetchone()
        except psycopg.Error as e:
            self._conn.close()
            message = "the server does not say how far it has come"
            raise LeadlineError("unsupported", message, one_line(str(e)), where=safe_dsn(dsn)) from None
        self.system, self.version, self.sees_all, self.in_recovery, self.has_senders, self.user = about
        self.positions: list[Row] = []
        self.senders: list[Row] = []
        self.ticks = self.missed = self.late = self._sql_cpu_ns = self._core_cpu_ns = 0
        self.round_trip_ns = 0
        self.lost = ""
        self.pid: int | None = None
        self.compared = 0
        self.why_sql = "only SQL was asked for"
        self.tables: dict[str, Written] = {}
        self._applied: list[tuple[int, int]] = []  # of memory that is read no more
        self._proved: PipelineMemory | None = None  # not started yet
        self._memory: PipelineMemory | None = None
        self._wants_memory = False
        self._directory = ""
        self._doubts = 0

    @property
    def replicates(self) -> bool:
        return bool(self.in_recovery or self.has_senders)

    @property
    def tier(self) -> str:
        """How the last readings were made."""
        return "shm" if self.compared and not self.why_sql else "sql"

    @property
    def rate_hz(self) -> float:
        return self._pace.memory_hz if self.tier == "shm" else SQL_HZ

    def wal_free_bytes(self) -> int | None:
        """Free on the file system of pg_wal; None where that cannot be seen."""
        if self.pid is None:
            return None
        try:
            found = os.statvfs(f"/proc/{self.pid}/cwd/pg_wal")
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    @property
    def cpu_ns(self) -> int:
        memory = self._memory
        return self._sql_cpu_ns + self._core_cpu_ns + (memory.status()["cpu_ns"] if memory else 0)

    @property
    def readings(self) -> tuple[int, int]:
        """Those that were made, and those that could not be or came too late."""
        memory = self._memory  # the thread that watches may end it meanwhile
        status = memory.status() if memory else None
        return self.ticks + (status["ticks"] if status else 0), self.missed + self.late + (status["missed"] if status else 0)

    def use_memory(self, directory: str) -> None:
        """From now on, where that is possible: `why_sql` says why it is not."""
        self._wants_memory, self._directory = True, directory
        self._attach()

    def _attach(self) -> None:
        from leadline import _core

        try:
            self.pid = resolve(self._dsn).pid
            if self.pid is None:
                self.why_sql = "it does not run on this host"
                return
            pace = self._pace
            memory = _core.recorder.PipelineMemory(
                self._directory, self.pid, self.number, pace.memory_hz, flush_interval_s=pace.flush_s, growing_segments=pace.growing
            )
            for _ in range(ATTEMPTS):
                doubt, *_ = self._compare(memory)
                if not doubt:
                    break
            else:
                self.why_sql = f"its memory and SQL disagree: {doubt}"
                return
        except LeadlineError as e:
            self.why_sql = "; ".join(part for part in (e.message, e.detail) if part)
            return
        except psycopg.Error as e:
            self.why_sql = one_line(str(e))
            return
        self._proved, self._doubts, self.why_sql = memory, 0, ""
        self.compared += 1

    def start(self) -> None:
        """Begins to read memory, where that was proved. Raises LeadlineError."""
        proved, self._proved = self._proved, None
        if proved is not None:
            proved.start()
            self._memory = proved

    def _compare(self, memory: PipelineMemory | None) -> tuple[str, Any, list[Row], tuple[int, int, int]]:
        """Asks over SQL, between two readings of memory: what disagrees, position, walsenders, and when it was asked for the one, for the
        other, and answered."""
        assert self._conn is not None
        with self._conn.cursor() as cursor:
            before = memory.read() if memory else None
            asked = time.monotonic_ns()
            position: Any = cursor.execute(_POSITION, prepare=True).fetchone()
            between = time.monotonic_ns()
            senders = cursor.execute(_SENDERS, prepare=True).fetchall()
            answered = time.monotonic_ns()
            after = memory.read() if memory else None
        doubt = ""
        if before and after:
            doubt = disagreement(before[0], position, after[0]) or disagreement_of_senders(before[1], senders, after[1])
        return doubt, position, senders, (asked, between, answered)

    def watch(self, stop: threading.Event) -> None:
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            read = self._read()
            due = max(due + ((1 / COMPARE_HZ if self._memory else 1 / SQL_HZ) if read else RETRY_S), time.monotonic())
            self._sql_cpu_ns = round(1e9 * sum(resource.getrusage(resource.RUSAGE_THREAD)[:2]))
        self._read()  # where the window ends
        self._end_memory("")

    def _read(self) -> bool:
        """One reading. A server that has gone is asked again with the next."""
        try:
            if self._conn is None:
                self._conn = connect(self._dsn, timeout_s=ANSWER_S)
                if self._wants_memory:
                    self._attach()
                    self.start()
            if self._memory is not None and (error := self._memory.status()["error"]) is not None:
                self._end_memory(error["message"])
            doubt, position, senders, (asked, between, answered) = self._compare(self._memory)
        except (psycopg.Error, LeadlineError) as e:
            self.missed += 1
            self.lost = one_line(str(e))
            self._end_memory(self.lost)
            if self._conn is not None:
                self._conn.close()
                self._conn = None
            return False
        ts, took = (asked + between) // 2, between - asked
        self.round_trip_ns = min(self.round_trip_ns or took, took)
        self.ticks += 1
        of_senders = (between + answered) // 2, self.number, answered - between
        self.senders += [(*of_senders, *sender, "sql") for sender in senders]
        if self._memory is not None:
            self.compared += 1
            self._doubts = self._doubts + 1 if doubt else 0
            if self._doubts < DOUBTS:
                return True
            self._end_memory(f"its memory and SQL disagree: {doubt}")
        in_recovery, insert, flush, write, upstream, replay, paused, status, commit = position
        self.positions.append(
            (ts, self.number, took, in_recovery, insert, flush, write, upstream, replay, paused, status, commit, "sql", None, None, None)
        )
        return True

    def _end_memory(self, why: str) -> None:
        """What was read is kept; why: it is read no more although the window goes on."""
        if self._memory is None:
            return
        final = self._memory.stop()
        self._applied += self._memory.take_applied()
        self.ticks += final["ticks"]
        self.late += final["missed"]
        self._core_cpu_ns += final["cpu_ns"]
        add_written(self.tables, final["tables"])
        self._memory, self.why_sql = None, why

    @property
    def is_away(self) -> bool:
        return self._conn is None

    def take(self) -> tuple[list[Row], list[Row]]:
        """What was read over SQL since the last time."""
        positions, self.positions = self.positions, []
        senders, self.senders = self.senders, []
        return positions, senders

    def take_applied(self) -> list[tuple[int, int]]:
        """Records that were seen while they were applied, since the last time: what was replayed before, and where each ends."""
        applied, self._applied = self._applied, []
        memory = self._memory
        return applied + (memory.take_applied() if memory is not None else [])

    def close(self) -> None:
        self._end_memory("")
        if self._conn is not None:
            self._conn.close()

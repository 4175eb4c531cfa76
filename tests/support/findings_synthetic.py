"""Builds capture folders for the tests of the findings: known sessions, known seconds, no server and no Rust.

Times are given in seconds from the start of the window; ts() and wall_us() turn them into what the tables keep.
Every table is written with DuckDB from the table contracts, so a column that does not exist cannot be planted.

    cap = SyntheticCapture(tmp_path)                      # 60 s, 100 Hz, 4 CPUs, all probes ok
    boss = cap.add_session(application_name="batch")
    cap.sample(boss, "idle in transaction", "Client:ClientRead", 5, 15)
    victim = cap.add_session()
    cap.lock_wait(victim, boss, 6, 15)                    # both the lock_wait rows and the victim's samples
    with cap.open() as capture: evaluate(capture)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from leadline.capture.manifest import Clock, Host, Manifest, ProbeState, Target, write_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.findings import Finding, evaluate
from leadline.tables import all_tables, duckdb_type

TS_FROM = 5_000_000_000_000  # CLOCK_MONOTONIC at the start of the window, ns
WALL_FROM_NS = 1_760_000_000_000_000_000  # the wall clock at the same moment, ns since 1970

STATES = {
    None: 0,
    "starting": 1,
    "active": 2,
    "idle": 3,
    "idle in transaction": 4,
    "fastpath function call": 5,
    "idle in transaction (aborted)": 6,
    "disabled": 7,
    "hidden": 8,
}
# The class byte of wait_event_info; the event numbers are given out in the order of first use.
WAIT_CLASSES = {"LWLock": 0x01, "Lock": 0x03, "BufferPin": 0x04, "Activity": 0x05, "Client": 0x06}
WAIT_CLASSES |= {"Extension": 0x07, "IPC": 0x08, "Timeout": 0x09, "IO": 0x0A}
EMPTY = {"int32": 0, "int64": 0, "uint32": 0, "float64": 0.0, "string": "", "bool": False, "binary": ""}
MADE = {"tick", "session_run", "wait_event"}  # tables whose rows are made when all else is known
PROBES = ("sessions", "locks", "buffers", "deltas", "host", "catalog", "self")


class SyntheticCapture:
    """A capture under construction. Sessions are named by their session_id (an int from 1)."""

    def __init__(
        self,
        tmp_path: Path,
        rate_hz: float = 100,
        seconds: float = 60,
        cpu_count: int = 4,
        server_version_num: int = 160014,
        tier: str = "shm",
        max_connections: int = 100,
    ) -> None:
        self.path = Path(tmp_path) / "synthetic.leadline"
        self.rate_hz, self.seconds, self.cpu_count = rate_hz, seconds, cpu_count
        self.server_version_num, self.tier, self.max_connections = server_version_num, tier, max_connections
        self.period_ns = round(1e9 / rate_hz)
        self.probes: dict[str, dict[str, str]] = {name: {"status": "ok", "why": "", "hint": ""} for name in PROBES}
        self.next_xid, self.xids_per_s = 10_000_000, 0.0
        self.pids: dict[int, int] = {}
        self._codes: dict[str, int] = {}
        self._stretches: list[tuple[Any, ...]] = []
        self._rows: dict[str, list[dict[str, Any]]] = {}

    # -- time ---------------------------------------------------------------------------------------------------------

    def ts(self, second: float) -> int:
        """CLOCK_MONOTONIC ns at this second of the window."""
        return TS_FROM + round(second * 1e9)

    def wall_us(self, second: float) -> int:
        """The server's wall clock in Unix microseconds at this second of the window; negative seconds lie before it."""
        return WALL_FROM_NS // 1000 + round(second * 1e6)

    def moments(self, from_s: float, to_s: float, hz: float) -> list[int]:
        """ts of the passes of a probe that runs `hz` times a second, each on a tick of the sampler."""
        step = max(1, round(self.rate_hz / hz))
        first, end = self._tick(from_s), self._tick(to_s)
        return [TS_FROM + k * self.period_ns for k in range(first, end, step)]

    def _tick(self, second: float) -> int:
        return round(second * self.rate_hz)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def add_session(self, pid: int | None = None, backend_type: str = "client backend", start_s: float = -3600, **columns: Any) -> int:
        """A session that began `start_s` (seconds from the start of the window). Returns its session_id."""
        session_id = len(self.pids) + 1
        self.pids[session_id] = pid or 4000 + session_id
        self.describe(session_id, max(start_s, 0), backend_type, start_s, **columns)
        return session_id

    def describe(self, session: int, second: float, backend_type: str = "client backend", start_s: float = -3600, **columns: Any) -> None:
        """How the session is called from this second on."""
        client = backend_type == "client backend"
        given = {"application_name": "app" if client else "", "client_addr": "local" if client else "", "client_port": -1}
        given |= {"datid": 16384 if client else 0, "usesysid": 10 if client else 0} | columns
        self.add(
            "session",
            ts=self.ts(second),
            session_id=session,
            pid=self.pids[session],
            backend_start=self.wall_us(start_s),
            backend_type=backend_type,
            **given,
        )

    def code(self, wait: str | None) -> int:
        """wait_event_info of 'Class:Event'; 0 for None (CPU)."""
        if wait is None:
            return 0
        if wait not in self._codes:
            self._codes[wait] = (WAIT_CLASSES[wait.split(":")[0]] << 24) | (len(self._codes) + 1)
        return self._codes[wait]

    def sample(
        self,
        session: int,
        state: str | None,
        wait: str | None,
        from_s: float,
        to_s: float,
        statement_id: int = 0,
        every: int = 1,
        offset: int = 0,
        xact_start_s: float | None = None,
        query_start_s: float | None = None,
        state_start_s: float | None = None,
        backend_xid: int = 0,
        backend_xmin: int = 0,
        query_id: int | None = None,
        xact_age_s: float | None = None,
        state_age_s: float | None = None,
    ) -> None:
        """Samples from from_s (included) to to_s (not), one per `every` ticks beginning at tick `offset` of the stretch.

        A later call wins over an earlier one at the same tick. Inside a transaction its start, and the starts of the
        statement and of the state, are from_s unless given; xact_age_s and state_age_s give their age at each sample instead.
        """
        in_xact = state in ("active", "idle in transaction", "idle in transaction (aborted)", "fastpath function call")
        xact = xact_start_s if xact_start_s is not None else from_s if in_xact else None
        query = query_start_s if query_start_s is not None else from_s
        changed = state_start_s if state_start_s is not None else from_s
        self._stretches.append(
            (
                len(self._stretches),
                session,
                self._tick(from_s) + offset,
                min(self._tick(to_s), self._tick(self.seconds)),
                every,
                STATES[state],
                self.code(wait),
                statement_id if query_id is None else query_id,
                statement_id,
                0 if xact is None else self.wall_us(xact),
                self.wall_us(query),
                self.wall_us(changed),
                backend_xid,
                backend_xmin,
                xact_age_s,
                state_age_s,
            )
        )

    def cycle(
        self,
        session: int,
        pattern: Sequence[tuple[str | None, str | None, int]],
        from_s: float,
        to_s: float,
        xact_age_s: float | None = None,
        state_age_s: float | None = None,
        **columns: Any,
    ) -> None:
        """A pattern of (state, wait, ticks) repeated over the stretch: a client that works in small steps.

        A pattern with an idle step is one transaction each time round, one without is one transaction for the stretch;
        the ages follow from that unless given (give them for steps shorter than a tick: half the length of the step).
        """
        short = any(state == "idle" for state, _, _ in pattern)
        length = sum(ticks for _, _, ticks in pattern)
        at = 0
        for state, wait, ticks in pattern:
            for k in range(ticks):
                xact = xact_age_s if xact_age_s is not None else (at + k + 0.5) / self.rate_hz if short else None
                age = state_age_s if state_age_s is not None else (k + 0.5) / self.rate_hz
                offset = at + k
                self.sample(session, state, wait, from_s, to_s, every=length, offset=offset, xact_age_s=xact, state_age_s=age, **columns)
            at += ticks

    def lock_wait(
        self, victim: int, blocker: int, from_s: float, to_s: float, hz: float = 20, samples: bool = True, **columns: Any
    ) -> None:
        """The victim waits for a lock of the blocker: rows of lock_wait, and (samples) its active samples in Lock."""
        given: dict[str, Any] = {
            "locktype": "transactionid",
            "mode": "ShareLock",
            "blocker_mode": "ExclusiveLock",
            "blocker_kind": "holder",
        }
        given |= {"page": -1, "tuple": -1, "wait_start": self.wall_us(from_s)} | columns
        statement_id = given.pop("statement_id", 0)
        if samples:
            self.sample(victim, "active", f"Lock:{given['locktype']}", from_s, to_s, statement_id=statement_id)
        period_ns = round(self.rate_hz / hz) * self.period_ns
        for ts in self.moments(from_s, to_s, hz):
            self.add(
                "lock_wait",
                ts=ts,
                period_ns=period_ns,
                session_id=victim,
                pid=self.pids[victim],
                blocker_session_id=blocker,
                blocker_pid=self.pids.get(blocker, 0),
                **given,
            )

    def delta(self, session: int, from_s: float, to_s: float, **per_second: Any) -> None:
        """session_delta rows, one a second; the values are what the session used in each second."""
        second = from_s + 1
        while second <= to_s:
            self.add("session_delta", ts=self.ts(second), dt_ns=10**9, session_id=session, pid=self.pids[session], **per_second)
            second += 1

    # -- everything else ----------------------------------------------------------------------------------------------

    def add(self, table: str, **columns: Any) -> None:
        """One raw row. Columns not given are 0, '' or false, or null where the contract allows it; ts is the start."""
        spec = all_tables()[table]
        assert spec.kind == "table", f"{table} is a view"
        row: dict[str, Any] = {c.name: None if c.nullable else EMPTY[c.type] for c in spec.columns}
        if "ts" in row:
            row["ts"] = TS_FROM
        unknown = set(columns) - set(row)
        assert not unknown, f"{table} has no column {sorted(unknown)}"
        self._rows.setdefault(table, []).append(row | columns)

    def add_every(self, table: str, from_s: float, to_s: float, hz: float, **columns: Any) -> None:
        """The same raw row at each pass of a probe that runs `hz` times a second."""
        for ts in self.moments(from_s, to_s, hz):
            self.add(table, ts=ts, **columns)

    def fact(self, name: str, value: object) -> None:
        self.add("host_fact", name=name, value=str(value), source="synthetic")

    def setting(self, name: str, setting: object, **columns: Any) -> None:
        self.add("setting", name=name, setting=str(setting), **({"source": "configuration file"} | columns))

    def counter(self, metric: str, start: int, per_s: float = 0, from_s: float = 0, to_s: float | None = None) -> None:
        """A metric of host_stat, read once a second: start, then growing by per_s between from_s and to_s."""
        end = self.seconds if to_s is None else to_s
        for second in range(int(self.seconds) + 1):
            grown = max(0.0, min(second, end) - from_s)
            self.add("host_stat", ts=self.ts(second), metric=metric, value=start + round(per_s * grown))

    def stat(self, view: str, metric: str, before: float | None, after: float, obj: str = "") -> None:
        """One number of the server's own statistics, before (None: the row was not there) and after the window."""
        if before is not None:
            self.add("server_stat", ts=self.ts(0), phase="before", view=view, object=obj, metric=metric, value=before)
        self.add("server_stat", ts=self.ts(self.seconds), phase="after", view=view, object=obj, metric=metric, value=after)

    def probe(self, name: str, status: str, why: str = "", hint: str = "") -> None:
        """What a probe could do: ok, partial or off, and why."""
        assert name in PROBES
        self.probes[name] = {"status": status, "why": why, "hint": hint}

    def background(self) -> None:
        """What every quiet server shows: its own processes asleep, one idle client, one short statement now and then."""
        for kind, event in (("checkpointer", "CheckpointerMain"), ("background writer", "BgWriterMain"), ("walwriter", "WalWriterMain")):
            self.sample(self.add_session(backend_type=kind), None, f"Activity:{event}", 0, self.seconds)
        idle = self.add_session(application_name="psql")
        self.sample(idle, "idle", "Client:ClientRead", 0, self.seconds)
        pool = self.add_session(application_name="pool")
        self.sample(pool, "idle", "Client:ClientRead", 0, self.seconds)
        self.sample(pool, "active", None, 0, self.seconds, every=max(2, int(self.rate_hz)), statement_id=901)
        self.add("statement", statement_id=901, id_source="server", query="select $1")

    def walsender(self, name: str, from_s: float = 0, to_s: float | None = None, client_addr: str = "local") -> int:
        """A standby or another receiver of WAL, connected so long."""
        sender = self.add_session(backend_type="walsender", application_name=name, client_addr=client_addr)
        self.sample(sender, "active", "Activity:WalSenderMain", from_s, self.seconds if to_s is None else to_s)
        return sender

    def ordinary_load(self, clients: int = 3, application_name: str = "pgbench") -> list[int]:
        """Healthy transactions: mostly CPU and commits, short gaps in the transaction, no queue for a CPU. Their session_ids."""
        step: list[tuple[str | None, str | None, int]]
        step = [("active", None, 4), ("idle in transaction", "Client:ClientRead", 1), ("active", None, 2)]
        step += [("active", "IO:WALSync", 1), ("active", "IO:DataFileRead", 1), ("idle", "Client:ClientRead", 1)]
        made = []
        for _ in range(clients):
            session = self.add_session(application_name=application_name)
            self.cycle(session, step, 0, self.seconds, statement_id=902)
            self.delta(session, 0, self.seconds, cpu_run_ns=550_000_000, cpu_queue_ns=20_000_000, status_changes=400)
            made.append(session)
        self.add("statement", statement_id=902, id_source="server", query="update accounts set balance = balance + $1 where id = $2")
        return made

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self) -> Path:
        """Writes the folder (once) and returns it."""
        self.path.mkdir(parents=True)
        db = duckdb.connect(":memory:", config={"threads": 1})  # to divide so little among threads costs more than it saves
        written = {name: count for name in all_tables() if (count := self._write_table(db, name))}
        db.close()
        write_manifest(self.path, self.manifest(written))
        return self.path

    @contextmanager
    def open(self, *, hold: bool = True) -> Iterator[Capture]:
        """hold: as the commands have it that evaluate rules, which then need not open it again."""
        capture = open_capture(self.path if self.path.exists() else self.write(), hold=hold)
        try:
            yield capture
        finally:
            capture.close()

    def _write_table(self, db: duckdb.DuckDBPyConnection, name: str) -> int:
        spec = all_tables()[name]
        if spec.kind != "table" or name not in self._rows.keys() | MADE:
            return 0
        columns = ", ".join(f'"{c.name}" {duckdb_type(c.type)}{"" if c.nullable else " not null"}' for c in spec.columns)
        db.execute(f'create table "{name}" ({columns})')
        if name == "tick":
            self._insert_ticks(db)
        elif name == "session_run":
            self._insert_samples(db)
        elif name == "wait_event":
            for wait, code in self._codes.items():
                self.add(name, wait_event_info=code, wait_event_type=wait.split(":")[0], wait_event=wait.split(":", 1)[1])
        rows = self._rows.get(name, [])
        if rows:  # NDJSON is far quicker than executemany
            source = self.path / f"{name}.ndjson"
            source.write_text("\n".join(json.dumps(row) for row in rows))
            types = ", ".join(f"'{c.name}': '{duckdb_type(c.type)}'" for c in spec.columns)
            names = ", ".join(f'"{c.name}"' for c in spec.columns)
            reader = f"read_json('{source}', format = 'newline_delimited', columns = {{{types}}})"
            db.execute(f'insert into "{name}" select {names} from {reader}')
            source.unlink()
        count = db.execute(f'select count(*) from "{name}"').fetchall()[0][0]
        if count:
            (self.path / name).mkdir()
            order = "order by ts" if any(c.name == "ts" for c in spec.columns) else ""
            db.execute(
                f"copy (select * from \"{name}\" {order}) to '{self.path / name / '000001.parquet'}' (format parquet, compression zstd)"
            )
        return int(count)

    def _insert_ticks(self, db: duckdb.DuckDBPyConnection) -> None:
        total = self._tick(self.seconds)
        db.execute(
            f"insert into tick select k, {TS_FROM} + k * {self.period_ns}, {self.period_ns}, 20000, 90000, 0, {len(self.pids)}, 0, 0, "
            f"{self.next_xid} + (k / {self.rate_hz} * {self.xids_per_s})::bigint from range({total}) t(k)"
        )

    def _insert_samples(self, db: duckdb.DuckDBPyConnection) -> None:
        """Expands the stretches in DuckDB; of two samples of one session at one tick the later stretch wins."""
        if not self._stretches:
            return
        # One statement with all of them: executemany takes a millisecond for each.
        rows = ", ".join("(" + ", ".join("null" if v is None else str(v) for v in stretch) + ")" for stretch in self._stretches)
        db.execute(
            "create table stretch (n int, session_id int, first int, stop int, step int, state int, code uinteger, query_id bigint, "
            "statement_id bigint, xact_start bigint, query_start bigint, state_change bigint, xid uinteger, xmin uinteger, "
            f"xact_age_s double, state_age_s double); insert into stretch values {rows}"
        )
        db.execute(
            f"""insert into session_run
            with moment as (select session_id, unnest(range(first, stop, step)) as k, n from stretch),
            last as (select k, max(n) as n from moment group by session_id, k),
            timed as (select *, {WALL_FROM_NS // 1000} + k * {self.period_ns / 1000} as wall_us from last join stretch using (n))
            select k, 1, session_id, state, code, query_id, 0, statement_id,
                   case when xact_start = 0 then 0 else coalesce((wall_us - xact_age_s * 1e6)::bigint, xact_start) end,
                   coalesce((wall_us - state_age_s * 1e6)::bigint, query_start),
                   coalesce((wall_us - state_age_s * 1e6)::bigint, state_change), xid, xmin
            from timed order by k, session_id"""
        )

    def manifest(self, tables: dict[str, int]) -> Manifest:
        """As docs/concepts/contracts.md has it."""
        version = f"{self.server_version_num // 10000}.{self.server_version_num % 10000}"
        made = Manifest(Target("postgres", "postmaster 4000", 4000, self.cpu_count, version, self.server_version_num), status="complete")
        made.target.detail = {"max_connections": self.max_connections}
        made.clock = Clock(TS_FROM, self.ts(self.seconds), WALL_FROM_NS - TS_FROM)
        made.host = Host("synthetic", "6.1.0", "x86_64")
        made.probes = {name: ProbeState(**state) for name, state in self.probes.items()}
        sessions = made.probes.setdefault("sessions", ProbeState())
        sessions.tier, sessions.rate_hz = self.tier, self.rate_hz
        sessions.loss = {"ticks_taken": self._tick(self.seconds), "ticks_missed": 0, "torn": 0}
        sessions.access = {"shared_memory": "map_files", "private_memory": True, "why": ""}
        made.tables = {name: {"rows": rows, "bytes": 0, "segments": 1} for name, rows in tables.items()}
        made.cost.of_window(0.1, self.seconds)
        return made


def rows(cap: SyntheticCapture, *only: str, **thresholds: float) -> list[Finding]:
    """What these rules find; each of them must have been evaluated."""
    with cap.open() as capture:
        result = evaluate(capture, only=only, thresholds=thresholds)
    assert result.not_evaluated == []
    return result.findings


def one(cap: SyntheticCapture, only: str) -> Finding:
    """The only thing that a rule finds."""
    (found,) = rows(cap, only)
    return found

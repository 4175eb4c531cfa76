"""The newest minutes of a running recorder as a Capture: every table and view, over a window that moves.

Two readers take in the segments. `recent` (crates/postgres/recent) has the sums that the screen shows all the time, for next to nothing.
The tables and views are behind the first query that comes: until then the segments wait in their directory. They are then read once, into
DuckDB's memory, and removed. Raw samples become rows of session_sample at once. What is kept lies in a database of its own, compressed;
the tables of the contracts are views of the part of it inside the window, so that the views and queries of a capture run on it unchanged.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline._core.recorder import Recent
from leadline.capture.manifest import Clock, Manifest
from leadline.capture.reader import Capture, memory_database
from leadline.capture.views import manifest_view, views_in_order
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.tables import Table, all_tables, duckdb_type
from leadline.tables.macros import macros

if TYPE_CHECKING:
    from leadline._core.recorder import Look

RAW = "session_run"  # goes into session_sample as soon as its ticks are there
SAMPLE = "session_sample"
MOST_STATEMENTS = 50_000  # beyond that, texts of statements that were not sampled lately are dropped for good
MOST_DESCRIBED = 200  # segments that describe sessions and statements, and wait for a query: not one is lost
END_OF_TIME = 1 << 62
RARE = ("lock_wait", "buffer_wait")  # what most servers have no rows of for hours
LATE_NS = 10_000_000_000  # so much later than the last pass at hand a row may be, at most
IN_WINDOW = "ts >= getvariable('ts_from') and ts < getvariable('ts_to')"
# Of the counters the intervals that reach into the window: the last samples belong to one that ends after it.
REACHES_IN = "ts > getvariable('ts_from') and ts - dt_ns < getvariable('ts_to')"


def timed() -> tuple[str, ...]:
    """Tables whose rows belong to a moment: they come all the time, and are forgotten as they get old. Ticks come first."""
    names = (t.name for t in all_tables().values() if t.role in ("sampled", "event") and t.clock == "ts")
    return tuple(sorted(names, key=lambda name: name != "tick"))


def described() -> tuple[str, ...]:
    return tuple(t.name for t in all_tables().values() if t.role == "described")


def shown_names() -> tuple[str, ...]:
    """Tables of names that a view reads. Those of the server's counters before and after a window have nothing to read here."""
    counters = {t.name for t in all_tables().values() if t.probe == "catalog" and t.role == "sampled"}
    read = {name for view in views_in_order() if not counters & set(view.needs) for name in (*view.needs, *view.uses)}
    return tuple(t.name for t in all_tables().values() if t.role == "named" and t.name in read)


class LiveCapture(Capture):
    """A Capture that is fed while it is read. For one thread. path: where segments come from, for messages only."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path, manifest, memory_database())
        self.recent = Recent()
        self.window = (0, END_OF_TIME)
        self.names: dict[str, dict[int, str]] = {"database": {}, "role": {}}
        self._waiting: list[Path] = []  # directories with segments that no query has asked for
        self._filled = False  # kept has samples
        self._came: dict[str, tuple[str, int]] = {}  # of RARE: the newest segment, and where the evidence ended when it came
        self._looks_at: tuple[int, int] | None = None  # the window of the tables and views
        self._chains, self._has_chains = True, False
        # One thread is enough for a few seconds of samples, and leaves the CPUs to the server.
        self._db.execute("set threads = 1")
        try:
            self._db.execute("attach ':memory:' as kept (compress)")
        except duckdb.BinderException:  # before DuckDB 1.4: the same, in more memory
            self._db.execute("attach ':memory:' as kept")
        self._db.execute(macros().sql)
        for table in sorted(all_tables().values(), key=lambda table: bool(table.uses)):  # each after what it is joined to
            if table.kind == "table":
                self._create_table(table)
        self._set_limits(0, END_OF_TIME)
        for view in views_in_order():
            if view.materialise == "append":
                self._db.execute(f"create view {view.name}_new as {view.sql}")
                self._db.execute(f"create table kept.{view.name} as from {view.name}_new")
                self._db.execute(f"create view {view.rows_name} as select * from kept.{view.name} where {IN_WINDOW}")
            elif view.materialise == "window":  # read many times for one screen, and dear: a table, made when asked for
                self._db.execute(f"create view {view.name}_now as {view.sql}")
                self._db.execute(f"create table {view.rows_name} as from {view.name}_now")
            else:
                self._db.execute(f'create view "{view.rows_name}" as {view.sql}')
            self._compute(view)

    @property
    def db(self) -> duckdb.DuckDBPyConnection:
        """Behind every query: tables and views have all that was taken in, over the window. Raises LeadlineError('storage')."""
        self.settle()
        if self._looks_at != self.window:
            self._set_limits(*self.window)
            self._looks_at, self._has_chains = self.window, False
        if self._chains and not self._has_chains:
            self._has_chains = True
            for view in views_in_order():
                if view.materialise == "window":
                    self._db.execute(f"create or replace table {view.rows_name} as from {view.name}_now")
        return self._db

    @db.setter
    def db(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._db = connection

    def close(self) -> None:
        self._db.close()

    def unavailable(self, table: str) -> str | None:
        """As in Capture, from what the probes say; segments do not stay."""
        spec = all_tables().get(table)
        if spec is None:
            return f"no table named {table}"
        if spec.kind == "view":
            return next(filter(None, (self.unavailable(name) for name in spec.needs)), None)
        probe = self.manifest.probe(spec.probe)
        return None if probe.looked else probe.why or f"probe {spec.probe} was not run"

    def _create_table(self, table: Table) -> None:
        columns = ", ".join(f'"{c.name}" {duckdb_type(c.type)}' for c in table.all_columns)
        if table.name not in (RAW, *timed(), *described()):
            self._db.execute(f'create table "{table.rows_name}" ({columns})')
            self._compute(table)
            return
        self._db.execute(f"create table kept.{table.name} ({columns})")
        interval = any(c.name == "dt_ns" for c in table.columns)
        where = f" where {REACHES_IN if interval else IN_WINDOW}" if table.name in timed() else ""
        self._db.execute(f"create view {table.rows_name} as select * from kept.{table.name}{where}")
        self._compute(table)

    def _compute(self, table: Table) -> None:
        if table.computed:
            self._db.execute(f'create view "{table.name}" as {table.reading}')

    # -- the window ----------------------------------------------------------------------------------------------------

    def extent(self) -> tuple[int, int] | None:
        """Start and end of the evidence at hand, ns on CLOCK_MONOTONIC; None before the first pass."""
        return self.recent.extent()

    def look_at(self, ts_from: int, ts_to: int, *, chains: bool = True) -> None:
        """Moves the window of every table and view to [ts_from, ts_to), ns on CLOCK_MONOTONIC. chains: lock_chain too."""
        self.window, self._chains = (ts_from, ts_to), chains

    def sums(self, step_ns: int, *, listed: bool = False) -> Look:
        """The sums of the window in steps, without a query. listed: with the sessions of its last pass."""
        return self.recent.look(*self.window, step_ns, listed)

    def _set_limits(self, ts_from: int, ts_to: int) -> None:
        self._db.execute(f"set variable ts_from = {ts_from}::bigint")
        self._db.execute(f"set variable ts_to = {ts_to}::bigint")
        window = Clock(ts_from, ts_to, self.manifest.clock.wall_offset_ns)
        self._db.execute(manifest_view(replace(self.manifest, clock=window)))

    # -- feeding -------------------------------------------------------------------------------------------------------

    def ingest(self, directory: Path) -> None:
        """Takes in the whole segments of a directory, and removes them with the next query. Raises LeadlineError('storage')."""
        self.recent.take_in(str(directory), self.manifest.clock.wall_offset_ns or 0)
        if directory not in self._waiting:
            self._waiting.append(directory)

        self._note_rare(directory)

    def _note_rare(self, directory: Path) -> None:
        extent = self.recent.extent()
        for table in RARE:
            newest = max((segment.name for segment in (directory / table).glob("*.parquet")), default="")
            if newest > self._came.get(table, ("", 0))[0]:
                self._came[table] = newest, extent[1] + LATE_NS if extent else END_OF_TIME

    def may_have(self, table: str) -> bool:
        """Whether rows of a table of RARE can lie in the window: where none can, no query is needed to find none."""
        return table in self._came and self._came[table][1] >= self.window[0]

    def settle(self) -> None:
        """Reads the segments that wait for a query, and removes them. Raises LeadlineError('storage')."""
        if self._waiting:
            self._read_segments()

    def _read_segments(self) -> None:
        for directory in self._waiting:
            self._read_directory(directory, (*timed(), RAW, *described()))
            for segment in _not_shown(directory):
                segment.unlink(missing_ok=True)
        self._waiting, self._filled = [], True

    def _read_directory(self, directory: Path, tables: Iterable[str]) -> None:
        """Reads the segments of these tables into `kept` and removes them. The window is then everything."""
        # Ticks are listed first and names last: whatever a listed segment refers to was written before it.
        found = {table: sorted((directory / table).glob("*.parquet")) for table in tables}
        taken = [segment for segments in found.values() for segment in segments]
        self._set_limits(0, END_OF_TIME)
        self._looks_at = None
        try:
            self._db.execute("begin")
            for table, segments in found.items():
                if segments:
                    columns = ", ".join(f'"{c.name}"' for c in all_tables()[table].columns)
                    self._db.execute(f"insert into kept.{table} ({columns}) select {columns} from {_parquet(segments)}")
            self._make_samples()
            self._db.execute("commit")
            for segment in taken:
                segment.unlink(missing_ok=True)
        except (duckdb.Error, OSError) as e:
            with contextlib.suppress(duckdb.Error):
                self._db.execute("rollback")
            raise LeadlineError("storage", "cannot read the recorded segments", detail=str(e).splitlines()[0], where=str(directory)) from e

    def _make_samples(self) -> None:
        """The raw samples of passes whose tick has arrived become rows of session_sample."""
        # A run and its ticks come with the same hand-over: when the last tick is there, all are.
        row = self._db.execute("select max(tick), max(ts) from kept.tick").fetchone()
        tick, ts = row if row and row[0] is not None else (-1, -1)
        self._db.execute(f"insert into kept.session_sample select * from session_sample_new where ts <= {ts}")
        self._db.execute(f"delete from kept.{RAW} where tick + ticks - 1 <= {tick}")

    # -- names ---------------------------------------------------------------------------------------------------------

    def set_names(self, directory: Path, tables: Iterable[str] | None = None) -> None:
        """Replaces relation, database, role and the other tables of names by the segments in this directory."""
        try:
            before = self._names_of_samples()
            for table in shown_names() if tables is None else tables:
                segments = sorted((directory / table).glob("*.parquet"))
                if segments:
                    self._db.execute(f"create or replace table {all_tables()[table].rows_name} as from {_parquet(segments)}")
            if self._names_of_samples() != before:
                self._db.execute(
                    "create or replace table kept.session_sample as select s.* replace (d.datname as database, r.usename as user) "
                    "from kept.session_sample s left join database d using (datid) left join role r using (usesysid)"
                )
            for table, number, name in (("database", "datid", "datname"), ("role", "usesysid", "usename")):
                self.names[table] = dict(self._db.execute(f"select {number}, {name} from {table}").fetchall())
        except duckdb.Error as e:
            raise LeadlineError("storage", "cannot read the names", detail=str(e).splitlines()[0], where=str(directory)) from e

    def _names_of_samples(self) -> list[Any]:
        return self._db.execute("select datid, datname from database union all select usesysid, usename from role order by all").fetchall()

    def unknown_relations(self) -> set[tuple[int, int]]:
        """(database, number) of relations in the window whose name is not known: file numbers of blocks, oids of locks."""
        rows = self.db.execute(
            """
            select distinct dbnode, relfilenode from buffer_wait b
            where not exists (select 1 from relation r where r.datid = b.dbnode and r.relfilenode = b.relfilenode)
            union
            select distinct datid, relid from lock_wait l
            where relid <> 0 and not exists (select 1 from relation r where r.datid = l.datid and r.relid = l.relid)
            """
        ).fetchall()
        return {(row[0], row[1]) for row in rows}

    # -- forgetting ----------------------------------------------------------------------------------------------------

    def trim(self, ts_from: int, spared: tuple[int, int] | None = None) -> None:
        """Forgets samples before ts_from, but those in the spared window, and sessions that are not sampled any more."""
        self.recent.trim(ts_from, spared)
        if spared is None:
            self._throw_away(ts_from)
        else:
            self.settle()
        if not self._filled:
            return
        old = f"ts < {ts_from}" + (f" and not (ts >= {spared[0]} and ts < {spared[1]})" if spared else "")
        for table in (*timed(), SAMPLE):
            self._db.execute(f"delete from kept.{table} where {old}")
        self._db.execute(f"delete from kept.{RAW} where tick < (select min(tick) from kept.tick)")
        sampled = "select session_id from kept.session_sample"
        self._db.execute(f"delete from kept.session where ts < {ts_from} and session_id not in ({sampled})")
        row = self._db.execute("select count(*) from kept.statement").fetchone()
        if row and row[0] > MOST_STATEMENTS:
            self._db.execute(
                "delete from kept.statement where statement_id not in "
                "(select statement_id from kept.session_sample where statement_id is not null)"
            )
        self._db.execute("checkpoint kept")  # compresses, and gives back the memory of deleted rows

    def _throw_away(self, ts_from: int) -> None:
        """Samples that wait for a query and are too old for any go unread; what describes sessions and statements is taken in."""
        oldest = time.time() - (time.monotonic_ns() - ts_from) / 1e9
        for directory in self._waiting:
            if sum(1 for table in described() for _ in (directory / table).glob("*.parquet")) >= MOST_DESCRIBED:
                self._read_directory(directory, described())
            old = [segment for table in (*timed(), RAW) for segment in (directory / table).glob("*.parquet") if _written(segment) < oldest]
            for segment in [*old, *_not_shown(directory)]:
                segment.unlink(missing_ok=True)


def _written(segment: Path) -> float:
    """When, in Unix seconds."""
    return segment.stat().st_mtime


def _parquet(segments: Sequence[Path]) -> str:
    files = ", ".join("'" + str(segment).replace("'", "''") + "'" for segment in segments)
    return f"read_parquet([{files}], union_by_name = true)"


def _not_shown(directory: Path) -> list[Path]:
    """Segments of tables that the live view does not read. A table that is not known here is somebody else's: its segments stay."""
    read = (*timed(), RAW, *described(), *shown_names())
    unread = [t.name for t in all_tables().values() if t.kind == "table" and t.name not in read]
    return [segment for name in unread for segment in (directory / name).glob("*.parquet")]

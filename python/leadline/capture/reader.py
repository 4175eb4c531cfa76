"""A capture on disk: its manifest, and DuckDB over its tables and views.

Layout and manifest: docs/concepts/contracts.md. Reading never writes into the capture.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from leadline.capture.hold import create_view, held_tables, is_small, passes_to_read, plan_for_few_rows, samples_of
from leadline.capture.manifest import MANIFEST, Manifest, read_manifest
from leadline.capture.steps import Step, run_steps
from leadline.capture.views import empty_table, manifest_view, read_segments, views_in_order, with_what_they_read
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.tables import Table, all_tables, duckdb_type
from leadline.tables.macros import macros

MACROS = "the macros"  # what all views wait for
Tell = Callable[["duckdb.DuckDBPyConnection | None", int, int, str], None]  # what runs its queries, steps done, of how many, and the next


@dataclass
class Later:
    """Tables and views that are created when a query names them, by name: most captures have evidence for a part of them only, and to
    create the rest takes longer than many a rule.
    """

    create: dict[str, Callable[[duckdb.DuckDBPyConnection], None]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Capture:
    """One capture opened for reading. A query finds every table and view of the contracts, empty when nothing was recorded.

    held: its tables are in memory, and its views that cost much are computed. every_pass: 1, or N where the samples of every Nth
    pass stand for the rest. later: what does not exist in `db` yet; queries go through `rows`, or `prepare` sees them first.
    """

    path: Path
    manifest: Manifest
    db: duckdb.DuckDBPyConnection
    held: bool = False
    every_pass: int = 1
    later: Later = field(default_factory=Later)

    @property
    def interrupted(self) -> bool:
        """The recorder ended without closing the capture (killed, power lost)."""
        return self.manifest.status == "recording"

    @property
    def sampled(self) -> bool:
        """Sessions were sampled: it was taken of a server, not made from files."""
        return "sessions" in self.manifest.probes and self.manifest.probe("sessions").looked

    def unavailable(self, table: str) -> str | None:
        """Why the capture has no evidence of this kind; None when it was looked for (also when nothing was seen)."""
        return why_unavailable(self.path, self.manifest, table)

    def unseen(self, names: Iterable[str]) -> str:
        """What a probe could not see of what these tables and views show; empty when there is no such gap."""
        gaps = {table: why for probe in self.manifest.probes.values() for table, why in probe.detail.get("unseen", {}).items()}
        read = with_what_they_read(names) if gaps else ()
        return next((gaps[name] for name in gaps if name in read), "")

    def rows(self, sql: str, parameters: Sequence[int | float | str | None] = ()) -> list[dict[str, Any]]:
        """The rows of a query as dictionaries. Raises LeadlineError('query') when it does not run."""
        self.prepare(sql)
        try:
            if parameters:  # not as objects: for the first of these DuckDB imports NumPy and pandas, where they are installed
                self.db.execute(f"prepare of_capture as {sql}")
                sql = f"execute of_capture({', '.join(map(_literal, parameters))})"
            cursor = self.db.execute(sql)
        except duckdb.Error as e:
            raise LeadlineError(
                "query", "the query failed", detail=str(e).strip(), hint="run leadline tables to list tables and columns"
            ) from e
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    def prepare(self, sql: str) -> None:
        """Creates what the query names and what does not exist yet."""
        if named := [word for word in set(re.findall(r"\w+", sql.lower())) if word in self.later.create]:
            with self.later.lock:
                wanted = with_what_they_read(named) & self.later.create.keys()
                for name in [name for name in self.later.create if name in wanted]:  # each after what it reads
                    with _read_while_it_is_there(self.path):
                        self.later.create[name](self.db)
                    del self.later.create[name]

    def scalar(self, sql: str) -> Any:
        """The first column of the first row; None when there is no row."""
        rows = self.rows(sql)
        return next(iter(rows[0].values())) if rows else None

    def close(self) -> None:
        self.db.close()


def open_capture(
    path: str | Path,
    *,
    hold: bool = False,
    whole: bool = False,
    most_samples: int | None = None,
    meanwhile: Callable[[], None] | None = None,
    tell: Tell | None = None,
) -> Capture:
    """Opens a capture for reading; an interrupted one too, with what it has.

    hold: for commands that ask many questions. What they read is read once and kept in memory, less the samples of some passes
    when there are very many (capture/hold.py); most_samples: of more than so many already.

    whole: for queries that do not go through the capture: every table and view is there at once.

    meanwhile: what the caller will need, such as modules; called when a thread has nothing to open, or not at all.

    tell: called before each step of a capture that is not small; what it raises ends the opening.
    """
    path = Path(path)
    manifest = read_manifest(path)
    with _read_while_it_is_there(path):
        return _opened(path, manifest, hold=hold, whole=whole, most_samples=most_samples, meanwhile=meanwhile, tell=tell)


@contextlib.contextmanager
def _read_while_it_is_there(path: Path) -> Iterator[None]:
    """A recorder removes its oldest pieces, and readers do not hold it up. Raises LeadlineError."""
    try:
        yield
    except (duckdb.IOException, FileNotFoundError) as e:
        why = "" if isinstance(e, FileNotFoundError) else str(e).strip().partition("\n")[0]
        if not (path / MANIFEST).exists():
            raise LeadlineError("not_found", "the capture was removed while it was read", detail=why, where=str(path)) from e
        raise LeadlineError("invalid", "the capture cannot be read", detail=why, where=str(path)) from e


def _opened(
    path: Path, manifest: Manifest, *, hold: bool, whole: bool, most_samples: int | None, meanwhile: Callable[[], None] | None,
    tell: Tell | None,
) -> Capture:  # fmt: skip
    reading = threading.Thread(target=all_tables)  # Python's work, beside DuckDB's start
    reading.start()
    capture = Capture(path, manifest, memory_database(), held=hold)
    reading.join()
    capture.db.execute(manifest_view(manifest))
    samples = samples_of(capture.db, path) if hold else 0
    capture.every_pass = passes_to_read(samples, most_samples)
    steps = _steps(path, hold=hold, every=capture.every_pass)
    small = hold and capture.every_pass == 1 and is_small(path, samples)
    all_at_once = whole or (hold and not small)
    at_once = set(steps) if all_at_once else with_what_they_read(name for name in steps if hold and _has_evidence(path, name))
    capture.later.create.update({name: step.run for name, step in steps.items() if name not in at_once})
    now = {MACROS: Step(set(), _create_macros)} | {name: step for name, step in steps.items() if name in at_once}
    if small:
        plan_for_few_rows(capture.db)
        if meanwhile is not None:
            now["meanwhile"] = Step(set(), lambda _: meanwhile())  # no step waits for it: it is taken when none is ready
        run_steps(capture.db, now)
        return capture
    # However few rows of one side are expected: the other joins of a range compare each row with each.
    capture.db.execute("set global merge_join_threshold = 0")
    for number, (name, step) in enumerate(now.items()):  # one after another: each uses all CPUs, and memory as it needs it
        if tell is not None:
            tell(capture.db, number, len(now), name)
        step.run(capture.db)
    return capture


def why_unavailable(path: Path, manifest: Manifest, table: str) -> str | None:
    """As Capture.unavailable, of one that was not opened."""
    spec = all_tables().get(table)
    if spec is None:
        return f"no table named {table}"
    if spec.kind == "view":
        return next(filter(None, (why_unavailable(path, manifest, name) for name in spec.needs)), None)
    if any((path / table).glob("*.parquet")):
        return None
    probe = manifest.probe(spec.probe)
    without: str | None = probe.detail.get("without", {}).get(table)
    return without if probe.looked else probe.why or f"probe {spec.probe} was not run"


def _steps(path: Path, *, hold: bool, every: int) -> dict[str, Step]:
    """What creates each table and view of the contracts, in an order in which each finds what it reads."""
    in_memory = held_tables(path) if hold else set()
    steps = {}
    for table in sorted(all_tables().values(), key=lambda table: bool(table.uses)):  # each after what it is joined to
        if table.kind == "table":
            kind = "table" if table.name in in_memory else "view"
            needs = {*table.uses, MACROS} if table.computed else set()
            steps[table.name] = Step(needs, partial(_create_table, path=path, table=table, kind=kind))
    for view in views_in_order():
        steps[view.name] = Step({*view.needs, *view.uses, MACROS}, partial(create_view, view=view, held=hold, every=every))
    return steps


def _has_evidence(path: Path, name: str) -> bool:
    """Whether a table has segments, or all tables that a view needs."""
    table = all_tables()[name]
    if table.kind == "view":
        return all(_has_evidence(path, needed) for needed in table.needs)
    return next((path / name).glob("*.parquet"), None) is not None


def _literal(value: int | float | str | None) -> str:
    if value is None:
        return "null"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


# An as-of join sorts, however few rows are expected: the other way compares each row with each, and what DuckDB expects is often wrong.
_settings = ["enable_progress_bar = false", "global asof_loop_join_threshold = 0"]


def limit_databases(memory: str, threads: int, *, spill: Path | None = None) -> None:
    """From now on, in this process: what does not fit into memory is written below `spill`; without one, it is an error."""
    place = "" if spill is None else str(spill).replace("'", "''")
    _settings.extend((f"memory_limit = '{memory}'", f"threads = {threads}", f"temp_directory = '{place}'"))


def memory_database() -> duckdb.DuckDBPyConnection:
    """An empty database for a capture, quiet."""
    db = duckdb.connect(":memory:")
    for setting in _settings:
        db.execute(f"set {setting}")
    return db


def _create_macros(db: duckdb.DuckDBPyConnection) -> None:
    db.execute(macros().sql)


def _create_table(db: duckdb.DuckDBPyConnection, path: Path, table: Table, kind: str) -> None:
    """A stored table, with what is computed from its rows."""
    _create_rows(db, path, table, kind)
    if table.joins and kind == "table":  # many rules read it: joined once
        db.execute(f'create table "{table.name}" as {table.reading}; drop table if exists "{table.rows_name}"')
    elif table.computed:
        db.execute(f'create view "{table.name}" as {table.reading}')


def _create_rows(db: duckdb.DuckDBPyConnection, path: Path, table: Table, kind: str) -> None:
    """The rows of a stored table: its segments, with the columns of the contract (absent ones null: an older format)."""
    empty = empty_table(table)
    segments = [s for s in sorted((path / table.name).glob("*.parquet")) if s.stat().st_size > 0]
    if not segments:
        if not (path / MANIFEST).exists():  # else what was removed would look like a capture without rows
            raise FileNotFoundError(path)
        db.execute(f'create {kind} "{table.rows_name}" as {empty}')
        return
    query = f"{empty} union all by name select * from {read_segments(segments)}"
    if kind == "table":
        columns, coarse = (
            "".join(f', "{c.name}"::{duckdb_type(c.type)} as "{c.name}"' for c in some) for some in (table.columns, table.coarse)
        )
        absent = "".join(f', null::{duckdb_type(c.type)} as "{c.name}"' for c in table.coarse)
        # First as segments of this format are. A damaged page, in the end: the query that needs it says why.
        alike = [f"select {(columns + more)[2:]} from {read_segments(segments, alike=True)}" for more in dict.fromkeys((coarse, absent))]
        for source in (*alike, query):
            with contextlib.suppress(duckdb.Error):
                db.execute(f'create table "{table.rows_name}" as {source}')
                return
    try:
        db.execute(f'create view "{table.rows_name}" as {query}')
    except duckdb.Error as e:
        raise LeadlineError(
            "invalid",
            f"table {table.name} of the capture is damaged",
            detail=str(e).splitlines()[0],
            hint="remove the segment named in the detail to open the rest",
            where=str(path / table.name),
        ) from e

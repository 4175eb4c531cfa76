"""A window of a recorder's directory as an ordinary capture: the rows of one piece, or of several in a row.

What is numbered in each capture anew (passes, sessions, processes) is numbered again when pieces are joined, by the columns named here.
A session keeps one number over all pieces, as (pid, backend_start) names it across captures. Pieces that do not fit together are not
joined at all: better no capture than one with wrong numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from leadline.capture.clocks import pieces as clock_pieces
from leadline.capture.clocks import ts_of
from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import Clock, Manifest, ProbeState, read_manifest
from leadline.capture.reader import memory_database, open_capture
from leadline.capture.views import empty_table, read_segments
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.recorder.moments import as_utc
from leadline.recorder.pieces import OPTION, Piece, Pieces, read_piece
from leadline.recorder.rows import COUNTERS, quoted, write_rows
from leadline.recorder.still import room_near, still
from leadline.tables import Table, all_tables

# Columns that number something per capture, by what tells it across captures. Others that do are in tables that are not joined.
SESSIONS = {"session_id", "holder_session_id", "blocker_session_id", "end_session_id"}
PROCESSES = {"process_id", "parent_process_id"}
IDENTITY = {
    "session": ("session_id", ("pid", "backend_start"), "backend_start"),
    "process": ("process_id", ("pid", "start_boottime_ns"), "start_boottime_ns"),
}
# What can be joined: every table that a recorder of a server or a host writes, and that numbers nothing else.
JOINED = {
    "block_device", "cgroup_delta", "clock", "database", "device_delta", "host_fact", "host_stat", "mount", "net_delta", "process",
    "process_delta", "process_exit", "role", "self_cost", "server_gap", "session", "session_delta", "session_run", "statement",
    "tcp_sample", "tick", "wait_event", "buffer_scan", "buffer_wait", "buffer_waiter", "hba_rule", "lock_wait", "lwlock_wait", "relation",
    "setting", "server_stat",
}  # fmt: skip
CODES = {"wait_event": "wait_event_info", "statement": "statement_id"}  # the same in all captures of one server; a row of each is enough
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WHY_NOT_CUT = "its rows have no time of their own, or are numbered in ways that a part of the capture does not keep"
WHY_NO_COUNTERS = "the server's counters are read at the begin and the end of each piece, and the window has other ends"


@dataclass(frozen=True)
class Part:
    """What the window has of one piece: rows from ts_from (None: from its first) up to ts_to, not included (None: to its last).

    joined_only: without the tables that could not be joined to those of another piece.
    """

    piece: Piece
    manifest: Manifest
    ts_from: int | None
    ts_to: int | None
    joined_only: bool = False

    @property
    def first(self) -> int:
        assert self.piece.ts_from is not None
        return self.piece.ts_from if self.ts_from is None else self.ts_from

    @property
    def last(self) -> int:
        assert self.piece.ts_to is not None
        return self.piece.ts_to if self.ts_to is None else self.ts_to

    def within(self, column: str) -> str:
        lower = "true" if self.ts_from is None else f'"{column}" >= {self.ts_from}'
        return f"{lower} and {self.before(column)}"

    def before(self, column: str) -> str:
        return "true" if self.ts_to is None else f'"{column}" < {self.ts_to}'


def take_window(
    directory: Path, start: datetime, end: datetime, out: Path | None, *, overwrite: bool = False, only: Sequence[str] | None = None
) -> Path:
    """A capture of the rows between two moments; gives its directory. only: names of the pieces that may have some: to read all takes
    a second for each thousand. Raises LeadlineError.
    """
    pieces = Pieces(directory).read() if only is None else [read_piece(directory / name) for name in only]
    with room_near(Path() if out is None else out.parent) as copies, memory_database() as db:
        # One that is being written looks like one that was interrupted.
        pieces = [read_piece(still(piece.path, copies)) if piece.status == "interrupted" else piece for piece in pieces]
        parts = _parts(directory, pieces, wall_ns(start), wall_ns(end))
        _read(db, parts)
        _check(db, parts)
        with new_capture(out, overwrite=overwrite) as capture:
            options = {"from_recorder": str(directory), "between": [start.isoformat(), end.isoformat()]}
            _write(db, parts, capture, _manifest(parts, options, "from a recorder"))
    return capture


def cut(path: Path, ts_from: int, ts_to: int, out: Path) -> Path:
    """A capture of what another one has between two moments of its clock, in the tables that have a time in each row.

    Raises LeadlineError.
    """
    piece = read_piece(path)
    if piece.ts_from is None or piece.ts_to is None or not max(ts_from, piece.ts_from) < min(ts_to, piece.ts_to):
        raise LeadlineError("not_found", "nothing was recorded in this window", where=str(path))
    first, last = None if ts_from <= piece.ts_from else ts_from, None if ts_to >= piece.ts_to else ts_to
    parts = [Part(piece, read_manifest(path), first, last, joined_only=True)]
    with memory_database() as db:
        _read(db, parts)
        with new_capture(out, overwrite=False) as capture:
            manifest = _manifest(parts, {"cut_from": str(path), "window": [ts_from, ts_to]}, "of a capture")
            for table in (t for t in all_tables().values() if t.kind == "table" and t.name not in JOINED):
                if any((path / table.name).glob("*.parquet")):
                    state = manifest.probes.setdefault(table.probe, ProbeState())
                    state.detail = state.detail | {"without": state.detail.get("without", {}) | {table.name: WHY_NOT_CUT}}
            _write(db, parts, capture, manifest)
    return capture


def join(pieces: Sequence[Piece], out: Path) -> None:
    """Writes all rows of pieces that follow each other as one capture into `out`, which exists. Raises LeadlineError."""
    parts = [Part(piece, read_manifest(piece.path), None, None) for piece in pieces]
    with memory_database() as db:
        _read(db, parts)
        _check(db, parts)
        _write(db, parts, out, _of_all(parts))


def wall_ns(moment: datetime) -> int:
    """Exactly: a float of this size is off by 200 ns."""
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def _parts(directory: Path, known: Sequence[Piece], wall_from: int, wall_to: int) -> list[Part]:
    pieces = [piece for piece in known if piece.ts_from is not None and piece.ts_to is not None]
    parts = [_part(piece, wall_from, wall_to) for piece in pieces if piece.wall_from < wall_to and piece.wall_to > wall_from]
    if parts:
        return parts
    has = f"there is {as_utc(pieces[0].wall_from)} to {as_utc(max(p.wall_to for p in pieces))}, with gaps" if pieces else "it has no pieces"
    hint = f"leadline record --status {directory}"
    raise LeadlineError("not_found", "nothing was recorded in this window", has, hint, str(directory))


def _part(piece: Piece, wall_from: int, wall_to: int) -> Part:
    """By the clock of the piece, which says when the wall clock was set meanwhile."""
    assert piece.ts_from is not None
    assert piece.ts_to is not None
    with closing(open_capture(piece.path)) as capture:
        clocks, manifest = clock_pieces(capture, "realtime"), capture.manifest
    offset = manifest.clock.wall_offset_ns or 0
    found = [ts_of(clocks, at) for at in (wall_from, wall_to)]
    ts_from, ts_to = (at - offset if ts is None else ts for at, ts in zip((wall_from, wall_to), found))
    to_the_end = ts_to >= piece.ts_to and manifest.status != "recording"  # one that is being written has more rows each moment
    return Part(piece, manifest, None if ts_from <= piece.ts_from else ts_from, None if to_the_end else min(ts_to, piece.ts_to))


def _tables(part: Part) -> list[Table]:
    """Stored tables of which the piece has segments."""
    found = (t for t in all_tables().values() if t.kind == "table" and (t.name in JOINED or not part.joined_only))
    return [t for t in found if next((part.piece.path / t.name).glob("*.parquet"), None) is not None]


def _read(db: duckdb.DuckDBPyConnection, parts: Sequence[Part]) -> None:
    """A view pieceN_TABLE for every table of each part, with the columns of the contract."""
    for number, part in enumerate(parts):
        for table in _tables(part):
            segments = [s for s in sorted((part.piece.path / table.name).glob("*.parquet")) if s.stat().st_size > 0]
            try:
                rows = f"{empty_table(table)} union all by name select * from {read_segments(segments)}"
                db.execute(f"create view piece{number}_{table.name} as {rows}")
            except duckdb.Error as e:
                raise LeadlineError(
                    "invalid", f"table {table.name} of a piece is damaged", detail=str(e).splitlines()[0], where=str(part.piece.path)
                ) from e


def _check(db: duckdb.DuckDBPyConnection, parts: Sequence[Part]) -> None:
    """Raises LeadlineError when the pieces cannot be joined."""
    if len(parts) == 1:
        return
    first = parts[0]
    for number, part in enumerate(parts):
        other = [table.name for table in _tables(part) if table.name not in JOINED]
        if other:
            raise _apart(parts, f"table {other[0]} of {part.piece.name} cannot be joined yet")
        if not part.piece.boot or part.piece.boot != first.piece.boot:
            raise _apart(parts, f"the host was started anew between {first.piece.name} and {part.piece.name}, and its clock began again")
        for what in ("kind", "version_num"):
            if getattr(part.manifest.target, what) != getattr(first.manifest.target, what):
                raise _apart(parts, f"the server is another one, or of another version, in {part.piece.name}")
        if part.manifest.target.kind not in ("postgres", "host"):
            raise _apart(parts, f"captures of {part.manifest.target.kind} number their users and databases each anew")
        if part.manifest.clock.span_s != first.manifest.clock.span_s:
            raise _apart(parts, f"{part.piece.name} is of another level: in one of them, many passes are one row")
        for what in ("tier", "rate_hz"):
            if getattr(part.manifest.probe("sessions"), what) != getattr(first.manifest.probe("sessions"), what):
                raise _apart(parts, f"{part.piece.name} was sampled in another way ({what})")
        if number and parts[number - 1].last > part.first:
            raise _apart(parts, f"{part.piece.name} begins before the piece before it ends")
    codes = " union ".join(f"select * from piece{n}_wait_event" for n, part in enumerate(parts) if _has(part, "wait_event"))
    if codes:
        twice = db.execute(f"select wait_event_info from ({codes}) group by all having count(*) > 1 limit 1").fetchone()
        if twice:
            raise _apart(parts, f"wait event {twice[0]} has other names after the server was restarted")


def _apart(parts: Sequence[Part], why: str) -> LeadlineError:
    names = "; ".join(f"{p.piece.name} has {as_utc(p.piece.wall_from)} to {as_utc(p.piece.wall_to)}" for p in parts)
    hint = "take a window within each of them, or read them as they are: leadline show " + str(parts[0].piece.path)
    return LeadlineError("unsupported", f"the window lies in {len(parts)} pieces that cannot be joined", f"{why}. {names}", hint)


def _has(part: Part, table: str) -> bool:
    return any(t.name == table for t in _tables(part))


def _write(db: duckdb.DuckDBPyConnection, parts: Sequence[Part], out: Path, manifest: Manifest) -> None:
    making = Making(out, parts[0].manifest.target, {})
    making.manifest = manifest
    making.reserve()
    try:
        making.write()
        names = sorted({table.name for part in parts for table in _tables(part)}, key=lambda name: name != "tick")
        _number(db, parts)
        whole = all(part.ts_from is None and part.ts_to is None for part in parts)
        for name in names:
            if name == COUNTERS and not whole:
                state = manifest.probes.setdefault(all_tables()[name].probe, ProbeState())
                state.detail = state.detail | {"without": state.detail.get("without", {}) | {name: WHY_NO_COUNTERS}}
                manifest.note(f"without {name}: {WHY_NO_COUNTERS}")
                continue
            _write_table(db, parts, all_tables()[name], out, manifest)
        if len(parts) > 1 and "sessions" in manifest.probes:
            _write_gaps(db, parts, out, manifest)
        if "tick" in manifest.tables:
            passes = "sum(passes)::bigint" if manifest.clock.span_s else "count(*)"
            row = db.execute(f"select {passes}, sum(missed)::bigint from read_parquet('{quoted(out / 'tick')}/*.parquet')").fetchone()
            assert row is not None
            manifest.probes["sessions"].loss = {"ticks_taken": row[0], "ticks_missed": row[1]}
        making.end(None)
    except BaseException as e:
        error = e if isinstance(e, LeadlineError) else LeadlineError("gone", f"interrupted by {type(e).__name__}")
        if isinstance(e, duckdb.Error):
            error = LeadlineError("storage", "the window could not be written", detail=str(e).splitlines()[0], where=str(out))
        making.end(error)
        raise error from e


def _manifest(parts: Sequence[Part], made: dict[str, Any], where_from: str) -> Manifest:
    """That of this window. made: options that say how."""
    manifest = _of_all(parts)
    manifest.options |= made | {"pieces": [part.piece.name for part in parts]}
    recorded = sum(part.last - part.first for part in parts) / 1e9
    manifest.note(f"a window of {recorded:.1f} s {where_from}: {', '.join(part.piece.name for part in parts)}")
    return manifest


def _of_all(parts: Sequence[Part]) -> Manifest:
    """That of the first piece, from its begin to the end of the last. What was missed in a part of a piece, and its cost, is not known."""
    first = read_manifest(parts[0].piece.path)
    for state in first.probes.values():
        state.loss, state.cost = {}, {}
    for part in parts[1:]:
        first.note(*part.manifest.notes)
    return Manifest(
        first.target, clock=Clock(parts[0].first, parts[-1].last, first.clock.wall_offset_ns, first.clock.span_s), host=first.host,
        probes=first.probes, notes=first.notes, options={k: value for k, value in first.options.items() if k not in (OPTION, "for_s")},
        product_version=first.product_version,
    )  # fmt: skip


def _number(db: duckdb.DuckDBPyConnection, parts: Sequence[Part]) -> None:
    """Tables new_session and new_process: the numbers of each part and what they become. One part keeps its numbers.

    Who is hidden (a start of 0), or is not told apart by pid and start within a piece, gets a number of its own in each part.
    """
    for table, (number, identity, known) in IDENTITY.items():
        having = [n for n, part in enumerate(parts) if _has(part, table)]
        if len(parts) == 1 or not having:
            continue
        keys = ", ".join(identity)
        described = " union all ".join(
            f"select {n} as part, {number} as old, {keys} from piece{n}_{table} where {number} > 0" for n in having
        )
        db.execute(f"""
            create table new_{table} as
            with one as (select part, old, {", ".join(f"any_value({k}) as {k}" for k in identity)} from ({described}) group by part, old),
            told as (select *, {known} <> 0 and count(*) over (partition by part, {keys}) = 1 as told from one),
            apart as (select *, case when told then -1 else part end as by_part, case when told then -1 else old end as by_number from told)
            select part, old, dense_rank() over (order by by_part, by_number, {keys})::int as new from apart
        """)


def _columns(table: Table, number: int, joined: bool, coarse: bool) -> tuple[str, str]:
    """The columns of a table in the numbers of the window, and what must be joined for them to its rows `r`."""
    columns, joins = [], ""
    for column in table.all_columns if coarse else table.columns:
        family = "session" if column.name in SESSIONS else "process" if column.name in PROCESSES else ""
        if family and joined:
            alias = f"n_{column.name}"
            joins += f' left join new_{family} {alias} on {alias}.part = {number} and {alias}.old = r."{column.name}"'
            columns.append(f'coalesce({alias}.new, least(r."{column.name}", 0)) as "{column.name}"')
        else:
            columns.append(f'r."{column.name}"')
    return ", ".join(columns), joins


def _select(table: Table, part: Part, number: int, before: Sequence[Part], joined: bool) -> str:
    """The rows that the window has of one part."""
    rows = f"piece{number}_{table.name}"
    timed = "ts" if any(column.name == "ts" for column in table.columns) else ""
    coarse = part.manifest.clock.span_s is not None
    columns, joins = _columns(table, number, joined, coarse)
    if table.name == "server_gap":
        clipped = f"""greatest(ts_from, {part.first}) as ts_from, case when ts_to < {part.last} then ts_to end as ts_to"""
        rows = f"(select * replace ({clipped}) from {rows} where ts_from < {part.last} and coalesce(ts_to, {part.last}) > {part.first})"
    elif table.name == "session_run":  # passes of which the window has a part
        rows = f"""(select * replace (greatest(tick, w.low) as tick, least(tick + ticks, w.high + 1) - greatest(tick, w.low) as ticks)
                    from {rows} cross join (select min(tick) as low, max(tick) as high from piece{number}_tick where {part.within("ts")}) w
                    where tick <= w.high and tick + ticks > w.low)"""
        columns = columns.replace('r."tick"', f"r.tick + {_first_tick(number, before)} as tick")
    elif table.name == "tick":
        rows = f"(select * from {rows} where {part.within('ts')})"
        columns = columns.replace('r."tick"', f"r.tick + {_first_tick(number, before)} as tick")
        # What was due between two pieces is missed, as after a gap within a capture; what was missed before the window is not of it.
        due = f"((r.ts - {before[-1].last if before else part.first}) // r.period_ns)::int"
        missed = f"greatest(r.missed, {due})" if before else f"least(r.missed, {due})"
        if before and coarse:  # of the time between the pieces it is known how long it was
            gap_ns = max(0, part.first - before[-1].last)
            is_first = f"r.ts = (select min(ts) from {rows})"
            columns = columns.replace(
                'r."missed"', f"r.missed + case when {is_first} then ({gap_ns} * r.passes // r.period_ns)::int else 0 end as missed"
            ).replace('r."unknown_ns"', f"r.unknown_ns + case when {is_first} then {gap_ns} else 0 end as unknown_ns")
        elif not coarse and (before or part.ts_from is not None):
            columns = columns.replace(
                'r."missed"', f"case when r.ts = (select min(ts) from {rows}) then {missed} else r.missed end as missed"
            )
    elif table.role in ("sampled", "event") and timed:
        rows = f"(select * from {rows} where {part.within(timed)})"
    elif table.role == "described" and timed:  # what was said before holds in the window too
        rows = f"(select * from {rows} where {part.before(timed)})"
    return f"select {number} as part, {columns} from {rows} r{joins}"


def _first_tick(number: int, before: Sequence[Part]) -> str:
    """What is added to the numbers of passes: those of the pieces before come first."""
    parts = [f"(select coalesce(max(tick), -1) + 1 from piece{n}_tick)" for n in range(number) if _has(before[n], "tick")]
    return "(" + " + ".join(["0", *parts]) + ")::bigint"


def _write_table(db: duckdb.DuckDBPyConnection, parts: Sequence[Part], table: Table, out: Path, manifest: Manifest) -> None:
    having = [n for n, part in enumerate(parts) if _has(part, table.name)]
    if table.role == "named" and not table.key:
        having = having[-1:]  # read as a whole: as it was last
    sql = " union all ".join(_select(table, parts[n], n, parts[:n], len(parts) > 1) for n in having)
    key = CODES.get(table.name) or ", ".join(table.key)
    if len(having) > 1 and key:  # as it was last; of a code, what is said of it first holds
        newest = "part" if table.name in CODES else "part desc"
        sql = f"select * from ({sql}) qualify row_number() over (partition by {key} order by {newest}) = 1"
    if table.name == "session" and any("session_run" in (t.name for t in _tables(p)) for p in parts):
        _find_seen(db, parts)
        sql = f"select * from ({sql}) where session_id in (from seen)"
    if len(parts) > 1 and table.name == COUNTERS:  # before the first piece and after the last
        sql = f"select * from ({sql}) where (phase = 'before' and part = {having[0]}) or (phase = 'after' and part = {having[-1]})"
    order = (
        f' order by "{table.clock}"'
        if table.clock
        else ' order by "ts"'
        if any(c.name == "ts" for c in table.columns)
        else " order by part"
    )
    write_rows(db, f"select * exclude (part) from ({sql}){order}", table, out, manifest)


def _find_seen(db: duckdb.DuckDBPyConnection, parts: Sequence[Part]) -> None:
    """Table seen: sessions that a row of the window names. One table after the other: to read all pieces at once takes much memory."""
    db.execute("create table seen (session_id int)")
    for number, part in enumerate(parts):
        for table in _tables(part):
            if table.name != "session":
                for column in (c.name for c in table.columns if c.name in SESSIONS):
                    rows = _select(table, part, number, parts[:number], len(parts) > 1)
                    db.execute(f'insert into seen select distinct "{column}" from ({rows})')


def _write_gaps(db: duckdb.DuckDBPyConnection, parts: Sequence[Part], out: Path, manifest: Manifest) -> None:
    """A row of server_gap for the time between each two pieces."""
    table = all_tables()["server_gap"]
    rows = ", ".join(
        f"({before.last}, {after.first}, 'recorder', null, null, 'between {before.piece.name} and {after.piece.name}')"
        for before, after in pairwise(parts)
    )
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    db.execute(f"create table more_gaps as {empty_table(table)}")
    db.execute(f"insert into more_gaps ({columns}) values {rows}")
    old = out / table.name / "000001.parquet"
    write_rows(db, "select * from more_gaps order by ts_from", table, out, manifest, name="000002" if old.exists() else "000001")

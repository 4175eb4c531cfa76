"""Rewrites the rows of a table that are in an old form, and only those: online, in small transactions, until a new look finds none.

Nothing is remembered between runs: what is still old is in the files. A row that somebody changed meanwhile is current already, and
its old place holds nothing that an UPDATE sees; a row that somebody has locked is left for the next round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import psycopg

from leadline._core import REASONS, OldPages
from leadline.alter import pending
from leadline.alter.order import Page, blocks_between, passes
from leadline.alter.pacing import Pacer
from leadline.alter.session import checkpoint, open_session, told
from leadline.alter.table import Table, tables
from leadline.errors import LeadlineError
from leadline.progress import TerminalLine
from leadline.server.interrupt import deferred_interrupts

ROUNDS = 5
WINDOW_ROWS = 20_000  # rows of neighbouring pages that are worked on together
LONG_S = 0.05  # a transaction that took longer makes the next ones smaller
COMPRESSION = next(bit for name, bit, _ in REASONS if name == "compression")
_LEFT = (psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


@dataclass(frozen=True)
class Options:
    """What the user asked for. Rates and lags in bytes; None: no limit."""

    batch: int = 1000
    max_wal_rate: int | None = None
    max_lag: int | None = None


@dataclass
class Outcome:
    """What was done to one table."""

    relation: str
    before: list[dict[str, Any]] = field(default_factory=list)
    after: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows_before: int = 0
    rows_remaining: int = 0
    rows_rewritten: int = 0
    rows_hot: int | None = 0  # None: the server does not count (track_counts)
    transactions: int = 0
    rounds: int = 0
    wal_bytes: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0
    longest_transaction_ms: float = 0.0
    longest_wait_ms: float = 0.0
    waits: int = 0
    is_proven: bool = True
    is_interrupted: bool = False


class Resolver:
    """One run over one connection."""

    def __init__(self, dsn: str, wanted: str, options: Options, progress: TerminalLine) -> None:
        self.where = pending.place(dsn)
        self.options = options
        self.progress = progress
        self.connection = open_session(dsn)
        [recovering] = self._one("select pg_is_in_recovery()")
        if recovering:
            raise LeadlineError("unsupported", "this server is a replica: rows are rewritten on its primary")
        self.tables = tables(self.connection, wanted)
        self.pacer = Pacer(self.connection, options.max_wal_rate, options.max_lag, self._say)
        self.batch = options.batch
        self.can_prune = self.connection.info.server_version >= 140000  # before, no scan by place prunes
        self.oldest: int | None = None
        self._why_old: str | None = None

    def _one(self, query: str, parameters: Any = None) -> tuple[Any, ...]:
        row = self.connection.execute(query, parameters).fetchone()
        assert row is not None
        return row

    def _say(self, text: str) -> None:
        self.progress.share(self._done, self._total, text)

    _done = _total = 0

    def _size(self, table: Table) -> int:
        """Bytes of a table with all that belongs to it; waits until it is not locked."""
        while True:
            try:
                [size] = self._one("select pg_total_relation_size(%s::oid::regclass)", [table.oid])
                return int(size)
            except psycopg.errors.LockNotAvailable:
                self.pacer.wait(table.oid)

    # -- looking

    def look(self, table: Table) -> dict[str, Any]:
        """What is old in a table now. The transactions that had ended before the checkpoint are known by what it wrote."""
        [oldest] = self._one("select (pg_snapshot_xmin(pg_current_snapshot())::text::numeric % 4294967296)::int8")
        self._why_old = checkpoint(self.connection)
        self.oldest = oldest if self._why_old is None else None
        found = pending.scan(self.where, self._file_name(table), oldest_running=self.oldest, verify=True, progress=self.progress)
        of_table = [r for r in found if r["oid"] == table.oid]
        if not of_table:
            raise LeadlineError("not_found", f"{table.label} is not in the files yet", hint="its checkpoint was refused: see above")
        return of_table[0]

    def _file_name(self, table: Table) -> str:
        return f"{table.schema}.{table.relname}"

    def plan(self) -> list[dict[str, Any]]:
        """What would be done; nothing is."""
        planned = []
        for table in self.tables:
            found = self.look(table)
            rows, pages, _ = found["any"]
            query = "select pg_relation_size(oid), greatest(reltuples, %s, 1) from pg_class where oid = %s"
            [size, tuples] = self._one(query, [rows, table.oid])
            images = pages * 8192 if self._one("select current_setting('full_page_writes')::bool")[0] else 0
            wal = int(images + rows * (min(size / tuples, 8192) + 120))
            planned.append(
                {
                    "relation": table.label,
                    "pending": pending.rows([found]),
                    "rows": rows,
                    "pages": pages,
                    "transactions": -(-rows // self.options.batch),
                    "wal_bytes_about": wal if rows else 0,
                    "statement": table.statement("compression" in found["reasons"]),
                    "notes": table.notes + self._doubts(),
                }
            )
        return planned

    def _doubts(self) -> list[str]:
        if self._why_old is None:
            return []
        return [f"CHECKPOINT was refused ({self._why_old}): the figures are of the last one, and prove nothing of what was done since"]

    # -- working

    def run(self) -> Iterator[Outcome]:
        """Resolves table after table."""
        for table in self.tables:
            outcome = self._resolve(table)
            yield outcome
            if outcome.is_interrupted:
                return

    def _resolve(self, table: Table) -> Outcome:
        started = time.monotonic()
        outcome = Outcome(table.label, notes=list(table.notes))
        if table.as_replica:
            self.connection.execute("set session_replication_role = replica")
        outcome.bytes_before = self._size(table)
        if not self._one("select current_setting('track_counts')::bool")[0]:
            outcome.rows_hot = None
        found = self.look(table)
        outcome.before, outcome.rows_before = pending.rows([found]), found["any"][0]
        self._total = outcome.rows_before
        try:
            while found["any"][0] and outcome.rounds < ROUNDS:
                outcome.rounds += 1
                self._done = self._total - found["any"][0]
                before = outcome.rows_rewritten
                self._round(table, repack="compression" in found["reasons"], outcome=outcome)
                found = self.look(table)
                if outcome.rows_rewritten == before and outcome.rounds > 1:
                    break  # what is left is locked, and stays so
        except KeyboardInterrupt:
            outcome.is_interrupted = True
            found = self.look(table)
        finally:
            self.progress.done()
        outcome.after, outcome.rows_remaining = pending.rows([found]), found["any"][0]
        outcome.is_proven = self._why_old is None and not found["unread_pages"] and not found["unread_rows"]
        outcome.notes += self._doubts()
        outcome.bytes_after = self._size(table)
        if table.as_replica:
            self.connection.execute("set session_replication_role = origin")
        outcome.seconds = time.monotonic() - started
        return outcome

    def _round(self, table: Table, *, repack: bool, outcome: Outcome) -> None:
        old = OldPages(self.where.path, self._file_name(table), self.where.database or "", table.oid, self.oldest)
        while (found := old.next_pages(WINDOW_ROWS)) is not None:
            pages = [Page(block, room, rows) for block, room, rows in found]
            for number, places in enumerate(passes(pages, can_prune=self.can_prune)):
                if number > 0 and self.can_prune:
                    self._prune(table, places)
                self._pass(table, places, repack=repack, outcome=outcome)

    def _prune(self, table: Table, places: list[tuple[int, int]]) -> None:
        """Looks at pages as a scan does, which makes room of rows that nobody sees any more."""
        ranges = blocks_between(places)
        firsts, ends = [f"({first},0)" for first, _ in ranges], [f"({last + 1},0)" for _, last in ranges]
        counted = f"(select count(*) from only {table.name} where ctid >= r.first and ctid < r.past)"
        with suppress(psycopg.errors.LockNotAvailable, *_LEFT):
            self.connection.execute(f"select sum({counted}) from unnest(%s::tid[], %s::tid[]) as r(first, past)", [firsts, ends])

    def _pass(self, table: Table, places: list[tuple[int, int]], *, repack: bool, outcome: Outcome) -> None:
        statement = table.statement(repack)
        rest = iter(places)
        while batch := list(islice(rest, self.batch)):
            is_locked = True
            while is_locked:  # somebody alters the table or waits to
                self.pacer.wait(table.oid)
                with deferred_interrupts():
                    is_locked = self._attempt(table, statement, batch, outcome)

    def _attempt(self, table: Table, statement: str, batch: list[tuple[int, int]], outcome: Outcome) -> bool:
        """Whether the whole table was locked. What others made impossible otherwise is left for the next round."""
        try:
            self._transaction(table, statement, batch, outcome)
        except psycopg.errors.LockNotAvailable:
            self._say("the table is locked")
            return True
        except _LEFT:
            self.batch = max(1, self.batch // 4)
        return False

    def _transaction(self, table: Table, statement: str, batch: list[tuple[int, int]], outcome: Outcome) -> None:
        """Rewrites some rows. Those that are not there any more, or are locked, are passed over."""
        counters = f"select coalesce(pg_stat_get_xact_tuples_hot_updated({table.oid}), 0), pg_current_wal_insert_lsn() - '0/0'"
        places = [f"({block},{lp})" for block, lp in batch]
        started = time.monotonic()
        try:
            with self.connection.transaction():
                hot_before, lsn = self._one(counters)
                rewritten = self.connection.execute(statement, [places]).rowcount
                hot, _ = self._one(counters)
                waits, longest_ms = self._one(_WAITS[self.connection.info.server_version >= 140000], [table.oid])
                ending = time.monotonic()
        except psycopg.errors.IntegrityError as e:
            raise LeadlineError(
                "invalid",
                f"a row of {table.label} may not be written as it is",
                detail=str(e).strip().splitlines()[0],
                hint="rows that violate a constraint that is not validated have to be mended first; this batch was rolled back",
            ) from e
        ended = time.monotonic()
        took_ms = (ended - started) * 1000
        [lsn_after] = self._one("select pg_current_wal_insert_lsn() - '0/0'")
        self.pacer.wrote(int(lsn_after - lsn))
        outcome.wal_bytes += int(lsn_after - lsn)
        outcome.transactions += rewritten > 0
        outcome.rows_rewritten += rewritten
        if outcome.rows_hot is not None:
            outcome.rows_hot += int(hot - hot_before)
        outcome.longest_transaction_ms = max(outcome.longest_transaction_ms, took_ms)
        outcome.waits += waits
        if waits:  # before 14 the server does not say since when: at most since the transaction began
            waited_ms = took_ms if longest_ms is None else float(longest_ms) + (ended - ending) * 1000
            outcome.longest_wait_ms = max(outcome.longest_wait_ms, waited_ms)
        if ended - started > LONG_S:
            self.batch = max(10, self.batch // 2)
        elif ended - started < LONG_S / 4:
            self.batch = min(self.options.batch, self.batch * 2)
        self._done += rewritten
        self._say(f"{self._done:,} of {self._total:,} rows, longest transaction {outcome.longest_transaction_ms:.0f} ms")


# Who waits for this transaction: for its end, or for a row behind somebody who does. Everybody who waits does so until it ends,
# so that one look just before tells all.
_WAITS_SQL = """
with l as materialized (select *, {since} as since from pg_locks where locktype in ('transactionid', 'tuple')),
first as (
  select pid, since from l where not granted and locktype = 'transactionid' and transactionid = pg_current_xact_id_if_assigned()::xid
),
others as (
  select w.since from l w join l h using (relation, page, tuple)
   where w.locktype = 'tuple' and w.relation = %s and not w.granted
     and h.locktype = 'tuple' and h.granted and h.pid in (select pid from first)
)
select count(*), extract(epoch from max(clock_timestamp() - since)) * 1000
  from (select since from first union all select since from others) x
"""
_WAITS = {True: _WAITS_SQL.format(since="waitstart"), False: _WAITS_SQL.format(since="null::timestamptz")}


def resolve(dsn: str, wanted: str, options: Options, progress: TerminalLine) -> list[Outcome]:
    """Resolves a table, or each partition of it."""
    with told():
        resolver = Resolver(dsn, wanted, options, progress)
        with resolver.connection:
            return list(resolver.run())


def plan(dsn: str, wanted: str, options: Options, progress: TerminalLine) -> list[dict[str, Any]]:
    """What `resolve` would do."""
    with told():
        resolver = Resolver(dsn, wanted, options, progress)
        with resolver.connection:
            return resolver.plan()



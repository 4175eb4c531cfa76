"""Rewrites the rows of a table that are in an old form, and only those: online, in small transactions, until a new look finds none.

Nothing is remembered between runs: what is still old is in the files. A row that somebody changed meanwhile is current already, and
its old place holds nothing that an UPDATE sees; a row that somebody has locked is left for the next round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import psycopg

from leadline._core.pending import REASONS, OldPages
from leadline.errors import LeadlineError
from leadline.figures import count, one_line
from leadline.files.alter import pending
from leadline.files.alter.order import Page, blocks_between, passes
from leadline.files.alter.pacing import WANTED, Pacer
from leadline.files.alter.rescan import Looker
from leadline.files.alter.session import narrow_search_path, open_session, told
from leadline.files.alter.table import Table, find, plan_again, shape, tables
from leadline.interrupt import deferred_interrupts, terminated_as_interrupted
from leadline.progress import TerminalLine

if TYPE_CHECKING:
    from leadline.files.alter.rescan import Looked

ROUNDS = 5
WINDOW_ROWS = 20_000  # rows of neighbouring pages that are worked on together
NOTE_S = 10  # who stands longer says why, also where no progress is shown
LOCKED = "the table is locked"
MOST_UNWRITABLE = 100  # rows of a table that are passed over because the server refuses to write them as they are
LONG_S = 0.05  # a transaction that took longer makes the next ones smaller
COMPRESSION = next(bit for name, bit, _ in REASONS if name == "compression")
Places = list[tuple[int, int]]  # (block, line pointer)
_NOT_THERE = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InvalidSchemaName)
_CODE = "a constraint or an index expression fails for this row; fix the row or the definition first"
_UNWRITABLE = {  # classes of errors that a row causes
    "22": _CODE,
    "23": "fix rows that violate a constraint marked NOT VALID first",
    "38": _CODE,
    "39": _CODE,
    "54": "with the columns that were added since the row, or a key of it, is too long: drop columns, or make values shorter",
    "P0": _CODE,
}
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
    rows_unwritable: int = 0
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


class _Changed(Exception):
    """The table is not what it was when its rewriting was planned, or is not there any more."""


class _Unwritable(Exception):
    """The server refuses to write a row of the batch as it is. details: detail and hint of the message."""

    def __init__(self, details: dict[str, str]) -> None:
        self.details = details


class Resolver:
    """One run over one connection."""

    def __init__(self, dsn: str, wanted: str, options: Options, progress: TerminalLine) -> None:
        where = pending.place(dsn)
        self.options = options
        self.progress = progress
        self.connection = open_session(dsn)
        self.search_path = narrow_search_path(self.connection)
        recovering, read_only = self._one("select pg_is_in_recovery(), current_setting('transaction_read_only')::bool")
        if recovering:
            raise LeadlineError("unsupported", "this server is a replica: run this command on its primary")
        if read_only:
            raise LeadlineError(
                "unsupported",
                "this role or database is read-only",
                detail="default_transaction_read_only is on",
                hint="if this is not because the disk is full: PGOPTIONS='-c default_transaction_read_only=off' leadline alter resolve ...",
            )
        self.root = find(self.connection, wanted, self.search_path)
        self.tables = tables(self.connection, self.root)
        self.pacer = Pacer(self.connection, options.max_wal_rate, options.max_lag, self._stand)
        self.batch = options.batch
        self.can_prune = self.connection.info.server_version >= 140000  # before, no scan by place prunes
        self.looker = Looker(self.connection, where, progress)

    def _one(self, query: str, parameters: Any = None) -> tuple[Any, ...]:
        row = self.connection.execute(query, parameters).fetchone()
        assert row is not None
        return row

    def _say(self, text: str) -> None:
        self.progress.share(self._done, self._total, text)

    _done = _total = 0
    _table: Table | None = None
    _standing_since: float | None = None
    _unwritable: dict[tuple[int, int], _Unwritable]  # of the table that is worked on, by place

    def _stand(self, text: str) -> None:
        """Says why nothing goes on; after a while once as a note, with who has locks on the table."""
        self._say(text)
        now = time.monotonic()
        since, self._standing_since = self._standing_since, self._standing_since or now
        if self._table and since and since + NOTE_S < now:
            self._standing_since = math.inf
            who = f"; locks on it: {self.pacer.holders(self._table.oid)}" if text in (WANTED, LOCKED) else ""
            self.progress.note(f"{one_line(self._table.label)}: waiting for more than {NOTE_S} s: {text}{who}")

    def _size(self, table: Table) -> int:
        """Bytes of a table with all that belongs to it, 0 when it was dropped; waits until it is not locked."""
        while True:
            try:
                with deferred_interrupts():  # cancelled while it waits for a lock, a statement can cost the connection
                    [size] = self._one("select coalesce(pg_total_relation_size(%s::oid::regclass), 0)", [table.oid])
                return int(size)
            except psycopg.errors.LockNotAvailable:
                self._stand(LOCKED)
                self.pacer.wait(table.oid)

    def plan(self) -> list[dict[str, Any]]:
        """What would be done; nothing is."""
        planned = []
        looked = self.looker.look(self.root, self.tables)
        for table in self.tables:
            found = looked.get(table.oid)
            if found is None:
                continue
            rows, pages, _ = found["any"]
            query = "select pg_relation_size(oid), greatest(reltuples, %s, 1) from pg_class where oid = %s"
            [size, tuples] = self._one(query, [rows, table.oid])
            images, block = self._one("select current_setting('full_page_writes')::bool, current_setting('block_size')::int")
            wal = int(pages * block * images + rows * (min(size / tuples, block) + 120))
            planned.append(
                {
                    "relation": table.label,
                    "pending": pending.rows([found]),
                    "rows": rows,
                    "pages": pages,
                    "transactions": -(-rows // self.options.batch),
                    "wal_bytes_about": wal if rows else 0,
                    "statement": table.statement("compression" in found["reasons"]).replace("%%", "%"),
                    "notes": table.notes + found["doubts"],
                }
            )
        return planned

    # -- working

    def run(self) -> Iterator[Outcome]:
        """Resolves table after table, of which a first look says which have something to do."""
        looked = self.looker.look(self.root, self.tables)
        for table in self.tables:
            outcome = self._resolve(table, looked.get(table.oid))
            yield outcome
            if outcome.is_interrupted:
                return

    def _resolve(self, table: Table, found: Looked | None) -> Outcome:
        """Of one table, in which this was found; None: it is gone."""
        started = time.monotonic()
        self._table = table
        outcome = Outcome(table.label)
        outcome.bytes_before = outcome.bytes_after = self._size(table)
        if not self._one("select current_setting('track_counts')::bool")[0]:
            outcome.rows_hot = None
        outcome.before, outcome.rows_before = (pending.rows([found]), found["any"][0]) if found else ([], 0)
        self._total = outcome.rows_before
        self._unwritable = {}
        try:
            while found and found["any"][0] > len(self._unwritable) and outcome.rounds < ROUNDS:
                outcome.rounds += 1
                self._done = self._total - found["any"][0]
                before, rewritten = found["any"][0], outcome.rows_rewritten
                table, is_changed = self._round_of(table, found, outcome)
                found = self.looker.look(table.oid, [table]).get(table.oid)
                if found and not is_changed and found["any"][0] >= before and outcome.rounds > 1:
                    break  # what is left is locked, or cannot be made current
        except KeyboardInterrupt:
            outcome.is_interrupted = True
            found = self.looker.look(table.oid, [table]).get(table.oid)
        finally:
            self.progress.done()
        outcome.notes = table.notes + (found["doubts"] if found else [])
        outcome.rows_unwritable = len(self._unwritable)
        if self._unwritable:
            (block, lp), first = next(iter(self._unwritable.items()))
            who = "a row cannot be rewritten unchanged"
            if len(self._unwritable) > 1:
                who = f"{len(self._unwritable):,} rows cannot be rewritten unchanged"
            outcome.notes.append(f"{who}; at ({block},{lp}): {first.details['detail']}; {first.details['hint']}")
        left = found["any"][0] - len(self._unwritable) if found else 0
        if found and left > 0 and outcome.rounds > 1 and not found["doubts"]:
            is_locked = outcome.rows_rewritten == rewritten
            why = ", locked or part of unfinished transactions: run the command again later" if is_locked else " after being rewritten"
            outcome.notes.append(f"{count(left, 'row')} still in an old form{why}")
        if found:
            outcome.after, outcome.rows_remaining = pending.rows([found]), found["any"][0]
            outcome.is_proven = not found["doubts"]
        else:
            outcome.notes.append("the table was dropped during the run")
        if outcome.rounds:
            outcome.bytes_after = self._size(table)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _round_of(self, table: Table, found: Looked, outcome: Outcome) -> tuple[Table, bool]:
        """One round; the table as it is planned from then on, and whether that changed."""
        if table.replication_role:
            self.connection.execute(f"set session_replication_role = {table.replication_role}")
        try:
            self._round(table, repack="compression" in found["reasons"], outcome=outcome)
            return table, False
        except _Changed as e:
            self._unwritable.clear()  # rows may have other places now
            again = plan_again(self.connection, table)
            if again == table and isinstance(e.__cause__, psycopg.Error):
                raise e.__cause__ from None  # something else is not there, that a constraint or an index asks for
            return again or table, True
        finally:
            if table.replication_role and not self.connection.closed:
                self.connection.execute("reset session_replication_role")

    def _round(self, table: Table, *, repack: bool, outcome: Outcome) -> None:
        where = self.looker.where
        old: OldPages | None = None
        while True:
            try:
                old = old or OldPages(where.path, where.database or 0, table.oid, self.looker.oldest)
                found = old.next_pages(WINDOW_ROWS)
            except LeadlineError as e:
                if e.kind != "not_found":
                    raise
                raise _Changed from None  # it was written anew, or dropped
            if found is None:
                return
            pages = [Page(block, room, rows) for block, room, rows in found]
            for number, of_pass in enumerate(passes(pages, can_prune=self.can_prune)):
                places = [place for place in of_pass if place not in self._unwritable]
                if number > 0 and self.can_prune:
                    self._prune(table, places)
                self._pass(table, places, repack=repack, outcome=outcome)

    def _prune(self, table: Table, places: Places) -> None:
        """Looks at pages as a scan does, which makes room of rows that nobody sees any more."""
        ranges = blocks_between(places)
        firsts, ends = [f"({first},0)" for first, _ in ranges], [f"({last + 1},0)" for _, last in ranges]
        counted = f"(select count(*) from only {table.escaped} where ctid >= r.first and ctid < r.past)"
        with deferred_interrupts(), suppress(psycopg.errors.LockNotAvailable, *_LEFT, *_NOT_THERE):
            self.connection.execute(f"select sum({counted}) from unnest(%s::tid[], %s::tid[]) as r(first, past)", [firsts, ends])

    def _pass(self, table: Table, places: Places, *, repack: bool, outcome: Outcome) -> None:
        statement = table.statement(repack)
        rest = iter(places)
        again: list[Places] = []
        while batch := again.pop() if again else list(islice(rest, self.batch)):
            self.pacer.wait(table.oid)
            with deferred_interrupts():
                again += self._attempt(table, statement, batch, outcome)

    def _attempt(self, table: Table, statement: str, batch: Places, outcome: Outcome) -> list[Places]:
        """What is to be tried again, the last first. What others made impossible otherwise is left for the next round."""
        try:
            self._transaction(table, statement, batch, outcome)
        except psycopg.errors.LockNotAvailable:  # somebody alters the table or waits to
            self._stand(LOCKED)
            return [batch]
        except _LEFT:
            self.batch = max(1, self.batch // 4)
        except _Unwritable as e:
            if len(batch) > 1:  # which of them it is, only fewer rows tell
                half = len(batch) // 2
                return [batch[half:], batch[:half]]
            self._pass_over(table, batch[0], e)
        return []

    def _pass_over(self, table: Table, place: tuple[int, int], error: _Unwritable) -> None:
        self._unwritable[place] = error
        if len(self._unwritable) > MOST_UNWRITABLE:
            message = f"more than {MOST_UNWRITABLE} rows of {table.label} cannot be rewritten unchanged"
            raise LeadlineError("invalid", message, **error.details)

    def _transaction(self, table: Table, statement: str, batch: Places, outcome: Outcome) -> None:
        """Rewrites some rows. Those that are not there any more, or are locked, are passed over."""
        hot_now = f"coalesce(pg_catalog.pg_stat_get_xact_tuples_hot_updated({table.oid}::pg_catalog.oid), 0)"
        opening = f"select {hot_now}, pg_current_wal_insert_lsn() - '0/0', set_config('search_path', %s, true)"
        closing = f"select {hot_now}, pg_catalog.set_config('search_path', 'pg_catalog', true)"
        places = [f"({block},{lp})" for block, lp in batch]
        started = time.monotonic()
        try:
            with self.connection.transaction():
                hot_before, lsn, _ = self._one(opening, [self.search_path])
                rewritten = self.connection.execute(statement, [places]).rowcount
                hot, _ = self._one(closing)
                if shape(self.connection, table) != table.shape:
                    raise _Changed
                waits, longest_ms = self._one(_WAITS[self.connection.info.server_version >= 140000], [table.oid])
                ending = time.monotonic()
        except _NOT_THERE as e:
            raise _Changed from e
        except psycopg.Error as e:
            if e.sqlstate is None or e.sqlstate[:2] not in _UNWRITABLE:
                raise
            raise _Unwritable({"detail": e.diag.message_primary or str(e), "hint": _UNWRITABLE[e.sqlstate[:2]]}) from e
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
        self._standing_since = None
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
    done: list[Outcome] = []
    with told(), terminated_as_interrupted():
        resolver = Resolver(dsn, wanted, options, progress)
        with resolver.connection:
            try:
                for outcome in resolver.run():
                    done.append(outcome)  # what was done stays when the next is interrupted
            except KeyboardInterrupt:  # between two tables
                if not done:
                    raise
                done[-1].is_interrupted = True
    return done


def plan(dsn: str, wanted: str, options: Options, progress: TerminalLine) -> list[dict[str, Any]]:
    """What `resolve` would do."""
    with told():
        resolver = Resolver(dsn, wanted, options, progress)
        with resolver.connection:
            return resolver.plan()



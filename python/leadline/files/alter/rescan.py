"""What is old in some tables of a server now: a look at its files right after a CHECKPOINT, and what there is to doubt of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.engines.postgres.catalog.connection import Connection
from leadline.errors import LeadlineError
from leadline.files.alter import pending
from leadline.files.alter.session import checkpoint
from leadline.files.alter.table import Table
from leadline.progress import TerminalLine

if TYPE_CHECKING:
    from leadline._core.pending import Pending

    class Looked(Pending):
        """doubts: why the figures prove nothing."""

        doubts: list[str]


LOOKS = 5  # at files that were replaced while they were looked at


class Looker:
    """Looks over one connection. oldest: a transaction before it that neither committed nor aborted was ended by a crash."""

    def __init__(self, connection: Connection, where: pending.Place, progress: TerminalLine) -> None:
        self.where = where
        self.oldest: int | None = None
        self._connection = connection
        self._progress = progress

    def look(self, wanted: int, tables: list[Table]) -> dict[int, Looked]:
        """By oid what `pending.scan` gives of some tables, which are those of the relation `wanted`; one that was dropped is not there.

        Files that were replaced meanwhile, and a catalog that was read while it was
        being changed, are looked at again.
        """
        for is_last in [False] * (LOOKS - 1) + [True]:
            files = self._files(tables)
            # Transactions that had ended before the checkpoint are known by what it writes.
            oldest = self._oldest_running()
            why_old = checkpoint(self._connection)
            self.oldest = oldest if why_old is None else None
            found, is_settled = self._scan(wanted, files, is_last=is_last or why_old is not None)
            if is_settled or why_old is not None:
                break
        looked: dict[int, Looked] = {}
        for table in tables:
            if files[table.oid] and table.oid not in found:
                raise _not_in_the_files(table, why_old)
            if each := found.get(table.oid):
                # In SQL_ASCII the files do not tell what their names are.
                looked[table.oid] = {**each, "relation": table.label, "doubts": _doubts(each, why_old, is_settled)}
        return looked

    def _scan(self, wanted: int, files: dict[int, int | None], *, is_last: bool) -> tuple[dict[int, Pending], bool]:
        """What is found of the relations that have files, and whether those stayed theirs."""
        if not any(files.values()):
            return {}, True
        try:
            scanned = pending.scan(self.where, wanted, oldest_running=self.oldest, verify=True, progress=self._progress)
        except LeadlineError as e:
            if e.kind != "not_found" and (is_last or e.kind != "invalid"):
                raise
            return {}, False
        found = {r["oid"]: r for r in scanned.relations if files.get(r["oid"]) and not r["vanished"] and not r["absent"]}
        return found, len(found) == sum(map(bool, files.values())) and self._file_numbers(list(files)) == files

    def _files(self, tables: list[Table]) -> dict[int, int | None]:
        return self._file_numbers([table.oid for table in tables])

    def _file_numbers(self, oids: list[int]) -> dict[int, int | None]:
        """The number of the file of each relation; None where there is none any more."""
        query = "select o, pg_relation_filenode(o::oid::regclass)::int8 from unnest(%s::int8[]) o"
        return dict(self._connection.execute(query, [oids]).fetchall())

    def _oldest_running(self) -> int:
        query = "select (pg_snapshot_xmin(pg_current_snapshot())::text::numeric % 4294967296)::int8"
        [oldest] = self._connection.execute(query).fetchone() or (0,)
        return int(oldest)


def _not_in_the_files(table: Table, why_old: str | None) -> LeadlineError:
    message = f"{table.label} has not been written to disk yet"
    if why_old is None:
        return LeadlineError("not_found", message, detail="it was rewritten repeatedly while its files were being scanned")
    hint = "in 15 or later: grant pg_checkpoint to ROLE; or wait for the next checkpoint of the server"
    return LeadlineError("not_found", message, detail=f"this role cannot run CHECKPOINT: {why_old}", hint=hint)


def _doubts(found: Pending, why_old: str | None, is_settled: bool) -> list[str]:
    doubts = []
    unread_of = (("pages", found["unread_pages"]), ("rows", found["unread_rows"]))
    if unread := [f"{number} {what}" for what, number in unread_of if number]:
        doubts.append(f"{' and '.join(unread)} could not be decoded and are not counted: run leadline page check")
    if found["unknown"]:
        doubts.append(f"whether {found['unknown']} rows are visible is not known: {'; '.join(found['unknown_why'])}")
    if why_old is not None:
        doubts.append(f"CHECKPOINT was refused ({why_old}): the figures are those of the last checkpoint")
    elif not is_settled:
        doubts.append("the table was rewritten repeatedly while its files were being scanned: nothing is proven")
    return doubts

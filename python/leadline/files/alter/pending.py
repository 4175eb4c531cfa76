"""Which rows and indexes are in an old form, read from files; what that means, in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leadline._core.pending import REASONS, pending_scan
from leadline.figures import count
from leadline.files.server import check_readable, server_files
from leadline.progress import TerminalLine

if TYPE_CHECKING:
    from leadline._core.pending import Pending

COMMAND = "leadline alter"
ROW_REASONS = [name for name, _, is_of_rows in REASONS if is_of_rows]
WORDS = {
    "short": "fewer attributes than the table: columns were added later",
    "dropped": "a value of a dropped column is still stored; bytes: those values",
    "compression": "compressed with another method than the column specifies; bytes: as stored",
    "moved": "moved by VACUUM FULL of 8.4 or earlier",
    "oid": "an OID in the row header, a format that 12 removed",
    "multixact": "share-locked by a multixact of 9.2 or earlier",
    "btree-version": "a btree from before 12: REINDEX makes it smaller",
    "btree-dedup": "a btree from before 13: REINDEX stores equal keys once",
    "gin": "a GIN index from before 9.4 with uncompressed posting lists: use REINDEX",
    "hash": "a hash index from before 10, which is not usable: use REINDEX",
}


class Scanned(NamedTuple):
    """What was found. refused: databases that cannot be read, and why; damage: of the catalogs of the others."""

    relations: list[Pending]
    refused: list[tuple[str, str]]
    damage: list[str]

    @property
    def is_whole(self) -> bool:
        """Whether all that there is was looked at, and all of it is certain."""
        odd = any(r["absent"] or r["missing"] or r["unknown"] for r in self.relations)
        return not (odd or self.refused or self.damage)


class Place(NamedTuple):
    """Files to read. database: the oid of the only one to look at. is_live: a server may write them."""

    path: str
    database: int | None = None
    is_live: bool = False


def place(text: str) -> Place:
    """A data directory, a file of a relation, or a server on this host (pid or connection string)."""
    if "=" not in text and "://" not in text and (os.path.exists(text) or text.startswith(("/", "."))):
        if not os.path.isdir(text):
            return Place(text)
        from pathlib import Path

        from leadline.engines.postgres import postmaster

        check_readable(text, COMMAND)
        return Place(text, None, postmaster.find_by_data_dir(Path(text)) is not None)
    from leadline.engines.postgres.catalog.connection import connect

    found = server_files(text, COMMAND)
    database = None
    if found.dsn is not None:
        with connect(found.dsn) as connection:
            query = "select oid::int8 from pg_catalog.pg_database where datname operator(pg_catalog.=) pg_catalog.current_database()"
            [database] = connection.execute(query).fetchone() or (None,)
    return Place(found.data_dir, database, True)


def scan(
    where: Place,
    table: str | int | None,
    *,
    oldest_running: int | None = None,
    verify: bool = False,
    progress: TerminalLine | None = None,
) -> Scanned:
    """What `pending_scan` finds in each relation; with a bar. verify: pages torn by a write are found out by their checksums."""

    def show(done: int, total: int) -> None:
        if progress:
            progress.share(done, total, f"{done >> 20:,} of {total >> 20:,} MB")

    try:
        return Scanned(**pending_scan(where.path, table, where.database, oldest_running, show, verify=verify))
    finally:
        if progress:
            progress.done()


def rows(found: Sequence[Pending]) -> list[dict[str, Any]]:
    """What `alter pending --json` prints: one row for each relation and reason, in the order of relations and reasons."""
    listed = []
    for relation in sorted(found, key=lambda r: (r["database"], r["relation"])):
        for reason, (number, pages, size) in relation["reasons"].items():
            row = {"database": relation["database"], "relation": relation["relation"], "reason": reason}
            listed.append(row | {"rows": number if reason in ROW_REASONS else None, "pages": pages, "bytes": size})
    return listed


def warnings(scanned: Scanned) -> list[str]:
    """What is lost, so that the figures are not all there is."""
    said = [f"database {name} cannot be read: {why}" for name, why in scanned.refused]
    said += [f"the catalog is damaged: {line}" for line in scanned.damage]
    said += [f"{relation['relation']}: {line}" for relation in scanned.relations for line in relation["missing"]]
    if unknown := sum(r["unknown"] for r in scanned.relations):
        why = sorted({line for r in scanned.relations for line in r["unknown_why"]})
        said.append(f"whether {count(unknown, 'row')} of these {'is' if unknown == 1 else 'are'} visible is not known: {'; '.join(why)}")
    return said


def notes(where: Place, scanned: Scanned) -> list[str]:
    """What the reader of the figures has to know."""
    said, found = [], scanned.relations
    in_progress = sum(r["in_progress"] for r in found)
    unread_pages, unread_rows = sum(r["unread_pages"] for r in found), sum(r["unread_rows"] for r in found)
    gone_pages, vanished = sum(r["gone_pages"] for r in found), sum(r["vanished"] for r in found)
    unlogged = [r["relation"] for r in found if r["is_unlogged"] and r["is_table"]]
    if where.is_live and unlogged:
        more = f" and {len(unlogged) - 3} more" if len(unlogged) > 3 else ""
        said.append(f"unlogged tables are written only when the server stops, not by a checkpoint: {', '.join(unlogged[:3])}{more}")
    if in_progress:
        said.append(f"{in_progress} of the rows belong to transactions that, according to the files, had not ended")
    if unread_pages or unread_rows:
        said.append(f"not counted: {unread_pages} pages and {unread_rows} rows that cannot be decoded: leadline page check")
    if gone_pages:
        said.append(f"not looked at: {gone_pages} pages that disappeared before being read (truncated, dropped or rewritten)")
    if vanished := vanished + (len(absent(found)) if where.is_live else 0):
        said.append(f"{vanished} relations disappeared before being read")
    if not where.is_live:
        said += [f"not looked at: {relation['relation']}: {relation['absent']}" for relation in absent(found)]
    return said


def absent(found: Sequence[Pending]) -> list[Pending]:
    """The relations that have no file which could be looked at: `absent` says why."""
    return [relation for relation in found if relation["absent"]]


def text(scanned: Scanned) -> str:
    """A table for people: each reason, and each row once where a relation has several."""
    from leadline.output import to_table

    found = scanned.relations
    listed = rows(found)
    tables = sum(r["is_table"] for r in found)
    pages, indexes = sum(r["pages"] for r in found), len(found) - tables
    looked = f"{count(pages, 'page')} of {count(tables, 'table')} and {count(indexes, 'index', 'indexes')} looked at"
    if not listed:
        return f"nothing is in an old form: {looked}"
    several = len({row["database"] for row in listed}) > 1
    lines: list[list[Any]] = []
    for relation in sorted(found, key=lambda r: (r["database"], r["relation"])):
        name = f"{relation['database']}.{relation['relation']}" if several else relation["relation"]
        of_relation = [row for row in listed if (row["database"], row["relation"]) == (relation["database"], relation["relation"])]
        lines += [[name, row["reason"], row["rows"], row["pages"], row["bytes"]] for row in of_relation]
        if len(of_relation) > 1:
            lines.append([name, "any of them", relation["any"][0], relation["any"][1], sum(row["bytes"] for row in of_relation)])
    reasons = [reason for reason in WORDS if any(row["reason"] == reason for row in listed)]
    legend = [f"{reason}: {WORDS[reason]}" for reason in reasons]
    return "\n".join([to_table(["relation", "reason", "rows", "pages", "bytes"], lines), "", *legend, looked])

"""What is removed from the book, and when: by age, by number, by size. Never what is pinned, and never what runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from leadline.book.ansible.ingest import forget_unused_facts
from leadline.book.query import Book

AT_ONCE = 1000  # runs of a transaction: others may write in between


@dataclass(frozen=True)
class Retention:
    """Runs that any of these names are removed. before: us since 1970, those that began earlier; most_runs: all but the newest;
    most_bytes: the oldest, until the outputs of the others take no more. keep_failed: those that did not end well stay."""

    before: int | None = None
    most_runs: int | None = None
    most_bytes: int | None = None
    keep_failed: bool = False


@dataclass(frozen=True)
class Pruned:
    """runs: how many; log_bytes: their outputs on this host; freed_bytes: what the disk has got back (an estimate if nothing was done)."""

    runs: int
    log_bytes: int
    freed_bytes: int


def prune(book: Book, wanted: Retention, *, really: bool) -> Pruned:
    """Removes runs with their outputs. Captures and reports are the user's, and stay."""
    chosen = _chosen(book, wanted)
    place = book.place
    files = [path for run in chosen for path in (place.log_of(run["uid"]), place.index_of(run["uid"]), place.spool_of(run["uid"]))]
    log_bytes = sum(size for path in files if (size := _size(path)))
    if not really:
        return Pruned(len(chosen), log_bytes, log_bytes)
    before = book.store.db.bytes_used()
    for first in range(0, len(chosen), AT_ONCE):
        some = chosen[first : first + AT_ONCE]
        with book.store.writing() as db:
            ids = [(run["id"],) for run in some]
            db.forget_words([run["id"] for run in some])
            db.executemany("delete from run where id = ?", ids)
            db.executemany("delete from ingest_state where uid = ?", [(run["uid"],) for run in some])
    with book.store.writing() as db:
        # A text stays as long as a run has it: as its facts, or as a file.
        kept = "select facts from run where facts is not null union select hash from run_file where hash is not null"
        db.execute(f"delete from content where hash not in ({kept})")
        forget_unused_facts(db)
    for path in files:
        with suppress(OSError):
            path.unlink()
    book.store.db.shrink()
    return Pruned(len(chosen), log_bytes, log_bytes + max(0, before - book.store.db.bytes_used()))


def _chosen(book: Book, wanted: Retention) -> list[dict[str, Any]]:
    rows = book.store.rows("select id, uid, started, status, pinned, log_bytes from run order by started desc, id desc")
    out, kept_bytes = [], 0
    for number, row in enumerate(rows, 1):
        stays = row["pinned"] or row["status"] == "running" or (wanted.keep_failed and row["status"] in ("failed", "lost"))
        size = row["log_bytes"] or 0
        too_old = wanted.before is not None and row["started"] < wanted.before
        too_many = wanted.most_runs is not None and number > wanted.most_runs
        too_large = wanted.most_bytes is not None and kept_bytes + size > wanted.most_bytes
        if not stays and (too_old or too_many or too_large):
            out.append(row)
        else:
            kept_bytes += size
    return out


def _size(path: Any) -> int:
    try:
        return int(path.stat().st_size)
    except OSError:
        return 0

"""What is removed from the book, and when: by age, by number, by size. Never what is pinned, what runs, or the
baseline of a template."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leadline.book.ansible.ingest import forget_unused_facts
from leadline.book.packed import SMALLEST, pack
from leadline.book.place import Place
from leadline.book.query import Book, Filter, each_newest
from leadline.host.proc import lives

AT_ONCE = 1000  # runs of a transaction: others may write in between


@dataclass(frozen=True)
class Retention:
    """Runs that any of these names are removed. before: us since 1970, those that began earlier; most_runs: all but the newest;
    most_bytes: the oldest, until the outputs of the others take no more. keep_failed: those that did not end well stay. kind, project:
    only runs of these are looked at, and counted."""

    before: int | None = None
    most_runs: int | None = None
    most_bytes: int | None = None
    keep_failed: bool = False
    kind: str | None = None
    project: str | None = None


@dataclass(frozen=True)
class Pruned:
    """runs: how many; log_bytes: their outputs on this host; freed_bytes: what the disk has got back (an estimate if nothing was done)."""

    runs: int
    log_bytes: int
    freed_bytes: int


def prune(book: Book, wanted: Retention, *, really: bool) -> Pruned:
    """Removes runs with their outputs. Captures and reports are the user's, and stay."""
    chosen = list(_chosen(book, wanted))
    place = book.place
    files = [path for _, uid in chosen for path in files_of(place, uid)]
    log_bytes = sum(size for path in files if (size := _size(path)))
    if not really:
        return Pruned(len(chosen), log_bytes, log_bytes)
    before = book.store.db.bytes_used()
    for first in range(0, len(chosen), AT_ONCE):
        some = chosen[first : first + AT_ONCE]
        with book.store.writing() as db:
            db.forget_words([run for run, _ in some])
            db.executemany("delete from run where id = ?", [(run,) for run, _ in some])
            db.executemany("delete from ingest_state where uid = ?", [(uid,) for _, uid in some])
    with book.store.writing() as db:
        # A text stays as long as a run has it: as its facts, or as a file.
        kept = "select facts from run where facts is not null union select hash from run_file where hash is not null"
        kept += " union select hash from artifact where hash is not null"
        db.execute(f"delete from content where hash not in ({kept})")
        forget_unused_facts(db)
    for path in files:
        with suppress(OSError):
            path.unlink()
    for _, uid in chosen:
        for directory in (place.work_of(uid), place.reports_of(uid)):
            shutil.rmtree(directory, ignore_errors=True)
        if not (study := place.study_of(uid)).joinpath("journal.json").exists():
            shutil.rmtree(study, ignore_errors=True)
    book.store.db.shrink()
    return Pruned(len(chosen), log_bytes, log_bytes + max(0, before - book.store.db.bytes_used()))


def _chosen(book: Book, wanted: Retention) -> Iterator[tuple[int, str]]:
    """Id and uid of each run to remove."""
    kept_bytes = 0
    baselines = {row["baseline"] for row in book.store.rows("select baseline from template where baseline is not null")}
    for number, row in enumerate(each_newest(book.store, Filter(kind=wanted.kind, project=wanted.project)), 1):
        kept = row["pinned"] or row["status"] == "running" or row["uid"] in baselines
        stays = kept or (wanted.keep_failed and row["status"] in ("failed", "lost"))
        size = (row["log_bytes"] or 0) if wanted.most_bytes is not None else 0
        if size >= SMALLEST:
            size = _size(book.place.packed_log_of(row["uid"])) or size
        too_old = wanted.before is not None and row["started"] < wanted.before
        too_many = wanted.most_runs is not None and number > wanted.most_runs
        too_large = wanted.most_bytes is not None and kept_bytes + size > wanted.most_bytes
        if not stays and (too_old or too_many or too_large):
            yield row["id"], row["uid"]
        else:
            kept_bytes += size


def files_of(place: Place, uid: str) -> tuple[Path, ...]:
    return place.log_of(uid), place.packed_log_of(uid), place.index_of(uid), place.spool_of(uid)


def pack_logs(book: Book, before: int, *, really: bool) -> Pruned:
    """Compresses the outputs of runs that ended before then, and that nothing writes to any more."""
    found, log_bytes, freed = 0, 0, 0
    for run in book.store.rows("select uid, pid, pid_start, host from run where ended is not null and ended < ?", (before,)):
        size = _size(book.place.log_of(run["uid"]))
        if size < SMALLEST or (run["host"] == os.uname().nodename and lives(run["pid"], run["pid_start"])):
            continue  # what a command has left behind may go on printing
        saved = pack(book.place, run["uid"]) if really else 0
        if saved or not really:
            found, log_bytes, freed = found + 1, log_bytes + size, freed + saved
    return Pruned(found, log_bytes, freed)


def _size(path: Path) -> int:
    try:
        return int(path.stat().st_size)
    except OSError:
        return 0

"""Crash recovery of a data directory: as whom, with how much memory, and what is said of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from leadline._core import replay
from leadline.errors import LeadlineError, cannot_be_written
from leadline.figures import quantity
from leadline.progress import TerminalLine
from leadline.replacing import make_room

if TYPE_CHECKING:
    from leadline._core.replay import PageAt, Report

MEMORY_SHARE = 4
"""Of the memory there is, one part in so many is taken unless told otherwise."""
SHOWN_KINDS = 8
PHASES = {
    "read": "reading WAL",
    "pages": "writing pages",
    "sync": "syncing files",
    "status": "writing transaction status",
    "hand over": "adding a checkpoint",
}


def recover(path: str, memory: int | None, threads: int | None, *, dry_run: bool, line: TerminalLine) -> Report:
    """As root: as the owner of the directory, so that every file that is made is the owner's."""

    def tell(phase: str, done: int, total: int) -> None:
        line.share(done, total, PHASES.get(phase, phase))

    try:
        with _owner_of(path):
            return replay.run(
                path, memory=memory or usual_memory(), threads=threads or len(os.sched_getaffinity(0)), dry_run=dry_run, progress=tell
            )
    finally:
        line.done()


def page_at(data_dir: str, file: str, block: int, lsn: str, output: str, threads: int | None, *, force: bool) -> PageAt:
    """Writes the page. Raises LeadlineError."""
    path = Path(output)
    make_room(path, overwrite=force)
    made = replay.page_at(data_dir, file, block, lsn, threads=threads or len(os.sched_getaffinity(0)))
    try:
        path.write_bytes(made["bytes"])
    except OSError as e:
        raise cannot_be_written("the page", e, path) from e
    return made


def usual_memory() -> int:
    """A quarter of what this process may use, by the machine and its control group."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _group_limits():
        most = min(most, limit)
    return max(most // MEMORY_SHARE, 16 << 20)


def _group_limits() -> Iterator[int]:
    """memory.max of the control groups that this process is in, from the innermost one up."""
    try:
        groups = Path("/proc/self/cgroup").read_text()
    except OSError:
        return
    for entry in groups.splitlines():
        if entry.startswith("0::"):
            root = Path("/sys/fs/cgroup")
            inner = root / entry[3:].lstrip("/")
            for folder in [inner, *(p for p in inner.parents if p.is_relative_to(root))]:
                try:
                    yield int((folder / "memory.max").read_text())
                except (OSError, ValueError):  # no such file, or "max"
                    continue


@contextmanager
def _owner_of(path: str) -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    try:
        about = Path(path).stat()
    except OSError as e:
        raise LeadlineError("not_found", "no such file or folder", detail=e.strerror or "", where=path) from e
    if about.st_uid == 0:
        yield
        return
    groups = os.getgroups()
    # The saved id stays root's, to come back to. The real one is the owner's: its server may then see that this process is alive, and
    # does not start.
    os.setgroups([about.st_gid])
    os.setresgid(about.st_gid, about.st_gid, 0)
    os.setresuid(about.st_uid, about.st_uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


def text(report: Report, *, dry_run: bool) -> str:
    if report["is_clean"]:
        return "The server was shut down cleanly: there is nothing to recover."
    removed = f", {report['removed']:,} of pages that are removed later" if report["removed"] else ""
    lines = [
        f"WAL:           {quantity(report['wal_bytes'], 'B')}, from {report['redo_lsn']} to {report['end_lsn']} ({report['end_reason']})",
        f"transactions:  {report['commits']:,} committed, {report['aborts']:,} rolled back, {report['prepared']:,} prepared",
        f"changes:       {report['changes']:,} of pages in {report['files']:,} files; {report['dropped_relations']:,} relations dropped",
    ]
    if dry_run:
        lines += ["", *_kinds(report), "", f"Memory to do it in one pass: {quantity(report['kept_bytes'], 'B')}. Nothing was written."]
        return "\n".join(lines)
    seconds = ", ".join(f"{phase} {took:.2f} s" for phase, took in report["seconds"].items())
    passes = "" if report["rounds"] == 1 else f" in {report['rounds']} passes"
    lines += [
        f"applied:       {report['applied']:,}; not needed: {report['superseded']:,} before a later page image{removed}",
        f"pages:         {report['pages_written']:,} written{passes}, {report['pages_read']:,} read",
        f"time:          {sum(report['seconds'].values()):.2f} s ({seconds})",
        "",
        f"Recovered: a checkpoint was added at {report['checkpoint_lsn']}. Start the server.",
    ]
    return "\n".join(lines)


def _kinds(report: Report) -> Iterator[str]:
    """The kinds of records with the most bytes."""
    most = sorted(report["kinds"], key=lambda kind: -kind["record_bytes"])
    yield f"{'records':>12}  {'bytes':>10}  {'page images':>12}  kind"
    for kind in most[:SHOWN_KINDS]:
        yield f"{kind['records']:>12,}  {quantity(kind['record_bytes'], 'B'):>10}  {kind['fpi']:>12,}  {kind['rmgr']} {kind['type']}"
    if rest := most[SHOWN_KINDS:]:
        counts = (sum(kind["records"] for kind in rest), sum(kind["record_bytes"] for kind in rest), sum(kind["fpi"] for kind in rest))
        yield f"{counts[0]:>12,}  {quantity(counts[1], 'B'):>10}  {counts[2]:>12,}  {len(rest)} other kinds"

"""Recovery of a data directory by page: as whom, with how much memory, and what is said of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from leadline._core import replay
from leadline._core.datadir import condition
from leadline.errors import LeadlineError, cannot_be_written
from leadline.files import usable, wal_source
from leadline.files.recovery_target import RecoveryTarget
from leadline.files.wal import threads_here
from leadline.progress import TerminalLine
from leadline.replacing import make_room
from leadline.units import sized

if TYPE_CHECKING:
    from leadline._core.replay import PageAt, RelationAt, Report, Restored

MEMORY_SHARE = 4
"""Of the memory there is, one part in so many is taken unless told otherwise."""
RECORDS_SHARE = 3, 8
"""Of the memory, the part that records of pages may take that do not fit the other (`pool.rs`)."""
PARTLY_FILLED = 16 << 20
"""Of the first and the last piece of the WAL that is read at once (`scan.rs`): memory that may stay empty."""
SHOWN_KINDS = 8
PHASES = {
    "find": "finding the recovery target",
    "read": "reading WAL",
    "pages": "writing pages",
    "sync": "syncing files",
    "status": "writing transaction status",
    "hand over": "writing pg_control",
}


def recover(path: str, memory: int | None, threads: int | None, *, dry_run: bool, line: TerminalLine) -> Report:
    """After a crash. As root: as the owner of the directory, so that every file that is made is the owner's."""
    with _owner_of(path), _told(line) as tell:
        _check(path)
        return replay.run(path, memory=memory or usual_memory(), threads=threads or threads_here(), dry_run=dry_run, progress=tell)


def restore(
    path: str,
    archive: str | None,
    command: str | None,
    target: RecoveryTarget,
    memory: int | None,
    threads: int | None,
    *,
    key: str | None,
    dry_run: bool,
    line: TerminalLine,
) -> Report:
    """A base backup. archive: a directory, a tar archive, or a directory that pgBackRest encrypted with `key`; or else command, as the
    server's restore_command, whose files are kept until the end."""
    with _owner_of(path), _told(line) as tell, ExitStack() as stack:
        _check(path)
        if archive:
            directory = stack.enter_context(wal_source.opened(archive, key))
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="leadline-wal-"))
        return replay.restore(
            path,
            archive=str(Path(directory).absolute()),
            command=command,
            target=target.kind,
            value=target.value,
            inclusive=target.inclusive,
            timeline=target.timeline,
            memory=memory or usual_memory(),
            threads=threads or threads_here(),
            dry_run=dry_run,
            progress=tell,
        )


def _check(path: str) -> None:
    """Whether the server could use the files after it; of one that runs, or was shut down in order, that is no matter."""
    try:
        found = condition(path)
    except LeadlineError:
        found = None
    if found is None or found["server"] not in ("running", "stopped"):
        usable.check(path)


@contextmanager
def _told(line: TerminalLine) -> Iterator[Callable[[str, int, int], None]]:
    """Shows how far each phase is."""

    def tell(phase: str, done: int, total: int) -> None:
        line.share(done, total, PHASES.get(phase, phase))

    try:
        yield tell
    finally:
        line.done()


def page_at(data_dir: str, file: str, block: int, lsn: str, output: str, threads: int | None, *, force: bool) -> PageAt:
    """Writes the page. Raises LeadlineError."""
    path = Path(output)
    make_room(path, overwrite=force)
    made = replay.page_at(data_dir, file, block, lsn, threads=threads or threads_here())
    try:
        path.write_bytes(made["bytes"])
    except OSError as e:
        raise cannot_be_written("the page", e, path) from e
    return made


def relation_at(file: str, wal: str, lsn: str, output: str, block: int | None, threads: int | None, *, force: bool) -> RelationAt:
    """Writes the file, under another name until it is whole. Raises LeadlineError."""
    path = Path(output)
    make_room(path, overwrite=force)
    temporary = path.with_name(path.name + ".tmp")
    made = replay.relation_at(file, wal, lsn, str(temporary), block=block, threads=threads or threads_here())
    try:
        number = 0
        while (part := _part(temporary, number)).exists():
            make_room(_part(path, number), overwrite=force)
            part.replace(_part(path, number))
            number += 1
    except OSError as e:
        raise cannot_be_written("the relation file", e, path) from e
    return made


def _part(first: Path, number: int) -> Path:
    """The files of a relation that has more than one."""
    return first if number == 0 else first.with_name(f"{first.name}.{number}")


def usual_memory() -> int:
    """A quarter of what this process may use, by the machine and its control group."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _group_limits():
        most = min(most, limit)
    return max(most // MEMORY_SHARE, 16 << 20)


def _group_limits(own: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """The memory limits of the control groups that this process is in, from the innermost one up: version 2, or its place in 1."""
    try:
        groups = own.read_text()
    except OSError:
        return
    for entry in groups.splitlines():
        _, controllers, group = entry.split(":", 2)
        if not controllers:
            root, name = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = root / group.lstrip("/")
        for directory in [inner, *(p for p in inner.parents if p.is_relative_to(root))]:
            try:
                yield int((directory / name).read_text())
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
        raise LeadlineError("not_found", "no such file or directory", detail=e.strerror or "", where=path) from e
    if about.st_uid == 0:
        yield
        return
    groups = os.getgroups()
    above = [*reversed(Path(path).absolute().parents), *reversed(Path(path).resolve().parents)]
    # The saved id stays root's, to come back to. The real one is the owner's: its server may then see that this process is alive, and
    # does not start.
    os.setgroups([about.st_gid])
    os.setresgid(about.st_gid, about.st_gid, 0)
    os.setresuid(about.st_uid, about.st_uid, 0)
    try:
        _reach(Path(path), above)
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


def _reach(path: Path, above: Sequence[Path]) -> None:
    """Raises LeadlineError where root may go and the owner of the files may not. above: the directories on the way, from the root down."""
    try:
        path.stat()
    except PermissionError as e:
        closed = next((directory for directory in above if not os.access(directory, os.X_OK)), path)
        detail = f"leadline recovers as the owner of the files, uid {os.geteuid()}, who may not enter {closed}"
        raise LeadlineError("rights", "the owner of the data directory cannot reach it", detail, f"chmod o+x {closed}", str(path)) from e


def text(report: Report, *, dry_run: bool) -> str:
    if report["is_clean"]:
        return "The server was shut down cleanly: there is nothing to recover."
    restored = report["backup"]
    if restored and restored["restartpoint_lsn"] is None:
        return (
            f"There is no checkpoint between {restored['consistent_lsn']}, where the backup is consistent, and the recovery target.\n"
            f"Nothing was written. Start the server: it replays {_rest(restored)}."
        )
    removed = f", {report['removed']:,} of pages that are removed later" if report["removed"] else ""
    lines = [
        f"WAL:           {sized(report['wal_bytes'])}, from {report['redo_lsn']} to {report['end_lsn']} ({report['end_reason']})",
        f"transactions:  {report['commits']:,} committed, {report['aborts']:,} rolled back, {report['prepared']:,} prepared",
        f"changes:       {report['changes']:,} of pages in {report['files']:,} files; {report['dropped_relations']:,} relations dropped",
    ]
    if restored:
        lines.insert(1, f"consistent:    at {restored['consistent_lsn']}; the server replays {_rest(restored)}")
    if dry_run:
        memory = (report["kept_bytes"] + PARTLY_FILLED) * RECORDS_SHARE[1] // RECORDS_SHARE[0]
        lines += ["", *_kinds(report), "", f"Memory without a temporary file: {sized(memory)} at most. Nothing was written."]
        return "\n".join(lines)
    seconds = ", ".join(f"{phase} {took:.2f} s" for phase, took in report["seconds"].items())
    passes = "" if report["rounds"] == 1 else f" in {report['rounds']} passes"
    if report["spilled_bytes"]:
        passes += f", with {sized(report['spilled_bytes'])} of records in a temporary file"
    lines += [
        f"applied:       {report['applied']:,}; not needed: {report['superseded']:,} before a later page image{removed}",
        f"pages:         {report['pages_written']:,} written, {report['pages_read']:,} read{passes}",
        f"time:          {sum(report['seconds'].values()):.2f} s ({seconds})",
        "",
        f"Recovered: a checkpoint was added at {report['checkpoint_lsn']}. Start the server.",
    ]
    if restored:
        lines[-1] = f"Recovered up to the checkpoint at {restored['restartpoint_lsn']}. Start the server: it replays {_rest(restored)}."
    return "\n".join(lines)


def _rest(restored: Restored) -> str:
    """What is left to the server."""
    return f"the last {sized(restored['left_bytes'])}, up to {restored['target_lsn']} on timeline {restored['timeline']}"


def _kinds(report: Report) -> Iterator[str]:
    """The kinds of records with the most bytes."""
    most = sorted(report["kinds"], key=lambda kind: -kind["record_bytes"])
    yield f"{'records':>12}  {'bytes':>10}  {'page images':>12}  kind"
    for kind in most[:SHOWN_KINDS]:
        yield f"{kind['records']:>12,}  {sized(kind['record_bytes']):>10}  {kind['fpi']:>12,}  {kind['rmgr']} {kind['type']}"
    if rest := most[SHOWN_KINDS:]:
        counts = (sum(kind["records"] for kind in rest), sum(kind["record_bytes"] for kind in rest), sum(kind["fpi"] for kind in rest))
        yield f"{counts[0]:>12,}  {sized(counts[1]):>10}  {counts[2]:>12,}  {len(rest)} other kinds"

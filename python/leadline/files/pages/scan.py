"""The tables of all pages of files, data directories and backups: a capture that many tasks write and one commit ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leadline._core.pages import PagePlan
from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import MANIFEST, Clock, Manifest, ProbeState, Target, read_manifest
from leadline.errors import LeadlineError
from leadline.files import condition, store
from leadline.files.pages import directory as directories
from leadline.files.pages.tasks import TABLES, Watch, in_sum, run_task, size_of, tasks_of
from leadline.files.tasks import Receipt, Task, engine_of, task_name
from leadline.files.tasks.receipts import RECEIPTS, Receipts
from leadline.files.wal import threads_here
from leadline.progress import TerminalLine

if TYPE_CHECKING:
    from leadline._core.capture import Written
    from leadline._core.datadir import Remark
    from leadline.files.pages.run import Summary

KIND = "files"
FILES = "page_file"


class Scanned(NamedTuple):
    """What was seen; tasks: how many there were, and how many of them an earlier run had done."""

    summary: Summary
    remarks: list[Remark]
    tasks: int
    done_before: int


def scan(
    paths: list[Path],
    directory: Path,
    *,
    block_size: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    engine: str = "threads",
    key: str | None = None,
    progress: TerminalLine | None = None,
) -> Scanned:
    """Writes the tables of all pages into a capture directory. overwrite: replace a capture; resume: go on with one of the same paths.

    The manifest says that the capture is being made until all is written, and "failed" with the error when that does not happen.
    """
    names = [str(path) for path in paths]
    options = {"paths": names, "block_size": block_size}
    with new_capture(directory, overwrite=overwrite, exactly=True, keep=resume):
        if resume:
            _must_be_of(directory, options)
        making = Making(directory, Target(KIND, ", ".join(names)), options)
        now = time.monotonic_ns()
        making.manifest.clock = Clock(now, now, time.time_ns() - now)
        making.manifest.probes["pages"] = ProbeState(tier=KIND)
        with making.from_files() as manifest:
            return _scan(paths, directory, manifest, block_size, engine, key, progress)


def _must_be_of(directory: Path, options: dict[str, Any]) -> None:
    """What is there already is a scan of the same."""
    if not (directory / MANIFEST).exists():
        return
    there = read_manifest(directory)
    if there.target.kind != KIND or there.options != options:
        detail = f"it is of {there.target.name}"
        raise LeadlineError("usage", "this capture is of something else", detail=detail, hint="name another with -o", where=str(directory))


def _scan(
    paths: list[Path], directory: Path, manifest: Manifest, block_size: int | None, engine: str, key: str | None, line: TerminalLine | None
) -> Scanned:
    began = time.monotonic()
    store.reachable(paths)
    plan = PagePlan([str(path.absolute()) for path in paths], block_size=block_size, key=key)
    tasks = {task_name(task): task for task in tasks_of(plan)}
    receipts = Receipts(directory)
    receipts.begin()
    todo = {name: task for name, task in tasks.items() if name not in receipts}
    with closing(_run(todo, directory, engine, key, plan, line)) as made_now:
        for receipt in made_now:
            if receipt["task"] not in todo:
                hint = "install the same version on all nodes"
                raise LeadlineError("unsupported", "a node of the cluster has another leadline", hint=hint)
            receipts.add(receipt)
    made, sha256 = receipts.commit(list(tasks), TABLES)
    for old in (directory / FILES).glob("*"):
        old.unlink()
    plan.write_files(str(directory))
    seen = in_sum(made)
    about = plan.about()
    rows = seen["rows"] | {FILES: about["files"]}
    manifest.tables = {name: _written(directory / name, rows.get(name, 0)) for name in (FILES, *TABLES)}
    manifest.probes["pages"].detail = {"tasks": len(tasks), "receipts": {"file": RECEIPTS, "sha256": sha256}}
    of_directories = Counter(problem["class"] for problem in directories.problems(paths))
    remarks = condition.remarks(str(path) for path in paths)
    summary: Summary = {
        **seen,  # type: ignore[typeddict-item]
        **about,
        "classes": dict(sorted((of_directories + Counter(seen["classes"])).items())),
        "notes": [remark for remark in remarks if not remark["is_error"]],
        "seconds": round(time.monotonic() - began, 3),
    }
    manifest.target.detail = {**summary}
    return Scanned(summary, remarks, len(tasks), len(tasks) - len(todo))


def _run(
    tasks: dict[str, Task], directory: Path, engine: str, key: str | None, plan: PagePlan, line: TerminalLine | None
) -> Generator[Receipt, None, None]:
    """The receipts of tasks, which are given by their names, as they come."""
    if not tasks:
        return
    sizes = {name: size_of(task) for name, task in tasks.items()}
    watch = Watch(sum(sizes.values()), line)
    work = partial(run_task, directory=str(directory.absolute()), key=key)
    if engine == "threads":
        work = partial(work, plan=plan, watch=watch)
    try:
        for receipt in engine_of(engine, threads_here(), watch.ended_early)(tasks.values(), work):
            yield receipt
            watch.at(receipt["task"], sizes.get(receipt["task"], 0))
    finally:
        if line:
            line.done()


def _written(table: Path, rows: int) -> Written:
    sizes = [segment.stat().st_size for segment in table.glob("*.parquet")]
    return {"rows": rows, "bytes": sum(sizes), "segments": len(sizes)}

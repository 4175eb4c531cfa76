"""A scan of pages as tasks: what there is to read, one task of it, and the sum of all."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections import Counter
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from leadline._core.pages import PagePlan, PageRun, backup_list
from leadline.errors import LeadlineError, cannot_be_written
from leadline.files import store
from leadline.files.tasks import ASIDE, Part, Receipt, Task, task_name
from leadline.progress import TerminalLine
from leadline.units import MB

if TYPE_CHECKING:
    from leadline._core.pages import PageRunSummary

TABLES = ("page", "heap_tuple", "index_item")
MOST = 256
WAIT_S = 0.1
COUNTED = ("bytes", "pages", "items", "checksums", "vanished", "shrunk", "written_again", "digests")
BY_NAME = ("kinds", "classes", "rows")


class Watch:
    """How far the tasks of this process are. The bar is drawn by whichever thread has news."""

    def __init__(self, total_bytes: int, line: TerminalLine | None) -> None:
        self.ended_early = Event()
        self._began = time.monotonic()
        self._line = line
        self._total = total_bytes
        self._read = 0
        self._bytes: dict[str, int] = {}
        self._lock = Lock()

    def at(self, task: str, done: int) -> None:
        """A task has read so many bytes."""
        if self._line:
            with self._lock:
                self._read += done - self._bytes.get(task, 0)
                self._bytes[task] = done
                rate = self._read / max(time.monotonic() - self._began, 1e-3) / MB
                self._line.share(self._read, self._total, f"{rate:,.0f} MB/s")


def tasks_of(plan: PagePlan) -> list[Task]:
    """All tasks of a plan, with the state of what they read: when that changes, so does the name of the task."""
    tasks: list[Task] = [dict(task) for task in plan.tasks()]
    for task in tasks:
        if "backup" in task:
            task["state"] = store.state_of(backup_list(task["backup"]))
        else:
            task["files"] = [{**file, "state": store.state_of(file["path"])} for file in task["files"]]
    return tasks


def size_of(task: Task) -> int:
    """How many bytes of pages a task reads."""
    return int(task["bytes"]) if "backup" in task else sum(file["to"] - file["from"] for file in task["files"])


def run_task(
    task: Task, directory: str, *, key: str | None = None, plan: PagePlan | None = None, watch: Watch | None = None
) -> Receipt:
    """Reads the pages of a task, and writes their rows into the tables of a capture directory that is there.

    key: that of encrypted backups. plan: one that the task is of, if it is here: backups need not be listed again then. What another run
    of the same task writes meanwhile is the same.
    """
    name = task_name(task)
    aside = Path(directory, ASIDE, f"{name}.{uuid4().hex}")
    try:
        aside.mkdir()
    except FileNotFoundError as e:
        hint = "all nodes must have the same storage under this path"
        raise LeadlineError("storage", "the directory of the capture is not here", hint=hint, where=directory) from e
    except OSError as e:
        raise cannot_be_written("a part of the capture", e, aside) from e
    try:
        summary = _read(task, name, aside, key, plan, watch)
        parts = [part for table in TABLES for part in _named(Path(directory), aside, table, name)]
    except OSError as e:
        raise cannot_be_written("a part of the capture", e, aside) from e
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return {"task": name, "parts": parts, "summary": {field: summary[field] for field in (*COUNTED, *BY_NAME)}}  # type: ignore[literal-required]


def _read(
    task: Task, name: str, aside: Path, key: str | None, plan: PagePlan | None, watch: Watch | None
) -> PageRunSummary:
    if "backup" in task:
        store.still_reachable(task["backup"])  # in another process it may not be yet
    of = plan if plan is not None and "backup" in task else PagePlan.of_task(task, key=key)
    run = PageRun.of_task(of, task, str(aside))
    while run.take(MOST, WAIT_S) is not None:
        if watch and watch.ended_early.is_set():
            run.stop()
            raise LeadlineError("gone", "the scan was interrupted")
        if watch:
            watch.at(name, run.status()["bytes"])
    if watch:
        watch.at(name, size_of(task))
    return run.finish()


def _named(directory: Path, aside: Path, table: str, name: str) -> list[Part]:
    """The parts of a table, under the names that they keep."""
    parts: list[Part] = []
    for number, segment in enumerate(sorted((aside / table).glob("*.parquet")), 1):
        content = segment.read_bytes()
        file = f"{table}/{name}-{number}.parquet"
        (directory / table).mkdir(exist_ok=True)
        segment.replace(directory / file)
        parts.append({"file": file, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    return parts


def in_sum(receipts: list[Receipt]) -> dict[str, Any]:
    """The summaries of tasks, as one."""
    summed: dict[str, Any] = dict.fromkeys(COUNTED, 0) | {field: Counter() for field in BY_NAME}
    summed["rows"].update(dict.fromkeys(TABLES, 0))
    for receipt in receipts:
        for field in COUNTED:
            summed[field] += receipt["summary"][field]
        for field in BY_NAME:
            summed[field].update(receipt["summary"][field])
    return summed | {field: dict(sorted(summed[field].items())) for field in BY_NAME}

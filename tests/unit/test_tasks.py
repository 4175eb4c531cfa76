"""Tasks in threads, receipts of parts that are not there, and errors that another process tells."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from threading import Event

import pytest
from leadline.errors import LeadlineError
from leadline.files.tasks import Receipt, Task, task_name
from leadline.files.tasks.receipts import Receipts
from leadline.files.tasks.threads import Threads


def receipt_of(task: Task) -> Receipt:
    return {"task": task_name(task), "parts": [], "summary": {}}


def test_threads_run_every_task_once() -> None:
    tasks = [{"n": n} for n in range(50)]
    ended_early = Event()
    found = [receipt["task"] for receipt in Threads(3, ended_early)(tasks, receipt_of)]
    assert sorted(found) == sorted(map(task_name, tasks))
    assert not ended_early.is_set()


def test_the_first_error_ends_all_and_those_that_run_are_told() -> None:
    ended_early, begun, told = Event(), list[int](), list[bool]()

    def work(task: Task) -> Receipt:
        begun.append(task["n"])
        if task["n"] == 1:
            raise LeadlineError("storage", "no room")
        if task["n"] == 0:
            told.append(ended_early.wait(20))  # as a long task asks now and then
        return receipt_of(task)

    with pytest.raises(LeadlineError, match="no room"):
        list(Threads(2, ended_early)(({"n": n} for n in range(10)), work))
    assert (sorted(begun), told) == ([0, 1], [True])


def test_names_of_tasks_are_those_of_what_they_read() -> None:
    assert task_name({"a": 1, "b": [2]}) == task_name({"b": [2], "a": 1})
    assert task_name({"a": 1}) != task_name({"a": 2})


def test_a_part_that_another_node_wrote_elsewhere_is_an_error(tmp_path: Path) -> None:
    receipts = Receipts(tmp_path)
    receipts.begin()
    part = {"file": "page/x-1.parquet", "bytes": 3, "sha256": ""}
    with pytest.raises(LeadlineError) as caught:
        receipts.add({"task": "x", "parts": [part], "summary": {}})  # type: ignore[list-item]
    assert (caught.value.message, caught.value.where) == ("a part that a task wrote is not here", str(tmp_path / "page/x-1.parquet"))
    assert "x" not in receipts


def test_a_part_whose_bytes_are_not_what_was_written_is_made_again(tmp_path: Path) -> None:
    """As after a power loss: the length is right."""
    receipts, parts = Receipts(tmp_path), [tmp_path / "page/x-1.parquet", tmp_path / "page/y-1.parquet"]
    receipts.begin()
    parts[0].parent.mkdir()
    for task, path in zip("xy", parts, strict=True):
        path.write_bytes(b"PAR1")
        sha256 = hashlib.sha256(b"PAR1").hexdigest()
        receipts.add({"task": task, "parts": [{"file": f"page/{path.name}", "bytes": 4, "sha256": sha256}], "summary": {}})
    parts[1].write_bytes(bytes(4))
    again = Receipts(tmp_path)
    assert ("x" in again, "y" in again) == (True, False)


def test_an_error_is_the_same_in_another_process() -> None:
    error = LeadlineError("rights", "not allowed", "why", "what to do", "where")
    assert pickle.loads(pickle.dumps(error)).as_dict() == error.as_dict()

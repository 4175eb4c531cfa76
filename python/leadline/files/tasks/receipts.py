"""Receipts of tasks on disk: added as they come, so that a run that was ended goes on where it was, and put in order at the end.

The directory has a line of JSON for each task in RECEIPTS. Whoever writes it holds the lock of the directory.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from leadline.errors import LeadlineError, cannot_be_written
from leadline.files.tasks import ASIDE, Part, Receipt
from leadline.replacing import write_durably

RECEIPTS = "receipts.jsonl"


class Receipts:
    """Of one directory. A receipt of an earlier run is believed if its parts are there and have its SHA-256."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / RECEIPTS
        self._found = {r["task"]: r for r in self._read() if self._missing(r) is None and self._is_as_made(r)}

    def __contains__(self, task: str) -> bool:
        return task in self._found

    def _read(self) -> Iterator[Receipt]:
        """A line may be cut off: whoever wrote it was ended. Its task is then run again."""
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as e:
            raise LeadlineError("storage", "cannot read the receipts", detail=str(e), where=str(self._path)) from e
        yield from filter(None, map(_parsed, lines))

    def _missing(self, receipt: Receipt) -> str | None:
        """The first of its parts that is not there with its length."""
        for part in receipt["parts"]:
            try:
                if (self._directory / part["file"]).stat().st_size == part["bytes"]:
                    continue
            except OSError:  # missing, or not to be looked at
                pass
            return part["file"]
        return None

    def _is_as_made(self, receipt: Receipt) -> bool:
        """After a power loss, a file may have its length but not its bytes."""
        try:
            for part in receipt["parts"]:
                with (self._directory / part["file"]).open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != part["sha256"]:
                        return False
        except OSError:
            return False
        return True

    def add(self, receipt: Receipt) -> None:
        """Of a task that ended. Raises LeadlineError when its parts are not here."""
        if missing := self._missing(receipt):
            hint = "all nodes must have the same storage under this path"
            raise LeadlineError("storage", "a part that a task wrote is not here", hint=hint, where=str(self._directory / missing))
        self._found[receipt["task"]] = receipt
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(receipt))
        except OSError as e:
            raise cannot_be_written("the receipts", e, self._path) from e

    def begin(self) -> None:
        """Leaves only the receipts that are believed, and nothing that tasks of before left half done."""
        self._write(list(self._found.values()))
        shutil.rmtree(self._directory / ASIDE, ignore_errors=True)
        (self._directory / ASIDE).mkdir()

    def commit(self, tasks: list[str], tables: tuple[str, ...]) -> tuple[list[Receipt], str]:
        """The receipts of these tasks in their order, and the SHA-256 of the file that then has exactly them. In the folders of the
        tables, only their parts stay. Raises LeadlineError when a task has none."""
        if missing := sum(task not in self._found for task in tasks):
            detail = f"{missing} of {len(tasks)}: not run, or by another leadline, which names tasks otherwise"
            hint = "install the same version on all nodes"
            raise LeadlineError("gone", "tasks have no receipt", detail=detail, hint=hint, where=str(self._path))
        receipts = [self._found[task] for task in tasks]
        content = self._write(receipts)
        parts = {part["file"] for receipt in receipts for part in receipt["parts"]}
        for table in tables:
            for file in (self._directory / table).glob("*"):
                if f"{table}/{file.name}" not in parts:
                    file.unlink()
        shutil.rmtree(self._directory / ASIDE, ignore_errors=True)
        return receipts, hashlib.sha256(content).hexdigest()

    def _write(self, receipts: list[Receipt]) -> bytes:
        content = "".join(map(_line, receipts)).encode()
        try:
            write_durably(self._path, content)
        except OSError as e:
            raise cannot_be_written("the receipts", e, self._path) from e
        return content


def _parsed(line: bytes) -> Receipt | None:
    try:
        receipt = json.loads(line)
        parts: list[Part] = [{"file": str(p["file"]), "bytes": int(p["bytes"]), "sha256": str(p["sha256"])} for p in receipt["parts"]]
        return {"task": str(receipt["task"]), "parts": parts, "summary": dict(receipt["summary"])}
    except (ValueError, TypeError, KeyError):
        return None


def _line(receipt: Receipt) -> str:
    return json.dumps(receipt, sort_keys=True) + "\n"

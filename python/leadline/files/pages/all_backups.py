"""Every backup of a repository, checked one after the other: what is one line for each, and what a stopped run has done already."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from leadline._core.pages import backup_list, backups_in
from leadline.errors import LeadlineError
from leadline.figures import count
from leadline.files import store
from leadline.files.pages.run import Pages
from leadline.files.pages.summary import is_part
from leadline.files.store_path import path_of
from leadline.output import to_json
from leadline.progress import TerminalLine
from leadline.units import MB
from leadline.whole import read_whole

if TYPE_CHECKING:
    from leadline.files.pages.run import Summary

MOST = 64 * MB  # of a state file
BEGIN = b'{"backup": '  # of each of its lines
Result = Literal["sound", "problems", "not checked"]


class Outcome(TypedDict):
    """Of one backup. list: the size and time of the file that says what is in it. message: why it could not be checked."""

    backup: str
    list: list[int]
    result: Result
    problems: int
    classes: dict[str, int]
    files: int
    pages: int
    bytes: int
    checksums: int
    digests: int
    seconds: float
    message: str
    hint: str


def check_all(
    repositories: list[Path], state: Path | None, *, block_size: int | None, key: str | None, progress: TerminalLine | None
) -> Iterator[tuple[Outcome, bool]]:
    """The outcome of each backup, and whether it is from an earlier run: of those in `state` whose list has not changed.

    Outcomes are added to `state` as they come. Raises LeadlineError: no backups, a state file that cannot be read or written.
    """
    store.reachable(repositories)
    backups = list(dict.fromkeys(backup for repository in repositories for backup in backups_in(str(repository))))
    done = _read(state) if state else {}
    for backup in backups:
        seen = store.state_of(backup_list(backup))  # empty when it was removed meanwhile: the check says so
        before = done.get(backup)
        if before is not None and before["list"] == seen:
            yield before, True
            continue
        outcome = _check(backup, seen, block_size, key, progress)
        if state:
            _append(state, outcome)
        yield outcome, False


def _check(backup: str, seen: list[int], block_size: int | None, key: str | None, progress: TerminalLine | None) -> Outcome:
    try:
        pages = Pages([path_of(backup)], block_size=block_size, key=key, progress=progress)
        for _ in pages:
            pass
    except LeadlineError as e:
        return _outcome(backup, seen, None, ": ".join(filter(None, [e.message, e.detail])), e.hint)
    return _outcome(backup, seen, pages.summary)


def _outcome(backup: str, seen: list[int], summary: Summary | None, message: str = "", hint: str = "") -> Outcome:
    result: Result = "not checked" if summary is None else "problems" if summary["classes"] or is_part(summary) else "sound"
    return {
        "backup": backup,
        "list": seen,
        "result": result,
        "problems": sum(summary["classes"].values()) if summary else 0,
        "classes": summary["classes"] if summary else {},
        "files": summary["files"] if summary else 0,
        "pages": summary["pages"] if summary else 0,
        "bytes": summary["bytes"] if summary else 0,
        "checksums": summary["checksums"] if summary else 0,
        "digests": summary["digests"] if summary else 0,
        "seconds": summary["seconds"] if summary else 0.0,
        "message": message,
        "hint": hint,
    }


def line(outcome: Outcome, is_earlier: bool) -> str:
    """For people."""
    earlier = " (checked before)" if is_earlier else ""
    if outcome["result"] == "not checked":
        hint = f"; hint: {outcome['hint']}" if outcome["hint"] else ""
        return f"{outcome['backup']}: not checked: {outcome['message']}{hint}{earlier}"
    seen = f"{count(outcome['pages'], 'page')} in {count(outcome['files'], 'file')}"
    if outcome["result"] == "sound":
        return f"{outcome['backup']}: no problems in {seen}{earlier}"
    classes = ", ".join(f"{number:,} {name}" for name, number in outcome["classes"].items()) or "a tablespace is missing"
    return f"{outcome['backup']}: problems: {classes}, in {seen}{earlier}"


def _read(state: Path) -> dict[str, Outcome]:
    """What earlier runs found. The last line may be cut off: whoever wrote it was ended. Other files are not touched."""
    try:
        lines = read_whole(state, MOST).splitlines(keepends=True)
    except LeadlineError as e:
        if e.kind == "not_found":
            return {}
        raise
    found: dict[str, Outcome] = {}
    for number, text in enumerate(lines, 1):
        try:
            outcome = json.loads(text)
            found[outcome["backup"]] = {key: outcome[key] for key in Outcome.__annotations__}  # type: ignore[assignment]
        except (ValueError, TypeError, KeyError) as e:
            if text.endswith(b"\n") or text[: len(BEGIN)] != BEGIN[: len(text)]:
                hint = "give the file that an earlier --state wrote, or a new one"
                raise LeadlineError("invalid", f"line {number} of the state file is no outcome", hint=hint, where=str(state)) from e
    return found


def _append(state: Path, outcome: Outcome) -> None:
    text = to_json(outcome) + "\n"
    try:
        with state.open("a+b") as file:
            _drop_cut_line(file.fileno())
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as e:
        raise LeadlineError("storage", "cannot write the state file", detail=str(e), where=str(state)) from e


def _drop_cut_line(file: int) -> None:
    """Of a run that was ended while it wrote."""
    size = os.fstat(file).st_size
    tail = os.pread(file, 1 << 16, max(0, size - (1 << 16)))
    os.ftruncate(file, size - len(tail) + tail.rfind(b"\n") + 1)


def exit_code(outcomes: list[Outcome]) -> int:
    """2: a backup could not be checked; 1: one has problems; 0: all are sound."""
    worst: dict[Result, int] = {"not checked": 2, "problems": 1, "sound": 0}
    return max(worst[outcome["result"]] for outcome in outcomes)

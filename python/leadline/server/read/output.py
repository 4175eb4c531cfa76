"""Operations on what a run printed and made: pages of its output, the whole of it, files, reports of captures."""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.book.packed import log_size, open_log, size_of
from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.server.operation import Call, Input, Operation
from leadline.server.read import sandbox
from leadline.server.read.exploring import QUESTIONS, explored
from leadline.server.read.reports import report_page
from leadline.server.read.runs import ENDED, RUN

LOG_PAGE, LONGEST_LOG_PAGE = 64 << 10, 1 << 20


@dataclass(frozen=True)
class Follow:
    """The output of a run from a byte on, to be sent as it comes. The sender asks now and then whether the caller may still see it."""

    uid: str
    place: Place
    start: int
    follow: bool
    in_parts: bool


@dataclass(frozen=True)
class File:
    """A file to be sent, by a descriptor that is open already."""

    fd: int
    name: str
    size: int


@dataclass(frozen=True)
class Page:
    """An HTML page made by leadline, that needs scripts of its own: sent so that it has no rights of this site. As File."""

    fd: int
    name: str
    size: int


def _log(call: Call, inputs: dict[str, Any]) -> Any:
    """A page of whole lines where lines are not too long for it."""
    try:
        with open_log(call.place, call.found["uid"]) as file:
            size = size_of(file)
            start = min(size, inputs["from"] if inputs["from"] >= 0 else max(0, size + inputs["from"]))
            if inputs["from"] < 0 and start > 0:
                file.seek(start - 1)
                start += len(file.readline(LOG_PAGE)) - 1  # to the beginning of a line
            file.seek(start)
            piece = cut(file.read(inputs["bytes"]), whole=False)
    except FileNotFoundError:
        size, start, piece = 0, 0, b""
    return {
        "run": call.found["uid"],
        "from": start,
        "next": start + len(piece),
        "size": size,
        "ended": call.found["status"] in ENDED,
        **as_text(piece),
    }


def as_text(piece: bytes) -> dict[str, str]:
    """text, or base64 where it is not UTF-8: what is sent can always be made the bytes of the file again."""
    try:
        return {"text": piece.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(piece).decode()}


def cut(piece: bytes, *, whole: bool) -> bytes:
    """Up to the end of the last line; all of it if that is the end of the file (whole), or one line that is longer than a piece."""
    if whole:
        return piece
    end = piece.rfind(b"\n") + 1
    if end:
        return piece[:end]
    back = next((n for n in range(1, min(4, len(piece)) + 1) if piece[-n] & 0xC0 != 0x80), 0)  # not within a character
    return piece[:-back] if 0 < back < len(piece) and piece[-back] >= 0xC0 else piece


def _output(call: Call, inputs: dict[str, Any]) -> Follow:
    size = log_size(call.place, call.found["uid"])
    start = inputs["from"] if inputs["from"] >= 0 else max(0, size + inputs["from"])
    return Follow(call.found["uid"], call.place, start, bool(inputs.get("follow", True)), inputs.get("form") == "parts")


def _artifact(call: Call, inputs: dict[str, Any]) -> dict[str, Any]:
    row = (
        call.one("select * from artifact where run = ? and n = ?", call.found["id"], inputs["n"]) if call.found["id"] is not None else None
    )
    if row is None:
        raise LeadlineError("not_found", f"run {call.found['uid']} has no file {inputs['n']}", hint="leadline book show")
    return row


def _file(call: Call, inputs: dict[str, Any]) -> File:
    path = Path(_artifact(call, inputs)["path"])
    gone = LeadlineError("not_found", "the file no longer exists, or is not a regular file")
    if not path.is_absolute() or os.path.realpath(path) != str(path) or str(path).startswith(("/proc/", "/sys/", "/dev/")):
        raise gone
    root = Path(os.path.realpath(call.place.root))
    if path.is_relative_to(root) and not path.is_relative_to(root / "work"):  # the store, the key of secrets, logs of other runs
        raise gone
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        raise gone from None
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        os.close(fd)
        raise gone
    return File(fd, path.name, about.st_size)


def _report(call: Call, inputs: dict[str, Any]) -> Page:
    row = _artifact(call, inputs)
    page = report_page(call.place, call.found["uid"], row)
    fd = os.open(page, os.O_RDONLY | os.O_CLOEXEC)
    return Page(fd, f"{Path(row['path']).stem}.html", os.fstat(fd).st_size)


def _explore(call: Call, inputs: dict[str, Any]) -> Any:
    return explored(Path(_artifact(call, inputs)["path"]), inputs["question"], inputs["state"] or "")


def _verify(call: Call, _inputs: dict[str, Any]) -> Any:
    from leadline.book.evidence import DIFFERS

    run = call.found
    if run["id"] is None or run["status"] not in ENDED:
        raise LeadlineError("usage", f"run {run['uid']} has not ended")
    checks = sandbox.verified(call.place, run["uid"])
    return {"run": run["uid"], "checks": checks, "differing": sum(check["state"] in DIFFERS for check in checks)}


FROM = Input("from", "begin at this byte; negative: so many before the end", "int", False, 0)
N = Input("n", "number of the file in the run", "int", least=0)
OPERATIONS = (
    Operation(
        "run.log",
        "GET",
        "/runs/{run}/log",
        "viewer",
        "run",
        "Get a page of what a run printed.",
        _log,
        (RUN, FROM, Input("bytes", "most bytes", "int", False, LOG_PAGE, least=1, most=LONGEST_LOG_PAGE)),
        command="book log",
    ),
    Operation(
        "run.output",
        "GET",
        "/runs/{run}/output",
        "viewer",
        "run",
        "Get what a run printed, byte for byte; with follow=true until it ends.",
        _output,
        (RUN, FROM, Input("follow", "go on until the run ends", "bool", False, False)),
        command="book log",
    ),
    Operation(
        "run.stream",
        "GET",
        "/runs/{run}/stream",
        "viewer",
        "run",
        "Follow the output as server-sent events; the id of each is a byte offset.",
        _output,
        (RUN, FROM, Input("form", "text, or lines in coloured parts as pages show them", "enum", False, "text", ("text", "parts"))),
        command="book log",
    ),
    Operation(
        "run.file", "GET", "/runs/{run}/files/{n}", "viewer", "run", "Get a file that a run made.", _file, (RUN, N), command="book show"
    ),
    Operation(
        "run.report",
        "GET",
        "/runs/{run}/files/{n}/report",
        "viewer",
        "run",
        "Get the report of a capture that a run made.",
        _report,
        (RUN, N),
        command="report",
        slow=True,
    ),
    Operation(
        "run.explore", "GET", "/runs/{run}/files/{n}/explore/{question}", "viewer", "run",
        "Ask a capture that a run made what the page of `leadline explore` asks.", _explore,
        (RUN, N, Input("question", "which of the page's questions; opening: how far the capture is opened", "enum", choices=QUESTIONS),
         Input("state", "window and filters, as the address of the page has them: from=10&to=20&class=Lock", required=False)),
        command="explore", slow=True,
    ),
    Operation(
        "run.verify", "GET", "/runs/{run}/evidence", "viewer", "run", "Check that what a run made and printed was not changed since.",
        _verify, (RUN,), rows="checks", columns=("what", "name", "state", "detail"), command="book verify", slow=True,
    ),
)  # fmt: skip

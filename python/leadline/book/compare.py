"""What differs between two runs: how they were called, what they were given and found, what they measured and printed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leadline.book.log import Log
from leadline.book.query import Book, printable
from leadline.book.shown import without_escapes
from leadline.errors import LeadlineError

COLUMNS = ("kind", "name", "status", "rc", "signal", "user_name", "host", "cwd", "version", "summary")
MOST_DIFF_LINES = 40
LOOKED_AT = 1 << 20  # bytes of each log, and
LINES_LOOKED_AT = 5000  # lines: to compare takes more than their number


Named = dict[str, str]


@dataclass(frozen=True)
class Difference:
    """part: run, argument, input, label, fact, file, metric, setting, finding, output. Values: None where there is none.

    lines: of a text, those that differ, as `diff -u` prints them.
    """

    part: str
    name: str
    one: Any
    other: Any
    lines: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def of_capture(path: str) -> tuple[Named, Named]:
    """Settings of the server, and the severity of each finding."""
    from leadline.capture.reader import open_capture
    from leadline.findings import evaluate

    capture = open_capture(path, hold=True)
    try:
        settings = {}
        if capture.unavailable("setting") is None:
            rows = capture.rows("select name, setting, unit from setting")
            settings = {row["name"]: f"{row['setting']} {row['unit']}".strip() for row in rows}
        return settings, {f"{f.id} {f.subject}": f.severity for f in evaluate(capture).findings}
    finally:
        capture.close()


def compare(
    book: Book, one: dict[str, Any], other: dict[str, Any], read: Callable[[str], tuple[Named, Named]] = of_capture
) -> list[Difference]:
    """All that differs between two runs of the book (of `details`). read: how what is compared of a capture is found."""
    runs = (one, other)
    found = [Difference("run", name, one[name], other[name]) for name in COLUMNS if one[name] != other[name]]
    arguments = ({f"{at}": word for at, word in enumerate(run["argv"])} for run in runs)
    found += _named("argument", *arguments)
    for part in ("inputs", "labels", "facts", "metrics"):
        found += _named(part[:-1], one[part], other[part])
    found += _files(book, one, other)
    found += _captures(one, other, read)
    found += _output(book, one, other)
    return found


def _named(part: str, one: dict[str, Any], other: dict[str, Any]) -> list[Difference]:
    names = [*one, *(name for name in other if name not in one)]
    return [Difference(part, name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)]


def _files(book: Book, one: dict[str, Any], other: dict[str, Any]) -> Iterator[Difference]:
    """Files that the runs were given. Those without a hash were too large to read: their size and time count."""
    a, b = ({file["path"]: file for file in run["files"]} for run in (one, other))
    for path in sorted({*a, *b}):
        first, second = a.get(path), b.get(path)
        same = ("hash", "size") if first and second and first["hash"] and second["hash"] else ("size", "modified")
        if first and second and all(first[key] == second[key] for key in same):
            continue
        texts = [book.content(file["hash"]) if file else None for file in (first, second)]
        lines = _diff(texts[0].splitlines(), texts[1].splitlines()) if texts[0] is not None and texts[1] is not None else ()
        yield Difference("file", path, _version(first), _version(second), lines)


def _version(file: dict[str, Any] | None) -> str | None:
    return None if file is None else f"{file['size']} bytes, sha256 {(file['hash'] or 'unknown')[:12]}"


def _captures(one: dict[str, Any], other: dict[str, Any], read: Callable[[str], tuple[Named, Named]]) -> list[Difference]:
    """Settings of the server and findings, where each run has made one capture that is still there."""
    paths = [[a["path"] for a in run["artifacts"] if a["kind"] == "capture" and Path(a["path"]).is_dir()] for run in (one, other)]
    if any(len(found) != 1 for found in paths) or paths[0] == paths[1]:
        return []
    try:
        first, second = (read(found[0]) for found in paths)
    except LeadlineError:
        return []
    return _named("setting", first[0], second[0]) + _named("finding", first[1], second[1])


def _output(book: Book, one: dict[str, Any], other: dict[str, Any]) -> list[Difference]:
    """How the outputs differ, in their first part."""
    heads, sizes = list[bytes](), list[int | None]()
    for run in (one, other):
        try:
            log = Log(book.place, run["uid"])
        except OSError:
            heads.append(b"")
            sizes.append(None)
            continue
        heads.append(b"".join(log.pieces(0, LOOKED_AT)))
        sizes.append(log.size)
        log.close()
    if heads[0] == heads[1] and sizes[0] == sizes[1]:
        return []
    plain = [without_escapes(head.decode("utf-8", "replace")) for head in heads]
    texts = [[printable(line) for line in text.splitlines()[:LINES_LOOKED_AT]] for text in plain]
    said = [None if size is None else f"{size:,} bytes" for size in sizes]
    return [Difference("output", "log", said[0], said[1], _diff(*texts))]


def _diff(one: list[str], other: list[str]) -> tuple[str, ...]:
    lines = list(difflib.unified_diff(one, other, n=1, lineterm=""))[2:]
    left = len(lines) - MOST_DIFF_LINES
    return (*lines[:MOST_DIFF_LINES], *([f"... {left} more lines"] if left > 0 else []))

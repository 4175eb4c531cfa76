"""One run as one HTML file that opens offline: what it was, what it was given, made and printed, with the reports of its captures."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from leadline.book.log import Log
from leadline.book.query import Book
from leadline.book.redact import redact_text
from leadline.errors import LeadlineError
from leadline.figures import quantity, seconds

LOG_HEAD = LOG_TAIL = 512 << 10  # bytes of an output that are in the file
MOST_CAPTURES = 3
_ESCAPES = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[@-_])")
Table = tuple[str, str, list[str], list[list[Any]]]


def export(book: Book, run: dict[str, Any]) -> str:
    """The page of a run of the book (of `details`). Values of names that say secret are hidden, also in its output."""
    import jinja2

    from leadline.version import version
    from leadline.views.report.model import files

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["seconds"] = seconds
    log, left_out = _log(book, run["uid"])
    tables, captures = [table for table in _tables(book, run) if table[3]], _captures(run)
    parts = [("command", "Command"), *((table[0], table[1]) for table in tables)]
    parts += [("output", "Output")] * (log is not None) + [(f"capture{n}", "Capture") for n in range(1, len(captures) + 1)]
    ended = "" if run["rc"] in (0, None) else f" (exit code {run['rc']})"
    return environment.get_template("export.html.j2").render(
        run=run, version=version(), style=files()["style.css"], parts=parts, tables=tables, log=log, left_out=left_out, captures=captures,
        how=run["status"] + (f" (signal {run['signal']})" if run["signal"] else ended), command=_plain(shlex.join(run["argv"])),
        when=datetime.fromtimestamp(run["started"] / 1e6, timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
        files=[(file["path"], _plain(text)) for file in run["files"] if (text := book.content(file["hash"])) is not None],
    )  # fmt: skip


def _tables(book: Book, run: dict[str, Any]) -> list[Table]:
    def named(key: str, title: str, values: dict[str, Any]) -> Table:
        return key, title, ["name", "value"], [[name, _plain(value)] for name, value in values.items()]

    artifacts = [[a["kind"], a["path"], quantity(a["size"], "B"), a["hash"] or ""] for a in run["artifacts"]]
    children = [[c["uid"], c["name"], c["status"], c["summary"]] for c in map(book.find, run["children"])]
    given = [[f["path"], quantity(f["size"], "B"), f["hash"] or ""] for f in run["files"]]
    return [
        named("inputs", "Inputs", run["inputs"]),
        named("labels", "Labels", run["labels"]),
        *_playbook(book, run),
        ("artifacts", "Made", ["kind", "path", "size", "sha256"], artifacts),
        ("children", "Parts", ["run", "name", "status", "summary"], children),
        ("files", "Files it was given", ["path", "size", "sha256"], given),
        named("metrics", "Cost", run["metrics"]),
        named("facts", "Host", run["facts"]),
    ]


def _playbook(book: Book, run: dict[str, Any]) -> list[Table]:
    """Tasks and results of a run of Ansible."""
    if run["kind"] != "ansible":
        return []
    from leadline.book.ansible import query
    from leadline.book.ansible.ingest import TOTALS

    hosts = [[h["host"], *(h[name] for name in TOTALS)] for h in query.hosts(book, run)]
    tasks = [[t["n"], t["name"], t["action"], t["place"], t["results"]] for t in query.tasks(book, run)]
    shown = query.results(book, run, parts=("result", "item", "retry"))
    results = [[r["task_name"], r["host"], r["item"] or "", r["outcome"], _plain(r["message"] or "")] for r in shown]
    return [
        ("hosts", "Hosts", ["host", *TOTALS], hosts),
        ("tasks", "Tasks", ["", "task", "action", "place", "results"], tasks),
        ("results", "Results", ["task", "host", "item", "outcome", "message"], results),
    ]


def _log(book: Book, uid: str) -> tuple[str | None, int]:
    """The output as plain text, and how many bytes of its middle are left out."""
    try:
        log = Log(book.place, uid)
    except OSError:
        return None, 0
    size = log.size
    try:
        if size <= LOG_HEAD + LOG_TAIL:
            return _plain(b"".join(log.pieces()).decode("utf-8", "replace")), 0
        head, tail = (b"".join(log.pieces(at, length)) for at, length in ((0, LOG_HEAD), (size - LOG_TAIL, LOG_TAIL)))
    finally:
        log.close()
    return _plain(head.decode("utf-8", "replace") + "\n[...]\n" + tail.decode("utf-8", "replace")), size - LOG_HEAD - LOG_TAIL


def _plain(value: Any) -> str:
    """Without escape sequences, control characters and what is named as a secret."""
    text = _ESCAPES.sub("", str(value).replace("\r\n", "\n"))
    return redact_text("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text))


def _captures(run: dict[str, Any]) -> list[tuple[str, str]]:
    """Reports of the captures that the run made and that are still there: the same sections as everywhere."""
    from leadline.capture.reader import open_capture
    from leadline.findings import evaluate
    from leadline.views.report import render
    from leadline.views.report.model import build

    out = []
    for path in [a["path"] for a in run["artifacts"] if a["kind"] == "capture"][:MOST_CAPTURES]:
        try:
            capture = open_capture(path, hold=True)
        except LeadlineError:
            continue
        try:
            out.append((path, render(build(capture, evaluate(capture)))))
        finally:
            capture.close()
    return out

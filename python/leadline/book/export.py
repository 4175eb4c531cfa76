"""Runs to hand on, which open offline. One is an HTML file: what it was, what it was given, made and printed, with the reports of its
captures. Several are a zip file of such, with a page that lists them and a Parquet file of their figures."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leadline.book.log import Log
from leadline.book.query import Book
from leadline.book.redact import HIDDEN, is_secret, redact_text
from leadline.book.shown import visible_lines, without_escapes
from leadline.errors import LeadlineError
from leadline.figures import seconds
from leadline.units import sized

LOG_HEAD = LOG_TAIL = 512 << 10  # bytes of an output that are in the file
MOST_CAPTURES = 3
Table = tuple[str, str, list[str], list[list[Any]]]


def report_of(path: str) -> str:
    """As views.report.report_of, imported when there is a capture."""
    from leadline.views.report import report_of as made

    return made(path)


def export(book: Book, run: dict[str, Any], report: Callable[[str], str] = report_of) -> str:
    """The page of a run of the book (of `details`). Values of names that say secret are hidden, also in its output.

    report: how the page of a capture is made.
    """
    import jinja2

    from leadline.version import version
    from leadline.views.report.model import files

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: visible_lines(value) if type(value) is str else value,
    )  # fmt: skip
    environment.filters["seconds"] = seconds
    log, left_out = _log(book, run["uid"])
    tables, captures = [table for table in _tables(book, run) if table[3]], _captures(run, report)
    parts = [("command", "Command"), *((table[0], table[1]) for table in tables)]
    parts += [("output", "Output")] * (log is not None) + [(f"capture{n}", "Capture") for n in range(1, len(captures) + 1)]
    ended = "" if run["rc"] in (0, None) else f" (exit code {run['rc']})"
    asked = _designed(book, run)
    parts[1:1] = [("experiment", asked["title"])] if asked is not None else []
    return environment.get_template("export.html.j2").render(
        experiment=asked,
        run=run, version=version(), style=files()["style.css"], parts=parts, tables=tables, log=log, left_out=left_out, captures=captures,
        how=run["status"] + (f" (signal {run['signal']})" if run["signal"] else ended), command=_plain(shlex.join(run["argv"])),
        when=_utc(run["started"]),
        files=[(file["path"], _plain(text)) for file in run["files"] if (text := book.content(file["hash"])) is not None],
    )  # fmt: skip


def _designed(book: Book, run: dict[str, Any]) -> dict[str, str] | None:
    """What an experiment or a study asked and found, in lines, and its drawings."""
    from leadline.book.experiments import query, studies, study_text, text
    from leadline.book.experiments.drawing import drawing, drawings

    if run["kind"] == "study" and (of := studies.study(book.store, run)) is not None:
        rows = of["judged"]["effects"] if of["judged"] is not None else []
        return {"title": "Study", "text": _plain("\n".join(study_text.lines(of))), "drawing": "".join(drawings(rows, of["design"]))}
    if run["kind"] != "experiment":
        return None
    found = query.experiment(book.store, run, lambda row: row["project"] == run["project"])
    if found is None:
        return None
    return {"title": "Experiment", "text": _plain("\n".join(text.lines(found))), "drawing": drawing(found)}


def _tables(book: Book, run: dict[str, Any]) -> list[Table]:
    def named(key: str, title: str, values: dict[str, Any]) -> Table:
        return key, title, ["name", "value"], [[name, _named(name, value)] for name, value in values.items()]

    artifacts = [[a["kind"], a["path"], sized(a["size"]), a["hash"] or ""] for a in run["artifacts"]]
    children = [[c["uid"], c["name"], c["status"], c["summary"]] for c in map(book.find, run["children"])]
    given = [[f["path"], sized(f["size"]), f["hash"] or ""] for f in run["files"]]
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
    kept = [[r["key"], r["host"], _named(r["key"], query.text_of(r["value"]))] for r in query.records(book, run)]
    return [
        ("hosts", "Hosts", ["host", *TOTALS], hosts),
        ("tasks", "Tasks", ["", "task", "action", "place", "results"], tasks),
        ("results", "Results", ["task", "host", "item", "outcome", "message"], results),
        ("records", "Values that it kept", ["name", "host", "value"], kept),
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
    text = without_escapes(str(value).replace("\r\n", "\n"))
    return redact_text("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text))


def _named(name: str, value: Any) -> str:
    return HIDDEN if is_secret(name) else _plain(value)


def _captures(run: dict[str, Any], report: Callable[[str], str]) -> list[tuple[str, str]]:
    """Reports of the captures that the run made and that are still there: the same sections as everywhere."""
    out = []
    for path in [a["path"] for a in run["artifacts"] if a["kind"] == "capture"][:MOST_CAPTURES]:
        with suppress(LeadlineError):
            out.append((path, report(path)))
    return out


# What is in runs.parquet of a zip file: one row for each run, with its labels and metrics.
COLUMNS = {
    "uid": "varchar", "kind": "varchar", "name": "varchar", "status": "varchar", "host": "varchar", "user_name": "varchar",
    "started": "bigint", "ended": "bigint", "duration_s": "double", "rc": "bigint", "signal": "bigint", "summary": "varchar",
    "argv": "varchar[]", "labels": "map(varchar, varchar)", "metrics": "map(varchar, double)",
}  # fmt: skip


def export_zip(book: Book, runs: list[dict[str, Any]]) -> bytes:
    """A zip file: index.html, a page for each run, and runs.parquet."""
    import io
    import zipfile

    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as out:
        details = []
        for run in runs:
            details.append(book.details(run))
            out.writestr(f"runs/{run['uid']}.html", export(book, details[-1]).encode("utf-8", "replace"))
        out.writestr("index.html", _index(details))
        out.writestr("runs.parquet", _parquet(details))
    return file.getvalue()


def _index(runs: list[dict[str, Any]]) -> str:
    import jinja2

    from leadline.version import version
    from leadline.views.report.model import files

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"seconds": seconds, "plain": _plain, "utc": _utc}
    return environment.get_template("export_index.html.j2").render(runs=runs, version=version(), style=files()["style.css"])


def _utc(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _parquet(runs: list[dict[str, Any]]) -> bytes:
    import json
    import tempfile

    from leadline.duck import duckdb

    with tempfile.TemporaryDirectory() as directory:
        rows, file = Path(directory, "runs.json"), Path(directory, "runs.parquet")
        hidden = ({**run, "summary": _plain(run["summary"]), "labels": {k: _named(k, v) for k, v in run["labels"].items()}} for run in runs)
        rows.write_text("".join(json.dumps({name: run[name] for name in COLUMNS}) + "\n" for run in hidden))
        columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
        source = f"read_json('{rows}', format = 'newline_delimited', columns = {{{columns}}})"
        with duckdb.connect() as db:
            db.execute(f"copy (select * from {source}) to '{file}' (format parquet)")
        return file.read_bytes()

"""What a server reads of captures and other evidence, it reads in a process of its own, with a bound on memory, time and what is written.

A capture may come from anywhere, and a few kilobytes of Parquet may stand for gigabytes; the metric of an experiment is a pattern that may
take for ever. What they do to who reads them must not be done to the server. This file is both sides: `report`, `compared` and `verified`
start the process, `main` is what runs in it. What the page of `explore` asks is answered by a process that stays: exploring.py.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from leadline.book.place import OFF, SCHEMES, VARIABLE, Place
from leadline.errors import LeadlineError

MEMORY = 2 << 30  # of DuckDB: what a large capture needs, with some to spare (capture/hold.py); and of the whole process
PROCESS_MEMORY = 4 << 30
AT_ONCE = 2
THREADS = 2
PATIENCE_S = 60
MOST_BYTES = 256 << 20  # of a report
SCRATCH = "leadline-reader-"  # begins the name of a directory that goes with its process


_places = threading.Semaphore(AT_ONCE)
CAPTURE, EVIDENCE, TOO_LITTLE = "the capture", "the evidence", "It takes more memory."
SUBJECT = {"report": CAPTURE, "compared": CAPTURE, "explored": CAPTURE, "verified": EVIDENCE}
WITHOUT_BOUNDS = {
    "report": "if you trust the capture: leadline report CAPTURE has no such bounds",
    "compared": "if you trust the capture: leadline report CAPTURE has no such bounds",
    "explored": "if you trust the capture: leadline explore CAPTURE has no such bounds",
    "verified": "leadline book verify RUN has no such bounds",
}


def report(capture: Path, page: Path) -> None:
    """Writes the report of a capture. Raises LeadlineError."""
    _ask("report", str(capture), str(page))


def compared(capture: str) -> tuple[dict[str, str], dict[str, str]]:
    """As book.compare.of_capture. Raises LeadlineError."""
    settings, findings = _ask("compared", capture)
    return settings, findings


def verified(place: Place, uid: str) -> list[dict[str, str]]:
    """As book.evidence.verify of a run of this book, as dictionaries. Raises LeadlineError."""
    checks: list[dict[str, str]] = _ask("verified", place.directory, uid, book=place.variable)
    return checks


def _ask(what: str, *words: str, book: str = OFF) -> Any:
    """book: goes into the environment, as its address may have a password."""
    line = [sys.executable, "-m", __name__, what, *words]
    try:
        with _places:
            environment = {**os.environ, VARIABLE: book}
            done = subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise too_much(what, f"It took more than {PATIENCE_S} s.") from None
    with suppress(ValueError):
        answer = json.loads(done.stdout)
        if done.returncode == 0:
            return answer["answer"]
        raise LeadlineError(**answer["error"])
    raise too_much(what, f"The process that read it ended with {done.returncode}.")


def too_much(what: str, detail: str) -> LeadlineError:
    message = f"{SUBJECT[what]} cannot be read within the bounds of a server ({MEMORY >> 30} GB, {PATIENCE_S} s)"
    return LeadlineError("invalid", message, detail, hint=WITHOUT_BOUNDS[what])


def bound(what: str) -> None:
    """Sets the limits of this process, and of DuckDB in it."""
    bounds = {resource.RLIMIT_DATA: PROCESS_MEMORY, resource.RLIMIT_CPU: THREADS * PATIENCE_S, resource.RLIMIT_CORE: 0}
    if SUBJECT[what] == CAPTURE:  # to check evidence writes nothing of its own; SQLite may have it write into a store that is larger
        bounds[resource.RLIMIT_FSIZE] = MOST_BYTES
    if what == "explored":  # it answers more than one question
        del bounds[resource.RLIMIT_CPU]
        more_cpu()
    for kind, most in bounds.items():
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard),) * 2)
    if SUBJECT[what] == CAPTURE:
        from leadline.capture.reader import limit_databases

        limit_databases(f"{MEMORY >> 20}MiB", THREADS)


def more_cpu() -> None:
    """The same again of what the process may use, for its next question."""
    used, hard = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = int(used.ru_utime + used.ru_stime) + THREADS * PATIENCE_S
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main(what: str, *words: str) -> None:
    bound(what)
    try:
        print(json.dumps({"answer": _read_capture(what, *words) if SUBJECT[what] == CAPTURE else _verify(*words)}))
    except LeadlineError as e:
        print(json.dumps({"error": e.as_dict()}))
        sys.exit(2)


def _read_capture(what: str, *words: str) -> Any:
    from leadline.book.compare import of_capture
    from leadline.duck import duckdb
    from leadline.views.report import write_report

    try:
        return of_capture(*words) if what == "compared" else str(write_report(*words, overwrite=True))
    except (LeadlineError, MemoryError, duckdb.Error) as e:
        cause: BaseException | None = e
        while cause is not None and not isinstance(cause, (MemoryError, duckdb.OutOfMemoryException)):
            cause = cause.__cause__
        if cause is None and isinstance(e, LeadlineError):
            raise
        said = str(cause or e).strip().partition("\n")[0][:200]
        raise too_much(what, said or TOO_LITTLE) from e


def _verify(directory: str, uid: str) -> list[dict[str, str]]:
    from leadline.book.evidence import verify
    from leadline.book.query import OpenBook
    from leadline.book.store import Store

    said = os.environ[VARIABLE]
    place = Place(directory, said if said.startswith(SCHEMES) else None)
    book = OpenBook(place, Store(place))
    try:
        return [check.as_dict() for check in verify(book, book.details(book.find(uid)))]
    except MemoryError:
        raise too_much("verified", TOO_LITTLE) from None
    finally:
        book.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

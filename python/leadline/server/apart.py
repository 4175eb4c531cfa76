"""What a server reads of captures, it reads in a process of its own, with a bound on memory, time and what is written.

A capture may come from anywhere, and a few kilobytes of Parquet may stand for gigabytes: what it does to who reads it must not be done to
the server. This file is both sides: `report` and `compared` start the process, `main` is what runs in it.
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

from leadline.book.place import OFF, VARIABLE
from leadline.errors import LeadlineError

MEMORY = 2 << 30  # of DuckDB: what a large capture needs, with some to spare (capture/hold.py); and of the whole process
PROCESS_MEMORY = 4 << 30
AT_ONCE = 2
THREADS = 2
PATIENCE_S = 60
MOST_BYTES = 256 << 20  # of a report


_places = threading.Semaphore(AT_ONCE)


def report(capture: Path, page: Path) -> None:
    """Writes the report of a capture. Raises LeadlineError."""
    _ask("report", str(capture), str(page))


def compared(capture: str) -> tuple[dict[str, str], dict[str, str]]:
    """As book.compare.of_capture. Raises LeadlineError."""
    settings, findings = _ask("compared", capture)
    return settings, findings


def _ask(*words: str) -> Any:
    line = [sys.executable, "-m", __name__, *words]
    try:
        with _places:
            environment = {**os.environ, VARIABLE: OFF}
            done = subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise _too_much(f"It took more than {PATIENCE_S} s.") from None
    with suppress(ValueError):
        answer = json.loads(done.stdout)
        if done.returncode == 0:
            return answer["answer"]
        raise LeadlineError(**answer["error"])
    raise _too_much(f"The process that read it ended with {done.returncode}.")


def _too_much(detail: str) -> LeadlineError:
    what = f"the capture cannot be read within the bounds of a server ({MEMORY >> 30} GB, {PATIENCE_S} s)"
    return LeadlineError("invalid", what, detail, hint="if you trust the capture: leadline report CAPTURE has no such bounds")


def main(what: str, *words: str) -> None:
    from leadline.book.compare import of_capture
    from leadline.capture.reader import limit_databases
    from leadline.duck import duckdb
    from leadline.views.report import write_report

    for kind, most in (
        (resource.RLIMIT_DATA, PROCESS_MEMORY), (resource.RLIMIT_CPU, THREADS * PATIENCE_S), (resource.RLIMIT_FSIZE, MOST_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):  # fmt: skip
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard),) * 2)
    limit_databases(f"{MEMORY >> 20}MiB", THREADS)
    try:
        answer = of_capture(*words) if what == "compared" else str(write_report(*words, overwrite=True))
        print(json.dumps({"answer": answer}))
    except (LeadlineError, MemoryError, duckdb.Error) as e:
        cause: BaseException | None = e
        while cause is not None and not isinstance(cause, (MemoryError, duckdb.OutOfMemoryException)):
            cause = cause.__cause__
        error = _too_much(str(cause).strip().partition("\n")[0][:200]) if cause is not None or not isinstance(e, LeadlineError) else e
        print(json.dumps({"error": error.as_dict()}))
        sys.exit(2)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A load that runs beside what a trial does, at a fixed rate, and ends with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from leadline.book.place import VARIABLE
from leadline.engines.postgres.forecast import Reading
from leadline.errors import LeadlineError
from leadline.study.loads import errors_of
from leadline.study.positions import rate_of
from leadline.study.servers import without_password

LEAST = 20  # readings


def _takes_interrupts() -> None:
    """A job in the background of a shell script ignores SIGINT, and so would its children; it is what ends the load."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class LoadBeside:
    """`leadline load run` of a script, for at most so long; ended earlier when the block ends. found: what it printed."""

    def __init__(self, dsn: str, script: str, rate: float, for_s: float, clients: int = 2) -> None:
        self.found: dict[str, Any] = {}
        self._is_over = False
        self._folder = tempfile.TemporaryDirectory(prefix="leadline-load-")
        path = Path(self._folder.name, "script.sql")
        path.write_text(script, encoding="utf-8")
        where, password = without_password(dsn)
        words = ["load", "run", where, f"--script={path}", f"--rate={rate}", f"--for={for_s:.0f}s", "--warm-up=0s", f"--clients={clients}"]
        words += ["--mode=prepared", f"--output={self._folder.name}/load.leadline", "--json"]
        env = os.environ | {VARIABLE: "off"} | ({"PGPASSWORD": password} if password else {})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "leadline", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, preexec_fn=_takes_interrupts,
        )  # fmt: skip

    def __enter__(self) -> LoadBeside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def has_begun(self, readings: Sequence[Reading]) -> bool:
        """Whether WAL is made. Raises LeadlineError if the load has ended."""
        if self._process.poll() is not None:
            self.end()
        return len(readings) > LEAST and rate_of(readings[-LEAST:]) > 0

    def end(self) -> None:
        """Raises LeadlineError if it had ended by itself, or if a transaction failed."""
        if self._is_over:
            return
        self._is_over = True
        early = self._process.poll() is not None
        if not early:
            self._process.send_signal(signal.SIGINT)
        said, errors = self._process.communicate()
        self._folder.cleanup()
        try:
            self.found = json.loads(said)
        except ValueError:
            self.found = {}
        if early or not isinstance(self.found, dict) or not self.found.get("phases") or self.found.get("clients_gone"):
            raise LeadlineError("gone", "the load ended too early", detail=(errors or said).strip()[-300:])
        if failed := errors_of(self.found):
            raise LeadlineError("gone", "transactions of the load failed", detail=failed[0])

"""Work beside the recording, in a process of its own at the lowest priority, so that no pass waits for it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from leadline.errors import LeadlineError

ENDS_S = 20.0  # that is asked to end
START = "import os, runpy, sys; del sys.argv[0]; os.nice(int(sys.argv.pop(0))); runpy.run_module(sys.argv[0], run_name='__main__')"


class Child:
    """`python -m MODULE ARGUMENTS`, which prints one JSON object. Its output lies in memory: it never waits for a reader, and a service
    may write nowhere but into its own directory.

    told: what it reads from stdin, such as a connection string, which may have a password: everybody sees arguments.
    """

    def __init__(self, module: str, arguments: Sequence[str], nice: int = 19, *, told: str = "") -> None:
        self._out = _in_memory()
        command = [sys.executable, "-c", START, str(nice), module, *arguments]
        with _in_memory() as given:
            given.write(told.encode())
            given.seek(0)
            self._process = subprocess.Popen(command, stdin=given, stdout=self._out, stderr=subprocess.STDOUT, start_new_session=True)

    def result(self) -> dict[str, Any] | None:
        """None while it runs; then its object, which has an `error` when it failed."""
        if (code := self._process.poll()) is None:
            return None
        self._out.seek(0)
        text = self._out.read().decode(errors="replace").strip()
        self._out.close()
        try:
            found: dict[str, Any] = json.loads(text.splitlines()[-1])
        except (ValueError, IndexError):
            how = f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"
            found = {"error": dict(LeadlineError("gone", "a process of the recorder failed", how, text[-500:]).as_dict())}
        return found

    def stop(self) -> None:
        """Asks it to end, waits for that, and ends it if it does not."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                self.end()

    def end(self) -> None:
        """Ends it and waits for that."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _in_memory() -> BinaryIO:
    return open(os.memfd_create("leadline"), "w+b")


def report(work: Callable[[], dict[str, Any]], what: str) -> int:
    """In the child: does the work and prints what it found, or why it failed, with what it cost; the exit code. what: is written."""
    began = time.monotonic()
    try:
        found, code = work(), 0
    except LeadlineError as e:
        found, code = {"error": dict(e.as_dict())}, 1
    except OSError as e:
        found, code = {"error": dict(LeadlineError("storage", f"{what} cannot be written: {e.strerror}").as_dict())}, 1
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps(found | {"cpu_s": used.ru_utime + used.ru_stime, "lasted_s": time.monotonic() - began, "rss_kb": used.ru_maxrss}))
    return code

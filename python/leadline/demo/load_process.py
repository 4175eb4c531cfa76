"""The parent's side of the load: starts the clients' process, sees that it is alive, and ends it."""

from __future__ import annotations

import select
import subprocess
import sys
from types import TracebackType

from leadline.errors import LeadlineError

START_TIMEOUT_S = 40.0


class LoadProcess:
    """The clients, running for the time of a `with` block. Entered when all of them are at work."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> LoadProcess:
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "leadline.demo.load", self.dsn],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent, which then closes stdin
        )
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
            if not ready or process.stdout.readline().strip() != "ready":
                raise self._failed("the demo load did not start")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def run_for(self, seconds: float) -> None:
        """Lets the clients work. Raises LeadlineError('gone') as soon as one of them cannot go on."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise self._failed("the demo load ended early")

    def end(self) -> None:
        """Ends the process: by closing its stdin, else by force. May be called twice."""
        process = self._process
        if process is None:
            return
        try:
            process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        finally:
            self._process = None

    def _failed(self, message: str) -> LeadlineError:
        process = self._process
        assert process is not None
        process.kill()
        _, stderr = process.communicate()
        lines = stderr.strip().splitlines()
        return LeadlineError("gone", message, detail=lines[-1] if lines else f"exit code {process.returncode}")

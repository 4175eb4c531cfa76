"""Programs of tests that wait for a line, do what they are for, and answer with a line: what they do happens within a trace."""

from __future__ import annotations

import subprocess

from leadline.progress import Silent


class Goes(Silent):
    """Lets the program go when the trace has begun. The trace ends after it is done."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        self.program, self.gone = program, False

    def update(self, elapsed_s: float, total_s: float, seen: str) -> None:
        if not self.gone:
            self.gone = True
            self.go()

    def go(self) -> None:
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write(b"\n")
        self.program.stdin.flush()
        assert self.program.stdout.readline() == b"done\n"

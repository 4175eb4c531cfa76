"""A cause, as every rule gives it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from leadline.why.seen import Failure, Process
from leadline.why.words import last_line


@dataclass(frozen=True)
class Cause:
    """kind: a word for programs. weight: how well such a cause explains a failure, 0 to 100; from experience, not measured.

    hard: worth saying even if the command itself ended with exit code 0, or another process decided how it ended. words: in a message that
    may be about this failure though it names neither the file nor the error, as a regular expression. line: the message it was read from.
    """

    kind: str
    weight: int
    statement: str
    evidence: list[str]
    fix: str
    process: Process
    hard: bool = False
    failure: Failure | None = None
    words: str = ""
    line: str = ""

    def fits(self, lines: list[str]) -> bool:
        return bool(self.words) and any(re.search(self.words, line, re.I) for line in lines)

    def as_dict(self) -> dict[str, Any]:
        failure = self.failure
        return {
            "kind": self.kind, "statement": self.statement, "evidence": self.evidence, "fix": self.fix,
            "pid": self.process.pid, "program": self.process.program, "call": failure and failure.call, "error": failure and failure.error,
            "path": failure and failure.path, "address": failure and failure.address, "count": failure.count if failure else None,
            "mount": failure.mount if failure else None, "printed": last_line(self.process) or None,
        }  # fmt: skip

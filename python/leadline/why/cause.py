"""A cause, as every rule gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leadline.why.seen import Failure, Process


@dataclass(frozen=True)
class Cause:
    """kind: a word for programs. weight: how well such a cause explains a failure, 0 to 100; from experience, not measured.

    hard: worth saying even if the command itself ended with exit code 0.
    """

    kind: str
    weight: int
    statement: str
    evidence: list[str]
    fix: str
    process: Process
    hard: bool = False
    failure: Failure | None = None

    def as_dict(self) -> dict[str, Any]:
        failure = self.failure
        return {
            "kind": self.kind, "statement": self.statement, "evidence": self.evidence, "fix": self.fix,
            "pid": self.process.pid, "program": self.process.program, "call": failure and failure.call, "error": failure and failure.error,
            "path": failure and failure.path, "address": failure and failure.address, "count": failure.count if failure else None,
            "mount": failure.mount if failure else None,
        }  # fmt: skip

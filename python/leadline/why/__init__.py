"""Why a command failed, or did not do what it says: run, followed, explained.

`leadline._core.follow` runs the command. The rules (`causes/`) look at each failed call and each process; `explain` ranks what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from leadline._core.follow import run
from leadline.why.cause import Cause
from leadline.why.causes import OF_CALLS, OF_PROCESSES
from leadline.why.seen import Process, Seen, seen_of

SAID, SAME_CODE = 10, 5  # weight of a cause that its process spoke of; whose process ended as the command did


def follow(command: Sequence[str], *, linger_s: float = 1.0) -> Seen:
    """Runs the command to its end. Raises LeadlineError."""
    return seen_of(run(list(command), linger_s=linger_s))


def explain(seen: Seen) -> list[Cause]:
    """Causes, the best first. Where the command ended with 0, only those that no program handles by itself."""
    found = [cause for failure in seen.failures if (cause := next(filter(None, (rule(failure) for rule in OF_CALLS)), None))]
    found += [cause for process in seen.processes for one in OF_PROCESSES if (cause := one(seen, process))]
    if not seen.main.failed:
        found = [cause for cause in found if cause.hard]
    best: dict[tuple[str, str], Cause] = {}
    for cause in sorted(found, key=lambda cause: _rank(seen, cause), reverse=True):
        best.setdefault((cause.kind, cause.statement), cause)
    return list(best.values())


def _rank(seen: Seen, cause: Cause) -> tuple[int, int]:
    failure, process = cause.failure, cause.process
    weight = cause.weight + (SAID if failure is not None and failure.said else 0)
    weight += SAME_CODE if (process.exit_code, process.signal) == (seen.main.exit_code, seen.main.signal) else 0
    return weight, failure.ts_ns if failure is not None else process.ended_ns or 0


def went_wrong(seen: Seen) -> list[Process]:
    """Processes below the command that did not end with 0 and started none that did: told as facts where nothing is explained."""
    return [process for process in seen.processes[1:] if process.failed and process.at not in seen.parents]

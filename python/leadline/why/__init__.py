"""Why a command failed, or did not do what it says: run, followed, explained.

`leadline._core.follow` runs the command. The rules (`causes/`) look at each failed call, each process and each message. `chain` finds the
processes that decided how the command ended; `explain` ranks what the rules say by what these processes depended on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from leadline._core.follow import run
from leadline.why.cause import Cause
from leadline.why.causes import OF_CALLS, OF_MESSAGES, OF_PROCESSES
from leadline.why.chain import Chain
from leadline.why.seen import Failure, Process, Seen, seen_of
from leadline.why.words import begins_message, errors_of, headline, is_consequence, is_of_shell, is_warning, last_line, lines_of

# Weights, beside those of the causes (0 to 100): what a line says of a failure, by its clearness; and where its process stands.
SAID = (0, 6, 6, 10, 12)
DECISIVE, PASSED_ON, BESIDE, ELSEWHERE = 20, 12, -10, -40
# The process told of another error than this failure: it went on without what failed, or told a later reason.
OTHER_REASON = -60
LATER_REASON = -40
LAST_LINES = 10
# The exit codes that shells themselves give.
OF_SHELLS = (1, 2, 126, 127)
OF_SIGNALS = 128
REPORTED = "reported"
# Told once of a process: its words stand behind a better cause, and a program is looked for in each directory of PATH.
ONCE = (REPORTED, "program_not_found")
# Started by build systems to learn what happens: that they fail is an answer.
PROBES = ("conftest", "cmTC_")
_PATH = re.compile(r"(?<![\w.])/[\w./+-]+")


def follow(command: Sequence[str], *, linger_s: float = 1.0) -> Seen:
    """Runs the command to its end. Raises LeadlineError."""
    return seen_of(run(list(command), linger_s=linger_s))


def explain(seen: Seen) -> list[Cause]:
    """Causes, the best first. Where the command ended with 0, only those that no program handles by itself."""
    chain = Chain(seen)
    found = [cause for failure in seen.failures if (cause := next(filter(None, (rule(failure) for rule in OF_CALLS)), None))]
    found += [cause for process in seen.processes for one in OF_PROCESSES if (cause := one(seen, process))]
    found += [cause for process in chain.processes for one in OF_MESSAGES if (cause := one(process))]
    found = [cause for cause in found if _counts(cause)]
    if seen.main.failed:
        found = [cause for cause in found if cause.hard or cause.process.at in chain.places]
        found += _reported(chain)
    else:
        found = [cause for cause in found if cause.hard and not cause.process.name.startswith(PROBES)]
    best: dict[tuple[str, str], Cause] = {}
    for cause in sorted(found, key=lambda cause: _rank(chain, cause), reverse=True):
        told = any(cause.process is other.process for other in best.values())
        if not (told and cause.kind in ONCE):
            best.setdefault((cause.kind, cause.statement), cause)
    return list(best.values())


def _rank(chain: Chain, cause: Cause) -> tuple[int, int]:
    failure, process = cause.failure, cause.process
    weight = cause.weight
    place = chain.places.get(process.at)
    if place is None:
        weight += BESIDE if process.at in chain.beside else ELSEWHERE
    else:
        weight += DECISIVE if place == len(chain.processes) - 1 else PASSED_ON
    if failure is not None and failure.said:
        weight += SAID[failure.said]
    elif failure is not None and headline(process) and not cause.fits(lines_of(process.said)[-LAST_LINES:]):
        weight += OTHER_REASON
    if failure is not None and failure.said_ns is not None and _tells_elsewhere(failure):
        weight += LATER_REASON
    line = failure.line if failure is not None else cause.line
    weight += LATER_REASON if line and _tells_later(process, line) else 0
    return weight, (failure.said_ns or failure.ts_ns) if failure is not None else process.ended_ns or 0


def _tells_later(process: Process, line: str) -> bool:
    """After this line the process told of an error that does not only follow from it."""
    lines = lines_of(process.said)
    if line.rstrip() not in lines:
        return False
    after = set(lines[lines.index(line.rstrip()) + 1 :]) & set(errors_of(process))
    return any(begins_message(later) and not is_consequence(later) and later != line.rstrip() for later in after)


def _tells_elsewhere(failure: Failure) -> bool:
    """It wrote of this failure to its standard output, and of an error to its error output, after that or at any time before it ended:
    a pipe gets standard output only at the end, so that what was written last may have been said first."""
    process = failure.process
    reason = headline(process)
    if not reason or failure.line.rstrip() in lines_of(process.said):
        return False
    may_be_later = (process.said_ns or 0) > (failure.said_ns or 0) or (failure.said_ns or 0) >= (process.printed_ns or 0)
    return may_be_later and (not is_consequence(reason) or _names_another(reason, failure.path))


def _names_another(line: str, path: str) -> bool:
    """It names a file, and not this one."""
    named = _PATH.findall(line)
    return bool(named) and not any(path.endswith(name.rstrip(".:")) for name in named)


def _went_on(process: Process, line: str, said_ns: int | None) -> bool:
    """A shell goes on after such a failure, and has printed more, or ended with a code that is its script's own."""
    if not is_of_shell(line):
        return False
    printed = process.printed_ns is not None and said_ns is not None and process.printed_ns > said_ns
    return printed or (process.exit_code not in OF_SHELLS and (process.exit_code or 0) < OF_SIGNALS)


def _counts(cause: Cause) -> bool:
    failure = cause.failure
    line, said_ns = (failure.line, failure.said_ns) if failure is not None else (cause.line, cause.process.said_ns)
    return cause.hard or not (_only_warned(cause) or _went_on(cause.process, line, said_ns))


def _only_warned(cause: Cause) -> bool:
    """The process called it a warning, and named no consequence of it."""
    failure = cause.failure
    if failure is None or cause.hard or not is_warning(failure.line):
        return False
    lines = lines_of(cause.process.said)
    line = failure.line.rstrip()
    after = lines[lines.index(line) + 1 :] if line in lines else []
    return not any(is_consequence(later) for later in after)


def _reported(chain: Chain) -> list[Cause]:
    """What the process that decided wrote: the reason as it sees it. Of a silent one, what the nearest process above wrote."""
    told = any(headline(process) for process in chain.processes)
    for process in reversed(chain.processes):
        line, verb = headline(process), "reported"
        if _went_on(process, line, process.said_ns):
            continue
        if not line and told and process.said.strip():  # its parent says that it failed
            line, verb = last_line(process), "printed last"
        if line:
            statement = f"{process.name} ended with {process.outcome}, and {verb}: {line}"
            if process.signal is not None:
                return []
            evidence = [f"{one.name} (pid {one.pid}): {one.outcome}{_words(one)}" for one in reversed(chain.processes)]
            return [Cause(REPORTED, 40, statement, evidence, "see what it reported: no failed call explains more", process)]
    return []


def _words(process: Process) -> str:
    last = last_line(process)
    return f", printed last: {last}" if last else ", printed nothing"


def went_wrong(seen: Seen) -> list[Process]:
    """Processes below the command that did not end with 0 and started none that did: told as facts where nothing is explained."""
    return [process for process in seen.processes[1:] if process.failed and process.at not in seen.parents]

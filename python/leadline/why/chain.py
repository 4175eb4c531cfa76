"""Which processes decided how the command ended: from the command down, each the child whose failure its parent passed on.

A failed call explains the outcome only if its process is one of these. A script that tries something and continues passes nothing on.
"""

from __future__ import annotations

import re
from collections import defaultdict

from leadline.why.seen import Failure, Process, Seen, signal_name
from leadline.why.words import errors_of, headline, is_consequence, last_line

_PARTS = re.compile(r"[\w.+-]+")
_OF_SIGNAL = {
    "SIGSEGV": "segmentation fault",
    "SIGKILL": "killed",
    "SIGABRT": "abort",
    "SIGBUS": "bus error",
    "SIGILL": "illegal",
    "SIGFPE": "floating",
}
HARD_ERRORS = ("ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM", "EROFS", "EFBIG", "EAGAIN", "ENOEXEC", "ELIBBAD")
EXECS = ("execve", "execveat")


class Chain:
    def __init__(self, seen: Seen) -> None:
        self._children: dict[int, list[Process]] = defaultdict(list)
        self._failures: dict[int, list[Failure]] = defaultdict(list)
        for process in seen.processes:
            if process.parent is not None:
                self._children[process.parent].append(process)
        for failure in seen.failures:
            self._failures[failure.process.at].append(failure)
        self.processes = [seen.main] if seen.main.failed else []
        while self.processes and (child := self._decisive(self.processes[-1])) is not None:
            self.processes.append(child)
        self.places = {process.at: place for place, process in enumerate(self.processes)}
        self.beside = self._beside()

    def _own(self, process: Process) -> list[Process]:
        """Children of its present program that have ended, in this order."""
        ended = [child for child in self._children[process.at] if child.ended_ns is not None and child.ended_ns > (process.exec_ns or 0)]
        return sorted(ended, key=lambda child: child.ended_ns or 0)

    def _has_reason(self, process: Process, depth: int = 0) -> bool:
        """It, or a child that failed, told of an error, was killed, or was refused what no program can do without."""
        if process.signal is not None or errors_of(process):
            return True
        for failure in self._failures[process.at]:
            if failure.matters and (failure.said or failure.error in HARD_ERRORS or failure.call in EXECS):
                return True
        return depth < 50 and any(child.failed and self._has_reason(child, depth + 1) for child in self._own(process))

    def _decisive(self, process: Process) -> Process | None:
        """The child whose failure this process passed on; None if it failed by itself."""
        failed = [child for child in self._own(process) if child.failed and (not child.killed_by_own or _same_end(process, child))]
        if not failed:
            return None
        last = failed[-1]
        able = [child for child in failed if self._has_reason(child)]
        spoke = process.said_ns is not None and process.said_ns > (last.ended_ns or 0) and bool(errors_of(process))
        if spoke:
            named = [child for child in (*failed, *able) if self._speaks_of(process, child)]
            if named or last not in able:
                return named[-1] if named else None
            seen_by_all = not last.said_to.startswith("pipe:") or last.said_to == process.said_to
            if _same_end(process, last) and seen_by_all:
                return last
            return last if self._ends_with(process, last) and seen_by_all and is_consequence(headline(process)) else None
        if last not in able:
            # The parts of a pipeline end together: grep finds nothing because the one before it could not read.
            beside = [child for child in able if (child.ended_ns or 0) > last.started_ns]
            if _same_end(process, last):
                return beside[-1] if beside else last
            return None
        # Another end than the child's was its own choice, and whoever prints something goes on.
        went_on = process.printed_ns is not None and process.printed_ns > (last.ended_ns or 0)
        return last if _same_end(process, last) and not went_on else None

    def _speaks_of(self, process: Process, child: Process) -> bool:
        """The words of a process about a child: its name, the program that it could not become, its exit code, its signal, or its own words
        again."""
        text = process.said.lower()
        names = {child.name.lower()} if child.name != process.name else set()
        refused = (failure for failure in self._failures[child.at] if failure.call in EXECS and failure.matters)
        names |= {failure.path.rsplit("/", 1)[-1].lower() for failure in refused}
        if any(len(name) > 1 and name in _PARTS.findall(text) for name in names):
            return True
        if child.signal is not None:
            name = signal_name(child.signal)
            return name.lower() in text or _OF_SIGNAL.get(name, name.lower()) in text
        codes = rf"(?:error|code:?|status:?|returned) {child.exit_code}\b|\({child.exit_code}\)"
        last = last_line(child).lower()
        return re.search(codes, text) is not None or (len(last) > 5 and last in text)

    def _ends_with(self, process: Process, child: Process) -> bool:
        """It started nothing after the child had ended."""
        return all(other.started_ns <= (child.ended_ns or 0) for other in self._children[process.at])

    def _beside(self) -> set[int]:
        """Processes below the last child that failed, of the last process of the chain: what it says may sum up what they say."""
        if not self.processes:
            return set()
        process = self.processes[-1]
        failed = [child for child in self._own(process) if child.failed and not child.killed_by_own]
        if not failed or not self._ends_with(process, failed[-1]):
            return set()
        out, open_ = set(), [failed[-1]]
        while open_:
            child = open_.pop()
            if child.failed and child.at not in out:
                out.add(child.at)
                open_ += self._children[child.at]
        return out


def _same_end(process: Process, child: Process) -> bool:
    if process.name == "xargs" and process.exit_code in (123, 124, 125, 126, 127):
        return True
    if child.signal is not None:
        return process.signal == child.signal or process.exit_code == 128 + child.signal
    return process.exit_code == child.exit_code

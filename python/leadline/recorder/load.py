"""What the sessions of the running piece do, as sums of some seconds each: sessions by wait class, all of them, and new ones."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.recorder.evidence import Piece, newest

RUN_QUEUE = "run queue"
LONGEST_NAME = 60


@dataclass(frozen=True)
class Step:
    """values: by quantity, on average over the passes that were made. begun: new sessions a second. seconds: from the first pass to the
    last, with those that were missed.
    """

    values: dict[str, float]
    begun: float
    seconds: float


class Load:
    """Follows the recorder from piece to piece. step_s: the passes of so many seconds make a step. total: the name of all sessions."""

    def __init__(self, step_s: float, total: str) -> None:
        self.step_s, self.total = step_s, total
        self._cpu_s = 0.0
        self._path: Path | None = None
        self._piece: Piece | None = None
        self._read: object = None  # what there was at the last look
        self._ns: Counter[str] = Counter()
        self._start()

    def look(self, path: Path) -> Step | None:
        """What has come since the last step, once that is enough. None also while the piece cannot be read."""
        began = time.thread_time()
        try:
            return self._look(path)
        finally:
            self._cpu_s += time.thread_time() - began

    def spent_s(self) -> float:
        """CPU since the last call."""
        spent, self._cpu_s = self._cpu_s, 0.0
        return spent

    def close(self) -> None:
        self._path, self._piece = None, None

    def _look(self, path: Path) -> Step | None:
        if path != self._path:
            self.close()
            self._path, self._read = path, None
            self._start()
        if (there := newest(path)) == self._read:
            return None
        self._read = there
        try:
            if self._piece is None:
                self._piece = Piece(path)
            more = self._piece.take_in(ended=False)
        except LeadlineError:  # it is being written: the next look reads it
            return None
        for (wait_class, _event), ns in more.waits.items():
            self._ns[f"waits: {wait_class}"[:LONGEST_NAME] if wait_class != "CPU" else "on a CPU or queued"] += ns
            self._ns[self.total] += ns
        self._ns[RUN_QUEUE] += more.cpu["queued"]
        self._begun += more.begun
        self._observed_ns += more.observed_ns
        self._lasted_ns += more.observed_ns * (1 + more.missed / max(1, more.passes))
        if self._lasted_ns < self.step_s * 0.9e9:
            return None
        seconds = self._lasted_ns / 1e9
        step = Step({name: ns / self._observed_ns for name, ns in self._ns.items()}, self._begun / seconds, seconds)
        self._start()
        return step

    def _start(self) -> None:
        """The next step begins."""
        self._ns, self._observed_ns, self._lasted_ns, self._begun = Counter(), 0, 0.0, 0

"""Follows the recorder from piece to piece and takes in what it has recorded: when somebody asks, and once at the end of each piece.

So the counters are sums over all passes since the recorder was started, in their order: after N passes (leadline_passes_total) each of
them is what the first N passes of the pieces give. Nothing is read while nobody asks, but for that one query at the end of a piece,
in a thread of its own. The recorder never waits for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from leadline.engines import all_engines
from leadline.errors import LeadlineError
from leadline.metrics import families as f
from leadline.metrics.totals import LONGEST_NAME, Totals
from leadline.probes.probe import Probe, WritesSoon
from leadline.recorder.evidence import Piece, newest

DOINGS = ("recording", "waiting", "full")
FRESH_S = 1.0  # who asks again within it gets the same
WRITE_EVERY_S = 5.0  # so often the probes write for who asks: to write costs more than to read
WRITTEN_WITHIN_S = 0.7  # then what they have seen is on disk: they hand over twice a second
LOOK_EVERY_S = 0.02


class Follower:
    """What the recorder tells (`recorder.run.Watcher`), as a source of metrics. start_ns: when the counters began, ns since 1970."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.totals = Totals()
        self.has_host = False  # the probe of the host runs: the server is on this host
        self.has_sessions = True  # until the probes say that the host alone is recorded
        self._doing = ""
        self._cpus: int | None = None
        self._server: tuple[str, str] | None = None
        self._begun = self._unread = 0
        self._probes: Sequence[Probe] = ()
        self._told = threading.Lock()  # of what the recorder tells
        self._reading = threading.Lock()  # of the totals and the pieces that are read
        self._ended: deque[Path] = deque()
        self._running: Path | None = None
        self._piece: Piece | None = None
        self._expects = False  # the waits that the server of this piece can have are known
        self._taken_in = self._asked = float("-inf")
        self._work, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="leadline-metrics", daemon=True)

    def start(self) -> None:
        """Begins to take in what has ended. To be closed at the end."""
        self._thread.start()

    # -- told by the recorder, in its thread ---------------------------------------------------------------------------

    def doing(self, what: str) -> None:
        self._doing = what

    def began(self, piece: Path, probes: Sequence[Probe]) -> None:
        with self._told:
            self._running, self._probes = piece, probes
            self._begun += 1
        self.has_host = any(probe.name == "host" for probe in probes)
        self.has_sessions = any(probe.name == "sessions" for probe in probes)

    def ended(self, piece: Path) -> None:
        with self._told:
            if self._running != piece:  # it failed before it began
                return
            self._ended.append(piece)
            self._running, self._probes = None, ()
        self._work.set()

    # -- taking in -----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._work.wait()
            self._work.clear()
            with self._reading:
                self._take_in_ended()

    def close(self) -> None:
        """Takes in the rest. The recorder has ended."""
        self._stop.set()
        self._work.set()
        self._thread.join()
        with self._reading:
            self._take_in_ended()

    def refresh(self) -> None:
        """Takes in what was recorded until now, or a second ago."""
        with self._reading:
            if time.monotonic() - self._taken_in < FRESH_S:
                return
            self._have_written()
            self._take_in_ended()
            with self._told:
                running = self._running
            if running is not None:
                self._take_in(running, ended=False)
            self._taken_in = time.monotonic()

    def _have_written(self) -> None:
        """Asks the probes to write out what they have, and waits until it is there."""
        with self._told:
            running, probes = self._running, self._probes
        if running is None or time.monotonic() - self._asked < WRITE_EVERY_S:
            return
        self._asked = time.monotonic()
        before = newest(running)
        for probe in probes:
            if isinstance(probe, WritesSoon):
                probe.write_soon()
        while newest(running) == before and time.monotonic() - self._asked < WRITTEN_WITHIN_S:
            time.sleep(LOOK_EVERY_S)

    def _take_in_ended(self) -> None:
        while self._ended:
            self._take_in(self._ended[0], ended=True)
            self._ended.popleft()

    def _take_in(self, path: Path, *, ended: bool) -> None:
        """A piece that cannot be read now is tried again as long as it runs."""
        try:
            if self._piece is None:
                self._piece = Piece(path)
                self._describe(self._piece)
                self._expects = False
            if not self._expects:
                self._expects = self._expect(self._piece)
            self.totals.add(self._piece.take_in(ended=ended))
        except LeadlineError:
            self._unread += ended
        if ended:
            self._piece = None

    def _expect(self, piece: Piece) -> bool:
        """Whether the server's waits were there."""
        waits = piece.possible()
        self.totals.expect(waits)
        return bool(waits)

    def _describe(self, piece: Piece) -> None:
        target = piece.manifest.target
        self._cpus = target.cpu_count
        engine = next((e for e in all_engines() for subject in e.subjects if subject.name == target.kind and subject.watched), None)
        self._server = None if engine is None else ((engine.product or engine.name)[:LONGEST_NAME], (target.version or "")[:LONGEST_NAME])

    # -- a source ------------------------------------------------------------------------------------------------------

    def readings(self) -> Iterable[f.Reading]:
        self.refresh()
        with self._reading:
            of, since = self.totals, self.start_ns

            def one(family: f.Family, value: int) -> f.Reading:
                return f.Reading(family, (((), value),), since)

            of_sessions = [
                f.Reading(f.DB_TIME, tuple(sorted(of.waits.items())), since),
                f.Reading(f.SESSION_TIME, tuple(((state,), ns) for state, ns in sorted(of.states.items())), since),
                f.Reading(f.SESSION_CPU, tuple(((state,), ns) for state, ns in sorted(of.cpu.items())), since),
                one(f.OBSERVED, of.observed_ns), one(f.PASSES, of.passes), one(f.MISSED, of.missed), one(f.OTHERS, len(of.others)),
            ]  # fmt: skip
            found = [
                *(of_sessions if self.has_sessions else ()),
                one(f.PIECES, self._begun), one(f.UNREAD, self._unread),
                f.Reading(f.DOING, tuple(((word,), int(word == self._doing)) for word in DOINGS), since),
            ]  # fmt: skip
            if self._cpus is not None and self._server is not None:
                found.append(one(f.CPUS, self._cpus))
            if self._server is not None:
                found.append(f.Reading(f.SERVER, ((self._server, 1),), since))
        return [reading for reading in found if reading.points]

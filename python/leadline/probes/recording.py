"""One capture from its first manifest to its last, with any probes: starts them from one clock, watches, stops them.

Whatever ends a capture early, what was recorded until then is kept and readable. This module only waits for the probes; they look
in threads of their own.
"""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from leadline.capture.making import Making
from leadline.capture.manifest import ProbeState, Target
from leadline.capture.store import Store, add_written
from leadline.errors import LeadlineError
from leadline.probes.probe import Probe
from leadline.progress import Progress

if TYPE_CHECKING:
    from leadline._core.capture import ProbeFinal, ProbeStatus

MANIFEST_EVERY_S = 5.0
POLL_S = 1.0
POLL_UNTIL_S = 0.02


class Recording:
    """Records with these probes, which are attached. The first is the main one: the window is its window while it runs."""

    def __init__(
        self,
        directory: Path,
        target: Target,
        probes: Sequence[Probe],
        progress: Progress,
        options: dict[str, Any],
        notes: Sequence[str] = (),
        cpu_at_call: float | None = None,
    ) -> None:
        self.directory, self.probes, self.progress_to = directory, probes, progress
        self.store = Store(str(directory))
        self.making = Making(directory, target, options)
        self.manifest = self.making.manifest
        self.error: LeadlineError | None = None
        self.failed: dict[str, LeadlineError] = {}  # of optional probes, too
        self.cpu_at_call = cpu_s() if cpu_at_call is None else cpu_at_call
        for probe in probes:
            probe.describe(self.manifest)
        for note in notes:
            self.manifest.note(note)
            progress.note(f"note: {note}")

    def run(
        self, for_s: float, until: Callable[[], bool] | None = None, begun: Callable[[], None] | None = None,
        *, every_s: float = POLL_UNTIL_S, stop: threading.Event | None = None,
    ) -> None:  # fmt: skip
        """Records for for_s seconds, at most until `until`, asked each every_s, is true; calls `begun` when all probes look.

        stop: ends it too, in place of SIGINT and SIGTERM, which are then the caller's.

        Raises LeadlineError when the capture ended early by a fault; it is kept all the same.
        """
        with stop_on_signal() if stop is None else nullcontext(stop) as stop:
            try:
                self.making.reserve()
                self.making.write()
                for probe in self.probes:
                    probe.before(self.store, self.manifest)
            except LeadlineError as e:
                self.error = e
            if self.error is None and not stop.is_set():
                self._record(for_s, stop, until, begun, every_s)
            self._finish()
        if self.error is not None:
            raise LeadlineError(
                self.error.kind,
                self.error.message,
                detail=self.error.detail,
                hint="; ".join(filter(None, (self.error.hint, f"what was captured before is kept: leadline show {self.directory}"))),
                where=str(self.directory),
            )

    def _record(
        self, for_s: float, stop: threading.Event, until: Callable[[], bool] | None, begun: Callable[[], None] | None, every_s: float
    ) -> None:  # fmt: skip
        """The window itself: waits, reports once a second, refreshes the manifest."""
        clock = self.manifest.clock
        cpu_at_start = cpu_s()
        self.manifest.cost.setup_cpu_s = round(cpu_at_start - self.cpu_at_call, 6)
        started_probes: list[Probe] = []
        try:
            for probe in self.probes:
                probe.start()
                started_probes.append(probe)
            if begun is not None:
                begun()
        except LeadlineError as e:
            self.error = e
            for probe in started_probes:
                probe.stop()
            return
        started = time.monotonic()  # to load programs into a busy kernel takes longer than a short window
        monotonic_ns, wall_ns = _clock()
        clock.ts_from, clock.wall_offset_ns = self.probes[0].status()["ts_from"] or monotonic_ns, wall_ns - monotonic_ns
        written = started - MANIFEST_EVERY_S
        while True:
            elapsed = time.monotonic() - started
            states = {probe.name: probe.status() for probe in self.probes if probe.name not in self.failed}
            self._look_for_failures(states, elapsed, for_s)
            going = [probe for probe in self.probes if probe.name in states and probe.name not in self.failed and probe.name != "self"]
            if self.error is not None or not going or elapsed >= for_s or stop.is_set() or (until is not None and until()):
                break
            self.progress_to.update(elapsed, for_s, ", ".join(filter(None, (p.progress() for p in going))))
            if time.monotonic() - written >= MANIFEST_EVERY_S:
                written = time.monotonic()
                self._count(states, elapsed, cpu_s() - cpu_at_start)
                try:
                    self.making.write()
                except LeadlineError as e:
                    self.error = e
                    break
            _pause(min(POLL_S, max(0.0, for_s - elapsed)), stop, until, every_s)
        elapsed = time.monotonic() - started
        finals = {probe.name: probe.stop() for probe in self.probes}
        self.progress_to.done()
        self._end(finals, elapsed, for_s, cpu_s() - cpu_at_start)
        if stop.is_set() and elapsed < for_s and self.error is None:
            self.manifest.note(f"stopped by the user after {elapsed:.1f} of {for_s:g} s")

    def _look_for_failures(self, states: Mapping[str, ProbeStatus], elapsed: float, for_s: float) -> None:
        for probe in self.probes:
            state = states.get(probe.name)
            if state is None or (state["error"] is None and (state["running"] or elapsed >= for_s)):
                continue
            self._fail(probe, _failure(state, elapsed, for_s), elapsed, for_s)

    def _fail(self, probe: Probe, error: LeadlineError, elapsed: float, for_s: float) -> None:
        self.failed[probe.name] = error
        if probe.required:
            self.error = self.error or error
        else:
            text = f"probe {probe.name} ended after {elapsed:.1f} of {for_s:g} s: {error.message}"
            self.manifest.note(text)
            self.progress_to.note(f"note: {text}")

    def _end(self, finals: Mapping[str, ProbeFinal], elapsed: float, for_s: float, cpu: float) -> None:
        """What the probes say at their end, into the manifest."""
        for probe in self.probes:
            final = finals[probe.name]
            if final["error"] is not None and probe.name not in self.failed:
                self._fail(probe, LeadlineError(**final["error"]), elapsed, for_s)
            probe.describe(self.manifest)
            if error := self.failed.get(probe.name):
                self._tell(probe, error, final)
        self._count(finals, elapsed, cpu)
        for name, final in finals.items():
            self._state(name).loss = final["loss"]
            add_written(self.manifest.tables, final["tables"])
        ends = {name: final["ts_to"] for name, final in finals.items() if final["ts_to"] is not None}
        whole = [ts for name, ts in ends.items() if name not in self.failed]
        self.manifest.clock.ts_to = whole[0] if whole else max(ends.values(), default=None)

    def _tell(self, probe: Probe, error: LeadlineError, final: ProbeFinal) -> None:
        """A probe that ended early has seen a part of the window, or nothing."""
        state = self._state(probe.name)
        state.status = "partial" if final["rows"] else "off"
        state.why = "; ".join(part for part in (f"ended early: {error.message}", error.detail, state.why) if part)
        state.hint = error.hint or state.hint

    def _count(self, states: Mapping[str, ProbeStatus], window_s: float, cpu: float) -> None:
        """Loss and cost so far."""
        for name, status in states.items():
            state = self._state(name)
            state.loss = {"ticks_taken": status["ticks"], "ticks_missed": status["missed"]}
            state.cost = {"bytes_written": status["bytes_written"], "cpu_s": round(status["cpu_ns"] / 1e9, 6)}
        self.manifest.cost.of_window(cpu, window_s)
        self.manifest.cost.bytes_written = sum(status["bytes_written"] for status in states.values())

    def _state(self, name: str) -> ProbeState:
        return self.manifest.probes.setdefault(name, ProbeState())

    def _finish(self) -> None:
        """What is read after the window, and the last manifest; neither may hide an earlier error."""
        for probe in self.probes:
            try:
                probe.after(self.store, self.manifest)
            except LeadlineError as e:
                if probe.name not in self.failed:
                    self.error = self.error or e
        try:
            add_written(self.manifest.tables, self.store.close())
        except LeadlineError as e:
            self.error = self.error or e
        try:
            self.making.end(self.error)
        except LeadlineError as e:
            self.error = self.error or e


def _pause(seconds: float, stop: threading.Event, until: Callable[[], bool] | None, every_s: float) -> None:
    """Waits for so long, or for the end."""
    if until is None:
        stop.wait(seconds)
        return
    end = time.monotonic() + seconds
    while not until() and not stop.wait(min(every_s, max(0.0, end - time.monotonic()))) and time.monotonic() < end:
        pass


def _failure(state: ProbeStatus, elapsed: float, for_s: float) -> LeadlineError:
    if state["error"] is not None:
        return LeadlineError(**state["error"])
    detail = f"after {elapsed:.1f} of {for_s:g} s"
    return LeadlineError("invalid", "the recorder stopped unexpectedly", detail=detail, hint="please report it")


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second one gives up with KeyboardInterrupt. Main thread only."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _clock() -> tuple[int, int]:
    from leadline import _core

    return _core.capture.clock()


def cpu_s() -> float:
    """CPU of this process since it started."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

"""Takes a capture: finds the server, attaches a probe, records for a while, and writes down what it saw and missed.

The probe is `_core.Recorder` (shared memory) or `SqlRecorder` (over a connection); both sample in threads of their own, and
this module only waits for them. Whatever ends a capture early, what was recorded until then is kept and readable.
"""

from __future__ import annotations

import resource
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from leadline.capture.folder import capture_folder, make_folder
from leadline.capture.making import Making
from leadline.capture.store import Store
from leadline.errors import LeadlineError
from leadline.host.facts import read_host
from leadline.postgres import postmaster
from leadline.postgres.catalog.collect import CatalogReader
from leadline.postgres.target import Target, resolve
from leadline.probes.sessions import Attached, attach, describe
from leadline.probes.sql_tier import MAX_RATE_HZ
from leadline.progress import Progress, Silent

TIERS = ("auto", "shm", "sql")
MIN_RATE_HZ, MAX_SHM_RATE_HZ = 1.0, 10_000.0
MANIFEST_EVERY_S = 5.0
POLL_S = 1.0


def take(
    *,
    dsn: str | None = None,
    pid: int | None = None,
    data_dir: str | Path | None = None,
    for_s: float,
    rate_hz: float = 100.0,
    out: Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    tier: str = "auto",
) -> Path:
    """Takes a capture and gives its folder.

    for_s: seconds. rate_hz: passes a second, 1 to 10,000 (over SQL at most 10). out: the capture folder, or an existing folder to
    put it in; None for leadline-DATE-TIME.leadline here. overwrite: replace a capture that is there. Ctrl-C or SIGTERM ends the
    window early and keeps everything. Raises LeadlineError; when the capture had begun, its `where` is the folder that was kept.
    """
    progress = progress or Silent()
    cpu_at_call = _cpu_s()
    check_options(for_s, rate_hz, tier)
    target = resolve(dsn, pid, data_dir)
    directory = capture_folder(out, overwrite=overwrite)
    made = make_folder(directory)
    try:
        attached = attach(target, directory, rate_hz, tier)
    except LeadlineError:
        if made:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    options = {"for_s": for_s, "rate_hz": rate_hz, "tier": tier}
    session = _Session(target, directory, attached, progress, options, cpu_at_call)
    session.run(for_s)
    return directory


class _Session:
    """One capture from its first manifest to its last."""

    def __init__(
        self, target: Target, directory: Path, attached: Attached, progress: Progress, options: dict[str, Any], cpu_at_call: float
    ) -> None:
        self.target, self.directory, self.attached, self.progress = target, directory, attached, progress
        self.probe = attached.probe
        self.store = Store(str(directory))
        self.catalog = CatalogReader(target, attached.dsn)
        self.making = Making(directory, target.evidence(), options)
        self.manifest = self.making.manifest
        self.error: LeadlineError | None = None
        self.cpu_at_call = cpu_at_call
        describe(self.manifest, attached)
        for note in (*target.notes, *attached.notes):
            self.manifest.note(note)
            progress.note(f"note: {note}")

    def run(self, for_s: float) -> None:
        """Records for for_s seconds. Raises LeadlineError when the capture ended early by a fault; it is kept all the same."""
        with _stop_on_signal() as stop:
            try:
                self.making.reserve()
                self.making.write()
                self._before()
            except LeadlineError as e:
                self.error = e
            if self.error is None and not stop.is_set():
                self._record(for_s, stop)
            self._finish(stop)
        if self.error is not None:
            raise LeadlineError(
                self.error.kind,
                self.error.message,
                detail=self.error.detail,
                hint=f"what was captured until then is kept: leadline show {self.directory}",
                where=str(self.directory),
            )

    def _before(self) -> None:
        """Everything that is read once, before the window."""
        pid = self.target.pid
        host = read_host(pid, () if pid is None else postmaster.stored_paths(pid))
        self.store.add("host_fact", host.facts)
        self.store.add("mount", host.mounts)
        self.store.add("block_device", host.devices)
        self.manifest.note(*host.notes)
        self._collect("before")

    def _collect(self, phase: str) -> None:
        found = self.catalog.read(phase)
        self.store.add_all(found.rows)
        self.manifest.note(*found.notes)
        self.manifest.probes["catalog"] = self.catalog.probe()

    def _record(self, for_s: float, stop: threading.Event) -> None:
        """The window itself: waits, reports once a second, refreshes the manifest."""
        clock = self.manifest.clock
        cpu_at_start = _cpu_s()
        self.manifest.cost.setup_cpu_s = round(cpu_at_start - self.cpu_at_call, 6)
        self.probe.start()
        started = time.monotonic()
        monotonic_ns, wall_ns = _clock()
        clock.ts_from, clock.wall_offset_ns = self.probe.status()["ts_from"] or monotonic_ns, wall_ns - monotonic_ns
        written = started - MANIFEST_EVERY_S
        status = self.probe.status()
        while True:
            elapsed = time.monotonic() - started
            status = self.probe.status()
            if status["error"] is not None or not status["running"] or elapsed >= for_s or stop.is_set():
                break
            self.progress.update(elapsed, for_s, status)
            if time.monotonic() - written >= MANIFEST_EVERY_S:
                written = time.monotonic()
                self._progress(status, elapsed, _cpu_s() - cpu_at_start)
                try:
                    self.making.write()
                except LeadlineError as e:
                    self.error = e
                    break
            stop.wait(min(POLL_S, max(0.0, for_s - elapsed)))
        elapsed = time.monotonic() - started
        final = self.probe.stop()
        self.progress.done()
        describe(self.manifest, self.attached)
        self._progress(final, elapsed, _cpu_s() - cpu_at_start)
        self.manifest.probes["sessions"].loss = final["loss"]
        self.manifest.tables = final["tables"]
        clock.ts_to = final["ts_to"]
        if final["error"] is not None:
            self.error = self.error or LeadlineError(**final["error"])
        elif elapsed < for_s and not stop.is_set() and self.error is None:
            self.error = LeadlineError(
                "invalid", "the recorder stopped unexpectedly", detail=f"after {elapsed:.1f} of {for_s:g} s", hint="please report it"
            )
        elif stop.is_set() and elapsed < for_s:
            self.manifest.note(f"stopped by the user after {elapsed:.1f} of {for_s:g} s")

    def _progress(self, status: dict[str, Any], window_s: float, cpu_s: float) -> None:
        """Loss and cost so far."""
        sessions = self.manifest.probes["sessions"]
        sessions.loss = {"ticks_taken": status["ticks"], "ticks_missed": status["missed"], "torn": status["torn"]}
        sessions.cost = {"bytes_written": status["bytes_written"]}
        self.manifest.cost.of_window(cpu_s, window_s)
        self.manifest.cost.bytes_written = status["bytes_written"]

    def _finish(self, stop: threading.Event) -> None:
        """The second reading of the catalog and the last manifest; neither may hide an earlier error."""
        if self.error is not None and self.error.kind == "gone":  # another server may answer by now, with other counters
            self.manifest.note("the catalog was not read after the window: the server was gone or had been restarted")
        else:
            try:
                self._collect("after")
            except LeadlineError as e:
                self.error = self.error or e
        try:
            self.manifest.tables |= self.store.close()
        except LeadlineError as e:
            self.error = self.error or e
        try:
            self.making.end(self.error)
        except LeadlineError as e:
            self.error = self.error or e


def check_options(for_s: float, rate_hz: float, tier: str) -> None:
    if tier not in TIERS:
        raise LeadlineError("usage", f"there is no tier {tier}", hint="tiers: " + ", ".join(TIERS))
    if not for_s > 0:
        raise LeadlineError("usage", "the window must be longer than nothing", hint="--for 60s")
    if not MIN_RATE_HZ <= rate_hz <= MAX_SHM_RATE_HZ:
        raise LeadlineError(
            "usage",
            f"a rate of {rate_hz:g} passes a second is not possible",
            hint=f"{MIN_RATE_HZ:g} to {MAX_SHM_RATE_HZ:,.0f} passes a second; over SQL at most {MAX_RATE_HZ:g}",
        )


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
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

    return _core.clock()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

"""Records into a temporary folder for as long as the view runs, with the recorders of `leadline take`.

The shared-memory recorder makes its segments longer the longer it runs (30 s each after a quarter of an hour): right for a
capture, wrong for a screen. So it is renewed every half minute: the next one attaches (some 20 ms) and starts before the
previous one stops, and each pass counts once.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError
from leadline.manifest import Manifest
from leadline.take import Attached, attach
from leadline.target import Target
from leadline.top.live import END_OF_TIME, LiveCapture

FLUSH_INTERVAL_S = 1.0
RENEW_AFTER_S = 30.0


@dataclass
class _Run:
    """One recorder and its folder. ts_from, ts_to: the part of its samples that counts."""

    folder: Path
    attached: Attached
    started_at: float = field(default_factory=time.monotonic)
    ts_from: int = 0
    ts_to: int = END_OF_TIME


class Feed:
    """Attaches to the target when made, and raises LeadlineError as `take` does. close() ends it."""

    def __init__(self, target: Target, folder: Path, rate_hz: float, tier: str, options: dict[str, Any] | None = None) -> None:
        self.target, self.folder = target, folder
        self.error: LeadlineError | None = None
        self.missed = 0
        self._runs = 0
        self._run = self._attach(rate_hz, tier)
        attached = self._run.attached
        self.tier, self.rate_hz, self.dsn = attached.tier, attached.rate_hz, attached.dsn
        self.manifest = Manifest(folder, target, options or {})
        content = self.manifest.content
        content["tier"], content["rate_hz"], content["period_ns"] = self.tier, self.rate_hz, round(1e9 / self.rate_hz)
        self.manifest.describe_recorder(attached.probe.describe())
        self.manifest.note(*target.notes, *attached.notes)
        self.live = LiveCapture(folder, content)

    def start(self) -> None:
        self._set_clock()
        self._run.attached.probe.start()
        self._run.started_at = time.monotonic()
        self.manifest.content["clock"]["ts_from"] = self._run.attached.probe.status()["ts_from"] or time.monotonic_ns()

    def take_in(self) -> None:
        """Moves what was recorded since the last call into `live`, and renews the recorder when it is time.

        A server that went away is kept in `error`; what was seen until then stays. Raises LeadlineError('storage') only.
        """
        if self.error is None:
            status = self._run.attached.probe.status()
            if status["error"] is not None:
                self.error = LeadlineError(**status["error"])
            elif not status["running"]:
                self.error = LeadlineError("invalid", "the recorder ended by itself", hint="please report it")
            elif self.tier == "shm" and time.monotonic() - self._run.started_at >= RENEW_AFTER_S:
                self._renew()
        self._read(self._run)

    def close(self) -> None:
        """Stops the recorder and takes in its last segments. Called once, also after an error."""
        final = self._run.attached.probe.stop()
        if self.error is None and final["error"] is not None:
            self.error = LeadlineError(**final["error"])
        self._read(self._run)

    def _read(self, run: _Run) -> None:
        self.live.ingest(run.folder, run.ts_from, run.ts_to)

    def _renew(self) -> None:
        previous = self._run
        try:
            following = self._attach(self.rate_hz, self.tier)
            following.attached.probe.start()
        except LeadlineError as e:
            self.error = e
            return
        # The new one counts from its first pass; the old one up to there.
        self._set_clock()
        following.ts_from = previous.ts_to = following.attached.probe.status()["ts_from"] or time.monotonic_ns()
        previous.attached.probe.stop()
        self._read(previous)
        shutil.rmtree(previous.folder, ignore_errors=True)
        self.live.renewed()
        self._run = following

    def _attach(self, rate_hz: float, tier: str) -> _Run:
        self._runs += 1
        folder = self.folder / f"{self._runs:06}.leadline"
        folder.mkdir()
        return _Run(folder, attach(self.target, folder, rate_hz, tier, FLUSH_INTERVAL_S))

    def _set_clock(self) -> None:
        from leadline import _core

        monotonic_ns, wall_ns = _core.clock()
        self.manifest.content["clock"]["wall_offset_ns"] = wall_ns - monotonic_ns

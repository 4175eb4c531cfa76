"""Records into a temporary directory for as long as the view runs, with the recorder that `leadline take` would choose."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadline import _core
from leadline.capture.manifest import Manifest
from leadline.engines.live import Server, live_of
from leadline.errors import LeadlineError
from leadline.top.live import LiveCapture

FLUSH_INTERVAL_S = 4.0  # at the latest: each segment of each table costs CPU, so the screen asks for them when it needs them
HAND_OVER_S = 0.6  # what the sampler has seen is with its writer, and on disk
MOST_WAITING_BYTES = 32 << 20  # of segments that no query has asked for yet: their directory may be small


class Feed:
    """Attaches to the target when made, and raises LeadlineError as `take` does. close() ends it."""

    def __init__(
        self, target: Server, directory: Path, rate_hz: float, tier: str, options: dict[str, Any] | None = None, others: Sequence[str] = ()
    ) -> None:
        self.target = target
        self.directory = directory / "live.leadline"
        self.directory.mkdir()
        self.error: LeadlineError | None = None
        self.watch = live_of(target).watch(target, self.directory, rate_hz=rate_hz, tier=tier, flush_interval_s=FLUSH_INTERVAL_S)
        if others:
            self.watch.follow(others)
        self._probe = self.watch.probe
        self.tier, self.rate_hz = self.watch.tier, self.watch.rate_hz
        self.ahead_s = HAND_OVER_S + 1 / self.rate_hz
        self.manifest = Manifest(target.evidence(), options=options or {})
        self.watch.describe(self.manifest)
        self.manifest.note(*target.notes, *self.watch.notes)
        self.live = LiveCapture(self.directory, self.manifest)
        self._settled_bytes = 0

    def start(self) -> None:
        self._probe.start()
        self._set_clock()
        self.manifest.clock.ts_from = self._probe.status()["ts_from"] or time.monotonic_ns()

    def write_soon(self) -> None:
        """Asks the recorder for what it has seen; `ahead_s` seconds later `take_in` has it."""
        self._probe.write_soon()

    def take_in(self) -> None:
        """Moves what was recorded since the last call into `live`.

        A server that went away is kept in `error`; what was seen until then stays. Raises LeadlineError('storage') only.
        """
        status = self._probe.status()
        if self.error is None:
            if status["error"] is not None:
                self.error = LeadlineError(**status["error"])
            elif not status["running"]:
                self.error = LeadlineError("invalid", "the recorder stopped unexpectedly", hint="please report it")
        self._set_clock()
        self.live.ingest(self.directory)
        if status["bytes_written"] - self._settled_bytes > MOST_WAITING_BYTES:
            self.live.settle()
            self._settled_bytes = status["bytes_written"]

    def close(self) -> None:
        """Stops the recorder and takes in its last segments. Called once, also after an error."""
        final = self._probe.stop()
        if self.error is None and final["error"] is not None:
            self.error = LeadlineError(**final["error"])
        self.live.ingest(self.directory)

    def _set_clock(self) -> None:
        """The wall clock may be set while the view runs for days; what was sampled keeps the ages it had."""
        monotonic_ns, wall_ns = _core.capture.clock()
        self.manifest.clock.wall_offset_ns = wall_ns - monotonic_ns

"""A capture of a test server through the recorder alone: what the probe saw, without names or settings from SQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leadline import _core
from leadline.capture.manifest import Clock, Manifest, ProbeState, Target, write_manifest
from leadline.capture.reader import Capture, open_capture


class Recording:
    """A running recorder; after the `with` block `capture` is open and `status` the final status."""

    def __init__(self, directory: Path, pid: int, rate_hz: float, **options: Any) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.rate_hz = rate_hz
        self.recorder = _core.recorder.Recorder(str(directory), pid, rate_hz, **options)
        self.described = self.recorder.describe()
        self.status: dict[str, Any] = {}

    def finish(self) -> Capture:
        self.status = self.recorder.stop()
        monotonic, wall = _core.capture.clock()
        manifest = Manifest(Target("postgres", version_num=self.described["server_version_num"], cpu_count=2), status="complete")
        manifest.clock = Clock(self.status["ts_from"], self.status["ts_to"], wall - monotonic)
        manifest.probes = {name: ProbeState(**state) for name, state in self.described["probes"].items()}
        manifest.probes["sessions"].tier, manifest.probes["sessions"].rate_hz = "shm", self.rate_hz
        write_manifest(self.directory, manifest)
        self.capture = open_capture(self.directory)
        return self.capture


@contextlib.contextmanager
def recording(directory: Path, pid: int, rate_hz: float = 100.0, **options: Any) -> Iterator[Recording]:
    """Records while the block runs."""
    record = Recording(directory, pid, rate_hz, **options)
    record.recorder.start()
    try:
        yield record
    finally:
        record.finish()

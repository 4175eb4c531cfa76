"""The probe that every capture has: the clocks of the host against each other, and what leadline itself uses."""

from __future__ import annotations

from pathlib import Path

from leadline import _core
from leadline.capture.manifest import Manifest, ProbeState
from leadline.capture.store import Store
from leadline.probes.probe import Status


class Keeper:
    """Writes `clock` and `self_cost`, once a second."""

    name = "self"
    required = True

    def __init__(self, directory: Path) -> None:
        self._core = _core.capture.Keeper(str(directory))

    def before(self, store: Store, manifest: Manifest) -> None: ...

    def start(self) -> None:
        self._core.start()

    def status(self) -> Status:
        return self._core.status()

    def stop(self) -> Status:
        return self._core.stop() | {"loss": {}}

    def describe(self, manifest: Manifest) -> None:
        manifest.probes.setdefault(self.name, ProbeState(rate_hz=1.0))

    def after(self, store: Store, manifest: Manifest) -> None: ...

    def progress(self, status: Status) -> str:
        return ""

"""The probe that every capture has: the clocks of the host against each other, and what leadline itself uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leadline import _core
from leadline.capture.manifest import Manifest, ProbeState
from leadline.capture.store import Store

if TYPE_CHECKING:
    from leadline._core.capture import ProbeFinal, ProbeStatus


class Keeper:
    """Writes `clock` and `self_cost`, once a second."""

    name = "self"
    required = True

    def __init__(self, directory: Path) -> None:
        self._core = _core.capture.Keeper(str(directory))

    def before(self, store: Store, manifest: Manifest) -> None: ...

    def start(self) -> None:
        self._core.start()

    def status(self) -> ProbeStatus:
        return self._core.status()

    def stop(self) -> ProbeFinal:
        return self._core.stop()

    def describe(self, manifest: Manifest) -> None:
        manifest.probes.setdefault(self.name, ProbeState(rate_hz=1.0))

    def after(self, store: Store, manifest: Manifest) -> None: ...

    def progress(self) -> str:
        return ""

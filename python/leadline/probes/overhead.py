"""The probe that every capture has: the clocks of the host against each other, and what leadline itself uses."""

from __future__ import annotations

from pathlib import Path

from leadline import _core
from leadline.capture.manifest import Manifest, ProbeState
from leadline.probes.probe import ThreadProbe


class OverheadProbe(ThreadProbe["_core.capture.OverheadProbe"]):
    """Writes `clock` and `self_cost`, once a second."""

    name = "self"
    required = True

    def __init__(self, directory: Path) -> None:
        super().__init__(_core.capture.OverheadProbe(str(directory)))

    def describe(self, manifest: Manifest) -> None:
        manifest.probes.setdefault(self.name, ProbeState(rate_hz=1.0))

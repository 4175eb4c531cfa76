"""Packets of an interface: caught in a ring, followed to connections and round trips (crates/wire), alone or into a capture."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline import _core
from leadline.capture.directory import new_capture
from leadline.capture.manifest import Manifest, ProbeState, Target
from leadline.figures import count
from leadline.probes.overhead import OverheadProbe
from leadline.probes.probe import ThreadProbe
from leadline.probes.recording import Recording, stop_on_signal
from leadline.progress import Progress, Silent

if TYPE_CHECKING:
    from leadline._core.capture import ProbeFinal
    from leadline._core.wire import LiveSummary

RING_BYTES = 32 << 20
SNAPLEN = 262_144
WAIT_S = 0.5


class WireProbe(ThreadProbe["_core.wire.Sniffer"]):
    """Catches packets. Without a directory nothing is written, and `summary` has the connections.

    program: of classic BPF, from the IP header on; which packets the kernel passes.
    """

    name = "wire"

    def __init__(
        self, directory: Path | None, interface: str, ports: Collection[int], *, hosts: Sequence[tuple[bytes, int]] = (),
        interval_s: float = 1.0, ring_bytes: int = RING_BYTES, snaplen: int = SNAPLEN, required: bool = True, listed: int | None = None,
        program: list[tuple[int, int, int, int]] | None = None,
    ) -> None:  # fmt: skip
        self.required = required
        place = None if directory is None else str(directory)
        core = _core.wire.Sniffer(
            place, interface, list(ports), hosts=list(hosts), interval_s=interval_s, ring_bytes=ring_bytes, snaplen=snaplen, listed=listed,
            filter=program,
        )  # fmt: skip
        super().__init__(core)
        self._lost = self._copied = 0

    def stop(self) -> ProbeFinal:
        final = self._core.stop()
        self._lost, self._copied = final["lost"], final["loss"]["packets_copied"]
        return final

    def describe(self, manifest: Manifest) -> None:
        state = manifest.probes.setdefault(self.name, ProbeState(tier="packets"))
        if self._lost:
            state.status = "partial"
            state.why = f"{self._lost} packets were lost: the ring was full"
            state.hint = "capture fewer ports, or with a larger ring: leadline net packets --ring SIZE"
        if self._copied:
            manifest.note(f"{count(self._copied, 'packet')} passed another interface before: each counts once")

    def progress(self) -> str:
        status = self._core.status()
        lost = f", {status['lost']:,} lost" if status["lost"] else ""
        return f"{status['packets']:,} packets{lost}"

    def summary(self) -> LiveSummary:
        return self._core.summary()


def name_of(interface: str, ports: Collection[int]) -> str:
    """What is looked at, for people."""
    return f"{interface} port {', '.join(map(str, ports))}" if ports else interface


def nothing_seen(interface: str, seen: LiveSummary) -> list[str]:
    """Where else packets may be, if there were none."""
    if seen["counts"]["tcp_packets"] or interface in ("any", "lo"):
        return []
    return [f"no TCP on {interface}: what this host sends to its own addresses, also to that of {interface}, passes lo"]


def watch(interface: str, ports: Collection[int], *, for_s: float | None, progress: Progress | None = None, **more: Any) -> LiveSummary:
    """Catches packets for some time or until Ctrl-C; what was seen. Raises LeadlineError."""
    progress = progress or Silent()
    probe = WireProbe(None, interface, ports, **more)
    with stop_on_signal() as stop:
        probe.start()
        began = time.monotonic()
        whole_s = math.inf if for_s is None else for_s
        while not stop.is_set() and (left := whole_s - (time.monotonic() - began)) > 0:
            progress.update(time.monotonic() - began, whole_s, probe.progress())
            stop.wait(min(WAIT_S, left))
        final = probe.stop()
    progress.done()
    if final["error"] is not None:
        from leadline.errors import LeadlineError

        raise LeadlineError(**final["error"])
    return probe.summary()


def record(
    interface: str, ports: Collection[int], *, for_s: float | None, out: Path | None, overwrite: bool = False,
    expression: str | None = None, progress: Progress | None = None, **more: Any,
) -> tuple[Path, LiveSummary]:  # fmt: skip
    """The same into a capture: its directory, and what was seen; connections are in its tables. Raises LeadlineError."""
    with new_capture(out, overwrite=overwrite) as directory:
        probe = WireProbe(directory, interface, ports, **more)
        target = Target("network", name_of(interface, ports), detail={"interface": interface, "ports": list(ports)})
        options = {"interface": interface, "ports": list(ports), "for_s": for_s}
        options |= {name: value for name, value in more.items() if name not in ("hosts", "program")}
        if expression is not None:
            options["filter"] = expression
        recording = Recording(directory, target, [probe, OverheadProbe(directory)], progress or Silent(), options)
        recording.run(math.inf if for_s is None else for_s)
    return directory, probe.summary()

"""The TCP connections of a server as a probe: their queues, windows and counters, by sock_diag (crates/host)."""

from __future__ import annotations

from pathlib import Path

from leadline import _core
from leadline.capture.manifest import Manifest, ProbeState
from leadline.errors import LeadlineError
from leadline.host.proc import in_our_network
from leadline.probes.probe import ThreadProbe

RATE_HZ = 1.0


class SocketsProbe(ThreadProbe["_core.host.SocketsProbe"]):
    """Looks at the connections to one port of a server on this host. Raises LeadlineError where they cannot be seen."""

    name = "sockets"
    required = False

    def __init__(self, directory: Path, pid: int, port: int) -> None:
        if not in_our_network(pid):
            raise LeadlineError(
                "unsupported",
                "the server is in another network namespace, whose connections are not seen from here",
                hint=f"nsenter -t {pid} -n leadline take ...",
            )
        super().__init__(_core.host.SocketsProbe(str(directory), pid, port, RATE_HZ))

    def follow(self, pid: int, port: int) -> None:
        """The server has started again."""
        self._core.follow(pid, port)

    def describe(self, manifest: Manifest) -> None:
        if self.name in manifest.probes:
            return  # what it may see does not change
        if self._core.sees_owners():
            state = ProbeState("ok", tier="socket", rate_hz=RATE_HZ)
        else:
            why = "no permission to see which process has which connection: sessions are joined by the client's port alone"
            state = ProbeState("partial", why, "run as root", "socket", RATE_HZ)
        manifest.probes[self.name] = state

"""The probes of a server, in the order in which `take` attaches them: each says whether it is wanted, and attaches itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from leadline.capture import manifest
from leadline.engines.live import Server, live_of
from leadline.errors import LeadlineError
from leadline.probes.host import DEFAULT_RATE_HZ as HOST_RATE_HZ
from leadline.probes.host import HostProbe
from leadline.probes.kernel import attach as attach_kernel
from leadline.probes.options import Options
from leadline.probes.probe import Probe
from leadline.probes.sockets import SocketsProbe
from leadline.probes.wire import WireProbe

EVERY_INTERFACE = "any"  # clients come from this host and from others


@dataclass
class Attached:
    """What has been attached so far: the probes, those that were wanted and cannot be had, and what the user should know.

    on_return: who is told of the server when it is back after a restart; None when nobody is.
    """

    probes: list[Probe] = field(default_factory=list)
    absent: dict[str, manifest.ProbeState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    on_return: list[Callable[[Server], None]] | None = None

    def missing(self, name: str, error: LeadlineError) -> manifest.ProbeState:
        """Notes that a probe cannot be had."""
        why = "; ".join(part for part in (error.message, error.detail) if part)
        self.absent[name] = manifest.ProbeState("off", why, error.hint)
        return self.absent[name]

    def follow(self, told: Callable[[Server], None]) -> None:
        if self.on_return is not None:
            self.on_return.append(told)


@dataclass(frozen=True)
class Place:
    """Where and how probes are attached."""

    server: Server
    directory: Path
    options: Options

    @property
    def required(self) -> bool:
        return not self.options.keep_going

    def pid(self) -> int:
        """Of a server on this host. Raises LeadlineError."""
        if self.server.pid is None:
            raise LeadlineError("usage", "the server does not run on this host", hint="take the capture on the server's host")
        return self.server.pid


class Attachable(Protocol):
    name: str

    def wanted(self, at: Place, so_far: Attached) -> bool:
        """Whether it can say anything of this server; it was chosen."""

    def attach(self, at: Place, so_far: Attached) -> None:
        """Raises LeadlineError when the capture cannot do without it."""


class Sessions:
    name = "sessions"

    def wanted(self, at: Place, so_far: Attached) -> bool:
        return True

    def attach(self, at: Place, so_far: Attached) -> None:
        o = at.options
        try:
            found = live_of(at.server).sample(
                at.server, at.directory, rate_hz=o.rate, tier=o.tier, follows=not o.stop_with_server, required=at.required
            )
        except LeadlineError as e:
            if at.required or "host" not in o.chosen or at.server.pid is None:
                raise
            so_far.notes.append(f"sessions are not sampled: {so_far.missing(self.name, e).why}")
            return
        so_far.probes.append(found.probe)
        so_far.notes += found.notes
        so_far.on_return = found.on_return


class Host:
    name = "host"

    def wanted(self, at: Place, so_far: Attached) -> bool:
        return at.server.pid is not None or not so_far.probes

    def attach(self, at: Place, so_far: Attached) -> None:
        pid, alone = at.pid(), not so_far.probes
        so_far.probes.append(HostProbe(at.directory, HOST_RATE_HZ, required=alone, pid=pid, stored=at.server.stored_paths()))


class Sockets:
    name = "sockets"

    def wanted(self, at: Place, so_far: Attached) -> bool:
        return at.server.pid is not None or not so_far.probes

    def attach(self, at: Place, so_far: Attached) -> None:
        try:
            probe = SocketsProbe(at.directory, at.pid(), at.server.port())
        except LeadlineError as e:
            if not so_far.probes:
                raise
            so_far.missing(self.name, e)
            return
        so_far.probes.append(probe)
        so_far.follow(lambda now: probe.follow(Place(now, at.directory, at.options).pid(), now.port()))


class Kernel:
    name = "kernel"

    def wanted(self, at: Place, so_far: Attached) -> bool:
        return True

    def attach(self, at: Place, so_far: Attached) -> None:
        pid = at.pid()
        try:
            traced = attach_kernel(at.directory, [pid], **at.options.kernel, required=at.required)
        except LeadlineError as e:
            if at.required:
                raise
            so_far.missing(self.name, e)
            so_far.notes.append(f"threads are not traced: {e.message}")
            return
        so_far.notes += traced.notes
        if traced.probe is not None:
            so_far.probes.append(traced.probe)
            so_far.follow(traced.probe.follow)
        elif "host" not in at.options.chosen:
            so_far.probes.append(HostProbe(at.directory, HOST_RATE_HZ, required=at.required, pid=pid))
        if traced.state is not None:
            so_far.absent[self.name] = traced.state


class Wire:
    name = "wire"

    def wanted(self, at: Place, so_far: Attached) -> bool:
        return True

    def attach(self, at: Place, so_far: Attached) -> None:
        only = at.options.only
        try:
            at.pid()
            port, program = at.server.port(), None if only is None else only.for_kernel()
            so_far.probes.append(WireProbe(at.directory, EVERY_INTERFACE, [port], required=at.required, program=program))
        except LeadlineError as e:
            if at.required:
                raise
            so_far.missing(self.name, e)
            so_far.notes.append(f"packets are not captured: {e.message}")


PROBES: tuple[Attachable, ...] = (Sessions(), Host(), Sockets(), Kernel(), Wire())


def attach(server: Server, directory: Path, options: Options) -> Attached:
    """The chosen probes of a server. Raises LeadlineError."""
    at, so_far = Place(server, directory, options), Attached(notes=list(server.notes))
    for probe in PROBES:
        if probe.name in options.chosen and probe.wanted(at, so_far):
            probe.attach(at, so_far)
    return so_far

"""What a probe of a capture is: something with a name that looks in threads of its own and writes tables of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

from leadline.capture.manifest import Manifest
from leadline.capture.store import Store

if TYPE_CHECKING:
    from leadline._core.capture import ProbeFinal, ProbeStatus


class Probe(Protocol):
    """One probe of one capture. It was attached when it was made, and is started once.

    required: the capture ends when it fails. An optional one becomes `partial` or `off`, and the others go on.
    """

    name: str
    required: bool

    def before(self, store: Store, manifest: Manifest) -> None:
        """Writes what is read once, before the window. Raises LeadlineError."""

    def start(self) -> None:
        """Begins to look."""

    def status(self) -> ProbeStatus:
        """How it goes."""

    def stop(self) -> ProbeFinal:
        """Ends it and writes everything out. Calling again gives the same."""

    def describe(self, manifest: Manifest) -> None:
        """Puts its state into the manifest: rights, tier, rate; again at the end, when it knows more."""

    def after(self, store: Store, manifest: Manifest) -> None:
        """Writes what is read once, after the window; the others too have ended. Raises LeadlineError."""

    def progress(self) -> str:
        """How it goes, in a few words for the terminal."""


@runtime_checkable
class WritesSoon(Protocol):
    """A probe that writes out at once what it has seen, for somebody who is about to read it."""

    def write_soon(self) -> None:
        """From any thread. Does not wait."""


class Thread(Protocol):
    """What looks in a thread of its own, compiled."""

    def start(self) -> None: ...
    def status(self) -> ProbeStatus: ...
    def stop(self) -> ProbeFinal: ...


Core = TypeVar("Core", bound=Thread)


class ThreadProbe(Generic[Core]):
    """What the probes have in common that are one thread of the compiled part, and read nothing before and after the window."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def before(self, store: Store, manifest: Manifest) -> None: ...

    def start(self) -> None:
        self._core.start()

    def status(self) -> ProbeStatus:
        return self._core.status()

    def stop(self) -> ProbeFinal:
        return self._core.stop()

    def after(self, store: Store, manifest: Manifest) -> None: ...

    def progress(self) -> str:
        return ""

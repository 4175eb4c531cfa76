"""What a probe of a capture is: something with a name that looks in threads of its own and writes tables of its own."""

from __future__ import annotations

from typing import Any, Protocol

from leadline.capture.manifest import Manifest
from leadline.capture.store import Store

Status = dict[str, Any]  # running, error (dict or None), ts_from, ticks, missed, rows, bytes_written; after the stop tables, loss, ts_to


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

    def status(self) -> Status:
        """How it goes."""

    def stop(self) -> Status:
        """Ends it and writes everything out; the final status. Calling again gives the same."""

    def describe(self, manifest: Manifest) -> None:
        """Puts its state into the manifest: rights, tier, rate; again at the end, when it knows more."""

    def after(self, store: Store, manifest: Manifest) -> None:
        """Writes what is read once, after the window; the others too have ended. Raises LeadlineError."""

    def progress(self, status: Status) -> str:
        """A few words for the terminal."""

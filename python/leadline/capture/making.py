"""A capture while it is made: its manifest on disk from the first moment, and the views beside it.

The manifest is refreshed as the capture grows, so that a killed recorder leaves a readable capture; room for the last one is set
aside, so that a full disk can still be told.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from leadline.book.recorder import current
from leadline.capture.manifest import Manifest, Target, write_manifest
from leadline.capture.views import tables_with_rows, write_views
from leadline.errors import LeadlineError, cannot_be_written

RESERVE = ".reserve"
RESERVE_BYTES = 128 << 10  # room for the last manifest when the disk is full


class Making:
    """Writes the manifest and views.sql of one capture directory."""

    def __init__(self, directory: Path, target: Target, options: dict[str, Any]) -> None:
        self.directory = directory
        self.manifest = Manifest(target, options=options)
        self._viewed: set[str] | None = None  # tables that views.sql has
        current().artifact("capture", directory)

    def reserve(self) -> None:
        """Sets room aside so that the end can still be written on a full disk."""
        try:
            (self.directory / RESERVE).write_bytes(b"\0" * RESERVE_BYTES)
        except OSError as e:
            (self.directory / RESERVE).unlink(missing_ok=True)
            raise cannot_be_written("the capture", e, self.directory) from e

    def write(self) -> None:
        """Replaces manifest.json as one step, and views.sql when more tables have rows than the last time."""
        write_manifest(self.directory, self.manifest)
        present = tables_with_rows(self.directory, self._viewed or ())
        if present != self._viewed:
            write_views(self.directory, present)
            self._viewed = present

    def end(self, error: LeadlineError | None) -> None:
        """The manifest that ends the capture, with the room set aside for it: `complete`, or `failed` with the error."""
        self.manifest.status = "complete" if error is None else "failed"
        self.manifest.error = None if error is None else error.as_dict()
        (self.directory / RESERVE).unlink(missing_ok=True)
        self.write()

    @contextmanager
    def from_files(self) -> Iterator[Manifest]:
        """A capture that is made from files within the block: `complete` when it ends, else `failed` with the error."""
        self.reserve()
        began, cpu = time.monotonic(), time.process_time()
        try:
            self.write()
            yield self.manifest
        except BaseException as e:
            error = e if isinstance(e, LeadlineError) else LeadlineError("gone", f"interrupted by {type(e).__name__}")
            with suppress(LeadlineError):  # the first error is the one to tell, and the manifest on disk says "recording"
                self.end(error)
            raise
        self.manifest.cost.of_window(time.process_time() - cpu, time.monotonic() - began)
        self.end(None)

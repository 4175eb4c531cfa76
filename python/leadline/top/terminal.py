"""The terminal the screen is drawn on may be closed at any moment; leaving must work all the same.

Textual writes to sys.__stderr__ in a thread that ends at the first error; the rest of it then waits for that thread for ever.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Forgiving:
    """A text stream that drops what cannot be written."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


@contextmanager
def forgiving_terminal() -> Iterator[None]:
    """Within the block sys.__stderr__ forgives."""
    before = sys.__stderr__
    vars(sys)["__stderr__"] = Forgiving(before)
    try:
        yield
    finally:
        vars(sys)["__stderr__"] = before

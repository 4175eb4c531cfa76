"""Layouts and loads as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from leadline.whole import read_text

LARGEST_TEXT = 1 << 20
EXAMPLES = "leadline storage example prints ready layouts and loads"


@dataclass(frozen=True)
class File:
    """A layout or loads: the text as it was, and its name for errors."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path) -> File:
        """Raises LeadlineError."""
        return cls(str(path), read_text(path, LARGEST_TEXT, EXAMPLES))

    @property
    def pair(self) -> tuple[str, str]:
        return self.text, self.name

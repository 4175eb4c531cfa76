"""Small files of the kernel, without pathlib, whose import takes a tenth of the start of a command. The rest is in leadline.host.proc."""

from __future__ import annotations

import os

PROC, SYS = "/proc", "/sys"


def read_text(path: str | os.PathLike[str]) -> str | None:
    """The text of a small file; None when it is absent or may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return None


def inside(directory: str) -> list[str]:
    """Names in a directory, in order; none where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []

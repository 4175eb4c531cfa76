"""What stands where a file or a backup is expected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 40)


ODD: dict[str, Callable[[Path], object]] = {
    "a fifo": os.mkfifo,
    "a folder": Path.mkdir,
    "a link loop": lambda path: path.symlink_to(path.name),
    "a sparse file": sparse,
    "no text": lambda path: path.write_bytes(b"\xff\xfe\n"),
}

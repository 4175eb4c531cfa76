"""Small files that people write, read whole: designs, layouts, loads, forecasts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from leadline.errors import LeadlineError


def read_whole(path: Path, most: int, hint: str = "") -> bytes:
    """most: bytes. hint: for a file that is not there.

    Raises LeadlineError; also for what is no file, since to open a pipe is to wait for somebody who writes.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise LeadlineError("not_found", "there is no such file", hint=hint, where=str(path)) from None
    except OSError as e:
        raise LeadlineError("storage", "the file cannot be read", detail=e.strerror or "", where=str(path)) from e
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        os.close(fd)
        raise LeadlineError("invalid", "this is no file", where=str(path))
    with open(fd, "rb") as file:
        data = file.read(most + 1) if about.st_size <= most else b""
    if max(len(data), about.st_size) > most:
        raise LeadlineError("invalid", f"the file is larger than {most >> 20} MB", where=str(path))
    return data


def read_text(path: Path, most: int, hint: str = "") -> str:
    """As read_whole, of UTF-8. Raises LeadlineError."""
    try:
        return read_whole(path, most, hint).decode()
    except UnicodeDecodeError as e:
        raise LeadlineError("invalid", "the file is no UTF-8 text", detail=str(e), where=str(path)) from None

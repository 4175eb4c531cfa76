"""A capture as a stream between two hosts: a tar archive of its files. What comes is from outside: only files of a capture are written."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import IO, Any

from leadline.capture.manifest import MANIFEST
from leadline.errors import LeadlineError, cannot_be_written

_NAME = re.compile(r"(?:[a-z][a-z0-9_]*/)?[A-Za-z0-9][A-Za-z0-9_-]*\.(?:parquet|json|sql)", re.ASCII)


def files_of(directory: Path) -> list[Path]:
    """The manifest first: with it alone, the capture can be opened."""
    found = [path for path in directory.rglob("*") if path.is_file() and _NAME.fullmatch(path.relative_to(directory).as_posix())]
    return sorted(found, key=lambda path: (path.name != MANIFEST, path))


def send(directory: Path, to: IO[bytes]) -> None:
    with tarfile.open(fileobj=to, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path in files_of(directory):
            archive.add(path, path.relative_to(directory).as_posix(), recursive=False)


def receive(stream: Any, directory: Path) -> tuple[int, str]:
    """How many files came whole, and why not all of them; empty when the stream had its end. stream: has `read`.

    Raises LeadlineError when they cannot be written here.
    """
    count, part = 0, directory / ".part"
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() and _NAME.fullmatch(member.name) else None
                if content is None:
                    return count, f"the archive has {member.name[:80]!r}, which is no file of a capture"
                try:
                    target = directory / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with part.open("wb") as file:
                        while piece := content.read(1 << 20):
                            file.write(piece)
                        whole = file.tell() == member.size
                    if not whole:
                        return count, "the stream ended in the middle of a file"
                    part.replace(target)
                except OSError as e:
                    raise cannot_be_written("the capture of the other host", e, directory) from e
                count += 1
    except (tarfile.TarError, EOFError) as e:
        return count, f"the stream ended early: {e}"
    except LeadlineError as e:
        if e.kind == "storage":
            raise
        return count, "; ".join(text for text in (e.message, e.detail) if text)
    finally:
        part.unlink(missing_ok=True)
    return count, ""

"""Paths that may be of an object store: s3://BUCKET/KEY. What is there, store.py reads."""

from __future__ import annotations

import os
from pathlib import Path, PosixPath

SCHEME = "s3://"


class StorePath(PosixPath):
    """The path of an object, or of what is a folder by the names of objects. Nothing of it is on this host."""

    def __str__(self) -> str:
        return SCHEME + super().__str__().removeprefix("s3:").lstrip("/")

    def __fspath__(self) -> str:
        return str(self)

    def absolute(self) -> StorePath:
        return self

    @property
    def bucket(self) -> str:
        return self.parts[1] if len(self.parts) > 1 else ""

    @property
    def key(self) -> str:
        return "/".join(self.parts[2:])


def path_of(text: str | os.PathLike[str]) -> Path:
    """A path of this host or of a store."""
    told = os.fspath(text)
    return StorePath(told) if told.startswith(SCHEME) else Path(told)

"""Backups and archives of WAL whose files are put where they can be read as those of a data directory."""

from collections.abc import Callable
from typing import final

__all__ = ["ArchivedWal", "BackupFiles", "mount"]

def mount(root: str, list: Callable[[str], list[tuple[str, int | None]]], read: Callable[[str, int, int], bytes]) -> None:
    """Objects of a store are files below this path from now on. list: names in a folder, named from the root on, and how long each
    file is; None of a folder. read: so many bytes of a file from an offset on. What they raise is the error of that file or folder.
    They are called from several threads."""

@final
class BackupFiles:
    """The files of a backup, under the names that they have in the data directory."""

    @staticmethod
    def open(path: str, bases: list[str] | None, key: str | None = None) -> BackupFiles | None:
        """None where path is a data directory that is read in place, or nothing that is known. bases: of an incremental backup those that
        it is based on, the oldest first; None: only what is in it itself is wanted. Raises LeadlineError when it cannot be read or the
        backups do not follow each other."""

    def kind(self) -> str: ...
    def files(self) -> dict[str, int]:
        """How many bytes each file takes at most when it is extracted; 0 where a link is enough."""

    def small(self, name: str) -> bytes | None:
        """The content of PG_VERSION, global/pg_control, backup_label or a pg_filenode.map."""

    def unread(self) -> list[tuple[str, str]]:
        """What the backup has and cannot give: name and reason."""

    def extract(self, into: str, names: set[str]) -> list[tuple[str, str]]:
        """Puts files into a folder; those of which not all could be read, and why. Raises LeadlineError."""

@final
class ArchivedWal:
    """An archive of WAL that has to be copied to be read: in a store, or encrypted by pgBackRest."""

    @staticmethod
    def open(path: str, key: str | None = None) -> ArchivedWal | None:
        """None where path is read in place. Raises LeadlineError, kind rights without the right key."""

    def files(self) -> dict[str, int]:
        """Names in the archive's folder, or in that of the file, and how many bytes each takes at most when it is copied."""

    def copy(self, into: str, names: set[str]) -> None:
        """Writes files under the same names, decrypted, and compressed as they are. Raises LeadlineError."""

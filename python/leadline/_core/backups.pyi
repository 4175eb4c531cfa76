"""Backups and archives of WAL whose files are put where they can be read as those of a data directory."""

from typing import final

__all__ = ["BackupFiles", "EncryptedWal"]

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
class EncryptedWal:
    """An archive of WAL that pgBackRest encrypted."""

    @staticmethod
    def open(path: str, key: str | None = None) -> EncryptedWal | None:
        """None where path is no encrypted archive, folder or file of one. Raises LeadlineError, kind rights without the right key."""

    def files(self) -> dict[str, int]:
        """Names in the archive's folder, or in that of the file, and how many bytes each takes at most when it is decrypted."""

    def decrypt(self, into: str, names: set[str]) -> None:
        """Writes files under the same names, compressed as they are. Raises LeadlineError."""

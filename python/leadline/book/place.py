"""Where the book is: LEADLINE_BOOK names a folder, a PostgreSQL database, or `off`; by default it is among the user's own state."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "LEADLINE_BOOK"
OFF = "off"
SCHEMES = ("postgresql://", "postgres://")


@dataclass(frozen=True)
class Place:
    """Folders and files of a book on this host. Only their owner may read them: command lines and output are in there.

    dsn: the database whose tables are the store; without one, it is an SQLite file in the folder.
    """

    root: Path
    dsn: str | None = None

    @property
    def spool(self) -> Path:
        """A file of events for each run that is not yet whole in the store."""
        return self.root / "spool"

    @property
    def logs(self) -> Path:
        """What commands printed."""
        return self.root / "logs"

    @property
    def store(self) -> Path:
        return self.root / "book.sqlite"

    @property
    def variable(self) -> str:
        """What LEADLINE_BOOK must be to mean this book."""
        return self.dsn or str(self.root)

    def make(self) -> None:
        """Raises OSError."""
        for folder in (self.root, self.spool, self.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def spool_of(self, uid: str) -> Path:
        return self.spool / f"{uid}.jsonl"

    def log_of(self, uid: str) -> Path:
        return self.logs / f"{uid}.log"

    def index_of(self, uid: str) -> Path:
        """Where lines begin in the log."""
        return self.logs / f"{uid}.lines"


def find_place() -> Place | None:
    """The book of this user; None where it is off."""
    said = os.environ.get(VARIABLE, "")
    if said.lower() == OFF:
        return None
    if said.startswith(SCHEMES):
        return Place(_state() / f"book-{_name_of(said)}", said)
    return Place(Path(said).expanduser().absolute() if said else _state() / "book")


def _state() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "leadline"


def _name_of(dsn: str) -> str:
    """The same for a database whatever password is given."""
    import hashlib

    from leadline.book.redact import redact_text

    return hashlib.sha256(redact_text(dsn).encode("utf-8", "surrogateescape")).hexdigest()[:12]

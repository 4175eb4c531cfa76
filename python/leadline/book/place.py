"""Where the book is: LEADLINE_BOOK names a directory, a PostgreSQL database, or `off`; by default it is among the user's own state.

Without pathlib where a run is recorded: its import would take as long as all the rest.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "LEADLINE_BOOK"
OFF = "off"
SCHEMES = ("postgresql://", "postgres://")


class NotOurs(PermissionError):
    """A directory in which somebody else could read secrets or change evidence. hint: what to do about it."""

    def __init__(self, directory: str, why: str, hint: str) -> None:
        super().__init__(errno.EPERM, why, directory)
        self.hint = hint


def check_ours(directory: str) -> None:
    """Raises NotOurs for a directory of somebody else, or that others may write to; OSError for none."""
    about = os.lstat(directory)
    us = os.geteuid()
    if stat.S_ISLNK(about.st_mode):
        if about.st_uid not in (us, 0):
            raise NotOurs(directory, f"it is a link of {_user(about.st_uid)}", f"rm {directory}")
        about = os.stat(directory)
    if about.st_uid != us:
        detail = f"it belongs to {_user(about.st_uid)}, not to {_user(us)}"
        raise NotOurs(directory, detail, "use a directory of your own, or work as its owner")
    if about.st_mode & 0o022:
        who = "everybody" if about.st_mode & 0o002 else "its group"
        raise NotOurs(directory, f"{who} may write to it (mode {about.st_mode & 0o7777:04o})", f"chmod 700 {directory}")


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


class Place:
    """Directories and files of a book on this host. Only their owner may read them: command lines and output are in there.

    dsn: the database whose tables are the store; without one, it is an SQLite file in the directory.
    """

    def __init__(self, directory: str | os.PathLike[str], dsn: str | None = None) -> None:
        self.directory, self.dsn = os.fspath(directory), dsn

    @property
    def root(self) -> Path:
        from pathlib import Path

        return Path(self.directory)

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
        return self.dsn or self.directory

    def make(self) -> None:
        """Raises OSError; NotOurs where somebody else could change the book."""
        for directory in (f"{self.directory}/spool", f"{self.directory}/logs"):
            if not os.path.isdir(directory):
                os.makedirs(os.path.dirname(self.directory), exist_ok=True)
                if not os.path.isdir(self.directory):
                    os.makedirs(self.directory, 0o700, exist_ok=True)
                os.makedirs(directory, mode=0o700, exist_ok=True)
        for directory in (self.directory, f"{self.directory}/spool", f"{self.directory}/logs"):
            check_ours(directory)

    def spool_name(self, uid: str) -> str:
        return f"{self.directory}/spool/{uid}.jsonl"

    def spool_of(self, uid: str) -> Path:
        return self.spool / f"{uid}.jsonl"

    def log_of(self, uid: str) -> Path:
        return self.logs / f"{uid}.log"

    def packed_log_of(self, uid: str) -> Path:
        """The same, compressed (packed.py); there is only one of both."""
        return self.logs / f"{uid}.log.gz"

    def work_of(self, uid: str) -> Path:
        """Where the run of a template worked, if it was given no directory."""
        return self.root / "work" / uid

    def study_of(self, uid: str) -> Path:
        """Captures of the trials of a study, and what it must put back (journal.json) while it has not done so."""
        return self.root / "studies" / uid

    def reports_of(self, uid: str) -> Path:
        """Reports of captures that the run made, kept because they take seconds to make."""
        return self.root / "reports" / uid

    def index_of(self, uid: str) -> Path:
        """Where lines begin in the log."""
        return self.logs / f"{uid}.lines"


def find_place() -> Place | None:
    """The book of this user; None where it is off, or where there is no place for one."""
    said = os.environ.get(VARIABLE, "")
    if said.lower() == OFF:
        return None
    try:
        if said.startswith(SCHEMES):
            directory = os.path.join(_state(), f"book-{_name_of(said)}")
            return Place(directory, said) if os.path.isabs(directory) else None
        directory = os.path.expanduser(said) if said else os.path.join(_state(), "book")
        return Place(os.path.abspath(directory)) if said or os.path.isabs(directory) else None
    except OSError:  # the current directory is gone
        return None


def _state() -> str:
    """Relative, with its ~, for a user without a home."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"), "leadline")


def _name_of(dsn: str) -> str:
    """The same for a database whatever password is given."""
    import hashlib

    from leadline.book.redact import redact_text

    return hashlib.sha256(redact_text(dsn).encode("utf-8", "surrogateescape")).hexdigest()[:12]

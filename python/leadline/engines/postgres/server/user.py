"""As whom a private server runs. PostgreSQL refuses root, and rightly: so root steps down to an unprivileged user.

The binaries, and the directory for temporary files, may lie below a directory that user may not enter (a home directory of
mode 0700). Whether they do is tried out as that user: mode bits alone do not tell of ACLs and of read-only containers.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError

CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True)
class ServerUser:
    """The user that initdb and postgres run as. `switch`: whether the process must change to it first."""

    name: str
    uid: int
    gid: int
    switch: bool

    def popen_arguments(self) -> dict[str, Any]:
        """Arguments for subprocess that make the child this user, with no group of root left."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switch else {}

    def can_read(self, path: Path) -> bool:
        return self._test("-r", path)

    def can_execute(self, path: Path) -> bool:
        """For a directory: may enter it."""
        return self._test("-x", path)

    def _test(self, what: str, path: Path) -> bool:
        try:
            done = subprocess.run(["/bin/sh", "-c", f'test {what} "$1"', "sh", str(path)], cwd="/", **self.popen_arguments())
        except PermissionError as e:
            raise LeadlineError(
                "rights",
                f"this process is root but cannot switch to user {self.name}",
                detail="CAP_SETUID and CAP_SETGID are needed to start a server from root; they are not in this process's set",
                hint="run it as an ordinary user",
            ) from e
        return done.returncode == 0

    def own(self, path: Path) -> None:
        if self.switch:
            os.chown(path, self.uid, self.gid)


def _name_of(uid: int) -> str:
    """A container may run as a number that has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def user_of(uid: int, gid: int) -> ServerUser:
    """The owner of a cluster, whom root becomes to run its server."""
    return ServerUser(_name_of(uid), uid, gid, switch=True)


def server_user() -> ServerUser:
    """The present user; for root, postgres if the host has it, else nobody. Raises LeadlineError('rights') when there is neither."""
    if os.geteuid() != 0:
        return ServerUser(_name_of(os.geteuid()), os.geteuid(), os.getegid(), switch=False)
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return ServerUser(name, entry.pw_uid, entry.pw_gid, switch=True)
    raise LeadlineError(
        "rights",
        "PostgreSQL does not run as root, and this host has no unprivileged user for it",
        detail=f"looked for the users {' and '.join(CANDIDATES)}",
        hint="useradd --system --no-create-home postgres, or run it as an ordinary user",
    )

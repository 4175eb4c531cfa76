"""Who is refused: by rights of a file or folder, by the kernel's rules, by a seccomp filter; and who lost rights by being followed."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from shlex import quote
from typing import Any

from leadline.why.cause import Cause
from leadline.why.seen import Failure, Process, Seen

BITS = {"r": 4, "w": 2, "x": 1}
CAP_DAC_OVERRIDE, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 1, 19, 21
CHANGES_FOLDER = ("mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "link", "linkat", "symlink")


def _allows(part: dict[str, Any], who: dict[str, Any], right: str) -> bool:
    bit, mode = BITS[right], part["mode"]
    if int(who.get("capabilities") or "0", 16) >> CAP_DAC_OVERRIDE & 1:
        return right != "x" or part["type"] == "folder" or bool(mode & 0o111)
    if part["uid"] == who.get("uid"):
        return bool(mode >> 6 & bit)
    if part["gid"] == who.get("gid") or part["gid"] in (who.get("groups") or []):
        return bool(mode >> 3 & bit)
    return bool(mode & bit)


def who_is_refused(failure: Failure, right: str) -> dict[str, Any] | None:
    """The first part of the path whose mode refuses: a folder that may not be entered, or the file itself."""
    walk, who = failure.facts.get("walk") or [], failure.facts.get("who") or {}
    parts = [part for part in walk if "mode" in part]
    for part in parts[:-1]:
        if not _allows(part, who, "x"):
            return {**part, "right": "enter"}
    if parts and len(parts) == len(walk) and not _allows(parts[-1], who, right):
        return {**parts[-1], "right": {"r": "read", "w": "write", "x": "execute"}[right]}
    if parts and (len(parts) < len(walk) or failure.call in CHANGES_FOLDER):  # what is to be made or removed lies in this folder
        folder = parts[-1] if len(parts) < len(walk) else parts[-2] if len(parts) > 1 else parts[-1]
        if folder["type"] == "folder" and not _allows(folder, who, "w"):
            return {**folder, "right": "write"}
    return None


def denied(failure: Failure) -> Cause | None:
    """EACCES that the modes of the path explain."""
    if failure.error != "EACCES" or not failure.matters or not failure.path:
        return None
    rights = ("x",) if failure.call in ("execve", "execveat") else ("r", "w")
    refused = next(filter(None, (who_is_refused(failure, right) for right in rights)), None)
    who = failure.facts.get("who") or {}
    if refused is None:
        return None
    path, verb = refused["path"], refused["right"]
    owner = f"owner {refused['uid']}, group {refused['gid']}, mode {refused['mode']:04o}"
    letter = {"enter": "x", "execute": "x", "read": "r", "write": "w"}[verb]
    grant = f"setfacl -m u:{who.get('uid')}:{letter} {quote(path)}, or run as another user"
    fix = f"chmod +x {quote(path)}" if verb == "execute" else grant
    statement = f"User {who.get('uid')} may not {verb} {path}" + (f", which {failure.path} needs." if path != failure.path else ".")
    return Cause("permission", 72, statement, [failure.as_call(), f"{path}: {owner}"], fix, failure.process, failure=failure)


def not_permitted(failure: Failure) -> Cause | None:
    if failure.error != "EPERM" or not failure.matters or failure.call == "mmap":
        return None
    who = failure.facts.get("who") or {}
    user = f"user {who['uid']}" if "uid" in who else "the process"
    about = f" of {failure.path}" if failure.path else ""
    statement = f"The kernel does not permit {failure.call}{about} to {user}: a capability is missing, or the file is immutable."
    fix = "run it as root, or with the capability"
    return Cause("not_permitted", 60, statement, [failure.as_call()], fix, failure.process, failure=failure)


def refused_by_filter(failure: Failure) -> Cause | None:
    """Another seccomp filter answered: the call never reached the kernel."""
    if not failure.by_filter or not failure.matters:
        return None
    statement = f"A seccomp filter refuses the call {failure.call} to {failure.process.name}."
    fix = f"allow {failure.call} in the sandbox: SystemCallFilter= in systemd, a seccomp profile in a container"
    return Cause("seccomp", 82, statement, [failure.as_call()], fix, failure.process, failure=failure)


def setuid_lost(seen: Seen, process: Process) -> Cause | None:
    """A program that would have run with the rights of its owner, if we were allowed to follow it then."""
    if not process.failed or _may_follow_setuid():
        return None
    try:
        about = Path(process.program).stat()
    except OSError:
        return None
    whose = next((f.facts["who"]["uid"] for f in seen.failures if f.process is process and f.facts.get("who")), os.geteuid())
    if not about.st_mode & stat.S_ISUID or whose == about.st_uid:
        return None
    owner = f"user {about.st_uid}"
    statement = f"{process.program} ran without the rights of {owner}: the kernel does not give them to a process that is followed."
    evidence = [f"{process.program}: owner {about.st_uid}, mode {stat.S_IMODE(about.st_mode):04o}, run by user {whose} (pid {process.pid})"]
    return Cause("setuid_lost", 84, statement, evidence, "run leadline why as root, or the command without it", process)


def _may_follow_setuid() -> bool:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.M)
    mine = int(found[1], 16) if found else 0
    return all(mine >> capability & 1 for capability in (CAP_SYS_PTRACE, CAP_SYS_ADMIN))

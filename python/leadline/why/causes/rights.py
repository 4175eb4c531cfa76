"""Who is refused: by rights of a file or directory, by the kernel's rules, by a seccomp filter; and who lost rights by being followed."""

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
CHANGES_DIRECTORY = (
    "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat",
    "mknod", "mknodat", "bind",
)  # fmt: skip


# The rights that calls need on their file; open and access say it themselves.
WANTS = {"execve": "x", "execveat": "x", "chdir": "x", "chroot": "x", "utimensat": "w", "truncate": "w", "connect": "w"}


def _allows(part: dict[str, Any], who: dict[str, Any], right: str) -> bool:
    bit, mode = BITS[right], part["mode"]
    if int(who.get("capabilities") or "0", 16) >> CAP_DAC_OVERRIDE & 1:
        return right != "x" or part["type"] == "folder" or bool(mode & 0o111)
    if part["uid"] == who.get("uid"):
        return bool(mode >> 6 & bit)
    if part["gid"] == who.get("gid") or part["gid"] in (who.get("groups") or []):
        return bool(mode >> 3 & bit)
    return bool(mode & bit)


def who_is_refused(failure: Failure, rights: str) -> dict[str, Any] | None:
    """The first part of the path whose mode refuses: a directory that may not be entered, that of what is to be made, or the file."""
    walk, who = failure.facts.get("walk") or [], failure.facts.get("who") or {}
    parts = [part for part in walk if "mode" in part]
    missing = len(parts) < len(walk)
    for part in parts if missing else parts[:-1]:
        if part["type"] == "folder" and not _allows(part, who, "x"):
            return {**part, "right": "enter", "letters": "x"}
    if missing:
        last = bool(walk) and walk[-1]["path"] == failure.path.rstrip("/")
        creates = failure.call in CHANGES_DIRECTORY or failure.detail.get("creates")
        if parts and last and creates and not _allows(parts[-1], who, "w"):
            return {**parts[-1], "right": "make anything in", "letters": "wx"}
        return None
    if failure.call in CHANGES_DIRECTORY:
        directory = parts[-2] if len(parts) > 1 else None
        if directory is not None and not _allows(directory, who, "w"):
            return {**directory, "right": "change what is in", "letters": "wx"}
        return None
    for right in rights:
        if parts and not _allows(parts[-1], who, right):
            return {
                **parts[-1],
                "right": {"r": "read", "w": "write", "x": "enter" if parts[-1]["type"] == "folder" else "execute"}[right],
                "letters": rights,
            }
    return None


def denied(failure: Failure) -> Cause | None:
    """EACCES that the modes of the path explain. A program that was to be executed is refused whether or not that was told."""
    if failure.error != "EACCES" or not failure.matters or not failure.path.startswith("/"):
        return None
    executes = failure.call in ("execve", "execveat")
    if not failure.said and not executes:
        return None
    if executes and (failure.facts.get("file") or {}).get("type") == "folder":  # nobody may: what was said of it tells why
        return None
    wants = WANTS.get(failure.call) or failure.detail.get("wants") or ""
    user = (failure.facts.get("who") or {}).get("uid")
    refused = who_is_refused(failure, wants)
    if refused is None:
        return _protected(failure) or (_by_other_rules(failure) if wants or failure.call in CHANGES_DIRECTORY else None)
    path, verb = refused["path"], refused["right"]
    owner = f"owner {refused['uid']}, group {refused['gid']}, mode {refused['mode']:04o}"
    statement = f"User {user} may not {verb} {path}" + (f", which {failure.path} needs." if path != failure.path else ".")
    letters = refused["letters"]
    if verb == "execute" and user in (0, refused["uid"]):
        fix = f"chmod u+x {quote(path)}"
    elif user == refused["uid"]:
        fix = f"chmod u+{letters} {quote(path)}"
    elif user == 0:
        fix = "root lacks the capability CAP_DAC_OVERRIDE here: run it as the owner, or give the capability"
    else:
        fix = f"run it as user {refused['uid']}, or give this user no more than that: setfacl -m u:{user}:{letters} {quote(path)}"
    return Cause("permission", 72, statement, [failure.as_call(), f"{path}: {owner}"], fix, failure.process, failure=failure)


def _protected(failure: Failure) -> Cause | None:
    """Files of others in a directory that all may write and that is sticky, such as /tmp: the kernel refuses them even to root."""
    walk, file, user = failure.facts.get("walk") or [], failure.facts.get("file") or {}, (failure.facts.get("who") or {}).get("uid")
    directory = walk[-2] if len(walk) > 1 and "mode" in walk[-1] else None
    if directory is None or not directory["mode"] & stat.S_ISVTX or not directory["mode"] & 0o022:
        return None
    if file.get("uid") in (user, directory["uid"]):
        return None
    if not failure.detail.get("creates"):
        return None
    setting = "protected_fifos" if file.get("type") == "pipe" else "protected_regular"
    statement = f"{failure.path} belongs to user {file.get('uid')} and lies in the sticky directory {directory['path']}: "
    statement += f"fs.{setting} lets nobody else open it with O_CREAT."
    evidence = [failure.as_call(), f"{directory['path']}: mode {directory['mode']:04o}; fs.{setting}: {_fs(setting)}"]
    fix = f"delete {quote(failure.path)}, or use a file in a directory of one's own"
    return Cause("protected_file", 78, statement, evidence, fix, failure.process, failure=failure)


def _by_other_rules(failure: Failure) -> Cause | None:
    """The modes allow it."""
    statement = f"{failure.call} of {failure.path} was refused, though the modes of the path allow it: "
    statement += "an access list or a security module forbids it."
    fix = f"getfacl {quote(failure.path)}; dmesg or the audit log, for AppArmor and SELinux"
    return Cause("permission", 55, statement, [failure.as_call()], fix, failure.process, failure=failure)


def _fs(name: str) -> str:
    try:
        return Path("/proc/sys/fs", name).read_text().strip()
    except OSError:
        return "unknown"


# Capabilities that calls need, capabilities(7).
NEEDS = {
    "chown": "CAP_CHOWN", "fchown": "CAP_CHOWN", "lchown": "CAP_CHOWN", "fchownat": "CAP_CHOWN", "chmod": "CAP_FOWNER",
    "fchmod": "CAP_FOWNER", "fchmodat": "CAP_FOWNER", "utimensat": "CAP_FOWNER", "mount": "CAP_SYS_ADMIN", "umount2": "CAP_SYS_ADMIN",
    "unshare": "CAP_SYS_ADMIN", "setns": "CAP_SYS_ADMIN", "pivot_root": "CAP_SYS_ADMIN", "sethostname": "CAP_SYS_ADMIN",
    "chroot": "CAP_SYS_CHROOT", "setuid": "CAP_SETUID", "setresuid": "CAP_SETUID", "setgid": "CAP_SETGID", "setresgid": "CAP_SETGID",
    "setgroups": "CAP_SETGID", "setrlimit": "CAP_SYS_RESOURCE", "prlimit64": "CAP_SYS_RESOURCE", "setpriority": "CAP_SYS_NICE",
    "sched_setscheduler": "CAP_SYS_NICE", "mlock": "CAP_IPC_LOCK", "settimeofday": "CAP_SYS_TIME", "clock_settime": "CAP_SYS_TIME",
    "init_module": "CAP_SYS_MODULE", "finit_module": "CAP_SYS_MODULE", "mknod": "CAP_MKNOD", "mknodat": "CAP_MKNOD",
    "reboot": "CAP_SYS_BOOT", "ptrace": "CAP_SYS_PTRACE", "bpf": "CAP_BPF", "perf_event_open": "CAP_PERFMON", "socket": "CAP_NET_RAW",
}  # fmt: skip


def not_permitted(failure: Failure) -> Cause | None:
    if failure.error != "EPERM" or not failure.matters or not failure.said or failure.call == "mmap":
        return None
    who, walk = failure.facts.get("who") or {}, [part for part in failure.facts.get("walk") or [] if "mode" in part]
    directory = walk[-2] if len(walk) > 1 and walk[-1]["path"] == failure.path else walk[-1] if walk else None
    marked = [part for part in (walk[-1:] if walk else []) + ([directory] if directory else []) if part.get("attributes")]
    if marked and failure.path:
        path, how = marked[0]["path"], marked[0]["attributes"][0]
        statement = f"{path} is {how}: the kernel lets nobody, root neither, {'change' if how == 'immutable' else 'rewrite or delete'} it."
        return Cause(
            "immutable",
            80,
            statement,
            [failure.as_call(), f"lsattr -d {quote(path)} shows it"],
            f"chattr -{how[0]} {quote(path)}",
            failure.process,
            failure=failure,
        )
    user = f"user {who['uid']}" if "uid" in who else "the process"
    about = f" of {failure.path}" if failure.path else ""
    file = failure.facts.get("file") or {}
    of_others = failure.call in CHANGES_DIRECTORY and file.get("uid") != who.get("uid")
    if directory is not None and directory["mode"] & stat.S_ISVTX and of_others:
        statement = (
            f"{failure.path} belongs to user {file.get('uid')}: in the sticky directory {directory['path']} only the owner may delete it."
        )
        return Cause(
            "permission", 72, statement, [failure.as_call()], f"run it as user {file.get('uid')}", failure.process, failure=failure
        )
    if failure.call.startswith("link") and file.get("uid") != who.get("uid"):
        statement = f"The kernel does not permit {user} a hard link to a file of another user."
        return Cause(
            "permission",
            72,
            statement,
            [failure.as_call(), f"fs.protected_hardlinks: {_fs('protected_hardlinks')}"],
            "copy it, or use a symbolic link",
            failure.process,
            failure=failure,
        )
    capability = NEEDS.get(failure.call)
    text = f"it needs {capability}" if capability else "a capability is missing"
    statement = f"The kernel does not permit {failure.call}{about} to {user}: {text}."
    fix = (
        f"run it as root, or with {capability} alone: setpriv --ambient-caps, AmbientCapabilities= in systemd, --cap-add"
        if capability
        else "run it as root, or with the capability"
    )
    return Cause("not_permitted", 66, statement, [failure.as_call()], fix, failure.process, failure=failure)


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

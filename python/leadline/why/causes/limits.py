"""Limits of processes, users and control groups."""

from __future__ import annotations

from leadline.units import sized
from leadline.why.cause import Cause
from leadline.why.seen import Failure

LOCKS = ("mlock", "mlock2", "mlockall")


def _limit(failure: Failure, name: str) -> int | None:
    """The soft limit; None for unlimited."""
    values = (failure.facts.get("limits") or {}).get(name) or [None]
    value = values[0]
    return value if isinstance(value, int) else None


# Words of a message that may be about such a limit, though it has not the system's text for the error.
_WORDS = {"open_files": "files|descriptor|accept", "processes": "fork|thread|process|resource", "file_size": "large|size|writ",
          "memory": "memory|alloc|heap|space", "locked_memory": "lock|memory", "inotify_instances": "inotify|watch"}  # fmt: skip


def _cause(kind: str, failure: Failure, statement: str, evidence: str, fix: str) -> Cause:
    words = _WORDS.get(kind, "")
    return Cause(kind, 86, statement, [failure.as_call(), evidence], fix, failure.process, hard=True, failure=failure, words=words)


def open_files(failure: Failure) -> Cause | None:
    if not failure.matters or failure.error not in ("EMFILE", "ENFILE"):
        return None
    if failure.error == "ENFILE":
        statement = "The host has no room for more open files."
        return _cause("open_files", failure, statement, "see /proc/sys/fs/file-nr", "sysctl fs.file-max=N")
    limit, used = _limit(failure, "Max open files"), failure.facts.get("open_files")
    statement = f"{failure.process.name} may have {limit} files open, and has no descriptor left."
    fix = "ulimit -n N before the command, or LimitNOFILE=N in its systemd unit"
    return _cause("open_files", failure, statement, f"limit on open files: {limit}; open: {used}", fix)


def processes(failure: Failure) -> Cause | None:
    if not failure.matters or failure.error != "EAGAIN" or failure.call not in ("clone", "clone3", "fork", "vfork"):
        return None
    limit, group = _limit(failure, "Max processes"), failure.facts.get("group")
    if group is not None and (limit is None or group["has"] >= group["most"]):
        statement = f"The control group {group['path']} may have {group['most']} processes and threads, and has {group['has']}."
        fix = "raise its pids.max (TasksMax= in systemd)"
        return _cause("processes", failure, statement, f"pids.max {group['most']}, pids.current {group['has']}", fix)
    if limit is None:
        statement, fix = "The host has as many processes and threads as the kernel allows.", "sysctl kernel.pid_max kernel.threads-max"
        return _cause("processes", failure, statement, "no limit of the user or its control groups", fix)
    user = (failure.facts.get("who") or {}).get("uid")
    statement = f"User {user} may have {limit} processes and threads, and cannot start one more."
    return _cause("processes", failure, statement, f"limit on processes: {limit}", "ulimit -u N, or nproc in /etc/security/limits.conf")


def inotify_instances(failure: Failure) -> Cause | None:
    """The user has as many as it may. With as many descriptors as it may, the process gets the same error."""
    if not failure.matters or failure.error != "EMFILE" or failure.call not in ("inotify_init", "inotify_init1"):
        return None
    most, used = _limit(failure, "Max open files"), failure.facts.get("open_files")
    if most is not None and used is not None and used >= most:
        return None
    limit = (failure.facts.get("inotify") or {}).get("instances")
    user = (failure.facts.get("who") or {}).get("uid")
    statement = f"User {user} has as many instances of inotify as the kernel allows" + (f": {limit}." if limit else ".")
    evidence = f"fs.inotify.max_user_instances: {limit or 'not known, in another user namespace'}; open files of the process: {used}"
    return _cause("inotify_instances", failure, statement, evidence, "sysctl fs.inotify.max_user_instances=N; or stop what watches files")


def inotify_watches(failure: Failure) -> Cause | None:
    if not failure.matters or failure.error != "ENOSPC" or failure.call != "inotify_add_watch":
        return None
    limit = (failure.facts.get("inotify") or {}).get("watches")
    user = (failure.facts.get("who") or {}).get("uid")
    statement = f"User {user} watches as many files as the kernel allows" + (f": {limit}." if limit else ".")
    evidence = f"fs.inotify.max_user_watches: {limit or 'not known, in another user namespace'}"
    return Cause(
        "inotify_watches", 85, statement, [failure.as_call(), evidence], "sysctl fs.inotify.max_user_watches=N", failure.process,
        hard=bool(failure.said), failure=failure, words="inotify|watch|space",
    )  # fmt: skip


def file_size(failure: Failure) -> Cause | None:
    limit = _limit(failure, "Max file size")
    if not failure.matters or failure.error != "EFBIG":
        return None
    statement = f"{failure.path} cannot grow: files may have {sized(limit) or 'no more than the file system allows'}."
    return _cause("file_size", failure, statement, f"limit on file size: {limit}", "ulimit -f unlimited before the command")


def locked_memory(failure: Failure) -> Cause | None:
    """Refused with EPERM where the limit is 0, and with ENOMEM above it: which an address without memory gives, too."""
    limit = _limit(failure, "Max locked memory")
    if not failure.matters or failure.call not in LOCKS or failure.error not in ("ENOMEM", "EPERM") or limit is None:
        return None
    statement = f"{failure.process.name} may lock {sized(limit)} of memory, and asked for more."
    return _cause("locked_memory", failure, statement, f"limit on locked memory: {limit}", "ulimit -l N before the command")


def memory(failure: Failure) -> Cause | None:
    if not failure.matters or failure.error != "ENOMEM" or failure.detail.get("huge"):
        return None
    limit, size = _limit(failure, "Max address space"), failure.facts.get("size_bytes")
    if limit is not None:
        statement = f"{failure.process.name} may map {sized(limit)} of memory, and asked for more."
        evidence = f"limit on address space: {limit}; mapped: {size}"
        return _cause("memory", failure, statement, evidence, "ulimit -v unlimited before the command")
    statement = f"The kernel gave {failure.process.name} no more memory."
    return _cause("memory", failure, statement, f"mapped: {size}", "free -m; sysctl vm.overcommit_memory vm.max_map_count")

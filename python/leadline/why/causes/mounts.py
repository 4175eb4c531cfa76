"""Mount options that refuse: noexec, ro."""

from __future__ import annotations

from shlex import quote

from leadline.why.cause import Cause
from leadline.why.causes.rights import who_is_refused
from leadline.why.seen import Failure

RUNS = {"execve": "EACCES", "execveat": "EACCES", "access": "EACCES", "faccessat": "EACCES", "faccessat2": "EACCES", "mmap": "EPERM"}


def no_exec(failure: Failure) -> Cause | None:
    """A file that its own rights allow to execute, on a mount that does not. The kernel says the same as of missing rights."""
    options = failure.mount.get("options", "").split(",")
    if failure.resolved or RUNS.get(failure.call) != failure.error or "noexec" not in options:
        return None
    file = failure.facts.get("file") or {}
    if file.get("type") != "file" or (failure.call != "mmap" and not file.get("executable")):
        return None
    if failure.call == "mmap" and not failure.matters:  # a library that tries several folders
        return None
    if failure.call != "mmap" and who_is_refused(failure, "x"):
        return None
    point = failure.mount["point"]
    return Cause(
        "noexec", 100,
        f"{failure.path} cannot be executed: {point} is mounted with the option noexec.",
        [failure.as_call(), f"mount: {failure.mount['source']} on {point} type {failure.mount['type']} ({failure.mount['options']})"],
        f"mount -o remount,exec {quote(point)}; or let the files be unpacked elsewhere, for most programs with TMPDIR=/a/folder",
        failure.process, hard=True, failure=failure,
    )  # fmt: skip


def read_only(failure: Failure) -> Cause | None:
    if failure.error != "EROFS" or not failure.matters:
        return None
    point = failure.mount.get("point", "its file system")
    return Cause(
        "read_only", 80,
        f"{failure.path or 'a file'} cannot be written: {point} is mounted read-only.",
        [failure.as_call(), f"mount: {point} ({failure.mount.get('options', 'unknown')})"],
        f"mount -o remount,rw {quote(point)}; or write elsewhere",
        failure.process, hard=failure.said, failure=failure,
    )  # fmt: skip

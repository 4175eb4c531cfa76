"""Mount options that refuse: noexec, ro."""

from __future__ import annotations

from shlex import quote

from leadline.why.cause import Cause
from leadline.why.causes.rights import who_is_refused
from leadline.why.seen import Failure

NEVER_WRITTEN = ("squashfs", "iso9660", "erofs", "cramfs", "udf")
RUNS = {"execve": "EACCES", "execveat": "EACCES", "access": "EACCES", "faccessat": "EACCES", "faccessat2": "EACCES", "mmap": "EPERM"}


def no_exec(failure: Failure) -> Cause | None:
    """A file that its own rights allow to execute, on a mount that does not. The kernel says the same as of missing rights."""
    options = failure.mount.get("options", "").split(",")
    if failure.resolved or RUNS.get(failure.call) != failure.error or "noexec" not in options:
        return None
    file = failure.facts.get("file") or {}
    if file.get("type") != "file" or (failure.call != "mmap" and not file.get("executable")):
        return None
    if failure.call == "mmap" and not failure.matters:  # a library that tries several directories
        return None
    if failure.call == "execve" and failure.before_exec:
        return None
    if failure.call in ("access", "faccessat", "faccessat2") and "x" not in (failure.detail.get("wants") or "x"):
        return None
    if failure.call != "mmap" and who_is_refused(failure, "x"):
        return None
    point = failure.mount["point"]
    return Cause(
        "noexec", 100,
        f"{failure.path} cannot be executed: {point} is mounted with the option noexec.",
        [failure.as_call(), f"mount: {failure.mount['source']} on {point} type {failure.mount['type']} ({failure.mount['options']})"],
        f"mount -o remount,exec {quote(point)}; or let the files be unpacked elsewhere, for most programs with TMPDIR=/a/directory",
        failure.process, hard=True, failure=failure, words="denied|exec|permi|not found|cannot|could not",
    )  # fmt: skip


def read_only(failure: Failure) -> Cause | None:
    if failure.error != "EROFS" or not failure.matters:
        return None
    mount = failure.mount
    point, kind = mount.get("point", "its file system"), mount.get("type", "")
    if kind in NEVER_WRITTEN:
        fix = f"write elsewhere: a file system of type {kind} is never written"
    elif "ro" in mount.get("super_options", "").split(",") and "ro" not in mount.get("options", "").split(","):
        fix = f"dmesg shows whether an error stopped the kernel from writing: fsck first, then mount -o remount,rw {quote(point)}"
    else:
        fix = f"mount -o remount,rw {quote(point)} (in a container: the volume without ro); or write elsewhere"
    return Cause(
        "read_only", 80,
        f"{failure.path or 'a file'} cannot be written: {point} is mounted read-only.",
        [failure.as_call(), f"mount: {mount.get('source', '?')} on {point} type {kind or '?'} ({mount.get('options', 'unknown')})"],
        fix, failure.process, hard=bool(failure.said), failure=failure, words="read-only|writ",
    )  # fmt: skip

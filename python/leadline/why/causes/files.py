"""Files that are not there, where a process then said so. Alone, such a failure means nothing: every program looks for files."""

from __future__ import annotations

import os
from shlex import quote

from leadline.why.cause import Cause
from leadline.why.seen import Failure

EXECS = ("execve", "execveat")
REMOVED = " (deleted)"  # what the kernel puts behind the name of a directory that a process is still in


def _searched() -> set[str]:
    usual = {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}
    return usual | set(os.environ.get("PATH", "").split(":"))


def program_not_found(failure: Failure) -> Cause | None:
    if failure.error != "ENOENT" or not failure.matters or failure.facts.get("exists") or not failure.process.failed:
        return None
    name = failure.path.rsplit("/", 1)[-1]
    if failure.call not in EXECS or name.endswith(".so") or ".so." in name:
        return None
    if name.endswith("\r"):  # the interpreter that a script asks env for
        script = failure.process.program
        statement = f"The first line of {script} ends with a carriage return (a file from Windows): there is no program {name!r}."
        return Cause(
            "missing_interpreter",
            95,
            statement,
            [failure.as_call()],
            "sed -i 's/\\r$//' SCRIPT",
            failure.process,
            hard=True,
            failure=failure,
            words=".",
        )
    if failure.path[: -len(name) - 1] in _searched():
        statement = f"There is no program {name}: it is in none of the directories of PATH."
    else:
        statement = f"There is no program {failure.path}."
    return Cause(
        "program_not_found",
        64,
        statement,
        [failure.as_call()],
        f"install {name}, or add its directory to PATH",
        failure.process,
        failure=failure,
        words="not found|no such",
    )


def absent(failure: Failure) -> Cause | None:
    if failure.error not in ("ENOENT", "ENOTDIR", "EISDIR") or not failure.said or not failure.matters or not failure.process.failed:
        return None
    if not failure.path.startswith("/") or (failure.facts.get("exists") and failure.error == "ENOENT"):
        return None
    walk = failure.facts.get("walk") or []
    first = walk[-1]["path"] if walk and "error" in walk[-1] else failure.path
    text = {"ENOENT": "does not exist", "ENOTDIR": "needs a directory where there is a file", "EISDIR": "is a directory"}[failure.error]
    statement, fix = f"{failure.path} {text}.", "create it, or correct the path"
    evidence = [failure.as_call()] + ([f"{first} is the first part of it that is missing"] if first != failure.path else [])
    makes = failure.detail.get("creates") or failure.call in ("mkdir", "mkdirat", "bind")
    if failure.error == "ENOENT" and first.endswith(REMOVED):
        gone = first.removesuffix(REMOVED)
        statement = f"The current directory {gone} was removed: {failure.path.removeprefix(first + '/')} cannot be found or made in it."
        fix = "cd to a directory that exists, and run it again"
    elif first != failure.path and failure.error == "ENOENT" and makes:
        statement, fix = (
            f"The directory {first} does not exist, in which {failure.path} is to be made.",
            f"mkdir -p {quote(first)}, or correct the path",
        )
    elif failure.path.startswith(("/proc/", "/sys/")):
        fix = "correct the path: what is in /proc and /sys the kernel makes itself, some of it once a module is loaded (modprobe)"
    return Cause("file_not_found", 50, statement, evidence, fix, failure.process, failure=failure)

"""Files that are not there, where a process then said so. Alone, such a failure means nothing: every program looks for files."""

from __future__ import annotations

from leadline.why.cause import Cause
from leadline.why.seen import Failure

NOT_FOUND = 127
EXECS = ("execve", "execveat")


def program_not_found(failure: Failure) -> Cause | None:
    if failure.error != "ENOENT" or failure.facts.get("exists") or failure.resolved or failure.process.exit_code != NOT_FOUND:
        return None
    name = failure.path.rsplit("/", 1)[-1]
    if not (failure.said or failure.call in EXECS) or name.endswith(".so") or ".so." in name:
        return None
    statement = f"There is no program {name}: it is in none of the folders of PATH, or not at {failure.path}."
    fix = f"install {name}, or add its folder to PATH"
    return Cause("program_not_found", 64, statement, [failure.as_call()], fix, failure.process, failure=failure)


def absent(failure: Failure) -> Cause | None:
    if failure.error not in ("ENOENT", "ENOTDIR", "EISDIR") or not failure.said or not failure.process.failed or not failure.path:
        return None
    if failure.facts.get("exists") and failure.error == "ENOENT":
        return None
    if "/LC_MESSAGES/" in failure.path:  # looked for in order to say what failed
        return None
    if failure.path.rsplit("/", 1)[-1] == failure.process.name and failure.path not in failure.process.said:
        return None  # the message begins with the name of the program, and speaks of no file
    walk = failure.facts.get("walk") or []
    first = walk[-1]["path"] if walk and "error" in walk[-1] else failure.path
    text = {"ENOENT": "does not exist", "ENOTDIR": "needs a folder where there is a file", "EISDIR": "is a folder"}[failure.error]
    evidence = [failure.as_call()] + ([f"{first} is the first part of it that is missing"] if first != failure.path else [])
    fix = "create it, or correct the path"
    return Cause("file_not_found", 50, f"{failure.path} {text}.", evidence, fix, failure.process, failure=failure)

"""Programs that are there and cannot run: interpreter, architecture, libraries."""

from __future__ import annotations

import platform

from leadline.why.cause import Cause
from leadline.why.seen import Failure, Process, Seen

EXECS = ("execve", "execveat")
# e_machine of ELF: include/uapi/linux/elf-em.h
MACHINES = {3: "i386", 8: "MIPS", 20: "PowerPC", 21: "PowerPC64", 22: "S/390", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}
LOADER_FAILED = 127


def missing_interpreter(failure: Failure) -> Cause | None:
    content = failure.facts.get("content") or {}
    if failure.call not in EXECS or failure.error != "ENOENT" or not failure.matters or content.get("interpreter_exists", True):
        return None
    wanted = content["interpreter"]
    if content["form"] == "script":
        ends = " The line ends with a carriage return (a file from Windows)." if content.get("carriage_return") else ""
        fix = f"install {wanted}, or correct the first line of {failure.path}"
        return _program("missing_interpreter", 95, failure, f"{failure.path} is a script for {wanted}, which does not exist.{ends}", fix)
    fix = f"install the C library that has {wanted} (32-bit programs need one of their own), or a build of the program for this system"
    return _program("missing_interpreter", 95, failure, f"{failure.path} needs the loader {wanted}, which does not exist.", fix)


def wrong_architecture(failure: Failure) -> Cause | None:
    content = failure.facts.get("content") or {}
    if failure.call not in EXECS or failure.error not in ("ENOEXEC", "ELIBBAD") or not failure.matters:
        return None
    if content.get("form") == "elf" and content.get("machine"):
        machine = MACHINES.get(content["machine"], f"machine {content['machine']}")
        statement = f"{failure.path} is a program for {machine}; this machine is {platform.machine()}."
        return _program("wrong_architecture", 92, failure, statement, f"get a build of it for {platform.machine()}")
    whats = {"empty": "is empty", "elf": "is a program whose header is damaged"}
    what = whats.get(content.get("form") or "", "is neither a program nor a script with a #! line")
    return _program("not_a_program", 70, failure, f"{failure.path} {what}.", "check that it was copied or unpacked whole")


def _program(kind: str, weight: int, failure: Failure, statement: str, fix: str) -> Cause:
    return Cause(kind, weight, statement, [failure.as_call()], fix, failure.process, hard=True, failure=failure, words=".")


def missing_library(seen: Seen, process: Process) -> Cause | None:
    """The loader looked everywhere, said so, and gave up."""
    if process.exit_code != LOADER_FAILED:
        return None
    missing = [library for library in process.libraries if library["name"] in process.said]
    if not missing:
        return None
    library = missing[-1]
    directories = ", ".join(library["folders"])
    return Cause(
        "missing_library", 95,
        f"{process.program} needs the library {library['name']}, which is in none of the directories searched.",
        [f"openat({library['name']}) = ENOENT in {directories}, by {process.name} (pid {process.pid}), which ended with 127"],
        f"install the package that has {library['name']}; if it is in another directory, add that to LD_LIBRARY_PATH or /etc/ld.so.conf.d",
        process, hard=True,
    )  # fmt: skip

"""What someone else uses: a program that runs, a mount, a lock, the kernel's objects that programs share."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from leadline.units import sized
from leadline.why.cause import Cause
from leadline.why.seen import Failure


def _holder(failure: Failure) -> str:
    holder = failure.facts.get("holder")
    return f"{holder['name']} (pid {holder['pid']})" if holder else ""


def program_in_use(failure: Failure) -> Cause | None:
    if failure.error != "ETXTBSY" or not failure.matters:
        return None
    who = _holder(failure)
    if failure.call in ("execve", "execveat"):
        statement = f"{failure.path} cannot be executed: {who or 'a process'} has it open for writing."
        fix = "wait until it is written, and close it before it is executed"
    else:
        statement = f"{failure.path} cannot be written: it is a program that {who or 'a process'} runs."
        fix = f"write a new file and rename it to {quote(failure.path)}, or stop the process first"
    return Cause("program_in_use", 84, statement, [failure.as_call()], fix, failure.process, failure=failure, words="busy|in use")


def in_use(failure: Failure) -> Cause | None:
    if failure.error != "EBUSY" or not failure.matters or not failure.said:
        return None
    point = failure.mount.get("point")
    if failure.path and failure.path == point:
        statement = f"{failure.path} is a mount point, and in use: {failure.call} is refused."
        fix = f"fuser -vm {quote(failure.path)} shows who uses it; umount {quote(failure.path)} first"
    else:
        statement = f"{failure.path or 'It'} is in use: {failure.call} is refused."
        fix = f"fuser -v {quote(failure.path)} shows who uses it" if failure.path else "see who uses it (fuser, lsof)"
    return Cause("in_use", 78, statement, [failure.as_call()], fix, failure.process, failure=failure)


def locked(failure: Failure) -> Cause | None:
    """A lock that was asked for without waiting."""
    if failure.call not in ("flock", "fcntl") or failure.error not in ("EAGAIN", "EACCES") or not failure.matters:
        return None
    who = _holder(failure)
    statement = f"Another process holds a lock on {failure.path}: {who}." if who else f"Another process holds a lock on {failure.path}."
    fix = "wait for it, or end it" + ("" if who else f"; fuser -v {quote(failure.path)} shows it")
    return Cause(
        "held_lock",
        82,
        statement,
        [failure.as_call()],
        fix,
        failure.process,
        failure=failure,
        words="lock|running|in use|another|unavailable",
    )


def _kernel(name: str) -> str:
    try:
        return Path("/proc/sys/kernel", name).read_text().strip()
    except OSError:
        return "unknown"


def system_v(failure: Failure) -> Cause | None:
    """Shared memory, semaphores and message queues of System V have limits of the whole host."""
    if failure.call not in ("shmget", "semget", "msgget") or failure.error not in ("ENOSPC", "EINVAL", "ENOMEM") or not failure.matters:
        return None
    size = sized(failure.detail.get("size"))
    text, setting = {
        ("shmget", "EINVAL"): (
            f"asked for a segment of {size} of shared memory: more than one may have, or another size than it has",
            "shmmax",
        ),
        ("shmget", "ENOSPC"): ("asked for shared memory: there are as many segments, or as much, as the kernel allows", "shmmni"),
        ("shmget", "ENOMEM"): (f"asked for {size} of shared memory, which the host does not have", "shmall"),
        ("semget", "ENOSPC"): ("asked for semaphores: there are as many as the kernel allows", "sem"),
        ("semget", "EINVAL"): (f"asked for a set of {failure.detail.get('size')} semaphores: more than one may have", "sem"),
    }.get((failure.call, failure.error), ("asked for a message queue: there are as many as the kernel allows", "msgmni"))
    if failure.detail.get("huge") and failure.error == "ENOMEM":
        return None
    value = _kernel(setting) if failure.detail.get("of_host") else "not known, in another namespace"
    evidence = [failure.as_call(), f"kernel.{setting}: {value}"]
    fix = f"sysctl kernel.{setting}=N; ipcs -a lists what there is, ipcrm removes what nobody uses"
    statement = f"{failure.process.name} {text}."
    return Cause(
        "system_v", 85, statement, evidence, fix, failure.process, failure=failure, words="shared memory|semaphore|message queue|memory"
    )


def asynchronous_io(failure: Failure) -> Cause | None:
    if failure.call != "io_setup" or failure.error != "EAGAIN" or not failure.matters:
        return None
    try:
        most, used = (Path("/proc/sys/fs", name).read_text().strip() for name in ("aio-max-nr", "aio-nr"))
    except OSError:
        most = used = "unknown"
    statement = f"{failure.process.name} asked for asynchronous I/O: the host has as many requests as the kernel allows ({most})."
    evidence = [failure.as_call(), f"fs.aio-max-nr: {most}, fs.aio-nr: {used} now"]
    return Cause(
        "asynchronous_io",
        84,
        statement,
        evidence,
        "sysctl fs.aio-max-nr=N",
        failure.process,
        failure=failure,
        words="aio|io_setup|asynchronous",
    )


def huge_pages(failure: Failure) -> Cause | None:
    """Memory in huge pages, of which the host has too few. Most programs then take ordinary pages: that resolves the failure."""
    if failure.error != "ENOMEM" or not failure.detail.get("huge") or not failure.matters:
        return None
    info = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    free, size = info.get("HugePages_Free", "0").strip(), info.get("Hugepagesize", "2048 kB").split()
    asked = failure.detail.get("length") or failure.detail.get("size") or 0
    pages = -(-int(asked) // (int(size[0]) * 1024))
    statement = (
        f"{failure.process.name} asked for {sized(asked)} in huge pages ({pages:,} of {size[0]} kB), and the host has {free} free."
    )
    evidence = [failure.as_call(), f"vm.nr_hugepages: {info.get('HugePages_Total', '0').strip()}; HugePages_Free: {free}"]
    fix = f"sysctl vm.nr_hugepages={pages} or more; or let the program use ordinary pages (PostgreSQL: huge_pages = try)"
    return Cause("huge_pages", 87, statement, evidence, fix, failure.process, failure=failure, words="memory|huge|alloc")

"""Paths that no right and no space would help: too long, in a circle, on another file system; and too many arguments."""

from __future__ import annotations

from shlex import quote

from leadline.units import sized
from leadline.why.cause import Cause
from leadline.why.seen import Failure

NAME_MAX, PATH_MAX, SOCKET_MAX = 255, 4096, 107


def other_file_system(failure: Failure) -> Cause | None:
    if failure.error != "EXDEV" or not failure.matters or not failure.said:
        return None
    source = failure.detail.get("from") or "the file"
    verb = "linked" if failure.call.startswith("link") else "renamed"
    statement = f"{source} cannot be {verb} to {failure.path}: they lie on different mounts."
    evidence = [failure.as_call(), f"{failure.path} lies on {failure.mount.get('point', 'another mount')}"]
    fix = "copy it and delete the old one (mv does that), or use a symbolic link; keep temporary files on the file system of the target"
    return Cause("other_file_system", 80, statement, evidence, fix, failure.process, failure=failure)


def name_too_long(failure: Failure) -> Cause | None:
    if failure.error != "ENAMETOOLONG" or not failure.matters or not failure.said:
        return None
    parts = max((part for part in failure.path.split("/")), key=len, default="")
    length, most = len(failure.path.encode()), PATH_MAX
    if len(parts.encode()) > NAME_MAX:
        statement = f"A name of {len(parts.encode())} bytes is too long: {parts[:40]}... A file's name has at most {NAME_MAX}."
    else:
        statement = f"A path of {length} bytes is too long: {failure.path[:60]}... It has at most {most - 1}."
    return Cause(
        "name_too_long",
        80,
        statement,
        [failure.as_call()[:300]],
        "use shorter names, or a directory nearer to the root",
        failure.process,
        failure=failure,
    )


def circle_of_links(failure: Failure) -> Cause | None:
    if failure.error != "ELOOP" or not failure.matters or not failure.said:
        return None
    statement = f"{failure.path} is a circle of symbolic links, or a link where none is allowed."
    return Cause(
        "link_loop", 80, statement, [failure.as_call()], f"namei {quote(failure.path)} shows the links", failure.process, failure=failure
    )


def too_many_arguments(failure: Failure) -> Cause | None:
    """Arguments and environment have at most a quarter of the stack, and one of them at most 128 kB."""
    if failure.error != "E2BIG" or failure.call not in ("execve", "execveat") or failure.resolved or failure.before_exec:
        return None
    stack = ((failure.facts.get("limits") or {}).get("Max stack size") or [None])[0]
    room = sized(stack // 4) if isinstance(stack, int) else "6.3MB"
    name = failure.path.rsplit("/", 1)[-1]
    statement = f"{name} was started with more arguments and environment than fit: {room} in all, 131kB for one of them."
    evidence = [failure.as_call(), f"limit on the stack: {stack or 'none'}; a quarter of it is for arguments and environment"]
    fix = "xargs or find -exec ... + for parts of the list; a file in place of a long argument"
    return Cause("too_many_arguments", 84, statement, evidence, fix, failure.process, failure=failure, words="too long|argument")

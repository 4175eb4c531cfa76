"""No space, no inodes, no quota left."""

from __future__ import annotations

from shlex import quote

from leadline.units import sized
from leadline.why.cause import Cause
from leadline.why.seen import Failure

WORDS = "space|full|wr[io]t|quota"


def no_space(failure: Failure) -> Cause | None:
    if failure.error not in ("ENOSPC", "EDQUOT") or not failure.matters:
        return None
    if not failure.path.startswith("/"):
        return None
    if (failure.facts.get("file") or {}).get("type") == "device":
        statement = f"The device {failure.path} takes no more."
        return Cause("no_space", 90, statement, [failure.as_call()], "write elsewhere", failure.process, True, failure, WORDS)
    place, space = failure.mount.get("point", "?"), failure.facts.get("space") or {}
    if failure.error == "EDQUOT":
        what, fix = f"the quota on {place} is used up", "quota -s; free space, or ask for more"
    elif not space.get("free_inodes", 1) and space.get("total_inodes"):
        what, fix = f"{place} has no inode left, of {space['total_inodes']:,}", f"delete files: df -i {quote(place)}"
    else:
        free, total = space.get("free_bytes") or 0, space.get("total_bytes") or 0
        word = "is full" if free * 20 < total or not total else "has not enough space for it"
        what = f"{place} {word}: {sized(space.get('free_bytes'))} of {sized(space.get('total_bytes'))} are free"
        fix = f"free space on {place} (df -h {quote(place)}), or write elsewhere"
    mount = f"mount: {failure.mount.get('source', '?')} on {place} type {failure.mount.get('type', '?')}"
    kind = "no_quota" if failure.error == "EDQUOT" else "no_space"
    return Cause(
        kind,
        90,
        f"{failure.path} cannot be written: {what}.",
        [failure.as_call(), mount],
        fix,
        failure.process,
        True,
        failure,
        WORDS,
    )

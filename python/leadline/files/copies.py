"""Copies of a cluster that share nothing with it, and what differs between two of them after they were recovered."""

from __future__ import annotations

import filecmp
import os
import subprocess
from pathlib import Path

from leadline._core.datadir import block_sizes
from leadline.errors import LeadlineError

COMPARED = ("base", "global", "pg_tblspc", "pg_xact", "pg_multixact", "pg_commit_ts", "pg_twophase")
"""Directories that two recoveries of one crash leave equal. Not the log, which each ends in its own way."""
SHOWN_PAGES = 8


def copy_cluster(data_dir: Path, target: Path) -> None:
    """Copies a data directory to a new directory, with owners and modes; and with it, beside it, what is behind links: tablespaces, pg_wal.

    As root the copies belong to the owner of the original. Raises LeadlineError.
    """
    _copy_directory(data_dir, target)
    links = [path for path in (*target.iterdir(), *(target / "pg_tblspc").iterdir()) if path.is_symlink() and path.is_dir()]
    for link in links:
        beside = target.with_name(f"{target.name}-space-{link.name}")
        _copy_directory(link.resolve(), beside)
        about = link.lstat()
        link.unlink()
        link.symlink_to(beside)
        os.chown(link, about.st_uid, about.st_gid, follow_symlinks=False)


def _copy_directory(source: Path, target: Path) -> None:
    try:
        about = source.stat()
        target.mkdir(mode=0o700)
        os.chown(target, about.st_uid, about.st_gid)
        copied = subprocess.run(["cp", "-a", "--reflink=auto", f"{source}/.", str(target)], capture_output=True, text=True)
    except OSError as e:
        raise LeadlineError("storage", "cannot copy the data directory", detail=e.strerror or "", where=str(source)) from e
    if copied.returncode:
        detail = copied.stderr.strip().splitlines()[-1] if copied.stderr.strip() else ""
        raise LeadlineError("storage", "cannot copy the data directory", detail=detail, where=str(source))


def size_of(data_dir: Path) -> int:
    """Bytes that a copy takes."""
    total = 0
    for directory, _, names in os.walk(data_dir, followlinks=True):
        for name in names:
            about = (Path(directory) / name).lstat()
            total += min(about.st_size, about.st_blocks * 512)  # files may have holes
    return total


def compared_files(data_dir: Path) -> dict[str, Path]:
    """Files that recovery is to leave as the server's does. Free space maps are another matter: the server, too, only guesses."""
    found = {}
    for top in COMPARED:
        for directory, _, names in os.walk(data_dir / top, followlinks=True):
            for name in names:
                path = Path(directory) / name
                if name not in ("pg_control", "pg_internal.init") and "_fsm" not in name and "pgsql_tmp" not in directory:
                    found[str(path.relative_to(data_dir))] = path
    return found


def differences(one: Path, other: Path) -> list[str]:
    """What is not equal, byte for byte."""
    a, b = compared_files(one), compared_files(other)
    page_size, _ = block_sizes(str(one))
    found = [f"{name}: only in {one.name}" for name in sorted(a.keys() - b.keys())]
    found += [f"{name}: only in {other.name}" for name in sorted(b.keys() - a.keys())]
    for name in sorted(a.keys() & b.keys()):
        if not filecmp.cmp(a[name], b[name], shallow=False):
            numbers = _differing_pages(a[name], b[name], page_size)
            pages = ", ".join(map(str, numbers[:SHOWN_PAGES])) + (" and more" if len(numbers) > SHOWN_PAGES else "")
            found.append(f"{name}: {a[name].stat().st_size} and {b[name].stat().st_size} bytes, pages {pages}")
    return found


def _differing_pages(one: Path, other: Path, size: int) -> list[int]:
    """The first of them, and one more than are shown if there is one."""
    found: list[int] = []
    with one.open("rb") as a, other.open("rb") as b:
        number = 0
        while len(found) <= SHOWN_PAGES:
            x, y = a.read(size), b.read(size)
            if not x and not y:
                break
            if x != y:
                found.append(number)
            number += 1
    return found

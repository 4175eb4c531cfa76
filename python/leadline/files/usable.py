"""Whether a server can use the files of its data directory: its directories are there, and what is in them is its owner's.

Copies go wrong in two ways that a recovery may not meet but the server does when it starts, or later: a tool leaves out empty
directories, or somebody copies one file as root.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.figures import count

# Without these no server starts. Directories that it makes itself, or does without until it stops, are left out.
NEEDED = (
    "base", "global", "pg_commit_ts", "pg_logical", "pg_logical/mappings", "pg_logical/snapshots", "pg_multixact",
    "pg_multixact/members", "pg_multixact/offsets", "pg_notify", "pg_replslot", "pg_subtrans", "pg_tblspc", "pg_twophase",
    "pg_wal", "pg_xact",
)  # fmt: skip
DIRECTORIES = (*(name for name in NEEDED if "/" not in name), "pg_dynshmem", "pg_serial", "pg_snapshots", "pg_stat", "pg_stat_tmp")
READ = ("PG_VERSION", "postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf", "backup_label", "tablespace_map")
WRITTEN = ("postmaster.opts",)
NOT_THE_SERVERS = "lost+found"  # of the file system, where a directory is one of its own


def check(data_dir: str) -> None:
    """To be called as the owner, for whom it looks. Raises LeadlineError."""
    root = Path(data_dir)
    try:
        about = root.stat()
    except OSError:
        return  # whoever reads it says what is wrong
    if about.st_uid != os.geteuid() or not (root / "PG_VERSION").exists():
        return  # of what is no data directory, such as a directory of tar archives, the reader says more
    if missing := [name for name in NEEDED if _is_missing(root / name)]:
        directories = " ".join(shlex.quote(str(root / name)) for name in missing)
        raise LeadlineError(
            "not_found",
            f"{count(len(missing), 'directory', 'directories')} of the data directory {'is' if len(missing) == 1 else 'are'} missing",
            detail=f"{', '.join(missing)}: the server does not start without",
            hint="copy again, or, where they were empty (some copies leave out empty directories), make them as the owner of the files: "
            f"mkdir -m 700 {directories}",
            where=data_dir,
        )
    refused = list(_refused(root))
    if refused:
        raise _not_the_owners(root, refused)


def _is_missing(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:  # of a directory above it that may not be entered
        pass
    return False


def _refused(root: Path) -> Iterator[str]:
    """Files and directories that this process may not use."""
    for name in READ:
        if not _may(path := str(root / name), os.R_OK):
            yield path
    for name in WRITTEN:
        if not _may(path := str(root / name), os.R_OK | os.W_OK):
            yield path
    below = [str(root / name) for name in DIRECTORIES]
    while below:
        directory = below.pop()
        if not _may(directory, os.R_OK | os.W_OK | os.X_OK):
            yield directory
            continue
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name == NOT_THE_SERVERS:
                        continue
                    if entry.is_dir(follow_symlinks=True):  # also of tablespaces, which are links
                        below.append(entry.path)
                    elif not _may(entry.path, os.R_OK | os.W_OK):
                        yield entry.path
        except OSError:  # it is gone, or no directory: whoever reads it says so
            continue


def _may(path: str, how: int) -> bool:
    """What is not there is no matter here, nor a file system that nobody may write to."""
    return os.access(path, how) or not Path(path).exists() or bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _not_the_owners(root: Path, refused: list[str]) -> LeadlineError:
    about, first = root.stat(), min(refused)
    of_first = Path(first).stat()
    owner, group = _name(about.st_uid, "passwd"), _name(about.st_gid, "group")
    foreign = [path for path in refused if Path(path).stat().st_uid != about.st_uid]
    if len(foreign) == len(refused) == 1:
        command = f"chown {owner}:{group} {shlex.quote(first)}"
    elif foreign:
        command = f"find -L {shlex.quote(str(root))} ! -user {owner} -exec chown {owner}:{group} {{}} +"
    else:
        command = f"chmod u+{'rwx' if stat.S_ISDIR(of_first.st_mode) else 'rw'} {shlex.quote(first)}"
    more = f"; and {count(len(refused) - 1, 'other')}" if len(refused) > 1 else ""
    return LeadlineError(
        "rights",
        f"the owner of the data directory ({owner}) may not use {'a file' if len(refused) == 1 else 'files'} in it",
        detail=f"it belongs to {_name(of_first.st_uid, 'passwd')}, mode {stat.S_IMODE(of_first.st_mode):04o}{more}",
        hint=f"{'as root: ' if foreign else ''}{command}",
        where=first,
    )


def _name(number: int, of: str) -> str:
    try:
        return pwd.getpwuid(number).pw_name if of == "passwd" else grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)

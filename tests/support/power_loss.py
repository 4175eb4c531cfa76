"""What is left of a data directory when the power fails: from the calls of a recovery, as strace saw them, the states of the disk.

After a power failure a file has what was written before its last fsync, and of what came later any sectors. A folder has the names of its
last fsync, and of later changes the first ones. That is less than file systems keep.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR, PAGE = 512, 8192
CALLS = (
    "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,fallocate,copy_file_range,sendfile,splice,fsync,fdatasync,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat"
)
OF_THE_WORK = ("postmaster.pid", "base/pgsql_tmp")
"""Names that matter to nobody afterwards."""


@dataclass(eq=False)
class File:
    """path: where its content was before; None when it is made. name: what it was first called, in the data directory."""

    path: Path | None
    name: str


@dataclass(frozen=True)
class Write:
    file: File
    offset: int
    data: bytes


@dataclass(frozen=True)
class Cut:
    """To a length, or longer with zeros."""

    file: File
    length: int


@dataclass(frozen=True)
class Named:
    """A name in a folder gets another meaning: a file, a link to a path, a new folder (""), or none."""

    folder: str
    name: str
    now: File | str | None

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}".lstrip("/")


@dataclass(frozen=True)
class Synced:
    """since: so many changes had been made when it began."""

    what: File | str
    since: int


@dataclass
class Traced:
    """base: the data directory before, as it is on the disk. changes: in order; the first ones are from before the recovery."""

    base: Path
    changes: list[Write | Cut | Named | Synced] = field(default_factory=list)
    files: dict[str, File | None] = field(default_factory=dict)

    def file(self, name: str) -> File | None:
        """That has this name now."""
        if name not in self.files:
            path = self.base / name
            self.files[name] = File(path, name) if path.is_file() and not path.is_symlink() else None
        return self.files[name]

    def rename(self, name: str, now: File | str | None) -> None:
        folder, _, last = name.rpartition("/")
        self.files[name] = now if isinstance(now, File) else None
        self.changes.append(Named(folder, last, now))

    def covered(self, moment: int) -> dict[File | str, int]:
        """Of each file and folder, before which change all is on the disk."""
        found: dict[File | str, int] = defaultdict(int)
        for change in self.changes[:moment]:
            if isinstance(change, Synced):
                found[change.what] = max(found[change.what], change.since)
        return found

    def unsynced(self, moment: int) -> Iterator[str]:
        """Names of what may not be on the disk."""
        covered = self.covered(moment)
        for number, change in enumerate(self.changes[:moment]):
            if isinstance(change, Named):
                if number >= covered[change.folder] and not change.path.startswith(OF_THE_WORK):
                    yield change.path
            elif not isinstance(change, Synced) and number >= covered[change.file] and not change.file.name.startswith(OF_THE_WORK):
                yield change.file.name

    def first_of(self, name: str) -> int:
        """When a file is written first."""
        return next(n for n, change in enumerate(self.changes) if isinstance(change, Write) and change.file.name == name)

    def first_beside(self, *names: str) -> int:
        """When anything else than the files of these folders is changed first."""
        for number, change in enumerate(self.changes):
            if not isinstance(change, Synced):
                name = change.path if isinstance(change, Named) else change.file.name
                if not name.startswith((*names, *OF_THE_WORK)):
                    return number
        raise AssertionError("nothing was changed")

    def never_synced(self, moment: int) -> set[str]:
        """Files that were there before, and still are, and that nobody has synced."""
        synced = {change.what for change in self.changes[:moment] if isinstance(change, Synced)}
        found = set()
        for folder, _, names in os.walk(self.base, followlinks=True):
            for name in names:
                path = str((Path(folder) / name).relative_to(self.base))
                file = self.file(path)
                if file is not None and file.path is not None and file not in synced and not path.startswith("postmaster."):
                    found.add(path)
        return found

    def apply(self, moment: int, rng: random.Random, target: Path) -> None:
        """Makes of a copy of the base what the disk has when the power fails after so many changes."""
        covered = self.covered(moment)
        share = rng.choice((0, 0.2, 0.8, 1))
        contents: dict[File, bytearray] = {}
        names: dict[str, list[tuple[int, Named]]] = defaultdict(list)
        for number, change in enumerate(self.changes[:moment]):
            if isinstance(change, Named):
                names[change.folder].append((number, change))
            if isinstance(change, Named | Synced):
                continue
            content = contents.setdefault(change.file, bytearray(change.file.path.read_bytes() if change.file.path else b""))
            is_certain = number < covered[change.file]
            if isinstance(change, Write):
                for at, data in [(0, change.data)] if is_certain else _parts(change.data, share, rng):
                    _put(content, change.offset + at, data)
            elif is_certain or rng.random() < share:
                content[:] = content[: change.length].ljust(change.length, b"\0")
        owner = self.base.stat()
        for file, content in contents.items():
            if file.path is not None:
                (target / file.path.relative_to(self.base)).write_bytes(content)
        for folder in sorted(names, key=lambda name: (name.count("/"), name)):
            certain = sum(number < covered[folder] for number, _ in names[folder])
            kept = rng.choice((certain, rng.randint(certain, len(names[folder])), len(names[folder])))
            for _, change in names[folder][:kept]:
                if (target / folder).is_dir():
                    _name(target / change.path, change.now, contents, (owner.st_uid, owner.st_gid))


def _parts(data: bytes, share: float, rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """What is on the disk of a write that was not synced: of each page all, nothing, or some sectors."""
    for at in range(0, len(data), PAGE):
        page = data[at : at + PAGE]
        if rng.random() < 0.15:
            for sector in range(0, len(page), SECTOR):
                if rng.random() < 0.5:
                    yield at + sector, page[sector : sector + SECTOR]
        elif rng.random() < share:
            yield at, page


def _put(content: bytearray, at: int, data: bytes) -> None:
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


def _name(path: Path, now: File | str | None, contents: dict[File, bytearray], owner: tuple[int, int]) -> None:
    if path.is_dir() and not path.is_symlink():
        if now == "":
            return
        subprocess.run(["rm", "-r", str(path)], check=True)
    path.unlink(missing_ok=True)
    if isinstance(now, File):
        content = contents.get(now)
        path.write_bytes(content if content is not None else now.path.read_bytes() if now.path else b"")
        path.chmod(0o600)
    elif now == "":
        path.mkdir(mode=0o700)
    elif now is not None:
        path.symlink_to(now)
    if now is not None:
        os.chown(path, *owner, follow_symlinks=False)


def trace(traced: Traced, strace: str, data_dir: Path, log: Path, *options: object) -> None:
    """Recovers a copy, and adds what leadline does to its files. log: for the lines of strace."""
    command = [strace, "-f", "-qqq", "-y", "-xx", "-s", "10000000", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(log)]
    command += [sys.executable, "-m", "leadline", "recover", str(data_dir), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    reader = _Reader(traced, data_dir)
    with log.open() as lines:
        for line in lines:
            reader.line(line)
    log.unlink()


class _Reader:
    """Makes changes of the lines of strace."""

    def __init__(self, traced: Traced, data_dir: Path) -> None:
        self.traced = traced
        self.folders = {data_dir: ""}
        self.folders |= {link.resolve(): f"pg_tblspc/{link.name}/" for link in (data_dir / "pg_tblspc").iterdir()}
        self.begun: dict[str, tuple[str, str, int]] = {}
        self.places: dict[int, int] = {}

    def line(self, line: str) -> None:
        """`PID call(arguments) = 0`; or in two lines, `PID call(argum <unfinished ...>` and `PID <... call resumed>ents) = 0`."""
        thread, _, rest = line.strip().partition(" ")
        rest = rest.lstrip()
        if rest.startswith(("+++", "---")):
            return
        call, arguments, since = "", "", len(self.traced.changes)
        if rest.startswith("<... "):
            call, arguments, since = self.begun.pop(thread)
            rest = rest.partition(" resumed>")[2]
        else:
            call, _, rest = rest.partition("(")
        if rest.endswith("<unfinished ...>"):
            self.begun[thread] = (call, rest.removesuffix("<unfinished ...>"), since)
            return
        rest, _, returned = rest.rpartition("= ")
        number = re.match(r"\d+", returned)
        if number is not None:
            arguments += rest.rstrip().removesuffix(")")
            getattr(self, f"on_{call}")(arguments.rstrip().split(", "), int(number[0]), since)

    def name(self, argument: str, at: str = "") -> str | None:
        """Of a path, or of an open file, in the data directory; none when it is elsewhere. at: the folder that the path begins at."""
        text = _unhex(argument)
        path = Path(text) if text.startswith("/") or not at else Path(_unhex(at)) / text
        for folder, prefix in self.folders.items():
            if path.is_relative_to(folder):
                rest = str(path.relative_to(folder))
                return (prefix + rest if rest != "." else prefix).rstrip("/")
        return None

    def opened(self, argument: str) -> File | None:
        """The file that a descriptor is of, unless it is elsewhere or has no name any more."""
        name = None if argument.endswith("(deleted)") else self.name(argument)
        return None if name is None else self.traced.file(name)

    def on_openat(self, arguments: list[str], returned: int, since: int) -> None:
        self.places[returned] = 0
        name = self.name(arguments[1], arguments[0])
        if name is None:
            return
        file = self.traced.file(name)
        if "O_CREAT" in arguments[2] and file is None:
            self.traced.rename(name, File(None, name))
        elif "O_TRUNC" in arguments[2] and file is not None:
            self.traced.changes.append(Cut(file, 0))

    def on_open(self, arguments: list[str], returned: int, since: int) -> None:
        self.on_openat(["", *arguments], returned, since)

    def on_write(self, arguments: list[str], returned: int, since: int) -> None:
        number = int(arguments[0].split("<")[0])
        at = self.places.get(number, 0)
        self.places[number] = at + returned
        self.on_pwrite64([*arguments, str(at)], returned, since)

    def on_pwrite64(self, arguments: list[str], returned: int, since: int) -> None:
        file = self.opened(arguments[0])
        if file is not None:
            data = bytes.fromhex(arguments[1].strip('"').replace("\\x", ""))
            assert len(data) >= returned
            self.traced.changes.append(Write(file, int(arguments[3]), data[:returned]))

    def on_ftruncate(self, arguments: list[str], returned: int, since: int) -> None:
        file = self.opened(arguments[0])
        if file is not None:
            self.traced.changes.append(Cut(file, int(arguments[1])))

    def on_fsync(self, arguments: list[str], returned: int, since: int) -> None:
        name = None if arguments[0].endswith("(deleted)") else self.name(arguments[0])
        if name is not None:
            self.traced.changes.append(Synced(self.traced.file(name) or name, since))

    on_fdatasync = on_fsync

    def on_rename(self, arguments: list[str], returned: int, since: int) -> None:
        source, target = self.name(arguments[0]), self.name(arguments[1])
        assert source is not None and target is not None
        file = self.traced.file(source)
        assert file is not None, "a folder is renamed"
        self.traced.rename(target, file)
        self.traced.rename(source, None)

    def on_unlink(self, arguments: list[str], returned: int, since: int) -> None:
        name = self.name(arguments[0])
        if name is not None:
            self.traced.rename(name, None)

    on_rmdir = on_unlink

    def on_unlinkat(self, arguments: list[str], returned: int, since: int) -> None:
        name = self.name(arguments[1], arguments[0])
        if name is not None:
            self.traced.rename(name, None)

    def on_mkdir(self, arguments: list[str], returned: int, since: int) -> None:
        name = self.name(arguments[0])
        if name is not None:
            self.traced.rename(name, "")

    def on_symlink(self, arguments: list[str], returned: int, since: int) -> None:
        name = self.name(arguments[1])
        if name is not None:
            self.traced.rename(name, _unhex(arguments[0]))


def _unhex(argument: str) -> str:
    return bytes.fromhex("".join(re.findall(r"\\x([0-9a-f]{2})", argument))).decode()

"""The pieces of a recorder's directory: ordinary captures, named after their start in UTC.

A piece says in its manifest which number it has. That is the order of the pieces, not their names: a wall clock that was set back
gives a later piece an earlier name, and what was recorded last must not be removed first.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from leadline.capture.manifest import MANIFEST, read_manifest
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError

NAME = re.compile(r"(\d{8}T\d{6})Z(?:-\d+)?(?:\.every\d+s)?\.leadline")
FORM = "%Y%m%dT%H%M%S"
REMOVING = ".removing"  # behind the name of a piece that is being removed: one whose removal was interrupted is no piece any more
MAKING = ".making"  # behind the name of a coarse piece that is not whole yet: no piece either
KILLED = "the recorder was killed"
OPTION = "recorder"  # what the options of a piece's manifest have of the recorder


@dataclass(frozen=True)
class Piece:
    """One capture of the row.

    number: its place in the row, from 1; 0 if its manifest cannot be read. wall_from, wall_to: ns since 1970, of one that was interrupted
    as far as it has rows. ts_from, ts_to: the same on CLOCK_MONOTONIC; None if nothing was recorded. recorder: which process made it,
    boot: in which start of the host.
    status: as in its manifest, `interrupted` of one whose recorder was killed, `damaged` without a readable manifest.
    last: of a coarse piece, the number of the last piece that it replaces, else its own. span_s: its level: the span of which it has one
    row; 0 where each pass has its own. waited: what kept it from beginning when the one before had ended; empty if nothing did.
    """

    path: Path
    number: int
    wall_from: int
    wall_to: int
    ts_from: int | None
    ts_to: int | None
    bytes: int
    status: str
    recorder: str = ""
    boot: str = ""
    error: str = ""
    last: int = 0
    span_s: int = 0
    waited: str = ""

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Gap:
    """Time between two pieces that neither has seen; why: in words."""

    wall_from: int
    seconds: float
    why: str
    switch: bool  # from one piece to the next of the same recorder, without anything in between


def new_name(wall_ns: int, taken: Iterable[str], span_s: int = 0) -> str:
    """The name of a piece that begins now. A clock that was set back may give a name that is taken."""
    start, names = datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime(FORM), set(taken)
    level = f".every{span_s}s" if span_s else ""
    tried = (f"{start}Z{again}{level}.leadline" for again in ("", *(f"-{number}" for number in range(2, len(names) + 3))))
    return next(name for name in tried if name not in names)


def used_bytes(path: Path) -> int:
    """What a directory takes of the disk, in blocks: pieces have many small files."""
    total = 0
    try:
        total += os.lstat(path).st_blocks * 512
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += used_bytes(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:  # a segment that was replaced meanwhile, a piece that was removed
        pass
    return total


class Pieces:
    """The pieces of one directory. What is known of a finished piece is kept: it does not change any more."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[str, Piece] = {}
        self.replaced: list[Piece] = []  # by a coarse piece that is whole: to be removed, and no pieces any more

    def read(self, running: str = "") -> list[Piece]:
        """Every piece but the one that is being written, in the order in which they were made."""
        found = {}
        for name in self.names():
            if name != running:
                found[name] = self._known.get(name) or read_piece(self.directory / name)
        self.replaced = _replaced(found.values())
        self._known = {name: piece for name, piece in found.items() if piece not in self.replaced}
        return self.known()

    def known(self) -> list[Piece]:
        """As `read` found them, without a look at the disk; less what was removed since."""
        return _in_order(self._known.values())

    def names(self) -> list[str]:
        with os.scandir(self.directory) as entries:
            return sorted(entry.name for entry in entries if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False))

    def remove(self, piece: Piece) -> None:
        """In one step it is no piece any more; a recorder that is killed meanwhile leaves the rest for the next one to remove."""
        away = piece.path.with_name(piece.name + REMOVING)
        self.replaced = [other for other in self.replaced if other != piece]
        with suppress(FileNotFoundError):  # somebody else has removed it
            piece.path.rename(away)
        self._known.pop(piece.name, None)
        if away.exists():
            shutil.rmtree(away)

    def tidy(self) -> None:
        """Removes what a killed recorder left: pieces that were replaced, half removed, half made or not begun. Only with the lock."""
        self.read()
        for piece in list(self.replaced):
            self.remove(piece)
        with os.scandir(self.directory) as entries:
            found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for path in found:
            begun = NAME.fullmatch(path.name) is not None
            if (begun and not (path / MANIFEST).exists() and not any(path.glob("*/*.parquet"))) or (
                path.suffix in (REMOVING, MAKING) and NAME.fullmatch(path.stem)
            ):
                shutil.rmtree(path, ignore_errors=True)


def read_piece(path: Path) -> Piece:
    """Never raises: a damaged piece takes room too, and is removed when it is old."""
    start = _named_ns(path.name)
    try:
        manifest = read_manifest(path)
    except LeadlineError as e:
        return Piece(path, 0, start, start, None, None, used_bytes(path), "damaged", error=e.message)
    option = manifest.options.get(OPTION)
    about = option if isinstance(option, dict) else {}
    clock, status = manifest.clock, manifest.status
    if status == "recording":
        status, clock.ts_to = "interrupted", _reaches(path)
    wall_from = start if clock.ts_from is None or clock.wall_offset_ns is None else clock.ts_from + clock.wall_offset_ns
    length = 0 if clock.ts_from is None or clock.ts_to is None else max(0, clock.ts_to - clock.ts_from)
    number = _whole(about.get("number"), 0)
    if status == "complete" and about.get("ended"):  # a coarse piece of one that was interrupted
        status = str(about["ended"])
    return Piece(
        path, number, wall_from, wall_from + length, clock.ts_from, clock.ts_to, used_bytes(path), status, str(about.get("process", "")),
        str(about.get("boot", "")), manifest.error["message"] if manifest.error else str(about.get("error", "")),
        _whole(about.get("last"), number), _whole(clock.span_s, 0), str(about.get("waited", "")),
    )  # fmt: skip


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _replaced(pieces: Iterable[Piece]) -> list[Piece]:
    """Those whose numbers a coarser piece has: it was renamed when it was whole, and they were not removed yet."""
    known = list(pieces)
    coarse = [piece for piece in known if piece.span_s and piece.number]
    return [
        piece for piece in known
        if any(by.number <= piece.number <= piece.last <= by.last and by.span_s > piece.span_s for by in coarse) and piece.number
    ]  # fmt: skip


def _in_order(pieces: Iterable[Piece]) -> list[Piece]:
    """By their numbers; a damaged one, whose number is not known, comes after the one before it by name."""
    order, number = {}, 0
    for piece in sorted(pieces, key=lambda piece: piece.name):
        number = piece.number or number
        order[piece] = number, piece.number == 0, piece.name
    return sorted(order, key=lambda piece: order[piece])


def first_second(directory: Path) -> int:
    """In which the first piece of a directory begins, since 1970, by its name: nothing is opened. Raises LeadlineError('not_found')."""
    if not (names := Pieces(directory).names()):
        raise LeadlineError("not_found", "the recorder has no piece", where=str(directory))
    return _named_ns(names[0]) // 10**9


def gaps(pieces: Sequence[Piece]) -> list[Gap]:
    """The time between each piece and the next, by the wall clock. Pieces that overlap by it (it was set back) have none."""
    found = []
    told = [piece for piece in pieces if piece.ts_from is not None]
    for before, after in pairwise(told):
        seconds = (after.wall_from - before.wall_to) / 1e9
        if before.boot == after.boot != "" and before.ts_to is not None and after.ts_from is not None:
            seconds = (after.ts_from - before.ts_to) / 1e9  # also where the wall clock was set in between
        if seconds > 0:
            found.append(Gap(before.wall_to, seconds, _why(before, after), is_switch(before, after)))
    return found


def is_switch(before: Piece, after: Piece) -> bool:
    """Whether nothing but the change from one piece to the next lies between them."""
    same = before.recorder == after.recorder and before.boot == after.boot
    return same and before.status == "complete" and after.number == before.last + 1 and not after.waited


def _why(before: Piece, after: Piece) -> str:
    found = []
    if before.status == "interrupted":
        found.append(KILLED)
    elif before.status == "failed":
        found.append(before.error or "the piece before ended with an error")
    elif before.recorder != after.recorder:
        found.append("no recorder ran")
    return "; ".join(dict.fromkeys(filter(None, (*found, after.waited)))) or "from one piece to the next"


def _named_ns(name: str) -> int:
    found = NAME.fullmatch(name)
    return 0 if found is None else int(datetime.strptime(found[1], FORM).replace(tzinfo=UTC).timestamp()) * 10**9


def _reaches(path: Path) -> int | None:
    """The end of what an interrupted capture has."""
    try:
        with closing(open_capture(path)) as capture:
            found = capture.scalar("select ts_to from capture")
    except LeadlineError:
        return None
    return found if isinstance(found, int) else None

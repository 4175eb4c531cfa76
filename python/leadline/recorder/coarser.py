"""Makes one coarse piece of some finer ones, in a process of its own at the lowest priority.

    python -m leadline.recorder.coarser DIR SPAN_S PIECE...       prints what it made and what that cost, as JSON

The pieces stay until the new one is whole: it is written under a name that is no piece's, brought to the disk and renamed. From then on
its numbers say that it replaces them (pieces.py), and the recorder removes them. Whenever this is killed, either counts, and only one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadline.capture.manifest import read_manifest, write_manifest
from leadline.capture.reader import limit_databases
from leadline.errors import LeadlineError
from leadline.recorder.child import report
from leadline.recorder.levels import coarsen
from leadline.recorder.pieces import MAKING, OPTION, Piece, Pieces, new_name, read_piece, used_bytes
from leadline.recorder.state import COARSER_LOCK
from leadline.recorder.window import join

MEMORY = "200MB"


def make(directory: Path, span_s: int, names: Sequence[str]) -> dict[str, Any]:
    """Raises LeadlineError; `pieces` names what was made: one piece, or one for each if they cannot be joined."""
    pieces = [piece for piece in Pieces(directory).read() if piece.name in names]
    if len(pieces) < len(names):
        raise _gone(directory)
    final = new_name(pieces[0].wall_from, Pieces(directory).names(), span_s)
    work = directory / (final + MAKING)
    work.mkdir()
    try:
        limit_databases(MEMORY, 1, spill=work / "spill")
        coarse, apart = [], ""
        for piece in pieces:
            out = work / piece.name
            out.mkdir()
            coarsen(piece.path, out, span_s)
            coarse.append(read_piece(out))
        having = [one for one in coarse if one.ts_to is not None] or coarse[:1]  # one that was killed before its first pass has no rows
        found = [(having[0].path, pieces)]
        if len(having) > 1:
            try:
                (work / "whole").mkdir()
                join(having, work / "whole")
                found = [(work / "whole", pieces)]
            except LeadlineError as e:
                if e.kind != "unsupported":
                    raise
                apart = e.detail
                found = [(one.path, [piece]) for one, piece in zip(coarse, pieces)]
        if not all(piece.path.exists() for piece in pieces):  # else a table that went away while this read would be missing
            raise _gone(directory)
        made = [_publish(path, of, span_s) for path, of in found]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {
        "pieces": [path.name for path in made], "of": len(pieces), "apart": apart, "bytes_before": sum(piece.bytes for piece in pieces),
        "bytes_after": sum(map(used_bytes, made)),
    }  # fmt: skip


def _gone(directory: Path) -> LeadlineError:
    return LeadlineError("gone", "the pieces were replaced or removed meanwhile", where=str(directory))


def _publish(path: Path, pieces: Sequence[Piece], span_s: int) -> Path:
    first, last = pieces[0], pieces[-1]
    manifest = read_manifest(path)
    manifest.options[OPTION] = {"number": first.number, "process": first.recorder, "boot": first.boot, "last": last.last}
    if first.waited:
        manifest.options[OPTION] |= {"waited": first.waited}
    if last.status != "complete":
        manifest.options[OPTION] |= {"ended": last.status, "error": last.error}
    write_manifest(path, manifest)
    for folder, _, files in os.walk(path):
        for name in (*files, "."):
            _to_disk(Path(folder) / name)
    directory = path.parent.parent
    final = directory / new_name(first.wall_from, Pieces(directory).names(), span_s)
    path.rename(final)
    _to_disk(directory)
    return final


def _to_disk(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def main(directory: Path, span_s: int, names: Sequence[str]) -> int:
    def work() -> dict[str, Any]:
        lock = os.open(directory / COARSER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX)  # until this process ends
        return make(directory, span_s, names)

    return report(work, "a coarse piece")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

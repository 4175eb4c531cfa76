"""Directories of a recorder that are made up: pieces with known rows and sizes, without a server, and a clock that a test sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import findings_synthetic
from findings_synthetic import SyntheticCapture
from leadline.capture.manifest import Clock, Manifest, Target, read_manifest, write_manifest
from leadline.recorder.moments import Moment
from leadline.recorder.pieces import new_name
from leadline.units import MB

BOOT = "a-start-of-the-host"
TS_0, WALL_0 = findings_synthetic.TS_FROM, findings_synthetic.WALL_FROM_NS
SERVER = Target("postgres", "postmaster 7, /data", 7, 4, "16.14", 160014, {"data_dir": "/data"})


@contextmanager
def begun_at(second: float) -> Iterator[None]:
    """Made-up captures within the block begin so many seconds later."""
    before = findings_synthetic.TS_FROM, findings_synthetic.WALL_FROM_NS
    findings_synthetic.TS_FROM, findings_synthetic.WALL_FROM_NS = TS_0 + round(second * 1e9), WALL_0 + round(second * 1e9)
    try:
        yield
    finally:
        findings_synthetic.TS_FROM, findings_synthetic.WALL_FROM_NS = before


def as_piece(made: SyntheticCapture, directory: Path, number: int, second: float, *, boot: str = BOOT, process: str = "1@1") -> Path:
    """Puts a made-up capture into the directory of a recorder. Call within begun_at(second)."""
    path = made.write()
    manifest = read_manifest(path)
    manifest.options["recorder"] = {"number": number, "process": process, "boot": boot}
    write_manifest(path, manifest)
    directory.mkdir(exist_ok=True)
    return path.rename(directory / new_name(WALL_0 + round(second * 1e9), []))


def small_piece(
    directory: Path, number: int, wall_ns: int, seconds: float = 600, size: int = 1 * MB, status: str = "complete", process: str = "1@1",
    span_s: int = 0, last: int = 0,
) -> Path:  # fmt: skip
    """A piece of which only the manifest and the size matter. span_s, last: of a coarse one, which replaces those up to `last`."""
    path = directory / new_name(wall_ns, [entry.name for entry in directory.iterdir()], span_s)
    (path / "tick").mkdir(parents=True)
    (path / "tick" / "000001.bin").write_bytes(b"\1" * max(0, size - 16384))
    ts_from = TS_0 + (wall_ns - WALL_0)
    manifest = Manifest(SERVER, status=status, clock=Clock(ts_from, ts_from + round(seconds * 1e9), wall_ns - ts_from, span_s or None))
    manifest.options["recorder"] = {"number": number, "process": process, "boot": BOOT} | ({"last": last} if last else {})
    write_manifest(path, manifest)
    return path


@dataclass
class FakeWorld:
    """A clock, a disk and a server that a test moves. Each piece takes its time of the clock and `piece_bytes` of the disk."""

    wall_ns: int = WALL_0
    boot_ns: int = TS_0
    boot: str = BOOT
    free: int = 1 << 40
    piece_bytes: int = 1 * MB
    there: bool = True
    said: list[str] = field(default_factory=list)
    looks: int = 20  # at the room, in each piece
    seen: list[int] = field(default_factory=list)  # bytes of all pieces at each look
    made: int = 0
    ends: Any = None  # called after each piece

    def now(self) -> Moment:
        return Moment(self.wall_ns, self.boot_ns, self.boot)

    def pass_time(self, seconds: float) -> None:
        self.wall_ns += round(seconds * 1e9)
        self.boot_ns += round(seconds * 1e9)

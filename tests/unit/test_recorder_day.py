"""A day of a recorder by a clock that the test moves: kills, a server that goes away and a disk that fills, in pieces with real rows.

LEADLINE_LONG_TESTS=1 simulates 24 hours in pieces of ten minutes; without it, two and a half.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import findings_synthetic
import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.manifest import read_manifest, write_manifest
from leadline.errors import LeadlineError
from leadline.probes.options import Options
from leadline.recorder import coarser
from leadline.recorder import run as run_module
from leadline.recorder.moments import as_utc
from leadline.recorder.pieces import Piece, Pieces, gaps
from leadline.recorder.retention import Level, Limits
from leadline.recorder.run import Recorder, World
from leadline.recorder.state import STATE
from leadline.units import MB
from level_sums import Sums, sums_of, total
from recorded_pieces import SERVER, FakeWorld

PIECE_S, LOOKS = 600.0, 10
PIECES = 144 if os.environ.get("LEADLINE_LONG_TESTS") else 14
KEEP_S = PIECES * 0.8 * PIECE_S
LEVELS = (Level(1, PIECES // 6 * PIECE_S), Level(60, PIECES // 2 * PIECE_S))
SWITCH_S = 0.4
KILLED, NOBODY = "the recorder was killed", "no recorder ran"
AWAY, FULL = "the server cannot be reached", "no room on the disk: nothing is recorded"


class Killed(BaseException):
    """Nothing of the recorder's code may catch it."""


@dataclass
class Before:
    """What lies before a piece. interrupted: the piece before was. killed: recorders in a wait, by when each began and how many pieces
    there were then: of those that had made none, the gap says so. waits: what was waited for, each once, in the order in which it came.
    """

    interrupted: bool = False
    killed: list[tuple[int, int]] = field(default_factory=list)
    waits: dict[str, None] = field(default_factory=dict)

    def why(self, made: int) -> str:
        """made: the pieces that there are before it."""
        never = [as_utc(wall_ns) for wall_ns, pieces in self.killed if pieces == made]
        words = [KILLED] if self.interrupted else [NOBODY] if self.killed else []
        if len(never) == 1:
            words.append(f"a recorder began at {never[0]} and was killed before its first pass")
        elif never:
            words.append(f"{len(never)} recorders, which began from {never[0]} to {never[-1]}, were killed before their first pass")
        words += [KILLED] if len(never) < len(self.killed) else []
        return "; ".join([*words, *self.waits])


@dataclass
class Day(FakeWorld):
    """sums: of each piece of every pass, by its number. before: what lies before a piece, by its number. older: pieces that had to be gone.
    began: when the recorder began, and the pieces that there were then.
    """

    chance: random.Random = field(default_factory=lambda: random.Random(34))
    directory: Path = Path()
    away_until: int = 0
    full_until: int = 0
    sums: dict[int, Sums] = field(default_factory=dict)
    before: dict[int, Before] = field(default_factory=dict)
    older: list[str] = field(default_factory=list)
    began: tuple[int, int] = 0, 0

    @property
    def free(self) -> int:  # type: ignore[override]
        return 0 if self.boot_ns < self.full_until else 1 << 40

    @free.setter
    def free(self, value: int) -> None:
        """As the disk says."""

    def identify(self, _options: Options) -> Any:
        self.pass_time(SWITCH_S)
        if self.boot_ns < self.away_until:
            raise LeadlineError("connection", AWAY)
        return SERVER

    @property
    def next(self) -> Before:
        return self.before.setdefault(self.made + 1, Before())

    def take(
        self, options: Options, _progress: Any, until: Callable[[], bool], begun: Callable[[], None], *, every_s: float,
        stop: threading.Event,
    ) -> Path:  # fmt: skip
        assert options.out is not None and options.recorder is not None
        self.made += 1
        assert options.recorder["number"] == self.made
        what, begin = self.chance.choices(("kill", "away", "full", ""), (3, 2, 2, 10))[0], (self.boot_ns, self.wall_ns)
        begun()
        last, killed = self.chance.randrange(1, LOOKS), False
        for look in range(1, LOOKS + 1):
            self.pass_time(options.for_s / LOOKS)
            if killed := what == "kill" and look == last:
                break
            if what == "full" and look == last:
                self.full_until = self.boot_ns + round(self.chance.uniform(30, 1500) * 1e9)
            if until():
                break
            self.look()
        path = self.write(options, begin, "recording" if killed else "complete")
        self.sums[self.made] = sums_of(path)
        if what == "away":
            self.away_until = self.boot_ns + round(self.chance.uniform(30, 1500) * 1e9)
        if killed:
            self.next.interrupted = True
            raise Killed
        if self.made >= PIECES:
            stop.set()
        return path

    def look(self) -> None:
        """One piece after the other becomes coarse: some may be due at once after a wait."""
        for piece in Pieces(self.directory).read():
            limit_s = {0: LEVELS[0].after_s + LEVELS[0].group_s, 1: LEVELS[1].after_s + LEVELS[1].group_s}.get(piece.span_s, KEEP_S)
            if (age_s := (self.wall_ns - piece.wall_to) / 1e9) > min(limit_s + PIECE_S, KEEP_S + PIECE_S / LOOKS):
                self.older.append(f"{piece.name} of {piece.span_s} s is {age_s:.0f} s old")

    def write(self, options: Options, begin: tuple[int, int], status: str) -> Path:
        """A piece from `begin` on until now: four sessions that change within seconds, and counters."""
        findings_synthetic.TS_FROM, findings_synthetic.WALL_FROM_NS = begin
        cap = SyntheticCapture(self.directory.parent, rate_hz=1, seconds=(self.boot_ns - begin[0]) // 10**9)
        for pid in range(4001, 4005):
            session, at = cap.add_session(pid=pid, start_s=(5_000_000_000_000 - begin[0]) / 1e9 - pid), 0
            while at < cap.seconds:
                state, wait = self.chance.choice((("active", None), ("active", "Lock:tuple"), ("idle", "Client:ClientRead")))
                cap.sample(session, state, wait, at, at + 5, statement_id=self.chance.randrange(3))
                at += self.chance.choice((1, 3, 40))
            cap.delta(session, 0, cap.seconds, cpu_run_ns=150_000_000 + pid, cpu_queue_ns=220_000_000)
        cap.add_every("device_delta", 1, cap.seconds, 1, dt_ns=10**9, device="sda", writes=3, in_flight=2)
        path = cap.write()
        manifest = read_manifest(path)
        manifest.options["recorder"], manifest.status = dict(options.recorder or {}), status
        if status == "recording":
            manifest.clock.ts_to = None
        write_manifest(path, manifest)
        assert options.out is not None
        return path.rename(options.out)


class Waits(threading.Event):
    """The end; to wait for it takes the time of the day, and one wait in eight is not survived."""

    def __init__(self, day: Day) -> None:
        super().__init__()
        self.day = day

    def wait(self, timeout: float | None = None) -> bool:
        self.day.next.waits[FULL if self.day.free == 0 else AWAY] = None
        self.day.pass_time(timeout or 0)
        if self.day.chance.random() < 1 / 8:
            self.day.next.killed.append(self.day.began)
            raise Killed
        return self.is_set()


class Coarser:
    """Makes coarse pieces in this process, when it is looked at."""

    def __init__(self, _module: str, arguments: Sequence[str]) -> None:
        self.arguments = arguments

    def result(self) -> dict[str, Any]:
        directory, span_s, *names = self.arguments
        return coarser.make(Path(directory), int(span_s), names)

    def end(self) -> None:
        """It has not begun, or has ended."""


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Day:
    """When it is over."""
    before = findings_synthetic.TS_FROM, findings_synthetic.WALL_FROM_NS
    day = Day(directory=tmp_path_factory.mktemp("day") / "rec")
    numbers, monkeypatch = itertools.count(1), pytest.MonkeyPatch()
    monkeypatch.setattr(run_module, "this_process", lambda: {"pid": next(numbers), "start_ticks": 1, "boot": day.boot})
    world = World(day.now, lambda _: day.free, day.take, day.identify, day.said.append, child=Coarser)  # type: ignore[arg-type]
    limits = Limits(KEEP_S, 1000 * MB, 100 * MB, LEVELS)
    try:
        while day.made < PIECES:
            day.began = day.wall_ns, day.made
            recorder = Recorder(day.directory, Options(data_dir="/data", for_s=PIECE_S), limits, world)
            try:
                recorder.run(Waits(day))
            except Killed:  # what it does in the end, it did not do
                state = json.loads((day.directory / STATE).read_text())
                (day.directory / STATE).write_text(json.dumps(state | {"doing": "recording"}))
                day.pass_time(day.chance.uniform(1, 300))
    finally:
        monkeypatch.undo()
        findings_synthetic.TS_FROM, findings_synthetic.WALL_FROM_NS = before
    return day


def pieces_of(day: Day) -> list[Piece]:
    return Pieces(day.directory).read()


def test_enough_happened(day: Day) -> None:
    befores = day.before.values()
    assert {AWAY, FULL} <= {why for before in befores for why in before.waits} and any(before.interrupted for before in befores)
    of_killed = [made == number - 1 for number, before in day.before.items() for _, made in before.killed]
    assert set(of_killed) == {True, False}, "before their first piece, and after it"
    assert {piece.span_s for piece in pieces_of(day)} == {0, 1, 60}
    assert pieces_of(day)[0].number > 1, "some were removed by their age"


def test_no_piece_is_missing_and_each_time_between_two_has_its_reason(day: Day) -> None:
    pieces = pieces_of(day)
    assert {piece.status for piece in pieces} <= {"complete", "interrupted"} and pieces[-1].last == PIECES
    assert all(after.number == before.last + 1 for before, after in pairwise(pieces))
    expected = {number: before.why(number - 1) for number, before in day.before.items() if pieces[0].number < number <= PIECES}
    begins = {piece.wall_from: piece.number for piece in pieces}
    found = {begins[gap.wall_from + round(gap.seconds * 1e9)]: gap for gap in gaps(pieces)}
    assert {number: gap.why for number, gap in found.items() if not gap.switch} == expected
    assert {gap.seconds for gap in found.values() if gap.switch} == {SWITCH_S}


def test_nothing_is_older_than_its_level_may_be(day: Day) -> None:
    assert day.older == []


def test_the_sums_of_each_piece_are_those_of_every_pass(day: Day) -> None:
    for piece in pieces_of(day):
        fine = total(day.sums[number] for number in range(piece.number, piece.last + 1))
        assert total([sums_of(piece.path)]) == fine, piece.name
        assert fine["passes"][0] > 0

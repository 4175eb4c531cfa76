"""Records until it is told to stop: one capture after the other into one directory, and what to do when a server or the disk is not there.

Each piece is made by `take` (probes/take.py). While it is written, this looks every two seconds at the room there is.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from leadline.capture.manifest import MANIFEST, Target
from leadline.engines.live import find
from leadline.errors import LeadlineError
from leadline.probes.options import Options
from leadline.probes.probe import Probe
from leadline.probes.recording import stop_on_signal
from leadline.probes.take import take_with, this_host
from leadline.progress import Silent
from leadline.recorder.attention import Attention, Now
from leadline.recorder.child import Child
from leadline.recorder.detail import Bounds, Detail
from leadline.recorder.killed import remember_killed, why_waited
from leadline.recorder.memory import few_arenas, give_back
from leadline.recorder.moments import Moment, as_utc
from leadline.recorder.pieces import MAKING, Piece, Pieces, new_name, read_piece, used_bytes
from leadline.recorder.retention import STEP_S as CLOCK_STEP_S
from leadline.recorder.retention import Limits, estimate, expired, held_s, in_excess, largest_piece, step_s, to_coarsen, to_shrink
from leadline.recorder.state import State, locked, read_state, this_process, write_state
from leadline.recorder.watch import Watch
from leadline.units import MB, sized

LOOK_S = 2.0
BACKOFF_S = (1.0, 30.0)
BETWEEN_LOOKS = 2 * MB  # what a piece may grow by between two looks, and more
LEAST_FILES = 1000  # of a piece and of one that becomes coarse: directories and segments
LEAST_BYTES = 32 * MB  # of all pieces: of less, a quarter is no piece
MOST_REASONS = 8  # of one gap: those that came first, and the last


class Watcher(Protocol):
    """Who follows the recorder while it runs, such as leadline.metrics. Told in the recorder's thread, which must not wait for it."""

    def doing(self, what: str) -> None:
        """What the recorder does now: see State.doing."""

    def began(self, piece: Path, probes: Sequence[Probe]) -> None:
        """A piece is there, and these probes are about to look."""

    def ended(self, piece: Path) -> None:
        """Nothing more comes into the piece, which may not have begun."""


@dataclass(frozen=True)
class World:
    """What the recorder sees and uses, so that tests can give it another one."""

    now: Callable[[], Moment] = Moment.now
    free_bytes: Callable[[Path], int] = field(default=lambda path: _free_bytes(path))
    take: Callable[..., Path] = take_with
    identify: Callable[[Options], Target] = field(default=lambda options: _identify(options))
    say: Callable[[str], None] = lambda text: None
    watcher: Watcher | None = None
    child: Callable[..., Child] = Child


class Recorder:
    """The recorder of one directory. options: of each piece, with for_s as its length. findings_s: from one evaluation to the
    next; 0: none. detail: bounds of detail captures. baseline: look for what is unusual.
    """

    def __init__(
        self, directory: Path, options: Options, limits: Limits, world: World | None = None, *, findings_s: float = 0.0,
        detail: Bounds | None = None, baseline: bool = False,
    ) -> None:  # fmt: skip
        self.directory, self.options, self.limits, self.world = directory, options, limits, world or World()
        self.pieces, self.state = Pieces(directory), State()
        self._backoff = BACKOFF_S[0]
        self._said = ""
        self._looked = 0
        self._watch = Watch(directory, findings_s, self.world.child)
        self._attention = Attention(
            directory, Detail(directory, detail or Bounds(), limits.free_bytes, self.world.child), self._watch, self.world.say,
            watches=baseline,
        )  # fmt: skip
        self._coarser: Child | None = None
        self._trying: tuple[set[str], int, bool] = (set(), 0, False)  # the pieces, the span of their level, whether before their age
        self._left: set[str] = set()  # pieces that could not be made coarse: they stay as they are until the next start
        self._left_for_room: set[str] = set()  # those that could not for want of room: until the next piece begins

    def run(self, stop: threading.Event | None = None) -> None:
        """Until `stop` is set, or SIGINT or SIGTERM arrives. Raises LeadlineError for what waiting does not mend."""
        self.options.check()
        if self.limits.max_bytes < LEAST_BYTES:
            raise LeadlineError(
                "usage", f"{sized(self.limits.max_bytes)} is too little for a recorder", hint=f"give {sized(LEAST_BYTES)} or more"
            )
        if stop is None:
            with stop_on_signal() as on_signal:
                self.run(on_signal)
            return
        few_arenas()
        with locked(self.directory):
            self._begin()
            try:
                while not stop.is_set():
                    self._step(stop)
            finally:
                self._watch.end()
                self._attention.end(self.state, self.world.now())
                if self._coarser is not None:
                    self._coarser.end()
                with suppress(OSError):  # the next start tries again
                    self.pieces.tidy()
                self._now_doing("ended")

    # -- one step after the other --------------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            before = read_state(self.directory)
        except LeadlineError as e:
            if e.kind != "invalid":
                raise
            self.world.say(f"note: {e.message}: a new one is begun")
            before = None
        self.state = before or State()
        if before is not None and before.doing != "ended":
            self.world.say("note: the recorder before was killed; what it had recorded is kept")
            remember_killed(self.state, self.directory)
        self.state.process, self.state.settings = this_process(), self._settings()
        self.state.began, self.state.first, self.state.piece = self.world.now().wall_ns, "", ""
        self._now_doing("starting")  # before all that takes time: from here on, a kill leaves a mark
        self.pieces.tidy()
        self._attention.begin()
        self._look_at_clock(self.pieces.read())

    def _step(self, stop: threading.Event) -> None:
        """One piece, or one wait for what it needs."""
        self._left_for_room.clear()
        self._make_coarser("", 0)
        self._look_at_findings("")
        known = self.pieces.read()
        self._remove_replaced()
        expected = estimate(known, self.options.for_s, self.limits.max_bytes)
        self._retain(expected + BETWEEN_LOOKS)
        if error := self._no_room(expected):
            self._failed(error)
            self._wait("full", error, stop)
            return
        try:
            options = self._named(self.world.identify(self.options))
            began = self.world.now()
            self._piece(options, known, began, stop)
        except LeadlineError as e:
            if e.kind == "usage":
                raise
            self._failed(e)
            self._wait("full" if self._no_room(expected) else "waiting", e, stop)
            return
        self._said = ""
        lasted_s = (self.world.now().boot_ns - began.boot_ns) / 1e9
        if lasted_s < BACKOFF_S[0] and not stop.is_set():  # whatever ended it at once would end the next one, too
            if error := self._no_room(expected):
                self._failed(error)
            self._wait("full" if error else "waiting", error or LeadlineError("gone", "the piece before ended at once"), stop)
            return
        self._backoff = BACKOFF_S[0]

    def _named(self, target: Target) -> Options:
        """The options of the next piece. Raises LeadlineError('usage') when this is another server than before."""
        identity = {"kind": target.kind, "name": target.name, "data_dir": target.detail.get("data_dir"), "dsn": target.detail.get("dsn")}
        before = self.state.server
        if before and not _same(before, identity):
            raise LeadlineError(
                "usage", "this directory has the pieces of another server", detail=f"{before.get('name')}; now it is {target.name}",
                hint="record into another directory with --to", where=str(self.directory),
            )  # fmt: skip
        self.state.server = {key: value for key, value in identity.items() if value is not None}
        if self.options.pid is not None and target.detail.get("data_dir"):  # after a restart it has another pid
            self.options = replace(self.options, pid=None, data_dir=target.detail["data_dir"])
        return self.options

    def _piece(self, options: Options, known: list[Piece], began: Moment, stop: threading.Event) -> None:
        name = new_name(began.wall_ns, self.pieces.names())
        process = self.state.process
        about = {"number": max((piece.last for piece in known), default=0) + 1, "process": f"{process['pid']}@{process['start_ticks']}"}
        if waited := why_waited(self.state):
            about["waited"] = waited
        options = replace(options, out=self.directory / name, recorder=about | {"boot": process["boot"]})
        self.state.piece = name

        def begun() -> None:
            self._said = ""
            self.state.first = self.state.first or name
            self._now_doing("recording")
            self.world.say(f"recording {self.state.server.get('name', '')} into {self.directory / name}") if about["number"] == 1 else None

        watcher = self.world.watcher
        told = {} if watcher is None else {"attached": partial(watcher.began, self.directory / name)}
        try:
            self.world.take(options, Silent(), lambda: self._is_enough(name), begun, every_s=1.0, stop=stop, **told)
        finally:
            self.state.piece = ""
            if watcher is not None:
                watcher.ended(self.directory / name)
            self._take_in(name)
            give_back()

    def _take_in(self, name: str) -> None:
        """A piece that has ended. One that ended before it began is removed: of a server that fails at each start, a row of them would
        drive out what was recorded.
        """
        if (self.directory / name / MANIFEST).exists():
            piece = read_piece(self.directory / name)
            if piece.ts_from is not None:
                self.state.waited, self.state.killed = [], {}  # it tells them
            elif piece.status in ("complete", "failed"):
                self.pieces.remove(piece)

    def _is_enough(self, name: str) -> bool:
        """Looks at the room while a piece is written; whether that must end now. Asked more often than it looks: a look costs."""
        if (now := self.world.now().boot_ns) - self._looked < LOOK_S * 1e9:
            return False
        self._looked = now
        size = used_bytes(self.directory / name)
        self._make_coarser(name, size)
        self._look_at_findings(name)
        seen = Now(self.world.now(), self.options, self.directory / name, self.world.free_bytes(self.directory))
        if self._attention.look(self.state, seen):
            self._now_doing(self.state.doing)
        self._retain(size + BETWEEN_LOOKS, running=name)
        return size >= largest_piece(self.limits.max_bytes) or self.world.free_bytes(self.directory) < self.limits.free_bytes

    # -- room ----------------------------------------------------------------------------------------------------------

    def _no_room(self, expected: int) -> LeadlineError | None:
        """Unless the disk has room for what others need and for the next piece."""
        free, needed = self.world.free_bytes(self.directory), self.limits.free_bytes + expected
        if free >= needed:
            return None
        detail = f"{sized(free) if free else 'no bytes or no inodes'} are free; the recorder begins at {sized(needed)}"
        hint = "make room, or give a smaller --keep-free"
        return LeadlineError("storage", "no room on the disk: nothing is recorded", detail, hint, str(self.directory))

    def _retain(self, room: int, running: str = "") -> None:
        """Removes what is too old, and the oldest detail as long as `room` for the piece that is written does not fit."""
        known = self.pieces.known() if running else self.pieces.read()
        if self._coarser is not None:
            room += sum(used_bytes(path) for path in self.directory.glob(f"*{MAKING}"))
        now = self._look_at_clock(known)
        old = [] if self.state.held_s > 0 else expired(known, now, self.limits.keep_s)
        gone = set(old)
        rest = [piece for piece in known if piece not in gone]
        for piece in [*old, *in_excess(rest, room, self.limits.max_bytes, self.limits.levels)]:
            try:
                self.pieces.remove(piece)
            except OSError as e:  # the next look tries again
                self._failed(LeadlineError("storage", f"cannot remove a piece: {e.strerror}", where=str(piece.path)))
                return
            sums = self.state.removed
            self.state.removed = {
                "pieces": int(sums.get("pieces", 0)) + 1, "bytes": int(sums.get("bytes", 0)) + piece.bytes, "last": piece.name,
                "why": "age" if piece in gone else "size",
            }  # fmt: skip

    # -- levels --------------------------------------------------------------------------------------------------------

    def _make_coarser(self, running: str, size: int) -> None:
        """Begins with the next pieces that are old enough, or that would soon be removed, or takes what became of the last.

        It never waits for it. size: of the piece that is being written.
        """
        if self._coarser is not None:
            if (found := self._coarser.result()) is None:
                return
            self._coarser = None
            self._made_coarser(found, running)
        if not self.limits.levels:
            return
        known = self.pieces.known()
        left = self._left | self._left_for_room
        able = [piece for piece in known if piece.name not in left]
        due = None if self.state.held_s > 0 else to_coarsen(able, self.world.now(), self.limits.levels)
        if early := due is None:
            expected = estimate(known, self.options.for_s, self.limits.max_bytes)
            room = max(size, expected) + expected + BETWEEN_LOOKS  # while this piece is written there is time to make room for the next
            due = to_shrink(known, room, self.limits.max_bytes, self.limits.levels, left)
        if due is None:
            return
        level, pieces = due
        if self.world.free_bytes(self.directory) < self.limits.free_bytes + sum(piece.bytes for piece in pieces):
            return  # a full disk: the limits make room
        self._trying = {piece.name for piece in pieces}, level.span_s, early
        arguments = [str(self.directory), str(level.span_s), *(piece.name for piece in pieces)]
        self._coarser = self.world.child("leadline.recorder.coarser", arguments)

    def _look_at_findings(self, running: str) -> None:
        if self._watch.look(self.state.findings, self.world.now(), self.pieces.known(), running):
            self._now_doing(self.state.doing)  # --status shows it now, not with the next piece

    def _made_coarser(self, found: dict[str, Any], running: str) -> None:
        names, span_s, early = self._trying
        sums = self.state.coarser.setdefault(f"{span_s} s", {})
        for key in ("cpu_s", "bytes_before", "bytes_after"):
            sums[key] = round(sums.get(key, 0) + found.get(key, 0), 3)
        sums["longest_s"] = round(max(sums.get("longest_s", 0), found.get("lasted_s", 0)), 3)
        if error := found.get("error"):
            is_there = all((self.directory / name).exists() for name in names)  # else some were removed meanwhile, by a limit
            outcome = "failed" if is_there else "overtaken"
            sums[outcome] = sums.get(outcome, 0) + 1
            if is_there:
                failed = LeadlineError(error["kind"], error["message"], error.get("detail", ""), where=str(self.directory))
                (self._left_for_room if self._was_full(failed) else self._left).update(names)
                self._failed(failed)
        else:
            sums["made"], sums["of"] = sums.get("made", 0) + len(found["pieces"]), sums.get("of", 0) + found["of"]
            sums["early"] = sums.get("early", 0) + found["of"] * early
            sums["last"] = found["pieces"][-1]
        self.pieces.read(running)
        self._remove_replaced()
        self._now_doing(self.state.doing)

    def _was_full(self, error: LeadlineError) -> bool:
        """DuckDB tells why it could not write only in words, and there may be room again by now."""
        return self.world.free_bytes(self.directory) < self.limits.free_bytes or os.strerror(errno.ENOSPC) in error.detail

    def _remove_replaced(self) -> None:
        for piece in list(self.pieces.replaced):
            try:
                self.pieces.remove(piece)
            except OSError as e:  # the next start tries again
                self._failed(LeadlineError("storage", f"cannot remove a piece: {e.strerror}", where=str(piece.path)))
                break

    def _look_at_clock(self, known: list[Piece]) -> Moment:
        now, before, held = self.world.now(), self.state.looked_at, self.state.held_s
        self.state.held_s = held_s(held, before, now, known, self.limits.keep_s)
        self.state.looked = asdict(now)
        if self.state.held_s > held:
            step = 0.0 if before is None else step_s(before, now)
            why = f"the clock was set by {step:+.0f} s" if abs(step) > CLOCK_STEP_S else "all pieces would go at once; is the clock right?"
            self.world.say(f"note: {why}: for {self.state.held_s / 3600:.0f} h no piece is removed by its age")
        return now

    # -- what is said --------------------------------------------------------------------------------------------------

    def _wait(self, doing: str, why: LeadlineError, stop: threading.Event) -> None:
        if why.message not in self.state.waited:
            self.state.waited = [*self.state.waited[: MOST_REASONS - 1], why.message]
        self._now_doing(doing)
        stop.wait(self._backoff)
        self._backoff = min(2 * self._backoff, BACKOFF_S[1])

    def _failed(self, error: LeadlineError) -> None:
        """Into the state; and once to the user, until it is over."""
        self.state.last_error = {**error.as_dict(), "at": as_utc(self.world.now().wall_ns)}
        if self._said != error.message:
            self._said = error.message
            self.world.say(f"note: {error.message}" + (f" ({error.detail})" if error.detail else "") + "; trying again")

    def _now_doing(self, doing: str) -> None:
        if self.world.watcher is not None:
            self.world.watcher.doing(doing)
        if self.state.doing != doing or not self.state.since:
            self.state.doing, self.state.since = doing, self.world.now().wall_ns
        try:
            write_state(self.directory, self.state)
        except LeadlineError as e:  # on a full disk: the pieces tell the rest
            if self._said != e.message:
                self._said = e.message
                self.world.say(f"note: {e.message}")

    def _settings(self) -> dict[str, Any]:
        return {
            "piece_s": self.options.for_s, "rate_hz": self.options.rate, "keep_s": self.limits.keep_s, "max_bytes": self.limits.max_bytes,
            "free_bytes": self.limits.free_bytes,
            "findings_s": self._watch.every_s, "baseline": self._attention.watches, "detail": asdict(self._attention.detail.bounds),
            "levels": [{"span_s": level.span_s, "after_s": level.after_s} for level in self.limits.levels],
        }  # fmt: skip


def _same(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether it is the same server: by its data directory where both are known, else by how it is reached."""
    if before.get("kind") != now["kind"]:
        return False
    for key in ("data_dir", "dsn"):
        if before.get(key) and now[key]:
            return bool(before[key] == now[key])
    return bool(now["kind"] != "host" or before.get("name") == now["name"])


def _identify(options: Options) -> Target:
    """Raises LeadlineError when the server is not there."""
    return this_host() if options.host else find(options.dsn, options.pid, options.data_dir).evidence()


def _free_bytes(path: Path) -> int:
    """0 also where bytes are free, but no inodes for the files of a piece."""
    found = os.statvfs(path)
    return 0 if found.f_files and found.f_favail < LEAST_FILES else found.f_bavail * found.f_frsize

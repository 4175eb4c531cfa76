"""Between the recorder and the screen: takes in what was recorded, keeps as much as the windows need, and makes frames.

All of it runs in one thread at a time (DuckDB's connection is not shared); the screen calls it from a worker of its own.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leadline.engines.live import Deed, Server
from leadline.top.feed import Feed
from leadline.top.model import STANDBYS, TABS, Frame, Recording, SessionNow, frame, with_memory
from leadline.top.names import Names

WINDOWS_S = (10.0, 30.0, 60.0, 300.0)
KEEP_S = 300.0
MARGIN_S = 10.0
TRIM_EVERY_S = 60.0
MOST_SAMPLES = 2_000_000  # kept at once, some 200 bytes each at worst; with very many sessions long windows get shorter
CPU_OVER_S = 10.0
MOST_MEASURED = 100  # processes whose memory is looked at for one frame
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Request:
    """What the screen wants to see. until_ns: the end of the window when it is held, else None for the newest."""

    parts: frozenset[str] = frozenset(TABS)
    window_s: float = 30.0
    columns: int = 60
    detail: int | None = None
    until_ns: int | None = None


class Engine:
    """Owns feed, names and the live capture of one target. Raises LeadlineError when it cannot attach."""

    def __init__(
        self, target: Server, directory: Path, rate_hz: float, tier: str, options: dict[str, Any] | None = None, others: Sequence[str] = ()
    ) -> None:
        self.target, self.directory = target, directory
        self.feed = Feed(target, directory, rate_hz, tier, options, others)
        self.tabs = (*TABS, STANDBYS) if others else TABS
        self.live = self.feed.live
        self.names = Names(directory, self.feed.watch.names)
        self.watch = self.feed.watch
        self.keep_s = KEEP_S
        self._began = self._trimmed = time.monotonic()
        self._cpu: deque[tuple[float, float]] = deque([(time.monotonic(), _cpu_s())])
        self._held: tuple[int, int] | None = None

    def start(self) -> None:
        self.feed.start()
        self.names.start()
        self.watch.start()
        self._began = self._trimmed = time.monotonic()

    def close(self) -> None:
        """Stops recording and takes in the rest; frames can still be made."""
        self.watch.close()
        self.feed.close()
        self.names.close()

    @property
    def ahead_s(self) -> float:
        """How long before `take_in` it takes to call `write_soon`."""
        return self.feed.ahead_s

    def write_soon(self) -> None:
        """Lets the recorder write what `take_in` is to find. From any thread."""
        self.feed.write_soon()

    def take_in(self) -> None:
        """Everything recorded and every name read since the last call. Raises LeadlineError('storage')."""
        self.feed.take_in()
        self._take_names()
        if time.monotonic() - self._trimmed >= TRIM_EVERY_S:
            self._trim()

    def carry_out(self, deed: Deed, session: SessionNow) -> str:
        """Cancels or terminates; what came of it. From any thread."""
        return self.watch.carry_out(deed, session)

    def refusal(self, deed: Deed, session: SessionNow) -> str:
        """Why this session is left alone; empty if it may be asked."""
        return self.watch.refusal(deed, session)

    def newest(self) -> int | None:
        """End of the evidence at hand, ns on CLOCK_MONOTONIC."""
        extent = self.live.extent()
        return extent[1] if extent else None

    def frame(self, request: Request) -> Frame:
        """The frame of a request over what has been taken in."""
        self._take_names()
        extent = self.live.extent()
        newest = extent[1] if extent else None
        until = request.until_ns if request.until_ns is not None else newest
        window_ns = round(request.window_s * SECOND_NS)
        self._held = (until - window_ns, until) if request.until_ns is not None and until is not None else None
        if until is None:
            self.live.look_at(0, 0)
        else:
            self.live.look_at(until - window_ns, until, chains="locks" in request.parts)
        made = frame(self.live, self._recording(newest), request.columns, request.parts, request.detail)
        if made.sessions is not None and self.target.pid is not None and request.until_ns is None:
            shown = made.sessions[:MOST_MEASURED]
            measured = with_memory(shown, self.watch.processes())
            made = replace(made, sessions=measured + made.sessions[MOST_MEASURED:])
        if STANDBYS in request.parts:
            made = replace(made, standbys=self.watch.standbys(self.live))
        if request.parts & {"locks", "blocks"} and (self.live.may_have("lock_wait") or self.live.may_have("buffer_wait")):
            self.names.ask(self.live.unknown_relations())
        return made

    def _recording(self, newest: int | None) -> Recording:
        about = self.feed.manifest.target
        notes = [*self.feed.manifest.notes]
        if self.names.failed:
            notes.append(f"names stay numbers: {self.names.failed}")
        if self.keep_s < KEEP_S:
            notes.append(f"only the last {self.keep_s:.0f} s are kept, because there are too many sessions")
        return Recording(
            product=self.watch.product or about.kind,
            server=(about.version or "of unknown version").split(" (")[0],
            target=self.target.describe(),
            cpu_count=about.cpu_count,
            tier=self.feed.tier,
            rate_hz=self.feed.rate_hz,
            running_s=time.monotonic() - self._began,
            data_age_s=(time.monotonic_ns() - newest) / 1e9 if newest is not None else None,
            own_cpu=self._own_cpu(),
            notes=tuple(notes),
            error=self.feed.error,
            vitals=self.watch.vitals(),
        )

    def _take_names(self) -> None:
        directory = self.names.take()
        if directory is not None:
            self.live.set_names(directory)
            shutil.rmtree(directory, ignore_errors=True)

    def _trim(self) -> None:
        self._trimmed = time.monotonic()
        extent = self.live.extent()
        if extent is None:
            return
        rows = self.live.recent.samples()
        covered_s = (extent[1] - extent[0]) / SECOND_NS
        fits_s = covered_s * MOST_SAMPLES / max(rows, 1)
        self.keep_s = KEEP_S if fits_s >= KEEP_S + MARGIN_S else max(fits_s - MARGIN_S, WINDOWS_S[0])
        self.live.trim(extent[1] - round((self.keep_s + MARGIN_S) * SECOND_NS), self._held)

    def _own_cpu(self) -> float | None:
        """Part of one core this process used in the last ten seconds."""
        now, used = time.monotonic(), _cpu_s()
        self._cpu.append((now, used))
        while len(self._cpu) > 2 and now - self._cpu[1][0] >= CPU_OVER_S:
            self._cpu.popleft()
        since, before = self._cpu[0]
        return (used - before) / (now - since) if now - since >= 0.5 else None


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

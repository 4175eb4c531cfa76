"""A sampler that goes on when its server has started again: it attaches again by itself, and the time between is a gap, never idle.

The samplers of both tiers count on: sessions, passes and statements keep their numbers, and the passes that were due in the gap are
missed (`tick.missed`). Table `server_gap` says when and why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from leadline.capture.gaps import sentence
from leadline.capture.store import OpenWriter, Row, Writer, core_writer
from leadline.engines.live import Server
from leadline.engines.postgres.again import Replaced, SameServer
from leadline.engines.postgres.target import PostgresServer
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline._core.capture import ErrorObject
    from leadline._core.recorder import SamplerFinal, SamplerStatus, ServerDescription

LOOK_EVERY_S = 0.5  # each look wakes a thread: five in a second were a twentieth of a capture's CPU time
TRY_EVERY_S = 0.3
FOLLOWED = ("gone",)  # kinds of errors after which the server may come back


class Sampler(Protocol):
    """What samples a server: `_core.recorder.Recorder` or SqlRecorder."""

    def describe(self) -> ServerDescription: ...
    def start(self) -> None: ...
    def status(self) -> SamplerStatus: ...
    def write_soon(self) -> None: ...
    def stop(self) -> SamplerFinal: ...


class Restartable(Sampler, Protocol):
    """A sampler that can be attached again."""

    def last_seen(self) -> int | None:
        """Start of the last pass that counts, after the sampler has ended for want of the server."""


@dataclass
class Gap:
    """A time in which the server was not seen: a row of server_gap. Times in ns on CLOCK_MONOTONIC."""

    ts_from: int
    reason: str
    pid_before: int | None
    ts_to: int | None = None
    cause: str = "gone"
    pid_after: int | None = None

    def row(self) -> Row:
        return (self.ts_from, self.ts_to, self.cause, self.pid_before, self.pid_after, self.reason)

    def sentence(self, window_end: int | None, wall_offset_ns: int | None) -> str:
        unseen_s = ((self.ts_to or window_end or self.ts_from) - self.ts_from) / 1e9
        return sentence(self.cause, unseen_s, None if wall_offset_ns is None else self.ts_from + wall_offset_ns, self.reason)


class Following:
    """Samples like the sampler it is given, and goes on with it after a restart.

    attach_again: attaches the sampler to the server as it runs now, and says what kind of gap it was. Raises LeadlineError: kind
    `unsupported` ends the recording, others are tried again.
    """

    def __init__(
        self,
        sampler: Restartable,
        target: PostgresServer,
        attach_again: Callable[[PostgresServer], str],
        capture_dir: str,
        period_ns: int,
        open_writer: OpenWriter = core_writer,
    ) -> None:
        self.target = target  # as it runs now
        self.gaps: list[Gap] = []
        self.on_return: list[Callable[[Server], None]] = []  # who else follows the server
        self._sampler, self._attach_again = sampler, attach_again
        self._same = SameServer(target)
        self._period_ns = period_ns
        self._capture_dir, self._open_writer = capture_dir, open_writer
        self._writer: Writer | None = None
        self._lock = threading.Lock()  # a sampler is used by one thread at a time
        self._stop = threading.Event()
        self._away: Gap | None = None
        self._error: ErrorObject | None = None
        self._final: SamplerFinal | None = None
        self._thread = threading.Thread(target=self._follow, name="leadline-follow", daemon=True)

    @property
    def is_away(self) -> bool:
        return self._away is not None

    def progress(self) -> str:
        """What is to be said of a server that is away; empty where it is not."""
        away = self._away
        if away is None:
            return ""
        return f"the server is away: {away.reason}" if away.cause == "replaced" else "the server is away"

    def describe(self) -> ServerDescription:
        with self._lock:
            return self._sampler.describe()

    def start(self) -> None:
        self._sampler.start()
        self._thread.start()

    def status(self) -> SamplerStatus:
        with self._lock:
            status = self._sampler.status()
        error = self._error
        if error is None and status["error"] is not None and status["error"]["kind"] not in FOLLOWED:
            error = status["error"]
        status["error"] = error
        status["running"] = error is None and (status["running"] or not self._stop.is_set())
        return status

    def write_soon(self) -> None:
        """Nothing while the sampler is attached again, which may take a while."""
        if self._lock.acquire(blocking=False):
            try:
                self._sampler.write_soon()
            finally:
                self._lock.release()

    def stop(self) -> SamplerFinal:
        """Ends it, with the last gap open if the server is away."""
        if self._final is not None:
            return self._final
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            final = self._sampler.stop()
        error = final["error"]
        if error is not None and error["kind"] in FOLLOWED and self._error is None:
            if self._away is None:  # it went away just now
                self._away = self._gap(error)
            final["error"] = None
        else:
            final["error"] = self._error or error
        if self._away is not None:
            self.gaps.append(self._away)
            self._write(self._away)
        if self._writer is not None:
            final["tables"]["server_gap"] = self._writer.close()
        final["running"] = False
        self._final = final
        return final

    def _follow(self) -> None:
        while not self._stop.wait(TRY_EVERY_S if self.is_away else LOOK_EVERY_S):
            try:
                with self._lock:
                    status = self._sampler.status()
                    error = status["error"]
                    if status["running"] or error is None or error["kind"] not in FOLLOWED:
                        continue
                    if self._away is None:
                        self._away = self._gap(error)
                self._try(self._away)
            except LeadlineError as e:
                if self._away is not None:
                    self._away.reason = "; ".join(part for part in (e.message, e.detail) if part)
                    self._away.cause = "replaced" if isinstance(e, Replaced) or e.kind == "unsupported" else "gone"
                if e.kind in ("unsupported", "storage"):
                    self._error = e.as_dict()
                    return

    def _gap(self, error: ErrorObject) -> Gap:
        seen = self._sampler.last_seen()
        ended = time.monotonic_ns() if seen is None else seen + self._period_ns
        return Gap(ended, "; ".join(part for part in (error["message"], error["detail"]) if part), self.target.pid)

    def _try(self, gap: Gap) -> None:
        found = self._same.now()
        with self._lock:
            if self._stop.is_set():
                return
            before = self.target
            gap.cause = self._attach_again(found)
            gap.ts_to, gap.pid_after = time.monotonic_ns(), found.pid
            self._sampler.start()
        self.target, self._away = found, None
        self.gaps.append(gap)
        self._write(gap)
        if found != before:
            for follow in self.on_return:
                follow(found)

    def _write(self, gap: Gap) -> None:
        if self._writer is None:
            self._writer = self._open_writer(self._capture_dir, "server_gap")
        self._writer.append([gap.row()])
        self._writer.flush()

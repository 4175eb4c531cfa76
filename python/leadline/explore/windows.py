"""Windows of a recorder that the page opens: each becomes a capture in a temporary directory, as `take --from-recorder` makes it.

A few stay open, the one asked for last longest. An address names its window by the wall clock, so that one which was closed opens again;
after a ~ it names the window of the same recorder with which that one is compared.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from leadline.capture.reader import Tell
from leadline.explore.address import wrong
from leadline.explore.answers import SCRATCH, Explorer, open_explored
from leadline.explore.opening import Opening
from leadline.explore.shown import Shown
from leadline.recorder.pieces import Pieces
from leadline.recorder.window import take_window, wall_ns

MOST_OPEN = 4
NAMED = re.compile(r"(\d{1,10})\.(\d{3})-(\d{1,10})\.(\d{3})", re.ASCII)  # seconds since 1970
Moments = tuple[datetime, datetime]
EARLIER = (("an hour", timedelta(hours=1)), ("a day", timedelta(days=1)), ("a week", timedelta(weeks=1)))


class Windows:
    """other: a capture with which windows are compared whose address names none. by_hand: whether whoever looks at it can keep a window
    by a command."""

    def __init__(self, directory: Path, other: Path | None = None, factors: Sequence[str] = (), *, by_hand: bool = True) -> None:
        self.directory, self._other, self._factors, self._by_hand = directory, other, factors, by_hand
        self._scratch = Path(tempfile.mkdtemp(prefix=SCRATCH.format(pid=os.getpid())))
        self._open: dict[str, Opening[Shown]] = {}
        self._lock = threading.Lock()
        self._pieces, self._reading = Pieces(directory), threading.Lock()

    def opening(self, name: str) -> Opening[Shown]:
        """Raises Refused for what names no window. One that could not be opened is tried again."""
        moments = [_moments(part) for part in name.split("~", 1)]
        with self._lock:
            found = self._open.pop(name, None)
            if found is None or found.error is not None:
                self._close(list(self._open)[: max(0, len(self._open) + 1 - MOST_OPEN)])
                found = Opening(lambda tell: self._make(name, moments, tell)).begin()
            self._open[name] = found  # the last one
        return found

    def close(self) -> None:
        with self._lock:
            self._close(list(self._open))
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _make(self, name: str, moments: Sequence[Moments], tell: Tell) -> Shown:
        place = self._scratch / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        with ExitStack() as opened:
            here = self._copy(moments[0], place, tell, opened)
            if len(moments) > 1:
                (place / "other").mkdir()
                there: Explorer | None = self._copy(moments[1], place / "other", tell, opened)
            elif self._other is not None:
                there = open_explored(self._other, tell)
                opened.callback(there.capture.close)
            else:
                there = None
            here.notes.append(self._how_to_keep(*moments[0]))
            shown = Shown.of(here, there, self._factors)
            opened.pop_all()
        # What was not recorded at the begin of a window is not in its copy.
        late = [_begun(explorer) - wall_ns(start) for explorer, (start, _) in zip((here, there), moments) if explorer is not None]
        return replace(shown, earlier=self._earlier(*moments[0]), shift_ns=late[0] - late[1] if len(late) > 1 else 0)

    def _copy(self, window: Moments, place: Path, tell: Tell, opened: ExitStack) -> Explorer:
        tell(None, 0, 0, "rows of its pieces are copied")
        explorer = open_explored(take_window(self.directory, *window, place / f"{window[0]:%Y%m%dT%H%M%S}Z.leadline"), tell)
        opened.callback(explorer.capture.close)
        return explorer

    def _how_to_keep(self, start: datetime, end: datetime) -> str:
        times = " ".join(at.isoformat(timespec="milliseconds") for at in (start, end))
        keep = f"leadline take --from-recorder {shlex.quote(str(self.directory))} --between {times} -o NAME"
        where = "to keep it" if self._by_hand else "to keep it, on the host of the recorder"
        return f"a copy for as long as the page runs; {where}: {keep}"

    def _earlier(self, start: datetime, end: datetime) -> list[tuple[str, str]]:
        """The same time an hour, a day, a week before, as far as something was recorded then: words, and the name of both windows."""
        with self._reading:
            pieces = self._pieces.read()
        found = []
        for words, before in EARLIER:
            low, high = start - before, end - before
            if any(p.ts_from is not None and p.wall_from < wall_ns(high) and p.wall_to > wall_ns(low) for p in pieces):
                found.append((f"{words} before", f"{name_of(start, end)}~{name_of(low, high)}"))
        return found

    def _close(self, names: list[str]) -> None:
        for name in names:
            opening = self._open.pop(name)
            opening.stop()
            if opening.is_ready:
                opening.get().close()
            shutil.rmtree(self._scratch / name, ignore_errors=True)


def name_of(start: datetime, end: datetime) -> str:
    return f"{start.timestamp():.3f}-{end.timestamp():.3f}"


def _begun(explorer: Explorer) -> int:
    return explorer.ts_from + (explorer.capture.manifest.clock.wall_offset_ns or 0)


def _moments(name: str) -> Moments:
    found = NAMED.fullmatch(name)
    if found is None:
        raise wrong(f"{name[:60]!r} is no window of the recorder")
    try:
        start, end = (datetime.fromtimestamp(int(found[n]), UTC).replace(microsecond=1000 * int(found[n + 1])) for n in (1, 3))
    except (ValueError, OverflowError, OSError):
        raise wrong(f"{name[:60]!r} is no window of the recorder") from None
    if end <= start:
        raise wrong("the window ends before it begins")
    return start, end

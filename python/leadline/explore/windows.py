"""Windows of a recorder that the page opens: each becomes a capture in a temporary directory, as `take --from-recorder` makes it.

A few stay open, the one asked for last longest. An address names its window by the wall clock, so that one which was closed opens again.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from leadline.capture.reader import Tell
from leadline.explore.address import wrong
from leadline.explore.answers import SCRATCH, Explorer, open_explored
from leadline.explore.opening import Opening
from leadline.recorder.window import take_window

MOST_OPEN = 4
NAMED = re.compile(r"(\d{1,10})\.(\d{3})-(\d{1,10})\.(\d{3})", re.ASCII)  # seconds since 1970
T = TypeVar("T")


class Windows(Generic[T]):
    """shown: what the page needs of an explorer. by_hand: whether whoever looks at it can keep a window by a command."""

    def __init__(
        self, directory: Path, shown: Callable[[Explorer], T], explorer_of: Callable[[T], Explorer], *, by_hand: bool = True
    ) -> None:  # fmt: skip
        self.directory, self._shown, self._explorer_of = directory, shown, explorer_of
        self._by_hand = by_hand
        self._scratch = Path(tempfile.mkdtemp(prefix=SCRATCH.format(pid=os.getpid())))
        self._open: dict[str, Opening[T]] = {}
        self._lock = threading.Lock()

    def opening(self, name: str) -> Opening[T]:
        """Raises Refused for what names no window. One that could not be opened is tried again."""
        start, end = _moments(name)
        with self._lock:
            found = self._open.pop(name, None)
            if found is None or found.error is not None:
                self._close(list(self._open)[: max(0, len(self._open) + 1 - MOST_OPEN)])
                found = Opening(lambda tell: self._make(name, start, end, tell)).begin()
            self._open[name] = found  # the last one
        return found

    def close(self) -> None:
        with self._lock:
            self._close(list(self._open))
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _make(self, name: str, start: datetime, end: datetime, tell: Tell) -> T:
        tell(None, 0, 0, "rows of its pieces are copied")
        path = self._scratch / name / f"{start:%Y%m%dT%H%M%S}Z.leadline"
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        explorer = open_explored(take_window(self.directory, start, end, path), tell)
        times = " ".join(at.isoformat(timespec="milliseconds") for at in (start, end))
        keep = f"leadline take --from-recorder {shlex.quote(str(self.directory))} --between {times} -o NAME"
        where = "to keep it" if self._by_hand else "to keep it, on the host of the recorder"
        explorer.notes.append(f"a copy for as long as the page runs; {where}: {keep}")
        return self._shown(explorer)

    def _close(self, names: list[str]) -> None:
        for name in names:
            opening = self._open.pop(name)
            opening.stop()
            if opening.is_ready:
                self._explorer_of(opening.get()).capture.close()
            shutil.rmtree(self._scratch / name, ignore_errors=True)


def _moments(name: str) -> tuple[datetime, datetime]:
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

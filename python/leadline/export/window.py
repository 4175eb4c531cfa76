"""The part of a capture's window that is exported."""

from __future__ import annotations

from dataclasses import dataclass

from leadline.capture.reader import Capture
from leadline.errors import LeadlineError


@dataclass(frozen=True)
class Span:
    """ts_from, ts_to: ns on the capture's clock. wall_offset_ns: added to them it gives ns since 1970; None if not known.
    whole: nothing is left out, not even what lies outside the window."""

    ts_from: int
    ts_to: int
    wall_offset_ns: int | None
    whole: bool

    @property
    def began_ns(self) -> int:
        return 0 if self.wall_offset_ns is None else max(self.ts_from + self.wall_offset_ns, 0)

    @property
    def duration_ns(self) -> int:
        return max(self.ts_to - self.ts_from, 0)

    def of(self, ts: str, until: str = "") -> str:
        """SQL: a moment is in the span; with `until`, a time from one moment to the other has a part in it."""
        return "true" if self.whole else f"({until or ts} >= {self.ts_from} and {ts} < {self.ts_to})"


def span_of(capture: Capture, since_s: float | None, until_s: float | None) -> Span:
    """since_s, until_s: seconds from the start of the capture."""
    [row] = capture.rows("select ts_from, ts_to, wall_offset_ns from capture")
    ts_from, ts_to = row["ts_from"] or 0, row["ts_to"] or row["ts_from"] or 0
    if since_s is None and until_s is None:
        return Span(ts_from, ts_to, row["wall_offset_ns"], whole=True)
    begin = ts_from + round((since_s or 0) * 1e9)
    end = ts_to if until_s is None else ts_from + round(until_s * 1e9)
    if end <= begin:
        length = f"the capture has {(ts_to - ts_from) / 1e9:.1f} s"
        raise LeadlineError("usage", "--since and --until leave nothing to export", detail=length, hint="--since 0 --until 10")
    return Span(begin, end, row["wall_offset_ns"], whole=False)

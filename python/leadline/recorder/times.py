"""Times as people write them: 03:00, 2026-11-28T03:00, the same with an offset, now-10m. Without an offset in the zone of this host."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from leadline.errors import LeadlineError
from leadline.units import seconds_of

FORMS = "03:00, 2026-11-28T03:00, 2026-11-28T03:00+01:00 or now-10m"


def window(text_from: str, text_to: str, now: datetime) -> tuple[datetime, datetime]:
    """From and to. A time without a date is the last one before now; as the end, the first one after the start.

    Raises LeadlineError('usage').
    """
    start = _parsed(text_from, now, None)
    end = _parsed(text_to, now, start)
    if end <= start:
        raise LeadlineError("usage", "the window ends before it begins", detail=f"from {start.isoformat()} to {end.isoformat()}")
    return start, end


def _parsed(text: str, now: datetime, after: datetime | None) -> datetime:
    text = text.strip()
    if found := re.fullmatch(r"now(?:-(.+))?", text, re.IGNORECASE):
        return now - timedelta(seconds=seconds_of(found[1], bare=False) if found[1] else 0)
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?", text):
        return _of_day(text, now, after)
    try:
        if not re.match(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError("no date")
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise LeadlineError("usage", f"{text!r} is not a time", hint=f"use a form such as {FORMS}") from None
    return parsed if parsed.tzinfo is not None else parsed.astimezone()


def _of_day(text: str, now: datetime, after: datetime | None) -> datetime:
    """A time of day; each day's offset is its own, as clocks are put forward and back."""
    hour, minute, *second = text.split(":")
    try:
        at = datetime(2000, 1, 1, int(hour), int(minute)) + timedelta(seconds=float(second[0]) if second else 0)
    except ValueError:
        raise LeadlineError("usage", f"{text!r} is not a time of day", hint=f"use a form such as {FORMS}") from None
    today = (after or now).astimezone().date()
    days = (today + timedelta(days=by) for by in ((0, 1, 2) if after is not None else (0, -1, -2)))
    times = [datetime.combine(day, at.time()).astimezone() for day in days]
    return next(time for time in times if (time > after if after is not None else time <= now))

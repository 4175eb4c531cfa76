"""Sizes, durations and rates: what people write, and how they read it.

kB, MB and GB are 1024 bytes each of the one before, as in PostgreSQL, both in what is read and in what is printed.
"""

from __future__ import annotations

import re

from leadline.errors import LeadlineError

SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
MB, GB = 1 << 20, 1 << 30
LARGEST = 1 << 63  # what a column holds
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604_800.0}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"


def bytes_of(text: str, *, bare: bool = True, least: int = 0) -> int:
    """Bytes of 16MB, 1.5 GB, 64k, 8192; not bare: a number needs its unit. Raises LeadlineError('usage')."""
    found = re.fullmatch(_NUMBER + r"\s*(?:([kMGTP])i?B?|B)?", text.strip(), re.IGNORECASE | re.ASCII)
    size = None
    if found and (bare or not text.strip()[-1].isdigit()):
        factor = 1024 ** " kmgtp".index((found[2] or " ").lower())
        size = int(float(found[1]) * factor) if "." in found[1] else int(found[1][:30]) * factor
    if size is None or not least <= size < LARGEST:
        raise LeadlineError("usage", f"{text!r} is not a size", hint="use a form such as 512kB, 16MB or 4GB; 1 kB is 1024 bytes")
    return size


def sized(value: float | None) -> str:
    """Bytes in three or four figures: 812B, 1.46kB, 16.4MB, 1020GB; empty when not known."""
    return "" if value is None else "{}{}".format(*_scaled(value))


def short_size(value: float | None) -> str:
    """Bytes in at most five characters, for narrow columns: 0, 812, 12k, 3.4M, 1.2G."""
    if value is None:
        return ""
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit and value < 9.95 else f"{value:.0f}{unit}"
        value /= 1024
    return f"{value:.1f}T"


def whole_size(value: int) -> str:
    """Exactly, in the largest unit that divides it, as PostgreSQL prints a setting: 128 MB, 1 GB, 100 kB."""
    place = 0
    while value and value % 1024 == 0 and place + 1 < len(SIZES):
        value, place = value // 1024, place + 1
    return f"{value} {SIZES[place]}"


def _scaled(value: float) -> tuple[str, str]:
    """What is printed as 1024 is 1 of the next unit."""
    for unit in SIZES:
        shown = f"{value:.0f}" if unit == "B" or abs(value) >= 999.5 else f"{value:.3g}"
        if abs(float(shown)) < 1024 or unit == SIZES[-1]:
            return shown, unit
        value /= 1024
    raise AssertionError("the last unit takes every number")


def seconds_of(text: str, *, bare: bool = True) -> float:
    """Seconds of 161us, 20ms, 60s, 5m, 1h, 7d, or of a bare number; not bare: it needs its unit. Raises LeadlineError('usage')."""
    found = re.fullmatch(_NUMBER + r"\s*([a-z]*)", text.strip().lower(), re.ASCII)
    if found is None or not (found[2] in _SECONDS or (bare and not found[2])):
        raise LeadlineError("usage", f"{text!r} is not a duration", hint="use a form such as 20ms, 60s, 5m, 1h or 7d")
    return float(found[1]) * _SECONDS.get(found[2], 1.0)


def bits_of(text: str) -> float:
    """Bits a second of 100mbit, 1gbit, 64kbit, 9600: of 1000 each, as rates of links are. Raises LeadlineError('usage')."""
    found = re.fullmatch(_NUMBER + r"\s*(?:([kmg]?)bit(?:/s)?)?", text.strip(), re.IGNORECASE | re.ASCII)
    if found is None:
        raise LeadlineError("usage", f"{text!r} is not a rate", hint="use a form such as 100mbit or 1gbit")
    return float(found[1]) * 1000.0 ** " kmg".index((found[2] or " ").lower())


def duration(seconds: float | None) -> str:
    """How long something took, to the millisecond, from a minute on as 0:01:07; empty when not known."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.3f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def age(value: float | None) -> str:
    """An age in at most six characters: 0.24, 7.3, 82, 12m04, 3h07, 5d02."""
    if value is None or value < 0:
        return "" if value is None else "0"
    if value < 100:
        return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}" if hours < 24 else f"{hours // 24}d{hours % 24:02}"


def age_in_words(value: float) -> str:
    """An age with its unit, for a sentence."""
    return age(value) + (" s" if value < 100 else "")

"""Numbers and texts for people, the same in every view: seconds, shares and counts, foreign text on one line."""

from __future__ import annotations

import unicodedata
from typing import Any

EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█")


def seconds(value: float) -> str:
    """Seconds for people: 0.0042, 0.420, 7.31, 82.1, 1,234."""
    if value == 0:
        return "0"
    for below, decimals in ((0.01, 4), (1, 3), (10, 2), (1000, 1)):
        if abs(value) < below:
            return f"{value:.{decimals}f}"
    return f"{value:,.0f}"


def percent(share: float | None) -> str:
    """A share of 0 to 1 as text, empty when there is none."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"


def quantity(value: float | None, unit: str = "") -> str:
    """A count in three figures, in thousands: 81.9k, 17.2M; empty when not known. Bytes: units.size."""
    if value is None:
        return ""
    for factor, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{sign}{unit}"
    return f"{value:.0f}{unit}"


def figure(value: float | None) -> str:
    """A measured figure: four digits below 1,000, whole numbers from there on; empty when not known."""
    if value is None:
        return ""
    return f"{value:.4g}" if abs(value) < 999.95 else f"{value:,.0f}"


def count(number: int, thing: str, many: str = "") -> str:
    """1 row, 2 rows, 1,234 rows. many: of things that take more than an s."""
    return f"{number:,} {thing if number == 1 else many or thing + 's'}"


def unconverted(number: int, encoding: str) -> str:
    """Characters of a database's texts that are lost in UTF-8."""
    if encoding == "UTF8":  # of 13 and 14
        return f'{number} values of type "char" are not valid UTF-8: printed as U+FFFD'
    return f"{number} characters cannot be converted from {encoding} to UTF-8: printed as U+FFFD"


def cell(value: Any) -> str:
    """One value as text on one line. Control characters of foreign text do not reach the terminal."""
    if value is None:
        return ""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e15 else f"{value:.0f}"
    if isinstance(value, dict | list):
        import json

        value = json.dumps(value, ensure_ascii=False, default=str)
    return one_line(str(value))


def one_line(text: str) -> str:
    """Text without line breaks, and with control characters made harmless."""
    if text.isprintable():  # nearly always
        return " ".join(text.split())
    return harmless(" ".join(text.split()))


def harmless(text: str) -> str:
    """Text of the same length whose control characters and line breaks are replaced."""
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else "\N{REPLACEMENT CHARACTER}" for c in text)


def width_of(text: str) -> int:
    """How many columns of a terminal it takes: signs of Chinese and the like take two, accents of their own none."""
    if text.isascii():  # nearly always
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def fit(text: str, width: int) -> str:
    """At most `width` columns, an ellipsis for what is cut."""
    if width_of(text) <= width:
        return text
    text = text[: max(width - 1, 0)]
    while text and width_of(text) >= width:
        text = text[:-1]
    return text + "…"


def fit_path(text: str, width: int) -> str:
    """The same for a path, of which the end says most."""
    if width_of(text) <= width:
        return text
    text = text[len(text) - max(width - 1, 0) :]
    while text and width_of(text) >= width:
        text = text[1:]
    return "…" + text


def pad(text: str, width: int, right: bool = False) -> str:
    """Filled up with blanks to `width` columns, which stand before it if it is to be at the right."""
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks


def bar(part: float, width: int) -> str:
    """Filled to `part` (0 to 1) of `width` columns, in eighths of one: what is more than nothing is seen."""
    eighths = max(round(min(part, 1.0) * width * 8), 1 if part > 0 else 0)
    return EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8]

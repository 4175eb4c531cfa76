"""The address of the page is its whole state: window, filters, dimension of the ranking, what it is compared with.

What is not understood is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from leadline.explore.queries import DIMENSIONS, RANKINGS, Asked, Value
from leadline.server.operation import Refused

LONGEST_VALUE = 10_000
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
SHOWN = ("locks", "beside")  # what else is open on the page; which window of a recorder another one is chosen for
SAME, ALL = "same", "all"  # the same seconds of what it is compared with, as far as it has them; all of it


@dataclass(frozen=True)
class State:
    """versus: the window that is compared, in ns on the clock of its capture."""

    asked: Asked
    by: str
    versus: tuple[int, int] | None = None


def wrong(what: str, hint: str = "") -> Refused:
    return Refused(400, "usage", what, hint=hint)


def read_state(query: str, ts_from: int, ts_to: int, other: tuple[int, int] | None = None, shift_ns: int = 0) -> State:
    """The state that a query string names, for a capture from ts_from to ts_to. other: begin and end of the capture that it is compared
    with, if that is another one. shift_ns: how much later in that one the same moment lies. Raises Refused.
    """
    given = _words(query)
    unknown = given.keys() - {"from", "to", "by", "vs", *SHOWN, *DIMENSIONS}
    if unknown:
        raise wrong(f"{min(unknown)[:60]!r} is nothing that the page shows", f"from, to, by, vs, {', '.join(DIMENSIONS)}")
    by = given.get("by", "event")
    if by not in RANKINGS:
        raise wrong(f"there is no ranking by {by[:60]!r}", f"one of {', '.join(RANKINGS)}")
    first = _ns(given["from"]) if "from" in given else 0
    last = _ns(given["to"]) if "to" in given else ts_to - ts_from
    if not 0 <= first < last <= ts_to - ts_from:
        raise wrong(f"the window must lie between 0 and {(ts_to - ts_from) / 1e9:.3f} s, and begin before it ends")
    filters = tuple((name, _value(name, given[name])) for name in DIMENSIONS if name in given)
    versus = None
    if "vs" in given:
        reach = other or (ts_from, ts_to)
        versus = _versus(given["vs"], (first + shift_ns, last + shift_ns), *reach)
    return State(Asked(ts_from + first, ts_from + last, filters), by, versus)


def _versus(text: str, same: tuple[int, int], ts_from: int, ts_to: int) -> tuple[int, int]:
    if text == ALL:
        return ts_from, ts_to
    if text == SAME:
        low, high = max(ts_from + same[0], ts_from), min(ts_from + same[1], ts_to)
        if low >= high:
            raise wrong("what it is compared with has nothing of the same seconds")
        return low, high
    first, dash, last = text.partition("-")
    if not dash:
        raise wrong(f"{text[:60]!r} is no window to compare with", "vs=12.5-30")
    low, high = _ns(first), _ns(last)
    if not 0 <= low < high <= ts_to - ts_from:
        raise wrong(f"what is compared must lie between 0 and {(ts_to - ts_from) / 1e9:.3f} s, and begin before it ends")
    return ts_from + low, ts_from + high


def _words(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=20)
    except ValueError:
        raise wrong("the address cannot be read: after ? it has NAME=VALUE, with & between them") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise wrong(f"{name[:60]!r} is given twice")
        if "\0" in value or len(value) > LONGEST_VALUE:
            raise wrong(f"the value of {name[:60]!r} is none that a capture has")
        given[name] = value
    return given


def _ns(text: str) -> int:
    if not _SECONDS.fullmatch(text):
        raise wrong(f"{text[:60]!r} is no number of seconds", "from=12.5&to=30")
    whole, _, part = text.partition(".")
    return int(whole) * 1_000_000_000 + int(part.ljust(9, "0"))


def _value(name: str, text: str) -> Value:
    if not DIMENSIONS[name].is_number or text == "":
        return text
    if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise wrong(f"{text[:60]!r} is no number of a {DIMENSIONS[name].label}")
    return int(text)

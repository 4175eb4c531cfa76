"""Columns of a table of which only its file is left, guessed from the bytes: how values lie is proved by tuples that are used up to their
last byte; what they mean is what all of them can be."""

from __future__ import annotations

import datetime
import math
import struct
from dataclasses import dataclass, field

from leadline.files.salvage.given import layouts
from leadline.files.salvage.heap_files import Tuple
from leadline.files.salvage.shapes import Column, Pointer, Prints, Value, cut, value_at

LOOKED_AT = 60  # tuples that each way to lay the columns is tried on
KEPT = 40  # ways that are gone on with, the likelier ones
# How values may lie.
LAYOUTS = [(4, "i"), (-1, "i"), (8, "d"), (1, "c"), (2, "s"), (-1, "d"), (16, "c"), (16, "d"), (12, "d"), (6, "i"), (64, "c")]
LAYOUTS += [(32, "d"), (24, "d")]
NAMES = {
    "bool": 16, "bytea": 17, "char": 18, "name": 19, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float4": 700, "float8": 701,
    "varchar": 1043, "timestamp": 1114, "point": 600, "path": 602, "box": 603, "polygon": 604, "circle": 718, "macaddr": 829,
    "interval": 1186, "timetz": 1266, "numeric": 1700, "timestamptz": 1184, "uuid": 2950, "jsonb": 3802, "inet": 869,
}  # fmt: skip
ARRAYS = {16: 1000, 20: 1016, 21: 1005, 23: 1007, 25: 1009, 700: 1021, 701: 1022, 1043: 1015, 1114: 1115, 1184: 1185, 1700: 1231}
ARRAYS |= {2950: 2951}
EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
INTERVAL = struct.Struct("<qii")
DAY = 86_400_000_000  # microseconds
YEARS = range(1950, 2100)  # of values that are taken for times


@dataclass
class Guess:
    """name: of a type. likely: how much the values look like ones of it, up to 1. also: what else they can be."""

    name: str
    type_oid: int
    likely: float
    also: list[str] = field(default_factory=list)


@dataclass
class Guessed:
    """others: ways to lay the columns that fit the tuples, too, and are less likely."""

    columns: list[Guess]
    layout: list[Column]
    others: int
    looked_at: int


@dataclass
class _Way:
    """To lay the columns so far. ends: where the last of them ends in each tuple."""

    ends: list[int]
    layout: list[Column] = field(default_factory=list)
    guesses: list[Guess] = field(default_factory=list)
    score: float = 0.0


def guess(sample: tuple[Tuple, ...], prints: Prints) -> Guessed | None:
    """None when no columns fit the tuples."""
    looked = sample[:LOOKED_AT]
    natts = max((row.natts for row in looked), default=0)
    ways = [_Way([0] * len(looked))]
    for number in range(natts):
        has_values = any(row.natts > number and not row.is_null(number) for row in looked)
        # A column without any value takes no room.
        layouts = LAYOUTS if has_values else [(-1, "i")]
        longer = (_with(way, number, Column(0, *layout), looked, prints) for way in ways for layout in layouts)
        ways = sorted((way for way in longer if way is not None), key=lambda way: -way.score)[:KEPT]
    fitting = [way for way in ways if all(cut(row, way.layout) is not None for row in sample)]
    return Guessed(fitting[0].guesses, fitting[0].layout, len(fitting) - 1, len(sample)) if fitting else None


def _with(way: _Way, number: int, column: Column, sample: tuple[Tuple, ...], prints: Prints) -> _Way | None:
    """With one column more; None when it does not fit."""
    ends, values = list[int](), list[Value]()
    for row, end in zip(sample, way.ends):
        if row.natts > number and not row.is_null(number):
            found = value_at(row.data, end, column)
            if found is None:
                return None
            value, end = found
            values.append(value)
        # The last column ends where the tuple does.
        if row.natts == number + 1 and end != len(row.data):
            return None
        ends.append(end)
    meaning = _meaning(column, values, prints)
    return _Way(ends, [*way.layout, column], [*way.guesses, meaning], way.score + math.log(meaning.likely))


def _meaning(column: Column, values: list[Value], prints: Prints) -> Guess:
    there = [value for value in values if isinstance(value, bytes)]
    if not there:
        outside = any(isinstance(value, Pointer) for value in values)
        return _named("text", 0.9, "bytea") if outside else _named("text", 0.5, "any type: it is null in all rows looked at")
    kinds = {-1: _variable, 1: _one, 2: _two, 4: _four, 6: _six, 8: _eight, 12: _twelve, 16: _sixteen, 24: _reals, 32: _reals, 64: _name}
    return kinds[column.length](column, there, prints)


def _named(name: str, likely: float, *also: str) -> Guess:
    return Guess(name, NAMES[name], likely, list(also))


def _numbers(values: list[bytes], form: str) -> list[int]:
    return [int(number) for (number,) in (struct.unpack(form, value) for value in values)]


def _one(_column: Column, values: list[bytes], _prints: Prints) -> Guess:
    if all(value in (b"\0", b"\1") for value in values):
        return _named("bool", 0.9, "char")
    return _named("char", 0.7 if all(32 <= value[0] < 127 for value in values) else 0.2)


def _two(_column: Column, values: list[bytes], _prints: Prints) -> Guess:
    return _named("int2", 0.6 if all(abs(number) < 10_000 for number in _numbers(values, "<h")) else 0.2)


def _four(_column: Column, values: list[bytes], _prints: Prints) -> Guess:
    numbers = _numbers(values, "<i")
    if all(abs(number) > 1 << 24 or number == 0 for number in numbers) and any(numbers) and _are_real(values, "<f"):
        return _named("float4", 0.8, "int4")
    also = ["date"] * all(int(EPOCH.year + number / 365.25) in YEARS for number in numbers) + ["oid"] * (min(numbers) >= 0)
    return _named("int4", 1.0 if all(abs(number) < 1 << 24 for number in numbers) else 0.1, *also)


def _six(_column: Column, _values: list[bytes], _prints: Prints) -> Guess:
    return _named("macaddr", 0.2)


def _eight(_column: Column, values: list[bytes], _prints: Prints) -> Guess:
    numbers = _numbers(values, "<q")
    if all(abs(number) > 1 << 40 and int(EPOCH.year + number / 1e6 / 86400 / 365.25) in YEARS for number in numbers):
        return _named("timestamptz", 1.0, "timestamp", "int8")
    if all(abs(number) > 1 << 52 or number == 0 for number in numbers) and any(numbers) and _are_real(values, "<d"):
        return _named("float8", 0.9, "int8")
    also = ["time", "money"] * all(0 <= number <= DAY for number in numbers)
    return _named("int8", 1.0 if all(abs(number) < 1 << 40 for number in numbers) else 0.1, *also)


def _twelve(_column: Column, values: list[bytes], _prints: Prints) -> Guess:
    parts = [struct.unpack("<qi", value) for value in values]
    return _named("timetz", 0.9 if all(0 <= time <= DAY and abs(zone) < 60_000 for time, zone in parts) else 0.05)


def _sixteen(column: Column, values: list[bytes], _prints: Prints) -> Guess:
    if column.align == "c":
        return _named("uuid", 1.0 if all(value[8] >> 6 == 2 and value[6] >> 4 in range(1, 9) for value in values) else 0.1)
    if all(abs(time) < 1 << 50 and abs(day) < 1 << 20 and abs(month) < 1 << 20 for time, day, month in map(INTERVAL.unpack, values)):
        return _named("interval", 0.9, "point")
    return _named("point", 0.8, "interval") if _are_real(values, "<2d") else _named("interval", 0.05)


def _reals(column: Column, values: list[bytes], _prints: Prints) -> Guess:
    likely = 0.8 if _are_real(values, f"<{column.length // 8}d") else 0.02
    return _named("circle", likely, "line") if column.length == 24 else _named("box", likely, "lseg")


def _name(_column: Column, values: list[bytes], _prints: Prints) -> Guess:
    return _named("name", 1.0 if all(value[-1] == 0 and _is_text(value.rstrip(b"\0")) for value in values) else 0.02)


def _are_real(values: list[bytes], form: str) -> bool:
    numbers = [float(number) for value in values for number in struct.unpack(form, value)]
    return all(number == 0 or (math.isfinite(number) and 1e-12 < abs(number) < 1e15) for number in numbers)


def _variable(column: Column, values: list[bytes], prints: Prints) -> Guess:
    if column.align == "i" and all(_is_text(value) for value in values):
        also = ["json"] * all(value[:1] in (b"{", b"[") for value in values) + ["varchar"]
        return _named("text", 1.0 if sum(map(len, values)) > len(values) else 0.6, *also)
    array = {_element(value) for value in values}
    element = array.pop() if len(array) == 1 else 0
    of_array = ARRAYS.get(element, 0)
    if of_array and layouts()[of_array][1] == column.align and all(prints(of_array, value) for value in values):
        return Guess(f"{next(name for name, oid in NAMES.items() if oid == element)}[]", of_array, 1.0)
    if column.align == "d":
        of_points = [name for name in ("path", "polygon") if all(prints(NAMES[name], value) is not None for value in values)]
        return _named(of_points[0], 0.9, *of_points[1:]) if of_points else _named("path", 0.02)
    fitting = [name for name in ("numeric", "jsonb", "inet") if all(_is_exactly(name, value, prints) for value in values)]
    return _named(fitting[0], 0.9, *fitting[1:]) if fitting else _named("bytea", 0.2)


def _is_text(value: bytes) -> bool:
    """Of letters, without control characters but tab and line ends."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return all(byte >= 32 or byte in (9, 10, 13) for byte in value)


def _element(value: bytes) -> int:
    """The type of the elements of an array of at most six dimensions."""
    if len(value) < 12:
        return 0
    dimensions, flags, element = struct.unpack_from("<iiI", value)
    return element if 0 <= dimensions <= 6 and flags >= 0 else 0


def _is_exactly(name: str, value: bytes, prints: Prints) -> bool:
    could_be = {"numeric": _may_be_numeric, "inet": _may_be_inet, "jsonb": _may_be_jsonb}[name]
    return could_be(value) and prints(NAMES[name], value) is not None


def _may_be_inet(value: bytes) -> bool:
    return len(value) in (6, 18) and value[0] in (2, 3) and value[1] <= 128


def _may_be_numeric(value: bytes) -> bool:
    """A header of two bytes, or of four, and digits of base 10000."""
    if len(value) < 2 or len(value) % 2:
        return False
    start = 2 if value[1] & 0x80 else 4
    return all(digit <= 9999 for (digit,) in struct.iter_unpack("<H", value[start:]))


def _may_be_jsonb(value: bytes) -> bool:
    """A header that says array, object or scalar."""
    return len(value) >= 4 and bool(value[3] & 0x70)

"""Whether tuples can be rows of a table: each is cut by the columns, to its very last byte, and each value must be one of its type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from leadline.files.salvage.heap_files import FIRST_OF_USERS, Tuple

ALIGN = {"c": 1, "s": 2, "i": 4, "d": 8}
OUTSIDE = 18  # of a pointer to a TOAST table, its tag
POINTER = 18  # its bytes, with header
TEXTS = {25, 1042, 1043, 114, 142, 194, 1790}
LIMITED = {1042, 1043}  # whose type modifier is the most characters they have, and 4
BOOL = 16


class Column(NamedTuple):
    """How values of a column lie. type_oid: that of a domain is what it is made of; 0 where none is printed. element: of an array. own_at:
    of a type that users made, where in its values the OID of a type of users is.
    """

    type_oid: int
    length: int
    align: str
    typmod: int = -1
    element: int = 0
    own_at: int | None = None


class Pointer(NamedTuple):
    """To a value in a TOAST table."""

    value_id: int
    relid: int


Value = bytes | Pointer | None
"""What is compressed within the row is None: it is not looked at."""
Prints = Callable[[int, bytes], str | None]


def variable(data: bytes, at: int, align: int) -> tuple[Value, int] | None:
    """A value of variable length at this place, and where it ends; None when there is none."""
    if at >= len(data):
        return None
    if data[at] == 0:
        start = -(-at // align) * align
        if any(data[at:start]):
            return None
        at = start
        if at >= len(data):
            return None
    first = data[at]
    if first == 1:
        if len(data) < at + POINTER or data[at + 1] != OUTSIDE:
            return None
        _, _, value_id, relid = struct.unpack_from("<iIII", data, at + 2)
        return Pointer(value_id, relid), at + POINTER
    if first & 1:
        end = at + (first >> 1)
        return (data[at + 1 : end], end) if end <= len(data) else None
    if at % align or len(data) < at + 4:
        return None
    (word,) = struct.unpack_from("<I", data, at)
    end = at + (word >> 2)
    if not at + 4 <= end <= len(data):
        return None
    return (None if word & 2 else data[at + 4 : end]), end


def value_at(data: bytes, at: int, column: Column) -> tuple[Value, int] | None:
    """The value of a column, and where it ends."""
    align = ALIGN.get(column.align, 1)
    if column.length == -1:
        return variable(data, at, align)
    start = -(-at // align) * align
    if any(data[at:start]):
        return None  # padding is zeros
    end = start + column.length if column.length > 0 else data.find(b"\0", start) + 1
    return (data[start:end], end) if start < end <= len(data) else None


def cut(row: Tuple, columns: list[Column]) -> list[Value] | None:
    """The values of a tuple; None when its bytes are not those of these columns."""
    if row.natts > len(columns):
        return None
    at, found, has_variable = 0, list[Value](), False
    for number, column in enumerate(columns[: row.natts]):
        if row.is_null(number):
            found.append(None)
            continue
        value = value_at(row.data, at, column)
        if value is None:
            return None
        has_variable = has_variable or column.length < 0
        found.append(value[0])
        at = value[1]
    return found if at == len(row.data) and has_variable == row.has_variable else None


def is_value(column: Column, value: bytes, prints: Prints) -> bool:
    """Whether the bytes are a value of the column's type."""
    if column.own_at is not None:
        return len(value) >= column.own_at + 4 and struct.unpack_from("<I", value, column.own_at)[0] >= FIRST_OF_USERS
    if column.type_oid == 0:
        return True
    if column.type_oid == BOOL:
        return value in (b"\0", b"\1")
    if column.type_oid in TEXTS:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return False
        limit = column.typmod - 4 if column.type_oid in LIMITED and column.typmod >= 4 else None
        return "\0" not in text and (limit is None or len(text) <= limit)
    if column.element and (len(value) < 12 or struct.unpack_from("<I", value, 8)[0] != column.element):
        return False
    return prints(column.type_oid, value) is not None


def fit(row: Tuple, columns: list[Column], prints: Prints) -> bool:
    """Whether a tuple can be a row with these columns."""
    values = cut(row, columns)
    if values is None:
        return False
    return all(is_value(column, value, prints) for column, value in zip(columns, values) if isinstance(value, bytes))


def fits(sample: Iterable[Tuple], columns: list[Column], prints: Prints) -> bool:
    """Whether all of the tuples can be."""
    return all(fit(row, columns, prints) for row in sample)


def pointers(sample: Iterable[Tuple], columns: list[Column]) -> list[Pointer]:
    """Of values that are in a TOAST table."""
    return [value for row in sample for value in cut(row, columns) or () if isinstance(value, Pointer)]

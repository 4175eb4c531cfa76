"""Damages of rows of catalogs, at offsets of PostgreSQL 18. A test makes one at a time: others are read through them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from damages.heap import data, is_live
from damages.pages import Item, Made

UNKNOWN_OID = 999_999


@dataclass(frozen=True)
class Field:
    """Of a row. key: where the row has the oid of the relation that it is chosen by."""

    catalog: str
    name: str
    at: int
    form: str
    key: int = 0


ATTTYPID = Field("pg_attribute", "atttypid", 68, "<I")
ATTLEN = Field("pg_attribute", "attlen", 72, "<h")
ATTNUM = Field("pg_attribute", "attnum", 74, "<h")
INDRELID = Field("pg_index", "indrelid", 4, "<I")
RELAM = Field("pg_class", "relam", 84, "<I")
RELTOASTRELID = Field("pg_class", "reltoastrelid", 112, "<I")
OID = Field("pg_class", "oid", 0, "<I")

# field, the value that the row has, and the one that it gets; values are of the table `shop` and its oid.
CHANGES: list[tuple[str, Field, Callable[[int], int]]] = [
    ("type of a column", ATTTYPID, lambda old: UNKNOWN_OID),
    ("length of a column", ATTLEN, lambda old: old + 4),
    ("number of a column", ATTNUM, lambda old: old + 50),
    ("table of an index", INDRELID, lambda old: UNKNOWN_OID),
    ("access method", RELAM, lambda old: UNKNOWN_OID),
    ("toast table", RELTOASTRELID, lambda old: UNKNOWN_OID),
    ("oid of another relation", OID, lambda old: 1259),
]


def change(made: Made, field: Field, oid: int, new: Callable[[int], int]) -> bytes:
    """Gives the page as it was before; made.written has where it is."""

    def of(item: Item) -> bool:
        found = struct.unpack_from("<I", item.page.bytes, data(item) + field.key)[0] == oid and is_live(item)
        is_column = field.catalog != "pg_attribute" or struct.unpack_from("<h", item.page.bytes, data(item) + ATTNUM.at)[0] > 0
        return found and is_column

    item = next(item for page in made.pages(field.catalog) for item in page.normal() if of(item))
    before, at = bytes(item.page.bytes), data(item) + field.at
    (old,) = struct.unpack_from(field.form, item.page.bytes, at)
    struct.pack_into(field.form, item.page.bytes, at, new(old))
    made.seen = f"{field.catalog}.{field.name} {old} -> {new(old)}"
    made.write(item.page)
    return before

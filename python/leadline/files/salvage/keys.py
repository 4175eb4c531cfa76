"""The columns and expressions of a key: of an index, or of what a table is partitioned by."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.files.salvage.catalog import Catalog
from leadline.files.salvage.expressions import expressions

DESCENDING, NULLS_FIRST = 1, 2  # of indoption
DEFAULT_COLLATION = 100


def key_columns(
    catalog: Catalog,
    relid: int,
    attnums: Sequence[int],
    trees: str | None,
    classes: Sequence[int],
    collations: Sequence[int],
    method: str,
    order: Sequence[int] = (),
) -> list[str]:
    """The columns and expressions of a key, with operator classes and collations where they are not the default ones."""
    left = iter(expressions(trees, catalog, relid) if trees else [])
    of_column = {int(row["attnum"]): row for row in catalog.attributes.get(relid, ())}
    found = []
    for number, (attnum, opclass) in enumerate(zip(attnums, classes)):
        column = of_column.get(attnum)
        text = catalog.column(relid, attnum) if attnum else f"({next(left)})"
        collation = collations[number] if number < len(collations) else 0
        if collation and (column is None or str(collation) != column["attcollation"]) and collation != DEFAULT_COLLATION:
            text += f" collate {catalog.collation(collation)}"
        if (row := catalog.by_oid("pg_opclass").get(opclass)) is not None and not (row["opcdefault"] == "t" and column is not None):
            text += f" {catalog.qualified(row['opcnamespace'], row['opcname'])}" * (row["opcdefault"] != "t")
        bits = order[number] if number < len(order) else 0
        if method == "btree" and bits & DESCENDING:
            text += " desc" + (" nulls last" if not bits & NULLS_FIRST else "")
        elif method == "btree" and bits & NULLS_FIRST:
            text += " nulls first"
        found.append(text)
    return found

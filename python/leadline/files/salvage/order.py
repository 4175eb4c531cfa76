"""The order in which objects are made: each when what it needs is there."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from leadline.files.salvage.catalog import Key
from leadline.files.salvage.written import CATALOG_OF, Writer

NAMESPACE = {"pg_class": "relnamespace", "pg_type": "typnamespace", "pg_proc": "pronamespace"}
FIRST = ("pg_namespace", "pg_extension", "pg_type", "pg_proc", "pg_class")
"""What comes first where nothing depends on anything; then in the order in which it was made."""
Edges = dict[int, set[int]]


def put_in_order(writer: Writer) -> None:
    """Orders what is made before the rows and what after them. A view that needs a primary key, as it groups by it, is made after."""
    items = [*writer.before, *writer.after]
    needs = _needs(writer, {item.key: number for number, item in enumerate(items)})
    late = set(range(len(writer.before), len(items)))
    while more := {number for number, others in needs.items() if number not in late and others & late}:
        late |= more
    early = [number for number in range(len(items)) if number not in late]

    def rank(number: int) -> tuple[Any, ...]:
        catalog = items[number].key.catalog
        return (FIRST.index(catalog) if catalog in FIRST else len(FIRST), items[number].key.oid)

    writer.before = [items[number] for number in _sorted(early, needs, rank)]
    writer.after = [items[number] for number in _sorted(sorted(late), needs, lambda number: (number,))]


def _sorted(numbers: Sequence[int], needs: Edges, rank: Callable[[int], tuple[Any, ...]]) -> list[int]:
    """Each after what it needs of these, else by rank. A circle is broken where the fewest are missing."""
    left = set(numbers)
    waits = {number: needs[number] & left for number in numbers}
    frees: Edges = defaultdict(set)
    for number, others in waits.items():
        for other in others:
            frees[other].add(number)
    free = [(rank(number), number) for number in numbers if not waits[number]]
    heapq.heapify(free)
    order = []
    while left:
        number = heapq.heappop(free)[1] if free else min(left, key=lambda n: (len(waits[n]), rank(n)))
        if number in left:
            left.discard(number)
            order.append(number)
            for freed in frees[number]:
                waits[freed].discard(number)
                if not waits[freed]:
                    heapq.heappush(free, (rank(freed), freed))
    return order


def _needs(writer: Writer, of_key: dict[Key, int]) -> Edges:
    """What each needs, by pg_depend and by what it says itself; what is written as a part of an item is the item."""

    def item(key: Key) -> int | None:
        for _ in range(9):  # a part of a part
            if key in of_key or key not in writer.merged:
                break
            key = writer.merged[key]
        return of_key.get(key)

    catalog = writer.catalog

    def key_of(classid: str, objid: str) -> Key:
        return Key(CATALOG_OF.get(int(classid), ""), int(objid))

    rows = catalog.rows("pg_depend")
    pairs = [(key_of(row["classid"], row["objid"]), key_of(row["refclassid"], row["refobjid"])) for row in rows]
    for key, number in of_key.items():
        pairs += [(key, needed) for needed in [*writer.before, *writer.after][number].needs]
        if key.catalog in NAMESPACE:  # damaged catalogs may lack the row that says so
            pairs.append((key, Key("pg_namespace", int(catalog.by_oid(key.catalog)[key.oid][NAMESPACE[key.catalog]]))))
    needs: Edges = defaultdict(set)
    for of, needed in pairs:
        needing, other = item(of), item(needed)
        if needing is not None and other is not None and needing != other:
            needs[needing].add(other)
    return needs

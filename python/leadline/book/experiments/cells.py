"""The cells of a study: each combination of one level of each factor, in blocks; and what may not be said where one is empty."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product

from leadline.lab.blocks import block_orders
from leadline.lab.paired import block_order, trial_order

Cell = tuple[str, ...]  # one level of each factor
TIMES = ("seconds", "p50_ms", "p99_ms", "p99_9_ms", "mean_ms", "max_ms")  # figures of which less is called faster
Orders = list[list[int]]  # for each block the numbers of its cells in the order in which they are run


def all_cells(levels: Sequence[Sequence[str]]) -> list[Cell]:
    """Every combination; the first is the baseline: the first level of each factor."""
    return list(product(*levels))


def _of_two(draw: Callable[[int, random.Random], list[bool]]) -> Callable[[int, int, random.Random], Orders]:
    def orders(_cells: int, blocks: int, rng: random.Random) -> Orders:
        drawn = [int(on) for on in draw(blocks, rng)]
        return [drawn[at : at + 2] for at in range(0, len(drawn), 2)]

    return orders


SHUFFLED, COIN, UNSAID = "a shuffle of each block", "a coin for each pair", ""
# How orders are drawn, as designs say it. What was registered before a coin was tossed for each pair says nothing of it.
DRAWS: Mapping[str, Callable[[int, int, random.Random], Orders]] = {
    SHUFFLED: lambda cells, blocks, rng: block_orders(range(cells), blocks, rng), COIN: _of_two(trial_order), UNSAID: _of_two(block_order),
}  # fmt: skip


def orders_of(cells: int, blocks: int, seed: int, drawn: str = SHUFFLED) -> Orders:
    """drawn: one of DRAWS. Sealed designs count on the draws of this seed."""
    return DRAWS[drawn](cells, blocks, random.Random(seed))


def name_of(factors: Sequence[str], cell: Cell) -> str:
    """The factor of an experiment has no name: its levels say all."""
    return ", ".join(f"{factor}={level}" if factor else level for factor, level in zip(factors, cell))


def changed(cell: Cell, baseline: Cell) -> list[int]:
    """The factors that have another level than in the baseline."""
    return [at for at, (level, bare) in enumerate(zip(cell, baseline)) if level != bare]


def forbidden(factors: Sequence[str], baseline: Cell, cell: Cell) -> list[str]:
    """What may not be said without this cell."""
    at = changed(cell, baseline)
    if not at:
        return ["the effect of any factor alone: it is the cell that others are compared with"]
    named = [f"{factors[one]}={cell[one]}" for one in at]
    if len(at) == 1:
        more = [f"whether it acts together with {' or '.join(f for i, f in enumerate(factors) if i != at[0])}"] * (len(factors) > 1)
        return [f"the effect of {named[0]} alone", *more]
    return [f"whether {' and '.join(named)} act together (their interaction)"]


def interactions(factors: Sequence[str], levels: Sequence[Sequence[str]]) -> Iterator[tuple[str, tuple[Cell, Cell, Cell, Cell]]]:
    """Of each two factors and levels of theirs, with the baseline of all others: a name, and the cells with neither, the one, the other,
    both."""
    baseline = tuple(level[0] for level in levels)
    for one in range(len(factors)):
        for other in range(one + 1, len(factors)):
            for first, second in product(levels[one][1:], levels[other][1:]):
                sides = [(baseline[one], baseline[other]), (first, baseline[other]), (baseline[one], second), (first, second)]
                cells = []
                for a, b in sides:
                    cell = list(baseline)
                    cell[one], cell[other] = a, b
                    cells.append(tuple(cell))
                yield f"{factors[one]}={first} with {factors[other]}={second}", (cells[0], cells[1], cells[2], cells[3])


def companions(cells: Collection[Cell], factor: int, level: str, bare: str) -> list[tuple[Cell, Cell]]:
    """(cell with the bare level, cell with the level): pairs that differ in this factor alone, of the cells that there are."""
    there = set(cells)
    pairs = []
    for cell in cells:
        other = (*cell[:factor], bare, *cell[factor + 1 :])
        if cell[factor] == level and other in there:
            pairs.append((other, cell))
    return pairs

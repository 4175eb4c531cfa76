"""A comparison as lines for a terminal: what differs between the two stands above every number."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator

from leadline.compare import Comparison
from leadline.figures import one_line
from leadline.lab.comparable import UNKNOWN, VOLATILE, Difference, own_name
from leadline.output import WIDTH

MANY = 4  # facts of a kind that could not be read: one sentence for all


def lines(found: Comparison) -> Iterator[str]:
    for letter, side in (("A", found.one), ("B", found.other)):
        yield from _wrapped(f"{letter}  {side.name}: {side.about}", "   ")
    refusing = [each for each in found.environment if each.refuses]
    factors = [each for each in found.environment if each.is_factor]
    others = [each for each in found.environment if not each.refuses and not each.is_factor and each.kind != VOLATILE]
    of_the_moment = [each for each in found.environment if each.kind == VOLATILE and not each.is_factor]
    for title, some in (
        ("Must agree and does not", refusing), ("The factor", factors), ("Differs, and may", others), ("Of the moment", of_the_moment),
    ):  # fmt: skip
        if some:
            yield from ("", title)
            for sentence in said(some):
                yield from _wrapped(f"  {sentence}", "    ")
    if not found.environment:
        yield from ("", "The environment is the same")
    if found.measured:
        yield from ("", "Measured differently")
        for sentence in found.measured:
            yield from _wrapped(f"  {sentence}", "    ")
    yield ""
    for note in found.notes:
        yield from _wrapped(note, "  ")
    yield from _wrapped(found.text, "  ")
    for table in found.tables:
        yield from ("", table.title)
        yield from table.grid.lines() if table.grid.rows else [f"  {table.grid.empty}"]
        if table.grid.rest:
            yield table.grid.rest


def said(some: list[Difference]) -> Iterator[str]:
    """A sentence for each; one for all of a kind that one of the two does not have, or that many could not be read of."""
    lacking: dict[tuple[str, bool], list[Difference]] = {}
    moment = [each for each in some if each.kind == VOLATILE and not each.is_factor and None not in (each.one, each.other)]
    others = [each for each in some if each not in moment]
    unread = Counter((each.called, each.one == UNKNOWN) for each in others if _is_unread_of_one(each))
    for each in others:
        if None in (each.one, each.other):
            lacking.setdefault((each.called, each.one is None), []).append(each)
        elif _is_unread_of_one(each) and unread[each.called, each.one == UNKNOWN] >= MANY:
            lacking.setdefault((each.called, each.one == UNKNOWN), []).append(each)
        else:
            yield each.text
    for (called, first), of in lacking.items():
        names = ", ".join(own_name(each.name) for each in of)
        side = "A" if first else "B"
        yield of[0].text if len(of) == 1 else f"{called.upper() if of[0].refuses else called}: not known of {side}: {names}"
    if moment:
        yield "; ".join(each.text for each in moment)


def _is_unread_of_one(each: Difference) -> bool:
    return (each.one == UNKNOWN) != (each.other == UNKNOWN)


def _wrapped(text: str, indent: str) -> list[str]:
    text = text[: len(text) - len(text.lstrip())] + one_line(text.lstrip())
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)

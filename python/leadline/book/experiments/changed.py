"""Facts that must not change while trials are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leadline.lab.comparable import Difference, agree, row_of


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[list[str]]:
    """Name and both values of each fact that is no longer what it was."""
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    differ = [name for name in names if not agree(row_of(name), before.get(name), after.get(name))]
    return [[name, before.get(name, ""), after.get(name, "")] for name in differ]


def refusals(differs: Sequence[Sequence[str]]) -> list[str]:
    """What must not change while trials run, and did: there is no verdict then. A file that a command names may be its own output."""
    rows = [(row_of(name), name, one, other) for name, one, other in differs if not name.startswith("file ")]
    found = [Difference(name, row.kind, row.called, one or None, other or None) for row, name, one, other in rows]
    return [one.text for one in found if one.refuses]

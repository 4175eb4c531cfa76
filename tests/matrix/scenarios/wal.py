"""WAL, standbys, slots, archive, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.ground import Ground
from matrix.scenario import Expected, Truth, scenario


@scenario(settings={"fsync": False})
def fsync_is_off(g: Ground) -> Iterator[Truth]:
    """A server that does not sync what it has committed."""
    yield lambda: [Expected("DURABILITY-OFF", "setting fsync", severity="critical")]


@scenario(settings={"full_page_writes": False})
def full_page_writes_are_off(g: Ground) -> Iterator[Truth]:
    """A server whose pages a crash can tear."""
    yield lambda: [Expected("DURABILITY-OFF", "setting full_page_writes", severity="high")]

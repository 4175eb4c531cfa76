"""Pages, caches and files that sessions compete for."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.ground import Ground
from matrix.scenario import Expected, Truth, scenario


@scenario(busy=True)
def inserts_of_growing_keys(g: Ground) -> Iterator[Truth]:
    """Sixteen sessions insert ever greater keys."""
    g.sql("create table edge (at timestamptz)")
    g.sql("create index edge_at on edge (at)")
    g.storm("insert into edge select clock_timestamp() from generate_series(1, 50)", 16)
    yield lambda: [Expected("RIGHT-EDGE-INDEX", "index public.edge_at", None, ("table public.edge",))]


@scenario(busy=True)
def numbers_of_one_sequence(g: Ground) -> Iterator[Truth]:
    """Sixteen sessions take numbers from a sequence."""
    g.sql("create sequence hot_numbers")
    g.storm("select count(nextval('hot_numbers')) from generate_series(1, 200)", 16)
    yield lambda: [Expected("SEQUENCE-PAGE", "sequence public.hot_numbers")]

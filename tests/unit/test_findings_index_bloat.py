"""INDEX-BLOAT: pages of B-trees against their entries, by hand computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture, rows


def index(tmp_path: Path, **changed: float) -> SyntheticCapture:
    """A million entries of 16 + 4 bytes fill 2726 pages at a fillfactor of 90 (407 on each 7336.8 bytes), and the pages above them."""
    cap = SyntheticCapture(tmp_path)
    cap.background()
    cap.add("database", datid=16384, datname="shop")
    for relid, name, kind in ((100, "job", "r"), (101, "job_Pkey", "i")):
        cap.add("relation", datid=16384, relid=relid, nspname="public", relname=name, relkind=kind, table_relid=100)
    number = {"relpages": 50_000.0, "reltuples": 1e6, "columns": 1, "known": 1, "key_bytes": 8, "fillfactor": 90, "nulls": 0} | changed
    for metric, value in number.items():
        cap.stat("pg_index", metric, value, value, obj="shop/101")
    return cap


def test_an_index_that_is_nearly_empty(tmp_path: Path) -> None:
    (finding,) = rows(index(tmp_path), "INDEX-BLOAT")
    assert (finding.subject, finding.severity, finding.cost_s) == ('index public."job_Pkey"', "low", None)
    needed = 2726 * (1 + 2 * 20 / 7336.8) + 2
    assert finding.evidence[0]["pages_needed"] == pytest.approx(needed)
    assert finding.evidence[0]["lost_bytes_estimate"] == pytest.approx((50_000 - needed) * 8192, abs=1)
    assert "has 50000 pages (390.6 MB); its 1000000 entries of about 20 bytes would fill 2743" in finding.statement
    assert 'REINDEX INDEX CONCURRENTLY public."job_Pkey";' in finding.action


def test_the_index_of_an_empty_queue(tmp_path: Path) -> None:
    (finding,) = rows(index(tmp_path, reltuples=0, relpages=200_000), "INDEX-BLOAT")
    assert finding.severity == "medium" and "(100 %) are empty" in finding.statement


@pytest.mark.parametrize(
    "change",
    [
        {"relpages": 6000},
        {"reltuples": 10e6},
        {"reltuples": -1},
        {"known": 0},
        {"key_bytes": 3000},
        {"fillfactor": 10},
        {"relpages": 85_000, "reltuples": 100e6},  # equal keys stand once (deduplication): a third of the pages, and no bloat below zero
    ],
    ids=lambda c: " ".join(c),
)
def test_indexes_that_are_small_full_or_not_known(tmp_path: Path, change: dict[str, float]) -> None:
    assert rows(index(tmp_path, **change), "INDEX-BLOAT") == []

"""ORPHANED-LARGE-OBJECTS: objects that no column names, and what removes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture, rows
from leadline.findings import evaluate

VIEW = "pg_largeobject_metadata"


def large_objects(tmp_path: Path, orphans: int, of: int = 1000, megabytes: int = 64, text: bool = False) -> SyntheticCapture:
    cap = SyntheticCapture(tmp_path)
    cap.background()
    size = megabytes * 1048576.0
    values = {"objects": of, "orphans": orphans, "bytes": size, "orphan_bytes": size * orphans / of if of else 0}
    for metric, value in values.items():
        cap.stat(VIEW, metric, None, value, obj="shop")
    if of:
        cap.stat(VIEW, "named_as_oid", None, 1, obj='shop/"public"."document"/"body"')
    if text:
        cap.stat(VIEW, "named_as_text", None, 1, obj='shop/"public"."search"/"query"')
    for oid in range(16400, 16400 + min(orphans, 5)):
        cap.stat(VIEW, "orphan", None, oid, obj=f"shop/{oid}")
    return cap


def test_orphans_are_counted_and_the_advice_removes_them(tmp_path: Path) -> None:
    (finding,) = rows(large_objects(tmp_path, 250), "ORPHANED-LARGE-OBJECTS")
    assert (finding.subject, finding.severity, finding.cost_s) == ("large objects of database shop", "low", None)
    assert "no column names 250 of the 1000 large objects of database shop; they take about 16.0 MB. " in finding.statement
    assert finding.evidence[0]["first_orphans"] == [16400, 16401, 16402, 16403, 16404]
    condition = 'NOT EXISTS (SELECT FROM "public"."document" t WHERE t."body" = m.oid)'
    assert f"SELECT count(lo_unlink(m.oid)) FROM pg_largeobject_metadata m WHERE {condition};" in finding.action
    assert "vacuumlo -n shop" in finding.action and "Do not run vacuumlo" not in finding.action


def test_where_a_text_names_objects_vacuumlo_is_not_advised(tmp_path: Path) -> None:
    """vacuumlo looks at columns of type oid and lo alone, and deletes what Hibernate, jBPM and others still read."""
    (finding,) = rows(large_objects(tmp_path, 3, text=True), "ORPHANED-LARGE-OBJECTS")
    assert finding.severity == "info" and "vacuumlo -n" not in finding.action
    assert 'would remove what is named by "public"."search"."query".' in finding.action
    assert 'WHERE t."query"::text = m.oid::text)' in finding.action


def test_much_room_is_worth_more(tmp_path: Path) -> None:
    (finding,) = rows(large_objects(tmp_path, 900, megabytes=2000), "ORPHANED-LARGE-OBJECTS")
    assert finding.severity == "medium"


@pytest.mark.parametrize("objects", [0, 1000])
def test_objects_that_all_have_a_name_are_no_finding(tmp_path: Path, objects: int) -> None:
    assert rows(large_objects(tmp_path, 0, of=objects), "ORPHANED-LARGE-OBJECTS") == []


def test_what_was_not_counted_is_not_called_clean(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    cap.background()
    cap.stat("pg_stat_database", "xact_commit", 1, 2, obj="shop")
    with cap.open() as capture:
        [(rule, why)] = evaluate(capture, only=["ORPHANED-LARGE-OBJECTS"]).not_evaluated
    assert rule == "ORPHANED-LARGE-OBJECTS" and why.startswith("large objects were not compared with the columns that name them")

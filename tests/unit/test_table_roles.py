"""The keys of table files that writers, findings and `leadline top` obey, and what a live capture does with a table it does not know."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from findings_synthetic import SyntheticCapture
from leadline.tables import MATERIALISE, ROLES, all_tables, duckdb_type
from leadline.top.live import LiveCapture, shown_names, timed


def test_every_table_says_what_its_rows_are() -> None:
    for table in all_tables().values():
        columns = {c.name for c in table.columns}
        if table.kind == "table":
            assert table.role in ROLES, f"{table.name}: role is {table.role!r}"
            assert table.clock in columns | {""}, f"{table.name}: its clock {table.clock} is no column"
            if table.role == "sampled":
                assert table.clock != "", f"{table.name}: sampled rows have a clock"
        else:
            assert table.role == table.clock == "" and table.materialise in ("", *MATERIALISE), table.name


def test_the_tables_of_a_live_capture_follow_from_the_keys() -> None:
    assert timed()[0] == "tick" and {"lock_wait", "session_delta", "host_stat"} <= set(timed())
    assert "session_run" not in timed() and "wal_record_raw" not in timed()
    assert {"relation", "database", "role"} <= set(shown_names()) and "hba_rule" not in shown_names()


def test_types_of_duckdb() -> None:
    kinds = [duckdb_type(name) for name in ("uint64", "binary", "list<string>")]
    assert kinds == ["UBIGINT", "BLOB", "VARCHAR[]"]


def test_a_table_that_is_not_known_keeps_its_segments(tmp_path: Path) -> None:
    made = SyntheticCapture(tmp_path, seconds=2)
    made.background()
    path = made.write()
    with made.open(hold=False) as capture:
        manifest = capture.manifest
    foreign = path / "packet" / "000001.parquet"
    foreign.parent.mkdir()
    duckdb.sql("select 1 as ts").write_parquet(str(foreign))
    live = LiveCapture(path, manifest)
    live.ingest(path)
    assert live.rows("select count(*) as n from kept.tick")[0]["n"] > 0
    assert foreign.exists()
    assert not list((path / "tick").glob("*.parquet")), "known segments were taken in"
    assert live.rows("select count(*) as n from kept.tick")[0]["n"] > 0


QUADRATIC = ("PIECEWISE_MERGE_JOIN", "NESTED_LOOP_JOIN", "BLOCKWISE_NL_JOIN")


@pytest.mark.parametrize("view", ["session_sample", "db_time"])
def test_a_sum_over_samples_does_not_compare_each_run_with_each_pass(view: str, tmp_path: Path) -> None:
    """DuckDB chooses such a join by the shape of the query around it; a capture of ten minutes then takes hours."""
    made = SyntheticCapture(tmp_path, seconds=20)
    made.ordinary_load()
    with made.open(hold=False) as capture:
        [row] = capture.rows(f"explain (format json) select wait_class, sum(weight_s) from {view} group by all")
        plan = row["explain_value"]
        assert "HASH_JOIN" in plan
        assert [name for name in QUADRATIC if name in plan] == []

"""What must hold of every finding and view, whatever a capture holds.

Values that are not there: a record that was lost, or an older format, leaves out who a thread was, what a statement said, how a relation is
called. Each table that others refer to loses all of its rows in turn, and each column that may be null is null in all rows. (No probe can
write a null into another column: `TableWriter` refuses it.) No rule and no section may fail, and no sentence may be without its words.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from example_capture import example
from findings_synthetic import SyntheticCapture
from host_synthetic import HostCapture
from leadline.capture.reader import open_capture
from leadline.findings import evaluate
from leadline.output import to_json
from leadline.tables import all_tables
from leadline.views.as_json import as_dict
from leadline.views.report import render
from leadline.views.report.model import build
from leadline.views.show import print_capture
from rich.console import Console
from trace_synthetic import trace_of_semget


def of_sessions(folder: Path) -> Path:
    return example(folder).write()


def of_a_host(folder: Path) -> Path:
    cap: SyntheticCapture = HostCapture(folder)
    assert isinstance(cap, HostCapture)
    cap.quiet()
    return cap.write()


CAPTURES: dict[str, Callable[[Path], Path]] = {"sessions": of_sessions, "host": of_a_host, "trace": trace_of_semget}


def parts(capture: Path) -> Iterator[dict[str, set[str]]]:
    """What is missing at once, by table: all rows of one that others refer to; or, of each table, one of the columns that may be null."""
    there = {name: table for name, table in all_tables().items() if table.kind == "table" and (capture / name).is_dir()}
    yield from ({name: set()} for name, table in there.items() if table.role in ("described", "named"))
    optional = {name: [column.name for column in table.columns if column.nullable] for name, table in there.items()}
    for place in range(max(map(len, optional.values()))):
        yield {name: {columns[place]} for name, columns in optional.items() if place < len(columns)}


def without(capture: Path, table: str, columns: set[str]) -> None:
    """The table with these columns null; without rows when there are none."""
    for file in (capture / table).glob("*.parquet"):
        told = f"select * from read_parquet('{file}')"
        kinds = {name: kind for name, kind, *_ in duckdb.sql(f"describe {told}").fetchall()}
        nulls = ", ".join(f'null::{kinds[name]} as "{name}"' for name in columns)
        rows = duckdb.sql(f"select * replace ({nulls}) from ({told})" if columns else f"{told} where false").to_arrow_table()
        assert rows is not None
        duckdb.sql(f"copy rows to '{file}' (format parquet)")


def assert_holds(path: Path, what: object) -> None:
    with_all = open_capture(path, hold=True)
    try:
        evaluation = evaluate(with_all)
        for rule, reason in evaluation.not_evaluated:
            assert "the query failed" not in reason, (rule, reason, what)
        for found in evaluation.findings:
            assert found.subject and found.statement and found.severity and found.confidence, (found, what)
            assert not {"None", "nan", "inf", "null"} & set(found.statement.replace(",", " ").split()), (found.statement, what)
            assert (found.cost_s or 0) >= 0, (found, what)
            assert 0 <= (found.share_of_db_time or 0) <= 1, (found, what)
        print_capture(with_all, evaluation, Console(file=StringIO(), width=80, highlight=False))
        to_json(as_dict(with_all, evaluation))
        render(build(with_all, evaluation))
    finally:
        with_all.close()


@pytest.mark.parametrize("kind", CAPTURES)
def test_nothing_that_is_missing_breaks_a_rule_or_a_view(kind: str, tmp_path: Path) -> None:
    path = CAPTURES[kind](tmp_path)
    missing = list(parts(path))
    assert len(missing) > 3
    for tables in missing:
        made = tmp_path / "one.leadline"
        shutil.copytree(path, made)
        for table, columns in tables.items():
            without(made, table, columns)
        assert_holds(made, tables)
        shutil.rmtree(made)

"""What must hold of every finding and view, whatever a capture holds.

Values that are not there: a record that was lost, or an older format, leaves out who a thread was, what a statement said, how a relation is
called. Each table that others refer to loses all of its rows in turn, and each column that may be null is null in all rows. (No probe can
write a null into another column: `TableWriter` refuses it.) No rule and no section may fail, and no sentence may be without its words.

Costs: no finding costs more than the window times what can wait at once, whatever its thresholds are.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path

import duckdb
import pytest
from example_capture import example
from findings_synthetic import SyntheticCapture
from host_synthetic import HostCapture
from leadline.capture.reader import open_capture
from leadline.findings import evaluate
from leadline.findings.rules import all_findings
from leadline.net.packets import read_into
from leadline.output import to_json
from leadline.tables import all_tables
from leadline.views.as_json import as_dict
from leadline.views.report import render
from leadline.views.report.model import build
from leadline.views.show import print_capture
from packets_made import MS, Packets, answer
from rich.console import Console
from trace_synthetic import trace_of_semget


def of_sessions(folder: Path) -> Path:
    return example(folder).write()


def of_a_host(folder: Path) -> Path:
    cap: SyntheticCapture = HostCapture(folder)
    assert isinstance(cap, HostCapture)
    cap.quiet()
    return cap.write()


def of_packets(folder: Path) -> Path:
    made = Packets(folder / "made.pcap")
    for client in (11, 12):
        line = made.line(client=client)
        line.step_ns = MS
        line.login()
        for number in range(60):
            line.ask(rows=10, after_ms=1, server_ms=2)
            if number % 2:
                line.wait(200).again(answer(10))
        line.close()
    directory, _ = read_into(made.write(), [5432], out=folder / "packets.leadline")
    return directory


CAPTURES: dict[str, Callable[[Path], Path]] = {
    "sessions": of_sessions, "host": of_a_host, "trace": trace_of_semget, "packets": of_packets,
}  # fmt: skip
# What can wait at once. A host has processes, and CPUs that interrupts take.
AT_ONCE = {
    "sessions": "select max(n) from (select count(*) as n from session_tick group by ts)",
    "host": "select (select count(*) from process) + any_value(cpu_count) from capture",
    "trace": "select count(*) from thread",
    "packets": "select count(*) from wire_connection",
}
# So low that each rule has something to say of almost anything.
LOW = {threshold.name: 1e-9 for rule in all_findings() for threshold in rule.thresholds}


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


def room_s(path: Path, kind: str) -> float:
    """The window times what can wait at once."""
    with closing(open_capture(path)) as capture:
        room: float = capture.scalar("select window_s from capture") * capture.scalar(AT_ONCE[kind])
    return room


def assert_holds(path: Path, what: dict[str, set[str]], room_s: float) -> None:
    with_all = open_capture(path, hold=True)
    try:
        evaluation = evaluate(with_all)
        more = [] if what else evaluate(with_all, thresholds=LOW).findings
        for found in (*evaluation.findings, *more):
            assert 0 <= (found.cost_s or 0) <= room_s + 1e-6, (found, what)
        for rule, reason in evaluation.not_evaluated:
            assert "the query failed" not in reason, (rule, reason, what)
        for found in evaluation.findings:
            assert found.subject and found.statement and found.severity and found.confidence, (found, what)
            assert not {"None", "nan", "inf", "null"} & set(found.statement.replace(",", " ").split()), (found.statement, what)
            assert 0 <= (found.share_of_db_time or 0) <= 1, (found, what)
        print_capture(with_all, evaluation, Console(file=StringIO(), width=80, highlight=False))
        to_json(as_dict(with_all, evaluation))
        render(build(with_all, evaluation))
    finally:
        with_all.close()


@pytest.mark.parametrize("kind", CAPTURES)
def test_nothing_that_is_missing_breaks_a_rule_or_a_view(kind: str, tmp_path: Path) -> None:
    path = CAPTURES[kind](tmp_path)
    missing, room = list(parts(path)), room_s(path, kind)
    assert len(missing) > 3 and room > 0
    assert_holds(path, {}, room)
    for tables in missing:
        made = tmp_path / "one.leadline"
        shutil.copytree(path, made)
        for table, columns in tables.items():
            without(made, table, columns)
        assert_holds(made, tables, room)
        shutil.rmtree(made)

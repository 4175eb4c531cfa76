"""The Python interface: what `import leadline` gives, and the guide, whose code is run."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import leadline
import pytest
from conftest import Server
from example_capture import example
from leadline import api
from leadline.cli import run
from leadline.tables import all_tables
from psycopg.conninfo import conninfo_to_dict

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "python.md"
SUMS = "select wait_class, round(sum(weight_s), 6) as seconds, count(*) as n from db_time group by all order by 1"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example(tmp_path_factory.mktemp("python")).write()


@pytest.fixture
def capture(path: Path) -> Iterator[leadline.Capture]:
    with leadline.open(path) as opened:
        yield opened


def test_the_package_gives_its_names_and_no_others() -> None:
    assert set(leadline.__all__) <= set(dir(leadline))
    assert all(getattr(leadline, name) is not None for name in leadline.__all__)
    assert leadline.take is api.take and leadline.open is api.open_capture
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        leadline.nonsense  # noqa: B018


def test_the_import_takes_nothing_with_it() -> None:
    code = "import sys, leadline; print(sorted({'duckdb', 'psycopg', 'click', 'leadline.api', 'leadline.errors'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_tables_are_those_with_evidence(capture: leadline.Capture) -> None:
    assert {"tick", "session_sample", "db_time", "lock_wait"} <= set(capture.tables) < set(all_tables())
    assert "page" not in capture.tables and "wal_record" not in capture.tables
    assert capture.tables["tick"].columns[0].meaning


def test_rows_are_the_same_in_every_form(capture: leadline.Capture) -> None:
    query = capture.sql(SUMS)
    rows = query.rows()
    assert len(rows) > 2 and list(rows[0]) == ["wait_class", "seconds", "n"] and sum(row["seconds"] for row in rows) > 60
    assert query.arrow().to_pylist() == rows
    assert query.polars().to_dicts() == rows
    assert query.pandas().to_dict("records") == rows


def test_parameters_are_values(capture: leadline.Capture) -> None:
    assert capture.sql("select ? as text, ? as number", ["'; drop", 7]).rows() == [{"text": "'; drop", "number": 7}]
    assert capture.sql("select $a as a", {"a": 1}).rows() == [{"a": 1}]
    assert capture.sql("select 1 as a where false").rows() == []


@pytest.mark.parametrize(("form", "missing"), [("arrow", "pyarrow"), ("pandas", "pandas"), ("polars", "polars and pyarrow")])
def test_a_package_that_is_missing_is_one_error(
    capture: leadline.Capture, form: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(leadline.LeadlineError) as caught:
        getattr(capture.sql(SUMS), form)()
    assert caught.value.message.startswith(f"{missing} ") and "not installed" in caught.value.message
    assert caught.value.hint == f"pip install {missing.replace(' and', '')}"
    assert len(capture.sql(SUMS).rows()) > 2


@pytest.mark.parametrize("form", ["rows", "arrow", "pandas", "polars"])
def test_a_query_that_does_not_run_is_one_error(capture: leadline.Capture, form: str) -> None:
    with pytest.raises(leadline.LeadlineError) as caught:
        getattr(capture.sql("select nothing from tick"), form)()
    assert caught.value.kind == "query" and "nothing" in caught.value.detail


def test_findings_are_those_of_the_command(
    capture: leadline.Capture, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    findings = capture.findings()
    assert run(["findings", str(path), "--all", "--json"]) == 1
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(f.id, f.statement) for f in findings] == [(f["id"], f["statement"]) for f in printed["findings"]]
    assert findings.clean == printed["clean"]
    assert [name for name, _ in findings.not_evaluated] == [rule["id"] for rule in printed["not_evaluated"]]
    [chain] = capture.findings(only=["BLOCK-CHAIN"])
    assert capture.findings(only=["BLOCK-CHAIN"], thresholds={"min_block_s": (chain.cost_s or 0) + 1}) == []
    written = capture.report(tmp_path / "r.html")
    assert chain.subject in written.read_text()
    with pytest.raises(leadline.LeadlineError, match="already exists"):
        capture.report(written)
    assert capture.report(written, overwrite=True) == written


def test_what_is_no_capture_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(leadline.LeadlineError, match="this is not a capture"):
        leadline.open(tmp_path)


@pytest.mark.live
def test_the_guide_runs(servers: Callable[[int], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    for parameter, variable in (("host", "PGHOST"), ("port", "PGPORT"), ("user", "PGUSER"), ("dbname", "PGDATABASE")):
        value = conninfo_to_dict(servers(16).dsn).get(parameter)
        if value is not None:
            monkeypatch.setenv(variable, str(value))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{GUIDE.name}, block {number}", "exec"), names)
    assert len(blocks) == 6 and (tmp_path / "friday.leadline" / "manifest.json").is_file()
    assert (tmp_path / "friday.html").stat().st_size > 10_000
    assert list(names["frame"].columns) == ["wait_class", "seconds"]

"""The command line: what every command promises, and the commands that need no server."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import click
import pytest
from example_capture import example
from findings_synthetic import SyntheticCapture
from leadline import cli
from leadline.cli import COMMANDS, group, run
from leadline.cli.sql import query_error
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.output import to_csv, to_json, to_table
from leadline.tables import all_tables


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(example(tmp_path_factory.mktemp("cli")).write())


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A capture in which nothing is wrong."""
    cap = SyntheticCapture(tmp_path_factory.mktemp("quiet"))
    cap.background()
    return str(cap.write())


def commands() -> list[click.Command]:
    context = click.Context(group, info_name="leadline")
    found = [group.get_command(context, name) for name in group.list_commands(context)]
    return [c for c in found if c is not None]


def lines_of_commands() -> dict[str, click.Command]:
    """Every command by what is typed, those below a command too: "show", "page", "page show"."""
    lines = {c.name or "": c for c in commands()}
    for name, command in list(lines.items()):
        lines |= {f"{name} {verb}": below for verb, below in getattr(command, "commands", {}).items()}
    return lines


# -- what every command promises ---------------------------------------------------------------------------------------


def test_every_command_has_json_examples_and_the_line_that_the_list_shows() -> None:
    assert {"show", "findings", "report", "sql", "tables"} <= {c.name for c in commands()}
    for command in commands():
        assert command.name in COMMANDS
        assert command.get_short_help_str(100) == COMMANDS[command.name]
    for line, command in lines_of_commands().items():
        assert "Examples:" in (command.epilog or ""), line
        if not isinstance(command, click.Group):
            assert any("--json" in p.opts for p in command.params), line


def test_the_list_of_commands_is_in_groups_with_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out.split("Watch a live server:")[1].split("Examples:")[0]
    lines = [" ".join(line.split()) for line in shown.splitlines() if line.strip() and line.startswith("  ")]
    assert lines == [f"{name} {line}" for name, line in COMMANDS.items()]
    assert max(map(len, shown.splitlines())) <= 80


def test_completion_knows_every_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"_LEADLINE_COMPLETE": "bash_complete", "COMP_WORDS": "leadline ", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    run([])
    assert capsys.readouterr().out.split() == [f"plain,{name}" for name in COMMANDS]


def test_a_command_whose_module_is_missing_is_not_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(COMMANDS, "absent", "Not there.")
    assert run(["--help"]) == 0
    assert "absent" not in capsys.readouterr().out
    assert run(["absent"]) == 2


HEAVY = {"duckdb", "rich", "textual", "jinja2", "vl_convert", "psycopg", "importlib.metadata"}
# Each is some hundredths of the start of a command. What click itself imports, which differs by its version, does not count.
SLOW = {"csv", "dataclasses", "decimal", "ipaddress", "json", "pathlib", "urllib.parse", "leadline.engines.postgres.postmaster"}
IMPORTED = """
import sys, click
clicks = set(sys.modules)
from leadline.cli import run
code = run(sys.argv[2:])
print(code, sorted(set(sys.argv[1].split()) & set(sys.modules) - clicks))
"""


@pytest.mark.parametrize(
    ("line", "code", "forbidden"),
    [
        ("--help", 0, HEAVY | SLOW | {"leadline._core"}),
        ("--version", 0, HEAVY | SLOW),
        ("alter pending /nonexistent", 2, HEAVY | SLOW),
        ("recover /nonexistent", 2, HEAVY),
    ],
)
def test_a_short_command_imports_nothing_that_it_does_not_need(line: str, code: int, forbidden: set[str]) -> None:
    script = [sys.executable, "-c", IMPORTED, " ".join(forbidden), *line.split()]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1:] == [f"{code} []"], done.stderr


WITHOUT_INSPECT = """
import sys
from leadline.cli import run
from leadline.cli.light import Later
code = run(["wal", "show", "/nonexistent"])
print(code, "inspect" in sys.modules)
light = Later("inspect")
import inspect
print(inspect.signature(run), sys.modules["inspect"] is inspect, inspect is not light, light.getdoc is inspect.getdoc)
print([light.cleandoc(text) == inspect.cleandoc(text) for text in ("", " a\\tb ", "a\\n   b\\n     c\\n", "\\n\\n  a\\n  b")])
"""


def test_a_command_starts_without_inspect_and_who_needs_it_gets_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_INSPECT], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["2 False", "(arguments: 'Sequence[str]') -> 'int' True True True", str([True] * 4)], done.stderr


def test_help_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for line in ["", *lines_of_commands()]:
        assert run([*line.split(), "--help"]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80, line


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"leadline {importlib.metadata.version('leadline')}\n"


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_is_text_on_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["show", str(tmp_path / "none.leadline")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: no such capture\n  at: ")
    assert "\n  hint: " in err


def test_an_error_is_an_object_on_stdout_with_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["show", str(tmp_path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["kind"] == "not_found"
    assert set(json.loads(out)["error"]) == {"kind", "message", "detail", "hint", "where"}
    assert err == ""


@pytest.mark.parametrize("line", [["sql"], ["nonsense"], ["tables", "--nonsense"], ["findings"], ["show", "a", "b"]])
def test_a_wrong_call_is_a_usage_error(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*line, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (LeadlineError("gone", "the server went away"), 2, "error: the server went away\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (click.Abort(), 130, "interrupted\n"),
    ],
)
def test_how_a_command_can_end(
    raised: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: click.Command("tables", callback=fail))
    assert run(["tables"]) == code
    assert capsys.readouterr().err == said


def test_a_reader_that_stops_early_is_no_error(capture: str) -> None:
    """leadline sql ... | head -1, with the pipe closed while rows are still to come."""
    line = [sys.executable, "-m", "leadline", "sql", capture, "from session_tick", "--csv"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"ts,session_id,state")
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")


def test_completion_script_is_clicks_own() -> None:
    environment = os.environ | {"_LEADLINE_COMPLETE": "bash_source"}
    line = [sys.executable, "-m", "leadline"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "_leadline_completion" in done.stdout


# -- tables ------------------------------------------------------------------------------------------------------------


def test_tables_lists_and_describes_every_table_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables"]) == 0
    listed = capsys.readouterr().out
    for name, table in all_tables().items():
        assert f"  {name} " in listed
        assert run(["tables", name]) == 0
        described = capsys.readouterr().out
        assert max(map(len, described.splitlines())) <= 80
        for column in table.columns:
            if column.name != "...":  # all columns of another table
                assert column.name in described
            assert column.meaning.split()[0] in described
    assert max(map(len, listed.splitlines())) <= 80


def test_tables_json_and_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "tick", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["name"] == "tick"
    assert {"name": "ts", "type": "int64", "unit": "ns"}.items() <= described["columns"][1].items()
    assert run(["tables", "tik"]) == 2
    assert "did you mean tick" in capsys.readouterr().err


def test_tables_as_csv_has_a_row_for_each_table_or_column(capsys: pytest.CaptureFixture[str]) -> None:
    for words, names in (([], list(all_tables())), (["tick"], [c.name for c in all_tables()["tick"].all_columns])):
        assert run(["tables", *words, "--json", "--csv"]) == 0  # the last one counts
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
        assert [row["name"] for row in rows] == names
    assert run(["tables", "tick", "--csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "tick"



# -- sql ---------------------------------------------------------------------------------------------------------------

SAMPLES = "from session_sample where in_db_time and wait_class in ('Lock', 'IPC')"
QUERY = f"select wait_class, sum(weight_s) as seconds {SAMPLES} group by 1 order by 1"


def test_sql_forms(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", capture, QUERY]) == 0
    assert capsys.readouterr().out.split() == ["wait_class", "seconds", "----------", "-------", "IPC", "4", "Lock", "78"]
    assert run(["sql", capture, QUERY, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["wait_class"], round(r["seconds"], 6)) for r in rows] == [("IPC", 4.0), ("Lock", 78.0)]
    assert run(["sql", capture, QUERY, "--csv"]) == 0
    assert [row["wait_class"] for row in csv.DictReader(capsys.readouterr().out.splitlines())] == ["IPC", "Lock"]
    assert run(["sql", capture, "select 1 where false", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ("Binder Error: no column x\n\nLINE 1: select x", "Binder Error: no column x"),
        ("Invalid Input Error: closed pending query result\nError: Invalid Input Error: too late", "Invalid Input Error: too late"),
        ("INTERRUPT Error: Interrupted!", "DuckDB does not say why"),
    ],
)
def test_sql_says_why_a_query_failed_also_after_its_first_rows(said: str, detail: str) -> None:
    assert query_error(duckdb.Error(said)).detail == detail


def test_sql_reads_standard_input(capture: str) -> None:
    line = [sys.executable, "-m", "leadline", "sql", capture, "-", "--json"]
    done = subprocess.run(line, input="select 42 as answer", capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(done.stdout) == [{"answer": 42}]


@pytest.mark.parametrize(
    "query",
    [
        "copy (select 1) to '{here}/out.csv'",
        "copy tick to '{capture}/out.parquet'",
        "attach '{here}/other.db'",
        "create table t as select 1",
        "drop view tick",
        "set enable_external_access = true",
        "install httpfs",
        "pragma threads = 1",
        "select 1; select 2",
        "",
        "select * from read_csv('{here}/secret.csv')",
        "select * from read_text('{here}/secret.csv')",
        "select * from '{here}/secret.csv'",
        "from glob('{here}/*')",
        "select nonsense from tick",
        "selec 1",
    ],
)
def test_sql_only_reads_the_capture(query: str, capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("secret\n1\n")
    before = sorted(tmp_path.iterdir()), sorted(Path(capture).iterdir())
    assert run(["sql", capture, query.format(here=tmp_path, capture=capture), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "query"
    assert error["hint"]
    assert "\n" not in error["detail"]
    assert (sorted(tmp_path.iterdir()), sorted(Path(capture).iterdir())) == before


def test_sql_works_from_a_relative_path(capture: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(Path(capture).parent)
    for path in (Path(capture).name, f"./{Path(capture).name}/"):
        assert run(["sql", path, "select count(*) as n from tick", "--csv"]) == 0
        assert capsys.readouterr().out == "n\n6000\n"


# -- findings ----------------------------------------------------------------------------------------------------------


def test_findings_exit_code_and_json(capture: str, quiet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["findings", capture, "--json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    keys = {"id", "severity", "confidence", "subject", "statement", "cost_s", "share_of_db_time", "samples", "evidence"}
    assert all(keys | {"title", "action", "verify", "ts_from", "ts_to"} <= set(f) for f in found)
    assert "BLOCK-CHAIN" in {f["id"] for f in found}
    costs = [f["cost_s"] for f in found if f["cost_s"] is not None]
    assert costs == sorted(costs, reverse=True)
    assert all(line.startswith("not evaluated: ") for line in err.splitlines())
    assert run(["findings", quiet, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_findings_all_names_every_rule_once(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    from leadline.findings import all_findings

    assert run(["findings", capture, "--json", "--all"]) == 1
    answer = json.loads(capsys.readouterr().out)
    found = {f["id"] for f in answer["findings"]}
    rest = [n["id"] for n in answer["not_evaluated"] + answer["not_applicable"]] + answer["clean"]
    assert all(n["reason"] for n in answer["not_evaluated"])
    assert sorted([*found, *rest]) == sorted(d.id for d in all_findings())


def test_findings_text_fits_80_columns(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["findings", capture]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "BLOCK-CHAIN" in out
    assert "What to do" in out
    assert "\x1b" not in out


def test_findings_only_and_set(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["findings", capture, "--only", "block-chain", "--json"]) == 1
    assert [f["id"] for f in json.loads(capsys.readouterr().out)] == ["BLOCK-CHAIN"]
    assert run(["findings", capture, "--only", "BLOCK-CHAIN", "--set", "min_block_s=1000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    for wrong in (["--set", "min_block_s"], ["--set", "none=1"]):
        assert run(["findings", capture, *wrong, "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"
    assert run(["findings", capture, "--only", "NONE"]) == 2


def test_a_rule_can_be_read_without_a_capture(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["findings", "--explain", "BLOCK-CHAIN"]) == 0
    explained = capsys.readouterr().out
    assert all(f"## {heading}" in explained for heading in ("What it shows", "Wrong when", "What to do", "How to verify"))
    assert run(["findings", "--sql", "BLOCK-CHAIN"]) == 0
    assert "lock_chain" in capsys.readouterr().out
    assert run(["findings", "--explain", "NONE", "--json"]) == 2


# -- how rows are printed ----------------------------------------------------------------------------------------------


def test_table_aligns_numbers_and_cuts_only_text() -> None:
    text = to_table(["name", "n", "s"], [["x" * 200, 12345678901, 1.5], ["short", 7, 0.25]], 80)
    lines = text.splitlines()
    assert max(map(len, lines)) == 80
    assert "…" in lines[2] and lines[2].endswith("12345678901  1.50")
    assert lines[3].endswith("          7  0.25")


def test_a_wide_row_is_printed_one_value_per_line() -> None:
    names = [f"column_{i}" for i in range(12)]
    text = to_table(names, [list(range(10**9, 10**9 + 12))], 80)
    assert text.splitlines()[0].startswith("-- row 1 ")
    assert text.splitlines()[1] == "column_0   1000000000"
    assert max(map(len, text.splitlines())) <= 80


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in to_table(["q"], [["\x1b[31mred\x07"]])


def test_json_and_csv_values() -> None:
    import datetime
    from decimal import Decimal

    values = [float("nan"), Decimal("1.50"), Decimal("3"), datetime.date(2025, 1, 2), b"\x01\xff", [1, {"a": None}], True]
    assert json.loads(to_json(values)) == [None, 1.5, 3, "2025-01-02", "01ff", [1, {"a": None}], True]
    assert list(to_csv(["a", "b"], [[None, 'x"y']])) == ["a,b\n", ',"x""y"\n']


FORMULAS = ["=1+2", "=cmd|' /C calc'!A0", "+1+2", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "-- comment", "\uff1d1", "\uff0d5", "-", "="]


@pytest.mark.parametrize("text", FORMULAS)
def test_text_in_csv_is_no_formula_of_a_spreadsheet(text: str) -> None:
    [names, row] = csv.reader(io.StringIO("".join(to_csv([text, "n"], [[text, 1]])), newline=""))
    assert (names, row) == ([f"'{text}", "n"], [f"'{text}", "1"])


def test_numbers_and_harmless_text_in_csv_stay_as_they_are() -> None:
    values = [-1, -1.5, Decimal("-2.50"), "-1", "+1.5e-3", "-inf", "a=b", "1-2", " =", "'=", "select -1", "", None]
    [_, row] = csv.reader(io.StringIO("".join(to_csv(["v"] * len(values), [values]))))
    assert row == ["" if value is None else str(value) for value in values]


def test_csv_of_a_capture_is_marked_and_json_is_not(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = """select '=HYPERLINK("http://x")' as link, -5 as n"""
    assert run(["sql", capture, query, "--csv"]) == 0
    assert capsys.readouterr().out == 'link,n\n"\'=HYPERLINK(""http://x"")",-5\n'
    assert run(["sql", capture, query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"link": '=HYPERLINK("http://x")', "n": -5}]

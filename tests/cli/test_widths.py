"""What commands print: every value whole in a pipe, as wide as the terminal on one, and a word where a list stops."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import leadline
import pytest
from commands import on_terminal
from findings_synthetic import SyntheticCapture
from leadline.figures import fit, fit_path
from leadline.output import shown, terminal_width, to_table
from leadline.views.grid import Column, Grid
from rich.cells import cell_len
from trace_synthetic import trace_of_semget

PACKAGE = Path(leadline.__file__).parent
# Modules that may cut a text, each for a place that a terminal bounds. Others use to_table, Grid or shown, which cut none in a pipe.
CUTTING = {"output.py", "columns.py", "figures.py", "views/grid.py", "views/text.py", "cli/threads.py", "top/text.py", "top/app.py"}
CUTTING |= {"top/host.py", "top/grid.py", "top/grids.py", "top/detail.py", "top/model.py"}
NARROW = 40  # columns of a phone
BESIDE = 60  # the least room for a name, and the widest figures to its right
LONG = "a_name_that_is_far_longer_than_what_any_column_of_a_table_has_room_for_" * 2


def piped(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "leadline", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More of everything than a view lists, under names that are longer than its columns."""
    cap = SyntheticCapture(tmp_path_factory.mktemp("many"), seconds=30)
    root = cap.add_session(pid=5000, application_name=LONG)
    cap.sample(root, "idle in transaction", "Client:ClientRead", 0, 30)
    for number in range(9):
        other = cap.add_session(pid=5001 + number, application_name=f"{LONG}{number}")
        cap.sample(other, "active", f"LWLock:{LONG}{number}", 0, 30 - number)
        cap.lock_wait(other, root, 1, 20 - number, locktype="relation", datid=16384, relid=777 + number)
    return cap.write()


def test_show_is_whole_in_a_pipe_and_as_wide_as_the_terminal(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = piped("show", many).stdout
    assert "…" not in text and f"5001 {LONG}0" in text and f"{LONG}3" in text
    for columns in (NARROW, 60, 80, 400):
        seen = on_terminal(["show", str(many)], 24, columns).splitlines()
        assert "Top sessions" in "\n".join(seen)
        wide = [line for line in seen if len(line) > columns and "leadline " not in line and "(AAS)" not in line]
        assert max(map(len, wide), default=0) <= (0 if columns >= 60 else BESIDE), (columns, sorted(wide, key=len)[-3:])
        assert any("…" in line for line in seen) == (columns < 400)


def test_show_says_how_many_it_leaves_out(many: Path) -> None:
    text = "".join(piped("show", many).stdout.split())  # a long path is wrapped at its hyphens
    assert f'4more:leadlinesql{many}"fromsession_sample"' in text
    assert f'3more:leadlinesql{many}"fromlock_wait"' in text


def test_columns_are_as_the_terminal_is_told(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = on_terminal(["sql", str(many), f"select '{LONG}' as name"], 24, 300)
    assert LONG in wide
    monkeypatch.setattr("leadline.output._columns", lambda: 0)  # as of some serial lines
    for said, width in (("90", 90), ("", 80), ("0", 80), ("-5", 80), ("x", 80), ("9" * 30, 80), ("3", 8)):
        monkeypatch.setenv("COLUMNS", said)
        assert terminal_width() == width
    monkeypatch.setattr("leadline.output._columns", lambda: 300)  # of a shell before the window was made wider
    monkeypatch.setenv("COLUMNS", "90")
    assert terminal_width() == 300
    monkeypatch.setattr("leadline.output._columns", lambda: None)
    assert (terminal_width(), shown("long", 2)) == (None, "long")


def test_sql_is_whole_in_a_pipe(many: Path) -> None:
    columns = ", ".join(f"'{LONG}{n}' as column_{n}" for n in range(30))
    done = piped("sql", many, f"select {columns}, 1 as n")
    head, _, row = done.stdout.splitlines()
    assert head.split() == [*(f"column_{n}" for n in range(30)), "n"]
    assert row.split() == [*(f"{LONG}{n}" for n in range(30)), "1"]
    for width in (NARROW, 80):
        seen = on_terminal(["sql", str(many), f"select {columns}, 1 as n"], 60, width).splitlines()
        assert seen[1].startswith("column_0   a_name") and seen[1].endswith("…") and max(map(len, seen)) == width


def test_one_long_value_does_not_fill_up_the_other_rows() -> None:
    text = to_table(["a", "b"], [["x" * 1_000_000, "y"], *([["short", "z"]] * 1000)])
    assert "x" * 1_000_000 in text and len(text) < 1_500_000


@pytest.mark.parametrize("name", ["注文テーブルの名前がとても長い", "e\u0301" * 30, "Überlänge-Größe" * 3, "ключ" * 12, "a注b" * 12])
def test_signs_of_two_columns_count_as_two(name: str) -> None:
    for width in (16, 24, 40):
        text = to_table(["name", "n"], [[name, 1], ["short", 22]], width)
        assert max(map(cell_len, text.splitlines())) <= width
        head, line, first, second = text.splitlines()
        assert {cell_len(row) for row in (head, line, first, second)} == {cell_len(line)}
        assert cell_len(fit(name, width)) <= width and cell_len(fit_path(name, width)) <= width
        grid = Grid((Column("a", "name", "text"), Column("n", "n")), [(name, 1)])
        assert cell_len(grid.lines(width)[1]) <= width
    assert name in to_table(["name"], [[name]])


def test_a_list_that_stops_at_its_limit_says_so(tmp_path: Path) -> None:
    trace = trace_of_semget(tmp_path / "t.leadline")
    done = piped("events", trace, "--limit", "5")
    assert len(done.stdout.splitlines()) == 5
    there = len(piped("events", trace, "--limit", "100000").stdout.splitlines())
    assert done.stderr == f"{there - 5:,} more: --limit N prints more; --from, --to, --pid, --call choose\n"
    assert piped("events", trace, "--limit", str(there)).stderr == ""


def test_a_grid_without_room_has_one_value_per_line() -> None:
    grid = Grid((Column("a", "name", "text"), *(Column(f"n{i}", f"number {i}") for i in range(4))), [("x" * 60, 1, 2, 3, 4)])
    assert grid.lines(40)[1] == "-- row 1 ".ljust(40, "-") and max(map(len, grid.lines(40))) == 40
    assert grid.lines(80)[1].startswith("x" * 30) and len(grid.lines(80)[1]) == 80
    assert grid.lines()[1].startswith("x" * 60 + " ")


def test_only_what_knows_the_terminal_cuts() -> None:
    """A cut elsewhere would also cut what goes into a pipe. A width that is said at a call of to_table is for a screen."""
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        name = str(file.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.ImportFrom(module="leadline.figures") if name not in CUTTING:
                    wrong += [f"{name}:{node.lineno} {alias.name}" for alias in node.names if alias.name in ("fit", "fit_path")]
                case ast.Call(func=ast.Name(id="to_table")) if name != "cli/sql_screen.py":
                    if len(node.args) > 2 or any(k.arg == "width" for k in node.keywords):
                        wrong.append(f"{name}:{node.lineno} width")
    assert not wrong, "\n".join(wrong)


def test_sections_that_stop_say_how_many_more_there_are() -> None:
    """`rows[:MOST]` in a section would leave out the rest without a word: Context.grid says it."""
    sections = PACKAGE / "views" / "sections"
    lines = {file.name: file.read_text().splitlines() for file in sections.glob("*.py")}
    wrong = [f"{name}: {line.strip()}" for name, text in lines.items() for line in text if "Grid" in line and "rows[:" in line]
    assert wrong == ["__init__.py: return Grid.of(columns, rows[:most], note, rest, empty, picture)"]

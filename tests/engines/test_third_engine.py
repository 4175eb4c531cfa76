"""A made-up third engine in a package of its own (tests/engines/mini): the commands work on it, and without it nothing knows of it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MINI = Path(__file__).parent / "mini"
PACKAGE = Path(__file__).resolve().parents[2] / "python"
Run = Callable[..., str]
SESSIONS = [
    *[(n, "active", "Latch", "row latch", "ann", "shop", "till", "10.0.0.1", "update stock set n = 1") for n in range(1, 4)],
    *[(n, "active", "", "", "bob", "shop", "report", "10.0.0.2", "select count(*) from stock") for n in range(4, 6)],
    *[(n, "idle", "", "", "bob", "shop", "report", "10.0.0.2", "") for n in range(6, 10)],
    (10, "active", "Nap", "until noon", "bob", "shop", "report", "10.0.0.2", ""),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mini") / "shop.db"
    db = sqlite3.connect(path)
    db.execute("create table activity(number, state, wait_class, wait_event, user, database, application, client, statement)")
    db.executemany("insert into activity values (?, ?, ?, ?, ?, ?, ?, ?, ?)", SESSIONS)
    db.commit()
    db.close()
    return path


@pytest.fixture(scope="module")
def run() -> Run:
    """Runs a command with the engine installed (`mini`) or not."""

    def run(*arguments: str, mini: bool = True, code: int = 0) -> str:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [PACKAGE, *([MINI] if mini else [])]))}
        done = subprocess.run([sys.executable, "-m", "leadline", *arguments], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def capture(server: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("captures") / "shop.leadline")
    run("take", f"mini:{server}", "--for", "2s", "--rate", "10", "-o", path)
    return path


def test_take_samples_its_sessions(run: Run, capture: str) -> None:
    manifest = json.loads((Path(capture) / "manifest.json").read_text())
    assert (manifest["status"], manifest["target"]["kind"], manifest["probes"]["sessions"]["tier"]) == ("complete", "mini", "sql")
    columns = "state, wait_class, user, database, application, in_db_time, mini_till, sum(distinct mini_number) as numbers"
    rows = json.loads(run("sql", capture, f"select {columns} from session_sample group by all order by numbers", "--json"))
    assert [tuple(row.values()) for row in rows] == [
        ("active", "Latch", "ann", "shop", "till", True, True, 6),
        ("active", "CPU", "bob", "shop", "report", True, False, 9),
        ("active", "Nap", "bob", "shop", "report", False, False, 10),
        ("idle", "CPU", "bob", "shop", "report", False, False, 30),
    ]


def test_a_table_of_its_own_is_stored(run: Run, capture: str) -> None:
    rows = json.loads(run("sql", capture, "select number, terminal, rooms from mini_terminal order by number", "--json"))
    assert len(rows) == len(SESSIONS)
    assert (list(rows[0].values()), list(rows[5].values())) == ([1, "till", ["hall", "ann"]], [6, "report", None])
    assert "The terminals of the sessions of a Mini" in run("tables", "mini_terminal")
    assert "of Mini" in run("tables") and "mini_terminal" not in run("tables", mini=False)
    assert "mini_terminal" in run("sql", capture, "select 1 from mini_terminal", mini=False, code=2)  # an error, and no traceback


def test_show_has_its_section_and_its_title(run: Run, capture: str) -> None:
    text = run("show", capture)
    assert "Mini 1.0" in text and "Users of the Mini" in text and "MINI-LATCH" in text
    shown = json.loads(run("show", capture, "--json"))
    assert [row["usename"] for row in shown["mini_users"]] == ["ann"]


def test_findings_are_its_own_and_not_those_of_another_engine(run: Run, capture: str) -> None:
    found = json.loads(run("findings", capture, "--all", "--json", code=1))
    assert [(row["id"], row["subject"]) for row in found["findings"]] == [("MINI-LATCH", "user ann")]
    assert found["findings"][0]["share_of_db_time"] == pytest.approx(3 / 5)
    assert ["DDL-QUEUE", "about postgres: the capture is of mini"] in [list(row.values()) for row in found["not_applicable"]]


def test_report_is_about_it(run: Run, capture: str, tmp_path: Path) -> None:
    run("report", capture, "-o", str(tmp_path / "r.html"))
    html = (tmp_path / "r.html").read_text()
    assert "Where the time of Mini 1.0 went" in html and "Users of the Mini" in html


def test_top_watches_it(run: Run, server: Path) -> None:
    # crates/postgres/recent sums for the screen, and has no engine's own database time yet: a nap counts there (ADR 10).
    frame = json.loads(run("top", f"mini:{server}", "--once", "--window", "2s", "--json"))
    assert {(s["pid"], s["usename"], s["wait_class"]) for s in frame["sessions"] if s["in_db_time"] and s["wait_class"] != "Nap"} == {
        (1, "ann", "Latch"), (2, "ann", "Latch"), (3, "ann", "Latch"), (4, "bob", "CPU"), (5, "bob", "CPU"),
    }  # fmt: skip
    assert frame["recording"]["product"] == "Mini"


def test_doctor_says_how_it_can_be_captured(run: Run, server: Path) -> None:
    said = run("doctor", f"mini:{server}")
    assert "10 sessions" in said and "This target can be captured with SQL." in said
    assert json.loads(run("doctor", f"mini:{server}", "--json"))["target"] == {"file": str(server)}


def test_an_error_of_the_engine_is_one_message(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    said = run("take", f"mini:{tmp_path / 'empty.db'}", "--for", "1s", "-o", str(tmp_path / "c.leadline"), code=2)
    assert "the Mini does not answer" in said and "no such table: activity" in said and "Traceback" not in said


def test_without_the_package_nothing_knows_it(run: Run, capture: str) -> None:
    assert "MINI-LATCH" not in run("findings", capture, "--all", mini=False)
    assert "mini_till" not in run("sql", capture, "from session_sample limit 1", "--json", mini=False)
    assert "mini_user" not in run("tables", mini=False)


WRONG_TABLES = {
    "there are two tables tick": 'name = "tick"\nkind = "table"\ntitle = "Mine"\ncolumns = []',
    "this table file cannot be read": 'name = "odd"\nkind = "table"\ntitle = "Odd"\ncolour = "red"\ncolumns = []',
    "KeyError: 'columns'": 'name = "odd"\nkind = "table"\ntitle = "Odd"',
    "TOML parse error": 'name = "odd',
}
WRONG_COLUMNS = {
    "session_sample has a column user already": (
        "session_sample", 'columns = [{ name = "user", type = "string", unit = "", meaning = "", sql = "1" }]',
    ),
    "KeyError: 'no_such_view'": ("no_such_view", "columns = []"),
    "this table file cannot be read": ("session_sample", 'columns = [{ name = "mine" }]'),
}


@pytest.mark.parametrize("message", WRONG_TABLES)
def test_a_wrong_table_of_an_engine_says_whose_it_is(message: str, tmp_path: Path) -> None:
    shutil.copytree(MINI, tmp_path, dirs_exist_ok=True)
    (tmp_path / "leadline_mini" / "tables" / "odd.toml").write_text(WRONG_TABLES[message])
    env = os.environ | {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{tmp_path}"}
    done = subprocess.run([sys.executable, "-m", "leadline", "tables"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert "odd.toml" in done.stderr and "engine mini" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("message", WRONG_COLUMNS)
def test_wrong_columns_of_an_engine_say_whose_they_are(message: str, tmp_path: Path) -> None:
    shutil.copytree(MINI, tmp_path, dirs_exist_ok=True)
    view, text = WRONG_COLUMNS[message]
    (tmp_path / "leadline_mini" / "columns" / f"{view}.toml").write_text(text)
    env = os.environ | {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{tmp_path}"}
    done = subprocess.run([sys.executable, "-m", "leadline", "tables"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert f"{view}.toml" in done.stderr and "engine mini" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("code, said", [
    (None, "ModuleNotFoundError: No module named 'broken_engine'"), ("raise OSError('no such disk')", "OSError: no such disk"),
    ("ENGINE = 7", "TypeError: it is int, not Engine"),
    ("from dataclasses import replace\nfrom leadline_mini import ENGINE as mini\nENGINE = replace(mini, name='postgres')",
     "ValueError: there is another engine postgres"),
])  # fmt: skip
def test_an_engine_that_does_not_load_is_left_out_and_named(code: str | None, said: str, tmp_path: Path) -> None:
    """Beside one that does: everything else works."""
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_text("[leadline.engines]\nbroken = broken_engine:ENGINE\n")
    if code is not None:
        (tmp_path / "broken_engine.py").write_text(code)
    env = os.environ | {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{tmp_path}{os.pathsep}{MINI}"}
    done = subprocess.run([sys.executable, "-m", "leadline", "tables", "--json"], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.splitlines()) == (0, [
        "warning: engine broken cannot be loaded, and its servers, tables and rules are left out",
        f"  detail: {said}", "  hint: update or uninstall the package that has broken_engine:ENGINE",
    ])  # fmt: skip
    assert {"session_sample", "mini_terminal"} <= {table["name"] for table in json.loads(done.stdout)}


def test_an_engine_whose_package_is_installed_twice_counts_once(tmp_path: Path) -> None:
    shutil.copytree(MINI / "leadline_mini-1.0.dist-info", tmp_path / "leadline_mini_editable-1.0.dist-info")
    env = os.environ | {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{tmp_path}{os.pathsep}{MINI}"}
    words = [sys.executable, "-m", "leadline", "tables", "mini_terminal"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")

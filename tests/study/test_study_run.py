"""`leadline study run`: settings proved, put back, trials recorded, a killed study that goes on, and what is refused."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import killed_studies
import psycopg
import pytest
from conftest import Server, wait_until
from leadline.engines.postgres.server import settings as of_server
from leadline.study.design import ready, ready_pairs

FACTOR = '[[factor]]\nsetting = "{}"\nlevels = {}\n'
LOAD = """[load]
command = "echo value=5"
[[metric]]
pattern = 'value=(\\d+)'
better = "less"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of PostgreSQL 18 that these tests may change."""
    from conftest import fetched_or_skip
    from leadline.engines.postgres.server import PrivateServer

    fetched = fetched_or_skip(18)
    with PrivateServer(fetched.bin_dir, settings={"fsync": "off"}) as private:
        yield Server(private, fetched)


def study(book: Path, *words: Any, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "LEADLINE_RUN"} | {"LEADLINE_BOOK": str(book)}
    command = [sys.executable, "-m", "leadline", "study", *map(str, words)]
    return subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, timeout=120, check=False, cwd=book.parent)


def written(folder: Path, text: str, name: str = "s.toml") -> Path:
    path = folder / name
    path.write_text('question = "Does it?"\n' + text)
    return path


def test_a_level_that_the_server_refuses_or_that_changes_nothing_is_no_cell(tmp_path: Path, server: Server) -> None:
    """2147483648 of seed 000; 1 MB as 1024 kB; a value that the server rounds; and a setting that a database has by itself."""
    before = killed_studies.server_state(server.dsn)
    text = "repetitions = 1\n" + FACTOR.format("work_mem", '["1MB", "1024kB", 2147483648, "2MB"]')
    text += FACTOR.format("wal_writer_delay", '["200ms", "300500us"]')
    done = study(tmp_path / "book", "run", written(tmp_path, text + LOAD), "--server", server.dsn, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["study"]
    dropped = dict(found["design"]["dropped"])
    assert dropped["work_mem=1024kB"] == "no effect: the server has 1MB, as with the baseline"
    assert dropped["work_mem=2147483648"].startswith("the server refuses work_mem = 2147483648: ")
    assert len(found["design"]["cells"]) == 4 and found["done"] == 4
    server.sql("alter database postgres set work_mem = '7MB'")
    try:
        path = written(tmp_path, "repetitions = 1\n" + FACTOR.format("work_mem", '["1MB", "2MB"]') + LOAD)
        done = study(tmp_path / "book", "run", path, "--server", server.dsn, "--yes")
    finally:
        server.sql("alter database postgres reset work_mem")
    assert done.returncode == 2 and "nothing is left to compare" in done.stderr and "it is set by database" in done.stderr
    assert killed_studies.server_state(server.dsn) == before


def test_a_load_that_is_too_short_for_one_transaction_says_so(tmp_path: Path, server: Server) -> None:
    load = '[load]\nscript = "select pg_sleep(3);"\nfor = "200ms"\n[[metric]]\nvalue = "tps"\n'
    path = written(tmp_path, "repetitions = 1\n" + FACTOR.format("work_mem", '["1MB", "2MB"]') + load)
    done = study(tmp_path / "book", "run", path, "--server", server.dsn, "--yes")
    assert "failed: no transaction ended while the load was measured; --for gives it more time" in done.stderr


def test_settings_are_in_the_trials_and_put_back_also_lists_and_values_that_were_there(tmp_path: Path, server: Server) -> None:
    server.sql("alter system set search_path = 'a b', public")
    server.sql("alter system set log_line_prefix = 'it''s'")
    server.sql("select pg_reload_conf()")
    before = killed_studies.server_state(server.dsn)
    try:
        text = "repetitions = 1\n" + FACTOR.format("search_path", '["public", "pg_catalog"]')
        text += FACTOR.format("log_line_prefix", "[\"x\", \"it's y\"]") + FACTOR.format("random_page_cost", "[4, 1.1]")
        done = study(tmp_path / "book", "run", written(tmp_path, text + LOAD), "--server", server.dsn, "--yes", "--json")
        assert done.returncode == 0, done.stderr
        assert killed_studies.server_state(server.dsn) == before
        parts = json.loads(done.stdout)["study"]["parts"]
        begun = killed_studies.trial_runs(tmp_path / "book", parts)
        assert sorted(begun) == list(range(8))
        shown = subprocess.run(
            [sys.executable, "-m", "leadline", "book", "show", begun[0][0], "--json"], capture_output=True, text=True, check=True,
            env=os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")},
        )  # fmt: skip
        inputs = json.loads(shown.stdout)["inputs"]
        wanted = dict(part.split("=") for part in inputs["side"].split(", "))
        assert {name: inputs[f"setting {name}"] for name in ("search_path", "random_page_cost")} == {
            name: wanted[name] for name in ("search_path", "random_page_cost")
        }
    finally:
        for statement in ("alter system reset search_path", "alter system reset log_line_prefix", "select pg_reload_conf()"):
            server.sql(statement)


def test_a_server_that_is_not_ours_is_not_changed_without_a_yes(tmp_path: Path, server: Server) -> None:
    before = killed_studies.server_state(server.dsn)
    text = "repetitions = 1\n" + FACTOR.format("work_mem", '["1MB", "2MB"]') + LOAD
    done = study(tmp_path / "book", "run", written(tmp_path, text), "--server", server.dsn)
    assert done.returncode == 2 and "--yes" in done.stderr and "work_mem becomes 1MB, 2MB in turn, with a reload each time" in done.stderr
    text = text.replace("work_mem", "shared_buffers").replace('["1MB", "2MB"]', '["128kB", "1MB"]')
    done = study(tmp_path / "book", "run", written(tmp_path, text), "--server", server.dsn, "--yes")
    assert done.returncode == 2 and "needs a restart" in done.stderr and "--restart COMMAND" in done.stderr
    for name, said in (("block_size", "cannot be changed"), ("work_men", "no setting work_men")):
        done = study(tmp_path / "book", "run", written(tmp_path, text.replace("shared_buffers", name)), "--server", server.dsn, "--yes")
        assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "like it: work_mem" in done.stderr
    assert not list((tmp_path / "book").glob("studies/*/journal.json"))
    assert killed_studies.server_state(server.dsn) == before


def test_a_private_server_restarts_for_a_setting_and_one_that_it_does_not_start_with_is_no_level(tmp_path: Path) -> None:
    text = "repetitions = 1\n" + FACTOR.format("max_connections", '["20", "25"]')
    text += FACTOR.format("shared_preload_libraries", '{ none = "", missing = "no_such_library" }')
    done = study(tmp_path / "book", "run", written(tmp_path, text + LOAD), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["study"]
    assert dict(found["design"]["dropped"])["shared_preload_libraries=missing"].startswith("the server does not start with these settings")
    assert [trial["side"] for trial in sorted(found["legs"], key=lambda trial: trial["side"])] == [
        "max_connections=20, shared_preload_libraries=none", "max_connections=25, shared_preload_libraries=none",
    ]  # fmt: skip


def test_a_cell_that_fails_twice_is_given_up_and_shown_empty(tmp_path: Path) -> None:
    text = """repetitions = 6
[[factor]]
name = "what"
command = true
levels = { good = "true", bad = "false" }
[[factor]]
name = "n"
environment = "N"
levels = [1, 2]
[load]
command = "{what}"
"""
    done = study(tmp_path / "book", "run", written(tmp_path, text), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["study"]
    assert {one["cell"] for one in found["judged"]["empty"]} == {"what=bad, n=1", "what=bad, n=2"}
    assert sum(bool(trial["problem"]) for trial in found["legs"]) == 4 and found["done"] == 6 * 2 + 4
    assert "failed 2 times: exit code 1" in done.stderr
    assert [row["level"] for row in found["judged"]["effects"]] == ["n=2"] and found["judged"]["interactions"] == []
    shown = study(tmp_path / "book", "show").stdout
    assert "EMPTY         what=bad, n=1: its trials failed: exit code 1. Not to be said: the effect of what=bad alone; whether" in shown
    checked = subprocess.run([sys.executable, "-m", "leadline", "book", "verify"], capture_output=True, text=True, check=False,
                             env=os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")})  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    page = tmp_path / "page.html"
    assert study(tmp_path / "book", "report", "-o", page).returncode == 0
    text = page.read_text()
    assert text.index("Empty cell") < text.index("Effect of each factor") and "<svg" in text


def test_what_changed_while_it_ran_or_before_it_went_on_leaves_no_verdict(tmp_path: Path, server: Server) -> None:
    """A setting that the study does not change, and that somebody changes after the study was killed."""
    path = written(tmp_path, "repetitions = 8\n" + FACTOR.format("work_mem", '["1MB", "2MB"]') + LOAD)
    words = [str(path), f"--server={server.dsn}", "--yes"]
    process = killed_studies.start(tmp_path / "book", *words)
    assert process.stderr is not None
    while process.stderr.readline() != "block 2 of 8\n":
        assert process.poll() is None
    killed_studies.kill(process, 0, whole=True)
    first = killed_studies.studies(tmp_path / "book")[0]["parts"][0]
    facts = json.loads((tmp_path / "book" / "studies" / first / "facts.json").read_text())
    assert facts["setting.wal_writer_delay"] == "200 ms" and "setting.work_mem" not in facts and facts["cpu.model"]
    server.sql("alter system set wal_writer_delay = '150ms'")
    server.sql("select pg_reload_conf()")
    try:
        done = study(tmp_path / "book", "run", "--resume", first, "--yes", "--json")
    finally:
        server.sql("alter system reset wal_writer_delay")
        server.sql("select pg_reload_conf()")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["study"]
    assert found["done"] == 16 and found["verdict"] == "none" and found["judged"] is None and found["refused"]
    assert "wal_writer_delay 200 ms against 150 ms" in found["text"] and found["text"].startswith("no verdict, as this changed meanwhile: ")
    shown = study(tmp_path / "book", "show", first).stdout.splitlines()
    assert shown[1].startswith("CHANGED       setting.wal_writer_delay: 200 ms before, 150 ms after") and "ratio" not in "".join(shown)
    assert study(tmp_path / "book", "report", "-o", tmp_path / "page.html").returncode == 0
    checked = subprocess.run([sys.executable, "-m", "leadline", "book", "verify"], capture_output=True, text=True, check=False,
                             env=os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")})  # fmt: skip
    assert checked.returncode == 0, checked.stdout


def test_levels_time_and_figures_that_are_not_compared_of_a_command(tmp_path: Path) -> None:
    text = """repetitions = 6
[[factor]]
name = "n"
command = true
levels = [1, 2]
[load]
command = "echo n={n} left=-{n} for={for}"
for = "10s"
[[metric]]
pattern = "n=([0-9]+)"
better = "less"
[[metric]]
name = "left"
pattern = "left=(-[0-9]+)"
compared = false
[[metric]]
name = "for"
pattern = "for=([0-9]+)ms"
compared = false
"""
    done = study(tmp_path / "book", "run", written(tmp_path, text), "--levels", "n=4,8", "--for", "7ms", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["study"]
    rows = [(row["metric"], row["n=4"], row["n=8"]) for row in found["rows"] if row["block"] == 1]
    assert rows == [("n=([0-9]+)", 4.0, 8.0), ("left", -4.0, -8.0), ("for", 7.0, 7.0)]
    assert [row["metric"] for row in found["judged"]["effects"]] == ["n=([0-9]+)"] and not any(one["problem"] for one in found["legs"])
    assert "left" in study(tmp_path / "book", "show").stdout
    checked = subprocess.run([sys.executable, "-m", "leadline", "book", "verify"], capture_output=True, text=True, check=False,
                             env=os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")})  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    refused = study(tmp_path / "book", "run", tmp_path / "s.toml", "--clients", "2")
    assert refused.returncode == 2 and "the load of this study is a command, which says that itself" in refused.stderr


def test_a_study_of_which_all_fails_says_so_and_is_an_error(tmp_path: Path) -> None:
    text = 'repetitions = 6\n[[factor]]\nname = "w"\ncommand = true\nlevels = ["true", "false"]\n[load]\ncommand = "{w} {w}"\n'
    done = study(tmp_path / "book", "run", written(tmp_path, text.replace("{w} {w}", "sh -c 'exit 4' {w}")))
    assert done.returncode == 2 and "error: all combinations but" in done.stderr and "detail: exit code 4" in done.stderr
    assert "next: leadline study run --resume " in done.stderr
    assert "no verdict yet: it ended after" in study(tmp_path / "book", "show").stdout


@pytest.mark.parametrize("repetitions", [1, 2])
def test_a_short_study_of_which_all_fails_is_an_error_too(tmp_path: Path, repetitions: int) -> None:
    """It ends before a combination is given up, which takes two failures and a trial after them."""
    text = '[[factor]]\nname = "w"\ncommand = true\nlevels = ["4", "5"]\n[load]\ncommand = "sh -c \'exit 4\' {w}"\n'
    done = study(tmp_path / "book", "run", written(tmp_path, f"repetitions = {repetitions}\n{text}"))
    assert (done.returncode, "error: all trials fail" in done.stderr) == (2, True), done.stderr
    assert "detail: exit code 4" in done.stderr and "hint: leadline book list --kind trial" in done.stderr


def test_a_study_that_has_ended_or_runs_is_not_gone_on_with(tmp_path: Path) -> None:
    text = '[[factor]]\nname = "w"\ncommand = true\nlevels = ["true", "echo"]\n[load]\ncommand = "{w}"\n'
    path = written(tmp_path, "repetitions = 1\n" + text)
    done = study(tmp_path / "book", "run", path, "--json")
    uid = json.loads(done.stdout)["run"]
    for words, said in (
        (["run", "--resume", uid], "has ended"), (["run"], "give the name of a study"), (["run", "nowhere.toml"], "there is no such study"),
        (["run", "--resume", "zzzzz"], "there is no run zzzzz"), (["show", "zzzzz"], "there is no run zzzzz"), (["restore"], ""),
    ):  # fmt: skip
        done = study(tmp_path / "book", *words)
        assert done.returncode == (2 if said else 0) and said in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_study_goes_on_with_no_trial_lost_and_the_server_as_it_was(tmp_path: Path, server: Server, seed: int) -> None:
    """Of 50 moments: python tests/support/killed_studies.py 50."""
    killed_studies.prepare_server(server.dsn)
    wait_until(lambda: server.sql(f"show {killed_studies.SETTING}")[0][0] == killed_studies.BEFORE)
    assert killed_studies.kill_and_go_on(tmp_path, server.dsn, 8 * seed + 1, 4.0)


def test_what_a_guard_could_not_put_back_is_put_back_by_restore(tmp_path: Path, server: Server) -> None:
    from leadline.replacing import write_durably
    from leadline.study.servers import put_back

    with server.connect() as connection:
        was = of_server.before(connection, ["work_mem", "search_path"])
        connection.execute("create database leadline_study_x_0")
    server.sql("alter system set work_mem = '99MB'")
    journal = tmp_path / "journal.json"
    said = {"settings": was, "restart": "", "databases": "leadline_study_x_", "file": "", "text": "", "application": "leadline study x"}
    write_durably(journal, json.dumps(said).encode())
    before = killed_studies.server_state(server.dsn)
    assert "leadline_study_x_0" in str(before) and "99MB" in str(before)
    # The server is in the middle of something for a client that is gone: when it ends that, it must be too late for nothing.
    late = "begin; select pg_sleep(3); create table if not exists late_of_a_study (n int); commit"
    left = subprocess.Popen([sys.executable, "-c", "import psycopg, sys; psycopg.connect(sys.argv[1]).execute(sys.argv[2])",
                             f"{server.dsn} application_name='leadline study x'", late], stderr=subprocess.DEVNULL)  # fmt: skip
    wait_until(lambda: server.sql("select 1 from pg_stat_activity where application_name = 'leadline study x' and state = 'active'"))
    left.kill()
    left.wait()
    found = put_back(server.dsn, journal)
    assert server.sql("select 1 from pg_stat_activity where application_name = 'leadline study x'") == []
    assert server.sql("select to_regclass('late_of_a_study')") == [(None,)]
    assert found["work_mem"].shown == (was["work_mem"] or "4MB") and not journal.exists()
    after = str(killed_studies.server_state(server.dsn))
    assert "leadline_study_x_0" not in after and "99MB" not in after
    assert put_back(server.dsn, journal) == {}


@pytest.mark.parametrize(
    ("text", "unit", "base"),
    [("1MB", "kB", 1024), ("8kB", "8kB", 1), ("16", "8kB", 16), ("1GB", "8kB", 131072), ("2min", "ms", 120_000), ("1.5s", "ms", 1500),
     ("1h", "s", 3600), ("300us", "ms", 0.3), ("0x10", "", 16), ("-1", "ms", -1), ("lots", "kB", None), ("1kB", "ms", None),
     ("", "kB", None), ("64MB", "MB", 64), ("100B", "kB", 100 / 1024), ("1e3", "", 1000)],
)  # fmt: skip
def test_a_value_is_compared_in_the_unit_of_its_setting(text: str, unit: str, base: float | None) -> None:
    found = of_server.base_of(text, unit)
    assert found == (None if base is None else pytest.approx(base))


def test_lists_are_divided_as_the_server_writes_them() -> None:
    assert of_server.elements('"$user", public') == ["$user", "public"]
    assert of_server.elements('"a, ""b""", c') == ['a, "b"', "c"]
    assert of_server.elements("") == []


def test_the_server_itself_agrees_about_the_values(server: Server) -> None:
    """What a setting shows after it was set to what it showed is what it was, for every setting that a reload may change."""
    skipped = {"data_sync_retry", "restrict_nonsystem_relation_kind"}
    sql = "select name, current_setting(name), setting, coalesce(unit, ''), vartype from pg_settings where context not in ('internal')"
    rows = server.sql(sql)
    for name, shown, setting, unit, kind in rows:
        known = of_server.Known(name, "", kind, unit, setting, "configuration file", shown, False)
        if name not in skipped:
            assert of_server._same(shown, known), (name, shown, setting, unit)


def test_a_value_that_cannot_be_set_leaves_nothing_changed(server: Server) -> None:
    before = killed_studies.server_state(server.dsn)
    with pytest.raises(of_server.LeadlineError, match="refuses maintenance_work_mem"):
        of_server.apply(lambda: psycopg.connect(server.dsn, autocommit=True), {"work_mem": "5MB", "maintenance_work_mem": "no"})
    assert killed_studies.server_state(server.dsn) == before


def test_versions_schemas_paths_and_variables_are_what_each_trial_has(tmp_path: Path) -> None:
    """Two private servers take turns, each with a database for each schema; what a trial was given is in its figures."""
    for name in ("one", "three"):
        (tmp_path / name).write_text("x" * len(name))
    text = """repetitions = 1
[[factor]]
version = true
levels = [16, 18]
[[factor]]
schema = true
levels = { small = "insert into t values (1)", large = "insert into t select generate_series(1, 3)" }
[[factor]]
name = "file"
path = true
levels = ["one", "three"]
[[factor]]
environment = "DEPTH"
levels = [5, 6]
[[prepare]]
sql = "create table t (n int)"
[load]
command = "sh -c 'echo depth=$DEPTH size=$(wc -c < {file}) in=$PGDATABASE'"
[[metric]]
pattern = "depth=([0-9]+)"
better = "less"
[[metric]]
pattern = "size=([0-9]+)"
better = "less"
[[metric]]
name = "rows"
sql = "select count(*) from t"
difference = false
better = "less"
[[metric]]
name = "major"
sql = "select current_setting('server_version_num')::int / 10000"
difference = false
better = "less"
"""
    done = study(tmp_path / "book", "run", written(tmp_path, text), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["study"]
    assert found["done"] == 16 and not any(trial["problem"] for trial in found["legs"])
    for row in found["rows"]:
        for cell in (name for name in row if "=" in name and name.startswith("version=")):
            level = dict(part.split("=") for part in cell.split(", "))
            wanted = {"depth=([0-9]+)": int(level["DEPTH"]), "size=([0-9]+)": len(level["file"]), "major": int(level["version"]),
                      "rows": {"small": 1, "large": 3}[level["schema"]]}  # fmt: skip
            assert row[cell] == wanted[row["metric"]], (row["metric"], cell)
    (tmp_path / "three").unlink()
    done = study(tmp_path / "book", "run", tmp_path / "s.toml")
    assert done.returncode == 2 and "there is no path for file=three" in done.stderr


@pytest.mark.parametrize("name", [name for name in ready() if name != "settings" and name not in ready_pairs()])
def test_a_ready_study_runs_and_measures(tmp_path: Path, name: str) -> None:
    """In small. What a build or a host lacks (io_uring, old ciphers) is left out, and said. The others:
    test_study_guide.py, test_study_pair.py."""
    load = [] if name in ("fetch-size", "storage-purge") else ["--clients", "1", "--for", "2s" if name == "io-methods" else "500ms"]
    load = ["--levels", "rows=2000,4000"] if name == "recovery" else load
    small = ["--repetitions", "1", *load]
    if name.startswith("storage"):  # folders that the user of the server may enter
        with tempfile.TemporaryDirectory(prefix="leadline-places-") as folder:
            for path in (Path(folder), Path(folder, "one"), Path(folder, "two")):
                path.mkdir(exist_ok=True)
                path.chmod(0o755)
            layouts = ["--layout", f"one={folder}/one", "--layout", f"two={folder}/two tables={folder}/one"]
            done = study(tmp_path / "book", "run", name, *small, *layouts, "--json")
    else:
        done = study(tmp_path / "book", "run", name, *small, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["study"]
    measured = {row["level"] for row in found["judged"]["effects"] if row["blocks"]}
    assert measured, found["judged"]
    left_out = [one["reason"] for one in found["judged"]["empty"]]
    assert all("refuses" in reason or "its trials failed: " in reason for reason in left_out), left_out
    if name == "fetch-size":
        assert "rows=2147483648" in {one["level"] for one in found["judged"]["no_effect"]} and "rows=1" in measured
        assert {row["level"]: row["ratio"] for row in found["judged"]["effects"]}["rows=1"] > 20, "2,000 round trips of 1 ms"
    if name == "recovery":
        records = {row["program=server, rows=4000"] for row in found["rows"] if row["metric"] == "records"}
        assert records <= set(range(9_000, 15_000)), "4,000 rows, as many entries of an index, and 1,333 updates with theirs"


def pg_ctl(server: Server, data: Path, *words: str) -> list[str]:
    """A command line of pg_ctl as the user of the server."""
    user = server.private.user
    program = str(Path(server.fetched.bin_dir) / "pg_ctl")
    line = [program, *words, "-D", str(data), "-w", "-t", "30", "-l", "/dev/null"]
    become = f"import os, sys; os.setgroups([]); os.setgid({user.gid}); os.setuid({user.uid}); " if user.switch else "import os, sys; "
    return [sys.executable, "-c", f"{become}os.chdir('/'); os.execv(sys.argv[1], sys.argv[1:])", *line]


@pytest.fixture
def daemon(server: Server) -> Iterator[tuple[str, str]]:
    """DSN of a server that runs on its own, and the command that restarts it."""
    from leadline.engines.postgres.server import PrivateServer

    with PrivateServer(server.fetched.bin_dir, settings={"fsync": "off", "shared_buffers": "16MB"}) as private:
        private.stop()
        options = f"-k {private.socket_dir} -p {private.port} -c listen_addresses="
        subprocess.run([*pg_ctl(server, private.data_dir, "start"), "-o", options], check=True, capture_output=True, timeout=60)
        try:
            yield private.dsn, shlex.join(pg_ctl(server, private.data_dir, "restart", "-m", "fast"))
        finally:
            subprocess.run(pg_ctl(server, private.data_dir, "stop", "-m", "immediate"), check=False, capture_output=True, timeout=60)


def test_a_setting_that_needs_a_restart_is_put_back_by_one_also_after_a_kill(tmp_path: Path, daemon: tuple[str, str]) -> None:
    dsn, restart = daemon

    def state() -> Any:
        with psycopg.connect(dsn, autocommit=True) as connection:
            return connection.execute("select setting, source, pending_restart from pg_settings where name = 'shared_buffers'").fetchone()

    def is_up(as_before: bool) -> bool:
        try:
            return bool((state() == before) == as_before)
        except psycopg.OperationalError:  # it restarts
            return False

    before = state()
    go = tmp_path / "go"
    load = f"[load]\ncommand = \"sh -c 'while [ ! -e {go} ]; do sleep 0.05; done'\"\n"
    path = written(tmp_path, "repetitions = 3\n" + FACTOR.format("shared_buffers", '["128kB", "1MB"]') + load)
    words = [str(path), f"--server={dsn}", f"--restart={restart}", "--yes"]
    process = killed_studies.start(tmp_path / "book", *words)
    assert process.stderr is not None
    while (said := process.stderr.readline()) != "block 1 of 3\n":
        assert said, "the study ended before its first block"
    wait_until(lambda: is_up(as_before=False), 60, "the server runs with the first level")
    second = study(tmp_path / "book", "run", *words)
    assert second.returncode == 2 and "a study on this server still runs, as process" in second.stderr
    killed_studies.kill(process, 0.5, whole=True)
    go.touch()
    wait_until(lambda: is_up(as_before=True), 60, "the guard has restarted the server with its old setting")
    one = killed_studies.studies(tmp_path / "book")[0]
    done = study(tmp_path / "book", "run", "--resume", one["parts"][0], f"--restart={restart}", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["study"]["done"] == 6 and state() == before


def test_a_server_that_does_not_start_with_a_level_is_started_as_it_was(tmp_path: Path, daemon: tuple[str, str]) -> None:
    """Also when the study is killed just then: its files are put back with the server down."""
    dsn, restart = daemon
    before = killed_studies.server_state(dsn)
    text = "repetitions = 1\n" + FACTOR.format("shared_preload_libraries", '{ none = "", missing = "no_such_library" }')
    text += FACTOR.format("work_mem", '["1MB", "2MB"]') + LOAD
    words = [str(written(tmp_path, text)), f"--server={dsn}", f"--restart={restart}", "--yes"]
    done = study(tmp_path / "book", "run", *words, "--json")
    assert done.returncode == 0, done.stderr
    dropped = dict(json.loads(done.stdout)["study"]["design"]["dropped"])
    assert dropped["shared_preload_libraries=missing"].startswith("the server does not start with these settings")
    assert killed_studies.server_state(dsn) == before
    with psycopg.connect(dsn) as connection:
        auto = Path(str(connection.execute("show data_directory").fetchall()[0][0])) / of_server.AUTO
    process = killed_studies.start(tmp_path / "book", *words)
    wait_until(lambda: "no_such_library" in auto.read_text(), 60, "the setting is in the file")
    killed_studies.kill(process, 0.1, whole=True)

    def is_as_before() -> bool:
        try:
            return bool(killed_studies.server_state(dsn) == before)
        except psycopg.OperationalError:
            return False

    wait_until(is_as_before, 90, "the server answers, as it was")


def test_restore_puts_back_what_no_guard_was_left_to_do_also_of_a_study_that_was_not_registered(tmp_path: Path, server: Server) -> None:
    killed_studies.prepare_server(server.dsn)
    wait_until(lambda: server.sql(f"show {killed_studies.SETTING}")[0][0] == killed_studies.BEFORE)
    before = killed_studies.server_state(server.dsn)
    book, path = tmp_path / "book", killed_studies.design_in(tmp_path)
    for until in ("preparing a database\n", "block 2 of 2\n"):
        process = killed_studies.start(book, str(path), f"--server={server.dsn}", "--yes")
        assert process.stderr is not None
        while process.stderr.readline() != until:
            assert process.poll() is None
        guard = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and is_guard_of(entry, book)]
        assert len(guard) == 1
        os.kill(guard[0], signal.SIGKILL)
        killed_studies.kill(process, 0, whole=True)
        journals = list(book.glob("studies/*/journal.json"))
        assert len(journals) == 1 and killed_studies.server_state(server.dsn) != before
        again = study(book, "run", path, "--server", server.dsn, "--yes")
        assert again.returncode == 2 and f"leadline study restore {journals[0].parent.name[:5]}" in again.stderr
        done = study(book, "restore", journals[0].parent.name[:5])
        assert done.returncode == 0 and "work_mem is 3MB again" in done.stdout, done.stderr
        assert killed_studies.server_state(server.dsn) == before and not journals[0].exists()


def is_guard_of(entry: Path, book: Path) -> bool:
    try:
        line = (entry / "cmdline").read_bytes()
    except OSError:
        return False
    return b"leadline.study.guard" in line and str(book).encode() in line


def test_what_an_earlier_study_has_not_put_back_is_not_taken_for_the_state_before(tmp_path: Path, server: Server) -> None:
    identity = server.sql("select system_identifier from pg_control_system()")[0][0]
    other = tmp_path / "book" / "studies" / "abcde0123456"
    other.mkdir(parents=True, mode=0o700)
    (tmp_path / "book").chmod(0o700)
    (other / "journal.json").write_text(json.dumps({"server": str(identity), "settings": {}, "restart": "", "databases": "x"}))
    path = written(tmp_path, "repetitions = 1\n" + FACTOR.format("work_mem", '["1MB", "2MB"]') + LOAD)
    done = study(tmp_path / "book", "run", path, "--server", server.dsn, "--yes")
    assert done.returncode == 2 and "hint: leadline study restore abcde" in done.stderr


def test_a_study_whose_recorder_was_killed_ends_and_goes_on_in_another_run(tmp_path: Path) -> None:
    """Who looks at the book closes the record of a run whose supervisor is gone: trials that nobody would see are not run."""
    text = 'repetitions = 8\n[[factor]]\nname = "w"\ncommand = true\nlevels = ["0.2", "0.21"]\n[load]\ncommand = "sleep {w}"\n'
    process = killed_studies.start(tmp_path / "book", str(written(tmp_path, text)))
    assert process.stderr is not None
    while process.stderr.readline() != "block 2 of 8\n":
        assert process.poll() is None
    worker = killed_studies.worker_of(process)
    assert worker is not None
    os.kill(int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    wait_until(lambda: killed_studies.studies(tmp_path / "book")[0]["done"] and not Path(f"/proc/{worker}/exe").exists(), 30, "it ends")
    process.communicate(timeout=30)
    one = killed_studies.studies(tmp_path / "book")[0]
    assert one["judged"] is None and 2 <= one["done"] < 16
    done = study(tmp_path / "book", "run", "--resume", one["parts"][0], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["study"]
    assert found["done"] == 16 and len(found["parts"]) == 2
    verified = subprocess.run([sys.executable, "-m", "leadline", "book", "verify", "--json"], capture_output=True, text=True, check=False,
                              env=os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")})  # fmt: skip
    assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ("update study_figure set value = 7 where n = 3", "7.0, and its run has"),
        ("update experiment set ratio = 0.5", "and the trials have"),
        ("update experiment_leg set side = 'w=9'", "which the order does not say"),
        ("update experiment set design_json = replace(design_json, '0.03', '0.04')", "it does not have its seal"),
        ("update experiment_leg set started = 1", "it was registered after a trial had begun"),
    ],
)  # fmt: skip
def test_verify_finds_a_forged_figure_verdict_and_order_of_a_study(study_to_forge: Path, tmp_path: Path, forged: str, said: str) -> None:
    copy = tmp_path / "book"
    shutil.copytree(study_to_forge, copy)
    copy.chmod(0o700)
    with closing(sqlite3.connect(copy / "book.sqlite")) as db:
        assert db.execute(forged).rowcount >= 1
        db.commit()
    checked = subprocess.run([sys.executable, "-m", "leadline", "book", "verify"], capture_output=True, text=True, check=False,
                             env=os.environ | {"LEADLINE_BOOK": str(copy)})  # fmt: skip
    assert checked.returncode == 1 and said in checked.stdout, checked.stdout


@pytest.fixture(scope="module")
def study_to_forge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged")
    text = 'repetitions = 6\n[[factor]]\nname = "w"\ncommand = true\nlevels = [9, 8]\n'
    text += '[load]\ncommand = "echo value={w}"\n[[metric]]\npattern = "value=([0-9]+)"\nbetter = "less"\n'
    done = study(folder / "book", "run", written(folder, text))
    assert done.returncode == 0 and "less: w=8 has 0.8889 times" in done.stdout, done.stderr
    with closing(sqlite3.connect(folder / "book" / "book.sqlite")) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    return folder / "book"


SLEEPS = '[[factor]]\nname = "s"\ncommand = true\nlevels = ["0.01", "0.03"]\n'
SCRIPT = SLEEPS + '[load]\nscript = "select pg_sleep({s});"\nclients = 1\nfor = "600ms"\nwarm_up = "0s"\n'
# The server's count of transactions has also those of the capture, some thirty.
CODE = "import psycopg, sys; c = psycopg.connect('', autocommit=True); [c.execute('select pg_sleep({s})') for _ in range(100)]"
COMMAND = SLEEPS + '[server]\nsettings = { fsync = "off" }\n[load]\ncommand = """'
COMMAND += f"{sys.executable} -c '{CODE.replace(chr(39), chr(34))}'\"\"\"\n"


@pytest.mark.parametrize("text", [SCRIPT, COMMAND], ids=["a load", "a command"])
def test_each_trial_has_a_capture_of_the_server_and_the_study_says_where_the_time_moved(tmp_path: Path, text: str) -> None:
    done = study(tmp_path / "book", "run", written(tmp_path, "repetitions = 1\n" + text), "--json")
    assert done.returncode == 0, done.stderr
    assert "is not captured" not in done.stderr
    found = json.loads(done.stdout)
    (level,) = found["study"]["moved"]
    assert (level["one"], level["other"], level["legs"]) == ("s=0.01", "s=0.03", [1, 1])
    (wait,) = [row for row in level["tables"]["waits"]["rows"] if row["name"] == "Timeout: PgSleep"]
    assert wait["one"] == pytest.approx(10, rel=0.5) and wait["other"] == pytest.approx(30, rel=0.5), "ms a transaction"
    assert wait["share"] > 0.5 and level["tables"]["waits"]["title"] == "Database time by wait, ms a transaction"
    shown = study(tmp_path / "book", "show").stdout
    assert "Where the time moved: s=0.03 (B, 1 trials) against s=0.01 (A, 1 trials)" in shown and "Timeout: PgSleep" in shown
    page = tmp_path / "page.html"
    assert study(tmp_path / "book", "report", "--pairs", "-o", page).returncode == 0
    assert "Where the time moved" in page.read_text() and "All pairs of levels" in page.read_text()
    checked = subprocess.run([sys.executable, "-m", "leadline", "book", "verify", found["run"], "--json"], capture_output=True, text=True,
                             env=os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")}, check=False)  # fmt: skip
    kinds = [(one["what"], one["state"]) for one in json.loads(checked.stdout)["checks"]]
    assert kinds.count(("server", "ok")) == 2 and checked.returncode == 0, kinds

"""What is kept, removed, compared and exported; the same with both stores."""

from __future__ import annotations

import re
import shutil
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from books import Open, Run
from leadline.book.compare import compare
from leadline.book.export import export
from leadline.book.place import Place
from leadline.book.query import Book, Filter
from leadline.book.recorder import Recorder
from leadline.book.retention import Retention, prune
from leadline.errors import LeadlineError
from leadline.server.operation import perform
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME

CAPTURE = Path(__file__).resolve().parents[2] / "testdata" / "capture" / "format1"
DAY_US = 86_400_000_000


def with_runs(book: Book, place: Place, ages_days: list[int], log: bytes = b"") -> list[str]:
    """Runs of these ages, and with such an output; their uids."""
    uids = []
    for age in ages_days:
        recorder = Recorder(place)
        recorder.begin("command", f"day{age}", ["work", f"word{age}"], labels={"age": str(age)})
        if log:
            place.log_of(recorder.uid).write_bytes(log)
            place.index_of(recorder.uid).write_bytes(b"x" * 24)
        recorder.end(0)
        uids.append(recorder.uid)
    book.refresh()
    with book.store.writing() as db:
        for uid, age in zip(uids, ages_days):
            db.execute("update run set started = ?, ended = ? where uid = ?", (time.time_ns() // 1000 - age * DAY_US,) * 2 + (uid,))
    return uids


def names(book: Book) -> list[str]:
    return [run["name"] for run in book.runs(limit=1000)]


def test_old_runs_are_removed_with_all_that_is_theirs(place: Place, open_book: Open) -> None:
    book = open_book()
    uids = with_runs(book, place, [1, 10, 100, 200], b"output " * 1000)
    book.pin(book.find(uids[3]), True)
    wanted = Retention(before=time.time_ns() // 1000 - 5 * DAY_US)
    would = prune(book, wanted, really=False)
    assert (would.runs, would.log_bytes, names(book)) == (2, 14_048, ["day1", "day10", "day100", "day200"])
    done = prune(book, wanted, really=True)
    assert (done.runs, done.log_bytes, names(book)) == (2, 14_048, ["day1", "day200"])
    assert done.freed_bytes >= 14_048
    assert sorted(path.stem for path in place.logs.iterdir()) == sorted([uids[0], uids[0], uids[3], uids[3]])
    for table in ("label", "metric", "artifact", "run_file", "ingest_state"):
        key = "uid" if table == "ingest_state" else "run"
        rows = book.store.rows(f"select distinct {key} as key from {table}")
        allowed = {uids[0], uids[3]} if key == "uid" else {run["id"] for run in book.runs()}
        assert {row["key"] for row in rows} <= allowed
    assert [run["name"] for run in book.runs(Filter(words="word10"))] == []
    assert [run["name"] for run in book.runs(Filter(words="word1"))] == ["day1"]
    assert book.store.rows("select count(*) as n from content") == [{"n": 1}]  # the facts of this host
    assert prune(book, wanted, really=True).runs == 0


def test_what_runs_and_what_failed_is_kept_where_asked(place: Place, open_book: Open) -> None:
    book = open_book()
    with_runs(book, place, [3, 2, 1])
    with book.store.writing() as db:
        db.execute("update run set status = 'failed' where name = 'day3'")
        db.execute("update run set status = 'running' where name = 'day2'")
    assert prune(book, Retention(most_runs=0, keep_failed=True), really=True).runs == 1
    assert names(book) == ["day2", "day3"]
    assert prune(book, Retention(most_runs=0), really=True).runs == 1
    assert names(book) == ["day2"]


def test_the_baseline_of_a_template_is_kept(place: Place, open_book: Open) -> None:
    book = open_book()
    uids = with_runs(book, place, [3, 2, 1])
    do = partial(perform, caller=OWNER, store=book.store, place=place)
    template = do(BY_NAME["template.save"], given={"project": "main", "name": "t", "command": "true"})["template"]
    with book.store.writing() as db:
        db.execute("update run set template = ?, project = 'main' where uid in (?, ?)", (template, *uids[:2]))
    named = BY_NAME["template.baseline"]
    with pytest.raises(LeadlineError, match="is not a run of this template"):
        do(named, given={"template": template, "run": uids[2]})
    for uid in uids[:2]:
        assert do(named, given={"template": template, "run": uid}) == {"template": template, "baseline": uid}
    assert do(BY_NAME["run.show"], given={"run": uids[0]})["run"]["baseline"] == uids[1]
    assert prune(book, Retention(most_runs=0), really=True).runs == 2
    assert names(book) == ["day2"]
    do(named, given={"template": template})
    assert prune(book, Retention(most_runs=0), really=True).runs == 1


def test_the_oldest_go_when_there_are_too_many_or_they_take_too_much(place: Place, open_book: Open) -> None:
    book = open_book()
    with_runs(book, place, [1, 2, 3, 4, 5], b"x" * 1000)
    assert prune(book, Retention(most_runs=4), really=True).runs == 1
    assert names(book) == ["day1", "day2", "day3", "day4"]
    assert prune(book, Retention(most_bytes=2500), really=True).runs == 2
    assert names(book) == ["day1", "day2"]


def test_the_command_prunes(place: Place, leadline: Run, open_book: Open) -> None:
    with_runs(open_book(), place, [1, 10, 100])
    assert leadline("book", "prune").returncode == 2
    assert leadline("book", "prune", "--older", "5d", "--dry-run").stdout.startswith("2 runs and 0B of output would be removed")
    assert leadline("book", "prune", "--older", "5d").stdout.startswith("2 runs and 0B of output were removed")
    assert names(open_book()) == ["day1"]
    assert "is not a size" in leadline("book", "prune", "--size", "many").stderr


def test_runs_of_one_kind_or_project_are_removed_by_themselves(place: Place, leadline: Run, open_book: Open) -> None:
    book = open_book()
    uids = with_runs(book, place, [1, 2, 3, 4, 5, 6])
    with book.store.writing() as db:
        db.execute("update run set kind = 'leg' where uid in (?, ?, ?)", tuple(uids[3:]))
        db.execute("update run set project = 'lab' where uid in (?, ?)", (uids[0], uids[5]))
    assert prune(book, Retention(most_runs=1, kind="leg"), really=True).runs == 2
    assert names(book) == ["day1", "day2", "day3", "day4"]
    assert leadline("book", "prune", "--older", "12h", "--project", "lab").stdout.startswith("1 run and ")
    assert names(book) == ["day2", "day3", "day4"]
    assert leadline("book", "prune", "--keep", "0", "--kind", "other").stdout.startswith("0 runs and ")
    assert names(book) == ["day2", "day3", "day4"]


def test_room_of_removed_runs_is_given_back(tmp_path: Path) -> None:
    place = Place(tmp_path / "book")
    book = Book(place)
    with_runs(book, place, [9] * 600)
    book.store.db.shrink()
    before = place.store.stat().st_size
    done = prune(book, Retention(most_runs=10), really=True)
    assert done.freed_bytes > 100_000
    assert place.store.stat().st_size < before - 100_000
    book.close()


# -- compare -----------------------------------------------------------------------------------------------------------


def found(book: Book) -> dict[str, Any]:
    """What differs between the last two runs, by part and name."""
    other, one = (book.details(run) for run in book.runs(limit=2))
    return {f"{d.part} {d.name}": (d.one, d.other, d.lines) for d in compare(book, one, other) if d.part != "metric"}


def test_a_changed_file_and_a_changed_fact_are_named(place: Place, leadline: Run, open_book: Open, tmp_path: Path) -> None:
    script = tmp_path / "load.sh"
    script.write_text("a=1\nb=2\necho done\n")
    leadline("run", "--", "sh", script)
    script.write_text("a=1\nb=3\necho done\n")
    leadline("run", "--", "sh", script)
    opened = open_book()
    with opened.store.writing() as db:
        body = db.execute("select body from content where hash = (select min(facts) from run)").fetchone()["body"]
        db.execute("insert into content values ('planted', 1, ?)", (body.replace('"vm.swappiness": "', '"vm.swappiness": "9'),))
        db.execute("update run set facts = 'planted' where started = (select max(started) from run)")
    book = open_book()
    differences = found(book)
    swappiness = book.details(book.runs()[1])["facts"]["vm.swappiness"]
    assert differences.keys() == {f"file {script}", "fact vm.swappiness"}
    assert differences["fact vm.swappiness"] == (swappiness, f"9{swappiness}", ())
    assert differences[f"file {script}"][2] == ("@@ -1,3 +1,3 @@", " a=1", "-b=2", "+b=3", " echo done")
    said = leadline("book", "diff", book.runs()[1]["uid"][:6], "last").stdout
    assert f"file {script}:" in said
    assert "+b=3" in said


def test_equal_runs_have_no_difference(leadline: Run, open_book: Open) -> None:
    for _ in range(2):
        leadline("run", "--", "echo", "same")
    assert found(open_book()) == {}


def test_outputs_are_compared(leadline: Run, open_book: Open) -> None:
    leadline("run", "--name", "a", "--", "seq", "1", "100")
    leadline("run", "--name", "a", "--", "sh", "-c", "seq 1 49; printf '\\033[31mother\\033[0m\\n'; seq 51 100")
    one, other, lines = found(open_book())["output log"]
    assert (one, other) == ("292 bytes", "304 bytes")
    assert lines == ("@@ -49,3 +49,3 @@", " 49", "-50", "+other", " 51")


def test_settings_and_findings_of_captures_are_compared(place: Place, open_book: Open, tmp_path: Path) -> None:
    import duckdb

    for number in (1, 2):
        capture = tmp_path / f"{number}.leadline"
        shutil.copytree(CAPTURE, capture)
        if number == 2:
            [file] = (capture / "setting").glob("*.parquet")
            kept = f"select * replace (case name when 'work_mem' then '77' else setting end as setting) from '{file}'"
            duckdb.sql(f"copy ({kept}) to '{file}.new' (format parquet)")
            Path(f"{file}.new").replace(file)
        recorder = Recorder(place)
        recorder.begin("leadline", "take", ["leadline", "take"])
        recorder.artifact("capture", capture)
        recorder.end(0)
    differences = found(open_book())
    assert [name for name in differences if not name.startswith("run ")] == ["setting work_mem"]
    assert differences["setting work_mem"][1].startswith("77")


# -- export ------------------------------------------------------------------------------------------------------------


def test_one_file_has_all_of_a_run_and_no_secret(leadline: Run, open_book: Open, tmp_path: Path) -> None:
    script = tmp_path / "load.sh"
    script.write_text("echo '<script>alert(1)</script>'\nprintf '\\033[31mred\\033[0m password=hunter2\\n'\n# token=hunter2\n")
    leadline("run", "--name", "a/b", "--label", "release=7.2", "--", "sh", script, "--password", "hunter2")
    done = leadline("book", "export", "last", cwd=tmp_path)
    uid = open_book().find("last")["uid"]
    assert done.stdout == f"a-b-{uid[:5]}.html\n"
    page = (tmp_path / done.stdout.strip()).read_text()
    assert "hunter2" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>" not in page
    assert "red password=***" in page
    assert "\x1b" not in page
    for text in (uid, "7.2", str(script), "wall_s", "kernel.release"):
        assert text in page
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page.replace("srcdoc", ""))
    assert leadline("book", "export", "last", cwd=tmp_path).returncode == 2


def test_a_capture_is_in_the_file_as_its_report(place: Place, open_book: Open) -> None:
    recorder = Recorder(place)
    recorder.begin("leadline", "take", ["leadline", "take"])
    recorder.artifact("capture", CAPTURE)
    recorder.artifact("capture", "/no/such/capture")
    recorder.end(0)
    book = open_book()
    page = export(book, book.details(book.find("last")))
    assert page.count("<iframe sandbox=\"allow-scripts\" srcdoc=\"") == 1
    assert "&lt;section id=&#34;" in page


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 100_000])
def test_the_middle_of_a_long_output_is_left_out(place: Place, open_book: Open, size: int) -> None:
    book = open_book()
    [uid] = with_runs(book, place, [1], b"head\n" + b"x" * (size - 10) + b"\ntail")
    page = export(book, book.details(book.find(uid)))
    assert "head\n" in page
    assert "\ntail" in page
    assert ("are left out" in page) is (size > 1 << 20)


def test_several_runs_are_one_file_with_a_page_for_each(leadline: Run, open_book: Open, tmp_path: Path) -> None:
    for rc in (0, 3):
        leadline("run", "--name", "lo<ad", "--label", "token=hunter2", "--", "sh", "-c", f"echo said {rc}; exit {rc}")
    leadline("run", "--name", "other", "--", "true")
    done = leadline("book", "export", "--name", "lo<ad", "--since", "1h", cwd=tmp_path)
    assert done.stdout == "runs.zip\n", done.stderr
    book = open_book()
    runs = {run["uid"]: book.details(run) for run in book.runs(Filter(name="lo<ad"))}
    with zipfile.ZipFile(tmp_path / "runs.zip") as made:
        assert sorted(made.namelist()) == sorted(["index.html", "runs.parquet", *(f"runs/{uid}.html" for uid in runs)])
        pages = {name: made.read(name).decode() for name in made.namelist() if name.endswith(".html")}
        made.extract("runs.parquet", tmp_path)
    assert re.findall(r'href="([^"]*)"', pages["index.html"]) == [f"runs/{uid}.html" for uid in runs]
    assert "lo&lt;ad" in pages["index.html"]
    assert all(f"said {run['rc']}" in pages[f"runs/{uid}.html"] for uid, run in runs.items())
    rows = duckdb.sql(f"select uid, rc, status, argv, metrics['wall_s'], labels['token'] from '{tmp_path}/runs.parquet'").fetchall()
    assert rows == [(uid, r["rc"], r["status"], r["argv"], r["metrics"]["wall_s"], "***") for uid, r in runs.items()]
    assert "hunter2" not in "".join(pages.values())
    assert leadline("book", "export", "--name", "lo<ad", cwd=tmp_path).returncode == 2  # it is there
    assert leadline("book", "export", "last", "--name", "lo<ad", cwd=tmp_path).returncode == 2

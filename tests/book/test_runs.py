"""Runs in the book: what `leadline run` records, lists, shows, labels, compares and removes; the same with both stores."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from books import Open, Run
from leadline.book.compare import compare
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.query import Filter
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.errors import LeadlineError


def test_a_command_is_recorded_with_output_exit_code_and_cost(leadline: Run, open_book: Open) -> None:
    done = leadline("run", "--name", "load", "--label", "release=7.2", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    book = open_book()
    [run] = book.runs()
    found = book.details(run)
    assert (found["kind"], found["name"], found["status"], found["rc"]) == ("command", "load", "failed", 7)
    assert found["argv"] == ["sh", "-c", "echo out; echo err >&2; exit 7"]
    assert found["labels"] == {"release": "7.2"}
    assert found["metrics"].keys() == {"wall_s", "cpu_s", "record_s"}  # not its memory: it had less than who started it
    assert found["facts"]["kernel.release"] == os.uname().release
    assert sorted(book.place.log_of(found["uid"]).read_bytes().splitlines()) == [b"err", b"out"]
    assert list(book.place.spool.iterdir()) == []  # all of it is in the store


def test_a_signal_that_ends_a_command_is_told(leadline: Run, open_book: Open) -> None:
    done = leadline("run", "--", "sh", "-c", "kill -9 $$")
    [run] = open_book().runs()
    assert (done.returncode, run["signal"], run["rc"], run["status"]) == (137, 9, None, "failed")


def test_a_command_that_is_not_there_is_an_error(leadline: Run, open_book: Open) -> None:
    done = leadline("run", "--", "/no/such/command")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the command cannot be started: No such file or directory\n")
    [run] = open_book().runs()
    assert (run["status"], run["rc"], run["summary"]) == ("failed", 127, "not started: No such file or directory")


def test_a_command_of_leadline_is_recorded_unasked(leadline: Run, open_book: Open) -> None:
    assert leadline("tables", "session", "--json").returncode == 0
    assert leadline("tables", "no_such_table").returncode == 2
    bad, good = open_book().runs()
    assert (good["name"], good["status"], good["argv"], good["inputs"]) == (
        "tables", "ok", ["leadline", "tables", "session", "--json"], {"name": "session", "form": "json"}
    )  # fmt: skip
    assert (bad["status"], bad["rc"], bad["summary"]) == ("failed", 2, "error: no table named no_such_table")


def test_what_runs_nothing_is_not_recorded(leadline: Run, open_book: Open) -> None:
    for words in (["--version"], ["--help"], ["tables", "--help"], ["tables", "--no-such"], ["book", "list"], ["nothing"], ["page"]):
        leadline(*words)
    assert open_book().runs() == []


def test_nothing_is_recorded_where_the_book_is_off(leadline: Run, open_book: Open) -> None:
    done = leadline("run", "--", "sh", "-c", "echo $LEADLINE_RUN", env={"LEADLINE_BOOK": "off"})
    leadline("tables", env={"LEADLINE_BOOK": "off"})
    assert (done.returncode, done.stdout, open_book().runs()) == (0, "\n", [])
    assert "the book is off" in leadline("book", "list", env={"LEADLINE_BOOK": "off"}).stderr


def test_a_run_in_a_run_has_a_parent(leadline: Run, open_book: Open) -> None:
    both = f"{sys.executable} -m leadline tables session && {sys.executable} -m leadline run --name inner -- true"
    leadline("run", "--name", "outer", "--", "sh", "-c", both)
    book = open_book()
    runs = {run["name"]: run for run in book.runs()}
    outer = runs["outer"]["uid"]
    assert {name: run["parent"] for name, run in runs.items()} == {"outer": None, "tables": outer, "inner": outer}
    assert book.details(runs["outer"])["children"] == [runs["tables"]["uid"], runs["inner"]["uid"]]


def test_files_that_a_run_was_given_are_kept_without_secrets(leadline: Run, open_book: Open, tmp_path: Path) -> None:
    (script := tmp_path / "load.sh").write_text("password=hunter2\necho loaded\n")
    leadline("run", "--", "sh", script, "--password", "hunter2", "postgresql://me:hunter2@host/db")
    book = open_book()
    [run] = book.runs()
    [file] = book.details(run)["files"]
    assert (file["path"], file["size"]) == (str(script), 29)
    assert book.content(file["hash"]) == "password=***\necho loaded\n"
    assert leadline("book", "show", "last", "--file", script).stdout == "password=***\necho loaded\n"
    assert json.loads(leadline("book", "show", "last", "--file", script, "--json").stdout)["text"] == "password=***\necho loaded\n"
    other = leadline("book", "show", "last", "--file", "/srv/other")
    assert (other.returncode, f"it was given {script}" in other.stderr) == (2, True)
    assert run["argv"][2:] == ["--password", "***", "postgresql://me:***@host/db"]


def made(place: Place, name: str, *, rc: int | None = 0, labels: dict[str, str] | None = None, summary: str = "") -> str:
    """A run that is over; its uid."""
    recorder = Recorder(place)
    recorder.begin("command", name, [name, "--fast"], labels=labels)
    if summary:
        recorder.summary(summary)
    if rc is not None:
        recorder.end(rc)
    return recorder.uid


def test_runs_are_found_by_what_they_are(place: Place, open_book: Open) -> None:
    made(place, "load", labels={"release": "7.1"})
    made(place, "load", labels={"release": "7.2"}, rc=1)
    made(place, "vacuum", summary="could not extend file base/5/1259")
    book = open_book()

    def names(**wanted: object) -> list[str]:
        return [f"{run['name']} {run['rc']}" for run in book.runs(Filter(**wanted))]  # type: ignore[arg-type]

    assert names() == ["vacuum 0", "load 1", "load 0"]
    assert names(name="load") == ["load 1", "load 0"]
    assert names(status="failed") == ["load 1"]
    assert names(labels=(("release", None),)) == ["load 1", "load 0"]
    assert names(labels=(("release", "7.1"),)) == ["load 0"]
    assert names(words="Extend BASE") == ["vacuum 0"]
    assert names(words="exten bas") == ["vacuum 0"]
    assert names(words="tend") == []
    assert names(words="?") == []
    assert names(kind="leadline") == []
    assert names(since=time.time_ns() // 1000 + 1_000_000) == []
    assert names(before=time.time_ns() // 1000) == ["vacuum 0", "load 1", "load 0"]


def test_pages_of_runs_follow_each_other(place: Place, open_book: Open) -> None:
    for number in range(7):
        made(place, f"run{number}")
    book, after, seen = open_book(), None, []
    while page := book.runs(limit=3, after=after):
        seen += [run["name"] for run in page]
        after = (page[-1]["started"], page[-1]["id"])
    assert seen == [f"run{number}" for number in range(6, -1, -1)]


def test_a_run_is_named_by_its_first_letters(place: Place, open_book: Open) -> None:
    uid = made(place, "one")
    book = open_book()
    assert book.find(uid[:5])["uid"] == book.find(uid.upper())["uid"] == book.find("last")["uid"] == uid
    with pytest.raises(LeadlineError, match="there is no run nosuch"):
        book.find("nosuch")
    for number in range(32):
        made(place, f"more{number}")
    with pytest.raises(LeadlineError, match="more than one run begins with"):
        open_book().find(next(letter for letter in "0123456789abcdefghjkmnpqrstvwxyz" if _twice(open_book(), letter)))


def _twice(book: object, letter: str) -> bool:
    return sum(run["uid"].startswith(letter) for run in book.runs(limit=100)) > 1  # type: ignore[attr-defined]


def test_labels_and_pins_are_changed(leadline: Run, place: Place, open_book: Open) -> None:
    uid = made(place, "one", labels={"a": "1"})
    assert leadline("book", "label", "last", "a=2", "b").returncode == 0
    assert open_book().details(open_book().find(uid))["labels"] == {"a": "2", "b": ""}
    assert leadline("book", "label", uid[:6], "a", "--remove").returncode == 0
    assert open_book().details(open_book().find(uid))["labels"] == {"b": ""}
    leadline("book", "pin", "last")
    assert open_book().find("last")["pinned"] is True
    leadline("book", "pin", "last", "--off")
    assert open_book().find("last")["pinned"] is False


def test_output_is_searched_for_a_text(leadline: Run, open_book: Open) -> None:
    leadline("run", "--name", "one", "--", "echo", "ok")
    leadline("run", "--name", "two", "--", "printf", "a\\nb ERROR: disk full c\\nd\\n")
    found = json.loads(leadline("book", "search", "ERROR: disk f", "--json").stdout)
    assert [(run["name"], run["line"]) for run in found["runs"]] == [("two", "b ERROR: disk full c")]
    assert found["all_output_searched"] is True
    assert leadline("book", "search", "no such words").stderr == "not found\n"


def test_what_differs_between_two_runs_is_named(leadline: Run, open_book: Open) -> None:
    leadline("run", "--name", "load", "--label", "release=7.1", "--", "echo", "a", "b")
    leadline("run", "--name", "load", "--label", "release=7.2", "--", "echo", "a", "c", "d")
    book = open_book()
    other, one = (book.details(run) for run in book.runs())
    found = {f"{d.part} {d.name}": (d.one, d.other) for d in compare(book, one, other) if d.part != "metric"}
    assert found == {
        "argument 2": ("b", "c"), "argument 3": (None, "d"), "label release": ("7.1", "7.2"), "output log": ("4 bytes", "6 bytes")
    }  # fmt: skip


def test_a_run_whose_process_is_gone_is_lost(place: Place, open_book: Open) -> None:
    pid = os.fork()
    if pid == 0:
        made(place, "gone", rc=None)
        os._exit(0)
    os.waitpid(pid, 0)
    here = made(place, "here", rc=None)
    book = open_book()
    assert {run["name"]: run["status"] for run in book.runs()} == {"gone": "lost", "here": "running"}
    assert [path.stem for path in place.spool.iterdir()] == [here]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"null", b'"begin"', b"\xff\xfe", b'{"kind": "begin"}', b'{"kind": "nonsense", "ts": 1, "n": 1}',
        b'{"kind": "begin", "ts": 1, "n": 1, "argv": 5}', b'{"kind": "end", "ts": 99999999999999999999999, "n": 2}',
        b'{"kind": "end", "ts": 1, "n": 1, "rc": 1e999, "signal": null, "summary": "", "lost": 0, "metrics": {}}',
        b'{"kind": "artifact", "ts": 1, "n": 99999999999999999999, "artifact_kind": "x", "path": "y"}',
        b'{"kind": "label", "ts": 1, "n": 1, "key": "a\\u0000b", "value": "\\ud800"}', b'{"kind": ["begin"], "ts": 1, "n": 1}',
        b"[" * 100_000, b'{"kind": "ansible.nonsense", "ts": 1, "n": 1}', b'{"kind": "no.such.part", "ts": 1, "n": 1}',
    ],
)  # fmt: skip
def test_a_bad_event_is_passed_over(place: Place, open_book: Open, line: bytes) -> None:
    uid = made(place, "well", rc=None)
    spool = place.spool_of(uid)
    whole = spool.read_bytes()
    recorder_end = b'{"n": 9, "ts": 5, "kind": "end", "rc": 0, "signal": null, "summary": "fine", "metrics": {"x": 1}, "lost": 0}\n'
    spool.write_bytes(whole + line + b"\n" + recorder_end)
    [run] = open_book().runs()
    assert (run["name"], run["status"], run["summary"]) == ("well", "ok", "fine")


def test_an_event_that_is_just_being_written_is_taken_later(place: Place, open_book: Open) -> None:
    uid = made(place, "one", summary="whole")
    spool = place.spool_of(uid)
    whole = spool.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        spool.write_bytes(whole[:length])
        open_book()
    spool.write_bytes(whole)
    [run] = open_book().runs()
    assert (run["status"], run["summary"]) == ("ok", "whole")


def test_two_who_look_at_once_take_each_event_once(place: Place) -> None:
    for number in range(20):
        made(place, f"run{number}")
    workers = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            store = Store(place)
            ingest(place, store)
            os._exit(0)
        workers.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in workers] == [0, 0, 0, 0]
    store = Store(place)
    assert store.rows("select count(*) as n, count(distinct uid) as u, count(ended) as e from run") == [{"n": 20, "u": 20, "e": 20}]
    assert store.rows("select count(*) as n from metric") == [{"n": 80}]
    store.close()


def test_a_spool_of_another_user_is_not_read(place: Place, open_book: Open) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(place.spool_of(made(place, "mine")), 1, 1)
    link = place.spool_of("0" * 12)
    link.symlink_to(place.spool_of(made(place, "linked")))
    assert [run["name"] for run in open_book().runs()] == ["linked"]


def test_folders_and_files_are_their_owner_s_alone(leadline: Run, place: Place, open_book: Open) -> None:
    leadline("run", "--", "true")
    book = open_book()
    paths = [place.root, *place.root.rglob("*")]
    assert {path.name: oct(path.stat().st_mode & 0o077) for path in paths if path.stat().st_mode & 0o077} == {}
    assert book.place.log_of(book.find("last")["uid"]) in paths

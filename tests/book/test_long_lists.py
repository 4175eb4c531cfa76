"""Lists: as wide as the terminal, whole in a pipe; and one that stops says how many more there are."""

from __future__ import annotations

import json
import re

import pytest
from books import Open, Run
from commands import on_terminal
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.output import MOST_COUNTED, more_than

LONG = "a summary that is much longer than what eighty columns have room for, " * 2 + "to its end"


def made(place: Place, n: int, **facts: str) -> list[str]:
    out = []
    for number in range(n):
        recorder = Recorder(place)
        recorder.begin("command", f"load-{number}", ["true"])
        recorder.summary(LONG)
        recorder.end(0)
        out.append(recorder.uid)
    return out


def test_a_list_is_whole_in_a_pipe_and_as_wide_as_the_terminal(place: Place, leadline: Run) -> None:
    made(place, 2)
    piped = leadline("book", "list").stdout
    assert all(line.endswith(LONG) for line in piped.splitlines()[2:]) and piped.count("\n") == 4
    for columns in (60, 80, 132, 300):
        seen = [line for line in on_terminal(["book", "list"], 24, columns).splitlines() if "load-" in line]
        assert max(map(len, seen)) == min(columns, max(map(len, piped.splitlines())))
        assert all(line.endswith(LONG) for line in seen) == (columns == 300)


def test_a_list_that_stops_says_how_many_more_there_are(place: Place, leadline: Run) -> None:
    made(place, 25)
    listed = leadline("book", "list")
    assert len(listed.stdout.splitlines()) == 22
    assert listed.stderr.splitlines()[0] == "5 more: --limit lists more; --since, --name, --status choose"
    assert "more:" not in leadline("book", "list", "--limit", "25").stderr
    assert len(json.loads(leadline("book", "list", "--json").stdout)["runs"]) == 20
    found = leadline("book", "search", "load")
    assert (len(found.stdout.splitlines()), found.stderr.splitlines()[0]) == (22, "there are more than these 20: --limit N lists more")
    assert leadline("book", "host", "nowhere").returncode == 2
    host = json.loads(leadline("book", "list", "--json").stdout)["runs"][0]["host"]
    assert "5 more: --json lists all" in leadline("book", "host", host).stderr


def test_what_is_not_counted_is_not_said() -> None:
    assert more_than(20, 21, "x") == "1 more: x"
    assert more_than(20, 20 + MOST_COUNTED, "x", most=MOST_COUNTED) == "more than 9,999 more: x"
    assert more_than(20, None, "x") == "there are more than these 20: x"


def test_the_line_of_the_host_has_what_is_known(place: Place, open_book: Open, leadline: Run) -> None:
    [uid] = made(place, 1)
    book = open_book()
    facts = book.find(uid)["facts_hash"]
    with book.store.writing() as db:
        db.execute("update content set body = ? where hash = ?", (json.dumps({"kernel.release": "6.8.0"}), facts))
    assert "\nhost          Linux 6.8.0\n" in leadline("book", "show", uid).stdout
    with book.store.writing() as db:
        db.execute("update content set body = ? where hash = ?", (json.dumps({"memory": "1"}), facts))
    assert "host   " not in leadline("book", "show", uid).stdout


BY = {"ann on db1, pid 7": ("ann", "db1", 7), "on db1": ("", "db1", 0), "ann": ("ann", "", 0), "pid 7": ("", "", 7), "": ("", "", 0)}


@pytest.mark.parametrize("told", BY)
def test_who_ran_it_is_told_as_far_as_it_is_known(place: Place, open_book: Open, leadline: Run, told: str) -> None:
    [uid] = made(place, 1)
    with open_book().store.writing() as db:
        db.execute("update run set user_name = ?, host = ?, pid = ? where uid = ?", (*BY[told], uid))
    shown = leadline("book", "show", uid).stdout
    assert (f"\nby            {told}\n" in shown) == bool(told) and not re.search(r" ,|[ \t]$|^by +$", shown, re.MULTILINE)

"""leadline book tasks, results, hosts, import ara: the four questions that took three copied ids with Ara, and what they print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_replays import SPOOLS, replay
from books import Run
from leadline.book.place import Place


@pytest.fixture
def uid(place: Place) -> str:
    return replay(place, SPOOLS[1])


def next_of(said: str) -> str:
    [line] = [line for line in said.splitlines() if line.startswith("next: ")]
    return line.removeprefix("next: leadline ")


def test_each_list_prints_the_command_that_leads_on(leadline: Run, uid: str) -> None:
    """From the list of runs to one result, following what is printed alone."""
    listed = leadline("book", "list", "--kind", "ansible")
    assert re.search(rf"^{uid[:5]}  .* nightly +failed ", listed.stdout, re.MULTILINE)
    tasks = leadline("book", "tasks", "last")
    assert next_of(tasks.stderr) == f"book results {uid[:5]} --task 25"
    results = leadline(*next_of(tasks.stderr).split())
    assert re.search(r"^ *\d+ +gone1 +Reach it +unreachable +\d+\.\d{3} s ", results.stdout, re.MULTILINE)
    shown = leadline(*next_of(results.stderr).split())
    assert re.search(r"^status +unreachable$", shown.stdout, re.MULTILINE)
    hosts = leadline("book", "hosts")
    assert re.search(r"^web1 +19 +13 +0 +0 +0 +1 +2$", hosts.stdout, re.MULTILINE)
    assert next_of(hosts.stderr) == f"book results {uid[:5]} --host db2"


def test_the_list_of_tasks_has_file_line_action_results_and_time(leadline: Run, uid: str) -> None:
    lines = leadline("book", "tasks", uid[:5]).stdout.splitlines()
    assert re.fullmatch(r" n +task +at +action +results +took", lines[0])
    assert re.fullmatch(r" 1  Look at the host +site.yml:9 +setup +2 ok +\d+\.\d{3} s", lines[2])
    assert len(lines) == 2 + 25
    assert not any("…" in line for line in lines)  # in a pipe, nothing is cut


def test_one_result_has_every_field_and_what_the_module_returned(leadline: Run, uid: str) -> None:
    found = json.loads(leadline("book", "results", "last", "--task", "9", "--host", "web1", "--json").stdout)["results"]
    assert len(found) == 1
    said = leadline("book", "results", "last", found[0]["n"]).stdout
    names = [line.split("  ")[0] for line in said.partition("\n{")[0].splitlines()]
    assert names == [
        "result", "playbook", "play", "task", "at", "action", "arguments", "host", "delegated to", "status", "ignore errors", "started",
        "ended", "took",
    ]  # fmt: skip
    assert re.search(r"^at +/srv/shop/site.yml:39$", said, re.MULTILINE)
    assert re.search(r"^started +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}$", said, re.MULTILINE)
    content = json.loads(said[said.index("\n{") :])
    assert (content["stdout"], content["rc"], content["cmd"]) == ("asked", 0, ["echo", "asked"])
    assert re.search(r'^arguments +{"_raw_params": "echo asked"}$', said, re.MULTILINE)


def test_items_and_attempts_are_listed_where_asked_for(leadline: Run, uid: str) -> None:
    plain = leadline("book", "results", "last", "--task", "6").stdout
    with_items = leadline("book", "results", "last", "--task", "6", "--items").stdout
    assert (len(plain.splitlines()), len(with_items.splitlines())) == (2 + 2, 2 + 6)
    assert [len(re.findall(f"attempt {n} ", with_items)) for n in (1, 2)] == [2, 2]


@pytest.mark.parametrize("status, n", [("ignored", 4), ("rescued", 2), ("unreachable", 1), ("failed", 1), ("skipped", 2)])
def test_results_can_be_chosen_by_how_they_ended(leadline: Run, uid: str, status: str, n: int) -> None:
    """Ignored failures are no longer hidden: Ara lists 8 of 10."""
    found = json.loads(leadline("book", "results", "last", "--status", status, "--json").stdout)["results"]
    assert [row["outcome"] for row in found] == [status] * n


def test_a_list_that_ends_too_early_says_so(leadline: Run, uid: str) -> None:
    some = leadline("book", "results", "last", "--limit", "3")
    assert (len(some.stdout.splitlines()), len(re.findall(r"^[1-9]\d* more: --limit lists more", some.stderr, re.MULTILINE))) == (2 + 3, 1)
    assert "more: " not in leadline("book", "results", "last").stderr


def test_values_that_a_run_kept_are_shown(leadline: Run, uid: str) -> None:
    assert re.search(r"^values +rows=23$", leadline("book", "show", uid).stdout, re.MULTILINE)


def test_facts_of_a_host_are_printed(leadline: Run, uid: str) -> None:
    assert json.loads(leadline("book", "hosts", "last", "--facts", "web1", "--json").stdout)["distribution"] == "Debian"
    missing = leadline("book", "hosts", "last", "--facts", "nobody")
    assert (missing.returncode, missing.stderr.splitlines()[0]) == (2, f"error: run {uid[:5]} has no facts of nobody")


@pytest.mark.parametrize("words, message", [
    (("tasks", "zzzzz"), "there is no run zzzzz"),
    (("results", "last", "9999"), "has no result 9999"),
])  # fmt: skip
def test_what_is_not_there_is_an_error(leadline: Run, uid: str, words: tuple[str, ...], message: str) -> None:
    done = leadline("book", *words)
    assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_book_without_ansible_says_how_to_begin(leadline: Run, place: Place) -> None:
    done = leadline("book", "tasks")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: the book has no run of Ansible", "  hint: leadline ansible env"]


def test_a_run_that_started_ansible_leads_to_its_results(leadline: Run, place: Place) -> None:
    assert leadline("run", "--name", "outer", "--", "true").returncode == 0
    outer = json.loads(leadline("book", "show", "last", "--json").stdout)["uid"]
    name = SPOOLS[0]
    uid = replay(place, name)
    spool = place.spool_of(uid)
    spool.write_text(spool.read_text().replace('"parent": null', f'"parent": "{outer}"', 1))
    assert json.loads(leadline("book", "tasks", outer[:6], "--json").stdout)["run"] == uid


def test_a_database_that_is_none_of_ara_is_an_error(leadline: Run, place: Place, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    done = leadline("book", "import", "ara", tmp_path / "text")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: that is no SQLite database")

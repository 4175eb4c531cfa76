"""Recorded runs of Ansible, taken into the book without Ansible: plays, tasks, results, hosts, what was hidden; with both stores."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from ansible_replays import HOSTS, SECRETS, SPOOLS, TASKS, TESTDATA, replay
from books import Open
from leadline.book.ansible import query
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.store import Store


@pytest.fixture(params=SPOOLS)
def spool(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_run_has_name_labels_and_its_outcome(place: Place, open_book: Open, spool: str) -> None:
    uid = replay(place, spool)
    book = open_book()
    run = query.find_run(book, "last")
    assert run == query.find_run(book, uid[:5])
    assert (run["uid"], run["kind"], run["name"], run["status"], run["rc"]) == (uid, "ansible", "nightly", "failed", None)
    assert run["summary"] == "failed on db2; unreachable on gone1"
    details = book.details(run)
    assert details["labels"] == {"release": ""}
    version = spool.removeprefix("shop-").removesuffix(".jsonl")
    assert details["facts"]["ansible.version"] == version
    made = query.playbook(book, run)
    assert (made["path"], made["ansible_version"], made["has_totals"]) == ("/srv/shop/site.yml", version, True)
    assert made["arguments"]["inventory"] == ["/srv/shop/hosts"]
    assert run["argv"] == ["/usr/bin/ansible-playbook", "-i", "hosts", "site.yml", "-e", "out=***"]


def test_plays_and_tasks_have_file_line_and_outcomes(place: Place, open_book: Open, spool: str) -> None:
    replay(place, spool)
    book = open_book()
    run = query.find_run(book, "last")
    found = [(p["n"], p["name"], p["hosts"], p["strategy"], p["tasks"]) for p in query.plays(book, run)]
    assert found == [
        (1, "Web servers", "web", "linear", 20), (2, "Databases", "db", "free", 4),
        (3, "Nobody at all", "no_such_group", "linear", 0), (4, "Nobody is there", "gone", "linear", 1),
    ]  # fmt: skip
    tasks = query.tasks(book, run)
    said = [(t["n"], t["name"], t["action"], t["line"], {o: t[o] for o in query.OUTCOMES if t[o]}, t["items"]) for t in tasks]
    assert said == TASKS
    assert {t["file"].removeprefix("/srv/shop/") for t in tasks} == {"site.yml", "one_more.yml", "roles/app/tasks/main.yml"}
    assert [t["n"] for t in tasks if t["handler"]] == [20]
    assert [t["n"] for t in tasks if t["no_log"]] == [7, 8]
    assert all(0 < t["duration_s"] < 60 and t["duration_s"] * 1000 % 1000 for t in tasks)


def test_hosts_have_the_totals_that_ansible_printed(place: Place, open_book: Open, spool: str) -> None:
    replay(place, spool)
    book = open_book()
    run = query.find_run(book, "last")
    assert {h["host"]: {name: h[name] for name in HOSTS["web1"]} for h in query.hosts(book, run)} == HOSTS


def test_results_add_up_to_those_totals(place: Place, open_book: Open, spool: str) -> None:
    replay(place, spool)
    book = open_book()
    run = query.find_run(book, "last")
    assert query._counted(book, run) == HOSTS


def test_items_and_retries_are_results_of_their_own(place: Place, open_book: Open, spool: str) -> None:
    replay(place, spool)
    book = open_book()
    run = query.find_run(book, "last")
    items = query.results(book, run, task=4, host="web1", parts=("item",))
    assert [(i["item_n"], i["item"], i["outcome"]) for i in items] == [(1, "a", "changed"), (2, "b", "skipped"), (3, "c", "changed")]
    [whole] = query.results(book, run, task=4, host="web1")
    assert (whole["items"], whole["outcome"]) == (3, "changed")
    assert "results" not in query.result(book, run, whole["n"])["content"]
    assert sum(i["duration_s"] for i in items) <= whole["duration_s"]
    retries = query.results(book, run, task=6, host="web2", parts=("retry",))
    assert [(r["attempts"], r["outcome"]) for r in retries] == [(1, "failed"), (2, "failed")]
    hidden = query.results(book, run, task=8, parts=("item",))
    assert [(i["item"], i["message"]) for i in hidden] == [("", hidden[0]["message"])] * 4
    assert "has been hidden" in hidden[0]["message"]


def test_one_result_tells_all_that_ara_showed(place: Place, open_book: Open, spool: str) -> None:
    replay(place, spool)
    book = open_book()
    run = query.find_run(book, "last")
    [n] = [r["n"] for r in query.results(book, run, task=9, host="web1")]
    found = query.result(book, run, n)
    told = ("playbook", "play_name", "task_name", "host", "action", "status", "outcome", "ignored", "delegated_to", "place")
    assert {name: found[name] for name in told} == {
        "playbook": "/srv/shop/site.yml", "play_name": "Web servers", "task_name": "Ask the database", "host": "web1", "action": "command",
        "status": "ok", "outcome": "changed", "ignored": False, "delegated_to": "db1", "place": "/srv/shop/site.yml:39",
    }  # fmt: skip
    assert found["ended"] - found["started"] == round(found["duration_s"] * 1e6) > 0
    assert {name: found["content"][name] for name in ("cmd", "rc", "stdout")} == {"cmd": ["echo", "asked"], "rc": 0, "stdout": "asked"}
    [diff] = [r["n"] for r in query.results(book, run, task=2, host="web1")]
    assert query.result(book, run, diff)["content"]["diff"][0]["after"] == "I am web1\n"


def test_a_result_that_is_not_there_is_said(place: Place, open_book: Open) -> None:
    replay(place, SPOOLS[0])
    book = open_book()
    with pytest.raises(Exception, match=r"has no result 99999$"):
        query.result(book, query.find_run(book, "last"), 99999)


def test_facts_records_notes_and_files(place: Place, open_book: Open, spool: str) -> None:
    replay(place, spool)
    book = open_book()
    run = query.find_run(book, "last")
    facts = query.facts(book, run, "web1")
    assert facts["distribution"] == "Debian"
    assert query.records(book, run) == [{"host": "", "key": "rows", "type": "json", "value": 23}]
    notes = Counter(note["what"] for note in query.notes(book, run))
    assert notes == {"notify": 2, "include": 2, "no hosts matched": 1}
    files = {file["path"].removeprefix("/srv/shop/"): book.content(file["hash"]) for file in book.details(run)["files"]}
    assert files.keys() == {"site.yml", "one_more.yml", "roles/app/tasks/main.yml"}
    assert files["one_more.yml"] == (TESTDATA.parents[1] / "tests/ansible/shop/one_more.yml").read_text()


def test_no_secret_is_in_the_store(place: Place, open_book: Open, spool: str) -> None:
    replay(place, spool)
    book = open_book()
    run = query.find_run(book, "last")
    everything: list[Any] = [book.details(run), query.plays(book, run), query.tasks(book, run), query.records(book, run)]
    everything += [query.result(book, run, r["n"]) for r in query.results(book, run, parts=("result", "item", "retry"))]
    everything += [book.content(file["hash"]) for file in book.details(run)["files"]]
    text = json.dumps(everything)
    assert "Call the API with ***" in text
    assert [secret for secret in SECRETS if secret in text] == []


def test_facts_that_stay_are_stored_once(place: Place, open_book: Open) -> None:
    for spool in SPOOLS:
        replay(place, spool)
    hashes = open_book().store.rows("select facts from run_host where facts is not null")
    assert len(hashes) == 4
    assert len({row["facts"] for row in hashes}) == 1


def test_a_run_that_was_killed_is_known_as_such(place: Place, open_book: Open, spool: str) -> None:
    """Its hosts have what its results say, counted as Ansible counts."""
    lines = (TESTDATA / spool).read_bytes().splitlines()
    upto = next(n for n, line in enumerate(lines) if b'"ansible.stats"' in line)
    replay(place, spool, events=upto)
    book = open_book()
    run = query.find_run(book, "last")
    assert (run["status"], run["ended"]) == ("lost", None)
    assert not query.playbook(book, run)["has_totals"]
    assert {h["host"]: {name: h[name] for name in HOSTS["web1"]} for h in query.hosts(book, run)} == HOSTS


def test_each_piece_of_a_spool_is_taken_once(place: Place) -> None:
    uid = replay(place, SPOOLS[1])
    whole = place.spool_of(uid).read_bytes()
    store = Store(place)
    for upto in (100, 9000, 9001, 30_000, len(whole)):
        place.spool_of(uid).write_bytes(whole[:upto])
        ingest(place, store)
        ingest(place, store)
    tables = ("play", "task", "result", "result_body", "run_host")
    counts = {name: store.rows(f"select count(*) as n from {name}")[0]["n"] for name in tables}
    store.close()
    results = whole.count(b'"kind":"ansible.result"')
    assert counts == {"play": 4, "task": 25, "result": results, "result_body": results, "run_host": 5}


def test_what_is_no_event_of_ansible_is_passed_over(place: Place, open_book: Open) -> None:
    uid = replay(place, SPOOLS[1])
    bad = [
        {"kind": "ansible.result", "task": 99, "host": "h", "part": "result", "status": "ok", "changed": False, "content": {}},
        {"kind": "ansible.result", "task": 1, "host": "h", "part": "result", "status": "great", "changed": False, "content": {}},
        {"kind": "ansible.result", "task": 1, "host": ["h"], "part": "result", "status": "ok", "changed": False, "content": {}},
        {"kind": "ansible.result", "task": 1, "host": "h", "part": "result", "status": "ok", "changed": False, "content": 7},
        {"kind": "ansible.task", "task": 2**80}, {"kind": "ansible.play"}, {"kind": "ansible.stats", "hosts": 3},
        {"kind": "ansible.nothing"}, {"kind": "ansible.note", "what": None, "host": "", "text": ""},
        {"kind": "ansible.playbook", "format": 99, "path": "", "ansible": "", "python": "", "arguments": {}},
    ]  # fmt: skip
    lines = [json.dumps({"n": 500 + n, "ts": 1, **body}).encode() + b"\n" for n, body in enumerate(bad)]
    whole = place.spool_of(uid).read_bytes().splitlines(keepends=True)
    place.spool_of(uid).write_bytes(b"".join([*whole[:-1], *lines, whole[-1]]))
    book = open_book()
    run = query.find_run(book, "last")
    assert run["status"] == "failed"
    assert len(query.tasks(book, run)) == 25
    assert book.store.rows("select n from result where n >= 500") == []
    assert {h["host"] for h in query.hosts(book, run)} == set(HOSTS)

"""Hosts across runs: which there are, what failed there, and which facts changed from run to run; with both stores."""

from __future__ import annotations

import json
import os

import pytest
from ansible_replays import SPOOLS, replay
from books import Open, Run
from leadline.book import facts, hosts
from leadline.book.ansible import query
from leadline.book.ansible.ingest import CHANGING, put_facts
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.errors import LeadlineError

HERE = os.uname().nodename


def recorded(place: Place, rc: int) -> str:
    recorder = Recorder(place)
    recorder.begin("command", "load", ["load"])
    recorder.end(rc)
    return recorder.uid


def test_hosts_are_listed_with_how_many_runs_failed_there(place: Place, open_book: Open) -> None:
    for spool in SPOOLS:
        replay(place, spool)
    last = [recorded(place, rc) for rc in (0, 3)][-1]
    store = open_book().store
    found = {row["host"]: row for row in hosts.hosts(store, 1000)}
    counts = {name: (row["runs"], row["played"], row["failed"]) for name, row in found.items()}
    assert {"web1": (0, 2, 0), "web2": (0, 2, 0), "db1": (0, 2, 0), "db2": (0, 2, 2), "gone1": (0, 2, 2)}.items() <= counts.items()
    assert (found[HERE]["last_run"], found[HERE]["last_status"]) == (last, "failed")
    [own] = hosts.hosts(store, 1000, "kind = ?", ["command"])
    assert (own["host"], own["runs"], own["played"], own["failed"]) == (HERE, 2, 0, 1)
    assert next(iter(found)) == HERE
    assert [row["host"] for row in hosts.hosts(store, 1)] == [HERE]
    assert hosts.hosts(store, 1000, "kind = ?", ["nothing"]) == []


def test_one_host_has_what_failed_there(place: Place, open_book: Open) -> None:
    uids = [replay(place, spool) for spool in SPOOLS]
    book = open_book()
    found = hosts.host(book.store, "db2", 50)
    assert {(f["run"], f["task"], f["status"]) for f in found["failures"]} == {(uid, "Break on db2", "failed") for uid in uids}
    assert sorted(run["uid"] for run in found["played"]) == sorted(uids)
    assert [run["failed"] for run in found["played"]] == [1, 1]
    assert hosts.host(book.store, "web1", 50)["failures"] == []  # what was ignored or rescued is none
    assert hosts.host(book.store, "web1", 1)["changes"] == []  # there is nothing to compare with
    with pytest.raises(LeadlineError, match="no run has a host elsewhere"):
        hosts.host(book.store, "elsewhere", 50)
    with pytest.raises(LeadlineError, match="no run has a host web1"):
        hosts.host(book.store, "web1", 50, "r.kind = ?", ["command"])


def test_facts_that_changed_are_named(place: Place, open_book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for spool in SPOOLS:
        replay(place, spool)
    for value in ("60", "60", "10"):
        found_now = {"vm.swappiness": value, "cpu.usable": "2"} | ({"thp.enabled": "never"} if value == "10" else {})  # one that is new
        monkeypatch.setattr(facts, "facts", lambda found_now=found_now: found_now)
        last = recorded(place, 0)
    book = open_book()
    found = hosts.host(book.store, HERE, 50, "r.kind = ?", ["command"])
    changes = [(c["run"], c["fact"], c["before"], c["after"]) for c in found["changes"]]
    assert (changes, found["facts"]["vm.swappiness"]) == ([(last, "vm.swappiness", "60", "10")], "10")
    newest = next(run for run in book.runs() if run["kind"] == "ansible")
    had = query.facts(book, newest, "web1")
    name = next(name for name, value in had.items() if name not in CHANGING and isinstance(value, str))
    with book.store.writing() as db:
        put_facts(db, newest["id"], "web1", {f"ansible_{name}": "9.9", "ansible_uptime_seconds": 1})  # that changes all the time
    played = hosts.host(book.store, "web1", 50)
    changes = [(c["run"], c["fact"], c["before"], c["after"]) for c in played["changes"]]
    assert changes == [(newest["uid"], name, had[name], "9.9")]
    assert played["gathered"] == {name: value for name, value in had.items() if name not in CHANGING} | {name: "9.9"}


def test_the_command_prints_them(place: Place, leadline: Run) -> None:
    uids = [replay(place, spool) for spool in SPOOLS]
    done = leadline("book", "host")
    assert done.returncode == 0, done.stderr
    assert [line.split()[:4] for line in done.stdout.splitlines() if line.startswith("db2")] == [["db2", "0", "2", "2"]]
    assert "next: leadline book host " in done.stderr
    done = leadline("book", "host", "db2")
    assert done.stdout.count("Break on db2") == 2
    assert "next: leadline book show " in done.stderr
    found = json.loads(leadline("book", "host", "db2", "--json").stdout)
    assert sorted(run["uid"] for run in found["played"]) == sorted(uids)
    assert "argv_json" not in found["played"][0]
    assert leadline("book", "host", "elsewhere").returncode == 2

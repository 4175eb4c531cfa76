"""The real Ara beside our plugin, in one run of the same playbooks: the same plays, tasks, results and statuses. Then its database
is imported, and says the same again."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_cores import runnable
from ansible_replays import SECRETS
from ansible_runs import PLUGIN, SLEEPY, Site, core_or_skip, make_shop, run_shop
from leadline.book.ansible import query
from leadline.book.ansible.ara import import_ara
from leadline.book.db import Row
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.errors import LeadlineError

pytestmark = pytest.mark.timeout(1500)

FACTS = """
- hosts: localhost
  tasks:
    - name: Keep
      set_stats: {data: {kept: 1}}
    - name: Once more
      setup: {gather_subset: ['!all', '!min', env]}
"""


@dataclass
class Both:
    """A book and a database of Ara with the same runs."""

    site: Site
    ara: Path
    book: Book
    version: str

    def of_ara(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        with sqlite3.connect(self.ara) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, values)]

    def pairs(self) -> list[tuple[int, Row]]:
        """Numbers of Ara's playbooks with our runs."""
        theirs = [row["id"] for row in self.of_ara("select id from playbooks order by id")]
        ours = list(reversed(self.book.runs()))
        assert len(theirs) == len(ours) == 3
        return list(zip(theirs, ours))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("both")
    of_ara = [version for version in runnable() if version <= "2.19.99"]  # the newest that Ara 1.8 is known to work with
    core = core_or_skip(of_ara[-1] if of_ara else "", with_ara=True)
    site = make_shop(folder, core)
    site.plugins = [PLUGIN, core.plugins_of_ara]
    ara = folder / "ara"
    site.more |= {"ARA_BASE_DIR": str(ara), "ARA_API_CLIENT": "offline"}
    assert run_shop(site).returncode == 4
    assert site.run(site.write("facts.yml", FACTS)).returncode == 0
    site.interrupted(site.write("sleepy.yml", SLEEPY.format(folder=site.folder)), signal.SIGINT)
    return Both(site, ara / "ansible.sqlite", Book(Place(site.book)), core.version)


def test_plays_are_the_same(both: Both) -> None:
    for theirs, run in both.pairs():
        plays = both.of_ara("select name, uuid from plays where playbook_id = ? order by id", theirs)
        assert [(p["name"], p["uuid"]) for p in plays] == [(p["name"], p["uuid"].replace("-", "")) for p in query.plays(both.book, run)]


def test_tasks_are_the_same(both: Both) -> None:
    sql = """select t.name, t.uuid, t.action, t.lineno, t.handler, t.tags, f.path, t.status from tasks t join files f on f.id = t.file_id
 where t.playbook_id = ? order by t.id"""
    seen = 0
    for theirs, run in both.pairs():
        tasks = query.tasks(both.book, run)
        expected = [
            (_without_secrets(t["name"]), t["uuid"], t["action"], t["lineno"], bool(t["handler"]), _object(t["tags"]), t["path"])
            for t in both.of_ara(sql, theirs)
        ]
        ours = [(t["name"], t["uuid"].replace("-", ""), t["action"], t["line"], t["handler"], t["tags"], t["file"]) for t in tasks]
        assert ours == expected
        seen += len(ours)
    assert seen == 25 + 3 + 2


def test_results_and_their_statuses_are_the_same(both: Both) -> None:
    sql = """select t.uuid, h.name as host, r.status, r.changed, r.ignore_errors, r.content from results r join tasks t on t.id = r.task_id
 join hosts h on h.id = r.host_id where r.playbook_id = ? order by r.id"""
    seen = Counter[str]()
    for theirs, run in both.pairs():
        uuids = {t["n"]: t["uuid"].replace("-", "") for t in query.tasks(both.book, run)}
        expected = [(r["uuid"], r["host"], r["status"], bool(r["changed"]), bool(r["ignore_errors"])) for r in both.of_ara(sql, theirs)]
        ours = query.results(both.book, run)
        # Ara writes results of a task from several threads, so that their order differs.
        assert sorted((uuids[r["task"]], r["host"], r["status"], r["changed"], r["ignored"]) for r in ours) == sorted(expected)
        seen.update(r["outcome"] for r in ours)
    assert seen.keys() == set(query.OUTCOMES)


def test_delegation_is_the_same(both: Both) -> None:
    sql = "select r.id, h.name from results_delegated_to d join results r on r.id = d.result_id join hosts h on h.id = d.host_id"
    theirs = Counter(row["name"] for row in both.of_ara(sql))
    ours = Counter(r["delegated_to"] for _, run in both.pairs() for r in query.results(both.book, run) if r["delegated_to"])
    assert ours == theirs == {"db1": 2}


def test_what_modules_returned_is_the_same_but_for_secrets_and_items(both: Both) -> None:
    """Ara keeps the items of a loop in the content of the result; here each is a result of its own."""
    sql = """select t.uuid, h.name as host, r.content from results r join tasks t on t.id = r.task_id join hosts h on h.id = r.host_id
 where r.playbook_id = ? order by r.id"""
    looked = items = 0
    for theirs, run in both.pairs():
        numbers = {t["uuid"].replace("-", ""): t["n"] for t in query.tasks(both.book, run)}
        for row in both.of_ara(sql, theirs):
            content = _object(row["content"])
            [found] = query.results(both.book, run, task=numbers[row["uuid"]], host=row["host"])
            ours = query.result(both.book, run, found["n"])
            parts = [part for part in ours["parts"] if part["part"] == "item"]
            if parts:
                assert len(content.get("results", parts)) == len(parts)
                items += len(parts)
            names = ("rc", "stdout", "cmd", "msg", "dest", "censored", "checksum")
            common = {name: content[name] for name in names if name in content}
            assert {name: ours["content"][name] for name in common} == json.loads(_without_secrets(json.dumps(common)))
            looked += 1
    assert (looked, items) == (46 + 3 + 1, 14)


def test_hosts_facts_and_files_are_the_same(both: Both) -> None:
    for theirs, run in both.pairs()[:2]:
        hosts = {h["name"]: h for h in both.of_ara("select * from hosts where playbook_id = ?", theirs)}
        for host in query.hosts(both.book, run):
            names = ("ok", "changed", "failed", "skipped", "unreachable")
            assert {name: host[name] for name in names} == {name: hosts[host["host"]][name] for name in names}
            if host["has_facts"]:
                facts = {name.removeprefix("ansible_") for name in _object(hosts[host["host"]]["facts"])} - {"env"}
                # Ara keeps what was gathered last.
                assert facts <= set(query.facts(both.book, run, host["host"]))
                assert "env" not in query.facts(both.book, run, host["host"])
        paths = {f["path"] for f in both.of_ara("select path from files where playbook_id = ?", theirs)}
        ours = {f["path"] for f in both.book.details(run)["files"]}
        assert ours <= paths
        assert {path for path in paths - ours if "/group_vars/" not in path} == set()


def test_an_interrupted_run_is_known_as_such(both: Both) -> None:
    theirs, run = both.pairs()[2]
    assert both.of_ara("select status from playbooks where id = ?", theirs) == [{"status": "expired"}]
    assert (run["status"], len(query.tasks(both.book, run))) == ("cancelled", 2)


def test_ara_has_neither_items_nor_retries(both: Both) -> None:
    """What we have besides."""
    ours = Counter(r["part"] for _, run in both.pairs() for r in query.results(both.book, run, parts=("result", "item", "retry")))
    assert ours == {"result": 50, "item": 14, "retry": 4}
    assert both.of_ara("select count(*) as n from results") == [{"n": 50}]


def test_ara_keeps_secrets_that_we_do_not(both: Both) -> None:
    blobs = both.of_ara("select contents as blob from file_contents union all select content from results")
    kept = b"".join(zlib.decompress(row["blob"]) for row in blobs)
    assert [secret for secret in SECRETS if secret.encode() in kept] == list(SECRETS[:5])


def test_its_database_is_imported_whole_and_once(both: Both, tmp_path: Path) -> None:
    copy = tmp_path / "ansible.sqlite"
    shutil.copy(both.ara, copy)
    book = Book(Place(tmp_path / "book"))
    done = import_ara(book, copy)
    assert (done.playbooks, done.results, done.already, done.damaged) == (3, 50, 0, 0)
    assert import_ara(book, copy).already == 3
    runs = list(reversed(book.runs()))
    assert [run["status"] for run in runs] == ["failed", "ok", "lost"]
    for run, (theirs, ours) in zip(runs, both.pairs()):
        counts = both.of_ara("select (select count(*) from plays where playbook_id = ?) as plays", theirs)
        assert len(query.plays(book, run)) == counts[0]["plays"]
        imported, recorded = query.tasks(book, run), query.tasks(both.book, ours)
        assert [t["name"] for t in imported] == [_named(t["name"]) for t in recorded]
        for name in ("action", "line", "results", "ignored", "skipped", "changed"):
            assert [t[name] for t in imported] == [t[name] for t in recorded]
        # Ara does not know of rescue.
        assert [t["failed"] for t in imported] == [t["failed"] + t["rescued"] for t in recorded]
        assert abs(run["started"] - ours["started"]) < 60_000_000
    assert [f["path"] for f in book.details(runs[0])["files"]]
    book.close()


def test_what_is_imported_is_as_much_as_the_command_ara_lists(both: Both, tmp_path: Path) -> None:
    """Of results, ara lists no ignored failures. It has no values of set_stats, which are here, too."""

    def ara(*words: str) -> list[dict[str, Any]]:
        environment = both.site.environment | {"ARA_BASE_DIR": str(both.ara.parent)}
        line = [str(core_or_skip(both.version, with_ara=True).bin_dir / "ara"), *words, "-f", "json"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=True)
        return list(json.loads(done.stdout))

    book = Book(Place(tmp_path / "book"))
    shutil.copy(both.ara, copy := tmp_path / "ansible.sqlite")
    import_ara(book, copy)
    listed = sorted(ara("playbook", "list", "--long"), key=lambda row: int(row["id"]))
    runs = list(reversed(book.runs()))
    counts = [
        {"plays": len(query.plays(book, run)), "tasks": len(query.tasks(book, run)), "results": len(query.results(book, run)),
         "hosts": len(query.hosts(book, run)), "files": len(book.details(run)["files"])}
        for run in runs
    ]  # fmt: skip
    assert counts == [{name: row[name] for name in counts[0]} for row in listed]
    # It says changed or ignored where the status is ok or failed.
    outcomes = Counter(r["outcome"] for run in runs for r in query.results(book, run))
    ignored = outcomes.pop("ignored")
    assert ignored > 0
    assert outcomes == Counter(row["status"] for row in ara("result", "list", "--limit", "1000"))
    book.close()


def test_what_is_no_database_of_ara_is_said(tmp_path: Path) -> None:
    book = Book(Place(tmp_path / "book"))
    text, other = tmp_path / "text", tmp_path / "other.sqlite"
    text.write_text("this is no database" * 100)
    with sqlite3.connect(other) as db:
        db.execute("create table t (a)")
    said = []
    for path in (text, other, tmp_path / "none"):
        with pytest.raises(LeadlineError) as caught:
            import_ara(book, path)
        said.append((caught.value.kind, caught.value.message))
    book.close()
    assert said == [
        ("invalid", "that is no SQLite database"), ("invalid", "that is no database of Ara 1.x"), ("not_found", "there is no such file"),
    ]  # fmt: skip


def _object(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))


def _without_secrets(text: str) -> str:
    for secret in SECRETS:
        text = text.replace(secret, "***")
    return text


def _named(name: str) -> str:
    """Ara had stored the name with the secret, and nothing says that it is one."""
    return name.replace("***", "t0ken-of-the-api")



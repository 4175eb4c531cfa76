"""A run of Ansible on the pages, shared as one file, and removed while the server runs; without Ansible (a recorded spool)."""

from __future__ import annotations

import html
import re
import sqlite3
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from ansible_replays import HOSTS, SECRETS, SPOOLS, TASKS, replay
from leadline.book.place import Place
from serving import Served, serving, wait_until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("played")) as served:
        yield served


@pytest.fixture(scope="module")
def uids(served: Served) -> list[str]:
    found = [replay(Place(served.book), spool) for spool in SPOOLS]
    wait_until(lambda: all(served.client().get(f"/runs/{uid}").status == 200 for uid in found), "the runs")
    return found


class Text(HTMLParser):
    """What one reads of a page, and what it would load from elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words, self.loads = list[str](), list[str]()
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attributes if name in ("src", "href") and not (value or "").startswith("#")]


def test_the_page_of_a_run_has_plays_tasks_results_and_places(served: Served, uids: list[str]) -> None:
    words = " ".join(Text(served.client().get(f"/runs/{uids[0]}").text).words)
    for name in (*HOSTS, *(task[1] for task in TASKS)):
        assert name in words, name
    for place in ("/srv/shop/site.yml:9", "/srv/shop/site.yml:77"):
        assert place in words


def test_files_are_shown_as_they_were_and_tasks_lead_to_their_lines(served: Served, uids: list[str]) -> None:
    client = served.client()
    files = client.get(f"/runs/{uids[0]}.json").json["run"]["files"]
    n = [file["path"] for file in files].index("/srv/shop/site.yml")
    assert f'href="/runs/{uids[0]}/given/{n}#L77">/srv/shop/site.yml:77</a>' in client.get(f"/runs/{uids[0]}").text
    answer = client.call("GET", f"/runs/{uids[0]}/given/{n}").json
    last = client.call("GET", f"/runs/{uids[0]}/results?host=db1").json["results"][-1]
    assert f'href="/runs/{uids[0]}/given/{n}#L77">/srv/shop/site.yml:77</a>' in client.get(f"/runs/{uids[0]}/results/{last['n']}").text
    assert (answer["path"], answer["hash"]) == ("/srv/shop/site.yml", files[n]["hash"])
    page = client.get(f"/runs/{uids[0]}/given/{n}").text
    shown = re.findall(r'<a class="line" id="L(\d+)" href="#L\1">\1</a>(.*)$', page, re.MULTILINE)
    assert [html.unescape(line) for _, line in shown] == answer["text"].removesuffix("\n").split("\n")
    assert "name: Go on" in shown[76][1]
    assert client.call("GET", f"/runs/{uids[0]}/given/{len(files)}").status == 404
    assert [secret for secret in SECRETS if secret in page] == []


def test_every_link_of_every_result_leads_somewhere(served: Served, uids: list[str]) -> None:
    """Also of hosts that gathered no facts, or were not reached."""
    client, links = served.client(), set[str]()
    for result in client.call("GET", f"/runs/{uids[0]}/results?parts=true").json["results"]:
        page = client.get(f"/runs/{uids[0]}/results/{result['n']}")
        links |= {link.partition("#")[0] for link in Text(page.text).loads}
    assert {f"/hosts/{host}" for host in HOSTS} <= links
    assert {link: status for link in sorted(links) if (status := client.get(link).status) not in (200, 303)} == {}


def test_a_list_of_results_that_ends_too_early_says_so(served: Served, uids: list[str]) -> None:
    client, path = served.client(), f"/runs/{uids[0]}/results"
    every = client.call("GET", path).json
    assert (len(every["results"]), every["more"]) == (sum(sum(task[4].values()) for task in TASKS), False)
    assert "These are the first" not in client.get(path).text
    page = client.get(f"{path}?limit=3&host=web1").text
    assert "These are the first 3." in page
    assert len(re.findall(r'data-name="Task"', page)) == 3
    [link] = re.findall(r'href="(\?[^"]*limit=100000[^"]*)"', page)
    rest = client.get(path + html.unescape(link)).text
    assert len(re.findall(r'data-name="Task"', rest)) == len(client.call("GET", f"{path}?host=web1").json["results"])


def test_values_that_a_run_kept_are_shown(served: Served, uids: list[str]) -> None:
    for path in (f"/runs/{uids[0]}", f"/api/v1/runs/{uids[0]}/export"):
        assert "Values that it kept rows 23" in " ".join(Text(served.client().get(path).text).words).replace("name host value ", ""), path


def test_hosts_are_pages_across_runs(served: Served, uids: list[str]) -> None:
    client = served.client()
    page = client.get("/hosts")
    assert [name for name in HOSTS if f'href="/hosts/{name}"' not in page.text] == []
    one = client.get("/hosts/db2")
    assert one.status == 200
    assert all(f'href="/runs/{uid}/results/' in one.text for uid in uids)
    assert "Break on db2" in one.text
    assert client.get("/hosts/nowhere").status == 404


def test_a_run_is_one_file_that_needs_nothing_and_has_no_secret(served: Served, uids: list[str], tmp_path: Path) -> None:
    by_page = served.client().get(f"/api/v1/runs/{uids[0]}/export").text
    assert served.leadline("book", "export", uids[0], "-o", str(tmp_path / "run.html")).returncode == 0
    for page in (by_page, (tmp_path / "run.html").read_text()):
        text = Text(page)
        assert text.loads == []
        assert re.findall(r"@import|url\((?!data:)", page) == []
        words = " ".join(text.words)
        assert [name for name in (*HOSTS, *(task[1] for task in TASKS)) if name not in words] == []
        assert [secret for secret in SECRETS if secret in page] == []


def test_old_runs_are_removed_while_the_server_runs(served: Served, uids: list[str]) -> None:
    client = served.client()
    served.leadline("book", "pin", uids[1])
    would = served.do("book", "prune", "--older", "1s", "--dry-run")
    assert (would["removed"], would["would_remove"]) == (0, 1)
    assert client.get(f"/runs/{uids[0]}").status == 200
    assert served.do("book", "prune", "--older", "1s")["removed"] == 1
    assert [client.get(f"/runs/{uid}").status for uid in uids] == [404, 200]
    assert client.get("/hosts/db2").text.count("Break on db2") == 1
    with sqlite3.connect(served.book / "book.sqlite") as db:
        for table in ("task", "result", "result_body", "run_host", "playbook"):
            assert db.execute(f"select count(distinct run) from {table}").fetchone() == (1,), table


def test_the_server_had_nothing_to_complain_of(served: Served, uids: list[str]) -> None:
    assert served.complaints() == ""

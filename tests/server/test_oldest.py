"""The pages with the oldest packages that pyproject.toml allows: every page that links lead to is there, and none breaks."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_cores import Unavailable, installed
from ansible_replays import SPOOLS, replay
from conftest import no_oracle
from leadline.book.place import Place
from serving import Served, book, wait_until

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
OF_PAGES = ("click", "jinja2", "markupsafe")  # of those that leadline needs anyway
WANTED = [line for line in PROJECT["dependencies"] if line.startswith(OF_PAGES)] + PROJECT["optional-dependencies"]["web"]
OLDEST = {name: version for line in WANTED for name, version in [re.split(r">=|,", line)[:2]]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    version = f"py{sys.version_info[0]}.{sys.version_info[1]}"
    name = "-".join(["oldest", version, *(f"{name}{number}" for name, number in sorted(OLDEST.items()))])
    try:
        # 0.46 stands for 0.46.0: what is the oldest of what >=0.46 allows.
        at = installed(name, sys.executable, [f"{name}=={number}" for name, number in OLDEST.items()])
    except Unavailable as e:
        no_oracle(f"the oldest packages: {e}")
    with book(tmp_path_factory.mktemp("oldest")) as served:
        served.environment["PYTHONPATH"] = str(next(at.glob("lib/python*/site-packages")))
        place = Place(served.book)
        replay(place, SPOOLS[0])
        served.record("sh", "-c", "echo hello; exit 3", name="fails", labels=("release=7.2",))
        served.user("ann", "--admin")
        served.do("secret", "key")
        served.do("template", "save", "main", "count", "--command", "seq 1 {n}", "--survey", '{"n": {"kind": "int", "default": 3}}')
        served.do("schedule", "save", "main/count", "--cron", "0 0 1 1 *")
        served.start()
        yield served


def test_the_packages_are_the_oldest(served: Served) -> None:
    script = "import sys; from importlib.metadata import version; print(*(version(name) for name in sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", script, *OLDEST], env=served.environment, capture_output=True, text=True, check=True)
    for (name, wanted), found in zip(OLDEST.items(), done.stdout.split()):
        assert re.sub(r"(\.0)+$", "", found) == re.sub(r"(\.0)+$", "", wanted), name


def test_every_page_is_there(served: Served) -> None:
    client = served.client()
    assert client.log_in("ann").status == 303
    wait_until(lambda: client.get("/runs?kind=ansible").text.count("/runs/"), "the run")
    waiting, seen, wrong = ["/runs", "/openapi.json", "/metrics", "/login"], set[str](), []
    while waiting:
        path = waiting.pop()
        answer = client.get(path)
        if answer.status not in (200, 303):
            wrong.append((path, answer.status, answer.body[:200]))
        if "text/html" in answer.header("content-type"):
            for link in re.findall(r'href="(/[^"#]*)"', answer.text):
                kind = re.sub(r"[0-9a-z]{12}|\d+|=[^&]*", "_", link)  # one of each kind
                if kind not in seen:
                    seen.add(kind)
                    waiting.append(link.replace("&amp;", "&"))
    assert wrong == []
    assert {"/templates/_", "/runs/_", "/runs/_/results/_", "/hosts/web_", "/audit", "/schedules"} <= seen, seen


def test_one_starts_a_template_and_follows_it(served: Served) -> None:
    client = served.client(browser=True)
    client.log_in("ann")
    template = client.get("/templates.json").json["templates"][0]["uid"]
    answer = client.form("/form/template.start", template=template, then="/runs/{run}", **{"input.n": "4"})
    uid = answer.header("location").removeprefix("/runs/")
    assert client.get(f"/api/v1/runs/{uid}/output?follow=true").text == "1\n2\n3\n4\n"


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""

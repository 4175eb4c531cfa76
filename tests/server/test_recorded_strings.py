"""Whatever a run records, each text of it is data: in pages, exports and terminals; and a seeded secret is in none of them, nor in a dump.

Spools are forged here, as a hostile program that runs as the same user could write them.
"""

from __future__ import annotations

import html
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from leadline.book.ingest import ingest
from leadline.book.place import VARIABLE, Place, find_place
from leadline.book.query import STATUSES
from leadline.book.spool import as_json, new_uid
from leadline.book.store import Store
from leadline.server.read.prometheus import MOST_KINDS
from leadline.server.read.runs import ENDED
from serving import PASSWORD, Client, Served, book, wait_until
from test_pages import elements

MARK = "zq7"
HOSTILE = f"<script>{MARK}()</script>\"'><img src=x onerror={MARK}()>{{{{7*7}}}}\x1b]8;;http://evil.example/\x07l\x1b[2J\u202egnp\u200b\r\n<!--"
STEERING = ("\x1b", "\u202e", "\x07")
FORBIDDEN = (*STEERING, "\u200b")


def forged(place: Place) -> str:
    """A run of Ansible in which every text is hostile; its id."""
    uid, now = new_uid(), time.time_ns() // 1000
    numbers = iter(range(1, 1000))

    def event(kind: str, **body: Any) -> str:
        return as_json({"n": next(numbers), "ts": now, "kind": kind} | body)

    x = HOSTILE
    result = {"part": "result", "status": "failed", "changed": True, "started": now, "ended": now, "item": x, "delegated_to": x}
    lines = [
        event("begin", uid=uid, run_kind="ansible", name=x, argv=[x, x], labels={"k": x, x: x}, inputs={x: x, "n": 1}, parent=None, cwd=x,
              user=x, host=x, facts={x: x}, version=x, pid=1, pid_start=None, boot=""),
        event("file", path=x, size=5, modified=now, hash="0" * 64, text=x),
        event("artifact", artifact_kind=x, path=x), event("artifact", artifact_kind="capture", path="/nowhere/" + x),
        event("ansible.playbook", format=1, path=x, ansible=x, python=x, arguments={x: x}),
        event("ansible.play", play=1, uuid=x, name=x, hosts=x, strategy=x, at=x, labels={x: x}),
        *(event("ansible.task", task=n, play=1, uuid=x, name=x, action=action, file=x, line=1, role=x, tags=[x], args={x: x}, handler=False,
                no_log=False) for n, action in ((1, x), (2, "setup"))),
        event("ansible.result", task=1, host=x, **result,
              content={"msg": x, "diff": [{"before": x, "after": "y", "before_header": x}], "stdout": x, x: x}),
        event("ansible.result", task=2, host="h1", content={"ansible_facts": {x: x, "ansible_os": {x: [x]}}}, **result),
        event("ansible.stats", hosts={x: {"ok": 1}}, custom={x: {x: x}}),
        event("label", key="late", value=x), event("ansible.note", what=x, host=x, text=x),
        event("end", rc=1, signal=None, summary=x, metrics={x: 1.5, "wall_s": 2.0}, lost=0),
    ]  # fmt: skip
    place.make()
    place.spool_of(uid).write_text("\n".join(lines) + "\n")
    place.log_of(uid).write_text(x + "\n")
    return uid


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with book(tmp_path_factory.mktemp("strings")) as served:
        served.user("ann", "--admin")
        served.start()
        yield served


@pytest.fixture(scope="module")
def run(served: Served) -> str:
    uid = forged(Place(served.book))
    client = served.client(token=served.token_of("ann"))
    wait_until(lambda: client.call("GET", f"/runs/{uid}").json.get("run", {}).get("status") == "failed", "the forged run")
    survey = {"q": {"kind": "str", "help": HOSTILE, "default": "a"}, "e": {"kind": "enum", "choices": [HOSTILE, "b"], "default": "b"}}
    made = client.call("PUT", "/projects/main/templates/odd", command=f"echo '{MARK}' {{q}}", about=HOSTILE, survey=survey, approval=True)
    assert made.status == 200, made.text
    client.call("POST", "/tokens", name=HOSTILE, scope="viewer")
    client.call("PUT", f"/runs/{uid}/labels/mine", value=HOSTILE)
    client.call("POST", f"/templates/{made.json['template']}/start", inputs={"q": HOSTILE})
    client.call("POST", f"/templates/{made.json['template']}/schedules", cron="0 0 1 1 *", inputs={"q": HOSTILE})
    client.call("DELETE", "/users/" + "x")  # an entry of the audit that was refused
    served.template = made.json["template"]  # type: ignore[attr-defined]
    return uid


def pages(served: Served, client: Client, uid: str) -> list[str]:
    results = client.call("GET", f"/runs/{uid}/results").json["results"]
    queued = client.call("GET", "/runs").json["waiting"][0]["uid"]
    template = served.template  # type: ignore[attr-defined]
    found = [
        "/runs", f"/runs/{uid}", f"/runs/{uid}/results", "/search?text=gnp", f"/compare?one={uid}&other={queued}", "/history?metric=wall_s",
        f"/runs/{uid}/hosts/h1/facts", "/templates", f"/templates/{template}", "/schedules", "/hooks", "/tokens", "/projects", "/users",
        "/audit", "/days", f"/runs/{uid}/given/0", f"/runs/{uid}/evidence",
        f"/runs/{queued}", f"/runs?label=k%3D{MARK}", f"/api/v1/runs/{uid}/export",
    ]  # fmt: skip
    return found + [f"/runs/{uid}/results/{result['n']}" for result in results]


def test_every_recorded_text_is_shown_and_is_no_part_of_any_page(served: Served, run: str) -> None:
    client = served.client(token=served.token_of("ann"))
    shown = 0
    for path in pages(served, client, run):
        answer = client.get(path)
        assert answer.status == 200, (path, answer.text[-500:])
        page = answer.text
        found = elements(page)
        assert [a for tag, a in found if tag == "script" and MARK in str(a)] == [], path
        assert [tag for tag, a in found if tag == "img" or any(name.startswith("on") for name in a)] == [], path
        assert f"{MARK}()</script>" not in page, path
        assert f"{MARK}()&gt;49" not in page, path
        assert [text for text in FORBIDDEN if text in page] == [], path
        links = [urlsplit(str(a["href"])) for tag, a in found if tag == "a"]
        assert [link for link in links if link.scheme or link.netloc] == [], path
        shown += html.unescape(page).count(MARK)
    assert shown > 40


def test_json_has_the_text_as_it_is_and_is_never_read_as_a_page(served: Served, run: str) -> None:
    client = served.client(token=served.token_of("ann"))
    for path in (f"/runs/{run}.json", f"/api/v1/runs/{run}", f"/api/v1/runs/{run}/log", "/runs.json", f"/api/v1/runs/{run}/facts"):
        answer = client.get(path)
        if answer.status == 200:
            assert answer.header("content-type") == "application/json", path
            assert answer.header("x-content-type-options") == "nosniff", path
            json.loads(answer.body)
    output = client.get(f"/api/v1/runs/{run}/output")
    assert output.header("content-type").startswith("text/plain")
    assert output.body == (HOSTILE + "\n").encode()


def test_metrics_hold_against_kinds_of_any_name(served: Served, run: str) -> None:
    place = Place(served.book)
    for number in range(20):
        uid = new_uid()
        line = {"n": 1, "ts": 1, "kind": "begin", "uid": uid, "run_kind": f'x{number}"}}\n{HOSTILE}', "name": "n", "argv": [], "cwd": "/"}
        line |= {"user": "u", "host": "h", "version": "1", "pid": 1, "pid_start": None, "boot": ""}
        place.spool_of(uid).write_text(as_json(line) + "\n")
    client = served.client(token=served.token_of("ann"))
    wait_until(lambda: len(client.call("GET", "/runs?host=h&limit=100").json["runs"]) == 20, "the runs")
    lines = client.get("/metrics").text.splitlines()
    kinds = {found[1] for line in lines if (found := re.match(r'leadline_runs_total\{kind="((?:[^"\\\n]|\\[\\"n])*)"', line))}
    assert (len(kinds), "other" in kinds) == (MOST_KINDS + 1, True)
    # A series of each kind and status, and fewer than 20 others.
    assert len(kinds) * len({*STATUSES, *ENDED}) + 20 < 200
    assert len(lines) < 200
    for line in lines:
        if not line.startswith("# "):
            assert re.fullmatch(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\[\\"n])*",?)+\})? [0-9.]+', line), line


@pytest.mark.parametrize(
    "words",
    ["book list", "book show {run}", "book search gnp", "book diff {run} last", "book tasks {run}", "book results {run}",
     "book hosts {run}", "token list", "template list", "schedule list", "user audit", "book log {run}"],
)  # fmt: skip
def test_a_terminal_is_not_steered_by_what_was_recorded(served: Served, run: str, words: str) -> None:
    terminal, side = pty.openpty()
    line = [sys.executable, "-m", "leadline", *words.format(run=run).split()]
    child = subprocess.Popen(line, env=served.environment, stdout=side, stderr=side)
    os.close(side)
    got = b""
    try:
        while piece := os.read(terminal, 65536):
            got += piece
    except OSError:
        pass  # its other side is closed
    os.close(terminal)
    assert child.wait(30) == 0, got
    text = got.decode("utf-8", "replace").replace("\x1b[0m", "")
    assert [c for c in STEERING if c in text] == [], text[:400]


# -- secrets -----------------------------------------------------------------------------------------------------------

SECRET = "sEEded-41c9-secret"


def dump(place: Place) -> str:
    """Every row of every table as text."""
    if place.dsn is None:
        with sqlite3.connect(place.store) as db:
            return "\n".join(db.iterdump())
    store = Store(place)
    tables = [row["tablename"] for row in store.rows("select tablename from pg_tables where schemaname = 'leadline_book'")]
    assert len(tables) > 20
    rows = [str(row["text"]) for table in tables for row in store.rows(f"select t::text as text from leadline_book.{table} t")]
    store.close()
    return "\n".join(rows)


def test_a_secret_is_in_no_dump_file_export_audit_or_process(place: Place, tmp_path: Path) -> None:
    """On both stores, with a run in which it is used while all that can be seen from outside is read."""
    (tmp_path / "serve.err").touch()
    served = Served(tmp_path / "book", dict(os.environ) | {VARIABLE: place.variable})
    try:
        served.start()
        client = served.client()
        client.call("POST", "/secrets/key")
        assert client.call("PUT", "/projects/main/secrets/db", value=SECRET).status == 200
        go = tmp_path / "go"
        command = f"sh -c 'cat $LEADLINE_INPUTS; until [ -e {go} ]; do sleep 0.05; done'"
        survey = {"p": {"kind": "secret"}}
        template = client.call("PUT", "/projects/main/templates/t", command=command, survey=survey, secrets={"db": "db"}).json["template"]
        uid = client.call("POST", f"/templates/{template}/start", inputs={"p": SECRET + "2"}).json["run"]
        wait_until(lambda: "***" in client.get(f"/api/v1/runs/{uid}/output").text, "its output")
        processes = [folder / name for folder in Path("/proc").glob("[0-9]*") for name in ("cmdline", "environ")]
        seen = b"".join(piece for path in processes for piece in read(path))
        client.call("PUT", "/projects/main/secrets/bad", value="")  # refused, and in the audit
        go.touch()
        wait_until(lambda: client.get(f"/runs/{uid}.json").json["run"]["status"] == "ok", "the end")
        again = client.call("POST", f"/runs/{uid}/rerun").json["run"]
        wait_until(lambda: client.get(f"/runs/{again}.json").json["run"]["status"] == "ok", "the second")
        hook = client.call("PUT", "/projects/main/hooks/start/h", template="main/t", secret="db").json["address"]
        client.ask("POST", hook, b"{}", {"X-Leadline-Timestamp": "1", "X-Leadline-Signature": SECRET})
        user = {"user": "ann", "password": SECRET + "-password", "admin": True}
        assert client.call("POST", "/users", **user).status == 200
        session = served.client()
        assert session.log_in("ann", SECRET + "-password").status == 303
        served.client().log_in("ann", SECRET + "-wrong")
        exported = session.call("GET", f"/runs/{uid}/export").text
        paths = ("/audit", "/hooks", "/projects/main/secrets", f"/runs/{uid}", f"/templates/{template}")
        pages = [session.get(path).text for path in paths]
    finally:
        served.stop()
    where = find_place()
    assert where is not None
    assert SECRET not in dump(where)
    assert SECRET.encode() not in seen
    assert SECRET not in exported + "".join(pages) + served.complaints()
    assert uid in dump(where)
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "secrets.key":
            assert SECRET.encode() not in file.read_bytes(), file
    assert not [path for path in Path("/tmp").glob("leadline-*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert PASSWORD not in dump(where)


def read(path: Path) -> Iterator[bytes]:
    try:
        yield path.read_bytes()
    except OSError:
        return


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""


def test_ingest_of_forged_events_leaves_a_store_that_can_be_read(place: Place) -> None:
    store = Store(place)
    uid = forged(place)
    ingest(place, store)
    assert store.rows("select status from run where uid = ?", (uid,)) == [{"status": "failed"}]
    assert not place.spool_of(uid).exists()
    store.close()

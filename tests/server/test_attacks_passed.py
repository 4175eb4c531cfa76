"""Attacks that a server of an earlier day let pass, each as whoever tried it did it: over the wire, or as another user of the host.

More of each kind in test_attacks.py, test_lock_out.py, test_leaving.py, test_code_words.py and test_turns.py.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from serving import PASSWORD, Client, Served, book, wait_until
from test_lock_out import try_from

SECRET = "Tr0ub4dor&3 <\"quoted\">\nsecond line of it"
FORMS = """
import base64, json, os, sys, urllib.parse
secret = json.load(open(os.environ["LEADLINE_INPUTS"]))["key"]
print(secret)
print(base64.b64encode(secret.encode()).decode())
print(base64.b64encode(f"user:{secret}".encode()).decode())
print(urllib.parse.quote_plus(secret), urllib.parse.quote(secret, safe=""))
print(json.dumps(secret))
print("the end")
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with book(tmp_path_factory.mktemp("passed")) as served:
        served.user("ann", "--admin")
        served.user("bob")
        served.do("user", "role", "main", "bob", "--role", "editor")
        served.do("secret", "key")
        served.start()
        yield served
        assert served.complaints() == ""


@pytest.fixture
def ann(served: Served) -> Client:
    return served.client(token=served.token_of("ann"))


def saved(client: Client, name: str, command: str, **more: object) -> str:
    answer = client.call("PUT", f"/projects/main/templates/{name}", command=command, **more)
    assert answer.status == 200, answer.text
    return str(answer.json["template"])


def status(client: Client, uid: str) -> str:
    return str(client.call("GET", f"/runs/{uid}").json["run"]["status"])


def test_many_launches_of_one_template_hold_up_nobody_else(served: Served, ann: Client) -> None:
    bob = served.client(token=served.token_of("bob"))
    slow, other = saved(bob, "slow", "sleep 600"), saved(ann, "other", "true")
    asked = [str(bob.call("POST", f"/templates/{slow}/start").json["run"]) for _ in range(120)]
    uid = str(ann.call("POST", f"/templates/{other}/start").json["run"])
    wait_until(lambda: status(ann, uid) == "ok", "the run of somebody else")
    assert [status(ann, one) for one in asked].count("running") <= 1
    ann.call("DELETE", f"/templates/{slow}")
    for one in asked:
        if status(ann, one) == "running":
            ann.call("POST", f"/runs/{one}/cancel")
            wait_until(lambda one=one: status(ann, one) == "cancelled", "the end of it")


def test_a_namesake_gets_nothing_of_who_had_the_name(served: Served, ann: Client) -> None:
    bob = served.client(token=served.token_of("bob"))
    template = saved(ann, "mine", "true")
    schedule = bob.call("POST", f"/templates/{template}/schedules", cron="0 0 1 1 *").json["schedule"]
    session = served.client()
    session.log_in("bob")
    assert ann.call("DELETE", "/users/bob").json["schedules"] == [schedule]
    served.user("bob")
    served.do("user", "role", "main", "bob", "--role", "editor")
    assert (bob.call("GET", "/me").status, session.get("/runs").status) == (401, 303)
    with sqlite3.connect(served.book / "book.sqlite") as db:
        db.execute("update schedule set active = 1, next_due = ? where uid = ?", (time.time_ns() // 1000 - 1, schedule))

    def note() -> str:
        return next(str(one["last_note"]) for one in ann.call("GET", "/schedules").json["schedules"] if one["uid"] == schedule)

    wait_until(lambda: note() == "bob may not start it any more", "the time of the schedule")
    assert ann.call("GET", f"/runs?template={template}").json == {"runs": [], "next": None, "waiting": []}


def test_strangers_lock_nobody_out(served: Served) -> None:
    known = served.client()
    assert known.log_in("ann").status == 303
    for n in range(12):
        served.client().log_in("ann", f"wrong {n}")
    assert served.client().log_in("ann").status == 429
    assert (known.log_in("ann").status, try_from(served, "127.0.0.3", "ann")) == (303, 303)
    key = str(served.do("user", "login-link", "ann")["link"]).partition("key=")[2]
    assert served.client(browser=True).form("/login/once", key=key).status == 303


def test_no_form_of_a_secret_is_in_the_output(served: Served, ann: Client) -> None:
    ann.call("PUT", "/projects/main/secrets/prod", value=SECRET)
    template = saved(ann, "prints", f"{sys.executable} -c {shlex.quote(FORMS)}", secrets={"key": "prod"})
    uid = str(ann.call("POST", f"/templates/{template}/start").json["run"])
    wait_until(lambda: status(ann, uid) == "ok", "the run")
    out = ann.ask("GET", f"/api/v1/runs/{uid}/output").text
    assert out.endswith("the end\n")
    plain = [SECRET, *SECRET.splitlines(), base64.b64encode(SECRET.encode()).decode(), quote_plus(SECRET), json.dumps(SECRET)[1:-1]]
    plain.append(base64.b64encode(f"user:{SECRET}".encode()).decode()[8:])
    assert [form for form in plain if form in out] == []


def test_an_answer_is_no_part_of_a_program(served: Served, ann: Client, tmp_path: Path) -> None:
    mark, survey = tmp_path / "mark", {"who": {"kind": "str"}}
    answer = ann.call("PUT", "/projects/main/templates/greet", command="sh -c 'echo {who}'", survey=survey)
    assert answer.status == 422 and "part of a program" in answer.text
    template = saved(ann, "greet", "sh -c 'echo \"$1\"' sh {who}", survey=survey)
    for typed in (f"$(touch {mark})", f"x; touch {mark}", f"`touch {mark}`", f"\"; touch {mark} #", f"'; touch {mark} '"):
        uid = str(ann.call("POST", f"/templates/{template}/start", inputs={"who": typed}).json["run"])
        wait_until(lambda uid=uid: status(ann, uid) == "ok", "the run")
        assert ann.ask("GET", f"/api/v1/runs/{uid}/output").text == f"{typed}\n"
    assert not mark.exists()


def test_who_is_disabled_starts_nothing_any_more(served: Served, ann: Client) -> None:
    served.user("eve")
    served.do("user", "role", "main", "eve", "--role", "editor")
    eve = served.client(token=served.token_of("eve"))
    template = saved(eve, "of-eve", "true")
    schedule = eve.call("POST", f"/templates/{template}/schedules", cron="* * * * *").json["schedule"]
    waiting = eve.call("PUT", "/projects/main/templates/asks", command="true", approval=True).json["template"]
    asked = str(eve.call("POST", f"/templates/{waiting}/start").json["run"])
    served.do("user", "disable", "eve")
    assert (eve.call("GET", "/me").status, eve.call("POST", f"/templates/{template}/start").status) == (401, 401)
    schedules = {one["uid"]: one["active"] for one in ann.call("GET", "/schedules").json["schedules"]}
    assert not schedules[schedule]
    assert asked not in [one["uid"] for one in ann.call("GET", "/runs").json["waiting"]]


def test_a_request_with_two_ends_starts_nothing_for_somebody_else(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(head % (5 + len(smuggled)) + smuggled)
        got = b"".join(iter(lambda: raw.recv(65536), b""))
    assert got.startswith(b"HTTP/1.1 400") and got.count(b"HTTP/1.1 ") == 1


def test_passwords_do_not_go_over_a_network_in_the_clear_without_a_word(tmp_path: Path) -> None:
    with book(tmp_path) as other:
        other.user("ann", "--admin")
        other.start("--listen", "0.0.0.0:0")
        wait_until(lambda: "TLS" in (tmp_path / "serve.err").read_text(), what="the warning")
        said = (tmp_path / "serve.err").read_text()
        assert "warning: " in said
        assert ("root" in said) == (os.geteuid() == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_no_book(tmp_path: Path) -> None:
    with book(tmp_path) as other:
        other.book.mkdir(mode=0o700)
        os.chown(other.book, 65534, 65534)
        done = other.leadline("serve", "--listen", "127.0.0.1:0")
        assert (done.returncode, "error: the directory of the book is not safe" in done.stderr) == (2, True)
        done = other.leadline("user", "create", "eve", "--admin", "--password-file", "-", given=PASSWORD)
        assert done.returncode == 2
        assert [path for path in other.book.rglob("*") if path.is_file()] == []


def test_who_changes_the_book_is_found_by_a_head_kept_elsewhere(tmp_path: Path) -> None:
    with book(tmp_path) as own:
        own.record("sh", "-c", "exit 3", name="failed")
        own.leadline("book", "list")
        head = own.leadline("book", "verify", "--head").stdout.strip()
        assert own.leadline("book", "verify", "--against", head).returncode == 0
        with sqlite3.connect(own.book / "book.sqlite") as db:
            db.execute("update run set status = 'ok', rc = 0 where name = 'failed'")
        done = own.leadline("book", "verify", "--against", head)
        assert (done.returncode, "changed" in done.stdout) == (1, True)

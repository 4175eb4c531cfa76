"""A crawler over the links of the pages, as each role and as a token of each scope; test_operations_crawled.py asks each operation.

No answer is a failure of the server, each has the headers that a browser needs, only the login sets a cookie, and nothing that was seeded
as a secret comes back, whoever asks for whatever.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from leadline.book.ingest import ingest
from leadline.book.recorder import Recorder
from leadline.server.web.pages import filled
from serving import PASSWORD, Answer, Client, book, serving
from test_rights import CALLERS, World

PLANTED = "planted-7f3a-secret"

HEADERS = {
    "content-security-policy", "x-content-type-options", "referrer-policy", "cross-origin-opener-policy", "cross-origin-resource-policy",
    "cache-control",
}  # fmt: skip
LINKS = 50  # of each caller
# A path without an empty step, and a query of which each name has a value: neither /runs/, /templates//start nor ?name=.
WHOLE = re.compile(r"(/|(/[^/?#]+)+)?(\?[^=&#]+=[^=&#]+(&[^=&#]+=[^=&#]+)*)?(#[^#]+)?")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with book(tmp_path_factory.mktemp("crawler")) as served:
        world = World(served)
        world.do("secret.set", project="alpha", secret="planted", value=PLANTED)
        world.do("user.create", user="planted", password=PLANTED)
        world.do("hook.start", project="alpha", name="in", template=world.template, secret="planted")
        survey = {"p": {"kind": "secret"}}
        typed = world.do("template.save", project="alpha", name="typed", command="true", survey=survey, approval=True)["template"]
        world.do("template.start", template=typed, inputs={"p": PLANTED})
        of_nothing(world)
        yield world


def of_nothing(world: World) -> None:
    """Runs of which next to nothing is known: a link must not be made of what is empty."""
    names = ("name", "host", "user_name", "cwd", "summary", "template", "parent", "facts_hash", "kind", "version")
    with world.store.writing() as db:
        there = {row["name"] for row in db.execute("select name from pragma_table_info('run')").fetchall()}
    for name in [name for name in names if name in there]:
        recorder = Recorder(world.place)
        recorder.begin("command", "of nothing", ["true"])
        recorder.end(0)
        ingest(world.place, world.store)
        with world.store.writing() as db:
            db.execute(f"update run set {name} = '' where uid = ?", (recorder.uid,))


def check(answer: Answer, where: object) -> None:
    names = {name.lower() for name, _ in answer.headers}
    assert answer.status < 500, (where, answer.status, answer.body[:300])
    assert names >= HEADERS, (where, HEADERS - names)
    assert "set-cookie" not in names, where
    assert "server" not in names, where
    assert not names & {"access-control-allow-origin", "access-control-allow-credentials"}, where
    body = answer.body.decode("utf-8", "replace")
    assert PLANTED not in body, where
    assert PASSWORD not in body, where
    assert "Traceback" not in body, where
    if answer.status in (401, 403, 404, 405, 408, 413, 415, 422, 429) and answer.header("content-type").startswith("application/json"):
        assert set(answer.json["error"]) == {"kind", "message", "detail", "hint", "where"}, where


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.forms: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        for name in ("href", "src", "data-stream"):
            if value := given.get(name):
                self.found.append(value)
        if tag == "form" and given.get("method") == "post":
            self.forms.append(given.get("action") or "")


def crawl(client: Client, caller: str) -> int:
    """Follows the links of all pages that they lead to; how many addresses that were."""
    waiting, seen = ["/runs", "/templates", "/projects", "/tokens", "/history", "/days"], set[str]()
    while waiting and len(seen) < LINKS:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        answer = client.get(path) if not path.endswith("/stream") else client.ask("HEAD", path)
        if not path.startswith("/static/"):
            check(answer, (caller, path))
        assert answer.status in (200, 303), (caller, path, answer.status, answer.body[-300:])
        if not answer.header("content-type").startswith("text/html") or answer.header("content-disposition"):
            continue
        links = Links()
        links.feed(answer.text)
        for link in links.found:
            parts = urlsplit(link)
            assert WHOLE.fullmatch(link), (path, link)
            assert not parts.scheme and not parts.netloc, (path, link)
            if parts.path and parts.path.startswith("/"):
                waiting.append(link.partition("#")[0])
        for action in links.forms:
            assert re.fullmatch(r"/(form/[a-z]+\.[a-z-]+|logout)", action), (path, action)
    return len(seen)


@pytest.mark.parametrize("caller", [name for name in CALLERS if name != "anonymous"])
def test_every_link_of_every_page_leads_somewhere(world: World, caller: str) -> None:
    assert crawl(world.clients[caller], caller) > 10


def test_links_lead_somewhere_in_a_book_that_is_empty(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert crawl(served.client(browser=True), "owner") > 10
        served.record("true")
        assert crawl(served.client(browser=True), "owner") > 10
        assert served.complaints() == ""


def test_without_a_login_there_is_nothing_but_the_login(world: World) -> None:
    client = world.served.client()
    paths = ("/", "/runs", "/runs/last", f"/runs/{world.run}", "/days", "/search?text=needle", "/users", "/audit")
    for path in paths:
        answer = client.get(path)
        check(answer, path)
        assert (answer.status, answer.body) == (303, b""), path
        assert client.get(f"{path.partition('?')[0]}.json").status in (401, 404), path
    assert client.get("/metrics").status == 401
    assert client.get("/login").status == 200


@pytest.mark.parametrize("method", ["TRACE", "OPTIONS", "PATCH", "CONNECT", "PROPFIND", "get"])
def test_other_methods_are_refused(world: World, method: str) -> None:
    for path in ("/runs", "/api/v1/runs", "/api/v1/users", "/metrics", "/static/page.js", f"/hooks/{world.run}"):
        answer = world.clients["ann"].ask(method, path)
        assert answer.status in (400, 404, 405), (path, answer.status)
        assert PLANTED not in answer.body.decode("utf-8", "replace")


FOREIGN = ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {})
KINDS = ("application/json", "application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "")


def test_no_write_is_taken_from_another_site_in_any_form(world: World) -> None:
    """Each operation that writes, as REST and as a form, with the session of an administrator."""
    client, chance = world.served.client(), random.Random(3)
    assert client.log_in("ann").status == 303
    client.browser = False
    paths = client.get("/openapi.json").json["paths"]
    writes = [(m.upper(), path, one["operationId"]) for path, methods in paths.items() for m, one in methods.items() if m != "get"]
    before = world.do("user.audit", limit=1)["entries"][0]["n"]
    for method, path, name in writes:
        for headers in FOREIGN:
            for kind in chance.sample(KINDS, 2):
                sent = headers | ({"Content-Type": kind} if kind else {})
                filled = path.replace("{run}", world.run).replace("{template}", world.template).replace("{project}", "alpha")
                filled = re.sub(r"{\w+}", "ann", filled)
                body = b'{"user": "mallory", "password": "long enough password", "name": "x", "role": "admin"}'
                assert client.ask(method, filled, body, sent).status == 403, (method, path, sent)
                assert client.ask("POST", f"/form/{name}", b"user=mallory&name=x&password=long+enough+pw", sent).status == 403, (name, sent)
    assert world.do("user.audit", limit=1)["entries"][0]["n"] == before


def test_a_stream_and_a_page_are_not_given_to_another_site(world: World) -> None:
    client = world.served.client()
    client.log_in("ann")
    for path in (f"/api/v1/runs/{world.run}/stream", f"/api/v1/runs/{world.run}/output", "/runs.json"):
        for origin in ("https://evil.example", "null", world.served.url + ".evil.example", world.served.url.replace("http", "https")):
            assert client.get(path, Origin=origin).status == 403, (path, origin)
        assert client.get(path, Origin=world.served.url).status == 200, path


def test_a_password_is_changed_by_json_or_the_form_of_this_site_alone(world: World) -> None:
    client = world.served.client()
    client.log_in("viewer")
    body = json.dumps({"password": "another long password", "old_password": PASSWORD}).encode()
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ""):
        own = {"Sec-Fetch-Site": "same-origin"} | ({"Content-Type": kind} if kind else {})
        assert client.ask("PUT", "/api/v1/users/viewer/password", body, own).status == 415, kind
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json"):
        sent = {"Sec-Fetch-Site": "same-origin", "Content-Type": kind}
        assert client.ask("POST", "/form/user.password", body, sent).status == 415, kind
    assert client.ask("GET", f"/form/user.password?{urlencode({'user': 'viewer', 'password': 'x' * 12})}").status == 405
    assert client.form("/form/user.password", user="viewer", password="another long password").status == 403
    assert client.form("/form/user.password", user="viewer", password="another long password", old_password="wrong").status == 403
    assert world.served.client().log_in("viewer").status == 303


def test_a_value_of_the_answer_that_is_empty_makes_no_other_site() -> None:
    assert filled("/{summary}/evil.example", {"summary": ""}) == "/"
    assert filled("/runs/{run}", {"run": "a/b"}) == "/runs/a%2Fb"


@pytest.mark.parametrize(
    "then", ["//evil.example/", "/\\evil.example", "https://evil.example/", "/\t/evil.example", "javascript:alert(1)", "\\\\evil"]
)
def test_a_form_leads_on_within_this_site_alone(world: World, then: str) -> None:
    client = world.served.client()
    client.log_in("ann")
    answer = client.form("/form/run.pin", run=world.run, pinned="true", then=then)
    assert (answer.status, answer.header("location")) == (303, "/")


def test_a_name_of_the_answer_cannot_turn_the_way(world: World) -> None:
    client = world.served.client()
    client.log_in("ann")
    answer = client.form("/form/run.label", run=world.run, key="k", value="v", then="/{run}/..//{labels}")
    assert answer.header("location").startswith(f"/{world.run}/")



def test_the_server_had_nothing_to_complain_of(world: World) -> None:
    ignored = ("Invalid HTTP request received.",)
    assert [line for line in world.served.complaints().splitlines() if not line.endswith(ignored)] == []

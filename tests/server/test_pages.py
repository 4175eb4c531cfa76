"""The pages of a book, as they are on the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from serving import Client, Served, serving, wait_until

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("pages")) as served:
        served.record("sh", "-c", "printf '\\033[31mred\\033[0m\\nneedle in the output\\n'", name="colours", labels=("release=7.2",))
        served.record("sh", "-c", "echo bad >&2; exit 3", name="fails")
        served.record(
            "echo", HOSTILE, "\x1b]8;;http://evil.example/\x07link", "\u202egnp", name=f"{HOSTILE}\u202e", labels=("note=" + HOSTILE,)
        )
        client = served.client()
        wait_until(lambda: len(client.get("/runs.json").json["runs"]) == 3)
        yield served


@pytest.fixture
def client(served: Served) -> Client:
    return served.client()


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Tags with their attributes, as a browser reads them."""
    parser = Elements()
    parser.feed(page)
    return parser.found


def runs(client: Client, query: str = "") -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.get(f"/runs.json{query}").json["runs"]
    return found


def uid_of(client: Client, name: str) -> str:
    return next(str(run["uid"]) for run in runs(client) if run["name"] == name)


def test_runs_are_listed_newest_first_and_filtered(client: Client) -> None:
    assert [run["name"] for run in runs(client)][1:] == ["fails", "colours"]
    assert [run["name"] for run in runs(client, "?status=failed")] == ["fails"]
    assert [run["name"] for run in runs(client, "?label=release%3D7.2")] == ["colours"]
    assert [run["name"] for run in runs(client, "?text=colo")] == ["colours"]
    assert runs(client, "?text=nothing-has-this") == []
    assert runs(client, "?project=other") == []


def test_the_next_page_goes_on_where_this_one_ended(client: Client) -> None:
    seen, before = [], ""
    for _ in range(3):
        answer = client.get(f"/runs.json?limit=1{before}").json
        seen += [run["uid"] for run in answer["runs"]]
        before = f"&before={answer['next']}"
    assert seen == [run["uid"] for run in runs(client)]
    assert answer["next"] is None


def test_a_line_of_output_is_found(client: Client) -> None:
    found = client.get("/search.json?text=needle+in").json
    assert [(run["name"], run["line"], run["at"]) for run in found["runs"]] == [("colours", "needle in the output", 13)]
    assert found["all_output_searched"] is True


def test_a_run_is_shown_by_its_first_letters_and_as_last(client: Client) -> None:
    uid = uid_of(client, "fails")
    run = client.get(f"/runs/{uid[:6]}.json").json["run"]
    assert (run["uid"], run["rc"], run["status"]) == (uid, 3, "failed")
    assert client.get("/runs/last.json").json["run"]["uid"] == runs(client)[0]["uid"]


def test_two_runs_are_compared(client: Client) -> None:
    one, other = uid_of(client, "colours"), uid_of(client, "fails")
    found = client.get(f"/compare.json?one={one}&other={other}").json["differences"]
    differences = {(d["part"], d["name"]): (d["one"], d["other"]) for d in found}
    assert differences[("run", "rc")] == (0, 3)
    assert differences[("label", "release")] == ("7.2", None)
    assert differences[("argument", "2")][1] == "echo bad >&2; exit 3"


def test_a_figure_over_time_is_that_of_the_runs(client: Client) -> None:
    points = client.get("/history.json?metric=wall_s&name=fails").json["points"]
    assert [point["uid"] for point in points] == [uid_of(client, "fails")]
    assert points[0]["value"] == client.get(f"/runs/{points[0]['uid']}.json").json["run"]["metrics"]["wall_s"]
    assert client.get("/history?metric=wall_s&name=fails").text.count("<circle") == 1


def test_colours_are_shown_and_nothing_else_of_a_terminal(client: Client) -> None:
    page = client.get(f"/runs/{uid_of(client, 'colours')}").text
    assert '<span class="c-red">red</span>' in page
    assert "\x1b" not in page


PLACES = (
    "/runs",
    "/search?text=script",
    "/history",
    "/projects",
    "/tokens",
    "/users",
    "/audit",
    "/runs?label=" + "%3Cscript%3E",
    "/runs/last",
)


@pytest.mark.parametrize("path", PLACES)
def test_nothing_recorded_or_asked_becomes_a_part_of_the_page(client: Client, path: str) -> None:
    page = client.get(path)
    assert page.status == 200
    assert [attributes for tag, attributes in elements(page.text) if tag == "script"] == [{"src": "/static/page.js", "defer": None}]
    assert [tag for tag, _ in elements(page.text) if tag in ("img", "iframe", "object", "embed", "base")] == []
    assert "\u202e" not in page.text
    assert "\x1b" not in page.text


def test_hostile_text_is_there_to_be_read(client: Client) -> None:
    page = client.get("/runs/last").text
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 2
    assert "evil.example" in page.partition('id="log"')[0]  # of the argument; in the output, the link is gone
    assert "evil.example" not in page.partition('id="log"')[2].partition("</pre>")[0]


@pytest.mark.parametrize(
    "path", ["/runs", "/runs/last", "/login", "/nothing", "/runs/zzzzzz", "/api/v1/runs", "/static/style.css", "/openapi.json"]
)
def test_every_answer_says_what_a_browser_must_not_do(client: Client, path: str) -> None:
    answer = client.get(path)
    policy = answer.header("content-security-policy")
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("server") == ""


@pytest.mark.parametrize(
    "path", ["/runs", "/runs/last", "/search?text=a", "/compare", "/history", "/tokens", "/projects", "/users", "/audit", "/login"]
)
def test_pages_need_nothing_that_the_policy_refuses(client: Client, path: str) -> None:
    found = elements(client.get(path).text)
    assert [
        tag for tag, attributes in found if tag == "style" or any(name == "style" or name.startswith("on") for name in attributes)
    ] == []
    addresses = [value or "" for _, attributes in found for name, value in attributes.items() if name in ("src", "href", "action")]
    assert [address for address in addresses if re.match(r"\w+:|//", address)] == []


@pytest.mark.parametrize(
    "path", ["/runs", "/runs/last", "/search?text=a", "/compare", "/history", "/tokens", "/projects", "/users", "/audit"]
)
def test_every_field_has_a_label(client: Client, path: str) -> None:
    found = elements(client.get(path).text)
    fields = [
        attributes.get("id") for tag, attributes in found if tag in ("input", "select", "textarea") and attributes.get("type") != "hidden"
    ]
    assert len(set(fields)) == len(fields)
    assert set(fields) <= {attributes.get("for") for tag, attributes in found if tag == "label"} - {None}


@pytest.mark.parametrize(
    "path", ["/nothing", "/runs/zzzzzz.json", "/api/v1/runs/zzzzzz", "/api/v1/nothing", "/runs.json?limit=x", "/api/v1/runs?nothing=1"]
)
def test_every_error_has_the_one_shape(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status in (404, 422)
    assert set(answer.json["error"]) == {"kind", "message", "detail", "hint", "where"}


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
ERRORS = (
    ("GET", "/nothing", 404), ("GET", "/static/nothing.css", 404), ("GET", "/api/v1/nothing", 404), ("GET", "/runs/zzzzzz", 404),
    ("GET", "/api/v1/runs/zzzzzz", 404), ("GET", "/logout", 405), ("POST", "/runs", 405), ("GET", "/form/token.create", 405),
    ("POST", "/login", 415), ("GET", "/api/v1/runs?nothing=1", 422), ("GET", "/runs?limit=x", 422), ("GET", "/hooks/x", 405),
)  # fmt: skip


@pytest.mark.parametrize(("method", "path", "status"), ERRORS)
def test_an_error_is_a_page_for_people_and_json_for_programs(client: Client, method: str, path: str, status: int) -> None:
    headers = {"Sec-Fetch-Site": "same-origin"}
    body = b"" if method == "POST" else None
    page = client.ask(method, path, body, BROWSER | headers)
    assert (page.status, page.header("content-type")) == (status, "text/html; charset=utf-8")
    found = elements(page.text)
    assert ("link", {"rel": "stylesheet", "href": "/static/style.css"}) in found  # a page as all others
    assert any(attributes.get("role") == "alert" for _, attributes in found)
    if not path.startswith(("/runs", "/logout")) or method == "POST":
        for accept in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
            answer = client.ask(method, path, body, headers | accept)
            assert (answer.status, answer.header("content-type")) == (status, "application/json")
            assert set(answer.json["error"]) == {"kind", "message", "detail", "hint", "where"}


def test_only_get_where_only_get_is(client: Client) -> None:
    assert client.ask("POST", "/api/v1/runs", b"{}", {"Content-Type": "application/json"}).status == 405
    assert client.ask("HEAD", "/runs").status == 200


def test_every_page_has_a_twin_of_json(client: Client) -> None:
    for path in ("/runs", "/tokens", "/projects", "/users", "/audit", "/runs/last", "/projects/main"):
        assert client.get(path).status == 200, path
        assert isinstance(json.loads(client.get(f"{path}.json").body), dict), path


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""

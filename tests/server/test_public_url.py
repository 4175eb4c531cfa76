"""Behind a proxy, below a path: every address that goes out leads back, whether the proxy cuts the path off or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from leadline.errors import LeadlineError
from leadline.server.web.address import Public, read_public
from serving import PASSWORD, Client, Served, book, wait_until
from test_pages import elements
from test_provider import SECRET, Provider, by_rsa, issuer  # noqa: F401

PUBLIC = "https://ops.example/leadline"
ROOT = "/leadline"
BEHIND = {"Host": "ops.example", "X-Forwarded-Proto": "https", "Accept": "text/html"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[Served]:  # noqa: F811
    folder = tmp_path_factory.mktemp("public")
    (file := folder / "provider.json").write_text(json.dumps({"issuer": issuer, "client_id": "leadline", "client_secret": SECRET}))
    file.chmod(0o600)
    with book(folder) as served:
        served.user("ann", "--admin")
        served.record("echo", "needle", name="first")
        served.do("template", "save", "main", "t", "--command", "echo {n}", "--survey", '{"n": {"kind": "int", "default": 1}}')
        served.start("--public-url", PUBLIC + "/", "--proxy", "127.0.0.1", "--provider", str(file))
        yield served
        assert served.complaints() == ""


def ask(client: Client, method: str, path: str, body: bytes | None = None) -> tuple[int, str, str]:
    """Status, where it leads, and the text."""
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", "Origin": "https://ops.example"}
    answer = client.ask(method, path, body, BEHIND | (form if body is not None else {}))
    return answer.status, answer.header("location"), answer.text


@pytest.mark.parametrize("cut", [False, True], ids=["the path as it is", "the path cut off"])
def test_all_that_goes_out_leads_back(served: Served, cut: bool) -> None:
    at = "" if cut else ROOT
    client = served.client()
    assert ask(client, "GET", f"{at}/runs")[:2] == (303, f"{ROOT}/login?next=%2Fruns")
    logged_in = client.ask("POST", f"{at}/login", f"account=ann&password={PASSWORD.replace(' ', '+')}&next=/runs".encode(),
                           BEHIND | {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://ops.example"})  # fmt: skip
    assert (logged_in.status, logged_in.header("location")) == (303, f"{ROOT}/runs")
    cookies = [value.lower() for name, value in logged_in.headers if name == "set-cookie"]
    assert [("secure" in one, f"path={ROOT}" in one) for one in cookies] == [(True, True)] * 2
    assert logged_in.header("strict-transport-security")
    template = json.loads(client.ask("GET", f"{at}/api/v1/templates").text)["templates"][0]["uid"]
    paths = ("", "/", "/runs", "/runs/last", "/templates", f"/templates/{template}", "/schedules", "/hooks", "/tokens", "/projects",
             "/projects/main", "/users", "/account", "/audit", "/search?text=needle", "/history?metric=wall_s", "/days", "/hosts",
             "/compare", "/nothing")  # fmt: skip
    seen = set[str]()
    for path in paths:
        status, location, text = ask(client, "GET", f"{at}{path}" or "/")
        if location:
            assert (path, location) in (("", f"{ROOT}/runs"), ("/", f"{ROOT}/runs"))
            continue
        assert status == (404 if path == "/nothing" else 200), path
        names = ("href", "src", "action", "data-stream")
        out = [value or "" for _, given in elements(text) for name, value in given.items() if name in names]
        assert [one for one in out if not one.startswith((f"{ROOT}/", "#"))] == [], path
        seen |= {one for one in out if one.startswith(ROOT) and "/form/" not in one and not one.endswith(("/logout", "/export"))}
    for one in sorted(seen):
        assert ask(client, "GET", one.removeprefix(ROOT) if cut else one)[0] in (200, 303), one
    started = ask(client, "POST", f"{at}/form/template.start", f"template={template}&input.n=2&then=/runs/%7Brun%7D".encode())
    assert started[1].startswith(f"{ROOT}/runs/")
    uid = started[1].rpartition("/")[2]
    wait_until(lambda: json.loads(client.ask("GET", f"{at}/api/v1/runs/{uid}").text)["run"]["status"] == "ok", "the run")
    assert ask(client, "POST", f"{at}/logout", b"")[1] == f"{ROOT}/login"


def test_a_login_at_the_provider_comes_back_below_the_path(served: Served) -> None:
    Provider.change, Provider.sign = staticmethod(lambda _h, _c: None), staticmethod(by_rsa)
    answer = served.client().ask("GET", f"{ROOT}/login/provider?next=/runs", None, BEHIND)
    asked = urlsplit(answer.header("location")).query
    assert "redirect_uri=https%3A%2F%2Fops.example%2Fleadline%2Flogin%2Fprovider%2Fback" in asked
    assert f"path={ROOT}/login/provider/back" in answer.header("set-cookie").lower()


def test_links_for_others_have_the_public_address(served: Served) -> None:
    assert served.do("user", "login-link", "ann")["link"].startswith(f"{PUBLIC}/login/once?key=")
    served.do("secret", "key")
    served.do("secret", "set", "main", "k", "--value-file", "-", given="a key of hooks")
    made = served.do("hook", "start", "main", "in", "--template", "main/t", "--secret", "k")
    assert (made["address"], made["url"]) == (f"/hooks/{made['hook']}", f"{PUBLIC}/hooks/{made['hook']}")
    assert [one["url"] for one in served.do("hook", "list")["hooks"]] == [made["url"]]
    for path in ("/openapi.json", f"{ROOT}/openapi.json"):
        assert served.client().get(path).json["servers"] == [{"url": ROOT}]


def test_another_site_is_another_also_behind_a_proxy(served: Served) -> None:
    for origin in ("https://evil.example", "http://ops.example", "https://ops.example.evil", "https://ops.example:8443", "null"):
        sent = BEHIND | {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"}
        assert served.client().ask("POST", f"{ROOT}/login", b"account=ann&password=x", sent).status == 403, origin


def test_a_path_that_only_begins_alike_is_another(served: Served) -> None:
    for path in (f"{ROOT}x/runs", f"{ROOT}/..%2f..", f"{ROOT}//runs", f"{ROOT}{ROOT}/healthz"):
        assert served.client().get(path).status == 404, path
    assert served.client().get(f"{ROOT}/healthz").json == {"ok": True}


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    for text in ("ops.example", "ftp://x", "https://", "https://x/a?b", "https://x/a#b", "https://u:p@x/", "https://x/../a", 
                 "https://x/a b", "https://x/%2e", "https://x:port", 'https://x/"'):  # fmt: skip
        with pytest.raises(LeadlineError):
            read_public(text)
    assert read_public("https://X.example:443/a/b/") == Public("https://x.example", "/a/b")
    assert read_public("http://[::1]:8080") == Public("http://[::1]:8080", "")
    with book(tmp_path) as served:
        done = served.leadline("serve", "--listen", "127.0.0.1:0", "--public-url", "ops.example")
    assert (done.returncode, done.stderr.count("error: ")) == (2, 1)

"""Webhooks in and out."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from leadline.errors import LeadlineError
from leadline.server import hooks
from serving import Answer, Served, serving, wait_until

KEY = "a key for hooks"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("hooks")) as served:
        client = served.client()
        client.call("POST", "/secrets/key")
        client.call("PUT", "/projects/main/secrets/hook-key", value=KEY)
        survey = {"branch": {"kind": "str", "default": "main"}, "n": {"kind": "int", "default": 1, "most": 5}}
        client.call("PUT", "/projects/main/templates/build", command="echo {branch} {n}", survey=survey, at_once=20)
        yield served


@pytest.fixture(scope="module")
def hook(served: Served) -> str:
    made = served.client().call(
        "PUT", "/projects/main/hooks/start/build", template="main/build", secret="hook-key", inputs={"branch": "push.ref", "n": "count"}
    )
    return str(made.json["address"])


def send(served: Served, address: str, body: bytes, *, key: str = KEY, at: float | None = None, **headers: str) -> Answer:
    stamp = str(int(time.time() if at is None else at))
    sent = {"X-Leadline-Timestamp": stamp, "X-Leadline-Signature": hooks.signature(key.encode(), stamp, body)}
    return served.client().ask("POST", address, body, sent | {k.replace("_", "-"): v for k, v in headers.items()})


def test_a_signed_request_starts_the_template_with_values_of_its_body(served: Served, hook: str) -> None:
    answer = send(served, hook, json.dumps({"push": {"ref": "feature; $(id)"}, "count": 3}).encode())
    assert answer.status == 202
    uid = answer.json["run"]
    wait_until(lambda: served.client().get(f"/runs/{uid}.json").json["run"]["status"] == "ok", "the run")
    assert served.client().get(f"/api/v1/runs/{uid}/output").text == "feature; $(id) 3\n"


def test_a_request_is_taken_once(served: Served, hook: str) -> None:
    now = time.time()
    assert [send(served, hook, b"{}", at=now - 7).status for _ in range(2)] == [202, 403]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"key": "another"}, 403),
        ({"at": -301}, 403),
        ({"at": 301}, 403),
        ({"X_Leadline_Signature": ""}, 403),
        ({"X_Leadline_Signature": "sha256="}, 403),
        ({"X_Leadline_Timestamp": "1e9"}, 403),
        ({"address": "/hooks/nothing"}, 403),
    ],
    ids=str,
)
def test_what_is_not_signed_well_is_refused(served: Served, hook: str, change: dict[str, Any], status: int) -> None:
    change = dict(change)
    address, at = change.pop("address", hook), time.time() + change.pop("at", 0)
    answer = send(served, address, b"{}", at=at, **change)
    assert (answer.status, answer.json["error"]["message"]) == (status, "the signature is not valid, too old, or was used before")


def test_another_body_under_the_same_signature_is_refused(served: Served, hook: str) -> None:
    stamp = str(int(time.time()))
    sent = {"X-Leadline-Timestamp": stamp, "X-Leadline-Signature": hooks.signature(KEY.encode(), stamp, b'{"count": 1}')}
    assert served.client().ask("POST", hook, b'{"count": 2}', sent).status == 403


def test_values_of_a_body_are_checked_as_those_of_a_form(served: Served, hook: str) -> None:
    assert send(served, hook, b'{"count": 6}').status == 422
    assert send(served, hook, b"not json").status == 422


def test_a_body_that_is_too_long_is_refused(served: Served, hook: str) -> None:
    assert send(served, hook, b"x" * ((1 << 20) + 1)).status == 413


REFUSED = (
    "http://127.0.0.1/", "http://localhost:8080/", "http://[::1]/", "http://0.0.0.0/", "http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/",
    "http://[::ffff:127.0.0.1]/", "http://2130706433/", "http://0x7f.1/", "http://224.0.0.1/", "http://[::]/",
)  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_nothing_is_sent_to_this_host(url: str) -> None:
    with pytest.raises(LeadlineError):
        hooks.post(url, b"{}", {})


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x/", "http://", "http://user:pass@example.com/", "http://x:99999/", "http://exa mple/", "//x/"]
)
def test_only_plain_addresses_of_the_web_are_taken(url: str) -> None:
    with pytest.raises(LeadlineError):
        hooks.address_of(url, resolve=False)


class Receiver(http.server.BaseHTTPRequestHandler):
    got: list[tuple[str, dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


def test_the_name_is_resolved_once_signed_and_not_redirected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver on loopback, which only this test allows."""
    monkeypatch.setattr(hooks, "_allow", lambda _address: None)
    asked: list[str] = []
    real = hooks.socket.getaddrinfo
    monkeypatch.setattr(hooks.socket, "getaddrinfo", lambda host, *rest, **more: asked.append(host) or real("127.0.0.1", *rest, **more))
    Receiver.got = []
    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        stamp = str(int(time.time()))
        headers = {"X-Leadline-Timestamp": stamp, "X-Leadline-Signature": hooks.signature(b"k", stamp, b'{"a": 1}')}
        assert hooks.post(f"http://pager.example:{server.server_port}/in?x=1", b'{"a": 1}', headers) == 302
    finally:
        server.shutdown()
        server.server_close()
    assert [(path, sent["host"], body) for path, sent, body in Receiver.got] == [
        ("/in?x=1", f"pager.example:{server.server_port}", b'{"a": 1}')
    ]
    assert asked.count("pager.example") == 1


def test_an_end_is_told_once_and_a_refused_address_is_noted(served: Served) -> None:
    client = served.client()
    client.call("PUT", "/projects/main/hooks/tell/pager", url="http://localhost/in", secret="hook-key", events="failed")
    client.call("PUT", "/projects/main/templates/fails", command="false")
    uid = client.call("POST", f"/templates/{template_of(served, 'fails')}/start").json["run"]
    wait_until(lambda: client.get(f"/runs/{uid}.json").json["run"]["status"] == "failed", "the run")
    found = wait_until(lambda: [h for h in client.call("GET", "/hooks").json["hooks"] if h["name"] == "pager" and h["last"]], "the note")
    assert found[0]["last"].startswith("not sent: ")
    assert "is not an address to send to" in found[0]["last"]


def template_of(served: Served, name: str) -> str:
    return next(str(t["uid"]) for t in served.client().call("GET", "/templates").json["templates"] if t["name"] == name)


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""

"""Webhooks in and out."""

from __future__ import annotations

import email
import email.utils
import http.server
import ipaddress
import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import housekeeping
from leadline.server.launch import hooks, notifications
from leadline.server.operation import perform
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME
from serving import Answer, Client, Served, serving, wait_until

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


def test_two_hooks_have_two_addresses_and_each_takes_a_request_once(served: Served, hook: str) -> None:
    """Also with the same key: what was sent to one says nothing of the other; and a name is of one hook."""
    client = served.client()
    made = {"template": "main/build", "secret": "hook-key"}
    assert client.call("PUT", "/projects/main/hooks/start/build", **made).status == 422
    assert client.call("PUT", "/projects/main/hooks/tell/build", url="https://pager.example/", secret="hook-key").status == 422
    other = str(client.call("PUT", "/projects/main/hooks/start/second", **made).json["address"])
    assert other != hook
    now = time.time()
    assert [send(served, address, b"{}", at=now - 20).status for address in (hook, other, hook, other)] == [202, 202, 403, 403]
    wait_until(lambda: not (found := client.get("/runs.json?limit=5").json)["waiting"] and found["runs"][0]["status"] == "ok", "both runs")
    [kept] = [one for one in client.call("GET", "/hooks").json["hooks"] if one["name"] == "second"]
    assert client.call("DELETE", f"/hooks/{kept['uid']}").status == 200
    assert send(served, other, b"{}").status == 403


@pytest.mark.parametrize("path", ["/hooks/%00", "/hooks/..", "/hooks/%2e%2e%2fx", "/hooks/" + "a" * 5000, "/hooks/%ff"])
def test_an_address_that_is_no_hook_is_refused(served: Served, path: str) -> None:
    assert send(served, path, b"{}").status in (403, 404)


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
    "http://[::ffff:127.0.0.1]/", "http://2130706433/", "http://0x7f.1/", "http://224.0.0.1/", "http://[::]/", "http://127.1/", "http://0.0.0.1/",
    "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:7f00:1::]/", "http://[fd00:ec2::254]/", "http://100.100.100.200/",
    "http://[::127.0.0.1]/", "http://localhost./", "http://[::1%25lo]/",
)  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_nothing_is_sent_to_this_host(url: str) -> None:
    with pytest.raises(LeadlineError):
        notifications.post(url, b"{}", {})


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x/", "http://", "http://user:pass@example.com/", "http://x:99999/", "http://exa mple/", "//x/", "http://["]
)
def test_only_plain_addresses_of_the_web_are_taken(url: str) -> None:
    with pytest.raises(LeadlineError):
        notifications.address_of(url, resolve=False)


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
    monkeypatch.setattr(notifications, "_allow", lambda _address: None)
    asked: list[str] = []
    real = notifications.socket.getaddrinfo
    def here(host: str, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1", *rest, **more)

    monkeypatch.setattr(notifications.socket, "getaddrinfo", here)
    Receiver.got = []
    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        stamp = str(int(time.time()))
        headers = {"X-Leadline-Timestamp": stamp, "X-Leadline-Signature": hooks.signature(b"k", stamp, b'{"a": 1}')}
        assert notifications.post(f"http://pager.example:{server.server_port}/in?x=1", b'{"a": 1}', headers) == 302
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


def test_a_receiver_that_hangs_keeps_nothing_else_waiting(place: Place) -> None:
    """Neither what follows a run in the server, nor what is told to others."""
    store, rounds = Store(place), housekeeping.Housekeeping(place)
    hanging, told = socket.create_server(("127.0.0.1", 0)), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=lambda: told.append(answered(other)), daemon=True).start()
        patch.setattr(notifications, "_allow", lambda _address: None)
        do(place, store, "secret.key")
        do(place, store, "secret.set", project="main", secret="k", value=KEY)
        for name, one in (("a", hanging), ("b", other)):
            url = f"http://127.0.0.1:{one.getsockname()[1]}/{name}"
            do(place, store, "hook.tell", project="main", name=name, url=url, secret="k", events="ok")
        recorder = Recorder(place)
        recorder.begin("command", "ends", ["true"])
        recorder.end(0)
        with rounds.working():
            connection, _ = hanging.accept()
            before = rounds.rounds
            wait_until(lambda: rounds.rounds > before + 2 and told, "the others", patience_s=notifications.SEND_S / 2)
            assert told == ["POST /b HTTP/1.1"]
            connection.close()
            hanging.close()
    store.close()


def answered(server: socket.socket) -> str:
    """The first line of a request."""
    connection, _ = server.accept()
    with connection:
        line = connection.recv(65536).decode().partition("\r\n")[0]
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    return line


def do(place: Place, store: Store, operation: str, **given: Any) -> Any:
    return perform(BY_NAME[operation], OWNER, store, place, given)


@pytest.mark.parametrize("form", ["http://{}/", "http://{}:8080/x"])
def test_nothing_is_sent_to_an_address_of_the_host_s_own_in_the_network(form: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("the kernel has no route out")
        own = probe.getsockname()[0]
    with pytest.raises(LeadlineError, match="is not an address to send to"):
        notifications.post(form.format(own), b"{}", {})
    notifications._allow(ipaddress.ip_address("192.0.2.1"))


class Mailbox(socketserver.StreamRequestHandler):
    """As much of SMTP as it takes to be sent a mail. extensions: what it says that it has."""

    extensions: tuple[str, ...] = ()
    got: list[tuple[str, str, str]]

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        sender = reader = ""
        while line := self.rfile.readline().decode().strip():
            word, _, rest = line.partition(":")
            word = word.upper()
            if word.startswith("EHLO"):
                lines = ["test", *self.extensions]
                self.wfile.write("".join(f"250{'-' if n < len(lines) else ' '}{text}\r\n" for n, text in enumerate(lines, 1)).encode())
                continue
            sender, reader = (rest, reader) if word == "MAIL FROM" else (sender, rest) if word == "RCPT TO" else (sender, reader)
            if word == "DATA":
                self.wfile.write(b"354 go on\r\n")
                text = b"".join(iter(self.rfile.readline, b".\r\n")).decode()
                self.got.append((sender.partition(" ")[0], reader, text))
            self.wfile.write(b"221 bye\r\n" if word == "QUIT" else b"250 fine\r\n")


@pytest.fixture
def mailbox() -> Iterator[int]:
    """Its port."""
    Mailbox.got = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mailbox) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def ended(client: Client, uid: str) -> None:
    wait_until(lambda: client.get(f"/runs/{uid}.json").json["run"]["status"] in ("ok", "failed"), "the run")


def last_of(client: Client, name: str) -> str:
    return str(wait_until(lambda: next((h["last"] for h in client.call("GET", "/hooks").json["hooks"] if h["name"] == name), ""), name))


def test_a_mail_is_sent_when_a_run_has_failed(served: Served, mailbox: int) -> None:
    client = served.client()
    about = {"to": "ann@example.org", "sender": "leadline@example.org", "server": f"127.0.0.1:{mailbox}"}
    assert client.call("PUT", "/projects/main/hooks/mail/letters", **about).status == 200
    with_password = about | {"login": "ann", "secret": "hook-key"}
    assert client.call("PUT", "/projects/main/hooks/mail/secretly", **with_password).status == 200
    saved = client.call("PUT", "/projects/main/templates/mailed", command="false")
    uid = client.call("POST", f"/templates/{saved.json['template']}/start").json["run"]
    ended(client, uid)
    assert last_of(client, "letters") == "sent to ann@example.org"
    assert last_of(client, "secretly") == "not sent: the server has no TLS, and a password is not sent without"
    [(sender, reader, text)] = [one for one in Mailbox.got if uid in one[2]]
    assert (sender, reader) == ("<leadline@example.org>", "<ann@example.org>")
    assert "Subject: leadline: mailed failed\r\n" in text
    assert f"next: leadline book show {uid}" in text
    head, _, body = text.partition("\r\n\r\n")
    assert email.utils.parsedate_to_datetime(email.message_from_string(text)["Date"]).tzinfo is not None
    assert [line for line in body.splitlines() if re.search(r":\s*$", line)] == []  # what is empty is left out
    for name in ("Date", "Message-ID"):
        assert re.search(rf"^{name}: \S", head, re.MULTILINE), head
    for name in ("started", "ended"):
        assert re.search(rf"^{name}: 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\r?$", body, re.MULTILINE), body
    for name in ("letters", "secretly"):
        client.call("DELETE", f"/hooks/{hook_of(client, name)}")


def hook_of(client: Client, name: str) -> str:
    return next(str(hook["uid"]) for hook in client.call("GET", "/hooks").json["hooks"] if hook["name"] == name)


BAD_MAILS = (
    {"to": "ann@example.org\nBcc: x@y.z"}, {"to": "ann"}, {"server": "127.0.0.1:x"}, {"server": "h:70000"}, {"secret": "hook-key"},
    {"events": "never"},
)  # fmt: skip


@pytest.mark.parametrize("change", BAD_MAILS, ids=str)
def test_a_mail_that_cannot_be_meant_is_refused(served: Served, change: dict[str, str]) -> None:
    about = {"to": "ann@example.org", "sender": "leadline@example.org"} | change
    assert served.client().call("PUT", "/projects/main/hooks/mail/bad", **about).status == 422


def test_a_template_is_started_when_a_run_has_ended_and_not_by_itself(served: Served) -> None:
    client = served.client()
    survey = {"of": {"kind": "str"}, "how": {"kind": "str"}}
    command = "sh -c 'echo $0 $1; exit 1' {of} {how}"
    cleaner = client.call("PUT", "/projects/main/templates/cleaner", command=command, survey=survey).json["template"]
    hook = {"template": cleaner, "events": "failed", "inputs": {"of": "run", "how": "status"}}
    assert client.call("PUT", "/projects/main/hooks/after/clean", **(hook | {"inputs": {"of": "password"}})).status == 422
    assert client.call("PUT", "/projects/main/hooks/after/clean", **hook).status == 200
    saved = client.call("PUT", "/projects/main/templates/broken", command="false")
    uid = client.call("POST", f"/templates/{saved.json['template']}/start").json["run"]
    ended(client, uid)
    [cleaned] = wait_until(lambda: client.call("GET", f"/runs?template={cleaner}").json["runs"], "the run that follows")
    ended(client, cleaned["uid"])
    assert client.get(f"/api/v1/runs/{cleaned['uid']}/output").text == f"{uid} failed\n"
    launch = client.call("GET", f"/runs/{cleaned['uid']}").json["run"]["launch"]
    assert (launch["cause"], launch["after"]) == ("after hook clean", uid)
    wait_until(lambda: last_of(client, "clean") == "not started: such a hook had started the run", "the end of the chain")
    assert len(client.call("GET", f"/runs?template={cleaner}").json["runs"]) == 1


def template_of(served: Served, name: str) -> str:
    return next(str(t["uid"]) for t in served.client().call("GET", "/templates").json["templates"] if t["name"] == name)


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""

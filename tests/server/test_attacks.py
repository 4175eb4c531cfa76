"""What others have been broken into by: paths, odd requests, odd bytes, too many connections, proxies that lie."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.server.operation import Operation
from leadline.server.table import OPERATIONS
from serving import PASSWORD, Served, book, wait_until

SECRET = "root:x:0:0: not for you"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with book(tmp_path_factory.mktemp("attacks")) as served:
        served.user("ann", "--admin")
        served.user("bob")
        served.do("user", "role", "main", "bob", "--role", "runner")
        served.start()
        yield served


def artifacts(served: Served, *paths: str) -> tuple[str, dict[str, int]]:
    """A run that says it made these files; its id, and the number of each."""
    place = Place(served.book)
    recorder = Recorder(place)
    recorder.begin("command", "makes", ["true"])
    for path in paths:
        recorder._spool.event("artifact", artifact_kind="file", path=path)  # type: ignore[union-attr]  # as a forged spool would
    recorder.end(0)
    store = Store(place)
    ingest(place, store)
    rows = store.rows("select a.n, a.path from artifact a join run r on r.id = a.run where r.uid = ?", (recorder.uid,))
    store.close()
    return recorder.uid, {row["path"]: row["n"] for row in rows}


def test_only_plain_files_that_a_run_names_by_their_true_path_are_sent(served: Served, tmp_path: Path) -> None:
    real = tmp_path.resolve() / "real.txt"
    real.write_text("made by the run")
    hidden = tmp_path.resolve() / "hidden.txt"
    hidden.write_text(SECRET)
    link, folder = tmp_path.resolve() / "link.txt", tmp_path.resolve() / "folder"
    link.symlink_to(hidden)
    folder.symlink_to(tmp_path)
    os.mkfifo(tmp_path.resolve() / "fifo")
    own = Path(os.path.realpath(served.book))
    (own / "work").mkdir(exist_ok=True)
    (own / "work" / "made.txt").write_text("made by the run")
    odd = [
        str(link), f"{folder}/hidden.txt", f"{real.parent}/x/../hidden.txt", "/proc/self/environ", "/dev/zero", "relative.txt",
        str(tmp_path),
        str(tmp_path.resolve() / "fifo"), "/etc/../etc/passwd", f"{real}#", f"{real}\0", str(own / "book.sqlite"), str(own / "server.json"),
    ]  # fmt: skip
    uid, numbers = artifacts(served, str(real), str(own / "work" / "made.txt"), *odd)
    client = served.client(token=served.token_of("ann"))
    wait_until(lambda: client.call("GET", f"/runs/{uid}").status == 200, "the run")
    answer = client.call("GET", f"/runs/{uid}/files/{numbers[str(real)]}")
    assert (answer.status, answer.text, answer.header("content-type")) == (200, "made by the run", "application/octet-stream")
    assert answer.header("content-disposition").startswith("attachment;")
    assert client.call("GET", f"/runs/{uid}/files/{numbers[str(own / 'work' / 'made.txt')]}").status == 200
    odd = [path.replace("\0", "\ufffd") for path in odd]
    assert {path: client.call("GET", f"/runs/{uid}/files/{numbers[path]}").status for path in odd} == dict.fromkeys(odd, 404)


TRAVERSALS = (
    "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/%2fetc/passwd",
    "/static/style.css%00",
    "/static/..%5capp.py", "/../../etc/passwd", "/runs/..%2f..%2fetc%2fpasswd", "/api/v1/runs/%2e%2e", "/api/v1/runs/last/files/..%2f1",
    "/api/v1/runs/%00/log", "/api/v1/runs/last/files/-1", "/runs/%ff", "/static-secret/x", "/hooks/../runs",
)  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_out(served: Served, path: str) -> None:
    answer = served.client(token=served.token_of("ann")).get(path)
    assert answer.status in (404, 405, 422)
    assert b"root:" not in answer.body
    assert b"import annotations" not in answer.body


ODD_VALUES: tuple[Any, ...] = (
    "", "0", "-1", "9" * 30, "1e3", "null",
    "last", "../..", "%2e%2e", "\x00", "\u202e", "<script>alert(1)</script>", "{{7*7}}", "' or 1=1 --",
    "a" * 70_000,
    None, True, 1.5, [], {}, {"a": {"b": [1]}}, -(2**70), "--upload-pack=touch /tmp/x", "\ud800", "ěšč", "main", "zzzzzzzzzzzz",
)  # fmt: skip


@pytest.mark.parametrize("who", ["ann", "bob", "nobody"])
def test_no_operation_breaks_on_odd_values(served: Served, who: str) -> None:
    """Each operation of the table with odd values in each place, as each kind of caller: no answer is a failure of the server."""
    client = served.client(token=served.token_of(who)) if who != "nobody" else served.client()
    chance = random.Random(7)
    for operation in OPERATIONS:
        for _ in range(12):
            values = {i.name: chance.choice(ODD_VALUES) for i in operation.inputs if chance.random() < 0.9}
            if (operation.name, who) in (("user.disable", "ann"), ("user.delete", "ann")):
                values.pop("user", None)
            status, text = odd_call(client, operation, values)
            assert status < 500, (operation.name, values, text)
            if status >= 400 and "error" in text[:20]:
                assert set(json.loads(text)["error"]) == {"kind", "message", "detail", "hint", "where"}


def odd_call(client: Any, operation: Operation, values: dict[str, Any]) -> tuple[int, str]:
    from urllib.parse import quote, urlencode

    def text(value: Any) -> str:
        return str(value).encode("utf-8", "replace").decode()

    path = operation.path
    for name in operation.in_path:
        path = path.replace("{" + name + "}", quote(text(values.pop(name, "x"))[:2000], safe=""))
    if operation.writes:
        body = json.dumps(values).encode("utf-8", "replace")
        answer = client.ask(operation.method, f"/api/v1{path}", body, {"Content-Type": "application/json"})
    else:
        wanted = urlencode({k: text(v)[:3000] for k, v in values.items()})
        if operation.name in ("run.stream", "run.output"):
            wanted = "from=0"
        answer = client.ask("GET", f"/api/v1{path}?{wanted}")
    return answer.status, answer.body.decode("utf-8", "replace")


def test_bodies_that_are_no_json_are_told_so(served: Served) -> None:
    client = served.client(token=served.token_of("ann"))
    for body in (
        b"",
        b"[]",
        b"1",
        b'"x"',
        b"{",
        b'{"name": NaN}',
        b"\xff\xfe",
        b"{" * 5000,
        b'{"a":' * 5000,
        b'{"name": "a", "name": "b"}x',
    ):
        assert client.ask("POST", "/api/v1/tokens", body, {"Content-Type": "application/json"}).status == 422, body[:20]
    nested = {"x": {}}
    for _ in range(50):
        nested = {"x": nested}
    assert client.call("PUT", "/projects/main/templates/deep", command="true", survey=nested).status == 422


def test_a_length_that_lies_and_a_request_that_is_none_are_refused(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    for raw in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=20) as raw_socket:
            raw_socket.sendall(raw)
            got = raw_socket.recv(100)
        assert got.startswith((b"HTTP/1.1 4", b"HTTP/1.1 303"))


CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
TWO_ENDS = {
    "te-cl": b"POST /login HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"Content-Length: 4\r\n\r\n",
    "cl-te": b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n" + CHUNKED + b"\r\n",
    "te-cl of zero": b"GET /healthz HTTP/1.1\r\nHost: x\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n",
    "te in 1.0": b"POST /login HTTP/1.0\r\nHost: x\r\n" + CHUNKED + b"\r\n",
    "two te": b"POST /login HTTP/1.1\r\nHost: x\r\n" + CHUNKED * 2 + b"\r\n",
    "odd te": b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\nContent-Length: 4\r\n\r\n",
    "two lengths": b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
    "blank before the colon": b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\nContent-Length: 4\r\n\r\n",
    "a line that goes on": b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
}


@pytest.mark.parametrize("how", TWO_ENDS)
def test_a_request_that_ends_in_two_places_is_refused_with_its_connection(served: Served, how: str) -> None:
    """A proxy in front takes one end and we the other: what is sent behind is then answered as the request of somebody else."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(TWO_ENDS[how] + SMUGGLED)
        got = b"".join(iter(lambda: raw.recv(65536), b""))  # until it is closed
    assert got.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")), got[:200]
    assert got.count(b"HTTP/1.1 ") == 1, got
    assert b'"ok"' not in got


def test_a_body_in_pieces_alone_is_taken(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    token = served.token_of("ann")
    head = f"POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n".encode()
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(head + CHUNKED + b'\r\ne\r\n{"name": "in"}\r\n0\r\n\r\n')
        assert raw.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/runs", "/logout", "/login/provider/back"])
def test_a_cookie_of_many_backslashes_takes_no_time(served: Served, path: str) -> None:
    """It took the server 5 s of a CPU for each request, of whoever sent it."""
    assert served.process is not None
    before = cpu_ticks(served.process.pid)
    cookie = "; ".join(f'{name}="{chr(92)}1{chr(92) * 29_000}"' for name in ("leadline_session", "leadline_attempt"))
    method = "POST" if path == "/logout" else "GET"
    assert served.client().ask(method, path, b"" if method == "POST" else None, {"Cookie": cookie, "Sec-Fetch-Site": "none"}).status < 500
    assert cpu_ticks(served.process.pid) - before < os.sysconf("SC_CLK_TCK")


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_thousand_idle_connections_do_not_stop_others(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    idle = [socket.create_connection((host, int(port)), timeout=20) for _ in range(1000)]
    try:
        assert served.client().get("/healthz").json == {"ok": True}
    finally:
        for one in idle:
            one.close()


def test_what_a_client_says_of_its_address_counts_only_from_a_named_proxy(tmp_path: Path) -> None:
    for options, expected in (((), "127.0.0.1"), (("--proxy", "127.0.0.1"), "203.0.113.9"), (("--proxy", "192.0.2.1"), "127.0.0.1")):
        folder = tmp_path / str(len(options)) / expected
        folder.mkdir(parents=True)
        with book(folder) as served:
            served.user("ann", "--admin")
            served.start(*options)
            token = served.token_of("ann")
            client = served.client(token=token)
            client.ask(
                "PUT",
                "/api/v1/projects/main/members/ann",
                b'{"role": "admin"}',
                {"Content-Type": "application/json", "X-Forwarded-For": "203.0.113.9"},
            )
            assert client.call("GET", "/audit?limit=1").json["entries"][0]["address"] == expected


def test_under_tls_the_cookie_is_secure_and_the_browser_is_told_to_stay(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    with book(tmp_path) as served:
        served.user("ann", "--admin")
        url = served.start("--tls-cert", str(certificate), "--tls-key", str(key))
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("localhost", int(url.rpartition(":")[2]), timeout=30, context=context)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        connection.request("POST", "/login", f"account=ann&password={PASSWORD.replace(' ', '+')}", headers)
        answer = connection.getresponse()
        assert answer.status == 303
        assert "secure" in (answer.getheader("set-cookie") or "").lower()
        assert (answer.getheader("strict-transport-security") or "").startswith("max-age=")
        connection.close()


def test_who_starts_it_is_warned_of_root_and_of_passwords_in_the_clear(tmp_path: Path) -> None:
    as_root, in_clear = "warning: the server runs as root", "warning: passwords and tokens cross the network in the clear"
    with book(tmp_path) as served:
        served.user("ann", "--admin")
        for options, loopback in ((("--listen", "127.0.0.1:0"), True), (("--listen", "0.0.0.0:0"), False)):
            log = tmp_path / "serve.err"
            log.write_text("")
            served.start(*options)
            wait_until(lambda log=log: "Ctrl-C ends it" in log.read_text(), "the greeting")
            said = log.read_text()
            assert (as_root in said, in_clear in said) == (os.geteuid() == 0, not loopback)
            served.stop()
        begun = served.leadline("serve", "--listen", "0.0.0.0:0", "--background", "--json")
        try:
            assert in_clear in begun.stderr
            assert in_clear.removeprefix("warning: ") in json.loads(begun.stdout)["warnings"][-1]
        finally:
            served.do("serve", "--stop")


def test_a_broken_certificate_is_one_error(tmp_path: Path) -> None:
    with book(tmp_path) as served:
        (tmp_path / "x.pem").write_text("no certificate")
        for options in (
            ("--tls-cert", str(tmp_path / "x.pem"), "--tls-key", str(tmp_path / "x.pem")),
            ("--tls-cert", str(tmp_path / "x.pem")),
        ):
            done = served.leadline("serve", "--listen", "127.0.0.1:0", *options)
            assert (done.returncode, done.stderr.count("error: ")) == (2, 1), done.stderr


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    ignored = ("Invalid HTTP request received.",)
    assert [line for line in served.complaints().splitlines() if not line.endswith(ignored)] == []

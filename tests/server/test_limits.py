"""Connections that send nothing, or a byte now and then, do not keep others out."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.server.web import app, protocol
from leadline.server.web.site import Site
from serving import Client, wait_until

SHORT_S = 0.4


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server in this process, with little patience."""
    monkeypatch.setattr(protocol, "REQUEST_S", SHORT_S)
    monkeypatch.setattr(app, "BODY_S", SHORT_S)
    config = uvicorn.Config(
        app.build(Site(Place(tmp_path / "book"), True)), http=protocol.Impatient, log_level="critical", ws="none", lifespan="off"
    )
    server = uvicorn.Server(config)
    sock = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])), daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server")
    yield sock.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def closed_after_s(connection: socket.socket) -> float:
    began = time.monotonic()
    connection.settimeout(10)
    while connection.recv(1000):
        pass
    return time.monotonic() - began


def test_a_connection_on_which_nothing_comes_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as idle:
        assert closed_after_s(idle) < 5 * SHORT_S


def test_a_request_that_comes_byte_by_byte_is_not_waited_for(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as slow:
        began = time.monotonic()
        with pytest.raises(OSError):  # whichever way the kernel says that it was closed
            while time.monotonic() < began + 10:
                slow.sendall(b"G")
                time.sleep(0.02)
        assert time.monotonic() - began < 5 * SHORT_S


def test_a_body_that_does_not_come_is_refused(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as slow:
        head = f"POST /api/v1/tokens HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
        slow.sendall(head.encode())
        slow.settimeout(10)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_who_is_answered_is_not_cut_off(port: int) -> None:
    """A connection that is used goes on for longer than an idle one."""
    with socket.create_connection(("127.0.0.1", port)) as used:
        used.settimeout(10)
        until = time.monotonic() + 4 * SHORT_S
        while time.monotonic() < until:
            used.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got = b""
            while b'{"ok":true}' not in got:
                got += used.recv(1000)
            time.sleep(SHORT_S / 4)


@pytest.mark.parametrize(("limit", "who"), [("MOST_STREAMS", "owner"), ("MOST_STREAMS_OF_ALL", "all users")])
def test_who_follows_too_many_outputs_is_told_to_end_some(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, who: str
) -> None:
    monkeypatch.setattr(app, limit, 2)
    recorder = Recorder(Place(tmp_path / "book"))
    recorder.begin("command", "goes on", ["sleep"])
    ingest(recorder.place, Store(recorder.place))
    client, path = Client(f"http://127.0.0.1:{port}"), f"/api/v1/runs/{recorder.uid}/stream"
    followed = [client.stream(path) for _ in range(2)]
    assert [one.status for one in followed] == [200, 200]
    refused = client.get(path)
    assert (refused.status, refused.header("retry-after")) == (429, "5")
    assert refused.json["error"]["message"].startswith(f"{who} follow")
    assert refused.json["error"]["hint"].startswith("end some of them")
    assert client.get(f"/api/v1/runs/{recorder.uid}/log").status == 200
    for one in followed:
        one.close()

    def again() -> bool:
        with client.stream(path) as answer:
            return answer.status == 200

    wait_until(again, "a place")


def test_places_of_the_idle_are_free_again(port: int) -> None:
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    for one in idle:
        assert closed_after_s(one) < 10
    assert Client(f"http://127.0.0.1:{port}").get("/healthz").json == {"ok": True}

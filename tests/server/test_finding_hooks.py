"""Findings of a recorder reach the hooks of the logbook, as runs that have ended."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from leadline.book.place import Place
from leadline.book.store import Store
from leadline.recorder.events import into_the_book
from leadline.recorder.incidents import Incident
from leadline.server import housekeeping
from leadline.server.launch import notifications
from leadline.server.operation import perform
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME
from serving import wait_until

AT = 1_900_000_000 * 10**9


def event(change: str) -> Incident:
    return Incident(change, AT, AT, "BLOCK-CHAIN", "table public.t", "high", 31.5, 180.0, "one session blocked three others")


def received(server: socket.socket) -> dict[str, Any]:
    """The body of a request."""
    connection, _ = server.accept()
    with connection:
        text = b""
        while not (b"\r\n\r\n" in text and text.endswith(b"}")):
            text += connection.recv(65536)
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    return dict(json.loads(text.partition(b"\r\n\r\n")[2]))


def test_a_webhook_tells_what_is_new_and_another_what_is_over(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_BOOK", place.variable)
    monkeypatch.setattr(notifications, "_allow", lambda _address: None)  # a receiver on loopback, which only this test allows
    store, told = Store(place), dict[str, Any]()
    with socket.create_server(("127.0.0.1", 0)) as failed, socket.create_server(("127.0.0.1", 0)) as ok:
        for name, value in (("secret.key", {}), ("secret.set", {"project": "main", "secret": "k", "value": "a key for hooks"})):
            perform(BY_NAME[name], OWNER, store, place, value)
        for status, server in (("failed", failed), ("ok", ok)):
            url = f"http://127.0.0.1:{server.getsockname()[1]}/"
            given = {"project": "main", "name": status, "url": url, "secret": "k", "events": status}
            perform(BY_NAME["hook.tell"], OWNER, store, place, given)
            threading.Thread(target=lambda status=status, server=server: told.update({status: received(server)}), daemon=True).start()
        into_the_book(event("new"), tmp_path)
        into_the_book(event("over"), tmp_path)
        with housekeeping.Housekeeping(place).working():
            wait_until(lambda: len(told) == 2, "both hooks")
    store.close()
    assert {status: body["name"] for status, body in told.items()} == {"failed": "BLOCK-CHAIN new", "ok": "BLOCK-CHAIN over"}
    assert told["failed"]["summary"] == "table public.t: one session blocked three others" and told["failed"]["status"] == "failed"

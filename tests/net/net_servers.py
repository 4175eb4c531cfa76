"""Servers of a few lines, for clients that measure: each answers as its function says, one connection after the other."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Serve = Callable[[socket.socket, int], None]


@contextmanager
def serving(serve: Serve, host: str = "127.0.0.1") -> Iterator[int]:
    """The port of a server that calls `serve(connection, number of the connection from 1)` for each connection, in a thread."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.bind((host, 0))
    listener.listen(64)

    def one(connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError):
            serve(connection, number)

    def accept() -> None:
        number = 0
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                number += 1
                threading.Thread(target=one, args=(connection, number), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def read(connection: socket.socket, n: int) -> bytes:
    """So many bytes; raises OSError when the other end closes before."""
    data = b""
    while len(data) < n:
        part = connection.recv(n - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def until_closed(connection: socket.socket) -> bytes:
    """All that the other end sends."""
    data = b""
    while part := connection.recv(65536):
        data += part
    return data


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Of PostgreSQL's protocol."""
    return kind + struct.pack(">i", len(body) + 4) + body


READY = message(b"Z", b"I")
WELCOME = message(b"R", struct.pack(">i", 0)) + message(b"S", b"server_version\x0017.0\0") + READY


def error(state: str, text: str) -> bytes:
    return message(b"E", b"SFATAL\0C" + state.encode() + b"\0M" + text.encode() + b"\0\0")


def start_of_session(connection: socket.socket) -> bytes:
    """Says no to TLS; the start message."""
    while True:
        (length,) = struct.unpack(">i", read(connection, 4))
        body = read(connection, length - 4)
        if body[:4] != struct.pack(">i", 80877103):
            return body
        connection.sendall(b"N")

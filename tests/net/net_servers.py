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


class SqlServer:
    """SQL Server 2022 (16.0.4105), which lets nobody in. heard: the packets that came."""

    NOT_SUPPORTED, OF_THE_LOGIN = 2, 0

    def __init__(self, encryption: int = OF_THE_LOGIN) -> None:
        self.encryption = encryption
        self.heard: list[bytes] = []

    def __call__(self, connection: socket.socket, _: int) -> None:
        assert self._take(connection)[0] == 0x12  # PRELOGIN
        options = bytes([0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF])  # where VERSION and ENCRYPTION are
        self._answer(connection, options + bytes([16, 0, 0x10, 0x09, 0, 0]) + bytes([self.encryption]))
        if self._take(connection)[0] != 0x10:  # LOGIN7
            return
        text = "Login failed for user 'app'.".encode("utf-16le")
        body = struct.pack("<IBBH", 18456, 1, 14, len(text) // 2) + text + b"\0\0" + struct.pack("<I", 1)
        done = struct.pack("<BHHQ", 0xFD, 2, 0, 0)
        self._answer(connection, struct.pack("<BH", 0xAA, len(body)) + body + done)

    def _take(self, connection: socket.socket) -> bytes:
        head = read(connection, 8)
        self.heard.append(head + read(connection, struct.unpack(">H", head[2:4])[0] - 8))
        return self.heard[-1]

    def _answer(self, connection: socket.socket, body: bytes) -> None:
        connection.sendall(struct.pack(">BBHHBB", 4, 1, 8 + len(body), 0, 1, 0) + body)


class Listener:
    """A listener of Oracle 19 that asks once to send the packet again, as they do, and refuses. heard: what was asked for."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.heard: list[bytes] = []

    def __call__(self, connection: socket.socket, _: int) -> None:
        for again in (True, False):
            self.heard.append(self._take(connection))
            text = b"(DESCRIPTION=(TMP=)(VSNNUM=318767104)(ERR=%d)(ALIAS=LISTENER))" % self.error
            body = b"" if again else b"\x22\0" + struct.pack(">H", len(text)) + text
            connection.sendall(struct.pack(">HHBBH", 8 + len(body), 0, 11 if again else 4, 0, 0) + body)

    def _take(self, connection: socket.socket) -> bytes:
        """The connect data; when they are long, a packet of their own follows."""
        packet = self._packet(connection)
        length, at = struct.unpack(">HH", packet[24:28])
        return packet[at : at + length] if len(packet) >= at + length else self._packet(connection)[10:]

    def _packet(self, connection: socket.socket) -> bytes:
        length = read(connection, 2)
        return length + read(connection, struct.unpack(">H", length)[0] - 2)

"""Files of packets as a small writer makes them: connections of PostgreSQL, packet by packet, with known times."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

FIN, SYN, RST, ACK = 1, 2, 4, 16
BEGAN_NS = 1_700_000_000 * 10**9
MS = 1_000_000


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def first(code: int, body: bytes = b"") -> bytes:
    return struct.pack("!II", len(body) + 8, code) + body


def receive(line: socket.socket, until: bytes) -> bytes:
    """What a server sends until then."""
    got = b""
    while until not in got:
        part = line.recv(8192)
        assert part, got
        got += part
    return got


def startup(user: str = "app", database: str = "shop") -> bytes:
    return first(196608, f"user\0{user}\0database\0{database}\0\0".encode())


SSL_REQUEST, GSS_REQUEST = first(80877103), first(80877104)
OK = message("R", struct.pack("!I", 0))
READY, IN_TRANSACTION = message("Z", b"I"), message("Z", b"T")


def query(text: str = "select") -> bytes:
    return message("Q", text.encode() + b"\0")


def answer(rows: int = 1, ready: bytes = READY) -> bytes:
    return message("T", b"\0\0") + message("D", b"\0" * 30) * rows + message("C", b"SELECT\0") + ready


class Packets:
    """A pcap file of Ethernet frames. snaplen: bytes of each that are captured. copied_ns: each packet is seen again so much later.

    sort: by time, else as they were added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.snaplen = 262144
        self.copied_ns: int | None = None
        self.sort = True
        self._rows: list[tuple[int, bytes]] = []
        self._ports = 40_000

    def line(self, client: int = 1, server: int = 2, port: int = 5432, at_ms: float = 0) -> Line:
        """A connection. client, server: last byte of the address."""
        self._ports += 1
        return Line(self, (client, self._ports), (server, port), BEGAN_NS + int(at_ms * MS))

    def add(self, ts_ns: int, frame: bytes) -> None:
        self._rows.append((ts_ns, frame))

    def write(self) -> str:
        with self.path.open("wb") as out:
            out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, self.snaplen, 1))
            later = [] if self.copied_ns is None else [(ts + self.copied_ns, frame) for ts, frame in self._rows]
            rows = self._rows + later
            for ts, frame in sorted(rows, key=lambda row: row[0]) if self.sort else rows:
                captured = frame[: self.snaplen]
                out.write(struct.pack("<IIII", ts // 10**9, ts % 10**9, len(captured), len(frame)) + captured)
        return str(self.path)


class Line:
    """One connection; time goes on by step_ns with each packet, and by server_step_ns with those of the server if that is not None."""

    def __init__(self, packets: Packets, client: tuple[int, int], server: tuple[int, int], ts: int) -> None:
        self.packets, self.client_end, self.server_end, self.ts = packets, client, server, ts
        self.step_ns = MS // 20
        self.server_step_ns: int | None = None
        self.client_net = (10, 0, 0)
        self.seqs = [1000, 5000]
        self.number = 0

    def raw(self, from_client: bool, flags: int, data: bytes = b"", seq: int | None = None) -> None:
        me = 0 if from_client else 1
        ends = [(self.client_end, self.client_net), (self.server_end, (10, 0, 0))]
        ((src, sport), src_net), ((dst, dport), dst_net) = ends if from_client else ends[::-1]
        tcp = struct.pack("!HHIIBBHHH", sport, dport, self.seqs[me] if seq is None else seq, self.seqs[1 - me], 0x50, flags, 512, 0, 0)
        self.number += 1  # each packet has its own, as those of Linux
        head = struct.pack("!BBHHHBBHBBBBBBBB", 0x45, 0, 40 + len(data), self.number, 0x4000, 64, 6, 0, *src_net, src, *dst_net, dst)
        self.packets.add(self.ts, b"\2" * 12 + b"\x08\0" + head + tcp + data)
        self.ts += self.step_ns if from_client or self.server_step_ns is None else self.server_step_ns

    def wait(self, ms: float) -> Line:
        self.ts += int(ms * MS)
        return self

    def handshake(self) -> Line:
        self.raw(True, SYN)
        self.seqs[0] += 1
        self.raw(False, SYN | ACK)
        self.seqs[1] += 1
        self.raw(True, ACK)
        return self

    def client(self, data: bytes) -> Line:
        self.raw(True, ACK, data)
        self.seqs[0] += len(data)
        return self

    def server(self, data: bytes) -> Line:
        self.raw(False, ACK, data)
        self.seqs[1] += len(data)
        return self

    def again(self, data: bytes, *, from_client: bool = False) -> Line:
        """What was sent last comes again."""
        self.raw(from_client, ACK, data, seq=self.seqs[0 if from_client else 1] - len(data))
        return self

    def login(self, user: str = "app") -> Line:
        return self.handshake().client(startup(user)).server(OK + READY)

    def ask(self, ready: bytes = READY, rows: int = 1, after_ms: float = 0, server_ms: float = 0) -> Line:
        """A query and its answer."""
        return self.wait(after_ms).client(query()).wait(server_ms).server(answer(rows, ready))

    def close(self) -> Line:
        return self.client(message("X")).close_at_once()

    def close_at_once(self) -> Line:
        self.raw(True, FIN | ACK)
        self.seqs[0] += 1
        self.raw(False, FIN | ACK)
        self.seqs[1] += 1
        self.raw(True, ACK)
        return self


def a_login(path: Path) -> str:
    """A file with one connection that logs in and asks something."""
    made = Packets(path)
    made.line().login().ask().close()
    return made.write()

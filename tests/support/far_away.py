"""A long way within this host: packets through a tun device that come back late, as those of another host would.

The kernel of both ends sees a real round trip, which a proxy cannot give: its connections end at the proxy. The device has an address,
NEAR; who connects to FAR comes to NEAR, from FAR, with every packet `way_s` later. Swapping the two addresses leaves the checksums right.
There is one such way at a time.
"""

from __future__ import annotations

import fcntl
import os
import queue
import socket
import struct
import threading
import time
from contextlib import suppress
from types import TracebackType

from locked import locked
from servers import cache_dir

NEAR, FAR, NETMASK = "10.203.77.1", "10.203.77.2", "255.255.255.252"
PUBLIC_NEAR, PUBLIC_FAR = "203.0.113.1", "203.0.113.2"  # of a network that is kept for documentation
DEVICE = b"leadline-far"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
IFF_UP_RUNNING = 0x1 | 0x40
AT_ADDRESSES, OF_ADDRESS = 12, 4
WINDOW = 64 << 10
ROW, ROWS = 1000, 8000  # of a Reader


class FarAway:
    """The way there and back takes 2 * way_s. drop: numbers of the packets with data from `near` that get lost."""

    def __init__(self, way_s: float, drop: range = range(0), near: str = NEAR, far: str = FAR) -> None:
        self.way_s, self.drop, self.near, self.far = way_s, drop, near, far
        self._alone = locked(cache_dir(), "far-away")
        self._over = threading.Event()
        self._late: queue.SimpleQueue[tuple[float, bytes] | None] = queue.SimpleQueue()

    def __enter__(self) -> FarAway:
        self._alone.__enter__()
        self._device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(self._device, TUNSETIFF, struct.pack("16sH", DEVICE, IFF_TUN | IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            for request, address in ((SIOCSIFADDR, self.near), (SIOCSIFNETMASK, NETMASK)):
                fcntl.ioctl(any_socket, request, struct.pack("16sHH4s8x", DEVICE, socket.AF_INET, 0, socket.inet_aton(address)))
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", DEVICE, IFF_UP_RUNNING))
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._take, self._give)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._late.put(None)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            any_socket.sendto(b"", (self.far, 9))  # wakes the reader, which finds that it is over
            for thread in self._threads:
                thread.join()
        os.close(self._device)
        self._alone.__exit__(None, None, None)

    def _take(self) -> None:
        seen = 0
        while not self._over.is_set():
            packet = bytearray(os.read(self._device, 65536))
            if packet[0] >> 4 != 4:  # a kernel looks for routers by IPv6 on each device
                continue
            source, target = AT_ADDRESSES, AT_ADDRESSES + OF_ADDRESS
            from_near = packet[target : target + OF_ADDRESS] == socket.inet_aton(self.far)
            if from_near and len(packet) > 200:
                seen += 1
                if seen in self.drop:
                    continue
            packet[source : target + OF_ADDRESS] = packet[target : target + OF_ADDRESS] + packet[source:target]
            self._late.put((time.monotonic() + self.way_s, bytes(packet)))

    def _give(self) -> None:
        while (item := self._late.get()) is not None:
            due, packet = item
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            os.write(self._device, packet)


def answer_each(listening: socket.socket, size: int) -> None:
    """A byte for each `size` bytes of each connection, until `listening` is shut and the other ends are gone."""

    def answer(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while connection.recv(size, socket.MSG_WAITALL):
                connection.sendall(b"y")

    with suppress(OSError):
        while True:
            threading.Thread(target=answer, args=listening.accept()[:1], daemon=True).start()


class Reader(threading.Thread):
    """Reads a large result again and again until it is told to stop. window: of its socket; pause_s: what it does with each part."""

    def __init__(self, host: str, port: int, application: str, window: int | None = None, pause_s: float = 0) -> None:
        super().__init__(daemon=True)
        self.over, self.pause_s, self.bytes = threading.Event(), pause_s, 0
        self.socket = socket.socket()
        self.socket.settimeout(20)
        if window is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.connect((host, port))
        words = f"user\0postgres\0database\0postgres\0application_name\0{application}\0\0".encode()
        self.socket.sendall((8 + len(words)).to_bytes(4, "big") + (3 << 16).to_bytes(4, "big") + words)

    def run(self) -> None:
        query = f"select repeat('x', {ROW}) from generate_series(1, {ROWS})".encode() + b"\0"
        while not self.over.wait(self.pause_s):
            self.socket.sendall(b"Q" + (4 + len(query)).to_bytes(4, "big") + query)
            read = 0
            while read < ROW * ROWS and not self.over.wait(self.pause_s):
                try:
                    got = len(self.socket.recv(WINDOW))
                except OSError:  # it was shut down meanwhile
                    return
                read, self.bytes = read + got, self.bytes + got
                if got == 0:
                    return

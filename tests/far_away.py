"""A long way within this host: packets through a tun device that come back late, as those of another host would.

The kernel of both ends sees a real round trip, which a proxy cannot give: its connections end at the proxy. The device has an address,
NEAR; who connects to FAR comes to NEAR, from FAR, with every packet `way_s` later. Swapping the two addresses leaves the checksums right.
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

NEAR, FAR, NETMASK = "10.203.77.1", "10.203.77.2", "255.255.255.252"
DEVICE = b"leadline-far"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
IFF_UP_RUNNING = 0x1 | 0x40
AT_ADDRESSES, OF_ADDRESS = 12, 4


class FarAway:
    """The way there and back takes 2 * way_s. drop: numbers of the packets with data from NEAR that get lost."""

    def __init__(self, way_s: float, drop: range = range(0)) -> None:
        self.way_s, self.drop = way_s, drop
        self._over = threading.Event()
        self._late: queue.SimpleQueue[tuple[float, bytes] | None] = queue.SimpleQueue()

    def __enter__(self) -> FarAway:
        self._device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(self._device, TUNSETIFF, struct.pack("16sH", DEVICE, IFF_TUN | IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            for request, address in ((SIOCSIFADDR, NEAR), (SIOCSIFNETMASK, NETMASK)):
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
            any_socket.sendto(b"", (FAR, 9))  # wakes the reader, which finds that it is over
            for thread in self._threads:
                thread.join()
        os.close(self._device)

    def _take(self) -> None:
        seen = 0
        while not self._over.is_set():
            packet = bytearray(os.read(self._device, 65536))
            if packet[0] >> 4 != 4:  # a kernel looks for routers by IPv6 on each device
                continue
            source, target = AT_ADDRESSES, AT_ADDRESSES + OF_ADDRESS
            from_near = packet[target : target + OF_ADDRESS] == socket.inet_aton(FAR)
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

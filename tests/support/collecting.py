"""A collector of OpenTelemetry for tests: keeps what is sent to it, and answers as it is told."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from struct import unpack
from typing import Any

from export_read import fields_of


@dataclass
class Collecting:
    """status, answer: what it says. dribbles: it sends its answer byte by byte and never ends it."""

    url: str = ""
    status: int = 200
    answer: bytes = b""
    dribbles: bool = False
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@contextmanager
def collecting() -> Iterator[Collecting]:
    to = Collecting()
    ending = threading.Event()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            to.paths.append(self.path)
            to.headers.append({name.lower(): value for name, value in self.headers.items()})
            to.bodies.append(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            if to.dribbles:
                while not ending.is_set():
                    self.wfile.write(b"H")
                    self.wfile.flush()
                    time.sleep(0.05)
                return
            self.send_response(to.status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(to.answer)

        def log_message(self, format: str, *args: Any) -> None: ...

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None: ...

    server = Quiet(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    to.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield to
    finally:
        ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Sent:
    """One metric of a request. points: value by the values of its attributes, seconds as ns."""

    unit: str
    kind: str
    monotonic: bool
    points: dict[tuple[str, ...], float]
    attributes: list[str]
    since: set[int]
    at: set[int]


def read_request(body: bytes) -> tuple[dict[str, str], dict[str, Sent]]:
    """Resource and metrics of an ExportMetricsServiceRequest, by the document of its format."""
    [of_resource] = fields_of(body)[1]
    parts = fields_of(of_resource)
    resource = _attributes(fields_of(parts[1][0])[1])
    found = {}
    [scope] = parts[2]
    for metric in map(fields_of, fields_of(scope)[2]):
        kind = next(name for number, name in ((5, "gauge"), (7, "sum")) if number in metric)
        data = fields_of(metric[5 if kind == "gauge" else 7][0])
        assert data[2] == ([] if kind == "gauge" else [2]), "sums are cumulative"
        points = list(map(fields_of, data[1]))
        values = {tuple(_attributes(p[7]).values()): unpack("<d", p[4][0].to_bytes(8, "little"))[0] if 4 in p else p[6][0] for p in points}
        assert len(values) == len(points)
        found[metric[1][0].decode()] = Sent(
            metric[3][0].decode(), kind, data[3] == [1], values, list(_attributes(points[0][7])),
            {n for p in points for n in p[2]}, {n for p in points for n in p[3]},
        )  # fmt: skip
    return resource, found


def _attributes(pairs: list[bytes]) -> dict[str, str]:
    return {pair[1][0].decode(): fields_of(pair[2][0])[1][0].decode() for pair in map(fields_of, pairs)}

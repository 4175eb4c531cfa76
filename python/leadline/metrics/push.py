"""Sends metrics to a collector again and again, in a thread of its own.

Nothing is queued: counters are cumulative, so that the next push has all that a lost one had. A push that failed is counted, and so is one
that was skipped because the one before took too long.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from leadline.capture.manifest import Host
from leadline.export.protobuf import fields
from leadline.metrics.collector import Collector
from leadline.metrics.families import PUSHES, Reading
from leadline.metrics.otlp import request
from leadline.version import version

OUTCOMES = ("ok", "failed", "rejected", "skipped")
LAST_S = 5.0  # the last push, when the recorder ends, takes no longer
MOST_ANSWER = 64 << 10
FIRST_S = 1.0


class Pusher:
    """A source, too: of how its pushes went."""

    def __init__(self, to: Collector, readings: Callable[[], Iterable[Reading]], start_ns: int, say: Callable[[str], None]) -> None:
        self._to, self._readings, self._start_ns, self._say = to, readings, start_ns, say
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._failing = False
        self._resource = {"service.name": "leadline", "service.version": version(), "service.instance.id": str(uuid.uuid4())}
        self._resource |= {"host.name": Host.this().name} | dict(to.resource)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leadline-otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sends what there is at the end, within some seconds."""
        self._stop.set()
        self._thread.join(LAST_S + 2 * FIRST_S)

    def readings(self) -> Iterable[Reading]:
        yield Reading(PUSHES, tuple(((outcome,), n) for outcome, n in self._outcomes.items()), self._start_ns)

    def _run(self) -> None:
        due = time.monotonic() + min(FIRST_S, self._to.interval_s)
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            self._push(self._to.timeout_s)
            late = max(0, int((time.monotonic() - due) // self._to.interval_s))
            self._outcomes["skipped"] += late
            due += (late + 1) * self._to.interval_s
        self._push(min(LAST_S, self._to.timeout_s))

    def _push(self, timeout_s: float) -> None:
        """Never raises: a thread that ends would end all pushes."""
        try:
            rejected = self._send(request(self._readings(), self._resource, version(), time.time_ns()), timeout_s)
        except Exception as e:
            self._outcomes["failed"] += 1
            if not self._failing:
                self._say(f"note: metrics cannot be sent to {self._to.name}: {_reason(e)}; trying again")
            self._failing = True
            return
        self._outcomes["rejected" if rejected else "ok"] += 1
        if rejected and not self._failing:
            self._say(f"note: the collector did not take all metrics: {rejected}")
        elif self._failing and not rejected:
            self._say(f"note: metrics are sent to {self._to.name} again")
        self._failing = bool(rejected)

    def _send(self, body: bytes, timeout_s: float) -> str:
        """Why the collector did not take all of it; empty if it did. Raises OSError, HTTPException. Follows no redirection."""
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": f"leadline/{version()}"} | dict(self._to.headers)
        if self._to.gzip:
            body, headers["Content-Encoding"] = gzip.compress(body, 6), "gzip"
        with _connected(self._to, timeout_s) as connection:
            connection.request("POST", self._to.path, body, headers)
            answer = connection.getresponse()
            content = answer.read(MOST_ANSWER)
            if answer.status != 200:
                raise http.client.HTTPException(f"it answered {answer.status} {answer.reason[:100]}")
        return _rejected(content)


@contextmanager
def _connected(to: Collector, timeout_s: float) -> Iterator[http.client.HTTPConnection]:
    """A connection that ends after timeout_s, also when the other side sends a byte now and then."""
    if to.context is None:
        connection = http.client.HTTPConnection(to.host, to.port, timeout=timeout_s)
    else:
        connection = http.client.HTTPSConnection(to.host, to.port, timeout=timeout_s, context=to.context)
    due = time.monotonic() + timeout_s
    try:
        connection.connect()
        sock = connection.sock
        end = threading.Timer(max(0.0, due - time.monotonic()), _end, [sock])
        end.daemon = True
        end.start()
        try:
            yield connection
        finally:
            end.cancel()
    finally:
        connection.close()


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _rejected(content: bytes) -> str:
    """ExportMetricsServiceResponse: how many points were rejected, and why. A message without rejected points is a warning."""
    try:
        partial = b"".join(part for part in fields(content).get(1, []) if isinstance(part, bytes))
        found = fields(partial)
    except ValueError:  # it took them, whatever it says
        return ""
    rejected = next((n for n in found.get(1, []) if isinstance(n, int)), 0)
    why = next((text for text in found.get(2, []) if isinstance(text, bytes)), b"").decode(errors="replace")
    return f"{rejected} points: {why[:200]}" if rejected else ""


def _reason(e: Exception) -> str:
    return str(getattr(e, "strerror", None) or e or type(e).__name__)[:200]

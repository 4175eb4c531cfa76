"""/metrics over HTTP, in threads of its own: on loopback, or with a token.

The server of the standard library, and not the one of `leadline serve`: one page for one reader needs no more, and the packages of the
extra `web` need not be on the host of a database.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from typing import Any

from leadline.errors import LeadlineError
from leadline.listening import host_and_port, is_local, listening, url_of
from leadline.metrics.exposition import MEDIA_TYPE
from leadline.whole import read_whole

EXAMPLE = "127.0.0.1:9187"
MOST_TOKEN = 4096  # bytes of its file
LEAST_TOKEN = 16
MOST_AT_ONCE = 8
PATIENCE_S = 10
PATH = "/metrics"


def read_token(path: Path) -> str:
    """Raises LeadlineError, also for a file that all users of the host can read."""
    text = read_whole(path, MOST_TOKEN)
    if path.stat().st_mode & 0o004:
        raise LeadlineError("usage", "everybody can read the token", hint="chmod 600 its file", where=str(path))
    token = text.decode("ascii").strip() if text.isascii() else ""
    if len(token) < LEAST_TOKEN or not token.isprintable() or " " in token:
        raise LeadlineError(
            "usage", f"the token is not one word of {LEAST_TOKEN} characters or more", hint="openssl rand -hex 32", where=str(path)
        )
    return token


class MetricsServer:
    """Listens from the start, and answers until it is closed. text: makes the answer. token: what who asks must send; empty for none."""

    def __init__(self, listen: str, token: str, text: Callable[[], str]) -> None:
        sock, is_loopback = listening(*host_and_port(listen, "--metrics", EXAMPLE), hint=f"--metrics {EXAMPLE}")
        if not is_loopback and not token:
            sock.close()
            raise LeadlineError(
                "usage", "without a token, metrics are given on loopback alone",
                hint="--metrics-token FILE with a token that Prometheus sends, too; or --metrics with a port alone", where=listen,
            )  # fmt: skip
        self.url, self.is_loopback = url_of(sock).rstrip("/") + PATH, is_loopback
        self._http = _Server(sock, token, local=is_loopback and not token, text=text)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, name="leadline-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """local: only who names this host is answered, so that no page of the web can have a browser here ask under another name."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, sock: socket, token: str, *, local: bool, text: Callable[[], str]) -> None:
        super().__init__(sock.getsockname()[:2], _Answer, bind_and_activate=False)
        self.socket.close()
        self.socket = sock
        self.server_activate()
        self.token, self.local, self.text = token, local, text
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked has gone, or sent what is no request."""


class _Answer(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        if self.server.local and not _names_this_host(self.headers.get("host", "")):
            self._send(HTTPStatus.FORBIDDEN, "metrics are given only under localhost: with a token, under any name\n")
        elif self.server.token and not self._has_token():
            self._send(HTTPStatus.UNAUTHORIZED, "send the token: Authorization: Bearer TOKEN\n")
        elif self.path.partition("?")[0] == PATH:
            self._send(HTTPStatus.OK, self.server.text(), MEDIA_TYPE)
        else:
            self._send(HTTPStatus.NOT_FOUND, f"{PATH} has the metrics\n")

    do_HEAD = do_GET

    def _has_token(self) -> bool:
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.server.token.encode())

    def _send(self, status: HTTPStatus, text: str, media_type: str = "text/plain; charset=utf-8") -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "leadline"

    def log_message(self, format: str, *args: Any) -> None: ...


def _names_this_host(host: str) -> bool:
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return is_local(name.strip("[]"))

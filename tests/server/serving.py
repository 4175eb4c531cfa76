"""A real `leadline serve` of a book of its own, and clients of it that show what is on the wire."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

PATIENCE_S = 30.0
PASSWORD = "correct horse battery"


def wait_until(true: Callable[[], Any], what: str = "", patience_s: float = PATIENCE_S) -> Any:
    """What it gives when that is true; fails at the deadline."""
    deadline = time.monotonic() + patience_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.02)
    return value


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


@dataclass
class Client:
    """One who asks: with a token, a session, or neither. As a browser (browser=True) it says where requests come from."""

    url: str
    token: str = ""
    browser: bool = False
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        connection, sent = self._begin(method, headers)
        connection.request(method, path, body, sent)
        got = connection.getresponse()
        answer = Answer(got.status, got.getheaders(), got.read())
        connection.close()
        for name, value in answer.headers:
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return answer

    def _begin(self, method: str, headers: Mapping[str, str] | None) -> tuple[http.client.HTTPConnection, dict[str, str]]:
        parts = urlsplit(self.url)
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        if self.browser and method not in ("GET", "HEAD"):
            sent |= {"Sec-Fetch-Site": "same-origin", "Origin": f"{parts.scheme}://{parts.netloc}"}
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S), sent | dict(headers or {})

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def call(self, method: str, path: str, **values: Any) -> Answer:
        """An operation of REST, with a JSON body."""
        body = json.dumps(values).encode() if values or method in ("POST", "PUT") else None
        return self.ask(method, f"/api/v1{path}", body, {"Content-Type": "application/json"} if body is not None else {})

    def form(self, path: str, **values: str) -> Answer:
        return self.ask("POST", path, urlencode(values).encode(), {"Content-Type": "application/x-www-form-urlencoded"})

    def log_in(self, account: str, password: str = PASSWORD) -> Answer:
        self.browser = True
        return self.form("/login", account=account, password=password)

    def stream(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """An answer that is still coming; to be closed by the caller."""
        connection, sent = self._begin("GET", {k.replace("_", "-"): v for k, v in headers.items()})
        connection.request("GET", path, headers=sent)
        return connection.getresponse()


@dataclass
class Served:
    book: Path
    environment: dict[str, str]
    process: subprocess.Popen[str] | None = None
    url: str = ""
    prefix: tuple[str, ...] = ()  # words before each command line

    def leadline(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        line = [*self.prefix, sys.executable, "-m", "leadline", *words]
        return subprocess.run(line, env=self.environment, input=given, capture_output=True, text=True, timeout=PATIENCE_S)

    def do(self, *words: str, given: str | None = None) -> Any:
        """A command that must succeed, and its JSON."""
        done = self.leadline(*words, "--json", given=given)
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    def record(self, *command: str, name: str = "", labels: tuple[str, ...] = ()) -> None:
        """Runs a command by `leadline run`."""
        options = [*(("--name", name) if name else ()), *(word for label in labels for word in ("--label", label))]
        self.leadline("run", *options, "--", *command)

    def start(self, *options: str) -> str:
        self.process = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "leadline", "serve", "--listen", "127.0.0.1:0", *options], env=self.environment,
            stdout=subprocess.PIPE, stderr=open(self.book.parent / "serve.err", "a"), text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().rstrip("/")
        assert self.url.startswith("http"), (self.book.parent / "serve.err").read_text()
        return self.url

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    def client(self, **more: Any) -> Client:
        return Client(self.url, **more)

    def user(self, name: str, *options: str) -> None:
        self.do("user", "create", name, "--password-file", "-", *options, given=PASSWORD)

    def token_of(self, user: str, scope: str = "admin", *options: str) -> str:
        return str(self.do("token", "create", "--name", "test", "--user", user, "--scope", scope, *options)["token"])

    def complaints(self) -> str:
        """What the server wrote to stderr but for its greeting and what it says when it begins."""
        lines = (self.book.parent / "serve.err").read_text().splitlines()
        return "\n".join(line for line in lines if line != "Ctrl-C ends it" and not line.startswith("warning: "))


@contextmanager
def book(folder: Path) -> Iterator[Served]:
    """A book without a server yet."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LEADLINE_RUN",)} | {"LEADLINE_BOOK": str(folder / "book")}
    (folder / "serve.err").touch()
    served = Served(folder / "book", environment)
    try:
        yield served
    finally:
        served.stop()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Served]:
    with book(folder) as served:
        served.start(*options)
        yield served

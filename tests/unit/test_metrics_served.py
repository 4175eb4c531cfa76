"""Prometheus is given the metrics of a recorder: on loopback, or with a token."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import wait_until
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.metrics.publish import Wanted, published
from leadline.metrics.server import MOST_AT_ONCE, MetricsServer, read_token

TOKEN = "0123456789abcdef-0123"


@contextmanager
def served(token: str = "", listen: str = "127.0.0.1:0", text: Any = lambda: "# what there is \u00e4\n") -> Iterator[str]:
    with closing(MetricsServer(listen, token, text)) as server:
        yield server.url


def ask(url: str, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()


def test_it_is_given_on_loopback_under_its_own_name_alone() -> None:
    with served() as url:
        port = urlsplit(url).port
        assert url == f"http://127.0.0.1:{port}/metrics"
        status, headers, text = ask(url)
        assert (status, text, headers["content-type"]) == (200, "# what there is \u00e4\n", "text/plain; version=0.0.4; charset=utf-8")
        assert headers["server"] == "leadline" and headers["cache-control"] == "no-store"
        for host in (f"localhost:{port}", "localhost", "127.0.0.1", f"[::1]:{port}", "[::1]"):
            assert ask(url, Host=host)[0] == 200, host
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.1", "[", ":", ""):
            assert ask(url, Host=host)[0] == 403, host
        assert ask(url, "/metrics?name=x")[0] == 200
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"HEAD /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = sock.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.0 200 ") and answer.endswith(b"\r\n\r\n"), "the head alone"
        assert [ask(url, path)[0] for path in ("/", "/metrics/", "/../metrics", "/metric")] == [404] * 4
        assert [ask(url, method=method)[0] for method in ("POST", "PUT", "OPTIONS", "TRACE")] == [501] * 4


def test_with_a_token_it_is_given_to_who_sends_it_under_any_name() -> None:
    with served(TOKEN, "0.0.0.0:0") as url:
        port = urlsplit(url).port
        local = f"http://127.0.0.1:{port}"
        status, headers, text = ask(local)
        assert (status, headers["www-authenticate"], "what there is" in text) == (401, "Bearer", False)
        for wrong in ("", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \u00e9" * 5):
            assert ask(local, Authorization=wrong.encode("latin-1").decode("latin-1"))[0] == 401, wrong
        assert ask(local, Authorization=f"Bearer {TOKEN}", Host="db1.example")[0] == 200
        assert ask(local, Authorization=f"bearer {TOKEN}")[0] == 200


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_without_a_token_no_other_address_is_listened_on(listen: str) -> None:
    with pytest.raises(LeadlineError) as raised:
        MetricsServer(listen, "", str)
    assert raised.value.message == "without a token, metrics are given on loopback alone"


def test_without_a_host_it_is_loopback() -> None:
    with served(listen=":0") as url:
        assert url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("listen", ["9187", ":x", "x:y", "127.0.0.1:65536", "no.such.host.invalid:9187", "192.0.2.1:9187", "a" * 70 + ":1"])
def test_an_address_that_cannot_be_is_one_error(listen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "postgres:///none", "--to", str(tmp_path / "rec"), "--metrics", listen]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "rec").exists()


def test_a_port_that_is_taken_is_one_error() -> None:
    with served() as url, pytest.raises(LeadlineError, match="cannot listen"):
        MetricsServer(f"127.0.0.1:{urlsplit(url).port}", "", str)


def test_a_token_is_a_word_in_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(f"  {TOKEN}\n")
    assert read_token(file) == TOKEN
    file.write_text("")
    with pytest.raises(LeadlineError, match="not one word"):
        read_token(file)
    for content in ("short", f"{TOKEN} {TOKEN}", f"{TOKEN}\n{TOKEN}", "\u00e9" * 20):
        file.write_text(content)
        with pytest.raises(LeadlineError) as raised:
            read_token(file)
        assert content not in str(raised.value.as_dict())
    file.write_text(TOKEN)
    file.chmod(0o644)
    with pytest.raises(LeadlineError, match="everybody"):
        read_token(file)
    os.mkfifo(tmp_path / "fifo", 0o600)
    for odd, message in {"none": "no such file", "fifo": "no file", ".": "no file"}.items():
        with pytest.raises(LeadlineError, match=message):
            read_token(tmp_path / odd)
    with pytest.raises(LeadlineError, match="larger than"):
        read_token(Path("/proc/self/exe"))


def test_a_token_without_metrics_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "postgres:///none", "--to", str(tmp_path / "rec"), "--metrics-token", str(tmp_path / "t")]) == 2
    assert "--metrics" in capsys.readouterr().err


def test_who_says_nothing_does_not_keep_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.metrics.server._Answer.timeout", 600)
    with served() as url:
        address = ("127.0.0.1", urlsplit(url).port or 0)
        silent = [socket.create_connection(address) for _ in range(MOST_AT_ONCE - 1)]
        assert ask(url)[0] == 200
        more = socket.create_connection(address)
        one_more = socket.create_connection(address)
        one_more.settimeout(30)
        assert one_more.recv(10) == b"", "there are no threads without end"
        for sock in (*silent, more, one_more):
            sock.close()
        wait_until(lambda: _answers(url), what="an answer when they have gone")


def _answers(url: str) -> bool:
    try:
        return ask(url)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_nobody_is_served_who_was_not_asked_for() -> None:
    with published(Wanted(), lambda text: None) as watcher:
        assert watcher is None
    assert not {thread.name for thread in threading.enumerate()} & {"leadline-metrics", "leadline-http", "leadline-otlp"}


def test_a_recorder_without_metrics_does_not_load_what_they_need() -> None:
    code = "import sys, leadline.cli.record, leadline.metrics.publish as p\n"
    code += "with p.published(p.Wanted(), print): print(*sorted(m for m in sys.modules if m.startswith('leadline.metrics.')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "leadline.metrics.publish\n"


# -- the unit --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "network", "allowed", "denied"),
    [
        ([], False, None, "any"),
        (["--metrics", ":9187"], True, "localhost", "any"),
        (["--metrics", "[::1]:9187", "--otlp=http://localhost:4318"], True, "localhost", "any"),
        (["--metrics", "10.0.0.7:9187"], True, None, None),
        (["--otlp=http://collector:4318"], True, None, None),
        (["--otlp"], True, None, None),
    ],
)
def test_the_unit_has_the_network_that_metrics_need(
    words: list[str], network: bool, allowed: str | None, denied: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["record", "postgres:///shop", "--to", "/var/lib/leadline/shop", "--unit", *words]) == 0
    said = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines() if "=" in line and not line.startswith("#"))
    assert ("AF_INET" in said["RestrictAddressFamilies"].split()) == network
    assert (said.get("IPAddressAllow"), said.get("IPAddressDeny")) == (allowed, denied)
    assert said.get("EnvironmentFile") == ("-/etc/default/leadline-record-shop" if any("otlp" in word for word in words) else None)
    for word in words:
        assert word.removeprefix("--metrics") in said["ExecStart"]

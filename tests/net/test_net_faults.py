"""What is wrong at the other end: every client says so in one error or row, and waits no longer than it was told to."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from leadline.cli import run
from net_servers import Serve, serving, until_closed

ASKED_S = 0.3
LIMIT_S = 4.0  # for five logins, on a busy host; below the 5 s that are waited when nothing is asked for
DSN = "postgresql://app:none@{}/shop"

CLIENTS = {
    "rtt": ["rtt", "{}", "--for", "1s"],
    "rtt at a rate": ["rtt", "{}", "--rate", "100", "--for", "1s"],
    "dbping": ["dbping", "{}"],
    "dbping, login": ["dbping", DSN],
    "dbping mysql": ["dbping", "mysql://app@{}/shop"],
    "dbping tds": ["dbping", "{}", "--protocol", "tds"],
    "dbping oracle": ["dbping", "{}", "--protocol", "oracle"],
    "fetch": ["fetch", DSN, "--query", "select 1"],
    "fetch, delayed": ["fetch", DSN, "--query", "select 1", "--rtt", "1ms"],
    "auth": ["auth", DSN],
    "auth --cost": ["auth", DSN, "--cost", "2"],
}


@contextmanager
def nobody() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def dropping() -> Iterator[str]:
    """A listener that takes no more: what connects to it now hears nothing, as behind a firewall that drops SYN."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    kept = [listener]
    try:
        for _ in range(8):
            kept.append(client := socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(listener.getsockname())
            except TimeoutError:
                break
        else:
            pytest.fail("the queue is never full")
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for one in kept:
            one.close()


@contextmanager
def unknown() -> Iterator[str]:
    yield "no-such-host.invalid:5432"


def answered_by(serve: Serve, host: str = "127.0.0.1") -> Callable[[], object]:
    @contextmanager
    def there() -> Iterator[str]:
        with serving(serve, host) as port:
            yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    return there


def garbage(connection: socket.socket, _: int) -> None:
    connection.sendall(b"220 mail.example.com ESMTP\r\n" * 10)
    until_closed(connection)


def silent(connection: socket.socket, _: int) -> None:
    """As one whose host is gone: the connection is there, and nothing ever comes."""
    until_closed(connection)


def ending(connection: socket.socket, _: int) -> None:
    connection.shutdown(socket.SHUT_WR)
    until_closed(connection)


def resetting(connection: socket.socket, _: int) -> None:
    """As the kernel of a server that was killed."""
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


FAULTS = {
    "nobody listens": (nobody, "nobody listens there", "connect"),
    "dropped SYN": (dropping, "no answer to the connection attempt", "connect"),
    "unknown name": (unknown, "the name of the host cannot be resolved", "resolve"),
    "garbage": (answered_by(garbage), "the server does not speak this protocol", "tls"),
    "silence": (answered_by(silent), "no answer in time", "tls"),
    "an end": (answered_by(ending), "the server closed the connection", "tls"),
}


def answer_of(words: list[str], address: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object], float]:
    """Exit code, what was printed, and how long it took."""
    began = time.monotonic()
    code = run(["net", *(word.format(address) for word in words), "--timeout", f"{ASKED_S}s", "--json"])
    return code, json.loads(capsys.readouterr().out), time.monotonic() - began


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_error_in_time(fault: str, client: str, capsys: pytest.CaptureFixture[str]) -> None:
    there, message, _ = FAULTS[fault]
    with there() as address:
        code, found, took_s = answer_of(CLIENTS[client], address, capsys)
    error = found["error"]
    assert code == 2 and isinstance(error, dict)
    assert (error["kind"], error["message"]) == ("connection", message)
    assert took_s < LIMIT_S


@pytest.mark.parametrize("fault", FAULTS)
def test_the_login_hammer_has_one_cause(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    there, _, phase = FAULTS[fault]
    with there() as address:
        code, found, took_s = answer_of(["connect", DSN], address, capsys)
    assert code == 1 and isinstance(found["causes"], list)
    [cause] = found["causes"]
    assert (found["logins"], found["failures"], cause["phase"]) == (5, 5, phase)
    assert took_s < LIMIT_S


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "unknown name"])
def test_compare_has_the_fault_in_the_row(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    there, _, phase = FAULTS[fault]
    with there() as address:
        code, found, took_s = answer_of(["compare", "{}", "--application", "postgres", "--count", "3"], address, capsys)
    assert code == 0 and isinstance(found["rows"], list)
    _, handshake, application = found["rows"]
    assert application["fault"] and application["count"] == 0
    assert bool(handshake["fault"]) == (phase == "connect")
    assert took_s < LIMIT_S


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "dbping mysql"])  # where the server speaks first
def test_a_connection_that_breaks_off_is_said_so(client: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answered_by(resetting)() as address:
        code, found, _ = answer_of(CLIENTS[client], address, capsys)
    error = found["error"]
    assert code == 2 and isinstance(error, dict)
    assert (error["kind"], error["message"]) == ("connection", "the server broke the connection off")
    assert "os error" not in error["detail"] and error["hint"]


def test_who_does_not_read_does_not_hold_us(capsys: pytest.CaptureFixture[str]) -> None:
    over = socket.socketpair()

    def deaf(_: socket.socket, __: int) -> None:
        over[1].recv(1)

    with over[0], over[1], answered_by(deaf)() as address:
        code, found, took_s = answer_of(["rtt", "{}", "--size", "16M", "--for", "1s"], address, capsys)
        over[0].send(b".")
    assert code == 2 and isinstance(found["error"], dict) and found["error"]["message"] == "no answer in time"
    assert took_s < LIMIT_S


@pytest.mark.skipif(not has_ipv6(), reason="the kernel has no IPv6")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_same_over_ipv6(client: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answered_by(ending, "::1")() as address:
        code, found, _ = answer_of(CLIENTS[client], address, capsys)
    error = found["error"]
    assert code == 2 and isinstance(error, dict)
    assert error["message"] == "the server closed the connection" and "[::1]" in error["where"]

"""`net dbping`, `net compare` and `net fetch`: round trips counted, against servers with known contents and against real ones."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import fetched_or_skip
from leadline._core.net import Echo
from leadline.cli import run
from leadline.engines.postgres.server.private import PrivateServer
from leadline.net import fetch
from net_servers import READY, WELCOME, Listener, SqlServer, message, read, serving, start_of_session, until_closed


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def phases(found: dict[str, Any]) -> dict[str, int]:
    """How often each was measured, with the first, which is kept apart."""
    return {phase["phase"]: phase["count"] + 1 for phase in found["phases"]}


# -- servers of known contents -----------------------------------------------------------------------------------------

ROWS, ROW = 1000, message(b"D", struct.pack(">hi", 1, 93) + b"x" * 93)


class Portal:
    """A server with one query of ROWS rows; notes how many rows each Execute got."""

    def __init__(self) -> None:
        self.executes: list[int] = []

    def __call__(self, connection: socket.socket, _: int) -> None:
        start_of_session(connection)
        connection.sendall(WELCOME)
        left, out = ROWS, b""
        while True:
            kind = read(connection, 1)
            (length,) = struct.unpack(">i", read(connection, 4))
            body = read(connection, length - 4)
            if kind == b"P":
                out += message(b"1")
            elif kind == b"B":
                left, out = ROWS, out + message(b"2")
            elif kind == b"E" and body.startswith(b"c\0"):
                (limit,) = struct.unpack(">i", body[2:])
                n = min(left, limit or left)
                left -= n
                self.executes.append(n)
                out += ROW * n + (message(b"s") if limit and n == limit else message(b"C", b"SELECT\0"))
            elif kind in b"EQ":
                out += message(b"C", b"BEGIN\0") + (READY if kind == b"Q" else b"")
            elif kind == b"S":
                out += READY
            elif kind == b"X":
                return
            if out.endswith(READY):
                connection.sendall(out)
                out = b""


def test_fetches_are_as_many_as_rows_and_size_make(capsys: pytest.CaptureFixture[str]) -> None:
    portal = Portal()
    with serving(portal) as port:
        dsn = f"host=127.0.0.1 port={port} user=app"
        found = told(["net", "fetch", dsn, "--query", "select 1", "--sizes", "300,1kB,all", "--repeat", "2"], capsys)
    assert (found["rows"], found["row_bytes"]) == (ROWS, len(ROW))
    [curve] = found["curves"]
    # In bytes: 1024 // 104 = 9 rows. The last Execute of 300 and of 9 gets the rest; the first trip begins the portal.
    assert [(p["rows_per_fetch"], p["round_trips"]) for p in curve["points"]] == [(300, 4 + 1), (9, 112 + 1), (0, 1 + 1)]
    assert portal.executes == [1000, *2 * [300, 300, 300, 100, *111 * [9], 1, 1000]]
    assert curve["recommended_rows"] in (300, 9, 0)


def test_a_line_of_a_given_rate_is_no_faster(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Portal()) as port:
        dsn = f"host=127.0.0.1 port={port} user=app"
        found = told(["net", "fetch", dsn, "--query", "select 1", "--sizes", "all", "--rate", "8mbit", "--repeat", "1"], capsys)
    [point] = found["curves"][0]["points"]
    assert point["received_bytes"] > ROWS * len(ROW)
    assert point["time_ns"] / 1000 >= point["received_bytes"]  # a byte takes a microsecond


def test_the_recommended_size_is_the_smallest_that_is_good_enough() -> None:
    def point(rows: int, trips: int, time_ns: int) -> dict[str, Any]:
        return {"rows_per_fetch": rows, "round_trips": trips, "bytes_per_fetch": 1e6 / trips, "time_ns": time_ns}

    # 100 ms of transfer and 10 ms for each round trip
    points = [point(rows, 10_000 // rows, 100 + 10 * (10_000 // rows)) for rows in (1, 10, 100, 1000, 2500, 5000, 10_000)]
    judged = fetch._judged(points)
    assert (judged["best_ns"], judged["recommended_rows"]) == (110, 10_000)
    assert fetch._judged(points[:-1])["recommended_rows"] == 5000
    flat = [point(rows, 10_000 // rows, 1000 + rows % 7) for rows in (1, 10, 100, 1000)]
    assert (fetch._judged(flat)["recommended_rows"], fetch._judged(flat)["knee_rows"]) == (1, None)
    bent = [point(rows, 10_000 // rows, 10_000 + 10 * (10_000 // rows)) for rows in (1, 10, 100, 1000, 10_000)]
    assert fetch._judged(bent)["knee_rows"] == 10
    assert (fetch._judged(points)["first_gain_rows"], fetch._judged(flat)["first_gain_rows"]) == (10, None)


def mysql_packet(sequence: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([sequence]) + body


def mysql(connection: socket.socket, _: int) -> None:
    """Takes every password, and answers COM_PING and one prepared statement."""
    salt = b"12345678", b"abcdefghijkl\0"
    flags = 1 << 9 | 1 << 15 | 1 << 19
    greeting = b"\x0a8.0.36\0" + struct.pack("<I", 7) + salt[0] + b"\0" + struct.pack("<HBHHB", flags & 0xFFFF, 45, 2, flags >> 16, 21)
    connection.sendall(mysql_packet(0, greeting + b"\0" * 10 + salt[1] + b"mysql_native_password\0"))
    fine, end = b"\0\0\0\2\0\0\0", b"\xfe\0\0\2\0"
    while True:
        length, sequence = struct.unpack("<I", (head := read(connection, 4))[:3] + b"\0")[0], head[3] + 1
        body = read(connection, length)
        if sequence > 1 or body[:1] == b"\x0e":  # the login, COM_PING
            answers = [fine]
        elif body[:1] == b"\x16":
            answers = [b"\0" + struct.pack("<IHHBH", 1, 1, 0, 0, 0), b"\3def", end]
        elif body[:1] == b"\x17":
            answers = [b"\1", b"\3def", end, b"\0\0\1\0\0\0", end]
        else:
            return
        connection.sendall(b"".join(mysql_packet(sequence + i, answer) for i, answer in enumerate(answers)))


def test_mysql(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(mysql) as port:
        found = told(["net", "dbping", f"mysql://app:secret@127.0.0.1:{port}/shop", "--connects", "3", "--count", "50"], capsys)
    assert phases(found) == {"resolve": 3, "connect": 3, "greeting": 3, "login": 3, "ping": 50, "prepare": 1, "execute": 50}
    assert (found["about"]["version"], found["about"]["method"]) == ("8.0.36", "mysql_native_password")


@pytest.mark.parametrize(
    ("protocol", "server", "phase", "about"),
    [
        ("tds", SqlServer(), "prelogin", {"version": "16.0.4105", "encryption": "of the login"}),
        ("oracle", Listener(), "listener", {"version": "19.0.0.0.0", "error": 0}),
    ],
)
def test_the_first_answer_of_other_databases(
    protocol: str, server: Any, phase: str, about: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(server) as port:
        words = ["net", "dbping", f"127.0.0.1:{port}", "--protocol", protocol, "--connects", "7"]
        found = told(words, capsys)
        assert run(words) == 0
    assert phases(found) == {"resolve": 7, "connect": 7, phase: 7}
    assert found["about"] == about
    assert f"version {about['version']}" in capsys.readouterr().out


@pytest.mark.parametrize("protocol", ["tds", "oracle"])
def test_what_answers_in_other_words_is_no_such_database(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    def garbage(connection: socket.socket, _: int) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)
        until_closed(connection)

    with serving(garbage) as port:
        assert run(["net", "dbping", f"127.0.0.1:{port}", "--protocol", protocol]) == 2
    assert "does not speak this protocol" in capsys.readouterr().err


def test_compare_has_a_row_for_each_way_whatever_happens(capsys: pytest.CaptureFixture[str]) -> None:
    echo = Echo("127.0.0.1", 0)
    _, port = echo.address()
    words = ["net", "compare", f"127.0.0.1:{port}", "--application", "echo", "--count", "5", "--interval", "0"]
    rows = {row["way"]: row for row in told(words, capsys)["rows"]}
    assert [(rows[way]["count"], rows[way]["failed"]) for way in ("tcp handshake", "echo round trip")] == [(4, 0), (4, 0)]
    icmp = rows["icmp echo"]
    assert icmp["count"] + (icmp["first_ns"] is not None) + icmp["failed"] == 5
    if icmp["failed"]:
        assert icmp["fault"]["cause"] in ("EPERM", "timeout")
    echo.stop()
    rows = {row["way"]: row for row in told(words, capsys)["rows"]}
    assert [(rows[way]["failed"], rows[way]["fault"]["cause"]) for way in ("tcp handshake", "echo round trip")] == [(5, "ECONNREFUSED")] * 2


# -- a real server -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tcp() -> Iterator[PrivateServer]:
    """A server that listens on 127.0.0.1 too."""
    with PrivateServer(fetched_or_skip(17).bin_dir, settings={"fsync": False}, loopback=True) as server:
        yield server


@pytest.mark.live
def test_postgres_phases_and_its_socket(tcp: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(["net", "dbping", tcp.loopback_dsn, "--connects", "3", "--count", "40"], capsys)
    assert phases(found) == {"resolve": 3, "connect": 3, "tls": 3, "login": 3, "ping": 40, "prepare": 1, "execute": 40}
    assert found["about"]["encrypted"] is False
    assert run(["net", "dbping", tcp.loopback_dsn, "--connects", "3", "--count", "4"]) == 0
    assert "TLS refused" in capsys.readouterr().out
    found = told(["net", "dbping", tcp.dsn, "--connects", "2", "--count", "5"], capsys)
    assert phases(found) == {"resolve": 2, "connect": 2, "login": 2, "ping": 5, "prepare": 1, "execute": 5}
    found = told(["net", "dbping", f"127.0.0.1:{tcp.port}", "--connects", "4"], capsys)
    assert phases(found) == {"resolve": 4, "connect": 4, "ask for tls": 4}


@pytest.mark.live
def test_a_real_portal_through_the_proxy(tcp: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    dsn = tcp.loopback_dsn
    query = "select repeat('x', 6000) from generate_series(1, 100)"
    found = told(["net", "fetch", dsn, "--query", query, "--sizes", "1,10,all", "--rtt", "0,2ms", "--repeat", "1"], capsys)
    assert found["rows"] == 100 and 6000 < found["row_bytes"] < 6030
    for curve in found["curves"]:
        # Of 100 rows in tens, the tenth Execute is full, and an eleventh finds nothing left.
        assert [p["round_trips"] for p in curve["points"]] == [102, 12, 2]
        assert all(p["received_bytes"] > 600_000 and p["peak_send_queue_bytes"] is not None for p in curve["points"])
    delayed = found["curves"][1]
    assert delayed["added_rtt_p50_ns"] > 1_900_000
    assert delayed["points"][0]["time_ns"] > 102 * 1_900_000
    assert delayed["recommended_rows"] == 0


@pytest.mark.live
def test_an_error_of_the_server_is_one_error(tcp: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["net", "fetch", tcp.loopback_dsn, "--query", "select * from no_such_table"]) == 2
    assert "no_such_table" in capsys.readouterr().err


def test_a_query_without_rows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def nothing(connection: socket.socket, _: int) -> None:
        start_of_session(connection)
        connection.sendall(WELCOME)
        for _ in range(3):
            connection.recv(65536)
            connection.sendall(message(b"C", b"SELECT\0") + READY)
        until_closed(connection)

    with serving(nothing) as port:
        assert run(["net", "fetch", f"host=127.0.0.1 port={port} user=app", "--query", "select"]) == 2
    assert "no rows" in capsys.readouterr().err

"""Findings over packets: each planted in a file of packets gives its row, an ordinary load none."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import leadline
import pytest
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.findings import Evaluation, Finding, evaluate
from leadline.net.auth import FAST_HASH
from leadline.net.packets import read_into
from packets_made import ACK, FIN, IN_TRANSACTION, MS, OK, READY, RST, SSL_REQUEST, SYN, Packets, answer, message, query, startup


@pytest.fixture
def made(tmp_path: Path) -> Packets:
    return Packets(tmp_path / "made.pcap")


def evaluated(made: Packets, thresholds: Mapping[str, float] | None = None) -> Evaluation:
    directory, _ = read_into(made.write(), [], out=made.path.with_suffix(".leadline"))
    with closing(open_capture(directory, hold=True)) as capture:
        return evaluate(capture, thresholds=thresholds)


def only(made: Packets) -> Finding:
    [found] = evaluated(made).findings
    return found


def transactions(made: Packets, statements: int, way_ms: float, later_ms: float | None = None) -> None:
    line = made.line()
    line.step_ns = int(way_ms * MS / 2)
    line.handshake()
    line.step_ns = int((later_ms or way_ms) * MS / 2)
    line.client(startup()).server(OK + READY)
    for _ in range(60):
        for ready in [IN_TRANSACTION] * (statements - 1) + [READY]:
            line.ask(ready, after_ms=0.2, server_ms=0.4)


def login(made: Packets, code: int) -> None:
    line = made.line().handshake().client(startup("pay"))
    line.server(message("R", struct.pack("!I", code))).client(message("p", b"secret\0")).server(OK + READY).close()


def pieces(made: Packets, delay_ms: float, number: int = 20) -> None:
    """Requests in two pieces; the second waits for the acknowledgement of the first."""
    line = made.line().login()
    for _ in range(number):
        line.client(b"Q\0\0\0").wait(delay_ms)
        line.raw(False, ACK)
        line.client(b"\x08go\0\0"[:5]).server(message("C", b"x\0") + READY)


def fetched(made: Packets, parts: int, rows: int, way_ms: float) -> None:
    """One result by a portal, `rows` with each Execute."""
    line = made.line()
    line.step_ns = int(way_ms * MS / 2)
    line.login()
    for part in range(parts):
        execute = message("E", b"c\0" + struct.pack("!i", rows)) + message("S")
        end = message("s") + IN_TRANSACTION if part < parts - 1 else message("C", b"SELECT\0") + READY
        line.client(execute).wait(0.4).server(message("D", b"\0" * 30) * rows + end)


def one_row_each(made: Packets, calls: int, way_ms: float) -> None:
    """Of each query the first row, as fetchval() of asyncpg asks for it: the portal is suspended and never run again."""
    line = made.line()
    line.step_ns = int(way_ms * MS / 2)
    line.login()
    asked = message("B", b"\0s\0" + b"\0" * 6) + message("E", b"\0" + struct.pack("!i", 1)) + message("S")
    for _ in range(calls):
        line.client(asked).wait(0.4).server(message("2") + message("D", b"\0" * 30) + message("s") + READY)


def fetched_by_cursor(made: Packets, cursors: int, parts: int, rows: int, way_ms: float) -> None:
    """Each cursor is declared and read with FETCH until there are no more rows."""
    line = made.line()
    line.step_ns = int(way_ms * MS / 2)
    line.login()
    for _ in range(cursors):
        line.client(query("declare")).server(message("C", b"DECLARE CURSOR\0") + IN_TRANSACTION)
        for part in [rows] * parts + [0]:
            tag = message("C", b"FETCH %d\0" % part)
            line.client(query("fetch")).wait(0.4).server(message("T", b"\0\0") + message("D", b"\0" * 30) * part + tag + IN_TRANSACTION)
        line.client(query("commit")).server(message("C", b"COMMIT\0") + READY)


def short_lives(made: Packets, asks: int) -> None:
    for n in range(30):
        line = made.line(at_ms=100 * n)
        line.step_ns = MS // 2
        line.login()
        for _ in range(asks):
            line.ask(server_ms=2)
        line.close()


def from_outside(made: Packets, said: bytes) -> None:
    line = made.line()
    line.client_net = (203, 0, 113)
    line.handshake().client(SSL_REQUEST).server(said)
    if said == b"N":
        line.client(startup()).server(OK + READY).ask()


@pytest.mark.usefixtures("terminal")
def test_show_and_report_have_the_round_trips(made: Packets, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    transactions(made, 4, 1.0)
    directory, _ = read_into(made.write(), [], out=tmp_path / "c")
    assert run(["show", str(directory)]) == 0
    text = capsys.readouterr().out
    assert "simple query" in text and "10.0.0.1:40001" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "leadline " not in line and str(tmp_path) not in line)
    assert run(["show", str(directory), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    [row] = shown["wire_connections"]
    assert (row["round_trips"], row["transactions"], row["each"], row["rtt_ms"]) == (240, 60, 4, 1.0)
    assert run(["report", str(directory), "-o", str(tmp_path / "r.html")]) == 0


def test_ordinary_packets_have_no_finding(made: Packets) -> None:
    transactions(made, 3, 1.0)  # three round trips
    transactions(made, 9, 0.02)  # many, on a fast network
    pieces(made, 0.05)
    fetched(made, 60, 10, 0.02)  # small parts on a fast network
    fetched(made, 10, 60, 10.0)  # few parts on a slow one
    fetched_by_cursor(made, 1, 60, 10, 0.02)
    short_lives(made, 50)
    from_outside(made, b"S")
    result = evaluated(made)
    assert result.findings == []
    assert {"WIRE-CLEARTEXT", "WIRE-MD5", "WIRE-CHATTY", "DELAYED-ACK"} <= set(result.clean)
    assert {"WIRE-FETCH-SIZE", "NETWORK-BOUND", "CONNECT-COST", "WIRE-NONTLS"} <= set(result.clean)
    assert {"CHATTY-APP", "TCP-RETRANSMITS"} <= {name for name, _ in result.not_applicable}


def test_a_readable_password(made: Packets) -> None:
    login(made, 3)
    login(made, 3)
    found = only(made)
    assert (found.id, found.severity, found.subject) == ("WIRE-CLEARTEXT", "critical", "user pay at 10.0.0.2:5432")
    assert found.statement.startswith("2 connections sent the password") and "secret" not in str(found)


def test_a_hash_that_can_be_guessed(made: Packets) -> None:
    login(made, 5)
    found = only(made)
    assert (found.id, found.severity, found.samples) == ("WIRE-MD5", "medium", 1)


def test_many_round_trips_over_a_slow_network_are_counted(made: Packets) -> None:
    transactions(made, 8, 2.0)
    found = only(made)
    assert found.id == "WIRE-CHATTY" and found.cost_s == pytest.approx(60 * 8 * 0.002, rel=0.01)
    assert "60 transactions took 8.0 round trips each" in found.statement and found.cost_base == "round trips"


def test_requests_in_two_pieces_that_wait_for_delayed_acknowledgements(made: Packets) -> None:
    pieces(made, 40)
    found = only(made)
    assert found.id == "DELAYED-ACK" and found.cost_s == pytest.approx(20 * 0.040, rel=0.02)
    assert "20 times" in found.statement and "40 ms each" in found.statement


def test_a_result_in_small_parts_over_a_slow_network_is_counted(made: Packets) -> None:
    fetched(made, 60, 10, 10.0)
    found = only(made)
    assert found.id == "WIRE-FETCH-SIZE" and found.cost_s == pytest.approx(59 * 0.010, rel=0.02) and found.samples == 60
    assert "60 parts of 10 rows" in found.statement and "with 600 rows" in found.statement


def test_the_rows_that_are_enough_leave_round_trips_a_twentieth_of_the_rest(made: Packets) -> None:
    line = made.line()
    line.step_ns = 5 * MS
    line.login()
    for part in range(100):  # 20 ms of the server and 10 ms of the way for 10 rows: 2 s of work, so 100 ms for 10 round trips
        end = message("s") + IN_TRANSACTION if part < 99 else message("C", b"SELECT\0") + READY
        line.client(message("E", b"c\0" + struct.pack("!i", 10)) + message("S")).wait(20).server(message("D", b"\0" * 30) * 10 + end)
    found = only(made)
    assert found.id == "WIRE-FETCH-SIZE" and found.cost_s == pytest.approx(90 * 0.010, rel=0.02)
    assert "with 100 rows" in found.statement


def test_a_query_for_one_row_is_no_reading_in_parts(made: Packets) -> None:
    one_row_each(made, 1000, 3.0)
    assert "WIRE-FETCH-SIZE" in evaluated(made).clean


def test_cursors_whose_result_fits_into_one_fetch_are_no_reading_in_parts(made: Packets) -> None:
    fetched_by_cursor(made, 100, 1, 5, 10.0)
    assert "WIRE-FETCH-SIZE" in evaluated(made).clean


def test_small_fetches_of_a_cursor_are_counted(made: Packets) -> None:
    fetched_by_cursor(made, 2, 30, 10, 10.0)
    found = {f.id: f for f in evaluated(made).findings}["WIRE-FETCH-SIZE"]
    assert found.cost_s == pytest.approx(58 * 0.010, rel=0.02) and found.samples == 60
    assert found.subject == "client 10.0.0.1 of 10.0.0.2:5432, by FETCH"
    assert "60 parts of 10 rows were read from SQL cursors" in found.statement
    assert "with 300 rows in each FETCH (itersize)" in found.statement


def test_parts_cost_no_more_than_they_took(made: Packets) -> None:
    """A handshake that was slower than all that followed."""
    line = made.line()
    line.step_ns = 30 * MS
    line.handshake()
    line.step_ns = 5 * MS
    line.client(startup()).server(OK + READY)
    execute = message("E", b"c\0" + struct.pack("!i", 10)) + message("S")
    for _ in range(60):
        line.client(execute).server(message("D", b"\0" * 30) * 10 + message("s") + IN_TRANSACTION)
    found = only(made)
    assert found.id == "WIRE-FETCH-SIZE" and found.cost_s == pytest.approx(59 * 0.010, rel=0.02)
    assert "0.6 s of 0.6 s" in found.statement


def test_each_method_that_can_be_guessed_is_in_one_rule() -> None:
    folder = Path(leadline.__file__).parent / "findings/wire"
    rules = [(folder / name).read_text() for name in ("0091_wire_md5.sql", "0104_wire_mysql_hash.sql")]
    assert {method for method in FAST_HASH if sum(f"auth in ('{method}'" in r or f", '{method}'" in r for r in rules) != 1} == set()


def mysql_login(made: Packets, method: str) -> None:
    """A login to MySQL 8 that the server lets in, by a method and its proof."""
    line = made.line(port=3306).handshake()
    packet = lambda number, body: len(body).to_bytes(3, "little") + bytes([number]) + body  # noqa: E731
    scramble = b"abcdefghijklmnopqrst"
    greeting = b"\x0a8.4.0\0" + struct.pack("<I", 7) + scramble[:8] + b"\0\xff\xf7\xff\x02\0\xff\xdf\x15" + bytes(10) + scramble[8:] + b"\0"
    line.server(packet(0, greeting + method.encode() + b"\0"))
    flags = 0x200 | 0x8000 | 0x80000
    answer = struct.pack("<IIB23x", flags, 1 << 24, 45) + b"shop\0" + b"\x20" + b"p" * 32 + method.encode() + b"\0"
    line.client(packet(1, answer))
    more = packet(2, b"\x01\x03") if method == "caching_sha2_password" else b""  # fast authentication
    line.server(more + packet(3 if more else 2, b"\0\0\0\x02\0\0\0"))


@pytest.mark.parametrize(
    ("methods", "severity"),
    [
        (["caching_sha2_password"], "low"), (["mysql_native_password"], "medium"), (["mysql_old_password"], "medium"),
        (["caching_sha2_password", "mysql_native_password"], "medium"),
    ],
)  # fmt: skip
def test_logins_of_mysql_have_a_finding_of_their_own(made: Packets, methods: list[str], severity: str) -> None:
    for method in methods:
        mysql_login(made, method)
    found = only(made)
    assert (found.id, found.severity, found.subject) == ("WIRE-MYSQL-HASH", severity, "user shop at 10.0.0.2:3306")
    assert ", ".join(methods) in found.statement and found.samples == len(methods)


def test_few_round_trips_on_a_long_way_are_bound_by_the_network(made: Packets) -> None:
    transactions(made, 3, 10.0)
    found = only(made)
    assert found.id == "NETWORK-BOUND" and found.cost_s == pytest.approx(60 * 3 * 0.010, rel=0.01)
    assert "3.0 for each of 60 transactions" in found.statement and found.cost_base == "round trips"


@pytest.mark.parametrize("way_ms", [0.04, 0.06])
def test_a_client_that_cannot_come_closer_is_not_bound_by_the_network(made: Packets, way_ms: float) -> None:
    transactions(made, 3, way_ms)
    result = evaluated(made, {"network_bound_s": 0, "network_bound_share": 0.05})
    assert [f.id for f in result.findings] == ["NETWORK-BOUND"] * (way_ms > 0.05)


SLOW_HANDSHAKE = "a round trip takes no longer than the fastest acknowledgement; here it comes with the next request, 0.2 ms later"


def test_a_slow_handshake_does_not_make_the_way_of_few_round_trips_long(made: Packets) -> None:
    transactions(made, 3, 10.0, later_ms=0.1)
    assert evaluated(made).findings == [], SLOW_HANDSHAKE


def test_a_slow_handshake_does_not_make_the_way_of_many_round_trips_long(made: Packets) -> None:
    transactions(made, 8, 10.0, later_ms=0.1)
    found = only(made)
    assert found.id == "WIRE-CHATTY" and found.cost_s == pytest.approx(60 * 8 * 0.0003, rel=0.01), SLOW_HANDSHAKE


def test_short_connections_cost_their_login(made: Packets) -> None:
    short_lives(made, 1)
    found = only(made)
    assert (found.id, found.samples) == ("CONNECT-COST", 30) and found.cost_s == pytest.approx(30 * 0.002, rel=0.01)
    assert found.statement.startswith("30 connections (") and "took 2.00 ms each" in found.statement


def test_a_client_from_outside_without_tls(made: Packets) -> None:
    from_outside(made, b"N")
    found = only(made)
    assert (found.id, found.subject) == ("WIRE-NONTLS", "client 203.0.113.1 of 10.0.0.2:5432")
    assert "the server refused TLS 1 times" in found.statement


def test_a_client_that_got_no_answer_to_its_request_for_tls_said_nothing_readable(made: Packets) -> None:
    line = made.line()
    line.client_net = (203, 0, 113)
    line.handshake().client(SSL_REQUEST).close_at_once()
    assert "WIRE-NONTLS" in evaluated(made).clean


def test_private_addresses_without_tls_are_reported_when_asked(made: Packets) -> None:
    made.line().login().ask()
    directory, _ = read_into(made.write(), [], out=made.path.with_suffix(".leadline"))
    with closing(open_capture(directory, hold=True)) as capture:
        assert evaluate(capture).findings == []
        [found] = evaluate(capture, thresholds={"wire_nontls_private": 1}).findings
    assert found.id == "WIRE-NONTLS"


def pooled(made: Packets, wait_ms: float, asks: int = 40, direct: int = 0) -> None:
    """Three clients of a pooler on port 6432 that has one connection to the server; `direct` requests come to the server past it."""
    fronts = [made.line(client=7, server=2, port=6432).login() for _ in range(3)]
    back = made.line(client=2, server=3, at_ms=1).login()
    for _ in range(asks):
        for front in fronts:
            front.ts = max(front.ts, back.ts)  # each after the other: none waits for another's request
            front.wait(1).client(query())
            back.ts = front.ts + int(wait_ms * MS)
            back.ask(server_ms=5)
            front.ts = back.ts
            front.server(answer())
    for _ in range(direct):
        back.ask(server_ms=5)


def test_requests_that_wait_in_a_pooler(made: Packets) -> None:
    pooled(made, 20)
    found = only(made)
    assert (found.id, found.subject) == ("POOLER-WAIT", "pooler 10.0.0.2:6432 of 10.0.0.3:5432")
    assert found.cost_s == pytest.approx(120 * 0.020, rel=0.05)
    assert "3 connections of clients shared 1 to the server" in found.statement


def test_a_pooler_that_passes_on_at_once_and_ports_that_are_none(made: Packets) -> None:
    pooled(made, 0.05)
    assert "POOLER-WAIT" in evaluated(made).clean


def test_a_server_that_gets_other_transactions_is_behind_no_pooler(made: Packets) -> None:
    pooled(made, 20, direct=20)
    assert "POOLER-WAIT" in evaluated(made).clean


def lossy(made: Packets, asks: int, lost: int) -> None:
    """`lost` of the requests come again 200 ms later, and are answered only then."""
    line = made.line().login()
    for number in range(asks):
        line.client(query())
        if number < lost:
            line.wait(200).again(query(), from_client=True)
        line.wait(1).server(answer())


def test_requests_that_are_lost_and_sent_again(made: Packets) -> None:
    lossy(made, 400, 25)
    found = only(made)
    # 5 s of 5.5 s
    assert (found.id, found.severity, found.subject) == ("WIRE-RETRANSMITS", "high", "client 10.0.0.1 of 10.0.0.2:5432")
    assert found.samples == 25 and found.cost_s == pytest.approx(25 * 0.200, rel=0.01)
    assert "25 segments of the client and 0 of the server, 3.0 % of all" in found.statement  # of 2 * 400 + 2 + 25


def test_answers_that_are_lost_behind_the_capture_cost_what_they_waited(made: Packets) -> None:
    """At the server's side: a round trip looks short, and the time is lost before the next request."""
    line = made.line().login()
    for number in range(400):
        line.ask()
        if number < 25:
            line.wait(300).again(answer())
        line.raw(True, ACK)
    found = only(made)
    assert (found.id, found.samples) == ("WIRE-RETRANSMITS", 25)
    assert found.cost_s == pytest.approx(25 * 0.3001, rel=0.001)
    assert "that data waited 7.5 s" in found.statement


def test_the_time_lost_decides_how_bad_it_is_not_the_rate(made: Packets) -> None:
    """30 segments of which each is sent again 1 ms later, in a window of 10 s; and 3 % that cost nearly all of it."""
    line = made.line().login()
    for _ in range(30):
        line.client(query()).wait(1).again(query(), from_client=True).wait(1).server(answer())
    line.wait(10_000).ask()
    found = only(made)
    assert (found.id, found.severity) == ("WIRE-RETRANSMITS", "low") and "31.9 % of all" in found.statement
    assert found.cost_s == pytest.approx(30 * 0.00215, rel=0.05)


def test_a_wait_is_never_longer_than_the_connections_lived(made: Packets) -> None:
    """Both ends send everything three times, on three connections at a time."""
    for connection in range(3):
        line = made.line(at_ms=connection).login()
        for _ in range(40):
            line.client(query())
            for _ in range(2):
                line.wait(30).again(query(), from_client=True)
            line.server(answer())
            for _ in range(2):
                line.wait(30).again(answer())
    [found] = evaluated(made).findings
    waited_ms, lived_ms = 40 * (60 + 3 * 0.05 + 60 + 3 * 0.05), 40 * (120 + 6 * 0.05) + 5 * 0.05
    assert found.cost_s is not None and waited_ms - 1 <= found.cost_s * 1000 / 3 <= lived_ms


def test_connections_that_are_closed_twice_and_hosts_that_do_not_answer_lose_no_data(made: Packets) -> None:
    for number in range(30):
        line = made.line(at_ms=number).login().ask()
        for _ in range(2):
            line.raw(True, FIN | ACK)
            line.wait(300)
        for server in (77, 78):
            line = made.line(server=server, at_ms=number)
            for _ in range(3):
                line.raw(True, SYN)
                line.wait(1000)
            if server == 78:  # refused after all
                line.raw(False, RST | ACK)
    assert "WIRE-RETRANSMITS" in evaluated(made).clean


def test_packets_that_were_captured_twice_are_no_loss(made: Packets) -> None:
    transactions(made, statements=1, way_ms=0.2)
    once = evaluated(made)
    made.copied_ns, made.path = 60_000, made.path.with_name("twice.pcap")
    twice = evaluated(made)
    assert [(f.id, f.statement) for f in twice.findings] == [(f.id, f.statement) for f in once.findings]
    assert "WIRE-RETRANSMITS" in twice.clean


@pytest.mark.parametrize(("asks", "lost"), [(400, 19), (2600, 25)])
def test_a_few_lost_requests_are_no_finding(made: Packets, asks: int, lost: int) -> None:
    lossy(made, asks, lost)
    assert "WIRE-RETRANSMITS" in evaluated(made).clean

"""What holds for any packets: no finding costs more time than there was, and no time is negative, in findings, views and tables."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leadline.capture.reader import Capture, open_capture
from leadline.findings import Finding, evaluate
from leadline.net.packets import read_into
from leadline.views.sections import Context
from packets_made import ACK, IN_TRANSACTION, MS, OK, READY, Line, Packets, answer, message, query, startup

# So low that each rule has something to say of almost anything.
LOW = dict.fromkeys(
    ("wire_chatty_trips", "wire_chatty_min", "wire_chatty_share", "delayed_ack_min", "delayed_ack_share", "pooler_min", "pooler_wait_share",
     "pooler_wait_s", "wire_fetch_min", "wire_fetch_share", "wire_fetch_s", "network_bound_share", "network_bound_s",
     "network_bound_rtt_us", "connect_cost_min", "connect_cost_share", "connect_cost_window", "wire_again_part", "wire_again_min"), 0.0,
) | {"network_chatty_trips": 1e9, "wire_nontls_private": 1.0, "pooler_match": 1.0}  # fmt: skip
COSTS = {"WIRE-CHATTY", "DELAYED-ACK", "POOLER-WAIT", "WIRE-FETCH-SIZE", "NETWORK-BOUND", "CONNECT-COST", "WIRE-RETRANSMITS"}


def portal(line: Line, rng: random.Random) -> None:
    """A result in parts; or one row of it and never more, as `fetchval` asks."""
    parts, limit = rng.choice([1, 2, 30]), rng.choice([1, 1, 50])
    for part in range(parts):
        execute = message("E", b"c\0" + struct.pack("!i", limit)) + message("S")
        line.client((message("B", b"c\0s\0\0\0\0\0\0\0") if part == 0 else b"") + execute).wait(rng.expovariate(20))
        more = part < parts - 1 or rng.random() < 0.5
        end = message("s") if more else message("C", b"SELECT\0")
        line.server(message("D", b"\0" * 20) * limit + end + rng.choice([READY, IN_TRANSACTION]))


def pieces(line: Line, rng: random.Random) -> None:
    """A request in two segments, the second after an acknowledgement; the answer may begin before the request has ended."""
    whole = query("select " * 5)
    line.client(whole[:7]).wait(rng.choice([0, 1, 40]))
    if rng.random() < 0.7:
        line.raw(False, ACK)
    if rng.random() < 0.3:
        line.server(message("N", b"\0"))
    line.client(whole[7:]).wait(rng.expovariate(2)).server(answer())


def pipeline(line: Line, rng: random.Random) -> None:
    """Requests while answers come."""
    line.client(query())
    for _ in range(rng.randint(1, 5)):
        line.client(query()).server(answer()[:-3])
        line.server(answer()[-3:])
    line.server(answer())


def again(line: Line, rng: random.Random) -> None:
    line.client(query()).wait(rng.choice([0, 3, 200])).again(query(), from_client=True)
    line.wait(rng.expovariate(1)).server(answer())
    if rng.random() < 0.5:
        line.again(answer())


def copy(line: Line, rng: random.Random) -> None:
    line.client(query("copy")).server(message("G", b"\0\0\0"))
    for _ in range(rng.randint(0, 4)):
        line.client(message("d", b"1\n" * 50))
    line.client(message("c")).server(message("C", b"COPY 1\0") + READY)


def both_ways(line: Line, rng: random.Random) -> None:
    """Replication: data of the server that nobody asks for, and reports of the client in between."""
    line.client(query("start_replication")).server(message("W", b"\0\0\0"))
    for _ in range(rng.randint(1, 20)):
        line.server(message("d", b"w" * 200))
        if rng.random() < 0.4:
            line.client(message("d", b"r" * 34))


def garbage(line: Line, rng: random.Random) -> None:
    line.client(rng.randbytes(30)).server(rng.randbytes(50))


KINDS = (portal, portal, pieces, pipeline, again, copy, both_ways, garbage)


def any_packets(made: Packets, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 10)):
        ends = {"client": rng.choice([2, 10, 11]), "server": rng.choice([2, 3]), "port": rng.choice([5432, 6432])}
        line = made.line(**ends, at_ms=rng.uniform(0, 200))
        usual = rng.choice([(0, None), (MS // 50, None), (MS, 0), (0, MS), (6 * MS, MS // 10)])
        line.step_ns, line.server_step_ns = rng.choice([usual, (9 * MS, None)])
        if rng.random() < 0.8:
            line.handshake()
        if rng.random() < 0.9:
            line.client(startup()).server(OK + READY)
        line.step_ns, line.server_step_ns = usual
        for _ in range(rng.choice([0, 3, 40])):
            line.wait(rng.choice([0, 0, rng.expovariate(1)]))
            kind = rng.choice(KINDS)
            if (kind is garbage and rng.random() < 0.9) or rng.random() < 0.6:
                line.ask(server_ms=rng.expovariate(3))
            else:
                kind(line, rng)
        if rng.random() < 0.6:
            line.close()


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float):
        yield value


def check_finding(found: Finding, lived_s: float, capture: Capture) -> None:
    window_s, connections = capture.scalar("select window_s from capture"), capture.scalar("select count(*) from wire_connection")
    if found.cost_s is not None:
        assert 0 <= found.cost_s <= min(lived_s, window_s * connections) + 1e-6, found
    for part, whole in re.findall(r"([\d.]+) s of ([\d.]+) s", found.statement):
        assert float(part) <= float(whole), found.statement
    assert all(float(share) <= 100 for share in re.findall(r"([\d.]+) %", found.statement)), found.statement
    assert "-" not in re.sub(r"[a-z]-[a-z]", "", found.statement), found.statement
    assert min(numbers(found.evidence), default=0) >= 0, found.evidence


def check(capture: Capture) -> set[str]:
    """The findings with a cost that there were."""
    result = evaluate(capture, thresholds=LOW)
    assert result.not_evaluated == []
    lived_s = capture.scalar("select sum(ts_to - ts) / 1e9 from wire_connection")
    for found in result.findings:
        check_finding(found, lived_s, capture)
    of = Context(capture, result)
    for section in of.sections():
        if section.key.startswith("wire_"):
            for row in section.data(of).as_dicts():
                assert min(numbers(row), default=0) >= 0, (section.key, row)
    for table in ("wire_connection", "wire_roundtrip", "wire_path", "wire_part"):
        for row in capture.rows(f"select columns('.*_ns') from {table}"):
            assert min(numbers(row), default=0) >= 0, (table, row)
    return {found.id for found in result.findings if found.cost_s is not None}


@pytest.mark.parametrize("seed", range(20))
def test_no_cost_is_above_the_time_that_there_was_and_none_is_negative(tmp_path: Path, seed: int) -> None:
    made = Packets(tmp_path / "made.pcap")
    any_packets(made, random.Random(seed))
    directory, _ = read_into(made.write(), [5432, 6432], out=tmp_path / "c")
    with closing(open_capture(directory, hold=True)) as capture:
        check(capture)


def test_every_finding_with_a_cost_is_among_those_that_are_checked(tmp_path: Path) -> None:
    made = Packets(tmp_path / "made.pcap")
    rng = random.Random(1)
    for _ in range(8):
        any_packets(made, rng)
    front, back = made.line(client=11, server=2, port=6432).login(), made.line(client=2, server=3).login()
    for _ in range(20):
        front.client(query()).wait(3)
        back.ts = front.ts
        back.ask()
        front.ts = back.ts
        front.server(answer())
    directory, _ = read_into(made.write(), [5432, 6432], out=tmp_path / "c")
    with closing(open_capture(directory, hold=True)) as capture:
        assert COSTS - check(capture) <= {"POOLER-WAIT"}


def test_values_that_a_client_fetches_one_by_one_cost_no_more_than_it_took(tmp_path: Path) -> None:
    """1,000 portals of which each gives one row and is left: 6 ms of a handshake are not the way of 0.1 ms."""
    made = Packets(tmp_path / "made.pcap")
    line = made.line()
    line.step_ns = 3 * MS
    line.handshake()
    line.step_ns = MS // 20
    line.client(startup()).server(OK + READY)
    for _ in range(1000):
        line.client(message("B", b"\0s\0\0\0\0\0\0\0") + message("E", b"\0" + struct.pack("!i", 1)) + message("S"))
        line.server(message("2") + message("D", b"\0" * 20) + message("s") + READY)
    directory, _ = read_into(made.write(), [], out=tmp_path / "c")
    with closing(open_capture(directory, hold=True)) as capture:
        check(capture)
        assert evaluate(capture).findings == []

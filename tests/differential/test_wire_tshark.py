"""The packets of one file as `leadline net packets` and as tshark count them: real traffic of a server, and a made file with losses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from conftest import fetched_or_skip, no_oracle, wait_until
from leadline._core.wire import read_file
from leadline.postgres.server import PrivateServer
from packets_made import Packets, answer, query

FIELDS = ("tcp.stream", "tcp.srcport", "frame.len", "tcp.len", "pgsql.type", "tcp.analysis.retransmission", "tcp.analysis.out_of_order")
ROUNDS = 200


@pytest.fixture(autouse=True, scope="module")
def tshark() -> None:
    if shutil.which("tshark") is None:
        no_oracle("tshark is not installed: apt-get install tshark")


@contextmanager
def captured(port: int, path: Path) -> Iterator[None]:
    """tcpdump's library captures the packets of a port into a file, from when it says so."""
    if os.geteuid() != 0:
        pytest.skip("capturing packets needs root")
    command = ["dumpcap", "-q", "-i", "lo", "-f", f"tcp port {port}", "-B", "64", "-w", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as dumpcap:
        assert dumpcap.stderr is not None
        while "File:" not in (line := dumpcap.stderr.readline()):
            assert line, "dumpcap ended"
        yield
        dumpcap.send_signal(signal.SIGINT)
        dumpcap.communicate()


def by_tshark(path: Path, port: int) -> list[dict[str, object]]:
    """A row for each connection in the order of their begin, as by_leadline has it."""
    command = ["tshark", "-n", "-r", str(path), "-o", f"pgsql.tcp.port:{port}", "-T", "fields", "-E", "separator=;"]
    for field in FIELDS:
        command += ["-e", field]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[int, Counter[str]] = {}
    for stream, source, length, payload, messages, again, out_of_order in (line.split(";") for line in text.splitlines()):
        row = found.setdefault(int(stream), Counter())
        end = "server" if int(source) == port else "client"
        row[f"{end}_packets"] += 1
        row[f"{end}_wire_bytes"] += int(length)
        row[f"{end}_payload_bytes"] += int(payload)
        row[f"{end}_again"] += bool(again) or bool(out_of_order)
        row["ready"] += messages.split(",").count("Ready for query")
    return [dict(found[stream]) for stream in sorted(found)]


def by_leadline(path: Path, port: int) -> list[dict[str, object]]:
    rows = read_file(str(path), ports=[port])["connections"]
    same = [f"{end}_{what}" for end in ("client", "server") for what in ("packets", "wire_bytes", "payload_bytes")]
    return [
        {name: row[name] for name in same}
        | {f"{end}_again": row[f"{end}_retransmits"] + row[f"{end}_out_of_order"] for end in ("client", "server")}
        | {"ready": row["round_trips"] + row["let_in"]}
        for row in sorted(rows, key=lambda row: row["connection_id"])
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer(fetched_or_skip(16).bin_dir, loopback=True) as private:
        yield private


def ends(path: Path, port: int) -> list[str]:
    return [row["ended"] for row in read_file(str(path), ports=[port])["connections"]]


def test_traffic_of_a_server(server: PrivateServer, tmp_path: Path) -> None:
    """Each simple query ends with a message ReadyForQuery, and so does the login; the last message of a client ends without one."""
    path = tmp_path / "traffic.pcapng"
    with captured(server.port, path):
        connections = [psycopg.connect(server.loopback_dsn, autocommit=True, gssencmode="disable", sslmode="disable") for _ in range(3)]
        for n in range(ROUNDS):
            with closing(psycopg.ClientCursor(connections[n % 2])) as cursor:
                cursor.execute(f"select repeat('x', {n * 100}), {n}")
        for connection in connections:
            connection.close()
        # dumpcap keeps packets back for a while, and at its end throws them away.
        wait_until(lambda: ends(path, server.port) == ["closed"] * 3, what="the last packets")
    ours = by_leadline(path, server.port)
    assert ours == by_tshark(path, server.port)
    assert [row["ready"] for row in ours] == [ROUNDS // 2 + 1, ROUNDS // 2 + 1, 1]


def test_what_comes_again_and_out_of_order(tmp_path: Path) -> None:
    made = Packets(tmp_path / "made.pcap")
    line = made.line().login()
    for n in range(50):
        line.ask()
        if n % 10 == 0:
            line.wait(300).again(answer())
        if n % 25 == 0:
            line.wait(300).client(query()).wait(300).again(query(), from_client=True).wait(1).server(answer())
    line.close()
    path = Path(made.write())
    ours = by_leadline(path, 5432)
    assert ours == by_tshark(path, 5432)
    assert (ours[0]["server_again"], ours[0]["client_again"]) == (5, 2)

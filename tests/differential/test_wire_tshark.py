"""The packets of one file as `leadline net packets` and as tshark count them: real traffic of a server, and a made file with losses."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from conftest import fetched_or_skip, no_oracle, wait_until
from leadline._core.wire import read_file
from leadline.engines.postgres.server import PrivateServer
from packets_made import ACK, FIN, Packets, answer, query

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
        row[f"{end}_again"] += payload != "0" and (bool(again) or bool(out_of_order))  # a FIN alone is no data
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


# How a frame of Ethernet is put into a tunnel: what stands in front of it, or of the IP packet in it.
def _outer(protocol: int, body: bytes) -> bytes:
    head = struct.pack("!BBHHHBBH8B", 0x45, 0, 20 + len(body), 7, 0, 64, protocol, 0, 192, 168, 0, 1, 192, 168, 0, 2)
    return b"\2" * 12 + b"\x08\0" + head + body


def _udp(port: int, body: bytes) -> bytes:
    return _outer(17, struct.pack("!HHHH", 50_000, port, 8 + len(body), 0) + body)


TUNNELS: dict[str, Callable[[bytes], bytes]] = {
    "vlan": lambda frame: frame[:12] + b"\x81\0\0\7" + frame[12:],
    "qinq": lambda frame: frame[:12] + b"\x88\xa8\0\7\x81\0\0\7" + frame[12:],
    "mpls": lambda frame: frame[:12] + b"\x88\x47\0\0\0\x40\0\0\x11\x40" + frame[14:],
    "pppoe": lambda frame: frame[:12] + b"\x88\x64\x11\0\0\7" + struct.pack("!H", len(frame) - 12) + b"\0\x21" + frame[14:],
    "ipip": lambda frame: _outer(4, frame[14:]),
    "gre": lambda frame: _outer(47, b"\0\0\x08\0" + frame[14:]),
    "gre with a key": lambda frame: _outer(47, b"\x20\0\x65\x58\0\0\0\7" + frame),
    "erspan 2": lambda frame: _outer(47, b"\x10\0\x88\xbe\0\0\0\1" + b"\x10\7\0\1\0\0\0\0" + frame),
    "vxlan": lambda frame: _udp(4789, b"\x08\0\0\0\0\0\7\0" + frame),
    "geneve": lambda frame: _udp(6081, b"\0\0\x65\x58\0\0\7\0" + frame),
}


@pytest.mark.parametrize("name", TUNNELS)
def test_packets_in_a_tunnel(name: str, tmp_path: Path) -> None:
    made = Packets(tmp_path / "made.pcap")
    for _ in range(2):
        line = made.line().login()
        for n in range(20):
            line.ask(rows=n)
            if n == 7:
                line.wait(300).again(answer(n))
        line.close()
    made._rows = [(ts, TUNNELS[name](frame)) for ts, frame in made._rows]
    path = Path(made.write())
    ours = by_leadline(path, 5432)
    assert ours == by_tshark(path, 5432)
    assert [row["ready"] for row in ours] == [21, 21]


@pytest.mark.parametrize("how", ["gzip", "zstd", "behind", "cut"])
def test_files_as_tools_write_them(how: str, tmp_path: Path) -> None:
    """Compressed, one file put behind the other by mergecap, and cut to 160 bytes by editcap."""
    paths = []
    for n in range(2):
        made = Packets(tmp_path / f"{n}.pcap")
        line = made.line(client=n + 1, at_ms=1000 * n).login()
        for rows in range(30):
            line.ask(rows=rows, after_ms=20)
        line.close()
        paths.append(Path(made.write()))
    together, out = tmp_path / "together", tmp_path / "out"
    subprocess.run(["mergecap", "-w", together, *paths], check=True)
    wanted = together
    if how == "behind":
        subprocess.run(["mergecap", "-a", "-w", out, *paths[::-1]], check=True)
    elif how == "cut":
        subprocess.run(["editcap", "-s", "160", together, out], check=True)
        wanted = out
    else:
        done = subprocess.run([how, "-c", together], check=True, capture_output=True)
        out.write_bytes(done.stdout)
    theirs = by_tshark(wanted, 5432)
    ours = by_leadline(out, 5432)
    if how == "cut":  # what lies behind the cut, neither can read
        ours, theirs = [[{n: v for n, v in row.items() if n != "ready"} for row in rows] for rows in (ours, theirs)]
    assert ours == theirs
    lengths = tshark_lengths(wanted) if how == "cut" else []
    assert sum(row["client_cut"] + row["server_cut"] for row in read_file(str(out), ports=[5432])["connections"]) == sum(lengths)


def tshark_lengths(path: Path) -> list[bool]:
    """Of each packet with data, whether it was cut."""
    fields = ["-e", "frame.len", "-e", "frame.cap_len", "-e", "tcp.len"]
    text = subprocess.run(["tshark", "-n", "-r", path, "-T", "fields", *fields], check=True, capture_output=True, text=True).stdout
    return [int(length) > int(captured) for length, captured, _ in map(str.split, text.splitlines())]


def test_keep_alives_and_a_fin_that_comes_again(tmp_path: Path) -> None:
    made = Packets(tmp_path / "made.pcap")
    line = made.line().login().ask()
    for data in (b"", b"\0"):
        line.wait(5000).raw(True, ACK, data, seq=line.seqs[0] - 1)
        line.raw(False, ACK)
    line.raw(True, FIN | ACK)
    line.wait(300).raw(True, FIN | ACK)
    path = made.write()
    [row] = read_file(path, ports=[5432])["connections"]
    fields = ["-e", "tcp.analysis.keep_alive", "-e", "tcp.analysis.retransmission", "-e", "tcp.len"]
    command = ["tshark", "-n", "-r", path, "-T", "fields", *fields]
    seen = [line.split("\t") for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]
    assert row["client_keepalives"] == sum(bool(alive) for alive, *_ in seen) == 2
    assert row["client_retransmits"] == sum(bool(again) and length != "0" for _, again, length in seen) == 0
    assert sum(bool(again) for _, again, _ in seen) == 1

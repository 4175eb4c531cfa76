"""Packets of a real server on the loopback: how clients logged in, and how many round trips they took."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from math import sqrt
from pathlib import Path

import psycopg
import pytest
from conftest import fetched_or_skip
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.engines.postgres.server import PrivateServer
from leadline.findings import Evaluation, evaluate
from leadline.net import auth
from leadline.net.budget_model import COLD_AT_MS, COLD_MS
from leadline.probes.pcap_filter import compiled
from leadline.probes.wire import WireProbe, record
from live import wire_connections
from logins import METHODS, SECRET, make_users

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer(fetched_or_skip(16).bin_dir, loopback=True) as private:
        make_users(private)
        yield private


def over_tcp(server: PrivateServer, user: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(host="127.0.0.1", port=server.port, user=user, password=SECRET, dbname="postgres", gssencmode="disable")


def test_each_way_to_log_in_has_its_verdict_and_the_password_is_nowhere(server: PrivateServer, tmp_path: Path) -> None:
    probe = WireProbe(tmp_path, "lo", [server.port])
    probe.start()
    for role in METHODS:
        over_tcp(server, role).close()
    assert probe.stop()["error"] is None
    ways = auth.logins(wire_connections(tmp_path))
    assert {(w.user, w.auth, w.verdict, w.let_in) for w in ways} == {
        ("plain", "cleartext", auth.READABLE, True),
        ("hashed", "md5", auth.WEAK, True),
        ("scrammed", "scram-sha-256", auth.SAFE, True),
    }
    assert {w.tls for w in ways} == {"refused"}
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert (tmp_path / "wire_connection" / "000001.parquet") in files
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


def test_round_trips_and_transactions_are_those_that_the_client_made(server: PrivateServer, tmp_path: Path) -> None:
    done = threading.Event()

    def work() -> None:
        with over_tcp(server, "scrammed") as db:
            for _ in range(7):  # begin, two statements, commit
                with db.transaction():
                    db.execute("select 1", prepare=False)
                    db.execute("select generate_series(1, 30)", prepare=False)
        done.set()

    thread = threading.Thread(target=work)
    probe = WireProbe(None, "lo", [server.port])
    probe.start()
    thread.start()
    thread.join(60)
    assert done.is_set()
    final = probe.stop()
    [c] = probe.summary()["connections"]
    assert (final["lost"], c["transactions"], c["round_trips"], c["rows"]) == (0, 7, 28, 7 * 31)
    assert c["user_name"] == "scrammed" and c["ended"].startswith(("closed", "half closed", "open"))
    assert c["handshake_ns"] > 0 and c["connect_ns"] > c["handshake_ns"]


def test_the_kernel_passes_what_the_filter_wants_and_both_ends_of_a_port_are_looked_at_later(server: PrivateServer) -> None:
    program = compiled(f"tcp src port {server.port} and tcp[tcpflags] & tcp-push != 0").for_kernel()
    # The ports are given: where only one side is seen, and no handshake, nothing else tells which is the server's.
    probes = [WireProbe(None, "lo", [server.port])]
    probes += [WireProbe(None, "lo", [port], program=program) for port in (server.port, 1)]
    for probe in probes:
        probe.start()
    with over_tcp(server, "scrammed") as db:
        for _ in range(20):
            db.execute("select 1", prepare=False)
    for probe in probes:
        probe.stop()
    every, wanted, other = (probe.summary() for probe in probes)
    [all_of_it], [answers] = every["connections"], wanted["connections"]
    assert (answers["server_segments"], answers["client_segments"]) == (all_of_it["server_segments"], 0)
    assert all_of_it["server_segments"] >= 20 and all_of_it["client_segments"] >= 20
    assert other["counts"]["other_ports"] == wanted["counts"]["packets"] and other["connections"] == []


def test_a_capture_of_a_server_and_a_budget_have_only_the_packets_that_pass(
    server: PrivateServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = threading.Event()

    def work() -> None:
        with over_tcp(server, "scrammed") as db:
            while not stop.is_set():
                db.execute("select 1")

    thread = threading.Thread(target=work)
    thread.start()
    dsn = f"host=127.0.0.1 port={server.port} user=nobody_logs_in"
    try:
        for name, wanted in (("some", f"port {server.port}"), ("none", "port 1")):
            out = str(tmp_path / f"{name}.leadline")
            call = ["take", "--pid", str(server.pid), "--probes", "host", "--packets", "--filter", wanted, "--for", "500ms", "-o", out]
            assert run(call) == 0
            with closing(open_capture(Path(out))) as capture:
                assert capture.manifest.options["filter"] == wanted
                assert (capture.rows("select count(*) as n from wire_connection")[0]["n"] > 0) == (name == "some")
            assert run(["net", "budget", dsn, "--for", "500ms", "--filter", wanted]) == (0 if name == "some" else 2)
    finally:
        stop.set()
        thread.join()
    assert "no round trips to the server passed this host" in capsys.readouterr().err


def test_the_budget_of_a_running_server(server: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()

    def work() -> None:
        with over_tcp(server, "scrammed") as db:
            while not stop.is_set():
                with db.transaction():
                    db.execute("select 1", prepare=False)

    thread = threading.Thread(target=work)
    thread.start()
    dsn = f"host=127.0.0.1 port={server.port} user=nobody_logs_in"
    try:
        assert run(["net", "budget", dsn, "--for", "1s", "--rtt", "20ms", "--json"]) == 0
    finally:
        stop.set()
        thread.join()
    [found] = json.loads(capsys.readouterr().out)["budgets"]
    assert (found["client"], found["server"], found["unit"]) == ("127.0.0.1", f"127.0.0.1:{server.port}", "transaction")
    assert found["connections"] == 1 and found["rtt_ms"] * found["round_trips"] <= 1000 * found["window_s"]
    assert found["trips_each"]["value"] == pytest.approx(3, abs=0.2) and 0 < found["rtt_ms"] < 20
    [far], n = found["what_if"], found["trips_each"]["value"] + found["setup_trips_each"]
    plain, cold = found["rest_ms"]["value"] + 20 * n, n * COLD_MS * sqrt(20 / COLD_AT_MS)
    assert plain <= far["transaction_ms"]["value"] <= plain + cold / 2
    assert run(["net", "budget", dsn, "--for", "10ms"]) == 2
    assert "no round trips to the server passed this host" in capsys.readouterr().err


def test_a_capture_of_an_interface_is_whole(server: PrivateServer, tmp_path: Path) -> None:
    db = over_tcp(server, "scrammed")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            db.execute("select 1")
            db.commit()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        directory, seen = record("lo", [server.port], for_s=1.0, out=tmp_path / "c")
    finally:
        stop.set()
        thread.join()
        db.close()
    with closing(open_capture(directory)) as capture:
        assert capture.manifest.status == "complete" and capture.manifest.probe("wire").loss["packets_lost"] == 0
        [row] = capture.rows(
            """select count(last_ns) as trips, count(*) - count(last_ns) as open,
                      min(r.ts) >= any_value(c.ts_from) - 1e8 and max(r.ts) <= any_value(c.ts_to) + 1e8 as within
               from wire_roundtrip r cross join capture c"""
        )
        # The capture may end between a request and its answer.
        assert seen["whole"] is not None and row["trips"] == seen["whole"]["count"] > 10 and row["open"] <= 1
        assert row["within"]


def pieces(server: PrivateServer, stop: threading.Event, no_delay: bool) -> None:
    """Requests in two pieces; without TCP_NODELAY the kernel keeps the second until the server's acknowledges the first."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, no_delay)
        words = b"user\0postgres\0database\0postgres\0\0"
        line.sendall(struct.pack("!II", 8 + len(words), 3 << 16) + words)
        request = b"Q" + struct.pack("!I", 13) + b"select 1\0"
        while True:
            got = b""
            while not got.endswith(b"Z\0\0\0\5I"):
                got += (part := line.recv(8192))
                assert part, got
            if stop.is_set():
                return
            line.sendall(request[:5])
            line.sendall(request[5:])


def short_lives(server: PrivateServer, stop: threading.Event) -> None:
    while not stop.is_set():
        with over_tcp(server, "scrammed") as db:
            db.execute("select 1")


def found_while(server: PrivateServer, out: Path, *work: Callable[[threading.Event], None]) -> Evaluation:
    stop = threading.Event()
    threads = [threading.Thread(target=one, args=[stop]) for one in work]
    for thread in threads:
        thread.start()
    try:
        directory, _ = record("lo", [server.port], for_s=2.0, out=out)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    with closing(open_capture(directory)) as capture:
        return evaluate(capture)


def test_requests_in_pieces_and_short_connections_are_found(server: PrivateServer, tmp_path: Path) -> None:
    result = found_while(server, tmp_path / "c", partial(pieces, server, no_delay=False), partial(short_lives, server))
    found = {f.id: f for f in result.findings}
    assert set(found) == {"DELAYED-ACK", "CONNECT-COST"}
    held = found["DELAYED-ACK"]
    assert held.cost_s is not None and 0.035 < held.cost_s / held.samples < 0.08  # Linux waits for 40 ms


def test_requests_in_pieces_that_are_sent_at_once_are_fine(server: PrivateServer, tmp_path: Path) -> None:
    result = found_while(server, tmp_path / "c", partial(pieces, server, no_delay=True))
    assert result.findings == [] and {"DELAYED-ACK", "CONNECT-COST"} <= set(result.clean)


SEGMENTS = struct.Struct("=136x2I")  # of struct tcp_info: segs_out, segs_in


@pytest.mark.parametrize("is_looking", [True, False])
def test_every_packet_is_seen_or_counted_as_lost(is_looking: bool) -> None:
    """TCP says how many segments a connection had. Nobody empties the ring until they are all there, or somebody does all the time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        probe = WireProbe(None, "lo", [listener.getsockname()[1]], ring_bytes=(32 if is_looking else 2) << 20)
        if is_looking:
            probe.start()
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as peer:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(20_000 if is_looking else 60_000):
                client.send(b"x")
                peer.recv(100)
            sent, received = SEGMENTS.unpack(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SEGMENTS.size))
            if not is_looking:
                probe.start()
            final = probe.stop()
    seen = probe.summary()["counts"]["packets"]
    assert seen > 0 and seen + final["lost"] == sent + received
    assert (final["lost"] == 0) is is_looking

"""leadline net packets, budget and auth over files of packets with known contents."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import closing
from math import sqrt
from pathlib import Path
from typing import IO, Any

import pytest
from conftest import wait_until
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.net import auth, packets
from leadline.net.budget import Budget, budgets
from packets_made import ACK, GSS_REQUEST, IN_TRANSACTION, OK, READY, RST, SSL_REQUEST, SYN, Packets, first, message, startup

SECRET = b"swordfish-4711"


@pytest.fixture
def made(tmp_path: Path) -> Packets:
    return Packets(tmp_path / "made.pcap")


def transactions(made: Packets, number: int = 40, client_ms: float = 0.3, server_ms: float = 0.5) -> None:
    """Each has begin, two statements and commit: four round trips of 0.1 ms."""
    line = made.line().login()
    for _ in range(number):
        for ready in (IN_TRANSACTION, IN_TRANSACTION, IN_TRANSACTION, READY):
            line.wait(client_ms).client(b"Q\0\0\0\x08go\0\0"[:9]).wait(server_ms).server(message("C", b"x\0") + ready)
    line.close()


def budgets_of(made: Packets, rtts_ms: list[float], *, path: str = "", **more: Any) -> list[Budget]:
    directory, _ = packets.read_into(path or made.write(), [], out=made.path.with_suffix(".leadline"), overwrite=True)
    with closing(open_capture(directory)) as capture:
        return budgets(capture, rtts_ms, **more).budgets


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["net", *arguments]) == 0
    return capsys.readouterr().out


def test_packets_of_a_file_as_text_and_json(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    transactions(made)
    made.line(at_ms=1).login("report").ask(rows=50).close()
    path = made.write()
    text = shown(capsys, "packets", "--pcap", path, "--port", "5432", "--interval", "1s")
    assert "2 connections" in text and "server 10.0.0.2:5432" in text and "4.00" in text
    assert all(len(line) <= 80 for line in text.removeprefix(f"{path}: ").splitlines())
    found = json.loads(shown(capsys, "packets", "--pcap", path, "--json"))
    first, second = found["connections"]
    assert (first["round_trips"], first["transactions"], first["handshake_ns"]) == (160, 40, 100_000)
    assert (second["user_name"], second["rows"]) == ("report", 50)
    assert sum(s["packets"] for s in found["sizes"]) == found["counts"]["packets"]
    assert found["answer"]["p50_ns"] == pytest.approx(550_000, rel=0.02)


def test_a_capture_has_the_same_connections_and_every_round_trip(made: Packets, tmp_path: Path) -> None:
    transactions(made)
    path = made.write()
    directory, seen = packets.read_into(path, [5432], out=tmp_path / "c")
    with closing(open_capture(directory)) as capture:
        [row] = capture.rows("from wire_connection")
        assert row == packets.read(path, [5432])["connections"][0]
        trips = capture.rows("from wire_roundtrip where purpose = 'simple query' order by ts")
        assert len(trips) == 160 and sum(t["transactions"] for t in trips) == 40
        assert {(t["first_ns"], t["last_ns"], t["client_gap_ns"]) for t in trips} == {(550_000, 550_000, 350_000)}
        assert [t["in_transaction"] for t in trips[:4]] == [True, True, True, False]
        sizes = capture.rows("select direction, sum(packets)::int as packets from wire_interval group by 1 order by 1")
    assert sum(s["packets"] for s in sizes) == seen["counts"]["packets"]


def test_the_budget_counts_round_trips_and_predicts(made: Packets, tmp_path: Path) -> None:
    transactions(made, client_ms=0.3, server_ms=0.5)
    [found] = budgets_of(made, [0.1, 5.0])
    assert (found.unit, found.trips_each.value, found.rtt_ms) == ("transaction", 4.0, 0.1)
    # Each round trip: 0.35 ms of the client, 0.55 ms until the answer.
    assert found.cycle_ms.value == pytest.approx(3.6, rel=0.01) and found.setup_trips_each == 2 / 40
    assert found.rest_ms.value == pytest.approx(3.2, rel=0.01)
    same, far = found.what_if
    assert same.per_second.value == pytest.approx(found.per_second, rel=0.01)
    # With the handshake and the start-up of 40 transactions; and 0.075 ms for each pause of 0.5 ms, as the square root.
    t = found.cycle_ms.value + 4.05 * (4.9 + 0.075 * (sqrt(5 / 0.5) - sqrt(0.1 / 0.5)))
    assert far.transaction_ms.value == pytest.approx(t, rel=1e-3)
    assert far.network_share == pytest.approx(4.05 * 5 / far.transaction_ms.value)
    assert far.per_second.low <= far.per_second.value <= far.per_second.high


def test_a_budget_of_one_of_two_servers(made: Packets, tmp_path: Path) -> None:
    transactions(made, client_ms=0.3, server_ms=0.5)
    other = made.line(server=3).login()
    for _ in range(20):
        other.ask()
    path = made.write()
    found = [budgets_of(made, [], path=path, server=server) for server in ("", "10.0.0.2", "10.0.0.3")]
    assert [[(each.connections, each.transactions) for each in some] for some in found] == [[(1, 40), (1, 20)], [(1, 40)], [(1, 20)]]


def test_packets_that_were_captured_twice_count_once_and_are_said(
    made: Packets, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transactions(made)
    path = made.write()
    once = json.loads(shown(capsys, "packets", "--pcap", path, "--json"))
    made.copied_ns = 40_000
    twice = json.loads(shown(capsys, "packets", "--pcap", made.write(), "--json"))
    assert twice["counts"]["copies"] == once["counts"]["packets"] == twice["counts"]["packets"] // 2
    assert (twice["sizes"], twice["answer"]) == (once["sizes"], once["answer"])
    [a], [b] = once["connections"], twice["connections"]
    assert b["client_copies"] == a["client_packets"] and b["server_copies"] == a["server_packets"]
    assert {n: v for n, v in a.items() if "copies" not in n} == {n: v for n, v in b.items() if "copies" not in n}
    told = f"{once['counts']['packets']} copies of packets that another interface had"
    assert told in shown(capsys, "packets", "--pcap", path)
    directory, _ = packets.read_into(path, [], out=tmp_path / "c")
    assert told in read_manifest(directory).notes[0]


def test_no_round_trips_of_a_transaction_from_messages_that_were_cut(
    made: Packets, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers of 160 bytes and more hide in their end that the server is ready."""
    transactions(made)
    long = made.line().login("report")
    for _ in range(40):
        long.ask(rows=6)
    directory, _ = packets.read_into(made.write(), [], out=tmp_path / "whole")
    made.snaplen = 160
    path = made.write()
    cut, seen = packets.read_into(path, [], out=tmp_path / "cut")
    assert (seen["counts"]["cut_messages"], seen["counts"]["uncounted"]) == (40, 1)
    with closing(open_capture(directory)) as whole, closing(open_capture(cut)) as capture:
        assert [c["transactions"] for c in whole.rows("from wire_connection order by connection_id")] == [40, 40]
        rows = capture.rows("from wire_connection order by connection_id")
        assert [(c["transactions"], c["rows"], c["cut_messages"]) for c in rows] == [(40, 0, 0), (None, None, 40)]
        [found] = budgets(capture, []).budgets
        assert (found.trips_each.value, found.transactions, found.unread_connections, found.cut_connections) == (4.0, 40, 0, 1)
    text = shown(capsys, "packets", "--pcap", path)
    assert "40 messages lost in 40 segments that were not captured whole" in text
    assert "1 connection lost too many messages: their transactions are not counted" in text


def test_several_files_pipes_and_compressed_ones_are_read_as_one(made: Packets, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transactions(made)
    made.line(client=9, at_ms=7).login("other").ask()
    whole = Path(made.write()).read_bytes()
    wanted = json.loads(shown(capsys, "packets", "--pcap", str(made.path), "--json"))
    frames = sorted(made._rows)
    for name, part in (("late", frames[100:]), ("early", frames[:100])):
        half = Packets(tmp_path / name)
        half._rows = part
        half.write()
    (tmp_path / "packed").write_bytes(gzip.compress(whole))
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[whole]).start()
    for names in (["late", "early"], ["packed"], ["pipe"]):
        files = [word for name in names for word in ("--pcap", str(tmp_path / name))]
        found = json.loads(shown(capsys, "packets", *files, "--json"))
        assert {n: found[n] for n in ("counts", "sizes", "connections", "answer", "gap")} == {
            n: wanted[n] for n in ("counts", "sizes", "connections", "answer", "gap")
        }, names
    command = [sys.executable, "-m", "leadline", "net", "packets", "--pcap", "-", "--json"]
    piped = subprocess.run(command, input=gzip.compress(whole), check=True, capture_output=True, env=os.environ | {"LEADLINE_BOOK": "off"})
    assert json.loads(piped.stdout)["connections"] == wanted["connections"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_pipe_and_what_came_is_shown(number: signal.Signals, made: Packets) -> None:
    """Also where a script has started it in the background, which ignores SIGINT."""
    made.line().login().ask()
    data = Path(made.write()).read_bytes()
    command = f"trap '' INT; exec {sys.executable} -m leadline net packets --pcap - --json"
    with subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"LEADLINE_BOOK": "off"}
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(data)
        process.stdin.flush()
        wait_until(lambda: unread(process.stdin) == 0, what="the packets to be read")
        process.send_signal(number)
        found = json.loads(process.stdout.read())
    assert (process.returncode, found["counts"]["connections"]) == (0, 1)


@pytest.mark.parametrize("begun", [b"\xd4", b"\xd4\xc3\xb2", b"\x1f\x8b\x08"])
def test_a_signal_ends_a_pipe_that_has_brought_no_packet(begun: bytes) -> None:
    """It may come while nothing is read: a read that has not begun is not interrupted by it."""
    command = [sys.executable, "-m", "leadline", "net", "packets", "--pcap", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"LEADLINE_BOOK": "off"}) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(begun)
        process.stdin.flush()
        wait_until(lambda: unread(process.stdin) == 0, what="the bytes to be read")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, process.stderr.read()


def unread(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def test_only_the_hosts_that_are_named(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    for client in (1, 5, 9):
        made.line(client=client).login().ask()
    path = made.write()
    for hosts, wanted in ((["10.0.0.5"], 1), (["10.0.0.5,10.0.0.9"], 2), (["10.0.0.0/29"], 3), (["10.0.0.4/31", "--host", "10.0.0.1"], 2)):
        found = json.loads(shown(capsys, "packets", "--pcap", path, "--json", "--host", *hosts))
        assert (found["counts"]["connections"], found["counts"]["other_hosts"]) == (wanted, 7 * (3 - wanted)), hosts
    assert "14 of other hosts" in shown(capsys, "packets", "--pcap", path, "--host", "10.0.0.1")
    assert len(json.loads(shown(capsys, "auth", "--pcap", path, "--json", "--host", "10.0.0.1"))["logins"]) == 1


def test_a_file_out_of_the_order_of_time_is_sorted_and_a_pipe_says_so(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    transactions(made)
    wanted = json.loads(shown(capsys, "packets", "--pcap", made.write(), "--json"))
    made.sort = False
    made._rows = made._rows[77:] + made._rows[:77]
    found = json.loads(shown(capsys, "packets", "--pcap", made.write(), "--json"))
    assert (found["counts"], found["connections"], found["file"]["sorted"]) == (wanted["counts"], wanted["connections"], 1)
    packed = made.path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(made.path.read_bytes()))
    assert run(["net", "packets", "--pcap", str(packed)]) == 0
    assert "warning: 77 packets came behind later ones" in capsys.readouterr().err


def test_a_budget_without_round_trips_or_without_their_time_says_so(made: Packets, tmp_path: Path) -> None:
    made.line().handshake()
    directory, _ = packets.read_into(made.write(), [], out=tmp_path / "c")
    with closing(open_capture(directory)) as capture, pytest.raises(LeadlineError, match="no round trips"):
        budgets(capture, [1.0])


def login(made: Packets, code: int, proof: bytes, outcome: bytes = OK + READY, **ends: Any) -> None:
    line = made.line(**ends).handshake().client(SSL_REQUEST).server(b"N").client(startup())
    line.server(message("R", struct.pack("!I", code))).client(message("p", proof)).server(outcome)


def every_login(made: Packets) -> None:
    login(made, 3, SECRET + b"\0")
    login(made, 5, b"md5" + b"0" * 32 + b"\0")
    scram = message("R", struct.pack("!I", 10) + b"SCRAM-SHA-256\0\0")
    made.line().handshake().client(GSS_REQUEST).server(b"N").client(startup()).server(scram).client(message("p", b"n,,")).server(OK + READY)
    made.line().handshake().client(SSL_REQUEST).server(b"S").client(b"\x16\3\1\0\1\1").server(b"\x16\3\3\0\1\1")
    made.line().login("trusted")
    made.line().client(b"Q\0\0\0\x08go\0\0"[:9]).server(message("C", b"x\0") + READY)


def test_the_verdict_on_each_way_to_log_in(made: Packets) -> None:
    every_login(made)
    ways = auth.logins(packets.read(made.write(), [])["connections"])
    assert [(w.verdict, w.auth, w.tls, w.gss) for w in ways] == [
        (auth.READABLE, "cleartext", "refused", "not asked"),
        (auth.WEAK, "md5", "refused", "not asked"),
        (auth.OPEN, "not asked", "not asked", "not asked"),
        (auth.SAFE, "scram-sha-256", "not asked", "refused"),
        (auth.ENCRYPTED, "unseen", "accepted", "not asked"),
        (auth.UNKNOWN, "unseen", "not asked", "not asked"),
    ]


def sasl(made: Packets, mechanism: bytes, data: bytes) -> None:
    offered = message("R", struct.pack("!I", 10) + mechanism + b"\0\0")
    chosen = message("p", mechanism + b"\0" + struct.pack("!i", len(data)) + data)
    made.line().handshake().client(startup()).server(offered).client(chosen).server(OK + READY)


@pytest.mark.parametrize(
    ("mechanism", "data", "verdict"),
    [
        (b"OAUTHBEARER", b"n,,\1auth=Bearer " + SECRET + b"\1\1", auth.READABLE),
        (b"PLAIN", b"\0app\0" + SECRET, auth.READABLE),
        (b"SCRAM-SHA-512", b"n,,n=,r=abc", auth.SAFE),
        (b"DIGEST-MD5", b"response=abc", auth.WEAK),
        (b"GSSAPI", b"ticket", auth.SAFE),
        (b"NEW-METHOD", b"abc", auth.OTHER),
    ],
)
def test_a_mechanism_is_judged_by_its_name(made: Packets, tmp_path: Path, mechanism: bytes, data: bytes, verdict: str) -> None:
    sasl(made, mechanism, data)
    path = made.write()
    [way] = auth.logins(packets.read(path, [])["connections"])
    directory, _ = packets.read_into(path, [], out=tmp_path / "c")
    assert (way.verdict, way.auth) == (verdict, mechanism.decode().lower())
    assert not any(SECRET in file.read_bytes() for file in directory.rglob("*") if file.is_file())


def test_refusals_cancels_and_clients_that_go_away_are_seen(made: Packets) -> None:
    refused = message("E", b"SFATAL\0C28000\0Mno pg_hba.conf entry\0\0")
    made.line(client=1).handshake().client(startup()).server(refused)
    made.line(client=2).handshake().client(first(80877102, b"\7" * 8)).close()
    made.line(client=3).handshake().close_at_once()
    made.line(client=4).handshake().client(startup()).server(message("R", struct.pack("!I", 3))).close()
    nobody = made.line(client=5)
    nobody.raw(True, SYN)
    nobody.raw(False, RST | ACK)
    made.line(client=6).handshake().client(SSL_REQUEST).server(b"N").close()
    made.line(client=7).handshake().client(b"GET / HTTP/1.0\r\n\r\n").close()
    found = {w.client: (w.verdict, w.auth) for w in auth.logins(packets.read(made.write(), [])["connections"])}
    assert found == {
        "10.0.0.1": (auth.REFUSED, "unseen"),
        "10.0.0.2": (auth.NO_LOGIN, "cancel key"),
        "10.0.0.3": (auth.NO_LOGIN, "unseen"),
        "10.0.0.4": (auth.NO_LOGIN, "cleartext"),
        "10.0.0.5": (auth.REFUSED, "unseen"),
        "10.0.0.6": (auth.NO_LOGIN, "unseen"),
        "10.0.0.7": (auth.UNKNOWN, "unseen"),
    }


@pytest.mark.parametrize("user", ["app", "a_user_with_a_rather_long_name_that_fills_the_line_of_the_table"])
@pytest.mark.usefixtures("terminal")
def test_verdicts_and_methods_are_whole_in_80_columns(made: Packets, capsys: pytest.CaptureFixture[str], user: str) -> None:
    for code in (3, 5):
        line = made.line(client=111).handshake().client(SSL_REQUEST).server(b"N").client(startup(user, "a_database_with_a_long_name"))
        line.server(message("R", struct.pack("!I", code))).client(message("p", SECRET + b"\0")).server(OK + READY)
    sasl(made, b"SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=abc")
    text = shown(capsys, "auth", "--pcap", made.write())
    assert all(len(line) <= 80 for line in text.splitlines())
    for verdict in ("password readable: 1 connection", "hash can be guessed: 1 connection", "password not readable: 1 connection"):
        assert verdict in text.splitlines()
    assert "scram-sha-256-plus" in text and "10.0.0.111" in text


def test_no_password_is_in_any_output_or_capture(made: Packets, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every_login(made)
    path = made.write()
    assert SECRET in Path(path).read_bytes()
    texts = [shown(capsys, command, "--pcap", path, *more) for command in ("auth", "packets") for more in ((), ("--json",))]
    assert "password readable: 1 connection" in texts[0]
    directory, _ = packets.read_into(path, [], out=tmp_path / "c")
    contents = [file.read_bytes() for file in directory.rglob("*") if file.is_file()]
    assert len(contents) > 4 and not any(SECRET in content for content in contents)
    assert not any(SECRET.decode() in text for text in texts)


def test_rules_that_allow_readable_passwords() -> None:
    rows = [
        (1, "local", "all", "all", "", "", "trust", ""),
        (2, "host", "all", "all", "10.0.0.0", "255.0.0.0", "password", ""),
        (3, "hostssl", "all", "all", "all", "", "password", ""),
        (4, "host", "all", "all", "all", "", "md5", ""),
        (5, "host", "all", "all", "all", "", "scram-sha-256", ""),
        (6, "hostssl", "all", "all", "all", "", "trust", ""),
    ]
    found = auth.rules(rows)
    assert [(r["line_number"], r["verdict"]) for r in found] == [(2, auth.READABLE), (4, auth.WEAK), (6, auth.OPEN)]


@pytest.mark.parametrize(
    ("address", "netmask", "shown"),
    [
        ("10.0.0.0", "255.0.0.0", "10.0.0.0/8"),
        ("0.0.0.0", "0.0.0.0", "0.0.0.0/0"),
        ("192.168.100.77", "255.255.255.255", "192.168.100.77/32"),
        ("2001:db8::", "ffff:ffff::", "2001:db8::/32"),
        ("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::1/128"),
        ("10.0.0.0", "255.0.255.0", "10.0.0.0 255.0.255.0"),
        ("2001:db8::", "ffff:0:ffff::", "2001:db8:: ffff:0:ffff::"),
        ("samenet", "", "samenet"),
        (".example.com", "", ".example.com"),
    ],
)
def test_a_rule_has_its_mask(address: str, netmask: str, shown: str) -> None:
    found = auth.rules([(7, "host", "all", "all", address, netmask, "md5", "")])
    assert auth.address_of(found[0]) == shown
    text = "\n".join(auth.rule_lines(found))
    assert shown in text and "hash can be guessed: 1 rule" in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["packets"], "name an interface with -i, or a file with --pcap"),
        (["packets", "--pcap", "x.pcap", "-i", "lo"], "name an interface with -i, or a file with --pcap"),
        (["packets", "--pcap", "/nonexistent"], "no such file or directory"),
        (["packets", "--pcap", "FILE", "--port", "http"], "'http' is not a port"),
        (["packets", "--pcap", "FOLDER"], "this is not a file of packets"),
        (["packets", "--pcap", "FILE", "--for", "3s"], "--for is for an interface: a file is read to its end"),
        (["packets", "-i", "lo", "--for", "0"], "the window must be longer than nothing"),
        (["auth", "-i", "lo", "--for", "0s"], "the window must be longer than nothing"),
        (["packets", "--pcap", "FILE", "--host", "no.such.host.invalid"], "'no.such.host.invalid' is neither a known host nor an address"),
        (["packets", "--pcap", "FILE", "--host", "10.0.0.0/99"], "'10.0.0.0/99' is neither a known host nor an address"),
        (["packets", "-i", "nosuch0"], "no network interface nosuch0"),
        (["auth"], "name an interface with -i, a file with --pcap, or a server"),
        (["packets", "--pcap", "FILE"], "this is not a file of packets"),
    ],
)
def test_a_call_that_makes_no_sense_is_one_error(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f").write_text("hello, this is text")
    places = {"FILE": str(tmp_path / "f"), "FOLDER": str(tmp_path)}
    assert run(["net", *(places.get(a, a) for a in arguments)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_damaged_file_gives_what_is_whole_and_a_warning(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    made.line().login()
    path = Path(made.write())
    path.write_bytes(path.read_bytes()[:-10])
    assert run(["net", "packets", "--pcap", str(path)]) == 0
    printed = capsys.readouterr()
    assert "4 packets" in printed.out and printed.err.startswith("warning: the last packet is not whole")

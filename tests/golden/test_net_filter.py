"""`--filter` passes the packets that tcpdump passes, of files with each link type; fragments count as tshark counts them."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.net.packets import read
from leadline.probes import pcap_filter
from packets_made import Packets

WIRE = Path(__file__).parents[1].parent / "testdata" / "wire"
EXPRESSIONS = (
    "tcp", "udp", "ip6", "not tcp", "tcp port 5432", "port 5432 and greater 200", "src port 5432", "dst portrange 5400-5500",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0", "tcp[13] & 8 != 0 and less 120", "host 127.0.0.1", "host ::1", "net 127.0.0.0/8",
    "src host 10.0.0.1", "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x51000000", "ip[2:2] - ((ip[0] & 0xf) << 2) > 60", "len % 2 == 0",
    "ip proto 6 and ip[8] != 64",
    "port 5432 or ip[6:2] & 0x1fff != 0", "tcp[2:2] * 2 = 10864", "tcp[4:4] / 3 > 1000000000 or -len = 0",
)  # fmt: skip


def tcpdump_count(path: Path, expression: str) -> int | None:
    """None: it refuses the expression."""
    if shutil.which("tcpdump") is None:
        no_oracle("tcpdump is not installed")
    done = subprocess.run(["tcpdump", "-n", "-r", path, "--count", expression], capture_output=True, text=True)
    return int(done.stdout.split()[0]) if done.returncode == 0 else None


def passed(path: Path, expression: str) -> int | None:
    try:
        counts = read(str(path), [], only=pcap_filter.compiled(expression))["counts"]
    except LeadlineError as e:
        assert e.kind == "usage" and e.detail
        return None
    return counts["packets"] - counts["filtered"]


def relinked(path: Path, to: Path, link: int, head: bytes) -> Path:
    """The IP packets of a file of Ethernet behind another header."""
    data = path.read_bytes()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    out, at = bytearray(data[:20] + struct.pack(order + "I", link)), 24
    while at < len(data):
        sec, part, captured, length = struct.unpack_from(order + "IIII", data, at)
        frame = head + data[at + 16 + 14 : at + 16 + captured]
        out += struct.pack(order + "IIII", sec, part, len(frame), length - 14 + len(head)) + frame
        at += 16 + captured
    to.write_bytes(out)
    return to


def in_parts(path: Path, to: Path, size: int, lose: int = 0) -> Path:
    """The IPv4 packets of a file of Ethernet in parts of so many bytes of data, each number of its own; one of `lose` parts is lost."""
    data = path.read_bytes()
    out, at, number, parts = bytearray(data[:24]), 24, 0, 0
    while at < len(data):
        sec, part, captured, _ = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        number += 1
        body = frame[34 : 14 + int.from_bytes(frame[16:18], "big")]
        for begin in range(0, len(body), size):
            piece, more = body[begin : begin + size], begin + size < len(body)
            parts += 1
            if lose and more and parts % lose == 0:
                continue
            own = struct.pack("!HHH", 20 + len(piece), number, more << 13 | begin // 8)
            head = frame[:16] + own + frame[22:24] + b"\0\0" + frame[26:34]
            out += struct.pack("<IIII", sec, part, len(head) + len(piece), len(head) + len(piece)) + head + piece
    to.write_bytes(out)
    return to


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("links")
    made = Packets(folder / "made.pcap")
    for port in (5432, 6432):
        made.line(port=port).login().ask(rows=100).ask().close()
    made.add(10**18, b"\2" * 12 + b"\x08\x06" + bytes(28))  # ARP
    made.write()
    pgx = WIRE / "pgx.pcap"
    return [
        *sorted(WIRE.glob("*.pcap")), made.path,
        relinked(pgx, folder / "cooked.pcap", 113, bytes(14) + b"\x08\0"),
        relinked(pgx, folder / "cooked2.pcap", 276, b"\x08\0" + bytes(18)),
        relinked(pgx, folder / "raw.pcap", 101, b""),
        relinked(pgx, folder / "null.pcap", 0, b"\2\0\0\0"),
        relinked(pgx, folder / "loop.pcap", 108, b"\0\0\0\2"),
        in_parts(pgx, folder / "parts.pcap", 64),
    ]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_packets_that_pass_are_those_of_tcpdump(files: list[Path], expression: str) -> None:
    assert {path.name: passed(path, expression) for path in files} == {path.name: tcpdump_count(path, expression) for path in files}


def test_an_expression_that_has_no_meaning_for_a_link_is_refused_as_by_tcpdump(files: list[Path]) -> None:
    by_name = {path.name: path for path in files}
    for expression in ("ether host 02:02:02:02:02:02", "vlan 7", "arp"):
        for name in ("made.pcap", "raw.pcap", "cooked.pcap"):
            assert passed(by_name[name], expression) == tcpdump_count(by_name[name], expression), (expression, name)


def test_a_filter_that_is_none_and_a_host_without_libpcap_are_one_error_each(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for expression in ("", "tcp port", "((", "port 99999", "host", "tcp\0", "\u00fc"):
        assert run(["net", "packets", "--pcap", str(files[0]), "--filter", expression]) == 2
        told = capsys.readouterr().err
        assert told.startswith("error: ") and "pcap-filter" in told, expression
    assert run(["net", "packets", "-i", "lo", "--filter", "vlan 7"]) == 2
    assert "has no meaning here" in capsys.readouterr().err
    monkeypatch.setattr(pcap_filter, "NAMES", ("libnone.so.1",))
    assert run(["net", "auth", "--pcap", str(files[0]), "--filter", "tcp", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "unsupported" and "libpcap" in error["message"] and "apt install" in error["hint"]


def test_what_the_filter_leaves_out_is_said(files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "c.leadline")
    call = ["net", "packets", "--pcap", str(WIRE / "pgx.pcap"), "--filter", "tcp[tcpflags] & tcp-push != 0", "-o", out]
    assert run(call) == 0
    assert "packets left out: " in (told := capsys.readouterr().out) and "that the filter does not want" in told
    options = json.loads((tmp_path / "c.leadline" / "manifest.json").read_text())["options"]
    assert options["filter"] == "tcp[tcpflags] & tcp-push != 0"


def test_a_budget_is_of_the_packets_that_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Packets(tmp_path / "made.pcap")
    for port in (5432, 6432):
        line = made.line(port=port).login()
        for _ in range(20):
            line.ask()
    path = str(made.write())

    def servers(*more: str) -> list[str]:
        assert run(["net", "budget", path, "--rtt", "1ms", "--json", *more]) == 0
        return sorted(found["server"].rpartition(":")[2] for found in json.loads(capsys.readouterr().out)["budgets"])

    assert servers() == ["5432", "6432"]
    assert servers("--filter", "port 6432") == ["6432"]
    assert run(["net", "budget", path, "--filter", "src port 6432"]) == 2
    assert "no round trips in the packets" in capsys.readouterr().err
    assert run(["net", "packets", "--pcap", path, "-o", str(tmp_path / "c.leadline")]) == 0
    capsys.readouterr()
    assert run(["net", "budget", str(tmp_path / "c.leadline"), "--filter", "tcp"]) == 2
    assert "a capture has no packets to filter" in capsys.readouterr().err


def test_take_filters_packets_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["take", "--host", "--for", "1s", "--filter", "tcp"]) == 2
    assert "add --packets" in capsys.readouterr().err


def figures(path: Path) -> dict[str, Any]:
    found = max(read(str(path), [])["connections"], key=lambda c: c["round_trips"])
    names = ("round_trips", "transactions", "statements", "rows", "client_payload_bytes", "server_payload_bytes")
    return {name: found[name] for name in names}


@pytest.mark.parametrize("driver", sorted(path.stem for path in WIRE.glob("*.pcap")))
def test_packets_in_parts_say_what_the_whole_ones_say(driver: str, tmp_path: Path) -> None:
    whole = WIRE / f"{driver}.pcap"
    made = in_parts(whole, tmp_path / "parts.pcap", 72)
    counts = read(str(made), [])["counts"]
    assert counts["joined"] > 0 and counts["fragments_alone"] == 0
    assert figures(made) == figures(whole)


def test_parts_are_put_together_as_tshark_does(tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        no_oracle("tshark is not installed")
    for lose in (0, 7):
        made = in_parts(WIRE / "asyncpg.pcap", tmp_path / "parts.pcap", 72, lose)
        call = ["tshark", "-r", made, "-Y", "tcp", "-T", "fields", "-e", "tcp.len", "-e", "ip.fragment.count"]
        rows = subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
        counts = read(str(made), [])["counts"]
        assert (counts["tcp_packets"], counts["joined"]) == (len(rows), sum("\t" in row and row.split("\t")[1] != "" for row in rows))
        assert (counts["fragments_alone"] > 0, counts["uncounted"]) == (lose > 0, int(lose > 0))

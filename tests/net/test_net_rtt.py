"""`net echo`, `net rtt` and `net delay` from the command line and as a capture: counts against what was asked for."""

from __future__ import annotations

import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_until
from leadline._core.net import Delay, Echo, rtt
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.net import rtt as measuring
from leadline.net.address import Address, parse_address
from net_servers import read, serving


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo("127.0.0.1", 0)
    yield server
    server.stop()


def measure(server: Echo | Delay, **more: Any) -> dict[str, Any]:
    found, interrupted = rtt(*server.address(), **{"request": 0, "response": 0, "for_s": 60.0, **more})
    assert not interrupted
    return json.loads(found)


def test_a_thousand_requests_are_a_thousand_replies(echo: Echo) -> None:
    found = measure(echo, request=250, response=8192, requests=1000)
    assert (found["requests"], found["replies"], found["rtt"]["count"], found["unsent"]) == (1000, 1000, 1000, 0)
    assert found["rtt"]["min_ns"] <= found["rtt"]["p50_ns"] <= found["rtt"]["p99_99_ns"] <= found["rtt"]["max_ns"]
    wanted = {"requests": 1001, "bytes_in": 1001 * 270, "bytes_out": 1001 * 8212}
    wait_until(lambda: wanted.items() <= json.loads(echo.counts()).items(), what="the counts")  # each is made after the reply was sent


def test_what_went_through_a_proxy_is_what_it_says(echo: Echo) -> None:
    proxy = Delay("127.0.0.1", 0, *echo.address(), rtt_s=0.001)
    found = measure(proxy, request=100, response=10, requests=50, connections=2)
    told = json.loads(proxy.stop())
    assert (found["replies"], told["connections"]) == (100, 2)
    assert (told["to_server"]["bytes"], told["to_client"]["bytes"]) == (102 * 120, 102 * 30)
    assert found["rtt"]["min_ns"] > 900_000 and told["to_server"]["added"]["min_ns"] > 450_000


def test_a_pause_counts_for_every_request_that_was_due_in_it(echo: Echo) -> None:
    """The server stops once, for 0.4 s, in which 200 requests are due: those of the first 0.3 s have a response of 0.1 s or more."""

    def stops_once(connection: socket.socket, _: int) -> None:
        with socket.create_connection(echo.address()) as far:
            for number in itertools.count():
                far.sendall(read(connection, 20))
                if number == 100:
                    threading.Event().wait(0.4)
                connection.sendall(read(far, 20))

    with serving(stops_once) as port:
        found = json.loads(rtt("127.0.0.1", port, request=0, response=0, rate_hz=500.0, for_s=2.0)[0])

    def long(kind: str) -> int:
        return sum(count for row in found["rows"] for low, _, count in row[kind]["buckets"] if low >= 100_000_000)

    assert long("rtt") >= 1
    assert long("response") >= 140
    assert long("rtt") < long("response") / 10
    assert found["requests"] + found["unsent"] == 1000


def test_histograms_of_a_capture_merge_by_sql(echo: Echo, tmp_path: Path) -> None:
    plan = measuring.Plan(sizes=[0, 100], connections=2, rate_hz=2000.0, for_s=0.5)
    found = measuring.capture(Address(*echo.address()), plan, tmp_path / "net.leadline", overwrite=False)
    with closing(open_capture(tmp_path / "net.leadline")) as capture:
        assert capture.manifest.status == "complete" and capture.manifest.target.kind == "net"
        for number, run in enumerate(found["runs"]):
            of = capture.rows("select sum(requests) as requests, sum(replies) as replies from net_rtt where run = ?", [number])[0]
            assert (of["requests"], of["replies"]) == (run["requests"], run["replies"])
            merged = capture.rows(
                """select high_ns from (select high_ns, sum(n) over (order by high_ns) as below, sum(n) over () as n
                   from (select high_ns, sum(count) as n from net_rtt_bucket where run = ? and kind = 'rtt' group by all))
                   where below >= 0.5 * n order by high_ns limit 1""",
                [number],
            )
            assert merged[0]["high_ns"] == pytest.approx(run["rtt"]["p50_ns"], rel=0.001)
        [kinds] = capture.rows("select count(distinct kind) as kinds, count(distinct connection) as connections from net_rtt_bucket")
        assert (kinds["kinds"], kinds["connections"]) == (2, 2)


def test_echo_serves_until_it_is_interrupted_and_says_what_it_did() -> None:
    command = [sys.executable, "-m", "leadline", "net", "echo", "--serve", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        port = int(re.search(r":(\d+);", said)[1])
        rtt("127.0.0.1", port, request=0, response=0, requests=9)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    told = json.loads(out)
    assert (process.returncode, told["requests"], told["connections"]) == (0, 10, 1)


def test_only_loopback_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_address(":0") == Address("127.0.0.1", 0)
    assert run(["net", "echo", "--serve", ":0", "--for", "0"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert run(["net", "echo", "--serve", "0.0.0.0:0", "--for", "0"]) == 0
    assert "no login" in capsys.readouterr().err


def test_the_text_of_rtt_names_what_it_measured(echo: Echo, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = echo.address()
    assert run(["net", "rtt", f"{host}:{port}", "--size", "0,250", "--rate", "500", "--for", "100ms"]) == 0
    out = capsys.readouterr().out
    for part in ("reading the clock costs", "rtt in us: there and back", "response in us", "first rtt", "p99.99"):
        assert part in out
    assert max(map(len, out.splitlines())) <= 80


# -- faults: one error each, in time -----------------------------------------------------------------------------------


def test_a_server_that_goes_away_leaves_a_row_of_what_was_measured(echo: Echo, capsys: pytest.CaptureFixture[str]) -> None:
    def relay(connection: socket.socket, _: int) -> None:
        """The first ten replies, then an end in the middle of the eleventh."""
        with socket.create_connection(echo.address()) as far:
            for _ in range(10):
                far.sendall(connection.recv(20))
                connection.sendall(far.recv(20))
            connection.recv(20)

    with serving(relay) as port:
        assert run(["net", "rtt", f"127.0.0.1:{port}", "--for", "30s", "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["runs"]
    assert (told["replies"], [fault["cause"] for fault in told["faults"]]) == (9, ["closed"])


def test_ipv6() -> None:
    try:
        server = Echo("::1", 0)
    except LeadlineError:
        pytest.skip("the kernel has no IPv6")
    host, port = server.address()
    assert parse_address(f"[::1]:{port}") == Address(host, port)
    assert measure(server, requests=5)["replies"] == 5
    proxy = Delay("::1", 0, host, port, rtt_s=0)
    assert measure(proxy, requests=5)["replies"] == 5


@pytest.mark.parametrize("text", ["", "db01", "db01:", "db01:x", "db01:70000", "::1:5432", "[::1:5432", "db01:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(LeadlineError, match="not an address"):
        parse_address(text)


def test_an_address_that_is_taken_is_one_error(echo: Echo) -> None:
    for start in (lambda: Echo(*echo.address()), lambda: Delay(*echo.address(), "127.0.0.1", 1, rtt_s=0)):
        with pytest.raises(LeadlineError) as raised:
            start()
        assert (raised.value.kind, raised.value.message) == ("connection", "cannot listen there")


def test_a_count_ends_it_and_what_was_not_wanted_is_not_missing(echo: Echo, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = echo.address()
    assert run(["net", "rtt", f"{host}:{port}", "--count", "200", "--size", "0,100", "--connections", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["requests"], r["replies"], r["unsent"]) for r in found["runs"]] == [(400, 400, 0), (400, 400, 0)]
    assert run(["net", "rtt", f"{host}:{port}", "--count", "50", "--rate", "5000", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["runs"]
    assert (found["requests"], found["unsent"], found["response"]["count"]) == (50, 0, 50)


def test_lines_of_intervals_add_up_to_the_whole(echo: Echo, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = echo.address()
    words = ["net", "rtt", f"{host}:{port}", "--rate", "2000", "--connections", "3", "--for", "500ms", "--interval", "100ms"]
    assert run([*words, "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["runs"]
    intervals = found["intervals"]
    assert sum(i["replies"] for i in intervals) == found["replies"] > 0
    assert all(earlier["to_s"] <= later["to_s"] for earlier, later in itertools.pairwise(intervals))
    assert all(i["p50_ns"] <= i["p99_ns"] for i in intervals)
    assert max(i["max_ns"] for i in intervals) == pytest.approx(found["rtt"]["max_ns"], rel=0.002)
    assert run(words) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0] == "request of 0 bytes" and " ".join(text[1].split()) == "second replies a second p50 us p99 us max us"
    assert float(text[2].split()[0]) < 1 and all(len(line) <= 80 for line in text)


def test_throughput_counts_what_arrived(echo: Echo, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = echo.address()
    words = ["net", "rtt", f"{host}:{port}", "--throughput", "--connections", "2", "--count", "300", "--size", "10k"]
    assert run([*words, "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["runs"]
    assert (found["replies"], found["to_server_bytes"], found["to_client_bytes"]) == (600, 600 * 10260, 600 * 20)
    wanted = (600, 600 * 10260)  # the other side counts a request when it has sent its reply
    wait_until(lambda: (counts := json.loads(echo.counts())) and (counts["requests"], counts["bytes_in"]) == wanted, what="the counts")
    assert run([*words, "--interval", "10ms"]) == 0
    text = capsys.readouterr().out
    assert "to the server" in text and "bit/s" in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_throughput_of_a_line_is_that_of_the_line(echo: Echo) -> None:
    """80 Mbit/s take 0.1 s for a megabyte, whatever the machine does meanwhile."""
    proxy = Delay("127.0.0.1", 0, *echo.address(), rtt_s=0.001, rate_bit=80e6)
    found, _ = rtt(*proxy.address(), request=9980, response=0, requests=100, flow=True)
    proxy.stop()
    run_ = json.loads(found)
    assert run_["replies"] == 100 and run_["seconds"] >= 0.09


@pytest.mark.parametrize("line", ["--sync --throughput", "--rate 5 --throughput", "--throughput -o x", "--interval 1ms"])
def test_options_that_exclude_each_other_are_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["net", "rtt", "127.0.0.1:1", *line.split()]) == 2
    assert "error" in capsys.readouterr().err.lower()

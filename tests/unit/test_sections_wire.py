"""The wire page of show and the report: what is reckoned from packets, against figures computed by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from leadline.capture.reader import open_capture
from leadline.findings import evaluate
from leadline.net.packets import read_into
from leadline.views.grid import Curves, Grid, Stack
from leadline.views.report import write_report
from leadline.views.sections import Context
from packets_made import IN_TRANSACTION, MS, READY, Line, Packets, message

RTT_MS, SERVER_MS, CLIENT_MS = 10.0, 3.0, 2.0


@pytest.fixture
def made(tmp_path: Path) -> Packets:
    return Packets(tmp_path / "made.pcap")


def grids(made: Packets) -> dict[str, Grid]:
    directory, _ = read_into(made.write(), [], out=made.path.with_suffix(".leadline"))
    with closing(open_capture(directory, hold=True)) as capture:
        of = Context(capture, evaluate(capture))
        return {section.key: section.data(of) for section in of.sections() if section.key.startswith("wire_")}


def transactions(made: Packets, seen_at_client: bool = True) -> None:
    """40 transactions of 4 statements. Seen at the client, the way lies before each answer; at the server, before each request."""
    line = made.line()
    way_ns = int(RTT_MS * MS)
    line.step_ns, line.server_step_ns = (way_ns, 0) if seen_at_client else (0, way_ns)
    line.login()
    for number in range(160):
        ready = READY if number % 4 == 3 else IN_TRANSACTION
        line.ask(ready, after_ms=CLIENT_MS, server_ms=SERVER_MS)


def spent(grid: Grid) -> dict[str, float]:
    assert isinstance(grid.picture, Stack)
    out: dict[str, float] = {}
    for from_s, to_s, name, connections in grid.picture.values:
        out[name] = out.get(name, 0) + connections * (to_s - from_s)
    return out


@pytest.mark.parametrize("seen_at_client", [True, False])
def test_time_is_the_way_the_server_and_the_client(made: Packets, seen_at_client: bool) -> None:
    transactions(made, seen_at_client)
    seconds = spent(grids(made)["wire_time"])
    assert seconds["on the way"] == pytest.approx(160 * RTT_MS / 1000, rel=0.02)
    assert seconds["server"] == pytest.approx(160 * SERVER_MS / 1000, rel=0.02)
    assert seconds["client, in a transaction"] == pytest.approx(120 * CLIENT_MS / 1000, rel=0.02)


def test_a_long_answer_lies_in_every_step_that_it_takes(made: Packets) -> None:
    made.line().login().ask(server_ms=12_000)
    grid = grids(made)["wire_time"]
    assert isinstance(grid.picture, Stack)
    steps = [connections for _, _, name, connections in grid.picture.values if name == "server"]
    assert len(steps) == 120
    assert steps[1:-1] == pytest.approx([1.0] * 118)


def test_the_budget_has_the_present_time_and_others(made: Packets) -> None:
    transactions(made)
    grid = grids(made)["wire_budget"]
    rows = {row["rtt_ms"]: row for row in grid.as_dicts()}
    assert [rtt for rtt, row in rows.items() if row["now"]] == [RTT_MS]
    trips = 4 + 2 / 40  # with the handshake and the start-up
    rest_ms = 4 * (SERVER_MS + CLIENT_MS)
    cycle_ms = rest_ms + trips * RTT_MS
    assert rows[RTT_MS]["each_ms"] == pytest.approx(cycle_ms, rel=0.01)
    assert rows[100]["each_ms"] == pytest.approx(rest_ms + 100 * trips, rel=0.01)
    assert rows[100]["per_second"] == pytest.approx(1000 / (rest_ms + 100 * trips), rel=0.01)
    assert rows[RTT_MS]["network"] == pytest.approx(trips * RTT_MS / cycle_ms, rel=0.01)
    assert "N = 4.050 round trips" in grid.note and "RTT = 10 ms (median of 1 handshake)" in grid.note
    assert isinstance(grid.picture, Curves) and len(grid.picture.values) == len(rows)


def test_percentiles_are_drawn_as_far_as_there_are_requests(made: Packets) -> None:
    transactions(made)
    grid = grids(made)["wire_latency"]
    assert isinstance(grid.picture, Curves)
    queries = {round(1 - 1 / x, 6): y for x, y, name in grid.picture.values if name == "simple query"}
    assert list(queries) == [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]  # of 160, one lies above p99
    assert queries[0.5] == pytest.approx(RTT_MS + SERVER_MS, rel=0.01)


def fetched(line: Line, parts: int, rows: int) -> None:
    line.login()
    for part in range(parts):
        execute = message("E", b"c\0" + struct.pack("!i", rows)) + message("S")
        end = message("s") + IN_TRANSACTION if part < parts - 1 else message("C", b"SELECT\0") + READY
        line.client(execute).wait(SERVER_MS).server(message("D", b"\0" * 30) * rows + end)


def test_other_sizes_of_parts_are_reckoned(made: Packets) -> None:
    line = made.line()
    line.step_ns = int(RTT_MS * MS / 2)
    fetched(line, 100, 30)
    grid = grids(made)["wire_fetch"]
    rows = {row["size"]: row for row in grid.as_dicts()}
    assert list(rows) == [1, 10, 30, 100, 1000, 3000]
    assert [size for size, row in rows.items() if row["now"]] == [30]
    rest_s = 100 * SERVER_MS / 1000
    assert rows[30]["trips"] == 100 and rows[1]["trips"] == 3000 and rows[3000]["trips"] == 1
    for row in rows.values():
        assert row["read_s"] == pytest.approx(rest_s + row["trips"] * RTT_MS / 1000, rel=0.02)


def test_without_a_round_trip_there_is_no_budget(made: Packets) -> None:
    made.line().handshake().close()
    found = grids(made)
    assert "wire_connections" in found and "wire_budget" not in found and "wire_fetch" not in found


def test_the_report_has_a_picture_of_each(made: Packets, tmp_path: Path, capture_of: Callable[[Packets], Path]) -> None:
    transactions(made)
    fetched(made.line(client=9), 100, 30)
    page = write_report(capture_of(made), tmp_path / "report.html").read_text(encoding="utf-8")
    for key in ("wire_time", "wire_latency", "wire_budget", "wire_fetch"):
        assert f'<div class="chart" id="{key}_chart"><noscript><svg' in page


@pytest.fixture
def capture_of() -> Callable[[Packets], Path]:
    return lambda made: read_into(made.write(), [], out=made.path.with_suffix(".leadline"))[0]

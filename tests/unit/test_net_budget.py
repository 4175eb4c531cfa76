"""leadline net budget over made-up packets: what it says at the present round-trip time is what was measured, whatever the packets are."""

from __future__ import annotations

import json
import random
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.net.budget import Budget, Budgets, Known, budgets
from leadline.net.budget_model import Model
from leadline.net.packets import read_into
from packets_made import IN_TRANSACTION, MS, OK, READY, Line, Packets, answer, message, query, startup


@pytest.fixture
def made(tmp_path: Path) -> Packets:
    return Packets(tmp_path / "made.pcap")


def found_in(made: Packets, rtts_ms: list[float], **more: Any) -> Budgets:
    directory, _ = read_into(made.write(), [], out=made.path.with_suffix(".leadline"), overwrite=True)
    with closing(open_capture(directory)) as capture:
        return budgets(capture, rtts_ms, **more)


def only(made: Packets, rtts_ms: list[float], **more: Any) -> Budget:
    [found] = found_in(made, rtts_ms, **more).budgets
    return found


def way(line: Line, rtt_ms: float) -> Line:
    """As it is seen at the client."""
    line.step_ns, line.server_step_ns = int(rtt_ms * MS), 0
    return line


def works(line: Line, number: int, trips: int = 3, client_ms: float = 0.1, server_ms: float = 0.1) -> Line:
    for _ in range(number):
        for ready in [IN_TRANSACTION] * (trips - 1) + [READY]:
            line.ask(ready, after_ms=client_ms, server_ms=server_ms)
    return line


def test_a_slow_handshake_is_not_the_way_of_fast_data(made: Packets) -> None:
    line = way(made.line(), 6.2).handshake()
    works(way(line, 2.1).client(startup()).server(OK + READY), 50)
    found = only(made, [2.1])
    assert found.rtt_ms == pytest.approx(2.2, abs=0.11) and found.rtt_from == "shortest acknowledgements: at most this"
    assert found.what_if[0].per_second.value == pytest.approx(found.per_second, rel=0.05)
    assert found.per_second == pytest.approx(50 / (50 * 3 * 0.0023 + 0.0145), rel=0.01)


def test_a_round_trip_takes_no_longer_than_one_of_the_protocol(made: Packets) -> None:
    """A client that acknowledges late, and a handshake that was slow: only the round trips themselves say how fast the way is."""
    line = way(made.line(), 50).handshake()
    line.step_ns = line.server_step_ns = 0
    line.client(startup()).wait(30).server(OK + READY)
    for _ in range(100):
        line.client(query()).wait(1).server(answer()).wait(0.5)
    found = only(made, [1.0])
    assert found.rtt_ms * (found.round_trips + found.setup_round_trips) <= 1000 * found.window_s
    assert found.rest_ms.value >= 0


def test_a_given_round_trip_that_the_packets_cannot_have_is_refused(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    works(way(made.line(), 1).login(), 40)
    path = made.write()
    assert run(["net", "budget", path, "--base-rtt", "6.2ms"]) == 2
    said = capsys.readouterr().err
    assert "a round trip of 6.2 ms contradicts the packets" in said and "took 1.205 ms together" in said
    assert run(["net", "budget", path, "--base-rtt", "0.9ms"]) == 0


def test_connections_of_which_no_message_can_be_read_have_a_budget_of_round_trips(made: Packets) -> None:
    line = way(made.line(port=5433), 1).handshake()
    for _ in range(60):
        line.client(b"\x17\x03\x03 sealed").wait(2).server(b"\x17\x03\x03 sealed too")
    found = only(made, [1.0])
    assert (found.unit, found.round_trips, found.unread_connections) == ("round trip", 60, 0)


@pytest.mark.parametrize(("waits", "part"), [(0.0, 1.0), (0.6, 0.4)])
def test_a_longer_pause_costs_half_of_its_bound_and_less_where_connections_wait_for_each_other(waits: float, part: float) -> None:
    """4 round trips of 0.5 ms, and 1 ms of work and waiting: 0.075 ms for each more round trip at 0.5 ms, as the square root."""
    model = Model(time_ms=3.0, trips=4, rtt_ms=0.5, floor_ms=1 - waits)
    assert model.at(0.5) == 3.0
    for rtt_ms, times in [(2.0, 2), (8.0, 4), (0.125, 0.5)]:
        plain = 4 * rtt_ms + 1
        assert model.at(rtt_ms) == pytest.approx(plain + part * 4 * 0.075 * (times - 1))
        low, high = model.bounds(rtt_ms)
        assert low <= min(plain, model.at(rtt_ms)) and max(plain, model.at(rtt_ms)) <= high
    assert Model(time_ms=4.01, trips=4, rtt_ms=1.0, floor_ms=0.01).at(0.0) == 0.0  # no less than the round trips


def test_each_client_and_each_port_has_a_budget(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    works(way(made.line(client=1), 0.2).login(), 200)
    works(way(made.line(client=9), 20).login(), 40)
    path = made.write()
    near, far = sorted(found_in(made, [1.0]).budgets, key=lambda b: b.rtt_ms)
    assert (near.client, near.rtt_ms, near.transactions) == ("10.0.0.1", 0.2, 200)
    assert (far.client, far.rtt_ms, far.transactions) == ("10.0.0.9", 20, 40)
    assert run(["net", "budget", path, "--client", "10.0.0.9", "--json"]) == 0
    assert [b["client"] for b in json.loads(capsys.readouterr().out)["budgets"]] == ["10.0.0.9"]
    assert run(["net", "budget", path]) == 0
    text = capsys.readouterr().out
    assert "client 10.0.0.9 of 10.0.0.2:5432" in text and "client 10.0.0.1 of 10.0.0.2:5432" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def through_a_pooler(made: Packets, number: int = 60) -> None:
    front = way(made.line(client=7, server=2, port=6432), 1).login()
    back = way(made.line(client=2, server=3), 0.1).login()
    for _ in range(number):
        front.wait(0.3).client(query())
        back.ts = front.ts
        back.ask(server_ms=0.4)
        front.ts = back.ts
        front.server(answer())


def test_transactions_through_a_pooler_are_counted_once_for_each_port(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    through_a_pooler(made)
    found = {budget.server: budget.transactions for budget in found_in(made, []).budgets}
    assert found == {"10.0.0.2:6432": 60, "10.0.0.3:5432": 60}
    capture = str(made.path.with_suffix(".leadline"))
    assert run(["net", "budget", capture, "--port", "6432", "--json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["budgets"]
    assert (one["server"], one["transactions"]) == ("10.0.0.2:6432", 60)
    assert run(["net", "budget", capture, "--port", "1521"]) == 2
    assert "ports with round trips: 5432, 6432" in capsys.readouterr().err


def reconnects(made: Packets, rtt_ms: float, number: int = 60, pause_ms: float = 0.5) -> None:
    """A client that connects, asks once and leaves, again and again: three round trips."""
    at_ms = 0.0
    for _ in range(number):
        line = way(made.line(at_ms=at_ms), rtt_ms).handshake()
        line.wait(-rtt_ms).client(startup()).server(OK + READY).ask(server_ms=0.2)
        at_ms = (line.ts - 1_700_000_000 * 10**9) / MS + pause_ms
        line.step_ns = 0
        line.client(message("X"))
        line.step_ns = int(rtt_ms * MS)  # the server closes when the next connection was made already
        line.close()


def test_round_trips_that_make_connections_are_in_the_prediction(made: Packets, tmp_path: Path) -> None:
    reconnects(made, 1.0)
    near = only(made, [1.0, 20.0])
    assert (near.transactions, near.trips_each.value, near.setup_trips_each) == (60, 1.0, 2.0)
    assert near.busy_connections == pytest.approx(1, rel=0.01), "the client is busy all the time"
    assert near.cycle_ms.value == pytest.approx(3 * 1.0 + 0.2 + 0.5, rel=0.01)
    far = Packets(tmp_path / "far.pcap")
    reconnects(far, 20.0)
    measured = only(far, []).per_second
    at = near.what_if[1].per_second
    assert at.value == pytest.approx(measured, rel=0.01) and at.low is not None and at.high is not None and at.low <= measured <= at.high


def test_a_connection_that_is_not_left_has_no_next_one(made: Packets) -> None:
    """Connections of a pool that grows: none follows another."""
    for number in range(3):
        works(way(made.line(at_ms=200 * number), 1).login(), 40)
    found = only(made, [])
    assert found.cycle_ms.value * found.transactions == pytest.approx(3 * (2 + 40 * 3 * 1.2), rel=0.01)


def test_a_short_capture_of_one_connection_has_intervals(made: Packets) -> None:
    rng = random.Random(3)
    line = way(made.line(), 0.05).login()
    for _ in range(60):
        works(line, 1, server_ms=rng.uniform(0.05, 0.4))
    found = only(made, [0.05, 0.5, 40.0])
    assert found.window_s < 0.1
    for of in (found.cycle_ms, found.rest_ms, *(w.per_second for w in found.what_if), *(w.transaction_ms for w in found.what_if)):
        assert of.low is not None and of.high is not None and of.low < of.value < of.high


def test_too_few_transactions_have_no_interval(made: Packets) -> None:
    works(way(made.line(), 1).login(), 3)
    found = only(made, [2.0])
    assert (found.cycle_ms.low, found.what_if[0].per_second.high) == (None, None)


def any_packets(made: Packets, rng: random.Random) -> dict[tuple[str, str], int]:
    """Connections of any kind. How many transactions each client and port had."""
    counts: dict[tuple[str, str], int] = {}
    for _ in range(rng.randint(1, 8)):
        client, port = rng.randint(10, 12), rng.choice([5432, 6432])
        line = made.line(client=client, port=port, at_ms=rng.uniform(0, 300))
        line.step_ns, line.server_step_ns = rng.choice([0, 1000, MS // 10, 7 * MS]), rng.choice([None, 0, MS // 3, 3 * MS])
        slow = rng.random() < 0.5
        first = line.step_ns
        line.step_ns = first + slow * 9 * MS
        line.handshake()
        line.step_ns = first
        line.client(startup()).server(OK + READY)
        asks = rng.choice([1, 2, 30, 80])
        for _ in range(asks):
            line.wait(rng.choice([0, rng.expovariate(1)]))
            if rng.random() < 0.1:
                line.again(b"")
            if rng.random() < 0.2:
                line.client(query() + query()).wait(rng.random()).server(answer() + answer())
                counts[(f"10.0.0.{client}", f"10.0.0.2:{port}")] = counts.get((f"10.0.0.{client}", f"10.0.0.2:{port}"), 0) + 1
            else:
                line.ask(server_ms=rng.choice([0, rng.expovariate(2), 5]), rows=rng.choice([0, 1, 900]))
            counts[(f"10.0.0.{client}", f"10.0.0.2:{port}")] = counts.get((f"10.0.0.{client}", f"10.0.0.2:{port}"), 0) + 1
        if rng.random() < 0.5:
            line.close()
    return counts


@pytest.mark.parametrize("seed", range(25))
def test_at_the_present_round_trip_time_the_prediction_is_the_measurement(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made = Packets(tmp_path / "made.pcap")
    counts = any_packets(made, rng)
    found = found_in(made, [0.0, 0.5, 40.0], with_present=True).budgets
    assert {(b.client, b.server): b.transactions for b in found} == counts
    for budget in found:
        [now] = [w for w in budget.what_if if w.rtt_ms == budget.rtt_ms][:1]
        assert now.per_second.value == pytest.approx(budget.transactions / budget.window_s)
        assert now.transaction_ms.value == pytest.approx(budget.cycle_ms.value)
        assert budget.rest_ms.value >= 0 and budget.rtt_ms * (budget.round_trips + budget.setup_round_trips) <= 1000.001 * (
            budget.cycle_ms.value * budget.transactions / 1000
        )
        times = [w.transaction_ms.value for w in budget.what_if]
        assert times == sorted(times) and times[0] >= 0
        for at in budget.what_if:
            assert 0 <= at.network_share <= 1.000001
            for of in (at.transaction_ms, at.per_second):
                assert (of.low is None) == (of.high is None) == (budget.cycle_ms.low is None)
                if of.low is not None and of.high is not None:
                    assert 0 <= of.low <= of.value <= of.high


def test_numbers_in_the_text_are_those_of_json(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    works(way(made.line(), 1).login(), 40)
    path = made.write()
    assert run(["net", "budget", path, "--rtt", "1ms", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["budgets"]
    assert run(["net", "budget", path, "--rtt", "1ms"]) == 0
    text = capsys.readouterr().out
    measured = re.search(r": ([\d.,]+) a second", text)
    assert measured is not None and measured[1] == f"{found['per_second']:,.1f}"
    assert f"{found['what_if'][0]['per_second']['value']:,.1f}" == measured[1]


def test_a_round_trip_time_of_this_host_counts_for_its_clients_only(made: Packets) -> None:
    works(way(made.line(client=1), 5).login(), 40)
    works(way(made.line(client=9), 5).login(), 40)
    found = {b.client: b.rtt_ms for b in found_in(made, [], known=Known(1.0, "made before", "10.0.0.9")).budgets}
    assert found == {"10.0.0.1": 5.0, "10.0.0.9": 1.0}


def test_without_handshake_and_acknowledgement_it_is_left_out_and_said(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    works(way(made.line(client=1), 1).login(), 40)
    found = found_in(made, [])
    assert (found.more, found.without_rtt) == (0, 0)
    with pytest.raises(LeadlineError, match="no round trips"):
        found_in(made, [], client="10.9.9.9")


def test_there_is_no_budget_of_packets_that_were_cut(made: Packets, capsys: pytest.CaptureFixture[str]) -> None:
    line = way(made.line(), 1).login()
    for _ in range(40):
        line.ask(rows=6)
    made.snaplen = 160
    path = made.write()
    assert run(["net", "budget", path]) == 2
    assert "the packets were not captured whole" in capsys.readouterr().err
    directory, _ = read_into(path, [], out=made.path.with_suffix(".leadline"))
    assert run(["show", str(directory), "--json"]) == 0
    assert "wire_budget" not in json.loads(capsys.readouterr().out)
    works(way(made.line(client=9), 1).login(), 40)
    made.line(client=9).login().ask(rows=6)
    assert run(["net", "budget", made.write()]) == 0
    text = capsys.readouterr().out
    assert "client 10.0.0.9 of" in text and "client 10.0.0.1 of" not in text

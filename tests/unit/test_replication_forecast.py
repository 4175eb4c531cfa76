"""Forecasts against curves whose answer is computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import output_of
from leadline.engines.postgres.forecast import Capacity, Reading, capacity, forecast
from replicating import pair_of_servers

MB = 1 << 20


def curve(
    made: Callable[[float], float],
    replayed: Callable[[float], float],
    seconds: int = 20,
    hz: int = 10,
    paused: Callable[[float], bool] = lambda at: False,
) -> list[Reading]:
    """MB at a second; all that is made is on the standby's disk at once."""
    times = [n / hz for n in range(seconds * hz + 1)]
    return [Reading(at, round(made(at) * MB), round(made(at) * MB), round(replayed(at) * MB), paused(at)) for at in times]


def test_a_standby_that_catches_up() -> None:
    """2 MB/s are made, it is 100 MB behind and replays 5 MB/s: after 20 s it is 40 MB behind, which takes 40 / 3 s."""
    told = forecast("db2", curve(lambda at: 100 + 2 * at, lambda at: 5 * at))
    assert (told.verdict, told.lag_bytes) == ("catches up", 40 * MB)
    assert told.capacity is not None and told.capacity.known_from == "backlog"
    assert told.made_per_s == pytest.approx(2 * MB) and told.capacity.rate == pytest.approx(5 * MB)
    assert told.catch_up_s == pytest.approx(40 / 3) and told.reaches_now_s == pytest.approx(8)
    assert told.catch_up_low_s == pytest.approx(40 / 3) and told.catch_up_high_s == pytest.approx(40 / 3)  # it never varied


def test_a_standby_that_never_does() -> None:
    told = forecast("db2", curve(lambda at: 5 * at, lambda at: 2 * at))
    assert (told.verdict, told.catch_up_s) == ("never", None)
    assert told.reaches_now_s == pytest.approx(60 / 2)


def test_only_the_time_with_work_counts() -> None:
    """Every other second 10 MB come at once, which take half a second: 20 MB/s, not 5."""

    def made(at: float) -> float:
        return 10 * (at // 2 + 1)

    def replayed(at: float) -> float:
        return 10 * (at // 2) + min(20 * (at % 2), 10)

    found = capacity(curve(made, replayed, hz=100))
    assert found is not None
    assert found.rate == pytest.approx(20 * MB, rel=0.01) and found.busy_s == pytest.approx(5, rel=0.1)


def small_steps(flush_s: float, hz: int = 100, seconds: int = 15) -> list[Reading]:
    """2 MB/s are made and reach the standby each flush_s; the last 4 kB of each step belong to a record that ends in the next one. Replay
    has 1 ms of each 20 ms and replays 0.5 MB in it: 25 MB/s, as long as it has work."""
    made = on_disk = replayed = 0
    out = []
    for ms in range(1000 * seconds):
        made += 2 * MB // 1000
        if ms % round(1000 * flush_s) == 0:
            on_disk = made
        if ms % 20 == 0:
            replayed = max(min(replayed + MB // 2, on_disk - 4096), 0)
        if ms % (1000 // hz) == 0:
            out.append(Reading(ms / 1000, made, on_disk, replayed))
    return out


@pytest.mark.parametrize("hz", [5, 20, 100])
@pytest.mark.parametrize("flush_s", [0.05, 0.2, 1.0])
def test_small_steps_that_it_keeps_up_with_say_nothing_of_the_most_that_it_can(flush_s: float, hz: int) -> None:
    """Waiting for the end of a record, or for its share of a CPU, is not replaying slowly."""
    steps = small_steps(flush_s, hz)
    assert capacity(steps) is None and capacity(steps, 0.08) is None, "short bursts do not say what it can replay for long"
    found = capacity(steps, 0.5)
    assert found is not None and found.known_from == "share" and found.rate == pytest.approx(4 * MB, rel=0.1)


def test_steps_that_take_long_say_it() -> None:
    """10 MB each 5 s, which take 0.4 s."""
    found = capacity(small_steps(5.0, seconds=20))
    assert found is not None and (found.known_from, found.rate) == ("backlog", pytest.approx(25 * MB, rel=0.07))


def test_who_replays_more_in_all_than_in_its_slow_moments_can_replay_more() -> None:
    """Each second 5 MB come, and are replayed at once but for 0.3 s in which 1 MB/s is: 3 s of those in 10 s."""
    slow = curve(lambda at: 5 * (at // 1 + 1), lambda at: 5 * (at // 1) + min(at % 1, 0.3) if at % 1 < 0.3 else 5 * (at // 1 + 1), hz=100)
    assert capacity(slow) is None


def test_a_rate_that_varies_has_an_interval() -> None:
    """4 and 6 MB/s by turns, a second each."""
    found = capacity(curve(lambda at: 1000, lambda at: 10 * (at // 2) + 4 * min(at % 2, 1) + 6 * max(at % 2 - 1, 0)))
    assert found is not None and found.low is not None and found.high is not None
    assert 4 * MB < found.low < found.rate < found.high < 6 * MB
    assert found.rate == pytest.approx(5 * MB)


def test_paused_replay_has_no_capacity_of_its_own() -> None:
    """5 MB/s until 10 s, then paused: 2 MB/s are made meanwhile. 60 MB are behind at 20 s."""
    told = forecast("db2", curve(lambda at: 70 + 2 * at, lambda at: 5 * min(at, 10), paused=lambda at: at > 10))
    assert (told.verdict, told.lag_bytes) == ("paused", 60 * MB)
    assert told.capacity is not None and told.capacity.rate == pytest.approx(5 * MB)
    assert told.catch_up_s == pytest.approx(20)
    alone = forecast("db2", curve(lambda at: 2 * at, lambda at: 0, paused=lambda at: True))
    assert (alone.verdict, alone.capacity, alone.catch_up_s) == ("paused", None, None)


def test_a_standby_that_has_all_and_one_of_which_nothing_is_known() -> None:
    level = curve(lambda at: 2 * at, lambda at: 2 * at)
    told = forecast("db2", level)
    assert (told.verdict, told.capacity, told.catch_up_s) == ("caught up", None, 0)
    assert capacity(level, 0.5) == Capacity(pytest.approx(4 * MB), None, None, "share", pytest.approx(10))  # type: ignore[arg-type]
    assert capacity(level, 0.4) is None
    assert forecast("db2", curve(lambda at: 100 + 2 * at, lambda at: 0, seconds=1, hz=5)).verdict == "unknown"
    idle = forecast("db2", curve(lambda at: 7, lambda at: 7))
    assert (idle.verdict, idle.made_per_s) == ("caught up", 0)


def test_an_idle_primary_leaves_a_backlog_that_drains() -> None:
    told = forecast("db2", curve(lambda at: 200, lambda at: 5 * at))
    assert told.verdict == "catches up" and told.catch_up_s == told.reaches_now_s == pytest.approx(20)


def test_a_way_to_the_standby_that_is_too_slow() -> None:
    """It has replayed all that it has, which comes at 1 MB/s. First 5 MB/s are made, then nothing from 20 s to 40 s."""
    slow = [Reading(n / 10, 5 * min(n, 200) * MB // 10, n * MB // 10, n * MB // 10) for n in range(401)]
    told = forecast("db2", slow[:201])
    assert told.capacity is not None and (told.verdict, told.capacity.of, told.capacity.known_from) == ("never", "receipt", "backlog")
    assert told.capacity.rate == pytest.approx(MB, rel=0.01) and told.reaches_now_s == pytest.approx(80, rel=0.01)
    drained = forecast("db2", slow[201:])
    assert drained.verdict == "catches up" and drained.catch_up_s == pytest.approx(60, rel=0.01)


def test_wal_that_is_on_its_way_says_nothing_of_the_way() -> None:
    """Half a second of the WAL is always on its way."""
    told = forecast("db2", [Reading(n / 10, n * MB, max(n - 5, 0) * MB, max(n - 5, 0) * MB) for n in range(201)])
    assert (told.verdict, told.capacity) == ("caught up", None)


def test_the_command(tmp_path: Path) -> None:
    """40 MB behind, 5 - 2 MB/s; the slot grows by 60 MB in a minute, and 3,600 MB are free."""
    pair = pair_of_servers(tmp_path)
    found = json.loads(output_of("replication", "forecast", pair, "--json"))
    [standby], [disk] = found["standbys"], found["disks"]
    assert (standby["standby"], standby["verdict"]) == ("db2:5432", "catches up")
    assert (standby["capacity_of"], standby["known_from"]) == ("replay", "backlog")
    assert standby["lag_bytes"] == 40 * MB and standby["catch_up_s"] == pytest.approx(40 / 3, rel=0.01)
    assert (disk["server"], disk["what"], disk["kept_bytes"], disk["lost_s"]) == ("db1:5432", "slot west", 70 * MB, None)
    assert disk["growth_per_s"] == pytest.approx(MB) and disk["full_s"] == pytest.approx(3600)
    text = output_of("replication", "forecast", pair)
    assert "in 13 s" in text and "the disk of its WAL is full in 1h00" in text
    assert max(map(len, text.splitlines())) <= 80

"""replication_lag by hand: bytes by part, and the horizontal distance of two curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import open_capture

MB = 1 << 20


def position(cap: SyntheticCapture, at_s: float, node: int, **columns: Any) -> None:
    cap.add("replication_position", ts=cap.ts(at_s), node=node, answer_ns=1000, **columns)


def lag(cap: SyntheticCapture) -> dict[float, dict[str, Any]]:
    capture = open_capture(cap.write())
    rows = capture.rows("select (ts - (select min(ts_from) from capture)) / 1e9 as at_s, * from replication_lag order by ts")
    capture.close()
    return {round(row["at_s"], 3): row for row in rows}


def primary(cap: SyntheticCapture, until_s: int = 20, seconds: int = 30) -> None:
    """1 MB of WAL a second until then."""
    for n in range(seconds + 1):
        lsn = (100 + min(n, until_s)) * MB
        position(cap, n, 1, in_recovery=False, insert_lsn=lsn, flush_lsn=lsn)


def test_a_standby_that_stands_still_and_catches_up(tmp_path: Path) -> None:
    """Read a quarter of a second after the primary. It stands still at 105 MB from 5 s to 15 s, and has all at 22 s."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    primary(cap)
    for n in range(30):
        at = n + 0.25
        replayed = (100 + at if at < 5 else 105 if at < 15 else min(105 + 3 * (at - 15), 120)) * MB
        received = min(100 + n, 120) * MB
        position(cap, at, 2, in_recovery=True, replay_lsn=round(replayed), flush_lsn=received, write_lsn=received, upstream_lsn=received)
    found = lag(cap)
    assert len(found) == 30
    assert found[3.25]["lag_s"] == pytest.approx(0, abs=1e-6) and found[3.25]["lag_bytes"] == 0
    assert found[12.25]["lag_s"] == pytest.approx(7.25) and found[12.25]["lag_bytes"] == 7 * MB
    assert found[12.25]["unreplayed_bytes"] == 7 * MB and found[12.25]["unreceived_bytes"] == found[12.25]["unflushed_bytes"] == 0
    assert found[17.25]["lag_s"] == pytest.approx(17.25 - 11.75) and not found[17.25]["is_least"]
    assert found[21.25]["lag_s"] == found[28.25]["lag_s"] == 0  # an idle primary is no lag


def test_parts_that_only_a_sender_knows(tmp_path: Path) -> None:
    """The standby was not asked: 10 MB made, 7 sent, 5 received, 4 on disk, 1 replayed. A logical reader replays nothing."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    for n in range(11):
        position(cap, n, 1, in_recovery=False, insert_lsn=n * MB, flush_lsn=n * MB)
    sent = {"sent_lsn": 7 * MB, "write_lsn": 5 * MB, "flush_lsn": 4 * MB, "replay_lsn": 1 * MB}
    for is_logical in (False, True):
        cap.add("walsender", ts=cap.ts(10), node=1, pid=77, application_name="west", client_addr="10.0.0.2", is_logical=is_logical, **sent)
    [row] = lag(cap).values()
    assert row["receiver"] == "west at 10.0.0.2 (77)" and not row["is_standby"]
    parts = [row[f"{name}_bytes"] // MB for name in ("lag", "unsent", "unreceived", "unflushed", "unreplayed")]
    assert parts == [9, 3, 2, 1, 3] and row["lag_s"] == pytest.approx(9)


def test_a_standby_alone_and_what_was_made_before(tmp_path: Path) -> None:
    """Upstream tells where its WAL ends. What is replayed now was made before the capture: the time is the least that it can be."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    for n in range(10):
        position(cap, n, 1, in_recovery=True, replay_lsn=50 * MB + n, flush_lsn=(100 + n) * MB, upstream_lsn=(100 + n) * MB)
    found = lag(cap)
    assert found[9.0]["is_least"] and found[9.0]["lag_s"] == pytest.approx(9) and found[9.0]["lag_bytes"] == 59 * MB - 9


def test_a_standby_that_replays_from_an_archive(tmp_path: Path) -> None:
    """Its received position stands still where it last streamed. The parts still add up to the whole."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    primary(cap, until_s=30)
    for n in range(30):
        position(cap, n + 0.5, 2, in_recovery=True, replay_lsn=(98 + n) * MB, flush_lsn=100 * MB)
    for at, row in lag(cap).items():
        parts = [row[f"{name}_bytes"] or 0 for name in ("unsent", "unreceived", "unflushed", "unreplayed")]
        assert sum(parts) == row["lag_bytes"] == 2 * MB, at


def test_a_standby_alone_without_a_walreceiver(tmp_path: Path) -> None:
    """Nobody knows how much WAL there is: it is not said to be behind by nothing."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    for n in range(10):
        received = {"flush_lsn": 105 * MB, "upstream_lsn": 105 * MB} if n < 5 else {"flush_lsn": 105 * MB}
        position(cap, n, 2, in_recovery=True, replay_lsn=(100 + min(n, 5)) * MB, **received)
    assert list(lag(cap)) == [0, 1, 2, 3, 4]


def test_a_standby_that_is_promoted(tmp_path: Path) -> None:
    """From then on it makes WAL itself: nothing is behind, and nothing is invented."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    primary(cap, until_s=5, seconds=5)
    for n in range(6):
        position(cap, n + 0.5, 2, in_recovery=True, replay_lsn=(100 + n) * MB, flush_lsn=(100 + n) * MB)
    for n in range(6, 10):
        position(cap, n + 0.5, 2, in_recovery=False, insert_lsn=(106 + n) * MB, flush_lsn=(106 + n) * MB)
    assert list(lag(cap)) == [n + 0.5 for n in range(6)]


def failover(cap: SyntheticCapture, old_until_s: int) -> None:
    """Node 1 makes 1 MB a second and is read until then. Node 2 replays it 3 s late, takes over at 10 s, and makes WAL until 40 s; node 3
    stays a standby, of node 2 from then on, and is 1 s late."""
    for n in range(old_until_s):
        position(cap, n, 1, in_recovery=False, flush_lsn=(100 + n) * MB)
    for n in range(40):
        if n < 10:
            position(cap, n + 0.5, 2, in_recovery=True, replay_lsn=(100 + max(n - 3, 0)) * MB, flush_lsn=(100 + n) * MB)
        else:
            position(cap, n + 0.5, 2, in_recovery=False, flush_lsn=(100 + n) * MB)
        position(cap, n + 0.75, 3, in_recovery=True, replay_lsn=(100 + max(n - 1, 0)) * MB, flush_lsn=(100 + n) * MB)


def test_a_failover_while_it_is_captured(tmp_path: Path) -> None:
    """Who makes the WAL changes: a standby is compared with the old primary, then with the new one, which was read for longer."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    failover(cap, old_until_s=10)
    found = lag(cap)
    assert [at for at in found if at % 1 == 0.5] == [n + 0.5 for n in range(10)]  # node 2, while it was a standby
    assert found[8.5]["lag_bytes"] == 3 * MB and found[8.5]["lag_s"] == pytest.approx(3.5)
    assert found[8.75]["lag_bytes"] == found[30.75]["lag_bytes"] == 1 * MB
    assert found[30.75]["lag_s"] == pytest.approx(1.25)


def test_two_servers_that_make_wal_at_once(tmp_path: Path) -> None:
    """The old primary lives on after a promotion: nobody knows which of them a standby follows."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    failover(cap, old_until_s=40)
    found = lag(cap)
    assert max(found) < 10.5 and found[8.5]["lag_bytes"] == 3 * MB


def test_a_primary_that_cannot_be_read_for_a_while(tmp_path: Path) -> None:
    """It restarts, or the way to it is cut: what it makes meanwhile is not known, so a standby is not said to be behind by nothing."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    for n in (*range(10), *range(20, 30)):
        position(cap, n, 1, in_recovery=False, flush_lsn=(100 + n) * MB)
    for n in range(30):
        position(cap, n + 0.5, 2, in_recovery=True, replay_lsn=(100 + min(n, 9 if n < 20 else n)) * MB, flush_lsn=(100 + n) * MB)
    found = lag(cap)
    assert [at for at in found if 9 < at < 21] == [9.5, 10.5, 11.5, 20.5]

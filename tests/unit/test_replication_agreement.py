"""When SQL and the memory of a server disagree, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from leadline.engines.postgres.probes.replication_node import disagreement, disagreement_of_senders

TOLD = (True, None, 500, 510, 520, 400, False, "streaming", 1_000_000)


def seen(**other: Any) -> Any:
    position = {
        "in_recovery": True, "insert_lsn": None, "flush_lsn": 500, "write_lsn": 510, "upstream_lsn": 520, "replay_lsn": 400,
        "record_lsn": None, "timeline": 1, "is_paused": False, "receiver_status": "streaming", "last_replayed_commit": 1_000_000,
        "startup_wait": 0,
    }  # fmt: skip
    return position | other


@pytest.mark.parametrize(
    "before, after",
    [
        pytest.param({}, {}, id="nothing moves"),
        pytest.param({"replay_lsn": 300}, {"replay_lsn": 450}, id="it was replayed meanwhile"),
        pytest.param({"upstream_lsn": 600}, {"upstream_lsn": 510}, id="upstream was heard to be less far"),
        pytest.param({"is_paused": True}, {}, id="it was resumed meanwhile"),
        pytest.param({}, {"last_replayed_commit": 2_000_000}, id="a commit was replayed meanwhile"),
        pytest.param({"last_replayed_commit": 1_000_001}, {"last_replayed_commit": 1_000_001}, id="rounded"),
        pytest.param({}, {"in_recovery": False, "replay_lsn": None}, id="it was promoted meanwhile"),
    ],
)
def test_what_memory_can_have_said(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert disagreement(seen(**before), TOLD, seen(**after)) == ""


@pytest.mark.parametrize(
    "before, after, what",
    [
        pytest.param({"replay_lsn": 0}, {"replay_lsn": 0}, "replay_lsn is 400 over SQL, and 0 to 0 in memory", id="another place"),
        pytest.param({"replay_lsn": 401}, {"replay_lsn": 500}, "replay_lsn", id="it was further before"),
        pytest.param({"flush_lsn": None}, {"flush_lsn": None}, "flush_lsn is 500 over SQL, and None to None in memory", id="nothing"),
        pytest.param({"upstream_lsn": 519}, {"upstream_lsn": 519}, "upstream_lsn", id="it stood still elsewhere"),
        pytest.param({"is_paused": True}, {"is_paused": True}, "is_paused", id="paused"),
        pytest.param({"receiver_status": None}, {"receiver_status": None}, "receiver_status", id="no walreceiver"),
        pytest.param({"in_recovery": False}, {"in_recovery": False}, "in_recovery", id="a primary"),
        pytest.param({"last_replayed_commit": 9}, {"last_replayed_commit": 9}, "last_replayed_commit", id="another commit"),
    ],
)
def test_what_memory_cannot_have_said(before: dict[str, Any], after: dict[str, Any], what: str) -> None:
    assert disagreement(seen(**before), TOLD, seen(**after)).startswith(what)


def test_what_a_user_without_rights_is_not_told_is_not_compared() -> None:
    assert disagreement(seen(), (True, None, 500, None, None, 400, False, None, None), seen()) == ""


def sender(pid: int, lsn: int, name: str = "west") -> Any:
    positions = {f"{what}_lsn": lsn for what in ("sent", "write", "flush", "replay")}
    return {"pid": pid, "application_name": name, "client_addr": "local", "is_logical": False, "state": "streaming"} | positions


def told(pid: int, lsn: int | None, name: str = "west") -> tuple[Any, ...]:
    return (pid, name, "local", False, "streaming", lsn, lsn, lsn, lsn, None, None, None, "async")


def test_walsenders_are_compared_by_pid() -> None:
    assert disagreement_of_senders([sender(7, 10)], [told(7, 15)], [sender(7, 20)]) == ""
    assert disagreement_of_senders([sender(7, 10)], [told(7, None), told(8, 99)], [sender(7, 20), sender(9, 1)]) == ""
    assert disagreement_of_senders([sender(7, 10)], [told(7, 25)], [sender(7, 20)]).startswith("sent_lsn of walsender 7 is 25")
    assert "is west over SQL, and east in memory" in disagreement_of_senders(
        [sender(7, 10, "east")], [told(7, 10)], [sender(7, 10, "east")]
    )

"""Marks on the axis of leadline explore: each from rows of the capture, at their time, and none where there are no rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eventful_capture import eventful
from findings_synthetic import SyntheticCapture
from leadline.cli import run
from leadline.explore import marks
from leadline.explore.answers import Explorer, open_explored


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return eventful(tmp_path_factory.mktemp("marks")).write()


@pytest.fixture(scope="module")
def explorer(path: Path) -> Iterator[Explorer]:
    explorer = open_explored(path)
    yield explorer
    explorer.capture.close()


@pytest.fixture(scope="module")
def kinds(explorer: Explorer) -> dict[str, dict[str, Any]]:
    return {kind["name"]: kind for kind in explorer.marks()["kinds"]}


def times(kind: dict[str, Any]) -> list[tuple[float, float, str]]:
    return [(round(mark["from_s"], 6), round(mark["to_s"], 6), mark["text"]) for mark in kind["marks"]]


def test_a_checkpoint_is_its_writes_and_syncs(kinds: dict[str, dict[str, Any]]) -> None:
    assert times(kinds["checkpoint"]) == [
        (9.99, 21.99, "10.0 s of writes, 2.0 s of syncs"), (39.99, 40.99, "1.0 s of writes, 0.0 s of syncs"),
    ]  # fmt: skip


def test_ddl_is_what_was_seen_running(kinds: dict[str, dict[str, Any]]) -> None:
    """Each execution is one mark; a statement that is only still shown by an idle session, or that begins otherwise, is none."""
    text = "pid 7001: /* release 7 */ ALTER TABLE orders add column note text"
    other = "pid 7002: -- nightly create index on orders (note)"
    assert times(kinds["ddl"]) == [(30, 33, text), (31, 32, other), (40, 40.5, text)]


def test_a_crash_a_clock_that_was_set_and_missed_passes(kinds: dict[str, dict[str, Any]]) -> None:
    assert times(kinds["away"]) == [(50, 52, "the server crashed and started again by itself")]
    assert times(kinds["clock"]) == [(44, 45, "the wall clock was set by +5.000 s")]
    assert times(kinds["missed"]) == [(55, 55.5, "passes that were due and not made: 50")]


def test_what_a_capture_does_not_have_is_no_mark(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=10)
    cap.sample(cap.add_session(), "active", None, 0, 10)
    cap.probe("self", "off", why="it was switched off")
    explorer = open_explored(cap.write())
    kinds = {kind["name"]: kind for kind in explorer.marks()["kinds"]}
    assert {name: (kind["there"], kind["marks"], kind["why"]) for name, kind in kinds.items()} == {
        "checkpoint": (0, [], ""), "away": (0, [], ""), "ddl": (0, [], ""), "clock": (0, [], "it was switched off"), "missed": (0, [], ""),
    }  # fmt: skip
    explorer.capture.close()


@pytest.mark.parametrize("name", ["checkpoint", "away", "ddl", "clock", "missed"])
def test_the_sql_of_a_mark_runs_in_leadline_sql(
    kinds: dict[str, dict[str, Any]], path: Path, name: str, capsys: pytest.CaptureFixture[str], explorer: Explorer
) -> None:
    [sql] = kinds[name]["sql"]
    assert run(["sql", str(path), sql, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["ts_from"], row["ts_to"]) for row in rows] == [
        (explorer.ts_from + round(mark["from_s"] * 1e9), explorer.ts_from + round(mark["to_s"] * 1e9)) for mark in kinds[name]["marks"]
    ]


def test_of_very_many_the_longest_are_drawn_and_all_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MOST", 2)
    cap = SyntheticCapture(tmp_path, seconds=10)
    cap.sample(cap.add_session(), "active", None, 0, 10)
    for second, length in ((1, 0.1), (2, 0.3), (3, 0.2)):
        cap.add("server_gap", ts_from=cap.ts(second), ts_to=cap.ts(second + length), cause="connection", reason="reset")
    explorer = open_explored(cap.write())
    away = next(kind for kind in explorer.marks()["kinds"] if kind["name"] == "away")
    assert (away["there"], [mark["from_s"] for mark in away["marks"]]) == (3, [2, 3])
    explorer.capture.close()

"""What leadline explore says of two windows: averages that SQL gives, on one scale, and no verdict where compare has none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from example_capture import example
from findings_synthetic import SyntheticCapture
from leadline.cli import run
from leadline.compare import compare
from leadline.compare.environment import both
from leadline.compare.text import said
from leadline.errors import LeadlineError
from leadline.explore import queries
from leadline.explore.address import read_state
from leadline.explore.answers import Explorer, open_explored
from leadline.explore.growth import OTHER_SESSIONS, Growth


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example(tmp_path_factory.mktemp("growth")).write()


@pytest.fixture(scope="module")
def explorer(path: Path) -> Iterator[Explorer]:
    explorer = open_explored(path)
    yield explorer
    explorer.capture.close()


@contextmanager
def opened(*paths: Path) -> Iterator[tuple[Explorer, ...]]:
    explorers = tuple(open_explored(path) for path in paths)
    try:
        yield explorers
    finally:
        for explorer in explorers:
            explorer.capture.close()


def between(growth: Growth, query: str) -> dict[str, Any]:
    here, there = growth.here, growth.there
    state = read_state(query, here.ts_from, here.ts_to, (there.ts_from, there.ts_to))
    assert state.versus is not None
    return growth.between(state.asked, state.by, state.versus)


def steady(
    folder: Path, *, rate_hz: float = 100, seconds: float = 20, first: int = 0, busy: float = 1, query: str = "select 1",
    work_mem: int = 4096,
) -> Path:  # fmt: skip
    """A session that is active all the time, another in half of it, and one that waits for a lock for `busy` seconds."""
    folder.mkdir()
    cap = SyntheticCapture(folder, rate_hz=rate_hz, seconds=seconds)
    for number, text in ((1, query), (2, "update t set a = $1")):
        cap.add("statement", statement_id=first + number, id_source="server", datid=16384, query=text, truncated=False)
    cap.sample(cap.add_session(), "active", None, 0, seconds, statement_id=first + 1)
    cap.sample(cap.add_session(), "active", "IO:DataFileRead", 0, seconds / 2, statement_id=first + 2)
    cap.sample(cap.add_session(), "active", "Lock:tuple", 0, busy, statement_id=first + 2)
    cap.setting("work_mem", work_mem, unit="kB")
    return cap.write()


@pytest.mark.parametrize("by", ["event", "class", "statement", "application", "session", "object"])
def test_both_averages_are_those_of_sql(explorer: Explorer, path: Path, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = between(Growth(explorer, explorer), f"from=20&to=30&vs=2-12&by={by}&application=web")
    for side, sql in zip("ab", answer["sql"]):
        assert run(["sql", str(path), sql, "--json"]) == 0
        expected = {row["key"]: row["sessions"] for row in json.loads(capsys.readouterr().out)}
        assert {row["key"]: row[side] for row in answer["rows"] if row[side]} == pytest.approx(expected, rel=1e-9)
    assert [row["change"] for row in answer["rows"]] == sorted((row["a"] - row["b"] for row in answer["rows"]), reverse=True)
    assert answer["there"] == len(answer["rows"]) > 0


def test_a_window_without_waits_and_one_with_them(explorer: Explorer) -> None:
    answer = between(Growth(explorer, explorer), "from=20&to=30&vs=0-5&class=Lock&by=event")
    assert [(row["key"], row["a"], row["b"]) for row in answer["rows"]] == [
        ("Lock:tuple", pytest.approx(2), 0), ("Lock:transactionid", pytest.approx(1), 0),
    ]  # fmt: skip
    a, b = answer["windows"]
    assert (a["from_s"], a["to_s"], a["observed_s"], a["sessions"]) == (20, 30, pytest.approx(10), pytest.approx(3))
    assert (b["from_s"], b["to_s"], b["observed_s"], b["sessions"]) == (0, 5, pytest.approx(5), 0)
    assert answer["comparable"] and answer["text"].startswith("no verdict: one measurement of each")
    assert answer["measured"] == ["length: 10 s against 5 s: what happens seldom may be in one of them alone"]


def test_rates_and_lengths_of_two_captures_have_one_scale(tmp_path: Path) -> None:
    """Half of the samples in half of the time, or a tenth of them, is the same load."""
    with opened(steady(tmp_path / "a"), steady(tmp_path / "b", rate_hz=10, seconds=40, busy=2)) as (here, there):
        answer = between(Growth(here, there), "vs=0-40&by=event")
        assert {row["key"]: (round(row["a"], 3), round(row["b"], 3)) for row in answer["rows"]} == {
            "CPU": (1, 1), "IO:DataFileRead": (0.5, 0.5), "Lock:tuple": (0.05, 0.05),
        }  # fmt: skip
        assert any("at 100 Hz against ok (shm) at 10 Hz" in text for text in answer["measured"])
        outline = answer["outline"]
        assert outline["length_s"] == 20 and sum(row["seconds"] for row in outline["rows"]) == pytest.approx(20 + 20 + 2)


def test_statements_of_two_captures_are_the_same_by_their_text(tmp_path: Path) -> None:
    with opened(steady(tmp_path / "a"), steady(tmp_path / "b", first=100, busy=5, query="select 2")) as (here, there):
        growth = Growth(here, there)
        answer = between(growth, "vs=0-20&by=statement")
        rows = {row["label"]: (row["key"], round(row["a"], 3), round(row["b"], 3)) for row in answer["rows"]}
        assert rows == {"update t set a = $1": ("2", 0.55, 0.75), "select 1": ("1", 1, 0), "select 2": (None, 0, 1)}
        filtered = between(growth, "vs=0-20&by=event&statement=2")["rows"]
        assert {row["key"]: (round(row["a"], 3), round(row["b"], 3)) for row in filtered} == {
            "IO:DataFileRead": (0.5, 0.5), "Lock:tuple": (0.05, 0.25),
        }  # fmt: skip
        assert [row["b"] for row in between(growth, "vs=0-20&by=event&statement=1")["rows"]] == [0]


def test_sessions_of_two_captures_are_not_compared(tmp_path: Path) -> None:
    with opened(steady(tmp_path / "a"), steady(tmp_path / "b")) as (here, there):
        for query in ("vs=0-20&by=session", "vs=0-20&session=1"):
            answer = between(Growth(here, there), query)
            assert (answer["why"], answer["rows"], answer["outline"]) == (OTHER_SESSIONS, [], None)


@pytest.mark.parametrize("factors", [(), ("work_mem",)])
def test_what_may_be_said_is_what_compare_says(tmp_path: Path, factors: tuple[str, ...]) -> None:
    a, b = steady(tmp_path / "a"), steady(tmp_path / "b", work_mem=65536)
    expected = compare(*both(str(a), str(b)), factors)
    with opened(a, b) as (here, there):
        answer = between(Growth(here, there, factors), "vs=0-20")
    assert (answer["comparable"], answer["text"]) == (expected.comparable, expected.text)
    assert answer["must_agree"] == list(said([each for each in expected.environment if each.refuses]))
    assert any("work_mem" in text for text in answer["must_agree"]) == (not factors)


def test_windows_that_overlap_and_windows_that_were_not_seen(explorer: Explorer, tmp_path: Path) -> None:
    growth = Growth(explorer, explorer)
    assert [between(growth, f"from=20&to=30&vs={vs}")["overlap"] for vs in ("10-20", "10-20.5", "30-40")] == [False, True, False]
    cap = SyntheticCapture(tmp_path, seconds=10)
    cap.sample(cap.add_session(), "active", None, 0, 10)
    late = cap.write()
    with duckdb.connect() as db:
        db.execute(f"create table tick as from '{late}/tick/000001.parquet'")
        db.execute(f"copy (from tick where ts < {cap.ts(5)}) to '{late}/tick/000001.parquet' (format parquet)")
    with opened(late) as (here,):
        answer = between(Growth(here, here), "to=5&vs=6-9")
        assert answer["why"].startswith("one of the two windows was not seen") and answer["windows"][1]["sessions"] is None


REFUSED = {
    "vs=": "'' is no window to compare with", "vs=3": "'3' is no window to compare with",
    "vs=5-3": "what is compared must lie between 0 and 60", "vs=3-3": "and begin before it ends",
    "vs=-1-3": "'' is no number of seconds", "vs=0-61": "what is compared must lie between 0 and 60",
    "vs=a-b": "'a' is no number of seconds", "vs=1-2-3": "'2-3' is no number of seconds",
}  # fmt: skip


@pytest.mark.parametrize("query", REFUSED)
def test_a_window_that_is_not_understood_is_one_clear_error(explorer: Explorer, query: str) -> None:
    with pytest.raises(LeadlineError) as caught:
        read_state(query, explorer.ts_from, explorer.ts_to)
    assert REFUSED[query] in caught.value.message


def test_the_other_capture_has_its_own_length(tmp_path: Path) -> None:
    with opened(steady(tmp_path / "a"), steady(tmp_path / "b", seconds=40)) as (here, there):
        reach = (there.ts_from, there.ts_to)
        assert read_state("vs=30-40", here.ts_from, here.ts_to, reach).versus == (there.ts_from + 30 * 10**9, there.ts_to)
        with pytest.raises(LeadlineError, match=r"between 0 and 20\.000 s"):
            read_state("vs=30-40", here.ts_from, here.ts_to)


def test_values_are_bound(explorer: Explorer) -> None:
    planted = "x' or 'a' = 'a"
    query = queries.active(queries.Asked(explorer.ts_from, explorer.ts_to, (("application", planted),)), "user")
    assert planted not in query.sql and planted in query.values and explorer.rows(query) == []


def test_a_factor_needs_another_capture(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explore", str(path), "--no-browser", "--factor", "work_mem"]) == 2
    assert capsys.readouterr().err.startswith("error: a factor is what differs between two captures\n")

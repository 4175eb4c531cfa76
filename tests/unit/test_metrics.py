"""The metrics of a recorder: sums of its evidence, a bounded number of series, and the form in which Prometheus takes them."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import exposition as prometheus
import pytest
from conftest import wait_until
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.metrics import families
from leadline.metrics.exposition import exposition
from leadline.metrics.families import COUNTER, DB_TIME, FAMILIES, PRESSURE, Family, Reading
from leadline.metrics.follower import Follower
from leadline.metrics.host import HostSource
from leadline.metrics.own import OwnSource
from leadline.metrics.totals import MOST_CLASSES, MOST_EXPECTED, MOST_SERIES, MOST_WAITS, OTHER, Totals
from leadline.recorder.evidence import Increase, Piece
from leadline.tables import all_tables
from promtool import promtool

ACTIVE = "select wait_class, coalesce(wait_event, 'CPU') as event, count(*) as samples from session_sample where in_db_time group by all"
STATES = "select state, count(*) as samples from session_sample where state is not null group by all"
PERIOD_NS = 10_000_000
SESSIONS: Sequence[Any] = [SimpleNamespace(name="sessions"), SimpleNamespace(name="host"), SimpleNamespace(name="self")]


def loaded(tmp_path: Path, name: str = "synthetic", seconds: float = 6, *, times: bool = True) -> Path:
    """Sessions of all kinds. times: with what the scheduler counted."""
    made = SyntheticCapture(tmp_path, seconds=seconds)
    made.path = tmp_path / f"{name}.leadline"
    made.background()
    step: list[tuple[str | None, str | None, int]]
    step = [("active", None, 4), ("active", "IO:DataFileRead", 3), ("idle in transaction", "Client:ClientRead", 2)]
    step.append(("idle", "Client:ClientRead", 1))
    for _ in range(3):
        session = made.add_session()
        made.cycle(session, step, 0, seconds)
        if times:
            made.delta(session, 0, seconds, cpu_run_ns=300_000_000, cpu_queue_ns=20_000_000)
    made.walsender("standby")
    later = made.add_session()  # a connection that becomes one that is never database time
    made.sample(later, "active", "Client:WalSenderWaitForWAL", 0, seconds)
    made.describe(later, seconds / 2, "walsender")
    return made.write()


def rows(capture: Path, sql: str) -> list[dict[str, Any]]:
    with closing(open_capture(capture)) as opened:
        return opened.rows(sql)


def expected(*captures: Path) -> tuple[dict[tuple[str, str], int], dict[str, int]]:
    """Time of active sessions by wait, and of sessions by state, as the view session_sample of the pieces has them."""
    waits: dict[tuple[str, str], int] = {}
    states: dict[str, int] = {}
    for capture in captures:
        for row in rows(capture, ACTIVE):
            key = row["wait_class"], row["event"]
            waits[key] = waits.get(key, 0) + row["samples"] * PERIOD_NS
        for row in rows(capture, STATES):
            states[row["state"]] = states.get(row["state"], 0) + row["samples"] * PERIOD_NS
    return waits, states


def taken_in(capture: Path) -> Increase:
    piece = Piece(capture)
    return piece.take_in(ended=True)


@contextmanager
def following() -> Iterator[Follower]:
    with closing(Follower(1_000)) as follower:
        follower.start()
        yield follower


def read(follower: Follower) -> str:
    return exposition(follower.readings())


def seen(text: str) -> dict[tuple[str, ...], int]:
    """The waits that took time: those that can come are there with none."""
    return {wait: ns for wait, ns in prometheus.counters(text, "leadline_db_time_seconds_total").items() if ns}


# -- the evidence ----------------------------------------------------------------------------------------------------------


def test_the_sums_of_a_piece_are_those_of_its_samples(tmp_path: Path) -> None:
    capture = loaded(tmp_path)
    found = taken_in(capture)
    waits, states = expected(capture)
    assert (dict(found.waits), dict(found.states)) == (waits, states)
    assert waits["Client", "WalSenderWaitForWAL"] == 300 * PERIOD_NS, "the half before it became a walsender"
    assert (found.passes, found.missed, found.observed_ns) == (600, 0, 6 * 10**9)
    assert dict(found.cpu) == {"running": 3 * 6 * 300_000_000, "queued": 3 * 6 * 20_000_000}


def test_a_large_piece_is_taken_in_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs may begin in one part and end in another."""
    capture = loaded(tmp_path)
    longer = tmp_path / "runs.parquet"
    alike = "select min(tick)::bigint as tick, count(*)::int as ticks, session_id, state, wait_event_info"
    rest = ", ".join(
        f"any_value({c.name}) as {c.name}"
        for c in all_tables()["session_run"].columns
        if c.name not in ("tick", "ticks", "session_id", "state", "wait_event_info")
    )
    numbered = "tick - row_number() over (partition by session_id, state, wait_event_info order by tick) as run"
    source = f"(select *, {numbered} from '{capture}/session_run/*.parquet')"
    duckdb.sql(f"copy ({alike}, {rest} from {source} group by session_id, state, wait_event_info, run) to '{longer}'")
    for segment in (capture / "session_run").glob("*.parquet"):
        segment.unlink()
    longer.rename(capture / "session_run" / "000001.parquet")
    [row] = rows(capture, "select max(ticks) as longest, count(*) as n from session_run")
    assert row["longest"] == 600 and row["n"] < 2000
    waits, states = expected(capture)
    for at_once in (1, 70, 1000, 10**6):
        monkeypatch.setattr("leadline.recorder.evidence.AT_ONCE", at_once)
        found = taken_in(capture)
        assert (dict(found.waits), dict(found.states), found.passes) == (waits, states, 600), at_once


def test_without_times_of_the_scheduler_they_are_those_of_db_time(tmp_path: Path) -> None:
    capture = loaded(tmp_path, times=False)
    [row] = rows(capture, "select round(sum(weight_s) * 1e9)::bigint as ns, count(*) as samples from db_time")
    found = taken_in(capture)
    assert sum(found.waits.values()) == row["ns"] == row["samples"] * PERIOD_NS
    assert not found.cpu, "not known is absent, and not nothing"


def cut(whole: Path, to: Path, table: str, condition: str) -> None:
    """A segment of some rows, put in the place of the one before in one step, as a segment that grows."""
    (to / table).mkdir(parents=True, exist_ok=True)
    new = to / table / "new.tmp"
    duckdb.sql(f"copy (select * from '{whole / table}/*.parquet' where {condition}) to '{new}' (format parquet)")
    new.rename(to / table / "000001.parquet")


def test_what_grows_is_taken_in_once_in_whatever_order_its_tables_come(tmp_path: Path) -> None:
    whole, growing = loaded(tmp_path), tmp_path / "growing.leadline"
    growing.mkdir()
    shutil.copy(whole / "manifest.json", growing)
    for table in ("session", "wait_event", "session_delta"):
        shutil.copytree(whole / table, growing / table)
    random.seed(7)
    sums = Totals()
    piece = Piece(growing)
    assert piece.take_in(ended=False) == Increase(cpu=taken_in(whole).cpu), "no pass yet"
    at = {"tick": 0, "session_run": 0}
    while min(at.values()) < 600:
        table = random.choice(list(at))
        at[table] = min(600, at[table] + random.randrange(1, 90))
        cut(whole, growing, table, f"tick < {at[table]}")
        sums.add(piece.take_in(ended=False))
        assert sums.passes == min(at.values()), "as far as both are there"
    sums.add(piece.take_in(ended=True))
    assert piece.take_in(ended=True) == Increase()
    waits, states = expected(whole)
    assert (dict(sums.waits), dict(sums.states), sums.passes, sums.observed_ns) == (waits, states, 600, 6 * 10**9)


def test_passes_without_a_session_count_when_the_piece_has_ended(tmp_path: Path) -> None:
    made = SyntheticCapture(tmp_path, seconds=2)
    made.sample(made.add_session(), "active", None, 0, 1)
    piece = Piece(made.write())
    assert piece.take_in(ended=False).passes == 100
    last = piece.take_in(ended=True)
    assert (last.passes, last.waits) == (100, {})


def test_a_path_with_odd_characters_is_read(tmp_path: Path) -> None:
    capture = loaded(tmp_path).rename(tmp_path / "it's [odd] *?.leadline")
    assert taken_in(capture).passes == 600


def test_each_engine_says_what_is_database_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition may ask for any column of a run and its session."""
    capture = loaded(tmp_path)
    condition = "case when c.target_kind = 'postgres' then s.state = 3 and s.query_start > 0 and w.application_name = 'psql' else false end"
    monkeypatch.setattr("leadline.recorder.evidence.in_db_time", lambda: condition)
    assert dict(taken_in(capture).waits) == {("Client", "ClientRead"): 600 * PERIOD_NS}


def test_a_damaged_piece_is_an_error_and_nothing_of_it_counts_twice(tmp_path: Path) -> None:
    capture = loaded(tmp_path)
    segment = next((capture / "session_delta").glob("*.parquet"))
    content = segment.read_bytes()
    piece = Piece(capture)
    segment.write_bytes(content[:100])
    with pytest.raises(LeadlineError, match="cannot be read"):
        piece.take_in(ended=False)
    segment.write_bytes(content)
    assert piece.take_in(ended=False).passes == 600


# -- from piece to piece ---------------------------------------------------------------------------------------------------


def test_counters_go_on_over_pieces(tmp_path: Path) -> None:
    one, two = loaded(tmp_path, "one"), loaded(tmp_path, "two", 3)
    with following() as follower:
        assert prometheus.value(read(follower), "leadline_passes_total") == "0"
        follower.doing("recording")
        follower.began(one, SESSIONS)
        follower.ended(one)
        wait_until(lambda: follower.totals.passes == 600, what="the piece that has ended, though nobody has asked")
        follower.began(two, SESSIONS)
        follower.refresh()
        follower.ended(two)
        follower.close()
        follower._taken_in = 0
        text = read(follower)
    waits, states = expected(one, two)
    assert seen(text) == waits
    assert prometheus.counters(text, "leadline_session_time_seconds_total") == {(state,): ns for state, ns in states.items()}
    assert prometheus.value(text, "leadline_passes_total") == "900"
    assert prometheus.value(text, "leadline_pieces_total") == "2"
    assert prometheus.value(text, "leadline_observed_seconds_total") == "9.000000000"
    assert prometheus.value(text, "leadline_recorder_doing", doing="recording") == "1"
    assert prometheus.value(text, "leadline_recorder_doing", doing="waiting") == "0"
    assert prometheus.value(text, "leadline_server_info", engine="PostgreSQL", version="16.14") == "1"


def test_a_piece_that_cannot_be_read_is_counted_and_the_next_one_goes_on(tmp_path: Path) -> None:
    damaged, whole = loaded(tmp_path, "damaged"), loaded(tmp_path, "whole")
    next((damaged / "tick").glob("*.parquet")).write_bytes(b"PAR1 no")
    gone = tmp_path / "gone.leadline"
    with following() as follower:
        for piece in (damaged, gone, whole):
            follower.began(piece, SESSIONS)
            follower.ended(piece)
        follower.ended(tmp_path / "never-began.leadline")
        follower.close()
        text = read(follower)
    assert prometheus.value(text, "leadline_pieces_unread_total") == "2"
    assert prometheus.value(text, "leadline_passes_total") == "600"


def test_of_a_host_without_a_server_nothing_is_said_of_sessions(tmp_path: Path) -> None:
    with following() as follower:
        follower.began(loaded(tmp_path), SESSIONS[1:])
        names = prometheus.parse(read(follower))[0].keys()
    assert names == {"leadline_pieces_total", "leadline_pieces_unread_total", "leadline_recorder_doing"} | {
        "leadline_server_cpus", "leadline_server_info",  # of this capture, which is one of a server
    }  # fmt: skip
    assert follower.has_host


class Writing:
    """A probe that puts what it has into the piece when it is asked."""

    name, required = "sessions", True

    def __init__(self, whole: Path, piece: Path) -> None:
        self.whole, self.piece, self.asked = whole, piece, 0

    def write_soon(self) -> None:
        self.asked += 1
        for table in ("session_run", "tick"):
            cut(self.whole, self.piece, table, "tick < 300")


def test_who_asks_gets_what_was_seen_until_now(tmp_path: Path) -> None:
    whole, piece = loaded(tmp_path), tmp_path / "piece.leadline"
    shutil.copytree(whole, piece, ignore=lambda _, names: [name for name in names if name in ("tick", "session_run")])
    probe = Writing(whole, piece)
    with following() as follower:
        probes: Sequence[Any] = [probe]
        follower.began(piece, probes)
        assert prometheus.value(read(follower), "leadline_passes_total") == "300"
        follower._taken_in = 0
        read(follower)
        assert probe.asked == 1, "to write costs: not more often than every few seconds"
        follower.ended(piece)


def test_waits_that_can_come_are_there_before_they_do(tmp_path: Path) -> None:
    """Else what the first value of a series holds would be in no rate."""
    whole, piece = loaded(tmp_path), tmp_path / "piece.leadline"
    piece.mkdir()
    shutil.copy(whole / "manifest.json", piece)
    with following() as follower:
        follower.began(piece, SESSIONS)
        assert prometheus.counters(read(follower), "leadline_db_time_seconds_total") == {("CPU", "CPU"): 0}, "no names yet"
        shutil.copytree(whole / "wait_event", piece / "wait_event")
        follower._taken_in = 0
        before = prometheus.counters(read(follower), "leadline_db_time_seconds_total")
        assert set(before.values()) == {0}
        shutil.copytree(whole, piece, dirs_exist_ok=True)
        follower.ended(piece)
        follower.close()
        follower._taken_in = 0
        after = prometheus.counters(read(follower), "leadline_db_time_seconds_total")
    assert after.keys() == before.keys(), "also what never counted as database time in this piece"
    assert ("Activity", "CheckpointerMain") not in before, "what can never count"
    assert {wait: ns for wait, ns in after.items() if ns} == expected(whole)[0]


def test_many_names_of_a_server_leave_room_for_others() -> None:
    totals = Totals()
    totals.expect((f"Class {n % 7}", f"event {n}") for n in range(1000))
    assert len(totals.waits) == MOST_EXPECTED and not totals.others
    totals.add(Increase(waits=Counter({("Extension", "new"): 3})))
    assert totals.waits["Extension", "new"] == 3


# -- how many series -------------------------------------------------------------------------------------------------------


def test_names_that_somebody_makes_up_stay_under_the_cap_and_no_time_is_lost() -> None:
    totals = Totals()
    totals.add(Increase(waits=Counter({("Lock", "tuple"): 5})))
    for n in range(10_000):
        totals.add(Increase(waits=Counter({("Extension", f"made up {n}"): n}), states=Counter({f"state {n}": 1})))
        totals.add(Increase(waits=Counter({(f"Class {n}", "x"): 1})))
    totals.add(Increase(waits=Counter({("Lock", "tuple"): 6, ("Lock", "new"): 7, ("Extension", "made up 3"): 1, ("Nap", OTHER): 8})))
    assert len(totals.waits) + len(totals.states) <= MOST_SERIES
    assert len(totals.waits) > MOST_WAITS
    assert sum(totals.waits.values()) == 5 + sum(range(10_000)) + 10_000 + 6 + 7 + 1 + 8
    assert totals.waits["Lock", "tuple"] == 11 and totals.waits["Lock", OTHER] == 7
    assert totals.waits["Extension", "made up 3"] == 4
    assert totals.waits["Extension", OTHER] == sum(n for n in range(10_000) if ("Extension", f"made up {n}") not in totals.waits)
    assert len({wait_class for wait_class, _ in totals.waits}) <= MOST_CLASSES + 1
    assert len(totals.others) == 10_000


def test_a_long_name_is_cut() -> None:
    totals = Totals()
    totals.add(Increase(waits=Counter({("Extension", "x" * 5000): 3, ("Extension", "x" * 6000): 4})))
    assert dict(totals.waits) == {("Extension", "x" * 100): 7}


# -- the host and the recorder ---------------------------------------------------------------------------------------------

STAT = """cpu  100 20 30 4000 50 6 7 8 90 1
cpu0 50 10 15 2000 25 3 3 4 45 1
cpu1 50 10 15 2000 25 3 4 4 45 0
intr 1
btime 1700000000
"""


def test_host_counters_are_those_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "stat").write_text(STAT)
    rates = "avg10=0.00 avg60=0.00 avg300=0.00"
    (tmp_path / "pressure" / "io").write_text(f"some {rates} total=12\nfull {rates} total=3\n")
    (tmp_path / "pressure" / "irq").write_text(f"full {rates} total=5\n")
    (tmp_path / "pressure" / "cpu").write_text("")  # what a kernel gives that was booted with psi=0
    found = {reading.family.name: reading for reading in HostSource(lambda: True, tmp_path).readings()}
    assert dict(found["leadline_host_cpu_seconds_total"].points) == {
        (mode,): ticks * 10_000_000
        for mode, ticks in {"user": 100, "nice": 20, "system": 30, "idle": 4000, "iowait": 50, "interrupt": 13, "steal": 8}.items()
    }
    assert found["leadline_host_cpus"].points == (((), 2),)
    assert dict(found[PRESSURE.name].points) == {("io", "some"): 12_000, ("io", "full"): 3000, ("irq", "full"): 5000}
    assert found[PRESSURE.name].since_ns == 1_700_000_000 * 10**9
    assert list(HostSource(lambda: False, tmp_path).readings()) == [], "the server is on another host"


def test_own_start_does_not_move() -> None:
    own = OwnSource()
    first, second = ({reading.family.name: reading.points[0][1] for reading in own.readings()} for _ in range(2))
    assert first["process_start_time_seconds"] == second["process_start_time_seconds"] == own.start_ns
    assert second["process_cpu_seconds_total"] >= first["process_cpu_seconds_total"] > 0
    assert first["process_resident_memory_bytes"] > 10_000_000


# -- the form --------------------------------------------------------------------------------------------------------------

ODD = ('say "x"', "back\\slash", "two\nlines", 'C:\\new "y"\n', "Zähler \u2028", "}{,=")


def test_odd_labels_arrive_as_they_are() -> None:
    text = exposition([Reading(DB_TIME, tuple((("Extension", odd), n) for n, odd in enumerate(ODD)), 0)])
    assert prometheus.counters(text, DB_TIME.name) == {("Extension", odd): n for n, odd in enumerate(ODD)}
    assert text.count("\n") == 2 + len(ODD)


def test_seconds_are_exact() -> None:
    text = exposition([Reading(DB_TIME, ((("a", "b"), 123456789012345678901),), 0)])
    assert text.splitlines()[2] == 'leadline_db_time_seconds_total{class="a",event="b"} 123456789012.345678901'


def every_family() -> list[Reading]:
    """One of each, with a series."""
    return [Reading(family, ((tuple("x" for _ in family.labels), 1),), 10**9) for family in FAMILIES]


def test_names_follow_the_rules() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    listed = {value for value in vars(families).values() if isinstance(value, Family)}
    assert listed == set(FAMILIES)
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind == COUNTER), family.name
        assert ("_seconds" in family.name) == (family.unit == "s"), family.name
        if family.otlp:
            assert all(re.fullmatch(r"[a-z][a-z.]+", name) for name in (family.otlp, *(attribute for _, attribute in family.labels)))
    assert prometheus.parse(exposition(every_family()))[0].keys() == {family.name for family in FAMILIES}


def test_promtool_takes_it_and_has_nothing_to_say() -> None:
    odd = Reading(DB_TIME, tuple((("Extension", odd), n) for n, odd in enumerate(ODD)), 0)
    done = promtool("check", "metrics", given=exposition([odd, *(r for r in every_family() if r.family != DB_TIME)]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_metric_is_in_the_guide() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "metrics.md").read_text()
    for family in FAMILIES:
        [line] = [line for line in guide.splitlines() if line.startswith(f"| `{family.name}` |")]
        _, _, otlp, labels, _, _ = line.split("|")
        assert otlp.strip(" `") == family.otlp
        assert labels.strip() == ", ".join(label for label, _ in family.labels)

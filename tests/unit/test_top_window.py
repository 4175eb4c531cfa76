"""`leadline top`: the window that moves over what is sampled, and the numbers of a frame."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from example_capture import example
from findings_synthetic import SyntheticCapture
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.top import grids, model
from leadline.top.live import LiveCapture
from leadline.top.model import Frame
from leadline.views import lock_tree, spenders, where
from top_parts import RECORDING, SECOND, at, live_of


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCapture]:
    opened = live_of(example(tmp_path_factory.mktemp("top")).write())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def frame(live: LiveCapture) -> Frame:
    """Seconds 10 to 40 of the example: the lock chain stands at its end."""
    live.look_at(at(10), at(40))
    return model.frame(live, RECORDING)


def rounded(value: Any) -> Any:
    """A value with its floats at nine digits: sums depend on the order of their parts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else round(value, 9) if isinstance(value, float) else value


def test_the_whole_window_says_what_the_capture_says(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    kept = shutil.copytree(path, tmp_path / "copy.leadline")
    live, capture = live_of(path), open_capture(kept, hold=True)  # as `show` has it
    live.look_at(at(0), at(60))
    for ask in (
        where.by_class, where.cpu_split, where.outside, spenders.sessions, spenders.statements, spenders.objects, spenders.hot_blocks,
        lock_tree.lock_trees,
    ):  # fmt: skip
        assert rounded(ask(live)) == rounded(ask(capture)) != [], ask.__name__
    seen = model.load(live)
    assert (seen.db_time_s, seen.aas) == (pytest.approx(where.window(capture).db_time_s), pytest.approx(where.window(capture).aas))


def test_segments_are_read_once_and_removed(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    live = live_of(path)
    before = live.recent.samples()
    live.ingest(path)
    assert live.recent.samples() == before > 0  # no segment was read again
    assert live.scalar("select count(*) from kept.session_sample") == before
    assert sorted({p.parent.name for p in path.glob("*/*.parquet")}) == ["database", "relation", "role", "setting"]
    assert not [p for table in ("tick", "session_run", "session", "host_stat", "lock_wait") for p in path.glob(f"{table}/*.parquet")]
    live.ingest(path)
    assert live.scalar("select count(*) from kept.session_sample") == before


def test_the_window_moves(live: LiveCapture) -> None:
    live.look_at(at(0), at(5))
    assert model.load(live).observed_s == pytest.approx(5)
    assert not lock_tree.lock_trees(live)
    live.look_at(at(20), at(30))
    seen = {c.wait_class: c.seconds for c in model.load(live).classes}
    assert seen["Lock"] == pytest.approx(30)  # three victims
    assert [t.pid for t in lock_tree.lock_trees(live)] == [7001]
    assert live.extent() == (at(0), at(60))


def test_samples_wait_for_their_tick(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=2)
    cap.sample(cap.add_session(), "active", None, 0, 2)
    path = cap.write()
    later = path.with_name("later")
    later.mkdir()
    (path / "tick").rename(later / "tick")
    live = LiveCapture(path, read_manifest(path))
    live.ingest(path)
    assert live.extent() is None
    live.ingest(later)
    assert live.extent() == (at(0), at(2))
    live.look_at(at(0), at(2))
    assert model.load(live).db_time_s == pytest.approx(2)


def test_names_that_come_later_are_given_to_what_was_sampled(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    live = LiveCapture(path, read_manifest(path))
    named = path.with_name("names")
    named.mkdir()
    for table in ("database", "role", "relation"):
        (path / table).rename(named / table)
    live.ingest(path)
    live.look_at(at(0), at(60))
    assert live.unknown_relations() == {(16384, 16401), (16384, 16402), (16384, 16403)}
    assert live.rows("select distinct datname, usename from session_sample where datid = 16384") == [{"datname": None, "usename": None}]
    live.set_names(named)
    assert live.rows("select distinct datname, usename from session_sample where datid = 16384") == [
        {"datname": "shop", "usename": "postgres"}
    ]
    assert live.unknown_relations() == set()


def test_old_samples_are_forgotten_but_a_held_window_stays(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=40)
    cap.sample(cap.add_session(), "active", None, 0, 40)
    gone = cap.add_session(pid=99)
    cap.sample(gone, "active", None, 0, 3)
    live = live_of(cap.write())
    live.trim(at(30), spared=(at(10), at(12)))
    live.look_at(at(0), at(40))
    assert model.load(live).observed_s == pytest.approx(12)
    assert live.scalar("select min(ts) from tick") == at(10)
    assert live.rows("select pid from session order by pid") == [{"pid": 4001}]
    live.trim(at(30))
    assert live.extent() == (at(30), at(40))


def test_what_no_query_asked_for_is_read_or_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = example(tmp_path).write()
    tables = ("tick", "session_run", "session", "statement")
    kept = [shutil.copytree(path, tmp_path / name) for name in ("young.leadline", "old.leadline")]
    young, old = live_of(kept[0]), live_of(kept[1])
    young.settle()
    assert not [p for table in tables for p in kept[0].glob(f"{table}/*.parquet")]
    long_ago = time.time() - 1_000_000
    for segment in (p for table in tables for p in kept[1].glob(f"{table}/*.parquet")):
        os.utime(segment, (long_ago, long_ago))
    old.trim(at(30))
    assert {p.parent.name for table in tables for p in kept[1].glob(f"{table}/*.parquet")} == {"session", "statement"}  # a query may ask
    monkeypatch.setattr("leadline.top.live.MOST_DESCRIBED", 2)
    old.trim(at(30))
    assert not [p for table in tables for p in kept[1].glob(f"{table}/*.parquet")]
    assert old.extent() == (at(30), at(60)) and model.load(old).sessions > 0
    assert old.scalar("select count(*) from statement") == young.scalar("select count(*) from statement") > 0  # later samples need it
    assert old.scalar("select count(*) from kept.session_sample") == 0 < young.scalar("select count(*) from kept.session_sample")


def test_a_damaged_segment_is_one_error(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    (path / "tick" / "000002.parquet").write_bytes(b"not parquet")
    live = LiveCapture(path, read_manifest(path))
    with pytest.raises(LeadlineError) as caught:
        live.ingest(path)
    assert caught.value.kind == "storage"
    assert live.extent() is None


def test_the_load_adds_up(frame: Frame) -> None:
    of = frame.load
    assert (of.window_s, of.observed_s, of.ticks, of.missed) == (30, pytest.approx(30), 3000, 0)
    assert of.aas == pytest.approx(of.db_time_s / 30)
    assert sum(c.seconds for c in of.classes) == pytest.approx(of.db_time_s)
    assert all(sum(e.seconds for e in c.events) == pytest.approx(c.seconds) for c in of.classes)
    assert of.lock_waiters == 3 and of.idle_in_xact >= 1
    assert sum(sum(step.values()) for step in frame.timeline.steps if step) * frame.timeline.step_s == pytest.approx(of.db_time_s)


def starved(folder: Path) -> LiveCapture:
    """Sessions that wait for a CPU: while active, idle, in waits, and where no counter tells."""
    cap = SyntheticCapture(folder, seconds=20)
    cap.background()
    cap.walsender("standby")
    clients = [cap.add_session() for _ in range(6)]
    steps = [("active", None, 2), ("active", "LWLock:WALWrite", 3), ("idle", "Client:ClientRead", 4), ("idle", None, 1)]
    for number, client in enumerate(clients):
        cap.cycle(client, [*steps, ("active", "Lock:tuple", number)], 0, 20)
        if number:
            cap.delta(client, 0.5 * number, 18, cpu_run_ns=200_000_000 // number, cpu_queue_ns=150_000_000 * number)
    cap.delta(clients[0], 0, 20, cpu_run_ns=0, cpu_queue_ns=0)
    cap.sample(clients[1], "hidden", None, 5, 8)
    return live_of(cap.write())


@pytest.mark.parametrize("made", [starved, lambda folder: live_of(example(folder).write())])
def test_the_sums_are_those_of_the_views(made: Any, tmp_path: Path) -> None:
    live = made(tmp_path)
    for from_s, to_s in ((0, 20), (3, 13), (4.37, 9.99), (17, 20), (-3, 1.5), (25, 26), (70, 80)):
        live.look_at(at(from_s), at(to_s))
        of, shown = model.load(live), model.frame(live, RECORDING, 40)
        seen = {(c.wait_class, e.event): e.seconds for c in of.classes for e in c.events}
        told = {(c.wait_class, e.event): e.seconds for c in where.by_class(live) for e in c.events}
        assert seen == pytest.approx(told), (from_s, to_s)
        assert shown.cpu is not None and dataclasses.asdict(shown.cpu) == pytest.approx(dataclasses.asdict(where.cpu_split(live)))
        busy = {row["session_id"]: row["s"] for row in live.rows("select session_id, sum(weight_s) as s from db_time group by all")}
        assert {s.session_id: s.busy_s for s in shown.sessions or []} == pytest.approx(
            {s.session_id: busy.get(s.session_id, 0) for s in shown.sessions or []}
        )
        step_ns = round(shown.timeline.step_s * 1e9)
        told_steps: dict[int, dict[str, float]] = {}
        for row in live.rows("select ts // $1 as step, wait_class, sum(weight_s) as s from db_time group by all", [step_ns]):
            told_steps.setdefault(row["step"], {})[row["wait_class"]] = row["s"]
        for number, _, classes in live.sums(step_ns)["steps"]:
            assert dict(classes) == pytest.approx(told_steps.pop(number, {}))
        assert told_steps == {}
        last = live.rows(
            "select session_id, state, wait_class, coalesce(wait_event, 'CPU') as event, xact_age_s, xmin_age, in_db_time, "
            "application_name, coalesce(usename, '') as usename from session_sample where ts = (select max(ts) from session_sample)"
        )
        now = {s.session_id: s for s in shown.sessions or []}
        assert sorted(now) == sorted(row["session_id"] for row in last)
        for row in last:
            s = now[row["session_id"]]
            assert row["xact_age_s"] == (None if s.xact_age_s is None else pytest.approx(s.xact_age_s, abs=1e-6))
            assert (row["state"] or "", row["wait_class"], row["event"]) == (s.state, s.wait_class, s.event)
            told_row = (row["xmin_age"], row["in_db_time"], row["application_name"], row["usename"])
            assert told_row == (s.xmin_age, s.in_db_time, s.application_name, s.usename)


def test_waiting_for_a_cpu_counts_also_where_the_server_says_idle(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=10)
    client = cap.add_session()
    cap.sample(client, "idle", "Client:ClientRead", 0, 10)
    cap.delta(client, 0, 10, cpu_run_ns=100_000_000, cpu_queue_ns=400_000_000)
    live = live_of(cap.write())
    live.look_at(at(0), at(10))
    shown = model.frame(live, RECORDING)
    assert [(c.wait_class, pytest.approx(c.seconds)) for c in shown.load.classes] == [("CPU", 4)]
    assert shown.load.aas == pytest.approx(0.4) and shown.load.active == 0
    assert shown.cpu is not None and shown.cpu.queue_s == pytest.approx(4)
    assert shown.sessions is not None and shown.sessions[0].busy_s == pytest.approx(4)


def test_the_timeline_has_round_steps_and_leaves_gaps(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=10)
    session = cap.add_session()
    cap.sample(session, "active", None, 0, 10)
    cap.sample(session, "active", "IO:DataFileRead", 2, 4)
    path = cap.write()
    ticks, fewer = path / "tick" / "000001.parquet", path / "fewer"
    duckdb.sql(f"from '{ticks}' where not (ts >= {at(6)} and ts < {at(8)})").write_parquet(str(fewer), compression="zstd")
    fewer.replace(ticks)
    live = live_of(path)
    live.look_at(at(0), at(10))
    line = model.timeline(live, 10)
    assert (line.step_s, len(line.steps)) == (1.0, 10)
    assert line.steps[6:8] == [None, None]
    assert [list(step) for step in line.steps if step] == [["CPU"]] * 2 + [["IO"]] * 2 + [["CPU"]] * 4
    assert line.peak == pytest.approx(1)
    for columns in (1, 7, 33, 74, 500):
        live.look_at(at(0.37), at(5.99))
        found = model.timeline(live, columns).steps
        assert len(found) <= columns and None not in found


def test_the_chart_has_no_step_of_a_few_passes(tmp_path: Path) -> None:
    """Sixteen sessions in the first pass of the window, and in the last one, are no bar of sixteen."""
    cap = SyntheticCapture(tmp_path, seconds=12)
    cap.sample(cap.add_session(), "active", None, 0, 12)
    for second in (1.99, 9):
        for _ in range(15):
            cap.sample(cap.add_session(), "active", "Lock:tuple", second, second + 0.01)
    live = live_of(cap.write())
    for from_s, to_s, steps, peak in ((1.99, 9.01, 7, 1), (1.4, 9.6, 9, 1.15), (2.3, 2.8, 1, 1), (2.6, 3.3, 1, 1)):
        live.look_at(at(from_s), at(to_s))
        found = model._timeline(live, live.sums(SECOND), 1.0, 60)
        assert len(found.steps) == steps and None not in found.steps, (from_s, to_s)
        assert found.peak == pytest.approx(peak, rel=0.3), (from_s, to_s)


def test_a_tab_that_has_nothing_to_show_asks_no_query(live: LiveCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap = SyntheticCapture(tmp_path, seconds=40)
    cap.sample(cap.add_session(), "active", "IO:DataFileRead", 0, 10)
    quiet = live_of(cap.write())
    tabs = frozenset(("locks", "blocks", "statements"))
    with monkeypatch.context() as patched:
        patched.setattr(LiveCapture, "rows", lambda *_: pytest.fail("a query"))
        quiet.look_at(at(20), at(40))
        seen = model.frame(quiet, RECORDING, parts=tabs)
        assert (seen.trees, seen.blocks, seen.statements) == ([], [], [])
        assert grids.locks(seen).rows == [] and "no session waited" in grids.locks(seen).empty
    quiet.look_at(at(0), at(10))
    assert model.frame(quiet, RECORDING, parts=tabs).statements
    live.look_at(at(10), at(40))
    seen = model.frame(live, RECORDING, parts=tabs)
    assert seen.trees and seen.blocks and seen.statements and seen.pids
    live.look_at(at(75), at(105))  # evidence that came since may still be of these seconds
    assert not live.may_have("lock_wait") and not live.may_have("buffer_wait")


def test_sessions_at_the_end_of_the_window(frame: Frame) -> None:
    found = {s.pid: s for s in frame.sessions or []}
    assert found[7002].blocked_by == (7001,) and found[7003].blocked_by == (7002,)
    assert found[7001].blocked_by == () and found[7001].state == "idle in transaction" and not found[7001].hidden_when_quiet
    assert found[7001].xact_age_s == pytest.approx(36, abs=0.1)
    assert found[7003].age_s == pytest.approx(25, abs=0.1)  # in this statement
    assert found[7003].busy_s == pytest.approx(25) and found[7001].busy_s == 0
    assert found[7002].statement.startswith("update accounts") and found[7002].usename == "postgres"
    quiet = {s.backend_type or s.application_name for s in frame.sessions or [] if s.hidden_when_quiet}
    assert "checkpointer" in quiet
    busy = [s.busy_s for s in frame.sessions or []]
    assert busy == sorted(busy, reverse=True)


def test_a_look_at_waiters_that_comes_late_names_them_until_the_next(tmp_path: Path) -> None:
    """A busy host makes looks later than the last two were apart; what was seen more than two seconds ago may be over."""
    cap = SyntheticCapture(tmp_path, seconds=20)
    root, victim = cap.add_session(pid=1), cap.add_session(pid=2)
    cap.sample(root, "idle in transaction", "Client:ClientRead", 0, 20)
    cap.sample(victim, "active", "Lock:transactionid", 5, 20)
    cap.lock_wait(victim, root, 5, 10, samples=False)
    live = live_of(cap.write())
    for to_s, blockers in ((9.5, (1,)), (11.5, (1,)), (13, ())):
        live.look_at(at(2), at(to_s))
        assert {s.pid: s.blocked_by for s in model.sessions(live)} == {1: (), 2: blockers}, to_s


def test_who_waits_now_and_who_has_waited(live: LiveCapture) -> None:
    live.look_at(at(10), at(40))
    assert model.waiting_now(live) == {7002, 7003, 7004}
    live.look_at(at(30), at(60))
    assert model.waiting_now(live) == frozenset() and lock_tree.lock_trees(live)
    over = model.frame(live, RECORDING, parts=frozenset({"locks"}))
    assert all(row.dim for row in grids.locks(over).rows)


def test_a_session_in_full(live: LiveCapture) -> None:
    live.look_at(at(10), at(40))
    session = next(s.session_id for s in model.sessions(live) if s.pid == 7002)
    found = model.session_detail(live, session)
    assert found.statement.startswith("update accounts set balance")
    assert [(w.event, pytest.approx(w.seconds)) for w in found.waits] == [("transactionid", 28)]
    assert [(s.what, pytest.approx(s.lasted_s), pytest.approx(s.ago_s)) for s in found.last] == [("Lock:transactionid", 28, 28)]
    assert found.blocks == (7003, 7004)
    writer = next(s.session_id for s in model.sessions(live) if s.application_name == "ingest" and s.pid != 7002)
    used = model.session_detail(live, writer)
    assert used.used["wal_bytes"] == pytest.approx(3_000_000) and used.used["cpu_run_ns"] == pytest.approx(200_000_000)
    assert used.used["majflt"] is None and used.used_s == pytest.approx(30)
    assert {s.what for s in used.last} == {"CPU", "LWLock:BufferContent", "IO:WALSync"} and len(used.last) == 12
    assert model.session_detail(live, 4242).session is None


def test_the_json_of_a_frame_can_be_written(frame: Frame) -> None:
    from leadline.output import to_json

    numbers = json.loads(to_json(frame.as_dict()))
    assert numbers["load"]["aas"] == pytest.approx(frame.load.aas)
    assert numbers["trees"][0]["pid"] == 7001 and numbers["trees"][0]["waiters"][0]["waiters"]
    assert numbers["waiting_now"] == [7002, 7003, 7004]
    assert numbers["recording"]["error"] is None and numbers["blocks"][0]["object"] == "public.orders_pkey"
    error = LeadlineError("gone", "the server went away")
    failed = dataclasses.replace(frame, recording=dataclasses.replace(RECORDING, error=error))
    assert failed.as_dict()["recording"]["error"]["kind"] == "gone"

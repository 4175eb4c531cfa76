"""A trace for Perfetto: slices that lie in each other, in time, with the samples of the table; and no file that is too large."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from example_capture import example
from export_read import Perfetto, PerfettoTrack, Slice, read_perfetto
from findings_synthetic import TS_FROM, WALL_FROM_NS, SyntheticCapture
from host_synthetic import HostCapture
from leadline.capture.manifest import read_manifest, write_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError
from leadline.export.perfetto import BOOTTIME, MONOTONIC, REALTIME, Written, check_size, perfetto
from leadline.export.window import span_of
from trace_synthetic import BEGIN, OTHER, PID, READS, SEMGETS, trace_of_semget, write_trace

PERIOD = 10_000_000
KEPT = Path(__file__).resolve().parents[2] / "testdata/capture/format1"


def read(capture: Capture, pid: int | None = None, since: float | None = None, until: float | None = None) -> tuple[Perfetto, Written]:
    written = Written()
    return read_perfetto(b"".join(perfetto(capture, pid, span_of(capture, since, until), written))), written


def read_from(path: Path, pid: int | None = None) -> Perfetto:
    with closing(open_capture(path)) as capture:
        return read(capture, pid)[0]


def slices(track: PerfettoTrack, depth: int) -> list[tuple[float, float, str]]:
    """Begin and end in seconds of the window, and the name."""
    found = [(s.ts, s.end, s.name) for s in track.slices if s.end is not None and s.depth == depth]
    return [((ts - TS_FROM) / 1e9, (end - TS_FROM) / 1e9, name) for ts, end, name in found]


def check_nesting(track: PerfettoTrack) -> None:
    around: list[Slice] = []
    for one in track.slices:
        end = one.ts if one.end is None else one.end
        around = around[: one.depth]
        assert len(around) == one.depth and end >= one.ts
        assert all(other.ts <= one.ts and end <= (other.end or 0) for other in around)
        if one.end is not None:
            around.append(one)


def test_states_and_waits_are_slices_within_each_other(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=10)
    session = cap.add_session(pid=77, application_name="web")
    cap.add("statement", statement_id=5, id_source="server", query="update\n t")
    cap.sample(session, "idle", "Client:ClientRead", 0, 2)
    cap.sample(session, "active", None, 2, 3, statement_id=5)
    cap.sample(session, "active", "IO:WALSync", 3, 5, statement_id=5)
    cap.sample(session, "idle in transaction", "Client:ClientRead", 6, 10, statement_id=5)
    track = read_from(cap.write()).named("pid 77")
    assert (track.name, track.parent) == ("pid 77 client backend web", "Sessions")
    assert slices(track, 0) == [(0, 2, "idle"), (2, 5, "update t"), (6, 10, "idle in transaction")]
    assert slices(track, 1) == [(0, 2, "Client:ClientRead"), (2, 3, "CPU"), (3, 5, "IO:WALSync"), (6, 10, "Client:ClientRead")]
    assert [s.args for s in track.slices if s.depth == 0][1] == {"state": "active", "samples": 300, "statement_id": "5"}
    assert [(s.category, s.args) for s in track.slices if s.name == "IO:WALSync"] == [("IO", {"samples": 200})]


def test_samples_are_those_of_sql(tmp_path: Path) -> None:
    with closing(open_capture(example(tmp_path).write())) as capture:
        trace, written = read(capture)
        counted = {r["pid"]: r["n"] for r in capture.rows("select pid, count(*) as n from session_sample group by 1")}
        by_wait = capture.rows(
            """select coalesce(wait_class || ':' || wait_event, 'CPU') as name, count(*) as n from session_sample
            where wait_event is not null or state = 'active' group by 1"""
        )
        active = capture.scalar("select count(*) from session_sample where in_db_time")
        passes = [row["ts"] for row in capture.rows("select ts from tick order by ts")]
        waited = capture.scalar("select sum(period_ns)::bigint from lock_wait")
        part, _ = read(capture, None, 10, 20)
        in_part = capture.scalar(f"select count(*) from session_sample where ts >= {TS_FROM + 10**10} and ts < {TS_FROM + 2 * 10**10}")
    sessions = [track for track in trace.tracks if track.parent == "Sessions"]
    found = {int(track.name.split()[1]): sum(s.args["samples"] for s in track.slices if s.depth == 0) for track in sessions}
    assert found == counted and len(found) == 20
    waits: dict[str, int] = defaultdict(int)
    for track in sessions:
        check_nesting(track)
        for one in track.slices:
            if one.end is not None and one.depth == 1:
                waits[one.name] += one.args["samples"]
    assert waits == {row["name"]: row["n"] for row in by_wait}
    # A value of the counter holds for each pass up to the next change.
    steps = trace.named("Active sessions").values
    assert sum(steps[bisect(steps, (ts, float("inf"))) - 1][1] for ts in passes) == active
    assert sum(s.args.get("waited_ns", 0) for track in sessions for s in track.slices) == waited
    assert written.cut == 0 and written.tracks == 22
    assert written.events == sum(len(track.slices) + len(track.values) for track in trace.tracks)
    assert sum(s.args["samples"] for t in part.tracks if t.parent == "Sessions" for s in t.slices if s.depth == 0 and s.end) == in_part


def test_samples_of_a_capture_of_a_real_server() -> None:
    """Its passes are at moments drawn anew."""
    with closing(open_capture(KEPT)) as capture:
        trace, _ = read(capture)
        counted = {r["pid"]: r["n"] for r in capture.rows("select pid, count(*) as n from session_sample group by 1")}
    sessions = [track for track in trace.tracks if track.parent == "Sessions"]
    found = {int(track.name.split()[1]): sum(s.args["samples"] for s in track.slices if s.depth == 0 and s.end) for track in sessions}
    assert found == counted and len(found) > 10
    for track in sessions:
        check_nesting(track)


def test_who_blocks_whom_is_an_arrow(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=10)
    boss, victim = cap.add_session(pid=1), cap.add_session(pid=2)
    cap.sample(boss, "idle in transaction", "Client:ClientRead", 0, 10)
    cap.lock_wait(victim, boss, 2, 4)
    cap.lock_wait(victim, boss, 7, 8)
    trace = read_from(cap.write())
    blocks = [s for s in trace.named("pid 1 ").slices if s.end is None]
    waits = [s for s in trace.named("pid 2 ").slices if s.end is None]
    assert [(s.ts - TS_FROM) // 10**9 for s in blocks] == [(s.ts - TS_FROM) // 10**9 for s in waits] == [2, 7]
    assert [s.flows for s in blocks] == [s.flows for s in waits] == [[1], [2]]
    assert blocks[0].name == "blocks pid 2: rows (waits for transactions)" and blocks[0].depth == 2
    assert [s.args["waited_ns"] for s in waits] == [2_000_000_000, 1_000_000_000]
    assert "BLOCK-CHAIN" in " ".join(s.name for s in trace.named("Findings").slices)


def test_missed_passes_are_a_gap(tmp_path: Path) -> None:
    """What a session did while no pass was made is not known, also within one run of the table."""
    cap = SyntheticCapture(tmp_path, seconds=4)
    cap.sample(cap.add_session(pid=9), "active", None, 0, 4)
    path = cap.write()
    with closing(open_capture(path)) as capture:
        capture.rows("select 1 from tick")
        capture.prepare("tick session_run")
        for table, replaced in {
            "tick": f"""case when tick = 200 then 50 else 0 end as missed,
                case when tick >= 200 then ts + {50 * PERIOD} else ts end as ts) from first_tick""",
            "session_run": "400 as ticks) from first_session_run where tick = 0",
        }.items():
            capture.db.execute(f"alter view {table} rename to first_{table}; create view {table} as select * replace ({replaced}")
        [track] = [track for track in read(capture)[0].tracks if track.parent == "Sessions"]
    assert slices(track, 0) == [(0, 2, "active"), (2.5, 4.5, "active")]  # of one row, which stands for 400 passes
    assert [s.args["samples"] for s in track.slices if s.depth == 0] == [200, 200]


def test_the_clock_is_that_of_the_capture(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=1)
    cap.sample(cap.add_session(), "active", None, 0, 1)
    assert read_from(cap.write()).clocks == {MONOTONIC: TS_FROM, REALTIME: WALL_FROM_NS, BOOTTIME: TS_FROM}
    (tmp_path / "with").mkdir()
    with_clock = SyntheticCapture(tmp_path / "with", seconds=1)
    with_clock.sample(with_clock.add_session(), "active", None, 0, 1)
    with_clock.add("clock", ts=TS_FROM + 5, realtime_ns=WALL_FROM_NS + 7, boottime_ns=TS_FROM + 999)
    trace = read_from(with_clock.write())
    assert trace.clocks == {MONOTONIC: TS_FROM + 5, REALTIME: WALL_FROM_NS + 7, BOOTTIME: TS_FROM + 999} and trace.primary == MONOTONIC


def test_calls_and_sleeps_are_slices_of_their_thread(tmp_path: Path) -> None:
    path = trace_of_semget(tmp_path / "t.leadline")
    trace = read_from(path)
    [thread] = [track for track in trace.tracks if track.tid]
    check_nesting(thread)
    assert (thread.name, thread.pid, thread.tid) == ("dw.work", PID, PID)
    calls = [s for s in thread.slices if s.category == "call"]
    stays = [s for s in thread.slices if s.category == "off_cpu"]
    assert {name: sum(s.name == name for s in calls) for name in ("semget", "read")} == {"semget": SEMGETS, "read": READS}
    assert {s.depth for s in calls} == {0} and {s.depth for s in stays} == {1}
    assert sum((s.end or 0) - s.ts for s in calls) == 970_000 * SEMGETS + 10_005_000 * READS
    assert sum(s.args["sleep_ns"] for s in stays) == sum(s.args["sleep_ns"] for s in calls) == 900_000 * SEMGETS + 10_000_000 * READS
    assert calls[0].args == {"ret": -2, "sleep_ns": 900_000, "runq_ns": 60_000, "error": "ENOENT"}
    assert stays[0].name == "asleep in rwsem_down_write_slowpath" and stays[0].args["woken_by"] == OTHER
    assert read_from(path, PID).named("dw.work").slices == thread.slices
    with pytest.raises(LeadlineError, match="nothing in this capture has a place on a time line"):
        read_from(path, OTHER)


def test_a_slice_that_outlasts_the_one_around_it_is_cut(tmp_path: Path) -> None:
    """Perfetto lays slices of a track out by their nesting, and shows wrong times for what overlaps: google/perfetto#432."""
    call = (BEGIN + 1000, 1000, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    stay = (BEGIN + 1500, 1000, 900, 1, 1, 0, 0, 0, 0, 0)
    rows: dict[str, list[tuple[object, ...]]] = {
        "thread": [(1, BEGIN, PID, PID, 1, 0, "dw")], "syscall": [call], "off_cpu": [stay], "syscall_name": [(0, "read")],
        "kernel_stack": [],
    }  # fmt: skip
    with closing(open_capture(write_trace(tmp_path / "t.leadline", rows, BEGIN + 2000))) as capture:
        trace, written = read(capture)
    [thread] = [track for track in trace.tracks if track.tid]
    check_nesting(thread)
    assert [(s.ts - BEGIN, (s.end or 0) - BEGIN) for s in thread.slices] == [(0, 1000), (500, 1000)] and written.cut == 1


def test_a_host_alone_has_its_cpus(tmp_path: Path) -> None:
    cap = HostCapture(tmp_path)
    for kind, per_s in (("user", 1_500_000_000), ("softirq", 20_000_000), ("idle", 2_400_000_000)):
        cap.counter(f"stat.cpu_{kind}_ns", 10**12, per_s)
    path = cap.write()
    with closing(open_capture(path)) as capture:
        trace, _ = read(capture)
        expected = capture.scalar(
            "select sum(grown)::bigint from host_rate where metric similar to 'stat.cpu_(user|nice|system|irq|softirq)_ns'"
        )
    values = trace.named("Host: busy CPUs").values
    assert values[0][0] == TS_FROM and round(sum(value for _, value in values) * 1e9) == expected == 30_400_000_000


def test_an_interrupted_capture_has_what_was_recorded(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=3)
    cap.sample(cap.add_session(pid=5), "active", None, 0, 3)
    path = cap.write()
    manifest = read_manifest(path)
    manifest.status, manifest.clock.ts_to = "recording", None
    write_manifest(path, manifest)
    assert slices(read_from(path).named("pid 5"), 0) == [(0, 3, "active")]


@pytest.mark.parametrize("made", [lambda folder: example(folder).write(), lambda folder: trace_of_semget(folder / "t.leadline")])
def test_a_trace_that_would_be_too_large_is_refused(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    with closing(open_capture(made(tmp_path))) as capture:
        _, written = read(capture)
        whole, part = span_of(capture, None, None), span_of(capture, 0, 1)
        check_size(capture, None, whole, 2 * written.events)
        check_size(capture, None, part, written.events // 2)
        with pytest.raises(LeadlineError) as told:
            check_size(capture, None, whole, written.events // 2)
    assert told.value.kind == "usage" and "more than" in told.value.message and "--since" in told.value.hint

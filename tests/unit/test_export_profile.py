"""Profiles for pprof and speedscope: the sums of SQL over the same samples, and whatever text there is."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from example_capture import NASTY, example
from export_read import Pprof, fields_of, read_pprof
from findings_synthetic import WALL_FROM_NS, SyntheticCapture
from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError
from leadline.export.pprof import pprof
from leadline.export.profile import DATABASE, DEFAULT, FRAMES, LONGEST, Profile, Stack, profile
from leadline.export.protobuf import fixed, number, present, text
from leadline.export.speedscope import SCHEMA, speedscope
from leadline.export.window import span_of
from leadline.views.flame import KINDS
from trace_synthetic import trace_of_semget


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    with closing(open_capture(example(tmp_path_factory.mktemp("example")).write())) as opened:
        yield opened


def database_time(capture: Capture, by: tuple[str, ...] = DEFAULT, pid: int | None = None, *window: float | None) -> Profile:
    return profile(capture, DATABASE, by, pid, span_of(capture, *(window or (None, None))))


def as_pprof(profile: Profile) -> Pprof:
    return read_pprof(b"".join(pprof(profile)))


def as_speedscope(profile: Profile) -> dict[str, Any]:
    read = json.loads(b"".join(speedscope(profile)))
    assert isinstance(read, dict)
    return read


def stacks_of(read: dict[str, Any]) -> dict[tuple[str, ...], int]:
    names = [frame["name"] for frame in read["shared"]["frames"]]
    [only] = read["profiles"]
    return {tuple(names[n] for n in path): weight for path, weight in zip(only["samples"], only["weights"])}


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**53 + 1, 2**63 - 1, 2**64 - 1, -1])
def test_numbers_of_the_wire_format(value: int) -> None:
    assert fields_of(present(16, value)) == {16: [value % 2**64]}
    assert fields_of(number(3, value)) == ({3: [value % 2**64]} if value else {})
    assert fields_of(fixed(47, value % 2**64)) == {47: [value % 2**64]}


def test_text_that_is_no_utf8_is_still_text() -> None:
    assert fields_of(text(2, "a\udcffb")) == {2: [b"a?b"]}


@pytest.mark.parametrize("by", [DEFAULT, *((name,) for name in FRAMES)])
def test_sums_are_those_of_sql(capture: Capture, by: tuple[str, ...]) -> None:
    [row] = capture.rows("select sum(weight_s) as s, count(*) filter (not from_counter) as n from db_time")
    found = database_time(capture, by)
    assert found.sum == round(row["s"] * 1e9) and found.samples == row["n"] > 0
    read = as_pprof(found)
    assert [sum(values[i] for _, values in read.stacks) for i in (0, 1)] == [row["n"], found.sum]
    [only] = as_speedscope(found)["profiles"]
    assert sum(only["weights"]) == only["endValue"] == found.sum


def test_each_stack_has_the_time_of_its_rows(capture: Capture) -> None:
    counted = "count(*) filter (not from_counter)"
    rows = capture.rows(f"select wait_class, wait_event, sum(weight_s) as s, {counted} as n from db_time group by all")
    expected = {tuple(filter(None, (r["wait_class"], r["wait_event"]))): [r["n"], round(r["s"] * 1e9)] for r in rows}
    found = dict(as_pprof(database_time(capture, ("wait_class", "wait_event"))).stacks)
    assert found.keys() == expected.keys() and ("LWLock", "BufferContent") in found and ("CPU",) in found
    for path, (samples, weight) in found.items():
        assert samples == expected[path][0] and abs(weight - expected[path][1]) <= 1


def test_23_samples_are_23(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=1)
    cap.sample(cap.add_session(), "active", "IO:WALSync", 0.1, 0.33)
    with closing(open_capture(cap.write())) as capture:
        read = as_pprof(database_time(capture))
    assert read.types == [("samples", "count"), ("database_time", "nanoseconds")] and read.default == "database_time"
    [(path, values)] = read.stacks
    assert values == [23, 230_000_000]
    assert path == ("(no database)", "app", "(unknown statement)", "IO", "WALSync")
    assert (read.time_ns, read.duration_ns, read.period) == (WALL_FROM_NS, 1_000_000_000, 10_000_000)


def test_time_from_counters_has_no_samples(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=4)
    session = cap.add_session()
    cap.sample(session, "active", None, 0, 2)
    cap.sample(session, "idle", "Client:ClientRead", 2, 4)
    cap.delta(session, 0, 4, cpu_run_ns=400_000_000, cpu_queue_ns=500_000_000)
    with closing(open_capture(cap.write())) as capture:
        found = database_time(capture, ("wait_class",))
        [row] = capture.rows("select sum(weight_s) as s, count(*) filter (from_counter) as hidden from db_time")
    assert row["hidden"] > 0 and found.samples == 200 and found.sum == round(row["s"] * 1e9)


def test_speedscope_is_as_its_schema_has_it(capture: Capture) -> None:
    read = as_speedscope(database_time(capture))
    assert read["$schema"] == SCHEMA and read["activeProfileIndex"] == 0 and set(read) <= {
        "$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter",
    }  # fmt: skip
    [only] = read["profiles"]
    assert set(only) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
    assert (only["type"], only["unit"], only["startValue"]) == ("sampled", "nanoseconds", 0)
    assert len(only["samples"]) == len(only["weights"]) and min(only["weights"]) > 0
    frames = read["shared"]["frames"]
    assert all(0 <= n < len(frames) for path in only["samples"] for n in path) and all(set(f) == {"name"} for f in frames)
    assert len({frame["name"] for frame in frames}) == len(frames)
    assert stacks_of(read) == {path: values[1] for path, values in as_pprof(database_time(capture)).stacks}


def test_speedscope_gets_no_stack_without_weight() -> None:
    """It refuses a file with one: jlfwong/speedscope#370."""
    read = as_speedscope(Profile("t", "database_time", "nanoseconds", [Stack(("a",), 5, 1), Stack(("b",), 0, 0)], 0, 0, 0))
    assert stacks_of(read) == {("a",): 5} and [frame["name"] for frame in read["shared"]["frames"]] == ["a"]


def test_one_process_and_a_part_of_the_window(capture: Capture) -> None:
    sum_of = "select round(sum(weight_s) * 1e9)::bigint from db_time where "
    assert database_time(capture, DEFAULT, 7002).sum == capture.scalar(sum_of + "pid = 7002") == 28_000_000_000
    part = database_time(capture, DEFAULT, 7002, 20, 30.5)
    assert (part.sum, part.samples, part.duration_ns) == (10_500_000_000, 1_050, 10_500_000_000)
    assert part.began_ns == WALL_FROM_NS + 20_000_000_000
    halves = [database_time(capture, DEFAULT, None, *window).sum for window in ((None, 30.0), (30.0, None))]
    assert sum(halves) == database_time(capture).sum


@pytest.mark.parametrize("window", [(5.0, 5.0), (10.0, 2.0), (61.0, None), (None, 0.0), (None, -1.0)])
def test_a_window_of_zero_length_is_refused(capture: Capture, window: tuple[float | None, float | None]) -> None:
    with pytest.raises(LeadlineError) as told:
        span_of(capture, *window)
    assert told.value.kind == "usage" and told.value.detail == "the capture has 60.0 s"


def test_any_text_of_a_statement(tmp_path: Path) -> None:
    """Line breaks, NUL, other scripts, a megabyte, two that are alike up to where they are cut, none at all."""
    cap = SyntheticCapture(tmp_path, seconds=7)
    long = "select " + "a, " * 300_000
    texts = ["select\n\t1", "select 'a\0b\x1b[31m'", "sélect 'ключ 注文 🐘'", long + "x", long + "y", ""]
    for n, query in enumerate(texts, 1):
        cap.add("statement", statement_id=n, id_source="server", query=query)
        cap.sample(cap.add_session(), "active", None, n - 1, n, statement_id=n)
    cap.sample(cap.add_session(), "active", None, 6, 7, statement_id=-(2**63) + 1)
    with closing(open_capture(cap.write())) as capture:
        found = database_time(capture, ("statement",))
    names = {path[0] for path, _ in as_pprof(found).stacks}
    assert names == {path[0] for path in stacks_of(as_speedscope(found))} and len(names) == 7
    cut = long[: LONGEST - 1].rstrip() + "…"
    assert {"select 1", "select 'a\ufffdb\ufffd[31m'", "sélect 'ключ 注文 🐘'", "(no text)", f"statement {-(2**63) + 1}"} <= names
    assert {f"{cut} [4]", f"{cut} [5]"} <= {name.replace(" …", "…") for name in names}
    assert all(name.isprintable() and len(name) < LONGEST + 30 for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_stacks_of_a_trace_are_those_of_flame(tmp_path: Path, kind: str) -> None:
    with closing(open_capture(trace_of_semget(tmp_path / "t.leadline"))) as capture:
        found = profile(capture, kind, DEFAULT, None, span_of(capture, None, None))
        of = KINDS[kind][0]
        [row] = capture.rows(f"select sum(weight)::bigint as weight, count(*) as n from stack_sample where kind = '{of}'")
        early = profile(capture, kind, DEFAULT, None, span_of(capture, None, 0.04))
        counted = capture.scalar(f"select count(*) from stack_sample, capture where kind = '{of}' and ts < ts_from + 40000000")
    read = as_pprof(found)
    assert [sum(values[i] for _, values in read.stacks) for i in (0, 1)] == [row["n"], row["weight"]]
    assert read.types[1][1] == ("count" if kind == "failed" else "nanoseconds")
    assert all(path[0] == "dw.work" for path, _ in read.stacks)
    assert stacks_of(as_speedscope(found)) == {path: values[1] for path, values in read.stacks}
    assert 0 < early.samples == counted < found.samples


def test_without_samples_there_is_no_profile(tmp_path: Path) -> None:
    """speedscope and pprof say nothing useful of an empty one: golang/go#64566, jlfwong/speedscope#200."""
    (tmp_path / "idle").mkdir()
    cap = SyntheticCapture(tmp_path / "idle", seconds=2)
    cap.sample(cap.add_session(), "idle", "Client:ClientRead", 0, 2)
    trace = trace_of_semget(tmp_path / "t.leadline")
    for path, said in ((cap.write(), "no database time in this capture"), (trace, "this capture has no sampled sessions")):
        with closing(open_capture(path)) as capture, pytest.raises(LeadlineError) as told:
            database_time(capture)
        assert (told.value.kind, told.value.message) == ("not_found", said) and told.value.hint


def test_pprof_shows_the_same(capture: Capture, tmp_path: Path) -> None:
    """Google's own, where Go is installed: it comes with it. Elsewhere the decoder of these tests has to do."""
    found = database_time(capture)
    (path := tmp_path / "a.pb.gz").write_bytes(b"".join(pprof(found)))
    names = {name for stack in found.stacks for name in stack.path}
    assert names <= set(read_pprof(path.read_bytes()).strings) and NASTY in names
    if shutil.which("go") is not None:
        command = ["go", "tool", "pprof", "-top", "-unit=ns", "-nodefraction=0", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"accounting for {found.sum}ns, 100% of {found.sum}ns total" in said
        assert all(name in said for name in names)  # nothing is cut at a parenthesis: google/pprof#573

"""The metrics of `leadline record` beside a real server: the same numbers as its pieces, at any moment and at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import exposition as prometheus
import pytest
from collecting import collecting, read_request
from conftest import Server, background, wait_until
from leadline.capture.reader import open_capture
from leadline.recorder.pieces import Pieces
from live import sessions, waiting

SUMS = """
select wait_class, coalesce(wait_event, 'CPU') as event, state, in_db_time, count(*) as samples
from session_sample where ts <= (select max(ts) from tick where tick < {passes}) group by all
"""
Waits = dict[tuple[str, ...], int]


@contextmanager
def recorder(to: Path, *arguments: object, **environ: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str], Path]]:
    """Process, what asks it for its metrics, and the file of what it says."""
    said = to.with_suffix(".said")
    command = [sys.executable, "-m", "leadline", "record", "--to", str(to), "--keep-free", "1MB", "--metrics", ":0", *map(str, arguments)]
    with said.open("wb") as errors, background(command, stderr=errors, env=os.environ | environ) as process:
        found = wait_until(lambda: re.search(r"metrics for Prometheus: (\S+)", said.read_text()), what="the address")

        def ask() -> str:
            with urllib.request.urlopen(found[1], timeout=60) as answer:
                text: str = answer.read().decode()
                return text

        yield process, ask, said


def of_pieces(to: Path, passes: int | None = None) -> tuple[Waits, Waits, int]:
    """Time of active sessions by wait, and of sessions by state, in the first passes of the pieces; and how many passes there are."""
    waits: Waits = {}
    states: Waits = {}
    left = 1 << 40 if passes is None else passes
    taken = 0
    for piece in Pieces(to).read():
        with closing(open_capture(piece.path)) as capture:
            [tick] = capture.rows(f"select count(*) as n, any_value(period_ns) as period_ns from tick where tick < {left}")
            for row in capture.rows(SUMS.format(passes=left)):
                ns = row["samples"] * tick["period_ns"]
                if row["in_db_time"]:
                    waits[row["wait_class"], row["event"]] = waits.get((row["wait_class"], row["event"]), 0) + ns
                if row["state"] is not None:
                    states[row["state"],] = states.get((row["state"],), 0) + ns
        left -= tick["n"]
        taken += tick["n"]
    return waits, states, taken


def passes(text: str) -> int:
    return int(prometheus.value(text, "leadline_passes_total"))


def waits(text: str) -> Waits:
    """Those that took time: the others that the server can have are there with none."""
    return {wait: ns for wait, ns in prometheus.counters(text, "leadline_db_time_seconds_total").items() if ns}


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


@pytest.mark.parametrize("tier", ["shm", "sql"])
def test_at_any_moment_they_are_sums_of_the_first_passes(tier: str, fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server, to, seen = fresh_server(16), tmp_path / "rec", []
    rate = "10" if tier == "sql" else "100"
    with sessions(server) as connect, recorder(to, server.dsn, "--piece", "4s", "--tier", tier, "--rate", rate) as (process, ask, _):
        with waiting(connect("sleeper"), "select pg_sleep(600)"):
            for _ in range(3):
                before = passes(seen[-1]) if seen else 0
                seen.append(wait_until(lambda before=before: text if passes(text := ask()) > before + 20 else None, 60, "passes"))
            assert len(set(map(passes, seen))) == 3
            wait_until(lambda: int(prometheus.value(ask(), "leadline_pieces_total")) >= 3, 60, "the third piece")
            seen.append(ask())
        end(process)
    for text in seen:
        expected_waits, expected_states, _ = of_pieces(to, passes(text))
        assert waits(text) == expected_waits
        assert prometheus.counters(text, "leadline_session_time_seconds_total") == expected_states
        assert ("Timeout", "PgSleep") in waits(text)
    assert prometheus.value(seen[-1], "leadline_pieces_unread_total") == "0"
    listed = prometheus.counters(seen[0], "leadline_db_time_seconds_total")
    assert (("LWLock", "WALWrite") in listed) == (tier == "shm"), "memory has all names, SQL those that have come"
    assert len(prometheus.parse(seen[-1])[1]) < 500
    assert prometheus.value(seen[-1], "leadline_recorder_doing", doing="recording") == "1"


def test_host_and_own_counters_lie_between_the_readings_of_the_pieces(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    to = tmp_path / "rec"
    with recorder(to, fresh_server(16).dsn, "--piece", "20s") as (process, ask, _):
        wait_until(lambda: passes(ask()) > 100, what="a second of passes")
        before = time.monotonic_ns()
        text = ask()
        after = time.monotonic_ns()
        wait_until(lambda: passes(ask()) > passes(text) + 200, what="two more seconds")
        cpu_s = float(prometheus.value(ask(), "process_cpu_seconds_total"))
        end(process)
    [piece] = Pieces(to).read()
    with closing(open_capture(piece.path)) as capture:
        for mode in ("user", "idle"):
            near = f"max(value) filter (ts < {before}) as low, min(value) filter (ts > {after}) as high"
            [row] = capture.rows(f"select {near} from host_stat where metric = 'stat.cpu_{mode}_ns'")
            found = prometheus.ns(prometheus.value(text, "leadline_host_cpu_seconds_total", mode=mode))
            assert row["low"] <= found <= row["high"], mode
        cpus = capture.manifest.target.cpu_count
        assert prometheus.value(text, "leadline_server_cpus") == str(cpus)
        [cost] = capture.rows("select max(cpu_user_ns + cpu_system_ns) / 1e9 as s from self_cost where component = 'process'")
        assert cost["s"] > 0 and cpu_s < 60


def test_a_restart_of_the_server_resets_nothing_and_one_of_the_recorder_does(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server, to = fresh_server(16), tmp_path / "rec"
    with recorder(to, server.dsn, "--piece", "60s") as (process, ask, _):
        before = wait_until(lambda: text if passes(text := ask()) > 100 else None, what="passes")
        server.private.stop()
        wait_until(lambda: prometheus.value(ask(), "leadline_recorder_doing", doing="recording") == "1", what="an answer without a server")
        server.private.start()
        after = wait_until(lambda: text if passes(text := ask()) > passes(before) + 100 else None, 60, "passes of the server that is back")
        end(process)
    start = "process_start_time_seconds"
    assert prometheus.value(after, start) == prometheus.value(before, start)
    assert all(waits(after)[wait] >= ns for wait, ns in waits(before).items())
    assert int(prometheus.value(after, "leadline_passes_missed_total")) > int(prometheus.value(before, "leadline_passes_missed_total"))
    with recorder(to, server.dsn, "--piece", "60s") as (_, ask, _):
        again = wait_until(lambda: text if passes(text := ask()) else None, what="passes")
        assert float(prometheus.value(again, start)) > float(prometheus.value(before, start))
        assert passes(again) < passes(after)


def test_a_collector_gets_all_at_the_end(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server, to = fresh_server(16), tmp_path / "rec"
    with collecting() as collector, sessions(server) as connect:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
        with (
            recorder(to, server.dsn, "--piece", "2s", "--otlp", **variables) as (process, _, _),
            waiting(connect("sleeper"), "select pg_sleep(600)"),
        ):
            wait_until(lambda: len(collector.bodies) >= 4, 60, "four pushes")
            end(process)
        sums = [read_request(body)[1] for body in collector.bodies]
    expected_waits, expected_states, taken = of_pieces(to)
    last = sums[-1]
    assert last["leadline.passes"].points == {(): taken}
    assert {key: round(s * 1e9) for key, s in last["leadline.db.time"].points.items() if s} == expected_waits
    assert {key: round(s * 1e9) for key, s in last["leadline.session.time"].points.items()} == expected_states
    assert last["leadline.otlp.pushes"].points["ok",] == len(sums) - 1
    for before, after in pairwise(sums):
        for name in before.keys() & after.keys():
            if before[name].monotonic:
                assert all(after[name].points[key] >= value for key, value in before[name].points.items()), name
                assert before[name].since == after[name].since


def test_a_collector_that_hangs_does_not_keep_the_recorder(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    to = tmp_path / "rec"
    with collecting() as collector:
        collector.dribbles = True
        variables = {"OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_EXPORTER_OTLP_TIMEOUT": "1000"}
        with recorder(to, fresh_server(16).dsn, "--piece", "2s", f"--otlp={collector.url}", **variables) as (process, ask, said):
            wait_until(lambda: int(prometheus.value(ask(), "leadline_otlp_pushes_total", outcome="failed")) >= 2, 60, "two failures")
            wait_until(lambda: sum(piece.status == "complete" for piece in Pieces(to).read()) >= 2, 60, "two pieces")
            end(process)
        assert said.read_text().count("metrics cannot be sent to") == 1
    assert {piece.status for piece in Pieces(to).read()} == {"complete"}

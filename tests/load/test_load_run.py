"""`leadline load run`: what it counts, what it keeps, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import output_of
from conftest import Server, background, wait_until
from leadline._core.net import Delay
from leadline.api import open_capture
from leadline.load.plan import Phase, Plan, scripts_of
from leadline.load.run import run as run_load
from leadline.load.text import text as as_text
from leadline.net.login import server_of
from load_runs import load, measured
from setpriv import needs_root, setpriv


@pytest.fixture(scope="module")
def server(servers: Callable[[int], Server]) -> Iterator[Server]:
    server = servers(17)
    server.pgbench_init()
    server.sql("create table if not exists counter(id int primary key, n int)")
    server.sql("insert into counter values (1, 0), (2, 0) on conflict do nothing")
    yield server
    server.sql("drop table counter")


def script(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "script.sql"
    file.write_text(text)
    return file


def test_what_is_said_is_what_happened(server: Server, tmp_path: Path) -> None:
    server.sql("truncate pgbench_history")
    output = tmp_path / "x"
    words = ("--workload", "tpcb", "--clients", 3, "-j", 2, "--rate", 100, "--poisson", "--for", "1500ms", "-o", output)
    outcome, found = load(server.dsn, "-M", "prepared", *words)
    phase = measured(found)
    assert outcome == 0
    assert phase["done"] == server.sql("select count(*) from pgbench_history")[0][0]
    assert phase["due"] == phase["begun"] == phase["done"] == phase["latency"]["count"] == phase["service"]["count"]
    assert phase["latency"]["max_ns"] >= phase["service"]["max_ns"] > 0
    (of,) = phase["scripts"]
    counts = {statement["times"]["count"] for statement in of["statements"]}
    assert len(of["statements"]) == 7 and counts == {phase["done"]}
    assert [statement["rows"] for statement in of["statements"]] == [0, 0, phase["done"], 0, 0, 0, 0]
    assert found["capture"] == f"{output}.leadline"
    with open_capture(found["capture"]) as capture:
        (sums,) = capture.sql("select sum(done) as done, sum(rows) as rows, sum(due) as due from load_second where not warm_up").rows()
        assert sums == {"done": phase["done"], "rows": phase["done"], "due": phase["due"]}
        kinds = capture.sql("select kind, sum(count) as n from load_bucket group by 1").rows()
        by_kind = {row["kind"]: row["n"] for row in kinds}
        assert by_kind["statement"] == 7 * phase["done"]
        assert by_kind["latency"] == by_kind["service"] == by_kind["lag"] == phase["done"]
        statements = capture.sql("select text, count from load_statement order by command").rows()
        assert statements[0] == {"text": "BEGIN;", "count": phase["done"]} and len(statements) == 7
    shown = json.loads(output_of("show", found["capture"], "--json"))
    (rate,) = shown["load"]
    assert (rate["rate_hz"], rate["done"], rate["failed"]) == (100, phase["done"], 0)
    for name in ("p50", "p99", "p99_9", "max"):
        assert rate[f"{name}_ms"] == pytest.approx(phase["latency"][f"{name}_ns"] / 1e6, rel=0.002)
    assert len(shown["load_statements"]) == 7 and "load_errors" not in shown
    assert "Latency of a transaction" in output_of("show", found["capture"])


def test_what_ends_after_the_end_belongs_to_the_last_phase(server: Server, tmp_path: Path) -> None:
    words = ("--script", script(tmp_path, "select pg_sleep(0.7);\n"), "--clients", 1, "--for", "1s", "-o", tmp_path / "x")
    _, found = load(server.dsn, *words)
    assert measured(found)["done"] == 2  # at 0.7 and 1.4 s
    with open_capture(found["capture"]) as capture:
        assert capture.sql("select phase, after_the_end, done from load_second order by ts").rows() == [
            {"phase": 0, "after_the_end": False, "done": 1},
            {"phase": 0, "after_the_end": True, "done": 1},
        ]
        assert capture.sql("select distinct phase from load_bucket").rows() == [{"phase": 0}]
    (shown,) = json.loads(output_of("show", found["capture"], "--json"))["load"]
    assert shown["done"] == 2 and shown["max_ms"] == pytest.approx(measured(found)["latency"]["max_ns"] / 1e6, rel=0.002)


def test_a_transaction_counts_where_it_was_due_also_across_the_end_of_the_warm_up(server: Server, tmp_path: Path) -> None:
    # Each takes longer than a phase lasts: none of the warm-up's ends in it.
    file = script(tmp_path, "select pg_sleep(0.82);")
    words = ("-f", file, "--clients", 8, "-j", 2, "--rate", 5, "--for", "800ms", "--warm-up", "800ms")
    _, found = load(server.dsn, *words, "-o", tmp_path / "x")
    assert [phase["warm_up"] for phase in found["phases"]] == [True, False]
    for phase in found["phases"]:
        of = phase["scripts"][0]["statements"][0]["times"]["count"]
        counts = (phase["begun"], phase["done"], phase["latency"]["count"], phase["service"]["count"], phase["lag"]["count"], of)
        assert (phase["due"], *counts) == (4,) * 7
        assert phase["latency"]["min_ns"] >= 8.2e8
    # What ended in the phase that counts was due in the warm-up.
    assert [phase["per_second"] for phase in found["phases"]] == [0, pytest.approx(4 / 0.8)]
    with open_capture(found["capture"]) as capture:
        query = "select phase, after_the_end, sum(done)::int as done, sum(ended)::int as ended from load_second group by all"
        rows = capture.sql(query).rows()
        assert sorted(tuple(row.values()) for row in rows) == [(0, False, 0, 0), (0, True, 4, 0), (1, False, 0, 4), (1, True, 4, 4)]


def test_a_closed_loop_counts_what_it_began_in_each_phase(server: Server) -> None:
    server.sql("truncate pgbench_history")
    words = ("--workload", "tpcb", "--clients", 3, "-j", 2, "--for", "500ms", "--warm-up", "500ms")
    _, found = load(server.dsn, "-M", "prepared", *words)
    done = [phase["done"] for phase in found["phases"]]
    assert done == [phase["begun"] for phase in found["phases"]] and min(done) > 0
    assert sum(done) == server.sql("select count(*) from pgbench_history")[0][0]


def test_a_server_that_stops_shows_in_the_open_loop_and_not_in_the_closed_one(server: Server) -> None:
    def stopped_for(seconds: float) -> threading.Thread:
        """Stops the sessions of the load, once they are there and have worked for a second."""

        def stop() -> None:
            query = "select pid from pg_stat_activity where application_name = 'leadline' and query like '%pgbench_accounts%'"
            pids = wait_until(lambda: [pid for (pid,) in server.sql(query)] if len(server.sql(query)) == 4 else None)
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=stop)
        thread.start()
        return thread

    p99 = {}
    for name, words in {"open": ("--rate", 200), "closed": ()}.items():
        thread = stopped_for(2)
        _, found = load(server.dsn, "--workload", "select", "--clients", 4, "--for", "6s", *words)
        thread.join()
        phase = measured(found)
        assert phase["service"]["max_ns"] > 1.9e9, name
        p99[name] = phase["latency"]["p99_ns"] / 1e9
        if name == "open":
            assert phase["done"] == phase["due"] == 1200 - found["not_begun"]
            late = 400 / 1200  # due while it stood still
            assert phase["latency"]["p50_ns"] < 1e9 and late > 0.3
    # Of 1,200, the 12 slowest were due in the first 60 ms of the two seconds.
    assert 1.8 < p99["open"] < 3
    assert p99["closed"] < 1


@needs_root
@pytest.mark.parametrize("may", [True, False], ids=["with CAP_SYS_NICE", "without"])
def test_an_open_loop_has_a_real_time_priority_where_it_may(server: Server, tmp_path: Path, may: bool) -> None:
    def policies(pid: int) -> set[int]:
        return {os.sched_getscheduler(int(thread.name)) for thread in Path(f"/proc/{pid}/task").iterdir()}

    def loading() -> int:
        return int(server.sql("select count(*) from pg_stat_activity where query like 'select 11%'")[0][0])

    words = ["load", "run", server.dsn, "-f", script(tmp_path, "select 11;"), "-j", "1", "--rate", "20", "--for", "2s", "--json"]
    right = setpriv(0, 0, ["dac_override", *["sys_nice"] * may])
    with background([*right, sys.executable, "-m", "leadline", *words], stdout=subprocess.PIPE, text=True) as child:
        wait_until(loading, what="a transaction of the load")
        expected = {os.SCHED_OTHER, os.SCHED_FIFO} if may else {os.SCHED_OTHER}
        assert policies(child.pid) == expected
        found = json.loads(child.communicate()[0])
    assert found["realtime_priority"] is may
    assert [words in as_text(found) for words in ("; real-time priority", "; no real-time priority")] == [may, not may]


def test_errors_are_counted_by_sqlstate(server: Server, tmp_path: Path) -> None:
    file = script(tmp_path, "\\set n random(0, 1)\nbegin;\nselect 1 / :n;\ncommit;")
    words = ("-f", file, "--clients", 2, "--rate", 100, "--for", "500ms", "--seed", 1)
    outcome, found = load(server.dsn, *words, "--continue-on-error")
    phase = measured(found)
    (error,) = phase["errors"]
    assert outcome == 0
    assert (error["sqlstate"], error["message"], error["count"]) == ("22012", "division by zero", phase["failed"])
    assert phase["failed"] + phase["done"] == phase["begun"] == 50 - found["not_begun"]
    assert 10 < phase["failed"] < 40
    # As with pgbench, without the option a client ends with its first error.
    outcome, found = load(server.dsn, *words)
    assert (outcome, found["clients_gone"], measured(found)["failed"]) == (1, 2, 2)


@pytest.mark.parametrize("mode", ["simple", "prepared"])
def test_serialization_failures_are_tried_again_and_counted_apart(server: Server, tmp_path: Path, mode: str) -> None:
    server.sql("update counter set n = 0")
    text = "begin isolation level repeatable read;\nselect n from counter where id = 1;\n\\sleep 2 ms\n"
    file = script(tmp_path, f"{text}update counter set n = n + 1 where id = 1;\ncommit;")
    words = ("-f", file, "--clients", 4, "--for", "1s", "-M", mode)
    outcome, found = load(server.dsn, *words, "--max-tries", 0)
    phase = measured(found)
    assert outcome == 0
    assert phase["retries"] > 10
    (error,) = phase["errors"]
    assert (error["sqlstate"], error["retried"]) == ("40001", phase["retries"])
    assert server.sql("select n from counter where id = 1") == [(phase["done"],)]
    # With one try, as pgbench has it, each is a failed transaction, and the client goes on.
    outcome, found = load(server.dsn, *words)
    phase = measured(found)
    assert (outcome, phase["retries"]) == (0, 0)
    assert phase["errors"][0]["count"] == phase["failed"] > 10


def test_deadlocks_are_tried_again(server: Server, tmp_path: Path) -> None:
    text = "\\set a 1 + :client_id % 2\nbegin;\nset local deadlock_timeout = '10ms';\n"
    text += "update counter set n = n + 1 where id = :a;\n\\sleep 5 ms\n"
    file = script(tmp_path, f"{text}update counter set n = n + 1 where id = 3 - :a;\ncommit;")
    _, found = load(server.dsn, "-f", file, "--clients", 2, "--for", "1s", "--max-tries", 0)
    phase = measured(found)
    assert {error["sqlstate"] for error in phase["errors"]} == {"40P01"}
    assert phase["retries"] >= 1 and phase["done"] > phase["retries"] / 10


def test_a_rate_beyond_the_server_is_told(server: Server, tmp_path: Path) -> None:
    file = script(tmp_path, "select pg_sleep(0.05);")
    _, found = load(server.dsn, "-f", file, "--clients", 2, "--rate", 100, "--for", "1s")
    phase = measured(found)
    # Two clients do 40 a second at most.
    assert 25 < phase["done"] <= 42
    assert found["not_begun"] + phase["due"] == 100
    assert any("not begun" in line for line in found["warnings"])
    assert phase["latency"]["max_ns"] > 3e8 and phase["service"]["p50_ns"] < 1e8
    _, found = load(server.dsn, "-f", file, "--clients", 2, "--rate", 100, "--for", "1s", "--latency-limit", "100ms")
    phase = measured(found)
    assert phase["skipped"] > 30 and found["not_begun"] + phase["due"] == 100
    assert phase["due"] == phase["begun"] + phase["skipped"]


def test_a_ramp_has_a_phase_for_each_rate(server: Server) -> None:
    _, found = load(server.dsn, "--workload", "select", "--clients", 2, "--ramp", "100:300:100", "--for", "500ms")
    assert [phase["rate"] for phase in found["phases"]] == [100, 200, 300]
    done = [phase["done"] for phase in found["phases"]]
    assert sum(done) + found["not_begun"] == 50 + 100 + 150  # a thread that gets no CPU at the very end begins nothing any more
    assert done[:2] == [50, 100]


def test_the_warm_up_ends_when_the_rate_is_steady(server: Server, tmp_path: Path) -> None:
    # The command takes means of 5 seconds; here of one, to be quick.
    file = script(tmp_path, "select pg_sleep(0.02);")
    phases = [Phase(25.0, 60, warm_up=True), Phase(25.0, 1.0)]
    plan = Plan(scripts_of([], [str(file)]), phases, clients=4, threads=2, mode="simple", auto_warm_up=1)
    found = run_load(server_of(server.dsn), plan, scale=1)
    warm_up, phase = found["phases"]
    # 14 means at least, and two seconds for the threads to end it at the same moment.
    assert found["steady"] is True and 15.9 < warm_up["seconds"] < 60 and phase["seconds"] == pytest.approx(1)
    assert warm_up["due"] == pytest.approx(25 * warm_up["seconds"], abs=2) and phase["due"] + found["not_begun"] == 25
    assert f"warm-up: {warm_up['seconds']:.0f} s discarded" in as_text(found)


def test_tcp_and_its_round_trip(server: Server) -> None:
    where = server_of(server.dsn)
    proxy = Delay("127.0.0.1", 0, where.host, where.port, rtt_s=0.01)
    try:
        host, port = proxy.address()
        dsn = f"host={host} port={port} user={where.user} dbname={where.database}"
        _, found = load(dsn, "--workload", "select", "--clients", 2, "--for", "500ms", "-M", "prepared")
    finally:
        proxy.stop()
    phase = measured(found)
    assert phase["done"] > 10 and phase["service"]["min_ns"] >= 10_000_000
    assert phase["rtt_us"] > 0 and phase["min_rtt_us"] > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\\nosuch", "invalid command \\nosuch"),
        ("\\setshell x date", "\\setshell is not run"),
        ("\\if 1\nselect 1;", "\\if without matching \\endif"),
        ("\\set x nosuch(1)", "unexpected function name (nosuch)"),
    ],
)
def test_scripts_that_are_wrong_are_named(server: Server, tmp_path: Path, text: str, said: str) -> None:
    outcome, found = load(server.dsn, "-f", script(tmp_path, text))
    assert outcome == 2
    assert found["error"]["message"].startswith(said) and "script.sql:1" in found["error"]["where"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\\set x 1 / 0", "division by zero"),
        ("\\set x :nosuch", 'undefined variable "nosuch"'),
        ("select 1 where false \\gset", "expected one row, got 0"),
        ("select 1, 2 \\gset", 'invalid variable name: "?column?"'),
        ("begin;", "the script ends without completing its transaction"),
        ("copy counter to stdout;", "COPY is not supported"),
        ("copy counter from stdin;", "COPY is not supported"),
        ("select pg_terminate_backend(pg_backend_pid());", "terminating connection due to administrator command"),
    ],
)
def test_what_a_script_runs_into_ends_the_client(server: Server, tmp_path: Path, text: str, said: str) -> None:
    outcome, found = load(server.dsn, "-f", script(tmp_path, text), "--for", "10s")
    (error,) = measured(found)["errors"]
    assert (outcome, found["clients_gone"]) == (1, 1)
    assert said in error["message"]


def test_words_that_make_no_load_are_refused(server: Server) -> None:
    for words, said in (
        (("--ramp", "5:1:1"), "'5:1:1' is not a ramp"),
        (("--workload", "nosuch"), "there is no workload 'nosuch'"),
        (("-f", "/nosuch.sql"), "the script cannot be read"),
        (("-f", "x@y"), "'y' is not a weight"),
        (("-D", "x"), "'x' sets no variable"),
        (("-D", "1x=2"), '"1x" is not the name of a variable'),
        (("--for", "0s"), "--for is longer than nothing"),
        (("--seed", "x"), "'x' is not a seed"),
    ):
        outcome, found = load(server.dsn, *words)
        assert outcome == 2, words
        assert said in found["error"]["message"], words


def test_tables_of_init_are_those_of_pgbench(fresh_server: Callable[..., Server]) -> None:
    from leadline.cli import run

    server = fresh_server(15)
    columns = "select table_name, column_name, data_type, character_maximum_length, is_nullable from information_schema.columns"
    columns += " where table_name like 'pgbench%' order by 1, ordinal_position"
    keys = "select conrelid::regclass::text, pg_get_constraintdef(oid) from pg_constraint"
    keys += " where contype = 'p' and conrelid::regclass::text like 'pgbench%' order by 1"
    sums = "select count(*), sum(aid), sum(bid), max(length(filler)) from pgbench_accounts"
    found: list[Any] = []
    for make in (lambda: server.pgbench_init(2), lambda: run(["load", "init", server.dsn, "--scale", "2", "--force"])):
        make()
        tellers = server.sql("select tid, bid, tbalance from pgbench_tellers order by 1")
        branches = server.sql("select bid from pgbench_branches order by 1")
        found.append((server.sql(columns), server.sql(keys), server.sql(sums), tellers, branches))
    assert found[0] == found[1]
    assert run(["load", "init", server.dsn]) == 2  # they are there
    assert load(server.dsn, "--workload", "select", "--for", "100ms")[1]["scale"] == 2

"""`leadline record` beside a real server: pieces without a hole, kills, a server that comes later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, background, wait_until
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.recorder import coarser
from leadline.recorder.pieces import Pieces, gaps
from leadline.recorder.status import status
from leadline.recorder.unusual import FINDINGS, SESSIONS, Unusual, write_baseline
from leadline.recorder.usual import DAYS, Hour, Usual
from level_sums import sums
from live import clients, sessions, waiting

LONGEST_SWITCH_S = 5.0  # on a busy machine; an idle one needs 0.5 s


def command(to: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "leadline", "record", "--to", str(to), "--keep-free", "1MB", *map(str, arguments)]


@contextmanager
def recorder(to: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    with background(command(to, *arguments)) as process:
        yield process


def finished(to: Path) -> int:
    return sum(piece.status == "complete" for piece in Pieces(to).read()) if to.is_dir() else 0


def end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(30)


def rows(capture: Path, sql: str) -> list[dict[str, Any]]:
    with closing(open_capture(capture)) as opened:
        return opened.rows(sql)


@pytest.fixture
def server(fresh_server: Callable[..., Server]) -> Server:
    return fresh_server(16)


def test_pieces_follow_each_other_and_sigterm_ends_the_last(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "rec"
    with recorder(to, server.dsn, "--piece", "2s") as process:
        wait_until(lambda: finished(to) >= 3, what="three pieces")
        found = status(to)
        assert found["runs"] and found["doing"] == "recording" and found["process"]["pid"] == process.pid
        assert end(process) == 0
    pieces = Pieces(to).read()
    assert len(pieces) >= 3 and {piece.status for piece in pieces} == {"complete"}
    assert [piece.number for piece in pieces] == list(range(1, len(pieces) + 1))
    between = gaps(pieces)
    assert len(between) == len(pieces) - 1 and all(gap.switch and gap.seconds < LONGEST_SWITCH_S for gap in between), between
    passes = "select min(ts) as first, max(ts) as last, sum(missed + 1) as due, any_value(period_ns) as period from tick"
    ticks = [rows(piece.path, passes)[0] for piece in pieces]
    for piece, tick in zip(pieces, ticks):  # what a piece has is whole: each pass that was due is there, or counted as missed
        assert piece.ts_from is not None
        assert piece.ts_to is not None
        assert piece.ts_from <= tick["first"] < tick["last"] <= piece.ts_to
        assert abs(tick["due"] - 1 - (tick["last"] - tick["first"]) / tick["period"]) < 5
    for before, after_it in pairwise(ticks):
        assert after_it["first"] - before["last"] < LONGEST_SWITCH_S * 1e9
    after = status(to)
    assert not after["runs"] and after["doing"] == "ended" and after["switches"]["count"] == len(between) and after["gaps"] == []
    print("gaps between pieces:", [round(gap.seconds, 3) for gap in between])


def test_a_window_has_the_rows_of_its_pieces(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "rec"
    with sessions(server) as connect, recorder(to, server.dsn, "--piece", "3s") as process:
        with waiting(connect("sleeper"), "select pg_sleep(60)"):
            wait_until(lambda: finished(to) >= 3, timeout_s=60, what="three pieces")
        assert end(process) == 0
    pieces = Pieces(to).read()
    for chosen, name in ((pieces[1:2], "one"), (pieces[:3], "three")):
        first, last = chosen[0], chosen[-1]
        edges = [(first.wall_from + 700_000_000) // 1000 * 1000, (last.wall_from + 1_900_000_000) // 1000 * 1000]
        between = [datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at // 1000) for at in edges]
        words = ["take", "--from-recorder", str(to), "--between", *(at.isoformat() for at in between), "-o", str(tmp_path / name), "--json"]
        assert run(words) == 0
        made = json.loads(capsys.readouterr().out)
        low, high = made["clock"]["ts_from"], made["clock"]["ts_to"]
        expected: dict[tuple[Any, ...], float] = {}
        for piece in chosen:
            sums = f"select pid, state, wait_event, sum(weight_s) as s from session_sample where ts >= {low} and ts < {high} group by all"
            for row in rows(piece.path, sums):
                key = row["pid"], row["state"], row["wait_event"]
                expected[key] = expected.get(key, 0) + row["s"]
        cut = tmp_path / f"{name}.leadline"
        found = rows(cut, "select pid, state, wait_event, sum(weight_s) as s from session_sample group by all")
        assert {(row["pid"], row["state"], row["wait_event"]): round(row["s"], 6) for row in found} == {
            key: round(value, 6) for key, value in expected.items()
        }
        assert ("active", "PgSleep") in {(row["state"], row["wait_event"]) for row in found}
        twice = "select pid from session_sample group by pid, backend_start having count(distinct session_id) > 1"
        assert rows(cut, twice) == [] and rows(cut, "select 1 from session_sample where pid is null") == []
        between_them = rows(cut, "from server_gap where cause = 'recorder' order by ts_from")
        assert [(gap["ts_from"], gap["ts_to"]) for gap in between_them] == [(a.ts_to, b.ts_from) for a, b in pairwise(chosen)]
        tick = rows(cut, "select sum(missed + 1) as due, any_value(period_ns) as period from tick")[0]
        assert abs(tick["due"] - (high - low) / tick["period"]) < 5 * len(chosen), "each pass that was due is there, or counted as missed"
        assert run(["show", str(cut)]) == 0 and run(["findings", str(cut)]) in (0, 1)
        capsys.readouterr()


def test_a_killed_recorder_leaves_pieces_that_open_and_the_next_one_goes_on(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "rec"
    for after_s in (0.4, 0.9, 1.3, 2.2, 3.1):
        with recorder(to, server.dsn, "--piece", "2s") as process:
            time.sleep(after_s)  # the moment of the kill, whatever it meets
            process.kill()
            process.wait(30)
        if (to / "recorder.json").exists():
            assert not status(to)["runs"]
    with recorder(to, server.dsn, "--piece", "2s") as process:
        known = finished(to)
        wait_until(lambda: finished(to) > known, what="a piece after the kills")
        assert end(process) == 0
    pieces = Pieces(to).read()
    assert "interrupted" in {piece.status for piece in pieces}
    for piece in pieces:
        assert piece.status in ("complete", "interrupted")
        assert run(["show", str(piece.path), "--json"]) == 0
    assert any(gap["why"] == "the recorder was killed" and gap["seconds"] > 0 for gap in status(to)["gaps"])
    assert [piece.number for piece in pieces] == sorted({piece.number for piece in pieces})


def test_a_server_that_comes_later_is_waited_for(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "rec"
    server.private.stop()
    with recorder(to, server.dsn, "--piece", "2s") as process:
        wait_until(lambda: (to / "recorder.json").exists() and status(to)["doing"] == "waiting", what="the wait")
        assert status(to)["last_error"]["message"] and Pieces(to).read() == []
        cpu = _cpu_s(process.pid)
        time.sleep(1.5)
        assert _cpu_s(process.pid) - cpu < 0.5, "it waits without a busy loop"
        server.private.start()
        wait_until(lambda: finished(to) >= 1, timeout_s=60, what="a piece")
        assert status(to)["doing"] == "recording"
        assert end(process) == 0


def test_a_restart_of_the_server_ends_nothing(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "rec"
    with recorder(to, "--pid", server.pid, "--piece", "3s") as process:
        wait_until(lambda: finished(to) >= 1, what="a piece")
        server.private.stop()
        server.private.start()
        known = finished(to)
        wait_until(lambda: finished(to) >= known + 2, timeout_s=60, what="pieces after the restart")
        assert end(process) == 0
    assert {piece.status for piece in Pieces(to).read()} <= {"complete", "failed"}


def test_a_second_recorder_is_refused(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "rec"
    with recorder(to, server.dsn, "--piece", "30s") as process:
        wait_until(lambda: (to / "recorder.json").exists() and status(to)["doing"] == "recording", what="the first recorder")
        second = subprocess.run(command(to, server.dsn), capture_output=True, text=True, timeout=30)
        assert second.returncode == 2
        assert "another recorder writes into this directory" in second.stderr and f"pid {process.pid}" in second.stderr
        assert end(process) == 0


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def change_often(db: psycopg.Connection[Any], _stop: threading.Event) -> None:
    """Runs, waits for a row and is idle, within a tenth of a second."""
    db.execute("update row_of_all set n = n + 1 where id = 1")
    db.execute("select count(*) from generate_series(1, 30000)")


def test_each_level_of_real_evidence_has_the_sums_of_the_finer_one(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "rec"
    with server.connect(autocommit=True) as db:
        db.execute("create table row_of_all as select 1 as id, 0 as n")
    workers = [(f"worker {n}", change_often) for n in range(3)]
    with clients(server, *workers), recorder(to, server.dsn, "--piece", "3s") as process:
        wait_until(lambda: finished(to) >= 3, timeout_s=60, what="three pieces")
        assert end(process) == 0
    fine = Pieces(to).read()
    expected = sums([piece.path for piece in fine])
    assert sum(value[0] for key, value in expected["samples"].items() if key[-1]) > 3e9, "the sessions were active"
    assert any(value[2] for value in expected["time"].values()), "some waited for a CPU"
    for span_s in (1, 60):
        names = [piece.name for piece in Pieces(to).read()]
        made = coarser.make(to, span_s, names)
        assert made["apart"] == "" and len(made["pieces"]) == 1
        (coarse,) = Pieces(to).read()
        assert coarse.span_s == span_s and sums([coarse.path]) == expected
        assert run(["show", str(coarse.path), "--json"]) == 0 and run(["findings", str(coarse.path)]) in (0, 1)
        Pieces(to).tidy()


def test_a_recorder_makes_its_old_pieces_coarse(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "rec"
    with recorder(to, server.dsn, "--piece", "2s", "--keep-detail", "6s", "--findings-every", "0s") as process:
        wait_until(lambda: to.is_dir() and sum(p.span_s == 1 for p in Pieces(to).read()) >= 2, timeout_s=90, what="two coarse pieces")
        wait_until(lambda: (status(to)["coarser"] or {}).get("1 s", {}).get("made", 0) >= 2, what="the state says so")
        assert end(process) == 0
    pieces = Pieces(to)
    found = pieces.read()
    numbers = [number for piece in found for number in range(piece.number, piece.last + 1)]
    assert numbers == list(range(1, len(numbers) + 1)) and pieces.replaced == []
    assert found[0].span_s == 1 and found[-1].span_s == 0 and status(to)["gaps"] == []
    made = status(to)["coarser"]["1 s"]
    assert made["cpu_s"] > 0 and made["of"] >= made["made"] >= 2 and not made.get("failed")


def test_what_is_found_each_minute_is_an_event_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "rec"
    monkeypatch.setenv("LEADLINE_BOOK", str(tmp_path / "book"))
    with server.connect(autocommit=True) as db:
        db.execute("create table row_of_all as select 1 as id, 0 as n")
    with recorder(to, server.dsn, "--piece", "15s", "--findings-every", "10s") as process, sessions(server) as connect:
        holder = connect("holder")
        holder.execute("begin; update row_of_all set n = 1")
        with waiting(connect("victim"), "update row_of_all set n = 2"):

            def found() -> list[dict[str, Any]]:
                return (status(to)["findings"] or {}).get("events", []) if to.is_dir() and (to / "recorder.json").exists() else []

            wait_until(lambda: any(event["id"] == "BLOCK-CHAIN" for event in found()), timeout_s=120, what="the blocker is an event")
            told = found()
            evaluated = status(to)["findings"]["evaluated"]
            wait_until(lambda: status(to)["findings"]["evaluated"] > evaluated, timeout_s=120, what="another evaluation")
        assert end(process) == 0
    (event,) = (event for event in told if event["id"] == "BLOCK-CHAIN")
    assert event["change"] == "new" and event["cost_s"] > 0 and event["severity"] in ("medium", "high", "critical")
    lines = [json.loads(line) for line in (to / "events.jsonl").read_text().splitlines()]
    assert [line for line in lines if line["id"] == "BLOCK-CHAIN" and line["change"] == "new"] == [event], "once, while it lasts"
    assert status(to)["others"] == [] and status(to)["findings"]["failed"] == 0
    assert run(["book", "list", "--json"]) == 0
    runs = [one for one in json.loads(capsys.readouterr().out)["runs"] if one["kind"] == "finding"]
    assert len(runs) == len(lines) and {one["status"] for one in runs if one["name"] == "BLOCK-CHAIN new"} == {"failed"}
    assert run(["record", "--status", str(to)]) == 0
    assert "BLOCK-CHAIN" in capsys.readouterr().out


def knows_days(to: Path) -> None:
    """A recorder's directory that has seen three days of nothing: it judges at once."""
    to.mkdir()
    kinds = [Unusual(SESSIONS), Unusual(FINDINGS)]
    for kind in kinds:
        kind.known[kind.kind.total] = usual = Usual(kind.kind.least, kind.kind.an_hour)
        usual.hours = [Hour(DAYS, {0: float(DAYS)}) for _ in usual.hours]
    write_baseline(to, kinds)


def test_a_lock_chain_is_unusual_and_is_taken_in_detail(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "rec"
    knows_days(to)
    monkeypatch.setenv("LEADLINE_BOOK", str(tmp_path / "book"))
    with server.connect(autocommit=True) as db:
        db.execute("create table row_of_all as select 1 as id, 0 as n")
    arguments = ["--findings-every", "0s", "--detail-for", "3s", "--detail-budget", "3s"]
    with recorder(to, server.dsn, *arguments) as process, sessions(server) as connect, ExitStack() as stack:
        connect("holder").execute("begin; update row_of_all set n = 1")
        for n in range(6):
            stack.enter_context(waiting(connect(f"victim {n}"), "update row_of_all set n = 2"))
        ready = "a detail capture that has ended"
        wait_until(lambda: (to / "recorder.json").exists() and _ended(to) == 1, timeout_s=120, what=ready)
        assert run(["record", "--detail", str(to), "--detail-for", "2s"]) == 0
        wait_until(lambda: _ended(to) == 2, timeout_s=60, what=ready)
        found = status(to)
        assert end(process) == 0
    (event,) = [json.loads(line) for line in (to / "events.jsonl").read_text().splitlines()]
    assert (event["id"], event["change"], event["subject"]) == ("UNUSUAL", "new", "waits: Lock")
    assert 5 < event["measured"]["value"] <= 6.01 and event["measured"]["usual"] == 0 and event["measured"]["limit"] == 2
    first, second = found["detail"]["taken"]
    assert event["capture"] == first["capture"] and "waits: Lock" in first["why"] and first["by_itself"]
    assert second["why"] == "by hand" and not second["by_itself"] and found["detail"]["failed"] == 0
    for taken, for_s in ((first, 3), (second, 2)):
        assert taken["status"] == "complete"
        (tick,) = rows(to / taken["capture"], "select sum(missed + 1) as due, any_value(period_ns) as period from tick")
        assert tick["period"] == 1_000_000 and tick["due"] >= for_s * 900
        lost = "select sum(weight_s) as s from session_sample where wait_event_type = 'Lock' and application_name like 'victim%'"
        (lock,) = rows(to / taken["capture"], lost)
        assert lock["s"] > 6 * for_s * 0.7
    assert {"sessions", "host", "kernel"} <= {*json.loads((to / first["capture"] / "manifest.json").read_text())["options"]["probes"]}
    assert found["others"] == [] and len(Pieces(to).read()) == 1, "the captures are no pieces"
    capsys.readouterr()
    assert run(["book", "list", "--json"]) == 0
    (told,) = [one for one in json.loads(capsys.readouterr().out)["runs"] if one["kind"] == "finding"]
    assert (told["name"], told["status"]) == ("UNUSUAL new", "failed")
    assert run(["record", "--status", str(to)]) == 0
    text = capsys.readouterr().out
    assert first["capture"] in text and "usual at this hour" in text and "by hand" in text
    assert run(["record", "--detail", str(to)]) == 2
    assert "no recorder runs in this directory" in capsys.readouterr().err


def _ended(to: Path) -> int:
    return sum(taken["status"] != "running" for taken in (status(to)["detail"] or {}).get("taken", []))

"""Levels of detail: coarse captures with the same sums, and pieces of which either the fine or the coarse one counts, whenever it ends."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import background, wait_until
from findings_synthetic import SyntheticCapture
from leadline.capture import reader
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.recorder import coarser, levels, lock_levels
from leadline.recorder.levels import coarsen
from leadline.recorder.moments import Moment
from leadline.recorder.pieces import Piece, Pieces, gaps
from leadline.recorder.retention import Level, to_coarsen
from leadline.recorder.status import as_text, status
from leadline.recorder.window import take_window
from leadline.tables import all_tables
from leadline.views.lock_tree import Waiter, lock_trees
from leadline.views.spenders import objects
from level_sums import rows, sums
from recorded_pieces import BOOT, TS_0, WALL_0, as_piece, begun_at, small_piece

PIECE_S = 130
SHOWN = [
    ("active", None), ("active", "IO:DataFileRead"), ("active", "LWLock:WALWrite"), ("active", "Lock:tuple"), ("idle", "Client:ClientRead"),
    ("idle in transaction", "Client:ClientRead"),
]  # fmt: skip


def load(cap: SyntheticCapture, number: int = 0) -> None:
    """Sessions that change within a second, one that changes its name, and time of the scheduler for most of them."""
    rng = random.Random(number)
    for pid in range(4001, 4006):
        session = cap.add_session(pid=pid, start_s=-3600 - 11 * number)
        at = 0.0
        while at < cap.seconds:
            lasted = rng.choice((0.05, 0.3, 1.7, 20))
            state, wait = rng.choice(SHOWN)
            cap.sample(session, state, wait, at, min(at + lasted, cap.seconds), statement_id=rng.choice((0, 11, 12)), xact_start_s=at)
            at += lasted
        cap.describe(session, 30.25, start_s=-3600 - 11 * number, application_name=f"renamed {pid % 2}")
        if pid != 4001:
            cap.delta(session, 0, cap.seconds - 7, cpu_run_ns=150_000_000 + pid, cpu_queue_ns=220_000_000, shared_blks_read=pid)
    checkpointer = cap.add_session(pid=77, backend_type="checkpointer", start_s=-9000)
    cap.sample(checkpointer, None, "Activity:CheckpointerMain", 0, cap.seconds)
    cap.add_every("device_delta", 1, cap.seconds, 1, dt_ns=10**9, device="sda", writes=3, in_flight=2)
    cap.add_every("host_stat", 1, cap.seconds, 1, metric="stat.ctxt", value=17)
    cap.lock_wait(1, 2, 5, 8, samples=False)
    locks(cap)
    cap.stat("pg_stat_database", "xact_commit", 100, 200)
    cap.add("buffer_wait", buf_id=7, relfilenode=77, fork="main", page_kind="heap", wait_kind="content", waiters=1, waiters_exclusive=1)


def locks(cap: SyntheticCapture) -> None:
    """A chain of three, a waiter with two roots and one ahead in its queue, a circle, a prepared transaction, one lock after the other."""
    for victim, blocker, begin, end, lock in (
        (3, 1, 2, 9, {"locktype": "relation", "datid": 16384, "relid": 77}), (4, 3, 3, 9, {}), (5, 1, 4, 6.5, {}), (5, 2, 4, 6.5, {}),
        (5, 4, 4, 6.5, {"blocker_kind": "queue"}), (1, 3, 11, 13, {}), (3, 1, 11, 13, {}), (2, -1, 10, 12, {}),
        (4, 1, 14, 15, {"locktype": "tuple", "datid": 16384, "relid": 77, "page": 3, "tuple": 4}),
        (4, 2, 15, 16, {"locktype": "tuple", "datid": 16384, "relid": 78, "page": 5, "tuple": 6}),
        (4, 1, 16, 17.5, {"locktype": "advisory", "classid": 7}),
    ):  # fmt: skip
        cap.lock_wait(victim, blocker, begin, min(end, cap.seconds), **{"page": -1, "tuple": -1} | lock)
    cap.add("relation", datid=16384, relid=77, relfilenode=77, nspname="public", relname="t", relkind="r")


def made(folder: Path, number: int = 0, seconds: int = PIECE_S) -> SyntheticCapture:
    cap = SyntheticCapture(folder, seconds=seconds, rate_hz=40)
    load(cap, number)
    return cap


def directory_of(tmp_path: Path, pieces: int = 3, seconds: int = 20) -> Path:
    """Pieces that follow each other, one second apart."""
    directory = tmp_path / "rec"
    for number in range(pieces):
        with begun_at((seconds + 1) * number):
            as_piece(made(tmp_path, number, seconds), directory, number + 1, (seconds + 1) * number)
    return directory


def level(path: Path, out: Path, span_s: int) -> Path:
    out.mkdir()
    coarsen(path, out, span_s)
    return out


def test_sums_of_each_level_are_those_of_the_finer_one(tmp_path: Path) -> None:
    fine = made(tmp_path).write()
    seconds = level(fine, tmp_path / "seconds", 1)
    minutes = level(seconds, tmp_path / "minutes", 60)
    expected = sums([fine])
    assert len(expected["time"]) > 50 and expected["passes"] == [PIECE_S * 10**9, PIECE_S * 40]
    assert any(key[-1] for key in expected["time"]), "some time is of the scheduler's counters alone"
    assert sums([seconds]) == expected and sums([minutes]) == expected
    assert rows(seconds, "select count(*) as n from tick")[0]["n"] == pytest.approx(PIECE_S, abs=1)
    assert rows(minutes, "select count(*) as n from tick")[0]["n"] in (2, 3, 4)
    counts = [rows(path, "select count(*) as n from session_sample")[0]["n"] for path in (fine, seconds, minutes)]
    assert counts[0] > 4 * counts[1] > 8 * counts[2] > 0


def shape(waiters: list[Waiter]) -> list[object]:
    return [(w.pid, round(w.seconds, 9), w.mode, w.blocker_mode, w.queued, w.statement, shape(w.waiters)) for w in waiters]


def test_lock_trees_and_objects_of_each_level_are_those_of_the_finer_one(tmp_path: Path) -> None:
    fine = made(tmp_path, seconds=20).write()
    coarse = level(fine, tmp_path / "seconds", 1)
    paths, found = [fine, coarse, level(coarse, tmp_path / "minutes", 60)], []
    for path in paths:
        with closing(open_capture(path)) as capture:
            trees = {(tree.pid, round(tree.seconds, 9), tree.victims): shape(tree.waiters) for tree in lock_trees(capture)}
            found.append((trees, {(o.object, o.object_kind, round(o.lock_s, 9)) for o in objects(capture) if o.lock_s}))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == 3 and {name for name, *_ in found[0][1]} >= {"public.t", "relation 78", "advisory lock 7/0"}
    counts = [rows(path, "select count(*) as n from lock_wait")[0]["n"] for path in paths]
    assert counts[0] > 3 * counts[1] > 3 * counts[2] > 0
    assert rows(paths[1], "from lock_hold") == []


def test_chains_are_followed_some_looks_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = made(tmp_path, seconds=20).write()
    whole = rows(level(fine, tmp_path / "whole", 1), "from lock_wait order by all")
    monkeypatch.setattr(lock_levels, "ROWS_AT_ONCE", 7)
    parts = rows(level(fine, tmp_path / "parts", 1), "from lock_wait order by all")
    assert [row | {"part_s": round(row["part_s"], 9)} for row in parts] == [row | {"part_s": round(row["part_s"], 9)} for row in whole]
    assert len(whole) > 30


def test_no_transaction_is_older_in_a_coarse_capture_than_it_was(tmp_path: Path) -> None:
    fine = made(tmp_path).write()
    oldest = "select pid, max(xact_age_s) as age, max(state_age_s) as state from session_sample group by all order by all"
    for span_s in (1, 60):
        for was, told in zip(rows(fine, oldest), rows(level(fine, tmp_path / f"c{span_s}", span_s), oldest), strict=True):
            assert (told["age"] or 0) <= (was["age"] or 0) and (told["state"] or 0) <= (was["state"] or 0)


def test_a_coarse_capture_says_so_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine = made(tmp_path).write()
    coarse = level(fine, tmp_path / "coarse.leadline", 60)
    found = read_manifest(coarse)
    assert found.clock.span_s == 60 and found.status == "complete" and found.clock.ts_to == read_manifest(fine).clock.ts_to
    assert not (coarse / "buffer_wait").exists()
    assert "single passes" in found.probes["buffers"].detail["without"]["buffer_wait"]
    assert run(["show", str(coarse)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "coarse, one row each 60 s" in shown and "the passes of each minute are one row" in shown
    assert run(["findings", str(coarse)]) in (0, 1)
    assert "the capture is coarse" in " ".join(capsys.readouterr().out.split())
    assert run(["sql", str(coarse), "select coarse_s from capture", "--csv"]) == 0
    assert capsys.readouterr().out.split() == ["coarse_s", "60.0"]


def test_rules_that_look_at_single_passes_are_not_evaluated(tmp_path: Path) -> None:
    cap = made(tmp_path)
    cap.setting("max_connections", 5)
    with closing(open_capture(level(cap.write(), tmp_path / "coarse", 1), hold=True)) as capture:
        result = evaluate(capture)
    why = dict(result.not_evaluated)
    assert "single passes" in why["CONN-NEAR-LIMIT"] and "single passes" in why["BLOCK-CHAIN"]
    assert not any("failed" in reason for reason in why.values()), why
    assert result.span_s == 1


def test_every_column_of_a_table_with_levels_has_a_rule() -> None:
    for table in all_tables().values():
        if table.levels is not None:
            names = {c.name for c in table.columns}
            assert {*table.levels.key, *table.levels.last} - {"*"} <= names, table.name
            texts = [c.name for c in table.columns if c.type in ("string", "bool") and c.name not in table.levels.key]
            assert all(table.levels.is_last(name) for name in texts), f"{table.name}: {texts} cannot be added up"


def test_pieces_of_a_group_become_one_and_the_sums_stay(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    before = Pieces(directory).read()
    expected = sums([piece.path for piece in before])
    found = coarser.make(directory, 1, [piece.name for piece in before])
    assert found["of"] == 3 and len(found["pieces"]) == 1 and found["apart"] == ""
    pieces = Pieces(directory)
    (one,) = pieces.read()
    assert (one.number, one.last, one.span_s, one.status) == (1, 3, 1, "complete")
    assert (one.wall_from, one.wall_to) == (before[0].wall_from, before[-1].wall_to)
    assert sorted(piece.number for piece in pieces.replaced) == [1, 2, 3]
    assert sums([one.path]) == expected
    between = rows(one.path, "select ts_from, ts_to, cause from server_gap order by 1")
    assert [(gap["ts_from"], gap["ts_to"]) for gap in between] == [(a.ts_to, b.ts_from) for a, b in pairwise(before)]
    unknown = rows(one.path, "select sum(unknown_ns)::bigint as ns from tick")[0]["ns"]
    assert unknown == sum(b.ts_from - a.ts_to for a, b in pairwise(before) if a.ts_to and b.ts_from)
    pieces.tidy()
    assert [path.name for path in directory.glob("*.leadline*")] == [one.name]


def test_pieces_that_cannot_be_joined_become_coarse_each(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, 2)
    with begun_at(42):
        as_piece(made(tmp_path, 2, 20), directory, 3, 42, boot="another")
    before = Pieces(directory).read()
    expected = sums([piece.path for piece in before])
    found = coarser.make(directory, 1, [piece.name for piece in before])
    assert len(found["pieces"]) == 3 and "started anew" in found["apart"]
    assert [(piece.number, piece.last) for piece in Pieces(directory).read()] == [(1, 1), (2, 2), (3, 3)]
    assert sums([piece.path for piece in Pieces(directory).read()]) == expected


def test_an_interrupted_piece_stays_known_as_such(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, 2)
    first = Pieces(directory).read()[0]
    content = json.loads((first.path / "manifest.json").read_text())
    content["status"], content["clock"]["ts_to"] = "recording", None
    (first.path / "manifest.json").write_text(json.dumps(content))
    coarser.make(directory, 1, [first.name])
    pieces = Pieces(directory).read()
    assert [(piece.status, piece.span_s) for piece in pieces] == [("interrupted", 1), ("complete", 0)]
    assert [gap.why for gap in gaps(pieces)] == ["the recorder was killed"]


def killed(piece: Piece, *lost: str) -> Piece:
    """As a recorder leaves it that was killed before the first segments of these tables; none: of all."""
    content = json.loads((piece.path / "manifest.json").read_text())
    content["status"], content["clock"]["ts_to"] = "recording", None
    (piece.path / "manifest.json").write_text(json.dumps(content))
    for folder in [piece.path / name for name in lost] or [path for path in piece.path.iterdir() if path.is_dir()]:
        shutil.rmtree(folder)
    return piece


def test_a_piece_that_was_killed_before_its_first_pass_becomes_coarse_with_those_before_it(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, 3)
    *before, last = Pieces(directory).read()
    expected = sums([piece.path for piece in before])
    killed(last)
    made_of = coarser.make(directory, 1, [piece.name for piece in (*before, last)])
    assert (len(made_of["pieces"]), made_of["of"], made_of["apart"]) == (1, 3, "")
    [piece] = Pieces(directory).read()
    assert (piece.status, piece.number, piece.last, piece.wall_to) == ("interrupted", before[0].number, last.number, before[1].wall_to)
    assert sums([piece.path]) == expected


@pytest.mark.parametrize("lost", ["tick", "session_run", "session"])
def test_a_piece_that_was_killed_between_two_segments_becomes_coarse(tmp_path: Path, lost: str) -> None:
    directory = directory_of(tmp_path, 2)
    first, second = Pieces(directory).read()
    made_of = coarser.make(directory, 1, [first.name, killed(second, lost).name])
    assert made_of["of"] == 2 and [piece.last for piece in Pieces(directory).read()][-1] == second.number


COARSER = [sys.executable, "-m", "leadline.recorder.coarser"]
KILLS = int(os.environ.get("LEADLINE_KILLS", 4))


def test_a_kill_leaves_each_piece_once_fine_or_coarse(tmp_path: Path) -> None:
    original = directory_of(tmp_path)
    names = [piece.name for piece in Pieces(original).read()]
    expected = sums([piece.path for piece in Pieces(original).read()])
    began = time.monotonic()
    whole = shutil.copytree(original, tmp_path / "whole")
    subprocess.run([*COARSER, str(whole), "1", *names], check=True, stdout=subprocess.DEVNULL)
    lasts = time.monotonic() - began
    for n in range(KILLS):
        directory = shutil.copytree(original, tmp_path / f"killed{n}")
        process = subprocess.Popen([*COARSER, str(directory), "1", *names], stdout=subprocess.DEVNULL)
        try:
            process.wait(lasts * (n + 1) / (KILLS + 1))  # whatever it meets
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        pieces = Pieces(directory)
        numbers = [(piece.number, piece.last) for piece in pieces.read()]
        assert numbers in ([(1, 1), (2, 2), (3, 3)], [(1, 3)])
        assert sums([piece.path for piece in pieces.read()]) == expected
        pieces.tidy()
        assert len(list(directory.glob("*.leadline*"))) == len(numbers)


# A recorder whose server is not there, of which all looks come at once: it only keeps its limits.
KEEPS_LIMITS = """
import sys, threading
from pathlib import Path
from leadline.errors import LeadlineError
from leadline.probes.options import Options
from leadline.recorder.moments import Moment
from leadline.recorder.retention import Level, Limits
from leadline.recorder.run import LEAST_BYTES, Recorder, World

class Soon(threading.Event):
    def wait(self, timeout=None):
        return super().wait(0.02)

def away(options):
    raise LeadlineError("connection", "the server cannot be reached")

now = Moment(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
limits = Limits(1e9, LEAST_BYTES, 0, (Level(1, 1e8),))
Recorder(Path(sys.argv[1]), Options(data_dir="/data", for_s=600), limits, World(lambda: now, identify=away)).run(Soon())
"""


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """At one moment: stopped, it begins no other child."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    for pid in [process.pid, *children]:
        os.kill(pid, signal.SIGKILL)
    process.wait()


@contextmanager
def keeping_limits(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Killed at the end of the block."""
    now = later(3600)
    command = [sys.executable, "-c", KEEPS_LIMITS, directory, now.wall_ns, now.boot_ns, now.boot]
    with background(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield process
        kill_with_children(process)


def test_a_kill_while_room_is_made_leaves_each_minute_once_and_readable(tmp_path: Path) -> None:
    """Six pieces of 6 MB beside a coarse one, of which 32 MB may stay: some detail is removed, the rest becomes coarse."""
    original = directory_of(tmp_path, 8, 5)
    coarser.make(original, 1, [piece.name for piece in Pieces(original).read()[:2]])
    Pieces(original).tidy()
    before = Pieces(original).read()
    for piece in before[1:]:
        (piece.path / "tick" / "padding").write_bytes(b"\1" * 6_000_000)

    def parts(directory: Path) -> list[Piece]:
        """What is there, after a look whether it has exactly what the pieces had of which it is made."""
        found = Pieces(directory).read()
        assert (found[0].number, found[0].last, found[0].span_s) == (1, 2, 1), "the oldest piece is coarse, and stays"
        assert found[-1].last == 8 and all(b.number == a.last + 1 for a, b in pairwise(found[1:])), "of detail the oldest went"
        for piece in found:
            of = [one.path for one in before if piece.number <= one.number and one.last <= piece.last]
            assert sums([piece.path]) == sums(of)
        return found

    began = time.monotonic()
    whole = shutil.copytree(original, tmp_path / "whole")
    with keeping_limits(whole):
        wait_until(lambda: all(piece.span_s == 1 for piece in Pieces(whole).read()), what="all that is left is coarse")
        lasts = time.monotonic() - began
    assert [(piece.number, piece.last) for piece in parts(whole)] == [(1, 2), (6, 8)]
    for n in range(KILLS):
        directory = shutil.copytree(original, tmp_path / f"killed{n}")
        with keeping_limits(directory) as process, suppress(subprocess.TimeoutExpired):
            process.wait(lasts * (n + 1) / (KILLS + 1))  # whatever it meets
        left = [piece.name for piece in parts(directory)]
        Pieces(directory).tidy()
        assert [piece.name for piece in parts(directory)] == left == sorted(path.name for path in directory.glob("*.leadline*"))


def test_pieces_that_are_removed_while_they_become_coarse_give_no_coarse_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that goes away while the piece is read would be missing in a piece that looks whole."""
    directory = directory_of(tmp_path, 2, 3)
    first, second = Pieces(directory).read()
    write = levels._write_table

    def removes(*arguments: Any) -> None:
        write(*arguments)
        if arguments[1].name == "session_run" and first.path.exists():
            Pieces(directory).remove(first)

    monkeypatch.setattr(levels, "_write_table", removes)
    with pytest.raises(LeadlineError):
        coarser.make(directory, 1, [first.name, second.name])
    assert [path.name for path in directory.glob("*.leadline*")] == [second.name]


@pytest.mark.parametrize("step", ["coarsen", "join", "write_manifest", "_to_disk"])
def test_what_fails_halfway_leaves_the_fine_pieces(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = directory_of(tmp_path, 2, 3)
    names = [piece.name for piece in Pieces(directory).read()]

    def fails(*_: Any, **__: Any) -> None:
        raise LeadlineError("storage", "no space left")

    monkeypatch.setattr(coarser, step, fails)
    with pytest.raises(LeadlineError, match="no space left"):
        coarser.make(directory, 1, names)
    assert [path.name for path in sorted(directory.glob("*.leadline*"))] == sorted(names)


def test_pieces_that_were_replaced_meanwhile_are_not_made_coarse_again(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, 2, 3)
    names = [piece.name for piece in Pieces(directory).read()]
    coarser.make(directory, 1, names)  # of a recorder that was killed; its fine pieces are still there
    with pytest.raises(LeadlineError, match="replaced or removed"):
        coarser.make(directory, 1, names)
    assert len(Pieces(directory).read()) == 1


def later(seconds: float) -> Moment:
    return Moment(WALL_0 + round(seconds * 1e9), TS_0 + round(seconds * 1e9), BOOT)


def test_what_becomes_coarse_and_when(tmp_path: Path) -> None:
    hour_ns = 3600 * 10**9
    begin = -(-WALL_0 // hour_ns) * hour_ns  # a whole hour
    start = (begin - WALL_0) / 1e9
    for number in range(12):
        small_piece(tmp_path, number + 1, begin + number * 600 * 10**9, process="2@2" if number >= 9 else "1@1")
    two = (Level(1, 6 * 3600), Level(60, 86_400))
    found = Pieces(tmp_path).read()

    def due(seconds: float) -> list[int]:
        told = to_coarsen(found, later(start + seconds), two)
        return [] if told is None else [piece.number for piece in told[1]]

    assert due(7 * 3600 - 1) == [], "the hour is not old enough as a whole"
    assert due(7 * 3600 + 1) == [1, 2, 3, 4, 5, 6], "an hour becomes one piece"
    found = found[6:]
    assert due(7 * 3600 + 1) == []
    assert due(8 * 3600 + 1) == [7, 8, 9], "another recorder's pieces are another group"
    assert Level(1, 60).group_s == 10 and Level(60, 30 * 86_400).group_s == 86_400


def test_status_shows_the_levels(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, 3, 3)
    names = [piece.name for piece in Pieces(directory).read()]
    coarser.make(directory, 1, names[:2])
    found = status(directory)
    assert [(of["span_s"], of["pieces"]) for of in found["levels"]] == [(1, 1), (0, 1)]
    assert "coarse, one row each 1 s" in as_text(found) and "every pass" in as_text(found)
    assert found["others"] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--keep-seconds", "3d"), "--keep-detail"),
        (("--keep-detail", "20d"), "not between"),
        (("--keep-detail", "3d", "--keep-seconds", "6h"), "not between"),
        (("--keep-detail", "0s"), "not between"),
        (("--keep-detail", "6h", "--keep-seconds", "330h"), "not between"),  # removed before it is made coarse: thanos#5664
    ],
)
def test_levels_that_make_no_sense_are_refused(options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "--host", "--to", "nowhere", "--unit", *options]) == 2
    assert says in capsys.readouterr().err


def test_many_pieces_are_joined_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The findings of three minutes were not evaluated where pieces are short: all tables of all pieces were read at once."""
    directory = tmp_path / "rec"
    for number in range(12):
        with begun_at(5 * number):
            as_piece(made(tmp_path, 0, 4), directory, number + 1, 5 * number)
    pieces = Pieces(directory).read()
    begin, end = (datetime.fromtimestamp(ns // 10**9, UTC) for ns in (pieces[0].wall_from, pieces[-1].wall_to + 10**9))
    monkeypatch.setattr(reader, "_settings", [*reader._settings])
    reader.limit_databases("80MB", 1)
    whole = take_window(directory, begin, end, tmp_path / "whole")
    assert read_manifest(whole).tables["session"]["rows"] == sum(read_manifest(piece.path).tables["session"]["rows"] for piece in pieces)


def test_a_window_of_a_coarse_piece_is_coarse_and_levels_are_not_joined(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, 3)
    before = Pieces(directory).read()
    coarser.make(directory, 1, [piece.name for piece in before[:2]])
    start = datetime.fromtimestamp(before[0].wall_from // 10**9, UTC)
    cut = take_window(directory, start + timedelta(seconds=2), start + timedelta(seconds=30), tmp_path / "cut")
    low, high = (before[0].ts_from or 0) + 2 * 10**9, (before[0].ts_from or 0) + 30 * 10**9
    told = "select sum(round(weight_s * 1e9)::bigint)::bigint as ns, count(*) as n from session_sample"
    assert rows(cut, told) == rows(Pieces(directory).read()[0].path, f"{told} where ts >= {low} and ts < {high}")
    assert read_manifest(cut).clock.span_s == 1 and "coarse: the passes of each second are one row" in str(read_manifest(cut).notes)
    with pytest.raises(LeadlineError) as refused:
        take_window(directory, start, start + timedelta(seconds=60), tmp_path / "both")
    assert "another level" in refused.value.detail

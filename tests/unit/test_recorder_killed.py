"""A recorder that is killed at any moment, also before it has recorded anything: the gap says so, and no gap says what is not so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from leadline.recorder.pieces import Pieces
from leadline.recorder.state import read_state
from leadline.recorder.status import as_text, status

# Records this host in pieces of two seconds, and ends itself by SIGKILL at the moment that it is told; else after so many pieces.
PROGRAM = """
import os, signal, sys, threading
from pathlib import Path
from leadline.probes.options import Options
from leadline.probes.take import take_with
from leadline.recorder import run
from leadline.recorder.run import Recorder, World
from leadline.recorder.retention import Limits

directory, moment, pieces = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
stop, made, looks = threading.Event(), [], []

def reached(now):
    if now and now == moment:
        os.kill(os.getpid(), signal.SIGKILL)

class Watcher:
    def doing(self, what): pass
    def began(self, piece, probes): reached("attached")
    def ended(self, piece): pass

def identify(options):
    reached("identified" if not made else "between pieces")
    return run._identify(options)

def take(options, progress, until, begun, **more):
    reached("taking")
    def all_look():
        reached("begun")
        begun()
        reached("recording")
    def enough():
        looks.append(1)
        reached("in a piece" if len(looks) > 2 else "")  # by then its manifest has been written with the begin of its passes
        return until() or stop.is_set()
    path = take_with(options, progress, enough, all_look, **more)
    made.append(path)
    if len(made) >= pieces:
        stop.set()
    return path

tidy = run.Pieces.tidy
run.Pieces.tidy = lambda pieces: (reached("tidying"), tidy(pieces))
options = Options(host=True, for_s=2.0)
recorder = Recorder(directory, options, Limits(86400, 64 << 20, 1 << 20), World(identify=identify, take=take, watcher=Watcher()))
recorder.run(stop)
"""


def record(directory: Path, moment: str = "", pieces: int = 1) -> None:
    """Until it is killed, or has made so many pieces."""
    program = [sys.executable, "-c", PROGRAM, str(directory), moment, str(pieces)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert ended.returncode == (-signal.SIGKILL if moment else 0), ended.stderr


def whys(directory: Path) -> list[str]:
    return [gap["why"] for gap in status(directory)["gaps"]]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one piece of a recorder that has ended as it should."""
    directory = tmp_path_factory.mktemp("begun") / "rec"
    record(directory)
    return directory


def copied(directory: Path, into: Path) -> Path:
    subprocess.run(["cp", "-r", str(directory), str(into)], check=True)
    return into


@pytest.mark.parametrize("moment", ["tidying", "identified", "taking", "attached", "begun", "recording"])
def test_the_gap_says_that_a_recorder_began_and_was_killed_before_its_first_pass(begun: Path, tmp_path: Path, moment: str) -> None:
    """Only "no recorder ran" was said: who looks for the reason looks at whoever should have started it."""
    directory = copied(begun, tmp_path / "rec")
    record(directory, moment)
    state = read_state(directory)
    assert state is not None and state.doing != "ended"
    said = status(directory)["never_recorded"]
    assert said.endswith("and was killed before its first pass") and said in as_text(status(directory))
    record(directory)
    assert whys(directory) == [f"no recorder ran; {said}"]
    assert status(directory)["never_recorded"] == ""
    record(directory)
    assert whys(directory)[1:] == ["no recorder ran"], "it is told once"


def test_many_that_are_killed_one_after_the_other_are_one_sentence(begun: Path, tmp_path: Path) -> None:
    """A service that is started again and again, such as after each kill for want of memory: the state must not grow with it."""
    directory = copied(begun, tmp_path / "rec")
    for moment in ("identified", "recording", "tidying"):
        record(directory, moment)
    record(directory)
    [why] = whys(directory)
    assert why.startswith("no recorder ran; 3 recorders, which began from 20") and why.endswith("were killed before their first pass")
    state = read_state(directory)
    assert state is not None and state.killed == {} and state.waited == []


def test_one_that_is_killed_in_a_piece_has_recorded(begun: Path, tmp_path: Path) -> None:
    directory = copied(begun, tmp_path / "rec")
    record(directory, "in a piece")
    record(directory)
    assert [piece.status for piece in Pieces(directory).read()] == ["complete", "interrupted", "complete"]
    assert whys(directory) == ["no recorder ran", "the recorder was killed"]


def test_one_that_is_killed_between_two_pieces_is_said_to_be_killed(begun: Path, tmp_path: Path) -> None:
    directory = copied(begun, tmp_path / "rec")
    record(directory, "between pieces", 3)
    assert status(directory)["never_recorded"] == ""
    record(directory)
    assert [piece.status for piece in Pieces(directory).read()] == ["complete"] * 3
    assert whys(directory) == ["no recorder ran", "no recorder ran; the recorder was killed"]


def test_a_state_of_before_this_was_kept_says_nothing_of_it(begun: Path, tmp_path: Path) -> None:
    directory = copied(begun, tmp_path / "rec")
    path = directory / "recorder.json"
    kept = json.loads(path.read_text())
    before = {key: value for key, value in kept.items() if key not in ("began", "first", "killed")}
    path.write_text(json.dumps(before | {"doing": "waiting"}))
    record(directory)
    assert whys(directory) == ["no recorder ran; the recorder was killed"]

"""The recorder with a clock, a disk and a server that the test moves: limits at any moment, waits, a full disk, a damaged state."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.probes.options import Options
from leadline.recorder import run as run_module
from leadline.recorder.pieces import Pieces, used_bytes
from leadline.recorder.retention import HOLD_S, Level, Limits
from leadline.recorder.run import BETWEEN_LOOKS, Recorder, World
from leadline.recorder.state import locked, read_state, this_process, write_state
from leadline.recorder.status import as_text, status
from leadline.units import MB
from recorded_pieces import SERVER, FakeWorld, small_piece

DAY_S = 86_400.0


class Told(threading.Event):
    """The end, after so many pieces; waiting for it takes the time of the false clock."""

    def __init__(self, fake: FakeWorld, waits: int = 10) -> None:
        super().__init__()
        self.fake, self.waits, self.waited = fake, waits, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout or 0)
        self.fake.pass_time(timeout or 0)
        if len(self.waited) >= self.waits:
            self.set()
        return self.is_set()


def world(fake: FakeWorld, stop: threading.Event, pieces: int) -> World:
    def take(
        options: Options, _progress: Any, until: Callable[[], bool], begun: Callable[[], None], *, every_s: float, stop: threading.Event
    ) -> Path:
        assert options.out is not None and options.recorder is not None
        path = small_piece(
            options.out.parent, options.recorder["number"], fake.wall_ns, options.for_s, 0, "recording", options.recorder["process"]
        )
        path = path.rename(options.out) if path != options.out else path
        begun()
        grown = 0
        for _ in range(fake.looks):
            fake.pass_time(options.for_s / fake.looks)
            grown += fake.piece_bytes // fake.looks
            (path / "tick" / "grown").write_bytes(b"\1" * grown)
            fake.free -= fake.piece_bytes // fake.looks
            if until():
                break
            fake.seen.append(sum(used_bytes(p) for p in options.out.parent.glob("*.leadline")))
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["options"]["recorder"] |= options.recorder
        (path / "manifest.json").write_text(json.dumps(manifest | {"status": "complete"}))
        fake.made += 1
        if fake.ends is not None:
            fake.ends(fake)
        if fake.made >= pieces:
            stop.set()
        return path

    def identify(options: Options) -> Any:
        if not fake.there:
            raise LeadlineError("connection", "the server cannot be reached", "refused")
        return SERVER

    return World(fake.now, lambda path: fake.free, take, identify, fake.said.append)


def recorded(
    directory: Path,
    fake: FakeWorld,
    pieces: int = 5,
    *,
    keep_s: float = 14 * DAY_S,
    max_bytes: int = 32 * MB,
    waits: int = 10,
    piece_s: float = 600,
) -> Told:
    stop = Told(fake, waits)
    options = Options(data_dir="/data", for_s=piece_s)
    Recorder(directory, options, Limits(keep_s, max_bytes, 100 * MB), world(fake, stop, pieces)).run(stop)
    return stop


@pytest.mark.parametrize("piece_bytes", [1 * MB, 3 * MB, 7 * MB, 20 * MB])
def test_the_total_is_never_above_the_limit(tmp_path: Path, piece_bytes: int) -> None:
    fake = FakeWorld(piece_bytes=piece_bytes)
    recorded(tmp_path, fake, 30)
    assert max(fake.seen) <= 32 * MB
    assert max(fake.seen) >= 20 * MB, "it uses what it may"
    state = read_state(tmp_path)
    assert state is not None and state.removed["pieces"] + len(Pieces(tmp_path).read()) == 30 and state.removed["why"] == "size"


def test_a_piece_that_grows_much_more_than_the_ones_before_stays_in_the_limit(tmp_path: Path) -> None:
    """prometheus#5771: other settings made ten times as much, and the limit was passed until the next block."""
    fake = FakeWorld(piece_bytes=1 * MB)

    def grow(fake: FakeWorld) -> None:
        fake.piece_bytes = 20 * MB if fake.made > 35 else 1 * MB

    fake.ends = grow
    recorded(tmp_path, fake, 40)
    assert max(fake.seen) <= 32 * MB
    found = Pieces(tmp_path).read()
    numbers = [piece.number for piece in found]
    assert numbers == list(range(numbers[0], 41)), "only the oldest are gone"
    assert max(piece.bytes for piece in found) <= 10 * MB, "one that grows too large is ended early"


class Coarser:
    """Makes a coarse piece at once, a hundredth as large as what it is made of."""

    def __init__(self, _module: str, arguments: Sequence[str]) -> None:
        self.arguments = arguments

    def result(self) -> dict[str, Any]:
        directory, span_s, *names = self.arguments
        of = [piece for piece in Pieces(Path(directory)).read() if piece.name in names]
        assert [piece.name for piece in of] == names
        before, seconds = sum(piece.bytes for piece in of), (of[-1].wall_to - of[0].wall_from) / 1e9
        made = small_piece(
            Path(directory), of[0].number, of[0].wall_from, seconds, before // 100, process=of[0].recorder, span_s=int(span_s),
            last=of[-1].last,
        )  # fmt: skip
        return {"pieces": [made.name], "of": len(of), "apart": "", "bytes_before": before, "bytes_after": used_bytes(made)}

    def end(self) -> None:
        pass


def test_weeks_survive_in_coarse_rows_where_detail_does_not_fit(tmp_path: Path) -> None:
    """Detail of a day takes 48 MB, of which 32 MB may be kept: it becomes coarse earlier, and no minute is lost."""
    fake = FakeWorld(piece_bytes=2 * MB, looks=4)
    stop = Told(fake)
    levels = (Level(1, DAY_S), Level(60, 5 * DAY_S))
    with_coarser = replace(world(fake, stop, 300), child=Coarser)
    Recorder(tmp_path, Options(data_dir="/data", for_s=3600), Limits(365 * DAY_S, 32 * MB, 100 * MB, levels), with_coarser).run(stop)
    found = Pieces(tmp_path).read()
    assert (found[0].number, found[-1].last) == (1, 300)
    assert all(after.number == before.last + 1 for before, after in pairwise(found)), "twelve days without a hole"
    assert [piece.span_s for piece in found] == sorted((piece.span_s for piece in found), reverse=True), "and the older, the coarser"
    assert {piece.span_s for piece in found} == {0, 1, 60}
    assert max(fake.seen) <= 32 * MB
    assert 8 <= sum(piece.span_s == 0 for piece in found) <= 13, "detail has what the others leave, less two pieces"
    state = read_state(tmp_path)
    assert state is not None and state.removed == {}
    assert state.coarser["1 s"]["early"] > 250
    assert "before their age, for room" in as_text(status(tmp_path))


def test_pieces_that_a_limit_removes_before_they_are_coarse_are_no_failure(tmp_path: Path) -> None:
    class Late(Coarser):
        def result(self) -> dict[str, Any]:
            shutil.rmtree(Path(self.arguments[0]) / self.arguments[2])
            return {"error": {"kind": "gone", "message": "the pieces were replaced or removed meanwhile"}}

    fake = FakeWorld(piece_bytes=2 * MB, looks=4)
    stop = Told(fake)
    limits = Limits(365 * DAY_S, 32 * MB, 100 * MB, (Level(1, DAY_S),))
    Recorder(tmp_path, Options(data_dir="/data", for_s=3600), limits, replace(world(fake, stop, 20), child=Late)).run(stop)
    state = read_state(tmp_path)
    assert state is not None and state.coarser["1 s"]["overtaken"] > 0 and "failed" not in state.coarser["1 s"]
    assert state.last_error is None and "times a limit removed the pieces meanwhile" in as_text(status(tmp_path))


@pytest.mark.parametrize(("detail", "tries"), [("IO Error: No space left on device", 6), ("a table is damaged", 1)])
def test_what_did_not_become_coarse_for_want_of_room_is_tried_again_with_the_next_piece(tmp_path: Path, detail: str, tries: int) -> None:
    """The first of eight pieces of an hour is old enough when the third begins."""
    tried: list[Sequence[str]] = []

    class Full(Coarser):
        def result(self) -> dict[str, Any]:
            tried.append(self.arguments[2:])
            return {"error": {"kind": "storage", "message": "the coarse piece could not be made", "detail": detail}}

    fake = FakeWorld(looks=4)
    stop = Told(fake)
    limits = Limits(365 * DAY_S, 1 << 40, 100 * MB, (Level(1, 3600),))
    Recorder(tmp_path, Options(data_dir="/data", for_s=3600), limits, replace(world(fake, stop, 8), child=Full)).run(stop)
    assert sum(names == tried[0] for names in tried) == tries


def test_the_piece_that_is_written_is_never_removed(tmp_path: Path) -> None:
    fake = FakeWorld(piece_bytes=8 * MB)
    recorded(tmp_path, fake, 3, keep_s=1)  # all that has ended is too old at once
    found = Pieces(tmp_path).read()
    assert found[-1].number == 3 and found[-1].bytes > 7 * MB


def test_what_is_too_old_goes_and_the_rest_stays(tmp_path: Path) -> None:
    recorded(tmp_path, FakeWorld(), 20, keep_s=3600)
    numbers = [piece.number for piece in Pieces(tmp_path).read()]
    assert numbers == list(range(numbers[0], 21)) and 6 <= len(numbers) <= 8
    state = read_state(tmp_path)
    assert state is not None and state.removed["why"] == "age"


@pytest.mark.parametrize("set_by", [400 * DAY_S, -400 * DAY_S])
def test_a_clock_that_jumps_removes_nothing(tmp_path: Path, set_by: float) -> None:
    """A wrong clock must not remove what was recorded, and pieces go on in their order."""
    fake = FakeWorld()

    def jump(fake: FakeWorld) -> None:
        if fake.made == 5:
            fake.wall_ns += round(set_by * 1e9)

    fake.ends = jump
    recorded(tmp_path, fake, 10, keep_s=DAY_S)
    assert [piece.number for piece in Pieces(tmp_path).read()] == list(range(1, 11))
    found = status(tmp_path)
    assert 0 < found["age_held_s"] <= HOLD_S and "in doubt" in as_text(found)
    assert sum("no piece is removed by its age" in text for text in fake.said) == 1
    assert found["gaps"] == [], "on the clock that only goes on there is no gap"


def test_a_full_disk_stops_writing_and_goes_on_by_itself(tmp_path: Path) -> None:
    fake = FakeWorld(free=104 * MB, piece_bytes=2 * MB)
    stop = recorded(tmp_path, fake, 50, waits=6)
    assert fake.made < 5 and stop.waited == [1, 2, 4, 8, 16, 30]
    found = status(tmp_path)
    assert "no room on the disk" in found["last_error"]["message"] and "no room on the disk" in as_text(found)
    assert sum("no room on the disk" in text for text in fake.said) == 1
    assert fake.free >= 100 * MB - BETWEEN_LOOKS
    made = fake.made
    fake.free = 1 << 40
    recorded(tmp_path, fake, made + 3)
    assert [piece.number for piece in Pieces(tmp_path).read()] == list(range(1, made + 4))


@pytest.mark.parametrize(
    ("without", "why"),
    [({"there": False}, "the server cannot be reached"), ({"free": 90 * MB}, "no room on the disk: nothing is recorded")],
)
def test_a_wait_is_a_gap_that_says_for_what(tmp_path: Path, without: dict[str, Any], why: str) -> None:
    """No piece is missing in the row, and yet this is no change from one piece to the next."""
    fake = FakeWorld()
    recorded(tmp_path, fake, 1)
    before = {name: getattr(fake, name) for name in without}
    for changes, waits in ((without, 3), (before, 1)):
        vars(fake).update(changes)
        recorded(tmp_path, fake, 3, waits=waits)
    found = status(tmp_path)
    assert [(gap["why"], gap["seconds"]) for gap in found["gaps"]] == [(why, 7)]
    assert len(found["pieces"]) == 3 and found["switches"]["count"] == 0
    state = read_state(tmp_path)
    assert state is not None and state.waited == []


def test_a_disk_without_inodes_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OMS-Agent-for-Linux#699: bytes were free, each file failed, and nothing went on when there were inodes again."""
    here = list(os.statvfs(tmp_path))
    here[2:8] = 1 << 30, 1 << 29, 1 << 29, 2_000, 1_500, 1_001  # blocks, free, free for us; files, free, free for us
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(here))
    assert run_module._free_bytes(tmp_path) == (1 << 29) * here[1]
    here[7] = 999
    assert run_module._free_bytes(tmp_path) == 0
    here[5:8] = 0, 0, 0  # a file system that makes inodes as it needs them, such as btrfs
    assert run_module._free_bytes(tmp_path) == (1 << 29) * here[1]


def test_a_state_that_cannot_be_written_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(directory: Path, state: object) -> None:
        raise LeadlineError("storage", "no space left to write the state of the recorder")

    monkeypatch.setattr(run_module, "write_state", full)
    fake = FakeWorld()
    recorded(tmp_path, fake, 3)
    assert len(Pieces(tmp_path).read()) == 3 and any("no space left" in text for text in fake.said)


def test_a_server_that_is_not_there_is_waited_for_with_pauses(tmp_path: Path) -> None:
    fake = FakeWorld(there=False)
    stop = recorded(tmp_path, fake, 1, waits=8)
    assert stop.waited == [1, 2, 4, 8, 16, 30, 30, 30] and fake.made == 0
    assert fake.said == ["note: the server cannot be reached (refused); trying again"]
    found = status(tmp_path)
    assert found["last_error"]["message"] == "the server cannot be reached" and found["pieces"] == []


def test_pieces_that_end_at_once_are_not_made_in_a_busy_loop(tmp_path: Path) -> None:
    fake = FakeWorld()
    stop = recorded(tmp_path, fake, 99, piece_s=0.2, waits=4)
    assert len(stop.waited) == 4 and fake.made <= 4


def test_a_server_that_fails_at_each_start_leaves_no_row_of_empty_pieces(tmp_path: Path) -> None:
    fake = FakeWorld()
    stop = Told(fake, 6)
    usual = world(fake, stop, 99)

    def fails(options: Options, *_: Any, **__: Any) -> Path:
        assert options.out is not None and options.recorder is not None
        path = small_piece(options.out.parent, options.recorder["number"], fake.wall_ns, status="failed")
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps(manifest | {"clock": {}}))
        raise LeadlineError("layout", "shared memory does not look as it should")

    failing = replace(usual, take=fails)
    Recorder(tmp_path, Options(data_dir="/data", for_s=600), Limits(DAY_S, 32 * MB, MB), failing).run(stop)
    assert len(stop.waited) == 6 and Pieces(tmp_path).read() == []
    assert status(tmp_path)["last_error"]["kind"] == "layout"


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format_version": 1, "server": 3}', '{"format_version": 1, "waited": 3}', '{"format_version": "x"}', "\0" * 300],
)
def test_a_damaged_state_is_said_and_written_anew(tmp_path: Path, content: str) -> None:
    """netdata#9820: an empty file of its own ended the collector at every start."""
    recorded(tmp_path, FakeWorld(), 2)
    (tmp_path / "recorder.json").write_text(content)
    found = status(tmp_path)
    assert len(found["pieces"]) == 2 and "damaged" in found["state_error"]["message"] and "damaged" in as_text(found)
    fake = FakeWorld(wall_ns=FakeWorld().wall_ns + 10**13)
    recorded(tmp_path, fake, 1)
    assert any("damaged" in text for text in fake.said)
    assert [piece.number for piece in Pieces(tmp_path).read()] == [1, 2, 3]


def test_without_its_state_the_pieces_are_all_there(tmp_path: Path) -> None:
    recorded(tmp_path, FakeWorld(), 2)
    (tmp_path / "recorder.json").unlink()
    assert len(status(tmp_path)["pieces"]) == 2
    recorded(tmp_path, FakeWorld(wall_ns=FakeWorld().wall_ns + 10**13), 1)
    assert [piece.number for piece in Pieces(tmp_path).read()] == [1, 2, 3]


def test_a_newer_state_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "recorder.json").write_text('{"format_version": 99}')
    with pytest.raises(LeadlineError, match="newer"):
        recorded(tmp_path, FakeWorld(), 1)
    assert (tmp_path / "recorder.json").read_text() == '{"format_version": 99}'


def test_another_server_does_not_get_into_the_row(tmp_path: Path) -> None:
    recorded(tmp_path, FakeWorld(), 1)
    state = read_state(tmp_path)
    assert state is not None
    state.server["data_dir"] = "/elsewhere"
    write_state(tmp_path, state)
    with pytest.raises(LeadlineError, match="pieces of another server"):
        recorded(tmp_path, FakeWorld(), 1)


def test_two_recorders_do_not_write_into_one_directory(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(LeadlineError, match="another recorder writes"):
        recorded(tmp_path, FakeWorld(), 1)
    assert recorded(tmp_path, FakeWorld(), 1).is_set(), "a lock that nobody holds is no lock"


def test_whether_it_runs_is_told_by_its_process(tmp_path: Path) -> None:
    recorded(tmp_path, FakeWorld(), 1)
    state = read_state(tmp_path)
    assert state is not None and "runs" in status(tmp_path)
    state.doing = "recording"
    write_state(tmp_path, state)
    assert status(tmp_path)["runs"]
    state.process = this_process() | {"start_ticks": 1}  # the pid belongs to another process by now
    write_state(tmp_path, state)
    found = status(tmp_path)
    assert not found["runs"] and found["doing"] == "killed"


@pytest.mark.parametrize("differs", [{"pid": 1}, {"boot": "as a container has it"}], ids=["another pid", "another boot_id"])
def test_a_recorder_that_has_another_pid_or_boot_id_in_its_container_runs(tmp_path: Path, differs: dict[str, Any]) -> None:
    recorded(tmp_path, FakeWorld(), 1)
    state = read_state(tmp_path)
    assert state is not None
    state.doing, state.process = "recording", this_process() | differs
    write_state(tmp_path, state)
    with locked(tmp_path):
        assert status(tmp_path)["doing"] == "recording"
        with pytest.raises(LeadlineError, match="another recorder writes"), locked(tmp_path):
            pass
    assert status(tmp_path)["doing"] == "killed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["record"], "no directory was given"),
        (["record", "--to", "{dir}", "--piece", "1s"], "too short"),
        (["record", "--to", "{dir}", "--keep", "0s"], "nothing would be kept"),
        (["record", "--host", "--to", "{dir}", "--max-size", "1MB"], "too little"),
        (["record", "--status", "{dir}/none"], "no such directory"),
        (["record", "--status", "{dir}"], "nothing was recorded here"),
        (["take", "--from-recorder", "{dir}"], "a window needs"),
        (["take", "--between", "now-1m", "now"], "a window needs"),
        (["take", "--from-recorder", "{dir}", "--between", "now-1m", "now"], "nothing was recorded"),
        (["take", "--host", "--from-recorder", "{dir}", "--between", "now-1m", "now"], "do not go together"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert run([word.format(dir=tmp_path) for word in arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_guide_names_options_and_defaults_as_they_are() -> None:
    from leadline.cli.record import command

    guide = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "recorder.md").read_text(encoding="utf-8")
    defaults = {option.opts[0]: option.default for option in command.params}
    rows = re.findall(r"^\| `(--[a-z-]+)` \| (\S+) \|", guide, re.MULTILINE)
    assert len(rows) == 6 and all(defaults[name] == value for name, value in rows)
    assert set(re.findall(r"`(--[a-z-]+)`", guide)) <= defaults.keys()

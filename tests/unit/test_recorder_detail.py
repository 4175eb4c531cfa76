"""Detail captures: bounded in an hour, in size and in length; by hand; and what is told of them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from conftest import wait_until
from findings_synthetic import SyntheticCapture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.probes.options import PROBES, Options
from leadline.recorder import asked
from leadline.recorder import load as load_module
from leadline.recorder.asked import REQUEST, ask, take_request
from leadline.recorder.attention import Attention, Now
from leadline.recorder.detail import Bounds, Detail
from leadline.recorder.evidence import Increase, Piece
from leadline.recorder.load import Load, Step
from leadline.recorder.moments import Moment
from leadline.recorder.pieces import Pieces
from leadline.recorder.state import State, this_process, write_state
from leadline.recorder.status import as_text, status
from leadline.recorder.unusual import SESSIONS
from leadline.recorder.watch import Costs, Watch
from leadline.units import MB
from recorded_pieces import BOOT, WALL_0, small_piece

MINUTE_NS = 60 * 10**9
OPTIONS = Options(data_dir="/data", for_s=600)
FREE = 1 << 40


class Taking:
    """A process that takes a detail capture, as long as the test likes."""

    made: list[Taking]

    def __init__(self, module: str, arguments: Sequence[str], nice: int, *, told: str) -> None:
        assert module == "leadline.recorder.detailer" and nice == 0
        assert list(arguments) == [], "everybody sees them, and a connection string may have a password"
        self.wanted = json.loads(told)
        self.found: dict[str, Any] | None = None
        self.ended = self.stopped = False
        Taking.made.append(self)

    def result(self) -> dict[str, Any] | None:
        return self.found

    def finish(self, **more: Any) -> None:
        self.found = {"window_s": self.wanted["options"]["for_s"], "absent": {}, "ended_by": "", "bytes": 5, "cpu_s": 1.5} | more

    def stop(self) -> None:
        self.stopped = True
        self.finish()

    def end(self) -> None:
        self.ended = True


@pytest.fixture(autouse=True)
def taking() -> list[Taking]:
    Taking.made = []
    return Taking.made


def moment(minute: float) -> Moment:
    return Moment(WALL_0 + round(minute * MINUTE_NS), round(minute * MINUTE_NS), BOOT)


def detail(directory: Path, bounds: Bounds | None = None) -> Detail:
    return Detail(directory, bounds or Bounds(), 100 * MB, Taking)


def taken_at(of: Detail, state: dict[str, Any], minute: float, free: int = FREE) -> str:
    """One that ends before the next."""
    found = of.of(state, moment(minute), OPTIONS, "why", free)
    if Taking.made and Taking.made[-1].found is None:
        Taking.made[-1].finish()
    of.look(state, moment(minute + 1))
    return found


def test_it_takes_all_that_the_rights_allow_at_1000_passes_a_second(tmp_path: Path, taking: list[Taking]) -> None:
    state: dict[str, Any] = {}
    assert taken_at(detail(tmp_path), state, 0) == "detail/" + Path(taking[0].wanted["options"]["out"]).name
    wanted = Options(**taking[0].wanted["options"])
    wanted.check()
    assert (wanted.rate, wanted.chosen, wanted.keep_going, wanted.for_s) == (1000.0, PROBES, True, 30.0)
    assert wanted.data_dir == "/data" and wanted.recorded()["recorder"]["detail"] == "why"
    assert taking[0].wanted["most_bytes"] == 500 * MB and taking[0].wanted["free_bytes"] == 100 * MB


def test_what_it_takes_by_itself_in_any_hour_is_within_the_budget(tmp_path: Path, taking: list[Taking]) -> None:
    of, state = detail(tmp_path, Bounds(for_s=30, budget_s=120)), dict[str, Any]()
    when = [minute for minute in range(0, 240, 2) if taken_at(of, state, minute).startswith("detail/")]
    assert when == [start + n * 2 for start in (0, 60, 120, 180) for n in range(4)]
    assert all(sum(begin <= other < begin + 60 for other in when) == 4 for begin in range(180))
    assert len(taking) == len(when) == state["begun"] and state["over_budget"] == 120 - len(when)
    assert taken_at(of, state, 239) == "none: 120 s of the 120 s of an hour are used"


def test_the_budget_holds_over_restarts_and_clocks_that_are_set_back(tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    for minute in (0, 2, 4, 6):
        assert taken_at(detail(tmp_path, Bounds(30, 120)), state, minute).startswith("detail/")
    again = json.loads(json.dumps(state))
    assert taken_at(detail(tmp_path, Bounds(30, 120)), again, 8).startswith("none: ")
    assert taken_at(detail(tmp_path, Bounds(30, 120)), again, -600).startswith("none: ")


def test_a_capture_that_fails_counts_too(tmp_path: Path) -> None:
    """metrictank#426, autonity#1041: the same profile again and again."""
    of, state = detail(tmp_path, Bounds(30, 60)), dict[str, Any]()
    for minute in (0, 2, 4):
        of.of(state, moment(minute), OPTIONS, "why", FREE)
        Taking.made[-1].found = {"error": {"message": "no such server", "detail": "refused"}}
        of.look(state, moment(minute))
    assert (state["begun"], state["failed"], state["over_budget"]) == (2, 2, 1)
    assert state["taken"][-1]["status"] == "failed: no such server: refused"


def test_without_a_budget_nothing_is_taken_by_itself(tmp_path: Path, taking: list[Taking]) -> None:
    of, state = detail(tmp_path, Bounds(budget_s=0)), dict[str, Any]()
    assert taken_at(of, state, 0) == "" and taking == []


def test_what_begins_just_after_is_told_with_the_same_capture(tmp_path: Path, taking: list[Taking]) -> None:
    of, state = detail(tmp_path), dict[str, Any]()
    first = of.of(state, moment(0), OPTIONS, "why", FREE)
    assert of.of(state, moment(0.5), OPTIONS, "also", FREE) == first and len(taking) == 1
    assert of.of(state, moment(2), OPTIONS, "later", FREE) == "none: another one is being taken"


def test_the_oldest_are_removed_and_the_pieces_are_left_alone(tmp_path: Path) -> None:
    of, state = detail(tmp_path, Bounds(budget_s=3600, max_bytes=64 * MB)), dict[str, Any]()
    small_piece(tmp_path, 1, WALL_0, size=1 * MB)
    names = []
    for minute in range(0, 40, 2):
        assert taken_at(of, state, minute).startswith("detail/")
        names.append(small_piece(of.place, 0, moment(minute).wall_ns, 30, 15 * MB).name)
        assert sum(piece.bytes for piece in Pieces(of.place).read()) <= 64 * MB
    assert [piece.name for piece in Pieces(of.place).read()] == names[-4:] and state["removed"] == 16
    assert len(Pieces(tmp_path).read()) == 1


def test_a_full_disk_takes_none(tmp_path: Path, taking: list[Taking]) -> None:
    assert taken_at(detail(tmp_path), {}, 0, free=100 * MB) == "none: the disk has no room" and taking == []


def test_one_that_does_not_end_is_ended(tmp_path: Path, taking: list[Taking]) -> None:
    of, state = detail(tmp_path), dict[str, Any]()
    of.of(state, moment(0), OPTIONS, "why", FREE)
    assert not of.look(state, moment(2.4)) and not taking[0].ended
    assert of.look(state, moment(2.6)) and taking[0].ended and state["failed"] == 1


def test_the_end_of_the_recorder_keeps_what_was_taken(tmp_path: Path, taking: list[Taking]) -> None:
    of, state = detail(tmp_path), dict[str, Any]()
    of.of(state, moment(0), OPTIONS, "why", FREE)
    of.end(state, moment(0.1))
    assert taking[0].stopped and state["taken"][-1]["status"] == "complete"


# -- by hand -----------------------------------------------------------------------------------------------------------


def running(directory: Path, doing: str = "recording") -> State:
    state = State(process=this_process(), doing=doing)
    write_state(directory, state)
    return state


def answered(directory: Path, state: State, of: Detail) -> None:
    """The recorder's next looks, until it has answered."""

    def look() -> bool:
        found = of.answer(state.detail, moment(0), OPTIONS, FREE)
        if found:
            write_state(directory, state)
        return found

    wait_until(look, what="a request")


def test_who_asks_is_told_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], taking: list[Taking]) -> None:
    state, of = running(tmp_path), detail(tmp_path, Bounds(budget_s=0))
    recorder = threading.Thread(target=answered, args=(tmp_path, state, of))
    recorder.start()
    assert run(["record", "--detail", str(tmp_path), "--detail-for", "90s"]) == 0
    recorder.join()
    (made,) = taking
    assert made.wanted["options"]["for_s"] == 90 and made.wanted["options"]["out"] in capsys.readouterr().err
    assert state.detail["taken"][0]["why"] == "by hand" and state.detail["spent"] == []
    assert status(tmp_path)["others"] == [] and "by hand" in as_text(status(tmp_path))


def test_a_second_one_at_once_is_refused(tmp_path: Path) -> None:
    state, of = running(tmp_path), detail(tmp_path)
    of.of(state.detail, moment(0), OPTIONS, "why", FREE)
    recorder = threading.Thread(target=answered, args=(tmp_path, state, of))
    recorder.start()
    with pytest.raises(LeadlineError, match="a detail capture is being taken"):
        ask(tmp_path, 10)
    recorder.join()


@pytest.mark.parametrize("doing", ["ended", "none", "waiting"])
def test_no_recorder_that_records_is_a_clear_error(tmp_path: Path, doing: str, capsys: pytest.CaptureFixture[str]) -> None:
    if doing != "none":
        state = running(tmp_path, doing)
        if doing == "ended":
            write_state(tmp_path, replace(state, process={"pid": 1, "start_ticks": 1, "boot": BOOT}))
    assert run(["record", "--detail", str(tmp_path)]) == 2
    said = "the recorder records nothing at the moment" if doing == "waiting" else "no recorder runs in this directory"
    assert said in capsys.readouterr().err
    assert not (tmp_path / REQUEST).exists()


@pytest.mark.parametrize("odd", ["missing", "a file", "damaged", "binary"])
def test_an_odd_directory_to_ask_in_is_one_error(tmp_path: Path, odd: str, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "rec"
    if odd == "a file":
        directory.write_text("x")
    elif odd != "missing":
        directory.mkdir()
        (directory / "recorder.json").write_bytes(b"{" if odd == "damaged" else bytes(range(256)))
    assert run(["record", "--detail", str(directory)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "Traceback" not in said


def test_a_recorder_that_does_not_answer_gets_no_request_later(tmp_path: Path) -> None:
    running(tmp_path)
    with pytest.raises(LeadlineError, match="did not answer within"):
        ask(tmp_path, 10, answers_s=0.3)
    assert take_request(tmp_path) is None and not list(tmp_path.glob(f"{REQUEST}*"))


def test_a_request_is_taken_once_and_a_second_asker_is_told(tmp_path: Path) -> None:
    running(tmp_path)
    asked._leave(tmp_path, {"id": "a", "for_s": 5})
    with pytest.raises(LeadlineError, match="somebody else has asked"):
        ask(tmp_path, 10)
    assert take_request(tmp_path) == {"id": "a", "for_s": 5.0} and take_request(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", '{"id": "a", "for_s": 1e9}', '{"id": "a", "for_s": "x"}', '{"id": "a", "for_s": NaN}'])
def test_what_is_no_request_is_dropped(tmp_path: Path, content: str) -> None:
    (tmp_path / REQUEST).write_text(content)
    assert take_request(tmp_path) is None and list(tmp_path.iterdir()) == []


def test_a_request_of_a_recorder_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / REQUEST).write_text('{"id": "a", "for_s": 5}')
    detail(tmp_path).tidy()
    assert take_request(tmp_path) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--detail-for", "0.5s"], "no length of a detail capture"),
        (["--detail-for", "2h"], "no length of a detail capture"),
        (["--detail-budget", "10s"], "the budget is too small"),
        (["--detail-max-size", "1MB"], "too little for detail captures"),
    ],
)
def test_bounds_that_cannot_be_are_refused(tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "--host", "--to", str(tmp_path / "rec"), *arguments]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "rec").exists()


# -- together ----------------------------------------------------------------------------------------------------------


class Loads:
    """In place of `Load`: each look is a step."""

    def __init__(self) -> None:
        self.lock = 0.0

    def look(self, piece: Path) -> Step:
        return Step({SESSIONS.total: 1 + self.lock, "waits: Lock": self.lock}, 0.0, 5.0)

    def spent_s(self) -> float:
        return 0.01

    def close(self) -> None: ...


def test_an_incident_is_an_event_with_its_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taking: list[Taking]) -> None:
    monkeypatch.setenv("LEADLINE_BOOK", str(tmp_path / "book"))
    directory = tmp_path / "rec"
    directory.mkdir()
    watch = Watch(directory, 60, Taking)
    attention = Attention(directory, detail(directory), watch, print, watches=True)
    loads = Loads()
    monkeypatch.setattr(attention, "_load", loads)
    attention.begin()
    state, piece = State(), directory / "x.leadline"
    seen = [attention.look(state, Now(moment(n / 12), OPTIONS, piece, FREE)) for n in range(200)]
    assert not any(seen) and not (directory / "events.jsonl").exists()
    loads.lock = 8
    assert [attention.look(state, Now(moment(n / 12), OPTIONS, piece, FREE)) for n in (200, 201, 202)] == [False, True, False]
    loads.lock = 0
    taking[0].finish()
    assert sum(attention.look(state, Now(moment(n / 12), OPTIONS, piece, FREE)) for n in range(203, 240)) == 2  # the capture; over
    new, over = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    assert (new["id"], new["change"], new["subject"]) == ("UNUSUAL", "new", "waits: Lock")
    assert new["statement"] == (
        "8.0 sessions in the last 10 s; usual at this hour: 0.0, at most 0.0; unusual above 2.0; also active sessions 9.0 (usual: 1.0)"
    )
    assert new["measured"] == {"limit": 2.0, "usual": 0.0, "high": 0.0, "value": 8.0} and new["cost_s"] == 80
    assert new["capture"] == "detail/" + Path(taking[0].wanted["options"]["out"]).name
    assert (over["change"], over["subject"], over["since"]) == ("over", "waits: Lock", new["since"]) and "capture" not in over
    write_state(directory, state)
    text = as_text(status(directory))
    assert "UNUSUAL waits: Lock: 8.0 sessions in the last 10 s" in text and new["capture"] in text
    attention.end(state, moment(30))
    assert (directory / "baseline.json").exists() and status(directory)["others"] == []


def test_an_unusual_cost_is_of_the_time_that_was_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taking: list[Taking]
) -> None:
    """After a start or a gap, less than three minutes were seen."""
    monkeypatch.setenv("LEADLINE_BOOK", str(tmp_path / "book"))
    watch = Watch(tmp_path, 60, Taking)
    attention = Attention(tmp_path, detail(tmp_path), watch, print, watches=True)
    monkeypatch.setattr(attention, "_load", Loads())
    for n in range(30):
        monkeypatch.setattr(watch, "costs", lambda: Costs(180.0, {}))
        attention.look(State(), Now(moment(n), OPTIONS, tmp_path / "x", FREE))
    monkeypatch.setattr(watch, "costs", lambda: Costs(60.0, {"A-RULE": 0.5}))
    attention.look(State(), Now(moment(31), OPTIONS, tmp_path / "x", FREE))
    (event,) = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert (event["subject"], event["window_s"], event["cost_s"]) == ("cost of A-RULE", 60.0, 30.0)


def test_while_the_clock_is_in_doubt_nothing_is_judged_nor_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = Attention(tmp_path, detail(tmp_path), Watch(tmp_path, 60, Taking), print, watches=True)
    monkeypatch.setattr(attention, "_load", Loads())
    attention.look(State(held_s=5.0), Now(moment(0), OPTIONS, tmp_path / "x", FREE))
    assert attention._sessions.known == {}


def test_the_load_is_the_average_of_sessions_by_wait_class(tmp_path: Path) -> None:
    made = SyntheticCapture(tmp_path, seconds=6)
    for _ in range(3):
        made.sample(made.add_session(), "active", "Lock:transactionid", 0, 6)
    computes = made.add_session()
    made.sample(computes, "active", None, 0, 3)
    made.sample(computes, "idle", "Client:ClientRead", 3, 6)
    made.delta(computes, 0, 6, cpu_run_ns=10**8, cpu_queue_ns=5 * 10**8)  # each second
    piece, load = made.write(), Load(5.0, SESSIONS.total)
    step = load.look(piece)
    assert step is not None and step.seconds == pytest.approx(6, abs=0.02) and step.begun == 0
    expected = {SESSIONS.total: 3.5, "waits: Lock": 3.0, "on a CPU or queued": 0.5, "run queue": 0.5}
    assert step.values == pytest.approx(expected, abs=0.01)
    assert load.look(piece) is None and load.spent_s() > 0 and load.spent_s() == 0
    load.close()


def test_sessions_that_begin_are_counted_once_and_workers_are_not(tmp_path: Path) -> None:
    made = SyntheticCapture(tmp_path, seconds=2)
    for _ in range(3):
        made.sample(made.add_session(), "active", None, 0, 2)
    path = made.write()
    piece = Piece(path)
    assert piece.take_in(ended=False).begun == 0, "they were there before"
    (segment,) = (path / "session").glob("*.parquet")
    later = "select * replace (ts + 1000000000 as ts, session_id + {} as session_id, {} as leader_pid) from '{}'"
    again = " union all ".join(later.format(*of, segment) for of in ((0, 0), (10, 0), (20, 7)))
    duckdb.sql(f"copy ({again}) to '{segment.with_name('000002.parquet')}' (format parquet)")
    assert [piece.take_in(ended=False).begun for _ in range(2)] == [3, 0]


def test_passes_that_were_missed_take_time_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host four of five may be missed: a step lasts five seconds all the same."""
    more = Increase(100, 400, 10**9, 20, Counter({("Lock", "tuple"): 8 * 10**9}))
    monkeypatch.setattr(load_module, "newest", lambda piece: object())
    monkeypatch.setattr(load_module, "Piece", lambda path: SimpleNamespace(take_in=lambda ended: more))
    load = Load(5.0, SESSIONS.total)
    assert load.look(tmp_path) == Step({"waits: Lock": 8.0, SESSIONS.total: 8.0, "run queue": 0.0}, 4.0, 5.0)


def test_a_piece_that_cannot_be_read_yet_is_read_later(tmp_path: Path) -> None:
    load = Load(5.0, SESSIONS.total)
    assert load.look(tmp_path / "not there") is None and load.look(tmp_path / "not there") is None
    load.close()

"""leadline explore of a recorder's directory: sums of its pieces over time, gaps as gaps, and windows of it as captures."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_until
from findings_synthetic import SyntheticCapture
from leadline.book.place import find_place
from leadline.book.query import Book
from leadline.book.recorder import Recorder as Run
from leadline.capture.manifest import read_manifest, write_manifest
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.explore import overview as overview_module
from leadline.explore import windows
from leadline.explore.answers import open_explored
from leadline.explore.overview import Overview, is_recorder
from leadline.explore.windows import Windows
from leadline.recorder.events import tell
from leadline.recorder.incidents import Incident
from leadline.recorder.pieces import Gap
from recorded_pieces import BOOT, WALL_0, as_piece, begun_at

PATIENCE_S = 60


def piece(folder: Path, directory: Path, number: int, second: float, *, seconds: float = 60, active: int = 1, process: str = "1@1") -> Path:
    """A piece in which so many sessions are active all the time, half of each second in a wait for a lock."""
    with begun_at(second):
        folder.mkdir()
        cap = SyntheticCapture(folder, rate_hz=10, seconds=seconds)
        for client in range(active):
            cap.cycle(cap.add_session(pid=5000 + client), [("active", None, 5), ("active", "Lock:tuple", 5)], 0, seconds)
        if number == 2:
            cap.add("server_gap", ts_from=cap.ts(20), ts_to=cap.ts(25), cause="restart", reason="another postmaster")
        return as_piece(cap, directory, number, second, process=process)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pieces at 0 and 60 s, none from 120 to 300 s, and one of another run of the recorder at 300 s."""
    folder = tmp_path_factory.mktemp("recorder")
    for number, (second, active) in enumerate(((0, 1), (60, 2), (300, 4)), 1):
        piece(folder / str(number), folder / "shop", number, second, active=active, process="1@1" if number < 3 else "2@2")
    return folder / "shop"


@contextmanager
def over(directory: Path) -> Iterator[Overview]:
    """With all pieces read."""
    overview = Overview(directory)
    try:
        overview._thread.join(PATIENCE_S)
        yield overview
    finally:
        overview.close()


def marks_of(overview: Overview) -> dict[str, list[tuple[float, float, str]]]:
    return {
        kind["name"]: [(mark["from_s"], mark["to_s"], mark["text"]) for mark in kind["marks"]] for kind in overview.marks("")["kinds"]
    }  # fmt: skip


def test_what_a_recorder_is(directory: Path, tmp_path: Path) -> None:
    assert is_recorder(directory)
    assert not is_recorder(next(directory.glob("*.leadline"))) and not is_recorder(tmp_path) and not is_recorder(tmp_path / "nothing")


def test_the_sums_are_those_of_the_pieces(directory: Path) -> None:
    expected: dict[tuple[int, str], float] = {}
    for path in directory.glob("*.leadline"):
        explorer = open_explored(path)
        begin = int(explorer.window.began.timestamp()) - WALL_0 // 10**9 if explorer.window.began else 0
        second = f"(ts - {explorer.ts_from}) // 1000000000"
        summed = f"select {second} as s, wait_class, sum(weight_s) as w from session_sample where in_db_time group by all"
        for row in explorer.capture.rows(summed):
            key = begin + row["s"], row["wait_class"]
            expected[key] = expected.get(key, 0.0) + row["w"]
        explorer.capture.close()
    with over(directory) as overview:
        answer = overview.over_time("from=0&to=120")
        assert (answer["step_s"], answer["last"], answer["unread"], answer["pieces"]) == (0.5, 239, [], 2)
        found: dict[tuple[int, str], float] = {}
        for row in answer["rows"]:
            key = int(row["step"] * answer["step_s"]), row["wait_class"]
            found[key] = found.get(key, 0.0) + row["seconds"]
        assert found == pytest.approx({key: seconds for key, seconds in expected.items() if key[0] < 120}, rel=1e-9)
        assert sum(row["observed_s"] for row in answer["passes"]) == pytest.approx(120)


def test_a_window_of_any_length_has_steps_of_one_length(directory: Path) -> None:
    with over(directory) as overview:
        whole = overview.over_time("")
        assert (whole["from_s"], whole["to_s"], whole["step_s"]) == (0, 360, 2)
        assert sum(row["seconds"] for row in whole["rows"]) == pytest.approx(60 * (1 + 2 + 4))
        part = overview.over_time("from=310&to=320&class=Lock")
        assert {row["wait_class"] for row in part["rows"]} == {"Lock"}
        assert sum(row["seconds"] for row in part["rows"]) == pytest.approx(10 * 4 / 2)


def test_time_without_a_recorder_is_a_gap_and_a_mark(directory: Path) -> None:
    with over(directory) as overview:
        answer = overview.over_time("")
        seen = {row["step"] for row in answer["passes"]}
        assert [step for step in range(answer["last"] + 1) if step not in seen] == list(range(60, 150))
        assert marks_of(overview)["away"] == [
            (80, 85, "the server was restarted"), (120, 300, "no recorder ran"),
        ]  # fmt: skip


def test_a_change_of_the_piece_is_a_mark_only_if_a_picture_can_show_it(directory: Path) -> None:
    with over(directory) as overview:
        assert overview.base_ns == 100_000_000
        at = overview.wall_from + 10 * 10**9
        overview.gaps = [Gap(at, 0.05, "short", True), Gap(at, 0.05, "killed", False), Gap(at, 5.0, "long", True)]
        assert [text for *_, text in marks_of(overview)["away"]] == ["killed", "long", "the server was restarted"]


def at(second: float) -> int:
    return WALL_0 + round(second * 1e9)


def incident(change: str, second: float, since: float, rule: str = "UNUSUAL", subject: str = "waits: Lock", capture: str = "") -> Incident:
    return Incident(change, at(second), at(since), rule, subject, "medium", 75.7, 10.0, f"said at {second:g} s", capture=capture)


def test_events_are_marks_from_their_begin_to_their_end(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_BOOK", "off")
    copy = shutil.copytree(directory, tmp_path / "copy")
    tell({}, [
        incident("new", 40, 30, capture="detail/a.leadline"), incident("worse", 60, 30, subject="waits: IO"),
        incident("new", 70, 70, "BLOCK-CHAIN", "pid 7"), incident("new", 70, 70, "BLOCK-CHAIN", "pid 8"), incident("over", 110, 30),
        incident("over", 350, 70, "BLOCK-CHAIN", "pid 7"), incident("new", 355, 345, capture="none: the disk has no room"),
        incident("new", -900, -910),
    ], copy)  # fmt: skip
    with (copy / "events.jsonl").open("a") as out:
        out.write('{"change": "new", "at": "2025-10-09T08:5')  # as a full disk leaves it
    with over(copy) as overview:
        kinds = marks_of(overview)
        assert kinds["unusual"] == [
            (30, 110, "waits: Lock: said at 40 s; detail: detail/a.leadline"),
            (345, 355, "waits: Lock: said at 355 s; detail: none: the disk has no room; it was not over yet"),
        ]  # fmt: skip
        assert kinds["found"] == [
            (70, 70, "BLOCK-CHAIN pid 8: said at 70 s; it was not over yet"), (70, 350, "BLOCK-CHAIN pid 7: said at 70 s"),
        ]  # fmt: skip
        monkeypatch.setattr(overview_module, "MOST", 1)
        [unusual] = [kind for kind in overview.marks("")["kinds"] if kind["name"] == "unusual"]
        assert (unusual["there"], [mark["from_s"] for mark in unusual["marks"]]) == (2, [30]), "the longest"


def test_detail_captures_are_marks_with_the_command_that_opens_them(directory: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(directory, tmp_path / "copy")
    path = piece(tmp_path / "made", copy / "detail", 1, 45, seconds=20)
    manifest = read_manifest(path)
    manifest.options["recorder"] = {"detail": "waits: Lock: 7.6 sessions", "boot": BOOT}
    write_manifest(path, manifest)
    with over(copy) as overview:
        assert marks_of(overview)["detail"] == [(45, 65, f"waits: Lock: 7.6 sessions; leadline explore {path}")]
        assert sum(row["seconds"] for row in overview.over_time("")["rows"]) == pytest.approx(60 * (1 + 2 + 4)), "no part of the sums"


def test_runs_with_labels_are_marks(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_BOOK", str(tmp_path / "book"))
    with over(directory) as overview:
        assert overview.marks("")["kinds"][-1]["why"] == "no logbook is read here"
        runs = [
            ("command", "deploy", {"release": "7.2", "blue": ""}, 10, 20), ("ansible", "site.yml", {"release": "7.3"}, 310, 330),
            ("command", "plain", {}, 15, 16), ("finding", "UNUSUAL new", {"rule": "UNUSUAL"}, 15, 16),
            ("command", "before", {"release": "7.1"}, -10, -5),
        ]  # fmt: skip
        for kind, name, labels, _, _ in runs:
            run_of = Run(find_place())
            run_of.begin(kind, name, ["true"], labels=labels)
            run_of.end(0 if name != "site.yml" else 1)
        book = Book()
        with book.store.writing() as db:
            for _, name, _, begun, ended in runs:
                db.execute("update run set started = ?, ended = ? where name = ?", (at(begun) // 1000, at(ended) // 1000, name))
        book.close()
        assert marks_of(overview)["labelled"] == [(10, 20, "deploy: blue release=7.2 (ok)"), (310, 330, "site.yml: release=7.3 (failed)")]


def test_a_logbook_that_cannot_be_read_is_said(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "book").mkdir(mode=0o700)
    (tmp_path / "book" / "book.sqlite").write_text("no database" * 100)
    monkeypatch.setenv("LEADLINE_BOOK", str(tmp_path / "book"))
    with over(directory) as overview:
        kinds = overview.marks("")["kinds"]
        assert "cannot be opened" in kinds[-1]["why"] and kinds[-1]["marks"] == []
        assert len(kinds[0]["marks"]) == 2, "the others are there"


def test_what_is_not_read_yet_is_no_gap(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, order = threading.Event(), list[str]()
    read = Overview._read

    def slow(self: Overview, one: Any) -> Any:
        order.append(one.name)
        go.wait(PATIENCE_S)
        return read(self, one)

    monkeypatch.setattr(Overview, "_read", slow)
    overview = Overview(directory)
    wait_until(lambda: order, what="the first piece is being read")
    answer = overview.over_time("from=0&to=60")
    assert (answer["unread"], answer["rows"], answer["passes"]) == ([[0, 60]], [], [])
    go.set()
    overview._thread.join(PATIENCE_S)
    newest, oldest, between = (sorted(path.name for path in directory.glob("*.leadline"))[n] for n in (2, 0, 1))
    assert order == [newest, oldest, between]  # the first before anybody looked, then what is looked at
    overview.close()


def test_a_damaged_piece_is_named_and_the_others_are_shown(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    first, second, _ = sorted(copy.glob("*.leadline"))
    (first / "manifest.json").write_text("{")
    for segment in (second / "session_run").glob("*.parquet"):
        segment.write_bytes(b"PAR1" + bytes(100))
    with over(copy) as overview:
        notes = overview.about("")["notes"]
        assert [note.split(" cannot")[0] for note in notes[1:]] == [first.name, second.name]
        assert sum(row["seconds"] for row in overview.over_time("")["rows"]) == pytest.approx(240)


def test_an_overview_has_no_other_filters(directory: Path) -> None:
    with over(directory) as overview, pytest.raises(LeadlineError, match="the overview of a recorder has no application"):
        overview.over_time("application=web")


def test_a_directory_without_a_piece_is_one_error(tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(directory, broken)
    for path in broken.glob("*.leadline"):
        (path / "manifest.json").write_text("{")
    assert run(["explore", str(broken), "--no-browser"]) == 2
    assert capsys.readouterr().err.count("error: the recorder has no piece to explore") == 1
    [first, *_] = directory.glob("*.leadline")
    for of in (directory, first):
        assert run(["explore", str(of), "--with", str(directory), "--no-browser"]) == 2
        assert "hint: leadline explore DIR shows a recorder" in capsys.readouterr().err


# -- windows -----------------------------------------------------------------------------------------------------------


def name_of(first: float, last: float) -> str:
    return f"{WALL_0 / 1e9 + first:.3f}-{WALL_0 / 1e9 + last:.3f}"


@pytest.fixture
def opened(directory: Path) -> Iterator[Windows]:
    made = Windows(directory)
    yield made
    scratch = made._scratch
    made.close()
    assert not scratch.exists()


def test_a_window_over_two_pieces_is_one_capture(opened: Windows, directory: Path) -> None:
    explorer = opened.opening(name_of(50, 70)).get().explorer
    assert (explorer.ts_to - explorer.ts_from) / 1e9 == pytest.approx(20)
    assert explorer.capture.scalar("select sum(weight_s) from db_time") == pytest.approx(10 * 1 + 10 * 2)
    [note] = explorer.notes
    assert f"leadline take --from-recorder {directory} --between 2025-10-09T08:54:10" in note


def test_the_command_that_keeps_a_window_makes_the_same_capture(
    opened: Windows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explorer = opened.opening(name_of(55.5, 64.25)).get().explorer
    [note] = explorer.notes
    words = note.split("keep it: leadline ")[1].replace("NAME", str(tmp_path / "kept")).split()
    assert run(words) == 0
    capsys.readouterr()
    query = "select count(*) as passes, min(ts) as first, max(ts) as last from tick"
    assert run(["sql", str(tmp_path / "kept.leadline"), query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == explorer.capture.rows(query)


def test_a_window_in_a_gap_is_an_error_that_is_tried_again(opened: Windows) -> None:
    first = opened.opening(name_of(130, 200))
    with pytest.raises(LeadlineError, match="nothing was recorded in this window"):
        first.get()
    assert opened.opening(name_of(130, 200)) is not first


def test_few_windows_stay_open(opened: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_OPEN", 2)
    a, b, c = (name_of(at, at + 5) for at in (0, 10, 20))
    first = opened.opening(a)
    first.get()
    opened.opening(b).get()
    assert opened.opening(a) is first  # and now b is the one asked for longest ago
    opened.opening(c).get()
    assert sorted(opened._open) == [a, c] and sorted(path.name for path in opened._scratch.iterdir()) == [a, c]


NO_WINDOW = (
    *("", "1-2", "1.000-", "2.000-1.000", "99999999999.000-99999999999.001", "../../etc", "1.000-2.000x"),
    *("1.000-2.000~", "1.000-2.000~4.000-3.000", "1.000-2.000~3.000-4.000~5.000-6.000"),
)


@pytest.mark.parametrize("name", NO_WINDOW)
def test_a_name_that_is_no_window_is_refused(opened: Windows, name: str) -> None:
    with pytest.raises(LeadlineError, match=r"no window of the recorder|ends before it begins"):
        opened.opening(name)
    assert list(opened._scratch.iterdir()) == []


# -- a window beside another one ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One session active a day before, three now; the piece of the day before begins 10 s late."""
    folder = tmp_path_factory.mktemp("days")
    for number, (second, active, seconds) in enumerate(((10, 1, 50), (86_400, 3, 60)), 1):
        piece(folder / str(number), folder / "shop", number + 2, second, active=active, seconds=seconds)
    return folder / "shop"


def active_in(answer: dict[str, Any]) -> list[float]:
    return [window["sessions"] for window in answer["windows"]]


def test_a_window_is_compared_with_the_same_time_a_day_before(days: Path) -> None:
    windows = Windows(days)
    alone = windows.opening(name_of(86_400, 86_440)).get()
    [earlier] = alone.about("")["earlier"]
    assert earlier == {"words": "a day before", "window": f"{name_of(86_400, 86_440)}~{name_of(0, 40)}"}
    assert alone.about("")["other"] is None
    both = windows.opening(earlier["window"]).get()
    assert both.about("")["other"]["window_s"] == pytest.approx(30, abs=0.1), "from where it was recorded on"
    answer = both.compare("vs=all&by=event")
    assert active_in(answer) == pytest.approx([3, 1])
    assert {row["label"]: (row["a"], row["b"]) for row in answer["rows"]} == {
        "CPU": pytest.approx((1.5, 0.5)), "Lock:tuple": pytest.approx((1.5, 0.5)),
    }  # fmt: skip
    windows.close()


def test_the_same_seconds_are_those_of_the_wall_clock(days: Path) -> None:
    """The copy of the day before has nothing of its first 10 s, which begins 10 s later for that."""
    windows = Windows(days)
    both = windows.opening(f"{name_of(86_400, 86_440)}~{name_of(0, 40)}").get()
    for query, expected in (("from=15&to=25&vs=same", (5, 15)), ("from=5&to=25&vs=same", (0, 15)), ("vs=same", (0, 30))):
        _, there = both.compare(query)["windows"]
        assert (there["from_s"], there["to_s"]) == pytest.approx(expected, abs=0.11), query
    with pytest.raises(LeadlineError, match="has nothing of the same seconds"):
        both.compare("from=1&to=9&vs=same")
    windows.close()


def test_windows_of_a_recorder_are_compared_with_a_capture(days: Path, directory: Path) -> None:
    before = sorted(directory.glob("*.leadline"))[1]
    windows = Windows(days, before)
    shown = windows.opening(name_of(86_400, 86_440)).get()
    assert shown.about("")["other"]["name"] == before.name
    assert active_in(shown.compare("vs=all")) == pytest.approx([3, 2])
    own = windows.opening(f"{name_of(86_400, 86_440)}~{name_of(20, 40)}").get()
    assert active_in(own.compare("vs=all")) == pytest.approx([3, 1]), "a window that the address names goes first"
    windows.close()
    assert before.is_dir(), "only copies are removed"


def test_a_factor_that_is_none_is_told_where_a_window_is_opened(days: Path, directory: Path) -> None:
    windows = Windows(days, sorted(directory.glob("*.leadline"))[1], ["nothing_like_it"])
    with pytest.raises(LeadlineError, match="nothing_like_it"):
        windows.opening(name_of(86_400, 86_440)).get()
    assert list(windows._scratch.iterdir()) != []
    windows.close()
    assert not windows._scratch.exists()


def test_the_overview_keeps_which_window_another_is_chosen_for(directory: Path) -> None:
    with over(directory) as overview:
        assert overview.over_time(f"from=0&to=60&beside={name_of(60, 70)}")["pieces"] == 1

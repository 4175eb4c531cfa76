"""Recorders that are registered: the same answers as `leadline explore DIR`, pieces that come later, and nothing that is left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from example_capture import example
from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.explore.answers import open_explored
from leadline.explore.overview import OF_RECORDER, Overview
from leadline.explore.shown import ANSWERS, Shown
from leadline.recorder.pieces import Pieces, first_second
from leadline.recorder.window import take_window
from leadline.server.operation import perform
from leadline.server.read import exploring, sandbox
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME
from recorded_pieces import WALL_0, as_piece, begun_at

SECOND = WALL_0 // 10**9


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "book")


@pytest.fixture
def store(place: Place) -> Store:
    return Store(place)


@pytest.fixture(autouse=True)
def readers() -> Iterator[None]:
    """None stays."""
    yield
    while exploring._readers:
        exploring._readers.popitem()[1].end()


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where processes write what is theirs."""
    found = tmp_path / "scratch"
    found.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


def add_piece(directory: Path, number: int, second: float) -> Path:
    with begun_at(second):
        folder = directory.parent / f"made{number}"
        folder.mkdir()
        return as_piece(example(folder), directory, number, second)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "rec" / "shop"
    found.parent.mkdir()
    for number, second in ((1, 0), (2, 60)):
        add_piece(found, number, second)
    return found.resolve()


def do(place: Place, store: Store, operation: str, **given: Any) -> Any:
    return perform(BY_NAME[operation], OWNER, store, place, given)


def registered(place: Place, store: Store, directory: Path) -> None:
    assert do(place, store, "recorder.register", recorder="shop", project="main", directory=str(directory)) == {"recorder": "shop"}


def asked(place: Place, store: Store, window: str, question: str, state: str = "") -> Any:
    return do(place, store, "recorder.explore", recorder="shop", window=window, question=question, state=state)


def whole(place: Place, store: Store) -> str:
    return str(do(place, store, "recorder.begin", recorder="shop")["second"])


def same(value: Any) -> Any:
    """Sums of doubles depend on the order of the rows in the last of their digits."""
    if isinstance(value, dict):
        return {name: same(one) for name, one in value.items()}
    return [same(one) for one in value] if isinstance(value, list) else round(value, 9) if isinstance(value, float) else value


def test_all_of_it_is_answered_as_without_a_server(
    place: Place, store: Store, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("LEADLINE_BOOK", "off")  # as in the process that reads for a server: runs of others are nobody's business
    registered(place, store, directory)
    origin = whole(place, store)
    assert int(origin) == first_second(directory) == SECOND
    overview = Overview(directory, int(origin) * 10**9)
    overview._thread.join(60)
    while asked(place, store, origin, "time")["unread"]:
        pass  # the pieces are read one after the other
    for question, answer in OF_RECORDER.items():
        state = "from=10&to=80" if question == "time" else ""
        told, expected = asked(place, store, origin, question, state), answer(overview, state)
        assert same(told) == same(expected), question
    overview.close()
    with pytest.raises(LeadlineError, match="has no ranking: open a window"):
        asked(place, store, origin, "ranking")
    with pytest.raises(LeadlineError, match="nothing that the page shows"):
        asked(place, store, origin, "time", "colour=red")


def test_a_window_is_answered_as_the_capture_that_it_is(place: Place, store: Store, directory: Path, tmp_path: Path) -> None:
    registered(place, store, directory)
    window = f"{SECOND + 50}.000-{SECOND + 75}.500"
    start, end = (datetime.fromtimestamp(SECOND + second, UTC) for second in (50, 75.5))
    shown = Shown.of(open_explored(take_window(directory, start, end, tmp_path / "w.leadline")))
    for question, answer in ANSWERS.items():
        if question in ("about", "compare", "findings", "findings-of"):
            continue
        told, expected = asked(place, store, window, question), answer(shown, "")
        assert same(told) == same(expected), question
    about = asked(place, store, window, "about")
    assert about["window_s"] == pytest.approx(25.5, abs=0.2) and "on the host of the recorder" in " ".join(about["notes"])
    found = asked(place, store, window, "findings")["findings"]
    assert found and [f["id"] for f in found] == [f["id"] for f in shown.explorer.findings()["findings"]]
    shown.explorer.capture.close()


def test_a_window_is_compared_with_another_one_of_the_recorder(place: Place, store: Store, directory: Path) -> None:
    registered(place, store, directory)
    one, other = (f"{SECOND + low}.000-{SECOND + high}.000" for low, high in ((70, 80), (20, 40)))
    assert asked(place, store, one, "about")["other"] is None
    assert asked(place, store, f"{one}~{other}", "about")["other"]["window_s"] == pytest.approx(20, abs=0.2)
    told = asked(place, store, f"{one}~{other}", "compare", "vs=all&by=class")
    for window, of in zip(told["windows"], (one, other)):
        alone = asked(place, store, of, "ranking", "by=class")
        assert window["sessions"] == pytest.approx(alone["total_s"] / window["observed_s"])
    with pytest.raises(LeadlineError, match="the window ends before it begins"):
        asked(place, store, f"{one}~{SECOND + 9}.000-{SECOND + 8}.000", "about")


def test_pieces_that_come_later_are_there_when_the_page_is_loaded_again(place: Place, store: Store, directory: Path) -> None:
    """And an address means the same when the first pieces are gone: its time is counted from the second that it names."""
    registered(place, store, directory)
    origin = whole(place, store)
    before = asked(place, store, origin, "about")
    while asked(place, store, origin, "time")["unread"]:
        pass
    add_piece(directory, 3, 200)
    after = asked(place, store, origin, "about")
    assert (before["pieces"], after["pieces"]) == (2, 3) and after["epoch_s"] == before["epoch_s"] == SECOND
    assert after["window_s"] - before["window_s"] == pytest.approx(140, abs=0.1)
    first = Pieces(directory).read()[0]
    Pieces(directory).remove(first)
    assert whole(place, store) == str(SECOND + 60)
    while asked(place, store, origin, "time")["unread"]:
        pass
    later = asked(place, store, origin, "about")
    assert (later["pieces"], later["epoch_s"]) == (2, SECOND)
    time = asked(place, store, origin, "time", "from=0&to=60")
    assert time["pieces"] == 0 and time["rows"] == []


def test_what_a_reader_has_written_goes_with_it(place: Place, store: Store, directory: Path, scratch: Path) -> None:
    registered(place, store, directory)
    asked(place, store, f"{SECOND}.000-{SECOND + 5}.000", "about")
    [reader] = exploring._readers.values()
    assert any(scratch.glob(f"{sandbox.SCRATCH}*/leadline-explore-*/*/*.leadline"))
    reader.end()
    assert list(scratch.iterdir()) == []
    exploring._readers.clear()
    asked(place, store, f"{SECOND}.000-{SECOND + 5}.000", "about")
    [reader] = exploring._readers.values()
    assert reader._process.stdin is not None
    reader._process.stdin.close()  # as when the server is killed
    assert reader._process.wait(60) == 0 and list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"directory": "rec/shop"}, "not an absolute path"),
        ({"directory": "{tmp}/none"}, "cannot read the directory"),
        ({"directory": "{tmp}/rec"}, "nothing was recorded"),
        ({"directory": "{tmp}/rec/shop", "project": "none"}, "no project none"),
        ({"directory": "{tmp}/rec/shop", "recorder": "Shop"}, "does not have the form"),
        ({"directory": "{tmp}/several"}, "the recorders of several servers"),
    ],
)
def test_what_cannot_be_registered(
    place: Place, store: Store, directory: Path, tmp_path: Path, given: dict[str, str], says: str
) -> None:  # fmt: skip
    (tmp_path / "several" / "a").mkdir(parents=True)
    (tmp_path / "several" / "a" / "recorder.json").write_text("{}")
    wanted = {"recorder": "shop", "project": "main"} | {name: text.format(tmp=tmp_path) for name, text in given.items()}
    with pytest.raises(LeadlineError, match=says):
        do(place, store, "recorder.register", **wanted)
    assert do(place, store, "recorder.list") == {"recorders": []}


def test_a_name_is_given_once_and_free_again(place: Place, store: Store, directory: Path, tmp_path: Path) -> None:
    registered(place, store, directory)
    with pytest.raises(LeadlineError, match="there is a recorder shop already"):
        registered(place, store, directory)
    assert do(place, store, "recorder.remove", recorder="shop") == {"removed": "shop"}
    assert len(Pieces(directory).read()) == 2, "what it has recorded stays"
    for operation in ("recorder.remove", "recorder.begin"):
        with pytest.raises(LeadlineError, match="there is no recorder shop"):
            do(place, store, operation, recorder="shop")
    link = tmp_path / "link"
    link.symlink_to(directory)
    registered(place, store, link)
    [row] = do(place, store, "recorder.list")["recorders"]
    assert row["directory"] == os.path.realpath(directory), "where it was when it was registered, whatever the link names later"


def test_a_recorder_goes_with_its_project_and_a_directory_that_is_gone_is_told(place: Place, store: Store, directory: Path) -> None:
    do(place, store, "user.project", project="gone")
    do(place, store, "recorder.register", recorder="old", project="gone", directory=str(directory))
    do(place, store, "user.delete-project", project="gone")
    assert do(place, store, "recorder.list") == {"recorders": []}
    registered(place, store, directory)
    origin = whole(place, store)
    shutil.rmtree(directory)
    for question in ("opening", "time"):
        with pytest.raises(LeadlineError, match="no longer exists"):
            asked(place, store, origin, question)


@pytest.mark.parametrize("window", ["", "-5", "1.5", "12.000-", f"{SECOND}-{SECOND + 5}", "../x", "5.000-4.000"])
def test_what_is_no_window_is_refused(place: Place, store: Store, directory: Path, window: str) -> None:
    registered(place, store, directory)
    with pytest.raises(LeadlineError) as refused:
        asked(place, store, window, "about")
    assert refused.value.kind == "usage"

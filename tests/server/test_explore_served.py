"""The page of `leadline explore` for captures of runs: the same answers as without a server, and readers that end without harm."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.explore.answers import open_explored
from leadline.explore.shown import ANSWERS, Shown
from leadline.server.operation import perform
from leadline.server.read import exploring, runs, sandbox
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME

WHOLE = Path(__file__).resolve().parents[2] / "testdata" / "capture" / "format1"
STATE = "from=0.5&to=2&by=session"


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


def made(place: Place, store: Store, capture: Path) -> dict[str, Any]:
    """Inputs that name a capture of a run."""
    recorder = Recorder(place)
    recorder.begin("leadline", "take", ["leadline", "take"])
    recorder.artifact("capture", capture)
    recorder.end(0)
    ingest(place, store)
    runs.assign(store)
    [file] = perform(BY_NAME["run.show"], OWNER, store, place, {"run": recorder.uid})["run"]["artifacts"]
    return {"run": recorder.uid, "n": file["n"]}


def copied(folder: Path, name: str = "kept") -> Path:
    return Path(shutil.copytree(WHOLE, folder.resolve() / f"{name}.leadline"))


def asked(place: Place, store: Store, of: dict[str, Any], question: str, state: str = "") -> Any:
    return perform(BY_NAME["run.explore"], OWNER, store, place, {**of, "question": question, "state": state})


def test_each_question_is_answered_as_without_a_server(place: Place, store: Store, tmp_path: Path) -> None:
    assert set(exploring.QUESTIONS) == {*ANSWERS, "opening"}
    capture = copied(tmp_path)
    of, shown = made(place, store, capture), Shown.of(open_explored(capture))
    for question, answer in ANSWERS.items():
        state = STATE + "&vs=0-0.5" * (question == "compare") if question not in ("about", "marks", "findings") else ""
        assert asked(place, store, of, question, state) == answer(shown, state), question
    assert asked(place, store, of, "opening")["ready"] is True
    assert len(exploring._readers) == 1
    shown.explorer.capture.close()
    with pytest.raises(LeadlineError, match="nothing that the page shows") as refused:
        asked(place, store, of, "time", "from=1&colour=red")
    assert refused.value.kind == "usage"


def test_a_reader_that_was_killed_is_begun_again(place: Place, store: Store, tmp_path: Path) -> None:
    of = made(place, store, copied(tmp_path))
    about = asked(place, store, of, "about")
    [reader] = exploring._readers.values()
    os.kill(reader._process.pid, signal.SIGKILL)
    reader._process.wait()
    assert asked(place, store, of, "about") == about
    assert [reader] != list(exploring._readers.values())


def test_the_reader_that_was_asked_last_stays_longest(place: Place, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploring, "MOST_OPEN", 2)
    first, second, third = (made(place, store, copied(tmp_path, name)) for name in ("first", "second", "third"))
    asked(place, store, first, "opening")
    asked(place, store, second, "opening")
    oldest, newest = exploring._readers.values()
    asked(place, store, first, "opening")
    asked(place, store, third, "opening")
    assert (oldest._process.poll(), newest._process.poll()) == (None, -signal.SIGKILL)
    assert next(iter(exploring._readers.values())) is oldest and len(exploring._readers) == 2


def test_an_answer_that_takes_too_long_ends_its_reader(place: Place, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(place, store, copied(tmp_path))
    monkeypatch.setattr(sandbox, "PATIENCE_S", 0.001)
    with pytest.raises(LeadlineError, match="within the bounds of a server") as told:
        asked(place, store, of, "about")
    assert told.value.detail == "It took more than 0.001 s." and "leadline explore CAPTURE" in told.value.hint


def test_a_capture_that_is_gone_or_is_none_is_told(place: Place, store: Store, tmp_path: Path) -> None:
    capture = copied(tmp_path)
    of = made(place, store, capture)
    (capture / "manifest.json").write_text("{")
    with pytest.raises(LeadlineError, match="manifest"):
        asked(place, store, of, "about")
    shutil.rmtree(capture)
    with pytest.raises(LeadlineError, match="no longer exists"):
        asked(place, store, of, "about")

"""`leadline top`: its temporary folder, names that come later, and arguments that cannot be."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from conftest import wait_until
from findings_synthetic import SyntheticCapture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.top import directory, engine, names
from top_parts import at, live_of


def test_the_temporary_folder_goes_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), directory.temporary_directory(tmp_path) as made:
        assert made.stat().st_mode & 0o777 == 0o700
        (made / "x").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_view_left_is_removed_and_a_running_one_is_not(tmp_path: Path) -> None:
    with directory.temporary_directory(tmp_path) as running:
        left = tmp_path / "leadline-top-left"
        left.mkdir()
        (left / directory.LOCK).touch()
        other = tmp_path / "leadline-top-other"
        other.mkdir()  # without a lock: it may just be being made
        with directory.temporary_directory(tmp_path):
            assert running.exists() and not left.exists() and other.exists()


def test_the_folder_is_in_memory_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "SHARED_MEMORY", tmp_path)
    assert directory.parent() == tmp_path
    monkeypatch.setattr(directory, "ROOM_BYTES", 1 << 60)
    assert directory.parent() == Path(tempfile.gettempdir())
    monkeypatch.setattr(directory, "SHARED_MEMORY", tmp_path / "absent")
    assert directory.parent() == Path(tempfile.gettempdir())
    with pytest.raises(LeadlineError) as caught, directory.temporary_directory(tmp_path / "absent"):
        pass
    assert caught.value.kind == "storage"


def test_names_are_read_again_for_numbers_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "UNKNOWN_AFTER_S", 0.01)
    asked: list[set[int]] = []

    def read(databases: set[int]) -> names.Rows:
        asked.append(databases)
        if len(asked) == 2:
            raise LeadlineError("connection", "too many clients")
        return {"role": [(10, f"reading {len(asked)}")], "setting": []}

    reader = names.Names(tmp_path, read)
    reader.start()
    wait_until(reader.first.is_set, what="the first reading")
    first = wait_until(reader.take, what="the first names")
    assert sorted(p.parent.name for p in first.glob("*/*.parquet")) == ["role"]
    reader.ask({(5, 100)})
    wait_until(lambda: reader.failed == "too many clients", what="the failed reading")
    reader.ask({(5, 100)})  # asked before: no new reading for it
    reader.ask({(6, 100)})
    wait_until(reader.take, what="the third reading")
    assert reader.failed == "" and asked == [set(), {5}, {5, 6}]
    wait_until(lambda: not reader._wake.is_set(), what="the reader's rest")
    reader.ask({(5, 100), (6, 100)})
    assert not reader._wake.is_set()
    reader.close()


def test_very_many_sessions_shorten_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap = SyntheticCapture(tmp_path, seconds=60)
    cap.sample(cap.add_session(), "active", None, 0, 60)
    made = engine.Engine.__new__(engine.Engine)
    made.live, made._held, made.keep_s = live_of(cap.write()), None, engine.KEEP_S
    made._trim()
    assert made.keep_s == engine.KEEP_S and made.live.extent() == (at(0), at(60))
    monkeypatch.setattr(engine, "MOST_SAMPLES", 4000)
    made._trim()
    assert made.keep_s == pytest.approx(30) and made.live.extent() == (at(20), at(60))


@pytest.mark.parametrize(
    ("arguments", "kind", "hint"),
    [
        (["--rate", "200"], "usage", "leadline take allows more"),
        (["--refresh", "100ms"], "usage", "--refresh"),
        (["--window", "1h"], "usage", "leadline take records longer"),
        (["--json"], "usage", "--once"),
        ([], "usage", "use --once to print one frame"),
        (["--once", "999999999"], "not_found", ""),
    ],
)
def test_what_cannot_be_is_one_error(arguments: list[str], kind: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = [] if "999999999" in arguments else [str(os.getpid())]
    assert run(["top", *target, *arguments]) == 2
    said = capsys.readouterr()
    if "--json" in arguments:
        assert json.loads(said.out)["error"]["kind"] == kind
    else:
        assert said.err.startswith("error: ") and hint in said.err and "Traceback" not in said.err

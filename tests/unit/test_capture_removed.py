"""A capture that is removed while it is read, as a recorder does with its oldest pieces: one clear error, at whatever moment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture import hold, reader
from leadline.capture.manifest import read_manifest, write_manifest
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.recorder.pieces import read_piece
from recorded_pieces import as_piece


@pytest.fixture
def piece(tmp_path: Path) -> Path:
    """As a recorder that was killed leaves it: how far it reaches, its rows say."""
    made = SyntheticCapture(tmp_path, seconds=10)
    made.sample(made.add_session(), "active", None, 0, 10)
    path = as_piece(made, tmp_path / "shop", 1, 0)
    manifest = read_manifest(path)
    manifest.status = "recording"
    write_manifest(path, manifest)
    return path


def removing(path: Path, create: Callable[..., Any]) -> Callable[..., Any]:
    """The same, after the capture has gone."""

    def of(*words: Any, **named: Any) -> Any:
        shutil.rmtree(path, ignore_errors=True)
        return create(*words, **named)

    return of


def test_views_that_are_made_when_they_are_needed(piece: Path) -> None:
    with closing(open_capture(piece)) as capture:
        shutil.rmtree(piece)
        with pytest.raises(LeadlineError, match="the capture was removed while it was read") as caught:
            capture.scalar("select ts_to from capture")
        assert caught.value.where == str(piece)


@pytest.mark.parametrize(("room", "name"), [(reader, "_create_rows"), (hold, "_create_rows")], ids=["a table", "a view"])
def test_when_everything_is_made_at_once(piece: Path, monkeypatch: pytest.MonkeyPatch, room: Any, name: str) -> None:
    monkeypatch.setattr(room, name, removing(piece, getattr(room, name)))
    with pytest.raises(LeadlineError, match="the capture was removed while it was read"):
        open_capture(piece, whole=True)


def test_segments_that_have_gone_from_a_capture_that_is_there(piece: Path) -> None:
    with closing(open_capture(piece, whole=True)) as capture:
        shutil.rmtree(piece / "session_run")
        with pytest.raises(LeadlineError, match="the query failed"):
            capture.scalar("select count(*) from session_sample")


def test_a_piece_that_goes_while_it_is_looked_at_is_none_that_can_be_read(piece: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = reader._create_rows
    monkeypatch.setattr(reader, "_create_rows", removing(piece, create))
    found = read_piece(piece)
    assert (found.status, found.ts_to) == ("interrupted", None)

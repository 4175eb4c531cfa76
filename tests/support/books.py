"""Fixtures: a book of its own for a test, once with SQLite and once with PostgreSQL as its store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.book.place import VARIABLE, Place, find_place
from leadline.book.query import Book

Run = Callable[..., subprocess.CompletedProcess[str]]
Open = Callable[[], Book]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The place of a book that LEADLINE_BOOK names too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LEADLINE_RUN", raising=False)
    name = str(tmp_path / "book")
    if request.param == "postgresql":
        server = request.getfixturevalue("servers")(18)
        server.sql("drop schema if exists leadline_book cascade")
        name = f"postgresql://postgres@/postgres?host={server.private.socket_dir}&port={server.private.port}"
    monkeypatch.setenv(VARIABLE, name)
    found = find_place()
    assert found is not None
    return found


@pytest.fixture
def open_book(place: Place) -> Iterator[Open]:
    """open_book(): the book as it is now."""
    opened: list[Book] = []

    def open_now() -> Book:
        opened.append(Book(place))
        return opened[-1]

    yield open_now
    for one in opened:
        one.close()


@pytest.fixture
def leadline(place: Place) -> Run:
    """leadline("tables", "session"): the command, recorded in the book of this test."""

    def call(*words: Any, **more: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "leadline", *(str(word) for word in words)]
        environment = os.environ | more.pop("env", {})
        return subprocess.run(command, **{"capture_output": True, "text": True, "timeout": 60, "env": environment, "check": False} | more)

    return call

"""Filters give the same runs in each form of their query: one for what many runs have, one for what few have."""

from __future__ import annotations

import random

import pytest
from books import Open
from leadline.book.place import Place
from leadline.book.query import Filter
from leadline.book.recorder import Recorder

WORDS = ["load", "loader", "reload", "index", "in", "i", "7", "70", "straße", "данные", "café", "cafe"]
FILTERS = [
    *(Filter(words=word) for word in [*WORDS, "LOAD", "inde", "str", "x"]),
    Filter(words="load i"), Filter(words="7 index load"), Filter(words="load", status="failed"),
    Filter(labels=(("a", None),)),
    Filter(labels=(("a", "1"),)), Filter(labels=(("a", "1"), ("b", "2"))), Filter(labels=(("a", "9"),)),
    Filter(status="failed", name="load"),
    Filter(words="i", labels=(("a", "1"),), kind="command"),
]  # fmt: skip


@pytest.fixture
def filled(place: Place, open_book: Open) -> list[dict[str, object]]:
    made = random.Random(3)
    for _ in range(60):
        recorder = Recorder(place)
        labels = {key: str(made.randrange(3)) for key in ("a", "b") if made.random() < 0.7}
        recorder.begin("command", made.choice(WORDS), ["do", *made.sample(WORDS, 3)], labels=labels)
        recorder.summary(made.choice(WORDS))
        recorder.end(made.choice((0, 1)))
    book = open_book()
    return [book.details(run) for run in book.runs(limit=100)]


def meets(run: dict[str, object], wanted: Filter) -> bool:
    has = " ".join([str(run["name"]), *map(str, run["argv"]), str(run["summary"])]).lower().split()  # type: ignore[call-overload]
    labels: dict[str, str] = run["labels"]  # type: ignore[assignment]
    return (
        all(any(word.startswith(begun) for word in has) for begun in wanted.words.lower().split())
        and all(key in labels and value in (None, labels[key]) for key, value in wanted.labels)
        and wanted.status in (None, run["status"])
        and wanted.name in (None, run["name"])
    )


@pytest.mark.parametrize("many", [0, 10**9])
def test_each_form_finds_what_a_look_at_every_run_finds(
    filled: list[dict[str, object]], open_book: Open, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.book.query.MANY", many)
    book = open_book()
    assert len(filled) == 60
    for wanted in FILTERS:
        expected = [run["uid"] for run in filled if meets(run, wanted)]
        assert [run["uid"] for run in book.runs(wanted, 100)] == expected, wanted
    assert sum(bool([run for run in filled if meets(run, wanted)]) for wanted in FILTERS) > 15

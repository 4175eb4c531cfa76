"""Which majors of PostgreSQL a run tests: of each test the oldest and the newest, of one test in three also one of those between.

What lies between is drawn by a seed:

    LEADLINE_TEST_MAJORS=all    all of them, as `make test-all-servers` does
    LEADLINE_TEST_SEED=TEXT     draws as the run did that printed this seed; without it, each day draws others

A case that is named on the command line (`test_x.py::test_y[16]`) always runs.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from servers import MAJORS

ALL = os.environ.get("LEADLINE_TEST_MAJORS") == "all"
SEED = os.environ.setdefault("LEADLINE_TEST_SEED", f"{datetime.now(UTC):%Y-%m-%d}")  # the processes that share the tests draw alike
NAMES = ("major", "pg", "made", "indexed", "prepared", "server")
"""Of parameters and fixtures whose value is a major."""
ONE_IN = 3  # tests that also run on a major between the oldest and the newest


def drawn(majors: Iterable[int], of: str, seed: str = SEED) -> set[int]:
    """The first, the last, and of one test in ONE_IN one between."""
    ordered, random = sorted(majors), Random(f"{seed} {of}")
    between = ordered[1:-1] if random.randrange(ONE_IN) == 0 else []
    return {ordered[0], ordered[-1], *random.sample(between, min(1, len(between)))}


def split(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """What is run, and what is left out."""
    majors = {item: major for item in items if (major := _major(item))}
    of_test: defaultdict[str, set[int]] = defaultdict(set)
    for item, major in majors.items():
        of_test[_test(item)].add(major)
    chosen = {test: drawn(of, test) for test, of in of_test.items()}
    out = {item for item, major in majors.items() if major not in chosen[_test(item)]}
    return [item for item in items if item not in out], [item for item in items if item in out]


def _test(item: pytest.Item) -> str:
    return item.nodeid.split("[")[0]


def _major(item: pytest.Item) -> int | None:
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return next((value for name in NAMES if isinstance(value := params.get(name), int) and value in MAJORS), None)

"""A sample of the matrix of planted troubles, each on one major: all is found, at its cost. `make matrix` runs all of it on all majors."""

from __future__ import annotations

import pytest
from matrix import scenarios  # noqa: F401  registers them all
from matrix.command import sample
from matrix.run import run
from matrix.scenario import SCENARIOS

pytestmark = pytest.mark.live


@pytest.mark.parametrize(("name", "major"), sample(14, clean=3))
def test_what_was_planted_is_found_at_its_cost(name: str, major: int) -> None:
    result = run(SCENARIOS[name], major)
    if result.left_out:
        pytest.skip(f"this host or its kernel lacks something: {result.left_out}")
    assert result.faults == []

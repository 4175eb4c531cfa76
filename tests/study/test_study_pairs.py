"""All pairs of levels, and an experiment as the study with one factor of two levels: the same engine judges both."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from leadline.book.experiments.cells import COIN, UNSAID, orders_of
from leadline.book.experiments.design import WORDS, make, order_of
from leadline.book.experiments.drawing import drawings
from leadline.book.experiments.effects import Figures, all_pairs, headline, judge
from leadline.book.experiments.studies import cell_names, is_drawn, read_either
from leadline.study.report import _answers

LEVELS = {"a": 1.0, "b": 1.5, "c": 1.5}


def design(levels: dict[str, float], blocks: int = 9) -> dict[str, Any]:
    metric = {"name": "ms", "source": "used", "text": "seconds", "better": "less", "margin": 0.02, "is_time": True, "per": "", "proves": ""}
    return {"factors": [{"name": "x", "kind": "command", "levels": [[one, one] for one in levels]}], "cells": [[one] for one in levels],
            "repetitions": blocks, "metrics": [metric], "excluded": [], "dropped": []}  # fmt: skip


def figures(levels: dict[str, float], blocks: int = 9) -> Figures:
    """Blocks of another speed each, in which the levels differ as planted."""
    return {(block, at, "ms"): 10 * (1 + block / 7) * value * (1 + (block % 3) / 500)
            for block in range(blocks) for at, value in enumerate(levels.values())}  # fmt: skip


def test_all_pairs_are_one_family_with_its_error() -> None:
    found = all_pairs(design(LEVELS), figures(LEVELS))
    assert [(row["level"], round(row["ratio"], 6)) for row in found["rows"]] == [("x=b / x=a", 1.5), ("x=c / x=a", 1.5), ("x=c / x=b", 1.0)]
    assert [row["verdict"] for row in found["rows"]] == ["slower", "slower", "equivalent"]
    assert found["error"].startswith("3 comparisons, corrected together (Holm): ") and found["least_blocks"] == 7
    assert "x=c has 1.5 times x=a's ms" in found["rows"][1]["text"] and found["rows"][1]["text"].endswith("corrected for 3 comparisons")
    few = all_pairs(design(LEVELS, 6), figures(LEVELS, 6))
    assert {row["verdict"] for row in few["rows"]} == {"none"}, "6 blocks are enough for one comparison, not for three"


def test_pairs_of_two_factors_stay_within_their_factor_and_leave_out_what_was_not_measured() -> None:
    of = design({})
    of["factors"] = [{"name": name, "kind": "command", "levels": [[one, one] for one in "012"]} for name in ("x", "y")]
    of["cells"] = [[x, y] for x in "012" for y in "012" if (x, y) != ("2", "2")]
    values = {(block, at, "ms"): (1 + int(x)) * 10.0 ** int(y) for block in range(9) for at, (x, y) in enumerate(of["cells"])}
    rows = {row["level"]: row["ratio"] for row in all_pairs(of, values)["rows"]}
    assert set(rows) == {"x=1 / x=0", "x=2 / x=0", "x=2 / x=1", "y=1 / y=0", "y=2 / y=0", "y=2 / y=1"}
    assert rows["x=2 / x=1"] == pytest.approx(1.5) and rows["y=2 / y=0"] == pytest.approx(100)


@pytest.mark.parametrize("drawn", [COIN, UNSAID])
def test_an_experiment_is_a_study_of_two_levels(drawn: str) -> None:
    said = json.loads(make({"baseline": "old", "variant": "new", "pairs": 6, "seed": 5, "margin": "3%"}).as_text())
    said |= {"drawn": drawn, "order": order_of(6, 5, drawn)}
    of = read_either("experiment", json.dumps(said))
    assert of["order"] == orders_of(2, 6, 5, drawn) and is_drawn(of) and cell_names(of) == ["baseline", "variant"]
    assert not is_drawn(of | {"order": [[1, 0]] * 6})
    found = judge(of, {(block, at, "seconds"): value for block in range(6) for at, value in enumerate((10.0 + block, 9.0 + 0.9 * block))})
    assert headline(found, of)["text"] == (
        "faster: the variant has 0.9 times the baseline's seconds (0.9 to 0.9, 95 % interval, 6 pairs), which is better"
    )
    none = judge(of, {(block, at, "seconds"): 1.0 for block in range(4) for at in range(2)})
    assert headline(none, of)["text"] == "no verdict: 4 pairs, and 6 are needed (--pairs 6 or more)" and of["words"] is WORDS


def test_figures_that_no_ratio_can_be_made_of_leave_their_block_out() -> None:
    """A record may say anything: 1e300 over 1e-300 is no number."""
    of = design({"a": 1, "b": 1})
    values = dict(figures({"a": 1.0, "b": 2.0})) | {(0, 0, "ms"): 1e-300, (0, 1, "ms"): 1e300}
    (row,) = judge(of, values)["effects"]
    assert row["blocks"] == 8 and row["ratio"] == pytest.approx(2.0)


def test_that_no_level_has_a_verdict_stands_once_in_the_report() -> None:
    text = "no verdict: 6 blocks, and 7 are needed"
    rows = [{"level": level, "metric": "ms", "verdict": "none", "good": None, "text": text} for level in ("a=1", "a=2")]
    assert _answers({"effects": rows}, {}) == ['<p class="answer"><b>no verdict</b>6 blocks, and 7 are needed</p>']
    rows[1] |= {"verdict": "slower", "text": "slower: twice as long"}
    assert len(_answers({"effects": rows}, {})) == 2


def test_cells_that_differ_in_their_last_words_are_told_apart_in_a_drawing() -> None:
    names = [f"max_wal_size=32MB, checkpoint_flush_after={value}" for value in ("256kB", "0")]
    rows = [{"metric": "ms", "level": name, "ratio": 1.5, "low": 1.4, "high": 1.6} for name in names]
    (text,) = drawings(rows, design({"a": 1}))
    labels = re.findall(r'y="([\d.]+)" text-anchor="end"[^>]*>([^<]+)<', text)
    assert [label for _, label in labels] == [word for name in names for word in (name.split()[0], name.split()[1])]
    ys = [float(y) for y, _ in labels]
    assert all(b - a >= 13 for a, b in pairwise(ys)) and ys[-1] < int(re.findall(r'viewBox="0 0 460 (\d+)"', text)[0]) - 26


@pytest.mark.parametrize(("low", "high"), [(0.85, 0.95), (0.18, 0.2), (3.0, 40.0), (0.9999, 1.0001), (0.2, 6.0)])
def test_a_drawing_has_ticks_around_one_within_its_edges(low: float, high: float) -> None:
    rows = [{"metric": "ms", "level": "<x>", "ratio": (low * high) ** 0.5, "low": low, "high": high}]
    (text,) = drawings(rows, design({"a": 1}))
    ticks = [(float(x), float(value)) for x, value in re.findall(r'x="([\d.]+)" y="\d+" text-anchor="middle">([^<]+)<', text)]
    assert 1.0 in [value for _, value in ticks] and len(ticks) >= 2 and "<x>" not in text
    assert [x for x, _ in ticks] == sorted(x for x, _ in ticks) and all(b[0] - a[0] > 39 for a, b in pairwise(ticks))
    assert all(190 <= x <= 460 for x, _ in ticks)

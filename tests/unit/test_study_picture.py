"""Plots of a study as an SVG file that stands alone."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from leadline.errors import LeadlineError
from leadline.study import knees, over_time
from leadline.study.curves import Bar, Curve, bars, curves
from leadline.study.over_time import parts
from leadline.study.picture import of_study, picture
from replicating import pair_of_servers
from test_study_knees import of_two_shares
from test_study_outages import found

SVG = "{http://www.w3.org/2000/svg}"


def test_plots_stand_below_each_other_and_overlap_nowhere() -> None:
    plot = curves("MB/s", "s", [Curve("a<b", [(1, 2, 1, 3)], [(0, 0), (3, 3)]), Curve("c", over_time=[(0, 1), (2, 4)])])
    root = ET.fromstring(picture(["<h2>no plot</h2>", plot, bars("t", [Bar("x", 2.0, 1.0, 3.0), Bar("y", 0.0)])], ["said & done " * 20]))
    inner = root.findall(f"{SVG}svg")
    ends = [(float(one.attrib["y"]), float(one.attrib["y"]) + float(one.attrib["height"])) for one in inner]
    below = [float(text.attrib["y"]) for text in root.findall(f"{SVG}text")]
    assert len(inner) == 2 and ends[0][1] <= ends[1][0] and ends[1][1] < below[0] and below[-1] < float(root.attrib["height"])
    assert len(below) == 3 and all(text.text and len(text.text) <= 83 for text in root.findall(f"{SVG}text"))
    assert [len(inner[0].findall(f"{SVG}{kind}")) for kind in ("polyline", "circle")] == [2, 1]
    assert [len(inner[1].findall(f"{SVG}{kind}")) for kind in ("rect", "line")] == [2, 1], "a bar without a range has no line"


def test_of_a_study_it_says_what_it_was_measured_on(tmp_path: Path) -> None:
    of = of_two_shares()
    of["design"] |= {"name": "keep-up", "seed": 7, "repetitions": 3}
    later = ["<h2>later</h2>", curves("y", "x", [Curve("a", over_time=[(0, 1), (1, 2)])])]
    text = of_study(of | {"legs": [], "registered": 1_764_000_000_000_000}, knees.drawn(of), later, "4k7q2", tmp_path)
    below = " ".join(text.text or "" for text in ET.fromstring(text).findall(f"{SVG}text"))
    assert "a loopback pair, replay held to 10% or 5% of a CPU" in below and "3 blocks, seed 7, 2025-11-24." in below
    assert "Study keep-up, run 4k7q2." in below and "max_wal_size = 8GB" in below and text.count("<circle") == 6
    assert len(ET.fromstring(text).findall(f"{SVG}svg")) == 2


def test_a_study_of_few_blocks_without_curves_has_the_figures_of_its_cells(tmp_path: Path) -> None:
    metrics = {"records a second": [3.0, 1.0, 2.0], "records": [9.0] * 3}
    of = found("recovery", {("server", "1"): metrics, ("leadline", "1"): metrics}) | {"legs": [], "registered": 0}
    of["design"] |= {"name": "recovery", "seed": 7, "repetitions": 3}
    of["design"]["metrics"][1]["compared"] = False
    text = of_study(of | {"judged": {"effects": []}}, [], [], "4k7q2", tmp_path)
    assert "records a second, by program, rows" in text and ">leadline, 1</text>" in text and text.count("<title>2</title>") == 2
    assert "records, by" not in text


def test_a_study_without_a_verdict_has_no_picture(tmp_path: Path) -> None:
    with pytest.raises(LeadlineError, match="the study has no plot") as refused:
        of_study(of_two_shares() | {"judged": None}, ["<h2>x</h2>"], [], "4k7q2", tmp_path)
    assert refused.value.kind == "usage"


def test_a_line_over_time_has_all_of_its_points_within_the_axes() -> None:
    root = ET.fromstring(curves("y", "x", [Curve("a", over_time=[(0, 9.0), (4, 1.0)])]))
    [line] = root.findall("polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert points[0][0] == 56 and points[1][0] == 410 and 26 <= points[0][1] < points[1][1] <= 260
    assert curves("y", "x", [Curve("a")]) == bars("t", []) == ""


def test_a_trial_over_time_is_what_its_capture_saw(tmp_path: Path) -> None:
    """2 MB/s made and 5 replayed, 100 MB behind at the begin; of another cell there is no capture."""
    shutil.move(pair_of_servers(tmp_path / "made"), tmp_path / "0001-abcde-server.leadline")
    of = of_two_shares()
    first = {"part": "leg", "n": 0, "run": "abcde12", "side": "replay_cpu=10%, rate=120", "problem": ""}
    of["legs"] = [first | {"problem": "it failed"}, first, first | {"n": 1, "side": "replay_cpu=5%, rate=60"}]
    of["design"]["load"] = {"command": "x"}
    seen = parts(tmp_path / "0001-abcde-server.leadline")
    assert len(seen) == 40 and [part[0] for part in seen[:2]] == pytest.approx([0.5, 1.0])
    assert [rate for part in seen for rate in part[1:3]] == pytest.approx([2.0, 5.0] * 40, rel=1e-4)
    assert [before[3] - after[3] for before, after in pairwise(seen[:-1])] == pytest.approx([1.5] * 38, rel=1e-4), "3 MB/s for 0.5 s"
    heading, behind, replayed = over_time.drawn(of, tmp_path)
    assert "a loopback pair" in heading and "MB of WAL not replayed, replay_cpu=10%" in behind and "a line for each rate" in behind
    assert "MB/s replayed, replay_cpu=10%" in replayed
    assert behind.count("<polyline") == replayed.count("<polyline") == 1 and ">120</text>" in behind
    assert over_time.drawn(of | {"legs": []}, tmp_path) == over_time.drawn(of | {"judged": None}, tmp_path) == []
